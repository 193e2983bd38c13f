// One query head of one token, with the rows of the cache that it sees.

struct Args {
    heads: u32,
    heads_per_kv: u32,
    head_dim: u32,
    kv_dim: u32,
    // From one row of scores to the next.
    capacity: u32,
    scale: f32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Rows of the cache that token `t` of the pass sees; the last one is its own. None if there are no heads.
fn visible(t: u32) -> u32 {
    return select(params.position + t + 1u, 0u, args.heads == 0u);
}
