//! Whether a pass on a device has a critical path.

use brickscope_profile::{DeviceStream, Profile};

/// Why a pass on a device has no critical path, without a full stop; `None` if it has one.
///
/// A path goes from stream to stream where one waited for another. Our own timers record these waits. Another program's trace
/// doesn't tell them, so where several streams worked in a pass, what it waited for isn't known.
#[must_use]
pub fn unknown(profile: &Profile, device: usize, pass: u32) -> Option<&'static str> {
    profile.imported.as_ref()?;
    let of = profile.devices.get(device).filter(|of| of.dependencies.is_empty())?;
    let worked = |stream: &&DeviceStream| stream.spans.iter().any(|span| span.pass == Some(pass));
    (of.streams.iter().filter(worked).count() > 1)
        .then_some("the file tells no waits between the streams that worked")
}
