//! The parts of `bisect` that touch the world: the repository, the builds, the measurements and the file that a search
//! goes on from. What to measure and what it says is decided in `brickscope_analysis::bisect`.

pub(crate) mod git;
pub(crate) mod measure;
pub(crate) mod shown;
pub(crate) mod state;
pub(crate) mod trees;
