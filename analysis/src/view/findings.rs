//! Findings as text.

use std::fmt::Write;

use brickscope_profile::Profile;
use brickscope_profile::text::{printable_text, screened_lines};

use crate::findings::{Finding, FindingKind, Findings};
use crate::passes::is_of_device;
use crate::text::wrap;
use crate::view::layout::{COLUMNS, field, labelled as named};
use crate::view::trials::tried;
use crate::words::quoted;

/// What slows a run down, at most 80 columns wide: each finding with its prediction, its evidence and a test, then what
/// could not be told. `run` is the run's folder, for the commands.
///
/// ```
/// use brickscope::{BrickProfiler, MockClock, Phase};
/// use brickscope_analysis::view;
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let pass = profiler.begin_pass(Phase::Decode);
/// let timer = profiler.start("Mlp");
/// hand.advance(600_000);
/// profiler.stop(timer, 1);
/// hand.advance(400_000);
/// profiler.end_pass(pass, 1, 0);
/// let text = view::findings(&profiler.profile(), Some("runs/a"));
/// assert!(text.starts_with("1  40.0 % of decode is in no brick\n   predicted   up to 40 % less: 400 µs of 1.00 ms\n"));
/// ```
#[must_use]
pub fn findings(profile: &Profile, run: Option<&str>) -> String {
    findings_of(profile, &Findings::of(profile), run)
}

/// The same of findings that were asked for before.
#[must_use]
pub fn findings_of(profile: &Profile, findings: &Findings, run: Option<&str>) -> String {
    let mut text = String::new();
    let doubts = doubts(profile);
    if !doubts.is_empty() {
        text.push_str("Doubtful, so what follows may be wrong:\n");
        for doubt in doubts {
            item("-", doubt, &mut text);
        }
        text.push('\n');
    }
    if let Some(fired) = &profile.fired {
        let said = format!("{}.", fired.line());
        let _ = writeln!(text, "{}\n", wrap(&said, COLUMNS).join("\n"));
    }
    if findings.found.is_empty() && !findings.has_looked {
        text.push_str("No rule could look at this run.\n");
    } else if findings.found.is_empty() {
        text.push_str(nothing(profile));
        text.push('\n');
    } else if findings.found.iter().all(|finding| finding.kind == FindingKind::Lack) {
        text.push_str(nothing(profile));
        text.push_str(" What would tell more:\n\n");
    } else if findings.found.iter().all(|finding| finding.kind >= FindingKind::Limit) {
        let has_lack = findings.found.iter().any(|finding| finding.kind == FindingKind::Lack);
        text.push_str(nothing(profile));
        text.push_str(" What would make it faster");
        text.push_str(if has_lack { ", or tell more:\n\n" } else { ":\n\n" });
    }
    for (nth, finding) in findings.found.iter().enumerate() {
        if nth > 0 {
            text.push('\n');
        }
        one(profile, nth + 1, finding, run, &mut text);
    }
    if !findings.unknown.is_empty() {
        text.push_str("\nNot known:\n");
        for unknown in &findings.unknown {
            item("-", &unknown.why, &mut text);
        }
    }
    screened_lines(text)
}

/// What is doubtful of an imported file.
fn doubts(profile: &Profile) -> &[String] {
    profile.imported.as_ref().map_or(&[], |imported| &imported.doubts)
}

/// That nothing was found, and of what. Files of other programs tell less than runs.
#[must_use]
pub fn nothing(profile: &Profile) -> &'static str {
    match &profile.imported {
        Some(imported) if !imported.doubts.is_empty() => {
            "Nothing was found, in figures that are doubtful."
        }
        Some(_) => "Nothing was found in what this file tells.",
        None => "Nothing was found that slows this run down.",
    }
}

fn one(profile: &Profile, nth: usize, finding: &Finding, run: Option<&str>, text: &mut String) {
    item(&nth.to_string(), &finding.what, text);
    field("predicted", &finding.prediction(), text);
    if let Some(trial) = &finding.tried {
        field("tried", &tried(trial), text);
    }
    for (nth, evidence) in finding.evidence.iter().enumerate() {
        let label = if nth == 0 { "evidence" } else { "" };
        field(label, &format!("{} ({})", printable_text(&evidence.text), evidence.place), text);
    }
    field("do", &finding.advice, text);
    if let Some(test) = test_command(finding, profile, run) {
        field("test", &test, text);
    } else if let Some(why) = &finding.test_absent {
        field("untested", &why.reason, text);
    }
    field("refuted if", &finding.refuted_if, text);
}

/// The last lines of the report: the first finding, or why no rule could look.
pub(super) fn in_report(profile: &Profile, text: &mut String) {
    if profile.totals.is_empty() && profile.phases.is_empty() && profile.devices.is_empty() {
        return;
    }
    // It is a device's part of a run, shown by itself, and rules need the host's launches, too.
    if is_of_device(profile) {
        return named(
            &[(
                "finding",
                "of a device alone rules tell nothing: `brickscope findings RUN` looks at all",
            )],
            text,
        );
    }
    let findings = Findings::of(profile);
    let Some(first) = findings.first() else {
        if !findings.has_looked {
            let why = findings.unknown.first().map_or("no pass was timed", |unknown| &unknown.why);
            let line = format!("no rule could look at this run; {}", printable_text(why));
            named(&[("finding", line)], text);
        }
        return;
    };
    let more = match findings.found.len() - 1 {
        0 => "its evidence, and how to test it".to_owned(),
        1 => "its evidence, and another one".to_owned(),
        n => format!("its evidence, and {n} others"),
    };
    let lines = [("finding", first.line()), ("", format!("brickscope findings RUN: {more}"))];
    named(&lines, text);
}

/// The command that tests a finding, with the run's folder (`RUN` without one) and its model, as a shell takes them.
#[must_use]
pub fn test_command(finding: &Finding, profile: &Profile, run: Option<&str>) -> Option<String> {
    let test = finding.test.as_ref()?;
    if finding.is_whole_command {
        return Some(test.clone());
    }
    let model = profile.model.as_ref().map_or("", |model| &model.path);
    let word = |word: &str| match (word, run) {
        ("RUN", Some(run)) => quoted(&printable_text(run)),
        // Without a name, the command makes the model that it made.
        ("MODEL", _) if !model.is_empty() => quoted(&printable_text(model)),
        ("MODEL", _) => String::new(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = test.split(' ').map(word).filter(|word| !word.is_empty()).collect();
    Some(words.join(" "))
}

fn item(mark: &str, what: &str, text: &mut String) {
    for (nth, line) in wrap(&printable_text(what), COLUMNS - 3).into_iter().enumerate() {
        let mark = if nth == 0 { mark } else { "" };
        let _ = writeln!(text, "{mark:2} {line}");
    }
}
