//! Ranges for NVIDIA's tools, by the protocol of NVTX 3: the tool names a library in the environment of the program that it
//! starts; the program loads it and hands it the places of its functions' addresses, where the library puts those that it
//! wants called. Nothing is linked, and no header is needed.
//!
//! Public names and numbers are those of `nvtxTypes.h`, which is part of NVTX.
#![allow(unsafe_code)]

pub(crate) use self::system::{attach, pop, push};

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::Acquire;

    /// Where a tool says which library it wants loaded.
    const VARIABLE: &str = if cfg!(target_pointer_width = "64") {
        "NVTX_INJECTION64_PATH"
    } else {
        "NVTX_INJECTION32_PATH"
    };

    /// How many functions each module has, counting the 0th, which is none. Modules are numbered from 1: core, CUDA,
    /// OpenCL, CUDA's runtime, core 2, and synchronisation.
    const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
    const MODULES: usize = 7;
    const MOST: usize = 16;

    /// `nvtxRangePushA` and `nvtxRangePop` of the core module.
    const CORE: usize = 1;
    const RANGE_PUSH: usize = 9;
    const RANGE_POP: usize = 11;

    /// The functions that the tool wants called; null where it wants none.
    static CALLS: [[AtomicPtr<c_void>; MOST]; MODULES] =
        [const { [const { AtomicPtr::<c_void>::new(ptr::null_mut()) }; MOST] }; MODULES];

    /// What a table has: the place of an address, or null.
    type Place = Option<&'static AtomicPtr<c_void>>;

    /// A table for each module, with a null behind its last function.
    fn tables() -> &'static [[Place; MOST + 1]; MODULES] {
        static TABLES: OnceLock<[[Place; MOST + 1]; MODULES]> = OnceLock::new();
        TABLES.get_or_init(|| {
            std::array::from_fn(|module| {
                std::array::from_fn(|function| {
                    (1..SIZES[module]).contains(&function).then(|| &CALLS[module][function])
                })
            })
        })
    }

    /// What the tool's library is given: a function from the number of a table of ours to the table.
    type ExportTable = extern "C" fn(u32) -> *const c_void;

    /// The library's function that is called once.
    type Initialize = extern "C" fn(ExportTable) -> c_int;

    #[repr(C)]
    struct Callbacks {
        size: usize,
        function_table: extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
    }

    #[repr(C)]
    struct Version {
        size: usize,
        version: u32,
        reserved: u32,
        set_version_of_tool: extern "C" fn(u32),
    }

    static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), function_table };
    static VERSION: Version =
        Version { size: size_of::<Version>(), version: 3, reserved: 0, set_version_of_tool };

    extern "C" fn set_version_of_tool(_: u32) {}

    extern "C" fn export_table(number: u32) -> *const c_void {
        match number {
            1 => ptr::from_ref(&CALLBACKS).cast(),
            3 => ptr::from_ref(&VERSION).cast(),
            _ => ptr::null(),
        }
    }

    extern "C" fn function_table(
        module: c_uint,
        table: *mut *const c_void,
        size: *mut c_uint,
    ) -> c_int {
        let module = usize::try_from(module).unwrap_or(0);
        let Some(of_module) = tables().get(module).filter(|_| module > 0) else { return 0 };
        if !table.is_null() {
            // SAFETY: the tool's library gives null or a place to write a pointer to. The table lives as long as the program,
            // and a `Place` is a pointer or null.
            unsafe { table.write(of_module.as_ptr().cast()) };
        }
        if !size.is_null() {
            // SAFETY: as above, for a number.
            unsafe { size.write(c_uint::try_from(SIZES[module]).unwrap_or(0)) };
        }
        1
    }

    /// Loads the tool's library, the first time. Its reason, if there is none.
    pub(crate) fn attach() -> Result<(), String> {
        static ATTACHED: OnceLock<Result<(), String>> = OnceLock::new();
        ATTACHED.get_or_init(load).clone()
    }

    fn load() -> Result<(), String> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("no tool asks for ranges: {VARIABLE} is not set"))?;
        let cannot = |what: &str| format!("{VARIABLE} is {}, {what}", path.to_string_lossy());
        let name = CString::new(path.as_bytes()).map_err(|_| cannot("which is no path"))?;
        // SAFETY: the name is a C string. What the library does when it is loaded, is asked for by who set the variable.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return Err(cannot("which can't be loaded"));
        }
        // SAFETY: the library was opened and is never closed; the name is a C string.
        let initialize = unsafe { libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr()) };
        if initialize.is_null() {
            return Err(cannot("which has no InitializeInjectionNvtx2"));
        }
        // SAFETY: a function of that name has this type, by the protocol.
        let initialize = unsafe { std::mem::transmute::<*mut c_void, Initialize>(initialize) };
        if initialize(export_table) == 0 {
            return Err(cannot("which refuses to begin"));
        }
        Ok(())
    }

    /// Begins a range inside of those that are open on this thread.
    pub(crate) fn push(name: &CStr) {
        type Push = extern "C" fn(*const c_char) -> c_int;
        let call = CALLS[CORE][RANGE_PUSH].load(Acquire);
        if !call.is_null() {
            // SAFETY: in this place the tool puts a function of this type, and its library stays loaded.
            let call = unsafe { std::mem::transmute::<*mut c_void, Push>(call) };
            call(name.as_ptr());
        }
    }

    /// Ends the range that began last on this thread.
    pub(crate) fn pop() {
        type Pop = extern "C" fn() -> c_int;
        let call = CALLS[CORE][RANGE_POP].load(Acquire);
        if !call.is_null() {
            // SAFETY: as in `push`.
            let call = unsafe { std::mem::transmute::<*mut c_void, Pop>(call) };
            call();
        }
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod system {
    use std::ffi::CStr;

    pub(crate) fn attach() -> Result<(), String> {
        Err("ranges for NVIDIA's tools are written on Linux only".to_owned())
    }

    pub(crate) fn push(_: &CStr) {}

    pub(crate) fn pop() {}
}
