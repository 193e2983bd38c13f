//! Prompts, and threads.

use brickscope_profile::PhaseTotal;

use super::*;

/// A brick of a prompt: its milliseconds, GFLOPs, and megabytes of weights.
type Product = (BrickId, u64, u64, u64);

/// Ten prompts of so many tokens, under ceilings of 50 GB/s and 400 GFLOP/s.
fn run(tokens: u64, products: &[Product], formats: &[(&str, &str)]) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for _ in 0..10 {
        let pass = profiler.begin_pass(Phase::Prefill);
        for &(brick, ms, gflop, mb) in products {
            let timer = profiler.start_brick(brick);
            hand.advance(ms * 1_000_000);
            let bytes = mb * 1_000_000;
            let flops = gflop * 1_000_000_000;
            let work = Work { elements: 1, flops, bytes, data: Data::Weights(bytes) };
            profiler.stop_brick_with(timer, work);
        }
        profiler.end_pass(pass, tokens, 0);
        hand.advance(1_000_000);
    }
    let mut profile = profiler.profile();
    profile.machine = None;
    profile.ceilings = Some(ceilings());
    let group = |&(name, format): &(&str, &str)| WeightGroup {
        name: name.to_owned(),
        format: format.to_owned(),
        is_matrix: true,
        tensors: 1,
        parameters: 1_000,
        bytes: 600,
    };
    let weights = formats.iter().map(group).collect();
    profile.model = Some(Model { weights, ..Model::default() });
    profile
}

fn of_rule(findings: &Findings, rule: &str) -> Option<Finding> {
    findings.found.iter().find(|finding| finding.rule == rule).cloned()
}

const FORMATS: [(&str, &str); 3] = [("ffn_gate", "q8_0"), ("ffn_up", "q8_0"), ("ffn_down", "q4_k")];
const RULES: [&str; 3] = ["short-batch", "slow-product", "slow-format"];

#[test]
fn a_prompt_that_computes_well_has_none_of_these() {
    let (gate, down) = (BrickId::GateProjection, BrickId::DownProjection);
    let findings = Findings::of(&run(512, &[(gate, 100, 38, 100), (down, 100, 37, 100)], &FORMATS));
    for rule in RULES {
        assert_eq!(of_rule(&findings, rule), None);
    }
}

#[test]
fn a_short_prompt_reads_matrices_for_few_tokens() {
    // 2 FLOPs for each byte, where 8 are the ridge.
    let products =
        [(BrickId::GateProjection, 100, 9, 4_500), (BrickId::UpProjection, 100, 9, 4_500)];
    let findings = Findings::of(&run(4, &products, &FORMATS));
    let found = of_rule(&findings, "short-batch").unwrap_or_else(|| panic!("{findings:#?}"));
    assert!(found.advice.contains("about 16 on"), "{}", found.advice);
    // As a part of such a batch: 18 GFLOP of 400 a second.
    let gain = found.gain.expect("a prediction");
    assert!((gain.highest_ns - 155e6).abs() < 1e3, "{gain:?}");
    assert_eq!(found.kind, FindingKind::Limit);
}

#[test]
fn a_product_that_is_slower_than_another_of_its_format() {
    let products = [
        (BrickId::GateProjection, 100, 36, 100),
        (BrickId::UpProjection, 200, 36, 100),
        (BrickId::DownProjection, 100, 36, 100),
    ];
    let findings = Findings::of(&run(512, &products, &FORMATS));
    let found = of_rule(&findings, "slow-product").unwrap_or_else(|| panic!("{findings:#?}"));
    assert!(found.what.starts_with("UpProjection computes slower than Gate"), "{}", found.what);
    assert_predicts(&found, 100e6);
    // Of formats that nobody knows, nothing is said.
    let findings = Findings::of(&run(512, &products, &[]));
    assert_eq!(of_rule(&findings, "slow-product"), None);
}

#[test]
fn what_is_found_in_a_prompt_says_so_beside_decode() {
    let products = [
        (BrickId::GateProjection, 100, 36, 100),
        (BrickId::UpProjection, 200, 36, 100),
        (BrickId::DownProjection, 100, 36, 100),
    ];
    let mut profile = run(512, &products, &FORMATS);
    // As long, so that the prompt is part of the run to speak of.
    let decode = PhaseTotal { phase: Phase::Decode, ..profile.phases[0] };
    profile.phases.push(decode);
    let found = of_rule(&Findings::of(&profile), "slow-product").expect("it is slower");
    let begin = "in prefill, UpProjection computes slower than Gate";
    assert!(found.what.starts_with(begin), "{}", found.what);
}

#[test]
fn a_format_that_is_slower_than_another() {
    let products = [
        (BrickId::GateProjection, 100, 36, 100),
        (BrickId::UpProjection, 100, 36, 100),
        (BrickId::DownProjection, 200, 36, 100),
    ];
    let findings = Findings::of(&run(512, &products, &FORMATS));
    let found = of_rule(&findings, "slow-format").unwrap_or_else(|| panic!("{findings:#?}"));
    assert!(found.what.contains("with q4_k reach 50.0 % of the rate of those with q8_0"));
    assert_predicts(&found, 100e6);
    // One format more: its bricks have two, so nothing is said.
    let mut formats = FORMATS.to_vec();
    formats.push(("ffn_down", "q6_k"));
    assert_eq!(of_rule(&Findings::of(&run(512, &products, &formats)), "slow-format"), None);
}

#[test]
fn one_thread_computes_while_the_others_wait() {
    let mut profile = super::run(&Planted::default());
    profile.ceilings = None;
    let shares = |first: [u64; 2], second: [u64; 2]| {
        let share = |thread, [worked, waited]: [u64; 2]| ThreadShare {
            thread,
            phase: Phase::Decode,
            brick: "QkvProjection".to_owned(),
            share: Share { count: 40, worked_ns: worked * PASS, waited_ns: waited * PASS },
        };
        vec![share(0, first), share(1, second)]
    };
    // In each of 40 passes half of the pass.
    profile.shares = shares([20, 0], [0, 20]);
    let finding = first(&profile);
    assert_eq!(finding.rule, "one-thread");
    assert_predicts(&finding, PASS as f64 / 4.0);
    assert_eq!(Findings::of(&profile).found.len(), 1, "threads-wait would say the same");
    // Both work, or the other one doesn't wait.
    for (first, second) in [([20, 0], [19, 1]), ([20, 0], [0, 1])] {
        profile.shares = shares(first, second);
        assert_eq!(of_rule(&Findings::of(&profile), "one-thread"), None);
    }
}

#[test]
fn waits_in_a_prompt_are_at_most_what_threads_waited() {
    let mut profile = run(512, &[(BrickId::GateProjection, 100, 38, 100)], &FORMATS);
    let total = profile.phases.iter_mut().find(|total| total.phase == Phase::Prefill);
    let total = total.expect("prefill");
    for (nth, pass) in profile.passes.iter_mut().enumerate() {
        // The last batches are long by themselves, and others disturbed them a little.
        let waited_ns = if nth < 6 { 0 } else { 2_000_000 };
        let longer = if nth < 6 { 0 } else { 50_000_000 };
        pass.wall_ns += longer;
        pass.unattributed_ns += longer;
        total.wall_ns += longer;
        total.unattributed_ns += longer;
        pass.disturbance = Some(Disturbance {
            passes: 1,
            wall_ns: pass.wall_ns,
            longest_wait_ns: Some(waited_ns),
            own_wait_ns: Some(0),
            run_queue_wait_ns: Some(waited_ns),
            ..Disturbance::default()
        });
    }
    total.disturbed = 4;
    let findings = Findings::of(&profile);
    let found = findings.found.iter().find(|finding| finding.what.contains("4 of 10"));
    let gain = found.unwrap_or_else(|| panic!("{findings:#?}")).gain.expect("a prediction");
    // Four of ten waited 2 ms.
    assert_eq!((gain.lowest_ns, gain.likely_ns), (0.0, None));
    assert!((gain.highest_ns - 800_000.0).abs() < 1.0, "{gain:?}");
}
