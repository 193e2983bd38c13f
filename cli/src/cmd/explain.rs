//! `brickscope explain`: what a word means, and what a run says of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use brickscope::Profile;
use brickscope_analysis::explain::{self, InRun};
use brickscope_analysis::view;

use crate::text::printable;
use crate::{output, runs};

/// The exit code for a word that isn't known, as for a flag that isn't.
const UNKNOWN: u8 = 2;

/// Say what a word means: a brick, a rule of findings, or a term. With a run, say its figures, too.
///
/// Without a word, it lists all. Words may be written in any case, with or without dashes. A brick of the engine's own has
/// no text, but figures. A word that isn't known exits with 2.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope explain\n  brickscope explain down-projection\n  brickscope explain 'arithmetic intensity'\n  brickscope explain slow-layer RUN\n  brickscope explain LmHead RUN --json | jq '.[0].run.bricks[0].share'"
)]
pub(crate) struct ExplainArgs {
    /// The word; without one, all words are listed.
    pub(crate) word: Option<String>,

    /// The run whose figures are shown: its folder or profile.json, its tag, the beginning of its name, or `@-1` for the one
    /// before the newest. By default the newest in `brickscope-runs`, if there is one.
    pub(crate) run: Option<PathBuf>,

    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let Some(word) = &args.word else {
        let all =
            if args.json { view::explain_json(&explain::pages(), None) } else { view::words() };
        output::print(all)?;
        return Ok(ExitCode::SUCCESS);
    };
    let (run, profile) = of_run(args.run.as_deref())?;
    if let Some(Err(why)) = profile.as_ref().map(Profile::check) {
        tell!("note: this profile is inconsistent: {why}");
    }
    let pages = match &profile {
        Some(profile) => explain::find_in(word, profile),
        None => explain::find(word),
    };
    if pages.is_empty() {
        tell!("brickscope: explain: {}", unknown(word, profile.is_some()));
        return Ok(ExitCode::from(UNKNOWN));
    }
    let said: Option<Vec<InRun>> =
        profile.as_ref().map(|profile| pages.iter().map(|page| page.in_run(profile)).collect());
    let text = if args.json {
        view::explain_json(&pages, said.as_deref())
    } else {
        let name = run.map(|run| run.to_string_lossy().into_owned());
        view::explain(&pages, name.as_deref().zip(said.as_deref()))
    };
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The run that was named, or the newest one. A word has a meaning without one, too, if the newest can't be read.
fn of_run(named: Option<&Path>) -> Result<(Option<PathBuf>, Option<Profile>)> {
    if let Some(word) = named {
        let run = runs::named(word)?;
        let profile = runs::load(&run)?;
        return Ok((Some(run), Some(profile)));
    }
    let Some(run) = runs::newest_if_any()? else { return Ok((None, None)) };
    Ok(match runs::load(&run) {
        Ok(profile) => (Some(run), Some(profile)),
        Err(error) => {
            tell!("note: without its figures: {error:#}");
            (None, None)
        }
    })
}

fn unknown(word: &str, has_run: bool) -> String {
    let where_too = if has_run { ", and the run has no such brick" } else { "" };
    let close = explain::close(word);
    let hint = match close.len() {
        0 => "`brickscope explain` lists all words".to_owned(),
        1 => format!("did you mean `{}`?", close[0]),
        _ => format!("did you mean one of `{}`?", close.join("`, `")),
    };
    format!("`{}` is not a known word{where_too}: {hint}", printable(word))
}
