//! The runs of a lake by what they measured, for the model that takes commits and machines apart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Host;
use crate::rows::{RUNS, RunRows, SPEEDS, TABLES, Table, Value};
use anyhow::{Context, Result, ensure};
use brickscope_analysis::compare::Work;
use brickscope_analysis::fleet::Observation;
use brickscope_profile::text::count;

use crate::collect::{About, runs_at};
use crate::engine::{answer, quoted};
use crate::part::ALL_DAYS;
use crate::store::Lake;

/// What was measured: its name for people, and all that [`compare`](brickscope_analysis::compare) demands to be equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfWork {
    /// What people call it.
    pub name: String,
    /// What is demanded.
    pub work: Work,
}

/// The runs of each work.
pub type Works = BTreeMap<OfWork, Vec<Observation>>;

/// The name of each work, with what tells it from others of its name; and of each name with several works a sentence that says
/// so.
pub fn named(works: &[&OfWork]) -> (Vec<String>, Vec<String>) {
    let of_name = |name: &str| {
        works.iter().filter(|of| of.name == name).map(|of| &of.work).collect::<Vec<&Work>>()
    };
    let said =
        |value: &Option<String>| value.clone().unwrap_or_else(|| "at its default".to_owned());
    let mut names = Vec::new();
    let mut notes: BTreeMap<&str, String> = BTreeMap::new();
    for of in works {
        let alike = of_name(&of.name);
        let differences = Work::differences(&alike);
        let place = alike.iter().position(|work| **work == of.work).unwrap_or(0);
        let own =
            differences.iter().map(|(name, values)| format!("{name} {}", said(&values[place])));
        let own = own.collect::<Vec<_>>().join(", ");
        names.push(if own.is_empty() { of.name.clone() } else { format!("{} ({own})", of.name) });
        if alike.len() > 1 {
            let differ = differences.iter().map(|(name, values)| {
                let mut values: Vec<String> = values.iter().map(said).collect();
                values.sort();
                values.dedup();
                format!("{name} ({})", values.join(" or "))
            });
            let differ = differ.collect::<Vec<_>>().join(", ");
            notes.entry(&of.name).or_insert_with(|| {
                format!(
                    "{}: {} works, each a series of its own, since they differ in {differ}",
                    of.name,
                    alike.len()
                )
            });
        }
    }
    (names, notes.into_values().collect())
}

/// Which runs are wanted: all, but for what is given.
#[derive(Debug, Clone, Default)]
pub struct Wanted<'a> {
    /// Of this model.
    pub model: Option<&'a str>,
    /// Of this test.
    pub test: Option<&'a str>,
    /// Of this processor.
    pub cpu: Option<&'a str>,
    /// The first day.
    pub since: Option<&'a str>,
    /// Runs that don't count, by id.
    pub without: BTreeSet<String>,
}

/// The name of a work in SQL; [`OfRun::work`] is the same for rows.
pub(crate) const WORK: &str = "concat_ws(', ', r.engine, r.model, left(r.model_sha256, 8), r.quant, r.backend, r.device, \
    CASE WHEN r.threads IS NULL THEN NULL ELSE concat(r.threads, ' threads') END, \
    CASE WHEN r.batch IS NULL OR s.n_prompt IS NULL OR s.n_prompt = 0 THEN NULL \
      ELSE concat('batch ', least(r.batch, s.n_prompt)) END, \
    CASE WHEN r.is_profiled = false THEN 'without profiler' END, s.test)";

/// Why the receipt of a run without the profiler is refused: nothing shows what ran, and nothing speaks against it.
const UNPROFILED: &str = "kernel-ids";

/// What is wanted of `runs` r and `speeds` s, in SQL.
pub(crate) fn conditions(wanted: &Wanted<'_>) -> String {
    let only = |column: &str, value: Option<&str>| match value {
        Some(value) => format!(" AND {column} {}", quoted(value)),
        None => String::new(),
    };
    [
        only("r.date >=", wanted.since),
        only("r.model =", wanted.model),
        only("s.test =", wanted.test),
        only("r.cpu =", wanted.cpu),
    ]
    .concat()
}

/// The runs of a lake that have a commit and a speed, by what they measured, as far as that tells them apart.
pub fn works(lake: &Lake, wanted: &Wanted<'_>) -> Result<Works> {
    let query = format!(
        "SELECT {WORK}, r.machine, r.commit, coalesce(r.session, r.date), r.created_s, s.tokens_per_second, r.run_id, \
           s.work, r.receipt_refused \
         FROM speeds s JOIN runs r ON r.run_id = s.run_id \
         WHERE s.tokens_per_second > 0 AND r.commit IS NOT NULL{} \
         ORDER BY r.created_s, r.run_id, s.test",
        conditions(wanted),
    );
    let days = (wanted.since.unwrap_or(ALL_DAYS.0), ALL_DAYS.1);
    let answer = answer(lake, days, "", &query)?;
    let mut works = Works::new();
    let mut refused = BTreeSet::new();
    for row in answer.rows {
        let [
            Some(work),
            Some(machine),
            Some(commit),
            Some(session),
            Some(time),
            Some(value),
            Some(run_id),
            Some(conditions),
            why,
        ] = &row[..]
        else {
            continue;
        };
        if wanted.without.contains(run_id) {
            continue;
        }
        if why.as_ref().is_some_and(|why| why != UNPROFILED) {
            refused.insert(run_id.clone());
            continue;
        }
        let of = OfWork { name: work.clone(), work: parsed(conditions)? };
        works.entry(of).or_default().push(Observation {
            machine: machine.clone(),
            commit: commit.clone(),
            session: session.clone(),
            time: time.parse().with_context(|| format!("created_s is {time:?}"))?,
            value: value.parse().with_context(|| format!("a speed is {value:?}"))?,
        });
    }
    if !refused.is_empty() {
        let runs = count(refused.len() as u64, "run");
        (lake.host().tell)(&format!(
            "left out: {runs} with a receipt that did not verify: `brickscope lake unverified` says why"
        ));
    }
    works.values_mut().for_each(|runs| unify(runs));
    Ok(works)
}

/// Runs that aren't in a lake, as they would be in it.
#[derive(Debug, Clone, Default)]
pub struct NewRuns {
    /// What they measured.
    pub works: Works,
    /// Their ids.
    pub ids: BTreeSet<String>,
    /// The processor of all of them, if they state one.
    pub cpu: Option<String>,
}

impl NewRuns {
    /// The runs at a path, of machines of one kind. Those that state no commit get this one.
    pub fn at(path: &Path, commit: &str, is_forced: bool, host: &Host) -> Result<Self> {
        let mut new = Self::default();
        for (nth, rows) in runs_at(path, &About::default(), host)?.into_iter().enumerate() {
            let run = OfRun::new(&rows);
            let cpu = run.text("cpu").map(str::to_owned);
            ensure!(
                nth == 0 || cpu == new.cpu,
                "{} has runs on several processors: judge those of each by themselves",
                path.display()
            );
            new.cpu = cpu;
            if let Some(why) = run.text("receipt_refused").filter(|why| *why != UNPROFILED) {
                ensure!(
                    is_forced,
                    "{}: its receipt isn't verified ({why}); `brickscope verify-receipt` says more, --force judges it \
                     anyway",
                    run.text("source").unwrap_or_default()
                );
            }
            for speed in run.rows(&SPEEDS) {
                let Some(Value::Real(value)) = cell(&SPEEDS, speed, "tokens_per_second") else {
                    continue;
                };
                let Some(Value::Text(test)) = cell(&SPEEDS, speed, "test") else { continue };
                let n_prompt = match cell(&SPEEDS, speed, "n_prompt") {
                    Some(Value::Int(tokens)) => *tokens,
                    _ => 0,
                };
                let Some(Value::Text(conditions)) = cell(&SPEEDS, speed, "work") else { continue };
                let observation = run.observation(commit, *value);
                let of = OfWork { name: run.work(test, n_prompt), work: parsed(conditions)? };
                new.works.entry(of).or_default().push(observation);
            }
            ensure!(
                new.ids.insert(rows.run_id),
                "{} has runs with the same measurements, so one is a copy",
                path.display()
            );
        }
        Ok(new)
    }
}

pub(crate) fn parsed(work: &str) -> Result<Work> {
    Work::from_json(work).with_context(|| format!("a work is {work:?}"))
}

/// A run's rows.
struct OfRun<'r> {
    rows: &'r RunRows,
}

fn cell<'r>(table: &Table, row: &'r [Value], column: &str) -> Option<&'r Value> {
    row.get(table.column(column)?)
}

impl<'r> OfRun<'r> {
    fn new(rows: &'r RunRows) -> Self {
        Self { rows }
    }

    fn rows(&self, table: &Table) -> &'r [Vec<Value>] {
        let at = TABLES.iter().position(|other| other.name == table.name);
        at.map_or(&[], |at| &self.rows.tables[at])
    }

    fn cell(&self, column: &str) -> Option<&'r Value> {
        self.rows(&RUNS).first().and_then(|row| cell(&RUNS, row, column))
    }

    fn text(&self, column: &str) -> Option<&'r str> {
        match self.cell(column) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn number(&self, column: &str) -> Option<i64> {
        match self.cell(column) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    fn work(&self, test: &str, n_prompt: i64) -> String {
        let text = |column: &str| self.text(column).map(str::to_owned);
        let digits = self.text("model_sha256").map(|hash| hash.chars().take(8).collect());
        let threads = self.number("threads").map(|threads| format!("{threads} threads"));
        let batch = self.number("batch").filter(|_| n_prompt > 0);
        let batch = batch.map(|batch| format!("batch {}", batch.min(n_prompt)));
        let [engine, model] = ["engine", "model"].map(text);
        let [quant, backend, device] = ["quant", "backend", "device"].map(text);
        let is_unprofiled = self.cell("is_profiled") == Some(&Value::Flag(false));
        let profiler = is_unprofiled.then(|| "without profiler".to_owned());
        let test = Some(test.to_owned());
        let parts = [engine, model, digits, quant, backend, device, threads, batch, profiler, test];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn observation(&self, commit: &str, value: f64) -> Observation {
        Observation {
            machine: self.rows.machine.clone(),
            commit: self.text("commit").unwrap_or(commit).to_owned(),
            session: self.text("session").unwrap_or(&self.rows.date).to_owned(),
            time: self.number("created_s").unwrap_or(0),
            value,
        }
    }
}

/// Fewer digits of a hash may be those of several commits.
pub(crate) const LEAST_DIGITS: usize = 7;

/// Takes a hash and its abbreviations for one commit: llama-bench writes seven digits, git all.
pub fn unify(runs: &mut [Observation]) {
    let is_hash = |name: &str| {
        name.len() >= LEAST_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let names: BTreeSet<String> =
        runs.iter().map(|run| run.commit.clone()).filter(|name| is_hash(name)).collect();
    for run in runs {
        let short = &run.commit;
        // In their order, those that begin with it come right after it.
        let mut longer = names.range(short.clone()..).filter(|name| *name != short);
        if let Some(full) = longer.next().filter(|full| is_hash(short) && is_hash(full))
            && full.starts_with(short.as_str())
            && longer.next().is_none_or(|other| !other.starts_with(short.as_str()))
        {
            run.commit = full.clone();
        }
    }
}
