//! Queries of a lake by DuckDB: its library in this process, or its command.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Host;
use crate::rows::{ColumnKind, REQUESTS, RUNS, TABLES, Table};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::value::RawValue;

use crate::HIDDEN;
use crate::library::{Database, Texts};
use crate::part::{ALL_DAYS, Days, Part, is_gone};
use crate::store::Lake;
use crate::table_file;
use brickscope_profile::text::printable_text;

/// Names DuckDB's library or command.
const VARIABLE: &str = "BRICKSCOPE_DUCKDB";

/// What runs the queries.
enum Engine {
    Library(Box<Database>),
    Command(PathBuf),
}

/// The rows of a query, as texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// What each row has.
    pub columns: Vec<AnswerColumn>,
    /// `None` is `NULL`.
    pub rows: Vec<Vec<Option<String>>>,
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerColumn {
    /// Its name.
    pub name: String,
    /// Whether its texts are numbers.
    pub is_number: bool,
    /// Whether its texts are `true` and `false`.
    pub is_flag: bool,
}

/// Why a library can't be loaded; what most loaders say names it already.
fn cannot_load(library: &Path, error: &anyhow::Error) -> String {
    let (name, why) = (library.display().to_string(), format!("{error:#}"));
    if why.contains(&name) { why } else { format!("{name}: {why}") }
}

impl Engine {
    /// DuckDB's library if there is one, or else its command.
    fn find() -> Result<Self> {
        if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
            let path = PathBuf::from(&named);
            return match is_library(&path) {
                true => Database::load(&path)
                    .map(|database| Self::Library(Box::new(database)))
                    .map_err(|error| anyhow!("{VARIABLE}: {}", cannot_load(&path, &error))),
                false => Ok(Self::Command(path)),
            };
        }
        let name = libloading::library_filename("duckdb");
        let why = match Database::load(Path::new(&name)) {
            Ok(database) => return Ok(Self::Library(Box::new(database))),
            Err(error) => cannot_load(Path::new(&name), &error),
        };
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let command = std::env::split_paths(&folders).map(|folder| folder.join("duckdb"));
        match command.into_iter().find(|path| path.is_file()) {
            Some(path) => Ok(Self::Command(path)),
            None => bail!(
                "there is no DuckDB here: `pip install duckdb-cli` or https://duckdb.org/install has its command, and \
                {VARIABLE}=PATH names the command or the library elsewhere. {why}"
            ),
        }
    }

    /// What it is, for people.
    fn name(&self) -> String {
        match self {
            Self::Library(database) => format!("DuckDB {} in this process", database.version()),
            Self::Command(path) => path.display().to_string(),
        }
    }

    /// Asks a query, which may read what `prelude` names and the files in `root`, and nothing else.
    fn ask(&self, host: &Host, root: &Path, prelude: &str, query: &str) -> Result<Answer> {
        // The function takes a single `SELECT`, and refuses all else: not even what ends this one is a statement.
        let query = format!("query({})", quoted(query));
        let describe = format!("DESCRIBE SELECT * FROM {query}");
        // As texts, so that all types come alike.
        let texts = format!("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {query}");
        // What doesn't fit into memory goes there; by itself DuckDB takes the working directory.
        let spilled = (host.temporary)()?;
        let folder = quoted(&spilled.path().to_string_lossy());
        let prelude = format!("SET temp_directory = {folder};\n{prelude}\n{}", held_to(root)?);
        let ((_, described), (names, rows)) = match self {
            Self::Library(database) => {
                database.run(&prelude)?;
                let of_types = "SELECT column_name, column_type FROM";
                let described = database.texts(&format!("{of_types} ({describe})"))?;
                (described, database.texts(&texts)?)
            }
            Self::Command(path) => by_command(path, &prelude, &describe, &texts)?,
        };
        let columns = names.into_iter().enumerate().map(|(at, name)| {
            let cell = described.get(at).and_then(|row| row.get(1));
            let kind = cell.and_then(Option::as_deref).unwrap_or_default();
            let is_number = ["INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMERIC", "REAL"]
                .iter()
                .any(|number| kind.contains(number) && !kind.contains('['));
            AnswerColumn { name, is_number, is_flag: kind == "BOOLEAN" }
        });
        Ok(Answer { columns: columns.collect(), rows })
    }
}

/// How often a question is asked whose files are merged and deleted meanwhile.
const TRIES: u32 = 5;

/// Asks a query of the lake's tables, as far as runs of these days are in them. `params` are statements that it needs. Runs
/// with a damaged file are left out, and named.
pub fn answer(lake: &Lake, days: Days<'_>, params: &str, query: &str) -> Result<Answer> {
    let root = root(lake);
    let mut damaged = BTreeSet::new();
    let mut tries = 1;
    loop {
        let prelude = files_known(&root, days, params, &sound(lake, days, &damaged)?)?;
        let engine = Engine::find()?;
        let error = match engine.ask(lake.host(), &root, &prelude, query) {
            Err(error) => error.context(engine.name()),
            answer => return answer,
        };
        let said = format!("{error:#}");
        if said.contains("unrecognized configuration parameter") {
            return Err(error
                .context("DuckDB 1.2 or newer is needed, which can be held to the lake's files"));
        }
        let files = named(&said, &root);
        if files.is_empty() {
            return Err(error);
        }
        // What was merged and deleted meanwhile is in another file.
        if tries < TRIES && files.iter().any(|file| !Path::new(file).exists()) {
            tries += 1;
            continue;
        }
        let before = damaged.len();
        find_damaged(lake, days, &files, &root, &mut damaged)?;
        if damaged.len() == before {
            return Err(error);
        }
    }
}

/// The files of the lake that an error names.
fn named<'t>(said: &'t str, root: &Path) -> Vec<&'t str> {
    const ENDS: &str = ".parquet";
    let root = root.to_string_lossy();
    let begins = said.match_indices(&*root).map(|(at, _)| &said[at..]);
    begins.filter_map(|rest| rest.find(ENDS).map(|end| &rest[..end + ENDS.len()])).collect()
}

/// Adds the parts of which one of these files can't be read: by us, or by DuckDB if it is asked for nothing else.
fn find_damaged(
    lake: &Lake,
    days: Days<'_>,
    files: &[&str],
    root: &Path,
    damaged: &mut BTreeSet<Part>,
) -> Result<()> {
    for part in parts(lake, days)? {
        for table in &TABLES {
            let file = lake.file(table, &part);
            let path = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
            let path = path.to_string_lossy();
            if damaged.contains(&part) || !files.contains(&&*path) {
                continue;
            }
            let why = match table_file::check(table, &file) {
                Err(error) if is_gone(&error) => continue,
                Err(error) => format!("{error:#}"),
                Ok(()) => {
                    let alone =
                        format!("SELECT max(COLUMNS(*)) FROM read_parquet([{}])", quoted(&path));
                    match Engine::find()?.ask(lake.host(), root, "", &alone) {
                        Ok(_) => continue,
                        Err(error) => format!("{error:#}"),
                    }
                }
            };
            let why = why.lines().next().unwrap_or_default();
            (lake.host().tell)(&format!("note: left out: {}", printable_text(why)));
            damaged.insert(part.clone());
        }
    }
    Ok(())
}

/// The parts of these days.
fn parts(lake: &Lake, days: Days<'_>) -> Result<Vec<Part>> {
    let all = lake.days(&RUNS)?.into_iter().filter(|day| (days.0..=days.1).contains(&&**day));
    let of_days = all.map(|day| lake.parts_of(&day)).collect::<Result<Vec<_>>>()?;
    Ok(of_days.into_iter().flatten().collect())
}

/// Tables without files, in a lake that was made before they were there.
fn without_files(lake: &Lake) -> Result<BTreeMap<&'static str, Vec<PathBuf>>> {
    let columns = Part::columns();
    // Of an object store there may be no copy yet, which says nothing of it.
    let is_here = lake.has(&RUNS, &columns)?;
    if !is_here || lake.has(&REQUESTS, &columns)? {
        return Ok(BTreeMap::new());
    }
    Ok(match lake.has_rows_of(&REQUESTS)? {
        true => BTreeMap::new(),
        false => BTreeMap::from([(REQUESTS.name, Vec::new())]),
    })
}

/// The files of each table without those of damaged parts; none where there are no such parts, and so all are meant.
fn sound(
    lake: &Lake,
    days: Days<'_>,
    damaged: &BTreeSet<Part>,
) -> Result<BTreeMap<&'static str, Vec<PathBuf>>> {
    if damaged.is_empty() {
        return without_files(lake);
    }
    let mut files = BTreeMap::new();
    let parts = parts(lake, days)?;
    for table in &TABLES {
        let sound = parts.iter().filter(|part| !damaged.contains(part));
        let of_table = sound.map(|part| lake.file(table, part)).filter(|file| file.exists());
        let of_table: Vec<PathBuf> =
            of_table.map(|file| std::path::absolute(&file).unwrap_or(file)).collect();
        ensure!(
            !of_table.is_empty() || table.name != RUNS.name,
            "each run of the lake is damaged: `brickscope lake check` says how"
        );
        files.insert(table.name, of_table);
    }
    Ok(files)
}

/// Statements after which no file outside of a folder is read, no extension is loaded, and none of this can be undone.
fn held_to(root: &Path) -> Result<String> {
    let mut folder = utf8(root)?.to_owned();
    if !folder.ends_with('/') {
        folder.push('/');
    }
    Ok(format!(
        "SET allowed_directories = [{}];\nSET enable_external_access = false;\n\
        SET autoload_known_extensions = false;\nSET autoinstall_known_extensions = false;\n\
        SET allow_community_extensions = false;\nSET lock_configuration = true;",
        quoted(&folder)
    ))
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: its name isn't UTF-8", path.display()))
}

/// The folder that DuckDB reads: the lake, or the copy of an object store.
fn root(lake: &Lake) -> PathBuf {
    std::path::absolute(lake.root()).unwrap_or_else(|_| lake.root().to_owned())
}

/// A text in SQL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.contains(".so") || name.ends_with(".dylib") || name.ends_with(".dll")
}

/// Stands for `NULL` in the command's output: no text of ours has this byte.
const NULL: &str = "\u{1}";

fn by_command(path: &Path, prelude: &str, describe: &str, texts: &str) -> Result<(Texts, Texts)> {
    const BETWEEN: &str = "brickscope: the other result";
    let script = format!(
        ".mode csv\n.headers on\n.nullvalue \"{NULL}\"\n{prelude}\n{describe};\n.print \"{BETWEEN}\"\n{texts};\n"
    );
    let mut child = Command::new(path)
        .args(["-batch", "-bail", "-no-init", ":memory:"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't run {}", path.display()))?;
    let mut stdin = child.stdin.take().context("a pipe")?;
    // From another thread: it may write before it has read all.
    let writing = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().with_context(|| path.display().to_string())?;
    // A command that ends early closes the pipe; its own error says why.
    let _ = writing.join();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.trim());
    }
    let out = String::from_utf8(output.stdout).context("DuckDB's output isn't UTF-8")?;
    let (described, rows) = out
        .split_once(&format!("{BETWEEN}\n"))
        .or_else(|| out.split_once(&format!("{BETWEEN}\r\n")))
        .with_context(|| format!("unexpected output of {}", path.display()))?;
    Ok((csv(described), csv(rows)))
}

/// Reads CSV (RFC 4180) with a line of names.
fn csv(text: &str) -> Texts {
    let mut records: Vec<Vec<Option<String>>> = Vec::new();
    let mut record = Vec::new();
    let mut cell = String::new();
    let mut chars = text.chars().peekable();
    let mut is_quoted = false;
    let end_cell = |cell: &mut String, record: &mut Vec<Option<String>>| {
        let cell = std::mem::take(cell);
        record.push((cell != NULL).then_some(cell));
    };
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            c if is_quoted => cell.push(c),
            ',' => end_cell(&mut cell, &mut record),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                end_cell(&mut cell, &mut record);
                records.push(std::mem::take(&mut record));
            }
            c => cell.push(c),
        }
    }
    if !cell.is_empty() || !record.is_empty() {
        end_cell(&mut cell, &mut record);
        records.push(record);
    }
    if records.is_empty() {
        return Texts::default();
    }
    let names = records.remove(0).into_iter().map(Option::unwrap_or_default).collect();
    (names, records)
}

impl Answer {
    /// An object a row, in an array.
    pub fn json(&self) -> Result<String> {
        let mut out = String::from("[");
        for (nth, row) in self.rows.iter().enumerate() {
            out.push_str(if nth == 0 { "\n  {" } else { ",\n  {" });
            for (at, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                out.push_str(&serde_json::to_string(&column.name)?);
                out.push_str(": ");
                let plain = cell.as_deref().filter(|_| column.is_number || column.is_flag);
                match (cell, plain.and_then(|plain| serde_json::from_str::<&RawValue>(plain).ok()))
                {
                    (None, _) => out.push_str("null"),
                    (Some(_), Some(value)) => out.push_str(value.get()),
                    (Some(text), None) => out.push_str(&serde_json::to_string(text)?),
                }
            }
            out.push('}');
        }
        out.push_str(if self.rows.is_empty() { "]\n" } else { "\n]\n" });
        Ok(out)
    }

    /// CSV (RFC 4180) with a line of names; `NULL` is empty.
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let mut out = line(self.columns.iter().map(|column| quoted(&column.name)).collect());
        for row in &self.rows {
            let cells = row.iter().map(|cell| quoted(cell.as_deref().unwrap_or_default()));
            out.push_str(&line(cells.collect()));
        }
        out
    }
}

/// The statements that make the lake's tables known to DuckDB, as far as runs of these days are in them, for whoever runs
/// them elsewhere: with the files where they are, those of an object store by its URL.
pub fn prelude(lake: &Lake, days: Days<'_>, params: &str) -> Result<String> {
    let only = without_files(lake)?;
    match lake.is_folder() {
        true => files_known(&root(lake), days, params, &only),
        false => files_known(Path::new(&lake.name()), days, params, &only),
    }
}

/// A table of which no file can be read.
fn without_rows(table: &Table) -> String {
    let columns = table.columns.iter().map(|column| {
        let kind = match column.kind {
            ColumnKind::Text => "VARCHAR",
            ColumnKind::Int => "BIGINT",
            ColumnKind::Real => "DOUBLE",
            ColumnKind::Flag => "BOOLEAN",
        };
        format!("CAST(NULL AS {kind}) AS \"{}\"", column.name)
    });
    let columns: Vec<String> =
        columns.chain(["CAST(NULL AS VARCHAR) AS date".to_owned()]).collect();
    format!("(SELECT {} WHERE false)", columns.join(", "))
}

/// `only` has the files of each table, if they aren't all.
///
/// `live` comes first: what becomes part of the lake after that is seen by no query of the session, neither whole nor
/// half.
fn files_known(
    root: &Path,
    days: Days<'_>,
    params: &str,
    only: &BTreeMap<&'static str, Vec<PathBuf>>,
) -> Result<String> {
    let text = utf8(root)?;
    ensure!(
        !text.contains(['*', '?', '[', ']', '{', '}']),
        "{text}: DuckDB takes *, ?, [], {{}} in a name for a pattern: name a link to the lake without them"
    );
    let files = |table: &Table| {
        let pattern = root.join(table.name).join("*").join("*").join("*.parquet");
        let files = match only.get(table.name) {
            None => quoted(&pattern.to_string_lossy()),
            Some(files) if files.is_empty() => return without_rows(table),
            Some(files) => {
                let files = files.iter().map(|file| quoted(&file.to_string_lossy()));
                format!("[{}]", files.collect::<Vec<_>>().join(", "))
            }
        };
        format!("read_parquet({files}, hive_partitioning = true, hive_types_autocast = false)")
    };
    // DuckDB opens no file of other days.
    let bounds = [(">=", days.0, ALL_DAYS.0), ("<=", days.1, ALL_DAYS.1)];
    let of_days: Vec<String> = bounds
        .iter()
        .filter(|(_, day, all)| day != all)
        .map(|(is, day, _)| format!("raw.date {is} {}", quoted(day)))
        .collect();
    let of_days = match &of_days[..] {
        [] => String::new(),
        _ => format!("\nWHERE {}", of_days.join(" AND ")),
    };
    let mut sql = format!(
        "CREATE TEMP TABLE live AS SELECT run_id, max(part) AS part\nFROM {} AS raw{of_days} GROUP BY run_id;\n",
        files(&RUNS)
    );
    for table in &TABLES {
        let columns: Vec<String> = table
            .columns
            .iter()
            .map(|column| column.name)
            .filter(|name| !HIDDEN.contains(name))
            .map(|name| format!("raw.\"{name}\""))
            .chain(["raw.date".to_owned(), "raw.machine_name AS machine".to_owned()])
            .collect();
        sql.push_str(&format!(
            "CREATE TEMP VIEW {} AS SELECT {}\nFROM {} AS raw\n\
            JOIN live ON raw.run_id = live.run_id AND raw.part = live.part{of_days};\n",
            table.name,
            columns.join(", "),
            files(table)
        ));
    }
    sql.push_str(params);
    Ok(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_cannot_be_loaded_is_named_once() {
        let name = Path::new("libduckdb.so");
        let said = cannot_load(name, &anyhow!("libduckdb.so: cannot open shared object file"));
        assert_eq!(said, "libduckdb.so: cannot open shared object file");
        assert_eq!(cannot_load(name, &anyhow!("no such file")), "libduckdb.so: no such file");
    }
}
