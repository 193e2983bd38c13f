//! What prompts of others cost a token: the pass that computed it beside them is held against passes of the run with as much
//! decode and no prompt.
//!
//! A pass that several requests share is never divided among them. This is another figure: what the pass would have taken
//! without the prompts is predicted, with an interval, and what it took longer is what they cost.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::mem::discriminant;

use brickscope_profile::text::count;
use brickscope_profile::{PartKind, Pass};
use serde::Serialize;

use super::cause::median;
use super::{Cause, Caused, Interval, OfPass, Piece, Requests, rank_of};

/// With fewer passes like it, nobody knows what a pass would have taken.
const FEWEST: usize = 5;
/// The most that are taken: those nearest to it.
const MOST: usize = 50;
/// The positions of a pass like it may differ, in sum, by one part in this many.
const NEAR: u64 = 4;
/// One prediction in this many may lie below its interval, and one above.
const TAIL: usize = 20;

/// What prompts of others cost a token in passes that it shared with them, in nanoseconds: predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// What the pass took beyond the median of passes like it without a prompt. Of several passes the sum.
    pub cost_ns: i64,
    /// The least that it may be: without the prompts, the pass may have been as slow as the slow ones of these.
    pub low_ns: i64,
    /// The most.
    pub high_ns: i64,
    /// How often such an interval holds what it is of, from 0 to 1: 0.9 or more, where there are 19 passes.
    pub coverage: f64,
    /// From how many passes it is predicted.
    pub beside: u64,
}

impl Cost {
    /// Of a pass, by what passes like it took without a prompt: [`FEWEST`] or more.
    fn of(wall_ns: u64, mut without_ns: Vec<u64>) -> Self {
        let n = without_ns.len();
        let typical_ns = median(&mut without_ns);
        // They are sorted now. One more would lie in each of the n + 1 gaps between them with the same probability.
        let rank = ((n + 1) / TAIL).max(1);
        Self {
            cost_ns: difference(wall_ns, typical_ns),
            low_ns: difference(wall_ns, without_ns[n - rank]),
            high_ns: difference(wall_ns, without_ns[rank - 1]),
            coverage: (n + 1 - 2 * rank) as f64 / (n + 1) as f64,
            beside: n as u64,
        }
    }

    /// Both together, from so many passes. Either interval may fail to hold its own, so that both do is rarer.
    fn plus(self, other: Self, beside: u64) -> Self {
        Self {
            cost_ns: self.cost_ns.saturating_add(other.cost_ns),
            low_ns: self.low_ns.saturating_add(other.low_ns),
            high_ns: self.high_ns.saturating_add(other.high_ns),
            coverage: (self.coverage + other.coverage - 1.0).max(0.0),
            beside,
        }
    }

    /// Whether it can be told from 0: the interval doesn't include it.
    #[must_use]
    pub fn is_distinct(&self) -> bool {
        is_distinct([self.low_ns, self.high_ns])
    }
}

/// Whether an interval lies on one side of 0.
pub(crate) fn is_distinct([low_ns, high_ns]: [i64; 2]) -> bool {
    low_ns > 0 || high_ns < 0
}

fn difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Why nobody knows what prompts of others cost in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NotKnown {
    /// So few passes of the run have as much decode and no prompt.
    FewPasses(u64),
    /// The pass had a prompt of its own, too: without a prompt no pass is like it.
    OwnPrompt,
    /// None of its passes had prompts of others, or most of that one lies in the time of another token.
    NoPass,
}

impl fmt::Display for NotKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewPasses(n) => {
                let have = if *n < 2 { "has" } else { "have" };
                let passes = if *n == 0 { "no pass".to_owned() } else { count(*n, "pass") };
                write!(
                    f,
                    "{passes} of this run {have} as many decode tokens at like positions and no prompt, {FEWEST} are needed"
                )
            }
            Self::OwnPrompt => f.write_str("its own prompt was in the pass, too"),
            Self::NoPass => {
                f.write_str("no pass of its own with prompts of others lies mostly in its time")
            }
        }
    }
}

/// What a token waited for prompts of others. The two figures aren't added: one is predicted, the other measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptCost {
    /// In passes that it shared with them. `None` if it shared none, and waited for passes for them alone.
    pub shared: Option<Result<Cost, NotKnown>>,
    /// In passes for them alone, as far as these lie in its time, in nanoseconds.
    pub alone_ns: u64,
}

/// What prompts of others cost all tokens that waited for them most.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Costs {
    /// Where it is known, the least cost first.
    pub known: Vec<Cost>,
    /// From how many passes these are predicted, together.
    pub beside: u64,
    /// Of how many it isn't known, and why. Where passes are too few, the most that one has.
    pub not_known: Vec<(NotKnown, u64)>,
    /// The time in passes for prompts alone, of each that has some, in nanoseconds, the shortest first.
    pub alone_ns: Vec<u64>,
}

impl Costs {
    /// Of those that [waited for prompts of others](Cause::Prompts).
    #[must_use]
    pub fn of(without: &WithoutPrompts<'_, '_>, slow: &[Caused]) -> Self {
        let mut costs = Self::default();
        let mut beside: HashSet<usize> = HashSet::new();
        for of in slow.iter().filter(|of| of.cause == Cause::Prompts) {
            let (PromptCost { shared, alone_ns }, passes) = without.cost_by(&of.interval);
            beside.extend(passes);
            match shared {
                Some(Ok(cost)) => costs.known.push(cost),
                Some(Err(why)) => costs.add(why),
                None => {}
            }
            costs.alone_ns.extend(Some(alone_ns).filter(|ns| *ns > 0));
        }
        costs.known.sort_by_key(|cost| cost.cost_ns);
        costs.alone_ns.sort_unstable();
        costs.beside = beside.len() as u64;
        costs
    }

    fn add(&mut self, why: NotKnown) {
        let is_it = |of: &NotKnown| discriminant(of) == discriminant(&why);
        match self.not_known.iter_mut().find(|(of, _)| is_it(of)) {
            Some((of, n)) => (*of, *n) = ((*of).max(why), *n + 1),
            None => self.not_known.push((why, 1)),
        }
    }

    /// The least cost that this many in a hundred don't exceed, in nanoseconds. `None` if none is known.
    #[must_use]
    pub fn percentile(&self, nth: u32) -> Option<i64> {
        self.known.get(rank_of(self.known.len(), nth)).map(|cost| cost.cost_ns)
    }
}

/// The passes of a run that have no prompt, by what they decode: they tell what a pass would have taken without its prompts.
#[derive(Debug)]
pub struct WithoutPrompts<'r, 'p> {
    requests: &'r Requests<'p>,
    /// What each pass decodes, by its serial.
    decodes: HashMap<u32, Decodes>,
    alike: HashMap<Kind, Alike>,
}

/// The decode parts of a pass, summed.
#[derive(Debug, Clone, Copy, Default)]
struct Decodes {
    tokens: u64,
    positions: u64,
    has_prompt: bool,
}

/// The tokens that a pass decodes; and whether its bricks were timed, which takes time.
type Kind = (u64, bool);

/// Passes of one kind: the sum of their positions, by which they are sorted, and an index into the profile's passes.
#[derive(Debug, Default)]
struct Alike {
    all: Vec<(u64, usize)>,
    /// Those that nothing disturbed, and that count.
    clean: Vec<(u64, usize)>,
}

fn kind_of(pass: &Pass, decodes: Decodes) -> Kind {
    (decodes.tokens, pass.attributed_ns > 0)
}

impl<'r, 'p> WithoutPrompts<'r, 'p> {
    /// Looks for them. The phase of a pass doesn't say what it decodes: one with a prompt is of that, whatever else it has.
    #[must_use]
    pub fn of(requests: &'r Requests<'p>) -> Self {
        let profile = requests.profile;
        let mut decodes: HashMap<u32, Decodes> = HashMap::new();
        for of in &profile.parts {
            let sum = decodes.entry(of.pass).or_default();
            match of.part.kind {
                PartKind::Prompt => sum.has_prompt = true,
                PartKind::Decode => {
                    sum.tokens = sum.tokens.saturating_add(of.part.tokens);
                    sum.positions = sum.positions.saturating_add(of.part.position);
                }
            }
        }
        let mut alike: HashMap<Kind, Alike> = HashMap::new();
        for (nth, pass) in profile.passes.iter().enumerate() {
            let of = decodes.get(&pass.serial).filter(|of| !of.has_prompt);
            let Some(&of) = of else { continue };
            let alike = alike.entry(kind_of(pass, of)).or_default();
            alike.all.push((of.positions, nth));
            if !pass.is_disturbed() && !pass.is_left_out {
                alike.clean.push((of.positions, nth));
            }
        }
        for of in alike.values_mut() {
            of.all.sort_unstable();
            of.clean.sort_unstable();
        }
        Self { requests, decodes, alike }
    }

    /// What prompts of others cost the token that ends an interval.
    ///
    /// # Panics
    ///
    /// If it is of a request that isn't there.
    #[must_use]
    pub fn cost(&self, interval: &Interval) -> PromptCost {
        self.cost_by(interval).0
    }

    /// That, and the passes from which it is predicted.
    fn cost_by(&self, interval: &Interval) -> (PromptCost, HashSet<usize>) {
        let alone_ns = interval.of(Piece::OtherPrompts);
        let (shared, passes) = match self.shared(interval) {
            Ok(Some((cost, passes))) => (Some(Ok(cost)), passes),
            Ok(None) if alone_ns > 0 => (None, HashSet::new()),
            Ok(None) => (Some(Err(NotKnown::NoPass)), HashSet::new()),
            Err(why) => (Some(Err(why)), HashSet::new()),
        };
        (PromptCost { shared, alone_ns }, passes)
    }

    /// The cost in passes that it shared, if there are any.
    fn shared(&self, interval: &Interval) -> Result<Option<(Cost, HashSet<usize>)>, NotKnown> {
        let Interval { request, from_ns, to_ns, .. } = *interval;
        let requests = self.requests;
        let is_shared = |pass: &&OfPass| {
            // One that lies in the time of two tokens counts once: where most of it is.
            let inside = pass.end_ns.min(to_ns).saturating_sub(pass.start_ns.max(from_ns));
            let piece = requests.piece_of(pass, request);
            inside > (pass.end_ns - pass.start_ns) / 2
                && matches!(piece, Piece::OwnBesidePrompts | Piece::OwnBesideBoth)
        };
        let mut cost: Option<Cost> = None;
        let mut passes: HashSet<usize> = HashSet::new();
        for pass in requests.overlapping(from_ns, to_ns).filter(is_shared) {
            let parts = &requests.parts[pass.parts[0]..pass.parts[1]];
            if parts.iter().any(|(of, kind, _)| *of == request && *kind == PartKind::Prompt) {
                return Err(NotKnown::OwnPrompt);
            }
            let all = &requests.profile.passes;
            let like = self.like(&all[pass.nth])?;
            let walls = like.iter().map(|&nth| all[nth].wall_ns).collect();
            let of = Cost::of(all[pass.nth].wall_ns, walls);
            passes.extend(like);
            cost = Some(cost.map_or(of, |cost| cost.plus(of, passes.len() as u64)));
        }
        Ok(cost.map(|cost| (cost, passes)))
    }

    /// The passes that are as this one is, but for its prompts: indices into the profile's.
    fn like(&self, pass: &Pass) -> Result<Vec<usize>, NotKnown> {
        let decodes = self.decodes.get(&pass.serial).copied().unwrap_or_default();
        let alike = self.alike.get(&kind_of(pass, decodes)).ok_or(NotKnown::FewPasses(0))?;
        let clean = nearest(&alike.clean, decodes.positions);
        let is_enough = clean.len() >= FEWEST;
        let found = if is_enough { clean } else { nearest(&alike.all, decodes.positions) };
        if found.len() < FEWEST {
            return Err(NotKnown::FewPasses(found.len() as u64));
        }
        Ok(found.iter().map(|(_, nth)| *nth).collect())
    }
}

/// Those whose positions are like these: [`MOST`] at most, the nearest.
fn nearest(sorted: &[(u64, usize)], positions: u64) -> &[(u64, usize)] {
    let apart = |at: usize| {
        let (of, _) = sorted.get(at)?;
        Some(of.abs_diff(positions)).filter(|apart| *apart <= positions / NEAR)
    };
    let middle = sorted.partition_point(|(of, _)| *of < positions);
    let (mut from, mut to) = (middle, middle);
    while to - from < MOST {
        match (from.checked_sub(1).and_then(apart), apart(to)) {
            (Some(below), above) if above.is_none_or(|above| below < above) => from -= 1,
            (_, Some(_)) => to += 1,
            _ => break,
        }
    }
    &sorted[from..to]
}
