//! Passes like one that had prompts of others, but for these: they tell what it would have taken without.

use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::stats::student;
use brickscope_profile::{PartKind, Pass};

use super::predict::Expected;
use super::{Beside, Cost, FEWEST, NotKnown, PromptCost};
use crate::requests::{Interval, OfPass, Piece, Requests};

/// The most that are taken: those nearest to it.
pub(super) const MOST: usize = 200;
/// The tokens of the KV cache that a pass like it reads may differ by one part in this many.
const NEAR: u64 = 4;
/// With this probability or more, that so many passes took longer than their intervals say is chance.
const BY_CHANCE: f64 = 0.001;
/// The most passes with prompts that are looked at for that.
const MOST_LOOKED_AT: usize = 1_000;

/// The passes of a run that have no prompt, by what they decode: they tell what a pass would have taken without its prompts.
#[derive(Debug)]
pub struct WithoutPrompts<'r, 'p> {
    requests: &'r Requests<'p>,
    /// Not without prompts, but with at most so many tokens of them, and more than half as many.
    piece: Option<u64>,
    /// What each pass does, by its serial.
    does: HashMap<u32, Does>,
    alike: BTreeMap<Kind, Alike>,
}

/// The parts of a pass, summed.
#[derive(Debug, Clone, Copy, Default)]
struct Does {
    /// The sequences that it decodes, and their tokens.
    sequences: u64,
    tokens: u64,
    /// The tokens before these, which it reads.
    reads: u64,
    has_prompt: bool,
    prompt: u64,
}

/// Whether the bricks of a pass were timed, which takes time; the tokens that it decodes, and of how many sequences.
type Kind = (bool, u64, u64);

/// Passes of one kind: what they read, by which they are sorted, and an index into the profile's passes.
#[derive(Debug, Default)]
struct Alike {
    clean: Vec<(u64, usize)>,
    disturbed: Vec<(u64, usize)>,
}

/// What passes like one tell of it.
#[derive(Debug)]
pub(super) struct Like {
    expected: Expected,
    pub(super) beside: Beside,
    /// Indices into the profile's passes.
    pub(super) passes: Vec<usize>,
    left_out: Vec<usize>,
}

/// The passes of which something is predicted, those that it is predicted from, and those that were disturbed and left out.
#[derive(Debug, Default)]
pub(super) struct Cited {
    pub(super) of: HashSet<usize>,
    pub(super) passes: HashSet<usize>,
    pub(super) left_out: HashSet<usize>,
}

fn kind_of(pass: &Pass, does: Does) -> Kind {
    (pass.attributed_ns > 0, does.tokens, does.sequences)
}

impl<'r, 'p> WithoutPrompts<'r, 'p> {
    /// Looks for them. The phase of a pass doesn't say what it decodes: one with a prompt is of that, whatever else it has.
    #[must_use]
    pub fn of(requests: &'r Requests<'p>) -> Self {
        Self::with(requests, None)
    }

    /// Not those without prompts, but those with at most so many tokens of them, and more than half as many: what costs is what
    /// prompts took beyond that, in passes that had more.
    #[must_use]
    pub fn of_pieces(requests: &'r Requests<'p>, tokens: u64) -> Self {
        Self::with(requests, Some(tokens))
    }

    fn with(requests: &'r Requests<'p>, piece: Option<u64>) -> Self {
        let profile = requests.profile;
        let mut does: HashMap<u32, Does> = HashMap::new();
        for of in &profile.parts {
            let sum = does.entry(of.pass).or_default();
            match of.part.kind {
                PartKind::Prompt => {
                    sum.has_prompt = true;
                    sum.prompt = sum.prompt.saturating_add(of.part.tokens);
                }
                PartKind::Decode => {
                    sum.sequences += 1;
                    sum.tokens = sum.tokens.saturating_add(of.part.tokens);
                    sum.reads = sum.reads.saturating_add(of.part.position);
                }
            }
        }
        let is_like = |of: &Does| match piece {
            None => !of.has_prompt,
            Some(most) => of.prompt > most / 2 && of.prompt <= most,
        };
        let mut alike: BTreeMap<Kind, Alike> = BTreeMap::new();
        for (nth, pass) in profile.passes.iter().enumerate().filter(|(_, pass)| !pass.is_left_out) {
            let of = does.get(&pass.serial).filter(|of| is_like(of));
            let Some(&of) = of else { continue };
            let alike = alike.entry(kind_of(pass, of)).or_default();
            let alike = if pass.is_disturbed() { &mut alike.disturbed } else { &mut alike.clean };
            alike.push((of.reads, nth));
        }
        for of in alike.values_mut() {
            of.clean.sort_unstable();
            of.disturbed.sort_unstable();
        }
        Self { requests, piece, does, alike }
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

    /// That, and what it is predicted from.
    pub(super) fn cost_by(&self, interval: &Interval) -> (PromptCost, Cited) {
        let alone_ns = interval.of(Piece::OtherPrompts);
        let (shared, cited) = match self.shared(interval) {
            Ok(Some((cost, cited))) => (Some(Ok(cost)), cited),
            Ok(None) if self.piece.is_some() => (Some(Err(NotKnown::NoLarger)), Cited::default()),
            Ok(None) if alone_ns > 0 => (None, Cited::default()),
            Ok(None) => (Some(Err(NotKnown::NoPass)), Cited::default()),
            Err(why) => (Some(Err(why)), Cited::default()),
        };
        (PromptCost { shared, alone_ns }, cited)
    }

    /// The cost in passes that it shared, if there are any.
    fn shared(&self, interval: &Interval) -> Result<Option<(Cost, Cited)>, NotKnown> {
        let Interval { request, from_ns, to_ns, .. } = *interval;
        let requests = self.requests;
        let all = &requests.profile.passes;
        let is_shared = |pass: &&OfPass| {
            // One that lies in the time of two tokens counts once: where most of it is.
            let inside = pass.end_ns.min(to_ns).saturating_sub(pass.start_ns.max(from_ns));
            let piece = requests.piece_of(pass, request);
            inside > (pass.end_ns - pass.start_ns) / 2
                && matches!(piece, Piece::OwnBesidePrompts | Piece::OwnBesideBoth)
        };
        // Smaller pieces change nothing of a pass that has no larger one.
        let is_larger = |pass: &&OfPass| {
            self.piece.is_none_or(|piece| self.does(&all[pass.nth]).prompt > piece)
        };
        let mut cost: Option<Cost> = None;
        let mut cited = Cited::default();
        let overlapping = requests.overlapping(from_ns, to_ns);
        for pass in overlapping.filter(is_shared).filter(is_larger) {
            let parts = &requests.parts[pass.parts[0]..pass.parts[1]];
            if parts.iter().any(|(of, kind, _)| *of == request && *kind == PartKind::Prompt) {
                return Err(NotKnown::OwnPrompt);
            }
            let like = self.like(&all[pass.nth])?;
            cited.of.insert(pass.nth);
            cited.passes.extend(like.passes);
            cited.left_out.extend(like.left_out);
            let of = Cost::of(all[pass.nth].wall_ns, &like.expected, like.beside);
            let of = cost.map_or(of, |cost| cost.plus(of));
            cost = Some(of.citing(cited.passes.len() as u64, cited.left_out.len() as u64));
        }
        Ok(cost.map(|cost| (cost, cited)))
    }

    /// Whether chance explains that these passes took so long. They were chosen for that: of many passes a few take longer than
    /// their intervals say, whatever they do. So all are looked at that have as many tokens of prompts as the larger half of these.
    pub(super) fn is_by_chance(&self, chosen: &HashSet<usize>) -> bool {
        let all = &self.requests.profile.passes;
        let prompts = chosen.iter().map(|&nth| self.does(&all[nth]).prompt);
        let mut prompts: Vec<u64> = prompts.collect();
        prompts.sort_unstable();
        let Some(&least) = prompts.get(prompts.len() / 2) else { return false };
        let is_such = |pass: &&Pass| {
            let does = self.does(pass);
            does.tokens > 0 && does.prompt >= least && does.prompt > self.piece.unwrap_or(0)
        };
        let such: Vec<&Pass> = all.iter().filter(|of| !of.is_left_out).filter(is_such).collect();
        let step = such.len().div_ceil(MOST_LOOKED_AT).max(1);
        let (mut beyond, mut of, mut chances) = (0_u64, 0_u64, 0.0);
        for pass in such.into_iter().step_by(step) {
            let Ok(Like { expected, .. }) = self.like(pass) else { continue };
            beyond += u64::from(pass.wall_ns as f64 > expected.high_ns);
            of += 1;
            chances += expected.outside / 2.0;
        }
        // Where each is, none was chosen.
        beyond < of && student::binomial_at_least(beyond, of, chances / of as f64) >= BY_CHANCE
    }

    fn does(&self, pass: &Pass) -> Does {
        self.does.get(&pass.serial).copied().unwrap_or_default()
    }

    /// What passes tell of this one that are as it is, but for its prompts; else those that decode fewer sequences and read no
    /// more, together with those that decode more and read no less: it takes no less than the ones, and no more than the others.
    pub(super) fn like(&self, pass: &Pass) -> Result<Like, NotKnown> {
        // What disturbed it may have taken its time, too.
        if pass.is_disturbed() {
            return Err(NotKnown::Disturbed);
        }
        let (does, none) = (self.does(pass), Alike::default());
        let alike = self.alike.get(&kind_of(pass, does)).unwrap_or(&none);
        let clean = nearest(&alike.clean, does.reads);
        let left_out = nearest(&alike.disturbed, does.reads);
        if clean.len() >= FEWEST
            && let Some(expected) = Expected::at(does.reads, &self.taken(clean))
        {
            let (passes, left_out) = (numbers(clean), numbers(left_out));
            return Ok(Like { expected, beside: Beside::AsMany, passes, left_out });
        }
        let (found, disturbed) = (clean.len() as u64, left_out.len() as u64);
        let few = NotKnown::FewPasses { found, disturbed, piece: self.piece };
        self.between(kind_of(pass, does), does.reads).ok_or(few)
    }

    /// What passes tell that decode fewer sequences, and such that decode more: half to twice as many, a token of each.
    fn between(&self, (is_timed, tokens, sequences): Kind, reads: u64) -> Option<Like> {
        if tokens != sequences || tokens == 0 {
            return None;
        }
        let is_enough = |of: &&[(u64, usize)]| of.len() >= FEWEST;
        let has_one_of_each = |((_, tokens, sequences), _): &(&Kind, &Alike)| tokens == sequences;
        let least = (is_timed, tokens.div_ceil(2), 0);
        let fewer = self.alike.range(least..(is_timed, tokens, 0)).rev().filter(has_one_of_each);
        let mut fewer = fewer.map(|(_, of)| {
            let of = within(&of.clean, reads / 2, reads);
            &of[of.len().saturating_sub(MOST)..]
        });
        let fewer = fewer.find(is_enough)?;
        let next = (is_timed, tokens.saturating_add(1), 0);
        let most = (is_timed, tokens.saturating_mul(2), u64::MAX);
        let more = self.alike.range(next..=most).filter(has_one_of_each);
        let mut more = more.map(|(_, of)| {
            let of = within(&of.clean, reads, reads.saturating_mul(2));
            &of[..of.len().min(MOST)]
        });
        let more = more.find(is_enough)?;
        let one_more = |of: &[(u64, usize)]| {
            let walls = self.taken(of).into_iter().map(|(_, ns)| ns as f64);
            Expected::one_more(walls.collect())
        };
        let expected = Expected::between(one_more(fewer)?, one_more(more)?)?;
        let passes = [numbers(fewer), numbers(more)].concat();
        Some(Like { expected, beside: Beside::FewerAndMore, passes, left_out: Vec::new() })
    }

    /// What each reads, and the nanoseconds that it took.
    fn taken(&self, passes: &[(u64, usize)]) -> Vec<(u64, u64)> {
        let all = &self.requests.profile.passes;
        passes.iter().map(|&(reads, nth)| (reads, all[nth].wall_ns)).collect()
    }
}

fn numbers(passes: &[(u64, usize)]) -> Vec<usize> {
    passes.iter().map(|(_, nth)| *nth).collect()
}

/// Those that read as much as this, or more, up to that.
fn within(sorted: &[(u64, usize)], least: u64, most: u64) -> &[(u64, usize)] {
    let from = sorted.partition_point(|(reads, _)| *reads < least);
    let to = sorted.partition_point(|(reads, _)| *reads <= most);
    sorted.get(from..to).unwrap_or_default()
}

/// Those that read about as much: [`MOST`] at most, the nearest.
fn nearest(sorted: &[(u64, usize)], reads: u64) -> &[(u64, usize)] {
    let apart = |at: usize| {
        let (of, _) = sorted.get(at)?;
        Some(of.abs_diff(reads)).filter(|apart| *apart <= reads / NEAR)
    };
    let middle = sorted.partition_point(|(of, _)| *of < reads);
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
