//! Checksums and digests of what kernels wrote.

use brickscope_profile::checksum::first_divergence;
use brickscope_profile::digest::first_fault;
use brickscope_profile::{
    Digest, DigestFault, DivergenceInfo, KernelChecksum, KernelDigest, Tolerance,
    fnv1a_f32_checksum,
};

use super::BrickProfiler;
use crate::sync::lock_unmodelled as lock;

/// Records checksums and digests of kernels' outputs, and compares them with those of another profiler. Made by
/// [`BrickProfiler::checksums`].
///
/// A checksum tells whether two outputs are equal to the bit. A digest tells rounding from a fault, so it can also
/// be compared with that of other hardware.
///
/// ```
/// use brickscope::{BrickProfiler, Tolerance};
///
/// let (cpu, gpu) = (BrickProfiler::enabled(), BrickProfiler::enabled());
/// cpu.checksums().record_digest("Softmax", 0, 5, &[0.25, 0.75]);
/// gpu.checksums().record_digest("Softmax", 0, 5, &[0.25, 0.750_000_1]);
/// cpu.checksums().record_digest("Rope", 1, 5, &[0.6, -0.8]);
/// gpu.checksums().record_digest("Rope", 1, 5, &[-0.8, 0.6]);
///
/// let fault = gpu.checksums().find_fault(&cpu, Tolerance::default()).expect("a swapped pair");
/// assert_eq!((&*fault.name, fault.layer_idx), ("Rope", 1));
/// println!("{fault}");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ChecksumRecorder<'p>(pub(super) &'p BrickProfiler);

impl ChecksumRecorder<'_> {
    /// Records the checksum of `output`, which the kernel `name` wrote in a layer at a position. Does nothing if the
    /// profiler is off.
    pub fn record(self, name: &str, layer_idx: usize, position: u32, output: &[f32]) {
        if !self.0.recorder.is_active() {
            return;
        }
        let checksum = fnv1a_f32_checksum(output);
        let name = name.to_owned();
        lock(&self.0.checksums).push(KernelChecksum { name, layer_idx, position, checksum });
    }

    /// All checksums, in the order in which they were recorded.
    #[must_use]
    pub fn all(self) -> Vec<KernelChecksum> {
        lock(&self.0.checksums).clone()
    }

    /// The first kernel whose checksum differs from that of `reference` at the same place. `None` if all checksums
    /// that both have are equal.
    #[must_use]
    pub fn find_divergence(self, reference: &BrickProfiler) -> Option<DivergenceInfo> {
        first_divergence(&self.all(), &reference.checksums().all())
    }

    /// Records the digest of `output`, which the kernel `name` wrote in a layer at a position. Does nothing if the
    /// profiler is off.
    ///
    /// Unlike a checksum, a digest covers the whole output. It takes about 20 additions for each element.
    pub fn record_digest(self, name: &str, layer_idx: usize, position: u32, output: &[f32]) {
        if !self.0.recorder.is_active() {
            return;
        }
        let digest = Digest::of(output);
        let name = name.to_owned();
        lock(&self.0.digests).push(KernelDigest { name, layer_idx, position, digest });
    }

    /// All digests, in the order in which they were recorded.
    #[must_use]
    pub fn digests(self) -> Vec<KernelDigest> {
        lock(&self.0.digests).clone()
    }

    /// The first kernel whose digest differs from that of `reference` at the same place by more than `tolerance`
    /// allows. `None` if all digests that both have differ by rounding only. Places that were recorded more than
    /// once are matched in order.
    #[must_use]
    pub fn find_fault(
        self,
        reference: &BrickProfiler,
        tolerance: Tolerance,
    ) -> Option<DigestFault> {
        first_fault(&self.digests(), &reference.checksums().digests(), tolerance)
    }

    /// Forgets all checksums and digests.
    pub fn reset(self) {
        lock(&self.0.checksums).clear();
        lock(&self.0.digests).clear();
    }
}
