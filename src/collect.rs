//! From the logs of threads to the tables of a [`Profile`](crate::Profile). Runs when somebody asks,
//! never while the model runs.

use std::sync::Arc;

use crate::brick::{Phase, Source};
use crate::profile::{Name, NameKind, Span, Total};
use crate::profiler::{OTHER_BRICK, OTHER_KERNEL, category_of};
use crate::recorder::{Kind, NONE, NameIdx, Slot, ThreadLog};
use crate::stats::BrickStats;

/// The sums of every name in every phase; of names without room if there are any.
///
/// The caller holds the logs, so that no pass ends meanwhile.
pub(crate) fn totals(logs: &[Arc<ThreadLog>], names: &[Name], with_others: bool) -> Vec<Total> {
    let other = |kind| Name { name: "(other)".to_owned(), kind, host: None };
    let others = [other(NameKind::Brick), other(NameKind::Kernel)];
    let others = others.iter().zip([OTHER_BRICK, OTHER_KERNEL]).filter(|_| with_others);
    let named: Vec<(&Name, NameIdx)> = names.iter().zip(0..).chain(others).collect();
    let mut totals = Vec::new();
    for phase in [Some(Phase::Prefill), Some(Phase::Decode), None] {
        let slot = phase.map_or(Slot::Outside, Slot::from);
        for source in Source::ALL {
            for &(name, index) in &named {
                let mut stats = BrickStats::new(&name.name);
                for log in logs {
                    log.read_sums(source, slot, index, &mut stats);
                }
                if stats.count > 0 {
                    let category = (name.kind == NameKind::Brick).then(|| category_of(&name.name));
                    let host = name.host.clone();
                    totals.push(Total { phase, kind: name.kind, category, source, host, stats });
                }
            }
        }
    }
    totals
}

/// Adds a thread's spans in the order in which they began, each with the span around it.
pub(crate) fn add_spans(log: &ThreadLog, lane: u32, spans: &mut Vec<Span>) {
    let mut records: Vec<_> = log.records().enumerate().collect();
    records.sort_by_key(|(_, record)| record.order);
    // What is open while reading on: its place in the log, and among `spans`. A span contains
    // those that began after it and ended, hence were logged, before it.
    let mut open: Vec<(usize, u32)> = Vec::new();
    for (logged, record) in records {
        while open.last().is_some_and(|&(outer, _)| outer < logged) {
            open.pop();
        }
        let index = spans.len() as u32;
        spans.push(Span {
            name: (record.kind != Kind::Layer).then_some(record.name),
            source: record.source,
            lane,
            pass: (record.pass != 0).then_some(record.pass),
            layer: (record.layer != NONE).then_some(record.layer),
            parent: open.last().map(|&(_, index)| index),
            start_ns: record.start,
            duration_ns: record.duration,
            exclusive_ns: record.exclusive,
            work: record.work,
        });
        open.push((logged, index));
    }
}
