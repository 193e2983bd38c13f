//! The spans of bricks, pass by pass, in groups of those that do the same.
//!
//! There may be millions of spans, and every screen asks. So none of them is hashed: what is looked up is kept until the pass
//! changes, or the number of its tokens.

use std::collections::HashMap;

use brickscope_profile::{NameKind, Pass, Profile, Source, Span, Work};

use crate::passes::BySerial;

/// What does the same: a brick by its name and source, the tokens of the pass, and a number for those that have as much work
/// in the first such pass. Of a layer's three QkvProjections, Q may be several times as long as K; of whisper's two attentions
/// one takes a hundred times as long. (In each pass attention has more work than before, so the first one decides.)
pub(super) type Group = (u16, u8, u64, u16);

/// A span of a brick.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfBrick {
    /// The index of its pass among those that were asked for.
    pub(super) pass: usize,
    /// The index of its group.
    pub(super) group: usize,
    /// Its index in the profile.
    pub(super) index: usize,
}

/// The spans of bricks in these passes, those of the first pass first, and of each pass as they are in the profile; and their
/// groups.
pub(super) fn grouped(profile: &Profile, passes: &[&Pass]) -> (Vec<OfBrick>, Vec<Group>) {
    // Of a phase without passes no span is looked at.
    if passes.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let by_serial: HashMap<u32, usize> =
        passes.iter().enumerate().map(|(nth, pass)| (pass.serial, nth)).collect();
    let mut by_serial = BySerial::new(&by_serial);
    let mut spans = Vec::new();
    for (index, span) in profile.spans.iter().enumerate() {
        let (Some(name), Some(serial)) = (span.name, span.pass) else { continue };
        let name = profile.names.get(usize::from(name));
        if let Some(pass) = by_serial.get(serial)
            && name.is_some_and(|name| name.kind == NameKind::Brick)
        {
            spans.push(OfBrick { pass, group: 0, index });
        }
    }
    // Stable, and of what is in order it takes one look at each.
    spans.sort_by_key(|of| of.pass);
    let mut groups = Groups::default();
    for of in &mut spans {
        let span = &profile.spans[of.index];
        if let Some(name) = span.name {
            of.group = groups.of(name, of.pass, passes[of.pass].tokens, span);
        }
    }
    (spans, groups.all)
}

/// The groups of spans that come pass by pass.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    /// By name and source.
    bricks: Vec<Option<InPass>>,
    alike: Vec<Alike>,
    /// The index in `alike`, by name, source and tokens.
    by_tokens: HashMap<(u16, u8, u64), usize>,
}

/// A brick in the last pass that has it.
#[derive(Clone, Copy)]
struct InPass {
    pass: usize,
    tokens: u64,
    /// An index.
    alike: usize,
    /// How many spans it has there so far.
    spans: usize,
}

/// The works of a brick's spans in the first pass of as many tokens, and which of them each span has, in order.
#[derive(Default)]
struct Alike {
    pass: Option<usize>,
    works: Vec<[u64; 2]>,
    of_span: Vec<u16>,
    /// The index of each work's group.
    groups: Vec<usize>,
}

impl Groups {
    /// The index of a span's group.
    fn of(&mut self, name: u16, pass: usize, tokens: u64, span: &Span) -> usize {
        let source = span.source as u8;
        let place = usize::from(name) * Source::ALL.len() + usize::from(source);
        if place >= self.bricks.len() {
            self.bricks.resize(place + 1, None);
        }
        let (at, nth) = match self.bricks[place] {
            Some(of) if of.pass == pass => (of.alike, of.spans),
            Some(of) if of.tokens == tokens => (of.alike, 0),
            _ => (self.alike_of((name, source, tokens)), 0),
        };
        self.bricks[place] = Some(InPass { pass, tokens, alike: at, spans: nth + 1 });
        let alike = &mut self.alike[at];
        let number = alike.number(pass, nth, span.work);
        // Numbers are given in order.
        if usize::from(number) == alike.groups.len() {
            alike.groups.push(self.all.len());
            self.all.push((name, source, tokens, number));
        }
        alike.groups[usize::from(number)]
    }

    fn alike_of(&mut self, of: (u16, u8, u64)) -> usize {
        *self.by_tokens.entry(of).or_insert_with(|| {
            self.alike.push(Alike::default());
            self.alike.len() - 1
        })
    }
}

impl Alike {
    /// The number of the nth span's work in a pass.
    fn number(&mut self, pass: usize, nth: usize, work: Work) -> u16 {
        if *self.pass.get_or_insert(pass) == pass {
            let work = [work.flops, work.bytes];
            let at = self.works.iter().position(|of| *of == work).unwrap_or_else(|| {
                // No layer has as many.
                if self.works.len() < 64 {
                    self.works.push(work);
                }
                self.works.len() - 1
            });
            self.of_span.push(at as u16);
        }
        self.of_span.get(nth).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
    use brickscope_profile::Data;

    use super::*;

    /// Three passes of a projection of much work, one of little, and one of much again.
    fn profile() -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for nth in 0..3 {
            let pass = profiler.begin_pass(Phase::Decode);
            for bytes in [4_000, 1_000, 4_000] {
                let timer = profiler.start_brick(BrickId::QkvProjection);
                hand.advance(bytes);
                let data = Data::Weights(bytes);
                profiler.stop_brick_with(timer, Work { elements: 1, flops: bytes, bytes, data });
            }
            profiler.end_pass(pass, 1, nth);
        }
        profiler.profile()
    }

    fn found(profile: &Profile) -> (Vec<(u64, usize)>, usize) {
        let passes: Vec<&Pass> = profile.passes.iter().collect();
        let (spans, groups) = grouped(profile, &passes);
        assert!(spans.is_sorted_by_key(|of| of.pass), "{spans:?}");
        let row = |of: &OfBrick| (profile.spans[of.index].exclusive_ns, of.group);
        (spans.iter().map(row).collect(), groups.len())
    }

    #[test]
    fn spans_of_as_much_work_are_in_a_group_however_passes_run_at_once() {
        let mut profile = profile();
        let rows = [(4_000, 0), (1_000, 1), (4_000, 0)].repeat(3);
        assert_eq!(found(&profile), (rows.clone(), 2));
        // The second pass ends before the first one, and the third one runs between their spans.
        let order = [0, 3, 4, 6, 5, 7, 1, 2, 8];
        profile.spans = order.map(|at| profile.spans[at]).to_vec();
        assert_eq!(found(&profile), (rows, 2));
    }
}
