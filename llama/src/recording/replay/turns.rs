//! Passes in turns: with and without their nodes timed, by themselves or as they are.

use std::collections::HashMap;

use crate::recording::events::Pass;
use brickscope::{Absent, PairedRatio, Phase, Serialised};

use super::graphs::Graphs;
use super::phase::{phase_of, tokens_of};
use crate::recording::passes::Found;

/// Passes in turns, with and without their nodes timed.
#[derive(Debug, Default)]
pub(crate) struct Turns(pub(crate) Vec<Turn>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) position: Option<u64>,
    pub(crate) wall_ns: u64,
    pub(crate) is_bare: bool,
    pub(crate) is_odd: bool,
}

impl Turns {
    pub(crate) fn add(&mut self, found: &Found<'_>, wall_ns: u64) {
        let Pass { is_bare, status, .. } = found.pass;
        let position = found.pass.position();
        let is_odd = status != 0 || !found.described.is_empty();
        self.0.push(Turn { position, wall_ns, is_bare, is_odd });
    }

    /// Each pass in one pair at most.
    pub(crate) fn pairs(&self) -> Vec<(f64, f64)> {
        // Which one a pass of one token is, the next pass's position tells.
        let is_token = |n: usize| {
            let position = |n: usize| self.0.get(n).and_then(|turn| turn.position);
            position(n).zip(position(n + 1)).is_some_and(|(this, next)| next == this + 1)
        };
        let mut pairs = Vec::new();
        let mut n = 0;
        while let (Some(a), Some(b)) = (self.0.get(n), self.0.get(n + 1)) {
            let is_pair = a.is_bare != b.is_bare && !a.is_odd && !b.is_odd;
            if !(is_pair && is_token(n) && is_token(n + 1)) {
                n += 1;
                continue;
            }
            let (bare, timed) = if a.is_bare { (a, b) } else { (b, a) };
            pairs.push((bare.wall_ns as f64, timed.wall_ns as f64));
            n += 2;
        }
        pairs
    }
}

/// Passes in turns: in some, nodes of other backends than the CPU were timed one at a time; the others were left whole.
#[derive(Debug, Default)]
pub(crate) struct InTurn(pub(crate) Vec<TurnOfBackends>);

#[derive(Debug)]
pub(crate) struct TurnOfBackends {
    /// `None` where it isn't known: a whole pass doesn't show what its nodes are.
    pub(crate) phase: Option<Phase>,
    pub(crate) tokens: Option<u64>,
    pub(crate) position: Option<u64>,
    pub(crate) wall_ns: u64,
    pub(crate) is_whole: bool,
    /// Whether no node of it was timed, as in every other pass.
    pub(crate) is_bare: bool,
    /// Whether a graph was described in it.
    pub(crate) is_warm_up: bool,
    /// The backends of its nodes, if they were timed.
    pub(crate) backends: Vec<String>,
}

impl InTurn {
    /// `phase` is that of a pass that was recorded, whose nodes were timed.
    pub(crate) fn pass(
        &mut self,
        found: &Found<'_>,
        graphs: &Graphs<'_>,
        wall_ns: u64,
        phase: Option<Phase>,
    ) {
        let Pass { status, tokens, is_decode, .. } = found.pass;
        let position = found.pass.position();
        if status != 0 || found.pass.is_warm_up {
            return;
        }
        let is_whole = phase.is_none();
        let phase =
            phase.or_else(|| (!is_decode || graphs.embeds(&found.pass)).then_some(Phase::Encode));
        let recorded = graphs.recorded;
        let nodes = found.graphs.iter().filter_map(|graph| recorded.graphs.get(&graph.number));
        // The CPU looks up the tokens of whole passes, too.
        let embedded = nodes.map(|nodes| tokens_of(nodes)).fold(0, u64::saturating_add);
        let mut backends: Vec<String> = Vec::new();
        for graph in &found.graphs {
            let backend = recorded.backends.get(&graph.number);
            if let Some(backend) = backend.filter(|backend| !backends.contains(backend)) {
                backends.push(backend.clone());
            }
        }
        self.0.push(TurnOfBackends {
            phase,
            tokens: tokens.or(Some(embedded)).filter(|&tokens| tokens > 0),
            position,
            wall_ns,
            is_whole,
            is_bare: found.pass.is_bare,
            is_warm_up: !found.described.is_empty(),
            backends,
        });
    }

    /// Finds what passes do not say themselves.
    pub(crate) fn find(&mut self) {
        self.find_tokens();
        self.find_phases();
    }

    /// The phases in which nodes of other backends were timed.
    pub(crate) fn serialised(self) -> Vec<Serialised> {
        let phases = Phase::ALL.into_iter();
        phases.filter_map(|phase| self.serialised_in(phase)).collect()
    }

    /// Where nobody says how many tokens a pass had, the position of the next one does.
    pub(crate) fn find_tokens(&mut self) {
        for n in 0..self.0.len() {
            let next = self.0.get(n + 1).and_then(|next| next.position);
            let turn = &mut self.0[n];
            let grown = next.zip(turn.position).and_then(|(next, this)| next.checked_sub(this));
            turn.tokens = turn.tokens.or(grown.filter(|&grown| grown > 0));
        }
    }

    /// A whole pass is of the phase that all passes with as many tokens are of whose nodes were timed.
    pub(crate) fn find_phases(&mut self) {
        let mut known: HashMap<u64, Option<Phase>> = HashMap::new();
        for (tokens, phase) in self.0.iter().filter_map(|turn| turn.tokens.zip(turn.phase)) {
            let of_tokens = known.entry(tokens).or_insert(Some(phase));
            // A server's clients may be of both.
            *of_tokens = of_tokens.filter(|of| *of == phase);
        }
        for turn in &mut self.0 {
            let like = turn.tokens.and_then(|tokens| match known.get(&tokens) {
                Some(phase) => *phase,
                None => Some(phase_of(tokens, 0, &[])),
            });
            turn.phase = turn.phase.or(like);
        }
    }

    pub(crate) fn serialised_in(&self, phase: Phase) -> Option<Serialised> {
        let of_phase: Vec<&TurnOfBackends> =
            self.0.iter().filter(|turn| turn.phase == Some(phase)).collect();
        let mut devices: Vec<String> = Vec::new();
        for backend in of_phase.iter().flat_map(|turn| &turn.backends) {
            if !devices.contains(backend) {
                devices.push(backend.clone());
            }
        }
        if devices.is_empty() {
            return None;
        }
        let settled = settled(&of_phase, phase);
        let whole = || of_phase.iter().zip(&settled).filter(|(_, is)| **is).map(|(turn, _)| *turn);
        let mut walls: Vec<u64> = whole().map(|turn| turn.wall_ns).collect();
        walls.sort_unstable();
        let pairs = pairs(&of_phase, &settled);
        let cost = PairedRatio::new(&pairs);
        Some(Serialised {
            phase,
            devices,
            whole_passes: walls.len() as u64,
            whole_tokens: whole().filter_map(|turn| turn.tokens).fold(0, u64::saturating_add),
            whole_wall_ns: walls.iter().copied().fold(0, u64::saturating_add),
            whole_p50_ns: walls.get(walls.len() / 2).copied(),
            cost_absent: cost.as_ref().err().map(|why| Absent { reason: why.to_string() }),
            cost: cost.ok(),
        })
    }
}

/// Which of the passes of a phase were whole, and as fast as if none were split. A backend that captures graphs, as CUDA's
/// does, has to do that anew after split ones: it runs one pass without, captures in the next, and replays from then on.
/// Prompts are few, and long beside that.
pub(crate) fn settled(turns: &[&TurnOfBackends], phase: Phase) -> Vec<bool> {
    const SETTLING: usize = 3;
    let settling = if phase == Phase::Decode { SETTLING } else { 0 };
    let mut in_a_row = 0;
    let is_settled = |turn: &&TurnOfBackends| {
        in_a_row = if turn.is_whole { in_a_row + 1 } else { 0 };
        turn.is_whole && !turn.is_warm_up && (in_a_row > settling || turn.is_bare)
    };
    turns.iter().map(is_settled).collect()
}

/// A whole pass and one whose nodes were timed, which computed alike. Of passes that were split one after the other, the
/// first is compared with the whole one before it, and the last with the next that has settled, so that either is first as
/// often as second.
pub(crate) fn pairs(turns: &[&TurnOfBackends], settled: &[bool]) -> Vec<(f64, f64)> {
    /// How far away that may be.
    const NEAR: usize = 6;
    let mut pairs = Vec::new();
    let mut pair = |whole: usize, split: usize| {
        let (whole, split) = (turns[whole], turns[split]);
        // Some more tokens in the cache make no difference; a prompt's position does.
        let apart = whole.position.zip(split.position).map_or(0, |(a, b)| a.abs_diff(b));
        let is_near = whole.phase == Some(Phase::Decode) || apart == 0;
        if whole.tokens.is_some() && whole.tokens == split.tokens && is_near && !split.is_warm_up {
            pairs.push((whole.wall_ns as f64, split.wall_ns as f64));
        }
    };
    let mut n = 0;
    while n < turns.len() {
        if turns[n].is_whole {
            n += 1;
            continue;
        }
        let first = n;
        n += turns[n..].iter().take_while(|turn| !turn.is_whole).count();
        let last = n - 1;
        if first > 0 && settled[first - 1] {
            pair(first - 1, first);
        }
        let after = settled[n..].iter().take(NEAR).position(|is| *is);
        if let Some(after) = after.filter(|_| last > first) {
            pair(n + after, last);
        }
    }
    pairs
}
