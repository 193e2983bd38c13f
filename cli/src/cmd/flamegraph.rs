//! `brickscope flamegraph`: where time went, as a picture.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use brickscope::{Machine, Profile, time_rfc3339, write_atomically};
use brickscope_analysis::export;
use brickscope_analysis::stacks::Stacks;
use brickscope_sampler::{Sampled, Sampler};

use crate::args::{By, FlamegraphArgs, Via};
use crate::device;
use crate::flame::abilities::Abilities;
use crate::flame::baseline::Baseline;
use crate::flame::input::Input;
use crate::flame::join::{self, BLOCKS};
use crate::flame::summary::{SCHEMA_VERSION, Source, Summary};
use crate::flame::take::{self, Taken};
use crate::flame::words::Written;
use crate::flame::{diff, draw, markdown, shares, terminal};
use crate::run_dir::{self, RunDir};

pub(crate) fn run(args: &FlamegraphArgs) -> Result<ExitCode> {
    // A baseline that can't be read is found out before a long run.
    let baseline = args.diff.as_deref().map(Baseline::load).transpose()?;
    let input = Input::of(args)?;
    check(args, &input)?;
    let material = Material::of(args, &input)?;
    let drawn = material.draw(args)?;
    drawn.save(&material.dir)?;
    let Some(baseline) = baseline else {
        let text = if args.json {
            json(&drawn.summary)?
        } else {
            terminal::text(&drawn.summary, &written(Some(&material.dir)))
        };
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let dir = &material.dir;
    let diff = diff::compare(&baseline.summary, &drawn.summary, args.threshold, args.force)
        .with_context(|| format!("the flamegraph is in {}", dir.display()))?;
    let look = drawn.look();
    for (file, direction) in
        [("diff.svg", draw::Direction::Forward), ("diff-reverse.svg", draw::Direction::Reverse)]
    {
        write(dir, file, &draw::diff_svg(&baseline.stacks, &drawn.stacks, &look, direction)?)?;
    }
    write(dir, "diff.md", &diff.markdown())?;
    print(&if args.json { diff.json()? } else { diff.text() })?;
    Ok(match (diff.exceeds_threshold(), diff.is_undecided()) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(3),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn print(text: &str) -> Result<()> {
    Ok(stdout().lock().write_all(text.as_bytes())?)
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Refuses what makes no sense together.
fn check(args: &FlamegraphArgs, input: &Input) -> Result<()> {
    match (input, args.via) {
        (Input::Run(run), Some(Via::Sampler | Via::Timer))
            if take::of_run(run_dir::folder_of(run)).is_none() =>
        {
            let run = run.display();
            bail!("--via: {run} has no samples, and a run that is over can't be sampled")
        }
        (Input::Run(_), Some(Via::Perf)) => bail!(
            "--via: a run that is over can't be sampled: name the perf.data, and the run by --run"
        ),
        (
            Input::PerfData(path) | Input::Folded(path),
            Some(Via::Spans | Via::Sampler | Via::Timer),
        ) => bail!("--via: {} was recorded before, by something else", path.display()),
        (Input::Folded(path), Some(Via::Perf)) => {
            bail!("--via: {} holds folded stacks, and is no perf.data", path.display())
        }
        (Input::Folded(path), None) if args.by.is_some() => {
            bail!("--by: the stacks in {} begin with what they begin with", path.display())
        }
        (Input::PerfData(_), _) => Ok(()),
        _ if args.run.is_some() => bail!("--run is for the samples of a perf.data"),
        _ => Ok(()),
    }
}

/// What there is to draw, and where to.
struct Material {
    /// Made for it, if it wasn't there: goes away again if nothing comes of it.
    _new: Option<RunDir>,
    dir: PathBuf,
    profile: Option<Profile>,
    sampled: Option<Sampled>,
    folded: Option<Stacks>,
    command: Option<Vec<String>>,
    /// Whether what lies outside of passes is of no interest.
    only_passes: bool,
    /// When it was recorded, RFC 3339 in UTC, if no profile says it.
    recorded: String,
}

impl Material {
    fn of(args: &FlamegraphArgs, input: &Input) -> Result<Self> {
        let started = Profile::empty(Default::default()).created;
        let out = args.out.as_deref();
        let of = |dir: PathBuf, new: Option<RunDir>, Taken { profile, sampled }: Taken| Self {
            _new: new,
            dir,
            profile,
            sampled,
            folded: None,
            command: None,
            only_passes: false,
            recorded: started.clone(),
        };
        // Beside what it is made of, or in a folder for itself.
        let place = |beside: Option<&Path>| -> Result<(PathBuf, Option<RunDir>)> {
            match (out, beside) {
                (None, Some(beside)) => Ok((beside.to_owned(), None)),
                (Some(out), Some(beside)) if is_same(out, beside) => Ok((out.to_owned(), None)),
                (out, _) => {
                    let new = RunDir::create(out, &started)?;
                    Ok((new.path().to_owned(), Some(new)))
                }
            }
        };
        Ok(match input {
            Input::Model(path) => {
                let (via, abilities) = via(args);
                let new = RunDir::create(out, &started)?;
                let taken = take::model(args, path.as_deref(), via, &abilities, new.path())?;
                Self { only_passes: true, ..of(new.path().to_owned(), Some(new), taken) }
            }
            Input::Command(line) => {
                let (via, abilities) = via(args);
                let new = RunDir::create(out, &started)?;
                let taken = take::command(args, line, via, &abilities, new.path())?;
                let command = line.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                Self { command: Some(command), ..of(new.path().to_owned(), Some(new), taken) }
            }
            Input::Run(run) => {
                let folder = run_dir::folder_of(run);
                let samples = take::of_run(folder).filter(|_| args.via != Some(Via::Spans));
                let sampled = samples.as_deref().map(take::read).transpose()?;
                // Of a command that left no spans there are samples only.
                let has_profile = !run.is_dir() || run_dir::profile_in(run).exists();
                let profile = match &sampled {
                    Some(_) if !has_profile => None,
                    Some(_) => Some(run_dir::load(run)?),
                    None => Some(device::where_it_ran(run_dir::load(run)?, "drawn")),
                };
                let before = Summary::load(folder).ok();
                let (dir, new) = place(Some(folder))?;
                let command = before.as_ref().and_then(|before| before.command.clone());
                let recorded = before.map_or(started.clone(), |before| before.generated);
                let material = of(dir, new, Taken { profile, sampled });
                Self { only_passes: command.is_none(), command, recorded, ..material }
            }
            Input::PerfData(path) => {
                let profile = args.run.as_deref().map(run_dir::load).transpose()?;
                let sampled = Some(take::name(&take::from_perf(path)?));
                let (dir, new) = place(None)?;
                Self { recorded: written_at(path)?, ..of(dir, new, Taken { profile, sampled }) }
            }
            Input::Folded(path) => {
                let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
                let folded = Some(export::folded::read(&text, path)?);
                let (dir, new) = place(None)?;
                Self { folded, recorded: written_at(path)?, ..of(dir, new, Taken::default()) }
            }
        })
    }

    fn draw(&self, args: &FlamegraphArgs) -> Result<Drawn> {
        let mut doubts = Vec::new();
        let (mut agreement, mut agreement_absent) = (None, None);
        let first = args.by.unwrap_or(By::Layer);
        let by = match first {
            By::Layer => brickscope_analysis::stacks::By::Layer,
            By::Brick => brickscope_analysis::stacks::By::Brick,
            By::Thread => brickscope_analysis::stacks::By::Thread,
        };
        let stacks = match (&self.folded, &self.sampled, &self.profile) {
            (Some(folded), ..) => folded.clone(),
            (None, Some(sampled), Some(profile)) => {
                match join::join(sampled, profile, first, self.only_passes) {
                    Ok(joined) => {
                        doubts.extend(joined.doubts);
                        match joined.agreement {
                            Ok(found) => agreement = Some(found),
                            Err(absent) => agreement_absent = Some(absent),
                        }
                        joined.stacks
                    }
                    Err(absent) => {
                        doubts.push(format!("stacks have no bricks: {}", absent.reason));
                        agreement_absent = Some(absent);
                        join::alone(sampled, first)
                    }
                }
            }
            (None, Some(sampled), None) => {
                let reason = "nothing left spans to lay the samples beside".to_owned();
                if first != By::Thread {
                    doubts.push(format!("stacks have no bricks: {reason}"));
                }
                agreement_absent = Some(brickscope::Absent { reason });
                join::alone(sampled, first)
            }
            (None, None, Some(profile)) => Stacks::of_spans(profile, by, BLOCKS),
            (None, None, None) => bail!("there is nothing to draw"),
        };
        if stacks.is_empty() {
            bail!("{}", self.why_empty());
        }
        if let Some(sampled) = &self.sampled {
            doubts.extend(of_samples(sampled));
        }
        if let Some(profile) = &self.profile {
            doubts.extend(profile.dropped.lines());
        }
        let run = self.profile.as_ref().and_then(|profile| profile.run.clone());
        let generated = match &self.profile {
            Some(profile) => profile.created.clone(),
            None => self.recorded.clone(),
        };
        let summary = Summary {
            schema_version: SCHEMA_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            generated,
            source: self.source(),
            unit: stacks.unit,
            total: stacks.total(),
            doubts,
            model: self.profile.as_ref().and_then(|profile| profile.model.clone()),
            // What was run just now ran here.
            machine: self
                .profile
                .as_ref()
                .and_then(|profile| profile.machine.clone())
                .or_else(|| self.command.is_some().then(brickscope::machine::detect)),
            run,
            command: self.command.clone(),
            command_line: std::env::args().collect(),
            build: build(),
            classes: shares::classes(&stacks),
            bricks: shares::bricks(&stacks),
            functions: shares::functions(&stacks),
            agreement,
            agreement_absent,
        };
        Ok(Drawn { stacks, summary })
    }

    fn source(&self) -> Source {
        match &self.sampled {
            Some(sampled) => Source {
                via: match sampled.sampler {
                    Sampler::PerfEvent => "sampler",
                    Sampler::Timer => "timer",
                    Sampler::Perf => "perf",
                }
                .to_owned(),
                event: Some(sampled.event.clone()),
                frequency: sampled.frequency,
            },
            None => {
                let via = if self.folded.is_some() { "folded" } else { "spans" };
                Source { via: via.to_owned(), event: None, frequency: None }
            }
        }
    }

    /// Why there is nothing in the picture.
    fn why_empty(&self) -> String {
        match (&self.sampled, &self.profile) {
            (Some(sampled), _) if sampled.samples.is_empty() => format!(
                "no samples were taken ({}): the program used hardly any CPU time, or was over too \
                 soon",
                sampled.event
            ),
            (Some(sampled), _) => format!(
                "all {} samples lie outside of passes: run more tokens (--tokens)",
                sampled.samples.len()
            ),
            (None, Some(_)) => {
                "the run has no passes and no spans: there is nothing to draw".to_owned()
            }
            (None, None) => "there are no stacks to draw".to_owned(),
        }
    }
}

/// Whether two folders are one.
fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// When a file was last written, RFC 3339 in UTC: when what is in it was recorded, at the latest.
fn written_at(path: &Path) -> Result<String> {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    Ok(time_rfc3339(modified.with_context(|| path.display().to_string())?))
}

/// Where stacks are to come from, said on standard error before anything runs.
fn via(args: &FlamegraphArgs) -> (Via, Abilities) {
    let abilities = Abilities::look(args.via == Some(Via::Perf));
    let via = args
        .via
        .unwrap_or_else(|| if args.command.is_empty() { abilities.best() } else { Via::Sampler });
    let colour = super::doctor::wants_colour() && io::IsTerminal::is_terminal(&io::stderr());
    eprint!("{}", super::doctor::text(&abilities.findings(via), colour));
    (via, abilities)
}

/// What samples can't tell, a sentence each.
fn of_samples(sampled: &Sampled) -> impl Iterator<Item = String> {
    let n = sampled.samples.len() as u64;
    let of = |count: u64, what: &str| (count > 0).then(|| format!("{count} of {n} samples {what}"));
    let lost = (sampled.lost > 0).then(|| format!("{} samples were lost", sampled.lost));
    let cut = of(sampled.cut, "have stacks that were cut off: they begin with [stack cut off]");
    let part = of(
        sampled.unwound_in_part,
        "have stacks that could not be unwound to their beginning, for want of unwind information",
    );
    [lost, cut, part].into_iter().flatten().chain(sampled.notes.clone())
}

/// A flamegraph, before it is written.
struct Drawn {
    stacks: Stacks,
    summary: Summary,
}

/// What is written to the folder, and what it is.
const FILES: [(&str, &str); 6] = [
    ("flamegraph.svg", "the flamegraph, for a browser"),
    ("flamegraph.md", "these tables, for reading"),
    ("flamegraph.json", "these tables, for --diff, history and scripts"),
    ("flamegraph.folded", "the stacks, for other programs"),
    ("speedscope.json", "the same for speedscope.app"),
    ("profile.pb.gz", "the same for pprof"),
];

/// As they are to be named from the current folder or, without `dir`, from beside them.
fn written(dir: Option<&Path>) -> Vec<Written> {
    let path = |file: &str| match dir {
        Some(dir) => dir.join(file).display().to_string(),
        None => file.to_owned(),
    };
    FILES
        .iter()
        .map(|(file, what)| Written { path: path(file), what: (*what).to_owned() })
        .collect()
}

impl Drawn {
    fn save(&self, dir: &Path) -> Result<()> {
        let Self { stacks, summary } = self;
        write(dir, FILES[0].0, &draw::svg(stacks, &self.look())?)?;
        write(dir, FILES[1].0, &markdown::markdown(summary, &written(None)))?;
        write(dir, FILES[2].0, &json(summary)?)?;
        save(dir, FILES[3].0, |out| export::folded::write(stacks, out))?;
        save(dir, FILES[4].0, |out| export::speedscope::write(stacks, &self.look().title, out))?;
        save(dir, FILES[5].0, |out| export::pprof::write(stacks, out))
    }

    fn look(&self) -> draw::Look {
        draw::Look::of(&self.summary)
    }
}

fn write(dir: &Path, file: &str, text: &str) -> Result<()> {
    save(dir, file, |out| out.write_all(text.as_bytes()))
}

fn save(
    dir: &Path,
    file: &str,
    write: impl FnOnce(&mut io::BufWriter<fs::File>) -> io::Result<()>,
) -> Result<()> {
    let path = dir.join(file);
    write_atomically(&path, |error| error, write).with_context(|| path.display().to_string())
}

/// The commit, the compiler and the kind of build.
fn build() -> String {
    let profile = env!("BRICKSCOPE_BUILD_PROFILE");
    let flags = env!("BRICKSCOPE_BUILD_RUSTFLAGS");
    let flags = if flags.is_empty() { String::new() } else { format!(", RUSTFLAGS=\"{flags}\"") };
    let commit = option_env!("BRICKSCOPE_BUILD_COMMIT");
    let commit = commit.map(|commit| format!("{commit}, ")).unwrap_or_default();
    let compiler = env!("BRICKSCOPE_BUILD_RUST_VERSION");
    format!("{commit}{compiler}, {profile}{flags}")
}
