//! Recording what is to be drawn, drawing it, and comparing it with a baseline.

use std::io::Write;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::rc::Rc;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use brickscope::{Profile, time_rfc3339, write_atomically};
use brickscope_analysis::requests::counts_by_passes;
use brickscope_analysis::stacks::{Stacks, Unit};
use brickscope_formats::export;
use brickscope_sampler::{Sampled, Sampler};

use super::FlamegraphArgs;
use crate::flags::{By, Via};
use crate::flame::abilities::Abilities;
use crate::flame::baseline::{self, Baseline};
use crate::flame::captions::{Look, Written, amount};
use crate::flame::index;
use crate::flame::input::Input;
use crate::flame::insights::{insights, latency};
use crate::flame::join::{self, BLOCKS};
use crate::flame::record::{self, Place, Recorded, Recorder};
use crate::flame::summary::{SCHEMA_VERSION, Source, Summary};
use crate::flame::{diff, draw, markdown, shares, terminal};
use crate::output;
use crate::runs::{self, RunDir};
use crate::text::{self, screened};
use crate::{device, interrupt};

pub(crate) fn run(args: &FlamegraphArgs) -> Result<ExitCode> {
    if let Some(folder) = &args.index {
        let page = index::write(folder)?;
        output::print(format!("{}\n", output::shown(&page)))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before the run, which may be long, so that an unreadable baseline is reported early.
    let diff_path = args.diff.as_deref().map(runs::named).transpose()?;
    let baseline = diff_path.as_deref().map(Baseline::load).transpose()?;
    let what = args.what.as_deref().map(runs::named).transpose()?;
    let input = Input::of(what.as_deref().or(args.named_model.as_deref()), &args.command)?;
    check(args, &input)?;
    let mut material = Material::of(args, &input)?;
    let drawn = material.draw(args, baseline.as_ref())?;
    material.place.write(|dir| drawn.save(dir));
    let Some(baseline) = baseline else {
        let text = if args.json {
            json(&drawn.summary)?
        } else {
            terminal::text(&drawn.summary, &written(Some(&material.place.dir)))
        };
        let printed = output::print(text);
        // Only after the figures, which it must not lose.
        return material.place.trouble.map_or(printed, Err).map(|()| ExitCode::SUCCESS);
    };
    let place = &mut material.place;
    let mut diff = diff::compare(&baseline.summary, &drawn.summary, args.threshold, args.force)
        .with_context(|| format!("the flamegraph is in {}", place.dir.display()))?;
    let named = diff.name([diff_path.as_deref().unwrap_or(Path::new("")), &place.dir]);
    let mut look = drawn.look();
    look.subtitle.push(named);
    let [forward, reverse, table] = DIFF_FILES;
    for (file, direction) in
        [(forward, draw::Direction::Forward), (reverse, draw::Direction::Reverse)]
    {
        let svg = draw::diff_svg(&baseline.stacks, &drawn.stacks, &look, direction)?;
        place.write(|dir| write(dir, file, &svg));
    }
    place.write(|dir| write(dir, table, &diff.markdown()));
    output::print(if args.json { diff.json()? } else { diff.text() })?;
    if let Some(trouble) = material.place.trouble {
        return Err(trouble);
    }
    Ok(match (diff.is_undecided(), diff.exceeds_threshold()) {
        (true, _) => ExitCode::from(3),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Refuses flags that contradict the input.
fn check(args: &FlamegraphArgs, input: &Input) -> Result<()> {
    match (input, args.via) {
        (Input::Run(run), Some(Via::Sampler | Via::Timer))
            if record::of_run(runs::folder_of(run)).is_none() =>
        {
            let run = run.display();
            bail!("--via: {run} has no samples, and a finished run can't be sampled")
        }
        (Input::Run(_), Some(Via::Perf)) => bail!(
            "--via: a finished run can't be sampled: name the perf.data file, and the run with --run"
        ),
        (
            Input::PerfData(path) | Input::Folded(path),
            Some(Via::Spans | Via::Sampler | Via::Timer),
        ) => bail!("--via: {} was recorded earlier, by another program", path.display()),
        (Input::Folded(path), Some(Via::Perf)) => {
            bail!("--via: {} holds folded stacks, and is not a perf.data file", path.display())
        }
        (Input::Folded(path), None) if args.by.is_some() => {
            bail!(
                "--by: the stacks in {} are folded already, and can't be rearranged",
                path.display()
            )
        }
        (Input::PerfData(_), _) if args.device.is_some() || args.host => {
            bail!("--device and --host go with the folder of a run")
        }
        (Input::PerfData(_), _) => Ok(()),
        _ if args.run.is_some() => bail!("--run goes with a perf.data file"),
        (Input::Run(run), _)
            if args.device.is_some()
                && args.via != Some(Via::Spans)
                && record::of_run(runs::folder_of(run)).is_some() =>
        {
            bail!("--device: samples are of the host; --via spans draws what was measured")
        }
        (Input::Run(_), _) => Ok(()),
        _ if args.device.is_some() => bail!("--device goes with the folder of a run"),
        _ if args.host => bail!("--host goes with the folder of a run"),
        _ => Ok(()),
    }
}

/// The material of a flamegraph, and the folder to write it to.
struct Material {
    /// The folder, if it was made for this flamegraph: removed again if nothing is written to it.
    _new: Option<RunDir>,
    place: Place,
    profile: Option<Profile>,
    /// The device of another program's trace whose kernels are drawn.
    device: Option<usize>,
    sampled: Option<Sampled>,
    folded: Option<Rc<Stacks>>,
    command: Option<Vec<String>>,
    /// Whether to leave out everything outside of passes.
    only_passes: bool,
    /// When it was recorded (RFC 3339, UTC), for material without a profile.
    recorded: String,
}

impl Material {
    fn of(args: &FlamegraphArgs, input: &Input) -> Result<Self> {
        let started = Profile::empty(Default::default()).created;
        let out = args.out.as_deref();
        let replaced: Vec<&str> = FILES.iter().map(|(file, _)| *file).chain(DIFF_FILES).collect();
        let create = || {
            let tell = |what: &str| tell!("{what}");
            if let Some(replaced) = out.filter(|_| args.archive) {
                brickscope_runs::archive(replaced).context("--archive")?;
            }
            RunDir::create_for_flamegraph(out, &started, args.overwrite, &replaced, tell)
        };
        let of =
            |place: Place, new: Option<RunDir>, Recorded { profile, sampled }: Recorded| Self {
                _new: new,
                place,
                profile,
                device: None,
                sampled,
                folded: None,
                command: None,
                only_passes: false,
                recorded: started.clone(),
            };
        // In the folder of its material, or in a new one.
        let place = |beside: Option<&Path>| -> Result<(Place, Option<RunDir>)> {
            match (out, beside) {
                (None, Some(beside)) => Ok((Place::new(beside.to_owned()), None)),
                (Some(out), Some(beside)) if is_same(out, beside) => {
                    Ok((Place::new(out.to_owned()), None))
                }
                _ => {
                    let new = create()?;
                    Ok((Place::new(new.path().to_owned()), Some(new)))
                }
            }
        };
        Ok(match input {
            Input::Model(path) => {
                let (via, abilities) = via(args);
                let new = create()?;
                let flags = profile_flags(args);
                // The run ends by itself after a signal, and what there is of it is drawn. If there is
                // nothing, its folder is removed.
                interrupt::watch()?;
                interrupt::keep();
                let mut place = Place::new(new.path().to_owned());
                let recorded =
                    recorder(args, via, &abilities, &mut place).model(path.as_deref(), &flags)?;
                Self { only_passes: true, ..of(place, Some(new), recorded) }
            }
            Input::Command(line) => {
                let (via, abilities) = via(args);
                let new = create()?;
                // With --json standard output is for the JSON.
                let stdout = if args.json { output::stderr_of_child() } else { Stdio::inherit() };
                let mut place = Place::new(new.path().to_owned());
                let recorded = recorder(args, via, &abilities, &mut place).command(line, stdout)?;
                let command = text::kept(line);
                Self { command: Some(command), ..of(place, Some(new), recorded) }
            }
            Input::Run(run) => {
                let folder = runs::folder_of(run);
                let samples = record::of_run(folder).filter(|_| args.via != Some(Via::Spans));
                let sampled = samples.as_deref().map(record::read).transpose()?;
                // A command that wrote no spans leaves samples only.
                let has_profile = !run.is_dir() || runs::profile_in(run).exists();
                let (profile, device) = match &sampled {
                    Some(_) if !has_profile => (None, None),
                    Some(_) => (Some(runs::load(run)?), None),
                    None => {
                        let (profile, device) = spans_to_draw(runs::load(run)?, args)?;
                        (Some(profile), device)
                    }
                };
                let before = Summary::load(folder).ok();
                let (place, new) = place(Some(folder))?;
                let command = before.as_ref().and_then(|before| before.command.clone());
                let recorded = before.map_or(started.clone(), |before| before.generated);
                let material = of(place, new, Recorded { profile, sampled });
                Self { only_passes: command.is_none(), command, recorded, device, ..material }
            }
            Input::PerfData(path) => {
                let run = args.run.as_deref().map(runs::named).transpose()?;
                let profile = run.as_deref().map(runs::load).transpose()?;
                let sampled = Some(record::name(&record::from_perf(path)?));
                let (place, new) = place(None)?;
                Self {
                    recorded: written_at(path)?,
                    ..of(place, new, Recorded { profile, sampled })
                }
            }
            Input::Folded(path) => {
                let folded = Some(Rc::new(baseline::folded(path)?));
                let (place, new) = place(None)?;
                Self { folded, recorded: written_at(path)?, ..of(place, new, Recorded::default()) }
            }
        })
    }

    fn draw(&self, args: &FlamegraphArgs, baseline: Option<&Baseline>) -> Result<Drawn> {
        let mut warnings = Vec::new();
        let (mut agreement, mut agreement_absent) = (None, None);
        // Two pictures can be compared if their stacks are alike.
        let has_layers = baseline.is_some_and(Baseline::has_layers);
        let first = args.by.unwrap_or(if has_layers { By::Layer } else { By::Brick });
        let stacks = match (&self.folded, &self.sampled, &self.profile) {
            (Some(folded), ..) => Rc::clone(folded),
            (None, Some(sampled), Some(profile)) => {
                match join::join(sampled, profile, first, self.only_passes) {
                    Ok(joined) => {
                        warnings.extend(joined.warnings);
                        match joined.agreement {
                            Ok(found) => agreement = Some(found),
                            Err(absent) => agreement_absent = Some(absent),
                        }
                        Rc::new(joined.stacks)
                    }
                    Err(absent) => {
                        warnings.push(format!("stacks have no bricks: {}", absent.reason));
                        agreement_absent = Some(absent);
                        Rc::new(join::alone(sampled, first))
                    }
                }
            }
            (None, Some(sampled), None) => {
                let reason = "there are no spans to join the samples with".to_owned();
                if first != By::Thread {
                    warnings.push(format!("stacks have no bricks: {reason}"));
                }
                agreement_absent = Some(brickscope::Absent { reason });
                Rc::new(join::alone(sampled, first))
            }
            (None, None, Some(profile)) => {
                Rc::new(device::stacks(profile, self.device, first.into(), BLOCKS)?)
            }
            (None, None, None) => bail!("there is nothing to draw"),
        };
        if stacks.is_empty() {
            bail!("{}", self.why_empty());
        }
        if let Some(sampled) = &self.sampled {
            warnings.extend(of_samples(sampled));
        }
        if let (Some(profile), Some(index)) = (&self.profile, self.device) {
            warnings.extend(of_device(profile, index));
        }
        if let Some(profile) = &self.profile {
            warnings.extend(profile.dropped.lines());
            warnings.extend(profile.not_finite.as_ref().map(ToString::to_string));
            let cut_short = profile.run.as_ref().and_then(|run| run.cut_short.as_ref());
            warnings.extend(cut_short.map(|how| format!("the run was cut short: {how}")));
        }
        let run = self.profile.as_ref().and_then(|profile| profile.run.clone());
        let generated = match &self.profile {
            Some(profile) => profile.created.clone(),
            None => self.recorded.clone(),
        };
        let mut summary = Summary {
            schema_version: SCHEMA_VERSION,
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            generated,
            source: self.source(),
            unit: stacks.unit,
            total: stacks.total(),
            warnings,
            model: self.profile.as_ref().and_then(|profile| profile.model.clone()),
            // A command was run just now, on this machine.
            machine: self
                .profile
                .as_ref()
                .and_then(|profile| profile.machine.clone())
                .or_else(|| self.command.is_some().then(brickscope::machine::detect)),
            run,
            command: self.command.clone(),
            command_line: crate::text::command_line(),
            build: build(),
            classes: shares::classes(&stacks),
            bricks: shares::bricks(&stacks),
            functions: shares::functions(&stacks),
            agreement,
            agreement_absent,
            hidden: None,
            latency: self.profile.as_ref().map(latency).unwrap_or_default(),
            insights: self.profile.as_ref().map(insights).unwrap_or_default(),
            disturbed: self.profile.as_ref().and_then(disturbed),
            counts_by_passes: self.profile.as_ref().is_some_and(counts_by_passes),
        };
        // Stacks that can't be drawn still have their figures.
        let picture = draw::svg(&stacks, &Look::of(&summary));
        summary.hidden = picture.as_ref().ok().map(|picture| picture.hidden);
        let svg = picture.map(|picture| picture.text);
        Ok(Drawn { stacks, summary, svg })
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
                let via = match (&self.folded, self.device) {
                    (Some(_), _) => "folded",
                    (None, Some(_)) => "device",
                    (None, None) => "spans",
                };
                Source { via: via.to_owned(), event: None, frequency: None }
            }
        }
    }

    /// Why there are no stacks to draw.
    fn why_empty(&self) -> String {
        match (&self.sampled, &self.profile) {
            (Some(sampled), _) if sampled.samples.is_empty() => format!(
                "no samples were taken ({}): the program used hardly any CPU time, or ended too \
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

/// The profile to draw, and which device of it if it is of another program: as `show` chooses it.
fn spans_to_draw(mut profile: Profile, args: &FlamegraphArgs) -> Result<(Profile, Option<usize>)> {
    if args.host {
        profile.devices.clear();
        return Ok((profile, None));
    }
    let Some(index) = args.device else { return Ok(device::of_stacks(profile, "drawn")) };
    if index >= profile.devices.len() {
        match profile.devices.len() {
            0 => bail!("this run used no device"),
            n => bail!("there is no device {index}: the run has {n}, numbered from 0"),
        }
    }
    if profile.imported.is_some() {
        return Ok((profile, Some(index)));
    }
    Ok((profile.whole_device(index).context("this device has no streams")?, None))
}

/// How many passes were disturbed, and how many there are, if any.
fn disturbed(profile: &Profile) -> Option<[u64; 2]> {
    let of_phases = profile.phases.iter().map(|phase| [phase.disturbed, phase.passes]);
    let [disturbed, passes] =
        of_phases.fold([0_u64; 2], |sum, of| [0, 1].map(|at| sum[at].saturating_add(of[at])));
    (passes > 0).then_some([disturbed, passes])
}

/// What a picture of a device is of, and what isn't in it.
fn of_device(profile: &Profile, index: usize) -> Vec<String> {
    let mut said = vec![format!(
        "of what ran on device {index}, without the time in which nothing did; `--host` draws what launched it"
    )];
    let Some(device) = profile.devices.get(index) else { return said };
    let has_passes =
        !profile.passes.is_empty() || device.streams.iter().any(|of| !of.passes.is_empty());
    let spans = device.streams.iter().flat_map(|stream| &stream.spans);
    let outside = spans.filter(|span| span.pass.is_none());
    let ns = outside.fold(0, |sum: u64, span| sum.saturating_add(span.exclusive_ns));
    if has_passes && ns > 0 {
        let ns = amount(ns, Unit::Nanoseconds);
        said.push(format!("{ns} of bricks on device {index} are in no pass, and not drawn"));
    }
    said
}

/// Whether two paths name the same folder.
fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// When a file was last written (RFC 3339, UTC): its contents were recorded then or earlier.
fn written_at(path: &Path) -> Result<String> {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    Ok(time_rfc3339(modified.with_context(|| path.display().to_string())?))
}

/// Chooses the source of the stacks, and prints the choice on standard error before anything runs.
fn via(args: &FlamegraphArgs) -> (Via, Abilities) {
    let abilities = Abilities::probe(args.via == Some(Via::Perf));
    let via = args
        .via
        .unwrap_or_else(|| if args.command.is_empty() { abilities.best() } else { Via::Sampler });
    let colour = output::wants_colour_on(output::is_stderr_terminal());
    output::tell_painted(&crate::doctor::text(&abilities.findings(via), colour));
    (via, abilities)
}

fn recorder<'a>(
    args: &FlamegraphArgs,
    via: Via,
    abilities: &'a Abilities,
    place: &'a mut Place,
) -> Recorder<'a> {
    Recorder { via, abilities, frequency: args.frequency, place }
}

/// The flags of the `brickscope profile` that is recorded.
fn profile_flags(args: &FlamegraphArgs) -> Vec<String> {
    let mut flags = vec![format!("--prompt={}", args.prompt), format!("--tokens={}", args.tokens)];
    flags.extend(args.executor.words());
    flags
}

/// The limits of the samples, a sentence each.
fn of_samples(sampled: &Sampled) -> impl Iterator<Item = String> {
    let n = sampled.samples.len() as u64;
    let of = |count: u64, what: &str| (count > 0).then(|| format!("{count} of {n} samples {what}"));
    let lost = (sampled.lost > 0).then(|| format!("{} samples were lost", sampled.lost));
    let cut = of(sampled.cut, "have stacks that were cut off: they begin with [stack cut off]");
    let part = of(
        sampled.unwound_in_part,
        "have stacks that could not be unwound to their beginning: unwind information is missing",
    );
    [lost, cut, part].into_iter().flatten().chain(sampled.notes.clone())
}

/// A flamegraph that is not yet written.
struct Drawn {
    stacks: Rc<Stacks>,
    summary: Summary,
    svg: Result<String>,
}

/// The files of a flamegraph, each with a description.
const FILES: [(&str, &str); 6] = [
    ("flamegraph.svg", "the flamegraph, for a browser"),
    ("flamegraph.md", "these tables as Markdown"),
    ("flamegraph.json", "these tables, for --diff, history and scripts"),
    ("flamegraph.folded", "the stacks, for other programs"),
    ("speedscope.json", "the stacks for speedscope.app"),
    ("profile.pb.gz", "the stacks for pprof"),
];

/// What `--diff` writes besides: both pictures, and the table.
const DIFF_FILES: [&str; 3] = ["diff.svg", "diff-reverse.svg", "diff.md"];

/// The files with their paths from the current folder or, without `dir`, from their own folder.
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
        let Self { stacks, summary, svg } = self;
        match svg {
            Ok(svg) => write(dir, FILES[0].0, svg)?,
            Err(why) => bail!("{why:#}"),
        }
        write(dir, FILES[1].0, &markdown::markdown(summary, &written(None)))?;
        write(dir, FILES[2].0, &json(summary)?)?;
        save(dir, FILES[3].0, |out| export::folded::write(stacks, out))?;
        save(dir, FILES[4].0, |out| export::speedscope::write(stacks, &self.look().title, out))?;
        save(dir, FILES[5].0, |out| export::pprof::write(stacks, out))
    }

    fn look(&self) -> Look {
        Look::of(&self.summary)
    }
}

/// Writes what people read, or JSON.
fn write(dir: &Path, file: &str, text: &str) -> Result<()> {
    let text = screened(text.to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_in_a_run_is_removed_with_it() {
        for file in FILES.iter().map(|(file, _)| *file).chain(DIFF_FILES) {
            assert!(brickscope_runs::is_ours(file.as_ref()), "{file}");
        }
    }
}
