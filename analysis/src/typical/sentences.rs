//! What is said of passes that were left out, and of stalls.

use brickscope_profile::text::{count, percent, printable};
use brickscope_profile::{Disturber, Phase, Profile};

use super::{Basis, LeftOut, Stall, Typical};

/// A wait explains nothing of a stall that is this many times as long.
const LITTLE: u64 = 10;
/// Stalls that are listed one by one.
const MOST_STALLS: usize = 3;

/// What was left out of the tables or disturbed, by whom, and each stall: a sentence each.
#[must_use]
pub fn notes(profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    for typical in Typical::all(profile) {
        let phase = typical.phase;
        let Some(total) = profile.phase(phase) else { continue };
        let of = format!("of {} of {phase}", passes_text(total.passes));
        let LeftOut { passes, wall_ns, disturbed, stalled } = &typical.left_out;
        let mut causes: Vec<String> =
            disturbed.iter().map(|(&by, &n)| cause(by, n, profile)).collect();
        if *stalled > 0 {
            causes.push(format!("{stalled} had a stall"));
        }
        let causes = causes.join(", ");
        match typical.basis {
            Basis::Passes if *passes > 0 => notes.push(format!(
                "left out of the tables: {passes} {of}, {}; {causes}",
                milliseconds(*wall_ns)
            )),
            Basis::Spans => notes.push(format!(
                "disturbed: {passes} {of}; {causes}. Too few others remain to leave them out, so bricks \
                 of {phase} are by their median spans, which interrupted ones don't move"
            )),
            Basis::Sums if total.disturbed > 0 => {
                let since = if profile.imported.is_some() {
                    "since this run was imported"
                } else if !profile.devices.is_empty() {
                    "since what disturbs devices is not known"
                } else {
                    "since single spans were not kept"
                };
                let n = total.disturbed;
                notes.push(format!("disturbed: {n} {of}; they are in the tables, {since}"));
            }
            _ => {}
        }
        if let Some(unknown) = typical.unwatched.filter(|&unknown| unknown > 0) {
            notes.push(format!("whether they were disturbed is not known for {unknown} {of}"));
        }
        notes.extend(typical.stalls.iter().take(MOST_STALLS).map(|stall| stall.note(phase)));
        if typical.stalls.len() > MOST_STALLS {
            let more = typical.stalls.len() - MOST_STALLS;
            notes.push(format!("{more} more such stalls in {phase}"));
        }
    }
    notes
}

fn cause(by: Disturber, n: u64, profile: &Profile) -> String {
    match by {
        Disturber::Others => format!("other programs disturbed {n}"),
        Disturber::OwnThreads => {
            let cpus = profile.machine.as_ref().and_then(|machine| machine.logical_cpus);
            let may_use = cpus.map_or(String::new(), |cpus| {
                format!(" (it may use {})", count(cpus.into(), "CPU"))
            });
            format!("threads of this process shared a CPU in {n}{may_use}")
        }
        Disturber::Quota => format!("the quota of its control group stopped {n}"),
        Disturber::Hypervisor => format!("the hypervisor took CPUs in {n}"),
        Disturber::Unknown => format!("{n} waited for a CPU, which others may have had"),
    }
}

pub(crate) fn passes_text(n: u64) -> String {
    format!("{n} {}", if n == 1 { "pass" } else { "passes" })
}

pub(super) fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

impl Stall {
    /// Whether it is the profiler's own: half of what it took longer, or more, a thread made the memory that it records into.
    #[must_use]
    pub fn is_of_profiler(&self) -> bool {
        self.prepared_ns > 0 && self.prepared_ns >= self.ns.saturating_sub(self.median_ns) / 2
    }

    /// One sentence: when, where, how much of the wall, and what the scheduler said.
    pub(super) fn note(&self, phase: Phase) -> String {
        let brick = match &self.brick {
            Some(name) => printable(name),
            None => "time between bricks".to_owned(),
        };
        let layer = self.layer.map_or(String::new(), |layer| format!(" of layer {layer}"));
        let scheduler = match self.disturbance {
            _ if self.is_of_profiler() => format!(
                "brickscope itself: a thread made its log for {} of it, which `prepare_thread` does \
                 before",
                milliseconds(self.prepared_ns)
            ),
            None => "what the scheduler did then is not known".to_owned(),
            Some(of) => {
                let share = if of.passes > 1 { " in it and its neighbours" } else { "" };
                match (of.longest_wait_ns, of.disturber()) {
                    (None, _) => "how long threads waited for a CPU is not known".to_owned(),
                    (Some(ns), Some(by)) => format!(
                        "a thread waited {} for a CPU{share}: {}",
                        milliseconds(ns),
                        who(by)
                    ),
                    (Some(ns), None) => {
                        let waited = format!(
                            "no thread waited more than {} for a CPU{share}",
                            milliseconds(ns)
                        );
                        let longer_ns = self.ns.saturating_sub(self.median_ns);
                        let is_little = ns < longer_ns / LITTLE;
                        let so = if is_little { ", so it was not the scheduler" } else { "" };
                        waited + so
                    }
                }
            }
        };
        format!(
            "stall: {brick}{layer} took {}, {} times its median, {} of the wall of {phase}; at {:.3} s, \
             position {}; {scheduler}",
            milliseconds(self.ns),
            self.ns / self.median_ns.max(1),
            percent(self.of_wall, 1.0),
            self.at_ns as f64 / 1e9,
            self.position
        )
    }
}

fn who(by: Disturber) -> &'static str {
    match by {
        Disturber::Others => "other programs had it",
        Disturber::OwnThreads => "other threads of this process had it",
        Disturber::Quota => "the quota of its control group was used up",
        Disturber::Hypervisor => "the hypervisor took CPUs",
        Disturber::Unknown => "who had it is not known",
    }
}
