//! What executors on devices share.

// Read by executors that are features.
#[allow(dead_code)]
pub(crate) mod plan;
