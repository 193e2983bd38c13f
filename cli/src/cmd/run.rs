//! `brickscope run`: runs a program that uses llama.cpp, and reports where its passes' time went.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use brickscope::keep::When;
use brickscope::save::write_atomically;
use brickscope::{Absent, Clock, LoadWatch, OtherLoad, PairedError, PairedRatio, Profile};
use brickscope_analysis::view;
use brickscope_live::socket::{LiveError, Recording};
use brickscope_llama::recording;

use crate::child::{End, ask_to_end, end_with_parent};
use crate::flags::OtlpArgs;
use crate::recording::{
    Began, Described, Library, Mark, Records, by_passes, describe, save, tell_how_it_ended,
    tell_so_far, with_others,
};
use crate::runs::otlp::Target;
use crate::runs::{self, Places, RunDir};
use crate::text::{count, printable_text, screened};
use crate::{family, interrupt, output, summary};

/// Run a program that uses llama.cpp, and report where the time of its passes went.
///
/// The program needs no change: llama-bench, llama-cli, llama-server, Python's llama_cpp, or any other program that
/// loads llama.cpp as shared libraries. Each node of its graphs is timed where it runs, by a library that this command
/// loads into the program. The run is written to a folder that `brickscope show` reads.
///
/// Nodes that a GPU computes are timed one at a time, which costs time: so only in two passes of eight, and the report
/// says how much longer these take.
///
/// `top` can't watch it. Once it has ended, `brickscope show` prints the run and `brickscope requests` a server's requests;
/// under `--keep tail`, `brickscope requests --attach` does while it goes on.
///
/// The exit code is the program's. Without `--` before a command, `run` is another name of `profile`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope run -- llama-bench -m model.gguf -p 128 -n 64\n  brickscope run -- llama-cli -m model.gguf -p \"Hello\" -n 64 -st\n  brickscope run --shares -- llama-bench -m model.gguf -t 2\n  brickscope run -- python3 generate.py\n  brickscope run --follow -- ./serve.sh\n  brickscope run --keep tail --when 'token>200ms' -- llama-server -m model.gguf\n  brickscope run --recover\n  brickscope show @ --as roofline"
)]
pub(crate) struct RunArgs {
    /// The program to run, with its arguments.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "recover")]
    pub(crate) command: Vec<OsString>,

    /// Report what earlier runs recorded that did not come to their end, since brickscope was killed or could not write.
    #[arg(long, conflicts_with_all = ["command", "shares", "check_overhead", "follow", "keep"])]
    pub(crate) recover: bool,

    /// The folder to write the run to. By default a new one in `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Then add the run to this lake, as `brickscope collect` does. BRICKSCOPE_MACHINE names the machine in it, and
    /// BRICKSCOPE_COMMIT the engine's commit.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) lake: Option<PathBuf>,

    /// Push metrics, stacks and requests to the OpenTelemetry collector at this URL once the run is written, as `profile --otlp`
    /// does.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,

    /// Time what each thread does of each node, too: how long it works, and how long it waits for the other threads. Costs
    /// on each thread a reading of the clock for each node, and two for each barrier.
    #[arg(long)]
    pub(crate) shares: bool,

    /// Measure what recording costs: the nodes of every other pass are not timed, and passes that follow each other are
    /// compared. Use it for 100 tokens or more.
    #[arg(long)]
    pub(crate) check_overhead: bool,

    /// Record what the command starts, too: its script's programs, a server's workers. Each process that computes is a run; the
    /// report is of the one with the most passes. What they leave running keeps the library in its environment.
    #[arg(long)]
    pub(crate) follow: bool,

    /// What to keep of a program that runs for days, in memory and disk that don't grow. Tail: the passes of the slowest tokens, and
    /// a sample of the others that says how many each stands for; sums are of all. What fits is kept whole. SIGUSR1 to this
    /// command, or `requests --attach`, writes what is kept so far to a run of its own, and the program goes on.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["check_overhead", "follow"])]
    pub(crate) keep: Option<Keep>,

    /// How much memory what is kept takes at most, in MiB; of a server, its requests take up to three quarters as much beside.
    #[arg(long, value_name = "N", default_value_t = 32, requires = "keep", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) keep_mib: u32,

    /// Keep whole each token that took longer than in 'token>200ms', each pass ('pass>50ms'), or each first token of a request,
    /// from its arrival ('ttft>500ms'), with two passes before it and after it: in half of the memory, those that took longest.
    /// All are counted. Units are us, ms and s.
    #[arg(long, value_name = "CONDITION", requires = "keep")]
    pub(crate) when: Option<When>,

    /// Where the report goes: a file, or `-` for standard output. By default it goes to the terminal after the program's own
    /// output; if that goes to a file or a pipe, to standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// The report is the profile as JSON. Without a terminal it needs `--report`.
    #[arg(long, conflicts_with = "full")]
    pub(crate) json: bool,

    /// The whole report instead of one screen.
    #[arg(long)]
    pub(crate) full: bool,

    /// No report, and no notes on it: only the run's folder is written. Why nothing was recorded is still said.
    #[arg(long, conflicts_with_all = ["json", "full", "report"])]
    pub(crate) quiet: bool,
}

/// What is kept where not everything can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Keep {
    /// The slowest, and a sample of the others.
    Tail,
}

/// Where the report goes.
#[derive(Debug)]
enum Place {
    Nowhere,
    Stdout,
    Stderr,
    File(PathBuf),
}

impl Place {
    fn of(args: &RunArgs) -> Result<Self> {
        match &args.report {
            Some(path) if output::is_stdout(path) => Ok(Self::Stdout),
            // Before the program runs, which may take long.
            Some(path)
                if path.parent().is_some_and(|of| !of.as_os_str().is_empty() && !of.is_dir()) =>
            {
                bail!("can't write the report to {}: its folder isn't there", path.display())
            }
            Some(path) => Ok(Self::File(path.clone())),
            None if args.quiet => Ok(Self::Nowhere),
            None if output::is_terminal() => Ok(Self::Stdout),
            None if args.json => bail!(
                "standard output is the program's, and no terminal: say where the JSON goes, by --report FILE, or `-` for \
                 standard output"
            ),
            None => Ok(Self::Stderr),
        }
    }
}

/// How often the program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// After so many looks what it recorded is read, if that is done while it runs.
const READ_EVERY: u32 = 10;

/// The most earlier runs that are named.
const MOST_LEFT: usize = 3;

/// A run to report.
struct Ended<'r> {
    began: &'r Began<'r>,
    dir: RunDir,
    /// `None` if brickscope ended before the program.
    status: Option<ExitStatus>,
    load: Result<OtherLoad, Absent>,
}

impl Ended<'_> {
    fn code(&self) -> ExitCode {
        self.status.map_or(ExitCode::SUCCESS, code_of)
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let place = Place::of(args)?;
    runs::ready_for_lake(args.lake.as_deref())?;
    let target = Target::of(&OtlpArgs { otlp: args.otlp.clone(), otlp_every: None })?;
    let to = To { args, place, target: target.as_ref() };
    if args.recover {
        return to.recover();
    }
    // What another process records is recorded here after it ran: the clock is one for that, and not of what is timed here.
    let since = |now: Clock| Clock::counter_since(now.count().unwrap_or(0));
    let clock = Clock::counter().and_then(since).map_err(|Absent { reason }| {
        anyhow::anyhow!(
            "can't time another program's nodes: its clock is the processor's counter, and {reason}"
        )
    })?;
    let created = Profile::empty(Default::default()).created;
    let dir = RunDir::create_late(args.out.as_deref(), &created)?;
    if !args.quiet {
        tell_left();
    }
    let mark = Mark::new(&args.command, &created, &clock);
    let mut records = Records::create(&mark)?;
    let library = Records::library(&args.command)?;
    ensure!(
        !args.follow || !library.as_ref().is_some_and(Library::is_passing),
        "--follow: what the command starts may go on when this has ended, and would load the library from a folder that is \
         gone: name a cache folder of yours on a file system with programs, by BRICKSCOPE_CACHE"
    );
    let load = Load::start();
    let began = Began {
        command: &args.command,
        created: &created,
        clock,
        anchor: mark.anchor,
        named: mark.named.clone(),
    };
    // Whatever is kept: else who asks for it would end this process, and the program with it.
    let asked = interrupt::take_requests()?;
    let mut line = args.keep.map(|_| Recording::begin());
    if args.keep.is_some() {
        records.follow(&began.clock, args.keep_mib, args.when);
        if !args.quiet {
            tell_how_to_ask(asked.is_some(), line.as_ref());
        }
    }
    let mut look = |records: &mut Records| {
        records.look();
        let by_signal = asked.as_ref().is_some_and(|asked| asked.swap(false, Ordering::AcqRel));
        let by_line = line.as_mut().and_then(|line| line.as_mut().ok());
        let by_line = by_line.is_some_and(Recording::look);
        if !by_signal && !by_line {
            return;
        }
        if args.keep.is_none() {
            tell!("note: only with `--keep tail` can a run be written while the program runs");
            return;
        }
        let written = tell_so_far(records, &began, args.out.as_deref());
        if let Some(Ok(line)) = &mut line {
            line.answer(written.as_ref().map_err(String::as_str));
        }
    };
    let status = watch(&args.command, library.as_ref(), &mut records, args, &mut look)?;
    // Whoever asks now would wait for the report.
    drop(line);
    let load = load.and_then(|load| load.others());
    let ended = Ended { began: &began, dir, status: Some(status), load };
    match to.finish(&mut records, &ended) {
        Ok(reported) => reported,
        Err(why) => {
            records.keep();
            Err(why.context("what was recorded is kept: `brickscope run --recover` reports it"))
        }
    }
}

/// Says how to ask for what is kept so far: by a signal, where this process may take it, and on the socket, if there is one.
fn tell_how_to_ask(by_signal: bool, line: Option<&Result<Recording, LiveError>>) {
    let id = process::id();
    if by_signal {
        tell!("note: `kill -USR1 {id}` writes a run of what is kept so far");
    }
    match line {
        Some(Ok(_)) => tell!("note: `brickscope requests --attach {id}` writes and prints one"),
        Some(Err(why)) => {
            let why = format!("`brickscope requests --attach` can't ask for one: {why}");
            tell!("note: {}", view::wrap(&printable_text(&why), 74).join("\n"));
        }
        None => {}
    }
}

/// Says which earlier runs left a recording, the latest first: they may be of another folder, or of a script.
fn tell_left() {
    let left = Records::left();
    if left.is_empty() {
        return;
    }
    let runs = count(left.len() as u64, "earlier run");
    tell!(
        "note: {runs} did not come to the end: `brickscope run --recover` reports what was recorded"
    );
    for (_, mark) in left.iter().rev().take(MOST_LEFT) {
        tell!("note: {}", view::wrap(&mark.line(), 74).join("\n"));
    }
    if let Some(more) = left.len().checked_sub(MOST_LEFT).filter(|more| *more > 0) {
        tell!("note: and {more} before these");
    }
}

/// Where what was recorded goes.
struct To<'a> {
    args: &'a RunArgs,
    place: Place,
    target: Option<&'a Target>,
}

impl To<'_> {
    /// Reports what is left of earlier runs: of each, whatever comes of the others.
    fn recover(&self) -> Result<ExitCode> {
        let left = Records::left();
        ensure!(!left.is_empty(), "no earlier run has left a recording among the temporary files");
        ensure!(
            left.len() == 1 || (self.args.out.is_none() && self.args.report.is_none()),
            "{} are left: each gets a folder and a report of its own, without --out and --report",
            count(left.len() as u64, "run")
        );
        let mut first = Ok(ExitCode::SUCCESS);
        for (mut records, mark) in left {
            if !self.args.quiet {
                tell!("note: {}", view::wrap(&mark.line(), 74).join("\n"));
            }
            let folder = records.path().to_owned();
            match self
                .recover_one(&mut records, &mark)
                .with_context(|| folder.display().to_string())
            {
                // What can't be read stays where it was named.
                Ok(()) if records.is_whole() => records.remove(),
                Ok(()) => {}
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    }

    fn recover_one(&self, records: &mut Records, mark: &Mark) -> Result<()> {
        let clock = match mark.clock() {
            Ok(clock) => clock,
            Err(why) => {
                // Nor will a later run have it.
                records.set_aside();
                return Err(why);
            }
        };
        let command: Vec<OsString> = mark.command.iter().map(OsString::from).collect();
        let dir = RunDir::create_late(self.args.out.as_deref(), &mark.created)?;
        let absent = Absent { reason: "brickscope ended before the program".to_owned() };
        let (command, created, anchor) = (&command[..], &*mark.created, mark.anchor);
        let began = Began { command, created, clock, anchor, named: mark.named.clone() };
        let ended = Ended { began: &began, dir, status: None, load: Err(absent) };
        self.finish(records, &ended)?.map(drop)
    }

    /// Writes and reports a run. The first error is of a run that could not be written, the second of what came after.
    fn finish(&self, records: &mut Records, ended: &Ended<'_>) -> Result<Result<ExitCode>> {
        let Self { args, place, .. } = self;
        let (recorded, loaded) = records.read()?;
        let mut recorded = by_passes(recorded);
        let Some(others) = recorded.len().checked_sub(1) else {
            let follows = args.follow || args.recover;
            tell!(
                "brickscope: {}",
                recording::nothing(ended.began.command, ended.status, &loaded, follows)
            );
            return Ok(Ok(ended.code()));
        };
        if others > 0 && !args.quiet {
            tell!(
                "note: {} more recorded passes: each is a run beside this one",
                count(others as u64, "process")
            );
        }
        let mut notes: Vec<String> = recorded.iter().flat_map(recording::lacks).collect();
        notes.extend(loaded.said);
        let mut described = describe(&mut recorded, ended.began, true, &mut notes);
        for what in notes.iter().filter(|_| !args.quiet) {
            tell!("note: {}", view::wrap(&printable_text(what), 74).join("\n"));
        }
        for of in &mut described {
            let profile = &mut of.profile;
            match &ended.load {
                Ok(load) => profile.other_load = Some(*load),
                Err(why) => profile.other_load_absent = Some(why.clone()),
            }
        }
        let runs = described.iter_mut().map(|of| &mut of.profile).collect();
        tell_how_it_ended(runs, ended.status);
        let Some((Described { mut profile, turns, .. }, others)) = with_others(described) else {
            records.set_aside();
            tell!(
                "brickscope: nothing to report: no pass of the program could be read. What was recorded is kept: {}",
                records.path().display()
            );
            return Ok(Ok(ended.code()));
        };
        let cost = args.check_overhead.then(|| PairedRatio::new(&turns));
        profile.overhead.measured = cost.as_ref().and_then(|cost| cost.as_ref().ok()).copied();
        let cost = cost.map(|cost| in_words(&cost));
        let written = ended.dir.write(|dir| save(dir, &profile, &others));
        let places = Places { lake: args.lake.as_deref(), target: self.target, pushing: None };
        let is_lost = written.folder.is_none();
        let ended = runs::finish(written, places, |folder| {
            if args.json {
                if let Some(cost) = &cost {
                    tell!("{cost}");
                }
                report(place, view::json(&profile))
            } else if args.full {
                let folder = folder.map(output::shown);
                let folder =
                    folder.map(|folder| format!("run in    {folder}\n")).unwrap_or_default();
                let cost = cost.map(|cost| cost + "\n").unwrap_or_default();
                report(place, view::report(&profile) + &folder + &cost)
            } else if let Place::Stdout = place {
                summary::print(&profile, folder, cost.as_deref())
            } else {
                report(place, summary::text(&profile, folder, cost.as_deref()))
            }
        })
        .map(|()| ended.code());
        // What is written is not lost, whatever else fails.
        if is_lost { ended.map(Ok) } else { Ok(ended) }
    }
}

fn report(place: &Place, text: String) -> Result<()> {
    match place {
        Place::Nowhere => {}
        Place::Stdout => output::print(text)?,
        Place::Stderr => output::tell_text(text),
        Place::File(path) => {
            let text = screened(text);
            let cannot = || format!("can't write {}", path.display());
            write_atomically(path, |error| error, |out| io::Write::write_all(out, text.as_bytes()))
                .with_context(cannot)?;
        }
    }
    Ok(())
}

/// What recording cost a token, in a line.
fn in_words(cost: &Result<PairedRatio, PairedError>) -> String {
    match cost {
        Ok(ratio) => {
            let [estimate, low, high] =
                [ratio.estimate, ratio.low, ratio.high].map(|part| 100.0 * part);
            format!(
                "Recording costs {estimate:+.2} % of a decode pass ({low:+.2} to {high:+.2} %, {})",
                count(ratio.pairs, "pair")
            )
        }
        Err(why) => format!("What recording costs is unknown: {why}"),
    }
}

/// The program's exit code; of one that a signal ended, as a shell has it.
fn code_of(status: ExitStatus) -> ExitCode {
    let by_signal = || 128 + status.signal().unwrap_or(0);
    ExitCode::from(status.code().unwrap_or_else(by_signal) as u8)
}

/// The load of the machine while the program runs, which is not another program's.
struct Load {
    watch: LoadWatch,
    /// The CPU time of the children that this process has waited for.
    children_ns: u64,
}

impl Load {
    fn start() -> Result<Self, Absent> {
        Ok(Self { watch: LoadWatch::start()?, children_ns: children_ns()? })
    }

    /// Called when the program has ended.
    fn others(&self) -> Result<OtherLoad, Absent> {
        let load = self.watch.so_far()?;
        let program_ns = children_ns()?.saturating_sub(self.children_ns);
        Ok(OtherLoad {
            own_ns: load.own_ns.saturating_add(program_ns),
            others_ns: load.others_ns.saturating_sub(program_ns),
            ..load
        })
    }
}

fn children_ns() -> Result<u64, Absent> {
    /// `/proc` counts in ticks of 10 ms, whatever the kernel's own are.
    const TICK_NS: u64 = 10_000_000;
    let read = || {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The 16th and the 17th field; the second one is a name in brackets, which may have spaces.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
        let [user, system] = [fields.next()?, fields.next()?].map(|ticks| ticks.parse::<u64>());
        user.ok()?.checked_add(system.ok()?)?.checked_mul(TICK_NS)
    };
    read().ok_or_else(|| Absent {
        reason: "load by others not measured: /proc/self/stat does not say what children used"
            .to_owned(),
    })
}

/// Runs the program to its end. Ctrl-C is the program's: it ends it, or does whatever the program does then.
fn watch(
    line: &[OsString],
    library: Option<&Library>,
    records: &mut Records,
    args: &RunArgs,
    look: &mut dyn FnMut(&mut Records),
) -> Result<ExitStatus> {
    let [program, rest @ ..] = line else { bail!("there is no command to run") };
    let mut command = Command::new(program);
    command.args(rest).env(recording::FOLDER, records.path());
    if let Some(library) = library {
        command.env("LD_PRELOAD", preloads(library.path()));
    }
    for (is_wanted, name) in [
        (args.shares, recording::SHARES),
        (args.check_overhead, recording::TURNS),
        (args.follow, recording::FOLLOW),
        (args.keep.is_some(), recording::ENDLESS),
    ] {
        // A run in a run has its own.
        match is_wanted {
            true => command.env(name, "1"),
            false => command.env_remove(name),
        };
    }
    family::untie(&mut command);
    end_with_parent(&mut command, End::Ask);
    let asked = interrupt::leave_to_child()?;
    let mut child = command.spawn().map_err(|error| {
        let is_word = !program.as_encoded_bytes().contains(&b'/');
        let is_line = program.as_encoded_bytes().contains(&b' ');
        let hint = match error.kind() {
            io::ErrorKind::NotFound if is_line && rest.is_empty() => {
                ". It is a whole command line in quotation marks: leave them out"
            }
            io::ErrorKind::NotFound if is_word => {
                ". It isn't in PATH: give its path, such as ./build/bin/llama-bench"
            }
            io::ErrorKind::PermissionDenied => {
                ". A program comes first, and its arguments after it"
            }
            _ => "",
        };
        anyhow::anyhow!("can't run {}: {error}{hint}", Path::new(program).display())
    })?;
    wait(&mut child, &asked, &mut || look(records))
}

/// Waits for the end of the program, and calls `look` now and then.
fn wait(child: &mut Child, asked: &AtomicBool, look: &mut dyn FnMut()) -> Result<ExitStatus> {
    let mut looks = 0_u32;
    loop {
        if let Some(status) = child.try_wait().context("can't wait for the program")? {
            return Ok(status);
        }
        if asked.swap(false, Ordering::AcqRel) {
            ask_to_end(child);
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(READ_EVERY) {
            look();
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The library, before those that are loaded into programs anyway.
fn preloads(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}
