//! Kernels whose durations can't be right where no launch of their stream tells it: a profiler that lost an end, or a number that
//! overflowed.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::collective;
use super::host::{Host, launch_of};
use super::table::{Found, Table};
use super::{EventKind, Link};
use crate::import::trace::{Timed, Trace};

/// So many times as long as the median of its name is no work of another size, if it lasts for [`LONG_NS`], too.
const MANY_TIMES: u64 = 1_000;
const LONG_NS: u64 = 1_000_000_000;
/// The same within a graph, whose kernels run one after the other or on branches that are as long: of one that lasts over the
/// whole of the next one, and for [`LONG_IN_A_GRAPH_NS`].
const TIMES_IN_A_GRAPH: u64 = 100;
const LONG_IN_A_GRAPH_NS: u64 = 10_000_000;
/// No kernel is recorded that lasts for an hour.
const ENDLESS_NS: u64 = 3_600_000_000_000;

/// How many kernels last too long. Copies may be of any size, and collectives wait for other ranks.
pub(super) fn count(trace: &Trace, timed: &[Timed], host: &Host, table: &Table) -> u64 {
    let mut is_judged: HashMap<u32, bool> = HashMap::new();
    let mut works: Vec<(Option<&Link>, &Timed)> = timed
        .iter()
        .filter(|event| event.kind == EventKind::Work)
        .map(|event| (event.link.and_then(|link| trace.links.get(link as usize)), event))
        .filter(|(link, event)| {
            link.is_none_or(|link| link.bytes.is_none())
                && *is_judged.entry(event.name).or_insert_with(|| is_kernel(trace, event, table))
                && !collective::is_one(trace, event, None)
        })
        .collect();
    if works.iter().all(|(_, event)| event.end.abs_diff(event.start) < LONG_IN_A_GRAPH_NS) {
        return 0;
    }
    let medians = medians(&works);
    // As the streams run them.
    let place = |link: Option<&Link>| link.map(|link| (link.device, link.stream, link.process));
    works.sort_by_key(|(link, event)| (place(*link), event.start, Reverse(event.end)));
    let mut endless = 0;
    for (at, (link, event)) in works.iter().enumerate() {
        let ns = event.end.abs_diff(event.start);
        let next = works.get(at + 1).filter(|(of, _)| place(*of) == place(*link));
        let lasts_over_next = next.is_some_and(|(_, next)| next.start < event.end);
        // A kernel may begin while the one before it ends.
        let lasts_beyond_next = next.is_some_and(|(_, next)| next.end < event.end);
        let in_graph = link.and_then(|link| launch_of(host, link)).is_some_and(|of| of.is_graph);
        // Of others that last over the next one, the next one tells.
        if lasts_over_next && !in_graph {
            continue;
        }
        let median = medians.get(&event.name).map(|&median| median.max(1));
        let is_times = |times: u64| median.is_some_and(|median| ns / median >= times);
        let is_endless = ns >= ENDLESS_NS
            || ns >= LONG_NS && is_times(MANY_TIMES)
            || in_graph
                && lasts_beyond_next
                && ns >= LONG_IN_A_GRAPH_NS
                && is_times(TIMES_IN_A_GRAPH);
        endless += u64::from(is_endless);
    }
    endless
}

/// Whether work is that of a kernel which computes.
fn is_kernel(trace: &Trace, event: &Timed, table: &Table) -> bool {
    let name = &*trace.names[event.name as usize];
    let is_copy = ["Mem", "Copy", "Marker"].iter().any(|begin| name.starts_with(begin));
    let brick = match table.kernel(name) {
        Some(Found::Brick(brick)) => Some(brick),
        _ => None,
    };
    !is_copy && !matches!(brick, Some("Copy" | "AllReduce" | "Communication"))
}

/// The median duration of each name that several kernels have; the shorter one of two.
fn medians(works: &[(Option<&Link>, &Timed)]) -> HashMap<u32, u64> {
    let mut all: HashMap<u32, Vec<u64>> = HashMap::new();
    for (_, event) in works {
        all.entry(event.name).or_default().push(event.end.abs_diff(event.start));
    }
    all.retain(|_, durations| durations.len() > 1);
    let median = |mut durations: Vec<u64>| {
        durations.sort_unstable();
        durations[(durations.len() - 1) / 2]
    };
    all.into_iter().map(|(name, durations)| (name, median(durations))).collect()
}
