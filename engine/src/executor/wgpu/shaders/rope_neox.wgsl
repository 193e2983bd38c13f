// A pair is an element of the first half and one of the second.
fn partners(pair: u32) -> vec2<u32> {
    return vec2<u32>(pair, pair + args.pairs);
}
