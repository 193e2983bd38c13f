// Halves.
fn partners(pair: u32) -> vec2<u32> {
    return vec2<u32>(pair, pair + args.pairs);
}
