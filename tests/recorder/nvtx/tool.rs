//! A tool as NVTX has it, for `../nvtx.rs`, which compiles this: a line of the file `RANGES_LOG` for each range that begins
//! or ends.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct Callbacks {
    size: usize,
    function_table: extern "C" fn(c_uint, *mut *const *mut *mut c_void, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
pub struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set_version_of_tool: extern "C" fn(u32),
}

fn write(line: &str) {
    let path = std::env::var_os("RANGES_LOG").expect("the test sets it");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file");
    writeln!(file, "{line}").expect("it is written");
}

extern "C" fn push(name: *const c_char) -> c_int {
    // SAFETY: the protocol has a text that ends with a zero, which lives until this returns.
    let name = unsafe { CStr::from_ptr(name) };
    write(&format!("begin {}", name.to_str().expect("UTF-8")));
    0
}

extern "C" fn pop() -> c_int {
    write("end");
    0
}

/// What a program calls that has found this library.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(table: extern "C" fn(u32) -> *const c_void) -> c_int {
    let callbacks = table(1).cast::<Callbacks>();
    let version = table(3).cast::<Version>();
    assert!(table(2).is_null() && table(99).is_null());
    // SAFETY: tables 1 and 3 are those of the protocol, live as long as the program, and say their sizes first, which are
    // compared before more of them is read; a module's table has as many places as it says.
    unsafe {
        assert_eq!((*callbacks).size, size_of::<Callbacks>());
        assert_eq!(((*version).size, (*version).version), (size_of::<Version>(), 3));
        ((*version).set_version_of_tool)(3);
        let of_module = |module| {
            let (mut functions, mut size) = (std::ptr::null(), 0);
            let is_there = ((*callbacks).function_table)(module, &mut functions, &mut size);
            (is_there == 1).then_some((functions, size))
        };
        assert!(of_module(0).is_none() && of_module(7).is_none());
        let sizes = [1, 2, 3, 4, 5, 6].map(|module| of_module(module).expect("a module").1);
        assert_eq!(sizes, [16, 9, 15, 7, 16, 7]);
        let (core, size) = of_module(1).expect("a module");
        // Each has its place, and what lies around them is null.
        for function in 0..=size as usize {
            let is_function = (1..size as usize).contains(&function);
            assert_eq!((*core.add(function)).is_null(), !is_function, "{function}");
        }
        **core.add(9) = push as *mut c_void;
        **core.add(11) = pop as *mut c_void;
    }
    1
}
