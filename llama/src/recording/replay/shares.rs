//! What each thread did of a pass.

use brickscope::{BrickKey, Share};

use crate::recording::events::ThreadShares;

/// What a thread did of each brick of a graph: nodes that follow each other are one share. `ns` is the nanoseconds of so
/// many counts.
pub(crate) fn shares_of(
    bricks: impl Iterator<Item = Option<BrickKey>>,
    shares: &ThreadShares,
    ns: impl Fn(u64) -> u64,
) -> Vec<(BrickKey, Share)> {
    // Summed as counts, so that rounding adds nothing.
    let mut sums: Vec<(BrickKey, u64, [u64; 2])> = Vec::new();
    let mut before = None;
    for (brick, [worked, waited]) in bricks.zip(&shares.nodes) {
        let Some(key) = brick else { continue };
        let at = sums.iter().position(|sum| sum.0 == key).unwrap_or_else(|| {
            sums.push((key, 0, [0; 2]));
            sums.len() - 1
        });
        sums[at].1 += u64::from(before != Some(key));
        for (sum, counts) in sums[at].2.iter_mut().zip([*worked, *waited]) {
            *sum = sum.saturating_add(counts);
        }
        before = brick;
    }
    let share = |(key, count, [worked, waited]): (BrickKey, u64, [u64; 2])| {
        (key, Share { count, worked_ns: ns(worked), waited_ns: ns(waited) })
    };
    sums.into_iter().map(share).collect()
}
