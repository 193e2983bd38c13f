//! Places for the labels of a plot, so that none hides another.

/// A rectangle: its middle, and half of its width and of its height.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) middle: [f64; 2],
    pub(super) half: [f64; 2],
}

impl Area {
    fn meets(&self, other: &Self) -> bool {
        (0..2).all(|axis| self.apart(other, axis) < self.half[axis] + other.half[axis])
    }

    fn holds(&self, other: &Self) -> bool {
        (0..2).all(|axis| self.apart(other, axis) + other.half[axis] <= self.half[axis])
    }

    fn apart(&self, other: &Self, axis: usize) -> f64 {
        (self.middle[axis] - other.middle[axis]).abs()
    }
}

/// The room of a plot, and what of it is taken.
pub(super) struct Room {
    whole: Area,
    taken: Vec<Area>,
}

/// How far around a point a label is looked a place for: so many circles of so many places.
const CIRCLES: u32 = 24;
const PLACES: u32 = 16;

impl Room {
    pub(super) fn new(whole: Area) -> Self {
        Self { whole, taken: Vec::new() }
    }

    pub(super) fn take(&mut self, area: Area) {
        self.taken.push(area);
    }

    /// Takes the first free one of some places for what is so large; if none is free, the first.
    pub(super) fn first_free(
        &mut self,
        half: [f64; 2],
        places: impl IntoIterator<Item = [f64; 2]>,
    ) -> Option<[f64; 2]> {
        let mut first = None;
        for middle in places {
            first = first.or(Some(middle));
            let area = Area { middle, half };
            if self.whole.holds(&area) && !self.taken.iter().any(|taken| taken.meets(&area)) {
                self.take(area);
                return Some(middle);
            }
        }
        if let Some(middle) = first {
            self.take(Area { middle, half });
        }
        first
    }

    /// Takes the place for what is so large that is nearest to a point, but not on it.
    pub(super) fn near(&mut self, half: [f64; 2], at: [f64; 2]) -> [f64; 2] {
        let reach = half[0] + half[1];
        let around = (0..CIRCLES).flat_map(|circle| {
            let radius = reach * (0.75 + 0.4 * f64::from(circle));
            (0..PLACES).map(move |nth| {
                // To the right first, then alternately above and below.
                let turn = if nth % 2 == 0 { nth / 2 } else { PLACES - nth.div_ceil(2) };
                let angle = std::f64::consts::TAU * f64::from(turn) / f64::from(PLACES);
                [at[0] + radius * angle.cos(), at[1] - radius * angle.sin()]
            })
        });
        self.first_free(half, around).unwrap_or(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_one_place_lie_beside_each_other_and_within_the_plot() {
        let whole = Area { middle: [300.0, 150.0], half: [300.0, 150.0] };
        let mut room = Room::new(whole);
        let half = [13.5, 13.5];
        // In a corner, where most places around are outside.
        let places: Vec<Area> =
            (0..16).map(|_| Area { middle: room.near(half, [590.0, 10.0]), half }).collect();
        for (nth, area) in places.iter().enumerate() {
            assert!(whole.holds(area), "{area:?}");
            assert!(!places[..nth].iter().any(|other| other.meets(area)), "{nth}: {area:?}");
        }
    }

    #[test]
    fn where_no_place_is_free_it_is_the_first() {
        let mut room = Room::new(Area { middle: [5.0, 5.0], half: [5.0, 5.0] });
        room.take(Area { middle: [5.0, 5.0], half: [5.0, 5.0] });
        assert_eq!(room.first_free([2.0, 2.0], [[4.0, 4.0], [6.0, 6.0]]), Some([4.0, 4.0]));
        assert_eq!(room.first_free([2.0, 2.0], []), None);
        // What is no number is nowhere, and no panic.
        assert!(room.near([2.0, 2.0], [f64::NAN, 1.0])[0].is_nan());
    }
}
