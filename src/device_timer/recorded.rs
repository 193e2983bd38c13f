//! Recorded passes that are replayed, and passes whose times have arrived.

use brickscope_profile::{Grain, LaunchKind, Work};

use super::{DeviceTimer, Running};
use crate::device::{Device, DeviceError, DeviceMisuse, Issued, StreamId, What};

/// # Recorded passes, and settling
impl DeviceTimer<'_> {
    /// Takes the open pass as the record of a pass that is [`replayed`](Self::replayed) later. It is not timed itself.
    /// `None` if no pass is open.
    ///
    /// The record has no marks at its end, so a brick that still runs has no time in any replay. Call
    /// [`end_brick`](Self::end_brick) first, or use [`end_recorded`](Self::end_recorded).
    pub fn issued(&mut self) -> Option<Issued> {
        self.count_ends();
        let pass = self.pass.take()?;
        self.free.push(pass.set);
        self.log.forget(&pass);
        if let Some(phase) = pass.phase {
            self.log.budget(|budget| budget.recorded(phase));
        }
        Some(pass)
    }

    /// Like [`issued`](Self::issued), after the marks that [`end_pass`](Self::end_pass) would make. Call it while the
    /// device still records.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn end_recorded(
        &mut self,
        device: &mut impl Device,
    ) -> Result<Option<Issued>, DeviceError> {
        for index in 0..self.streams.len() {
            let Some(pass) = &self.pass else { return Ok(None) };
            let Running { has_begun, brick, paused, .. } = self.streams[index];
            if if pass.grain > Grain::Layer { brick } else { has_begun && paused.is_none() } {
                self.event(device, StreamId(index as u16), None, self.calls, What::End)?;
            }
        }
        Ok(self.issued())
    }

    /// Declares that the device is about to replay a recorded pass. Call it before the replay is launched.
    ///
    /// The device writes the marks into the set that the pass was recorded with, under the same numbers, so this waits
    /// for a pass in flight that uses the set. It doesn't call [`Device::begin_set`].
    ///
    /// `work` returns what each brick and kernel has to do. Its arguments are the number of the call that began the
    /// brick or kernel while recording, and the work that was stated then.
    ///
    /// # Errors
    ///
    /// If a pass is open, if `recorded` belongs to a device with other sets, or if the device fails.
    pub fn replayed(
        &mut self,
        device: &mut impl Device,
        recorded: &Issued,
        tokens: u64,
        position: u64,
        work: &mut dyn FnMut(usize, Work) -> Work,
    ) -> Result<(), DeviceError> {
        self.check()?;
        if self.pass.is_some() {
            return Err(DeviceMisuse::PassInPass.into());
        }
        let set = recorded.set;
        let sets = self.info.sets.max(1);
        if set >= sets {
            return Err(DeviceMisuse::NoSuchSet { set, sets }.into());
        }
        while !self.free.contains(&set) && self.settle_oldest(device, true)? {}
        self.mode = self.profiler.device().sync_mode();
        if !self.is_on() {
            return Ok(());
        }
        self.free.retain(|&free| free != set);
        let generation = self.log.begun();
        let mut spare = self.spare.pop().unwrap_or_default().events;
        spare.clear();
        spare.extend_from_slice(&recorded.events);
        for event in &mut spare {
            if let What::Brick(_, of_it) | What::Kernel(_, of_it) = &mut event.what {
                *of_it = work(event.call as usize, *of_it);
            }
        }
        // As late as possible, so that our own work doesn't count as delay before the device begins.
        let issued_ns = self.profiler.clock().now();
        spare.iter_mut().for_each(|event| event.issued_ns = issued_ns);
        let Issued { phase, grain, n_marks, needs, .. } = *recorded;
        let events = spare;
        self.in_flight.push_back(Issued {
            phase,
            grain,
            tokens,
            position,
            set,
            n_marks,
            issued_ns,
            launches: LaunchKind::Replayed,
            generation,
            needs,
            events,
        });
        Ok(())
    }

    /// Settles passes whose times have arrived. With `wait`, waits for all of them.
    ///
    /// # Errors
    ///
    /// If the device is lost. A pass whose marks can't be read back is counted as lost, with the reason.
    pub fn settle(&mut self, device: &mut impl Device, wait: bool) -> Result<(), DeviceError> {
        self.check()?;
        while !self.in_flight.is_empty() && self.settle_oldest(device, wait)? {}
        Ok(())
    }

    /// Settles all passes, and reads both clocks once more to see how far they drifted apart.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn finish(mut self, device: &mut impl Device) -> Result<(), DeviceError> {
        self.abandon_pass();
        self.settle(device, true)?;
        self.realign(device)
    }
}
