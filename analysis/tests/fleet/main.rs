//! Fleets whose truth is known: is what was planted named as what it is, and nothing else?

mod made;

use brickscope_analysis::fleet::Fleet;
use made::{Made, Mistakes, Noise};

/// Fleets with something planted, and without: those that were wrong.
fn table(name: &str, made: &Made, planted: u64, same: u64) -> [u64; 2] {
    let mut wrong = [0, 0];
    let mut all = Mistakes::default();
    for seed in 0..planted {
        let truth = made.fleet(seed);
        let fleet = Fleet::fit(&truth.runs, &truth.order, false).expect("it has runs");
        let mistakes = Mistakes::of(&truth, &fleet);
        wrong[0] += u64::from(!mistakes.none());
        all.commits_missed += mistakes.commits_missed;
        all.commits_added += mistakes.commits_added;
        all.commits_nearby += mistakes.commits_nearby;
        all.machines_missed += mistakes.machines_missed;
        all.machines_added += mistakes.machines_added;
    }
    let without = Made { slow: 0, steps: 0, ..made.clone() };
    let (mut commits, mut machines) = (0, 0);
    for seed in 0..same {
        let truth = without.fleet(1_000_000 + seed);
        let fleet = Fleet::fit(&truth.runs, &truth.order, false).expect("it has runs");
        let mistakes = Mistakes::of(&truth, &fleet);
        wrong[1] += u64::from(!mistakes.none());
        commits += mistakes.commits_added;
        machines += mistakes.machines_added;
    }
    println!(
        "| {name} | {} of {planted} | {} ({} in the interval) | {} | {} | {} | {} of {same} | {commits} | {machines} |",
        planted - wrong[0],
        all.commits_missed,
        all.commits_nearby,
        all.commits_added,
        all.machines_missed,
        all.machines_added,
        wrong[1],
    );
    wrong
}

const HEAD: &str = "| fleet | right | commits missed | added | machines missed | added | A/A named | commits | machines |\n\
                    |---|---|---|---|---|---|---|---|---|";

#[test]
#[ignore = "takes minutes"]
fn long() {
    let n = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (planted, same) = (n("FLEETS", 100), n("SAME", 100));
    println!("{HEAD}");
    for noise in [Noise::Decode, Noise::Prefill] {
        for machine_sd in [0.02, 0.025, 0.03] {
            for in_turns in [false, true] {
                let made = Made { noise, machine_sd, in_turns, ..Made::default() };
                let name = format!("{noise:?}, machines ± {:.1} %, in turns: {in_turns}", 100.0 * machine_sd);
                table(&name, &made, planted, same);
            }
        }
    }
}
