//! `brickscope completions`: what a shell completes after `brickscope`.

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::output;

/// Print a script that lets a shell complete brickscope's commands and flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(brickscope completions bash)\n  brickscope completions zsh > ~/.zfunc/_brickscope\n  brickscope completions fish > ~/.config/fish/completions/brickscope.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

/// `command` is the whole command line.
pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "brickscope", &mut script);
    output::stream(|out| out.write_all(&script))
}
