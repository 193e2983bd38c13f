//! The messages of OTLP that are written here, as protocol buffers and as their JSON: those fields of
//! <https://github.com/open-telemetry/opentelemetry-proto> 1.11 that a profile has values for.

use prost::{Message, Oneof};
use serde_json::{Value as Json, json};

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 3, 4, 5")]
    pub(super) value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

/// `ExportMetricsServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(string, tag = "3")]
    pub(super) unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9, 11")]
    pub(super) data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
    #[prost(message, tag = "11")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    pub(super) temporality: i32,
    #[prost(bool, tag = "3")]
    pub(super) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    pub(super) temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) points: Vec<SummaryPoint>,
}

/// A start or an end of 0 is an unknown one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) end: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub(super) value: Option<Number>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramPoint {
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) end: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(super) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(super) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) explicit_bounds: Vec<f64>,
    #[prost(double, optional, tag = "11")]
    pub(super) min: Option<f64>,
    #[prost(double, optional, tag = "12")]
    pub(super) max: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryPoint {
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) end: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, tag = "5")]
    pub(super) sum: f64,
    #[prost(message, repeated, tag = "6")]
    pub(super) quantiles: Vec<Quantile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Quantile {
    #[prost(double, tag = "1")]
    pub(super) quantile: f64,
    #[prost(double, tag = "2")]
    pub(super) value: f64,
}

/// `ExportProfilesServiceRequest`. Index 0 of each table of the dictionary is an empty entry, which stands for none.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProfilesRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub(super) dictionary: Option<Dictionary>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, optional, tag = "1")]
    pub(super) sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    pub(super) start: u64,
    #[prost(uint64, tag = "4")]
    pub(super) duration: u64,
    #[prost(bytes = "vec", tag = "7")]
    pub(super) profile_id: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(int32, tag = "1")]
    pub(super) stack: i32,
    #[prost(int32, repeated, tag = "2")]
    pub(super) attributes: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    pub(super) values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    pub(super) mappings: Vec<Empty>,
    #[prost(message, repeated, tag = "2")]
    pub(super) locations: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    pub(super) functions: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    pub(super) links: Vec<Empty>,
    #[prost(string, repeated, tag = "5")]
    pub(super) strings: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    pub(super) stacks: Vec<Stack>,
}

/// A mapping of a binary or a link to a span of a trace, of which there are none.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(message, repeated, tag = "3")]
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Line {
    #[prost(int32, tag = "1")]
    pub(super) function: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Function {
    #[prost(int32, tag = "1")]
    pub(super) name: i32,
}

/// `KeyValueAndUnit`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(int32, tag = "1")]
    pub(super) key: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stack {
    /// The innermost first.
    #[prost(int32, repeated, tag = "1")]
    pub(super) locations: Vec<i32>,
}

/// `ExportMetricsServiceResponse` and `ExportProfilesServiceResponse`, which are alike.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// `google.rpc.Status`, the body of answers that are errors.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Any::Text(value.into()))
}

pub(super) fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

impl AnyValue {
    fn json(&self) -> Json {
        match &self.value {
            Some(Any::Text(text)) => json!({ "stringValue": text }),
            Some(Any::Int(number)) => json!({ "intValue": number.to_string() }),
            Some(Any::Double(number)) => json!({ "doubleValue": number }),
            Some(Any::List(list)) => {
                let values: Vec<Json> = list.values.iter().map(Self::json).collect();
                object([("arrayValue", object([("values", values.into())]))])
            }
            None => json!({}),
        }
    }
}

impl KeyValue {
    pub(super) fn json(&self) -> Json {
        let value = self.value.as_ref().map_or_else(|| json!({}), AnyValue::json);
        object([("key", self.key.as_str().into()), ("value", value)])
    }
}

/// An object of these values: `json!` would copy each, with all that is in it.
fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The fields that all points have.
fn point(attributes: &[KeyValue], start: u64, end: u64) -> Json {
    let attributes: Vec<Json> = attributes.iter().map(KeyValue::json).collect();
    let mut json = object([("attributes", attributes.into())]);
    for (field, moment) in [("startTimeUnixNano", start), ("timeUnixNano", end)] {
        if moment > 0 {
            json[field] = moment.to_string().into();
        }
    }
    json
}

impl MetricsRequest {
    /// By <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: names of fields in lowerCamelCase,
    /// integers of 64 bits as text, enums as numbers.
    pub(super) fn json(&self) -> Json {
        let resources: Vec<Json> =
            self.resource_metrics.iter().map(ResourceMetrics::json).collect();
        object([("resourceMetrics", resources.into())])
    }
}

impl ResourceMetrics {
    fn json(&self) -> Json {
        let attributes = self.resource.iter().flat_map(|resource| &resource.attributes);
        let attributes: Vec<Json> = attributes.map(KeyValue::json).collect();
        let scopes = self.scope_metrics.iter().map(|scope| {
            let metrics: Vec<Json> = scope.metrics.iter().map(Metric::json).collect();
            let Scope { name, version } = scope.scope.clone().unwrap_or_default();
            let scope = object([("name", name.into()), ("version", version.into())]);
            object([("scope", scope), ("metrics", metrics.into())])
        });
        object([
            ("scopeMetrics", scopes.collect::<Vec<Json>>().into()),
            ("resource", object([("attributes", attributes.into())])),
        ])
    }
}

impl Metric {
    fn json(&self) -> Json {
        let mut metric =
            json!({ "name": self.name, "description": self.description, "unit": self.unit });
        let numbers = |points: &[NumberPoint]| points.iter().map(NumberPoint::json).collect();
        let (kind, points, temporality): (_, Vec<Json>, _) = match &self.data {
            Some(Data::Gauge(gauge)) => ("gauge", numbers(&gauge.points), None),
            Some(Data::Sum(sum)) => ("sum", numbers(&sum.points), Some(sum.temporality)),
            Some(Data::Histogram(histogram)) => {
                let points = histogram.points.iter().map(HistogramPoint::json).collect();
                ("histogram", points, Some(histogram.temporality))
            }
            Some(Data::Summary(summary)) => {
                ("summary", summary.points.iter().map(SummaryPoint::json).collect(), None)
            }
            None => return metric,
        };
        metric[kind] = object([("dataPoints", points.into())]);
        if let Some(temporality) = temporality {
            metric[kind]["aggregationTemporality"] = temporality.into();
        }
        if let Some(Data::Sum(sum)) = &self.data {
            metric[kind]["isMonotonic"] = sum.is_monotonic.into();
        }
        metric
    }
}

impl NumberPoint {
    fn json(&self) -> Json {
        let mut json = point(&self.attributes, self.start, self.end);
        match self.value {
            Some(Number::Double(value)) => json["asDouble"] = value.into(),
            Some(Number::Int(value)) => json["asInt"] = value.to_string().into(),
            None => {}
        }
        json
    }
}

impl HistogramPoint {
    fn json(&self) -> Json {
        let mut json = point(&self.attributes, self.start, self.end);
        json["count"] = self.count.to_string().into();
        for (field, value) in [("sum", self.sum), ("min", self.min), ("max", self.max)] {
            if let Some(value) = value {
                json[field] = value.into();
            }
        }
        if !self.bucket_counts.is_empty() {
            let counts: Vec<String> = self.bucket_counts.iter().map(u64::to_string).collect();
            json["bucketCounts"] = counts.into();
            json["explicitBounds"] = self.explicit_bounds.clone().into();
        }
        json
    }
}

impl SummaryPoint {
    fn json(&self) -> Json {
        let mut json = point(&self.attributes, self.start, self.end);
        let quantiles = self
            .quantiles
            .iter()
            .map(|Quantile { quantile, value }| json!({ "quantile": quantile, "value": value }));
        json["count"] = self.count.to_string().into();
        json["sum"] = self.sum.into();
        json["quantileValues"] = quantiles.collect::<Vec<Json>>().into();
        json
    }
}
