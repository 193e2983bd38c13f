//! The functions of `libcupti.so`, with the types of cupti.h.
#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::cupti::{CONCURRENT_KERNEL, Cupti, MAX_LIMIT_REACHED, Record, STRANGER, STRANGER_BYTES};
use crate::driver::{Answer, Fault};
use crate::ffi::{Code, call, end, functions, lock, put};

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

static CALLBACKS: Mutex<Option<(Request, Complete)>> = Mutex::new(None);

/// The buffer that is being handed over: where it is, its bytes, and those of a kernel's record.
static BUFFER: Mutex<Option<(usize, usize, usize)>> = Mutex::new(None);

/// The begin of a kernel's record, up to the newest field that is written. What follows is zeros.
#[repr(C)]
struct KernelRecord {
    kind: u32,
    cache_config: u8,
    shared_memory_config: u8,
    registers: u16,
    partitioned_requested: u32,
    partitioned_executed: u32,
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [i32; 3],
    block: [i32; 3],
    static_shared: i32,
    dynamic_shared: i32,
    local_per_thread: u32,
    local_total: u32,
    correlation: u32,
    grid_id: i64,
    name: u64,
    reserved: u64,
    queued: u64,
    submitted: u64,
    launch_type: [u8; 4],
    shared_executed: u32,
    node: u64,
    shmem_limit: u32,
    graph: u32,
}

/// As gcc has them, of the headers of 12.0 to 13.5.
const _: () = {
    assert!(offset_of!(KernelRecord, start) == 16 && offset_of!(KernelRecord, end) == 24);
    assert!(offset_of!(KernelRecord, device) == 40 && offset_of!(KernelRecord, stream) == 48);
    assert!(offset_of!(KernelRecord, correlation) == 92 && offset_of!(KernelRecord, name) == 104);
    assert!(offset_of!(KernelRecord, node) == 144 && offset_of!(KernelRecord, graph) == 156);
};

/// As [`call`], of CUPTI.
fn on<T>(name: &str, run: impl FnOnce(&mut Cupti) -> Answer<T>, put: impl FnOnce(T)) -> Code {
    call(name, |driver| run(&mut driver.cupti), put)
}

fn ints((x, y, z): (u32, u32, u32)) -> [i32; 3] {
    [x, y, z].map(|n| n as i32)
}

/// Writes a stranger and the records; how many bytes they are.
///
/// # Safety
///
/// The buffer has as many bytes, zeros, and is aligned to 8.
unsafe fn fill(buffer: *mut u8, records: &[Record], record_bytes: usize) -> usize {
    // SAFETY: as the caller says.
    unsafe { buffer.cast::<u32>().write(STRANGER) };
    let mut at = STRANGER_BYTES;
    for record in records {
        let value = KernelRecord {
            kind: CONCURRENT_KERNEL,
            cache_config: 0,
            shared_memory_config: 0,
            registers: 32,
            partitioned_requested: 0,
            partitioned_executed: 0,
            start: record.start,
            end: record.end,
            completed: record.end,
            device: 0,
            context: 1,
            stream: record.stream,
            grid: ints(record.launch.grid),
            block: ints(record.launch.block),
            static_shared: 0,
            dynamic_shared: record.launch.shared as i32,
            local_per_thread: 0,
            local_total: 0,
            correlation: record.correlation,
            grid_id: 0,
            name: record.name,
            reserved: 0,
            queued: 0,
            submitted: 0,
            launch_type: [0; 4],
            shared_executed: 0,
            node: record.node,
            shmem_limit: 0,
            graph: u32::from(record.node != 0),
        };
        // SAFETY: as the caller says; sizes of records are multiples of 8.
        unsafe { buffer.add(at).cast::<KernelRecord>().write(value) };
        at += record_bytes;
    }
    at
}

/// Asks for buffers for all, fills them, and hands them over, the last first.
fn deliver(buffers: Vec<Vec<Record>>) {
    let Some((request, complete)) = *lock(&CALLBACKS) else { return };
    let mut filled = Vec::new();
    for records in buffers {
        let (mut buffer, mut size, mut max) = (null_mut(), 0, 0);
        // SAFETY: the program's own callback; the pointers are to variables that outlive the call.
        unsafe { request(&raw mut buffer, &raw mut size, &raw mut max) };
        let (mut fits, mut record_bytes) = (false, 0);
        on(
            "a request for a buffer",
            |cupti| {
                record_bytes = cupti.record_bytes();
                cupti.requested(buffer as u64, size, records.len())
            },
            |it_does| fits = it_does,
        );
        if fits {
            // SAFETY: it was checked against what is written.
            let len = unsafe { fill(buffer, &records, record_bytes) };
            filled.push((buffer as usize, size, len, record_bytes));
        }
    }
    // From a thread of its own, which the flush waits for.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (buffer, size, len, record_bytes) in filled.into_iter().rev() {
                *lock(&BUFFER) = Some((buffer, len, record_bytes));
                // SAFETY: the program's own callback, with a buffer of its own.
                unsafe { complete(null_mut(), 0, buffer as *mut u8, size, len) };
                *lock(&BUFFER) = None;
            }
        });
    });
}

functions! {
    cuptiGetVersion(version: *mut u32) {
        // SAFETY: the caller's pointer.
        on("cuptiGetVersion", |cupti| Ok(cupti.settings.version), |n| unsafe { put(version, n) })
    }

    cuptiGetResultString(code: Code, text: *mut *const c_char) {
        let words: &CStr = match code {
            0 => c"CUPTI_SUCCESS",
            MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
            39 => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            _ => c"CUPTI_ERROR_UNKNOWN",
        };
        // SAFETY: the caller's pointer.
        unsafe { put(text, words.as_ptr()) };
        0
    }

    cuptiGetTimestamp(timestamp: *mut u64) {
        // SAFETY: the caller's pointer.
        call("cuptiGetTimestamp", |driver| Ok(driver.now()), |now| unsafe { put(timestamp, now) })
    }

    cuptiActivityRegisterCallbacks(request: Option<Request>, complete: Option<Complete>) {
        let both = request.zip(complete);
        on("cuptiActivityRegisterCallbacks", |cupti| cupti.register(both.is_some()), |()| {
            *lock(&CALLBACKS) = both;
        })
    }

    cuptiActivityEnable(kind: u32) {
        on("cuptiActivityEnable", |cupti| cupti.enable(kind), drop)
    }

    cuptiActivityDisable(kind: u32) {
        on("cuptiActivityDisable", |cupti| cupti.disable(kind), drop)
    }

    cuptiActivityFlushAll(_flag: u32) {
        let mut buffers = Vec::new();
        let code = on("cuptiActivityFlushAll", Cupti::flush, |all| buffers = all);
        // Not while the driver is locked: the program calls back.
        deliver(buffers);
        on("the end of a flush", Cupti::delivered, drop);
        code
    }

    cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: u32, n: *mut usize) {
        let name = "cuptiActivityGetNumDroppedRecords";
        // SAFETY: the caller's pointer.
        on(name, Cupti::take_dropped, |dropped| unsafe { put(n, dropped as usize) })
    }

    cuptiActivityGetNextRecord(buffer: *mut u8, len: usize, record: *mut *mut u8) {
        let fault = |what: &str| end(Fault::Illegal(format!("cuptiActivityGetNextRecord {what}")));
        let Some((at, of, kernel_bytes)) = *lock(&BUFFER) else {
            fault("of a buffer that is not being handed over")
        };
        if buffer as usize != at || len != of {
            fault("of a buffer that is not being handed over");
        }
        // SAFETY: the caller's pointer, to the record before or to nothing.
        let last = unsafe { record.read() } as usize;
        let next = match last {
            0 => at,
            // A record's kind says how long it is.
            inside if (at..at + of).contains(&inside) => {
                // SAFETY: it is in the buffer, where a record was written.
                match unsafe { (inside as *const u32).read() } {
                    STRANGER => inside + STRANGER_BYTES,
                    CONCURRENT_KERNEL => inside + kernel_bytes,
                    _ => fault("after something that is no record"),
                }
            }
            _ => fault("after a record of another buffer"),
        };
        if next >= at + of {
            return MAX_LIMIT_REACHED;
        }
        // SAFETY: the caller's pointer, and a place in its buffer.
        unsafe { record.write(buffer.add(next - at)) };
        0
    }
}

// Enums of C are ints.
const _: () = assert!(size_of::<c_int>() == size_of::<u32>());
