use std::collections::HashMap;

use brickscope::keep::Times;
use brickscope::stats::SplitMix64;
use brickscope::{Part, PartKind};

use super::*;
use crate::recording::format::Sent;

const ID: Id = Id::Context(0);

fn at(count: u64) -> u64 {
    count
}

/// What a server does for a request.
#[derive(Debug, Clone, Default)]
struct Job {
    number: u32,
    arrived: u64,
    prompt: u32,
    tokens: u32,
    tokens_ns: Vec<u64>,
    longest_ns: u64,
}

/// Sequences of a pass, and what each of them did.
type Whose = Vec<(u32, PartKind)>;

/// A server with some places, which computes a pass after another.
struct Server {
    random: SplitMix64,
    now: u64,
    passes: u64,
    number: u32,
    places: Vec<Option<Job>>,
    asked: AllAsked,
    /// How many tokens a request has at most.
    most_tokens: u64,
    between: Times,
    whole: Times,
    /// The answers, if they are to be remembered.
    over: Option<HashMap<u32, Job>>,
    /// When each pass ran, and for whom, likewise.
    ran: Vec<([u64; 2], Whose)>,
}

impl Server {
    fn new(places: usize, most_tokens: u64, remembers: bool) -> Self {
        Self {
            random: SplitMix64(11),
            now: 1_000_000,
            passes: 0,
            number: 0,
            places: vec![None; places],
            asked: AllAsked::new(),
            most_tokens,
            between: Times::default(),
            whole: Times::default(),
            over: remembers.then(HashMap::new),
            ran: Vec::new(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.bits() % n
    }

    fn ask(&mut self, place: usize) {
        self.number += 1;
        let (number, arrived) = (self.number, self.now);
        let prompt = 10 + self.below(2_000) as u32;
        let tokens = 2 + self.below(self.most_tokens) as u32;
        let asked = Asked {
            read: arrived,
            path: "/v1/completions".to_owned(),
            name: Some(format!("r{number}")),
            tokenized: vec![prompt],
            ..Asked::default()
        };
        self.asked.insert(number, asked);
        self.places[place] = Some(Job { number, arrived, prompt, tokens, ..Job::default() });
    }

    fn send(&mut self, number: u32, times: [u64; 2], what: Sent) {
        let [begin, end] = times;
        let tokens = [None; 2];
        // Of one that was given up nothing is noted.
        if let Some(asked) = self.asked.get_mut(&number) {
            asked.sent.push(SentPiece { begin, end, bytes: 1, tokens, what });
        }
    }

    /// Computes a pass for all that have a place, of which one in three waits for somebody to ask.
    fn pass(&mut self) -> Pass {
        for place in 0..self.places.len() {
            if self.places[place].is_none() && (self.below(3) == 0 || place == 0) {
                self.ask(place);
            }
        }
        let begin = self.now + 50_000;
        let mut pass = Pass { begin, is_decode: true, ..Pass::default() };
        let mut whom = Vec::new();
        let mut prompts = 0;
        for (place, job) in (0..).zip(&self.places) {
            let Some(job) = job else { continue };
            let made = job.tokens_ns.len() as u32;
            let (before, kind) = match made {
                0 => (0, PartKind::Prompt),
                _ => (job.prompt + made - 1, PartKind::Decode),
            };
            let tokens = if made == 0 { job.prompt } else { 1 };
            prompts += if made == 0 { u64::from(tokens) } else { 0 };
            pass.sequences.push([before, before + tokens]);
            pass.numbers.push((place, Some(1)));
            whom.push((job.number, kind));
        }
        self.passes += 1;
        let slow = u64::from(self.passes.is_multiple_of(1_000)) * 300_000_000;
        pass.end = begin + 20_000_000 + self.below(1_000_000) + prompts * 10_000 + slow;
        self.now = pass.end;
        if self.over.is_some() {
            self.ran.push(([pass.begin, pass.end], whom));
        }
        for place in 0..self.places.len() {
            let Some(mut job) = self.places[place].take() else { continue };
            let sent = self.now + 1_000 * (1 + place as u64);
            if let Some(last) = job.tokens_ns.last() {
                self.between.add(sent - last);
                job.longest_ns = job.longest_ns.max(sent - last);
            }
            job.tokens_ns.push(sent);
            self.send(job.number, [sent, sent + 10], Sent { pieces: 1, ..Sent::default() });
            if job.tokens_ns.len() < job.tokens as usize {
                self.places[place] = Some(job);
                continue;
            }
            let what = Sent { is_last: true, ..Sent::default() };
            self.send(job.number, [sent + 20, sent + 30], what);
            self.whole.add(sent + 30 - job.arrived);
            if let Some(over) = &mut self.over {
                over.insert(job.number, job);
            }
        }
        self.now += 100_000;
        pass
    }

    /// So many passes, a few at a time. Returns the most bytes that were taken meanwhile.
    fn run(&mut self, served: &mut Served, passes: u64) -> usize {
        let mut most = 0;
        let mut left = passes;
        while left > 0 {
            let some = left.min(1 + self.below(50));
            left -= some;
            let computed: Vec<Pass> = (0..some).map(|_| self.pass()).collect();
            served.look(&mut self.asked, false, &at);
            for pass in &computed {
                served.add(pass, ID, [pass.begin, pass.end]);
            }
            served.settle(&mut self.asked, (false, false), &at);
            most = most.max(served.bytes());
        }
        most
    }

    fn end(&mut self, mut served: Served) -> KeptOnes {
        served.look(&mut self.asked, false, &at);
        served.settle(&mut self.asked, (false, true), &at);
        assert!(self.asked.is_empty(), "nothing of it is left");
        served.finish().expect("somebody asked")
    }
}

impl Served {
    /// All that it takes, but for what a request that goes on has besides its tokens.
    fn bytes(&self) -> usize {
        let tokens: usize = self.coming.values().map(Coming::tokens).sum();
        self.known_bytes + self.passes.bytes() + tokens * size_of::<u64>()
    }
}

#[test]
fn sums_are_of_all_and_the_slowest_are_there_with_all_that_ran_meanwhile() {
    let mut server = Server::new(4, 60, true);
    let mut served = Served::new(512 << 10);
    let most = server.run(&mut served, 20_000);
    assert!(most <= 3 * (512 << 10) + (64 << 10), "{most}");
    let KeptOnes { requests, passes, kept } = server.end(served);
    let over = server.over.take().expect("they are remembered");
    assert_eq!(kept.requests, u64::from(server.number));
    assert_eq!(kept.endings, [(Ending::Stop, over.len() as u64)]);
    assert_eq!(kept.between_tokens, server.between);
    assert_eq!(kept.whole, server.whole);
    assert_eq!(kept.slowest + kept.sample_of + kept.too_long, kept.requests);
    assert_eq!(kept.kept() + kept.beside.len() as u64, requests.len() as u64);
    assert!(kept.slowest > 10 && kept.sample.len() > 2, "{} {}", kept.slowest, kept.sample.len());
    assert!(kept.untied * 50 < kept.requests, "{} of {}", kept.untied, kept.requests);

    // All that are slower than it says, each with its tokens.
    let number = |id: &str| id.trim_start_matches('r').parse::<u32>().expect("a number");
    let there: HashMap<u32, &Request> = requests.iter().map(|of| (number(&of.id), of)).collect();
    let slower_than = kept.slower_than_ns.expect("not all have room");
    for (number, job) in over.iter().filter(|(_, job)| job.longest_ns > slower_than) {
        let of = there.get(number).unwrap_or_else(|| panic!("{number} isn't there"));
        assert_eq!((of.arrived_ns, &of.tokens_ns), (job.arrived, &job.tokens_ns));
    }

    // Each pass of the covered times is there, and for nobody else than it was.
    let by_begin: HashMap<u64, _> = passes.iter().map(|pass| (pass.begin, pass)).collect();
    let (mut known, mut unknown) = (0, 0);
    for ([begin, end], whom) in &server.ran {
        let is_covered = kept.covered_ns(*begin, *end) > 0;
        let Some(pass) = by_begin.get(begin) else {
            assert!(!is_covered, "a pass at {begin} is missing");
            continue;
        };
        assert_eq!((pass.times, pass.parts.len()), ([*begin, *end], whom.len()));
        for (part, (number_of, kind)) in pass.parts.iter().zip(whom) {
            if part.request == Part::NOBODY {
                unknown += 1;
                continue;
            }
            let told = number(&requests[part.request as usize].id);
            assert_eq!((told, part.kind), (*number_of, *kind), "at {begin}");
            known += 1;
        }
    }
    assert!(known > 500 && unknown * 20 < known, "{known} known, {unknown} not");
}

/// While requests go on, each is counted once, and nothing is said of a pass that isn't read yet.
#[test]
fn what_is_known_so_far_counts_each_request_once_and_claims_no_pass_that_is_not_there() {
    let mut server = Server::new(4, 60, true);
    let mut served = Served::new(512 << 10);
    server.run(&mut served, 2_000);
    let known_ns = server.ran.last().expect("it ran").0[1];
    // Its tokens are known before it is.
    let late = server.pass();
    served.look(&mut server.asked, false, &at);
    let mut now = served.clone();
    now.end_so_far(&mut server.asked.clone(), false, &at);
    let KeptOnes { requests, passes, kept } = now.finish().expect("somebody asked");
    assert!(kept.going_on() > 0);
    assert_eq!(kept.requests, u64::from(server.number));
    assert_eq!(kept.slowest + kept.sample_of + kept.too_long, kept.requests);
    assert_eq!(kept.kept() + kept.beside.len() as u64, requests.len() as u64);
    assert_eq!(kept.between_tokens, server.between);
    assert!(passes.iter().all(|pass| pass.times[1] <= known_ns));
    assert_eq!(kept.covered_ns(known_ns, u64::MAX), 0);

    // The recording goes on.
    served.add(&late, ID, [late.begin, late.end]);
    served.settle(&mut server.asked, (false, false), &at);
    server.run(&mut served, 2_000);
    let kept = server.end(served).kept;
    assert_eq!(kept.requests, u64::from(server.number));
    assert_eq!(kept.slowest + kept.sample_of + kept.too_long, kept.requests);
    assert_eq!((kept.between_tokens, kept.whole), (server.between, server.whole));
}

/// Who comes first may have come while a pass ran that nobody had asked for: that one isn't there.
#[test]
fn passes_before_the_first_request_was_seen_are_said_to_be_missing() {
    let mut server = Server::new(1, 60, false);
    let mut served = Served::new(512 << 10);
    let own = Pass { begin: 500_000, end: 1_500_000, is_decode: true, ..Pass::default() };
    served.add(&own, ID, [own.begin, own.end]);
    server.run(&mut served, 200);
    let kept = server.end(served).kept;
    assert_eq!(kept.covered_ns(0, own.end), 0, "the first one came at 1 ms");
    assert!(kept.covered_ns(own.end, u64::MAX) > 0);
}

/// One that never ends is in the sums, and takes no more than its part.
#[test]
fn a_request_that_never_ends_is_counted_and_not_kept() {
    let mut server = Server::new(1, 1, false);
    let most = 256 << 10;
    let mut served = Served::new(most);
    server.ask(0);
    server.places[0].as_mut().expect("it asked").tokens = u32::MAX;
    server.places[0].as_mut().expect("it asked").prompt = 10;
    let took = server.run(&mut served, 40_000);
    assert!(took <= 3 * most + (64 << 10), "{took}");
    let KeptOnes { requests, kept, .. } = server.end(served);
    assert_eq!((kept.requests, kept.too_long, kept.going_on()), (1, 1, 1));
    assert_eq!(kept.between_tokens.count, 39_999);
    assert_eq!((kept.slowest, kept.sample_of, requests.len()), (0, 0, kept.beside.len()));
}

/// Of a program to which nobody comes nothing is kept.
#[test]
fn passes_of_a_program_that_is_no_server_take_nothing() {
    let mut served = Served::new(1 << 20);
    let pass = Pass { begin: 5, end: 9, is_decode: true, ..Pass::default() };
    served.add(&pass, ID, [5, 9]);
    served.settle(&mut AllAsked::new(), (false, true), &at);
    assert_eq!(served.bytes(), 0);
    assert!(served.finish().is_none());
}

/// Ten hours of 16 places: more than a million passes, and some hundred thousand requests.
#[test]
#[ignore = "takes a minute and a half in a debug build: `.ci/nightly` runs it"]
fn ten_hours_of_requests_take_no_more_than_64_mib() {
    let mut server = Server::new(16, 400, false);
    let mut served = Served::new(16 << 20);
    let mut took = 0;
    while server.now < 36_000_000_000_000 {
        took = took.max(server.run(&mut served, 10_000));
    }
    assert!(took <= 64 << 20, "{took}");
    let kept = server.end(served).kept;
    assert_eq!(kept.requests, u64::from(server.number));
    assert_eq!(kept.between_tokens, server.between);
    assert_eq!(kept.whole.total_ns, server.whole.total_ns);
    assert!(kept.untied * 20 < kept.requests, "{} of {}", kept.untied, kept.requests);
}
