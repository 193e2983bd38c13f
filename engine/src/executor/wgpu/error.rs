//! What can go wrong on a device.

/// A device that can't be used, or a request that it can't serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence above each variant says what its fields are")]
pub enum GpuError {
    /// No device of any API that was asked.
    #[error("no GPU was found: {why}")]
    NoDevice { why: String },

    /// A device that doesn't let itself be opened.
    #[error("{device}: can't be opened: {why}")]
    Open { device: String, why: String },

    /// More memory than the device has, or gives at once.
    #[error("{device}: {what} takes {bytes} bytes, {why}")]
    Memory { device: String, what: String, bytes: u64, why: String },

    /// The device is gone, and with it all that was on it.
    #[error("{device}: the device was lost: {why}")]
    Lost { device: String, why: String },

    /// The device refused something. That is a fault of this engine or of a driver.
    #[error("{device}: {what} failed: {why}")]
    Fault { device: String, what: &'static str, why: String },
}
