//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.

pub(crate) mod abilities;
mod agreement;
pub(crate) mod baseline;
pub(crate) mod captions;
pub(crate) mod diff;
pub(crate) mod draw;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod input;
pub(crate) mod join;
pub(crate) mod markdown;
pub(crate) mod record;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;
mod timeline;
pub(crate) mod timer;

pub(crate) use brickscope_analysis::stacks::{insights, shares, summary};
