//! The spans of a profile as a Parquet file, for DuckDB, Polars, pandas and others.
//!
//! Each span is a row with the columns of [`Row`]. Numbers are unsigned, by Parquet's logical types. The
//! file's metadata states the versions.

use std::io::{self, Write};
use std::sync::Arc;

use brickscope_formats::export::rows::{Row, rows};
use brickscope_profile::Profile;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Incremented when the columns change.
const TABLE_VERSION: u32 = 1;

/// Rows per group: that many are in memory at once.
const GROUP_ROWS: usize = 1 << 17;

const SCHEMA: &str = "message spans {
    optional int32 device (INTEGER(32, false));
    optional int32 stream (INTEGER(32, false));
    required int32 row (INTEGER(32, false));
    optional int32 parent (INTEGER(32, false));
    required int32 lane (INTEGER(32, false));
    optional binary track (STRING);
    optional int32 tid (INTEGER(32, false));
    optional int32 pass (INTEGER(32, false));
    optional binary phase (STRING);
    optional int32 layer (INTEGER(32, false));
    required binary kind (STRING);
    optional binary name (STRING);
    required binary source (STRING);
    required int64 start_ns (INTEGER(64, false));
    required int64 duration_ns (INTEGER(64, false));
    required int64 exclusive_ns (INTEGER(64, false));
    optional int64 elements (INTEGER(64, false));
    optional int64 flops (INTEGER(64, false));
    optional int64 bytes (INTEGER(64, false));
    optional binary shape (STRING);
    optional int32 threads (INTEGER(32, false));
    optional int32 grid_x (INTEGER(32, false));
    optional int32 grid_y (INTEGER(32, false));
    optional int32 grid_z (INTEGER(32, false));
    optional int32 block_x (INTEGER(32, false));
    optional int32 block_y (INTEGER(32, false));
    optional int32 block_z (INTEGER(32, false));
    optional int32 shared_mem (INTEGER(32, false));
    optional binary ptx (STRING);
    optional int32 registers (INTEGER(32, false));
    optional int32 spill_bytes (INTEGER(32, false));
    optional binary src (STRING);
    optional binary dst (STRING);
    optional binary direction (STRING);
}";

/// Writes each span as a row, in groups, so that memory is bounded. Calls `progress` with the number of
/// rows so far.
pub fn write(
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    try_write(profile, out, progress).map_err(|error| match error {
        // Keep the I/O error, so that a closed pipe can be told from a failed write.
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    })
}

fn try_write(
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    progress: &mut dyn FnMut(u64),
) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let said = |key: &str, value: String| KeyValue::new(format!("brickscope.{key}"), value);
    let mut facts = vec![
        said("table_version", TABLE_VERSION.to_string()),
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
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("brickscope ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(facts))
        .build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut columns: Vec<Column> = Vec::new();
    let (mut in_group, mut written) = (0, 0);
    let mut rows = rows(profile).peekable();
    while let Some(row) = rows.next() {
        let mut cells = Cells { columns: &mut columns, next: 0 };
        cells.row(&row);
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
struct Cells<'c> {
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
    fn int(&mut self, value: Option<impl Into<u32>>) {
        let column = self.column(|| Values::Int(Vec::new()));
        column.levels.push(value.is_some().into());
        if let (Values::Int(values), Some(value)) = (&mut column.values, value) {
            values.push(value.into().cast_signed());
        }
    }

    fn long(&mut self, value: Option<u64>) {
        let column = self.column(|| Values::Long(Vec::new()));
        column.levels.push(value.is_some().into());
        if let (Values::Long(values), Some(value)) = (&mut column.values, value) {
            values.push(value.cast_signed());
        }
    }

    fn text(&mut self, value: Option<&str>) {
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

    fn row(&mut self, row: &Row<'_>) {
        self.int(row.device);
        self.int(row.stream);
        self.int(Some(row.row));
        self.int(row.parent);
        self.int(Some(row.lane));
        self.text(row.track);
        self.int(row.tid);
        self.int(row.pass);
        self.text(row.phase.map(|phase| phase.name()));
        self.int(row.layer);
        self.text(Some(row.kind));
        self.text(row.name.as_deref());
        self.text(Some(row.source.name()));
        self.long(Some(row.start_ns));
        self.long(Some(row.duration_ns));
        self.long(Some(row.exclusive_ns));
        self.long(row.elements);
        self.long(row.flops);
        self.long(row.bytes);
        self.text(row.shape());
        self.int(row.host.map(|host| host.threads));
        for dims in [row.launch.map(|launch| launch.grid), row.launch.map(|launch| launch.block)] {
            self.int(dims.map(|(x, _, _)| x));
            self.int(dims.map(|(_, y, _)| y));
            self.int(dims.map(|(_, _, z)| z));
        }
        self.int(row.launch.map(|launch| launch.shared_mem));
        self.text(row.ptx().as_deref());
        self.int(row.launch.and_then(|launch| launch.registers));
        self.int(row.launch.and_then(|launch| launch.spill_bytes));
        self.text(row.transfer.map(|route| route.src.as_str()));
        self.text(row.transfer.map(|route| route.dst.as_str()));
        self.text(row.transfer.map(|route| route.direction.name()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use brickscope::{BrickProfiler, MockClock};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    fn written(profile: &Profile, progress: &mut dyn FnMut(u64)) -> SerializedFileReader<File> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        write(profile, &mut file, progress).expect("it has room");
        SerializedFileReader::new(file).expect("Parquet")
    }

    #[test]
    fn rows_are_in_groups_and_the_file_says_of_which_versions_it_is() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock()).with_log_capacity(1 << 18);
        profiler.enable();
        for nth in 0..=GROUP_ROWS as u64 {
            let brick = profiler.start("a \"brick\"");
            hand.advance(nth);
            profiler.stop(brick, 0);
        }
        let mut profile = profiler.profile();
        profile.spans[7].exclusive_ns = u64::MAX;
        let mut told = Vec::new();
        let file = written(&profile, &mut |rows| told.push(rows));
        let n_rows = GROUP_ROWS as u64 + 1;
        assert_eq!(told, [GROUP_ROWS as u64, n_rows]);

        assert_eq!(file.metadata().num_row_groups(), 2);
        let facts = file.metadata().file_metadata().key_value_metadata().expect("facts");
        let fact = |key: &str| {
            let fact = facts.iter().find(|fact| fact.key == key).expect("it is there");
            fact.value.clone().expect("a value")
        };
        assert_eq!(fact("brickscope.table_version"), "1");
        assert_eq!(fact("brickscope.version"), env!("CARGO_PKG_VERSION"));
        let schema_version = brickscope::SCHEMA_VERSION.to_string();
        assert_eq!(fact("brickscope.profile.schema_version"), schema_version);

        let names: Vec<String> = file
            .metadata()
            .file_metadata()
            .schema_descr()
            .columns()
            .iter()
            .map(|column| column.name().to_owned())
            .collect();
        let at = |name: &str| names.iter().position(|other| other == name).expect("a column");
        let mut sum = 0;
        for (nth, row) in (0..).zip(file.get_row_iter(None).expect("rows")) {
            let row = row.expect("a row");
            assert_eq!(row.get_uint(at("row")).expect("a number"), nth);
            assert_eq!(row.get_string(at("name")).expect("a text"), "a \"brick\"");
            assert!(row.get_uint(at("device")).is_err() && row.get_string(at("ptx")).is_err());
            sum += row.get_ulong(at("duration_ns")).expect("a number");
            if nth == 7 {
                assert_eq!(row.get_ulong(at("exclusive_ns")).expect("a number"), u64::MAX);
            }
        }
        assert_eq!(sum, profile.totals[0].stats.total_ns);
    }

    #[test]
    fn a_profile_of_nothing_is_a_table_of_nothing() {
        let file = written(&Profile::empty(Default::default()), &mut |_| {});
        assert_eq!(file.metadata().file_metadata().num_rows(), 0);
    }
}
