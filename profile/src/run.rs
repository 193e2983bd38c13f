//! What ran, how, what recording it cost, and where the profile is from.

use serde::{Deserialize, Serialize};

use crate::absent::Absent;

/// How a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: Vec<String>,
    /// The backend that ran the kernels.
    pub backend: String,
    /// Threads of the CPU that shared the work; 0 where it ran on a device.
    pub threads: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// The seed of the sampler; `None` for greedy decoding.
    pub seed: Option<u64>,
}

/// What ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Model {
    /// The file.
    pub path: String,
    /// The name that the file gives.
    pub name: Option<String>,
    /// The architecture.
    pub architecture: String,
    /// The quantisation, as far as one word can say it.
    pub quantization: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Weights.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub embedding_length: u32,
    /// The weights are random: the timings are real, the text is noise.
    pub synthetic: bool,
    /// Where the weights were while the CPU read them, in a few words: `mapped file` or `large pages`, or
    /// `large pages, rows interleaved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_in: Option<String>,
    /// How long it took to copy the file there, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_in_ns: Option<u64>,
    /// How many bytes of them were put into another order there, for kernels that read them faster so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_bytes: Option<u64>,
    /// How long that took, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_in_ns: Option<u64>,
}

/// What the profiler itself cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Nanoseconds of one span, measured on this machine with this clock.
    pub span_ns: Option<f64>,
    /// Spans recorded.
    pub spans: u64,
    /// How `span_ns` was obtained, or why it is absent.
    pub basis: String,
}

impl Overhead {
    /// `span_ns` times `spans`: an estimate, in nanoseconds.
    #[must_use]
    pub fn estimate_ns(&self) -> Option<f64> {
        Some(self.span_ns? * self.spans as f64)
    }
}

/// What the caller observed by other means.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Share of L2 accesses that hit, 0 to 1, as the caller was told by hardware.
    pub l2_cache_hit_rate: Option<f32>,
    /// Whether transfers were zero-copy.
    pub zero_copy: bool,
    /// Tokens that there is room for in the KV cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_tokens: Option<u64>,
}

/// A file of another program that a profile was made from: its times are those of that program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Imported {
    /// The format: `llama-bench`, `chrome`, `vk-perf-logger`, `folded`.
    pub format: String,
    /// The file.
    pub file: String,
    /// The program that wrote it, and its version, if the file says so.
    pub program: Option<String>,
    /// What the file can't tell, each with the reason.
    #[serde(default)]
    pub lacks: Vec<Absent>,
    /// Parts of it that were left out, and why, with their number.
    #[serde(default)]
    pub left_out: Vec<(String, u64)>,
    /// What it says of how it was measured, as it names that: what must be alike for times to compare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<(String, String)>,
    /// Samples by function, of a file that counts those and has no times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<FunctionSamples>,
}

/// How often a function was seen in samples: no time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionSamples {
    /// The function.
    pub name: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in it or in what it called.
    pub total: u64,
}

/// A format of another program, of which a profile can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The output of `llama-bench -o json` or `-o jsonl`.
    LlamaBench,
    /// Chrome's trace events as JSON, an array or an object with one: candle's `--tracing`, by
    /// tracing-chrome, PyTorch's profiler and others.
    Chrome,
    /// The output of ggml's Vulkan backend with `GGML_VK_PERF_LOGGER=1`, possibly among other lines.
    VkPerfLogger,
    /// Folded stacks.
    Folded,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::LlamaBench, Self::Chrome, Self::VkPerfLogger, Self::Folded];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaBench => "llama-bench",
            Self::Chrome => "chrome",
            Self::VkPerfLogger => "vk-perf-logger",
            Self::Folded => "folded",
        }
    }
}
