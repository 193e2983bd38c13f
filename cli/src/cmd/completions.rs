//! `brickscope completions`: what a shell completes after `brickscope`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Command;
use clap_complete::Shell;

use crate::output;

/// Print a script that lets a shell complete brickscope's commands and flags, or install it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope completions --install\n  source <(brickscope completions bash)\n  brickscope completions zsh > ~/.zfunc/_brickscope\n  brickscope completions fish > ~/.config/fish/completions/brickscope.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell. With --install, by default the one that SHELL names.
    #[arg(required_unless_present = "install")]
    pub(crate) shell: Option<Shell>,

    /// Write the script where bash, zsh or fish looks for a user's own, and say what is to do next. No other file is
    /// changed.
    #[arg(long)]
    pub(crate) install: bool,
}

/// `command` is the whole command line.
pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let shell = args.shell.or_else(Shell::from_env);
    let shell = shell.context(
        "SHELL names no shell that is known: name one of bash, elvish, fish, powershell and zsh",
    )?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "brickscope", &mut script);
    if !args.install {
        return output::stream(|out| out.write_all(&script));
    }
    let (file, next) = place(shell)?;
    let cannot = || format!("can't write {}", output::shown(&file));
    fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).with_context(cannot)?;
    fs::write(&file, script).with_context(cannot)?;
    output::print(format!("{} is written.\n{next}\n", output::shown(&file)))
}

/// The file of a user's own completions, and what makes the shell read it.
fn place(shell: Shell) -> Result<(PathBuf, &'static str)> {
    let folder = |variable: &str, in_home: &str| {
        let named = std::env::var_os(variable).map(PathBuf::from).filter(|of| of.is_absolute());
        let home = || dirs::home_dir().map(|home| home.join(in_home));
        named.or_else(home).context("there is no home folder")
    };
    Ok(match shell {
        Shell::Bash => {
            let completions = folder("XDG_DATA_HOME", ".local/share")?.join("bash-completion");
            let completions = completions.join("completions/brickscope");
            (completions, "New shells read it, if the package bash-completion is there.")
        }
        Shell::Zsh => (
            folder("ZDOTDIR", "")?.join(".zfunc/_brickscope"),
            "If your .zshrc doesn't name that folder yet, add this line before compinit:\n  \
             fpath+=(${ZDOTDIR:-~}/.zfunc)\nThen start a new shell.",
        ),
        Shell::Fish => (
            folder("XDG_CONFIG_HOME", ".config")?.join("fish/completions/brickscope.fish"),
            "New shells read it.",
        ),
        other => bail!(
            "--install knows bash, zsh and fish: `brickscope completions {other}` prints the script"
        ),
    })
}
