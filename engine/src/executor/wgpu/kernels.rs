//! The kernels: the pieces of WGSL that make up each, and its bindings.

use std::collections::HashMap;

use brickscope_kernels::RopePairs;

use super::adapter::OpenDevice;
use crate::error::GpuError;

/// The layout of a matrix in the device's memory.
#[allow(non_camel_case_types, reason = "as in `QuantType`")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Format {
    F32,
    F16,
    Q8_0,
    Q4_K,
    /// Signed bytes, and an F32 scale for each 16.
    I8,
}

impl Format {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_K => "q4_k",
            Self::I8 => "i8",
        }
    }

    /// The source of its `weights`, which reads 32 of them.
    fn source(self) -> &'static str {
        match self {
            Self::F32 => include_str!("shaders/weights_f32.wgsl"),
            Self::F16 => include_str!("shaders/weights_f16.wgsl"),
            Self::Q8_0 => include_str!("shaders/weights_q8_0.wgsl"),
            Self::Q4_K => include_str!("shaders/weights_q4_k.wgsl"),
            Self::I8 => include_str!("shaders/weights_i8.wgsl"),
        }
    }
}

/// A kernel. Variants that differ in more than a number are kernels of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    Embed(Format),
    RmsNorm {
        in_place: bool,
    },
    /// `ragged`: the width isn't a whole number of blocks.
    Gemv {
        format: Format,
        ragged: bool,
    },
    Gemm {
        format: Format,
        ragged: bool,
    },
    AddBias,
    Rope(RopePairs),
    Scores,
    Softmax,
    WeightedSum,
    SiluMul,
    ReluSquaredMul,
    Add,
}

/// How a kernel accesses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Kernel {
    /// Its name in profiles.
    pub(super) fn name(self) -> String {
        match self {
            Self::Embed(format) => format!("embed_{}_wgsl", format.name()),
            Self::RmsNorm { .. } => "rms_norm_wgsl".to_owned(),
            Self::Gemv { format, .. } => format!("{}_gemv_wgsl", format.name()),
            Self::Gemm { format, .. } => format!("{}_gemm_wgsl", format.name()),
            Self::AddBias => "add_bias_wgsl".to_owned(),
            Self::Rope(RopePairs::Norm) => "rope_norm_wgsl".to_owned(),
            Self::Rope(RopePairs::Neox) => "rope_neox_wgsl".to_owned(),
            Self::Scores => "scores_wgsl".to_owned(),
            Self::Softmax => "softmax_wgsl".to_owned(),
            Self::WeightedSum => "weighted_sum_wgsl".to_owned(),
            Self::SiluMul => "silu_mul_wgsl".to_owned(),
            Self::ReluSquaredMul => "relu_squared_mul_wgsl".to_owned(),
            Self::Add => "add_wgsl".to_owned(),
        }
    }

    /// Invocations of a workgroup.
    pub(super) fn workgroup(self) -> u32 {
        match self {
            Self::RmsNorm { .. } => 128,
            _ => 64,
        }
    }

    /// Bytes that the invocations of a workgroup share.
    pub(super) fn workgroup_bytes(self) -> u32 {
        match self {
            Self::Gemv { .. } | Self::Softmax => 4 * 64,
            Self::RmsNorm { .. } => 4 * 128,
            Self::Gemm { .. } => 2 * 16 * 256,
            _ => 0,
        }
    }

    fn source(self) -> String {
        let x = |ragged| {
            if ragged {
                include_str!("shaders/x_ragged.wgsl")
            } else {
                include_str!("shaders/x_aligned.wgsl")
            }
        };
        let matrix = include_str!("shaders/matrix_args.wgsl");
        let attention = include_str!("shaders/attention_args.wgsl");
        let each = include_str!("shaders/each.wgsl");
        let pieces: &[&str] = match self {
            Self::Embed(format) => &[matrix, include_str!("shaders/embed.wgsl"), format.source()],
            Self::RmsNorm { in_place: false } => &[
                include_str!("shaders/rms_norm.wgsl"),
                include_str!("shaders/rms_norm_other.wgsl"),
            ],
            Self::RmsNorm { in_place: true } => &[
                include_str!("shaders/rms_norm.wgsl"),
                include_str!("shaders/rms_norm_in_place.wgsl"),
            ],
            Self::Gemv { format, ragged } => {
                &[matrix, format.source(), x(ragged), include_str!("shaders/gemv.wgsl")]
            }
            Self::Gemm { format, ragged } => {
                &[matrix, format.source(), x(ragged), include_str!("shaders/gemm.wgsl")]
            }
            Self::AddBias => &[include_str!("shaders/add_bias.wgsl"), each],
            Self::Rope(pairs) => {
                let partners = match pairs {
                    RopePairs::Norm => include_str!("shaders/rope_norm.wgsl"),
                    RopePairs::Neox => include_str!("shaders/rope_neox.wgsl"),
                };
                &[include_str!("shaders/rope.wgsl"), partners, each]
            }
            Self::Scores => &[attention, include_str!("shaders/scores.wgsl")],
            Self::Softmax => &[attention, include_str!("shaders/softmax.wgsl")],
            Self::WeightedSum => &[attention, include_str!("shaders/weighted_sum.wgsl")],
            Self::SiluMul => &[include_str!("shaders/silu_mul.wgsl"), each],
            Self::ReluSquaredMul => &[include_str!("shaders/relu_squared_mul.wgsl"), each],
            Self::Add => &[include_str!("shaders/add.wgsl"), each],
        };
        [&[include_str!("shaders/common.wgsl")], pieces].concat().join("\n")
    }

    /// The accesses to the buffers, from binding 2 on.
    fn buffers(self) -> &'static [Access] {
        use Access::{Read, Write};
        match self {
            Self::Embed(_) | Self::Gemv { .. } | Self::Gemm { .. } => &[Read, Read, Write],
            Self::RmsNorm { in_place: false } => &[Read, Write, Read],
            Self::RmsNorm { in_place: true } => &[Read, Write],
            Self::AddBias | Self::SiluMul | Self::ReluSquaredMul | Self::Add => &[Write, Read],
            Self::Rope(_) | Self::Scores | Self::WeightedSum => &[Write, Read, Read],
            Self::Softmax => &[Write],
        }
    }
}

/// A compiled kernel.
#[derive(Debug, Clone)]
pub(super) struct Compiled {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// All compiled kernels.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    compiled: HashMap<Kernel, Compiled>,
}

impl Kernels {
    /// The kernel, and whether it had to be compiled.
    pub(super) fn get(
        &mut self,
        gpu: &OpenDevice,
        kernel: Kernel,
    ) -> Result<(Compiled, bool), GpuError> {
        if let Some(compiled) = self.compiled.get(&kernel) {
            return Ok((compiled.clone(), false));
        }
        let compiled = compile(gpu, kernel)?;
        self.compiled.insert(kernel, compiled.clone());
        Ok((compiled, true))
    }
}

fn compile(gpu: &OpenDevice, kernel: Kernel) -> Result<Compiled, GpuError> {
    let name = kernel.name();
    let label = Some(&name[..]);
    let uniform = wgpu::BufferBindingType::Uniform;
    let storage = kernel
        .buffers()
        .iter()
        .map(|access| wgpu::BufferBindingType::Storage { read_only: *access == Access::Read });
    let entries: Vec<_> = (0..)
        .zip([uniform; 2].into_iter().chain(storage))
        .map(|(binding, ty)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    let device = &gpu.device;
    let layout = device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let source = kernel.source();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Kernels write workgroup memory before they read it.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    gpu.check("compile a kernel")?;
    Ok(Compiled { pipeline, layout })
}
