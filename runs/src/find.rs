//! Which run a word names. Every command asks here, so that a word means the same to all of them.
//!
//! In this order: a path that exists; `@`, the newest run, and `@-1`, `@-2` … those before it; a tag; the name of a run; the
//! beginning of the name of one run. What is none of these is taken for a path, and whoever reads it says that it isn't there.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use brickscope_profile::text::printable;

use crate::list::{Budget, Row, list};

/// A run that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its folder, or the path that was named.
    pub path: PathBuf,
    /// What it was named by.
    pub by: By,
}

/// What a run was named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Its path.
    Path,
    /// Its place among the newest.
    Place,
    /// Its tag.
    Tag,
    /// Its name, or the beginning of it.
    Name,
}

/// The run that `word` names. What isn't a path is looked for among the runs in `folder`.
///
/// # Errors
///
/// If the word could be any of several runs, or there are not as many as it says.
pub fn find(word: &Path, folder: &Path) -> Result<Found> {
    let found = |path: &Path, by| Ok(Found { path: path.to_owned(), by });
    let is_path = word.as_os_str().as_encoded_bytes().contains(&b'/');
    if word.as_os_str().is_empty() || is_path || fs::symlink_metadata(word).is_ok() {
        return found(word, By::Path);
    }
    let place = place(word.as_os_str());
    let rows = match list(folder, Budget::NONE) {
        Ok(list) => list.rows,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // What is none of them may still be a path that can't be read.
        Err(_) if place.is_none() => Vec::new(),
        Err(error) => return Err(anyhow!("{}: {error}", folder.display())),
    };
    if let Some(nth) = place {
        return match rows.get(nth) {
            Some(row) => found(&row.path, By::Place),
            None => Err(no_such_place(word, rows.len(), folder)),
        };
    }
    let names: Vec<Named<'_>> = rows.iter().map(Named::of).collect();
    match choose(word.as_os_str(), &names) {
        Choice::Nothing => found(word, By::Path),
        Choice::One(nth, by) => found(&rows[nth].path, by),
        Choice::Several(all, by) => {
            let names: Vec<String> = all.iter().map(|&nth| shown(&rows[nth].name)).collect();
            let (word, folder) = (shown(word.as_os_str()), folder.display());
            match by {
                By::Tag => bail!(
                    "{} runs in {folder} have the tag `{word}`: {}; name one by its path",
                    names.len(),
                    listed(&names)
                ),
                _ => bail!(
                    "`{word}` could be any of {} runs in {folder}: {}; write more of the name",
                    names.len(),
                    listed(&names)
                ),
            }
        }
    }
}

/// The newest run in `folder`; `None` if there is none.
///
/// # Errors
///
/// If the folder can't be read.
pub fn newest(folder: &Path) -> Result<Option<PathBuf>> {
    match list(folder, Budget::NONE) {
        Ok(list) => Ok(list.rows.into_iter().next().map(|row| row.path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!("{}: {error}", folder.display())),
    }
}

/// How many runs are newer, if a word says that: `@`, `@-1`.
fn place(word: &OsStr) -> Option<usize> {
    let rest = word.to_str()?.strip_prefix('@')?;
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // More than there are of anything.
    is_number.then(|| digits.parse().unwrap_or(usize::MAX))
}

fn no_such_place(word: &Path, runs: usize, folder: &Path) -> anyhow::Error {
    let folder = folder.display();
    match runs {
        0 => anyhow!(
            "there is no run in {folder}: `brickscope profile`, `run` or `import` writes one, and names its folder"
        ),
        1 => anyhow!("there is no `{}`: {folder} has one run", shown(word.as_os_str())),
        n => anyhow!("there is no `{}`: {folder} has {n} runs", shown(word.as_os_str())),
    }
}

/// What a run can be named by.
#[derive(Debug, Clone, Copy)]
struct Named<'r> {
    name: &'r OsStr,
    tag: Option<&'r str>,
}

impl<'r> Named<'r> {
    fn of(row: &'r Row) -> Self {
        Self { name: &row.name, tag: row.tag.as_deref() }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Nothing,
    One(usize, By),
    Several(Vec<usize>, By),
}

/// Which of the runs a word names that isn't a path.
fn choose(word: &OsStr, runs: &[Named<'_>]) -> Choice {
    let all = |is: &dyn Fn(&Named<'_>) -> bool| -> Vec<usize> {
        runs.iter().enumerate().filter(|(_, run)| is(run)).map(|(nth, _)| nth).collect()
    };
    let begins = |name: &OsStr| name.as_encoded_bytes().starts_with(word.as_encoded_bytes());
    for (found, by) in [
        (all(&|run| run.tag.is_some_and(|tag| tag == word)), By::Tag),
        (all(&|run| run.name == word), By::Name),
        (all(&|run| begins(run.name)), By::Name),
    ] {
        match found[..] {
            [] => {}
            [one] => return Choice::One(one, by),
            _ => return Choice::Several(found, by),
        }
    }
    Choice::Nothing
}

/// The most names that an error lists.
const MOST_LISTED: usize = 8;

fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(MOST_LISTED)].join(", ");
    match names.len().checked_sub(MOST_LISTED).filter(|&more| more > 0) {
        Some(more) => format!("{first} and {more} more"),
        None => first,
    }
}

fn shown(name: &OsStr) -> String {
    printable(&name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Profile};
    use proptest::prelude::*;

    use super::*;
    use crate::{summary, tag};

    /// Runs with these names, of which the last is the newest.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (second, name) in names.iter().enumerate() {
            let run = folder.path().join(name);
            fs::create_dir(&run).expect("a folder");
            let mut profile = Profile::empty(ClockInfo::default());
            profile.created = format!("2026-11-29T12:00:{second:02}Z");
            summary::save(&profile, &run).expect("there is room");
        }
        folder
    }

    #[track_caller]
    fn named(folder: &Path, word: &str) -> (String, By) {
        let found = find(Path::new(word), folder).expect("it is one");
        let name = found.path.strip_prefix(folder).unwrap_or(&found.path);
        (name.to_str().expect("UTF-8").to_owned(), found.by)
    }

    fn refused(folder: &Path, word: &str) -> String {
        let why = find(Path::new(word), folder).expect_err("it is none").to_string();
        why.replace(&folder.display().to_string(), "FOLDER")
    }

    #[test]
    fn a_run_is_named_by_its_place_its_tag_its_name_and_a_part_of_it() {
        let folder = folder(&["20261128-090000", "20261129-090000", "20261129-090000-2", "main"]);
        let folder = folder.path();
        tag::set(&folder.join("20261128-090000"), "best").expect("there is room");
        let one = |name: &str, by| (name.to_owned(), by);
        for (word, name, by) in [
            ("@", "main", By::Place),
            ("@-0", "main", By::Place),
            ("@-1", "20261129-090000-2", By::Place),
            ("@-3", "20261128-090000", By::Place),
            ("best", "20261128-090000", By::Tag),
            // A whole name, also of one that begins another.
            ("20261129-090000", "20261129-090000", By::Name),
            ("20261129-090000-", "20261129-090000-2", By::Name),
            ("20261128", "20261128-090000", By::Name),
            ("m", "main", By::Name),
            // No run, so a path, which isn't there.
            ("nothing-of-this-name", "nothing-of-this-name", By::Path),
            ("be", "be", By::Path),
            ("@x", "@x", By::Path),
            ("@1", "@1", By::Path),
            ("@-", "@-", By::Path),
            ("./main", "./main", By::Path),
            ("", "", By::Path),
        ] {
            assert_eq!(named(folder, word), one(name, by), "{word}");
        }
        // A path that exists wins over a tag: tests run in the folder of their package.
        tag::set(&folder.join("main"), "src").expect("there is room");
        assert_eq!(named(folder, "src"), one("src", By::Path));
    }

    #[test]
    fn what_could_be_several_runs_is_refused_with_their_names() {
        let names: Vec<String> = (10..20).map(|n| format!("a{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let folder = folder(&names);
        let folder = folder.path();
        assert_eq!(
            refused(folder, "a"),
            "`a` could be any of 10 runs in FOLDER: a19, a18, a17, a16, a15, a14, a13, a12 and 2 more; write more of the \
             name"
        );
        // Folders that were copied have their tags, too.
        for name in ["a10", "a12"] {
            tag::set(&folder.join(name), "copied").expect("there is room");
        }
        assert_eq!(
            refused(folder, "copied"),
            "2 runs in FOLDER have the tag `copied`: a12, a10; name one by its path"
        );
        assert_eq!(refused(folder, "@-10"), "there is no `@-10`: FOLDER has 10 runs");
        let far = format!("@-{}", "9".repeat(30));
        assert!(refused(folder, &far).ends_with("FOLDER has 10 runs"));
        let gone = folder.join("gone");
        assert_eq!(
            refused(&gone, "@"),
            "there is no run in FOLDER: `brickscope profile`, `run` or `import` writes one, and names its folder"
        );
        assert_eq!(newest(&gone).expect("there is no folder"), None);
        assert_eq!(newest(folder).expect("a folder"), Some(folder.join("a19")));
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_no_text_can_be_written_in_part() {
        use std::os::unix::ffi::OsStrExt;

        let folder = folder(&["a"]);
        let name = OsStr::from_bytes(b"x\xff\n\x1b[2J");
        if fs::rename(folder.path().join("a"), folder.path().join(name)).is_err() {
            return;
        }
        for word in [&b"x"[..], b"x\xff", name.as_encoded_bytes()] {
            let found = find(Path::new(OsStr::from_bytes(word)), folder.path()).expect("it is one");
            assert_eq!(found.path, folder.path().join(name));
        }
    }

    /// The rules, one after the other, as a reader of the documentation would apply them.
    fn by_the_rules(word: &str, runs: &[(String, Option<String>)]) -> Choice {
        let (mut tagged, mut called, mut begun) = (Vec::new(), Vec::new(), Vec::new());
        for (nth, (name, tag)) in runs.iter().enumerate() {
            if tag.as_deref() == Some(word) {
                tagged.push(nth);
            }
            if name == word {
                called.push(nth);
            }
            if name.len() >= word.len() && &name.as_bytes()[..word.len()] == word.as_bytes() {
                begun.push(nth);
            }
        }
        if tagged.len() == 1 {
            Choice::One(tagged[0], By::Tag)
        } else if tagged.len() > 1 {
            Choice::Several(tagged, By::Tag)
        } else if called.len() == 1 {
            Choice::One(called[0], By::Name)
        } else if begun.len() == 1 {
            Choice::One(begun[0], By::Name)
        } else if begun.is_empty() {
            Choice::Nothing
        } else {
            Choice::Several(begun, By::Name)
        }
    }

    proptest! {
        #[test]
        fn a_word_names_what_the_rules_say(
            word in "[ab1é]{1,4}",
            runs in prop::collection::btree_map(
                "[ab1é]{1,4}", prop::option::of("[ab1]{1,2}"), 0..12
            ),
        ) {
            let runs: Vec<(String, Option<String>)> = runs.into_iter().collect();
            let names: Vec<Named<'_>> = runs
                .iter()
                .map(|(name, tag)| Named { name: name.as_ref(), tag: tag.as_deref() })
                .collect();
            prop_assert_eq!(choose(word.as_ref(), &names), by_the_rules(&word, &runs));
        }
    }
}
