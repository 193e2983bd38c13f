//! The functions of `libcuda.so.1`, with the types of cuda.h 12.0.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::capture::NodeWork;
use crate::cupti;
use crate::driver::{Answer, Driver, Fault, L2_BYTES, Settings};
use crate::launch::Launch;

pub(crate) type Code = u32;
type Handle = *mut c_void;

const VERSION: c_int = 12_000;

struct Process {
    driver: Mutex<Driver>,
    log: Option<Mutex<File>>,
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let settings = Settings {
            devices: number("FAKE_CUDA_DEVICES").and_then(|n| u32::try_from(n).ok()),
            memory: number("FAKE_CUDA_MEMORY"),
            lose_at: number("FAKE_CUDA_LOSE_AT"),
            event_ns: number("FAKE_CUDA_EVENT_NS"),
            has_stray: std::env::var_os("FAKE_CUDA_STRAY_NODE").is_some(),
            kernels: std::env::var_os("FAKE_CUDA_KERNELS"),
            slowness: number("FAKE_CUDA_SLOWNESS"),
            takes_time: std::env::var_os("FAKE_CUDA_TAKES_TIME").is_some(),
            cupti: cupti::Settings {
                version: number("FAKE_CUPTI_VERSION").map_or(28, |n| n as u32),
                per_buffer: number("FAKE_CUPTI_PER_BUFFER").map_or(64, |n| n as usize),
                drop: number("FAKE_CUPTI_DROP"),
                untimed: number("FAKE_CUPTI_UNTIMED"),
                stretch: std::env::var("FAKE_CUPTI_STRETCH").ok().and_then(|text| {
                    let (kernel, percent) = text.split_once(' ')?;
                    Some((kernel.to_owned(), percent.parse().ok()?))
                }),
                refuse: number("FAKE_CUPTI_REFUSE").map(|n| n as u32),
            },
        };
        let driver = Driver::new(settings).unwrap_or_else(|fault| end(fault));
        let log = std::env::var_os("FAKE_CUDA_LOG").map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(&path);
            Mutex::new(file.unwrap_or_else(|error| {
                end(Fault::Illegal(format!("{}: {error}", path.display())))
            }))
        });
        Process { driver: Mutex::new(driver), log }
    })
}

/// Ends the process: a program that made an illegal call is wrong, whatever comes next.
pub(crate) fn end(fault: Fault) -> ! {
    let what = match fault {
        Fault::Illegal(what) => what,
        Fault::Code(code) => format!("error {code}"),
    };
    eprintln!("fake CUDA driver: {what}");
    std::process::abort()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call, and logs its name.
pub(crate) fn call<T>(
    name: &str,
    run: impl FnOnce(&mut Driver) -> Answer<T>,
    put: impl FnOnce(T),
) -> Code {
    let process = process();
    if let Some(log) = &process.log {
        let line = format!("{name}\n");
        let mut log = lock(log);
        if let Err(error) = log.write_all(line.as_bytes()) {
            end(Fault::Illegal(format!("the log can't be written: {error}")));
        }
    }
    let mut driver = lock(&process.driver);
    driver.call();
    let answer = run(&mut driver);
    match answer {
        Ok(value) => {
            put(value);
            0
        }
        Err(Fault::Code(code)) => code,
        Err(illegal) => end(illegal),
    }
}

fn handle(number: u64) -> Handle {
    number as Handle
}

fn number<T>(handle: *mut T) -> u64 {
    handle as u64
}

/// Writes a result to the caller's pointer, unless that is null.
///
/// # Safety
///
/// `out` is null or valid for a write.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as the caller says.
        unsafe { out.write(value) };
    }
}

/// Defines functions of the driver, or of CUPTI. Each is called as their headers say, with pointers that are valid for what
/// it writes or reads.
macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            // SAFETY: the name is that of the library which this one stands for.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> Code $body
        )*
    };
}
pub(crate) use functions;

functions! {
    cuInit(flags: c_uint) {
        call("cuInit", |driver| {
            if flags != 0 {
                return Err(Fault::Illegal("cuInit with flags".to_owned()));
            }
            driver.init()
        }, drop)
    }

    cuDriverGetVersion(version: *mut c_int) {
        // SAFETY: the caller's pointer.
        unsafe { put(version, VERSION) };
        0
    }

    cuDeviceGetCount(count: *mut c_int) {
        // SAFETY: the caller's pointer.
        call("cuDeviceGetCount", |driver| Ok(driver.devices), |n| unsafe { put(count, n as c_int) })
    }

    cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        // SAFETY: the caller's pointer.
        call("cuDeviceGet", |driver| driver.device(ordinal), |n| unsafe { put(device, n) })
    }

    cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) {
        call("cuDeviceGetName", |driver| driver.device(device), |_| {
            let text = b"Fake CUDA device\0";
            let n = text.len().min(usize::try_from(len).unwrap_or(0));
            // SAFETY: the caller's buffer has `len` bytes.
            unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n) };
        })
    }

    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        call("cuDeviceGetAttribute", |driver| driver.device(device), |_| {
            let answer = match attribute {
                // COMPUTE_CAPABILITY_MAJOR and _MINOR.
                75 => 7,
                76 => 5,
                // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN.
                97 => 64 << 10,
                // MULTIPROCESSOR_COUNT.
                16 => 1,
                // L2_CACHE_SIZE.
                38 => L2_BYTES,
                _ => 0,
            };
            // SAFETY: the caller's pointer.
            unsafe { put(value, answer) };
        })
    }

    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        let total = |driver: &mut Driver| driver.device(device).map(|_| driver.total_bytes());
        // SAFETY: the caller's pointer.
        call("cuDeviceTotalMem", total, |n| unsafe { put(bytes, n as usize) })
    }

    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        let name = "cuDevicePrimaryCtxRetain";
        // SAFETY: the caller's pointer.
        call(name, |driver| driver.retain(device), |n| unsafe { put(context, handle(n)) })
    }

    cuDevicePrimaryCtxRelease_v2(device: c_int) {
        call("cuDevicePrimaryCtxRelease", |driver| driver.release(device), drop)
    }

    cuCtxSetCurrent(context: Handle) {
        call("cuCtxSetCurrent", |driver| driver.set_current(number(context)), drop)
    }

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        call("cuMemGetInfo", |driver| Ok((driver.free_bytes(), driver.total_bytes())), |(f, t)| {
            // SAFETY: the caller's pointers.
            unsafe {
                put(free, f as usize);
                put(total, t as usize);
            }
        })
    }

    cuMemAlloc_v2(address: *mut c_ulonglong, len: usize) {
        // SAFETY: the caller's pointer.
        call("cuMemAlloc", |driver| driver.allocate(len), |at| unsafe { put(address, at) })
    }

    cuMemFree_v2(address: c_ulonglong) {
        call("cuMemFree", |driver| driver.free(address), drop)
    }

    cuMemAllocHost_v2(address: *mut *mut c_void, len: usize) {
        let name = "cuMemAllocHost";
        // SAFETY: the caller's pointer.
        call(name, |driver| driver.allocate_host(len), |at| unsafe { put(address, handle(at)) })
    }

    cuMemFreeHost(address: *mut c_void) {
        call("cuMemFreeHost", |driver| driver.free_host(number(address)), drop)
    }

    cuMemcpyHtoDAsync_v2(to: c_ulonglong, from: *const c_void, len: usize, stream: Handle) {
        let name = "cuMemcpyHtoDAsync";
        call(name, |driver| driver.copy(name, number(stream), to, len), |()| {
            // SAFETY: the range was checked against the allocations, and the caller's has `len` bytes.
            unsafe { (to as *mut u8).copy_from_nonoverlapping(from.cast(), len) };
        })
    }

    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: c_ulonglong, len: usize, stream: Handle) {
        let name = "cuMemcpyDtoHAsync";
        call(name, |driver| driver.copy(name, number(stream), from, len), |()| {
            // SAFETY: likewise.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(from as *const u8, len) };
        })
    }

    cuMemsetD8Async(to: c_ulonglong, value: u8, len: usize, stream: Handle) {
        let name = "cuMemsetD8Async";
        call(name, |driver| driver.copy(name, number(stream), to, len), |()| {
            // SAFETY: the range was checked against the allocations.
            unsafe { (to as *mut u8).write_bytes(value, len) };
        })
    }

    cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        _n_options: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void
    ) {
        // SAFETY: the caller's image is PTX, which ends with a zero.
        let ptx = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        // SAFETY: the caller's pointer.
        call("cuModuleLoadDataEx", |driver| driver.load(&ptx), |n| unsafe { put(module, handle(n)) })
    }

    cuModuleUnload(module: Handle) {
        call("cuModuleUnload", |driver| driver.unload(number(module)), drop)
    }

    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        // SAFETY: the caller's text.
        let kernel = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let find = |driver: &mut Driver| driver.function(number(module), &kernel);
        // SAFETY: the caller's pointer.
        call("cuModuleGetFunction", find, |n| unsafe { put(function, handle(n)) })
    }

    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: Handle) {
        let name = "cuFuncGetAttribute";
        call(name, |driver| driver.known(name, number(function)).map(|_| ()), |()| {
            // NUM_REGS, as of any kernel; there is no local memory.
            // SAFETY: the caller's pointer.
            unsafe { put(value, if attribute == 4 { 32 } else { 0 }) };
        })
    }

    cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) {
        call("cuFuncSetAttribute", |driver| match attribute {
            // MAX_DYNAMIC_SHARED_SIZE_BYTES.
            8 => driver.allow_shared(number(function), u32::try_from(value).unwrap_or(u32::MAX)),
            _ => Ok(()),
        }, drop)
    }

    cuLaunchKernel(
        function: Handle,
        x: c_uint,
        y: c_uint,
        z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        _extra: *mut *mut c_void
    ) {
        call("cuLaunchKernel", |driver| {
            let sizes = driver.known("cuLaunchKernel", number(function))?.parameters.clone();
            let values = sizes.iter().enumerate().map(|(index, &bytes)| {
                let mut value = [0_u8; 8];
                let n = bytes.min(8);
                // SAFETY: the caller has a pointer for each parameter, to as many bytes as it has.
                unsafe {
                    let from = (*params.add(index)).cast::<u8>();
                    value.as_mut_ptr().copy_from_nonoverlapping(from, n);
                }
                u64::from_ne_bytes(value)
            });
            let launch = Launch {
                function: number(function),
                grid: (x, y, z),
                block: (block_x, block_y, block_z),
                shared,
                values: values.collect(),
            };
            driver.launch(number(stream), launch)
        }, drop)
    }

    cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        // SAFETY: the caller's pointer.
        call("cuStreamCreate", Driver::create_stream, |n| unsafe { put(stream, handle(n)) })
    }

    cuStreamDestroy_v2(stream: Handle) {
        call("cuStreamDestroy", |driver| driver.destroy_stream(number(stream)), drop)
    }

    cuStreamSynchronize(stream: Handle) {
        call("cuStreamSynchronize", |driver| driver.synchronize_stream(number(stream)), drop)
    }

    cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        let wait = |driver: &mut Driver| driver.wait_event(number(stream), number(event));
        call("cuStreamWaitEvent", wait, drop)
    }

    cuStreamBeginCapture_v2(stream: Handle, _mode: c_uint) {
        call("cuStreamBeginCapture", |driver| driver.begin_capture(number(stream)), drop)
    }

    cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let end = |driver: &mut Driver| driver.end_capture(number(stream));
        // SAFETY: the caller's pointer.
        call("cuStreamEndCapture", end, |n| unsafe { put(graph, handle(n)) })
    }

    cuStreamIsCapturing(stream: Handle, status: *mut c_uint) {
        let ask = |driver: &mut Driver| driver.is_capturing(number(stream));
        // SAFETY: the caller's pointer.
        call("cuStreamIsCapturing", ask, |is| unsafe { put(status, c_uint::from(is)) })
    }

    cuStreamGetCaptureInfo_v2(
        stream: Handle,
        status: *mut c_uint,
        _id: *mut c_ulonglong,
        _graph: *mut Handle,
        nodes: *mut *const Handle,
        n_nodes: *mut usize
    ) {
        let ask = |driver: &mut Driver| {
            let captured = driver.capture_of(number(stream))?;
            // What the next node depends on: the last one. The array stays until the next call.
            let last = captured.map(|graph| graph.handles().last().map(|last| &raw const *last));
            Ok(last)
        };
        call("cuStreamGetCaptureInfo", ask, |last| {
            let node = last.flatten();
            // SAFETY: the caller's pointers.
            unsafe {
                put(status, c_uint::from(last.is_some()));
                put(n_nodes, usize::from(node.is_some()));
                put(nodes, node.map_or(std::ptr::null(), <*const u64>::cast));
            }
        })
    }

    cuEventCreate(event: *mut Handle, flags: c_uint) {
        let create = |driver: &mut Driver| driver.create_event(flags);
        // SAFETY: the caller's pointer.
        call("cuEventCreate", create, |n| unsafe { put(event, handle(n)) })
    }

    cuEventDestroy_v2(event: Handle) {
        call("cuEventDestroy", |driver| driver.destroy_event(number(event)), drop)
    }

    cuEventRecord(event: Handle, stream: Handle) {
        let record = |driver: &mut Driver| driver.record(number(event), number(stream), false);
        call("cuEventRecord", record, drop)
    }

    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        let record = |driver: &mut Driver| driver.record(number(event), number(stream), flags == 1);
        call("cuEventRecordWithFlags", record, drop)
    }

    cuEventSynchronize(event: Handle) {
        call("cuEventSynchronize", |driver| driver.synchronize_event(number(event)), drop)
    }

    cuEventQuery(event: Handle) {
        call("cuEventQuery", |driver| driver.query_event(number(event)), drop)
    }

    cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle) {
        let elapsed = |driver: &mut Driver| driver.elapsed(number(start), number(end));
        // SAFETY: the caller's pointer.
        call("cuEventElapsedTime", elapsed, |time| unsafe { put(ms, time) })
    }

    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, n_nodes: *mut usize) {
        let all = |driver: &mut Driver| {
            let graph = driver.graph(number(graph))?;
            // In no order that a caller may count on.
            Ok(graph.handles().iter().rev().copied().collect::<Vec<u64>>())
        };
        call("cuGraphGetNodes", all, |found| {
            // SAFETY: the caller's number, which says how many the array has room for.
            unsafe {
                if !nodes.is_null() {
                    for (index, &node) in found.iter().take(n_nodes.read()).enumerate() {
                        nodes.add(index).write(handle(node));
                    }
                }
                put(n_nodes, found.len());
            }
        })
    }

    cuGraphNodeGetType(node: Handle, kind: *mut c_uint) {
        let ask = |driver: &mut Driver| {
            Ok(match driver.node(number(node))?.work {
                NodeWork::Kernel(_) => 0,
                NodeWork::Record(_) => 7,
            })
        };
        // SAFETY: the caller's pointer.
        call("cuGraphNodeGetType", ask, |n| unsafe { put(kind, n) })
    }

    cuGraphKernelNodeGetParams_v2(node: Handle, params: *mut KernelNodeParams) {
        let ask = |driver: &mut Driver| match &driver.node(number(node))?.work {
            NodeWork::Kernel(launch) => Ok(launch.clone()),
            NodeWork::Record(_) => Err(Fault::Illegal("a node that is no kernel's".to_owned())),
        };
        call("cuGraphKernelNodeGetParams", ask, |launch| {
            let ((x, y, z), (bx, by, bz)) = (launch.grid, launch.block);
            let null = std::ptr::null_mut();
            let value = KernelNodeParams {
                function: handle(launch.function),
                grid: [x, y, z],
                block: [bx, by, bz],
                shared: launch.shared,
                pointers: [null; 4],
            };
            // SAFETY: the caller's pointer.
            unsafe { put(params, value) };
        })
    }

    cuGraphDestroy(graph: Handle) {
        call("cuGraphDestroy", |driver| driver.destroy_graph(number(graph)), drop)
    }

    cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _flags: c_ulonglong) {
        let make = |driver: &mut Driver| driver.instantiate(number(graph));
        // SAFETY: the caller's pointer.
        call("cuGraphInstantiate", make, |n| unsafe { put(exec, handle(n)) })
    }

    cuGraphUpload(exec: Handle, stream: Handle) {
        call("cuGraphUpload", |driver| driver.upload_graph(number(exec), number(stream)), drop)
    }

    cuGraphLaunch(exec: Handle, stream: Handle) {
        call("cuGraphLaunch", |driver| driver.launch_graph(number(exec), number(stream)), drop)
    }

    cuGraphExecDestroy(exec: Handle) {
        call("cuGraphExecDestroy", |driver| driver.destroy_exec(number(exec)), drop)
    }

    cuGetErrorName(code: c_uint, text: *mut *const c_char) {
        // SAFETY: the caller's pointer.
        unsafe { put(text, words_for(code).as_ptr()) };
        0
    }

    cuGetErrorString(code: c_uint, text: *mut *const c_char) {
        // SAFETY: the caller's pointer.
        unsafe { put(text, words_for(code).as_ptr()) };
        0
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
struct KernelNodeParams {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    /// Arguments, extra, kernel, context.
    pointers: [*mut c_void; 4],
}

fn words_for(code: u32) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"invalid argument",
        2 => c"out of memory",
        3 => c"initialization error",
        100 => c"no CUDA-capable device is detected",
        101 => c"invalid device ordinal",
        218 => c"a PTX JIT compilation failed",
        500 => c"named symbol not found",
        600 => c"device not ready",
        719 => c"unspecified launch failure",
        _ => c"an error of the fake driver",
    }
}

// The array that a capture hands out is one of handles.
const _: () = assert!(size_of::<Handle>() == size_of::<u64>());
