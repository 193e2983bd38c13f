//! Measurements of a device before and between passes: what its marks cost, and how its clock compares with the
//! host's.

use brickscope_profile::{Alignment, StampCost};

use super::DeviceTimer;
use crate::device::{Device, DeviceError, DeviceMisuse, MarkCost, StreamId};
use crate::profiler::BrickProfiler;

/// How many moments are read by both clocks to align them.
const BRACKETS: usize = 16;

/// How many marks in a row are measured, and how often.
const CALIBRATION_MARKS: u32 = 64;
const CALIBRATIONS: usize = 5;

/// What lies between the marks that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Work,
    /// The same work, with no mark but the first and the last.
    WorkWithoutMarks,
}

/// The median of at least one time.
fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64
}

pub(super) fn align(
    profiler: &BrickProfiler,
    device: &mut impl Device,
) -> Result<Alignment, DeviceError> {
    let brackets =
        (0..BRACKETS).map(|_| device.bracket(profiler.clock())).collect::<Result<Vec<_>, _>>()?;
    Ok(Alignment::of(&brackets).unwrap_or(Alignment {
        host_ns: 0,
        device_ticks: 0,
        error_ns: u64::MAX,
    }))
}

impl DeviceTimer<'_> {
    /// Measures what a mark costs, and keeps to the budget from then on. Waits for the device.
    ///
    /// It times marks in a row outside of any pass, with [work](Device::fill) between them if the device has some.
    ///
    /// From then on, in [`SyncMode::Deferred`](crate::SyncMode::Deferred), each phase is timed as finely as the last
    /// settled pass of that phase allows. Rather than time all decode passes less finely, one in up to 8 is timed, and
    /// one in up to 16 if even a pass's own boundaries cost too much.
    ///
    /// # Errors
    ///
    /// If a pass is open, or if the device fails. Then there is no budget, and the profile says so.
    pub fn calibrate(&mut self, device: &mut impl Device) -> Result<StampCost, DeviceError> {
        self.settle(device, true)?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        match self.stamp_cost(device) {
            Ok(cost) => {
                self.log.budget(|budget| budget.stamp = Some(cost));
                Ok(cost)
            }
            Err(error) => {
                self.log.note(|state| state.stamp_absent = Some(error.to_string()));
                Err(self.failed(error))
            }
        }
    }

    fn stamp_cost(&mut self, device: &mut impl Device) -> Result<StampCost, DeviceError> {
        let marks = self.info.marks.min(CALIBRATION_MARKS);
        let set = self.free.last().copied().filter(|_| marks > 1);
        let Some(set) = set else { return Err(DeviceMisuse::TooManyMarks { room: marks }.into()) };
        if let Some(MarkCost { host_ns, device_ns, marks }) = device.mark_cost()? {
            let pass_ns = self.pass_cost(device, set, host_ns.max(device_ns))?;
            return Ok(StampCost { host_ns, device_ns, marks, pass_ns });
        }
        let nothing = self.marks_cost(device, set, marks, Between::Nothing)?;
        let mut stamp =
            StampCost { host_ns: nothing.0, device_ns: nothing.1, marks, pass_ns: None };
        // Of two marks, none lies between two others.
        if marks == 2 || !device.fill(StreamId(0))? {
            return Ok(stamp);
        }
        let each = self.marks_cost(device, set, marks, Between::Work)?;
        let ends = self.marks_cost(device, set, marks, Between::WorkWithoutMarks)?;
        // What the inner marks add to the time of the work. Noise may make that less than marks without work cost,
        // which can't be.
        let inner = f64::from(marks - 1) / f64::from(marks - 2);
        let inner_host = f64::from(marks) / f64::from(marks - 2);
        stamp.host_ns = stamp.host_ns.max((each.0 - ends.0) * inner_host);
        stamp.device_ns = stamp.device_ns.max((each.1 - ends.1) * inner);
        stamp.pass_ns = self.pass_cost(device, set, stamp.ns())?;
        Ok(stamp)
    }

    /// What any marks of a pass cost beside `stamp_ns` for each, if that was measured: there is a little work around them.
    fn pass_cost(
        &mut self,
        device: &mut impl Device,
        set: u32,
        stamp_ns: f64,
    ) -> Result<Option<f64>, DeviceError> {
        let (mut plain, mut timed) = (Vec::new(), Vec::new());
        for _ in 0..CALIBRATIONS {
            let start = self.profiler.clock().now();
            device.fill(StreamId(0))?;
            device.wait(StreamId(0))?;
            let between = self.profiler.clock().now();
            device.begin_set(set)?;
            device.mark(StreamId(0), set, 0)?;
            device.fill(StreamId(0))?;
            device.mark(StreamId(0), set, 1)?;
            self.ticks.clear();
            device.resolve(set, 2, true, &mut self.ticks)?;
            plain.push(between.saturating_sub(start));
            timed.push(self.profiler.clock().now().saturating_sub(between));
        }
        let pass_ns = median(timed) - median(plain) - 2.0 * stamp_ns;
        // A cost that is not positive is lost in the noise, so it counts as not measured.
        Ok(Some(pass_ns).filter(|&ns| ns > 0.0))
    }

    /// What marks in a row cost: the host's time for each, and the device's time from one to the next.
    fn marks_cost(
        &mut self,
        device: &mut impl Device,
        set: u32,
        marks: u32,
        between: Between,
    ) -> Result<(f64, f64), DeviceError> {
        let (mut host, mut on_device) = (Vec::new(), Vec::new());
        for _ in 0..CALIBRATIONS {
            device.begin_set(set)?;
            let mut n_marks = 0;
            let start = self.profiler.clock().now();
            for mark in 0..marks {
                if mark > 0 && between != Between::Nothing {
                    device.fill(StreamId(0))?;
                }
                let is_end = mark == 0 || mark + 1 == marks;
                if is_end || between != Between::WorkWithoutMarks {
                    // A launch takes this reading, too.
                    std::hint::black_box(self.profiler.clock().now());
                    device.mark(StreamId(0), set, n_marks)?;
                    n_marks += 1;
                }
            }
            host.push(self.profiler.clock().now().saturating_sub(start));
            self.ticks.clear();
            device.resolve(set, n_marks, true, &mut self.ticks)?;
            let ends = self.ticks.first().zip(self.ticks.last());
            let span = ends.and_then(|(&first, &last)| self.info.ticks.between(first, last));
            on_device.push(span.ok_or_else(|| DeviceError::Failed {
                what: "measure what a mark costs".to_owned(),
                reason: "marks in a row were missing, or not in order".to_owned(),
            })?);
        }
        Ok((median(host) / f64::from(marks), median(on_device) / f64::from(marks - 1)))
    }

    /// Reads both clocks once more, so that drift doesn't move later passes on the host's axis. Their lengths come
    /// from the device's clock alone. A pass that begins 10 s after the last alignment does this by itself. Waits for
    /// the device.
    ///
    /// # Errors
    ///
    /// If a pass is open, or if the device fails.
    pub fn realign(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        self.check()?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        match align(self.profiler, device) {
            Ok(alignment) => {
                self.aligned_ns = self.profiler.clock().now();
                self.log.note(|state| {
                    state.last_alignment = Some(alignment);
                    state.alignments += 1;
                });
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }
}
