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

mod answer_text;
#[cfg(feature = "object-store")]
mod bucket;
#[cfg(not(feature = "object-store"))]
#[path = "no_bucket.rs"]
mod bucket;
mod check;
mod collect;
mod compact;
mod engine;
mod library;
mod questions;
mod store;
mod table_file;
mod works;

pub(crate) use self::answer_text::table;
pub(crate) use self::check::check;
pub(crate) use self::collect::{About, collect};
pub(crate) use self::compact::compact;
pub(crate) use self::engine::{answer, prelude, quoted};
pub(crate) use self::questions::QUESTIONS;
pub(crate) use self::store::{ALL_DAYS, Days, Lake};
pub(crate) use self::works::{LEAST_DIGITS, NewRuns, Wanted, named, unify, works};

/// Columns by which readers choose the part that counts, and the machine's name in the file: queries see `machine`.
const HIDDEN: [&str; 2] = ["part", "machine_name"];

/// The tables and their columns, in Markdown.
pub(crate) fn schema_markdown() -> String {
    use brickscope_analysis::lake::{Kind, TABLES};

    let mut text = String::new();
    // What a reader looks for first comes first; it is written last.
    for table in TABLES.iter().rev() {
        text.push_str(&format!("### `{}`\n\n{}\n\n", table.name, table.meaning.trim()));
        text.push_str("| column | type | meaning |\n|---|---|---|\n");
        for column in table.columns.iter().filter(|column| !HIDDEN.contains(&column.name)) {
            let kind = match column.kind {
                Kind::Text => "text",
                Kind::Int => "bigint",
                Kind::Real => "double",
                Kind::Flag => "boolean",
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
        let page = include_str!("../../../docs/fleet.md");
        let schema = super::schema_markdown();
        assert!(page.contains(&schema), "docs/fleet.md lacks what `brickscope lake schema` prints");
    }
}
