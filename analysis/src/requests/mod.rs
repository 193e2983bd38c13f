//! Where the time of requests went: what lies between two tokens of one, and what slow tokens have that others don't.
//!
//! From its arrival on, the time of a request is divided into intervals: up to its first token, between tokens, and up to its
//! end. Each is divided by what was done meanwhile, to the nanosecond:
//!
//! ```text
//! before the engine + queue + own passes + passes of others + between passes + unattributed = interval
//! ```
//!
//! A pass that several requests share is an own pass of each of them, and is never divided. What prompts of others [cost](Cost)
//! in it is a second figure, which is predicted.

mod again;
mod alone;
mod cause;
mod client;
mod list;
mod neighbour;
mod now;
mod order;
mod others;
mod own;
mod queue;
mod row;
mod slow;
mod times;
mod waits;

use std::collections::{HashMap, HashSet};
use std::fmt;

use brickscope_profile::keep::KeptRequests;
use brickscope_profile::{Part, PartKind, Pass, Profile, Request, Run};
use serde::{Deserialize, Serialize};

pub(crate) use self::alone::{Alone, OWN};
pub use self::cause::{Cause, Caused, Causes, SLOW};
pub(crate) use self::cause::{FEWEST, KINDS, OfKind};
pub use self::client::{Client, NoClient, OF_CLIENT, ONLY_CLIENT, Way, is_by_client, late_ns};
pub use self::list::{LONGEST, Listed, SLOWEST, SLOWEST_FIRST};
pub(crate) use self::neighbour::CHANCE;
pub use self::neighbour::{Beside, Cost, Costs, NotKnown, PromptCost, Sum, WithoutPrompts};
pub use self::now::{Longest, Now, RequestNow, Stage};
pub use self::order::Order;
pub use self::others::InPasses;
pub(crate) use self::own::OwnBricks;
pub use self::row::{KnownPieces, Row};
pub use self::slow::{Neighbour, Slow};
pub(crate) use self::times::too_few;
pub use self::times::{Times, percentile, times};
pub use self::waits::{Waited, Waits};

/// What the server did in a piece of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    /// The engine did not have the request yet: it was read, and its text made tokens.
    Receiving,
    /// The request had no place in the batch yet, whatever ran meanwhile.
    Queue,
    /// A pass for this request alone.
    OwnAlone,
    /// A pass for it and for prompts of others.
    OwnBesidePrompts,
    /// A pass for it and for next tokens of others.
    OwnBesideDecode,
    /// A pass for it, and for prompts and next tokens of others.
    OwnBesideBoth,
    /// A pass without it, for prompts of others.
    OtherPrompts,
    /// A pass without it, for next tokens of others.
    OtherDecode,
    /// A pass without it, for prompts and next tokens of others.
    OtherBoth,
    /// No pass ran: the host scheduled, sampled, wrote text or sent it.
    Between,
    /// A pass ran of which nobody said whom it was for, or one for somebody who isn't known, and no pass for this one is; or no
    /// pass is known, and passes are missing: they had no room, or never ended, or are not in this run
    /// [yet](brickscope_profile::Run::goes_on).
    Unattributed,
}

impl Piece {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Receiving,
        Self::Queue,
        Self::OwnAlone,
        Self::OwnBesidePrompts,
        Self::OwnBesideDecode,
        Self::OwnBesideBoth,
        Self::OtherPrompts,
        Self::OtherDecode,
        Self::OtherBoth,
        Self::Between,
        Self::Unattributed,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receiving => "before the engine",
            Self::Queue => "queue",
            Self::OwnAlone => "own pass, alone",
            Self::OwnBesidePrompts => "own pass, beside prompts of others",
            Self::OwnBesideDecode => "own pass, beside tokens of others",
            Self::OwnBesideBoth => "own pass, beside prompts and tokens of others",
            Self::OtherPrompts => "other pass: prompts of others",
            Self::OtherDecode => "other pass: tokens of others",
            Self::OtherBoth => "other pass: prompts and tokens of others",
            Self::Between => "between passes",
            Self::Unattributed => "(unattributed)",
        }
    }

    /// Whether prompts of others were processed.
    #[must_use]
    pub const fn has_prompts_of_others(self) -> bool {
        matches!(
            self,
            Self::OwnBesidePrompts | Self::OwnBesideBoth | Self::OtherPrompts | Self::OtherBoth
        )
    }

    fn of_pass(is_own: bool, prompts_of_others: u32, tokens_of_others: u32) -> Self {
        match (is_own, prompts_of_others > 0, tokens_of_others > 0) {
            (true, false, false) => Self::OwnAlone,
            (true, true, false) => Self::OwnBesidePrompts,
            (true, false, true) => Self::OwnBesideDecode,
            (true, true, true) => Self::OwnBesideBoth,
            (false, false, false) => Self::Unattributed,
            (false, true, false) => Self::OtherPrompts,
            (false, false, true) => Self::OtherDecode,
            (false, true, true) => Self::OtherBoth,
        }
    }
}

/// What ends an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// The first token.
    FirstToken,
    /// A further token: how many came before it.
    Token(u32),
    /// The end of the request.
    End,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstToken => f.pad("1"),
            Self::Token(before) => f.pad(&(u64::from(*before) + 1).to_string()),
            Self::End => f.pad("end"),
        }
    }
}

/// A piece of a request's time, divided by what was done meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The request: an index into [`Profile::requests`].
    pub request: u32,
    /// What ends it.
    pub until: Until,
    /// When it begins, in nanoseconds of the profile's clock.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// The nanoseconds of each [`Piece`], in the order of [`Piece::ALL`]. Together they are the interval.
    pub pieces: [u64; Piece::ALL.len()],
}

impl Interval {
    /// How long it is, in nanoseconds.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// The nanoseconds of a piece.
    #[must_use]
    pub fn of(&self, piece: Piece) -> u64 {
        self.pieces[piece as usize]
    }
}

/// The requests of a profile, beside its passes.
///
/// ```
/// use brickscope::{BrickProfiler, Ending, MockClock, Part};
/// use brickscope_analysis::requests::{Piece, Requests};
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let (a, b) = (profiler.requests().arrive("a"), profiler.requests().arrive("b"));
/// hand.advance(1_000); // both wait
/// profiler.requests().admit(a);
/// let pass = profiler.begin_pass_of(&[Part::prompt(a, 8, 0)]);
/// hand.advance(5_000);
/// profiler.end_pass(pass, 8, 0);
/// hand.advance(10);
/// profiler.requests().token(a);
/// profiler.requests().admit(b);
/// let pass = profiler.begin_pass_of(&[Part::decode(a, 8), Part::prompt(b, 900, 0)]);
/// hand.advance(70_000);
/// profiler.end_pass(pass, 901, 8);
/// profiler.requests().token(a);
/// profiler.requests().end(a, Ending::Stop);
///
/// let profile = profiler.profile();
/// let requests = Requests::of(&profile);
/// let intervals: Vec<_> = requests.intervals(0).collect();
/// assert_eq!(intervals[0].of(Piece::Queue), 1_000);
/// assert_eq!(intervals[0].of(Piece::OwnAlone), 5_000);
/// // The second token took 70 µs, beside the prompt of b.
/// assert_eq!(intervals[1].of(Piece::OwnBesidePrompts), 70_000);
/// ```
#[derive(Debug)]
pub struct Requests<'p> {
    profile: &'p Profile,
    passes: Vec<OfPass>,
    /// Of each pass, the latest end of it and of those before it.
    ended_by: Vec<u64>,
    /// The request, kind and tokens of each part, pass by pass.
    parts: Vec<(u32, PartKind, u64)>,
    /// What time is in which no pass ran.
    idle: Piece,
    /// Up to when passes are known: one that goes on while the run is written isn't in it yet.
    known_ns: u64,
    /// Of each request, whether a pass is known that was for it.
    has_passes: Vec<bool>,
    /// Of each request, the passes that computed its tokens.
    outputs: Vec<Outputs>,
    /// What was kept, where not all was.
    kept: Option<&'p KeptRequests>,
    /// Passes that computed tokens of a request again, as indexes into the profile's, each with the request.
    again: HashSet<(usize, u32)>,
}

/// The passes that computed the tokens of a request, one each.
#[derive(Debug, Clone, Default)]
struct Outputs {
    /// By when they begin.
    passes: Vec<usize>,
    /// Whether the last one of them was for its prompt.
    is_prompt: bool,
    /// Whether one computed several.
    has_several: bool,
}

/// A pass, and whom it was for.
#[derive(Debug)]
struct OfPass {
    /// An index into the profile's.
    nth: usize,
    start_ns: u64,
    end_ns: u64,
    /// A range of the parts.
    parts: [usize; 2],
    prompts: u32,
    tokens: u32,
    /// Whether it was for somebody who isn't known.
    is_for_nobody: bool,
}

/// Passes that ran and aren't among those of a profile: they had no room, or had not ended.
pub(crate) fn missing_passes(profile: &Profile) -> u64 {
    let dropped = &profile.dropped;
    let missing = [dropped.passes, dropped.abandoned_passes, dropped.open_passes];
    missing.into_iter().fold(0, u64::saturating_add)
}

/// Whether a run is of a server, whatever its program is called: requests came to it, and passes ran for them. It has no end and
/// no load of its own, so `brickscope try` can't make it again. The run of a client has no passes.
#[must_use]
pub fn is_server(profile: &Profile) -> bool {
    let has_passes = !profile.passes.is_empty() || !profile.phases.is_empty();
    has_passes && requests_came(profile)
}

/// Whether requests came to what a run is of, recorded or not.
#[must_use]
pub fn requests_came(profile: &Profile) -> bool {
    let were_kept = profile.kept.as_ref().is_some_and(|kept| kept.requests.is_some());
    were_kept || !profile.requests.is_empty() || profile.dropped.missed_requests > 0
}

/// The least that this many in a hundred don't exceed: one of them, so that screens and causes have the same median.
pub(crate) fn rank(sorted: &[u64], percentile: u32) -> Option<u64> {
    sorted.get(rank_of(sorted.len(), percentile)).copied()
}

/// Where that is.
fn rank_of(number: usize, percentile: u32) -> usize {
    (number * percentile as usize).div_ceil(100).max(1) - 1
}

/// Whether tokens of a run are counted by the phases of its passes: one with a prompt of a request may decode for others, and
/// is of prefill. Then those of decode passes are not all that were generated.
#[must_use]
pub fn counts_by_passes(profile: &Profile) -> bool {
    let is_of_requests = !(profile.requests.is_empty() && profile.parts.is_empty());
    is_of_requests && !profile.phases.is_empty()
}

impl<'p> Requests<'p> {
    /// Puts requests beside passes.
    #[must_use]
    pub fn of(profile: &'p Profile) -> Self {
        let mut by_pass: Vec<_> = profile.parts.iter().collect();
        by_pass.sort_by_key(|of| of.pass);
        let parts = by_pass.iter().map(|of| (of.part.request, of.part.kind, of.part.tokens));
        let parts: Vec<(u32, PartKind, u64)> = parts.collect();
        // A serial should be of one pass; where a file has several of one, each has its parts.
        let mut of_serial: HashMap<u32, ([usize; 2], [u32; 2])> = HashMap::new();
        for (at, of) in by_pass.iter().enumerate() {
            let (range, counts) = of_serial.entry(of.pass).or_insert(([at, at], [0; 2]));
            range[1] = at + 1;
            counts[usize::from(of.part.kind == PartKind::Decode)] += 1;
        }
        let of_pass = |(nth, pass): (usize, &Pass)| {
            let (parts, [prompts, tokens]) =
                of_serial.get(&pass.serial).copied().unwrap_or_default();
            let end_ns = pass.start_ns.saturating_add(pass.wall_ns);
            let is_for_nobody =
                by_pass[parts[0]..parts[1]].iter().any(|of| of.part.request == Part::NOBODY);
            let start_ns = pass.start_ns;
            OfPass { nth, start_ns, end_ns, parts, prompts, tokens, is_for_nobody }
        };
        let mut passes: Vec<OfPass> = profile.passes.iter().enumerate().map(of_pass).collect();
        passes.sort_by_key(|pass| pass.start_ns);
        let ended_by = passes.iter().scan(0, |latest: &mut u64, pass| {
            *latest = pass.end_ns.max(*latest);
            Some(*latest)
        });
        let ended_by: Vec<u64> = ended_by.collect();
        let goes_on = profile.run.as_ref().is_some_and(Run::goes_on);
        let known_ns = if goes_on { ended_by.last().copied().unwrap_or(0) } else { u64::MAX };
        // Where passes are missing, nobody knows in which gap; and a run of a client has none.
        let is_missing = missing_passes(profile) > 0 || profile.passes.is_empty();
        let idle = if is_missing { Piece::Unattributed } else { Piece::Between };
        let mut has_passes = vec![false; profile.requests.len()];
        for (request, ..) in &parts {
            if let Some(has_passes) = has_passes.get_mut(*request as usize) {
                *has_passes = true;
            }
        }
        let mut outputs = vec![Outputs::default(); profile.requests.len()];
        for (at, pass) in passes.iter().enumerate() {
            for &(request, kind, tokens) in &parts[pass.parts[0]..pass.parts[1]] {
                let Some(of) = outputs.get_mut(request as usize) else { continue };
                let is_prompt = kind == PartKind::Prompt;
                // Of a prompt in several passes, the last one computes a token.
                if of.is_prompt && is_prompt {
                    of.passes.pop();
                }
                of.passes.push(at);
                of.is_prompt = is_prompt;
                of.has_several |= !is_prompt && tokens != 1;
            }
        }
        let again = again::computed_again(&passes, &by_pass, profile.requests.len());
        let kept = profile.kept.as_ref().and_then(|kept| kept.requests.as_ref());
        Self { profile, passes, ended_by, parts, idle, known_ns, has_passes, outputs, kept, again }
    }

    /// The requests, as they were told.
    #[must_use]
    pub fn all(&self) -> &'p [Request] {
        &self.profile.requests
    }

    /// How many requests ended well, and nobody knows which passes were for them; 0 where that isn't known of any.
    #[must_use]
    pub fn untied(&self) -> u64 {
        if let Some(kept) = self.kept {
            return kept.untied;
        }
        let all = self.all().iter().zip(&self.has_passes);
        let untied = all.filter(|(of, has_passes)| of.is_answered() && !**has_passes).count();
        if self.parts.is_empty() { 0 } else { untied as u64 }
    }

    /// The intervals of a request, in order. None if nothing of it ended.
    ///
    /// # Panics
    ///
    /// If there is no such request.
    pub fn intervals(&self, request: u32) -> impl Iterator<Item = Interval> + '_ {
        self.intervals_to(request, |_| true)
    }

    /// The intervals of a request that end at times that are wanted: only these are divided.
    ///
    /// # Panics
    ///
    /// If there is no such request.
    pub fn intervals_to(
        &self,
        request: u32,
        is_wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = Interval> {
        let wanted = self.spans(request).filter(move |(.., to_ns)| is_wanted(*to_ns));
        wanted.map(move |(until, from_ns, to_ns)| {
            let pieces = self.divided(request, from_ns, to_ns);
            Interval { request, until, from_ns, to_ns, pieces }
        })
    }

    /// Those that stand for some: all, but for those that are only there since they were in passes of others.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let beside = self.kept.map_or(&[][..], |kept| kept.beside.as_slice());
        let all = 0..self.profile.requests.len() as u32;
        all.filter(|number| beside.binary_search(number).is_err())
    }

    /// Whether all passes are known that ran from the arrival of a request to its end.
    fn is_covered(&self, request: u32) -> bool {
        let of = &self.profile.requests[request as usize];
        let end = of.ended_ns.or(of.tokens_ns.last().copied()).unwrap_or(of.arrived_ns);
        self.kept.is_some_and(|kept| {
            kept.covered_ns(of.arrived_ns, end) == end.saturating_sub(of.arrived_ns)
        })
    }

    /// Of how many requests passes are missing, of those that were kept.
    pub(crate) fn not_covered(&self) -> u64 {
        let not = self.numbers().filter(|&number| self.kept.is_some() && !self.is_covered(number));
        not.count() as u64
    }

    /// Adds a time in which no pass ran that is known.
    fn add_idle(&self, pieces: &mut [u64; Piece::ALL.len()], from_ns: u64, to_ns: u64) {
        let known_to_ns = to_ns.min(self.known_ns).max(from_ns);
        pieces[Piece::Unattributed as usize] += to_ns - known_to_ns;
        let (ns, to_ns) = (known_to_ns - from_ns, known_to_ns);
        // Where only some passes were kept, none is missing beside the requests that were.
        let covered = self.kept.map_or(0, |kept| kept.covered_ns(from_ns, to_ns)).min(ns);
        pieces[Piece::Between as usize] += covered;
        pieces[self.idle as usize] += ns - covered;
    }

    /// The intervals of all requests.
    pub fn all_intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        self.numbers().flat_map(|request| self.intervals(request))
    }

    /// Those of all requests that are wanted, by what ends them and how many nanoseconds they are long: only these are divided.
    pub(crate) fn all_where(
        &self,
        is_wanted: impl Fn(Until, u64) -> bool,
    ) -> impl Iterator<Item = Interval> {
        let spans = self
            .numbers()
            .flat_map(move |request| self.spans(request).map(move |span| (request, span)));
        let wanted = spans.filter(move |&(_, (until, from, to))| is_wanted(until, to - from));
        wanted.map(move |(request, (until, from_ns, to_ns))| {
            let pieces = self.divided(request, from_ns, to_ns);
            Interval { request, until, from_ns, to_ns, pieces }
        })
    }

    /// What ends each interval of all requests, and how long it is in nanoseconds: much faster than to divide them.
    pub fn lengths(&self) -> impl Iterator<Item = (Until, u64)> + '_ {
        let spans = self.numbers().flat_map(|request| self.spans(request));
        spans.map(|(until, from_ns, to_ns)| (until, to_ns - from_ns))
    }

    /// What ends each interval of a request, when it begins and when it ends.
    fn spans(&self, request: u32) -> impl Iterator<Item = (Until, u64, u64)> + '_ {
        let of = &self.profile.requests[request as usize];
        let tokens = of.tokens_ns.iter().zip(0..).map(|(&at, nth)| match nth {
            0 => (Until::FirstToken, at),
            _ => (Until::Token(nth), at),
        });
        let ends = tokens.chain(of.ended_ns.map(|at| (Until::End, at)));
        ends.scan(of.arrived_ns, |from, (until, at)| {
            // Those of a file may go backwards.
            let (from_ns, to_ns) = (*from, at.max(*from));
            *from = to_ns;
            Some((until, from_ns, to_ns))
        })
    }

    /// What was done from a time to another, for a request and for others.
    fn divided(&self, request: u32, from_ns: u64, to_ns: u64) -> [u64; Piece::ALL.len()] {
        let mut pieces = [0; Piece::ALL.len()];
        let of = &self.profile.requests[request as usize];
        let received_ns = of.received_ns.unwrap_or(from_ns).clamp(from_ns, to_ns);
        let after_queue = of.admitted_ns.unwrap_or(received_ns).clamp(received_ns, to_ns);
        pieces[Piece::Receiving as usize] = received_ns - from_ns;
        pieces[Piece::Queue as usize] = after_queue - received_ns;

        // Begins and ends of passes, each with what it is.
        let mut changes: Vec<(u64, bool, Piece)> = Vec::new();
        for pass in self.overlapping(after_queue, to_ns) {
            let piece = self.piece_of(pass, request);
            let (begin, end) = (pass.start_ns.max(after_queue), pass.end_ns.min(to_ns));
            if begin < end {
                changes.extend([(begin, true, piece), (end, false, piece)]);
            }
        }
        changes.sort_unstable();
        // Where passes overlap, an own one counts, then one of others.
        let mut running = [0u32; Piece::ALL.len()];
        let mut at = after_queue;
        for (when, begins, piece) in changes {
            let now = Piece::ALL.into_iter().find(|&piece| running[piece as usize] > 0);
            match now {
                Some(piece) => pieces[piece as usize] += when - at,
                None => self.add_idle(&mut pieces, at, when),
            }
            at = when;
            let running = &mut running[piece as usize];
            *running = if begins { *running + 1 } else { running.saturating_sub(1) };
        }
        self.add_idle(&mut pieces, at, to_ns);
        pieces
    }

    /// The passes that run in a time, by when they begin.
    fn overlapping(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &OfPass> {
        let first = self.ended_by.partition_point(|&ended| ended <= from_ns);
        let passes = self.passes[first..].iter().take_while(move |pass| pass.start_ns < to_ns);
        passes.filter(move |pass| pass.end_ns > from_ns)
    }

    fn piece_of(&self, pass: &OfPass, request: u32) -> Piece {
        let [from, to] = pass.parts;
        // That may have been this one.
        if pass.is_for_nobody && !self.has_passes[request as usize] {
            return Piece::Unattributed;
        }
        let (mut prompts, mut tokens, mut is_own) = (pass.prompts, pass.tokens, false);
        for (of, kind, _) in &self.parts[from..to] {
            if *of == request {
                is_own = true;
                match kind {
                    PartKind::Prompt => prompts -= 1,
                    PartKind::Decode => tokens -= 1,
                }
            }
        }
        Piece::of_pass(is_own, prompts, tokens)
    }

    /// How long a token that ends an interval had been there and not left: it was computed, and the next pass had begun. An
    /// engine begins that once it has chosen the token. 0 where nobody knows which pass computed which token.
    fn sending_ns(&self, interval: &Interval) -> u64 {
        let nth = match interval.until {
            Until::FirstToken => 0,
            Until::Token(nth) => nth as usize,
            Until::End => return 0,
        };
        let is_known = missing_passes(self.profile) == 0 || self.is_covered(interval.request);
        if !is_known || self.profile.dropped.requests > 0 {
            return 0;
        }
        let of = &self.outputs[interval.request as usize];
        let tokens = self.profile.requests[interval.request as usize].tokens_ns.len();
        // A token may have no text, or one that leaves with the next one's: then it is the latest pass that may be meant.
        let more = of.passes.len().checked_sub(tokens).filter(|_| !of.has_several);
        let computed = more.and_then(|more| of.passes.get(nth + more));
        let computed = computed.map(|&pass| self.passes[pass].end_ns);
        let next = computed.and_then(|computed| {
            let next = self.passes.partition_point(|pass| pass.start_ns < computed);
            self.passes.get(next)
        });
        next.map_or(0, |next| interval.to_ns.saturating_sub(next.start_ns.max(interval.from_ns)))
    }

    /// When an interval begins, without what of it was in the queue.
    fn after_queue(&self, interval: &Interval) -> u64 {
        let admitted = self.profile.requests[interval.request as usize].admitted_ns;
        interval.from_ns.max(admitted.unwrap_or(0))
    }

    /// The most tokens of prompts of others that one pass of an interval processed.
    pub(crate) fn largest_prompt_piece(&self, interval: &Interval) -> u64 {
        let of_pass = |pass: &OfPass| {
            let [from, to] = pass.parts;
            let is_meant = |(request, kind, _): &&(u32, PartKind, u64)| {
                *kind == PartKind::Prompt && *request != interval.request
            };
            let prompts = self.parts[from..to].iter().filter(is_meant);
            prompts.fold(0, |sum: u64, (.., tokens)| sum.saturating_add(*tokens))
        };
        self.overlapping(self.after_queue(interval), interval.to_ns).map(of_pass).max().unwrap_or(0)
    }
}
