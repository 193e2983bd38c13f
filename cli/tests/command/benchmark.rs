//! `brickscope benchmark` on the models in the repository: its files and its output.

use std::path::{Path, PathBuf};
use std::process::Output;

use brickscope::Profile;
use brickscope_analysis::receipt::{Aggregates, Receipt};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

fn model(name: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(format!("{name}.gguf"))
}

/// Benchmarks tiny-Q8_0 into its own folder.
fn benchmark(args: &[&str]) -> (Output, TempDir) {
    let dir = TempDir::new().expect("a temporary folder");
    (benchmark_in(dir.path(), args), dir)
}

fn benchmark_in(dir: &Path, args: &[&str]) -> Output {
    let mut command = brickscope(&[&["benchmark"], args].concat());
    run(command.arg(model("tiny-Q8_0")).arg("--out").arg(dir))
}

fn receipt(dir: &Path) -> Receipt {
    Receipt::load(&dir.join("receipt.json")).expect("it was written")
}

/// Checks a receipt's fields against their documentation.
fn holds(receipt: &Receipt) {
    for test in &receipt.tests {
        let n_tests = test.samples.iter().filter(|sample| !sample.is_warm_up).count();
        assert_eq!(n_tests, receipt.run.repetitions as usize);
        assert_eq!(Aggregates::of(&test.samples), test.aggregates);
        let mut before = 0;
        for (index, sample) in (0..).zip(&test.samples) {
            let name = format!("{} {index}", test.name);
            assert_eq!(sample.index, index, "{name}");
            assert!(before <= sample.start_ns && sample.start_ns < sample.end_ns, "{name}");
            before = sample.end_ns;
            let span_ns = sample.end_ns - sample.start_ns;
            assert_eq!(sample.pass_ns.iter().sum::<u64>(), sample.wall_ns, "{name}");
            assert!(sample.wall_ns <= span_ns, "{name}: passes lie in it");
            assert_eq!(sample.tokens, test.n_prompt + test.n_gen, "{name}");
            assert_eq!(sample.brick_ns.len(), test.bricks.len(), "{name}");
            if receipt.run.profiled {
                let bricks: u64 = sample.brick_ns.iter().sum();
                let unattributed = sample.unattributed_ns.expect("the profiler was on");
                assert_eq!(bricks + unattributed, sample.wall_ns, "{name}");
                assert!(bricks > 0, "{name}");
            } else {
                assert_eq!(sample.unattributed_ns, None, "{name}");
            }
            if test.n_gen > 0 {
                assert_eq!(sample.pass_ns.len() as u64, test.n_gen, "{name}");
                assert_eq!(sample.token_ns.iter().sum::<u64>(), span_ns, "{name}");
                let longer = sample.token_ns.iter().zip(&sample.pass_ns).all(|(t, p)| t > p);
                assert!(longer, "{name}: choosing takes time");
                assert_eq!(sample.first_token_ns, None, "{name}");
            } else {
                assert_eq!(sample.token_ns, [0; 0], "{name}");
                assert_eq!(sample.first_token_ns, Some(span_ns), "{name}");
            }
        }
        let output = if test.n_gen > 0 { test.n_gen } else { 1 };
        assert_eq!(test.output_tokens, output);
    }
}

#[test]
fn every_sum_of_a_receipt_holds_to_the_nanosecond() {
    let (_, dir) = benchmark(&["-p", "150", "-n", "6", "-d", "0,16", "-r", "2"]);
    let receipt = receipt(dir.path());
    holds(&receipt);
    let names: Vec<&str> = receipt.tests.iter().map(|test| &*test.name).collect();
    assert_eq!(names, ["pp150", "tg6", "pp150 @ d16", "tg6 @ d16"]);
    let passes: Vec<usize> = receipt.tests.iter().map(|t| t.samples[0].pass_ns.len()).collect();
    assert_eq!(passes, [2, 6, 2, 6], "batches of 128");
    assert!(receipt.deterministic);
    assert_eq!((receipt.tokens_requested, receipt.tokens_generated), (6, 6));
    assert_eq!(receipt.tokens_per_second, receipt.tests[1].aggregates.median_ts);
    assert_eq!(receipt.compute_path, "real");
    let sealed = receipt.seal.as_ref().expect("a seal");
    assert_eq!(
        Some(&sealed.sha256),
        receipt.clone().sealed().expect("JSON").seal.map(|s| s.sha256).as_ref()
    );
    // Two layers, two repetitions, six passes of one token.
    let tg = &receipt.tests[1];
    let launches = |id: &str| tg.kernels.iter().find(|kernel| kernel.id.starts_with(id));
    assert_eq!(launches("silu_mul").map(|kernel| kernel.launches), Some(2 * 2 * 6));
    let stated = tg.kernels.iter().map(|kernel| kernel.bytes.expect("all kernels state it"));
    assert_eq!(tg.bytes, Some(stated.sum::<u64>() / 2));
    let n_spans = receipt.overhead.spans;
    assert!(n_spans > tg.kernels.iter().map(|kernel| kernel.launches).sum(), "{n_spans}");
}

#[test]
fn what_was_measured_can_be_shown() {
    let (_, dir) = benchmark(&["-p", "8", "-n", "4", "-r", "2", "-d", "0,4"]);
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.created, receipt(dir.path()).timestamp);
    // One repetition of each test at the smallest depth, as in the receipt.
    let positions: Vec<u64> = profile.passes.iter().map(|pass| pass.position).collect();
    assert_eq!(positions, [0, 1, 2, 3, 4]);
    let tests = receipt(dir.path()).tests;
    let last = |test: usize| tests[test].samples.last().expect("samples").pass_ns.clone();
    let walls: Vec<u64> = profile.passes.iter().map(|pass| pass.wall_ns).collect();
    assert_eq!(walls, [last(0), last(1)].concat());
    let show = run(brickscope(&["show", "--as", "tree"]).arg(dir.path()));
    assert!(text(&show.stdout).contains("QkvProjection"));
}

#[test]
fn each_screen_of_a_benchmark_says_the_rate_that_it_printed() {
    use brickscope_lake::rows::{Facts, TABLES, rows};

    let (output, dir) = benchmark(&["-p", "8", "-n", "4", "-r", "3", "-d", "0,4"]);
    let receipt = receipt(dir.path());
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    let tests = &profile.run.as_ref().expect("a run").repeated;
    assert_eq!(tests.len(), receipt.tests.len());
    let printed = text(&output.stdout);
    for (of, test) in tests.iter().zip(&receipt.tests) {
        let median = test.aggregates.median_ts.expect("three samples");
        assert_eq!((&of.test, of.tokens_per_second()), (&test.name, Some(median)));
        assert!(printed.contains(&format!("median {median:.2} of 3")), "{printed}");
    }
    let decode = receipt.tokens_per_second.expect("a decode test");
    let three = match decode {
        ..10.0 => format!("{decode:.2}"),
        ..100.0 => format!("{decode:.1}"),
        _ => format!("{decode:.0}"),
    };
    let said = |args: &[&str]| {
        let output = run(brickscope(args).arg(dir.path()));
        text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let summary = said(&["show"]);
    assert!(summary.starts_with(&format!("Decode {three} tok/s ")), "{summary}");
    assert!(summary.contains("tg4, median of 3 repetitions, "), "{summary}");
    let full = said(&["show", "--full"]);
    assert!(full.contains(&format!("Decode: {decode:.1} tokens/s: tg4, median of 3")), "{full}");
    let explained = said(&["explain", "decode"]);
    assert!(explained.contains(&format!("{three} tokens a second: tg4")), "{explained}");
    let json: Value = serde_json::from_str(&said(&["show", "--as", "json"])).expect("JSON");
    assert_eq!(json["rates"][0]["tokens_per_second"].as_f64(), Some(decode));
    let page = dir.path().join("page.html");
    let report = run(brickscope(&["report", "-o"]).arg(&page).arg(dir.path()));
    assert!(report.status.success());
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains(&format!("value={decode}")), "the card has it");

    // A lake has the same rows of the profile alone as with its receipt.
    let facts = Facts { machine: "m".to_owned(), source: "s".to_owned(), ..Facts::default() };
    let [alone, both] = [None, Some(&receipt)]
        .map(|receipt| rows(Some(&profile), receipt, &facts).expect("rows").tables[0].clone());
    assert_eq!((alone.len(), both.len()), (4, 4));
    let same = [
        "test",
        "phase",
        "n_prompt",
        "n_gen",
        "n_depth",
        "repetitions",
        "disturbed",
        "tokens",
        "wall_ns",
        "tokens_per_second",
        "low",
        "high",
    ];
    for name in same {
        let at = TABLES[0].columns.iter().position(|column| column.name == name);
        let at = at.unwrap_or_else(|| panic!("no column {name}"));
        for (alone, both) in alone.iter().zip(&both) {
            assert_eq!(alone[at], both[at], "{name}");
        }
    }
}

#[test]
fn tokens_depend_on_the_seed_and_not_on_threads_or_the_profiler() {
    let hashes = |args: &[&str]| {
        let small = ["-p", "9", "-n", "5", "-r", "1"];
        let (_, dir) = benchmark(&[&small, args].concat());
        let receipt = receipt(dir.path());
        let of = |test: &brickscope_analysis::receipt::v1::Test| {
            (test.input_sha256.clone(), test.output_sha256.clone())
        };
        (receipt.run.seed, receipt.tests.iter().map(of).collect::<Vec<_>>())
    };
    let one = hashes(&["--threads", "1"]);
    assert_eq!(one, hashes(&["--threads", "2"]));
    assert_eq!(one, hashes(&["--no-profiler"]));
    let other = hashes(&["--seed", "7"]);
    assert_eq!((one.0, other.0), (42, 7));
    assert_ne!(one.1[0], other.1[0]);
}

#[test]
fn without_the_profiler_there_are_walls_and_no_bricks() {
    let (output, dir) = benchmark(&["-p", "150", "-n", "3", "-r", "2", "--no-profiler"]);
    let receipt = receipt(dir.path());
    holds(&receipt);
    assert!(!receipt.run.profiled);
    assert!(receipt.kernels.is_empty() && receipt.tests.iter().all(|test| test.bricks.is_empty()));
    assert_eq!((receipt.overhead.spans, receipt.overhead.span_ns), (0, None));
    assert!(!dir.path().join("profile.json").exists());
    assert!(text(&output.stdout).contains("the profiler heard of passes only"));
}

#[test]
fn the_table_has_the_columns_of_llama_bench() {
    let (output, dir) = benchmark(&["-p", "8", "-n", "4", "-r", "2"]);
    let printed = text(&output.stdout);
    let mut lines = printed.lines();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let header = cells(lines.next().expect("a header"));
    assert_eq!(header, ["", "model", "size", "params", "backend", "threads", "test", "t/s", ""]);
    assert!(lines.next().is_some_and(|line| line.contains("--: |")));
    let row = cells(lines.next().expect("a row"));
    assert_eq!(row[1..5], ["llama 2M Q8_0", "1.86 MiB", "1.84 M", "CPU"]);
    assert_eq!(row[6], "pp8");
    let of = &receipt(dir.path()).tests[0].aggregates;
    let (mean, sd) = (of.avg_ts.expect("a mean"), of.stddev_ts.expect("a deviation"));
    assert_eq!(row[7], format!("{mean:.2} ± {sd:.2}"));
    for part in ["\npp8\n", "\ntg4\n", "first token", "each token", "warm-up", "overhead", "run in"]
    {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
    let notes = printed.lines().skip(4).filter(|line| !line.starts_with("run in"));
    for line in notes {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text(&output.stderr).is_empty(), "no bar when nobody watches");
}

/// The columns of llama-bench (ggml-org/llama.cpp@0c1e57098, tools/llama-bench/llama-bench.cpp,
/// `test::get_fields`).
const THEIRS: [&str; 42] = [
    "build_commit",
    "build_number",
    "cpu_info",
    "gpu_info",
    "backends",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "cpu_mask",
    "cpu_strict",
    "poll",
    "type_k",
    "type_v",
    "n_gpu_layers",
    "n_cpu_moe",
    "split_mode",
    "main_gpu",
    "no_kv_offload",
    "flash_attn",
    "devices",
    "tensor_split",
    "tensor_buft_overrides",
    "load_mode",
    "lazy_mode",
    "embeddings",
    "no_op_offload",
    "no_host",
    "repack",
    "fit_target",
    "fit_min_ctx",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
];

#[test]
fn programs_find_the_keys_of_llama_bench_and_nothing_else_on_standard_output() {
    for format in ["json", "jsonl"] {
        let (output, dir) = benchmark(&["-p", "8", "-n", "4", "-r", "2", "-o", format]);
        let printed = text(&output.stdout);
        let rows: Vec<Value> = match format {
            "json" => serde_json::from_str(printed).expect("JSON"),
            _ => printed.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect(),
        };
        assert_eq!(rows.len(), 2);
        for key in THEIRS.iter().chain(&["samples_ns", "samples_ts"]) {
            assert!(rows.iter().all(|row| !row[*key].is_null()), "{key}");
        }
        let strange = rows[0].as_object().expect("an object").keys().find(|key| {
            !(THEIRS.contains(&key.as_str())
                || key.starts_with("brickscope_")
                || key.starts_with("samples_"))
        });
        assert_eq!(strange, None);
        let receipt = receipt(dir.path());
        for (row, test) in rows.iter().zip(&receipt.tests) {
            assert_eq!(row["n_prompt"], test.n_prompt);
            assert_eq!(row["samples_ns"].as_array().map(Vec::len), Some(2), "no warm-up");
            assert_eq!(row["avg_ts"].as_f64(), test.aggregates.avg_ts);
            assert_eq!(row["brickscope_token_p99_ns"], Value::Null);
        }
    }
    let (output, _dir) = benchmark(&["-p", "8", "-n", "0", "-r", "1", "--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    // One repetition has no deviation, and none is made up.
    assert_eq!((rows.len(), &rows[0]["stddev_ts"]), (1, &Value::Null));
}

#[test]
fn tables_for_programs_have_those_columns_in_that_order() {
    let (output, _dir) = benchmark(&["-p", "8", "-n", "4", "-r", "2", "-o", "csv"]);
    let mut lines = text(&output.stdout).lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    assert_eq!(names[..THEIRS.len()], THEIRS);
    assert!(names[THEIRS.len()..].iter().all(|name| name.starts_with("brickscope_")));
    for line in lines.by_ref().take(2) {
        assert_eq!(line.split("\",\"").count(), names.len(), "{line}");
    }
    assert_eq!(lines.next(), None);

    let (output, _dir) = benchmark(&["-p", "8", "-n", "4", "-r", "2", "-o", "sql"]);
    let printed = text(&output.stdout);
    assert!(
        printed.starts_with("CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n")
    );
    assert!(printed.contains("\n  avg_ts REAL,\n"));
    let inserts: Vec<&str> = printed.lines().filter(|line| line.starts_with("INSERT")).collect();
    assert_eq!(inserts.len(), 2);
    assert!(inserts.iter().all(|line| line.contains(", NULL") && line.ends_with(");")));
}

#[test]
fn a_set_of_processes_has_a_receipt_of_each() {
    let dir = TempDir::new().expect("a temporary folder");
    let args = ["-p", "8", "-n", "4", "-r", "2", "--processes", "2", "--threads", "1"];
    let printed = benchmark_in(dir.path(), &args);
    let runs: Vec<_> = ["1", "2"].map(|k| receipt(&dir.path().join(k))).map(|r| r.run).into();
    for (run, process) in runs.iter().zip(1..) {
        assert_eq!((run.process, run.processes, run.threads), (process, 2, 1));
    }
    assert!(runs[0].set.is_some() && runs[0].set == runs[1].set);
    let printed = text(&printed.stdout);
    assert_eq!(printed.matches("| pp8 |").count() + printed.matches("|  pp8 |").count(), 2);
    assert!(printed.contains("\nMedians of 2 processes (t/s)\n  pp8 "), "{printed}");

    // Again into the same folder: only on request, and as another set.
    let refused = brickscope(&[&["benchmark"], &args[..]].concat())
        .arg(model("tiny-Q8_0"))
        .arg("--out")
        .arg(dir.path())
        .output()
        .expect("the command starts");
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("already holds a set of runs"), "{:?}", refused.stderr);
    let again = benchmark_in(dir.path(), &[&args[..], &["--overwrite", "--json"]].concat());
    let rows: Vec<Value> = serde_json::from_slice(&again.stdout).expect("JSON");
    let processes: Vec<_> = rows.iter().map(|row| row["brickscope_process"].as_u64()).collect();
    assert_eq!(processes, [Some(1), Some(1), Some(2), Some(2)]);
    assert_ne!(receipt(&dir.path().join("1")).run.set, runs[0].set);
}

#[test]
fn a_set_that_was_cut_short_goes_on_with_what_it_has() {
    let dir = TempDir::new().expect("a temporary folder");
    let args = ["-p", "8", "-n", "2", "-r", "1", "--processes", "3", "--threads", "1"];
    benchmark_in(dir.path(), &args);
    let of = |k: &str| receipt(&dir.path().join(k));
    let before = ["1", "2", "3"].map(of);
    // As if the third was killed before it wrote its profile, and the second before its receipt.
    std::fs::remove_file(dir.path().join("2/receipt.json")).expect("it is there");
    std::fs::remove_file(dir.path().join("3/profile.json")).expect("it is there");
    let resumed = [&args[..], &["--resume", "--json"]].concat();
    let output = benchmark_in(dir.path(), &resumed);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows.len(), 6);
    let after = ["1", "2", "3"].map(of);
    assert_eq!(before[0], after[0], "what was measured is kept");
    assert_ne!(before[1].timestamp, after[1].timestamp);
    assert_ne!(before[2].timestamp, after[2].timestamp);
    assert!(after.iter().all(|receipt| receipt.run.set == before[0].run.set));
    // Nothing is left to measure.
    benchmark_in(dir.path(), &resumed);
    assert_eq!(["1", "2", "3"].map(of), after);

    let refused = |args: &[&str]| {
        let mut command = brickscope(&[&["benchmark"], args].concat());
        command.arg(model("tiny-Q8_0")).arg("--out").arg(dir.path());
        let output = command.output().expect("the command starts");
        assert!(!output.status.success());
        text(&output.stderr).to_owned()
    };
    let mut other = resumed.clone();
    other[5] = "2";
    assert!(refused(&other).contains("with other flags: measure the set anew"));
    assert!(refused(&["-p", "8", "--resume"]).contains("--processes doesn't ask for one"));
}

#[test]
fn a_format_is_named_as_before_too() {
    for words in [["--format", "csv"], ["-f", "csv"], ["--output", "csv"], ["-o", "csv"]] {
        let args = [&["-p", "8", "-n", "0", "-r", "1", "--threads", "1"], &words[..]].concat();
        let (output, _dir) = benchmark(&args);
        assert_eq!(text(&output.stdout).lines().count(), 2, "{words:?}");
    }
}

/// The files with their final names in a folder, by path.
fn runs_in(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("a name of ours");
        match entry.path().is_dir() {
            true => {
                found.extend(runs_in(&entry.path()).iter().map(|file| format!("{name}/{file}")))
            }
            // It is made from the profile, and goes with it.
            false if name == ".summary.json" => {
                let of = ["profile.json", "receipt.json"].map(|file| dir.join(file));
                assert!(of.iter().any(|file| file.exists()), "{name} of no run in {dir:?}");
            }
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[test]
fn nothing_of_a_run_stays_beside_one_that_was_written_over_it() {
    let dir = TempDir::new().expect("a temporary folder");
    let small = ["-p", "8", "-n", "2", "-r", "1", "--threads", "1", "--overwrite"];
    let over = |more: &[&str]| {
        benchmark_in(dir.path(), &[&small[..], more].concat());
        runs_in(dir.path())
    };
    let one = ["profile.json", "receipt.json"];
    let set = |n: u32| {
        let of = |k| one.iter().map(move |file| format!("{k}/{file}"));
        (1..=n).flat_map(of).collect::<Vec<_>>()
    };
    assert_eq!(over(&[]), one);
    assert_eq!(over(&["--processes", "3"]), set(3));
    // Files of other programs stay.
    std::fs::write(dir.path().join("3/notes.txt"), "mine").expect("written");
    let folders = [("4", "notes.txt"), ("run-5", "receipt.json"), ("06", "receipt.json")];
    for (folder, file) in folders {
        std::fs::create_dir(dir.path().join(folder)).expect("a folder");
        std::fs::write(dir.path().join(folder).join(file), "mine").expect("written");
    }
    let mut mine = vec!["06/receipt.json", "3/notes.txt", "4/notes.txt", "run-5/receipt.json"];
    let mut left = set(2);
    left.extend(mine.iter().map(|&file| file.to_owned()));
    left.sort();
    assert_eq!(over(&["--processes", "2"]), left);
    mine.extend(one);
    mine.sort_unstable();
    assert_eq!(over(&[]), mine);
}

#[test]
fn a_run_is_not_put_beside_the_folders_of_a_set() {
    let dir = TempDir::new().expect("a temporary folder");
    let small = ["-p", "8", "-n", "2", "-r", "1", "--threads", "1"];
    benchmark_in(dir.path(), &[&small[..], &["--processes", "2"]].concat());
    let before = runs_in(dir.path());
    let mut command = brickscope(&[&["benchmark"], &small[..]].concat());
    command.arg(model("tiny-Q8_0")).arg("--out").arg(dir.path());
    let output = command.output().expect("the command starts");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("already holds a set of runs"), "{:?}", output.stderr);
    assert_eq!(runs_in(dir.path()), before);
}

#[test]
fn what_can_not_be_measured_is_refused_before_anything_is_written() {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    for (args, why) in [
        (&["-p", "0", "-n", "0"][..], "there is nothing to measure"),
        (&["-p", "100000"], "context"),
        (&["-r", "0"], "--repetitions"),
        // Few passes each, but many tests.
        (
            &["-p", "1", "-n", "1", "-r", "10000", "-d", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"],
            "the receipt would have",
        ),
        (&["-n", "-1"], "-1"),
        (&["-d", "1,x"], "--depth"),
        (&["--overwrite"], "--out"),
    ] {
        let mut command = brickscope(&["benchmark"]);
        command.arg(model("tiny-Q8_0")).args(args);
        if !args.contains(&"--overwrite") {
            command.arg("--out").arg(&out);
        }
        let output = command.output().expect("the command starts");
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(why), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty() && !out.exists(), "{args:?}");
    }
}
