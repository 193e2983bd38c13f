//! rocpd, the database that AMD's rocprofv3 writes (by default since ROCm 7).
//! <https://github.com/ROCm/rocprofiler-sdk>, source/share/rocprofiler-sdk-rocpd
//!
//! Each process has tables of its own, whose names end in its id; several may be in one file. Work of a
//! device and the call that launched it have events with one `stack_id`. Times are nanoseconds of the
//! machine's clock: in the rows themselves, or in a table that these refer to.

use std::collections::HashMap;

use brickscope_profile::Profile;
use rusqlite::Row;
use serde::Deserialize;

use super::{Base, Calls, add, count, number, range_of, small, tell_streams_apart, text};
use crate::import::kineto::{self, Dimensions, EventKind, Link};
use crate::import::passes::Passes;
use crate::import::trace::{Timed, Trace};
use crate::import::{Format, ImportError, Options, left_out};

/// The table of kernels; what follows it in its name is what each table of that process has.
const KERNELS: &str = "rocpd_kernel_dispatch";
const REGIONS: &str = "rocpd_region";
const COPIES: &str = "rocpd_memory_copy";

/// Columns that each table of events has, in one or the other form.
const COMMON: [&str; 11] = [
    "start",
    "end",
    "start_id",
    "end_id",
    "track_id",
    "event_id",
    "pid",
    "tid",
    "agent_id",
    "queue_id",
    "stream_id",
];

/// What the rows of a process refer to, by their numbers.
#[derive(Default)]
struct Known {
    texts: HashMap<i64, String>,
    /// The numbers that the system has for them.
    pids: HashMap<i64, u64>,
    tids: HashMap<i64, u64>,
    /// The number of a device, and whether it is a GPU.
    agents: HashMap<i64, (u64, bool)>,
    kernels: HashMap<i64, String>,
    events: HashMap<i64, Event>,
    times: HashMap<i64, i64>,
    tracks: HashMap<i64, Place>,
}

/// What is known of an event beside its row.
struct Event {
    /// What it has in common with the call that it is, or that launched it.
    call: Option<i64>,
    category: Option<i64>,
    /// The text of a marker.
    message: Option<String>,
}

/// Where an event was.
#[derive(Clone, Copy, Default)]
struct Place {
    pid: Option<i64>,
    tid: Option<i64>,
    agent: Option<i64>,
    queue: Option<i64>,
    stream: Option<i64>,
}

impl Place {
    /// The one of columns from `at` on: process, thread, agent, queue and stream.
    fn of(row: &Row<'_>, at: usize) -> Self {
        let number = |column: usize| number(row, at + column);
        Self {
            pid: number(0),
            tid: number(1),
            agent: number(2),
            queue: number(3),
            stream: number(4),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            pid: self.pid.or(other.pid),
            tid: self.tid.or(other.tid),
            agent: self.agent.or(other.agent),
            queue: self.queue.or(other.queue),
            stream: self.stream.or(other.stream),
        }
    }
}

/// What each row of events has, as the columns of [`COMMON`] tell.
struct Common<'k> {
    times: (Option<i64>, Option<i64>),
    place: Place,
    event: Option<&'k Event>,
    pid: u64,
}

impl Known {
    fn common(&self, row: &Row<'_>) -> Common<'_> {
        let time = |column: usize| {
            let of_table = || self.times.get(&number(row, column + 2)?).copied();
            number(row, column).or_else(of_table)
        };
        let track = number(row, 4).and_then(|track| self.tracks.get(&track));
        let place = Place::of(row, 6).or(track.copied().unwrap_or_default());
        let event = number(row, 5).and_then(|event| self.events.get(&event));
        let pid = |id: i64| self.pids.get(&id).copied().or_else(|| u64::try_from(id).ok());
        let pid = place.pid.and_then(pid).unwrap_or_default();
        Common { times: (time(0), time(1)), place, event, pid }
    }

    fn text(&self, id: Option<i64>) -> Option<&str> {
        self.texts.get(&id?).map(String::as_str)
    }

    fn gpu(&self, agent: Option<i64>) -> Option<u64> {
        self.agents.get(&agent?).and_then(|&(number, is_gpu)| is_gpu.then_some(number))
    }
}

/// What is filled from all tables.
struct Reader<'b, 'a> {
    base: &'b mut Base<'a>,
    trace: Trace,
    calls: Calls,
    passes: Passes,
    /// Names of devices, as JSON.
    devices: Vec<serde_json::Value>,
    unended: u64,
}

pub(super) fn read(base: &mut Base<'_>, options: &Options) -> Result<Profile, ImportError> {
    let at = base.at;
    options.check(Format::Rocprof, at)?;
    let table = kineto::table(options)?;
    let mut processes: Vec<String> = base
        .tables
        .keys()
        .filter_map(|table| {
            [KERNELS, REGIONS, COPIES].into_iter().find_map(|of| table.strip_prefix(of))
        })
        .map(str::to_owned)
        .collect();
    processes.sort_unstable();
    processes.dedup();
    let mut reader = Reader {
        base,
        trace: Trace::default(),
        calls: Calls::default(),
        passes: Passes::of(options),
        devices: Vec::new(),
        unended: 0,
    };
    for process in &processes {
        reader.process(process)?;
    }
    let Reader { base, mut trace, passes, devices, unended, .. } = reader;
    base.check(
        &trace,
        "has no kernel, call or range: `rocprofv3 --sys-trace -- PROGRAM` records them",
    )?;
    let devices = serde_json::Value::from(devices).to_string();
    trace.about.push(("deviceProperties".to_owned(), devices));
    tell_streams_apart(&mut trace);
    passes.choose(&mut trace, at, true)?;
    let writer = kineto::Writer { format: Format::Rocprof, program: "rocprofv3".to_owned() };
    let mut profile = kineto::profile(&mut trace, at, &table, writer)?;
    left_out(&mut profile, "events that have no begin or no end", unended);
    base.note_damage(&mut profile);
    Ok(profile)
}

impl Reader<'_, '_> {
    /// The tables of a process, whose names end in `suffix`.
    fn process(&mut self, suffix: &str) -> Result<(), ImportError> {
        let known = self.known(suffix)?;
        let Self { base, trace, calls, passes, unended, .. } = self;
        let columns = |more: &[&'static str]| [&COMMON[..], more].concat();
        let more = columns(&["name_id"]);
        base.rows(&format!("{REGIONS}{suffix}"), &more, |row| {
            let Common { times, place, event, pid } = known.common(row);
            let category = known.text(event.and_then(|event| event.category)).unwrap_or_default();
            let own = known.text(number(row, 11)).unwrap_or("(a region without a name)");
            let (name, kind) = if category.contains("MARKER") {
                let message = event.and_then(|event| event.message.as_deref());
                match range_of(message.unwrap_or(own)) {
                    Some(range) => range,
                    None => {
                        trace.left_out.instants += 1;
                        return;
                    }
                }
            } else if category.starts_with("HIP")
                || category.starts_with("HSA")
                || category.is_empty()
            {
                (own, EventKind::Call)
            } else {
                // Of a library such as RCCL, with calls inside of it.
                (own, EventKind::Op)
            };
            let call = event.filter(|_| kind == EventKind::Call).and_then(|event| event.call);
            let correlation = call.and_then(|call| calls.number(pid, call));
            let link =
                correlation.map(|at| trace.link(Link { correlation: Some(at), ..Link::default() }));
            let tid =
                place.tid.map(|tid| known.tids.get(&tid).copied().unwrap_or(tid.unsigned_abs()));
            let lane = trace.track(&pid.to_string(), &tid.unwrap_or_default().to_string());
            let passes = passes.bits(name, |_| None);
            let name = trace.name(name);
            add(trace, unended, times, Timed { lane, name, start: 0, end: 0, kind, passes, link });
        })?;
        base.check_size(trace)?;
        let more = columns(&[
            "kernel_id",
            "grid_size_x",
            "grid_size_y",
            "grid_size_z",
            "workgroup_size_x",
            "workgroup_size_y",
            "workgroup_size_z",
            "group_segment_size",
        ]);
        base.rows(&format!("{KERNELS}{suffix}"), &more, |row| {
            let common = known.common(row);
            let name = number(row, 11).and_then(|kernel| known.kernels.get(&kernel));
            let name = name.map_or("(a kernel without a name)", String::as_str);
            let device = common.place.agent.and_then(|agent| known.agents.get(&agent));
            let launch = blocks(size(row, 12), size(row, 15))
                .map(|(grid, block)| (grid, block, small(row, 18).unwrap_or_default()));
            let device = device.map_or(0, |&(number, _)| number);
            let link = Link { launch, device, ..common.link(calls) };
            work(trace, unended, &common, name, link);
        })?;
        base.check_size(trace)?;
        let more = columns(&["name_id", "dst_agent_id", "src_agent_id"]);
        base.rows(&format!("{COPIES}{suffix}"), &more, |row| {
            let common = known.common(row);
            let name = known.text(number(row, 11)).map_or("Memcpy (Unknown)", copy);
            // From or to a GPU.
            let device = known.gpu(number(row, 12)).or_else(|| known.gpu(number(row, 13)));
            let device = device.unwrap_or_default();
            let link = Link { device, ..common.link(calls) };
            work(trace, unended, &common, name, link);
        })?;
        base.check_size(trace)
    }

    /// What the rows of a process refer to.
    fn known(&mut self, suffix: &str) -> Result<Known, ImportError> {
        let Self { base, trace, devices, .. } = self;
        let mut known = Known::default();
        let table = |name: &str| format!("rocpd_{name}{suffix}");
        known.texts = base.texts(&table("string"), ["id", "string"])?;
        base.rows(&table("info_process"), &["id", "pid", "command"], |row| {
            if let (Some(id), Some(pid)) = (number(row, 0), count(row, 1)) {
                known.pids.insert(id, pid);
                // Not with its arguments, which may be secret.
                let command = text(row, 2).unwrap_or_default();
                let program = command.split_whitespace().next().unwrap_or_default();
                let program = program.rsplit('/').next().unwrap_or_default();
                if !program.is_empty() {
                    trace.processes.insert(pid.to_string(), format!("{program} ({pid})"));
                }
            }
        })?;
        base.rows(&table("info_thread"), &["id", "tid"], |row| {
            if let (Some(id), Some(tid)) = (number(row, 0), count(row, 1)) {
                known.tids.insert(id, tid);
            }
        })?;
        let columns = ["id", "type", "absolute_index", "product_name", "name"];
        base.rows(&table("info_agent"), &columns, |row| {
            let Some(id) = number(row, 0) else { return };
            let Some(device) = count(row, 2).or_else(|| u64::try_from(id).ok()) else { return };
            let is_gpu = text(row, 1).as_deref() == Some("GPU");
            known.agents.insert(id, (device, is_gpu));
            let name = [3, 4].into_iter().find_map(|at| text(row, at).filter(|of| !of.is_empty()));
            if let Some(name) = name.filter(|_| is_gpu) {
                devices.push(serde_json::json!({ "id": device, "name": name }));
            }
        })?;
        let columns = ["id", "display_name", "kernel_name"];
        base.rows(&table("info_kernel_symbol"), &columns, |row| {
            let name = [1, 2].into_iter().find_map(|at| text(row, at).filter(|of| !of.is_empty()));
            if let (Some(id), Some(name)) = (number(row, 0), name) {
                known.kernels.insert(id, name.into_owned());
            }
        })?;
        let columns = ["id", "stack_id", "category_id", "extdata"];
        base.rows(&table("event"), &columns, |row| {
            if let Some(id) = number(row, 0) {
                let message = text(row, 3).and_then(|text| message(&text));
                let (call, category) = (number(row, 1), number(row, 2));
                known.events.insert(id, Event { call, category, message });
            }
        })?;
        base.rows(&table("timestamp"), &["id", "value"], |row| {
            if let (Some(id), Some(time)) = (number(row, 0), number(row, 1)) {
                known.times.insert(id, time);
            }
        })?;
        let columns = ["id", "pid", "tid", "agent_id", "queue_id", "stream_id"];
        base.rows(&table("track"), &columns, |row| {
            if let Some(id) = number(row, 0) {
                known.tracks.insert(id, Place::of(row, 1));
            }
        })?;
        Ok(known)
    }
}

impl Common<'_> {
    /// What ties work of a device to its call, but for the device.
    fn link(&self, calls: &mut Calls) -> Link {
        let call = self.event.and_then(|event| event.call);
        // Versions without streams have the queue alone.
        let stream = self.place.stream.or(self.place.queue).unwrap_or_default();
        Link {
            correlation: call.and_then(|call| calls.number(self.pid, call)),
            stream: stream.unsigned_abs(),
            process: Some(self.pid),
            ..Link::default()
        }
    }
}

fn work(trace: &mut Trace, unended: &mut u64, common: &Common<'_>, name: &str, link: Link) {
    let lane = trace.track(&common.pid.to_string(), "0");
    let (name, link) = (trace.name(name), Some(trace.link(link)));
    let kind = EventKind::Work;
    let timed = Timed { lane, name, start: 0, end: 0, kind, passes: 0, link };
    add(trace, unended, common.times, timed);
}

fn size(row: &Row<'_>, x: usize) -> Option<Dimensions> {
    Some((small(row, x)?, small(row, x + 1)?, small(row, x + 2)?))
}

/// Blocks and the threads of each: the grid is in threads here.
fn blocks(grid: Option<Dimensions>, block: Option<Dimensions>) -> Option<(Dimensions, Dimensions)> {
    let ((x, y, z), (of_x, of_y, of_z)) = (grid?, block?);
    let blocks = |threads: u32, of: u32| threads.div_ceil(of.max(1));
    Some(((blocks(x, of_x), blocks(y, of_y), blocks(z, of_z)), (of_x, of_y, of_z)))
}

/// A copy as PyTorch's profiler calls it.
fn copy(name: &str) -> &str {
    match name.trim_start_matches("MEMORY_COPY_") {
        "HOST_TO_DEVICE" => "Memcpy HtoD",
        "DEVICE_TO_HOST" => "Memcpy DtoH",
        "DEVICE_TO_DEVICE" => "Memcpy DtoD",
        "HOST_TO_HOST" => "Memcpy HtoH",
        _ => name,
    }
}

/// The text of a marker, of `{"message": "prefill"}`.
fn message(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Marker {
        message: String,
    }
    // Most events have `{}`.
    let marker = json.contains("\"message\"").then(|| serde_json::from_str::<Marker>(json));
    marker?.ok().map(|marker| marker.message).filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_of_threads() {
        let of = |grid, block| blocks(Some(grid), Some(block));
        assert_eq!(of((1024, 3, 1), (256, 1, 1)), Some(((4, 3, 1), (256, 1, 1))));
        // The last one is not full.
        assert_eq!(of((1000, 1, 1), (256, 1, 1)), Some(((4, 1, 1), (256, 1, 1))));
        assert_eq!(of((8, 1, 1), (0, 0, 0)), Some(((8, 1, 1), (0, 0, 0))));
        assert_eq!(blocks(None, Some((1, 1, 1))), None);
    }

    #[test]
    fn copies_and_markers_have_their_names() {
        assert_eq!(copy("MEMORY_COPY_HOST_TO_DEVICE"), "Memcpy HtoD");
        assert_eq!(copy("DEVICE_TO_HOST"), "Memcpy DtoH");
        assert_eq!(copy("MEMORY_COPY_NONE"), "MEMORY_COPY_NONE");
        assert_eq!(message(r#"{"message": "prefill"}"#).as_deref(), Some("prefill"));
        for none in ["{}", "", r#"{"message": ""}"#, r#"{"message": 3}"#, "\"message\""] {
            assert_eq!(message(none), None, "{none}");
        }
    }
}
