//! `brickscope history`: shows a folder of benchmarks over time.

use clap::ValueEnum;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Result, bail};
use brickscope::load::{self, Limit};
use brickscope::{Profile, RUN_FILE};
use brickscope_analysis::history::{History, LeftOut, Measure, Run, SeriesKind};
use brickscope_analysis::view;
use serde::Serialize;

use crate::flame::history::Flamegraphs;
use crate::flame::summary::Summary;
use crate::output;
use crate::progress;
use crate::runs::{FLAMEGRAPH, llama_bench, sealed};
use crate::text::{count, printable_text};

/// Show a folder of benchmarks over time, and mark lasting changes.
///
/// `history` reads all receipts in the folder and its subfolders: files named `receipt.json` or ending
/// in `.receipt.json`. It also reads llama-bench's files with times (`.json`, `.jsonl`), and the runs that
/// `import` made of them; they have no receipt, and the output says so. Each series is a test of one model
/// with the same threads and kernels on the same kind of machine. The processes of a set are one point.
///
/// From 12 points on, changes of the level are marked, with the bricks behind them. If runs are
/// disturbed independently, at most 1 in 100 series without a change gets a mark. There are more if the
/// machine's own speed varies: with one program on a shared machine, 2 of 27 windows of 30 runs were
/// marked for prefill and 0 of 27 for decode, and no window of 60 runs. Use `compare` to decide whether a
/// program is slower.
///
/// Then come the flamegraphs in the folder (files named `flamegraph.json` or ending in
/// `.flamegraph.json`): the shares of bricks, functions and classes, and those that moved by more than
/// their error.
///
/// Unreadable files and receipts with a broken seal are listed and left out.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope history\n  brickscope history runs --test tg128\n  brickscope history runs --brick QkvProjection\n  brickscope history runs --format svg > history.svg\n  brickscope history runs --flamegraphs\n  brickscope history runs --json | jq '.series[] | {test: .kind.test, changes}'"
)]
pub(crate) struct HistoryArgs {
    /// The folder, or a single receipt, flamegraph.json or file of llama-bench.
    #[arg(default_value = "brickscope-runs")]
    pub(crate) dir: PathBuf,

    /// Show only this test, such as tg128.
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,

    /// Show only this model, given by its name, by its path if it has no name, or by the first digits (4 or
    /// more) of its file's SHA-256.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Show the time per token of this brick instead of tokens per second.
    #[arg(long, value_name = "NAME")]
    pub(crate) brick: Option<String>,

    /// Show only the flamegraphs.
    #[arg(long, conflicts_with_all = ["test", "brick"])]
    pub(crate) flamegraphs: bool,

    /// The output format.
    #[arg(short, long, alias = "output", short_alias = 'o', value_enum, value_name = "FORMAT", default_value_t = HistoryForm::Text)]
    format: HistoryForm,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl HistoryArgs {
    fn format(&self) -> HistoryForm {
        if self.json { HistoryForm::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum HistoryForm {
    /// Tables with sparklines.
    Text,
    /// Markdown.
    Md,
    /// JSON with all points and changes.
    Json,
    /// A chart, of speeds only.
    Svg,
    /// CSV with a line for each point or, with --flamegraphs, for each share at each point.
    Csv,
}

pub(crate) fn run(args: &HistoryArgs) -> Result<()> {
    let Found { files, others, flamegraphs, mut left_out } = Found::in_folder(&args.dir)?;
    // With --test or --brick the user asks for speeds only.
    let wants_flamegraphs = args.test.is_none() && args.brick.is_none();
    let [files, others] =
        [files, others].map(|files| if args.flamegraphs { Vec::new() } else { files });
    let flamegraphs = if wants_flamegraphs { flamegraphs } else { Vec::new() };
    let mut runs: Vec<Run> = Vec::new();
    let mut graphs: Vec<(String, Summary)> = Vec::new();
    let all = files.len() + others.len() + flamegraphs.len();
    let bar = progress::steps("reading", all as u64);
    let mut not_verified: Vec<LeftOut> = Vec::new();
    let mut leave_out = |file: &Path, reason: String| {
        left_out.push(LeftOut { path: file.display().to_string(), reason });
    };
    for file in &files {
        match sealed(file) {
            Ok((run, None)) => runs.push(run),
            Ok((run, Some(reason))) => {
                runs.push(run);
                not_verified.push(LeftOut { path: file.display().to_string(), reason });
            }
            Err(reason) => leave_out(file, reason),
        }
        bar.inc(1);
    }
    for file in &others {
        match of_llama_bench(file) {
            Ok(Some((of_file, reason))) => {
                not_verified.push(LeftOut { path: file.display().to_string(), reason });
                runs.extend(of_file);
            }
            Ok(None) => {}
            Err(reason) => leave_out(file, reason),
        }
        bar.inc(1);
    }
    for file in &flamegraphs {
        match Summary::load(file) {
            Ok(summary) => graphs.push((file.display().to_string(), summary)),
            Err(reason) => leave_out(file, reason),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if runs.is_empty() && graphs.is_empty() {
        nothing(args, &left_out)?;
    }
    select(args, &mut runs, &mut graphs)?;
    let (flamegraphs, copies) = Flamegraphs::of(graphs);
    let copy = |(path, first)| LeftOut { path, reason: format!("the same flamegraph as {first}") };
    left_out.extend(copies.into_iter().map(copy));
    let measure = match &args.brick {
        Some(brick) => Measure::Brick(brick.clone()),
        None => Measure::TokensPerSecond,
    };
    not_verified.retain(|receipt| runs.iter().any(|run| run.source() == receipt.path));
    let mut history = History::of(runs, measure);
    history.left_out.append(&mut left_out);
    history.left_out.sort();
    // Of those that are shown.
    let is_left_out = |path: &str| history.left_out.iter().any(|left_out| left_out.path == path);
    not_verified.retain(|receipt| !is_left_out(&receipt.path));
    not_verified.sort();
    history.not_verified = not_verified;
    let (text, is_left_out_in_it) = shown(args, &history, &flamegraphs)?;
    let lists = [("not verified", &history.not_verified), ("left out", &history.left_out)];
    for (what, list) in lists.iter().filter(|_| !is_left_out_in_it) {
        for LeftOut { path, reason } in *list {
            tell!("{what}: {}: {}", printable_text(path), printable_text(reason));
        }
    }
    output::print(text)
}

/// The most bytes of a profile that is looked into: an imported run of thousands of tests has fewer, and a run of ours that
/// has more need not be read to be passed over.
const MOST_IMPORTED: Limit = Limit { bytes: 16 << 20, instead: "" };

/// The runs in a file of llama-bench, or in the run that one was imported as, and why they aren't verified; `None` if it is
/// another file.
fn of_llama_bench(file: &Path) -> Result<Option<(Vec<Run>, String)>, String> {
    let name = file.display().to_string();
    // The list says which file it is about.
    let of_file = |error: anyhow::Error| {
        let error = format!("{error:#}");
        error
            .strip_prefix(&name)
            .map_or(error.clone(), |rest| rest.trim_start_matches([':', ',', ' ']).to_owned())
    };
    let is_run = file.file_name().is_some_and(|name| name == RUN_FILE);
    let profile = if is_run {
        let Ok(text) = load::text(file, MOST_IMPORTED) else { return Ok(None) };
        if !text.contains("\"llama-bench\"") {
            return Ok(None);
        }
        Profile::from_json(&text, file).map_err(|error| of_file(error.into()))?
    } else {
        match llama_bench::read(file).map_err(of_file)? {
            Some(profile) => profile,
            None => return Ok(None),
        }
    };
    let Some(imported) = profile.imported.as_ref().filter(|of| of.format == "llama-bench") else {
        return Ok(None);
    };
    let reason = llama_bench::without_receipt(&imported.format);
    Ok(Some((Run::of_llama_bench(&name, &profile)?, reason)))
}

/// The text to print, and whether it lists what was left out.
fn shown(
    args: &HistoryArgs,
    history: &History,
    flamegraphs: &Flamegraphs,
) -> Result<(String, bool)> {
    let has_both = history.runs > 0 && flamegraphs.flamegraphs > 0;
    let other = "--flamegraphs shows them";
    Ok(match args.format() {
        HistoryForm::Svg if history.runs == 0 => {
            bail!("there is no chart of flamegraphs over time: use --format text, md, json or csv")
        }
        HistoryForm::Svg | HistoryForm::Csv if has_both => {
            let n = flamegraphs.flamegraphs;
            tell!("not shown: {}; {other}", count(n, "flamegraph"));
            let svg = args.format() == HistoryForm::Svg;
            (if svg { view::history_svg(history) } else { view::history_csv(history) }, false)
        }
        HistoryForm::Svg => (view::history_svg(history), false),
        HistoryForm::Csv if history.runs == 0 => (flamegraphs.csv(), false),
        HistoryForm::Csv => (view::history_csv(history), false),
        _ if flamegraphs.flamegraphs == 0 => match args.format() {
            HistoryForm::Md => (view::history_markdown(history), true),
            HistoryForm::Json => (view::history_json(history), true),
            _ => (view::history(history), true),
        },
        HistoryForm::Json => (json(history, flamegraphs)?, true),
        HistoryForm::Md if has_both => {
            (view::history_markdown(history) + "\n" + &flamegraphs.markdown(&[]), true)
        }
        HistoryForm::Text if has_both => {
            (view::history(history) + "\n" + &flamegraphs.text(&[]), true)
        }
        HistoryForm::Md => (flamegraphs.markdown(&history.left_out), true),
        HistoryForm::Text => (flamegraphs.text(&history.left_out), true),
    })
}

/// The history as JSON, with the flamegraphs under their own key.
fn json(history: &History, flamegraphs: &Flamegraphs) -> Result<String> {
    #[derive(Serialize)]
    struct Both<'h> {
        #[serde(flatten)]
        history: &'h History,
        flamegraphs: &'h Flamegraphs,
    }
    Ok(serde_json::to_string_pretty(&Both { history, flamegraphs })? + "\n")
}

/// The error if there is nothing to show.
fn nothing(args: &HistoryArgs, left_out: &[LeftOut]) -> Result<()> {
    let dir = args.dir.display();
    let (what, by) = match args.flamegraphs {
        true => ("flamegraph", "`brickscope flamegraph` writes them"),
        false => (
            "receipt",
            "`brickscope benchmark` writes them, and llama-bench's `-o jsonl` is read without one",
        ),
    };
    match left_out {
        [] => bail!("there is no {what} in {dir}: {by}"),
        [LeftOut { path, reason }] => bail!("no {what} in {dir} can be used: {path}: {reason}"),
        [LeftOut { path, reason }, rest @ ..] => {
            bail!("no {what} in {dir} can be used: {path}: {reason}; and {} more", rest.len())
        }
    }
}

/// Keeps the selected runs. A name that matches none is an error.
fn select(
    args: &HistoryArgs,
    runs: &mut Vec<Run>,
    graphs: &mut Vec<(String, Summary)>,
) -> Result<()> {
    let known = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    // Without a receipt a model has only its name.
    let identity = |name: &str, kind: &SeriesKind| match kind.model_sha256.as_str() {
        "" => name.to_owned(),
        hash => hash.to_owned(),
    };
    if let Some(test) = &args.test {
        let tests: BTreeSet<String> =
            runs.iter().flat_map(Run::kinds).map(|kind| kind.test.clone()).collect();
        if !tests.contains(test) {
            bail!("--test: no receipt has a test `{test}`; available: {}", known(tests));
        }
    }
    if let Some(model) = &args.model {
        // By its hash from here on: the same file may have had another path before.
        let of_runs = || runs.iter().flat_map(|run| run.kinds().map(|kind| (run.model(), kind)));
        let hashes: BTreeSet<String> = of_runs()
            .filter(|(name, kind)| is_model(model, name, &kind.model_sha256))
            .map(|(name, kind)| identity(name, kind))
            .collect();
        // A flamegraph doesn't have the hash of its model.
        let is_of = |summary: &Summary| {
            let of = summary.model.as_ref();
            of.is_some_and(|of| of.name.as_ref() == Some(model) || of.path == *model)
        };
        if hashes.is_empty() && !graphs.iter().any(|(_, summary)| is_of(summary)) {
            let of_graphs = graphs.iter().filter_map(|(_, summary)| {
                let of = summary.model.as_ref()?;
                Some(of.name.clone().unwrap_or_else(|| of.path.clone()))
            });
            let names = of_runs().map(|(name, kind)| {
                let hash: String = kind.model_sha256.chars().take(8).collect();
                if hash.is_empty() { name.to_owned() } else { format!("{name} ({hash})") }
            });
            let what = if runs.is_empty() { "flamegraph" } else { "receipt" };
            let names = known(names.chain(of_graphs).collect());
            bail!("--model: no {what} is of `{model}`; available: {names}");
        }
        graphs.retain(|(_, summary)| is_of(summary));
        for run in &mut *runs {
            let name = run.model().to_owned();
            run.retain(|kind| hashes.contains(&identity(&name, kind)));
        }
    }
    if let Some(test) = &args.test {
        runs.iter_mut().for_each(|run| run.retain(|kind| kind.test == *test));
    }
    runs.retain(|run| run.kinds().next().is_some());
    if let Some(brick) = &args.brick {
        let bricks: BTreeSet<String> =
            runs.iter().flat_map(Run::bricks).map(str::to_owned).collect();
        if bricks.is_empty() {
            bail!("--brick: no receipt has brick times: the profiler was off");
        }
        if !bricks.contains(brick) {
            bail!("--brick: no receipt has a brick `{brick}`; available: {}", known(bricks));
        }
    }
    Ok(())
}

/// Fewer digits than this are too ambiguous.
const LEAST_DIGITS: usize = 4;

fn is_model(asked: &str, name: &str, sha256: &str) -> bool {
    asked == name || (asked.len() >= LEAST_DIGITS && sha256.starts_with(asked))
}

/// The receipts in a folder, by name.
#[derive(Debug, Default)]
struct Found {
    files: Vec<PathBuf>,
    /// What may be llama-bench's, or a run imported from it.
    others: Vec<PathBuf>,
    /// The flamegraphs in it.
    flamegraphs: Vec<PathBuf>,
    /// The files that can't be read.
    left_out: Vec<LeftOut>,
}

impl Found {
    fn in_folder(root: &Path) -> Result<Self> {
        let kind = fs::metadata(root).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!(
                "there is no {}: `brickscope benchmark` makes brickscope-runs, or name another folder",
                root.display()
            ),
            _ => anyhow::Error::new(error).context(root.display().to_string()),
        })?;
        if !kind.is_dir() {
            let mut found = Self::default();
            let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let list = match () {
                () if is_flamegraph(&name) => &mut found.flamegraphs,
                () if name == RUN_FILE
                    || matches!(llama_bench::read(root), Ok(Some(_)) | Err(_)) =>
                {
                    &mut found.others
                }
                () => &mut found.files,
            };
            list.push(root.to_owned());
            return Ok(found);
        }
        let mut found = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            if let Err(error) = found.look_into(&folder, &mut folders) {
                found.leave_out(&folder, error.to_string());
            }
        }
        found.files.sort();
        // A run of ours with a receipt is told by that.
        found.others.retain(|file| {
            let is_run = file.file_name().is_some_and(|name| name == RUN_FILE);
            !is_run || found.files.binary_search(&file.with_file_name("receipt.json")).is_err()
        });
        found.others.sort();
        found.flamegraphs.sort();
        Ok(found)
    }

    fn leave_out(&mut self, path: &Path, reason: String) {
        self.left_out.push(LeftOut { path: path.display().to_string(), reason });
    }

    fn look_into(&mut self, folder: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Links to folders aren't followed, since they may form a loop.
            if kind.is_dir() {
                folders.push(entry.path());
            } else if is_receipt(&name) || is_flamegraph(&name) {
                let path = entry.path();
                // Reading a pipe would block, whether directly or through a link.
                match fs::metadata(&path) {
                    Ok(found) if found.is_file() && is_receipt(&name) => self.files.push(path),
                    Ok(found) if found.is_file() => self.flamegraphs.push(path),
                    Ok(_) => self.leave_out(&path, "it is not a file".to_owned()),
                    Err(error) => self.leave_out(&path, error.to_string()),
                }
            } else if name == RUN_FILE || llama_bench::is_named_so(&name) {
                let path = entry.path();
                if fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                    self.others.push(path);
                }
            }
        }
        Ok(())
    }
}

fn is_receipt(name: &str) -> bool {
    name == "receipt.json" || name.ends_with(".receipt.json")
}

fn is_flamegraph(name: &str) -> bool {
    name == FLAMEGRAPH || name.ends_with(".flamegraph.json")
}
