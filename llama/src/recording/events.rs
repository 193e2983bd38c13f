//! What a recording has: graphs, passes and what lies between, as plain data.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Deserializer};

use super::chosen::Chosen;
use super::format::{CALLS, Sent};
use super::part::{AllFired, Part};
use crate::{LooksAt, Node};

/// Everything that one process recorded.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Its number.
    pub process: u32,
    /// The nodes of each graph that was described, by its number.
    pub graphs: HashMap<u32, Vec<Node>>,
    /// Which backend computed a graph, by the same number, as ggml names it; those that aren't here, the CPU's.
    pub backends: HashMap<u32, String>,
    /// Which copy of ggml computed a graph, by the same number: an index of `libraries`.
    pub copies: HashMap<u32, u32>,
    /// The copies of ggml, by their numbers.
    pub libraries: BTreeMap<u32, Library>,
    /// The contexts of llama.cpp, by their numbers.
    pub contexts: BTreeMap<u16, Context>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The requests that came to it as a server, by their numbers.
    pub asked: BTreeMap<u32, Asked>,
    /// The files of its models.
    pub models: Vec<String>,
    /// Why the recording ended before the program.
    pub fault: Option<String>,
    /// What wasn't recorded.
    pub lost: Vec<String>,
    /// How many records did not fit the file.
    pub refused: u64,
    /// How many requests came to it and aren't among `asked`; `lost` says why.
    pub missed: u64,
    /// The sums of all passes, where only some of them are in `events`.
    pub part: Option<Part>,
    /// How often the condition came true by which passes were to be kept whole, if there was one.
    pub(crate) fired: Option<AllFired>,
}

/// A copy of ggml in the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Library {
    /// Its file; empty if it is part of the program.
    #[serde(default)]
    pub file: String,
    /// The version that it states.
    #[serde(default)]
    pub version: Option<String>,
    /// The commit that it states.
    #[serde(default)]
    pub commit: Option<String>,
}

/// A context of llama.cpp, as it was at its first pass. What llama.cpp did not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Tokens that its cache has room for.
    #[serde(deserialize_with = "if_possible")]
    pub n_ctx: Option<u32>,
    /// The most tokens of a call (`-b`).
    #[serde(deserialize_with = "if_possible")]
    pub n_batch: Option<u32>,
    /// The most tokens of a graph (`-ub`).
    #[serde(deserialize_with = "if_possible")]
    pub n_ubatch: Option<u32>,
    /// The most sequences.
    #[serde(deserialize_with = "if_possible")]
    pub n_seq_max: Option<u32>,
    /// Threads for graphs of one token.
    #[serde(deserialize_with = "if_possible")]
    pub threads: Option<u32>,
    /// Threads for all others.
    #[serde(deserialize_with = "if_possible")]
    pub threads_batch: Option<u32>,
    /// How embeddings of tokens become one, by llama.cpp's number; 0 or less if they don't.
    pub pooling: Option<i32>,
    /// What it computes with.
    pub model: Option<Model>,
}

/// A model, as llama.cpp tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Model {
    /// Where it lay: another model that is there at the same time has another number.
    pub at: u64,
    /// The bytes of its tensors.
    pub bytes: Option<u64>,
    /// Its weights.
    pub parameters: Option<u64>,
    /// In a few words: `llama 1B Q8_0`.
    pub kind: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its architecture.
    pub architecture: Option<String>,
    /// The tokens of its sliding window; 0 if it has none.
    pub n_swa: Option<i32>,
}

impl Model {
    /// What attention looks at in a graph of this model, some layers of which may look at a window.
    #[must_use]
    pub fn looks_at(&self, looks_at: LooksAt) -> LooksAt {
        let window = self.n_swa.and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0);
        match (window, self.architecture.as_deref()) {
            (Some(chunk), Some("llama4")) => looks_at.within_chunks(chunk),
            (Some(window), _) => looks_at.within(window),
            (None, _) => looks_at,
        }
    }
}

/// What happened. All times are counts of the processor's counter.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A graph was computed.
    Graph(Graph),
    /// A pass ended.
    Pass(Pass),
    /// Time that the library took to describe a graph, and the number of the thread.
    Described([u64; 2], u16),
    /// Somebody looked at the threads.
    Load(Load),
    /// What a thread, by its number, called since its last pass: for each kind of call how many, and for how many counts.
    Calls(u16, [[u64; 2]; CALLS.len()]),
    /// What a thread, by its number, did in a pass besides its graphs: by the index of its brick in `format.rs`, when it began and ended.
    Inside(u16, usize, [u64; 2]),
}

/// A graph was computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// Its number among the graphs that were described.
    pub number: u32,
    /// How many computed it; 0 if another backend than the CPU did.
    pub threads: u32,
    /// The number of the thread that called for it.
    pub of_thread: u16,
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// When each node began.
    pub nodes: Vec<u64>,
    /// When each node ended, where another backend computed one after the other. Else it is empty: a node lasts until the
    /// next one begins.
    pub ends: Vec<u64>,
    /// What threads did of it, where that was recorded.
    pub shares: Vec<ThreadShares>,
    /// How many tokens were in the cache before and after it, for each sequence that it adds to, where that was recorded:
    /// the graphs of a pass have some of its tokens each.
    pub sequences: Vec<[u32; 2]>,
    /// How many experts each of its products of experts used, in order, where that was recorded; `None` if they couldn't be
    /// counted.
    pub experts: Vec<Option<u32>>,
    /// Which experts were chosen for these products, where that was recorded.
    pub chosen: Vec<Chosen>,
}

/// What a thread did of the nodes of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadShares {
    /// The number of the thread among those that computed the graph.
    pub thread: u32,
    /// For each node, for how many counts the thread worked, and for how many it waited for others.
    pub nodes: Vec<[u64; 2]>,
}

/// A pass ended. Its graphs came before it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pass {
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How many tokens it was given, if that is known.
    pub tokens: Option<u64>,
    /// How many tokens were in the cache before it for the first sequence, if that is known.
    pub position: Option<u64>,
    /// How many tokens were in the cache before and after it, for each sequence that it computed tokens of.
    pub sequences: Vec<[u32; 2]>,
    /// The numbers of these, and of how many of their tokens llama.cpp computed logits, if that is known.
    pub numbers: Vec<(u32, Option<u32>)>,
    /// What llama.cpp returned: 0 if it worked.
    pub status: i32,
    /// Graphs that were computed in it.
    pub graphs: u32,
    /// Whether it isn't one that only encodes.
    pub is_decode: bool,
    /// Whether its nodes were not timed, so that passes with and without can be compared.
    pub is_bare: bool,
    /// Whether other backends than the CPU computed nodes of it that were not timed, but left whole, in turns.
    pub is_whole: bool,
    /// Whether readings of it could not be written.
    pub is_incomplete: bool,
    /// Whether another backend than the CPU computed nodes of it that are timed in no pass.
    pub has_untimed: bool,
    /// Whether it is a graph that no call of llama.cpp is around.
    pub is_graph: bool,
    /// Whether the program says that it warms up.
    pub is_warm_up: bool,
    /// The number of its context, if that is known.
    pub context: Option<u16>,
    /// The number of its thread.
    pub of_thread: u16,
}

/// A request that came to a server by HTTP. All times are counts of the processor's counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// When its connection was accepted, if it is the first one of that.
    pub accepted: Option<u64>,
    /// When the server had read its first bytes.
    pub read: u64,
    /// Milliseconds since something had come on its connection then.
    pub idle_ms: Option<u64>,
    /// What was asked for, such as `/v1/completions`.
    pub path: String,
    /// What the server calls it, if it says so.
    pub name: Option<String>,
    /// How many tokens were made of each text in it.
    pub tokenized: Vec<u32>,
    /// The pieces of its answer.
    pub sent: Vec<SentPiece>,
    /// When its connection was found closed.
    pub gone: Option<u64>,
}

/// A piece of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPiece {
    /// When the server began to send it.
    pub begin: u64,
    /// When it was sent, as far as the server can know.
    pub end: u64,
    /// Its bytes.
    pub bytes: u64,
    /// How many tokens it says that the prompt has, and the answer, if it does.
    pub tokens: [Option<u32>; 2],
    /// What is known of it.
    pub(crate) what: Sent,
}

/// How long each thread had run and waited for a CPU until then.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// When it was.
    pub at: u64,
    /// Each thread that was there.
    pub threads: Vec<ThreadLoad>,
    /// How many pages they had waited for that were read from a disk, if that is known.
    pub disk_faults: Option<u64>,
}

/// How long a thread had run and waited for a CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThreadLoad {
    /// The system's number of it.
    pub thread: u32,
    /// Where it ran last.
    pub cpu: Option<u32>,
    /// Nanoseconds on a CPU.
    pub ran_ns: u64,
    /// Nanoseconds waiting for one.
    pub waited_ns: u64,
}

impl Pass {
    /// How many tokens were in the cache before it, of the sequences that it computed tokens of; of several, on average
    /// over these tokens.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        let (mut tokens, mut sum) = (0_u64, 0_u64);
        for [before, after] in self.sequences.iter().map(|of| of.map(u64::from)) {
            let new = after.saturating_sub(before);
            tokens += new;
            sum = sum.saturating_add(new.saturating_mul(before));
        }
        sum.checked_div(tokens).or(self.position)
    }
}

/// A number that can't be one of these is not known.
fn if_possible<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let told = Option::<i64>::deserialize(from)?;
    Ok(told.and_then(|told| u32::try_from(told).ok()))
}
