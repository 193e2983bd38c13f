//! `brickscope findings`: what slows a run down, and how to test it.

use std::path::PathBuf;

use anyhow::Result;
use brickscope_analysis::findings::Findings;
use brickscope_analysis::view;

use crate::{output, runs};

/// Say what slows a run down: what would be gained, by which figures, and how to test it.
///
/// Each finding is a hypothesis with a prediction. It never predicts more than what a pass takes beyond the least time that
/// its work could take on the machine. What the run doesn't tell is listed, with the reason.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope findings\n  brickscope findings RUN\n  brickscope findings RUN --json | jq '.found[0].rule'"
)]
pub(crate) struct FindingsArgs {
    /// The run: its folder or profile.json, its tag, the beginning of its name, or `@-1` for the one before the newest. By
    /// default the newest in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// Print them as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &FindingsArgs) -> Result<()> {
    let run = runs::named_or_newest(args.run.as_deref())?;
    let profile = runs::load(&run)?;
    if let Err(why) = profile.check() {
        tell!("note: this profile is inconsistent: {why}");
    }
    if args.json {
        let json = serde_json::to_string_pretty(&Findings::of(&profile))?;
        return output::print(json + "\n");
    }
    let folder = run.to_string_lossy();
    output::print(view::findings(&profile, Some(&folder)))
}
