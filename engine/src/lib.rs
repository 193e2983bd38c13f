//! The engine that brickscope profiles: GGUF models, from file to tokens.
//!
//! ```
//! use std::num::NonZeroUsize;
//!
//! use brickscope::BrickProfiler;
//! use brickscope_engine::executor::Cpu;
//! use brickscope_engine::synth::{Shape, SynthQuant};
//! use brickscope_engine::{Model, Session, synth};
//! use brickscope_kernels::Kernels;
//!
//! // A small model with random weights; any GGUF file of a known architecture will do.
//! let path = std::env::temp_dir().join(format!("brickscope-doc-{}.gguf", std::process::id()));
//! synth::write(Shape::Tiny, SynthQuant::Q8_0, 1, &path, &mut |_, _| ())?;
//!
//! let model = Model::open(&path)?;
//! let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN)?;
//! let mut session = Session::new(&model, cpu, 64)?;
//! let prompt = model.tokenizer.encode("Hello", Default::default())?;
//!
//! let profiler = BrickProfiler::enabled();
//! let logits = session.forward_profiled(&profiler, &prompt)?;
//! assert_eq!(logits.len(), model.config.n_vocab);
//! println!("{}", profiler.report());
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One function, [`forward`](mod@forward), is the forward pass, with one brick a line.
//! [`Session::forward`] and [`Session::forward_profiled`] both call it; they differ in the
//! [`Probe`].

pub mod diverge;
pub mod executor;
pub mod forward;
pub mod gguf;
pub mod synth;
pub mod tokenizer;

mod config;
mod floats;
mod generate;
mod interleave;
mod kv_cache;
mod model;
mod probe;
mod sample;
mod script;
mod session;
mod tap;
mod weights;

pub use config::{Architecture, Config};
#[cfg(feature = "wgpu")]
pub use executor::Wgpu;
pub use executor::gpu::{Gpu, GpuError, GpuProbe, GpuSession};
pub use generate::{GenerateOptions, Generated, generate, generate_on};
pub use interleave::Interleaved;
pub use kv_cache::{Heads, KvCache};
pub use model::{Error, Model};
pub use probe::{KernelProbe, NoProbe, Probe, Profiled, ProfiledKernels};
pub use sample::{Sampler, Sampling};
pub use session::Session;
pub use tap::{At, Operation, Value};
pub use weights::{Layer, Tensor, Weights};
