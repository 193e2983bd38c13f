//! What the readings of a pass are of, said once for all passes that take the same way.

use std::sync::Arc;

use brickscope_profile::{BrickId, Source, Work};

use crate::names::KernelId;
use crate::row::{self, Event, NONE, NameIdx, Record, SpanKind};

/// Work that grows by as much with each token before it, as that of attention does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrowingWork {
    /// At position 0, or what it would be there if it grew so from there on: it may have wrapped.
    pub at_start: Work,
    /// What each token before it adds.
    pub per_token: Work,
}

impl GrowingWork {
    /// With so many tokens before it.
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
    }
}

/// What the readings of a pass are of, in the order in which they are taken: see
/// [`PassTimestamps`](crate::PassTimestamps). It can be told of any number of passes, at any position, and is to be made
/// once: a thread's log remembers the first 1024 that it is given, and writes out what others say span by span.
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
    /// In the order of ends.
    spans: Vec<Span>,
    /// By how much work grows with each token before it. The first one not at all.
    growths: Vec<Work>,
    /// For each reading 1 if a brick ends there, -1 if one begins, 0 if both or neither.
    signs: Vec<i8>,
    /// The reading where the last brick ends.
    last_end: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct Span {
    work: Work,
    /// The numbers of its readings.
    begin: u32,
    end: u32,
    /// Its place in the order of begins.
    order: u32,
    growth: u32,
    name: NameIdx,
    /// [`NONE`] for the layer that the pass is labelled in.
    layer: u16,
    kind: SpanKind,
}

impl PassTemplate {
    /// To say one brick after the other what a pass does.
    #[must_use]
    pub fn builder() -> PassTemplateBuilder {
        let parts = Parts { growths: vec![Work::default()], ..Parts::default() };
        PassTemplateBuilder { parts, layers: Vec::new(), is_lap: false }
    }

    /// How many readings of the clock a pass takes.
    #[must_use]
    pub fn timestamps(&self) -> usize {
        self.0.signs.len()
    }

    pub(crate) fn spans(&self) -> u64 {
        self.0.spans.len() as u64
    }

    /// For each reading 1 if a brick ends there, -1 if one begins, 0 if both or neither.
    pub(crate) fn signs(&self) -> &[i8] {
        &self.0.signs
    }

    /// The reading where the last brick ends.
    pub(crate) fn last_end(&self) -> Option<usize> {
        self.0.last_end.map(|reading| reading as usize)
    }

    /// Where it lies: of another one there, as long as one of the two is held, none is equal to it.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Calls `f` with a record of each span of a pass, in the order of ends. The span that begins first has the place
    /// `first_order` in the order of begins; `layer` is the layer of those that the template has in none.
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

/// Makes a [`PassTemplate`]. Each method says what the next readings are of.
#[derive(Debug)]
pub struct PassTemplateBuilder {
    parts: Parts,
    /// Those that are open: their numbers, first readings, and places in the order of begins.
    layers: Vec<(u16, u32, u32)>,
    /// Whether the next reading is the last one.
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

    /// What is said next has its first reading in common with what was said last, as by
    /// [`BrickProfiler::lap`](crate::BrickProfiler::lap): for bricks with nothing between them, or what there is belongs
    /// to the second one. Of the layer that ends next it is the only one. Nothing, if there is no reading yet.
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

    /// The place of what begins next in the order of begins.
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

    /// Two readings: a brick begins, and ends.
    pub fn brick(&mut self, brick: BrickId, work: impl Into<GrowingWork>) {
        self.kernels(brick as NameIdx, work.into(), &[]);
    }

    /// Two readings: a brick that is a single kernel.
    pub fn brick_kernel(&mut self, brick: BrickId, kernel: KernelId, work: impl Into<GrowingWork>) {
        let work = work.into();
        self.kernels(brick as NameIdx, work, &[(kernel.0, work)]);
    }

    /// A reading where each of these kernels begins, and one where the last one ends, and the brick. Without any,
    /// two as [`brick`](Self::brick).
    pub fn brick_kernels(
        &mut self,
        brick: BrickId,
        work: impl Into<GrowingWork>,
        kernels: &[(KernelId, GrowingWork)],
    ) {
        let kernels: Vec<_> = kernels.iter().map(|&(kernel, work)| (kernel.0, work)).collect();
        self.kernels(brick as NameIdx, work.into(), &kernels);
    }

    /// A brick of these kernels.
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

    /// A reading: a transformer layer begins, which all belongs to up to its end. 65535 is none.
    pub fn begin_layer(&mut self, index: u16) {
        let order = self.begun();
        let begin = self.reading(0);
        self.layers.push((index, begin, order));
    }

    /// A reading: the layer ends that began last. Nothing, if none is open.
    pub fn end_layer(&mut self) {
        let Some(&(index, begin, order)) = self.layers.last() else {
            self.is_lap = false;
            return;
        };
        let end = self.reading(0);
        self.layers.pop();
        self.span(SpanKind::Layer, [NONE, index], order, [begin, end], GrowingWork::default());
    }

    /// The template. Layers that are open end here.
    #[must_use]
    pub fn build(mut self) -> PassTemplate {
        while !self.layers.is_empty() {
            self.end_layer();
        }
        PassTemplate(Arc::new(self.parts))
    }
}
