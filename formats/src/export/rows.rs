//! The spans of host and devices as one table, with names instead of numbers: the source of CSV and
//! Parquet.

use std::borrow::Cow;
use std::collections::HashMap;

use brickscope_profile::{
    DeviceLaunch, HostLaunch, Lane, Pass, Phase, PhaseTotal, Profile, Route, Source, Span, Total,
};

use super::timeline::{SpanKind, kind_of, name_of};

/// The spans of the host, or of one stream of a device, with the tables that they refer to.
#[derive(Debug, Clone, Copy)]
pub struct Table<'p> {
    /// The device and its stream, by number; `None` for the host.
    pub stream: Option<(u32, u32)>,
    /// The name of the stream.
    pub name: Option<&'p str>,
    /// Its spans.
    pub spans: &'p [Span],
    /// Its passes.
    pub passes: &'p [Pass],
    /// The sums of its phases.
    pub phases: &'p [PhaseTotal],
    /// The sums of its bricks.
    pub totals: &'p [Total],
}

/// The host's table, then those of the streams.
pub fn tables(profile: &Profile) -> impl Iterator<Item = Table<'_>> {
    let host = Table {
        stream: None,
        name: None,
        spans: &profile.spans,
        passes: &profile.passes,
        phases: &profile.phases,
        totals: &profile.totals,
    };
    let of_devices = (0..).zip(&profile.devices).flat_map(|(device, of)| {
        (0..).zip(&of.streams).map(move |(stream, of)| Table {
            stream: Some((device, stream)),
            name: Some(&of.name),
            spans: &of.spans,
            passes: &of.passes,
            phases: &of.phases,
            totals: &of.totals,
        })
    });
    std::iter::once(host).chain(of_devices)
}

/// A span, with everything that it refers to. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'p> {
    /// The device, as an index into [`Profile::devices`]; `None` for the host.
    pub device: Option<u32>,
    /// The stream, as an index into the device's.
    pub stream: Option<u32>,
    /// The row in the table of spans of the host, or of the stream.
    pub row: u32,
    /// The row of the span around it, in the same table.
    pub parent: Option<u32>,
    /// The thread, as an index into [`Profile::lanes`]; 0 on a stream.
    pub lane: u32,
    /// The name of the thread or stream.
    pub track: Option<&'p str>,
    /// The system's number of the thread.
    pub tid: Option<u32>,
    /// The serial of the pass.
    pub pass: Option<u32>,
    /// The phase of the pass.
    pub phase: Option<Phase>,
    /// The transformer layer.
    pub layer: Option<u16>,
    /// `layer`, `brick` or `kernel`.
    pub kind: &'static str,
    /// The name of the brick or kernel; `None` for a layer.
    pub name: Option<Cow<'p, str>>,
    /// How the time was obtained.
    pub source: Source,
    /// When it began, in nanoseconds of the profile's clock.
    pub start_ns: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// The part of it that lies in no nested brick; 0 for kernels and layers.
    pub exclusive_ns: u64,
    /// Elements processed, if they were stated.
    pub elements: Option<u64>,
    /// Floating-point operations, if they were stated.
    pub flops: Option<u64>,
    /// Bytes, if they were stated.
    pub bytes: Option<u64>,
    /// How the kernel ran on the CPU.
    pub host: Option<&'p HostLaunch>,
    /// How the kernel ran on a device.
    pub launch: Option<&'p DeviceLaunch>,
    /// The source and destination of a copy.
    pub transfer: Option<&'p Route>,
}

impl Row<'_> {
    /// What the kernel worked on, if that is known.
    #[must_use]
    pub fn shape(&self) -> Option<&str> {
        let host = self.host.map(|host| host.shape.as_str());
        let shape = host.or_else(|| self.launch.map(|launch| launch.shape.as_str()));
        shape.filter(|shape| !shape.is_empty())
    }

    /// The 64-bit FNV-1a of its PTX as hexadecimal digits, if it has one.
    #[must_use]
    pub fn ptx(&self) -> Option<String> {
        let hash = self.launch.map(|launch| launch.ptx_hash).filter(|&hash| hash != 0);
        hash.map(|hash| format!("{hash:016x}"))
    }
}

/// The number of spans on the host and on all streams.
#[must_use]
pub fn count(profile: &Profile) -> u64 {
    tables(profile).map(|table| table.spans.len() as u64).sum()
}

/// Each span that was kept: the host's, then those of each stream, each in the order of its table.
pub fn rows(profile: &Profile) -> impl Iterator<Item = Row<'_>> {
    tables(profile).flat_map(move |table| rows_of(profile, table))
}

/// Each span of a table.
pub fn rows_of<'p>(profile: &'p Profile, table: Table<'p>) -> impl Iterator<Item = Row<'p>> + 'p {
    let phases: HashMap<u32, Phase> =
        table.passes.iter().rev().map(|pass| (pass.serial, pass.phase)).collect();
    (0..).zip(table.spans).map(move |(row, span)| of_span(profile, &table, &phases, row, span))
}

fn of_span<'p>(
    profile: &'p Profile,
    table: &Table<'p>,
    phases: &HashMap<u32, Phase>,
    row: u32,
    span: &Span,
) -> Row<'p> {
    let stated = |count: u64| (count > 0).then_some(count);
    let of_host = |lane: u32| profile.lanes.get(lane as usize).filter(|_| table.stream.is_none());
    let lane: Option<&Lane> = of_host(span.lane);
    let known = span.name.and_then(|index| profile.names.get(usize::from(index)));
    let name = span.name.map(|index| match name_of(profile, index) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("#{index}")),
    });
    let kind: SpanKind = kind_of(profile, span);
    Row {
        device: table.stream.map(|(device, _)| device),
        stream: table.stream.map(|(_, stream)| stream),
        row,
        parent: span.parent,
        lane: span.lane,
        track: table.name.or_else(|| lane?.name.as_deref()),
        tid: lane.and_then(|lane| lane.tid),
        pass: span.pass,
        phase: span.pass.and_then(|pass| phases.get(&pass).copied()),
        layer: span.layer,
        kind: kind.name(),
        name,
        source: span.source,
        start_ns: span.start_ns,
        duration_ns: span.duration_ns,
        exclusive_ns: span.exclusive_ns,
        elements: stated(span.work.elements),
        flops: stated(span.work.flops),
        bytes: stated(span.work.bytes),
        host: known.and_then(|name| name.host.as_ref()),
        launch: known.and_then(|name| name.device.as_ref()),
        transfer: known.and_then(|name| name.transfer.as_ref()),
    }
}
