//! Whether it is the commit or the machine, in words.

use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::text::{count, printable_text};
use brickscope_profile::time_rfc3339;

use crate::compare::Outcome;
use crate::fleet::{Cause, CommitChange, Explanation, Fleet, Judged, MachineLevel};
use crate::view::layout::field;
use crate::words::fraction;

/// What a fleet's runs say of commits and machines, under a line that names the work.
#[must_use]
pub fn fleet(fleet: &Fleet, work: &str) -> String {
    format!("{}\n{}", printable_text(work), fleet_lines(fleet))
}

/// The same without the line that names the work.
pub(super) fn fleet_lines(fleet: &Fleet) -> String {
    let mut text = String::new();
    let mut line = |label: &str, what: String| field(label, &printable_text(&what), &mut text);
    let sum = |count: fn(&MachineLevel) -> u64| fleet.machines.iter().map(count).sum::<u64>();
    line(
        "runs",
        format!(
            "{} of {} on {} in {}",
            sum(|machine| machine.runs),
            count(fleet.commits.len() as u64, "commit"),
            count(fleet.machines.len() as u64, "machine"),
            count(sum(|machine| machine.sessions), "session"),
        ),
    );
    for change in &fleet.changes {
        line(if change.named { "commit" } else { "can't tell" }, commit(change));
    }
    let is_told = |machine: &&MachineLevel| machine.slow || machine.since.is_some();
    for machine in fleet.machines.iter().filter(is_told) {
        line("machine", self::machine(machine));
    }
    // In so small a fleet no machine is called slow, since nobody knows what machines vary by.
    const FEW: usize = 8;
    for machine in fleet.machines.iter().filter(|machine| !is_told(machine)) {
        if fleet.machines.len() < FEW && machine.high < 0.95 {
            let beside = beside(
                machine.ratio,
                machine.low,
                machine.high,
                true,
                " than the one in the middle",
            );
            line(
                "not known",
                format!(
                    "whether {} is slow: it is {beside}, but too few machines tell what is usual",
                    machine.machine
                ),
            );
        }
    }
    let nothing =
        fleet.changes.is_empty() && !fleet.machines.iter().any(|machine| is_told(&machine));
    if nothing {
        // Where nothing can be compared, nothing was looked for.
        let among = match fleet.is_connected() {
            true => "",
            false => " among those that machines can compare",
        };
        line("found", format!("no commit that changes the speed{among}, and no slow machine"));
    }
    let spread = fleet.spread;
    line(
        "spread",
        format!(
            "machines {}, sessions of one {}, runs of one session {}",
            match spread.machines {
                0.0 if fleet.machines.iter().filter(|machine| machine.sessions > 1).count() < 2 => {
                    "not known".to_owned()
                }
                machines => fraction(machines),
            },
            fraction(spread.sessions),
            match fleet.machines.iter().any(|machine| machine.runs > machine.sessions) {
                true => fraction(spread.runs),
                // One run doesn't vary.
                false => "not known".to_owned(),
            }
        ),
    );
    for doubt in &fleet.doubts {
        match doubt.strip_prefix("can't tell: ") {
            Some(doubt) => line("can't tell", doubt.to_owned()),
            None => line("not known", doubt.clone()),
        }
    }
    text
}

/// `9d8e7f: 6.1 % slower than before it (4.0 to 8.1 %)`
fn commit(change: &CommitChange) -> String {
    let mut text = format!(
        "{}: {}",
        change.commit,
        beside(change.ratio, change.low, change.high, change.is_slower, " than before it")
    );
    if change.earliest != change.latest {
        text += &format!("; it may be any from {} to {}", change.earliest, change.latest);
    }
    if let Some(doubt) = &change.doubt {
        text += &format!("; {}", doubt.trim_start_matches("can't tell: "));
    }
    text
}

/// `ci-7: 12 % slower than the machine in the middle (9.8 to 14 %)`
fn machine(machine: &MachineLevel) -> String {
    let mut text = machine.machine.clone() + ": ";
    if machine.slow {
        let is_slower = true;
        let than = " than the machine in the middle";
        text += &beside(machine.ratio, machine.low, machine.high, is_slower, than);
    }
    if let Some(since) = &machine.since {
        let time = u64::try_from(since.time).ok();
        let time = time.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let day = time.map(|time| time_rfc3339(time).chars().take(10).collect::<String>());
        text += if machine.slow { "; itself " } else { "itself " };
        text += &beside(since.ratio, since.low, since.high, since.is_slower, " than before");
        text += &format!(" since {}", day.unwrap_or_else(|| "a time before 1970".to_owned()));
    }
    text
}

/// The difference of a ratio from 1 and from what, with its interval.
fn beside(ratio: f64, low: f64, high: f64, is_slower: bool, than: &str) -> String {
    let word = if is_slower { "slower" } else { "faster" };
    let [size, from, to] = [ratio, low, high].map(|ratio| 100.0 * (ratio - 1.0));
    // An interval with 0 in it has both signs.
    let interval = match (from < 0.0) == (to < 0.0) {
        true => format!("{:.1} to {:.1} %", from.abs().min(to.abs()), from.abs().max(to.abs())),
        false => format!("{from:+.1} to {to:+.1} %"),
    };
    format!("{:.1} % {word}{than} ({interval})", size.abs())
}

/// What two groups of runs differ by.
#[must_use]
pub fn explanation(explanation: &Explanation, before: &str, after: &str) -> String {
    let is_told = explanation.commit.is_known();
    let mut text = format!(
        "{}: {} beside {}\n",
        match explanation.cause {
            Cause::Inconclusive if !is_told => "can't tell".to_owned(),
            cause => format!("{cause:?}").to_lowercase(),
        },
        printable_text(after),
        printable_text(before)
    );
    let mut line = |label: &str, what: String| field(label, &printable_text(&what), &mut text);
    let reason = explanation.reason.strip_prefix("can't tell: ");
    line("because", reason.unwrap_or(&explanation.reason).to_owned());
    let signed = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    line("together", signed(explanation.total));
    for (label, part) in [("commit", &explanation.commit), ("machine", &explanation.machine)] {
        if part.low == part.high {
            line(label, "the same on both sides".to_owned());
        } else if part.is_known() {
            let [ratio, low, high] = [part.ratio, part.low, part.high].map(signed);
            line(label, format!("{ratio} ({low} to {high})"));
        }
    }
    if let Some(wanted) = &explanation.wanted {
        line("try", format!("run {} on {}: that would tell", wanted.commit, wanted.machine));
    }
    text
}

/// Whether a commit is slower than those before it, under a line that names the work.
#[must_use]
pub fn judged(judged: &Judged, work: &str) -> String {
    let before = match &judged.before[..] {
        [first, .., last] => format!("{} commits from {first} to {last}", judged.before.len()),
        one => one.concat(),
    };
    let outcome = match judged.outcome {
        Outcome::Pass => "not slower",
        Outcome::Slower => "slower",
        Outcome::Inconclusive => "not decided",
    };
    let mut text = format!("{}: {outcome}\n", printable_text(work));
    text += &explanation(&judged.explanation, &before, &judged.commit);
    if let Some(doubt) = &judged.doubt {
        field("but", &printable_text(doubt), &mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Observation;

    fn runs() -> (Vec<Observation>, Vec<String>) {
        let commits: Vec<String> = (0..12).map(|c| format!("c{c}")).collect();
        let mut runs = Vec::new();
        for (c, commit) in commits.iter().enumerate() {
            for m in 0..8_usize {
                for run in 0..2_usize {
                    let noise = ((c * 31 + m * 17 + run * 7) % 13) as f64 / 1000.0;
                    let of_machine = if m == 3 { 0.8 } else { 1.0 + (m % 3) as f64 / 200.0 };
                    let of_commit = if c < 6 { 100.0 } else { 94.0 };
                    runs.push(Observation {
                        machine: format!("m{m}"),
                        commit: commit.clone(),
                        session: format!("day {c}"),
                        time: 1_790_000_000 + 86_400 * c as i64,
                        value: of_commit * of_machine * (1.0 + noise),
                    });
                }
            }
        }
        (runs, commits)
    }

    #[test]
    fn the_commit_and_the_machine_are_named_with_their_sizes() {
        let (runs, order) = runs();
        let found = Fleet::fit(&runs, &order, false).expect("runs");
        let text = fleet(&found, "llama.cpp, 1b q8_0, tg128");
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let of = |commit: &str| -> Vec<Observation> {
            runs.iter().filter(|run| run.commit == commit).cloned().collect()
        };
        let why = found.explain(&of("c5"), &of("c6")).expect("both were measured");
        insta::assert_snapshot!(explanation(&why, "c5", "c6"));
    }
}
