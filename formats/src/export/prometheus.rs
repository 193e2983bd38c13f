//! Prometheus' text format, version 0.0.4, and OpenMetrics 1.0:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
//!
//! Units are seconds and bytes. Names begin with `brickscope_`, or are those of llama.cpp's server
//! ([`Names`]). docs/export.md lists them.

use std::fmt::Write as _;
use std::io::{self, Write};

use brickscope_profile::{Phase, PhaseTotal, Profile};

use super::metrics::{self, Family, Labels, MetricKind, Point, Unit, Value};

/// How to write metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The names of metrics.
    pub names: Names,
    /// The format.
    pub dialect: Dialect,
}

/// The names under which metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// `brickscope_…`: all metrics.
    #[default]
    Brickscope,
    /// `llamacpp:…`: the metrics of llama.cpp's server that a profile has, for dashboards that were made
    /// for it.
    LlamaCpp,
    /// Both, one after the other.
    Both,
}

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Prometheus' text, 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Dialect {
    /// The content type of HTTP.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes the metrics of `profile`, by brickscope's names.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn write(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    write_with(profile, Options::default(), out)
}

/// Writes the metrics of `profile`.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn write_with(
    profile: &Profile,
    options: Options,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut text = Text { text: String::new(), dialect: options.dialect };
    if options.names != Names::LlamaCpp {
        for family in metrics::families(profile) {
            text.family(&family);
        }
    }
    if options.names != Names::Brickscope {
        llama_cpp(profile, &mut text);
    }
    if options.dialect == Dialect::OpenMetrics {
        text.text.push_str("# EOF\n");
    }
    out.write_all(text.text.as_bytes())
}

struct Text {
    text: String,
    dialect: Dialect,
}

impl Text {
    fn family(&mut self, family: &Family) {
        let unit = match family.unit {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Ratio => "ratio",
        };
        let mut name = format!("brickscope_{}", family.name.replace('.', "_"));
        if !unit.is_empty() {
            let _ = write!(name, "_{unit}");
        }
        self.head(&name, family.kind, family.help, unit);
        for point in &family.points {
            self.point(&name, family.kind, point);
        }
    }

    /// `# HELP` and `# TYPE` of a family, whose `name` has its unit and no `_total`.
    fn head(&mut self, name: &str, kind: MetricKind, help: &str, unit: &str) {
        let is_open = self.dialect == Dialect::OpenMetrics;
        let kind_name = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
            MetricKind::Info if is_open => "info",
            MetricKind::Info => "gauge",
        };
        // In the older format, a counter's family has the same name as its samples.
        let suffix = if is_open { "" } else { suffix(kind) };
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}.");
        let _ = writeln!(self.text, "# TYPE {name}{suffix} {kind_name}");
        if is_open && !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    fn point(&mut self, name: &str, kind: MetricKind, point: &Point) {
        let labels = &point.labels;
        match &point.value {
            Value::Count(count) => self.sample(name, suffix(kind), labels, None, *count),
            Value::Nanos(nanos) => self.sample(name, suffix(kind), labels, None, Seconds(*nanos)),
            Value::Float(value) => {
                self.sample(name, suffix(kind), labels, None, Number(*value));
            }
            Value::Histogram(buckets) => {
                for (bound, count) in buckets.cumulative() {
                    let bound = ("le", Seconds(bound).to_string());
                    self.sample(name, "_bucket", labels, Some(bound), count);
                }
                let infinity = ("le", "+Inf".to_owned());
                self.sample(name, "_bucket", labels, Some(infinity), buckets.count());
                self.sample(name, "_sum", labels, None, Seconds(buckets.sum_ns));
                self.sample(name, "_count", labels, None, buckets.count());
            }
            Value::Summary(summary) => {
                for &(share, nanos) in &summary.quantiles {
                    let share = ("quantile", share.to_string());
                    self.sample(name, "", labels, Some(share), Seconds(nanos));
                }
                self.sample(name, "_sum", labels, None, Seconds(summary.sum_ns));
                self.sample(name, "_count", labels, None, summary.count);
            }
        }
    }

    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels,
        more: Option<(&'static str, String)>,
        value: impl std::fmt::Display,
    ) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (label, value) in labels.iter().chain(more.as_ref()) {
            let _ = write!(self.text, "{separator}{label}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn suffix(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "_total",
        MetricKind::Info => "_info",
        MetricKind::Gauge | MetricKind::Histogram | MetricKind::Summary => "",
    }
}

fn escape(value: &str, text: &mut String) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

/// Nanoseconds, written as seconds with every digit.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{seconds}");
        }
        let digits = format!("{nanos:09}");
        write!(f, "{seconds}.{}", digits.trim_end_matches('0'))
    }
}

/// A number in Prometheus' spelling.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_finite() => write!(f, "{value}"),
            value if value.is_nan() => f.write_str("NaN"),
            value if value > 0.0 => f.write_str("+Inf"),
            _ => f.write_str("-Inf"),
        }
    }
}

/// The metrics of llama.cpp's server at `/metrics`, with its names and help (`tools/server/server-task.cpp`,
/// `server_task_result_metrics::to_metrics`), as far as a profile has them: none about requests, slots,
/// reused prompts or speculative decoding.
fn llama_cpp(profile: &Profile, text: &mut Text) {
    let phase = |phase| profile.phase(phase).copied();
    let (prompt, predicted) = (phase(Phase::Prefill), phase(Phase::Decode));
    let tokens = |phase: Option<PhaseTotal>| Some(phase?.tokens).filter(|tokens| *tokens > 0);
    let mut add = |name: &str, kind, help, value: Option<&dyn std::fmt::Display>| {
        if let Some(value) = value {
            let name = format!("llamacpp:{name}");
            text.head(&name, kind, help, "");
            text.sample(&name, suffix(kind), &Labels::new(), None, value);
        }
    };
    fn shown<T: std::fmt::Display>(value: &Option<T>) -> Option<&dyn std::fmt::Display> {
        value.as_ref().map(|value| value as _)
    }
    // In a file of another program, passes without tokens are often those of a host that launches and doesn't wait.
    let is_whole = |phase: &PhaseTotal| phase.tokens > 0 || profile.imported.is_none();
    let wall = |phase: Option<PhaseTotal>| Some(Seconds(phase.filter(is_whole)?.wall_ns));
    let rate = |phase: Option<PhaseTotal>| {
        let phase = phase.filter(|phase| phase.tokens > 0)?;
        Some(Number(phase.tokens_per_second()?))
    };
    let help = "Number of prompt tokens processed, excluding cached tokens";
    add("prompt_tokens", MetricKind::Counter, help, shown(&tokens(prompt)));
    let help = "Total time spent processing prompts";
    add("prompt_seconds", MetricKind::Counter, help, shown(&wall(prompt)));
    let help = "Number of generation tokens processed";
    add("tokens_predicted", MetricKind::Counter, help, shown(&tokens(predicted)));
    let help = "Total time spent generating tokens";
    add("tokens_predicted_seconds", MetricKind::Counter, help, shown(&wall(predicted)));
    let passes = prompt.into_iter().chain(predicted).map(|phase| phase.passes);
    let passes = passes.reduce(u64::saturating_add);
    // llama-bench doesn't say in how many batches its tests ran.
    let passes = passes.filter(|_| profile.imported.is_none());
    let help = "Total number of llama_decode() calls: here, of forward passes";
    add("n_decode", MetricKind::Counter, help, shown(&passes));
    // A snapshot of a run in progress has only the newest passes.
    let are_all_kept = passes == Some(profile.passes.len() as u64);
    let longest = profile.passes.iter().map(|pass| pass.position.saturating_add(pass.tokens)).max();
    let help = "Largest observed sequence length (prompt + generation)";
    add("n_tokens_max", MetricKind::Gauge, help, shown(&longest.filter(|_| are_all_kept)));
    let help = "Average prompt throughput in tokens/s";
    add("prompt_tokens_seconds", MetricKind::Gauge, help, shown(&rate(prompt)));
    let help = "Average generation throughput in tokens/s";
    add("predicted_tokens_seconds", MetricKind::Gauge, help, shown(&rate(predicted)));
}
