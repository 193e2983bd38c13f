//! Plain floats, as blocks of one.

#[inline(always)]
pub(crate) fn decode(block: &[u8; 4], out: &mut [f32; 1]) {
    *out = [f32::from_le_bytes(*block)];
}

#[inline(always)]
pub(crate) fn encode(x: &[f32; 1]) -> [u8; 4] {
    x[0].to_le_bytes()
}
