//! Errors of a CUDA device and its driver.

/// A missing CUDA device, a failed call, or a lost device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence above each variant says what its fields are")]
pub enum CudaError {
    /// There is no driver.
    #[error("no CUDA here: the NVIDIA driver's library, {LIBRARY}, can't be loaded")]
    NoLibrary,

    /// The driver lacks a function that is called here.
    #[error(
        "the NVIDIA driver is too old: {LIBRARY} has no `{symbol}`; CUDA 12.0 (driver 525) or newer has"
    )]
    TooOld { symbol: &'static str },

    /// The driver has no such device.
    #[error("{}", no_device(*.ordinal, *.devices))]
    NoDevice { ordinal: usize, devices: usize },

    /// A call that the driver refused, or an error of earlier work that it reports now.
    #[error("CUDA: {call} failed with error {code}: {says}")]
    Call { call: &'static str, code: u32, says: String },

    /// More memory than the device has left.
    #[error("the CUDA device has {free} bytes of memory left, but {asked} were asked for")]
    Memory { asked: u64, free: u64 },

    /// An access outside of a buffer.
    #[error("{len} elements from {first} on are not inside a buffer of {room}")]
    Range { first: usize, len: usize, room: usize },

    /// PTX that the driver can't compile for the device.
    #[error("{file}: the driver can't compile it: {says}")]
    Ptx { file: String, says: String },

    /// A kernel that is in no PTX.
    #[error("there is no CUDA kernel `{kernel}`")]
    NoKernel { kernel: String },

    /// Arguments that a kernel's PTX doesn't declare.
    #[error("kernel `{kernel}` takes parameters of {takes:?} bytes, but was given {given:?}")]
    Arguments { kernel: String, takes: Vec<usize>, given: Vec<usize> },

    /// A grid that is too large for CUDA.
    #[error(
        "kernel `{kernel}` would need a grid of {blocks} blocks in one dimension, more than CUDA launches"
    )]
    Grid { kernel: String, blocks: usize },

    /// A captured graph that differs from what was issued.
    #[error("the captured graph is not what was issued: {what}")]
    Capture { what: String },

    /// A kernel node of a captured graph whose layer and brick are unknown.
    #[error(
        "node {node} of the captured graph, {what}, belongs to no brick: the graph has {nodes} kernel \
         nodes, the plan has {steps} steps"
    )]
    Unmapped { node: String, what: String, nodes: usize, steps: usize },

    /// A pass that doesn't fit this executor.
    #[error("the CUDA executor was not made for this pass: {what}")]
    Pass { what: String },

    /// A mark that was never made, or was made for another pass.
    #[error("there is no such mark on the CUDA stream: {mark}")]
    Mark { mark: u64 },

    /// An earlier error has lost the device.
    #[error("the CUDA device is lost ({cause}); a new executor may work again")]
    Lost { cause: String },
}

const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

fn no_device(ordinal: usize, devices: usize) -> String {
    match devices {
        0 => "the CUDA driver is installed, but offers no device".to_owned(),
        1 => format!("there is no CUDA device {ordinal}: the driver offers one, number 0"),
        n => format!("there is no CUDA device {ordinal}: the driver offers {n}, from 0 on"),
    }
}

impl CudaError {
    /// Whether the device is lost in this context: errors after which, by cuda.h, the process has to be
    /// terminated or the context recreated.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            Self::Call { code, .. } => {
                // ECC, unavailable, destroyed context, and the errors that by cuda.h leave "the process in an
                // inconsistent state".
                matches!(code, 46 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 999)
            }
            _ => false,
        }
    }

    /// Whether the machine lacks a driver, a new enough one, or a device.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NoLibrary | Self::TooOld { .. } | Self::NoDevice { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        for error in [
            CudaError::NoLibrary,
            CudaError::TooOld { symbol: "cuGraphUpload" },
            CudaError::NoDevice { ordinal: 0, devices: 0 },
            CudaError::NoDevice { ordinal: 2, devices: 1 },
        ] {
            let text = error.to_string();
            assert!(error.is_absent() && !error.is_lost(), "{text}");
            assert!(!text.contains('\n') && text.len() < 120, "{text}");
        }
    }

    #[test]
    fn an_error_of_a_kernel_loses_the_device_and_one_of_an_argument_does_not() {
        let call = |code| CudaError::Call { call: "cuLaunchKernel", code, says: String::new() };
        assert!(call(700).is_lost() && call(719).is_lost() && call(214).is_lost());
        assert!(!call(1).is_lost() && !call(2).is_lost() && !call(900).is_lost());
    }
}
