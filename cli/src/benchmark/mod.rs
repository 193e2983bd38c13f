//! Measuring a model repeatedly: what is run, until when, and what becomes of the times.
//!
//! ```text
//! plan ──► measure (warm_up decides when it counts) ──► receipt ──► table · rows
//! ```

pub(crate) mod measure;
pub(crate) mod plan;
pub(crate) mod receipt;
pub(crate) mod rows;
mod sums;
pub(crate) mod table;
pub(crate) mod warm_up;
pub(crate) mod warnings;
