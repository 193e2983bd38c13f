//! The devices that a model can run on, beside the CPU.

use anyhow::{Result, ensure};
use brickscope::{DeviceProfile, Profile, Total};
#[cfg(feature = "wgpu")]
use brickscope_engine::executor::Wgpu;
use brickscope_engine::executor::cuda::{Cuda, CudaOptions};
use brickscope_engine::{AnySession, GpuSession, Model};
use brickscope_kernels::Backend;

use crate::flags::ExecutorArgs;

/// The device that was asked for, if one was.
pub(crate) fn asked(args: &ExecutorArgs) -> Option<Backend> {
    args.backend.filter(|&backend| is_device(backend))
}

/// Refuses flags about the CPU for a run on a device.
pub(crate) fn check(args: &ExecutorArgs, backend: Backend) -> Result<()> {
    ensure!(
        args.threads.is_none(),
        "--threads is about the CPU, and --backend {backend} runs on a device"
    );
    Ok(())
}

/// Why a run on a device has no ceilings.
pub(crate) const NO_CEILINGS: &str =
    "the work ran on a device, and only what the CPU can do is measured";

/// Whether a backend is a device, and not kernels of the CPU.
pub(crate) fn is_device(backend: Backend) -> bool {
    matches!(backend, Backend::Wgpu | Backend::Cuda)
}

/// The device whose bricks a profile is of, if its host did nothing but issue the work and wait.
pub(crate) fn that_ran(profile: &Profile) -> Option<usize> {
    let waits = |total: &Total| total.stats.name == "DeviceWait";
    let has_spans = |device: &DeviceProfile| device.streams.iter().any(|s| !s.spans.is_empty());
    let wanted = profile.totals.is_empty() || profile.totals.iter().any(waits);
    (wanted && profile.devices.first().is_some_and(has_spans)).then_some(0)
}

/// A profile of the device that ran the bricks, if one did, and a note that says so; else as it is. `what`
/// is done with its bricks.
pub(crate) fn where_it_ran(profile: Profile, what: &str) -> Profile {
    let Some(index) = that_ran(&profile) else { return profile };
    let Some(on_device) = profile.whole_device(index) else { return profile };
    let name: String = profile.devices[index].name.escape_debug().collect();
    tell!(
        "note: {what} by the clock of {name}, which ran the bricks; what the host did is in the report"
    );
    on_device
}

/// A session of `context` tokens on the device of a backend.
pub(crate) fn session<'m>(
    backend: Backend,
    model: &'m Model,
    context: usize,
) -> Result<Box<dyn AnySession<'m> + 'm>> {
    Ok(match backend {
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => Box::new(GpuSession::new(model, Wgpu::new(model, context)?)),
        #[cfg(not(feature = "wgpu"))]
        Backend::Wgpu => anyhow::bail!(
            "--backend wgpu: this brickscope was built without it; `cargo install … --features wgpu` has it"
        ),
        Backend::Cuda => {
            let cuda = Cuda::new(model, context, CudaOptions::default())?;
            Box::new(GpuSession::new(model, cuda))
        }
        Backend::Scalar | Backend::Avx2 | Backend::Avx512 | Backend::Neon => {
            anyhow::bail!("{backend} is a backend of the CPU")
        }
    })
}
