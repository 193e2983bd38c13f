//! The arithmetic of LLM inference on a CPU: quantised weights, and the operations of a
//! transformer's forward pass, each as a plain scalar reference with its SIMD twin beside it.
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
//! # Where things are
//!
//! One operation is one file, and every method of [`Kernels`] names its file:
//!
//! | operation | scalar | AVX2, NEON | AVX-512 with VNNI |
//! |---|---|---|---|
//! | [`rms_norm`] | yes | yes | AVX2's |
//! | [`softmax`] | yes | yes, with a polynomial `exp` | AVX2's |
//! | [`rope`] | yes | yes | AVX2's |
//! | [`silu_mul`] (SwiGLU, and its ReLU² sibling) | yes | yes | AVX2's |
//! | [`add`] (residuals, biases) | yes | yes | AVX2's |
//! | [`attention`] (one head against a cache) | yes | yes | yes |
//! | [`gemv`] (decode), [`gemm`] (prefill) | every [`QuantType`] | every [`QuantType`] | every [`QuantType`]; quantised ones times activations rounded to 8 bits |
//!
//! AVX2 and NEON run the same source and give the same bits. NEON was tested under qemu alone.
//!
//! Scalar, AVX2 and NEON multiply weights with activations as they are, as does AVX-512 where weights are floats. For
//! other weights it rounds activations to whole numbers of 8 bits, in blocks as long as those of the weights, as
//! llama.cpp does on every CPU:
//! [`Kernels::rounds_activations`] says where, and [`Kernels::rounded_activations`] what they become. Matrices
//! that share their [`Inputs`] share the rounding.
//!
//! On AVX2, NEON and AVX-512 products of several tokens are cut into tiles for caches and registers; a
//! [`TileWatch`] is told of them, with two readings of its clock for each.
//!
//! For AVX-512 rows of some types, Q4_K and F16 among them, are best [interleaved](interleave()), sixteen side by side
//! in the place of sixteen one after the other; [`Kernels::interleaves`] says of which that is so. All kernels read
//! both.
//!
//! [`quant`] holds the block formats, [`Matrix`] is a checked view of a tensor in one of them,
//! and [`ThreadPool`] is what [`Kernels::matmul`] splits its rows over.
//!
//! # Unsafe
//!
//! Six places: `lanes/` (loads and stores of whole vectors), `kernels.rs` and `simd.rs` (the
//! calls into code that needs AVX2, AVX-512 or NEON), `matmul.rs` (threads that write to different columns of one
//! matrix), `rows.rs` (threads that write to different rows), `pool.rs` (lending a closure to
//! threads) and `saturate/` (loads and stores of the loops behind
//! ceilings). The kernels themselves are safe code.

mod activations;
pub mod add;
pub mod attention;
mod backend;
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
pub mod quant;
pub mod rms_norm;
pub mod rope;
mod rows;
mod saturate;
#[cfg(target_arch = "x86_64")]
mod scratch;
pub mod silu_mul;
pub mod simd;
pub mod softmax;
#[cfg(test)]
mod tests;
mod tiles;

pub use backend::{Backend, UnknownBackend, UnsupportedBackend, detect_backend};
pub use inputs::Inputs;
pub use interleave::{GROUP_ROWS, can_be_interleaved, interleave};
pub use kernels::Kernels;
pub use matmul::threads_for_rows;
pub use matrix::{Matrix, MatrixError};
pub use pool::{ThreadPool, Watch};
pub use quant::QuantType;
pub use rope::{RopePairs, rope_tables};
pub use saturate::{INT8_DEPTH, Int8, Place};
pub use tiles::{TileLevel, TileWatch, TileWork};
