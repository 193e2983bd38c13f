//! Fleets whose truth is known: is what was planted named as what it is, and nothing else?
//!
//! `FLEETS=100 SAME=1000 cargo test --workspace --all-features --test analysis fleet:: -- --ignored --nocapture` prints
//! the table of the documentation.

mod designs;
mod little;
mod made;

use self::little::Little;
use self::made::{Made, Mistakes, Noise, Oracle, Random};
use brickscope_analysis::compare::Outcome;
use brickscope_analysis::fleet::{Cause, Fleet, FleetError, Limits, Observation};
use brickscope_profile::stats::SplitMix64;
use proptest::prelude::*;

/// Fleets with something planted, and without: those that were wrong.
fn wrong(name: &str, made: &Made, planted: u64, same: u64, oracle: bool) -> [u64; 2] {
    let mut wrong = [0, 0];
    let mut all = Mistakes::default();
    let mut known = [0, 0];
    let oracle = oracle.then(|| Oracle::new(made));
    for seed in 0..planted {
        let truth = made.fleet(seed);
        let fleet = Fleet::fit(&truth.runs, &truth.order, false).expect("it has runs");
        let mistakes = Mistakes::of(&truth, &fleet);
        wrong[0] += u64::from(!mistakes.none());
        all.add(&mistakes);
        if let Some(oracle) = &oracle {
            let is_right = oracle.is_right(&truth);
            known.iter_mut().zip(is_right).for_each(|(known, is)| *known += u64::from(is));
        }
    }
    let without = Made { slow: 0, steps: 0, ..made.clone() };
    let mut added = Mistakes::default();
    for seed in 0..same {
        let truth = without.fleet(1_000_000 + seed);
        let fleet = Fleet::fit(&truth.runs, &truth.order, false).expect("it has runs");
        let mistakes = Mistakes::of(&truth, &fleet);
        wrong[1] += u64::from(!mistakes.none());
        added.add(&mistakes);
    }
    println!(
        "| {name} | {} of {planted} | {known:?} | {}, {} nearby | {} | {} | {} | {} of {same} | {} | {} |",
        planted - wrong[0],
        all.commits_missed,
        all.commits_nearby,
        all.commits_added,
        all.machines_missed,
        all.machines_added,
        wrong[1],
        added.commits_added,
        added.machines_added,
    );
    wrong
}

/// Prints the designs, and those of which a figure is worse than this: right and undecided, of 100 fleets.
fn by_design(fleets: u64, least: usize) -> Vec<String> {
    println!(
        "| design | size | right | by an oracle | false names | undecided | intervals of explanations hold | of changes | a gate's false alarms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for design in designs::all() {
        let tally = design.tally(fleets);
        let [held, told] = tally.held;
        let [of_changes, changes] = tally.held_by_changes;
        println!(
            "| {} | {:.1} % | {} | {} | {} | {} | {held} of {told} | {of_changes} of {changes} | {} |",
            design.name,
            100.0 * design.size,
            tally.right,
            tally.oracle,
            tally.false_names,
            tally.undecided,
            tally.false_alarms,
        );
        let part = |of: usize, all: usize| 100 * of >= least * all;
        let is_fine = part(tally.right, tally.fleets)
            && part(tally.fleets - tally.false_names, tally.fleets)
            && part(tally.fleets - tally.false_alarms, tally.fleets)
            && (!design.is_undecidable() || part(tally.undecided, tally.fleets))
            && part(held, told)
            && part(of_changes, changes);
        if !is_fine {
            wrong.push(format!("{design:?}: {tally:?}"));
        }
    }
    wrong
}

#[test]
fn each_design_is_told_as_far_as_it_can_be() {
    // The rates are in the table; here fleets are few, and always the same.
    let wrong = by_design(10, 80);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_interval_of_a_commits_part_holds_the_truth() {
    let wanted =
        ["two commits", "8 to 11, reverted", "days vary, two commits", "three commits, the last"];
    for design in designs::all().iter().filter(|design| wanted.contains(&design.name)) {
        let tally = design.tally(100);
        let [held, told] = tally.held;
        assert!(told > 80 && 100 * held >= 93 * told, "{design:?}: {tally:?}");
    }
}

#[test]
fn one_commit_is_never_slower_than_itself() {
    // On two machines, of which one is nearly twice as fast, in one session each and in several.
    for days in [1, 5] {
        let mut small = Small::new(11);
        for day in 0..days {
            small.session(0, 0, day, 1e6);
            small.session(1, 0, day, 1.9e6);
        }
        let fleet = small.fit();
        assert_eq!(fleet.changes, []);
        let explained = fleet.explain(&small.of(0, &[0]), &small.of(0, &[1])).expect("known runs");
        let commit = explained.commit;
        assert_eq!((commit.ratio, commit.low, commit.high), (1.0, 1.0, 1.0), "{explained:?}");
        let cause = if days == 1 { Cause::Inconclusive } else { Cause::Machine };
        assert_eq!(explained.cause, cause, "{explained:?}");
    }
}

#[test]
fn what_was_planted_is_named_as_what_it_is_and_nothing_else() {
    let (mut all, mut named) = (0, 0);
    for in_turns in [false, true] {
        let made = Made { in_turns, ..Made::default() };
        let [wrong, without] = wrong(&format!("{in_turns}"), &made, 6, 6, false);
        all += wrong;
        named += without;
    }
    // The rates are in the table. This one is 99 of 100, or more.
    assert!(all <= 1 && named == 0, "{all} of 12 wrong; {named} of 12 without anything");
}

#[test]
#[ignore = "takes minutes"]
fn table() {
    let number =
        |name: &str, usual| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (planted, same) = (number("FLEETS", 100), number("SAME", 100));
    let wrong = by_design(planted, 93);
    println!();
    println!(
        "| noise, machines' spread, slow by, sessions | who runs | all right | machines by an oracle | commits missed | added | machines missed \
         | added | A/A named | commits | machines |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let usual = Made::default();
    let (decode, prefill) = (usual.clone(), Made { noise: Noise::Prefill, ..usual });
    let cases = [
        decode.clone(),
        Made { machine_sd: 0.025, ..decode.clone() },
        Made { machine_sd: 0.03, ..decode.clone() },
        Made { machine_sd: 0.025, slow_by: [0.13, 0.25], ..decode.clone() },
        Made { machine_sd: 0.03, slow_by: [0.15, 0.25], ..decode.clone() },
        Made { in_a_row: true, ..decode },
        prefill.clone(),
        Made { sessions: 6, ..prefill.clone() },
        Made { sessions: 6, machine_sd: 0.025, slow_by: [0.15, 0.25], ..prefill.clone() },
        Made { sessions: 6, in_a_row: true, ..prefill },
    ];
    for (c, case) in cases.into_iter().enumerate() {
        if number("CASE", c as u64) != c as u64 {
            continue;
        }
        for in_turns in [false, true] {
            let made = Made { in_turns, ..case.clone() };
            let who = if in_turns { "in turns" } else { "drawn" };
            let [low, high] = made.slow_by.map(|part| 100.0 * part);
            let name = format!(
                "{:?}{}, {:.1} %, {low:.0}–{high:.0} %, {} | {who}",
                made.noise,
                if made.in_a_row { " in a row" } else { "" },
                100.0 * made.machine_sd,
                made.sessions
            );
            self::wrong(&name, &made, planted, same, true);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How often the steps of small fleets are named, and nothing else; and how often anything is without a step.
fn little(case: &Little, planted: u64, same: u64) -> [u64; 2] {
    let order = case.order();
    let named = |case: &Little, seed: u64| -> Vec<String> {
        let runs = case.runs(&case.rows(seed));
        let fleet = Fleet::fit(&runs, &order, true).expect("it has runs");
        let changes = fleet.changes.into_iter().filter(|change| change.named);
        changes.map(|change| change.commit).collect()
    };
    let steps: Vec<&String> = case.at.iter().map(|at| &order[*at]).collect();
    let without = Little { at: Vec::new(), ..case.clone() };
    let right = (0..planted).filter(|seed| named(case, *seed).iter().eq(steps.iter().copied()));
    let wrong = (0..same).filter(|seed| !named(&without, 1_000_000 + seed).is_empty());
    [right.count() as u64, wrong.count() as u64]
}

/// How often a plain analysis of two ways finds the step, if it knows what chance does.
fn plainly(case: &Little, planted: u64) -> usize {
    let without = Little { at: Vec::new(), ..case.clone() };
    let mut chance: Vec<f64> =
        (0..1000).map(|seed| case.two_way(&without.rows(5_000_000 + seed)).0).collect();
    chance.sort_by(f64::total_cmp);
    let found = |seed: &u64| {
        let (best, at) = case.two_way(&case.rows(*seed));
        best > chance[996] && case.at == [at]
    };
    (0..planted).filter(found).count()
}

/// A step in the middle, so many standard errors large if nothing is missing.
fn in_the_middle(machines: usize, commits: usize, noise: f64, errors: f64) -> Little {
    let at = commits * 2 / 3;
    let cells = (machines * at * (commits - at)) as f64 / commits as f64;
    let step = errors * noise / cells.sqrt();
    Little { machines, commits, noise, at: vec![at], step, ..Little::default() }
}

#[test]
fn a_step_is_found_by_few_machines_of_which_one_is_very_slow() {
    let usual = Little::default();
    let step = Little { step: 0.03, ..usual.clone() };
    let long = Little { commits: 12, at: vec![7], ..step.clone() };
    let cases = [
        usual.clone(),
        Little { extra: 0, ..usual.clone() },
        Little { slow: 0.0, ..usual.clone() },
        Little { slow: 0.4, ..usual.clone() },
        Little { machines: 3, ..step.clone() },
        Little { machines: 4, slow: 0.1, ..step.clone() },
        Little { machines: 10, ..step.clone() },
        Little { machines: 5, commits: 20, at: vec![12], ..step.clone() },
        Little { missing: 0.3, ..long.clone() },
        Little { extra: 5, ..step.clone() },
        Little { sessions: 2, ..step.clone() },
        Little { at: vec![5], ..step.clone() },
        Little { at: vec![2, 4], ..step.clone() },
        Little { at: vec![3, 6, 9], ..long },
        Little { slow_runs: [0, 4], ..usual.clone() },
        Little { slow_runs: [4, 6], machines: 3, ..usual.clone() },
    ];
    for case in cases {
        let [right, named] = little(&case, 10, 10);
        assert!(right >= 9 && named == 0, "{right} of 10 right, {named} of 10 without: {case:?}");
    }
    // Here one machine ran both old and new commits.
    for slow_runs in [[0, 7], [7, 12]] {
        let case =
            Little { machines: 2, commits: 12, at: vec![7], slow_runs, extra: 0, ..usual.clone() };
        let fleet = Fleet::fit(&case.runs(&case.rows(1)), &case.order(), true).expect("runs");
        let [change] = &fleet.changes[..] else { panic!("{:?}", fleet.changes) };
        assert!(!change.named && change.doubt.is_some(), "{change:?}");
    }
}

#[test]
fn what_builds_differ_by_is_no_step() {
    // Without this the plain analysis names a step in nine of ten.
    let case = Little { commits: 20, luck: 0.01, ..Little::default() };
    let [_, named] = little(&case, 0, 40);
    assert!(named <= 2, "{named} of 40");
}

#[test]
#[ignore = "takes minutes"]
fn little_table() {
    let number =
        |name: &str, usual| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (planted, same) = (number("FLEETS", 100), number("SAME", 1000));
    let mut cases = Vec::new();
    let shapes =
        [(3, 4), (3, 6), (3, 12), (3, 20), (5, 4), (5, 6), (7, 6), (5, 20), (10, 6), (10, 20)];
    for (machines, commits) in shapes {
        for errors in [5.5, 8.0, 12.0] {
            cases.push(in_the_middle(machines, commits, 0.02, errors));
        }
        for (noise, sd) in [(Noise::Decode, 0.012), (Noise::Prefill, 0.04)] {
            let case = in_the_middle(machines, commits, sd, 8.0);
            cases.push(Little { recorded: Some(noise), ..case });
        }
    }
    for commits in [4, 6, 8, 12, 20, 40] {
        for luck in [0.002, 0.005, 0.01, 0.02] {
            let case = in_the_middle(7, commits, 0.005, 40.0);
            cases.push(Little { luck, ..case });
        }
    }
    println!(
        "| machines, commits | noise | step | luck | named | by a plain analysis | A/A named |"
    );
    println!("|---|---|---|---|---|---|---|");
    for case in cases {
        let [right, named] = little(&case, planted, same);
        let plain = plainly(&case, planted);
        let noise =
            case.recorded.map_or(format!("{:.1} %", 100.0 * case.noise), |n| format!("{n:?}"));
        println!(
            "| {}, {} | {noise} | {:.1} % | {:.1} % | {right} of {planted} | {plain} | {named} of {same} |",
            case.machines,
            case.commits,
            100.0 * case.step,
            100.0 * case.luck
        );
    }
}

/// A small fleet without disturbance: 1 % noise, drawn from a uniform distribution.
struct Small {
    random: Random,
    runs: Vec<Observation>,
}

impl Small {
    fn new(seed: u64) -> Self {
        Self { random: Random(SplitMix64(seed)), runs: Vec::new() }
    }

    /// One session of this commit on this machine, at a time in days, with this level in nanoseconds.
    fn session(&mut self, machine: usize, commit: usize, day: i64, level: f64) {
        let session = 0.01 * (self.random.part() - 0.5);
        for run in 0..3 {
            let value = level * (session + 0.02 * (self.random.part() - 0.5)).exp();
            self.runs.push(Observation {
                machine: format!("m{machine:02}"),
                commit: format!("c{commit:02}"),
                session: format!("day {day}"),
                time: 86_400 * day + run,
                value,
            });
        }
    }

    fn fit(&self) -> Fleet {
        Fleet::fit(&self.runs, &Fleet::order_by_time(&self.runs), true).expect("it has runs")
    }

    fn of(&self, commit: usize, machines: &[usize]) -> Vec<Observation> {
        let is_of = |run: &&Observation| {
            run.commit == format!("c{commit:02}")
                && machines.iter().any(|machine| run.machine == format!("m{machine:02}"))
        };
        self.runs.iter().filter(is_of).cloned().collect()
    }

    /// Ten machines, of which 9 is 20 % slow, and 20 commits on seven of them each, the newest of which is slower by a
    /// part. It was measured on two days.
    fn usual(newest: f64) -> Self {
        let mut small = Self::new(7);
        for commit in 0..20 {
            for i in 0..7 {
                let machine = (3 * commit + i) % 10;
                let own = 1.0 + 0.005 * ((machine * 7) % 5) as f64;
                let slow = if machine == 9 { 1.2 } else { 1.0 };
                let step = if commit == 19 { 1.0 + newest } else { 1.0 };
                let level = 1e6 * own * slow * step;
                small.session(machine, commit, commit as i64, level);
                if commit == 19 {
                    small.session(machine, commit, 20, level);
                }
            }
        }
        small
    }
}

#[test]
fn a_difference_is_explained_by_what_made_it() {
    // Commit 18 ran on 4 to 9 and 0, 19 on 7 to 9 and 0 to 3.
    let slower = Small::usual(0.06);
    let fleet = slower.fit();
    let named: Vec<&str> = fleet.changes.iter().map(|change| change.commit.as_str()).collect();
    assert_eq!(named, ["c19"], "{:?}", fleet.changes);
    assert!(fleet.changes[0].named && fleet.changes[0].is_slower);
    let slow: Vec<&str> =
        fleet.machines.iter().filter(|m| m.slow == Some(true)).map(|m| &*m.machine).collect();
    assert_eq!(slow, ["m09"]);

    let same = Small::usual(0.0);
    let fleet_of_same = same.fit();
    assert_eq!(fleet_of_same.changes, []);
    for (small, fleet, before, after, cause) in [
        (&slower, &fleet, &[4, 5, 6][..], &[1, 2, 3][..], Cause::Commit),
        (&slower, &fleet, &[4, 5, 6], &[9], Cause::Both),
        (&same, &fleet_of_same, &[4, 5, 6], &[9], Cause::Machine),
        (&same, &fleet_of_same, &[4, 5, 6], &[1, 2, 3], Cause::Neither),
    ] {
        let explained =
            fleet.explain(&small.of(18, before), &small.of(19, after)).expect("known runs");
        assert_eq!(explained.cause, cause, "{explained:?}");
        assert!(explained.wanted.is_none() && !explained.reason.is_empty());
        let is_slow = matches!(cause, Cause::Machine | Cause::Both);
        let is_within = |part: brickscope_analysis::fleet::Effect, truth: f64| {
            part.low < truth * 1.01
                && truth * 0.99 < part.high
                && part.low <= part.ratio
                && part.ratio <= part.high
        };
        assert!(is_within(explained.machine, if is_slow { 1.2 } else { 1.0 }), "{explained:?}");
        let step = if matches!(cause, Cause::Commit | Cause::Both) { 1.06 } else { 1.0 };
        assert!(is_within(explained.commit, step), "{explained:?}");
    }
}

#[test]
fn the_parts_of_a_difference_make_the_whole() {
    // Four machines, of which one is a fifth slow, and the newest commit on a fast one only: the fast one is beside a mean
    // that the slow one lowers, as all of its sessions are.
    let rate = |machine: usize, day: i64| {
        let of_machine = if machine == 2 { 0.8 } else { 1.0 };
        100.0 * of_machine * (1.0 + ((day * 31 + machine as i64 * 17) % 13) as f64 / 5000.0)
    };
    let run = |machine: usize, day: i64, commit: &str| Observation {
        machine: format!("m{machine}"),
        commit: commit.to_owned(),
        session: format!("day {day}"),
        time: 86_400 * day,
        value: rate(machine, day),
    };
    let mut known = Vec::new();
    for day in 0..6 {
        known.extend((0..4).map(|machine| run(machine, day, &format!("a{day}"))));
    }
    let new: Vec<Observation> = (6..10).map(|day| run(0, day, "a6")).collect();
    let judged = Fleet::judge(&known, &new, false, Limits::default()).expect("it has runs");
    let of = &judged.explanation;
    let sessions = of.sessions.expect("the parts are known");
    assert!((of.total / (of.commit.ratio * of.machine.ratio * sessions) - 1.0).abs() < 1e-9);
    assert!((of.total - 0.8_f64.powf(-0.25)).abs() < 0.01, "{of:?}");
    assert!((of.machine.ratio - 0.8_f64.powf(-0.25)).abs() < 0.01, "{of:?}");
    assert_eq!(of.machines, [vec!["m0", "m1", "m2", "m3"], vec!["m0"]]);
    let text = brickscope_analysis::view::explanation(of, "a0", "a6");
    assert!(text.contains(": m0 beside m0, m1, m2, m3"), "{text}");
}

#[test]
fn what_is_not_known_of_a_machine_is_absent_and_says_why() {
    let text = brickscope_analysis::view::fleet;
    // Of four machines one is a fifth slow, and nobody knows what machines vary by.
    let mut few = Small::new(3);
    for day in 0..6 {
        for machine in 0..4 {
            let level = if machine == 2 { 1.2e6 } else { 1e6 };
            few.session(machine, day, day as i64, level);
        }
    }
    let fleet = few.fit();
    let slow: Vec<Option<bool>> = fleet.machines.iter().map(|machine| machine.slow).collect();
    assert_eq!(slow, [Some(false), Some(false), None, Some(false)], "{:?}", fleet.machines);
    let doubt = fleet.machines[2].doubt.as_deref();
    assert_eq!(doubt, Some("too few machines tell what is usual"));
    assert!(text(&fleet, "tg128").contains("whether m02 is unusually"), "{fleet:?}");
    let json = serde_json::to_value(&fleet).expect("plain data");
    assert!(json["machines"][2]["slow"].is_null() && json["machines"][2]["doubt"].is_string());

    // A session each: machines can't be told from sessions.
    let mut once = Small::new(3);
    (0..4).for_each(|machine| once.session(machine, 0, 0, 1e6));
    let fleet = once.fit();
    for machine in &fleet.machines {
        assert_eq!((machine.level(), machine.slow), (None, None), "{machine:?}");
        assert_eq!(machine.doubt.as_deref(), Some("hardly a machine has two sessions"));
    }
    assert_eq!((fleet.spread.machines, fleet.least_change), (None, None));
    assert!(fleet.spread.runs.is_some(), "a session has three runs: {:?}", fleet.spread);
    let text = text(&fleet, "tg128");
    assert!(text.contains("machines not known") && !text.contains("no slow machine"), "{text}");
}

#[test]
fn where_no_change_is_found_it_is_said_how_large_one_had_to_be() {
    let fleet_of = |noise: f64| {
        let case = Little { at: Vec::new(), slow: 0.0, noise, sessions: 2, ..Little::default() };
        let runs = case.runs(&case.rows(4));
        Fleet::fit(&runs, &case.order(), true).expect("it has runs")
    };
    let [quiet, noisy] = [0.005, 0.2].map(fleet_of);
    assert!(quiet.changes.is_empty() && noisy.changes.is_empty());
    let [least, most] = [&quiet, &noisy].map(|fleet| fleet.least_change.expect("it has sessions"));
    assert!(0.009 < least && 2.0 * least < most && most > 0.1, "{least} {most}");
    let text = brickscope_analysis::view::fleet(&noisy, "tg128");
    let said = format!("changes below {:.1} % wouldn't show", 100.0 * most);
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&said), "{text}");
    assert!(!text.contains("no slow machine"), "nobody knows: {text}");
}

#[test]
fn intervals_of_95_percent_hold_the_truth_about_as_often() {
    const FLEETS: usize = 60;
    for noise in [Noise::Decode, Noise::Prefill] {
        let made = Made {
            machines: 8,
            commits: 16,
            machines_a_commit: [4, 8],
            sessions: 3,
            slow: 1,
            steps: 1,
            noise,
            ..Made::default()
        };
        let (mut of_commits, mut of_machines) = (0, 0);
        for seed in 0..FLEETS {
            let truth = made.fleet(seed as u64);
            let fleet = Fleet::fit(&truth.runs, &truth.order, false).expect("it has runs");
            let of = |commit: &str| -> Vec<Observation> {
                truth.runs.iter().filter(|run| run.commit == commit).cloned().collect()
            };
            let mean = |runs: &[Observation]| {
                let of_run = |run: &Observation| {
                    let at = fleet.machines.iter().position(|m| m.machine == run.machine);
                    truth.machine[at.expect("all machines ran")]
                };
                runs.iter().map(of_run).sum::<f64>() / runs.len() as f64
            };
            // The newest two commits are alike; their machines may not be.
            let [before, after] = [&truth.order[14], &truth.order[15]].map(|commit| of(commit));
            let explained = fleet.explain(&before, &after).expect("known runs");
            let machines = (mean(&before) - mean(&after)).exp();
            let is_within = |part: brickscope_analysis::fleet::Effect, truth: f64| {
                usize::from(part.low <= truth && truth <= part.high)
            };
            of_commits += is_within(explained.commit, 1.0);
            of_machines += is_within(explained.machine, machines);
        }
        println!("{noise:?}: {of_commits} and {of_machines} of {FLEETS}");
        assert!(of_commits >= 53 && of_machines >= 53, "{noise:?}: {of_commits}, {of_machines}");
    }
}

#[test]
fn what_was_only_seen_together_is_inconclusive() {
    // Two machines for the old commits, two others for the new ones.
    let mut small = Small::new(1);
    for commit in 0..12 {
        for machine in [0, 1] {
            let machine = if commit < 6 { machine } else { machine + 2 };
            small.session(machine, commit, commit as i64, if commit < 6 { 1e6 } else { 1.1e6 });
        }
    }
    let fleet = small.fit();
    assert!(fleet.changes.iter().all(|change| !change.named), "{:?}", fleet.changes);
    assert!(fleet.machines.iter().all(|m| m.slow != Some(true)), "{:?}", fleet.machines);
    assert_eq!(fleet.doubts.len(), 1, "{:?}", fleet.doubts);
    let explained =
        fleet.explain(&small.of(5, &[0, 1]), &small.of(6, &[2, 3])).expect("known runs");
    assert_eq!(explained.cause, Cause::Inconclusive);
    let wanted = explained.wanted.expect("a run that tells");
    assert_eq!((wanted.commit.as_str(), wanted.machine.as_str()), ("c05", "m02"));

    // It tells, when it was made.
    small.session(2, 5, 12, 1.1e6);
    small.session(3, 5, 12, 1.1e6);
    let order: Vec<String> = (0..12).map(|c| format!("c{c:02}")).collect();
    let fleet = Fleet::fit(&small.runs, &order, true).expect("it has runs");
    assert!(
        fleet.doubts.is_empty() && fleet.changes.iter().all(|change| !change.named),
        "{fleet:?}"
    );
    let explained =
        fleet.explain(&small.of(5, &[0, 1]), &small.of(6, &[2, 3])).expect("known runs");
    assert_eq!(explained.cause, Cause::Machine, "{explained:?}");
}

#[test]
fn commits_of_one_session_are_compared_within_it() {
    // Sessions differ by ten times what the commit changed; each runs the commit before as well.
    let (mut right, mut named) = (0, 0);
    for seed in 0..40 {
        for step in [1.02, 1.0] {
            let mut small = Small::new(seed);
            for commit in 1..20 {
                for machine in 0..5 {
                    let session = 0.2 * (small.random.part() - 0.5);
                    for of in [commit - 1, commit] {
                        let level = if of >= 10 { step } else { 1.0 };
                        for run in 0..3 {
                            let noise = 0.01 * (small.random.part() - 0.5);
                            small.runs.push(Observation {
                                machine: format!("m{machine:02}"),
                                commit: format!("c{of:02}"),
                                session: format!("day {commit}"),
                                time: 86_400 * commit as i64 + run,
                                value: 1e6 * level * (session + noise).exp(),
                            });
                        }
                    }
                }
            }
            let fleet =
                Fleet::fit(&small.runs, &Fleet::order_by_time(&small.runs), true).expect("runs");
            if step > 1.0 {
                let [change] = &fleet.changes[..] else { panic!("{:?}", fleet.changes) };
                right += usize::from(
                    change.commit == "c10"
                        && change.named
                        && change.low < 1.02
                        && 1.02 < change.high,
                );
                assert!(change.high - change.low < 0.01, "{change:?}");
                let of_both = fleet
                    .explain(&small.of(9, &[0, 1, 2]), &small.of(10, &[0, 1, 2]))
                    .expect("known runs");
                assert_eq!(of_both.cause, Cause::Commit, "{of_both:?}");
            } else {
                named += fleet.changes.len();
            }
        }
    }
    println!("{right} of 40 right; of 40 without {named}");
    assert!(right >= 36 && named <= 1, "{right} of 40; of 40 without {named}");
}

#[test]
fn one_machine_may_have_changed_itself() {
    let mut small = Small::new(2);
    for commit in 0..20 {
        small.session(0, commit, commit as i64, if commit < 10 { 1e6 } else { 1.1e6 });
    }
    let fleet = small.fit();
    let [change] = &fleet.changes[..] else { panic!("{:?}", fleet.changes) };
    assert!(!change.named && change.commit == "c10", "{change:?}");
    assert!(change.doubt.as_ref().is_some_and(|doubt| doubt.starts_with("can't tell: only m00")));
    let explained = fleet.explain(&small.of(9, &[0]), &small.of(10, &[0])).expect("known runs");
    assert_eq!(explained.cause, Cause::Inconclusive, "{explained:?}");
}

#[test]
fn a_machine_that_became_slow_has_a_date() {
    let mut small = Small::new(3);
    for commit in 0..40 {
        for machine in 0..8 {
            let is_slow = machine == 5 && commit >= 25;
            let step = if commit >= 12 { 1.04 } else { 1.0 };
            small.session(
                machine,
                commit,
                commit as i64,
                1e6 * step * if is_slow { 1.12 } else { 1.0 },
            );
        }
    }
    let fleet = small.fit();
    let named: Vec<&str> = fleet.changes.iter().map(|change| change.commit.as_str()).collect();
    assert_eq!(named, ["c12"], "{:?}", fleet.changes);
    for machine in &fleet.machines {
        assert_eq!(machine.slow, Some(machine.machine == "m05"), "{machine:?}");
        let since = machine.since.map(|since| since.time / 86_400);
        assert_eq!(since, (machine.machine == "m05").then_some(25), "{machine:?}");
    }
    let since = fleet.machines[5].since.expect("just seen");
    assert!(
        since.is_slower && since.low < 1.12 && 1.12 < since.high && since.high - since.low < 0.02,
        "{since:?}"
    );
}

#[test]
fn a_fleet_that_was_replaced_says_nothing_of_the_commit() {
    // Ten old machines, of which two stay, and eight new ones of a slower batch that came with commit 10.
    let mut small = Small::new(4);
    for commit in 0..20 {
        for i in 0..5 {
            let place = (commit * 3 + i * 2) % 10;
            let machine = if commit < 10 || place < 3 { place } else { place + 10 };
            small.session(machine, commit, commit as i64, if machine < 10 { 1e6 } else { 1.05e6 });
        }
    }
    let fleet = small.fit();
    assert!(fleet.changes.iter().all(|change| !change.named), "{:?}", fleet.changes);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let small = Small::usual(0.0);
    let order = Fleet::order_by_time(&small.runs);
    assert_eq!(Fleet::fit(&[], &order, true), Err(FleetError::Empty));
    let with = |value| {
        let mut runs = small.runs.clone();
        runs[3].value = value;
        Fleet::fit(&runs, &order, true).err()
    };
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(with(value), Some(FleetError::Value { index: 3 }));
    }
    let unknown = FleetError::UnknownCommit { commit: order[0].clone() };
    assert_eq!(Fleet::fit(&small.runs, &order[1..], true), Err(unknown));
    let twice = [&order[..], &order[..1]].concat();
    let error = FleetError::CommitTwice { commit: order[0].clone() };
    assert_eq!(Fleet::fit(&small.runs, &twice, true), Err(error));
    let fleet = small.fit();
    assert_eq!(fleet.explain(&small.runs, &[]).err(), Some(FleetError::Empty));
    let elsewhere = vec![Observation { machine: "other".to_owned(), ..small.runs[0].clone() }];
    assert_eq!(
        fleet.explain(&small.runs, &elsewhere).err(),
        Some(FleetError::UnknownMachine { machine: "other".to_owned() })
    );
}

/// Small fleets of any shape: figures of any size, or near to each other.
fn any_runs() -> impl Strategy<Value = Vec<Observation>> {
    let value = prop_oneof![
        8 => 90.0..110.0f64,
        1 => any::<f64>().prop_map(f64::abs).prop_filter("a figure", |x| x.is_normal()),
        1 => Just(100.0),
    ];
    let run =
        (0..6usize, 0..8usize, 0..4usize, -5..50i64, value).prop_map(|(m, c, s, time, value)| {
            Observation {
                machine: format!("m{m}"),
                commit: format!("c{c}"),
                session: format!("s{s}"),
                time,
                value,
            }
        });
    prop::collection::vec(run, 1..80)
}

proptest! {
    #![proptest_config(brickscope_testing::cases(48))]

    #[test]
    fn the_order_of_runs_does_not_matter(runs in any_runs(), seed in any::<u64>()) {
        let order = Fleet::order_by_time(&runs);
        let mut others = runs.clone();
        SplitMix64(seed).shuffle(&mut others);
        prop_assert_eq!(Fleet::order_by_time(&others), order.clone());
        prop_assert_eq!(Fleet::fit(&runs, &order, true), Fleet::fit(&others, &order, true));
    }

    #[test]
    fn the_unit_does_not_matter(seed in any::<u64>(), scale in 1e-6..1e6f64) {
        let made = Made { machines: 12, commits: 14, machines_a_commit: [4, 8], slow: 1, steps: 1, ..Made::default() };
        let truth = made.fleet(seed);
        let mut scaled = truth.runs.clone();
        scaled.iter_mut().for_each(|run| run.value *= scale);
        let [a, b] = [&truth.runs, &scaled].map(|runs| Fleet::fit(runs, &truth.order, false).expect("runs"));
        prop_assert_eq!(a.changes.len(), b.changes.len());
        for (a, b) in a.changes.iter().zip(&b.changes) {
            prop_assert_eq!((&a.commit, a.named), (&b.commit, b.named));
            prop_assert!((a.ratio / b.ratio - 1.0).abs() < 1e-6, "{:?} {:?}", a, b);
        }
        for (a, b) in a.machines.iter().zip(&b.machines) {
            prop_assert_eq!((&a.machine, a.slow), (&b.machine, b.slow));
            let ratios = a.ratio.zip(b.ratio).expect("many machines have many sessions");
            prop_assert!((ratios.0 / ratios.1 - 1.0).abs() < 1e-6, "{:?} {:?}", a, b);
        }
        for (a, b) in a.commits.iter().zip(&b.commits) {
            prop_assert!((a.value * scale / b.value - 1.0).abs() < 1e-6, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn a_rate_is_a_time_upside_down(seed in any::<u64>()) {
        let made = Made { machines: 12, commits: 14, machines_a_commit: [4, 8], slow: 1, steps: 1, ..Made::default() };
        let truth = made.fleet(seed);
        let mut times = truth.runs.clone();
        times.iter_mut().for_each(|run| run.value = 1.0 / run.value);
        let rates = Fleet::fit(&truth.runs, &truth.order, false).expect("runs");
        let times = Fleet::fit(&times, &truth.order, true).expect("runs");
        let of = |fleet: &Fleet| {
            let changes: Vec<_> = fleet.changes.iter().map(|c| (c.commit.clone(), c.is_slower, c.named)).collect();
            let machines: Vec<_> = fleet.machines.iter().map(|m| (m.machine.clone(), m.slow)).collect();
            (changes, machines)
        };
        prop_assert_eq!(of(&rates), of(&times));
    }

    #[test]
    fn nothing_panics_and_no_figure_is_absent(
        runs in any_runs(),
        odd in prop::collection::vec((any::<prop::sample::Index>(), any::<f64>()), 0..3),
        limit in any::<f64>(),
        is_time in any::<bool>(),
    ) {
        let mut hostile = runs.clone();
        odd.iter().for_each(|(index, value)| index.get_mut(&mut hostile[..]).value = *value);
        let order = Fleet::order_by_time(&hostile);
        let limits = Limits { machine: limit, commit: -limit };
        let _ = Fleet::fit_with(&hostile, &order, is_time, limits);
        let fleet = Fleet::fit(&runs, &order, is_time).expect("figures");
        let json = serde_json::to_string(&fleet).expect("plain data");
        // An infinite or undefined one is `null` there, and only what may be absent is.
        let absent = [
            r#""ratio":null,"low":null,"high":null"#,
            r#""machines":null,"machines_at_most":null"#,
            r#""runs":null"#,
            r#""least_change":null"#,
            r#""slow":null"#,
            r#""since":null"#,
            r#""doubt":null"#,
        ];
        let text = absent.iter().fold(json.clone(), |text, absent| text.replace(absent, ""));
        prop_assert!(!text.contains("null"), "{}", json);
        let half = runs.len() / 2;
        if half > 0 {
            let explained = fleet.explain(&runs[..half], &runs[half..]).expect("known runs");
            prop_assert!(!explained.reason.contains("NaN"), "{:?}", explained);
        }
    }
}

/// The newest commit is measured in this many sessions of machines that take turns, a day each, `slower` times as slow.
fn judged(seed: u64, sessions: usize, slower: f64, noise: Noise) -> Outcome {
    let made = Made {
        machines: 20,
        commits: 12,
        machines_a_commit: [8, 12],
        slow: 1,
        steps: 0,
        noise,
        ..Made::default()
    };
    let truth = made.fleet(seed);
    let newest = truth.order.last().expect("a commit");
    let (new, mut known): (Vec<_>, Vec<_>) =
        truth.runs.iter().cloned().partition(|run| run.commit == *newest);
    let mut wanted: Vec<(&str, &str)> =
        new.iter().map(|run| (&*run.machine, &*run.session)).collect();
    wanted.dedup();
    // The first session of some machines.
    wanted.dedup_by_key(|(machine, _)| *machine);
    wanted.truncate(sessions);
    let mut new: Vec<Observation> = new
        .iter()
        .filter(|run| wanted.contains(&(&*run.machine, &*run.session)))
        .cloned()
        .collect();
    new.iter_mut().for_each(|run| run.value /= slower);
    // Each on a day of its own: of one day nothing can be told.
    for run in &mut new {
        let nth = wanted.iter().position(|of| *of == (&*run.machine, &*run.session));
        run.session = format!("day {nth:?}");
        run.time += 86_400 * nth.map_or(0, |nth| nth as i64);
    }
    known.retain(|run| run.commit != *newest);
    Fleet::judge(&known, &new, false, Limits { commit: 0.03, ..Limits::default() })
        .expect("it has runs")
        .outcome
}

#[test]
fn a_gate_lets_unchanged_commits_pass_and_finds_slower_ones() {
    const FLEETS: u64 = 60;
    for noise in [Noise::Decode, Noise::Prefill] {
        let outcomes = |sessions, slower| -> Vec<Outcome> {
            (0..FLEETS).map(|seed| judged(seed, sessions, slower, noise)).collect()
        };
        let count =
            |all: &[Outcome], outcome| all.iter().filter(|of| **of == outcome).count() as u64;
        for sessions in [1, 3] {
            let wrong = count(&outcomes(sessions, 1.0), Outcome::Slower);
            let slower = outcomes(sessions, 1.25);
            let right = count(&slower, Outcome::Slower);
            let missed = count(&slower, Outcome::Pass);
            println!(
                "{noise:?}, {sessions} sessions: {wrong} wrong, {right} right, {missed} missed"
            );
            assert!(
                wrong <= 2,
                "{noise:?}, {sessions} sessions: {wrong} of {FLEETS} unchanged ones"
            );
            let few = if sessions == 1 { 2 } else { 0 };
            assert!(missed <= few, "{noise:?}, {sessions} sessions: {missed} slower ones pass");
            assert!(sessions == 1 || right >= FLEETS * 9 / 10, "{noise:?}: {right}");
        }
    }
}
