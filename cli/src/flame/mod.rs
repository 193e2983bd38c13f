//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

pub(crate) mod diff;
mod load;
mod summary;
mod text;
