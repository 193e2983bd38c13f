//! What devices did, from the times of marks to the tables of a [`DeviceProfile`].

use std::sync::Mutex;

use crate::brick::{Source, Work};
use crate::clock::{ClockInfo, MockClock};
use crate::collect;
use crate::device::clock::{Alignment, Ticks};
use crate::device::timer::{DeviceInfo, Event, Issued, What};
use crate::profile::{DeviceProfile, DeviceStream, Name, Profile};
use crate::recorder::{Looked, NONE, Open, OpenPass, Recorder};
use crate::sync::lock_unmodelled as lock;

/// How many spans each stream keeps one by one.
const LOG_CAPACITY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

/// One device: a recorder for each of its streams, whose clock is turned to what the device read.
#[derive(Debug)]
pub(crate) struct DeviceLog {
    info: DeviceInfo,
    streams: Vec<StreamLog>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct StreamLog {
    recorder: Recorder,
    hand: MockClock,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) alignment: Alignment,
    pub(crate) last_alignment: Option<Alignment>,
    /// Passes that were begun and not settled.
    pub(crate) open: u64,
    /// Passes whose times were never there.
    pub(crate) lost_passes: u64,
    /// Passes whose marks were not in order.
    pub(crate) disordered_passes: u64,
    /// Why the device is gone.
    pub(crate) lost: Option<String>,
}

impl DeviceLog {
    pub(crate) fn new(info: &DeviceInfo, alignment: Alignment) -> Self {
        let streams = info.streams.iter().map(|_| {
            let hand = MockClock::default();
            let recorder = Recorder::new(hand.clock(), LOG_CAPACITY);
            recorder.set_active(true);
            StreamLog { recorder, hand }
        });
        let state = State {
            alignment,
            last_alignment: None,
            open: 0,
            lost_passes: 0,
            disordered_passes: 0,
            lost: None,
        };
        Self { info: info.clone(), streams: streams.collect(), state: Mutex::new(state) }
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
    }

    pub(crate) fn reset(&self) {
        for stream in &self.streams {
            stream.recorder.reset();
        }
        self.note(|state| {
            state.lost_passes = 0;
            state.disordered_passes = 0;
        });
    }

    /// Records a pass, whose marks were at these `ticks`.
    pub(crate) fn settle(&self, clock: &Ticks, pass: &Issued, ticks: &[u64]) {
        let Some(&first) = ticks.first() else { return };
        let alignment = lock(&self.state).alignment;
        // All moments of a pass from one: differences of them then add up.
        let start = alignment.host_ns(clock, first);
        // On different streams a mark may be earlier than the first one that was issued.
        let moment = |mark: u32| -> Option<u64> {
            let ticks = *ticks.get(mark as usize)?;
            match clock.between(first, ticks) {
                Some(after) => start.checked_add(after),
                None => start.checked_sub(clock.between(ticks, first)?),
            }
        };
        let in_order = (0..self.streams.len()).all(|stream| {
            let mut moments = events_of(pass, stream).map(|event| moment(event.mark));
            moments.try_fold(0, |before, moment| moment.filter(|&at| at >= before)).is_some()
        });
        if !in_order {
            self.note(|state| state.disordered_passes += 1);
            return;
        }
        for (index, stream) in self.streams.iter().enumerate() {
            let events = events_of(pass, index);
            stream.replay(pass, events.filter_map(|event| Some((event, moment(event.mark)?))));
        }
    }

    pub(crate) fn profile(&self, names: &[Name], with_others: bool) -> DeviceProfile {
        let streams = self.info.streams.iter().zip(&self.streams).map(|(name, stream)| {
            let mut tables = Profile::empty(ClockInfo::default());
            tables.names = names.to_vec();
            collect::fill(&mut tables, &stream.recorder, with_others);
            tables.totals.iter_mut().for_each(|total| total.source = Source::Device);
            tables.spans.iter_mut().for_each(|span| span.source = Source::Device);
            DeviceStream {
                name: name.clone(),
                dropped: tables.dropped,
                phases: tables.phases,
                totals: tables.totals,
                latency: tables.latency,
                passes: tables.passes,
                spans: tables.spans,
            }
        });
        let streams = streams.collect();
        let state = lock(&self.state);
        DeviceProfile {
            name: self.info.name.clone(),
            api: self.info.api.clone(),
            driver: self.info.driver.clone(),
            ticks: self.info.ticks,
            alignment: Some(state.alignment),
            last_alignment: state.last_alignment,
            unsettled_passes: state.open,
            lost_passes: state.lost_passes,
            disordered_passes: state.disordered_passes,
            lost: state.lost.clone(),
            streams,
        }
    }
}

fn events_of(pass: &Issued, stream: usize) -> impl Iterator<Item = &Event> {
    pass.events.iter().filter(move |event| usize::from(event.stream) == stream)
}

/// What is open while a pass is replayed.
#[derive(Default)]
struct Replay {
    pass: Option<OpenPass>,
    layer: Option<(u16, Open, u16)>,
    brick: Option<(Open, Work)>,
    kernel: Option<(Open, Work)>,
}

impl StreamLog {
    /// Turns the clock to `at`. It never turns back: a pass that an alignment puts before the end of the
    /// one before begins there, and is as long as it was.
    fn turn_to(&self, at: u64) {
        let now = self.recorder.clock().now();
        self.hand.advance(at.saturating_sub(now));
    }

    fn replay<'e>(&self, pass: &Issued, events: impl Iterator<Item = (&'e Event, u64)>) {
        let mut open = Replay::default();
        let mut shift = None;
        for (event, at) in events {
            let now = self.recorder.clock().now();
            let at = at + *shift.get_or_insert_with(|| now.saturating_sub(at));
            let is_other_layer = |&(layer, ..): &(u16, Open, u16)| Some(layer) != event.layer;
            // It ended with its last brick.
            if open.brick.is_none()
                && matches!(event.what, What::Brick(..))
                && open.layer.as_ref().is_some_and(is_other_layer)
            {
                self.end_layer(&mut open);
            }
            self.turn_to(at);
            if open.pass.is_none() {
                open.pass = self.recorder.begin_pass(|_: &mut _| Looked::No);
            }
            self.end_kernel(&mut open);
            if !matches!(event.what, What::Kernel(..)) {
                let had_brick = open.brick.is_some();
                if let Some((brick, work)) = open.brick.take() {
                    self.recorder.end_brick(brick, work);
                }
                let ends_layer = match event.what {
                    What::Layer => true,
                    What::Brick(..) => open.layer.as_ref().is_some_and(is_other_layer),
                    // Of layers without bricks; else it ends with its last brick.
                    What::End => !had_brick,
                    What::Kernel(..) => false,
                };
                if ends_layer {
                    self.end_layer(&mut open);
                }
                if event.what != What::End
                    && open.layer.is_none()
                    && let Some(layer) = event.layer
                {
                    let (layer_open, before) = self.recorder.begin_layer(layer);
                    open.layer = Some((layer, layer_open, before));
                }
            }
            match event.what {
                What::Brick(name, work) => {
                    open.brick = Some((self.recorder.begin_brick(name), work));
                }
                What::Kernel(name, work) => {
                    open.kernel = Some((self.recorder.begin_detail(name), work));
                }
                What::Layer | What::End => {}
            }
        }
        self.end_kernel(&mut open);
        if let Some((brick, work)) = open.brick.take() {
            self.recorder.end_brick(brick, work);
        }
        self.end_layer(&mut open);
        if let (Some(open), Some(phase)) = (open.pass, pass.phase) {
            let look = |_: &mut _| Looked::No;
            self.recorder.end_pass(open, phase, pass.tokens, pass.position, look);
        }
    }

    fn end_kernel(&self, open: &mut Replay) {
        if let Some((kernel, work)) = open.kernel.take() {
            self.recorder.end_kernel(kernel, work);
        }
    }

    fn end_layer(&self, open: &mut Replay) {
        if let Some((_, layer, before)) = open.layer.take() {
            debug_assert!(before == NONE);
            self.recorder.end_layer(layer, before);
        }
    }
}
