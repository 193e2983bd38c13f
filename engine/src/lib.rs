//! The engine that brickscope profiles: GGUF models, from file to tokens.
//!
//! ```
//! use std::num::NonZeroUsize;
//!
//! use brickscope::BrickProfiler;
//! use brickscope_engine::executor::Cpu;
//! use brickscope_engine::synth::{Shape, SynthQuant};
//! use brickscope_engine::{Model, Session, synth};
//! use brickscope_analysis::Report;
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
//! [`Session`] runs a model on the CPU and [`GpuSession`] on a device; [`AnySession`] is either. `Session::forward` and
//! `Session::forward_profiled` run the same forward pass with different [`Probe`]s.
//!
//! # Where things are
//!
//! | file | what is in it |
//! |---|---|
//! | `forward.rs` | **the forward pass**, one brick a line, generic over the probe |
//! | `probe.rs`, `value.rs`, `tap.rs`, `template.rs` | probes; the values that a pass makes, and the probe that shows them; decode passes that are labelled afterwards |
//! | `gguf/` | model files: reading, writing, errors; `map.rs` has the `unsafe` line that maps one |
//! | `tokenizer/` | text to ids and back: `spm.rs`, `bpe.rs`, `split.rs` (pre-tokenizers) |
//! | `synth/` | model files of real shapes with seeded random weights; prompts of random tokens |
//! | `config.rs`, `weights.rs`, `model.rs`, `interleave.rs`, `error.rs` | a model's shape; its tensors by name; the whole of it; rows rearranged in memory; errors of models and devices |
//! | `weight_groups.rs` | the tensors of any file, summed by name and format |
//! | `cpu/`, `routines.rs`, `work.rs` | the CPU executor and each thread's share; kernels with their shapes, numbered and named; FLOPs and bytes of bricks |
//! | `session.rs`, `kv_cache.rs`, `floats.rs` | a session on the CPU; keys and values so far; buffers in large pages |
//! | `executor/gpu/` | devices in general: the pass as a list of kernels, and the session that runs it |
//! | `executor/cuda/` | NVIDIA: `driver/` has **every call into the driver and its `unsafe`**, `kernels/` a `.cu` and its `.ptx` for each operation, `graph.rs` decode passes as graphs, `clock.rs` timestamps, `bricks.rs` the predecessor's names, `cupti/` CUPTI's timings, an optional cross-check (`library.rs`: every call into it and its `unsafe`) |
//! | `executor/wgpu/` | Vulkan, Metal and DX12 (feature `wgpu`); `shaders/` has the kernels |
//! | `any_session.rs`, `generate.rs`, `sample.rs` | sessions on any executor; from prompt to answer; choosing tokens |
//! | `requantize.rs` | the same model with weights of another format |
//! | `finite.rs`, `not_finite.rs` | whether logits are numbers; if not, the weights or the brick in which that began |
//! | `diverge/` | two executors in lockstep: `compare.rs` compares a value, `tolerance.rs` says how far off it may be |
//!
//! `engine/fake-cuda/` is a CUDA driver, and CUPTI, without a device, for tests.

pub mod diverge;
pub mod executor;
pub mod forward;
pub mod gguf;
pub mod synth;
pub mod tokenizer;

mod any_session;
mod config;
mod cpu;
mod error;
mod finite;
mod floats;
mod generate;
mod interleave;
mod kv_cache;
mod model;
mod not_finite;
mod probe;
mod requantize;
mod routines;
mod sample;
mod session;
mod tap;
mod template;
mod value;
mod weight_groups;
mod weights;
mod work;

pub use any_session::{AnyProbe, AnySession, DeviceFacts};
pub use config::{Architecture, Config};
pub use cpu::thread_shares;
pub use error::{Error, GpuError};
#[cfg(feature = "wgpu")]
pub use executor::Wgpu;
pub use executor::gpu::{Gpu, GpuProbe, GpuSession};
pub use finite::{LogitsSeen, all_finite};
pub use generate::{GenerateOptions, Generated, generate};
pub use interleave::Interleaved;
pub use kv_cache::{Heads, KvCache};
pub use model::{Model, read_tokenizer};
pub use not_finite::not_finite;
pub use probe::{KernelProbe, NoProbe, Probe, Profiled, ProfiledKernels};
pub use requantize::requantize;
pub use sample::{Sampler, Sampling};
pub use session::Session;
pub use value::{At, Operation, Value};
pub use weight_groups::{quantization, weight_groups};
pub use weights::{Layer, Tensor, Weights};
