//! How often the load may be read: readings take a small part of the time.

/// Readings take at most one part in this many of the time. What they don't use is saved up, so that the passes of a
/// burst have a reading each, however short they are.
const READING_COST: u64 = 100;

/// So much can be saved up: some two hundred readings.
const MOST_CREDIT_NS: u64 = 5_000_000;

/// How much time readings may take.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// What the last readings took.
    costs: [u64; 8],
    readings: usize,
    credit_ns: u64,
    until_ns: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { credit_ns: MOST_CREDIT_NS, ..Self::default() }
    }

    /// A reading was taken; how long no other should follow.
    ///
    /// A reading during which the thread lost its core takes as long as the others had it. So what counts as the cost
    /// is the median of the last ones.
    pub(super) fn spend(&mut self, began_ns: u64, ended_ns: u64) -> u64 {
        let slot = self.readings % self.costs.len();
        self.costs[slot] = ended_ns.saturating_sub(began_ns);
        self.readings += 1;
        let mut costs = self.costs;
        let costs = &mut costs[..self.readings.min(self.costs.len())];
        costs.sort_unstable();
        let cost_ns = costs[(costs.len() - 1) / 2];
        let earned_ns = ended_ns.saturating_sub(self.until_ns) / READING_COST;
        self.until_ns = ended_ns;
        self.credit_ns = (self.credit_ns + earned_ns).min(MOST_CREDIT_NS).saturating_sub(cost_ns);
        cost_ns.saturating_sub(self.credit_ns).saturating_mul(READING_COST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_was_interrupted_costs_no_more_than_the_others() {
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let mut now = 0;
        let mut spend = |cost: u64, every: u64| {
            now += every;
            budget.spend(now, now + cost)
        };
        for _ in 0..8 {
            assert!(spend(20_000, 3_000_000) <= 2_000_000, "a hundred times its cost");
        }
        // The thread lost its core during the reading.
        assert_eq!(spend(12_000_000, 3_000_000), 0, "the next pass of 3 ms has its reading");
        assert_eq!(spend(20_000, 15_000_000), 0);
    }

    #[test]
    fn readings_take_a_hundredth_of_the_time_and_pauses_are_saved_up_for_bursts() {
        // Passes of 100 µs, of which a reading takes 20: one in twenty has one of its own.
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let (mut now, mut due, mut readings) = (0, 0, 0);
        for _ in 0..10_000 {
            now += 100_000;
            if now >= due {
                let lasts_ns = budget.spend(now, now + 20_000);
                now += 20_000;
                due = now + lasts_ns;
                readings += 1;
            }
        }
        assert!((450..=550).contains(&readings), "{readings}");
        // Bursts of five such passes with pauses of 100 ms: each begin of a burst and each pass has one.
        let mut budget = Budget { credit_ns: 0, ..Budget::new() };
        let (mut now, mut due, mut readings) = (0, 0, 0);
        for burst in 0..100 {
            now += 100_000_000;
            for pass in 0..5 {
                for at in [now, now + 100_000] {
                    // After the begin of the burst, passes follow each other.
                    if (at == now) <= (pass == 0) && at >= due {
                        due = at + budget.spend(at, at + 20_000);
                        readings += u32::from(burst > 0);
                    }
                }
                now += 120_000;
            }
        }
        assert_eq!(readings, 99 * 6);
    }
}
