@group(0) @binding(4) var<storage, read> x: array<f32>;

fn load(i: u32) -> f32 {
    return x[i];
}
