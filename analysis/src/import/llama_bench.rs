//! The output of `llama-bench -o json` and `-o jsonl` (`tools/llama-bench/llama-bench.cpp`, `json_printer`): a
//! row for each test, with `samples_ns`, the time of each of its repetitions.
//!
//! Here, a repetition of a prompt test is a prefill pass of `n_prompt` tokens. A repetition of a generation
//! test is a run of `n_gen` decode passes that have no times of their own; it becomes one pass of that many
//! tokens.

use std::collections::BTreeMap;

use brickscope_profile::{Lane, Model, OtherThreads, Pass, Phase, PhaseTotal, Profile, Run, save};
use serde_json::{Map, Value};

use super::{At, Format, ImportError, lacks, left_out};

/// The most bytes of a file; in memory it takes several times as much.
const MOST_BYTES: usize = 1 << 26;

/// Fields that are not conditions of the measurement: results, and what a profile keeps elsewhere.
const NO_CONDITIONS: [&str; 16] = [
    "build_commit",
    "build_number",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "backends",
    "n_threads",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
];

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
struct Row {
    /// Counted from 1.
    number: usize,
    fields: Map<String, Value>,
    n_prompt: u64,
    n_gen: u64,
    n_depth: u64,
    samples_ns: Vec<u64>,
}

impl Row {
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

    fn shown(&self, field: &str) -> Option<String> {
        shown(self.fields.get(field)?)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.as_u64()
    }

    /// All conditions of the measurement, by their names in the file.
    fn conditions(&self) -> BTreeMap<&str, String> {
        let is_condition = |key: &str| {
            !NO_CONDITIONS.contains(&key) && !key.starts_with("samples_") && !key.is_empty()
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

pub(super) fn read(text: &str, at: &At<'_>, wanted: &[usize]) -> Result<Profile, ImportError> {
    if text.len() > MOST_BYTES {
        return Err(at.whole(format!(
            "has more than {MOST_BYTES} bytes, too many for the output of a benchmark"
        )));
    }
    let mut rows = rows(text, at)?;
    if let Some(missing) = wanted.iter().find(|row| !(1..=rows.len()).contains(*row)) {
        return Err(at.whole(format!("has no row {missing}: its rows are 1 to {}", rows.len())));
    }
    let mut others = Vec::new();
    if !wanted.is_empty() {
        (rows, others) = rows.into_iter().partition(|row| wanted.contains(&row.number));
    }
    let all = rows.len();
    rows.retain(|row| row.phase().is_some());
    let mixed = (all - rows.len()) as u64;
    let Some(first) = rows.first() else {
        return Err(at.whole(
            "has only tests of a prompt and its answer together (pg), whose times can't be separated",
        ));
    };
    alike(&rows, at)?;

    let build = first.shown("build_commit").map(|commit| match first.number("build_number") {
        Some(number) => format!("llama.cpp {commit} ({number})"),
        None => format!("llama.cpp {commit}"),
    });
    let mut profile = at.profile(Format::LlamaBench, build, "of llama-bench");
    if let Some(time) = first.shown("test_time").filter(|t| save::unix_seconds(t).is_some()) {
        profile.created = time;
    }
    let named = |phase| rows.iter().filter_map(move |row| row.phase().filter(|of| of.0 == phase));
    let tokens = |phase| named(phase).next().map_or(0, |(_, tokens)| tokens);
    profile.run = Some(Run {
        command: Vec::new(),
        backend: first.shown("backends").unwrap_or_default(),
        threads: first.number("n_threads").and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
        prompt_tokens: tokens(Phase::Prefill),
        generated_tokens: tokens(Phase::Decode),
        ..Run::default()
    });
    profile.model = Some(Model {
        path: first.shown("model_filename").unwrap_or_default(),
        // llama.cpp's one description of architecture, size and quantisation: "llama 1B Q4_K - Medium".
        architecture: first.shown("model_type").unwrap_or_default(),
        file_bytes: first.number("model_size").unwrap_or_default(),
        parameters: first.number("model_n_params").unwrap_or_default(),
        ..Model::default()
    });
    let mut conditions: Vec<(String, String)> =
        first.conditions().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    profile.lanes.push(Lane { name: None, tid: None });
    for phase in Phase::ALL {
        for row in rows.iter().filter(|row| row.phase().is_some_and(|of| of.0 == phase)) {
            conditions.push((format!("n_depth of {phase}"), row.n_depth.to_string()));
            add(row, phase, &mut profile, at)?;
        }
    }
    if let Some(imported) = &mut profile.imported {
        imported.conditions = conditions;
        imported.other_threads = other_threads(&rows, &others);
    }
    left_out(&mut profile, "tests of a prompt and its answer together (pg)", mixed);
    lacks(
        &mut profile,
        &[
            "bricks, kernels and layers: llama-bench times repetitions as a whole",
            "single tokens: a repetition of a generation test is one pass of all its tokens",
            "when repetitions began: all start_ns are 0",
            "layers and width of the model, and the machine beyond the names of its processors",
        ],
    );
    Ok(profile)
}

/// Those of the rows that were not chosen which differ from a chosen one in nothing but the number of threads.
fn other_threads(rows: &[Row], others: &[Row]) -> Vec<OtherThreads> {
    /// More numbers of threads nobody measures.
    const MOST: usize = 256;
    /// More repetitions tell no more.
    const MOST_SAMPLES: usize = 1000;
    let is_alike = |a: &Row, b: &Row| {
        let in_common = IN_COMMON.iter().filter(|field| **field != "n_threads");
        let mut in_common = in_common.map(|field| a.shown(field) == b.shown(field));
        let tests = |row: &Row| (row.n_prompt, row.n_gen, row.n_depth);
        tests(a) == tests(b) && in_common.all(|is| is) && a.conditions() == b.conditions()
    };
    let other = |other: &Row| {
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

fn rows(text: &str, at: &At<'_>) -> Result<Vec<Row>, ImportError> {
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| at.json(&error))?;
        let of_value = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        for value in of_value {
            let number = rows.len() + 1;
            rows.push(row(number, value, at)?);
        }
    }
    if rows.is_empty() {
        return Err(at.whole("has no test"));
    }
    Ok(rows)
}

fn row(number: usize, value: Value, at: &At<'_>) -> Result<Row, ImportError> {
    let place = |field: &str| format!("row {number}, {field}");
    let Value::Object(fields) = value else {
        return Err(at.place(format!("row {number}"), "is not an object"));
    };
    let count = |field: &str, absent: Option<u64>| match fields.get(field) {
        None => absent.ok_or_else(|| at.place(place(field), "is missing")),
        Some(value) => {
            value.as_u64().ok_or_else(|| at.place(place(field), "is not a whole number"))
        }
    };
    // Older versions have no depth.
    let (n_prompt, n_gen, n_depth) =
        (count("n_prompt", None)?, count("n_gen", None)?, count("n_depth", Some(0))?);
    if n_prompt == 0 && n_gen == 0 {
        return Err(at.place(place("n_prompt"), "is 0, and so is n_gen: a test of nothing"));
    }
    let samples = fields.get("samples_ns").and_then(Value::as_array);
    let samples =
        samples.ok_or_else(|| at.place(place("samples_ns"), "is not an array of times"))?;
    let nanos = |(index, sample): (usize, &Value)| {
        let place = || place(&format!("samples_ns[{index}]"));
        sample.as_u64().ok_or_else(|| at.place(place(), "is not a whole number of nanoseconds"))
    };
    let samples_ns: Vec<u64> = samples.iter().enumerate().map(nanos).collect::<Result<_, _>>()?;
    if samples_ns.is_empty() {
        return Err(at.place(place("samples_ns"), "is empty"));
    }
    Ok(Row { number, fields, n_prompt, n_gen, n_depth, samples_ns })
}

/// A profile is of one run: rows must share their conditions, and be of different phases.
fn alike(rows: &[Row], at: &At<'_>) -> Result<(), ImportError> {
    let first = &rows[0];
    for row in &rows[1..] {
        let which =
            format!("rows {} ({}) and {} ({})", first.number, first.name(), row.number, row.name());
        let unlike = |field: &str, a: Option<String>, b: Option<String>| {
            let said = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            at.whole(format!(
                "{which} differ in {field} ({} and {}), but a run has only one: choose rows by their numbers",
                said(a),
                said(b)
            ))
        };
        for field in IN_COMMON {
            let (a, b) = (first.shown(field), row.shown(field));
            if a != b {
                return Err(unlike(field, a, b));
            }
        }
        let (a, b) = (first.conditions(), row.conditions());
        if let Some(field) = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key)) {
            return Err(unlike(field, a.get(field).cloned(), b.get(field).cloned()));
        }
    }
    for phase in Phase::ALL {
        let of_phase: Vec<&Row> =
            rows.iter().filter(|row| row.phase().is_some_and(|of| of.0 == phase)).collect();
        if let [one, other, ..] = of_phase[..] {
            return Err(at.whole(format!(
                "rows {} ({}) and {} ({}) are both of {phase}, but a run has only one such test: choose rows by \
                 their numbers",
                one.number,
                one.name(),
                other.number,
                other.name()
            )));
        }
    }
    Ok(())
}

fn add(row: &Row, phase: Phase, profile: &mut Profile, at: &At<'_>) -> Result<(), ImportError> {
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
