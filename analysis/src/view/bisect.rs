//! What a search shows: a line for each pair, and the result.

use std::fmt::Write;

use brickscope_profile::text::{count, printable};

use crate::bisect::{Commit, Estimate, Kind, Outcome, Progress, Purpose, Run, Verdict, Why, short};
use crate::text::{WIDTH, broken, columns, cut, labelled, padded};

/// `+3.12 %`, or more digits where less is measured.
fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    match percent.abs() {
        0.0995.. => format!("{percent:+.2} %"),
        _ => format!("{percent:+.3} %"),
    }
}

/// `+3.12 % (+1.02 to +5.22)`.
#[must_use]
pub fn estimate(estimate: Option<&Estimate>) -> String {
    let Some(estimate) = estimate else { return String::new() };
    let ratio = percent(estimate.ratio);
    let plain = |ratio| percent(ratio).trim_end_matches(" %").to_owned();
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{ratio} ({} to {})", plain(low), plain(high)),
        _ => ratio,
    }
}

/// A line for a pair that was measured.
#[must_use]
pub fn pair(
    pairs: usize,
    run: &Run,
    name: &str,
    of: Option<&Estimate>,
    progress: &Progress,
    seconds_each: Option<f64>,
) -> String {
    let what = match run.purpose {
        Purpose::Ends => "ends",
        Purpose::Search => "search",
        Purpose::Confirm => "confirm",
        Purpose::Control => "control",
    };
    let likely = 1 + progress.likely.last - progress.likely.first;
    let runs = progress.left.filter(|_| progress.now.is_some());
    let name = padded(&cut(name, 9), 9);
    let mut line = format!("{pairs:>4} {what:<7} {name} {:<25} {likely} left", estimate(of));
    let mut more = |part: String| {
        if columns(&line) + columns(&part) <= WIDTH {
            line.push_str(&part);
        }
    };
    if let Some(runs) = runs {
        more(format!(", ~{runs} runs"));
        match seconds_each.map(|seconds| seconds * runs as f64) {
            Some(time @ 90.0..) => more(format!(", {:.0} min", time / 60.0)),
            Some(time) => more(format!(", {time:.0} s")),
            None => {}
        }
    }
    line
}

/// What is said with the outcome.
#[derive(Debug)]
pub struct Context<'t> {
    /// What the search is among.
    pub kind: Kind,
    /// The commits or versions, from the good one to the bad one.
    pub revisions: &'t [String],
    /// What came of it.
    pub outcome: &'t Outcome,
    /// The commits that are named.
    pub found: Vec<Commit>,
    /// Why revisions were left out.
    pub left_out: Vec<(&'t str, &'t str)>,
    /// How likely something is found between equal ends, 0 to 1.
    pub false_alarm: f64,
    /// How likely what is found is not slower than the one before it.
    pub wrong: f64,
    /// The least difference of the ends that is sought.
    pub least: f64,
    /// What counts of a run.
    pub by: Option<String>,
    /// A sentence for each brick that moved.
    pub bricks: Vec<String>,
    /// Whether more of what is measured is better: then nobody said that it is a time.
    pub more_is_better: bool,
    /// How many commits or versions were measured.
    pub measured: usize,
}

/// More commits of a range than this aren't listed.
const MOST_LISTED: usize = 20;

/// The result, for people.
#[must_use]
pub fn outcome(context: &Context<'_>) -> String {
    let Context { kind, revisions, outcome, .. } = context;
    let noun = kind.noun();
    let name = |revision: usize| revisions.get(revision).map_or("?", |of| kind.told(of));
    let last = revisions.len() - 1;
    let mut text = String::new();
    let ends = estimate(outcome.ends.as_ref());
    let in_all = format!("{} to {}: {ends}", name(0), name(last));
    let head = match outcome.verdict {
        Verdict::Found { after, to } if to - after == 1 => {
            format!("Found: {} is slower than the {noun} before it.", name(to))
        }
        Verdict::Found { after, to } => format!(
            "Found: one of {} after {} up to {} made it slower; those between can't be measured.",
            count((to - after) as u64, noun),
            name(after),
            name(to)
        ),
        Verdict::None { why: Why::NoDifference } => {
            format!("None here: good and bad don't differ by {}.", least(context.least))
        }
        Verdict::None { why: Why::Faster } => {
            let or = match context.more_is_better {
                true => " If the number is a time, say --less-is-better; if not, perhaps",
                false => " Perhaps",
            };
            format!("None here: bad is not slower than good, but faster.{or} the two are swapped.")
        }
        Verdict::Inconclusive { why: Why::Drift } => {
            "Can't tell: the machine drifted by more than the difference that is sought.".to_owned()
        }
        Verdict::None { .. } => "None here.".to_owned(),
        Verdict::Inconclusive { why: Why::NotOneStep } => {
            format!(
                "Inconclusive: bad is slower, but no single {noun} stands out. There may be several, or many small ones."
            )
        }
        Verdict::Inconclusive { .. } => {
            "Inconclusive: no more measurements are allowed (--resume --max-measurements N goes on)."
                .to_owned()
        }
    };
    let lines = |text: &mut String, head: &str| {
        broken(head, WIDTH).iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
    };
    lines(&mut text, &head);
    text.push('\n');
    let mut row =
        |label: &str, value: &str| text += &(labelled(&format!("  {label:<11}"), value) + "\n");
    if let Verdict::Found { after, to } = outcome.verdict {
        if *kind == Kind::Version {
            let label = if to - after == 1 { noun } else { "one of" };
            for revision in (after + 1..=to).take(MOST_LISTED) {
                row(label, name(revision));
            }
            if to - after > MOST_LISTED {
                row("", &format!("and {} more", to - after - MOST_LISTED));
            }
        } else if let ([commit], 1) = (&context.found[..], to - after) {
            row("commit", &commit.hash);
            row("subject", &printable(&commit.subject));
            row("author", &printable(&commit.author));
            row("date", &printable(&commit.date));
        } else {
            for commit in context.found.iter().take(MOST_LISTED) {
                row("one of", &format!("{} {}", short(&commit.hash), printable(&commit.subject)));
            }
            if context.found.len() > MOST_LISTED {
                row("", &format!("and {} more", context.found.len() - MOST_LISTED));
            }
        }
        if let Some(step) = &outcome.step {
            let pairs = count(step.pairs as u64, "pair");
            let beside = format!("{}, {pairs} beside {}", estimate(Some(step)), name(after));
            row("slower by", &beside);
        }
    }
    let pairs = outcome.ends.map_or(0, |ends| ends.pairs);
    row("in all", &format!("{in_all}, {}", count(pairs as u64, "pair")));
    // Where nothing tells the ends apart, all are as likely as each other, and so is none.
    let are_apart = outcome.ends.and_then(|ends| ends.low).is_some_and(|low| low > 1.0);
    if let (Verdict::Inconclusive { .. }, true) = (outcome.verdict, are_apart) {
        let likely = outcome.likely;
        row(
            "likely",
            &format!(
                "one of {}, {} to {}, with 95 % probability",
                count((1 + likely.last - likely.first) as u64, noun),
                name(likely.first),
                name(likely.last)
            ),
        );
    }
    let error = match outcome.verdict {
        Verdict::Found { .. } => format!(
            "at most {} that it is no slower than the one before it; at most {} that anything is found between equal ends",
            least(context.wrong),
            least(context.false_alarm)
        ),
        Verdict::None { why: Why::NoDifference } => format!(
            "at most {} that bad is slower by {}",
            least(context.false_alarm),
            least(context.least)
        ),
        _ => String::new(),
    };
    if !error.is_empty() {
        row("error", &error);
    }
    if let Some(by) = &context.by {
        row("by", by);
    }
    for brick in &context.bricks {
        row("brick", brick);
    }
    let controls = &outcome.controls;
    let mut machine = Vec::new();
    if let Some(itself) = &controls.itself {
        machine.push(format!("good beside good {}", estimate(Some(itself))));
    }
    if let Some(second) = controls.second {
        machine.push(format!("the second of a pair beside the first {}", percent(second)));
    }
    if let Some(drift) = controls.drift {
        machine.push(format!("good at the end beside its begin {}", percent(drift)));
    }
    if !machine.is_empty() {
        row("machine", &format!("what equal runs differ by: {}", machine.join(", ")));
    }
    let runs = count(outcome.measurements, "measurement");
    row("measured", &format!("{runs} of {}", count(context.measured as u64, noun)));
    for (revision, why) in &context.left_out {
        let first = why.lines().next().unwrap_or_default().trim_end_matches(':');
        row("left out", &format!("{}: {first}", kind.told(revision)));
    }
    text
}

/// `2 %`.
fn least(part: f64) -> String {
    format!("{} %", (100.0 * part * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use crate::bisect::{Controls, Places};

    use super::*;

    fn of(ratio: f64, pairs: usize) -> Estimate {
        Estimate { ratio, low: Some(ratio - 0.02), high: Some(ratio + 0.02), pairs }
    }

    #[test]
    fn ends_that_may_be_swapped_are_said_to_be_where_the_flag_would_not_help() {
        let said = |more_is_better: bool| {
            let revisions = ["1".repeat(40), "2".repeat(40)];
            let outcome = Outcome {
                verdict: Verdict::None { why: Why::Faster },
                ends: Some(of(0.9, 8)),
                step: None,
                likely: Places { first: 1, last: 1, top: 1.0 },
                controls: Controls { itself: None, second: None, drift: None },
                pairs: 8,
                measurements: 16,
                unusable: Vec::new(),
            };
            super::outcome(&Context {
                kind: Kind::Commit,
                revisions: &revisions,
                outcome: &outcome,
                found: Vec::new(),
                left_out: Vec::new(),
                false_alarm: 0.01,
                wrong: 0.05,
                least: 0.02,
                by: None,
                bricks: Vec::new(),
                more_is_better,
                measured: 2,
            })
        };
        assert!(said(true).contains("--less-is-better"), "{}", said(true));
        assert!(!said(false).contains("--less-is-better"), "{}", said(false));
        assert!(said(false).contains("Perhaps the two are swapped."), "{}", said(false));
    }

    #[test]
    fn a_result_fits_into_80_columns_whatever_a_commit_says() {
        let revisions: Vec<String> =
            (0..=9).map(|digit: u8| digit.to_string().repeat(40)).collect();
        let verdicts = [
            Verdict::Found { after: 3, to: 4 },
            Verdict::Found { after: 3, to: 6 },
            Verdict::None { why: Why::NoDifference },
            Verdict::None { why: Why::Faster },
            Verdict::Inconclusive { why: Why::Drift },
            Verdict::Inconclusive { why: Why::Cap },
            Verdict::Inconclusive { why: Why::NotOneStep },
        ];
        for verdict in verdicts {
            let outcome = Outcome {
                verdict,
                ends: Some(of(1.0312, 34)),
                step: Some(of(1.0298, 17)),
                likely: Places { first: 3, last: 6, top: 0.5 },
                controls: Controls {
                    itself: Some(of(1.0005, 16)),
                    second: Some(1.0004),
                    drift: Some(0.91),
                },
                pairs: 140,
                measurements: 280,
                unusable: vec![5],
            };
            let commit = Commit {
                hash: "4".repeat(40),
                subject: format!("{} \u{1b}[31m\u{202e}", "Faster matrices ".repeat(20)),
                author: "A \u{7} <a@b>".to_owned(),
                date: "2026-11-21T11:37:00+00:00".to_owned(),
            };
            let text = super::outcome(&Context {
                kind: Kind::Commit,
                revisions: &revisions,
                outcome: &outcome,
                found: vec![commit],
                left_out: vec![(&revisions[5], "its build failed (exit status: 1):\nx")],
                false_alarm: 0.01,
                wrong: 0.05,
                least: 0.02,
                by: Some("the time of QkvProjection in a token of decode".to_owned()),
                bricks: vec!["QkvProjection +9.80 % of 22 %".to_owned()],
                more_is_better: true,
                measured: 12,
            });
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text}");
            assert!(
                text.contains("left out   555555555: its build failed (exit status: 1)"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_line_of_a_pair_fits_into_80_columns() {
        let run = Run { revision: 4, beside: 0, purpose: Purpose::Confirm };
        let progress = Progress {
            measurements: 280,
            now: Some((run, None)),
            ends: None,
            likely: Places { first: 1, last: 128, top: 0.1 },
            left: Some(188),
        };
        let line =
            pair(140, &run, short(&"4".repeat(40)), Some(&of(1.1298, 7)), &progress, Some(12.0));
        assert_eq!(
            line,
            " 140 confirm 444444444 +12.98 % (+10.98 to +14.98) 128 left, ~188 runs, 38 min"
        );
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(estimate(Some(&of(1.0, 1))), "+0.000 % (-2.00 to +2.00)");
    }
}
