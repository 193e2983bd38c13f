//! The clock of samples.

#![allow(unsafe_code, reason = "reading a clock of the system is a foreign call")]

/// The time of `CLOCK_MONOTONIC_RAW`, in nanoseconds. Signal handlers may call this.
pub(crate) fn raw_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_RAW).unwrap_or(0)
}

/// The time of `clock`, in nanoseconds; `None` if there is no such clock.
pub(crate) fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid timespec.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
    (!failed).then_some(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds))
}
