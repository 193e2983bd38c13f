//! `brickscope versus`: two commands in turns, until it is known which is slower, and what of it moved.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use brickscope::Profile;
use brickscope::stats::SplitMix64;
use brickscope_analysis::compare::{
    Process, Side, Versus, evened, look_after, until_next_look, versus,
};
use brickscope_analysis::view::{self, Circumstances};
use brickscope_runs::Turns as Kept;

use crate::comparison::exit_code;
use crate::flags::threshold;
use crate::in_turns::{Form, USUAL_TIME, print, turns, two_sides};
use crate::runs::RunDir;
use crate::runs::again::{Line, make};
use crate::runs::command::{line, process, told};
use crate::text::{count, printable_text};
use crate::{interrupt, output, progress};

/// Run two commands in turns, and say which is slower, by how much, and what in it moved.
///
/// Each is a command that `brickscope run` takes, such as `llama-bench -m model.gguf`: of two builds, with two models, two
/// flags, or variables before it (`GGML_X=1 llama-bench …`). It may also be `profile …`, another build's `brickscope
/// profile …`, or `./engine benchmark …` of your own, which is given `--out DIR` and saves its run there. They run in
/// pairs, first one or the other, until each phase has a verdict or the time is over. One run of each goes before, and
/// doesn't count. The runs are kept: `brickscope compare` of their two folders says the same again, in any format, and
/// measures nothing.
///
/// The exit code is 0 if B is slower in no phase, 1 if it is slower in one, 3 if the time was too short to tell or not all
/// runs have a phase of A, 2 if they can't be compared or a run fails.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope versus 'old/llama-bench -m m.gguf -n 64' 'new/llama-bench -m m.gguf -n 64'\n  brickscope versus 'llama-bench -m m.gguf -fa 0' 'llama-bench -m m.gguf -fa 1' --format md\n  brickscope versus 'profile q8_0.gguf' 'profile q4_k_m.gguf' --within 3m"
)]
pub(crate) struct VersusArgs {
    /// The command to compare with.
    pub(crate) a: String,

    /// The command that may be slower.
    pub(crate) b: String,

    /// Begin no further pair of runs after so long.
    #[arg(long, value_name = "TIME", default_value = USUAL_TIME, value_parser = humantime::parse_duration)]
    pub(crate) within: Duration,

    /// The smallest change that matters.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = threshold, allow_hyphen_values = true)]
    pub(crate) threshold: f64,

    /// Keep the runs in this new folder: `a/1`, `b/1` and so on. By default in two new ones in `brickscope-runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// The output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Text)]
    format: Form,

    /// The same as --format md.
    #[arg(long, conflicts_with_all = ["format", "json"])]
    markdown: bool,

    /// With --format md: name files with their folders.
    #[arg(long)]
    pub(crate) paths: bool,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl VersusArgs {
    fn format(&self) -> Form {
        match () {
            () if self.json => Form::Json,
            () if self.markdown => Form::Md,
            () => self.format,
        }
    }
}

/// More pairs decide nothing that these don't.
const MOST_PAIRS: usize = 500;

pub(crate) fn run(args: &VersusArgs) -> Result<ExitCode> {
    let format = args.format();
    ensure!(!args.paths || format == Form::Md, "--paths is about --format md");
    let lines = [
        // Without the command itself, which may have a secret in it.
        line(&args.a).context("A")?,
        line(&args.b).context("B")?,
    ];
    let created = Profile::empty(Default::default()).created;
    let folders = Folders::create(args.out.as_deref(), &created)?;
    interrupt::watch()?;
    interrupt::keep();
    let measured = Turns::new(&lines, &folders.sides).measure(args)?;
    let Some(Measured { versus, mut ran, a_first, chosen, look, is_cut_short, has_failed }) =
        measured
    else {
        return Err(interrupt::Nothing.into());
    };
    ran.commands = [&args.a, &args.b].map(|command| told(command, None));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = format!("{}-{}", std::process::id(), now.as_nanos());
    let threshold = args.threshold;
    let kept = Kept { id, is_a: true, created, a_first, chosen, look, threshold, ran }.printable();
    // What was measured is told, also where there is no room.
    let noted = folders.note(&kept);
    print(format, &versus, kept.ran, args.paths)?;
    let [a, b] = folders.sides.each_ref().map(|side| output::shown(side));
    tell!("the runs: {a} and {b}");
    match noted {
        Ok(()) => tell!("the same again, in any format: brickscope compare {a} {b}"),
        Err(error) => tell!("note: `compare` will take them for two sets: {error:#}"),
    }
    Ok(match interrupt::exit_code().filter(|_| is_cut_short) {
        Some(code) => ExitCode::from(code),
        None if has_failed => ExitCode::from(2),
        None => exit_code(versus.outcome()),
    })
}

/// The folders of the runs of either side.
struct Folders {
    sides: [PathBuf; 2],
    /// Keeps others from removing them meanwhile, and removes them if they stay empty.
    _marked: Vec<RunDir>,
}

impl Folders {
    fn create(out: Option<&Path>, created: &str) -> Result<Self> {
        if out.is_some() {
            let dir = RunDir::create(out, created)?;
            let sides = ["a", "b"].map(|side| dir.path().join(side));
            // A run that fails is removed: it must not be one that somebody kept.
            for side in &sides {
                ensure!(
                    !side.exists(),
                    "{} is there already: name a new folder with --out",
                    output::shown(side)
                );
            }
            return Ok(Self { sides, _marked: vec![dir] });
        }
        // Of one time, the second is listed as the newer one.
        let dirs = [RunDir::create(None, created)?, RunDir::create(None, created)?];
        let sides = dirs.each_ref().map(|dir| dir.path().to_owned());
        // The first may have made the folder around both, so it goes last.
        Ok(Self { sides, _marked: dirs.into_iter().rev().collect() })
    }

    /// Notes in both how they were compared.
    fn note(&self, kept: &Kept) -> Result<()> {
        let [a, b] = &self.sides;
        kept.keep(a)?;
        Kept { is_a: false, ..kept.clone() }.keep(b)
    }
}

/// What came of the turns.
struct Measured {
    versus: Versus,
    ran: Circumstances,
    /// Of each pair, whether A ran first.
    a_first: Vec<bool>,
    /// The pairs that were compared, for the so many-th time.
    chosen: Vec<usize>,
    look: u32,
    /// A signal asked to stop.
    is_cut_short: bool,
    /// A run failed after others.
    has_failed: bool,
}

/// Two commands that run in turns.
struct Turns<'t> {
    lines: &'t [Line; 2],
    folders: &'t [PathBuf; 2],
    sides: [Side; 2],
    /// What is said of the machine and the engines, by the first run of either side.
    ran: Circumstances,
    others: Vec<f64>,
}

impl<'t> Turns<'t> {
    fn new(lines: &'t [Line; 2], folders: &'t [PathBuf; 2]) -> Self {
        let (sides, ran) = (two_sides(), Circumstances::default());
        Self { lines, folders, sides, ran, others: Vec::new() }
    }

    /// Runs pairs until each test has a verdict, the time is over, or a signal asks to stop. `None` if there is no pair by
    /// then.
    fn measure(mut self, args: &VersusArgs) -> Result<Option<Measured>> {
        let began = Instant::now();
        let limit = args.within;
        let bar = progress::time("measuring", u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        bar.set_prefix("one run of each that doesn't count");
        for side in [0, 1] {
            let profile = self.run(side, 0)?;
            self.learn(side, &profile);
        }
        let warmed = began.elapsed();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut random = SplitMix64(now.as_nanos() as u64);
        let mut order: Vec<bool> = Vec::new();
        let mut latest: Option<(Versus, u32)> = None;
        let (mut is_cut_short, mut has_failed) = (false, false);
        while self.sides[1].processes.len() < MOST_PAIRS {
            let pairs = self.sides[1].processes.len();
            if order.len() <= pairs {
                order.extend(until_next_look(&order, random.bits()));
            }
            let turns = if order[pairs] { [0, 1] } else { [1, 0] };
            let paired = self.pair(turns);
            if paired.is_err() {
                // Half a pair would not be compared later.
                for side in [0, 1] {
                    let _ = std::fs::remove_dir_all(self.out(side, pairs + 1));
                }
            }
            match paired {
                Ok(()) => {}
                // What ran before still counts.
                Err(error) if error.is::<interrupt::Nothing>() => {
                    is_cut_short = true;
                    break;
                }
                Err(error) if pairs == 0 => return Err(error),
                Err(error) => {
                    let error = printable_text(&format!("{error:#}"));
                    self.ran.notes.push(format!("it ended since a run failed: {error}"));
                    has_failed = true;
                    break;
                }
            }
            let pairs = pairs + 1;
            let elapsed = began.elapsed();
            bar.set_position(elapsed.as_millis() as u64);
            if let Some(look) = look_after(pairs) {
                let found = versus(&self.sides[0], &self.sides[1], look, args.threshold)?;
                let is_decided = found.is_decided();
                latest = Some((found, look));
                if is_decided {
                    break;
                }
            }
            let of_pair = (elapsed - warmed) / pairs as u32;
            bar.set_prefix(so_far(latest.as_ref().map(|(found, _)| found), pairs, of_pair));
            if elapsed + of_pair > limit {
                break;
            }
        }
        bar.finish_and_clear();
        let pairs = self.sides[1].processes.len();
        if pairs == 0 {
            return Ok(None);
        }
        self.sides[0].processes.truncate(pairs);
        // At the end of the time there is a look whatever the number of pairs: it is the next one.
        let is_seen = latest.as_ref().is_some_and(|(of, _)| of.comparison.a.processes == pairs);
        let (versus, look, chosen) = match latest.filter(|_| is_seen) {
            Some((versus, look)) => (versus, look, (0..pairs).collect()),
            None => {
                let looks = (0..pairs).filter_map(look_after).max().unwrap_or(0);
                // Between two looks one side may have gone first more often.
                let chosen = evened(&order[..pairs], random.bits());
                let left = pairs - chosen.len();
                if left > 0 {
                    let left = count(left as u64, "pair");
                    let note = format!("{left} left out, so that either side goes first as often");
                    self.ran.notes.push(note);
                }
                let sides = self.sides.each_ref().map(|side| Side {
                    name: side.name.clone(),
                    processes: chosen.iter().map(|&nth| side.processes[nth].clone()).collect(),
                });
                let found = versus(&sides[0], &sides[1], looks + 1, args.threshold)?;
                (found, looks + 1, chosen)
            }
        };
        self.ran.pairs = pairs;
        self.ran.seconds = began.elapsed().as_secs_f64();
        let n = self.others.len();
        self.ran.others_share = (n > 0).then(|| self.others.iter().sum::<f64>() / n as f64);
        if is_cut_short {
            self.ran.notes.push("it was ended before there was a verdict".to_owned());
        } else if !versus.is_decided() && !has_failed {
            self.ran.notes.push(format!(
                "the time was over before each test had a verdict: --within gives it more than {}",
                humantime::format_duration(limit)
            ));
        }
        order.truncate(pairs);
        let (ran, a_first) = (self.ran, order);
        Ok(Some(Measured { versus, ran, a_first, chosen, look, is_cut_short, has_failed }))
    }

    /// Runs both once, in this order. If the second one doesn't come to its end, there is no pair.
    fn pair(&mut self, turns: [usize; 2]) -> Result<()> {
        let nth = self.sides[1].processes.len() + 1;
        let mut pair: [Option<Process>; 2] = [None, None];
        for (turn, side) in turns.into_iter().enumerate() {
            if interrupt::is_asked() {
                return Err(interrupt::Nothing.into());
            }
            let made = self.run(side, nth);
            // A program that a signal ended may say so by any code.
            let made = match interrupt::is_asked() {
                true => Err(interrupt::Nothing.into()),
                false => made,
            };
            let name = format!("{}, run {nth}", self.sides[side].name);
            let mut process = process(&name, made?)?;
            process.turns = self::turns(nth - 1, turn == 0);
            pair[side] = Some(process);
        }
        for (side, process) in self.sides.iter_mut().zip(pair) {
            side.processes.extend(process);
        }
        Ok(())
    }

    fn run(&mut self, side: usize, nth: usize) -> Result<Profile> {
        let out = self.out(side, nth);
        let made = make(&self.lines[side], &out).with_context(|| self.sides[side].name.clone());
        // The one that doesn't count isn't kept either, nor what is left of it if it fails: a set of runs begins with 1.
        if nth == 0 {
            let _ = std::fs::remove_dir_all(&out);
        }
        let profile = made?;
        self.others.extend(profile.other_load.as_ref().map(|load| load.others_share()));
        Ok(profile)
    }

    fn out(&self, side: usize, nth: usize) -> PathBuf {
        self.folders[side].join(nth.to_string())
    }

    fn learn(&mut self, side: usize, profile: &Profile) {
        self.ran.engines[side] = profile.run.as_ref().map(|run| run.backend.clone());
        if self.ran.machine.is_none() {
            self.ran.machine = view::machine_in_words(profile);
        }
    }
}

/// What is known by now, for the bar.
fn so_far(latest: Option<&Versus>, pairs: usize, of_pair: Duration) -> String {
    let tests = latest.into_iter().flat_map(Versus::tests).map(|(test, _)| {
        let change = test
            .whole
            .change
            .map_or_else(String::new, |change| format!(" {:+.1} %", 100.0 * change));
        format!("{}{change} {}", test.name, test.whole.verdict.name())
    });
    let known: Vec<String> = tests.collect();
    let known = if known.is_empty() { String::new() } else { format!(", {}", known.join(", ")) };
    let next = (pairs + 1..).find(|&pairs| look_after(pairs).is_some()).unwrap_or(pairs + 1);
    let left = of_pair * (next - pairs) as u32;
    let pairs = count(pairs as u64, "pair");
    format!("{pairs}{known}; a look in {} s", left.as_secs())
}
