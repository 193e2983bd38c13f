//! How often a comparison of equal runs raises an alarm, and how often a planted slow-down is found:
//! with the noise of a real machine, from processes that were recorded there.
//!
//! `tests/data/noise.json` has what `cargo run --release -p brickscope-cli --example record_noise`
//! wrote. Everything drawn from it is drawn with a fixed seed, so these tests give the same counts
//! each time.

use brickscope::stats::SplitMix64;
use std::collections::BTreeMap;
use std::path::PathBuf;

use brickscope::Phase;
use brickscope_analysis::compare::{
    Brick, Change, Comparison, Fact, KernelTime, KernelsOfBrick, LayerSpread, MovedLayer,
    MovedLayers, MovedPart, Options, Outcome, Process, Sample, Side, Test, TestChange, Turn,
    Verdict, compare, versus,
};
use brickscope_analysis::view;
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
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/noise.json")),
    };
    let text = std::fs::read_to_string(path).expect("the recorded noise");
    let Recorded { tests, processes } = serde_json::from_str(&text).expect("its form");
    let test = |of: &RecordedTest, samples: &Vec<Vec<u64>>| {
        let column = |at: usize| samples.iter().map(|sample| sample[at]).collect::<Vec<u64>>();
        let bricks = of.bricks.iter().zip(2..).map(|((name, category), at)| Brick {
            name: name.clone(),
            category: category.clone(),
            ns: column(at),
            ..Brick::default()
        });
        Test {
            name: of.name.clone(),
            phase: Some(of.phase),
            tokens: of.tokens,
            facts: Vec::new(),
            sample: Sample::Repetition,
            wall_ns: column(0),
            unattributed_ns: column(1),
            bricks: bricks.collect(),
            ..Test::default()
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

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.bits()) * n as u128) >> 64) as usize
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
            if (turn + first).is_multiple_of(2) { (&mut a, &mut b) } else { (&mut b, &mut a) };
        one.push(pair[0].clone());
        other.push(pair[1].clone());
    }
    sides(a, b)
}

/// `n` processes and the next `n`: measured one side after the other, whatever the machine did between.
fn one_after_the_other(all: &[Process], n: usize, offset: usize) -> [Side; 2] {
    let [a, b] = [offset, offset + n].map(|from| all[from..from + n].to_vec());
    sides(a, b)
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
/// table in `docs/evidence/compare.md`.
const PROCESSES: usize = 40;

/// The part by which a brick is made slower: of those in the recorded noise, some show that, and hardly any 3 %.
const PLANTED: f64 = 0.06;

/// As many as it takes to see that of some bricks in the recorded noise.
const FOR_BRICKS: usize = 56;

/// As few processes a side as people are tempted to run.
const FEW: usize = 5;

#[test]
fn equal_runs_in_turns_raise_at_most_4_alarms_in_200_comparisons() {
    let all = recorded();
    for n in [5, 10, 20, PROCESSES] {
        let mut random = Random(SplitMix64(200));
        let alarm = |_| usize::from(is_alarm(&compared(&in_turns(&all, n, &mut random))));
        let alarms: usize = (0..200).map(alarm).sum();
        println!("in turns, {n} processes a side: {alarms} of 200");
        assert!(alarms <= 4, "{n} processes: {alarms} alarms");
    }
}

#[test]
fn equal_runs_one_after_the_other_raise_at_most_4_alarms_in_200_comparisons() {
    let all = recorded();
    for n in [5, 10, 20, PROCESSES] {
        let offsets = all.len() + 1 - 2 * n;
        let alarm =
            |offset| usize::from(is_alarm(&compared(&one_after_the_other(&all, n, offset))));
        let alarms: usize = (0..offsets).map(alarm).sum();
        println!("one after the other, {n} processes a side: {alarms} of {offsets}");
        assert!(alarms * 200 <= 4 * offsets, "{n} processes: {alarms} alarms of {offsets}");
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
fn a_brick_that_is_slower_is_found_and_named_where_the_noise_allows_it() {
    let all = recorded();
    let mut total = Found::default();
    let mut of_bricks: BTreeMap<String, Found> = BTreeMap::new();
    let mut random = Random(SplitMix64(3));
    // Every brick that is judged, in turns, until there were 200 of either kind.
    let shown = compared(&in_turns(&all, FOR_BRICKS, &mut random));
    let bricks: Vec<(String, String)> = shown
        .tests
        .iter()
        .flat_map(|test| test.bricks.iter().map(|row| (test.name.clone(), row.name.clone())))
        .filter(|(_, name)| name != brickscope_analysis::compare::UNATTRIBUTED)
        .collect();
    for (round, (test, brick)) in bricks.iter().cycle().enumerate().take(200 * bricks.len()) {
        if (total.visible, total.hidden) == (200, 200) {
            break;
        }
        // Few processes see little.
        let n = if (round / bricks.len()).is_multiple_of(2) { FOR_BRICKS } else { FEW };
        let mut sides = in_turns(&all, n, &mut random);
        plant(&mut sides[1], test, brick, PLANTED);
        let comparison = compared(&sides);
        let of = comparison.tests.iter().find(|of| of.name == *test).expect("the test");
        let Some(row) = of.bricks.iter().find(|row| row.name == *brick) else { continue };
        let found = of_bricks.entry(format!("{test} {brick}")).or_default();
        if row.visible.is_some_and(|visible| visible <= PLANTED) {
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
    let mut random = Random(SplitMix64(17));
    let mut clear = 0;
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
            assert_ne!(row.verdict, Verdict::Unchanged, "{row:?}");
            assert!(row.visible.is_some_and(|visible| visible > 0.03), "{row:?}");
            assert!(row.processes_needed.is_none_or(|n| n > PROCESSES), "{row:?}");
        }
        clear +=
            usize::from(is_alarm(&comparison) || comparison.outcome() != Outcome::Inconclusive);
    }
    println!("under load: {clear} of 100 called slower or faster");
    // As rare as false alarms: next to the load the fault is nothing.
    assert!(clear <= 2, "{clear}");
}

/// A process that took `slower` times as long as another in GateProjection.
fn made(number: u64, slower: f64, noise: f64, random: &mut Random) -> Process {
    let mut near = |ns: f64| (ns * (1.0 + noise * (random.uniform() - 0.5))) as u64;
    let mut test = |name: &str, phase: Phase, tokens: u64, times: f64| {
        let bricks = [
            ("QkvProjection", "Attention", 900_000.0),
            ("GateProjection", "FFN", 1_000_000.0 * slower),
            ("DownProjection", "FFN", 800_000.0),
            ("RmsNorm", "Norm", 9_000.0),
        ];
        let mut brick = |(name, category, ns): (&str, &str, f64)| Brick {
            name: name.to_owned(),
            category: category.to_owned(),
            ns: (0..3).map(|_| near(ns * times)).collect(),
            ..Brick::default()
        };
        let bricks = bricks.map(&mut brick).to_vec();
        let unattributed_ns = brick(("", "", 30_000.0)).ns;
        let sum = |i: usize| bricks.iter().map(|brick| brick.ns[i]).sum::<u64>();
        Test {
            name: name.to_owned(),
            phase: Some(phase),
            tokens,
            facts: Vec::new(),
            sample: Sample::Repetition,
            wall_ns: (0..3).map(|i| sum(i) + unattributed_ns[i]).collect(),
            unattributed_ns,
            bricks,
            ..Test::default()
        }
    };
    Process {
        name: format!("{number}"),
        turns: vec![Turn { among: "made up".to_owned(), place: number }],
        facts: vec![Fact::must("threads", "2"), Fact::may("build", "brickscope 0.1.0, 5ca1ab1e")],
        tests: vec![
            test("pp512", Phase::Prefill, 512, 40.0),
            test("tg128", Phase::Decode, 128, 100.0),
        ],
        ..Process::default()
    }
}

/// Sides that ran in turns; in B GateProjection took `slower` times as long.
fn made_sides(n: u64, slower: f64, noise: f64) -> [Side; 2] {
    let mut random = Random(SplitMix64(9));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for turn in 0..2 * n {
        if (turn / 2 + turn).is_multiple_of(2) {
            a.push(made(turn, 1.0, noise, &mut random));
        } else {
            b.push(made(turn, slower, noise, &mut random));
        }
    }
    sides(a, b)
}

/// Everything within 80 columns.
fn text(comparison: &Comparison) -> String {
    let text = view::comparison(comparison);
    let wide = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{text}");
    text
}

#[test]
fn a_slower_brick_as_text_markdown_and_for_bencher() {
    let [a, mut b] = made_sides(12, 1.08, 0.01);
    for process in &mut b.processes {
        process.facts[1].value = "brickscope 0.2.0, feedf00d".to_owned();
    }
    let comparison = compared(&[a, b]);
    assert_eq!(comparison.outcome(), Outcome::Slower);
    insta::assert_snapshot!("slower", text(&comparison));
    insta::assert_snapshot!("slower_markdown", view::comparison_markdown(&comparison));
    insta::assert_snapshot!("slower_bmf", view::comparison_bmf(&comparison));
    let json: serde_json::Value =
        serde_json::from_str(&view::comparison_json(&comparison)).expect("JSON");
    assert_eq!((&json["outcome"], &json["tests"][1]["name"]), (&"slower".into(), &"tg128".into()));
}

#[test]
fn what_medians_of_bricks_do_not_add_up_to_has_a_row() {
    let [mut a, mut b] = made_sides(12, 1.0, 0.01);
    let plain = text(&compared(&[a.clone(), b.clone()]));
    assert!(!plain.contains("(not in the rows)"), "{plain}");
    let processes = a.processes.iter_mut().chain(&mut b.processes);
    for test in processes.flat_map(|process| &mut process.tests) {
        // Each sample has another brick disturbed, which no brick's median shows.
        for (nth, wall_ns) in test.wall_ns.iter_mut().enumerate() {
            test.bricks[nth].ns[nth] += 50_000_000;
            *wall_ns += 50_000_000;
        }
    }
    let text = text(&compared(&[a, b]));
    assert_eq!(text.matches("\n(not in the rows)").count(), 4, "two rows and why: {text}");
}

#[test]
fn what_only_one_side_has_is_absent_on_the_other() {
    let [a, mut b] = made_sides(12, 1.0, 0.01);
    for test in b.processes.iter_mut().flat_map(|process| &mut process.tests) {
        test.bricks.retain(|brick| brick.category != "Attention");
    }
    for (sides, letter) in [([a.clone(), b.clone()], "A"), ([b, a], "B")] {
        let comparison = compared(&sides);
        let test = &comparison.tests[0];
        let row = test.categories.iter().find(|row| row.name == "Attention").expect("a row");
        assert_eq!((row.a_ns.is_some(), row.b_ns.is_some()), (letter == "A", letter == "B"));
        assert_eq!(row.share.is_some(), letter == "A");
        assert_eq!(row.reason, Some(format!("only {letter} has it")));
        assert_eq!((row.change, row.verdict), (None, Verdict::Inconclusive));
        let text = text(&comparison);
        assert!(text.contains(&format!("only in {letter}: QkvProjection")), "{text}");
        let line = text.lines().find(|line| line.starts_with("Attention")).expect("a line");
        // A's time, then B's.
        let of_a = line.trim_start_matches("Attention").trim_start();
        assert_eq!(of_a.starts_with("absent"), letter == "B", "{line}");
        assert!(line.contains("absent"), "{line}");
        let json: serde_json::Value =
            serde_json::from_str(&view::comparison_json(&comparison)).expect("JSON");
        let rows = json["tests"][0]["categories"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == "Attention").expect("a row");
        assert_eq!((row["a_ns"].is_null(), row["b_ns"].is_null()), (letter == "B", letter == "A"));
        let bencher = view::comparison_bmf(&comparison);
        assert_eq!(bencher.contains("category/Attention"), letter == "B");
    }
}

#[test]
fn what_is_faster_unchanged_or_can_not_be_told() {
    let faster = compared(&made_sides(12, 0.8, 0.01));
    assert_eq!(faster.outcome(), Outcome::Pass);
    insta::assert_snapshot!("faster_headline", view::comparison_headline(&faster));
    // Sure, and too little of the whole to matter there.
    let hidden = compared(&made_sides(12, 1.06, 0.01));
    assert_eq!(hidden.outcome(), Outcome::Slower);
    insta::assert_snapshot!("slower_brick_headline", view::comparison_headline(&hidden));
    let same = compared(&made_sides(12, 1.0, 0.01));
    assert_eq!(same.outcome(), Outcome::Pass);
    insta::assert_snapshot!("unchanged", text(&same));
    let unclear = compared(&made_sides(4, 1.03, 0.1));
    assert_eq!(unclear.outcome(), Outcome::Inconclusive);
    insta::assert_snapshot!("inconclusive", text(&unclear));
}

#[test]
fn a_single_process_is_no_replicate_however_many_samples_it_took() {
    let [mut a, mut b] = made_sides(1, 2.0, 0.01);
    for test in a.processes.iter_mut().chain(&mut b.processes).flat_map(|p| &mut p.tests) {
        test.wall_ns = test.wall_ns.repeat(1000);
    }
    let comparison = compared(&[a, b]);
    assert_eq!(comparison.outcome(), Outcome::Inconclusive);
    let inconclusive = |row: &Change| {
        row.verdict == Verdict::Inconclusive
            && row.reason.as_ref().is_some_and(|why| why.contains("one process only"))
    };
    assert!(comparison.tests.iter().flat_map(rows).all(inconclusive), "{comparison:?}");
    insta::assert_snapshot!("single", view::comparison_headline(&comparison));
}

fn circumstances() -> view::Circumstances {
    view::Circumstances {
        commands: ["old/engine -m 'a b.gguf'", "new/engine -m 'a b.gguf'"].map(str::to_owned),
        again: Some(
            "brickscope versus \"old/engine -m 'a b.gguf'\" \"new/engine -m 'a b.gguf'\""
                .to_owned(),
        ),
        engines: [None, None],
        machine: Some("a CPU, 2 CPUs, 8.2 GB, linux x86_64".to_owned()),
        others_share: Some(0.031),
        pairs: 7,
        seconds: 61.5,
        notes: vec!["a note".to_owned()],
    }
}

/// Seven pairs, of which B is slower, newer, and has another name for a brick of decode.
fn two_commands() -> [Side; 2] {
    let [a, mut b] = made_sides(7, 1.1, 0.01);
    for process in &mut b.processes {
        process.facts[1].value = "brickscope 0.2.0".to_owned();
        process.tests[1].bricks[3].name = "FusedNorm".to_owned();
    }
    [a, b]
}

#[test]
fn two_commands_are_told_with_what_moved_and_what_differs() {
    let [a, b] = two_commands();
    let found = versus(&a, &b, 2, 0.03).expect("they have tests in common");
    let ran = circumstances();
    let text = view::versus(&found, &ran);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("versus", text);
    insta::assert_snapshot!("versus_markdown", view::versus_markdown(&found, &ran));
    let json: serde_json::Value =
        serde_json::from_str(&view::versus_json(&found, &ran)).expect("JSON");
    assert_eq!((&json["outcome"], &json["ran"]["pairs"]), (&"slower".into(), &7.into()));
    assert_eq!(json["moved"][1]["parts"][0]["name"], "GateProjection");
}

/// The words of a text, whatever its lines are.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn two_formats_are_told_by_their_bytes_and_by_how_fast_these_are_read() {
    let [mut a, mut b] = two_commands();
    for (side, format, bytes) in [(&mut a, "q4_0", 60_000_000), (&mut b, "q8_0", 120_000_000)] {
        for process in &mut side.processes {
            process.facts.push(Fact::model("quantisation", format));
            for brick in process.tests.iter_mut().flat_map(|test| &mut test.bricks) {
                brick.bytes = vec![bytes; brick.ns.len()];
            }
        }
    }
    let models = Options { models_may_differ: true, ..Options::default() };
    let said = |a: &Side, b: &Side| {
        let text = view::versus(&versus(a, b, 2, 0.03).expect("compared"), &circumstances());
        let beside = view::comparison(&compare(a, b, &models).expect("compared"));
        let mut lines = text.lines().chain(beside.lines());
        assert!(lines.all(|line| line.chars().count() <= 80), "{text}{beside}");
        [flat(&text), flat(&beside)]
    };
    for said in said(&a, &b) {
        for part in [
            "B moves 2.00 × the bytes of A in ",
            " (A 240 MB, B 480 MB), 1.93 × as fast (A ",
            "Predicted, not measured: at A's rate B's bytes would take 54",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(said.matches("B moves").count(), 1, "prefill is not about bytes: {said}");
    }
    let found = versus(&a, &b, 2, 0.03).expect("compared");
    let table = view::versus_markdown(&found, &circumstances());
    assert!(table.contains("\n| | A: q4\\_0 | B: q8\\_0 | B takes |\n"), "{table}");
    // What isn't stated is not guessed.
    for brick in b.processes.iter_mut().flat_map(|of| &mut of.tests[1].bricks) {
        brick.bytes.clear();
    }
    for said in said(&a, &b) {
        assert!(said.contains("isn't known: of QkvProjection only A states its bytes"), "{said}");
    }
}

#[test]
fn a_table_for_an_issue_tells_of_no_column_that_it_lacks() {
    let told = |pairs, slower, noise| {
        let [a, b] = made_sides(pairs, slower, noise);
        let found = versus(&a, &b, 1, 0.03).expect("compared");
        view::versus_markdown(&found, &circumstances())
    };
    let unchanged = told(7, 1.0, 0.001);
    assert!(!unchanged.contains('±') && !unchanged.contains("| one pass |"), "{unchanged}");
    assert!(unchanged.starts_with("**B against A: Unchanged"), "{unchanged}");
    assert!(unchanged.contains("\n| | A | B | B takes |\n"), "{unchanged}");
    let few = told(4, 1.1, 0.01);
    assert!(few.contains("| one pass |") && !few.contains('±'), "{few}");
}

/// A part that takes so many milliseconds, with a tenth of one as the half of its interval.
fn part(name: &str, a_ms: f64, b_ms: f64) -> MovedPart {
    let [a, b] = [a_ms, b_ms].map(|ms| (1e6 * ms).round());
    MovedPart {
        name: name.to_owned(),
        a_ns: Some(a),
        b_ns: Some(b),
        moved_ns: b - a,
        interval_ns: Some([b - a - 1e5, b - a + 1e5]),
    }
}

fn made_layers(
    spread: Option<LayerSpread>,
    layers: &[[f64; 2]],
    in_layers: [f64; 2],
    outside: [f64; 2],
) -> MovedLayers {
    let layer = |(number, &[a, b]): (u16, &[f64; 2])| MovedLayer {
        layer: Some(number),
        whole: part(&format!("layer {number}"), a, b),
        bricks: vec![part("GateProjection", a, b)],
    };
    let whole = part("(in no layer)", outside[0], outside[1]);
    MovedLayers {
        spread,
        in_layers: part("(in layers)", in_layers[0], in_layers[1]),
        layers: (0..).zip(layers).map(layer).collect(),
        outside: MovedLayer { layer: None, whole, bricks: Vec::new() },
    }
}

fn made_kernels(brick: &str, a: &[(&str, f64)], b: &[(&str, f64)]) -> KernelsOfBrick {
    let kernel = |&(kernel, ns): &(&str, f64)| KernelTime { kernel: kernel.to_owned(), ns };
    KernelsOfBrick {
        brick: Some(brick.to_owned()),
        only_a: a.iter().map(kernel).collect(),
        only_b: b.iter().map(kernel).collect(),
    }
}

#[test]
fn layers_that_moved_and_kernels_that_came_and_went_are_told_with_the_bricks() {
    let [a, b] = two_commands();
    let mut found = versus(&a, &b, 2, 0.03).expect("they have tests in common");
    let alike = [[25.0, 25.86], [25.0, 25.87], [25.0, 25.9], [25.0, 25.9]];
    let spread = Some(LayerSpread::Alike);
    found.moved[0].layers = Some(made_layers(spread, &alike, [100.0, 103.53], [9.6, 9.99]));
    let one = [[30.0, 31.486], [30.0, 37.43], [30.0, 30.15], [30.0, 30.15]];
    let most = LayerSpread::Most { layers: vec![1], brick: Some("GateProjection".to_owned()) };
    let layers = made_layers(Some(most), &one, [120.0, 129.216], [154.0, 154.69]);
    found.moved[1].layers = Some(layers);
    found.moved[1].kernels = vec![
        made_kernels("GateProjection", &[("mul_mat_q4_k", 100e6)], &[("mul_mat_q8_0", 110e6)]),
        made_kernels("QkvProjection", &[("mul_mat_q4_k", 90e6)], &[("mul_mat_q8_0", 91e6)]),
        made_kernels("FusedNorm", &[], &[("rms_norm_mul", 900e3)]),
    ];
    let text = view::versus(&found, &circumstances());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("versus_layers", text);
    let short = view::versus_markdown(&found, &circumstances());
    for line in [
        "- layers: prefill (pp512): in all 4 layers alike (90 % of B − A), +860 µs to +900 µs in \
         each\n",
        "- layers: decode (tg128): most of it in layer 1 (75 %), there in GateProjection\n",
        "- kernels: decode (tg128): mul\\_mat\\_q4\\_k (190 ms a pass) became mul\\_mat\\_q8\\_0 \
         (201 ms) in GateProjection and QkvProjection\n",
        "- kernels: decode (tg128): only B has rms\\_norm\\_mul (900 µs a pass) in FusedNorm\n",
    ] {
        assert!(short.contains(line), "{line}{short}");
    }
    // Where no sentence tells how it is spread, those that moved most.
    if let Some(layers) = &mut found.moved[1].layers {
        layers.spread = None;
    }
    let short = view::versus_markdown(&found, &circumstances());
    let line = "decode (tg128): layer 1 (75 %), layer 0 (15 %), layer 2 (2 %) and 1 more\n";
    assert!(short.contains(line), "{short}");
    let json: serde_json::Value =
        serde_json::from_str(&view::versus_json(&found, &circumstances())).expect("JSON");
    assert_eq!(json["moved"][0]["layers"]["spread"]["is"], "alike");
    assert_eq!(json["moved"][1]["layers"]["layers"][1]["bricks"][0]["name"], "GateProjection");
    assert_eq!(json["moved"][1]["kernels"][2]["only_b"][0]["kernel"], "rms_norm_mul");
}

#[test]
fn other_models_are_a_question_where_they_may_be_one() {
    let [a, mut b] = made_sides(7, 1.0, 0.01);
    b.processes.iter_mut().for_each(|of| of.facts.push(Fact::model("quantisation", "q4_k")));
    let mut sides = [a, b];
    sides[0].processes.iter_mut().for_each(|of| of.facts.push(Fact::model("quantisation", "q8_0")));
    let refused = compare(&sides[0], &sides[1], &Options::default()).expect_err("they differ");
    assert!(refused.to_string().contains("quantisation: q8_0 and q4_k"), "{refused}");
    let asked = Options { models_may_differ: true, ..Options::default() };
    let comparison = compare(&sides[0], &sides[1], &asked).expect("that is the question");
    let headline = view::comparison_headline(&comparison);
    assert!(headline.starts_with("Other weights (quantisation: q8_0 and q4_k). "), "{headline}");
    // Two on one side are none.
    sides[1].processes[0].facts.pop();
    sides[1].processes[0].facts.push(Fact::model("quantisation", "q6_k"));
    assert!(compare(&sides[0], &sides[1], &asked).is_err());
}

#[test]
fn unlike_conditions_are_refused_each_with_both_values_unless_forced() {
    let [a, mut b] = made_sides(5, 1.0, 0.01);
    b.processes[0].facts[0].value = "1".to_owned();
    b.processes[1].facts.remove(0);
    b.processes[2].doubts.push("the governor is \u{1b}[31mpowersave".to_owned());
    b.processes[3].disturbed = 2;
    b.processes[4].tests[0].bricks[0].name = "FusedQkv".to_owned();
    b.processes.iter_mut().for_each(|process| process.turns.clear());
    let refused = compare(&a, &b, &Options::default()).expect_err("they are unlike");
    assert_eq!(
        refused.to_string(),
        "these runs can't be compared, since they differ in\n  threads: 2 and 1 or 2 or not stated\n\
         any of these could cause a change of time"
    );
    let forced = Options { is_forced: true, ..Options::default() };
    let comparison = compare(&a, &b, &forced).expect("they have tests in common");
    insta::assert_snapshot!("forced", text(&comparison));
    assert!(
        view::comparison_markdown(&comparison).contains("> ⚠️ threads: 2 and 1 or 2 or not stated")
    );
}

#[test]
fn sides_that_share_no_kernel_are_told_to_be_other_programs() {
    let said = |a_ns: [u64; 2], b_name: &str| {
        let [mut a, mut b] = made_sides(1, 1.0, 0.01);
        let kernels = |own: &str, [ns, copy]: [u64; 2]| {
            [(own.to_owned(), ns), ("Memcpy".to_owned(), copy)].into_iter().collect()
        };
        a.processes[0].kernels = kernels("gemm_a", a_ns);
        b.processes[0].kernels = kernels(b_name, [995, 5]);
        let compared = compared(&[a, b]);
        (text(&compared).lines().take(9).collect::<Vec<_>>().join(" "), compared.outcome())
    };
    let (few, outcome) = said([99_600, 400], "gemm_b");
    assert!(few.contains("! Kernels that are in both take 0.40 % of A's time"), "{few}");
    assert!(few.contains("other programs or"), "{few}");
    // It is a note, and no verdict.
    let (same, as_before) = said([99_600, 400], "gemm_a");
    assert_eq!(as_before, outcome);
    let (much, _) = said([900, 100], "gemm_b");
    for text in [same, much] {
        assert!(!text.contains("other programs"), "{text}");
    }
    let [mut a, mut b] = made_sides(1, 1.0, 0.01);
    a.processes[0].kernels.insert("gemm_a".to_owned(), 1);
    b.processes[0].kernels.insert("gemm_b".to_owned(), 1);
    let none = text(&compared(&[a, b]));
    assert!(
        none.contains("! No kernel is in both: these are other programs or models\n"),
        "{none}"
    );
}

#[test]
fn each_inconclusive_test_has_its_own_reason() {
    let mut comparison = compared(&made_sides(12, 1.0, 0.01));
    let reasons = [Some("the one"), Some("the other")];
    for (test, reason) in comparison.tests.iter_mut().zip(reasons) {
        test.whole.verdict = Verdict::Inconclusive;
        test.whole.reason = reason.map(str::to_owned);
    }
    assert_eq!(
        view::comparison_headline(&comparison),
        "Inconclusive for prefill (pp512): the one; inconclusive for decode (tg128): the other."
    );
    // A reason that only prefill has says nothing of decode.
    comparison.tests[1].whole.reason = None;
    let said = view::comparison_headline(&comparison);
    assert!(said.contains("; inconclusive for decode (tg128): the smallest change that"), "{said}");
    comparison.tests[0].whole.reason = None;
    let said = view::comparison_headline(&comparison);
    assert!(said.starts_with("Inconclusive: the smallest change that"), "{said}");
}

#[test]
fn one_phase_is_judged_without_the_other() {
    let [a, mut b] = made_sides(12, 1.0, 0.01);
    plant(&mut b, "pp512", "GateProjection", 0.2);
    let of = |phase| Options { phase, ..Options::default() };
    for (phase, tests, outcome) in [
        (None, &["pp512", "tg128"][..], Outcome::Slower),
        (Some(Phase::Prefill), &["pp512"], Outcome::Slower),
        (Some(Phase::Decode), &["tg128"], Outcome::Pass),
    ] {
        let comparison = compare(&a, &b, &of(phase)).expect("they can be compared");
        let names: Vec<&str> = comparison.tests.iter().map(|test| &*test.name).collect();
        assert_eq!((&names[..], comparison.outcome()), (tests, outcome), "{phase:?}");
    }
    let error = compare(&a, &b, &of(Some(Phase::Encode))).expect_err("there is none").to_string();
    assert_eq!(error, "a has no test of encode alone: it has pp512, tg128");
    for (name, phase) in [
        ("pp512 @ d128", Some(Phase::Prefill)),
        ("tg128 (n_batch 1)", Some(Phase::Decode)),
        ("decode on the device", Some(Phase::Decode)),
        ("pp512+tg128", None),
    ] {
        let test = Test { name: name.to_owned(), ..Test::default() };
        assert_eq!(Phase::ALL.into_iter().find(|&phase| test.is_of(phase)), phase, "{name}");
    }
}

#[test]
fn a_test_that_not_all_processes_have_is_told_and_leaves_open_whether_b_is_slower() {
    let [a, mut b] = made_sides(12, 1.0, 0.001);
    let options = Options::default();
    assert_eq!(compare(&a, &b, &options).expect("alike").outcome(), Outcome::Pass);
    // A file that broke off.
    b.processes[3].tests.pop();
    let broken = compare(&a, &b, &options).expect("one test is left");
    assert_eq!((broken.tests.len(), broken.outcome()), (1, Outcome::Inconclusive));
    let why = "tg128 (1 of 12 processes of B without it)";
    let text = view::comparison(&broken);
    assert!(flat(&text).starts_with(&format!("Nothing can be said of {why}.")), "{text}");
    let line = "not compared: tg128: 1 of 12 processes of B without it";
    assert!(text.contains(line) && view::comparison_markdown(&broken).contains(line), "{text}");
    let turns = versus(&a, &b, 1, 0.03).expect("one test is left");
    assert_eq!(turns.outcome(), Outcome::Inconclusive);
    assert!(flat(&view::versus(&turns, &circumstances())).contains(line));
    // What is new in B can't be slower than before.
    for process in &mut b.processes {
        process.tests.truncate(1);
    }
    let [new, old] = [compare(&b, &a, &options), compare(&a, &b, &options)].map(Result::unwrap);
    assert_eq!((new.outcome(), old.outcome()), (Outcome::Pass, Outcome::Inconclusive));
    assert!(view::comparison(&new).contains("not compared: tg128: only B has it"));
    assert!(view::comparison(&old).contains("not compared: tg128: only A has it"));
    // Nobody asked for it.
    let prefill = Options { phase: Some(Phase::Prefill), ..options };
    let asked = compare(&a, &b, &prefill).expect("it has that");
    assert_eq!((asked.left_out.len(), asked.outcome()), (0, Outcome::Pass));
}

#[test]
fn what_can_not_be_compared_at_all() {
    let [a, b] = made_sides(3, 1.0, 0.01);
    let error = |a: &Side, b: &Side, options: &Options| {
        compare(a, b, options).expect_err("it can't be").to_string()
    };
    let default = Options::default();
    for threshold in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        let said = error(&a, &b, &Options { threshold, ..default });
        assert!(said.contains("must be above 0"), "{said}");
    }
    let empty = Side { name: "nowhere".to_owned(), processes: Vec::new() };
    assert_eq!(error(&a, &empty, &default), "nowhere has no runs");
    // A copy under another name, on the other side or on the same.
    let mut copied = b.clone();
    copied.processes[2] = Process { name: "a copy".to_owned(), ..a.processes[0].clone() };
    assert!(error(&a, &copied, &default).contains("a copy"), "{}", error(&a, &copied, &default));
    copied.processes[2] = b.processes[0].clone();
    let name = &b.processes[0].name;
    assert_eq!(
        error(&a, &copied, &default),
        format!("{name} is there twice: a run says nothing about how it varies")
    );
    let mut other = b.clone();
    other.processes.iter_mut().for_each(|process| process.tests[0].name = "pp1".to_owned());
    other.processes.iter_mut().for_each(|process| process.tests[1].name = "tg1".to_owned());
    assert_eq!(
        error(&a, &other, &default),
        "the sides have no test in common: A has the tests pp512, tg128; B has the tests pp1, tg1"
    );
    // A list of llama-bench, and a run of phases.
    other.processes.iter_mut().for_each(|process| process.tests[0].name = "prefill".to_owned());
    other.processes.iter_mut().for_each(|process| process.tests[1].name = "decode".to_owned());
    let said = error(&a, &other, &default);
    assert!(
        said.contains("A has the tests pp512, tg128; B has the tests prefill, decode"),
        "{said}"
    );
    assert!(said.contains("`brickscope import --rows`"), "{said}");
}

#[test]
fn hostile_times_give_no_nonsense() {
    for ns in [0, 1, u64::MAX] {
        let [a, mut b] = made_sides(4, 1.0, 0.01);
        for (number, test) in b.processes.iter_mut().flat_map(|p| &mut p.tests).enumerate() {
            test.wall_ns = vec![ns.saturating_sub(number as u64), ns / 2 + number as u64];
            test.unattributed_ns = vec![ns; 1];
            test.bricks[0].ns = vec![ns];
            test.bricks[1].ns.clear();
            test.bricks[2].category = "no\nsuch | thing".to_owned();
        }
        let comparison = compared(&[a, b]);
        let text = view::comparison(&comparison) + &view::comparison_markdown(&comparison);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{ns}: {text}");
        let bmf = view::comparison_bmf(&comparison);
        let json: Result<serde_json::Value, _> = serde_json::from_str(&bmf);
        assert!(json.is_ok(), "{bmf}");
    }
}
