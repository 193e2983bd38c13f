//! Findings about requests: each planted cause is found alone, with its measured wait and a command, and nothing in clean runs.

mod queue;

use brickscope_analysis::findings::{Finding, Findings, Waits};
use brickscope_analysis::view;
use brickscope_profile::stats::SplitMix64;
use brickscope_profile::{
    Between, Calls, ClockInfo, Part, Pass, PassPart, Phase, Profile, Request, Run,
};

const MS: u64 = 1_000_000;

/// What is planted beside one of ten tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Prompts,
    Again,
    Between,
    Held,
    /// Before a first token.
    Queued,
}

/// A run that is being made.
struct Made {
    profile: Profile,
    now: u64,
}

impl Made {
    fn new(command: &str, backend: &str) -> Self {
        let run = Run {
            command: command.split(' ').map(str::to_owned).collect(),
            backend: backend.to_owned(),
            ..Run::default()
        };
        let profile = Profile { run: Some(run), ..Profile::empty(ClockInfo::default()) };
        Self { profile, now: 0 }
    }

    fn pass(&mut self, wall_ns: u64, parts: &[Part]) {
        let serial = self.profile.passes.len() as u32;
        self.profile.passes.push(Pass {
            serial,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns: self.now,
            wall_ns,
            attributed_ns: 0,
            unattributed_ns: wall_ns,
            disturbance: None,
            is_left_out: false,
        });
        let parts = parts.iter().map(|&part| PassPart { pass: serial, part });
        self.profile.parts.extend(parts);
        self.now += wall_ns;
    }

    /// Comes now, and is in the batch.
    fn arrives(&mut self, id: &str) -> u32 {
        let admitted_ns = Some(self.now);
        let id = id.to_owned();
        let request = Request { id, arrived_ns: self.now, admitted_ns, ..Request::default() };
        self.profile.requests.push(request);
        self.profile.requests.len() as u32 - 1
    }

    fn request(&mut self, number: u32) -> &mut Request {
        &mut self.profile.requests[number as usize]
    }
}

const LLAMA: [&str; 2] = ["llama-server -m m.gguf -b 2048 -np 1", "llama.cpp b1 on CPU"];
const VLLM: [&str; 2] = ["/bin/vllm serve M --max-num-seqs=64", "vLLM on CUDA"];

/// A request with a hundred tokens beside another one, and thirty with a token each. Of each ten, one has what is planted, in
/// as many tens as is said.
fn served([command, backend]: [&str; 2], planted: impl Fn(u64) -> Option<Planted>) -> Profile {
    let mut made = Made::new(command, backend);
    let (mine, other) = (made.arrives("mine"), made.arrives("other"));
    let long = made.arrives("long");
    for nth in 0..100_u64 {
        let what = planted(nth / 10).filter(|_| nth % 10 == 5);
        let own = if nth == 0 { Part::prompt(mine, 5, 0) } else { Part::decode(mine, 4 + nth) };
        let others = Part::decode(other, nth);
        match what {
            Some(Planted::Prompts) => {
                made.pass(50 * MS, &[own, Part::prompt(long, 2_048, 2_048 * (nth / 10))]);
            }
            Some(Planted::Again) => {
                made.pass(50 * MS, &[Part::prompt(mine, 5 + nth, 0), others]);
            }
            _ => made.pass(10 * MS, &[own, others]),
        }
        if what == Some(Planted::Held) {
            made.pass(40 * MS, &[others]);
        }
        made.now += if what == Some(Planted::Between) { 41 * MS } else { MS };
        let now = made.now;
        made.request(mine).tokens_ns.push(now);
    }
    let ended = made.now;
    for request in [mine, other, long] {
        made.request(request).ended_ns = Some(ended);
    }
    for nth in 0..30_u64 {
        let one = made.arrives(&format!("one-{nth}"));
        if nth % 3 == 0 && planted(nth / 3) == Some(Planted::Queued) {
            made.request(one).arrived_ns -= 80 * MS;
        }
        made.pass(10 * MS, &[Part::prompt(one, 3, 0)]);
        made.now += MS;
        let now = made.now;
        let request = made.request(one);
        request.tokens_ns.push(now);
        request.ended_ns = Some(now);
    }
    assert_eq!(made.profile.check(), Ok(()));
    made.profile
}

fn only(profile: &Profile) -> Finding {
    let found = Findings::of(profile).found;
    let [finding] = &found[..] else { panic!("{found:?}") };
    finding.clone()
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn waits(took: u64, waited: u64, gain: u64) -> Option<Waits> {
    let [took_ns, waited_ns, gain_ns] = [took, waited, gain].map(|ms| 10 * ms * MS);
    Some(Waits { tokens: 10, took_ns, waited_ns, gain_ns })
}

#[test]
fn each_planted_cause_is_found_alone_with_what_was_waited() {
    for (planted, rule, waits) in [
        // A pass of 10 ms is needed without prompts, too.
        (Planted::Prompts, "prompts-stall-decode", waits(51, 50, 40)),
        (Planted::Again, "tokens-computed-again", waits(51, 50, 40)),
        (Planted::Between, "host-between-passes", waits(51, 41, 41)),
        (Planted::Held, "slow-client", waits(51, 41, 41)),
        (Planted::Queued, "queue-for-places", waits(91, 80, 80)),
    ] {
        let profile = served(LLAMA, |_| Some(planted));
        let finding = only(&profile);
        assert_eq!((finding.rule, finding.waits), (rule, waits), "{finding:?}");
        // The figures are those of the other screen.
        let requests = unwrapped(&view::requests(&profile));
        let said = &finding.evidence[0].text;
        let said = said.split_once("Most of what was more:").expect("counts").0;
        assert!(requests.contains(said), "{said}: {requests}");
        // And so is what to try, with the value of a flag.
        let next = format!("Next: {}", finding.advice);
        assert!(requests.contains(&next), "{next}: {requests}");
        let in_words = view::requests_in_words(&profile);
        assert!(in_words.contains(&format!("{next}.")), "{next}: {in_words:?}");
        assert!(finding.evidence.iter().any(|of| of.place == "/requests, id"), "{finding:?}");
        let text = view::findings(&profile, Some("runs/a"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn a_clean_run_few_slow_tokens_and_several_causes_have_no_finding() {
    let found = |planted: &dyn Fn(u64) -> Option<Planted>| {
        let profile = served(LLAMA, planted);
        Findings::of(&profile).found
    };
    assert_eq!(found(&|_| None), []);
    // Four are slow; with five it is found.
    assert_eq!(found(&|ten| (ten < 4).then_some(Planted::Prompts)), []);
    assert_eq!(found(&|ten| (ten < 5).then_some(Planted::Prompts)).len(), 1);
    // No cause has more than half.
    let half = |ten: u64| Some(if ten < 5 { Planted::Prompts } else { Planted::Between });
    assert_eq!(found(&half), []);
    // The run of a client has no passes.
    let mut profile = served(LLAMA, |_| Some(Planted::Queued));
    profile.passes.clear();
    profile.parts.clear();
    assert_eq!(Findings::of(&profile).found, []);
}

#[test]
fn the_finding_says_who_waited_for_whom_and_what_it_would_bring() {
    let profile = served(LLAMA, |_| Some(Planted::Prompts));
    let text = view::findings(&profile, Some("runs/a"));
    let text = unwrapped(&text);
    let begin = "1 10 of 10 slow further tokens waited most for prompts of others predicted up to 78 % less: 400 ms of \
                 510 ms that 10 tokens took, summed over requests evidence ";
    assert!(text.starts_with(begin), "{text}");
    for said in [
        "100 ms of that stays: each of these tokens needs a pass of its own, and one takes 10.0 ms, the median of 89 passes \
         without a prompt",
        "10 of 99 further tokens took at least 2 times the median, 11.0 ms. Most of what was more: prompts of others 10",
        "500 ms of the 510 ms that these 10 tokens took, summed over requests, were in passes with prompts of others",
        "their requests: mine (10 slow tokens)",
        "prompts of long (2,048 tokens)",
        "one pass had up to 2,048 tokens of prompts",
        "do prompts in smaller pieces (-b 1024, now 2048), or long ones elsewhere",
        "test brickscope run -- llama-server -m m.gguf -b 1024 -np 1 refuted if",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let next = view::next_step(&profile);
    assert!(
        next.contains("waited most for prompts of others; prompts in smaller pieces"),
        "{next}"
    );
}

#[test]
fn the_server_is_started_again_with_one_flag_changed() {
    let test = |server, planted| {
        let profile = served(server, |_| Some(planted));
        let finding = only(&profile);
        let test = view::test_command(&finding, &profile, Some("runs/a"));
        let why = finding.test_absent.map(|absent| absent.reason);
        test.xor(why).expect("a command, or why there is none")
    };
    let started = "brickscope run -- llama-server -m m.gguf -b 2048 -np 2";
    assert_eq!(test(LLAMA, Planted::Queued), started);
    let vllm = "BRICKSCOPE_OUT=changed.json /bin/vllm serve M --max-num-seqs";
    let started = format!("{vllm}=64 --max-num-batched-tokens 1024");
    assert_eq!(test(VLLM, Planted::Prompts), started);
    assert_eq!(test(VLLM, Planted::Again), format!("{vllm}=1"));
    // It refuses fewer tokens in a step than requests, and nobody knows how many those are.
    let default = ["vllm serve M", "vLLM on CUDA"];
    let started = "BRICKSCOPE_OUT=changed.json vllm serve M --max-num-batched-tokens 1024";
    assert_eq!(test(default, Planted::Prompts), started);
    // Prompts aren't cut, and it would refuse to start.
    let whole = ["vllm serve M --no-enable-chunked-prefill", "vLLM on CUDA"];
    assert!(test(whole, Planted::Prompts).starts_with("it was told not to cut prompts"));
    // Places were free, or nobody knows how many there are: more of them may be no cure.
    assert_eq!(test(VLLM, Planted::Queued), "places were free");
    assert_eq!(test(default, Planted::Queued), "how many places it has is not known");
    let few = ["vllm serve M --max-num-seqs 2", "vLLM on CUDA"];
    let started = "BRICKSCOPE_OUT=changed.json vllm serve M --max-num-seqs 4";
    assert_eq!(test(few, Planted::Queued), started);
    let full = ["vllm serve M --max-num-seqs 2 --max-num-batched-tokens 2", "vLLM on CUDA"];
    assert!(test(full, Planted::Queued).starts_with("it takes no more places"));
    let profile = served(VLLM, |_| Some(Planted::Queued));
    let said = "no pass had as many as there are places, 64: requests may wait for something else";
    let finding = only(&profile);
    assert!(finding.evidence.iter().any(|of| of.text.starts_with(said)), "{finding:?}");
    // No flag cures these: the request that has most of it is shown.
    for server in [LLAMA, VLLM, ["my-engine", "mine"]] {
        let shown = "brickscope requests runs/a --request mine";
        assert_eq!(test(server, Planted::Between), shown);
        assert_eq!(test(server, Planted::Held), shown);
    }
    // Nobody knows the flags of other programs, and to look at a request tests nothing.
    for planted in [Planted::Prompts, Planted::Queued, Planted::Again] {
        let why = test(["my-engine", "mine"], planted);
        assert!(why.starts_with("the flags of the program that was started are not"), "{why}");
    }
}

#[test]
fn what_the_host_did_between_passes_is_named_where_it_was_recorded() {
    let mut profile = served(LLAMA, |_| Some(Planted::Between));
    let calls = vec![
        Calls { name: "sampling".to_owned(), calls: 100, ns: 20 * MS },
        Calls { name: "grammar".to_owned(), calls: 10, ns: 300 * MS },
    ];
    let between = Between { passes: 3, tokens: 3, passes_ns: MS, between_ns: 500 * MS, calls };
    profile.run.as_mut().expect("a run").between = Some(between);
    let finding = only(&profile);
    assert!(finding.advice.contains("use a simpler grammar"), "{finding:?}");
    let said = "of all time between passes, 500 ms, grammar takes 300 ms";
    assert!(finding.evidence.iter().any(|of| of.text == said), "{finding:?}");
}

/// A request beside another one, both far on. In every 20 passes one also has a long prompt, which costs 40 ms, and two a piece
/// of one, which costs 8 ms.
fn with_pieces() -> Profile {
    let [command, backend] = LLAMA;
    let mut made = Made::new(command, backend);
    let (mine, other) = (made.arrives("mine"), made.arrives("other"));
    let long = made.arrives("long");
    for nth in 0..200_u64 {
        let parts = [Part::decode(mine, 1_000 + nth), Part::decode(other, 1_000 + nth)];
        let beside = |tokens| [parts[0], parts[1], Part::prompt(long, tokens, 3_000 * nth)];
        match nth % 20 {
            5 => made.pass(50 * MS, &beside(2_048)),
            10 | 15 => made.pass(18 * MS, &beside(800)),
            _ => made.pass(10 * MS, &parts),
        }
        made.now += MS;
        let now = made.now;
        made.request(mine).tokens_ns.push(now);
    }
    made.profile
}

#[test]
fn where_slow_tokens_have_prompts_beside_them_by_chance_nothing_is_advised() {
    let [command, backend] = LLAMA;
    let mut made = Made::new(command, backend);
    let (mine, long) = (made.arrives("mine"), made.arrives("long"));
    // Most passes have a prompt, which costs nothing, and so have most of those that are slow.
    for nth in 0..400_u64 {
        let parts = [Part::decode(mine, 10_000 + nth), Part::prompt(long, 400, 3_000 * nth)];
        let wall_ns = if nth % 21 == 0 { 50 * MS + nth * MS / 10 } else { 10 * MS };
        made.pass(wall_ns, if nth % 4 == 0 { &parts[..1] } else { &parts });
        made.now += MS;
        let now = made.now;
        made.request(mine).tokens_ns.push(now);
    }
    let found = Findings::of(&made.profile);
    assert!(found.found.iter().all(|of| of.rule != "prompts-stall-decode"), "{found:?}");
    let why = "whether prompts of others slow further tokens is not known: among passes with such prompts, as many are as slow \
               by chance";
    assert!(found.unknown.iter().any(|of| of.why == why), "{found:?}");
    let text = view::requests(&made.profile);
    assert!(text.contains("prompts of others") && !text.contains("Next: "), "{text}");
}

#[test]
fn the_finding_predicts_what_prompts_cost_and_what_smaller_pieces_bring_from_passes_of_the_run() {
    let profile = with_pieces();
    assert_eq!(profile.check(), Ok(()));
    let found = Findings::of(&profile).found;
    let finding = found.iter().find(|of| of.rule == "prompts-stall-decode").expect("it is slow");
    let evidence: Vec<&str> = finding.evidence.iter().map(|of| of.text.as_str()).collect();
    let cost = "A prompt of another in the same pass cost its token 40.0 ms (median of 10; 40.0 ms to 40.0 ms for all): \
                predicted from 170 passes with as much decode and no prompt";
    let brings = "With 513 to 1,024 tokens of prompts, a pass that had more would take 32.0 ms less (median of 10; 32.0 ms \
                  to 32.0 ms for all): predicted from 20 passes with as much decode and 513 to 1,024 tokens of prompts";
    for said in [
        cost,
        "These 10 tokens together: 400 ms (400 ms to 400 ms): predicted",
        brings,
        "These 10 tokens together: 320 ms less (320 ms to 320 ms): predicted",
    ] {
        assert!(evidence.contains(&said), "{said}: {evidence:?}");
    }
    // It is the sentence of the other screen.
    assert!(unwrapped(&view::requests(&profile)).contains(cost));
    // Where no pass tells it, that is said.
    let planted = only(&served(LLAMA, |_| Some(Planted::Prompts)));
    for what in ["what a prompt cost", "what smaller pieces of prompts would bring"] {
        let said =
            format!("Of 10, {what} is not known: no pass of this run has as many decode tokens");
        let has_it = |text: &str| text.starts_with(&said);
        assert!(planted.evidence.iter().any(|of| has_it(&of.text)), "{planted:?}");
    }
}

#[test]
fn of_a_hundred_runs_in_which_prompts_cost_nothing_none_names_them() {
    let mut random = SplitMix64(31);
    let mut uniform = || ((random.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    for run in 0..100 {
        let [command, backend] = LLAMA;
        let mut made = Made::new(command, backend);
        let (mine, other) = (made.arrives("mine"), made.arrives("other"));
        for nth in 0..200_u64 {
            let mut parts = vec![Part::decode(mine, 1_000 + nth)];
            parts.extend((uniform() < 0.2).then(|| Part::prompt(other, 500, 500 * nth)));
            // Skewed, and one in twenty takes three times as long.
            let times = if uniform() < 0.05 { 3.0 } else { 1.0 - 0.1 * uniform().ln() };
            made.pass((10.0 * MS as f64 * times) as u64, &parts);
            let now = made.now;
            made.request(mine).tokens_ns.push(now);
        }
        assert_eq!(made.profile.check(), Ok(()));
        let found = Findings::of(&made.profile).found;
        assert!(found.iter().all(|of| of.rule != "prompts-stall-decode"), "{run}: {found:?}");
        let text = unwrapped(&view::requests(&made.profile));
        assert!(!text.contains("A prompt of another in the same pass cost"), "{run}: {text}");
    }
}

#[test]
fn a_server_that_keeps_no_prompts_is_started_again_with_them_kept() {
    let served = |command: &str, cached: u64| {
        let mut made = Made::new(command, "llama.cpp b1 on CPU");
        for nth in 0..40_u64 {
            let one = made.arrives(&format!("one-{nth}"));
            let is_long = nth % 5 == 2;
            let part = Part::prompt(one, if is_long { 400 } else { 20 }, cached);
            made.pass(if is_long { 100 } else { 10 } * MS, &[part.with_cached(cached)]);
            let now = made.now;
            let request = made.request(one);
            request.tokens_ns.push(now);
            request.ended_ns = Some(now);
        }
        assert_eq!(made.profile.check(), Ok(()));
        let found = Findings::of(&made.profile).found;
        found.into_iter().find(|of| of.rule == "prompt-cache-off")
    };
    let off = "llama-server -m m.gguf --no-cache-prompt";
    let finding = served(off, 0).expect("it is told to keep none");
    let waits = Waits { tokens: 8, took_ns: 800 * MS, waited_ns: 800 * MS, gain_ns: 720 * MS };
    assert_eq!(finding.waits, Some(waits));
    assert_eq!(finding.test.as_deref(), Some("brickscope run -- llama-server -m m.gguf"));
    let begin = "8 of 8 slow first tokens waited most for their own prompts";
    assert!(finding.what.starts_with(begin), "{finding:?}");
    // By default it keeps them, and who asks may want it.
    assert_eq!(served("llama-server -m m.gguf", 0), None);
    assert_eq!(served(off, 7), None);
}
