//! A receipt's tests as rows for programs, in the formats of llama-bench: first its columns, with its
//! names and in its order (ggml-org/llama.cpp@0c1e57098, tools/llama-bench/llama-bench.cpp,
//! `test::get_fields`), then ours.
//!
//! A column for a setting that this engine lacks has the value that llama-bench prints if the setting
//! is off.

use clap::ValueEnum;
use std::fmt::Write;
use std::path::PathBuf;

use brickscope::{Phase, Profile};
use brickscope_analysis::receipt::v1::{Receipt, Test};
use brickscope_analysis::view;
use brickscope_engine::Model;
use brickscope_formats::export::csv::guarded;
use serde_json::{Map, Value, json};

use crate::benchmark::receipt::WEIGHTS;
use crate::benchmark::sums::Choosing;
use crate::source::MAPPED;
use crate::text::printable_text;

/// The output formats, which are those of llama-bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table and notes.
    Md,
    /// An array with an object for each test.
    Json,
    /// One object per line.
    Jsonl,
    /// A header, and a line for each test.
    Csv,
    /// SQL that creates and fills a table `llama_bench`.
    Sql,
}

/// The receipt of a process, and the folder of its run.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) receipt: Receipt,
    pub(crate) folder: PathBuf,
    /// What its profile says, if it has one.
    pub(crate) answer: Option<Answer>,
    /// What choosing tokens took in each test; empty of another process, whose receipt doesn't have it.
    pub(crate) choosing: Vec<Choosing>,
}

/// What limits a run, and what to do about it.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// For each phase that ran.
    limits: Vec<(Phase, String)>,
    next: String,
}

impl Answer {
    pub(crate) fn of(profile: &Profile) -> Self {
        let phases = Phase::SHOWN.into_iter();
        let limits = phases
            .filter(|&phase| profile.phase(phase).is_some())
            .map(|phase| (phase, view::phase_limit(profile, phase).text))
            .collect();
        Self { limits, next: view::next_step(profile) }
    }

    /// Lines for people, each with its label.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let limits = self.limits.iter().map(|(phase, limit)| (phase.name(), limit.clone()));
        limits.chain([("next", self.next.clone())]).collect()
    }
}

/// Properties of a model that llama-bench prints and a receipt lacks.
#[derive(Debug, Clone)]
pub(crate) struct ModelRow {
    /// For example `llama 1.1B Q4_K`.
    pub(crate) model_type: String,
    /// The size of all tensors, which is less than the file's.
    pub(crate) bytes: u64,
}

impl ModelRow {
    pub(crate) fn of(model: &Model) -> Self {
        let parameters = model.n_parameters() as f64;
        let size = match parameters {
            ..1e9 => format!("{:.0}M", parameters / 1e6),
            _ => format!("{:.1}B", parameters / 1e9),
        };
        let architecture = model.config.architecture.name();
        Self {
            model_type: format!("{architecture} {size} {}", model.quantization().to_uppercase()),
            bytes: model.gguf.tensors.iter().map(|tensor| tensor.n_bytes as u64).sum(),
        }
    }
}

/// The name, the value and the SQL type of a column.
type Column = (&'static str, Value, &'static str);

const TEXT: &str = "TEXT";
const INTEGER: &str = "INTEGER";
const REAL: &str = "REAL";

/// The columns of llama-bench.
fn theirs(measurement: &Measurement, model: &ModelRow, test: &Test) -> Vec<Column> {
    let Receipt { machine, run, timestamp, environment, binary, device, .. } = &measurement.receipt;
    let is_mapped = environment.get(WEIGHTS).is_none_or(|stated| stated == MAPPED);
    let load_mode = if is_mapped { "mmap" } else { "none" };
    // On a device all layers run there, on the one that was found first.
    let gpu = device.as_ref().map_or("", |device| &*device.name);
    let (layers, devices) = match device {
        None => (0, "none"),
        Some(_) => (measurement.receipt.model.layers, "auto"),
    };
    let of = &test.aggregates;
    let whole = |value: Option<f64>| value.map(|value| value.round() as u64);
    vec![
        ("build_commit", json!(environment.get("COMMIT").unwrap_or(&binary.version)), TEXT),
        ("build_number", json!(0), INTEGER),
        ("cpu_info", json!(machine.cpu.as_deref().unwrap_or_default()), TEXT),
        ("gpu_info", json!(gpu), TEXT),
        ("backends", json!(measurement.receipt.backend.to_uppercase()), TEXT),
        ("model_filename", json!(measurement.receipt.model.path), TEXT),
        ("model_type", json!(model.model_type), TEXT),
        ("model_size", json!(model.bytes), INTEGER),
        ("model_n_params", json!(measurement.receipt.model.parameters), INTEGER),
        ("n_batch", json!(run.batch), INTEGER),
        ("n_ubatch", json!(run.batch), INTEGER),
        ("n_threads", json!(run.threads), INTEGER),
        ("cpu_mask", json!("0x0"), TEXT),
        ("cpu_strict", json!(false), INTEGER),
        ("poll", json!(0), INTEGER),
        ("type_k", json!("f32"), TEXT),
        ("type_v", json!("f32"), TEXT),
        ("n_gpu_layers", json!(layers), INTEGER),
        ("n_cpu_moe", json!(0), INTEGER),
        ("split_mode", json!("none"), TEXT),
        ("main_gpu", json!(0), INTEGER),
        ("no_kv_offload", json!(false), INTEGER),
        ("flash_attn", json!(0), INTEGER),
        ("devices", json!(devices), TEXT),
        ("tensor_split", json!("0.00"), TEXT),
        ("tensor_buft_overrides", json!("none"), TEXT),
        ("load_mode", json!(load_mode), TEXT),
        ("lazy_mode", json!("off"), TEXT),
        ("embeddings", json!(false), INTEGER),
        ("no_op_offload", json!(0), INTEGER),
        ("no_host", json!(false), INTEGER),
        ("repack", json!(false), INTEGER),
        ("fit_target", json!(0), INTEGER),
        ("fit_min_ctx", json!(0), INTEGER),
        ("n_prompt", json!(test.n_prompt), INTEGER),
        ("n_gen", json!(test.n_gen), INTEGER),
        ("n_depth", json!(test.n_depth), INTEGER),
        ("test_time", json!(timestamp), TEXT),
        ("avg_ns", json!(whole(of.avg_ns)), INTEGER),
        ("stddev_ns", json!(whole(of.stddev_ns)), INTEGER),
        ("avg_ts", json!(of.avg_ts), REAL),
        ("stddev_ts", json!(of.stddev_ts), REAL),
    ]
}

/// Our additional columns.
fn ours(measurement: &Measurement, test: &Test) -> Vec<Column> {
    let Measurement { receipt, folder, .. } = measurement;
    let run = &receipt.run;
    let of = &test.aggregates;
    let (token, first) = (&of.per_token, &of.first_token);
    let warm_up = test.samples.iter().filter(|sample| sample.is_warm_up).count();
    let sha256 = receipt.seal.as_ref().map(|seal| &seal.sha256);
    vec![
        ("brickscope_test", json!(test.name), TEXT),
        ("brickscope_run", json!(folder.display().to_string()), TEXT),
        ("brickscope_receipt_sha256", json!(sha256), TEXT),
        ("brickscope_model_sha256", json!(receipt.model.sha256), TEXT),
        ("brickscope_kernels", json!(run.kernels), TEXT),
        ("brickscope_profiled", json!(run.profiled), INTEGER),
        ("brickscope_set", json!(run.set), TEXT),
        ("brickscope_process", json!(run.process), INTEGER),
        ("brickscope_samples", json!(of.samples), INTEGER),
        ("brickscope_median_ns", json!(of.median_ns), REAL),
        ("brickscope_median_ts", json!(of.median_ts), REAL),
        ("brickscope_low_ts", json!(of.low_ts), REAL),
        ("brickscope_high_ts", json!(of.high_ts), REAL),
        ("brickscope_token_avg_ns", json!(token.mean_ns), REAL),
        ("brickscope_token_stddev_ns", json!(token.stddev_ns), REAL),
        ("brickscope_token_p50_ns", json!(token.p50_ns), INTEGER),
        ("brickscope_token_p90_ns", json!(token.p90_ns), INTEGER),
        ("brickscope_token_p95_ns", json!(token.p95_ns), INTEGER),
        ("brickscope_token_p99_ns", json!(token.p99_ns), INTEGER),
        ("brickscope_first_token_avg_ns", json!(first.mean_ns), REAL),
        ("brickscope_first_token_stddev_ns", json!(first.stddev_ns), REAL),
        ("brickscope_warm_up", json!(warm_up), INTEGER),
        ("brickscope_steady", json!(test.warm_up.steady), INTEGER),
        ("brickscope_disturbed", json!(of.disturbed), INTEGER),
        ("brickscope_others_share", json!(receipt.load.others_share), REAL),
        ("brickscope_doubts", json!(receipt.load.doubts.join(" ")), TEXT),
    ]
}

fn columns(measurement: &Measurement, model: &ModelRow, test: &Test) -> Vec<Column> {
    let mut columns = theirs(measurement, model, test);
    columns.extend(ours(measurement, test));
    columns
}

/// All tests of all measurements, in a format for programs.
pub(crate) fn render(measurements: &[Measurement], model: &ModelRow, format: Format) -> String {
    let tests = || {
        measurements.iter().flat_map(|measurement| {
            measurement.receipt.tests.iter().map(move |test| (measurement, test))
        })
    };
    let objects = tests().map(|(measurement, test)| object(measurement, model, test));
    let rows = tests().map(|(measurement, test)| columns(measurement, model, test));
    match format {
        // `table::markdown` writes this one.
        Format::Md => String::new(),
        Format::Json => {
            let all: Vec<Value> = objects.collect();
            format!("{:#}\n", Value::Array(all))
        }
        Format::Jsonl => objects.map(|object| format!("{object}\n")).collect(),
        Format::Csv => csv(rows.collect()),
        Format::Sql => sql(rows.collect()),
    }
}

/// A row as JSON, which also has the samples.
fn object(measurement: &Measurement, model: &ModelRow, test: &Test) -> Value {
    let plain = |(name, value, _): Column| (name.to_owned(), value);
    let mut object: Map<String, Value> =
        theirs(measurement, model, test).into_iter().map(plain).collect();
    let measured = test.samples.iter().filter(|sample| !sample.is_warm_up);
    let walls: Vec<u64> = measured.clone().map(|sample| sample.wall_ns).collect();
    let rates: Vec<f64> = measured.map(|sample| sample.rate()).collect();
    object.insert("samples_ns".to_owned(), json!(walls));
    object.insert("samples_ts".to_owned(), json!(rates));
    object.extend(ours(measurement, test).into_iter().map(plain));
    object.insert("brickscope_doubts".to_owned(), json!(measurement.receipt.load.doubts));
    Value::Object(object)
}

/// A value as text in one line; `None` if it is absent.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(printable_text(text)),
        // The spelling of llama-bench.
        Value::Bool(is) => Some(u8::from(*is).to_string()),
        value => Some(value.to_string()),
    }
}

fn csv(rows: Vec<Vec<Column>>) -> String {
    let mut text = String::new();
    if let Some(first) = rows.first() {
        let names: Vec<&str> = first.iter().map(|(name, ..)| *name).collect();
        let _ = writeln!(text, "{}", names.join(","));
    }
    for row in rows {
        // As llama-bench does, all in quotes; text is none that a spreadsheet takes for a formula.
        let quoted = |(_, value, _): &Column| {
            let cell = plain(value).unwrap_or_default();
            let cell = if value.is_string() { guarded(&cell).into_owned() } else { cell };
            format!("\"{}\"", cell.replace('"', "\"\""))
        };
        let _ = writeln!(text, "{}", row.iter().map(quoted).collect::<Vec<_>>().join(","));
    }
    text
}

fn sql(rows: Vec<Vec<Column>>) -> String {
    let mut text = String::new();
    if let Some(first) = rows.first() {
        let types: Vec<String> =
            first.iter().map(|(name, _, kind)| format!("  {name} {kind}")).collect();
        let _ =
            writeln!(text, "CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n", types.join(",\n"));
    }
    for row in rows {
        let names: Vec<&str> = row.iter().map(|(name, ..)| *name).collect();
        let literal = |(_, value, _): &Column| match plain(value) {
            Some(text) => format!("'{}'", text.replace('\'', "''")),
            None => "NULL".to_owned(),
        };
        let values: Vec<String> = row.iter().map(literal).collect();
        let _ = writeln!(
            text,
            "INSERT INTO llama_bench ({}) VALUES ({});",
            names.join(", "),
            values.join(", ")
        );
    }
    text
}
