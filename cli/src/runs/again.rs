//! Making a run again: its command, with a change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brickscope::{Change, Profile, RUN_FILE, secrets};
use brickscope_analysis::requests::is_server;
use signal_hook::low_level::signal_name;

use crate::flags::profile::ProfileArgs;
use crate::text::{printable, printable_text};
use crate::{family, interrupt};

/// Reads the flags of a command line of `profile`; `None` if it is one of another command.
pub(crate) type Read<'t> = &'t dyn Fn(&[String]) -> Result<Option<ProfileArgs>>;

/// A run that this program can make again.
#[derive(Debug)]
pub(crate) struct Again {
    program: PathBuf,
    made_by: MadeBy,
}

#[derive(Debug)]
enum MadeBy {
    /// `brickscope profile`, with this model.
    Profile { args: Box<ProfileArgs>, model: PathBuf },
    /// `brickscope run`, with these words after `--`.
    Run { words: Vec<String> },
}

/// A change, and what was made for it.
#[derive(Debug)]
pub(crate) struct Changed<'t> {
    pub(crate) change: &'t Change,
    /// The model in another format.
    pub(crate) model: Option<&'t Path>,
}

impl Again {
    /// # Errors
    ///
    /// If it isn't known how the run was made, or not by this program.
    pub(crate) fn of(profile: &Profile, read: Read<'_>) -> Result<Self> {
        let program = std::env::current_exe().context("can't find this program's file")?;
        if let Some(imported) = &profile.imported {
            bail!(
                "this run was imported ({}), so brickscope can't make it again: measure it with and without the change, \
                 and use `brickscope compare`",
                imported.format
            );
        }
        ensure!(
            !is_server(profile),
            "this run is of a server, which doesn't end by itself and waits for requests that `try` can't send: start it \
             yourself with and without the change, ask both the same (`brickscope load --seed 1`), and use \
             `brickscope requests` on both runs"
        );
        let run = profile.run.as_ref().filter(|run| !run.command.is_empty());
        let Some(run) = run else {
            bail!("this run doesn't say by which command it was made, so it can't be made again");
        };
        ensure!(
            !secrets::are_left_out(&run.command),
            "the command of this run has a secret in it, which a run doesn't keep, so it can't be made again: measure it with \
             and without the change, and use `brickscope compare`"
        );
        if run.backend.starts_with("llama.cpp in this program") {
            bail!(
                "a program of yours recorded this run: run it with and without the change, and use `brickscope compare`"
            );
        }
        if run.backend.starts_with("llama.cpp") {
            ensure!(
                !run.command[0].contains("server"),
                "this run is of `{}`, which doesn't end by itself: measure it with and without the change, and use \
                 `brickscope compare`",
                printable(&run.command[0])
            );
            return Ok(Self { program, made_by: MadeBy::Run { words: run.command.clone() } });
        }
        let shown = || printable(&run.command.join(" ")).chars().take(200).collect::<String>();
        let args = read(&run.command).with_context(|| {
            format!("this run was made by `{}`, which this version doesn't understand", shown())
        })?;
        let Some(args) = args else {
            bail!(
                "only runs of `profile` and `run` can be made again, and this is one of `{}`",
                shown()
            );
        };
        ensure!(
            !args.check_overhead && !args.compare_backends && !args.endless,
            "only runs that `profile` reports can be made again, and this is one of `{}`",
            shown()
        );
        let model = profile.model.as_ref().map_or("", |model| &model.path);
        ensure!(!model.is_empty(), "this run doesn't name its model, so it can't be made again");
        ensure!(
            Path::new(model).is_file(),
            "the model of this run, {}, is not there any more (a relative path counts from this folder)",
            printable(model)
        );
        let model = PathBuf::from(model);
        Ok(Self { program, made_by: MadeBy::Profile { args: Box::new(args), model } })
    }

    /// The command line of another program, which the file of the run names.
    pub(crate) fn foreign(&self) -> Option<String> {
        match &self.made_by {
            MadeBy::Run { words } => Some(printable(&words.join(" "))),
            MadeBy::Profile { .. } => None,
        }
    }

    /// The model, if brickscope ran it itself.
    pub(crate) fn model(&self) -> Option<&Path> {
        match &self.made_by {
            MadeBy::Profile { model, .. } => Some(model),
            MadeBy::Run { .. } => None,
        }
    }

    /// Whether it samples tokens at random.
    #[cfg(test)]
    fn is_profile(&self) -> bool {
        matches!(self.made_by, MadeBy::Profile { .. })
    }

    /// The command, without `--out`.
    ///
    /// # Errors
    ///
    /// If the change changes nothing, or can't be made.
    pub(crate) fn command(&self, changed: Option<&Changed<'_>>) -> Result<Line> {
        let mut program = self.program.clone();
        if let Some(Change::Program(other)) = changed.map(|changed| changed.change) {
            program = PathBuf::from(other);
            ensure!(program.is_file(), "--program {other}: there is no such file");
        }
        let words = match &self.made_by {
            MadeBy::Profile { args, model } => of_profile(args, model, changed)?,
            MadeBy::Run { words } => of_run(words, changed)?,
        };
        Ok(Line { program, words, env: Vec::new(), folder: None })
    }
}

fn of_profile(
    args: &ProfileArgs,
    model: &Path,
    changed: Option<&Changed<'_>>,
) -> Result<Vec<OsString>> {
    let mut args = args.clone();
    let (mut model, mut more) = (model.to_owned(), Vec::new());
    match changed.map(|changed| changed.change) {
        Some(Change::Threads(threads)) => {
            args.executor.threads = std::num::NonZeroUsize::new(*threads as usize);
        }
        Some(Change::Pinned) => {
            ensure!(!args.pin, "each thread of this run has its own CPU already (`--pin`)");
            args.pin = true;
        }
        Some(Change::LargePages) => {
            ensure!(
                args.executor.mmap || args.executor.small_pages,
                "this run copied its weights into large pages already, as far as the system gives them"
            );
            (args.executor.mmap, args.executor.small_pages) = (false, false);
        }
        Some(Change::RecordLess) => {
            ensure!(
                args.counters || args.shares || args.tiles,
                "this run has neither `--counters` nor `--shares` nor `--tiles`: there is nothing to leave out"
            );
            (args.counters, args.shares, args.tiles) = (false, false, false);
        }
        Some(Change::TopK(k)) => {
            ensure!(
                args.temperature.is_some(),
                "this run takes the likeliest token, without `--temperature`: it sorts nothing"
            );
            ensure!(
                args.top_k == 0 || args.top_k > *k as usize,
                "this run keeps {} tokens already (`--top-k`)",
                args.top_k
            );
            args.top_k = *k as usize;
        }
        Some(Change::Quantization(_)) => {
            if let Some(other) = changed.and_then(|changed| changed.model) {
                other.clone_into(&mut model);
            }
        }
        Some(Change::Words(words)) => more.clone_from(words),
        Some(Change::Program(_) | Change::Command(_)) | None => {}
    }
    let mut words: Vec<OsString> = vec!["profile".into(), model.into()];
    words.extend(args.words().into_iter().map(OsString::from));
    words.extend(more.into_iter().map(OsString::from));
    Ok(words)
}

fn of_run(words: &[String], changed: Option<&Changed<'_>>) -> Result<Vec<OsString>> {
    let mut command = words.to_vec();
    match changed.map(|changed| changed.change) {
        Some(Change::Threads(threads)) => set_threads(&mut command, *threads),
        Some(Change::Words(words)) => command.extend(words.iter().cloned()),
        Some(Change::Command(_)) | None => {}
        Some(change) => bail!(
            "`{change}` is a change of brickscope's own engine, and this is a run of llama.cpp: add words to its command \
             (`brickscope try RUN -- …`), or measure both and use `brickscope compare`"
        ),
    }
    let words = ["run".to_owned(), "--".to_owned()].into_iter().chain(command);
    Ok(words.map(OsString::from).collect())
}

/// llama.cpp's programs take the number of threads as `-t N` and `--threads N`.
fn set_threads(command: &mut Vec<String>, threads: u32) {
    // Prefill may have a number of its own.
    let of_prefill = command.iter().rposition(|word| word == "-tb" || word == "--threads-batch");
    if let Some(value) = of_prefill.and_then(|at| command.get_mut(at + 1)) {
        *value = threads.to_string();
    }
    let at = command.iter().rposition(|word| word == "-t" || word == "--threads");
    match at.and_then(|at| command.get_mut(at + 1)) {
        Some(value) => *value = threads.to_string(),
        None => command.extend(["-t".to_owned(), threads.to_string()]),
    }
}

/// A command that writes a run to the folder that `--out` names.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) program: PathBuf,
    /// The first is one of brickscope's commands.
    pub(crate) words: Vec<OsString>,
    /// Variables of its environment, beside those of this process.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Where it runs, and what relative paths in it are relative to, if that isn't this process's folder.
    pub(crate) folder: Option<PathBuf>,
}

/// What a shell adds to the number of the signal that ended a program, and `run`, too.
const BY_SIGNAL: i32 = 128;

/// Runs it, and reads the run that it wrote to the new folder `out`.
///
/// # Errors
///
/// If it fails; [`interrupt::Nothing`] if a signal ended it.
pub(crate) fn make(Line { program, words, env, folder }: &Line, out: &Path) -> Result<Profile> {
    let program = match folder {
        Some(folder) => folder.join(program),
        None => std::path::absolute(program)?,
    };
    let mut command = Command::new(&program);
    folder.iter().for_each(|folder| {
        command.current_dir(folder);
    });
    let _tied = family::tie(&mut command)?;
    let (first, rest) = words.split_first().context("a command has words")?;
    let output = command
        .envs(env.iter().map(|(name, value)| (name, value)))
        .arg(first)
        .arg("--out")
        .arg(out)
        .args(rest)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("can't start {}", program.display()))?;
    if interrupt::was_child(output.status) {
        return Err(interrupt::Nothing.into());
    }
    let said = || {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> = said.trim().lines().rev().take(5).map(printable_text).collect();
        said.into_iter().rev().collect::<Vec<_>>().join("; ")
    };
    if !output.status.success() {
        let name = output.status.code().and_then(|code| signal_name(code - BY_SIGNAL));
        let by =
            name.map_or_else(String::new, |name| format!(", as of a program that {name} ended"));
        bail!("`{}` failed ({}{by}): {}", program.display(), output.status, said());
    }
    let file = out.join(RUN_FILE);
    // A program that computes nothing that can be recorded may end well.
    ensure!(file.is_file(), "`{}` wrote no run: {}", program.display(), said());
    Ok(Profile::load(&file)?)
}

#[cfg(test)]
mod tests {
    use brickscope::{Model, Phase, PhaseTotal, Request, Run};

    use super::*;

    fn run(command: &str, backend: &str, model: &Path) -> Profile {
        let mut profile = Profile::empty(Default::default());
        profile.run = Some(Run {
            command: command.split(' ').map(str::to_owned).collect(),
            backend: backend.to_owned(),
            ..Run::default()
        });
        profile.model = Some(Model { path: model.display().to_string(), ..Model::default() });
        profile
    }

    /// Reads flags as `main` does.
    fn of_run_by(profile: &Profile) -> Result<Again> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(subcommand)]
            command: Command,
        }
        #[derive(clap::Subcommand)]
        enum Command {
            Profile(Box<ProfileArgs>),
            Benchmark,
        }
        Again::of(profile, &|words| match <Line as clap::Parser>::try_parse_from(words)?.command {
            Command::Profile(args) => Ok(Some(*args)),
            Command::Benchmark => Ok(None),
        })
    }

    fn words(again: &Again, change: Option<&Change>) -> String {
        let changed = change.map(|change| Changed { change, model: Some(Path::new("other.gguf")) });
        let Line { words, .. } = again.command(changed.as_ref()).expect("a command");
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn a_run_of_the_engine_has_its_flags_again_and_a_change() {
        let model = tempfile::NamedTempFile::new().expect("a file");
        let command = "brickscope profile m.gguf --prompt Hi --tokens 9 --mmap --threads 1 --temperature 0.5 --top-k 0";
        let again = of_run_by(&run(command, "avx2", model.path())).expect("a run");
        assert!(again.is_profile());
        let path = model.path().display();
        let base = words(&again, None);
        assert_eq!(
            base,
            format!(
                "profile {path} --prompt=Hi --tokens=9 --sync=deferred --temperature=0.5 --top-k=0 --top-p=0.95 --seed=42 \
                 --threads=1 --mmap"
            )
        );
        for (change, from, to) in [
            (Change::Threads(2), "--threads=1", "--threads=2"),
            (Change::LargePages, " --mmap", ""),
            (Change::TopK(40), "--top-k=0", "--top-k=40"),
            (Change::Words(vec!["--tiles".to_owned()]), "--mmap", "--mmap --tiles"),
        ] {
            assert_eq!(words(&again, Some(&change)), base.replace(from, to));
        }
        let smaller = Change::Quantization("q4_k".to_owned());
        assert!(words(&again, Some(&smaller)).starts_with("profile other.gguf"));
        let changed = Changed { change: &Change::RecordLess, model: None };
        assert!(again.command(Some(&changed)).is_err(), "nothing is left out");
    }

    #[test]
    fn a_run_of_llama_cpp_has_other_threads() {
        let profile = run("llama-bench -m a.gguf -t 1", "llama.cpp 0.3.36", Path::new(""));
        let again = of_run_by(&profile).expect("a run");
        assert_eq!(words(&again, None), "run -- llama-bench -m a.gguf -t 1");
        assert_eq!(words(&again, Some(&Change::Threads(2))), "run -- llama-bench -m a.gguf -t 2");
        let profile = run("llama-cli -m a.gguf", "llama.cpp 0.3.36", Path::new(""));
        let again = of_run_by(&profile).expect("a run");
        assert_eq!(words(&again, Some(&Change::Threads(4))), "run -- llama-cli -m a.gguf -t 4");
    }

    #[test]
    fn what_can_not_be_made_again_says_why() {
        let model = tempfile::NamedTempFile::new().expect("a file");
        let of = |command: &str, backend: &str, model: &Path| {
            of_run_by(&run(command, backend, model)).expect_err("it can't").to_string()
        };
        assert!(of("brickscope profile", "avx2", Path::new("gone.gguf")).contains("gone.gguf"));
        assert!(of("brickscope profile", "avx2", Path::new("")).contains("doesn't name its model"));
        assert!(of("other --flag", "avx2", model.path()).contains("other --flag"));
        assert!(of("brickscope benchmark", "avx2", model.path()).contains("only runs of"));
        // Requests make a server, whatever it is called.
        let mut served = run("venv/bin/python serve.py", "llama.cpp, CPU", Path::new(""));
        served.requests.push(Request::default());
        assert!(of_run_by(&served).is_ok(), "its passes are unknown, as a client's");
        served.phases.push(PhaseTotal {
            phase: Phase::Decode,
            passes: 1,
            disturbed: 0,
            unwatched: None,
            tokens: 1,
            wall_ns: 1,
            attributed_ns: 0,
            unattributed_ns: 1,
        });
        let why = of_run_by(&served).expect_err("it can't").to_string();
        assert!(why.contains("is of a server") && why.contains("brickscope load"), "{why}");
        // They may all have been missed.
        (served.requests, served.dropped.missed_requests) = (Vec::new(), 1);
        let why = of_run_by(&served).expect_err("it can't").to_string();
        assert!(why.contains("is of a server"), "{why}");
        let own = "llama.cpp in this program";
        assert!(of("mine", own, model.path()).contains("a program of yours"));
    }
}
