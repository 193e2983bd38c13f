//! The kind of work that a frame does, by its name.
//!
//! A name is split into the parts of its path (`gemv`, `q8_0`, `dot`), and these into words (`q8`, `0`). The
//! tables below decide by whole words, never by pieces of them: `quantile` isn't quantised, and `Freedom`
//! frees nothing.

use serde::{Deserialize, Serialize};

/// What kind of work a frame does, as flamegraphs colour it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Kernels on quantised weights: red.
    Quantized,
    /// Other products of matrices: green.
    Matmul,
    /// Copying, clearing and allocating memory: blue.
    Memory,
    /// The kernel of the operating system, and calls into it: orange.
    System,
    /// Waiting for other threads while using a CPU: spinning at a barrier: violet.
    Waiting,
    /// The rest: grey.
    #[default]
    Other,
}

impl Class {
    /// All classes, in the order of legends.
    pub const ALL: [Self; 6] =
        [Self::Quantized, Self::Matmul, Self::Memory, Self::System, Self::Waiting, Self::Other];

    /// The name in legends and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quantized => "quantised kernels",
            Self::Matmul => "matmul",
            Self::Memory => "memory",
            Self::System => "system",
            Self::Waiting => "waiting",
            Self::Other => "rest",
        }
    }

    /// The word for its colour.
    #[must_use]
    pub const fn color(self) -> &'static str {
        match self {
            Self::Quantized => "red",
            Self::Matmul => "green",
            Self::Memory => "blue",
            Self::System => "orange",
            Self::Waiting => "violet",
            Self::Other => "grey",
        }
    }

    /// The colour as red, green and blue. Black text on it has a contrast of at least 5:1, so that
    /// lighter and darker shades of it have the 4.5:1 that WCAG 2.2 (1.4.3) asks for.
    #[must_use]
    pub const fn rgb(self) -> [u8; 3] {
        match self {
            Self::Quantized => [229, 92, 78],
            Self::Matmul => [110, 186, 104],
            Self::Memory => [105, 158, 222],
            Self::System => [244, 168, 66],
            Self::Waiting => [190, 150, 220],
            Self::Other => [206, 206, 206],
        }
    }

    /// The class of a kernel that an engine named, as in [`Name`](brickscope_profile::Name).
    #[must_use]
    pub fn of_kernel(name: &str) -> Self {
        of_work(&Parts::parse(name)).unwrap_or_default()
    }

    /// The class of a sampled function: by its name, as demanglers print it or as the linker knows it; by
    /// its file, if known; and by whether it belongs to the operating system's kernel.
    #[must_use]
    pub fn of_function(function: &str, module: Option<&str>, is_kernel_of_os: bool) -> Self {
        let parts = Parts::parse(function);
        if is_kernel_of_os {
            let is_memory = is_any(parts.last(), &OS_MEMORY) || copies(parts.last());
            return if is_memory { Self::Memory } else { Self::System };
        }
        if let Some(class) = of_work(&parts) {
            return class;
        }
        if waits(&parts, module) {
            return Self::Waiting;
        }
        if is_call_of_os(&parts, module) { Self::System } else { Self::Other }
    }
}

/// How a part of a name is matched.
enum Is {
    /// By all of it.
    Whole(&'static str),
    /// By how it begins.
    Begin(&'static str),
}

/// Paths of which all functions have one class. The first match decides.
const PATHS: [(&str, Class); 13] = [
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

/// Words in the names of functions on quantised weights, besides the formats that [`has_format`] knows.
/// Several words must follow each other.
const QUANTIZED: [&[&str]; 20] = [
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
const MATMUL: [&[&str]; 15] = [
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

/// Calls that copy, clear or move memory, without the suffixes of variants for a processor.
const COPIES: [&str; 12] = [
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
const ALLOCATES: [Is; 47] = [
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
const OS_MEMORY: [Is; 44] = [
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
const CALLS_OS: [Is; 13] = [
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
const CALLS_OF_LIBC: [&str; 40] = [
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
const WAITS: [Is; 22] = [
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
const WAIT_PATHS: [&[&str]; 9] = [
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
const OPENMP: [&str; 3] = ["libgomp", "libomp", "libiomp"];

fn waits(parts: &Parts, module: Option<&str>) -> bool {
    let function = parts.last();
    if parts.path.len() == 1 && is_any(function, &WAITS) {
        return true;
    }
    let has = |path: &&[&str]| parts.path.windows(path.len()).any(|window| window == *path);
    if WAIT_PATHS.iter().any(has) {
        return true;
    }
    let file = module.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let is_openmp = |file: &str| OPENMP.iter().any(|begin| file.starts_with(begin));
    // `[unknown]` with its module beside it; `[libgomp.so.1.0.0]` in folded stacks.
    let bare = function.trim_matches(['[', ']']);
    (bare == "unknown" && is_openmp(file)) || (parts.path.len() == 1 && is_openmp(bare))
}

/// Beginnings of the names of files with calls into the operating system.
const LIBC: [&str; 6] = ["libc.", "libc-", "libpthread", "ld-linux", "ld-musl", "[vdso]"];

fn is_any(part: &str, table: &[Is]) -> bool {
    table.iter().any(|is| match is {
        Is::Whole(whole) => part == *whole,
        Is::Begin(begin) => part.starts_with(begin),
    })
}

/// Whether a function copies or clears memory: `memcpy`, `__memmove_avx_unaligned_erms`,
/// `cudaMemcpyAsync`.
fn copies(function: &str) -> bool {
    function.split('_').any(|word| COPIES.contains(&word))
        || function.strip_prefix("cuda").is_some_and(|rest| COPIES.contains(&rest))
}

fn is_call_of_os(parts: &Parts, module: Option<&str>) -> bool {
    if parts.path.len() > 1 {
        return false;
    }
    let function = parts.last();
    let is_of_libc = || {
        let file = module.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        LIBC.iter().any(|libc| file.starts_with(libc))
    };
    let stub = function.trim_start_matches("__libc_").trim_start_matches('_');
    let stub = stub.trim_end_matches("_nocancel");
    is_any(function, &CALLS_OS) || CALLS_OF_LIBC.contains(&stub) && is_of_libc()
}

/// The class of code by the work it does, whatever runs it.
fn of_work(parts: &Parts) -> Option<Class> {
    if let Some((_, class)) = PATHS.iter().find(|(path, _)| parts.begins(path)) {
        return (*class != Class::Other).then_some(*class);
    }
    let function = parts.last();
    if copies(function) || parts.path.len() == 1 && is_any(function, &ALLOCATES) {
        return Some(Class::Memory);
    }
    // C++, which has no path either.
    if matches!(function, "operator new" | "operator delete") {
        return Some(Class::Memory);
    }
    let has = |table: &[&[&str]]| table.iter().any(|words| parts.has(words));
    if parts.words.iter().any(|words| has_format(words)) || has(&QUANTIZED) {
        return Some(Class::Quantized);
    }
    if !parts.words.iter().flatten().any(|word| is_gemm(word)) && !has(&MATMUL) {
        return None;
    }
    // A product of any weights has their format in its types: `gemm<block_q4_0, 8l, 8l>`.
    let is_of_format = parts.types.iter().any(|words| has_format(words));
    Some(if is_of_format { Class::Quantized } else { Class::Matmul })
}

/// Whether words name a format of quantised weights: ggml's (`q4_0`, `q8_K`, `iq4_xs`, `tq1_0`),
/// bitnet.cpp's (`i2_s`, `tl1`), or the microscaling ones (`mxfp4`).
fn has_format(words: &[String]) -> bool {
    let follows = |at: usize, next: &[&str]| {
        words.get(at + 1).is_some_and(|word| next.contains(&word.as_str()))
    };
    words.iter().enumerate().any(|(at, word)| {
        let word = word.as_str();
        match word {
            "mxfp4" | "nvfp4" | "nf4" | "i2s" => return true,
            "i2" => return follows(at, &["s"]),
            _ => {}
        }
        let digit_after = |prefix: &str| {
            let rest = word.strip_prefix(prefix)?;
            let digit = rest.chars().next().filter(|digit| ('1'..='8').contains(digit))?;
            Some(&rest[digit.len_utf8()..])
        };
        if let Some(rest) = digit_after("iq") {
            return matches!(rest, "xxs" | "xs" | "s" | "m" | "nl")
                || rest.is_empty() && follows(at, &["xxs", "xs", "s", "m", "nl"]);
        }
        if let Some(rest) = digit_after("tq") {
            return rest.is_empty() && follows(at, &["0"]);
        }
        digit_after("q").is_some_and(|rest| {
            rest == "k" || rest.is_empty() && follows(at, &["0", "1", "k", "0x4", "0x8", "kx8"])
        }) || word == "q0"
    })
}

/// Whether a word names a matrix product: `gemm`, `sgemm`, `gemv`, `gemm4x`, `gemm512x10240`.
fn is_gemm(word: &str) -> bool {
    let stem = word.trim_end_matches(|end: char| end.is_ascii_digit() || end == 'x');
    let kind = ["gemm", "gemv", "gebp", "gemmt"].into_iter().find_map(|k| stem.strip_suffix(k));
    // The type of numbers: single, double, complex, half, bfloat.
    kind.is_some_and(|of| matches!(of, "" | "s" | "d" | "c" | "z" | "h" | "b" | "sb" | "sh" | "i8"))
}

/// A name in parts, all in lower case.
struct Parts {
    /// Without type arguments and function arguments.
    path: Vec<String>,
    /// The words of each part.
    words: Vec<Vec<String>>,
    /// The words of type arguments.
    types: Vec<Vec<String>>,
}

impl Parts {
    fn parse(name: &str) -> Self {
        let mut path = Vec::new();
        let mut words = Vec::new();
        let (bare, types) = bare(name);
        for part in bare.split("::") {
            // `for` and `as` of an `impl` are between two paths; C++ puts what is returned first.
            for part in part.split(" for ").flat_map(|part| part.split(" as ")) {
                let part = part.trim().trim_matches(['*', '&', '[', ']']);
                let operator = ["operator new", "operator delete"];
                let part = match part.rfind(' ') {
                    Some(_) if operator.contains(&part) => part,
                    Some(space) => &part[space + 1..],
                    None => part,
                };
                // `memcpy@plt`, `free@@GLIBC_2.2.5`, `foo.constprop.0`, `bar.llvm.123`.
                let part = part.split(['@', '.']).next().unwrap_or_default();
                if !part.is_empty() {
                    words.push(words_of(part));
                    path.push(part.to_ascii_lowercase());
                }
            }
        }
        let types = types.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        Self { path, words, types: types.map(words_of).collect() }
    }

    /// The function itself.
    fn last(&self) -> &str {
        // A closure belongs to the function around it.
        let mut named = self.path.iter().rev().filter(|part| !part.starts_with("{{"));
        named.next().map_or("", String::as_str)
    }

    fn begins(&self, path: &str) -> bool {
        let mut parts = self.path.iter();
        path.split("::").all(|wanted| parts.next().is_some_and(|part| part == wanted))
    }

    /// Whether these words follow each other in one part.
    fn has(&self, wanted: &[&str]) -> bool {
        self.words.iter().any(|words| words.windows(wanted.len()).any(|window| window == wanted))
    }
}

/// A name without function arguments, and without type arguments except the type that an `impl` is for:
/// what a thread runs is an argument of the functions that start it, which do none of its work. Then the
/// type arguments.
fn bare(name: &str) -> (String, String) {
    let mut bare = String::with_capacity(name.len());
    let mut types = String::new();
    let mut depth = 0_usize;
    let mut left_out = 0_usize;
    let mut chars = name.char_indices();
    while let Some((at, letter)) = chars.next() {
        match letter {
            '(' if name[at..].starts_with("(anonymous namespace)") => {
                chars.nth("(anonymous namespace)".len() - 2);
            }
            // After the arguments come `const`, or the suffix of a copy that a compiler made.
            '(' if left_out == 0 && !bare.is_empty() => break,
            '<' if left_out > 0 => {
                types.push(' ');
                left_out += 1;
            }
            '<' if at == 0 || name[at + 1..].starts_with("impl ") => depth += 1,
            '<' => {
                types.push(' ');
                left_out = 1;
            }
            '>' if left_out > 0 => left_out -= 1,
            '>' if depth > 0 => depth -= 1,
            _ if left_out > 0 => types.push(letter),
            _ => bare.push(letter),
        }
    }
    (bare, types)
}

/// `BlockQ8_0` is `block`, `q8`, `0`; `tinyBLAS` is `tiny`, `blas`; `QMatMul` is `q`, `mat`, `mul`.
fn words_of(part: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for piece in part.split(|letter: char| !letter.is_alphanumeric()) {
        let letters: Vec<char> = piece.chars().collect();
        let mut begin = 0;
        for at in 1..letters.len() {
            let (before, here) = (letters[at - 1], letters[at]);
            let next_is_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
            let begins = here.is_uppercase()
                && (before.is_lowercase() || before.is_uppercase() && next_is_small);
            if begins {
                words.push(letters[begin..at].iter().collect());
                begin = at;
            }
        }
        words.push(letters[begin..].iter().collect());
    }
    words.retain(|word| !word.is_empty());
    words.iter_mut().for_each(|word| *word = word.to_lowercase());
    words
}

#[cfg(test)]
mod tests {
    use super::Class::*;
    use super::*;

    #[test]
    fn kernels_are_told_by_their_names() {
        for (name, class) in [
            ("gemv_q8_0_avx2", Quantized),
            ("gemm_q4_k", Quantized),
            ("gemv_q4_k_avx2", Quantized),
            ("embed_q8_0_scalar", Quantized),
            ("gemv_iq4_xs_avx2", Quantized),
            ("gemm_tq1_0", Quantized),
            ("gemv_tq2_0_avx2", Quantized),
            ("gemv_i2_s", Quantized),
            ("gemv_mxfp4_avx2", Quantized),
            ("mul_mat_vec_q", Quantized),
            ("gemv_f32_avx2", Matmul),
            ("gemm_f16", Matmul),
            ("matmul_bf16", Matmul),
            ("ampere_sgemm_128x64_tn", Matmul),
            ("memcpy_h2d", Memory),
            ("embed_f32_scalar", Other),
            ("rms_norm_avx2", Other),
            ("attention_scores_avx2", Other),
            ("softmax", Other),
            ("share of thread 1", Other),
            ("", Other),
        ] {
            assert_eq!(Class::of_kernel(name), class, "{name}");
        }
    }

    #[test]
    fn functions_are_told_by_their_names() {
        for (name, class) in [
            ("brickscope_kernels::gemv::q8_0::avx2::dot", Quantized),
            ("brickscope_kernels::gemv::q8_0::rows::{{closure}}", Quantized),
            ("<brickscope_kernels::gemv::q4_k::Q4K as Rows>::dot", Quantized),
            ("ggml_vec_dot_q4_K_q8_K", Quantized),
            ("ggml_gemv_q4_0_8x8_q8_0", Quantized),
            ("quantize_row_q8_0", Quantized),
            ("dequantize_row_iq4_xs", Quantized),
            ("ggml_vec_dot_iq2_xxs_q8_K", Quantized),
            ("ggml_vec_dot_i2_i8_s", Quantized),
            ("ggml_vec_dot_tq1_0_q8_K", Quantized),
            ("ggml_vec_dot_mxfp4_q8_0", Quantized),
            (
                "(anonymous namespace)::tinyBLAS_Q0_AVX<block_q8_0, block_q8_0, float>::gemm4xN",
                Quantized,
            ),
            (
                "void ggml::cpu::repack::gemm4xN<(ggml_type)2>(int, float*, block_q8_0 const*)",
                Matmul,
            ),
            ("candle_core::quantized::k_quants::<impl GgmlType for BlockQ4K>::vec_dot", Quantized),
            (
                "<candle_core::quantized::k_quants::BlockQ4_0 as \
                 candle_core::quantized::k_quants::GgmlType>::vec_dot",
                Quantized,
            ),
            ("candle_core::quantized::avx::vec_dot_q8_0_q8_0", Quantized),
            (
                "void ggml::cpu::repack::gemm<block_mxfp4, 8l, 8l, (ggml_type)8>(int, float*)",
                Quantized,
            ),
            (
                "void ggml_compute_forward_mul_mat_tiled_driver<block_iq1_m, 16, false>(int) [clone .cold]",
                Quantized,
            ),
            (
                "brickscope_kernels::gemv::avx2::gemv_rows<brickscope_kernels::quant::Q8_0>",
                Quantized,
            ),
            ("qgemm_lut_3200_8640", Quantized),
            ("gemm_q4_b32_8x8_q8_0_lut_avx", Quantized),
            ("kernel_mul_mv_q4_K_f32", Quantized),
            ("candle_core::quantized::QMatMul::forward", Quantized),
            ("ggml_vec_dot_f16", Matmul),
            ("ggml_vec_dot_f32", Matmul),
            ("ggml_vec_dot_bf16", Matmul),
            ("ggml_compute_forward_mul_mat", Matmul),
            (
                "(anonymous namespace)::tinyBLAS<8, __m256, __m256, float, float, float>::gemm",
                Matmul,
            ),
            ("llamafile_sgemm", Matmul),
            ("gemm_f32", Matmul),
            ("cblas_sgemm", Matmul),
            ("sgemm_kernel_HASWELL", Matmul),
            ("gemm_f32::microkernel::fma::f32::x1x4", Matmul),
            ("candle_core::cpu_backend::MatMul::f", Matmul),
            ("faer::linalg::matmul::matmul", Matmul),
            ("memcpy", Memory),
            ("memcpy@plt", Memory),
            ("__memmove_avx_unaligned_erms", Memory),
            ("__memset_avx2_unaligned_erms", Memory),
            ("malloc", Memory),
            ("free", Memory),
            ("cfree@GLIBC_2.2.5", Memory),
            ("_int_malloc", Memory),
            ("realloc", Memory),
            ("__rust_alloc_zeroed", Memory),
            ("alloc::alloc::alloc_zeroed", Memory),
            ("alloc::raw_vec::RawVec<T,A>::grow_one", Memory),
            ("operator new(unsigned long)", Memory),
            ("madvise", Memory),
            ("__mmap64", Memory),
            ("memmap2::unix::MmapInner::new", Memory),
            ("core::ptr::copy_nonoverlapping", Other),
            ("syscall", System),
            ("futex_wait", System),
            ("__sched_yield", System),
            ("__x64_sys_sched_yield", System),
            ("entry_SYSCALL_64_after_hwframe", System),
            ("main", Other),
            ("", Other),
        ] {
            assert_eq!(Class::of_function(name, None, false), class, "{name}");
        }
    }

    #[test]
    fn pieces_of_words_and_what_types_stand_for_decide_nothing() {
        for name in [
            "memory_bound_analysis",
            "quantile",
            "stats::quantiles",
            "quantity",
            "Freedom",
            "freeze",
            "Pool::free",
            "ggml_free",
            "q_proj",
            "seq_0",
            "h2o_4_k",
            "iq_test",
            "blasphemy",
            "mallow",
            "callocate",
            "clone3",
            "start_thread",
            "rms_norm_f32",
            "read",
            "app::read",
            "gemmology",
            "resyscall",
            "candle_core::quantized::gguf_file::Content::read",
            // Each of them is under all that a thread does.
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
            "std::sys::backtrace::__rust_begin_short_backtrace::<brickscope_kernels::gemv::q8_0::run>",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "void std::sort<float*, gemm_q4_k>(float*, gemm_q4_k*)",
            "std::thread::spawn<sgemm>",
        ] {
            assert_eq!(Class::of_function(name, None, false), Other, "{name}");
        }
    }

    #[test]
    fn a_name_that_programs_use_too_is_a_call_where_it_is_of_libc() {
        let of = |name, module| Class::of_function(name, Some(module), false);
        assert_eq!(of("read", "/usr/lib/x86_64-linux-gnu/libc.so.6"), System);
        assert_eq!(of("__GI___ioctl", "/lib/libc.so.6"), Other);
        assert_eq!(of("__ioctl", "/lib/libc.so.6"), System);
        assert_eq!(of("__libc_write", "libc-2.31.so"), System);
        assert_eq!(of("__write_nocancel", "libc.so.6"), System);
        assert_eq!(of("clock_gettime", "[vdso]"), System);
        assert_eq!(of("read", "/usr/bin/llama-cli"), Other);
        assert_eq!(of("read", "/usr/lib/libcurl.so.4"), Other);
        assert_eq!(of("qsort", "/lib/libc.so.6"), Other);
    }

    #[test]
    fn threads_that_spin_until_others_are_done_wait() {
        for name in [
            "gomp_barrier_wait_end",
            "gomp_team_barrier_wait_end.constprop.0",
            "gomp_team_barrier_wait@@GOMP_4.0",
            "__kmp_wait_template<kmp_flag_64<false, true>, false, true>(kmp_info*, int)",
            "__kmp_hyper_barrier_release",
            "ggml_barrier",
            "ggml_graph_compute_poll_for_work",
            "brickscope_kernels::pool::wait_until",
            "brickscope_kernels::pool::wait_until::<brickscope_kernels::pool::work::{{closure}}>",
            "core::hint::spin_loop",
            "std::thread::yield_now",
            "std::thread::functions::yield_now",
            "rayon_core::sleep::Sleep::sleep",
            "pthread_barrier_wait",
            "[libgomp.so.1.0.0]",
        ] {
            assert_eq!(Class::of_function(name, None, false), Waiting, "{name}");
        }
        let of = |name, module| Class::of_function(name, Some(module), false);
        assert_eq!(of("[unknown]", "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0"), Waiting);
        assert_eq!(of("[unknown]", "/usr/lib/llvm-18/lib/libomp.so.5"), Waiting);
        assert_eq!(of("[unknown]", "/usr/bin/llama-bench"), Other);
        for name in ["await_token", "app::wait", "waiter", "barrier", "pool::run", "GOMP_parallel"]
        {
            assert_eq!(Class::of_function(name, None, false), Other, "{name}");
        }
        // Asleep in a call it is the system's.
        assert_eq!(Class::of_function("futex_wait", None, false), System);
    }

    #[test]
    fn the_kernel_of_the_system_is_system_save_where_it_handles_memory() {
        let of = |name| Class::of_function(name, None, true);
        assert_eq!(of("clear_page_erms"), Memory);
        assert_eq!(of("asm_exc_page_fault"), Memory);
        assert_eq!(of("handle_mm_fault"), Memory);
        assert_eq!(of("memcpy_erms"), Memory);
        assert_eq!(of("schedule"), System);
        assert_eq!(of("free"), System);
        assert_eq!(of("read"), System);
        assert_eq!(of("0xffffffff81000000"), System);
        assert_eq!(of(""), System);
    }

    #[test]
    fn classes_are_told_apart_and_black_text_on_them_can_be_read() {
        // Relative luminance and contrast as in WCAG 2.2.
        let luminance = |rgb: [u8; 3]| {
            let [r, g, b] = rgb.map(|value| {
                let value = f64::from(value) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        for (at, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
            let contrast = (luminance(class.rgb()) + 0.05) / 0.05;
            assert!(contrast >= 5.0, "{}: {contrast}", class.name());
            for other in &Class::ALL[..at] {
                assert_ne!(class.rgb(), other.rgb());
                assert_ne!(class.color(), other.color());
                assert_ne!(class.name(), other.name());
            }
        }
    }
}
