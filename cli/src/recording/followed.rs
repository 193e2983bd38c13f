//! Recordings that are read while the program runs, so that they take no more room the longer it does.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use brickscope::Clock;
use brickscope::keep::{Limits, When};
use brickscope_llama::recording::{Days, Recorded};
use brickscope_runs::give_back;

/// As many pieces are read of a file at once; then the program is looked at.
const MOST_PIECES: usize = 16;

/// The recordings of a folder.
pub(super) struct Followed {
    clock: Clock,
    limits: Limits,
    /// What is kept whole, if something is.
    when: Option<When>,
    /// `Err` has why one can't be read, or its room not be given back.
    all: BTreeMap<PathBuf, Result<Days, String>>,
    /// What can't be done, whatever else can.
    said: Vec<String>,
}

impl Followed {
    pub(super) fn new(clock: Clock, limits: Limits, when: Option<When>) -> Self {
        Self { clock, limits, when, all: BTreeMap::new(), said: Vec::new() }
    }

    /// Reads what was written since.
    pub(super) fn look(&mut self, folder: &Path) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()) {
            if path.extension() != Some(OsStr::new("nodes")) || self.all.contains_key(&path) {
                continue;
            }
            let is_file = fs::symlink_metadata(&path).is_ok_and(|of| of.is_file());
            if is_file {
                let days = Days::follow(&path, self.clock.clone(), self.limits);
                let days = days.map(|days| match self.when {
                    Some(when) => days.watching_for(when, self.limits),
                    None => days,
                });
                self.all.insert(path, days.map_err(|why| why.to_string()));
            }
        }
        for of in self.all.values_mut() {
            if let Ok(days) = of
                && let Err(why) = read(days, &mut self.said)
            {
                *of = Err(why);
            }
        }
    }

    /// What was recorded so far, in files that can be read.
    pub(super) fn so_far(&self) -> Vec<Recorded> {
        self.all.values().flatten().map(Days::so_far).collect()
    }

    /// What was recorded in a file, in the end. `None` if it was never seen.
    pub(super) fn take(&mut self, path: &Path) -> Option<Result<Recorded, String>> {
        let days = self.all.remove(path)?;
        Some(days.and_then(|days| days.finish().map_err(|why| why.to_string())))
    }

    /// What could not be done, as sentences without a full stop.
    pub(super) fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

fn read(days: &mut Days, said: &mut Vec<String>) -> Result<(), String> {
    for _ in 0..MOST_PIECES {
        let Some(free) = days.advance().map_err(|why| why.to_string())? else { break };
        let given = free.into_iter().try_for_each(|bytes| give_back(days.file(), bytes));
        let given = given.map_err(|why| why.to_string());
        // What was read is known whatever becomes of the file.
        if let Err(why) = given.and_then(|()| days.release().map_err(|why| why.to_string())) {
            // The library stops where the file would be too large.
            let why = format!("what was read of the recording still takes room on the disk: {why}");
            if !said.contains(&why) {
                said.push(why);
            }
            return Ok(());
        }
    }
    Ok(())
}
