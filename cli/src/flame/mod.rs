//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

pub(crate) mod abilities;
mod agreement;
pub(crate) mod baseline;
pub(crate) mod draw;
pub(crate) mod input;
pub(crate) mod join;
mod names;
pub(crate) mod shares;
pub(crate) mod summary;
pub(crate) mod take;
mod timeline;
pub(crate) mod timer;
mod draw;
mod markdown;
mod names;
mod summary;
mod terminal;
mod words;
pub(crate) mod diff;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod summary;
mod text;
