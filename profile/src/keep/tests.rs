use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn offer(serial: u64, slow_ns: u64, tokens: u64, bytes: usize) -> Offer {
    let phase = if tokens == 1 { Phase::Decode } else { Phase::Prefill };
    Offer { serial, of: 0, phase, tokens, slow_ns, bytes }
}

/// Each pass once: those of the tail, and what samples stand for.
fn counted(chosen: &[Chosen]) -> u64 {
    let of_one = |of: &Chosen| {
        of.slowest.len() as u64 + of.samples.iter().map(|(_, _, seen, _)| seen).sum::<u64>()
    };
    chosen.iter().map(of_one).sum()
}

fn passes() -> impl Strategy<Value = Vec<(u64, u64, usize, u32)>> {
    let slow_ns = prop_oneof![9 => 1_000_u64..2_000, 1 => 2_000_u64..1_000_000];
    let tokens = prop_oneof![4 => Just(1_u64), 1 => 2_u64..5_000];
    prop::collection::vec((slow_ns, tokens, 100_usize..3_000, 0_u32..2), 0..400)
}

proptest! {
    #[test]
    fn what_is_kept_stands_for_each_pass_once_and_has_the_slowest(
        passes in passes(),
        slowest in 0_usize..200_000,
        sampled in 0_usize..100_000,
    ) {
        let limits = Limits { slowest, sampled };
        let mut keeper = Keeper::new(limits);
        let mut classes = BTreeSet::new();
        for (serial, &(slow_ns, tokens, bytes, of)) in (0_u64..).zip(&passes) {
            let offer = Offer { of, ..offer(serial, slow_ns, tokens, bytes) };
            classes.insert(offer.class());
            keeper.add(offer, serial);
            // The last one of each class stays.
            let most = slowest + sampled + classes.len() * (3_000 + Keeper::<u64>::EACH);
            prop_assert!(keeper.bytes() <= most, "{} of {most}", keeper.bytes());
        }
        let (offered, dropped) = (keeper.offered(), keeper.dropped());
        prop_assert_eq!(offered, passes.len() as u64);
        let (all, chosen) = keeper.finish();
        prop_assert_eq!(all.len() as u64, offered - dropped);
        prop_assert!(all.iter().all(|(offer, item)| offer.serial == *item));
        prop_assert!(all.windows(2).all(|pair| pair[0].0.serial < pair[1].0.serial));
        prop_assert_eq!(counted(&chosen), offered);
        let kept: BTreeSet<u64> = all.iter().map(|(offer, _)| offer.serial).collect();
        let mut told = BTreeSet::new();
        for of in &chosen {
            told.extend(&of.slowest);
            for (_, _, seen, serials) in &of.samples {
                prop_assert!(!serials.is_empty() && serials.len() as u64 <= *seen);
                told.extend(serials);
            }
        }
        prop_assert_eq!(&told, &kept);
        let in_tail: BTreeSet<u64> =
            chosen.iter().flat_map(|of| of.slowest.iter().copied()).collect();
        for (serial, &(slow_ns, ..)) in (0_u64..).zip(&passes) {
            let floor = chosen.first().and_then(|of| of.slower_than_ns);
            prop_assert_eq!(in_tail.contains(&serial), floor.is_none_or(|floor| slow_ns > floor));
        }
    }

    #[test]
    fn sums_are_those_of_all(
        times in prop::collection::vec(0_u64..1 << 40, 0..500),
        at in 0_usize..500,
    ) {
        let mut all = Times::default();
        times.iter().for_each(|ns| all.add(*ns));
        prop_assert_eq!(all.count, times.len() as u64);
        prop_assert_eq!(all.total_ns, times.iter().sum::<u64>());
        prop_assert_eq!(all.max_ns, times.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(all.histogram.count(), all.count);
        let (left, right) = times.split_at(at.min(times.len()));
        let [mut left, right] = [left, right].map(|part| {
            let mut sum = Times::default();
            part.iter().for_each(|ns| sum.add(*ns));
            sum
        });
        left.merge(&right);
        prop_assert_eq!(left, all);
    }
}

#[test]
fn a_run_that_fits_is_kept_whole() {
    let mut keeper = Keeper::new(Limits { slowest: 1 << 20, sampled: 0 });
    (0..1_000).for_each(|serial| keeper.add(offer(serial, serial % 7, 1, 100), serial));
    assert_eq!(keeper.dropped(), 0);
    let (all, chosen) = keeper.finish();
    assert_eq!(all.len(), 1_000);
    assert!(chosen[0].samples.is_empty() && chosen[0].slower_than_ns.is_none());
}

/// Of passes that are alike in all but their place, each is as likely to be in a sample, whenever it came.
#[test]
fn a_sample_is_of_the_begin_as_of_the_end() {
    let mut keeper = Keeper::new(Limits { slowest: 0, sampled: 200_000 });
    (0..100_000).for_each(|serial| keeper.add(offer(serial, 1_000, 1, 100), ()));
    let (all, _) = keeper.finish();
    let n = all.len() as f64;
    assert!((800.0..2_000.0).contains(&n), "{n}");
    for quarter in 0..4 {
        let from = quarter * 25_000;
        let within = |(offer, ()): &&(Offer, ())| (from..from + 25_000).contains(&offer.serial);
        let part = all.iter().filter(within).count() as f64 / n;
        // Four standard deviations of a share of a quarter.
        assert!((part - 0.25).abs() < 4.0 * (0.25 * 0.75 / n).sqrt(), "{quarter}: {part}");
    }
}

/// Passes as those of a server with 16 places, of which every thousandth is slow.
fn serve(passes: u64, limits: Limits) {
    let mut keeper = Keeper::new(limits);
    let mut random = SplitMix64(7);
    let (mut walls, mut all_ns, mut most) = (Times::default(), 0_u64, 0);
    let mut slow = 0_usize;
    for serial in 0..passes {
        let is_slow = serial % 1_000 == 999;
        let ns = 20_000_000 + random.bits() % 1_000_000 + u64::from(is_slow) * 300_000_000;
        slow += usize::from(is_slow);
        let tokens = if serial % 50 == 0 { 1 + random.bits() % 2_048 } else { 16 };
        walls.add(ns);
        all_ns += ns;
        // What it would be: readings of a thousand nodes.
        keeper.add(offer(serial, ns, tokens, 16 << 10), ());
        most = most.max(keeper.bytes());
    }
    // Twelve powers of two.
    let limit = limits.slowest + limits.sampled + 24 * ((16 << 10) + Keeper::<()>::EACH);
    assert!(most <= limit, "{most} of {limit}");
    assert_eq!((walls.count, walls.total_ns), (passes, all_ns));
    let (kept, chosen) = keeper.finish();
    assert_eq!(counted(&chosen), passes);
    let room = limits.slowest / ((16 << 10) + Keeper::<()>::EACH);
    let is_slow = |(offer, ()): &&(Offer, ())| offer.slow_ns > 300_000_000;
    let found = kept.iter().filter(is_slow).count();
    // Of those that are as slow as the last one, none is in the tail.
    assert!(found + 8 >= slow.min(room), "{found} of {slow}, with room for {room}");
}

#[test]
fn memory_is_bounded_and_slow_passes_are_all_there() {
    serve(200_000, Limits { slowest: 8 << 20, sampled: 2 << 20 });
}

/// Ten hours at 278 passes a second.
#[test]
fn ten_hours_of_serving_take_no_more_than_64_mib() {
    serve(10_000_000, Limits { slowest: 48 << 20, sampled: 15 << 20 });
}

#[test]
fn a_profile_says_what_its_passes_stand_for() {
    let sample = |of, passes: &[u32]| {
        let phase = Phase::Decode;
        Sample { phase, tokens: 1, of, passes: passes.to_vec() }
    };
    let samples = vec![sample(90, &[1, 4, 5]), sample(5, &[2])];
    let kept = Kept { passes: 97, slowest: 2, samples, ..Kept::default() };
    assert_eq!((kept.check(97), kept.kept()), (Ok(()), 6));
    let weights = kept.weights();
    assert_eq!([1, 4, 5, 2].map(|serial| weights[&serial]), [30.0, 30.0, 30.0, 5.0]);
    assert_eq!(weights.values().sum::<f64>() + 2.0, 97.0);
    assert_eq!(kept.line(), "kept: the 2 slowest of 97 passes, a sample of 4; sums: all");
    // Those around what came true are no sample either.
    let with = Kept { passes: 100, around: 3, ..kept.clone() };
    assert_eq!((with.check(100), with.kept()), (Ok(()), 9));
    let said = "kept: the 2 slowest of 100 passes, 3 around what fired, a sample of 4; sums: all";
    assert_eq!(with.line(), said);
    let wrong = kept.check(98);
    assert!(wrong.is_err_and(|why| why.contains("97 of 97 passes, and the phases have 98")));
    let none = Kept { samples: vec![sample(90, &[])], passes: 90, ..Kept::default() };
    assert_eq!(none.check(90), Err("a sample of 0 passes stands for 90".to_owned()));
}
