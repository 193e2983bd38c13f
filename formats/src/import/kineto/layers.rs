//! Which layer and brick kernels are of whose launch doesn't tell it: those inside of graphs, which one call launches
//! together, and those of a program that names no modules.

use std::collections::HashMap;

use brickscope_profile::Pass;

use super::host::Host;
use super::inside::{Graph, Inside};
use super::{EventKind, MARKER, Names, annotations, capture, order};
use crate::import::trace::{Timed, Trace};

/// Finds it out: by the best of what there is.
pub(super) fn of(
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    passes: &[Pass],
    names: &mut Names<'_>,
) -> Inside {
    let mut inside = Inside::default();
    let graphs = graphs(trace, timed, host);
    capture::fill(&mut inside, &graphs, trace, timed, (passes, host), names);
    if !inside.has_layers() {
        annotations::fill(&mut inside, &graphs, trace, timed, names);
    }
    // It tells which product is which, too, so that it is looked at in any case.
    order::fill(&mut inside, trace, timed, host, passes, names);
    inside
}

/// The graphs that were launched, in the order of their launches.
fn graphs(trace: &Trace, timed: &[Timed], host: &Host) -> Vec<Graph> {
    let mut of_launch: HashMap<u64, Graph> = HashMap::new();
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| event.kind == EventKind::Work) {
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let Some(correlation) = link.and_then(|link| link.correlation) else { continue };
        let Some(launch) = host.by_correlation.get(&correlation).filter(|launch| launch.is_graph)
        else {
            continue;
        };
        if trace.names[event.name as usize] == MARKER {
            continue;
        }
        let (pass, issued_ns) = (launch.pass, launch.issued_ns);
        let graph = of_launch.entry(correlation);
        graph.or_insert_with(|| Graph { work: Vec::new(), pass, issued_ns }).work.push(at);
    }
    let mut graphs: Vec<(u64, Graph)> = of_launch.into_iter().collect();
    graphs.sort_by_key(|(correlation, graph)| (graph.issued_ns, *correlation));
    let mut graphs: Vec<Graph> = graphs.into_iter().map(|(_, graph)| graph).collect();
    for graph in &mut graphs {
        graph.work.sort_by_key(|&at| (timed[at].start, at));
    }
    graphs
}
