//! A table of one profile as a Parquet file, for DuckDB, Polars, pandas and others.
//!
//! Numbers are unsigned, by Parquet's logical types. The file's metadata states the versions.

use std::io::{self, Write};
use std::sync::Arc;

use brickscope_profile::Profile;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Rows per group: that many are in memory at once.
pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// The columns of a table.
pub(crate) struct Layout {
    /// In Parquet's notation.
    pub(crate) schema: &'static str,
    /// Incremented when the columns change.
    pub(crate) version: u32,
}

/// Writes each row, in groups, so that memory is bounded. `cells` gives a row's cells, in the order of the schema. Calls
/// `progress` with the number of rows so far.
pub(crate) fn write<R>(
    layout: &Layout,
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    rows: impl Iterator<Item = R>,
    cells: impl Fn(&mut Cells<'_>, &R),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    try_write(layout, profile, out, rows, cells, progress).map_err(|error| match error {
        // Keep the I/O error, so that a closed pipe can be told from a failed write.
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    })
}

fn try_write<R>(
    layout: &Layout,
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    rows: impl Iterator<Item = R>,
    cells: impl Fn(&mut Cells<'_>, &R),
    progress: &mut dyn FnMut(u64),
) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(layout.schema)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("brickscope ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(facts(profile, layout.version)))
        .build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut columns: Vec<Column> = Vec::new();
    let (mut in_group, mut written) = (0, 0);
    let mut rows = rows.peekable();
    while let Some(row) = rows.next() {
        cells(&mut Cells { columns: &mut columns, next: 0 }, &row);
        in_group += 1;
        if in_group == GROUP_ROWS || rows.peek().is_none() {
            write_group(file.next_row_group()?, &mut columns)?;
            written += in_group as u64;
            in_group = 0;
            progress(written);
        }
    }
    file.close().map(drop)
}

/// What the file's metadata states.
fn facts(profile: &Profile, table_version: u32) -> Vec<KeyValue> {
    let said = |key: &str, value: String| KeyValue::new(format!("brickscope.{key}"), value);
    let mut facts = vec![
        said("table_version", table_version.to_string()),
        said("version", env!("CARGO_PKG_VERSION").to_owned()),
        said("profile.schema_version", profile.schema_version.to_string()),
        said("profile.version", profile.brickscope_version.clone()),
        said("profile.created", profile.created.clone()),
        said("clock", profile.clock.source.clone()),
    ];
    let dropped: Vec<String> = profile.dropped.lines().collect();
    if !dropped.is_empty() {
        facts.push(said("dropped", dropped.join("\n")));
    }
    facts.extend(profile.not_finite.iter().map(|found| said("not_finite", found.to_string())));
    facts
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    columns: &mut [Column],
) -> Result<(), ParquetError> {
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        // Columns without absent values don't read the definition levels.
        let levels = Some(column.levels.as_slice());
        match &column.values {
            Values::Int(values) => {
                writer.typed::<Int32Type>().write_batch(values, levels, None)?;
            }
            Values::Long(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)?;
            }
            Values::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, levels, None)?;
            }
        }
        writer.close()?;
        column.clear();
    }
    group.close().map(drop)
}

/// The values of a group's column.
struct Column {
    values: Values,
    /// 1 for each value, 0 for each absent one.
    levels: Vec<i16>,
    /// The previous text, which is often repeated.
    last: Option<(String, ByteArray)>,
}

enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Text(Vec<ByteArray>),
}

impl Column {
    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Int(values) => values.clear(),
            Values::Long(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
    }
}

/// The cells of a row, in the order of the schema.
pub(crate) struct Cells<'c> {
    columns: &'c mut Vec<Column>,
    next: usize,
}

impl Cells<'_> {
    fn column(&mut self, none: impl FnOnce() -> Values) -> &mut Column {
        if self.next == self.columns.len() {
            self.columns.push(Column { values: none(), levels: Vec::new(), last: None });
        }
        self.next += 1;
        &mut self.columns[self.next - 1]
    }

    // Parquet stores unsigned numbers as the bits of signed ones.
    pub(crate) fn int(&mut self, value: Option<impl Into<u32>>) {
        let column = self.column(|| Values::Int(Vec::new()));
        column.levels.push(value.is_some().into());
        if let (Values::Int(values), Some(value)) = (&mut column.values, value) {
            values.push(value.into().cast_signed());
        }
    }

    pub(crate) fn long(&mut self, value: Option<u64>) {
        let column = self.column(|| Values::Long(Vec::new()));
        column.levels.push(value.is_some().into());
        if let (Values::Long(values), Some(value)) = (&mut column.values, value) {
            values.push(value.cast_signed());
        }
    }

    pub(crate) fn text(&mut self, value: Option<&str>) {
        let column = self.column(|| Values::Text(Vec::new()));
        column.levels.push(value.is_some().into());
        if let (Values::Text(values), Some(value)) = (&mut column.values, value) {
            let bytes = match &column.last {
                Some((last, bytes)) if last == value => bytes.clone(),
                _ => {
                    let bytes = ByteArray::from(value);
                    column.last = Some((value.to_owned(), bytes.clone()));
                    bytes
                }
            };
            values.push(bytes);
        }
    }
}
