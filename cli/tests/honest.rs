//! Fifty honest receipts with different models, threads, kernels and lengths, on the machine that runs
//! the tests: none is refused.
#![expect(clippy::disallowed_methods, reason = "the command's exits are not for tests")]

// These tests don't use all shared helpers.
#[allow(dead_code)]
mod command;

use std::io::Write;
use std::path::Path;

use brickscope_analysis::receipt::{Options, Receipt, sha256_file, verify};
use brickscope_kernels::Kernels;
use tempfile::TempDir;

use command::{brickscope, quiet_ceilings, run, text};

const MODELS: [&str; 7] = [
    "tiny-F16",
    "tiny-Q4_0",
    "tiny-Q4_K_M",
    "tiny-Q8_0",
    "tiny-bitnet-TQ2_0",
    "tiny-l3-Q4_K_M",
    "tiny-qwen2-Q4_K_M",
];

/// Prompt, tokens, depths, repetitions.
const LENGTHS: [[&str; 4]; 4] =
    [["8", "4", "0", "5"], ["24", "3", "0,16", "3"], ["0", "12", "0", "2"], ["5", "0", "4", "4"]];

#[test]
fn fifty_honest_receipts_are_accepted() {
    let folder = TempDir::new().expect("a temporary folder");
    let cache = folder.path().join("cache");
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/data/models");
    let mut backends = vec!["scalar", Kernels::best().backend().name()];
    backends.dedup();
    let mut made = 0;
    let mut real_ceilings = 0;
    let mut lengths = LENGTHS.iter().cycle();
    'all: for round in 0.. {
        for (nth, backend) in backends.iter().enumerate() {
            for threads in ["1", "2"] {
                for (model, name) in MODELS.iter().enumerate() {
                    let path = models.join(format!("{name}.gguf"));
                    let out = folder.path().join(format!("{round}-{nth}-{threads}-{model}"));
                    let [prompt, tokens, depths, repetitions] =
                        lengths.next().expect("it has no end");
                    let mut command = brickscope(&["benchmark", "-p", prompt, "-n", tokens]);
                    command.args(["-d", depths, "-r", repetitions, "--seed", &round.to_string()]);
                    command.args(["--threads", threads, "--backend", backend]);
                    command.arg("--out").arg(&out).arg(&path).env("BRICKSCOPE_CACHE", &cache);
                    let output = run(&mut command);
                    if round == 0 && model == 0 {
                        real_ceilings = quiet_ceilings(&cache);
                    }
                    let has_ceilings = is_accepted(&out, &path, text(&output.stdout));
                    assert!(has_ceilings || round == 0 && model == 0, "they are kept by now");
                    made += 1;
                    if made == 50 {
                        break 'all;
                    }
                }
            }
        }
    }
    if real_ceilings == 0 {
        // Bypasses the test harness, which captures the output of a test.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no receipt was held to ceilings as they were measured, since others used the \
             CPUs; all were held to raised ones"
        );
    }
}

/// Asserts that a receipt is accepted, and returns whether it was checked against ceilings.
fn is_accepted(out: &Path, model: &Path, printed: &str) -> bool {
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
    receipt.ceilings.is_some()
}
