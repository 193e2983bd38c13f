//! A flamegraph's figures as Markdown, written along with the SVG.

use std::fmt::Write;

use brickscope_analysis::markdown::{code, longest_run, table, target};
use brickscope_analysis::stacks::{Class, Unit};

use super::captions::{self, Written, amount};
use super::summary::{Share, Summary};
use crate::figures::fine_percent_of;
pub(crate) use crate::text::markdown as escaped;

/// The whole summary, with the command that made it and a guide to reading the flamegraph.
pub(crate) fn markdown(summary: &Summary, files: &[Written]) -> String {
    let mut text = format!("# {}\n\n", escaped(&captions::title(summary)));
    for (name, value) in [
        ("Generated", summary.generated.clone()),
        ("Model", captions::model(summary)),
        ("Workload", captions::workload(summary)),
        ("Latency", captions::latency(summary)),
        ("Hardware", captions::hardware(summary)),
        ("Build", captions::build(summary)),
        ("Source", captions::source(&summary.source)),
        ("Picture", captions::hidden(summary).join(". ")),
    ] {
        if !value.is_empty() {
            let _ = writeln!(text, "**{name}**: {}  ", escaped(&value));
        }
    }
    let _ = writeln!(text, "\n{}", escaped(&captions::headline(summary)));
    if let Some(drawing) = files.iter().find(|file| file.path.ends_with(".svg")) {
        let _ = writeln!(text, "\n![{}]({})", escaped(&drawing.what), target(&drawing.path));
    }
    lost(summary, &mut text);
    hotspots(summary, &mut text);
    insights(summary, &mut text);
    agreement(summary, &mut text);
    if !files.is_empty() {
        text.push_str("\n## Files\n\n");
        for Written { path, what } in files {
            let _ = writeln!(text, "- [{}]({}): {}", escaped(path), target(path), escaped(what));
        }
    }
    let _ = writeln!(
        text,
        "\n## How to reproduce\n\n{}",
        code(&captions::shell(&summary.command_line))
    );
    guide(summary, &mut text);
    text
}

fn lost(summary: &Summary, text: &mut String) {
    text.push_str("\n## Warnings\n\n");
    if summary.warnings.is_empty() {
        text.push_str("None.\n");
    }
    for warning in &summary.warnings {
        let _ = writeln!(text, "- {}", escaped(warning));
    }
}

fn hotspots(summary: &Summary, text: &mut String) {
    let share = |weight: u64| fine_percent_of(weight, summary.total);
    let of = |weight: u64| amount(weight, summary.unit);
    text.push_str("\n## Top hotspots\n\n");
    by_phase(summary, text);
    text.push_str("### By brick\n\n");
    let bricks = captions::bricks(summary);
    let rows = bricks.iter().take(captions::MOST_ROWS).map(|brick| {
        let phase = brick.phase.map_or("", |phase| phase.name());
        [name(&brick.name), phase.to_owned(), of(brick.weight), share(brick.weight)]
    });
    if bricks.is_empty() {
        text.push_str("No bricks are known.\n");
    } else {
        table(["Brick", "Phase", "!Weight", "!Share"], rows, text);
        more(summary, bricks.iter().map(|brick| brick.weight), text);
    }
    text.push_str("\n### By function\n\n");
    let functions = captions::functions(summary);
    let rows = functions.iter().take(captions::MOST_ROWS).map(|function| {
        let (inside, all) = (function.self_weight, function.weight);
        [name(&function.name), of(inside), share(inside), of(all), share(all)]
    });
    if functions.is_empty() {
        text.push_str(match summary.source.via.as_str() {
            "spans" | "device" => "Spans have no functions: sample the run to see them.\n",
            _ => "No functions are known.\n",
        });
    } else {
        table(["Function", "!Self", "!Share", "!Total", "!Share of total"], rows, text);
        more(summary, functions.iter().map(|function| function.self_weight), text);
    }
    text.push_str("\n## By class\n\n");
    let rows = captions::classes(summary).into_iter().map(|class| {
        let weight = class.self_weight;
        let colour = class.name.color().to_owned();
        [class.name.name().to_owned(), colour, of(weight), share(weight)]
    });
    table(["Class", "Colour", "!Self", "!Share"], rows, text);
}

/// What each phase takes, and which bricks take that.
fn by_phase(summary: &Summary, text: &mut String) {
    let phases = captions::phases(summary);
    if phases.is_empty() {
        return;
    }
    text.push_str("### By phase\n\n");
    for (phase, weight, bricks) in phases {
        let part = |brick: &&Share<String>| {
            format!("{} {}", name(&brick.name), fine_percent_of(brick.weight, weight))
        };
        let bricks: Vec<String> = bricks.iter().take(captions::MOST_OF_A_PHASE).map(part).collect();
        let share = fine_percent_of(weight, summary.total);
        let _ = writeln!(text, "- **{phase}**, {share} of all; of it {}", bricks.join(", "));
    }
    text.push('\n');
}

fn insights(summary: &Summary, text: &mut String) {
    if !summary.insights.is_empty() {
        text.push_str("\n## Insights\n\n");
    }
    for insight in &summary.insights {
        let _ = writeln!(text, "- {}", escaped(insight));
    }
}

fn more(summary: &Summary, weights: impl Iterator<Item = u64>, text: &mut String) {
    if let Some(more) = captions::more(summary, weights) {
        let _ = writeln!(text, "\n{}; flamegraph.json has them all.", escaped(&more));
    }
}

fn agreement(summary: &Summary, text: &mut String) {
    let heading = "\n## Sampled and measured shares\n\n";
    let Some(agreement) = &summary.agreement else {
        if let Some(absent) = &summary.agreement_absent {
            let _ = writeln!(text, "{heading}Not compared: {}", escaped(&absent.reason));
        }
        return;
    };
    text.push_str(heading);
    if let Some(warning) = captions::warning(agreement) {
        let _ = writeln!(text, "**Warning**: {}.\n", escaped(&warning));
    }
    let _ = writeln!(
        text,
        "Shares of a phase: sampled, of the samples inside its passes ({} in all), and measured, of \
        its wall time.\nDifferences are in percentage points. Allowed is the difference that the \
        number of samples explains, 99 % of the time.\n",
        agreement.samples
    );
    let rows = agreement.bricks.iter().map(|brick| {
        let [sampled, measured, difference, allowed, verdict] = captions::compared(brick);
        let phase = brick.phase.name().to_owned();
        [name(&brick.brick), phase, sampled, measured, difference, allowed, verdict]
    });
    let header = ["Brick", "Phase", "!Sampled", "!Measured", "!Difference", "!Allowed", "Verdict"];
    table(header, rows, text);
}

fn guide(summary: &Summary, text: &mut String) {
    let width = match summary.unit {
        Unit::Nanoseconds => "time, including callees",
        Unit::Samples => "samples, including callees",
    };
    let colours = Class::ALL.map(|class| format!("{} {}", class.color(), class.name()));
    let _ = write!(
        text,
        "\n## How to read the flamegraph\n\n\
         - **Click** a frame to zoom in; **Reset Zoom** is at the top left.\n\
         - **Ctrl+F** searches by regular expression; the matched share is at the bottom right.\n\
         - **Width** is {width}. Frames of less than 0.01 % are left out.\n\
         - **Height** is the depth of the stack: a callee lies on its caller.\n\
         - **Colours**: {}. Threads, phases, layers and bricks are grey as well.\n\
         - From left to right is the order of names, not of time.\n",
        colours.join(", ")
    );
}

/// A name as code in a cell of a table, unchanged as far as possible.
fn name(name: &str) -> String {
    let name = captions::short(name);
    if name.trim().is_empty() {
        return "(no name)".to_owned();
    }
    // A cell ends at each bar without a backslash before it.
    let name = match name.contains('|') {
        true => name.replace('\\', "\\\\").replace('|', "\\|"),
        false => name,
    };
    // Code ends at as many backticks as it begins with.
    let ticks = "`".repeat(longest_run(&name, '`') + 1);
    let blank = if name.starts_with('`') || name.ends_with('`') { " " } else { "" };
    format!("{ticks}{blank}{name}{blank}{ticks}")
}

#[cfg(test)]
mod tests {
    use brickscope::Absent;

    use super::super::captions::tests::{files, summary};
    use super::*;

    #[test]
    fn a_summary_as_markdown() {
        insta::assert_snapshot!(markdown(&summary(), &files()));
    }

    #[test]
    fn spans_have_no_functions_and_nothing_to_be_held_against() {
        let mut summary = Summary { agreement: None, warnings: Vec::new(), ..summary() };
        summary.unit = Unit::Nanoseconds;
        summary.total = 153_116_800;
        summary.source.via = "spans".to_owned();
        summary.functions = Vec::new();
        let text = markdown(&summary, &[]);
        assert!(!text.contains("Sampled and measured shares"), "{text}");
        assert!(text.contains("Spans have no functions"), "{text}");
        assert!(text.contains("## Warnings\n\nNone.\n"), "{text}");
        let reason = "the run was too short: 3 samples".to_owned();
        summary.agreement_absent = Some(Absent { reason });
        let text = markdown(&summary, &[]);
        assert!(text.contains("Not compared: the run was too short: 3 samples\n"), "{text}");
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escaped("a|b<c>\u{202e}"), "a\\|b&lt;c&gt;\\\\u{202e}");
        assert_eq!(escaped("@all *b* #1 & c"), "\\@all \\*b\\* \\#1 &amp; c");
    }

    #[test]
    fn names_are_code_that_no_character_ends() {
        assert_eq!(name("a_b*c<d>"), "`a_b*c<d>`");
        assert_eq!(name("a|b\\"), "`a\\|b\\\\`");
        assert_eq!(name("`a``b"), "``` `a``b ```");
        assert_eq!(name("\n"), "`\\n`");
        assert_eq!(name(" "), "(no name)");
    }

    #[test]
    fn each_row_of_a_table_has_the_columns_of_its_header() {
        let text = markdown(&summary(), &files());
        let mut bars = None;
        for line in text.lines() {
            if !line.starts_with('|') {
                bars = None;
                continue;
            }
            let line = line.replace("\\\\", "").replace("\\|", "");
            let here = line.matches('|').count();
            assert_eq!(*bars.get_or_insert(here), here, "{line}");
        }
    }
}
