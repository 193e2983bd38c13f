//! Findings as text.

use std::fmt::Write;

use brickscope_profile::text::{printable_text, screened_lines};
use brickscope_profile::{Absent, PassTime, Profile, Trial};

use crate::findings::{Finding, Findings, Gain, Kind};
use crate::view::report::wrap;
use crate::words::{quoted, time, whole_percent};

/// Columns of the text.
const COLUMNS: usize = 80;
/// Columns of the labels.
const LABEL: usize = 12;

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
    let findings = Findings::of(profile);
    let mut text = String::new();
    if findings.found.is_empty() && !findings.has_looked {
        text.push_str("No rule could look at this run.\n");
    } else if findings.found.is_empty() {
        text.push_str("Nothing was found that slows this run down.\n");
    } else if findings.found.iter().all(|finding| finding.kind == Kind::Limit) {
        text.push_str("Nothing was found that slows this run down. What would make it faster:\n\n");
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

fn one(profile: &Profile, nth: usize, finding: &Finding, run: Option<&str>, text: &mut String) {
    item(&nth.to_string(), &finding.what, text);
    let predicted = match (&finding.gain, &finding.gain_absent) {
        (Some(gain), _) => in_words(gain),
        (None, Some(Absent { reason })) => format!("unknown: {reason}"),
        (None, None) => "nothing".to_owned(),
    };
    labelled("predicted", &predicted, text);
    if let Some(trial) = &finding.tried {
        labelled("tried", &tried(trial), text);
    }
    for (nth, evidence) in finding.evidence.iter().enumerate() {
        let label = if nth == 0 { "evidence" } else { "" };
        labelled(label, &format!("{} ({})", printable_text(&evidence.text), evidence.place), text);
    }
    labelled("do", &finding.advice, text);
    if let Some(test) = &finding.test {
        labelled("test", &command(test, profile, run), text);
    }
    labelled("refuted if", &finding.refuted_if, text);
}

/// `12 % less (8 to 15 %): 240 µs of 2.00 ms`
pub(crate) fn in_words(gain: &Gain) -> String {
    let [low, likely, high] = gain.parts();
    let of = |ns: f64| format!("{} of {}", time(ns), time(gain.now_ns));
    match gain.likely_ns {
        Some(ns) if gain.lowest_ns < gain.highest_ns => format!(
            "{} less ({} to {}): {}",
            whole_percent(likely),
            whole_percent(low),
            whole_percent(high),
            of(ns)
        ),
        Some(ns) => format!("{} less: {}", whole_percent(likely), of(ns)),
        None if gain.lowest_ns > 0.0 => format!(
            "{} to {} less: {} to {}",
            whole_percent(low),
            whole_percent(high),
            time(gain.lowest_ns),
            of(gain.highest_ns)
        ),
        None => format!("up to {} less: {}", whole_percent(high), of(gain.highest_ns)),
    }
}

/// `confirmed: 12 % less (11 to 13 %), --top-k 40, 8 pairs of runs in turns`
pub(crate) fn tried(trial: &Trial) -> String {
    format!(
        "{}: {}, {}, {} pairs of runs in turns",
        trial.verdict.name(),
        saved(trial),
        trial.change,
        trial.ratio.pairs
    )
}

/// `12.0 % less (11.1 to 13.0 %)`
fn saved(trial: &Trial) -> String {
    let [low, saved, high] = trial.saved();
    let (word, [low, saved, high]) =
        if saved < 0.0 { ("more", [-high, -saved, -low]) } else { ("less", [low, saved, high]) };
    let percent = |part: f64| format!("{:.1}", 100.0 * part);
    format!("{} % {word} ({} to {} %)", percent(saved), percent(low), percent(high))
}

/// What trials of one run brought, for `brickscope try`: one in lines, several as a table.
#[must_use]
pub fn trials(trials: &[Trial]) -> String {
    let mut text = String::new();
    let time_of = |trial: &Trial| match trial.time {
        PassTime::Typical => format!("a typical pass of {}", trial.phase),
        PassTime::Mean => format!("the mean pass of {}", trial.phase),
        PassTime::WithGap => format!("a pass of {} with the time until the next", trial.phase),
    };
    if let [trial] = trials {
        let _ = writeln!(
            text,
            "{}: {} ({})\n",
            capitalised(trial.verdict.name()),
            printable_text(&trial.change.to_string()),
            time_of(trial)
        );
        let mut line = |label: &str, what: String| labelled(label, &what, &mut text);
        line("before", time(trial.before_ns));
        line("after", time(trial.after_ns));
        line(
            "measured",
            format!(
                "{}, 95 % interval, {} pairs of runs in turns",
                saved(trial),
                trial.ratio.pairs
            ),
        );
        if let Some([low, likely, high]) = trial.predicted {
            line(
                "predicted",
                format!(
                    "{} less ({} to {})",
                    whole_percent(likely),
                    whole_percent(low),
                    whole_percent(high)
                ),
            );
        }
    } else if let Some(first) = trials.first() {
        let _ = writeln!(
            text,
            "{}, {} pairs of runs in turns each\n\n   {:24}{:>12}   saved (95 % interval)",
            capitalised(&time_of(first)),
            first.ratio.pairs,
            "",
            "a pass"
        );
        let _ = writeln!(text, "   {:24}{:>12}", "as it ran", time(first.before_ns));
        for trial in trials {
            let change = cut(&printable_text(&trial.change.to_string()), 24);
            let _ = writeln!(text, "   {change:24}{:>12}   {}", time(trial.after_ns), saved(trial));
        }
    }
    screened_lines(text)
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

/// The first characters of a text, with a mark if there are more.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// The command with this run's folder and model, as a shell takes them.
fn command(test: &str, profile: &Profile, run: Option<&str>) -> String {
    let model = profile.model.as_ref().map_or("", |model| &model.path);
    let word = |word: &str| match (word, run) {
        ("RUN", Some(run)) => quoted(&printable_text(run)),
        // Without a name, the command makes the model that it made.
        ("MODEL", _) if !model.is_empty() => quoted(&printable_text(model)),
        ("MODEL", _) => String::new(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = test.split(' ').map(word).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn item(mark: &str, what: &str, text: &mut String) {
    for (nth, line) in wrap(&printable_text(what), COLUMNS - 3).into_iter().enumerate() {
        let mark = if nth == 0 { mark } else { "" };
        let _ = writeln!(text, "{mark:2} {line}");
    }
}

fn labelled(label: &str, what: &str, text: &mut String) {
    for (nth, line) in wrap(what, COLUMNS - 3 - LABEL).into_iter().enumerate() {
        let label = if nth == 0 { label } else { "" };
        let _ = writeln!(text, "   {label:LABEL$}{line}");
    }
}
