//! Files of llama-bench where runs are expected: read as `import` reads them.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use brickscope_formats::import::{self, Format, Options, decoded, format_of};
use brickscope_profile::Profile;
use brickscope_profile::load::{self, Limit};

use crate::files::{MAIN, SUMMARY};

/// The formats' own limit is as much.
const LIMIT: Limit = Limit { bytes: 64 << 20, instead: "measure fewer tests" };

/// So many bytes have a row, or the head of a table, even behind all that the program logs with `-v`.
const BEGIN: u64 = 4 << 20;

/// What is said of a run that another program's file states.
pub fn without_receipt(format: &str) -> String {
    format!("no receipt: what {format} states isn't verified")
}

/// The tests in a file as llama-bench writes it; `None` if it is another file.
pub fn read(file: &Path) -> Result<Option<Profile>> {
    let cannot = || file.display().to_string();
    if !may_be_one(file).with_context(cannot)? {
        return Ok(None);
    }
    let bytes = load::bytes(file, LIMIT).with_context(cannot)?;
    let text =
        decoded(bytes).map_err(|at| anyhow!("{}, byte {at}: not UTF-8 text", file.display()))?;
    if format_of(&text) != Some(Format::LlamaBench) {
        return Ok(None);
    }
    Ok(Some(import::read(&text, file, Format::LlamaBench, &Options::default())?))
}

/// Whether a file begins as one. Runs and receipts of ours, which have tests of llama-bench in them, don't.
fn may_be_one(file: &Path) -> std::io::Result<bool> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // What is read of a pipe is lost for whoever reads it next.
    if name == "profile.json" || name.ends_with("receipt.json") || !fs::metadata(file)?.is_file() {
        return Ok(false);
    }
    let mut begin = Vec::new();
    fs::File::open(file)?.take(BEGIN).read_to_end(&mut begin)?;
    let Ok(begin) = decoded(begin) else { return Ok(false) };
    let is_ours = begin.contains("\"schema_version\"");
    let has = |part| begin.contains(part);
    // Paths in traces may have `t/s` in them.
    let is_head = |line: &str| {
        let cells = || {
            line.split(['|', '\t', ';', ',']).map(|of| of.trim_matches([' ', '*', '`', '"', '\r']))
        };
        line.contains("t/s")
            && cells().any(|cell| cell == "t/s")
            && cells().any(|cell| cell == "test")
    };
    Ok(!is_ours && (has("samples_ns") || has("avg_ts") || begin.lines().any(is_head)))
}

/// Whether a file in a folder of runs may be one with times of repetitions, by its name.
pub fn is_named_so(name: &str) -> bool {
    let mut ours = MAIN.into_iter().chain([SUMMARY, "lake.json"]);
    let is_json = name.ends_with(".json") || name.ends_with(".jsonl");
    is_json && !ours.any(|own| name.ends_with(own))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn files_of_llama_bench_are_told_from_runs_and_others() {
        let folder = TempDir::new().expect("a temporary folder");
        let read_as = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("there is room");
            read(&file)
        };
        let bench = include_str!("../../tests/data/import/llama-bench.json");
        let profile = read_as("bench.json", bench).expect("it is read").expect("it is one");
        assert_eq!(profile.passes.len(), 6);
        let logged = format!("ggml_cuda_init: found 1 CUDA devices:\n{bench}");
        assert!(read_as("bench.txt", &logged).expect("it is read").is_some());
        // An imported run has tests of it, and is no such file.
        for name in ["profile.json", "another.json"] {
            assert!(read_as(name, &profile.to_json()).expect("it is read").is_none(), "{name}");
        }
        assert!(read_as("a.json", "{\"t/s\": 5}").expect("it is read").is_none());
        assert!(read_as("a.json", "").expect("it is read").is_none());
        let broken = bench.replace("\"samples_ns\": [", "\"samples_ns\": 1, \"x\": [");
        let said = read_as("bench.json", &broken).expect_err("a fault").to_string();
        let fault = "bench.json, row 1, samples_ns: is not an array of times";
        assert!(said.ends_with(fault), "{said}");
    }
}
