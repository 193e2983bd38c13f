//! Kernels: how they are launched, and what runs in their place on the CPU.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// A launch, with its arguments as they were when it was issued.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: (u32, u32, u32),
    pub(crate) block: (u32, u32, u32),
    pub(crate) shared: u32,
    /// The bytes of each argument, in the low ones.
    pub(crate) values: Vec<u64>,
}

impl Launch {
    /// Whether any device runs it: the limits of compute capability 7.5, table "Technical Specifications
    /// per Compute Capability" of the CUDA C++ Programming Guide.
    pub(crate) fn check(&self, name: &str, max_shared: u32) -> Result<(), String> {
        let (x, y, z) = self.grid;
        let (bx, by, bz) = self.block;
        let threads = u64::from(bx) * u64::from(by) * u64::from(bz);
        if x == 0 || y == 0 || z == 0 || x > 0x7fff_ffff || y > 65_535 || z > 65_535 {
            return Err(format!("kernel {name} is launched on a grid of {:?}", self.grid));
        }
        if threads == 0 || threads > 1024 || bz > 64 {
            return Err(format!("kernel {name} is launched with blocks of {:?}", self.block));
        }
        if self.shared > max_shared {
            return Err(format!(
                "kernel {name} asks for {} bytes of shared memory; {max_shared} are allowed",
                self.shared
            ));
        }
        Ok(())
    }
}

/// The kernels, compiled for the CPU: a library with a function `launch_<kernel>` for each.
pub(crate) struct Shim {
    library: *mut c_void,
}

// SAFETY: the handle is only handed to dlsym, which any thread may call.
unsafe impl Send for Shim {}

#[repr(C)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// See `engine/src/executor/cuda/kernels/shim/shim.cpp`.
type Run = unsafe extern "C" fn(Dim3, Dim3, u32, *mut *mut c_void) -> *const c_char;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

impl Shim {
    pub(crate) fn open(path: &OsStr) -> Result<Self, String> {
        let fault = |why: String| format!("{}: {why}", path.display());
        let text = CString::new(path.as_bytes()).map_err(|error| fault(error.to_string()))?;
        // SAFETY: the path ends with a zero; the user who sets it vouches for the library.
        let library = unsafe { dlopen(text.as_ptr(), RTLD_NOW) };
        if !library.is_null() {
            return Ok(Self { library });
        }
        // SAFETY: a failed call has left a text.
        let why = unsafe { CStr::from_ptr(dlerror()) };
        Err(fault(why.to_string_lossy().into_owned()))
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
        // SAFETY: the library is open and the name ends with a zero.
        unsafe { dlsym(self.library, name.as_ptr()) }
    }

    fn find(&self, kernel: &str) -> Option<Run> {
        let found = self.symbol(&format!("launch_{kernel}"));
        // SAFETY: functions of this name have this type, and `None` is null.
        unsafe { std::mem::transmute::<*mut c_void, Option<Run>>(found) }
    }

    /// Tells the kernels of a buffer: they may use no memory that is in none.
    pub(crate) fn add_memory(&self, address: u64, len: usize) {
        let add = self.symbol("shim_add_memory");
        // SAFETY: the function of this name has this type, and `None` is null.
        let add = unsafe {
            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_void, u64)>>(
                add,
            )
        };
        if let Some(add) = add {
            // SAFETY: it notes two numbers.
            unsafe { add(address as *const c_void, len as u64) };
        }
    }

    /// A buffer is no more.
    pub(crate) fn remove_memory(&self, address: u64) {
        let remove = self.symbol("shim_remove_memory");
        // SAFETY: the function of this name has this type, and `None` is null.
        let remove = unsafe {
            std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_void)>>(remove)
        };
        if let Some(remove) = remove {
            // SAFETY: it forgets a number.
            unsafe { remove(address as *const c_void) };
        }
    }

    pub(crate) fn has(&self, kernel: &str) -> bool {
        self.find(kernel).is_some()
    }

    /// Runs a kernel to its end; what it did wrong, if it did.
    pub(crate) fn run(&self, kernel: &str, launch: &Launch) -> Result<(), String> {
        let Some(run) = self.find(kernel) else {
            return Err(format!("the library of kernels has no launch_{kernel}"));
        };
        let mut values = launch.values.clone();
        let mut args: Vec<*mut c_void> =
            values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let dim = |(x, y, z): (u32, u32, u32)| Dim3 { x, y, z };
        // SAFETY: there is a pointer for each parameter of the kernel's PTX, to as many bytes; addresses
        // among them were checked against the allocations.
        let fault =
            unsafe { run(dim(launch.grid), dim(launch.block), launch.shared, args.as_mut_ptr()) };
        if fault.is_null() {
            return Ok(());
        }
        // SAFETY: the text stands until the next launch.
        Err(unsafe { CStr::from_ptr(fault) }.to_string_lossy().into_owned())
    }
}
