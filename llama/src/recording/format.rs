//! The file of a recording, as both sides have it: the library in `llama/preload/`, which writes it in the program, and this
//! package, which reads it.
//!
//! It is `PID.nodes` in the folder that [`FOLDER`] names; `PID-1.nodes`, if that process has become another program.
//! `PID.loaded` has a line `program PATH` for each program that the library was loaded into, and `said WHY` for what it could
//! not do.
//!
//! It is mapped, so that what was written is kept however the process ends. Numbers are little-endian, 64 bits wide.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 8 | [`MAGIC`] |
//! | 8 | [`VERSION`] |
//! | 16 | bytes of the file that are written, header included |
//! | 24 | process |
//! | 32 | records that did not fit |
//! | 40 | up to where it was read, by who reads it while it is written, and may be gone; else 0 |
//! | 48 | requests that came to a server and aren't recorded |
//! | 64 on | records |
//!
//! A record is a word, `kind | length << 32`, and as many bytes as `length` says, filled up with zeros to a multiple of 8.
//! The kinds are [`Record`]'s. Times are counts of the processor's counter.

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 8] = b"BRKNODES";
pub(crate) const VERSION: u64 = 1;
/// The bytes before the first record.
pub(crate) const HEADER: usize = 64;
/// The largest file that is written: some hundred thousand passes of a model of a billion weights.
pub(crate) const MOST: usize = 1 << 30;

/// What of a file has room on the disk, and what is mapped of it, begins and ends at multiples of this: of the pages of any
/// machine.
pub(crate) const PAGES: usize = 64 << 10;

/// Names the folder that the library writes to, in the environment of a program.
pub(crate) const FOLDER: &str = "BRICKSCOPE_RECORD";
/// Set in the environment of a program whose threads' shares are to be recorded.
pub(crate) const SHARES: &str = "BRICKSCOPE_SHARES";
/// Set in the environment of a program of which only every other pass is to be looked at.
pub(crate) const TURNS: &str = "BRICKSCOPE_TURNS";
/// Set in the environment of a program of which those that it starts are to be recorded, too.
pub(crate) const FOLLOW: &str = "BRICKSCOPE_FOLLOW";
/// Set in the environment of a program whose file is read while it is written, so that it may go on behind the largest size.
pub(crate) const ENDLESS: &str = "BRICKSCOPE_ENDLESS";

/// The word in the place of a number that isn't known.
pub(crate) const UNKNOWN: u64 = u64::MAX;
/// The CPU of a thread that isn't known.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// What is known of a piece of an answer: half a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Of HTTP, where the answer begins; else 0.
    pub(crate) status: u16,
    /// Events that have text; a token each, in most servers.
    pub(crate) pieces: u8,
    /// Whether it says why the answer ended.
    pub(crate) is_last: bool,
    /// Whether that is because it was as long as it may be.
    pub(crate) is_limit: bool,
    /// Whether that is an error.
    pub(crate) is_error: bool,
    /// Whether the answer is whole.
    pub(crate) is_end: bool,
}

impl Sent {
    pub(crate) fn word(self) -> u32 {
        u32::from(self.status & 0x3ff)
            | u32::from(self.pieces) << 10
            | u32::from(self.is_last) << 18
            | u32::from(self.is_limit) << 19
            | u32::from(self.is_error) << 20
            | u32::from(self.is_end) << 21
    }

    pub(crate) fn of(word: u32) -> Self {
        let is = |bit: u32| word >> bit & 1 == 1;
        Self {
            status: (word & 0x3ff) as u16,
            pieces: (word >> 10) as u8,
            is_last: is(18),
            is_limit: is(19),
            is_error: is(20),
            is_end: is(21),
        }
    }
}

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// A [`Head`]; begin; end; a count for each node when it began.
    Graph = 1,
    /// JSON: what the nodes of a graph are, and which other backend than the CPU computed them, if one did.
    Nodes = 2,
    /// Begin; end; tokens, or unknown; position of the first sequence, or unknown; status; [`OfPass`]; then for each sequence
    /// that grew, [tokens in the cache](halves) before and after. After its graphs.
    Pass = 3,
    /// Begin and end of describing a graph, which is in its pass; the thread's number.
    Described = 4,
    /// Count; then for each thread its number and its CPU, as [halves], ns on a CPU, ns waiting for one; then how many pages they
    /// have waited for that were read from a disk, or unknown.
    Load = 5,
    /// The path of a GGUF file that the process has mapped.
    Model = 6,
    /// Why the recording ends.
    Fault = 7,
    /// What isn't recorded.
    Lost = 8,
    /// A thread's number; for each node of the graph before, for how many counts it worked, and waited.
    Shares = 9,
    /// A [`Head`] without threads; for each node that another backend computed by itself, its begin and its end.
    Part = 10,
    /// JSON: a copy of ggml, its file and version. Before its graphs.
    Library = 11,
    /// JSON: a context of llama.cpp, its settings and its model. Before its passes.
    Context = 12,
    /// The number of the thread; then for each [`Call`] how many, and for how many counts, since its pass before. Before its
    /// pass.
    Calls = 13,
    /// A [`Head`] whose number is an [`Inside`]; begin; end. Before its pass.
    Inside = 14,
    /// For each sequence that the graph before adds to, [tokens in the cache](halves) before and after. Where a pass may have
    /// several graphs.
    Cached = 15,
    /// For each product of experts of the graph before, in order, how many of them it used, or unknown.
    Experts = 16,
    /// For each sequence that the next pass adds to, [its number](halves), and how many tokens of it have outputs, and one more;
    /// 0 if that isn't known. Of a server, from its first request on.
    Numbers = 17,
    /// A request came to a server: its number; when its connection was accepted, if no other came by that, or unknown; when it
    /// was begun to be read, and when its first piece was; milliseconds since something had come then, or unknown; its path.
    Asked = 18,
    /// A piece of an answer: [the request, and what it is](Sent); when it was begun to be sent, and when it was; bytes; the
    /// [tokens](halves) of the prompt and of the answer that it states, or 0; the name of the request, with the first piece that
    /// has one.
    Sent = 19,
    /// A request; when its connection was found closed. The last of it.
    Gone = 20,
    /// [A request, and how many tokens](halves) were made of a text in it, on the thread that had read it.
    Tokenized = 21,
    /// For each choice of experts of the graph before, in order, its first product and what was chosen: see `chosen.rs`.
    Chosen = 22,
}

impl Record {
    const ALL: [Self; 22] = [
        Self::Graph,
        Self::Nodes,
        Self::Pass,
        Self::Described,
        Self::Load,
        Self::Model,
        Self::Fault,
        Self::Lost,
        Self::Shares,
        Self::Part,
        Self::Library,
        Self::Context,
        Self::Calls,
        Self::Inside,
        Self::Cached,
        Self::Experts,
        Self::Numbers,
        Self::Asked,
        Self::Sent,
        Self::Gone,
        Self::Tokenized,
        Self::Chosen,
    ];

    /// The kind that has a number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|record| *record as u8 == number)
    }
}

/// What a call between passes is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Sampling = 0,
    Grammar = 1,
    Tokenizing = 2,
    Text = 3,
    Results = 4,
}

/// The names of [`Call`]s.
pub(crate) const CALLS: [&str; 5] =
    ["sampling", "grammar", "tokenizing", "making text", "reading results"];

/// What is done in a pass besides its graphs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inside {
    Build = 0,
    Alloc = 1,
    Inputs = 2,
    Results = 3,
}

/// The bricks of [`Inside`].
pub(crate) const INSIDE: [&str; 4] = ["BuildGraph", "AllocGraph", "SetInputs", "CopyResults"];

/// Two numbers in one word: the first in its lower half.
pub(crate) fn word([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The two numbers of a word.
pub(crate) fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// What a record begins with that is of a thread's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Of a graph, or what is done.
    pub(crate) number: u32,
    /// How many threads computed a graph.
    pub(crate) threads: u16,
    /// The number of the thread that called for it.
    pub(crate) of_thread: u16,
}

impl Head {
    pub(crate) fn word(self) -> u64 {
        word([self.number, u32::from(self.threads) | u32::from(self.of_thread) << 16])
    }

    pub(crate) fn of(word: u64) -> Self {
        let [number, threads] = halves(word);
        Self { number, threads: threads as u16, of_thread: (threads >> 16) as u16 }
    }
}

/// What one word says of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OfPass {
    /// How many graphs were computed in it.
    pub(crate) graphs: u32,
    /// Whether it isn't one that only encodes.
    pub(crate) is_decode: bool,
    /// Whether its nodes were not timed, so that passes with and without can be compared.
    pub(crate) is_bare: bool,
    /// Whether nodes of other backends were not timed, but left whole, in turns.
    pub(crate) is_whole: bool,
    /// Whether readings of it could not be written.
    pub(crate) is_incomplete: bool,
    /// Whether another backend computed nodes that are never timed.
    pub(crate) has_untimed: bool,
    /// Whether it is a graph that no call of llama.cpp is around.
    pub(crate) is_graph: bool,
    /// Whether the program says that it warms up.
    pub(crate) is_warm_up: bool,
    /// The number of its context, below 512; 0 if that isn't known.
    pub(crate) context: u16,
    /// The number of its thread.
    pub(crate) of_thread: u16,
}

impl OfPass {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.graphs)
            | u64::from(self.is_decode) << 32
            | u64::from(self.is_bare) << 33
            | u64::from(self.is_whole) << 34
            | u64::from(self.is_incomplete) << 35
            | u64::from(self.has_untimed) << 36
            | u64::from(self.is_graph) << 37
            | u64::from(self.is_warm_up) << 38
            | u64::from(self.context & 0x1ff) << 39
            | u64::from(self.of_thread) << 48
    }

    pub(crate) fn of(word: u64) -> Self {
        let is = |bit: u32| word >> bit & 1 == 1;
        Self {
            graphs: word as u32,
            is_decode: is(32),
            is_bare: is(33),
            is_whole: is(34),
            is_incomplete: is(35),
            has_untimed: is(36),
            is_graph: is(37),
            is_warm_up: is(38),
            context: (word >> 39) as u16 & 0x1ff,
            of_thread: (word >> 48) as u16,
        }
    }
}
