//! What became slower between two sets of processes: all of [`brickscope_compare::compare`]; and absolute limits.

#[cfg(feature = "receipt")]
mod limits;

pub use brickscope_compare::compare::*;

#[cfg(feature = "receipt")]
pub use self::limits::{Held, Limit, decode_test};
