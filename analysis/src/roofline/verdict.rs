//! What limits a phase, and how near to that limit it is: one figure and one sentence for all screens.

use brickscope_profile::Ceilings;
use brickscope_profile::text::{count, printable};
use serde::Serialize;

use super::known::Known;
use super::limits::{F32, PRODUCTS};
use super::pace::OwnPace;
use super::place::{Bound, Reach, RooflineBrick};
use super::{MEMORY, Roofline, SWINGS};
use crate::words::{whole, whole_percent};

/// What would limit a phase at best, and how near to that limit it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The limit of the bricks with the most of the least time.
    pub bound: Bound,
    /// The level whose bandwidth that is; empty for compute.
    pub level: String,
    /// The least time over the wall time; above the roof, over the time of the bricks that are.
    pub of_roof: f64,
    /// How near.
    pub reach: Reach,
    /// The limit, in bytes or FLOPs per second.
    pub limit_per_second: f64,
    /// The lowest that this limit was around the run.
    pub lowest_per_second: f64,
    /// The part of what the whole machine could do, if memory limits it and the run had fewer threads than read the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_machine: Option<f64>,
    /// How fast its products took their weights in, of what their code reaches, if that is known of half of its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<OwnPace>,
    /// Of a device in another program's file: the part of its time that this is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// Whether the limit was stated, and nobody measured it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stated: bool,
    /// The numbers that are multiplied, if compute is the limit: whether they are bytes.
    #[serde(skip)]
    is_of_bytes: bool,
    /// The threads of the run; 0 if unknown.
    #[serde(skip)]
    threads: u32,
    /// How long the phase took.
    #[serde(skip)]
    wall_ns: f64,
}

impl Roofline {
    /// What would limit the phase at best, how near to that limit it is, and the part of its wall time that the least
    /// time is. `None` if no brick has a place, or there was no time.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let mut by_bound: Vec<(Bound, &str, [f64; 2])> = Vec::new();
        for brick in &self.bricks {
            let Some(place) = &brick.place else { continue };
            let level = if place.bound == Bound::Compute { "" } else { place.level.as_str() };
            let least = place.of_roof * brick.total_ns as f64;
            let least = if place.is_of_floats { [0.0, least] } else { [least, 0.0] };
            match by_bound.iter_mut().find(|(bound, of, _)| (*bound, *of) == (place.bound, level)) {
                Some((.., sums)) => sums.iter_mut().zip(least).for_each(|(sum, ns)| *sum += ns),
                None => by_bound.push((place.bound, level, least)),
            }
        }
        let (bound, level, [of_products, of_floats]) =
            by_bound.into_iter().max_by(|a, b| (a.2[0] + a.2[1]).total_cmp(&(b.2[0] + b.2[1])))?;
        let limit = match bound {
            Bound::Memory => MEMORY,
            Bound::Cache => level,
            Bound::Compute if of_floats > of_products => F32,
            Bound::Compute => PRODUCTS,
        };
        let [lowest_per_second, limit_per_second] = self.limit_of(limit)?;
        let wall = self.wall_ns as f64;
        let above = self.above(bound, level, of_products + of_floats);
        let of_roof = above.unwrap_or(self.least_ns / wall);
        let reach = match above {
            Some(_) => Reach::Above,
            None => Reach::of(
                of_roof,
                self.slow_least_ns / wall,
                limit_per_second > SWINGS * lowest_per_second,
                self.sure.iter().any(|name| name == limit),
                self.disturbed.iter().any(|name| name == limit),
            ),
        };
        let places = self.bricks.iter().filter_map(|brick| brick.place.as_ref());
        let pace = OwnPace::together(places.filter_map(|place| place.pace.as_ref()));
        let pace = pace.filter(|pace| 2.0 * pace.took_ns() >= wall);
        let reach = reach.beside(pace.as_ref());
        let of_machine = self.machine_bytes_per_second.filter(|_| bound == Bound::Memory);
        of_roof.is_finite().then(|| Verdict {
            bound,
            level: level.to_owned(),
            of_roof,
            reach,
            limit_per_second,
            lowest_per_second,
            of_machine: of_machine.map(|_| self.machine_least_ns / wall),
            pace,
            known: self.known,
            is_stated: self.is_stated,
            is_of_bytes: limit == PRODUCTS && self.is_of_bytes,
            threads: self.threads,
            wall_ns: wall,
        })
    }

    /// How far above the roof the bricks of a bound are, if they make up half of the phase and are above it by more than
    /// two measurements of a ceiling differ: `least` nanoseconds are what they would take at least.
    fn above(&self, bound: Bound, level: &str, least: f64) -> Option<f64> {
        let is_of_it = |brick: &&RooflineBrick| {
            let place = brick.place.as_ref();
            place.is_some_and(|place| {
                place.bound == bound && (bound == Bound::Compute || place.level == level)
            })
        };
        let total: f64 =
            self.bricks.iter().filter(is_of_it).map(|brick| brick.total_ns as f64).sum();
        let of_roof = least / total;
        // What a cache holds of a pass comes faster than memory gives it.
        let is_cached =
            bound == Bound::Memory && self.pass_bytes <= self.largest_cache.saturating_mul(2);
        let is_above = bound != Bound::Cache
            && !is_cached
            && 2.0 * total >= self.wall_ns as f64
            && of_roof > 1.0 + Ceilings::AGREE;
        (is_above && of_roof.is_finite()).then_some(of_roof)
    }
}

impl Verdict {
    /// The limit, as a word: `memory`, `L2`, `compute`, or `kernel` where that is nearer.
    #[must_use]
    pub fn limit(&self) -> String {
        if self.reach == Reach::Kernel {
            return Reach::Kernel.name().to_owned();
        }
        self.roof()
    }

    /// The machine's limit, as a word.
    fn roof(&self) -> String {
        match self.bound {
            Bound::Compute => Bound::Compute.name().to_owned(),
            Bound::Memory | Bound::Cache => printable(&self.level),
        }
    }

    /// A rate of the limit: `90 GB/s`.
    fn rate(&self, per_second: f64) -> String {
        format!("{} {}", whole(per_second / 1e9), self.unit())
    }

    fn unit(&self) -> &'static str {
        match self.bound {
            Bound::Memory | Bound::Cache => "GB/s",
            Bound::Compute if self.is_of_bytes => "Gop/s",
            Bound::Compute => "GFLOP/s",
        }
    }

    /// The part of the limit that was reached, and the limit: `67 % of 90 GB/s`.
    #[must_use]
    pub fn part(&self) -> String {
        self.part_beside("")
    }

    /// The same, with how far the limit swung beside it.
    fn part_beside(&self, gave: &str) -> String {
        let share = whole_percent(self.of_roof);
        let Some(of_machine) = self.of_machine else {
            let stated = if self.is_stated { "the stated " } else { "" };
            return format!("{share} of {stated}{}{gave}", self.rate(self.limit_per_second));
        };
        let threads = match self.threads {
            0 => "the run's threads".to_owned(),
            n => count(n.into(), "thread"),
        };
        let read = if self.threads == 1 { "reads" } else { "read" };
        format!(
            "{share} of the {} that {threads} {read}{gave}, {} of the machine's",
            self.rate(self.limit_per_second),
            whole_percent(of_machine)
        )
    }

    /// How far the limit swung around the run: `58 to 90 GB/s`. `None` if it was measured alike each time.
    #[must_use]
    pub fn spread(&self) -> Option<String> {
        let is_spread = self.lowest_per_second < 0.95 * self.limit_per_second;
        is_spread.then(|| {
            format!(
                "{} to {}",
                whole(self.lowest_per_second / 1e9),
                self.rate(self.limit_per_second)
            )
        })
    }

    /// What better code of its products brings the phase, if their pace is known: `better code helps up to 3.6 ×`. The rest of
    /// the phase takes as long as it did.
    #[must_use]
    pub fn helps(&self) -> Option<String> {
        let least = self.wall_ns - self.pace.as_ref()?.above_ns();
        (least > 0.0).then(|| format!("better code helps up to {:.1} ×", self.wall_ns / least))
    }

    /// What it comes to, in a few words: `memory-bound: 67 % of 90 GB/s (measured 80 to 90)`.
    #[must_use]
    pub fn says(&self) -> String {
        let what = match self.bound {
            Bound::Compute => "arithmetic".to_owned(),
            Bound::Memory | Bound::Cache => self.roof(),
        };
        let limit = self.roof();
        let spread = self.spread();
        let gave = spread.as_ref().map_or(String::new(), |spread| {
            format!(" (measured {})", spread.trim_end_matches(self.unit()).trim_end())
        });
        let said = match self.reach {
            Reach::Unsettled => match spread {
                Some(spread) => format!("{what} swung {spread}: no verdict"),
                None => format!("{what} was measured beside others: no verdict"),
            },
            Reach::Above if self.is_stated => format!("{limit}-bound: {}", self.part()),
            Reach::Above => format!("{limit}-bound: above the measured roof, {}", self.part()),
            Reach::At | Reach::Near => format!("{limit}-bound: {}", self.part_beside(&gave)),
            Reach::Far => format!("far from the {limit} roof: {}", self.part_beside(&gave)),
            Reach::Kernel => {
                format!("kernel-bound: {}", self.pace.as_ref().map_or(String::new(), OwnPace::says))
            }
        };
        match self.known {
            Some(known) => {
                format!("{said}, in the {} of its time whose work is known", known.share())
            }
            None => said,
        }
    }
}
