// out[t] = table[token[t]], for the rows in this part of the table. A workgroup is a token.

@group(0) @binding(3) var<storage, read> tokens: array<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // For a token before this part, this wraps to more than any row.
    let row = tokens[id.x] - args.first_row;
    if row >= args.rows {
        return;
    }
    for (var block = lane; block < args.blocks; block += 64u) {
        var values = weights(row, block);
        let col = 32u * block;
        for (var i = 0u; i < min(32u, args.cols - col); i++) {
            out[id.x * args.cols + col + i] = values[i >> 2u][i & 3u];
        }
    }
}
