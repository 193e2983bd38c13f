// F16, two to a word. Rows are padded to whole blocks with zeros. Unpacking them is in the language;
// the type f16 would need a feature that not every device has.
fn four(low: u32, high: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(low), unpack2x16float(high));
}

fn weights(row: u32, block: u32) -> array<vec4<f32>, 8> {
    let at = 4u * (row * args.blocks + block);
    let a = w[at];
    let b = w[at + 1u];
    let c = w[at + 2u];
    let d = w[at + 3u];
    return array<vec4<f32>, 8>(
        four(a.x, a.y), four(a.z, a.w), four(b.x, b.y), four(b.z, b.w),
        four(c.x, c.y), four(c.z, c.w), four(d.x, d.y), four(d.z, d.w),
    );
}
