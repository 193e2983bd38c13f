//! A pass as it was issued: what its marks mean.

use brickscope_profile::name::NameIdx;
use brickscope_profile::{Grain, LaunchKind, Phase, Work};

/// A pass as it was issued: what lies between its marks. Of a pass that is recorded once and replayed,
/// [`DeviceTimer::issued`](crate::DeviceTimer::issued) gives it for
/// [`DeviceTimer::replayed`](crate::DeviceTimer::replayed).
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
    /// Which reset it came after.
    pub(crate) generation: u64,
    /// How many marks it would take at each grain.
    pub(crate) needs: Needs,
    /// In the order of issue.
    pub(crate) events: Vec<Event>,
}

impl Issued {
    /// The set that its marks belong to.
    #[must_use]
    pub fn set(&self) -> u32 {
        self.set
    }

    /// How many marks it has.
    #[must_use]
    pub fn n_marks(&self) -> u32 {
        self.n_marks
    }

    /// What has times of its own in it.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.grain
    }
}

/// How many marks a pass takes, by [`Grain`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs([u32; Grain::ALL.len()]);

impl Needs {
    pub(crate) fn of(&self, grain: Grain) -> u32 {
        self.0[grain as usize]
    }

    /// One more at each of `grains`.
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
    /// [`NEXT_MARK`] if it is that of the stream's next event.
    pub(crate) mark: u32,
    pub(crate) layer: Option<u16>,
    /// Which call it came from, among those that begin bricks, kernels and transfers.
    pub(crate) call: u32,
    /// When the host issued the brick or kernel that begins here, by its clock: before it marked the stream.
    pub(crate) issued_ns: u64,
    pub(crate) what: What,
}

/// No mark of its own.
pub(crate) const NEXT_MARK: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The pass begins on this stream; nothing inside is timed.
    Whole,
    /// The layer begins, or what is in none; what ran before ends.
    Layer,
    /// A brick begins; what ran before ends.
    Brick(NameIdx, Work),
    /// A kernel of the running brick begins; the kernel before ends.
    Kernel(NameIdx, Work),
    /// What ran ends.
    End,
    /// It seemed to end, and went on.
    Nothing,
    /// What another stream waits for is done.
    HandOff(u32),
    /// What comes next had to wait for that.
    TakeOver(u32),
}
