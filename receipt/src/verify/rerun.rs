//! Compares a new run of a benchmark with the receipt that it should confirm.

use brickscope_profile::stats::median;

use super::{Code, Refusal, said};
use crate::v1::{Receipt, Sample, Test};

/// What a new run of a receipt's benchmark says of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rerun {
    /// What contradicts the receipt.
    pub refusals: Vec<Refusal>,
    /// Rates that differ by more than is allowed, and at most twice, where the runs say why: the slower one was
    /// disturbed, their own samples are spread as far, or memory was faster around one of the two. One sentence each.
    pub doubts: Vec<String>,
}

/// The contradictions between `receipt` and a new run of its benchmark: another model, other tests, other
/// tokens, or a median rate that differs by more than `tolerance` (0.1 for 10 %) and by more than what the two runs
/// themselves explain.
///
/// `memory` has what this machine's memory was measured to give on other days, in bytes a second. What the receipt says
/// of memory counts as far as this machine was seen to give it, then or around the rerun: whoever wrote the receipt
/// could write anything.
///
/// Rates are only comparable on the same machine. Tokens are comparable wherever the same kernels run.
#[must_use]
pub fn rerun_agrees(receipt: &Receipt, rerun: &Receipt, tolerance: f64, memory: &[f64]) -> Rerun {
    let compare = Compare { receipt, rerun, tolerance, memory };
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
    let name = |receipt: &Receipt| receipt.device.as_ref().map(|device| device.name.clone());
    let (ours, theirs) = (name(receipt), name(rerun));
    if ours != theirs {
        let said = |name: Option<String>| name.map_or("no device".to_owned(), |name| said(&name));
        let sentence =
            format!("the rerun was on {}, the receipt's run on {}", said(theirs), said(ours));
        refusals.push(Refusal::new(Code::RerunDiffers, sentence));
    }
    for test in &receipt.tests {
        match rerun.tests.iter().find(|other| other.name == test.name) {
            Some(other) => compare.test(test, other, &mut found),
            None => found.refusals.push(Refusal::new(
                Code::RerunDiffers,
                format!("the rerun has no test {}", said(&test.name)),
            )),
        }
    }
    found
}

/// The part by which a rate of a rerun may be off if something explains it: half as fast, or twice. How much other work
/// takes isn't known, but that it halves a rate is plausible, and that it takes nine tenths isn't. No machine's memory
/// was seen to change by more, either.
const EXPLAINABLE: std::ops::RangeInclusive<f64> = -0.5..=1.0;

/// With fewer samples it can't be told which of them is the odd one.
const LEAST_SAMPLES: usize = 3;

/// Both runs, and by what they are compared.
struct Compare<'r> {
    receipt: &'r Receipt,
    rerun: &'r Receipt,
    tolerance: f64,
    memory: &'r [f64],
}

impl Compare<'_> {
    fn test(&self, test: &Test, other: &Test, found: &mut Rerun) {
        let Self { receipt, rerun, tolerance, .. } = *self;
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
        if test.not_finite.is_some() != other.not_finite.is_some() {
            let (not, but) = match test.not_finite {
                None => ("aren't", "the receipt doesn't say so"),
                Some(_) => ("are", "the receipt says that some aren't"),
            };
            refusals.push(Refusal::new(
                Code::RerunOutput,
                format!("the logits of test {name} {not} all numbers when it is rerun, but {but}"),
            ));
        }
        let medians = (test.aggregates.median_ts, other.aggregates.median_ts);
        let (Some(ours), Some(theirs)) = medians else {
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
            if let Some(why) = self.explained(test, other, off) {
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
    fn explained(&self, test: &Test, other: &Test, off: f64) -> Option<String> {
        // NaN, of rates of 0, is not in it.
        if !EXPLAINABLE.contains(&off) {
            return None;
        }
        // The slower of the two is the one that was held up.
        let (what, slower) =
            if off < 0.0 { ("the rerun", other) } else { ("the receipt's run", test) };
        let samples = slower.samples.iter().filter(|sample| !sample.is_warm_up);
        let (mut disturbed, mut all) = (0, 0);
        for sample in samples {
            disturbed += usize::from(sample.disturbed == Some(true));
            all += 1;
        }
        if 2 * disturbed > all {
            return Some(format!("other work disturbed {disturbed} of {all} samples of {what}"));
        }
        if let Some((ours, theirs)) = typical(test).zip(typical(other))
            && (ours.0 - theirs.0).abs() <= ours.1 + theirs.1
        {
            return Some("both runs' own samples are spread as far".to_owned());
        }
        self.by_memory(off)
    }

    /// What memory gave around the two runs, if that explains it.
    fn by_memory(&self, off: f64) -> Option<String> {
        let (ours, theirs) = (self.receipt.ceilings.as_ref()?, self.rerun.ceilings.as_ref()?);
        // Absent where memory wasn't measured around the rerun, since the model lies in a cache.
        let again = theirs.memory_spread?;
        // Receipts of earlier versions don't have it.
        let stated = ours.memory_spread.unwrap_or([ours.read_bytes_per_second; 2]);
        let here = self.memory.iter().copied().chain(again).chain([theirs.read_bytes_per_second]);
        let here: Vec<f64> = here.filter(|rate| rate.is_finite() && *rate > 0.0).collect();
        let lowest = here.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = here.iter().copied().fold(0.0, f64::max);
        if lowest > highest {
            return None;
        }
        let [slow, fast] = stated.map(|rate| rate.clamp(lowest, highest));
        let ([slow_again, fast_again], tolerance) = (again, self.tolerance);
        let (least, most) =
            (slow_again / fast - 1.0 - tolerance, fast_again / slow - 1.0 + tolerance);
        (off >= least && off <= most).then(|| {
            format!(
                "the receipt says that memory gave {} GB/s; this machine gave {} around the rerun and {} on all days",
                gigabytes(stated),
                gigabytes(again),
                gigabytes([lowest, highest])
            )
        })
    }
}

/// The median rate of a test's measured samples, and how far they typically are from it: their median deviation, in
/// the units of a standard deviation of normal noise (times 1.4826). A single slow sample moves neither.
fn typical(test: &Test) -> Option<(f64, f64)> {
    let samples = test.samples.iter().filter(|sample| !sample.is_warm_up);
    let rates: Vec<f64> = samples.map(Sample::rate).collect();
    let middle = median(&rates).filter(|_| rates.len() >= LEAST_SAMPLES)?;
    let off: Vec<f64> = rates.iter().map(|rate| (rate - middle).abs()).collect();
    Some((middle, 1.4826 * median(&off)?))
}

/// A range of bandwidths.
fn gigabytes(range: [f64; 2]) -> String {
    let [low, high] = range.map(|rate| format!("{:.1}", rate / 1e9));
    if low == high { low } else { format!("{low} to {high}") }
}
