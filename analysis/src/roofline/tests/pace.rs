//! What the kernels of a run reach by themselves.

use brickscope_profile::{KernelPace, Machine, Model, NameKind, WeightGroup};

use super::*;
use crate::findings::Findings;
use crate::view;

/// More than any cache holds.
const BYTES: u64 = 90_000_000;
const Q4_K: &str = "gemv_q4_k_avx512";
const Q6_K: &str = "gemv_q6_k_avx512";
const Q8_0: &str = "gemv_q8_0_avx512";

/// A kernel of one thread that takes so many GB/s in from L1.
fn pace(kernel: &str, gigabytes: f64) -> KernelPace {
    KernelPace {
        kernel: kernel.to_owned(),
        level: "L1".to_owned(),
        threads: 1,
        bytes_per_second: Some(gigabytes * GB),
        ..KernelPace::default()
    }
}

fn group(name: &str, format: &str, bytes: u64) -> WeightGroup {
    WeightGroup {
        name: name.to_owned(),
        format: format.to_owned(),
        is_matrix: true,
        tensors: 1,
        parameters: 2 * bytes,
        bytes,
    }
}

/// Measured once around the run.
fn measured(profile: &mut Profile, pace: KernelPace) {
    let rate = pace.bytes_per_second.expect("a rate");
    let ceilings = profile.ceilings.as_mut().expect("ceilings");
    ceilings.spreads.push(LimitSpread {
        of: pace.name(),
        lowest_per_second: rate,
        highest_per_second: rate,
        first_per_second: rate,
        around: vec![rate],
        readings: 1,
    });
    ceilings.paces.push(pace);
}

/// Decode on one thread, with one brick of this work in q4_k.
fn of_one(nanos: u64, work: Work, gigabytes: f64) -> Profile {
    let mut profile = run(&[("LmHead", nanos, work)]);
    profile.machine = None;
    profile.run = Some(Run { backend: "avx512".to_owned(), threads: 1, ..Run::default() });
    let weights = vec![group("output", "q4_k", BYTES), group("token_embd", "q8_0", BYTES)];
    profile.model = Some(Model { weights, ..Model::default() });
    ran(&mut profile, Q4_K);
    measured(&mut profile, pace(Q4_K, gigabytes));
    profile
}

/// That a kernel was among those of decode.
fn ran(profile: &mut Profile, kernel: &str) {
    let mut total = profile.totals[0].clone();
    total.kind = NameKind::Kernel;
    total.category = None;
    kernel.clone_into(&mut total.stats.name);
    profile.totals.push(total);
}

/// It took its weights in at so many GB/s, where its kernel takes in so many from L1, and memory gives 50.
fn at(gigabytes: f64, of: f64) -> Profile {
    of_one(nanos(BYTES, gigabytes), weights(BYTES), of)
}

/// The reach of the brick, and of the phase.
fn reach(profile: &Profile) -> [Reach; 2] {
    let roofline = roofline(profile);
    let brick = roofline.bricks[0].place.as_ref().expect("work was stated").reach;
    [brick, roofline.verdict().expect("work was stated").reach]
}

#[test]
fn a_kernel_at_its_own_pace_is_what_limits_wherever_its_data_are() {
    let profile = at(12.0, 13.0);
    assert_eq!(reach(&profile), [Reach::Kernel; 2]);
    let of = roofline(&profile);
    let verdict = of.verdict().expect("work was stated");
    // The machine's limit stays what it is: better code may come as near to that.
    assert_eq!((verdict.bound, verdict.limit().as_str()), (Bound::Memory, "kernel"));
    assert!((verdict.of_roof - 0.24).abs() < 0.01, "{verdict:?}");
    let says = "kernel-bound: 12 of 13 GB/s that this code reaches from L1";
    assert_eq!(verdict.says(), says);
    assert!(of.bricks[0].notes.iter().any(|of| of.to_string() == says), "{:?}", of.bricks);
    let headline = view::headline(&profile);
    let helps = format!("{says}; better code helps up to 4.2 ×");
    assert!(headline.contains(&helps) && !headline.contains("latency"), "{headline}");
    // In L2, too.
    let bytes = 200_000;
    let cached = of_one(nanos(bytes, 12.0), weights(bytes), 13.0);
    assert_eq!(reach(&cached), [Reach::Kernel; 2]);
    assert_eq!(place(&roofline(&cached), "LmHead").bound, Bound::Cache);
}

#[test]
fn what_the_machine_limits_is_not_bound_by_its_kernel() {
    for of in [48.0, 60.0] {
        let profile = at(47.0, of);
        assert_eq!(reach(&profile), [Reach::At; 2]);
        let says = roofline(&profile).verdict().expect("work was stated").says();
        assert!(says.starts_with("memory-bound: 94 % of 50 GB/s"), "{says}");
    }
    // Its kernel isn't so much slower than memory that measurements tell them apart.
    assert_eq!(reach(&at(35.0, 42.0)), [Reach::Near; 2]);
    // 95 % of the peak of 200 GFLOP/s.
    let work = Work { flops: 1_900_000_000, ..weights(BYTES) };
    let computing = of_one(10_000_000, work, 9.2);
    assert_eq!(reach(&computing), [Reach::At; 2]);
    assert_eq!(roofline(&computing).verdict().map(|of| of.bound), Some(Bound::Compute));
}

#[test]
fn a_thread_without_a_core_is_not_bound_by_its_kernel() {
    // Half of the time it had none, and nobody looked.
    let profile = at(6.0, 13.0);
    assert_eq!(reach(&profile), [Reach::Far; 2]);
    let headline = view::headline(&profile);
    assert!(headline.contains("at 6.0 of 13 GB/s that this code reaches from L1"), "{headline}");
    assert!(!headline.contains("latency"), "{headline}");
    let found = Findings::of(&profile);
    let far = found.found.iter().find(|of| of.rule == "far-from-the-roof").expect("it is far");
    assert!(far.advice.contains("its products take in 6.0 of 13 GB/s"), "{}", far.advice);
    // It was seen, whatever the rate.
    let mut profile = at(12.0, 13.0);
    profile.phases[0].disturbed = 5;
    assert_eq!(reach(&profile), [Reach::Far; 2]);
    let why = roofline(&profile).pace_absent.expect("a reason").reason;
    assert!(why.starts_with("Threads waited for a CPU in 5 of 10 passes"), "{why}");
}

#[test]
fn a_pace_that_is_not_sure_gives_no_verdict() {
    let changed = |change: fn(&mut LimitSpread)| {
        let mut profile = at(12.0, 13.0);
        change(&mut profile.ceilings.as_mut().expect("ceilings").spreads[0]);
        reach(&profile)
    };
    assert_eq!(changed(|_| {}), [Reach::Kernel; 2]);
    // It swung.
    assert_eq!(changed(|spread| spread.lowest_per_second = 9.0 * GB), [Reach::Far; 2]);
    // Others disturbed it each time.
    assert_eq!(changed(|spread| spread.around.clear()), [Reach::Far; 2]);
    // The run beat it by more than measurements differ.
    assert_eq!(reach(&at(17.0, 13.0)), [Reach::Far; 2]);
}

#[test]
fn a_little_above_its_pace_or_below_it_is_the_same_verdict() {
    for gigabytes in [10.5, 11.5, 12.5, 13.2, 14.0, 16.0] {
        assert_eq!(reach(&at(gigabytes, 13.0)), [Reach::Kernel; 2], "{gigabytes}");
    }
    let says = |gigabytes| {
        let verdict = roofline(&at(gigabytes, 13.0)).verdict().expect("work was stated");
        verdict.says()
    };
    assert_eq!(says(14.0), "kernel-bound: 14 GB/s (this code reached 13 from L1)");
    assert_eq!(says(13.2), "kernel-bound: 13 of 13 GB/s that this code reaches from L1");
    // As near to memory's roof as to its pace: what the machine gives isn't told from it.
    assert_eq!(reach(&at(44.0, 39.0)), [Reach::Near; 2]);
}

#[test]
fn better_code_of_products_makes_nothing_else_faster() {
    let mut profile = at(12.0, 13.0);
    // A third of the phase is no product.
    profile.phases[0].wall_ns = profile.phases[0].wall_ns / 2 * 3;
    let of = Roofline::of_sums(&profile, Phase::Decode).expect("ceilings");
    let verdict = of.verdict().expect("work was stated");
    assert_eq!(verdict.reach, Reach::Kernel);
    assert_eq!(verdict.helps().as_deref(), Some("better code helps up to 2.0 ×"));
    let at_the_roof = verdict.pace.map(|pace| (10.0 * pace.at_the_roof).round());
    assert_eq!(at_the_roof, Some(42.0), "of the products alone");
}

#[test]
fn without_a_pace_all_is_as_before_and_the_reason_is_told() {
    let of = |change: fn(&mut Profile)| {
        let mut profile = at(12.0, 13.0);
        change(&mut profile);
        assert_eq!(reach(&profile), [Reach::Far; 2]);
        let headline = view::headline(&profile);
        assert!(headline.contains("so likely latency"), "{headline}");
        let of = roofline(&profile);
        assert_eq!(of.bricks[0].place.as_ref().and_then(|place| place.pace.as_ref()), None);
        of.pace_absent.map(|absent| absent.reason)
    };
    // A file of an earlier version.
    let none = of(|profile| profile.ceilings.as_mut().expect("ceilings").paces.clear());
    assert_eq!(none.as_deref(), Some("The pace of its kernels was not measured."));
    let other = of(|profile| {
        profile.run.as_mut().expect("a run").backend = "llama.cpp".to_owned();
    });
    let other = other.expect("a reason");
    assert!(other.starts_with("How fast the kernels of llama.cpp are "), "{other}");
    // An engine that names none.
    assert_eq!(of(|profile| profile.run = None), None);
    // Of another number of threads.
    let threads = of(|profile| profile.run.as_mut().expect("a run").threads = 2);
    let why = "The pace of its kernels is not known: none was measured as it ran them.";
    assert_eq!(threads.as_deref(), Some(why));
    // On a busy machine no two readings agree.
    let busy = of(|profile| {
        let pace = &mut profile.ceilings.as_mut().expect("ceilings").paces[0];
        pace.bytes_per_second = None;
        pace.absent = Some(Absent { reason: "no two readings agree".to_owned() });
    });
    let why = "The pace of its kernels is not known: no two readings agree.";
    assert_eq!(busy.as_deref(), Some(why));
}

#[test]
fn of_two_formats_each_has_its_pace() {
    let mut profile = at(19.0, 30.0);
    profile.totals.iter_mut().for_each(|total| {
        if total.kind == NameKind::Brick {
            "QkvProjection".clone_into(&mut total.stats.name);
        }
    });
    let weights = vec![group("attn_q", "q4_k", 300), group("attn_v", "q6_k", 100)];
    profile.model = Some(Model { weights, ..Model::default() });
    // The other one isn't known.
    let sums = |profile: &Profile| Roofline::of_sums(profile, Phase::Decode).expect("ceilings");
    let of_brick = |of: &Roofline| of.bricks[0].place.as_ref().and_then(|of| of.pace.clone());
    assert_eq!(of_brick(&sums(&profile)), None);
    ran(&mut profile, Q6_K);
    measured(&mut profile, pace(Q6_K, 10.0));
    let own = of_brick(&sums(&profile)).expect("both are known");
    assert_eq!((own.kernels.join(" "), own.level.as_str()), (format!("{Q4_K} {Q6_K}"), "L1"));
    // Three parts of four at 30 GB/s, and one at 10.
    assert!(close(own.pace_per_second, 20.0 * GB), "{own:?}");
    assert!(own.is_limit());
}

#[test]
fn the_pace_is_that_of_the_order_of_rows_that_the_run_read() {
    let mut profile = at(12.0, 8.0);
    measured(&mut profile, KernelPace { is_interleaved: true, ..pace(Q4_K, 13.0) });
    let mut of = |interleaved_bytes| {
        profile.model.as_mut().expect("a model").interleaved_bytes = interleaved_bytes;
        let place = place(&roofline(&profile), "LmHead").clone();
        place.pace.map(|pace| (pace.pace_per_second / GB).round())
    };
    assert_eq!(of(None), Some(8.0));
    assert_eq!(of(Some(BYTES)), Some(13.0));
    // Some were, and nobody knows which.
    assert_eq!(of(Some(BYTES / 2)), None);
}

#[test]
fn a_finding_says_what_helps_a_kernel_at_its_pace() {
    let mut profile = at(12.0, 13.0);
    let of = |profile: &Profile| {
        let found = Findings::of(profile).found;
        let rules: Vec<&str> = found.iter().map(|of| of.rule).collect();
        // Of none of these better pages or fewer bytes are known to help.
        for other in ["far-from-the-roof", "memory-roof", "mapped-weights"] {
            assert!(!rules.contains(&other), "{other}");
        }
        found.into_iter().find(|of| of.rule == "kernel-bound").expect("it is")
    };
    profile.model.as_mut().expect("a model").weights_in = Some("mapped file".to_owned());
    let finding = of(&profile);
    let says = "decode is kernel-bound: 12 of 13 GB/s that this code reaches from L1; \
                better code helps up to 4.2 ×";
    let other = "weights of another format have another kernel";
    assert_eq!(finding.sentence(), format!("{says}; {other}"));
    let gain = finding.gain.expect("better code brings something");
    assert!((gain.highest_ns / (0.76 * gain.now_ns) - 1.0).abs() < 0.01, "{gain:?}");
    profile.machine = Some(Machine { logical_cpus: Some(4), ..Machine::default() });
    let finding = of(&profile);
    assert_eq!(finding.sentence(), format!("{says}; more `--threads` may help; {other}"));
    assert_eq!(finding.gain, None);
    let text = view::roofline(&profile);
    assert!(text.contains("\nkernel: at least 80 % of what its code reaches"), "{text}");
    assert!(text.contains("\nLmHead: kernel-bound: 12 of 13 GB/s that this code "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Decode on one thread, of which products in q8_0 take more than a half, at 95 % of what memory gives, or L2. The head is in
/// q6_k, whose kernel was replaced by one that takes in 4.2 GB/s from L1; that of q8_0 reaches more. All take `times` as long.
fn with_a_slow_kernel(in_memory: bool, pace_of_others: f64, times: u64) -> Profile {
    let (head, others, limit) =
        if in_memory { (BYTES, 1_450_000_000, 50.0) } else { (13_000, 840_000, 200.0) };
    let took = |bytes: u64, gigabytes: f64| times * nanos(bytes, gigabytes);
    let mut profile = run(&[
        ("GateProjection", took(others, 0.95 * limit), weights(others)),
        ("LmHead", took(head, 4.0), weights(head)),
    ]);
    profile.machine = None;
    profile.run = Some(Run { backend: "avx512".to_owned(), threads: 1, ..Run::default() });
    let weights = vec![group("ffn_gate", "q8_0", others), group("output", "q6_k", head)];
    profile.model = Some(Model { weights, ..Model::default() });
    for (kernel, gigabytes) in [(Q8_0, pace_of_others), (Q6_K, 4.2)] {
        ran(&mut profile, kernel);
        measured(&mut profile, pace(kernel, gigabytes));
    }
    profile
}

#[test]
fn one_kernel_replaced_by_a_slower_one_is_named_with_its_data_in_memory_or_not() {
    for (in_memory, [fast, faster]) in [(true, [55.0, 90.0]), (false, [210.0, 380.0])] {
        let found = |pace| Findings::of(&with_a_slow_kernel(in_memory, pace, 1)).found;
        // The other kernel is so fast that decode as a whole is not at the pace of both.
        let all = found(faster);
        let says = "LmHead is kernel-bound: 4.0 of 4.2 GB/s that this code reaches from L1; \
                    better code helps decode up to 1.";
        assert_eq!(all[0].rule, "kernel-bound", "{all:?}");
        assert!(all[0].sentence().starts_with(says), "{}", all[0].sentence());
        assert!(all[0].gain.is_some_and(|gain| gain.parts()[2] > 0.35), "{:?}", all[0].gain);
        // What is left is nearly at the machine's limit.
        assert!(all.iter().all(|of| of.rule != "far-from-the-roof"), "{all:?}");
        // Here it is.
        let all = found(fast);
        assert_eq!(all[0].rule, "kernel-bound", "{all:?}");
        let sentence = all[0].sentence();
        assert!(sentence.starts_with("decode is kernel-bound: "), "{sentence}");
        assert!(sentence.contains(" ×, most in LmHead; "), "{sentence}");
        let mut evidence = all[0].evidence.iter();
        assert!(evidence.any(|of| of.text.starts_with("LmHead: 4.0 of 4.2 GB/s ")), "{all:?}");
    }
}

#[test]
fn a_thread_without_a_core_is_not_kernel_bound_however_slow_its_kernel_is() {
    let is_found =
        |profile: &Profile| Findings::of(profile).found.iter().any(|of| of.rule == "kernel-bound");
    for (in_memory, pace) in [(true, 90.0), (false, 380.0)] {
        assert!(is_found(&with_a_slow_kernel(in_memory, pace, 1)));
        // Two threads shared a core, and nobody looked.
        assert!(!is_found(&with_a_slow_kernel(in_memory, pace, 2)));
        // It was seen, and in their turns they were as fast as ever.
        let mut seen = with_a_slow_kernel(in_memory, pace, 1);
        seen.phases[0].disturbed = 5;
        assert!(!is_found(&seen));
    }
}

/// Ten passes of a prompt with so many tokens each, whose product computes so many GFLOP/s. With weights in L2, its kernel
/// reaches 120 with 128 tokens; the peak is 200.
fn prompt(tokens: u64, gigaflops: f64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let work = Work { flops: 2 * BYTES * tokens, ..weights(BYTES) };
    for _ in 0..10 {
        let pass = profiler.begin_pass(Phase::Prefill);
        let timer = profiler.start("GateProjection");
        hand.advance((work.flops as f64 / gigaflops) as u64);
        profiler.stop_brick_with(timer, work);
        profiler.end_pass(pass, tokens, 0);
    }
    let mut profile = profiler.profile();
    profile.ceilings = Some(ceilings());
    profile.machine = None;
    profile.run = Some(Run { backend: "avx512".to_owned(), threads: 1, ..Run::default() });
    let weights = vec![group("ffn_gate", "q8_0", BYTES)];
    profile.model = Some(Model { weights, ..Model::default() });
    let kernel = "gemm_q8_0_avx512";
    ran(&mut profile, kernel);
    // Two operations for each weight, which is a byte here, and token.
    let of_one = pace(kernel, 120.0 / 2.0 / 128.0);
    measured(&mut profile, KernelPace { tokens: Some(128), level: "L2".to_owned(), ..of_one });
    profile
}

#[test]
fn kernels_of_a_prompt_have_a_pace_too() {
    let of = |profile: &Profile| Roofline::of(profile, Phase::Prefill).expect("ceilings");
    let reach = |profile: &Profile| of(profile).verdict().expect("work was stated").reach;
    // Of passes with more tokens than it was measured with, and with fewer.
    for tokens in [512, 100] {
        let profile = prompt(tokens, 110.0);
        let verdict = of(&profile).verdict().expect("work was stated");
        assert_eq!((verdict.reach, verdict.bound), (Reach::Kernel, Bound::Compute));
        let says = "kernel-bound: 110 of 120 GFLOP/s that this code reaches from L2";
        assert_eq!(verdict.says(), says);
        let found = Findings::of(&profile).found;
        let finding = found.iter().find(|of| of.rule == "kernel-bound").expect("it is");
        let helps = format!("prefill is {says}; better code helps up to 1.8 ×; ");
        assert!(finding.sentence().starts_with(&helps), "{}", finding.sentence());
        assert_eq!(finding.evidence[0].text, "products compute 110 GFLOP/s");
        assert!(finding.evidence[1].text.contains("gemm_q8_0_avx512 reached 120 GFLOP/s"));
    }
    // At the machine's limit, and far from both.
    assert_eq!(reach(&prompt(512, 190.0)), Reach::At);
    assert_eq!(reach(&prompt(512, 60.0)), Reach::Far);
    // So few tokens are multiplied slower.
    let few = prompt(64, 110.0);
    assert_eq!(reach(&few), Reach::Far);
    let why = of(&few).pace_absent.expect("a reason").reason;
    assert!(why.starts_with("The pace of its kernels was measured with 128 tokens"), "{why}");
    // A file of an earlier version.
    let mut earlier = prompt(512, 110.0);
    earlier.ceilings.as_mut().expect("ceilings").paces.clear();
    assert_eq!((reach(&earlier), of(&earlier).pace_absent), (Reach::Far, None));
}
