// Rows of x, of a width that is a multiple of 4.
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;

fn x_at(t: u32, i: u32) -> vec4<f32> {
    let width = args.cols >> 2u;
    if i >= width {
        return vec4<f32>();
    }
    return x[t * width + i];
}
