//! What a device's timing is worth, measured: for `brickscope selftest`.

use std::time::Instant;

use super::clock::OWN_SET;
use super::{Cuda, CudaError};

/// What the record of an event in a stream costs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EventCost {
    /// Records that this is the mean of.
    pub records: u32,
    /// Nanoseconds of the host, to issue one.
    pub host_ns: f64,
    /// Nanoseconds from one to the next on a device that has nothing else to do.
    pub device_ns: Option<f64>,
}

/// What a kernel takes, as the driver has compiled it for this device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelResources {
    /// Its name.
    pub name: &'static str,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread, which holds what was spilled.
    pub local_bytes: u32,
    /// Bytes that ptxas spilled when the kernel was built; `None` where nobody asked ptxas for such
    /// a device.
    pub spill_bytes: Option<u32>,
}

impl Cuda<'_> {
    /// Puts a set of marks into the idle stream, one after the other, and says what each took. With
    /// [`Stamps::Kernels`](super::Stamps::Kernels) the host's figure is that of a launch, and the device's
    /// that from stamp to stamp.
    ///
    /// # Errors
    ///
    /// By the device.
    pub fn event_cost(&mut self) -> Result<EventCost, CudaError> {
        self.on_device(|this| {
            let records = this.marks.per_set();
            let mut ticks = Vec::new();
            let mut host = Default::default();
            // The first round finds cold caches.
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

    /// The least step of the device's `%globaltimer` that was seen, in nanoseconds; `None` if it stood
    /// still.
    ///
    /// # Errors
    ///
    /// By the device.
    pub fn global_timer_step_ns(&mut self) -> Result<Option<u64>, CudaError> {
        self.on_device(|this| this.marks.tick(&this.context, &this.stream))
    }

    /// What each kernel takes, in order of their names.
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
