//! What can't be told, and why.

use serde::{Deserialize, Serialize};

/// A thing that can't be told, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// One sentence.
    pub reason: String,
}
