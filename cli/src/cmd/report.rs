//! `brickscope report`: writes one run, two side by side, or those of a folder, as an HTML file.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brickscope::write_atomically;
use brickscope_analysis::compare::{Options, compare};
use brickscope_analysis::receipt::Receipt;
use brickscope_analysis::view;
use brickscope_report::{Folder, Run, is_page, links, of_folder, of_run, of_two, open, steps};
use brickscope_runs::{
    Budget, List, REPORT, find, folder_of, home, is_run, list, tag, view as listed,
};
use serde_json::json;

use crate::runs::sides;
use crate::text::{count, wrapped};
use crate::{in_turns, output, progress, runs};

/// Write a run, two side by side, or a folder of runs as one self-contained HTML file.
///
/// The page contains more than `show`: bricks, layers, a timeline, a flame view, the roofline, the
/// critical path, tokens and the machine. Each number states its place in profile.json; docs/profile.md
/// explains how. Two runs are compared as by `compare`, so two single runs can't be told apart.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope report\n  brickscope report RUN -o report.html\n  brickscope report runs/before runs/after -o diff.html\n  brickscope report --all --open\n  brickscope report RUN -o - | gzip > report.html.gz"
)]
pub(crate) struct ReportArgs {
    /// The run: its folder or profile.json, its tag, the beginning of its name, or `@-1` for the one before the newest. By
    /// default the newest in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// Another run to compare: the first is A, and this one is B.
    pub(crate) other: Option<PathBuf>,

    /// The file to write; `-` for standard output. By default report.html in the run's folder, or
    /// comparison.html in the folder of the second run, or runs.html in that of all runs.
    #[arg(short, long, alias = "out", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write to the file of --output even if it is none of these pages.
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,

    /// With two runs: compare even if they ran under different conditions.
    #[arg(long, requires = "other")]
    pub(crate) force: bool,

    /// A page over all runs of a folder, by default `brickscope-runs`: their speed over time, their tags, links to reports that
    /// are there, and any two beside each other. It has what `ls` says.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        conflicts_with_all = ["run", "other"]
    )]
    pub(crate) all: Option<Option<PathBuf>>,

    /// Open the page in the browser; without a display, say where it is.
    #[arg(long)]
    pub(crate) open: bool,

    /// Print the file, its size in bytes and the headline as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let (out, page, headline) = match &args.all {
        Some(folder) => all(folder.as_deref().unwrap_or(home()), args)?,
        None => some(args)?,
    };
    if output::is_stdout(&out) {
        if args.open {
            tell!("note: nothing to open: the page goes to standard output");
        }
        return output::print(page);
    }
    write_atomically(&out, anyhow::Error::from, |file| Ok(file.write_all(page.as_bytes())?))
        .with_context(|| out.display().to_string())?;
    let told = if args.json {
        let told =
            json!({"file": out.display().to_string(), "bytes": page.len(), "headline": headline});
        told.to_string() + "\n"
    } else {
        let mut told = String::new();
        headline.lines().for_each(|line| wrapped("", line, &mut told));
        let written = format!("{}, {:.1} kB", output::shown(&out), page.len() as f64 / 1e3);
        wrapped("written   ", &written, &mut told);
        told
    };
    output::print(told)?;
    if args.open
        && let Err(why) = open(&out)
    {
        tell!("note: not opened: {why}; open {} in a browser", output::shown(&out));
    }
    Ok(())
}

/// Refuses to write over what was measured, and over a file that is no report, if that was named.
fn spare(out: &Path, runs: &[&Path], args: &ReportArgs) -> Result<()> {
    runs::spare(out, runs)?;
    // Of what isn't there or can't be read, writing says so.
    if args.output.is_none() || args.overwrite || output::is_stdout(out) || !out.is_file() {
        return Ok(());
    }
    let mut start = Vec::new();
    let read = File::open(out).and_then(|file| file.take(4096).read_to_end(&mut start));
    ensure!(
        read.is_err() || start.is_empty() || is_page(&start),
        "{} is there, and is no report of brickscope: name another file, or --overwrite it",
        output::shown(out)
    );
    Ok(())
}

/// The file, the page and the headline of a folder of runs.
fn all(folder: &Path, args: &ReportArgs) -> Result<(PathBuf, String, String)> {
    let shown = output::shown(folder);
    // A tag or a name.
    let named = find(folder, home()).ok().filter(|found| is_run(&found.path));
    if let Some(run) = named.filter(|_| !folder.exists()) {
        let run = output::shown(&run.path);
        bail!("--all is of a folder of runs, and {run} is one run: `brickscope report {run}`");
    }
    let found = match list(folder, Budget::SOME) {
        Err(error) if folder == home() && error.kind() == ErrorKind::NotFound => List::default(),
        found => found.with_context(|| shown.clone())?,
    };
    if found.rows.is_empty() && is_run(folder) {
        bail!("--all is of a folder of runs, and {shown} is one run: `brickscope report {shown}`");
    }
    if found.rows.is_empty() {
        bail!("there is no run in {shown}: `profile`, `run` and `import` write one");
    }
    let out = args.output.clone().unwrap_or_else(|| folder.join("runs.html"));
    let rows: Vec<&Path> = found.rows.iter().map(|row| row.path.as_path()).collect();
    spare(&out, &rows, args)?;
    let (json, links) = (listed::json(&found, folder), links(&out, folder));
    let name = folder.canonicalize().map_or_else(|_| shown.clone(), |path| called(&path));
    let page = of_folder(&Folder { name: &name, json: &json, links: links.as_deref() })?;
    let headline = format!("{} of {shown}", count(rows.len() as u64, "run"));
    Ok((out, page, headline))
}

/// The same of a run, or of two.
fn some(args: &ReportArgs) -> Result<(PathBuf, String, String)> {
    let run = runs::named_or_newest(args.run.as_deref())?;
    let other = args.other.as_deref().map(runs::named).transpose()?;
    let out = match &args.output {
        Some(out) => out.clone(),
        None => beside(&run, other.as_deref())?,
    };
    let runs: Vec<&Path> =
        [Some(&run), other.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    spare(&out, &runs, args)?;
    let (page, headline) = match &other {
        None => one(&run)?,
        Some(other) => two(&run, other, args.force)?,
    };
    Ok((out, page, headline))
}

/// The default file of a report: in the folder of the run, or of the second of two.
fn beside(run: &Path, other: Option<&Path>) -> Result<PathBuf> {
    let (run, name) = match other {
        None => (run, REPORT),
        Some(other) => (other, "comparison.html"),
    };
    if run.is_dir() {
        return Ok(run.join(name));
    }
    match run.parent() {
        Some(folder) => Ok(folder.join(name)),
        None => bail!("{} has no folder: name a file with --output", run.display()),
    }
}

fn one(path: &Path) -> Result<(String, String)> {
    let note = progress::note("reading");
    let profile = runs::load(path)?;
    note.finish_and_clear();
    let receipt = receipt_of(path)?;
    let bar = progress::steps("report", steps(&profile));
    let run = Run { name: called(path), profile: &profile, receipt: receipt.as_ref() };
    let page = of_run(&run, &mut || bar.inc(1));
    bar.finish_and_clear();
    Ok((page, view::headline(&profile)))
}

/// The name of a run's folder, without the path, which means nothing to other readers of the page.
fn called(run: &Path) -> String {
    // A file with a name of its own has that.
    let is_named = run.is_file() && run.file_name().is_some_and(|name| name != "profile.json");
    let folder = if run.is_dir() || is_named { Some(run) } else { run.parent() };
    let name = folder.and_then(Path::file_name).unwrap_or(run.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The receipt in a run's folder, if there is one.
fn receipt_of(run: &Path) -> Result<Option<Receipt>> {
    let file = runs::receipt_in(run);
    if !run.is_dir() || !file.is_file() {
        return Ok(None);
    }
    Ok(Some(Receipt::load(&file)?))
}

fn two(a: &Path, b: &Path, is_forced: bool) -> Result<(String, String)> {
    // By their tags, where they have some.
    let names = [a, b].map(|path| {
        let tag = tag::of(folder_of(path)).filter(|_| path.exists());
        tag.map_or_else(|| called(path), |tag| format!("{tag} ({})", called(path)))
    });
    in_turns::tell_of_other_rule([a, b]);
    let note = progress::note("comparing");
    let options = Options { is_forced, models_may_differ: true, ..Options::default() };
    let comparison = sides::load(a, is_forced)
        .context("A")
        .and_then(|a| Ok((a, sides::load(b, is_forced).context("B")?)))
        .and_then(|(a, b)| Ok(compare(&a, &b, &options)?))
        .map_err(|error| format!("{error:#}"));
    // A side that is a set of processes or a lone receipt has no single run to show.
    let runs = [a, b].map(|path| runs::load(path).map_err(|error| format!("{error:#}")));
    if let (Err(why), [Err(_), Err(_)]) = (&comparison, &runs) {
        bail!("{why}");
    }
    let page = of_two([&names[0], &names[1]], &comparison, [&runs[0], &runs[1]]);
    note.finish_and_clear();
    let headline = match &comparison {
        Ok(comparison) => view::comparison_headline(comparison),
        Err(why) => format!("No verdict: {why}"),
    };
    Ok((page, headline))
}
