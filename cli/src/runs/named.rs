//! Which run a word names, for every command: `brickscope-runs` decides it, and this tells what was found.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope_runs::{By, Found, find, home, newest};

use super::sides::beside;
use crate::output::shown;

/// The run that a word names: a path, `@`, a tag, or a name or its beginning. Unless it is a path, says which run that is.
pub(crate) fn named(word: &Path) -> Result<PathBuf> {
    let Found { path, by } = find(word, home())?;
    // Of other files, such as models, who reads them says more.
    let is_word = word.components().count() == 1 && word.extension().is_none();
    // A baseline whose update was interrupted is under another name for a while.
    let is_moved = || beside(&path, "last").is_some_and(|last| last.is_dir());
    let is_there = || path.exists() || path.is_symlink() || is_moved();
    if by == By::Path && is_word && !is_there() {
        let (word, home) = (shown(word), shown(home()));
        bail!(
            "{word}: No such file, and no run in {home} has this name or tag: `brickscope ls` lists the runs, and \
             `brickscope profile` writes a run"
        );
    }
    if by != By::Path && path.file_name() != Some(word.as_os_str()) {
        tell!("note: {} is {}", shown(word), shown(&path));
    }
    Ok(path)
}

/// The same, or without a word the newest run.
pub(crate) fn named_or_newest(word: Option<&Path>) -> Result<PathBuf> {
    if let Some(word) = word {
        return named(word);
    }
    newest_if_any()?.with_context(|| {
        let home = shown(home());
        format!(
            "name a run: there is none in {home}, where `brickscope profile`, `run` or `import` writes one"
        )
    })
}

/// The newest run, if there is one.
pub(crate) fn newest_if_any() -> Result<Option<PathBuf>> {
    let newest = newest(home())?;
    if let Some(run) = &newest {
        tell!("note: of the newest run, {}", shown(run));
    }
    Ok(newest)
}
