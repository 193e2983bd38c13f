// x += y.

struct Args {
    len: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> y: array<f32>;

fn element(i: u32) {
    x[i] += y[i];
}
