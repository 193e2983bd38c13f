//! Timestamps in the command stream: sets of queries, and copying them to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use brickscope::{Bracket, Clock};
use wgpu::BufferUsages;

use super::adapter::{OpenDevice, Stamps};
use crate::error::GpuError;

/// Passes in flight: the times of one are read while the next ones run.
pub(super) const SETS: u32 = 3;
/// The most stamps of a pass: enough for the kernels of some 200 layers, in Immediate mode with two for each brick.
pub(super) const MARKS: u32 = 4 * wgpu::QUERY_SET_MAX_QUERIES;
/// Stamps that are taken to measure the steps of the device's clock.
const STEPS: u32 = 64;

const PENDING: u8 = 0;
const THERE: u8 = 1;
const FAILED: u8 = 2;

/// The stamps of one pass.
#[derive(Debug, Default)]
struct Set {
    /// Query sets of [`wgpu::QUERY_SET_MAX_QUERIES`] each.
    pages: Vec<wgpu::QuerySet>,
    /// Stamps in the stream so far.
    written: u32,
    /// Stamps whose copy to the host was issued.
    sent: u32,
    /// Their buffers on the device and on the host.
    buffers: Option<[wgpu::Buffer; 2]>,
    /// The submission that copies them.
    submission: Option<wgpu::SubmissionIndex>,
    /// Whether they have arrived.
    arrival: Arc<AtomicU8>,
    is_mapped: bool,
}

/// The sets of stamps of a device.
#[derive(Debug, Default)]
pub(super) struct Marks {
    sets: Vec<Set>,
}

impl Set {
    fn page(&mut self, gpu: &OpenDevice, index: usize) -> &wgpu::QuerySet {
        while self.pages.len() <= index {
            self.pages.push(gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("time stamps"),
                ty: wgpu::QueryType::Timestamp,
                count: wgpu::QUERY_SET_MAX_QUERIES,
            }));
        }
        &self.pages[index]
    }

    fn unmap(&mut self) {
        if let Some([_, staging]) = self.buffers.as_ref().filter(|_| self.is_mapped) {
            staging.unmap();
        }
        self.is_mapped = false;
    }

    /// Appends the copy of the stamps to the host to `encoder`.
    fn send(
        &mut self,
        gpu: &OpenDevice,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<(), GpuError> {
        self.unmap();
        let bytes = 8 * u64::from(self.written);
        let buffers = match self.buffers.take() {
            Some(buffers) if buffers[0].size() >= bytes => buffers,
            _ => {
                let bytes = bytes.next_power_of_two().max(4096);
                let resolve = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
                let staging = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                [
                    gpu.buffer("time stamps", bytes, resolve)?,
                    gpu.buffer("time stamps on the host", bytes, staging)?,
                ]
            }
        };
        let room = wgpu::QUERY_SET_MAX_QUERIES;
        for (page, first) in self.pages.iter().zip((0..self.written).step_by(room as usize)) {
            let n = (self.written - first).min(room);
            encoder.resolve_query_set(page, 0..n, &buffers[0], 8 * u64::from(first));
        }
        encoder.copy_buffer_to_buffer(&buffers[0], 0, &buffers[1], 0, bytes);
        self.buffers = Some(buffers);
        Ok(())
    }

    /// Notes that the copy appended by [`send`](Self::send) has been submitted.
    fn sent(&mut self, submission: &wgpu::SubmissionIndex) {
        let Some([_, staging]) = &self.buffers else { return };
        self.sent = self.written;
        self.submission = Some(submission.clone());
        self.arrival = Arc::default();
        let arrival = Arc::clone(&self.arrival);
        let told = move |result: Result<(), _>| {
            arrival.store(if result.is_ok() { THERE } else { FAILED }, Ordering::Release);
        };
        staging.slice(..8 * u64::from(self.sent)).map_async(wgpu::MapMode::Read, told);
        self.is_mapped = true;
    }

    /// Reads the first `n` stamps, if they have arrived.
    fn take(&mut self, gpu: &OpenDevice, n: u32, ticks: &mut Vec<u64>) -> Result<bool, GpuError> {
        let what = "read time stamps";
        match (self.arrival.load(Ordering::Acquire), &self.buffers) {
            (THERE, Some([_, staging])) => {
                let bytes = staging
                    .slice(..8 * u64::from(n))
                    .get_mapped_range()
                    .map_err(|e| gpu.fault(what, e.to_string()))?;
                ticks.extend_from_slice(bytemuck::cast_slice(&bytes));
            }
            (PENDING, _) => return Ok(false),
            _ => {
                gpu.check(what)?;
                return Err(gpu.fault(what, "they can't be mapped".to_owned()));
            }
        }
        self.unmap();
        Ok(true)
    }
}

impl Marks {
    fn set(&mut self, set: u32) -> &mut Set {
        let index = set as usize;
        if self.sets.len() <= index {
            self.sets.resize_with(index + 1, Set::default);
        }
        &mut self.sets[index]
    }

    pub(super) fn begin(&mut self, set: u32) {
        let set = self.set(set);
        set.unmap();
        (set.written, set.sent) = (0, 0);
    }

    /// Where the next stamp of `set`, number `mark`, goes.
    pub(super) fn next(&mut self, gpu: &OpenDevice, set: u32, mark: u32) -> (&wgpu::QuerySet, u32) {
        let set = self.set(set);
        set.written = set.written.max(mark + 1);
        let room = wgpu::QUERY_SET_MAX_QUERIES;
        (set.page(gpu, (mark / room) as usize), mark % room)
    }

    /// Whether the copy of the first `n` stamps of `set` was issued.
    pub(super) fn are_sent(&mut self, set: u32, n: u32) -> bool {
        self.set(set).sent >= n
    }

    /// Appends the copies of all stamps whose copy wasn't issued yet to `encoder`.
    pub(super) fn send(
        &mut self,
        gpu: &OpenDevice,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<(), GpuError> {
        let mut unsent = self.sets.iter_mut().filter(|set| set.sent < set.written);
        unsent.try_for_each(|set| set.send(gpu, encoder))
    }

    /// Notes that the copy appended by [`send`](Self::send) has been submitted.
    pub(super) fn sent(&mut self, submission: &wgpu::SubmissionIndex) {
        let unsent = self.sets.iter_mut().filter(|set| set.sent < set.written);
        unsent.for_each(|set| set.sent(submission));
    }

    /// Reads the first `n` stamps of `set` if they have arrived; with `wait`, waits for them.
    pub(super) fn take(
        &mut self,
        gpu: &OpenDevice,
        set: u32,
        n: u32,
        wait: bool,
        ticks: &mut Vec<u64>,
    ) -> Result<bool, GpuError> {
        let set = self.set(set);
        if set.arrival.load(Ordering::Acquire) == PENDING {
            if wait { gpu.wait(set.submission.clone())? } else { gpu.tend()? }
        }
        let is_there = set.take(gpu, n, ticks)?;
        if wait && !is_there {
            return Err(gpu.fault("read time stamps", "they never came".to_owned()));
        }
        Ok(is_there)
    }
}

/// Commands that end with a stamp, or begin and end with one.
pub(super) fn stamp(
    gpu: &OpenDevice,
    encoder: &mut wgpu::CommandEncoder,
    queries: &wgpu::QuerySet,
    indices: std::ops::Range<u32>,
) {
    match gpu.stamps {
        Stamps::Kernels => {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            indices.for_each(|index| pass.write_timestamp(queries, index));
        }
        Stamps::Passes => indices.for_each(|index| drop(stamped_pass(encoder, queries, index))),
        Stamps::None(_) => {}
    }
}

/// A compute pass that begins with a stamp.
pub(super) fn stamped_pass(
    encoder: &mut wgpu::CommandEncoder,
    queries: &wgpu::QuerySet,
    index: u32,
) -> wgpu::ComputePass<'static> {
    let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
        query_set: queries,
        beginning_of_pass_write_index: Some(index),
        end_of_pass_write_index: None,
    });
    let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
    encoder.begin_compute_pass(&descriptor).forget_lifetime()
}

/// Reads the device's clock between two readings of the host's, by one stamp that is submitted alone and waited for.
pub(super) fn bracket(gpu: &OpenDevice, host: &Clock) -> Result<Bracket, GpuError> {
    let mut set = Set::default();
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    set.written = 1;
    stamp(gpu, &mut encoder, set.page(gpu, 0), 0..1);
    let commands = encoder.finish();
    let host_before_ns = host.now();
    let submission = gpu.queue.submit([commands]);
    gpu.wait(Some(submission))?;
    let host_after_ns = host.now();
    let device_ticks = fetch(gpu, &mut set)?[0];
    Ok(Bracket { host_before_ns, device_ticks, host_after_ns })
}

/// Runs a compute pass and waits for it; the nanoseconds that it took by the device's clock.
pub(super) fn time(
    gpu: &OpenDevice,
    record: impl FnOnce(&mut wgpu::ComputePass<'static>),
) -> Result<f64, GpuError> {
    let mut set = Set::default();
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    set.written = 2;
    // Stamps of passes, which every device with a clock has.
    let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
        query_set: set.page(gpu, 0),
        beginning_of_pass_write_index: Some(0),
        end_of_pass_write_index: Some(1),
    });
    let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
    let mut pass = encoder.begin_compute_pass(&descriptor).forget_lifetime();
    record(&mut pass);
    drop(pass);
    gpu.queue.submit([encoder.finish()]);
    let ticks = fetch(gpu, &mut set)?;
    Ok(ticks[1].saturating_sub(ticks[0]) as f64 * gpu.ns_per_tick())
}

/// The step of the device's clock in ticks: the greatest common divisor of the differences between consecutive
/// stamps. `None` if the clock never moved.
pub(super) fn step(gpu: &OpenDevice) -> Result<Option<u64>, GpuError> {
    let mut set = Set::default();
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    set.written = STEPS;
    stamp(gpu, &mut encoder, set.page(gpu, 0), 0..STEPS);
    gpu.queue.submit([encoder.finish()]);
    let ticks = fetch(gpu, &mut set)?;
    let step = ticks.windows(2).fold(0, |step, pair| common(step, pair[1].wrapping_sub(pair[0])));
    Ok(Some(step).filter(|&step| step > 0))
}

/// The greatest common divisor; that of 0 and a number is the number.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

/// Waits for the submitted stamps of a set.
fn fetch(gpu: &OpenDevice, set: &mut Set) -> Result<Vec<u64>, GpuError> {
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    set.send(gpu, &mut encoder)?;
    let submission = gpu.queue.submit([encoder.finish()]);
    set.sent(&submission);
    gpu.wait(Some(submission))?;
    let mut ticks = Vec::new();
    if set.take(gpu, set.sent, &mut ticks)? {
        return Ok(ticks);
    }
    Err(gpu.fault("read time stamps", "they never came".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_is_told_by_its_differences() {
        let step = |ticks: &[u64]| ticks.iter().copied().fold(0, common);
        assert_eq!(step(&[1024, 3072, 0, 2048]), 1024);
        assert_eq!(step(&[1024, 3071]), 1);
        assert_eq!(step(&[0, 0]), 0);
    }
}
