//! What `brickscope run` records of an unmodified llama.cpp: the library that is loaded into it, and the profile that is made
//! of its file. `brickscope-llama` reads the file, and knows what nodes are.

mod preload;
mod replay;

pub(crate) use brickscope_llama::file::Recorded;
pub(crate) use preload::{FOLDER, SHARES, TURNS, library};
pub(crate) use replay::{Replayed, replay};
