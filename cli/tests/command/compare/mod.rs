//! `brickscope compare` and `brickscope gate`, as users and CI run them.

mod gate;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brickscope_analysis::receipt::v1::Sample;
use brickscope_analysis::receipt::{Aggregates, Receipt, derived_doubts};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command;

fn fixture(name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(name).to_str().expect("UTF-8").to_owned()
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// The exit code, standard output and standard error.
fn brickscope(args: &[&str]) -> (i32, String, String) {
    brickscope_in(Path::new("."), args)
}

fn brickscope_in(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command::brickscope(args).current_dir(dir).output().expect("the command starts");
    let code = output.status.code().expect("it isn't killed");
    let [stdout, said] =
        [&output.stdout, &output.stderr].map(|bytes| command::text(bytes).to_owned());
    assert!(!said.contains("panicked"), "{said}");
    (code, stdout, said)
}

/// The receipt of a benchmark of a tiny model.
fn real() -> &'static Receipt {
    static RECEIPT: OnceLock<Receipt> = OnceLock::new();
    RECEIPT.get_or_init(|| {
        let dir = folder();
        let out = dir.path().join("run");
        let model = fixture("tiny-Q8_0.gguf");
        let args = ["benchmark", &model, "--prompt-tokens", "4", "--tokens", "4"];
        let args = [&args[..], &["--threads", "1", "--repetitions", "2", "--out"]].concat();
        command::run(command::brickscope(&args).arg(&out));
        Receipt::load(&out.join("receipt.json")).expect("a receipt")
    })
}

/// The receipt as if this brick took `slower` times as long, and everything varied between processes by
/// some thousandths.
fn receipt(turn: u32, brick: &str, slower: f64) -> Receipt {
    let mut receipt = real().clone();
    receipt.run.set = Some("a set".to_owned());
    receipt.run.process = turn;
    receipt.run.processes = 40;
    // Not random, and not correlated with the turns.
    let noise = f64::from(turn * 7 % 11) / 5000.0;
    let mut now = 1_000_000;
    for test in &mut receipt.tests {
        let at = test.bricks.iter().position(|of| of.name == brick).expect("the brick");
        for (number, sample) in test.samples.iter_mut().enumerate() {
            // The same for all samples, whatever disturbed them when they were taken.
            sample.brick_ns.fill(100_000);
            sample.brick_ns[at] = (1e6 * slower) as u64;
            for (which, ns) in sample.brick_ns.iter_mut().enumerate() {
                let own = f64::from((turn + 3 * which as u32) * 5 % 13) / 3000.0;
                // No two samples are alike.
                let of_sample =
                    f64::from((number as u32 * 5 + which as u32 * number as u32) % 7) / 3000.0;
                *ns = (*ns as f64 * (1.0 + noise + own + of_sample)) as u64 + number as u64;
            }
            sample.unattributed_ns = Some(5000 + u64::from(turn));
            sample.wall_ns = sample.brick_ns.iter().sum::<u64>() + 5000 + u64::from(turn);
            sample.disturbed = Some(false);
            sample.run_queue_wait_ns = sample.run_queue_wait_ns.map(|_| 0);
            timeline(sample, &mut now);
        }
        test.warm_up.steady = true;
        test.aggregates = Aggregates::of(&test.samples);
    }
    let decode = receipt.tests.iter().find(|test| test.n_gen > 0).expect("it decodes");
    receipt.tokens_per_second = decode.aggregates.median_ts;
    (receipt.load.others_share, receipt.load.steal_share, receipt.load.absent) =
        (Some(0.0), Some(0.0), None);
    receipt.clock.drift_ppm = Some(0.1);
    receipt.load.doubts = derived_doubts(&receipt);
    receipt.sealed().expect("it can be sealed")
}

/// Passes, tokens, begin and end that fit the wall of a sample.
fn timeline(sample: &mut Sample, now: &mut u64) {
    const CHOOSING: u64 = 9_000;
    let passes = sample.pass_ns.len() as u64;
    for (ns, number) in sample.pass_ns.iter_mut().zip(0..) {
        *ns = sample.wall_ns / passes + 37 * number;
    }
    let others: u64 = sample.pass_ns.iter().skip(1).sum();
    sample.pass_ns[0] = sample.wall_ns - others;
    let skipped = sample.pass_ns.len() - sample.token_ns.len().min(sample.pass_ns.len());
    for (token, pass) in sample.token_ns.iter_mut().zip(&sample.pass_ns[skipped..]) {
        *token = pass + CHOOSING;
    }
    sample.first_token_ns = sample.first_token_ns.map(|_| sample.wall_ns + CHOOSING);
    sample.start_ns = *now;
    sample.end_ns = *now + sample.wall_ns + passes * CHOOSING + 500;
    *now = sample.end_ns + 8_000;
}

/// A set of `n` processes that took every other turn, from `first` on.
fn set(dir: &Path, name: &str, n: u32, first: u32, slower: f64) -> PathBuf {
    let set = dir.join(name);
    for process in 0..n {
        // A B B A.
        let turn = 2 * process + (process + first) % 2 + 1;
        let run = set.join((process + 1).to_string());
        fs::create_dir_all(&run).expect("a folder");
        let mut receipt = receipt(turn, "GateProjection", slower);
        receipt.run.processes = 2 * n;
        receipt.run.command.push(format!("--processes={}", 2 * n));
        receipt
            .sealed()
            .expect("it can be sealed")
            .save(&run.join("receipt.json"))
            .expect("it is saved");
    }
    set
}

fn str(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn sets_in_every_form_with_the_exit_code_of_what_was_found() {
    let dir = folder();
    let a = set(dir.path(), "a", 10, 0, 1.0);
    let slower = set(dir.path(), "slower", 10, 1, 1.15);
    let same = set(dir.path(), "same", 10, 1, 1.0);
    let faster = set(dir.path(), "faster", 10, 1, 0.9);

    let (code, text, _) = brickscope(&["compare", str(&a), str(&slower)]);
    assert_eq!(code, 1, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" % slower [") && words.contains("]: GateProjection takes +"), "{text}");
    assert!(text.contains("run in turns: 10 neighbouring pairs"), "{text}");
    let table = text.lines().filter(|line| !line.starts_with("A ") && !line.starts_with("B "));
    assert_eq!(table.clone().find(|line| line.chars().count() > 80), None, "{text}");

    for (other, expected, says) in
        [(&same, 0, "Unchanged: no test changed by 3.0 %"), (&faster, 0, "% faster [")]
    {
        let (code, text, _) = brickscope(&["compare", str(&a), str(other)]);
        assert_eq!(code, expected, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let (code, text, _) = brickscope(&["compare", str(&a), str(&slower), "--threshold", "30%"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("Unchanged"), "{text}");

    let (code, markdown, _) = brickscope(&["compare", str(&a), str(&slower), "-o", "md"]);
    assert!(code == 1 && markdown.starts_with("**"), "{markdown}");
    let (code, json, _) = brickscope(&["compare", str(&a), str(&slower), "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &json["outcome"]), (1, &Value::from("slower")));
    let (code, bmf, _) = brickscope(&["compare", str(&a), str(&slower), "-o", "bmf"]);
    let bmf: Value = serde_json::from_str(&bmf).expect("JSON");
    assert_eq!(code, 1);
    for (name, measure) in
        [("tg4", "latency"), ("tg4", "throughput"), ("tg4/GateProjection", "latency")]
    {
        let metric = &bmf[name][measure];
        let [low, value, high] = ["lower_value", "value", "upper_value"]
            .map(|key| metric[key].as_f64().expect("a number"));
        assert!(low < value && value < high, "{name}: {metric}");
    }
}

#[test]
fn what_was_found_is_the_exit_code_though_nobody_reads_it() {
    let dir = folder();
    let a = set(dir.path(), "a", 10, 0, 1.0);
    let slower = set(dir.path(), "slower", 10, 1, 1.15);
    let same = set(dir.path(), "same", 10, 1, 1.0);
    let unread = |args: &[&str]| command::unread(&mut command::brickscope(args)).code();
    assert_eq!(unread(&["compare", str(&a), str(&slower)]), Some(1));
    assert_eq!(unread(&["compare", str(&a), str(&slower), "--json"]), Some(1));
    assert_eq!(unread(&["compare", str(&a), str(&same)]), Some(0));
    assert_eq!(unread(&["compare", str(&a.join("1")), str(&slower.join("1"))]), Some(3));
    assert_eq!(unread(&["compare", str(&a), "nowhere"]), Some(2));
    let gate = |more: &[&str]| unread(&[&["gate", "--baseline", str(&a)], more].concat());
    assert_eq!(gate(&[str(&slower)]), Some(1));
    assert_eq!(gate(&[str(&slower.join("1"))]), Some(3));
    assert_eq!(gate(&["nowhere"]), Some(2));
    let baseline = dir.path().join("baseline");
    let update = ["gate", "--baseline", str(&baseline), "--update", str(&same)];
    let update = unread(&[&update[..], &["--force"]].concat());
    assert_eq!((update, baseline.is_dir()), (Some(0), true));
}

#[test]
fn few_processes_are_inconclusive_and_never_a_pass() {
    let dir = folder();
    let a = set(dir.path(), "a", 1, 0, 1.0);
    let b = set(dir.path(), "b", 1, 1, 1.5);
    // A file, a run's folder, a folder of them.
    for [a, b] in [
        [a.join("1/receipt.json"), b.join("1/receipt.json")],
        [a.join("1"), b.join("1")],
        [a.clone(), b.clone()],
    ] {
        let (code, text, _) = brickscope(&["compare", str(&a), str(&b)]);
        assert_eq!(code, 3, "{text}");
        assert!(text.starts_with("Inconclusive: one process only"), "{text}");
        assert!(!text.contains("unchanged"), "{text}");
    }
}

#[test]
fn unlike_runs_are_refused_with_each_difference_and_both_values() {
    let dir = folder();
    let a = set(dir.path(), "a", 3, 0, 1.0);
    let b = set(dir.path(), "b", 3, 1, 1.0);
    let file = b.join("2/receipt.json");
    let mut receipt = Receipt::load(&file).expect("the receipt");
    receipt.run.threads = 64;
    receipt.model.sha256 = "0".repeat(64);
    receipt.machine.kernel = Some("9.9.9".to_owned());
    receipt.binary.version = "9.9.9".to_owned();
    receipt.sealed().expect("sealed").save(&file).expect("saved");
    let (code, text, said) = brickscope(&["compare", str(&a), str(&b)]);
    assert_eq!((code, &*text), (2, ""), "{said}");
    for says in ["threads: 1 and 1 or 64", "model: ", "000000000000 or ", "--force"] {
        assert!(said.contains(says), "{says} in {said}");
    }
    assert!(
        !said.contains("build: ") && !said.contains("kernel: "),
        "what is compared is no reason to refuse: {said}"
    );

    let (code, text, _) = brickscope(&["compare", str(&a), str(&b), "--force"]);
    assert_ne!(code, 2);
    assert!(text.contains("! Forced: the two ran under different conditions"), "{text}");
    assert!(text.contains("! threads: 1 and 1 or 64") && text.contains("   build: "), "{text}");
}

#[test]
fn what_can_not_be_read_or_was_changed_is_refused() {
    let dir = folder();
    let a = set(dir.path(), "a", 3, 0, 1.0);
    let b = set(dir.path(), "b", 3, 1, 1.0);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    let program = command::program();
    for (args, says) in [
        (vec![str(&a), "nowhere"], "nowhere: No such file"),
        (vec![str(&empty), str(&b)], "has no runs"),
        (vec![str(&a), str(&a)], "A and B are one run, "),
        (vec![str(&a.join("1")), str(&a.join("1/receipt.json"))], "receipt.json is there twice"),
        (vec![str(&a), str(&b), "--threshold", "0%"], "above 0%"),
        (vec![str(&a), str(&b), "--threshold", "3"], "such as 3%"),
        (vec![str(&a), str(&b), "--", "--tokens", "3"], "--processes"),
        (vec![str(&a), str(&b), "--processes", "2"], "is not a program"),
    ] {
        let (code, text, said) = brickscope(&[&["compare"], &args[..]].concat());
        assert_eq!((code, &*text), (2, ""), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
    if cfg!(target_os = "linux") {
        let (code, _, said) = brickscope(&["compare", str(&a), str(&program)]);
        assert!(code == 2 && said.contains("is a program: add --processes N"), "{said}");
    }

    let file = b.join("2/receipt.json");
    let mut receipt = Receipt::load(&file).expect("the receipt");
    receipt.tests[0].samples[1].wall_ns += 1;
    receipt.save(&file).expect("saved");
    let (code, _, said) = brickscope(&["compare", str(&a), str(&b)]);
    assert!(code == 2 && said.contains("was changed after it was sealed"), "{said}");
    let (code, text, _) = brickscope(&["compare", str(&a), str(&b), "--force"]);
    assert_ne!(code, 2);
    assert!(text.contains("! B, 1 process: it was changed after it was sealed"), "{text}");

    receipt.seal = None;
    receipt.save(&file).expect("saved");
    let base = dir.path().join("base");
    for args in
        [["compare", str(&a), str(&b), "--json"], ["gate", "--update", "--baseline", str(&base)]]
    {
        let run = if args[0] == "gate" { &[str(&b)][..] } else { &[] };
        let (code, _, said) = brickscope(&[&args[..], run].concat());
        assert!(code == 2 && said.contains("has no seal"), "{said}");
    }
    assert!(!base.exists());
}

/// Changes the receipt of one process, and seals it anew.
fn forge(run: &Path, change: impl FnOnce(&mut Receipt)) {
    let file = run.join("receipt.json");
    let mut receipt = Receipt::load(&file).expect("a receipt");
    change(&mut receipt);
    receipt.load.doubts = derived_doubts(&receipt);
    receipt.sealed().expect("it can be sealed").save(&file).expect("it is saved");
}

#[test]
fn what_rests_on_a_receipt_that_is_refused_says_so_first() {
    let dir = folder();
    let a = set(dir.path(), "a", 5, 0, 1.0);
    let b = set(dir.path(), "b", 5, 1, 1.0);
    let (_, text, _) = brickscope(&["compare", str(&a), str(&b)]);
    assert!(!text.contains("verified"), "{text}");
    forge(&b.join("2"), |receipt| receipt.clock.drift_ppm = Some(500_000.0));
    for args in [&["compare", str(&a), str(&b)][..], &["gate", "--baseline", str(&a), str(&b)]] {
        let (code, text, said) = brickscope(args);
        assert_ne!(code, 2, "{said}");
        assert!(text.starts_with("Not verified: 1 of 10 receipts (field). "), "{text}");
        let (_, text, _) = brickscope(&[args, &["-o", "md"]].concat());
        assert!(text.starts_with("**Not verified: 1 of 10 receipts (field). "), "{text}");
        let (_, json, _) = brickscope(&[args, &["--json"]].concat());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["b"]["not_verified"][0][1], "field");
    }
}

#[test]
fn a_part_of_a_set_and_several_sets_are_no_side() {
    let dir = folder();
    let a = set(dir.path(), "a", 5, 0, 1.0);
    let b = set(dir.path(), "b", 5, 1, 1.0);
    let refused = |says: &str| {
        let (code, _, said) = brickscope(&["compare", str(&a), str(&b)]);
        assert!(code == 2 && said.contains(says), "{said}");
        let (code, _, said) = brickscope(&["compare", str(&a), str(&b), "--force"]);
        assert_ne!(code, 2, "{said}");
    };
    // Under the name that history knows as well.
    fs::rename(b.join("2/receipt.json"), b.join("2/x.receipt.json")).expect("it moves");
    let (code, _, said) = brickscope(&["compare", str(&a), str(&b)]);
    assert_ne!(code, 2, "{said}");
    fs::remove_dir_all(b.join("3")).expect("it is removed");
    refused("6 of the 10 processes of its set are missing");
    let mut other = receipt(6, "GateProjection", 1.0);
    other.run.set = Some("another set".to_owned());
    fs::create_dir(b.join("3")).expect("a folder");
    other.sealed().expect("sealed").save(&b.join("3/receipt.json")).expect("saved");
    refused("several sets (a set and another set)");
    fs::rename(b.join("3/receipt.json"), b.join("receipt.json")).expect("it moves");
    refused("a run and also folders with numbered runs");
}

#[test]
fn two_programs_are_measured_in_turns() {
    let dir = folder();
    let program = command::program();
    let program = str(&program);
    let out = dir.path().join("out");
    let model = fixture("tiny-Q8_0.gguf");
    let args = ["compare", program, program, "--processes", "2", "--model", &model, "--out"];
    let benchmark = ["--", "--prompt-tokens", "3", "--tokens", "2", "--threads", "1"];
    let (code, text, said) = brickscope(&[&args[..], &[str(&out)], &benchmark].concat());
    // There is no verdict of so few processes.
    assert_eq!(code, 3, "{said}");
    assert!(text.starts_with("Inconclusive: 2 pairs only: no verdict below 5"), "{text}");
    assert!(text.contains("run in turns: 2 neighbouring pairs"), "{text}");
    let turn = |run: &str| {
        let receipt = Receipt::load(&out.join(run).join("receipt.json")).expect("a receipt");
        (receipt.run.process, receipt.run.processes, receipt.run.set)
    };
    let set = turn("a/1").2;
    assert!(set.is_some());
    // Either side goes first once; which one is random.
    let mut order: Vec<(u32, &str)> = Vec::new();
    for run in ["a/1", "b/1", "b/2", "a/2"] {
        let (place, of, in_set) = turn(run);
        assert_eq!((of, in_set), (4, set.clone()), "{run}");
        order.push((place, run));
    }
    order.sort_unstable();
    let order: Vec<&str> = order.into_iter().map(|(_, run)| run).collect();
    let either = [["a/1", "b/1", "b/2", "a/2"], ["b/1", "a/1", "a/2", "b/2"]];
    assert!(either.iter().any(|turns| order == turns), "{order:?}");
    // And they can be compared again.
    let (again, text, _) = brickscope(&["compare", str(&out.join("a")), str(&out.join("b"))]);
    assert_eq!(again, code);
    assert!(text.contains("run in turns: 2 neighbouring pairs"), "{text}");

    let (code, _, said) = brickscope(&[&args[..], &[str(&out)], &benchmark].concat());
    assert!(code == 2 && said.contains("exists already"), "{said}");
    let args = ["compare", program, program, "--processes", "1", "--model", "nowhere.gguf"];
    let (code, _, said) =
        brickscope(&[&args[..], &["--out", str(&dir.path().join("other"))]].concat());
    assert!(
        code == 2 && said.contains("process 1 of 1") && said.contains("nowhere.gguf"),
        "{said}"
    );
}

#[cfg(unix)]
#[test]
fn an_engine_of_ones_own_runs_in_turns_if_it_saves_its_run_where_it_is_told() {
    let dir = folder();
    let engine = |name: &str, does: &str| {
        let file = dir.path().join(name);
        // It knows of no argument but one.
        let read = r#"while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done"#;
        command::script(&file, &format!("{read}\n{does}"));
        str(&file).to_owned()
    };
    let model = fixture("tiny-Q8_0.gguf");
    let program = command::program();
    let mine = engine(
        "mine",
        &format!(
            "exec '{}' profile '{model}' --tokens 2 --prompt hello --threads 1 --out \"$out\"",
            str(&program)
        ),
    );
    let out = dir.path().join("out");
    let args = ["compare", &mine, &mine, "--processes", "2", "--out"];
    let (code, text, said) = brickscope(&[&args[..], &[str(&out)]].concat());
    assert_eq!(code, 3, "{text}{said}");
    assert!(text.contains("run in turns: 2 neighbouring pairs"), "{text}");
    let text = fs::read_to_string(out.join("a/1/profile.json")).expect("a run");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(profile["among"]["set"]["processes"], 4, "{}", profile["among"]);

    let none = engine("none", "exit 0");
    let other = dir.path().join("other");
    let args = ["compare", &none, &none, "--processes", "1", "--out", str(&other)];
    let (code, _, said) = brickscope(&args);
    assert!(code == 2 && said.contains("has to save its run there"), "{said}");
}

#[test]
fn profiles_can_be_given_too_and_one_of_each_tells_nothing() {
    let dir = folder();
    let model = fixture("tiny-Q8_0.gguf");
    let run = |name: &str| {
        let out = dir.path().join(name);
        let args =
            ["profile", &model, "--tokens", "4", "--threads", "1", "--prompt", "hello", "--out"];
        command::run(command::brickscope(&args).arg(&out));
        out
    };
    let (a, b) = (run("run-a"), run("run-b"));
    let (code, text, said) = brickscope(&["compare", str(&a), str(&b)]);
    assert_eq!(code, 3, "{said}");
    assert!(text.starts_with("Inconclusive: one process only"), "{text}");
    assert!(text.contains("\nprefill  ") && text.contains("\ndecode  "), "{text}");
    // What both took, and no change: nobody knows how much is chance.
    assert!(text.contains("  A        B       B:A  verdict\n"), "{text}");
    assert!(!text.contains("n/a") && text.contains("B:A is B's time over A's."), "{text}");
    // Where a model is asked for, a run is told what it is.
    for command in ["profile", "top", "benchmark"] {
        for path in [a.clone(), a.join("profile.json")] {
            let (code, _, said) = brickscope(&[command, str(&path)]);
            let show =
                format!("is a run that has ended, not a model: `brickscope show {}`", str(&a));
            assert!(code == 1 && said.contains(&show), "{command}: {code} {said}");
        }
    }
    let receipts = set(dir.path(), "set", 1, 0, 1.0);
    let (code, _, said) = brickscope(&["compare", str(&a), str(&receipts)]);
    assert!(code == 2 && said.contains("measured by: profile and benchmark"), "{said}");
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    for command in ["compare", "gate"] {
        let (code, said, _) = brickscope(&[command, "--help"]);
        assert_eq!(code, 0);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("The exit code is 0 if nothing is slower"), "{said}");
        assert!(said.contains("2 if the comparison can't be made"), "{said}");
        assert!(
            said.contains(&format!(
                "Examples: brickscope {}",
                if command == "gate" { "benchmark" } else { "compare" }
            )),
            "{said}"
        );
    }
}

/// A run of passes that decode 50 tokens per second.
fn decoded(dir: &Path, name: &str, backend: &str, command: &str) -> PathBuf {
    use brickscope::{BrickId, BrickProfiler, MockClock, Phase, Run};

    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for (position, ms) in (0..).zip([19, 21, 20, 19, 21, 20, 19, 21]) {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        // Runs that have all their times in common would be copies.
        hand.advance(ms * 1_000_000 + u64::from(name.as_bytes()[0] % 2));
        profiler.stop_brick(timer, 1);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    profile.run = Some(Run {
        backend: backend.to_owned(),
        command: command.split(' ').map(str::to_owned).collect(),
        threads: 2,
        ..Run::default()
    });
    let run = dir.join(name);
    fs::create_dir(&run).expect("a folder");
    profile.save(&run.join("profile.json")).expect("there is room");
    run
}

#[test]
fn a_run_is_held_against_a_rate_by_its_passes() {
    let dir = folder();
    let run = decoded(dir.path(), "run", "llama.cpp, CPU", "llama-cli -m m.gguf");
    let gate = |limit: &str| brickscope(&["gate", str(&run), "--min-tokens-per-second", limit]);
    for (limit, expected) in [("20", 0), ("80", 1), ("50", 3)] {
        let (code, text, said) = gate(limit);
        assert_eq!(code, expected, "{text}{said}");
        assert!(text.starts_with("decode: 50.00 tokens/s (95 % "), "{text}");
        assert!(text.contains("1 run, by its passes"), "{text}");
    }
    let (code, _, said) = brickscope(&["gate", str(&run), "--max-p99", "5"]);
    assert!(code == 2 && said.contains("only --min-tokens-per-second"), "{said}");
    // A model is none, and the error says what reads it.
    let model = dir.path().join("m.gguf");
    fs::write(&model, vec![b'G', b'G', b'U', b'F', 3, 0, 0, 0]).expect("there is room");
    for args in [
        &["gate", str(&model), "--min-tokens-per-second", "5"][..],
        &["compare", str(&run), str(&model)],
    ] {
        let (code, _, said) = brickscope(args);
        assert!(code == 2 && said.contains("is a model (GGUF), not a run"), "{said}");
    }
}

#[test]
fn two_runs_of_llama_cpp_have_the_command_that_settles_it() {
    let dir = folder();
    let a = decoded(dir.path(), "a", "llama.cpp, CPU", "llama-cli -m m.gguf -t 2");
    let b = decoded(dir.path(), "b", "llama.cpp, CPU", "llama-cli -m m.gguf -t 1");
    let (code, text, said) = brickscope(&["compare", str(&a), str(&b)]);
    assert_eq!(code, 3, "{said}");
    let command = "brickscope versus 'llama-cli -m m.gguf -t 2' 'llama-cli -m m.gguf -t 1'";
    assert!(text.contains(command), "{text}");
    let (_, json, _) = brickscope(&["compare", str(&a), str(&b), "--json"]);
    serde_json::from_str::<Value>(&json).expect("JSON alone");
}
