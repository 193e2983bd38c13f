//! What a run of the verifier's own tells of a receipt, and what ceilings and logits do.

use brickscope_analysis::receipt::v1::NotFinite;
use brickscope_analysis::receipt::{
    Code, Receipt, Refusal, Rerun, rerun_agrees as rerun_agrees_with, sha256_hex,
};

use super::{
    assert_accepted, assert_only, assert_refused, decode, faster, forged, forged_from, verdict,
};
use crate::receipt::honest::{Plan, receipt};

/// Of a verifier that knows of no other day.
fn rerun_agrees(receipt: &Receipt, rerun: &Receipt, tolerance: f64) -> Rerun {
    rerun_agrees_with(receipt, rerun, tolerance, &[])
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
