//! Measuring a model repeatedly: the tests to run, their warm-up, and the receipt of the results.
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
