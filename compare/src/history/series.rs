//! From runs to series: which runs share a line, which make one point of it, and where it changed.

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::stats::changes::{ALPHA, LEAST_POINTS, steps, two_states};
use brickscope_profile::stats::median;
use brickscope_profile::text::count;
use serde::Serialize;

use super::Measure;
use super::run::{Difference, Figures, Run, RunTest, UNATTRIBUTED, differences};
use crate::fleet::{Fleet, Observation};

/// What must be equal for two runs to be on one line.
///
/// Whatever else differs between them, and may explain why a figure changed, is noted at each [`Point`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct SeriesKind {
    /// The hash of the model's file: a name isn't the model, and a path even less. Empty for runs without a receipt, whose
    /// model is told by what they state of it.
    pub model_sha256: String,
    /// How its weights are stored.
    pub quantization: String,
    /// The test, by llama-bench's name.
    pub test: String,
    /// Prompt tokens.
    pub n_prompt: u64,
    /// Generated tokens.
    pub n_gen: u64,
    /// Tokens in the cache before the test.
    pub n_depth: u64,
    /// `cpu`, `cuda` or `wgpu`.
    pub backend: String,
    /// The device, as its driver names it; `None` on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The instruction set of the kernels.
    pub kernels: String,
    /// Threads.
    pub threads: u32,
    /// The most tokens in one of its measured passes.
    pub batch: u64,
    /// Whether the profiler was on.
    pub profiled: bool,
    /// What another program states of how it measured, by name: its options that aren't at their defaults, and the size of
    /// the model's file. Empty for receipts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// The kind of machine.
    pub machine: MachineKind,
}

/// What makes two machines comparable. Unless receipts name their machines, a change of `boot` at a point means a
/// restart or another machine that is equal in all of this.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct MachineKind {
    /// The operating system.
    pub os: String,
    /// The architecture.
    pub arch: String,
    /// The processor, as it names itself.
    pub cpu: Option<String>,
    /// Its family, model and stepping.
    pub cpu_id: Option<String>,
    /// Logical processors.
    pub logical_cpus: Option<u32>,
    /// Threads per core.
    pub threads_per_core: Option<u32>,
    /// Memory, in whole GiB, rounded up.
    pub memory_gib: Option<u64>,
    /// The hypervisor that it runs under.
    pub hypervisor: Option<String>,
    /// CPU time that the control group grants, in thousandths of a CPU.
    pub cgroup_milli_cpus: Option<u64>,
}

/// One kind of measurement over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Series {
    /// The model's name or, if it has none, its path; if runs differ, that of the last one.
    pub model: String,
    /// What was measured, on what.
    pub kind: SeriesKind,
    /// The points, oldest first.
    pub points: Vec<Point>,
    /// The levels of the points, from change to change. Points without a figure are in none.
    pub levels: Vec<Level>,
    /// Where the level changed.
    pub changes: Vec<Change>,
    /// Why changes can't be detected.
    pub changes_absent: Option<String>,
    /// Commits and machines taken apart, if the runs name more than one machine. Then no change is searched for in the
    /// order of time, where another machine looks like a change.
    pub fleet: Option<Fleet>,
}

/// The points from one change to the next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    /// The index of the first of them.
    pub from: u64,
    /// The index of the last of them.
    pub to: u64,
    /// The median of their figures.
    pub median: f64,
    /// How many of them have a figure.
    pub points: u64,
}

/// A run, or the runs of a set, on a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// When it ended, RFC 3339 in UTC.
    pub time: String,
    /// The version of the program.
    pub version: String,
    /// SHA-256 of the program's file.
    pub binary: Option<String>,
    /// The commit that it was built from, if the receipt states it.
    pub commit: Option<String>,
    /// The machine's name, if the receipt states it.
    pub machine: Option<String>,
    /// The files of the receipts.
    pub sources: Vec<String>,
    /// The processes that it summarises.
    pub processes: u64,
    /// The processes that the set should have.
    pub processes_of: u64,
    /// Measured repetitions of all processes.
    pub repetitions: u64,
    /// The figure: for one process the median of its repetitions, for several the median of those. The
    /// least and most are among the repetitions, or among the processes' medians. `null` if it wasn't
    /// measured.
    pub figures: Option<Figures>,
    /// Why it is absent.
    pub absent: Option<String>,
    /// The figure divided by that of the same machine's point before, minus 1.
    pub against_before: Option<f64>,
    /// The figure divided by the median of its level's points, minus 1.
    pub against_level: Option<f64>,
    /// Repetitions that other work on the machine disturbed; the figure includes them.
    pub disturbed: u64,
    /// What makes the figure doubtful, one sentence each.
    pub doubts: Vec<String>,
    /// The conditions that differ from the same machine's point before.
    pub differences: Vec<Difference>,
}

/// A place where the level of a series changed: between two points, found among all points of the series.
/// Of series whose noise doesn't depend on its order at most 1 in 100 get one ([`ALPHA`]); if the machine's
/// speed itself comes and goes it is more, however careful the test (`docs/evidence/history.md` has measured rates).
/// Sources and reasons are in `profile/src/stats/changes.rs`. In short, a change needs [`LEAST_POINTS`] points,
/// [`LEAST_SEGMENT`](super::LEAST_SEGMENT) of them on either side; it is larger than the variation of
/// neighbouring points, and a single outlier makes none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The index of the first point of the new level.
    pub at: u64,
    /// The time of that point.
    pub time: String,
    /// The median of the points from the change before to this one.
    pub before: f64,
    /// The median of the points from this one to the next change.
    pub after: f64,
    /// `after` divided by `before`.
    pub ratio: f64,
    /// Whether that is a slowdown.
    pub is_slower: bool,
    /// The probability that chance does as well.
    pub p: f64,
    /// The number of points since the change before.
    pub points_before: u64,
    /// The number of points up to the next change.
    pub points_after: u64,
    /// The other conditions that changed at the first point of the new level.
    pub differences: Vec<Difference>,
    /// Where the time went: the measured nanoseconds per token of each brick before and after, those that
    /// changed most first. Empty for the history of one brick.
    pub bricks: Vec<BrickChange>,
    /// Why there are no bricks.
    pub bricks_absent: Option<String>,
}

/// A brick before and after a change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrickChange {
    /// Its name; `unattributed` for the time in no brick.
    pub name: String,
    /// Nanoseconds per token: the median of the points before; `null` if the brick was absent.
    pub before_ns: Option<f64>,
    /// The same after the change.
    pub after_ns: Option<f64>,
    /// `after_ns` − `before_ns`; `null` if either is.
    pub difference_ns: Option<f64>,
    /// That divided by the difference of the whole token: above 1, or below 0, if other bricks changed the
    /// other way. `null` if either difference is absent.
    pub of_change: Option<f64>,
}

/// The series of all tests of `runs`, which must be in order of time.
pub(super) fn all(runs: &[Run], measure: &Measure) -> Vec<Series> {
    let mut by_kind: BTreeMap<&SeriesKind, Vec<Vec<TestOfRun<'_>>>> = BTreeMap::new();
    for run in runs {
        for test in &run.tests {
            let points = by_kind.entry(&test.kind).or_default();
            let part = TestOfRun { run, test };
            // A set's arms may be two programs, which make a point each.
            let same = |point: &&mut Vec<TestOfRun<'_>>| {
                run.set.is_some()
                    && point[0].run.set == run.set
                    && point[0].run.binary == run.binary
            };
            match points.iter_mut().find(same) {
                Some(point) => point.push(part),
                None => points.push(vec![part]),
            }
        }
    }
    let mut all: Vec<Series> =
        by_kind.into_iter().map(|(kind, points)| series(kind, points, measure)).collect();
    // Stable: within a model the series stay ordered by kind.
    all.sort_by(|a, b| a.model.cmp(&b.model));
    all
}

/// One test of one run.
#[derive(Clone, Copy)]
struct TestOfRun<'r> {
    run: &'r Run,
    test: &'r RunTest,
}

fn series(kind: &SeriesKind, mut parts: Vec<Vec<TestOfRun<'_>>>, measure: &Measure) -> Series {
    // By the end of a set, since other runs may lie between its first and its last process.
    parts.sort_by(|a, b| a[a.len() - 1].run.cmp_by_time(b[b.len() - 1].run));
    let mut points: Vec<Point> = parts.iter().map(|point| Point::of(point, measure)).collect();
    // Of several machines, another one's point says nothing of what changed.
    let machine = |i: usize| parts[i][0].run.machine();
    let named: BTreeSet<&str> = (0..parts.len()).filter_map(machine).collect();
    let mut last: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for i in 0..points.len() {
        let of = machine(i).filter(|_| named.len() > 1);
        let Some(before) = last.insert(of, i) else { continue };
        let [was, now] = [&points[before], &points[i]].map(|p| p.figures.map(|f| f.median));
        points[i].against_before = now.zip(was).and_then(|(now, was)| over(now, was));
        points[i].differences = differences(parts[before][0].run, parts[i][0].run);
    }
    // Points without a figure are in the table, but in no level.
    let present: Vec<usize> = (0..points.len()).filter(|&i| points[i].value().is_some()).collect();
    let values: Vec<f64> = present.iter().filter_map(|&i| points[i].value()).collect();
    let fleet = fleet(&parts, measure);
    // Its levels are the machine's then, and no change of a program can be told from one of theirs.
    let states = two_states(&values).filter(|_| fleet.is_none());
    let steps = if states.is_some() || fleet.is_some() { Vec::new() } else { steps(&values) };
    let mut edges: Vec<usize> = steps.iter().map(|step| step.at).collect();
    edges.insert(0, 0);
    edges.push(values.len());
    let mut levels: Vec<Level> = Vec::new();
    for edge in edges.windows(2) {
        let (start, end) = (edge[0], edge[1]);
        let Some(median) = median(&values[start..end]) else { continue };
        for at in start..end {
            points[present[at]].against_level = over(values[at], median);
        }
        let [from, to] = [start, end - 1].map(|at| present[at] as u64);
        levels.push(Level { from, to, median, points: (end - start) as u64 });
    }
    let change = |i: usize| {
        let (start, at, end) = (edges[i], edges[i + 1], edges[i + 2]);
        let (before, after) = (levels.get(i)?.median, levels.get(i + 1)?.median);
        let sides = [&present[start..at], &present[at..end]];
        let sides = sides.map(|side| side.iter().map(|&i| &parts[i][..]).collect::<Vec<_>>());
        let (bricks, bricks_absent) = match measure {
            Measure::TokensPerSecond => match bricks(&sides) {
                Some(bricks) => (bricks, None),
                None => (Vec::new(), Some(NO_BRICKS.to_owned())),
            },
            Measure::Brick(_) => (Vec::new(), None),
        };
        let first = &points[present[at]];
        Some(Change {
            at: present[at] as u64,
            time: first.time.clone(),
            before,
            after,
            ratio: after / before,
            is_slower: (after > before) == measure.is_time(),
            p: steps[i].p,
            points_before: (at - start) as u64,
            points_after: (end - at) as u64,
            differences: differences(parts[present[at - 1]][0].run, parts[present[at]][0].run),
            bricks,
            bricks_absent,
        })
    };
    let changes = (0..steps.len()).filter_map(change).collect();
    let changes_absent = match states {
        _ if fleet.is_some() => Some(
            "its runs are of several machines, and another machine looks like a change".to_owned(),
        ),
        Some([low, high]) => Some(format!(
            "too noisy: the figures go back and forth between two levels that are {:.0} % apart, as they do on a \
             machine with two states; `brickscope versus 'OLD COMMAND' 'NEW COMMAND'` runs two in turns, and tells \
             which is slower",
            100.0 * (high / low - 1.0)
        )),
        None => (values.len() < LEAST_POINTS).then(|| {
            format!(
                "{} of the {LEAST_POINTS} points needed to tell a change from chance (p ≤ {ALPHA})",
                values.len()
            )
        }),
    };
    let model = parts.last().map_or(String::new(), |last| last[last.len() - 1].run.model.clone());
    Series { model, kind: kind.clone(), points, levels, changes, changes_absent, fleet }
}

/// Commits and machines taken apart; `None` unless the runs name several machines.
fn fleet(parts: &[Vec<TestOfRun<'_>>], measure: &Measure) -> Option<Fleet> {
    let parts = || parts.iter().flatten();
    let runs: Vec<Observation> =
        parts().filter_map(|part| part.run.observation(part.test, measure)).collect();
    if runs.iter().all(|run| run.machine == runs[0].machine) {
        return None;
    }
    let mut fleet = Fleet::fit(&runs, &Fleet::order_by_time(&runs), measure.is_time()).ok()?;
    let unnamed = parts().filter(|part| part.run.machine.is_none()).count() as u64;
    if unnamed > 0 {
        fleet.doubts.push(format!(
            "of which machine {} are: set BRICKSCOPE_MACHINE where benchmarks run",
            count(unnamed, "run")
        ));
    }
    Some(fleet)
}

const NO_BRICKS: &str =
    "the runs on one side or both have no brick times: there was no profiler, or it was off";

impl Point {
    fn of(parts: &[TestOfRun<'_>], measure: &Measure) -> Self {
        let each: Option<Vec<Figures>> =
            parts.iter().map(|part| part.test.figures(measure)).collect();
        let figures = each.and_then(|each| match each.as_slice() {
            [one] => Some(*one),
            several => Figures::of(&several.iter().map(|f| f.median).collect::<Vec<_>>()),
        });
        let last = parts[parts.len() - 1].run;
        let mut doubts: Vec<String> = parts.iter().flat_map(|p| p.test.doubts.clone()).collect();
        let mut known = std::collections::BTreeSet::new();
        doubts.retain(|doubt| known.insert(doubt.clone()));
        let sum = |of: fn(&RunTest) -> u64| parts.iter().map(|part| of(part.test)).sum();
        let absent = match measure {
            Measure::TokensPerSecond => "a repetition without a time, or no repetition".to_owned(),
            Measure::Brick(brick) => format!("no time of {brick} for every repetition"),
        };
        Self {
            time: format!("{}{}Z", last.time.0, last.time.1),
            version: last.version.clone(),
            binary: last.binary.clone(),
            commit: last.commit.clone(),
            machine: last.machine.clone(),
            sources: parts.iter().map(|part| part.run.source.clone()).collect(),
            processes: parts.len() as u64,
            processes_of: u64::from(last.processes).max(1),
            repetitions: sum(|test| test.repetitions),
            figures,
            absent: figures.is_none().then_some(absent),
            against_before: None,
            against_level: None,
            disturbed: sum(|test| test.disturbed),
            doubts,
            differences: Vec::new(),
        }
    }

    /// The figure for levels: a brick that took no time at all has no ratio to others.
    fn value(&self) -> Option<f64> {
        self.figures.map(|figures| figures.median).filter(|&median| median > 0.0)
    }
}

/// `a` ÷ `b` − 1, if that is a number.
fn over(a: f64, b: f64) -> Option<f64> {
    Some(a / b - 1.0).filter(|ratio| ratio.is_finite())
}

/// Each brick before and after; `None` unless every point has bricks.
fn bricks(sides: &[Vec<&[TestOfRun<'_>]>; 2]) -> Option<Vec<BrickChange>> {
    let all = || sides.iter().flatten().flat_map(|point| point.iter());
    if !all().all(|part| part.test.bricks.iter().any(|(name, _)| name != UNATTRIBUTED)) {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in all().flat_map(|part| &part.test.bricks) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // The median of a side's points, each the median of its processes. A point without the brick has
    // no figure, so a brick counts as present if half of the points have it.
    let level = |side: &Vec<&[TestOfRun<'_>]>, of: &dyn Fn(&RunTest) -> Option<Figures>| {
        let figures = |part: &TestOfRun<'_>| of(part.test).map(|figures| figures.median);
        let point = |parts: &&[TestOfRun<'_>]| {
            median(&parts.iter().filter_map(figures).collect::<Vec<_>>())
        };
        let points: Vec<f64> = side.iter().filter_map(point).collect();
        median(&points).filter(|_| 2 * points.len() > side.len())
    };
    let whole = {
        let [before, after] = sides.each_ref().map(|side| level(side, &|test| test.wall));
        after? - before?
    };
    let mut bricks: Vec<BrickChange> = names
        .into_iter()
        .filter_map(|name| {
            let [before_ns, after_ns] =
                sides.each_ref().map(|side| level(side, &|test| test.brick(name)));
            before_ns.or(after_ns)?;
            let difference_ns = after_ns.zip(before_ns).map(|(after, before)| after - before);
            let of_change = difference_ns.map(|ns| ns / whole).filter(|part| part.is_finite());
            Some(BrickChange {
                name: name.to_owned(),
                before_ns,
                after_ns,
                difference_ns,
                of_change,
            })
        })
        .collect();
    bricks.sort_by(|a, b| {
        // A brick that appeared or vanished counts with all of its time.
        let size = |brick: &BrickChange| {
            brick.difference_ns.or(brick.after_ns).or(brick.before_ns).unwrap_or(0.0).abs()
        };
        size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    Some(bricks)
}
