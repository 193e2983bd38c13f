//! The SQLite export of Nsight Systems (`nsys export --type sqlite`).
//! <https://docs.nvidia.com/nsight-systems/UserGuide/index.html#exported-data-schemas>
//!
//! Times are nanoseconds from the start of the session. A kernel and the call that launched it have one
//! `correlationId`, which is unique in its process. Ranges of NVTX are what PyTorch's traces have as
//! operations, modules and ranges.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use brickscope_profile::Profile;
use rusqlite::Row;

use super::{Base, Calls, add, count, number, range_of, small, tell_streams_apart, text, word};
use crate::import::kineto::{self, EventKind, Link};
use crate::import::passes::Passes;
use crate::import::trace::{Timed, Trace};
use crate::import::{Format, ImportError, Options, lacks, left_out};

/// Kinds of events of NVTX: ranges of a thread, those that another thread may end, and marks; each also as
/// NVTX's own text format has them.
const PUSH_POP: [i64; 2] = [59, 70];
const START_END: [i64; 2] = [60, 71];
const MARKS: [i64; 2] = [34, 65];

/// What copies are, by the `copyKind` of CUPTI.
static COPIES: [&str; 14] = [
    "(Unknown)",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "unified HtoD",
    "unified DtoH",
    "unified DtoD",
];

/// What the numbers of several processes and threads are in one: the process has 24 bits, and so has the
/// thread.
fn process(global: u64) -> u64 {
    global >> 24
}

fn low_24(number: u64) -> u64 {
    number & 0xff_ffff
}

/// Which GPU a process means by the number of a device: another one, where each process sees a GPU of its
/// own.
#[derive(Default)]
struct Devices {
    of_process: HashMap<(u64, u64), u64>,
    /// If all processes mean the same by it.
    of_all: HashMap<u64, Option<u64>>,
}

impl Devices {
    fn number(&self, pid: u64, device: u64) -> u64 {
        let of_all = || self.of_all.get(&device).copied().flatten();
        self.of_process.get(&(pid, device)).copied().or_else(of_all).unwrap_or(device)
    }
}

/// The tracks of threads, as they are met.
#[derive(Default)]
struct Threads {
    names: HashMap<u64, String>,
    lanes: HashMap<u64, u32>,
}

impl Threads {
    fn lane(&mut self, trace: &mut Trace, global: u64) -> u32 {
        if let Some(&lane) = self.lanes.get(&global) {
            return lane;
        }
        let (pid, tid) = (low_24(process(global)), low_24(global));
        let lane = trace.track(&pid.to_string(), &tid.to_string());
        if let Some(track) = trace.tracks.get_mut(lane as usize) {
            track.name = self.names.get(&global).cloned();
        }
        self.lanes.insert(global, lane);
        lane
    }
}

/// What is left out, by why.
#[derive(Default)]
struct Left {
    unended: u64,
    /// Ranges of NVTX that another thread ended, or that don't nest.
    crossing: u64,
    /// Graphs that were recorded as a whole.
    graphs: u64,
}

struct Reader<'b, 'a> {
    base: &'b mut Base<'a>,
    trace: Trace,
    texts: HashMap<i64, String>,
    calls: Calls,
    threads: Threads,
    devices: Devices,
    passes: Passes,
    left: Left,
    /// Indices of events that needn't nest in their thread.
    loose: Vec<usize>,
}

pub(super) fn read(base: &mut Base<'_>, options: &Options) -> Result<Profile, ImportError> {
    let at = base.at;
    options.check(Format::Nsight, at)?;
    let table = kineto::table(options)?;
    let texts = base.texts("StringIds", ["id", "value"])?;
    let mut reader = Reader {
        base,
        trace: Trace::default(),
        texts,
        calls: Calls::default(),
        threads: Threads::default(),
        devices: Devices::default(),
        passes: Passes::of(options),
        left: Left::default(),
        loose: Vec::new(),
    };
    reader.target()?;
    // Of events that begin and end together the outer one comes last.
    for calls in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
        reader.calls(calls)?;
    }
    reader.ranges()?;
    reader.kernels()?;
    reader.copies()?;
    reader.graphs()?;
    let program = reader.program()?;
    let Reader { base, mut trace, passes, mut left, loose, .. } = reader;
    base.check(
        &trace,
        "has no kernel, call or range with a begin and an end: `nsys profile --trace=cuda,nvtx` records them",
    )?;
    left.crossing += drop_crossing(&mut trace.timed, &loose);
    tell_streams_apart(&mut trace);
    passes.choose(&mut trace, at, true)?;
    let writer = kineto::Writer { format: Format::Nsight, program };
    let mut profile = kineto::profile(&mut trace, at, &table, writer)?;
    left_out(&mut profile, "events that have no begin or no end", left.unended);
    let why = "ranges of NVTX that don't nest in their thread, or end in another one";
    left_out(&mut profile, why, left.crossing);
    base.note_damage(&mut profile);
    if left.graphs > 0 {
        let why = format!(
            "kernels of CUDA graphs: {} were recorded as a whole; `nsys profile --cuda-graph-trace=node` \
             records their kernels",
            left.graphs
        );
        lacks(&mut profile, &[&why]);
    }
    Ok(profile)
}

impl Reader<'_, '_> {
    /// The machine: its processes, threads and devices, and when the session began.
    fn target(&mut self) -> Result<(), ImportError> {
        let Self { base, trace, texts, threads, devices, .. } = self;
        base.rows("PROCESSES", &["pid", "name", "globalPid"], |row| {
            let of_global = || count(row, 2).map(|global| low_24(process(global)));
            if let (Some(pid), Some(name)) = (count(row, 0).or_else(of_global), text(row, 1)) {
                // Most of them are called alike.
                trace.processes.insert(pid.to_string(), format!("{name} ({pid})"));
            }
        })?;
        base.rows("ThreadNames", &["globalTid", "nameId", "name"], |row| {
            let name = word(row, 1, texts).or_else(|| text(row, 2));
            if let (Some(global), Some(name)) = (count(row, 0), name) {
                threads.names.insert(global, name.into_owned());
            }
        })?;
        base.rows("TARGET_INFO_CUDA_DEVICE", &["pid", "cudaId", "gpuId"], |row| {
            if let (Some(cuda), Some(gpu)) = (count(row, 1), count(row, 2)) {
                if let Some(pid) = count(row, 0) {
                    devices.of_process.insert((pid, cuda), gpu);
                }
                let of_all = devices.of_all.entry(cuda).or_insert(Some(gpu));
                *of_all = of_all.filter(|&other| other == gpu);
            }
        })?;
        let mut properties = Vec::new();
        let is_told = !devices.of_all.is_empty();
        base.rows("TARGET_INFO_GPU", &["id", "name", "cuDevice"], |row| {
            let cuda = count(row, 2).filter(|_| !is_told);
            if let (Some(id), Some(name)) = (cuda.or_else(|| count(row, 0)), text(row, 1)) {
                properties.push(serde_json::json!({ "id": id, "name": name }));
            }
        })?;
        let mut about =
            vec![("deviceProperties".to_owned(), serde_json::Value::from(properties).to_string())];
        base.rows("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |row| {
            if let (Some("CudaDriverVersion"), Some(version)) =
                (text(row, 0).as_deref(), text(row, 1))
            {
                about.push(("cuda_driver_version".to_owned(), version.into_owned()));
            }
        })?;
        base.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| {
            if let Some(began) = count(row, 0) {
                about.push(("baseTimeNanoseconds".to_owned(), began.to_string()));
            }
        })?;
        trace.about = about;
        Ok(())
    }

    /// What exported the file.
    fn program(&mut self) -> Result<String, ImportError> {
        let (mut name, mut version) = ("Nsight Systems".to_owned(), String::new());
        self.base.rows("META_DATA_EXPORT", &["name", "value"], |row| {
            match (text(row, 0).as_deref(), text(row, 1)) {
                (Some("EXPORT_PRODUCT_NAME"), Some(is)) => {
                    name = is.trim_start_matches("NVIDIA ").to_owned();
                }
                (Some("EXPORT_PRODUCT_VERSION"), Some(is)) => version = format!(" {is}"),
                _ => {}
            }
        })?;
        Ok(name + &version)
    }

    /// Calls of the runtime or the driver.
    fn calls(&mut self, table: &str) -> Result<(), ImportError> {
        let Self { base, trace, texts, calls, threads, passes, left, .. } = self;
        let mut names: HashMap<i64, (u32, u8)> = HashMap::new();
        let columns =
            ["start", "end", "globalTid", "correlationId", "nameId", "name", "returnValue"];
        base.rows(table, &columns, |row| {
            let global = count(row, 2).unwrap_or_default();
            let known = number(row, 4).and_then(|id| names.get(&id).copied());
            let (name, bits) = known.unwrap_or_else(|| {
                let name = word(row, 4, texts).or_else(|| text(row, 5));
                let name = name.as_deref().map_or("(a call without a name)", without_version);
                let of_name = (trace.name(name), passes.bits(name, |_| None));
                if let Some(id) = number(row, 4) {
                    names.insert(id, of_name);
                }
                of_name
            });
            let correlation = number(row, 3)
                // One that failed launched nothing.
                .filter(|_| number(row, 6).unwrap_or_default() == 0)
                .and_then(|number| calls.number(process(global), number));
            let link =
                correlation.map(|at| trace.link(Link { correlation: Some(at), ..Link::default() }));
            let lane = threads.lane(trace, global);
            let timed = Timed { name, passes: bits, link, ..blank(lane, EventKind::Call) };
            add(trace, &mut left.unended, (number(row, 0), number(row, 1)), timed);
        })?;
        base.check_size(trace)
    }

    /// Ranges of NVTX.
    fn ranges(&mut self) -> Result<(), ImportError> {
        let Self { base, trace, texts, threads, passes, left, loose, .. } = self;
        let columns = ["start", "end", "globalTid", "eventType", "text", "textId", "endGlobalTid"];
        base.rows("NVTX_EVENTS", &columns, |row| {
            // Old tables have ranges alone.
            let kind = number(row, 3).unwrap_or(PUSH_POP[0]);
            let is_loose = START_END.contains(&kind);
            if MARKS.contains(&kind) {
                trace.left_out.instants += 1;
            }
            if !is_loose && !PUSH_POP.contains(&kind) {
                return;
            }
            let global = count(row, 2).unwrap_or_default();
            if is_loose && count(row, 6).is_some_and(|end| end != global) {
                left.crossing += 1;
                return;
            }
            let name = text(row, 4).filter(|text| !text.is_empty());
            let name = name.or_else(|| word(row, 5, texts));
            let Some((name, kind)) =
                range_of(name.as_deref().unwrap_or("(a range without a name)"))
            else {
                trace.left_out.instants += 1;
                return;
            };
            let bits = passes.bits(name, |_| None);
            let name = trace.name(name);
            let lane = threads.lane(trace, global);
            let at = trace.timed.len();
            let timed = Timed { name, passes: bits, ..blank(lane, kind) };
            add(trace, &mut left.unended, (number(row, 0), number(row, 1)), timed);
            if is_loose && trace.timed.len() > at {
                loose.push(at);
            }
        })?;
        base.check_size(trace)
    }

    fn kernels(&mut self) -> Result<(), ImportError> {
        const COLUMNS: [&str; 20] = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "demangledName",
            "shortName",
            "mangledName",
            "name",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ];
        let mut names: HashMap<i64, u32> = HashMap::new();
        self.work("CUPTI_ACTIVITY_KIND_KERNEL", &COLUMNS, |row, link, texts, trace| {
            let size = |x: usize| Some((small(row, x)?, small(row, x + 1)?, small(row, x + 2)?));
            let shared = |at: usize| small(row, at).unwrap_or_default();
            let shared = shared(18).saturating_add(shared(19));
            link.launch = size(12).zip(size(15)).map(|(grid, block)| (grid, block, shared));
            if let Some(&name) = number(row, 8).and_then(|id| names.get(&id)) {
                return name;
            }
            let name = [8, 9, 10].into_iter().find_map(|at| word(row, at, texts));
            let name = name.or_else(|| text(row, 11));
            let is_named = name.is_some();
            let name = trace.name(name.as_deref().unwrap_or("(a kernel without a name)"));
            if let Some(id) = number(row, 8).filter(|_| is_named) {
                names.insert(id, name);
            }
            name
        })
    }

    /// Copies, and what sets memory, with the names that PyTorch's profiler has for them.
    fn copies(&mut self) -> Result<(), ImportError> {
        // Which numbers they have depends on the version, so that without this table nothing is known of
        // them.
        let memories = self.base.texts("ENUM_CUDA_MEM_KIND", ["id", "label"])?;
        const COLUMNS: [&str; 12] = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "copyKind",
            "srcKind",
            "dstKind",
            "bytes",
        ];
        self.work("CUPTI_ACTIVITY_KIND_MEMCPY", &COLUMNS, |row, link, _, trace| {
            link.bytes = count(row, 11);
            let kind = number(row, 8).and_then(|kind| COPIES.get(usize::try_from(kind).ok()?));
            let kind = kind.unwrap_or(&COPIES[0]);
            let memory = |at: usize| memories.get(&number(row, at)?);
            trace.name(&match (memory(9), memory(10)) {
                (Some(from), Some(to)) => format!("Memcpy {kind} ({from} -> {to})"),
                _ => format!("Memcpy {kind}"),
            })
        })?;
        let columns = [&COLUMNS[..8], &["memKind"]].concat();
        self.work("CUPTI_ACTIVITY_KIND_MEMSET", &columns, |row, _, _, trace| {
            let memory = number(row, 8).and_then(|kind| memories.get(&kind));
            let memory = memory.map_or("Unknown", String::as_str);
            trace.name(&format!("Memset ({memory})"))
        })
    }

    /// Graphs that were recorded as a whole.
    fn graphs(&mut self) -> Result<(), ImportError> {
        const COLUMNS: [&str; 9] = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "graphExecId",
        ];
        let mut graphs = 0;
        self.work("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &COLUMNS, |row, link, _, trace| {
            graphs += 1;
            let graph = link.graph.or_else(|| count(row, 8));
            let graph = graph.map_or(String::new(), |graph| format!(" {graph}"));
            trace.name(&format!("CUDA graph{graph} (its kernels were not recorded)"))
        })?;
        self.left.graphs += graphs;
        Ok(())
    }

    /// Work of devices: a table whose first columns are those of [`kernels`](Self::kernels). `name` gives its
    /// name, and adds to its link.
    fn work(
        &mut self,
        table: &str,
        columns: &[&str],
        mut name: impl FnMut(&Row<'_>, &mut Link, &HashMap<i64, String>, &mut Trace) -> u32,
    ) -> Result<(), ImportError> {
        let Self { base, trace, texts, calls, threads, devices, left, .. } = self;
        // Old tables don't say whose a kernel is.
        let only = calls.only();
        base.rows(table, columns, |row| {
            let global = count(row, 5);
            let of = global.map(process).or(only);
            let pid = low_24(of.unwrap_or_default());
            let device = count(row, 2).unwrap_or_default();
            let mut link = Link {
                correlation: of
                    .and_then(|of| number(row, 4).and_then(|number| calls.number(of, number))),
                device: devices.number(pid, device),
                stream: count(row, 3).unwrap_or_default(),
                process: Some(pid),
                graph_node: count(row, 6).filter(|&node| node > 0),
                graph: count(row, 7).filter(|&graph| graph > 0),
                ..Link::default()
            };
            let name = name(row, &mut link, texts, trace);
            let link = Some(trace.link(link));
            let lane = threads.lane(trace, of.unwrap_or_default() << 24);
            let timed = Timed { name, link, ..blank(lane, EventKind::Work) };
            add(trace, &mut left.unended, (number(row, 0), number(row, 1)), timed);
        })?;
        base.check_size(trace)
    }
}

/// An event without name and times.
fn blank(lane: u32, kind: EventKind) -> Timed {
    Timed { lane, name: 0, start: 0, end: 0, kind, passes: 0, link: None }
}

/// `cudaLaunchKernel` of `cudaLaunchKernel_ptsz_v7000`: which version of CUDA's API brought it is no part of
/// its name, nor which thread's default stream it means. `cuMemAlloc_v2` is a name.
fn without_version(name: &str) -> &str {
    let name = match name.rsplit_once("_v") {
        Some((name, version)) if version.len() >= 4 && version.parse::<u32>().is_ok() => name,
        _ => name,
    };
    let name = name.strip_suffix("_ptsz").unwrap_or(name);
    name.strip_suffix("_ptds").unwrap_or(name)
}

/// Removes those of the `loose` events that cross another one of their thread, and returns how many they are:
/// the others are begun and ended in turn, so they nest.
fn drop_crossing(timed: &mut Vec<Timed>, loose: &[usize]) -> u64 {
    if loose.is_empty() {
        return 0;
    }
    let lanes: HashSet<u32> =
        loose.iter().filter_map(|&at| timed.get(at)).map(|event| event.lane).collect();
    let loose: HashSet<usize> = loose.iter().copied().collect();
    let mut order: Vec<usize> = (0..timed.len())
        .filter(|&at| !timed[at].kind.is_of_device() && lanes.contains(&timed[at].lane))
        .collect();
    order.sort_by_key(|&at| (timed[at].lane, timed[at].start, Reverse(timed[at].end), Reverse(at)));
    let mut dropped: HashSet<usize> = HashSet::new();
    let mut stack: Vec<usize> = Vec::new();
    for at in order {
        let event = timed[at];
        if stack.last().is_some_and(|&around| timed[around].lane != event.lane) {
            stack.clear();
        }
        while stack.pop_if(|around| timed[*around].end <= event.start).is_some() {}
        let mut is_kept = true;
        while let Some(&around) = stack.last()
            && timed[around].end < event.end
        {
            if loose.contains(&around) {
                dropped.insert(around);
                stack.pop();
            } else {
                is_kept = !loose.contains(&at);
                break;
            }
        }
        if is_kept {
            stack.push(at);
        } else {
            dropped.insert(at);
        }
    }
    let mut at = 0_usize;
    timed.retain(|_| {
        at += 1;
        !dropped.contains(&(at - 1))
    });
    dropped.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_no_part_of_a_name() {
        for (name, is) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaGraphLaunch_ptsz_v10000", "cudaGraphLaunch"),
            ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2"),
            ("cuLaunchKernel", "cuLaunchKernel"),
            ("_v1234", ""),
            ("", ""),
        ] {
            assert_eq!(without_version(name), is);
        }
    }

    #[test]
    fn what_crosses_is_dropped_and_all_else_stays() {
        let timed =
            |lane: u32, start: i64, end: i64| Timed { start, end, ..blank(lane, EventKind::Range) };
        // Those of lane 0 from 10 to 50 and from 60 to 100 nest; loose are the second, which crosses the
        // third, the fourth, which goes around all, and the last, whose thread has nothing else.
        let all = [
            timed(0, 10, 50),
            timed(0, 20, 70),
            timed(0, 60, 100),
            timed(0, 0, 200),
            timed(0, 30, 40),
            timed(1, 20, 70),
        ];
        let mut kept = all.to_vec();
        assert_eq!(drop_crossing(&mut kept, &[1, 3, 5]), 1);
        let times: Vec<(i64, i64)> = kept.iter().map(|event| (event.start, event.end)).collect();
        assert_eq!(times, [(10, 50), (60, 100), (0, 200), (30, 40), (20, 70)]);
        // Of two that cross each other, one stays.
        let mut two = vec![timed(0, 0, 50), timed(0, 20, 70)];
        assert_eq!(drop_crossing(&mut two, &[0, 1]), 1);
        // One that was begun first and ends within another.
        let mut late = vec![timed(0, 0, 50), timed(0, 20, 70)];
        assert_eq!(drop_crossing(&mut late, &[0]), 1);
        assert_eq!((late[0].start, late[0].end), (20, 70));
    }

    #[test]
    fn a_process_may_have_numbers_of_its_own_for_devices() {
        let mut devices = Devices::default();
        devices.of_process.extend([((1, 0), 5), ((2, 0), 6)]);
        devices.of_all.extend([(0, None), (1, Some(6))]);
        let number = |pid, device| devices.number(pid, device);
        assert_eq!((number(1, 0), number(2, 0)), (5, 6));
        assert_eq!((number(3, 0), number(3, 1), number(3, 2)), (0, 6, 2));
    }
}
