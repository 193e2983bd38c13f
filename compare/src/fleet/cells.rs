//! Runs, sorted into cells: the runs of one commit in one session of one machine.

use std::collections::BTreeMap;
use std::ops::Range;

use brickscope_profile::stats::median;

use super::{FleetError, Observation};

/// The runs of one commit in one session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) session: usize,
    pub(super) commit: usize,
    /// The median of the logarithms of its runs.
    pub(super) log: f64,
    pub(super) runs: u32,
}

/// Runs of one machine close in time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Session {
    pub(super) machine: usize,
    /// Its cells: from the first to the one after the last.
    pub(super) cells: [usize; 2],
    /// Its first run, in seconds.
    pub(super) time: i64,
}

/// All runs, in an order that doesn't depend on the one in which they were given: by machine, time of the session,
/// commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Cells {
    /// Names, sorted.
    pub(super) machines: Vec<String>,
    /// Those with a run, oldest first.
    pub(super) commits: Vec<String>,
    pub(super) sessions: Vec<Session>,
    pub(super) cells: Vec<Cell>,
    /// Of each session, the day, counted from 0. Days are as machines have them: a night's runs are of one day.
    pub(super) days: Vec<usize>,
    /// What was taken off each logarithm, so that rounding doesn't depend on the unit.
    pub(super) origin: f64,
    /// Differences of neighbouring runs of a cell, divided by √2: each varies as a run does.
    pub(super) repeats: Vec<f64>,
}

/// The places of a machine, a session, a commit; the time, and the logarithm.
type Row<'o> = (&'o str, i64, &'o str, usize, i64, f64);

impl Cells {
    /// The cells of a session.
    pub(super) fn in_session(&self, session: usize) -> Range<usize> {
        let [from, to] = self.sessions[session].cells;
        from..to
    }

    pub(super) fn of(observations: &[Observation], order: &[String]) -> Result<Self, FleetError> {
        if observations.is_empty() {
            return Err(FleetError::Empty);
        }
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, commit) in order.iter().enumerate() {
            if places.insert(commit, place).is_some() {
                return Err(FleetError::CommitTwice { commit: commit.clone() });
            }
        }
        let mut began: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for run in observations {
            let time = began.entry((&run.machine, &run.session)).or_insert(run.time);
            *time = run.time.min(*time);
        }
        let mut rows: Vec<Row<'_>> = Vec::with_capacity(observations.len());
        for (index, run) in observations.iter().enumerate() {
            let log = run.value.ln();
            if !log.is_finite() {
                return Err(FleetError::Value { index });
            }
            let Some(&commit) = places.get(run.commit.as_str()) else {
                return Err(FleetError::UnknownCommit { commit: run.commit.clone() });
            };
            let time =
                began.get(&(&run.machine[..], &run.session[..])).copied().unwrap_or(run.time);
            rows.push((&run.machine, time, &run.session, commit, run.time, log));
        }
        rows.sort_by(|a, b| {
            (a.0, a.1, a.2, a.3, a.4).cmp(&(b.0, b.1, b.2, b.3, b.4)).then(a.5.total_cmp(&b.5))
        });
        let logs: Vec<f64> = rows.iter().map(|row| row.5).collect();
        let origin = median(&logs).unwrap_or(0.0);

        let mut used: Vec<usize> = rows.iter().map(|row| row.3).collect();
        used.sort_unstable();
        used.dedup();
        let mut all = Self { origin, ..Self::default() };
        all.commits = used.iter().map(|&commit| order[commit].clone()).collect();
        for of_session in rows.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2)) {
            let (machine, time) = (of_session[0].0, of_session[0].1);
            if all.machines.last().is_none_or(|last| last != machine) {
                all.machines.push(machine.to_owned());
            }
            let from = all.cells.len();
            for of_cell in of_session.chunk_by(|a, b| a.3 == b.3) {
                let logs: Vec<f64> = of_cell.iter().map(|row| row.5 - origin).collect();
                all.repeats.extend(
                    logs.windows(2).map(|two| (two[1] - two[0]) * std::f64::consts::FRAC_1_SQRT_2),
                );
                all.cells.push(Cell {
                    session: all.sessions.len(),
                    commit: used.partition_point(|&commit| commit < of_cell[0].3),
                    log: median(&logs).unwrap_or(0.0),
                    runs: u32::try_from(logs.len()).unwrap_or(u32::MAX),
                });
            }
            all.sessions.push(Session {
                machine: all.machines.len() - 1,
                cells: [from, all.cells.len()],
                time,
            });
        }
        all.days = days(&all.sessions.iter().map(|session| session.time).collect::<Vec<_>>());
        Ok(all)
    }
}

/// The day of each time. One begins after half a day without any, and after a whole one at the latest.
fn days(times: &[i64]) -> Vec<usize> {
    const DAY: i64 = 86_400;
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&at| times[at]);
    let mut days = vec![0; times.len()];
    let mut day = 0;
    let mut began: Option<[i64; 2]> = None;
    for at in order {
        let time = times[at];
        let is_next = began.is_some_and(|[first, last]| {
            time.saturating_sub(last) >= DAY / 2 || time.saturating_sub(first) >= DAY
        });
        day += usize::from(is_next);
        began = Some([began.filter(|_| !is_next).map_or(time, |[first, _]| first), time]);
        days[at] = day;
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nights_runs_are_of_one_day() {
        let hour = 3600;
        let nights = [23, 24, 25, 47, 49, 71].map(|at| at * hour);
        assert_eq!(days(&nights), [0, 0, 0, 1, 1, 2]);
        // In another order, and without a pause.
        assert_eq!(days(&[49, 23, 47].map(|at| at * hour)), [1, 0, 1]);
        let all_day: Vec<i64> = (0..72).map(|at| at * hour).collect();
        assert_eq!(days(&all_day), (0..72).map(|at| at / 24).collect::<Vec<usize>>());
        assert_eq!(days(&[i64::MAX, i64::MIN, 0]), [2, 0, 1]);
    }
}
