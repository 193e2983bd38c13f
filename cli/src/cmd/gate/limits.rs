//! What `gate --assert-throughput` and `--assert-p99` do: they hold a run against absolute limits.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use brickscope_analysis::compare::{Held, Limit, Outcome, Work};
use brickscope_analysis::receipt::{Receipt, read};
use brickscope_runs::Series;

use crate::flags::{ComparisonArgs, ComparisonFormat};
use crate::output;
use crate::runs::{load, sides};

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
    let (mut receipts, mut runs) = (Vec::new(), Vec::new());
    for file in sides::files(run)? {
        if sides::is_receipt(&file)? {
            receipts.push(Receipt::from_bytes(&read(&file)?, &file)?);
        } else {
            runs.push(load(&file)?);
        }
    }
    let is_of_rates = limits.iter().all(|limit| matches!(limit, Limit::Throughput(_)));
    ensure!(
        runs.is_empty() || (receipts.is_empty() && is_of_rates),
        "{}: of runs that are no benchmarks only --min-tokens-per-second is judged; `brickscope benchmark` writes receipts",
        output::shown(run)
    );
    let work = |receipt: &Receipt| -> BTreeSet<Work> {
        receipt.tests.iter().map(|test| Work::of_receipt(receipt, test)).collect()
    };
    ensure!(
        receipts.windows(2).all(|two| work(&two[0]) == work(&two[1]))
            && runs.windows(2).all(|two| Series::of(&two[0]) == Series::of(&two[1])),
        "{} holds runs of different work (model, tests, threads, backend), which have no mean: name one set of processes",
        output::shown(run)
    );
    let held: Vec<Held> = limits
        .iter()
        .map(|limit| if runs.is_empty() { limit.hold(&receipts) } else { limit.hold_runs(&runs) })
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
