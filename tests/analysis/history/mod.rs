//! Timelines of receipts whose figures are known: what belongs together, what changed, how it looks.

use brickscope_analysis::history::{Change, History, MACHINE, Measure, Run, Series};
use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::view;
use brickscope_testing::made::{Made, month};
use proptest::prelude::*;

fn run((i, receipt): (usize, Receipt)) -> Run {
    let sealed = receipt.sealed().expect("it has a canonical form");
    Run::of(&format!("runs/{i}/receipt.json"), &sealed).expect("it has a place in time")
}

fn runs(receipts: impl IntoIterator<Item = Receipt>) -> Vec<Run> {
    receipts.into_iter().enumerate().map(run).collect()
}

fn history(receipts: impl IntoIterator<Item = Receipt>) -> History {
    History::of(runs(receipts), Measure::TokensPerSecond)
}

fn of_month() -> Vec<Receipt> {
    month().iter().map(Made::receipt).collect()
}

/// The month with all that a point can have against it.
fn awkward_month() -> Vec<Receipt> {
    let mut receipts = of_month();
    receipts[3].tests[0].samples[1].disturbed = Some(true);
    receipts[4].load.doubts = vec!["others used 12 % of the machine".to_owned()];
    receipts[7].tests[0].samples.clear();
    receipts[25].machine.governor = Some("powersave".to_owned());
    // Another program in the middle of a level, and a set of which a process is missing.
    for (process, day) in [(1, 21), (2, 22)] {
        receipts[day].run.set = Some("abba".to_owned());
        receipts[day].run.process = process;
        receipts[day].run.processes = 3;
    }
    for receipt in &mut receipts {
        receipt.model.name = Some("a|b <i>\u{1b}[31m\"_x_\"".to_owned());
    }
    receipts
}

fn only(history: &History) -> &Series {
    assert_eq!(history.series.len(), 1, "{:?}", history.series);
    &history.series[0]
}

#[test]
fn a_month_is_a_table_with_its_change() {
    let text = view::history(&history(of_month()));
    insta::assert_snapshot!("text", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let text = view::history(&history(awkward_month()));
    insta::assert_snapshot!("text_awkward", text);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_month_is_a_page() {
    insta::assert_snapshot!("markdown", view::history_markdown(&history(awkward_month())));
}

#[test]
fn a_month_is_a_spreadsheet() {
    let csv = view::history_csv(&history(awkward_month()));
    insta::assert_snapshot!("csv", csv.lines().take(6).collect::<Vec<_>>().join("\n"));
    // 29 points: two of the thirty runs are one.
    assert_eq!(csv.matches("\r\n").count(), 1 + 29);
}

#[test]
fn a_month_is_a_picture() {
    let svg = view::history_svg(&history(awkward_month()));
    insta::assert_snapshot!("svg", svg);
    assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "a bare one is no XML");
    assert!(!svg.contains("<i>") && !svg.contains('\u{1b}'), "{svg}");
}

#[test]
fn a_change_names_the_brick_behind_it_and_what_else_was_new() {
    let history = history(of_month());
    let [change] = only(&history).changes.as_slice() else { panic!("{:?}", only(&history)) };
    let Change { at, is_slower, points_before, points_after, p, .. } = *change;
    assert_eq!((at, is_slower, points_before, points_after, p), (18, true, 18, 12, 0.0005));
    assert!((change.ratio - 283.0 / 300.0).abs() < 0.003, "{}", change.ratio);
    // 3333 µs a token became 3534: of these 201 the projections' 2000 to 2201 are all.
    let first = &change.bricks[0];
    assert_eq!(first.name, "QkvProjection");
    assert!((first.difference_ns.unwrap() - 201e3).abs() < 8e3, "{first:?}");
    assert!((first.of_change.unwrap() - 1.0).abs() < 0.03, "{first:?}");
    let new: Vec<&str> = change.differences.iter().map(|d| d.what.as_str()).collect();
    assert_eq!(new, ["binary", "boot"]);
}

/// What a machine does by itself: one program, process after process, as it was recorded
/// (`tests/data/noise.json`).
#[test]
fn a_recorded_machine_that_ran_one_program_rarely_has_a_change() {
    #[derive(serde::Deserialize)]
    struct Recorded {
        /// For each process and test its samples, of which the wall is the first figure.
        processes: Vec<Vec<Vec<Vec<u64>>>>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/noise.json");
    let text = std::fs::read_to_string(path).expect("it is there");
    let recorded: Recorded = serde_json::from_str(&text).expect("it is what was recorded");
    // Windows at every fifth process: 12 at a time up to 60, of prefill, then of decode.
    let mut counts = Vec::new();
    for test in [0, 1] {
        let runs = runs(recorded.processes.iter().enumerate().map(|(i, process)| {
            let rate = |sample: &Vec<u64>| 16e9 / sample[0] as f64;
            let rates = process[test].iter().map(rate).collect();
            Made { rates, when: (i as u32 / 60, i as u32 % 60), ..Made::default() }.receipt()
        }));
        for length in [15, 20, 30, 60] {
            let windows: Vec<&[Run]> = runs.windows(length).step_by(5).collect();
            let has_change = |window: &&&[Run]| {
                let history = History::of(window.to_vec(), Measure::TokensPerSecond);
                !only(&history).changes.is_empty()
            };
            let alarms = windows.iter().filter(has_change).count();
            counts.push((length, alarms, windows.len()));
        }
    }
    // The few are of two places in prefill: from process 37 on it took 8 % longer for twenty
    // processes, and before 58 three in a row took 30 % longer. In short windows that is a change.
    assert_eq!(
        counts,
        [
            (15, 2, 30),
            (20, 3, 29),
            (30, 2, 27),
            (60, 0, 21),
            (15, 0, 30),
            (20, 0, 29),
            (30, 0, 27),
            (60, 0, 21)
        ]
    );
}

#[test]
fn the_name_of_a_model_is_not_the_model() {
    let mut receipts = of_month();
    for (i, receipt) in receipts.iter_mut().enumerate() {
        receipt.model.name = None;
        receipt.model.path = if i < 20 { "a.gguf" } else { "b.gguf" }.to_owned();
    }
    let history = history(receipts);
    let series = only(&history);
    assert_eq!((series.points.len(), series.model.as_str()), (30, "b.gguf"));
    assert_eq!(series.changes.len(), 1);
    assert!(view::history(&history).contains("tg16: b.gguf q8_0 (5f5f5f5f)"));
}

#[test]
fn a_brick_has_a_history_of_its_own() {
    let history = History::of(runs(of_month()), Measure::Brick("QkvProjection".to_owned()));
    let [change] = only(&history).changes.as_slice() else { panic!("{:?}", only(&history)) };
    assert!(change.is_slower && change.ratio > 1.09 && change.ratio < 1.11, "{change:?}");
    assert!((change.before - 2e6).abs() < 1e4, "nanoseconds per token: {}", change.before);
    insta::assert_snapshot!("text_of_a_brick", view::history(&history));
    // The other brick took as long as ever.
    let history = History::of(runs(of_month()), Measure::Brick("LmHead".to_owned()));
    assert_eq!(only(&history).changes, []);
}

#[test]
fn without_bricks_a_change_says_so() {
    let mut receipts = month();
    receipts[20].projection = None;
    let mut receipts: Vec<Receipt> = receipts.iter().map(Made::receipt).collect();
    // As if it had been, so that it is on the same line.
    receipts[20].run.profiled = true;
    let history = history(receipts);
    let [change] = only(&history).changes.as_slice() else { panic!("{:?}", only(&history)) };
    assert!(change.bricks.is_empty() && change.bricks_absent.is_some());
}

#[test]
fn unlike_runs_are_never_on_one_line() {
    let unlike: [fn(&mut Receipt); 10] = [
        |r| r.model.sha256 = "0".repeat(64),
        |r| r.model.quantization = "q4_k".to_owned(),
        |r| r.run.threads = 1,
        |r| r.run.kernels = "scalar".to_owned(),
        |r| r.run.profiled = false,
        |r| r.tests[0].name = "tg32".to_owned(),
        |r| r.machine.cpu_id = Some("26/2/1".to_owned()),
        |r| r.machine.logical_cpus = Some(4),
        |r| r.machine.cgroup_cpus = Some(0.5),
        |r| r.backend = "cuda".to_owned(),
    ];
    for (i, change) in unlike.into_iter().enumerate() {
        let mut receipts = of_month();
        receipts[10..].iter_mut().for_each(change);
        assert_eq!(history(receipts).series.len(), 2, "case {i}");
    }
    // What may change on one machine.
    let alike: [fn(&mut Receipt); 5] = [
        // A decode pass has one token, whatever a batch may have.
        |r| r.run.batch = 64,
        |r| r.machine.boot = None,
        |r| r.machine.kernel = Some("6.2".to_owned()),
        |r| r.machine.memory_bytes = r.machine.memory_bytes.map(|bytes| bytes - 4096),
        |r| r.binary.version = "0.2.0".to_owned(),
    ];
    for change in alike {
        let mut receipts = of_month();
        receipts[10..].iter_mut().for_each(change);
        only(&history(receipts));
    }
}

#[test]
fn a_batch_counts_as_far_as_a_prompt_fills_it() {
    let with = |day, batch| {
        let mut receipt = Made { when: (day, 0), ..Made::default() }.receipt();
        receipt.run.batch = batch;
        let test = &mut receipt.tests[0];
        (test.name, test.n_prompt, test.n_gen) = ("pp512".to_owned(), 512, 0);
        receipt
    };
    only(&history([with(1, 512), with(2, 513)]));
    assert_eq!(history([with(1, 512), with(2, 256)]).series.len(), 2);
}

/// Six commits, a day each, on nine machines of which the last is 20 % slow; from the fourth commit on everything is 6 %
/// slower. That machine runs the last commit only, and another one only the first.
fn of_machines() -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for day in 0..6_u32 {
        let machines = (0..9_u32).filter(|m| (*m != 8 || day > 2) && (*m != 0 || day < 3));
        for m in machines {
            let noise = f64::from((day * 31 + m * 17) % 13) / 3000.0;
            let slow = if m == 8 { 0.8 } else { 1.0 } * if day > 2 { 0.94 } else { 1.0 };
            let rate = 300.0 * slow * (1.0 + noise);
            receipts.push(
                Made {
                    when: (day, 600 + m),
                    rates: vec![rate, rate * 1.002, rate * 0.998],
                    binary: day as u8,
                    boot: (10 * m + day) as u8,
                    machine: Some(format!("ci-{m}")),
                    ..Made::default()
                }
                .receipt(),
            );
        }
    }
    receipts
}

#[test]
fn of_several_machines_it_takes_commits_and_machines_apart() {
    let history = history(of_machines());
    let series = only(&history);
    let fleet = series.fleet.as_ref().unwrap();
    let named: Vec<&str> = fleet.changes.iter().map(|change| &*change.commit).collect();
    assert_eq!(named, ["03030303"], "{:?}", fleet.changes);
    assert!((fleet.changes[0].ratio - 0.94).abs() < 0.01);
    assert!(series.changes.is_empty() && series.levels.len() == 1);
    insta::assert_snapshot!(view::history(&history));
    insta::assert_snapshot!(view::history_markdown(&history));
    // Of one machine, or of machines without names, it is a history like any other.
    for name in [Some("ci-1".to_owned()), None] {
        let alike = of_machines().into_iter().map(|mut receipt| {
            match &name {
                Some(name) => receipt.environment.insert(MACHINE.to_owned(), name.clone()),
                None => receipt.environment.remove(MACHINE),
            };
            receipt
        });
        assert_eq!(only(&self::history(alike)).fleet, None);
    }
}

#[test]
fn runs_without_a_machine_are_counted_where_others_have_one() {
    let mut receipts = of_machines();
    receipts[7].environment.remove(MACHINE);
    let history = history(receipts);
    let fleet = only(&history).fleet.as_ref().unwrap();
    assert!(fleet.doubts.iter().any(|doubt| doubt.contains("1 run")), "{:?}", fleet.doubts);
}

#[test]
fn a_doubt_of_one_test_is_not_the_other_s() {
    let mut receipt = Made::default().receipt();
    let mut other = receipt.tests[0].clone();
    other.name = "tg160".to_owned();
    receipt.tests.push(other);
    receipt.load.doubts =
        ["tg16: disturbed", "tg160: disturbed", "all: loaded"].map(str::to_owned).to_vec();
    let doubts: Vec<Vec<String>> =
        history([receipt]).series.into_iter().map(|s| s.points[0].doubts.clone()).collect();
    assert_eq!(doubts, [["tg16: disturbed", "all: loaded"], ["tg160: disturbed", "all: loaded"]]);
}

#[test]
fn the_processes_of_a_set_are_one_point_with_their_spread() {
    let of_set = |process, rate, minute, binary| {
        let rates = vec![rate; 3];
        Made { rates, set: Some(("s", process, 3)), when: (0, minute), binary, ..Made::default() }
    };
    // Two programs in turns: each has a point.
    let made = [
        of_set(1, 290.0, 1, 1),
        of_set(1, 200.0, 2, 2),
        of_set(2, 300.0, 3, 1),
        of_set(2, 210.0, 4, 2),
        of_set(3, 320.0, 5, 1),
    ];
    let history = history(made.iter().map(Made::receipt));
    let [b, a] = only(&history).points.as_slice() else { panic!("{:?}", only(&history)) };
    let figures = a.figures.expect("measured");
    let near = |x: f64, y: f64| (x - y).abs() < 1e-3;
    assert!(near(figures.low, 290.0) && near(figures.median, 300.0) && near(figures.high, 320.0));
    assert_eq!((a.processes, a.processes_of, a.repetitions, a.sources.len()), (3, 3, 9, 3));
    assert_eq!((b.processes, b.processes_of), (2, 3));
    assert!(near(b.figures.expect("measured").median, 205.0));
}

#[test]
fn a_copy_of_a_receipt_counts_once_and_is_named() {
    let mut receipts = of_month();
    receipts.push(receipts[5].clone());
    let history = history(receipts);
    assert_eq!((history.runs, only(&history).points.len()), (30, 30));
    let [copy] = history.left_out.as_slice() else { panic!("{:?}", history.left_out) };
    assert_eq!(copy.path, "runs/5/receipt.json");
    assert_eq!(copy.reason, "the same receipt as runs/30/receipt.json");
}

#[test]
fn a_receipt_without_a_place_in_time_is_refused_with_the_reason() {
    let mut receipt = Made::default().receipt();
    receipt.timestamp = "soon".to_owned();
    assert_eq!(
        Run::of("x", &receipt).unwrap_err(),
        "its timestamp \"soon\" is not like 2026-01-31T23:59:59Z"
    );
    let mut receipt = Made::default().receipt();
    receipt.tests.push(receipt.tests[0].clone());
    assert_eq!(Run::of("x", &receipt).unwrap_err(), "it has two tests \"tg16\"");
}

#[test]
fn with_few_points_it_says_that_none_can_be_told() {
    let history = history(of_month().into_iter().skip(12).take(11));
    assert!(only(&history).changes.is_empty());
    let text = view::history(&history);
    assert!(text.contains("no change can be detected yet: 11 of the 12 points"), "{text}");
    assert!(view::history(&History::default()).starts_with("0 receipts in 0 series"));
    assert!(view::history_svg(&History::default()).contains("No run was read"));
}

/// Anything, as far as a receipt's types go.
fn any_made() -> impl Strategy<Value = (Made, Option<u64>, f64)> {
    let rates = prop::collection::vec(1.0..1e5f64, 0..4);
    let set = prop::option::of((prop::sample::select(vec!["a", "b"]), 1..4u32, 1..4u32));
    let machine = prop::option::of(prop::sample::select(vec!["ci-1", "ci-2", "ci-3"]));
    let made = (rates, 0..6u32, 0..3u32, prop::option::of(0.1..0.6f64), 0..2u8, set, machine)
        .prop_map(|(rates, day, minute, projection, binary, set, machine)| Made {
            when: (day, minute),
            rates,
            projection,
            binary,
            set,
            boot: binary,
            machine: machine.map(str::to_owned),
        });
    (made, prop::option::of(0..u64::MAX), any::<f64>())
}

proptest! {
    #![proptest_config(brickscope_testing::cases(64))]

    #[test]
    fn the_order_of_files_does_not_matter(
        made in prop::collection::vec(any_made(), 0..24),
        order in any::<u64>(),
    ) {
        let runs: Vec<Run> = made
            .iter()
            .enumerate()
            .filter_map(|(i, (made, ..))| Some(run((i, made.receipt().sealed().ok()?))))
            .collect();
        let mut shuffled = runs.clone();
        shuffled.sort_by_key(|run| {
            let name = format!("{run:?}");
            name.bytes().fold(order, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        });
        let [a, b] = [runs, shuffled].map(|runs| History::of(runs, Measure::TokensPerSecond));
        prop_assert_eq!(view::history_json(&a), view::history_json(&b));
        prop_assert!(a.runs <= made.len() as u64);
        let points: u64 = a.series.iter().flat_map(|s| &s.points).map(|p| p.processes).sum();
        prop_assert_eq!(points, a.runs, "each run is in one point");
    }

    #[test]
    fn hostile_receipts_do_not_panic(made in prop::collection::vec(any_made(), 1..16)) {
        let runs: Vec<Run> = made
            .iter()
            .enumerate()
            .filter_map(|(i, (made, huge, odd))| {
                let mut receipt = made.receipt();
                receipt.machine.cgroup_cpus = Some(*odd);
                for sample in receipt.tests[0].samples.iter_mut() {
                    let Some(huge) = huge else { continue };
                    sample.wall_ns = *huge;
                    sample.tokens = huge.rotate_left(7);
                    sample.brick_ns = vec![*huge; (huge % 4) as usize];
                }
                Run::of(&i.to_string(), &receipt).ok()
            })
            .collect();
        for measure in [Measure::TokensPerSecond, Measure::Brick("LmHead".to_owned())] {
            let history = History::of(runs.clone(), measure);
            let svg = view::history_svg(&history);
            prop_assert!(!svg.contains("NaN") && !svg.contains("\"inf"), "{}", svg);
            let texts = [
                view::history(&history),
                view::history_markdown(&history),
                view::history_csv(&history),
            ];
            prop_assert!(texts.iter().all(|text| !text.contains("NaN")), "{:?}", texts);
            prop_assert!(!view::history_json(&history).is_empty());
        }
    }
}
