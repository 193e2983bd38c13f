//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

mod agreement;
mod input;
mod join;
mod shares;
mod draw;
mod names;
mod summary;
mod timeline;
