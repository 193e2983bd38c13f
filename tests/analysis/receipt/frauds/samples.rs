//! Frauds in samples: some left out, twice, in another unit, or of something else.

use brickscope_analysis::receipt::v1::Sample;
use brickscope_analysis::receipt::{Code, Receipt};

use super::{
    assert_accepted, assert_only, assert_refused, decode, forged, forged_from, renumber,
    shrunk_inside,
};
use crate::receipt::honest::{Plan, receipt};

/// Makes a plan of five repetitions one of `count`, in all tests.
fn repetitions(receipt: &mut Receipt, count: u32) {
    receipt.run.repetitions = count;
    let command = receipt.run.command.iter_mut();
    command.filter(|word| word.starts_with("-r")).for_each(|word| *word = format!("-r{count}"));
    let least = |test: &brickscope_analysis::receipt::v1::Test| {
        test.samples.iter().filter(|sample| !sample.is_warm_up).count() as u32
    };
    for test in &mut receipt.tests {
        while least(test) > count {
            test.samples.pop();
        }
        for kernel in &mut test.kernels {
            kernel.launches = kernel.launches / 5 * u64::from(count);
            kernel.flops = kernel.flops.map(|all| all / 5 * u64::from(count));
            kernel.bytes = kernel.bytes.map(|all| all / 5 * u64::from(count));
        }
    }
    renumber(receipt);
}

#[test]
fn slow_samples_dropped() {
    let found = forged(|receipt| {
        let samples = decode(receipt);
        let slowest = (4..7).max_by_key(|&i| samples[i].wall_ns).expect("five were measured");
        samples.remove(slowest);
        repetitions(receipt, 4);
    });
    assert_only(&found, Code::TimelineHole, "in which a repetition has room");
    // Without the trouble of a new plan.
    let found = forged(|receipt| {
        decode(receipt).remove(5);
        renumber(receipt);
    });
    assert_refused(&found, Code::RepetitionsMismatch, "has 4 measured samples, but 5 repetitions");
}

#[test]
fn slow_samples_dropped_at_depth() {
    let plan = Plan { depths: vec![512], repetitions: 5, ..Plan::default() };
    let found = forged_from(&plan, |receipt| {
        decode(receipt).remove(5);
        repetitions(receipt, 4);
    });
    assert_only(&found, Code::TimelineHole, "`tg16 @ d512`");
}

#[test]
fn samples_duplicated() {
    let found = forged(|receipt| {
        // The fastest instead of the slowest, moved to its place in time.
        let samples = decode(receipt);
        let slow = (3..8).max_by_key(|&i| samples[i].wall_ns).expect("five");
        let fast = (3..8).min_by_key(|&i| samples[i].wall_ns).expect("five");
        let mut copy = samples[fast].clone();
        let length = copy.end_ns - copy.start_ns;
        copy.start_ns = samples[slow].start_ns;
        copy.end_ns = copy.start_ns + length;
        copy.index = samples[slow].index;
        samples[slow] = copy;
    });
    assert_only(
        &found,
        Code::DuplicateSample,
        "are the same to the nanosecond: one is there twice",
    );
    let found = forged(|receipt| {
        let samples = decode(receipt);
        samples[5] = samples[4].clone();
        renumber(receipt);
    });
    assert_refused(&found, Code::DuplicateSample, "both begin at ");
}

#[test]
fn nanoseconds_that_are_microseconds() {
    let to_micros = |sample: &mut Sample| {
        for ns in sample.pass_ns.iter_mut().chain(&mut sample.token_ns) {
            *ns /= 1000;
        }
        for ns in &mut sample.brick_ns {
            *ns /= 1000;
        }
        sample.wall_ns = sample.pass_ns.iter().sum();
        let explained: u64 = sample.brick_ns.iter().sum();
        sample.unattributed_ns = Some(sample.wall_ns.saturating_sub(explained));
    };
    let found = forged(|receipt| decode(receipt).iter_mut().for_each(to_micros));
    assert_refused(
        &found,
        Code::Units,
        "times as long as their passes: the two aren't in the same unit",
    );
    // The readings of the clock with them: then it is what the machine can do that tells.
    let found = forged(|receipt| {
        for test in &mut receipt.tests {
            for sample in &mut test.samples {
                to_micros(sample);
                sample.start_ns /= 1000;
                sample.end_ns = sample.end_ns.div_ceil(1000);
                sample.first_token_ns = sample.first_token_ns.map(|ns| ns.div_ceil(1000));
            }
        }
    });
    assert_refused(&found, Code::AboveRoof, "that its threads reach at most: that is impossible");
    // The other way round.
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            let pass = |ns: &u64| ns / 1000 * 1000;
            sample.pass_ns = sample.pass_ns.iter().map(pass).collect();
            sample.wall_ns = sample.pass_ns.iter().sum();
            sample.brick_ns = sample.brick_ns.iter().map(pass).collect();
            let explained: u64 = sample.brick_ns.iter().sum();
            sample.unattributed_ns = Some(sample.wall_ns - explained);
        }
    });
    assert_only(&found, Code::Units, "is a multiple of 1000 ns, but the clock tells 2.0 ns apart");
}

#[test]
fn wrong_token_counts() {
    let found = forged(|receipt| receipt.tokens_generated = 32);
    assert_only(&found, Code::TokenCount, "tokens_generated is 32, but the decode test");
    // Twice the tokens in the same time.
    let found = forged(|receipt| {
        receipt.tests[1].n_gen = 32;
        receipt.tests[1].name = "tg32".to_owned();
        receipt.tests[1].output_tokens = 32;
        (receipt.tokens_requested, receipt.tokens_generated) = (32, 32);
        decode(receipt).iter_mut().for_each(|sample| sample.tokens = 32);
    });
    assert_refused(&found, Code::TokenCount, "has the times of 16 passes, but 32 tokens take 32");
    // An answer that ended early.
    let found = forged(|receipt| {
        receipt.tests[1].output_tokens = 9;
        receipt.tokens_generated = 9;
    });
    assert_only(&found, Code::TokenCount, "has chosen 9 tokens in a repetition");
    let found = forged(|receipt| receipt.tests[0].name = "pp512".to_owned());
    assert_only(&found, Code::TokenCount, "test `pp512` is `pp64` by its numbers of tokens");
}

#[test]
fn warm_up_counted() {
    // The machine's clock rate falls as it gets warm.
    let found = forged(|receipt| {
        for test in &mut receipt.tests {
            test.samples.iter_mut().for_each(|sample| sample.is_warm_up = false);
            for kernel in &mut test.kernels {
                kernel.launches = kernel.launches / 5 * 8;
                kernel.flops = kernel.flops.map(|all| all / 5 * 8);
                kernel.bytes = kernel.bytes.map(|all| all / 5 * 8);
            }
        }
        receipt.run.repetitions = 8;
    });
    assert_refused(
        &found,
        Code::WarmUpCounted,
        "has no warm-up: its first repetition, which warms up",
    );
    let found = forged(|receipt| {
        let samples = decode(receipt);
        samples[2].is_warm_up = false;
        samples[4].is_warm_up = true;
    });
    assert_only(
        &found,
        Code::WarmUpCounted,
        "sample 4 of test `tg16` is of the warm-up, but samples",
    );
    let found = forged(|receipt| {
        let samples = decode(receipt);
        samples[1].is_warm_up = false;
        samples[2].is_warm_up = false;
        samples.truncate(6);
        samples.iter_mut().for_each(|sample| sample.disturbed = None);
    });
    assert_refused(&found, Code::WarmUpCounted, "with 2 repetitions that agree, but it has 1");
    let found = forged(|receipt| receipt.tests[1].warm_up.within = 1e-9);
    assert_only(&found, Code::WarmUpCounted, "are said to agree within 0.0 %, but they don't");
}

#[test]
fn two_machines_mixed() {
    // The samples of another machine, whose clock began earlier or later.
    let other = receipt(&Plan { seed: 77, ..Plan::default() });
    for (ahead, code) in [(3_600_000_000_000, Code::TimelineHole), (0, Code::ClockBackwards)] {
        let mut theirs = other.tests[1].samples.clone();
        let origin = theirs[0].start_ns;
        for sample in &mut theirs {
            sample.start_ns = sample.start_ns - origin + ahead;
            sample.end_ns = sample.end_ns - origin + ahead;
        }
        let found = forged(|receipt| receipt.tests[1].samples[5..].clone_from_slice(&theirs[5..]));
        assert_refused(&found, code, "one");
        // All of a test.
        if code == Code::ClockBackwards {
            let found = forged(|receipt| receipt.tests[1].samples = theirs);
            assert_only(&found, code, "one clock can't have timed both");
        }
    }
    // The name of another machine over the same figures.
    let found = forged(|receipt| receipt.machine.arch = "aarch64".to_owned());
    assert_refused(
        &found,
        Code::MachinesMixed,
        "environment says `linux-x86_64`, but the machine is",
    );
    let found = forged(|receipt| {
        receipt.machine.arch = "aarch64".to_owned();
        receipt.environment.insert("OS".to_owned(), "linux-aarch64".to_owned());
    });
    assert_refused(
        &found,
        Code::MachinesMixed,
        "needs `avx2`, an instruction set of x86, but the machine",
    );
    let found = forged(|receipt| receipt.run.threads = 64);
    assert_refused(
        &found,
        Code::MachinesMixed,
        "the run has 64 threads of `avx2`, but its ceilings",
    );
    let found = forged(|receipt| {
        receipt.run.kernels = "scalar".to_owned();
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        ceilings.basis = "measured before the run: 2 threads, scalar".to_owned();
    });
    assert_only(&found, Code::MachinesMixed, "the run's kernels are `scalar`, but");
    // The peak of bytes, four times that of floats, would let a model of floats claim four times the speed.
    let plans = [("q4_k", "avx512", true), ("f16", "avx512", false), ("q4_k", "avx2", false)];
    for (quantization, kernels, is_honest) in plans {
        let plan = Plan { quantization, kernels, ..Plan::default() };
        let found = forged_from(&plan, |receipt| {
            let ceilings = receipt.ceilings.as_mut().expect("it has some");
            ceilings.basis += ", products of bytes";
        });
        match is_honest {
            true => assert_accepted(&found),
            false => {
                assert_only(&found, Code::MachinesMixed, "none of its kernels multiplies bytes")
            }
        }
    }
    let found = forged(|receipt| receipt.binary.version = "0.2.0".to_owned());
    assert_only(&found, Code::MachinesMixed, "environment says brickscope `0.1.0`");
}

#[test]
fn passes_shrunk_inside_of_their_samples() {
    // Ceilings that don't tell, as on a machine whose figures are made up.
    let roomy = |receipt: &mut Receipt| {
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        ceilings.read_bytes_per_second *= 4.0;
        ceilings.flops_per_second *= 4.0;
    };
    let found = forged(|receipt| {
        roomy(receipt);
        decode(receipt).iter_mut().for_each(|sample| shrunk_inside(sample, 3.0));
    });
    assert_only(&found, Code::SumMismatch, "lie outside of it in at least half of the samples");
    let found = forged(|receipt| {
        roomy(receipt);
        receipt.tests[0].samples.iter_mut().for_each(|sample| shrunk_inside(sample, 3.0));
    });
    assert_only(&found, Code::SumMismatch, "a pass of test `pp64` takes ");
    // Of a small model choosing takes as long as the pass, which proves nothing.
    let tiny = Plan { parameters: 1_000_000, n_gen: 4, ..Plan::default() };
    let found = forged_from(&tiny, |receipt| {
        decode(receipt).iter_mut().for_each(|sample| shrunk_inside(sample, 2.0));
    });
    assert_accepted(&found);
    // Where others have the CPUs, the process waits for its turn after each pass that fits into one.
    let found = forged(|receipt| {
        roomy(receipt);
        receipt.load.others_share = Some(0.94);
        decode(receipt).iter_mut().for_each(|sample| shrunk_inside(sample, 3.0));
    });
    assert!(found.refusals.iter().all(|of| of.code != Code::SumMismatch), "{found:?}");
    let line = "that passes of test `tg16` were not made shorter: others used 94 % of the CPU time";
    assert!(found.not_checked.iter().any(|not| not.starts_with(line)), "{:?}", found.not_checked);
}

#[test]
fn a_pause_where_repetitions_are_short_is_no_hole() {
    let tiny = Plan { parameters: 1_000_000, n_gen: 4, ..Plan::default() };
    let paused = |receipt: &mut Receipt| {
        for sample in &mut decode(receipt)[5..] {
            sample.start_ns += 3_000_000_000;
            sample.end_ns += 3_000_000_000;
        }
    };
    let found = forged_from(&tiny, paused);
    assert_accepted(&found);
    let line = "that no sample of `tg4` was dropped: a repetition takes ";
    assert!(found.not_checked.iter().any(|not| not.starts_with(line)), "{:?}", found.not_checked);
    assert_only(&forged(paused), Code::TimelineHole, "`tg16` are 3");
}

/// A process that gets a hundredth of the CPU time waits far longer than it runs, and so does what measures memory.
#[test]
fn beside_programs_that_take_the_cpu_an_honest_receipt_looks_strange_and_is_accepted() {
    let tiny = Plan { parameters: 1_000_000, n_prompt: 0, n_gen: 4, ..Plan::default() };
    for (others, is_accepted) in [(0.9, true), (0.1, false)] {
        let of = |forge: fn(&mut Receipt)| {
            forged_from(&tiny, |receipt| {
                receipt.load.others_share = Some(others);
                forge(receipt);
            })
        };
        let waits = of(|receipt| {
            let mut waited = 0;
            for sample in &mut receipt.tests[0].samples {
                sample.start_ns += waited;
                waited += 150 * sample.wall_ns;
                sample.end_ns += waited;
            }
        });
        let memory = of(|receipt| {
            let ceilings = receipt.ceilings.as_mut().expect("it has some");
            let rate = ceilings.read_bytes_per_second;
            ceilings.memory_spread = Some([rate / 40.0, rate / 20.0]);
        });
        for (found, code) in [(&waits, Code::Units), (&memory, Code::Field)] {
            assert_eq!(found.is_accepted(), is_accepted, "{:#?}", found.refusals);
            assert!(is_accepted || found.refusals.iter().any(|refusal| refusal.code == code));
        }
    }
}

#[test]
fn fractions_of_a_total_as_brick_times() {
    const SHARES: [f64; 9] = [0.000_2, 0.008, 0.151, 0.004, 0.017, 0.004, 0.422, 0.256, 0.131];
    let split = |sample: &mut Sample, total: f64, bricks: &[usize]| {
        let all: f64 = bricks.iter().map(|&brick| SHARES[brick]).sum();
        for &brick in bricks {
            sample.brick_ns[brick] = (total * SHARES[brick] / all) as u64;
        }
        sample.unattributed_ns = Some(sample.wall_ns - sample.brick_ns.iter().sum::<u64>());
    };
    let all: Vec<usize> = (0..9).collect();
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            split(sample, 0.995 * sample.wall_ns as f64, &all);
        }
    });
    assert_only(&found, Code::DerivedTimes, "it is a share of a total, not a measured time");
    // Only the projections, out of a time that was measured for the three of them.
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            let total = sample.brick_ns[6] + sample.brick_ns[7] + sample.brick_ns[8];
            split(sample, total as f64, &[6, 7, 8]);
        }
    });
    assert_only(&found, Code::DerivedTimes, "one total was split between them");
    // A small model: each brick is too short to tell by itself.
    let tiny = Plan { parameters: 1_000_000, repetitions: 4, n_gen: 4, ..Plan::default() };
    let found = forged_from(&tiny, |receipt| {
        for sample in decode(receipt) {
            split(sample, 0.98 * sample.wall_ns as f64, &all);
        }
    });
    assert_refused(&found, Code::DerivedTimes, "same share of the total in every measured sample");
    // The same times again and again.
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            let change = sample.brick_ns[6].abs_diff(190_000_000);
            let less = sample.brick_ns[6] < 190_000_000;
            sample.brick_ns[6] = 190_000_000;
            let rest = &mut sample.brick_ns[7];
            *rest = if less { *rest - change } else { *rest + change };
        }
    });
    assert_only(
        &found,
        Code::NoVariance,
        "`GateProjection` took 190000000 ns in every measured sample",
    );
    // A total, split evenly among passes.
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            let even = sample.wall_ns / 16;
            sample.token_ns = vec![even + 5_000; 16];
            sample.pass_ns = vec![even; 16];
            let less = sample.wall_ns - 16 * even;
            sample.wall_ns = 16 * even;
            sample.unattributed_ns = sample.unattributed_ns.map(|ns| ns - less);
        }
    });
    assert_refused(&found, Code::DerivedTimes, "they are a total that was split");
}
