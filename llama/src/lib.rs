//! Profile llama.cpp brick by brick.
//!
//! llama.cpp computes a pass as a graph of operations on tensors, its nodes. [`Recorder`] records the passes of a program that
//! calls llama.cpp through bindings, such as `llama-cpp-sys-2`, in its own process and by llama.cpp's public API alone.
//! It doesn't depend on any bindings: [`bindings!`] takes those that the program has. `docs/rust-llama.md` has the whole
//! story; `brickscope run` does the same for programs that load llama.cpp as shared libraries, from outside.
//!
//! The rest is what both need: what nodes are, by their names and shapes, and the spans of a pass.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `recorder.rs` | passes of one's own process, from their begin to the profile |
//! | `ffi.rs` | llama.cpp's side: bindings, callbacks, and all `unsafe` |
//! | `running.rs` | what callbacks store |
//! | `executed.rs` | which nodes llama.cpp calls back after |
//! | `node.rs` | nodes and tensors as plain data |
//! | `bricks.rs` | which brick a node is |
//! | `work.rs` | what a node computes, reads and writes |
//! | `looks.rs` | which tokens attention looks at in a graph |
//! | `recording/` | what `brickscope run` records of other programs, with the feature `recording` |
//! | `labels.rs` | the nodes of a graph with a profiler's names; spans of a pass |

pub mod bricks;
mod executed;
mod ffi;
mod labels;
mod looks;
mod node;
mod recorder;
#[cfg(all(unix, feature = "recording"))]
pub mod recording;
mod running;
pub mod whisper;
mod work;

pub use ffi::{Bindings, after_node, node_ended, on_node};
pub use labels::{Labels, Ran};
pub use looks::LooksAt;
pub use node::{Node, Tensor, Then};
pub use recorder::{Outcome, Recorded, Recorder};

/// For code that [`bindings!`] makes. Not public API, and no promise of any version.
#[doc(hidden)]
pub mod __private {
    pub use crate::ffi::{Buffers, Raw, RawTexts, SOURCES, mixed};
}

/// Pages of `docs/`, so that their examples are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/rust-llama.md")]
    struct RustLlama;
}
