//! Requests of one context that are tied while passes are computed and others come.
//!
//! A request is tied by what is known up to a time. Its own turn is always among those that it may be, and nobody else's is
//! taken for one as long as that is so: turns are forgotten only when no request may come that they are for. One of which nobody
//! knows whose turn it had makes all doubtful that it may have had: to them nobody is tied any more.

use brickscope::PartKind;

use super::came::Came;
use super::tie;
use super::turns::{Joint, Turns};
use crate::recording::events::Pass;

/// What a pass does for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DoesLive {
    /// The number of the turn among all of its context.
    pub(crate) turn: u64,
    pub(crate) kind: PartKind,
    pub(crate) tokens: u32,
    pub(crate) before: u32,
    pub(crate) is_first: bool,
}

/// A request, the number of its turn, and when that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tie {
    pub(crate) number: u32,
    pub(crate) turn: u64,
    pub(crate) begin: u64,
}

/// The turns of a context that are still of interest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live(Turns);

impl Live {
    /// Adds a pass, which ran at these times, and returns what it does. `came` are the requests that are known.
    pub(crate) fn add(&mut self, pass: &Pass, times: [u64; 2], came: &[Came]) -> Vec<DoesLive> {
        let may_be_gone = |latest: u64, joint: &Joint| {
            let mut gone = came.iter().filter(|came| came.is_gone());
            gone.any(|came| came.arrived <= latest && came.may_end_at(joint))
        };
        let does = self.0.add(pass, times, may_be_gone);
        let turns = &self.0.turns;
        let does = does.into_iter().filter_map(|does| {
            let turn = turns.get(does.turn)?.uid;
            let (kind, tokens, before) = (does.kind, does.tokens, does.before);
            Some(DoesLive { turn, kind, tokens, before, is_first: does.is_first })
        });
        does.collect()
    }

    /// Which requests have which turns, as far as that is known at a time up to which all passes are. `came` are in the order in
    /// which they came.
    pub(crate) fn tie(&self, came: &[Came], known_ns: u64) -> Vec<Tie> {
        let turns = &self.0.turns;
        let mut came: Vec<Came> = came.iter().map(|came| came.as_of(known_ns)).collect();
        tie(turns, &mut came);
        let tied = came.iter().filter_map(|came| {
            let turn = turns.get(came.turn?)?;
            Some(Tie { number: came.number, turn: turn.uid, begin: turn.begin })
        });
        tied.collect()
    }

    /// It is known whose turn this is.
    pub(crate) fn take(&mut self, turn: u64) {
        if let Some(turn) = self.0.turns.iter_mut().find(|of| of.uid == turn) {
            turn.is_taken = true;
        }
    }

    /// Nobody will know which turn this request had.
    pub(crate) fn doubt(&mut self, came: &Came) {
        let turns = &mut self.0.turns;
        for turn in came.may_be(turns, 0, turns.len()) {
            turns[turn].is_doubtful = true;
        }
    }

    /// No request that came before this is of interest any more.
    pub(crate) fn forget(&mut self, before: u64) {
        self.0.forget(before);
    }

    /// How many turns are known.
    pub(crate) fn len(&self) -> usize {
        self.0.turns.len()
    }
}
