//! `brickscope report`: an HTML file of one run, or of two.

use std::fs;

use brickscope::{BrickId, BrickProfiler, MockClock, Phase, Profile};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// Decode passes of one brick that take this many nanoseconds, each one more than the last.
fn profile(ns: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for token in 0..8 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(ns + token);
        profiler.stop_brick(timer, 32_000);
        profiler.end_pass(pass, 1, token);
    }
    profiler.profile()
}

/// A folder with the runs `a` and `b`.
fn runs() -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    for (name, ns) in [("a", 90_000), ("b", 91_000)] {
        fs::create_dir(dir.path().join(name)).expect("made");
        profile(ns).save(&dir.path().join(name).join("profile.json")).expect("written");
    }
    dir
}

fn at(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn a_report_is_one_file_and_says_where_it_is() {
    let dir = runs();
    let file = at(&dir, "report.html");
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), "-o", &file]));
    let said = text(&output.stdout);
    assert!(said.starts_with("Decode: LmHead takes the most time, 100.0% of it."), "{said}");
    assert!(said.contains(&file), "{said}");
    let page = fs::read_to_string(&file).expect("written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("LmHead"));
    // Nothing else was left behind.
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 3);
    // Standard output gets the same, also for a run named by its file.
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), "-o", "-"]));
    assert_eq!(text(&output.stdout), page);
    let by_file = run(&mut brickscope(&["report", &at(&dir, "a/profile.json"), "-o", "-"]));
    assert_eq!(text(&by_file.stdout), page);
}

#[test]
fn without_a_name_it_goes_into_the_folder_of_the_run() {
    let dir = runs();
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), "--json"]));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["file"], at(&dir, "a/report.html"));
    let bytes = fs::metadata(at(&dir, "a/report.html")).expect("written").len();
    assert_eq!(said["bytes"], bytes);
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), &at(&dir, "b")]));
    // A path may have any length.
    let said = text(&output.stdout).lines().filter(|line| !line.contains("comparison.html"));
    assert!(said.clone().count() > 1 && said.clone().all(|line| line.chars().count() <= 80));
    let page = fs::read_to_string(at(&dir, "b/comparison.html")).expect("written");
    // One process per side decides nothing.
    assert!(page.contains("Inconclusive") && page.contains("Both runs"), "{page:.3000}");
}

#[test]
fn what_can_not_be_compared_is_laid_side_by_side_without_a_verdict() {
    let dir = runs();
    let mut other = profile(91_000);
    other.machine = Some(brickscope::Machine { os: "plan9".to_owned(), ..Default::default() });
    other.save(dir.path().join("b/profile.json").as_path()).expect("written");
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), &at(&dir, "b"), "-o", "-"]));
    let page = text(&output.stdout);
    assert!(page.contains("No verdict.") && page.contains("Both runs"), "{page:.3000}");
    let args = ["report", &at(&dir, "a"), &at(&dir, "b"), "--force", "-o", "-"];
    let output = run(&mut brickscope(&args));
    assert!(text(&output.stdout).contains("Inconclusive"));
}

#[test]
fn a_file_that_is_no_report_is_only_replaced_if_that_is_said() {
    let dir = runs();
    let readme = at(&dir, "README.md");
    fs::write(&readme, "# Mine\n").expect("written");
    let args = ["report", &at(&dir, "a"), "-o", &readme];
    let output = brickscope(&args).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("--overwrite it"), "{said}");
    assert_eq!(fs::read_to_string(&readme).expect("it is there"), "# Mine\n");
    run(&mut brickscope(&[&args[..], &["--overwrite"]].concat()));
    assert!(fs::read_to_string(&readme).expect("it is there").starts_with("<!DOCTYPE html>"));
    // Now it is a report.
    run(&mut brickscope(&args));
}

#[test]
fn a_tag_names_its_side_of_two() {
    let dir = runs();
    fs::write(at(&dir, "a/.tag"), "fast\n").expect("written");
    let output = run(&mut brickscope(&["report", &at(&dir, "a"), &at(&dir, "b"), "-o", "-"]));
    let page = text(&output.stdout);
    let (_, title) = page.split_once("<h1>").expect("a title");
    let title = title.split("</h1>").next().unwrap_or_default();
    assert!(title.contains("fast (a)") && !title.contains(&at(&dir, "a")), "{title}");
}

#[test]
fn what_is_no_run_is_refused_and_leaves_nothing() {
    let dir = runs();
    let json =
        profile(1_000).to_json().replacen("\"schema_version\": 2", "\"schema_version\": 99", 1);
    fs::write(dir.path().join("newer.json"), json).expect("written");
    fs::write(dir.path().join("half.json"), "{\"schema_version\": 2,").expect("written");
    for (name, why) in [
        ("newer.json", "has schema version 99, but this brickscope reads versions up to"),
        ("half.json", "is not a whole brickscope profile"),
        ("none", "No such file"),
    ] {
        let out = at(&dir, "report.html");
        let mut command = brickscope(&["report", &at(&dir, name), "-o", &out]);
        let output = command.output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains(name), "{said}");
        assert!(!fs::exists(&out).expect("told"));
    }
    let out = at(&dir, "no/such/folder/report.html");
    let output = brickscope(&["report", &at(&dir, "a"), "-o", &out]).output().expect("it starts");
    assert!(text(&output.stderr).contains("no/such/folder/report.html"));
    assert!(!output.status.success());
}

#[test]
fn a_folder_is_a_page_of_its_runs_with_links_to_reports_that_are_there() {
    let dir = runs();
    run(&mut brickscope(&["report", &at(&dir, "a")]));
    let folder = dir.path().display().to_string();
    let output = run(&mut brickscope(&["report", "--all", &folder]));
    let said = text(&output.stdout);
    assert!(said.starts_with("2 runs of"), "{said}");
    let page = fs::read_to_string(at(&dir, "runs.html")).expect("written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("\"./a/report.html\""));
    assert!(!page.contains("\"./b/report.html\""), "there is none");
    // Elsewhere they would lead nowhere.
    let output = run(&mut brickscope(&["report", "--all", &folder, "-o", "-"]));
    let elsewhere = text(&output.stdout);
    assert!(elsewhere.starts_with("<!DOCTYPE html>") && !elsewhere.contains("/report.html\""));
    let output = run(&mut brickscope(&["report", "--all", &folder, "--json"]));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["file"], at(&dir, "runs.html"));
    // The default is the folder that runs go to.
    let mut command = brickscope(&["report", "--all"]);
    let output = command.current_dir(&dir).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("brickscope-runs"), "{}", text(&output.stderr));
    let empty = at(&dir, "empty");
    fs::create_dir(&empty).expect("made");
    let output = brickscope(&["report", "--all", &empty]).output().expect("it starts");
    assert!(text(&output.stderr).contains("there is no run in "), "{}", text(&output.stderr));
    // Nor is one run a folder of runs.
    let output = brickscope(&["report", "--all", &at(&dir, "a")]).output().expect("it starts");
    assert!(text(&output.stderr).contains("is one run: `brickscope report "), "it says how");
    let mine = at(&dir, "a/profile.json");
    let output = brickscope(&["report", "--all", &folder, "-o", &mine]).output();
    assert_eq!(output.expect("it starts").status.code(), Some(1), "it is a run");
    let both = brickscope(&["report", &folder, "--all", &folder]).output().expect("it starts");
    assert_eq!(both.status.code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_page_is_opened_where_there_is_a_display_and_else_said_where_it_is() {
    use brickscope_testing::command::script;
    use brickscope_testing::patience::{first_to_judge, until};

    let dir = runs();
    let run_in = at(&dir, "a");
    let open = |with: &[(&str, &str)], args: &[&str]| {
        let mut command = brickscope(&[&["report", run_in.as_str(), "--open"][..], args].concat());
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").envs(with.iter().copied());
        let output = command.output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let said = open(&[], &[]);
    assert!(said.contains("note: not opened: there is no display; open "), "{said}");
    assert!(said.contains("report.html in a browser"), "{said}");
    let programs = at(&dir, "programs");
    fs::create_dir(&programs).expect("made");
    let path = programs.clone() + ":" + &std::env::var("PATH").unwrap_or_default();
    let browser = at(&dir, "programs/xdg-open");
    let opens = |lines: &str| script(browser.as_ref(), lines);
    let with = [("DISPLAY", ":7"), ("PATH", path.as_str())];
    let opened = at(&dir, "opened");
    opens(&format!("printf %s \"$1\" > '{opened}'"));
    assert_eq!(open(&with, &[]), "");
    let page = fs::canonicalize(at(&dir, "a/report.html")).expect("it is there");
    // The command looks for its end for a second only.
    let told =
        until("it was called", || fs::read_to_string(&opened).ok().filter(|told| !told.is_empty()));
    assert_eq!(told, page.display().to_string());
    opens("exit 3");
    let judged = first_to_judge(|_| match open(&with, &[]) {
        said if said.is_empty() => Err("it had not ended in time".to_owned()),
        said => Ok(said),
    });
    if let Some(said) = judged {
        assert!(said.contains("note: not opened: xdg-open: exit status: 3; open "), "{said}");
    }
    assert!(open(&with, &["-o", "-"]).contains("nothing to open"));
}
