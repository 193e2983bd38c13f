//! Kernels: PTX that the driver has compiled, and what a launch gives them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;

use super::super::error::CudaError;
use super::super::ptx;
use super::{Context, check, ignore, ignore_bind};

/// PTX, compiled for this device by the driver.
#[derive(Debug)]
pub(in super::super) struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
    /// The size of each kernel's parameters, as its `.entry` declares them.
    entries: BTreeMap<String, Vec<usize>>,
}

impl Module {
    /// Compiles `ptx` of the file `file`.
    pub(in super::super) fn load(
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
        Ok(Arc::new(Self { context, raw, entries: ptx::entries(ptx) }))
    }

    /// A kernel of this name.
    pub(in super::super) fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
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
pub(in super::super) struct Function {
    /// Its module, which must live as long.
    _module: Arc<Module>,
    pub(super) raw: sys::CUfunction,
    pub(in super::super) name: String,
    /// Bytes of each parameter.
    pub(super) parameters: Vec<usize>,
    /// Registers of a thread.
    pub(in super::super) registers: u32,
    /// Bytes of local memory of a thread, where it spills what doesn't fit its registers.
    pub(in super::super) local_bytes: u32,
    /// Bytes of shared memory of a block that the source declares.
    pub(in super::super) static_shared: u32,
}

// SAFETY: as of modules.
unsafe impl Send for Function {}
// SAFETY: likewise.
unsafe impl Sync for Function {}

/// The most parameters of a kernel.
pub(in super::super) const MAX_ARGS: usize = 24;

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Arg {
    /// An address on the device.
    Address(u64),
    U32(u32),
    F32(f32),
}

impl Arg {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Address(_) => 8,
            Self::U32(_) | Self::F32(_) => 4,
        }
    }

    pub(super) fn word(self) -> u64 {
        match self {
            Self::Address(address) => address,
            Self::U32(number) => number.into(),
            Self::F32(number) => number.to_bits().into(),
        }
    }
}

// See `Stream::launch`.
const _: () = assert!(cfg!(target_endian = "little"));
