//! Files of devices in which no event is a pass: which events may be some, or how to record any.

use std::collections::HashSet;

use brickscope_profile::text::brief;
use brickscope_profile::{NameKind, Profile, Total};

/// The most events that are named.
const MOST: usize = 5;
/// What threads ask of the device's driver, by the names that an import gives it, and shapes: no pass.
const CALLS: [&str; 5] = ["Launch", "CopyCall", "WaitForDevice", "Allocate", "View"];
/// The same by the names that libraries give their functions, and operations of PyTorch.
const PREFIXES: [&str; 4] = ["aten::", "cuda", "hip", "hsa"];

/// How to record ranges and calls of the host, where a file of devices has none: then no event of it could be a pass.
pub(crate) fn host_to_record(profile: &Profile) -> Option<&'static str> {
    let imported = profile.imported.as_ref()?;
    let is_bare = profile.totals.is_empty() && profile.passes.is_empty();
    (is_bare && !profile.devices.is_empty()).then_some(match &*imported.format {
        "rocprof" => "`rocprofv3 --kernel-trace --hip-trace --marker-trace`",
        "nsight" => "`nsys profile -t cuda,nvtx`",
        _ => "with the CPU's activities and ranges",
    })
}

/// What to do so that passes are known, as a part of a sentence: `name events with …`.
pub(crate) fn to_do(profile: &Profile) -> String {
    if let Some(how) = host_to_record(profile) {
        return format!("record what the host did, so that events can be passes ({how})");
    }
    let some = candidates(profile).map_or_else(String::new, |some| format!(", such as {some}"));
    format!("name events with `import --prefill` and `--decode`{some}")
}

/// Ranges of the host that may be passes, those that took longest first, with how often they ran: `` `step` (12 times) ``.
/// `None` without any. Of a trace of the host alone the screens list all that it has.
pub(crate) fn candidates(profile: &Profile) -> Option<String> {
    if profile.devices.is_empty() {
        return None;
    }
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let on_devices: HashSet<&str> =
        streams.flat_map(|stream| &stream.totals).map(|total| &*total.stats.name).collect();
    // A pass has other work inside, and no device has it as a kind of its own work.
    let may_be = |total: &&Total| {
        let name = &*total.stats.name;
        total.phase.is_none()
            && total.kind == NameKind::Brick
            && total.stats.total_ns > total.stats.exclusive_ns
            && !on_devices.contains(name)
            && !CALLS.contains(&name)
            && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut found: Vec<&Total> = profile.totals.iter().filter(may_be).collect();
    found.sort_by(|a, b| {
        let by_time = b.stats.total_ns.cmp(&a.stats.total_ns);
        by_time.then_with(|| a.stats.name.cmp(&b.stats.name))
    });
    let named = found.iter().take(MOST).map(|total| {
        let times = match total.stats.count {
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        format!("`{}` ({times})", brief(&total.stats.name))
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}
