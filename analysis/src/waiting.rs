//! How long threads waited for each other.

use std::collections::BTreeMap;

use brickscope_profile::text::printable;
use brickscope_profile::{Phase, Profile, Share};

/// How threads shared the bricks of a phase.
pub(crate) struct Waiting {
    pub(crate) threads: BTreeMap<u32, Share>,
    /// Those with the most waiting first.
    pub(crate) bricks: Vec<(String, Share)>,
    all: Share,
}

impl Waiting {
    /// `None` if no two threads were looked at.
    pub(crate) fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let (mut threads, mut all) = (BTreeMap::<u32, Share>::new(), Share::default());
        let mut bricks = BTreeMap::<&str, Share>::new();
        for of in profile.shares.iter().filter(|of| of.phase == phase) {
            threads.entry(of.thread).or_default().add(of.share);
            bricks.entry(&of.brick).or_default().add(of.share);
            all.add(of.share);
        }
        let mut bricks: Vec<_> =
            bricks.into_iter().map(|(name, share)| (printable(name), share)).collect();
        bricks.retain(|(_, share)| share.waited_ns > 0);
        bricks.sort_by_key(|(_, share)| std::cmp::Reverse(share.waited_ns));
        (threads.len() > 1).then_some(Self { threads, bricks, all })
    }

    /// The part of the threads' time that they waited, 0 to 1.
    pub(crate) fn part(&self) -> f64 {
        self.all.waited().unwrap_or(0.0)
    }

    /// The brick in which they waited longest.
    pub(crate) fn most(&self) -> Option<&str> {
        self.bricks.first().map(|(name, _)| name.as_str())
    }
}
