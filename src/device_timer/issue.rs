//! Issuing a pass: which events are marked on its streams.

use brickscope_profile::name::NameIdx;
use brickscope_profile::{Grain, Phase, Route, SyncMode, TransferDirection, Work};

use super::{DeviceTimer, Running};
use crate::device::{
    Device, DeviceError, DeviceMisuse, Event, Issued, NEXT_MARK, Needs, StreamId, What,
};
use crate::names::{BrickKey, KernelId};

/// # Issuing a pass
impl DeviceTimer<'_> {
    /// Whether a pass is open and timed.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.pass.is_some()
    }

    /// Begins a pass of `tokens` tokens after `position` others. If all sets of marks are in use, waits for the
    /// oldest pass.
    ///
    /// The pass is not timed, and calls do nothing until the next one, if the profiler is off, if its mode is
    /// [`SyncMode::None`], or if decode passes are so short that the budget allows to time only some of them. A pass
    /// that has begun is timed to its end, even if profiling is turned off in the meantime.
    ///
    /// # Errors
    ///
    /// If a pass is open, or if the device fails. [`abandon_pass`](Self::abandon_pass) closes a pass that an error
    /// elsewhere left open.
    pub fn begin_pass(
        &mut self,
        device: &mut impl Device,
        phase: Phase,
        tokens: u64,
        position: u64,
    ) -> Result<(), DeviceError> {
        self.check()?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        self.mode = self.profiler.device().sync_mode();
        if !self.is_on() {
            return Ok(());
        }
        let is_budgeted = self.mode == SyncMode::Deferred;
        if is_budgeted && !self.log.budget(|budget| budget.is_turn(phase)) {
            self.unmarked_pass();
            return Ok(());
        }
        let now = self.profiler.clock().now();
        if self.realign_ns.is_some_and(|every| now.saturating_sub(self.aligned_ns) >= every) {
            // If this fails without losing the device, it is tried again after the same time.
            self.aligned_ns = now;
            if let Err(error @ DeviceError::Lost { .. }) = self.realign(device) {
                return Err(error);
            }
        }
        if self.free.is_empty() {
            self.settle_oldest(device, true)?;
        }
        let Some(set) = self.free.pop() else { return Ok(()) };
        if let Err(error) = device.begin_set(set) {
            self.free.push(set);
            return Err(self.failed(error));
        }
        let grain = self.grain_of(phase);
        let mut pass = self.spare.pop().unwrap_or_default();
        pass.events.clear();
        self.pass = Some(Issued {
            phase: Some(phase),
            grain,
            tokens,
            position,
            set,
            n_marks: 0,
            issued_ns: self.profiler.clock().now(),
            launches: device.launches(),
            generation: self.log.begun(),
            needs: Needs::default(),
            events: pass.events,
        });
        self.streams.iter_mut().for_each(|stream| *stream = Running::default());
        (self.calls, self.hand_offs) = (0, 0);
        Ok(())
    }

    /// Begins a brick on a stream. Call it before the brick's first kernel is launched. The brick before it ends with
    /// the same mark. `work` is that of the whole brick. A [`named_brick`](crate::BrickProfiler::named_brick) is in its
    /// category.
    ///
    /// Does nothing outside of a timed pass.
    ///
    /// # Errors
    ///
    /// If there is no such stream, if there is no room for marks at a grain that the caller chose, or if the device
    /// fails.
    pub fn brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        brick: impl Into<BrickKey>,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let name = self.profiler.brick_of(brick.into());
        self.begin_brick(device, stream, layer, name, work)
    }

    /// Like [`brick`](Self::brick), by name. A name that [`BrickId::from_str`](crate::BrickId::from_str) knows means that
    /// brick; any other is in the category "Other", unless `named_brick` gave it one.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn brick_named(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        brick: &str,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let name = self.profiler.brick_index(brick);
        self.begin_brick(device, stream, layer, name, work)
    }

    /// Begins a copy of `bytes` bytes from `src` to `dst` on a stream. Call it before the copy is issued.
    ///
    /// The copy is timed as a brick is, in the layer that the stream works on, and ends as a brick does. Graphs of the
    /// device show it as a transfer.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn transfer(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        src: &str,
        dst: &str,
        bytes: u64,
        direction: TransferDirection,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let layer = self.running(stream)?.layer;
        let route = Route { src: src.to_owned(), dst: dst.to_owned(), direction };
        let name = self.profiler.transfer_index(route);
        self.begin_brick(
            device,
            stream,
            layer,
            name,
            Work { elements: 0, flops: 0, bytes, ..Work::default() },
        )
    }

    fn begin_brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        layer: Option<u16>,
        name: NameIdx,
        work: Work,
    ) -> Result<(), DeviceError> {
        self.running(stream)?;
        // Where the host waits for each brick, it times it as well, which is a range already.
        if self.mode != SyncMode::Immediate {
            self.profiler.mark_issued(stream.0, Some(name));
        }
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let grain = pass.grain;
        let call = self.calls;
        self.calls += 1;
        let running = &mut self.streams[usize::from(stream.0)];
        let is_first = !running.has_begun;
        let changes_layer = is_first || running.layer != layer;
        pass.needs.add(&[Grain::Kernel, Grain::Brick]);
        pass.needs.add(if changes_layer { &[Grain::Layer] } else { &[] });
        pass.needs.add(if is_first { &[Grain::Pass] } else { &[] });
        if grain <= Grain::Layer {
            let paused = running.paused.take();
            running.has_begun = true;
            running.brick = true;
            running.layer = layer;
            let begins = is_first || changes_layer && grain == Grain::Layer;
            if !begins {
                // What runs goes on, so the event that seemed to end it didn't.
                if let Some(event) = paused.and_then(|at| pass.events.get_mut(at)) {
                    event.what = What::Nothing;
                }
                return Ok(());
            }
            if self.mode == SyncMode::PerLayer && !is_first {
                if paused.is_none() {
                    self.event(device, stream, None, call, What::End)?;
                }
                self.wait(device, stream)?;
            }
            let what = if grain == Grain::Pass { What::Whole } else { What::Layer };
            self.event(device, stream, layer, call, what)?;
            return Ok(());
        }
        if self.mode == SyncMode::Immediate {
            self.end_waiting(device, stream)?;
            let host = self.profiler.start_index(name);
            self.streams[usize::from(stream.0)].host = Some((host, work));
        }
        let mark = self.event(device, stream, layer, call, What::Brick(name, work))?;
        let running = &mut self.streams[usize::from(stream.0)];
        running.has_begun = true;
        running.brick = true;
        running.layer = layer;
        running.brick_mark = mark.unwrap_or_default();
        running.kernels = 0;
        Ok(())
    }

    /// Begins the next kernel of the running brick. Call it before the kernel is launched. The first kernel begins with
    /// the brick.
    ///
    /// If the grain is the brick, the kernel of a brick that has no other kernel gets the brick's time, and other
    /// kernels get none.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick), and if no brick runs on the stream.
    pub fn kernel(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        kernel: KernelId,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        let running = self.running(stream)?;
        if !running.brick {
            return Err(DeviceMisuse::NoBrick.into());
        }
        let (layer, mark, nth) = (running.layer, running.brick_mark, running.kernels);
        // The first kernel begins with the brick, at the same mark.
        let issued_ns = running.issued_ns;
        running.kernels += 1;
        let call = self.calls;
        self.calls += 1;
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.needs.add(if nth > 0 { &[Grain::Kernel] } else { &[] });
        if pass.grain <= Grain::Layer {
            return Ok(());
        }
        let what = What::Kernel(self.profiler.kernel_of(kernel), work);
        if nth == 0 {
            self.streams[usize::from(stream.0)].first_kernel = call;
            pass.events.push(Event { stream: stream.0, mark, layer, call, issued_ns, what });
        } else if pass.grain == Grain::Kernel {
            self.event(device, stream, layer, call, what)?;
        } else if nth == 1 {
            // Two kernels without a mark between them: neither has a time.
            let first = self.streams[usize::from(stream.0)].first_kernel;
            let is_first =
                |event: &Event| event.call == first && matches!(event.what, What::Kernel(..));
            if let Some(at) = pass.events.iter().rposition(is_first) {
                pass.events.remove(at);
            }
        }
        Ok(())
    }

    /// Declares that what `stream` does next waits for what `on` has been given so far. Call it before the device is
    /// made to wait.
    ///
    /// Ends the bricks that run on both streams, so that the wait doesn't count as their time. The device's graph has
    /// it as a dependency, unless the grain is the layer or the pass.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn depends(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        on: StreamId,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        self.running(stream)?;
        self.running(on)?;
        if stream == on {
            return Ok(());
        }
        self.end_brick(device, on)?;
        self.end_brick(device, stream)?;
        // If `on` has no mark in this pass, all that it could be waited for ended with the pass before.
        let mark = self.streams[usize::from(on.0)].last_mark;
        if let (Some(pass), Some(mark)) = (&mut self.pass, mark)
            && pass.grain > Grain::Layer
        {
            let number = self.hand_offs;
            self.hand_offs += 1;
            let what = What::End;
            let event = Event { stream: on.0, mark, layer: None, call: 0, issued_ns: 0, what };
            let take = What::TakeOver(number);
            pass.events.push(Event { what: What::HandOff(number), ..event });
            pass.events.push(Event { stream: stream.0, mark: NEXT_MARK, what: take, ..event });
        }
        Ok(())
    }

    /// Ends the brick that runs on a stream. The time until the next brick begins is a gap.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn end_brick(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            return self.check();
        }
        if !self.running(stream)?.brick {
            return Ok(());
        }
        self.profiler.mark_issued(stream.0, None);
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.needs.add(&Grain::ALL);
        if pass.grain <= Grain::Layer {
            let at = pass.events.len();
            self.event(device, stream, None, self.calls, What::End)?;
            let running = &mut self.streams[usize::from(stream.0)];
            (running.brick, running.paused) = (false, Some(at));
            return Ok(());
        }
        if self.mode == SyncMode::Immediate {
            return self.end_waiting(device, stream);
        }
        self.event(device, stream, None, self.calls, What::End)?;
        self.streams[usize::from(stream.0)].brick = false;
        Ok(())
    }

    /// Like [`end_brick`](Self::end_brick), for a brick whose work is known only now.
    ///
    /// # Errors
    ///
    /// Like [`brick`](Self::brick).
    pub fn end_brick_with(
        &mut self,
        device: &mut impl Device,
        stream: StreamId,
        work: Work,
    ) -> Result<(), DeviceError> {
        if self.pass.is_some() && self.running(stream)?.brick {
            if let Some((_, of_host)) = &mut self.streams[usize::from(stream.0)].host {
                *of_host = work;
            }
            let events = self.pass.iter_mut().flat_map(|pass| pass.events.iter_mut().rev());
            let mut of_stream = events.filter(|event| event.stream == stream.0);
            let last = of_stream.find_map(|event| match &mut event.what {
                What::Brick(_, work) => Some(work),
                _ => None,
            });
            if let Some(last) = last {
                *last = work;
            }
        }
        self.end_brick(device, stream)
    }

    /// Ends the pass: issues its last marks, and settles passes whose times have arrived.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn end_pass(&mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        if self.pass.is_none() {
            // Also after a pass that isn't timed, so that no reader has to wait for those before it.
            self.check()?;
            while !self.in_flight.is_empty() && self.settle_oldest(device, false)? {}
            return Ok(());
        }
        self.profiler.mark_all_issued();
        self.count_ends();
        for index in 0..self.streams.len() {
            let Some(pass) = &self.pass else { break };
            let grain = pass.grain;
            let stream = StreamId(index as u16);
            let Running { has_begun, brick, paused, .. } = self.streams[index];
            if grain > Grain::Layer && self.mode == SyncMode::Immediate {
                self.end_waiting(device, stream)?;
                continue;
            }
            if if grain > Grain::Layer { brick } else { has_begun && paused.is_none() } {
                self.event(device, stream, None, self.calls, What::End)?;
            }
            if self.mode == SyncMode::PerLayer && has_begun {
                self.wait(device, stream)?;
            }
        }
        if let Some(pass) = self.pass.take() {
            self.in_flight.push_back(pass);
        }
        while !self.in_flight.is_empty() && self.settle_oldest(device, false)? {}
        Ok(())
    }

    /// Gives up the open pass, for example because a launch failed: it has no times, and is counted as abandoned. Does
    /// nothing if no pass is open.
    pub fn abandon_pass(&mut self) {
        self.give_up(|state| &mut state.abandoned_passes);
    }

    /// Adds the marks that the ends of streams would take at each grain.
    pub(super) fn count_ends(&mut self) {
        let Some(pass) = &mut self.pass else { return };
        for _ in self.streams.iter().filter(|running| running.brick) {
            pass.needs.add(&Grain::ALL);
        }
    }
}
