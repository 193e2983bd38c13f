//! CPU kernels for LLM inference: quantised weight formats and the operations of a transformer's forward pass, each a
//! scalar reference with SIMD versions beside it.
//!
//! ```
//! use brickscope_kernels::{Kernels, Matrix, QuantType, quant};
//!
//! // Two rows of 32 weights, stored as 8-bit blocks.
//! let weights: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
//! let mut bytes = Vec::new();
//! quant::quantize_row(QuantType::Q8_0, &weights, &mut bytes);
//! let w = Matrix::new(QuantType::Q8_0, 2, 32, &bytes)?;
//!
//! let kernels = Kernels::best(); // AVX-512, AVX2 or NEON where the CPU has it
//! let x = [1.0; 32];
//! let mut y = [0.0; 2];
//! kernels.gemv(&mut y, w, &x);
//!
//! assert!((y[0] - 7.75).abs() < 0.1 && (y[1] - 23.75).abs() < 0.1);
//! # Ok::<(), brickscope_kernels::MatrixError>(())
//! ```
//!
//! Scalar, AVX2 and NEON kernels multiply weights with activations as they are, as do the AVX-512 kernels for float
//! weights. For other weights, AVX-512 rounds activations to 8-bit integers, in blocks as long as those of the weights,
//! as llama.cpp does on every CPU. [`Kernels::rounds_activations`] says where, and [`Kernels::rounded_activations`] what
//! they become. Matrices that share their [`Inputs`] share the rounding.
//!
//! AVX2 and NEON run the same source and give the same bits; NEON was only tested under qemu. With AVX-512, some types
//! are fastest when sixteen rows are [interleaved](interleave()): [`Kernels::interleaves`] says which. All kernels read
//! both layouts.
//!
//! # Map
//!
//! One operation is one file, with the scalar reference and the SIMD loops side by side. All backends have all
//! operations; where AVX-512 (with VNNI) has no loop of its own, it runs AVX2's.
//!
//! | file | contents |
//! |---|---|
//! | `kernels.rs`, `backend.rs` | [`Kernels`], the operations on a chosen backend; detecting the best one |
//! | `rms_norm.rs`, `softmax.rs`, `rope.rs`, `silu_mul.rs`, `add.rs`, `dot.rs` | the operations of these names; RoPE's angles are [`rope_tables`] |
//! | `attention.rs` | one head against a cache; AVX-512, too |
//! | `gemv/`, `gemm/` | products with one token and with several, by format; in their `int8/`, AVX-512's integer products; `gemv/float.rs` and `gemm/float/` for float weights |
//! | `quant/` | the block formats, a file each; `packed.rs` what Q4_0 to Q5_1 share |
//! | `matrix.rs`, `interleave.rs` | [`Matrix`], a checked view of weights; the interleaved layout |
//! | `activations.rs`, `inputs.rs` | rounding activations, once for all matrices that share them |
//! | `products.rs` | products with weights, as callers ask for them |
//! | `matmul.rs`, `columns.rs`, `rows.rs`, `pool.rs` | dividing work among threads: products, columns, rows of a slice, the [`ThreadPool`] |
//! | `tiles.rs` | [`TileWatch`], which times the tiles that products of several tokens are cut into |
//! | `lanes/` | what the loops are made of: AVX2 and NEON under the same names, and AVX-512's loads and stores |
//! | `scratch.rs` | buffers that products reuse |
//! | `saturate/` | the loops behind measured ceilings |
//! | `simd.rs` | names of brickscope's predecessor |
//! | `slow.rs` | a slower kernel, planted in builds that nobody publishes |
//!
//! # Unsafe code
//!
//! The kernels are safe code. `unsafe` is in `lanes/` (loads and stores of vectors, three instructions in assembly),
//! `kernels.rs`, `simd.rs` and `interleave.rs` (calls into code compiled for AVX2, AVX-512 or NEON), `matmul.rs`, `columns.rs` and `rows.rs` (threads that write to different columns or
//! rows), `pool.rs` (lending a closure to threads) and `saturate/` (loads and stores).

mod activations;
pub mod add;
pub mod attention;
mod backend;
mod columns;
pub mod dot;
pub mod gemm;
pub mod gemv;
mod inputs;
mod interleave;
mod kernels;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
mod matmul;
mod matrix;
mod pool;
mod products;
pub mod quant;
pub mod rms_norm;
pub mod rope;
mod rows;
mod saturate;
#[cfg(target_arch = "x86_64")]
mod scratch;
pub mod silu_mul;
pub mod simd;
#[cfg(slow_kernel)]
mod slow;
pub mod softmax;
#[cfg(test)]
mod tests;
mod tiles;

pub use backend::{Backend, UnknownBackend, UnsupportedBackend, detect_backend};
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use gemv::groups::{Prefetch, prefetch_interleaved};
pub use inputs::Inputs;
pub use interleave::{GROUP_ROWS, can_be_interleaved, interleave};
pub use kernels::Kernels;
pub use matmul::threads_for_rows;
pub use matrix::{Matrix, MatrixError};
pub use pool::{Pinned, ThreadPool, Watch};
pub use quant::QuantType;
pub use rope::{RopePairs, rope_tables};
pub use saturate::{INT8_DEPTH, Int8, Place};
pub use tiles::{TileLevel, TileWatch, TileWork};
