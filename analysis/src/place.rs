//! Where a run ran: the place whose bricks, passes and times are shown, drawn and compared if nobody says which.

use brickscope_profile::{DeviceProfile, Profile, Total};

/// The device whose bricks a profile is of, if its host did nothing but issue the work and wait.
#[must_use]
pub fn that_ran(profile: &Profile) -> Option<usize> {
    let waits = |total: &Total| total.stats.name == "DeviceWait";
    let wanted = profile.totals.is_empty() || profile.totals.iter().any(waits);
    (wanted && profile.devices.first().is_some_and(has_spans)).then_some(0)
}

/// The device that a tree or a table of a run is of, if nobody says which: as [`that_ran`], and of another program's trace of
/// a GPU, whose host has the functions that launch, the first one that ran something, as on the first screen.
#[must_use]
pub fn shown_first(profile: &Profile) -> Option<usize> {
    that_ran(profile).or_else(|| of_trace(profile))
}

/// The first device that ran something in another program's trace. `None` for runs that brickscope recorded.
fn of_trace(profile: &Profile) -> Option<usize> {
    profile.imported.as_ref()?;
    profile.devices.iter().position(has_spans)
}

fn has_spans(device: &DeviceProfile) -> bool {
    device.streams.iter().any(|stream| !stream.spans.is_empty())
}
