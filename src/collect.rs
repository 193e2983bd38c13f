//! From the logs of threads to the tables of a [`Profile`](crate::Profile). Runs when somebody asks,
//! never while the model runs.

use std::collections::HashMap;

use crate::brick::{Phase, Source};
use crate::fold::{PassRecord, Slot};
use crate::latency::Latency;
use crate::profile::{Dropped, Name, NameKind, Pass, PhaseTotal, Profile, Span, Total};
use crate::profiler::{OTHER_BRICK, OTHER_KERNEL, category_of};
use crate::recorder::{Collected, Kind, Lane, NONE, NameIdx, Record, Recorder};
use crate::stats::BrickStats;

/// Fills the tables of `profile`, which has the names already. `with_others`: there are sums of
/// names for which there was no room.
pub(crate) fn fill(profile: &mut Profile, recorder: &Recorder, with_others: bool) {
    let mut totals = Totals::new(&profile.names, with_others);
    let mut lanes: Vec<Lane> = Vec::new();
    let mut passes: Vec<PassRecord> = Vec::new();
    let mut phases = Phase::ALL.map(|_| (0, BrickStats::new("")));
    let dropped = &mut profile.dropped;
    let (mut begun, mut ended) = (0, 0);
    recorder.collect(|mut log| {
        totals.add(&log);
        lanes.extend(log.lanes());
        let fold = log.fold();
        passes.extend(&fold.passes);
        for ((tokens, walls), sums) in phases.iter_mut().zip(&fold.phases) {
            *tokens += sums.tokens;
            sums.walls.add_to(walls);
        }
        add_oddities(dropped, &log);
        begun += log.begun();
        ended += fold.oddities.ended;
    });
    dropped.homeless = recorder.homeless();
    // Over all logs, since a brick may begin on one thread and end on another.
    dropped.unfinished = u64::saturating_sub(begun, ended);
    profile.overhead.spans = ended;
    profile.totals = totals.finish();
    profile.phases = Phase::ALL
        .into_iter()
        .zip(phases)
        .filter(|(_, (_, walls))| walls.count > 0)
        .map(|(phase, (tokens, walls))| PhaseTotal {
            phase,
            passes: walls.count,
            tokens,
            wall_ns: walls.total_ns,
            attributed_ns: walls.exclusive_ns,
            unattributed_ns: walls.total_ns - walls.exclusive_ns,
        })
        .collect();

    lanes.sort_by_key(|lane| lane.serial);
    let numbers: HashMap<u32, u32> =
        lanes.iter().zip(0..).map(|(lane, number)| (lane.serial, number)).collect();
    profile.passes = passes
        .into_iter()
        .map(|pass| Pass {
            serial: pass.serial,
            phase: pass.phase,
            lane: numbers[&pass.log],
            tokens: pass.tokens,
            position: pass.position,
            start_ns: pass.start,
            wall_ns: pass.wall,
            attributed_ns: pass.covered,
            unattributed_ns: pass.wall - pass.covered,
        })
        .collect();
    profile.passes.sort_by_key(|pass| (pass.start_ns, pass.serial));
    for (lane, number) in lanes.into_iter().zip(0..) {
        profile.lanes.push(crate::profile::Lane { name: lane.thread });
        add_spans(&lane.records, number, &mut profile.spans);
    }
    profile.latency = Latency::of(profile);
}

fn add_oddities(dropped: &mut Dropped, log: &Collected<'_>) {
    let odd = log.fold().oddities;
    dropped.spans += log.dropped();
    dropped.passes += odd.passes_full;
    dropped.moved += odd.moved;
    dropped.straddling += odd.straddling;
    dropped.overlapping += odd.overlapping;
    dropped.nested_passes += odd.nested_passes;
    dropped.abandoned_passes += odd.abandoned_passes;
    dropped.open_passes += u64::from(log.in_pass());
}

/// The sums of every name in every phase.
struct Totals {
    /// In the order of the tables: by phase, then by source, then by name.
    rows: Vec<(Slot, NameIdx, Total)>,
}

impl Totals {
    fn new(names: &[Name], with_others: bool) -> Self {
        let other = |kind| Name { name: "(other)".to_owned(), kind, host: None };
        let others = [other(NameKind::Brick), other(NameKind::Kernel)];
        let others = others.iter().zip([OTHER_BRICK, OTHER_KERNEL]).filter(|_| with_others);
        let named: Vec<(&Name, NameIdx)> = names.iter().zip(0..).chain(others).collect();
        let mut rows = Vec::new();
        for phase in [Some(Phase::Prefill), Some(Phase::Decode), None] {
            let slot = phase.map_or(Slot::Outside, Slot::from);
            for source in Source::ALL {
                for &(name, index) in &named {
                    let category = (name.kind == NameKind::Brick).then(|| category_of(&name.name));
                    let (kind, host) = (name.kind, name.host.clone());
                    let stats = BrickStats::new(&name.name);
                    let percentiles = stats.percentiles();
                    let std_dev_ns = None;
                    let total = Total {
                        phase,
                        kind,
                        category,
                        source,
                        host,
                        stats,
                        std_dev_ns,
                        percentiles,
                    };
                    rows.push((slot, index, total));
                }
            }
        }
        Self { rows }
    }

    fn add(&mut self, log: &Collected<'_>) {
        for (slot, index, total) in &mut self.rows {
            if let Some(sums) = log.fold().sums(total.source, *slot, *index) {
                sums.add_to(&mut total.stats);
            }
        }
    }

    fn finish(self) -> Vec<Total> {
        let recorded = self.rows.into_iter().filter(|(_, _, total)| total.stats.count > 0);
        recorded
            .map(|(_, _, mut total)| {
                total.std_dev_ns = total.stats.std_dev_ns();
                total.percentiles = total.stats.percentiles();
                total
            })
            .collect()
    }
}

/// Adds a thread's spans in the order in which they began, each with the span around it.
fn add_spans(records: &[Record], lane: u32, spans: &mut Vec<Span>) {
    let mut records: Vec<_> =
        records.iter().enumerate().filter(|(_, record)| record.kind.is_span()).collect();
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
