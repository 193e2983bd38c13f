// out[t] = W · x[t] for several tokens: a workgroup is a tile of 32 rows and 32 tokens, an invocation four by four of them.
// Each step loads a block of each row, dequantised once for all tokens, and of each token.

var<workgroup> w_tile: array<vec4<f32>, 256>; // (8, 32 rows)
var<workgroup> x_tile: array<vec4<f32>, 256>; // (8, 32 tokens)

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = 32u * id.x;
    let first_token = 32u * id.y;
    let row = lane & 7u;
    let token = lane >> 3u;
    // The sums of a row for four tokens each.
    var sums = array<vec4<f32>, 4>();
    for (var block = 0u; block < args.blocks; block++) {
        workgroupBarrier();
        if lane < 32u {
            var values = array<vec4<f32>, 8>();
            if first_row + lane < args.rows {
                values = weights(first_row + lane, block);
            }
            for (var i = 0u; i < 8u; i++) {
                w_tile[32u * i + lane] = values[i];
            }
        } else {
            let t = lane - 32u;
            for (var i = 0u; i < 8u; i++) {
                var value = vec4<f32>();
                if first_token + t < args.tokens {
                    value = x_at(first_token + t, 8u * block + i);
                }
                x_tile[32u * i + t] = value;
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < 8u; i++) {
            let at = 32u * i + token;
            let x0 = x_tile[at];
            let x1 = x_tile[at + 8u];
            let x2 = x_tile[at + 16u];
            let x3 = x_tile[at + 24u];
            for (var r = 0u; r < 4u; r++) {
                let v = w_tile[32u * i + row + 8u * r];
                sums[r] += vec4<f32>(dot(v, x0), dot(v, x1), dot(v, x2), dot(v, x3));
            }
        }
    }
    for (var r = 0u; r < 4u; r++) {
        for (var t = 0u; t < 4u; t++) {
            let of_row = row + 8u * r;
            let of_token = first_token + token + 8u * t;
            if first_row + of_row < args.rows && of_token < args.tokens {
                out[out_at(of_token, first_row + of_row)] = sums[r][t];
            }
        }
    }
}
