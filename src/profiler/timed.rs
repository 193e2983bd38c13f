//! Passes that were timed elsewhere.

use std::fmt;

use brickscope_profile::{BrickId, Disturbance, Phase, Work};

use super::BrickProfiler;
use crate::names::{BrickKey, KernelId};
use crate::recorder::{Timed, TimedEnd, Unfit};
use crate::row::{NONE, SpanKind};

/// A pass that was timed elsewhere, for [`BrickProfiler::record_pass`].
///
/// All times are readings of the profiler's [clock](BrickProfiler::clock), in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct TimedPass {
    /// Prefill or decode.
    pub phase: Phase,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How many tokens it processed.
    pub tokens: u64,
    /// How many tokens were in the KV cache before it.
    pub position: u64,
    /// What others did to it: [`BrickProfiler::disturbance_since`] says. Without it, nobody knows who took the CPU.
    pub disturbance: Option<Disturbance>,
}

/// A span of a [`TimedPass`].
#[derive(Debug, Clone, Copy)]
pub struct TimedSpan {
    /// What ran.
    pub what: TimedWork,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What it did.
    pub work: Work,
    /// The transformer layer that it belongs to, where layers are known by the names of operations and have no begin and
    /// end of their own. `None`: it belongs to the [layer](TimedWork::Layer) that it lies in, if there is one.
    pub layer: Option<u16>,
}

/// What a [`TimedSpan`] timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedWork {
    /// A brick.
    Brick(BrickKey),
    /// A kernel, which is a detail of the brick around it.
    Kernel(KernelId),
    /// A transformer layer. What lies in it belongs to it.
    Layer(u16),
}

/// A span of a [`TimedPass`], as a [`TimedPassError`] names it: `span 1 (LmHead, from 3 to 4 ns)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanAt {
    /// Its index in the list.
    pub index: usize,
    /// What it timed.
    pub what: TimedWork,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

impl fmt::Display for SpanAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, what, start_ns, end_ns } = *self;
        write!(f, "span {index} (")?;
        match what {
            TimedWork::Brick(brick) => match BrickId::ALL.get(usize::from(brick.name)) {
                Some(known) => f.write_str(known.name())?,
                None => f.write_str("a named brick")?,
            },
            TimedWork::Kernel(_) => f.write_str("a kernel")?,
            TimedWork::Layer(index) => write!(f, "layer {index}")?,
        }
        write!(f, ", from {start_ns} to {end_ns} ns)")
    }
}

/// Why [`BrickProfiler::record_pass`] recorded nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimedPassError {
    /// The pass ends before it begins.
    PassBackwards,
    /// The span ends before it begins.
    Backwards(SpanAt),
    /// The span isn't within the pass, which has this begin and end.
    Outside(SpanAt, [u64; 2]),
    /// The span begins before the one that is listed before it, which begins then.
    Unordered(SpanAt, u64),
    /// The span ends after a span that it began in.
    Crossing(SpanAt),
    /// Another pass is open on this thread.
    Nested,
    /// The pass ends later than now: its times are no readings of the profiler's [clock](BrickProfiler::clock).
    Future,
}

impl fmt::Display for TimedPassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassBackwards => write!(f, "the pass ends before it begins"),
            Self::Backwards(span) => write!(f, "{span} ends before it begins"),
            Self::Outside(span, [start, end]) => {
                write!(f, "{span} isn't within the pass, which is from {start} to {end} ns")
            }
            Self::Unordered(span, before) => write!(
                f,
                "{span} begins before the span that is listed before it, which begins at {before} ns"
            ),
            Self::Crossing(span) => write!(f, "{span} ends after a span that it began in"),
            Self::Nested => write!(f, "another pass is open on this thread"),
            Self::Future => write!(
                f,
                "the pass ends later than now: its times must be readings of profiler.clock().now()"
            ),
        }
    }
}

impl std::error::Error for TimedPassError {}

/// # Passes that were timed elsewhere
impl BrickProfiler {
    /// Records a pass whose times were taken by somebody else: hooks that store readings and label them later, or
    /// another process.
    ///
    /// The times must be readings of this profiler's clock: of [`Clock::now`](crate::Clock::now), or counts that
    /// [`Clock::time_of_count`](crate::Clock::time_of_count) has converted. `spans` lists them in the order in which
    /// they began, and a span before those that lie in it. Bricks may nest; none may begin in a span and end after it.
    ///
    /// Does nothing if profiling is off. The pass counts as one of the calling thread.
    ///
    /// # Errors
    ///
    /// If the spans don't nest or don't fit the pass, or if the pass ends later than now, as by another clock it may seem
    /// to. Then nothing is recorded. A pass that begins before the profiler was made is recorded, and
    /// [`misuse`](Self::misuse) tells it.
    ///
    /// ```
    /// use brickscope::{
    ///     BrickCategory, BrickId, BrickProfiler, Phase, TimedPass, TimedSpan, TimedWork, Work,
    /// };
    ///
    /// let profiler = BrickProfiler::enabled();
    /// let cache = profiler.named_brick("KvCache", BrickCategory::Attention);
    /// let at: Vec<u64> = (0..4).map(|_| profiler.clock().now()).collect();
    /// let work = Work::elements(4096);
    /// let span = |what, start_ns, end_ns| TimedSpan { what, start_ns, end_ns, work, layer: None };
    /// let spans = [
    ///     span(TimedWork::Layer(0), at[0], at[2]),
    ///     span(TimedWork::Brick(BrickId::QkvProjection.into()), at[0], at[1]),
    ///     span(TimedWork::Brick(cache), at[1], at[2]),
    /// ];
    /// let pass = TimedPass {
    ///     phase: Phase::Decode,
    ///     start_ns: at[0],
    ///     end_ns: at[3],
    ///     tokens: 1,
    ///     position: 94,
    ///     disturbance: None,
    /// };
    /// profiler.record_pass(&pass, &spans).expect("the spans nest");
    /// let profile = profiler.profile();
    /// assert_eq!(profile.check(), Ok(()));
    /// assert_eq!(profile.phases[0].unattributed_ns, at[3] - at[2]);
    /// ```
    pub fn record_pass(&self, pass: &TimedPass, spans: &[TimedSpan]) -> Result<(), TimedPassError> {
        self.record_timed(pass, spans).map(drop)
    }

    /// The same. Returns the number of the pass, if recording is on.
    pub(super) fn record_timed(
        &self,
        pass: &TimedPass,
        spans: &[TimedSpan],
    ) -> Result<Option<u32>, TimedPassError> {
        let timed: Vec<Timed> = spans.iter().map(|span| self.timed(span)).collect();
        let end = TimedEnd {
            phase: pass.phase,
            tokens: pass.tokens,
            position: pass.position,
            start: pass.start_ns,
            end: pass.end_ns,
            disturbance: pass.disturbance,
        };
        let at = |index: usize| {
            let TimedSpan { what, start_ns, end_ns, .. } = spans[index];
            SpanAt { index, what, start_ns, end_ns }
        };
        self.recorder.add_pass(&end, &timed).map_err(|unfit| match unfit {
            Unfit::Backwards(None) => TimedPassError::PassBackwards,
            Unfit::Backwards(Some(index)) => TimedPassError::Backwards(at(index)),
            Unfit::Outside(index) => {
                TimedPassError::Outside(at(index), [pass.start_ns, pass.end_ns])
            }
            Unfit::Unordered(index) => {
                let before = index.checked_sub(1).map_or(pass.start_ns, |at| spans[at].start_ns);
                TimedPassError::Unordered(at(index), before)
            }
            Unfit::Crossing(index) => TimedPassError::Crossing(at(index)),
            Unfit::Nested => TimedPassError::Nested,
            Unfit::Future => TimedPassError::Future,
        })
    }

    fn timed(&self, span: &TimedSpan) -> Timed {
        let layer = span.layer.unwrap_or(NONE);
        let (kind, name, layer) = match span.what {
            TimedWork::Brick(brick) => (SpanKind::Brick, self.brick_of(brick), layer),
            TimedWork::Kernel(kernel) => (SpanKind::Kernel, self.kernel_of(kernel), layer),
            TimedWork::Layer(index) => (SpanKind::Layer, NONE, index),
        };
        let TimedSpan { start_ns: start, end_ns: end, work, .. } = *span;
        Timed { kind, name, layer, start, end, work }
    }
}
