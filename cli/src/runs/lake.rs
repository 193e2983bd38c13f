//! What lakes take from this command: its cache folder, its temporary folders, its runs, and where it says things.

use anyhow::Result;
pub(crate) use brickscope_lake::*;

use crate::{cache, machine_name, private, progress};

/// This command, for lakes.
pub(crate) const HOST: Host = Host {
    cache: cache::folder,
    temporary: private::temporary,
    load: brickscope_runs::load,
    machine: machine_name::of_run,
    tell: |what| tell!("{what}"),
};

/// Brings the copy of an object store up to date.
pub(crate) fn refresh(lake: &mut Lake, days: Days<'_>) -> Result<()> {
    let bar = progress::steps("reading", 0);
    let refreshed = lake.refresh(days, &mut |done, all| progress::at(&bar, done, all));
    bar.finish_and_clear();
    refreshed
}
