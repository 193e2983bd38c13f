// out = x * weight / sqrt(mean(x * x) + eps). A workgroup is a row. `load` comes from one of two files:
// a buffer can't be bound twice where one of the two is written to.

struct Args {
    width: u32,
    // Rows of a token.
    rows_per_token: u32,
    // The token of `x` that the first row of `out` is for.
    first: u32,
    rows: u32,
    eps: f32,
    is_cache: u32,
}
@group(0) @binding(1) var<uniform> args: Args;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

var<workgroup> shares: array<f32, 128>;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear(id, groups);
    let is_row = row < args.rows;
    let width = args.width;
    let first_row = args.is_cache * params.position * args.rows_per_token;
    let to = (first_row + row) * width;
    let from_row = (first_row + args.first * args.rows_per_token + row) * width;
    var sum = 0.0;
    if is_row {
        for (var i = lane; i < width; i += 128u) {
            let value = load(from_row + i);
            sum += value * value;
        }
    }
    shares[lane] = sum;
    for (var half = 64u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if lane < half {
            shares[lane] += shares[lane + half];
        }
    }
    workgroupBarrier();
    if is_row {
        let scale = 1.0 / sqrt(shares[0] / f32(width) + args.eps);
        for (var i = lane; i < width; i += 128u) {
            out[to + i] = load(from_row + i) * scale * weight[i];
        }
    }
}
