//! The parts of a lake: which runs are in which files, and how these are named.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use brickscope_analysis::machine_name::{ALL_MACHINES, NO_MACHINE};
use parquet::file::reader::ChunkReader;

use crate::rows::{RUNS, Table, Value, merged_part, run_part};
use crate::table_file;

/// The date and machine of files without rows, by which engines know the columns of empty tables.
const NO_DATE: &str = "1970-01-01";
/// Their name.
const COLUMNS: &str = "columns";

/// The tables whose rows are counted in `runs`, and in which column.
pub(crate) const COUNTS: [(&str, &str); 6] = [
    ("speeds", "speed_rows"),
    ("bricks", "brick_rows"),
    ("durations", "duration_rows"),
    ("passes", "pass_rows"),
    ("spans", "span_rows"),
    ("requests", "request_rows"),
];

/// What is to be up to date in the copy of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The runs that count. Files that are in no run are not looked for.
    Runs,
    /// Every file of every run.
    Files,
}

/// The first and the last day of a question.
pub type Days<'t> = (&'t str, &'t str);

/// No day is left out.
pub const ALL_DAYS: Days<'static> = ("0000-00-00", "9999-99-99");

/// Called with the number of steps that are done, and of all.
pub type Each<'t> = &'t mut dyn FnMut(u64, u64);

/// A folder of files: runs of one day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) date: String,
    pub(crate) whose: Whose,
}

/// Whose runs are in a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    /// Those of one machine, each in files of its own.
    Machine(String),
    /// Those of all machines, merged.
    All,
}

/// Files of one name, one in each table that it has rows of: a run, or many. Of the parts with the same run, the greatest
/// counts: parts are in the order of their texts in the column `part`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) place: Place,
    pub(crate) name: String,
}

impl Whose {
    /// What stands for it in the name of a folder.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Machine(machine) => machine,
            Self::All => ALL_MACHINES,
        }
    }

    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        folder.strip_prefix("machine=").map(|name| match name {
            ALL_MACHINES => Self::All,
            machine => Self::Machine(machine.to_owned()),
        })
    }
}

impl Place {
    /// The name of its folder in the lake.
    pub(crate) fn key(&self, table: &Table) -> String {
        format!("{}/date={}/machine={}", table.name, self.date, self.whose.name())
    }
}

impl Place {
    /// How long nobody must have written to a file that is in no run, before it is taken for a killed writer's: to merge
    /// a large day may take long, and loses all of its runs if it is wrong.
    pub(crate) fn abandoned_after(&self, least: Duration) -> Duration {
        match self.whose {
            Whose::Machine(_) => least,
            Whose::All => least.max(Duration::from_secs(24 * 3600)),
        }
    }
}

impl Part {
    /// The files without rows.
    pub(crate) fn columns() -> Self {
        let whose = Whose::Machine(NO_MACHINE.to_owned());
        Self { place: Place { date: NO_DATE.to_owned(), whose }, name: COLUMNS.to_owned() }
    }

    /// The name of one of its files in the lake.
    pub(crate) fn key(&self, table: &Table) -> String {
        format!("{}/{}.parquet", self.place.key(table), self.name)
    }

    /// The part of a file by its name in the lake, if it is of this table.
    #[cfg(any(test, feature = "object-store"))]
    pub(crate) fn of_key(table: &Table, key: &str) -> Option<Self> {
        let mut names = key.split('/');
        if names.next()? != table.name {
            return None;
        }
        let date = names.next()?.strip_prefix("date=")?;
        let whose = Whose::of_folder(names.next()?)?;
        let name = names.next()?.strip_suffix(".parquet")?;
        // They become names of files.
        let is_name = |name: &str| brickscope_analysis::machine_name::check(name).is_ok();
        let is_plain =
            crate::is_date(date) && (whose == Whose::All || is_name(whose.name())) && is_name(name);
        let part = Self { place: Place { date: date.to_owned(), whose }, name: name.to_owned() };
        (is_plain && names.next().is_none()).then_some(part)
    }

    /// What stands for it in the column `part`.
    pub(crate) fn text(&self) -> String {
        match &self.place.whose {
            Whose::Machine(machine) => run_part(machine, &self.name),
            Whose::All => merged_part(&self.name),
        }
    }

    pub(crate) fn is_merged(&self) -> bool {
        self.place.whose == Whose::All
    }
}

/// The runs in a file of `runs`, each with its machine.
pub(crate) fn machines_in<R: ChunkReader + 'static>(file: R) -> Result<Vec<(String, String)>> {
    let columns = table_file::cells_in(&RUNS, file, &["run_id", "machine_name"])?;
    let mut columns = columns.into_iter().map(Vec::into_iter);
    let runs = columns.next().into_iter().flatten().zip(columns.next().into_iter().flatten());
    let texts =
        |cells| if let (Value::Text(a), Value::Text(b)) = cells { Some((a, b)) } else { None };
    Ok(runs.filter_map(texts).collect())
}

/// How long ago a file was written, by this machine's clock. The copy of an object store has the times of the store.
pub(crate) fn age(file: &Path) -> Option<Duration> {
    let modified = fs::metadata(file).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

/// Whether a file was there and isn't any more.
pub(crate) fn is_gone(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
}

/// The names in a folder; none if it isn't there.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_files_that_a_lake_has_are_taken() {
        for (name, text) in [
            (
                "runs/date=2026-01-31/machine=ci-7/0123456789abcdef.parquet",
                "0 ci-7 0123456789abcdef",
            ),
            (
                "runs/date=2026-01-31/machine=merged/00000001-01234567.parquet",
                "1 00000001-01234567",
            ),
        ] {
            let part = Part::of_key(&RUNS, name).expect("a part");
            assert_eq!((part.place.date.as_str(), part.text().as_str()), ("2026-01-31", text));
            assert_eq!(part.key(&RUNS), name);
        }
        for other in [
            "spans/date=2026-01-31/machine=ci-7/a.parquet",
            "runs/date=2026-01-31/machine=ci-7/a.parquet/b.parquet",
            "runs/date=2026-01-31/machine=ci-7/..parquet",
            "runs/date=2026-01-31/machine=ci-7/.a.parquet",
            "runs/date=2026-01-31/machine=../a.parquet",
            "runs/date=2026-01-31/machine=ci-7\\x/a.parquet",
            "runs/date=../machine=ci-7/a.parquet",
            "runs/date=1970-01-01/machine=none/columns.parquet",
            "runs/date=2026-01-31/a.parquet",
            "lake.json",
        ] {
            assert_eq!(Part::of_key(&RUNS, other), None, "{other}");
        }
    }

    #[test]
    fn parts_are_in_the_order_of_their_texts() {
        let part = |date: &str, machine: Option<&str>, name: &str| {
            let whose = machine.map_or(Whose::All, |machine| Whose::Machine(machine.to_owned()));
            Part { place: Place { date: date.to_owned(), whose }, name: name.to_owned() }
        };
        let day = "2026-01-31";
        let parts = [
            part(day, Some("a"), "f0"),
            part(day, Some("a-b"), "00"),
            part(day, Some("a.b"), "00"),
            part(day, Some("n0"), "00"),
            part(day, Some("n0"), "01"),
            part(day, Some("zeta"), "00"),
            part(day, None, "00000001-ff"),
            part(day, None, "00000002-00"),
        ];
        assert!(parts.is_sorted());
        assert!(parts.iter().map(Part::text).is_sorted());
    }
}
