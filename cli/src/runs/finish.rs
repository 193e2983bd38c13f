//! The end of a run, the same for each command: when it is written, it is printed, added to a lake, and pushed.

use std::path::Path;

#[cfg(feature = "parquet")]
use anyhow::Context;
use anyhow::{Result, bail};
use brickscope_runs::Written;

use super::otlp::{Pushing, Target};
use crate::machine_name;

/// Where a run goes besides its folder.
#[derive(Default)]
pub(crate) struct Places<'p> {
    /// The lake that was named.
    pub(crate) lake: Option<&'p Path>,
    /// The collector that was named.
    pub(crate) target: Option<&'p Target>,
    /// What was pushed to it while the run ran.
    pub(crate) pushing: Option<Pushing>,
}

/// Prints a run that was written, adds it to a lake and pushes it. `print` gets its folder, if there is one.
///
/// # Errors
///
/// The first of: it is in no lake; it could not be written where it should be; it could not be printed. Whatever fails, the
/// rest is done.
pub(crate) fn finish(
    written: Written,
    places: Places<'_>,
    print: impl FnOnce(Option<&Path>) -> Result<()>,
) -> Result<()> {
    let Written { folder, trouble } = written;
    let printed = print(folder.as_deref());
    let pushed: Vec<&Path> = folder.as_deref().into_iter().collect();
    let sent = send(folder.as_deref(), &pushed, places);
    sent.and(trouble.map_or(printed, Err))
}

/// Adds a run to a lake, and pushes the runs in these folders. Collectors may be slow, so they come last.
pub(crate) fn send(run: Option<&Path>, pushed: &[&Path], places: Places<'_>) -> Result<()> {
    let collected = into_lake(places.lake, run);
    if let Some(pushing) = places.pushing {
        pushing.finish();
    }
    if let Some(target) = places.target {
        pushed.iter().for_each(|folder| target.push_written(folder));
    }
    collected
}

/// Refuses names that can't be such, and what [`into_lake`] would, before anything is measured.
pub(crate) fn ready_for_lake(lake: Option<&Path>) -> Result<()> {
    machine_name::given()?;
    machine_name::commit()?;
    let Some(lake) = lake else { return Ok(()) };
    #[cfg(feature = "parquet")]
    super::lake::Lake::check(lake, &super::lake::HOST)?;
    #[cfg(not(feature = "parquet"))]
    add(lake, lake)?;
    Ok(())
}

/// Adds the run in a folder to a lake, if one was named.
pub(crate) fn into_lake(lake: Option<&Path>, run: Option<&Path>) -> Result<()> {
    match (lake, run) {
        (Some(lake), Some(run)) => add(lake, run),
        _ => Ok(()),
    }
}

#[cfg(not(feature = "parquet"))]
fn add(_: &Path, _: &Path) -> Result<()> {
    bail!(
        "--lake: this brickscope was built without Parquet; `cargo install --path cli --profile dist --features full` has it"
    )
}

#[cfg(feature = "parquet")]
fn add(lake: &Path, run: &Path) -> Result<()> {
    use super::lake::{About, HOST, Lake, collect};
    use crate::output;

    let about = About { commit: machine_name::commit()?, ..About::default() };
    let shown = output::shown(lake);
    let collected = Lake::open_or_make(lake, &HOST)
        .and_then(|lake| collect(&lake, &[run.to_owned()], &about, &mut |_, _| {}))
        .with_context(|| format!("the run is not in the lake {shown}"))?;
    if let Some((_, reason)) = collected.left_out.first() {
        bail!("the run is not in the lake {shown}: {reason}");
    }
    tell!("added to the lake {shown}");
    Ok(())
}
