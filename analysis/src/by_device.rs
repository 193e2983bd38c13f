//! How fast passes were by the clock of a device, where the host's passes end before their work on the device does: then the
//! host's time is that of launching.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::text::count;
use brickscope_profile::{DeviceProfile, Phase, Profile};

use crate::idle::Idle;
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
    /// Of passes by themselves, the longest time in each in which nothing ran on any of the devices, summed; 0 where passes
    /// follow each other, since what lies between is theirs then.
    pub hole_ns: u64,
}

/// A pass on all devices together.
struct OnDevices {
    serial: u32,
    phase: Phase,
    tokens: u64,
    start_ns: u64,
    end_ns: u64,
    /// The longest time in it in which nothing ran.
    hole_ns: u64,
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
                Some((a.tokens, b.start_ns.saturating_sub(a.start_ns), 0))
            }
            _ => None,
        });
        let devices = of_host(profile).count();
        let spans =
            of_phase().map(|of| (of.tokens, of.end_ns.saturating_sub(of.start_ns), of.hole_ns));
        sum(steps, true, devices).or_else(|| sum(spans, false, devices))
    }

    /// Tokens per second.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 * 1e9 / self.ns as f64
    }

    /// For how long of it nothing ran, if that is more than half: then the rate is that of a wait, and says little of how
    /// fast the device is.
    #[must_use]
    pub fn hole_ns(&self) -> Option<u64> {
        (self.hole_ns > self.ns / 2).then_some(self.hole_ns)
    }

    /// Why the rate is left out of lists, where nothing stands beside it: `nothing ran for 463 ms of the 474 ms of its 32
    /// tokens`.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        let [hole, all] = [self.hole_ns()?, self.ns].map(|ns| time(ns as f64));
        let tokens = count(self.tokens, "token");
        Some(format!("nothing ran on the device for {hole} of the {all} of its {tokens}"))
    }

    /// `, of which nothing ran for 463 ms`, where that is more than half.
    fn of_which(&self) -> String {
        let hole = self.hole_ns().map(|ns| time(ns as f64));
        hole.map_or_else(String::new, |hole| format!(", of which nothing ran for {hole}"))
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
        let tokens = count(self.tokens, "token");
        format!("{} ({tokens} in {time}{})", self.clock(), self.of_which())
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
        let tokens = count(self.tokens, "token");
        format!("{tokens} in {} {of}{}", time(self.ns as f64), self.of_which())
    }
}

/// The sum of tokens, times and holes, if there are any.
fn sum(
    of: impl Iterator<Item = (u64, u64, u64)>,
    is_steady: bool,
    devices: usize,
) -> Option<ByDevice> {
    let none = ByDevice { tokens: 0, ns: 0, passes: 0, is_steady, devices, hole_ns: 0 };
    let sum = of.fold(none, |sum, (tokens, ns, hole_ns)| ByDevice {
        tokens: sum.tokens.saturating_add(tokens),
        ns: sum.ns.saturating_add(ns),
        passes: sum.passes + 1,
        hole_ns: sum.hole_ns.saturating_add(hole_ns),
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
            hole_ns: 0,
        });
        (of.start_ns, of.end_ns) = (of.start_ns.min(pass.start_ns), of.end_ns.max(end_ns));
    }
    for (serial, hole_ns) in holes(profile) {
        if let Some(of) = by_serial.get_mut(&serial) {
            of.hole_ns = hole_ns;
        }
    }
    let mut all: Vec<OnDevices> = by_serial.into_values().collect();
    all.sort_by_key(|pass| (pass.start_ns, pass.serial));
    all
}

/// The longest time in each pass, by serial, in which nothing ran on any of these devices.
fn holes(profile: &Profile) -> BTreeMap<u32, u64> {
    let mut ran: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let mut all = Vec::new();
    let spans = of_host(profile).flat_map(|device| &device.streams).flat_map(|of| &of.spans);
    // As `DeviceProfile::busy` counts.
    for span in spans.filter(|span| span.exclusive_ns > 0) {
        let at = (span.start_ns, span.start_ns.saturating_add(span.duration_ns));
        all.push(at);
        if let Some(serial) = span.pass {
            ran.entry(serial).or_default().push(at);
        }
    }
    let idle = Idle::of(all);
    ran.into_iter().map(|(serial, spans)| (serial, longest_hole(spans, &idle))).collect()
}

/// The longest time between the first begin and the last end in which nothing ran, nor anything of another pass.
fn longest_hole(mut ran: Vec<(u64, u64)>, idle: &Idle) -> u64 {
    ran.sort_unstable();
    let mut until = ran.first().map_or(0, |&(start, _)| start);
    ran.iter().fold(0, |longest, &(start, end)| {
        let hole = idle.within(until, start);
        until = until.max(end);
        longest.max(hole)
    })
}

/// The place of each of the host's passes, by serial, in the order of time. Steps that computed nothing have places, too.
fn places(profile: &Profile) -> HashMap<u32, usize> {
    let passes = profile.passes.iter().map(|pass| (pass.start_ns, Some(pass.serial)));
    let idle = profile.imported.iter().flat_map(|imported| &imported.idle_steps_ns);
    let mut all: Vec<(u64, Option<u32>)> = passes.chain(idle.map(|&at| (at, None))).collect();
    all.sort_unstable();
    let placed = all.into_iter().enumerate();
    placed.filter_map(|(place, (_, serial))| Some((serial?, place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_hole_is_where_no_stream_runs() {
        let longest = |ran: &[(u64, u64)], others: &[(u64, u64)]| {
            longest_hole(ran.to_vec(), &Idle::of([ran, others].concat()))
        };
        assert_eq!(longest(&[], &[]), 0);
        // From 30 to 90 and from 95 to 100 nothing runs; what overlaps leaves no hole.
        let ran = [(90, 95), (0, 20), (10, 30), (100, 110)];
        assert_eq!(longest(&ran, &[]), 60);
        // Another pass runs for 50 of the 60.
        assert_eq!(longest(&ran, &[(35, 85)]), 10);
    }

    #[test]
    fn a_rate_that_is_mostly_a_wait_says_so() {
        let by = ByDevice {
            tokens: 32,
            ns: 474_000_000,
            passes: 1,
            is_steady: false,
            devices: 1,
            hole_ns: 463_000_000,
        };
        let said = "the device's clock (32 tokens in 474 ms, of which nothing ran for 463 ms)";
        assert_eq!(by.in_short(), said);
        assert!(by.basis().ends_with("to its last, of which nothing ran for 463 ms"));
        let why = "nothing ran on the device for 463 ms of the 474 ms of its 32 tokens";
        assert_eq!(by.doubt().as_deref(), Some(why));
        let busy = ByDevice { hole_ns: 200_000_000, ..by };
        assert_eq!(busy.doubt(), None);
        assert_eq!(busy.in_short(), "the device's clock (32 tokens in 474 ms)");
    }
}
