// x[t] += bias.

struct Args {
    len: u32,
    width: u32,
    is_cache: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

fn element(i: u32) {
    x[args.is_cache * params.position * args.width + i] += bias[i % args.width];
}
