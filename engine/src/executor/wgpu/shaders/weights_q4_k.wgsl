// Q4_K, as in the file: 256 weights in 144 bytes, nine vectors. See `quant/q4_k.rs` for the block.
fn four(scale: f32, low: f32, word: u32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu)) - low;
}

fn weights(row: u32, block: u32) -> array<vec4<f32>, 8> {
    let at = 9u * (row * (args.blocks >> 3u) + (block >> 3u));
    let sub = block & 7u;
    let head = w[at];
    let byte = 8u * (sub & 3u);
    var scale = (head.y >> byte) & 0xffu;
    var low = (head.z >> byte) & 0xffu;
    if sub < 4u {
        scale &= 63u;
        low &= 63u;
    } else {
        let rest = (head.w >> byte) & 0xffu;
        scale = (rest & 15u) | ((scale >> 6u) << 4u);
        low = (rest >> 4u) | ((low >> 6u) << 4u);
    }
    let d = unpack2x16float(head.x);
    let s = d.x * f32(scale);
    let m = d.y * f32(low);
    // Two sub-blocks share 32 bytes: one has the low halves, the other the high ones.
    let shift = 4u * (sub & 1u);
    let a = w[at + 1u + 2u * (sub >> 1u)] >> vec4<u32>(shift);
    let b = w[at + 2u + 2u * (sub >> 1u)] >> vec4<u32>(shift);
    return array<vec4<f32>, 8>(
        four(s, m, a.x), four(s, m, a.y), four(s, m, a.z), four(s, m, a.w),
        four(s, m, b.x), four(s, m, b.y), four(s, m, b.z), four(s, m, b.w),
    );
}
