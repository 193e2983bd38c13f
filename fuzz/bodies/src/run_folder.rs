//! Reads the files of two runs, and hands them to everything that reads runs: views, exports, comparisons, histories.
//!
//! The text has a line `=== profile.json` or `=== receipt.json` before each file; every other file of a kind is of the
//! second run.

use std::path::Path;

use brickscope_analysis::compare::{Options, Process, Side, compare};
use brickscope_analysis::history::{History, Measure, Run};
use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::stacks::{By, Stacks};
use brickscope_analysis::view;
use brickscope_formats::export::{chrome, csv, folded, otlp, prometheus, speedscope};
use brickscope_profile::profile::Profile;

/// Panics if a file that can be read can't be shown, exported or compared, or if a view lets a control character
/// through.
pub fn run(text: &str) {
    let mut sides = [Side::default(), Side::default()];
    let mut runs = Vec::new();
    for (nth, file) in text.split("=== ").skip(1).enumerate() {
        let Some((name, content)) = file.split_once('\n') else { continue };
        let side = &mut sides[nth % 2];
        let path = Path::new("run").join(name.chars().take(40).collect::<String>());
        match name.trim_end() {
            "profile.json" => match Profile::from_json(content, &path) {
                Ok(profile) => side.processes.extend(profiled(&profile)),
                Err(error) => readable(&error.to_string()),
            },
            "receipt.json" => match Receipt::from_json(content, &path) {
                Ok(receipt) => {
                    side.processes.push(Process::from_receipt("run", &receipt));
                    match Run::of("run", &receipt) {
                        Ok(run) => runs.push(run),
                        Err(error) => readable(&error),
                    }
                }
                Err(error) => readable(&error.to_string()),
            },
            _ => {}
        }
    }
    let [a, b] = &sides;
    for is_forced in [false, true] {
        match compare(a, b, &Options { is_forced, ..Options::default() }) {
            Ok(comparison) => {
                readable(&view::comparison(&comparison));
                readable(&view::comparison_markdown(&comparison));
                let _ = (view::comparison_json(&comparison), view::comparison_bmf(&comparison));
            }
            Err(error) => readable(&error.to_string()),
        }
    }
    let history = History::of(runs, Measure::TokensPerSecond);
    readable(&view::history(&history));
    readable(&view::history_markdown(&history));
    let _ = (view::history_csv(&history), view::history_svg(&history));
}

fn profiled(profile: &Profile) -> Option<Process> {
    readable(&view::headline(profile));
    readable(&view::report(profile));
    readable(&view::statistics(profile));
    readable(&view::kernels(profile));
    let mut out = Vec::new();
    let _ = (chrome::write(profile, &mut out), otlp::write(profile, &mut out));
    let _ = (csv::passes(profile, &mut out), csv::totals(profile, &mut out));
    let _ = prometheus::write(profile, &mut out);
    for by in [By::Layer, By::Brick] {
        let stacks = Stacks::of_spans(profile, by, 8);
        let _ = (folded::write(&stacks, &mut out), speedscope::write(&stacks, "run", &mut out));
    }
    match Process::from_profile("run", profile) {
        Ok(process) => Some(process),
        Err(error) => {
            readable(&error.to_string());
            None
        }
    }
}

fn readable(text: &str) {
    let raw = text.chars().find(|c| c.is_control() && *c != '\n');
    assert!(!text.is_empty() && raw.is_none(), "{raw:?} in {text:?}");
}
