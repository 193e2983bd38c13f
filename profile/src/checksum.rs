//! Checksums of kernels' outputs, to find the first one that differs from a reference.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::printable;

/// The checksum of one kernel's output at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelChecksum {
    /// The kernel, or the brick.
    pub name: String,
    /// The transformer layer.
    pub layer_idx: usize,
    /// The position in the sequence.
    pub position: u32,
    /// [`fnv1a_f32_checksum`] of the output.
    pub checksum: u64,
}

/// The first kernel whose output differs from the reference's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceInfo {
    /// The kernel.
    pub kernel_name: String,
    /// The transformer layer.
    pub layer_idx: usize,
    /// The position in the sequence.
    pub position: u32,
    /// The checksum in the reference.
    pub expected_checksum: u64,
    /// The checksum in this run.
    pub actual_checksum: u64,
}

impl fmt::Display for DivergenceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DIVERGENCE at '{}' (layer {}, pos {}): expected 0x{:016X}, got 0x{:016X}",
            printable(&self.kernel_name),
            self.layer_idx,
            self.position,
            self.expected_checksum,
            self.actual_checksum
        )
    }
}

/// The 64-bit FNV-1a hash of the first 64 values of `data`, as little-endian bytes.
///
/// A quick test of equality to the bit: it can't tell rounding from a fault, nor see past the
/// 64th value; a [`Digest`](crate::Digest) can. Parameters: Fowler, Noll, Vo, <http://www.isthe.com/chongo/tech/comp/fnv/>.
#[must_use]
pub fn fnv1a_f32_checksum(data: &[f32]) -> u64 {
    fnv1a(data.iter().take(64).flat_map(|value| value.to_le_bytes()))
}

/// The 64-bit FNV-1a hash of some bytes.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.into_iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The first of `actual`, in order, whose checksum differs from that in `reference` for the same name, layer
/// and position. Places recorded more than once are matched in order; places that `reference` doesn't have
/// are skipped.
#[doc(hidden)]
pub fn first_divergence(
    actual: &[KernelChecksum],
    reference: &[KernelChecksum],
) -> Option<DivergenceInfo> {
    let mut expected: HashMap<(&str, usize, u32), VecDeque<u64>> = HashMap::new();
    for at in reference {
        let place = (at.name.as_str(), at.layer_idx, at.position);
        expected.entry(place).or_default().push_back(at.checksum);
    }
    actual.iter().find_map(|at| {
        let place = (at.name.as_str(), at.layer_idx, at.position);
        let expected_checksum = expected.get_mut(&place)?.pop_front()?;
        (expected_checksum != at.checksum).then(|| DivergenceInfo {
            kernel_name: at.name.clone(),
            layer_idx: at.layer_idx,
            position: at.position,
            expected_checksum,
            actual_checksum: at.checksum,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, layer_idx: usize, checksum: u64) -> KernelChecksum {
        KernelChecksum { name: name.to_owned(), layer_idx, position: 0, checksum }
    }

    #[test]
    fn the_hash_is_fnv1a_of_the_bytes() {
        // The published test vectors of FNV-1a for "" and "a", and "foobar" as bytes.
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_f32_checksum(&[1.0]), fnv1a([0, 0, 0x80, 0x3f]));
    }

    #[test]
    fn only_the_first_64_values_count() {
        let mut data = [0.5_f32; 65];
        let before = fnv1a_f32_checksum(&data);
        data[64] = 9.0;
        assert_eq!(fnv1a_f32_checksum(&data), before);
        data[63] = 9.0;
        assert_ne!(fnv1a_f32_checksum(&data), before);
    }

    #[test]
    fn the_first_kernel_that_differs_is_named() {
        let reference = [at("Rope", 0, 1), at("Qkv", 0, 2), at("Rope", 1, 3)];
        let actual = [at("Rope", 0, 1), at("New", 0, 9), at("Qkv", 0, 7), at("Rope", 1, 8)];
        let found = first_divergence(&actual, &reference).expect("Qkv differs");
        assert_eq!(
            found.to_string(),
            "DIVERGENCE at 'Qkv' (layer 0, pos 0): \
             expected 0x0000000000000002, got 0x0000000000000007"
        );
        assert_eq!(first_divergence(&reference, &reference), None);
    }

    #[test]
    fn a_kernel_that_runs_twice_at_one_place_is_compared_run_by_run() {
        let reference = [at("Norm", 0, 1), at("Norm", 0, 2)];
        assert_eq!(first_divergence(&reference, &reference), None);
        let swapped = [at("Norm", 0, 2), at("Norm", 0, 1)];
        assert_eq!(first_divergence(&swapped, &reference).map(|d| d.expected_checksum), Some(1));
    }
}
