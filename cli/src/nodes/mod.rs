//! What `brickscope run` records of an unmodified llama.cpp: the file of the library that is loaded into it, and the profile
//! that is made of it. What its nodes are, `brickscope-llama` knows.

mod file;
mod preload;
mod replay;

pub(crate) use file::Recorded;
pub(crate) use preload::{FOLDER, SHARES, library};
pub(crate) use replay::{Replayed, replay};
