//! Compares a new run of a benchmark with the receipt that it should confirm.

use super::{Code, Refusal, said};
use crate::receipt::v1::{Receipt, Test};

/// What a new run of a receipt's benchmark says of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rerun {
    /// What contradicts the receipt.
    pub refusals: Vec<Refusal>,
    /// Rates that differ by more than is allowed, where either run says why: it was disturbed, its own samples are
    /// spread as far, or memory was faster around one of the two. One sentence each.
    pub doubts: Vec<String>,
}

/// The contradictions between `receipt` and a new run of its benchmark: another model, other tests, other
/// tokens, or a median rate that differs by more than `tolerance` (0.1 for 10 %) and by more than what the two runs
/// themselves explain.
///
/// Rates are only comparable on the same machine. Tokens are comparable wherever the same kernels run.
#[must_use]
pub fn rerun_agrees(receipt: &Receipt, rerun: &Receipt, tolerance: f64) -> Rerun {
    let mut found = Rerun::default();
    let refusals = &mut found.refusals;
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
            Some(other) => self::test(receipt, test, rerun, other, tolerance, &mut found),
            None => found.refusals.push(Refusal::new(
                Code::RerunDiffers,
                format!("the rerun has no test {}", said(&test.name)),
            )),
        }
    }
    found
}

fn test(
    receipt: &Receipt,
    test: &Test,
    rerun: &Receipt,
    other: &Test,
    tolerance: f64,
    found: &mut Rerun,
) {
    let refusals = &mut found.refusals;
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
        if let Some(why) = explained(receipt, test, rerun, other, off, tolerance) {
            return found.doubts.push(format!(
                "test {name} ran at {theirs:.2} tokens a second when it was rerun, {:+.1} % from the receipt's \
                 {ours:.2}, but {why}{machines}: rerun it on a quiet machine",
                100.0 * off
            ));
        }
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

/// What explains that a rate differs by the part `off`, if anything does.
fn explained(
    receipt: &Receipt,
    test: &Test,
    rerun: &Receipt,
    other: &Test,
    off: f64,
    tolerance: f64,
) -> Option<String> {
    // Only what either run measured of itself counts: a rate that is no rate is not explained.
    if !off.is_finite() {
        return None;
    }
    // The slower of the two is the one that was held up.
    let (what, slower) = if off < 0.0 { ("the rerun", other) } else { ("the receipt's run", test) };
    let samples = slower.samples.iter().filter(|sample| !sample.is_warm_up);
    let (mut disturbed, mut all) = (0, 0);
    for sample in samples {
        disturbed += usize::from(sample.disturbed == Some(true));
        all += 1;
    }
    // How much other work takes isn't known; that it halves a rate is plausible, and that it takes nine tenths isn't.
    if 2 * disturbed > all && (-0.5..=1.0).contains(&off) {
        return Some(format!("other work disturbed {disturbed} of {all} samples of {what}"));
    }
    let range = |test: &Test| {
        let rates = test.samples.iter().filter(|sample| !sample.is_warm_up && sample.wall_ns > 0);
        let rates = rates.map(|sample| sample.tokens as f64 * 1e9 / sample.wall_ns as f64);
        rates.fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)))
    };
    let ((low, high), (again_low, again_high)) = (range(test), range(other));
    if again_low <= high && low <= again_high {
        return Some("their samples overlap".to_owned());
    }
    // Bandwidths around the runs, from the slowest to the fastest.
    let memory = |receipt: &Receipt| {
        let ceilings = receipt.ceilings.as_ref()?;
        Some(ceilings.memory_spread.unwrap_or([ceilings.read_bytes_per_second; 2]))
    };
    let ([slow, fast], [slow_again, fast_again]) = memory(receipt).zip(memory(rerun))?;
    let (least, most) = (slow_again / fast - 1.0 - tolerance, fast_again / slow - 1.0 + tolerance);
    // More than a machine's memory was ever seen to change by explains nothing.
    (off >= least.max(-0.5) && off <= most.min(1.0)).then(|| {
        format!(
            "memory gave {:.1} to {:.1} GB/s around the receipt's run and {:.1} to {:.1} around the rerun",
            slow / 1e9,
            fast / 1e9,
            slow_again / 1e9,
            fast_again / 1e9
        )
    })
}
