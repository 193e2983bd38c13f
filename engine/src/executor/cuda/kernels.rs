//! The kernels of the CUDA executor: their PTX, how each is launched, and the resources it uses.
//!
//! `kernels/` has a `.cu` for each module, the `.ptx` that `kernels/generate` makes from it, and
//! `resources.tsv`, which has ptxas's report on each kernel for each device. `kernels/shim/` runs the same
//! sources on a CPU.
//!
//! # Arguments
//!
//! In order, and behind them all but `stamp` and `tick` have `began`: where the kernel notes, as a `u64`, what
//! `%globaltimer` is when it begins; nothing if it is null. Pointers are the device's, and 16-byte aligned except those into a cache of keys and values
//! (`kv` below) and those marked with *. All numbers are `u32`, save `eps` and `scale`, which are `f32`.
//! `p` is [`Params`] in the device's memory. A `…_pos_stride` is how many floats `p.position` moves the
//! pointer on: a row of the cache if it points into one, else 0. Activations are F32, row-major, one row per token.
//!
//! | kernel | arguments | launch |
//! |---|---|---|
//! | `embed_F` | `out, table, tokens, dim` | [`Launch::embed`] |
//! | `rms_norm` | `out kv, x kv*, weight, p, width, eps, out_pos_stride, x_pos_stride` | [`Launch::rms_norm`] |
//! | `gemv_F` | `out kv, w, x, p, rows, cols, out_pos_stride` | [`Launch::gemv`] |
//! | `gemv_add_F` | `out, w, x, rows, cols` | [`Launch::gemv`] |
//! | `norm_gemv_F` | `out, w, x, norm, rows, cols, eps` | [`Launch::gemv`] |
//! | `norm_gate_up_F` | `out, gate, up, x, norm, rows, cols, eps, squared` | [`Launch::gemv`] of both |
//! | `norm_qkv_rope_F` | `q, k, v, wq, wk, wv, x, norm, cos, sin, p, heads, kv_heads, head_dim, n_pairs, neox, cols, eps` | [`Launch::gemv`] of all |
//! | `gemm_F` | `out kv, w, x, p, rows, cols, out_pos_stride, n` | [`Launch::gemm`] |
//! | `add_bias` | `x kv, bias, p, width, len, pos_stride` | [`Launch::elementwise`] |
//! | `rope` | `x kv, cos, sin, p, heads, head_dim, n_pairs, neox, pos_stride` | [`Launch::rope`] |
//! | `scores` | `s, q, k, p, n_heads, n_kv_heads, head_dim, scale, capacity` | [`Launch::scores`] |
//! | `softmax` | `s, p, n_heads, capacity` | [`Launch::softmax`] |
//! | `weighted_sum` | `a, s, v, p, n_heads, n_kv_heads, head_dim, capacity` | [`Launch::weighted_sum`] |
//! | `attention` | `a, partial, arrived, q, k, v, p, n_heads, n_kv_heads, head_dim, scale` | [`Launch::attention`] |
//! | `silu_mul` | `gate, up, len` | [`Launch::elementwise`] |
//! | `relu_squared_mul` | `gate, up, len` | [`Launch::elementwise`] |
//! | `add` | `x, y, len` | [`Launch::elementwise`] |
//! | `peak_fill` | `out, len` | [`Launch::peak`] |
//! | `peak_read` | `out, data, len, rounds` | [`Launch::peak`], [`Launch::peak_once`] |
//! | `peak_multiply_add` | `out, rounds` | [`Launch::peak`] |
//! | `stamp` | `row, host, slot` | [`Launch::stamp`] |
//! | `tick` | `out, n` | [`Launch::one`] |
//!
//! `F` is the format of the weights: `f32`, `f16`, `q8_0`, `q4_k`, in rows of `cols` as `weights.cuh` says: those of GGUF,
//! but for the order of the bytes in a row of `q8_0`, and padding.
//! `out` of `rms_norm` may be its `x`; nothing else overlaps. `tokens` are `u32`; `row`, `host` and
//! `out` of `tick` are `u64`, and `host` is the host's memory. `len` of `add_bias` is `tokens · width`. `neox` is 0 or 1. `cos` and
//! `sin` are `(capacity, n_pairs)`. Each `.cu` says what its kernels compute.

/// A pass's parameters. Kernels read them from the device's memory, so that a graph of launches can be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Params {
    /// The position of the pass's first token.
    pub(crate) position: u32,
    /// Tokens.
    pub(crate) n: u32,
}

/// A source file and its PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its name: `gemv`.
    pub(crate) name: &'static str,
    /// The PTX's path in the repository.
    pub(crate) path: &'static str,
    /// PTX of ISA 8.0, for compute capability 7.5 and later.
    pub(crate) ptx: &'static str,
}

macro_rules! modules {
    ($($name:literal)*) => {
        [$(Module {
            name: $name,
            path: concat!("engine/src/executor/cuda/kernels/", $name, ".ptx"),
            ptx: include_str!(concat!("kernels/", $name, ".ptx")),
        }),*]
    };
}

/// All modules.
pub(crate) const MODULES: [Module; 9] = modules![
    "attention" "elementwise" "embed" "gemm" "gemv" "peak" "rms_norm" "rope" "stamp"
];

/// The modules that passes run kernels of.
pub(crate) fn of_passes() -> impl Iterator<Item = Module> {
    MODULES.into_iter().filter(|module| module.name != PEAK)
}

/// The name of the module whose kernels measure what a device does at best.
pub(crate) const PEAK: &str = "peak";

impl Module {
    /// The names of its kernels.
    pub(crate) fn kernels(self) -> impl Iterator<Item = &'static str> {
        self.ptx.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix(".visible .entry ")?.split_once('(')?;
            Some(name)
        })
    }
}

/// The most shared memory that a launch of `attention` can ask for: every device gives a block 48 KB, of which the kernel
/// takes a third itself.
pub(crate) const MOST_SHARED: u32 = 30 << 10;

/// Blocks of `gemv_F` that a multiprocessor runs at once, by the registers that they take.
const BLOCKS_AT_ONCE: u32 = 2;

/// The most blocks that share the keys of a head.
pub(crate) const MOST_PARTS: u32 = 64;

/// How a kernel is launched. Depends only on shapes, never on the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Blocks: x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Shared memory that the launch requests.
    pub(crate) shared_bytes: u32,
}

impl Launch {
    fn new(grid: [u32; 3], threads: u32) -> Self {
        Self { grid, block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// `embed_F`.
    pub(crate) fn embed(dim: u32, tokens: u32) -> Self {
        Self::new([dim.div_ceil(1024), tokens, 1], 128)
    }

    /// `rms_norm` of `rows` rows: two elements per thread, as few rows leave most of a device idle.
    pub(crate) fn rms_norm(width: u32, rows: u32) -> Self {
        Self::new([rows, 1, 1], width.div_ceil(2).next_multiple_of(32).clamp(32, 1024))
    }

    /// `gemv_F` and what is made of it, where `rows` are of all matrices together and `split` warps have two of them.
    pub(crate) fn gemv(rows: u32, cols: u32, split: u32, multiprocessors: u32) -> Self {
        // As many blocks as run at once: each reads x once.
        let blocks = rows.div_ceil(16 / split).min(BLOCKS_AT_ONCE * multiprocessors.max(1));
        // As `place` in gemv.cu.
        let shared_bytes = cols.min(8192).div_ceil(16) * 80;
        Self { shared_bytes, ..Self::new([blocks, 1, 1], 256) }
    }

    /// `attention`, whose blocks have up to 512 keys of a head each, and more only where there would be more than
    /// [`MOST_PARTS`] of them.
    pub(crate) fn attention(n_heads: u32, head_dim: u32, capacity: u32) -> Self {
        let parts = capacity.div_ceil(512).clamp(1, MOST_PARTS);
        // Few blocks have to be fast.
        let launch = Self::new([n_heads, parts, 1], 1024);
        Self { shared_bytes: 4 * (head_dim + capacity.div_ceil(parts)), ..launch }
    }

    /// `gemm_F` for `n` tokens.
    pub(crate) fn gemm(rows: u32, n: u32) -> Self {
        Self::new([rows.div_ceil(32), n.div_ceil(64), 1], 128)
    }

    /// `add`, `add_bias`, `silu_mul` and `relu_squared_mul` of `len` elements.
    pub(crate) fn elementwise(len: u32) -> Self {
        Self::new([len.div_ceil(1024), 1, 1], 256)
    }

    /// `rope`.
    pub(crate) fn rope(heads: u32, n_pairs: u32, tokens: u32) -> Self {
        Self::new([(heads * n_pairs).div_ceil(128), tokens, 1], 128)
    }

    /// `scores`. With few rows, up to 32 blocks share the keys of one; each has room for at least 64 keys.
    pub(crate) fn scores(n_heads: u32, head_dim: u32, capacity: u32, tokens: u32) -> Self {
        let splits = capacity.div_ceil(64).min(32 / tokens.clamp(1, 32)).max(1);
        let launch = Self::new([n_heads, tokens, splits], 128);
        Self { shared_bytes: 4 * head_dim, ..launch }
    }

    /// `softmax`.
    pub(crate) fn softmax(n_heads: u32, capacity: u32, tokens: u32) -> Self {
        Self::new([n_heads, tokens, 1], threads_for(capacity))
    }

    /// `weighted_sum`.
    pub(crate) fn weighted_sum(n_heads: u32, head_dim: u32, tokens: u32) -> Self {
        Self::new([n_heads, tokens, head_dim.div_ceil(32)], 256)
    }

    /// `peak_fill`, `peak_read` and `peak_multiply_add`: as many blocks as every device runs at once, so that none waits for
    /// others to end.
    pub(crate) fn peak(multiprocessors: u32) -> Self {
        Self::new([4 * multiprocessors.max(1), 1, 1], 256)
    }

    /// `peak_read` by about so many threads, each of which reads what no other one does.
    pub(crate) fn peak_once(threads: u64) -> Self {
        Self::new([u32::try_from(threads / 256).unwrap_or(u32::MAX).max(1), 1, 1], 256)
    }

    /// `stamp`.
    pub(crate) fn stamp() -> Self {
        Self::new([1, 1, 1], 128)
    }

    /// `tick`.
    pub(crate) fn one() -> Self {
        Self::new([1, 1, 1], 1)
    }
}

/// Threads for a block that loops over `len` elements: whole warps, with eight elements per thread if that fills at
/// least one.
fn threads_for(len: u32) -> u32 {
    len.div_ceil(8).next_multiple_of(32).clamp(32, 1024)
}

/// The resources of a kernel, by ptxas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Static shared memory of a block.
    pub(crate) shared_bytes: u32,
    /// Bytes that a thread spills for want of registers.
    pub(crate) spill_bytes: u32,
}

/// The resources of `kernel` on compute capability `major.minor`, if ptxas was run for it.
/// A driver may compile the PTX differently.
pub(crate) fn resources(kernel: &str, major: u32, minor: u32) -> Option<Resources> {
    let capability = 10 * major + minor;
    include_str!("kernels/resources.tsv").lines().find_map(|line| {
        let (name, rest) = line.split_once('\t')?;
        if name != kernel {
            return None;
        }
        let mut numbers = rest.split('\t').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let (sm, registers, shared_bytes, spill_bytes) = (next()?, next()?, next()?, next()?);
        (sm == capability).then_some(Resources { registers, shared_bytes, spill_bytes })
    })
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod ptx {
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    use brickscope::PtxRegistry;

    use super::*;

    /// All kernels.
    fn kernels() -> Vec<&'static str> {
        MODULES.into_iter().flat_map(Module::kernels).collect()
    }

    #[test]
    fn every_driver_since_cuda_12_0_reads_the_ptx() {
        for module in MODULES {
            let word = |name: &str| {
                let lines = module.ptx.lines();
                let mut words = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                words.next().unwrap_or_else(|| panic!("{}: no {name}", module.path))
            };
            let (major, minor) = word(".version").split_once('.').unwrap();
            let version: (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
            assert!(version <= (8, 0), "{}: .version {version:?}", module.path);
            assert_eq!(word(".target"), "sm_75", "{}", module.path);
            let command = "// Made by engine/src/executor/cuda/kernels/generate (nvidia-cuda-nvrtc";
            assert!(module.ptx.starts_with(command), "{}", module.path);
        }
    }

    /// `.ci/run` compiles them again; this needs no compiler.
    #[test]
    fn the_ptx_is_of_the_sources_beside_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/executor/cuda/kernels");
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let headers = read("common.cuh") + &read("weights.cuh");
        for module in MODULES {
            let source = read(&format!("{}.cu", module.name)) + &headers;
            let hash = PtxRegistry::hash_ptx(&source);
            let line = format!("// of text whose FNV-1a hash is {hash:016x}");
            assert_eq!(module.ptx.lines().nth(1), Some(&*line), "run kernels/generate");
        }
    }

    #[test]
    fn kernels_have_names_of_their_own_and_known_resources_everywhere() {
        let names = kernels();
        assert_eq!(names.len(), 43);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for name in names {
            for (major, minor) in [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)] {
                let found = resources(name, major, minor)
                    .unwrap_or_else(|| panic!("{name}: nothing is known of {major}.{minor}"));
                assert!((1..=255).contains(&found.registers), "{name}: {found:?}");
                assert_eq!(found.spill_bytes, 0, "{name}");
            }
        }
        assert_eq!(resources("gemv_f32", 3, 5), None);
        assert_eq!(resources("kernel", 7, 5), None);
    }

    /// The executor passes what the table at the top says.
    #[test]
    fn the_table_of_arguments_is_that_of_the_ptx() {
        let mut rows = 0;
        for row in include_str!("kernels.rs").lines() {
            let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let ["//!", name, arguments, launch, ""] = cells[..] else { continue };
            if !launch.starts_with("[`Launch::") {
                continue;
            }
            rows += 1;
            let is_clock = ["stamp", "tick"].contains(&name);
            let arguments = arguments.split(',').count() + usize::from(!is_clock);
            for kernel in kernels() {
                let format = name.strip_suffix('F').and_then(|prefix| kernel.strip_prefix(prefix));
                let is_format = |format| ["f32", "f16", "q8_0", "q4_k"].contains(&format);
                if kernel != name && !format.is_some_and(is_format) {
                    continue;
                }
                let entry = format!(".visible .entry {kernel}(");
                let after =
                    MODULES.iter().find_map(|module| Some(module.ptx.split_once(&entry)?.1));
                let (parameters, _) = after.unwrap().split_once(')').unwrap();
                assert_eq!(parameters.matches(".param").count(), arguments, "{kernel}");
            }
        }
        assert_eq!(rows, 22);
    }

    #[test]
    fn a_module_has_the_kernels_of_its_source() {
        let of = |name| MODULES.into_iter().find(|module| module.name == name).unwrap();
        let names: Vec<_> = of("attention").kernels().collect();
        assert_eq!(names, ["scores", "softmax", "weighted_sum", "attention"]);
    }
}
