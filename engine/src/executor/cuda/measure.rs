//! Measurements of the device's timing, for `brickscope selftest`.

use std::time::Instant;

use super::clock::OWN_SET;
use super::{Cuda, CudaError};

/// The cost of recording an event in a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EventCost {
    /// Records over which the cost is averaged.
    pub records: u32,
    /// Host time to issue one, in nanoseconds.
    pub host_ns: f64,
    /// Device time from one to the next on an idle device, in nanoseconds.
    pub device_ns: Option<f64>,
}

/// The resources of a kernel, as compiled for this device by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelResources {
    /// Its name.
    pub name: &'static str,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread, which holds spills.
    pub local_bytes: u32,
    /// Bytes that ptxas spilled when the kernel was built; `None` if ptxas wasn't run for such
    /// a device.
    pub spill_bytes: Option<u32>,
}

impl Cuda<'_> {
    /// Issues a set of marks back to back to the idle stream, and returns the cost of each: of an event, or of a kernel
    /// that notes the time and hands over those before it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn event_cost(&mut self) -> Result<EventCost, CudaError> {
        self.on_device(|this| {
            let records = this.marks.per_set();
            let mut ticks = Vec::new();
            let mut host = Default::default();
            // The first round has cold caches.
            for _ in 0..2 {
                this.stream.synchronize()?;
                this.marks.begin(&this.stream, OWN_SET)?;
                let start = Instant::now();
                for mark in 0..records {
                    this.marks.mark(&this.stream, OWN_SET, mark)?;
                }
                host = start.elapsed();
                ticks.clear();
                this.marks.resolve(&this.stream, OWN_SET, records, true, &mut ticks)?;
            }
            let ends = ticks.first().zip(ticks.last());
            let span = ends.and_then(|(first, last)| last.checked_sub(*first));
            Ok(EventCost {
                records,
                host_ns: host.as_nanos() as f64 / f64::from(records.max(1)),
                device_ns: span.map(|span| span as f64 / f64::from((records - 1).max(1))),
            })
        })
    }

    /// The smallest step of the device's `%globaltimer` seen so far, in nanoseconds; `None` if it stood
    /// still.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn global_timer_step_ns(&mut self) -> Result<Option<u64>, CudaError> {
        self.on_device(|this| this.marks.tick(&this.context, &this.stream))
    }

    /// The resources of all kernels, by name.
    #[must_use]
    pub fn kernel_resources(&self) -> Vec<KernelResources> {
        let all = self.kernels.iter().map(|(&name, kernel)| KernelResources {
            name,
            registers: kernel.registers,
            local_bytes: kernel.function.local_bytes,
            spill_bytes: kernel.spill_bytes,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|kernel| kernel.name);
        all
    }
}
