//! All requests, each on a thread of its own: none waits for a connection or a thread that another one has.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, Clock, Profile};
use brickscope_profile::Ending;

use crate::answer::Answer;
use crate::plan::{Pace, Plan};
use crate::server::Server;
use crate::text::Words;

/// So long before a request is due its thread is there, with its text.
const AHEAD: Duration = Duration::from_millis(20);
/// How often `stop` is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long requests that are going on may take to notice that nobody wants them any more.
const GRACE: Duration = Duration::from_secs(2);
/// What a thread needs: it reads events, and TLS.
const STACK: usize = 256 << 10;

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Requests of the plan.
    pub of: usize,
    /// How many have begun.
    pub begun: usize,
    /// How many have ended.
    pub ended: usize,
    /// How many of these failed.
    pub failed: usize,
}

/// What was asked, and what came back.
#[derive(Debug)]
pub struct Driven {
    /// In the order of the plan; those that were not begun are missing.
    pub answers: Vec<Answer>,
    /// When the first request was due.
    pub began_ns: u64,
    /// When the last one ended.
    pub ended_ns: u64,
    /// The requests of the plan that were not begun.
    pub not_begun: usize,
    /// In a closed loop, the clients that could be started: fewer than were wanted where the system has no threads left.
    pub clients: Option<usize>,
    profiler: BrickProfiler,
}

impl Driven {
    /// As a run: requests without passes, which only the server knows.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let mut profile = self.profiler.profile();
        profile.requests = self.answers.iter().map(Answer::request).collect();
        profile
    }
}

enum Message {
    Begun(Begun),
    Ended(Answer),
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    nth: usize,
    due_ns: u64,
    sent_ns: u64,
}

/// What all threads share.
struct Shared {
    server: Server,
    plan: Plan,
    words: Words,
    clock: Clock,
    began_ns: u64,
    is_over: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn prompt(&self, nth: usize) -> String {
        self.words.prompt(&self.plan, nth)
    }

    fn ask(&self, nth: usize, due_ns: u64, prompt: &str, to: &Sender<Message>) {
        let begun = Begun { nth, due_ns, sent_ns: self.clock.now() };
        if to.send(Message::Begun(begun)).is_err() {
            return;
        }
        let most = self.plan.asks[nth].answer_tokens;
        let ask = || self.server.ask(prompt, most, &|| self.clock.now(), &|| self.is_over());
        // A mistake in reading one answer is no reason to lose the others.
        let answer = catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
            let why = "a mistake in brickscope's client".to_owned();
            Answer::failed(begun.sent_ns, self.clock.now(), why)
        });
        // Nobody listens any more if it was given up.
        let _ = to.send(Message::Ended(Answer { nth, due_ns, ..answer }));
    }

    /// Waits for a moment, or that all is over. Returns whether the moment has come.
    fn wait_until(&self, at_ns: u64) -> bool {
        loop {
            let left = Duration::from_nanos(at_ns.saturating_sub(self.clock.now()));
            if left.is_zero() || self.is_over() {
                return !self.is_over();
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// Asks a server all of a plan. `stop` is asked now and then: once it says so, no more requests are sent, and those that go on
/// are cancelled. Without `words`, a word counts as a token.
pub fn drive(
    server: &Server,
    plan: &Plan,
    words: Option<Words>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Driven {
    let profiler = BrickProfiler::enabled();
    let clock = profiler.clock().clone();
    let shared = Arc::new(Shared {
        server: server.clone(),
        plan: plan.clone(),
        words: words.unwrap_or_default(),
        // So that the first one isn't late.
        began_ns: clock.now() + AHEAD.as_nanos() as u64,
        clock,
        is_over: AtomicBool::new(false),
    });
    let (to, from) = mpsc::channel();
    let mut clients = None;
    match plan.pace {
        Pace::Open => {
            let shared = Arc::clone(&shared);
            start(move || send_when_due(&shared, &to));
        }
        Pace::Closed(wanted) => {
            let next = Arc::new(AtomicUsize::new(0));
            let started = (0..wanted.get().min(plan.asks.len())).take_while(|_| {
                let (shared, next, to) = (Arc::clone(&shared), Arc::clone(&next), to.clone());
                start(move || ask_again(&shared, &next, &to))
            });
            clients = Some(started.count());
            // The threads have theirs: without any left, all have ended.
            drop(to);
        }
    }
    let answers = collect(&shared, &from, stop, progress);
    let ended_ns = answers.iter().filter_map(|answer| answer.ended_ns).max();
    let began_ns = answers.iter().map(|answer| answer.due_ns).min();
    let began_ns = began_ns.unwrap_or(shared.began_ns);
    Driven {
        began_ns,
        ended_ns: ended_ns.unwrap_or(began_ns),
        not_begun: plan.asks.len() - answers.len(),
        clients,
        answers,
        profiler,
    }
}

/// Starts a thread. Returns whether the system had one left.
fn start(work: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name("load".to_owned()).stack_size(STACK).spawn(work).is_ok()
}

fn send_when_due(shared: &Arc<Shared>, to: &Sender<Message>) {
    for (nth, ask) in shared.plan.asks.iter().enumerate() {
        let due_ns = shared.began_ns.saturating_add(ask.due_ns);
        if !shared.wait_until(due_ns.saturating_sub(AHEAD.as_nanos() as u64)) {
            return;
        }
        let (of_thread, to_collect) = (Arc::clone(shared), to.clone());
        let is_started = start(move || {
            let prompt = of_thread.prompt(nth);
            if of_thread.wait_until(due_ns) {
                of_thread.ask(nth, due_ns, &prompt, &to_collect);
            }
        });
        if !is_started && shared.wait_until(due_ns) {
            let now = shared.clock.now();
            let why = "the system has no thread left for it".to_owned();
            let _ = to.send(Message::Begun(Begun { nth, due_ns, sent_ns: now }));
            let _ =
                to.send(Message::Ended(Answer { nth, due_ns, ..Answer::failed(now, now, why) }));
        }
    }
}

fn ask_again(shared: &Shared, next: &AtomicUsize, to: &Sender<Message>) {
    loop {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        if nth >= shared.plan.asks.len() || shared.is_over() {
            return;
        }
        let prompt = shared.prompt(nth);
        shared.ask(nth, shared.clock.now(), &prompt, to);
    }
}

/// Takes answers until all have ended, and all threads with them; or, when it is over, some time longer.
fn collect(
    shared: &Shared,
    from: &Receiver<Message>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Vec<Answer> {
    let of = shared.plan.asks.len();
    let mut begun: Vec<Option<Begun>> = vec![None; of];
    let mut answers: Vec<Answer> = Vec::new();
    let mut now = Progress { of, ..Progress::default() };
    let mut given_up: Option<Instant> = None;
    loop {
        match from.recv_timeout(LOOK_EVERY) {
            Ok(Message::Begun(request)) => {
                begun[request.nth] = Some(request);
                now.begun += 1;
            }
            Ok(Message::Ended(answer)) => {
                begun[answer.nth] = None;
                now.ended += 1;
                now.failed += usize::from(answer.failure.is_some());
                answers.push(answer);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress(now);
        if given_up.is_none() && stop() {
            shared.is_over.store(true, Ordering::Relaxed);
            given_up = Some(Instant::now());
        }
        if given_up.is_some_and(|since| since.elapsed() > GRACE) {
            break;
        }
    }
    // Of these nothing is known but that they didn't end.
    answers.extend(begun.into_iter().flatten().map(|Begun { nth, due_ns, sent_ns }| Answer {
        nth,
        due_ns,
        sent_ns,
        ending: Some(Ending::Cancelled),
        ..Answer::default()
    }));
    answers.sort_by_key(|answer| answer.nth);
    answers
}
