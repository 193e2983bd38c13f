//! Values that are unknown, and why.

use serde::{Deserialize, Serialize};

/// A value that is unknown, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// One sentence.
    pub reason: String,
}
