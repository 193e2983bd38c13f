// Rows of x, of any width: the rows of weights are padded to whole blocks, these are not.
@group(0) @binding(3) var<storage, read> x: array<f32>;

fn x_one(t: u32, i: u32) -> f32 {
    if i >= args.cols {
        return 0.0;
    }
    return x[t * args.cols + i];
}

fn x_at(t: u32, i: u32) -> vec4<f32> {
    let at = 4u * i;
    return vec4<f32>(x_one(t, at), x_one(t, at + 1u), x_one(t, at + 2u), x_one(t, at + 3u));
}
