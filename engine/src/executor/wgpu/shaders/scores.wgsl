// out[t, h, j] = scale * q[t, h] · k[j]. The grid is (workgroups that share the keys, heads, tokens).

@group(0) @binding(3) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = id.z * args.heads + id.y;
    let query = row * args.head_dim;
    let head = id.y / args.heads_per_kv * args.head_dim;
    for (var j = 64u * id.x + lane; j < visible(id.z); j += 64u * groups.x) {
        let key = j * args.kv_dim + head;
        var sum = 0.0;
        for (var i = 0u; i < args.head_dim; i++) {
            sum += q[query + i] * k[key + i];
        }
        out[row * args.capacity + j] = args.scale * sum;
    }
}
