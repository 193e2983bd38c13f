//! Tables of a lake as Parquet files, written and read row by row.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Once};

use crate::rows::{Column, ColumnKind, LAKE_VERSION, Table, Value};
use anyhow::{Context, Result, bail, ensure};
use parquet::basic::{Compression, Type};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use brickscope_profile::text::printable;

/// A row of a table.
pub(crate) type Row = Vec<Value>;

/// Takes the rows of a file, one by one.
pub(crate) type Push<'t> = &'t mut dyn FnMut(Row) -> Result<()>;

/// Rows per group: that many are in memory at once.
const GROUP_ROWS: usize = 1 << 17;

/// Writes rows of a table.
struct TableWriter<W: Write + Send> {
    table: &'static Table,
    file: SerializedFileWriter<W>,
    rows: Vec<Vec<Value>>,
}

impl<W: Write + Send> TableWriter<W> {
    fn new(table: &'static Table, out: W) -> Result<Self, ParquetError> {
        let said = |key: &str, value: String| KeyValue::new(format!("brickscope.{key}"), value);
        let facts = vec![
            said("lake_version", LAKE_VERSION.to_string()),
            said("table", table.name.to_owned()),
        ];
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("brickscope ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(facts))
            .build();
        let schema = Arc::new(parse_message_type(&schema(table))?);
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(Self { table, file, rows: Vec::new() })
    }

    /// Adds a row, with a cell for each column.
    fn push(&mut self, row: Vec<Value>) -> Result<(), ParquetError> {
        self.rows.push(row);
        if self.rows.len() < GROUP_ROWS { Ok(()) } else { self.flush() }
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        self.flush()?;
        self.file.close().map(drop)
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for (at, column) in self.table.columns.iter().enumerate() {
            let Some(mut writer) = group.next_column()? else { break };
            let cells = self.rows.iter().map(|row| &row[at]);
            let levels: Vec<i16> =
                cells.clone().map(|cell| (*cell != Value::Null).into()).collect();
            // Columns without absent values don't read the definition levels.
            let levels = Some(levels.as_slice());
            match column.kind {
                ColumnKind::Int => {
                    let values: Vec<i64> = cells.filter_map(int).collect();
                    writer.typed::<Int64Type>().write_batch(&values, levels, None)?;
                }
                ColumnKind::Real => {
                    let values: Vec<f64> = cells.filter_map(real).collect();
                    writer.typed::<DoubleType>().write_batch(&values, levels, None)?;
                }
                ColumnKind::Flag => {
                    let values: Vec<bool> = cells.filter_map(flag).collect();
                    writer.typed::<BoolType>().write_batch(&values, levels, None)?;
                }
                ColumnKind::Text => {
                    let values: Vec<ByteArray> = cells.filter_map(text).collect();
                    writer.typed::<ByteArrayType>().write_batch(&values, levels, None)?;
                }
            }
            writer.close()?;
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }
}

fn int(cell: &Value) -> Option<i64> {
    if let Value::Int(number) = cell { Some(*number) } else { None }
}

fn real(cell: &Value) -> Option<f64> {
    if let Value::Real(number) = cell { Some(*number) } else { None }
}

fn flag(cell: &Value) -> Option<bool> {
    if let Value::Flag(flag) = cell { Some(*flag) } else { None }
}

fn text(cell: &Value) -> Option<ByteArray> {
    if let Value::Text(text) = cell { Some(ByteArray::from(text.as_str())) } else { None }
}

/// Writes a file with the rows that `rows` pushes.
pub(crate) fn write<W: Write + Send>(
    table: &'static Table,
    out: W,
    rows: impl FnOnce(Push<'_>) -> Result<()>,
) -> Result<()> {
    let mut writer = TableWriter::new(table, out)?;
    rows(&mut |row| Ok(writer.push(row)?))?;
    Ok(writer.finish()?)
}

/// The same in memory.
pub(crate) fn bytes(
    table: &'static Table,
    rows: impl FnOnce(Push<'_>) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write(table, &mut out, rows)?;
    Ok(out)
}

/// The schema in Parquet's notation.
fn schema(table: &Table) -> String {
    let column = |column: &Column| {
        let needed = if column.is_optional { "optional" } else { "required" };
        let name = column.name;
        match column.kind {
            ColumnKind::Text => format!("{needed} binary {name} (STRING);"),
            ColumnKind::Int => format!("{needed} int64 {name};"),
            ColumnKind::Real => format!("{needed} double {name};"),
            ColumnKind::Flag => format!("{needed} boolean {name};"),
        }
    };
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    format!("message {} {{ {} }}", table.name, columns.join(" "))
}

/// Which columns of a file are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Those that the table has. Others are of a later version.
    Known,
    /// All: to write the rows again without a column would lose it. A file with others is [`Newer`].
    All,
}

/// A file has a column that this version doesn't know.
#[derive(Debug)]
pub(crate) struct Newer {
    column: String,
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this brickscope, {}, does not know its column {}, and would leave it out: merge with the newer one that wrote it",
            env!("CARGO_PKG_VERSION"),
            printable(&self.column)
        )
    }
}

impl std::error::Error for Newer {}

/// Calls `each` with every row of a file. Columns that the file doesn't have are `NULL`: it is of an earlier version.
pub(crate) fn read(
    table: &'static Table,
    path: &Path,
    columns: Columns,
    each: &mut dyn FnMut(Vec<Value>) -> Result<()>,
) -> Result<()> {
    let of_file = || path.display().to_string();
    let file = File::open(path).with_context(of_file)?;
    let (file, places) = opened(table, file).with_context(of_file)?;
    if columns == Columns::All
        && let Some(column) = unknown_column(table, &file)
    {
        return Err(anyhow::Error::new(Newer { column })).with_context(of_file);
    }
    for group in 0..file.num_row_groups() {
        let (rows, columns) = cells_of(&file, group, &places).with_context(of_file)?;
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        for _ in 0..rows {
            let row = columns.iter_mut().map(|cells| cells.next().unwrap_or(Value::Null));
            each(row.collect())?;
        }
    }
    Ok(())
}

/// The texts of one column, without the rest of the file.
pub(crate) fn texts(table: &'static Table, path: &Path, name: &str) -> Result<Vec<String>> {
    let of_file = || path.display().to_string();
    let file = File::open(path).with_context(of_file)?;
    texts_in(table, file, name).with_context(of_file)
}

/// The same of a file that is open, or in memory.
pub(crate) fn texts_in<R: ChunkReader + 'static>(
    table: &'static Table,
    file: R,
    name: &str,
) -> Result<Vec<String>> {
    let cells = cells_in(table, file, &[name])?.into_iter().flatten();
    let text = |cell| if let Value::Text(text) = cell { Some(text) } else { None };
    Ok(cells.filter_map(text).collect())
}

/// The cells of some columns, column by column. What the file doesn't have is `NULL`, as in [`read`].
pub(crate) fn cells_in<R: ChunkReader + 'static>(
    table: &'static Table,
    file: R,
    names: &[&str],
) -> Result<Vec<Vec<Value>>> {
    let (file, places) = opened(table, file)?;
    let place = |name: &&str| -> Result<Option<usize>> {
        let column = table.column(name).with_context(|| format!("it has no {name}"))?;
        Ok(places[column])
    };
    let places: Vec<Option<usize>> = names.iter().map(place).collect::<Result<_>>()?;
    let mut found = vec![Vec::new(); names.len()];
    for group in 0..file.num_row_groups() {
        let (_, columns) = cells_of(&file, group, &places)?;
        found.iter_mut().zip(columns).for_each(|(found, cells)| found.extend(cells));
    }
    Ok(found)
}

/// Whether all of a file can be read.
pub(crate) fn check(table: &'static Table, path: &Path) -> Result<()> {
    read(table, path, Columns::Known, &mut |_| Ok(()))
}

/// The most rows of a group; writers of ours put [`GROUP_ROWS`] into one.
const MOST_ROWS: usize = 8 * GROUP_ROWS;

/// The rows that any file may have, beyond which it may have one for each of its bytes. Ours have one for several.
const LEAST_ROWS: u64 = 1 << 20;

/// The most bytes of a column in a group, as they are in the file. Unpacked they are at most twenty times as many, and then
/// texts that are there once may be in many rows: [`MOST_UNPACKED`] limits those.
const MOST_PACKED: i64 = 16 << 20;

/// The same unpacked, as the file says.
const MOST_UNPACKED: i64 = 256 << 20;

/// What is read of the file's own description, and where each column of the table is.
fn opened<R: ChunkReader + 'static>(
    table: &'static Table,
    file: R,
) -> Result<(SerializedFileReader<R>, Vec<Option<usize>>)> {
    let bytes = file.len();
    guarded(|| {
        let file = SerializedFileReader::new(file)?;
        let places = places(table, &file)?;
        let mut all: u64 = 0;
        for group in file.metadata().row_groups() {
            let rows = u64::try_from(group.num_rows())?;
            ensure!(
                rows <= MOST_ROWS as u64,
                "it has a group of {rows} rows, and {MOST_ROWS} are read"
            );
            all = all.saturating_add(rows);
            for column in group.columns() {
                let (packed, unpacked) = (column.compressed_size(), column.uncompressed_size());
                ensure!(
                    (0..=MOST_PACKED).contains(&packed) && (0..=MOST_UNPACKED).contains(&unpacked),
                    "a group of its column {} has {packed} bytes, {unpacked} unpacked: {MOST_PACKED} and \
                     {MOST_UNPACKED} are read",
                    column.column_path()
                );
            }
        }
        ensure!(
            all <= LEAST_ROWS.max(bytes),
            "it has {all} rows in {bytes} bytes, which no run has"
        );
        Ok((file, places))
    })
}

/// The number of rows of a group, and the cells of some of its columns; of a place that isn't there, `NULL`.
fn cells_of<R: ChunkReader + 'static>(
    file: &SerializedFileReader<R>,
    group: usize,
    places: &[Option<usize>],
) -> Result<(usize, Vec<Vec<Value>>)> {
    guarded(|| {
        let group = file.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows())?;
        let cells = places.iter().map(|place| match place {
            Some(place) => column(&*group, *place, rows),
            None => Ok(vec![Value::Null; rows]),
        });
        Ok((rows, cells.collect::<Result<_>>()?))
    })
}

/// Calls what reads a file by the crate `parquet`, which panics at some damaged files. That is an error of this file, which
/// says where the crate gave up, and nothing is printed.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    thread_local! {
        static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
        static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if !IS_GUARDED.get() {
                return before(what);
            }
            let place = what.location().map_or_else(String::new, |at| {
                let file = at.file().rsplit_once("/src/").map_or(at.file(), |(_, file)| file);
                format!(" at {}:{}", printable(file), at.line())
            });
            PLACE.set(place);
        }));
    });
    let outer = IS_GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(outer);
    done.unwrap_or_else(|_| bail!("it is damaged: the reader of Parquet gave up{}", PLACE.take()))
}

/// Where each column of the table is in the file.
fn places<R: ChunkReader + 'static>(
    table: &'static Table,
    file: &SerializedFileReader<R>,
) -> Result<Vec<Option<usize>>> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut places = Vec::new();
    for column in table.columns {
        let place = schema.columns().iter().position(|known| known.name() == column.name);
        match place {
            Some(place) => {
                let expected = match column.kind {
                    ColumnKind::Text => Type::BYTE_ARRAY,
                    ColumnKind::Int => Type::INT64,
                    ColumnKind::Real => Type::DOUBLE,
                    ColumnKind::Flag => Type::BOOLEAN,
                };
                let found = schema.column(place).physical_type();
                ensure!(
                    found == expected,
                    "its column {} is of type {found}, not {expected}",
                    column.name
                );
            }
            None if column.is_optional => {}
            None => bail!("it has no column {}: it is not a table `{}`", column.name, table.name),
        }
        places.push(place);
    }
    Ok(places)
}

/// A column of the file that the table doesn't have.
fn unknown_column<R: ChunkReader + 'static>(
    table: &'static Table,
    file: &SerializedFileReader<R>,
) -> Option<String> {
    let schema = file.metadata().file_metadata().schema_descr();
    let unknown = schema.columns().iter().find(|column| table.column(column.name()).is_none());
    unknown.map(|column| column.name().to_owned())
}

fn column(group: &dyn RowGroupReader, place: usize, rows: usize) -> Result<Vec<Value>> {
    // What a hostile file says of its rows must not cost memory before they are there.
    let mut levels: Vec<i16> = Vec::new();
    // A text that the file has once may be in each row.
    let mut texts = 0_u64;
    macro_rules! cells {
        ($reader:expr, $value:expr) => {{
            let mut values = Vec::new();
            let mut reader = $reader;
            reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            let has_levels = reader_has_levels(group, place);
            let mut values = values.into_iter().map($value);
            if has_levels {
                levels
                    .iter()
                    .map(|&level| match level {
                        0 => Ok(Value::Null),
                        _ => values.next().context("it lacks values")?,
                    })
                    .collect::<Result<Vec<Value>>>()?
            } else {
                values.collect::<Result<Vec<Value>>>()?
            }
        }};
    }
    let cells = match group.get_column_reader(place)? {
        ColumnReader::Int64ColumnReader(reader) => cells!(reader, |n| Ok(Value::Int(n))),
        ColumnReader::DoubleColumnReader(reader) => cells!(reader, |n| Ok(Value::Real(n))),
        ColumnReader::BoolColumnReader(reader) => cells!(reader, |flag| Ok(Value::Flag(flag))),
        ColumnReader::ByteArrayColumnReader(reader) => cells!(reader, |bytes: ByteArray| {
            texts += bytes.len() as u64;
            ensure!(
                texts <= MOST_UNPACKED as u64,
                "the texts of a group have more than {MOST_UNPACKED} bytes, and so many are read"
            );
            Ok(Value::Text(bytes.as_utf8().context("a text isn't UTF-8")?.to_owned()))
        }),
        _ => bail!("a column of another type"),
    };
    ensure!(cells.len() == rows, "a column has {} of {rows} rows", cells.len());
    Ok(cells)
}

fn reader_has_levels(group: &dyn RowGroupReader, place: usize) -> bool {
    group.metadata().column(place).column_descr().max_def_level() > 0
}

#[cfg(test)]
mod tests {
    use crate::rows::{RUNS, TABLES};

    use super::*;

    /// A row whose numbers are `nth`.
    fn row(table: &Table, nth: i64) -> Vec<Value> {
        let cell = |column: &Column| match column.kind {
            _ if column.is_optional && nth % 3 == 0 => Value::Null,
            ColumnKind::Text => Value::Text(format!("text {}", nth % 7)),
            ColumnKind::Int => Value::Int(nth),
            ColumnKind::Real => Value::Real(nth as f64),
            ColumnKind::Flag => Value::Flag(nth % 2 == 0),
        };
        table.columns.iter().map(cell).collect()
    }

    fn smallest() -> &'static Table {
        TABLES.iter().min_by_key(|table| table.columns.len()).expect("there are some")
    }

    #[test]
    fn a_file_of_more_rows_than_it_has_room_for_is_refused() {
        // A column is enough, since rows are counted before any is read.
        let is_whole = |column: &&Column| !column.is_optional && column.kind == ColumnKind::Int;
        let column = RUNS.columns.iter().find(is_whole).expect("a number in each row");
        let columns = std::slice::from_ref(column);
        let table: &'static Table = Box::leak(Box::new(Table { columns, ..RUNS }));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.parquet");
        let rows = LEAST_ROWS as i64 + 1;
        let out = File::create(&path).expect("a file");
        write(table, out, |push| (0..rows).try_for_each(|_| push(row(table, 1)))).expect("room");
        let bytes = std::fs::metadata(&path).expect("it is there").len();
        let said = check(table, &path).expect_err("too many").to_string();
        let cause = format!("{:#}", check(table, &path).expect_err("too many"));
        assert!(cause.contains(&format!("it has {rows} rows in {bytes} bytes")), "{said}: {cause}");
    }

    #[test]
    fn a_count_of_a_table_that_came_later_is_null() {
        let columns = &RUNS.columns[..RUNS.columns.len() - 1];
        let earlier: &'static Table = Box::leak(Box::new(Table { columns, ..RUNS }));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("runs.parquet");
        let out = File::create(&path).expect("a file");
        write(earlier, out, |push| push(row(earlier, 1))).expect("room");
        let file = File::open(&path).expect("it was written");
        let cells = cells_in(&RUNS, file, &["span_rows", "request_rows"]).expect("it is read");
        assert_eq!(cells, [[Value::Int(1)], [Value::Null]]);
        check(&RUNS, &path).expect("all of it is read");
    }

    #[test]
    fn a_file_with_a_column_of_a_later_version_is_read_but_not_to_be_written_again() {
        let earlier: &'static [Column] = &RUNS.columns[..RUNS.columns.len() - 1];
        let earlier: &'static Table = Box::leak(Box::new(Table { columns: earlier, ..RUNS }));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("runs.parquet");
        let out = File::create(&path).expect("a file");
        write(&RUNS, out, |push| push(row(&RUNS, 1))).expect("room");
        check(earlier, &path).expect("what is known is read");
        let error = read(earlier, &path, Columns::All, &mut |_| Ok(())).expect_err("it is newer");
        assert!(error.is::<Newer>(), "{error:#}");
        let said = format!("{error:#}");
        assert!(said.contains("does not know its column request_rows"), "{said}");
    }

    #[test]
    fn a_long_text_that_is_in_every_row_is_refused() {
        let table = smallest();
        let long = Value::Text("x".repeat(1 << 20));
        let file = bytes(table, |push| {
            let name = table.column("name").expect("it has names");
            (0..300).try_for_each(|_| {
                let mut row = row(table, 1);
                row[name] = long.clone();
                push(row)
            })
        });
        let file = file.expect("memory");
        assert!(file.len() < 2 << 20, "the text is there once");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("texts.parquet");
        std::fs::write(&path, file).expect("room");
        let said = format!("{:#}", check(table, &path).expect_err("300 MB of texts"));
        assert!(said.contains("the texts of a group have more than"), "{said}");
    }

    /// Whatever is changed in a file, it is read or refused. `BRICKSCOPE_MUTANTS=20000` changes it as often.
    #[test]
    fn a_damaged_file_is_read_or_refused() {
        let most =
            std::env::var("BRICKSCOPE_MUTANTS").map_or(300, |n| n.parse().expect("a number"));
        let mut random = brickscope_profile::stats::SplitMix64(7);
        let mut random = move |below: usize| (random.bits() % below as u64) as usize;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mutant.parquet");
        let mut refused = 0;
        let mut given_up = std::collections::BTreeMap::<String, u32>::new();
        for nth in 0..most {
            let table = &TABLES[nth % TABLES.len()];
            let mut file =
                bytes(table, |push| (0..40).try_for_each(|n| push(row(table, n)))).expect("memory");
            // Most of what can go wrong is in the description at the end.
            let from = if nth % 4 == 0 { 0 } else { file.len() * 2 / 3 };
            for _ in 0..=random(4) {
                let at = from + random(file.len() - from);
                match random(4) {
                    0 => file[at] = [0, 0x7f, 0x80, 0xff][random(4)],
                    1 => file[at] ^= 1 << random(8),
                    2 => drop(file.remove(at)),
                    _ => file.insert(at, file[random(file.len())]),
                }
            }
            std::fs::write(&path, &file).expect("room");
            let Err(why) = check(table, &path) else { continue };
            refused += 1;
            if let Some((_, place)) = format!("{why:#}").split_once("gave up at ") {
                *given_up.entry(place.to_owned()).or_default() += 1;
            }
        }
        // For the crate's authors.
        println!("panics of the crate, caught: {given_up:#?}");
        assert!(refused > most / 4, "{refused} of {most}");
    }

    #[test]
    fn a_panic_of_the_reader_is_an_error_of_the_file() {
        let said = guarded(|| -> Result<()> { panic!("as the crate does") }).expect_err("caught");
        assert!(said.to_string().contains("it is damaged"), "{said}");
    }
}
