//! The folder that the library which is loaded into a program writes to. It is removed once the run is written. Where this
//! program is killed before that, it stays, and the next run names it: a lock on a file in it says whose it still is.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use brickscope::keep::{Limits, When};
use brickscope::load::{self, Limit};
use brickscope::{Absent, Anchor, Clock, MachineDetails, Named};
use brickscope_llama::recording::{Loaded, MOST as MOST_BYTES, Program, Recorded};
use serde::{Deserialize, Serialize};

use super::Library;
use super::followed::Followed;
use crate::text::printable_text;
use crate::{machine_name, private, text};

/// What the library writes at most, in one file.
const MOST: Limit =
    Limit { bytes: MOST_BYTES, instead: "no recording of `brickscope run` is as large" };

/// What it says of itself, in one file.
const MOST_SAID: Limit = Limit { bytes: 1 << 20, instead: "the library says less" };

/// What was to be recorded, in a file of this name.
const MARK: &str = "run.json";
const MOST_OF_MARK: Limit = Limit { bytes: 4 << 20, instead: "no command line is as long" };

/// What a folder of recordings is of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The program, and its arguments.
    pub(crate) command: Vec<String>,
    /// When it began, as RFC 3339 has it.
    pub(crate) created: String,
    /// The processor's counter when it began: times are counts since.
    pub(crate) began: u64,
    /// The system's id for the time since it was started: counters begin anew then.
    pub(crate) boot: Option<String>,
    /// When it began, on the machine's clocks, too.
    #[serde(default)]
    pub(crate) anchor: Option<Anchor>,
    /// The folder that it was started in.
    #[serde(default)]
    pub(crate) started_in: Option<String>,
    /// The machine and the commit: when it is recovered, the environment may name others.
    #[serde(default)]
    pub(crate) named: Option<Named>,
}

impl Mark {
    /// What begins now.
    pub(crate) fn new(command: &[OsString], created: &str, clock: &Clock) -> Self {
        Self {
            command: text::kept(command),
            created: created.to_owned(),
            began: clock.count().unwrap_or(0),
            boot: MachineDetails::read().boot_id,
            anchor: clock.anchor(),
            started_in: env::current_dir().ok().map(|folder| folder.display().to_string()),
            named: machine_name::named(),
        }
    }

    /// When it began, what it ran, and where if that is known.
    pub(crate) fn line(&self) -> String {
        let command = printable_text(&self.command.join(" "));
        let folder = self.started_in.as_deref().map(printable_text);
        let folder = folder.map_or(String::new(), |folder| format!(", in {folder}"));
        format!("{}: {command}{folder}", printable_text(&self.created))
    }

    /// A clock by which the counts of this recording are times.
    ///
    /// # Errors
    ///
    /// If there is none any more.
    pub(crate) fn clock(&self) -> Result<Clock> {
        ensure!(
            self.boot == MachineDetails::read().boot_id,
            "the machine was started anew since, and its counter with it, so the times of the recording are lost"
        );
        Clock::counter_since(self.began).map_err(|Absent { reason }| {
            anyhow!("its times are those of the processor's counter, and {reason}")
        })
    }
}

/// A folder for the files of the library, which is removed with what is in it, unless it is kept.
pub(crate) struct Records {
    path: PathBuf,
    is_kept: bool,
    /// Those that are read while the program runs, if they are.
    followed: Option<Followed>,
    /// Locked as long as this process uses the folder. The system unlocks it, however a process ends.
    _lock: File,
}

impl Records {
    /// A new folder for what is recorded of a command.
    pub(crate) fn create(mark: &Mark) -> Result<Self> {
        let folder = private::temporary()?;
        let cannot = || folder.path().display().to_string();
        let mark = serde_json::to_vec(mark)?;
        // It has its name when it is locked, so that nobody takes it for one that was left.
        let unnamed = folder.path().join("unnamed");
        fs::write(&unnamed, mark).with_context(cannot)?;
        let lock = File::open(&unnamed).with_context(cannot)?;
        // Where the file system has no locks, no later run takes the folder.
        let _ = lock.try_lock();
        fs::rename(&unnamed, folder.path().join(MARK)).with_context(cannot)?;
        Ok(Self { path: folder.keep(), is_kept: false, followed: None, _lock: lock })
    }

    /// The folders that are left of this user's runs which did not come to their end, oldest first. They stay, unless
    /// [removed](Self::remove).
    pub(crate) fn left() -> Vec<(Self, Mark)> {
        let earlier = private::earlier();
        let mut left: Vec<_> = earlier.iter().filter_map(|path| Self::of(path)).collect();
        left.sort_by(|(_, a), (_, b)| a.created.cmp(&b.created));
        left
    }

    /// Takes a folder, if it has recordings and no process uses it.
    fn of(path: &Path) -> Option<(Self, Mark)> {
        let mark = path.join(MARK);
        let lock = File::open(&mark).ok()?;
        lock.try_lock().ok()?;
        let mark = serde_json::from_str(&load::text(&mark, MOST_OF_MARK).ok()?).ok()?;
        Some((Self { path: path.to_owned(), is_kept: true, followed: None, _lock: lock }, mark))
    }

    /// The library that is loaded into the program. `None` if the program does not bear that.
    pub(crate) fn library(line: &[OsString]) -> Result<Option<Library>> {
        if !line.first().is_none_or(|program| Program::of(program).bears_library()) {
            return Ok(None);
        }
        Library::write().map(Some)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on what is written is read, and takes no more room, each time that somebody [looks](Self::look). So many MiB
    /// of it are kept, and whole what `when` is true of.
    pub(crate) fn follow(&mut self, clock: &Clock, mib: u32, when: Option<When>) {
        self.followed = Some(Followed::new(clock.clone(), Limits::of_mib(mib), when));
    }

    /// Reads what was written since, if that is asked for.
    pub(crate) fn look(&mut self) {
        if let Some(followed) = &mut self.followed {
            followed.look(&self.path);
        }
    }

    /// What was recorded so far, if that is read while the program runs.
    pub(super) fn so_far(&mut self) -> Vec<Recorded> {
        self.look();
        self.followed.as_ref().map(Followed::so_far).unwrap_or_default()
    }

    /// Whether nothing in it was left unread.
    pub(crate) fn is_whole(&self) -> bool {
        self.path.join(MARK).exists()
    }

    /// Leaves the folder where it is, though it can't be read: no later run names it.
    pub(crate) fn set_aside(&mut self) {
        self.is_kept = true;
        let _ = fs::remove_file(self.path.join(MARK));
    }

    /// Leaves the folder where it is, for a later run to name.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Removes the folder, now that what was recorded is elsewhere.
    pub(crate) fn remove(mut self) {
        self.is_kept = false;
    }

    /// What each process recorded, and where the library was loaded. A file that can't be read is kept, with the others, and
    /// named; no later run names it again.
    pub(crate) fn read(&mut self) -> Result<(Vec<Recorded>, Loaded)> {
        let mut all = Vec::new();
        let mut loaded = Loaded::default();
        self.look();
        let mut followed = self.followed.take();
        loaded.said.extend(followed.iter_mut().flat_map(Followed::said));
        for file in fs::read_dir(self.path()).with_context(|| self.path().display().to_string())? {
            let Ok(path) = file.map(|file| file.path()) else { continue };
            let kind = path.extension().and_then(OsStr::to_str);
            if kind == Some("loaded") {
                let said = regular(&path, MOST_SAID).unwrap_or_default();
                loaded.add(&String::from_utf8_lossy(&said));
                continue;
            }
            if kind != Some("nodes") {
                continue;
            }
            let read = match followed.as_mut().and_then(|of| of.take(&path)) {
                Some(read) => read,
                None => regular(&path, MOST)
                    .map_err(|why| format!("{}: {why}", path.display()))
                    .and_then(|bytes| Recorded::read(&bytes, &path).map_err(|why| why.to_string())),
            };
            match read {
                Ok(recorded) => {
                    // Of one that has no passes, nobody else will tell.
                    if recorded.events.is_empty() {
                        let said = recorded.lost.iter().chain(&recorded.fault).cloned();
                        loaded.said.extend(said);
                    }
                    all.push(recorded);
                }
                Err(why) => {
                    self.set_aside();
                    loaded.said.push(format!("can't read what was recorded, which is kept: {why}"));
                }
            }
        }
        Ok((all, loaded))
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left is among temporary files, and says whose it is.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The bytes of a file that the library may have written: no link, pipe or device.
fn regular(path: &Path, limit: Limit) -> std::io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no file of the library's"));
    }
    load::bytes(path, limit)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn create() -> Records {
        let line = ["llama-cli", "-m", "a model"].map(OsString::from);
        let mark = Mark::new(&line, "2026-11-28T03:00:00Z", &Clock::os());
        Records::create(&mark).expect("a folder")
    }

    #[test]
    fn a_file_that_is_none_is_kept_and_said_and_the_others_are_read() {
        let mut records = create();
        let path = records.path().to_owned();
        for (name, text) in [
            ("7.nodes", "BRKNODES"),
            ("8.nodes", ""),
            ("9.loaded", "program /bin/true\nsaid why\n"),
            ("9.other", "x"),
        ] {
            fs::write(path.join(name), text).expect("a file");
        }
        let (all, loaded) = records.read().expect("it can be read");
        assert!(all.is_empty());
        assert_eq!(loaded.programs, [PathBuf::from("/bin/true")]);
        let said = loaded.said.join("; ");
        assert!(said.contains("7.nodes, byte 0: not a recording"), "{said}");
        assert!(said.contains("8.nodes, byte 0") && said.contains("why"), "{said}");
        drop(records);
        assert!(path.join("7.nodes").exists(), "it is kept");
        assert!(Records::of(&path).is_none(), "no later run names it");
        fs::remove_dir_all(path).expect("it can be removed");
    }

    #[test]
    fn what_has_no_end_is_no_recording() {
        let mut records = create();
        let path = records.path().to_owned();
        let pipes = [path.join("7.nodes"), path.join("7.loaded")];
        let made = std::process::Command::new("mkfifo").args(pipes).status();
        assert!(made.is_ok_and(|made| made.success()), "two pipes");
        let large = File::create(path.join("8.nodes")).expect("a file");
        large.set_len(8 << 30).expect("it takes no room");
        std::os::unix::fs::symlink("/dev/zero", path.join("9.nodes")).expect("a link");
        std::os::unix::fs::symlink("/dev/zero", path.join("9.loaded")).expect("a link");
        let (all, loaded) = records.read().expect("it can be read");
        assert!(all.is_empty());
        let said = loaded.said.join("; ");
        for (file, why) in [
            ("7.nodes", "it is no file of the library's"),
            ("8.nodes", "it has more than 1"),
            ("9.nodes", "it is no file of the library's"),
        ] {
            assert!(said.contains(&format!("{file}: {why}")), "{said}");
        }
        records.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_is_left_once_no_process_uses_it() {
        let mut records = create();
        let path = records.path().to_owned();
        assert!(Records::of(&path).is_none(), "this process uses it");
        records.keep();
        drop(records);
        let (left, mark) = Records::of(&path).expect("it was left");
        assert_eq!(mark.command, ["llama-cli", "-m", "a model"]);
        let folder = env::current_dir().expect("there is one");
        let line = format!("2026-11-28T03:00:00Z: llama-cli -m a model, in {}", folder.display());
        assert_eq!(mark.line(), line);
        // One that was made before folders were written has none.
        let unknown = Mark { started_in: None, ..mark };
        assert_eq!(unknown.line(), "2026-11-28T03:00:00Z: llama-cli -m a model");
        assert!(Records::of(&path).is_none(), "one reads it");
        drop(left);
        assert!(private::earlier().contains(&path), "it stays");
        let (left, _) = Records::of(&path).expect("it was left");
        left.remove();
        assert!(!path.exists());
        let path = create().path().to_owned();
        assert!(!path.exists(), "what isn't kept is removed");
    }
}
