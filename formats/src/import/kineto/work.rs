//! Which kernels do the work that shapes state: each product and each attention counts once.

use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::Work;

use super::attention::Why;
use super::host::{Host, launch_of};
use super::inside::Inside;
use super::{EventKind, MARKER};
use crate::import::trace::{Timed, Trace};

/// What a kernel has whose product's work is stated at another kernel of it: not nothing, so that its time can be told from
/// that of kernels of which nothing is known.
const ELSEWHERE: Work = Work::elements(1);

/// A product, or an attention, that ran: by its operation, or by the launch of a graph and the operation of its capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ran {
    Alone(u32),
    InGraph(usize, u32),
}

/// How the names of copies begin, as PyTorch's profiler has them.
const COPY: &str = "Memcpy ";

/// The numbers of the names of copies of which each states its bytes: where one doesn't, a rate of its like would be too low.
pub(super) fn stated_copies(trace: &Trace, timed: &[Timed]) -> HashSet<u32> {
    let mut all: HashMap<u32, bool> = HashMap::new();
    for event in timed.iter().filter(|event| event.kind == EventKind::Work) {
        if trace.names[event.name as usize].starts_with(COPY) {
            let link = event.link.and_then(|link| trace.links.get(link as usize));
            *all.entry(event.name).or_insert(true) &= link.is_some_and(|link| link.bytes.is_some());
        }
    }
    all.into_iter().filter(|&(_, is_stated)| is_stated).map(|(name, _)| name).collect()
}

/// The work of kernels by the indexes of their events. Of several kernels that one product launched, the one that takes the
/// most time has all of it: nothing is split. If one of them isn't in the file, none has any. And how many attentions ran whose
/// work isn't known, by what it lacks.
pub(super) fn of_kernels(
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    inside: &Inside,
) -> (HashMap<usize, Work>, BTreeMap<Why, u64>) {
    let mut of_event: Vec<(usize, Ran)> = Vec::new();
    // The work, the longest kernel and its time, and how many were launched one by one.
    let mut all: HashMap<Ran, (Work, usize, u64, u32)> = HashMap::new();
    let mut counted: HashSet<u64> = HashSet::new();
    let mut without: HashMap<u32, Why> = HashMap::new();
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Work) {
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        if trace.names[event.name as usize] == MARKER {
            continue;
        }
        let launch = link.and_then(|link| launch_of(host, link));
        let (ran, work, is_launch) = if let Some((ran, work)) = inside.product(at) {
            (Ran::InGraph(ran.0, ran.1), work, false)
        } else {
            let Some(launch) = launch.filter(|launch| !launch.is_graph) else { continue };
            let Some(number) = launch.product else { continue };
            if let Some(why) = host.without_work.get(&number) {
                without.insert(number, *why);
                continue;
            }
            let Some((work, _)) = host.products.get(number as usize) else { continue };
            // Each launch once.
            let correlation = link.and_then(|link| link.correlation);
            let is_new = correlation.is_some_and(|correlation| counted.insert(correlation));
            (Ran::Alone(number), *work, launch.is_of_kernel && is_new)
        };
        of_event.push((at, ran));
        let ns = event.end.abs_diff(event.start);
        let (_, longest, most, launches) = all.entry(ran).or_insert((work, at, ns, 0));
        *launches += u32::from(is_launch);
        if ns > *most {
            (*longest, *most) = (at, ns);
        }
    }
    let mut works = HashMap::new();
    for (at, ran) in of_event {
        let Some(&(work, longest, _, launches)) = all.get(&ran) else { continue };
        let is_whole = match ran {
            Ran::Alone(number) => {
                host.products.get(number as usize).is_some_and(|(_, of)| launches >= *of)
            }
            Ran::InGraph(..) => true,
        };
        if !is_whole {
            continue;
        }
        if at == longest {
            works.insert(at, work);
        } else if work.bytes > 0 {
            works.insert(at, ELSEWHERE);
        }
    }
    let mut counts: BTreeMap<Why, u64> = BTreeMap::new();
    for why in without.into_values().chain(inside.without_work()) {
        *counts.entry(why).or_default() += 1;
    }
    (works, counts)
}
