// Signed bytes with an F32 scale for each 16. All bytes come first, 32 a block, then from the vector
// `args.scales` on all scales, two a block.
fn four(scale: f32, word: u32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xI8(word));
}

fn weights(row: u32, block: u32) -> array<vec4<f32>, 8> {
    let at = row * args.blocks + block;
    let two = w[args.scales + (at >> 1u)];
    let scales = bitcast<vec2<f32>>(select(two.xy, two.zw, (at & 1u) == 1u));
    let a = w[2u * at];
    let b = w[2u * at + 1u];
    return array<vec4<f32>, 8>(
        four(scales.x, a.x), four(scales.x, a.y), four(scales.x, a.z), four(scales.x, a.w),
        four(scales.y, b.x), four(scales.y, b.y), four(scales.y, b.z), four(scales.y, b.w),
    );
}
