//! Records the noise of a machine: how much equal processes differ. `tests/analysis/compare.rs` draws comparisons of
//! equal runs from it.
//!
//! ```text
//! cargo build --release -p brickscope-cli
//! cargo run --release -p brickscope-cli --example record_noise -- target/release/brickscope \
//!     --processes 100 --prompt-tokens 32 --tokens 16 --threads 2 > tests/data/noise.json
//! ```
//!
//! Runs `benchmark` with these arguments, in `--processes N` one after the other, and condenses the
//! receipts: for each process and test, a row for each measured sample with its wall time, unattributed
//! time and each brick, in nanoseconds. Leave the machine idle meanwhile, or use it to learn how reliable
//! comparisons are on a busy machine.
#![expect(clippy::disallowed_methods, reason = "the command's exits are not for examples")]

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brickscope_analysis::receipt::Receipt;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().ok_or("usage: record_noise BRICKSCOPE [BENCHMARK ARGUMENTS]")?;
    let args: Vec<_> = args.collect();
    let folder = tempfile::tempdir()?;
    let status = Command::new(&program)
        .arg("benchmark")
        .args(&args)
        .arg("--out")
        .arg(folder.path())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("{} failed: {status}", program.display()).into());
    }
    let receipts = receipts(folder.path())?;
    let first = receipts.first().ok_or("it wrote no receipt: give --processes")?;
    let mut words: Vec<String> = vec!["benchmark".to_owned()];
    words.extend(args.iter().map(|word| word.to_string_lossy().into_owned()));
    let header = json!({
        "recorded": first.timestamp,
        "command": words,
        "brickscope": first.binary.version,
        "cpu": first.machine.cpu,
        "logical_cpus": first.machine.logical_cpus,
        "kernel": first.machine.kernel,
        "hypervisor": first.machine.hypervisor,
        "model": first.model.name,
        "quantization": first.model.quantization,
        "kernels": first.run.kernels,
        "threads": first.run.threads,
        "memory_bytes": first.machine.memory_bytes,
        "governor": first.machine.governor,
        "load_before": range(receipts.iter().filter_map(|receipt| receipt.load.before)),
        "others_share": range(receipts.iter().filter_map(|receipt| receipt.load.others_share)),
        "steal_share": range(receipts.iter().filter_map(|receipt| receipt.load.steal_share)),
        "processes_with_doubts": receipts.iter().filter(|receipt| !receipt.load.doubts.is_empty()).count(),
        "disturbed": receipts.iter().flat_map(|receipt| &receipt.tests).map(|test| test.aggregates.disturbed).sum::<u64>(),
        "tests": first.tests.iter().map(|test| json!({
            "name": test.name,
            "phase": if test.n_gen > 0 { "decode" } else { "prefill" },
            "tokens": test.n_prompt + test.n_gen,
            "bricks": test.bricks.iter().map(|brick| [&brick.name, &brick.category]).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    });
    // One line for each process keeps the file readable and small.
    let mut text = header.to_string();
    text.pop();
    text.push_str(",\n\"processes\":[\n");
    let rows = receipts.iter().map(|receipt| rows(receipt, first).map(|rows| rows.to_string()));
    text.push_str(&rows.collect::<Result<Vec<String>, String>>()?.join(",\n"));
    text.push_str("\n]}\n");
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Minimum, median and maximum; `None` of nothing.
fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, values[values.len() / 2], *values.last()?])
}

/// The receipts in the folders `1`, `2`, … of a set, in this order.
fn receipts(set: &Path) -> Result<Vec<Receipt>, Box<dyn Error>> {
    let file = |n: u32| -> PathBuf { set.join(n.to_string()).join("receipt.json") };
    let files = (1..).map(file).take_while(|file| file.exists());
    Ok(files.map(|file| Receipt::load(&file)).collect::<Result<Vec<Receipt>, _>>()?)
}

/// A process: for each test its measured samples.
fn rows(receipt: &Receipt, first: &Receipt) -> Result<Value, String> {
    let names = |receipt: &Receipt| {
        let tests = receipt.tests.iter().map(|test| (test.name.clone(), test.bricks.clone()));
        tests.collect::<Vec<_>>()
    };
    if names(receipt) != names(first) {
        return Err(format!("process {} has other tests or bricks", receipt.run.process));
    }
    let tests = receipt.tests.iter().map(|test| {
        let measured = test.samples.iter().filter(|sample| !sample.is_warm_up);
        let rows = measured.map(|sample| {
            let rest = sample.unattributed_ns.ok_or("a sample without a profiler")?;
            Ok([&[sample.wall_ns, rest], &sample.brick_ns[..]].concat())
        });
        rows.collect::<Result<Vec<Vec<u64>>, String>>()
    });
    Ok(json!(tests.collect::<Result<Vec<_>, String>>()?))
}
