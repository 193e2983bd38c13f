//! Whether repeated runs agree on what limits each brick. What takes minutes is ignored here, and runs in `.ci/nightly`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use brickscope_testing::command::{as_asked, brickscope, run, text};
use serde_json::Value;
use tempfile::TempDir;

/// The bound and the level of each brick, of each phase that has a roof: by when the machine was measured first, since what
/// others disturbed isn't kept, and the next run measures again.
type Limits = BTreeMap<[String; 2], BTreeMap<String, [String; 2]>>;

/// How near each of decode's products is to memory's roof, a word for each run that can be judged.
type Reaches = BTreeMap<String, Vec<String>>;

struct Runs<'d> {
    model: &'d Path,
    /// Where the ceilings are, too: those that tests share were first measured at one rate, whatever it is of, so that what
    /// limits attention, with one operation a byte, would be chance.
    folder: &'d Path,
    options: &'d [&'d str],
    count: u32,
    reaches: Reaches,
}

impl Runs<'_> {
    /// Profiles the model, and holds the roofline to what is true of every run.
    fn profile(&mut self, tokens: &str) -> Limits {
        let out = self.folder.join(format!("run-{}", self.count));
        let mut command = as_asked(&["profile", "--json", "--tokens", tokens, "--out"]);
        command.arg(out).arg(self.model).args(self.options).env("BRICKSCOPE_CACHE", self.folder);
        let json: Value = serde_json::from_slice(&run(&mut command).stdout).expect("JSON");
        let is_sure = is_roof_that_of_the_run(&json["ceilings"]);
        let mut limits = Limits::new();
        for roofline in json["roofline"].as_array().expect("phases") {
            let phase = roofline["phase"].as_str().expect("a phase");
            let number = |value: &Value| value.as_f64().expect("a number");
            let measured = json["ceilings"]["measured"].as_str().expect("a time").to_owned();
            let of_phase = limits.entry([phase.to_owned(), measured]).or_default();
            let mut above_ns = 0.0;
            for brick in roofline["bricks"].as_array().expect("bricks") {
                if brick["bound"].is_null() {
                    continue;
                }
                let name = brick["name"].as_str().expect("a name").to_owned();
                let word = |field: &str| brick[field].as_str().expect("a word").to_owned();
                let is_product = name.ends_with("Projection") || name == "LmHead";
                if is_product && phase == "decode" && word("bound") == "memory" && is_sure {
                    self.reaches.entry(name.clone()).or_default().push(word("reach"));
                }
                of_phase.insert(name, [word("bound"), word("level")]);
                above_ns += 1e3 * number(&brick["us_to_roof"]) * number(&brick["spans"]);
            }
            let [wall_ns, least_ns] = ["wall_ns", "least_ns"].map(|field| number(&roofline[field]));
            assert!(above_ns <= (wall_ns - least_ns) * (1.0 + 1e-9) + 1.0, "{phase}: {roofline}");
        }
        limits
    }

    /// Runs so often, and asserts that each run says the same of the phases that have a roof in it: one whose threads
    /// shared a CPU has none.
    fn agree(&mut self, times: u32, tokens: &str, said: &mut Limits) {
        for _ in 0..times {
            self.count += 1;
            for (phase, limits) in self.profile(tokens) {
                assert!(limits.len() >= 10, "{phase:?}: {limits:?}");
                let before = said.entry(phase).or_insert_with(|| limits.clone());
                assert_eq!(*before, limits, "run {}", self.count);
            }
        }
        let phases: BTreeSet<&str> = said.keys().map(|[phase, _]| phase.as_str()).collect();
        assert_eq!(phases.len(), 2, "no run has a roof of both phases: {said:?}");
    }
}

/// Whether memory gave the bandwidth that is the roof, right before the run and right after it. If it was in a slower
/// state, products are far from the roof and nothing is wrong with them.
fn is_roof_that_of_the_run(ceilings: &Value) -> bool {
    let roof = ceilings["read_bytes_per_second"].as_f64().unwrap_or(f64::INFINITY);
    let readings = ceilings["readings"].as_array().map_or(&[][..], |readings| readings);
    let around: Vec<&Value> = readings.iter().filter(|reading| reading["when"] != "kept").collect();
    let gave = |reading: &&Value| reading["read_bytes_per_second"].as_f64() >= Some(0.9 * roof);
    around.len() == 2 && around.iter().all(gave)
}

/// Asserts that no product that reads its weights from memory is far from the roof in most of the runs.
fn assert_not_far(shape: &str, reaches: &Reaches) {
    if reaches.is_empty() {
        println!(
            "{shape}: memory gave less than its roof around each run, so none says how near products are to it"
        );
    }
    for (brick, reached) in reaches {
        let far = reached.iter().filter(|reach| *reach == "far").count();
        println!("{shape} {brick:18}far in {far} of {} runs", reached.len());
        assert!(2 * far <= reached.len(), "{shape} {brick}: {reached:?}");
    }
}

/// Ends the load, even if an assertion fails.
struct Over<'b>(&'b AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `run` while another thread reads memory.
fn beside_a_reader<T>(run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let memory = vec![1_u64; 32 << 20];
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::black_box(memory.iter().sum::<u64>());
            }
        });
        let _over = Over(is_over);
        run()
    })
}

fn synthetic(folder: &Path, shape: &str, quant: &str) -> PathBuf {
    let path = folder.join(format!("{shape}-{quant}.gguf"));
    let args = ["synth", "--shape", shape, "--quant", quant, "-o"];
    let output = run(brickscope(&args).arg(&path));
    assert_eq!(text(&output.stderr), "");
    path
}

fn runs_of<'d>(model: &'d Path, folder: &'d Path, options: &'d [&'d str]) -> Runs<'d> {
    Runs { model, folder, options, count: 0, reaches: Reaches::new() }
}

#[test]
fn runs_of_a_model_that_a_cache_holds_agree() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a folder");
    let model = synthetic(folder.path(), "tiny", "q8_0");
    let options = ["--threads", "1"];
    runs_of(&model, folder.path(), &options).agree(3, "8", &mut Limits::new());
}

#[test]
#[ignore = "takes minutes; `.ci/nightly` runs it"]
fn ten_runs_agree_whatever_else_runs() {
    let _alone = crate::alone();
    for (shape, tokens) in [("110m", "64"), ("1b", "12")] {
        let folder = TempDir::new().expect("a folder");
        let model = synthetic(folder.path(), shape, "q8_0");
        let mut runs = runs_of(&model, folder.path(), &[]);
        let mut said = Limits::new();
        runs.agree(10, tokens, &mut said);
        assert_not_far(shape, &runs.reaches);
        beside_a_reader(|| runs.agree(10, tokens, &mut said));
        for ([phase, measured], bricks) in &said {
            println!("{shape}, measured {measured}:");
            for (brick, [bound, level]) in bricks {
                println!("{shape} {phase:8}{brick:18}{bound:8} {level}");
                // A gigabyte lies in no cache.
                assert!(
                    shape != "1b" || brick != "LmHead" || level == "memory",
                    "{brick}: {level}"
                );
            }
        }
    }
}

/// The verdict on decode: how near to its limit, and the sentence of the screen.
fn verdict(model: &Path, out: &Path, cache: &Path) -> [String; 2] {
    let mut command = as_asked(&["profile", "--json", "--tokens", "32", "--out"]);
    command.arg(out).arg(model).env("BRICKSCOPE_CACHE", cache);
    let json: Value = serde_json::from_slice(&run(&mut command).stdout).expect("JSON");
    let decode = |field: &str| {
        let phases = json[field].as_array().map_or(&[][..], |phases| phases);
        phases.iter().find(|of| of["phase"] == "decode")
    };
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    match decode("roofline") {
        Some(of) => ["reach", "says"].map(|field| word(&of["verdict"][field])),
        // Its own threads shared a CPU.
        None => {
            let absent = decode("roofline_absent").expect("a reason");
            ["none".to_owned(), word(&absent["reason"])]
        }
    }
}

#[test]
#[ignore = "takes minutes; `.ci/nightly` runs it"]
fn forty_runs_of_one_command_are_never_at_the_roof_and_far_from_it() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a folder");
    let model = synthetic(folder.path(), "110m", "q8_0");
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for nth in 0..40 {
        // Quiet, beside a program that reads memory, and beside one that comes and goes.
        let is_busy = match nth {
            ..14 => false,
            14..27 => true,
            _ => nth % 2 == 0,
        };
        let out = folder.path().join(nth.to_string());
        let profile = || verdict(&model, &out, folder.path());
        let [reach, says] = if is_busy { beside_a_reader(profile) } else { profile() };
        println!("{nth:2} {} {reach:9} {says}", if is_busy { "busy " } else { "quiet" });
        said.entry(reach).or_default().push(says);
    }
    assert!(!(said.contains_key("at") && said.contains_key("far")), "{said:?}");
    // A verdict that is never given can't flip, and on a machine that swings all the time there is none.
    let without = ["unsettled", "none"].map(|reach| said.get(reach).map_or(0, Vec::len));
    println!("without a verdict: {} of 40", without.iter().sum::<usize>());
}
