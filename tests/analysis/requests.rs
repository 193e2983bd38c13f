//! Where the time of requests went, beside a reference that looks at each nanosecond by itself.

use brickscope_analysis::requests::{Cause, Causes, Piece, Requests, Slow, Until};
use brickscope_analysis::view::{self, Size};
use brickscope_profile::{
    ClockInfo, Disturbance, Ending, Part, PartKind, Pass, PassPart, Phase, Preparation, Profile,
    Request, Run,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn pass(serial: u32, start_ns: u64, wall_ns: u64) -> Pass {
    Pass {
        serial,
        phase: Phase::Decode,
        lane: 0,
        tokens: 1,
        position: 0,
        start_ns,
        wall_ns,
        attributed_ns: 0,
        unattributed_ns: wall_ns,
        disturbance: None,
        is_left_out: false,
    }
}

fn request(id: &str, arrived_ns: u64, admitted_ns: Option<u64>, tokens_ns: Vec<u64>) -> Request {
    Request { id: id.to_owned(), arrived_ns, admitted_ns, tokens_ns, ..Request::default() }
}

/// What a nanosecond is of, for a request: the definition, without intervals or sorting.
fn at(profile: &Profile, number: u32, ns: u64) -> Piece {
    let request = &profile.requests[number as usize];
    if request.received_ns.is_some_and(|received| ns < received) {
        return Piece::Receiving;
    }
    if request.admitted_ns.is_some_and(|admitted| ns < admitted) {
        return Piece::Queue;
    }
    let runs = |pass: &&Pass| pass.start_ns <= ns && ns < pass.start_ns + pass.wall_ns;
    let of_pass = |pass: &Pass| {
        let parts: Vec<Part> =
            profile.parts.iter().filter(|of| of.pass == pass.serial).map(|of| of.part).collect();
        let is_own = parts.iter().any(|part| part.request == number);
        let is_for_nobody = parts.iter().any(|part| part.request == Part::NOBODY);
        if is_for_nobody && !profile.parts.iter().any(|of| of.part.request == number) {
            return Piece::Unattributed;
        }
        let others = |kind| parts.iter().any(|part| part.request != number && part.kind == kind);
        match (is_own, others(PartKind::Prompt), others(PartKind::Decode)) {
            (true, false, false) => Piece::OwnAlone,
            (true, true, false) => Piece::OwnBesidePrompts,
            (true, false, true) => Piece::OwnBesideDecode,
            (true, true, true) => Piece::OwnBesideBoth,
            (false, true, false) => Piece::OtherPrompts,
            (false, false, true) => Piece::OtherDecode,
            (false, true, true) => Piece::OtherBoth,
            (false, false, false) => Piece::Unattributed,
        }
    };
    let is_missing = profile.dropped.passes > 0 || profile.passes.is_empty();
    let idle = if is_missing { Piece::Unattributed } else { Piece::Between };
    // Of passes at once, the first in the order of the pieces; one of nobody only where no other runs.
    let running = profile.passes.iter().filter(runs).map(of_pass);
    running.min().unwrap_or(idle)
}

/// Passes that may overlap, requests that come and go at any time, parts of any pass for any request.
fn schedules() -> impl Strategy<Value = Profile> {
    let passes = vec((0..150u64, 0..40u64), 0..12);
    let requests =
        vec((0..100u64, prop::option::of(0..60u64), vec(0..50u64, 0..6), any::<bool>()), 1..6);
    let parts = vec((0..12u32, 0..6u32, any::<bool>(), 1..9u64), 0..24);
    (passes, requests, parts, prop::bool::weighted(0.2)).prop_map(
        |(passes, requests, parts, drops)| {
            let mut profile = Profile::empty(ClockInfo::default());
            profile.dropped.passes = u64::from(drops);
            for (&(start, wall), serial) in passes.iter().zip(1..) {
                profile.passes.push(pass(serial, start, wall));
            }
            for (arrived, waited, gaps, ends) in requests {
                let admitted = waited.map(|waited| arrived + waited);
                let mut now = admitted.unwrap_or(arrived);
                let mut next = |gap: u64| {
                    now += gap;
                    now
                };
                let tokens = gaps.into_iter().map(&mut next).collect();
                let mut request = request("any", arrived, admitted, tokens);
                request.received_ns = ends.then(|| arrived + waited.unwrap_or(0) / 2);
                request.ended_ns = ends.then(|| next(7));
                profile.requests.push(request);
            }
            let [n_passes, n_requests] = [profile.passes.len(), profile.requests.len()];
            for (of, request, is_prompt, tokens) in parts {
                let kind = if is_prompt { PartKind::Prompt } else { PartKind::Decode };
                // One beyond the others stands for somebody who isn't known.
                if (of as usize) < n_passes && (request as usize) <= n_requests {
                    let is_known = (request as usize) < n_requests;
                    let request = if is_known { request } else { Part::NOBODY };
                    let part = Part { request, kind, tokens, position: 0, cached: 0 };
                    profile.parts.push(PassPart { pass: of + 1, part });
                }
            }
            profile
        },
    )
}

proptest! {
    #[test]
    fn each_nanosecond_of_a_request_is_what_the_definition_says(profile in schedules()) {
        prop_assert_eq!(profile.check(), Ok(()));
        let requests = Requests::of(&profile);
        for (request, number) in profile.requests.iter().zip(0..) {
            let mut from = request.arrived_ns;
            let ends = request.tokens_ns.iter().chain(&request.ended_ns);
            let mut intervals = requests.intervals(number);
            for &to in ends {
                let interval = intervals.next().expect("one for each token, and one for the end");
                prop_assert_eq!((interval.from_ns, interval.to_ns), (from, to));
                let mut expected = [0; Piece::ALL.len()];
                (from..to).for_each(|ns| expected[at(&profile, number, ns) as usize] += 1);
                prop_assert_eq!(interval.pieces, expected);
                prop_assert_eq!(interval.pieces.iter().sum::<u64>(), to - from);
                from = to;
            }
            prop_assert!(intervals.next().is_none());
        }
    }
}

/// Two hundred tokens of one request at 10 ms each; beside the 101st and the 151st, 400 ms of somebody's prompt.
fn planted() -> Profile {
    planted_among(|_| 9_000_000)
}

/// The same, where the other passes take what is said.
fn planted_among(wall_ns: impl Fn(u32) -> u64) -> Profile {
    let mut profile = Profile::empty(ClockInfo::default());
    profile.requests.push(request("slow-one", 0, Some(1_000), Vec::new()));
    profile.requests.push(request("long\u{7}prompt", 900_000_000, Some(900_000_000), Vec::new()));
    let mut now = 1_000;
    for nth in 0..200 {
        let is_beside = nth == 100 || nth == 150;
        let wall = if is_beside { 400_000_000 } else { wall_ns(nth) };
        profile.passes.push(pass(nth, now, wall));
        let own =
            if nth == 0 { Part::prompt(0, 12, 0) } else { Part::decode(0, 12 + u64::from(nth)) };
        profile.parts.push(PassPart { pass: nth, part: own });
        if is_beside {
            profile.parts.push(PassPart { pass: nth, part: Part::prompt(1, 2048, 0) });
        }
        now += wall + 1_000_000;
        profile.requests[0].tokens_ns.push(now);
    }
    profile.requests[0].ended_ns = Some(now);
    profile.requests[0].ending = Some(Ending::Length);
    profile
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_neighbour_of_slow_tokens_is_named_with_what_they_have_more() {
    let profile = planted();
    assert_eq!(profile.check(), Ok(()));
    let requests = Requests::of(&profile);
    let slow = Slow::of(&requests, |until| matches!(until, Until::Token(_))).expect("199 tokens");
    assert_eq!((slow.slow, slow.others, slow.least_ns), (1, 198, 401_000_000));
    assert_eq!(slow.pieces[0].0, Piece::OwnBesidePrompts);
    assert_eq!(slow.neighbours[0].request, 1);
    // What is more in each piece is the whole difference.
    let more: f64 = slow.pieces.iter().map(|(_, slow, others)| slow - others).sum();
    assert!((more - (slow.slow_ns - slow.others_ns)).abs() < 1.0, "{slow:?}");

    let text = view::requests(&profile);
    let slowest = "The slowest of 199 further tokens took 401 ms, 389 ms more than the others";
    assert!(unwrapped(&text).contains(slowest), "{text}");
    assert!(unwrapped(&text).contains(r"in this one: long\u{7}prompt (2,048 tokens)."), "{text}");
    assert!(!text.contains('\u{7}'), "{text}");
    // The report has it, too.
    let in_words = view::requests_in_words(&profile).join(" ");
    let said =
        r"the others on average. Prompts of others in this one: long\u{7}prompt (2,048 tokens).";
    assert!(in_words.contains(slowest) && in_words.contains(said), "{in_words}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn whose_prompts_and_tokens_are_meant_is_in_each_name() {
    let names = Piece::ALL.map(Piece::name).into_iter();
    let of_others: Vec<_> =
        names.filter(|name| name.contains("prompts") || name.contains("tokens")).collect();
    assert_eq!(of_others.len(), 6);
    assert!(of_others.iter().all(|name| name.ends_with(" of others")), "{of_others:?}");
}

#[test]
fn time_without_a_pass_is_unattributed_where_passes_are_missing() {
    let mut profile = planted();
    let between = |profile: &Profile| {
        let all = Requests::of(profile);
        let of = |piece| all.all_intervals().map(|interval| interval.of(piece)).sum::<u64>();
        (of(Piece::Between), of(Piece::Unattributed))
    };
    assert_eq!(between(&profile), (200_000_000, 0));
    profile.dropped.abandoned_passes = 1;
    assert_eq!(between(&profile), (0, 200_000_000));
    let text = view::requests(&profile);
    assert!(text.contains("missing: 1 pass, so time without one is unattributed"), "{text}");
}

/// What ran after the last pass that is known may be one that had not ended: nobody knows that none did.
#[test]
fn time_after_the_last_pass_of_a_program_that_goes_on_is_unattributed() {
    let mut profile = planted();
    let cut_short = Some(Run::WHILE_IT_RAN.to_owned());
    profile.run = Some(Run { cut_short, ..Run::default() });
    // The last token took another second, by a pass that is not in this run yet.
    let last = profile.requests[0].tokens_ns.last_mut().expect("it has tokens");
    *last += 1_000_000_000;
    profile.requests[0].ended_ns = None;
    profile.requests[0].ending = None;
    let requests = Requests::of(&profile);
    let last = requests.intervals(0).last().expect("it has tokens");
    assert_eq!((last.of(Piece::Between), last.of(Piece::Unattributed)), (0, 1_001_000_000));
    let all: u64 = requests.all_intervals().map(|interval| interval.of(Piece::Between)).sum();
    assert_eq!(all, 199_000_000);
    let text = view::requests(&profile);
    let said = "a pass that had not ended isn't in this run yet, so time after the last one is";
    assert!(unwrapped(&text).contains(said), "{text}");
    // Nor has it a cause.
    let is_token = |until: Until| matches!(until, Until::Token(_));
    let causes = Causes::of(&requests, is_token).expect("three are slow");
    assert!(causes.slow.iter().all(|caused| caused.cause != Cause::Between), "{causes:?}");
    profile.run = None;
    let requests = Requests::of(&profile);
    let last = requests.intervals(0).last().expect("it has tokens");
    assert_eq!(last.of(Piece::Between), 1_001_000_000);
}

/// What is planted beside one of many equal tokens.
#[derive(Debug, Clone, Copy)]
enum Planted {
    /// A prompt of another request, in its own pass or in one before.
    Beside,
    Before,
    /// Passes for tokens of others alone.
    Others,
    /// A pass in which a thread waits for a CPU for all of the time, or for a tenth.
    Waits,
    Slow,
    /// One in which it waits, and that was looked at together with others.
    Among,
    /// One that reads from a disk.
    Reads,
    /// A pass for others after its own, before it is sent.
    Held,
    /// Time without a pass.
    Between,
    /// The same, in which a thread makes its log.
    Prepares,
    /// A pass of which nobody says for whom it is.
    Nobodys,
}

#[test]
fn each_slow_token_has_the_cause_that_was_planted_and_no_other_has_one() {
    const MS: u64 = 1_000_000;
    let planted = [
        (Planted::Beside, Cause::Prompts),
        (Planted::Before, Cause::Prompts),
        (Planted::Others, Cause::TokensOfOthers),
        (Planted::Waits, Cause::Cpu),
        (Planted::Slow, Cause::Own),
        (Planted::Among, Cause::Cpu),
        (Planted::Reads, Cause::Disk),
        (Planted::Held, Cause::Sending),
        (Planted::Between, Cause::Between),
        (Planted::Prepares, Cause::Profiler),
        (Planted::Nobodys, Cause::Unattributed),
    ];
    let mut profile = Profile::empty(ClockInfo::default());
    profile.requests.push(request("mine", 0, Some(0), Vec::new()));
    profile.requests.push(request("other", 0, Some(0), Vec::new()));
    let (mut now, mut serial) = (0, 0);
    let mut causes = Vec::new();
    for nth in 0..330_u64 {
        let (what, cause) = match nth % 30 {
            17 => {
                let (what, cause) = planted[nth as usize / 30];
                (Some(what), Some(cause))
            }
            _ => (None, None),
        };
        let mut run = |ns: u64, parts: &[Part], disturbance: Option<Disturbance>| {
            profile.passes.push(Pass { disturbance, ..pass(serial, now, ns) });
            let parts = parts.iter().map(|&part| PassPart { pass: serial, part });
            profile.parts.extend(parts);
            serial += 1;
            now += ns;
        };
        let waits = |longest_wait_ns| {
            let longest_wait_ns = Some(longest_wait_ns);
            Some(Disturbance { passes: 1, wall_ns: 40 * MS, longest_wait_ns, ..Default::default() })
        };
        let others = Part::decode(1, nth);
        match what {
            Some(Planted::Before) => run(30 * MS, &[Part::prompt(1, 900, 0)], None),
            Some(Planted::Others) => run(30 * MS, &[others], None),
            Some(Planted::Nobodys) => run(30 * MS, &[], None),
            _ => {}
        }
        let own = if nth == 0 { Part::prompt(0, 5, 0) } else { Part::decode(0, nth) };
        match what {
            Some(Planted::Beside) => run(40 * MS, &[own, Part::prompt(1, 900, 0)], None),
            Some(Planted::Waits) => run(40 * MS, &[own, others], waits(39 * MS)),
            Some(Planted::Slow) => run(40 * MS, &[own, others], waits(4 * MS)),
            Some(Planted::Among) => {
                let longest_wait_ns = Some(30 * MS);
                let (passes, wall_ns) = (4, 70 * MS);
                let among = Disturbance { passes, wall_ns, longest_wait_ns, ..Default::default() };
                run(40 * MS, &[own, others], Some(among));
            }
            Some(Planted::Reads) => {
                let disk_faults = Some(3);
                let reads = Disturbance { disk_faults, ..Disturbance::default() };
                run(40 * MS, &[own, others], Some(reads));
            }
            // Now and then a bit longer, and beside a short prompt.
            _ if nth % 7 == 0 => run(11 * MS, &[own, Part::prompt(1, 3, 0)], waits(0)),
            _ => run(10 * MS, &[own, others], None),
        }
        if let Some(Planted::Held) = what {
            run(30 * MS, &[others], None);
        }
        if let Some(Planted::Prepares) = what {
            let of = Preparation { start_ns: now, duration_ns: 25 * MS };
            profile.overhead.preparations.push(of);
        }
        now += match what {
            Some(Planted::Between | Planted::Prepares) => 30 * MS,
            _ => MS,
        };
        profile.requests[0].tokens_ns.push(now);
        causes.extend(cause.map(|cause| (Until::Token(nth as u32), cause)));
    }
    assert_eq!(profile.check(), Ok(()));
    let found = Causes::of(&Requests::of(&profile), |until| matches!(until, Until::Token(_)));
    let found = found.expect("many tokens");
    assert_eq!((found.of, found.median_ns), (329, 11 * MS));
    let named: Vec<_> = found.slow.iter().map(|of| (of.interval.until, of.cause)).collect();
    assert_eq!(named, causes);
    assert!(found.slow.iter().all(|of| (29 * MS..=31 * MS).contains(&of.more_ns)), "{found:?}");
    assert_eq!(found.counts()[0], (Cause::Prompts, 2));

    let text = view::requests(&profile);
    let said = "11 of 329 further tokens took at least 2 times the median, 11.0 ms.";
    assert!(unwrapped(&text).contains(said), "{text}");
    assert!(
        unwrapped(&text).contains("prompts of others 2 waiting for a CPU 2 tokens of others 1"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn one_request_is_shown_token_by_token() {
    let profile = planted();
    let text = view::request(&profile, "slow-one").expect("it is there");
    let of_token = |nth: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(nth));
        found.unwrap_or_else(|| panic!("{nth}: {text}")).to_owned()
    };
    assert!(
        of_token("101 ").contains("401 ms  own pass, beside prompts of others 400 ms"),
        "{text}"
    );
    assert!(
        of_token("2 ").contains("10.0 ms  own pass, alone 9.00 ms; between passes 1.00 ms"),
        "{text}"
    );
    assert!(of_token("end ").contains("0 ns"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let why = view::request(&profile, "of\nnobody").expect_err("it isn't there");
    assert_eq!(why.lines().count(), 1, "{why}");
}

#[test]
fn who_was_beside_a_slow_token_and_who_had_the_places_before_is_named() {
    let mut profile = planted();
    // Beside its 101st token are four more: one has a larger prompt, the others decode.
    for (nth, id) in ["large", "c", "d", "e"].into_iter().enumerate() {
        profile.requests.push(request(id, 0, Some(0), Vec::new()));
        let number = nth as u32 + 2;
        let part = if nth == 0 { Part::prompt(number, 4096, 0) } else { Part::decode(number, 5) };
        profile.parts.push(PassPart { pass: 100, part });
    }
    // One waits for a place while the first two passes run.
    profile.requests.push(request("late", 0, Some(20_001_000), vec![22_001_000]));
    let shown = |id: &str| {
        let text = view::request(&profile, id).expect("it is there");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        unwrapped(&text)
    };
    let one = shown("slow-one");
    for said in [
        "own pass, alone 9.00 ms, with 12 tokens of its prompt; between passes",
        "beside large (no. 3): 4,096 tokens of its prompt in 400 ms of passes; and 4 more slow: prompts of others",
        r"beside long\u{7}prompt (no. 2): 2,048 tokens of its prompt in 400 ms of passes slow: prompts of others",
    ] {
        assert!(one.contains(said), "{said}: {one}");
    }
    assert_eq!(one.matches(" beside ").count(), one.matches("slow: ").count() * 2, "{one}");
    let late = shown("late");
    let said = "queue 20.0 ms; other pass: tokens of others 2.00 ms while it was in the queue, passes ran for 1 other: \
                slow-one (no. 1): 12 tokens of its prompt and 1 decoded token in 18.0 ms of passes";
    assert!(late.contains(said), "{late}");
}

#[test]
fn what_a_prompt_cost_is_said_of_each_token_and_of_all() {
    let profile = planted();
    // 56 passes are near the one and 80 near the other, of which 19 are near both.
    let said = "A prompt of another in the same pass cost its token 391 ms (median of 2; 391 ms to 391 ms for all): \
                predicted from 117 passes with as much decode and no prompt.";
    let all = view::requests(&profile);
    assert!(unwrapped(&all).contains(said), "{all}");
    let of = |profile: &Profile| {
        let text = view::request(profile, "slow-one").expect("it is there");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        unwrapped(&text)
    };
    let sum = "These 2 tokens together: 782 ms (782 ms to 782 ms): predicted.";
    assert!(unwrapped(&all).contains(sum), "{all}");
    let in_words = view::requests_in_words(&profile).join(" ");
    assert!(in_words.contains(said), "{in_words}");
    for (part, passes) in [(96, 56), (95, 80)] {
        let said = format!(
            "prompts of others, in the same pass, cost 391 ms (391 ms to 391 ms in {part} % of such cases): predicted \
             from {passes} passes"
        );
        assert_eq!(of(&profile).matches(&said).count(), 1, "{}", of(&profile));
    }

    // Passes are now and then as slow without one.
    let profile = planted_among(|nth| if nth % 10 == 5 { 500_000_000 } else { 9_000_000 });
    for (part, passes) in [(96, 56), (95, 80)] {
        let said = format!(
            "prompts of others, in the same pass, cost what is not distinguishable from 0 (-100 ms to 391 ms in {part} % \
             of such cases): predicted from {passes} passes"
        );
        assert_eq!(of(&profile).matches(&said).count(), 1, "{}", of(&profile));
    }
    let said = "What a prompt of another in the same pass cost its token is not distinguishable from 0 (median of 2; 391 ms to \
                391 ms for all, of which 2 can't be told from 0): predicted from 117 passes";
    let all = view::requests(&profile);
    assert!(unwrapped(&all).contains(said), "{all}");
}

#[test]
fn requests_that_were_not_recorded_are_told_on_every_screen() {
    let of_requests = |profile: &Profile| {
        let in_words = view::requests_in_words(profile).join("\n");
        [view::requests(profile), view::list_of_requests(profile, None), in_words]
    };
    let of_runs = |profile: &Profile| {
        let first = view::summary(profile, Size::default(), None).to_string();
        [first, view::report(profile)]
    };
    let mut profile = planted();
    for screen in of_requests(&profile).into_iter().chain(of_runs(&profile)) {
        let is_told = screen.contains("not recorded: ") || screen.contains("are not recorded");
        assert!(!is_told, "{screen}");
    }
    profile.dropped.missed_requests = 3;
    for screen in of_requests(&profile) {
        let said = "not recorded: 3 more requests, in no figure here";
        assert_eq!(screen.matches(said).count(), 1, "{screen}");
    }
    for screen in of_runs(&profile) {
        let said = "requests that came and are not recorded: 3";
        assert_eq!(screen.matches(said).count(), 1, "{screen}");
    }
}

#[test]
fn that_all_requests_were_missed_is_not_that_nobody_told_of_them() {
    let mut profile = Profile::empty(ClockInfo::default());
    profile.dropped.missed_requests = 1;
    let said = "This run has no requests: none of those that came was recorded.\n\
                not recorded: 1 request, in no figure here\n";
    assert_eq!(view::requests(&profile), said);
}

#[test]
fn what_a_prompt_cost_is_not_known_without_passes_like_that() {
    let mut profile = planted();
    // All that it decodes is beside somebody's prompt.
    let beside = (1..200).map(|pass| PassPart { pass, part: Part::prompt(1, 1, 0) });
    profile.parts.extend(beside);
    let why = "no pass of this run has as many decode tokens at like positions and no prompt, 5 are needed";
    let all = view::requests(&profile);
    let said = format!("Of 2, what a prompt cost is not known: {why}.");
    assert!(unwrapped(&all).contains(&said), "{all}");
    let one = view::request(&profile, "slow-one").expect("it is there");
    let said = format!("what prompts of others, in the same pass, cost is not known: {why}");
    assert_eq!(unwrapped(&one).matches(&said).count(), 2, "{one}");
}

#[test]
fn what_nobody_told_is_said() {
    let mut profile = Profile::empty(ClockInfo::default());
    assert!(view::requests(&profile).starts_with("This run has no requests"));
    // One that came, and nothing more.
    profile.requests.push(request("a", 5, None, Vec::new()));
    let text = view::requests(&profile);
    assert!(text.starts_with("requests  1; not ended: 1\n"), "{text}");
    // No percentile of nothing, no slowest of few.
    assert!(
        text.contains("first token              -           -           -           -        0"),
        "{text}"
    );
    assert!(!text.contains("The slowest"), "{text}");
}

#[test]
fn requests_that_nobody_knows_the_passes_of_are_counted() {
    let mut profile = planted();
    let all = |profile: &Profile| Requests::of(profile).untied();
    assert_eq!(all(&profile), 0);
    profile.parts.retain(|of| of.part.request != 0);
    assert_eq!(all(&profile), 1);
    let text = view::requests(&profile);
    assert!(text.contains("1 request tied to no passes: these are unattributed"), "{text}");
    // Passes that are for somebody may be for it, and the others are not.
    let of = |profile: &Profile, piece| {
        let all = Requests::of(profile);
        all.intervals(0).map(|interval| interval.of(piece)).sum::<u64>()
    };
    assert_eq!(of(&profile, Piece::OtherPrompts), 800_000_000);
    profile.parts[0].part.request = Part::NOBODY;
    assert_eq!(of(&profile, Piece::OtherPrompts), 400_000_000);
    assert_eq!(of(&profile, Piece::Unattributed), 198 * 9_000_000 + 400_000_000);
    // Nobody said of any.
    profile.parts.clear();
    assert_eq!(all(&profile), 0);
}

#[test]
fn times_that_go_backwards_and_parts_of_nothing_are_found() {
    let mut profile = planted();
    profile.requests[0].tokens_ns.swap(3, 4);
    assert_eq!(profile.check(), Err("request 0: its times go backwards".to_owned()));
    // Read all the same, without a panic.
    assert!(view::requests(&profile).contains("requests  2"));

    let mut profile = planted();
    profile.parts[0].part.request = 9;
    assert_eq!(profile.check(), Err("pass 0 is for request 9, which isn't there".to_owned()));
    assert!(view::requests(&profile).contains("requests  2"));

    let mut profile = planted();
    profile.parts[0].pass = 999;
    assert_eq!(profile.check(), Err("a part is of pass 999, which isn't there".to_owned()));
    profile.dropped.passes = 1;
    assert_eq!(profile.check(), Ok(()));
}

#[test]
fn what_to_try_is_said_where_most_slow_tokens_have_one_cause() {
    // Every tenth token comes after a long pass for somebody's prompt, beside which it was computed.
    let of = |slow: u64| {
        let mut profile = Profile::empty(ClockInfo::default());
        profile.requests.push(request("own", 0, Some(0), Vec::new()));
        profile.requests.push(request("other", 0, Some(0), Vec::new()));
        for nth in 0..100_u64 {
            let is_long = nth % 10 == 9 && nth / 10 < slow;
            let start = profile.requests[0].tokens_ns.last().copied().unwrap_or(0);
            let wall = if is_long { 50_000 } else { 1_000 };
            profile.passes.push(pass(nth as u32, start, wall));
            let mut parts = vec![Part::decode(0, nth)];
            parts.extend(is_long.then(|| Part::prompt(1, 500, 0)));
            profile.parts.extend(parts.into_iter().map(|part| PassPart { pass: nth as u32, part }));
            profile.requests[0].tokens_ns.push(start + wall);
        }
        unwrapped(&view::requests(&profile))
    };
    assert!(of(10).contains("prompts of others 10 A prompt of another in"), "{}", of(10));
    let next = "Next: prompts in pieces of at most 256 tokens, or long ones elsewhere";
    assert!(of(10).contains(next), "{}", of(10));
    assert!(of(4).contains("prompts of others 4") && !of(4).contains("Next:"), "{}", of(4));
}
