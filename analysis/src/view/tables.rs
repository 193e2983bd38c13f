//! The tables of bricks and categories, of the host or of a stream of a device.

use std::fmt::Write;

use brickscope_profile::text::{MOST_ROWS, alike_when_cut, grouped, micros, percent, shortened};
use brickscope_profile::{BrickCategory, Phase, Profile, Source, Total};

/// How much a report has of what there may be thousands of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Rows of a table.
    pub(super) rows: usize,
    /// Lines of the tree of a pass.
    pub(super) tree: usize,
    /// Streams of a device that have tables.
    pub(super) streams: usize,
}

impl Limits {
    pub(super) const NONE: Self = Self { rows: MOST_ROWS, tree: usize::MAX, streams: usize::MAX };
    /// The first that fits is taken.
    pub(super) const OF_IMPORTED: [Self; 5] = [
        Self::NONE,
        Self { rows: MOST_ROWS, tree: 40, streams: 8 },
        Self { rows: 20, tree: 30, streams: 4 },
        Self { rows: 12, tree: 20, streams: 3 },
        Self { rows: 8, tree: 12, streams: 1 },
    ];

    /// The first lines of a tree, and how many more there are.
    pub(super) fn tree(&self, tree: &str, args: &str) -> String {
        let all = tree.lines().count();
        if all <= self.tree {
            return tree.to_owned();
        }
        let shown: Vec<&str> = tree.lines().take(self.tree).collect();
        let more = grouped((all - self.tree) as u64);
        format!("{}\n… and {more} lines more: `{args}--as tree`", shown.join("\n"))
    }
}

/// Rows of the critical path: enough for the bricks of a layer and those around the layers.
pub(super) const PATH_ROWS: usize = 12;

/// Unattributed wall time: its name, nanoseconds, and the number of passes it comes from.
pub(super) type Rest<'n> = (&'n str, u64, u64);

/// The tables of bricks and categories of one phase. `wall_ns` is what its passes took, if `profile` has other times.
pub(super) fn tables(
    profile: &Profile,
    phase: Option<Phase>,
    rests: &[Rest<'_>],
    wall_ns: Option<u64>,
    limits: &Limits,
    text: &mut String,
) {
    let total = phase.and_then(|phase| profile.phase(phase));
    let bricks = profile.bricks(phase);
    let attributed: u64 =
        bricks.iter().map(|brick| brick.stats.exclusive_ns).fold(0, u64::saturating_add);
    // Without a pass there is no wall time; shares are of the attributed time.
    let whole = total.map_or(attributed, |total| total.wall_ns) as f64;
    // An imported profile may have a function around all others, with no time of its own.
    let is_nested = profile.imported.is_some()
        && bricks.iter().any(|brick| brick.stats.exclusive_ns != brick.stats.total_ns);
    let row =
        |name: &str, avg: &str, times: [&str; 2], count: &str, share: &str, spread: [&str; 2]| {
            let [p50, p99] = spread;
            let [own, inclusive] = times;
            let row = if is_nested {
                format!(
                    "{name:20} {avg:>10} {own:>10} {inclusive:>10} {count:>8} {share:>7} {p50:>9}"
                )
            } else {
                format!("{name:20} {avg:>10} {own:>10} {count:>8} {share:>7} {p50:>9} {p99:>9}")
            };
            row.trim_end().to_owned() + "\n"
        };
    let header = ["p50 (µs)", "p99 (µs)"];
    let (times, width) =
        if is_nested { (["Own (µs)", "Incl. (µs)"], 80) } else { (["Total (µs)", ""], 79) };
    text.push_str(&row("Brick", "Avg (µs)", times, "Count", "Share", header));
    let _ = writeln!(text, "{}", "-".repeat(width));
    let mut has_too_few = false;
    let mut spread = |brick: &Total| {
        // Percentiles are of whole spans; the average is too, but only if no brick lies inside.
        if brick.stats.exclusive_ns != brick.stats.total_ns {
            return [String::new(), String::new()];
        }
        let percentiles = &brick.percentiles;
        // Imported sums have no spread, however many spans they are of.
        let has_spread = brick.stats.histogram.count() == brick.stats.count;
        [percentiles.p50_ns, percentiles.p99_ns].map(|nanos| {
            has_too_few |= nanos.is_none() && has_spread && brick.stats.count > 0;
            nanos.map_or("-".to_owned(), |nanos| micros(nanos as f64))
        })
    };
    let shown = || bricks.iter().take(limits.rows);
    let alike = alike_when_cut(shown().map(|brick| &*brick.stats.name), 20);
    for brick in shown() {
        let stats = &brick.stats;
        let mark = if brick.source == Source::HostOrder { "†" } else { "" };
        let name = match alike.get(&*stats.name) {
            Some(whole) => {
                let _ = writeln!(text, "{whole}");
                mark.to_owned()
            }
            None => shortened(&stats.name, 20 - mark.chars().count(), mark),
        };
        text.push_str(&row(
            &name,
            &average(stats.exclusive_ns, stats.count),
            [&*micros(stats.exclusive_ns as f64), &*micros(stats.total_ns as f64)],
            &number(stats.count),
            &percent(stats.exclusive_ns as f64, whole),
            spread(brick).each_ref().map(String::as_str),
        ));
    }
    if bricks.len() > limits.rows {
        let rest = &bricks[limits.rows..];
        let nanos: u64 =
            rest.iter().map(|brick| brick.stats.exclusive_ns).fold(0, u64::saturating_add);
        let spans: u64 = rest.iter().map(|brick| brick.stats.count).fold(0, u64::saturating_add);
        text.push_str(&row(
            &format!("({} more)", grouped(rest.len() as u64)),
            &average(nanos, spans),
            [&*micros(nanos as f64), ""],
            &number(spans),
            &percent(nanos as f64, whole),
            ["", ""],
        ));
    }
    if let Some(total) = total {
        let sum = if wall_ns.is_some() { "sum" } else { "wall" };
        let wall = (sum, total.wall_ns, total.passes);
        for (name, nanos, passes) in rests.iter().copied().chain([wall]) {
            text.push_str(&row(
                name,
                &micros(nanos as f64 / passes as f64),
                [&*micros(nanos as f64), ""],
                &passes.to_string(),
                &percent(nanos as f64, whole),
                ["", ""],
            ));
        }
    }
    if let (Some(total), Some(wall_ns)) = (total, wall_ns) {
        let beyond_ns = wall_ns.saturating_sub(total.wall_ns);
        for (name, nanos) in [("beyond the sum", beyond_ns), ("wall", wall_ns)] {
            let (avg, own) = (micros(nanos as f64 / total.passes as f64), micros(nanos as f64));
            text.push_str(&row(name, &avg, [&*own, ""], &total.passes.to_string(), "", ["", ""]));
        }
    }
    if is_nested {
        text.push_str("Own time excludes nested bricks; Avg and Share are of own time.\n");
    }
    if has_too_few {
        text.push_str(
            "- not shown, of too few spans: a p50 needs 7, a p99 459. Then the longest span\n  is above the true \
             percentile with 99 % confidence, which is not said of the\n  percentile shown.\n",
        );
    }
    if bricks.iter().any(|brick| brick.source == Source::HostOrder) {
        text.push_str(
            "† host order: from one brick's issue to the next one's, the last to the pass's end\n",
        );
    }
    if bricks.is_empty() {
        return;
    }
    text.push('\n');
    let row = |name: &str, avg: &str, share: &str, count: &str| {
        format!("{name:12} {avg:>10} {share:>8} {count:>10}\n")
    };
    text.push_str(&row("Category", "Avg (µs)", "Pct", "Samples"));
    let _ = writeln!(text, "{}", "-".repeat(44));
    for (category, stats) in BrickCategory::ALL.into_iter().zip(profile.categories(phase)) {
        if stats.count > 0 || stats.total_ns > 0 {
            text.push_str(&row(
                category.name(),
                &average(stats.total_ns, stats.count),
                &percent(stats.total_ns as f64, whole),
                &number(stats.count),
            ));
        }
    }
}

/// The mean of `count` times; `-` if the count is unknown.
fn average(nanos: u64, count: u64) -> String {
    if count == 0 { "-".to_owned() } else { micros(nanos as f64 / count as f64) }
}

/// A count; 0 means unknown, since what was recorded happened at least once.
fn number(count: u64) -> String {
    if count == 0 { "-".to_owned() } else { count.to_string() }
}
