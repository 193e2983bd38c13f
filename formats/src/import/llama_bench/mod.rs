//! The output of `llama-bench` (`tools/llama-bench/llama-bench.cpp`): a row for each test. `-o json` and `-o jsonl` have
//! `samples_ns`, the time of each of its repetitions, which a copy may lack; `-o md`, `-o csv` and `-o sql` have only rates.
//!
//! Rows that are one prompt test and one generation test under the same conditions are the phases of a run. Others are
//! a list of tests.
//!
//! Here, a repetition of a prompt test is a prefill pass of `n_prompt` tokens. A repetition of a generation
//! test is a run of `n_gen` decode passes that have no times of their own; it becomes one pass of that many
//! tokens.

mod json;
mod rows;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use brickscope_profile::run::build_of_llama_cpp;
use brickscope_profile::text::count;
use brickscope_profile::{
    ImportedTest, Lane, Model, OtherThreads, Pass, Phase, PhaseTotal, Profile, Run, StatedRate,
    save,
};
use serde_json::{Map, Value};

use super::{At, Format, ImportError, UNDATED, lacks};

/// The most bytes of a file; in memory it takes several times as much.
const MOST_BYTES: usize = 1 << 26;

/// Fields of older builds, which state their backend so.
const BACKENDS: [(&str, &str); 8] = [
    ("cuda", "CUDA"),
    ("vulkan", "Vulkan"),
    ("kompute", "Kompute"),
    ("metal", "Metal"),
    ("sycl", "SYCL"),
    ("opencl", "OpenCL"),
    ("gpu_blas", "GPU BLAS"),
    ("blas", "BLAS"),
];

/// Fields that are not conditions of the measurement, besides those that [all rows share](IN_COMMON): results, and what a
/// profile keeps elsewhere.
const OF_A_TEST: [&str; 8] =
    ["n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"];

/// Fields that all rows of a run share, besides the conditions.
const IN_COMMON: [&str; 8] = [
    "build_commit",
    "build_number",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "backends",
    "n_threads",
];

/// A test, which is a row of the file.
#[derive(Default)]
struct BenchRow {
    /// Counted from 1.
    number: usize,
    fields: Map<String, Value>,
    n_prompt: u64,
    n_gen: u64,
    n_depth: u64,
    /// Empty if the file has only a rate.
    samples_ns: Vec<u64>,
    /// Repetitions that have no time above 0.
    not_timed: u64,
    stated: Option<StatedRate>,
    /// Whether the standard deviation that is stated is no number.
    is_spread_unknown: bool,
}

impl BenchRow {
    /// A row without times and rates, of a test of so many tokens: of its prompt, of its answer, and before them.
    fn new(number: usize, tokens: [u64; 3], fields: Map<String, Value>) -> Self {
        let [n_prompt, n_gen, n_depth] = tokens;
        Self { number, fields, n_prompt, n_gen, n_depth, ..Self::default() }
    }

    /// The name in llama-bench's table.
    fn name(&self) -> String {
        let depth = match self.n_depth {
            0 => String::new(),
            depth => format!(" @ d{depth}"),
        };
        match (self.n_prompt, self.n_gen) {
            (prompt, 0) => format!("pp{prompt}{depth}"),
            (0, tokens) => format!("tg{tokens}{depth}"),
            (prompt, tokens) => format!("pp{prompt}+tg{tokens}{depth}"),
        }
    }

    /// `None` for a prompt and its answer timed together.
    fn phase(&self) -> Option<(Phase, u64)> {
        match (self.n_prompt, self.n_gen) {
            (prompt, 0) => Some((Phase::Prefill, prompt)),
            (0, tokens) => Some((Phase::Decode, tokens)),
            _ => None,
        }
    }

    /// When it was measured.
    fn time(&self) -> Option<String> {
        self.shown("test_time").filter(|time| save::unix_seconds(time).is_some())
    }

    /// The test, its values of these fields, and its time if that is another than the first one's.
    fn test(&self, apart: &[String], first: Option<&String>) -> ImportedTest {
        let value = |field: &String| Some((field.clone(), self.shown(field)?));
        ImportedTest {
            row: self.number as u64,
            name: self.name(),
            tokens: self.n_prompt.saturating_add(self.n_gen),
            samples_ns: self.samples_ns.clone(),
            stated: self.stated.clone(),
            apart: apart.iter().filter_map(value).collect(),
            began: self.time().filter(|time| first.is_some_and(|first| time != first)),
        }
    }

    fn shown(&self, field: &str) -> Option<String> {
        shown(self.fields.get(field)?)
    }

    /// The backend, as newer builds state it.
    fn backend(&self) -> Option<String> {
        self.shown("backends").or_else(|| {
            let is_it = |(field, _): &&(&str, &str)| {
                matches!(self.shown(field).as_deref(), Some("true" | "1"))
            };
            let states = BACKENDS.iter().any(|(field, _)| self.fields.contains_key(*field));
            let backend = BACKENDS.iter().find(is_it).map_or("CPU", |(_, name)| name);
            states.then(|| backend.to_owned())
        })
    }

    /// Which of its numbers of tokens it lacks, so that it was taken as 0, unless a name tells both.
    fn taken_as_0(&self) -> Option<&'static str> {
        let named = self.shown("test").and_then(|test| table::tokens_of(&test));
        let is_it =
            |(prompt, answer, _): (u64, u64, u64)| (prompt, answer) == (self.n_prompt, self.n_gen);
        if named.is_some_and(is_it) {
            return None;
        }
        let has = |field: &str| self.fields.contains_key(field);
        match (has("n_prompt"), has("n_gen")) {
            (true, false) => Some("n_gen"),
            (false, true) => Some("n_prompt"),
            // Without both, the row is of a table that names its tests.
            _ => None,
        }
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.as_u64()
    }

    /// All conditions of the measurement, by their names in the file.
    fn conditions(&self) -> BTreeMap<&str, String> {
        let is_condition = |key: &str| {
            !IN_COMMON.contains(&key)
                && !OF_A_TEST.contains(&key)
                && !BACKENDS.iter().any(|(backend, _)| *backend == key)
                && !key.starts_with("samples_")
                && !key.is_empty()
        };
        let said = self.fields.iter().filter(|(key, _)| is_condition(key));
        said.filter_map(|(key, value)| Some((key.as_str(), shown(value)?))).collect()
    }
}

/// The text of a scalar value.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Whether a text has rows of this program.
pub(super) fn is_it(text: &str) -> bool {
    text.contains("\"samples_ns\"")
        // A test that breaks off has no times yet.
        || text.contains("\"build_commit\"") && text.contains("\"build_number\"")
        || text.contains("\"avg_ts\"")
            && ["\"n_gen\"", "\"n_prompt\""].iter().any(|field| text.contains(field))
        || text.lines().any(|line| {
            table::is_markdown(line) || table::is_csv(line) || table::is_sql(line)
        })
}

pub(super) fn read(text: &str, at: &At<'_>, wanted: &[usize]) -> Result<Profile, ImportError> {
    if text.len() > MOST_BYTES {
        return Err(at.whole(format!(
            "has more than {MOST_BYTES} bytes, too many for the output of a benchmark"
        )));
    }
    let found = rows(text, at)?;
    if let Some(missing) = wanted.iter().find_map(|row| found.missing(*row)) {
        return Err(at.whole(missing));
    }
    let not_read = found.told();
    let mut rows = found.rows;
    let mut others = Vec::new();
    if !wanted.is_empty() {
        (rows, others) = rows.into_iter().partition(|row| wanted.contains(&row.number));
    }
    let timed: Vec<&BenchRow> =
        rows.iter().filter(|row| row.phase().is_some() && !row.samples_ns.is_empty()).collect();
    // Of several tests of a phase, no one is the run's.
    let unlike = unlike(&timed);
    if let Some(why) = unlike.as_ref().filter(|_| !wanted.is_empty()) {
        return Err(at.whole(format!(
            "{why}, but a run has only one such: choose rows with --rows, such as {}",
            pairs(&timed)
        )));
    }
    let of_run = if unlike.is_some() { Vec::new() } else { timed.clone() };

    let in_common = |field: &str| {
        let value = rows[0].shown(field)?;
        rows.iter().all(|row| row.shown(field).as_ref() == Some(&value)).then_some(value)
    };
    let number = |field: &str| in_common(field).and_then(|text| text.parse::<u64>().ok());
    let build = in_common("build_commit")
        .map(|commit| build_of_llama_cpp(&commit, in_common("build_number").as_deref()));
    let mut profile = at.profile(Format::LlamaBench, build, "of llama-bench");
    let time = rows[0].time();
    let is_dated = time.is_some();
    if let Some(time) = &time {
        profile.created.clone_from(time);
    }
    let tokens = |phase| {
        let mut tokens = of_run.iter().filter_map(|row| row.phase()).filter(|of| of.0 == phase);
        tokens.next().map_or(0, |(_, tokens)| tokens)
    };
    profile.run = Some(Run {
        command: Vec::new(),
        backend: rows[0]
            .backend()
            .filter(|of| rows.iter().all(|row| row.backend().as_ref() == Some(of)))
            .unwrap_or_default(),
        threads: number("n_threads").and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
        prompt_tokens: tokens(Phase::Prefill),
        generated_tokens: tokens(Phase::Decode),
        ..Run::default()
    });
    profile.model = Some(Model {
        path: in_common("model_filename").unwrap_or_default(),
        // llama.cpp's one description of architecture, size and quantisation: "llama 1B Q4_K - Medium".
        architecture: in_common("model_type").unwrap_or_default(),
        file_bytes: number("model_size").unwrap_or_default(),
        parameters: number("model_n_params").unwrap_or_default(),
        ..Model::default()
    });
    let apart = apart(&rows);
    let differ: BTreeSet<&str> = apart.iter().map(String::as_str).collect();
    let conditions = rows[0].conditions().into_iter().filter(|(key, _)| !differ.contains(key));
    let mut conditions: Vec<(String, String)> =
        conditions.map(|(key, value)| (key.to_owned(), value)).collect();
    profile.lanes.push(Lane { name: None, tid: None });
    for phase in Phase::ALL {
        for row in of_run.iter().filter(|row| row.phase().is_some_and(|of| of.0 == phase)) {
            conditions.push((format!("n_depth of {phase}"), row.n_depth.to_string()));
            add(row, phase, &mut profile, at)?;
        }
    }
    if let Some(imported) = &mut profile.imported {
        imported.conditions = conditions;
        imported.other_threads = other_threads(&of_run, &others);
        imported.tests = rows.iter().map(|row| row.test(&apart, time.as_ref())).collect();
        for field in ["n_prompt", "n_gen"] {
            let lacking = rows.iter().filter(|row| row.taken_as_0() == Some(field)).count() as u64;
            if lacking > 0 {
                let of = count(lacking, "row");
                imported.doubts.push(format!("{field} is missing in {of} and taken as 0"));
            }
        }
    }
    not_read.note(&mut profile);
    let mut reasons =
        vec!["bricks, kernels and layers: llama-bench times repetitions as a whole".to_owned()];
    if of_run.is_empty() {
        reasons.push(if !timed.is_empty() {
            format!(
                "passes: a run has one prompt test and one generation test; `import --rows {}` chooses them",
                pairs(&timed)
            )
        } else if rows.iter().any(|row| row.stated.is_some()) {
            let why = "times of repetitions: the file has only rates; llama-bench's `-o jsonl` has both";
            why.to_owned()
        } else {
            "passes: a prompt and its answer were timed together (pg)".to_owned()
        });
    } else {
        reasons.extend([
            "single tokens: a repetition of a generation test is one pass of all its tokens"
                .to_owned(),
            "when repetitions began: all start_ns are 0".to_owned(),
        ]);
        let only_rates = rows.iter().filter(|row| row.stated.is_some()).count() as u64;
        if only_rates > 0 {
            let tests = count(only_rates, "test");
            reasons
                .push(format!("times of repetitions of {tests}: the file has only rates of them"));
        }
        if rows.iter().any(|row| row.phase().is_none()) {
            reasons.push("passes of tests of a prompt and its answer together (pg)".to_owned());
        }
    }
    if !is_dated {
        reasons.push(UNDATED.to_owned());
    }
    reasons.push(
        "layers and width of the model, and the machine beyond the names of its processors"
            .to_owned(),
    );
    lacks(&mut profile, &reasons.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(profile)
}

/// The rows of the first form that the text has any of.
fn rows(text: &str, at: &At<'_>) -> Result<rows::Rows, ImportError> {
    type Read = fn(&str, &At<'_>) -> Result<rows::Rows, ImportError>;
    let has_field = |field: &str| text.contains(&format!("\"{field}\""));
    let is_json = has_field("samples_ns") || text.trim_start().starts_with(['[', '{']);
    let has = |is_head: fn(&str) -> bool| text.lines().any(is_head);
    let forms: [(bool, Read); 4] = [
        (is_json, json::rows),
        (has(table::is_markdown), table::markdown),
        (has(table::is_csv), table::csv),
        (has(table::is_sql), table::sql),
    ];
    let mut fault = None;
    for (_, read) in forms.into_iter().filter(|(is_there, _)| *is_there) {
        match read(text, at) {
            Ok(found) => return Ok(found),
            // What a program logs may begin with a bracket, or name a field.
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    fault.map_or_else(|| json::rows(text, at), Err)
}

/// The numbers of two rows that can be a run, as an example.
fn pairs(rows: &[&BenchRow]) -> String {
    let first = rows[0];
    let other =
        rows.iter().find(|row| row.phase() != first.phase() && unlike(&[first, row]).is_none());
    match other {
        Some(other) => format!("{},{}", first.number, other.number),
        None => first.number.to_string(),
    }
}

/// The fields that rows differ in, beside their tokens and depth.
fn apart(rows: &[BenchRow]) -> Vec<String> {
    let mut apart: Vec<String> = Vec::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let first = rows[0].conditions();
    for row in rows {
        let in_common = IN_COMMON.iter().filter(|field| rows[0].shown(field) != row.shown(field));
        let conditions = row.conditions();
        let keys = first.keys().chain(conditions.keys());
        let differ = keys.filter(|key| first.get(*key) != conditions.get(*key));
        for field in in_common.chain(differ) {
            if !known.contains(*field) {
                known.insert((*field).to_owned());
                apart.push((*field).to_owned());
            }
        }
    }
    apart
}

/// Those of the rows that were not chosen which differ from a chosen one in nothing but the number of threads.
fn other_threads(rows: &[&BenchRow], others: &[BenchRow]) -> Vec<OtherThreads> {
    /// More numbers of threads nobody measures.
    const MOST: usize = 256;
    /// More repetitions tell no more.
    const MOST_SAMPLES: usize = 1000;
    let is_alike = |a: &BenchRow, b: &BenchRow| {
        let in_common = IN_COMMON.iter().filter(|field| **field != "n_threads");
        let mut in_common = in_common.map(|field| a.shown(field) == b.shown(field));
        let tests = |row: &BenchRow| (row.n_prompt, row.n_gen, row.n_depth);
        tests(a) == tests(b) && in_common.all(|is| is) && a.conditions() == b.conditions()
    };
    let other = |other: &BenchRow| {
        let row = rows.iter().find(|row| is_alike(row, other))?;
        let (phase, tokens) = row.phase()?;
        let threads = other.number("n_threads").and_then(|n| u32::try_from(n).ok())?;
        let samples = other.samples_ns.iter().copied().take(MOST_SAMPLES);
        (Some(u64::from(threads)) != row.number("n_threads")).then(|| OtherThreads {
            phase,
            threads,
            tokens,
            samples_ns: samples.collect(),
        })
    };
    others.iter().filter_map(other).take(MOST).collect()
}

/// Why rows can't be the phases of one run: they must share their conditions, and be of different phases.
fn unlike(rows: &[&BenchRow]) -> Option<String> {
    let (first, others) = rows.split_first()?;
    for row in others {
        let which =
            format!("rows {} ({}) and {} ({})", first.number, first.name(), row.number, row.name());
        let unlike = |field: &str, a: Option<String>, b: Option<String>| {
            let said = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            Some(format!("{which} differ in {field} ({} and {})", said(a), said(b)))
        };
        for field in IN_COMMON {
            let (a, b) = (first.shown(field), row.shown(field));
            if a != b {
                return unlike(field, a, b);
            }
        }
        let (a, b) = (first.conditions(), row.conditions());
        if let Some(field) = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key)) {
            return unlike(field, a.get(field).cloned(), b.get(field).cloned());
        }
    }
    Phase::ALL.into_iter().find_map(|phase| {
        let mut of_phase = rows.iter().filter(|row| row.phase().is_some_and(|of| of.0 == phase));
        let (one, other) = (of_phase.next()?, of_phase.next()?);
        Some(format!(
            "rows {} ({}) and {} ({}) are both of {phase}",
            one.number,
            one.name(),
            other.number,
            other.name()
        ))
    })
}

fn add(
    row: &BenchRow,
    phase: Phase,
    profile: &mut Profile,
    at: &At<'_>,
) -> Result<(), ImportError> {
    let Some((_, tokens)) = row.phase() else { return Ok(()) };
    let place = || format!("row {}, samples_ns", row.number);
    let beyond = || at.place(place(), "add up to more than 64 bits");
    let mut sum = PhaseTotal {
        phase,
        passes: 0,
        disturbed: 0,
        unwatched: None,
        tokens: 0,
        wall_ns: 0,
        attributed_ns: 0,
        unattributed_ns: 0,
    };
    for &wall_ns in &row.samples_ns {
        let serial = u32::try_from(profile.passes.len() + 1).map_err(|_| beyond())?;
        profile.passes.push(Pass {
            serial,
            phase,
            lane: 0,
            tokens,
            position: row.n_depth,
            start_ns: 0,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        });
        sum.passes += 1;
        sum.tokens = sum.tokens.checked_add(tokens).ok_or_else(beyond)?;
        sum.wall_ns = sum.wall_ns.checked_add(wall_ns).ok_or_else(beyond)?;
    }
    sum.unattributed_ns = sum.wall_ns;
    profile.phases.push(sum);
    Ok(())
}

impl At<'_> {
    /// An error for JSON that is truncated or malformed.
    pub(super) fn json(&self, error: &serde_json::Error) -> ImportError {
        let text = error.to_string();
        match text.rsplit_once(" at line ") {
            Some((fault, place)) => self.place(format!("line {place}"), fault),
            None => self.whole(text),
        }
    }
}
