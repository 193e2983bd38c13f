// Softmax over the rows that the token sees, in place. The grid is (heads, tokens).

var<workgroup> shares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = (id.y * args.heads + id.x) * args.capacity;
    let len = visible(id.y);
    // Each row has at least one score.
    var top = out[row];
    for (var j = lane; j < len; j += 64u) {
        top = max(top, out[row + j]);
    }
    shares[lane] = top;
    for (var half = 32u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if lane < half {
            shares[lane] = max(shares[lane], shares[lane + half]);
        }
    }
    workgroupBarrier();
    top = shares[0];
    workgroupBarrier();
    var sum = 0.0;
    for (var j = lane; j < len; j += 64u) {
        let value = exp(out[row + j] - top);
        out[row + j] = value;
        sum += value;
    }
    shares[lane] = sum;
    for (var half = 32u; half > 0u; half >>= 1u) {
        workgroupBarrier();
        if lane < half {
            shares[lane] += shares[lane + half];
        }
    }
    workgroupBarrier();
    let total = shares[0];
    for (var j = lane; j < len; j += 64u) {
        out[row + j] /= total;
    }
}
