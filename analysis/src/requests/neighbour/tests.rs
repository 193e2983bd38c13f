//! What a prompt cost, beside runs of which that is known.

use brickscope_profile::stats::SplitMix64;
use brickscope_profile::{
    ClockInfo, Disturbance, Part, PartKind, Pass, PassPart, Phase, Profile, Request,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Passes without a pause between them. Each ends with a token of every request of which it decodes a part.
#[derive(Debug)]
struct Run {
    profile: Profile,
    now: u64,
}

impl Run {
    fn of(requests: usize) -> Self {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests.resize(requests, Request::default());
        Self { profile, now: 0 }
    }

    fn pass(&mut self, wall_ns: u64, parts: &[Part]) -> &mut Pass {
        let serial = self.profile.passes.len() as u32;
        let has_prompt = parts.iter().any(|part| part.kind == PartKind::Prompt);
        let start_ns = self.now;
        self.now += wall_ns;
        for part in parts {
            if part.kind == PartKind::Decode {
                self.profile.requests[part.request as usize].tokens_ns.push(self.now);
            }
            self.profile.parts.push(PassPart { pass: serial, part: *part });
        }
        self.profile.passes.push(Pass {
            serial,
            phase: if has_prompt { Phase::Prefill } else { Phase::Decode },
            lane: 0,
            tokens: parts.iter().map(|part| part.tokens).sum(),
            position: 0,
            start_ns,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        });
        self.profile.passes.last_mut().expect("it was pushed")
    }

    fn disturbed(&mut self, wall_ns: u64, parts: &[Part]) {
        let longest_wait_ns = Some(wall_ns);
        let by = Disturbance { passes: 1, wall_ns, longest_wait_ns, ..Disturbance::default() };
        self.pass(wall_ns, parts).disturbance = Some(by);
    }

    /// What prompts cost the last token of the first request.
    fn cost(&self) -> PromptCost {
        assert_eq!(self.profile.check(), Ok(()));
        let requests = Requests::of(&self.profile);
        let last = requests.intervals(0).last().expect("it has tokens");
        WithoutPrompts::of(&requests).cost(&last)
    }
}

/// Nineteen passes at position 100, of 1 to 19 µs.
fn nineteen() -> Run {
    let mut run = Run::of(2);
    for nth in 1..=19 {
        run.pass(1_000 * nth, &[Part::decode(0, 100)]);
    }
    run
}

const PROMPT: Part =
    Part { request: 1, kind: PartKind::Prompt, tokens: 500, position: 0, cached: 0 };

#[test]
fn a_cost_is_what_a_pass_took_beyond_the_median_of_those_without_the_prompt() {
    let mut run = nineteen();
    // None of these is like it: too far on, not far enough, of two tokens, for a prompt.
    run.pass(1, &[Part::decode(0, 126)]);
    run.pass(1, &[Part::decode(0, 74)]);
    run.pass(1, &[Part::decode(0, 50), Part::decode(1, 50)]);
    run.pass(1, &[Part { tokens: 2, ..Part::decode(0, 100) }]);
    run.pass(1, &[PROMPT]);
    // Nor one whose bricks were timed.
    let timed = run.pass(1, &[Part::decode(0, 100)]);
    (timed.attributed_ns, timed.unattributed_ns) = (1, 0);
    run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
    let expected = Cost {
        cost_ns: 90_000,
        low_ns: 81_000,
        high_ns: 99_000,
        coverage: 18.0 / 20.0,
        beside: 19,
    };
    assert!(expected.is_distinct());
    let cost = PromptCost { shared: Some(Ok(expected)), alone_ns: 0 };
    assert_eq!(run.cost(), cost);
}

#[test]
fn an_interval_is_as_narrow_as_it_may_be_and_says_how_often_it_is_right() {
    let of = |n: u64| {
        let cost = Cost::of(0, (1..=n).rev().collect());
        (-cost.high_ns, -cost.cost_ns, -cost.low_ns, cost.coverage)
    };
    assert_eq!(of(5), (1, 3, 5, 4.0 / 6.0));
    assert_eq!(of(18), (1, 9, 18, 17.0 / 19.0));
    assert_eq!(of(38), (1, 19, 38, 37.0 / 39.0));
    assert_eq!(of(39), (2, 20, 38, 36.0 / 40.0));
    assert_eq!(of(50), (2, 25, 49, 47.0 / 51.0));
}

#[test]
fn a_cost_may_be_below_0_and_is_not_told_from_it() {
    let mut run = nineteen();
    run.pass(9_000, &[Part::decode(0, 100), PROMPT]);
    let cost = run.cost().shared.expect("a pass was shared").expect("nineteen are like it");
    assert_eq!((cost.cost_ns, cost.low_ns, cost.high_ns), (-1_000, -10_000, 8_000));
    assert!(!cost.is_distinct());
}

#[test]
fn disturbed_passes_count_where_too_few_others_are_there() {
    let of = |clean: u64| {
        let mut run = Run::of(2);
        (0..10).for_each(|_| run.disturbed(7_000, &[Part::decode(0, 100)]));
        for _ in 0..clean {
            run.pass(1_000, &[Part::decode(0, 100)]);
        }
        run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
        let cost = run.cost().shared.expect("a pass was shared").expect("enough are like it");
        (cost.cost_ns, cost.beside)
    };
    assert_eq!(of(5), (99_000, 5));
    assert_eq!(of(4), (93_000, 14));
}

#[test]
fn where_no_pass_is_like_it_that_is_said() {
    let of = |alike: u64| {
        let mut run = Run::of(2);
        for _ in 0..alike {
            run.pass(1_000, &[Part::decode(0, 100)]);
        }
        run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
        let why = run.cost().shared.expect("a pass was shared").expect_err("too few");
        why.to_string()
    };
    let said = "4 passes of this run have as many decode tokens at like positions and no prompt, 5 are needed";
    assert_eq!(of(4), said);
    assert!(of(1).starts_with("1 pass of this run has as many"), "{}", of(1));
    assert!(of(0).starts_with("no pass of this run has"), "{}", of(0));

    // A first token, beside whose prompt there is another one.
    let mut run = nineteen();
    run.profile.requests.push(Request { arrived_ns: run.now, ..Request::default() });
    run.pass(50_000, &[Part::prompt(2, 40, 0), PROMPT]);
    run.profile.requests[2].tokens_ns.push(run.now);
    let requests = Requests::of(&run.profile);
    let first = requests.intervals(2).next().expect("its first token");
    let cost = WithoutPrompts::of(&requests).cost(&first);
    assert_eq!(cost, PromptCost { shared: Some(Err(NotKnown::OwnPrompt)), alone_ns: 0 });
}

#[test]
fn passes_for_prompts_alone_are_measured_and_kept_apart() {
    let mut run = nineteen();
    run.pass(30_000, &[PROMPT]);
    run.pass(9_000, &[Part::decode(0, 100)]);
    assert_eq!(run.cost(), PromptCost { shared: None, alone_ns: 30_000 });

    run.pass(30_000, &[PROMPT]);
    run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
    let PromptCost { shared, alone_ns } = run.cost();
    let cost = shared.expect("a pass was shared").expect("twenty are like it");
    assert_eq!((cost.cost_ns, cost.beside, alone_ns), (91_000, 20, 30_000));
}

#[test]
fn two_passes_of_one_token_are_added_and_their_interval_is_right_less_often() {
    let mut run = nineteen();
    run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
    // It has no text.
    run.profile.requests[0].tokens_ns.pop();
    run.pass(200_000, &[Part::decode(0, 100), PROMPT]);
    let cost = run.cost().shared.expect("passes were shared").expect("nineteen are like them");
    assert_eq!((cost.cost_ns, cost.low_ns, cost.high_ns), (280_000, 262_000, 298_000));
    assert!((cost.coverage - 0.8).abs() < 1e-9, "{cost:?}");
    assert_eq!(cost.beside, 19);
}

#[test]
fn a_pass_in_the_time_of_two_tokens_counts_once() {
    let mut run = nineteen();
    run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
    run.pass(1_000, &[Part::decode(0, 100)]);
    // The token before was sent when a quarter of the long pass was over.
    run.profile.requests[0].tokens_ns[18] += 25_000;
    let requests = Requests::of(&run.profile);
    let without = WithoutPrompts::of(&requests);
    let costs: Vec<_> = requests.intervals(0).map(|of| without.cost(&of).shared).collect();
    assert_eq!(costs.len(), 21);
    let known: Vec<_> = (0..).zip(&costs).filter(|(_, of)| matches!(of, Some(Ok(_)))).collect();
    assert!(matches!(known[..], [(19, _)]), "{costs:?}");
}

#[test]
fn tokens_together_have_each_pass_once_and_each_reason_with_its_number() {
    let mut run = nineteen();
    run.pass(100_000, &[Part::decode(0, 100), PROMPT]);
    run.pass(120_000, &[Part::decode(0, 100), PROMPT]);
    run.pass(90_000, &[Part::decode(0, 900), PROMPT]);
    run.pass(1_000, &[Part::decode(0, 2_000)]);
    run.pass(90_000, &[Part::decode(0, 2_000), PROMPT]);
    run.pass(30_000, &[PROMPT]);
    run.pass(1_000, &[Part::decode(0, 2_000)]);
    let requests = Requests::of(&run.profile);
    let caused = |interval| Caused { interval, cause: Cause::Prompts, more_ns: 1 };
    let slow: Vec<Caused> = requests.intervals(0).skip(19).map(caused).collect();
    // What has another cause isn't asked for.
    let own = slow.iter().map(|of| Caused { cause: Cause::Own, ..*of });
    let slow: Vec<Caused> = slow.iter().copied().chain(own).collect();
    let costs = Costs::of(&WithoutPrompts::of(&requests), &slow);
    let known: Vec<i64> = costs.known.iter().map(|cost| cost.cost_ns).collect();
    assert_eq!((known, costs.beside), (vec![90_000, 110_000], 19));
    assert_eq!(costs.not_known, [(NotKnown::FewPasses(2), 2), (NotKnown::NoPass, 1)]);
    assert_eq!(costs.alone_ns, [30_000]);
    assert_eq!([costs.percentile(50), costs.percentile(95)], [Some(90_000), Some(110_000)]);
    assert_eq!(Costs::default().percentile(50), None);
}

/// Passes of up to three requests, some with a prompt of a fourth, some disturbed.
fn runs() -> impl Strategy<Value = Profile> {
    let decodes = vec((1..3_u64, 0..200_u64), 1..4);
    vec((decodes, any::<bool>(), any::<bool>(), 1..1_000_u64), 1..80).prop_map(|passes| {
        let mut run = Run::of(4);
        for (decodes, has_prompt, is_disturbed, wall_ns) in passes {
            let decode =
                |(request, (tokens, position))| Part { tokens, ..Part::decode(request, position) };
            let mut parts: Vec<Part> = (0..).zip(decodes).map(decode).collect();
            parts.extend(has_prompt.then(|| Part::prompt(3, 64, 0)));
            if is_disturbed {
                run.disturbed(wall_ns, &parts);
            } else {
                run.pass(wall_ns, &parts);
            }
        }
        run.profile
    })
}

proptest! {
    #[test]
    fn passes_that_tell_of_others_have_no_prompt_and_decode_as_much(profile in runs()) {
        let requests = Requests::of(&profile);
        let without = WithoutPrompts::of(&requests);
        let parts_of = |pass: &Pass| {
            let of = profile.parts.iter().filter(|of| of.pass == pass.serial).map(|of| of.part);
            of.collect::<Vec<Part>>()
        };
        let all: Vec<(&Pass, Vec<Part>)> =
            profile.passes.iter().map(|pass| (pass, parts_of(pass))).collect();
        let decodes = |parts: &[Part], field: fn(&Part) -> u64| {
            let of = parts.iter().filter(|part| part.kind == PartKind::Decode);
            of.map(field).sum::<u64>()
        };
        for (pass, own) in &all {
            let tokens = decodes(own, |part| part.tokens);
            let positions = decodes(own, |part| part.position);
            let is_like = |parts: &[Part]| {
                let apart = decodes(parts, |part| part.position).abs_diff(positions);
                parts.iter().all(|part| part.kind == PartKind::Decode)
                    && decodes(parts, |part| part.tokens) == tokens
                    && 4 * apart <= positions
            };
            let alike: Vec<_> = all.iter().filter(|(_, parts)| is_like(parts)).collect();
            match without.like(pass) {
                Ok(found) => {
                    prop_assert!((FEWEST..=MOST).contains(&found.len()));
                    let distinct: HashSet<_> = found.iter().collect();
                    prop_assert_eq!(distinct.len(), found.len());
                    for &nth in &found {
                        prop_assert!(is_like(&all[nth].1));
                    }
                    let clean = alike.iter().filter(|(of, _)| !of.is_disturbed()).count();
                    let n = if clean >= FEWEST { clean } else { alike.len() };
                    prop_assert_eq!(found.len(), n.min(MOST));
                }
                Err(why) => prop_assert_eq!(why, NotKnown::FewPasses(alike.len() as u64)),
            }
        }
    }
}

/// Each pass takes 1 ms, 0.1 ms for a token that it decodes and 0.05 ms for a token of a prompt, and a normal deviation of
/// 0.05 ms. So the cost of each prompt is known without the code that is tested.
#[test]
fn nine_of_ten_intervals_hold_the_true_cost() {
    let mut random = SplitMix64(20_261);
    let mut uniform = || ((random.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    let mut run = Run::of(5);
    let mut true_ns = Vec::new();
    for nth in 0..8_000 {
        let decodes = 1 + (4.0 * uniform()) as u32;
        let prompt = if uniform() < 0.125 { 1 + (512.0 * uniform()) as u64 } else { 0 };
        // Box and Muller, "A note on the generation of random normal deviates", 1958.
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let cost_ns = 50_000 * prompt;
        let without_ns = 1_000_000.0 + 100_000.0 * f64::from(decodes) + 50_000.0 * normal;
        let mut parts: Vec<Part> =
            (0..decodes).map(|request| Part::decode(request, 4_000 + nth)).collect();
        parts.extend((prompt > 0).then(|| Part::prompt(4, prompt, 0)));
        run.pass(without_ns as u64 + cost_ns, &parts);
        true_ns.push(cost_ns as i64);
    }
    let requests = Requests::of(&run.profile);
    let without = WithoutPrompts::of(&requests);
    // The first request has a token by each pass.
    let (mut held, mut of) = (0_u32, 0_u32);
    for (interval, true_ns) in requests.intervals(0).zip(true_ns) {
        let shared = without.cost(&interval).shared.expect("it had a pass, and no other ran");
        let Ok(cost) = shared else {
            assert_eq!((shared, true_ns), (Err(NotKnown::NoPass), 0));
            continue;
        };
        assert!(cost.coverage >= 0.9 && cost.beside == 50, "{cost:?}");
        // Four deviations on each side are far more than it needs.
        assert!(cost.high_ns - cost.low_ns < 400_000, "{cost:?}");
        of += 1;
        held += u32::from((cost.low_ns..=cost.high_ns).contains(&true_ns));
    }
    assert!(of > 800, "{of}");
    let part = f64::from(held) / f64::from(of);
    // As often as it says, 47 of 51, and no more: an interval without bounds would hold all.
    assert!((0.88..0.97).contains(&part), "{held} of {of}");
}
