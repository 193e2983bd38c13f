//! The order in which the spans and passes of each lane come, and what links them.

use std::collections::HashSet;

use brickscope_profile::device::issued;
use brickscope_profile::{Dependency, Pass, Profile, Span};

use super::{Flow, HandOff, Lane, Order};

/// The threads, and one for spans of threads that the profile doesn't know.
pub(super) fn host_lanes(profile: &Profile) -> Vec<Lane<'_>> {
    let n = profile.lanes.len();
    let number = |lane: u32| usize::try_from(lane).unwrap_or(usize::MAX).min(n);
    let mut tids = HashSet::new();
    let names = profile.lanes.iter().enumerate().map(|(at, lane)| {
        // A thread number that the system reused belongs to another thread.
        let tid = lane.tid.filter(|&tid| i32::try_from(tid).is_ok() && tids.insert(tid));
        (lane.name.clone().unwrap_or_else(|| format!("thread {at}")), tid)
    });
    let names: Vec<_> = names.chain([("threads without a name".to_owned(), None)]).collect();
    let orders = orders(&profile.spans, n + 1, |span| number(span.lane));
    let mut passes: Vec<Vec<u32>> = vec![Vec::new(); n + 1];
    for (at, pass) in (0..).zip(&profile.passes) {
        passes[number(pass.lane)].push(at);
    }
    names
        .into_iter()
        .zip(orders)
        .zip(passes)
        .map(|(((name, tid), order), mut of_lane)| {
            of_lane.sort_by_key(|&at| profile.passes[at as usize].start_ns);
            let pass_order = of_lane.into_iter().map(|at| (at, None)).collect();
            let lane = Lane::new(0, name, tid, &profile.spans, &profile.passes);
            Lane { order, pass_order, ..lane }
        })
        .collect()
}

pub(super) fn in_order(
    passes: &[Pass],
    is_wanted: impl Fn(&Pass) -> bool,
) -> Vec<(u32, Option<Flow>)> {
    let mut order: Vec<u32> =
        (0..).zip(passes).filter(|(_, pass)| is_wanted(pass)).map(|(at, _)| at).collect();
    order.sort_by_key(|&at| passes[at as usize].start_ns);
    order.into_iter().map(|at| (at, None)).collect()
}

/// The spans of each lane in the order in which they began. Usually that is their order in the table; then
/// nothing is stored.
pub(super) fn orders(
    spans: &[Span],
    n_lanes: usize,
    lane_of: impl Fn(&Span) -> usize,
) -> Vec<Order> {
    let mut rows: Vec<Option<std::ops::Range<u32>>> = vec![Some(0..0); n_lanes];
    for (row, span) in (0_u32..).zip(spans) {
        let of_lane = &mut rows[lane_of(span)];
        let Some(before) = of_lane.clone() else { continue };
        let is_after = before.end == row
            && before
                .clone()
                .next_back()
                .is_some_and(|last| spans[last as usize].start_ns <= span.start_ns);
        *of_lane = match before.is_empty() {
            true => Some(row..row + 1),
            false => is_after.then_some(before.start..row + 1),
        };
    }
    let mut orders: Vec<Order> =
        rows.into_iter().map(|rows| rows.map_or(Order::Sorted(Vec::new()), Order::Rows)).collect();
    for (row, span) in (0_u32..).zip(spans) {
        if let Order::Sorted(rows) = &mut orders[lane_of(span)] {
            rows.push(row);
        }
    }
    for order in &mut orders {
        if let Order::Sorted(rows) = order {
            // Stable: of spans that begin at once, outer ones come first, as in the table.
            rows.sort_by_key(|&row| spans[row as usize].start_ns);
        }
    }
    orders
}

/// The hand-offs between lanes; the first lane is number `first`.
pub(super) fn of_lanes(dependencies: &[Dependency], first: usize, count: usize) -> Vec<HandOff> {
    let place = |lane: u32| {
        let lane = lane as usize;
        (lane < count).then(|| (first + lane) as u32)
    };
    let hand_off = |edge: &Dependency| {
        let from = (place(edge.from.lane)?, edge.from.at_ns);
        Some(HandOff { from, to: (place(edge.to.lane)?, edge.to.at_ns) })
    };
    dependencies.iter().filter_map(hand_off).collect()
}

/// When passes begin: those of the host or, where there are none, of the devices.
pub(super) fn borders(profile: &Profile) -> Vec<u64> {
    let host = profile.passes.iter();
    let mut borders: Vec<u64> = host.map(|pass| pass.start_ns).collect();
    if borders.is_empty() {
        let streams = profile.devices.iter().flat_map(|device| &device.streams);
        borders = streams.flat_map(|stream| &stream.passes).map(|pass| pass.start_ns).collect();
    }
    borders.sort_unstable();
    borders.dedup();
    borders
}

/// Arrows from passes that the host issued to what a stream did for them, where
/// [that is known](brickscope_profile::DeviceStream::issued_by).
pub(super) fn link_passes(profile: &Profile, lanes: &mut [Lane<'_>], borders: &[u64]) {
    let stretch = |at: u64| borders.partition_point(|&border| border <= at);
    // The lane of each pass of the host, and its index there.
    let n_host = profile.lanes.len() + 1;
    let mut issued_at = vec![(0, 0); profile.passes.len()];
    for (lane, of) in lanes.iter().enumerate().take(n_host) {
        for (at, &(index, _)) in of.pass_order.iter().enumerate() {
            issued_at[index as usize] = (lane, at);
        }
    }
    let mut id = 0;
    // A pass has one arrow, to the first stream that worked for it.
    for lane in n_host..lanes.len() {
        let of = &lanes[lane];
        let mut done_at = vec![0; of.passes.len()];
        for (at, &(index, _)) in of.pass_order.iter().enumerate() {
            done_at[index as usize] = at;
        }
        for (issued, done) in issued(&profile.passes, of.passes) {
            let (begin, start) =
                (profile.passes[issued].start_ns, lanes[lane].passes[done].start_ns);
            let ((from, from_at), at) = (issued_at[issued], done_at[done]);
            let is_free = lanes[from].pass_order[from_at].1.is_none();
            // Both ends must be in one part.
            if is_free && stretch(begin) == stretch(start) {
                id += 1;
                lanes[from].pass_order[from_at].1 = Some(Flow { id, is_end: false });
                lanes[lane].pass_order[at].1 = Some(Flow { id, is_end: true });
            }
        }
    }
}
