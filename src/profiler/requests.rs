//! Requests of a server: when they came and got tokens, and which passes were for them.

mod lately;

use std::collections::HashSet;

use brickscope_profile::{Ending, Part, PartKind, PassPart, Phase, Profile, Request};

use super::{BrickProfiler, PassTimer, TimedPass, TimedPassError, TimedSpan};
use crate::sync::lock_unmodelled as lock;

/// The most requests, parts and tokens that are kept: some hundred megabytes together.
const MOST_REQUESTS: usize = 1 << 20;
const MOST_PARTS: usize = 1 << 21;
const MOST_TOKENS: usize = 1 << 22;

/// What was recorded of requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// By their numbers.
    told: Vec<Told>,
    next: u32,
    parts: Vec<PassPart>,
    tokens: usize,
    /// What had no room.
    dropped: u64,
    /// What was told of requests that are not known, or that had ended.
    unknown: u64,
    /// The number that the first of it named.
    first_unknown: Option<u32>,
}

#[derive(Debug)]
struct Told {
    number: u32,
    request: Request,
    /// Whether nothing more of it is recorded: profiling was off while it went on, or it was there before a reset.
    is_cut: bool,
}

/// A copy of what was recorded, taken before passes are collected: each of its tokens came after its pass.
#[derive(Debug)]
pub(super) struct Copied {
    numbers: Vec<u32>,
    requests: Vec<Request>,
    parts: Vec<PassPart>,
    dropped: u64,
}

impl Requests {
    pub(super) fn copied(&self) -> Copied {
        Copied {
            numbers: self.told.iter().map(|told| told.number).collect(),
            requests: self.told.iter().map(|told| told.request.clone()).collect(),
            parts: self.parts.clone(),
            dropped: self.dropped,
        }
    }

    fn add(&mut self, request: Request) -> u32 {
        let number = self.next;
        self.next += 1;
        if self.told.len() < MOST_REQUESTS {
            self.told.push(Told { number, request, is_cut: false });
        } else {
            self.dropped += 1;
        }
        number
    }

    /// What was told of requests that are not known, or that had ended.
    pub(super) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The number that the first of it named.
    pub(super) fn first_unknown(&self) -> Option<u32> {
        self.first_unknown
    }

    fn find(&mut self, number: u32) -> Option<&mut Told> {
        let at = self.told.binary_search_by_key(&number, |told| told.number).ok()?;
        Some(&mut self.told[at])
    }

    fn add_parts(&mut self, pass: u32, parts: &[Part]) {
        let is_unknown = |part: &&Part| part.request != Part::NOBODY && part.request >= self.next;
        self.unknown += parts.iter().filter(is_unknown).count() as u64;
        let first = || parts.iter().find(is_unknown).map(|part| part.request);
        self.first_unknown = self.first_unknown.or_else(first);
        if self.parts.len() + parts.len() <= MOST_PARTS {
            self.parts.extend(parts.iter().map(|&part| PassPart { pass, part }));
        } else {
            self.dropped += parts.len() as u64;
        }
    }

    /// From here on nothing more is known of requests that go on: passes for them are missing.
    pub(super) fn cut(&mut self) {
        for told in &mut self.told {
            told.is_cut |= told.request.ended_ns.is_none();
        }
    }

    /// Forgets all but the requests that go on, since passes may be for them. Their tokens are forgotten, and no more are
    /// recorded.
    pub(super) fn reset(&mut self) {
        self.cut();
        self.told.retain(|told| told.request.ended_ns.is_none());
        self.told.iter_mut().for_each(|told| told.request.tokens_ns.clear());
        self.parts.clear();
        (self.tokens, self.dropped, self.unknown) = (0, 0, 0);
        self.first_unknown = None;
    }
}

impl Copied {
    /// Leaves out parts of passes that were discarded or abandoned, or had no room. If a part is of a request that isn't
    /// known, nobody knows whom its pass was for.
    pub(super) fn fill(self, profile: &mut Profile) {
        let Self { numbers, requests, parts, dropped } = self;
        profile.requests = requests;
        profile.dropped.requests = dropped;
        let mut serials: Vec<u32> = profile.passes.iter().map(|pass| pass.serial).collect();
        serials.sort_unstable();
        let mut unknown = HashSet::new();
        let renumbered = parts.into_iter().filter_map(|of| {
            serials.binary_search(&of.pass).ok()?;
            if of.part.request == Part::NOBODY {
                return Some(of);
            }
            let Ok(at) = numbers.binary_search(&of.part.request) else {
                unknown.insert(of.pass);
                return None;
            };
            Some(PassPart { part: Part { request: at as u32, ..of.part }, ..of })
        });
        profile.parts = renumbered.collect();
        profile.parts.retain(|of| !unknown.contains(&of.pass));
    }
}

/// Says which requests a server has, and which passes are for them. Made by [`BrickProfiler::requests`].
///
/// Each call takes a lock, outside of what is timed. While profiling is off nothing is recorded. A request that goes on while
/// it is turned off is recorded up to there; one that came meanwhile isn't, and passes for it are for nobody who is known. Of
/// requests that go on when the profiler is reset, no more tokens are recorded, since what came before is not known any more.
///
/// ```
/// use brickscope::{BrickProfiler, Ending, Part};
///
/// let profiler = BrickProfiler::enabled();
/// let requests = profiler.requests();
/// // A request comes, and gets a place in the batch.
/// let a = requests.arrive("chatcmpl-1");
/// requests.admit(a);
/// // Its prompt, beside the next token of another one.
/// let b = requests.arrive("chatcmpl-2");
/// requests.admit(b);
/// let parts = [Part::prompt(a, 512, 0), Part::decode(b, 94)];
/// let pass = profiler.begin_pass_of(&parts);
/// // … the pass …
/// profiler.end_pass(pass, 513, 0);
/// // Each token, where it goes to who asked for it.
/// requests.token(a);
/// requests.token(b);
/// requests.end(a, Ending::Length);
///
/// let profile = profiler.profile();
/// assert_eq!(profile.requests[0].tokens_ns.len(), 1);
/// assert_eq!(profile.parts.len(), 2);
/// assert_eq!(profile.check(), Ok(()));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RequestRecorder<'p>(pub(super) &'p BrickProfiler);

impl RequestRecorder<'_> {
    /// A request has come, now. Returns its number, by which the other calls and [`Part`]s name it.
    #[must_use]
    pub fn arrive(self, id: &str) -> u32 {
        let now = self.0.recorder.clock().now();
        self.record(Request { id: id.to_owned(), arrived_ns: now, ..Request::default() })
    }

    /// The engine has a request, now, its text as tokens: what comes from here on is the queue. Servers that read requests
    /// elsewhere say so.
    pub fn receive(self, request: u32) {
        self.change(request, |request, now| {
            if request.tokens_ns.is_empty() && request.admitted_ns.is_none() {
                request.received_ns.get_or_insert(now);
            }
        });
    }

    /// A request has got a place in the batch, now. What came before was the queue.
    pub fn admit(self, request: u32) {
        self.change(request, |request, now| {
            if request.tokens_ns.is_empty() {
                request.admitted_ns.get_or_insert(now);
            }
        });
    }

    /// A token of a request is there, now.
    pub fn token(self, request: u32) {
        let mut all = lock(&self.0.requests);
        let has_room = all.tokens < MOST_TOKENS;
        let is_told = self.change_in(&mut all, request, |request, now| {
            if has_room {
                request.tokens_ns.push(now);
            }
        });
        if is_told && has_room {
            all.tokens += 1;
        } else if is_told {
            // Its further tokens would seem to follow the last that had room.
            all.dropped += 1;
            all.find(request).into_iter().for_each(|told| told.is_cut = true);
        }
    }

    /// A request has ended, now. What is told of it later is not recorded.
    pub fn end(self, request: u32, ending: Ending) {
        self.change(request, |request, now| {
            request.ended_ns = Some(now);
            request.ending = Some(ending);
        });
    }

    /// Adds a request whose times are known: readings of the profiler's clock. Returns its number.
    pub fn record(self, request: Request) -> u32 {
        let mut all = lock(&self.0.requests);
        if self.0.recorder.is_active() {
            return all.add(request);
        }
        // A number that nobody has: passes for it are for a request that isn't known.
        all.next += 1;
        all.next - 1
    }

    fn change(self, request: u32, change: impl FnOnce(&mut Request, u64)) {
        self.change_in(&mut lock(&self.0.requests), request, change);
    }

    /// Changes a request that goes on. Returns whether there is one, and profiling is on.
    fn change_in(
        self,
        all: &mut Requests,
        request: u32,
        change: impl FnOnce(&mut Request, u64),
    ) -> bool {
        if !self.0.recorder.is_active() {
            return false;
        }
        // Under the lock, so that times don't go backwards.
        let now = self.0.recorder.clock().now();
        let next = all.next;
        match all.find(request) {
            Some(told) if !told.is_cut && told.request.ended_ns.is_none() => {
                change(&mut told.request, now);
                return true;
            }
            // Who made its tokens may hear later that it was cancelled.
            Some(told) if told.is_cut || told.request.ending == Some(Ending::Cancelled) => {}
            // It ended before a reset, came while profiling was off, or had no room.
            None if request < next => {}
            _ => {
                all.unknown += 1;
                all.first_unknown.get_or_insert(request);
            }
        }
        false
    }
}

/// # Requests of a server
impl BrickProfiler {
    /// Requests: when they came, got a place and got tokens.
    #[must_use]
    pub fn requests(&self) -> RequestRecorder<'_> {
        RequestRecorder(self)
    }

    /// Begins a pass that is for these requests: see [`requests`](Self::requests) and [`begin_pass`](Self::begin_pass). It is
    /// one of prefill if it processes any prompt, else one of decode.
    pub fn begin_pass_of(&self, parts: &[Part]) -> PassTimer {
        let has_prompt = parts.iter().any(|part| part.kind == PartKind::Prompt);
        let phase = if has_prompt { Phase::Prefill } else { Phase::Decode };
        if !self.recorder.is_active() {
            return self.begin_pass(phase);
        }
        // Waits and allocates before the pass begins.
        let mut all = lock(&self.requests);
        all.parts.reserve(parts.len());
        let timer = self.begin_pass(phase);
        if let Some(open) = &timer.open {
            all.add_parts(open.serial(), parts);
        }
        timer
    }

    /// Like [`record_pass`](Self::record_pass), of a pass that was for these requests. That a token waited for a CPU is known
    /// of passes whose [`disturbance`](TimedPass::disturbance) is stated, by [`mark_load`](Self::mark_load) before them and
    /// [`disturbance_since`](Self::disturbance_since) after them.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn record_pass_of(
        &self,
        pass: &TimedPass,
        spans: &[TimedSpan],
        parts: &[Part],
    ) -> Result<(), TimedPassError> {
        if let Some(serial) = self.record_timed(pass, spans)? {
            lock(&self.requests).add_parts(serial, parts);
        }
        Ok(())
    }
}
