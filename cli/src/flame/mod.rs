//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

pub(crate) mod diff;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod summary;
mod text;
