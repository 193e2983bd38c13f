//! Compares a new run of a benchmark with the receipt that it should confirm.

use super::{Code, Refusal, said};
use crate::receipt::v1::{Receipt, Test};

/// The contradictions between `receipt` and a new run of its benchmark: another model, other tests, other
/// tokens, or a median rate that differs by more than `tolerance` (0.1 for 10 %).
///
/// Rates are only comparable on the same machine. Tokens are comparable wherever the same kernels run.
#[must_use]
pub fn rerun_agrees(receipt: &Receipt, rerun: &Receipt, tolerance: f64) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    if receipt.model.sha256 != rerun.model.sha256 {
        refusals.push(Refusal::new(
            Code::RerunDiffers,
            format!(
                "the rerun is of the model {}, but the receipt is of {}",
                said(&rerun.model.sha256),
                said(&receipt.model.sha256)
            ),
        ));
    }
    for (what, ours, theirs) in [
        ("kernels", &receipt.run.kernels, &rerun.run.kernels),
        ("backend", &receipt.backend, &rerun.backend),
    ] {
        if ours != theirs {
            let sentence =
                format!("the rerun's {what} are {}, the receipt's {}", said(theirs), said(ours));
            refusals.push(Refusal::new(Code::RerunDiffers, sentence));
        }
    }
    for test in &receipt.tests {
        match rerun.tests.iter().find(|other| other.name == test.name) {
            Some(other) => self::test(receipt, test, rerun, other, tolerance, &mut refusals),
            None => refusals.push(Refusal::new(
                Code::RerunDiffers,
                format!("the rerun has no test {}", said(&test.name)),
            )),
        }
    }
    refusals
}

fn test(
    receipt: &Receipt,
    test: &Test,
    rerun: &Receipt,
    other: &Test,
    tolerance: f64,
    refusals: &mut Vec<Refusal>,
) {
    let name = said(&test.name);
    if test.input_sha256 != other.input_sha256 {
        refusals.push(Refusal::new(
            Code::RerunDiffers,
            format!("test {name} was rerun on other tokens than those of the receipt"),
        ));
    } else if test.output_sha256 != other.output_sha256 {
        let (ours, theirs) = (&receipt.binary.version, &rerun.binary.version);
        let versions = match ours == theirs {
            true => String::new(),
            false => format!(" (by brickscope {}, now {})", said(ours), said(theirs)),
        };
        refusals.push(Refusal::new(
            Code::RerunOutput,
            format!(
                "test {name} chose other tokens when it was rerun: the receipt is of another \
                 computation{versions}"
            ),
        ));
    }
    let (Some(ours), Some(theirs)) = (test.aggregates.median_ts, other.aggregates.median_ts) else {
        return refusals.push(Refusal::new(
            Code::RerunDiffers,
            format!("test {name} has no median rate to compare"),
        ));
    };
    let off = theirs / ours - 1.0;
    // Rates of 0 give NaN, which no tolerance allows.
    if off.is_nan() || off.abs() > tolerance {
        let machines = match receipt.machine.cpu == rerun.machine.cpu
            && receipt.machine.cpu_id == rerun.machine.cpu_id
        {
            true => "",
            false => " (this is another machine, where rates may differ)",
        };
        refusals.push(Refusal::new(
            Code::RerunRate,
            format!(
                "test {name} ran at {theirs:.2} tokens a second when it was rerun, {:+.1} % from the \
                 receipt's {ours:.2}, but only {:.0} % is allowed{machines}",
                100.0 * off,
                100.0 * tolerance
            ),
        ));
    }
}
