//! The output of llama-bench: in each of its forms, with what else is in the file, cut anywhere, and as sweeps.

use brickscope::{Phase, Profile};
use brickscope_analysis::compare::{Options as Comparing, Process, compare};
use brickscope_analysis::view;
use brickscope_formats::import::{Format, Options, decoded, format_of};

use super::{LLAMA_BENCH, import, imported, refused, side};

#[test]
fn repetitions_of_llama_bench_are_passes_of_which_nothing_is_attributed() {
    let profile = imported(LLAMA_BENCH, Format::LlamaBench);
    let decode = profile.phase(Phase::Decode).expect("a phase");
    assert_eq!((decode.passes, decode.tokens), (3, 384));
    assert_eq!((decode.wall_ns, decode.unattributed_ns), (19_500_000_000, 19_500_000_000));
    let walls: Vec<u64> = profile.passes.iter().map(|pass| pass.wall_ns).collect();
    assert_eq!(walls[..4], [9_000_000_001, 9_100_000_003, 9_200_000_005, 6_400_000_000]);
    // No single token has a time.
    assert_eq!((profile.latency.per_token.count, profile.latency.first_token.count), (0, 0));
    assert_eq!(profile.created, "2026-11-20T09:12:44Z");
    insta::assert_snapshot!("llama_bench", view::report(&profile));
}

#[test]
fn a_line_of_llama_bench_is_a_test_too() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let (mut lines, mut array) =
        (imported(&lines, Format::LlamaBench), imported(LLAMA_BENCH, Format::LlamaBench));
    lines.created.clear();
    array.created.clear();
    assert_eq!(lines, array);
}

/// Names and rates of all tests, as the first screen has them.
pub(super) fn tests_of(profile: &Profile) -> Vec<String> {
    let screen = view::summary(profile, view::Size::default(), None).to_string();
    let rows = screen.lines().filter(|line| line.contains(" tok/s  "));
    rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn left_out(profile: &Profile) -> Vec<(String, u64)> {
    profile.imported.as_ref().expect("of a file").left_out.clone()
}

const ROWS: [&str; 2] =
    ["pp512 56.27 ± 0.62 tok/s 3 repetitions", "tg128 19.70 ± 0.30 tok/s 3 repetitions"];

#[test]
fn the_first_screen_has_the_rate_of_each_test() {
    let profile = imported(LLAMA_BENCH, Format::LlamaBench);
    assert_eq!(tests_of(&profile), ROWS);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(!screen.contains("unattributed"), "{screen}");
    // What is advised gives a verdict.
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Next: run both builds or settings five times or more"), "{screen}");
    // One repetition has no spread.
    let single = LLAMA_BENCH.replace("6400000000, 6500000000, ", "");
    assert_ne!(single, LLAMA_BENCH);
    assert!(tests_of(&imported(&single, Format::LlamaBench))[1].ends_with("tok/s 1 repetition"));
}

#[test]
fn tests_under_unlike_conditions_are_a_list() {
    for (from, to, apart) in [
        ("\"n_threads\": 2", "\"n_threads\": 4", ["t 4", "t 2"]),
        ("\"type_k\": \"f16\"", "\"type_k\": \"q8_0\"", ["ctk q8_0", "ctk f16"]),
    ] {
        let other = LLAMA_BENCH.replacen(from, to, 1);
        let profile = imported(&other, Format::LlamaBench);
        assert!(profile.passes.is_empty() && profile.phases.is_empty());
        let rows: Vec<String> = ROWS.iter().zip(apart).map(|(a, b)| format!("{a}, {b}")).collect();
        assert_eq!(tests_of(&profile), rows);
        let both = Options { rows: vec![1, 2], ..Options::default() };
        let said = refused(&other, Format::LlamaBench, &both);
        assert!(said.starts_with("a.file: rows 1 (pp512) and 2 (tg128) differ in "), "{said}");
        assert!(
            said.ends_with("a run has only one such: choose rows with --rows, such as 1"),
            "{said}"
        );
        let second = Options { rows: vec![2], ..Options::default() };
        let alone = import(&other, Format::LlamaBench, &second).expect("one row");
        assert_eq!(alone.phases.len(), 1);
        let missing = Options { rows: vec![3], ..Options::default() };
        let said = refused(&other, Format::LlamaBench, &missing);
        assert_eq!(said, "a.file: has no row 3: its rows are 1 to 2");
    }
    // Of several backends the line of the run names none.
    let other = LLAMA_BENCH.replacen("\"backends\": \"CPU\"", "\"backends\": \"Vulkan\"", 1);
    assert_ne!(other, LLAMA_BENCH);
    let profile = imported(&other, Format::LlamaBench);
    let screen = view::summary(&profile, view::Size::default(), None).to_string();
    assert!(screen.contains("· 2 threads"), "{screen}");
    let report = view::report(&profile);
    assert!(report.contains("\nrun       2 threads"), "{report}");
    // A prompt and its answer together are no pass, and have a rate.
    let mixed = LLAMA_BENCH.replace("\"n_prompt\": 0,", "\"n_prompt\": 512,");
    let profile = imported(&mixed, Format::LlamaBench);
    assert_eq!(profile.phases.len(), 1);
    assert!(tests_of(&profile)[1].starts_with("pp512+tg128 "));
}

/// Four tests: two kinds at two depths.
pub(super) fn sweep() -> String {
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let deep = rows.iter().map(|row| {
        let mut row = row.clone();
        row["n_depth"] = 8192.into();
        row
    });
    rows.iter().cloned().chain(deep).map(|row| format!("{row}\n")).collect()
}

#[test]
fn a_sweep_is_read_without_choosing_rows_and_compared() {
    let text = sweep();
    assert_eq!(format_of(&text), Some(Format::LlamaBench));
    let profile = imported(&text, Format::LlamaBench);
    let names: Vec<String> = tests_of(&profile)
        .iter()
        .map(|row| row.split(" tok/s").next().unwrap_or("").to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "pp512 56.27 ± 0.62",
            "tg128 19.70 ± 0.30",
            "pp512 @ d8192 56.27 ± 0.62",
            "tg128 @ d8192 19.70 ± 0.30"
        ]
    );
    // What to do for one run of them is said.
    let lacks = &profile.imported.as_ref().expect("of a file").lacks;
    assert!(
        lacks.iter().any(|lack| lack.reason.contains("`import --rows 1,2` chooses")),
        "{lacks:?}"
    );
    let faster = imported(&text.replace("6400000000", "6300000000"), Format::LlamaBench);
    let found = compare(&side(&profile), &side(&faster), &Comparing::default()).expect("alike");
    let tests: Vec<&str> = found.tests.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(tests, ["pp512", "tg128", "pp512 @ d8192", "tg128 @ d8192"]);
}

#[test]
fn what_a_program_logs_beside_its_results_is_left_out_and_counted() {
    let lines: Vec<String> = sweep().lines().map(str::to_owned).collect();
    let array = format!("[{}]", lines[..2].join(", "));
    let log = "ggml_cuda_init: found 1 CUDA devices:";
    for text in [
        format!("{log}\n{array}\n"),
        format!("{log}\r\n{}\r\n", LLAMA_BENCH.replace('\n', "\r\n")),
        format!("\u{feff}{}\n{log}\n{}\n", lines[0], lines[1]),
        format!("[\n{},\n{log}\n{}\n]\n", lines[0], lines[1]),
    ] {
        assert_eq!(format_of(&text), Some(Format::LlamaBench), "{text}");
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!(tests_of(&profile), ROWS, "{text}");
        let why = format!("lines that are no part of the results, such as `{log}`");
        assert_eq!(left_out(&profile), [(why, 1)]);
    }
    // Lines that look like JSON, too.
    let text = format!("[INFO] a\n{{b\n{}\n{{\"msg\": 1}}\n{}\n", lines[0], lines[1]);
    let profile = imported(&text, Format::LlamaBench);
    assert_eq!(tests_of(&profile), ROWS);
    assert_eq!(left_out(&profile).iter().map(|(_, n)| n).sum::<u64>(), 3);
}

#[test]
fn rows_without_times_have_the_rates_that_they_state() {
    const RATES: [&str; 2] = [
        "pp512 56.26 ± 0.62 tok/s as the file states",
        "tg128 19.70 ± 0.30 tok/s as the file states",
    ];
    let without = LLAMA_BENCH.replace("samples_ns", "samples_no");
    // Without the number of its build, too.
    let reduced = without.replace("build_number", "build_no");
    let within = format!("{{\"runs\": {reduced}}}");
    for text in [&without, &reduced, &within] {
        assert_eq!(format_of(text), Some(Format::LlamaBench), "{text}");
        let profile = imported(text, Format::LlamaBench);
        assert_eq!(tests_of(&profile), RATES);
        assert!(profile.passes.is_empty());
        let lacks = &profile.imported.as_ref().expect("of a file").lacks;
        let is_said =
            |lack: &brickscope_profile::Absent| lack.reason.contains("the file has only rates");
        assert!(lacks.iter().any(is_said), "{lacks:?}");
    }
    // Times that can't be are no reason to believe the rate.
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("bench.json");
    let neither = without.replace("avg_ts", "avg_no");
    for (text, why) in [
        (neither, "row 1, samples_ns: is missing, the times of its repetitions"),
        (
            without.replace("\"samples_no\": [", "\"samples_ns\": [\"a\"], \"more\": ["),
            "row 1, samples_ns: has no whole",
        ),
    ] {
        std::fs::write(&path, text).expect("room");
        let read = brickscope_formats::import::read_file(&path, None, &Options::default());
        let said = read.expect_err("it has no times").to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_file_that_breaks_off_has_the_rows_that_are_whole() {
    let (array, lines) = (LLAMA_BENCH.to_owned(), sweep());
    for (text, is_array) in [(&array, true), (&lines, false)] {
        let ends: Vec<usize> = text.match_indices("}\n").map(|(at, _)| at + 1).collect();
        let ends: Vec<usize> = if is_array {
            text.match_indices("\n  }").map(|(at, _)| at + 4).collect()
        } else {
            ends
        };
        for cut in (0..text.len()).step_by(7) {
            let part = &text[..cut];
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            if whole == 0 {
                let said = refused(part, Format::LlamaBench, &Options::default());
                assert!(
                    said.contains("its first test is whole") || said.contains("no test"),
                    "{said}"
                );
                continue;
            }
            let profile = imported(part, Format::LlamaBench);
            assert_eq!(profile.imported.as_ref().expect("of a file").tests.len(), whole, "{cut}");
            let is_told = left_out(&profile).iter().any(|(why, _)| {
                why.contains("the file breaks off there") || why.contains("the list has no end")
            });
            // Between lines nobody knows whether there were more.
            assert!(is_told || !is_array && ends.iter().any(|&end| end == cut || end + 1 == cut));
        }
    }
}

#[test]
fn a_file_of_powershell_is_read() {
    let bytes = |text: &str| {
        let units = [0xfeff_u16].into_iter().chain(text.encode_utf16().collect::<Vec<_>>());
        units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    let text = decoded(bytes(&LLAMA_BENCH.replace('\n', "\r\n"))).expect("text");
    assert_eq!(tests_of(&imported(&text, Format::LlamaBench)), ROWS);
}

pub(super) const MARKDOWN: &str = "\
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |           pp512 |      7097.99 ± 15.03 |
| qwen2 7B Q4_K - Medium         |   4.36 GiB |     7.62 B | CUDA       |  99 |   tg128 @ d4096 |        118.80 ± 0.22 |

build: 0123abc (5163)
";

const SQL: &str = "\
CREATE TABLE IF NOT EXISTS llama_bench (
  build_commit TEXT,
  build_number INTEGER,
  n_prompt INTEGER,
  avg_ts REAL
);

INSERT INTO llama_bench (build_commit, build_number, model_type, n_prompt, n_gen, n_depth, test_time, avg_ns, avg_ts, stddev_ts) VALUES ('0123abc', '5163', 'it's a 7B, Q4_K', '512', '0', '0', '2025-04-24T11:58:50Z', '72133333', '7097.987934', '15.030000');
INSERT INTO llama_bench (build_commit, build_number, model_type, n_prompt, n_gen, n_depth, test_time, avg_ns, avg_ts, stddev_ts) VALUES ('0123abc', '5163', 'it's a 7B, Q4_K', '0', '128', '4096', '2025-04-24T11:58:50Z', '1077000000', '118.800001', '0.220000');
";

#[test]
fn tables_have_rates_and_no_times() {
    let csv = "build_commit,build_number,backends,model_type,n_threads,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,\
               avg_ts,stddev_ts\n\
               \"0123abc\",\"5163\",\"CUDA\",\"qwen2 7B, Q4_K\",\"8\",\"512\",\"0\",\"0\",\"2025-04-24T11:58:50Z\",\
               \"72133333\",\"1000\",\"7097.987934\",\"15.030000\"\n\
               \"0123abc\",\"5163\",\"CUDA\",\"qwen2 7B, Q4_K\",\"8\",\"0\",\"128\",\"4096\",\"2025-04-24T11:58:50Z\",\
               \"1077000000\",\"1000\",\"118.800001\",\"0.220000\"\n";
    let noisy = format!("llama-bench: starting\r\n{}", MARKDOWN.replace('\n', "\r\n"));
    for text in [MARKDOWN, csv, SQL, &SQL.replace("llama_bench", "test"), &noisy] {
        assert_eq!(format_of(text), Some(Format::LlamaBench), "{text}");
        let profile = imported(text, Format::LlamaBench);
        assert_eq!(
            tests_of(&profile),
            [
                "pp512 7097.99 ± 15.03 tok/s as the file states",
                "tg128 @ d4096 118.80 ± 0.22 tok/s as the file states"
            ]
        );
        assert!(profile.passes.is_empty());
        let imported = profile.imported.as_ref().expect("of a file");
        assert_eq!(imported.program.as_deref(), Some("llama.cpp 0123abc (5163)"));
        let error = Process::from_profile("a run", &profile).expect_err("there are no times");
        assert!(error.to_string().contains("`llama-bench -o jsonl`"), "{error}");
        assert!(view::report(&profile).contains("\nTests\n"));
    }
    for (from, to, place) in
        [("pp512", "warm-up", "row 1, test"), ("7097.99 ± 15.03", "fast", "row 1, t/s")]
    {
        let profile = imported(&MARKDOWN.replace(from, to), Format::LlamaBench);
        assert_eq!(tests_of(&profile), ["tg128 @ d4096 118.80 ± 0.22 tok/s as the file states"]);
        let (why, count) = &left_out(&profile)[0];
        assert!(why.starts_with(&format!("rows that can't be read ({place}: ")), "{why}");
        assert_eq!(*count, 1);
    }
    // Cut within a row: the others are read.
    let cut = MARKDOWN.find("7.62 B | CUDA       |  99 |   tg").expect("a row");
    let profile = imported(&MARKDOWN[..cut], Format::LlamaBench);
    assert_eq!(tests_of(&profile).len(), 1);
    assert!(left_out(&profile)[0].0.contains("breaks off"));
    let profile = imported(&SQL[..SQL.len() - 20], Format::LlamaBench);
    assert_eq!(tests_of(&profile).len(), 1);
    assert_eq!(left_out(&profile), [("line 9, which breaks off".to_owned(), 1)]);
    // What is logged is no row, and of a single repetition there is no spread.
    let logged = SQL.replacen("INSERT", "llama_model_load: done\nINSERT", 1);
    let profile = imported(&logged.replace("'15.030000'", "NULL"), Format::LlamaBench);
    assert_eq!(tests_of(&profile)[0], "pp512 7097.99 tok/s as the file states");
    assert!(left_out(&profile)[0].0.ends_with("such as `llama_model_load: done`"));
    for (from, to, said) in [
        ("'7097.987934'", "'fast'", "row 1, avg_ts: is not a number of tokens per second"),
        ("'0', '128'", "'0', 'many'", "row 2, n_gen: is not a whole number of tokens"),
        ("n_gen", "n_gem", "row 2, n_gen: is missing"),
    ] {
        let profile = imported(&SQL.replace(from, to), Format::LlamaBench);
        assert_eq!(tests_of(&profile).len(), 1, "{said}");
        assert_eq!(left_out(&profile), [(format!("rows that can't be read ({said})"), 1)]);
    }
    // If no row is left, the first is what is wrong.
    let none = SQL.replace("'7097.987934'", "'nan'").replace("'118.800001'", "'inf'");
    let said = refused(&none, Format::LlamaBench, &Options::default());
    assert_eq!(said, "a.file, row 1, avg_ts: is not a number of tokens per second");
}

#[test]
fn a_spread_that_is_no_number_costs_no_row() {
    let note = [("standard deviations that are no number, such as nan".to_owned(), 1)];
    for spread in ["nan", "-nan", "inf", "-1.00"] {
        for text in [
            MARKDOWN.replace("118.80 ± 0.22", &format!("118.80 ± {spread}")),
            SQL.replace("118.800001", "118.80").replace("0.220000", spread),
        ] {
            let profile = imported(&text, Format::LlamaBench);
            assert_eq!(
                tests_of(&profile),
                [
                    "pp512 7097.99 ± 15.03 tok/s as the file states",
                    "tg128 @ d4096 118.80 tok/s as the file states"
                ]
            );
            assert_eq!(left_out(&profile), note);
        }
    }
    // JSON has no such number, and programs write it all the same: the times are whole.
    for (field, value) in [("stddev_ts", "nan"), ("stddev_ts", "-nan"), ("avg_ts", "inf")] {
        let odd = format!("\"{field}\":{value},\"x\":");
        let text = sweep().replace(&format!("\"{field}\":"), &odd);
        assert!(text.contains(value));
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!((tests_of(&profile).len(), left_out(&profile)), (4, Vec::new()), "{value}");
    }
}

#[test]
fn a_repetition_without_a_time_is_left_out_and_counted() {
    let note = [("repetitions whose time is no whole number of nanoseconds above 0".to_owned(), 1)];
    for none in ["0", "-5", "18446744073709551615", "null", "nan", "\"fast\""] {
        let text = LLAMA_BENCH.replace("6500000000,", &format!("{none},"));
        let profile = imported(&text, Format::LlamaBench);
        let decode = profile.phase(Phase::Decode).expect("a phase");
        assert_eq!((decode.passes, decode.wall_ns), (2, 13_000_000_000), "{none}");
        assert!(tests_of(&profile)[1].ends_with(" tok/s 2 repetitions"), "{none}");
        assert_eq!(left_out(&profile), note, "{none}");
    }
    let float = LLAMA_BENCH.replace("6500000000,", "6.5e9,");
    assert_eq!(tests_of(&imported(&float, Format::LlamaBench)), ROWS);
}

#[test]
fn a_row_that_cant_be_read_costs_only_itself() {
    let lines: Vec<String> = sweep().lines().map(str::to_owned).collect();
    let last = &lines[1];
    for (from, to, said) in [
        ("\"n_gen\":128", "\"n_gen\":0", "n_prompt: is 0, and so is n_gen"),
        ("\"n_gen\":128", "\"n_gen\":1e12", "n_gen: is not a whole number of tokens"),
        ("[6400000000,6500000000,6600000000]", "[]", "samples_ns: is empty"),
        (
            "[6400000000,6500000000,6600000000]",
            "[0]",
            "samples_ns: has no whole number of nanoseconds above 0",
        ),
    ] {
        let odd = last.replace(from, to);
        assert_ne!(&odd, last, "{from}");
        let text = format!("{}\n{odd}\n{last}\n", lines[0]);
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!(tests_of(&profile), ROWS, "{said}");
        let (why, count) = &left_out(&profile)[0];
        assert!(why.starts_with(&format!("rows that can't be read (row 2, {said}")), "{why}");
        assert_eq!(*count, 1);
        // It has a number, as it has a place in the file.
        let of_row = |row| Options { rows: vec![row], ..Options::default() };
        assert_eq!(import(&text, Format::LlamaBench, &of_row(3)).expect("a row").phases.len(), 1);
        let said = refused(&text, Format::LlamaBench, &of_row(2));
        assert_eq!(said, "a.file: has a row 2, but it can't be read");
    }
    // What is certain is read: numbers as texts or with a point, and no number for none.
    for (from, to) in [
        ("\"n_gen\":128", "\"n_gen\":\"128\""),
        ("\"n_gen\":128", "\"n_gen\":128.0"),
        ("\"n_prompt\":0,", ""),
        ("\"n_depth\":0,", ""),
    ] {
        let read = last.replace(from, to);
        assert_ne!(&read, last, "{from}");
        let profile = imported(&format!("{}\n{read}\n", lines[0]), Format::LlamaBench);
        assert_eq!(tests_of(&profile), ROWS, "{to}");
        assert!(left_out(&profile).is_empty());
    }
    // Each of several files that were joined begins with a mark.
    let joined = format!("\u{feff}{}\n\u{feff}{last}\n", lines[0]);
    let profile = imported(&joined, Format::LlamaBench);
    assert_eq!(tests_of(&profile), ROWS);
    assert!(left_out(&profile).is_empty());
}

#[test]
fn rows_are_found_behind_prefixes_and_within_other_objects() {
    let lines: Vec<String> = sweep().lines().take(2).map(str::to_owned).collect();
    let stamped = |at: &str| lines.iter().map(|line| format!("{at}{line}\n")).collect::<String>();
    for text in [
        stamped("2026-11-20T09:12:44Z "),
        stamped("[12:44] bench: "),
        format!("main: loaded {}\n{}\n", lines[0], lines[1]),
        format!("{{\"host\": \"a\", \"results\": [{}]}}", lines.join(",\n")),
    ] {
        assert_eq!(format_of(&text), Some(Format::LlamaBench), "{text}");
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!(tests_of(&profile), ROWS, "{text}");
        assert!(left_out(&profile).is_empty(), "{text}");
    }
}

#[test]
fn tables_are_read_as_people_and_programs_pass_them_on() {
    let expected = tests_of(&imported(MARKDOWN, Format::LlamaBench));
    let quoted: String = MARKDOWN.lines().map(|line| format!("> {line}\n")).collect();
    let bold = MARKDOWN.replace("tg128 @ d4096", "**tg128 @ d4096**").replace("118.80", "`118.80`");
    let (spoilt, ascii) = (MARKDOWN.replace('±', "Â±"), MARKDOWN.replace('±', "+/-"));
    // A statement with several rows.
    let begins = SQL.rfind("INSERT").expect("a row");
    let values = begins + SQL[begins..].find("('0123abc'").expect("its values");
    let first = SQL[..begins].trim_end().trim_end_matches(';');
    let several = format!("{first},\n{}", &SQL[values..]);
    let spreadsheet = "n_prompt;n_gen;n_depth;avg_ts;stddev_ts\n\
                       512;0;0;7097.99;15.03\n\
                       0.0;128.0;4096;118.80;0.22\n";
    let tabs = spreadsheet.replace(';', "\t");
    for text in [&*quoted, &bold, &spoilt, &ascii, &several, spreadsheet, &tabs] {
        assert_eq!(format_of(text), Some(Format::LlamaBench), "{text}");
        let profile = imported(text, Format::LlamaBench);
        assert_eq!((tests_of(&profile), left_out(&profile)), (expected.clone(), vec![]), "{text}");
    }
}

#[test]
fn a_statement_has_its_rows_in_lines_of_their_own_or_all_in_one() {
    let expected = tests_of(&imported(MARKDOWN, Format::LlamaBench));
    let all: Vec<(&str, &str)> =
        SQL.lines().filter_map(|line| line.split_once(" VALUES ")).collect();
    let [(insert, first), (_, second)] = all[..] else { panic!("{all:?}") };
    let (first, second) = (first.trim_end_matches(';'), second.trim_end_matches(';'));
    let (dumped, quoted) = (
        insert.replace("llama_bench", "public.test"),
        insert.replace("llama_bench", "`test`").replace("n_prompt", "`n_prompt`"),
    );
    for text in [
        format!("{insert} VALUES\n{first},\n{second};\n"),
        format!("{dumped} VALUES\n\t{first},\n\n\t{second};\n"),
        format!("{insert}\nVALUES\n  {first},\n  {second}\n;\n"),
        format!("{insert}\nVALUES {first}\n;\n{insert} VALUES\n{second};"),
        format!("{quoted} VALUES {first},{second};\n"),
    ] {
        assert_eq!(format_of(&text), Some(Format::LlamaBench), "{text}");
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!((tests_of(&profile), left_out(&profile)), (expected.clone(), vec![]), "{text}");
    }
    // A comment between them is no part of it and costs no row; nor does a row that can't be read.
    let odd = second.replace("'118.800001', ", "");
    let text = format!("{insert} VALUES\n{first},\n-- more\n{odd},\n{second};\n");
    let profile = imported(&text, Format::LlamaBench);
    assert_eq!(tests_of(&profile), expected);
    let why = "lines that are no part of the results, such as `-- more`";
    assert_eq!(left_out(&profile), [(why.to_owned(), 2)]);
    // One that breaks off before its first row.
    let text = format!("{insert} VALUES {first};\n{insert} VALUES");
    let profile = imported(&text, Format::LlamaBench);
    assert_eq!(left_out(&profile), [("line 2, which breaks off".to_owned(), 1)]);
}

#[test]
fn a_number_of_tokens_that_is_missing_is_told() {
    let doubts =
        |text: &str| imported(text, Format::LlamaBench).imported.expect("of a file").doubts;
    let lines = sweep();
    assert!(doubts(&lines).is_empty());
    let without = lines.replace("\"n_prompt\":0,", "");
    assert_eq!(doubts(&without), ["n_prompt is missing in 2 rows and taken as 0"]);
    let of_prompts = lines.lines().next().expect("a row").replace("\"n_gen\":0,", "");
    assert_eq!(doubts(&of_prompts), ["n_gen is missing in 1 row and taken as 0"]);
    // A name tells, if it is that of the row.
    for (name, told) in [("tg128", 0), ("pp512+tg128", 1)] {
        let named = format!("\"test\":\"{name}\",\"n_gen\":128,");
        assert_eq!(doubts(&without.replace("\"n_gen\":128,", &named)).len(), told, "{name}");
    }
    for none in [MARKDOWN, SQL] {
        assert!(doubts(none).is_empty(), "{none}");
    }
}

#[test]
fn builds_of_2023_state_their_backend_by_flags_and_name_tests_with_a_space() {
    let row = r#"{"build_commit": "1a2b3c4", "build_number": 1100, "cuda": false, "opencl": true, "metal": false,
        "gpu_blas": true, "blas": true, "cpu_info": "a CPU", "gpu_info": "", "model_filename": "7b.gguf",
        "model_type": "LLaMA 7B mostly Q4_0", "model_size": 3825065984, "model_n_params": 6738415616, "n_batch": 512,
        "n_threads": 8, "f16_kv": true, "n_gpu_layers": 99, "main_gpu": 0, "mul_mat_q": true, "low_vram": false,
        "tensor_split": "0.00", "n_prompt": 0, "n_gen": 128, "test_time": "2023-09-07T10:00:00Z",
        "avg_ns": 2000000000, "stddev_ns": 0, "avg_ts": 64.0, "stddev_ts": 0.0, "samples_ns": [2000000000],
        "samples_ts": [64.0]}"#;
    let profile = imported(row, Format::LlamaBench);
    assert_eq!(profile.run.as_ref().expect("it has one").backend, "OpenCL");
    assert_eq!(tests_of(&profile), ["tg128 64.00 tok/s 1 repetition"]);
    let old = MARKDOWN.replace("pp512", "pp 512").replace("tg128 @ d4096", "tg 128");
    let names = tests_of(&imported(&old, Format::LlamaBench));
    assert!(names[0].starts_with("pp512 ") && names[1].starts_with("tg128 "), "{names:?}");
}

#[test]
fn tables_under_headings_are_told_apart_by_them() {
    let text = format!("master:\n\n{MARKDOWN}\n**PR**\n\n{}", MARKDOWN.replace("118.80", "98.80"));
    let profile = imported(&text, Format::LlamaBench);
    let tests = tests_of(&profile);
    assert_eq!(tests.len(), 4);
    assert!(tests[1].contains("118.80") && tests[1].ends_with("table master"), "{tests:?}");
    assert!(tests[3].contains("98.80") && tests[3].ends_with("table PR"), "{tests:?}");
    assert_eq!(left_out(&profile), []);
    // So are those in fences.
    let fenced =
        |name: &str| format!("{name}\n```\nggml_cuda_init: found 1 CUDA devices:\n{MARKDOWN}```\n");
    let text = fenced("## Before") + &fenced("after").replace("118.80", "98.80");
    let tests = tests_of(&imported(&text, Format::LlamaBench));
    assert!(tests[1].ends_with("table Before") && tests[3].ends_with("table after"), "{tests:?}");
    // A sentence before one is no name.
    let said = "I have run this on my machine, which has been idle since yesterday evening, twice:";
    let text = format!("first:\n{MARKDOWN}\n{said}\n{MARKDOWN}");
    let profile = imported(&text, Format::LlamaBench);
    assert_eq!(left_out(&profile).iter().map(|(_, n)| n).sum::<u64>(), 2);
}

#[test]
fn a_run_that_was_appended_to_a_line_without_an_end_is_read() {
    let rows = LLAMA_BENCH.split_inclusive("\n  }").filter(|row| row.contains('{'));
    let line = |row: &str| {
        row.lines().map(str::trim).collect::<String>().trim_start_matches(['[', ',']).to_owned()
    };
    let lines: Vec<String> = rows.map(line).collect();
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    let part = &second[..second.len() - 40];
    let text = format!("{first}\n{part}{first}\n{second}\n");
    let profile = imported(&text, Format::LlamaBench);
    assert_eq!(profile.imported.as_ref().expect("of a file").tests.len(), 3);
    assert_eq!(left_out(&profile), [("rows that aren't whole JSON".to_owned(), 1)]);
}

#[test]
fn what_stands_before_a_table_may_look_like_another_form() {
    let expected = tests_of(&imported(MARKDOWN, Format::LlamaBench));
    for before in [
        "[2025-04-24 11:58:50] ggml_cuda_init",
        "[1] 4711",
        "{a}",
        "`samples_ns` are in \"samples_ns\"",
    ] {
        let text = format!("{before}\n{MARKDOWN}");
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!(tests_of(&profile), expected, "{before}");
    }
}

#[test]
fn a_table_that_breaks_off_in_a_rate_has_not_that_rate() {
    let rows = tests_of(&imported(MARKDOWN, Format::LlamaBench));
    let whole: Vec<&str> = MARKDOWN.lines().filter(|line| line.starts_with('|')).collect();
    let cut = whole.join("\n");
    let cut = &cut[..cut.rfind(" ±").expect("a spread") - 3];
    let profile = imported(cut, Format::LlamaBench);
    assert_eq!(tests_of(&profile), rows[..rows.len() - 1]);
    let [(why, 1)] = &left_out(&profile)[..] else { panic!("{:?}", left_out(&profile)) };
    assert!(why.contains("breaks off"), "{why}");
}

#[test]
fn tables_of_spreadsheets_and_of_programs_that_run_it_are_tables() {
    let expected = tests_of(&imported(MARKDOWN, Format::LlamaBench));
    let table: Vec<&str> = MARKDOWN.lines().filter(|line| line.starts_with('|')).collect();
    let bare = |line: &&str| line.trim_matches(['|', ' ']).to_owned();
    let open: Vec<String> = table.iter().map(bare).collect();
    let cells = |line: &&str| {
        line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("\t")
    };
    let tabs: Vec<String> = table.iter().filter(|line| !line.contains("---")).map(cells).collect();
    let logged: Vec<String> = table.iter().map(|line| format!("bench-1  | {line}")).collect();
    for text in [open, tabs, logged] {
        let text = text.join("\n");
        assert_eq!(format_of(&text), Some(Format::LlamaBench), "{text}");
        let profile = imported(&text, Format::LlamaBench);
        assert_eq!((tests_of(&profile), left_out(&profile)), (expected.clone(), vec![]), "{text}");
    }
    // The build below a table is behind the name, too.
    let program =
        |text: &str| imported(text, Format::LlamaBench).imported.expect("of a file").program;
    let logged: String = MARKDOWN.lines().map(|line| format!("bench-1  | {line}\n")).collect();
    assert!(MARKDOWN.contains("\nbuild: ") && program(&logged) == program(MARKDOWN), "{logged}");
    // Nobody knows which comma is of a number.
    let commas = "model,test,t/s\nllama 7B,pp512,118,85 ± 1,0\nllama 7B,tg128,19.70 ± 0.30\n";
    let profile = imported(commas, Format::LlamaBench);
    assert_eq!((tests_of(&profile).len(), left_out(&profile).len()), (1, 1));
}

#[test]
fn faults_of_llama_bench_are_named_by_row_and_field() {
    // A file of one row, which is the first that the file has.
    let rows: Vec<serde_json::Value> = serde_json::from_str(LLAMA_BENCH).expect("JSON");
    let row = rows[1].to_string();
    for (from, to, said) in [
        ("\"samples_ns\":[", "\"samples_ns\":1,\"x\":[", "row 1, samples_ns: is not an array"),
        ("\"n_gen\":128", "\"n_gen\":\"x\"", "row 1, n_gen: is not a whole number of tokens"),
        ("\"n_gen\":128", "\"n_gem\":128", "row 1, n_gen: is missing"),
        ("\"n_gen\":128", "\"n_gen\":0", "row 1, n_prompt: is 0, and so is n_gen"),
        (
            "6400000000,6500000000",
            "9223372036854775807,9223372036854775807",
            "row 1, samples_ns: add up to more than 64 bits",
        ),
    ] {
        let text = row.replace(from, to);
        assert_ne!(text, row);
        let error = refused(&text, Format::LlamaBench, &Options::default());
        assert!(error.starts_with(&format!("a.file, {said}")), "{error}");
    }
    let cut = refused(&LLAMA_BENCH[..300], Format::LlamaBench, &Options::default());
    assert!(cut.starts_with("a.file, line 1"), "{cut}");
}
