//! The statistics of every brick and kernel.

use std::fmt::Write;

use brickscope_profile::text::{apart, count, printable, screened_lines};
use brickscope_profile::{Phase, Profile, Total};

/// Count, mean, standard deviation, minimum, percentiles and maximum of the spans of each brick and
/// each kernel, from begin to end, in microseconds; at most 80 columns wide.
///
/// A percentile is not shown (`-`) where there are too few spans to state it
/// ([`Histogram::least_count`](brickscope_profile::Histogram::least_count)).
#[must_use]
pub fn statistics(profile: &Profile) -> String {
    let mut text = String::new();
    for phase in Phase::ALL.into_iter().map(Some).chain([None]) {
        let (bricks, kernels) = (profile.bricks(phase), profile.kernels(phase));
        if bricks.is_empty() && kernels.is_empty() {
            continue;
        }
        let phase = phase.map_or("outside of passes", Phase::name);
        for (what, totals) in [("Bricks", bricks), ("Kernels", kernels)] {
            if !totals.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{what}, {phase}: spans from begin to end, in µs");
                table(&totals, &mut text);
                counters(&totals, &mut text);
            }
        }
    }
    if text.is_empty() {
        text.push_str("Nothing was recorded.\n");
    } else {
        text.push_str(
            "\n- not shown, of too few spans: p50 needs 7, p90 44, p95 90, p99 459. Then the\n  longest span is \
             above the true percentile with 99 % confidence, which is not\n  said of the percentile shown.\n",
        );
    }
    screened_lines(text)
}

const NAME: usize = 16;
/// The most columns of a line.
const COLUMNS: usize = 80;

fn table(totals: &[&Total], text: &mut String) {
    let columns = ["count", "mean", "sd", "min", "p50", "p90", "p95", "p99", "max"];
    text.push_str(&row("", columns));
    // What follows a name is never cut.
    let longest = totals.iter().map(|total| beside_name(total).chars().count()).max().unwrap_or(0);
    let names = totals.iter().map(|total| total.stats.name.as_str());
    let lines = apart(names, COLUMNS.saturating_sub(longest).max(NAME));
    for total in totals {
        let (stats, p) = (&total.stats, &total.percentiles);
        let whole = |nanos: Option<u64>| short(nanos.map(|nanos| nanos as f64));
        // Imported sums have neither.
        let has_ends = stats.min_ns <= stats.max_ns;
        let cells = [
            if stats.count == 0 { "-".to_owned() } else { stats.count.to_string() },
            short(stats.mean_ns()),
            short(total.std_dev_ns),
            whole(has_ends.then_some(stats.min_ns)),
            whole(p.p50_ns),
            whole(p.p90_ns),
            whole(p.p95_ns),
            whole(p.p99_ns),
            whole(has_ends.then_some(stats.max_ns)),
        ];
        let (name, beside) = (total.stats.name.as_str(), beside_name(total));
        if name.chars().count() + beside.chars().count() > NAME {
            let name = lines.get(name).map_or("", String::as_str);
            let _ = writeln!(text, "{name}{beside}");
            text.push_str(&row("", cells.each_ref().map(String::as_str)));
            continue;
        }
        text.push_str(&row(&(printable(name) + &beside), cells.each_ref().map(String::as_str)));
    }
}

/// What stands behind the name of a kernel: what its launches of one name differ in.
fn beside_name(total: &Total) -> String {
    let mut name = String::new();
    // A routine of a file of another program has no shape.
    if let Some(host) = total.host.as_ref().filter(|of| !of.shape.is_empty() || of.threads > 0) {
        // Routines of one name differ in what they work on.
        name = format!("{name}  {}", printable(&host.shape));
        if host.threads > 0 {
            name = format!("{name}  {}", count(host.threads.into(), "thread"));
        }
    }
    if let Some(on) = &total.device {
        name = format!("{name}  {}  {:?} × {:?}", printable(&on.shape), on.grid, on.block);
    }
    name
}

/// The hardware counters of the bricks and kernels that have them.
fn counters(totals: &[&Total], text: &mut String) {
    if totals.iter().all(|total| total.counters.is_none()) {
        return;
    }
    let row = |name: &str, columns: [&str; 6]| {
        columns.iter().fold(format!("{name:NAME$}"), |row, column| format!("{row} {column:>9}"))
            + "\n"
    };
    text.push_str(&row("", ["counted", "cycles", "instr.", "per cycle", "LLC miss", "br. miss"]));
    for total in totals {
        let Some(counters) = &total.counters else { continue };
        let sums = counters.sums;
        let large = |n: Option<u64>| match n {
            None => "n/a".to_owned(),
            Some(n) if n < 1_000_000 => n.to_string(),
            Some(n) => format!("{:.2e}", n as f64),
        };
        let per_cycle = counters.instructions_per_cycle();
        let cells = [
            counters.spans.to_string(),
            large(sums.cycles),
            large(sums.instructions),
            per_cycle.map_or("n/a".to_owned(), |ratio| format!("{ratio:.2}")),
            large(sums.llc_misses),
            large(sums.branch_misses),
        ];
        let name: String = printable(&total.stats.name).chars().take(NAME).collect();
        text.push_str(&row(&name, cells.each_ref().map(String::as_str)));
    }
}

fn row(name: &str, columns: [&str; 9]) -> String {
    columns.iter().fold(format!("{name:NAME$}"), |row, column| format!("{row} {column:>6}")) + "\n"
}

/// Microseconds in at most six characters; from a second on, seconds, with their unit.
fn short(nanos: Option<f64>) -> String {
    let Some(nanos) = nanos else { return "-".to_owned() };
    let us = nanos / 1e3;
    match us {
        _ if us < 9.995 => format!("{us:.2}"),
        _ if us < 999.95 => format!("{us:.1}"),
        _ if us < 999_999.5 => format!("{us:.0}"),
        _ if us < 99.95e6 => format!("{:.2}s", us / 1e6),
        _ => format!("{:.0}s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickProfiler, MockClock};
    use brickscope_profile::BrickId;

    use super::*;

    #[test]
    fn every_span_is_in_the_table_and_no_line_is_too_long() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let kernel = profiler.kernel("a_kernel_with_quite_a_long_name_of_its_own", None);
        for i in 0..460 {
            let brick = profiler.start_brick(BrickId::AttentionSoftmax);
            let timer = profiler.start_kernel(kernel);
            hand.advance(1_000 * i);
            profiler.stop_kernel(timer, Default::default());
            profiler.stop_brick(brick, 1);
        }
        let text = statistics(&profiler.profile());
        assert!(text.lines().all(|line| line.trim_end().chars().count() <= 80), "{text}");
        let row = text.lines().find(|line| line.starts_with("AttentionSoftmax")).expect("a row");
        let cells: Vec<&str> = row.split_whitespace().skip(1).collect();
        assert_eq!(&cells[..4], ["460", "229.5", "132.9", "0.00"], "{text}");
        assert_eq!(cells[8], "459.0", "{text}");
        assert!(text.contains("a_kernel_with_quite_a_long_name_of_its_own"), "{text}");
        assert_eq!(statistics(&BrickProfiler::new().profile()), "Nothing was recorded.\n");
    }
}
