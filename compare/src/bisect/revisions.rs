//! What a search is among: commits, or versions that somebody else built.

use serde::Serialize;

/// What a search is among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Commits of a repository, which are built.
    Commit,
    /// Versions that somebody else built, which are fetched.
    Version,
}

impl Kind {
    /// One of them, in a word.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Version => "version",
        }
    }

    /// A revision as it is told.
    #[must_use]
    pub fn told(self, revision: &str) -> &str {
        match self {
            Self::Commit => short(revision),
            Self::Version => revision,
        }
    }
}

/// A commit, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// All digits of its hash.
    pub hash: String,
    /// The first line of its message.
    pub subject: String,
    /// Its author, as git has it.
    pub author: String,
    /// When it was written.
    pub date: String,
}

/// The first nine digits of a hash.
#[must_use]
pub fn short(hash: &str) -> &str {
    hash.get(..9).unwrap_or(hash)
}
