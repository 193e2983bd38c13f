//! Passes in which threads of the run waited for a CPU, and who had it.

use brickscope_profile::text::count;
use brickscope_profile::{Change, CpuWait, Disturber, PassTime, Phase, PhaseTotal, Profile};

use super::facts::{Facts, PhaseFacts};
use super::{Finding, FindingKind, Findings, Gain};
use crate::passes::did;
use crate::requests::is_server;
use crate::typical::{Basis, Typical, median_pass_ns, passes_text};
use crate::words::{fraction, time, whole_percent};

/// Then disturbances are what to do something about.
const MANY: f64 = 0.2;
/// With fewer passes, those of the phase that isn't shown are no reason to do something.
const LEAST_PASSES: u64 = 5;
/// The CPU time of other programs, as a part of the machine's, that is worth a word.
pub(super) const MUCH_LOAD: f64 = 0.1;
/// The wait of a thread for a CPU, as a part of the time, that is worth a line of the first screen: the threads that share its
/// work wait as long.
pub(crate) const LONG_WAIT: f64 = 0.05;

/// Who disturbed the passes of a phase, and how many, if more than a fifth of all were disturbed.
pub(crate) fn cause(
    profile: &Profile,
    typical: &Typical,
    total: &PhaseTotal,
) -> Option<(Disturber, u64)> {
    let disturbed: u64 = typical.left_out.disturbed.values().sum();
    if total.passes == 0 || disturbed as f64 <= MANY * total.passes as f64 {
        return None;
    }
    who(profile, typical, total.phase)
}

/// Who disturbed most of the disturbed passes, and how many. Passes count alike, however long each waited: by time, threads of
/// this process may have had the CPU for longer than other programs.
pub(super) fn who(profile: &Profile, typical: &Typical, phase: Phase) -> Option<(Disturber, u64)> {
    let (by, n) = by_passes(typical)?;
    match by == Disturber::Others && shared_most(profile, phase).is_some() {
        true => Some((Disturber::OwnThreads, typical.left_out.disturbed.values().sum())),
        false => Some((by, n)),
    }
}

fn by_passes(typical: &Typical) -> Option<(Disturber, u64)> {
    typical.left_out.disturbed.iter().max_by_key(|(_, n)| **n).map(|(by, n)| (*by, *n))
}

/// What passes lost to waits that medians of spans don't show.
pub(crate) struct Waited {
    /// Who had the CPU.
    pub(crate) by: Disturber,
    /// The mean pass, and what its bricks take by their median spans.
    pub(crate) mean_ns: f64,
    pub(crate) median_ns: f64,
}

/// Then a figure of what remains says little of what a user waits for.
const MUCH_LOST: f64 = 0.25;

impl Waited {
    /// `None` if most passes were clean, or a pass takes about what its median spans do.
    pub(crate) fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let total = profile.phase(phase)?;
        let typical = Typical::of(profile, phase).filter(|of| of.basis == Basis::Spans)?;
        let (by, _) = cause(profile, &typical, total)?;
        let mean_ns = total.wall_ns as f64 / total.passes as f64;
        let median_ns = median_pass_ns(profile, phase)?;
        (median_ns < (1.0 - MUCH_LOST) * mean_ns).then_some(Self { by, mean_ns, median_ns })
    }

    /// `a pass takes 18.5 ms, 4.49 ms by median spans`
    pub(crate) fn says(&self) -> String {
        format!("a pass takes {}, {} by median spans", time(self.mean_ns), time(self.median_ns))
    }
}

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let mut is_found = false;
    for of in &facts.phases {
        // One or two passes of a short prompt tell little.
        let is_few =
            of.total.passes < LEAST_PASSES && facts.main().map(|main| main.phase) != Some(of.phase);
        let cause = cause(facts.profile, &of.typical, of.total)
            .filter(|_| !is_few && !is_of_faults(facts, of));
        if let Some((by, disturbed)) = cause {
            findings.found.push(finding(facts, of, by, disturbed));
            is_found = true;
        } else if of.typical.unwatched.is_none_or(|unwatched| unwatched > 0)
            && facts.profile.imported.is_none()
        {
            findings.unknown(
                "waits-for-a-cpu",
                format!("whether threads of {} waited for a CPU is not known: not all passes were looked at", of.phase),
            );
        }
    }
    if is_found {
        return;
    }
    // Passes that nobody disturbed were not slowed by others.
    let is_clean = |total: &PhaseTotal| total.disturbed == 0 && total.unwatched == Some(0);
    let load = facts.profile.other_load.as_ref().map(|load| load.others_share());
    let Some(total) = facts.main().map(|of| of.total) else { return };
    if let Some(load) = load.filter(|&share| share > MUCH_LOAD && !is_clean(total)) {
        let typical = facts.main().map(|of| &of.typical.left_out.disturbed);
        let by_others = typical.and_then(|of| of.get(&Disturber::Others)).copied().unwrap_or(0);
        let unseen = match by_others {
            0 => "which passes they slowed down was not seen".to_owned(),
            n => format!("of {n} of {} passes it was seen", total.passes),
        };
        let mut finding = Finding::new("other-programs", FindingKind::Slow, None)
            .because(format!("others used {} of the CPU time", fraction(load)), "/other_load")
            .cannot_predict(&unseen);
        finding.what = format!("other programs used {} of this machine's CPU time", fraction(load));
        finding.advice = format!(
            "stop other programs, which used {} of this machine's CPU time",
            fraction(load)
        );
        "the run takes as long without them".clone_into(&mut finding.refuted_if);
        finding.test = facts.flags.is_ours.then(|| "brickscope profile MODEL".to_owned());
        findings.found.push(finding);
    }
}

/// Whether passes take longer for pages that they wait for, after which threads wait for a CPU a little.
fn is_of_faults(facts: &Facts<'_>, of: &PhaseFacts<'_>) -> bool {
    let looks = || {
        let passes = facts.profile.passes.iter().filter(|pass| pass.phase == of.phase);
        passes.filter_map(|pass| pass.disturbance)
    };
    let waits: f64 = looks().map(|look| look.longest_wait_ns.unwrap_or(0) as f64).sum();
    let has_faults = looks().filter(|look| look.disk_faults.is_some_and(|faults| faults > 0));
    let longer = (of.mean_ns - of.typical.wall.ns) * of.total.passes as f64;
    2 * has_faults.count() >= looks().count().max(1) && waits < longer / 2.0
}

/// What all threads together waited for a CPU, for each pass; `None` if it is not known of all.
fn waited_ns(facts: &Facts<'_>, of: &PhaseFacts<'_>) -> Option<f64> {
    let passes = facts.profile.passes.iter().filter(|pass| pass.phase == of.phase);
    let waits = passes.map(|pass| Some(pass.disturbance?.run_queue_wait_ns? as f64));
    let waits: Option<Vec<f64>> = waits.collect();
    waits.map(|waits| waits.iter().sum::<f64>() / (waits.len().max(1) as f64))
}

/// The thread that waited longest for a CPU, if other threads of this process had it for most of that, as the first screen says.
fn shared_most(profile: &Profile, phase: Phase) -> Option<&CpuWait> {
    let waits = profile.cpu_waits.iter().filter(|of| of.phase == phase);
    let longest =
        waits.max_by(|a, b| a.waited().total_cmp(&b.waited()).then(b.thread.cmp(&a.thread)));
    longest.filter(|of| of.waited() >= LONG_WAIT && of.own_ns > of.waited_ns / 2)
}

/// What to do where threads of this process that have a CPU each have it from each other.
fn share_less(facts: &Facts<'_>, longest: &CpuWait) -> String {
    let threads = facts.threads();
    let fewer = (threads > 1)
        .then(|| format!("run fewer threads (`{} {}`)", facts.flags.threads, threads - 1));
    let engine = facts.profile.run.as_ref().and_then(|run| run.engine.as_ref());
    let places = engine.and_then(|engine| engine.sequences).filter(|places| *places > 1);
    let place = is_server(facts.profile).then(|| {
        let now = places.map_or(String::new(), |now| format!(" ({}, now {now})", now - 1));
        format!("have one place fewer in the batch{now}")
    });
    let all: Vec<String> = fewer.into_iter().chain(place).collect();
    let what = match all.is_empty() {
        true => "allow this process another CPU (taskset, the container's limits)".to_owned(),
        false => all.join(", or "),
    };
    format!("{what}: {}", had_it(longest))
}

/// `other threads of this process had the CPU for 58 % of what thread 18922 waited`
fn had_it(longest: &CpuWait) -> String {
    format!(
        "other threads of this process had the CPU for {} of what thread {} waited",
        whole_percent(longest.own_ns as f64 / longest.waited_ns.max(1) as f64),
        longest.thread
    )
}

fn finding(facts: &Facts<'_>, of: &PhaseFacts<'_>, by: Disturber, disturbed: u64) -> Finding {
    let threads = facts.threads();
    let (cpus, flags) = (facts.cpus(), facts.flags);
    let all = passes_text(of.total.passes);
    let fewer = match threads {
        2.. => format!(", or run fewer threads (`{} {}`)", flags.threads, threads - 1),
        _ => String::new(),
    };
    let load = facts.profile.other_load.as_ref().map_or(0.0, |load| load.others_share());
    // Threads that have a CPU each share one if other programs push them together.
    let is_pushed = load > MUCH_LOAD && cpus.is_some_and(|cpus| threads <= cpus);
    // Where passes alone would name other programs.
    let is_of_others = is_pushed || by_passes(&of.typical).map(|(by, _)| by) != Some(by);
    let longest = match by {
        Disturber::OwnThreads if is_of_others => shared_most(facts.profile, of.phase),
        _ => None,
    };
    let is_pushed = is_pushed && longest.is_none();
    let disturbed = match longest {
        Some(_) => of.typical.left_out.disturbed.values().sum(),
        None => disturbed,
    };
    // On how many CPUs more threads run.
    let too_few = cpus.filter(|&cpus| by == Disturber::OwnThreads && !is_pushed && threads > cpus);
    let mut change = None;
    let (rule, advice, test) = match by {
        Disturber::OwnThreads if !is_pushed => {
            let shared = || {
                format!(
                    "give each thread a CPU ({}){fewer}: threads shared a CPU in {disturbed} of {all}",
                    flags.pin
                )
            };
            let advice;
            (change, advice) = match (too_few, longest) {
                (Some(cpus), _) => (
                    Some(Change::Threads(cpus)),
                    format!(
                        "{threads} threads run on {}: allow this process as many CPUs as threads (taskset, the container's \
                         limits), or run `{} {cpus}`",
                        count(cpus.into(), "CPU"),
                        flags.threads
                    ),
                ),
                (None, Some(longest)) => (
                    (threads > 1).then(|| Change::Threads(threads - 1)),
                    share_less(facts, longest),
                ),
                (None, None) => (flags.is_ours.then_some(Change::Pinned), shared()),
            };
            ("threads-share-a-cpu", advice, None)
        }
        Disturber::OwnThreads => (
            "other-programs",
            format!(
                "stop other programs, which used {} of the CPU time: beside them threads shared a CPU in {disturbed} of \
                 {all}{fewer}",
                fraction(load)
            ),
            Some("brickscope profile MODEL".to_owned()),
        ),
        Disturber::Others => (
            "other-programs",
            format!("stop other programs, which took the CPU in {disturbed} of {all}{fewer}"),
            Some("brickscope profile MODEL".to_owned()),
        ),
        Disturber::Quota => (
            "cpu-quota",
            format!(
                "raise the CPU quota of this control group (cpu.max), which stopped {disturbed} of {all}{fewer}"
            ),
            None,
        ),
        Disturber::Hypervisor => (
            "hypervisor",
            format!(
                "measure on another machine or later: the hypervisor took the CPU in {disturbed} of {all}"
            ),
            None,
        ),
        Disturber::Unknown => (
            "waits-for-a-cpu",
            format!("find out what else runs: {disturbed} of {all} waited for a CPU{fewer}"),
            None,
        ),
    };
    let mut finding = Finding::new(rule, FindingKind::Slow, Some(of.phase));
    let noun = if of.total.passes == 1 { "pass" } else { "passes" };
    let n = of.total.passes;
    finding.what = match longest {
        None => format!("{} in {disturbed} of {n} {} {noun}", did(by), of.phase),
        Some(_) => format!(
            "threads waited for a CPU in {disturbed} of {n} {} {noun}, longest for others of this process",
            of.phase
        ),
    };
    finding.advice = advice;
    finding.test = match rule {
        _ if flags.is_ours => test,
        // A run of llama.cpp is made again by its own command.
        "other-programs" if flags.can_try => Some(match threads {
            2.. => format!("brickscope try RUN {rule} --threads {}", threads - 1),
            _ => format!("brickscope try RUN {rule} --on COMMAND --off COMMAND"),
        }),
        _ => None,
    };
    "passes that waited for no CPU take as long".clone_into(&mut finding.refuted_if);
    let typical = &of.typical;
    finding = finding.because(
        format!("{disturbed} of {all} in which a thread waited for more than a hundredth of it"),
        "/passes, disturbance",
    );
    if let Some(longest) = longest {
        finding = finding.because(had_it(longest), "/cpu_waits");
    }
    let saved = |of_clean: f64| of.mean_ns - of_clean;
    let gain = match typical.basis {
        Basis::Passes => {
            finding = finding.because(
                format!(
                    "a pass takes {}, one that waited for no CPU {}",
                    time(of.mean_ns),
                    time(typical.wall.ns)
                ),
                "/passes, wall_ns",
            );
            let [low, high] = typical.wall.interval_ns.unwrap_or([typical.wall.ns; 2]);
            // Batches of a prompt differ in tokens and positions, so their means can't be compared: what threads waited is
            // the most that can be gained.
            match (of.phase, too_few) {
                (Phase::Prefill | Phase::Encode | Phase::Training, _) => {
                    let waited = waited_ns(facts, of);
                    if let Some(waited) = waited {
                        finding = finding.because(
                            format!("threads waited {} a pass, all together", time(waited)),
                            "/passes, disturbance",
                        );
                    }
                    waited.and_then(|most| Gain::between(of.mean_ns, of.least_ns, [0.0, most]))
                }
                // Passes that waited for none had no more CPUs than the others: with one for each thread they may take as
                // much less. With fewer threads, as long.
                (_, Some(cpus)) => {
                    let part = f64::from(cpus) / f64::from(threads);
                    Gain::between(of.mean_ns, of.least_ns, [saved(high), saved(low * part)])
                }
                (_, None) => Gain::between(of.mean_ns, of.least_ns, [saved(high), saved(low)])
                    .map(|gain| gain.likely(saved(typical.wall.ns))),
            }
        }
        // Also median spans may have waited, so more can be gained than they tell.
        Basis::Spans => {
            finding = finding.because(
                format!(
                    "a pass takes {}, by the medians of its bricks {}",
                    time(of.mean_ns),
                    time(of.pass_ns)
                ),
                "/spans",
            );
            let low = saved(typical.wall.interval_ns.map_or(typical.wall.ns, |[_, high]| high));
            Gain::between(of.mean_ns, of.least_ns, [low, of.mean_ns])
        }
        Basis::Sums => None,
    };
    match gain {
        Some(gain) => finding.gains(Some(gain.of(PassTime::Mean))),
        None => finding
            .cannot_predict("passes without disturbance were not told apart, or were no faster"),
    }
    .by(change.filter(|_| flags.can_try))
}
