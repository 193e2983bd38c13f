//! How fast a kernel of ours takes weights in that lie near the core: its own pace.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;

/// How fast some threads took in the weights of products with one kernel, while these lay in a cache: no memory is that near,
/// so a run of this kernel isn't faster, whatever memory gives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KernelPace {
    /// The kernel, by the name that it has in profiles: `gemv_q4_k_avx512`.
    pub kernel: String,
    /// Whether rows of the weights were interleaved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_interleaved: bool,
    /// The tokens that each weight was multiplied with, of a kernel that multiplies several at once: for each of them all weights
    /// count in `bytes_per_second` together, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
    /// The cache that the weights lay in: `L1` or `L2`.
    pub level: String,
    /// The number of threads, each with weights of its own.
    pub threads: u32,
    /// The bytes of weights that they read together, again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set: Option<u64>,
    /// Bytes of weights per second, of all threads together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
}

impl KernelPace {
    /// The kernel that multiplies one vector with weights of this format on this backend.
    #[must_use]
    pub fn kernel_of(format: &str, backend: &str) -> String {
        format!("gemv_{format}_{backend}")
    }

    /// The kernel that multiplies several tokens with weights of this format on this backend.
    #[must_use]
    pub fn kernel_of_tokens(format: &str, backend: &str) -> String {
        format!("gemm_{format}_{backend}")
    }

    /// Its name among the limits of a machine: `gemv_q4_k_avx512 from L1`, or `gemm_q4_k_avx512 of 128 tokens from L2`.
    #[must_use]
    pub fn name(&self) -> String {
        let tokens = self.tokens.map_or(String::new(), |n| format!(" of {n} tokens"));
        let layout = if self.is_interleaved { ", interleaved," } else { "" };
        format!("{}{tokens}{layout} from {}", self.kernel, self.level)
    }
}
