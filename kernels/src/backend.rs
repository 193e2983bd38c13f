//! The backends: their names, and how to find the best one for this machine.

use std::fmt;
use std::str::FromStr;

/// Hardware that runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Plain Rust: the reference.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI. Its products with quantised weights round activations to
    /// 8 bits.
    Avx512,
    /// 64-bit ARM. See [`caveat`](Self::caveat).
    Neon,
    /// A GPU through WebGPU.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl Backend {
    /// Every backend, in the order of the declaration.
    pub const ALL: [Self; 6] =
        [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon, Self::Wgpu, Self::Cuda];

    /// The name used on the command line and in reports, such as `avx2`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }

    /// What isn't known about a CPU backend yet. Reports print it beside its figures.
    pub const fn caveat(self) -> Option<&'static str> {
        match self {
            Self::Neon => {
                Some("NEON kernels: tested under qemu, never run on silicon, speed unknown")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| UnknownBackend { name: name.to_owned() })
    }
}

/// A name that no [`Backend`] has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBackend {
    name: String,
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no backend `{}`: choose one of", self.name)?;
        for (i, backend) in Backend::ALL.into_iter().enumerate() {
            write!(f, "{} {backend}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownBackend {}

/// A [`Backend`] that [`Kernels`](crate::Kernels) can't use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedBackend {
    /// The kernels exist, but this CPU can't run them.
    NotOnThisCpu(Backend),
    /// A GPU backend, which this crate doesn't contain.
    Gpu(Backend),
}

impl fmt::Display for UnsupportedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOnThisCpu(backend) => {
                write!(f, "this CPU can't run the {backend} kernels: use scalar")
            }
            Self::Gpu(backend) => {
                write!(f, "{backend} is a GPU backend, but these are CPU kernels")
            }
        }
    }
}

impl std::error::Error for UnsupportedBackend {}

/// The best instruction set that this CPU has kernels for: that of [`Kernels::best`](crate::Kernels::best).
///
/// [`Backend::Avx512`] asks for F, BW, VL, DQ and VNNI, [`Backend::Avx2`] for AVX2, FMA and F16C. The
/// answer never changes while a process runs.
pub fn detect_backend() -> Backend {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            return Backend::Avx512;
        }
        if has_avx2() {
            return Backend::Avx2;
        }
    }
    #[cfg(target_arch = "aarch64")]
    if has_neon() {
        return Backend::Neon;
    }
    Backend::Scalar
}

/// Whether this CPU has all features that the AVX2 kernels are compiled for.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Whether this CPU has all features that the AVX-512 kernels are compiled for. CPUs with AVX-512 but without VNNI
/// (Skylake-X) use the AVX2 kernels, which are nearly as fast there.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

/// Whether this CPU has all features that the NEON kernels are compiled for. Every 64-bit ARM that runs an
/// operating system has them.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_read_back() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(
            "sse9".parse::<Backend>().unwrap_err().to_string(),
            "there is no backend `sse9`: choose one of scalar, avx2, avx512, neon, wgpu, cuda"
        );
    }

    #[test]
    fn what_is_not_known_of_neon_fits_a_line() {
        let caveats: Vec<_> = Backend::ALL.into_iter().filter_map(Backend::caveat).collect();
        assert!(caveats.len() == 1 && caveats[0].starts_with("NEON kernels: "), "{caveats:?}");
        assert!("note: ".len() + caveats[0].len() <= 80);
    }

    #[test]
    fn what_is_detected_is_what_runs() {
        assert_eq!(crate::Kernels::best().backend(), detect_backend());
    }

    #[test]
    fn detection_agrees_with_the_architecture() {
        let expected: &[Backend] = if cfg!(target_arch = "x86_64") {
            &[Backend::Scalar, Backend::Avx2, Backend::Avx512]
        } else if cfg!(target_arch = "aarch64") {
            &[Backend::Neon]
        } else {
            &[Backend::Scalar]
        };
        assert!(expected.contains(&detect_backend()));
    }
}
