//! The run of a profile: the model, the command, the cost of recording, and an imported profile's origin.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::absent::Absent;
use crate::brick::Phase;
use crate::stats::{PairedRatio, median};
use crate::text;
use crate::told::{StepTold, Unruled};

/// How a run was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: Vec<String>,
    /// The backend that executed the kernels; empty if unknown.
    pub backend: String,
    /// CPU threads that shared the work; 0 if it ran on a device, or if unknown.
    pub threads: u32,
    /// Whether each of them was kept on a CPU of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated. If both are 0, neither is known.
    pub generated_tokens: u64,
    /// The seed of the sampler; `None` for greedy decoding, or if unknown.
    pub seed: Option<u64>,
    /// How the run was cut short, as by Ctrl-C, and after how much of it; `None` for a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<String>,
    /// What ended a server, as `Ctrl-C`: such a run is whole. `None` if it ended by itself, or if that isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// How another engine was set up, as far as it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// What lies between the passes that decode, where another engine ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Between>,
    /// What else the same process computed, or others that the command started: each is a run of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// The tests of a benchmark. The profile is of one repetition of each, or of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<Repeated>,
}

/// What whoever measured named, since nothing else tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Named {
    /// The machine, among those of a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The commit of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A test of a benchmark: the same work, several times. Its rate is that of the run, whatever repetition was profiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// Its name, as the benchmark prints it: `tg128`.
    pub test: String,
    /// What its passes are.
    pub phase: Phase,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens that it generates.
    pub generated_tokens: u64,
    /// Tokens in the KV cache before it.
    pub depth: u64,
    /// The repetitions that count, in the order in which they ran: none that warmed up.
    pub repetitions: Vec<Repetition>,
    /// Which one the profile is of.
    pub profiled: Profiled,
}

/// One repetition of a [`Repeated`] test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repetition {
    /// The tokens of its passes.
    pub tokens: u64,
    /// The wall times of its passes, summed.
    pub wall_ns: u64,
    /// Whether one of its passes was disturbed; `None` if that isn't known.
    pub disturbed: Option<bool>,
}

/// Which repetition of a test a profile is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profiled {
    /// None.
    No,
    /// The last of those that count.
    Last,
    /// One after those that count.
    Further,
}

impl Repetition {
    /// Tokens per second; `None` if it took no time that the clock can measure.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.tokens as f64 * 1e9 / self.wall_ns as f64)
    }
}

impl Repeated {
    /// The rates of the repetitions that have one, in their order.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.repetitions.iter().filter_map(Repetition::rate).collect()
    }

    /// The median of their rates; `None` without one.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        median(&self.rates())
    }
}

impl Run {
    /// How a run is [cut short](Self::cut_short) that was written while its program went on.
    pub const WHILE_IT_RAN: &str = "written while the program ran";

    /// Whether it was written while its program went on: a pass that had not ended isn't in it yet.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.cut_short.as_deref() == Some(Self::WHILE_IT_RAN)
    }

    /// The test of a phase that the profile has a repetition of, or else the first one; `None` if no benchmark was run.
    #[must_use]
    pub fn repeated(&self, phase: Phase) -> Option<&Repeated> {
        let of_phase =
            || self.repeated.iter().filter(|of| of.phase == phase && !of.repetitions.is_empty());
        of_phase().find(|of| of.profiled != Profiled::No).or_else(|| of_phase().next())
    }
}

/// How another engine was set up, as it was when it computed: what it did not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// The file of its library that computed: `libggml-cpu-zen4.so`.
    pub library: Option<String>,
    /// The version of that.
    pub version: Option<String>,
    /// The commit that that was made of.
    pub commit: Option<String>,
    /// Tokens that the KV cache has room for.
    pub context_tokens: Option<u64>,
    /// The most tokens of a call (`-b`).
    pub batch_tokens: Option<u64>,
    /// The most tokens of a pass (`-ub`).
    pub micro_batch_tokens: Option<u64>,
    /// The most sequences.
    pub sequences: Option<u64>,
    /// Threads for passes of one token (`-t`).
    pub threads: Option<u32>,
    /// Threads for all others (`-tb`).
    pub threads_batch: Option<u32>,
    /// How the KV cache keeps keys: `f16`.
    pub cache_keys: Option<String>,
    /// How it keeps values.
    pub cache_values: Option<String>,
    /// Whether attention was computed as one operation.
    pub flash_attention: Option<bool>,
}

impl Engine {
    /// What it is set to, each with its name: `("-ub", "512")`.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let number = |of: Option<u64>| of.map(|of| of.to_string());
        let threads = |of: Option<u32>| of.map(|of| of.to_string());
        let all = [
            ("library", self.library.clone()),
            ("version", self.version.clone()),
            ("commit", self.commit.clone()),
            ("context", number(self.context_tokens)),
            ("-b", number(self.batch_tokens)),
            ("-ub", number(self.micro_batch_tokens)),
            ("sequences", number(self.sequences)),
            ("-t", threads(self.threads)),
            ("-tb", threads(self.threads_batch)),
            ("-ctk", self.cache_keys.clone()),
            ("-ctv", self.cache_values.clone()),
            ("-fa", self.flash_attention.map(|is_on| if is_on { "on" } else { "off" }.to_owned())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The time between passes that decode, from the end of a thread's pass to the begin of its next one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Between {
    /// The passes that came after such a time.
    pub passes: u64,
    /// Their tokens.
    pub tokens: u64,
    /// How long the passes took, in nanoseconds.
    pub passes_ns: u64,
    /// How long it was between them, all together.
    pub between_ns: u64,
    /// What of that was in functions of the engine, by what these are for.
    pub calls: Vec<Calls>,
}

/// Calls of an engine's functions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls {
    /// What they are for: `sampling`.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// How long they took, in nanoseconds.
    pub ns: u64,
}

impl Between {
    /// Tokens per second, with the time between passes. `None` if they took no time.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        let ns = self.passes_ns.saturating_add(self.between_ns);
        (ns > 0).then(|| self.tokens as f64 * 1e9 / ns as f64)
    }

    /// What of the time was in no such function: the program's own.
    #[must_use]
    pub fn rest_ns(&self) -> u64 {
        let in_calls = self.calls.iter().map(|of| of.ns).fold(0, u64::saturating_add);
        self.between_ns.saturating_sub(in_calls)
    }
}

/// Another run of the same process, such as that of a draft model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Beside {
    /// What tells it apart.
    pub name: String,
    /// Its folder, in that of the run.
    pub folder: String,
    /// Its phases, of the passes that its own screens have.
    pub phases: Vec<PhaseBeside>,
}

/// A phase of another run of the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseBeside {
    /// Which.
    pub phase: Phase,
    /// Tokens of its passes.
    pub tokens: u64,
    /// How long these took, in nanoseconds.
    pub wall_ns: u64,
}

impl PhaseBeside {
    /// Tokens per second; `None` if it took no time.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.tokens as f64 * 1e9 / self.wall_ns as f64)
    }
}

/// The model that ran. What is unknown is empty, or 0, and not shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Model {
    /// The file.
    pub path: String,
    /// The model's name according to the file.
    pub name: Option<String>,
    /// The architecture.
    pub architecture: String,
    /// The quantisation, in one word.
    pub quantization: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// The number of weights.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub embedding_length: u32,
    /// Whether the weights are random: the timings are real, the text is noise.
    pub synthetic: bool,
    /// Where the weights were while the CPU read them: `mapped file`, `large pages`, or
    /// `large pages, rows interleaved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_in: Option<String>,
    /// How long it took to copy the file to that place, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_in_ns: Option<u64>,
    /// How many bytes of the weights were reordered there for kernels that read them faster that way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_bytes: Option<u64>,
    /// How long the reordering took, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_in_ns: Option<u64>,
    /// The weights by tensor and format, those with the most bytes first; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "few_groups")]
    pub weights: Vec<WeightGroup>,
}

impl Model {
    /// What it is called, where a screen, a list, a lake or a label names it: see [`model_name`].
    #[must_use]
    pub fn called(&self) -> Option<&str> {
        model_name(self.name.as_deref(), &self.path)
    }

    /// Its quantisation in one word. Where none is stated, as by llama-bench, it is that in the words of its architecture:
    /// `llama 7B Q4_K - Medium`. `None` if unknown.
    #[must_use]
    pub fn quantized(&self) -> Option<String> {
        if !self.quantization.is_empty() {
            return Some(self.quantization.clone());
        }
        let is_format = |word: &&str| {
            ["Q", "IQ", "TQ", "F", "BF", "MXFP"].iter().any(|start| {
                let rest = word.strip_prefix(start);
                rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            })
        };
        self.architecture.split(' ').find(is_format).map(str::to_lowercase)
    }
}

/// What a model is called: the name that its file states, else that of the file without folders, since machines have it in
/// different ones, and without `.gguf`. `None` if neither is known.
#[must_use]
pub fn model_name<'m>(stated: Option<&'m str>, path: &'m str) -> Option<&'m str> {
    let file = text::file_name(path);
    let file = file.strip_suffix(".gguf").unwrap_or(file);
    [stated.unwrap_or_default(), file].into_iter().find(|name| !name.is_empty())
}

/// The tensors of all layers that have one name and one format.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WeightGroup {
    /// Their name without the layer: `ffn_down`; of a bias with its end: `attn_q.bias`.
    pub name: String,
    /// How the numbers are stored, in lower case: `q8_0`.
    pub format: String,
    /// Whether they are matrices. Files keep vectors, such as those of norms and biases, in few formats.
    pub is_matrix: bool,
    /// How many there are.
    pub tensors: u64,
    /// Their numbers.
    pub parameters: u64,
    /// The bytes of these.
    pub bytes: u64,
}

impl WeightGroup {
    /// No model has as many groups: a file may have a name of its own for each tensor.
    pub const MOST: usize = 256;

    /// Bits of a weight; `None` without weights.
    #[must_use]
    pub fn bits(&self) -> Option<f64> {
        (self.parameters > 0).then(|| 8.0 * self.bytes as f64 / self.parameters as f64)
    }
}

fn few_groups<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WeightGroup>, D::Error> {
    let groups = Vec::<WeightGroup>::deserialize(from)?;
    if groups.len() > WeightGroup::MOST {
        let why = format!("{} groups of weights, more than {}", groups.len(), WeightGroup::MOST);
        return Err(D::Error::custom(why));
    }
    Ok(groups)
}

/// What the profiler itself cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// The cost of one span in nanoseconds, measured on this machine with this clock.
    pub span_ns: Option<f64>,
    /// Spans recorded.
    pub spans: u64,
    /// How `span_ns` was obtained, or why it is absent.
    pub basis: String,
    /// How much longer decode passes took that were recorded than those in turns with them that were not, if that was
    /// measured in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<PairedRatio>,
    /// When threads made the memory that they record into: each at its first call, or when it was prepared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preparations: Vec<Preparation>,
}

/// A time in which a thread made the memory that it records into: the profiler's own, whatever ran around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preparation {
    /// When it began, in nanoseconds of the profile's clock.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

impl Preparation {
    /// How much of it lies between two times.
    fn within(&self, from_ns: u64, to_ns: u64) -> u64 {
        let end = self.start_ns.saturating_add(self.duration_ns).min(to_ns);
        end.saturating_sub(self.start_ns.max(from_ns))
    }
}

impl Overhead {
    /// `span_ns` times `spans`: an estimate, in nanoseconds.
    #[must_use]
    pub fn estimate_ns(&self) -> Option<f64> {
        Some(self.span_ns? * self.spans as f64)
    }

    /// What preparations took between two times, in nanoseconds. At most the time between them, though several threads may
    /// have prepared at once.
    #[must_use]
    pub fn prepared_within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let all = self.preparations.iter().map(|of| of.within(from_ns, to_ns));
        all.fold(0, u64::saturating_add).min(to_ns.saturating_sub(from_ns))
    }
}

/// What the caller observed by other means.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Share of L2 accesses that hit, 0 to 1, as the hardware reported it to the caller; `None` if it was not measured.
    pub l2_cache_hit_rate: Option<f32>,
    /// Whether transfers were zero-copy; `None` if nobody said. Earlier files have `false` there.
    pub zero_copy: Option<bool>,
    /// Capacity of the KV cache in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_tokens: Option<u64>,
}

/// The file of another program that a profile was imported from. That program measured the times.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Imported {
    /// The format: `llama-bench`, `chrome`, `nsight`, `rocprof`, `nccl-inspector`, `forward-pass-metrics`, `vk-perf-logger`,
    /// `folded`; or `brickscope.py` and `brickscope_vllm.py`, which write such runs.
    pub format: String,
    /// The file.
    pub file: String,
    /// The program that wrote it, and its version, if the file states them.
    pub program: Option<String>,
    /// What the file lacks, each with the reason.
    #[serde(default)]
    pub lacks: Vec<Absent>,
    /// What was left out of the import: how much, and why.
    #[serde(default)]
    pub left_out: Vec<(String, u64)>,
    /// What makes its times doubtful: a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// How it was measured, in the file's own terms. Times compare only if these are alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<(String, String)>,
    /// Samples by function, if the file counts samples and has no times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<FunctionSamples>,
    /// What the same file measured with other numbers of threads, and else under the same conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_threads: Vec<OtherThreads>,
    /// All tests of a benchmark's file, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<ImportedTest>,
    /// When a server's steps began that computed no token, in nanoseconds: passes before and behind one don't follow each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_steps_ns: Vec<u64>,
    /// How the kernels inside of graphs came to their layers, if there are graphs and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_layers: Option<GraphLayers>,
    /// What the names of a server's steps tell, by the serial of the pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<(u32, StepTold)>,
    /// Kernels that no line of the table of bricks is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unruled: Option<Unruled>,
}

/// How kernels inside of graphs, which one call launches together, came to their layers and bricks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphLayers {
    /// By what.
    pub by: GraphLayersBy,
    /// How many layers there are.
    pub layers: u32,
    /// How many of these kernels have a layer.
    pub kernels: u64,
    /// How many kernels graphs launched; where none of those has a layer, how many there are whose launch doesn't tell it.
    pub of_kernels: u64,
    /// What a reader should know of it, as a sentence without its subject and its full stop; often nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What tells the layers of kernels inside of graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphLayersBy {
    /// The trace of the graph's capture: the same kernels in the same order, launched one by one.
    Capture,
    /// What the file notes for each kernel of a graph.
    Annotations,
    /// The sequence of kernels, which repeats once a layer.
    Sequence,
}

/// A test of a benchmark: the same work, done once or several times.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportedTest {
    /// Its number in the file, counted from 1.
    pub row: u64,
    /// Its name, as the program has it: `pp512`, `tg128 @ d4096`.
    pub name: String,
    /// The tokens of a repetition.
    pub tokens: u64,
    /// How long each repetition took, in nanoseconds. Empty if the file has only what they come to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples_ns: Vec<u64>,
    /// Tokens per second and their spread, as a file without single times writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<StatedRate>,
    /// What sets it apart from other tests of the file, beside its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<(String, String)>,
    /// When it was measured (RFC 3339, UTC), if the file states another time than for the first test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
}

/// What a build of llama.cpp is called: `llama.cpp 1a2b3c4 (4567)`.
#[must_use]
pub fn build_of_llama_cpp(commit: &str, number: Option<&str>) -> String {
    match number {
        Some(number) => format!("llama.cpp {commit} ({number})"),
        None => format!("llama.cpp {commit}"),
    }
}

/// A rate as a program wrote it, with its digits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatedRate {
    /// Tokens per second.
    pub tokens_per_second: String,
    /// The standard deviation of repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std_dev: Option<String>,
}

impl ImportedTest {
    /// Tokens per second, the mean of its repetitions, and their standard deviation if there are several. `None` if no
    /// repetition has a time.
    #[must_use]
    pub fn rate(&self) -> Option<(f64, Option<f64>)> {
        let timed = self.samples_ns.iter().filter(|&&ns| ns > 0);
        let rates: Vec<f64> = timed.map(|&ns| self.tokens as f64 * 1e9 / ns as f64).collect();
        let n = rates.len() as f64;
        if rates.is_empty() || self.tokens == 0 {
            return None;
        }
        let mean = rates.iter().sum::<f64>() / n;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Some((mean, (rates.len() > 1).then(|| (squares / (n - 1.0)).sqrt())))
    }

    /// Tokens of the prompt, of the answer, and before both, by its name: `pp512+tg128 @ d4096`. `None` if it is none of
    /// llama-bench's.
    #[must_use]
    pub fn counts(&self) -> Option<(u64, u64, u64)> {
        let (work, depth) = match self.name.split_once(" @ d") {
            Some((work, depth)) => (work, depth.parse().ok()?),
            None => (&*self.name, 0),
        };
        let (prompt, answer) = match work.split_once('+') {
            Some((prompt, answer)) => (Some(prompt), Some(answer)),
            None if work.starts_with("tg") => (None, Some(work)),
            None => (Some(work), None),
        };
        let tokens = |part: Option<&str>, begin: &str| match part {
            Some(part) => part.strip_prefix(begin)?.parse().ok(),
            None => Some(0),
        };
        Some((tokens(prompt, "pp")?, tokens(answer, "tg")?, depth))
    }
}

/// A test that differs from that of an imported run in the number of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherThreads {
    /// The phase of its passes.
    pub phase: Phase,
    /// The threads.
    pub threads: u32,
    /// Tokens of a repetition, as many as a pass of the run has.
    pub tokens: u64,
    /// How long each repetition took, in nanoseconds.
    pub samples_ns: Vec<u64>,
}

/// The number of samples of a function. Samples are not times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionSamples {
    /// The function.
    pub name: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in the function or in functions that it called.
    pub total: u64,
}

/// A format of another program that can be imported as a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The output of `llama-bench -o json` or `-o jsonl`.
    LlamaBench,
    /// Chrome's trace events as JSON, an array or an object that contains one. Written by candle's
    /// `--tracing` (through tracing-chrome), PyTorch's profiler and others.
    Chrome,
    /// The SQLite export of Nsight Systems.
    Nsight,
    /// The results of AMD's rocprofv3, as JSON or as rocpd's SQLite.
    Rocprof,
    /// The JSON of the Inspector, a plugin of NCCL's profiler: how long collectives took on each rank.
    NcclInspector,
    /// What SGLang and Dynamo record of each forward pass of a server.
    ForwardPassMetrics,
    /// The output of ggml's Vulkan backend with `GGML_VK_PERF_LOGGER=1`, possibly among other lines.
    VkPerfLogger,
    /// Folded stacks.
    Folded,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::LlamaBench,
        Self::Chrome,
        Self::Nsight,
        Self::Rocprof,
        Self::NcclInspector,
        Self::ForwardPassMetrics,
        Self::VkPerfLogger,
        Self::Folded,
    ];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaBench => "llama-bench",
            Self::Chrome => "chrome",
            Self::Nsight => "nsight",
            Self::Rocprof => "rocprof",
            Self::NcclInspector => "nccl-inspector",
            Self::ForwardPassMetrics => "forward-pass-metrics",
            Self::VkPerfLogger => "vk-perf-logger",
            Self::Folded => "folded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_that_took_no_time_has_no_rate() {
        let repetition = |wall_ns| Repetition { tokens: 4, wall_ns, disturbed: None };
        let of = |walls: &[u64]| Repeated {
            test: "tg4".to_owned(),
            phase: Phase::Decode,
            prompt_tokens: 0,
            generated_tokens: 4,
            depth: 0,
            repetitions: walls.iter().copied().map(repetition).collect(),
            profiled: Profiled::Last,
        };
        assert_eq!(of(&[0]).tokens_per_second(), None);
        assert_eq!(of(&[0, 1_000_000_000]).tokens_per_second(), Some(4.0));
    }
}
