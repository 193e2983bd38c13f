//! `brickscope gc`: removes old runs.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use brickscope_runs::view::size;
use brickscope_runs::{
    BeingWritten, Budget, NotOurs, contents, home, is_run, list, old, remove, tag,
};

use crate::output;
use crate::text::count;

/// Remove all runs in a folder but the newest and those with a tag. Without --yes, only say which.
///
/// As with `rm`, only files that brickscope writes are removed, and runs that are being written stay. The newest are the first
/// that `ls` lists: those that were written last, and of an imported file it counts when it was imported.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope gc --keep 20\n  brickscope gc --keep 20 --yes\n  brickscope gc runs/nightly --keep 100 --yes"
)]
pub(crate) struct GcArgs {
    /// The folder of the runs. By default `brickscope-runs`.
    pub(crate) folder: Option<PathBuf>,

    /// How many of the newest runs stay, whether they have a tag or not.
    #[arg(long, value_name = "N")]
    pub(crate) keep: usize,

    /// Remove them.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

pub(crate) fn run(args: &GcArgs) -> Result<()> {
    let folder = args.folder.as_deref().unwrap_or(home());
    let list = list(folder, Budget::NONE).with_context(|| output::shown(folder))?;
    ensure!(
        !(is_run(folder) && list.are_parts()),
        "{} is a run itself: name the folder that it lies in",
        output::shown(folder)
    );
    let old = old(&list.rows, args.keep);
    let (mut runs, mut bytes, mut failed) = (0, 0_u64, 0);
    let mut text = String::new();
    for row in old {
        // It may have got one while others were removed.
        if tag::is_there(&row.path) {
            continue;
        }
        let freed = match args.yes {
            true => remove(&row.path).map(|removed| removed.bytes),
            false => contents(&row.path).map(|found| found.bytes),
        };
        match freed {
            Ok(freed) => {
                (runs, bytes) = (runs + 1, bytes.saturating_add(freed));
                text += &format!("{}  {}\n", output::shown(&row.path), size(freed));
            }
            Err(error) => {
                tell!("not removed: {error:#}");
                failed += u64::from(!error.is::<BeingWritten>() && !error.is::<NotOurs>());
            }
        }
    }
    let stay = (list.rows.len() as u64).saturating_sub(runs);
    let tagged = list.rows.iter().filter(|row| row.is_tagged).count();
    let (runs, bytes, stay) = (count(runs, "run"), size(bytes), count(stay, "run"));
    let stay = format!("what stays: {stay}, {tagged} with a tag");
    text += &match args.yes {
        true => format!("{runs} removed, {bytes}; {stay}\n"),
        false => format!("{runs}, {bytes}: --yes removes them; {stay}\n"),
    };
    output::print(text)?;
    ensure!(failed == 0, "{} not removed", count(failed, "run"));
    Ok(())
}
