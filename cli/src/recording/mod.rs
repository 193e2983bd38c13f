//! What `brickscope run` does around a recording: the folder that it lies in, the library that writes it, and the run that
//! is made of it. `brickscope_llama::recording` reads it, and knows what nodes are.

mod described;
mod folder;
mod followed;
mod library;

pub(crate) use described::{Described, Of};
pub(crate) use folder::{Mark, Records};
pub(crate) use library::Library;
