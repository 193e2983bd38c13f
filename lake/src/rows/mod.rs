//! The tables that a lake of runs consists of, and their rows for one run.
//!
//! A lake is a folder of Parquet files, which SQL engines read; `brickscope collect` writes it. Here is what
//! the files hold: plain rows, without files.
//!
//! ```
//! use brickscope_lake::rows::{Facts, TABLES, rows};
//! use brickscope_profile::{ClockInfo, Profile};
//!
//! let profile = Profile::empty(ClockInfo::default());
//! let run = rows(Some(&profile), None, &Facts { machine: "ci-7".into(), ..Facts::default() })?;
//! assert_eq!(run.tables.len(), TABLES.len());
//! # Ok::<(), String>(())
//! ```

mod of_devices;
mod of_profile;
mod of_receipt;
mod of_requests;
mod table;
mod tail;

use brickscope_profile::{Profile, save};
use serde::Serialize;

pub use self::table::{
    BRICKS, Column, ColumnKind, DURATIONS, PASSES, REQUESTS, RUNS, SPANS, SPEEDS, TABLES, Table,
    Value,
};
use self::table::{BrickRow, DurationRow, Of, PassRow, RequestRow, RunRow, SpanRow, SpeedRow};
use brickscope_analysis::compare::UnusableProfile;
use brickscope_analysis::receipt::{Receipt, sha256_hex};

/// Incremented when the tables change, so that a version which doesn't know one can't leave it out of what it merges.
pub const LAKE_VERSION: u32 = 4;

/// The first version that is still read and written: it lacks the table `requests`. Its mark says so until the lake gets
/// requests.
pub const FIRST_LAKE_VERSION: u32 = 3;

/// What whoever collects a run knows, and the run doesn't.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The machine, as the lake is to name it: it becomes the name of a folder.
    pub machine: String,
    /// The path of the run.
    pub source: String,
    /// The engine's commit, if it is known better than by the run itself.
    pub commit: Option<String>,
    /// What the runs of one machine near each other in time have in common.
    pub session: Option<String>,
    /// Why the receipt is refused; `None` if it verifies, or there is none.
    pub refused: Option<String>,
    /// The public keys of the receipt's valid signatures.
    pub signed_by: Vec<String>,
}

/// A run, as rows.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRows {
    /// The run's id: the same for the same measurements, whatever was noted of them since.
    pub run_id: String,
    /// The day on which it was made, in UTC: `2026-01-31`.
    pub date: String,
    /// The machine, as [`Facts`] name it.
    pub machine: String,
    /// The rows of each of [`TABLES`], in the same order. Each row has a cell for each column.
    pub tables: [Vec<Vec<Value>>; TABLES.len()],
}

/// The rows of a run: of a profile, of a receipt, or of both if they are of one benchmark. Then the speeds are the
/// receipt's, and everything else is the profile's.
///
/// # Errors
///
/// A sentence, if there is neither, if the time of the run isn't one, or if it is a list of tests that have no times, or are
/// of several builds.
pub fn rows(
    profile: Option<&Profile>,
    receipt: Option<&Receipt>,
    facts: &Facts,
) -> Result<RunRows, String> {
    let created = match (receipt, profile) {
        (Some(receipt), _) => &receipt.timestamp,
        (None, Some(profile)) => &profile.created,
        (None, None) => return Err("there is neither a profile nor a receipt".to_owned()),
    };
    let day = |seconds| Some((seconds, created.get(..10)?));
    let Some((created_s, date)) = save::unix_seconds(created).and_then(day) else {
        let text: String = created.chars().take(40).collect();
        return Err(format!("its time {text:?} is not like 2026-01-31T23:59:59Z"));
    };
    profile.map_or(Ok(()), check_tests)?;
    let run_id = run_id(profile, receipt)?;
    let mut parts = Parts::default();
    match (profile, receipt) {
        (Some(profile), Some(receipt)) => {
            of_profile::add(profile, &mut parts);
            parts.speeds = of_receipt::speeds(receipt);
        }
        (Some(profile), None) => {
            of_profile::add(profile, &mut parts);
            parts.speeds = of_profile::speeds(profile);
        }
        (None, Some(receipt)) => of_receipt::add(receipt, &mut parts),
        (None, None) => {}
    }
    if let Some(profile) = profile {
        of_requests::add(profile, &mut parts);
    }
    let mut run = RunRow { created: created.clone(), created_s, ..RunRow::default() };
    if let Some(profile) = profile {
        of_profile::describe(profile, &mut run);
    }
    if let Some(receipt) = receipt {
        of_receipt::describe(receipt, &mut run);
        run.receipt_verifies = Some(facts.refused.is_none());
        run.receipt_refused = facts.refused.clone();
        run.signed_by = Some(facts.signed_by.join(",")).filter(|_| !facts.signed_by.is_empty());
    }
    run.source = facts.source.clone();
    run.commit = facts.commit.clone().or(run.commit);
    // A machine may be up for months.
    let of_day = run.session.map(|boot| format!("{boot} {date}"));
    run.session = facts.session.clone().or(of_day);
    run.speed_rows = parts.speeds.len() as u64;
    run.brick_rows = parts.bricks.len() as u64;
    run.duration_rows = parts.durations.len() as u64;
    run.pass_rows = parts.passes.len() as u64;
    run.span_rows = parts.spans.len() as u64;
    run.request_rows = Some(parts.requests.len() as u64);
    parts.requests.iter_mut().for_each(|row| row.commit.clone_from(&run.commit));
    let machine = facts.machine.clone();
    let of = &Of { part: run_part(&machine, &run_id), run_id: run_id.clone(), machine };
    let tables = [
        parts.speeds.into_iter().map(|row| row.cells(of)).collect(),
        parts.bricks.into_iter().map(|row| row.cells(of)).collect(),
        parts.durations.into_iter().map(|row| row.cells(of)).collect(),
        parts.passes.into_iter().map(|row| row.cells(of)).collect(),
        parts.spans.into_iter().map(|row| row.cells(of)).collect(),
        parts.requests.into_iter().map(|row| row.cells(of)).collect(),
        vec![run.cells(of)],
    ];
    let machine = facts.machine.clone();
    Ok(RunRows { date: date.to_owned(), machine, run_id, tables })
}

/// The part of a lake that is one run: the value of the column `part`. A space is less than all that names have, so
/// that texts are in the same order as machines and their runs.
pub fn run_part(machine: &str, run_id: &str) -> String {
    format!("0 {machine} {run_id}")
}

/// The part of a lake that is a file with many runs. It comes after all parts with one run.
pub fn merged_part(name: &str) -> String {
    format!("1 {name}")
}

/// The rows of a run, by table.
#[derive(Debug, Default)]
struct Parts {
    speeds: Vec<SpeedRow>,
    bricks: Vec<BrickRow>,
    durations: Vec<DurationRow>,
    passes: Vec<PassRow>,
    spans: Vec<SpanRow>,
    requests: Vec<RequestRow>,
}

/// Refuses tests of a benchmark without what a lake keeps: times, and one commit.
fn check_tests(profile: &Profile) -> Result<(), String> {
    let Some(imported) = profile.imported.as_ref().filter(|of| !of.tests.is_empty()) else {
        return Ok(());
    };
    if imported.tests.iter().all(|test| test.samples_ns.is_empty()) {
        return Err(UnusableProfile::OnlyRates.to_string());
    }
    let is_build = |(field, _): &(String, String)| field == "build_commit";
    match imported.tests.iter().any(|test| test.apart.iter().any(is_build)) {
        true => Err("its tests are of several builds, which are runs of their own: import those of each by \
                     `brickscope import --rows`"
            .to_owned()),
        false => Ok(()),
    }
}

/// By what was measured: what is noted later, such as a trial, leaves it.
fn run_id<'p>(profile: Option<&'p Profile>, receipt: Option<&Receipt>) -> Result<String, String> {
    let hash = match (receipt, profile) {
        (Some(receipt), _) => receipt.canonical_sha256().map_err(|error| error.to_string())?,
        (None, Some(profile)) => {
            #[derive(Serialize)]
            struct Measured<'p> {
                created: &'p str,
                process: Option<u32>,
                run: &'p Option<brickscope_profile::Run>,
                phases: &'p [brickscope_profile::sums::PhaseTotal],
                passes: &'p [brickscope_profile::Pass],
                totals: &'p [brickscope_profile::Total],
                /// Of a list, which has no passes.
                #[serde(skip_serializing_if = "Option::is_none")]
                tests: Option<&'p [brickscope_profile::ImportedTest]>,
                /// Of another program's file, in which work and layers of devices depend on what it was imported with.
                #[serde(skip_serializing_if = "Vec::is_empty")]
                devices: Vec<OnDevice<'p>>,
                #[serde(skip_serializing_if = "Option::is_none")]
                graph_layers: Option<&'p brickscope_profile::GraphLayers>,
            }
            #[derive(Serialize)]
            struct OnDevice<'p> {
                name: &'p str,
                ceilings: &'p Option<brickscope_profile::Ceilings>,
                totals: Vec<&'p [brickscope_profile::Total]>,
            }
            let on_device = |of: &'p brickscope_profile::DeviceProfile| OnDevice {
                name: &of.name,
                ceilings: &of.ceilings,
                totals: of.streams.iter().map(|stream| &*stream.totals).collect(),
            };
            let imported = profile.imported.as_ref();
            let list = profile.imported.as_ref().filter(|_| profile.passes.is_empty());
            let measured = Measured {
                created: &profile.created,
                process: profile.process,
                run: &profile.run,
                phases: &profile.phases,
                passes: &profile.passes,
                totals: &profile.totals,
                tests: list.map(|of| &*of.tests).filter(|tests| !tests.is_empty()),
                devices: imported.iter().flat_map(|_| &profile.devices).map(on_device).collect(),
                graph_layers: imported.and_then(|of| of.graph_layers.as_ref()),
            };
            let json = serde_json::to_vec(&measured).map_err(|error| error.to_string())?;
            sha256_hex(&json)
        }
        (None, None) => return Err("there is neither a profile nor a receipt".to_owned()),
    };
    hash.get(..32).map(str::to_owned).ok_or_else(|| "its hash is too short".to_owned())
}

/// Unknown texts are empty in profiles.
fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Unknown counts are 0 in profiles.
fn counted(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use brickscope_profile::ClockInfo;

    use super::*;
    use brickscope_formats::import::{self, Format};

    fn facts() -> Facts {
        Facts { machine: "m1".to_owned(), source: "runs/1".to_owned(), ..Facts::default() }
    }

    #[test]
    fn each_row_has_a_cell_of_the_type_of_each_column() {
        let profile = Profile::empty(ClockInfo::default());
        let run = rows(Some(&profile), None, &facts()).expect("it has a time");
        for (table, rows) in TABLES.iter().zip(&run.tables) {
            let names: BTreeMap<&str, ColumnKind> =
                table.columns.iter().map(|column| (column.name, column.kind)).collect();
            assert_eq!(names.len(), table.columns.len(), "{}: a name twice", table.name);
            for row in rows {
                assert_eq!(row.len(), table.columns.len());
                for (cell, column) in row.iter().zip(table.columns) {
                    let fits = match cell {
                        Value::Null => column.is_optional,
                        Value::Text(_) => column.kind == ColumnKind::Text,
                        Value::Int(_) => column.kind == ColumnKind::Int,
                        Value::Real(_) => column.kind == ColumnKind::Real,
                        Value::Flag(_) => column.kind == ColumnKind::Flag,
                    };
                    assert!(fits, "{}.{}: {cell:?}", table.name, column.name);
                }
            }
        }
        assert_eq!(run.tables[6].len(), 1);
    }

    #[test]
    fn a_receipt_of_a_device_names_it_and_has_its_bricks_apart() {
        use brickscope_analysis::receipt::v1::{Brick, Device, DeviceTimes};

        let text = include_str!("../../../tests/data/receipt-v1.json");
        let mut receipt = Receipt::from_json(text, "receipt".as_ref()).expect("the fixture");
        let of_cpu = rows(None, Some(&receipt), &facts()).expect("it has a time");
        "cuda".clone_into(&mut receipt.backend);
        receipt.device = Some(Device { name: "NVIDIA H200".to_owned(), ..Device::default() });
        for test in &mut receipt.tests {
            test.device_bricks = vec![Brick { name: "LmHead".to_owned(), ..Brick::default() }];
            for sample in &mut test.samples {
                let times = DeviceTimes { brick_ns: vec![7], ..DeviceTimes::default() };
                sample.device = Some(times);
            }
        }
        let of_device = rows(None, Some(&receipt), &facts()).expect("it has a time");
        let cell = |run: &RunRows, name: &str| {
            run.tables[6][0][RUNS.column(name).expect("a column")].clone()
        };
        let text = |text: &str| Value::Text(text.to_owned());
        for (column, on_cpu, on_device) in [
            ("backend", text("avx2"), text("cuda")),
            ("device", Value::Null, text("NVIDIA H200")),
            ("threads", Value::Int(2), Value::Null),
        ] {
            assert_eq!(cell(&of_cpu, column), on_cpu, "{column}");
            assert_eq!(cell(&of_device, column), on_device, "{column}");
        }
        let [device, source, ns] =
            ["device", "source", "exclusive_ns"].map(|name| BRICKS.column(name).expect("a column"));
        let bricks = &of_device.tables[1];
        assert_eq!(bricks.len(), of_cpu.tables[1].len() + receipt.tests.len());
        let timed: Vec<_> = bricks.iter().filter(|row| row[device] != Value::Null).collect();
        for (row, test) in timed.iter().zip(&receipt.tests) {
            let measured = test.samples.iter().filter(|sample| !sample.is_warm_up).count() as i64;
            assert_eq!((&row[source], &row[ns]), (&text("device"), &Value::Int(7 * measured)));
        }
        assert_eq!(timed.len(), receipt.tests.len());
    }

    #[test]
    fn without_a_time_or_a_run_there_are_no_rows() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.created = "yesterday".to_owned();
        let error = rows(Some(&profile), None, &facts()).expect_err("it has no time");
        assert!(error.contains("\"yesterday\" is not like 2026-01-31T23:59:59Z"), "{error}");
        assert!(rows(None, None, &facts()).is_err());
    }

    #[test]
    fn a_benchmark_of_llama_cpp_keeps_what_it_states_and_has_no_unattributed_time() {
        let text = include_str!("../../../tests/data/import/llama-bench.json");
        let path = std::path::Path::new("llama-bench.json");
        let profile = import::read(text, path, Format::LlamaBench, &import::Options::default());
        let run = rows(Some(&profile.expect("it is one")), None, &facts()).expect("it has a time");
        let cell = |column: &str| &run.tables[6][0][RUNS.column(column).expect("a column")];
        let text = |text: &str| Value::Text(text.to_owned());
        for (column, value) in [
            ("engine", "llama.cpp"),
            ("commit", "0c1e5709"),
            ("model", "1b-q4_k"),
            ("architecture", "llama"),
            ("quant", "q4_k"),
            ("cpu", "AMD EPYC 9R14"),
        ] {
            assert_eq!(*cell(column), text(value), "{column}");
        }
        assert_eq!(*cell("device"), Value::Null);
        assert!(run.tables[1].is_empty(), "{:?}", run.tables[1]);
        let of_passes = PASSES.column("unattributed_ns").expect("a column");
        assert!(run.tables[3].iter().all(|row| row[of_passes] == Value::Null));
    }

    #[test]
    fn what_was_watched_is_the_engine_with_its_own_version_and_commit() {
        use brickscope_profile::{Engine, Run};

        let of = |named: Option<&str>| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.run = Some(Run {
                backend: "llama.cpp, CPU".to_owned(),
                engine: Some(Engine {
                    version: Some("0.25.3".to_owned()),
                    commit: Some("0c1e570".to_owned()),
                    ..Engine::default()
                }),
                ..Run::default()
            });
            let facts = Facts { commit: named.map(str::to_owned), ..facts() };
            let run = rows(Some(&profile), None, &facts).expect("it has a time");
            ["engine", "engine_version", "commit"]
                .map(|column| run.tables[6][0][RUNS.column(column).expect("a column")].clone())
        };
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(of(None), [text("llama.cpp"), text("0.25.3"), text("0c1e570")]);
        assert_eq!(of(Some("c1"))[2], text("c1"));
    }

    #[test]
    fn limits_that_were_stated_are_no_measured_ones() {
        use brickscope_profile::Ceilings;

        let column = RUNS.column("read_bytes_per_second").expect("a column");
        let of = |basis: String| {
            let mut profile = Profile::empty(ClockInfo::default());
            let rates = (5300e9, 1307e12);
            profile.ceilings = Some(Ceilings {
                read_bytes_per_second: rates.0,
                flops_per_second: rates.1,
                basis,
                ..Ceilings::default()
            });
            let run = rows(Some(&profile), None, &facts()).expect("it has a time");
            run.tables[6][0][column].clone()
        };
        assert_ne!(of("measured".to_owned()), Value::Null);
        assert_eq!(of(format!("{}: 5300 GB/s, 1307 TFLOP/s", Ceilings::STATED)), Value::Null);
    }

    #[test]
    fn a_request_is_a_row_with_null_for_what_nobody_could_know() {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests = vec![brickscope_profile::Request {
            id: "cmpl-1".to_owned(),
            arrived_ns: 10,
            tokens_ns: vec![40, 60],
            ended_ns: Some(65),
            ..Default::default()
        }];
        let facts = Facts { commit: Some("c1".to_owned()), ..facts() };
        profile.run = Some(brickscope_profile::Run {
            backend: "a client of a server".to_owned(),
            ..Default::default()
        });
        let run = rows(Some(&profile), None, &facts).expect("it has a time");
        let of_run = |column: &str| &run.tables[6][0][RUNS.column(column).expect("a column")];
        assert_eq!(*of_run("engine"), Value::Text("a server".to_owned()));
        assert_eq!((of_run("backend"), of_run("engine_version")), (&Value::Null, &Value::Null));
        let [row] = &run.tables[5][..] else { panic!("{:?}", run.tables[5]) };
        let cell = |column: &str| row[REQUESTS.column(column).expect("a column")].clone();
        for (column, value) in [
            ("run_id", Value::Text(run.run_id.clone())),
            ("commit", Value::Text("c1".to_owned())),
            // Of a server passes would be known.
            ("is_of_client", Value::Flag(true)),
            ("to_first_token_ns", Value::Int(30)),
            ("mean_token_ns", Value::Int(20)),
            ("whole_ns", Value::Int(55)),
            ("queue_ns", Value::Null),
            ("own_alone_ns", Value::Null),
            ("between_ns", Value::Null),
            ("unattributed_ns", Value::Int(55)),
        ] {
            assert_eq!(cell(column), value, "{column}");
        }
        let rows = RUNS.column("request_rows").expect("a column");
        assert_eq!(run.tables[6][0][rows], Value::Int(1));
        // What lies between its two tokens is a histogram's only value.
        let [row] = &run.tables[2][..] else { panic!("{:?}", run.tables[2]) };
        let cell = |column: &str| row[DURATIONS.column(column).expect("a column")].clone();
        assert_eq!(cell("kind"), Value::Text("request".to_owned()));
        assert_eq!((cell("phase"), cell("from_ns")), (Value::Null, Value::Int(20)));
        assert_eq!((cell("to_ns"), cell("spans")), (Value::Int(21), Value::Int(1)));
    }

    #[test]
    fn a_sweep_of_llama_cpp_has_the_speed_of_each_test() {
        let text = include_str!("../../../tests/data/import/llama-bench.json");
        let read = |text: &str| {
            let path = std::path::Path::new("llama-bench.jsonl");
            let options = import::Options::default();
            import::read(text, path, Format::LlamaBench, &options).expect("it is one")
        };
        let of = |text: &str| rows(Some(&read(text)), None, &facts());
        let one: Vec<serde_json::Value> = serde_json::from_str(text).expect("JSON");
        let deep = |mut row: serde_json::Value| {
            row["n_depth"] = 4096.into();
            row
        };
        // The last one measures the second again.
        let all = [one[0].clone(), one[1].clone(), deep(one[1].clone()), one[1].clone()];
        let lines: String = all.iter().map(|row| format!("{row}\n")).collect();
        let sweep = of(&lines).expect("it has a time");
        let column = |run: &RunRows, name: &str| -> Vec<Value> {
            let at = SPEEDS.column(name).expect("a column");
            run.tables[0].iter().map(|row| row[at].clone()).collect()
        };
        let texts = |texts: &[&str]| -> Vec<Value> {
            texts.iter().map(|text| Value::Text((*text).to_owned())).collect()
        };
        assert_eq!(column(&sweep, "test"), texts(&["pp512", "tg128", "tg128 @ d4096"]));
        assert_eq!(column(&sweep, "phase"), texts(&["prefill", "decode", "decode"]));
        assert_eq!(column(&sweep, "repetitions"), [3, 6, 3].map(Value::Int));
        assert_eq!(column(&sweep, "n_depth"), [0, 0, 4096].map(Value::Int));
        // As of the file with only these two tests.
        let pair = of(text).expect("it has a time");
        for name in ["test", "phase", "work", "n_prompt", "n_gen", "tokens_per_second"] {
            assert_eq!(column(&sweep, name)[..2], column(&pair, name)[..], "{name}");
        }
        // What another sweep measured is another run.
        let other = of(&lines.replace("6400000000", "6300000000")).expect("it has a time");
        assert_ne!(other.run_id, sweep.run_id);
        let builds = lines.replacen("0c1e5709", "1c1e5709", 1);
        assert!(of(&builds).expect_err("two builds").contains("several builds"));
        let rates = "| model | test | t/s |\n| --- | --- | --- |\n| a | tg128 | 118.88 ± 1.04 |\n";
        assert!(of(rates).expect_err("no times").contains("llama-bench -o jsonl"));
    }
}
