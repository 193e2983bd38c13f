//! The devices that a model can run on, beside the CPU.

use anyhow::{Result, ensure};
use brickscope::save::now_rfc3339;
use brickscope::{Absent, CeilingReading, Ceilings, DeviceProfile, Profile, ReadingTime, Total};
use brickscope_engine::executor::cuda::{self, Cuda, CudaOptions};
#[cfg(feature = "wgpu")]
use brickscope_engine::executor::wgpu::{self, Wgpu};
use brickscope_engine::{AnySession, GpuSession, Model};
use brickscope_kernels::Backend;

use crate::flags::ExecutorArgs;
use crate::progress;

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

/// Why the host of a run on a device has no ceilings.
pub(crate) const NO_CEILINGS: &str =
    "the work ran on a device, which has its own, and not on the CPU";

/// Measures what the device of a backend does at best, right before a run.
///
/// # Errors
///
/// The reason, if it can't be measured.
pub(crate) fn ceilings(backend: Backend) -> Result<Ceilings, Absent> {
    let note = progress::note("measuring what the device can do");
    let measured = match backend {
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::measure_ceilings().map_err(|why| why.to_string()),
        Backend::Cuda => {
            cuda::measure_ceilings(CudaOptions::default().device).map_err(|why| why.to_string())
        }
        _ => Err(format!("{backend} is no device")),
    };
    note.finish_and_clear();
    let mut ceilings = measured.map_err(|reason| Absent { reason })?;
    let rate = ceilings.read_bytes_per_second;
    add_reading(&mut ceilings, ReadingTime::Before, rate);
    Ok(ceilings)
}

/// The device that ceilings are of, and its interface: `NVIDIA H200, cuda`.
pub(crate) fn of(ceilings: &Ceilings) -> String {
    let of = ceilings.basis.split_once(": ").map_or(&*ceilings.basis, |(_, of)| of);
    of.to_owned()
}

/// Measures the bandwidth of a device's memory once more, right after the run, if there is still room to.
pub(crate) fn measure_again(backend: Backend, ceilings: &mut Ceilings) {
    let rate = match backend {
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::measure_memory().ok(),
        Backend::Cuda => cuda::measure_memory(CudaOptions::default().device).ok(),
        _ => None,
    };
    if let Some(rate) = rate {
        add_reading(ceilings, ReadingTime::After, rate);
    }
}

fn add_reading(ceilings: &mut Ceilings, when: ReadingTime, read_bytes_per_second: f64) {
    let measured = now_rfc3339();
    ceilings.readings.push(CeilingReading { when, measured, read_bytes_per_second });
    let rates = ceilings.readings.iter().map(|reading| reading.read_bytes_per_second);
    ceilings.read_bytes_per_second =
        Ceilings::confirmed(rates).unwrap_or(ceilings.read_bytes_per_second);
}

/// Adds the device's ceilings, or why there are none, to the profile of a run on it.
pub(crate) fn add_ceilings(profile: &mut Profile, ceilings: Result<Ceilings, Absent>) {
    let Some(device) = profile.devices.first_mut() else { return };
    match ceilings {
        Ok(ceilings) => device.ceilings = Some(ceilings),
        Err(absent) => device.ceilings_absent = Some(absent),
    }
}

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
