//! The kind of work that a frame does, by its name.
//!
//! A name is split into the parts of its path (`gemv`, `q8_0`, `dot`), and these into words (`q8`, `0`). The
//! tables decide by whole words, never by pieces of them: `quantile` isn't quantised, and `Freedom`
//! frees nothing.

mod tables;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::tables::{
    ALLOCATES, CALLS_OF_LIBC, CALLS_OS, COPIES, LIBC, MATMUL, MEMORY, OPENMP, OS_MEMORY,
    OTHER_PRODUCTS, PATHS, QUANTIZED, WAIT_PATHS, WAITS,
};
use crate::roofline::BRICKS_OF_PRODUCTS;

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

    /// The class of a brick, for what runs in it under a name that tells nothing, such as `nvjet_tst_128x8` or
    /// `Cijk_Ailk_Bljk_HHS_BH`.
    #[must_use]
    pub fn of_brick(name: &str) -> Self {
        match name {
            _ if BRICKS_OF_PRODUCTS.contains(&name) || OTHER_PRODUCTS.contains(&name) => {
                Self::Matmul
            }
            _ if MEMORY.contains(&name) => Self::Memory,
            _ => Self::Other,
        }
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
