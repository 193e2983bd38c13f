//! What the nodes of llama.cpp's graphs are to brickscope.
//!
//! llama.cpp computes a pass as a graph of operations on tensors, its nodes. This package tells by their names and shapes
//! which brick, layer and kernel each is and what work it does, and makes the spans of a pass of readings of when each
//! node ran.
//!
//! # Map
//!
//! | file | contents |
//! |---|---|
//! | `node.rs` | nodes and tensors as plain data |
//! | `bricks.rs` | which brick a node is, and its work |
//! | `labels.rs` | the nodes of a graph with a profiler's names; spans of a pass |

pub mod bricks;
mod labels;
mod node;

pub use labels::Labels;
pub use node::{Node, Tensor, Then};
