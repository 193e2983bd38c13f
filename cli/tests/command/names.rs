//! `brickscope ls`, `tag`, `rm` and `gc`, and what names a run in all other commands.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use brickscope::{BrickId, BrickProfiler, MockClock, Model, Phase, Profile};
use brickscope_runs::{RunDir, tag};
use brickscope_testing::command::{self, brickscope};
use brickscope_testing::hostile::{assert_harmless, forbidden};
use serde_json::Value;
use tempfile::TempDir;

/// A folder in which commands run.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary folder") }
    }

    /// With three runs, of which `c` is the newest, and decodes 1000 tokens per second.
    fn with_runs() -> Self {
        let place = Self::new();
        for (name, second, ms) in [("20261129-a", 1, 4), ("20261129-b", 2, 2), ("c", 3, 1)] {
            place.made(name, second, ms);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("brickscope-runs").join(name)
    }

    /// A run as a command writes it, of passes that take so many milliseconds.
    fn made(&self, name: &str, second: u32, ms: u64) {
        let dir = RunDir::create(Some(&self.path(name)), "").expect("it is new");
        dir.save(&profile(second, ms)).expect("there is room");
    }

    /// What a command prints on both outputs, and its exit code.
    fn ran(&self, args: &[&str]) -> (String, String, i32) {
        let mut command = brickscope(args);
        let output = command.current_dir(self.dir.path()).stdin(Stdio::null()).output();
        let output = output.expect("the command starts");
        let [out, said] =
            [&output.stdout, &output.stderr].map(|bytes| command::text(bytes).to_owned());
        assert!(!said.contains("panicked"), "{said}");
        (out, said, output.status.code().expect("it isn't killed"))
    }

    #[track_caller]
    fn printed(&self, args: &[&str]) -> String {
        let (out, said, code) = self.ran(args);
        assert_eq!(code, 0, "{args:?}: {said}");
        out
    }

    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let (out, said, code) = self.ran(args);
        assert!(code > 0, "{args:?}: {out}");
        said
    }

    fn listed(&self) -> Value {
        serde_json::from_str(&self.printed(&["ls", "--json"])).expect("JSON")
    }

    fn names(&self) -> Vec<String> {
        let listed = self.listed();
        let runs = listed["runs"].as_array().expect("runs").iter();
        runs.map(|run| run["name"].as_str().expect("a name").to_owned()).collect()
    }
}

fn profile(second: u32, ms: u64) -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    for position in 0..3 {
        let pass = profiler.begin_pass(Phase::Decode);
        let timer = profiler.start_brick(BrickId::LmHead);
        hand.advance(ms * 1_000_000);
        profiler.stop_brick(timer, 1);
        profiler.end_pass(pass, 1, position);
    }
    let mut profile = profiler.profile();
    profile.created = format!("2026-11-29T12:00:{second:02}Z");
    profile.model = Some(Model {
        name: Some("tiny".to_owned()),
        quantization: "q8_0".to_owned(),
        ..Model::default()
    });
    profile
}

#[test]
fn runs_are_listed_newest_first_with_the_figure_of_the_first_screen() {
    let place = Place::with_runs();
    let text = place.printed(&["ls"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("run ") && lines[1].starts_with("c  "), "{text}");
    // Of another year there is the day.
    assert!(["11-29 12:00", "2026-11-29"].iter().any(|when| lines[1].contains(when)), "{text}");
    assert!(lines[1].contains("tiny q8_0"), "{text}");
    for (line, name) in lines[1..].iter().zip(["c", "20261129-b", "20261129-a"]) {
        let screen = place.printed(&["show", name]);
        let rate = screen.split_whitespace().nth(1).expect("a rate");
        assert!(line.split_whitespace().any(|word| word == rate), "{rate}: {line}");
    }
    assert_eq!(place.names(), ["c", "20261129-b", "20261129-a"]);
    assert_eq!(place.listed()["runs"][0]["decode_tokens_per_second"], 1000.0);
    // Without a folder there is no run, and a folder that was named has to be there.
    let empty = Place::new();
    let (out, said, code) = empty.ran(&["ls"]);
    assert!(out.is_empty() && code == 0 && said.contains("there is no run"), "{said}");
    assert!(said.contains("`import`") && said.trim_end().len() <= 80, "{said}");
    assert!(empty.refused(&["ls", "gone"]).contains("gone: No such file"));
}

#[test]
fn runs_of_an_earlier_version_are_read_once_and_told_if_they_are_many() {
    let place = Place::new();
    for n in 0..40 {
        let run = place.path(&format!("run-{n:02}"));
        fs::create_dir_all(&run).expect("a folder");
        profile(n, 1).save(&run.join("profile.json")).expect("there is room");
    }
    let (out, said, _) = place.ran(&["ls"]);
    assert!(said.contains("8 runs not read") && said.contains("--read-all"), "{said}");
    assert_eq!(out.lines().filter(|line| line.contains("tiny")).count(), 32, "{out}");
    assert!(out.lines().last().is_some_and(|line| line.contains("run-00") && line.contains('?')));
    let (out, said, _) = place.ran(&["ls", "--read-all"]);
    assert_eq!((said.as_str(), out.matches("tiny").count()), ("", 40));
    assert_eq!(place.ran(&["ls"]), (out, String::new(), 0));
}

#[test]
fn a_run_is_named_by_its_place_its_tag_and_the_beginning_of_its_name() {
    let place = Place::with_runs();
    for (words, rate) in [
        (&["show"][..], "1000 tok/s"),
        (&["show", "@"], "1000 tok/s"),
        (&["show", "@-1"], "500 tok/s"),
        (&["show", "20261129-a"], "250 tok/s"),
        (&["show", "brickscope-runs/20261129-b"], "500 tok/s"),
        (&["show", "brickscope-runs/c/profile.json"], "1000 tok/s"),
    ] {
        let text = place.printed(words);
        assert!(text.contains(rate), "{words:?}: {text}");
    }
    let (_, said, _) = place.ran(&["show"]);
    assert_eq!(said, "note: of the newest run, brickscope-runs/c\n");
    let (_, said, _) = place.ran(&["show", "@-2"]);
    assert_eq!(said, "note: @-2 is brickscope-runs/20261129-a\n");
    let said = place.refused(&["show", "2026"]);
    assert!(
        said.contains("could be any of 2 runs in brickscope-runs: 20261129-b, 20261129-a"),
        "{said}"
    );
    assert!(place.refused(&["show", "@-3"]).contains("brickscope-runs has 3 runs"));
    for words in [&["show", "d"][..], &["compare", "c", "d"], &["rm", "d"], &["report", "d"]] {
        let said = place.refused(words);
        assert!(said.contains("d: No such file, and no run in brickscope-runs"), "{said}");
        assert!(said.contains("`brickscope ls`"), "{said}");
    }
    assert!(Place::new().refused(&["show"]).contains("name a run: there is none in"));
    // The others ask the same.
    for words in [
        &["findings"][..],
        &["findings", "@-1", "--json"],
        &["requests", "@"],
        &["explain", "LmHead"],
        &["explain", "LmHead", "@-1"],
        &["report", "@-1"],
        &["export", "20261129-b", "--format", "csv"],
    ] {
        place.printed(words);
    }
    assert!(place.path("20261129-b").join("report.html").is_file());
    assert!(place.path("20261129-b").join("spans.csv").is_file());
    // A path that exists wins.
    fs::rename(place.path("20261129-a"), place.dir.path().join("c")).expect("they are ours");
    assert!(place.printed(&["show", "c"]).contains("250 tok/s"));
}

#[test]
fn a_tag_names_one_run_and_goes_where_it_goes() {
    let place = Place::with_runs();
    assert_eq!(place.printed(&["tag", "@-1", "best"]), "brickscope-runs/20261129-b is `best`\n");
    assert!(place.printed(&["show", "best"]).contains("500 tok/s"));
    assert!(place.printed(&["ls"]).lines().any(|line| line.ends_with("  best")));
    // Of another run it is taken first.
    let said = place.refused(&["tag", "c", "best"]);
    assert!(said.contains("brickscope-runs/20261129-b is `best`"), "{said}");
    assert!(place.refused(&["tag", "best", "c"]).contains("is a run of that name"));
    assert!(place.refused(&["tag", "c", "a/b"]).contains("a tag has letters"));
    assert!(place.refused(&["tag", "gone", "x"]).contains("gone: No such file"));
    let said = place.refused(&["tag", "new", "c"]);
    assert!(said.contains("comes first") && said.contains("tag brickscope-runs/c new"), "{said}");
    let out = place.printed(&["tag", "best", "better"]);
    assert_eq!(out, "brickscope-runs/20261129-b is `better`, and not `best` any more\n");
    // Of a name that isn't there, nothing else gets it.
    profile(9, 1).save(&place.dir.path().join("profile.json")).expect("there is room");
    assert!(place.refused(&["tag", "gone", "x"]).contains("gone: No such file"));
    assert!(!place.dir.path().join(".tag").exists());
    fs::remove_file(place.dir.path().join("profile.json")).expect("it is there");
    // The folder has it.
    fs::rename(place.path("20261129-b"), place.path("moved")).expect("they are ours");
    assert!(place.printed(&["show", "better"]).contains("500 tok/s"));
    let out = place.printed(&["tag", "better", "--remove"]);
    assert_eq!(out, "brickscope-runs/moved is not `better` any more\n");
    assert!(place.refused(&["tag", "moved", "--remove"]).contains("has no tag"));
    assert!(place.refused(&["show", "better"]).contains("No such file"));
    // A run elsewhere would not be found by one, so it gets none; but one that it brought along can be taken.
    let here = place.dir.path().join("here");
    fs::rename(place.path("moved"), &here).expect("they are ours");
    let said = place.refused(&["tag", "here", "x"]);
    assert!(said.contains("here is not in brickscope-runs, where commands look"), "{said}");
    assert!(!here.join(".tag").exists());
    tag::set(&here, "x").expect("there is room");
    place.printed(&["tag", "here", "--remove"]);
    assert!(!here.join(".tag").exists());
}

#[test]
fn the_newest_run_is_the_one_that_was_imported_last() {
    let place = Place::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/import");
    // The file of the first is of a later day than that of the second.
    for (file, name) in [("llama-bench.json", "first"), ("kineto-gpu.json", "second")] {
        let file = data.join(file);
        let out = format!("brickscope-runs/{name}");
        place.printed(&["import", file.to_str().expect("UTF-8"), "--out", &out]);
    }
    assert_eq!(place.names(), ["second", "first"]);
    let (_, said, _) = place.ran(&["show", "@"]);
    assert_eq!(said, "note: @ is brickscope-runs/second\n");
    let text = place.printed(&["gc", "--keep", "1"]);
    assert!(text.starts_with("brickscope-runs/first  "), "{text}");
    // Both times are in the JSON.
    let listed = place.listed();
    let [second, first] = [0_usize, 1].map(|nth| listed["runs"][nth].clone());
    assert!(first["created"].as_str() > second["created"].as_str(), "{listed}");
    assert!(first["imported_at"].as_str() < second["imported_at"].as_str(), "{listed}");
}

#[test]
fn nothing_but_a_run_is_removed_and_nothing_without_being_asked() {
    let place = Place::with_runs();
    let said = place.refused(&["rm", "c"]);
    assert!(said.contains("brickscope-runs/c: 2 files") && said.contains("--yes"), "{said}");
    assert_eq!(place.names().len(), 3);
    // One that is none, and the others stay.
    let mine = place.dir.path().join("mine");
    fs::create_dir(&mine).expect("a folder");
    fs::write(mine.join("notes.md"), "mine").expect("there is room");
    for words in [
        &["rm", "c", "mine", "--yes"][..],
        &["rm", "c", "brickscope-runs", "--yes"],
        &["rm", "c", ".", "--yes"],
        &["rm", "c", "brickscope-runs/c/profile.json", "--yes"],
        &["rm", "c", "gone", "--yes"],
        &["rm", "2026", "--yes"],
    ] {
        place.refused(words);
    }
    assert!(mine.join("notes.md").is_file() && place.names().len() == 3);
    // What else lies in it.
    fs::write(place.path("c").join("notes.md"), "mine").expect("there is room");
    let again = "./brickscope-runs/c";
    let (out, said, code) = place.ran(&["rm", "c", "@", again, "20261129-b", "--yes"]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}{said}");
    assert!(said.contains("1 file left in brickscope-runs/c, such as notes.md"), "{said}");
    assert!(place.path("c").join("notes.md").is_file() && !place.path("20261129-b").exists());
    assert_eq!(place.names(), ["20261129-a"]);
}

#[cfg(unix)]
#[test]
fn what_a_link_leads_to_is_never_removed() {
    let place = Place::with_runs();
    let outside = place.dir.path().join("outside");
    fs::rename(place.path("c"), &outside).expect("they are ours");
    std::os::unix::fs::symlink(&outside, place.path("link")).expect("a link");
    assert!(place.refused(&["rm", "brickscope-runs/link", "--yes"]).contains("is a link"));
    assert!(place.refused(&["rm", "brickscope-runs/link/", "--yes"]).contains("is a link"));
    place.printed(&["gc", "--keep", "0", "--yes"]);
    assert!(outside.join("profile.json").is_file() && place.path("link").is_symlink());
    assert!(place.names().is_empty());
}

#[test]
fn old_runs_are_removed_but_none_with_a_tag() {
    let place = Place::with_runs();
    place.made("d", 4, 1);
    place.printed(&["tag", "20261129-a", "first"]);
    let text = place.printed(&["gc", "--keep", "2"]);
    assert!(text.starts_with("brickscope-runs/20261129-b  "), "{text}");
    let last = text.lines().last().expect("a sum");
    assert!(last.starts_with("1 run, "), "{text}");
    assert!(last.ends_with("--yes removes them; what stays: 3 runs, 1 with a tag"), "{text}");
    assert_eq!(place.names().len(), 4, "nothing was removed");
    let text = place.printed(&["gc", "--keep", "2", "--yes"]);
    assert!(text.contains("1 run removed, "), "{text}");
    assert!(text.ends_with("; what stays: 3 runs, 1 with a tag\n"), "{text}");
    assert_eq!(place.names(), ["d", "c", "20261129-a"]);
    assert!(place.refused(&["gc"]).contains("--keep"));
}

#[test]
fn old_runs_are_not_parts_of_one_and_not_what_only_looks_like_a_run() {
    let place = Place::with_runs();
    for number in 1..=3 {
        place.made(&format!("set/{number}"), number, 1);
    }
    for set in ["brickscope-runs/set", "brickscope-runs/c"] {
        let said = place.refused(&["gc", set, "--keep", "0", "--yes"]);
        assert!(said.contains("is a run itself: name the folder that it lies in"), "{said}");
    }
    // One process of it has a tag.
    tag::set(&place.path("set/2"), "best").expect("there is room");
    let mine = place.path("mine");
    fs::create_dir(&mine).expect("a folder");
    for file in ["profile.json", "report.html"] {
        fs::write(mine.join(file), "{}").expect("there is room");
    }
    let (out, said, code) = place.ran(&["gc", "--keep", "0", "--yes"]);
    assert!(code == 0 && out.contains("3 runs removed"), "{out}{said}");
    assert!(said.contains("mine/profile.json isn't a file that brickscope wrote"), "{said}");
    assert!(mine.join("profile.json").is_file() && mine.join("report.html").is_file());
    for number in 1..=3 {
        assert!(place.path(&format!("set/{number}/profile.json")).is_file());
    }
}

#[cfg(unix)]
#[test]
fn a_run_that_is_being_written_is_not_removed() {
    let place = Place::with_runs();
    let lock = File::open(place.path("20261129-a")).expect("a folder");
    lock.lock_shared().expect("the system has locks");
    let said = place.refused(&["rm", "20261129-a", "--yes"]);
    assert!(said.contains("a run is being written to it"), "{said}");
    // It is no fault of a job that cleans up.
    let (out, said, code) = place.ran(&["gc", "--keep", "0", "--yes"]);
    assert!(code == 0 && out.contains("2 runs removed"), "{out}{said}");
    assert!(said.contains("a run is being written to it"), "{said}");
    assert_eq!(place.names(), ["20261129-a"]);
    drop(lock);
    place.printed(&["gc", "--keep", "0", "--yes"]);
    assert!(place.names().is_empty());
}

#[cfg(unix)]
#[test]
fn names_of_any_kind_are_listed_and_removed_and_none_reaches_the_terminal() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::with_runs();
    let names = [&b"x\nFORGED\r\x1b[2J\x1b]0;t\x07\xe2\x80\xae"[..], b"y\xff\xfe", b"-z", b"@-1"];
    for (name, second) in names.iter().zip(10..) {
        let run = place.path("c").with_file_name(OsStr::from_bytes(name));
        // Some file systems have only names that are text.
        if fs::create_dir(&run).is_ok() {
            profile(second, 1).save(&run.join("profile.json")).expect("there is room");
        }
    }
    let hostile = place.names().len() - 3;
    fs::write(place.path("c").join(".tag"), "\u{1b}[2J\n").expect("there is room");
    for words in [
        &["ls"][..],
        &["show", "x"],
        &["show", "y"],
        &["tag", "x", "best"],
        &["gc", "--keep", "1"],
        &["rm", "x"],
    ] {
        let (out, said, _) = place.ran(words);
        let what = format!("{words:?}");
        assert_harmless(&what, &out);
        assert_harmless(&what, &said.replace("\n  ", " "));
        assert!(said.lines().all(|line| !line.starts_with("FORGED")), "{said}");
    }
    let json = place.printed(&["ls", "--json"]);
    assert_eq!(forbidden(&json), None);
    // A run whose name is like a place: `@-1` is the place.
    assert!(!place.ran(&["show", "@-1"]).1.contains("brickscope-runs/@-1\n"));
    // `c` has something that may be a tag, and `x` one.
    let text = place.printed(&["gc", "--keep", "0", "--yes"]);
    assert!(text.contains(&format!("{} runs removed", hostile - 1 + 2)), "{text}");
    assert_eq!(place.names().len(), 2);
    assert!(place.path("c").exists());
}
