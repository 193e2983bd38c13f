//! Which process of one side ran beside which of the other.

use serde::Serialize;

use super::{Process, Side};

/// A process's place in an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What all processes in this order have in common: the name of a set, or a boot.
    pub among: String,
    /// Its place in that order.
    pub place: u64,
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

/// The processes in the order in which they ran, two by two, if each two are one of either side and both
/// sides went first equally often, as in A B B A.
pub(super) fn pairs(a: &Side, b: &Side) -> Pairing {
    let unpaired = |reason: &str| Pairing::Unpaired { reason: reason.to_owned() };
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
        return unpaired("they have no set and no boot in common");
    };
    let mut order = Vec::new();
    for (is_b, side) in [(false, a), (true, b)] {
        for (index, process) in side.processes.iter().enumerate() {
            order.push((place(process, among), is_b, index));
        }
    }
    order.sort_unstable();
    if order.windows(2).any(|two| two[0].0 == two[1].0) {
        return unpaired("the order in which they ran is unknown");
    }
    let mut pairs = Vec::with_capacity(a.processes.len());
    let mut a_first = 0_usize;
    for two in order.chunks_exact(2) {
        match (two[0], two[1]) {
            ((_, false, a), (_, true, b)) => {
                a_first += 1;
                pairs.push((a, b));
            }
            ((_, true, b), (_, false, a)) => pairs.push((a, b)),
            _ => return unpaired("the sides did not run in turns"),
        }
    }
    // Only then does the cost of going first or second drop out.
    if pairs.len() > 1 && (2 * a_first).abs_diff(pairs.len()) > 1 {
        return unpaired("the same side nearly always went first");
    }
    Pairing::Paired { pairs }
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
        match (pairs(&side('A'), &side('B')), expected) {
            (Pairing::Paired { pairs }, Ok(expected)) => assert_eq!(pairs, expected, "{order}"),
            (Pairing::Unpaired { reason }, Err(expected)) => {
                assert_eq!(reason, expected, "{order}")
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
    fn what_can_not_be_put_in_an_order_is_unpaired() {
        let turn = |among: &str, place| Turn { among: among.to_owned(), place };
        let process = |turns| Process { turns, ..Process::default() };
        let side = |process| Side { name: String::new(), processes: vec![process] };
        let reason = |a, b| match pairs(&side(a), &side(b)) {
            Pairing::Unpaired { reason } => reason,
            paired => panic!("{paired:?}"),
        };
        let (x, y) = (|| vec![turn("x", 1)], || vec![turn("y", 2)]);
        assert!(reason(process(x()), process(y())).contains("no set and no boot in common"));
        assert!(reason(process(x()), process(x())).contains("the order in which they ran"));
        assert!(reason(process(x()), process(vec![])).contains("no set and no boot in common"));
        // The second order is one that both are in.
        let [a, b] = [["x", "boot"], ["y", "boot"]].map(|among| {
            side(process(among.iter().zip(1..).map(|(among, i)| turn(among, i)).collect()))
        });
        let mut b = b;
        b.processes[0].turns[1].place = 9;
        assert_eq!(pairs(&a, &b), Pairing::Paired { pairs: vec![(0, 0)] });
    }
}
