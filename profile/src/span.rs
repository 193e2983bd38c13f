//! Single spans, the threads that they ran on, and the dependencies between threads.

use serde::{Deserialize, Serialize};

use crate::brick::{Source, Work};

/// A thread that recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The thread's name, if it has one.
    pub name: Option<String>,
    /// The system's id of the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
}

/// One span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The brick or kernel: an index into `names`. `None` for a layer.
    pub name: Option<u16>,
    /// How its time was obtained.
    pub source: Source,
    /// The thread: an index into `lanes`.
    pub lane: u32,
    /// The serial of the pass; `None` outside of passes.
    pub pass: Option<u32>,
    /// The transformer layer.
    pub layer: Option<u16>,
    /// The span around it: an index into `spans`, less than this span's own.
    pub parent: Option<u32>,
    /// When it began, in nanoseconds of the clock.
    pub start_ns: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// The duration minus that of the bricks inside; 0 for kernels and layers, since time is attributed
    /// to bricks only.
    pub exclusive_ns: u64,
    /// The work that was done.
    /// What its bytes are is kept in sums only ([`BrickStats::data`](crate::BrickStats::data)).
    pub work: Work,
}

/// A dependency of one thread's work on another thread's work. See `BrickProfiler::hand_off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Where the work was handed off.
    pub from: Point,
    /// Where it was taken over.
    pub to: Point,
}

/// A place in the work of a thread, between spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The thread: an index into `lanes`.
    pub lane: u32,
    /// When, in nanoseconds of the clock.
    pub at_ns: u64,
    /// Its index among the points of its thread.
    pub nth: u32,
    /// The span around it: an index into `spans`.
    pub inside: Option<u32>,
}

/// Spans as a table: files have thousands of rows, so the names of the columns are written only once.
pub(crate) mod span_table {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Source, Span, Work};
    use crate::stats::stated;

    const COLUMNS: [&str; 12] = [
        "name",
        "source",
        "lane",
        "pass",
        "layer",
        "parent",
        "start_ns",
        "duration_ns",
        "exclusive_ns",
        "elements",
        "flops",
        "bytes",
    ];

    type Row = (
        Option<u16>,
        u8,
        u32,
        Option<u32>,
        Option<u16>,
        Option<u32>,
        u64,
        u64,
        u64,
        u64,
        Option<u64>,
        Option<u64>,
    );

    #[derive(Serialize)]
    struct Written<'a> {
        columns: [&'a str; 12],
        sources: &'a [Source],
        rows: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Read {
        columns: Vec<String>,
        sources: Vec<Source>,
        rows: Vec<Row>,
    }

    pub(crate) fn serialize<S: Serializer>(spans: &[Span], to: S) -> Result<S::Ok, S::Error> {
        let row = |span: &Span| {
            (
                span.name,
                span.source as u8,
                span.lane,
                span.pass,
                span.layer,
                span.parent,
                span.start_ns,
                span.duration_ns,
                span.exclusive_ns,
                span.work.elements,
                stated::some(span.work.flops),
                stated::some(span.work.bytes),
            )
        };
        let rows = spans.iter().map(row).collect();
        // Older readers know only the first two sources.
        let is_of_device = spans.iter().any(|span| span.source == Source::Device);
        let sources = &Source::ALL[..if is_of_device { 3 } else { 2 }];
        Written { columns: COLUMNS, sources, rows }.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Span>, D::Error> {
        let Read { columns, sources, rows } = Read::deserialize(from)?;
        if columns != COLUMNS {
            return Err(D::Error::custom(format!("spans have the columns {columns:?}")));
        }
        let span = |(index, row): (usize, Row)| {
            let source = sources.get(usize::from(row.1)).copied().ok_or_else(|| {
                D::Error::custom(format!("span {index} has the source {}, of {sources:?}", row.1))
            })?;
            Ok(Span {
                name: row.0,
                source,
                lane: row.2,
                pass: row.3,
                layer: row.4,
                parent: row.5.filter(|parent| (*parent as usize) < index),
                start_ns: row.6,
                duration_ns: row.7,
                exclusive_ns: row.8,
                work: Work {
                    elements: row.9,
                    flops: row.10.unwrap_or_default(),
                    bytes: row.11.unwrap_or_default(),
                    ..Work::default()
                },
            })
        };
        rows.into_iter().enumerate().map(span).collect()
    }
}
