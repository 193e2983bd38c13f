//! Names, and words of names, by which frames are told.

use super::{Class, Is};

/// Paths of which all functions have one class. The first match decides.
pub(super) const PATHS: [(&str, Class); 13] = [
    // Reading files is not work on weights.
    ("candle_core::quantized::gguf_file", Class::Other),
    ("candle_core::quantized::ggml_file", Class::Other),
    ("candle_core::quantized", Class::Quantized),
    ("candle_transformers::quantized_nn", Class::Other),
    ("brickscope_kernels::quant", Class::Quantized),
    // Not all of `alloc`: `alloc::boxed::Box<dyn FnOnce()>` is under every thread.
    ("alloc::alloc", Class::Memory),
    ("alloc::raw_vec", Class::Memory),
    ("alloc::vec::from_elem", Class::Memory),
    ("std::alloc", Class::Memory),
    ("core::intrinsics::copy_nonoverlapping", Class::Memory),
    ("core::ptr::write_bytes", Class::Memory),
    ("memmap2", Class::Memory),
    ("tcmalloc", Class::Memory),
];

/// Words in the names of functions on quantised weights, besides the formats that [`has_format`](super::has_format) knows.
/// Several words must follow each other.
pub(super) const QUANTIZED: [&[&str]; 20] = [
    &["quantize"],
    &["dequantize"],
    &["requantize"],
    &["quantise"],
    &["dequantise"],
    &["dequant"],
    &["mul", "mat", "q"],
    &["mul", "mat", "vec", "q"],
    &["mmq"],
    &["mmvq"],
    &["qmatmul"],
    &["qgemm"],
    &["qgemv"],
    &["bitnet", "mul", "mat"],
    &["qmm"],
    &["qmv"],
    &["awq"],
    &["gptq"],
    &["marlin"],
    // bitnet.cpp's `i2_s`, with what it is multiplied by.
    &["i2", "i8", "s"],
];

/// Words in the names of matrix products, likewise.
pub(super) const MATMUL: [&[&str]; 15] = [
    &["matmul"],
    &["matvec"],
    &["matrixmultiply"],
    &["mat", "mul"],
    &["mat", "vec"],
    &["mul", "mat"],
    &["mul", "mv"],
    &["mul", "mm"],
    &["vec", "dot"],
    &["tiny", "blas"],
    &["tinyblas"],
    &["cblas"],
    &["cublas"],
    &["cutlass"],
    &["llamafile", "sgemm"],
];

/// Bricks that are of products of matrices besides [those whose shapes a trace can have](crate::roofline::BRICKS_OF_PRODUCTS).
pub(super) const OTHER_PRODUCTS: [&str; 2] = ["Experts", "LoRA"];

/// Bricks that copy, clear or allocate memory.
pub(super) const MEMORY: [&str; 3] = ["Copy", "CopyCall", "Allocate"];

/// Calls that copy, clear or move memory, without the suffixes of variants for a processor.
pub(super) const COPIES: [&str; 12] = [
    "memcpy",
    "memmove",
    "memset",
    "mempcpy",
    "wmemset",
    "bzero",
    "memcpy16",
    "memcpyasync",
    "memsetasync",
    "memcpy2d",
    "memcpy3d",
    "memzero",
];

/// Symbols of allocators, and the calls by which they get memory. Only as a whole, and only outside of
/// any path: `Pool::free` may free anything.
pub(super) const ALLOCATES: [Is; 47] = [
    Is::Whole("malloc"),
    Is::Whole("calloc"),
    Is::Whole("realloc"),
    Is::Whole("free"),
    Is::Whole("cfree"),
    Is::Whole("reallocarray"),
    Is::Whole("memalign"),
    Is::Whole("aligned_alloc"),
    Is::Whole("posix_memalign"),
    Is::Whole("valloc"),
    Is::Whole("malloc_consolidate"),
    Is::Whole("malloc_usable_size"),
    Is::Whole("unlink_chunk"),
    Is::Whole("sysmalloc"),
    Is::Whole("systrim"),
    Is::Whole("_int_malloc"),
    Is::Whole("_int_free"),
    Is::Whole("_int_free_chunk"),
    Is::Whole("_int_free_merge_chunk"),
    Is::Whole("_int_realloc"),
    Is::Whole("_int_memalign"),
    Is::Whole("__libc_malloc"),
    Is::Whole("__libc_calloc"),
    Is::Whole("__libc_realloc"),
    Is::Whole("__libc_free"),
    Is::Whole("__libc_memalign"),
    Is::Whole("cudamalloc"),
    Is::Whole("cudafree"),
    Is::Begin("__rust_alloc"),
    Is::Begin("__rust_dealloc"),
    Is::Begin("__rust_realloc"),
    Is::Begin("__rdl_"),
    Is::Begin("__rg_"),
    Is::Begin("mi_malloc"),
    Is::Begin("mi_calloc"),
    Is::Begin("mi_realloc"),
    Is::Begin("mi_free"),
    Is::Begin("_mi_"),
    Is::Begin("je_"),
    Is::Begin("_rjem_"),
    Is::Begin("tc_"),
    Is::Begin("mmap"),
    Is::Begin("__mmap"),
    Is::Begin("munmap"),
    Is::Begin("mremap"),
    Is::Begin("madvise"),
    Is::Begin("sbrk"),
];

/// Functions of the operating system's kernel that allocate, free, clear or copy memory.
pub(super) const OS_MEMORY: [Is; 44] = [
    Is::Begin("asm_exc_page_fault"),
    Is::Begin("exc_page_fault"),
    Is::Begin("page_fault"),
    Is::Begin("do_page_fault"),
    Is::Begin("do_user_addr_fault"),
    Is::Begin("handle_mm_fault"),
    Is::Begin("__handle_mm_fault"),
    Is::Begin("handle_pte_fault"),
    Is::Begin("do_anonymous_page"),
    Is::Begin("do_huge_pmd"),
    Is::Begin("__do_huge_pmd"),
    Is::Begin("do_fault"),
    Is::Begin("__do_fault"),
    Is::Begin("filemap_fault"),
    Is::Begin("filemap_map_pages"),
    Is::Begin("clear_page"),
    Is::Begin("clear_huge_page"),
    Is::Begin("clear_subpage"),
    Is::Begin("clear_user_page"),
    Is::Begin("folio_zero"),
    Is::Begin("copy_page"),
    Is::Begin("copy_user"),
    Is::Begin("rep_movs"),
    Is::Begin("_copy_to_"),
    Is::Begin("_copy_from_"),
    Is::Begin("alloc_pages"),
    Is::Begin("__alloc_pages"),
    Is::Begin("alloc_anon_folio"),
    Is::Begin("vma_alloc"),
    Is::Begin("get_page_from_freelist"),
    Is::Begin("free_unref_"),
    Is::Begin("free_pages"),
    Is::Begin("__free_pages"),
    Is::Begin("unmap_page_range"),
    Is::Begin("unmap_vmas"),
    Is::Begin("zap_pte_range"),
    Is::Begin("zap_pmd_range"),
    Is::Begin("do_mmap"),
    Is::Begin("__do_munmap"),
    Is::Begin("do_madvise"),
    Is::Begin("__x64_sys_mmap"),
    Is::Begin("__x64_sys_munmap"),
    Is::Begin("__x64_sys_madvise"),
    Is::Begin("__x64_sys_brk"),
];

/// Calls into the operating system whose names no program uses for functions of its own.
pub(super) const CALLS_OS: [Is; 13] = [
    Is::Whole("syscall"),
    Is::Whole("sched_yield"),
    Is::Whole("__sched_yield"),
    Is::Begin("futex"),
    Is::Begin("__futex"),
    Is::Begin("__lll_lock_wait"),
    Is::Begin("__lll_lock_wake"),
    Is::Begin("__x64_sys_"),
    Is::Begin("__arm64_sys_"),
    Is::Begin("__ia32_sys_"),
    Is::Begin("entry_syscall"),
    Is::Begin("do_syscall_64"),
    Is::Begin("__syscall_cancel"),
];

/// Calls whose names programs use too: only if the module is one of [`LIBC`].
pub(super) const CALLS_OF_LIBC: [&str; 40] = [
    "accept",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "epoll_wait",
    "eventfd_write",
    "fstat",
    "fsync",
    "getpid",
    "getrusage",
    "gettid",
    "ioctl",
    "lseek",
    "mprotect",
    "msync",
    "nanosleep",
    "open",
    "open64",
    "openat",
    "poll",
    "ppoll",
    "pread",
    "pread64",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pwrite64",
    "read",
    "readv",
    "recv",
    "sched_getaffinity",
    "sched_setaffinity",
    "select",
    "send",
    "stat",
    "statx",
    "usleep",
    "wait4",
    "waitpid",
    "write",
    "writev",
];

/// Functions in which threads spin until others are done. Most wait in calls of the system sooner or later, which
/// are of the system, and take no samples while they sleep.
pub(super) const WAITS: [Is; 22] = [
    // libgomp
    Is::Begin("gomp_barrier_wait"),
    Is::Begin("gomp_team_barrier_wait"),
    Is::Begin("gomp_simple_barrier_wait"),
    Is::Begin("gomp_mutex_lock_slow"),
    Is::Begin("gomp_sem_wait"),
    Is::Begin("gomp_ptrlock_get_slow"),
    Is::Whole("do_spin"),
    Is::Whole("gomp_barrier"),
    // LLVM's and Intel's OpenMP
    Is::Begin("__kmp_wait"),
    Is::Begin("__kmp_hyper_barrier"),
    Is::Begin("__kmp_barrier"),
    Is::Begin("__kmp_fork_barrier"),
    Is::Begin("__kmp_join_barrier"),
    Is::Begin("__kmp_flag_wait"),
    Is::Begin("_int_kmp_wait"),
    // ggml
    Is::Begin("ggml_barrier"),
    Is::Begin("ggml_thread_cpu_relax"),
    Is::Begin("ggml_graph_compute_poll_for_work"),
    Is::Begin("ggml_graph_compute_check_for_work"),
    // POSIX
    Is::Begin("pthread_barrier_wait"),
    Is::Begin("__pthread_barrier_wait"),
    Is::Begin("pthread_spin_lock"),
];

/// Paths of functions that wait. Parts of a path must follow each other; the last one is a function or what is
/// around it.
pub(super) const WAIT_PATHS: [&[&str]; 9] = [
    &["pool", "wait_until"],
    &["hint", "spin_loop"],
    &["thread", "yield_now"],
    &["thread", "functions", "yield_now"],
    &["rayon_core", "sleep"],
    &["rayon_core", "latch"],
    &["crossbeam_utils", "backoff"],
    &["std", "sync", "barrier"],
    &["std", "thread", "park"],
];

/// Files of which the functions without a name wait: runtimes of OpenMP come without symbols, and only start threads
/// and let them wait. The work is in the functions that they call, which are the program's.
pub(super) const OPENMP: [&str; 3] = ["libgomp", "libomp", "libiomp"];

/// Beginnings of the names of files with calls into the operating system.
pub(super) const LIBC: [&str; 6] =
    ["libc.", "libc-", "libpthread", "ld-linux", "ld-musl", "[vdso]"];
