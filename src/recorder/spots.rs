//! Where something was first called otherwise than it is meant to be, as far as the rows tell that were kept.

use std::collections::{HashMap, HashSet};

use brickscope_profile::{BrickId, Source};

use super::Recorder;
use super::drain::Lane;
use super::log::Owner;
use crate::row::{Event, NONE, NameIdx, Record, Span, SpanKind, flag};

/// A place in what was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spot {
    pub(crate) name: Option<NameIdx>,
    /// Whether it is what other passes have at this place: a timer that was dropped left no name.
    pub(crate) is_by_other_passes: bool,
    pub(crate) layer: Option<u16>,
    pub(crate) pass: Option<u32>,
    pub(crate) thread: Owner,
}

/// The first of each kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spots {
    pub(crate) abandoned_pass: Option<Spot>,
    pub(crate) nested_pass: Option<Spot>,
    pub(crate) unended_span: Option<Spot>,
    pub(crate) span_without_pass: Option<Spot>,
    pub(crate) crossing_brick: Option<Spot>,
    pub(crate) moved_timer: Option<Spot>,
    pub(crate) straddling_brick: Option<Spot>,
}

impl Recorder {
    /// Looks at all rows that were kept, so it takes a while.
    pub(crate) fn spots(&self) -> Spots {
        let mut lanes = Vec::new();
        self.collect(|mut log| lanes.extend(log.lanes()));
        Spots::of(&lanes)
    }
}

impl Spots {
    fn of(lanes: &[Lane]) -> Self {
        let first = |spot: &dyn Fn(&Lane) -> Option<Spot>| lanes.iter().find_map(spot);
        let flagged = |flag: u16| move |lane: &Lane| flagged(lane, flag);
        Self {
            abandoned_pass: first(&|lane| {
                let mut records = lane.records.iter();
                let found = records.find(|record| record.event == Event::Abandoned)?;
                Some(at(lane, found.pass))
            }),
            nested_pass: first(&nested),
            unended_span: first(&unended),
            span_without_pass: without_pass(lanes),
            crossing_brick: first(&flagged(flag::OVERLAPPING)),
            moved_timer: first(&flagged(flag::MOVED)),
            straddling_brick: first(&flagged(flag::STRADDLING)),
        }
    }
}

/// A pass, or 0 for none, of a thread.
fn at(lane: &Lane, pass: u32) -> Spot {
    Spot { pass: (pass != 0).then_some(pass), thread: lane.thread.clone(), ..Spot::default() }
}

fn of_span(lane: &Lane, record: &Record, span: &Span) -> Spot {
    let layer = (span.layer != NONE).then_some(span.layer);
    let name = (span.name != NONE).then_some(span.name);
    Spot { name, layer, ..at(lane, record.pass) }
}

fn ends_pass(record: &Record) -> bool {
    matches!(record.event, Event::Pass(_) | Event::Abandoned | Event::Discarded)
}

/// The bricks of a device that were settled apart are another mistake.
fn flagged(lane: &Lane, flag: u16) -> Option<Spot> {
    lane.records.iter().find_map(|record| {
        let span = record.span()?;
        let is_one = span.flags & flag != 0 && span.source != Source::HostOrder;
        is_one.then(|| of_span(lane, record, span))
    })
}

/// The pass in which another one was begun.
fn nested(lane: &Lane) -> Option<Spot> {
    let nth = lane.records.iter().position(|record| record.event == Event::NestedPass)?;
    let around = lane.records[nth..].iter().find(|record| ends_pass(record));
    Some(at(lane, around.map_or(0, |record| record.pass)))
}

/// The first brick that ran once a pass had begun, on a thread that has to do with none: a well-known one or one that passes
/// have, if there is any.
fn without_pass(lanes: &[Lane]) -> Option<Spot> {
    let starts = lanes.iter().flat_map(|lane| &lane.records);
    let starts = starts.filter_map(|record| match &record.event {
        Event::Pass(pass) => Some(pass.start),
        _ => None,
    });
    let first = starts.min()?;
    let in_passes = lanes.iter().flat_map(|lane| &lane.records).filter(|record| record.pass != 0);
    let in_passes: HashSet<NameIdx> =
        in_passes.filter_map(|record| Some(record.span()?.name)).collect();
    let is_tied = |record: &Record| {
        ends_pass(record) || record.is_mark() || record.event == Event::NestedPass
    };
    let apart = lanes.iter().filter(|lane| !lane.records.iter().any(is_tied));
    let bricks = apart.flat_map(|lane| {
        lane.records.iter().filter_map(move |record| Some((lane, record, record.span()?)))
    });
    let mut bricks = bricks.filter(|(_, _, span)| {
        span.kind == SpanKind::Brick && span.flags == 0 && span.start >= first
    });
    let any = bricks.next()?;
    let is_known = |name: NameIdx| usize::from(name) < BrickId::COUNT || in_passes.contains(&name);
    let known = std::iter::once(any).chain(bricks).find(|(_, _, span)| is_known(span.name));
    let (lane, record, span) = known.unwrap_or(any);
    Some(of_span(lane, record, span))
}

/// The spans of a pass, by their places in the order of begins.
struct OfPass {
    serial: u32,
    since: u32,
    until: u32,
}

impl OfPass {
    fn spans(&self) -> u32 {
        self.until.wrapping_sub(self.since)
    }
}

/// The first place in the order of begins of which no span has ended, though its pass has.
fn unended(lane: &Lane) -> Option<Spot> {
    let spans: HashMap<u32, (u32, &Span)> = lane
        .records
        .iter()
        .filter_map(|record| Some((record.order, (record.pass, record.span()?))))
        // Such a one has its place where it ended.
        .filter(|(_, (_, span))| span.flags & flag::MOVED == 0)
        .collect();
    let mut since = lane.records.iter().map(|record| record.order).min()?;
    let mut passes = Vec::new();
    for end in lane.records.iter().filter(|record| ends_pass(record)) {
        passes.push(OfPass { serial: end.pass, since, until: end.order });
        since = end.order;
    }
    let (pass, lost) = passes.iter().find_map(|pass| {
        let lost = (pass.since..pass.until).find(|order| !spans.contains_key(order))?;
        Some((pass, lost))
    })?;
    let nth = lost.wrapping_sub(pass.since);
    let alike = passes.iter().filter(|of| of.serial != pass.serial && of.spans() == pass.spans());
    let mut names = alike.filter_map(|of| {
        let (in_pass, span) = spans.get(&of.since.wrapping_add(nth))?;
        (*in_pass == of.serial && span.kind != SpanKind::Layer).then_some(span.name)
    });
    // Where they differ, nobody knows.
    let name = names.next().filter(|first| names.all(|name| name == *first));
    // What comes before the first span of a pass may have been lost before the pass.
    let in_pass = |order: u32| spans.get(&order).filter(|(of, _)| *of == pass.serial);
    let is_of_pass = name.is_some() || (pass.since..lost).any(|order| in_pass(order).is_some());
    let beside = |order: Option<u32>| order.and_then(in_pass).map(|(_, span)| span.layer);
    let layer = match (beside(lost.checked_sub(1)), beside(lost.checked_add(1))) {
        (Some(before), Some(after)) if before != after => None,
        (before, after) => before.or(after),
    };
    Some(Spot {
        name,
        is_by_other_passes: name.is_some(),
        layer: layer.filter(|&layer| layer != NONE),
        ..at(lane, if is_of_pass { pass.serial } else { 0 })
    })
}
