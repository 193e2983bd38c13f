//! `brickscope gate`, and its baselines.

use std::fs;
use std::path::{Path, PathBuf};

use brickscope_analysis::history::MACHINE;
use brickscope_analysis::receipt::Receipt;
use serde_json::{Value, json};

use brickscope_testing::command;

use super::{brickscope, brickscope_in, fixture, folder, forge, receipt, set, str};

#[test]
fn no_baseline_is_made_of_receipts_that_are_refused_nor_of_copies() {
    type Change = fn(&mut Receipt);
    let faster = |receipt: &mut Receipt| {
        for test in &mut receipt.tests {
            // Above any roof, consistently.
            let flops = test.flops.unwrap_or(1);
            test.flops = Some(flops.saturating_mul(1_000_000));
            test.kernels.iter_mut().for_each(|kernel| {
                kernel.flops = kernel.flops.map(|flops| flops.saturating_mul(1_000_000));
            });
        }
    };
    let changes: [(&str, Change); 3] = [
        ("(not-real)", |receipt| receipt.compute_path = "mock".to_owned()),
        ("not-real", |receipt| receipt.clock.source = "mock".to_owned()),
        ("above-roof", faster),
    ];
    for (says, change) in changes {
        for force in [&[][..], &["--force"]] {
            let dir = folder();
            let run = set(dir.path(), "run", 5, 0, 1.0);
            forge(&run.join("3"), change);
            let base = dir.path().join("base");
            let args = ["gate", "--baseline", str(&base), "--update", str(&run)];
            let (code, _, said) = brickscope(&[&args, force].concat());
            assert_eq!(code, 2, "{says}: {said}");
            assert!(said.contains("can't be a baseline") && said.contains(says), "{says}: {said}");
            assert!(!base.exists(), "{says}");
        }
    }
    // Without the profiler nothing shows what ran, but nothing speaks against it.
    let dir = folder();
    let [run, base] = ["run", "base"].map(|name| dir.path().join(name));
    let model = fixture("tiny-Q8_0.gguf");
    let args = ["benchmark", &model, "-p", "0", "-n", "4", "-r", "2", "--no-profiler", "--out"];
    command::run(command::brickscope(&args).arg(&run));
    let (code, _, said) = brickscope(&["gate", "--baseline", str(&base), "--update", str(&run)]);
    assert!(code == 0 && base.exists(), "{said}");
    // A process that is there twice, under another number.
    let dir = folder();
    let run = set(dir.path(), "run", 5, 0, 1.0);
    fs::copy(run.join("2/receipt.json"), run.join("3/receipt.json")).expect("copied");
    forge(&run.join("3"), |receipt| receipt.run.process = 5);
    let base = dir.path().join("base");
    let args = ["gate", "--baseline", str(&base), "--update", str(&run), "--force"];
    let (code, _, said) = brickscope(&args);
    assert!(code == 2 && said.contains("is a copy") && !base.exists(), "{said}");
}

#[test]
fn a_gate_from_the_first_run_on() {
    let dir = folder();
    let at = |args: &[&str]| {
        brickscope_in(dir.path(), &[&["gate", "--baseline", "base"], args].concat())
    };
    // Both in the default folder of runs.
    let runs = dir.path().join("brickscope-runs");
    let (code, _, said) = at(&[]);
    assert!(code == 2 && said.contains("there is no benchmark in brickscope-runs"), "{said}");
    let first = set(&runs, "20260101-000000", 10, 0, 1.0);
    let (code, _, said) = at(&[]);
    assert_eq!(code, 2, "{said}");
    let hint = "gate --baseline base --update brickscope-runs/20260101-000000";
    assert!(said.contains("there is no baseline at base") && said.contains(hint), "{said}");

    let (code, text, said) = at(&["--update"]);
    assert_eq!(code, 0, "{said}");
    assert!(text.contains("base is now the baseline: 10 processes"), "{text}");
    let copied = fs::read(dir.path().join("base/10/receipt.json")).expect("it is there");
    assert_eq!(copied, fs::read(first.join("10/receipt.json")).expect("so is this"));
    let (code, _, said) = at(&[]);
    assert!(code == 2 && said.contains("hold the same run"), "{said}");

    let same = set(dir.path(), "same", 10, 1, 1.0);
    let slower = set(dir.path(), "slower", 10, 1, 1.15);
    let single = slower.join("3");
    for (run, expected) in [(&same, 0), (&slower, 1), (&single, 3)] {
        let (code, text, said) = at(&[str(run)]);
        assert_eq!(code, expected, "{text}{said}");
    }
    for (phase, test) in [("decode", "tg"), ("prefill", "pp")] {
        let (code, json, _) = at(&[str(&slower), "--phase", phase, "--json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let tests = json["tests"].as_array().expect("tests");
        let name = tests[0]["name"].as_str().expect("a name");
        assert!(code == 1 && tests.len() == 1 && name.starts_with(test), "{phase}: {json}");
    }
    let (code, markdown, _) = at(&[str(&slower), "-o", "md"]);
    assert!(code == 1 && markdown.starts_with("**"), "{markdown}");

    // The new baseline replaces the old one, including its extra files.
    let (code, text, said) = at(&["--update", str(&single)]);
    assert_eq!(code, 0, "{said}");
    assert!(text.contains("the baseline: 1 process of"), "{text}");
    assert!(said.contains("no run can get a verdict by it: that takes 5 processes"), "{said}");
    let left: Vec<_> = fs::read_dir(dir.path().join("base")).expect("the baseline").collect();
    assert_eq!(left.len(), 1);
    let hidden = fs::read_dir(dir.path()).expect("the folder").filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."))
    });
    assert_eq!(hidden.count(), 0);
}

#[test]
fn a_baseline_is_a_tag_where_that_names_receipts_and_never_the_run_itself() {
    let dir = folder();
    let runs = dir.path().join("brickscope-runs");
    let good = set(&runs, "20260101-000000", 10, 0, 1.0);
    set(&runs, "20260102-000000", 10, 1, 1.15);
    fs::write(good.join(".tag"), "good\n").expect("written");
    let at = |args: &[&str]| {
        let (code, text, said) =
            brickscope_in(dir.path(), &[&["gate", "--baseline"], args].concat());
        (code, text, said.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, text, said) = at(&["good", "20260102"]);
    assert_eq!(code, 1, "{text}{said}");
    let note = "the baseline good is a tag of brickscope-runs/20260101-000000";
    assert!(said.contains(note), "{said}");
    let (code, _, said) = at(&["good", "20260101"]);
    assert!(code == 2 && said.contains("is both the run and the baseline"), "{said}");
    // A run without a receipt is none.
    fs::create_dir(runs.join("plain")).expect("a folder");
    fs::write(runs.join("plain/profile.json"), "{}").expect("written");
    fs::write(runs.join("plain/.tag"), "other\n").expect("written");
    let (code, _, said) = at(&["other", "20260102"]);
    let what = "`other` is a tag of brickscope-runs/plain, which has no receipt";
    assert!(code == 2 && said.contains(what), "{said}");
}

/// A row as llama-bench writes it, of one line.
const OF_LLAMA_BENCH: &str = concat!(
    r#"{"build_commit": "a4", "build_number": 6865, "cpu_info": "a CPU", "gpu_info": "", "#,
    r#""backends": "CPU", "model_filename": "m.gguf", "model_type": "llama 1B Q4_K - Medium", "#,
    r#""model_size": 799862912, "model_n_params": 1235814432, "n_batch": 2048, "n_ubatch": 512, "#,
    r#""n_threads": 16, "cpu_mask": "0x0", "cpu_strict": false, "poll": 50, "type_k": "f16", "#,
    r#""type_v": "f16", "n_gpu_layers": 99, "n_cpu_moe": 0, "split_mode": "layer", "main_gpu": 0, "#,
    r#""no_kv_offload": false, "flash_attn": true, "devices": "auto", "tensor_split": "0.00", "#,
    r#""tensor_buft_overrides": "none", "use_mmap": false, "embeddings": false, "no_op_offload": 0, "#,
    r#""no_host": false, "n_prompt": 0, "n_gen": 128, "n_depth": 0, "test_time": "#,
    r#""2026-10-16T10:00:00Z", "avg_ns": AVG, "stddev_ns": 1000, "avg_ts": 127.7, "stddev_ts": 0.5, "#,
    r#""samples_ns": SAMPLES, "samples_ts": RATES} "#,
);

#[test]
fn a_gate_with_limits_takes_files_of_llama_bench() {
    let dir = folder();
    for n in 0..5_u64 {
        let samples: Vec<u64> = (0..3).map(|m| 1_000_000_000 + 1_000_000 * n + 1000 * m).collect();
        let rates: Vec<f64> = samples.iter().map(|&ns| 128e9 / ns as f64).collect();
        let row = OF_LLAMA_BENCH
            .replace("SAMPLES", &json!(samples).to_string())
            .replace("RATES", &json!(rates).to_string())
            .replace("AVG", &samples[1].to_string());
        fs::write(dir.path().join(format!("{n}.jsonl")), format!("{row}\n")).expect("room");
    }
    let gate = |limit: &str, value: &str| brickscope(&["gate", str(dir.path()), limit, value]);
    let (code, text, said) = gate("--min-tokens-per-second", "90");
    assert!(code == 0 && text.starts_with("tg128: 127.7"), "{text}{said}");
    assert_eq!(gate("--min-tokens-per-second", "900").0, 1);
    let (code, text, said) = gate("--max-p99", "60");
    assert!(code == 3 && text.contains("times of single tokens"), "{text}{said}");
    // Of two builds there is no mean.
    let first = fs::read_to_string(dir.path().join("0.jsonl")).expect("written");
    let later = first.replace("\"a4\"", "\"b5\"").replace("1000000000", "1000000009");
    fs::write(dir.path().join("5.jsonl"), later).expect("room");
    let (code, text, said) = gate("--min-tokens-per-second", "90");
    assert!(code == 2 && text.is_empty() && said.contains("holds runs of 2 builds"), "{said}");
}

#[test]
fn a_gate_with_absolute_limits_needs_no_baseline() {
    let dir = folder();
    let five = set(dir.path(), "five", 5, 0, 1.0);
    let rates: Vec<f64> = (1..=5)
        .map(|n| Receipt::load(&five.join(n.to_string()).join("receipt.json")).expect("a receipt"))
        .map(|receipt| receipt.tokens_per_second.expect("a rate"))
        .collect();
    let [low, high] =
        [f64::min, f64::max].map(|of| rates.iter().copied().reduce(of).expect("five rates"));
    let mean = rates.iter().sum::<f64>() / 5.0;
    let gate = |limit: f64, more: &[&str]| {
        let limit = limit.to_string();
        brickscope(&[&["gate", str(&five), "--assert-throughput", &limit], more].concat())
    };
    // The interval is at most as wide as the range is here: t of 4 degrees ÷ √5 is 1.24 deviations.
    for (limit, expected) in [(low - (high - low), 0), (high + (high - low), 1), (mean, 3)] {
        let (code, text, said) = gate(limit, &[]);
        assert_eq!(code, expected, "{text}{said}");
        assert!(text.starts_with(&format!("tg4: {mean:.2} tokens/s (95 % ")), "{text}");
    }
    let (_, json, _) = gate(mean, &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[0]["outcome"], &json[0]["processes"]), (&"inconclusive".into(), &5.into()));
    let (code, text, _) = gate(low / 2.0, &["--assert-p99", "1000", "-o", "md"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("tokens/s") && text.contains("a p99 needs 459 tokens"), "{text}");
    // The same limits by their other names.
    let rate = (low / 2.0).to_string();
    let by_names = |names: [&str; 2]| {
        brickscope(&["gate", str(&five), names[0], &rate, names[1], "1000", "--json"])
    };
    let short = by_names(["--min-tokens-per-second", "--max-p99"]);
    assert_eq!(short, by_names(["--assert-throughput", "--assert-p99"]));
    assert_eq!(short.0, 3, "{short:?}");
    // What to give is named.
    let (code, _, said) = brickscope(&["gate", str(&five)]);
    let names = ["--baseline", "--min-tokens-per-second", "--max-p99"];
    assert!(code == 2 && names.iter().all(|name| said.contains(name)), "{said}");
    // Neither or both, and what no limit is.
    for args in [
        &["gate", str(&five)][..],
        &["gate", str(&five), "--assert-p99", "5", "--baseline", "b"],
        &["gate", str(&five), "--assert-p99", "5", "--threshold", "3%"],
        &["gate", str(&five), "--assert-p99", "0"],
    ] {
        assert_eq!(brickscope(args).0, 2, "{args:?}");
    }
    // What isn't verified, or is there twice, decides nothing.
    let file = |n: u32| five.join(n.to_string()).join("receipt.json");
    forge(&five.join("2"), |receipt| receipt.clock.drift_ppm = Some(500_000.0));
    let (code, _, said) = gate(1.0, &[]);
    assert!(code == 2 && said.contains("isn't verified (field)"), "{said}");
    fs::copy(file(1), file(2)).expect("a copy");
    let (code, _, said) = gate(1.0, &["--force"]);
    assert!(code == 2 && said.contains("one is a copy"), "{said}");
}

/// A folder with a run of each of these machines.
fn of_machines(dir: &Path, name: &str, day: u32, runs: &[(&str, f64)]) -> PathBuf {
    let folder = dir.join(name);
    for (turn, (machine, slower)) in (1..).zip(runs) {
        let mut receipt = receipt(turn + 3 * day, "GateProjection", *slower);
        receipt.run.set = None;
        (receipt.run.process, receipt.run.processes) = (1, 1);
        receipt.timestamp = format!("2026-11-{:02}T10:{turn:02}:00Z", day + 1);
        receipt.machine.boot = Some(format!("{turn:016x}"));
        receipt.binary.sha256 = Some(format!("{:02x}", day + 1).repeat(32));
        receipt.environment.insert(MACHINE.to_owned(), (*machine).to_owned());
        let run = folder.join(format!("{day}-{machine}"));
        fs::create_dir_all(&run).expect("a folder");
        let receipt = receipt.sealed().expect("it can be sealed");
        receipt.save(&run.join("receipt.json")).expect("it is saved");
    }
    folder
}

#[test]
fn a_gate_of_several_machines_tells_a_slow_commit_from_a_slow_machine() {
    let dir = folder();
    let machines = |slower: f64| [("m1", slower), ("m2", slower), ("m3", 1.5 * slower)];
    for day in 0..4 {
        of_machines(dir.path(), "base", day, &machines(1.0));
    }
    let base = str(&dir.path().join("base")).to_owned();
    let gate = |run: &Path, more: &[&str]| {
        brickscope(&[&["gate", "--baseline", &base, str(run)], more].concat())
    };
    // The new runs are on the slow machine alone.
    let same = of_machines(dir.path(), "same", 4, &[("m3", 1.5)]);
    let (code, text, said) = gate(&same, &[]);
    assert_eq!(code, 0, "{text}{said}");
    let compared = "each machine with itself: its runs are of m3";
    assert!(text.contains("not slower") && text.contains(compared), "{text}");
    // Whatever slowed all machines that day looks the same.
    let once = of_machines(dir.path(), "once", 5, &[("m3", 1.8), ("m1", 1.2)]);
    let (code, text, said) = gate(&once, &[]);
    assert_eq!(code, 3, "{text}{said}");
    assert!(text.contains("can't tell") && text.contains("on one day only"), "{text}");
    of_machines(dir.path(), "slower", 5, &[("m3", 1.8), ("m1", 1.2)]);
    let slower = of_machines(dir.path(), "slower", 6, &[("m3", 1.8), ("m1", 1.2)]);
    let (code, text, said) = gate(&slower, &[]);
    assert_eq!(code, 1, "{text}{said}");
    let (code, json, _) = gate(&slower, &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &json[0]["judged"]["outcome"]), (1, &"slower".into()), "{json}");
    // A machine that nothing is known of.
    let unknown = of_machines(dir.path(), "unknown", 7, &[("m9", 1.5)]);
    let (code, text, said) = gate(&unknown, &[]);
    assert_eq!(code, 3, "{text}{said}");
    assert!(text.contains("not decided") && text.contains("on machine m9"), "{text}");
    let (code, _, said) = gate(&same, &["--min-share", "2%"]);
    assert!(code == 2 && said.contains("--min-share: it is about bricks"), "{said}");
    // What is on a line of its own in the history, since commit and machine are told apart there, too.
    let (code, text, said) = brickscope(&["history", str(dir.path())]);
    assert!(code == 0 && text.contains("machine") && text.contains("m3"), "{text}{said}");
}

#[test]
fn one_commit_on_two_machines_is_not_judged() {
    let dir = folder();
    // The same program.
    let base = of_machines(dir.path(), "base", 0, &[("m1", 1.9)]);
    let same = of_machines(dir.path(), "same", 0, &[("m2", 1.0)]);
    let (code, text, said) = brickscope(&["gate", "--baseline", str(&base), str(&same)]);
    assert_eq!(code, 3, "{text}{said}");
    assert!(text.contains("are both of") && !text.contains("commit  "), "{text}");
    // Another one, which no machine ran.
    let other = of_machines(dir.path(), "other", 1, &[("m2", 1.0)]);
    let (code, text, said) = brickscope(&["gate", "--baseline", str(&base), str(&other)]);
    assert_eq!(code, 3, "{text}{said}");
    assert!(text.contains("no machine ran both") && !text.contains("commit  "), "{text}");
}

#[test]
fn a_gate_of_several_machines_refuses_copies_and_parts_of_sets_and_tells_what_is_not_judged() {
    let dir = folder();
    for day in 0..4 {
        of_machines(dir.path(), "base", day, &[("m1", 1.0), ("m2", 1.0), ("m3", 1.5)]);
    }
    let base = str(&dir.path().join("base")).to_owned();
    let gate = |run: &Path, more: &[&str]| {
        brickscope(&[&["gate", "--baseline", &base, str(run)], more].concat())
    };
    let new = of_machines(dir.path(), "new", 4, &[("m1", 1.0), ("m2", 1.0)]);
    let (code, _, said) = gate(&new, &[]);
    assert!(code == 0 && !said.contains("not judged"), "{said}");
    let changed = |run: &str, change: &dyn Fn(&mut Receipt)| {
        let path = new.join(run).join("receipt.json");
        let mut receipt = Receipt::load(&path).expect("a receipt");
        change(&mut receipt);
        receipt.sealed().expect("it can be sealed").save(&path).expect("a folder of ours");
    };

    for run in ["4-m1", "4-m2"] {
        changed(run, &|receipt| {
            (receipt.run.set, receipt.run.processes) = (Some("nightly".to_owned()), 5);
        });
    }
    let (code, _, said) = gate(&new, &[]);
    assert!(code == 2 && said.contains("3 of the 5 processes of set nightly"), "{said}");
    let (code, text, said) = gate(&new, &["--force"]);
    assert!(code == 0, "{text}{said}");
    for run in ["4-m1", "4-m2"] {
        changed(run, &|receipt| {
            (receipt.run.set, receipt.run.processes) = (None, 1);
            receipt.tests.truncate(1);
        });
    }
    let (code, text, said) = gate(&new, &[]);
    assert!(said.contains("and the run doesn't: not judged"), "{code} {text}{said}");

    let copy = new.join("copy");
    fs::create_dir_all(&copy).expect("a folder");
    fs::copy(new.join("4-m1/receipt.json"), copy.join("receipt.json")).expect("a file");
    let (code, _, said) = gate(&new, &[]);
    assert!(code == 2 && said.contains("are the same receipt, so one is a copy"), "{said}");
}

#[test]
fn an_update_that_was_cut_short_leaves_the_old_baseline_or_the_new_one() {
    let dir = folder();
    let a = set(dir.path(), "a", 10, 0, 1.0);
    let b = set(dir.path(), "b", 10, 1, 1.0);
    let [base, last, next] = ["base", ".base.last", ".base.next"].map(|name| dir.path().join(name));
    let gate = || brickscope_in(dir.path(), &["gate", "--baseline", "base", str(&b)]);
    // As if it was killed after half of the new one was written: neither is under its name.
    fs::rename(&a, &last).expect("it moves");
    fs::create_dir_all(next.join("1")).expect("a folder");
    let (code, _, said) = gate();
    assert_eq!(code, 0, "{said}");
    assert!(base.exists() && !last.exists());
    // Other commands also find the old one, before a gate has put it back.
    fs::rename(&base, &last).expect("it moves");
    let (code, _, said) = brickscope(&["compare", str(&base), str(&b)]);
    assert_eq!(code, 0, "{said}");
    fs::rename(&last, &base).expect("it moves");
    // The new one is in place, and half of the old one is removed.
    fs::create_dir_all(last.join("7")).expect("a folder");
    let (code, _, said) = gate();
    assert_eq!(code, 0, "{said}");
    assert!(base.join("10/receipt.json").exists() && !last.exists());
    let (code, _, said) =
        brickscope_in(dir.path(), &["gate", "--baseline", "base", "--update", str(&b)]);
    assert_eq!(code, 0, "{said}");
    assert!(!next.exists() && !last.exists());
}

#[test]
fn an_update_that_finds_no_room_leaves_the_old_baseline_and_nothing_else() {
    let dir = folder();
    let a = set(dir.path(), "a", 1, 0, 1.0);
    let b = set(dir.path(), "b", 2, 1, 1.0);
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let hidden = || {
        let entries = fs::read_dir(dir.path()).expect("the folder").map(|entry| entry.expect("it"));
        entries.filter(is_hidden).map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let base = dir.path().join("base");
    let update =
        |run: &Path| command::brickscope(&["gate", "--baseline", str(&base), "--update", str(run)]);
    // To a write beyond 1 KiB, the system says what it says of a full disk, but for the word.
    let refused = |run: &Path| {
        let direct = update(run);
        let mut command = std::process::Command::new("bash");
        command.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]);
        let output = command.arg(direct.get_program()).args(direct.get_args()).output();
        let output = output.expect("the command starts");
        let said = command::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("can't be made the baseline: ") && said.contains("too large"),
            "{said}"
        );
        assert_eq!(hidden(), Vec::<PathBuf>::new());
    };
    refused(&b);
    assert!(!base.exists());
    command::run(&mut update(&a));
    refused(&b);
    let kept = fs::read(base.join("1/receipt.json")).expect("the old one");
    assert_eq!(kept, fs::read(a.join("1/receipt.json")).expect("so is this"));
    assert!(!base.join("2").exists());
    command::run(&mut update(&b));
    assert!(base.join("2").exists());
}

#[test]
fn an_update_that_is_killed_leaves_a_whole_baseline() {
    let dir = folder();
    let a = set(dir.path(), "a", 5, 0, 1.0);
    let faster = set(dir.path(), "faster", 5, 0, 0.9);
    let b = set(dir.path(), "b", 5, 1, 1.0);
    let base = dir.path().join("base");
    let update = ["gate", "--baseline", str(&base), "--update"];
    let (code, _, said) = brickscope(&[&update[..], &[str(&a)]].concat());
    assert_eq!(code, 0, "{said}");
    for round in 0..20 {
        let run = if round % 2 == 0 { &faster } else { &a };
        let mut child = command::brickscope(&update)
            .arg(run)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        child.kill().expect("it is killed, or has ended");
        child.wait().expect("it ends");
        let (code, _, said) = brickscope(&["compare", str(&base), str(&b)]);
        assert_ne!(code, 2, "{round}: {said}");
    }
}
