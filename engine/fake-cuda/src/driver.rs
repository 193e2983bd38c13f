//! The state of the driver, and which calls are legal: everything but the foreign functions themselves.

use std::collections::{BTreeMap, HashMap};

use crate::capture::{Graph, GraphNode, NodeWork};
use crate::clock::VirtualClock;
use crate::cupti::{self, Cupti};
use crate::launch::{Launch, Shim};
use crate::ptx;

/// Error codes of cuda.h.
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const NOT_INITIALIZED: u32 = 3;
pub(crate) const NO_DEVICE: u32 = 100;
pub(crate) const INVALID_DEVICE: u32 = 101;
pub(crate) const INVALID_PTX: u32 = 218;
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const NOT_READY: u32 = 600;
pub(crate) const LAUNCH_FAILED: u32 = 719;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// Why a call fails.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// An error that a real driver returns to a correct program.
    Code(u32),
    /// What no program may do.
    Illegal(String),
}

pub(crate) type Answer<T = ()> = Result<T, Fault>;

fn illegal<T>(what: impl Into<String>) -> Answer<T> {
    Err(Fault::Illegal(what.into()))
}

/// Device memory, which is host memory. Freed memory is kept, so that its use is detected and no other allocation
/// takes its place.
struct Memory {
    bytes: Box<[Block]>,
    len: usize,
    is_free: bool,
}

/// Allocations begin at multiples of 256 bytes, as the driver's do.
#[repr(C, align(256))]
#[derive(Clone, Copy)]
struct Block([u8; 256]);

struct Module {
    /// Bytes of the parameters, by kernel.
    entries: BTreeMap<String, Vec<usize>>,
}

/// A kernel of a module.
#[derive(Clone)]
pub(crate) struct Function {
    module: u64,
    pub(crate) name: String,
    /// Bytes of each parameter.
    pub(crate) parameters: Vec<usize>,
    max_shared: u32,
}

#[derive(Default)]
struct Stream {
    /// When the device will be done with all issued work.
    end: u64,
    capture: Option<Graph>,
}

/// What was last recorded in an event.
#[derive(Clone, Copy, PartialEq)]
enum Recorded {
    Never,
    /// The time on the device.
    At(u64),
    /// As a dependency between captured nodes: it has no time.
    Captured,
}

struct Event {
    is_timed: bool,
    recorded: Recorded,
}

/// The driver: one for the process.
pub(crate) struct Driver {
    clock: VirtualClock,
    slowness: u64,
    event_ns: u64,
    has_stray: bool,
    pub(crate) devices: u32,
    memory_limit: u64,
    lose_at: Option<u64>,
    shim: Option<Shim>,
    is_initialised: bool,
    contexts: u32,
    is_current: bool,
    last_handle: u64,
    launches: u64,
    is_lost: bool,
    /// By address.
    memory: BTreeMap<u64, Memory>,
    /// By address.
    pinned: BTreeMap<u64, Memory>,
    modules: HashMap<u64, Module>,
    functions: HashMap<u64, Function>,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    graphs: HashMap<u64, Graph>,
    execs: HashMap<u64, Graph>,
    pub(crate) cupti: Cupti,
}

/// What tests set, by environment variables.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) devices: Option<u32>,
    pub(crate) memory: Option<u64>,
    pub(crate) lose_at: Option<u64>,
    pub(crate) event_ns: Option<u64>,
    pub(crate) has_stray: bool,
    pub(crate) kernels: Option<std::ffi::OsString>,
    pub(crate) slowness: Option<u64>,
    pub(crate) takes_time: bool,
    pub(crate) cupti: cupti::Settings,
}

/// The size of the device's cache.
pub(crate) const L2_BYTES: i32 = 4 << 20;

/// How long a kernel takes on the device: 2 µs, and 5 ns for each block. Loops that measure what it does at best take 2 µs,
/// and find 1 TB/s, 3 TB/s in its cache, and 20 TFLOP/s.
fn kernel_ns(name: &str, launch: &Launch) -> u64 {
    let (x, y, z) = launch.grid;
    let blocks = u64::from(x) * u64::from(y) * u64::from(z);
    let loops = match (name, &launch.values[..]) {
        ("peak_read", [_, _, units, rounds, _]) => {
            let in_cache = 16 * units <= L2_BYTES as u64;
            16 * 8 * 256 * blocks * rounds / if in_cache { 3_000 } else { 1_000 }
        }
        ("peak_multiply_add", [_, rounds, _]) => 512 * 256 * blocks * rounds / 20_000,
        _ => 5 * blocks,
    };
    2_000 + loops
}

/// Whether the library of kernels runs one: those that measure what a device does at best would take it minutes.
fn is_run(name: &str) -> bool {
    !name.starts_with("peak_")
}

/// Where a kernel notes the time at which it begins: a `stamp` in its slot of the row and of the host's, others where their
/// last argument says.
fn time_addresses(function: &Function, launch: &Launch) -> Vec<u64> {
    match (&*function.name, &launch.values[..]) {
        ("stamp", [row, host, slot]) => vec![row + 8 * slot, host + 8 * slot],
        ("tick", _) => Vec::new(),
        (_, [.., began]) if *began != 0 && function.parameters.last() == Some(&8) => vec![*began],
        _ => Vec::new(),
    }
}

/// The process.
impl Driver {
    pub(crate) fn new(settings: Settings) -> Answer<Self> {
        let shim = settings.kernels.map(|path| Shim::open(&path)).transpose();
        Ok(Self {
            clock: VirtualClock::new(settings.takes_time),
            slowness: settings.slowness.unwrap_or(1),
            event_ns: settings.event_ns.unwrap_or(0),
            has_stray: settings.has_stray,
            devices: settings.devices.unwrap_or(1),
            memory_limit: settings.memory.unwrap_or(512 << 20),
            lose_at: settings.lose_at,
            shim: shim.map_err(Fault::Illegal)?,
            is_initialised: false,
            contexts: 0,
            is_current: false,
            last_handle: 0,
            launches: 0,
            is_lost: false,
            memory: BTreeMap::new(),
            pinned: BTreeMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            cupti: Cupti::new(settings.cupti),
        })
    }

    /// The time, of host and device.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// The host has made a call.
    pub(crate) fn call(&mut self) {
        self.clock.call();
    }

    /// A handle that was never given out before.
    fn handle(&mut self) -> u64 {
        self.last_handle += 16;
        self.last_handle
    }

    pub(crate) fn init(&mut self) -> Answer {
        self.is_initialised = true;
        if self.devices == 0 { Err(Fault::Code(NO_DEVICE)) } else { Ok(()) }
    }

    fn initialised(&self) -> Answer {
        if self.is_initialised { Ok(()) } else { Err(Fault::Code(NOT_INITIALIZED)) }
    }

    pub(crate) fn device(&self, ordinal: i32) -> Answer<i32> {
        self.initialised()?;
        match u32::try_from(ordinal) {
            Ok(number) if number < self.devices => Ok(ordinal),
            _ => Err(Fault::Code(INVALID_DEVICE)),
        }
    }

    pub(crate) fn retain(&mut self, device: i32) -> Answer<u64> {
        self.device(device)?;
        self.contexts += 1;
        Ok(8)
    }

    pub(crate) fn release(&mut self, device: i32) -> Answer {
        self.device(device)?;
        if self.contexts == 0 {
            return illegal("the primary context is released more often than retained");
        }
        self.contexts -= 1;
        if self.contexts > 0 {
            return Ok(());
        }
        self.is_current = false;
        // Releasing a context frees everything, but a program that relies on that leaks while the context lives.
        let left = [
            (self.memory.values().filter(|memory| !memory.is_free).count(), "buffer"),
            (self.streams.len(), "stream"),
            (self.events.len(), "event"),
            (self.modules.len(), "module"),
            (self.graphs.len(), "graph"),
            (self.execs.len(), "executable graph"),
        ];
        match left.into_iter().find(|&(n, _)| n > 0) {
            Some((n, what)) => illegal(format!("the context is released with {n} {what}(s) left")),
            None => Ok(()),
        }
    }

    pub(crate) fn set_current(&mut self, context: u64) -> Answer {
        self.initialised()?;
        if context != 0 && self.contexts == 0 {
            return illegal("cuCtxSetCurrent of a context that was released");
        }
        self.is_current = context != 0;
        Ok(())
    }

    /// What every call on the device needs.
    fn ready(&self) -> Answer {
        self.initialised()?;
        if !self.is_current {
            return illegal("no context is current to the thread");
        }
        if self.is_lost { Err(Fault::Code(LAUNCH_FAILED)) } else { Ok(()) }
    }

    /// What the host mustn't do while a stream captures.
    fn not_capturing(&self, call: &str) -> Answer {
        if self.streams.values().any(|stream| stream.capture.is_some()) {
            return illegal(format!("{call} during a capture"));
        }
        Ok(())
    }
}

/// Memory.
impl Driver {
    pub(crate) fn allocate(&mut self, len: usize) -> Answer<u64> {
        self.ready()?;
        self.not_capturing("cuMemAlloc")?;
        if len == 0 {
            return Err(Fault::Code(INVALID_VALUE));
        }
        if len as u64 > self.free_bytes() {
            return Err(Fault::Code(OUT_OF_MEMORY));
        }
        let memory = Memory::new(len);
        let address = memory.bytes.as_ptr() as u64;
        self.memory.insert(address, memory);
        if let Some(shim) = &self.shim {
            shim.add_memory(address, len);
        }
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Answer {
        self.initialised()?;
        self.not_capturing("cuMemFree")?;
        match self.memory.get_mut(&address) {
            Some(memory) if memory.is_free => illegal("cuMemFree of memory that was freed before"),
            Some(memory) => {
                memory.is_free = true;
                if let Some(shim) = &self.shim {
                    shim.remove_memory(address);
                }
                self.finish_all();
                Ok(())
            }
            None => illegal(format!("cuMemFree of {address:#x}, where nothing was allocated")),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let taken = self.memory.values().filter(|memory| !memory.is_free);
        self.memory_limit.saturating_sub(taken.map(|memory| memory.len as u64).sum())
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.memory_limit
    }

    pub(crate) fn allocate_host(&mut self, len: usize) -> Answer<u64> {
        self.ready()?;
        self.not_capturing("cuMemAllocHost")?;
        let memory = Memory::new(len);
        let address = memory.bytes.as_ptr() as u64;
        self.pinned.insert(address, memory);
        if let Some(shim) = &self.shim {
            shim.add_memory(address, len);
        }
        Ok(address)
    }

    pub(crate) fn free_host(&mut self, address: u64) -> Answer {
        self.not_capturing("cuMemFreeHost")?;
        match self.pinned.remove(&address) {
            Some(_) => {
                if let Some(shim) = &self.shim {
                    shim.remove_memory(address);
                }
                Ok(())
            }
            None => illegal(format!("cuMemFreeHost of {address:#x}, which is not allocated")),
        }
    }

    /// Whether `len` bytes at `address` are in one allocation that lives.
    fn check_address(&self, call: &str, address: u64, len: usize) -> Answer {
        let pinned = self.pinned.range(..=address).next_back();
        if pinned.is_some_and(|(start, memory)| address - start + len as u64 <= memory.len as u64) {
            return Ok(());
        }
        let Some((start, memory)) = self.memory.range(..=address).next_back() else {
            return illegal(format!("{call} uses {address:#x}, where nothing was allocated"));
        };
        let at = (address - start) as usize;
        if at >= memory.len {
            return illegal(format!("{call} uses {address:#x}, where nothing was allocated"));
        }
        if memory.is_free {
            return illegal(format!("{call} uses {address:#x}, which was freed"));
        }
        if memory.len - at < len {
            let room = memory.len - at;
            return illegal(format!(
                "{call} uses {len} bytes at {address:#x}, where {room} are left"
            ));
        }
        Ok(())
    }

    /// Whether a copy between the host and the device may begin. It takes 1 µs, and 1 ns for each
    /// 10 bytes.
    pub(crate) fn copy(&mut self, call: &str, stream: u64, device: u64, len: usize) -> Answer {
        self.ready()?;
        self.check_address(call, device, len)?;
        if self.stream(call, stream)?.capture.is_some() {
            return illegal(format!("{call} of pageable memory in a capture"));
        }
        self.run_for(stream, 1_000 + len as u64 / 10);
        Ok(())
    }
}

impl Memory {
    fn new(len: usize) -> Self {
        // Fresh memory has undefined contents: here a pattern that is NaN in every float.
        let bytes = vec![Block([0xff; 256]); len.div_ceil(256)].into_boxed_slice();
        Self { bytes, len, is_free: false }
    }
}

/// Kernels.
impl Driver {
    pub(crate) fn load(&mut self, ptx: &str) -> Answer<u64> {
        self.ready()?;
        self.not_capturing("cuModuleLoadDataEx")?;
        let entries = ptx::entries(ptx);
        if !ptx.contains(".version") || entries.is_empty() {
            return Err(Fault::Code(INVALID_PTX));
        }
        let handle = self.handle();
        self.modules.insert(handle, Module { entries });
        Ok(handle)
    }

    pub(crate) fn unload(&mut self, module: u64) -> Answer {
        self.functions.retain(|_, function| function.module != module);
        match self.modules.remove(&module) {
            Some(_) => Ok(()),
            None => illegal("cuModuleUnload of a module that is not loaded"),
        }
    }

    pub(crate) fn function(&mut self, module: u64, name: &str) -> Answer<u64> {
        self.ready()?;
        let Some(entries) = self.modules.get(&module).map(|module| &module.entries) else {
            return illegal("cuModuleGetFunction of a module that is not loaded");
        };
        let Some(parameters) = entries.get(name).cloned() else {
            return Err(Fault::Code(NOT_FOUND));
        };
        if self.shim.as_ref().is_some_and(|shim| !shim.has(name)) {
            return illegal(format!("the library of kernels has no launch_{name}"));
        }
        let handle = self.handle();
        let max_shared = 48 << 10;
        let function = Function { module, name: name.to_owned(), parameters, max_shared };
        self.functions.insert(handle, function);
        Ok(handle)
    }

    pub(crate) fn known(&mut self, call: &str, function: u64) -> Answer<&mut Function> {
        match self.functions.get_mut(&function) {
            Some(function) => Ok(function),
            None => illegal(format!("{call} of a function that no loaded module has")),
        }
    }

    pub(crate) fn allow_shared(&mut self, function: u64, bytes: u32) -> Answer {
        if bytes > 99 << 10 {
            return Err(Fault::Code(INVALID_VALUE));
        }
        self.known("cuFuncSetAttribute", function)?.max_shared = bytes;
        Ok(())
    }

    pub(crate) fn launch(&mut self, stream: u64, launch: Launch) -> Answer {
        self.ready()?;
        let function = self.known("cuLaunchKernel", launch.function)?.clone();
        launch.check(&function.name, function.max_shared).map_err(Fault::Illegal)?;
        self.check_addresses(&function, &launch)?;
        if self.stream("cuLaunchKernel", stream)?.capture.is_some() {
            let node = self.handle();
            let work = NodeWork::Kernel(launch);
            return self.capture(stream, GraphNode { handle: node, work });
        }
        self.cupti.launched();
        self.run_kernel(stream, &launch, 0)
    }

    /// All eight-byte parameters of our kernels are addresses. Only where to note the time may be none.
    fn check_addresses(&self, function: &Function, launch: &Launch) -> Answer {
        let last = launch.values.len().saturating_sub(1);
        for (at, (bytes, value)) in function.parameters.iter().zip(&launch.values).enumerate() {
            if *bytes == 8 && (*value != 0 || at != last) {
                self.check_address(&format!("kernel {}", function.name), *value, 1)?;
            }
        }
        Ok(())
    }

    /// The memory at an address, the device's or pinned, and where in it.
    fn place(&mut self, address: u64) -> Answer<(&mut Memory, usize)> {
        self.check_address("a kernel's number", address, 8)?;
        let within = |(start, memory): &(&u64, &mut Memory)| address - **start < memory.len as u64;
        let pinned = self.pinned.range_mut(..=address).next_back().filter(within);
        let found = pinned.or_else(|| self.memory.range_mut(..=address).next_back());
        match found {
            Some((start, memory)) => Ok((memory, (address - start) as usize)),
            None => illegal(format!("a kernel uses {address:#x}, where nothing was allocated")),
        }
    }

    fn write_number(&mut self, address: u64, number: u64) -> Answer {
        let (memory, at) = self.place(address)?;
        for (i, byte) in number.to_le_bytes().into_iter().enumerate() {
            memory.bytes[(at + i) / 256].0[(at + i) % 256] = byte;
        }
        Ok(())
    }

    fn read_number(&mut self, address: u64) -> Answer<u64> {
        let (memory, at) = self.place(address)?;
        let bytes = std::array::from_fn(|i| memory.bytes[(at + i) / 256].0[(at + i) % 256]);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Runs a kernel, which is that of a graph's node if that isn't 0.
    fn run_kernel(&mut self, stream: u64, launch: &Launch, node: u64) -> Answer {
        self.launches += 1;
        if self.lose_at.is_some_and(|at| self.launches >= at) {
            // The launch itself succeeds; later calls return the error.
            self.is_lost = true;
            return Ok(());
        }
        let function = self.known("a graph", launch.function)?.clone();
        self.check_addresses(&function, launch)?;
        if let Some(shim) = self.shim.as_ref().filter(|_| is_run(&function.name)) {
            shim.run(&function.name, launch).map_err(Fault::Illegal)?;
        }
        let slowness = if function.name == "stamp" { 1 } else { self.slowness };
        let ns = slowness * kernel_ns(&function.name, launch);
        let end = self.run_for(stream, ns);
        for at in time_addresses(&function, launch) {
            self.write_number(at, end - ns)?;
        }
        if let ("stamp", [row, host, slot]) = (&*function.name, &launch.values[..]) {
            for slot in 0..*slot {
                let number = self.read_number(row + 8 * slot)?;
                self.write_number(host + 8 * slot, number)?;
            }
        }
        self.cupti.ran(&function.name, launch, stream, node, (end - ns, end));
        Ok(())
    }
}

/// Streams and events.
impl Driver {
    pub(crate) fn create_stream(&mut self) -> Answer<u64> {
        self.ready()?;
        let handle = self.handle();
        self.streams.insert(handle, Stream::default());
        Ok(handle)
    }

    pub(crate) fn destroy_stream(&mut self, stream: u64) -> Answer {
        let was_capturing = self.stream("cuStreamDestroy", stream)?.capture.is_some();
        self.streams.remove(&stream);
        if was_capturing { illegal("cuStreamDestroy of a stream that captures") } else { Ok(()) }
    }

    fn stream(&mut self, call: &str, stream: u64) -> Answer<&mut Stream> {
        match self.streams.get_mut(&stream) {
            Some(stream) => Ok(stream),
            None => illegal(format!("{call} on a stream that there is not")),
        }
    }

    /// Adds work of `ns` to the stream, after all issued work; returns when it will be done.
    fn run_for(&mut self, stream: u64, ns: u64) -> u64 {
        let now = self.clock.now();
        match self.streams.get_mut(&stream) {
            Some(stream) => {
                stream.end = stream.end.max(now) + ns;
                stream.end
            }
            None => now + ns,
        }
    }

    fn finish_all(&mut self) {
        let end = self.streams.values().map(|stream| stream.end).max().unwrap_or(0);
        self.clock.wait_until(end);
    }

    pub(crate) fn synchronize_stream(&mut self, stream: u64) -> Answer {
        self.ready()?;
        self.not_capturing("cuStreamSynchronize")?;
        let end = self.stream("cuStreamSynchronize", stream)?.end;
        self.clock.wait_until(end);
        Ok(())
    }

    pub(crate) fn wait_event(&mut self, stream: u64, event: u64) -> Answer {
        self.ready()?;
        let recorded = self.event("cuStreamWaitEvent", event)?.recorded;
        let stream = self.stream("cuStreamWaitEvent", stream)?;
        match recorded {
            Recorded::At(at) => stream.end = stream.end.max(at),
            Recorded::Never => {}
            Recorded::Captured if stream.capture.is_some() => {}
            Recorded::Captured => {
                return illegal("cuStreamWaitEvent of an event of a capture, outside of it");
            }
        }
        Ok(())
    }

    pub(crate) fn create_event(&mut self, flags: u32) -> Answer<u64> {
        self.ready()?;
        let handle = self.handle();
        let event = Event { is_timed: flags & DISABLE_TIMING == 0, recorded: Recorded::Never };
        self.events.insert(handle, event);
        Ok(handle)
    }

    pub(crate) fn destroy_event(&mut self, event: u64) -> Answer {
        self.event("cuEventDestroy", event)?;
        self.events.remove(&event);
        Ok(())
    }

    fn event(&mut self, call: &str, event: u64) -> Answer<&mut Event> {
        match self.events.get_mut(&event) {
            Some(event) => Ok(event),
            None => illegal(format!("{call} of an event that there is not")),
        }
    }

    pub(crate) fn record(&mut self, event: u64, stream: u64, is_external: bool) -> Answer {
        self.ready()?;
        let call = if is_external { "cuEventRecordWithFlags" } else { "cuEventRecord" };
        self.event(call, event)?;
        let is_capturing = self.stream(call, stream)?.capture.is_some();
        match (is_capturing, is_external) {
            (false, true) => illegal("an external event record outside of a capture"),
            (true, true) => {
                let handle = self.handle();
                self.capture(stream, GraphNode { handle, work: NodeWork::Record(event) })
            }
            (true, false) => {
                self.event(call, event)?.recorded = Recorded::Captured;
                Ok(())
            }
            (false, false) => self.run_record(event, stream),
        }
    }

    fn run_record(&mut self, event: u64, stream: u64) -> Answer {
        let now = self.clock.now();
        let event_ns = self.event_ns;
        let stream = self.stream("an event record", stream)?;
        stream.end = stream.end.max(now) + event_ns;
        let at = stream.end;
        self.event("an event record", event)?.recorded = Recorded::At(at);
        Ok(())
    }

    pub(crate) fn synchronize_event(&mut self, event: u64) -> Answer {
        self.ready()?;
        self.not_capturing("cuEventSynchronize")?;
        match self.event("cuEventSynchronize", event)?.recorded {
            Recorded::At(at) => {
                self.clock.wait_until(at);
                Ok(())
            }
            Recorded::Never => illegal("cuEventSynchronize of an event that nobody recorded"),
            Recorded::Captured => illegal(
                "cuEventSynchronize of an event that was recorded in a capture, as a dependency",
            ),
        }
    }

    pub(crate) fn query_event(&mut self, event: u64) -> Answer {
        self.ready()?;
        self.not_capturing("cuEventQuery")?;
        let now = self.clock.now();
        match self.event("cuEventQuery", event)?.recorded {
            Recorded::At(at) if at > now => Err(Fault::Code(NOT_READY)),
            _ => Ok(()),
        }
    }

    pub(crate) fn elapsed(&mut self, start: u64, end: u64) -> Answer<f32> {
        self.ready()?;
        let now = self.clock.now();
        let mut time = |which: &str, event: u64| {
            let event = self.event("cuEventElapsedTime", event)?;
            if !event.is_timed {
                return illegal(format!("cuEventElapsedTime: the {which} event has no timing"));
            }
            match event.recorded {
                Recorded::At(at) if at <= now => Ok(at),
                Recorded::At(_) => illegal(format!(
                    "cuEventElapsedTime: the device has not come to the {which} event; nobody waited"
                )),
                Recorded::Never => {
                    illegal(format!("cuEventElapsedTime: nobody recorded the {which} event"))
                }
                Recorded::Captured => illegal(format!(
                    "cuEventElapsedTime: the {which} event was recorded in a capture without \
                     CU_EVENT_RECORD_EXTERNAL, which has no time"
                )),
            }
        };
        let (start, end) = (time("first", start)?, time("second", end)?);
        Ok(((end as f64 - start as f64) / 1e6) as f32)
    }
}

/// Graphs.
impl Driver {
    pub(crate) fn begin_capture(&mut self, stream: u64) -> Answer {
        self.ready()?;
        let stream = self.stream("cuStreamBeginCapture", stream)?;
        if stream.capture.is_some() {
            return illegal("cuStreamBeginCapture of a stream that captures already");
        }
        stream.capture = Some(Graph::default());
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Answer<u64> {
        let Some(mut graph) = self.stream("cuStreamEndCapture", stream)?.capture.take() else {
            return illegal("cuStreamEndCapture of a stream that does not capture");
        };
        if self.is_lost {
            return Err(Fault::Code(LAUNCH_FAILED));
        }
        let handle = self.handle();
        if self.has_stray {
            let last = graph.nodes().last().map(|node| node.work.clone());
            let strays = last.map(|work| GraphNode { handle, work });
            strays.into_iter().for_each(|node| graph.push(node));
        }
        let handle = self.handle();
        self.graphs.insert(handle, graph);
        Ok(handle)
    }

    pub(crate) fn is_capturing(&mut self, stream: u64) -> Answer<bool> {
        Ok(self.stream("cuStreamIsCapturing", stream)?.capture.is_some())
    }

    /// The graph that a stream captures.
    pub(crate) fn capture_of(&mut self, stream: u64) -> Answer<Option<&Graph>> {
        Ok(self.stream("cuStreamGetCaptureInfo", stream)?.capture.as_ref())
    }

    fn capture(&mut self, stream: u64, node: GraphNode) -> Answer {
        if let Some(graph) = &mut self.stream("a capture", stream)?.capture {
            graph.push(node);
        }
        Ok(())
    }

    pub(crate) fn graph(&self, graph: u64) -> Answer<&Graph> {
        match self.graphs.get(&graph) {
            Some(graph) => Ok(graph),
            None => illegal("a call on a graph that there is not"),
        }
    }

    pub(crate) fn node(&self, handle: u64) -> Answer<&GraphNode> {
        let mut nodes = self.graphs.values().flat_map(Graph::nodes);
        match nodes.find(|node| node.handle == handle) {
            Some(node) => Ok(node),
            None => illegal("a call on a node that no graph has"),
        }
    }

    pub(crate) fn destroy_graph(&mut self, graph: u64) -> Answer {
        match self.graphs.remove(&graph) {
            Some(_) => Ok(()),
            None => illegal("cuGraphDestroy of a graph that there is not"),
        }
    }

    pub(crate) fn instantiate(&mut self, graph: u64) -> Answer<u64> {
        self.ready()?;
        self.not_capturing("cuGraphInstantiate")?;
        let graph = self.graph(graph)?.clone();
        let handle = self.handle();
        self.execs.insert(handle, graph);
        Ok(handle)
    }

    pub(crate) fn destroy_exec(&mut self, exec: u64) -> Answer {
        match self.execs.remove(&exec) {
            Some(_) => Ok(()),
            None => illegal("cuGraphExecDestroy of an executable graph that there is not"),
        }
    }

    pub(crate) fn upload_graph(&mut self, exec: u64, stream: u64) -> Answer {
        self.ready()?;
        self.not_capturing("cuGraphUpload")?;
        self.stream("cuGraphUpload", stream)?;
        if self.execs.contains_key(&exec) {
            return Ok(());
        }
        illegal("cuGraphUpload of an executable graph that there is not")
    }

    pub(crate) fn launch_graph(&mut self, exec: u64, stream: u64) -> Answer {
        self.ready()?;
        let Some(graph) = self.execs.get(&exec).cloned() else {
            return illegal("cuGraphLaunch of an executable graph that there is not");
        };
        if self.stream("cuGraphLaunch", stream)?.capture.is_some() {
            return illegal("cuGraphLaunch into a capture");
        }
        self.cupti.launched();
        let now = self.clock.now();
        let mut end = self.stream("cuGraphLaunch", stream)?.end.max(now);
        for node in graph.nodes() {
            self.stream("cuGraphLaunch", stream)?.end = end;
            match &node.work {
                NodeWork::Kernel(launch) => {
                    self.run_kernel(stream, launch, node.handle)?;
                    end = self.stream("cuGraphLaunch", stream)?.end;
                }
                NodeWork::Record(event) => {
                    end += self.event_ns;
                    self.event("a graph's event record", *event)?.recorded = Recorded::At(end);
                }
            }
        }
        self.stream("cuGraphLaunch", stream)?.end = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
