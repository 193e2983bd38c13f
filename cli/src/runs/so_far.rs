//! A run of what a recording that goes on has kept so far.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope_live::socket::{LiveError, ask_so_far, ask_so_far_at};

use crate::output;
use crate::text::count;

/// Has a run written by `brickscope run --keep tail`, given by its process, that of its program, or its socket, and returns the
/// folder.
pub(crate) fn so_far_of(what: &str) -> Result<PathBuf> {
    let asked = match what.parse::<u32>() {
        Ok(pid) => ask_so_far(pid),
        Err(_) => ask_so_far_at(Path::new(what)),
    };
    let so_far = match asked {
        // What it says of live views is of none here.
        Err(LiveError::NotPublishing { pid, path }) => bail!(
            "process {pid} can't be asked: only `brickscope run --keep tail` writes a run while it goes on, and {} doesn't \
             exist",
            path.display()
        ),
        Err(LiveError::Refused(why)) => bail!("--attach {what}: {why}"),
        asked => asked.with_context(|| format!("--attach {what}"))?,
    };
    tell!("note: {} so far: {}", count(so_far.passes, "pass"), output::shown(&so_far.folder));
    Ok(so_far.folder)
}
