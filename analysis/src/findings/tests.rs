//! Runs with a planted bottleneck each, and clean ones.

mod devices;
mod experts;
mod imported;
mod prefill;
mod servers;

use brickscope::{BrickId, BrickProfiler, MockClock, Pass};
use brickscope_profile::{
    CacheCeiling, CeilingReading, Ceilings, Data, Disturbance, Machine, Model, OtherLoad,
    PairedRatio, ReadingTime, Run, Share, ThreadShare, WeightGroup, Work,
};

use super::*;

/// A pass of the runs below, in nanoseconds: without what is planted, at 95 % of what memory gives.
const PASS: u64 = LAYERS as u64 * 2 * BRICK;
const LAYERS: u16 = 4;
const BRICK: u64 = 1_000_000;

/// What a run has that a clean one has not.
#[derive(Default)]
struct Planted {
    /// Between passes.
    gap_ns: u64,
    /// In each pass, in no brick.
    unattributed_ns: u64,
    sampling_ns: u64,
    /// What one brick of layer 2 takes more.
    slow_layer_ns: u64,
    /// What one span of pass 20 takes more.
    stall_ns: u64,
    /// What attention takes for each token in the cache.
    attention_ns: u64,
    /// The bytes of a brick are this part of what memory gives in its time.
    of_roof: Option<f64>,
}

/// Forty decode passes of four layers with two bricks each, under ceilings of 50 GB/s.
fn run(planted: &Planted) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let bytes = (planted.of_roof.unwrap_or(0.95) * 50.0 * BRICK as f64) as u64;
    let weights = Work { elements: 1, flops: bytes / 2, bytes, data: Data::Weights(bytes) };
    for position in 0..40 {
        let pass = profiler.begin_pass(Phase::Decode);
        hand.advance(1_000 + planted.unattributed_ns);
        for layer in 0..LAYERS {
            let in_layer = profiler.begin_layer(layer);
            for brick in [BrickId::QkvProjection, BrickId::DownProjection] {
                let is_slow = layer == 2 && brick == BrickId::DownProjection;
                let is_stall = position == 20 && layer == 1 && brick == BrickId::QkvProjection;
                let timer = profiler.start_brick(brick);
                // A little noise, as clocks have.
                hand.advance(BRICK + 17 * (position % 5));
                hand.advance(if is_slow { planted.slow_layer_ns } else { 0 });
                hand.advance(if is_stall { planted.stall_ns } else { 0 });
                profiler.stop_brick_with(timer, weights);
            }
            if planted.attention_ns > 0 {
                let timer = profiler.start_brick(BrickId::AttentionScore);
                hand.advance(planted.attention_ns * (100 + position));
                let kv = Work { data: Data::Kv(1_000), flops: 10, bytes: 1_000, elements: 1 };
                profiler.stop_brick_with(timer, kv);
            }
            profiler.end_layer(in_layer);
        }
        if planted.sampling_ns > 0 {
            let timer = profiler.start_brick(BrickId::Sampling);
            hand.advance(planted.sampling_ns);
            profiler.stop_brick(timer, 1);
        }
        profiler.end_pass(pass, 1, position);
        hand.advance(planted.gap_ns);
    }
    let mut profile = profiler.profile();
    profile.machine = None;
    profile.ceilings = Some(ceilings());
    profile
}

fn ceilings() -> Ceilings {
    Ceilings {
        read_bytes_per_second: 50e9,
        flops_per_second: 400e9,
        caches: vec![CacheCeiling {
            level: "L1".to_owned(),
            bytes: 64_000,
            read_bytes_per_second: 400e9,
        }],
        ..Ceilings::default()
    }
}

/// The first finding that isn't a limit of the machine.
fn first(profile: &Profile) -> Finding {
    let findings = Findings::of(profile);
    let first = findings.found.iter().find(|finding| finding.kind != FindingKind::Limit);
    first.unwrap_or_else(|| panic!("nothing was found: {findings:?}")).clone()
}

/// What was planted is within the prediction, and within 15 % of what is likeliest, if anything is.
fn assert_predicts(finding: &Finding, planted_ns: f64) {
    let gain = finding.gain.expect("a prediction");
    let around = 1.0 - 1e-9..=1.0 + 1e-3;
    assert!(
        gain.lowest_ns <= planted_ns * around.end()
            && gain.highest_ns >= planted_ns * around.start() * 0.999,
        "{planted_ns} is not in {gain:?}"
    );
    if let Some(likely) = gain.likely_ns {
        assert!((likely / planted_ns - 1.0).abs() < 0.15, "{likely} for {planted_ns}");
    }
}

#[test]
fn a_clean_run_at_the_roof_has_only_a_limit() {
    let findings = Findings::of(&run(&Planted::default()));
    let rules: Vec<_> = findings.found.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["memory-roof"]);
}

#[test]
fn a_clean_run_without_ceilings_has_nothing_and_says_why() {
    let mut profile = run(&Planted::default());
    profile.ceilings = None;
    let findings = Findings::of(&profile);
    assert_eq!(findings.found, []);
    assert!(
        findings.unknown.iter().any(|unknown| unknown.rule == "far-from-the-roof"),
        "{findings:?}"
    );
}

#[test]
fn gaps_between_passes() {
    let finding = first(&run(&Planted { gap_ns: 900_000, ..Planted::default() }));
    assert_eq!(finding.rule, "gaps-between-passes");
    assert_predicts(&finding, 900_000.0);
}

#[test]
fn time_in_no_brick() {
    let finding = first(&run(&Planted { unattributed_ns: PASS / 4, ..Planted::default() }));
    assert_eq!((finding.rule, finding.kind), ("unattributed", FindingKind::Doubt));
    assert_predicts(&finding, PASS as f64 / 4.0);
}

#[test]
fn a_slow_sampler() {
    let finding = first(&run(&Planted { sampling_ns: 700_000, ..Planted::default() }));
    assert_eq!(finding.rule, "slow-sampling");
    assert_predicts(&finding, 700_000.0);
}

#[test]
fn one_slow_layer() {
    let finding = first(&run(&Planted { slow_layer_ns: 1_500_000, ..Planted::default() }));
    assert_eq!(finding.rule, "slow-layer");
    assert!(finding.what.starts_with("DownProjection of layer 2"), "{}", finding.what);
    assert_predicts(&finding, 1_500_000.0);
}

#[test]
fn a_stall() {
    let planted = Planted { stall_ns: 12 * PASS, ..Planted::default() };
    let finding = first(&run(&planted));
    assert_eq!(finding.rule, "stalls");
    assert!(finding.what.contains("QkvProjection of layer 1"), "{}", finding.what);
    // Of 40 passes it was in one.
    assert_predicts(&finding, 12.0 * PASS as f64 / 40.0);
}

#[test]
fn passes_in_which_threads_shared_a_cpu() {
    let mut profile = run(&Planted::default());
    let slower = |pass: &mut Pass| {
        pass.wall_ns += PASS / 2;
        pass.unattributed_ns += PASS / 2;
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(PASS / 2),
            own_wait_ns: Some(PASS / 2),
            run_queue_wait_ns: Some(PASS / 2),
            ..Disturbance::default()
        });
    };
    profile.passes.iter_mut().step_by(2).for_each(slower);
    let total = profile.phases.iter_mut().find(|total| total.phase == Phase::Decode);
    let total = total.expect("decode");
    total.wall_ns += 20 * PASS / 2;
    total.unattributed_ns += 20 * PASS / 2;
    total.disturbed = 20;
    let finding = first(&profile);
    assert_eq!(finding.rule, "threads-share-a-cpu");
    // Every other pass takes half a pass longer.
    assert_predicts(&finding, PASS as f64 / 4.0);

    // Where there are fewer CPUs than threads, those that waited for none had fewer, too.
    let mut few = profile.clone();
    few.run = Some(Run { threads: 2, ..Run::default() });
    few.machine = Some(Machine { logical_cpus: Some(1), ..Machine::default() });
    few.ceilings = None;
    let finding = first(&few);
    assert_eq!(finding.rule, "threads-share-a-cpu");
    let gain = finding.gain.expect("a prediction");
    let pass = PASS as f64;
    assert_eq!(gain.likely_ns, None);
    assert!((gain.lowest_ns - pass / 4.0).abs() < 1_000.0, "{gain:?}");
    assert!((gain.highest_ns - pass * 0.75).abs() < 1_000.0, "{gain:?}");

    // Other programs push threads together that would have a CPU each. They are what to stop, and not said to have had it.
    profile.machine = Some(Machine { logical_cpus: Some(2), ..Machine::default() });
    profile.other_load =
        Some(OtherLoad { machine_ns: 200, own_ns: 80, others_ns: 120, steal_ns: None });
    let finding = first(&profile);
    assert_eq!(finding.rule, "other-programs");
    assert!(finding.what.starts_with("threads shared a CPU in 20 of 40 "), "{}", finding.what);
    let advice = "stop other programs, which used 60.0 % of the CPU time: beside them threads shared a CPU in 20 of 40 passes";
    assert!(finding.advice.starts_with(advice), "{}", finding.advice);
}

#[test]
fn threads_that_share_unevenly() {
    let mut profile = run(&Planted::default());
    for (thread, worked_ns, waited_ns) in [(0, 20 * PASS, 20 * PASS), (1, 40 * PASS, 0)] {
        let share = Share { count: 40, worked_ns, waited_ns };
        let brick = "QkvProjection".to_owned();
        profile.shares.push(ThreadShare { thread, phase: Phase::Decode, brick, share });
    }
    // At the roof nothing could be gained.
    profile.ceilings = None;
    let finding = first(&profile);
    assert_eq!(finding.rule, "threads-wait");
    // The slowest works 40 passes, with even shares 30: a quarter of each of 40 passes.
    assert_predicts(&finding, PASS as f64 / 4.0);
}

#[test]
fn a_long_context_has_its_slope() {
    let findings = Findings::of(&run(&Planted { attention_ns: 10_000, ..Planted::default() }));
    let found = findings.found.iter().find(|finding| finding.rule == "long-context");
    let found = found.unwrap_or_else(|| panic!("{findings:?}"));
    // Four layers with 10 µs a token each.
    assert!(found.evidence.iter().any(|evidence| evidence.text.contains("40.0 µs")), "{found:?}");
    assert_eq!(found.kind, FindingKind::Slow);
}

#[test]
fn bricks_far_from_the_roof() {
    let finding = first(&run(&Planted { of_roof: Some(0.3), ..Planted::default() }));
    assert_eq!(finding.rule, "far-from-the-roof");
    assert_predicts(&finding, 0.7 * PASS as f64);
}

#[test]
fn what_slow_memory_explains_is_no_finding() {
    let mut profile = run(&Planted { of_roof: Some(0.4), ..Planted::default() });
    assert_eq!(first(&profile).rule, "far-from-the-roof");
    let mut remember = |rates: [f64; 4]| {
        let reading = |read_bytes_per_second| CeilingReading {
            when: ReadingTime::Kept,
            measured: String::new(),
            read_bytes_per_second,
            disturbed: false,
        };
        let ceilings = profile.ceilings.as_mut().expect("ceilings");
        ceilings.readings = rates.map(reading).to_vec();
        Findings::of(&profile)
    };
    // 20 GB/s are 67 % of the slower speed.
    let findings = remember([50e9, 30e9, 50e9, 30e9]);
    assert_eq!(findings.found, []);
    let unknown = |unknown: &&Unknown| unknown.rule == "far-from-the-roof";
    let why = &findings.unknown.iter().find(unknown).expect("a reason").why;
    assert!(why.ends_with("memory swung 30 to 50 GB/s: no verdict"), "{why}");
    // And 57 % of this one; no state of any memory is 0.
    for slow in [35e9, 0.0] {
        assert_eq!(remember([50e9, slow, 50e9, slow]).found[0].rule, "far-from-the-roof");
    }
}

#[test]
fn a_mapped_file_where_memory_could_be_faster() {
    let mut profile = run(&Planted { of_roof: Some(0.7), ..Planted::default() });
    let weights_in = Some("mapped file".to_owned());
    profile.model = Some(Model { weights_in, ..Model::default() });
    let finding = first(&profile);
    assert_eq!(finding.rule, "mapped-weights");
    assert_predicts(&finding, 0.3 * PASS as f64);
}

#[test]
fn a_debug_build_comes_before_all_else() {
    let mut profile = run(&Planted { slow_layer_ns: 1_500_000, ..Planted::default() });
    profile.overhead.basis = "measured at start-up (a debug build), times the spans".to_owned();
    assert_eq!(first(&profile).rule, "debug-build");
    // Who only asks a server times that one's work.
    let mut client = Profile::empty(Default::default());
    client.overhead.basis.clone_from(&profile.overhead.basis);
    assert_eq!(Findings::of(&client).found, []);
}

#[test]
fn a_profiler_that_costs_more_than_a_hundredth() {
    let mut profile = run(&Planted::default());
    // At the roof nothing could be gained.
    profile.ceilings = None;
    let pairs: Vec<_> = (0..40).map(|n| (100.0, 110.0 + f64::from(n % 3))).collect();
    profile.overhead.measured = PairedRatio::new(&pairs).ok();
    let finding = first(&profile);
    assert_eq!(finding.rule, "profiling-cost");
    assert_predicts(&finding, PASS as f64 * (1.0 - 1.0 / 1.11));
    // An estimate is no prediction.
    profile.overhead.measured = None;
    (profile.overhead.spans, profile.overhead.span_ns) = (400, Some(100_000.0));
    let finding = first(&profile);
    assert_eq!((finding.rule, finding.gain), ("profiling-cost", None));
    // Only what this run has been told can be left out.
    assert!(!finding.advice.contains("--"), "{}", finding.advice);
    profile.run.get_or_insert_default().command = vec!["--tiles".to_owned()];
    let finding = first(&profile);
    assert_eq!(finding.advice, "run it without --tiles");
    profile.overhead.span_ns = None;
    // Cheap recording is not worth a word.
    let pairs: Vec<_> = (0..40).map(|n| (1_000.0, 1_001.0 + f64::from(n % 3))).collect();
    profile.overhead.measured = PairedRatio::new(&pairs).ok();
    assert_eq!(Findings::of(&profile).found, []);
}

#[test]
fn smaller_weights_where_decode_is_at_the_roof() {
    let mut profile = run(&Planted::default());
    // 8.5 bits a weight, as q8_0 has.
    profile.model = Some(Model {
        quantization: "q8_0".to_owned(),
        file_bytes: 8_500_000,
        parameters: 8_000_000,
        ..Model::default()
    });
    let findings = Findings::of(&profile);
    let found = &findings.found[0];
    assert_eq!((found.rule, found.kind), ("memory-roof", FindingKind::Limit));
    let fewer = (1.0 - 4.5 / 8.5) * 0.95 * PASS as f64;
    assert_predicts(found, fewer);
}

#[test]
fn the_tensors_that_weigh_most_are_named_and_only_large_matrices_shrink() {
    let mut profile = run(&Planted::default());
    // A pass reads 8 bricks of 47.5 MB.
    let all = (LAYERS as u64 * 2) * 47_500_000;
    let group = |name: &str, format: &str, is_matrix, parameters, bytes| WeightGroup {
        name: name.to_owned(),
        format: format.to_owned(),
        is_matrix,
        tensors: 4,
        parameters,
        bytes,
    };
    let (large, small) = (all / 2, all / 2 - 1_000_000);
    profile.model = Some(Model {
        weights: vec![
            group("ffn_up", "f16", true, large / 2, large),
            group("ffn_down", "q4_k", true, small / 9 * 16, small),
            group("ffn_norm", "f32", false, 250_000, 1_000_000),
            // It is only looked up.
            group("token_embd", "f16", true, 10_000_000, 20_000_000),
            group("output", "q4_k", true, 160, 90),
        ],
        ..Model::default()
    });
    let findings = Findings::of(&profile);
    let found = &findings.found[0];
    assert_eq!(found.rule, "memory-roof");
    let fewer = 0.5 * (1.0 - 4.5 / 16.0);
    assert_predicts(found, fewer * PASS as f64);
    let evidence: Vec<&str> = found.evidence.iter().map(|of| of.text.as_str()).collect();
    assert!(evidence[2].contains("ffn_up 190 MB (f16), 50 %; ffn_down"), "{evidence:?}");
    // 125 tokens/s now.
    assert!(evidence.last().expect("some").contains("instead of 125 tokens/s"), "{evidence:?}");
    // All small: nothing to predict.
    let model = profile.model.as_mut().expect("a model");
    model.weights[0].parameters = large / 9 * 16;
    let found = &Findings::of(&profile).found[0];
    let why = &found.gain_absent.as_ref().expect("a reason").reason;
    assert_eq!(why, "the weights are small already");
}

#[test]
fn threads_are_only_judged_by_a_sweep() {
    let mut profile = run(&Planted::default());
    profile.run = Some(Run { threads: 1, ..Run::default() });
    let findings = Findings::of(&profile);
    assert!(
        findings.unknown.iter().any(|unknown| unknown.rule == "number-of-threads"),
        "{findings:?}"
    );
}

/// A trial of 2 threads that saves `saved` of decode.
fn trial_of_threads(threads: u32, saved: f64, rule: Option<&str>) -> brickscope_profile::Trial {
    let pairs: Vec<_> = (0..8).map(|n| (100.0, 100.0 * (1.0 - saved) + f64::from(n % 2))).collect();
    let question = crate::trial::Question {
        change: Change::Threads(threads),
        phase: Phase::Decode,
        time: PassTime::Typical,
        rule: rule.map(str::to_owned),
        predicted: rule.map(|_| [saved; 3]),
    };
    question.answer_times(&pairs, None).expect("enough pairs")
}

#[test]
fn another_number_of_threads_is_faster_by_a_sweep() {
    let mut profile = run(&Planted { of_roof: Some(0.4), ..Planted::default() });
    let backend = "avx2".to_owned();
    profile.run = Some(Run { threads: 1, backend, ..Run::default() });
    profile.trials = vec![trial_of_threads(2, 0.4, None), trial_of_threads(4, 0.1, None)];
    let finding = first(&profile);
    assert_eq!(finding.rule, "number-of-threads");
    assert_eq!(finding.change, Some(Change::Threads(2)));
    assert_predicts(&finding, 0.4 * PASS as f64);
    // Tried: the next sweep counts, and the trial of the finding doesn't.
    profile.trials.push(trial_of_threads(2, 0.4, Some("number-of-threads")));
    let tried = first(&profile).tried.expect("it was tried");
    assert_eq!(tried.verdict, TrialVerdict::Confirmed);
    // If none is faster there is nothing to say.
    profile.trials = vec![trial_of_threads(2, -0.1, None)];
    let findings = Findings::of(&profile);
    let rules =
        |findings: &Findings| findings.found.iter().map(|found| found.rule).collect::<Vec<_>>();
    assert!(!rules(&findings).contains(&"number-of-threads"), "{findings:?}");
    assert!(findings.unknown.iter().all(|unknown| unknown.rule != "number-of-threads"));
}

#[test]
fn what_was_refuted_comes_last() {
    let mut profile = run(&Planted { sampling_ns: 900_000, gap_ns: 400_000, ..Planted::default() });
    let rules = |profile: &Profile| {
        let found = Findings::of(profile).found;
        found.iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(&profile)[..2], ["slow-sampling", "gaps-between-passes"]);
    profile.trials = vec![trial_of_threads(1, -0.01, Some("slow-sampling"))];
    let refuted = rules(&profile);
    assert_eq!(refuted[0], "gaps-between-passes");
    assert_eq!(refuted.last(), Some(&"slow-sampling"));
}

/// Of every other pass, or of each.
fn with_faults(every: usize, page_faults: u64, disk_faults: u64, longer_ns: u64) -> Profile {
    let mut profile = run(&Planted { of_roof: Some(0.5), ..Planted::default() });
    let total = profile.phases.iter_mut().find(|total| total.phase == Phase::Decode);
    let total = total.expect("decode");
    for (nth, pass) in profile.passes.iter_mut().enumerate() {
        let has_faults = nth.is_multiple_of(every);
        let longer = if has_faults { longer_ns } else { 0 };
        pass.wall_ns += longer;
        pass.unattributed_ns += longer;
        total.wall_ns += longer;
        total.unattributed_ns += longer;
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(0),
            page_faults: Some(if has_faults { page_faults } else { 0 }),
            disk_faults: Some(if has_faults { disk_faults } else { 0 }),
            ..Disturbance::default()
        });
    }
    profile
}

#[test]
fn weights_that_are_read_from_a_disk() {
    // Half of the passes wait for 3 ms, those without faults tell how long they take.
    let finding = first(&with_faults(2, 3, 40, 600_000));
    assert_eq!(finding.rule, "disk-reads");
    assert_predicts(&finding, 300_000.0);
    // No pass without faults: at most up to the roof.
    let finding = first(&with_faults(1, 3, 40, 600_000));
    assert_eq!(finding.rule, "disk-reads");
    assert_predicts(&finding, 600_000.0);
}

#[test]
fn memory_that_is_mapped_in_each_pass() {
    let finding = first(&with_faults(2, 5_000, 0, 700_000));
    assert_eq!(finding.rule, "page-faults");
    assert_predicts(&finding, 350_000.0);
    // A few faults are no finding.
    assert_ne!(first(&with_faults(2, 20, 0, 0)).rule, "page-faults");
}

#[test]
fn weights_in_small_pages() {
    let mut profile = run(&Planted { of_roof: Some(0.7), ..Planted::default() });
    let weights_in = Some("memory, in small pages, rows interleaved".to_owned());
    profile.model = Some(Model { weights_in, ..Model::default() });
    let command = vec!["profile".to_owned(), "--small-pages".to_owned()];
    profile.run = Some(Run { backend: "avx2".to_owned(), command, ..Run::default() });
    let finding = first(&profile);
    assert_eq!((finding.rule, &finding.change), ("small-pages", &Some(Change::LargePages)));
    assert_eq!(finding.test.as_deref(), Some("brickscope try RUN small-pages"));
    assert_predicts(&finding, 0.3 * PASS as f64);
    // Where the system gave none, no flag would change it, even if memory was slower right after the run.
    profile.ceilings.as_mut().expect("ceilings").readings.push(CeilingReading {
        when: ReadingTime::After,
        measured: String::new(),
        read_bytes_per_second: 45e9,
        disturbed: false,
    });
    profile.run = Some(Run { backend: "avx2".to_owned(), ..Run::default() });
    let finding = first(&profile);
    assert_eq!((finding.rule, finding.change), ("small-pages", None));
    // How much there is to gain is not known of a memory that swings.
    let readings = &mut profile.ceilings.as_mut().expect("ceilings").readings;
    let after = CeilingReading { read_bytes_per_second: 33e9, ..readings[0].clone() };
    readings[0].read_bytes_per_second = 50e9;
    readings.push(after);
    let findings = Findings::of(&profile);
    assert_eq!(findings.found, []);
    let why = findings.unknown.iter().find(|unknown| unknown.rule == "small-pages");
    assert!(why.is_some_and(|of| of.why.ends_with("swung 33 to 50 GB/s: no verdict")), "{why:?}");
}
