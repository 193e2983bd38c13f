//! Spans with cold caches: between begin and end a megabyte of memory is read, as a brick reads weights.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use brickscope::{BrickId, BrickProfiler, Phase, Work};

use crate::counter;
use crate::ours::{ROOM, Room};
use crate::row::Row;

/// What is read in a span, and out of how much, one part after the other.
const PART: usize = 1 << 20;
const WHOLE: usize = 128 << 20;

const WORK: Work = Work { elements: 768, flops: 1_536, bytes: 3_072, ..Work::elements(0) };

pub(crate) fn rows<'a>() -> Vec<Row<'a>> {
    let mut raw = Memory::new();
    let timers = BrickProfiler::enabled().with_log_capacity(ROOM);
    let kernel = timers.kernel("gemv", None);
    let (mut room, mut memory) = (Room::default(), Memory::new());
    vec![
        Row::new("cold_pair", "two raw readings, 1 MB read between", move |spans| {
            raw.spans(
                spans,
                &(),
                |()| _ = black_box(counter::read()),
                |()| _ = black_box(counter::read()),
            )
        }),
        Row::new("cold_timers", "a brick and its kernel, likewise", move |spans| {
            room.make(&timers, 2 * spans + 2);
            let open = Cell::new(None);
            let begin = |profiler: &BrickProfiler| {
                open.set(Some(profiler.start_brick_kernel(BrickId::DownProjection, kernel)));
            };
            let end = |profiler: &BrickProfiler| {
                if let Some(timer) = open.take() {
                    profiler.stop_brick_kernel(timer, WORK);
                }
            };
            let begun = timers.begin_pass(Phase::Decode);
            let nanos = memory.spans(spans, &timers, begin, end);
            timers.end_pass(begun, 1, 1);
            nanos
        })
        .most(ROOM / 8),
    ]
}

/// What is read between.
struct Memory {
    words: Vec<u64>,
    at: usize,
}

impl Memory {
    fn new() -> Self {
        // Not zeros, of which the system would give us the same page over and over.
        Self { words: (0..WHOLE as u64 / 8).collect(), at: 0 }
    }

    /// The nanoseconds that a begin and an end take, without what is read between.
    #[inline(always)]
    fn spans<T>(&mut self, spans: usize, of: &T, begin: impl Fn(&T), end: impl Fn(&T)) -> f64 {
        let (begun, begun_ticks) = (Instant::now(), counter::read());
        let mut ticks = 0;
        for _ in 0..spans {
            let of = black_box(of);
            let before = counter::read();
            begin(of);
            let between = counter::read();
            let part = &self.words[self.at..][..PART / 8];
            self.at = (self.at + PART / 8) % self.words.len();
            black_box(part.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
            let again = counter::read();
            end(of);
            ticks += counter::read() - again + (between - before);
        }
        let nanos = begun.elapsed().as_nanos() as f64;
        ticks as f64 * nanos / (counter::read() - begun_ticks) as f64 / spans as f64
    }
}
