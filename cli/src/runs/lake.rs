//! What lakes take from this command: its cache folder, its temporary folders, its runs, and where it says things.

use std::path::Path;

use anyhow::Result;
use brickscope::Profile;
pub(crate) use brickscope_lake::*;
use brickscope_runs::llama_bench;

use crate::{cache, machine_name, private, progress};

/// This command, for lakes.
pub(crate) const HOST: Host = Host {
    cache: cache::folder,
    temporary: private::temporary,
    load: profile,
    machine: machine_name::of_run,
    tell: |what| tell!("{what}"),
};

/// A run's profile, or that of a file of llama-bench.
fn profile(run: &Path) -> Result<Profile> {
    if run.is_file()
        && let Some(profile) = llama_bench::read(run)?
    {
        return Ok(profile);
    }
    brickscope_runs::load(run)
}

/// Brings the copy of an object store up to date.
pub(crate) fn refresh(lake: &mut Lake, days: Days<'_>) -> Result<()> {
    let bar = progress::steps("reading", 0);
    let refreshed = lake.refresh(days, &mut |done, all| progress::at(&bar, done, all));
    bar.finish_and_clear();
    refreshed
}
