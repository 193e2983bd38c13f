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
pub(crate) mod insights;
pub(crate) mod join;
pub(crate) mod load;
pub(crate) mod markdown;
pub(crate) mod record;
pub(crate) mod shares;
pub(crate) mod summary;
pub(crate) mod terminal;
mod timeline;
pub(crate) mod timer;
