//! A pass as it was issued, with the meaning of its marks.

use brickscope_profile::name::NameIdx;
use brickscope_profile::{Grain, LaunchKind, Phase, Work};

/// A pass as it was issued, with the meaning of its marks. For a pass that is recorded once and replayed,
/// [`DeviceTimer::issued`](crate::DeviceTimer::issued) returns it and
/// [`DeviceTimer::replayed`](crate::DeviceTimer::replayed) takes it.
#[derive(Debug, Clone, Default)]
pub struct Issued {
    pub(crate) phase: Option<Phase>,
    pub(crate) grain: Grain,
    pub(crate) tokens: u64,
    pub(crate) position: u64,
    pub(crate) set: u32,
    pub(crate) n_marks: u32,
    /// When it was issued, by the host's clock.
    pub(crate) issued_ns: u64,
    /// How its launches get to the device.
    pub(crate) launches: LaunchKind,
    /// The number of resets before it.
    pub(crate) generation: u64,
    /// How many marks it would take at each grain.
    pub(crate) needs: Needs,
    /// In the order of issue.
    pub(crate) events: Vec<Event>,
}

impl Issued {
    /// The set of its marks.
    #[must_use]
    pub fn set(&self) -> u32 {
        self.set
    }

    /// The number of its marks.
    #[must_use]
    pub fn n_marks(&self) -> u32 {
        self.n_marks
    }

    /// The grain at which it was issued.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.grain
    }
}

/// The number of marks that a pass needs, by [`Grain`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs([u32; Grain::ALL.len()]);

impl Needs {
    pub(crate) fn of(&self, grain: Grain) -> u32 {
        self.0[grain as usize]
    }

    /// Counts one more mark at each of `grains`.
    pub(crate) fn add(&mut self, grains: &[Grain]) {
        for &grain in grains {
            self.0[grain as usize] = self.0[grain as usize].saturating_add(1);
        }
    }
}

/// What a mark means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) stream: u16,
    /// [`NEXT_MARK`] if the event shares the mark of the stream's next event.
    pub(crate) mark: u32,
    pub(crate) layer: Option<u16>,
    /// The number of the call that it came from, among the calls that begin bricks, kernels and transfers.
    pub(crate) call: u32,
    /// When the host issued the brick or kernel that begins here, by its own clock: before it marked the stream.
    pub(crate) issued_ns: u64,
    pub(crate) what: What,
}

/// No mark of its own.
pub(crate) const NEXT_MARK: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The pass begins on this stream; nothing inside is timed.
    Whole,
    /// A layer begins, or the part outside of layers; what ran before ends.
    Layer,
    /// A brick begins; what ran before ends.
    Brick(NameIdx, Work),
    /// A kernel of the running brick begins; the kernel before ends.
    Kernel(NameIdx, Work),
    /// What ran ends.
    End,
    /// No event: what seemed to end here went on.
    Nothing,
    /// The work that another stream waits for is done.
    HandOff(u32),
    /// What follows had to wait for that hand-off.
    TakeOver(u32),
}
