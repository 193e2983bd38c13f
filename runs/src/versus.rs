//! What `versus` notes beside the runs that it keeps, so that `compare` says of them what it said, and measures nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use brickscope_analysis::view::Circumstances;
use brickscope_profile::text::{printable_in, printable_text};
use serde::{Deserialize, Serialize};

use crate::files::{self, VERSUS};

/// The most bytes of the file: two commands, and a little for each pair.
const MOST_BYTES: u64 = 256 << 10;

/// The most characters of a text in it, such as a command.
const MOST_OF_A_TEXT: usize = 100_000;

/// What is known of one of the two folders of runs that were measured in turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// What both folders have in common, and no others.
    pub id: String,
    /// Whether this one has the runs of A.
    pub is_a: bool,
    /// When it began, in RFC 3339: of one `versus` both are as old.
    pub created: String,
    /// Of each pair, whether A ran first. Run `n` of either folder is of pair `n - 1`.
    pub a_first: Vec<bool>,
    /// The pairs that were compared.
    pub chosen: Vec<usize>,
    /// How often they had been compared by then, which decides how sure a verdict has to be.
    pub look: u32,
    /// The smallest change that matters.
    pub threshold: f64,
    /// How the commands ran; the commands are without secrets.
    pub ran: Circumstances,
}

impl Turns {
    /// That of a folder of runs; `None` if `versus` didn't write it, or if it can't be read.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Self> {
        let bytes = files::small(&folder.join(VERSUS), MOST_BYTES)?;
        let turns: Self = serde_json::from_slice(&bytes).ok()?;
        // Each pair is read once.
        let is_whole = turns.chosen.is_sorted_by(|a, b| a < b)
            && turns.chosen.last().is_some_and(|pair| *pair < turns.a_first.len());
        is_whole.then(|| turns.printable())
    }

    /// The same, where no text breaks a line or controls a terminal.
    #[must_use]
    pub fn printable(mut self) -> Self {
        let Circumstances { commands, engines, machine, notes, .. } = &mut self.ran;
        let known = engines.iter_mut().flatten().chain(machine);
        for text in commands.iter_mut().chain(notes).chain(known) {
            *text = printable_in(text, MOST_OF_A_TEXT);
        }
        self
    }

    /// What both folders of one `versus` know, that of side A first, whichever of them is which; `None` of any other two.
    #[must_use]
    pub fn of_both(folders: [&Path; 2]) -> Option<[Self; 2]> {
        let [Some(first), Some(second)] = folders.map(Self::of) else { return None };
        let is_one = first.id == second.id && first.is_a != second.is_a;
        // Each has all of it.
        let is_alike = first.a_first == second.a_first && first.chosen == second.chosen;
        (is_one && is_alike).then_some([first, second])
    }

    /// Notes it in the folder of the runs.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn keep(&self, folder: &Path) -> Result<()> {
        let shown = || printable_text(&folder.to_string_lossy());
        files::put(folder, VERSUS, &serde_json::to_vec(self)?).with_context(shown)
    }

    /// When the runs in a folder were begun with those of the other side.
    pub(crate) fn created(folder: &Path) -> Option<String> {
        // Most sets have none.
        fs::symlink_metadata(folder.join(VERSUS)).ok()?;
        Some(Self::of(folder)?.created)
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{ClockInfo, Profile};

    use super::*;
    use crate::{Budget, find, list, remove, summary};

    fn turns(id: &str, is_a: bool) -> Turns {
        Turns {
            id: id.to_owned(),
            is_a,
            created: "2026-11-29T12:00:00Z".to_owned(),
            a_first: vec![false],
            chosen: vec![0],
            look: 1,
            threshold: 0.03,
            ran: Circumstances::default(),
        }
    }

    /// A folder with one run of a side, made in this second.
    fn side(folder: &Path, second: u32, turns: &Turns) {
        let run = folder.join("1");
        fs::create_dir_all(&run).expect("a folder");
        let mut profile = Profile::empty(ClockInfo::default());
        profile.created = format!("2026-11-29T12:00:{second:02}Z");
        summary::save(&profile, &run).expect("there is room");
        turns.keep(folder).expect("there is room");
    }

    #[test]
    fn both_folders_are_listed_found_and_removed_and_b_is_the_newer() {
        let home = tempfile::tempdir().expect("a folder");
        let [a, b] = ["20261129-120000", "20261129-120000-2"].map(|name| home.path().join(name));
        // B ran first.
        side(&a, 5, &turns("x", true));
        side(&b, 3, &turns("x", false));
        let names: Vec<_> = list(home.path(), Budget::NONE).expect("a folder").rows;
        assert_eq!(names.iter().map(|row| &row.path).collect::<Vec<_>>(), [&b, &a]);
        for (word, path) in [("@", &b), ("@-1", &a)] {
            assert_eq!(&find(Path::new(word), home.path()).expect("a run").path, path);
        }
        let both = Turns::of_both([&a, &b]).expect("they are of one");
        assert!(both[0].is_a && !both[1].is_a);
        assert!(!Turns::of_both([&b, &a]).expect("they are of one")[0].is_a);
        assert_eq!(Turns::of_both([&a, &a]), None);
        turns("y", false).keep(&b).expect("there is room");
        assert_eq!(Turns::of_both([&a, &b]), None);
        for folder in [a, b] {
            remove(&folder).expect("it is removed");
            assert!(!folder.exists());
        }
    }

    #[test]
    fn what_is_no_such_note_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Turns::of(folder.path()), None);
        let mut outside = turns("x", true);
        outside.chosen = vec![0, 1];
        outside.keep(folder.path()).expect("there is room");
        assert_eq!(Turns::of(folder.path()), None, "there is no such pair");
        let mut twice = turns("x", true);
        twice.chosen = vec![0, 0];
        twice.keep(folder.path()).expect("there is room");
        assert_eq!(Turns::of(folder.path()), None, "one pair counts once");
        fs::write(folder.path().join(VERSUS), "{").expect("there is room");
        assert_eq!(Turns::of(folder.path()), None);
        let mut forged = turns("x", true);
        forged.ran.notes = vec!["a\nb\u{1b}[2J".to_owned()];
        forged.keep(folder.path()).expect("there is room");
        let notes = Turns::of(folder.path()).expect("it is one").ran.notes;
        assert!(!notes[0].contains(['\n', '\u{1b}']), "{notes:?}");
    }
}
