//! Whether it is the commit or the machine, in words.

use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::text::{count, printable_text};
use brickscope_profile::time_rfc3339;

use crate::compare::Outcome;
use crate::fleet::{Cause, CommitChange, Explanation, Fleet, Judged, MachineLevel};
use crate::view::layout::field;
use crate::words::fraction;

/// More machines are counted, and not named.
const MOST_NAMES: usize = 4;

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
    let is_told = |machine: &&MachineLevel| machine.slow == Some(true) || machine.since.is_some();
    for machine in fleet.machines.iter().filter(is_told) {
        line("machine", self::machine(machine));
    }
    let unknown =
        fleet.machines.iter().filter(|machine| !is_told(machine) && machine.doubt.is_some());
    // Else all are drawn to the same level, which says nothing of any.
    let are_apart = fleet.spread.machines != Some(0.0) || unknown.clone().count() < 2;
    if !are_apart {
        let names: Vec<&str> = unknown.clone().map(|of| &*of.machine).collect();
        let machines = match names.len() {
            n if n > MOST_NAMES => count(n as u64, "machine"),
            _ => names.join(", "),
        };
        line(
            "not known",
            format!(
                "which of {machines} is slow: they vary by no more than sessions of one of them do"
            ),
        );
    }
    for machine in unknown.filter(|_| are_apart) {
        if let (Some([ratio, low, high]), Some(doubt)) = (machine.level(), &machine.doubt) {
            let is_slower = (ratio > 1.0) == fleet.is_time();
            let than = "the one in the middle";
            let beside = beside(ratio, low, high, is_slower, than);
            line(
                "not known",
                format!(
                    "whether {} is unusually slow: it is {beside}, but {doubt}",
                    machine.machine
                ),
            );
        }
    }
    let nothing =
        fleet.changes.is_empty() && !fleet.machines.iter().any(|machine| is_told(&machine));
    if nothing {
        line("found", nothing_found(fleet));
    }
    let spread = fleet.spread;
    let known = |spread: Option<f64>| spread.map_or("not known".to_owned(), fraction);
    line(
        "spread",
        format!(
            "machines {}, sessions of one {}, runs of one session {}",
            match (spread.machines, spread.machines_at_most) {
                (Some(0.0), Some(most)) if most > 0.0 => format!("less than {}", fraction(most)),
                (machines, _) => known(machines),
            },
            fraction(spread.sessions),
            known(spread.runs),
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

/// That nothing has a name, and how much would have had one.
fn nothing_found(fleet: &Fleet) -> String {
    // Where nothing can be compared, nothing was looked for.
    let among = match fleet.is_connected() {
        true => "",
        false => " among those that machines can compare",
    };
    let mut text = format!("no commit that changes the speed{among}");
    if fleet.machines.iter().all(|machine| machine.slow == Some(false)) {
        text += ", and no slow machine";
    }
    // One commit changes nothing.
    if fleet.commits.len() > 1 {
        text += &match fleet.least_change {
            // As 100 %, which is no speed at all.
            Some(least) if least < 0.999_5 || fleet.is_time() => {
                format!("; changes below {} wouldn't show", fraction(least))
            }
            _ => "; no change would show in so few sessions".to_owned(),
        };
    }
    text
}

/// `9d8e7f: 6.1 % slower than before it (4.0 to 8.1 %)`
fn commit(change: &CommitChange) -> String {
    let mut text = format!(
        "{}: {}",
        change.commit,
        beside(change.ratio, change.low, change.high, change.is_slower, "before it")
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
    let slow = machine.level().filter(|_| machine.slow == Some(true));
    if let Some([ratio, low, high]) = slow {
        let is_slower = true;
        let than = "the machine in the middle";
        text += &beside(ratio, low, high, is_slower, than);
    }
    if let Some(since) = &machine.since {
        let time = u64::try_from(since.time).ok();
        let time = time.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let day = time.map(|time| time_rfc3339(time).chars().take(10).collect::<String>());
        text += if slow.is_some() { "; itself " } else { "itself " };
        text += &beside(since.ratio, since.low, since.high, since.is_slower, "before");
        text += &format!(" since {}", day.unwrap_or_else(|| "a time before 1970".to_owned()));
    }
    text
}

/// The difference of a ratio from 1, and from what, with its interval.
fn beside(ratio: f64, low: f64, high: f64, is_slower: bool, than: &str) -> String {
    let [size, from, to] = [ratio, low, high].map(|ratio| 100.0 * (ratio - 1.0));
    // An interval with 0 in it has both signs.
    let interval = match (from < 0.0) == (to < 0.0) {
        true => format!("{:.1} to {:.1} %", from.abs().min(to.abs()), from.abs().max(to.abs())),
        false => format!("{from:+.1} to {to:+.1} %"),
    };
    let by = format!("{:.1} %", size.abs());
    // Less isn't printed, and is neither.
    match &*by {
        "0.0 %" => format!("as fast as {than} ({interval})"),
        _ if is_slower => format!("{by} slower than {than} ({interval})"),
        _ => format!("{by} faster than {than} ({interval})"),
    }
}

/// What a fleet's runs were made beside, each a sentence, after what they say.
#[must_use]
pub fn doubts_of_fleet(doubts: &[String]) -> String {
    let mut text = String::new();
    doubts.iter().for_each(|doubt| field("but", &printable_text(doubt), &mut text));
    text
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
            let of = if label == "machine" { of_machines(explanation) } else { String::new() };
            line(label, format!("{ratio} ({low} to {high}){of}"));
        }
    }
    // Less than that is 0.0 %.
    if let Some(sessions) = explanation.sessions.filter(|ratio| (ratio - 1.0).abs() >= 0.000_5) {
        line("sessions", format!("{} that neither explains", signed(sessions)));
    }
    if let Some(wanted) = &explanation.wanted {
        line("try", format!("run {wanted}: that would tell"));
    }
    text
}

/// `: m0 beside m0, m1, m2`: the machines' part is of all sessions of either side, not of a machine in the middle.
fn of_machines(explanation: &Explanation) -> String {
    let [before, after] = names_of_machines(explanation);
    format!(": {after} beside {before}")
}

/// The machines of those before, and of those after.
fn names_of_machines(explanation: &Explanation) -> [String; 2] {
    explanation.machines.each_ref().map(|machines| match machines.len() {
        n if n > MOST_NAMES => count(n as u64, "machine"),
        _ => machines.join(", "),
    })
}

/// Whether a commit is slower than those before it, under a line that names the work.
#[must_use]
pub fn judged(judged: &Judged, work: &str) -> String {
    let outcome = match judged.outcome {
        Outcome::Pass => "not slower",
        Outcome::Slower => "slower",
        Outcome::Inconclusive => "not decided",
    };
    let mut text = format!("{}: {outcome}\n", printable_text(work));
    let mut line = |label: &str, what: String| field(label, &printable_text(&what), &mut text);
    let explanation = &judged.explanation;
    if let Some(slower) = judged.slower {
        line("commit", format!("{}: {}", judged.commit, slower_than(slower, judged)));
        let [before, after] = names_of_machines(explanation);
        let whose = format!("its runs are of {after}, those before it of {before}");
        line("compared", format!("each machine with itself: {whose}"));
    }
    if let Some(by) = judged.by_machines {
        line("machines", format!("{} by these machines, which is no commit's", slower_by(by)));
    }
    if explanation.cause == Cause::Inconclusive {
        match explanation.reason.strip_prefix("can't tell: ") {
            Some(reason) => line("can't tell", reason.to_owned()),
            None => line("because", explanation.reason.clone()),
        }
    }
    if let Some(doubt) = &judged.doubt {
        line("but", doubt.clone());
    }
    text
}

fn part(of: f64) -> String {
    format!("{:.1} %", 100.0 * of.abs())
}

/// `2.8 % slower`, by a change of a time.
fn slower_by(of: f64) -> String {
    format!("{} {}", part(of), if of < 0.0 { "faster" } else { "slower" })
}

/// `2.8 % slower than 2 commits from c1 to c2 (1.5 to 4.1 %)`: by the time that is taken.
fn slower_than([by, low, high]: [f64; 3], judged: &Judged) -> String {
    let before = match &judged.before[..] {
        [first, .., last] => format!("{} commits from {first} to {last}", judged.before.len()),
        one => one.concat(),
    };
    let than = match part(by) == part(0.0) {
        true => format!("as fast as {before}"),
        false => format!("{} than {before}", slower_by(by)),
    };
    let interval = match (low < 0.0) == (high < 0.0) {
        true => {
            let least = 100.0 * low.abs().min(high.abs());
            format!("{least:.1} to {}", part(low.abs().max(high.abs())))
        }
        false => format!("{} to {}", slower_by(low), slower_by(high)),
    };
    let if_so = match judged.explanation.looks {
        Some(_) => ", if nothing else changed",
        None => "",
    };
    format!("{than} ({interval}){if_so}")
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

    #[test]
    fn of_machines_that_are_alike_only_several_are_named_together() {
        let (runs, order) = runs();
        let mut found = Fleet::fit(&runs, &order, false).expect("runs");
        found.spread.machines = Some(0.0);
        let mut doubted = |name: &str| {
            let mut machines = found.machines.iter_mut();
            let machine = machines.find(|of| of.machine == name).expect("it is there");
            (machine.slow, machine.since) = (None, None);
            machine.doubt = Some("it has few sessions".to_owned());
            fleet(&found, "work").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let one = doubted("m0");
        assert!(one.contains("whether m0 is unusually slow") && !one.contains("which of"), "{one}");
        let two = doubted("m1");
        assert!(two.contains("which of m0, m1 is slow"), "{two}");
    }

    #[test]
    fn a_fast_machine_is_faster_where_a_commit_is_slower() {
        let (runs, _) = runs();
        // The newest commit on a machine that isn't the slow one.
        let is_known = |run: &&Observation| run.commit != "c11";
        let known: Vec<Observation> = runs.iter().filter(is_known).cloned().collect();
        let is_new = |run: &&Observation| run.commit == "c11" && run.machine == "m2";
        let new: Vec<Observation> = runs.iter().filter(is_new).cloned().collect();
        let limits = crate::fleet::Limits::default();
        let mut told = Fleet::judge(&known, &new, false, limits).expect("runs");
        told.by_machines = Some(-0.072);
        let text = judged(&told, "work");
        assert!(text.contains("7.2 % faster by these machines"), "{text}");
    }
}
