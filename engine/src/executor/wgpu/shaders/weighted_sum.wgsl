// out[t, h] = Σ_j p[t, h, j] * v[j]. The grid is (heads, tokens); a lane has each 64th element.

@group(0) @binding(3) var<storage, read> p: array<f32>;
@group(0) @binding(4) var<storage, read> v: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = id.y * args.heads + id.x;
    let head = id.x / args.heads_per_kv * args.head_dim;
    let len = visible(id.y);
    for (var i = lane; i < args.head_dim; i += 64u) {
        var sum = 0.0;
        for (var j = 0u; j < len; j++) {
            sum += p[row * args.capacity + j] * v[j * args.kv_dim + head + i];
        }
        out[row * args.head_dim + i] = sum;
    }
}
