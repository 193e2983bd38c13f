//! Layers around spans that state theirs without a span around them, as the kernels of another program's trace, and bricks
//! of a host whose layers are known by names.

use std::collections::{BTreeMap, HashMap};

use crate::brick::Source;
use crate::span::Span;

/// A layer in a pass.
pub(super) struct LayerAround {
    pub(super) layer: u16,
    /// The span in whose place the layer is in the sequence of a stream: the first on the pass's own stream, if there is one.
    pub(super) owner: u32,
    /// When its first span began.
    pub(super) begin: u64,
    /// When its last one ended.
    pub(super) end: u64,
}

/// The layers, and which spans are in which.
#[derive(Default)]
pub(super) struct LayersAround {
    all: Vec<LayerAround>,
    by_span: HashMap<u32, usize>,
}

/// Spans of one layer, one after the other on a stream, with nothing else between them.
struct Piece {
    lane: u32,
    spans: Vec<u32>,
}

/// What no piece goes on behind: points of a thread, and begins of passes. Both are sorted.
struct Cuts {
    points: Vec<(u32, u64)>,
    begins: Vec<u64>,
}

impl Cuts {
    /// How many passes began by then.
    fn pass_at(&self, at: u64) -> usize {
        self.begins.partition_point(|&begin| begin <= at)
    }

    /// Whether two spans that begin at these times have a cut between them.
    fn are_between(&self, lane: u32, first: u64, next: u64) -> bool {
        let points_by = |at: u64| self.points.partition_point(|&point| point <= (lane, at));
        points_by(first) < points_by(next) || self.pass_at(first) < self.pass_at(next)
    }
}

/// The layer that a span states by itself.
fn stated(span: &Span) -> Option<u16> {
    span.layer.filter(|_| span.name.is_some())
}

impl LayersAround {
    /// Those of the `wanted` spans, which are in ascending order. A layer on several streams is one, from its first span to
    /// its last on any of them. If on a stream something else ran in between, each part is by itself, or else what ran there
    /// would have no place in the sequence.
    pub(super) fn of(
        spans: &[Span],
        wanted: &[u32],
        mut points: Vec<(u32, u64)>,
        mut begins: Vec<u64>,
    ) -> Self {
        let mut layers = Self::default();
        if !wanted.iter().any(|&index| stated(&spans[index as usize]).is_some()) {
            return layers;
        }
        points.sort_unstable();
        begins.sort_unstable();
        let cuts = Cuts { points, begins };
        let mut by_layer: BTreeMap<(usize, u16), Vec<Piece>> = BTreeMap::new();
        for (&lane, in_order) in &outermost(spans, wanted) {
            let mut before: Option<(u16, &Span)> = None;
            for &index in in_order {
                let span = &spans[index as usize];
                let Some(layer) = stated(span) else {
                    before = None;
                    continue;
                };
                let pieces = by_layer.entry((cuts.pass_at(span.start_ns), layer)).or_default();
                let goes_on = before.is_some_and(|(of, last)| {
                    of == layer
                        && last.pass == span.pass
                        && !cuts.are_between(lane, last.start_ns, span.start_ns)
                });
                match pieces.last_mut().filter(|_| goes_on) {
                    Some(piece) => piece.spans.push(index),
                    None => pieces.push(Piece { lane, spans: vec![index] }),
                }
                before = Some((layer, span));
            }
        }
        for pieces in by_layer.values() {
            // Threads have passes of their own, streams have one together.
            let is_of_device = |piece: &Piece| {
                piece.spans.iter().all(|&index| spans[index as usize].source == Source::Device)
            };
            let is_whole = pieces.windows(2).all(|pair| pair[0].lane != pair[1].lane)
                && pieces.iter().all(is_of_device);
            let at_once = if is_whole { pieces.len() } else { 1 };
            pieces.chunks(at_once).for_each(|pieces| layers.add(spans, pieces));
        }
        layers
    }

    fn add(&mut self, spans: &[Span], pieces: &[Piece]) {
        let members = || pieces.iter().flat_map(|piece| &piece.spans).copied();
        let of = |index: u32| &spans[index as usize];
        let owner =
            members().min_by_key(|&index| (of(index).pass.is_none(), of(index).start_ns, index));
        let Some((owner, layer)) = owner.and_then(|owner| Some((owner, of(owner).layer?))) else {
            return;
        };
        let (begin, end) = members().map(of).fold((u64::MAX, 0_u64), |(begin, end), span| {
            (begin.min(span.start_ns), end.max(span.start_ns.saturating_add(span.duration_ns)))
        });
        let nth = self.all.len();
        self.by_span.extend(members().map(|index| (index, nth)));
        self.all.push(LayerAround { layer, owner, begin, end });
    }

    /// The layer around a span, with its number.
    pub(super) fn around(&self, span: u32) -> Option<(usize, &LayerAround)> {
        let nth = *self.by_span.get(&span)?;
        Some((nth, self.all.get(nth)?))
    }
}

/// The wanted spans in no other, by lane and in the order of their begins.
fn outermost(spans: &[Span], wanted: &[u32]) -> BTreeMap<u32, Vec<u32>> {
    let mut lanes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &index in wanted {
        let span = &spans[index as usize];
        if span.parent.is_none_or(|parent| wanted.binary_search(&parent).is_err()) {
            lanes.entry(span.lane).or_default().push(index);
        }
    }
    for lane in lanes.values_mut() {
        lane.sort_by_key(|&index| (spans[index as usize].start_ns, index));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brick::Work;

    fn span(lane: u32, layer: Option<u16>, start_ns: u64, duration_ns: u64) -> Span {
        Span {
            name: Some(0),
            source: Source::Device,
            lane,
            pass: (lane == 0).then_some(1),
            layer,
            parent: None,
            start_ns,
            duration_ns,
            exclusive_ns: duration_ns,
            work: Work::default(),
        }
    }

    /// Layer, begin and end of each layer, by the spans that are its owners.
    fn of(spans: &[Span], begins: &[u64]) -> Vec<(u32, u16, u64, u64)> {
        let wanted: Vec<u32> = (0..spans.len() as u32).collect();
        let layers = LayersAround::of(spans, &wanted, Vec::new(), begins.to_vec());
        let owners = wanted.into_iter().filter_map(|index| layers.around(index));
        let mut all: Vec<_> =
            owners.map(|(_, of)| (of.owner, of.layer, of.begin, of.end)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn a_layer_is_from_its_first_span_to_its_last_on_any_stream() {
        let spans = [
            span(0, None, 0, 5),
            span(0, Some(0), 10, 10),
            span(0, Some(0), 25, 5),
            span(0, Some(1), 40, 10),
            span(1, Some(0), 8, 30),
            span(1, Some(1), 45, 20),
        ];
        assert_eq!(of(&spans, &[0]), [(1, 0, 8, 38), (3, 1, 40, 65)]);
    }

    #[test]
    fn what_is_in_no_layer_and_another_pass_end_one() {
        let spans = [span(0, Some(0), 0, 5), span(0, None, 6, 2), span(0, Some(0), 10, 5)];
        assert_eq!(of(&spans, &[0]), [(0, 0, 0, 5), (2, 0, 10, 15)]);
        let spans = [span(1, Some(0), 0, 5), span(1, Some(0), 10, 5)];
        assert_eq!(of(&spans, &[0]), [(0, 0, 0, 15)]);
        assert_eq!(of(&spans, &[0, 10]), [(0, 0, 0, 5), (1, 0, 10, 15)]);
        // A span around it is a layer already; the host's have such ones, unless they were timed elsewhere.
        let inner = Span { parent: Some(0), ..span(0, Some(0), 1, 2) };
        let host = Span { source: Source::Host, ..span(0, Some(1), 10, 5) };
        let around = Span { name: None, ..span(0, Some(0), 0, 5) };
        assert_eq!(of(&[around, inner, host], &[0]), [(2, 1, 10, 15)]);
    }
}
