//! Templates that label the timestamps of all passes that take the same path.

use std::sync::Arc;

use brickscope_profile::{Data, Source, Work};

use crate::names::{ANY_PROFILER, BrickKey, KernelId, ProfilerNo};
use crate::row::{self, Event, NONE, NameIdx, Record, SpanKind};

/// Work that grows linearly with the number of tokens before it, like that of attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrowingWork {
    /// The work at position 0. If the growth is linear only from a later position on, the work extrapolated to
    /// position 0, which may have wrapped.
    pub at_start: Work,
    /// The work that each earlier token adds.
    pub per_token: Work,
}

impl GrowingWork {
    /// The work with `position` tokens before it.
    #[must_use]
    pub fn at(&self, position: u64) -> Work {
        grown(self.at_start, self.per_token, position)
    }
}

/// Work that doesn't grow.
impl From<Work> for GrowingWork {
    fn from(work: Work) -> Self {
        Self { at_start: work, per_token: Work::default() }
    }
}

#[inline(always)]
fn grown(at_start: Work, per_token: Work, position: u64) -> Work {
    let at = |start: u64, each: u64| start.wrapping_add(each.wrapping_mul(position));
    Work {
        elements: at(at_start.elements, per_token.elements),
        flops: at(at_start.flops, per_token.flops),
        bytes: at(at_start.bytes, per_token.bytes),
        data: match (at_start.data, per_token.data) {
            (Data::Weights(start), Data::Weights(each)) => Data::Weights(at(start, each)),
            (Data::Kv(start), Data::Kv(each)) => Data::Kv(at(start, each)),
            (data, _) => data,
        },
    }
}

/// What each timestamp of a pass means, in the order in which they are taken. See
/// [`PassTimestamps`](crate::PassTimestamps).
///
/// A template can label any number of passes, at any position, so build it once: a thread's log keeps up to 1024
/// templates, and records passes with further ones span by span.
///
/// ```
/// # use brickscope::{BrickId, BrickProfiler, PassTemplate, Work};
/// # let profiler = BrickProfiler::enabled();
/// # let [norm, multiply] = ["rms_norm", "gemv"].map(|name| profiler.kernel(name, None));
/// let mut template = PassTemplate::builder();
/// template.begin_layer(0);
/// template.brick_kernel(BrickId::RmsNorm, norm, Work::elements(4096));
/// template.brick_kernel(BrickId::QkvProjection, multiply, Work::elements(6144));
/// template.end_layer();
/// assert_eq!(template.build().timestamps(), 6);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassTemplate(Arc<Parts>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    /// The spans, in the order in which they end.
    spans: Vec<Span>,
    /// The distinct growths of work per earlier token. The first one is no growth.
    growths: Vec<Work>,
    /// For each timestamp 1 if a brick ends there, -1 if one begins, 0 if both or neither.
    signs: Vec<i8>,
    /// The timestamp at which the last brick ends.
    last_end: Option<u32>,
    /// Whose keys it has, but for those that any profiler knows.
    of: Option<ProfilerNo>,
    /// Whether it has keys of several profilers.
    is_mixed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Span {
    work: Work,
    /// The indices of its timestamps.
    begin: u32,
    end: u32,
    /// Its index among the spans in the order in which they begin.
    order: u32,
    growth: u32,
    name: NameIdx,
    /// [`NONE`] for the layer in which the pass is labelled.
    layer: u16,
    kind: SpanKind,
}

impl PassTemplate {
    /// Begins a template, to which the parts of a pass are added in order.
    #[must_use]
    pub fn builder() -> PassTemplateBuilder {
        let parts = Parts { growths: vec![Work::default()], ..Parts::default() };
        PassTemplateBuilder { parts, layers: Vec::new(), is_lap: false }
    }

    /// The number of timestamps of a pass.
    #[must_use]
    pub fn timestamps(&self) -> usize {
        self.0.signs.len()
    }

    /// Whether all its keys are of this profiler, or such as any one knows.
    pub(crate) fn is_of(&self, profiler: ProfilerNo) -> bool {
        !self.0.is_mixed && self.0.of.is_none_or(|of| of == profiler)
    }

    pub(crate) fn spans(&self) -> u64 {
        self.0.spans.len() as u64
    }

    /// For each timestamp 1 if a brick ends there, -1 if one begins, 0 if both or neither.
    pub(crate) fn signs(&self) -> &[i8] {
        &self.0.signs
    }

    /// The timestamp at which the last brick ends.
    pub(crate) fn last_end(&self) -> Option<usize> {
        self.0.last_end.map(|reading| reading as usize)
    }

    /// The address of the shared parts. While a template is held, only its clones have the same address.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Calls `f` with a record of each span of a pass, in the order in which they end. `first_order` is the order of
    /// the span that begins first; `layer` is the layer of spans that the template has in none.
    #[inline(always)]
    pub(crate) fn each_record(
        &self,
        [pass, first_order]: [u32; 2],
        layer: u16,
        position: u64,
        reading: impl Fn(usize) -> u64,
        mut f: impl FnMut(&Record),
    ) {
        let Parts { spans, growths, .. } = &*self.0;
        for span in spans {
            let start = reading(span.begin as usize);
            let duration = reading(span.end as usize).saturating_sub(start);
            let work = match span.growth {
                0 => span.work,
                growth => grown(span.work, growths[growth as usize], position),
            };
            let event = Event::Span(row::Span {
                kind: span.kind,
                start,
                duration,
                exclusive: if span.kind == SpanKind::Brick { duration } else { 0 },
                work,
                name: span.name,
                layer: if span.layer == NONE { layer } else { span.layer },
                flags: 0,
                source: Source::Host,
            });
            f(&Record { pass, order: first_order.wrapping_add(span.order), event });
        }
    }
}

/// Builds a [`PassTemplate`]. Each method states what the next timestamps mean.
#[derive(Debug)]
pub struct PassTemplateBuilder {
    parts: Parts,
    /// The open layers: their indices, first timestamps, and orders.
    layers: Vec<(u16, u32, u32)>,
    /// Whether the next timestamp is the same as the previous one.
    is_lap: bool,
}

impl PassTemplateBuilder {
    fn reading(&mut self, sign: i8) -> u32 {
        let signs = &mut self.parts.signs;
        match signs.last_mut() {
            Some(last) if std::mem::take(&mut self.is_lap) => *last += sign,
            _ => signs.push(sign),
        }
        self.parts.signs.len() as u32 - 1
    }

    /// Makes the next part begin with the last timestamp of the previous part, like
    /// [`BrickProfiler::lap`](crate::BrickProfiler::lap). For bricks that follow each other without a gap, or whose gap
    /// belongs to the second one. If a layer ends next, it ends with that timestamp.
    ///
    /// Does nothing if there is no timestamp yet.
    ///
    /// ```
    /// # use brickscope::{BrickId, PassTemplate, Work};
    /// let mut template = PassTemplate::builder();
    /// template.begin_layer(0);
    /// for brick in [BrickId::RmsNorm, BrickId::QkvProjection] {
    ///     template.lap();
    ///     template.brick(brick, Work::elements(4096));
    /// }
    /// template.lap();
    /// template.end_layer();
    /// assert_eq!(template.build().timestamps(), 3);
    /// ```
    pub fn lap(&mut self) {
        self.is_lap = !self.parts.signs.is_empty();
    }

    /// The number of a key's name. Remembers whose key it is.
    fn name(&mut self, name: NameIdx, of: ProfilerNo) -> NameIdx {
        if of != ANY_PROFILER {
            self.parts.is_mixed |= *self.parts.of.get_or_insert(of) != of;
        }
        name
    }

    fn brick_name(&mut self, brick: impl Into<BrickKey>) -> NameIdx {
        let BrickKey { name, of } = brick.into();
        self.name(name, of)
    }

    /// The order of the span that begins next.
    fn begun(&self) -> u32 {
        (self.parts.spans.len() + self.layers.len()) as u32
    }

    fn span(
        &mut self,
        kind: SpanKind,
        [name, layer]: [u16; 2],
        order: u32,
        [begin, end]: [u32; 2],
        work: GrowingWork,
    ) {
        let growths = &mut self.parts.growths;
        let known = growths.iter().position(|growth| *growth == work.per_token);
        let growth = known.unwrap_or_else(|| {
            growths.push(work.per_token);
            growths.len() - 1
        });
        let span = Span {
            work: work.at_start,
            begin,
            end,
            order,
            growth: growth as u32,
            name,
            layer,
            kind,
        };
        self.parts.spans.push(span);
        if kind == SpanKind::Brick {
            self.parts.last_end = Some(end);
        }
    }

    /// Adds a brick: two timestamps, its begin and its end.
    pub fn brick(&mut self, brick: impl Into<BrickKey>, work: impl Into<GrowingWork>) {
        let brick = self.brick_name(brick);
        self.kernels(brick, work.into(), &[]);
    }

    /// Adds a brick that is a single kernel: two timestamps.
    pub fn brick_kernel(
        &mut self,
        brick: impl Into<BrickKey>,
        kernel: KernelId,
        work: impl Into<GrowingWork>,
    ) {
        let (work, brick) = (work.into(), self.brick_name(brick));
        let kernel = self.name(kernel.name, kernel.of);
        self.kernels(brick, work, &[(kernel, work)]);
    }

    /// Adds a brick of these kernels: a timestamp at the begin of each kernel, and one at the end of the last kernel
    /// and of the brick. Without kernels, the same as [`brick`](Self::brick).
    pub fn brick_kernels(
        &mut self,
        brick: impl Into<BrickKey>,
        work: impl Into<GrowingWork>,
        kernels: &[(KernelId, GrowingWork)],
    ) {
        let brick = self.brick_name(brick);
        let named = kernels.iter().map(|&(kernel, work)| (self.name(kernel.name, kernel.of), work));
        let kernels: Vec<_> = named.collect();
        self.kernels(brick, work.into(), &kernels);
    }

    /// Adds a brick of these kernels, by number.
    pub(crate) fn kernels(
        &mut self,
        brick: NameIdx,
        work: GrowingWork,
        kernels: &[(NameIdx, GrowingWork)],
    ) {
        let order = self.begun();
        let layer = self.layers.last().map_or(NONE, |open| open.0);
        let first = self.reading(-1);
        let mut begin = first;
        for (i, &(kernel, work)) in kernels.iter().enumerate() {
            let is_last = i + 1 == kernels.len();
            let end = self.reading(i8::from(is_last));
            self.span(SpanKind::Kernel, [kernel, layer], order + 1 + i as u32, [begin, end], work);
            begin = end;
        }
        let end = if kernels.is_empty() { self.reading(1) } else { begin };
        self.span(SpanKind::Brick, [brick, layer], order, [first, end], work);
    }

    /// Begins a transformer layer: one timestamp. Everything until its end belongs to it. The index 65535 means none.
    pub fn begin_layer(&mut self, index: u16) {
        let order = self.begun();
        let begin = self.reading(0);
        self.layers.push((index, begin, order));
    }

    /// Ends the innermost open layer: one timestamp. Does nothing if no layer is open.
    pub fn end_layer(&mut self) {
        let Some(&(index, begin, order)) = self.layers.last() else {
            self.is_lap = false;
            return;
        };
        let end = self.reading(0);
        self.layers.pop();
        self.span(SpanKind::Layer, [NONE, index], order, [begin, end], GrowingWork::default());
    }

    /// Builds the template. Open layers end here.
    #[must_use]
    pub fn build(mut self) -> PassTemplate {
        while !self.layers.is_empty() {
            self.end_layer();
        }
        PassTemplate(Arc::new(self.parts))
    }
}
