fn load(i: u32) -> f32 {
    return out[i];
}
