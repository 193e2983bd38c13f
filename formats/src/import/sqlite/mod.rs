//! SQLite databases of profilers: the export of Nsight Systems, and rocpd, which rocprofv3 writes.
//!
//! A file may be damaged, or made to harm: only plain tables are read, row by row and never joined, and none
//! of the file's views. Its program's versions have different columns: one that a table lacks is null.

mod nsight;
mod rocpd;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use brickscope_profile::Profile;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::kineto::EventKind;
use super::trace::{MOST_EVENTS, Timed, Trace};
use super::{At, ImportError, Options, breaks_off, left_out};

/// The most tables that are looked at.
const MOST_TABLES: usize = 1 << 12;

/// The most rows of all tables together: a small file can have tables that share their pages.
const MOST_ROWS: usize = 1 << 27;

/// The most bytes of a text. Names of kernels have some hundreds, those with types of C++ a few thousand.
const MOST_LETTERS: usize = 1 << 14;

/// The most bytes of the texts that a file keeps in a table of their own.
const MOST_TEXT: usize = 1 << 29;

/// Reads a database.
pub(super) fn read(path: &Path, at: &At<'_>, options: &Options) -> Result<Profile, ImportError> {
    let mut base = Base::open(path, at)?;
    let has = |begin: &str| base.tables.keys().any(|table| table.starts_with(begin));
    if has("rocpd_") {
        return rocpd::read(&mut base, options);
    }
    if has("StringIds") || has("CUPTI_ACTIVITY_KIND_") || has("TARGET_INFO_") {
        return nsight::read(&mut base, options);
    }
    let names: Vec<String> = base.tables.keys().take(5).map(|name| format!("`{name}`")).collect();
    let also = base.also_unread();
    Err(at.whole(match (names.is_empty(), &base.damage[..]) {
        (true, []) => format!("is a database (SQLite) without a table{also}"),
        (true, [(_, why), ..]) => format!("is a database (SQLite) that can't be read: {why}"),
        (false, _) => format!(
            "is a database (SQLite), but neither of Nsight Systems nor of rocprofv3: its tables are {}{}{also}",
            names.join(", "),
            if base.tables.len() > names.len() { ", and more" } else { "" }
        ),
    }))
}

/// A database that is open.
struct Base<'a> {
    at: &'a At<'a>,
    connection: Connection,
    /// Its tables, each with its columns.
    tables: BTreeMap<String, Vec<String>>,
    /// Tables of which the rest can't be read, and why.
    damage: Vec<(String, String)>,
    /// What of it is not looked at.
    unread: Vec<(String, u64)>,
    /// How many rows were read.
    rows: usize,
}

impl<'a> Base<'a> {
    fn open(path: &Path, at: &'a At<'a>) -> Result<Self, ImportError> {
        let cannot = |error: rusqlite::Error| {
            let is_cut = error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt);
            let why = if is_cut { ": is it whole?" } else { "" };
            at.whole(format!("is a database (SQLite) that can't be read: {error}{why}"))
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(uri(path), flags).map_err(cannot)?;
        for (config, is_on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        ] {
            connection.set_db_config(config, is_on).map_err(cannot)?;
        }
        let listed = Listed::of(&connection).map_err(cannot)?;
        let (tables, damage, unread) = (BTreeMap::new(), Vec::new(), listed.unread(path));
        let mut base = Self { at, connection, tables, damage, unread, rows: 0 };
        for name in listed.names {
            match columns(&base.connection, &name) {
                Ok(columns) => {
                    base.tables.insert(name, columns);
                }
                Err(error) => base.damage.push((name, error.to_string())),
            }
        }
        Ok(base)
    }

    fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.iter().any(|of| of == column))
    }

    /// Calls `take` with each row of a table, whose values are those of `columns`. There are none if there is
    /// no such table.
    ///
    /// # Errors
    ///
    /// If there are more rows than a trace may have events, or too many with those of the tables before.
    fn rows(
        &mut self,
        table: &str,
        columns: &[&str],
        mut take: impl FnMut(&Row<'_>),
    ) -> Result<(), ImportError> {
        if !self.has(table) {
            return Ok(());
        }
        let values: Vec<String> = columns
            .iter()
            .map(|column| match self.has_column(table, column) {
                true => format!("\"{column}\""),
                false => "NULL".to_owned(),
            })
            .collect();
        let from = table.replace('"', "\"\"");
        let query =
            format!("SELECT {} FROM \"{from}\" LIMIT {}", values.join(", "), MOST_EVENTS + 1);
        let mut count = 0_usize;
        let result = self.connection.prepare(&query).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                count += 1;
                take(row);
            }
            Ok(())
        });
        if let Err(error) = result {
            self.damage.push((table.to_owned(), error.to_string()));
        }
        if count > MOST_EVENTS {
            return Err(self.at.place(table, format!("there are more than {MOST_EVENTS} rows")));
        }
        self.rows = self.rows.saturating_add(count);
        if self.rows > MOST_ROWS {
            return Err(self.at.whole(format!("its tables have more than {MOST_ROWS} rows")));
        }
        Ok(())
    }

    /// Fails if there is more in a trace than can be kept.
    fn check_size(&self, trace: &Trace) -> Result<(), ImportError> {
        trace.too_much().map_or(Ok(()), |fault| Err(self.at.whole(fault)))
    }

    /// The texts of a table, by their numbers.
    fn texts(
        &mut self,
        table: &str,
        columns: [&str; 2],
    ) -> Result<HashMap<i64, String>, ImportError> {
        let mut texts = HashMap::new();
        let mut bytes = 0_usize;
        self.rows(table, &columns, |row| {
            if let (Some(id), Some(text)) = (number(row, 0), text(row, 1)) {
                bytes = bytes.saturating_add(text.len());
                if bytes <= MOST_TEXT {
                    texts.insert(id, text.into_owned());
                }
            }
        })?;
        if bytes > MOST_TEXT {
            let fault = format!("there are more than {} MiB of names", MOST_TEXT >> 20);
            return Err(self.at.place(table, fault));
        }
        Ok(texts)
    }

    /// Fails if nothing was read.
    fn check(&self, trace: &Trace, nothing: &str) -> Result<(), ImportError> {
        self.check_size(trace)?;
        match &self.damage[..] {
            _ if !trace.timed.is_empty() => Ok(()),
            [] => Err(self.at.whole(nothing.to_owned() + &self.also_unread())),
            [(table, why), ..] => Err(self.at.place(table.clone(), why.clone())),
        }
    }

    /// What isn't looked at, behind the sentence that there is nothing in it.
    fn also_unread(&self) -> String {
        let unread: Vec<&str> = self.unread.iter().map(|(what, _)| what.as_str()).collect();
        if unread.is_empty() { String::new() } else { format!("; not read: {}", unread.join("; ")) }
    }

    /// Notes what can't be read of it, and what isn't looked at.
    fn note_damage(&self, profile: &mut Profile) {
        for (what, count) in &self.unread {
            left_out(profile, what, *count);
        }
        for (table, why) in &self.damage {
            let what = format!("the rest of the table {table}, which is damaged ({why})");
            breaks_off(profile, &what, 1);
        }
    }
}

/// The tables that a database lists.
#[derive(Default)]
struct Listed {
    names: Vec<String>,
    /// Those beyond the most that are looked at.
    beyond: u64,
    /// Those that begin at the page of another one, and so would have its rows once more.
    shared: u64,
}

impl Listed {
    fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let tables =
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
        let mut statement = connection.prepare(tables)?;
        let mut rows = statement.query([])?;
        let mut listed = Self::default();
        let mut pages: HashSet<i64> = HashSet::new();
        while let Some(row) = rows.next()? {
            let (Some(name), Some(page)) = (text(row, 0), number(row, 1)) else { continue };
            if pages.contains(&page) {
                listed.shared += 1;
            } else if pages.len() == MOST_TABLES {
                listed.beyond += 1;
            } else {
                pages.insert(page);
                listed.names.push(name.into_owned());
            }
        }
        Ok(listed)
    }

    /// What isn't looked at of a database.
    fn unread(&self, path: &Path) -> Vec<(String, u64)> {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let has_more = std::fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0);
        let (file, wal) = (path.display(), Path::new(&wal).display());
        [
            (
                format!(
                    "what is in {wal} and not yet in the file: `sqlite3 {file} 'PRAGMA wal_checkpoint'` brings it there"
                ),
                u64::from(has_more),
            ),
            (format!("tables beyond the first {MOST_TABLES}"), self.beyond),
            ("tables that lie where another one does".to_owned(), self.shared),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
    }
}

/// The names of a table's columns.
fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let mut rows = statement.query([table])?;
    let mut columns = Vec::new();
    while let Some(row) = rows.next()? {
        columns.extend(text(row, 0).map(Cow::into_owned));
    }
    Ok(columns)
}

/// The address of a file that SQLite opens without locks, and without looking for other files beside it.
fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    let path = path.as_os_str().as_encoded_bytes();
    let is_drive = cfg!(windows) && path.get(1) == Some(&b':');
    // What follows two slashes would be a host.
    if is_drive {
        uri.push_str("///");
    } else if path.starts_with(b"/") || cfg!(windows) && path.starts_with(b"\\") {
        uri.push_str("//");
    }
    for &byte in path {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?mode=ro&immutable=1"
}

/// An integer of a row.
fn number(row: &Row<'_>, column: usize) -> Option<i64> {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(number)) => Some(number),
        _ => None,
    }
}

/// A number of a row that can't be negative.
fn count(row: &Row<'_>, column: usize) -> Option<u64> {
    number(row, column).and_then(|number| u64::try_from(number).ok())
}

/// A number of 32 bits of a row.
fn small(row: &Row<'_>, column: usize) -> Option<u32> {
    number(row, column).and_then(|number| u32::try_from(number).ok())
}

/// A text of a row.
fn text<'r>(row: &'r Row<'_>, column: usize) -> Option<Cow<'r, str>> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => {
            Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_LETTERS)]))
        }
        _ => None,
    }
}

/// A text of a row, or the number of one.
fn word<'r>(
    row: &'r Row<'_>,
    column: usize,
    texts: &'r HashMap<i64, String>,
) -> Option<Cow<'r, str>> {
    let of_number = || texts.get(&number(row, column)?).map(|text| Cow::Borrowed(text.as_str()));
    text(row, column).or_else(of_number).filter(|text| !text.is_empty())
}

/// Adds an event if it has both times, else counts it.
fn add(trace: &mut Trace, unended: &mut u64, times: (Option<i64>, Option<i64>), timed: Timed) {
    match times {
        (Some(start), Some(end)) => trace.span(Timed { start, end, ..timed }),
        _ => *unended += 1,
    }
}

/// Calls have numbers that are unique within their process only: what makes them unique in the file.
#[derive(Default)]
struct Calls {
    processes: HashMap<u64, u64>,
}

impl Calls {
    fn number(&mut self, process: u64, number: i64) -> Option<u64> {
        // 0 is none.
        let number = u32::try_from(number).ok().filter(|&number| number > 0)?;
        let next = self.processes.len() as u64;
        let process = *self.processes.entry(process).or_insert(next);
        Some((process << 32) | u64::from(number))
    }

    /// The process of all calls so far, if it is one.
    fn only(&self) -> Option<u64> {
        let mut processes = self.processes.keys().copied();
        processes.next().filter(|_| processes.next().is_none())
    }
}

/// Forgets whose a stream is where no other process has one of that number.
fn tell_streams_apart(trace: &mut Trace) {
    let mut first: HashMap<(u64, u64), u64> = HashMap::new();
    let mut shared: HashSet<(u64, u64)> = HashSet::new();
    for link in &trace.links {
        let place = (link.device, link.stream);
        if let Some(process) = link.process
            && *first.entry(place).or_insert(process) != process
        {
            shared.insert(place);
        }
    }
    for link in &mut trace.links {
        link.process = link.process.filter(|_| shared.contains(&(link.device, link.stream)));
    }
}

/// What a range of NVTX or ROCTX is called, and is. `None` if it only marks what a module returned.
///
/// PyTorch's `emit_nvtx` names operations `aten::mul, seq = 3, op_id = 4`. The hooks of vLLM and SGLang name
/// modules `{'Module': 'model.layers.0.mlp', 'Inputs': …}`, and have a range of no time with `'Outputs'`
/// behind each.
fn range_of(text: &str) -> Option<(&str, EventKind)> {
    if let Some(module) = text.strip_prefix("{'Module': '")
        && let Some((module, rest)) = module.split_once('\'')
    {
        let is_mark = rest.contains("'Outputs':") && !rest.contains("'Inputs':");
        return (!is_mark).then_some((module, EventKind::Range));
    }
    let end = [", seq = ", ", op_id = ", ", sizes = "].iter().filter_map(|of| text.find(of)).min();
    Some(match end {
        // `FSDP::pre_forward (encoder.block.16)` is a range.
        Some(end) if text[..end].contains("::") && !text[..end].contains('(') => {
            (&text[..end], EventKind::Op)
        }
        Some(end) => (&text[..end], EventKind::Range),
        None => (text, EventKind::Range),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_anything_in_it_is_an_address() {
        for (path, is) in [
            ("a.sqlite", "file:a.sqlite?mode=ro&immutable=1"),
            ("/tmp/a b?.db", "file:///tmp/a%20b%3F.db?mode=ro&immutable=1"),
            ("//tmp/ü#%", "file:////tmp/%C3%BC%23%25?mode=ro&immutable=1"),
        ] {
            assert_eq!(uri(Path::new(path)), is);
        }
    }

    #[test]
    fn ranges_are_modules_and_operations() {
        let range = |name| Some((name, EventKind::Range));
        let op = |name| Some((name, EventKind::Op));
        for (text, is) in [
            ("layers.3.self_attn.q_proj", range("layers.3.self_attn.q_proj")),
            ("aten::mul, seq = 3, op_id = 4", op("aten::mul")),
            ("aten::to, op_id = 317177", op("aten::to")),
            ("my range, op_id = 2", range("my range")),
            ("FSDP::pre_forward (h.1), op_id = 2", range("FSDP::pre_forward (h.1)")),
            ("{'Module': 'model.layers.0.mlp', 'Inputs': [[1, 2]]}", range("model.layers.0.mlp")),
            ("{'Module': 'model.layers.0.mlp', 'Outputs': [[1, 2]]}", None),
            ("{'Module': 'model", range("{'Module': 'model")),
            ("", range("")),
        ] {
            assert_eq!(range_of(text), is, "{text}");
        }
    }

    #[test]
    fn calls_of_two_processes_are_two() {
        let mut calls = Calls::default();
        let one = calls.number(7 << 24, 5);
        assert_eq!(calls.only(), Some(7 << 24));
        assert!(one.is_some() && one == calls.number(7 << 24, 5));
        assert_ne!(one, calls.number(8 << 24, 5));
        assert_eq!(calls.only(), None);
        for none in [0, -1, i64::MAX] {
            assert_eq!(calls.number(7 << 24, none), None);
        }
    }
}
