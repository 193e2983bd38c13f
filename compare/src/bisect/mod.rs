//! Which of many revisions made a program slower, on a machine whose times vary.
//!
//! `git bisect` asks of each revision whether it is good or bad, and takes one wrong answer for the truth. Times are not
//! like that. So here each measurement is a pair: the two revisions run beside each other, and a coin says which goes
//! first. Three questions are put in turn:
//!
//! 1. Does the last revision differ from the first one? If it differs by less than [`Options::least`], there is none to
//!    find. This is a test by the coins alone, whatever the machine does (`evidence.rs`).
//! 2. Where is the step? Each pair with the first revision makes some places likelier and others less
//!    (`position.rs`). The next revision is the one that splits what is likely in halves.
//! 3. Is it true? The likely one runs beside the one before it, until the coins alone say that they differ. If the
//!    places become less sure again, the search goes on.
//!
//! [`Bisect`] measures nothing: it says what to measure next, and takes the result.
//!
//! ```
//! use brickscope_compare::bisect::{Bisect, Next, Options, Verdict};
//!
//! // Revisions 0 to 20, of which each from 13 on is 5 % slower.
//! let mut bisect = Bisect::new(20, Options::default())?;
//! let outcome = loop {
//!     match bisect.next() {
//!         Next::Run(run) => {
//!             let noise = 0.01 * f64::from(bisect.progress().measurements as u32 * 7 % 5);
//!             let seconds = if run.revision >= 13 { 1.05 } else { 1.0 };
//!             bisect.add(seconds + noise)?;
//!         }
//!         Next::Done(outcome) => break outcome,
//!     }
//! };
//! assert_eq!(outcome.verdict, Verdict::Found { after: 12, to: 13 });
//! # Ok::<(), brickscope_compare::bisect::BisectError>(())
//! ```

mod evidence;
mod outcome;
mod position;
mod revisions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use brickscope_profile::stats::{SplitMix64, median};
use serde::{Deserialize, Serialize};

use self::evidence::Wealth;
pub use self::outcome::{Controls, Estimate, Outcome, Places, Verdict, Why};
use self::position::Segment;
pub use self::revisions::{Commit, Kind, short};

/// When this many tested revisions turned out not to be the step, the slow-down is not one step.
const MOST_TESTS: usize = 8;

/// A place as likely as this is put to the test.
const LIKELY: f64 = 0.6;

/// Below this, the search goes on.
const UNLIKELY: f64 = 0.3;

/// A revision that was measured already is taken again if it splits the likely places so far from the middle at most:
/// that saves a build, and tells nearly as much.
const OFF_THE_MIDDLE: f64 = 0.2;

/// Once in so many pairs, the first revision runs beside itself.
const CONTROL_EVERY: usize = 16;

/// How often at most a machine is said to slow down from one run to the next that doesn't.
const DRIFT_ALPHA: f64 = 0.005;

/// So many pairs tell the cost of going second.
const KNOWN_FROM: usize = 8;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether a higher value is better, as of tokens per second, and not of seconds.
    pub more_is_better: bool,
    /// The smallest difference that matters: 0.02 for 2 %.
    pub least: f64,
    /// The probability of finding a difference between equal ends, and of overlooking one that matters.
    pub false_alarm: f64,
    /// The probability of naming a revision that is no slower than the one before it.
    pub wrong: f64,
    /// The most measurements.
    pub max_measurements: u64,
    /// What the coins begin with. The same seed and results give the same questions.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            more_is_better: false,
            least: 0.02,
            false_alarm: 0.01,
            wrong: 0.05,
            max_measurements: 1000,
            seed: 0,
        }
    }
}

/// All that happened so far, for a file: a search is continued by [`Bisect::resumed`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The last revision; the first is 0.
    pub last: usize,
    /// What is asked.
    pub options: Options,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The revision that was asked for had this result.
    Ran(usize, f64),
    /// The revision can't be built or measured.
    Unusable(usize),
    /// The pair that was begun begins anew.
    Forgot,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Measure a revision.
    Run(Run),
    /// The search is over.
    Done(Box<Outcome>),
}

/// A measurement that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Which revision.
    pub revision: usize,
    /// Beside which other one.
    pub beside: usize,
    /// Why.
    pub purpose: Purpose,
}

/// Why two revisions are measured beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Whether the last one differs from the first one.
    Ends,
    /// Whether a revision is like the first one or like the last one.
    Search,
    /// Whether the revision that was found differs from the one before it.
    Confirm,
    /// How much the machine alone makes the first one differ from itself.
    Control,
}

/// How far the search is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Measurements so far.
    pub measurements: u64,
    /// What is measured, and its pairs so far; `None` at the end.
    pub now: Option<(Run, Option<Estimate>)>,
    /// The last revision beside the first one.
    pub ends: Option<Estimate>,
    /// Which revisions may have made the step, with 95 %.
    pub likely: Places,
    /// About how many measurements are left; `None` if that can't be told.
    pub left: Option<u64>,
}

/// Why a search can't go on.
#[derive(Debug, Clone, PartialEq)]
pub enum BisectError {
    /// There is nothing between the ends.
    NoRevisions,
    /// An option that has no meaning, and why.
    Option(&'static str),
    /// A result that is no positive number.
    Value(f64),
    /// The first or the last revision can't be measured.
    End(usize),
    /// A result that was not asked for.
    NotAsked,
    /// A record that does not fit itself: the number of its event, from 1.
    Record(usize),
}

impl fmt::Display for BisectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRevisions => f.write_str("there is no revision after the good one"),
            Self::Option(what) => f.write_str(what),
            Self::Value(value) => {
                write!(
                    f,
                    "the result of a measurement has to be a number above 0, and it is {value}"
                )
            }
            Self::End(0) => f.write_str("the good revision can't be measured"),
            Self::End(_) => f.write_str("the bad revision can't be measured"),
            Self::NotAsked => f.write_str("the search is over: no result is asked for"),
            Self::Record(event) => {
                write!(
                    f,
                    "event {event} is not one that was asked for: it was changed, or another version made it"
                )
            }
        }
    }
}

impl std::error::Error for BisectError {}

/// Two revisions that were measured beside each other.
#[derive(Debug, Clone, Copy)]
struct Pair {
    a: usize,
    b: usize,
    b_first: bool,
    /// How much slower b was, as a difference of logarithms of times, without the cost of going second.
    even: f64,
    /// How large its noise seemed to be.
    scale: f64,
}

/// The test of a revision: whether it differs from the one before it.
#[derive(Debug, Clone)]
struct Test {
    /// What is allowed to this test of the probability of being wrong.
    alpha: f64,
    wealth: Wealth,
}

/// The pair that is being measured.
#[derive(Debug, Clone, Copy)]
struct Asked {
    a: usize,
    b: usize,
    b_first: bool,
    purpose: Purpose,
    /// The first one's result, as the logarithm of a time.
    first: Option<f64>,
}

/// A search for the revision that made a program slower.
#[derive(Debug, Clone)]
pub struct Bisect {
    record: Record,
    unusable: BTreeSet<usize>,
    coins: SplitMix64,
    pairs: Vec<Pair>,
    measurements: u64,
    /// The logarithm of a time of the first revision, of each of its runs.
    of_good: Vec<f64>,
    /// How much longer the second of each pair took.
    later: Vec<f64>,
    slower: Wealth,
    faster: Wealth,
    /// That the difference is below the least.
    below: Wealth,
    /// That the second of a pair is slower, and faster, than the first by more than the least.
    drift: [Wealth; 2],
    /// Once the ends differ.
    places: Option<position::Places>,
    /// By the two revisions that are compared.
    tests: BTreeMap<(usize, usize), Test>,
    /// The test that goes on.
    testing: Option<(usize, usize)>,
    asked: Option<Asked>,
    outcome: Option<Box<Outcome>>,
}

impl Bisect {
    /// A search between revision 0, which is good, and `last`, which is bad.
    ///
    /// # Errors
    ///
    /// If there is nothing to find, or an option has no meaning.
    pub fn new(last: usize, options: Options) -> Result<Self, BisectError> {
        if last == 0 {
            return Err(BisectError::NoRevisions);
        }
        let is_part = |part: f64| part > 0.0 && part < 0.5;
        if !is_part(options.least) {
            return Err(BisectError::Option(
                "the least difference has to be above 0 and below 50 %",
            ));
        }
        if !is_part(options.false_alarm) || !is_part(options.wrong) {
            return Err(BisectError::Option("an error has to be above 0 and below 50 %"));
        }
        let coins = SplitMix64(options.seed);
        let mut bisect = Self {
            record: Record { last, options, events: Vec::new() },
            unusable: BTreeSet::new(),
            coins,
            pairs: Vec::new(),
            measurements: 0,
            of_good: Vec::new(),
            later: Vec::new(),
            slower: Wealth::default(),
            faster: Wealth::default(),
            below: Wealth::default(),
            drift: [Wealth::default(), Wealth::default()],
            places: None,
            tests: BTreeMap::new(),
            testing: None,
            asked: None,
            outcome: None,
        };
        bisect.plan();
        Ok(bisect)
    }

    /// Goes on where a record ends. With more measurements allowed than before, a search that ran out of them goes on.
    ///
    /// # Errors
    ///
    /// If the record isn't one that such a search makes.
    pub fn resumed(record: Record) -> Result<Self, BisectError> {
        let mut bisect = Self::new(record.last, record.options)?;
        for (event, number) in record.events.into_iter().zip(1..) {
            let is_asked = |revision| bisect.now().is_some_and(|run| run.revision == revision);
            match event {
                Event::Ran(revision, value) if is_asked(revision) => bisect.add(value)?,
                Event::Ran(..) => return Err(BisectError::Record(number)),
                Event::Unusable(revision) => bisect.unusable(revision)?,
                Event::Forgot => bisect.begin_pair_anew(),
            }
        }
        Ok(bisect)
    }

    /// What to keep.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> Next {
        match (self.now(), &self.outcome) {
            (Some(run), _) => Next::Run(run),
            (None, Some(outcome)) => Next::Done(outcome.clone()),
            // Each plan has one of them.
            (None, None) => Next::Done(Box::new(self.outcome_of(self.undecided()))),
        }
    }

    fn now(&self) -> Option<Run> {
        let asked = self.asked?;
        let is_b = asked.b_first == asked.first.is_none();
        let (revision, beside) = if is_b { (asked.b, asked.a) } else { (asked.a, asked.b) };
        Some(Run { revision, beside, purpose: asked.purpose })
    }

    /// Takes the result of the measurement that [`next`](Self::next) asked for.
    ///
    /// # Errors
    ///
    /// If none was asked for, or the value is no positive number. Then nothing has changed.
    pub fn add(&mut self, value: f64) -> Result<(), BisectError> {
        let (Some(mut asked), Some(run)) = (self.asked, self.now()) else {
            return Err(BisectError::NotAsked);
        };
        if !(value.is_finite() && value > 0.0) {
            return Err(BisectError::Value(value));
        }
        self.record.events.push(Event::Ran(run.revision, value));
        self.measurements += 1;
        let log = if self.record.options.more_is_better { -value.ln() } else { value.ln() };
        if run.revision == 0 {
            self.of_good.push(log);
        }
        match asked.first {
            None => {
                asked.first = Some(log);
                self.asked = Some(asked);
            }
            Some(first) => {
                let later = log - first;
                self.add_pair(asked, later);
                self.plan();
            }
        }
        Ok(())
    }

    /// Leaves out a revision that can't be built or measured.
    ///
    /// # Errors
    ///
    /// If it is the first or the last one, without which there is no answer.
    pub fn unusable(&mut self, revision: usize) -> Result<(), BisectError> {
        if revision == 0 || revision >= self.record.last {
            return Err(BisectError::End(revision));
        }
        self.record.events.push(Event::Unusable(revision));
        self.unusable.insert(revision);
        if self.asked.is_some_and(|asked| asked.a == revision || asked.b == revision) {
            self.plan();
        }
        Ok(())
    }

    /// Forgets the first half of a pair whose second half was not measured, as after a long break.
    pub fn begin_pair_anew(&mut self) {
        let Some(asked) = self.asked.as_mut().filter(|asked| asked.first.is_some()) else { return };
        asked.first = None;
        self.record.events.push(Event::Forgot);
        if self.measurements + 2 > self.record.options.max_measurements {
            self.plan();
        }
    }

    fn add_pair(&mut self, asked: Asked, later: f64) {
        let Asked { a, b, b_first, purpose, .. } = asked;
        let sign = if b_first { -1.0 } else { 1.0 };
        // The cost is from earlier pairs only, so the coin of this one is still fair.
        let even = sign * (later - self.cost_of_second());
        let scale = self.scale_before(a, b);
        self.later.push(later);
        self.pairs.push(Pair { a, b, b_first, even, scale });
        let least = self.record.options.least.ln_1p();
        self.drift[0].bet(later - least, scale);
        self.drift[1].bet(-later - least, scale);
        match purpose {
            Purpose::Ends => {
                self.slower.bet(even, scale);
                self.faster.bet(-even, scale);
                self.below.bet(least - even, scale);
            }
            Purpose::Confirm => {
                if let Some(test) = self.tests.get_mut(&(a, b)) {
                    test.wealth.bet(even, scale);
                }
            }
            Purpose::Search | Purpose::Control => {}
        }
        if let Some(places) = &mut self.places {
            places.add(a, b, even);
        }
    }

    /// How large the noise of a pair seems to be, by the earlier ones of the same revisions, or by all.
    fn scale_before(&self, a: usize, b: usize) -> f64 {
        let own = self.even_of(a, b);
        let of = if own.len() >= evidence::SCALE_FROM { &own } else { &self.later };
        let known = Some(of).filter(|pairs| pairs.len() >= evidence::SCALE_FROM);
        known.and_then(|pairs| evidence::scale(pairs)).unwrap_or(evidence::USUAL_SCALE)
    }

    /// How much longer the second of a pair takes, where that is plain: else 0, which adds no noise.
    fn cost_of_second(&self) -> f64 {
        let costs = self.costs_of_second();
        if costs.len() < KNOWN_FROM {
            return 0.0;
        }
        let (Some(cost), Some(scale)) = (median(&costs), evidence::scale(&costs)) else {
            return 0.0;
        };
        let error = 1.25 * scale / (costs.len() as f64).sqrt();
        if cost.abs() > 3.0 * error { cost } else { 0.0 }
    }

    /// How much longer the second of each pair took than revisions account for. What two revisions differ by adds to
    /// the second's time in one order and is missing from it in the other, so that it is known, and taken off, where a
    /// pair ran in both orders; elsewhere nothing is known of the cost.
    fn costs_of_second(&self) -> Vec<f64> {
        let mut orders: BTreeMap<(usize, usize), [Vec<f64>; 2]> = BTreeMap::new();
        for (pair, later) in self.pairs.iter().zip(&self.later) {
            orders.entry((pair.a, pair.b)).or_default()[usize::from(pair.b_first)].push(*later);
        }
        let mut costs = Vec::with_capacity(self.later.len());
        for ((a, b), [second, first]) in &orders {
            let half = match (median(second), median(first)) {
                _ if a == b => 0.0,
                (Some(second), Some(first)) => (second - first) / 2.0,
                _ => continue,
            };
            costs.extend(second.iter().map(|later| later - half));
            costs.extend(first.iter().map(|later| later + half));
        }
        costs
    }

    /// Decides what is next, after all that is known.
    fn plan(&mut self) {
        self.asked = None;
        match self.planned() {
            Ok((a, b, purpose)) => {
                let b_first = self.coins.bits() >> 63 == 1;
                self.asked = Some(Asked { a, b, b_first, purpose, first: None });
            }
            Err(verdict) => self.outcome = Some(Box::new(self.outcome_of(verdict))),
        }
    }

    fn planned(&mut self) -> Result<(usize, usize, Purpose), Verdict> {
        let (last, wrong) = (self.record.last, self.record.options.wrong);
        if self.drift.iter().any(|drift| drift.is_enough(DRIFT_ALPHA / 2.0)) {
            return Err(Verdict::Inconclusive { why: Why::Drift });
        }
        if self.places.is_none() {
            if self.slower.is_enough(self.record.options.false_alarm) {
                let ends: Vec<f64> = self.even_of(0, last);
                let mut places = position::Places::new(last, &ends);
                for pair in &self.pairs {
                    places.add(pair.a, pair.b, pair.even);
                }
                self.places = Some(places);
            } else if self.faster.is_enough(self.record.options.false_alarm) {
                return Err(Verdict::None { why: Why::Faster });
            } else if self.below.is_enough(self.record.options.false_alarm) {
                return Err(Verdict::None { why: self.below_what() });
            }
        }
        let segments = self.places.as_ref().map(position::Places::segments);
        let top = segments.as_deref().and_then(|segments| self.top(segments));
        if let Some(top) = top {
            if (top.after, top.to) == (0, last) {
                // All between the ends is unusable, or nothing is: the ends were compared already.
                return Err(Verdict::Found { after: 0, to: last });
            }
            let test = self.tests.get(&(top.after, top.to));
            let proven = test.is_some_and(|test| test.wealth.is_enough(test.alpha));
            if proven && top.mass >= 1.0 - wrong {
                return Err(Verdict::Found { after: top.after, to: top.to });
            }
        }
        if self.measurements + 2 > self.record.options.max_measurements {
            return Err(self.undecided());
        }
        if self.pairs.len() % CONTROL_EVERY == CONTROL_EVERY - 1 {
            return Ok((0, 0, Purpose::Control));
        }
        let Some(segments) = segments else { return Ok((0, last, Purpose::Ends)) };
        // The one under test, as long as it is likely; else another that is.
        let ends = |top: &Segment| (top.after, top.to);
        let goes_on = |top: &Segment| top.mass >= UNLIKELY && self.testing == Some(ends(top));
        self.testing = top.filter(|top| top.mass >= LIKELY || goes_on(top)).as_ref().map(ends);
        if let Some((after, to)) = self.testing {
            if !self.tests.contains_key(&(after, to)) {
                if self.tests.len() >= MOST_TESTS {
                    return Err(Verdict::Inconclusive { why: Why::NotOneStep });
                }
                // Half of what is left to each test: all together have no more than `wrong`.
                let alpha = wrong / 2_f64.powi(self.tests.len() as i32 + 1);
                self.tests.insert((after, to), Test { alpha, wealth: Wealth::default() });
            }
            return Ok((after, to, Purpose::Confirm));
        }
        match self.splitting(&segments) {
            Some(revision) => Ok((0, revision, Purpose::Search)),
            None => Err(Verdict::Inconclusive { why: Why::NotOneStep }),
        }
    }

    fn is_usable(&self, revision: usize) -> bool {
        !self.unusable.contains(&revision)
    }

    /// The likeliest of the segments that can't be split any more.
    fn top(&self, segments: &[Segment]) -> Option<Segment> {
        let is_whole = |segment: &&Segment| {
            let inside = segment.to - segment.after - 1;
            // Counting first: there may be very many.
            inside == self.unusable.range(segment.after + 1..segment.to).count()
        };
        let whole = merged(segments, |revision| self.is_usable(revision));
        whole.iter().filter(is_whole).max_by(|a, b| a.mass.total_cmp(&b.mass)).copied()
    }

    /// The revision that splits the likely places in halves.
    fn splitting(&self, segments: &[Segment]) -> Option<usize> {
        let last = self.record.last;
        let mut before = 0.0;
        let mut known: Option<(f64, usize)> = None;
        let mut unknown: Option<(f64, usize)> = None;
        for segment in segments {
            let Segment { after, to, mass } = *segment;
            let length = (to - after) as f64;
            if before < 0.5 && before + mass >= 0.5 && to - after > 1 {
                let part = ((0.5 - before) / mass * length).round() as usize;
                let middle = (after + part).clamp(after + 1, to - 1);
                // The next that can be measured, on either side.
                let above = (middle..to).find(|revision| self.is_usable(*revision));
                let below = (after + 1..middle).rev().find(|revision| self.is_usable(*revision));
                for revision in above.into_iter().chain(below) {
                    let at = before + mass * (revision - after) as f64 / length;
                    let off = (at - 0.5).abs();
                    if unknown.is_none_or(|(least, _)| off < least) {
                        unknown = Some((off, revision));
                    }
                }
            }
            before += mass;
            let off = (before - 0.5).abs();
            if to < last && self.is_usable(to) && known.is_none_or(|(least, _)| off < least) {
                known = Some((off, to));
            }
        }
        match (known, unknown) {
            (Some((off, known)), Some((less, unknown))) => {
                Some(if off <= OFF_THE_MIDDLE || off <= less { known } else { unknown })
            }
            (known, unknown) => known.or(unknown).map(|(_, revision)| revision),
        }
    }

    fn pairs_of(&self, a: usize, b: usize) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| (pair.a, pair.b) == (a, b))
    }

    fn even_of(&self, a: usize, b: usize) -> Vec<f64> {
        self.pairs_of(a, b).map(|pair| pair.even).collect()
    }
}

/// Segments whose common end can't be measured any more are one.
fn merged(segments: &[Segment], is_usable: impl Fn(usize) -> bool) -> Vec<Segment> {
    let mut merged: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match merged.last_mut().filter(|last| !is_usable(last.to)) {
            Some(last) => {
                last.to = segment.to;
                last.mass += segment.mass;
            }
            None => merged.push(*segment),
        }
    }
    merged
}
