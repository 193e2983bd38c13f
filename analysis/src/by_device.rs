//! How fast passes were by the clock of a device, where the host's passes end before their work on the device does: then the
//! host's time is that of launching.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::text::count;
use brickscope_profile::{DeviceProfile, Phase, Profile};

use crate::ranks::is_of_host;
use crate::words::time;

/// Tokens of passes, and the time that their work took on devices: two readings of the devices' clock for each pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByDevice {
    /// The tokens of the passes.
    pub tokens: u64,
    /// How long they took, summed.
    pub ns: u64,
    /// How many passes.
    pub passes: u64,
    /// Whether each pass is timed to the first kernel of the next one, with all that lies between; else to its own last
    /// kernel.
    pub is_steady: bool,
    /// On how many devices.
    pub devices: usize,
}

/// A pass on all devices together.
struct OnDevices {
    serial: u32,
    phase: Phase,
    tokens: u64,
    start_ns: u64,
    end_ns: u64,
}

impl ByDevice {
    /// The passes of a phase in another program's trace. `None` where the host's own time has a rate, where the tokens of a
    /// pass aren't known, or where several threads have passes, which may be of the same tokens.
    #[must_use]
    pub fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        profile.imported.as_ref()?;
        profile.phase(phase).filter(|host| host.tokens == 0)?;
        let lane = profile.passes.first()?.lane;
        let is_whole = profile.dropped.passes == 0
            && of_host(profile).flat_map(|of| &of.streams).all(|of| of.dropped.passes == 0);
        if !is_whole || profile.passes.iter().any(|pass| pass.lane != lane) {
            return None;
        }
        let all = on_devices(profile);
        let of_phase = || all.iter().filter(|pass| pass.phase == phase);
        if of_phase().any(|pass| pass.tokens == 0) {
            return None;
        }
        let places = places(profile);
        let follows = |a: &OnDevices, b: &OnDevices| {
            let place = |of: &OnDevices| places.get(&of.serial).copied();
            place(a).zip(place(b)).is_some_and(|(a, b)| b == a + 1)
        };
        let steps = all.windows(2).filter_map(|two| match two {
            [a, b] if a.phase == phase && b.phase == phase && follows(a, b) => {
                Some((a.tokens, b.start_ns.saturating_sub(a.start_ns)))
            }
            _ => None,
        });
        let devices = of_host(profile).count();
        let spans = of_phase().map(|of| (of.tokens, of.end_ns.saturating_sub(of.start_ns)));
        sum(steps, true, devices).or_else(|| sum(spans, false, devices))
    }

    /// Tokens per second.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 * 1e9 / self.ns as f64
    }

    /// By which clock, and what of: `the device's clock: 32 tokens in 10.7 ms from its first kernel to its last`.
    #[must_use]
    pub fn says(&self) -> String {
        format!("{}: {}", self.clock(), self.basis())
    }

    /// The same in fewer words: `the device's clock (32 tokens in 10.7 ms)`.
    #[must_use]
    pub fn in_short(&self) -> String {
        let time = time(self.ns as f64);
        format!("{} ({} in {time})", self.clock(), count(self.tokens, "token"))
    }

    /// By which clock.
    #[must_use]
    pub fn clock(&self) -> &'static str {
        if self.devices == 1 { "the device's clock" } else { "the devices' clocks" }
    }

    /// What of: `32 tokens in 10.7 ms from its first kernel to its last`.
    #[must_use]
    pub fn basis(&self) -> String {
        let of = match (self.is_steady, self.passes) {
            (true, 1) => "from a pass's first kernel to the next one's".to_owned(),
            (true, n) => format!("of {n} passes, each from its first kernel to the next one's"),
            (false, 1) => "from its first kernel to its last".to_owned(),
            (false, n) => format!("of {n} passes, each from its first kernel to its last"),
        };
        format!("{} in {} {of}", count(self.tokens, "token"), time(self.ns as f64))
    }
}

/// The sum of tokens and times, if there are any.
fn sum(of: impl Iterator<Item = (u64, u64)>, is_steady: bool, devices: usize) -> Option<ByDevice> {
    let none = ByDevice { tokens: 0, ns: 0, passes: 0, is_steady, devices };
    let sum = of.fold(none, |sum, (tokens, ns)| ByDevice {
        tokens: sum.tokens.saturating_add(tokens),
        ns: sum.ns.saturating_add(ns),
        passes: sum.passes + 1,
        ..sum
    });
    (sum.ns > 0).then_some(sum)
}

/// The devices that the host drove. Those of other ranks have the serials of its passes, but clocks that may not be aligned.
fn of_host(profile: &Profile) -> impl Iterator<Item = &DeviceProfile> {
    profile.devices.iter().filter(|device| is_of_host(profile, device.rank))
}

/// The passes on these devices in the order of their first kernels, each from its first kernel on any of them to its last.
fn on_devices(profile: &Profile) -> Vec<OnDevices> {
    let mut by_serial: BTreeMap<u32, OnDevices> = BTreeMap::new();
    let streams = of_host(profile).flat_map(|device| &device.streams);
    for pass in streams.flat_map(|stream| &stream.passes) {
        let end_ns = pass.start_ns.saturating_add(pass.wall_ns);
        let of = by_serial.entry(pass.serial).or_insert(OnDevices {
            serial: pass.serial,
            phase: pass.phase,
            tokens: pass.tokens,
            start_ns: pass.start_ns,
            end_ns,
        });
        (of.start_ns, of.end_ns) = (of.start_ns.min(pass.start_ns), of.end_ns.max(end_ns));
    }
    let mut all: Vec<OnDevices> = by_serial.into_values().collect();
    all.sort_by_key(|pass| (pass.start_ns, pass.serial));
    all
}

/// The place of each of the host's passes, by serial, in the order of time.
fn places(profile: &Profile) -> HashMap<u32, usize> {
    let mut passes: Vec<(u64, u32)> =
        profile.passes.iter().map(|pass| (pass.start_ns, pass.serial)).collect();
    passes.sort_unstable();
    passes.into_iter().enumerate().map(|(place, (_, serial))| (serial, place)).collect()
}
