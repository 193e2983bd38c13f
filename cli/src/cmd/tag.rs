//! `brickscope tag`: a name for a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope_runs::{Budget, find, folder_of, home, is_run, list, tag};

use crate::{output, runs};

/// Give a run a name, by which all commands find it, and which keeps `gc` from removing it.
///
/// A run has one tag, and another one replaces it. The tag is a file in the run's folder, so it goes where the run goes.
/// Commands look for tags in `brickscope-runs`, so only a run that lies there gets one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope tag @ best\n  brickscope compare best @\n  brickscope tag best --remove"
)]
pub(crate) struct TagArgs {
    /// The run: its folder, its tag, the beginning of its name, `@` for the newest or `@-1` for the one before.
    pub(crate) run: PathBuf,

    /// The tag: letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit.
    #[arg(required_unless_present = "remove")]
    pub(crate) name: Option<String>,

    /// Take the run's tag from it.
    #[arg(long, conflicts_with = "name")]
    pub(crate) remove: bool,
}

pub(crate) fn run(args: &TagArgs) -> Result<()> {
    let run = runs::named(&args.run).map_err(|error| swapped(args).unwrap_or(error))?;
    let folder = folder_of(&run);
    let shown = output::shown(folder);
    // Of what isn't there, the folder would be this one.
    let is_there = fs::metadata(&run).is_ok();
    ensure!(is_there && is_run(folder), "{} is not the folder of a run", output::shown(&run));
    let before = tag::of(folder).map(|name| format!("`{name}`"));
    let Some(name) = &args.name else {
        ensure!(tag::remove(folder).with_context(|| shown.clone())?, "{shown} has no tag");
        let before = before.unwrap_or_else(|| "a tag".to_owned());
        return output::print(format!("{shown} is not {before} any more\n"));
    };
    tag::check(name)?;
    is_looked_at(folder)?;
    is_free(name, folder)?;
    tag::set(folder, name).with_context(|| shown.clone())?;
    let before = before.filter(|before| *before != format!("`{name}`"));
    let before = before.map_or_else(String::new, |before| format!(", and not {before} any more"));
    if fs::symlink_metadata(name).is_ok() {
        tell!("note: here is a file or folder called {name}, which wins over the tag");
    }
    output::print(format!("{shown} is `{name}`{before}\n"))
}

/// What is wrong if the tag stands before the run.
fn swapped(args: &TagArgs) -> Option<anyhow::Error> {
    let name = args.name.as_deref()?;
    let run = find(Path::new(name), home()).ok().filter(|found| is_run(&found.path))?;
    let (run, tag) = (output::shown(&run.path), output::shown(&args.run));
    Some(anyhow!("the run comes first, then its tag: `brickscope tag {run} {tag}`"))
}

/// Refuses a run whose tag no command would find.
fn is_looked_at(folder: &Path) -> Result<()> {
    let whole = fs::canonicalize(folder).ok();
    ensure!(
        is_same(whole.as_deref().and_then(Path::parent), Some(home())),
        "{} is not in {}, where commands look for tags: name it by its path, or move it there",
        output::shown(folder),
        output::shown(home())
    );
    Ok(())
}

/// Refuses a tag that would name two runs.
fn is_free(name: &str, folder: &Path) -> Result<()> {
    let other = home().join(name);
    ensure!(
        !is_run(&other) || is_same(Some(&other), Some(folder)),
        "{} is a run of that name: choose another tag",
        output::shown(&other)
    );
    // Without the folder there is no other run.
    let rows = list(home(), Budget::NONE).map(|list| list.rows).unwrap_or_default();
    let has_it = rows.iter().filter(|row| row.tag.as_deref() == Some(name));
    for row in has_it {
        if !is_same(Some(&row.path), Some(folder)) {
            let other = output::shown(&row.path);
            bail!("{other} is `{name}`: `brickscope tag {other} --remove` takes the tag from it");
        }
    }
    Ok(())
}

/// Whether two folders are one.
fn is_same(a: Option<&Path>, b: Option<&Path>) -> bool {
    let at = |path: Option<&Path>| path.and_then(|path| fs::canonicalize(path).ok());
    at(a).is_some_and(|a| Some(a) == at(b))
}
