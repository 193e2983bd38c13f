//! `brickscope show`: a run that was written before, in one form or another.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use brickscope::{ExecutionGraph, Phase, Profile, view};

use super::profile::without_disturbed;
use crate::args::{ShowArgs, View};
use crate::run_dir;

pub(crate) fn run(args: &ShowArgs) -> Result<()> {
    let mut profile = run_dir::load(&args.run)?;
    if let Err(why) = profile.check() {
        eprintln!("note: this profile does not add up: {why}");
    }
    if args.leave_out_disturbed {
        profile = without_disturbed(profile);
    }
    let text = match args.view {
        View::Report => view::report(&profile),
        View::Statistics => view::statistics(&profile),
        View::Tree => graph(&profile)?.to_ascii_tree() + "\n",
        View::Dot => graph(&profile)?.to_dot(),
        View::Roofline => view::roofline(&profile),
        View::RooflineSvg => view::roofline_svg(&profile),
        View::Json => view::json(&profile),
    };
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}

/// The graph that was recorded by hand, or that of a typical pass.
fn graph(profile: &Profile) -> Result<ExecutionGraph> {
    if let Some(graph) = &profile.graph {
        return Ok(graph.clone());
    }
    [Phase::Decode, Phase::Prefill]
        .into_iter()
        .filter_map(|phase| profile.drawable_pass(phase))
        .find_map(|pass| profile.execution_graph(pass.serial))
        .context("this run kept all spans of no pass, so it has no graph")
}
