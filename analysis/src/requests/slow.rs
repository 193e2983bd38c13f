//! What slow intervals have that others don't.

use std::collections::HashMap;

use super::{Piece, Requests, Until, Waited};

/// How many intervals there must be, so that the slowest of them is told apart from the others.
const FEWEST: usize = 20;
/// Of how many intervals one is slow.
const ONE_OF: usize = 100;

/// The slowest hundredth of some intervals beside the others, piece by piece. With all pieces the difference adds up.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    /// How many are slow.
    pub slow: u64,
    /// How many they are compared with.
    pub others: u64,
    /// The shortest of the slow ones, in nanoseconds.
    pub least_ns: u64,
    /// The mean of the slow ones, in nanoseconds.
    pub slow_ns: f64,
    /// The mean of the others, in nanoseconds.
    pub others_ns: f64,
    /// Each piece that either of them has: its mean in a slow one and in another one, in nanoseconds; first what slow ones have
    /// most more of.
    pub pieces: Vec<(Piece, f64, f64)>,
    /// Whose prompts were processed in slow ones, first who was in most of them.
    pub neighbours: Vec<Neighbour>,
    /// In how many of the slow ones a thread waited for a CPU, whatever else was in them.
    pub waited: Waited,
}

/// A request whose prompt was processed while others waited for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The request: an index into `Profile::requests`.
    pub request: u32,
    /// In how many of the slow intervals its prompt was processed.
    pub in_slow: u64,
    /// The most tokens of its prompt that one of them had.
    pub tokens: u64,
}

impl Slow {
    /// Of the intervals with an end that is wanted. `None` if there are fewer than 20, or if all take as long.
    #[must_use]
    pub fn of(requests: &Requests<'_>, is_wanted: impl Fn(Until) -> bool) -> Option<Self> {
        let wanted = || requests.all_intervals().filter(|interval| is_wanted(interval.until));
        let lengths = requests.lengths().filter(|(until, _)| is_wanted(*until));
        let mut all: Vec<u64> = lengths.map(|(_, ns)| ns).collect();
        if all.len() < FEWEST {
            return None;
        }
        all.sort_unstable();
        if all.first() == all.last() {
            return None;
        }
        let slow = (all.len() / ONE_OF).max(1);
        let least_ns = all[all.len() - slow];
        // As long as the shortest slow one are others, too: only so many of these are slow.
        let mut equals_left = slow - all.iter().filter(|&&ns| ns > least_ns).count();
        let mut sums = [[0.0; Piece::ALL.len()]; 2];
        let mut neighbours: HashMap<u32, Neighbour> = HashMap::new();
        let mut waited = Waited::default();
        for interval in wanted() {
            let is_slow = interval.ns() > least_ns || interval.ns() == least_ns && equals_left > 0;
            if is_slow && interval.ns() == least_ns {
                equals_left -= 1;
            }
            for (sum, ns) in sums[usize::from(!is_slow)].iter_mut().zip(interval.pieces) {
                *sum += ns as f64;
            }
            if is_slow {
                if let Some(waits) = requests.waits(&interval) {
                    waited.add(&interval, &waits);
                }
                for (request, tokens) in requests.prompts_of_others(&interval) {
                    let none = Neighbour { request, in_slow: 0, tokens: 0 };
                    let of = neighbours.entry(request).or_insert(none);
                    of.in_slow += 1;
                    of.tokens = of.tokens.max(tokens);
                }
            }
        }
        let others = all.len() - slow;
        let [mut of_slow, mut of_others] = sums;
        of_slow.iter_mut().for_each(|sum| *sum /= slow as f64);
        of_others.iter_mut().for_each(|sum| *sum /= others as f64);
        let pieces = Piece::ALL.into_iter().map(|piece| {
            let at = piece as usize;
            (piece, of_slow[at], of_others[at])
        });
        let mut pieces: Vec<_> = pieces.filter(|(_, slow, other)| slow + other > 0.0).collect();
        pieces.sort_by(|(_, a, b), (_, c, d)| (c - d).total_cmp(&(a - b)));
        let mut neighbours: Vec<Neighbour> = neighbours.into_values().collect();
        neighbours.sort_by_key(|of| (std::cmp::Reverse((of.in_slow, of.tokens)), of.request));
        Some(Self {
            slow: slow as u64,
            others: others as u64,
            least_ns,
            slow_ns: of_slow.iter().sum(),
            others_ns: of_others.iter().sum(),
            pieces,
            neighbours,
            waited,
        })
    }
}
