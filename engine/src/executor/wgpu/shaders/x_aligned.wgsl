// Rows of x that are whole blocks.
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;

fn x_at(t: u32, i: u32) -> vec4<f32> {
    return x[t * (args.cols >> 2u) + i];
}
