//! The devices that a model can run on, beside the CPU.

use anyhow::{Result, ensure};
use brickscope::save::now_rfc3339;
use brickscope::{Absent, CeilingReading, Ceilings, Profile, ReadingTime};
pub(crate) use brickscope_analysis::place::shown_first;
use brickscope_analysis::place::that_ran;
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_engine::executor::cuda::{self, Cuda, CudaOptions};
use brickscope_engine::executor::gpu::GpuError;
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
    "a device ran the work, so the limits of the CPU say nothing of it";

/// Why there is no wgpu.
#[cfg(not(feature = "wgpu"))]
const NO_WGPU: &str =
    "this brickscope was built without it; `cargo install … --features wgpu` has it";

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
        #[cfg(not(feature = "wgpu"))]
        Backend::Wgpu => Err(NO_WGPU.to_owned()),
        Backend::Cuda => {
            cuda::measure_ceilings(CudaOptions::default().device).map_err(|why| why.to_string())
        }
        _ => Err(format!("{backend} is no device")),
    };
    note.finish_and_clear();
    let mut ceilings = measured.map_err(|reason| Absent { reason })?;
    ceilings.readings.push(reading(ReadingTime::Before, ceilings.read_bytes_per_second));
    Ok(ceilings)
}

/// The device that ceilings are of, and its interface: `NVIDIA H200, cuda`.
pub(crate) fn of(ceilings: &Ceilings) -> String {
    let of = ceilings.basis.split_once(": ").map_or(&*ceilings.basis, |(_, of)| of);
    of.to_owned()
}

/// Measures the bandwidth of a device's memory once more, right after the run, if there is still room to. The higher one
/// counts: a device that was cold, or whose memory was moved to the host's, reads less than it can. If they differ by more
/// than measurements do, that is told, and the lower one says nothing of the run.
pub(crate) fn measure_again(backend: Backend, ceilings: &mut Ceilings) {
    let rate = match backend {
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => wgpu::measure_memory().ok(),
        Backend::Cuda => cuda::measure_memory(CudaOptions::default().device).ok(),
        _ => None,
    };
    if let Some(rate) = rate {
        add_after(ceilings, rate);
    }
}

fn add_after(ceilings: &mut Ceilings, after: f64) {
    let before = ceilings.read_bytes_per_second;
    let (lower, higher) = (before.min(after), before.max(after));
    ceilings.read_bytes_per_second = higher;
    if lower >= (1.0 - Ceilings::AGREE) * higher {
        ceilings.readings.push(reading(ReadingTime::After, after));
        return;
    }
    let (when, other) = if after > before { ("after", "before") } else { ("before", "after") };
    let time = if after > before { ReadingTime::After } else { ReadingTime::Before };
    ceilings.readings = vec![reading(time, higher)];
    ceilings.basis = format!(
        "{}; memory read {:.1} GB/s {when} the run and {:.1} {other} it",
        ceilings.basis,
        higher / 1e9,
        lower / 1e9
    );
}

fn reading(when: ReadingTime, read_bytes_per_second: f64) -> CeilingReading {
    CeilingReading { when, measured: now_rfc3339(), read_bytes_per_second, disturbed: false }
}

/// Adds the device's ceilings, or why there are none, to the profile of a run on it.
pub(crate) fn add_ceilings(profile: &mut Profile, ceilings: Result<Ceilings, Absent>) {
    profile.ceilings_absent = Some(Absent { reason: NO_CEILINGS.to_owned() });
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

/// What stacks are of, if nobody says which: a device of another program's trace, as [`Some`] of its number; or else the
/// profile's own spans, of the device that ran the bricks if one did.
pub(crate) fn of_stacks(profile: Profile, what: &str) -> (Profile, Option<usize>) {
    match shown_first(&profile).filter(|_| profile.imported.is_some()) {
        Some(index) => {
            tell!("note: {what}: what ran on device {index}, without what launched it");
            (profile, Some(index))
        }
        None => (where_it_ran(profile, what), None),
    }
}

/// The stacks of a device of another program's trace, or else of the profile's own spans.
pub(crate) fn stacks(
    profile: &Profile,
    device: Option<usize>,
    by: By,
    blocks: usize,
) -> Result<Stacks> {
    let Some(index) = device else { return Ok(Stacks::of_spans(profile, by, blocks)) };
    Stacks::of_device(profile, index, by, blocks)
        .map_err(|absent| anyhow::anyhow!("device {index} has no stacks: {}", absent.reason))
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
        Backend::Wgpu => anyhow::bail!("--backend wgpu: {NO_WGPU}"),
        Backend::Cuda => {
            let cuda = Cuda::new(model, context, CudaOptions::default()).map_err(|error| {
                // In the words of every other call that loses it.
                match error.is_lost() {
                    true => GpuError::from(error).into(),
                    false => anyhow::Error::from(error),
                }
            })?;
            Box::new(GpuSession::new(model, cuda))
        }
        Backend::Scalar | Backend::Avx2 | Backend::Avx512 | Backend::Neon => {
            anyhow::bail!("{backend} is a backend of the CPU")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rate: f64) -> Ceilings {
        let mut ceilings = Ceilings {
            read_bytes_per_second: 100e9,
            basis: "measured before the run: a device, cuda".to_owned(),
            readings: vec![reading(ReadingTime::Before, 100e9)],
            ..Ceilings::default()
        };
        add_after(&mut ceilings, rate);
        ceilings
    }

    #[test]
    fn the_higher_reading_of_a_devices_memory_counts() {
        let close = after(95e9);
        assert_eq!((close.read_bytes_per_second, close.readings.len()), (100e9, 2));
        assert_eq!(close.memory_spread(), [95e9, 100e9]);
        assert_eq!(after(105e9).read_bytes_per_second, 105e9);
        // Otherwise a brick at the lower one would be at its roof.
        for (rate, when, told) in [
            (
                40e9,
                ReadingTime::Before,
                "; memory read 100.0 GB/s before the run and 40.0 after it",
            ),
            (
                250e9,
                ReadingTime::After,
                "; memory read 250.0 GB/s after the run and 100.0 before it",
            ),
        ] {
            let apart = after(rate);
            let highest = rate.max(100e9);
            assert_eq!(apart.memory_spread(), [highest; 2]);
            assert_eq!((apart.readings.len(), apart.readings[0].when), (1, when));
            assert!(apart.basis.ends_with(told), "{}", apart.basis);
        }
    }
}
