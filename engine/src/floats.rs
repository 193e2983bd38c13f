//! Buffers of floats in large pages, where the system has them.
//!
//! With pages of 4 KiB, each page costs an address translation: reading the weights evicts both the cached
//! translations and the page tables from the processor's caches.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;

/// Floats, zero at first. The system commits the memory as they are written, a page at a time.
pub(crate) struct Floats(Memory);

enum Memory {
    /// These bytes of a mapping of its own, in large pages as far as the system gives them.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux is known to have large pages")
    )]
    Mapped(MmapMut, Range<usize>),
    Plain(Vec<f32>),
}

impl Floats {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        Self(mapped(len).unwrap_or_else(|| Memory::Plain(vec![0.0; len])))
    }
}

/// `None` where there are no large pages, or the floats don't fill one.
#[cfg(target_os = "linux")]
fn mapped(len: usize) -> Option<Memory> {
    const LARGE_PAGE: usize = 2 << 20;
    let bytes = len.checked_mul(size_of::<f32>())?;
    if bytes < LARGE_PAGE {
        return None;
    }
    // Room for whole large pages wherever the map begins. The rest is 4 KiB pages, committed only when written.
    let map =
        MmapMut::map_anon(bytes.checked_next_multiple_of(LARGE_PAGE)?.checked_add(LARGE_PAGE)?);
    let map = map.ok()?;
    map.advise(memmap2::Advice::HugePage).ok()?;
    let start = map.as_ptr().align_offset(LARGE_PAGE);
    Some(Memory::Mapped(map, start..start + bytes))
}

#[cfg(not(target_os = "linux"))]
fn mapped(_: usize) -> Option<Memory> {
    None
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            // Page-aligned, and a whole number of floats.
            Memory::Mapped(map, bytes) => bytemuck::cast_slice(&map[bytes.clone()]),
            Memory::Plain(floats) => floats,
        }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Memory::Mapped(map, bytes) => bytemuck::cast_slice_mut(&mut map[bytes.clone()]),
            Memory::Plain(floats) => floats,
        }
    }
}

impl fmt::Debug for Floats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.0 {
            Memory::Mapped(..) => "mapped",
            Memory::Plain(_) => "plain",
        };
        write!(f, "{} numbers, {place}", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_zeros_that_can_be_written() {
        for len in [0, 1, 1 << 19, (1 << 19) + 7] {
            let mut floats = Floats::zeros(len);
            assert!(floats.iter().all(|x| x.to_bits() == 0));
            floats.fill(1.5);
            assert_eq!(floats.iter().sum::<f32>(), 1.5 * len as f32);
            assert!(format!("{floats:?}").starts_with(&format!("{len} numbers")));
        }
    }
}
