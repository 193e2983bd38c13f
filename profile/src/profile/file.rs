//! Profiles as files.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Profile, SCHEMA_VERSION};
use crate::save;

impl Profile {
    /// The profile as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        save::to_json(self)
    }

    /// Reads a profile back. `path` is only for messages.
    ///
    /// # Errors
    ///
    /// Where it isn't JSON, isn't a profile, or is of a newer schema.
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

    /// Writes the profile to a file: the whole of it, or nothing.
    ///
    /// # Errors
    ///
    /// Where the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        save::write_text(path, &self.to_json())
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })
    }

    /// Writes the profile to the file that the environment variable `BRICKSCOPE_PROFILE` names, as
    /// [`save`](Self::save) does, and returns its path; does nothing if there is none. `brickscope
    /// flamegraph -- COMMAND` sets it, and lays the samples that it took beside the spans.
    ///
    /// # Errors
    ///
    /// Where the file can't be written.
    pub fn save_where_asked(&self) -> Result<Option<PathBuf>, ProfileError> {
        let Some(path) = std::env::var_os("BRICKSCOPE_PROFILE").filter(|path| !path.is_empty())
        else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        self.save(&path)?;
        Ok(Some(path))
    }

    /// Reads a profile from a file.
    ///
    /// # Errors
    ///
    /// Where the file can't be read, and as [`Profile::from_json`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let json = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Io { path: path.to_owned(), source })?;
        Self::from_json(&json, path)
    }
}

/// A profile that can't be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file can't be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
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
            // Of text that isn't any the system has only this to say.
            Self::Io { path, source } if source.kind() == std::io::ErrorKind::InvalidData => {
                write!(f, "{} is not a brickscope profile: it is no text", path.display())
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Json { path, source } if source.is_eof() => {
                write!(f, "{} is not a whole brickscope profile: {source}", path.display())
            }
            Self::Json { path, source } => {
                write!(f, "{} is not a brickscope profile: {source}", path.display())
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

// The sentences hold their causes, so there is no `source` that would say them again.
impl std::error::Error for ProfileError {}
