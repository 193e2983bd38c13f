//! Which threads waited for a CPU.

use std::fmt::Write;

use brickscope_profile::text::percent;
use brickscope_profile::{CpuWait, Phase, Profile};

use crate::findings::disturbed::LONG_WAIT;
use crate::view::layout::wrapped;

/// A thread that waits for less than this part of the time is as in any quiet run.
const LEAST: f64 = 0.02;
/// Threads that are named at most in a phase.
const MOST_THREADS: usize = 8;

/// The threads that waited, if any were looked at.
pub(super) fn in_report(profile: &Profile, text: &mut String) {
    for phase in Phase::SHOWN {
        let waits = longest_first(profile, phase);
        let named: Vec<&CpuWait> =
            waits.iter().copied().filter(|of| of.waited() >= LEAST).collect();
        if named.is_empty() {
            continue;
        }
        text.push('\n');
        for of in named.iter().take(MOST_THREADS) {
            let of_time = percent(of.waited(), 1.0);
            let line = format!("{} for {of_time} of {phase}; {}", who_for_which(of), whose(of));
            wrapped(&line, text);
        }
        if let more @ 1.. = named.len().saturating_sub(MOST_THREADS) {
            let _ = writeln!(text, "({more} more)");
        }
    }
}

/// `thread 4312 waited for CPU 1 for 48 % of decode: other programs had it`, if one did for long.
pub(super) fn in_summary(profile: &Profile, phase: Phase) -> Option<String> {
    let of = *longest_first(profile, phase).first()?;
    let part = format!("{:.0} %", 100.0 * of.waited());
    (of.waited() >= LONG_WAIT)
        .then(|| format!("{} for {part} of {phase}: {}", who_for_which(of), whose(of)))
}

fn longest_first(profile: &Profile, phase: Phase) -> Vec<&CpuWait> {
    let mut waits: Vec<&CpuWait> =
        profile.cpu_waits.iter().filter(|of| of.phase == phase).collect();
    waits.sort_by(|a, b| b.waited().total_cmp(&a.waited()).then(a.thread.cmp(&b.thread)));
    waits
}

fn who_for_which(of: &CpuWait) -> String {
    let cpu = of.cpu.map_or("a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    format!("thread {} waited for {cpu}", of.thread)
}

/// Who had the CPU: both, where both had it for long.
fn whose(of: &CpuWait) -> String {
    const LITTLE: f64 = 0.1;
    let own = of.own_ns as f64 / of.waited_ns.max(1) as f64;
    if own < LITTLE {
        "other programs had it".to_owned()
    } else if own > 1.0 - LITTLE {
        "other threads of this process had it".to_owned()
    } else {
        format!(
            "other threads of this process had it for {:.0} % of that, other programs for the rest",
            100.0 * own
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let mut profile = Profile::empty(Default::default());
        let mut add = |thread, phase, cpu, waited_ns, own_ns| {
            let (looked_ns, ran_ns) = (1_000_000, 1_000_000 - waited_ns);
            profile.cpu_waits.push(CpuWait {
                thread,
                phase,
                cpu,
                looked_ns,
                ran_ns,
                waited_ns,
                own_ns,
            });
        };
        add(4311, Phase::Decode, Some(0), 4_000, 0);
        add(4312, Phase::Decode, Some(1), 478_000, 1_000);
        add(4311, Phase::Prefill, None, 30_000, 30_000);
        profile
    }

    #[test]
    fn both_who_had_the_cpu_are_named() {
        let mut profile = profile();
        profile.cpu_waits[1].own_ns = 286_800;
        assert_eq!(
            in_summary(&profile, Phase::Decode).as_deref(),
            Some(
                "thread 4312 waited for CPU 1 for 48 % of decode: other threads of this process had it for 60 % \
                 of that, other programs for the rest"
            )
        );
    }

    #[test]
    fn the_thread_that_waited_longest_is_named_with_its_cpu() {
        let profile = profile();
        assert_eq!(
            in_summary(&profile, Phase::Decode).as_deref(),
            Some("thread 4312 waited for CPU 1 for 48 % of decode: other programs had it")
        );
        assert_eq!(in_summary(&profile, Phase::Prefill), None, "three in a hundred are little");
        let mut text = String::new();
        in_report(&profile, &mut text);
        assert_eq!(
            text,
            "\nthread 4312 waited for CPU 1 for 47.8% of decode; other programs had it\n\n\
             thread 4311 waited for a CPU for 3.0% of prefill; other threads of this\nprocess had it\n"
        );
    }

    #[test]
    fn a_quiet_run_has_no_line() {
        let mut quiet = profile();
        quiet.cpu_waits.truncate(1);
        let mut text = String::new();
        in_report(&quiet, &mut text);
        assert_eq!((text.as_str(), in_summary(&quiet, Phase::Decode)), ("", None));
    }
}
