// gate = silu(gate) * up, with silu(x) = x / (1 + exp(-x)).

struct Args {
    len: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read_write> gate: array<f32>;
@group(0) @binding(3) var<storage, read> up: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = 64u * linear(id, groups) + lane;
    if i < args.len {
        let x = gate[i];
        gate[i] = x / (1.0 + exp(-x)) * up[i];
    }
}
