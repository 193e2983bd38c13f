//! The files of a run: their names, and which of them brickscope writes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use brickscope_profile::RUN_FILE;

/// The folder for runs without a named folder.
pub const RUNS: &str = "brickscope-runs";

/// The profile in a run's folder.
pub(crate) const PROFILE: &str = RUN_FILE;

/// The receipt in a run's folder.
pub(crate) const RECEIPT: &str = "receipt.json";

/// The figures in a flamegraph's folder.
pub const FLAMEGRAPH: &str = brickscope_analysis::stacks::summary::FILE;

/// The samples in the folder of a sampled run.
pub const SAMPLES: &str = "samples.json";

/// What a list says of a run. Hidden, since it is made from the profile, and can be made again.
pub(crate) const SUMMARY: &str = ".summary.json";

/// The report of a run in its folder.
pub const REPORT: &str = "report.html";

/// The tag of a run.
pub(crate) const TAG: &str = ".tag";

/// What `versus` notes beside the runs of a side.
pub(crate) const VERSUS: &str = ".versus.json";

/// A folder with one of these is a run's.
pub(crate) const MAIN: [&str; 4] = [PROFILE, RECEIPT, SAMPLES, FLAMEGRAPH];

/// What the commands write to a run's folder besides, unless a file is named.
const OTHERS: [&str; 19] = [
    "comparison.html",
    "diff-reverse.svg",
    "diff.md",
    "diff.svg",
    "flamegraph.folded",
    "flamegraph.md",
    "flamegraph.svg",
    "intervals.parquet",
    "metrics.otlp.json",
    "metrics.prom",
    "passes.csv",
    "profile.pb.gz",
    REPORT,
    "requests.parquet",
    "spans.csv",
    "spans.parquet",
    "speedscope.json",
    "stacks.folded",
    "totals.csv",
];

/// The same of exports that may have several parts, such as `trace.2.json`: what is before the number, and after it.
const IN_PARTS: [(&str, &str); 3] =
    [("trace.", "json"), ("trace.", "pftrace"), ("traces.otlp.", "json")];

/// Whether a file in a run's folder is one that brickscope writes there, by its name.
#[must_use]
pub fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_part = |&(before, after): &(&str, &str)| {
        let rest = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let number = rest.map(|rest| rest.strip_suffix('.').unwrap_or(rest));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    MAIN.contains(&name)
        || OTHERS.contains(&name)
        || [SUMMARY, TAG, VERSUS].contains(&name)
        || IN_PARTS.iter().any(is_part)
        || is_partial(name)
}

/// Whether a file is left of a write that was killed, such as `.profile.json.4711-0.partial`.
fn is_partial(name: &str) -> bool {
    let of = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    let Some((file, process)) = of.and_then(|of| of.rsplit_once('.')) else { return false };
    let is_process = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    is_process(process) && !file.is_empty()
}

/// The number of a process in a set, if this is the name of its folder.
pub(crate) fn number_of_process(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    name.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == name)
}

/// Whether this is the name of a folder in that of a run which holds a part of it: a process of a set, or another run of
/// the same process.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let context = name.to_str().and_then(|name| name.strip_prefix("context-"));
    number_of_process(name).is_some()
        || context.is_some_and(|number| number_of_process(OsStr::new(number)).is_some())
}

/// The folders of a set's processes in `path` that hold a run, with their numbers, unordered.
pub(crate) fn processes(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let folder = entry?.path();
        let number = folder.file_name().and_then(number_of_process);
        if let Some(number) = number
            && [PROFILE, RECEIPT].iter().any(|file| folder.join(file).is_file())
        {
            found.push((number, folder));
        }
    }
    Ok(found)
}

/// A word near the begin of each file that makes a folder a run's: other programs have files of these names, too.
const MARKS: [(&str, &str); 4] = [
    (PROFILE, "\"brickscope_version\""),
    (RECEIPT, "\"compute_path\""),
    (SAMPLES, "\"time_base\""),
    (FLAMEGRAPH, "\"brickscope_version\""),
];

/// So many bytes of it are looked at.
const BEGIN: u64 = 64 << 10;

/// The name of a file in a folder that is called as a run's is, and isn't what brickscope writes.
pub(crate) fn foreign(folder: &Path) -> io::Result<Option<&'static str>> {
    for (name, mark) in MARKS {
        let file = folder.join(name);
        if !file.is_file() {
            continue;
        }
        let mut begin = Vec::new();
        File::open(&file)?.take(BEGIN).read_to_end(&mut begin)?;
        if !String::from_utf8_lossy(&begin).contains(mark) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether a folder is a run's, or that of a set of runs.
#[must_use]
pub fn is_run(folder: &Path) -> bool {
    MAIN.iter().any(|file| folder.join(file).is_file())
        || processes(folder).is_ok_and(|found| !found.is_empty())
}

/// The profile in the folder of a run.
#[must_use]
pub fn profile_in(run: &Path) -> PathBuf {
    run.join(PROFILE)
}

/// The receipt in the folder of a run.
#[must_use]
pub fn receipt_in(run: &Path) -> PathBuf {
    run.join(RECEIPT)
}

/// The folder of a run, given the folder or its profile.json.
#[must_use]
pub fn folder_of(run: &Path) -> &Path {
    match run.parent() {
        _ if run.is_dir() => run,
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A small file of ours, if it is there: not a pipe, not what a link leads to, and not more than `most` bytes.
pub(crate) fn small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()?.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// Writes a small file to a run's folder, as a whole or not at all. Unlike [`brickscope_profile::write_atomically`] it doesn't
/// wait for the disk, as no measurement is in it; and a link in its place is replaced, not followed.
pub(crate) fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    // Processes in different containers have the same numbers, and one that was killed leaves its file.
    const TRIES: u32 = 100;
    let (plain, process) = (name.trim_start_matches('.'), std::process::id());
    for nth in 0..TRIES {
        let part = folder.join(format!(".{plain}.{process}-{nth}.partial"));
        let mut file = match File::options().write(true).create_new(true).open(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        let written = file.write_all(bytes).and_then(|()| fs::rename(&part, folder.join(name)));
        if written.is_err() {
            // The first error matters more.
            let _ = fs::remove_file(&part);
        }
        return written;
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes a file, if it is there.
pub(crate) fn remove_file(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_ours_are_told_from_others_by_their_names() {
        for name in [
            "profile.json",
            "receipt.json",
            ".summary.json",
            ".tag",
            ".versus.json",
            "report.html",
            "trace.json",
            "trace.2.json",
            "trace.12.pftrace",
            "traces.otlp.json",
            ".profile.json.4711-0.partial",
            ".writable.4711.partial",
        ] {
            assert!(is_ours(OsStr::new(name)), "{name}");
        }
        for name in [
            "",
            "README.md",
            "Profile.json",
            "profile.json.bak",
            "trace.x.json",
            "mytrace.json",
            "trace.json.gz",
            ".partial",
            ".notes.partial",
            "notes.1.partial",
            "model.gguf",
        ] {
            assert!(!is_ours(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn parts_of_a_run_are_told_from_other_folders() {
        for (name, is) in [
            ("1", true),
            ("12", true),
            ("context-2", true),
            ("0", false),
            ("01", false),
            ("-1", false),
            ("context-", false),
            ("src", false),
        ] {
            assert_eq!(is_part(OsStr::new(name)), is, "{name}");
        }
    }

    #[test]
    fn what_a_killed_process_of_the_same_number_left_is_no_obstacle() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = folder.path().join(format!(".tag.{}-0.partial", std::process::id()));
        assert!(is_ours(left.file_name().expect("a name")));
        fs::write(&left, "be").expect("there is room");
        put(folder.path(), TAG, b"best").expect("there is room");
        assert_eq!(small(&folder.path().join(TAG), 4), Some(b"best".to_vec()));
        assert_eq!(fs::read(&left).expect("it is there"), b"be");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_small_file_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        fs::write(&other, "mine").expect("written");
        std::os::unix::fs::symlink(&other, folder.path().join(TAG)).expect("a link");
        put(folder.path(), TAG, b"best").expect("there is room");
        assert_eq!(fs::read(&other).expect("it is there"), b"mine");
        assert_eq!(small(&folder.path().join(TAG), 4), Some(b"best".to_vec()));
        assert_eq!(small(&folder.path().join(TAG), 3), None);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }
}
