//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

mod draw;
mod markdown;
mod names;
mod summary;
mod terminal;
mod words;
