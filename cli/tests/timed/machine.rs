//! `brickscope machine` on the machine that runs the tests, and how `profile` uses its results.

use std::fs;
use std::path::{Path, PathBuf};

use brickscope::{BrickId, BrickProfiler, Ceilings, Phase, Profile, ReadingTime, Work};
use brickscope_testing::command::{brickscope, run, text};
use serde_json::Value;
use tempfile::TempDir;

/// `brickscope machine` on one thread, with its own cache folder.
fn machine(cache: &Path, args: &[&str]) -> std::process::Output {
    run(brickscope(&["machine", "--threads", "1"]).args(args).env("BRICKSCOPE_CACHE", cache))
}

/// Marks the measurements in `cache` as undisturbed, whoever else uses the machine, and as from `when`.
fn rewrite(cache: &Path, when: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).expect("the cache folder");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    for path in &paths {
        let file = fs::read_to_string(path).expect("it was written");
        let mut json: Value = serde_json::from_str(&file).expect("JSON");
        json["others_share"] = 0.0.into();
        json["value"]["measured"] = when.into();
        fs::write(path, json.to_string()).expect("written");
    }
    paths
}

#[test]
fn the_table_fits_80_columns_and_the_json_has_all_of_it() {
    let _alone = crate::alone();
    let cache = TempDir::new().expect("a folder");
    let output = machine(cache.path(), &[]);
    for line in text(&output.stdout).lines().filter(|line| !line.starts_with("kept ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text(&output.stdout).contains("\nmemory "), "{}", text(&output.stdout));

    let json = machine(cache.path(), &["--fresh", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["is_kept"], &json["identity"]["threads"]), (&false.into(), &1.into()));
    let rows = json["bandwidth"].as_array().expect("rows");
    let levels = json["caches"].as_array().expect("levels").len();
    assert_eq!(rows.len(), 4 * (levels + 1));
    for row in rows.iter().chain(json["peaks"].as_array().expect("peaks")) {
        let rate = row["bytes_per_second"].as_f64().or(row["ops_per_second"].as_f64());
        let reason = row["absent"]["reason"].as_str();
        // A rate or a reason, never both.
        assert!(rate.is_some() != reason.is_some(), "{row}");
        assert!(rate.is_none_or(|rate| rate > 1e6), "{row}");
    }
}

#[test]
fn what_was_kept_is_shown_again_and_used_by_profile() {
    let _alone = crate::alone();
    let cache = TempDir::new().expect("a folder");
    machine(cache.path(), &[]);
    let when = "2001-02-03T04:05:06Z";
    assert_eq!(rewrite(cache.path(), when).len(), 2, "the survey, and the ceilings for a run");
    let again = machine(cache.path(), &[]);
    assert!(text(&again.stdout).contains(&format!("\nmeasured  {when}")));

    let model = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = model.join("../tests/data/models/tiny-Q8_0.gguf");
    let ceilings = |name: &str| {
        let out = cache.path().join(name);
        let mut command = brickscope(&["profile", "--tokens", "2", "--threads", "1", "--out"]);
        let output = run(command.arg(&out).arg(&model).env("BRICKSCOPE_CACHE", cache.path()));
        let profile = Profile::load(&out.join("profile.json")).expect("it was written");
        (profile.ceilings.expect("ceilings"), text(&output.stderr).to_owned())
    };
    let (Ceilings { basis, measured, .. }, _) = ceilings("first");
    assert!(basis.starts_with(&format!("measured {when} and kept: 1 thread, ")), "{basis}");
    assert_eq!(measured.as_deref(), Some(when));

    // A damaged file isn't an error: it measures again, with a note.
    for path in fs::read_dir(cache.path()).expect("the folder").map(|e| e.expect("one").path()) {
        if path.extension().is_some_and(|extension| extension == "json") {
            fs::write(path, "{\"identity\": ").expect("written");
        }
    }
    let (Ceilings { basis, .. }, stderr) = ceilings("second");
    assert!(basis.starts_with("measured before the run: 1 thread, "), "{basis}");
    assert!(
        stderr.contains("note: measuring again, since the stored file can't be used: "),
        "{stderr}"
    );
}

#[test]
fn a_cache_folder_that_cannot_be_written_to_is_said_and_no_error() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a folder");
    // A file is in the way.
    let cache = folder.path().join("file");
    fs::write(&cache, "").expect("written");
    let output = machine(&cache, &[]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the ceilings couldn't be stored for next time: "), "{stderr}");
    assert!(!text(&output.stdout).contains("kept in"), "{}", text(&output.stdout));
}

#[test]
fn help_has_an_example() {
    let _alone = crate::alone();
    let output = run(&mut brickscope(&["machine", "--help"]));
    assert!(text(&output.stdout).contains("brickscope machine --fresh --threads 4"));
}

#[test]
fn ceilings_are_added_to_a_run_of_an_engine_of_ones_own() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a folder");
    let (cache, run_of_mine) = (folder.path().join("cache"), folder.path().join("mine"));
    let profiler = BrickProfiler::enabled();
    for position in 0..8 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        std::hint::black_box(vec![1_u8; 1 << 16]);
        let work = Work { flops: 1 << 10, bytes: 1 << 10, ..Work::elements(1 << 10) };
        profiler.stop_brick_with(timer, work);
        profiler.end_pass(pass, 1, position);
    }
    profiler.profile().save_run(&run_of_mine).expect("a new folder");
    let mine = run_of_mine.to_str().expect("UTF-8");
    let shown = |as_what: &str| {
        let output = run(&mut brickscope(&["show", mine, "--as", as_what]));
        text(&output.stdout).to_owned()
    };
    assert!(shown("roofline").contains("the machine was not measured"), "{}", shown("roofline"));
    assert!(!shown("report").contains("0.0 M weights"), "{}", shown("report"));

    let output = machine(&cache, &["--add-to", mine]);
    assert!(text(&output.stdout).starts_with(&format!("added to {mine}: reads ")), "{output:?}");
    let profile = Profile::load(&run_of_mine.join("profile.json")).expect("a profile");
    let ceilings = profile.ceilings.expect("they were added");
    assert!(ceilings.read_bytes_per_second > 1e6 && ceilings.basis.contains("1 thread"));
    assert!(ceilings.readings.iter().all(|reading| reading.when != ReadingTime::Before));
    assert!(shown("roofline").contains("LmHead"), "{}", shown("roofline"));

    // Measured around the run, they would be better; and of another machine, wrong.
    let output = brickscope(&["machine", "--add-to", mine]).output().expect("it runs");
    assert!(text(&output.stderr).contains("has ceilings already"), "{output:?}");
    let mut other = profiler.profile();
    other.machine.as_mut().expect("it is known").logical_cpus = Some(4000);
    let others = folder.path().join("others");
    other.save_run(&others).expect("a new folder");
    let others = others.to_str().expect("UTF-8");
    let output = brickscope(&["machine", "--add-to", others]).output().expect("it runs");
    assert!(text(&output.stderr).contains("was made on another machine: "), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}
