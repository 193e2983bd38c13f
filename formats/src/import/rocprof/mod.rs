//! Results of AMD's rocprofv3 as JSON (`--output-format json`): for each process its agents, the names of
//! kernels and calls, and then what host and devices did, in nanoseconds of one clock.
//! <https://github.com/ROCm/rocprofiler-sdk/blob/amd-mainline/source/lib/output/generateJSON.cpp>
//!
//! Records are read one by one and become the events of a [`Trace`], of which `kineto/` makes a profile. A
//! kernel has the number (`correlation_id`) of the call that launched it. `csv.rs` reads the table of
//! kernels.

mod csv;
mod records;
mod walk;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use brickscope_profile::Profile;
use serde::Serialize;
use serde::de::DeserializeSeed as _;
use serde_json::value::RawValue;

use self::records::{Agent, Call, Copied, Dispatch, Handle, Kind, Message, Metadata, Symbol};
use self::walk::{Array, Level, Walk};
use super::kineto::{self, EventKind, Link};
use super::passes::Passes;
use super::trace::{MOST_EVENTS, Timed, Trace};
use super::{At, Format, ImportError, Options, left_out};

/// The first key of a file.
const TOOL: &str = "rocprofiler-sdk-tool";

/// What an agent of the type GPU has as its `type`.
const GPU: u64 = 2;

/// Numbers of calls are below this one, so that those of several processes can be told apart.
const MOST_CALLS: u64 = 1 << 48;

/// Whether a text begins as a file of rocprofv3 does: its JSON, or its table of kernels.
pub(super) fn is_it(text: &str) -> bool {
    let json = text.strip_prefix('{').map(str::trim_start);
    let key = json.and_then(|json| json.strip_prefix('"')?.strip_prefix(TOOL));
    key.is_some_and(|rest| rest.starts_with('"')) || csv::is_it(text)
}

pub(super) fn read(text: &str, at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    let table = kineto::table(options)?;
    let mut reader = Reader { passes: Passes::of(options), ..Reader::default() };
    let mut breaks_off = 0;
    match text.trim_start().starts_with(['{', '[']) {
        true => breaks_off = reader.json(text, at)?,
        false => csv::read(text, at, &mut reader.trace)?,
    }
    if reader.trace.timed.is_empty() {
        if let Some((record, fault)) = reader.trace.fault.take() {
            return Err(at.place(format!("record {record}"), fault));
        }
        let has = match reader.counters {
            0 => "has no kernel, copy, call or range with times",
            _ => "has counters of kernels, and not when they ran",
        };
        return Err(at.whole(format!(
            "{has}: record with `rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format json`"
        )));
    }
    reader.passes.choose(&mut reader.trace, at, true)?;
    reader.describe_devices();
    let writer = kineto::Writer { format: Format::Rocprof, program: "rocprofv3".to_owned() };
    let mut profile = kineto::profile(&mut reader.trace, at, &table, writer)?;
    super::breaks_off(&mut profile, "the rest of the file, which is truncated", breaks_off);
    for (why, count) in [
        ("kernels with counters, of which only the counters are stated there", reader.counters),
        ("samples of program counters", reader.samples),
        ("copies within the host's memory", reader.host_copies),
        ("records of other kinds, such as allocations of memory", reader.others),
    ] {
        left_out(&mut profile, why, count);
    }
    if let Some(imported) = profile.imported.as_mut().filter(|_| reader.counters > 0) {
        let why = "counters were collected: for that, kernels run one after the other, and so longer as a whole";
        imported.doubts.push(why.to_owned());
    }
    Ok(profile)
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    passes: Passes,
    records: usize,
    is_full: bool,
    process: Process,
    /// How many processes there were.
    processes: u64,
    pids: HashSet<String>,
    /// The numbers of devices, by their host and their number there.
    devices: HashMap<(String, u64), u64>,
    device_names: BTreeMap<u64, String>,
    /// By process, device and number: the number here.
    streams: HashMap<(u64, u64, u64), u64>,
    taken: HashSet<(u64, u64)>,
    last_stream: u64,
    counters: u64,
    samples: u64,
    host_copies: u64,
    others: u64,
}

/// The process that is being read.
#[derive(Default)]
struct Process {
    pid: String,
    host: String,
    is_by_queue: bool,
    /// Those that are GPUs.
    agents: Vec<Agent>,
    gpus: HashSet<u64>,
    /// The numbers of devices, by the handles of their agents.
    devices: HashMap<u64, u64>,
    kernels: HashMap<u64, String>,
    /// The names of calls, by the number of their kind.
    kinds: Vec<Kind>,
    /// The names of ranges, by the number of the call.
    messages: HashMap<u64, String>,
    work: Vec<Work>,
    calls: Vec<Called>,
}

/// What a device did, until it is known what its number of a call stands for.
struct Work {
    /// An index into the trace's links.
    link: u32,
    correlation: u64,
    agent: Handle,
    queue: Option<u64>,
    stream: Option<u64>,
    launch: Option<Launch>,
}

/// Blocks and their threads, and bytes of shared memory.
type Launch = ((u32, u32, u32), (u32, u32, u32), u32);

/// A call of HIP or, inside of one, of HSA.
struct Called {
    lane: u32,
    start: i64,
    end: i64,
    correlation: u64,
    is_hsa: bool,
}

impl Process {
    fn has_names(&self) -> bool {
        !self.kernels.is_empty() || !self.kinds.is_empty()
    }

    /// The names of a call's kind and of the call.
    fn operation(&self, kind: u64, operation: u64) -> Option<(&str, &str)> {
        let kind = self.kinds.get(usize::try_from(kind).ok()?)?;
        let operation = kind.operations.get(usize::try_from(operation).ok()?)?;
        Some((&kind.kind, operation))
    }

    /// For calls of HSA inside of calls of HIP, the numbers of these: a kernel has the number of the
    /// innermost call.
    fn outer_calls(&mut self) -> HashMap<u64, u64> {
        let mut outer = HashMap::new();
        if !self.calls.iter().any(|call| call.is_hsa) {
            return outer;
        }
        self.calls.sort_by_key(|call| (call.lane, call.start, Reverse(call.end)));
        let mut around: Vec<&Called> = Vec::new();
        for call in &self.calls {
            while around.pop_if(|hip| hip.lane != call.lane || hip.end <= call.start).is_some() {}
            match around.last().copied().filter(|hip| call.is_hsa && hip.end >= call.end) {
                Some(hip) => {
                    outer.insert(call.correlation, hip.correlation);
                }
                None if call.is_hsa => {}
                None => around.push(call),
            }
        }
        outer
    }
}

impl Reader {
    /// Reads JSON. Returns how many times it breaks off.
    fn json(&mut self, text: &str, at: &At<'_>) -> Result<u64, ImportError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let read = Walk(&mut *self, Level::File).deserialize(&mut json).and_then(|()| json.end());
        let Err(error) = read else { return Ok(0) };
        if self.is_full {
            return Err(at.whole(format!("there are more than {MOST_EVENTS} records")));
        }
        if error.is_eof() {
            self.end_process();
        }
        if !error.is_eof() || self.trace.timed.is_empty() {
            return Err(at.json(&error));
        }
        Ok(1)
    }

    fn begin_process(&mut self) {
        self.processes += 1;
        let pid = format!("number {}", self.processes);
        self.process = Process { pid, ..Process::default() };
    }

    fn metadata(&mut self, value: &RawValue) {
        let Ok(Metadata { pid, command, node, config }) = serde_json::from_str(value.get()) else {
            return;
        };
        let mut text = pid.to_string();
        // On two hosts, two processes may have one number.
        if !self.pids.insert(text.clone()) {
            text = format!("{pid}, number {}", self.processes);
        }
        if let Some(program) = command.first() {
            let program = program.rsplit('/').next().unwrap_or(program);
            self.trace.processes.insert(text.clone(), format!("{program} {pid}"));
        }
        self.process.pid = text;
        self.process.host = node.machine_id + "\n" + &node.hostname;
        self.process.is_by_queue = config.group_by_queue;
    }

    /// Reads an element of an array. One that can't be read says nothing against the others.
    fn element(&mut self, array: Array, element: &RawValue) {
        let text = element.get();
        let read = match array {
            // It keeps its place, since its place is its number.
            Array::Kinds => {
                self.process.kinds.push(serde_json::from_str(text).unwrap_or_default());
                return;
            }
            Array::Agents | Array::Messages | Array::Symbols => {
                let _ = self.name(array, text);
                return;
            }
            Array::Counters => {
                self.counters += 1;
                return;
            }
            Array::Samples => {
                self.samples += 1;
                return;
            }
            Array::Others => {
                self.others += 1;
                return;
            }
            Array::Dispatches => self.dispatch(text),
            Array::Copies => self.copy(text),
            Array::Hip => self.call(text, EventKind::Call, false),
            Array::Hsa => self.call(text, EventKind::Call, true),
            Array::Rccl => self.call(text, EventKind::Op, false),
            Array::Markers => self.marker(text),
        };
        self.records += 1;
        if let Err(error) = read {
            let fault = error.to_string();
            let fault = fault.split(" at line ").next().unwrap_or_default().to_owned();
            self.trace.left_out.odd += 1;
            self.trace.fault.get_or_insert((self.records, fault));
        }
        self.is_full = self.trace.timed.len() > MOST_EVENTS;
    }

    /// Reads what names something.
    fn name(&mut self, array: Array, text: &str) -> serde_json::Result<()> {
        match array {
            Array::Agents => {
                let agent = serde_json::from_str::<Agent>(text)?;
                if agent.kind == GPU {
                    self.process.gpus.insert(agent.id.handle);
                    self.process.agents.push(agent);
                }
            }
            Array::Messages => {
                let Message { key, value } = serde_json::from_str(text)?;
                self.process.messages.insert(key, value);
            }
            _ => {
                let symbol = serde_json::from_str::<Symbol>(text)?;
                let names = [
                    // As rocprofv3's own tables have it.
                    symbol.formatted_kernel_name,
                    symbol.demangled_kernel_name,
                    symbol.kernel_name,
                ];
                if let Some(name) = names.into_iter().find(|name| !name.is_empty()) {
                    self.process.kernels.insert(symbol.kernel_id, name);
                }
            }
        }
        Ok(())
    }

    fn number_device(&mut self, agent: Agent) {
        let place = agent.logical_node_type_id.and_then(|number| u64::try_from(number).ok());
        let place = place.unwrap_or(agent.node_id);
        let key = (self.process.host.clone(), place);
        let device = match self.devices.get(&key) {
            Some(&device) => device,
            // Another host has a device of this number.
            None if self.device_names.contains_key(&place) => self.free_device(),
            None => place,
        };
        self.devices.insert(key, device);
        self.process.devices.insert(agent.id.handle, device);
        let names = [agent.product_name, agent.name];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        self.device_names.insert(device, name);
    }

    fn free_device(&self) -> u64 {
        let last = self.device_names.last_key_value().map(|(&last, _)| last);
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// The number of a device.
    fn device(&mut self, agent: Handle) -> u64 {
        if let Some(&device) = self.process.devices.get(&agent.handle) {
            return device;
        }
        // An agent that isn't listed.
        let device = self.free_device();
        self.device_names.insert(device, String::new());
        self.process.devices.insert(agent.handle, device);
        device
    }

    /// The number of a stream. Two processes may have a stream of the same number on one device.
    fn stream(&mut self, device: u64, number: u64) -> u64 {
        let key = (self.processes, device, number);
        if let Some(&stream) = self.streams.get(&key) {
            return stream;
        }
        let mut stream = number;
        if !self.taken.insert((device, stream)) {
            stream = self.last_stream.saturating_add(1);
            self.taken.insert((device, stream));
        }
        self.last_stream = self.last_stream.max(stream);
        self.streams.insert(key, stream);
        stream
    }

    fn dispatch(&mut self, text: &str) -> serde_json::Result<()> {
        let dispatch = serde_json::from_str::<Dispatch>(text)?;
        let info = dispatch.dispatch_info;
        let name = match self.process.kernels.get(&info.kernel_id) {
            Some(name) => self.trace.name(name),
            None => self.trace.name(&format!("kernel {}, whose name isn't stated", info.kernel_id)),
        };
        let shared = u32::try_from(info.group_segment_size).unwrap_or_default();
        let sizes = info.grid_size.zip(info.workgroup_size);
        let work = Work {
            link: 0,
            correlation: dispatch.correlation_id.internal,
            agent: info.agent_id,
            queue: Some(info.queue_id.handle),
            stream: dispatch.stream_id.map(|stream| stream.handle),
            launch: sizes.and_then(|(grid, block)| {
                Some((grid.in_blocks(&block)?, (block.x, block.y, block.z), shared))
            }),
        };
        self.work(work, name, dispatch.start_timestamp, dispatch.end_timestamp);
        Ok(())
    }

    fn copy(&mut self, text: &str) -> serde_json::Result<()> {
        let copy = serde_json::from_str::<Copied>(text)?;
        let operation = self.process.operation(copy.kind, copy.operation);
        let direction = operation.map_or("", |(_, name)| name);
        let is_device = |agent: Handle| self.process.gpus.contains(&agent.handle);
        let (name, agent) = match direction.strip_prefix("MEMORY_COPY_").unwrap_or(direction) {
            "HOST_TO_DEVICE" => ("Memcpy HtoD (Host -> Device)", Some(copy.dst_agent_id)),
            "DEVICE_TO_HOST" => ("Memcpy DtoH (Device -> Host)", Some(copy.src_agent_id)),
            "DEVICE_TO_DEVICE" => ("Memcpy DtoD (Device -> Device)", Some(copy.src_agent_id)),
            "HOST_TO_HOST" => ("", None),
            _ => {
                let agents = [copy.dst_agent_id, copy.src_agent_id];
                ("Memcpy (direction not stated)", agents.into_iter().find(|of| is_device(*of)))
            }
        };
        let Some(agent) = agent else {
            self.host_copies += 1;
            return Ok(());
        };
        let name = self.trace.name(name);
        let work = Work {
            link: 0,
            correlation: copy.correlation_id.internal,
            agent,
            queue: None,
            stream: copy.stream_id.map(|stream| stream.handle),
            launch: None,
        };
        self.work(work, name, copy.start_timestamp, copy.end_timestamp);
        Ok(())
    }

    fn work(&mut self, mut work: Work, name: u32, start: i64, end: i64) {
        let lane = self.trace.track(&self.process.pid, "devices");
        work.link = self.trace.link(Link::default());
        let link = Some(work.link);
        self.process.work.push(work);
        let kind = EventKind::Work;
        self.trace.span(Timed { lane, name, start, end, kind, passes: 0, link });
    }

    fn call(&mut self, text: &str, kind: EventKind, is_hsa: bool) -> serde_json::Result<()> {
        let call = serde_json::from_str::<Call>(text)?;
        let unnamed;
        let name = match self.process.operation(call.kind, call.operation) {
            Some((_, name)) => name,
            None => {
                unnamed = format!("call {}.{}, whose name isn't stated", call.kind, call.operation);
                unnamed.as_str()
            }
        };
        let passes = self.passes.bits(name, |_| None);
        let name = self.trace.name(name);
        let lane = self.trace.track(&self.process.pid, &call.thread_id.to_string());
        let (start, end) = (call.start_timestamp, call.end_timestamp);
        let mut link = None;
        if kind == EventKind::Call {
            let correlation = call.correlation_id.internal;
            self.process.calls.push(Called { lane, start, end, correlation, is_hsa });
            let of_file = self.number_of_call(correlation);
            link = Some(self.trace.link(Link::default().called(of_file)));
        }
        self.trace.span(Timed { lane, name, start, end, kind, passes, link });
        Ok(())
    }

    /// A number of a call, of which each process has its own; 0 is none.
    fn number_of_call(&self, correlation: u64) -> u64 {
        let process = self.processes.saturating_sub(1);
        match correlation < MOST_CALLS && process < 1 << 15 {
            true if correlation > 0 => (process << 48) | correlation,
            _ => 0,
        }
    }

    fn marker(&mut self, text: &str) -> serde_json::Result<()> {
        let call = serde_json::from_str::<Call>(text)?;
        let operation = self.process.operation(call.kind, call.operation);
        let (kind, operation) = operation.unwrap_or_default();
        let message = self.process.messages.get(&call.correlation_id.internal);
        // Calls of pairs (`roctxRangePushA` and its `roctxRangePop`), and what they are called in newer
        // files.
        let is_of_thread = operation.contains("RangeP") || operation.contains("ThreadRange");
        let is_of_process = operation.contains("ProcessRange")
            || operation.contains("RangeStart")
            || operation.contains("RangeStop");
        let is_range = kind.starts_with("MARKER_CORE") && (is_of_thread || is_of_process);
        let Some(name) = message.filter(|_| is_range) else {
            match operation.starts_with("roctxMark") {
                true => self.trace.left_out.instants += 1,
                false => self.others += 1,
            }
            return Ok(());
        };
        let passes = self.passes.bits(name, |_| None);
        let name = self.trace.name(name);
        // Those that another thread may end nest in no thread.
        let lane = match is_of_process {
            true => self.trace.track(&self.process.pid, "ranges of the process"),
            false => self.trace.track(&self.process.pid, &call.thread_id.to_string()),
        };
        let (start, end) = (call.start_timestamp, call.end_timestamp);
        let kind = EventKind::Range;
        self.trace.span(Timed { lane, name, start, end, kind, passes, link: None });
        Ok(())
    }

    /// Ties the work of devices to calls, now that all of them are known.
    fn end_process(&mut self) {
        let mut process = std::mem::take(&mut self.process);
        let outer = process.outer_calls();
        self.process.host = std::mem::take(&mut process.host);
        for agent in std::mem::take(&mut process.agents) {
            self.number_device(agent);
        }
        // Versions that don't know streams state none, or 0 for all.
        let states_streams = process.work.iter().any(|work| work.stream.is_some_and(|of| of > 0));
        let queues: HashSet<u64> = process.work.iter().filter_map(|work| work.queue).collect();
        let is_by_queue = process.is_by_queue || !states_streams && queues.len() > 1;
        for work in process.work {
            let number = match is_by_queue {
                true => work.queue.or(work.stream),
                false => work.stream.or(work.queue),
            };
            let correlation = outer.get(&work.correlation).copied().unwrap_or(work.correlation);
            let correlation = self.number_of_call(correlation);
            let device = self.device(work.agent);
            let stream = self.stream(device, number.unwrap_or_default());
            let mut link = Link::on(device, stream).called(correlation);
            if let Some((grid, block, shared)) = work.launch {
                link = link.launched(grid, block, shared);
            }
            if let Some(of_work) = self.trace.links.get_mut(work.link as usize) {
                *of_work = link;
            }
        }
    }

    /// States the names of devices as PyTorch's profiler does it.
    fn describe_devices(&mut self) {
        #[derive(Serialize)]
        struct Properties<'n> {
            id: u64,
            name: &'n str,
        }
        let names = self.device_names.iter();
        let all: Vec<Properties<'_>> = names.map(|(&id, name)| Properties { id, name }).collect();
        if let Ok(json) = serde_json::to_string(&all) {
            self.trace.about.push(("deviceProperties".to_owned(), json));
        }
    }
}
