//! What lakes take from this command: its cache folder, its temporary folders, its runs, and where it says things.

pub(crate) use brickscope_lake::*;

use crate::{cache, machine_name, private, run_dir};

/// This command, for lakes.
pub(crate) const HOST: Host = Host {
    cache: cache::folder,
    temporary: private::temporary,
    load: run_dir::load,
    machine: machine_name::of_run,
    tell: |what| tell!("{what}"),
};
