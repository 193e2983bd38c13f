//! The same moment on our clock and the system's, so that what others stamped with the system's clocks can
//! be aligned with our spans.
#![allow(unsafe_code)]

use brickscope_profile::Anchor;

use super::Clock;

/// The present moment; `None` if the system lacks these clocks.
pub(super) fn now(clock: &Clock) -> Option<Anchor> {
    let read = || {
        let before = clock.now();
        let monotonic_ns = system_ns(MONOTONIC)?;
        let monotonic_raw_ns = system_ns(MONOTONIC_RAW)?;
        let unix_ns = system_ns(REALTIME);
        let width_ns = clock.now().saturating_sub(before);
        let at_ns = before + width_ns / 2;
        Some(Anchor { at_ns, monotonic_ns, monotonic_raw_ns, unix_ns, width_ns })
    };
    // An interrupt between the readings widens them; the narrowest had none.
    (0..16).filter_map(|_| read()).min_by_key(|anchor| anchor.width_ns)
}

#[cfg(all(target_os = "linux", not(miri)))]
const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;
#[cfg(all(target_os = "linux", not(miri)))]
const MONOTONIC_RAW: libc::clockid_t = libc::CLOCK_MONOTONIC_RAW;
#[cfg(all(target_os = "linux", not(miri)))]
const REALTIME: libc::clockid_t = libc::CLOCK_REALTIME;

#[cfg(all(target_os = "linux", not(miri)))]
fn system_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec` that outlives the call and that nobody else sees.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    if failed {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000_000)?;
    seconds.checked_add(u64::try_from(time.tv_nsec).ok()?)
}

#[cfg(any(not(target_os = "linux"), miri))]
const MONOTONIC: () = ();
#[cfg(any(not(target_os = "linux"), miri))]
const MONOTONIC_RAW: () = ();
#[cfg(any(not(target_os = "linux"), miri))]
const REALTIME: () = ();

#[cfg(any(not(target_os = "linux"), miri))]
fn system_ns(_: ()) -> Option<u64> {
    None
}
