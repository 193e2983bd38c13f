//! What another program's file tells of passes and kernels beside their times.

use serde::{Deserialize, Serialize};

/// What the name of a server's step tells of the work in it. What it doesn't tell is `None`, and isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepTold {
    /// Requests whose prompts are read.
    pub context: PartTold,
    /// Requests that get their next tokens.
    pub generation: PartTold,
    /// Whether the step does both.
    pub is_mixed: bool,
    /// Requests that waited for a place in a step, if that was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Those of them that had had one: they were preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempted: Option<u64>,
}

/// One kind of a step's requests. With q tokens of a request that a step computes and k tokens that they attend to, the
/// sums over the requests are what attention's work is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartTold {
    /// How many requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// The sum of q.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The sum of k.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// The sum of q².
    #[serde(skip_serializing_if = "Option::is_none")]
    pub squares: Option<u64>,
    /// The sum of q·k.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub products: Option<u64>,
}

/// Kernels of devices that are in no line of a table of bricks: each is a brick of its own name, or of its operation's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unruled {
    /// How many names they have.
    pub names: u64,
    /// How long they ran, in nanoseconds.
    pub ns: u64,
    /// How long all kernels and copies ran.
    pub of_ns: u64,
    /// Patterns for those that ran longest, and how long these ran.
    pub longest: Vec<(String, u64)>,
}
