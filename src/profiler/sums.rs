//! What each brick did, on the host and on devices.

use brickscope_profile::stats::by_category;
use brickscope_profile::{BrickCategory, BrickStats, CategoryStats};

/// What each brick did: the same bricks on both sides.
pub(super) struct BrickSums {
    pub(super) host: Vec<BrickStats>,
    pub(super) devices: Vec<BrickStats>,
    pub(super) categories: Vec<BrickCategory>,
}

impl BrickSums {
    /// The side that totals are of, and the other one.
    pub(super) fn sides(&self) -> [&[BrickStats]; 2] {
        let host_has_any = self.host.iter().any(|stats| stats.count > 0);
        if host_has_any { [&self.host, &self.devices] } else { [&self.devices, &self.host] }
    }

    /// All bricks of the side that totals are of.
    pub(super) fn total(&self) -> BrickStats {
        let mut total = BrickStats::new("");
        self.sides()[0].iter().for_each(|stats| total.merge(stats));
        total
    }

    /// Both sides in one.
    pub(super) fn together(self) -> Vec<BrickStats> {
        let mut all = self.host;
        all.iter_mut().zip(&self.devices).for_each(|(stats, device)| stats.merge(device));
        all
    }

    /// Both sides, by category.
    pub(super) fn by_category(self) -> [CategoryStats; BrickCategory::COUNT] {
        let categories = self.categories.clone();
        by_category(categories.into_iter().zip(&self.together()))
    }
}
