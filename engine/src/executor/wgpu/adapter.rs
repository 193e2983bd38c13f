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

/// A device that [`Wgpu`](super::Wgpu) can run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgpuDevice {
    /// As the driver names it.
    pub name: String,
    /// The API that it is reached by: `vulkan`, `metal` or `dx12`.
    pub api: &'static str,
    /// The driver and its version, where it tells.
    pub driver: String,
    /// Whether it is a GPU, and not a program that computes on the CPU.
    pub is_gpu: bool,
    /// Why it can't time what it runs, if it can't.
    pub untimed: Option<&'static str>,
}

/// The devices of this machine, in the order in which they are chosen.
#[must_use]
pub fn devices() -> Vec<WgpuDevice> {
    adapters()
        .iter()
        .map(|adapter| {
            let info = adapter.get_info();
            let untimed = match stamps(adapter.features()) {
                Stamps::Kernels | Stamps::Passes => None,
                Stamps::None(why) => Some(why),
            };
            WgpuDevice {
                api: info.backend.to_str(),
                driver: driver(&info),
                is_gpu: info.device_type != wgpu::DeviceType::Cpu,
                name: info.name,
                untimed,
            }
        })
        .collect()
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
        let mut state = self.faults.state();
        if let Some(why) = &state.lost {
            let reason = format!("{}: {why}", self.info.name);
            return Err(DeviceError::Lost { reason }.into());
        }
        match state.fault.take() {
            Some(why) => Err(self.fault(what, why)),
            None => Ok(()),
        }
    }

    /// Waits for what has been submitted: all of it, or up to `submission`.
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), GpuError> {
        self.poll(wgpu::PollType::Wait { submission_index: submission, timeout: None })
    }

    /// Lets callbacks of what is done run; waits for nothing.
    pub(super) fn tend(&self) -> Result<(), GpuError> {
        self.poll(wgpu::PollType::Poll)
    }

    fn poll(&self, how: wgpu::PollType) -> Result<(), GpuError> {
        // A device that is lost while it is waited for makes wgpu panic.
        let polled = catch_unwind(AssertUnwindSafe(|| self.device.poll(how)));
        match polled {
            Ok(Ok(_)) => self.check("wait"),
            Ok(Err(why)) => {
                self.check("wait")?;
                Err(self.fault("wait", why.to_string()))
            }
            Err(_) => {
                let mut state = self.faults.state();
                state.lost.get_or_insert_with(|| "it stopped answering".to_owned());
                drop(state);
                self.check("wait")
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
            self.limits.max_buffer_size.min(self.limits.max_storage_buffer_binding_size)
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
