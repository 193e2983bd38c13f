//! How often a comparison of equal runs raises an alarm, and how often a planted slow-down is found:
//! with the noise of a real machine, from processes that were recorded there.
//!
//! `tests/data/noise.json` has what `cargo run --release -p brickscope-cli --example record_noise`
//! wrote. Everything drawn from it is drawn with a fixed seed, so these tests give the same counts
//! each time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brickscope::Phase;
use brickscope::compare::{
    Brick, Change, Comparison, Options, Outcome, Process, Side, Test, TestChange, Turn, Verdict,
    compare,
};
use serde::Deserialize;

/// The recorded processes, in the order in which they ran.
#[derive(Deserialize)]
struct Recorded {
    tests: Vec<RecordedTest>,
    /// For each process and test its samples: the wall, what no brick explains, and each brick.
    processes: Vec<Vec<Vec<Vec<u64>>>>,
}

#[derive(Deserialize)]
struct RecordedTest {
    name: String,
    phase: Phase,
    tokens: u64,
    /// Names and categories.
    bricks: Vec<(String, String)>,
}

fn recorded() -> Vec<Process> {
    let path = match std::env::var_os("BRICKSCOPE_NOISE") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/noise.json")),
    };
    let text = std::fs::read_to_string(path).expect("the recorded noise");
    let Recorded { tests, processes } = serde_json::from_str(&text).expect("its form");
    let test = |of: &RecordedTest, samples: &Vec<Vec<u64>>| {
        let column = |at: usize| samples.iter().map(|sample| sample[at]).collect::<Vec<u64>>();
        let bricks = of.bricks.iter().zip(2..).map(|((name, category), at)| Brick {
            name: name.clone(),
            category: category.clone(),
            ns: column(at),
        });
        Test {
            name: of.name.clone(),
            phase: Some(of.phase),
            tokens: of.tokens,
            wall_ns: column(0),
            unattributed_ns: column(1),
            bricks: bricks.collect(),
        }
    };
    let process = |(number, of_tests): (usize, &Vec<Vec<Vec<u64>>>)| Process {
        name: format!("process {number}"),
        turns: vec![Turn { among: "recording".to_owned(), place: number as u64 }],
        tests: tests.iter().zip(of_tests).map(|(of, samples)| test(of, samples)).collect(),
        ..Process::default()
    };
    processes.iter().enumerate().map(process).collect()
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }

    fn uniform(&mut self) -> f64 {
        self.below(1 << 52) as f64 / (1_u64 << 52) as f64
    }

    /// `n` of `all`, in their order.
    fn choose<T: Clone>(&mut self, n: usize, all: &[T]) -> Vec<T> {
        let mut places: Vec<usize> = (0..all.len()).collect();
        for i in 0..n {
            let j = i + self.below(places.len() - i);
            places.swap(i, j);
        }
        places.truncate(n);
        places.sort_unstable();
        places.into_iter().map(|place| all[place].clone()).collect()
    }
}

fn sides(a: Vec<Process>, b: Vec<Process>) -> [Side; 2] {
    [("a", a), ("b", b)].map(|(name, processes)| Side { name: name.to_owned(), processes })
}

/// `n` pairs of neighbours, in turns A B B A.
fn in_turns(all: &[Process], n: usize, random: &mut Random) -> [Side; 2] {
    let shift = random.below(2);
    let pairs: Vec<&[Process]> = all[shift..].chunks_exact(2).collect();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let first = random.below(2);
    for (turn, pair) in random.choose(n, &pairs).into_iter().enumerate() {
        let (one, other) =
            if (turn + first) % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        one.push(pair[0].clone());
        other.push(pair[1].clone());
    }
    sides(a, b)
}

/// `n` processes a side that have nothing to do with each other.
fn on_their_own(all: &[Process], n: usize, random: &mut Random) -> [Side; 2] {
    let mut chosen = random.choose(2 * n, all);
    for process in &mut chosen {
        process.turns.clear();
    }
    let mut a = Vec::new();
    for _ in 0..n {
        a.push(chosen.remove(random.below(chosen.len())));
    }
    sides(a, chosen)
}

/// Makes a brick of a test slower by `part`, and the whole by the same nanoseconds.
fn plant(side: &mut Side, test: &str, brick: &str, part: f64) {
    let tests = side.processes.iter_mut().flat_map(|process| &mut process.tests);
    for test in tests.filter(|of| of.name == test) {
        let brick = test.bricks.iter_mut().find(|of| of.name == brick).expect("the brick");
        for (ns, wall) in brick.ns.iter_mut().zip(&mut test.wall_ns) {
            let more = (*ns as f64 * part).round() as u64;
            *ns += more;
            *wall += more;
        }
    }
}

fn compared([a, b]: &[Side; 2]) -> Comparison {
    compare(a, b, &Options::default()).expect("they can be compared")
}

fn rows(test: &TestChange) -> impl Iterator<Item = &Change> {
    [&test.whole].into_iter().chain(&test.categories).chain(&test.bricks)
}

/// Whether anything at all is called slower or faster.
fn is_alarm(comparison: &Comparison) -> bool {
    let is_alarm = |row: &Change| matches!(row.verdict, Verdict::Slower | Verdict::Faster);
    comparison.tests.iter().flat_map(rows).any(is_alarm)
}

/// As many processes a side as it takes to see 3 % where processes differ by some percent: see the
/// table in `docs/compare.md`.
const PROCESSES: usize = 40;

/// As few processes a side as people are tempted to run.
const FEW: usize = 3;

#[test]
fn equal_runs_in_turns_raise_at_most_4_alarms_in_200_comparisons() {
    let all = recorded();
    for n in [5, 10, 20, PROCESSES] {
        let mut random = Random(200);
        let alarm = |_| usize::from(is_alarm(&compared(&in_turns(&all, n, &mut random))));
        let alarms: usize = (0..200).map(alarm).sum();
        println!("in turns, {n} processes a side: {alarms} of 200");
        assert!(alarms <= 4, "{n} processes: {alarms} alarms");
    }
}

#[test]
fn equal_runs_on_their_own_raise_at_most_4_alarms_in_200_comparisons() {
    let all = recorded();
    for n in [5, 10, 20, PROCESSES] {
        let mut random = Random(200);
        let alarm = |_| usize::from(is_alarm(&compared(&on_their_own(&all, n, &mut random))));
        let alarms: usize = (0..200).map(alarm).sum();
        println!("on their own, {n} processes a side: {alarms} of 200");
        assert!(alarms <= 4, "{n} processes: {alarms} alarms");
    }
}

/// What came of planted slow-downs.
#[derive(Debug, Default)]
struct Found {
    /// Of those that the noise allowed to see.
    visible: usize,
    /// Something was called slower.
    found: usize,
    /// The guilty brick was, and no other.
    named: usize,
    /// Of those that it did not.
    hidden: usize,
    /// The guilty brick was called slower or inconclusive.
    honest: usize,
}

#[test]
fn a_brick_that_is_slower_by_3_percent_is_found_and_named_where_the_noise_allows_it() {
    let all = recorded();
    let part = Options::default().threshold;
    let mut total = Found::default();
    let mut of_bricks: BTreeMap<String, Found> = BTreeMap::new();
    let mut random = Random(3);
    // Every brick that is judged, in turns, until there were 200 of either kind.
    let shown = compared(&in_turns(&all, PROCESSES, &mut random));
    let bricks: Vec<(String, String)> = shown
        .tests
        .iter()
        .flat_map(|test| test.bricks.iter().map(|row| (test.name.clone(), row.name.clone())))
        .filter(|(_, name)| name != brickscope::compare::UNATTRIBUTED)
        .collect();
    for (round, (test, brick)) in bricks.iter().cycle().enumerate().take(200 * bricks.len()) {
        if (total.visible, total.hidden) == (200, 200) {
            break;
        }
        // Few processes see little.
        let n = if round / bricks.len() % 2 == 0 { PROCESSES } else { FEW };
        let mut sides = in_turns(&all, n, &mut random);
        plant(&mut sides[1], test, brick, part);
        let comparison = compared(&sides);
        let of = comparison.tests.iter().find(|of| of.name == *test).expect("the test");
        let Some(row) = of.bricks.iter().find(|row| row.name == *brick) else { continue };
        let found = of_bricks.entry(format!("{test} {brick}")).or_default();
        if row.visible.is_some_and(|visible| visible <= part) {
            if total.visible == 200 {
                continue;
            }
            let slower: Vec<&str> = comparison
                .tests
                .iter()
                .flat_map(|test| &test.bricks)
                .filter(|row| row.verdict == Verdict::Slower)
                .map(|row| &*row.name)
                .collect();
            let is_named = slower == [brick];
            for found in [&mut total, found] {
                found.visible += 1;
                found.found += usize::from(comparison.outcome() == Outcome::Slower);
                found.named += usize::from(is_named);
            }
        } else if total.hidden < 200 {
            let is_honest = matches!(row.verdict, Verdict::Slower | Verdict::Inconclusive);
            for found in [&mut total, found] {
                found.hidden += 1;
                found.honest += usize::from(is_honest);
            }
        }
    }
    for (brick, found) in &of_bricks {
        println!("{brick}: {found:?}");
    }
    println!("{total:?}");
    assert_eq!((total.visible, total.hidden), (200, 200), "the noise leaves too few of one kind");
    assert!(total.found >= 196, "{total:?}");
    assert!(total.named * 100 >= total.found * 95, "{total:?}");
    assert_eq!(total.honest, total.hidden, "a change that can't be seen was called unchanged");
}

#[test]
fn noise_that_hides_a_slow_down_makes_it_inconclusive_and_never_unchanged() {
    let all = recorded();
    let mut random = Random(17);
    let mut verdicts = BTreeMap::new();
    for _ in 0..100 {
        let mut sides = in_turns(&all, PROCESSES, &mut random);
        let test = sides[0].processes[0].tests.last().expect("a test").name.clone();
        plant(&mut sides[1], &test, "GateProjection", 0.03);
        // A neighbour comes and goes: each process as a whole is slower by up to a half.
        for process in sides.iter_mut().flat_map(|side| &mut side.processes) {
            let slower = 1.0 + 0.5 * random.uniform();
            let scale = |times: &mut Vec<u64>| {
                times.iter_mut().for_each(|ns| *ns = (*ns as f64 * slower) as u64);
            };
            for test in &mut process.tests {
                scale(&mut test.wall_ns);
                scale(&mut test.unattributed_ns);
                test.bricks.iter_mut().for_each(|brick| scale(&mut brick.ns));
            }
        }
        let comparison = compared(&sides);
        for row in comparison.tests.iter().flat_map(rows) {
            *verdicts.entry(row.verdict.name()).or_insert(0) += 1;
            assert!(row.visible.is_some_and(|visible| visible > 0.03), "{row:?}");
            assert!(row.processes_needed.is_none_or(|n| n > PROCESSES), "{row:?}");
        }
    }
    println!("{verdicts:?}");
    assert_eq!(verdicts.get("unchanged"), None, "{verdicts:?}");
    let others: i32 =
        verdicts.iter().filter(|(name, _)| **name != "inconclusive").map(|(_, n)| n).sum();
    assert!(others <= 4, "{verdicts:?}");
}
