//! Runs over time, as text.

mod csv;
mod markdown;
mod svg;

use std::fmt::Write;

use brickscope_profile::save;
use brickscope_profile::text::{
    count, micros, printable, printable_text, screened, screened_lines, shortened,
};

pub use self::csv::history_csv;
pub use self::markdown::history_markdown;
pub use self::svg::history_svg;
use crate::history::{
    BrickChange, Change, Difference, History, LeftOut, Measure, Point, Series, SeriesKind,
};
use crate::text::wrap;
use crate::view::fleet::fleet_lines;
use crate::words::short;

/// The most bricks that are named at a change; JSON has them all.
const MOST_BRICKS: usize = 5;

/// The points of a sparkline that fit beside its figures.
const MOST_BLOCKS: usize = 56;

/// Each series as a table with a sparkline, its changes with the bricks behind them, and what was
/// left out; at most 80 columns wide.
#[must_use]
pub fn history(history: &History) -> String {
    let mut text = headline(history) + "\n";
    for series in &history.series {
        text.push('\n');
        for line in title(series, &history.measure).into_iter().flat_map(|t| wrap(&t, 78)) {
            let _ = writeln!(text, "{line}");
        }
        sparkline(series, &history.measure, &mut text);
        table(series, &history.measure, &mut text);
        changes(series, &history.measure, &mut text);
    }
    let legend = legend(history);
    if !legend.is_empty() {
        let _ = writeln!(text, "\n{}", legend.join("\n"));
    }
    for (title, list) in [("not verified", &history.not_verified), ("left out", &history.left_out)]
    {
        if !list.is_empty() {
            let _ = writeln!(text, "\n{title}:");
        }
        for line in listed(list).iter().flat_map(|line| wrap(line, 76)) {
            let _ = writeln!(text, "  {line}");
        }
    }
    screened_lines(text)
}

/// The receipts of a reason that are named; of a hundred equal ones the first say all. JSON has all of them.
const MOST_OF_A_REASON: usize = 3;

/// A line for each receipt of a list, and one for all further ones of the same reason.
fn listed(list: &[LeftOut]) -> Vec<String> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    let mut lines = Vec::new();
    for LeftOut { path, reason } in list {
        let nth = match reasons.iter_mut().find(|(of, _)| of == reason) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                reasons.push((reason, 1));
                1
            }
        };
        if nth <= MOST_OF_A_REASON {
            lines.push(format!("{}: {}", printable_text(path), printable_text(reason)));
        }
    }
    let more = reasons.iter().filter(|(_, n)| *n > MOST_OF_A_REASON);
    lines.extend(
        more.map(|(reason, n)| {
            format!("{} more: {}", n - MOST_OF_A_REASON, printable_text(reason))
        }),
    );
    lines
}

/// The history as JSON, for scripts.
#[must_use]
pub fn history_json(history: &History) -> String {
    screened(save::to_json(history))
}

/// How much there is.
fn headline(history: &History) -> String {
    let mut line = format!(
        "{} in {}",
        count(history.runs, if history.without_receipt > 0 { "run" } else { "receipt" }),
        match history.series.len() {
            1 => "1 series".to_owned(),
            n => format!("{n} series"),
        }
    );
    if let Measure::Brick(name) = &history.measure {
        let _ = write!(line, ", of the brick {}", printable(name));
    }
    for (list, what) in [(&history.not_verified, "not verified"), (&history.left_out, "left out")] {
        if !list.is_empty() {
            let _ = write!(line, "; {} {what}, see below", list.len());
        }
    }
    line
}

/// The title of a series: what ran, and on which machine.
fn title(series: &Series, measure: &Measure) -> [String; 2] {
    let kind = &series.kind;
    let brick = match measure {
        Measure::TokensPerSecond => String::new(),
        Measure::Brick(name) => format!("{} in ", printable(name)),
    };
    let quantization = match kind.quantization.as_str() {
        "" => String::new(),
        name => format!(" {}", printable(name)),
    };
    // A prompt that runs in one pass needs no mention of its batch.
    let batch = match kind.batch < kind.n_prompt {
        true => format!(", batch {}", kind.batch),
        false => String::new(),
    };
    let kernels = match kind.kernels.as_str() {
        "" => String::new(),
        kernels => format!(" {}", printable(kernels)),
    };
    let ran_by = match &kind.device {
        None => {
            let threads = count(kind.threads.into(), "thread");
            format!("{threads}, {}{kernels}", printable(&kind.backend))
        }
        Some(device) => format!("{} on {}", printable(&kind.backend), printable(device)),
    };
    // Without a receipt the model has no hash, and nobody expects a profiler.
    let (hash, how) = match kind.model_sha256.as_str() {
        "" => (String::new(), settings(kind)),
        sha256 => (
            format!(" ({})", printable(&digits(sha256))),
            if kind.profiled { "" } else { ", not profiled" }.to_owned(),
        ),
    };
    let ran = format!(
        "{brick}{}: {}{quantization}{hash}, {ran_by}{batch}{how}",
        printable(&kind.test),
        printable(&series.model),
    );
    let machine = &kind.machine;
    let mut on = vec![printable(machine.cpu.as_deref().unwrap_or("unnamed CPU"))];
    on.extend(machine.cpu_id.as_ref().map(|id| format!("family/model/stepping {}", printable(id))));
    on.extend(machine.logical_cpus.map(|n| count(n.into(), "CPU")));
    on.extend(machine.cgroup_milli_cpus.map(|n| format!("{} granted", short(n as f64 / 1e3))));
    on.extend(machine.memory_gib.map(|gib| format!("{gib} GiB")));
    on.extend(machine.hypervisor.as_deref().map(printable));
    if !machine.os.is_empty() {
        on.push(format!("{} {}", printable(&machine.os), printable(&machine.arch)));
    }
    [ran, on.join(", ")]
}

/// What another program states of how it measured, behind a comma.
fn settings(kind: &SeriesKind) -> String {
    let settings = kind.settings.iter();
    settings.map(|(name, value)| format!(", {} {}", printable(name), printable(value))).collect()
}

/// Enough digits of a hash to tell two apart.
fn digits(hash: &str) -> String {
    hash.chars().take(8).collect()
}

/// The levels of the points at a glance, lowest to highest, and where they changed.
fn sparkline(series: &Series, measure: &Measure, text: &mut String) {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let skipped = series.points.len().saturating_sub(MOST_BLOCKS);
    let shown = &series.points[skipped..];
    let values = || shown.iter().filter_map(|point| Some(point.figures?.median));
    let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return;
    };
    let block = |point: &Point| match point.figures {
        None => '·',
        Some(_) if low >= high => BLOCKS[3],
        // In range and no NaN, however hostile the figures: `as` saturates.
        Some(figures) => {
            let part = (figures.median - low) / (high - low);
            BLOCKS[((part * 7.0).round() as usize).min(7)]
        }
    };
    let line: String = shown.iter().map(block).collect();
    let range = match short(low) == short(high) {
        true => format!("{} {}", short(low), measure.unit()),
        false => format!("{} to {} {}", short(low), short(high), measure.unit()),
    };
    let last = if skipped > 0 { format!("the last {}\n", shown.len()) } else { String::new() };
    let _ = writeln!(text, "{last}{line} {range}");
    let is_change = |i| series.changes.iter().any(|change| change.at == i as u64);
    let marks: String =
        (skipped..series.points.len()).map(|i| if is_change(i) { '^' } else { ' ' }).collect();
    if marks.contains('^') {
        let _ = writeln!(text, "{}", marks.trim_end());
    }
}

fn table(series: &Series, measure: &Measure, text: &mut String) {
    let built_of = BuiltOf::of(series);
    let row = |mark: &str, cells: [&str; 5], last: &str, notes: &str| {
        let [time, built, median, low, high] = cells;
        let row =
            format!("{mark:1} {time:16} {built:8}{median:>10}{low:>10}{high:>10}{last:18} {notes}");
        row.trim_end().to_owned() + "\n"
    };
    let of_levels = |before: &str, level: &str| format!("{before:>9}{level:>9}");
    let last = match series.fleet {
        Some(_) => "  machine".to_owned(),
        None => of_levels("before", "level"),
    };
    let head = ["time (UTC)", built_of.name(), measure.unit(), "least", "most"];
    text.push_str(&row("", head, &last, ""));
    let _ = writeln!(text, "{}", "-".repeat(76));
    for (i, point) in series.points.iter().enumerate() {
        let is_change = series.changes.iter().any(|change| change.at == i as u64);
        let figure = |of: fn(&crate::history::Figures) -> f64| {
            point.figures.as_ref().map_or("-".to_owned(), |figures| short(of(figures)))
        };
        let cells = [
            moment(&point.time),
            built_of.cell(point),
            figure(|f| f.median),
            figure(|f| f.low),
            figure(|f| f.high),
        ];
        let last = match series.fleet {
            Some(_) => format!("  {}", machine(point, 16)),
            None => of_levels(&signed(point.against_before), &signed(point.against_level)),
        };
        let mark = if is_change { ">" } else { "" };
        text.push_str(&row(mark, cells.each_ref().map(String::as_str), &last, &notes(point)));
    }
}

/// How the column beside the time identifies the program: by what differs between points.
#[derive(Clone, Copy)]
enum BuiltOf {
    Commit,
    Binary,
    Version,
}

impl BuiltOf {
    fn of(series: &Series) -> Self {
        let any = |of: fn(&Point) -> bool| series.points.iter().any(of);
        match (any(|p| p.commit.is_some()), any(|p| p.binary.is_some())) {
            (true, _) => Self::Commit,
            (false, true) => Self::Binary,
            (false, false) => Self::Version,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Binary => "binary",
            Self::Version => "version",
        }
    }

    fn cell(self, point: &Point) -> String {
        let text = match self {
            Self::Commit => point.commit.as_deref(),
            Self::Binary => point.binary.as_deref(),
            Self::Version => Some(&*point.version),
        };
        text.map_or("-".to_owned(), |text| printable(&digits(text)))
    }
}

/// The name of a point's machine, within so many columns.
fn machine(point: &Point, columns: usize) -> String {
    point.machine.as_deref().map_or("-".to_owned(), |name| shortened(name, columns, ""))
}

/// A letter for each caveat about a point.
fn notes(point: &Point) -> String {
    LEGEND.iter().filter(|(_, is_so, _)| is_so(point)).map(|(letter, ..)| *letter).collect()
}

type Legend = (char, fn(&Point) -> bool, &'static str);

const LEGEND: [Legend; 5] = [
    ('c', |p| p.differences.iter().any(|d| !is_code(d)), "conditions differ from the point before"),
    ('d', |p| p.disturbed > 0, "other work on the machine disturbed some repetitions"),
    ('?', |p| !p.doubts.is_empty(), "the receipt carries warnings"),
    ('i', |p| p.processes < p.processes_of, "processes of its set are missing"),
    ('-', |p| p.absent.is_some(), "no figure"),
];

/// Whether it only says that the program differs, which is expected of a history.
fn is_code(difference: &Difference) -> bool {
    ["binary", "version", "COMMIT"].contains(&difference.what.as_str())
}

/// The letters in use, and what they and the columns mean.
fn legend(history: &History) -> Vec<String> {
    let points = || history.series.iter().flat_map(|series| &series.points);
    let mut lines = Vec::new();
    if history.series.iter().any(|series| series.fleet.is_none() && !series.points.is_empty()) {
        lines.push(
            "before: change from the point before; level: change from its level's median"
                .to_owned(),
        );
    }
    if points().next().is_some() {
        lines.push(
            "least, most: among the processes of a set, or one process's repetitions".to_owned(),
        );
    }
    for (letter, is_so, meaning) in LEGEND {
        if points().any(is_so) {
            lines.push(format!("{letter} {meaning}"));
        }
    }
    lines
}

fn changes(series: &Series, measure: &Measure, text: &mut String) {
    if let Some(fleet) = &series.fleet {
        return text.push_str(&fleet_lines(fleet));
    }
    for change in &series.changes {
        for (i, line) in wrap(&sentence(change, measure), 76).into_iter().enumerate() {
            let _ = writeln!(text, "{}{line}", if i == 0 { "> " } else { "  " });
        }
        if let Some(new) = new_there(change) {
            for line in wrap(&new, 74) {
                let _ = writeln!(text, "    {line}");
            }
        }
        bricks(change, text);
    }
    if series.changes.is_empty() {
        for line in wrap(&no_change(series), 78) {
            let _ = writeln!(text, "{line}");
        }
    }
}

/// Why there are no changes.
fn no_change(series: &Series) -> String {
    match &series.changes_absent {
        Some(absent) => format!("no change can be detected yet: {}", printable_text(absent)),
        None => "no change of the level".to_owned(),
    }
}

fn sentence(change: &Change, measure: &Measure) -> String {
    let how = if change.is_slower { "slower" } else { "faster" };
    format!(
        "{}: {} to {} {}, {}: {how} (p {:.4}; {} before, {} after)",
        moment(&change.time),
        short(change.before),
        short(change.after),
        measure.unit(),
        signed(Some(change.ratio - 1.0)),
        change.p,
        count(change.points_before, "point"),
        change.points_after
    )
}

/// What else differed at a change.
fn new_there(change: &Change) -> Option<String> {
    let new: Vec<String> = change.differences.iter().map(difference).collect();
    (!new.is_empty()).then(|| format!("also new: {}", new.join("; ")))
}

fn difference(difference: &Difference) -> String {
    let side = |value: &Option<String>| match value {
        Some(value) => shortened(value, 40, ""),
        None => "not stated".to_owned(),
    };
    format!(
        "{} {} → {}",
        shortened(&difference.what, 40, ""),
        side(&difference.from),
        side(&difference.to)
    )
}

fn bricks(change: &Change, text: &mut String) {
    if let Some(absent) = &change.bricks_absent {
        for line in wrap(&format!("no bricks: {}", printable_text(absent)), 74) {
            let _ = writeln!(text, "    {line}");
        }
    }
    if change.bricks.is_empty() {
        return;
    }
    let row = |name: &str, cells: [&str; 4]| {
        let [before, after, difference, part] = cells;
        format!("    {name:20}{before:>12}{after:>12}{difference:>12}{part:>12}\n")
    };
    text.push_str(&row("µs per token", ["before", "after", "difference", "of change"]));
    for brick in change.bricks.iter().take(MOST_BRICKS) {
        let cells = brick_cells(brick);
        text.push_str(&row(&shortened(&brick.name, 20, ""), cells.each_ref().map(String::as_str)));
    }
    if change.bricks.len() > MOST_BRICKS {
        let more = (change.bricks.len() - MOST_BRICKS) as u64;
        let _ = writeln!(text, "    and {}, which changed less", count(more, "brick"));
    }
}

/// Before, after, difference in µs, and its part of the change.
fn brick_cells(brick: &BrickChange) -> [String; 4] {
    let time = |ns: Option<f64>| ns.map_or("absent".to_owned(), micros);
    let difference = brick.difference_ns.map_or("-".to_owned(), |ns| {
        let sign = if ns < 0.0 { "-" } else { "+" };
        format!("{sign}{}", micros(ns.abs()))
    });
    let part = brick.of_change.map_or("-".to_owned(), |part| match 100.0 * part {
        percent if percent.abs() < 1e5 => format!("{percent:.1}%"),
        _ => "-".to_owned(),
    });
    [time(brick.before_ns), time(brick.after_ns), difference, part]
}

/// To the minute.
fn moment(time: &str) -> String {
    printable(time).replace('T', " ").chars().take(16).collect()
}

/// A change in percent.
fn signed(change: Option<f64>) -> String {
    match change.map(|change| 100.0 * change) {
        None => "-".to_owned(),
        Some(percent) if percent.abs() < 0.05 => "0.0%".to_owned(),
        Some(percent) if percent > 9999.0 => ">9999%".to_owned(),
        Some(percent) => format!("{percent:+.1}%"),
    }
}
