//! What a receipt's own figures say against it: a sentence for each circumstance that may have distorted them.
//!
//! `brickscope benchmark` writes these sentences into `load.doubts`, and [`verify`](super::verify()) derives them anew, so
//! that nobody can leave one out.

use super::v1::{NotFinite, Receipt, Sample, Test};

/// If others used more than this share of the CPU time, they may have distorted the figures.
const MUCH: f64 = 0.05;

/// The limit for the hypervisor's share is lower, since it stops all threads at once.
const MUCH_STEAL: f64 = 0.01;

/// The highest frequency may exceed the lowest by this share.
const FREQUENCY_SPREAD: f64 = 0.05;

/// The limit for the standard deviation, as a share of the mean, as in pyperf.
const UNSTABLE: f64 = 0.1;

/// The most that NTP slews a clock; beyond it one of the two clocks is wrong.
const DRIFT_PPM: f64 = 500.0;

/// The doubts that follow from the other fields of a receipt, one sentence each; none for a clean run.
///
/// What a writer knows besides, such as that a control group stopped its process, it adds to `load.doubts` itself.
#[must_use]
pub fn derived_doubts(receipt: &Receipt) -> Vec<String> {
    let Receipt { load, machine, run, clock, .. } = receipt;
    let mut doubts = Vec::new();
    let mut doubt = |sentence: String| doubts.push(sentence);
    if !receipt.deterministic {
        doubt("Repetitions of one test chose different tokens.".to_owned());
    }
    if let Some(share) = load.others_share.filter(|&share| share > MUCH) {
        doubt(format!("Others used {:.0} % of the machine's CPU time.", 100.0 * share));
    }
    if let Some(share) = load.steal_share.filter(|&share| share > MUCH_STEAL) {
        doubt(format!("The hypervisor kept {:.1} % of the CPU time.", 100.0 * share));
    }
    if let Some(cpus) = machine.logical_cpus.filter(|&cpus| run.threads > cpus) {
        doubt(format!("{} threads shared {cpus} CPUs.", run.threads));
    }
    if let Some(governor) = machine.governor.as_deref().filter(|name| *name != "performance") {
        doubt(format!("The governor of the CPU's frequency is `{governor}`."));
    }
    if let Some(ppm) = clock.drift_ppm.filter(|ppm| ppm.abs() > DRIFT_PPM) {
        doubt(format!("The clock was {ppm:.0} ppm off the system clock."));
    }
    for test in &receipt.tests {
        of_test(test, &mut doubt);
    }
    doubts
}

fn of_test(test: &Test, doubt: &mut dyn FnMut(String)) {
    let Test { name, samples, aggregates, warm_up, not_finite, .. } = test;
    if let Some(NotFinite { passes, of, origin }) = not_finite {
        let plural = if *of == 1 { "pass" } else { "passes" };
        doubt(format!("{name}: not a number: the logits of {passes} of {of} {plural}; {origin}."));
    }
    if !warm_up.steady {
        let n = samples.iter().filter(|sample| sample.is_warm_up).count();
        doubt(format!(
            "{name}: the last {} of {n} warm-up repetitions did not agree within {:.0} %.",
            n.min(warm_up.window as usize),
            100.0 * warm_up.within
        ));
    }
    let deviation = aggregates.stddev_ts.zip(aggregates.avg_ts).map(|(sd, mean)| sd / mean);
    if let Some(part) = deviation.filter(|&part| part > UNSTABLE) {
        doubt(format!("{name}: the standard deviation is {:.0} % of the mean.", 100.0 * part));
    }
    if aggregates.disturbed > 0 {
        let (n, of) = (aggregates.disturbed, aggregates.samples);
        doubt(format!("{name}: other work took cores from {n} of {of} repetitions."));
    }
    let measured = samples.iter().filter(|sample: &&Sample| !sample.is_warm_up);
    let frequencies = measured.filter_map(|sample| sample.cpu_khz);
    if let (Some(least), Some(most)) = (frequencies.clone().min(), frequencies.max())
        && most as f64 > (1.0 + FREQUENCY_SPREAD) * least as f64
    {
        let ghz = |khz: u64| khz as f64 / 1e6;
        doubt(format!(
            "{name}: the CPU's frequency was between {:.2} and {:.2} GHz.",
            ghz(least),
            ghz(most)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Aggregates, Load, Machine, WarmUp};

    fn test(walls: [u64; 3], khz: [u64; 3]) -> Test {
        let samples: Vec<Sample> = walls
            .into_iter()
            .zip(khz)
            .map(|(wall_ns, khz)| Sample {
                wall_ns,
                tokens: 100,
                cpu_khz: Some(khz),
                ..Sample::default()
            })
            .collect();
        let warm_up = WarmUp { window: 3, within: 0.05, steady: true };
        let aggregates = Aggregates::of(&samples);
        Test { name: "tg100".to_owned(), samples, aggregates, warm_up, ..Test::default() }
    }

    fn of(load: Load, test: Test) -> Receipt {
        let text = include_str!("../../tests/data/receipt-v1.json");
        let mut receipt = Receipt::from_json(text, "fixture".as_ref()).expect("the fixture");
        receipt.machine = Machine { logical_cpus: Some(2), ..Machine::default() };
        (receipt.run.threads, receipt.clock.drift_ppm) = (2, Some(-3.0));
        (receipt.load, receipt.tests) = (load, vec![test]);
        receipt
    }

    #[test]
    fn nothing_speaks_against_a_quiet_run() {
        let load = Load {
            before: Some(0.7),
            others_share: Some(0.05),
            steal_share: Some(0.01),
            ..Load::default()
        };
        let quiet = test([100, 101, 99], [2_000_000, 2_090_000, 2_000_000]);
        assert_eq!(derived_doubts(&of(load, quiet)), [""; 0]);
        let empty = Test { samples: vec![], ..test([1; 3], [1; 3]) };
        assert_eq!(derived_doubts(&of(Load::default(), empty)), [""; 0]);
    }

    #[test]
    fn each_thing_that_speaks_against_a_run_is_a_sentence() {
        let load = Load { others_share: Some(0.487), steal_share: Some(0.012), ..Load::default() };
        let mut noisy = test([100, 130, 99], [2_000_000, 2_200_000, 2_000_000]);
        noisy.warm_up.steady = false;
        noisy.samples[0].disturbed = Some(true);
        noisy.aggregates = Aggregates::of(&noisy.samples);
        noisy.samples.insert(0, Sample { is_warm_up: true, cpu_khz: Some(1), ..Sample::default() });
        let origin = "the first bad weights are NaN in output.weight (1 of 64 values)".to_owned();
        noisy.not_finite = Some(NotFinite { passes: 1, of: 400, origin });
        let mut receipt = of(load, noisy);
        receipt.machine.governor = Some("powersave".to_owned());
        (receipt.run.threads, receipt.clock.drift_ppm) = (3, Some(-700.0));
        receipt.deterministic = false;
        assert_eq!(
            derived_doubts(&receipt),
            [
                "Repetitions of one test chose different tokens.",
                "Others used 49 % of the machine's CPU time.",
                "The hypervisor kept 1.2 % of the CPU time.",
                "3 threads shared 2 CPUs.",
                "The governor of the CPU's frequency is `powersave`.",
                "The clock was -700 ppm off the system clock.",
                "tg100: not a number: the logits of 1 of 400 passes; the first bad weights are NaN in output.weight (1 of \
                 64 values).",
                "tg100: the last 1 of 1 warm-up repetitions did not agree within 5 %.",
                "tg100: the standard deviation is 15 % of the mean.",
                "tg100: other work took cores from 1 of 3 repetitions.",
                "tg100: the CPU's frequency was between 2.00 and 2.20 GHz.",
            ]
        );
    }
}
