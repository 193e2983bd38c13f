//! Receipt 1.0.0, frozen: neither names nor meanings of its fields change any more. A fixture in the tests
//! checks that. Receipt 1.1.0 is the same and says what a device did: only a benchmark on a device is of that version.
//! A version in which a field means something else will be another module.
//!
//! Durations are whole nanoseconds of one monotonic clock, read right before and right after the
//! work. Whole numbers stay below 2^53, so that every JSON reader reads them alike. Unknown values are
//! `null`, with the reason in a field beside them where there can be several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of a receipt of the CPU.
pub const VERSION: &str = "1.0.0";

/// The version of a receipt that names its [`Device`].
pub const VERSION_WITH_DEVICE: &str = "1.1.0";

/// The result of a benchmark, in a form that others can check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`VERSION`], or [`VERSION_WITH_DEVICE`] if there is a `device`.
    pub schema_version: String,
    /// When the last measurement ended, RFC 3339 in UTC.
    pub timestamp: String,
    /// `real`: the kernels ran. No receipt is written for anything else.
    pub compute_path: String,
    /// What ran the kernels: `cpu` or `cuda`; with a `device` also `wgpu`.
    pub backend: String,
    /// Whether every repetition of every test chose the same tokens.
    pub deterministic: bool,
    /// Tokens requested from a repetition of the decode test; 0 without such a test.
    pub tokens_requested: u64,
    /// Tokens that each of its repetitions generated.
    pub tokens_generated: u64,
    /// `median_ts` of the decode test (the one at the least depth); `null` without one.
    pub tokens_per_second: Option<f64>,
    /// The ids of all kernels that ran in measured repetitions, sorted.
    pub kernels: Vec<String>,
    /// `BRICKSCOPE_VERSION`, `OS` (`linux-x86_64`), `RUST_VERSION`, and anything else that the writer
    /// knows about its build: target features, flags, profile.
    pub environment: BTreeMap<String, String>,
    /// The model that ran.
    pub model: Model,

    /// How it was run.
    pub run: Run,
    /// The program that measured.
    pub binary: Binary,
    /// The machine.
    pub machine: Machine,
    /// The device that ran the kernels; absent in receipts of 1.0.0. With a device, the machine only issued the work and
    /// waited, and there are no ceilings, since those would be of the machine's CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The machine's measured peaks, with the run's threads and instruction set.
    pub ceilings: Option<Ceilings>,
    /// Why there are none.
    pub ceilings_absent: Option<String>,
    /// The clock behind every duration.
    pub clock: Clock,
    /// One for each kind of work: prefill, decode, at each depth.
    pub tests: Vec<Test>,
    /// What the profiler cost.
    pub overhead: Overhead,
    /// What was lost or not recorded as intended, by name; empty if nothing was.
    pub dropped: BTreeMap<String, u64>,
    /// The other load on the machine, from the first sample to the last.
    pub load: Load,
    /// The hash over all of the above. Absent only while the receipt is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// The model that ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The file.
    pub path: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The name that the file gives.
    pub name: Option<String>,
    /// The architecture, such as `llama`.
    pub architecture: String,
    /// The quantisation in one word, such as `q4_k`.
    pub quantization: String,
    /// Weights.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// The weights are random: the timings are real, the text is noise.
    pub synthetic: bool,
}

/// How it was run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The command line.
    pub command: Vec<String>,
    /// The instruction set of the kernels, such as `scalar` or `avx2`; on a device `cuda` or `wgpu`.
    pub kernels: String,
    /// Threads that shared the work; on a device 1, the thread that issued it.
    pub threads: u32,
    /// The most tokens in one pass.
    pub batch: u64,
    /// How tokens were chosen: `greedy`.
    pub sampling: String,
    /// The seed that the tokens of the prompt were drawn with.
    pub seed: u64,
    /// Measured repetitions of each test.
    pub repetitions: u32,
    /// The number of this process in its set, from 1.
    pub process: u32,
    /// How many processes the set should have.
    pub processes: u32,
    /// The id of the set: the same for processes that ran in turns. `null` for a process on its own.
    pub set: Option<String>,
    /// Whether the profiler was on during the measurements. If it was not, samples have no bricks.
    pub profiled: bool,
}

/// The program that measured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binary {
    /// Its version.
    pub version: String,
    /// SHA-256 of its file, in hexadecimal; `null` if the system doesn't say which file that is.
    pub sha256: Option<String>,
}

/// The machine. What the system doesn't report is `null`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The operating system: `linux`, `macos`, …
    pub os: String,
    /// The architecture: `x86_64`, `aarch64`, …
    pub arch: String,
    /// The processor, as it names itself.
    pub cpu: Option<String>,
    /// Its family, model and stepping: `25/1/1`. Several processors can have one name.
    pub cpu_id: Option<String>,
    /// The revision of its microcode.
    pub microcode: Option<String>,
    /// Logical processors that the process may use.
    pub logical_cpus: Option<u32>,
    /// Threads per core that run at once: usually 1 or 2.
    pub threads_per_core: Option<u32>,
    /// NUMA nodes.
    pub numa_nodes: Option<u32>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether the processor may go above its base frequency.
    pub turbo: Option<bool>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The C library.
    pub libc: Option<String>,
    /// The hypervisor that it runs under.
    pub hypervisor: Option<String>,
    /// CPU time that the control group grants, in CPUs.
    pub cgroup_cpus: Option<f64>,
    /// The CPUs that the control group grants.
    pub cgroup_cpuset: Option<String>,
    /// The memory that the control group grants.
    pub cgroup_memory_bytes: Option<u64>,
    /// Whether the system gives huge pages without being asked: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Swap in use, in bytes.
    pub swap_used_bytes: Option<u64>,
    /// The first 16 hexadecimal digits of the SHA-256 of the system's boot id: equal for two runs of
    /// one boot of one machine.
    pub boot: Option<String>,
}

/// A device that ran kernels. What its driver doesn't report is `null`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name, as its driver gives it.
    pub name: String,
    /// How it was driven: `cuda`, `vulkan`, `metal`, `dx12`.
    pub api: String,
    /// The driver and its version, as it reports them. CUDA's reports the version of CUDA that it implements.
    pub driver: Option<String>,
    /// The device's memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The step of its clock in nanoseconds.
    pub resolution_ns: Option<f64>,
}

/// The machine's measured peaks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceilings {
    /// Bytes read from memory per second.
    pub read_bytes_per_second: f64,
    /// Multiplications and additions per second: of single precision, or of bytes if `basis` ends with
    /// `products of bytes`.
    pub flops_per_second: f64,
    /// The bandwidth of each level of cache; the smallest level first.
    pub caches: Vec<CacheCeiling>,
    /// How they were obtained.
    pub basis: String,
    /// When, RFC 3339 in UTC.
    pub measured: Option<String>,
    /// The lowest and the highest bandwidth that memory gave right before and right after the run; absent if it wasn't
    /// measured then, and in receipts of earlier versions. Some of those have that of earlier days in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_spread: Option<[f64; 2]>,
}

/// The measured peak bandwidth of a level of cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheCeiling {
    /// `L1`, `L2`, …
    pub level: String,
    /// The size that the threads of the run share.
    pub bytes: u64,
    /// Bytes read from it per second, by all of them.
    pub read_bytes_per_second: f64,
}

/// The clock behind every duration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// `tsc`, `cntvct_el0`, `os`.
    pub source: String,
    /// The least difference of two readings that isn't 0, in nanoseconds.
    pub resolution_ns: Option<f64>,
    /// The cost of one reading, in nanoseconds.
    pub reading_ns: Option<f64>,
    /// Its drift against the system's clock during the run, in parts per million.
    pub drift_ppm: Option<f64>,
}

/// One kind of work, repeated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Its name, as in llama-bench: `pp512`, `tg128`, `tg128 @ d512`.
    pub name: String,
    /// Tokens of the prompt that a repetition runs; 0 for a decode test.
    pub n_prompt: u64,
    /// Tokens that a repetition generates; 0 for a prefill test.
    pub n_gen: u64,
    /// Tokens that are in the KV cache before it.
    pub n_depth: u64,
    /// SHA-256 of the tokens of the input, each as 4 bytes, little endian: depth, then prompt.
    pub input_sha256: String,
    /// SHA-256 of the tokens chosen in a repetition, likewise.
    pub output_sha256: String,
    /// Tokens chosen in a repetition: `n_gen`, or the one after a prompt.
    pub output_tokens: u64,
    /// The bricks that `brick_ns` of samples refers to; empty without a profiler. On a device they are what the host did:
    /// issuing the work, and waiting for it.
    pub bricks: Vec<Brick>,
    /// The bricks that the device timed, to which `device.brick_ns` of samples refers; absent if it timed none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_bricks: Vec<Brick>,
    /// The kernels that ran in measured repetitions.
    pub kernels: Vec<Kernel>,
    /// FLOPs of one repetition, as its kernels stated them; `null` if one didn't.
    pub flops: Option<u64>,
    /// Bytes that one repetition had to read, likewise.
    pub bytes: Option<u64>,
    /// How the end of the warm-up was decided.
    pub warm_up: WarmUp,
    /// Every repetition in the order in which they ran, those of the warm-up first.
    pub samples: Vec<Sample>,
    /// The aggregates of `samples`, by [`Aggregates::of`](crate::Aggregates::of).
    pub aggregates: Aggregates,
    /// Logits that aren't numbers; absent if all are, and in receipts of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
}

/// Logits that are NaN or infinite.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotFinite {
    /// Passes whose logits had NaN or infinity in them, in all samples.
    pub passes: u64,
    /// Passes that computed logits: all of a decode test; of a prefill test, the last one of each sample.
    pub of: u64,
    /// Where that began, in words.
    pub origin: String,
}

/// A brick of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brick {
    /// Its name.
    pub name: String,
    /// Its category.
    pub category: String,
}

/// A kernel that ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its id.
    pub id: String,
    /// Launches in all measured repetitions together. On the CPU the profiler counted them; on a device they are those of
    /// the plans that the passes ran by.
    pub launches: u64,
    /// FLOPs of all of them, as stated; `null` if they weren't.
    pub flops: Option<u64>,
    /// Bytes that all of them moved, likewise.
    pub bytes: Option<u64>,
}

/// How the end of the warm-up was decided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    /// This many of the last repetitions had to agree …
    pub window: u32,
    /// … within this part of their median, 0.05 for 5 %.
    pub within: f64,
    /// Whether they did. If not, the warm-up ended because it took long enough.
    pub steady: bool,
}

/// One repetition.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Its index in the test, counting those of the warm-up.
    pub index: u32,
    /// Whether it was part of the warm-up, and so is in no aggregate.
    pub is_warm_up: bool,
    /// When it began, in nanoseconds of the run's clock.
    pub start_ns: u64,
    /// When it ended. Time between passes, such as choosing tokens, is included.
    pub end_ns: u64,
    /// The wall times of its passes, each between two readings of the host's clock, summed: forward passes and nothing else.
    /// On a device each includes the wait until it has finished.
    pub wall_ns: u64,
    /// The wall time of each pass, in order. They add up to `wall_ns`.
    pub pass_ns: Vec<u64>,
    /// Tokens that its passes processed.
    pub tokens: u64,
    /// For a decode test, the time from each token to the next, choosing included. Empty for a prefill test.
    pub token_ns: Vec<u64>,
    /// For a prefill test, the time from `start_ns` until the first token was chosen.
    pub first_token_ns: Option<u64>,
    /// The time of the passes in each of the test's bricks, without nested bricks.
    pub brick_ns: Vec<u64>,
    /// The time in no brick. With `brick_ns` it adds up to `wall_ns`; `null` without a profiler.
    pub unattributed_ns: Option<u64>,
    /// Whether other work on the machine disturbed it; `null` if that is unknown.
    pub disturbed: Option<bool>,
    /// How long threads of the process waited for a core.
    pub run_queue_wait_ns: Option<u64>,
    /// The frequency of the CPU on which it ended, in kHz, if the system reports it.
    pub cpu_khz: Option<u64>,
    /// What the device timed of it, by its own clock; absent on the CPU and without a profiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceTimes>,
}

/// What a device timed in one repetition, by its own clock. Timestamps cost time, so not all passes have some, nor all
/// that have some have them for each brick.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTimes {
    /// The passes that have times.
    pub passes: u64,
    /// From the first timestamp of each to its last, summed.
    pub span_ns: u64,
    /// Those of them whose bricks have times.
    pub passes_in_bricks: u64,
    /// The time of these in each of the test's `device_bricks`.
    pub brick_ns: Vec<u64>,
    /// The time of these between bricks. If all passes with times are of them, this and `brick_ns` add up to `span_ns`.
    pub gaps_ns: u64,
}

/// The aggregates of the samples of a test that don't belong to the warm-up.
///
/// `ts` is tokens per second: `tokens` of a sample ÷ its `wall_ns`. Mean and deviation are those of the
/// samples' rates, as in llama-bench.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregates {
    /// Samples.
    pub samples: u64,
    /// The mean of `wall_ns`.
    pub avg_ns: Option<f64>,
    /// Its standard deviation, of a sample; from 2 samples on.
    pub stddev_ns: Option<f64>,
    /// The median of `wall_ns`.
    pub median_ns: Option<f64>,
    /// The mean rate.
    pub avg_ts: Option<f64>,
    /// Its standard deviation.
    pub stddev_ts: Option<f64>,
    /// The median rate.
    pub median_ts: Option<f64>,
    /// The lower end of the 95 % interval of the mean rate (Student's t), from 2 samples on. It is the
    /// interval of this process: other processes may differ by more.
    pub low_ts: Option<f64>,
    /// The upper end.
    pub high_ts: Option<f64>,
    /// `token_ns` of all samples: time per output token.
    pub per_token: Spread,
    /// `first_token_ns` of all samples: time to first token.
    pub first_token: Spread,
    /// The sums of `brick_ns`, in the order of the test's bricks.
    pub brick_total_ns: Vec<u64>,
    /// The sum of `unattributed_ns`.
    pub unattributed_total_ns: Option<u64>,
    /// Samples that other work on the machine disturbed; all figures include them.
    pub disturbed: u64,
}

/// The statistics of some durations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_ns: Option<f64>,
    /// Their standard deviation, of a sample; from 2 on.
    pub stddev_ns: Option<f64>,
    /// The shortest.
    pub min_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// The median, from 7 on. Percentiles are values from the list: the smallest that this share of all
    /// values doesn't exceed.
    pub p50_ns: Option<u64>,
    /// From 44 on.
    pub p90_ns: Option<u64>,
    /// From 90 on.
    pub p95_ns: Option<u64>,
    /// From 459 on.
    pub p99_ns: Option<u64>,
}

/// What the profiler cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// Nanoseconds per span, measured on this machine with this clock.
    pub span_ns: Option<f64>,
    /// Spans recorded in measured repetitions.
    pub spans: u64,
    /// How `span_ns` was obtained, or why it is absent.
    pub basis: String,
}

/// The other load on the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The system's load average over a minute, before the first sample.
    pub before: Option<f64>,
    /// The part of the machine's CPU time that other processes used, 0 to 1.
    pub others_share: Option<f64>,
    /// The part that the hypervisor took.
    pub steal_share: Option<f64>,
    /// Why a share is absent.
    pub absent: Option<String>,
    /// What makes these figures doubtful, one sentence each; empty for a clean run.
    pub doubts: Vec<String>,
}

/// The hash over a receipt, and its signatures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// SHA-256, in hexadecimal, of the receipt without its seal in canonical JSON (RFC 8785).
    pub sha256: String,
    /// Signatures of that hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Signature>,
}

/// A signature of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// `ed25519` (RFC 8032).
    pub algorithm: String,
    /// The public key, in hexadecimal.
    pub public_key: String,
    /// The signature of the 32 bytes of `sha256`, in hexadecimal.
    pub signature: String,
}
