//! The messages of OTLP's traces: those fields of
//! <https://github.com/open-telemetry/opentelemetry-proto> 1.11 that a request of a server has values for.

use prost::Message;
use serde_json::{Value as Json, json};

use super::message::{KeyValue, Resource, Scope};

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TraceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

/// Without a parent it is a whole request.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    pub(super) links: Vec<Link>,
    #[prost(uint32, tag = "14")]
    pub(super) dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<SpanStatus>,
}

/// Of another trace.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SpanStatus {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

impl Span {
    /// By <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: ids are hexadecimal, unlike other bytes.
    pub(super) fn json(&self) -> Json {
        let attributes: Vec<Json> = self.attributes.iter().map(KeyValue::json).collect();
        let mut json = json!({
            "traceId": hexadecimal(&self.trace_id),
            "spanId": hexadecimal(&self.span_id),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": self.start.to_string(),
            "endTimeUnixNano": self.end.to_string(),
            "attributes": attributes,
        });
        if !self.parent_span_id.is_empty() {
            json["parentSpanId"] = hexadecimal(&self.parent_span_id).into();
        }
        if !self.links.is_empty() {
            json["links"] = self.links.iter().map(Link::json).collect();
        }
        if self.dropped_links_count > 0 {
            json["droppedLinksCount"] = self.dropped_links_count.into();
        }
        if let Some(SpanStatus { message, code }) = &self.status {
            json["status"] = json!({ "message": message, "code": code });
        }
        json
    }
}

impl Link {
    fn json(&self) -> Json {
        let attributes: Vec<Json> = self.attributes.iter().map(KeyValue::json).collect();
        json!({
            "traceId": hexadecimal(&self.trace_id),
            "spanId": hexadecimal(&self.span_id),
            "attributes": attributes,
        })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
