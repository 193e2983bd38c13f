//! Passes that are only there for the requests that waited for them, of a recording of which not all is kept.

use std::collections::HashMap;

use brickscope::Part;

use super::Unseen;
use crate::recording::groups::Group;
use crate::recording::part::{KeptOnes, RanPass};
use crate::recording::passes::Found;

/// A pass by its thread, and when it began, in counts.
type Key = (u16, u64);

/// The passes that ran beside requests that are kept.
pub(super) struct RanPasses<'k> {
    all: Vec<&'k RanPass>,
    places: HashMap<Key, usize>,
    /// Of each, whether it is one of the group, and whether it is there with its bricks.
    is_own: Vec<bool>,
    is_there: Vec<bool>,
}

impl<'k> RanPasses<'k> {
    pub(super) fn of(kept: &'k KeptOnes, group: &Group) -> Self {
        let all: Vec<&RanPass> = kept.passes.iter().collect();
        let places = all.iter().enumerate().map(|(place, of)| ((of.thread, of.begin), place));
        let places = places.collect();
        let is_own = all.iter().map(|of| group.ids().contains(&of.id)).collect();
        let is_there = vec![false; all.len()];
        Self { all, places, is_own, is_there }
    }

    /// For whom a pass was that is there with its bricks.
    pub(super) fn parts_of(&mut self, found: &Found<'_>) -> Vec<Part> {
        let key = (found.pass.of_thread, found.pass.begin);
        let Some(&place) = self.places.get(&key) else { return Vec::new() };
        self.is_there[place] = true;
        self.all[place].parts.clone()
    }

    /// The others. Of those of other contexts nobody who is known here had any.
    pub(super) fn others(self) -> impl Iterator<Item = Unseen> {
        let Self { all, is_own, is_there, .. } = self;
        let those = all.into_iter().zip(is_own).zip(is_there).filter(|(_, is_there)| !is_there);
        those.map(|((of, is_own), _)| {
            let [start_ns, end_ns] = of.times;
            let wall_ns = end_ns.saturating_sub(start_ns);
            let parts = if is_own { of.parts.clone() } else { Vec::new() };
            Unseen { start_ns, wall_ns, position: of.position, parts }
        })
    }
}
