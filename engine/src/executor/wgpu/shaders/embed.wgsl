// out[t] = table[token[t]], of the rows that this part of the table has. A workgroup is a token.

struct Args {
    cols: u32,
    // Of 32 weights, in a row.
    blocks: u32,
    // Where scales begin, for the types that have them apart.
    scales: u32,
    first_row: u32,
    rows: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Of a token before the part this wraps, to more than any row.
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
