// Rotates pairs of elements of each head by the angle of the token's position. `partners`, which
// elements form a pair, comes from one of two files.

struct Args {
    heads: u32,
    head_dim: u32,
    pairs: u32,
    // Pairs of all heads of all tokens.
    len: u32,
    is_cache: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> cosines: array<f32>;
@group(0) @binding(4) var<storage, read> sines: array<f32>;

fn element(i: u32) {
    let pair = i % args.pairs;
    let head = i / args.pairs;
    let token = head / args.heads;
    let angle = (params.position + token) * args.pairs + pair;
    let first = args.is_cache * params.position * args.heads + head;
    let at = first * args.head_dim + partners(pair);
    let c = cosines[angle];
    let s = sines[angle];
    let a = x[at.x];
    let b = x[at.y];
    x[at.x] = a * c - b * s;
    x[at.y] = a * s + b * c;
}
