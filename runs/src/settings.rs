//! The user's defaults: `brickscope.toml`, found, read and checked, and what of it counts.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};
use brickscope_profile::load::{self, Limit};
use toml::{Spanned, Value};

use crate::files::RUNS;

/// The name of the file.
pub const FILE: &str = "brickscope.toml";

/// What the file may say, with what each value is.
pub const KEYS: [(&str, &str); 4] = [
    ("threads", "a number of threads from 1 to 1024"),
    ("out", "a folder, as text"),
    ("lake", "a folder or an address, as text"),
    ("ceilings", "a file, as text"),
];

const LIMIT: Limit = Limit { bytes: 1 << 16, instead: "shorten it" };

/// As many as `--threads` takes.
const MOST_THREADS: i64 = 1024;

/// Defaults for flags. What the file doesn't say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file that says it, if there is one.
    pub file: Option<PathBuf>,
    /// The threads that run a model.
    pub threads: Option<NonZeroUsize>,
    /// The folder of runs, in place of [`RUNS`].
    pub out: Option<PathBuf>,
    /// The lake that is asked, and that runs are collected in.
    pub lake: Option<PathBuf>,
    /// The limits of the device whose traces are imported.
    pub ceilings: Option<PathBuf>,
}

static CURRENT: OnceLock<Settings> = OnceLock::new();

/// The settings of this process: none before [`Settings::keep`].
pub fn current() -> &'static Settings {
    static NONE: Settings =
        Settings { file: None, threads: None, out: None, lake: None, ceilings: None };
    CURRENT.get().unwrap_or(&NONE)
}

/// The folder for runs without a named folder.
pub fn home() -> &'static Path {
    current().out.as_deref().unwrap_or(Path::new(RUNS))
}

impl Settings {
    /// Those of the nearest file, from the current folder upwards to a repository's root or the home folder, or else of the
    /// user's own.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or has a key or a value that it can't have. The error names the file, the line and the key.
    pub fn find() -> Result<Self> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|of| of.is_absolute());
        let home = folder("HOME");
        let here = std::env::current_dir().ok();
        let near = here.as_deref().and_then(|here| nearest(here, home.as_deref()));
        let own = || {
            let config = folder("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")))?;
            Some(config.join("brickscope").join(FILE)).filter(|file| file.is_file())
        };
        near.or_else(own).map_or_else(|| Ok(Self::default()), |file| Self::read(&file))
    }

    /// The settings in a file.
    fn read(file: &Path) -> Result<Self> {
        let text = load::text(file, LIMIT).with_context(|| file.display().to_string())?;
        Self::parse(&text, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Self> {
        let at = |byte: usize| {
            let before = &text.as_bytes()[..byte.min(text.len())];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            format!("{}, line {line}", file.display())
        };
        let table: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| {
            anyhow!("{}: {}", at(error.span().map_or(0, |span| span.start)), error.message())
        })?;
        let mut settings = Self { file: Some(file.to_owned()), ..Self::default() };
        for (key, value) in &table {
            let set = settings.set(key.get_ref(), value, file);
            set.map_err(|why| anyhow!("{}: {why}", at(key.span().start)))?;
        }
        Ok(settings)
    }

    /// Takes the value of a key, or says what is wrong with it.
    fn set(&mut self, key: &str, value: &Value, file: &Path) -> Result<(), String> {
        let Some((_, what)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let known = KEYS.map(|(known, _)| format!("`{known}`")).join(", ");
            return Err(format!("there is no key `{key}`: there are {known}"));
        };
        let wrong = || format!("`{key}` must be {what}, and here it is {}", shown(value));
        if key == "threads" {
            let threads = value.as_integer().filter(|n| (1..=MOST_THREADS).contains(n));
            let threads = threads.and_then(|n| NonZeroUsize::new(usize::try_from(n).ok()?));
            self.threads = Some(threads.ok_or_else(wrong)?);
            return Ok(());
        }
        let path = value.as_str().filter(|path| !path.is_empty()).ok_or_else(wrong)?;
        let path = Some(beside(file, path));
        match key {
            "out" => self.out = path,
            "lake" => self.lake = path,
            _ => self.ceilings = path,
        }
        Ok(())
    }

    /// From now on these are the settings of this process. Only the first call counts.
    pub fn keep(self) {
        let _ = CURRENT.set(self);
    }

    /// Each value, as the file would say it.
    pub fn lines(&self) -> Vec<String> {
        let path = |key: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!("{key} = \"{}\"", path.display()))
        };
        let threads = self.threads.map(|threads| format!("threads = {threads}"));
        let paths =
            [path("out", &self.out), path("lake", &self.lake), path("ceilings", &self.ceilings)];
        threads.into_iter().chain(paths.into_iter().flatten()).collect()
    }
}

/// What a value is, in a word.
fn shown(value: &Value) -> String {
    match value {
        Value::Integer(n) => n.to_string(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(_) => "text".to_owned(),
        other => other.type_str().to_owned(),
    }
}

/// A path in the file is beside the file, whatever the current folder is. An address such as `s3://…` stays.
fn beside(file: &Path, path: &str) -> PathBuf {
    match file.parent() {
        Some(folder) if !path.contains("://") => folder.join(path),
        _ => PathBuf::from(path),
    }
}

/// The file in a folder or above it, up to the root of a repository or the home folder. Files of other users are passed
/// over: anybody may put one into a folder such as /tmp.
fn nearest(here: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    for folder in here.ancestors() {
        let file = folder.join(FILE);
        if file.is_file() && is_trusted(&file, user) {
            return Some(file);
        }
        if folder.join(".git").exists() || home == Some(folder) {
            break;
        }
    }
    None
}

/// Whether a file is the user's own or the system's, and the link to it, too: paths in it are beside the link.
fn is_trusted(file: &Path, user: u32) -> bool {
    let found = [fs::metadata(file), fs::symlink_metadata(file)];
    found.into_iter().all(|found| found.is_ok_and(|found| [user, 0].contains(&found.uid())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Settings, String> {
        Settings::parse(text, Path::new("/at/brickscope.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn all_keys_are_read_and_paths_are_beside_the_file() {
        let text = "# ours\nthreads = 4\nout = \"runs\"\nlake = \"s3://bucket/lake\"\n\
            ceilings = \"/h200.json\"\n";
        let settings = parsed(text).expect("it is well");
        assert_eq!(settings.threads, NonZeroUsize::new(4));
        let lines = [
            "threads = 4",
            "out = \"/at/runs\"",
            "lake = \"s3://bucket/lake\"",
            "ceilings = \"/h200.json\"",
        ];
        assert_eq!(settings.lines(), lines);
        assert_eq!(parsed("").expect("nothing is well").lines(), [""; 0]);
    }

    #[test]
    fn an_error_names_the_file_the_line_and_the_key() {
        for (text, said) in [
            ("\nthread = 4\n", "line 2: there is no key `thread`: there are `threads`, `out`"),
            (
                "out = \"a\"\nthreads = \"4\"\n",
                "line 2: `threads` must be a number of threads from 1 to 1024, and here it is text",
            ),
            ("threads = 0", "line 1: `threads` must be a number of threads from 1 to 1024"),
            ("threads = 1025", "and here it is 1025"),
            ("threads = 2.5", "and here it is float"),
            ("lake = \"\"", "line 1: `lake` must be a folder or an address, as text, and here"),
            ("out = [\"a\"]", "line 1: `out` must be a folder, as text, and here it is array"),
            ("[profile]\nthreads = 1", "line 1: there is no key `profile`"),
            ("threads = 1\nthreads = 2", "duplicate key"),
            ("a.b.c = 1", "line 1: there is no key `a`"),
            ("out = \"a", "line 1: "),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.starts_with("/at/brickscope.toml, line "), "{error}");
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_nearest_file_is_read_up_to_a_repository_or_the_home_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("home/work/repo/src")).expect("made");
        let file = at("home/work").join(FILE);
        fs::write(&file, "threads = 1\n").expect("written");
        let here = at("home/work/repo/src");
        assert_eq!(nearest(&here, None), Some(file.clone()));
        // A folder of that name is no file.
        fs::create_dir(at("home/work/repo").join(FILE)).expect("made");
        assert_eq!(nearest(&here, None), Some(file.clone()));
        assert_eq!(nearest(&here, Some(&at("home/work/repo"))), None);
        assert_eq!(nearest(&here, Some(&at("home/work"))), Some(file));
        fs::create_dir(at("home/work/repo/.git")).expect("made");
        assert_eq!(nearest(&here, None), None);
        let own = at("home/work/repo/src").join(FILE);
        fs::write(&own, "").expect("written");
        assert_eq!(nearest(&here, None), Some(own));
    }

    #[test]
    fn a_file_of_another_user_is_not_trusted() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join(FILE);
        fs::write(&file, "").expect("written");
        let owner = fs::metadata(&file).expect("it is there").uid();
        assert!(is_trusted(&file, owner));
        // Those of the system are trusted by all.
        assert_eq!(is_trusted(&file, owner + 1), owner == 0);
        assert!(!is_trusted(&root.path().join("none"), owner));
    }
}
