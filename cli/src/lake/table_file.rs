//! Tables of a lake as Parquet files, written and read row by row.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{Compression, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use anyhow::{Context, Result, bail, ensure};
use brickscope_analysis::lake::{Column, Kind, LAKE_VERSION, Table, Value};

use super::store::Push;

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
                Kind::Int => {
                    let values: Vec<i64> = cells.filter_map(int).collect();
                    writer.typed::<Int64Type>().write_batch(&values, levels, None)?;
                }
                Kind::Real => {
                    let values: Vec<f64> = cells.filter_map(real).collect();
                    writer.typed::<DoubleType>().write_batch(&values, levels, None)?;
                }
                Kind::Flag => {
                    let values: Vec<bool> = cells.filter_map(flag).collect();
                    writer.typed::<BoolType>().write_batch(&values, levels, None)?;
                }
                Kind::Text => {
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
pub(super) fn write<W: Write + Send>(
    table: &'static Table,
    out: W,
    rows: impl FnOnce(Push<'_>) -> Result<()>,
) -> Result<()> {
    let mut writer = TableWriter::new(table, out)?;
    rows(&mut |row| Ok(writer.push(row)?))?;
    Ok(writer.finish()?)
}

/// The same in memory.
pub(super) fn bytes(
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
            Kind::Text => format!("{needed} binary {name} (STRING);"),
            Kind::Int => format!("{needed} int64 {name};"),
            Kind::Real => format!("{needed} double {name};"),
            Kind::Flag => format!("{needed} boolean {name};"),
        }
    };
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    format!("message {} {{ {} }}", table.name, columns.join(" "))
}

/// Calls `each` with every row of a file. Columns that the file doesn't have are `NULL`: it is of an earlier version.
pub(super) fn read(
    table: &'static Table,
    path: &Path,
    each: &mut dyn FnMut(Vec<Value>) -> Result<()>,
) -> Result<()> {
    let of_file = || path.display().to_string();
    let file = File::open(path).with_context(of_file)?;
    let file = SerializedFileReader::new(file).with_context(of_file)?;
    let places = places(table, &file).with_context(of_file)?;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).with_context(of_file)?;
        let rows = usize::try_from(group.metadata().num_rows()).with_context(of_file)?;
        ensure!(rows <= MOST_ROWS, "{}: a group of {rows} rows", path.display());
        let mut columns = Vec::with_capacity(places.len());
        for place in &places {
            columns.push(match place {
                Some(place) => column(&*group, *place, rows).with_context(of_file)?.into_iter(),
                None => vec![Value::Null; rows].into_iter(),
            });
        }
        for _ in 0..rows {
            let row = columns.iter_mut().map(|cells| cells.next().unwrap_or(Value::Null));
            each(row.collect())?;
        }
    }
    Ok(())
}

/// The texts of one column, without the rest of the file.
pub(super) fn texts(table: &'static Table, path: &Path, name: &str) -> Result<Vec<String>> {
    let of_file = || path.display().to_string();
    let file = File::open(path).with_context(of_file)?;
    texts_in(table, file, name).with_context(of_file)
}

/// The same of a file that is open, or in memory.
pub(super) fn texts_in<R: ChunkReader + 'static>(
    table: &'static Table,
    file: R,
    name: &str,
) -> Result<Vec<String>> {
    let cells = cells_in(table, file, &[name])?.into_iter().flatten();
    let text = |cell| if let Value::Text(text) = cell { Some(text) } else { None };
    Ok(cells.filter_map(text).collect())
}

/// The cells of some columns, column by column.
pub(super) fn cells_in<R: ChunkReader + 'static>(
    table: &'static Table,
    file: R,
    names: &[&str],
) -> Result<Vec<Vec<Value>>> {
    let file = SerializedFileReader::new(file)?;
    let places = places(table, &file)?;
    let mut found = vec![Vec::new(); names.len()];
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows())?;
        ensure!(rows <= MOST_ROWS, "a group of {rows} rows");
        for (name, found) in names.iter().zip(&mut found) {
            let place = table.column(name).and_then(|at| places[at]);
            found.extend(column(
                &*group,
                place.with_context(|| format!("it has no {name}"))?,
                rows,
            )?);
        }
    }
    Ok(found)
}

/// More than any writer of ours puts into a group.
const MOST_ROWS: usize = 1 << 22;

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
                    Kind::Text => Type::BYTE_ARRAY,
                    Kind::Int => Type::INT64,
                    Kind::Real => Type::DOUBLE,
                    Kind::Flag => Type::BOOLEAN,
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

fn column(group: &dyn RowGroupReader, place: usize, rows: usize) -> Result<Vec<Value>> {
    // What a hostile file says of its rows must not cost memory before they are there.
    let mut levels: Vec<i16> = Vec::new();
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
