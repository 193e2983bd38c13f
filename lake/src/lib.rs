//! A lake: Parquet files with the runs of many machines in a folder or an object store, which SQL engines read.
//!
//! ```text
//! LAKE/TABLE/date=2026-01-31/machine=ci-7/RUN.parquet
//! LAKE/TABLE/date=2026-01-31/machine=merged/NAME.parquet
//! ```
//!
//! A part is a run of a machine, or many runs of a day. Each file is written under another name and renamed when it
//! is whole, and a run's file in `runs` comes last. A run is in the lake from that moment on; rows of other tables
//! without one in `runs` are of a writer that was killed. Where a run is in several parts, the greatest by its column
//! `part` counts, so that it is never seen twice while parts are merged. Readers that choose by `live` (see `engine`) see
//! each run once, and whole, unless parts are merged and deleted within seconds. `bucket` says how that is kept for a lake in an object store, which is copied before it is
//! read.

//!
//! # Map
//!
//! | file or folder | contents |
//! |---|---|
//! | `rows/` | the tables: `table.rs` their columns, the rest their rows for one run |
//! | `part.rs` | which runs are in which files, and how these are named |
//! | `store.rs` | the folder: files written and renamed |
//! | `table_file.rs` | one Parquet file of a table |
//! | `collect.rs`, `compact.rs`, `check.rs` | adding runs, merging files, finding damage |
//! | `bucket/` | a lake in an object store, by the feature `object-store` |
//! | `engine.rs`, `library.rs` | queries by DuckDB: its command, or its library |
//! | `questions/`, `no_rows.rs` | the questions of `brickscope lake`, as SQL; why one has no rows |
//! | `works.rs`, `order.rs` | runs as observations of commits on machines; commits in git's order |
//! | `bricks.rs` | what bricks take at one commit beside another |
//! | `circumstances.rs` | what these runs were made beside, which their speeds don't say |
//! | `spans.rs`, `requests.rs`, `columns.rs` | no lake: the spans and requests of one profile as Parquet files |

mod answer_text;
mod bricks;
#[cfg(feature = "object-store")]
mod bucket;
#[cfg(not(feature = "object-store"))]
#[path = "no_bucket.rs"]
mod bucket;
mod check;
mod circumstances;
mod collect;
mod columns;
mod compact;
mod engine;
mod library;
mod no_rows;
mod order;
mod part;
mod questions;
pub mod requests;
pub mod rows;
pub mod spans;
mod store;
mod table_file;
mod works;

pub use answer_text::table;
pub use bricks::bricks_between;
pub use check::check;
pub use circumstances::{Circumstances, circumstances, doubts_of};
pub use collect::{About, collect};
pub use compact::compact;
pub use engine::{Answer, AnswerColumn, answer, prelude};
pub use no_rows::why_no_rows;
pub use order::{not_both, of_commit, ordered};
pub use part::{ALL_DAYS, Days, Each};
pub use questions::{Asked, QUESTIONS};
pub use store::Lake;
pub use works::{NewRuns, OfWork, Wanted, Works, named, unify, works};

use std::path::{Path, PathBuf};

use anyhow::Result;
use brickscope_analysis::receipt::Receipt;
use brickscope_profile::Profile;
use tempfile::TempDir;

/// What a lake takes from the program around it.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// The folder for copies of lakes in object stores.
    pub cache: fn() -> Result<PathBuf>,
    /// A new folder that only this user can enter, for what does not fit into memory.
    pub temporary: fn() -> Result<TempDir>,
    /// Reads the profile of a run, given its folder or the file itself.
    pub load: fn(&Path) -> Result<Profile>,
    /// Names the machine that a run is of, where neither the run nor the caller states it.
    pub machine: fn(Option<&Profile>, Option<&Receipt>) -> Result<String>,
    /// Says a sentence, at once: what is waited for, or left out.
    pub tell: fn(&str),
}

/// Whether a text is like `2026-01-31`.
#[cfg(any(test, feature = "object-store"))]
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().zip(b"0000-00-00").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == *form,
        })
}

/// Columns by which readers choose the part that counts, the machine's name in the file (queries see `machine`), and what runs
/// lack that were collected before there were requests.
const HIDDEN: [&str; 3] = ["part", "machine_name", "request_rows"];

/// The tables and their columns, in Markdown.
#[must_use]
pub fn schema_markdown() -> String {
    use crate::rows::{ColumnKind, TABLES};

    let mut text = String::new();
    // What a reader looks for first comes first; it is written last.
    for table in TABLES.iter().rev() {
        text.push_str(&format!("### `{}`\n\n{}\n\n", table.name, table.meaning.trim()));
        text.push_str("| column | type | meaning |\n|---|---|---|\n");
        for column in table.columns.iter().filter(|column| !HIDDEN.contains(&column.name)) {
            let kind = match column.kind {
                ColumnKind::Text => "text",
                ColumnKind::Int => "bigint",
                ColumnKind::Real => "double",
                ColumnKind::Flag => "boolean",
            };
            let optional = if column.is_optional { " or `NULL`" } else { "" };
            let meaning = column.meaning.trim();
            text.push_str(&format!("| `{}` | {kind}{optional} | {meaning} |\n", column.name));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_has_every_column() {
        let page = include_str!("../schema.md");
        let schema = super::schema_markdown();
        assert!(page.contains(&schema), "schema.md lacks what `brickscope lake schema` prints");
    }
}
