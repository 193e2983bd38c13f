//! Writing and reading profile files.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Profile, SCHEMA_VERSION};
use crate::load::{self, Limit};
use crate::save;
use crate::text::printable_text;

/// The name of the profile in the folder of a run.
pub const RUN_FILE: &str = "profile.json";

/// Room for ten million spans.
const LIMIT: Limit = Limit {
    bytes: 1 << 30,
    instead: "run fewer tokens, or keep fewer spans (`with_log_capacity`)",
};

impl Profile {
    /// The profile as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        save::to_json(self)
    }

    /// Parses a profile. `path` is only for error messages.
    ///
    /// # Errors
    ///
    /// If it isn't JSON, isn't a profile, or has a newer schema version.
    pub fn from_json(json: &str, path: &Path) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let fault = |source| ProfileError::Json { path: path.to_owned(), source };
        let Version { schema_version: found } = serde_json::from_str(json).map_err(fault)?;
        if found > SCHEMA_VERSION {
            return Err(ProfileError::Newer { path: path.to_owned(), found });
        }
        serde_json::from_str(json).map_err(fault)
    }

    /// Writes the profile to a file, atomically.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        save::write_text(path, &self.to_json())
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })
    }

    /// Writes the profile as a run, to the file [`RUN_FILE`] in `folder`, which is made if it isn't there. All commands of
    /// `brickscope` read a run by its folder: `brickscope show FOLDER`.
    ///
    /// ```
    /// # use brickscope_profile::Profile;
    /// # let folder = std::env::temp_dir().join(format!("brickscope-doc-{}", std::process::id()));
    /// let profile = Profile::empty(Default::default());
    /// profile.save_run(&folder).expect("the folder is new");
    /// assert!(profile.save_run(&folder).is_err(), "it holds a run already");
    /// # std::fs::remove_dir_all(folder).expect("it is ours");
    /// ```
    ///
    /// # Errors
    ///
    /// If the folder holds a run already, or can't be written to.
    pub fn save_run(&self, folder: &Path) -> Result<(), ProfileError> {
        let fault = |source| ProfileError::Io { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(fault)?;
        let path = folder.join(RUN_FILE);
        if path.exists() {
            return Err(fault(std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "this folder already holds a run",
            )));
        }
        self.save(&path)
    }

    /// Writes the profile, like [`save`](Self::save), to the file that the environment variable
    /// `BRICKSCOPE_PROFILE` names, and returns its path. Does nothing if the variable isn't set.
    /// `brickscope flamegraph -- COMMAND` sets it, and combines the spans with the samples that it took.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn save_where_asked(&self) -> Result<Option<PathBuf>, ProfileError> {
        let Some(path) = std::env::var_os("BRICKSCOPE_PROFILE").filter(|path| !path.is_empty())
        else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        self.save(&path)?;
        Ok(Some(path))
    }

    /// Reads a profile from a file or a pipe.
    ///
    /// # Errors
    ///
    /// If the file can't be read or has more than 1 GiB, and for the reasons of [`Profile::from_json`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let json = load::text(path, LIMIT)
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })?;
        Self::from_json(&json, path)
    }
}

/// Why a profile can't be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file can't be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file isn't a profile.
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// The file was written by a newer brickscope.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The system's error for a file that isn't UTF-8 says less.
            Self::Io { path, source } if source.kind() == std::io::ErrorKind::InvalidData => {
                write!(f, "{} is not a brickscope profile: it is not text", path.display())
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Json { path, source } if source.is_eof() => {
                write!(f, "{} is not a whole brickscope profile: {source}", path.display())
            }
            Self::Json { path, source } => {
                // It quotes the file.
                let why = printable_text(&source.to_string());
                write!(f, "{} is not a brickscope profile: {why}", path.display())
            }
            Self::Newer { path, found } => write!(
                f,
                "{} has schema version {found}, but this brickscope reads versions up to \
                 {SCHEMA_VERSION}: use a newer one",
                path.display()
            ),
        }
    }
}

// The messages contain their causes, so there is no `source` that would repeat them.
impl std::error::Error for ProfileError {}
