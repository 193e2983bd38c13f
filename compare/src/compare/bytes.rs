//! What the bricks of a test move, and how fast: does the one side read more, or read slower?

use brickscope_profile::stats::median;
use brickscope_profile::{Absent, Phase};
use serde::Serialize;

use super::samples::{brick_names, tests_of};
use super::{Brick, Side, Test, TestChange, trimming};

/// Where bytes are alike, up to this part of them, they are no reason for anything.
const ALIKE: f64 = 0.01;

/// The bricks whose bytes are known must take this part of the time of all bricks on either side.
const LEAST_KNOWN: f64 = 0.9;

/// The bytes that the bricks of a sample move, and the time of those bricks: two rates, of A and of B.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BytesMoved {
    /// Bytes of a sample on A and on B, as the engines stated them.
    pub bytes: [f64; 2],
    /// Nanoseconds of the bricks that moved them, on A and on B.
    pub ns: [f64; 2],
}

impl BytesMoved {
    /// How often A's bytes go into B's.
    #[must_use]
    pub fn more(&self) -> f64 {
        self.bytes[1] / self.bytes[0]
    }

    /// Bytes per second on A and on B.
    #[must_use]
    pub fn rates(&self) -> [f64; 2] {
        [0, 1].map(|side| self.bytes[side] * 1e9 / self.ns[side])
    }

    /// What B's bytes would take at A's rate, in nanoseconds: a prediction, which nobody measured.
    #[must_use]
    pub fn at_the_rate_of_a(&self) -> f64 {
        self.ns[0] * self.more()
    }
}

/// Adds to a test of decode what its bricks move, if that isn't alike on both sides; with `is_asked`, as where models differ,
/// also why it isn't known. Only decode is about bytes: prefill uses each many times.
pub(super) fn add(test: &mut TestChange, sides: [&Side; 2], is_asked: bool) {
    if test.phase != Some(Phase::Decode) {
        return;
    }
    match moved(&test.name, sides) {
        Ok(moved) if (moved.more() - 1.0).abs() > ALIKE => test.bytes = Some(moved),
        Ok(_) => {}
        Err(reason) => test.bytes_absent = is_asked.then_some(Absent { reason }),
    }
}

fn moved(name: &str, sides: [&Side; 2]) -> Result<BytesMoved, String> {
    let tests = sides.map(|side| tests_of(side, name));
    let names = tests.each_ref().map(|tests| brick_names(tests));
    for brick in names[0].iter().filter(|name| names[1].contains(name)) {
        let [a, b] = tests.each_ref().map(|tests| tests.iter().any(|test| is_known(test, brick)));
        if a != b {
            let side = if a { "A" } else { "B" };
            return Err(format!("of {brick} only {side} states its bytes"));
        }
    }
    let [a, b] = [of_side(&tests[0], "A")?, of_side(&tests[1], "B")?];
    Ok(BytesMoved { bytes: [a[0], b[0]], ns: [a[1], b[1]] })
}

/// Bytes and nanoseconds of a sample: of each process the medians, and of these the geometric mean.
fn of_side(tests: &[&Test], side: &str) -> Result<[f64; 2], String> {
    let unknown = || format!("{side} doesn't state the bytes of its bricks");
    let mut logs = [Vec::new(), Vec::new()];
    for test in tests {
        let all = sums(test, |brick| Some(&brick.ns)).ok_or_else(unknown)?;
        let bytes = sums(test, known_bytes).ok_or_else(unknown)?;
        let ns = sums(test, known_ns).ok_or_else(unknown)?;
        if ns < LEAST_KNOWN * all {
            return Err(format!(
                "{side} states the bytes of bricks that take only {:.0} % of the time of all its bricks",
                100.0 * ns / all
            ));
        }
        logs[0].push(bytes.ln());
        logs[1].push(ns.ln());
    }
    let mean = |logs: &Vec<f64>| trimming::typical(logs).map(|(log, _)| log.exp());
    let [bytes, ns] = logs.each_ref().map(mean);
    Ok([bytes.ok_or_else(unknown)?, ns.ok_or_else(unknown)?])
}

/// The median of the samples' sums over bricks; `None` if it isn't above 0.
fn sums<'t>(test: &'t Test, of: impl Fn(&'t Brick) -> Option<&'t Vec<u64>>) -> Option<f64> {
    let n = test.wall_ns.len();
    let mut sums = vec![0.0; n];
    for values in test.bricks.iter().filter_map(of).filter(|values| values.len() == n) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value as f64);
    }
    median(&sums).filter(|sum| *sum > 0.0)
}

fn known_bytes(brick: &Brick) -> Option<&Vec<u64>> {
    Some(&brick.bytes).filter(|bytes| !bytes.is_empty() && bytes.len() == brick.ns.len())
}

fn known_ns(brick: &Brick) -> Option<&Vec<u64>> {
    known_bytes(brick).map(|_| &brick.ns)
}

fn is_known(test: &Test, name: &str) -> bool {
    test.bricks.iter().any(|brick| brick.name == name && known_bytes(brick).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, Options, Process, Sample, compare, versus};
    use super::*;

    /// A decode pass in two bricks that move so many bytes in so many nanoseconds, and one of which nothing is known.
    fn side(bytes: [u64; 2], ns: [u64; 2], seed: u64) -> Side {
        let brick = |name: &str, bytes: Vec<u64>, ns: u64| Brick {
            name: name.to_owned(),
            category: "Other".to_owned(),
            ns: vec![ns, ns, ns + 1],
            bytes,
        };
        let test = |nth: u64| Test {
            name: "decode".to_owned(),
            phase: Some(Phase::Decode),
            tokens: 1,
            sample: Sample::Pass,
            wall_ns: vec![ns[0] + ns[1] + 10 + nth; 3],
            bricks: vec![
                brick("QkvProjection", vec![bytes[0]; 3], ns[0] + nth),
                brick("LmHead", vec![bytes[1]; 3], ns[1]),
                brick("Sampling", Vec::new(), 10),
            ],
            ..Test::default()
        };
        let process = |nth: u64| Process { tests: vec![test(seed + nth)], ..Process::default() };
        Side { name: String::new(), processes: (0..3).map(process).collect() }
    }

    fn compared(a: &Side, b: &Side) -> Comparison {
        compare(a, b, &Options::default()).expect("they have a test in common")
    }

    #[test]
    fn what_is_more_is_told_with_what_it_would_take_at_the_other_rate() {
        let a = side([6_000_000, 4_000_000], [600_000, 400_000], 1);
        let b = side([12_000_000, 8_000_000], [1_500_000, 1_000_000], 7);
        let of = [
            compared(&a, &b).tests[0].bytes,
            versus(&a, &b, 1, 0.03).expect("compared").comparison.tests[0].bytes,
        ];
        for moved in of {
            let moved = moved.expect("both state them");
            assert!((moved.more() - 2.0).abs() < 1e-9, "{moved:?}");
            let [a, b] = moved.rates();
            assert!((a / 1e10 - 1.0).abs() < 1e-4 && (b / 8e9 - 1.0).abs() < 1e-4, "{moved:?}");
            assert!((moved.at_the_rate_of_a() / 2e6 - 1.0).abs() < 1e-4, "{moved:?}");
        }
        // Bytes that are alike explain nothing.
        let slow = side([6_000_000, 4_000_000], [900_000, 400_000], 7);
        assert_eq!(compared(&a, &slow).tests[0].bytes, None);
    }

    #[test]
    fn what_is_not_known_has_its_reason_where_models_differ() {
        let a = side([6_000_000, 4_000_000], [600_000, 400_000], 1);
        let why = |change: &dyn Fn(&mut Test)| {
            let mut b = side([12_000_000, 8_000_000], [1_500_000, 1_000_000], 7);
            b.processes.iter_mut().for_each(|process| change(&mut process.tests[0]));
            let mut test = compared(&a, &b).tests.remove(0);
            assert_eq!((test.bytes, test.bytes_absent.take()), (None, None));
            add(&mut test, [&a, &b], true);
            test.bytes_absent.map(|absent| absent.reason)
        };
        let none = why(&|test| test.bricks.iter_mut().for_each(|brick| brick.bytes.clear()));
        assert_eq!(none.as_deref(), Some("of QkvProjection only A states its bytes"));
        let other = why(&|test| {
            for brick in &mut test.bricks {
                brick.bytes.clear();
                brick.name.push_str("Fused");
            }
        });
        assert_eq!(other.as_deref(), Some("B doesn't state the bytes of its bricks"));
        let few = why(&|test| test.bricks[2].ns = vec![2_500_000; 3]);
        let few = few.expect("a reason");
        assert!(few.contains("take only 50 % of the time of all its bricks"), "{few}");
    }
}
