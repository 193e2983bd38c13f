//! The spans of a profile as a Parquet file: a row each, with the columns of [`Row`].

use std::io::{self, Write};

use brickscope_formats::export::rows::{Row, rows};
use brickscope_profile::Profile;

use crate::columns::{Cells, Layout};

const LAYOUT: Layout = Layout {
    version: 1,
    schema: "message spans {
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
    }",
};

/// Writes each span as a row. Calls `progress` with the number of rows so far.
pub fn write(
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    crate::columns::write(&LAYOUT, profile, out, rows(profile), cells, progress)
}

fn cells(cells: &mut Cells<'_>, row: &Row<'_>) {
    cells.int(row.device);
    cells.int(row.stream);
    cells.int(Some(row.row));
    cells.int(row.parent);
    cells.int(Some(row.lane));
    cells.text(row.track);
    cells.int(row.tid);
    cells.int(row.pass);
    cells.text(row.phase.map(|phase| phase.name()));
    cells.int(row.layer);
    cells.text(Some(row.kind));
    cells.text(row.name.as_deref());
    cells.text(Some(row.source.name()));
    cells.long(Some(row.start_ns));
    cells.long(Some(row.duration_ns));
    cells.long(Some(row.exclusive_ns));
    cells.long(row.elements);
    cells.long(row.flops);
    cells.long(row.bytes);
    cells.text(row.shape());
    cells.int(row.host.map(|host| host.threads));
    for dims in [row.launch.map(|launch| launch.grid), row.launch.map(|launch| launch.block)] {
        cells.int(dims.map(|(x, _, _)| x));
        cells.int(dims.map(|(_, y, _)| y));
        cells.int(dims.map(|(_, _, z)| z));
    }
    cells.int(row.launch.map(|launch| launch.shared_mem));
    cells.text(row.ptx().as_deref());
    cells.int(row.launch.and_then(|launch| launch.registers));
    cells.int(row.launch.and_then(|launch| launch.spill_bytes));
    cells.text(row.transfer.map(|route| route.src.as_str()));
    cells.text(row.transfer.map(|route| route.dst.as_str()));
    cells.text(row.transfer.map(|route| route.direction.name()));
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use brickscope::{BrickProfiler, MockClock};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::columns::GROUP_ROWS;

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
