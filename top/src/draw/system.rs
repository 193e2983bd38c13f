//! The view of the process, the machine and the measurement itself.

use brickscope_analysis::view::disturbed_by;
use ratatui::text::Line;

use super::Paint;
use crate::app::{App, Seen, State};
use crate::figures::bytes;
use crate::text::{cut, padded, printable, printable_text};

/// The whole page, which scrolls.
pub(super) fn lines(app: &App, seen: &Seen, paint: Paint) -> Vec<Line<'static>> {
    let numbers = app.numbers(seen);
    let profile = &seen.snapshot.profile;
    let mut lines = Vec::new();
    let mut section = |name: &str, of: Vec<String>| {
        lines.push(Line::styled(format!(" {name}"), paint.bold()));
        lines.extend(of.into_iter().map(|line| Line::raw(format!("   {line}"))));
    };
    let threads = match &numbers.activity.0 {
        Ok(activity) => match &activity.threads {
            Some(threads) => threads
                .iter()
                .map(|thread| {
                    let name = padded(&cut(&printable(&thread.name), 16), 16);
                    format!(
                        "{name} {:>7}  busy {:>5.1}%  waiting for a core {:>5.1}%",
                        thread.tid,
                        100.0 * thread.busy,
                        100.0 * thread.waiting
                    )
                })
                .collect(),
            None => vec!["absent: this kernel doesn't count the times of threads".to_owned()],
        },
        Err(why) => vec![format!("absent: {}", why.reason)],
    };
    section("Threads, over the last second", threads);
    let machine = numbers.activity.0.as_ref().ok().and_then(|activity| activity.machine);
    section(
        "CPU time of the machine",
        vec![match machine {
            Some(machine) => {
                let stolen = machine.stolen.map(|part| format!(", stolen {:.1}%", 100.0 * part));
                format!(
                    "engine {:.1}%, this view {:.1}%, others {:.1}%{}",
                    100.0 * machine.own,
                    100.0 * machine.watcher,
                    100.0 * machine.others,
                    stolen.unwrap_or_default()
                )
            }
            None => "absent: the system doesn't report it, or not yet".to_owned(),
        }],
    );
    section(
        "Memory",
        vec![match &numbers.memory.0 {
            Ok(memory) => {
                let known = |n: Option<u64>| n.map_or("-".to_owned(), bytes);
                format!(
                    "resident {}, of which files {}; at most {}",
                    bytes(memory.resident_bytes),
                    known(memory.file_bytes),
                    known(memory.peak_bytes)
                )
            }
            Err(why) => format!("absent: {}", why.reason),
        }],
    );
    section(
        "Disturbance of the newest passes",
        vec![match &numbers.disturbance.0 {
            Ok(found) => {
                let us = |ns: Option<u64>| {
                    ns.map_or("-".to_owned(), |ns| format!("{:.0} µs", ns as f64 / 1e3))
                };
                format!(
                    "{}; {} passes: waited {} for cores, {} switches, stolen {}",
                    found.disturber().map_or("nobody disturbed them", disturbed_by),
                    found.passes,
                    us(found.run_queue_wait_ns),
                    found.involuntary_switches.map_or("-".to_owned(), |n| n.to_string()),
                    us(found.steal_ns)
                )
            }
            Err(why) => format!("absent: {}", why.reason),
        }],
    );
    let mut dropped = *numbers.dropped;
    if dropped.open_passes > 0 && app.state != State::Ended {
        // An open pass and its open spans are normal while the engine runs.
        (dropped.open_passes, dropped.unfinished) = (0, 0);
    }
    let dropped: Vec<String> = dropped.lines().chain(numbers.elsewhere.iter().cloned()).collect();
    let none = vec!["none".to_owned()];
    section("Drops", if dropped.is_empty() { none } else { dropped });
    let estimate = profile
        .overhead
        .estimate_ns()
        .map(|ns| format!("{:.1} ms of {} spans; ", ns / 1e6, profile.overhead.spans));
    let basis = printable_text(&profile.overhead.basis);
    section("Overhead", vec![format!("{}{basis}", estimate.unwrap_or_default())]);
    let clock = &profile.clock;
    section("Clock", vec![printable(&clock.source)]);
    section(
        "Ceilings",
        vec![match (&profile.ceilings, &profile.ceilings_absent) {
            (Some(ceilings), _) => format!(
                "reads {:.1} GB/s, computes {:.1} GFLOP/s ({})",
                ceilings.memory_limit() / 1e9,
                ceilings.peak_per_second() / 1e9,
                printable_text(&ceilings.basis)
            ),
            (None, Some(why)) => format!("absent: {}", printable_text(&why.reason)),
            (None, None) => "absent: the engine doesn't state the machine's ceilings".to_owned(),
        }],
    );
    lines
}
