//! The operations of a forward pass on a chosen backend.
//!
//! Every method passes its arguments to the function of the same name in the operation's file. This is one of three
//! places where ordinary code calls code compiled for AVX2, AVX-512 or NEON; `simd.rs` and `interleave.rs` are the others.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::activations::Activations;
use crate::backend::{Backend, UnsupportedBackend};
use crate::columns::Columns;
use crate::gemm::Tokens;
use crate::gemv::Vector;
#[cfg(target_arch = "x86_64")]
use crate::interleave::can_be_interleaved;
use crate::{
    Matrix, QuantType, RopePairs, add, attention, gemm, gemv, rms_norm, rope, silu_mul, softmax,
};

/// The operations of a forward pass, on a backend chosen once. It is `Copy`: pass it around.
///
/// Mismatched lengths are a bug of the caller, so they panic, with the lengths in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels {
    isa: Isa,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isa {
    Scalar,
    // Invariant: constructed only after detecting AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    // Invariant: constructed only after detecting all that `has_avx512` requires, which includes AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    // Invariant: constructed only after detecting NEON.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Calls `module::scalar::function`, for AVX2 and NEON `module::eight_lanes::function`, and for AVX-512 the named
/// module's, which is `eight_lanes` again where wider vectors would gain nothing.
macro_rules! dispatch {
    ($kernels:ident, $module:ident, $function:ident, $($argument:expr),*) => {
        dispatch!($kernels, $module / eight_lanes, $function, $($argument),*)
    };
    ($kernels:ident, $module:ident / $avx512:ident, $function:ident, $($argument:expr),*) => {
        match $kernels.isa {
            Isa::Scalar => $module::scalar::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa::Avx2` exists only where the CPU has what the function needs.
            Isa::Avx2 => unsafe { $module::eight_lanes::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa::Avx512` exists only where the CPU has what the function needs.
            Isa::Avx512 => unsafe { $module::$avx512::$function($($argument),*) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: an `Isa::Neon` exists only where the CPU has what the function needs.
            Isa::Neon => unsafe { $module::eight_lanes::$function($($argument),*) },
        }
    };
}

impl Kernels {
    /// The kernels of `backend`.
    ///
    /// # Errors
    ///
    /// If this CPU can't run them, or `backend` is a GPU's.
    pub fn new(backend: Backend) -> Result<Self, UnsupportedBackend> {
        match backend {
            Backend::Scalar => Ok(Self { isa: Isa::Scalar }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 if crate::backend::has_avx2() => Ok(Self { isa: Isa::Avx2 }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 if crate::backend::has_avx512() => Ok(Self { isa: Isa::Avx512 }),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon if crate::backend::has_neon() => Ok(Self { isa: Isa::Neon }),
            Backend::Avx2 | Backend::Avx512 | Backend::Neon => {
                Err(UnsupportedBackend::NotOnThisCpu(backend))
            }
            Backend::Wgpu | Backend::Cuda => Err(UnsupportedBackend::Gpu(backend)),
        }
    }

    /// The fastest kernels that this CPU can run.
    pub fn best() -> Self {
        [Backend::Avx512, Backend::Avx2, Backend::Neon]
            .into_iter()
            .find_map(|backend| Self::new(backend).ok())
            .unwrap_or(Self { isa: Isa::Scalar })
    }

    /// The backend that these kernels run on.
    pub fn backend(self) -> Backend {
        match self.isa {
            Isa::Scalar => Backend::Scalar,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Backend::Avx2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Backend::Avx512,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Backend::Neon,
        }
    }

    /// Whether these kernels may use the loops over eight lanes: the CPU was found to have AVX2, FMA and F16C, or
    /// NEON.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn has_eight_lanes(self) -> bool {
        self.isa != Isa::Scalar
    }

    /// Whether these kernels may use the AVX-512 loops: the CPU was found to have what they need.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx512(self) -> bool {
        self.isa == Isa::Avx512
    }

    /// Whether products of `n` tokens with weights of this type round activations to 8-bit integers, in blocks as
    /// long as those of the weights.
    pub fn rounds_activations(self, kind: QuantType, n: usize) -> bool {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if n == 1 => gemv::int8::is_written(kind),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => gemm::int8::is_written(kind),
            _ => {
                let _ = (kind, n);
                false
            }
        }
    }

    /// Whether these kernels read rows of this type faster if they are [interleaved](crate::interleave()). They can
    /// read both layouts.
    pub fn interleaves(self, kind: QuantType) -> bool {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => can_be_interleaved(kind),
            _ => {
                let _ = kind;
                false
            }
        }
    }

    /// The values that products of `n` tokens with weights of this type use for `x`, one or several whole rows: see
    /// [`rounds_activations`](Self::rounds_activations).
    ///
    /// # Panics
    ///
    /// If these kernels round activations and `x` isn't whole blocks of the type.
    pub fn rounded_activations(self, kind: QuantType, x: &[f32], n: usize) -> Vec<f32> {
        if !self.rounds_activations(kind, n) {
            return x.to_vec();
        }
        assert!(
            x.len().is_multiple_of(kind.block_len()),
            "{} activations aren't whole blocks of {kind}",
            x.len()
        );
        Activations::rounded(kind, x).values().collect()
    }

    /// `out = x / sqrt(mean(x²) + eps) * weight`.
    ///
    /// # Panics
    ///
    /// If the three lengths differ.
    pub fn rms_norm(self, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
        dispatch!(self, rms_norm, rms_norm, out, x, weight, eps);
    }

    /// `x = x / sqrt(mean(x²) + eps) * weight`, for example for one head of a query or key.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn rms_norm_in_place(self, x: &mut [f32], weight: &[f32], eps: f32) {
        dispatch!(self, rms_norm, rms_norm_in_place, x, weight, eps);
    }

    /// Turns scores into probabilities. A score of `-inf` becomes exactly 0; if all are, or one is
    /// NaN, the result is NaN.
    pub fn softmax(self, x: &mut [f32]) {
        dispatch!(self, softmax, softmax, x);
    }

    /// Rotates one head by the angles of [`rope_tables`](crate::rope_tables). Elements past
    /// `2 * cos.len()` are left alone.
    ///
    /// # Panics
    ///
    /// If `cos` and `sin` differ in length, or there are more pairs than the head has.
    pub fn rope(self, x: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
        dispatch!(self, rope, rope, x, cos, sin, pairs);
    }

    /// `gate = gate / (1 + exp(-gate)) * up`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn silu_mul(self, gate: &mut [f32], up: &[f32]) {
        dispatch!(self, silu_mul, silu_mul, gate, up);
    }

    /// `gate = max(gate, 0)² * up`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn relu_squared_mul(self, gate: &mut [f32], up: &[f32]) {
        dispatch!(self, silu_mul, relu_squared_mul, gate, up);
    }

    /// `x += y`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add(self, x: &mut [f32], y: &[f32]) {
        dispatch!(self, add, add, x, y);
    }

    /// Adds `bias` to each row of `x`, `(n, bias.len())`.
    ///
    /// # Panics
    ///
    /// If `x` isn't whole rows of `bias.len()`.
    pub fn add_bias(self, x: &mut [f32], bias: &[f32]) {
        dispatch!(self, add, add_bias, x, bias);
    }

    /// `x *= factor`.
    pub fn scale(self, x: &mut [f32], factor: f32) {
        dispatch!(self, add, scale, x, factor);
    }

    /// `out[t] = scale * q·k[t]`: one query head against `out.len()` cached keys, `stride` elements
    /// apart.
    ///
    /// # Panics
    ///
    /// If `k` is too short for that many rows, or `stride` is less than `q.len()`.
    pub fn scores(self, out: &mut [f32], q: &[f32], k: &[f32], stride: usize, scale: f32) {
        dispatch!(self, attention / avx512, scores, out, q, k, stride, scale);
    }

    /// `out = Σ p[t] * v[t]`: `p.len()` cached values, `stride` elements apart, weighted. `out` is one
    /// head long, and is overwritten.
    ///
    /// # Panics
    ///
    /// If `v` is too short for that many rows, or `stride` is less than `out.len()`.
    pub fn weighted_sum(self, out: &mut [f32], p: &[f32], v: &[f32], stride: usize) {
        dispatch!(self, attention / avx512, weighted_sum, out, p, v, stride);
    }

    pub(crate) fn gemv_vector(self, out: &mut [f32], w: Matrix, rows: Range<usize>, x: Vector) {
        #[cfg(slow_kernel)]
        self.gemv_slowed(out, w, rows, x);
        #[cfg(not(slow_kernel))]
        self.gemv_as_written(out, w, rows, x);
    }

    #[inline]
    pub(crate) fn gemv_as_written(self, out: &mut [f32], w: Matrix, rows: Range<usize>, x: Vector) {
        match x {
            Vector::Floats(x) => dispatch!(self, gemv / avx512, gemv_rows, out, w, rows, x),
            #[cfg(target_arch = "x86_64")]
            Vector::Arranged(x) => {
                assert!(self.isa == Isa::Avx512, "only AVX-512 rounds activations");
                // SAFETY: an `Isa::Avx512` exists only where the CPU has what the function needs.
                unsafe { gemv::int8::gemv_rows(out, w, rows, x) }
            }
        }
    }

    pub(crate) fn gemm_columns(self, out: &mut Columns, w: Matrix, x: Tokens, n: usize) {
        dispatch!(self, gemm / avx512, gemm_columns, out, w, x, n);
    }

    /// A vector prepared for [`gemv_vector`](Self::gemv_vector), on backends that round activations.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn arranged(
        self,
        kind: QuantType,
        is_interleaved: bool,
        x: &[f32],
    ) -> gemv::int8::Arranged {
        assert!(self.isa == Isa::Avx512, "only AVX-512 rounds activations");
        // SAFETY: an `Isa::Avx512` exists only where the CPU has what the function needs.
        unsafe { gemv::int8::Arranged::new(kind, is_interleaved, x) }
    }

    /// Rows prepared for [`gemm_columns`](Self::gemm_columns), on backends that round activations.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn rounded(self, kind: QuantType, x: &[f32], n: usize) -> gemm::int8::Rounded {
        assert!(self.isa == Isa::Avx512, "only AVX-512 rounds activations");
        // SAFETY: an `Isa::Avx512` exists only where the CPU has what the function needs.
        unsafe { gemm::int8::Rounded::new(kind, x, n) }
    }

    /// Rows prepared for [`gemm_columns`](Self::gemm_columns) with float weights on AVX-512.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn packed(self, x: &[f32], n: usize) -> gemm::float::Packed {
        assert!(self.packs_activations(), "only AVX-512 packs activations");
        // SAFETY: an `Isa::Avx512` exists only where the CPU has what the function needs.
        unsafe { gemm::float::Packed::new(x, n) }
    }

    /// Whether products of several tokens with float weights put the tokens side by side.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn packs_activations(self) -> bool {
        self.isa == Isa::Avx512
    }
}

/// Selects between the names of the routines in the same way as [`dispatch!`] selects between the routines.
macro_rules! names {
    ($($(#[$doc:meta])* $method:ident => $operation:literal / $avx512:literal;)*) => {
        /// The names under which profilers report the routines that really run.
        impl Kernels {
            $($(#[$doc])*
            pub fn $method(self) -> &'static str {
                match self.isa {
                    Isa::Scalar => concat!($operation, "_scalar"),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => concat!($operation, "_avx2"),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => concat!($operation, "_", $avx512),
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => concat!($operation, "_neon"),
                }
            })*
        }
    };
}

names! {
    /// The routine behind [`rms_norm`](Self::rms_norm) and
    /// [`rms_norm_in_place`](Self::rms_norm_in_place).
    rms_norm_name => "rms_norm" / "avx2";
    /// The routine behind [`softmax`](Self::softmax).
    softmax_name => "softmax" / "avx2";
    /// The routine behind [`rope`](Self::rope).
    rope_name => "rope" / "avx2";
    /// The routine behind [`silu_mul`](Self::silu_mul).
    silu_mul_name => "silu_mul" / "avx2";
    /// The routine behind [`relu_squared_mul`](Self::relu_squared_mul).
    relu_squared_mul_name => "relu_squared_mul" / "avx2";
    /// The routine behind [`add`](Self::add).
    add_name => "add" / "avx2";
    /// The routine behind [`add_bias`](Self::add_bias).
    add_bias_name => "add_bias" / "avx2";
    /// The routine behind [`scale`](Self::scale).
    scale_name => "scale" / "avx2";
    /// The routine behind [`scores`](Self::scores).
    scores_name => "scores" / "avx512";
    /// The routine behind [`weighted_sum`](Self::weighted_sum).
    weighted_sum_name => "weighted_sum" / "avx512";
}

impl Kernels {
    /// The routine behind [`matmul`](Self::matmul) and [`gemm`](Self::gemm) for `n` tokens, such as
    /// `gemv_q8_0_avx2` or `gemm_q4_k_scalar`.
    pub fn matmul_name(self, kind: QuantType, n: usize) -> &'static str {
        macro_rules! by_kind {
            ($operation:literal, $isa:literal) => {
                match kind {
                    QuantType::F32 => concat!($operation, "_f32_", $isa),
                    QuantType::F16 => concat!($operation, "_f16_", $isa),
                    QuantType::BF16 => concat!($operation, "_bf16_", $isa),
                    QuantType::Q4_0 => concat!($operation, "_q4_0_", $isa),
                    QuantType::Q4_1 => concat!($operation, "_q4_1_", $isa),
                    QuantType::Q5_0 => concat!($operation, "_q5_0_", $isa),
                    QuantType::Q5_1 => concat!($operation, "_q5_1_", $isa),
                    QuantType::Q8_0 => concat!($operation, "_q8_0_", $isa),
                    QuantType::Q4_K => concat!($operation, "_q4_k_", $isa),
                    QuantType::Q5_K => concat!($operation, "_q5_k_", $isa),
                    QuantType::Q6_K => concat!($operation, "_q6_k_", $isa),
                    QuantType::TQ1_0 => concat!($operation, "_tq1_0_", $isa),
                    QuantType::TQ2_0 => concat!($operation, "_tq2_0_", $isa),
                    QuantType::I2_S => concat!($operation, "_i2_s_", $isa),
                }
            };
        }
        match (self.isa, n) {
            (Isa::Scalar, 1) => by_kind!("gemv", "scalar"),
            (Isa::Scalar, _) => by_kind!("gemm", "scalar"),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, 1) => by_kind!("gemv", "avx2"),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => by_kind!("gemm", "avx2"),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, 1) => by_kind!("gemv", "avx512"),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => by_kind!("gemm", "avx512"),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, 1) => by_kind!("gemv", "neon"),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, _) => by_kind!("gemm", "neon"),
        }
    }
}
