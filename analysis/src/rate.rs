//! How fast a phase of a run was: the figure that every screen says first.
//!
//! A benchmark repeats its tests, and its profile is of one repetition. Its rate is that of the run, and the rate of the
//! profile stands beside it.

use std::collections::BTreeSet;
use std::fmt;

use brickscope_profile::text::{count, file_name, printable};
use brickscope_profile::{ImportedTest, Pass, Phase, Profile, Profiled, Repeated};
use serde::{Deserialize, Serialize};

pub use crate::by_device::ByDevice;
use crate::typical::{self, Basis, Typical, passes_text};
use crate::words::digits;

/// How fast a phase was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// The phase.
    pub phase: Phase,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// What of.
    pub of: RateOf,
    /// The same of passes that ran at the same time, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes_overlapped: Option<Overlapped>,
    /// The part of the phase's wall that it leaves out, since passes were disturbed or had a stall. `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out_of_wall: Option<f64>,
}

/// Which passes a rate is of. Two rates of different rules don't tell which of two runs is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// All passes, or all but a small part of the time.
    #[default]
    All,
    /// Only those that nothing disturbed.
    Clean,
}

impl Rule {
    /// A rate that leaves out no more of the wall is as one of all passes.
    const SMALL_PART: f64 = 0.05;

    /// That of a rate which leaves out this part of the wall.
    #[must_use]
    pub fn of(left_out_of_wall: Option<f64>) -> Self {
        match left_out_of_wall {
            Some(part) if part > Self::SMALL_PART => Self::Clean,
            _ => Self::All,
        }
    }
}

/// What a rate is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateOf {
    /// The passes that [`typical::shown`] keeps.
    Passes,
    /// Passes that were left whole, in a run whose other passes had their nodes timed one at a time.
    WholePasses,
    /// The median of a benchmark's repetitions.
    Repetitions,
    /// Passes that follow each other on a device, by its clock: see [`ByDevice`].
    DeviceSteps,
    /// Passes on a device, each by itself, by its clock.
    DeviceSpans,
}

impl Rate {
    /// How fast a phase was. `None` if nobody counted its tokens, or it had no pass.
    #[must_use]
    pub fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let rate = |tokens_per_second, of| Self {
            phase,
            tokens_per_second,
            of,
            passes_overlapped: None,
            left_out_of_wall: None,
        };
        if let Some(of) = repeated(profile, phase).and_then(Repeated::tokens_per_second) {
            return Some(rate(of, RateOf::Repetitions));
        }
        // Passes whose nodes ran one at a time are slower than they are by themselves.
        if let Some(whole) = profile.serialised(phase).filter(|of| of.whole_passes > 0) {
            return whole.whole_tokens_per_second().map(|of| rate(of, RateOf::WholePasses));
        }
        let by_host = of_passes(profile, phase).map(|(of, left_out_of_wall)| Self {
            passes_overlapped: Overlapped::of(profile, phase),
            left_out_of_wall,
            ..rate(of, RateOf::Passes)
        });
        by_host.or_else(|| {
            let by = ByDevice::of(profile, phase)?;
            let of = if by.is_steady { RateOf::DeviceSteps } else { RateOf::DeviceSpans };
            Some(rate(by.tokens_per_second(), of))
        })
    }

    /// The 95 % interval of a rate of [`RateOf::Passes`], by its passes. `None` if it isn't known.
    #[must_use]
    pub fn interval(&self, profile: &Profile) -> Option<[f64; 2]> {
        let pass = pass_interval(profile, self.phase).filter(|_| self.of == RateOf::Passes)?;
        let [low, high] = pass.interval_ns;
        // A shorter time is a higher rate.
        (low > 0.0).then(|| [high, low].map(|end| self.tokens_per_second * pass.ns / end))
    }

    /// Those of all phases.
    #[must_use]
    pub fn all(profile: &Profile) -> Vec<Self> {
        Phase::SHOWN.into_iter().filter_map(|phase| Self::of(profile, phase)).collect()
    }
}

/// With fewer passes, an interval of their mean says little.
pub const LEAST_FOR_INTERVAL: u64 = 5;

/// The mean pass of a phase, and its 95 % interval.
pub(crate) struct PassInterval {
    pub(crate) ns: f64,
    pub(crate) interval_ns: [f64; 2],
}

/// How sure the mean pass is. `None` if too few passes remain, or if they ran over other numbers of tokens.
pub(crate) fn pass_interval(profile: &Profile, phase: Phase) -> Option<PassInterval> {
    // Of median spans it would say how alike they are, not how sure the rate is.
    let typical = Typical::of(profile, phase)
        .filter(|of| of.basis == Basis::Passes && of.passes >= LEAST_FOR_INTERVAL)?;
    let mut tokens = profile.passes.iter().filter(|pass| pass.phase == phase).map(|of| of.tokens);
    let first = tokens.next();
    // Passes over other numbers of tokens take other times.
    if tokens.any(|other| Some(other) != first) {
        return None;
    }
    let (ns, interval_ns) = (typical.wall.ns, typical.wall.interval_ns?);
    (interval_ns[0] < interval_ns[1] && ns > 0.0).then_some(PassInterval { ns, interval_ns })
}

/// How fast passes of a phase were that ran at the same time, on several threads or as tasks that wait: of each, a token
/// took its pass's wall, while the others brought forth tokens too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overlapped {
    /// Tokens per second of the walls of all passes.
    pub tokens_per_second_each: f64,
    /// Tokens per second of the time in which at least one of the passes ran. Pauses between passes are in neither.
    pub tokens_per_second_together: f64,
}

/// Passes overlap if this part of their walls went by while another one ran. Readings of two cores' clocks may overlap by less.
const LEAST_OVERLAP: f64 = 0.01;

impl Overlapped {
    /// That of the passes that the tables of a phase are of. `None` if they didn't overlap, or not all of them were kept one
    /// by one; and of ranks, which work on the same tokens.
    #[must_use]
    pub fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        if profile.ranks.is_some() {
            return None;
        }
        let shown = typical::shown(profile);
        let total = shown.phase(phase)?;
        let of_phase = shown.passes.iter().filter(|pass| pass.phase == phase && !pass.is_left_out);
        let end = |pass: &Pass| pass.start_ns.saturating_add(pass.wall_ns);
        let mut walls: Vec<_> = of_phase.map(|pass| (pass.start_ns, end(pass))).collect();
        if walls.len() as u64 != total.passes {
            return None;
        }
        walls.sort_unstable();
        // Where a file doesn't tell when they began, all of them do at 0.
        if let [(first, _), .., (last, _)] = walls[..]
            && first == last
        {
            return None;
        }
        let (mut together_ns, mut until) = (0_u64, 0);
        for (start, end) in walls {
            together_ns = together_ns.saturating_add(end.saturating_sub(start.max(until)));
            until = until.max(end);
        }
        let overlap = total.wall_ns.saturating_sub(together_ns) as f64;
        if together_ns == 0 || overlap < LEAST_OVERLAP * total.wall_ns as f64 {
            return None;
        }
        Some(Self {
            tokens_per_second_each: total.tokens_per_second()?,
            tokens_per_second_together: total.tokens as f64 * 1e9 / together_ns as f64,
        })
    }
}

/// `passes overlapped: 67.5 tokens/s each, 123 tokens/s together`
impl fmt::Display for Overlapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [each, together] =
            [self.tokens_per_second_each, self.tokens_per_second_together].map(digits);
        write!(f, "passes overlapped: {each} tokens/s each, {together} tokens/s together")
    }
}

/// The rate of the passes that the tables of a phase are of.
#[must_use]
pub fn profiled(profile: &Profile, phase: Phase) -> Option<f64> {
    of_passes(profile, phase).map(|(rate, _)| rate)
}

/// The same, and the part of the phase's wall that those passes leave out.
fn of_passes(profile: &Profile, phase: Phase) -> Option<(f64, Option<f64>)> {
    let shown = typical::shown(profile);
    let kept = shown.phase(phase)?;
    let all_ns = profile.phase(phase).map_or(kept.wall_ns, |all| all.wall_ns);
    let left_out_ns = all_ns.saturating_sub(kept.wall_ns);
    let part = (left_out_ns > 0).then(|| left_out_ns as f64 / all_ns as f64);
    Some((kept.tokens_per_second()?, part))
}

/// The benchmark's test that a phase belongs to.
#[must_use]
pub fn repeated(profile: &Profile, phase: Phase) -> Option<&Repeated> {
    profile.run.as_ref()?.repeated(phase)
}

/// What a benchmark's rate is, and the mean, which is in llama-bench's table: `tg128, median of 5 repetitions, 28.1 to
/// 29.9, mean 29.1`.
#[must_use]
pub fn basis(of: &Repeated) -> String {
    let rates = of.rates();
    let test = printable(&of.test);
    let fold = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick);
    match (fold(f64::min), fold(f64::max)) {
        (Some(low), Some(high)) if rates.len() > 1 => format!(
            "{test}, median of {}, {} to {}, mean {}",
            count(rates.len() as u64, "repetition"),
            digits(low),
            digits(high),
            digits(rates.iter().sum::<f64>() / rates.len() as f64)
        ),
        _ => format!("{test}, one repetition"),
    }
}

/// Which repetition of a benchmark the tables of a phase are of, and how fast that was, as a sentence without its
/// first capital letter and its full stop. `None` if no benchmark was run.
#[must_use]
pub fn of_profile(profile: &Profile, phase: Phase) -> Option<String> {
    let of = repeated(profile, phase)?;
    let which = match of.profiled {
        Profiled::No => return Some("none of them was profiled".to_owned()),
        Profiled::Last if of.repetitions.len() == 1 => "it",
        Profiled::Last => "the last",
        Profiled::Further => "a further one",
    };
    let all = profile.phase(phase)?;
    let rate = all.tokens_per_second().map_or("no rate".to_owned(), digits);
    let shown = typical::shown(profile);
    let kept = shown.phase(phase).filter(|kept| kept.passes < all.passes);
    let clean = kept.and_then(|kept| {
        let out = passes_text(all.passes - kept.passes);
        Some(format!(", {} without the {out} left out", digits(kept.tokens_per_second()?)))
    });
    Some(format!("this profile is of {which}: {rate} tok/s{}", clean.unwrap_or_default()))
}

/// The places of the repetitions in the middle, of which a benchmark's rate is the mean: one, or two if their number is
/// even.
#[must_use]
pub fn middle(of: &Repeated) -> Vec<usize> {
    let all = of.repetitions.iter().enumerate();
    let mut by_rate: Vec<(usize, f64)> =
        all.filter_map(|(at, repetition)| Some((at, repetition.rate()?))).collect();
    by_rate.sort_by(|a, b| a.1.total_cmp(&b.1));
    let n = by_rate.len();
    let middle = by_rate.get(n.saturating_sub(1) / 2..(n / 2 + 1).min(n)).unwrap_or_default();
    middle.iter().map(|(at, _)| *at).collect()
}
/// A test of a benchmark in an imported file, which has no passes, as every screen shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRow {
    /// Its name, such as `tg128 @ d4096`.
    pub name: String,
    /// Tokens per second: `7098 ± 15`.
    pub rate: String,
    /// How that is known, and what sets the test apart from others: `3 repetitions, threads 4`.
    pub how: String,
    /// The same for a line with little room: what sets it apart by llama-bench's flags, the model first.
    pub brief: String,
    /// What it runs, by its name; `None` for a test of both.
    pub phase: Option<Phase>,
}

/// The tests of an imported benchmark whose rows are not passes.
#[must_use]
pub fn imported_tests(profile: &Profile) -> Vec<TestRow> {
    let tests = || profile.imported.iter().flat_map(|imported| &imported.tests);
    let files = tests().flat_map(|test| &test.apart).filter(|(name, _)| name == FILE);
    let files: BTreeSet<&str> = files.map(|(_, path)| path.as_str()).collect();
    // Models in different folders may have one name.
    let names: BTreeSet<&str> = files.iter().map(|path| file_name(path)).collect();
    let is_short = names.len() == files.len();
    let types = tests().flat_map(|test| &test.apart).filter(|(name, _)| name == TYPE);
    let types: BTreeSet<&str> = types.map(|(_, of)| of.as_str()).collect();
    let is_typed = types.len() >= files.len();
    tests().map(|test| row_of_test(test, is_short, is_typed)).collect()
}

/// The field that describes a model: `llama 1B Q4_K - Medium`.
const TYPE: &str = "model_type";

/// The field that names the file of a model.
const FILE: &str = "model_filename";

/// `is_short` says that the names of models' files tell them apart, `is_typed` that their types do.
fn row_of_test(test: &ImportedTest, is_short: bool, is_typed: bool) -> TestRow {
    let how = match test.samples_ns.len() {
        0 => "as the file states".to_owned(),
        n => count(n as u64, "repetition"),
    };
    let apart = told_apart(test, is_short);
    let of_model = |name: &str| name == TYPE || name == FILE;
    let model = apart.iter().filter(|(name, _)| *name == if is_typed { TYPE } else { FILE });
    let model = model.map(|(_, value)| format!(", {}", printable(value)));
    let flags = apart.iter().filter(|(name, _)| !of_model(name));
    let flags = flags.map(|(name, value)| format!(", {} {}", flag(name), printable(value)));
    let brief = how.clone() + &model.chain(flags).collect::<String>();
    let apart = apart.into_iter();
    let apart = apart.map(|(name, value)| format!(", {} {}", printable(name), printable(value)));
    let phase = match (test.name.get(..2), test.name.contains('+')) {
        (Some("pp"), false) => Some(Phase::Prefill),
        (Some("tg"), false) => Some(Phase::Decode),
        _ => None,
    };
    TestRow {
        name: printable(&test.name),
        rate: rate(test),
        how: how + &apart.collect::<String>(),
        brief,
        phase,
    }
}

/// By which flag llama-bench sets a field, without its dash.
fn flag(field: &str) -> String {
    const FLAGS: [(&str, &str); 14] = [
        ("n_threads", "t"),
        ("n_batch", "b"),
        ("n_ubatch", "ub"),
        ("type_k", "ctk"),
        ("type_v", "ctv"),
        ("n_gpu_layers", "ngl"),
        ("n_cpu_moe", "ncmoe"),
        ("split_mode", "sm"),
        ("main_gpu", "mg"),
        ("no_kv_offload", "nkvo"),
        ("flash_attn", "fa"),
        ("tensor_split", "ts"),
        ("use_mmap", "mmp"),
        ("embeddings", "embd"),
    ];
    let known = FLAGS.iter().find(|(name, _)| *name == field);
    known.map_or_else(|| printable(field), |(_, flag)| (*flag).to_owned())
}

/// The fields that set a test apart, the settings first and then the model, of which a line has little room for: the file
/// without its folders, and not what follows from it.
fn told_apart(test: &ImportedTest, is_short: bool) -> Vec<(&str, &str)> {
    const OF_THE_MODEL: [&str; 2] = [TYPE, FILE];
    const FOLLOWS: [&str; 2] = ["model_size", "model_n_params"];
    let all = || test.apart.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_named = all().any(|(name, _)| OF_THE_MODEL.contains(&name));
    let settings = all()
        .filter(|(name, _)| !(OF_THE_MODEL.contains(name) || is_named && FOLLOWS.contains(name)));
    let model = OF_THE_MODEL.iter().filter_map(|name| all().find(|(of, _)| of == name));
    let model = model.map(|(name, value)| match name {
        FILE if is_short => (name, file_name(value)),
        _ => (name, value),
    });
    settings.chain(model).collect()
}

/// The mean rate of a test's repetitions, or what the file states. `None` if it has neither.
#[must_use]
pub fn mean(test: &ImportedTest) -> Option<f64> {
    match &test.stated {
        Some(stated) => stated.tokens_per_second.parse().ok(),
        None => test.rate().map(|(mean, _)| mean),
    }
}

/// `7098 ± 15`: what the repetitions come to, or what the file says that they do.
fn rate(test: &ImportedTest) -> String {
    let with = |mean: String, spread: Option<String>| match spread {
        Some(spread) => format!("{mean} ± {spread}"),
        None => mean,
    };
    if let Some(stated) = &test.stated {
        return with(
            two_decimals(&stated.tokens_per_second),
            stated.std_dev.as_deref().map(two_decimals),
        );
    }
    let Some((mean, spread)) = test.rate() else { return "no rate".to_owned() };
    // The same digits of both.
    let digits = if mean < 1000.0 { 2 } else { 0 };
    with(format!("{mean:.digits$}"), spread.map(|spread| format!("{spread:.digits$}")))
}

/// A number as it is written, or with two decimals if it has more.
fn two_decimals(number: &str) -> String {
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match number.parse::<f64>() {
        Ok(number) if decimals > 2 => format!("{number:.2}"),
        _ => printable(number),
    }
}
