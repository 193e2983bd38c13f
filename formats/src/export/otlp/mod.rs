//! OpenTelemetry's protocol, OTLP: the metrics of a profile, its stacks and the requests of a server, as a collector takes them.
//!
//! [`write()`] makes one `ExportMetricsServiceRequest` as JSON, which a collector accepts at `/v1/metrics` with the
//! content type `application/json`, and reads from files. [`metrics()`] and [`profiles()`] make the same as protocol
//! buffers, in requests of a bounded size, for [`METRICS_PATH`] and [`PROFILES_PATH`]; [`Answer`] reads what a collector
//! answers. Sending them is the part of `brickscope-live`.
//!
//! [`Spans`] are the requests of a server as traces. Spans of passes, layers and bricks are no traces: the formats for timelines
//! have them.

mod message;
mod profiles;
mod span_message;
mod spans;

use std::io::{self, Write};
use std::mem;

use brickscope_profile::{Profile, save};
use prost::Message;

use self::message::{
    Any, AnyValue, Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, MetricsRequest,
    Number, NumberPoint, Quantile, Resource, ResourceMetrics, Scope, ScopeMetrics, Sum,
    SummaryPoint, text,
};
pub use self::profiles::profiles;
pub use self::spans::{NO_TIME, Spans};
use super::metrics::{self, Family, Labels, MetricKind, Point, Summary, Unit, Value};

/// Where a collector takes metrics, below its base URL.
pub const METRICS_PATH: &str = "/v1/metrics";

/// Where a collector takes profiles, a signal that is still in development.
pub const PROFILES_PATH: &str = "/v1development/profiles";

/// Where a collector takes spans.
pub const TRACES_PATH: &str = "/v1/traces";

/// The content type of the requests.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Durations for which OpenTelemetry has names: ours, and those of its semantic conventions for generative
/// AI, which are still in development.
/// <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>
const GEN_AI: [(&str, &str); 2] = [
    ("time_to_first_token", "gen_ai.server.time_to_first_token"),
    ("time_per_output_token", "gen_ai.server.time_per_output_token"),
];

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: sums since the profiler was turned on.
const CUMULATIVE: i32 = 2;

/// A point has at most a kilobyte or two, unless names are very long: this keeps requests far below the 20 MiB that
/// a collector takes by default.
const MOST_POINTS: usize = 2_000;

/// A request, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The message.
    pub body: Vec<u8>,
    /// The data points, profiles or spans in it.
    pub items: u64,
}

/// What is sent beside the figures: the resource that they are of, and the period that they cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    attributes: Vec<KeyValue>,
    /// When counting began, in nanoseconds since 1970.
    pub start_ns: Option<u64>,
    /// When the profile was made, in the same unit.
    pub end_ns: Option<u64>,
}

impl Origin {
    /// What a profile states of itself: brickscope's version, the process, the machine, and what was named of both; the
    /// period to the second.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let mut attributes = vec![
            text("service.name", "brickscope"),
            text("service.version", &*profile.brickscope_version),
        ];
        if let Some(process) = profile.process {
            let value = AnyValue { value: Some(Any::Int(process.into())) };
            attributes.push(KeyValue { key: "process.pid".to_owned(), value: Some(value) });
        }
        if let Some(machine) = &profile.machine {
            attributes.push(text("os.type", &*machine.os));
            // The conventions have names of their own for these.
            let arch = match &*machine.arch {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            attributes.push(text("host.arch", arch));
            attributes.extend(machine.cpu.iter().map(|cpu| text("host.cpu.model.name", &**cpu)));
        }
        if let Some(named) = &profile.named {
            attributes.extend(named.machine.iter().map(|name| text("host.name", &**name)));
            let commit = named.commit.iter();
            attributes.extend(commit.map(|commit| text("vcs.ref.head.revision", &**commit)));
        }
        // The profile was made at `created`, in whole seconds; its clock says how long it had run by then.
        let end_ns =
            save::unix_seconds(&profile.created).and_then(|s| s.checked_mul(1_000_000_000));
        let anchors = &profile.clock.anchors;
        let lasted = anchors.first().zip(anchors.last());
        let lasted = lasted.and_then(|(first, last)| last.at_ns.checked_sub(first.at_ns));
        let start_ns = end_ns.zip(lasted).and_then(|(end, lasted)| end.checked_sub(lasted));
        Self { attributes, start_ns, end_ns }
    }

    /// Adds an attribute of the resource, or replaces the one of that name.
    pub fn set(&mut self, key: &str, value: &str) {
        let attribute = text(key, value);
        match self.attributes.iter_mut().find(|known| known.key == key) {
            Some(known) => *known = attribute,
            None => self.attributes.push(attribute),
        }
    }

    fn resource(&self) -> Resource {
        Resource { attributes: self.attributes.clone() }
    }

    fn period(&self) -> (u64, u64) {
        (self.start_ns.unwrap_or_default(), self.end_ns.unwrap_or_default())
    }
}

/// Writes the metrics of `profile` as JSON.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn write(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let origin = Origin::of(profile);
    let request = request(profile, &origin, all(profile, &origin));
    serde_json::to_writer(&mut *out, &request.json())?;
    out.write_all(b"\n")
}

/// The metrics of `profile` as requests to [`METRICS_PATH`].
#[must_use]
pub fn metrics(profile: &Profile, origin: &Origin) -> Vec<Request> {
    let mut requests = Vec::new();
    let (mut metrics, mut items) = (Vec::new(), 0);
    let mut finish = |metrics: &mut Vec<Metric>, items: &mut usize| {
        if !metrics.is_empty() {
            let body = request(profile, origin, mem::take(metrics)).encode_to_vec();
            requests.push(Request { body, items: mem::take(items) as u64 });
        }
    };
    for mut metric in all(profile, origin) {
        while metric.len() > 0 {
            let part = metric.take(MOST_POINTS - items);
            items += part.len();
            metrics.push(part);
            if items == MOST_POINTS {
                finish(&mut metrics, &mut items);
            }
        }
    }
    finish(&mut metrics, &mut items);
    requests
}

fn request(profile: &Profile, origin: &Origin, metrics: Vec<Metric>) -> MetricsRequest {
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope(profile)), metrics }];
    let resource = Some(origin.resource());
    MetricsRequest { resource_metrics: vec![ResourceMetrics { resource, scope_metrics }] }
}

fn scope(profile: &Profile) -> Scope {
    Scope { name: "brickscope".to_owned(), version: profile.brickscope_version.clone() }
}

fn all(profile: &Profile, origin: &Origin) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for family in metrics::families(profile) {
        metrics.extend(gen_ai(&family, profile, origin.period()));
        metrics.push(metric(&family, origin.period()));
    }
    metrics
}

impl Metric {
    fn len(&self) -> usize {
        match &self.data {
            Some(Data::Gauge(gauge)) => gauge.points.len(),
            Some(Data::Sum(sum)) => sum.points.len(),
            Some(Data::Histogram(histogram)) => histogram.points.len(),
            Some(Data::Summary(summary)) => summary.points.len(),
            None => 0,
        }
    }

    /// This metric with its first `most` points, which leave this one.
    fn take(&mut self, most: usize) -> Self {
        fn first<T>(points: &mut Vec<T>, most: usize) -> Vec<T> {
            let rest = points.split_off(most.min(points.len()));
            mem::replace(points, rest)
        }
        let data = self.data.as_mut().map(|data| match data {
            Data::Gauge(gauge) => Data::Gauge(Gauge { points: first(&mut gauge.points, most) }),
            Data::Sum(sum) => {
                let points = first(&mut sum.points, most);
                Data::Sum(Sum { points, temporality: CUMULATIVE, is_monotonic: sum.is_monotonic })
            }
            Data::Histogram(histogram) => {
                let points = first(&mut histogram.points, most);
                Data::Histogram(Histogram { points, temporality: CUMULATIVE })
            }
            Data::Summary(summary) => {
                Data::Summary(message::Summary { points: first(&mut summary.points, most) })
            }
        });
        let Self { name, description, unit, .. } = self;
        Self { name: name.clone(), description: description.clone(), unit: unit.clone(), data }
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| text(name, &**value)).collect()
}

/// The unit of a family in UCUM's code. What is counted stands in braces, which collectors leave out of Prometheus' names.
fn unit(family: &Family) -> &'static str {
    match family.unit {
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        Unit::BytesPerSecond => "By/s",
        Unit::Ratio => "1",
        Unit::None => match family.name.rsplit('.').next().unwrap_or_default() {
            "tokens" | "capacity_tokens" | "filled_tokens" => "{token}",
            "passes" | "disturbed" | "untimed" | "unsettled" => "{pass}",
            "spans" => "{span}",
            "elements" => "{element}",
            "flops" => "{operation}",
            "launches" => "{launch}",
            "counted" => "{event}",
            "dropped" => "{record}",
            // An information, of several kinds, or a rate whose name has its unit.
            _ => "",
        },
    }
}

fn metric(family: &Family, period: (u64, u64)) -> Metric {
    let numbers = || {
        let is_counter = family.kind == MetricKind::Counter;
        family.points.iter().filter_map(move |point| number(point, is_counter, period)).collect()
    };
    let data = match family.kind {
        MetricKind::Counter => {
            Data::Sum(Sum { points: numbers(), temporality: CUMULATIVE, is_monotonic: true })
        }
        MetricKind::Gauge | MetricKind::Info => Data::Gauge(Gauge { points: numbers() }),
        MetricKind::Histogram => {
            let points = family.points.iter().filter_map(|point| histogram(point, period));
            Data::Histogram(Histogram { points: points.collect(), temporality: CUMULATIVE })
        }
        MetricKind::Summary => {
            let points = family.points.iter().filter_map(|point| summary(point, period));
            Data::Summary(message::Summary { points: points.collect() })
        }
    };
    // The name that our Prometheus text has, once a collector has turned dots into underscores.
    let info = if family.kind == MetricKind::Info { ".info" } else { "" };
    Metric {
        name: format!("brickscope.{}{info}", family.name),
        description: format!("{}.", family.help),
        unit: unit(family).to_owned(),
        data: Some(data),
    }
}

/// `None` for a value that is not a number.
fn number(point: &Point, is_counter: bool, (start, end): (u64, u64)) -> Option<NumberPoint> {
    let value = match point.value {
        // Counts are signed in OTLP.
        Value::Count(count) => Number::Int(count.min(i64::MAX as u64) as i64),
        Value::Nanos(nanos) => Number::Double(seconds(nanos)),
        Value::Float(value) if value.is_finite() => Number::Double(value),
        _ => return None,
    };
    // For a gauge only the moment of reading matters.
    let start = if is_counter { start } else { 0 };
    Some(NumberPoint { attributes: attributes(&point.labels), start, end, value: Some(value) })
}

fn histogram(point: &Point, (start, end): (u64, u64)) -> Option<HistogramPoint> {
    let Value::Histogram(buckets) = &point.value else { return None };
    let (bounds, counts): (Vec<u64>, Vec<u64>) = buckets.cumulative().unzip();
    let mut before = 0;
    let ends = counts.into_iter().chain([buckets.count()]);
    Some(HistogramPoint {
        attributes: attributes(&point.labels),
        start,
        end,
        count: buckets.count(),
        sum: Some(seconds(buckets.sum_ns)),
        bucket_counts: ends.map(|end| end - mem::replace(&mut before, end)).collect(),
        explicit_bounds: bounds.into_iter().map(seconds).collect(),
        min: None,
        max: None,
    })
}

fn summary(point: &Point, (start, end): (u64, u64)) -> Option<SummaryPoint> {
    let Value::Summary(summary) = &point.value else { return None };
    let quantile = |&(quantile, nanos)| Quantile { quantile, value: seconds(nanos) };
    Some(SummaryPoint {
        attributes: attributes(&point.labels),
        start,
        end,
        count: summary.count,
        sum: seconds(summary.sum_ns),
        quantiles: summary.quantiles.iter().map(quantile).collect(),
    })
}

/// The semantic conventions ask for histograms. These have no buckets, since durations of tokens are kept
/// as percentiles.
fn gen_ai(family: &Family, profile: &Profile, (start, end): (u64, u64)) -> Option<Metric> {
    let (_, name) = GEN_AI.into_iter().find(|(ours, _)| *ours == family.name)?;
    let Value::Summary(Summary { count, sum_ns, min_ns, max_ns, .. }) =
        family.points.first()?.value
    else {
        return None;
    };
    let mut attributes = vec![
        text("gen_ai.operation.name", "text_completion"),
        text("gen_ai.provider.name", provider(profile)),
    ];
    attributes.extend(model(profile).map(|model| text("gen_ai.request.model", model)));
    let point = HistogramPoint {
        attributes,
        start,
        end,
        count,
        sum: Some(seconds(sum_ns)),
        min: min_ns.map(seconds),
        max: max_ns.map(seconds),
        ..HistogramPoint::default()
    };
    Some(Metric {
        name: name.to_owned(),
        description: format!("{}.", family.help),
        unit: "s".to_owned(),
        data: Some(Data::Histogram(Histogram { points: vec![point], temporality: CUMULATIVE })),
    })
}

/// The engine that computed the answers, as it names itself.
fn provider(profile: &Profile) -> &str {
    if let Some(of) = &profile.imported {
        let program = of.program.as_deref().unwrap_or(&of.format);
        return program.split(' ').next().unwrap_or(program);
    }
    // Of a program that was recorded, its library.
    let backend = profile.run.as_ref().map_or("", |run| run.backend.as_str());
    let recorded = ["llama.cpp", "ggml"].into_iter().find(|engine| backend.starts_with(engine));
    recorded.unwrap_or("brickscope")
}

/// The model's name or, if it has none, its path.
fn model(profile: &Profile) -> Option<&str> {
    profile.model.as_ref().map(|of| of.name.as_deref().unwrap_or(&of.path))
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// What a collector answered to a request that it took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The data points, profiles or spans that it rejected.
    pub rejected: u64,
    /// Why, or a warning; empty if it says nothing.
    pub message: String,
}

impl Answer {
    /// Reads the body of an answer with status 200; `None` if it isn't OTLP's.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let response = message::Response::decode(body).ok()?;
        let message::PartialSuccess { rejected, message } =
            response.partial_success.unwrap_or_default();
        Some(Self { rejected: u64::try_from(rejected).unwrap_or_default(), message })
    }

    /// The reason in the body of an answer that is an error, if it has one.
    #[must_use]
    pub fn reason(body: &[u8]) -> Option<String> {
        let status = message::Status::decode(body).ok()?;
        (!status.message.is_empty()).then_some(status.message)
    }
}
