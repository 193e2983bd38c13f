//! Finds and opens a device, and collects its errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brickscope::DeviceError;

use crate::error::GpuError;

fn no_device(reason: String) -> GpuError {
    GpuError::NoDevice { api: "Vulkan, Metal or DX12", reason }
}

const BACKENDS: wgpu::Backends =
    wgpu::Backends::VULKAN.union(wgpu::Backends::METAL).union(wgpu::Backends::DX12);

/// Where a device can take timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    /// Between two kernels.
    Kernels,
    /// Only where a pass begins, so timed work is split into passes.
    Passes,
    /// Nowhere, for this reason.
    None(&'static str),
}

/// An open device.
#[derive(Debug)]
pub(super) struct OpenDevice {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) limits: wgpu::Limits,
    pub(super) info: wgpu::AdapterInfo,
    pub(super) stamps: Stamps,
    faults: Arc<Faults>,
}

/// Errors from the device's callbacks, which can't return them.
#[derive(Debug, Default)]
struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the device was lost, if it was.
    lost: Option<String>,
    /// The first error since the last check.
    fault: Option<String>,
}

impl State {
    /// That the device is lost, each time; otherwise its first error, once.
    fn complaint(&mut self) -> Option<String> {
        self.lost.clone().or_else(|| self.fault.take())
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn instance() -> wgpu::Instance {
    let descriptor = wgpu::InstanceDescriptor {
        backends: BACKENDS,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    wgpu::Instance::new(descriptor)
}

/// The devices of this machine, the most likely choice first: discrete GPUs, then integrated ones,
/// then software devices.
fn adapters() -> Vec<wgpu::Adapter> {
    let rank = |adapter: &wgpu::Adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    let mut adapters = pollster::block_on(instance().enumerate_adapters(BACKENDS));
    adapters.sort_by_key(rank);
    adapters
}

pub(super) fn driver(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info).trim().to_owned()
}

fn stamps(features: wgpu::Features) -> Stamps {
    if !features.contains(wgpu::Features::TIMESTAMP_QUERY) {
        Stamps::None("this device has no timestamps")
    } else if !features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
        Stamps::Passes
    } else {
        Stamps::Kernels
    }
}

impl OpenDevice {
    /// Opens the first device that can be opened.
    pub(super) fn open() -> Result<Self, GpuError> {
        let adapters = adapters();
        let none = "no driver was found; on Linux, install one for Vulkan (mesa-vulkan-drivers computes on the CPU)";
        let mut refusal = no_device(none.to_owned());
        for adapter in &adapters {
            match Self::open_adapter(adapter) {
                Ok(gpu) => return Ok(gpu),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }

    fn open_adapter(adapter: &wgpu::Adapter) -> Result<Self, GpuError> {
        let (info, has, features) = (adapter.get_info(), adapter.limits(), adapter.features());
        let stamps = stamps(features);
        let required_features = match stamps {
            Stamps::Kernels => {
                wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
            }
            Stamps::Passes => wgpu::Features::TIMESTAMP_QUERY,
            Stamps::None(_) => wgpu::Features::empty(),
        };
        // WebGPU's default limits are enough, except for the size of buffers.
        let limits = wgpu::Limits {
            max_buffer_size: has.max_buffer_size,
            max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
            ..wgpu::Limits::default()
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("brickscope"),
            required_features,
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| no_device(format!("{} can't be opened: {e}", info.name)))?;
        let faults = Arc::new(Faults::default());
        // Without a handler, wgpu panics.
        let told = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            told.state().fault.get_or_insert_with(|| first_line(&error.to_string()));
        }));
        let told = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            let why = if message.is_empty() { format!("{reason:?}") } else { message };
            told.state().lost.get_or_insert(why);
        });
        Ok(Self { device, queue, limits, info, stamps, faults })
    }

    /// Returns any error since the last check, as having happened while `what` was done.
    pub(super) fn check(&self, what: &'static str) -> Result<(), GpuError> {
        let Some(fault) = self.faults.state().complaint() else { return Ok(()) };
        if self.faults.state().lost.is_none() {
            // The callback that reports a lost device runs in this poll, perhaps after failed calls. The poll's
            // own result adds nothing then.
            let _ = self.poll(wgpu::PollType::Poll);
        }
        match &self.faults.state().lost {
            Some(why) => {
                let reason = format!("{}: {why}", self.info.name);
                Err(DeviceError::Lost { reason }.into())
            }
            None => Err(self.fault(what, fault)),
        }
    }

    /// Waits for all submitted work, or for that up to `submission`.
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), GpuError> {
        let waited =
            self.poll(wgpu::PollType::Wait { submission_index: submission, timeout: None });
        self.check("wait")?;
        waited.map_err(|why| self.fault("wait", why))
    }

    /// Runs the callbacks of completed work, without waiting.
    pub(super) fn tend(&self) -> Result<(), GpuError> {
        let polled = self.poll(wgpu::PollType::Poll);
        self.check("look for what is done")?;
        polled.map_err(|why| self.fault("look for what is done", why))
    }

    fn poll(&self, how: wgpu::PollType) -> Result<(), String> {
        // wgpu panics if a device is lost during a wait.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(polled) => polled.map(drop).map_err(|why| why.to_string()),
            Err(_) => {
                let why = "it stopped answering".to_owned();
                self.faults.state().lost.get_or_insert(why.clone());
                Err(why)
            }
        }
    }

    /// Nanoseconds per tick of its clock.
    pub(super) fn ns_per_tick(&self) -> f64 {
        self.queue.get_timestamp_period().into()
    }

    /// The error that `what` failed.
    pub(super) fn fault(&self, what: &'static str, why: String) -> GpuError {
        let reason = format!("{}: {why}", self.info.name);
        DeviceError::Failed { what: what.to_owned(), reason }.into()
    }

    /// The largest buffer that a kernel can be bound to, in bytes.
    pub(super) fn max_binding(&self) -> u64 {
        self.limits.max_buffer_size.min(self.limits.max_storage_buffer_binding_size)
    }

    /// A buffer of `bytes` bytes, or an error that names it as `what`.
    pub(super) fn buffer(
        &self,
        what: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, GpuError> {
        let refused = |limit: String| GpuError::TooLarge {
            device: self.info.name.clone(),
            what: what.to_owned(),
            bytes,
            limit,
        };
        let limit = if usage.contains(wgpu::BufferUsages::STORAGE) {
            self.max_binding()
        } else {
            self.limits.max_buffer_size
        };
        if bytes > limit {
            return Err(refused(format!("but this device gives a kernel {limit} at most at once")));
        }
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(what),
            // Buffers can't be empty, and copies are multiples of four bytes.
            size: bytes.max(4).next_multiple_of(4),
            usage,
            mapped_at_creation: false,
        });
        match pollster::block_on(scope.pop()) {
            None => self.check("allocate").map(|()| buffer),
            Some(_) => Err(refused("which this device does not have".to_owned())),
        }
    }
}

/// The first line of an error, as wgpu's have many.
fn first_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(": ")
}
