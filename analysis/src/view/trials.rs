//! What changes brought that were tried.

use std::fmt::Write;

use brickscope_profile::text::{printable_text, screened_lines};
use brickscope_profile::{PassTime, Trial};

use crate::text::cut;
use crate::view::layout::field;
use crate::words::{time, whole_percent};

/// `confirmed: 12 % less (11 to 13 %), --top-k 40, 8 pairs of runs in turns`
#[must_use]
pub fn tried(trial: &Trial) -> String {
    format!(
        "{}: {}, {}, {} pairs of runs in turns",
        trial.verdict.name(),
        saved(trial),
        printable_text(&trial.change.to_string()),
        trial.ratio.pairs
    )
}

/// `12.0 % less (11.1 to 13.0 %)`
fn saved(trial: &Trial) -> String {
    let [low, saved, high] = trial.saved();
    let (word, [low, saved, high]) =
        if saved < 0.0 { ("more", [-high, -saved, -low]) } else { ("less", [low, saved, high]) };
    // A file may contain anything.
    let percent = |part: f64| match 100.0 * part {
        percent if percent.abs() < 1e6 => format!("{percent:.1}"),
        percent => format!("{percent:.1e}"),
    };
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
        let mut line = |label: &str, what: String| field(label, &what, &mut text);
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
        if let Some(share) = trial.others_share.filter(|share| *share > 0.05) {
            line(
                "beside",
                format!(
                    "other programs used {} of the CPU time meanwhile, by which a change may seem to bring less",
                    whole_percent(share)
                ),
            );
        }
        // What lies in between may be the middle, which nobody predicted.
        if let Some([low, _, high]) = trial.predicted {
            line("predicted", format!("{} to {} less", whole_percent(low), whole_percent(high)));
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
