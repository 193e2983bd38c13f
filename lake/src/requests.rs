//! The requests of a server as Parquet files: a row for each request, and a row for each of its intervals.

use std::io::{self, Write};

use brickscope_analysis::requests::{Interval, KnownPieces, Requests, Row, Until};
use brickscope_profile::{Ending, Profile};

use crate::columns::{Cells, Layout};

const REQUESTS: Layout = Layout {
    version: 1,
    schema: "message requests {
        required int32 request (INTEGER(32, false));
        required binary id (STRING);
        required int64 arrived_ns (INTEGER(64, false));
        optional int64 received_ns (INTEGER(64, false));
        optional int64 admitted_ns (INTEGER(64, false));
        optional int64 first_token_ns (INTEGER(64, false));
        optional int64 last_token_ns (INTEGER(64, false));
        optional int64 ended_ns (INTEGER(64, false));
        optional binary ending (STRING);
        optional binary error (STRING);
        required int64 timed_tokens (INTEGER(64, false));
        optional int64 prompt_tokens (INTEGER(64, false));
        optional int64 cached_tokens (INTEGER(64, false));
        optional int64 output_tokens (INTEGER(64, false));
        optional int64 to_first_token_ns (INTEGER(64, false));
        optional int64 mean_token_ns (INTEGER(64, false));
        optional int64 whole_ns (INTEGER(64, false));
        optional int64 receiving_ns (INTEGER(64, false));
        optional int64 queue_ns (INTEGER(64, false));
        optional int64 own_alone_ns (INTEGER(64, false));
        optional int64 own_beside_prompts_ns (INTEGER(64, false));
        optional int64 own_beside_decode_ns (INTEGER(64, false));
        optional int64 own_beside_both_ns (INTEGER(64, false));
        optional int64 other_prompts_ns (INTEGER(64, false));
        optional int64 other_decode_ns (INTEGER(64, false));
        optional int64 other_both_ns (INTEGER(64, false));
        optional int64 between_ns (INTEGER(64, false));
        optional int64 unattributed_ns (INTEGER(64, false));
    }",
};

const INTERVALS: Layout = Layout {
    version: 1,
    schema: "message intervals {
        required int32 request (INTEGER(32, false));
        required binary id (STRING);
        required binary until (STRING);
        optional int64 token (INTEGER(64, false));
        required int64 from_ns (INTEGER(64, false));
        required int64 to_ns (INTEGER(64, false));
        required int64 duration_ns (INTEGER(64, false));
        optional int64 receiving_ns (INTEGER(64, false));
        optional int64 queue_ns (INTEGER(64, false));
        optional int64 own_alone_ns (INTEGER(64, false));
        optional int64 own_beside_prompts_ns (INTEGER(64, false));
        optional int64 own_beside_decode_ns (INTEGER(64, false));
        optional int64 own_beside_both_ns (INTEGER(64, false));
        optional int64 other_prompts_ns (INTEGER(64, false));
        optional int64 other_decode_ns (INTEGER(64, false));
        optional int64 other_both_ns (INTEGER(64, false));
        optional int64 between_ns (INTEGER(64, false));
        optional int64 unattributed_ns (INTEGER(64, false));
    }",
};

/// Writes each request as a row. Calls `progress` with the number of rows so far.
pub fn write(
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let requests = Requests::of(profile);
    crate::columns::write(&REQUESTS, profile, out, requests.rows(), of_request, progress)
}

/// Writes each interval of each request as a row: up to its first token, between tokens, and up to its end.
pub fn write_intervals(
    profile: &Profile,
    out: &mut (dyn Write + Send + '_),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let requests = Requests::of(profile);
    let of_interval = |cells: &mut Cells<'_>, interval: &Interval| {
        let of = requests.all().get(interval.request as usize);
        let id = of.map(|of| of.id.as_str()).unwrap_or_default();
        interval_cells(cells, interval, id, requests.known_pieces(interval));
    };
    crate::columns::write(&INTERVALS, profile, out, requests.all_intervals(), of_interval, progress)
}

fn of_request(cells: &mut Cells<'_>, row: &Row<'_>) {
    let of = row.of;
    cells.int(Some(row.number));
    cells.text(Some(&of.id));
    cells.long(Some(of.arrived_ns));
    cells.long(of.received_ns);
    cells.long(of.admitted_ns);
    cells.long(of.tokens_ns.first().copied());
    cells.long(of.tokens_ns.last().copied());
    cells.long(of.ended_ns);
    cells.text(of.ending.map(Ending::name));
    cells.text(of.error.as_deref());
    cells.long(Some(of.tokens_ns.len() as u64));
    cells.long(of.prompt_tokens);
    cells.long(row.cached_tokens);
    cells.long(of.output_tokens);
    cells.long(row.to_first_token_ns);
    cells.long(of.mean_token_ns());
    cells.long(row.whole_ns);
    pieces(cells, row.pieces);
}

fn interval_cells(cells: &mut Cells<'_>, interval: &Interval, id: &str, known: KnownPieces) {
    let (until, token) = match interval.until {
        Until::FirstToken => ("first token", Some(1)),
        Until::Token(before) => ("token", Some(u64::from(before) + 1)),
        Until::End => ("end", None),
    };
    cells.int(Some(interval.request));
    cells.text(Some(id));
    cells.text(Some(until));
    cells.long(token);
    cells.long(Some(interval.from_ns));
    cells.long(Some(interval.to_ns));
    cells.long(Some(interval.ns()));
    pieces(cells, known);
}

/// In the order of the schemas, which is that of the pieces.
fn pieces(cells: &mut Cells<'_>, known: KnownPieces) {
    known.into_iter().for_each(|ns| cells.long(ns));
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use brickscope::{BrickProfiler, MockClock, Part};
    use brickscope_analysis::requests::Piece;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Row as Record, RowAccessor};

    use super::*;

    type Writes = fn(&Profile, &mut (dyn Write + Send + '_), &mut dyn FnMut(u64)) -> io::Result<()>;

    /// The names of the columns, and the rows.
    fn written(profile: &Profile, write: Writes) -> (Vec<String>, Vec<Record>) {
        let mut file: File = tempfile::tempfile().expect("a temporary file");
        let mut told = 0;
        write(profile, &mut file, &mut |rows| told = rows).expect("it has room");
        let file = SerializedFileReader::new(file).expect("Parquet");
        let schema = file.metadata().file_metadata().schema_descr();
        let names = schema.columns().iter().map(|column| column.name().to_owned()).collect();
        let rows: Vec<Record> =
            file.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        assert_eq!(told, rows.len() as u64);
        (names, rows)
    }

    /// One request with two tokens beside one that waits, is never let in, and goes away.
    fn served() -> Profile {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let requests = profiler.requests();
        let (a, b) = (requests.arrive("a"), requests.arrive("b"));
        hand.advance(100);
        requests.admit(a);
        for (part, ns) in [(Part::prompt(a, 8, 0), 5_000), (Part::decode(a, 8), 700)] {
            let pass = profiler.begin_pass_of(&[part]);
            hand.advance(ns);
            profiler.end_pass(pass, part.tokens, 0);
            hand.advance(10);
            requests.token(a);
        }
        requests.end(a, Ending::Stop);
        requests.end(b, Ending::Cancelled);
        profiler.profile()
    }

    #[test]
    fn requests_and_intervals_have_the_same_sums_and_null_for_what_is_unknown() {
        let profile = served();
        let (names, rows) = written(&profile, write);
        let at = |name: &str| names.iter().position(|known| known == name).expect("a column");
        let number = |row: &Record, name: &str| row.get_ulong(at(name)).ok();
        let [a, b] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(a.get_string(at("id")).expect("a text"), "a");
        assert_eq!(a.get_string(at("ending")).expect("it ended"), "stop");
        for (name, ns) in [
            ("to_first_token_ns", Some(5_110)),
            ("whole_ns", Some(5_820)),
            ("mean_token_ns", Some(710)),
            ("queue_ns", Some(100)),
            ("own_alone_ns", Some(5_700)),
            ("other_prompts_ns", Some(0)),
            ("between_ns", Some(20)),
            ("cached_tokens", Some(0)),
            ("timed_tokens", Some(2)),
            ("receiving_ns", None),
            ("prompt_tokens", None),
        ] {
            assert_eq!(number(a, name), ns, "{name}");
        }
        assert_eq!(b.get_string(at("ending")).expect("it ended"), "cancelled");
        for name in ["to_first_token_ns", "first_token_ns", "queue_ns", "own_alone_ns"] {
            assert_eq!(number(b, name), None, "{name}");
        }
        assert_eq!(number(b, "other_prompts_ns"), Some(5_000));

        let (columns, intervals) = written(&profile, write_intervals);
        let of = |name: &str| columns.iter().position(|known| known == name).expect("a column");
        let ends: Vec<&String> =
            intervals.iter().map(|row| row.get_string(of("until")).expect("a text")).collect();
        assert_eq!(ends, ["first token", "token", "end", "end"]);
        for (nth, row) in (0..).zip(&rows) {
            for piece in Piece::ALL {
                let name = format!("{}_ns", piece.key());
                let own = intervals.iter().filter(|of_one| of_one.get_uint(0).ok() == Some(nth));
                let sum = own.filter_map(|of_one| of_one.get_ulong(of(&name)).ok()).sum::<u64>();
                assert_eq!(number(row, &name).unwrap_or(0), sum, "{name} of {nth}");
            }
        }
    }

    #[test]
    fn a_run_without_requests_has_tables_without_rows() {
        let profile = Profile::empty(Default::default());
        assert!(written(&profile, write).1.is_empty());
        assert!(written(&profile, write_intervals).1.is_empty());
    }
}
