// Q8_0, rearranged, since the file's blocks of 34 bytes straddle words. All quants come first, 32 bytes a
// block, then from the vector `args.scales` on all scales, two F16 to a word.
fn four(d: f32, word: u32) -> vec4<f32> {
    return d * vec4<f32>(unpack4xI8(word));
}

fn weights(row: u32, block: u32) -> array<vec4<f32>, 8> {
    let at = row * args.blocks + block;
    let scales = w[args.scales + (at >> 3u)];
    let d = unpack2x16float(scales[(at >> 1u) & 3u])[at & 1u];
    let a = w[2u * at];
    let b = w[2u * at + 1u];
    return array<vec4<f32>, 8>(
        four(d, a.x), four(d, a.y), four(d, a.z), four(d, a.w),
        four(d, b.x), four(d, b.y), four(d, b.z), four(d, b.w),
    );
}
