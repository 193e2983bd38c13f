//! Finding a device and opening it, and what it says when something goes wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brickscope::DeviceError;

use crate::executor::gpu::GpuError;

fn no_device(reason: String) -> GpuError {
    GpuError::NoDevice { api: "Vulkan, Metal or DX12", reason }
}

const BACKENDS: wgpu::Backends =
    wgpu::Backends::VULKAN.union(wgpu::Backends::METAL).union(wgpu::Backends::DX12);

/// How finely a device takes the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    /// Between two kernels.
    Kernels,
    /// Where a pass begins: marked work is cut into passes.
    Passes,
    /// Not at all, as it says.
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

/// What the device has said. Its callbacks have nobody to return an error to.
#[derive(Debug, Default)]
struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the device was lost, from then on.
    lost: Option<String>,
    /// The first complaint since it was last asked.
    fault: Option<String>,
}

impl State {
    /// That it is lost, each time; else what it has complained of, once.
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

/// The devices of this machine, the likeliest to be meant first: discrete GPUs, then integrated ones,
/// then what computes on the CPU.
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
        Stamps::None("this device has no time stamps")
    } else if !features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
        Stamps::Passes
    } else {
        Stamps::Kernels
    }
}

impl OpenDevice {
    /// Opens the first device that lets itself be opened.
    pub(super) fn open() -> Result<Self, GpuError> {
        let adapters = adapters();
        let none = "no driver answers; on Linux, install one for Vulkan (mesa-vulkan-drivers computes on the CPU)";
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
        // What every device of WebGPU has is enough, save for the size of buffers.
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

    /// What has gone wrong since this was last asked, while `what` was done.
    pub(super) fn check(&self, what: &'static str) -> Result<(), GpuError> {
        let Some(fault) = self.faults.state().complaint() else { return Ok(()) };
        if self.faults.state().lost.is_none() {
            // That the device is lost is told by a callback, which runs when it is polled; calls may have
            // failed before. What polling itself says is no news then.
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

    /// Waits for what has been submitted: all of it, or up to `submission`.
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), GpuError> {
        let waited =
            self.poll(wgpu::PollType::Wait { submission_index: submission, timeout: None });
        self.check("wait")?;
        waited.map_err(|why| self.fault("wait", why))
    }

    /// Lets callbacks of what is done run; waits for nothing.
    pub(super) fn tend(&self) -> Result<(), GpuError> {
        let polled = self.poll(wgpu::PollType::Poll);
        self.check("look for what is done")?;
        polled.map_err(|why| self.fault("look for what is done", why))
    }

    fn poll(&self, how: wgpu::PollType) -> Result<(), String> {
        // A device that is lost while it is waited for makes wgpu panic.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(polled) => polled.map(drop).map_err(|why| why.to_string()),
            Err(_) => {
                let why = "it stopped answering".to_owned();
                self.faults.state().lost.get_or_insert(why.clone());
                Err(why)
            }
        }
    }

    /// Nanoseconds of a tick of its clock.
    pub(super) fn ns_per_tick(&self) -> f64 {
        self.queue.get_timestamp_period().into()
    }

    /// That `what` can't be done.
    pub(super) fn fault(&self, what: &'static str, why: String) -> GpuError {
        let reason = format!("{}: {why}", self.info.name);
        DeviceError::Failed { what: what.to_owned(), reason }.into()
    }

    /// How large a buffer may be that a kernel is bound to.
    pub(super) fn max_binding(&self) -> u64 {
        self.limits.max_buffer_size.min(self.limits.max_storage_buffer_binding_size)
    }

    /// A buffer of so many bytes, or an error that says what it was for.
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
            // No buffer is empty, and copies go by four bytes.
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

/// wgpu's errors are trees of many lines.
fn first_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(": ")
}
