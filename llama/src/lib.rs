//! Profile llama.cpp brick by brick.
//!
//! llama.cpp computes a pass as a graph of operations on tensors, its nodes. [`Recorder`] records the passes of a program that
//! calls llama.cpp through bindings, such as `llama-cpp-sys-2`, in its own process and by llama.cpp's public API alone.
//! It doesn't depend on any bindings: [`bindings!`] takes those that the program has. `docs/rust.md` says what is
//! measured; `brickscope run` does the same for programs that load llama.cpp as shared libraries, from outside.
//!
//! ```
//! use std::path::Path;
//!
//! use brickscope::{BrickProfiler, Phase};
//! use brickscope_llama::Recorder;
//! use llama_cpp_sys_2::*;
//!
//! unsafe fn generate(model: *mut llama_model, prompt: &mut [llama_token]) -> std::io::Result<()> {
//!     let profiler = BrickProfiler::enabled();
//!     let bindings = brickscope_llama::bindings!(llama_cpp_sys_2);
//!     let recorder = Recorder::new(&profiler, bindings).with_threads(2);
//!
//!     // Before the context is made:
//!     let mut params = unsafe { llama_context_default_params() };
//!     params.cb_eval = Some(brickscope_llama::on_node);
//!     params.abort_callback = Some(brickscope_llama::after_node);
//!     let context = unsafe { llama_init_from_model(model, params) };
//!
//!     // Around each call of llama_decode: how many tokens it is given, and how many are in the cache before it.
//!     let tokens = prompt.len();
//!     let status = recorder.pass(Phase::Prefill, tokens as u64, 0, || unsafe {
//!         llama_decode(context, llama_batch_get_one(prompt.as_mut_ptr(), tokens as i32))
//!     });
//!     assert_eq!(status, 0);
//!     // … and so on with Phase::Decode, for each token that you choose …
//!
//!     // In the end:
//!     let recorded = recorder.finish();
//!     for note in &recorded.notes {
//!         eprintln!("note: {note}");
//!     }
//!     recorded.profile.save_run(Path::new("run")).map_err(std::io::Error::other)
//! }
//! ```
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
