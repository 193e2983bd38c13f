//! When passes ran, and for whom: those of the last time, and those that ran while a request did that is kept.

use std::collections::{BTreeMap, BTreeSet};

use crate::recording::events::Pass;
use crate::recording::part::{Id, RanPass};
use crate::recording::requests::{DoesLive, Tie};

/// What a pass does for a request, if that is known.
#[derive(Debug, Clone)]
struct Part {
    does: DoesLive,
    /// The number of the request in the recording.
    request: Option<u32>,
}

/// A pass, and for how many requests it is kept.
#[derive(Debug, Clone)]
struct Light {
    id: Id,
    thread: u16,
    begin: u64,
    times: [u64; 2],
    position: u64,
    parts: Box<[Part]>,
    holds: u32,
}

impl Light {
    fn bytes(&self) -> usize {
        // With what a tree has for each.
        size_of::<Self>() + 32 + size_of_val(&*self.parts)
    }
}

/// The passes that are there, by their numbers in the order in which they ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Passes {
    all: BTreeMap<u64, Light>,
    next: u64,
    /// From this one on they are of the last time, whether they are kept or not.
    from: u64,
    /// The bytes of these, and of those that are kept.
    late_bytes: usize,
    held_bytes: usize,
    /// Before this, passes are missing.
    pub(super) lost_ns: u64,
    /// Up to when all passes are there, and when the last two of them began that began last.
    pub(super) known_ns: u64,
    begins: [u64; 2],
}

impl Passes {
    pub(super) fn add(&mut self, pass: &Pass, id: Id, times: [u64; 2], does: Vec<DoesLive>) {
        let parts = does.into_iter().map(|does| Part { does, request: None }).collect();
        let (thread, begin) = (pass.of_thread, pass.begin);
        let position = pass.position().unwrap_or(0);
        let light = Light { id, thread, begin, times, position, parts, holds: 0 };
        self.late_bytes += light.bytes();
        self.all.insert(self.next, light);
        self.next += 1;
        self.known_ns = self.known_ns.max(times[1]);
        let [last, before] = self.begins;
        self.begins = if times[0] > last { [times[0], last] } else { [last, before.max(times[0])] };
    }

    /// Whether two passes began at a time or later, and ended.
    pub(super) fn has_two_after(&self, ns: u64) -> bool {
        self.begins[1] >= ns
    }

    /// The bytes of what is kept.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.late_bytes + self.held_bytes
    }

    /// Forgets what ended before a time, unless it is kept, and the oldest if that isn't enough.
    pub(super) fn forget(&mut self, before_ns: u64, most_bytes: usize) {
        while let Some((&number, light)) = self.all.range(self.from..).next() {
            let is_over = light.times[1] < before_ns;
            if !is_over && self.late_bytes <= most_bytes {
                return;
            }
            // A request may be found later that came before.
            self.lost_ns = self.lost_ns.max(light.times[1]);
            self.late_bytes -= light.bytes();
            let is_held = light.holds > 0;
            self.from = number + 1;
            if !is_held {
                self.all.remove(&number);
            }
        }
    }

    /// The first and the last of the last time that ran in a time.
    pub(super) fn within(&self, from_ns: u64, to_ns: u64) -> Option<[u64; 2]> {
        let runs = |[begin, end]: [u64; 2]| begin < to_ns && end > from_ns;
        let mut those = self.all.range(self.from..).filter(|of| runs(of.1.times));
        let first = *those.next()?.0;
        let last = those.next_back().map_or(first, |(number, _)| *number);
        Some([first, last])
    }

    /// A request is kept that these ran beside.
    pub(super) fn hold(&mut self, [first, last]: [u64; 2]) {
        for light in self.all.range_mut(first..=last).map(|(_, light)| light) {
            light.holds += 1;
            if light.holds == 1 {
                self.held_bytes += light.bytes();
            }
        }
    }

    /// It is kept no more.
    pub(super) fn release(&mut self, [first, last]: [u64; 2]) {
        let mut gone: Vec<u64> = Vec::new();
        for (number, light) in self.all.range_mut(first..=last) {
            light.holds = light.holds.saturating_sub(1);
            if light.holds == 0 {
                self.held_bytes = self.held_bytes.saturating_sub(light.bytes());
                gone.extend((*number < self.from).then_some(*number));
            }
        }
        for number in gone {
            self.all.remove(&number);
        }
    }

    /// Says whose a turn is, up to when that request was over.
    pub(super) fn name(&mut self, id: Id, tie: Tie, until_ns: u64) {
        let late = self.all.values_mut().rev().take_while(|of| of.times[1] >= tie.begin);
        for light in late.filter(|of| of.id == id && of.times[0] <= until_ns) {
            for part in light.parts.iter_mut().filter(|part| part.does.turn == tie.turn) {
                part.request = Some(tie.number);
            }
        }
    }

    /// The requests that passes are for which are there.
    pub(super) fn named(&self) -> BTreeSet<u32> {
        let parts = self.all.values().flat_map(|light| light.parts.iter());
        parts.filter_map(|part| part.request).collect()
    }

    /// Those that are kept, with the places of their requests among all that are.
    pub(super) fn finish(self, place: impl Fn(u32) -> Option<u32>) -> Vec<RanPass> {
        let held = self.all.into_values().filter(|light| light.holds > 0);
        let part = |Part { does, request }: &Part| {
            let DoesLive { kind, tokens, before, is_first, .. } = *does;
            brickscope::Part {
                request: request.and_then(&place).unwrap_or(brickscope::Part::NOBODY),
                kind,
                tokens: tokens.into(),
                position: before.into(),
                cached: if is_first { before.into() } else { 0 },
            }
        };
        let passes = held.map(|light| {
            let Light { id, thread, begin, times, position, parts, .. } = light;
            let parts = parts.iter().map(&part).collect();
            RanPass { id, thread, begin, times, position, parts }
        });
        passes.collect()
    }
}
