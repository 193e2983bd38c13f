//! Which process of one side ran beside which of the other.

use brickscope_profile::stats::SplitMix64;
use serde::{Deserialize, Serialize};

use super::{Process, Side};

/// A process's place in an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// What all processes in this order have in common: the name of a set, or a boot.
    pub among: String,
    /// Its place in that order.
    pub place: u64,
}

impl Turn {
    /// The places of a process that is one of a set, and of those of one boot one that ended at a time in RFC 3339; what
    /// isn't known is left out.
    pub(super) fn stated(set: Option<(&str, u32)>, boot: Option<&str>, ended: &str) -> Vec<Self> {
        let in_set = set.map(|(name, process)| (format!("set {name}"), u64::from(process)));
        // Digits of RFC 3339 in UTC sort as the times do. Most are whole seconds, so processes that are shorter have no
        // order.
        let digits = ended.chars().filter(char::is_ascii_digit);
        let stamp: String = digits.chain(std::iter::repeat('0')).take(17).collect();
        let in_boot = boot.and_then(|boot| Some((format!("boot {boot}"), stamp.parse().ok()?)));
        in_set.into_iter().chain(in_boot).map(|(among, place)| Self { among, place }).collect()
    }
}

/// For each of some pairs of processes, whether side A runs first: at random, each side first equally often, or one
/// time more of an odd number.
///
/// In a regular order, A B B A, a machine that changes its speed every two processes slows the same side each time.
/// A random order has no such rhythm. Each balanced order is as likely as any other, so a difference of the sides can
/// be compared with those that all of them would give. The same seed gives the same order.
#[must_use]
pub fn turns_at_random(pairs: usize, seed: u64) -> Vec<bool> {
    let mut random = SplitMix64(seed);
    let odd = usize::from(random.bits() & 1 == 1);
    let mut order: Vec<bool> = (0..pairs).map(|pair| (pair + odd).is_multiple_of(2)).collect();
    random.shuffle(&mut order);
    order
}

/// Which of some pairs to compare so that either side went first equally often, or one time more: all whose order is the
/// rarer one, and as many of the others at random. `a_first` says of each pair which order it had.
///
/// Where a fair coin drew each order, every balanced order of these is as likely as any other, as of [`turns_at_random`].
#[must_use]
pub fn evened(a_first: &[bool], seed: u64) -> Vec<usize> {
    let mut random = SplitMix64(seed);
    let [mut a, mut b] = [true, false].map(|which| {
        let is_it = |&pair: &usize| a_first[pair] == which;
        let mut pairs: Vec<usize> = (0..a_first.len()).filter(is_it).collect();
        random.shuffle(&mut pairs);
        pairs
    });
    let most = a.len().min(b.len()) + 1;
    a.truncate(most);
    b.truncate(most);
    a.append(&mut b);
    a.sort_unstable();
    a
}

/// Whether processes were compared with their neighbours of the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Pairing {
    /// They ran in turns: these processes of A and B ran beside each other.
    Paired {
        /// Their indices.
        pairs: Vec<(usize, usize)>,
    },
    /// The sides count as independent.
    Unpaired {
        /// Why.
        reason: String,
    },
}

/// How the processes ran.
#[derive(Debug, PartialEq)]
pub(super) struct Order {
    pub(super) pairing: Pairing,
    /// Of each pair, whether A went first; empty without pairs.
    pub(super) a_first: Vec<bool>,
}

/// The processes in the order in which they ran, two by two, if each two are one of either side and both
/// sides went first equally often, as in A B B A.
pub(super) fn order(a: &Side, b: &Side) -> Order {
    let unpaired = |reason: &str| {
        let pairing = Pairing::Unpaired { reason: reason.to_owned() };
        Order { pairing, a_first: Vec::new() }
    };
    if a.processes.len() != b.processes.len() {
        return unpaired("the sides have different numbers of processes");
    }
    let all = || a.processes.iter().chain(&b.processes);
    let place = |process: &Process, among: &str| {
        process.turns.iter().find(|turn| turn.among == among).map(|turn| turn.place)
    };
    let orders = a.processes.first().map_or(&[][..], |process| &process.turns);
    let common = orders.iter().find(|turn| all().all(|p| place(p, &turn.among).is_some()));
    let Some(Turn { among, .. }) = common else {
        return unpaired(match all().any(|process| process.turns.is_empty()) {
            true => "it is unknown whether they ran in turns, since not all state a set or a boot",
            false => "they have no set and no boot in common",
        });
    };
    let mut order = Vec::new();
    for (is_b, side) in [(false, a), (true, b)] {
        for (index, process) in side.processes.iter().enumerate() {
            order.push((place(process, among), is_b, index));
        }
    }
    order.sort_unstable();
    // Where one side was over before the other began, it doesn't matter which of its own processes came first.
    let changes: Vec<bool> = order
        .windows(2)
        .filter(|two| two[0].1 != two[1].1)
        .map(|two| two[0].0 != two[1].0)
        .collect();
    if changes == [true] && order.len() > 2 {
        return unpaired("the sides did not run in turns");
    }
    if order.windows(2).any(|two| two[0].0 == two[1].0) {
        return unpaired("the order in which they ran is unknown");
    }
    let mut pairs = Vec::with_capacity(a.processes.len());
    let mut a_first = Vec::with_capacity(a.processes.len());
    for two in order.chunks_exact(2) {
        let ((_, is_b, first), (_, is_b_after, second)) = (two[0], two[1]);
        if is_b == is_b_after {
            return unpaired("the sides did not run in turns");
        }
        pairs.push(if is_b { (second, first) } else { (first, second) });
        a_first.push(!is_b);
    }
    // Only then does the cost of going first or second drop out.
    let firsts = a_first.iter().filter(|first| **first).count();
    if pairs.len() > 1 && !is_balanced(firsts, pairs.len()) {
        return unpaired("the same side nearly always went first");
    }
    Order { pairing: Pairing::Paired { pairs }, a_first }
}

/// Whether of so many pairs in so many A went first as often as B, or one time more or less.
pub(super) fn is_balanced(a_first: usize, pairs: usize) -> bool {
    (2 * a_first).abs_diff(pairs) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sides whose processes ran in the order of the letters.
    fn check(order: &str, expected: Result<&[(usize, usize)], &str>) {
        let side = |letter: char| Side {
            name: letter.to_string(),
            processes: order
                .chars()
                .zip(7..)
                .filter(|(c, _)| *c == letter)
                .map(|(_, place)| Process {
                    turns: vec![Turn { among: "set".to_owned(), place }],
                    ..Process::default()
                })
                .collect(),
        };
        let Order { pairing, a_first } = super::order(&side('A'), &side('B'));
        match (pairing, expected) {
            (Pairing::Paired { pairs }, Ok(expected)) => {
                assert_eq!(pairs, expected, "{order}");
                let firsts = order.chars().step_by(2).map(|first| first == 'A');
                assert_eq!(a_first, firsts.collect::<Vec<bool>>(), "{order}");
            }
            (Pairing::Unpaired { reason }, Err(expected)) => {
                assert_eq!((reason.as_str(), a_first), (expected, vec![]), "{order}")
            }
            (pairing, _) => panic!("{order}: {pairing:?}"),
        }
    }

    #[test]
    fn neighbours_of_turns_are_pairs() {
        check("AB", Ok(&[(0, 0)]));
        check("ABBA", Ok(&[(0, 0), (1, 1)]));
        check("ABBAAB", Ok(&[(0, 0), (1, 1), (2, 2)]));
        check("BAABBAAB", Ok(&[(0, 0), (1, 1), (2, 2), (3, 3)]));
        check("AABB", Err("the sides did not run in turns"));
        check("ABABABAB", Err("the same side nearly always went first"));
        check("ABA", Err("the sides have different numbers of processes"));
    }

    #[test]
    fn a_random_order_lets_each_side_go_first_equally_often() {
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..100 {
            for pairs in [5, 6, 20] {
                let order = turns_at_random(pairs, seed);
                let first = order.iter().filter(|&&is_a| is_a).count();
                assert!(order.len() == pairs && (2 * first).abs_diff(pairs) <= 1, "{order:?}");
            }
            let letters = turns_at_random(6, seed).into_iter().map(|a| if a { "AB" } else { "BA" });
            let letters: String = letters.collect();
            let ran: Vec<char> = letters.chars().collect();
            let index = |i: usize| ran[..i].iter().filter(|c| **c == ran[i]).count();
            let pairs: Vec<(usize, usize)> =
                (0..6).map(|i| (index(2 * i), index(2 * i + 1))).collect();
            check(&letters, Ok(&pairs));
            orders.insert(letters);
        }
        // Of 20 that are possible.
        assert!(orders.len() >= 15, "{orders:?}");
    }

    #[test]
    fn of_pairs_that_a_coin_ordered_as_many_of_either_order_are_kept() {
        for (a_first, kept) in [
            (&[][..], 0),
            (&[true], 1),
            (&[false, false, false], 1),
            (&[true, false, true, true, true], 3),
            (&[true, false, false, true], 4),
        ] {
            let pairs = evened(a_first, 3);
            assert_eq!(pairs.len(), kept, "{a_first:?}");
            assert!(pairs.is_sorted() && pairs.iter().all(|&pair| pair < a_first.len()));
            let firsts = pairs.iter().filter(|&&pair| a_first[pair]).count();
            assert!(is_balanced(firsts, kept), "{a_first:?}: {pairs:?}");
        }
        let choices = (0..50).map(|seed| evened(&[true, false, true, true, true], seed));
        assert!(choices.collect::<std::collections::BTreeSet<_>>().len() > 3);
    }

    #[test]
    fn what_can_not_be_put_in_an_order_is_unpaired() {
        let turn = |among: &str, place| Turn { among: among.to_owned(), place };
        let process = |turns| Process { turns, ..Process::default() };
        let side = |process| Side { name: String::new(), processes: vec![process] };
        let reason = |a, b| match order(&side(a), &side(b)).pairing {
            Pairing::Unpaired { reason } => reason,
            paired => panic!("{paired:?}"),
        };
        let (x, y) = (|| vec![turn("x", 1)], || vec![turn("y", 2)]);
        assert!(reason(process(x()), process(y())).contains("no set and no boot in common"));
        assert!(reason(process(x()), process(x())).contains("the order in which they ran"));
        assert!(reason(process(x()), process(vec![])).contains("it is unknown whether"));
        assert!(reason(process(vec![]), process(vec![])).contains("it is unknown whether"));
        // Of receipts of one second it is known that none of B ran before the last of A.
        let places = |places: &[u64]| Side {
            name: String::new(),
            processes: places.iter().map(|&place| process(vec![turn("boot", place)])).collect(),
        };
        let why = |a: &[u64], b: &[u64]| match order(&places(a), &places(b)).pairing {
            Pairing::Unpaired { reason } => reason,
            paired => panic!("{paired:?}"),
        };
        for (a, b) in [([1, 2, 3], [4, 5, 5]), ([5, 5, 6], [1, 1, 1])] {
            assert_eq!(why(&a, &b), "the sides did not run in turns", "{a:?} {b:?}");
        }
        assert!(why(&[1, 2, 3], &[3, 4, 5]).contains("the order in which they ran"));
        assert!(why(&[1, 3, 3], &[2, 4, 5]).contains("the order in which they ran"));
        // The second order is one that both are in.
        let [a, b] = [["x", "boot"], ["y", "boot"]].map(|among| {
            side(process(among.iter().zip(1..).map(|(among, i)| turn(among, i)).collect()))
        });
        let mut b = b;
        b.processes[0].turns[1].place = 9;
        assert_eq!(order(&a, &b).pairing, Pairing::Paired { pairs: vec![(0, 0)] });
    }
}
