//! `brickscope collect` and `brickscope lake`: the runs of many writers in one folder, each whole, and once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use brickscope::{BrickProfiler, MockClock, Phase, Profile, Request};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope, run, text};

/// A run like no other, by its time.
fn profile(nth: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..30 {
        let pass = profiler.begin_pass(Phase::Decode);
        for layer in 0..2 {
            let layer = profiler.begin_layer(layer);
            let brick = profiler.start("QkvProjection");
            hand.advance(1000 + nth + 7 * position);
            profiler.stop(brick, 64);
            profiler.end_layer(layer);
        }
        hand.advance(5);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    let (minute, second) = (nth / 60 % 60, nth % 60);
    profile.created = format!("2026-11-{:02}T10:{minute:02}:{second:02}Z", 1 + nth % 2);
    profile
}

/// Folders with a run each.
fn runs(parent: &Path, which: impl Iterator<Item = u64>) {
    for nth in which {
        let folder = parent.join(nth.to_string());
        fs::create_dir_all(&folder).expect("there is room");
        profile(nth).save(&folder.join("profile.json")).expect("there is room");
    }
}

fn collect(runs: &Path, lake: &Path) -> Command {
    collect_as("m1", runs, lake)
}

fn collect_as(machine: &str, runs: &Path, lake: &Path) -> Command {
    let mut command = brickscope(&["collect", "--machine", machine, "--json"]);
    command.env_remove("BRICKSCOPE_LAKE").arg(runs).arg("--lake").arg(lake);
    command
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&run(command).stdout).expect("JSON")
}

fn check(lake: &Path) -> Value {
    json(brickscope(&["lake", "check", "--json", "--lake"]).arg(lake))
}

fn compact(lake: &Path, grace: &str) -> Value {
    json(brickscope(&["lake", "compact", "--json", "--grace", grace, "--lake"]).arg(lake))
}

#[test]
fn a_commit_that_is_none_is_refused_by_the_gate_of_a_lake() {
    let dir = TempDir::new().expect("a temporary folder");
    let (folder, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&folder, 0..1);
    run(&mut collect(&folder, &lake));
    let mut gate = brickscope(&["gate", "--baseline"]);
    gate.arg(&lake).arg(folder.join("0")).env("BRICKSCOPE_COMMIT", "a commit");
    let output = gate.output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("BRICKSCOPE_COMMIT: it can't name a commit"), "{said}");
}

#[test]
fn a_run_is_in_the_lake_once_however_often_it_comes() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..6);
    let first = json(&mut collect(&of, &lake));
    assert_eq!((&first["added"], &first["known"]), (&6.into(), &0.into()));
    let again = json(&mut collect(&of, &lake));
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &6.into()));

    // Merged, both before and after what was merged is deleted.
    let merged = compact(&lake, "60");
    assert_eq!((&merged["runs"], &merged["merged_parts"]), (&6.into(), &2.into()));
    assert!(merged["kept_files"].as_u64() > Some(6) && merged["deleted_files"] == 0, "{merged}");
    assert_eq!(check(&lake)["whole"], 6);
    let swept = compact(&lake, "0");
    assert_eq!((&swept["merged_parts"], &swept["kept_files"]), (&0.into(), &0.into()));
    assert_eq!(check(&lake)["whole"], 6);
    let again = json(&mut collect(&of, &lake));
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &6.into()));

    // What is noted of a run later leaves it the same run.
    let mut noted = profile(3);
    noted.brickscope_version = "another".to_owned();
    noted.save(&of.join("3/profile.json")).expect("there is room");
    assert_eq!(json(&mut collect(&of, &lake))["known"], 6);
    // And new runs are merged with the merged.
    runs(&of, 6..8);
    assert_eq!(json(&mut collect(&of, &lake))["added"], 2);
    assert_eq!(compact(&lake, "0")["runs"], 8);
    assert_eq!(check(&lake)["whole"], 8);
}

#[test]
fn runs_of_several_machines_are_merged_but_for_what_is_damaged() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    // All of one day.
    runs(&of, [0, 2, 4, 6].into_iter());
    let add = |machine: &str, nth: &str| json(&mut collect_as(machine, &of.join(nth), &lake));
    for (machine, nth) in [("a", "0"), ("zeta", "2"), ("n0", "4"), ("n1", "6")] {
        assert_eq!(add(machine, nth)["added"], 1);
    }
    // One of them under another name, too, as if two commands had collected it at once.
    for table in ["speeds", "bricks", "durations", "passes", "spans", "runs"] {
        let day = lake.join(table).join("date=2026-11-01");
        let file = fs::read_dir(day.join("machine=n1")).expect("it is there").next();
        let file = file.expect("a file").expect("a file");
        fs::create_dir(day.join("machine=n2")).expect("there is room");
        fs::copy(file.path(), day.join("machine=n2").join(file.file_name()))
            .expect("there is room");
    }
    let file = |table: &str, machine: &str| {
        let folder = lake.join(table).join("date=2026-11-01").join(format!("machine={machine}"));
        fs::read_dir(folder).expect("it is there").next().expect("a file").expect("a file").path()
    };
    let (bricks, runs) = (file("bricks", "a"), file("runs", "zeta"));
    let whole = [&bricks, &runs].map(|file| fs::read(file).expect("it can be read"));
    fs::remove_file(&bricks).expect("it can be removed");
    fs::write(&runs, &whole[1][..whole[1].len() / 2]).expect("there is room");
    let merged = compact(&lake, "0");
    assert_eq!((&merged["runs"], &merged["given_up"]), (&2.into(), &2.into()), "{merged}");
    // What is damaged stays, and is merged once it is whole.
    for (file, bytes) in [&bricks, &runs].into_iter().zip(&whole) {
        fs::write(file, bytes).expect("there is room");
    }
    let merged = compact(&lake, "0");
    assert_eq!((&merged["runs"], &merged["given_up"]), (&4.into(), &0.into()), "{merged}");
    assert_eq!(check(&lake), serde_json::json!({ "whole": 4, "faults": [] }));
    let day = lake.join("runs/date=2026-11-01");
    let folders: Vec<_> = fs::read_dir(&day).expect("it is there").flatten().collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    assert_eq!(add("zeta", "2")["known"], 1);
    // A merged part that lacks a file is no reason to delete anything.
    assert_eq!(add("a", "0")["known"], 1);
    self::runs(&of, std::iter::once(8));
    assert_eq!(add("a", "8")["added"], 1);
    assert_eq!(compact(&lake, "60")["runs"], 5);
    let newest = fs::read_dir(lake.join("spans/date=2026-11-01/machine=merged"));
    let newest = newest.expect("it is there").flatten().map(|file| file.path()).max();
    fs::remove_file(newest.expect("a file")).expect("it can be removed");
    assert_eq!(compact(&lake, "0")["deleted_files"], 0);
}

#[test]
fn what_is_missing_or_no_run_is_named() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..2);
    fs::create_dir(of.join("broken")).expect("there is room");
    fs::write(of.join("broken/profile.json"), "{").expect("there is room");
    let output = collect(&of, &lake).output().expect("it starts");
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.contains("left out: ") && stderr.contains("broken"));

    let fails = |command: &mut Command| {
        let output = command.output().expect("it starts");
        assert!(!output.status.success(), "{command:?}");
        text(&output.stderr).to_owned() + text(&output.stdout)
    };
    let nowhere = dir.path().join("nowhere");
    fs::create_dir(&nowhere).expect("there is room");
    assert!(fails(&mut collect(&nowhere, &lake)).contains("has no runs"));
    let no_lake = fails(brickscope(&["lake", "check", "--lake"]).arg(&of));
    assert!(no_lake.contains("is not a lake: it has no lake.json"), "{no_lake}");
    let full = fails(&mut collect(&of, dir.path()));
    assert!(full.contains("is neither empty nor a lake"), "{full}");
    if !cfg!(feature = "object-store") {
        let url = fails(&mut collect(&of, Path::new("s3://bucket/lake")));
        assert!(
            url.contains("s3://bucket/lake: this brickscope was built without object"),
            "{url}"
        );
        assert!(url.contains("--features full,object-store"), "{url}");
    }
    let bad = fails(collect(&of, &lake).args(["--machine", "../x"]));
    assert!(bad.contains("cannot be used") || bad.contains("can't name a machine"), "{bad}");

    // A file that is lost, and one that is damaged.
    let day = lake.join("bricks/date=2026-11-01/machine=m1");
    let file = fs::read_dir(day).expect("it is there").next().expect("a file").expect("a file");
    let bytes = fs::read(file.path()).expect("it can be read");
    fs::remove_file(file.path()).expect("it can be removed");
    let lost = fails(brickscope(&["lake", "check", "--lake"]).arg(&lake));
    assert!(
        lost.contains("rows of `bricks` are missing") && lost.contains("1 run whole"),
        "{lost}"
    );
    fs::write(file.path(), &bytes[..bytes.len() / 2]).expect("there is room");
    let damaged = fails(brickscope(&["lake", "check", "--lake"]).arg(&lake));
    assert!(damaged.contains(&*file.path().to_string_lossy()), "{damaged}");
}

#[test]
fn requests_of_a_server_are_part_of_a_run() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    for nth in [0, 2] {
        let request = |number: u64| Request {
            id: format!("cmpl-{number}"),
            arrived_ns: number,
            tokens_ns: vec![5_000 + number],
            ended_ns: Some(6_000),
            ..Request::default()
        };
        let profile = Profile { requests: (0..3).map(request).collect(), ..profile(nth) };
        let folder = of.join(nth.to_string());
        fs::create_dir_all(&folder).expect("there is room");
        profile.save(&folder.join("profile.json")).expect("there is room");
    }
    json(&mut collect(&of, &lake));
    assert_eq!(check(&lake)["whole"], 2);
    let day = lake.join("requests/date=2026-11-01");
    assert_eq!(fs::read_dir(day.join("machine=m1")).expect("it is there").count(), 2);
    assert_eq!(compact(&lake, "0")["runs"], 2);
    assert_eq!(check(&lake), serde_json::json!({ "whole": 2, "faults": [] }));
    // They are missed where they are counted.
    fs::remove_dir_all(&day).expect("it can be removed");
    let output = brickscope(&["lake", "check", "--lake"]).arg(&lake).output().expect("it starts");
    let said = text(&output.stderr).to_owned() + text(&output.stdout);
    assert!(!output.status.success() && said.contains("rows of `requests` are missing"), "{said}");
    // A lake from before there were any has no such folder.
    let (of, lake) = (dir.path().join("others"), dir.path().join("earlier"));
    runs(&of, 4..8);
    json(&mut collect(&of, &lake));
    fs::remove_dir_all(lake.join("requests")).expect("it can be removed");
    assert_eq!(check(&lake)["whole"], 4);
    assert_eq!(compact(&lake, "0")["runs"], 4);
    assert_eq!(check(&lake)["whole"], 4);
}

/// What `lake.json` says.
fn version(lake: &Path) -> Value {
    let text = fs::read_to_string(lake.join("lake.json")).expect("it is there");
    serde_json::from_str::<Value>(&text).expect("JSON")["lake_version"].clone()
}

#[test]
fn versions_that_do_not_know_what_is_in_a_lake_do_not_merge_it() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..4);
    json(&mut collect(&of, &lake));
    assert_eq!(version(&lake), 4);
    // A lake of the version before has no requests, and stays so until it gets some.
    let earlier = "{\"lake_version\": 3, \"brickscope_version\": \"0.1.0\"}";
    fs::write(lake.join("lake.json"), earlier).expect("there is room");
    fs::remove_dir_all(lake.join("requests")).expect("it can be removed");
    runs(&of, 4..5);
    assert_eq!(json(&mut collect(&of, &lake))["added"], 1);
    assert_eq!(compact(&lake, "0")["runs"], 5);
    assert_eq!(version(&lake), 3);
    let asked = Request { id: "a".to_owned(), tokens_ns: vec![7], ..Request::default() };
    let profile = Profile { requests: vec![asked], ..profile(6) };
    fs::create_dir(of.join("6")).expect("there is room");
    profile.save(&of.join("6/profile.json")).expect("there is room");
    assert_eq!(json(&mut collect(&of, &lake))["added"], 1);
    assert_eq!(version(&lake), 4);
    // One that got them from a version that didn't say so is marked before it is merged.
    fs::write(lake.join("lake.json"), earlier).expect("there is room");
    compact(&lake, "60");
    assert_eq!(version(&lake), 4);
    // A table of a later version would be left out of merged parts; a folder that is none isn't in the way.
    fs::create_dir(lake.join("notes")).expect("there is room");
    compact(&lake, "60");
    fs::create_dir_all(lake.join("quants/date=2026-11-01")).expect("there is room");
    let output = brickscope(&["lake", "compact", "--lake"]).arg(&lake).output().expect("it starts");
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!output.status.success() && said.contains("does not know the table quants"), "{said}");
}

/// A DuckDB that has no rows for a question, and these counts for the conditions of it.
fn without_rows(folder: &Path, counts: &str) -> PathBuf {
    let duckdb = folder.join("duckdb");
    let n = counts.split(',').count();
    let names: Vec<String> = (0..n).map(|nth| format!("c{nth}")).collect();
    let kinds: String = names.iter().map(|name| format!("{name},BIGINT\\n")).collect();
    let script = format!(
        "told=$(cat)\nend='brickscope: the other result'\ncase \"$told\" in\n\
        *' AS c0'*) printf \"column_name,column_type\\n{kinds}$end\\n{}\\n{counts}\\n\" ;;\n\
        *'SELECT DISTINCT'*) printf \"column_name,column_type\\nv,VARCHAR\\n$end\\nv\\ntg128\\n\" ;;\n\
        *) printf \"column_name,column_type\\nv,BIGINT\\n$end\\nv\\n\" ;;\nesac",
        names.join(",")
    );
    command::script(&duckdb, &script);
    duckdb
}

#[test]
fn why_there_are_no_rows_is_told_beside_every_format() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..2);
    run(&mut collect(&of, &lake));
    let ask = |words: &[&str], counts: &str| {
        let duckdb = without_rows(dir.path(), counts);
        let mut command = brickscope(words);
        command.arg("--lake").arg(&lake).env("BRICKSCOPE_DUCKDB", duckdb);
        let output = command.output().expect("it starts");
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        (said, text(&output.stdout).to_owned(), output.status.success())
    };
    for (words, counts, why) in [
        (&["lake", "regressions"][..], "2,2,2,2,2,2,0", "of 2 runs, none names a commit"),
        (&["lake", "requests"][..], "2,2,2,0,0", "of 2 runs, none has requests of a server"),
        (
            &["lake", "slowest-machines"][..],
            "2,2,2,2,2,2",
            "of 2 runs, no two machines did the same work",
        ),
        (&["lake", "trend", "--test", "x"][..], "2,2,2,2,2,0", "--test: the lake has tg128"),
        (&["lake", "inventory", "--model", "x"][..], "2,2,0", "of 2 runs, none is of this model"),
        (&["lake", "inventory", "-o", "json"][..], "0,0,0", "no rows: the lake has no runs"),
    ] {
        let (said, out, is_ok) = ask(words, counts);
        assert!(said.contains(why) && is_ok, "{words:?}: {said}");
        assert!(out.contains("no rows") != words.contains(&"json"), "{words:?}: {out}");
        assert_eq!((out + &said).matches("no rows").count(), 1, "{words:?}: {said}");
    }
    let (said, out, is_ok) = ask(&["lake", "verdict", "-o", "json"], "2,2,2,2,2,2,0");
    assert!(!is_ok && out.is_empty(), "{out}");
    assert!(said.contains("nothing to judge: of 2 runs, none names a commit"), "{said}");
}

/// Writers are killed at random, while others merge. At no time is there half a run, and what a writer said that it
/// added is there in the end.
#[test]
fn writers_that_are_killed_leave_no_half_a_run() {
    let kills: u32 = match std::env::var("BRICKSCOPE_KILLS") {
        Ok(kills) => kills.parse().expect("a number"),
        Err(_) => 12,
    };
    // With many kills go as many writers as a fleet has at once.
    let writers: u64 = if kills < 100 { 8 } else { 32 };
    const RUNS: u64 = 6;
    let dir = TempDir::new().expect("a temporary folder");
    let lake = dir.path().join("lake");
    let of = |writer: u64| dir.path().join(writer.to_string());
    for writer in 0..writers {
        runs(&of(writer), writer * RUNS..(writer + 1) * RUNS);
    }
    // So that no writer is killed while it makes the lake.
    run(&mut collect(&of(0).join("0"), &lake));
    let mut killed = 0;
    let mut random = 7_u64;
    let mut below = |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let mut whole = 0;
    while killed < kills {
        let begin = |writer| {
            let mut command = collect_as(&format!("n{writer}"), &of(writer), &lake);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        };
        let mut running: Vec<_> = (0..writers).map(begin).collect();
        std::thread::sleep(Duration::from_millis(below(120)));
        for writer in &mut running {
            if below(2) == 0 && writer.try_wait().expect("its state").is_none() {
                writer.kill().expect("it can be killed");
                killed += 1;
            }
        }
        // Two at once; what they merge is deleted, or left for an hour.
        let merging = [below(3), below(3)].map(|which| {
            let grace = ["60", "0", ""][which as usize];
            let words = ["lake", "compact", "--json", "--grace", grace, "--lake"];
            let mut command = brickscope(&words);
            command.arg(&lake).stdout(Stdio::null()).stderr(Stdio::piped());
            (!grace.is_empty()).then(|| command.spawn().expect("it starts"))
        });
        let checked = check(&lake);
        assert_eq!(checked["faults"], serde_json::json!([]));
        let now = checked["whole"].as_u64().expect("a number");
        assert!(now >= whole, "{now} of {whole}");
        whole = now;
        for merging in merging.into_iter().flatten() {
            let merged = merging.wait_with_output().expect("its end");
            assert!(merged.status.success(), "{}", text(&merged.stderr));
        }
        for mut writer in running {
            writer.wait().expect("its end");
        }
        if whole == writers * RUNS {
            // All is there: begin anew, so that there is something to write.
            fs::remove_dir_all(&lake).expect("it can be removed");
            run(&mut collect(&of(0).join("0"), &lake));
            whole = 0;
        }
    }
    for writer in 0..writers {
        run(&mut collect_as(&format!("n{writer}"), &of(writer), &lake));
    }
    assert_eq!(check(&lake)["whole"], writers * RUNS);
}

#[test]
fn each_question_is_sql_and_has_help() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..1);
    run(&mut collect(&of, &lake));
    let help = run(&mut brickscope(&["lake", "--help"]));
    for question in ["inventory", "slowest-machines", "requests", "percentiles", "far-from-roof"] {
        assert!(text(&help.stdout).contains(question), "{question}");
        let sql =
            run(brickscope(&["lake", question, "--sql", "--since", "2026-11-01", "--lake"])
                .arg(&lake));
        let sql = text(&sql.stdout);
        assert!(sql.contains("CREATE TEMP TABLE live") && sql.contains("'2026-11-01' AS since"));
        assert!(sql.contains("CROSS JOIN params"), "{sql}");
    }
    // Help has the choices that a question takes, and no others.
    for question in ["inventory", "trend", "compare", "bricks", "unverified", "slow-passes"] {
        let help = run(&mut brickscope(&["lake", question, "--help"]));
        for flag in ["--model", "--test", "--phase", "--brick", "--by"] {
            let value = if flag == "--by" { "quant" } else { "x" };
            let asked = brickscope(&["lake", question, "--sql", flag, value, "--lake"])
                .arg(&lake)
                .output()
                .expect("it starts");
            let is_in_help = text(&help.stdout).contains(&format!("{flag} <"));
            assert_eq!(is_in_help, asked.status.success(), "{question} {flag}");
        }
    }
    let bad = brickscope(&["lake", "trend", "--since", "yesterday", "--lake"]).arg(&lake).output();
    let bad = bad.expect("it starts");
    assert!(!bad.status.success() && text(&bad.stderr).contains("must be like 2026-01-31"));
    let none = brickscope(&["lake", "trend", "--lake"])
        .arg(&lake)
        .env("BRICKSCOPE_DUCKDB", "/nowhere/duckdb")
        .output()
        .expect("it starts");
    assert!(text(&none.stderr).contains("can't run /nowhere/duckdb"), "{}", text(&none.stderr));
}

#[test]
fn duckdb_keeps_what_it_can_not_hold_where_nobody_else_can_write() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..1);
    run(&mut collect(&of, &lake));
    // In the place of DuckDB: it tells of the folder that it is given.
    let duckdb = dir.path().join("duckdb");
    let script = "folder=$(sed -n \"s/^SET temp_directory = '\\(.*\\)';$/\\1/p\")\n\
        stat -c '%n %a %u' \"$folder\" >&2\nexit 1";
    command::script(&duckdb, script);
    let ask = || {
        let mut asked = brickscope(&["lake", "trend", "--lake"]);
        asked.arg(&lake).env("BRICKSCOPE_DUCKDB", &duckdb).env("TMPDIR", dir.path());
        let said = text(&asked.output().expect("it starts").stderr).to_owned();
        let found = said
            .split_whitespace()
            .find(|word| word.contains("brickscope-tmp-"))
            .map(str::to_owned);
        (found.unwrap_or_else(|| panic!("no folder: {said}")), said)
    };
    let [(one, said), (other, _)] = [ask(), ask()];
    let user = fs::metadata(dir.path()).expect("it is there").uid();
    assert!(said.contains(&format!("{one} 700 {user}")), "{said}");
    assert!(Path::new(&one).starts_with(dir.path()), "{one}");
    assert_ne!(one, other, "nobody can guess it");
    assert!(!Path::new(&one).exists(), "it is removed");
}

/// `tests/lake/run` asks real engines.
#[test]
fn what_one_asks_reaches_duckdb_as_a_text_after_its_settings_are_locked() {
    let dir = TempDir::new().expect("a temporary folder");
    let (of, lake) = (dir.path().join("runs"), dir.path().join("lake"));
    runs(&of, 0..1);
    run(&mut collect(&of, &lake));
    // In the place of DuckDB: it keeps what it is told.
    let (duckdb, kept) = (dir.path().join("duckdb"), dir.path().join("told"));
    command::script(&duckdb, &format!("cat > {}\nexit 1", kept.display()));
    let query = "SELECT 'a'); COPY (SELECT 1) TO 'x';\n.system id\n--";
    let mut asked = brickscope(&["lake", "query", query, "--lake"]);
    asked.arg(&lake).env("BRICKSCOPE_DUCKDB", &duckdb).output().expect("it starts");
    let told = fs::read_to_string(&kept).expect("it was told");
    let as_text = format!("query('{}')", query.replace('\'', "''"));
    assert_eq!(told.matches(&as_text).count(), 2, "its types, and its rows: {told}");
    assert!(!told.replace(&as_text, "").contains("COPY"), "{told}");
    let (before, after) = told.split_once("SET lock_configuration = true;").expect("locked");
    assert!(after.contains(&as_text) && !before.contains(&as_text), "{told}");
    let folder = format!("SET allowed_directories = ['{}/'];", lake.display());
    assert!(before.contains(&folder), "{told}");
    assert!(before.contains("SET enable_external_access = false;"), "{told}");
}

#[test]
fn a_command_that_writes_a_run_adds_it_to_a_lake() {
    let dir = TempDir::new().expect("a temporary folder");
    let lake = dir.path().join("lake");
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let mut profile =
        brickscope(&["profile", "--prompt", "Hi", "--tokens", "4", "--json", "--out"]);
    profile.arg(dir.path().join("run")).arg("--lake").arg(&lake);
    profile.arg("--").arg(models.join("tiny-Q8_0.gguf"));
    let said = run(profile.env("BRICKSCOPE_MACHINE", "m1"));
    assert!(text(&said.stderr).contains("added to the lake"), "{}", text(&said.stderr));

    let bench = dir.path().join("bench.json");
    let row = r#"[{"build_commit": "1a2b3c4", "build_number": 7, "n_threads": 2, "n_prompt": 0, "n_gen": 8,
        "test_time": "2026-11-02T10:00:00Z", "samples_ns": [1000000, 1100000]}]"#;
    fs::write(&bench, row).expect("there is room");
    let mut import = brickscope(&["import"]);
    import.arg(&bench).arg("--out").arg(dir.path().join("imported")).arg("--lake").arg(&lake);
    run(import.env("BRICKSCOPE_MACHINE", "m2"));
    assert_eq!(check(&lake), serde_json::json!({ "whole": 2, "faults": [] }));
    assert!(lake.join("speeds/date=2026-11-02/machine=m2").is_dir());

    // A sweep needs no import.
    let sweep = dir.path().join("sweep.jsonl");
    let row = r#"{"build_commit": "1a2b3c4", "build_number": 7, "n_threads": 2, "n_prompt": 0, "n_gen": 8,
        "test_time": "2026-11-03T10:00:00Z", "samples_ns": [1000000, 1100000]}"#;
    let deep = row.replace("\"n_gen\"", "\"n_depth\": 64, \"n_gen\"");
    fs::write(&sweep, format!("{row}\n{deep}\n")).expect("there is room");
    let mut of_sweep = brickscope(&["collect", "--machine", "m2", "--json"]);
    let of_sweep = json(of_sweep.arg(&sweep).arg("--lake").arg(&lake));
    assert_eq!((&of_sweep["added"], &of_sweep["left_out"]), (&1.into(), &serde_json::json!([])));
    assert_eq!(check(&lake), serde_json::json!({ "whole": 3, "faults": [] }));
    assert!(lake.join("speeds/date=2026-11-03/machine=m2").is_dir());

    // Both are runs that `collect` knows now.
    let mut again = brickscope(&["collect", "--machine", "m1", "--json"]);
    let again = json(again.arg(dir.path().join("run")).arg("--lake").arg(&lake));
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &1.into()));
}
