//! Folders of versions that somebody else built: a script fetches each once.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brickscope_analysis::receipt::sha256_hex;

use super::measure::{said_in, shell};
use super::trees::{Built, remove_if_there};
use crate::interrupt;
use crate::text::{printable, printable_text};

/// A longer name is none that a registry has.
const MOST_OF_NAME: usize = 60;

/// How often a script is tried: a network may fail once.
const TRIES: u32 = 2;

/// Checks the versions of a search, the good one first.
pub(crate) fn check(versions: &[String]) -> Result<()> {
    ensure!(versions.len() > 1, "--versions needs two at least: a good one first, a bad one last");
    let mut seen = HashSet::new();
    for version in versions {
        let is_name = !version.trim().is_empty()
            && version.chars().count() <= MOST_OF_NAME
            && printable(version) == *version;
        ensure!(is_name, "--versions: \"{}\" is no version", printable_text(version));
        ensure!(seen.insert(version), "--versions names {version} twice");
    }
    Ok(())
}

/// The folders, one for each version. They stay for later searches. Their names have one length, as those of worktrees.
#[derive(Debug)]
pub(crate) struct Versions<'t> {
    work: PathBuf,
    script: &'t str,
    fetched: HashSet<String>,
}

impl<'t> Versions<'t> {
    pub(crate) fn new(work: &Path, script: &'t str) -> Self {
        Self { work: work.to_owned(), script, fetched: HashSet::new() }
    }

    /// What a version is fetched by: another script fetches something else.
    fn recipe(&self, version: &str) -> String {
        format!("{version}\n{}\n", self.script)
    }

    /// The name of a version's folder.
    fn name(&self, version: &str) -> String {
        let mut name = sha256_hex(self.recipe(version).as_bytes());
        name.truncate(12);
        name
    }

    /// Fetches a version, unless it is there.
    pub(crate) fn fetch(&mut self, version: &str) -> Result<Built> {
        let name = self.name(version);
        let folder = self.work.join("versions").join(&name);
        if self.fetched.contains(version) {
            return Ok(Built::Here(folder));
        }
        // It is written when the folder is complete.
        let mark = folder.with_extension("fetched");
        let recipe = self.recipe(version);
        let is_there = folder.is_dir() && fs::read_to_string(&mark).is_ok_and(|of| of == recipe);
        if is_there {
            self.fetched.insert(version.to_owned());
            return Ok(Built::Here(folder));
        }
        remove_if_there(&mark)?;
        let mut failed = None;
        for _ in 0..TRIES {
            failed = self.fetched_into(&folder, version)?;
            if interrupt::is_asked() {
                return Ok(Built::Interrupted);
            }
            if failed.is_none() {
                break;
            }
        }
        if let Some(why) = failed {
            return Ok(Built::Failed(why));
        }
        fs::write(&mark, recipe).with_context(|| mark.display().to_string())?;
        self.fetched.insert(version.to_owned());
        Ok(Built::New(folder))
    }

    /// A script that never asks which version it is to fetch fetches one for all.
    fn tell_of_script(&self) {
        let names = ["$1", "${1", "$@", "$*", "BRICKSCOPE_VERSION"];
        if !names.iter().any(|name| self.script.contains(name)) {
            tell!(
                "note: --fetch doesn't name the version, $1: what it runs has to read BRICKSCOPE_VERSION"
            );
        }
    }

    /// Runs the script in a new folder; says why it failed, if it did.
    fn fetched_into(&self, folder: &Path, version: &str) -> Result<Option<String>> {
        let cannot = || folder.display().to_string();
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(cannot)?;
        }
        fs::create_dir_all(folder).with_context(cannot)?;
        if self.fetched.is_empty() {
            self.tell_of_script();
        }
        tell!("fetching {version}");
        let log = folder.with_extension("log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = shell(self.script, folder, version);
        // The first word after a script is its own name, and the next one is `$1`.
        command.args(["sh", version]).env("BRICKSCOPE_VERSION", version);
        command.stdout(file.try_clone().context("the log")?).stderr(file);
        let status = command.status().context("can't start sh")?;
        if status.success() {
            return Ok(None);
        }
        Ok(Some(format!(
            "the script that fetches it failed ({status}):\n{}\nall it said: {}",
            said_in(&log),
            printable_text(&log.display().to_string())
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[&str]) -> Result<()> {
        check(&versions.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn versions_are_names_that_differ() {
        of(&["b6301", "3.14.2", "1.0.0-rc.1+build"]).expect("versions");
        for (versions, why) in [
            (&["b1"][..], "needs two at least"),
            (&["b1", "b2", "b1"], "names b1 twice"),
            (&["b1", ""], "is no version"),
            (&["b1", "b\u{1b}[2"], "is no version"),
        ] {
            let error = of(versions).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn folders_have_names_of_one_length_and_another_script_has_others() {
        let work = Path::new("/nonexistent");
        let [one, other] =
            ["npm pack a@$1", "npm pack b@$1"].map(|script| Versions::new(work, script));
        let names = [one.name("b1"), one.name("3.14.2"), other.name("b1")];
        assert!(names.iter().all(|name| name.len() == 12), "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3, "{names:?}");
    }
}
