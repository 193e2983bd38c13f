//! Where all requests wait for a place alike, none is slow against the median, and the queue is the server's problem.

use brickscope_analysis::explain;
use brickscope_profile::Engine;

use super::*;

/// Forty requests in pairs, each of which came so long before there was a place for it: a prompt of 10 ms, and three more
/// passes of as long.
fn crowded([command, backend]: [&str; 2], queue_ns: u64) -> Profile {
    let mut made = Made::new(command, backend);
    made.now = 1_000 * MS;
    for pair in 0..20 {
        let both = ["a", "b"].map(|name| made.arrives(&format!("{name}-{pair}")));
        both.iter().for_each(|&of| made.request(of).arrived_ns -= queue_ns);
        made.pass(10 * MS, &both.map(|of| Part::prompt(of, 100, 0)));
        for nth in 0..4 {
            let now = made.now;
            both.iter().for_each(|&of| made.request(of).tokens_ns.push(now));
            if nth < 3 {
                made.pass(10 * MS, &both.map(|of| Part::decode(of, 100 + nth)));
            }
        }
        let now = made.now;
        both.iter().for_each(|&of| made.request(of).ended_ns = Some(now));
    }
    assert_eq!(made.profile.check(), Ok(()));
    made.profile
}

const PYTHON: [&str; 2] = ["venv/bin/python serve.py", "llama.cpp, CPU"];
const TWO: [&str; 2] = ["llama-server -m m.gguf -c 4096 -np 2", "llama.cpp b1 on CPU"];

#[test]
fn a_queue_that_is_most_of_the_time_to_first_tokens_is_found_though_all_wait_alike() {
    let profile = crowded(TWO, 60 * MS);
    let finding = only(&profile);
    assert_eq!(finding.rule, "queue-for-places");
    assert_eq!(finding.what, "of the time to first tokens, 86 % was queue");
    // The first two waited for nobody that is known: they don't count to what more places would bring.
    let [took_ns, waited_ns, gain_ns] = [40 * 70, 40 * 60, 38 * 60].map(|ms| ms * MS);
    assert_eq!(finding.waits, Some(Waits { tokens: 40, took_ns, waited_ns, gain_ns }));
    let advice =
        "more places in the batch (-np 4, now 2, and -c with it), or fewer requests at once";
    assert_eq!(finding.advice, advice);
    let test = "brickscope run -- llama-server -m m.gguf -c 8192 -np 4";
    assert_eq!(finding.test.as_deref(), Some(test));
    let text = view::findings(&profile, Some("runs/a"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = unwrapped(&text);
    for said in [
        "predicted up to 81 % less: 2.28 s of 2.80 s that 40 tokens took, summed over requests",
        "2.40 s of the 2.80 s that 40 first tokens took, summed over requests, were in the queue, 86 %; 38 of these waited \
         while passes ran that had 2 requests or more",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(view::next_step(&profile).starts_with("of the time to first tokens, 86 % was queue"));
    let next = "Next: of the time to first tokens, 86 % was queue; more places in the batch (-np 4, now 2,";
    assert!(unwrapped(&view::requests(&profile)).contains(next), "{}", view::requests(&profile));
    assert!(view::requests_in_words(&profile).iter().any(|words| words.starts_with(next)));
    let pages = explain::find("queue-for-places");
    assert_eq!(pages[0].in_run(&profile).found.len(), 1);
}

#[test]
fn a_short_queue_and_one_for_something_else_are_no_finding() {
    let rules = |profile: &Profile| {
        let found = Findings::of(profile).found;
        found.into_iter().map(|of| of.rule).collect::<Vec<_>>()
    };
    // Less than half of it; and the end of the pass that ran.
    assert_eq!(rules(&crowded(TWO, 6 * MS)), [""; 0]);
    let mut waits = crowded(TWO, 12 * MS);
    waits.passes.iter_mut().for_each(|pass| pass.start_ns -= 3 * MS);
    assert_eq!(rules(&waits), [""; 0]);
    // Places were free.
    let free = ["llama-server -m m.gguf -np 8", TWO[1]];
    assert_eq!(rules(&crowded(free, 60 * MS)), [""; 0]);
    // Nobody said whom passes were for, nor how many places there are.
    let mut unsaid = crowded(PYTHON, 60 * MS);
    unsaid.parts.clear();
    assert_eq!(rules(&unsaid), [""; 0]);
    // Few requests.
    let mut few = crowded(TWO, 60 * MS);
    few.requests.iter_mut().skip(18).for_each(|of| of.tokens_ns.clear());
    assert_eq!(rules(&few), [""; 0]);
}

#[test]
fn of_a_server_whose_flags_are_not_known_the_value_is_named_and_no_test() {
    let mut profile = crowded(PYTHON, 60 * MS);
    let engine = Engine { sequences: Some(2), ..Engine::default() };
    profile.run.as_mut().expect("a run").engine = Some(engine);
    let finding = only(&profile);
    let value = "(llama-server's -np 4, now 2, and -c with it)";
    assert!(finding.advice.contains(value), "{finding:?}");
    assert_eq!(finding.test, None);
    let text = view::findings(&profile, Some("runs/a"));
    assert!(text.contains("\n   untested    the flags of the program"), "{text}");
    // Of prompts alike.
    let mut profile = served(PYTHON, |_| Some(Planted::Prompts));
    let engine = Engine { batch_tokens: Some(2_048), ..Engine::default() };
    profile.run.as_mut().expect("a run").engine = Some(engine);
    let finding = only(&profile);
    assert!(finding.advice.contains("(llama-server's -b 1024, now 2048)"), "{finding:?}");
    assert_eq!(finding.test, None);
    assert!(finding.test_absent.is_some());
}

#[test]
fn a_finding_of_slow_first_tokens_has_the_whole_queue_beside_it() {
    let finding = only(&served(LLAMA, |_| Some(Planted::Queued)));
    assert!(finding.what.starts_with("10 of 10 slow first tokens"), "{finding:?}");
    let said = "800 ms of the 1.14 s that 31 first tokens took, summed over requests, were in the queue, 70 %";
    assert!(finding.evidence.iter().any(|of| of.text.starts_with(said)), "{finding:?}");
}
