// out = W · x for one token: eight rows per workgroup, eight lanes per row. A lane takes every eighth block.

var<workgroup> shares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = 8u * linear(id, groups) + (lane >> 3u);
    var sum = vec4<f32>();
    if row < args.rows {
        for (var block = lane & 7u; block < args.blocks; block += 8u) {
            let values = weights(row, block);
            let at = 8u * block;
            sum += values[0] * x_at(0u, at);
            sum += values[1] * x_at(0u, at + 1u);
            sum += values[2] * x_at(0u, at + 2u);
            sum += values[3] * x_at(0u, at + 3u);
            sum += values[4] * x_at(0u, at + 4u);
            sum += values[5] * x_at(0u, at + 5u);
            sum += values[6] * x_at(0u, at + 6u);
            sum += values[7] * x_at(0u, at + 7u);
        }
    }
    shares[lane] = (sum.x + sum.y) + (sum.z + sum.w);
    workgroupBarrier();
    if (lane & 7u) == 0u && row < args.rows {
        var total = 0.0;
        for (var i = 0u; i < 8u; i++) {
            total += shares[lane + i];
        }
        out[out_at(0u, row)] = total;
    }
}
