//! A few worktrees, each with the build of a revision.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brickscope_analysis::bisect::short;

use super::git::Repo;
use super::measure::{said_in, shell};
use crate::interrupt;
use crate::text::printable_text;

/// Where the good revision is.
const GOOD: usize = 0;

/// The worktrees: one for the good revision, and some for others, of which the one that wasn't used for longest is taken
/// for the next. All are in folders with names of one length, since even the length of a path can change how fast a
/// program is (Mytkowicz et al., "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009).
#[derive(Debug)]
pub(crate) struct Trees<'t> {
    repo: &'t Repo,
    work: PathBuf,
    build: Option<&'t str>,
    is_fresh: bool,
    /// Which revision each has, with its build.
    built: Vec<Option<usize>>,
    used: HashMap<usize, u64>,
    uses: u64,
}

/// Where a revision is, or why it can't be built.
#[derive(Debug)]
pub(crate) enum Built {
    /// It was there already.
    Here(PathBuf),
    /// It is there now.
    New(PathBuf),
    /// Why not.
    Failed(String),
    /// Somebody asked to stop.
    Interrupted,
}

impl<'t> Trees<'t> {
    /// In the folder `work`, at most `most` of them.
    pub(crate) fn new(
        repo: &'t Repo,
        work: &Path,
        build: Option<&'t str>,
        is_fresh: bool,
        most: usize,
    ) -> Self {
        let built = vec![None; most];
        let work = work.to_owned();
        Self { repo, work, build, is_fresh, built, used: HashMap::new(), uses: 0 }
    }

    fn folder(&self, slot: usize) -> PathBuf {
        self.work.join("trees").join(format!("{slot:02}"))
    }

    /// What says which commit a tree has, once it is built.
    fn mark(&self, slot: usize) -> PathBuf {
        self.work.join("trees").join(format!("{slot:02}.built"))
    }

    /// Takes what an earlier process has built.
    pub(crate) fn find(&mut self, revisions: &[String]) {
        for slot in 0..self.built.len() {
            let hash = fs::read_to_string(self.mark(slot)).unwrap_or_default();
            let known = revisions.iter().position(|revision| *revision == hash.trim());
            self.built[slot] = known.filter(|_| self.folder(slot).join(".git").exists());
        }
    }

    /// Builds a revision, unless it is there. The one `beside` it stays.
    pub(crate) fn build(&mut self, revision: usize, hash: &str, beside: usize) -> Result<Built> {
        self.uses += 1;
        self.used.insert(revision, self.uses);
        if let Some(slot) = self.built.iter().position(|built| *built == Some(revision)) {
            return Ok(Built::Here(self.folder(slot)));
        }
        let slot = self.slot(revision, beside);
        self.built[slot] = None;
        // If this is killed, nobody takes what is there for a build.
        remove_if_there(&self.mark(slot))?;
        let folder = self.folder(slot);
        fs::create_dir_all(self.work.join("trees")).context("the folder of worktrees")?;
        let was_there = folder.join(".git").exists();
        match self.put(&folder, hash, was_there) {
            // Ctrl-C is for git, too, which then fails.
            Err(_) if interrupt::is_asked() => return Ok(Built::Interrupted),
            done => done?,
        }
        let mut failed = self.built_in(&folder, hash)?;
        if failed.is_some() && was_there && !interrupt::is_asked() {
            // It may be what an earlier revision left there.
            Repo::at(&folder)?.clean()?;
            failed = self.built_in(&folder, hash)?;
        }
        if interrupt::is_asked() {
            return Ok(Built::Interrupted);
        }
        if let Some(why) = failed {
            return Ok(Built::Failed(why));
        }
        fs::write(self.mark(slot), hash).context("the mark of a build")?;
        self.built[slot] = Some(revision);
        Ok(Built::New(folder))
    }

    /// Puts a commit into a folder, which may have another one.
    fn put(&self, folder: &Path, hash: &str, was_there: bool) -> Result<()> {
        if was_there {
            let tree = Repo::at(folder)?;
            if self.is_fresh {
                tree.clean()?;
            }
            return tree.check_out(hash);
        }
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        self.repo.add_worktree(folder, hash)?;
        Repo::at(folder)?.check_out(hash)
    }

    fn slot(&self, revision: usize, beside: usize) -> usize {
        if revision == 0 {
            return GOOD;
        }
        let age = |slot: &usize| {
            self.built[*slot].map_or(0, |revision| self.used.get(&revision).copied().unwrap_or(1))
        };
        let others = (GOOD + 1..self.built.len()).filter(|slot| self.built[*slot] != Some(beside));
        others.min_by_key(age).unwrap_or(GOOD + 1)
    }

    /// Runs the build command; says why it failed, if it did.
    fn built_in(&self, folder: &Path, hash: &str) -> Result<Option<String>> {
        let Some(build) = self.build else { return Ok(None) };
        tell!("building {}", short(hash));
        let log = self.work.join("build.log");
        let open = || File::create(&log).with_context(|| log.display().to_string());
        let file = open()?;
        let mut command = shell(build, folder, hash);
        command.stdout(file.try_clone().context("the log")?).stderr(file);
        let status = command.status().context("can't start sh")?;
        if status.success() {
            return Ok(None);
        }
        let kept = self.work.join(format!("build-{}.log", short(hash)));
        let _ = fs::rename(&log, &kept);
        Ok(Some(format!(
            "its build failed ({status}):\n{}\nall it said: {}",
            said_in(&kept),
            printable_text(&kept.display().to_string())
        )))
    }

    /// Removes all worktrees.
    pub(crate) fn remove(&mut self) -> Result<()> {
        for slot in 0..self.built.len() {
            remove_if_there(&self.mark(slot))?;
            let folder = self.folder(slot);
            if folder.exists() {
                self.repo.remove_worktree(&folder)?;
            }
        }
        let _ = fs::remove_dir(self.work.join("trees"));
        Ok(())
    }
}

pub(super) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}
