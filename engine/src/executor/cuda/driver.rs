//! NVIDIA's driver: every call into it, and all `unsafe` of this executor except that of `cupti/`.
//!
//! The library is loaded when the first executor is made, so one program runs with and without
//! it. [`Context::new`] checks before it calls: `cudarc` panics if the library or one of its
//! functions is missing.
//!
//! Types here own their driver objects and release them when dropped, which keeps handles valid.
//! The driver may be called from any thread on which the context is current; [`Context::bind`] makes it
//! current, and callers that may have changed threads call it first. Otherwise the driver returns an
//! error. A kernel with a wrong address faults on the device, where this process has no objects:
//! the next call returns an error, and there is no undefined behaviour here.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

use super::error::CudaError;
use super::kernels::Launch;

/// All functions that are called here. A driver that lacks one of them is too old.
const SYMBOLS: [&str; 45] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphLaunch",
    "cuGraphNodeGetType",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamSynchronize",
];

/// An error that names the failed call, with the driver's text.
fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = null();
    // SAFETY: the pointer is to a pointer that outlives the call; the text is the driver's own, static.
    let said = unsafe { sys::cuGetErrorString(result, &raw mut text) };
    let says = if said == CUresult::CUDA_SUCCESS && !text.is_null() {
        // SAFETY: the driver has set it to a string that ends with a zero and lives for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        "an error that the driver has no words for".to_owned()
    };
    Err(CudaError::Call { call, code: result as u32, says })
}

/// Drops an error in a destructor, where a lost device fails too and nothing can be done.
fn ignore(_: CUresult) {}

/// The number of devices, if there is a driver with all functions that are called here.
pub(super) fn probe() -> Result<usize, CudaError> {
    // SAFETY: loading runs the library's initialisers; it is the system's own driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoLibrary);
    }
    // SAFETY: as above; it has just been loaded.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: the address is looked up and not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
            return Err(CudaError::TooOld { symbol });
        }
    }
    // SAFETY: the flags have to be 0.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        result => check("cuInit", result)?,
    }
    let mut count: c_int = 0;
    // SAFETY: the pointer is to an int that outlives the call.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The version of CUDA that the driver implements: 12040 is 12.4. Call [`probe`] first.
pub(super) fn version() -> Result<u32, CudaError> {
    let mut version: c_int = 0;
    // SAFETY: the pointer is to an int that outlives the call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A device, and this process's context on it.
#[derive(Debug)]
pub(super) struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    /// Its name, by the driver.
    pub(super) name: String,
    /// Its compute capability.
    pub(super) capability: (u32, u32),
    /// How many multiprocessors it has.
    pub(super) multiprocessors: u32,
    /// The size of its L2 cache, 0 if it has none.
    pub(super) l2_bytes: u64,
    /// The version of CUDA that the driver implements: 12040 is 12.4.
    pub(super) driver_version: u32,
}

impl Context {
    /// The context on device `ordinal`.
    pub(super) fn new(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let devices = probe()?;
        if ordinal >= devices {
            return Err(CudaError::NoDevice { ordinal, devices });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a handle that outlives the call.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal as c_int) })?;
        let mut text = [0_u8; 256];
        // SAFETY: the buffer has the length that is passed, less one so that a zero stays.
        let result = unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), 255, device) };
        check("cuDeviceGetName", result)?;
        let name = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        let attribute = |which| {
            let mut value: c_int = 0;
            // SAFETY: the pointer is to an int that outlives the call.
            let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
            check("cuDeviceGetAttribute", result).map(|()| u32::try_from(value).unwrap_or(0))
        };
        use sys::CUdevice_attribute::*;
        let capability = (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let driver_version = version()?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle that outlives the call; it is released when this is dropped.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, device) };
        check("cuDevicePrimaryCtxRetain", result)?;
        let multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into();
        let name = name.into_owned();
        let context =
            Self { raw, device, name, capability, multiprocessors, l2_bytes, driver_version };
        context.bind()?;
        Ok(Arc::new(context))
    }

    /// Makes it current on this thread, where another executor may have changed that.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained while this lives.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// Free memory, and all of it, in bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to numbers that outlive the call.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }
}

// SAFETY: a context is used from any thread, also at the same time; the driver locks it.
unsafe impl Send for Context {}
// SAFETY: likewise.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once; all that lives in it holds an `Arc` of this.
        ignore(unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) });
    }
}

/// Memory of the device.
#[derive(Debug)]
pub(super) struct Buffer {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    len: usize,
}

impl Buffer {
    /// `len` bytes, at least one.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, CudaError> {
        let len = len.max(1);
        let mut address = 0;
        // SAFETY: the pointer is to an address that outlives the call.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, len) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = context.memory().map_or(0, |(free, _)| free);
                return Err(CudaError::Memory { asked: len as u64, free });
            }
            result => check("cuMemAlloc", result)?,
        }
        Ok(Self { context: Arc::clone(context), address, len })
    }

    /// Its address, for kernels.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn check_range(&self, first: usize, len: usize) -> Result<(), CudaError> {
        match first.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(CudaError::Range { first, len, room: self.len }),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: allocated by `new`, and freed once. The driver waits for kernels that use it.
        ignore(unsafe { sys::cuMemFree_v2(self.address) });
    }
}

/// Binds the context in a destructor. If that fails, there is nothing left to destroy.
fn ignore_bind(context: &Context) {
    let _ = context.bind();
}

/// A queue of work, in order.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

impl Stream {
    /// A stream that doesn't wait for the default stream.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let mut raw = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the pointer is to a handle that outlives the call.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, flags) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Waits until all issued work is done.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream lives.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Copies `bytes` to `to`, from byte `first` on. The caller may overwrite them when this returns, as the
    /// driver stages pageable memory first.
    pub(super) fn upload(&self, to: &Buffer, first: usize, bytes: &[u8]) -> Result<(), CudaError> {
        to.check_range(first, bytes.len())?;
        // SAFETY: the range was checked against the buffer. The bytes are pageable memory, which by
        // cuda.h's "API synchronization behavior" is staged before the call returns.
        let result = unsafe {
            let to = to.address + first as u64;
            sys::cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), self.raw)
        };
        check("cuMemcpyHtoDAsync", result)
    }

    /// Copies floats from byte `first` of `from`, after all issued work, and waits for them.
    pub(super) fn read(
        &self,
        from: &Buffer,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), CudaError> {
        let len = size_of_val(out);
        from.check_range(first, len)?;
        // SAFETY: the range was checked against the buffer; `out` is borrowed until the stream was waited
        // for, below, and any bytes are floats.
        let result = unsafe {
            let from = from.address + first as u64;
            sys::cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), from, len, self.raw)
        };
        let copied = check("cuMemcpyDtoHAsync", result);
        self.synchronize()?;
        copied
    }

    /// Fills a buffer with zeros.
    pub(super) fn zero(&self, buffer: &Buffer) -> Result<(), CudaError> {
        // SAFETY: the buffer is that long.
        let result = unsafe { sys::cuMemsetD8Async(buffer.address, 0, buffer.len, self.raw) };
        check("cuMemsetD8Async", result)
    }

    /// Launches a kernel with these arguments, which are checked against the parameters in its PTX.
    pub(super) fn launch(&self, f: &Function, l: Launch, args: &[Arg]) -> Result<(), CudaError> {
        let given = args.iter().map(|arg| arg.len());
        if !given.eq(f.parameters.iter().copied()) {
            return Err(CudaError::Arguments {
                kernel: f.name.clone(),
                takes: f.parameters.clone(),
                given: args.iter().map(|arg| arg.len()).collect(),
            });
        }
        let mut words = [0_u64; MAX_ARGS];
        let mut pointers = [null_mut::<c_void>(); MAX_ARGS];
        for ((word, pointer), arg) in words.iter_mut().zip(&mut pointers).zip(args) {
            // The low bytes are at the address of the word on every machine that CUDA runs on.
            *word = arg.word();
            *pointer = (&raw mut *word).cast();
        }
        // SAFETY: the function's module lives in this context. There are as many pointers as parameters,
        // each to at least as many bytes as its parameter has; the driver copies them.
        let result = unsafe {
            let ([x, y, z], [bx, by, bz]) = (l.grid, l.block);
            let (shared, params) = (l.shared_bytes, pointers.as_mut_ptr());
            sys::cuLaunchKernel(f.raw, x, y, z, bx, by, bz, shared, self.raw, params, null_mut())
        };
        check("cuLaunchKernel", result)
    }

    /// Begins a capture: work is recorded instead of run.
    pub(super) fn begin_capture(&self) -> Result<(), CudaError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives and isn't the default one, which can't be captured.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })
    }

    /// Ends the capture; returns the graph of what was issued.
    pub(super) fn end_capture(&self) -> Result<Graph, CudaError> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle that outlives the call.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &raw mut raw) })?;
        if raw.is_null() {
            return Err(CudaError::Capture { what: "it ended without a graph".to_owned() });
        }
        Ok(Graph { context: Arc::clone(&self.context), raw })
    }

    /// The last captured node, the only one that the next will depend on.
    pub(super) fn last_captured(&self) -> Result<Node, CudaError> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut graph, mut nodes, mut n) = (0, null_mut(), null(), 0);
        // SAFETY: the pointers are to variables that outlive the call.
        let result = unsafe {
            sys::cuStreamGetCaptureInfo_v2(
                self.raw,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut n,
            )
        };
        check("cuStreamGetCaptureInfo", result)?;
        if n != 1 || nodes.is_null() {
            let what = format!("the next node depends on {n} nodes, not on the one before it");
            return Err(CudaError::Capture { what });
        }
        // SAFETY: the driver's array has `n` elements, which stay until the next call on the stream.
        Ok(Node(unsafe { *nodes } as usize))
    }
}

// SAFETY: the driver's handles don't belong to a thread.
unsafe impl Send for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: created by `new` and destroyed once. Its work is finished by the driver.
        ignore(unsafe { sys::cuStreamDestroy_v2(self.raw) });
    }
}

/// A point in a stream whose time the device records.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

impl Event {
    /// An event with timing.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let mut raw = null_mut();
        // The driver's default is with timing. (`cudarc`'s is without.)
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as c_uint;
        // SAFETY: the pointer is to a handle that outlives the call.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Makes the device record the time when it gets here. Not in a capture, where it would only be a
    /// dependency without a time.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// Captures a node that records the time at each launch of the graph. Only in a capture.
    pub(super) fn capture(&self, stream: &Stream) -> Result<(), CudaError> {
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as c_uint;
        // SAFETY: both live; the event has to outlive the graph, see `GraphExec::keep`.
        let result = unsafe { sys::cuEventRecordWithFlags(self.raw, stream.raw, flags) };
        check("cuEventRecordWithFlags", result)
    }

    /// Waits until the device has passed it.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Whether the device has passed it.
    pub(super) fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Milliseconds from `earlier` to this one. Doesn't wait: both must be done.
    pub(super) fn since(&self, earlier: &Self) -> Result<f32, CudaError> {
        let mut ms = 0.0;
        // SAFETY: both live, and the pointer is to a number that outlives the call.
        let result = unsafe { sys::cuEventElapsedTime(&raw mut ms, earlier.raw, self.raw) };
        check("cuEventElapsedTime", result)?;
        Ok(ms)
    }
}

// SAFETY: as of streams.
unsafe impl Send for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: created by `new` and destroyed once.
        ignore(unsafe { sys::cuEventDestroy_v2(self.raw) });
    }
}

/// A copy of 32-bit words from the device into pinned memory, which nobody waits for until they are needed.
#[derive(Debug)]
pub(super) struct Download {
    context: Arc<Context>,
    host: *mut u32,
    room: usize,
    /// The length of the last copy, in words.
    len: usize,
    /// Events before the copy, if it is timed, and after it.
    begin: Event,
    done: Event,
    is_timed: bool,
    in_flight: bool,
    /// Whether the end of the last copy can't be known.
    is_unknown: bool,
}

impl Download {
    /// Room for `room` words, at least one.
    pub(super) fn new(context: &Arc<Context>, room: usize) -> Result<Self, CudaError> {
        let room = room.max(1);
        let (begin, done) = (Event::new(context)?, Event::new(context)?);
        let bytes = room.saturating_mul(size_of::<u32>());
        let mut host: *mut c_void = null_mut();
        // SAFETY: the pointer is to a pointer that outlives the call.
        let result = unsafe { sys::cuMemAllocHost_v2(&raw mut host, bytes) };
        check("cuMemAllocHost", result)?;
        // SAFETY: it is that long, page-aligned, and not shared.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        let (context, host) = (Arc::clone(context), host.cast());
        Ok(Self {
            context,
            host,
            room,
            len: 0,
            begin,
            done,
            is_timed: false,
            in_flight: false,
            is_unknown: false,
        })
    }

    /// Starts to copy `len` words from byte `first` of `from`.
    pub(super) fn start(
        &mut self,
        stream: &Stream,
        from: &Buffer,
        first: usize,
        len: usize,
        is_timed: bool,
    ) -> Result<(), CudaError> {
        from.check_range(first, len.saturating_mul(size_of::<u32>()))?;
        if len > self.room {
            return Err(CudaError::Range { first: 0, len, room: self.room });
        }
        if is_timed {
            self.begin.record(stream)?;
        }
        self.is_timed = is_timed;
        self.in_flight = true;
        // SAFETY: the ranges were checked against both. The memory is neither read nor freed until the copy was waited
        // for. A copy still in flight comes before this one.
        let result = unsafe {
            let (from, bytes) = (from.address + first as u64, len * size_of::<u32>());
            sys::cuMemcpyDtoHAsync_v2(self.host.cast(), from, bytes, stream.raw)
        };
        check("cuMemcpyDtoHAsync", result)?;
        self.len = len;
        let noted = self.done.record(stream);
        if noted.is_err() {
            // `done` may be that of the copy before this one, so this waits for the stream. If that fails, the memory
            // has to be leaked.
            self.is_unknown = stream.synchronize().is_err();
        }
        noted
    }

    /// Waits for the last copy, if it is still in flight, by waiting for its stream.
    pub(super) fn wait(&mut self, stream: &Stream) -> Result<&[u32], CudaError> {
        if self.in_flight {
            stream.synchronize()?;
            // If it was another stream, this waits for the copy itself.
            if !self.done.is_done()? {
                self.done.synchronize()?;
            }
            self.in_flight = false;
        }
        // SAFETY: the memory is `room` words, initialised, of which `len` are asked for; no copy is in
        // flight, and `start` needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.host, self.len) })
    }

    /// How long the last copy took on the device, if it was timed and waited for.
    pub(super) fn took_ms(&self) -> Result<Option<f32>, CudaError> {
        if !self.is_timed || self.in_flight {
            return Ok(None);
        }
        self.done.since(&self.begin).map(Some)
    }
}

// SAFETY: as of streams; the memory is this one's own.
unsafe impl Send for Download {}

impl Drop for Download {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        if self.is_unknown || self.in_flight && self.done.synchronize().is_err() {
            // A lost device should no longer write, but only the driver says so; leaking is safe.
            return;
        }
        // SAFETY: allocated by `new`, freed once, and nothing is being copied into it.
        ignore(unsafe { sys::cuMemFreeHost(self.host.cast()) });
    }
}

/// Pinned memory that kernels write numbers to, and that the host reads without a call of the driver. All memory that the
/// driver allocates on the host has the same address on the device, on every system with 64 bits (CUDA C++ Programming
/// Guide, "Unified Virtual Address Space").
#[derive(Debug)]
pub(super) struct Mailbox {
    context: Arc<Context>,
    host: *mut u64,
    len: usize,
}

impl Mailbox {
    /// Room for `len` numbers, all 0.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, CudaError> {
        let len = len.max(1);
        let mut host: *mut c_void = null_mut();
        // SAFETY: the pointer is to a pointer that outlives the call.
        let result =
            unsafe { sys::cuMemAllocHost_v2(&raw mut host, len.saturating_mul(size_of::<u64>())) };
        check("cuMemAllocHost", result)?;
        let host: *mut u64 = host.cast();
        // SAFETY: it is that long, page-aligned, and not shared yet.
        unsafe { host.write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), host, len })
    }

    /// Its address, for kernels.
    pub(super) fn address(&self) -> u64 {
        self.host as u64
    }

    fn cell(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: it is within the memory, aligned, and as long-lived; everybody here uses it by atomic operations.
        (index < self.len).then(|| unsafe { AtomicU64::from_ptr(self.host.add(index)) })
    }

    /// A number; 0 if there is none. What the device wrote before it can be read then, too.
    pub(super) fn read(&self, index: usize) -> u64 {
        self.cell(index).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    /// Sets these to 0.
    pub(super) fn clear(&self, indices: Range<usize>) {
        for index in indices {
            if let Some(cell) = self.cell(index) {
                cell.store(0, Ordering::Release);
            }
        }
    }
}

// SAFETY: as of streams; the memory is this one's own.
unsafe impl Send for Mailbox {}

impl Drop for Mailbox {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: allocated by `new` and freed once. The executor waits for its stream before it drops this; the driver
        // waits for the device, too.
        ignore(unsafe { sys::cuMemFreeHost(self.host.cast()) });
    }
}

/// PTX, compiled for this device by the driver.
#[derive(Debug)]
pub(super) struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
    /// The size of each kernel's parameters, as its `.entry` declares them.
    entries: BTreeMap<String, Vec<usize>>,
}

impl Module {
    /// Compiles `ptx` of the file `file`.
    pub(super) fn load(
        context: &Arc<Context>,
        file: &str,
        ptx: &str,
    ) -> Result<Arc<Self>, CudaError> {
        let fault = |says: String| CudaError::Ptx { file: file.to_owned(), says };
        let image = CString::new(ptx).map_err(|_| fault("it has a zero byte in it".to_owned()))?;
        let mut log = vec![0_u8; 4096];
        use sys::CUjit_option::*;
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The size is passed in the pointer itself.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut raw = null_mut();
        // SAFETY: the image is a string that ends with a zero; there are two options with a value each,
        // and the log's buffer, of the length that is passed, outlives the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut raw,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if let Err(error) = check("cuModuleLoadDataEx", result) {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            return Err(match log.trim() {
                "" => fault(error.to_string()),
                log => fault(format!("{error}: {log}")),
            });
        }
        let context = Arc::clone(context);
        Ok(Arc::new(Self { context, raw, entries: super::ptx::entries(ptx) }))
    }

    /// A kernel of this name.
    pub(super) fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        let missing = || CudaError::NoKernel { kernel: name.to_owned() };
        let parameters = self.entries.get(name).ok_or_else(missing)?.clone();
        if parameters.len() > MAX_ARGS {
            let given = Vec::new();
            return Err(CudaError::Arguments { kernel: name.to_owned(), takes: parameters, given });
        }
        let text = CString::new(name).map_err(|_| missing())?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle that outlives the call; the name ends with a zero.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut raw, self.raw, text.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        let attribute = |which| {
            let mut value: c_int = 0;
            // SAFETY: the pointer is to an int that outlives the call.
            let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, which, raw) };
            check("cuFuncGetAttribute", result).map(|()| u32::try_from(value).unwrap_or(0))
        };
        use sys::CUfunction_attribute::*;
        Ok(Function {
            registers: attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared: attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            _module: Arc::clone(self),
            raw,
            name: name.to_owned(),
            parameters,
        })
    }
}

// SAFETY: as of contexts: what is compiled doesn't change.
unsafe impl Send for Module {}
// SAFETY: likewise.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: loaded by `load`, unloaded once; its functions hold an `Arc` of this.
        ignore(unsafe { sys::cuModuleUnload(self.raw) });
    }
}

/// A kernel, compiled for this device by the driver.
#[derive(Debug)]
pub(super) struct Function {
    /// Its module, which must live as long.
    _module: Arc<Module>,
    raw: sys::CUfunction,
    pub(super) name: String,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
    /// Registers of a thread.
    pub(super) registers: u32,
    /// Bytes of local memory of a thread, where it spills what doesn't fit its registers.
    pub(super) local_bytes: u32,
    /// Bytes of shared memory of a block that the source declares.
    pub(super) static_shared: u32,
}

// SAFETY: as of modules.
unsafe impl Send for Function {}
// SAFETY: likewise.
unsafe impl Sync for Function {}

/// The most parameters of a kernel.
pub(super) const MAX_ARGS: usize = 24;

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Arg {
    /// An address on the device.
    Address(u64),
    U32(u32),
    F32(f32),
}

impl Arg {
    fn len(self) -> usize {
        match self {
            Self::Address(_) => 8,
            Self::U32(_) | Self::F32(_) => 4,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Address(address) => address,
            Self::U32(number) => number.into(),
            Self::F32(number) => number.to_bits().into(),
        }
    }
}

// See `launch`.
const _: () = assert!(cfg!(target_endian = "little"));

/// A node of a graph, by the driver's handle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node(usize);

#[cfg(test)]
impl Node {
    /// A node of no graph.
    pub(super) fn numbered(number: usize) -> Self {
        Self(number)
    }
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// Runs a kernel.
    Kernel(Launch),
    /// Records the time.
    EventRecord,
    /// Something else, by the driver's number for it.
    Other(u32),
}

/// A captured graph.
pub(super) struct Graph {
    context: Arc<Context>,
    raw: sys::CUgraph,
}

impl Graph {
    /// All nodes, in no particular order.
    pub(super) fn nodes(&self) -> Result<Vec<(Node, NodeKind)>, CudaError> {
        let mut n = 0;
        // SAFETY: without an array the call only counts.
        let result = unsafe { sys::cuGraphGetNodes(self.raw, null_mut(), &raw mut n) };
        check("cuGraphGetNodes", result)?;
        let mut nodes = vec![null_mut(); n];
        // SAFETY: the array has `n` elements.
        let result = unsafe { sys::cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &raw mut n) };
        check("cuGraphGetNodes", result)?;
        nodes.truncate(n);
        nodes.into_iter().map(|node| Ok((Node(node as usize), kind_of(node)?))).collect()
    }

    /// The graph, ready to be launched.
    pub(super) fn instantiate(self) -> Result<GraphExec, CudaError> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a handle that outlives the call; there are no flags.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0) };
        check("cuGraphInstantiate", result)?;
        Ok(GraphExec { context: Arc::clone(&self.context), raw, _graph: self })
    }
}

fn kind_of(node: sys::CUgraphNode) -> Result<NodeKind, CudaError> {
    use sys::CUgraphNodeType::*;
    let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node is one of a graph that lives; the pointer outlives the call.
    check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) })?;
    Ok(match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => {
            let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
            // SAFETY: the node is a kernel's, and the pointer outlives the call.
            let result = unsafe { sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()) };
            check("cuGraphKernelNodeGetParams", result)?;
            // SAFETY: it consists of integers and pointers, for which zeros are values.
            let params = unsafe { params.assume_init() };
            NodeKind::Kernel(Launch {
                grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
                block: [params.blockDimX, params.blockDimY, params.blockDimZ],
                shared_bytes: params.sharedMemBytes,
            })
        }
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => NodeKind::EventRecord,
        other => NodeKind::Other(other as u32),
    })
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

// SAFETY: as of streams: it has one owner.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: captured once and destroyed once.
        ignore(unsafe { sys::cuGraphDestroy(self.raw) });
    }
}

/// A graph that can be launched, any number of times.
pub(super) struct GraphExec {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    /// Keeps the handles of its nodes valid.
    _graph: Graph,
}

impl GraphExec {
    /// Uploads the graph, so that the first launch isn't slower.
    pub(super) fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(self.raw, stream.raw) })
    }

    /// Runs all of it once.
    pub(super) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live; what its nodes use is the executor's, which drops this first.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, stream.raw) })
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphExec").finish_non_exhaustive()
    }
}

// SAFETY: likewise.
unsafe impl Send for GraphExec {}

impl Drop for GraphExec {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: instantiated once and destroyed once.
        ignore(unsafe { sys::cuGraphExecDestroy(self.raw) });
    }
}
