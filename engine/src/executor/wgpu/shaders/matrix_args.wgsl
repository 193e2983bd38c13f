// A part of the rows of a matrix, and where to put what they make: for lookups and products.

struct Args {
    cols: u32,
    // Blocks of 32 weights in a row.
    blocks: u32,
    // Where scales begin, for types that store them apart.
    scales: u32,
    first_row: u32,
    rows: u32,
    // From one token's output to the next one's: the rows of all parts.
    stride: u32,
    tokens: u32,
    // 1 if outputs go to row `position` and after it.
    is_cache: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn out_at(t: u32, row: u32) -> u32 {
    return (args.is_cache * params.position + t) * args.stride + args.first_row + row;
}
