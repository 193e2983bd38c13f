// gate = max(gate, 0)² * up.

struct Args {
    len: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> gate: array<f32>;
@group(0) @binding(3) var<storage, read> up: array<f32>;

fn element(i: u32) {
    let x = max(gate[i], 0.0);
    gate[i] = x * x * up[i];
}
