// A pair is two neighbours.
fn partners(pair: u32) -> vec2<u32> {
    return vec2<u32>(2u * pair, 2u * pair + 1u);
}
