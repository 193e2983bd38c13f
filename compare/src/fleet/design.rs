//! What the fleet's design can tell at all: which machines ran both sides of a difference, and on which days.
//!
//! Whatever the figures are, commits can't be told from machines that no other commit ran on, nor from a day on which no
//! other commit ran: the next fleet's machines may be slower, and a day may be hot. That is asked before anything is
//! estimated. Then machines that ran both sides have to agree: a commit changes all of them, and all of them at that
//! commit, while an update that goes round changes one after the other.

use std::collections::BTreeSet;

use brickscope_profile::stats::{SplitMix64, median};

use super::cells::{Cell, Cells};
use super::explain::Wanted;
use super::model::{Factor, Unit};

/// The largest probability of doubting a commit's change since machines disagree by chance.
const ALPHA: f64 = 0.004;

/// A session of one side: its day, its time, and its logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    day: usize,
    time: i64,
    log: f64,
}

/// A machine that ran both sides, with its sessions in order of time.
#[derive(Debug, Clone, PartialEq)]
struct Both {
    machine: usize,
    sides: [Vec<Seen>; 2],
}

/// Which machines ran the commits before and after, and when.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Design {
    both: Vec<Both>,
    /// The machines that ran one side only, and what these say of noise.
    only: [Vec<usize>; 2],
    alone: Vec<Row>,
    days: [BTreeSet<usize>; 2],
    /// The last commit before, and the first one after.
    commits: [usize; 2],
}

/// Why the commit isn't named.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Doubt {
    /// A sentence, without what to run.
    pub(super) why: String,
    /// The run that would tell.
    pub(super) wanted: Option<Wanted>,
    /// Most machines that ran both sides show nothing.
    pub(super) is_of_few: bool,
}

impl Design {
    /// The design of a difference: `side_of` says on which side a commit is, 0 or 1, if any.
    pub(super) fn of(
        cells: &Cells,
        units: &[Unit],
        commits: [usize; 2],
        side_of: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let mut design = Self {
            both: Vec::new(),
            only: Default::default(),
            alone: Vec::new(),
            days: Default::default(),
            commits,
        };
        for unit in units {
            let mut sides: [Vec<Seen>; 2] = Default::default();
            for s in unit.sessions[0]..unit.sessions[1] {
                let mut logs: [Vec<f64>; 2] = Default::default();
                for cell in &cells.cells[cells.in_session(s)] {
                    if let Some(side) = side_of(cell.commit) {
                        logs[side].push(cell.log);
                    }
                }
                for (side, logs) in logs.iter().enumerate() {
                    if let Some(log) = median(logs) {
                        let (day, time) = (cells.days[s], cells.sessions[s].time);
                        design.days[side].insert(day);
                        sides[side].push(Seen { day, time, log });
                    }
                }
            }
            match sides.each_ref().map(|side| side.is_empty()) {
                [false, false] => design.both.push(Both { machine: unit.machine, sides }),
                [true, true] => {}
                is_empty => {
                    design.only[usize::from(is_empty[0])].push(unit.machine);
                    design.alone.push(Row::of(&[sides.concat()]));
                }
            }
        }
        // A machine that changed itself is several units, and may have run both.
        for machines in &mut design.only {
            machines.retain(|machine| design.both.iter().all(|both| both.machine != *machine));
        }
        design
    }

    /// The only machine that ran both sides, if it ran one side before the other, so that it may have changed itself.
    pub(super) fn lone(&self) -> Option<usize> {
        match &self.both[..] {
            [one] if !is_again(one) => Some(one.machine),
            _ => None,
        }
    }

    /// Whether no other machine ran either side.
    pub(super) fn is_of_one(&self) -> bool {
        self.both.len() == 1 && self.only.iter().all(Vec::is_empty)
    }

    /// What can't be told whatever the figures are.
    pub(super) fn doubt(&self, cells: &Cells) -> Option<Doubt> {
        let doubt = match (self.both.is_empty(), self.lone()) {
            (true, _) => Some(self.of_no_machine(cells)),
            (false, Some(machine)) => Some(self.of_one_machine(cells, machine)),
            (false, None) => None,
        };
        doubt.or_else(|| self.of_one_day(cells))
    }

    pub(super) fn of_no_machine(&self, cells: &Cells) -> Doubt {
        let [before, at] = self.commits.map(|commit| &*cells.commits[commit]);
        // The newer machine is more likely to be there still.
        let wanted = match (self.only[1].first(), self.only[0].first()) {
            (Some(&machine), _) => self.wanted(cells, 0, machine),
            (None, Some(&machine)) => self.wanted(cells, 1, machine),
            (None, None) => None,
        };
        Doubt { why: format!("no machine ran both {before} and {at}"), wanted, is_of_few: false }
    }

    pub(super) fn of_one_machine(&self, cells: &Cells, machine: usize) -> Doubt {
        let why = format!(
            "only {} ran commits on both sides of {}, one side before the other, and may have changed itself",
            cells.machines[machine], cells.commits[self.commits[1]]
        );
        Doubt { why, wanted: self.wanted(cells, 0, machine), is_of_few: false }
    }

    /// What all machines may have had in common that day.
    pub(super) fn of_one_day(&self, cells: &Cells) -> Option<Doubt> {
        let alone = [0, 1].into_iter().find(|&side| self.days[side].len() == 1)?;
        if self.paired().len() > 1 {
            return None;
        }
        let [of, other] = [alone, 1 - alone].map(|side| &*cells.commits[self.commits[side]]);
        let why = format!(
            "{of} was measured on one day only, on which machines didn't run {other}: what slows all machines for a day \
             looks the same"
        );
        let machine = self.both.first().map(|both| both.machine);
        let mut wanted = machine.and_then(|machine| self.wanted(cells, alone, machine));
        if let Some(again) = wanted.as_mut().and_then(|wanted| wanted.again.as_mut()) {
            "on another day".clone_into(again);
        }
        Some(Doubt { why, wanted, is_of_few: false })
    }

    fn one_after_the_other(&self, cells: &Cells) -> String {
        format!(
            "machines that ran both sides of {} changed at different commits or by different sizes, as if they were \
             changed one after the other",
            cells.commits[self.commits[1]]
        )
    }

    /// Why a step that is part of a staircase isn't the commit's.
    pub(super) fn staircase(&self, cells: &Cells) -> Doubt {
        let wanted = self.both.last().and_then(|both| self.wanted(cells, 0, both.machine));
        Doubt { why: self.one_after_the_other(cells), wanted, is_of_few: false }
    }

    fn wanted(&self, cells: &Cells, side: usize, machine: usize) -> Option<Wanted> {
        let [commit, other] = [self.commits[side], self.commits[1 - side]];
        let is_of_machine = |cell: &Cell| cells.sessions[cell.session].machine == machine;
        let has_run = cells.cells.iter().any(|cell| cell.commit == commit && is_of_machine(cell));
        Some(Wanted {
            commit: cells.commits[commit].clone(),
            machine: cells.machines[machine].clone(),
            again: has_run.then(|| format!("after its runs of {}", cells.commits[other])),
        })
    }

    /// The standard error of what machines change by on the whole, by how much they differ in it, and its degrees of freedom.
    pub(super) fn error(&self) -> Option<(f64, f64)> {
        let of = |both: &Both| {
            // Of sessions with both sides, what sessions differ by doesn't count.
            let [before, after] = &both.sides;
            let within: Vec<f64> = before
                .iter()
                .flat_map(|a| after.iter().filter(|b| b.time == a.time).map(|b| b.log - a.log))
                .collect();
            match within.is_empty() {
                true => mean(after) - mean(before),
                false => within.iter().sum::<f64>() / within.len() as f64,
            }
        };
        let by: Vec<f64> = self.both.iter().map(of).collect();
        let count = by.len() as f64;
        let middle = by.iter().sum::<f64>() / count;
        let squares: f64 = by.iter().map(|by| (by - middle) * (by - middle)).sum();
        /// Of fewer a sum says little.
        const LEAST: usize = 5;
        (by.len() >= LEAST).then(|| ((squares / (count - 1.0) / count).sqrt(), count - 1.0))
    }

    /// What machines changed by on days on which they ran both sides.
    fn paired(&self) -> Vec<f64> {
        let of = |both: &Both| {
            let days: BTreeSet<usize> = both.sides[0].iter().map(|seen| seen.day).collect();
            let both_days =
                days.into_iter().filter(|day| both.sides[1].iter().any(|seen| seen.day == *day));
            let off = |day: usize| {
                let [before, after] = both.sides.each_ref().map(|side| {
                    let own: Vec<f64> =
                        side.iter().filter(|seen| seen.day == day).map(|seen| seen.log).collect();
                    median(&own).unwrap_or(0.0)
                });
                after - before
            };
            median(&both_days.map(off).collect::<Vec<_>>())
        };
        self.both.iter().filter_map(of).collect()
    }

    /// Why a difference of this size isn't the commit's, though machines ran both sides: they disagree.
    pub(super) fn disagreement(&self, cells: &Cells, size: f64) -> Option<Doubt> {
        let at = &cells.commits[self.commits[1]];
        let enough = size.abs() / 2.0;
        let shows = |by: f64| by * size.signum() >= enough;
        let paired = self.paired();
        let is_one_day = self.days.iter().any(|days| days.len() == 1);
        if is_one_day && paired.len() > 1 && !median(&paired).is_some_and(shows) {
            return Some(Doubt {
                why: format!(
                    "machines that ran both sides of {at} on one day don't show it: it may be the other days"
                ),
                wanted: None,
                is_of_few: true,
            });
        }
        let changes = self.both.iter().map(|both| {
            let [before, after] = both.sides.each_ref().map(|side| middle(side));
            after - before
        });
        let none = changes.filter(|by| !shows(*by)).count();
        let machines = self.both.len();
        let rows: Vec<Row> = self.both.iter().map(|both| Row::of(&both.sides)).collect();
        if machines < 2 || chance_of_unlike(rows, &self.alone) > ALPHA {
            return None;
        }
        let is_of_few = 2 * none > machines;
        let why = if is_of_few {
            format!(
                "{none} of {machines} machines that ran both sides of {at} don't show it, so that it is the others rather than \
                 the commit"
            )
        } else {
            self.one_after_the_other(cells)
        };
        let wanted = self.both.last().and_then(|both| self.wanted(cells, 0, both.machine));
        Some(Doubt { why, wanted, is_of_few })
    }
}

fn mean(side: &[Seen]) -> f64 {
    side.iter().map(|seen| seen.log).sum::<f64>() / side.len() as f64
}

fn middle(side: &[Seen]) -> f64 {
    median(&side.iter().map(|seen| seen.log).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Whether machines that changed one after the other explain two steps better than two commits do: `edges` are the first commit
/// of the level before, those of the steps, and the one after the last.
pub(super) fn is_staircase(
    cells: &Cells,
    units: &[Unit],
    is_in: impl Fn(usize) -> bool,
    edges: [usize; 4],
) -> bool {
    let mut rows = Vec::new();
    for unit in units {
        let mut levels: [Vec<Seen>; 3] = Default::default();
        for s in unit.sessions[0]..unit.sessions[1] {
            for cell in &cells.cells[cells.in_session(s)] {
                let level = edges.partition_point(|edge| *edge <= cell.commit);
                if is_in(cell.commit) && (1..4).contains(&level) {
                    let (day, time) = (cells.days[s], cells.sessions[s].time);
                    levels[level - 1].push(Seen { day, time, log: cell.log });
                }
            }
        }
        if levels.iter().all(|level| !level.is_empty()) {
            rows.push(Row::of(&levels));
        }
    }
    rows.len() > 1 && chance_of_unlike(rows, &[]) <= ALPHA
}

/// A machine's sessions, and the place of the first one after each change that all have.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    logs: Vec<f64>,
    places: Vec<usize>,
}

impl Row {
    fn of(levels: &[Vec<Seen>]) -> Self {
        let logs = levels.iter().flatten().map(|seen| seen.log).collect();
        let mut places: Vec<usize> = Vec::new();
        for level in &levels[..levels.len() - 1] {
            places.push(places.last().unwrap_or(&0) + level.len());
        }
        Self { logs, places }
    }

    /// The edges of its levels.
    fn edges(&self) -> Vec<usize> {
        [&[0], &self.places[..], &[self.logs.len()]].concat()
    }

    /// Of the equations for the changes' sizes: how much two changes have in common beside the machine's own level.
    fn together(&self, a: usize, b: usize) -> f64 {
        let n = self.logs.len() as f64;
        let after = [a, b].map(|change| n - self.places[change] as f64);
        after[0].min(after[1]) - after[0] * after[1] / n
    }

    /// And what a change at this place has of the figures.
    fn right(&self, place: usize) -> f64 {
        let sum = |logs: &[f64]| logs.iter().sum::<f64>();
        let part = (self.logs.len() - place) as f64 / self.logs.len() as f64;
        sum(&self.logs[place..]) - part * sum(&self.logs)
    }

    /// By how much a change at its own place, or none, leaves less of the squares than none: of the best place.
    fn best(&self) -> f64 {
        let n = self.logs.len() as f64;
        let all: f64 = self.logs.iter().sum();
        let (mut before, mut best) = (0.0, 0.0_f64);
        for place in 1..self.logs.len() {
            before += self.logs[place - 1];
            let (k, m) = (place as f64, n - place as f64);
            let by = (all - before) / m - before / k;
            best = best.max(by * by * k * m / n);
        }
        best
    }
}

/// The sizes of changes that all machines have.
fn common(rows: &[Row]) -> Vec<f64> {
    let count = rows[0].places.len();
    let sum = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
    let matrix =
        (0..count).map(|a| (0..count).map(|b| sum(&|row| row.together(a, b))).collect()).collect();
    let right: Vec<f64> = (0..count).map(|a| sum(&|row| row.right(row.places[a]))).collect();
    Factor::of(matrix).solve(&right)
}

/// How much smaller the squares are if each machine changes once, by its own size where it does best, or not at all.
fn unlike(rows: &[Row]) -> f64 {
    let sizes = common(rows);
    let of = |row: &Row| {
        let mut kept = 0.0;
        for (a, size) in sizes.iter().enumerate() {
            kept += 2.0 * size * row.right(row.places[a]);
            kept -= sizes
                .iter()
                .enumerate()
                .map(|(b, other)| size * other * row.together(a, b))
                .sum::<f64>();
        }
        row.best() - kept
    };
    rows.iter().map(of).sum()
}

/// The probability that machines which all changed here, and by as much, look as unlike as these do. It is that of fleets
/// with the same deviations at other places (a bootstrap of residuals: Efron, "Bootstrap methods", 1979). Where sessions
/// resemble the ones before them, sums vary by more (see `model.rs`). 1 if it is more than what counts.
fn chance_of_unlike(rows: Vec<Row>, alone: &[Row]) -> f64 {
    const DRAWS: usize = 499;
    /// From fewer deviations nothing is drawn.
    const LEAST: usize = 20;
    const MOST_KEPT: f64 = 0.8;
    let sizes = common(&rows);
    let mut deviations = Vec::new();
    let (mut products, mut squares) = (0.0, 0.0);
    for row in rows.iter().chain(alone) {
        let edges = row.edges();
        for (level, edge) in edges.windows(2).enumerate() {
            // Those next to the change are in question.
            let near = 3.min((edge[1] - edge[0]) / 3);
            let is_last = level + 2 == edges.len();
            let from = if level == 0 { edge[0] } else { edge[0] + near };
            let to = if is_last { edge[1] } else { edge[1] - near };
            if from + 2 > to {
                continue;
            }
            let count = (to - from) as f64;
            let mean = row.logs[from..to].iter().sum::<f64>() / count;
            let own: Vec<f64> = row.logs[from..to].iter().map(|log| log - mean).collect();
            let of_level: f64 = own.iter().map(|off| off * off).sum();
            // Deviations from their own mean are opposed to each other, by 1 in n.
            products += own.windows(2).map(|two| two[0] * two[1]).sum::<f64>() + of_level / count;
            squares += of_level;
            deviations.extend(own.iter().map(|off| off * (count / (count - 1.0)).sqrt()));
        }
    }
    if deviations.len() < LEAST {
        return 1.0;
    }
    let kept = if squares > 0.0 { (products / squares).clamp(0.0, MOST_KEPT) } else { 0.0 };
    let wider = ((1.0 + kept) / (1.0 - kept)).sqrt();
    let found = unlike(&rows);
    let mut random = SplitMix64(0x5eed_f1ee);
    let mut drawn = rows;
    let mut as_far = 0_usize;
    for _ in 0..DRAWS {
        for row in &mut drawn {
            for (place, log) in row.logs.iter_mut().enumerate() {
                let which = ((u128::from(random.bits()) * deviations.len() as u128) >> 64) as usize;
                let steps = row.places.iter().zip(&sizes).filter(|(at, _)| **at <= place);
                *log = wider * deviations[which] + steps.map(|(_, size)| size).sum::<f64>();
            }
        }
        as_far += usize::from(unlike(&drawn) >= found);
        if (as_far + 1) as f64 > ALPHA * (DRAWS + 1) as f64 {
            return 1.0;
        }
    }
    (as_far + 1) as f64 / (DRAWS + 1) as f64
}

/// Whether it ran a commit of one side again after the other side.
fn is_again(both: &Both) -> bool {
    let last = |side: &[Seen]| side.iter().map(|seen| seen.time).max();
    let first = |side: &[Seen]| side.iter().map(|seen| seen.time).min();
    let [before, after] = &both.sides;
    last(before) >= first(after) && last(after) >= first(before)
}

impl Doubt {
    /// Why, and what to run.
    pub(super) fn said(&self) -> String {
        let run = self.wanted.as_ref().map_or(String::new(), |wanted| format!(": run {wanted}"));
        format!("can't tell: {}{run}", self.why)
    }
}
