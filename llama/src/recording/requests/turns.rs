//! What the sequences of llama.cpp do for one request after another: turns.

use std::collections::HashMap;

use brickscope::PartKind;

use crate::recording::events::Pass;

/// What one sequence does for one request: its prompt, and the tokens after it. Times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// When its first pass began.
    pub(super) begin: u64,
    /// Tokens in the cache after its prompt.
    pub(super) prompt: u32,
    /// When the pass ended that computed its first token, its second one, and its last one.
    pub(super) first: u64,
    pub(super) second: Option<u64>,
    pub(super) last: u64,
    /// When its last pass began, and the one before that.
    pub(super) begins: [u64; 2],
    /// Where its passes may be for another request than those before. Then nobody is tied to it, but it may be whose own it is.
    pub(super) joints: Vec<Joint>,
    /// A hash of its passes, and of what each did. Of turns that are alike in this, nothing that anybody sees depends on which
    /// one a request is.
    pub(super) passes: u64,
    /// How many passes computed tokens of the answer, and whether one of them had several.
    pub(super) outputs: u32,
    pub(super) has_drafts: bool,
    /// When the second pass after its last one ended, whomever they were for.
    pub(super) settled: Option<u64>,
    /// Its number among all.
    pub(super) uid: u64,
    /// Whether it is known whose it is, of turns that are tied bit by bit; and whether it may be that of a request of which
    /// nobody knows whose it was.
    pub(super) is_taken: bool,
    pub(super) is_doubtful: bool,
}

/// Where the request of a prompt may have gone, and another one have begun where that stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joint {
    /// When the pass before ended, and when the one after began.
    pub(super) between: [u64; 2],
    /// Tokens in the cache.
    pub(super) before: u32,
}

/// What a pass does for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Does {
    pub(super) turn: usize,
    pub(super) kind: PartKind,
    pub(super) tokens: u32,
    pub(super) before: u32,
    pub(super) is_first: bool,
}

/// Where a sequence is.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    turn: usize,
    after: u32,
    tokens: u32,
    kind: PartKind,
    /// Whether the pass computed a token of the answer.
    has_output: bool,
    /// Whether each of several tokens of a prompt had an output, as embeddings have.
    has_all_outputs: bool,
    /// When the pass ended.
    ended: u64,
}

/// The turns of the passes so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    pub(super) turns: Vec<Turn>,
    sequences: HashMap<u32, Sequence>,
    /// Turns that may have ended, and how many passes ago.
    unsettled: Vec<(usize, u32)>,
    /// The number of the last one.
    uid: u64,
}

impl Turn {
    /// When a request came at the latest for which its last passes are.
    pub(super) fn latest(&self) -> u64 {
        self.joints.last().map_or(self.begin, |joint| joint.between[1])
    }

    /// Whether somebody can be tied to it.
    pub(super) fn is_tieable(&self) -> bool {
        self.joints.is_empty() && !self.is_doubtful
    }
}

impl Turns {
    /// Adds a pass, and returns what it does. `may_be_gone` says whether a request that came by a time may have gone at a joint,
    /// before anything of its answer left.
    pub(super) fn add(
        &mut self,
        pass: &Pass,
        [begin, end]: [u64; 2],
        may_be_gone: impl Fn(u64, &Joint) -> bool,
    ) -> Vec<Does> {
        let Self { turns, unsettled, .. } = self;
        unsettled.retain_mut(|(turn, passes)| {
            *passes += 1;
            turns[*turn].settled = (*passes == 2).then_some(end);
            *passes < 2
        });
        let mut does = Vec::new();
        if !pass.is_decode || pass.status != 0 {
            return does;
        }
        for (&(number, outputs), &[before, after]) in pass.numbers.iter().zip(&pass.sequences) {
            let tokens = after.saturating_sub(before);
            let has_all_outputs = tokens > 1 && outputs == Some(tokens);
            let known = self.sequences.get(&number).copied().filter(|of| {
                // What was drafted and refused is taken out again. A cache that can't do that, as a recurrent model's,
                // goes back to before the pass, and what was accepted is computed once more.
                let is_drafted = of.kind == PartKind::Decode && of.tokens > 1;
                let back = of.after.checked_sub(before);
                let is_taken_out =
                    |back: u32| back < of.tokens || back == of.tokens && has_all_outputs;
                back == Some(0) || is_drafted && back.is_some_and(is_taken_out)
            });
            // Of what was drafted, each token has an output; of a prompt, the last one.
            let is_answer = tokens == 1 && outputs != Some(0) || outputs == Some(tokens);
            let (turn, kind) = match known {
                Some(of) if of.has_all_outputs && has_all_outputs => {
                    (Some(of.turn), PartKind::Prompt)
                }
                Some(of) if of.has_output && is_answer => (Some(of.turn), PartKind::Decode),
                Some(of) if !of.has_output => (Some(of.turn), PartKind::Prompt),
                _ => (None, PartKind::Prompt),
            };
            let is_first = turn.is_none();
            let turn = turn.unwrap_or_else(|| {
                self.uid += 1;
                self.turns.push(Turn { begin, uid: self.uid, ..Turn::default() });
                self.turns.len() - 1
            });
            let of = &mut self.turns[turn];
            let joint = known.filter(|known| known.turn == turn && !known.has_output);
            let joint = joint.map(|known| Joint { between: [known.ended, begin], before });
            let joint = joint.filter(|joint| may_be_gone(of.latest(), joint));
            of.joints.extend(joint);
            match kind {
                PartKind::Prompt => {
                    // An earlier piece of the prompt computed no token.
                    (of.prompt, of.first) = (before.saturating_add(tokens), end);
                    of.outputs = 1;
                }
                PartKind::Decode => {
                    of.second.get_or_insert(end);
                    of.outputs += 1;
                    of.has_drafts |= tokens > 1;
                }
            }
            (of.last, of.settled) = (end, None);
            of.begins = [begin, of.begins[0]];
            for what in [begin, before.into(), tokens.into(), kind as u64] {
                of.passes = (of.passes.rotate_left(5) ^ what).wrapping_mul(0x517c_c1b7_2722_0a95);
            }
            self.unsettled.retain(|(of, _)| *of != turn);
            self.unsettled.push((turn, 0));
            let after = before.saturating_add(tokens);
            let has_output = outputs.is_none_or(|outputs| outputs > 0);
            let has_all_outputs = has_all_outputs && kind == PartKind::Prompt;
            let ended = end;
            let sequence =
                Sequence { turn, after, tokens, kind, has_output, has_all_outputs, ended };
            self.sequences.insert(number, sequence);
            does.push(Does { turn, kind, tokens, before, is_first });
        }
        does
    }

    /// Forgets the turns that are for no request that came at a time or later, or goes on then.
    pub(super) fn forget(&mut self, before: u64) {
        let mut stays: Vec<bool> = self.turns.iter().map(|turn| turn.latest() >= before).collect();
        for sequence in self.sequences.values() {
            // It may go on.
            stays[sequence.turn] = true;
        }
        let places = stays.iter().scan(0, |next, stays| {
            let place = *next;
            *next += usize::from(*stays);
            Some(place)
        });
        let places: Vec<usize> = places.collect();
        self.unsettled.retain(|(turn, _)| stays[*turn]);
        self.unsettled.iter_mut().for_each(|(turn, _)| *turn = places[*turn]);
        self.sequences.values_mut().for_each(|of| of.turn = places[of.turn]);
        let mut stays = stays.into_iter();
        self.turns.retain(|_| stays.next().unwrap_or(false));
    }
}
