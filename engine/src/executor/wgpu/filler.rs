//! A little work to measure timestamps around.

use wgpu::BufferUsages;

use super::adapter::OpenDevice;
use crate::error::GpuError;

/// Workgroups of 64: enough to keep a GPU busy, and only a few microseconds on a software device.
const GROUPS: u32 = 16;

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    x[id.x] += 1.0;
}
";

/// A kernel that reads and writes the same 4 KiB each time, so that each launch waits for the one before it, as in
/// a pass.
#[derive(Debug)]
pub(super) struct Filler {
    pipeline: wgpu::ComputePipeline,
    bound: wgpu::BindGroup,
}

impl Filler {
    pub(super) fn new(gpu: &OpenDevice) -> Result<Self, GpuError> {
        let label = Some("work between time stamps");
        let module = gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(SOURCE.into()),
        });
        let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let bytes = 4 * 64 * u64::from(GROUPS);
        let buffer = gpu.buffer("work between time stamps", bytes, BufferUsages::STORAGE)?;
        let bound = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
        });
        gpu.check("compile a kernel")?;
        Ok(Self { pipeline, bound })
    }

    pub(super) fn record(&self, pass: &mut wgpu::ComputePass<'static>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bound, &[]);
        pass.dispatch_workgroups(GROUPS, 1, 1);
    }
}
