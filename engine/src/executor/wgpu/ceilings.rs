//! What a device does at best, measured by its own clock.

use brickscope::save::now_rfc3339;
use brickscope::{Ceilings, Numbers};
use wgpu::BufferUsages;

use super::adapter::{OpenDevice, Stamps};
use super::marks;
use crate::error::GpuError;
use crate::executor::gpu::peak::best_rate;

/// So much memory is read, if the device gives a kernel as much at once.
const BYTES: u64 = 1 << 30;
/// With less, much would come from a cache.
const LEAST_BYTES: u64 = 64 << 20;
/// What a read of a `vec4<u32>` takes, and the reads of a thread in a round.
const UNIT: u64 = 16;
const READS: u64 = 8;
/// The rounds in which memory is read once.
const SWEEP_ROUNDS: u32 = 4;

const THREADS: u32 = 256;
/// What a workgroup reads.
const OF_GROUP: u64 = UNIT * READS * THREADS as u64 * SWEEP_ROUNDS as u64;
/// Workgroups that compute: so many that few of a device's places are empty while the last ones run.
const GROUPS: u32 = 65_535;
/// The same for a device that is the processor.
const GROUPS_OF_CPU: u32 = 1024;
/// Words that threads write: with more threads, several share one.
const OUT: u32 = 1 << 18;
/// Multiplications and additions, each counted as one, of a thread in a round: 16 steps of 4 chains of 4 floats.
const FLOPS: u64 = 2 * 256;

/// Fills a buffer with numbers whose bits look random, since buses take less power for zeros.
const FILL: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(global_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var i = thread.x; i < arrayLength(&data); i += groups.x * 256u) {
        var x = (vec4(4u * i) + vec4(0u, 1u, 2u, 3u)) * 2654435761u;
        x = (x ^ (x >> vec4(15u))) * 2246822519u;
        data[i] = x ^ (x >> vec4(13u));
    }
}
";

/// Each thread reads as often as every other one, a part of all that there is, far apart. It writes what it made of that, so
/// that no read can be left out.
const READ: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> rounds: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> data: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(global_invocation_id) thread: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let len = arrayLength(&data);
    let step = groups.x * 256u % len;
    let wrap = len - step;
    var at = thread.x % len;
    var sum = vec4(0u);
    for (var round = 0u; round < rounds[0].x; round += 1u) {
        let a = at;
        let b = select(a - wrap, a + step, a < wrap);
        let c = select(b - wrap, b + step, b < wrap);
        let d = select(c - wrap, c + step, c < wrap);
        let e = select(d - wrap, d + step, d < wrap);
        let f = select(e - wrap, e + step, e < wrap);
        let g = select(f - wrap, f + step, f < wrap);
        let h = select(g - wrap, g + step, g < wrap);
        at = select(h - wrap, h + step, h < wrap);
        let first = data[a] + data[b] + data[c] + data[d];
        sum += first + data[e] + data[f] + data[g] + data[h];
    }
    out[thread.x % arrayLength(&out)] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
";

/// Chains of v² − 1.9, whose values go on changing and stay between −1.9 and 1.9.
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
    out[thread.x % arrayLength(&out)] = bitcast<u32>(sum.x + sum.y + sum.z + sum.w);
}
";
const STEP: &str =
    "        a = fma(a, a, c); b = fma(b, b, c); d = fma(d, d, c); e = fma(e, e, c);\n";

/// Measures how fast the first device of this machine, the one that [`Wgpu`](super::Wgpu) takes, reads its memory, and how
/// fast it multiplies and adds floats: the fastest of some runs of loops that do nothing else, by the device's timestamps.
/// Each loop ends after 0.6 s, or three runs. Takes up to 1 GiB of the device's memory. Caches are not measured: wgpu
/// doesn't tell their sizes.
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
pub(super) struct Meter {
    pub(super) gpu: OpenDevice,
    /// What threads made of what they did.
    pub(super) out: wgpu::Buffer,
    /// The rounds that a loop goes.
    rounds: wgpu::Buffer,
    groups: u32,
}

impl Meter {
    pub(super) fn new() -> Result<Self, GpuError> {
        let gpu = OpenDevice::open()?;
        if let Stamps::None(why) = gpu.stamps {
            return Err(gpu.fault("measure what it does at best", why.to_owned()));
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
        let out = gpu.buffer("sums", 4 * u64::from(OUT), usage)?;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let rounds = gpu.buffer("rounds", UNIT, usage)?;
        let is_cpu = gpu.info.device_type == wgpu::DeviceType::Cpu;
        Ok(Self { gpu, out, rounds, groups: if is_cpu { GROUPS_OF_CPU } else { GROUPS } })
    }

    /// Those that compute.
    fn threads(&self) -> u64 {
        u64::from(self.groups) * u64::from(THREADS)
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

    /// Runs so many workgroups of a kernel on these buffers, a few times in a row; the nanoseconds that they took.
    fn run(
        &self,
        pipeline: &wgpu::ComputePipeline,
        buffers: &[&wgpu::Buffer],
        groups: u32,
        times: u32,
    ) -> Result<f64, GpuError> {
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let bound = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        marks::time(&self.gpu, |pass| {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bound, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(groups, 1, 1);
            }
        })
    }

    fn set_rounds(&self, rounds: u32) {
        self.gpu.queue.write_buffer(&self.rounds, 0, bytemuck::cast_slice(&[rounds; 4]));
    }

    /// Memory with something in it, as large as the device has it: whole reads of workgroups.
    fn data(&self) -> Result<wgpu::Buffer, GpuError> {
        let mut bytes = BYTES.min(self.gpu.max_binding()) / OF_GROUP * OF_GROUP;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC;
        let data = loop {
            match self.gpu.buffer("memory to read", bytes, usage) {
                Err(_) if bytes / 2 >= LEAST_BYTES => bytes = bytes / 2 / OF_GROUP * OF_GROUP,
                data => break data?,
            }
        };
        self.run(&self.pipeline(FILL)?, &[&data], self.groups, 1)?;
        Ok(data)
    }

    /// Bytes read per second from memory: each dispatch reads each byte once. What is read over and over within one comes
    /// from caches, since a device runs some workgroups to their end before others begin.
    fn memory(&self) -> Result<f64, GpuError> {
        let (data, read) = (self.data()?, self.pipeline(READ)?);
        let rate = best_rate(data.size() as f64, 1, |times| self.sweep(&read, &data, times))?;
        rate.ok_or_else(|| self.still())
    }

    /// Reads all of `data` a few times; the nanoseconds that it took.
    fn sweep(
        &self,
        read: &wgpu::ComputePipeline,
        data: &wgpu::Buffer,
        times: u32,
    ) -> Result<f64, GpuError> {
        self.set_rounds(SWEEP_ROUNDS);
        let groups = (data.size() / OF_GROUP) as u32;
        self.run(read, &[&self.out, &self.rounds, data], groups, times)
    }

    /// Reads memory once, and returns it: what the threads made of it is in `out`.
    #[cfg(test)]
    pub(super) fn read_once(&self) -> Result<wgpu::Buffer, GpuError> {
        let data = self.data()?;
        self.sweep(&self.pipeline(READ)?, &data, 1)?;
        Ok(data)
    }

    /// Multiplications and additions of floats per second.
    fn flops(&self) -> Result<f64, GpuError> {
        let pipeline = self.multiply_add()?;
        let each = (self.threads() * FLOPS) as f64;
        let rate = best_rate(each, 1, |rounds| {
            self.set_rounds(rounds);
            self.run(&pipeline, &[&self.out, &self.rounds], self.groups, 1)
        })?;
        rate.ok_or_else(|| self.still())
    }

    fn multiply_add(&self) -> Result<wgpu::ComputePipeline, GpuError> {
        self.pipeline(&MULTIPLY_ADD.replace("STEPS\n", &STEP.repeat(16)))
    }

    /// Multiplies and adds a few times: the sums are in `out`.
    #[cfg(test)]
    pub(super) fn multiply_add_once(&self, rounds: u32) -> Result<(), GpuError> {
        self.set_rounds(rounds);
        self.run(&self.multiply_add()?, &[&self.out, &self.rounds], self.groups, 1).map(drop)
    }

    fn still(&self) -> GpuError {
        self.gpu.fault("measure what it does at best", "its clock stood still".to_owned())
    }
}
