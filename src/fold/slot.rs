//! Which sums a span goes to.

use brickscope_profile::Phase;

/// What sums are kept apart.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Outside,
    Prefill,
    Decode,
    Encode,
    Training,
    /// The open pass, which has no wall yet.
    #[default]
    Open,
}

impl Slot {
    pub(crate) const ALL: [Self; 6] =
        [Self::Outside, Self::Prefill, Self::Decode, Self::Encode, Self::Training, Self::Open];
}

impl From<Phase> for Slot {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Prefill => Self::Prefill,
            Phase::Decode => Self::Decode,
            Phase::Encode => Self::Encode,
            Phase::Training => Self::Training,
        }
    }
}
