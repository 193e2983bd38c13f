//! What can go wrong with a device that runs a model.

use brickscope::DeviceError;

/// Why a device can't run a model, or not any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is none, or none that could run this. One line, with what to do.
    #[error("no {api} device: {reason}")]
    NoDevice {
        /// `vulkan`, `cuda` …
        api: &'static str,
        /// Why.
        reason: String,
    },
    /// The model doesn't fit.
    #[error("{device}: {what} takes {bytes} bytes, {limit}")]
    TooLarge {
        /// The device.
        device: String,
        /// What doesn't fit: a tensor's name, the KV cache …
        what: String,
        /// How large it is.
        bytes: u64,
        /// What is exceeded.
        limit: String,
    },
    /// A call failed, or the device is lost.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
