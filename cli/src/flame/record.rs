//! Recording a run for a flamegraph: runs a model or a program, and samples it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{env, fs, io};

use anyhow::{Context, Result, anyhow, bail};
use brickscope::load::{self, Limit};
use brickscope::{Profile, write_atomically};
use brickscope_sampler::{Recording, Sampled, perf, perf_data, perf_event, resolve, timer};
use tempfile::TempDir;

use super::abilities::Abilities;
use crate::child::{End, end_with_parent};
use crate::family::{self, Lifeline};
use crate::flags::Via;
use crate::runs::{self, SAMPLES};
use crate::{interrupt, private, progress};

/// The folder of a flamegraph. If it can't be written to any more, another one takes its place, since a
/// recording can't be repeated.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    /// What went wrong with the first folder, to be said at the end.
    pub(crate) trouble: Option<anyhow::Error>,
}

impl Place {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, trouble: None }
    }

    /// Writes with `write` to the folder, or else to another. An error of both is kept, so that what was
    /// recorded can still be shown.
    pub(crate) fn write(&mut self, write: impl Fn(&Path) -> Result<()>) {
        let Err(why) = write(&self.dir) else { return };
        if let Some(trouble) = self.trouble.take() {
            let dir = self.dir.display();
            self.trouble =
                Some(anyhow!("{trouble:#}; and then {dir} could not be written to: {why:#}"));
            return;
        }
        let other = private::temporary().map(TempDir::keep).and_then(|other| {
            write(&other).inspect_err(|_| drop(fs::remove_dir(&other)))?;
            Ok(other)
        });
        let why = why.root_cause().to_string();
        match other {
            Ok(other) => self.move_to(other, &why),
            Err(error) => {
                let dir = self.dir.display();
                self.trouble = Some(anyhow!(
                    "the flamegraph could not be written to {dir}: {why}; nor could it be saved \
                     elsewhere: {error:#}"
                ));
            }
        }
    }

    fn move_to(&mut self, other: PathBuf, why: &str) {
        let dir = self.dir.display();
        let other_dir = other.display();
        self.trouble = Some(anyhow!(
            "the flamegraph could not be written to {dir}: {why}; it was saved to {other_dir} instead"
        ));
        self.dir = other;
    }
}

/// What a recorded run left behind.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) profile: Option<Profile>,
    pub(crate) sampled: Option<Sampled>,
}

/// How to record a run, and where to.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    pub(crate) via: Via,
    pub(crate) abilities: &'a Abilities,
    /// Samples per second of each thread's CPU time.
    pub(crate) frequency: u32,
    pub(crate) place: &'a mut Place,
}

/// Prepares a command to end with this process. What is returned must live until it has ended.
type Tie = fn(&mut Command, Via) -> Result<Option<Lifeline>>;

fn tie_own(command: &mut Command, via: Via) -> Result<Option<Lifeline>> {
    if via == Via::Perf {
        // Ctrl-C in a terminal would end `perf` before the run has reported. This process passes it on to the run.
        command.process_group(0);
    }
    family::tie(command).map(Some)
}

fn tie_foreign(command: &mut Command, via: Via) -> Result<Option<Lifeline>> {
    family::untie(command);
    // `perf` ends what it runs, if it is asked to end.
    end_with_parent(command, if via == Via::Perf { End::Ask } else { End::Kill });
    Ok(None)
}

impl Recorder<'_> {
    /// Runs the model with `brickscope profile` in a process of its own.
    pub(crate) fn model(&mut self, model: Option<&Path>, flags: &[String]) -> Result<Recorded> {
        let mut command = Command::new(env::current_exe().context("this program")?);
        command.arg("profile").args(model);
        command.arg("--out").arg(&self.place.dir).arg("--json").args(flags);
        // For the run of a child that can't write to its own folder: made by the child, if it comes to that. Where there is no
        // such place, the child says so.
        let holder = private::temporary().ok();
        let rescue = holder.as_ref().map(|holder| holder.path().join("run"));
        if let Some(rescue) = &rescue {
            command.arg("--rescue").arg(rescue);
        }
        // The folder holds what it prints.
        let watched = self.watch(command, Stdio::null(), tie_own)?;
        let status = watched.status;
        let has_profile = |dir: &Path| runs::profile_in(dir).is_file();
        if interrupt::was_child(status) {
            // What ran until then is drawn.
            if !has_profile(&self.place.dir) {
                return Err(interrupt::Nothing.into());
            }
        } else if let (false, Some(rescue)) =
            (status.success(), rescue.filter(|rescue| has_profile(rescue)))
        {
            holder.map(TempDir::keep);
            // It has said why.
            self.place.move_to(rescue, "the run could not be written there");
        } else if !status.success() {
            bail!("the run failed ({status}): see its message above");
        }
        let profile = runs::load(&self.place.dir)?;
        self.keep(watched.sampled.as_ref());
        Ok(Recorded { profile: Some(profile), sampled: watched.sampled })
    }

    /// Runs a program, which may leave its profile in the folder.
    pub(crate) fn command(&mut self, line: &[OsString], stdout: Stdio) -> Result<Recorded> {
        let [program, rest @ ..] = line else { bail!("there is no command to run") };
        let mut command = Command::new(program);
        let profile = runs::profile_in(&self.place.dir);
        // The program may change its working directory before it writes.
        let asked = std::path::absolute(&profile).context("the current folder")?;
        command.args(rest).env("BRICKSCOPE_PROFILE", asked);
        let watched = self.watch(command, stdout, tie_foreign)?;
        self.keep(watched.sampled.as_ref());
        if !watched.status.success() {
            tell!("note: {} ended with {}", program.display(), watched.status);
        }
        let profile = if profile.exists() { Some(Profile::load(&profile)?) } else { None };
        if self.via == Via::Spans && profile.is_none() {
            bail!(
                "{} left no spans: a program that is built with brickscope leaves them by \
                 `profiler.profile().save_where_asked()`; any other can be sampled (--via sampler)",
                program.display()
            );
        }
        Ok(Recorded { profile, sampled: watched.sampled })
    }

    /// Writes the samples that this process took.
    fn keep(&mut self, sampled: Option<&Sampled>) {
        if let Some(sampled) = sampled.filter(|_| self.via != Via::Timer) {
            self.place.write(|dir| write(&dir.join(SAMPLES), sampled));
        }
    }

    fn watch(&self, mut command: Command, stdout: Stdio, tie: Tie) -> Result<Watched> {
        let (via, abilities, frequency) = (self.via, self.abilities, self.frequency);
        let dir = &*self.place.dir;
        let cannot = |command: &Command| format!("can't run {}", command.get_program().display());
        let (recording, status) = match via {
            Via::Spans => {
                let _tied = tie(&mut command, via)?;
                let status = command.stdout(stdout).status().with_context(|| cannot(&command))?;
                return Ok(Watched { status, sampled: None });
            }
            Via::Sampler => {
                if let Err(why) = &abilities.sampler {
                    bail!("can't sample: {why}");
                }
                let options = perf_event::Options {
                    frequency: frequency.into(),
                    ..perf_event::Options::default()
                };
                command.stdout(stdout);
                let _tied = tie(&mut command, via)?;
                perf_event::record(command, &options, |_| ())?
            }
            Via::Timer => {
                let path = dir.join(SAMPLES);
                let asked = std::path::absolute(&path).context("the current folder")?;
                command
                    .env(timer::SAMPLES_VARIABLE, asked)
                    .env(timer::FREQUENCY_VARIABLE, frequency.to_string());
                let _tied = tie(&mut command, via)?;
                let status = command.stdout(stdout).status().with_context(|| cannot(&command))?;
                if !path.exists() && !status.success() {
                    return Ok(Watched { status, sampled: None });
                }
                if !path.exists() {
                    bail!(
                        "{} left no samples: only a program that samples itself can be sampled by \
                         timers. `brickscope profile` does; for others, allow perf_event_open: {}",
                        command.get_program().display(),
                        abilities
                            .sampler
                            .as_ref()
                            .err()
                            .map_or("--via sampler works here", |why| why)
                    );
                }
                return Ok(Watched { status, sampled: Some(read(&path)?) });
            }
            Via::Perf => {
                let perf = match &abilities.perf {
                    Ok(perf) => perf,
                    Err(why) => bail!("can't use perf: {why}"),
                };
                let passing = Passing::create(dir)?;
                let data = passing.0.join("perf.data");
                let options = perf_event::Options::default();
                let mut recorder = perf::command(
                    &perf.event,
                    frequency.into(),
                    options.stack_bytes,
                    &data,
                    &command,
                );
                let _tied = tie(&mut recorder, via)?;
                let status = recorder.stdout(stdout).status().with_context(|| cannot(&recorder))?;
                let of = command.get_program().display();
                if !data.exists() {
                    bail!(
                        "perf record of {of} ended with {status} and left nothing: see its message above"
                    );
                }
                let recording = match from_perf(&data) {
                    Ok(recording) => recording,
                    Err(_) if !status.success() => {
                        bail!("perf record of {of} ended with {status}: see its message above")
                    }
                    Err(error) => {
                        // Keep the user's recording.
                        std::mem::forget(passing);
                        return Err(error);
                    }
                };
                (recording, status)
            }
        };
        Ok(Watched { status, sampled: Some(name(&recording)) })
    }
}

struct Watched {
    status: ExitStatus,
    sampled: Option<Sampled>,
}

/// A temporary folder, removed with its contents. A perf.data file is converted to samples, which take a
/// thousandth of its size.
struct Passing(PathBuf);

impl Passing {
    fn create(dir: &Path) -> Result<Self> {
        let path = dir.join(format!(".perf.{}.partial", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads the output of `perf record`.
pub(crate) fn from_perf(path: &Path) -> Result<Recording> {
    let bar = progress::steps("reading", 0);
    let recording = perf_data::read(path, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(recording)
}

/// Resolves the names of the functions.
pub(crate) fn name(recording: &Recording) -> Sampled {
    let bar = progress::steps("naming", 0);
    let sampled = resolve(recording, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    sampled
}

/// The most that is read of samples.
const LIMIT: Limit =
    Limit { bytes: 1 << 30, instead: "sample for a shorter time, or less often (--frequency)" };

/// Reads the samples of a run.
pub(crate) fn read(path: &Path) -> Result<Sampled> {
    let json = load::text(path, LIMIT).with_context(|| path.display().to_string())?;
    let sampled: Sampled = serde_json::from_str(&json)
        .with_context(|| format!("{} doesn't hold samples by brickscope", path.display()))?;
    // All other code relies on these properties.
    let weight = sampled.samples.iter().try_fold(0_u64, |sum, s| sum.checked_add(s.weight));
    if weight.is_none_or(|weight| weight > u64::MAX / 2) {
        bail!("{}: the weights of all samples are too large to add up", path.display());
    }
    let n_frames = sampled.frames.len();
    let is_odd =
        |stack: &Vec<u32>| stack.is_empty() || stack.iter().any(|&f| f as usize >= n_frames);
    if let Some(stack) = sampled.stacks.iter().position(is_odd) {
        bail!(
            "{}: stacks[{stack}] is empty, or has a frame outside of the {n_frames} frames",
            path.display()
        );
    }
    let n_stacks = sampled.stacks.len();
    let odd = sampled.samples.iter().position(|sample| sample.stack as usize >= n_stacks);
    if let Some(sample) = odd {
        bail!("{}: samples[{sample}] has a stack outside of the {n_stacks} stacks", path.display());
    }
    Ok(sampled)
}

/// Writes the samples of a run atomically.
pub(crate) fn write(path: &Path, sampled: &Sampled) -> Result<()> {
    let context = |error: io::Error| anyhow::Error::new(error).context(path.display().to_string());
    write_atomically(path, context, |out| Ok(serde_json::to_writer(out, sampled)?))
}

/// The samples of a run, if it has any.
pub(crate) fn of_run(run: &Path) -> Option<PathBuf> {
    let path = run.join(SAMPLES);
    path.is_file().then_some(path)
}
