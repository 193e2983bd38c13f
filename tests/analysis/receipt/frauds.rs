//! Frauds, planted one by one in an honest receipt.

use brickscope_analysis::receipt::v1::{NotFinite, Sample};
use brickscope_analysis::receipt::{
    Code, Options, Receipt, Refusal, Rerun, SecretKey, Verdict, rerun_agrees as rerun_agrees_with,
    sha256_hex, verify,
};

use super::honest::{Plan, receipt, resealed};

fn verdict(receipt: &Receipt) -> Verdict {
    verify(receipt.to_json().as_bytes(), &Options::default())
}

/// An honest receipt after `forge`; the figures that a forger can derive and the seal are its own.
fn forged(forge: impl FnOnce(&mut Receipt)) -> Verdict {
    forged_from(&Plan::default(), forge)
}

/// Of a verifier that knows of no other day.
fn rerun_agrees(receipt: &Receipt, rerun: &Receipt, tolerance: f64) -> Rerun {
    rerun_agrees_with(receipt, rerun, tolerance, &[])
}

fn forged_from(plan: &Plan, forge: impl FnOnce(&mut Receipt)) -> Verdict {
    let mut receipt = receipt(plan);
    assert_accepted(&verdict(&receipt));
    forge(&mut receipt);
    verdict(&resealed(receipt))
}

#[track_caller]
fn assert_accepted(verdict: &Verdict) {
    assert!(verdict.is_accepted(), "{:#?}", verdict.refusals);
}

/// The refusal for `code` says `part`.
#[track_caller]
fn assert_refused(verdict: &Verdict, code: Code, part: &str) {
    let refusal = verdict.refusals.iter().find(|refusal| refusal.code == code);
    let Some(refusal) = refusal else {
        panic!("no {}: {:#?}", code.name(), verdict.refusals);
    };
    let sentence = refusal.to_string();
    assert!(sentence.contains(part), "{sentence}");
}

/// The one refusal is for `code`, and says `part`.
#[track_caller]
fn assert_only(verdict: &Verdict, code: Code, part: &str) {
    assert_refused(verdict, code, part);
    assert_eq!(verdict.refusals.len(), 1, "{:#?}", verdict.refusals);
}

/// The decode test.
fn decode(receipt: &mut Receipt) -> &mut Vec<Sample> {
    &mut receipt.tests[1].samples
}

fn renumber(receipt: &mut Receipt) {
    for test in &mut receipt.tests {
        for (index, sample) in (0..).zip(&mut test.samples) {
            sample.index = index;
        }
    }
}

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
fn an_edited_mean() {
    let mut receipt = receipt(&Plan::default());
    let aggregates = &mut receipt.tests[1].aggregates;
    aggregates.avg_ts = aggregates.avg_ts.map(|rate| rate * 1.05);
    let found = verdict(&receipt.sealed().expect("sealed"));
    assert_only(&found, Code::AggregateNotOfSamples, "avg_ts of test `tg16` is stated as ");
    assert_refused(&found, Code::AggregateNotOfSamples, ", but its samples give ");
}

#[test]
fn a_headline_that_is_no_median() {
    let mut receipt = receipt(&Plan::default());
    receipt.tokens_per_second = receipt.tokens_per_second.map(f64::next_up);
    let found = verdict(&receipt.sealed().expect("sealed"));
    assert_only(&found, Code::AggregateNotOfSamples, "but the median of the decode test");
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
fn another_model() {
    let receipt = receipt(&Plan::default());
    let model = |hash: &[u8], bytes| Options {
        model: Some((sha256_hex(hash), bytes)),
        ..Options::default()
    };
    let json = receipt.to_json();
    let honest = verify(json.as_bytes(), &model(b"the model's file", receipt.model.bytes));
    assert_accepted(&honest);
    assert!(!honest.not_checked.iter().any(|line| line.contains("model")), "{honest:?}");
    let found = verify(json.as_bytes(), &model(b"another file", receipt.model.bytes));
    assert_only(&found, Code::ModelMismatch, "another model ran");
    let found = verify(json.as_bytes(), &model(b"the model's file", 1));
    assert_only(&found, Code::ModelMismatch, "the model's file has 1 bytes");
    let unasked = verify(json.as_bytes(), &Options::default());
    assert!(
        unasked
            .not_checked
            .contains(&"the model's hash and size: no model given (--model FILE)".into())
    );
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

/// All times of a test by a factor, with the readings of the clock.
fn faster(samples: &mut [Sample], factor: f64) {
    let origin = samples[0].start_ns;
    for sample in samples {
        shrunk_inside(sample, factor);
        let scaled = |ns: u64| (ns as f64 / factor) as u64;
        sample.start_ns = origin + scaled(sample.start_ns - origin);
        sample.end_ns = origin + scaled(sample.end_ns - origin);
        sample.first_token_ns = sample.first_token_ns.map(scaled);
    }
}

/// All times of a sample by a factor, but for its start and end.
fn shrunk_inside(sample: &mut Sample, factor: f64) {
    let scaled = |ns: &u64| (*ns as f64 / factor) as u64;
    sample.brick_ns = sample.brick_ns.iter().map(scaled).collect();
    sample.token_ns = sample.token_ns.iter().map(scaled).collect();
    sample.pass_ns = sample.pass_ns.iter().map(|ns| scaled(ns) - 1).collect();
    sample.wall_ns = sample.pass_ns.iter().sum();
    sample.unattributed_ns = Some(sample.wall_ns - sample.brick_ns.iter().sum::<u64>());
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
fn above_the_roof() {
    let found = forged(|receipt| faster(decode(receipt), 5.0));
    assert_only(
        &found,
        Code::AboveRoof,
        "% of the 3.400e10 that memory gives at most: that is impossible",
    );
    let found = forged(|receipt| faster(&mut receipt.tests[0].samples, 5.0));
    assert_only(
        &found,
        Code::AboveRoof,
        "% of the 2.140e11 that its threads reach at most: that is impossible",
    );
    // A roof to fit.
    let found = forged(|receipt| {
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        ceilings.flops_per_second = 37e12;
    });
    assert_only(&found, Code::AboveRoof, "are beyond what 2 threads of any CPU reach");
    // No roof at all.
    let found = forged(|receipt| {
        receipt.ceilings = None;
        receipt.ceilings_absent = Some("it was late".to_owned());
        faster(decode(receipt), 500.0);
    });
    assert_refused(&found, Code::AboveRoof, "so many threads of any CPU reach");
    assert!(found.not_checked.iter().any(|line| line.ends_with("no ceilings: it was late")));
}

/// Without the work a rate is above no roof.
#[test]
fn work_that_is_not_stated() {
    fn nulled(receipt: &mut Receipt) {
        faster(decode(receipt), 5.0);
        (receipt.tests[1].flops, receipt.tests[1].bytes) = (None, None);
    }
    let found = forged(nulled);
    assert_refused(&found, Code::KernelsMismatch, "has null FLOPs, but its kernels state ");
    assert_refused(&found, Code::AboveRoof, "that memory gives at most: that is impossible");
    // One kernel less: the others are still work.
    let found = forged(|receipt| {
        nulled(receipt);
        let norm = receipt.tests[1].kernels.iter_mut().find(|k| k.id == "rope_avx2");
        let norm = norm.expect("there is one");
        (norm.flops, norm.bytes) = (None, None);
    });
    assert_only(&found, Code::AboveRoof, "that memory gives at most: that is impossible");
    let states_none = |receipt: &mut Receipt| {
        receipt.tests[1].kernels.iter_mut().for_each(|k| (k.flops, k.bytes) = (None, None));
    };
    let found = forged(states_none);
    assert_refused(&found, Code::KernelsMismatch, " FLOPs, but its kernels state null for 5");
    // Then the weights tell, as far as they can.
    let found = forged(|receipt| {
        states_none(receipt);
        nulled(receipt);
        faster(decode(receipt), 5.0);
    });
    assert_only(&found, Code::AboveRoof, "that its threads reach at most: that is impossible");
    let found = forged(|receipt| {
        let test = &mut receipt.tests[1];
        test.flops = test.flops.map(|all| all / 4);
        for kernel in &mut test.kernels {
            kernel.flops = kernel.flops.map(|all| all / 4);
        }
    });
    assert_only(&found, Code::KernelsMismatch, "decoding with 1100000000 weights takes ");
}

#[test]
fn more_than_anybody_reads() {
    let found = forged(|receipt| {
        let test = receipt.tests[1].clone();
        receipt.tests.extend(std::iter::repeat_n(test, 1000));
    });
    assert_refused(&found, Code::SamplesMissing, "there are 1002 tests");
    assert!(found.not_checked.contains(&"anything else: there are too many tests".to_owned()));
    let found = forged(|receipt| receipt.load.doubts = vec!["a \u{202e}doubt".to_owned(); 1000]);
    assert_accepted(&found);
    assert_eq!(found.doubts.len(), 101);
    assert_eq!(
        (found.doubts[0].as_str(), found.doubts[100].as_str()),
        ("a \\u{202e}doubt", "and 900 more")
    );
    let found = forged(|receipt| {
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        ceilings.caches = vec![ceilings.caches[0].clone(); 17];
    });
    assert_refused(&found, Code::Field, "the machine has 17 levels of caches");
    let mut receipt = receipt(&Plan::default());
    receipt.sign(&SecretKey::from_bytes(&[7; 32])).expect("it is whole");
    let signatures = &mut receipt.seal.as_mut().expect("sealed").signatures;
    signatures.extend(vec![signatures[0].clone(); 100]);
    assert_only(&verdict(&receipt), Code::SignatureInvalid, "there are 101 signatures");
}

#[test]
fn a_clock_run_backwards() {
    let found = forged(|receipt| {
        let sample = &mut decode(receipt)[5];
        std::mem::swap(&mut sample.start_ns, &mut sample.end_ns);
    });
    assert_refused(&found, Code::ClockBackwards, "sample 5 of test `tg16` begins at ");
    assert_refused(&found, Code::ClockBackwards, ": its clock ran backwards");
    let found = forged(|receipt| {
        let samples = decode(receipt);
        samples.swap(5, 6);
        renumber(receipt);
    });
    assert_only(&found, Code::ClockBackwards, "before sample 5 has ended");
    // The passes take longer than the repetition.
    let found = forged(|receipt| {
        let sample = &mut decode(receipt)[5];
        sample.end_ns = sample.start_ns + sample.wall_ns / 2;
    });
    assert_refused(&found, Code::SumMismatch, "but from its start to its end are ");
}

#[test]
fn raw_data_missing() {
    let mut bare = receipt(&Plan::default());
    bare.tests[1].samples.clear();
    let found = verdict(&bare.sealed().expect("sealed"));
    assert_refused(
        &found,
        Code::SamplesMissing,
        "test `tg16` has no measured samples, so its figures",
    );
    let found = forged(|receipt| {
        for sample in decode(receipt) {
            sample.pass_ns = Vec::new();
        }
    });
    assert_refused(&found, Code::SamplesMissing, "has no raw times of passes");
    let found = forged(|receipt| decode(receipt)[6].brick_ns.clear());
    assert_refused(&found, Code::SamplesMissing, "sample 6 of test `tg16` has times of 0 bricks");
    let found = forged(|receipt| decode(receipt)[6].unattributed_ns = None);
    assert_only(&found, Code::SamplesMissing, "has times of bricks but no unattributed time");
    let found = forged(|receipt| receipt.tests.clear());
    assert_refused(&found, Code::SamplesMissing, "there are 0 tests");
    let found = forged(|receipt| {
        let sample = &mut decode(receipt)[6];
        sample.unattributed_ns = sample.unattributed_ns.map(|ns| ns + 1);
    });
    assert_only(&found, Code::SumMismatch, "the bricks of sample 6 of test `tg16` took ");
}

#[test]
fn another_schema() {
    let json = receipt(&Plan::default()).to_json();
    let found = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}");
        verify(json.replacen(from, to, 1).as_bytes(), &Options::default())
    };
    assert_only(
        &found("\"1.0.0\"", "\"2.0.0\""),
        Code::Version,
        "the receipt is of version `2.0.0`, but this brickscope verifies 1.0.0 and 1.1.0",
    );
    let without = found("\"deterministic\": true,", "");
    assert_only(&without, Code::Schema, "missing field `deterministic`");
    let with = found("\"deterministic\"", "\"score\": 89, \"deterministic\"");
    assert_only(&with, Code::Schema, "unknown field `score`");
    let bell = found("\"deterministic\"", "\"\\u0007\": 1, \"deterministic\"");
    assert_only(&bell, Code::Schema, "unknown field `\\u{7}`");
    let typed = found("\"threads\": 2", "\"threads\": \"two\"");
    assert_only(&typed, Code::Schema, "run.threads: invalid type: string \"two\", expected u32");
    let twice = found("\"OS\"", "\"OS\": \"windows\", \"OS\"");
    assert_only(&twice, Code::Schema, "environment: the field `OS` is there twice");
    assert_only(&found("\"cpu\"", "cpu"), Code::NotJson, "backend: expected value");
    assert_only(
        &verify(b"\xff", &Options::default()),
        Code::NotJson,
        "byte 0 of the file is not UTF-8",
    );
}

#[test]
fn a_file_cut_short() {
    let json = receipt(&Plan::default()).to_json();
    // Without the line break at its end it is still whole.
    assert_accepted(&verify(json.trim_end().as_bytes(), &Options::default()));
    for end in [0, 1, 20, json.len() / 3, json.len() / 2, json.len() - 2] {
        let found = verify(&json.as_bytes()[..end], &Options::default());
        assert_only(&found, Code::Truncated, "the file ends in the middle");
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

#[test]
fn a_gpu_claimed_with_cpu_kernels() {
    let found = forged(|receipt| receipt.backend = "cuda".to_owned());
    assert_refused(
        &found,
        Code::NoGpuKernels,
        "the backend is `cuda`, but no kernel of test `pp64` names a GPU, such as `embed_avx2`",
    );
    let honest = receipt(&Plan { kernels: "cuda", ..Plan::default() });
    assert_accepted(&verdict(&honest));
    let required = Options { require_gpu_kernels: true, ..Options::default() };
    assert_accepted(&verify(honest.to_json().as_bytes(), &required));
    let on_cpu = receipt(&Plan::default()).to_json();
    let found = verify(on_cpu.as_bytes(), &required);
    assert_only(&found, Code::NoGpuKernels, "GPU kernels are required, but no kernel");
    // The other way round.
    let mut receipt = receipt(&Plan { kernels: "cuda", ..Plan::default() });
    receipt.backend = "cpu".to_owned();
    assert_refused(&verdict(&resealed(receipt)), Code::KernelsMismatch, "is a GPU's by its id");
}

#[test]
fn kernels_that_are_none() {
    /// Renames a kernel everywhere.
    fn rename(receipt: &mut Receipt, from: &str, to: &str) {
        let ids = receipt.tests.iter_mut().flat_map(|test| &mut test.kernels).map(|k| &mut k.id);
        for id in ids.chain(&mut receipt.kernels) {
            if id == from {
                *id = to.to_owned();
            }
        }
        receipt.kernels.sort();
    }
    let named = |to: &str| forged(|receipt| rename(receipt, "rope_avx2", to));
    assert_only(&named(""), Code::KernelIds, "the id of a kernel is empty");
    assert_only(
        &named(&"x".repeat(129)),
        Code::KernelIds,
        "has 129 characters, but at most 128 are allowed",
    );
    assert!(named(&"x".repeat(128)).is_accepted());
    assert_only(&named("MockRope"), Code::MockKernel, "the kernel `MockRope` is a mock by its id");
    let found = forged(|receipt| receipt.kernels.clear());
    assert_refused(&found, Code::KernelIds, "the list of kernels is empty");
    let found = forged(|receipt| receipt.kernels.push("wmma_matmul".to_owned()));
    assert_refused(&found, Code::KernelsMismatch, "has, though no test ran it, `wmma_matmul`");
    let found = forged(|receipt| receipt.kernels.swap(0, 1));
    assert_only(&found, Code::KernelsMismatch, "the list of kernels isn't sorted");
    let found = forged(|receipt| receipt.kernels = (0..10_001).map(|i| format!("k{i}")).collect());
    assert_refused(&found, Code::KernelIds, "10001 kernels are listed");
    let found = forged(|receipt| {
        rename(receipt, "gemv_q4_k_avx2", "gemv_f32_avx2");
        rename(receipt, "gemm_q4_k_avx2", "gemm_f32_avx2");
    });
    assert_refused(
        &found,
        Code::NoQuantizedKernels,
        "the model is quantised (`q4_k`), but no kernel",
    );
    let found = forged(|receipt| receipt.tests[1].kernels[1].launches += 1);
    assert_only(&found, Code::KernelsMismatch, "which launch it equally often");
    let found = forged(|receipt| receipt.tests[1].bytes = Some(1));
    assert_only(&found, Code::KernelsMismatch, "a repetition of test `tg16` has 1 bytes, but its");
    let found = forged(|receipt| receipt.compute_path = "mock".to_owned());
    assert_only(&found, Code::NotReal, "compute_path is `mock`, but only `real` says");
}

#[test]
fn changes_after_sealing() {
    let mut receipt = receipt(&Plan::default());
    receipt.model.name = Some("Llama 70B".to_owned());
    let found = verdict(&receipt);
    assert_only(&found, Code::HashMismatch, "it was changed after it was sealed");
    let error = receipt.sign(&SecretKey::from_bytes(&[7; 32])).expect_err("nobody signs that");
    assert!(error.to_string().contains("it was changed"), "{error}");
    receipt.seal = None;
    assert_only(&verdict(&receipt), Code::Unsealed, "the receipt has no hash over its content");
}

#[test]
fn signatures() {
    let (ours, other) = (SecretKey::from_bytes(&[7; 32]), SecretKey::from_bytes(&[8; 32]));
    let mut receipt = receipt(&Plan::default());
    receipt.sign(&ours).expect("it is whole");
    // Again is once.
    receipt.sign(&ours).expect("it is whole");
    let found = verdict(&receipt);
    assert_accepted(&found);
    assert_eq!(found.signed_by, [ours.public_key()]);
    let by = |key: &SecretKey| Options { signed_by: Some(key.public_key()), ..Options::default() };
    assert_accepted(&verify(receipt.to_json().as_bytes(), &by(&ours)));
    let found = verify(receipt.to_json().as_bytes(), &by(&other));
    assert_only(&found, Code::NotSignedBy, "hasn't signed the receipt: it is signed by ");

    // The signature of one receipt under another.
    let mut copied = resealed({
        let mut copied = receipt.clone();
        copied.model.name = None;
        copied
    });
    let signatures = receipt.seal.as_ref().expect("sealed").signatures.clone();
    copied.seal.as_mut().expect("sealed").signatures = signatures;
    let found = verdict(&copied);
    assert_only(&found, Code::SignatureInvalid, "is not one of this content");
    assert!(found.signed_by.is_empty());
    // Another's name under it.
    receipt.seal.as_mut().expect("sealed").signatures[0].public_key = other.public_key();
    assert_only(&verdict(&receipt), Code::SignatureInvalid, "the signature (`ed25519`) by ");
}

#[test]
fn numbers_that_not_all_readers_read_alike() {
    let mut receipt = receipt(&Plan::default());
    receipt.tests[1].samples[2].cpu_khz = Some((1 << 53) + 1);
    let error = receipt.clone().sealed().expect_err("it isn't exact");
    assert_eq!(
        error.to_string(),
        "tests[1].samples[2].cpu_khz is 9007199254740993: whole numbers go up to 2^53 in a receipt"
    );
    assert_refused(&verdict(&receipt), Code::Number, "whole numbers go up to 2^53");
    receipt.tests[1].samples[2].cpu_khz = None;
    receipt.tests[1].aggregates.avg_ts = Some(f64::NAN);
    let error = receipt.sealed().expect_err("JSON has no NaN");
    assert_eq!(
        error.to_string(),
        "a number in tests[1].aggregates.avg_ts is not finite, so JSON can't hold it"
    );
}

#[test]
fn a_rerun_that_does_not_bear_it_out() {
    let said = |refusals: Vec<Refusal>| -> Vec<(Code, String)> {
        refusals.into_iter().map(|refusal| (refusal.code, refusal.sentence)).collect()
    };
    let first = receipt(&Plan::default());
    // The noise of a machine is within the tolerance.
    let again = receipt(&Plan { seed: 9, ..Plan::default() });
    assert_eq!(rerun_agrees(&first, &again, 0.1), Rerun::default());
    // Less than that is explained by the samples themselves.
    let strict = rerun_agrees(&first, &again, 1e-6);
    assert!(strict.refusals.is_empty() && strict.doubts.len() == 2, "{strict:?}");
    assert!(
        strict.doubts[0].contains("but both runs' own samples are spread as far"),
        "{strict:?}"
    );

    let mut faster = again.clone();
    let rate = &mut faster.tests[1].aggregates.median_ts;
    *rate = first.tests[1].aggregates.median_ts.map(|rate| rate * 1.12);
    for sample in &mut faster.tests[1].samples {
        sample.wall_ns = (sample.wall_ns as f64 / 1.12) as u64;
    }
    faster.machine.cpu_id = None;
    let refusals = said(rerun_agrees(&first, &faster, 0.1).refusals);
    assert_eq!((refusals.len(), refusals[0].0), (1, Code::RerunRate));
    let sentence = &refusals[0].1;
    assert!(sentence.starts_with("test `tg16` ran at "), "{sentence}");
    assert!(sentence.contains(", +12.0 % from the receipt's "), "{sentence}");
    assert!(
        sentence.ends_with(
            "but only 10 % is allowed (this is another machine, where rates may differ)"
        )
    );

    let mut other = again.clone();
    other.tests[0].output_sha256 = sha256_hex(b"other tokens");
    other.tests[1].input_sha256 = sha256_hex(b"other tokens");
    other.model.sha256 = sha256_hex(b"another file");
    other.run.kernels = "scalar".to_owned();
    let refusals = said(rerun_agrees(&first, &other, 0.1).refusals);
    let codes: Vec<Code> = refusals.iter().map(|refusal| refusal.0).collect();
    let differs = Code::RerunDiffers;
    assert_eq!(codes, [differs, differs, Code::RerunOutput, differs], "{refusals:?}");
    assert!(refusals[0].1.starts_with("the rerun is of the model `"), "{refusals:?}");
    assert_eq!(refusals[1].1, "the rerun's kernels are `scalar`, the receipt's `avx2`");
    assert!(refusals[2].1.starts_with("test `pp64` chose other tokens when it was rerun"));
    assert_eq!(refusals[3].1, "test `tg16` was rerun on other tokens than those of the receipt");

    let mut fewer = again;
    fewer.tests.pop();
    let refusals = said(rerun_agrees(&first, &fewer, 0.1).refusals);
    assert_eq!(refusals, [(differs, "the rerun has no test `tg16`".to_owned())]);
}

#[test]
fn a_ceiling_of_the_slow_state_makes_a_fast_run_doubtful_and_not_refused() {
    for factor in [0.4, 0.45] {
        let found = forged(|receipt| {
            receipt.ceilings.as_mut().expect("it has some").read_bytes_per_second *= factor;
        });
        assert_accepted(&found);
        let doubt = found.doubts.iter().find(|doubt| doubt.contains("that memory gives at most"));
        assert!(
            doubt.is_some_and(|doubt| doubt.contains("measured too low")),
            "{:?}",
            found.doubts
        );
    }
    // Once the fast state was seen, there is nothing to doubt.
    let seen = forged(|receipt| {
        let ceilings = receipt.ceilings.as_mut().expect("it has some");
        let fast = ceilings.read_bytes_per_second;
        ceilings.read_bytes_per_second *= 0.4;
        ceilings.memory_spread = Some([0.4 * fast, fast]);
    });
    assert_accepted(&seen);
    assert!(!seen.doubts.iter().any(|doubt| doubt.contains("gives at most")), "{:?}", seen.doubts);
    // The same of arithmetic.
    let honest = receipt(&Plan::default());
    let rate = honest.tests.iter().flat_map(|test| {
        let measured = || test.samples.iter().filter(|sample| !sample.is_warm_up);
        let flops: u64 = test.kernels.iter().filter_map(|kernel| kernel.flops).sum();
        let each = flops as f64 / measured().count() as f64;
        measured().map(move |sample| each * 1e9 / sample.wall_ns as f64)
    });
    let fastest = rate.fold(0.0, f64::max);
    let with_peak = |factor: f64| {
        forged(|receipt| {
            receipt.ceilings.as_mut().expect("it has some").flops_per_second = fastest / factor;
        })
    };
    let found = with_peak(1.9);
    assert_accepted(&found);
    assert!(
        found.doubts.iter().any(|doubt| doubt.contains("FLOPs a second")),
        "{:?}",
        found.doubts
    );
    assert_refused(
        &with_peak(2.2),
        Code::AboveRoof,
        "its threads reach at most: that is impossible",
    );
    // More than any machine's memory changes by.
    let found = forged(|receipt| {
        receipt.ceilings.as_mut().expect("it has some").read_bytes_per_second *= 0.1;
    });
    assert_refused(&found, Code::AboveRoof, "that memory gives at most: that is impossible");
    for spread in [[3.0, 2.0], [-1.0, 1e11], [1e9, 2e9], [1e9, 1e300]] {
        let found = forged(|receipt| {
            receipt.ceilings.as_mut().expect("it has some").memory_spread = Some(spread);
        });
        assert!(!found.is_accepted(), "{spread:?}");
    }
}

#[test]
fn a_rerun_beside_other_work_or_in_another_state_of_memory_is_a_doubt() {
    let first = receipt(&Plan::default());
    let slower = |factor: f64| {
        let mut again = receipt(&Plan { seed: 9, ..Plan::default() });
        for test in &mut again.tests {
            let rate = &mut test.aggregates.median_ts;
            *rate = rate.map(|rate| rate / factor);
            for sample in &mut test.samples {
                sample.wall_ns = (sample.wall_ns as f64 * factor) as u64;
            }
        }
        again
    };
    let refused = rerun_agrees(&first, &slower(1.5), 0.1);
    assert_eq!((refused.refusals.len(), refused.doubts.len()), (2, 0), "{refused:?}");
    let disturbed = |factor| {
        let mut again = slower(factor);
        let samples = again.tests.iter_mut().flat_map(|test| &mut test.samples);
        samples.for_each(|sample| sample.disturbed = Some(true));
        rerun_agrees(&first, &again, 0.1)
    };
    let found = disturbed(1.5);
    assert_eq!((found.refusals.len(), found.doubts.len()), (0, 2), "{found:?}");
    assert!(found.doubts[0].contains("other work disturbed "), "{found:?}");
    // Other work doesn't explain five times, and no disturbance makes a run faster.
    assert_eq!(disturbed(5.0).refusals.len(), 2);
    assert_eq!(disturbed(0.5).refusals.len(), 2);
    // Memory in its slow state around the rerun, which was seen in its fast one before.
    let mut slow_memory = slower(1.5);
    let ceilings = slow_memory.ceilings.as_mut().expect("it has some");
    let fast = ceilings.read_bytes_per_second;
    ceilings.memory_spread = Some([fast / 1.6; 2]);
    let found = rerun_agrees(&first, &slow_memory, 0.1);
    assert_eq!((found.refusals.len(), found.doubts.len()), (0, 2), "{found:?}");
    assert!(found.doubts[0].contains("this machine gave 21.2 around the rerun"), "{found:?}");
    // Nor does memory explain more than twice, whatever it gave.
    let mut slow_memory = slower(10.0);
    let ceilings = slow_memory.ceilings.as_mut().expect("it has some");
    ceilings.memory_spread = Some([fast / 10.0; 2]);
    assert_eq!(rerun_agrees(&first, &slow_memory, 0.1).refusals.len(), 2);
}

/// A receipt whose decode test is `factor` times too fast, but for its first measured sample, which is as it was.
fn too_fast_but_for_one_sample(factor: f64) -> Receipt {
    let mut forged = receipt(&Plan::default());
    let measured = decode(&mut forged).iter_mut().filter(|sample| !sample.is_warm_up);
    for sample in measured.skip(1) {
        sample.wall_ns = (sample.wall_ns as f64 / factor) as u64;
    }
    let test = &mut forged.tests[1];
    test.aggregates = brickscope_analysis::receipt::Aggregates::of(&test.samples);
    forged
}

#[test]
fn one_honest_sample_among_faster_ones_does_not_excuse_them() {
    let again = receipt(&Plan { seed: 9, ..Plan::default() });
    for factor in [1.3, 1.9, 10.0] {
        let found = rerun_agrees(&too_fast_but_for_one_sample(factor), &again, 0.1);
        assert!(found.doubts.is_empty(), "{factor}: {found:?}");
        let codes: Vec<Code> = found.refusals.iter().map(|refusal| refusal.code).collect();
        assert_eq!(codes, [Code::RerunRate], "{factor}: {found:?}");
    }
    // All samples of a rerun that are spread as far explain a median that is off.
    let mut wide = receipt(&Plan::default());
    let measured = decode(&mut wide).iter_mut().filter(|sample| !sample.is_warm_up);
    for (sample, factor) in measured.zip([0.7, 0.8, 0.85, 1.1, 1.2]) {
        sample.wall_ns = (sample.wall_ns as f64 * factor) as u64;
    }
    wide.tests[1].aggregates = brickscope_analysis::receipt::Aggregates::of(&wide.tests[1].samples);
    let found = rerun_agrees(&wide, &again, 0.1);
    assert_eq!((found.refusals.len(), found.doubts.len()), (0, 1), "{found:?}");
    assert!(found.doubts[0].contains("both runs' own samples are spread as far"), "{found:?}");
    // However far they are spread, they don't explain ten times.
    let mut wider = receipt(&Plan::default());
    let measured = decode(&mut wider).iter_mut().filter(|sample| !sample.is_warm_up);
    for (sample, factor) in measured.zip([0.02, 0.04, 0.1, 0.9, 1.0]) {
        sample.wall_ns = (sample.wall_ns as f64 * factor) as u64;
    }
    wider.tests[1].aggregates =
        brickscope_analysis::receipt::Aggregates::of(&wider.tests[1].samples);
    assert_eq!(rerun_agrees(&wider, &again, 0.1).refusals.len(), 1);
}

#[test]
fn a_spread_of_memory_that_the_verifier_never_saw_excuses_nothing() {
    // 1.6 times too fast, "since memory was as fast then".
    let mut forged = receipt(&Plan::default());
    for test in &mut forged.tests {
        for sample in &mut test.samples {
            sample.wall_ns = (sample.wall_ns as f64 / 1.6) as u64;
        }
        test.aggregates = brickscope_analysis::receipt::Aggregates::of(&test.samples);
    }
    let ceilings = forged.ceilings.as_mut().expect("it has some");
    let rate = ceilings.read_bytes_per_second;
    ceilings.memory_spread = Some([rate, 4.0 * rate]);
    let mut again = receipt(&Plan { seed: 9, ..Plan::default() });
    again.ceilings.as_mut().expect("it has some").memory_spread = Some([rate; 2]);
    let found = rerun_agrees(&forged, &again, 0.1);
    assert_eq!((found.refusals.len(), found.doubts.len()), (2, 0), "{found:?}");
    // Where the verifier's machine gave as much on another day, it may be so.
    let seen = rerun_agrees_with(&forged, &again, 0.1, &[1.7 * rate]);
    assert_eq!((seen.refusals.len(), seen.doubts.len()), (0, 2), "{seen:?}");
    // Slower on the day of the receipt, as the verifier's machine never was.
    let mut slow = receipt(&Plan::default());
    for test in &mut slow.tests {
        for sample in &mut test.samples {
            sample.wall_ns = (sample.wall_ns as f64 * 1.6) as u64;
        }
        test.aggregates = brickscope_analysis::receipt::Aggregates::of(&test.samples);
    }
    slow.ceilings.as_mut().expect("it has some").memory_spread = Some([rate / 4.0, rate]);
    assert_eq!(rerun_agrees(&slow, &again, 0.1).refusals.len(), 2);
    assert_eq!(rerun_agrees_with(&slow, &again, 0.1, &[rate / 1.7]).doubts.len(), 2);
    // What isn't a rate was never measured.
    for not in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        assert_eq!(rerun_agrees_with(&slow, &again, 0.1, &[not]).refusals.len(), 2, "{not}");
    }
}

#[test]
fn roofs_for_what_lies_in_a_cache() {
    // 0.6 MB a token lie in L2, of which there are 4 MB: faster than memory, and honest.
    let small = Plan { parameters: 1_000_000, n_gen: 4, ..Plan::default() };
    let speed_up = |factor: f64| {
        forged_from(&small, |receipt| {
            faster(decode(receipt), factor);
            // Only the bytes are to tell.
            receipt.ceilings.as_mut().expect("it has some").flops_per_second = 4e12;
        })
    };
    assert!(speed_up(2.5).is_accepted(), "{:?}", speed_up(2.5).refusals);
    let found = speed_up(60.0);
    assert_refused(&found, Code::AboveRoof, "that L2 gives at most");
    // Of caches that nobody measured it can't be told.
    let unknown = Plan { has_caches: false, ..small };
    let found = forged_from(&unknown, |receipt| faster(decode(receipt), 5.0));
    assert_accepted(&found);
    let line = "the bytes of `tg4` against the machine: the receipt has no cache bandwidths";
    assert!(found.not_checked.iter().any(|not| not.starts_with(line)), "{:?}", found.not_checked);
}

/// Says of a test that the logits of some passes weren't numbers.
fn not_numbers(receipt: &mut Receipt, test: usize, passes: u64, of: u64) {
    let origin = "the first bad weights are NaN in output.weight (1 of 64 values)".to_owned();
    receipt.tests[test].not_finite = Some(NotFinite { passes, of, origin });
}

/// Passes that computed logits in a test of an honest receipt.
fn with_logits(receipt: &Receipt, test: usize) -> u64 {
    let test = &receipt.tests[test];
    test.samples.len() as u64 * test.n_gen.max(1)
}

#[test]
fn logits_that_are_no_numbers_are_a_doubt_and_only_those_that_were_computed() {
    for test in [0, 1] {
        let honest = forged(|receipt| {
            let of = with_logits(receipt, test);
            not_numbers(receipt, test, 1, of);
        });
        assert_accepted(&honest);
        let sentence = ["pp64: not a number: ", "tg16: not a number: "][test];
        assert!(honest.doubts.iter().any(|doubt| doubt.starts_with(sentence)), "{honest:?}");
        let more = forged(|receipt| {
            let of = with_logits(receipt, test);
            not_numbers(receipt, test, of + 1, of);
        });
        assert_only(&more, Code::Contradiction, "passes with logits that aren't numbers, of ");
        let other = forged(|receipt| {
            let of = with_logits(receipt, test);
            not_numbers(receipt, test, 1, of + 1);
        });
        assert_only(&other, Code::Contradiction, "passes computed logits, but ");
        let none = forged(|receipt| {
            let of = with_logits(receipt, test);
            not_numbers(receipt, test, 0, of);
        });
        assert_only(&none, Code::Field, "not_finite.passes is 0, but it can only be from 1 ");
    }
    // Whoever keeps the figure and leaves out the sentence.
    let mut receipt = receipt(&Plan::default());
    let of = with_logits(&receipt, 1);
    not_numbers(&mut receipt, 1, of, of);
    let erased = verdict(&receipt.sealed().expect("sealed"));
    assert_only(&erased, Code::DoubtsErased, "tg16: not a number: the logits of ");
}

#[test]
fn a_rerun_tells_whether_logits_are_numbers() {
    let first = receipt(&Plan::default());
    let mut bad = first.clone();
    not_numbers(&mut bad, 1, 1, 128);
    for (ours, theirs, says) in [
        (&first, &bad, "aren't all numbers when it is rerun, but the receipt doesn't say so"),
        (&bad, &first, "are all numbers when it is rerun, but the receipt says that some aren't"),
    ] {
        let found = rerun_agrees(ours, theirs, 0.1);
        let [refusal] = &found.refusals[..] else { panic!("{found:?}") };
        assert_eq!(refusal.code, Code::RerunOutput);
        assert_eq!(refusal.sentence, format!("the logits of test `tg16` {says}"));
    }
    assert_eq!(rerun_agrees(&bad, &bad, 0.1), Rerun::default());
}
