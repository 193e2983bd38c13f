//! A list of runs as a table and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brickscope_analysis::rate::{Overlapped, Rule};
use brickscope_analysis::text::{columns, cut, digits};
use brickscope_profile::save::parse_rfc3339;
use brickscope_profile::text::{count, printable};
use serde_json::{Map, Value, json};

use crate::files::REPORT;
use crate::list::{List, Row};
use crate::speed::Speed;
use crate::summary::Summary;

const COLUMNS: usize = 8;

const HEADINGS: [&str; COLUMNS] =
    ["run", "when (UTC)", "model", "on", "tok/s", "disturbed", "size", "tag"];

/// Numbers, whose ends stand below each other.
const IS_NUMBER: [bool; COLUMNS] = [false, false, false, false, true, true, true, false];

/// To how many columns of the terminal each may be cut; `None` for what would be another figure.
const LEAST: [Option<usize>; COLUMNS] =
    [Some(15), None, Some(LEAST_OF_MODEL), None, None, None, None, Some(6)];

const WHEN: usize = 1;
const MODEL: usize = 2;
const ON: usize = 3;
const SIZE: usize = 6;

/// Room for some letters of a model's name, and its quantisation.
const LEAST_OF_MODEL: usize = 8;
/// A terminal that has less for it doesn't show when runs were made where their names say it, and then not their size where
/// they ran on several things.
const GOOD_FOR_MODEL: usize = 16;

const BETWEEN: &str = "  ";

/// One line for each run, the newest first. Names are cut to lines of `width` columns; `None` leaves them whole, for programs.
///
/// A figure that the run doesn't have is `-`, and one that wasn't read `?`. A rate that leaves out more than a small part of
/// the time has a `*`. `now` is a time in this year, in RFC 3339.
#[must_use]
pub fn table(list: &List, width: Option<usize>, now: &str) -> String {
    let differs = Differs::of(list);
    let alike = of_several_files(list);
    let row = |row: &Row| cells(row, year(now), differs, &alike);
    let rows: Vec<_> = list.rows.iter().map(row).collect();
    let mut widths = HEADINGS.map(wide);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = wide(cell).max(*width);
        }
    }
    if !differs.any() {
        widths[ON] = 0;
    }
    if let Some(most) = width {
        let whole = widths;
        fit(&mut widths, most);
        let mut rest = whole;
        for (column, may) in [(WHEN, list.rows.iter().all(is_dated)), (SIZE, differs.any())] {
            if may && widths[MODEL] < GOOD_FOR_MODEL.min(whole[MODEL]) {
                rest[column] = 0;
                widths = rest;
                fit(&mut widths, most);
            }
        }
    }
    let mut text = line(&HEADINGS.map(str::to_owned), &widths);
    rows.iter().for_each(|row| text.push_str(&line(row, &widths)));
    for (row, overlapped) in list.rows.iter().filter_map(|row| Some((row, overlapped(row)?))) {
        let said = format!("{}: {overlapped}", printable(&row.name.to_string_lossy()));
        text.push_str(&width.map_or_else(|| said.clone(), |width| cut(&said, width)));
        text.push('\n');
    }
    if list.rows.iter().any(|row| row.speed().is_some_and(is_clean)) {
        text.push_str(OF_CLEAN);
    }
    if list.rows.iter().any(|row| row.of_processes.is_some()) {
        text.push_str(OF_PROCESSES);
    }
    text
}

/// Whether the name of a run says when its work ran: `20261129-121500`. That of an import says when it was imported.
fn is_dated(row: &Row) -> bool {
    if row.imported_at.is_some() {
        return false;
    }
    let name = row.name.to_string_lossy();
    let day = row.created.get(..10).unwrap_or_default().replace('-', "");
    let time = name.strip_prefix(day.as_str()).and_then(|rest| rest.strip_prefix('-'));
    let is_time = |time: &str| {
        time.get(..6).is_some_and(|time| time.bytes().all(|digit| digit.is_ascii_digit()))
    };
    day.len() == 8 && time.is_some_and(is_time)
}

/// What a `*` at a rate is.
const OF_CLEAN: &str = "* without disturbed passes, which took more than a small part of the time:\n  \
                        no figure to hold against one without a *\n";

fn is_clean(speed: Speed) -> bool {
    speed.rule == Rule::Clean
}

/// What a `±` at the rate of a set is.
const OF_PROCESSES: &str =
    "± of a set: half of what lies between its slowest process and its fastest\n";

/// `291`, `15442*` of a rate that leaves out disturbed passes, or `291 ± 2 %` of a set.
fn rate(speed: Speed) -> String {
    let mark = if is_clean(speed) { "*" } else { "" };
    let spread = speed.processes.map_or_else(String::new, |[low, high]| {
        let half = 50.0 * (high - low) / speed.tokens_per_second.max(f64::MIN_POSITIVE);
        if half < 0.95 { format!(" ± {half:.1} %") } else { format!(" ± {half:.0} %") }
    });
    format!("{}{mark}{spread}", digits(speed.tokens_per_second))
}

/// What differs between the runs of a list, so that their rates are of different things.
#[derive(Clone, Copy)]
struct Differs {
    backend: bool,
    threads: bool,
}

impl Differs {
    fn of(list: &List) -> Self {
        fn several<T: PartialEq>(mut all: impl Iterator<Item = T>) -> bool {
            let first = all.next();
            all.any(|other| Some(other) != first)
        }
        let summaries = || list.rows.iter().filter_map(|row| row.summary.as_ref());
        Self {
            backend: several(summaries().filter_map(|of| of.backend.as_ref())),
            threads: several(summaries().filter_map(|of| of.threads)),
        }
    }

    fn any(self) -> bool {
        self.backend || self.threads
    }

    /// `llama.cpp 2t`: of a run what differs between runs.
    fn cell(self, of: &Summary) -> String {
        // Its CPU is what an engine runs on anyway.
        let engine = |of: &String| printable(of.strip_suffix(", CPU").unwrap_or(of));
        let backend = of.backend.as_ref().filter(|_| self.backend).map(engine);
        let threads = of.threads.filter(|_| self.threads).map(|threads| format!("{threads}t"));
        let parts: Vec<String> = backend.into_iter().chain(threads).collect();
        if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
    }
}

/// Of a run whose decode passes ran at the same time.
fn overlapped(row: &Row) -> Option<Overlapped> {
    row.summary.as_ref().filter(|_| row.processes == 0)?.decode_passes_overlapped
}

/// Makes columns narrower that may be, the widest first, until a line fits.
fn fit(widths: &mut [usize; COLUMNS], most: usize) {
    let shown = widths.iter().filter(|width| **width > 0).count();
    let most = most.saturating_sub(BETWEEN.len() * shown.saturating_sub(1));
    while widths.iter().sum::<usize>() > most {
        let wide = widths
            .iter_mut()
            .zip(LEAST)
            .filter_map(|(width, least)| least.filter(|least| *least < *width).map(|_| width));
        let Some(widest) = wide.max_by_key(|width| **width) else { break };
        *widest -= 1;
    }
}

fn line(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let shown = cells.iter().zip(widths).zip(IS_NUMBER).enumerate();
    let shown = shown.filter(|(_, ((_, width), _))| **width > 0);
    let cells = shown.map(|(nth, ((cell, &most), is_number))| {
        let cell = match wide(cell) > most {
            true if nth == MODEL => cut_name(cell, most),
            true => cut(cell, most),
            false => cell.clone(),
        };
        let blank = " ".repeat(most.saturating_sub(wide(&cell)));
        if is_number { blank + &cell } else { cell + &blank }
    });
    let line = cells.collect::<Vec<_>>().join(BETWEEN);
    line.trim_end().to_owned() + "\n"
}

/// A model in so many columns, with its quantisation whole if letters of its name remain.
fn cut_name(model: &str, most: usize) -> String {
    let parts = model.rsplit_once(' ').map(|(name, last)| (name, last, wide(last) + 1));
    match parts.filter(|(.., end)| most >= end + 3) {
        Some((name, last, end)) => format!("{} {last}", cut(name, most - end)),
        None => cut(model, most),
    }
}

/// The columns of a cell, which has nothing that can't be printed: in a list of thousands most have plain letters.
fn wide(cell: &str) -> usize {
    if cell.is_ascii() { cell.len() } else { columns(cell) }
}

/// A model and its quantisation. Of an import that knows no model, its file says most.
fn model(of: &Summary) -> String {
    let named = if of.model.is_some() { &of.model } else { &of.imported_from };
    let parts = [named, &of.quantization].into_iter().flatten().map(|name| printable(name));
    parts.collect::<Vec<_>>().join(" ")
}

/// The models of which several files were imported: the model alone doesn't tell those runs apart.
fn of_several_files(list: &List) -> BTreeSet<String> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for of in list.rows.iter().filter_map(|row| row.summary.as_ref()) {
        if let (Some(_), Some(file)) = (&of.model, &of.imported_from) {
            files.entry(model(of)).or_default().insert(file);
        }
    }
    files.retain(|_, files| files.len() > 1);
    files.into_keys().collect()
}

fn cells(
    row: &Row,
    this_year: &str,
    differs: Differs,
    alike: &BTreeSet<String>,
) -> [String; COLUMNS] {
    let absent = if row.summary.is_some() { "-" } else { "?" };
    let of = row.summary.as_ref();
    let model = of.map_or_else(String::new, |of| {
        let model = model(of);
        match &of.imported_from {
            Some(file) if alike.contains(&model) => format!("{model} ({})", printable(file)),
            _ => model,
        }
    });
    let model = match &row.trouble {
        Some(_) => "can't be read".to_owned(),
        None => model,
    };
    let speed = match row.processes {
        0 => row.speed().map_or_else(|| absent.to_owned(), rate),
        n => row.speed().map_or_else(|| count(n as u64, "run"), rate),
    };
    let passes = of.and_then(|of| of.passes).filter(|_| row.processes == 0);
    let disturbed = passes.and_then(|of| of.disturbed.map(|n| format!("{n}/{}", of.all)));
    let no_tag = if row.is_tagged { "?" } else { "" };
    [
        printable(&row.name.to_string_lossy()),
        when(&row.created, this_year),
        model,
        of.map_or_else(|| absent.to_owned(), |of| differs.cell(of)),
        speed,
        disturbed.unwrap_or_else(|| absent.to_owned()),
        size(row.bytes),
        row.tag.clone().unwrap_or_else(|| no_tag.to_owned()),
    ]
}

fn year(created: &str) -> &str {
    created.get(..4).unwrap_or_default()
}

/// Month, day and time in this year; the day of others.
fn when(created: &str, this_year: &str) -> String {
    let Some((whole, _)) = parse_rfc3339(created) else { return String::new() };
    match (whole.get(..10), whole.get(5..16)) {
        (_, Some(moment)) if year(whole) == this_year => moment.replace('T', " "),
        (Some(day), _) => day.to_owned(),
        _ => String::new(),
    }
}

/// `1.2 MB`: bytes with three digits or less.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..999_500 => (1e3, "kB"),
        999_500..999_500_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    let of = bytes as f64 / unit;
    if of < 9.95 { format!("{of:.1} {name}") } else { format!("{of:.0} {name}") }
}

/// The same as JSON. What isn't known is left out, and why there is no rate is said.
#[must_use]
pub fn json(list: &List, folder: &Path) -> String {
    let runs: Vec<Value> = list.rows.iter().map(row_as_json).collect();
    let all = json!({ "folder": folder.to_string_lossy(), "unread": list.unread, "runs": runs });
    format!("{all:#}\n")
}

fn row_as_json(row: &Row) -> Value {
    let mut of = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        of.extend(value.map(|value| (name.to_owned(), value)));
    };
    let summary = row.summary.as_ref();
    let speed = row.speed();
    let passes = summary.and_then(|of| of.passes).filter(|_| row.processes == 0);
    add("name", Some(json!(row.name.to_string_lossy())));
    add("path", Some(json!(row.path.to_string_lossy())));
    add("created", Some(json!(row.created)));
    add("imported_at", row.imported_at.as_ref().map(|at| json!(at)));
    add("model", summary.and_then(|of| of.model.as_ref()).map(|model| json!(model)));
    add("imported_from", summary.and_then(|of| of.imported_from.as_ref()).map(|of| json!(of)));
    add("quantization", summary.and_then(|of| of.quantization.as_ref()).map(|of| json!(of)));
    add("backend", summary.and_then(|of| of.backend.as_ref()).map(|of| json!(of)));
    add("threads", summary.and_then(|of| of.threads).map(|threads| json!(threads)));
    add("decode_tokens_per_second", speed.map(|speed| json!(speed.tokens_per_second)));
    add("rate_of", speed.map(|speed| json!(speed.rule)));
    let left_out = speed.and_then(|speed| speed.left_out_of_wall);
    let processes = speed.and_then(|speed| speed.processes);
    add("decode_of_processes", processes.map(|range| json!(range)));
    add("rate_leaves_out_of_wall", left_out.map(|part| json!(part)));
    add("decode_passes_overlapped", overlapped(row).map(|of| json!(of)));
    add("no_rate", speed.is_none().then(|| json!(no_rate(row))));
    add("passes", passes.map(|of| json!(of)));
    add("processes", (row.processes > 0).then(|| json!(row.processes)));
    add("bytes", Some(json!(row.bytes)));
    add("tag", row.tag.as_ref().map(|tag| json!(tag)));
    let report = || json!(row.path.join(REPORT).to_string_lossy());
    add("report", row.has_report.then(report));
    Value::Object(of)
}

/// Why a run in a list has no rate.
fn no_rate(row: &Row) -> String {
    match (&row.trouble, row.processes, &row.summary) {
        (Some(trouble), ..) => trouble.clone(),
        (None, 1.., _) => {
            let runs = count(row.processes as u64, "run");
            format!("it is a set of {runs}, which don't all have a rate of the same passes here")
        }
        (None, 0, None) => {
            "it was not read: `brickscope ls --read-all` reads all, and `show` this one".to_owned()
        }
        (None, 0, Some(of)) => of
            .no_rate
            .clone()
            .unwrap_or_else(|| "no pass of it decoded tokens that were counted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::summary::Passes;
    use crate::wanted::Wanted;

    fn table(list: &List, width: Option<usize>) -> String {
        super::table(list, width, "2026-12-01T00:00:00Z")
    }

    fn row(name: &str, created: &str) -> Row {
        Row {
            name: name.into(),
            path: PathBuf::from("runs").join(name),
            created: created.to_owned(),
            imported_at: None,
            summary: Some(Summary {
                created: created.to_owned(),
                imported_at: None,
                imported_from: None,
                model: Some("brickscope-synth-110m".to_owned()),
                quantization: Some("q8_0".to_owned()),
                backend: Some("avx512".to_owned()),
                threads: Some(2),
                decode_tokens_per_second: Some(291.4),
                decode_left_out_of_wall: None,
                no_rate: None,
                decode_passes_overlapped: None,
                passes: Some(Passes { phase: None, all: 64, disturbed: Some(3) }),
            }),
            processes: 0,
            of_processes: None,
            trouble: None,
            bytes: 1_234_567,
            tag: None,
            is_tagged: false,
            has_report: false,
        }
    }

    fn list() -> List {
        let mut best = row("20261129-121500", "2026-11-29T12:15:00Z");
        (best.tag, best.is_tagged) = (Some("best".to_owned()), true);
        let mut set = row("main", "2026-11-28T09:00:00Z");
        set.processes = 10;
        let mut old = row("20251128-090000", "2025-11-28T09:00:00Z");
        old.summary = None;
        List { rows: vec![best, set, old], unread: 1 }
    }

    #[test]
    fn a_run_is_a_line() {
        let text = table(&list(), None);
        let expected = "\
run              when (UTC)   model                         tok/s  disturbed    size  tag
20261129-121500  11-29 12:15  brickscope-synth-110m q8_0      291       3/64  1.2 MB  best
main             11-28 09:00  brickscope-synth-110m q8_0  10 runs          -  1.2 MB
20251128-090000  2025-11-28                                     ?          ?  1.2 MB
";
        assert_eq!(text, expected);
    }

    #[test]
    fn engines_and_threads_are_shown_where_they_differ() {
        let mut list = list();
        list.rows[1].processes = 0;
        if let Some(summary) = &mut list.rows[1].summary {
            summary.threads = Some(1);
        }
        let text = table(&list, Some(80));
        assert!(text.contains("q8_0  2t  ") && text.contains("q8_0  1t  "), "{text}");
        assert!(!text.contains("avx512"), "{text}");
        if let Some(summary) = &mut list.rows[1].summary {
            summary.backend = Some("llama.cpp, CPU".to_owned());
        }
        for width in [Some(80), None] {
            let text = table(&list, width);
            assert!(text.contains(" q8_0  avx512 2t     "), "{text}");
            assert!(text.contains(" q8_0  llama.cpp 1t  "), "{text}");
            assert!(width.is_none() || text.lines().all(|line| columns(line) <= 80), "{text}");
        }
        let value: Value = serde_json::from_str(&json(&list, Path::new("runs"))).expect("JSON");
        assert_eq!(value["runs"][1]["backend"], "llama.cpp, CPU");
        assert_eq!(value["runs"][0]["threads"], 2);
        assert_eq!(value["runs"][1]["threads"], 1);
        assert!(value["runs"][2].get("threads").is_none(), "{value}");
    }

    #[test]
    fn names_that_say_when_leave_room_for_models() {
        let mut list = list();
        list.rows.truncate(1);
        list.rows.push(row("20261129-121400", "2026-11-29T12:14:00Z"));
        list.rows[1].summary.as_mut().expect("it was read").backend = Some("llama.cpp".to_owned());
        let text = table(&list, Some(80));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(!text.contains("when") && text.contains("1.2 MB"), "{text}");
        assert!(text.contains("  brickscope-syn… q8_0  avx512  "), "{text}");
        // Another name says nothing of it.
        list.rows[1].name = "main".into();
        assert!(table(&list, Some(80)).contains("when (UTC)"));
        // That of an import is of the import, and its work may have run long before.
        list.rows[1].name = "20261129-121400".into();
        list.rows[1].imported_at = Some("2026-11-29T12:14:00Z".to_owned());
        list.rows[1].created = "2026-11-16T08:00:00Z".to_owned();
        let text = table(&list, Some(80));
        assert!(text.contains("when (UTC)") && text.contains("11-16 08:00"), "{text}");
    }

    #[test]
    fn a_run_whose_passes_overlapped_says_so_below() {
        let mut of = list();
        let summary = of.rows[0].summary.as_mut().expect("it was read");
        summary.decode_passes_overlapped =
            Some(Overlapped { tokens_per_second_each: 67.5, tokens_per_second_together: 123.0 });
        let text = table(&of, Some(80));
        let said =
            "20261129-121500: passes overlapped: 67.5 tokens/s each, 123 tokens/s together\n";
        assert!(text.ends_with(said), "{text}");
        let json: Value = serde_json::from_str(&json(&of, Path::new("runs"))).expect("it is JSON");
        let overlapped = &json["runs"][0]["decode_passes_overlapped"];
        assert_eq!(overlapped["tokens_per_second_together"], 123.0);
    }

    #[test]
    fn a_rate_without_disturbed_passes_is_marked() {
        let mut of = list();
        let left_out = |list: &mut List, part| {
            let summary = list.rows[0].summary.as_mut().expect("it was read");
            summary.decode_left_out_of_wall = Some(part);
        };
        let rate_of = |list: &List| {
            let json: Value = serde_json::from_str(&json(list, Path::new("runs"))).expect("JSON");
            let run = &json["runs"][0];
            (run["rate_of"].clone(), run["rate_leaves_out_of_wall"].clone())
        };
        // A small part makes no other figure of it.
        left_out(&mut of, 0.01);
        assert!(!table(&of, Some(80)).contains('*'));
        assert_eq!(rate_of(&of), (json!("all"), json!(0.01)));
        left_out(&mut of, 0.883);
        let text = table(&of, Some(80));
        assert!(text.contains("    291*       3/64"), "{text}");
        assert!(text.ends_with(OF_CLEAN) && text.lines().all(|line| columns(line) <= 80), "{text}");
        assert_eq!(rate_of(&of), (json!("clean"), json!(0.883)));
    }

    #[test]
    fn a_set_has_the_speed_of_its_median_process() {
        let mut of = list();
        of.rows[1].of_processes = Some(Speed {
            tokens_per_second: 72.0,
            rule: Rule::All,
            left_out_of_wall: None,
            processes: Some([70.0, 74.0]),
        });
        let text = table(&of, Some(80));
        assert!(text.contains("  72.0 ± 3 %  "), "{text}");
        assert!(text.ends_with(OF_PROCESSES) && text.lines().all(|line| columns(line) <= 80));
        let json: Value = serde_json::from_str(&json(&of, Path::new("runs"))).expect("JSON");
        let set = &json["runs"][1];
        assert_eq!(set["decode_tokens_per_second"], 72.0);
        assert_eq!(set["decode_of_processes"], json!([70.0, 74.0]));
        assert_eq!((&set["processes"], set.get("no_rate")), (&json!(10), None));
    }

    #[test]
    fn an_import_is_of_when_its_work_ran() {
        let mut list = list();
        list.rows[0].imported_at = Some("2026-11-30T10:20:30.400Z".to_owned());
        let text = table(&list, None);
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("  11-29 12:15  ")), "{text}");
        let value: Value = serde_json::from_str(&json(&list, Path::new("runs"))).expect("JSON");
        assert_eq!(value["runs"][0]["created"], "2026-11-29T12:15:00Z");
        assert_eq!(value["runs"][0]["imported_at"], "2026-11-30T10:20:30.400Z");
        assert!(value["runs"][1].get("imported_at").is_none(), "{value}");
    }

    #[test]
    fn an_import_without_a_model_is_named_by_its_file() {
        let mut list = list();
        if let Some(summary) = &mut list.rows[0].summary {
            summary.imported_from = Some("vllm.json.gz + capture".to_owned());
        }
        assert!(!table(&list, None).contains("vllm.json.gz"), "it has a model");
        if let Some(summary) = &mut list.rows[0].summary {
            (summary.model, summary.quantization) = (None, None);
        }
        let text = table(&list, None);
        assert!(text.contains("  vllm.json.gz + capture  "), "{text}");
        let value: Value = serde_json::from_str(&json(&list, Path::new("runs"))).expect("JSON");
        assert_eq!(value["runs"][0]["imported_from"], "vllm.json.gz + capture");
        assert!(value["runs"][0].get("model").is_none(), "{value}");
    }

    #[test]
    fn imports_of_one_model_are_told_apart_by_their_files() {
        let mut list = list();
        let mut file = |nth: usize, name: &str| {
            let mut other = row("other", "2026-11-28T09:00:00Z");
            if let Some(summary) = &mut other.summary {
                summary.imported_from = Some(name.to_owned());
            }
            list.rows[nth] = other;
            table(&list, None)
        };
        assert!(!file(0, "monday.json").contains("monday"), "one needs no file");
        let text = file(1, "tuesday.json");
        assert!(text.contains("110m q8_0 (monday.json)"), "{text}");
        assert!(text.contains("110m q8_0 (tuesday.json)"), "{text}");
    }

    #[test]
    fn a_list_has_the_runs_that_are_wanted() {
        let named = |wanted: &Wanted| {
            let mut list = list();
            wanted.keep(&mut list);
            let names = list.rows.iter().map(|row| row.name.to_string_lossy().into_owned());
            names.collect::<Vec<_>>()
        };
        let at = |text: &str| Some(text.parse().expect("a moment"));
        let all = ["20261129-121500", "main", "20251128-090000"];
        assert_eq!(named(&Wanted::default()), all);
        let since = Wanted { since: at("2026-11-28"), ..Wanted::default() };
        assert_eq!(named(&since), all[..2]);
        let until = Wanted { until: at("2026-11-28"), ..since };
        assert_eq!(named(&until), all[1..2]);
        let tag = Wanted { tag: Some("b*".to_owned()), ..Wanted::default() };
        assert_eq!(named(&tag), all[..1]);
    }

    #[test]
    fn a_terminal_has_lines_that_fit_and_programs_whole_names() {
        let mut list = list();
        let long = "a-name-of-a-run-that-says-all-about-it".repeat(3);
        list.rows[0].name = long.clone().into();
        list.rows[0].tag = Some("x".repeat(64));
        let text = table(&list, Some(80));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains("a-name-of-a-") && text.contains('…'), "{text}");
        // Figures are whole, however narrow it is.
        assert!(table(&list, Some(10)).contains("3/64"));
        assert!(table(&list, None).contains(&long));
    }

    #[test]
    fn nothing_in_a_name_reaches_a_terminal() {
        let mut list = list();
        list.rows[0].name = "a\n\u{1b}[2J\u{202e}".into();
        if let Some(summary) = &mut list.rows[0].summary {
            summary.model = Some("\u{9b}31m\r".to_owned());
        }
        let text = table(&list, None);
        assert_eq!(text.lines().count(), 4, "{text}");
        let odd = |c: char| c != '\n' && brickscope_profile::text::is_unprintable(c);
        assert!(!text.contains(odd), "{text}");
    }

    #[test]
    fn json_says_why_there_is_no_rate() {
        let mut list = list();
        list.rows[0].name = "a\u{1b}".into();
        list.rows[1].has_report = true;
        let value: Value = serde_json::from_str(&json(&list, Path::new("runs"))).expect("JSON");
        let [best, set, old] = &value["runs"].as_array().expect("runs")[..] else {
            panic!("{value}")
        };
        assert_eq!(best["decode_tokens_per_second"], 291.4);
        assert_eq!((&best["tag"], &best["passes"]["disturbed"]), (&json!("best"), &json!(3)));
        assert!(best.get("no_rate").is_none() && set.get("passes").is_none());
        assert!(set["no_rate"].as_str().is_some_and(|why| why.contains("a set of 10 runs")));
        assert!(old["no_rate"].as_str().is_some_and(|why| why.contains("was not read")));
        assert_eq!(value["unread"], 1);
        // A rate that is that of a wait is left out.
        if let Some(summary) = &mut list.rows[0].summary {
            summary.decode_tokens_per_second = None;
            summary.no_rate = Some("nothing ran".to_owned());
        }
        let waited: Value = serde_json::from_str(&json(&list, Path::new("runs"))).expect("JSON");
        assert_eq!(waited["runs"][0]["no_rate"], "nothing ran");
        assert_eq!(set["report"], "runs/main/report.html");
        assert!(best.get("report").is_none());
    }

    #[test]
    fn sizes_have_three_digits_at_most() {
        let sizes = [0, 999, 1_000, 9_949, 9_950, 999_499, 999_500, 12_345_678, 2_500_000_000];
        let texts = sizes.map(size);
        let expected =
            ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "12 MB", "2.5 GB"];
        assert_eq!(texts, expected);
    }
}
