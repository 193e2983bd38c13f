//! `brickscope export`: a run in the form that another program reads.

use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope::stacks::{self, Stacks};
use brickscope::{Profile, export, write_atomically};

use crate::args::{By, ExportArgs, ExportFormat};
use crate::{device, run_dir};

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    check(args)?;
    let profile = run_dir::load(&args.run)?;
    if let Err(why) = profile.check() {
        eprintln!("note: this profile does not add up: {why}");
    }
    let to = Target::of(args);
    match args.format {
        ExportFormat::Speedscope => {
            let title = title(&profile);
            let stacks = stacks(profile, args)?;
            to.write(|out| export::speedscope::write(&stacks, &title, out))
        }
        ExportFormat::Folded => {
            let stacks = stacks(profile, args)?;
            to.write(|out| export::folded::write(&stacks, out))
        }
        ExportFormat::Pprof => {
            let stacks = stacks(profile, args)?;
            to.write(|out| export::pprof::write(&stacks, out))
        }
    }
}

impl ExportFormat {
    /// The file in the run's folder.
    fn file(self) -> &'static str {
        match self {
            Self::Speedscope => "speedscope.json",
            Self::Folded => "stacks.folded",
            Self::Pprof => "profile.pb.gz",
        }
    }

    /// Whether it is made of stacks, and not of what they are added up from.
    fn is_of_stacks(self) -> bool {
        matches!(self, Self::Speedscope | Self::Folded | Self::Pprof)
    }
}

/// Flags that would do nothing are mistakes.
fn check(args: &ExportArgs) -> Result<()> {
    if args.by.is_some() && !args.format.is_of_stacks() {
        bail!("--by is of stacks: of the formats speedscope, folded and pprof");
    }
    Ok(())
}

/// Where an export goes.
enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn of(args: &ExportArgs) -> Self {
        match &args.output {
            Some(path) if path.as_os_str() == "-" => Self::Stdout,
            Some(path) => Self::File(path.clone()),
            None => Self::File(run_dir::folder_of(&args.run).join(args.format.file())),
        }
    }

    /// Writes a file, whole or not at all, and prints its path.
    fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::BufWriter::new(stdout().lock());
                write(&mut out)?;
                Ok(out.flush()?)
            }
            Self::File(path) => {
                write_atomically(path, |error| error, |out| write(out))
                    .with_context(|| path.display().to_string())?;
                print(path)
            }
        }
    }
}

fn print(path: &Path) -> Result<()> {
    Ok(writeln!(stdout().lock(), "{}", path.display())?)
}

/// The stacks of the spans, of the device if that ran the bricks.
fn stacks(profile: Profile, args: &ExportArgs) -> Result<Stacks> {
    let by = match args.by.unwrap_or(By::Layer) {
        By::Layer => stacks::By::Layer,
        By::Brick => stacks::By::Brick,
        By::Thread => stacks::By::Thread,
    };
    let profile = device::where_it_ran(profile, "stacks");
    Ok(Stacks::of_spans(&profile, by, 0))
}

/// What a viewer shows above a run.
fn title(profile: &Profile) -> String {
    let model = profile.model.as_ref().map(|model| match &model.name {
        Some(name) => name.clone(),
        None => model.path.clone(),
    });
    match model {
        Some(model) => format!("{model}, {}", profile.created),
        None => profile.created.clone(),
    }
}
