use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::brick::Phase;
use crate::keep::Limits;

/// So many passes wait until it is known what they were in.
const WAITING: usize = 8;

fn offer(serial: u64, bytes: usize) -> Offer {
    Offer { serial, of: 0, phase: Phase::Decode, tokens: 1, slow_ns: 1, bytes }
}

fn when() -> When {
    "token>1ms".parse().expect("a condition")
}

/// Of each pass its bytes, and of some how many passes before it were waited for, and how long.
type Passes = Vec<(usize, Option<(u64, u64)>)>;

fn passes() -> impl Strategy<Value = Passes> {
    let came = prop::option::weighted(0.2, (0_u64..4, 2_u64..9));
    prop::collection::vec((100_usize..2_000, came), 0..200)
}

/// What was kept, what was given back, and the events: the passes of each, and those beside it that waited with them.
#[derive(Default)]
struct Was {
    held: Vec<u64>,
    others: Vec<u64>,
    /// From its first pass to the last one, with neighbours, and how long it took.
    events: Vec<(u64, u64, u64)>,
    floor_ns: Option<u64>,
    fired: BTreeMap<u32, Fired>,
}

fn run(passes: &Passes, limit: usize) -> Was {
    let mut was = Was::default();
    let mut held = Held::new(when(), limit);
    let mut waiting: VecDeque<Offer> = VecDeque::new();
    for (serial, &(bytes, came)) in (0_u64..).zip(passes) {
        if let Some((before, slow_ns)) = came {
            let oldest = waiting.front().map_or(serial, |of| of.serial);
            let first = serial.saturating_sub(before).max(oldest);
            held.came(Came { of: 0, first, last: serial, slow_ns, count: 1 });
            let from = first.saturating_sub(Held::<u64>::BESIDE).max(oldest);
            was.events.push((from, serial + Held::<u64>::BESIDE, slow_ns));
        }
        waiting.push_back(offer(serial, bytes));
        if waiting.len() > WAITING
            && let Some(of) = waiting.pop_front()
        {
            held.add(of, of.serial, |_, serial| was.others.push(serial));
            assert!(held.bytes() <= limit + (WAITING + 1) * Held::<u64>::EVENT);
        }
    }
    for of in waiting {
        held.add(of, of.serial, |_, serial| was.others.push(serial));
    }
    was.floor_ns = held.floor_ns;
    let (mut kept, mut chosen) = (Vec::new(), Vec::new());
    was.fired = held.finish(&mut kept, &mut chosen);
    was.held = kept.iter().map(|(_, serial)| *serial).collect();
    let around: Vec<u64> = chosen.iter().flat_map(|of| of.around.clone()).collect();
    assert_eq!(around, was.held, "what was chosen is what is there");
    was
}

proptest! {
    #[test]
    fn what_took_longest_is_whole_and_all_others_are_given_back_once(
        passes in passes(),
        limit in 0_usize..60_000,
    ) {
        let was = run(&passes, limit);
        let mut all: Vec<u64> = was.held.iter().chain(&was.others).copied().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..passes.len() as u64).collect::<Vec<_>>());
        prop_assert!(was.held.windows(2).all(|pair| pair[0] < pair[1]));
        // Each that took longer than what was given up is there, with its neighbours, and nothing else is.
        let is_whole = |slow_ns: u64| was.floor_ns.is_none_or(|floor| slow_ns > floor);
        let whole = was.events.iter().filter(|(.., slow_ns)| is_whole(*slow_ns));
        let wanted: BTreeSet<u64> = whole
            .clone()
            .flat_map(|&(from, to, _)| from..=to)
            .filter(|serial| *serial < passes.len() as u64)
            .collect();
        let held: BTreeSet<u64> = was.held.iter().copied().collect();
        prop_assert_eq!(held, wanted);
        let (fired, n) = (was.events.len() as u64, whole.count() as u64);
        let counted = was.fired.get(&0).copied().unwrap_or(Fired::none(when()));
        let expected = Fired { fired, whole: n, no_room: fired - n, ..Fired::none(when()) };
        prop_assert_eq!(counted, expected);
        prop_assert_eq!(counted.check(), Ok(()));
    }
}

/// The slowest of three has room, with two passes before it and after it.
#[test]
fn an_event_has_its_neighbours() {
    let mut passes: Passes = vec![(100, None); 60];
    for (serial, before, slow_ns) in [(10, 0, 5), (30, 3, 9), (50, 0, 5)] {
        passes[serial].1 = Some((before, slow_ns));
    }
    let each = 100 + Keeper::<u64>::EACH;
    let was = run(&passes, 8 * each + 2 * Held::<u64>::EVENT);
    assert_eq!(was.held, [25, 26, 27, 28, 29, 30, 31, 32]);
    assert_eq!(was.fired[&0].line(), "3 tokens took over 1 ms; 1 is kept whole, no room for 2");
    let was = run(&passes, 1 << 20);
    assert_eq!(was.held.len(), 5 + 8 + 5);
    assert_eq!(was.fired[&0].line(), "3 tokens took over 1 ms; 3 are kept whole");
}

#[test]
fn what_comes_too_late_is_counted_and_holds_nothing() {
    let mut held = Held::new(when(), 1 << 20);
    let mut others = 0;
    (0..10).for_each(|serial| held.add(offer(serial, 100), (), |_, ()| others += 1));
    held.came(Came { of: 3, first: 9, last: 12, slow_ns: 7, count: 2 });
    held.came_apart(3, 1);
    (10..20).for_each(|serial| held.add(offer(serial, 100), (), |_, ()| others += 1));
    let (mut kept, mut chosen) = (Vec::new(), Vec::new());
    let fired = held.finish(&mut kept, &mut chosen);
    assert_eq!((others, kept.len(), chosen.len()), (20, 0, 0));
    assert_eq!(fired[&3], Fired { fired: 3, apart: 3, ..Fired::none(when()) });
}

/// Each second pass is added after the one that came after it.
#[test]
fn passes_that_come_in_another_order_are_held_too() {
    let mut held = Held::new(when(), 1 << 20);
    held.came(Came { of: 0, first: 4, last: 6, slow_ns: 7, count: 1 });
    let mut others = Vec::new();
    for serial in [1, 0, 3, 2, 5, 4, 7, 6, 9, 8] {
        held.add(offer(serial, 100), (), |offer, ()| others.push(offer.serial));
    }
    assert_eq!(others, [1, 0, 9]);
    let (mut kept, mut chosen) = (Vec::new(), Vec::new());
    let fired = held.finish(&mut kept, &mut chosen);
    assert_eq!(chosen[0].around, [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((fired[&0].fired, fired[&0].whole), (1, 1));
}

/// What is held stands for itself beside what a keeper has.
#[test]
fn held_passes_and_a_keepers_are_all_there_are() {
    let (limit, limits) = Limits { slowest: 90_000, sampled: 30_000 }.with_held();
    assert_eq!((limit, limits), (60_000, Limits { slowest: 30_000, sampled: 30_000 }));
    let mut held = Held::new(when(), limit);
    let mut keeper = Keeper::new(limits);
    for serial in 0..5_000 {
        if serial % 500 == 499 {
            held.came(Came { of: 0, first: serial, last: serial, slow_ns: serial, count: 1 });
        }
        let slow_ns = 1_000 + serial % 7;
        held.add(Offer { slow_ns, ..offer(serial, 100) }, (), |offer, ()| keeper.add(offer, ()));
    }
    let (mut kept, mut chosen) = keeper.finish();
    let fired = held.finish(&mut kept, &mut chosen);
    assert_eq!(fired[&0].line(), "10 tokens took over 1 ms; 10 are kept whole");
    let [of] = &chosen[..] else { panic!("{chosen:?}") };
    // None waited, so there are no neighbours before.
    assert_eq!(of.around.len(), 10 * 3 - 2, "the last one has none after it");
    let sampled: u64 = of.samples.iter().map(|(_, _, seen, _)| seen).sum();
    assert_eq!(of.slowest.len() as u64 + of.around.len() as u64 + sampled, 5_000);
    let listed = of.samples.iter().map(|(.., serials)| serials.len()).sum::<usize>();
    assert_eq!(kept.len(), of.slowest.len() + of.around.len() + listed);
    assert!(kept.windows(2).all(|pair| pair[0].0.serial < pair[1].0.serial));
}

/// Whether a pass counts may be judged after it is known that a first token waited for it.
#[test]
fn a_first_token_whose_passes_are_not_all_added_is_counted_apart() {
    let when = "ttft>1ms".parse().expect("a condition");
    let mut held = Held::new(when, 1 << 20);
    let came = |first, last, slow_ns, count| Came { of: 0, first, last, slow_ns, count };
    held.came(came(2, 4, 90, 1));
    held.came(came(12, 14, 80, 1));
    // Two that waited for the same, and as long; and one of which the first passes are gone.
    held.came(came(22, 24, 70, 1));
    held.came(came(22, 24, 70, 1));
    held.came_apart(0, 1);
    held.came(came(32, 34, 60, 0));
    let mut others = Vec::new();
    for serial in (0..40).filter(|serial| *serial != 13) {
        held.add(offer(serial, 100), serial, |_, serial| others.push(serial));
        // Judged late.
        if serial == 30 {
            held.add(offer(13, 100), 13, |_, serial| others.push(serial));
        }
    }
    let mut lacks = held.clone();
    lacks.came(came(42, 44, 50, 1));
    lacks.add(offer(43, 100), 43, |_, serial| others.push(serial));
    let (mut kept, mut chosen) = (Vec::new(), Vec::new());
    let fired = held.finish(&mut kept, &mut chosen);
    assert_eq!(fired[&0], Fired { fired: 5, whole: 4, apart: 1, ..Fired::none(when) });
    let there: Vec<u64> = kept.iter().map(|(_, serial)| *serial).collect();
    let around = |last: u64| last.saturating_sub(4)..=last + 2;
    let expected = [4, 14, 24, 34].into_iter().flat_map(around);
    assert_eq!(there, expected.collect::<Vec<_>>());
    assert_eq!(others.len(), 40 - there.len());
    let fired = lacks.finish(&mut Vec::new(), &mut Vec::new());
    assert_eq!(fired[&0], Fired { fired: 6, whole: 4, apart: 2, ..Fired::none(when) });
}
