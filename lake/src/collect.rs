//! Adding runs to a lake.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rows::{Facts, RunRows, rows};
use anyhow::{Context, Result, ensure};
use brickscope_analysis::history::MACHINE;
use brickscope_analysis::machine_name;
use brickscope_analysis::receipt::{self, Options, Receipt, verify};
use brickscope_profile::text::printable_text;
use serde::Serialize;

use crate::Host;
use crate::part::Each;
use crate::store::Lake;

/// What is known of the runs that are collected, apart from their files.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The machine's name in the lake; `None`: the one that a run states, else this machine's, if the run is of it.
    pub machine: Option<String>,
    /// The engine's commit.
    pub commit: Option<String>,
    /// What runs near each other in time have in common.
    pub session: Option<String>,
}

/// What became of the runs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Collected {
    /// Runs that are new in the lake.
    pub added: u64,
    /// Runs that were there already.
    pub known: u64,
    /// What was not collected, and why.
    pub left_out: Vec<(PathBuf, String)>,
}

/// Adds the runs at each path: a run's folder, its profile.json or receipt, or a folder with runs in it. `each` is
/// called with the number of runs done and of all.
pub fn collect(lake: &Lake, paths: &[PathBuf], about: &About, each: Each<'_>) -> Result<Collected> {
    let mut collected = Collected::default();
    let mut runs: Vec<RunFiles> = Vec::new();
    for path in paths {
        runs.extend(RunFiles::at(path)?);
    }
    // Of a benchmark's receipt and a copy of it elsewhere, the one beside its profile counts.
    runs.sort_by_key(|run| run.profile.is_none());
    // By day, each run with its machine.
    let mut known: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (nth, run) in (0..).zip(&runs) {
        each(nth, runs.len() as u64);
        match add(lake, run, about, &mut known) {
            Ok(true) => collected.added += 1,
            Ok(false) => collected.known += 1,
            // A run that can't be read must not keep the others out; a lake that can't be written to does.
            Err(Trouble::Run(error)) => {
                let reason = format!("{error:#}");
                collected.left_out.push((run.path().to_owned(), reason));
            }
            Err(Trouble::Lake(error)) => return Err(error),
        }
    }
    each(runs.len() as u64, runs.len() as u64);
    Ok(collected)
}

/// The runs at a path, as rows.
pub(crate) fn runs_at(path: &Path, about: &About, host: &Host) -> Result<Vec<RunRows>> {
    let read =
        |run: &RunFiles| read(run, about, host).with_context(|| run.path().display().to_string());
    RunFiles::at(path)?.iter().map(read).collect()
}

enum Trouble {
    Run(anyhow::Error),
    Lake(anyhow::Error),
}

/// The files of one run.
#[derive(Debug, Clone, Default)]
struct RunFiles {
    profile: Option<PathBuf>,
    receipt: Option<PathBuf>,
}

impl RunFiles {
    /// The runs at a path, by name: one or more.
    fn at(path: &Path) -> Result<Vec<Self>> {
        let found = fs::metadata(path).with_context(|| path.display().to_string())?;
        if !found.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let file = Some(path.to_owned());
            return Ok(vec![match is_receipt(&name) {
                true => Self { receipt: file, profile: None },
                false => Self { profile: file, receipt: None },
            }]);
        }
        let mut runs = Vec::new();
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop() {
            let mut own = Self::default();
            let cannot = || folder.display().to_string();
            let mut within = Vec::new();
            for entry in fs::read_dir(&folder).with_context(cannot)? {
                let entry = entry.with_context(cannot)?;
                let (path, kind) = (entry.path(), entry.file_type().with_context(cannot)?);
                let name = entry.file_name().to_string_lossy().into_owned();
                // Links to folders may form a loop.
                if kind.is_dir() {
                    within.push(path);
                } else if name == "profile.json" {
                    own.profile = Some(path);
                } else if name == "receipt.json" {
                    own.receipt = Some(path);
                } else if is_receipt(&name) {
                    runs.push(Self { receipt: Some(path), profile: None });
                }
            }
            within.sort();
            folders.extend(within.into_iter().rev());
            if own.profile.is_some() || own.receipt.is_some() {
                runs.push(own);
            }
        }
        ensure!(
            !runs.is_empty(),
            "{} has no runs: neither profile.json nor receipt.json, nor folders with them",
            path.display()
        );
        runs.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(runs)
    }

    fn path(&self) -> &Path {
        let file = self.receipt.as_deref().or(self.profile.as_deref());
        file.unwrap_or(Path::new("."))
    }
}

fn is_receipt(name: &str) -> bool {
    name == "receipt.json" || name.ends_with(".receipt.json")
}

/// Adds one run; `false` if it is there already.
fn add(
    lake: &Lake,
    run: &RunFiles,
    about: &About,
    known: &mut BTreeMap<String, BTreeMap<String, String>>,
) -> Result<bool, Trouble> {
    let rows = read(run, about, lake.host()).map_err(Trouble::Run)?;
    let of_day = match known.entry(rows.date.clone()) {
        Entry::Occupied(day) => day.into_mut(),
        Entry::Vacant(day) => day.insert(lake.runs_of(&rows.date).map_err(Trouble::Lake)?),
    };
    match of_day.get(&rows.run_id) {
        Some(other) if *other != rows.machine => {
            let path = printable_text(&run.path().to_string_lossy());
            let told = format!("note: {path}: it is in the lake already, as a run of {other}");
            (lake.host().tell)(&told);
            Ok(false)
        }
        Some(_) => Ok(false),
        None => {
            of_day.insert(rows.run_id.clone(), rows.machine.clone());
            lake.add(rows).map_err(Trouble::Lake)?;
            Ok(true)
        }
    }
}

fn read(run: &RunFiles, about: &About, host: &Host) -> Result<RunRows> {
    let profile = run.profile.as_deref().map(host.load).transpose()?;
    if let Some(profile) = &profile {
        profile.check().map_err(|why| anyhow::anyhow!("the profile is inconsistent: {why}"))?;
    }
    let mut facts = Facts {
        source: run.path().display().to_string(),
        commit: about.commit.clone(),
        session: about.session.clone(),
        ..Facts::default()
    };
    let mut of_receipt = None;
    if let Some(file) = &run.receipt {
        let bytes = receipt::read(file)?;
        let verdict = verify(&bytes, &Options::default());
        facts.refused = verdict.not_verified();
        facts.signed_by = verdict.signed_by;
        of_receipt = Some(Receipt::from_bytes(&bytes, file)?);
    }
    let of_profile = || profile.as_ref()?.named.as_ref()?.machine.as_ref();
    let stated = of_receipt.as_ref().and_then(|receipt| receipt.environment.get(MACHINE));
    let stated = stated.or_else(of_profile);
    let machine = match about.machine.as_ref().or(stated) {
        Some(machine) => machine.clone(),
        None => (host.machine)(profile.as_ref(), of_receipt.as_ref())?,
    };
    machine_name::check(&machine).map_err(anyhow::Error::msg)?;
    facts.machine = machine;
    rows(profile.as_ref(), of_receipt.as_ref(), &facts).map_err(anyhow::Error::msg)
}
