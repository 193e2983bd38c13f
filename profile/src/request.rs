//! Requests of a server, and which of them a pass was for.
//!
//! A pass that several requests share is one pass with several parts. Its time belongs to all of them, and is never divided.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sums::Pass;

/// A request: when it came, when it was let in, and when each of its tokens was there, in nanoseconds of the profile's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What the server calls it; `gen_ai.response.id` of OpenTelemetry.
    pub id: String,
    /// When it came.
    pub arrived_ns: u64,
    /// When the engine had it, its text as tokens. What came before is no wait for a place in the batch. `None` if that isn't
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_ns: Option<u64>,
    /// When it got a place in the batch. `None` if that isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_ns: Option<u64>,
    /// When each of its tokens was there, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens_ns: Vec<u64>,
    /// When it ended. `None` if it hadn't when the recording ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// How it ended, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// How many tokens its prompt had; `gen_ai.usage.input_tokens`. `None` if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// How many tokens its answer had; `gen_ai.usage.output_tokens`. `None` if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Request {
    /// Whether it ended, and neither failed nor was cancelled.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.ended_ns.is_some() && !matches!(self.ending, Some(Ending::Error | Ending::Cancelled))
    }

    /// The mean time of a token after the first one, in nanoseconds: from the first piece to the last, by the tokens after the
    /// first. Where nobody said how many there are, a piece is a token. `None` of fewer than two.
    #[must_use]
    pub fn mean_token_ns(&self) -> Option<u64> {
        let (first, last) = (self.tokens_ns.first()?, self.tokens_ns.last()?);
        let pieces = self.tokens_ns.len() as u64;
        let further = self.output_tokens.unwrap_or(pieces).max(pieces) - 1;
        (pieces > 1).then(|| last.saturating_sub(*first) / further)
    }
}

/// How a request ended; `gen_ai.response.finish_reasons` of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ending {
    /// The model ended it, or a text at which to stop.
    Stop,
    /// It had as many tokens as were asked for, or as fit.
    Length,
    /// Who asked went away.
    Cancelled,
    /// It failed.
    Error,
}

impl Ending {
    /// The word for it, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a pass does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The request: an index into [`Profile::requests`](crate::Profile::requests), or [`Part::NOBODY`].
    pub request: u32,
    /// A piece of its prompt, or its next tokens.
    pub kind: PartKind,
    /// Tokens of it that the pass processes.
    pub tokens: u64,
    /// Its tokens in the KV cache before the pass.
    pub position: u64,
    /// How many of these were found in a cache of prompts, and never processed for it. Stated with its first pass.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
}

/// What is processed of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// A piece of its prompt.
    Prompt,
    /// Its next token, or several that were drafted.
    Decode,
}

/// A part, with its pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassPart {
    /// [`Pass::serial`](crate::Pass::serial).
    pub pass: u32,
    /// What the pass does for the request.
    #[serde(flatten)]
    pub part: Part,
}

impl Part {
    /// Stands for a request that isn't known: the pass is for somebody, and nobody knows for whom.
    pub const NOBODY: u32 = u32::MAX;

    /// `tokens` of a prompt, of which `position` tokens are in the KV cache.
    #[must_use]
    pub fn prompt(request: u32, tokens: u64, position: u64) -> Self {
        Self { request, kind: PartKind::Prompt, tokens, position, cached: 0 }
    }

    /// The next token of a request that has `position` tokens in the KV cache.
    #[must_use]
    pub fn decode(request: u32, position: u64) -> Self {
        Self { request, kind: PartKind::Decode, tokens: 1, position, cached: 0 }
    }

    /// The same, where this many tokens of the prompt were found in a cache.
    #[must_use]
    pub fn with_cached(self, cached: u64) -> Self {
        Self { cached, ..self }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Checks that times of requests don't go backwards, and that parts are of passes and requests that there are. Passes may be
/// missing if some weren't kept.
pub(crate) fn check(
    requests: &[Request],
    parts: &[PassPart],
    passes: &[Pass],
    all_passes_are_kept: bool,
) -> Result<(), String> {
    for (index, request) in requests.iter().enumerate() {
        let times = [request.arrived_ns].into_iter().chain(request.received_ns);
        let times = times.chain(request.admitted_ns);
        let times = times.chain(request.tokens_ns.iter().copied()).chain(request.ended_ns);
        if !times.is_sorted() {
            return Err(format!("request {index}: its times go backwards"));
        }
    }
    let mut serials: Vec<u32> = passes.iter().map(|pass| pass.serial).collect();
    serials.sort_unstable();
    for PassPart { pass, part } in parts {
        if part.request != Part::NOBODY && part.request as usize >= requests.len() {
            return Err(format!("pass {pass} is for request {}, which isn't there", part.request));
        }
        if all_passes_are_kept && serials.binary_search(pass).is_err() {
            return Err(format!("a part is of pass {pass}, which isn't there"));
        }
    }
    Ok(())
}
