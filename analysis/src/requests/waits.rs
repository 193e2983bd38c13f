//! What disturbed the passes of an interval, as it was read around them: what a thread waited for a CPU, and pages that the
//! system had to map or to read.

use brickscope_profile::Disturbance;
use brickscope_profile::text::count;

use super::{Cause, Causes, Interval, Piece, Requests};
use crate::words::{many, time};

/// A thread waits some microseconds whenever it wakes: a wait of less than one part in this many of an interval is none.
const SLIGHT: u64 = 100;

/// What disturbed the passes of an interval.
///
/// Around short passes nothing is read by itself, but around several of them together: then two bounds are known of what a
/// thread waited in those that lie in the interval, and no figure between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// The least and the most that the thread which waited longest waited for a CPU, in nanoseconds; `None` if it wasn't read.
    pub cpu_ns: Option<[u64; 2]>,
    /// How often threads touched a page of memory that had to be mapped first.
    pub page_faults: Option<u64>,
    /// How often they waited for a page that was read from a disk.
    pub disk_faults: Option<u64>,
    /// The passes that these faults are of: those of the interval, and others where readings are of several.
    pub passes: u64,
}

impl Waits {
    /// Adds what was read around passes that lie in the interval for so long.
    fn add(&mut self, read: &Disturbance, inside_ns: u64) {
        if let Some(waited_ns) = read.longest_wait_ns {
            let outside_ns = read.wall_ns.saturating_sub(inside_ns);
            let [least, most] = self.cpu_ns.unwrap_or_default();
            let more = waited_ns.saturating_sub(outside_ns).min(inside_ns);
            self.cpu_ns =
                Some([least.saturating_add(more), most.saturating_add(waited_ns.min(inside_ns))]);
        }
        for (sum, faults) in
            [(&mut self.page_faults, read.page_faults), (&mut self.disk_faults, read.disk_faults)]
        {
            if let Some(faults) = faults {
                *sum = Some(sum.unwrap_or(0).saturating_add(faults));
            }
        }
        self.passes = self.passes.saturating_add(read.passes);
    }

    /// Whether a thread waited for a CPU for longer than it does when it wakes.
    fn is_wait_in(&self, interval: &Interval) -> bool {
        self.cpu_ns.is_some_and(|[_, most]| most > 0 && most >= interval.ns() / SLIGHT)
    }

    /// What disturbed them, if anything did.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let waited = self.cpu_ns.filter(|[_, most]| *most > 0);
        let waited =
            waited.map(|ns| format!("in its passes a thread waited {} for a CPU", range(ns)));
        let faults = |n: Option<u64>, what: &str, did: &str| {
            let n = n.filter(|n| *n > 0)?;
            Some(format!("{}{did} in {}", many(n, what), count(self.passes, "pass")))
        };
        let read = faults(self.disk_faults, "page", " read from a disk");
        waited.into_iter().chain(read).chain(faults(self.page_faults, "page fault", "")).collect()
    }
}

/// `2.49 s`, or `12.0 ms to 18.0 ms` where the two read differently.
fn range(ends: [u64; 2]) -> String {
    let [least, most] = ends.map(|ns| time(ns as f64));
    if least == most { most } else { format!("{least} to {most}") }
}

/// A pass that several of them share is in the sum of each.
fn summed(over: u64) -> &'static str {
    if over > 1 { "summed over requests, " } else { "" }
}

/// In how many of some intervals a thread waited for a CPU, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// In how many.
    pub intervals: u64,
    /// The least and the most that was waited in all of these, in nanoseconds.
    pub cpu_ns: [u64; 2],
    /// How long these are, in nanoseconds.
    pub of_ns: u64,
}

impl Waited {
    /// Adds an interval, if a thread waited in it.
    pub(super) fn add(&mut self, interval: &Interval, waits: &Waits) {
        if let Some([least, most]) = waits.cpu_ns.filter(|_| waits.is_wait_in(interval)) {
            let [sum_of_least, sum_of_most] = self.cpu_ns;
            self.cpu_ns = [sum_of_least.saturating_add(least), sum_of_most.saturating_add(most)];
            self.of_ns = self.of_ns.saturating_add(interval.ns());
            self.intervals += 1;
        }
    }

    /// `A thread waited for a CPU in all 31 of these, too: 2.49 s of 3.85 s.` None if none waited.
    pub(crate) fn sentence(&self, of: u64, too: &str) -> Option<String> {
        let these = match (self.intervals, of) {
            (0, _) => return None,
            (1, 1) => "this one".to_owned(),
            (n, of) if n == of => format!("all {n} of these"),
            (n, of) => format!("{n} of these {of}"),
        };
        let (waited, all) = (range(self.cpu_ns), time(self.of_ns as f64));
        Some(format!("A thread waited for a CPU in {these}{too}: {waited} of {all}."))
    }
}

/// `Of the 7 with prompts, 3`, `All 7 with prompts`, or of a single one `The one with prompts`: the begin of a sentence.
fn so_many_of(all: u64, which: &str, n: u64) -> String {
    match (n, all) {
        (1, 1) => format!("The one {which}"),
        (n, all) if n == all => format!("All {all} {which}"),
        _ => format!("Of the {all} {which}, {n}"),
    }
}

impl Requests<'_> {
    /// What disturbed the passes that ran in an interval, once its request was admitted. `None` if nothing was read around them.
    ///
    /// # Panics
    ///
    /// If it is of a request that isn't there.
    #[must_use]
    pub fn waits(&self, interval: &Interval) -> Option<Waits> {
        let from = self.after_queue(interval).min(interval.to_ns);
        // What was read around several passes is the same at each of them, and counts once.
        let mut read: Vec<(Disturbance, u64, u64)> = Vec::new();
        for pass in self.overlapping(from, interval.to_ns) {
            let Some(of) = self.profile.passes[pass.nth].disturbance else { continue };
            let ns = pass.end_ns.min(interval.to_ns).saturating_sub(pass.start_ns.max(from));
            match read.last_mut() {
                Some((last, passes, inside_ns)) if *last == of && *passes < of.passes => {
                    *passes += 1;
                    *inside_ns = inside_ns.saturating_add(ns);
                }
                _ => read.push((of, 1, ns)),
            }
        }
        let mut waits = Waits::default();
        read.iter().for_each(|(of, _, inside_ns)| waits.add(of, *inside_ns));
        (!read.is_empty()).then_some(waits)
    }
}

impl Causes {
    /// How waiting for a CPU and prompts of others overlap: of the slow ones that have the one as their cause, how many had the
    /// other, too.
    pub(crate) fn overlaps(&self, requests: &Requests<'_>) -> Vec<String> {
        let of = |cause: Cause| self.slow.iter().filter(move |of| of.cause == cause);
        let beside = |interval: &Interval| {
            let prompts = Piece::ALL.into_iter().filter(|piece| piece.has_prompts_of_others());
            prompts.map(|piece| interval.of(piece)).fold(0, u64::saturating_add)
        };
        let mut said = Vec::new();
        let (mut waiting, mut both, mut beside_ns) = (0_u64, 0_u64, 0_u64);
        let mut waited = Waited::default();
        for slow in of(Cause::Cpu) {
            waiting += 1;
            let ns = beside(&slow.interval);
            if let Some(waits) = requests.waits(&slow.interval).filter(|_| ns > 0) {
                both += 1;
                beside_ns = beside_ns.saturating_add(ns);
                waited.add(&slow.interval, &waits);
            }
        }
        if both > 0 {
            said.push(format!(
                "{} had prompts of others, too: {}{} of passes with these, and {} of waiting in all their passes.",
                so_many_of(waiting, "that waited for a CPU", both),
                summed(both),
                time(beside_ns as f64),
                range(waited.cpu_ns)
            ));
        }
        let (mut prompts, mut waited) = (0_u64, Waited::default());
        for slow in of(Cause::Prompts) {
            prompts += 1;
            if let Some(waits) = requests.waits(&slow.interval) {
                waited.add(&slow.interval, &waits);
            }
        }
        if waited.intervals > 0 {
            said.push(format!(
                "{} waited for a CPU, too: {}{} of {}.",
                so_many_of(prompts, "with prompts of others", waited.intervals),
                summed(waited.intervals),
                range(waited.cpu_ns),
                time(waited.of_ns as f64)
            ));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Part, Pass, PassPart, Phase, Profile, Request};

    use super::*;
    use crate::requests::Caused;

    /// Passes of 10 for a request, one after the other, with what was read around them; it has a token at the end of all.
    fn profile(read: &[Disturbance]) -> Profile {
        let mut profile = Profile::empty(ClockInfo::default());
        for (&of, serial) in read.iter().zip(0..) {
            profile.passes.push(Pass {
                serial,
                phase: Phase::Decode,
                lane: 0,
                tokens: 1,
                position: 0,
                start_ns: 10 * u64::from(serial),
                wall_ns: 10,
                attributed_ns: 0,
                unattributed_ns: 10,
                disturbance: Some(of),
                is_left_out: false,
            });
            profile.parts.push(PassPart { pass: serial, part: Part::decode(0, 1) });
        }
        let tokens_ns = vec![10 * read.len() as u64];
        profile.requests.push(Request { tokens_ns, ..Request::default() });
        profile
    }

    fn waits(read: &[Disturbance], from_ns: u64) -> Option<Waits> {
        let profile = profile(read);
        let requests = Requests::of(&profile);
        let interval = requests.intervals(0).next().expect("a token");
        requests.waits(&Interval { from_ns, ..interval })
    }

    #[test]
    fn one_of_one_and_all_of_some_are_said_plainly() {
        let begins = [(1, 1), (7, 7), (7, 1)].map(|(all, n)| so_many_of(all, "that waited", n));
        assert_eq!(begins, ["The one that waited", "All 7 that waited", "Of the 7 that waited, 1"]);
        let said = |intervals, of| {
            Waited { intervals, cpu_ns: [7, 7], of_ns: 9 }.sentence(of, "").expect("some waited")
        };
        assert_eq!(said(1, 1), "A thread waited for a CPU in this one: 7 ns of 9 ns.");
        assert_eq!(said(3, 3), "A thread waited for a CPU in all 3 of these: 7 ns of 9 ns.");
        assert_eq!(said(1, 3), "A thread waited for a CPU in 1 of these 3: 7 ns of 9 ns.");
    }

    #[test]
    fn the_time_of_passes_that_requests_share_is_said_to_be_a_sum() {
        let read = Disturbance {
            passes: 1,
            wall_ns: 10,
            longest_wait_ns: Some(8),
            ..Disturbance::default()
        };
        let mut profile = profile(&[read]);
        profile.parts.push(PassPart { pass: 0, part: Part::prompt(1, 100, 0) });
        profile.requests.push(Request::default());
        let requests = Requests::of(&profile);
        let interval = requests.intervals(0).next().expect("a token");
        let said = |n: usize, cause| {
            let slow = vec![Caused { interval, cause, more_ns: 10 }; n];
            Causes { of: 40, median_ns: 1, slow }.overlaps(&requests).join(" ")
        };
        let one = "had prompts of others, too: 10 ns of passes with these, and 8 ns";
        assert!(said(1, Cause::Cpu).contains(one), "{}", said(1, Cause::Cpu));
        let two = "had prompts of others, too: summed over requests, 20 ns of passes with these";
        assert!(said(2, Cause::Cpu).contains(two), "{}", said(2, Cause::Cpu));
        let two = "waited for a CPU, too: summed over requests, 16 ns of 20 ns";
        assert!(said(2, Cause::Prompts).contains(two), "{}", said(2, Cause::Prompts));
    }

    #[test]
    fn a_wait_of_two_passes_may_be_that_of_the_slow_one() {
        let cause = |waited_ns| {
            let read = Disturbance {
                passes: 2,
                wall_ns: 20,
                longest_wait_ns: Some(waited_ns),
                ..Disturbance::default()
            };
            let profile = profile(&[read, read]);
            let requests = Requests::of(&profile);
            let interval = requests.intervals(0).next().expect("a token");
            // Of the second pass, which took 10 more than it typically does.
            requests.cause_in_passes(&Interval { from_ns: 10, ..interval }, 10)
        };
        // By its part of both passes it is 4 of 8.
        assert_eq!([4, 8, 16].map(cause), [Cause::Own, Cause::Cpu, Cause::Cpu]);
    }

    #[test]
    fn bounds_that_read_alike_are_one_figure() {
        assert_eq!(range([2_490_000_100, 2_490_000_900]), time(2.49e9));
        assert_eq!(range([7, 9]), "7 ns to 9 ns");
    }

    #[test]
    fn a_wait_of_several_passes_has_bounds_where_only_some_of_them_are_meant() {
        let of = |passes, longest_wait_ns| Disturbance {
            passes,
            wall_ns: 10 * passes,
            longest_wait_ns,
            ..Disturbance::default()
        };
        let cpu_ns = |read: &[Disturbance], from| waits(read, from).and_then(|of| of.cpu_ns);
        // Of one pass it is known, of two together once.
        assert_eq!(cpu_ns(&[of(1, Some(7))], 0), Some([7, 7]));
        assert_eq!(cpu_ns(&[of(2, Some(14)), of(2, Some(14))], 0), Some([14, 14]));
        // Of the second of two it is at least 4 and at most the whole pass.
        assert_eq!(cpu_ns(&[of(2, Some(14)), of(2, Some(14))], 10), Some([4, 10]));
        assert_eq!(cpu_ns(&[of(2, Some(6)), of(2, Some(6))], 10), Some([0, 6]));
        // Two with the same figures are two.
        assert_eq!(cpu_ns(&[of(1, Some(7)), of(1, Some(7))], 0), Some([14, 14]));
        assert_eq!(cpu_ns(&[of(1, None)], 0), None);
        let said = |read: &[Disturbance], from| waits(read, from).expect("it was read").sentences();
        let all = said(&[of(2, Some(14)), of(2, Some(14))], 10);
        assert_eq!(all, ["in its passes a thread waited 4 ns to 10 ns for a CPU"]);
        let read = Disturbance { disk_faults: Some(1), page_faults: Some(3), ..of(1, Some(0)) };
        let faults = ["1 page read from a disk in 1 pass", "3 page faults in 1 pass"];
        assert_eq!(said(&[read], 0), faults);
    }
}
