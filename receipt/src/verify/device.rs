//! Checks what a receipt says of its device.

use std::collections::HashSet;

use super::{Code, Findings, said, sum};
use crate::v1::{DeviceTimes, Receipt, Sample, Test};

/// How much faster a device's clock may run than the host's, and so how much longer its times may be. Real ones differ by
/// some parts per million.
const CLOCKS_APART: f64 = 0.01;

/// Checks what must agree of the receipt as a whole.
pub(super) fn check(receipt: &Receipt, found: &mut Findings) {
    let Some(device) = &receipt.device else { return };
    let run = &receipt.run;
    let mut refuse = |sentence: String| found.refuse_about(Code::Contradiction, "device", sentence);
    if receipt.ceilings.is_some() {
        refuse(format!(
            "the receipt has ceilings of the machine's CPU, but {} ran the kernels",
            said(&device.name)
        ));
    }
    if run.kernels != receipt.backend {
        refuse(format!(
            "backend is {}, but run.kernels is {}",
            said(&receipt.backend),
            said(&run.kernels)
        ));
    }
    if (receipt.backend == "cuda") != (device.api == "cuda") {
        refuse(format!(
            "backend is {}, but device.api is {}",
            said(&receipt.backend),
            said(&device.api)
        ));
    }
    if run.threads != 1 {
        refuse(format!("run.threads is {}, but one thread issues a device's work", run.threads));
    }
    // Not all of a file is copied to every device.
    if let Some(bytes) = device.memory_bytes.filter(|&bytes| bytes < receipt.model.bytes / 2) {
        refuse(format!(
            "device.memory_bytes is {bytes}, but the weights of a file of {} bytes were in it",
            receipt.model.bytes
        ));
    }
    found.not_checked(
        "the times by the device's clock against each other",
        "how finely a device counts differs too much; that they add up is checked",
    );
}

/// Checks what a test says of the device's times.
pub(super) fn test(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let mut known = HashSet::new();
    for brick in &test.device_bricks {
        if !known.insert(&brick.name) {
            let sentence = format!(
                "test {} has the brick {} of the device twice",
                said(&test.name),
                said(&brick.name)
            );
            found.refuse_about(Code::Contradiction, "twice", sentence);
        }
    }
    for (which, sample) in test.samples.iter().enumerate() {
        let Some(times) = &sample.device else { continue };
        let place = format!("sample {which} of test {}", said(&test.name));
        if !receipt.run.profiled {
            found.refuse(
                Code::SamplesMissing,
                format!("{place} has times of the device, but the profiler was off"),
            );
        }
        sums(receipt, test, sample, times, &place, found);
    }
}

fn sums(
    receipt: &Receipt,
    test: &Test,
    sample: &Sample,
    times: &DeviceTimes,
    place: &str,
    found: &mut Findings,
) {
    let DeviceTimes { passes, span_ns, passes_in_bricks, brick_ns, gaps_ns } = times;
    let ran = sample.pass_ns.len() as u64;
    if *passes > ran || passes_in_bricks > passes {
        found.refuse(
            Code::TokenCount,
            format!(
                "the device timed {passes} passes of {place}, {passes_in_bricks} of them in bricks, but it had {ran}"
            ),
        );
    }
    if brick_ns.len() != test.device_bricks.len() {
        return found.refuse(
            Code::SamplesMissing,
            format!(
                "{place} has times of {} bricks of the device, but the test has {}",
                brick_ns.len(),
                test.device_bricks.len()
            ),
        );
    }
    let parts = sum(brick_ns) + u128::from(*gaps_ns);
    let span = u128::from(*span_ns);
    let is_whole = passes_in_bricks == passes;
    if parts > span || is_whole && parts != span || *passes_in_bricks == 0 && parts > 0 {
        found.refuse(
            Code::SumMismatch,
            format!(
                "the device's bricks and gaps in {place} sum to {parts} ns, but its passes took {span_ns} ns"
            ),
        );
    }
    // The host issues a pass before it begins on the device, and waits until it has ended there.
    let step = receipt.device.as_ref().and_then(|device| device.resolution_ns).unwrap_or(0.0);
    let most = (1.0 + CLOCKS_APART) * sample.wall_ns as f64 + step * *passes as f64;
    if *span_ns as f64 > most {
        found.refuse(
            Code::SumMismatch,
            format!(
                "the passes of {place} took {span_ns} ns on the device, but {} ns by the host's clock, which \
                 includes that",
                sample.wall_ns
            ),
        );
    }
}
