//! What a device does at best, measured by its own clock.

use brickscope::save::now_rfc3339;
use brickscope::{Ceilings, Numbers};
use wgpu::BufferUsages;

use super::adapter::{OpenDevice, Stamps};
use super::marks;
use crate::error::GpuError;
use crate::executor::gpu::peak::best_rate;

/// Memory is read from so many buffers in turns, as what a kernel can be bound to may fit a cache.
const BUFFERS: u64 = 4;
/// So large each is, if the device allows it.
const BYTES: u64 = 256 << 20;
/// With less, much would come from a cache.
const LEAST_BYTES: u64 = 16 << 20;
/// What a read of a `vec4<u32>` takes.
const UNIT: u64 = 16;

const THREADS: u32 = 256;
/// Workgroups that read one buffer, each a part of it.
const READERS: u32 = 2048;
/// Workgroups that multiply and add.
const MULTIPLIERS: u32 = 2048;
/// Multiplications and additions, each counted as one, of a thread in a round: 16 steps of 4 chains of 4 floats.
const FLOPS: f64 = 2.0 * 256.0;

/// A buffer is written by the same kernel that will read it: its bits look random, since buses take less power for zeros.
const FILL: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let each = (arrayLength(&data) + groups.x - 1u) / groups.x;
    let end = min((group.x + 1u) * each, arrayLength(&data));
    for (var i = group.x * each + thread.x; i < end; i += 256u) {
        var x = (vec4(4u * i) + vec4(0u, 1u, 2u, 3u)) * 2654435761u;
        x = (x ^ (x >> vec4(15u))) * 2246822519u;
        data[i] = x ^ (x >> vec4(13u));
    }
}
";

/// Each workgroup reads a part of its own, and each thread writes what it made of it, so that no read can be left out.
const READ: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> data: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let each = (arrayLength(&data) + groups.x - 1u) / groups.x;
    let end = min((group.x + 1u) * each, arrayLength(&data));
    var sum = vec4(0u);
    for (var i = group.x * each + thread.x; i < end; i += 1024u) {
        sum += data[i];
        if i + 256u < end { sum += data[i + 256u]; }
        if i + 512u < end { sum += data[i + 512u]; }
        if i + 768u < end { sum += data[i + 768u]; }
    }
    out[group.x * 256u + thread.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
";

/// Chains of v² − 1.9, whose values go on changing and stay between −1.9 and 1.9, so often as `rounds` says.
const MULTIPLY_ADD: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> rounds: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) thread: vec3<u32>) {
    let c = vec4(-1.9);
    var a = vec4(f32(thread.x % 97u) * 0.01) + vec4(0.0, 0.01, 0.02, 0.03);
    var b = a + vec4(0.04);
    var d = a + vec4(0.08);
    var e = a + vec4(0.12);
    for (var round = 0u; round < rounds[0].x; round += 1u) {
STEPS
    }
    let sum = a + b + d + e;
    out[thread.x] = bitcast<u32>(sum.x + sum.y + sum.z + sum.w);
}
";
const STEP: &str =
    "        a = fma(a, a, c); b = fma(b, b, c); d = fma(d, d, c); e = fma(e, e, c);\n";

/// Measures how fast the first device of this machine, the one that [`Wgpu`](super::Wgpu) takes, reads its memory, and how
/// fast it multiplies and adds floats: the fastest of some runs of loops that do nothing else, by the device's timestamps.
/// Takes most of a second, and up to 1 GiB of the device's memory. Caches are not measured: wgpu doesn't tell their sizes.
///
/// # Errors
///
/// If there is no device, it has no timestamps, or too little memory.
pub fn measure_ceilings() -> Result<Ceilings, GpuError> {
    let meter = Meter::new()?;
    let info = &meter.gpu.info;
    Ok(Ceilings {
        read_bytes_per_second: meter.memory()?,
        flops_per_second: meter.flops()?,
        numbers: Some(Numbers::F32),
        basis: format!("measured before the run: {}, {}", info.name, info.backend.to_str()),
        measured: Some(now_rfc3339()),
        ..Ceilings::default()
    })
}

/// Measures how fast that device reads its memory, in bytes per second; see [`measure_ceilings`].
///
/// # Errors
///
/// As there.
pub fn measure_memory() -> Result<f64, GpuError> {
    Meter::new()?.memory()
}

/// Loops on a device.
struct Meter {
    gpu: OpenDevice,
    /// A word for each thread.
    out: wgpu::Buffer,
}

impl Meter {
    fn new() -> Result<Self, GpuError> {
        let gpu = OpenDevice::open()?;
        if let Stamps::None(why) = gpu.stamps {
            return Err(gpu.fault("measure what it does at best", why.to_owned()));
        }
        let threads = u64::from(READERS.max(MULTIPLIERS)) * u64::from(THREADS);
        let out = gpu.buffer("sums", 4 * threads, BufferUsages::STORAGE)?;
        Ok(Self { gpu, out })
    }

    fn pipeline(&self, source: &str) -> Result<wgpu::ComputePipeline, GpuError> {
        let label = Some("what measures the device at best");
        let module = self.gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let pipeline = self.gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        self.gpu.check("compile a kernel")?;
        Ok(pipeline)
    }

    fn bound(
        &self,
        pipeline: &wgpu::ComputePipeline,
        buffers: &[&wgpu::Buffer],
    ) -> wgpu::BindGroup {
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    }

    /// Buffers of memory, as large as the device has them.
    fn data(&self) -> Result<Vec<wgpu::Buffer>, GpuError> {
        let mut bytes = BYTES.min(self.gpu.max_binding() / UNIT * UNIT);
        loop {
            let buffer = |_| self.gpu.buffer("memory to read", bytes, BufferUsages::STORAGE);
            match (0..BUFFERS).map(buffer).collect() {
                Err(_) if bytes / 2 >= LEAST_BYTES => bytes = bytes / 2 / UNIT * UNIT,
                buffers => return buffers,
            }
        }
    }

    /// Bytes read per second from memory.
    fn memory(&self) -> Result<f64, GpuError> {
        let data = self.data()?;
        let fill = self.pipeline(FILL)?;
        let filled: Vec<_> = data.iter().map(|data| self.bound(&fill, &[data])).collect();
        marks::time(&self.gpu, |pass| dispatch(pass, &fill, &filled, READERS))?;
        let read = self.pipeline(READ)?;
        let bound: Vec<_> = data.iter().map(|data| self.bound(&read, &[&self.out, data])).collect();
        let each = data.iter().map(wgpu::Buffer::size).sum::<u64>() as f64;
        let rate = best_rate(each, |rounds| {
            marks::time(&self.gpu, |pass| {
                (0..rounds).for_each(|_| dispatch(pass, &read, &bound, READERS));
            })
        })?;
        rate.ok_or_else(|| self.still())
    }

    /// Multiplications and additions of floats per second.
    fn flops(&self) -> Result<f64, GpuError> {
        let pipeline = self.pipeline(&MULTIPLY_ADD.replace("STEPS\n", &STEP.repeat(16)))?;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let rounds = self.gpu.buffer("rounds", UNIT, usage)?;
        let bound = [self.bound(&pipeline, &[&self.out, &rounds])];
        let each = FLOPS * f64::from(MULTIPLIERS) * f64::from(THREADS);
        let rate = best_rate(each, |n| {
            self.gpu.queue.write_buffer(&rounds, 0, bytemuck::cast_slice(&[n; 4]));
            marks::time(&self.gpu, |pass| dispatch(pass, &pipeline, &bound, MULTIPLIERS))
        })?;
        rate.ok_or_else(|| self.still())
    }

    fn still(&self) -> GpuError {
        self.gpu.fault("measure what it does at best", "its clock stood still".to_owned())
    }
}

/// Launches a kernel once for each of some buffers.
fn dispatch(
    pass: &mut wgpu::ComputePass<'static>,
    pipeline: &wgpu::ComputePipeline,
    bound: &[wgpu::BindGroup],
    groups: u32,
) {
    pass.set_pipeline(pipeline);
    for bound in bound {
        pass.set_bind_group(0, bound, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }
}
