//! Requests of a server: when they came and got tokens, and which passes were for them.

use brickscope_profile::{Ending, Part, PartKind, PassPart, Phase, Profile, Request};

use super::{BrickProfiler, PassTimer, TimedPass, TimedPassError, TimedSpan};
use crate::sync::lock_unmodelled as lock;

/// What was recorded of requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The number of the first: those before were forgotten.
    first: u32,
    requests: Vec<Request>,
    parts: Vec<PassPart>,
}

impl Requests {
    /// Parts of passes that were discarded or abandoned, or had no room, are of none.
    pub(super) fn fill(&self, profile: &mut Profile) {
        profile.requests.clone_from(&self.requests);
        let mut serials: Vec<u32> = profile.passes.iter().map(|pass| pass.serial).collect();
        serials.sort_unstable();
        let is_kept = |of: &&PassPart| serials.binary_search(&of.pass).is_ok();
        let renumbered = |of: &PassPart| {
            let request = of.part.request.checked_sub(self.first)?;
            let is_there = (request as usize) < self.requests.len();
            is_there.then_some(PassPart { part: Part { request, ..of.part }, ..*of })
        };
        profile.parts = self.parts.iter().filter(is_kept).filter_map(renumbered).collect();
    }

    /// Forgets all of it. The numbers of requests are not given again: a server may still use them.
    pub(super) fn reset(&mut self) {
        self.first += self.requests.len() as u32;
        self.requests.clear();
        self.parts.clear();
    }
}

/// Says which requests a server has, and which passes are for them. Made by [`BrickProfiler::requests`].
///
/// Each call takes a lock, between passes. While profiling is off nothing is recorded, and a request that came meanwhile has
/// no tokens.
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

    /// A request has got a place in the batch, now. What came before was the queue.
    pub fn admit(self, request: u32) {
        self.change(request, |request, now| {
            request.admitted_ns.get_or_insert(now);
        });
    }

    /// A token of a request is there, now.
    pub fn token(self, request: u32) {
        self.change(request, |request, now| request.tokens_ns.push(now));
    }

    /// A request has ended, now.
    pub fn end(self, request: u32, ending: Ending) {
        self.change(request, |request, now| {
            request.ended_ns = Some(now);
            request.ending = Some(ending);
        });
    }

    /// Adds a request whose times are known: readings of the profiler's clock. Returns its number.
    pub fn record(self, request: Request) -> u32 {
        let mut all = lock(&self.0.requests);
        let number = all.first + all.requests.len() as u32;
        all.requests.push(request);
        number
    }

    fn change(self, request: u32, change: impl FnOnce(&mut Request, u64)) {
        if self.0.recorder.is_active() {
            let mut all = lock(&self.0.requests);
            // Under the lock, so that times don't go backwards.
            let now = self.0.recorder.clock().now();
            let index = request.checked_sub(all.first);
            if let Some(request) = index.and_then(|at| all.requests.get_mut(at as usize)) {
                change(request, now);
            }
        }
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
        let timer = self.begin_pass(if has_prompt { Phase::Prefill } else { Phase::Decode });
        if let Some(open) = &timer.open {
            self.add_parts(open.serial(), parts);
        }
        timer
    }

    /// Like [`record_pass`](Self::record_pass), of a pass that was for these requests.
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
            self.add_parts(serial, parts);
        }
        Ok(())
    }

    fn add_parts(&self, pass: u32, parts: &[Part]) {
        let parts = parts.iter().map(|&part| PassPart { pass, part });
        lock(&self.requests).parts.extend(parts);
    }
}
