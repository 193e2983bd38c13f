//! What slows a run down: hypotheses with their evidence, what would be gained, and how to test each.
//!
//! One file has one rule. A rule reads the profile and nothing else; what it can't decide it says, with the reason.
//!
//! ```
//! use brickscope::{BrickProfiler, MockClock, Phase};
//! use brickscope_analysis::findings::Findings;
//!
//! let hand = MockClock::default();
//! let profiler = BrickProfiler::with_clock(hand.clock());
//! profiler.enable();
//! for position in 0..20 {
//!     let pass = profiler.begin_pass(Phase::Decode);
//!     let timer = profiler.start("Mlp");
//!     hand.advance(1_000_000);
//!     profiler.stop(timer, 1);
//!     profiler.end_pass(pass, 1, position);
//!     hand.advance(500_000); // Something else runs after each pass.
//! }
//! let findings = Findings::of(&profiler.profile());
//! assert_eq!(findings.found[0].rule, "gaps-between-passes");
//! let gain = findings.found[0].gain.expect("a prediction");
//! assert_eq!(gain.highest_ns, 500_000.0);
//! ```

mod bare_copies;
pub(crate) mod debug_build;
pub(crate) mod device;
mod device_gaps;
mod device_waits;
pub(crate) mod disturbed;
mod experts;
mod facts;
pub(crate) mod gaps;
mod imbalance;
mod kernel_bound;
mod launch_bound;
mod layers;
mod little_known;
mod llama_bench;
mod long_context;
mod mapped_weights;
mod measured_threads;
mod memory_roof;
mod one_thread;
mod other_roof;
mod page_faults;
mod ping_pong;
mod prediction;
mod products;
mod profiling;
mod prompt_cache;
pub(crate) mod rank_last;
mod sampling;
mod server;
mod short_batch;
mod slow_brick;
mod slow_device_layer;
mod slow_format;
pub(crate) mod slow_layer;
mod slow_link;
mod slow_product;
pub(crate) mod slow_tokens;
mod small_pages;
mod stalls;
mod threads;
mod trace;
mod unattributed;
mod weights;

use brickscope_profile::{Absent, Change, PassTime, Phase, Profile, Trial, TrialVerdict};
use serde::Serialize;

use self::facts::Facts;
use crate::passes::{did, without_kept};
use crate::requests::is_server;
use crate::typical::Basis;

/// What was found in a run, see [`Findings::of`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Findings {
    /// First what makes the figures doubtful, then what slows the run down, then what would need a change of what is
    /// computed, then what would make more known; in each of these what would save the run most first. What was tried and
    /// refuted comes last.
    pub found: Vec<Finding>,
    /// What could not be decided.
    pub unknown: Vec<Unknown>,
    /// Whether there was a phase that rules could look at: passes that were timed.
    pub has_looked: bool,
}

/// A hypothesis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The name of the rule, which stays the same from version to version: `gaps-between-passes`.
    pub rule: &'static str,
    /// What kind of finding it is.
    pub kind: FindingKind,
    /// The phase that it is about; `None` if it is about the whole run.
    pub phase: Option<Phase>,
    /// What was found, as a sentence without its first capital letter and its full stop.
    pub what: String,
    /// What to do about it, likewise.
    pub advice: String,
    /// The figures that it follows from.
    pub evidence: Vec<Evidence>,
    /// What a pass would take less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// Why that can't be predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_absent: Option<Absent>,
    /// Of a finding about requests: what their tokens waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// What would show that it is wrong.
    pub refuted_if: String,
    /// The change that brings it, if `brickscope try` can make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// What came of it when it was tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<Trial>,
    /// A command that tests it, with `RUN` where the run's folder and `MODEL` where the model is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Why there is no such command, where one could be expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_absent: Option<Absent>,
    /// Whether the test is a command of the run's own, in which nothing is meant to be replaced.
    #[serde(skip)]
    pub(crate) is_whole_command: bool,
    /// By how much of a pass it is ranked, where the middle of the prediction says too much.
    #[serde(skip)]
    rank_ns: Option<f64>,
    /// The sentence for the first screen, if the advice says too little without what was found.
    #[serde(skip)]
    in_a_sentence: Option<String>,
}

/// What kind of finding something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// It makes the other figures doubtful.
    Doubt,
    /// The run takes longer than the same work has to.
    Slow,
    /// The run is at a limit: only other work, such as smaller weights, is faster.
    Limit,
    /// The run lacks figures that another recording would have.
    Lack,
}

/// A figure, and where it is in the profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// What it says.
    pub text: String,
    /// Its place: a JSON pointer into `profile.json`, or the table that it is computed from.
    pub place: String,
}

/// What could not be decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unknown {
    /// The name of the rule.
    pub rule: &'static str,
    /// What is unknown, and why: a sentence without a capital letter and a full stop.
    pub why: String,
}

/// What a pass would take less, in nanoseconds: a prediction. It is never more than what the pass takes beyond the least
/// time that its work, as it would be then, could take on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Which time of a pass is meant.
    pub time: PassTime,
    /// What a pass takes now. Of a generation test of llama-bench: what a token takes.
    pub now_ns: f64,
    /// The least time that the work could take after the change; 0 if the machine's limits are not known.
    pub least_ns: f64,
    /// At least so much less.
    pub lowest_ns: f64,
    /// Most likely so much less; `None` if nothing in between is likelier than the ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely_ns: Option<f64>,
    /// At most so much less.
    pub highest_ns: f64,
}

/// What tokens of requests waited for one thing, summed over requests, as it was measured. A pass in which several requests
/// waited is in the sum of each of them, so these times may be longer than the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// How many tokens.
    pub tokens: u64,
    /// How long these took together, in nanoseconds: each from the token before, the first of a request from its arrival.
    pub took_ns: u64,
    /// How long of that they waited for it.
    pub waited_ns: u64,
    /// The most that they could have come earlier without it: what they waited, less a pass of its own that each token needs all
    /// the same, as long as one without a prompt.
    pub gain_ns: u64,
}

impl Gain {
    /// From `[low, high]`, which are cut to what is possible. `None` if nothing can be gained.
    fn between(now_ns: f64, least_ns: f64, [low, high]: [f64; 2]) -> Option<Self> {
        let (now_ns, least_ns) = (finite(now_ns), finite(least_ns));
        let most = (now_ns - least_ns).max(0.0);
        let lowest_ns = finite(low).min(most);
        let highest_ns = finite(high).min(most).max(lowest_ns);
        let time = PassTime::Typical;
        let gain = Self { time, now_ns, least_ns, lowest_ns, likely_ns: None, highest_ns };
        (highest_ns > 0.0).then_some(gain)
    }

    /// Of another time than that of a typical pass.
    fn of(self, time: PassTime) -> Self {
        Self { time, ..self }
    }

    fn likely(self, ns: f64) -> Self {
        Self { likely_ns: Some(finite(ns).clamp(self.lowest_ns, self.highest_ns)), ..self }
    }

    /// The parts of the time now: at least, most likely (or in the middle), at most.
    #[must_use]
    pub fn parts(&self) -> [f64; 3] {
        let middle = f64::midpoint(self.lowest_ns, self.highest_ns);
        let likely = self.likely_ns.unwrap_or(middle);
        [self.lowest_ns, likely, self.highest_ns]
            .map(|ns| if self.now_ns > 0.0 { ns / self.now_ns } else { 0.0 })
    }
}

/// A file may contain anything.
fn finite(ns: f64) -> f64 {
    if ns.is_finite() { ns.max(0.0) } else { 0.0 }
}

impl Findings {
    /// Asks all rules about a run. What they would need and the run doesn't have is in `unknown`.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let of_sums = without_kept(profile);
        let profile = &*of_sums;
        let mut findings = Self::default();
        if profile.kept.is_some() {
            findings.unknown(
                "slow-layer",
                "passes were kept by how slow they are, so what shows in single ones is not known of all",
            );
        }
        for serialised in &profile.serialised {
            findings.unknown(
                "launch-bound",
                format!(
                    "what slows {} down is not known: its nodes on other backends were timed one at a time",
                    serialised.phase
                ),
            );
        }
        let devices = facts::of_devices(profile);
        let facts = Facts::of(profile, &devices, &mut findings);
        findings.has_looked = !facts.phases.is_empty() || !facts.devices.is_empty();
        for rule in [
            debug_build::find,
            disturbed::find,
            profiling::find,
            stalls::find,
            unattributed::find,
            gaps::find,
            slow_layer::find,
            slow_device_layer::find,
            imbalance::find,
            rank_last::find,
            slow_link::find,
            sampling::find,
            page_faults::find,
            mapped_weights::find,
            small_pages::find,
            long_context::find,
            kernel_bound::find,
            slow_brick::find,
            memory_roof::find,
            other_roof::find,
            experts::find,
            threads::find,
            llama_bench::find,
            measured_threads::find,
            one_thread::find,
            short_batch::find,
            slow_product::find,
            slow_format::find,
            launch_bound::find,
            device_waits::find,
            device_gaps::find,
            bare_copies::find,
            ping_pong::find,
            little_known::find,
            slow_tokens::find,
            prompt_cache::find,
            trace::find,
        ] {
            rule(&facts, &mut findings);
        }
        if is_server(profile) {
            findings.found.iter_mut().for_each(Finding::cannot_be_tried);
        }
        if !findings.has_looked && findings.unknown.is_empty() {
            let samples = profile.imported.as_ref().is_some_and(|of| !of.samples.is_empty());
            findings.unknown(
                "unattributed",
                match samples {
                    true => "no pass was timed: samples are counts",
                    false => "no pass was timed",
                },
            );
        }
        // In the whole run: a prompt is read once. Stable, so that rules above come first where nothing else decides.
        let of_run = |finding: &Finding| {
            let passes = facts.phases.iter().find(|of| Some(of.phase) == finding.phase);
            let on_device = facts.devices.iter().find(|of| Some(of.phase) == finding.phase);
            let passes = passes
                .map(|of| of.total.passes)
                .or(on_device.map(|of| of.busy.passes))
                .map_or(1.0, |passes| passes as f64);
            let middle = finding.gain.map_or(0.0, |gain| gain.parts()[1] * gain.now_ns);
            finding.rank_ns.unwrap_or(middle) * passes
        };
        for of in &facts.phases {
            mark_disturbed(profile, of, &mut findings.found);
        }
        for finding in &mut findings.found {
            let is_of_it = |trial: &&Trial| {
                trial.rule.as_deref() == Some(finding.rule)
                    && finding.phase.is_none_or(|phase| phase == trial.phase)
                    && finding.change.as_ref().is_none_or(|change| *change == trial.change)
            };
            finding.tried = profile.trials.iter().rfind(is_of_it).cloned();
        }
        // Nothing is known of a phase whose few passes were disturbed before that is mended.
        let is_noise = |finding: &Finding| {
            let of_phase = facts.phases.iter().find(|of| Some(of.phase) == finding.phase);
            of_phase.is_some_and(|of| of.typical.basis == Basis::Spans && of.total.passes < FEW)
        };
        findings.found.sort_by(|a, b| {
            let by_kind = a.is_refuted().cmp(&b.is_refuted()).then(a.kind.cmp(&b.kind));
            let by_noise = by_kind.then(is_noise(a).cmp(&is_noise(b)));
            by_noise.then(of_run(b).total_cmp(&of_run(a)))
        });
        name_phases(&facts, &mut findings.found);
        findings
    }

    /// What to do first: nothing that was tried and refuted.
    #[must_use]
    pub fn first(&self) -> Option<&Finding> {
        self.found.first().filter(|first| !first.is_refuted())
    }

    fn unknown(&mut self, rule: &'static str, why: impl Into<String>) {
        self.unknown.push(Unknown { rule, why: why.into() });
    }
}

/// With fewer passes of a phase, all of them disturbed, what is found in it may be chance.
const FEW: u64 = 5;

/// Says in each finding which phase it is about, if that isn't decode, of which most are, nor the only one.
fn name_phases(facts: &Facts<'_>, found: &mut [Finding]) {
    if facts.phases.len() < 2 {
        return;
    }
    for finding in found {
        let Some(phase) = finding.phase.filter(|&phase| phase != Phase::Decode) else { continue };
        if !finding.what.contains(phase.name()) {
            finding.what = format!("in {phase}, {}", finding.what);
        }
    }
}

/// Says in each finding of a phase that most of its passes were disturbed, unless the finding is about that.
fn mark_disturbed(profile: &Profile, of: &facts::PhaseFacts<'_>, found: &mut [Finding]) {
    let typical = &of.typical;
    if typical.basis != Basis::Spans {
        return;
    }
    let by = disturbed::who(profile, typical, of.phase);
    let by = by.map_or(String::new(), |(by, _)| format!(" ({})", did(by)));
    let (out, all) = (typical.left_out.passes, of.total.passes);
    let place = "/passes, disturbance";
    for finding in found.iter_mut().filter(|finding| finding.phase == Some(of.phase)) {
        if finding.evidence.iter().any(|evidence| evidence.place == place) {
            continue;
        }
        let text = format!(
            "doubtful: {out} of {all} passes of {} were disturbed{by}, so bricks are by median spans",
            of.phase
        );
        finding.evidence.push(Evidence { text, place: place.to_owned() });
    }
}

impl Finding {
    fn new(rule: &'static str, kind: FindingKind, phase: Option<Phase>) -> Self {
        Self {
            rule,
            kind,
            phase,
            what: String::new(),
            advice: String::new(),
            evidence: Vec::new(),
            gain: None,
            gain_absent: None,
            waits: None,
            refuted_if: String::new(),
            change: None,
            tried: None,
            test: None,
            test_absent: None,
            is_whole_command: false,
            rank_ns: None,
            in_a_sentence: None,
        }
    }

    /// What to do, and about what, in one sentence without its first capital letter and its full stop.
    #[must_use]
    pub fn sentence(&self) -> &str {
        self.in_a_sentence.as_deref().unwrap_or(&self.advice)
    }

    /// Whether it was tried, and brought nothing or far less than predicted.
    #[must_use]
    pub fn is_refuted(&self) -> bool {
        self.tried.as_ref().is_some_and(|tried| tried.verdict == TrialVerdict::Refuted)
    }

    /// The change that brings it, which `brickscope try` can make.
    fn by(mut self, change: Option<Change>) -> Self {
        if change.is_some() {
            self.test = Some(format!("brickscope try RUN {}", self.rule));
        }
        self.change = change;
        self
    }

    /// Without a command that tests it.
    fn untested(mut self, why: &str) -> Self {
        self.test_absent = Some(Absent { reason: why.to_owned() });
        self
    }

    /// Takes away what only `brickscope try` could do.
    fn cannot_be_tried(&mut self) {
        self.change = None;
        if self.test.as_ref().is_some_and(|test| test.starts_with("brickscope try ")) {
            self.test = None;
        }
    }

    fn because(mut self, text: impl Into<String>, place: impl Into<String>) -> Self {
        self.evidence.push(Evidence { text: text.into(), place: place.into() });
        self
    }

    /// Without a gain, that its work takes its least time already.
    fn gains(mut self, gain: Option<Gain>) -> Self {
        self.gain = gain;
        match gain {
            Some(_) => self,
            None => self.cannot_predict("the work takes the least time that it could"),
        }
    }

    /// Of requests: what their tokens waited.
    fn waited(mut self, waits: Waits) -> Self {
        self.rank_ns = Some(waits.gain_ns as f64 / 2.0);
        self.waits = Some(waits);
        self.cannot_predict("it is about what requests wait, not about what a pass takes")
    }

    fn cannot_predict(mut self, why: &str) -> Self {
        self.gain_absent = Some(Absent { reason: why.to_owned() });
        self
    }
}

#[cfg(test)]
mod tests;
