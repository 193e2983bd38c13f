//! What `brickscope run` records of an unmodified llama.cpp: the library that is loaded into it, and the profile that is made
//! of its file. `brickscope-llama` reads the file, and knows what nodes are.

mod described;
mod groups;
mod passes;
mod preload;
mod program;
mod records;
mod replay;
mod turns;
mod unnamed;
mod warm_up;

pub(crate) use brickscope_llama::file::Recorded;
pub(crate) use described::{Described, Of};
pub(crate) use groups::groups;
pub(crate) use preload::{FOLDER, FOLLOW, Library, SHARES, TURNS};
pub(crate) use program::nothing;
use program::{Kind, Loaded};
pub(crate) use records::{Mark, Records};
pub(crate) use replay::lacks;
pub(crate) use unnamed::name as name_weights;
