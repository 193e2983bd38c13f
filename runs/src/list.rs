//! The runs in a folder, newest first.
//!
//! Of each run its folder is read, and the small file that [`Summary`] describes. A run without one, which an earlier version
//! or a program of one's own wrote, is read itself, as far as a [`Budget`] goes; then it has one, too.

use std::ffi::OsString;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use brickscope_analysis::receipt::Receipt;
use brickscope_profile::Profile;
use brickscope_profile::save::{parse_rfc3339, time_rfc3339};

use crate::files::{
    FLAMEGRAPH, PROFILE, RECEIPT, REPORT, SAMPLES, SUMMARY, TAG, is_part, number_of_process,
};
use crate::so_far::is_so_far;
use crate::speed::Speed;
use crate::summary::Summary;
use crate::tag;
use crate::times::Times;
use crate::versus::Turns;

/// How much is read of runs that have no small file yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The most runs.
    pub runs: usize,
    /// The most bytes of them all.
    pub bytes: u64,
}

impl Budget {
    /// Nothing, for who needs no figures.
    pub const NONE: Self = Self { runs: 0, bytes: 0 };
    /// What takes no more than a moment.
    pub const SOME: Self = Self { runs: 32, bytes: 32 << 20 };
    /// All of them.
    pub const ALL: Self = Self { runs: usize::MAX, bytes: u64::MAX };
}

/// The runs in a folder.
#[derive(Debug, Default)]
pub struct List {
    /// The newest first.
    pub rows: Vec<Row>,
    /// How many of them have no figures here, since they have no small file and the budget was spent.
    pub unread: usize,
}

impl List {
    /// Whether all of them have names as the parts of one run have.
    #[must_use]
    pub fn are_parts(&self) -> bool {
        self.rows.iter().all(|row| is_part(&row.name))
    }
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The name of its folder.
    pub name: OsString,
    /// The folder.
    pub path: PathBuf,
    /// When it was made, RFC 3339 in UTC: as its file says, or else when the file was written.
    pub created: String,
    /// Of an import, when that was, in the same form. `created` is then the time of the measurement, often on another machine.
    pub imported_at: Option<String>,
    /// What is known of it; of a set, of its first process.
    pub summary: Option<Summary>,
    /// The number of processes of a set; 0 for a single run.
    pub processes: usize,
    /// How fast they were, if all of them were read.
    pub of_processes: Option<Speed>,
    /// Why it can't be read.
    pub trouble: Option<String>,
    /// The bytes of its files, without the summary that is kept for `ls`.
    pub bytes: u64,
    /// Its tag.
    pub tag: Option<String>,
    /// Whether it or a part of it has one, even if that can't be read.
    pub is_tagged: bool,
    /// Whether there is a report of it in its folder.
    pub has_report: bool,
}

impl Row {
    /// How fast it decoded.
    #[must_use]
    pub fn speed(&self) -> Option<Speed> {
        match self.processes {
            0 => self.summary.as_ref().and_then(Speed::of_run),
            _ => self.of_processes,
        }
    }

    /// When it was written here, which is what makes a run a newer one.
    #[must_use]
    pub fn written(&self) -> &str {
        self.imported_at.as_deref().unwrap_or(&self.created)
    }

    /// Later runs have greater keys. Of those of one second, the later has a longer name, or a greater number in it; a run is
    /// later than what there was of it while it went on.
    fn key(&self) -> (&str, &str, bool, usize, &OsString) {
        let (whole, fraction) = parse_rfc3339(self.written()).unwrap_or_default();
        (whole, fraction, !is_so_far(&self.name), self.name.len(), &self.name)
    }
}

/// The runs whose folders lie in `folder`. Links aren't followed, and hidden folders are left out.
///
/// # Errors
///
/// If the folder can't be read.
pub fn list(folder: &Path, budget: Budget) -> io::Result<List> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.path());
        }
    }
    let mut seen = look_at_all(&folders);
    newest_first(&mut seen);
    let unread = read_some(&mut seen, budget);
    // What was read may say another time than when the file was written.
    newest_first(&mut seen);
    Ok(List { rows: seen.into_iter().map(|seen| seen.row).collect(), unread })
}

fn newest_first(seen: &mut [Seen]) {
    seen.sort_by(|a, b| b.row.key().cmp(&a.row.key()));
}

/// What was seen in the folder of a run.
struct Seen {
    row: Row,
    /// The file that says what the run was, if there is one.
    main: Option<Main>,
    /// Of a set, the processes after the first.
    rest: Vec<Seen>,
}

impl Seen {
    /// Reads what has no summary. Returns whether the budget was enough.
    fn read(&mut self, budget: &mut Budget) -> bool {
        let mut is_all = self.read_own(budget);
        for part in &mut self.rest {
            is_all &= part.read_own(budget);
        }
        self.sum_up();
        is_all
    }

    fn read_own(&mut self, budget: &mut Budget) -> bool {
        let Self { row, main, .. } = self;
        let Some(main) = main.as_ref().filter(|_| row.summary.is_none()) else { return true };
        let rest = budget.bytes.checked_sub(main.bytes).filter(|_| budget.runs > 0);
        let Some(bytes) = rest else { return false };
        *budget = Budget { runs: budget.runs - 1, bytes };
        match main.read() {
            Ok(summary) => {
                let said = Times::of(&summary, main.written);
                if let Some(created) = Turns::created(&row.path).or(said.created) {
                    row.created = created;
                }
                row.imported_at = said.imported_at;
                row.summary = Some(summary);
            }
            Err(why) => row.trouble = Some(why),
        }
        true
    }

    /// Notes of a set how fast its processes were.
    fn sum_up(&mut self) {
        if self.row.processes == 0 {
            return;
        }
        let rows = [&self.row].into_iter().chain(self.rest.iter().map(|part| &part.row));
        let speeds = rows.map(|row| row.summary.as_ref().and_then(Speed::of_run));
        let speeds: Option<Vec<Speed>> = speeds.collect();
        self.row.of_processes = speeds.and_then(|all| Speed::of_set(&all));
    }
}

/// The file that a summary is of.
struct Main {
    folder: PathBuf,
    name: &'static str,
    bytes: u64,
    written: SystemTime,
}

impl Main {
    fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }

    fn read(&self) -> Result<Summary, String> {
        let path = self.path();
        let summary = match self.name {
            RECEIPT => Receipt::load(&path).map(|of| Summary::of_receipt(&of)).map_err(text),
            _ => Profile::load(&path).map(|of| Summary::of(&of)).map_err(text),
        }?;
        if is_own(&self.folder) {
            summary.keep(&self.folder, self.name);
        }
        Ok(summary)
    }
}

/// Whether a folder is this user's. To others' a list writes nothing.
fn is_own(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(folder).is_ok_and(|found| found.uid() == user)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// With fewer folders for each, a thread takes longer to start than to work.
const LEAST_FOR_A_THREAD: usize = 200;
const MOST_THREADS: usize = 8;

/// Looks into many folders. The system is what takes the time, so on several threads.
fn look_at_all(folders: &[PathBuf]) -> Vec<Seen> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
    let each = folders.len().div_ceil(threads).max(LEAST_FOR_A_THREAD);
    thread::scope(|scope| {
        let mut started = Vec::new();
        for chunk in folders.chunks(each) {
            let thread = thread::Builder::new().spawn_scoped(scope, move || look_at(chunk));
            started.push((chunk, thread));
        }
        let seen = started.into_iter().flat_map(|(chunk, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
            // Where no thread can be started, this one does it.
            Err(_) => look_at(chunk),
        });
        seen.collect()
    })
}

fn look_at(folders: &[PathBuf]) -> Vec<Seen> {
    folders.iter().filter_map(|folder| look(folder, true)).collect()
}

/// The files in a run's folder.
#[derive(Default)]
struct Files {
    profile: Option<(u64, SystemTime)>,
    receipt: Option<(u64, SystemTime)>,
    /// When samples or a flamegraph were written.
    other: Option<SystemTime>,
    /// When the summary was written.
    summary: Option<SystemTime>,
    has_tag: bool,
    has_report: bool,
    bytes: u64,
    /// Folders of parts.
    parts: Vec<PathBuf>,
}

impl Files {
    fn of(folder: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if kind.is_dir() {
                if is_part(&name) {
                    files.parts.push(entry.path());
                }
            } else if let Some(found) = file_at(&entry, kind.is_symlink()) {
                let is_there = !kind.is_symlink();
                // What `ls` itself writes would make a run larger by being looked at.
                let counts = is_there && name != SUMMARY;
                files.bytes += if counts { found.len() } else { 0 };
                let written = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                match name.to_str().unwrap_or_default() {
                    PROFILE => files.profile = Some((found.len(), written)),
                    RECEIPT => files.receipt = Some((found.len(), written)),
                    SAMPLES | FLAMEGRAPH => files.other = Some(written),
                    SUMMARY => files.summary = is_there.then_some(written),
                    TAG => files.has_tag = true,
                    REPORT => files.has_report = true,
                    _ => {}
                }
            }
        }
        Ok(files)
    }
}

/// What is known of a file; `None` for a pipe and the like. Of a link, what it leads to.
fn file_at(entry: &DirEntry, is_link: bool) -> Option<Metadata> {
    let found = if is_link { fs::metadata(entry.path()) } else { entry.metadata() };
    found.ok().filter(Metadata::is_file)
}

/// What is in the folder of a run, and with `deep` in those of its parts; `None` if it is no run's.
fn look(folder: &Path, deep: bool) -> Option<Seen> {
    let files = Files::of(folder).ok()?;
    let parts = files.parts.iter().filter(|_| deep);
    let mut parts: Vec<(Option<u32>, Seen)> = parts
        .filter_map(|part| Some((part.file_name().and_then(number_of_process), look(part, false)?)))
        .collect();
    let bytes = parts.iter().fold(files.bytes, |sum, (_, part)| sum.saturating_add(part.row.bytes));
    let main = |name, (bytes, written): (u64, SystemTime)| {
        // One that is older is of what was there before.
        let has_summary = files.summary.is_some_and(|made| made >= written);
        (Some(Main { folder: folder.to_owned(), name, bytes, written }), written, has_summary)
    };
    let own = match (files.profile, files.receipt, files.other) {
        (Some(profile), ..) => Some(main(PROFILE, profile)),
        (None, Some(receipt), _) => Some(main(RECEIPT, receipt)),
        (None, None, Some(written)) => Some((None, written, false)),
        (None, None, None) => None,
    };
    let name = folder.file_name()?.to_owned();
    let tag = if files.has_tag { tag::of(folder) } else { None };
    let is_tagged = files.has_tag || parts.iter().any(|(_, part)| part.row.is_tagged);
    let row = |created, imported_at, summary, processes| Row {
        name,
        path: folder.to_owned(),
        created,
        imported_at,
        summary,
        processes,
        of_processes: None,
        trouble: None,
        bytes,
        tag,
        is_tagged,
        has_report: files.has_report,
    };
    if let Some((main, written, has_summary)) = own {
        let of = main.as_ref().filter(|_| has_summary);
        let summary = of.and_then(|main| Summary::kept(folder, main.bytes));
        let begin = || main.as_ref().and_then(|of| Times::in_the_begin(&of.folder, of.name));
        let said = match &summary {
            Some(summary) => Times::of(summary, written),
            None => begin().unwrap_or_default(),
        };
        let created = said.created.unwrap_or_else(|| time_rfc3339(written));
        let row = row(created, said.imported_at, summary, 0);
        return Some(Seen { row, main, rest: Vec::new() });
    }
    // A set is what its processes are. One that was killed may have left none.
    parts.retain(|(number, part)| number.is_some() && part.main.is_some());
    let processes = parts.len();
    parts.sort_by_key(|(number, _)| *number);
    let mut parts = parts.into_iter().map(|(_, part)| part);
    let Seen { row: Row { created, imported_at, summary, .. }, main, .. } = parts.next()?;
    // Of two sides whose runs took turns, either may have begun.
    let created = Turns::created(folder).unwrap_or(created);
    let row = row(created, imported_at, summary, processes);
    let mut set = Seen { row, main, rest: parts.collect() };
    set.sum_up();
    Some(set)
}

/// Reads runs without a summary, the newest first. Returns how many are left.
fn read_some(seen: &mut [Seen], mut budget: Budget) -> usize {
    let mut left = 0;
    for run in seen {
        left += usize::from(!run.read(&mut budget));
    }
    left
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use brickscope_profile::{ClockInfo, Model};

    use super::*;
    use crate::summary;

    const ALL: Budget = Budget::ALL;

    /// A run of a model, made at this second.
    fn made(folder: &Path, name: &str, second: u32) -> PathBuf {
        let run = folder.join(name);
        fs::create_dir_all(&run).expect("a folder");
        let mut profile = Profile::empty(ClockInfo::default());
        profile.created = format!("2026-11-29T12:00:{second:02}Z");
        profile.model = Some(Model { name: Some(format!("model {name}")), ..Model::default() });
        summary::save(&profile, &run).expect("there is room");
        run
    }

    fn names(list: &List) -> Vec<&str> {
        list.rows.iter().map(|row| row.name.to_str().expect("UTF-8")).collect()
    }

    fn models(list: &List) -> Vec<Option<&str>> {
        list.rows.iter().map(|row| row.summary.as_ref()?.model.as_deref()).collect()
    }

    #[test]
    fn the_newest_run_is_first_and_of_one_second_the_later() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, second) in [("b", 2), ("a", 3), ("20-10", 1), ("20-2", 1), ("20", 1)] {
            made(folder.path(), name, second);
        }
        let found = list(folder.path(), Budget::NONE).expect("a folder");
        assert_eq!(names(&found), ["a", "b", "20-10", "20-2", "20"]);
        assert_eq!(found.unread, 0);
        assert_eq!(models(&found)[0], Some("model a"));
        for name in ["a-so-far-10", "a-so-far-2", "a-so-far-away"] {
            made(folder.path(), name, 3);
        }
        let found = list(folder.path(), Budget::NONE).expect("a folder");
        assert_eq!(names(&found)[..4], ["a-so-far-away", "a", "a-so-far-10", "a-so-far-2"]);
    }

    /// An import that was made in this second, of a file of ten years before.
    fn imported(folder: &Path, name: &str, second: u32, is_noted: bool) -> PathBuf {
        let run = folder.join(name);
        fs::create_dir_all(&run).expect("a folder");
        let mut profile = Profile::empty(ClockInfo::default());
        profile.created = "2016-11-29T12:00:00Z".to_owned();
        let at = format!("2026-11-29T12:00:{second:02}.250Z");
        profile.imported_at = is_noted.then_some(at);
        profile.imported = Some(brickscope_profile::Imported {
            format: "chrome".to_owned(),
            file: format!("/traces/{name}.json.gz"),
            ..Default::default()
        });
        summary::save(&profile, &run).expect("there is room");
        run
    }

    #[test]
    fn imports_are_ordered_by_when_they_were_imported() {
        let folder = tempfile::tempdir().expect("a folder");
        made(folder.path(), "before", 1);
        imported(folder.path(), "sglang", 2, true);
        let later = imported(folder.path(), "vllm", 2, true);
        made(folder.path(), "after", 3);
        let expected = ["after", "sglang", "vllm", "before"];
        // Without its summary the file itself says it, which a copy does, too.
        for is_read in [true, false] {
            if !is_read {
                fs::remove_file(later.join(SUMMARY)).expect("it is there");
                written_at(&later.join(PROFILE), 2_000_000_000);
            }
            let found = list(folder.path(), Budget::NONE).expect("a folder");
            assert_eq!(names(&found), expected);
            let row = &found.rows[2];
            assert_eq!(row.created, "2016-11-29T12:00:00Z");
            assert_eq!(row.written(), "2026-11-29T12:00:02.250Z");
        }
        // One of an earlier version, which noted nothing, was imported when its file was written.
        let old = imported(folder.path(), "old", 0, false);
        for file in [PROFILE, SUMMARY] {
            written_at(&old.join(file), 1_500_000_000);
        }
        let found = list(folder.path(), ALL).expect("a folder");
        assert_eq!(names(&found).last(), Some(&"old"));
        assert_eq!(found.rows[4].written(), "2017-07-14T02:40:00Z");
    }

    #[test]
    fn what_is_no_run_is_not_listed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = made(folder.path(), "run", 1);
        made(folder.path(), ".hidden", 2);
        fs::create_dir(folder.path().join("empty")).expect("a folder");
        fs::write(folder.path().join("profile.json"), "{}").expect("there is room");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&run, folder.path().join("link")).expect("a link");
        let found = list(folder.path(), ALL).expect("a folder");
        assert_eq!(names(&found), ["run"]);
        let files = fs::read_dir(&run).expect("a folder").map(|entry| entry.expect("an entry"));
        let files = files.filter(|file| file.file_name() != SUMMARY);
        let bytes = files.map(|file| file.metadata().expect("it is there").len()).sum::<u64>();
        assert_eq!(found.rows[0].bytes, bytes);
        list(&folder.path().join("gone"), ALL).expect_err("there is no such folder");
    }

    #[test]
    fn old_runs_are_read_as_far_as_the_budget_goes_and_only_once() {
        let folder = tempfile::tempdir().expect("a folder");
        for second in 1..=4 {
            let run = made(folder.path(), &second.to_string().repeat(2), second);
            fs::remove_file(run.join(SUMMARY)).expect("it is there");
        }
        // Also without a summary they are in order.
        let two = Budget { runs: 2, bytes: u64::MAX };
        let found = list(folder.path(), two).expect("a folder");
        assert_eq!(names(&found), ["44", "33", "22", "11"]);
        assert_eq!(models(&found), [Some("model 44"), Some("model 33"), None, None]);
        assert_eq!(found.unread, 2);
        // Those have one now.
        let again = list(folder.path(), Budget::NONE).expect("a folder");
        assert_eq!((models(&again), again.unread), (models(&found), 2));
        let few_bytes = Budget { runs: 9, bytes: 10 };
        assert_eq!(list(folder.path(), few_bytes).expect("a folder").unread, 2);
        assert_eq!(list(folder.path(), ALL).expect("a folder").unread, 0);
    }

    #[test]
    fn the_order_is_the_same_before_and_after_runs_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        made(folder.path(), "b", 2);
        // As from a program that writes its fields in another order, copied much later.
        let file = made(folder.path(), "a", 1).join(PROFILE);
        fs::remove_file(folder.path().join("a").join(SUMMARY)).expect("it is there");
        let text = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, text.replacen('{', &("{".to_owned() + &" ".repeat(1_000)), 1))
            .expect("there is room");
        written_at(&file, 2_000_000_000);
        for budget in [Budget::ALL, Budget::NONE] {
            let found = list(folder.path(), budget).expect("a folder");
            assert_eq!(names(&found), ["b", "a"]);
            assert_eq!(found.rows[1].created, "2026-11-29T12:00:01Z");
            // Its summary is as new from now on.
            written_at(&folder.path().join("a").join(SUMMARY), 2_000_000_000);
        }
        // A receipt says when it was made, too, in its own word.
        let run = folder.path().join("c");
        fs::create_dir(&run).expect("a folder");
        let begin = "{\"schema_version\": \"1.0.0\", \"timestamp\": \"2020-01-01T00:00:00Z\",";
        fs::write(run.join(RECEIPT), begin).expect("there is room");
        let found = list(folder.path(), Budget::NONE).expect("a folder");
        assert_eq!(names(&found), ["b", "a", "c"]);
    }

    fn written_at(file: &Path, seconds: u64) {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = File::options().write(true).open(file).expect("it is there");
        file.set_modified(at).expect("it is ours");
    }

    #[test]
    fn a_summary_that_is_older_than_its_profile_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = made(folder.path(), "run", 1).join(PROFILE);
        let text = fs::read_to_string(&file).expect("it is there");
        // Of the same length.
        fs::write(&file, text.replace("model run", "other run")).expect("there is room");
        written_at(&file, 2_000_000_000);
        let found = list(folder.path(), ALL).expect("a folder");
        assert_eq!(models(&found), [Some("other run")]);
    }

    #[test]
    fn nothing_is_written_to_the_folder_of_another_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = made(folder.path(), "run", 1);
        fs::remove_file(run.join(SUMMARY)).expect("it is there");
        // Only root can give a folder away.
        if std::os::unix::fs::chown(&run, Some(54_321), None).is_ok() {
            let found = list(folder.path(), ALL).expect("a folder");
            assert_eq!(models(&found), [Some("model run")]);
            assert!(!run.join(SUMMARY).exists());
        }
    }

    #[test]
    fn a_run_that_can_not_be_read_is_listed_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = made(folder.path(), "broken", 1);
        fs::write(run.join(PROFILE), "{").expect("there is room");
        let found = list(folder.path(), ALL).expect("a folder");
        let trouble = found.rows[0].trouble.as_deref().expect("it is broken");
        assert!(trouble.contains("is not a whole brickscope profile"), "{trouble}");
        assert_eq!(found.rows[0].summary, None);
    }

    #[test]
    fn a_set_is_one_run_with_the_model_of_its_first_process() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in [10, 2, 3] {
            made(folder.path(), &format!("set/{number}"), number);
        }
        let found = list(folder.path(), ALL).expect("a folder");
        let [row] = &found.rows[..] else { panic!("{found:?}") };
        assert_eq!((row.processes, row.speed()), (3, None));
        assert_eq!(models(&found), [Some("model set/2")]);
        // And its folder is one of runs.
        let within = list(&folder.path().join("set"), ALL).expect("a folder");
        assert_eq!(names(&within), ["10", "3", "2"]);
    }

    #[test]
    fn a_tag_that_can_not_be_read_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, second) in [("a", 3), ("b", 2), ("c", 1)] {
            made(folder.path(), name, second);
        }
        tag::set(&folder.path().join("a"), "best").expect("there is room");
        fs::write(folder.path().join("b").join(TAG), "\u{1b}[2J").expect("there is room");
        let found = list(folder.path(), ALL).expect("a folder");
        let tags = found.rows.iter().map(|row| (row.tag.as_deref(), row.is_tagged));
        let tags: Vec<_> = tags.collect();
        assert_eq!(tags, [(Some("best"), true), (None, true), (None, false)]);
        // Nor does a set go with a process that has one.
        tag::set(&made(folder.path(), "set/2", 4), "best").expect("there is room");
        let found = list(folder.path(), ALL).expect("a folder");
        assert_eq!((found.rows[0].tag.as_deref(), found.rows[0].is_tagged), (None, true));
        assert!(!found.are_parts());
        assert!(list(&folder.path().join("set"), ALL).expect("a folder").are_parts());
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_no_text_is_listed() {
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().expect("a folder");
        let run = made(folder.path(), "run", 1);
        let name = std::ffi::OsStr::from_bytes(b"a\xff\n");
        // Some file systems have only names that are text.
        if fs::rename(&run, folder.path().join(name)).is_ok() {
            let found = list(folder.path(), ALL).expect("a folder");
            assert_eq!(found.rows[0].name, name);
        }
    }
}
