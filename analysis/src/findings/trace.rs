//! What a trace of another program, or a device's part of a run, can't tell.

use brickscope_profile::DeviceProfile;
use brickscope_profile::run::Format;

use super::Findings;
use super::facts::Facts;
use crate::no_passes;
use crate::roofline::verdict_of_device;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let profile = facts.profile;
    let is_trace =
        [Format::Chrome, Format::Nsight, Format::Rocprof].into_iter().any(|of| facts.is_from(of));
    if !facts.devices.is_empty() {
        let with_limits = || profile.devices.iter().filter(|device| device.ceilings.is_some());
        let reached = reached(facts);
        let why = match is_trace {
            true if with_limits().any(states_work) => match &reached {
                Some(reached) => reached.as_str(),
                None => "only a part of the work is known, and not how near its limits that is",
            },
            true if with_limits().next().is_some() => "the trace tells no work of what ran",
            true if profile.devices.iter().any(states_work) => {
                "a trace has no limits of the device: `import --ceilings` gives some"
            }
            true => "a trace has neither FLOPs, bytes, nor limits of the device",
            false if profile.devices.iter().any(DeviceProfile::has_streams_at_once) => {
                "several streams ran at once and shared its memory"
            }
            false => "limits of the device were not measured",
        };
        // Where they were to be, the rule itself says what is missing.
        if facts.on_devices.is_empty() {
            findings.unknown(
                "far-from-the-roof",
                format!("how fast the device could be is not known: {why}"),
            );
        }
        // Ours say which registers they take, but not what the device has.
        let lacks = match is_trace {
            true => "the registers that a trace has of them are not read",
            false => "how many threads the device has room for was not recorded",
        };
        findings.unknown(
            "occupancy",
            format!("how many threads kernels keep the device busy with is not known: {lacks}"),
        );
    }
    if !is_trace {
        return;
    }
    let on_devices = profile.devices.iter().flat_map(|device| &device.streams);
    if profile.passes.is_empty() && on_devices.clone().all(|stream| stream.passes.is_empty()) {
        let to_do = no_passes::to_do(profile);
        findings.unknown(
            "gaps-between-passes",
            format!("no event is a pass, so no rule can tell what a token takes: {to_do}"),
        );
    }
    findings.unknown(
        "waits-for-a-cpu",
        "whether threads waited for a CPU is not known: a trace has no counters of the system",
    );
}

/// How near to its limits the first device came whose work is known in part.
fn reached(facts: &Facts<'_>) -> Option<String> {
    facts.devices.iter().find_map(|of| {
        let verdict = verdict_of_device(facts.profile, of.index, of.phase)?;
        Some(format!(
            "only a part of the work is known; by that, {} on {}: {}",
            of.phase,
            of.name(facts.profile),
            verdict.says()
        ))
    })
}

/// Whether the FLOPs or bytes of any kernel that ran there are known. Those of copies say nothing of limits.
fn states_work(device: &DeviceProfile) -> bool {
    let totals = device.streams.iter().flat_map(|stream| &stream.totals);
    let mut kernels = totals.filter(|of| !of.stats.name.starts_with("Memcpy "));
    kernels.any(|of| of.stats.total_flops > 0 || of.stats.total_bytes > 0)
}
