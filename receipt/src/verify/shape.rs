//! Checks that the parts of a receipt are there and fit each other: texts, counts, sums.

use std::collections::HashSet;

use super::{Code, Findings, Options, measured, said, span, sum};
use crate::v1::{Receipt, Sample, Test};

/// The most tests; no plan has more.
pub(super) const MOST_TESTS: usize = 1000;

/// Checks everything that isn't about a single test.
pub(super) fn check(receipt: &Receipt, options: &Options, found: &mut Findings) {
    if receipt.compute_path != "real" {
        found.refuse(
            Code::NotReal,
            format!(
                "compute_path is {}, but only `real` says that the kernels ran",
                said(&receipt.compute_path)
            ),
        );
    }
    let (known, named): (&[&str], _) = match receipt.device {
        None => (&["cpu", "cuda"], "`cpu` or `cuda`"),
        Some(_) => (&["cuda", "wgpu"], "a device, by `cuda` or `wgpu`"),
    };
    if !known.contains(&&*receipt.backend) {
        found.refuse(
            Code::Field,
            format!("backend is {}, but kernels run on {named}", said(&receipt.backend)),
        );
    }
    for name in ["BRICKSCOPE_VERSION", "OS", "RUST_VERSION"] {
        if receipt.environment.get(name).is_none_or(String::is_empty) {
            found.refuse(
                Code::Field,
                format!("environment has no {name}, which every writer of receipts knows"),
            );
        }
    }
    if receipt.run.sampling != "greedy" {
        found.refuse(
            Code::Field,
            format!(
                "run.sampling is {}, but a benchmark's tokens are chosen by `greedy`, so that another \
                 run chooses the same",
                said(&receipt.run.sampling)
            ),
        );
    }
    let run = &receipt.run;
    if run.process > run.processes {
        found.refuse(
            Code::Field,
            format!("the run is process {} of {}, which counts from 1", run.process, run.processes),
        );
    }
    model(receipt, options, found);
    tests(receipt, found);
}

fn model(receipt: &Receipt, options: &Options, found: &mut Findings) {
    let model = &receipt.model;
    // The smallest format in use, TQ1_0, has 1.69 bits per weight.
    if u128::from(model.bytes) * 8 < u128::from(model.parameters) {
        found.refuse(
            Code::Field,
            format!(
                "the model has {} weights in {} bytes, less than a bit for each",
                model.parameters, model.bytes
            ),
        );
    }
    let Some((sha256, bytes)) = &options.model else {
        found.not_checked("the model's hash and size", "no model given (--model FILE)");
        return;
    };
    if model.sha256 != *sha256 {
        found.refuse(
            Code::ModelMismatch,
            format!(
                "the model's file has the SHA-256 {sha256}, but the receipt is of {}: another model \
                 ran",
                said(&model.sha256)
            ),
        );
    } else if model.bytes != *bytes {
        found.refuse(
            Code::ModelMismatch,
            format!(
                "the model's file has {bytes} bytes, but the receipt says {}: it can't be the file \
                 of that hash",
                model.bytes
            ),
        );
    }
}

fn tests(receipt: &Receipt, found: &mut Findings) {
    let tests = &receipt.tests;
    if tests.is_empty() || tests.len() > MOST_TESTS {
        found.refuse(
            Code::SamplesMissing,
            format!("there are {} tests, but a receipt has 1 to {MOST_TESTS}", tests.len()),
        );
    }
    let mut names = HashSet::new();
    for test in tests {
        if !names.insert(&test.name) {
            found.refuse(
                Code::Field,
                format!(
                    "there are two tests {}, so it is unclear which is meant",
                    said(&test.name)
                ),
            );
        }
    }
    // The test at the least depth stands for the receipt.
    let decode = tests.iter().filter(|test| test.n_gen > 0).min_by_key(|test| test.n_depth);
    let (wanted, made) = decode.map_or((0, 0), |test| (test.n_gen, test.output_tokens));
    for (name, stated, tests) in [
        ("tokens_requested", receipt.tokens_requested, wanted),
        ("tokens_generated", receipt.tokens_generated, made),
    ] {
        if stated != tests {
            found.refuse(
                Code::TokenCount,
                format!("{name} is {stated}, but the decode test at the least depth has {tests}"),
            );
        }
    }
}

/// Checks a test's counts and sums.
pub(super) fn test(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    if (test.n_prompt == 0) == (test.n_gen == 0) {
        found.refuse(
            Code::TokenCount,
            format!(
                "test {name} has {} tokens of prompt and generates {}: a test does one or the other",
                test.n_prompt, test.n_gen
            ),
        );
    } else {
        let expected = expected_name(test);
        if test.name != expected {
            found.refuse(
                Code::TokenCount,
                format!("test {name} is `{expected}` by its numbers of tokens"),
            );
        }
    }
    let chosen = if test.n_gen > 0 { test.n_gen } else { 1 };
    if test.output_tokens != chosen {
        found.refuse(
            Code::TokenCount,
            format!(
                "test {name} has chosen {} tokens in a repetition, but its kind chooses {chosen}",
                test.output_tokens
            ),
        );
    }
    if test.bricks.is_empty() == receipt.run.profiled {
        found.refuse(
            Code::SamplesMissing,
            match receipt.run.profiled {
                true => format!("the profiler was on, but test {name} has no bricks"),
                false => format!("test {name} has bricks, but the profiler was off"),
            },
        );
    }
    for (which, sample) in test.samples.iter().enumerate() {
        self::sample(receipt, test, which, sample, found);
    }
    repetitions(receipt, test, found);
}

fn expected_name(test: &Test) -> String {
    let depth = match test.n_depth {
        0 => String::new(),
        depth => format!(" @ d{depth}"),
    };
    match test.n_gen {
        0 => format!("pp{}{depth}", test.n_prompt),
        n_gen => format!("tg{n_gen}{depth}"),
    }
}

fn sample(receipt: &Receipt, test: &Test, which: usize, sample: &Sample, found: &mut Findings) {
    let place = format!("sample {which} of test {}", said(&test.name));
    if usize::try_from(sample.index) != Ok(which) {
        found.refuse(
            Code::RepetitionsMismatch,
            format!("{place} says that it is number {}: one is missing or was moved", sample.index),
        );
    }
    let tokens = if test.n_gen > 0 { test.n_gen } else { test.n_prompt };
    if sample.tokens != tokens {
        found.refuse(
            Code::TokenCount,
            format!("{place} processed {} tokens, but the test has {tokens}", sample.tokens),
        );
    }
    let passes = match test.n_gen {
        0 => test.n_prompt.div_ceil(receipt.run.batch.max(1)),
        n_gen => n_gen,
    };
    if sample.pass_ns.is_empty() {
        found.refuse(Code::SamplesMissing, format!("{place} has no raw times of passes"));
    } else if sample.pass_ns.len() as u64 != passes {
        found.refuse(
            Code::TokenCount,
            format!(
                "{place} has the times of {} passes, but {tokens} tokens take {passes}",
                sample.pass_ns.len()
            ),
        );
    }
    if let Some(pass) = sample.pass_ns.iter().position(|&ns| ns == 0) {
        found.refuse(Code::Units, format!("pass {pass} of {place} took 0 ns, which no pass does"));
    }
    if sample.end_ns <= sample.start_ns {
        found.refuse(
            Code::ClockBackwards,
            format!(
                "{place} begins at {} ns and ends at {} ns: its clock ran backwards",
                sample.start_ns, sample.end_ns
            ),
        );
    } else if sample.wall_ns > span(sample) {
        found.refuse(
            Code::SumMismatch,
            format!(
                "the passes of {place} took {} ns, but from its start to its end are {} ns",
                sample.wall_ns,
                span(sample)
            ),
        );
    }
    if sum(&sample.pass_ns) != u128::from(sample.wall_ns) {
        found.refuse(
            Code::SumMismatch,
            format!(
                "wall_ns of {place} is {}, but its passes sum to {} ns",
                sample.wall_ns,
                sum(&sample.pass_ns)
            ),
        );
    }
    latencies(test, sample, &place, found);
    bricks(test, sample, &place, found);
}

fn latencies(test: &Test, sample: &Sample, place: &str, found: &mut Findings) {
    let intervals = sample.token_ns.len() as u64;
    if test.n_gen == 0 {
        if intervals > 0 {
            found.refuse(
                Code::TokenCount,
                format!("{place} has times of {intervals} tokens, but a prefill test decodes none"),
            );
        }
        match sample.first_token_ns {
            None => found.refuse(
                Code::SamplesMissing,
                format!("{place} doesn't say when its first token was chosen"),
            ),
            Some(ns) if ns < sample.wall_ns || ns > span(sample) => found.refuse(
                Code::SumMismatch,
                format!(
                    "the first token of {place} came after {ns} ns, but its passes took {} of {} ns",
                    sample.wall_ns,
                    span(sample)
                ),
            ),
            Some(_) => {}
        }
        return;
    }
    if sample.first_token_ns.is_some() {
        found.refuse(
            Code::TokenCount,
            format!("{place} has a time to first token, but only a prompt has one"),
        );
    }
    // From each token to the next; the first may be counted from the start of the sample.
    if intervals != test.n_gen && intervals.saturating_add(1) != test.n_gen {
        found.refuse(
            Code::TokenCount,
            format!("{place} has the times of {intervals} tokens, but generates {}", test.n_gen),
        );
    } else if sum(&sample.token_ns) > u128::from(span(sample)) {
        found.refuse(
            Code::SumMismatch,
            format!(
                "the tokens of {place} took {} ns, but from its start to its end are {} ns",
                sum(&sample.token_ns),
                span(sample)
            ),
        );
    } else {
        // Each token's time includes its pass.
        let skipped = sample.pass_ns.len().saturating_sub(sample.token_ns.len());
        let mut pairs = sample.token_ns.iter().zip(sample.pass_ns.iter().skip(skipped));
        if let Some(token) = pairs.position(|(token, pass)| token < pass) {
            found.refuse(
                Code::SumMismatch,
                format!(
                    "token {token} of {place} took less time than its pass, which is part of it"
                ),
            );
        }
    }
}

fn bricks(test: &Test, sample: &Sample, place: &str, found: &mut Findings) {
    // Repetitions of the warm-up may run without the profiler.
    if sample.is_warm_up && sample.brick_ns.is_empty() && sample.unattributed_ns.is_none() {
        return;
    }
    if sample.brick_ns.len() != test.bricks.len() {
        return found.refuse(
            Code::SamplesMissing,
            format!(
                "{place} has times of {} bricks, but the test has {}",
                sample.brick_ns.len(),
                test.bricks.len()
            ),
        );
    }
    match sample.unattributed_ns {
        None if test.bricks.is_empty() => {}
        None => found.refuse(
            Code::SamplesMissing,
            format!("{place} has times of bricks but no unattributed time"),
        ),
        Some(ns) => {
            let attributed = sum(&sample.brick_ns);
            if attributed + u128::from(ns) != u128::from(sample.wall_ns) {
                found.refuse(
                    Code::SumMismatch,
                    format!(
                        "the bricks of {place} took {attributed} ns, and {ns} ns are unattributed, \
                         but its wall is {} ns",
                        sample.wall_ns
                    ),
                );
            }
        }
    }
}

fn repetitions(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    let count = measured(test).count();
    if test.samples.is_empty() || count == 0 {
        return found.refuse(
            Code::SamplesMissing,
            format!("test {name} has no measured samples, so its figures come from nowhere"),
        );
    }
    if count as u64 != u64::from(receipt.run.repetitions) {
        found.refuse(
            Code::RepetitionsMismatch,
            format!(
                "test {name} has {count} measured samples, but {} repetitions were run: samples were \
                 dropped or added",
                receipt.run.repetitions
            ),
        );
    }
    let warm_up = test.samples.iter().take_while(|sample| sample.is_warm_up).count();
    if let Some(late) = test.samples.iter().skip(warm_up).position(|sample| sample.is_warm_up) {
        found.refuse(
            Code::WarmUpCounted,
            format!(
                "sample {} of test {name} is of the warm-up, but samples that count come before it",
                warm_up + late
            ),
        );
    }
    if warm_up == 0 {
        found.refuse(
            Code::WarmUpCounted,
            format!("test {name} has no warm-up: its first repetition, which warms up, is counted"),
        );
    }
    agreement(test, &test.samples[..warm_up], found);
}

/// Checks that the warm-up ended as the test says.
fn agreement(test: &Test, warm_up: &[Sample], found: &mut Findings) {
    let rule = &test.warm_up;
    let name = said(&test.name);
    if !rule.steady {
        return;
    }
    if rule.window < 2 {
        return found.refuse(
            Code::WarmUpCounted,
            format!(
                "the warm-up of test {name} is said to end with {} repetitions that agree, but that takes two",
                rule.window
            ),
        );
    }
    let window = usize::try_from(rule.window).unwrap_or(usize::MAX);
    let Some(first) = warm_up.len().checked_sub(window) else {
        return found.refuse(
            Code::WarmUpCounted,
            format!(
                "the warm-up of test {name} is said to end with {} repetitions that agree, but it has \
                 {}: the others are counted",
                rule.window,
                warm_up.len()
            ),
        );
    };
    let mut walls: Vec<u64> = warm_up[first..].iter().map(|sample| sample.wall_ns).collect();
    walls.sort_unstable();
    let (Some(&least), Some(&most)) = (walls.first(), walls.last()) else { return };
    // Of an even number either of the two in the middle may be the median.
    let agree = [(walls.len() - 1) / 2, walls.len() / 2].iter().any(|&middle| {
        let median = walls[middle] as f64;
        let off = (median - least as f64).max(most as f64 - median);
        // Whole nanoseconds are rounded.
        off <= rule.within * median + 1.0
    });
    if !agree {
        found.refuse(
            Code::WarmUpCounted,
            format!(
                "the last {} repetitions of the warm-up of test {name} are said to agree within \
                 {:.1} %, but they don't",
                rule.window,
                100.0 * rule.within
            ),
        );
    }
}
