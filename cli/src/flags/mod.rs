//! Flags that several commands share, and how their values are read.

pub(crate) mod profile;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

use brickscope::Backend;
use brickscope_engine::gguf::Pages;
use brickscope_formats::export::prometheus::Names;
use clap::ValueEnum;

/// Headings in `--help`, for flags that several commands share.
const WATCHING: &str = "Watching a run";
const EXECUTION: &str = "Threads, kernels and memory";

/// What a lake is to say of runs, beside what their files say.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LakeAbout {
    /// The machine's name in the lake. By default the one that the run states, else BRICKSCOPE_MACHINE, else this
    /// machine's host name, if the run is of a machine like this one. Containers have a new host name each time: name
    /// their machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) machine: Option<String>,

    /// The engine's commit, also of runs that state another. By default the one that the run states, if it does.
    #[arg(long, value_name = "HASH", env = "BRICKSCOPE_COMMIT")]
    pub(crate) commit: Option<String>,

    /// What runs of one machine near each other in time have in common, such as the number of a CI job. By default
    /// the machine's boot, if the run states it.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

#[cfg(feature = "parquet")]
impl From<LakeAbout> for brickscope_lake::About {
    fn from(LakeAbout { machine, commit, session }: LakeAbout) -> Self {
        // A script's variable may be empty.
        let said = |name: Option<String>| name.filter(|name| !name.is_empty());
        Self { machine: said(machine), commit: said(commit), session: said(session) }
    }
}

/// Serving metrics while a model runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Serve Prometheus metrics at http://ADDR/metrics while the model runs, for example at
    /// 127.0.0.1:9187. With port 0 the system picks a free port, which is printed on standard error. A
    /// scrape takes some CPU time from what is measured. docs/export.md lists the metrics.
    #[arg(long, value_name = "ADDR", value_parser = socket_addr, hide_short_help = true, help_heading = WATCHING)]
    pub(crate) metrics: Option<SocketAddr>,

    /// With --metrics: the names to use.
    #[arg(long, value_enum, value_name = "NAMES", default_value_t = MetricsNames::Brickscope, requires = "metrics", hide_short_help = true, help_heading = WATCHING)]
    pub(crate) metrics_names: MetricsNames,

    /// With --metrics: allow an address that other machines can reach. The metrics name the model and its
    /// file, and there is no encryption and no authentication.
    #[arg(long, requires = "metrics", hide_short_help = true, help_heading = WATCHING)]
    pub(crate) metrics_public: bool,
}

/// Pushing runs to an OpenTelemetry collector.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OtlpArgs {
    /// Push metrics and stacks to the OpenTelemetry collector at this URL, for example http://localhost:4318, once the
    /// run is written. A failed push is a warning, and the run is kept. docs/export.md lists what is sent, and the
    /// environment variables for tokens and time limits.
    #[arg(long, value_name = "URL", hide_short_help = true, help_heading = WATCHING)]
    pub(crate) otlp: Option<String>,

    /// With --otlp: push metrics also every so many seconds while the model runs. A push takes some CPU time from what
    /// is measured.
    #[arg(long, value_name = "SECONDS", requires = "otlp", value_parser = clap::value_parser!(u64).range(1..=3600), hide_short_help = true, help_heading = WATCHING)]
    pub(crate) otlp_every: Option<u64>,
}

/// [`Names`], as the command line spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricsNames {
    /// `brickscope_…`: every metric.
    Brickscope,
    /// `llamacpp:…`: the names of llama.cpp's server, for the metrics that both have.
    Llamacpp,
    /// Both.
    Both,
}

impl From<MetricsNames> for Names {
    fn from(names: MetricsNames) -> Self {
        match names {
            MetricsNames::Brickscope => Self::Brickscope,
            MetricsNames::Llamacpp => Self::LlamaCpp,
            MetricsNames::Both => Self::Both,
        }
    }
}

/// The threads and kernels that run a model.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ExecutorArgs {
    /// Number of threads. By default all that this process may use.
    #[arg(long, short_alias = 't', value_parser = threads, help_heading = EXECUTION)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// The kernels to run: scalar, avx2, avx512 or neon (tested under qemu, never run on silicon) on the
    /// CPU, or wgpu or cuda on a device. By default the fastest that this CPU supports.
    #[arg(long, help_heading = EXECUTION)]
    pub(crate) backend: Option<Backend>,

    /// Map the file and read the weights from there. By default they are copied into large pages, which a
    /// CPU reads faster, in the order in which the kernels read them fastest. A device and `logits` never
    /// copy them.
    #[arg(long, hide_short_help = true, help_heading = EXECUTION)]
    pub(crate) mmap: bool,

    /// Copy the weights into memory pages of the usual size, to see what large ones bring.
    #[arg(long, conflicts_with = "mmap", hide_short_help = true, help_heading = EXECUTION)]
    pub(crate) small_pages: bool,
}

impl ExecutorArgs {
    /// The pages into which the weights are copied.
    pub(crate) fn pages(&self) -> Pages {
        if self.small_pages { Pages::Small } else { Pages::Large }
    }

    /// These flags as the words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { threads, backend, mmap, small_pages } = self;
        let threads = threads.map(|threads| format!("--threads={threads}"));
        let backend = backend.map(|backend| format!("--backend={}", backend.name()));
        let mmap = mmap.then(|| "--mmap".to_owned());
        let small_pages = small_pages.then(|| "--small-pages".to_owned());
        [threads, backend, mmap, small_pages].into_iter().flatten().collect()
    }
}

/// How to compare two sides, and how to print the result.
#[derive(Debug, clap::Args)]
pub(crate) struct ComparisonArgs {
    /// The smallest change that matters.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = threshold, allow_hyphen_values = true)]
    pub(crate) threshold: f64,

    /// Give no verdict on bricks that take less than this share of their test [default: 1%].
    #[arg(long, value_name = "PERCENT", value_parser = share, allow_hyphen_values = true)]
    pub(crate) min_share: Option<f64>,

    /// Judge the tests of this phase only, so that noise of the other can't make the result inconclusive.
    #[arg(long, value_enum, value_name = "PHASE")]
    pub(crate) phase: Option<OnlyPhase>,

    /// Compare even if the two sides ran under different conditions. The output then begins with the
    /// differences.
    #[arg(long)]
    pub(crate) force: bool,

    /// The output format.
    #[arg(short, long, alias = "output", short_alias = 'o', value_enum, value_name = "FORMAT", default_value_t = ComparisonFormat::Text)]
    format: ComparisonFormat,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl ComparisonArgs {
    /// The output format.
    pub(crate) fn format(&self) -> ComparisonFormat {
        if self.json { ComparisonFormat::Json } else { self.format }
    }
}

/// A phase that is judged alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyPhase {
    /// Generating the answer.
    Decode,
    /// Processing the prompt.
    Prefill,
}

impl From<OnlyPhase> for brickscope::Phase {
    fn from(phase: OnlyPhase) -> Self {
        match phase {
            OnlyPhase::Decode => Self::Decode,
            OnlyPhase::Prefill => Self::Prefill,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonFormat {
    /// A verdict in a sentence, then tables.
    Text,
    /// Markdown, for a comment on a pull request.
    Md,
    /// JSON with every figure.
    Json,
    /// Side B in Bencher Metric Format.
    Bmf,
}

/// What the stacks of a flamegraph begin with, from the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Phase, layer, brick, kernel.
    Layer,
    /// Phase, brick, kernel, summed over all layers.
    Brick,
    /// Thread, phase, layer, brick, kernel.
    Thread,
}

impl From<By> for brickscope_analysis::stacks::By {
    fn from(by: By) -> Self {
        match by {
            By::Layer => Self::Layer,
            By::Brick => Self::Brick,
            By::Thread => Self::Thread,
        }
    }
}

/// The source of a flamegraph's stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// The measured spans of a run: exact, on any machine.
    Spans,
    /// Samples taken by brickscope, without privileges or other programs.
    Sampler,
    /// Samples taken by timers in the program itself, which must be brickscope. For systems that refuse the
    /// sampler.
    Timer,
    /// Samples taken by `perf record`.
    Perf,
}

/// Long enough for a prefill of about 100 tokens.
pub(crate) const DEFAULT_PROMPT: &str = "A profiler is an instrument. Like every instrument it disturbs what \
    it measures, and like every honest instrument it says by how much. It does not guess, it does \
    not divide a total by a table of shares, and where it could not look it says so. ";

/// More threads than any machine has today are taken for a typing error.
pub(crate) const MAX_THREADS: usize = 1024;

pub(crate) const MAX_PROCESSES: i64 = 1_000;

pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let n: usize = text.parse().map_err(|_| format!("`{text}` is not a number of threads"))?;
    match NonZeroUsize::new(n) {
        Some(threads) if n <= MAX_THREADS => Ok(threads),
        _ => Err(format!("must be 1 to {MAX_THREADS}")),
    }
}

/// A socket address, or `localhost` and a port.
pub(crate) fn socket_addr(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let local = local.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|| text.parse().ok()).ok_or_else(|| {
        "must be an address and a port, such as 127.0.0.1:9187 or localhost:0".to_owned()
    })
}

pub(crate) fn token_id(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a token id"))
}

/// A percentage. The sign is required, since a bare number could also mean a fraction of 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').map(|percent| percent.trim().parse::<f64>()) {
        Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("must be a percentage from 0% to 100%, such as 1%".to_owned()),
    }
}

/// As [`share`], but above 0: at 0 every change would matter, and none could be ruled out.
pub(crate) fn threshold(text: &str) -> Result<f64, String> {
    match share(text) {
        Ok(part) if part > 0.0 => Ok(part),
        _ => Err("must be a percentage above 0% and at most 100%, such as 3%".to_owned()),
    }
}
