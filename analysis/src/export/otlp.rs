//! OpenTelemetry's metrics as JSON: one `ExportMetricsServiceRequest`, which a collector accepts at
//! `/v1/metrics` with the content type `application/json`, and reads from files:
//! <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>. Field names are in lowerCamelCase,
//! 64-bit integers are strings, enums are numbers.
//!
//! There are no traces: OTLP needs the calendar time of a span to the nanosecond, and a profile knows its
//! own only to the second. [`crate::stacks`] and the formats for timelines have the spans.

use std::io::{self, Write};

use brickscope_profile::{Profile, save};
use serde_json::{Value as Json, json};

use super::metrics::{self, Family, Kind, Labels, Point, Summary, Unit, Value};

/// Durations for which OpenTelemetry has names: ours, and those of its semantic conventions for generative
/// AI, which are still in development.
/// <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>
const GEN_AI: [(&str, &str); 2] = [
    ("time_to_first_token", "gen_ai.server.time_to_first_token"),
    ("time_per_output_token", "gen_ai.server.time_per_output_token"),
];

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: sums since the profiler was turned on.
const CUMULATIVE: u32 = 2;

/// Writes the metrics of `profile`.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn write(profile: &Profile, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let when = When::new(profile);
    let mut metrics = Vec::new();
    for family in metrics::families(profile) {
        metrics.extend(gen_ai(&family, profile, &when));
        metrics.push(metric(&family, &when));
    }
    let request = json!({
        "resourceMetrics": [{
            "resource": { "attributes": resource(profile) },
            "scopeMetrics": [{
                "scope": { "name": "brickscope", "version": profile.brickscope_version },
                "metrics": metrics,
            }],
        }],
    });
    serde_json::to_writer(&mut *out, &request)?;
    out.write_all(b"\n")
}

/// The period that counters cover.
struct When {
    start: Option<u64>,
    end: Option<u64>,
}

impl When {
    /// The profile was made at `created`, in whole seconds; its clock says how long it had run by then.
    fn new(profile: &Profile) -> Self {
        let end = save::unix_seconds(&profile.created).and_then(|s| s.checked_mul(1_000_000_000));
        let anchors = &profile.clock.anchors;
        let lasted = anchors.first().zip(anchors.last());
        let lasted = lasted.and_then(|(first, last)| last.at_ns.checked_sub(first.at_ns));
        Self { start: end.zip(lasted).and_then(|(end, lasted)| end.checked_sub(lasted)), end }
    }

    /// Puts the period into a point's fields.
    fn put(&self, point: &mut Json) {
        for (field, moment) in [("startTimeUnixNano", self.start), ("timeUnixNano", self.end)] {
            if let Some(moment) = moment {
                point[field] = moment.to_string().into();
            }
        }
    }
}

fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn resource(profile: &Profile) -> Vec<Json> {
    let mut attributes = vec![
        text("service.name", "brickscope"),
        text("service.version", &profile.brickscope_version),
    ];
    if let Some(process) = profile.process {
        let value = json!({ "intValue": process.to_string() });
        attributes.push(json!({ "key": "process.pid", "value": value }));
    }
    if let Some(machine) = &profile.machine {
        attributes.push(text("os.type", &machine.os));
        attributes.push(text("host.arch", &machine.arch));
        attributes.extend(machine.cpu.iter().map(|cpu| text("host.cpu.model.name", cpu)));
    }
    attributes
}

fn attributes(labels: &Labels) -> Vec<Json> {
    labels.iter().map(|(name, value)| text(name, value)).collect()
}

fn metric(family: &Family, when: &When) -> Json {
    let unit = match family.unit {
        Unit::None => "",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        Unit::BytesPerSecond => "By/s",
        Unit::Ratio => "1",
    };
    let points: Vec<Json> = family
        .points
        .iter()
        .filter_map(|point| data_point(point, matches!(family.kind, Kind::Counter), when))
        .collect();
    // The name that our Prometheus text has, once a collector has turned dots into underscores.
    let info = if matches!(family.kind, Kind::Info) { ".info" } else { "" };
    let mut metric = json!({
        "name": format!("brickscope.{}{info}", family.name),
        "description": format!("{}.", family.help),
        "unit": unit,
    });
    let (kind, data) = match family.kind {
        Kind::Counter => (
            "sum",
            json!({
                "dataPoints": points,
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            }),
        ),
        Kind::Gauge | Kind::Info => ("gauge", json!({ "dataPoints": points })),
        Kind::Histogram => {
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
        Kind::Summary => ("summary", json!({ "dataPoints": points })),
    };
    metric[kind] = data;
    metric
}

/// `None` for a value that is not a number.
fn data_point(point: &Point, is_sum: bool, when: &When) -> Option<Json> {
    let mut json = match &point.value {
        Value::Count(count) => json!({ "asInt": signed(*count) }),
        Value::Nanos(nanos) => json!({ "asDouble": seconds(*nanos) }),
        Value::Float(value) if value.is_finite() => json!({ "asDouble": value }),
        Value::Float(_) => return None,
        Value::Histogram(buckets) => {
            let cumulative: Vec<(u64, u64)> = buckets.cumulative().collect();
            let bounds: Vec<f64> = cumulative.iter().map(|(bound, _)| seconds(*bound)).collect();
            let ends = cumulative.iter().map(|(_, count)| *count).chain([buckets.count()]);
            let mut before = 0;
            let counts: Vec<String> =
                ends.map(|end| (end - std::mem::replace(&mut before, end)).to_string()).collect();
            json!({
                "count": buckets.count().to_string(),
                "sum": seconds(buckets.sum_ns),
                "explicitBounds": bounds,
                "bucketCounts": counts,
            })
        }
        Value::Summary(summary) => {
            let quantiles: Vec<Json> = summary
                .quantiles
                .iter()
                .map(|(share, nanos)| json!({ "quantile": share, "value": seconds(*nanos) }))
                .collect();
            json!({
                "count": summary.count.to_string(),
                "sum": seconds(summary.sum_ns),
                "quantileValues": quantiles,
            })
        }
    };
    json["attributes"] = attributes(&point.labels).into();
    when.put(&mut json);
    // For a gauge only the moment of reading matters.
    if !is_sum && json.get("count").is_none() {
        json.as_object_mut().map(|fields| fields.remove("startTimeUnixNano"));
    }
    Some(json)
}

/// The semantic conventions ask for histograms. These have no buckets, since durations of tokens are kept
/// as percentiles.
fn gen_ai(family: &Family, profile: &Profile, when: &When) -> Option<Json> {
    let (_, name) = GEN_AI.into_iter().find(|(ours, _)| *ours == family.name)?;
    let point = family.points.first()?;
    let Value::Summary(Summary { count, sum_ns, min_ns, max_ns, .. }) = &point.value else {
        return None;
    };
    let mut attributes = vec![
        text("gen_ai.operation.name", "text_completion"),
        text("gen_ai.provider.name", "brickscope"),
    ];
    if let Some(model) = &profile.model {
        let model = model.name.as_ref().unwrap_or(&model.path);
        attributes.push(text("gen_ai.request.model", model));
    }
    let mut point = json!({
        "count": count.to_string(),
        "sum": seconds(*sum_ns),
        "attributes": attributes,
    });
    for (field, nanos) in [("min", min_ns), ("max", max_ns)] {
        if let Some(nanos) = nanos {
            point[field] = seconds(*nanos).into();
        }
    }
    when.put(&mut point);
    Some(json!({
        "name": name,
        "description": format!("{}.", family.help),
        "unit": "s",
        "histogram": { "dataPoints": [point], "aggregationTemporality": CUMULATIVE },
    }))
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Counts are signed in OTLP.
fn signed(count: u64) -> String {
    count.min(i64::MAX as u64).to_string()
}
