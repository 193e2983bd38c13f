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

mod compiled;
mod graph;
mod memory;

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

pub(super) use self::compiled::{Arg, Function, MAX_ARGS, Module};
use self::graph::Graph;
pub(super) use self::graph::{GraphExec, Node, NodeKind};
pub(super) use self::memory::{Buffer, Download, Mailbox};
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
