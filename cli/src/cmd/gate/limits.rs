//! What `gate --min-tokens-per-second` and `--max-p99` do: they hold a run against absolute limits.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use brickscope_analysis::compare::{Held, Limit, Outcome, Work, decode_test};
use brickscope_analysis::receipt::{Receipt, read};
use brickscope_runs::Series;

use crate::flags::{ComparisonArgs, ComparisonFormat};
use crate::output;
use crate::runs::{llama_bench, load, sides};

/// Prints what a run reached of each limit. The exit code is that of a gate.
pub(super) fn run(limits: &[Limit], run: &Path, how: &ComparisonArgs) -> Result<ExitCode> {
    let format = how.format();
    ensure!(format != ComparisonFormat::Bmf, "--format bmf: limits have no such form");
    let side = sides::load(run, how.force)?;
    let refused = side
        .processes
        .iter()
        .find_map(|process| process.not_verified.as_ref().map(|why| (&process.name, why)));
    if let Some((name, why)) = refused.filter(|_| !how.force) {
        bail!(
            "{name} isn't verified ({why}): `brickscope verify-receipt {name}` says more, --force judges it anyway"
        );
    }
    if let Some((one, other)) = side.copies() {
        bail!("{one} and {other} have the same measurements, so one is a copy");
    }
    let (mut receipts, mut runs, mut works) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut of_llama_bench = 0;
    for file in &sides::files(run)? {
        if llama_bench::read(file)?.is_some() {
            of_llama_bench += 1;
        } else if sides::is_receipt(file)? {
            let receipt = Receipt::from_bytes(&read(file)?, file)?;
            let tests = receipt.tests.iter();
            works.insert(tests.map(|test| Work::of_receipt(&receipt, test)).collect());
            receipts.push(receipt);
        } else {
            runs.push(load(file)?);
        }
    }
    let is_of_rates = limits.iter().all(|limit| matches!(limit, Limit::Throughput(_)));
    ensure!(
        runs.is_empty() || is_of_rates,
        "{}: of runs that are no benchmarks only --min-tokens-per-second is judged; `brickscope benchmark` writes receipts",
        output::shown(run)
    );
    let kinds = [of_llama_bench > 0, !receipts.is_empty(), !runs.is_empty()];
    ensure!(
        kinds.iter().filter(|&&is_there| is_there).count() < 2,
        "{} holds files of several kinds: receipts, files of llama-bench, or other runs: name one of them",
        output::shown(run)
    );
    let builds = side.processes.iter().flat_map(|process| &process.facts);
    let builds: BTreeSet<&str> =
        builds.filter(|fact| fact.name == "build").map(|fact| &*fact.value).collect();
    ensure!(
        of_llama_bench == 0 || builds.len() < 2,
        "{} holds runs of {} builds, which have no mean: name a file of one of them",
        output::shown(run),
        builds.len()
    );
    for process in side.processes.iter().filter(|_| of_llama_bench > 0) {
        let test = decode_test(process);
        works.extend(test.map(|test| BTreeSet::from([Work::of_process(process, test)])));
    }
    ensure!(
        works.len() < 2 && runs.windows(2).all(|two| Series::of(&two[0]) == Series::of(&two[1])),
        "{} holds runs of different work (model, tests, threads, backend), which have no mean: name one set of processes",
        output::shown(run)
    );
    let held: Vec<Held> = limits
        .iter()
        .map(|limit| match (of_llama_bench, runs.is_empty()) {
            (0, true) => limit.hold(&receipts),
            (0, false) => limit.hold_runs(&runs),
            _ => limit.hold_processes(&side.processes),
        })
        .collect();
    let text: String = held.iter().map(|held| format!("{held}\n")).collect();
    output::print(match format {
        ComparisonFormat::Json => serde_json::to_string_pretty(&held)? + "\n",
        // Nothing in it ends the block.
        ComparisonFormat::Md => format!("```text\n{}```\n", text.replace('`', "'")),
        _ => text,
    })?;
    let any = |outcome| held.iter().any(|held| held.outcome == outcome);
    Ok(ExitCode::from(match (any(Outcome::Slower), any(Outcome::Inconclusive)) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 0,
    }))
}
