//! What kind of work a frame does, told by its name.

use serde::{Deserialize, Serialize};

/// What kind of work a frame does, as flamegraphs colour it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Kernels on quantised weights: red.
    Quantized,
    /// Other products of matrices: green.
    Matmul,
    /// Copying, clearing and allocating memory: blue.
    Memory,
    /// The kernel of the operating system, and calls into it: orange.
    System,
    /// The rest: grey.
    #[default]
    Other,
}
