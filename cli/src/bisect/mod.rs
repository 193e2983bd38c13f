//! The parts of `bisect` that touch the world: the repository, the builds, what is fetched, the measurements and the file
//! that a search goes on from. What to measure and what it says is decided in `brickscope_analysis::bisect`.

pub(crate) mod git;
pub(crate) mod measure;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod state;
pub(crate) mod trees;
pub(crate) mod versions;
