//! Orders of requests: by how long each waited or took, or as they came.

use std::cmp::Reverse;
use std::str::FromStr;

use super::{Requests, Until};

/// By what requests are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// First those that waited longest for their first token.
    First,
    /// First those that waited longest for a further one.
    Worst,
    /// As they came.
    Arrival,
    /// First those that took longest from their arrival to their end, whatever ended them.
    Total,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "first" => Ok(Self::First),
            "worst" => Ok(Self::Worst),
            "arrival" => Ok(Self::Arrival),
            "total" => Ok(Self::Total),
            _ => Err("requests are sorted by `first`, `worst`, `arrival` or `total`".to_owned()),
        }
    }
}

impl Requests<'_> {
    /// The request that comes first in an order; of some that are alike, the first that was told. `None` if of none is known
    /// what they are sorted by.
    #[must_use]
    pub fn first_by(&self, order: Order) -> Option<u32> {
        let known = self.numbers().filter_map(|of| Some((self.rank_by(order, of)?, Reverse(of))));
        known.max().map(|(_, Reverse(number))| number)
    }

    /// What is larger of one that comes before another. `None` if it isn't known.
    pub(super) fn rank_by(&self, order: Order, number: u32) -> Option<u64> {
        let of = &self.all()[number as usize];
        match order {
            Order::First => Some(of.tokens_ns.first()?.saturating_sub(of.arrived_ns)),
            Order::Worst => self.worst(number).map(|(_, ns)| ns),
            Order::Arrival => Some(u64::MAX - of.arrived_ns),
            Order::Total => Some(of.ended_ns?.saturating_sub(of.arrived_ns)),
        }
    }

    /// The longest time between two tokens of a request, and how many tokens came before.
    pub(super) fn worst(&self, request: u32) -> Option<(u32, u64)> {
        let mut worst: Option<(u32, u64)> = None;
        for (until, from_ns, to_ns) in self.spans(request) {
            let ns = to_ns - from_ns;
            if let Until::Token(nth) = until
                && worst.is_none_or(|(_, longest)| ns > longest)
            {
                worst = Some((nth, ns));
            }
        }
        worst
    }
}
