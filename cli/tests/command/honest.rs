//! Honest receipts with different models, threads, kernels and lengths, on the machine that runs the tests, quiet and
//! busy: none is refused.
#![expect(clippy::disallowed_methods, reason = "the command's exits are not for tests")]

// These tests don't use all shared helpers.
#[allow(dead_code)]
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use brickscope_analysis::receipt::{Options, Receipt, sha256_file, verify};
use brickscope_kernels::Kernels;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, quiet_ceilings, run, text};

const MODELS: [&str; 8] = [
    "tiny-F16",
    "tiny-Q4_0",
    "tiny-Q4_K_M",
    "tiny-Q8_0",
    "tiny-bitnet-TQ2_0",
    "tiny-bitnet-b158-I2_S",
    "tiny-l3-Q4_K_M",
    "tiny-qwen2-Q4_K_M",
];

/// Prompt, tokens, depths, repetitions.
const LENGTHS: [[&str; 4]; 5] = [
    ["8", "4", "0", "5"],
    ["24", "3", "0,16", "3"],
    ["0", "12", "0", "2"],
    ["5", "0", "4", "4"],
    ["33", "7", "0", "3"],
];

#[test]
fn fifty_honest_receipts_are_accepted() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let models: Vec<PathBuf> =
        MODELS.iter().map(|name| models.join(format!("{name}.gguf"))).collect();
    honest(50, &models, |_| 0);
}

/// Programs that keep a CPU each busy, for as long as this exists.
struct Busy(Vec<Child>);

impl Busy {
    fn with(n: usize) -> Self {
        let program = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Self((0..n).map(|_| program().expect("a shell")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = (child.kill(), child.wait());
        }
    }
}

/// Takes some minutes; `.ci/nightly` runs it.
#[test]
#[ignore = "takes minutes"]
fn two_hundred_honest_receipts_of_nine_models_quiet_and_busy_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let mut models: Vec<PathBuf> =
        MODELS.iter().map(|name| folder.join(format!("{name}.gguf"))).collect();
    let made = TempDir::new().expect("a temporary folder");
    models.push(made.path().join("110m-q8_0.gguf"));
    run(brickscope(&["synth", "--shape", "110m", "-o"]).arg(&models[8]));
    // Half of them beside one to three programs.
    honest(200, &models, |nth| if nth % 2 == 0 { 0 } else { 1 + nth / 2 % 3 });
}

/// Makes `n` receipts, each beside as many busy programs as `others` says, and asserts that none is refused.
fn honest(n: usize, models: &[PathBuf], others: impl Fn(usize) -> usize) {
    let folder = TempDir::new().expect("a temporary folder");
    let cache = folder.path().join("cache");
    let mut backends = vec!["scalar", Kernels::best().backend().name()];
    backends.dedup();
    let mut measured = BTreeSet::new();
    let mut real_ceilings = 0;
    let mut doubted = 0;
    for nth in 0..n {
        // Each number of programs, of repetitions and of threads meets each model.
        let model = &models[nth % models.len()];
        let turn = nth / models.len() + nth;
        let [prompt, tokens, depths, repetitions] = LENGTHS[turn % LENGTHS.len()];
        let backend = backends[turn / 2 % backends.len()];
        let threads = ["1", "2", "3"][turn % 3];
        let seed = nth.to_string();
        let out = folder.path().join(&seed);
        let mut command = brickscope(&["benchmark", "-p", prompt, "-n", tokens]);
        command.args(["-d", depths, "-r", repetitions, "--seed", &seed]);
        command.args(["--threads", threads, "--backend", backend]);
        command.arg("--out").arg(&out).arg(model).env("BRICKSCOPE_CACHE", &cache);
        let busy = Busy::with(others(nth));
        let output = run(&mut command);
        drop(busy);
        // There are ceilings for each number of threads and each instruction set.
        let is_first = measured.insert((threads, backend));
        if is_first {
            real_ceilings = quiet_ceilings(&cache);
        }
        let (has_ceilings, is_doubted) = is_accepted(&out, model, text(&output.stdout));
        assert!(has_ceilings || is_first || others(nth) > 0, "they are kept by now");
        doubted += usize::from(is_doubted);
    }
    // Bypasses the test harness, which captures the output of a test.
    let _ = writeln!(std::io::stderr(), "{n} receipts: none refused, {doubted} doubted");
    if real_ceilings == 0 {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no receipt was held to ceilings as they were measured, since others used the \
             CPUs; all were held to raised ones"
        );
    }
}

/// Asserts that a receipt is accepted, and returns whether it was checked against ceilings, and doubted.
fn is_accepted(out: &Path, model: &Path, printed: &str) -> (bool, bool) {
    let path = out.join("receipt.json");
    let bytes = std::fs::read(&path).expect("it was written");
    let of_model = sha256_file(model).expect("the fixture");
    let options = Options { model: Some(of_model), ..Options::default() };
    let verdict = verify(&bytes, &options);
    assert!(verdict.is_accepted(), "{:#?}\n{printed}", verdict.refusals);
    let receipt = Receipt::load(&path).expect("a receipt");
    // Otherwise much would be unchecked.
    assert!(!receipt.kernels.is_empty() && receipt.run.profiled);
    assert!(receipt.tests.iter().all(|test| test.flops.is_some() && test.bytes.is_some()));
    (receipt.ceilings.is_some(), !receipt.load.doubts.is_empty() || !verdict.doubts.is_empty())
}
