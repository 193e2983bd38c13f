//! `brickscope try`: measures what a change brings, in turns with the run as it was.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope::{Absent, Change, PassTime, Phase, Profile, Trial, TrialVerdict};
use brickscope_analysis::compare::turns_at_random;
use brickscope_analysis::findings::{Finding, Findings};
use brickscope_analysis::trial::{self, Question};
use brickscope_analysis::view;
use brickscope_engine::Model;
use brickscope_engine::synth::SynthQuant;
use tempfile::TempDir;

use crate::flags::threads;
use crate::runs::again::{Again, Changed, Line, Read, make};
use crate::text::{count, printable};
use crate::{interrupt, output, private, progress, runs};

/// Try what a finding advises: make the run again, with the change and without it, in turns.
///
/// Without a finding and without a flag, the first finding is tried that brickscope knows a change for. The result stands
/// beside the prediction: confirmed if it is faster, as predicted; refuted if it is not faster by 1 %, or by less than
/// predicted; else inconclusive. It is added to the run, and `brickscope findings` shows it.
///
/// Run it where the run was made: in its folder, with the same CPUs. The exit code is 0 if confirmed, 1 if refuted, 3 if
/// inconclusive, 2 if it can't be tried; of several changes, 0.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope try RUN\n  brickscope try RUN memory-roof\n  brickscope try RUN --threads 1,2,4\n  brickscope try RUN --quant q4_k,q4_k_m\n  brickscope try RUN debug-build --program target/release/brickscope\n  brickscope try RUN other-programs --on \"pkill -STOP backup\" --off \"pkill -CONT backup\"\n  brickscope try RUN -- --small-pages"
)]
pub(crate) struct TryArgs {
    /// The run, as `profile` or `run` wrote it: its folder, its tag, the beginning of its name, or `@` for the newest.
    pub(crate) run: PathBuf,

    /// The finding to try: its rule, such as `memory-roof`. With a flag below, that change is tried in the place of the
    /// finding's own.
    pub(crate) finding: Option<String>,

    /// Try these numbers of threads.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = threads)]
    pub(crate) threads: Vec<NonZeroUsize>,

    /// Try each thread on a CPU of its own.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Try large pages of memory for the weights, for a run with `--mmap` or `--small-pages`.
    #[arg(long)]
    pub(crate) huge_pages: bool,

    /// Try the model with weights of these formats, which are made for it: see `synth --quant`. Only the time is
    /// compared, not the text.
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) quant: Vec<SynthQuant>,

    /// Try another build of brickscope.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,

    /// Try what this shell command does. It runs before each run with the change, --off before each without it.
    #[arg(long, value_name = "COMMAND", requires = "off")]
    pub(crate) on: Option<String>,

    /// The shell command that takes the change back. It runs at the end, too, unless a second signal ends this at once.
    #[arg(long, value_name = "COMMAND", requires = "on")]
    pub(crate) off: Option<String>,

    /// Try further words of the command.
    #[arg(last = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    /// The number of pairs of runs: one with the change, one without it.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(6..=500))]
    pub(crate) pairs: u16,

    /// The phase whose passes count, if no finding says it. By default the one that the first screen shows.
    #[arg(long, value_parser = phase)]
    pub(crate) phase: Option<Phase>,

    /// Keep the runs in this folder: `0/1`, `0/2` … without a change, `1/1` … with the first.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Run the command of a run of llama.cpp without asking. Its file says what the command is.
    #[arg(long)]
    pub(crate) yes: bool,

    /// Print the trials as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn phase(text: &str) -> Result<Phase, String> {
    Phase::ALL
        .into_iter()
        .find(|phase| phase.name() == text)
        .ok_or_else(|| format!("`{text}` is not a phase: choose prefill or decode"))
}

/// `read` reads the command line of a run of `profile`.
pub(crate) fn run(args: &TryArgs, read: Read<'_>) -> Result<ExitCode> {
    let run = runs::named(&args.run)?;
    let mut profile = runs::load(&run)?;
    let again = Again::of(&profile, read)?;
    let questions = questions(args, &profile, &again)?;
    // Errors of a change come before the first run.
    for question in &questions {
        again.command(Some(&Changed { change: &question.change, model: None }))?;
    }
    if let Some(line) = again.foreign()
        && !args.yes
    {
        confirm(&line)?;
    }
    let folders = Folders::new(args.out.as_deref())?;
    interrupt::watch()?;
    interrupt::keep();
    let mut models = Vec::new();
    for (nth, question) in questions.iter().enumerate() {
        models.push(requantized(&again, &question.change, folders.root(), nth)?);
        if interrupt::is_asked() {
            return Err(interrupt::Nothing.into());
        }
    }
    let mut arms = vec![again.command(None)?];
    for (question, model) in questions.iter().zip(&models) {
        let changed = Changed { change: &question.change, model: model.as_deref() };
        arms.push(again.command(Some(&changed))?);
    }
    let switch = Switch { on: args.on.as_deref(), off: args.off.as_deref() };
    let (times, others_share) = measure(args, &arms, &questions, &folders, &switch)?;

    let mut trials = Vec::new();
    for (question, pairs) in questions.iter().zip(&times) {
        let answer = question.answer_times(pairs, others_share);
        trials.push(answer.map_err(|Absent { reason }| anyhow!("{}: {reason}", question.change))?);
    }
    // Another command may have added something meanwhile.
    profile = runs::load(&run)?;
    profile.trials.extend(trials.iter().cloned());
    let file = if run.is_dir() { runs::profile_in(&run) } else { run.clone() };
    let saved = profile.save(&file);
    let text = if args.json {
        serde_json::to_string_pretty(&trials)? + "\n"
    } else {
        let shown = output::shown(&run);
        view::trials(&trials) + &format!("\nAdded to the run: brickscope findings {shown}\n")
    };
    output::print(text)?;
    // After the figures, which would be lost otherwise.
    saved.with_context(|| format!("the result could not be added to {}", file.display()))?;
    Ok(ExitCode::from(match &trials[..] {
        [trial] => code(trial),
        _ => 0,
    }))
}

fn code(trial: &Trial) -> u8 {
    match trial.verdict {
        TrialVerdict::Confirmed => 0,
        TrialVerdict::Refuted => 1,
        TrialVerdict::Inconclusive => 3,
    }
}

/// Asks whether to run a command that a file names.
fn confirm(line: &str) -> Result<()> {
    ensure!(
        std::io::stdin().is_terminal(),
        "this runs `{line}`, as the file of the run says: --yes confirms it"
    );
    tell!("This runs `{line}` several times, as the file of the run says. Go on? [y/N]");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("can't read the answer")?;
    ensure!(answer.trim().eq_ignore_ascii_case("y"), "not confirmed");
    Ok(())
}

/// What is asked, one question for each change.
fn questions(args: &TryArgs, profile: &Profile, again: &Again) -> Result<Vec<Question>> {
    let findings = Findings::of(profile);
    let main = main_phase(profile).context("this run has no passes")?;
    let mut changes = changes(args);
    // The run as it was is among the arms anyway.
    let own = profile.run.as_ref().map_or(0, |run| run.threads);
    changes.retain(|change| *change != Change::Threads(own));
    ensure!(
        !changes.is_empty() || args.threads.is_empty(),
        "{own} is the number of threads that this run has: name others"
    );
    let named = match &args.finding {
        Some(name) => Some(named(&findings, name)?),
        None if changes.is_empty() => Some(first(&findings, again)?),
        None => None,
    };
    let Some(finding) = named else {
        let phase = args.phase.unwrap_or(main);
        let of = |change| Question {
            change,
            phase,
            time: PassTime::default(),
            rule: None,
            predicted: None,
        };
        return Ok(changes.into_iter().map(of).collect());
    };
    let changes = match (changes.is_empty(), &finding.change) {
        (false, _) => changes,
        (true, Some(change)) => vec![change.clone()],
        (true, None) => bail!(
            "brickscope knows no change for `{}`: make one yourself (--program, --on and --off, or words after --)",
            finding.rule
        ),
    };
    let main = args.phase.unwrap_or(main);
    Ok(changes.into_iter().map(|change| Question::of(finding, change, main)).collect())
}

fn named<'f>(findings: &'f Findings, name: &str) -> Result<&'f Finding> {
    let found = || findings.found.iter();
    found().find(|finding| finding.rule == name).with_context(|| {
        let rules: Vec<_> = found().map(|finding| finding.rule).collect();
        let rules = if rules.is_empty() { "none".to_owned() } else { rules.join(", ") };
        format!("this run has no finding `{}`; it has: {rules}", printable(name))
    })
}

fn first<'f>(findings: &'f Findings, again: &Again) -> Result<&'f Finding> {
    let mut found = findings.found.iter().filter(|finding| finding.tried.is_none());
    let can_be_made = |change| again.command(Some(&Changed { change, model: None })).is_ok();
    found.find(|finding| finding.change.as_ref().is_some_and(can_be_made)).context(
        "brickscope knows no change for what was found in this run, or has tried it: name one, such as --threads 1,2",
    )
}

/// The phase that the first screen shows.
fn main_phase(profile: &Profile) -> Option<Phase> {
    Phase::SHOWN.into_iter().find(|&phase| profile.phase(phase).is_some())
}

fn changes(args: &TryArgs) -> Vec<Change> {
    let mut changes: Vec<Change> =
        args.threads.iter().map(|threads| Change::Threads(threads.get() as u32)).collect();
    changes.extend(args.pin.then_some(Change::Pinned));
    changes.extend(args.huge_pages.then_some(Change::LargePages));
    changes.extend(args.quant.iter().map(|quant| Change::Quantization(quant.name().to_owned())));
    changes.extend(args.program.iter().map(|file| Change::Program(file.display().to_string())));
    changes.extend(args.on.iter().map(|command| Change::Command(command.clone())));
    changes.extend((!args.words.is_empty()).then(|| Change::Words(args.words.clone())));
    changes
}

/// The model in the format of a change, if it is one of formats.
fn requantized(
    again: &Again,
    change: &Change,
    folder: &Path,
    nth: usize,
) -> Result<Option<PathBuf>> {
    let Change::Quantization(name) = change else { return Ok(None) };
    let quant: SynthQuant = name.parse()?;
    let model = again.model().context("a run of llama.cpp can't be tried with another format")?;
    let path = folder.join(format!("model-{nth}-{name}.gguf"));
    let model = Model::open(model)?;
    let bar = progress::bytes("making", 0);
    let made = brickscope_engine::requantize(&model, quant, &path, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    made.with_context(|| format!("can't write the model with weights of {name}"))?;
    Ok(Some(path))
}

/// Where the runs are written.
enum Folders {
    Kept(PathBuf),
    /// Removed at the end.
    Temporary(TempDir),
}

impl Folders {
    fn new(kept: Option<&Path>) -> Result<Self> {
        let Some(root) = kept else {
            return private::temporary().map(Self::Temporary);
        };
        let is_empty =
            root.read_dir().map_or(!root.exists(), |mut entries| entries.next().is_none());
        ensure!(is_empty, "{} is not an empty folder: name a new one with --out", root.display());
        std::fs::create_dir_all(root).with_context(|| root.display().to_string())?;
        Ok(Self::Kept(root.to_owned()))
    }

    fn root(&self) -> &Path {
        match self {
            Self::Kept(root) => root,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

/// The shell commands that make a change and take it back.
struct Switch<'t> {
    on: Option<&'t str>,
    off: Option<&'t str>,
}

impl Switch<'_> {
    fn set(&self, on: bool) -> Result<()> {
        let Some(command) = (if on { self.on } else { self.off }) else { return Ok(()) };
        // What it prints is not the result.
        let line = format!("exec 1>&2\n{command}");
        let status = Command::new("sh").arg("-c").arg(line).status().context("can't start sh")?;
        ensure!(status.success(), "`{}` failed ({status})", printable(command));
        Ok(())
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.set(false) {
            tell!("note: {error:#}");
        }
    }
}

/// Why threads can't be tried with a command that doesn't take their number as llama.cpp's programs do.
fn other_number(asked: u32, ran: u32) -> String {
    let threads = count(ran.into(), "thread");
    format!(
        "`-t {asked}` was put into its command, and the run still had {threads}: that command takes their number otherwise. \
         Write it there yourself: `brickscope versus 'COMMAND' 'COMMAND'` compares two commands"
    )
}

/// Times of a pass without and with each change, in pairs.
type Pairs = Vec<(f64, f64)>;

/// Makes the runs: first the one without a change and then the others, or the other way round, equally often.
fn measure(
    args: &TryArgs,
    arms: &[Line],
    questions: &[Question],
    folders: &Folders,
    switch: &Switch<'_>,
) -> Result<(Vec<Pairs>, Option<f64>)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let order = turns_at_random(args.pairs.into(), now as u64);
    let bar = progress::steps("measuring", (order.len() * arms.len()) as u64);
    let mut pairs = vec![Pairs::new(); questions.len()];
    let mut shares = Vec::new();
    for (round, first) in order.into_iter().enumerate() {
        let mut turns: Vec<usize> = (0..arms.len()).collect();
        if !first {
            turns.reverse();
        }
        let mut made: Vec<Option<Profile>> = vec![None; arms.len()];
        for arm in turns {
            if interrupt::is_asked() {
                return Err(interrupt::Nothing.into());
            }
            switch.set(arm > 0 && matches!(questions[arm - 1].change, Change::Command(_)))?;
            let out = folders.root().join(arm.to_string()).join((round + 1).to_string());
            let what = || match arm {
                0 => "the run without a change".to_owned(),
                _ => format!("the run with {}", questions[arm - 1].change),
            };
            let profile = make(&arms[arm], &out).with_context(what)?;
            let ran = profile.run.as_ref().map_or(0, |run| run.threads);
            let change = arm.checked_sub(1).map(|nth| &questions[nth].change);
            if let Some(Change::Threads(asked)) = change {
                ensure!(ran == *asked || ran == 0, "{}", other_number(*asked, ran));
            }
            shares.push(trial::others_share(&profile));
            made[arm] = Some(profile);
            if matches!(folders, Folders::Temporary(_)) {
                let _ = std::fs::remove_dir_all(&out);
            }
            bar.inc(1);
        }
        let time = |arm: usize, question: &Question| {
            let profile = made[arm].as_ref().context("each arm ran")?;
            question.time_of(profile).map_err(|Absent { reason }| anyhow!(reason))
        };
        for (nth, question) in questions.iter().enumerate() {
            pairs[nth].push((time(0, question)?, time(nth + 1, question)?));
        }
    }
    bar.finish_and_clear();
    Ok((pairs, trial::mean(shares.into_iter())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_threads_otherwise_is_told_with_the_way_out() {
        let said = other_number(1, 2);
        assert!(said.contains("`-t 1` was put") && said.contains("had 2 threads"), "{said}");
        assert!(said.contains("brickscope versus"), "{said}");
    }
}
