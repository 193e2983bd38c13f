//! Which passes are kept of a run of days, where there is no room for all of them.
//!
//! - **Where it is decided**: on the reading side, after a pass has ended and the tokens around it are there. The engine is
//!   not slowed, and nothing is decided about a pass that goes on.
//! - **The tail**: a [`Keeper`] has the slowest passes whole, by the longest time between two tokens of one sequence that a
//!   pass lies in, or its own wall if that is longer: a heap, whose fastest is taken out when it is over its bytes. Once a
//!   pass was taken out, none that is as fast comes in: all that are slower than that are there.
//! - **The sample**: what is not in the tail is offered, once, to the reservoir of its class: its context, its phase, and the
//!   power of two that its tokens are below. Each is a uniform sample without replacement (Vitter's algorithm R). When all
//!   of them are over their bytes, the largest loses one by chance: what is left is uniform, too. None loses its last one.
//! - **Weights**: a pass of the tail stands for itself, one of a sample of `n` out of `of` for `of / n`. They sum to the
//!   number of passes, exactly, since `of` is a count. [`Kept`] has them, in the profile.
//! - **Sums** are not estimates: who offers a pass adds all of its bricks to sums before. [`Times`] has the count, the sum and
//!   a histogram of all walls, and of all times between tokens.
//! - **Memory**: what callers say that a pass takes, and [`Keeper::EACH`]; at most [`Limits`], one pass, and one for each
//!   class. Beside that less than 32 KiB for each [`Times`].
//! - **Requests** of a server: a [`RequestKeeper`] says which. Those with the slowest tokens are kept with all passes that ran
//!   meanwhile, and a sample of the others; their sums are of all ([`KeptRequests`]).
//! - **A run that fits** is whole: then no weight is needed, and none is stated.
//! - **Conditions**: where a token, a pass or a first token took longer than the caller said by [`When`], [`Held`] keeps the passes around it
//!   whole. It gets each pass first; what it doesn't keep, or gives up, is what a [`Keeper`] is offered, once. Its passes stand
//!   for themselves: they were not chosen by chance. [`Fired`] counts all that came, and what was kept of them.

mod held;
mod kept;
mod requests;
mod reservoir;
mod slowest;
mod when;

use std::collections::BTreeMap;

pub use self::held::{Came, Held};
pub use self::kept::{Kept, Sample, Times, WallsOf};
pub use self::requests::{ChosenRequests, KeptRequests, RequestKeeper, RequestOffer};
use self::reservoir::Reservoir;
use self::slowest::Slowest;
pub use self::when::{Asked, Fired, Timed, When};
use crate::brick::Phase;
use crate::stats::SplitMix64;

/// The most bytes of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the slowest passes.
    pub slowest: usize,
    /// Of the samples of all others.
    pub sampled: usize,
}

impl Default for Limits {
    /// Those of 32 MiB.
    fn default() -> Self {
        Self::of_mib(32)
    }
}

impl Limits {
    /// Of so many MiB, three of four for the slowest passes.
    #[must_use]
    pub fn of_mib(mib: u32) -> Self {
        let all = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        Self { slowest: all / 4 * 3, sampled: all / 4 }
    }

    /// The bytes of the passes around what comes true, which is half of all by default, and the limits of the others then.
    #[must_use]
    pub fn with_held(self) -> (usize, Self) {
        let held = self.slowest / 3 * 2;
        (held, Self { slowest: self.slowest - held, ..self })
    }
}

/// What is known of a pass when it is decided whether it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its number among all passes. They are returned in the order of these.
    pub serial: u64,
    /// Which context it is of, as a number of the caller's: each has samples of its own.
    pub of: u32,
    /// Its phase.
    pub phase: Phase,
    /// Its tokens.
    pub tokens: u64,
    /// How slow it is: the longest time between two tokens of a sequence that it lies in, or its wall.
    pub slow_ns: u64,
    /// The memory that it takes.
    pub bytes: usize,
}

impl Offer {
    fn class(&self) -> Class {
        let bits = u64::BITS - self.tokens.leading_zeros();
        Class { of: self.of, phase: self.phase as u8, bits }
    }
}

/// Passes among which one may stand for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    of: u32,
    phase: u8,
    /// The bits of the number of its tokens.
    bits: u32,
}

/// A pass that is kept.
#[derive(Debug, Clone)]
struct Entry<T> {
    offer: Offer,
    item: T,
}

/// The same passes are kept of the same offers.
const SEED: u64 = 0x6b65_6570;

/// Keeps some of the passes that it is offered: see [the module](self).
#[derive(Debug, Clone)]
pub struct Keeper<T> {
    limits: Limits,
    slowest: Slowest<T>,
    samples: BTreeMap<Class, Reservoir<T>>,
    /// The bytes of all samples.
    sampled: usize,
    random: SplitMix64,
    offered: u64,
    dropped: u64,
}

/// The passes that were kept of one context, and what they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The number of the context.
    pub of: u32,
    /// The serials of the slowest passes, in order.
    pub slowest: Vec<u64>,
    /// All that are slower than this are among them. `None` if none was left out.
    pub slower_than_ns: Option<u64>,
    /// The serials of the passes that were [held](Held), in order. They are none of the others.
    pub around: Vec<u64>,
    /// For each class its phase, the most tokens of one, how many passes are of it besides the slowest, and the serials of
    /// those that were kept.
    pub samples: Vec<(Phase, u64, u64, Vec<u64>)>,
}

impl Chosen {
    fn none(of: u32, slower_than_ns: Option<u64>) -> Self {
        let (slowest, around, samples) = (Vec::new(), Vec::new(), Vec::new());
        Self { of, slowest, slower_than_ns, around, samples }
    }
}

impl<T> Keeper<T> {
    /// What a pass takes besides the bytes that its caller states.
    pub const EACH: usize = size_of::<Entry<T>>();

    /// One that has nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            slowest: Slowest::new(limits.slowest),
            samples: BTreeMap::new(),
            sampled: 0,
            random: SplitMix64(SEED),
            offered: 0,
            dropped: 0,
        }
    }

    /// Keeps a pass, or drops it or another one.
    pub fn add(&mut self, offer: Offer, item: T) {
        self.offered += 1;
        self.slowest.push(Entry { offer, item });
        while let Some(entry) = self.slowest.pop_over() {
            self.sample(entry);
        }
    }

    /// Offers a pass to the sample of its class.
    fn sample(&mut self, entry: Entry<T>) {
        let of_class = self.samples.entry(entry.offer.class()).or_default();
        let before = of_class.bytes();
        self.dropped += u64::from(!of_class.offer(entry, &mut self.random));
        self.sampled = self.sampled - before + of_class.bytes();
        while self.sampled > self.limits.sampled {
            let not_the_last = self.samples.values_mut().filter(|of| of.len() > 1);
            let Some(largest) = not_the_last.max_by_key(|of| of.bytes()) else { return };
            self.sampled -= largest.shrink(&mut self.random);
            self.dropped += 1;
        }
    }

    /// How many passes it was offered.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// How many of them it dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The bytes of what is kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slowest.bytes() + self.sampled
    }

    /// What was kept, in the order of the serials, and for each context what it stands for.
    #[must_use]
    pub fn finish(self) -> (Vec<(Offer, T)>, Vec<Chosen>) {
        let mut chosen: BTreeMap<u32, Chosen> = BTreeMap::new();
        let slower_than_ns = self.slowest.floor_ns();
        let none = |of| Chosen::none(of, slower_than_ns);
        let mut all: Vec<(Offer, T)> = Vec::new();
        for Entry { offer, item } in self.slowest.into_entries() {
            let of = chosen.entry(offer.of).or_insert_with(|| none(offer.of));
            of.slowest.push(offer.serial);
            all.push((offer, item));
        }
        for (class, sample) in self.samples {
            let (seen, entries) = sample.into_entries();
            let Some(phase) = entries.first().map(|entry| entry.offer.phase) else { continue };
            let most = 1_u64.checked_shl(class.bits).map_or(u64::MAX, |above| above - 1);
            let mut serials: Vec<u64> = entries.iter().map(|entry| entry.offer.serial).collect();
            serials.sort_unstable();
            let of = chosen.entry(class.of).or_insert_with(|| none(class.of));
            of.samples.push((phase, most, seen, serials));
            all.extend(entries.into_iter().map(|entry| (entry.offer, entry.item)));
        }
        all.sort_by_key(|(offer, _)| offer.serial);
        chosen.values_mut().for_each(|chosen| chosen.slowest.sort_unstable());
        (all, chosen.into_values().collect())
    }
}

#[cfg(test)]
mod tests;
