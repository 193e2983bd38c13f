//! The file that a search goes on from.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brickscope::load::{self, Limit};
use brickscope::save;
use brickscope_analysis::bisect::{Event, Kind, Record};
use serde::{Deserialize, Serialize};

use super::runs::Figure;

/// The version of the file.
const VERSION: u32 = 1;

const LIMIT: Limit = Limit { bytes: 1 << 28, instead: "is it the state of a search?" };

/// A pair that was begun longer ago than this, in seconds, begins anew: the machine may be in another state.
const STALE: u64 = 600;

/// All that a search is, so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    version: u32,
    /// The hashes of the commits, or the versions, from the good one to the bad one.
    pub(crate) revisions: Vec<String>,
    pub(crate) build: Option<String>,
    /// The script that fetches a version; `None` where the revisions are commits.
    #[serde(default)]
    pub(crate) fetch: Option<String>,
    /// The command that measures, or that is measured.
    pub(crate) measure: String,
    /// What counts of the command's run; `None` if it prints the result itself.
    #[serde(default)]
    pub(crate) figure: Option<Figure>,
    pub(crate) pattern: Option<String>,
    pub(crate) test: Option<String>,
    pub(crate) warm_up: u32,
    pub(crate) fresh: bool,
    /// Why revisions were left out.
    pub(crate) left_out: BTreeMap<usize, String>,
    /// What is kept of receipts or runs in [`kept`](Self::kept), by the number of the measurement.
    pub(crate) receipts: BTreeMap<usize, String>,
    /// When it was written.
    saved: String,
    pub(crate) record: Record,
}

impl State {
    pub(crate) fn new(revisions: Vec<String>, measure: &str, record: Record) -> Self {
        Self {
            version: VERSION,
            revisions,
            build: None,
            fetch: None,
            measure: measure.to_owned(),
            figure: None,
            pattern: None,
            test: None,
            warm_up: 0,
            fresh: false,
            left_out: BTreeMap::new(),
            receipts: BTreeMap::new(),
            saved: String::new(),
            record,
        }
    }

    pub(crate) fn file(work: &Path) -> PathBuf {
        work.join("state.json")
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.fetch.is_some() { Kind::Version } else { Kind::Commit }
    }

    /// The folder for copies of receipts, or for runs.
    pub(crate) fn kept(&self, work: &Path) -> PathBuf {
        work.join(if self.figure.is_some() { "runs" } else { "receipts" })
    }

    pub(crate) fn load(work: &Path) -> Result<Self> {
        let file = Self::file(work);
        let cannot = || file.display().to_string();
        ensure!(
            file.exists(),
            "there is no search to go on with in {}: begin one with --good and --measure",
            work.display()
        );
        let bytes = load::bytes(&file, LIMIT).with_context(cannot)?;
        let state: Self = serde_json::from_slice(&bytes).with_context(cannot)?;
        ensure!(
            state.version == VERSION,
            "{} has version {}, and this program knows version {VERSION}",
            cannot(),
            state.version
        );
        ensure!(
            state.revisions.len() == state.record.last.saturating_add(1),
            "{} has {} {}s for {} revisions: it was changed",
            cannot(),
            state.revisions.len(),
            state.kind().noun(),
            state.record.last.saturating_add(1)
        );
        Ok(state)
    }

    /// Writes it, so that a search that is killed at any time goes on from here.
    pub(crate) fn save(&mut self, work: &Path) -> Result<()> {
        self.saved = save::now_rfc3339();
        let file = Self::file(work);
        save::write_text(&file, &(serde_json::to_string(self)? + "\n"))
            .with_context(|| file.display().to_string())
    }

    /// Whether a pair whose one half was measured is too old for the other half.
    pub(crate) fn is_stale(&self) -> bool {
        let now = save::unix_seconds(&save::now_rfc3339());
        let saved = save::unix_seconds(&self.saved);
        !matches!((now, saved), (Some(now), Some(saved)) if now.abs_diff(saved) <= STALE)
    }

    /// What is kept of pairs of these two revisions, in the order in which they ran.
    pub(crate) fn receipts_of(&self, a: usize, b: usize) -> Vec<[(usize, &str); 2]> {
        let mut pairs = Vec::new();
        let mut first: Option<(usize, usize)> = None;
        let mut number = 0;
        for event in &self.record.events {
            let Event::Ran(revision, _) = event else {
                // Only a revision of the pair that was begun is ever left out.
                first = None;
                continue;
            };
            let this = (*revision, number);
            number += 1;
            let Some(other) = first.take() else {
                first = Some(this);
                continue;
            };
            let receipt = |number| self.receipts.get(&number).map(String::as_str);
            let is_it = (other.0.min(this.0), other.0.max(this.0)) == (a, b);
            if let (true, Some(one), Some(two)) = (is_it, receipt(other.1), receipt(this.1)) {
                pairs.push([(other.0, one), (this.0, two)]);
            }
        }
        pairs
    }
}

/// Holds the folder, so that no two searches write to it.
pub(crate) fn lock(work: &Path) -> Result<File> {
    fs::create_dir_all(work).with_context(|| work.display().to_string())?;
    let path = work.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("a search runs in {} already: name another folder with --work", work.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
    }
}
