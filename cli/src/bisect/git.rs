//! The repository: its commits, and worktrees of them. The user's checkout is never touched.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::bisect::{Commit, short};

use crate::child::{End, end_with_parent};
use crate::family;
use crate::text::printable_text;

/// A repository.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    dir: PathBuf,
}

/// Variables that would send git elsewhere, as in a hook.
const ELSEWHERE: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
];

/// Makes a command find the repository of its own folder.
pub(crate) fn unset(command: &mut Command) {
    ELSEWHERE.into_iter().for_each(|name| {
        command.env_remove(name);
    });
}

impl Repo {
    pub(crate) fn at(dir: &Path) -> Result<Self> {
        ensure!(dir.is_dir(), "--repo {}: there is no such folder", dir.display());
        let repo = Self { dir: dir.to_owned() };
        repo.said(["rev-parse", "--git-dir"])
            .with_context(|| format!("{} is no git repository", dir.display()))?;
        Ok(repo)
    }

    fn git<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Result<Output> {
        let mut command = Command::new("git");
        unset(&mut command);
        family::untie(&mut command);
        // A hook, such as one after a checkout, is for the user's work.
        command.arg("-C").arg(&self.dir).args(["-c", "core.hooksPath=/dev/null"]).args(words);
        // It goes with this process, so that the next one finds nobody at work. Asked to, it removes its locks.
        end_with_parent(&mut command, End::Ask);
        command.stdin(Stdio::null()).output().context("can't start git: is it installed?")
    }

    /// What git prints on success.
    fn said<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Result<String> {
        let output = self.git(words)?;
        if !output.status.success() {
            let why = printable_text(String::from_utf8_lossy(&output.stderr).trim());
            bail!("git: {}", if why.is_empty() { output.status.to_string() } else { why });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// The hash of a commit, by any name that git knows.
    pub(crate) fn hash(&self, flag: &str, name: &str) -> Result<String> {
        let commit = format!("{name}^{{commit}}");
        self.said(["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
            .ok()
            .filter(|hash| is_hash(hash))
            .with_context(|| format!("{flag} {}: git knows no such commit", printable_text(name)))
    }

    /// The commits after `good` up to `bad`, the oldest first, with `good` before them.
    ///
    /// Only first parents: in other orders a commit may come after one that it doesn't have in it.
    pub(crate) fn between(&self, good: &str, bad: &str) -> Result<Vec<String>> {
        ensure!(good != bad, "--good and --bad are the same commit, {}", short(good));
        let is_ancestor = |of: &str, to: &str| -> Result<bool> {
            Ok(self.git(["merge-base", "--is-ancestor", of, to])?.status.success())
        };
        let is_before = is_ancestor(good, bad)?;
        ensure!(
            is_before || !is_ancestor(bad, good)?,
            "{} (--good) comes after {} (--bad): they are the other way around",
            short(good),
            short(bad)
        );
        ensure!(
            is_before,
            "{} (--good) is not an ancestor of {} (--bad): name one that is, such as `git merge-base` of the two",
            short(good),
            short(bad)
        );
        let range = format!("{good}..{bad}");
        let listed = self.said(["rev-list", "--reverse", "--first-parent", &range])?;
        let mut commits = vec![good.to_owned()];
        commits.extend(listed.lines().filter(|line| is_hash(line)).map(str::to_owned));
        ensure!(
            commits.len() > 1 && commits.last().is_some_and(|last| last == bad),
            "git lists no commits from {} to {}",
            short(good),
            short(bad)
        );
        Ok(commits)
    }

    pub(crate) fn commit(&self, hash: &str) -> Result<Commit> {
        let format = "--format=%H%x00%s%x00%an <%ae>%x00%cI";
        let said = self.said(["log", "-1", "--no-show-signature", format, hash, "--"])?;
        let mut parts = said.split('\0').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        Ok(Commit { hash: part(), subject: part(), author: part(), date: part() })
    }

    /// The folder that all worktrees of the repository share, usually `.git`.
    pub(crate) fn common_dir(&self) -> Result<PathBuf> {
        let said = self.said(["rev-parse", "--git-common-dir"])?;
        let dir = self.dir.join(said);
        std::fs::canonicalize(&dir).with_context(|| dir.display().to_string())
    }

    /// Makes a new worktree of a commit, without a branch.
    pub(crate) fn add_worktree(&self, at: &Path, hash: &str) -> Result<()> {
        // `--force`: one whose folder somebody removed is still listed.
        let words = ["worktree", "add", "--quiet", "--force", "--detach"].map(OsStr::new);
        let words = words.into_iter().chain([at.as_os_str(), OsStr::new(hash)]);
        self.said(words).map(drop).with_context(|| format!("a worktree of {}", short(hash)))
    }

    pub(crate) fn remove_worktree(&self, at: &Path) -> Result<()> {
        let words = ["worktree", "remove", "--force", "--force"].map(OsStr::new);
        let removed = self.said(words.into_iter().chain([at.as_os_str()]));
        if removed.is_err() && at.exists() {
            std::fs::remove_dir_all(at).with_context(|| at.display().to_string())?;
        }
        Ok(())
    }

    /// Puts another commit into a worktree of ours. What was built there stays, so that little has to be built anew.
    pub(crate) fn check_out(&self, hash: &str) -> Result<()> {
        let own = self.dir.join(self.said(["rev-parse", "--git-dir"])?);
        unlock(&own).with_context(|| own.display().to_string())?;
        let words = ["checkout", "--quiet", "--force", "--detach", hash, "--"];
        self.said(words).map(drop).with_context(|| format!("a checkout of {}", short(hash)))?;
        self.check_out_submodules().context("its submodules")
    }

    /// What `git submodule update --init --recursive` does, which writes where submodules come from into the configuration of
    /// the user's repository. Theirs is taken where it is there.
    fn check_out_submodules(&self) -> Result<()> {
        if !self.dir.join(".gitmodules").is_file() {
            return Ok(());
        }
        let paths = self.said([
            "config",
            "--file",
            ".gitmodules",
            "--null",
            "--get-regexp",
            "^submodule\\..*\\.path$",
        ])?;
        let pairs = paths.split('\0').filter_map(|pair| pair.split_once('\n'));
        for (key, path) in pairs {
            let name = key.strip_suffix(".path").unwrap_or(key);
            let (url_key, active) = (format!("{name}.url"), format!("{name}.active=true"));
            let mut words = vec!["-c".to_owned(), active];
            if !self.git(["config", "--get", &url_key])?.status.success() {
                let url = self.said(["config", "--file", ".gitmodules", "--get", &url_key])?;
                words.extend(["-c".to_owned(), format!("{url_key}={}", self.resolved(&url)?)]);
            }
            let update = ["submodule", "update", "--quiet", "--force", "--", path];
            self.said(words.into_iter().chain(update.map(str::to_owned)))?;
            let folder = self.dir.join(path);
            // Those in it are in the configuration of the copy, which is ours.
            if folder.join(".gitmodules").is_file() {
                let nested = Self { dir: folder };
                nested.said([
                    "submodule",
                    "update",
                    "--quiet",
                    "--init",
                    "--recursive",
                    "--force",
                ])?;
            }
        }
        Ok(())
    }

    /// Where a submodule is: a relative address is beside where the repository came from, or else beside the repository.
    fn resolved(&self, url: &str) -> Result<String> {
        if !url.starts_with("./") && !url.starts_with("../") {
            return Ok(url.to_owned());
        }
        let remote = self.said(["config", "--get", "remote.origin.url"]);
        let base = match remote {
            Ok(remote) => remote,
            Err(_) => {
                let common = self.common_dir()?;
                let base = common.parent().filter(|_| common.ends_with(".git")).unwrap_or(&common);
                base.to_string_lossy().into_owned()
            }
        };
        let (mut base, mut rest) = (base.trim_end_matches('/'), url);
        loop {
            if let Some(more) = rest.strip_prefix("./") {
                rest = more;
            } else if let Some(more) = rest.strip_prefix("../") {
                let end = base.rfind(['/', ':']).with_context(|| format!("{url} leads nowhere"))?;
                // Behind a colon of `host:path` comes no slash.
                base = &base[..end + usize::from(base.as_bytes()[end] == b':')];
                rest = more;
            } else {
                let between = if base.ends_with(':') { "" } else { "/" };
                return Ok(format!("{base}{between}{rest}"));
            }
        }
    }

    /// Removes all that isn't of the commit.
    pub(crate) fn clean(&self) -> Result<()> {
        self.said(["clean", "-ffdxq"]).map(drop)
    }
}

/// Removes what a git that was killed has left in the folder of a worktree of ours, in which nobody else is at work.
fn unlock(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unlock(&entry.path())?;
        } else if entry.path().extension().is_some_and(|extension| extension == "lock") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_address_is_beside_where_the_repository_came_from() {
        let folder = tempfile::tempdir().expect("a folder");
        let repo = Repo { dir: folder.path().join("engine") };
        std::fs::create_dir(&repo.dir).expect("made");
        repo.said(["init", "--quiet"]).expect("git");
        let beside = std::fs::canonicalize(folder.path()).expect("a path").join("ggml");
        assert_eq!(Path::new(&repo.resolved("../ggml").expect("a path")), beside);
        for (remote, url, resolved) in [
            ("https://host/group/engine.git", "../ggml.git", "https://host/group/ggml.git"),
            ("https://host/group/engine/", "../../a/b", "https://host/a/b"),
            ("git@host:group/engine", "../ggml", "git@host:group/ggml"),
            ("git@host:engine", "../ggml", "git@host:ggml"),
            ("/srv/engine", "./ggml", "/srv/engine/ggml"),
            ("/srv/engine", "https://host/ggml", "https://host/ggml"),
        ] {
            repo.said(["config", "remote.origin.url", remote]).expect("git");
            assert_eq!(repo.resolved(url).expect("an address"), resolved, "{remote} {url}");
        }
    }
}
