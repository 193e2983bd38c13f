//! The floor: bare readings of the processor's counter.

/// What the rows of raw readings read.
pub(crate) const NAME: &str = if cfg!(target_arch = "x86_64") { "rdtsc" } else { "the OS clock" };

/// One reading.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn read() -> u64 {
    // SAFETY: `rdtsc` touches no memory, and every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// One reading.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn read() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_nanos() as u64
}
