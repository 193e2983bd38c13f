//! Flamegraphs: where stacks come from, what they are made of, and how they are drawn.
//!
//! A build without the feature `flamegraph` neither takes samples nor draws, which spares it the unwinder, the readers of
//! symbols and inferno. `history` reads the figures of flamegraphs in any build.

#[cfg(feature = "flamegraph")]
pub(crate) mod abilities;
#[cfg(feature = "flamegraph")]
mod agreement;
#[cfg(feature = "flamegraph")]
pub(crate) mod baseline;
#[cfg_attr(not(feature = "flamegraph"), allow(dead_code, reason = "`history` needs a part of it"))]
pub(crate) mod captions;
#[cfg_attr(not(feature = "flamegraph"), allow(dead_code, reason = "`history` needs a part of it"))]
pub(crate) mod diff;
#[cfg(feature = "flamegraph")]
pub(crate) mod draw;
pub(crate) mod history;
#[cfg(feature = "flamegraph")]
pub(crate) mod index;
#[cfg(feature = "flamegraph")]
pub(crate) mod input;
#[cfg(feature = "flamegraph")]
pub(crate) mod join;
#[cfg_attr(not(feature = "flamegraph"), allow(dead_code, reason = "`history` needs a part of it"))]
pub(crate) mod markdown;
#[cfg(feature = "flamegraph")]
pub(crate) mod record;
#[cfg(feature = "flamegraph")]
pub(crate) mod terminal;
#[cfg(test)]
mod tests;
#[cfg(feature = "flamegraph")]
mod timeline;
#[cfg(feature = "flamegraph")]
pub(crate) mod timer;

pub(crate) use brickscope_analysis::stacks::summary;
#[cfg(feature = "flamegraph")]
pub(crate) use brickscope_analysis::stacks::{insights, shares};
