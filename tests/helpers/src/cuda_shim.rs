//! The kernels on the CPU: `shim/` built by g++ and loaded. Used by tests, those of the fake driver too.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::{env, fs};

use libloading::Library;

/// The shared library, built beside the test's program unless it is already there. `None`, with a line that says so,
/// if there is no g++.
///
/// # Panics
///
/// If it doesn't compile.
pub fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    // The linker's names for the borders of a section are ELF's.
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: the CUDA kernels run on the CPU on Linux only");
        return None;
    }
    if let Err(error) = Command::new("g++").arg("--version").output() {
        eprintln!("skipped: no g++ to run the CUDA kernels on the CPU ({error})");
        return None;
    }
    let kernels = crate::root().join("engine/src/executor/cuda/kernels");
    let program = env::current_exe().expect("a test knows its program");
    let folder = program.parent().expect("a program is in a folder");
    let library = folder.join(format!("libbrickscope_cuda_shim-{:016x}.so", hash(&kernels)));
    if !library.exists() {
        // Other tests may build it at the same time; the last one to finish replaces it with the same file.
        let name = |what: &str| folder.join(format!("cuda_shim-{}.{what}", process::id()));
        let (object, fresh) = (name("o"), name("so"));
        let source = kernels.join("shim/shim.cpp");
        // Code that asks before each access whether it is aligned and within a buffer. The shim answers.
        let compile = [
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-fvisibility=hidden",
            "-fsanitize=alignment,kernel-address",
            "--param=asan-instrumentation-with-call-threshold=0",
            "--param=asan-globals=0",
            "--param=asan-stack=0",
            "-c",
            "-o",
        ];
        run(
            "g++",
            compile.map(OsStr::new).into_iter().chain([object.as_os_str(), source.as_os_str()]),
        );
        let link = ["-shared", "-Wl,--no-undefined", "-o"].map(OsStr::new);
        run("g++", link.into_iter().chain([fresh.as_os_str(), object.as_os_str()]));
        fs::rename(&fresh, &library).expect("the folder of the test's program is writable");
        fs::remove_file(&object).ok();
    }
    Some(library)
}

/// A hash of all sources, so that a library of other sources isn't used.
fn hash(kernels: &Path) -> u64 {
    let mut files: Vec<_> = [kernels.to_owned(), kernels.join("shim")]
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).expect("the kernels are there"))
        .map(|entry| entry.expect("a folder's entries can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e != "ptx" && e != "rs" && e != "tsv"))
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file).expect("a source can be read").hash(&mut hasher);
    }
    hasher.finish()
}

fn run<'a>(program: &str, arguments: impl Iterator<Item = &'a OsStr>) {
    let output = Command::new(program).args(arguments).output().expect("it ran a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `uint3` of the shim.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

/// `launch_<kernel>` of the library.
type LaunchFn = unsafe extern "C" fn(Dim3, Dim3, u32, *mut *mut c_void) -> *const c_char;

/// The library, loaded.
pub struct Shim {
    library: Library,
}

impl Shim {
    /// Built and loaded, unless there is no g++.
    pub fn load() -> Option<Self> {
        // SAFETY: what runs on loading is the C++ library's initialisation.
        let library = unsafe { Library::new(built()?) };
        Some(Self { library: library.expect("what g++ made can be loaded") })
    }

    /// Runs a kernel. `arguments` point at its arguments, in order.
    ///
    /// # Errors
    ///
    /// Which rule of CUDA it broke, in a sentence.
    ///
    /// # Safety
    ///
    /// The arguments must be of the kernel's types, and its pointers good for what it reads and writes.
    pub unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), String> {
        let name = format!("launch_{kernel}");
        // SAFETY: it is a function of this type in every build of the library.
        let launch = unsafe { self.library.get::<LaunchFn>(name.as_bytes()) }
            .map_err(|error| error.to_string())?;
        // SAFETY: the caller's promise.
        let fault =
            unsafe { launch(grid.into(), block.into(), shared_bytes, arguments.as_mut_ptr()) };
        if fault.is_null() {
            return Ok(());
        }
        // SAFETY: the sentence ends with a zero and stands until the next launch.
        Err(unsafe { CStr::from_ptr(fault) }.to_string_lossy().into_owned())
    }

    /// Whether there is such a kernel.
    pub fn has(&self, kernel: &str) -> bool {
        // SAFETY: it isn't called.
        unsafe { self.library.get::<LaunchFn>(format!("launch_{kernel}").as_bytes()) }.is_ok()
    }

    /// Adds a buffer. Once there is one, an access outside all of them breaks a rule.
    pub fn add_memory(&self, address: *const c_void, bytes: usize) {
        // SAFETY: it is a function of this type.
        let add = unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_void, u64)>(b"shim_add_memory")
        };
        // SAFETY: it notes two numbers.
        unsafe { add.expect("the library has it")(address, bytes as u64) }
    }

    /// Removes a buffer.
    pub fn remove_memory(&self, address: *const c_void) {
        // SAFETY: it is a function of this type.
        let remove = unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_void)>(b"shim_remove_memory")
        };
        // SAFETY: it forgets a number.
        unsafe { remove.expect("the library has it")(address) }
    }

    /// In which order warps and their threads run: 0 in theirs, 1 from the last to the first, else
    /// shuffled.
    pub fn set_order(&self, seed: u32) {
        // SAFETY: it is a function of this type.
        let set = unsafe { self.library.get::<unsafe extern "C" fn(u32)>(b"shim_set_order") };
        // SAFETY: it sets a number.
        unsafe { set.expect("the library has it")(seed) }
    }
}
