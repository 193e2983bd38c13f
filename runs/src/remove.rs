//! Removing runs. Only files that brickscope writes are removed, by their names, and folders that are empty then: what else lies
//! in a run's folder stays, and what links lead to stays, too.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use brickscope_profile::text::printable_text;

use crate::files::{MAIN, foreign, is_ours, is_part, is_run, remove_file};
use crate::list::Row;
use crate::writing::Alone;

/// What removing a run would remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The run's folder.
    pub folder: PathBuf,
    /// Its files. Those that make the folder a run's come last, so that a removal that is interrupted can be done again.
    pub files: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
    /// The folders of its parts.
    parts: Vec<PathBuf>,
    /// What brickscope didn't write, and stays.
    pub others: Vec<OsString>,
}

/// The error that a folder looks like a run's, and a file in it is another program's.
#[derive(Debug)]
pub struct NotOurs {
    /// The file.
    pub file: PathBuf,
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = printable_text(&self.file.to_string_lossy());
        write!(f, "{file} isn't a file that brickscope wrote")
    }
}

impl Error for NotOurs {}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// The bytes of its files.
    pub bytes: u64,
    /// What is left in the run's folder, since brickscope didn't write it.
    pub others: Vec<OsString>,
}

/// What is in the folder of a run.
///
/// # Errors
///
/// If it isn't a run's folder, or a link to one, or can't be read; [`NotOurs`] if it only looks like a run's.
pub fn contents(run: &Path) -> Result<Contents> {
    let shown = || printable_text(&run.to_string_lossy());
    // Without a `/` at the end, which would follow a link; and `.` has no name.
    let mut folder: PathBuf = run.components().collect();
    if folder.file_name().is_none() {
        folder = fs::canonicalize(run).with_context(shown)?;
    }
    let found = fs::symlink_metadata(&folder).with_context(shown)?;
    ensure!(!found.is_symlink(), "{} is a link: name the folder that it leads to", shown());
    ensure!(found.is_dir(), "{} is a file: name the folder of a run", shown());
    ensure!(
        is_run(&folder),
        "{} is not the folder of a run: there is no {} in it",
        shown(),
        MAIN.join(" and no ")
    );
    if let Some(name) = foreign(&folder).with_context(shown)? {
        return Err(NotOurs { file: folder.join(name) }.into());
    }
    let mut contents = Contents { folder: folder.clone(), ..Contents::default() };
    add(&folder, true, &mut contents).with_context(shown)?;
    // A folder of runs of which one has a number for a name isn't a set.
    let is_set = !MAIN.iter().any(|file| folder.join(file).is_file());
    let mut others = contents.others.iter().filter(|_| is_set);
    if let Some(other) = others.find(|other| is_run(&folder.join(other))) {
        let other = printable_text(&other.to_string_lossy());
        bail!("{} holds runs that aren't of one set, such as {other}: name them", shown());
    }
    let is_main = |file: &PathBuf| file.file_name().is_some_and(|name| is_one_of(name, &MAIN));
    contents.files.sort();
    contents.files.sort_by_key(is_main);
    contents.parts.sort();
    contents.others.sort();
    Ok(contents)
}

fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|of| name == *of)
}

/// Adds what is in a folder, and with `deep` in those of its parts.
fn add(folder: &Path, deep: bool, contents: &mut Contents) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let is_part_of_it = kind.is_dir() && deep && is_part(&name) && is_run(&entry.path());
        if is_part_of_it && foreign(&entry.path())?.is_none() {
            add(&entry.path(), false, contents)?;
            contents.parts.push(entry.path());
        } else if !kind.is_dir() && is_ours(&name) {
            contents.bytes = contents.bytes.saturating_add(entry.metadata()?.len());
            contents.files.push(entry.path());
        } else {
            let path = entry.path();
            let within = path.strip_prefix(&contents.folder).unwrap_or(&path);
            contents.others.push(within.as_os_str().to_owned());
        }
    }
    Ok(())
}

/// Removes a run.
///
/// # Errors
///
/// As [`contents`]; if it is being written; if a file can't be removed.
pub fn remove(run: &Path) -> Result<Removed> {
    let Contents { folder, parts, .. } = contents(run)?;
    let parts: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
    let alone = Alone::with(&folder, &parts)?;
    // As it is now that nobody writes to it.
    let Contents { files, bytes, parts, others, .. } = contents(&folder)?;
    for file in &files {
        remove_file(file).with_context(|| printable_text(&file.to_string_lossy()))?;
    }
    for part in &parts {
        // One with anything else in it stays.
        let _ = fs::remove_dir(part);
    }
    if others.is_empty() {
        let removed = fs::remove_dir(&folder);
        // Somebody may have put a file there meanwhile, and it stays.
        if let Err(error) = removed
            && !matches!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty)
        {
            bail!("{}: {error}", printable_text(&folder.to_string_lossy()));
        }
    }
    drop(alone);
    Ok(Removed { bytes, others })
}

/// Of runs with the newest first, those to remove if only the newest `keep` are to stay. Runs with a tag stay, too.
#[must_use]
pub fn old(rows: &[Row], keep: usize) -> Vec<&Row> {
    rows.iter().skip(keep).filter(|row| !row.is_tagged).collect()
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Profile};

    use super::*;
    use crate::files::{PROFILE, RECEIPT};
    use crate::folder::RunDir;
    use crate::list::{Budget, list};
    use crate::{summary, tag};

    const RECEIPTS_BEGIN: &str = "{\"schema_version\": \"1.0.0\", \"compute_path\": \"real\"";

    fn save(run: &Path) {
        fs::create_dir_all(run).expect("a folder");
        summary::save(&Profile::empty(ClockInfo::default()), run).expect("there is room");
    }

    fn refused(run: &Path) -> String {
        format!("{:#}", remove(run).expect_err("it is refused"))
    }

    #[test]
    fn a_run_is_removed_with_its_parts() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path().join("run");
        save(&run);
        save(&run.join("context-2"));
        fs::write(run.join("report.html"), "123").expect("there is room");
        fs::write(run.join(".profile.json.1-0.partial"), "{").expect("there is room");
        tag::set(&run, "best").expect("there is room");
        let found = contents(&run).expect("a run");
        assert_eq!(found.files.len(), 7);
        // What makes it a run goes last.
        assert_eq!(found.files.last(), Some(&run.join(PROFILE)));
        assert_eq!(remove(&run).expect("it is removed").bytes, found.bytes);
        assert!(!run.exists() && folder.path().exists());
        // A set, and one process of another.
        for run in ["set/1", "set/2", "other/1", "other/2"] {
            let run = folder.path().join(run);
            fs::create_dir_all(&run).expect("a folder");
            fs::write(run.join(RECEIPT), RECEIPTS_BEGIN).expect("there is room");
        }
        remove(&folder.path().join("set")).expect("it is removed");
        remove(&folder.path().join("other/2")).expect("it is removed");
        assert!(!folder.path().join("set").exists());
        assert!(folder.path().join("other/1").join(RECEIPT).exists());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path().join("run");
        save(&run);
        save(&run.join("nested"));
        fs::create_dir(run.join("3")).expect("a folder");
        fs::write(run.join("notes.md"), "mine").expect("there is room");
        let removed = remove(&run).expect("it is removed");
        assert_eq!(removed.others, ["3", "nested", "notes.md"]);
        assert!(!run.join(PROFILE).exists() && run.join("nested").join(PROFILE).exists());
        assert_eq!(fs::read(run.join("notes.md")).expect("it is there"), b"mine");
        // It is none any more.
        assert!(refused(&run).contains("is not the folder of a run"), "{}", refused(&run));
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).expect("a folder");
        assert!(refused(&empty).contains("is not the folder of a run: there is no profile.json"));
        assert!(empty.exists());
        let run = folder.path().join("run");
        save(&run);
        assert!(refused(&run.join(PROFILE)).ends_with("is a file: name the folder of a run"));
        refused(&folder.path().join("gone"));
        // A folder of runs is none.
        assert!(refused(folder.path()).contains("is not the folder of a run"));
        assert!(run.join(PROFILE).exists());
    }

    #[test]
    fn what_only_looks_like_a_run_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in MAIN {
            let other = folder.path().join("other");
            fs::create_dir_all(&other).expect("a folder");
            for file in [name, "report.html", "metrics.prom"] {
                fs::write(other.join(file), "{\"name\": \"mine\"}").expect("there is room");
            }
            assert!(refused(&other).ends_with("isn't a file that brickscope wrote"), "{name}");
            assert!(remove(&other).is_err_and(|error| error.is::<NotOurs>()), "{name}");
            assert_eq!(fs::read_dir(&other).expect("a folder").count(), 3, "{name}");
            fs::remove_dir_all(&other).expect("it is ours");
        }
        // A folder in that of a run, or of a set.
        let run = folder.path().join("run");
        save(&run);
        let part = run.join("1");
        fs::create_dir(&part).expect("a folder");
        fs::write(part.join(PROFILE), "{}").expect("there is room");
        assert_eq!(remove(&run).expect("it is removed").others, ["1"]);
        assert!(part.join(PROFILE).exists());
    }

    #[test]
    fn a_folder_of_runs_of_which_one_has_a_number_for_a_name_is_no_set() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["1", "2", "main"] {
            save(&folder.path().join(name));
        }
        assert!(refused(folder.path()).contains("aren't of one set, such as main: name them"));
        for name in ["1", "2", "main"] {
            assert!(folder.path().join(name).join(PROFILE).exists(), "{name}");
        }
        remove(&folder.path().join("1")).expect("it is removed");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_that_a_link_leads_to_is_removed() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().expect("a folder");
        let (run, other) = (folder.path().join("run"), folder.path().join("other"));
        save(&run);
        save(&other);
        let link = folder.path().join("link");
        symlink(&other, &link).expect("a link");
        for link in [link.clone(), folder.path().join("link/"), folder.path().join("link/.")] {
            assert!(refused(&link).contains("is a link"), "{}", link.display());
        }
        // A part and a file that are links.
        symlink(&other, run.join("1")).expect("a link");
        symlink(other.join(PROFILE), run.join("report.html")).expect("a link");
        let removed = remove(&run).expect("it is removed");
        assert_eq!(removed.others, ["1"]);
        assert!(!run.join("report.html").is_symlink());
        assert!(other.join(PROFILE).exists());
    }

    #[test]
    fn a_run_that_is_being_written_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = folder.path().join("set");
        let dir = RunDir::create(Some(&set), "").expect("it can be written to");
        save(&set.join("1"));
        for run in [set.clone(), set.join("1")] {
            assert!(refused(&run).ends_with("a run is being written to it"), "{}", refused(&run));
        }
        assert!(set.join("1").join(PROFILE).exists());
        drop(dir);
        remove(&set).expect("nobody writes to it");
    }

    #[test]
    fn of_old_runs_those_with_a_tag_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["1a", "2a", "3a", "4a", "5a"] {
            let run = folder.path().join(name);
            fs::create_dir(&run).expect("a folder");
            let mut profile = Profile::empty(ClockInfo::default());
            profile.created = format!("2026-11-29T12:00:0{}Z", &name[..1]);
            summary::save(&profile, &run).expect("there is room");
        }
        tag::set(&folder.path().join("2a"), "best").expect("there is room");
        // A tag that nobody can read is one.
        fs::write(folder.path().join("1a/.tag"), "a b").expect("there is room");
        let found = list(folder.path(), Budget::NONE).expect("a folder");
        let names = |keep| -> Vec<&OsStr> {
            old(&found.rows, keep).into_iter().map(|row| row.name.as_os_str()).collect()
        };
        assert_eq!(names(1), ["4a", "3a"]);
        assert_eq!(names(0), ["5a", "4a", "3a"]);
        assert_eq!(names(3), [""; 0]);
    }
}
