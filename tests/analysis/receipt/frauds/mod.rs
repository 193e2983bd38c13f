//! Frauds, planted one by one in an honest receipt.

mod reruns;
mod samples;

use brickscope_analysis::receipt::v1::Sample;
use brickscope_analysis::receipt::{
    Code, Options, Receipt, SecretKey, Verdict, sha256_hex, verify,
};

use super::honest::{Plan, receipt, resealed};

fn verdict(receipt: &Receipt) -> Verdict {
    verify(receipt.to_json().as_bytes(), &Options::default())
}

/// An honest receipt after `forge`; the figures that a forger can derive and the seal are its own.
fn forged(forge: impl FnOnce(&mut Receipt)) -> Verdict {
    forged_from(&Plan::default(), forge)
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
