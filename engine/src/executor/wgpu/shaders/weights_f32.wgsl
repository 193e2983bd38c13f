// F32. Rows are padded to whole blocks with zeros.
fn weights(row: u32, block: u32) -> array<vec4<f32>, 8> {
    let at = 8u * (row * args.blocks + block);
    return array<vec4<f32>, 8>(
        bitcast<vec4<f32>>(w[at]),
        bitcast<vec4<f32>>(w[at + 1u]),
        bitcast<vec4<f32>>(w[at + 2u]),
        bitcast<vec4<f32>>(w[at + 3u]),
        bitcast<vec4<f32>>(w[at + 4u]),
        bitcast<vec4<f32>>(w[at + 5u]),
        bitcast<vec4<f32>>(w[at + 6u]),
        bitcast<vec4<f32>>(w[at + 7u]),
    );
}
