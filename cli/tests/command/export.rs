//! `brickscope export`: where files go, what is refused, and the messages. The contents of the files are
//! tested in `tests/analysis/export/` and `tests/readers/`.

use std::path::Path;

use brickscope::{BrickId, BrickProfiler, ClockInfo, MockClock, Phase, Profile};
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// A profile with this many passes, in a folder.
fn folder(passes: u64) -> TempDir {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..passes {
        let pass = profiler.begin_pass(Phase::Decode);
        for layer in 0..10 {
            let timer = profiler.begin_layer(layer);
            let brick = profiler.start_brick(BrickId::DownProjection);
            hand.advance(40);
            profiler.stop_brick(brick, 1);
            profiler.end_layer(timer);
        }
        profiler.end_pass(pass, 1, position);
    }
    saved(&profiler.profile())
}

fn saved(profile: &Profile) -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    profile.save(&dir.path().join("profile.json")).expect("it is written");
    dir
}

fn export(dir: &Path, args: &[&str]) -> String {
    let output = run(brickscope(&["export", dir.to_str().expect("UTF-8")]).args(args));
    text(&output.stdout).to_owned()
}

/// The message of an export that must fail.
fn refused(dir: &Path, args: &[&str]) -> String {
    let mut command = brickscope(&["export", dir.to_str().expect("UTF-8")]);
    let output = command.args(args).output().expect("the command starts");
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
    let left: Vec<_> = std::fs::read_dir(dir).expect("the folder").collect();
    assert_eq!(left.len(), 1, "nothing is left of it: {left:?}");
    text(&output.stderr).to_owned()
}

#[test]
fn each_form_has_its_file_in_the_folder_of_the_run() {
    let dir = folder(2);
    for (args, file, begins) in [
        (&["-f", "perfetto"][..], "trace.pftrace", &b"\n"[..]),
        (&["-f", "chrome"], "trace.json", b"{\"displayTimeUnit\":\"ns\""),
        (&["-f", "speedscope"], "speedscope.json", b"{\"$schema\""),
        (&["-f", "folded"], "stacks.folded", b"decode;layer 0;DownProjection "),
        (&["-f", "folded", "--by", "brick"], "stacks.folded", b"decode;DownProjection "),
        (&["-f", "pprof"], "profile.pb.gz", b"\x1f\x8b"),
        (&["-f", "csv"], "spans.csv", b"device,stream,row"),
        (&["-f", "csv", "--table", "spans"], "spans.csv", b"device,stream,row"),
        (&["-f", "csv", "--table", "passes"], "passes.csv", b"device,stream,pass"),
        (&["-f", "csv", "--table", "totals"], "totals.csv", b"device,stream,phase"),
        (&["-f", "parquet"], "spans.parquet", b"PAR1"),
        (&["-f", "parquet", "--table", "spans"], "spans.parquet", b"PAR1"),
        (&["-f", "parquet", "--table", "requests"], "requests.parquet", b"PAR1"),
        (&["-f", "parquet", "--table", "intervals"], "intervals.parquet", b"PAR1"),
    ] {
        let path = dir.path().join(file);
        let told = export(dir.path(), args);
        assert_eq!(told, format!("{}\n", path.display()));
        let bytes = std::fs::read(&path).expect("it was written");
        assert!(bytes.starts_with(begins), "{args:?}");
        // Standard output gets the same.
        let piped = run(brickscope(&["export", dir.path().to_str().expect("UTF-8")])
            .args(args)
            .args(["-o", "-"]));
        assert_eq!(piped.stdout, bytes, "{args:?}");
        std::fs::remove_file(path).expect("it is there");
    }
    // The run may also be named by its file.
    let profile = dir.path().join("profile.json");
    let told = export(&profile, &["-f", "folded"]);
    assert_eq!(told.trim_end(), dir.path().join("stacks.folded").display().to_string());
}

#[test]
fn large_timelines_are_several_files_that_open_each() {
    let dir = folder(200);
    let file = dir.path().join("my.trace.json");
    let file = file.to_str().expect("UTF-8");
    let told = export(dir.path(), &["-f", "chrome", "--part-size", "64k", "-o", file]);
    let parts: Vec<&str> = told.lines().collect();
    assert!(parts.len() > 3, "{told}");
    assert!(!Path::new(file).exists());
    let mut slices = 0;
    for (nth, part) in (1..).zip(&parts) {
        assert!(part.ends_with(&format!("my.trace.{nth}.json")), "{part}");
        let bytes = std::fs::read(part).expect("it was written");
        assert!(bytes.len() <= 64 << 10);
        let trace: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(trace["otherData"]["part"], nth);
        let events = trace["traceEvents"].as_array().expect("events");
        slices += events.iter().filter(|event| event["ph"] == "X").count();
    }
    assert_eq!(slices, 200 * 21);
    // Larger parts are fewer: leftovers of before would be taken for parts of this export.
    let others = ["my.trace.x.json", "my.trace.07.json", "my.trace.7.jsonl", "trace.7.json"];
    for other in others {
        std::fs::write(dir.path().join(other), "another's").expect("written");
    }
    let told = export(dir.path(), &["-f", "chrome", "--part-size", "256k", "-o", file]);
    let fewer = told.lines().count();
    assert!((2..parts.len()).contains(&fewer), "{told}");
    for (nth, part) in (1..).zip(&parts) {
        assert_eq!(Path::new(part).exists(), nth <= fewer, "{part}");
    }
    // A timeline that fits is one file with its own name.
    let mut command = brickscope(&["export"]);
    let output = run(command.arg(dir.path()).args(["-f", "chrome", "-o", file]));
    assert_eq!(text(&output.stdout), format!("{file}\n"));
    let removed = format!("removed {fewer} parts of an earlier export");
    assert!(text(&output.stderr).contains(&removed), "{}", text(&output.stderr));
    assert!(parts.iter().all(|part| !Path::new(part).exists()));
    assert!(others.iter().all(|other| dir.path().join(other).exists()));
}

#[test]
fn flags_that_would_do_nothing_are_mistakes() {
    let dir = folder(1);
    for (args, why) in [
        (&["-f", "chrome", "--by", "layer"][..], "--by"),
        (&["-f", "perfetto", "--table", "totals"], "--table totals goes with the format csv"),
        (&["-f", "perfetto", "--table", "spans"], "goes with the format csv and parquet"),
        (&["-f", "parquet", "--table", "passes"], "--table passes goes with the format csv"),
        (&["-f", "csv", "--table", "requests"], "--table requests goes with the format parquet"),
        (&["-f", "csv", "--part-size", "1G"], "--part-size"),
        (&["-f", "chrome", "--part-size", "1G", "-o", "-"], "standard output"),
        (&["-f", "chrome", "--part-size", "7"], "64K"),
        (&["-f", "chrome", "--part-size", "many"], "not a size"),
        (&["-f", "chrome", "--part-size", "99999999999G"], "not a size"),
        (&["-f", "otlp-traces"], "no requests of a server"),
        (&["-f", "fortran"], "possible values"),
        (&[], "--format"),
    ] {
        let said = refused(dir.path(), args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn runs_of_nothing_and_of_a_newer_brickscope_are_told() {
    let dir = saved(&Profile::empty(ClockInfo::default()));
    for format in ["folded", "pprof", "speedscope"] {
        assert!(refused(dir.path(), &["-f", format]).contains("there is no stack: this run has"));
    }
    let trace = export(dir.path(), &["-f", "chrome", "-o", "-"]);
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    assert_eq!(trace["traceEvents"], serde_json::json!([]));
    assert!(trace["otherData"]["absent.CLOCK_MONOTONIC"].is_string());
    assert_eq!(export(dir.path(), &["-f", "csv", "-o", "-"]).lines().count(), 1);

    let file = dir.path().join("profile.json");
    std::fs::write(&file, r#"{"schema_version": 99}"#).expect("written");
    let said = refused(dir.path(), &["-f", "chrome"]);
    assert!(said.contains("schema version 99") && said.contains("newer"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let dir = folder(1);
    for format in ["chrome", "perfetto", "csv"] {
        let said = refused(dir.path(), &["-f", format, "-o", "/nonexistent/folder/file"]);
        assert!(said.contains("/nonexistent/folder/file"), "{said}");
    }
}

#[test]
fn what_was_measured_is_never_written_over() {
    let dir = folder(2);
    let kept = dir.path().join("profile.json");
    let before = std::fs::read(&kept).expect("it is there");
    let link = dir.path().join("link.csv");
    std::os::unix::fs::symlink(&kept, &link).expect("a link");
    for (command, out) in [("export", &kept), ("export", &link), ("report", &kept)] {
        let mut command = brickscope(&[command]);
        command.arg(dir.path()).arg("--output").arg(out);
        if command.get_args().next() == Some("export".as_ref()) {
            command.args(["--format", "csv"]);
        }
        let output = command.output().expect("it starts");
        assert!(!output.status.success(), "{command:?}");
        let told = text(&output.stderr);
        assert!(told.contains("is the run itself"), "{told}");
        assert_eq!(std::fs::read(&kept).expect("it is there"), before);
    }
}
