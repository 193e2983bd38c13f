//! Checks samples over time: in order, without gaps, in nanoseconds.

use super::machine::coarsest;
use super::{Code, Findings, duration, measured, said, span};
use crate::v1::{Receipt, Sample, Test};

/// The time for which a busy machine may keep a process waiting between two samples: twice a period of the
/// control groups' CPU bandwidth (100 ms by default, *CFS Bandwidth Control* of the kernel's docs).
const HICCUP_NS: u64 = 200_000_000;

/// The most time between two passes with any model, for choosing a token and the like. With large models it
/// is a thousandth of the pass.
const BETWEEN_PASSES_NS: f64 = 2e6;

/// If others used more than this share of the CPU time, a process had to wait for its turn again and again.
pub(super) const NO_CPU_IS_FREE: f64 = 0.5;

/// Checks a test whose samples are each valid by themselves.
pub(super) fn test(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let is_in_order = order(test, found);
    if is_in_order {
        holes(test, found);
        between_passes(receipt, test, found);
    }
    units(receipt, test, found);
}

fn order(test: &Test, found: &mut Findings) -> bool {
    let mut is_in_order = true;
    for (which, pair) in test.samples.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        if after.start_ns < before.end_ns {
            is_in_order = false;
            found.refuse(
                Code::ClockBackwards,
                format!(
                    "sample {} of test {} begins at {} ns, before sample {which} has ended, at {} ns: \
                     one clock doesn't run backwards",
                    which + 1,
                    said(&test.name),
                    after.start_ns,
                    before.end_ns
                ),
            );
        }
    }
    is_in_order
}

/// Repetitions follow each other directly, except for filling the KV cache to the test's depth. A gap with
/// room for a whole repetition may hide a dropped one.
fn holes(test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    let Some(shortest) = measured(test).map(span).min() else { return };
    let holes =
        || test.samples.windows(2).map(|pair| pair[1].start_ns.saturating_sub(pair[0].end_ns));
    // A dropped repetition leaves its own time, and that of one more filling.
    let filling = if test.n_depth > 0 { holes().min().unwrap_or(0) } else { 0 };
    let room = filling.saturating_mul(2).saturating_add(shortest);
    // Nine tenths, since the dropped one may have been a little faster.
    let most = (0.9 * room as f64) as u64;
    // A gap no longer than a pause looks like one.
    if shortest < HICCUP_NS || most.saturating_sub(filling) < HICCUP_NS {
        return found.not_checked(
            format_args!("that no sample of {name} was dropped"),
            format_args!(
                "a repetition takes {}, and a busy machine may keep a process waiting for {}",
                duration(shortest),
                duration(HICCUP_NS)
            ),
        );
    }
    for (which, hole) in holes().enumerate() {
        if hole >= most {
            found.refuse(
                Code::TimelineHole,
                format!(
                    "between samples {which} and {} of test {name} are {}, in which a repetition has \
                     room ({}): one was dropped, or the two are not of one run",
                    which + 1,
                    duration(hole),
                    duration(room)
                ),
            );
        }
    }
}

/// Passes fill their sample except for choosing tokens; otherwise they were made shorter.
fn between_passes(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let passes = |sample: &Sample| sample.pass_ns.len().max(1) as f64;
    // How much more time lies between passes than allowed; the median, since a busy machine may keep
    // the process waiting there, too.
    let mut samples: Vec<(f64, f64, f64)> = measured(test)
        .map(|sample| {
            let outside = span(sample).saturating_sub(sample.wall_ns) as f64;
            // One or two samples have no meaningful median.
            let paused = if measured(test).take(3).count() < 3 { HICCUP_NS as f64 } else { 0.0 };
            let (pass, between) =
                (sample.wall_ns as f64 / passes(sample), (outside - paused) / passes(sample));
            (between / pass.max(BETWEEN_PASSES_NS), between, pass)
        })
        .collect();
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The lower one of an even number.
    let middle = samples.len().saturating_sub(1) / 2;
    if let Some((_, between, pass)) = samples.get(middle).filter(|(part, _, _)| *part > 1.0) {
        // Short passes fit into one slice of CPU time, and the wait for the next one lies between them, each time.
        if let Some(others) = receipt.load.others_share.filter(|share| *share > NO_CPU_IS_FREE) {
            return found.not_checked(
                format_args!("that passes of test {} were not made shorter", said(&test.name)),
                format_args!(
                    "others used {:.0} % of the CPU time, so the process waited between passes, too",
                    100.0 * others
                ),
            );
        }
        found.refuse(
            Code::SumMismatch,
            format!(
                "a pass of test {} takes {}, but {} lie outside of it in at least half of the samples: \
                 choosing a token doesn't take that long, so passes were made shorter",
                said(&test.name),
                duration(*pass as u64),
                duration(*between as u64)
            ),
        );
    }
}

/// Checks the samples of all tests together: one run does one thing at a time.
pub(super) fn across(receipt: &Receipt, found: &mut Findings) {
    let all = receipt.tests.iter().flat_map(|test| test.samples.iter().map(move |s| (test, s)));
    let mut all: Vec<(&Test, &Sample)> = all.collect();
    all.sort_by_key(|(_, sample)| (sample.start_ns, sample.end_ns));
    for pair in all.windows(2) {
        let [(test_a, a), (test_b, b)] = pair else { continue };
        // Within one test this was reported already.
        if b.start_ns < a.end_ns && !std::ptr::eq(*test_a, *test_b) {
            found.refuse(
                Code::ClockBackwards,
                format!(
                    "sample {} of test {} begins before sample {} of test {} has ended: one clock \
                     can't have timed both",
                    b.index,
                    said(&test_b.name),
                    a.index,
                    said(&test_a.name)
                ),
            );
        }
    }
}

/// Compares durations with each other, and with the clock's resolution.
fn units(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    // With a small model, choosing a token takes a part of the pass's time, never a hundred times that.
    // By the smallest ratio: in another unit all are as large, and one sample alone may have waited for a CPU.
    let ratios = measured(test).map(|sample| span(sample) as f64 / sample.wall_ns.max(1) as f64);
    let ratio = ratios.min_by(f64::total_cmp).filter(|ratio| *ratio > 100.0);
    // Short passes are soon done; then the process waits for its turn, in each sample.
    let is_busy = receipt.load.others_share.is_some_and(|share| share > NO_CPU_IS_FREE);
    if ratio.is_some() && is_busy {
        found.not_checked(
            format_args!("that the times of test {name} are in one unit"),
            "others used more than half of the CPU time, so the process waited far longer than it ran",
        );
    } else if let Some(ratio) = ratio {
        found.refuse(
            Code::Units,
            format!(
                "the samples of test {name} last at least {ratio:.0} times as long as their passes: the two \
                 aren't in the same unit"
            ),
        );
    }
    // A counter is finer than its readings are apart.
    let clock = &receipt.clock;
    let Some(resolution) = coarsest(&clock.source).or(clock.resolution_ns) else {
        found.not_checked("whether durations are as fine as the clock", "its resolution is absent");
        return;
    };
    for column in ["pass_ns", "token_ns", "brick_ns"] {
        let values = measured(test).flat_map(|sample| match column {
            "pass_ns" => &sample.pass_ns,
            "token_ns" => &sample.token_ns,
            _ => &sample.brick_ns,
        });
        let values = values.filter(|&&ns| ns > 0);
        let (count, common) = values.fold((0_u64, 0), |(n, all), &ns| (n + 1, gcd(all, ns)));
        // Sixteen numbers share a divisor of 10 by chance once in 10^16 times.
        if count >= 16 && common >= 10 && common as f64 > 2.0 * resolution {
            found.refuse(
                Code::Units,
                format!(
                    "every {column} of test {name} is a multiple of {common} ns, but the clock tells \
                     {resolution:.1} ns apart: they were taken in another unit, or rounded"
                ),
            );
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
