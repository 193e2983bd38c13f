//! `brickscope history`: a folder of benchmarks over time.

use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use brickscope::history::{History, LeftOut, Measure, Run};
use brickscope::receipt::Receipt;
use brickscope::view;

use crate::args::{HistoryArgs, HistoryForm};
use crate::progress;

pub(crate) fn run(args: &HistoryArgs) -> Result<()> {
    let Found { files, mut left_out } = Found::in_folder(&args.dir)?;
    let mut runs: Vec<Run> = Vec::new();
    let bar = progress::steps("reading", files.len() as u64);
    for file in &files {
        match read(file) {
            Ok(run) => runs.push(run),
            Err(reason) => left_out.push(LeftOut { path: file.display().to_string(), reason }),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if runs.is_empty() {
        nothing(args, &left_out)?;
    }
    select(args, &mut runs)?;
    let measure = match &args.brick {
        Some(brick) => Measure::Brick(brick.clone()),
        None => Measure::TokensPerSecond,
    };
    let mut history = History::of(runs, measure);
    history.left_out.append(&mut left_out);
    history.left_out.sort();
    let text = match args.output {
        HistoryForm::Text => view::history(&history),
        HistoryForm::Md => view::history_markdown(&history),
        HistoryForm::Json => view::history_json(&history),
        HistoryForm::Svg => view::history_svg(&history),
        HistoryForm::Csv => view::history_csv(&history),
    };
    // In these two there is no place for it.
    let is_silent = matches!(args.output, HistoryForm::Svg | HistoryForm::Csv);
    for LeftOut { path, reason } in history.left_out.iter().filter(|_| is_silent) {
        eprintln!("left out: {path}: {reason}");
    }
    stdout().lock().write_all(text.as_bytes()).context("standard output")
}

/// No receipt can be shown: why not.
fn nothing(args: &HistoryArgs, left_out: &[LeftOut]) -> Result<()> {
    let dir = args.dir.display();
    match left_out {
        [] => bail!("there is no receipt in {dir}: `brickscope benchmark` writes them"),
        [LeftOut { path, reason }] => bail!("no receipt in {dir} can be used: {path}: {reason}"),
        [LeftOut { path, reason }, rest @ ..] => bail!(
            "no receipt in {dir} can be used: {path}: {reason}; and {} more like it or otherwise",
            rest.len()
        ),
    }
}

/// Keeps what was asked for. What isn't there is a slip of the keyboard.
fn select(args: &HistoryArgs, runs: &mut Vec<Run>) -> Result<()> {
    let known = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    if let Some(test) = &args.test {
        let tests: BTreeSet<String> =
            runs.iter().flat_map(Run::kinds).map(|kind| kind.test.clone()).collect();
        if !tests.contains(test) {
            bail!("--test: no receipt has a test `{test}`; there are {}", known(tests));
        }
    }
    if let Some(model) = &args.model {
        // By its hash from here on: what was at this path may have been at another before.
        let of_runs = || runs.iter().flat_map(|run| run.kinds().map(|kind| (run.model(), kind)));
        let hashes: BTreeSet<String> = of_runs()
            .filter(|(name, kind)| is_model(model, name, &kind.model_sha256))
            .map(|(_, kind)| kind.model_sha256.clone())
            .collect();
        if hashes.is_empty() {
            let names = of_runs().map(|(name, kind)| {
                let hash: String = kind.model_sha256.chars().take(8).collect();
                format!("{name} ({hash})")
            });
            bail!("--model: no receipt is of `{model}`; there are {}", known(names.collect()));
        }
        runs.iter_mut().for_each(|run| run.retain(|kind| hashes.contains(&kind.model_sha256)));
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
            bail!("--brick: no receipt has a brick `{brick}`; there are {}", known(bricks));
        }
    }
    Ok(())
}

/// Fewer digits than this tell nothing apart.
const LEAST_DIGITS: usize = 4;

fn is_model(asked: &str, name: &str, sha256: &str) -> bool {
    asked == name || (asked.len() >= LEAST_DIGITS && sha256.starts_with(asked))
}

/// A receipt that is what it was when it was made.
fn read(path: &Path) -> Result<Run, String> {
    let name = path.display().to_string();
    let of_file = |error: String| match error.strip_prefix(&name) {
        Some(rest) => rest.trim_start_matches([':', ' ']).to_owned(),
        None => error,
    };
    let receipt = Receipt::load(path).map_err(|error| of_file(error.to_string()))?;
    let sha256 = receipt.canonical_sha256().map_err(|error| of_file(error.to_string()))?;
    match &receipt.seal {
        None => Err("it has no seal, so nobody can tell whether it was changed".to_owned()),
        Some(seal) if seal.sha256 != sha256 => {
            Err("its seal is broken: it was changed after it was made".to_owned())
        }
        Some(_) => Run::of(&name, &receipt),
    }
}

/// What a folder has of receipts, by name.
#[derive(Debug, Default)]
struct Found {
    files: Vec<PathBuf>,
    /// What can't be read.
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
            return Ok(Self { files: vec![root.to_owned()], left_out: Vec::new() });
        }
        let mut found = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            if let Err(error) = found.look_into(&folder, &mut folders) {
                found.leave_out(&folder, error.to_string());
            }
        }
        found.files.sort();
        Ok(found)
    }

    fn leave_out(&mut self, path: &Path, reason: String) {
        self.left_out.push(LeftOut { path: path.display().to_string(), reason });
    }

    fn look_into(&mut self, folder: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // A link to a folder isn't followed: it might lead back here.
            if kind.is_dir() {
                folders.push(entry.path());
            } else if is_receipt(&entry.file_name().to_string_lossy()) {
                let path = entry.path();
                // A pipe would be waited for, be it itself or where a link leads.
                match fs::metadata(&path) {
                    Ok(found) if found.is_file() => self.files.push(path),
                    Ok(_) => self.leave_out(&path, "it is not a file".to_owned()),
                    Err(error) => self.leave_out(&path, error.to_string()),
                }
            }
        }
        Ok(())
    }
}

fn is_receipt(name: &str) -> bool {
    name == "receipt.json" || name.ends_with(".receipt.json")
}
