//! What `brickscope run` does around a recording: the folder that it lies in, the library that writes it, and the runs that
//! are made of it. `brickscope_llama::recording` reads it, and knows what nodes are.

mod described;
mod ended;
mod folder;
mod followed;
mod library;
mod runs_of;

pub(crate) use described::{Described, Of};
pub(crate) use ended::tell as tell_how_it_ended;
pub(crate) use folder::{Mark, Records};
pub(crate) use library::Library;
pub(crate) use runs_of::{Began, by_passes, describe, save, tell_so_far, with_others};
