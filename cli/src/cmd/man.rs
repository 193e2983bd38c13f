//! `brickscope man`: manual pages, from the same text as the help.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;

use crate::output;

/// Print brickscope's manual page, or write those of all commands.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope man | man -l -\n  brickscope man --out ~/.local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// The folder for the pages: brickscope.1, and one for each command, such as brickscope-profile.1. It is
    /// made if there is none.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `command` is the whole command line.
pub(crate) fn run(args: &ManArgs, command: Command) -> Result<()> {
    let Some(folder) = &args.out else {
        // As `generate_to` does.
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return output::stream(|out| out.write_all(&page));
    };
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| output::shown(folder))
}
