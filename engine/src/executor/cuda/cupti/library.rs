//! CUPTI's library: every call into it, its callbacks, and all `unsafe` of its use.
//!
//! It doesn't come with the driver but with toolkits and Python wheels. So it is searched for on first use, and
//! every function is looked up before it is called. It stays loaded, since it has threads.
//!
//! Codes and kinds are read as numbers, as a library newer than `cudarc`'s enums may return others.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::env;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::cupti::sys;
use cudarc::cupti::sys::{CUpti_ActivityKernel5, CUpti_ActivityKernel9, CUpti_ActivityKind};
use libloading::Library;

use super::{CuptiError, Sink};
use crate::executor::cuda::driver;

/// Names the library's file. If set, no other is tried.
const VARIABLE: &str = "BRICKSCOPE_CUPTI";

/// Bytes of a buffer: NVIDIA advises 1 to 10 MB.
const BUFFER_BYTES: usize = 1 << 20;

/// The most buffers that CUPTI may hold at once, in versions that accept getting none.
const MAX_BUFFERS: usize = 64;

/// From this version on (CUDA 12.9), CUPTI drops and counts records if it gets no buffer. Earlier versions
/// may crash, so they get one as long as there is memory.
const MAY_BE_DECLINED: u32 = 27;

const KERNELS: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32;

/// `CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: also flushes incomplete records.
const FORCED: u32 = sys::CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_FLUSH_FORCED as u32;

const SUCCESS: Code = sys::CUptiResult::CUPTI_SUCCESS as Code;
const NO_MORE: Code = sys::CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED as Code;

type Code = u32;
type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions that are called, with the types of cupti.h.
pub(super) struct Functions {
    /// CUPTI_API_VERSION of the library.
    pub(super) version: u32,
    register: unsafe extern "C" fn(Request, Complete) -> Code,
    enable: unsafe extern "C" fn(u32) -> Code,
    disable: unsafe extern "C" fn(u32) -> Code,
    flush: unsafe extern "C" fn(u32) -> Code,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Code,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Code,
    timestamp: unsafe extern "C" fn(*mut u64) -> Code,
    words: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    _library: ManuallyDrop<Library>,
}

/// The library, loaded on first use.
pub(super) fn functions() -> Result<&'static Functions, CuptiError> {
    static FUNCTIONS: OnceLock<Result<Functions, CuptiError>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, CuptiError> {
    // CUPTI calls the driver, which it loads by itself.
    let driver = driver::probe().and_then(|_| driver::version());
    let driver = driver.map_err(|error| CuptiError::Driver(Box::new(error)))?;
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let file = Path::new(&path).display().to_string();
        // SAFETY: loading runs the library's initialisers; the user who names it vouches for it.
        return match unsafe { Library::new(&path) } {
            Ok(library) => Functions::find_in(library, &file),
            Err(error) => Err(CuptiError::NoSuchLibrary { file, says: one_line(&error) }),
        };
    }
    let folders = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os);
    let mut refusal = CuptiError::NoLibrary;
    for name in names(driver / 1000, folders) {
        // SAFETY: as above; it is the system's or the toolkit's.
        let Ok(library) = (unsafe { Library::new(&name) }) else { continue };
        match Functions::find_in(library, &name.display().to_string()) {
            Ok(functions) => return Ok(functions),
            // Another one may be of a known version.
            Err(why) => refusal = why,
        }
    }
    Err(refusal)
}

/// Where to look: along the loader's path, for the driver's CUDA version first, then in toolkits.
fn names(major: u32, toolkits: impl Iterator<Item = OsString>) -> Vec<PathBuf> {
    if cfg!(windows) {
        // The file's name has the year and number of its release.
        return Vec::new();
    }
    let mut majors = vec![major, 13, 12];
    majors.retain(|n| [12, 13].contains(n));
    majors.dedup();
    let plain = "libcupti.so".to_owned();
    let by_loader = majors.iter().map(|n| format!("{plain}.{n}")).chain([plain.clone()]);
    let mut names: Vec<PathBuf> = by_loader.map(PathBuf::from).collect();
    for toolkit in toolkits.chain(["/usr/local/cuda".into()]) {
        for folder in ["extras/CUPTI/lib64", "lib64"] {
            names.push(Path::new(&toolkit).join(folder).join(&plain));
        }
    }
    names
}

fn one_line(error: &libloading::Error) -> String {
    error.to_string().replace('\n', " ")
}

impl Functions {
    fn find_in(library: Library, file: &str) -> Result<Self, CuptiError> {
        // Never unloaded, even if its version turns out to be unknown: it may have threads by then.
        let library = ManuallyDrop::new(library);
        /// The address of a function of this type.
        ///
        /// # Safety
        ///
        /// The library's function of this name has this type.
        unsafe fn find<F: Copy>(
            library: &Library,
            file: &str,
            symbol: &'static str,
        ) -> Result<F, CuptiError> {
            // SAFETY: as the caller says.
            let found = unsafe { library.get::<F>(symbol) };
            found
                .map(|function| *function)
                .map_err(|_| CuptiError::NoSymbol { file: file.to_owned(), symbol })
        }
        // SAFETY: the types are those of cupti.h, where enums are ints and handles pointers.
        let functions = unsafe {
            let get_version: unsafe extern "C" fn(*mut u32) -> Code =
                find(&library, file, "cuptiGetVersion")?;
            let words = find(&library, file, "cuptiGetResultString")?;
            let mut version = 0;
            check(words, "cuptiGetVersion", get_version(&raw mut version))?;
            Self {
                version,
                register: find(&library, file, "cuptiActivityRegisterCallbacks")?,
                enable: find(&library, file, "cuptiActivityEnable")?,
                disable: find(&library, file, "cuptiActivityDisable")?,
                flush: find(&library, file, "cuptiActivityFlushAll")?,
                next: find(&library, file, "cuptiActivityGetNextRecord")?,
                dropped: find(&library, file, "cuptiActivityGetNumDroppedRecords")?,
                timestamp: find(&library, file, "cuptiGetTimestamp")?,
                words,
                _library: library,
            }
        };
        if !is_known(functions.version) {
            return Err(CuptiError::Version { version: functions.version });
        }
        Ok(functions)
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), CuptiError> {
        check(self.words, call, code)
    }

    /// Starts to record kernels: those inside graphs one by one, and without serialising concurrent ones.
    pub(super) fn begin(&self) -> Result<(), CuptiError> {
        // SAFETY: both functions live for ever and do what cupti.h requires of them.
        let code = unsafe { (self.register)(request, complete) };
        self.check("cuptiActivityRegisterCallbacks", code)?;
        // SAFETY: the kind is a number.
        self.check("cuptiActivityEnable", unsafe { (self.enable)(KERNELS) })
    }

    /// Makes CUPTI hand over complete records.
    pub(super) fn flush(&self) -> Result<(), CuptiError> {
        // SAFETY: this is no callback of CUPTI's.
        self.check("cuptiActivityFlushAll", unsafe { (self.flush)(0) })
    }

    /// Stops recording. All records have been handed over when this returns.
    pub(super) fn end(&self) -> Result<(), CuptiError> {
        // SAFETY: the kind is a number.
        let disabled = self.check("cuptiActivityDisable", unsafe { (self.disable)(KERNELS) });
        // Also after an error, to get the records there are.
        // SAFETY: this is no callback of CUPTI's.
        let flushed = self.check("cuptiActivityFlushAll", unsafe { (self.flush)(FORCED) });
        self.count_dropped();
        disabled.and(flushed)
    }

    /// The time by the records' clock.
    pub(super) fn now_ns(&self) -> Result<u64, CuptiError> {
        let mut now = 0;
        // SAFETY: the pointer is to a number that outlives the call.
        self.check("cuptiGetTimestamp", unsafe { (self.timestamp)(&raw mut now) })?;
        Ok(now)
    }

    /// Adds the records that CUPTI has dropped since it was last asked.
    fn count_dropped(&self) {
        let mut dropped = 0;
        // SAFETY: no context stands for all; the pointer is to a number that outlives the call.
        let code = unsafe { (self.dropped)(null_mut(), 0, &raw mut dropped) };
        if let Some(sink) = &mut *sink() {
            if code == SUCCESS {
                sink.records.dropped += dropped as u64;
            } else {
                sink.records.is_count_unknown = true;
            }
        }
    }

    /// Adds the records of a buffer that CUPTI has filled.
    ///
    /// # Safety
    ///
    /// CUPTI has just handed over `buffer`, with `len` bytes of records.
    unsafe fn read(&self, buffer: *mut u8, len: usize, sink: &mut Sink) {
        let mut record: *mut u8 = null_mut();
        loop {
            // SAFETY: the buffer is as the caller says, and the record null or one of it.
            match unsafe { (self.next)(buffer, len, &raw mut record) } {
                SUCCESS if !record.is_null() => {
                    // SAFETY: a record of this buffer.
                    unsafe { read_record(record, sink) };
                }
                SUCCESS | NO_MORE => break,
                // Incomplete, or unknown to the library itself: what follows can't be read.
                _ => {
                    sink.records.cut_short += 1;
                    break;
                }
            }
        }
    }
}

/// Whether this version's records have the layout that is read here.
///
/// The fields that are read have been in place since CUDA 11.1 (`CUpti_ActivityKernel5`), and each version since
/// has only appended to the record: the headers of 12.0 to 12.9 and of 13.0 to 13.5 were checked. A later version may
/// change that, and numbers would be silently wrong.
fn is_known(version: u32) -> bool {
    // 11.8 and 12.0 are both 18, 12.9 is 28; since 13.0 it is 130000 and so on.
    matches!(version, 18..=28 | 130_000..=130_599)
}

/// The bindings of the oldest supported records and of CUDA 12's newest agree on these fields.
const _: () = {
    assert!(offset_of!(CUpti_ActivityKernel5, kind) == 0);
    assert!(offset_of!(CUpti_ActivityKernel9, kind) == 0);
    macro_rules! same_place {
        ($($field:ident)*) => {
            $(assert!(
                offset_of!(CUpti_ActivityKernel5, $field) == offset_of!(CUpti_ActivityKernel9, $field)
            );)*
        };
    }
    same_place!(start end deviceId streamId correlationId name graphNodeId);
};

fn check(
    words: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    call: &'static str,
    code: Code,
) -> Result<(), CuptiError> {
    if code == SUCCESS {
        return Ok(());
    }
    let mut text = null();
    // SAFETY: the pointer is to a pointer that outlives the call; the text is CUPTI's own, static.
    let says = if unsafe { words(code, &raw mut text) } == SUCCESS && !text.is_null() {
        // SAFETY: CUPTI has set it to a string that ends with a zero and lives for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        "an error that CUPTI has no words for".to_owned()
    };
    Err(CuptiError::Call { call, code, says })
}

/// Adds a record.
///
/// # Safety
///
/// It is a record that CUPTI has handed over, whose buffer stays until this returns.
unsafe fn read_record(record: *const u8, sink: &mut Sink) {
    // SAFETY: all records begin with their kind. They are aligned to 8 bytes.
    if unsafe { record.cast::<u32>().read() } != KERNELS {
        sink.records.other_kinds += 1;
        return;
    }
    let kernel = record.cast::<CUpti_ActivityKernel5>();
    // Field by field: enums among the others may have values that the bindings lack.
    // SAFETY: it is a kernel's record of a version whose records begin like this one, see `is_known`.
    let (start_ns, end_ns, device, stream, correlation, node, name) = unsafe {
        (
            (&raw const (*kernel).start).read_unaligned(),
            (&raw const (*kernel).end).read_unaligned(),
            (&raw const (*kernel).deviceId).read_unaligned(),
            (&raw const (*kernel).streamId).read_unaligned(),
            (&raw const (*kernel).correlationId).read_unaligned(),
            (&raw const (*kernel).graphNodeId).read_unaligned(),
            (&raw const (*kernel).name).read_unaligned(),
        )
    };
    if name.is_null() {
        return sink.add("", start_ns, end_ns, device, stream, correlation, node);
    }
    // SAFETY: the kernel's name, which CUPTI keeps for all records of it.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    sink.add(&name, start_ns, end_ns, device, stream, correlation, node);
}

/// Where CUPTI's records go. Its callbacks can't carry a pointer of ours.
static SINK: Mutex<Option<Sink>> = Mutex::new(None);

/// Must not be held over calls that call back, or that wait for a thread that does. Reading a buffer is neither.
pub(super) fn sink() -> MutexGuard<'static, Option<Sink>> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers that CUPTI holds.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

const BUFFER: Layout = match Layout::from_size_align(BUFFER_BYTES, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a buffer's size is a multiple of its alignment"),
};

/// CUPTI's request for a buffer.
unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    let may_be_declined = functions().is_ok_and(|functions| functions.version >= MAY_BE_DECLINED);
    let is_declined = may_be_declined && IN_FLIGHT.load(Ordering::Relaxed) >= MAX_BUFFERS;
    // SAFETY: the layout has a size. Zeroed, so that no uninitialised byte is ever read.
    let memory = if is_declined { null_mut() } else { unsafe { alloc_zeroed(BUFFER) } };
    if !memory.is_null() {
        IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: CUPTI's own pointers, for us to write to.
    unsafe {
        buffer.write(memory);
        size.write(if memory.is_null() { 0 } else { BUFFER_BYTES });
        // As many records as fit.
        max_records.write(0);
    }
}

/// CUPTI's delivery of a filled buffer.
unsafe extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    len: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Ok(functions) = functions() {
        if let Some(sink) = &mut *sink() {
            // SAFETY: it is one of ours, and CUPTI has written `len` bytes of records.
            unsafe { functions.read(buffer, len.min(BUFFER_BYTES), sink) };
        }
        functions.count_dropped();
    }
    IN_FLIGHT.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `request` allocated it, and CUPTI gives it back for good.
    unsafe { dealloc(buffer, BUFFER) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_looked_at_are_known_and_no_others() {
        for version in [18, 22, 28, 130_000, 130_101, 130_500] {
            assert!(is_known(version), "{version}");
        }
        for version in [0, 17, 29, 129_999, 130_600, 140_000] {
            assert!(!is_known(version), "{version}");
        }
    }

    #[test]
    fn fields_are_where_the_headers_have_them() {
        // By gcc, of cupti_activity.h of 12.0 (12.0.90, 12.0.146), 12.1, 12.4, 12.6, 12.8, 12.9, 13.0
        // (13.0.48, 13.0.85), 13.1 and 13.5: all the same.
        let places = [
            offset_of!(CUpti_ActivityKernel5, start),
            offset_of!(CUpti_ActivityKernel5, end),
            offset_of!(CUpti_ActivityKernel5, deviceId),
            offset_of!(CUpti_ActivityKernel5, streamId),
            offset_of!(CUpti_ActivityKernel5, correlationId),
            offset_of!(CUpti_ActivityKernel5, name),
            offset_of!(CUpti_ActivityKernel5, graphNodeId),
        ];
        assert_eq!(places, [16, 24, 40, 48, 92, 104, 144]);
    }

    #[test]
    fn the_library_of_the_drivers_cuda_is_looked_for_first() {
        let of = |major| names(major, ["/opt/cuda".into()].into_iter());
        let first = |major| of(major)[0].display().to_string();
        if cfg!(windows) {
            return assert!(of(12).is_empty());
        }
        assert_eq!(first(12), "libcupti.so.12");
        assert_eq!(first(13), "libcupti.so.13");
        // A driver of the future: the newest that is known.
        assert_eq!(first(14), "libcupti.so.13");
        assert!(of(12).contains(&"/opt/cuda/extras/CUPTI/lib64/libcupti.so".into()));
        assert!(of(12).contains(&"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so".into()));
    }
}
