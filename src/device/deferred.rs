//! Deferred bricks: their starts are known when they are issued, their ends only later.

use brickscope_profile::Work;
use brickscope_profile::name::NameIdx;

use crate::recorder::Standing;

/// Bricks that were issued and are not settled yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// In the order of issue. Starts are readings of the clock.
    pub(crate) issued: Vec<(NameIdx, u64, Work)>,
    /// The state of the issuing thread when the first of them was issued.
    pub(crate) since: Option<Standing>,
}

/// Gives each brick the time from its own start to the next one's, and the last one the time to
/// `end`.
///
/// So the durations partition the pass and add up to its measured wall time. If each brick lasted until
/// `end` instead, four bricks of 10 µs would sum to 100 µs of a pass of 40. Bricks are taken in the order of
/// their starts. Those that start after `end` have no time; their number is the second result.
pub(crate) fn partition(
    mut issued: Vec<(NameIdx, u64, Work)>,
    end: u64,
) -> (Vec<(NameIdx, u64, u64, Work)>, u64) {
    issued.sort_by_key(|&(_, start, _)| start);
    let timed = issued.partition_point(|&(_, start, _)| start <= end);
    let late = (issued.len() - timed) as u64;
    issued.truncate(timed);
    let ends: Vec<u64> = issued.iter().skip(1).map(|&(_, start, _)| start).chain([end]).collect();
    let settled = issued
        .into_iter()
        .zip(ends)
        .map(|((name, start, work), end)| (name, start, end - start, work))
        .collect();
    (settled, late)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn deferred_durations_add_up_to_the_wall(gaps in prop::collection::vec(0u64..1_000_000, 1..200)) {
            let starts = gaps.iter().scan(5, |at, gap| {
                let start = *at;
                *at += gap;
                Some((0, start, Work::default()))
            });
            let end = 5 + gaps.iter().sum::<u64>();
            let (settled, late) = partition(starts.collect(), end);
            let durations: Vec<u64> = settled.iter().map(|s| s.2).collect();
            prop_assert_eq!(durations, gaps);
            prop_assert_eq!(late, 0);
        }
    }

    #[test]
    fn a_brick_that_starts_after_the_end_has_no_time_rather_than_none_of_it() {
        let work = Work::default();
        let (settled, late) = partition(vec![(0, 10, work), (1, 70, work)], 50);
        assert_eq!(settled, [(0, 10, 40, work)]);
        assert_eq!(late, 1);
    }
}
