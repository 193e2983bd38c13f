//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

mod agreement;
mod join;
mod summary;
mod timeline;
