//! `brickscope bisect`, on repositories that the tests make: an engine that is a script, with a step in its speed.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope, text};

mod versions;

/// Commits after the first one.
const COMMITS: usize = 12;

/// A repository of an engine.
struct Engine {
    dir: TempDir,
    /// The hashes of its commits.
    commits: Vec<String>,
}

/// What a commit's engine is like.
#[derive(Clone, Copy)]
struct Like {
    tokens_per_second: u32,
    builds: bool,
}

/// Prints a rate, with noise of 2 % that depends on nothing but how often it ran: a file counts that.
const RUN: &str = "\
n=$(cat \"$COUNTER\" 2> /dev/null || echo 0)
n=$((n + 1))
echo $n > \"$COUNTER\"
speed=$(cat built)
x=$(( (n * n * 7919 + n * 104729) % 1009 - 504 ))
echo \"tokens per second: $((speed * 100000 + speed * x * 4))\"
";

impl Engine {
    fn new(like: impl Fn(usize) -> Like) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let mut engine = Self { dir, commits: Vec::new() };
        fs::create_dir(engine.repo()).expect("made");
        engine.git(&["init", "--quiet"]);
        fs::write(engine.repo().join("run.sh"), RUN).expect("written");
        for commit in 0..=COMMITS {
            let Like { tokens_per_second, builds } = like(commit);
            let build = if builds { "cp speed built" } else { "echo no such header >&2; exit 1" };
            fs::write(engine.repo().join("build.sh"), build).expect("written");
            fs::write(engine.repo().join("speed"), tokens_per_second.to_string()).expect("written");
            fs::write(engine.repo().join("number"), commit.to_string()).expect("written");
            engine.git(&["add", "--all"]);
            engine.git(&["commit", "--quiet", "-m", &format!("Change {commit}")]);
            engine.commits.push(engine.git(&["rev-parse", "HEAD"]).trim().to_owned());
        }
        engine
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn counter(&self) -> PathBuf {
        self.dir.path().join("counter")
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.counter()).map_or(0, |n| n.trim().parse().expect("a number"))
    }

    fn git(&self, words: &[&str]) -> String {
        let own = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let mut command = Command::new("git");
        command.arg("-C").arg(self.repo()).args(own).args(words);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().expect("git");
        assert!(output.status.success(), "{words:?}: {output:?}");
        text(&output.stdout).to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = brickscope(&["bisect", "--repo"]);
        command.arg(self.repo()).args(words).env("COUNTER", self.counter());
        command
    }

    fn begin(&self, measure: &str, more: &[&str]) -> Output {
        let words =
            ["--good", &self.commits[0], "--bad", "HEAD", "--build", "sh build.sh", "--seed", "7"];
        let how = ["--measure", measure, "--pattern", "tokens per second: {}"];
        self.command(&[&words[..], &how, more].concat()).output().expect("it starts")
    }

    /// Nothing of the user's was touched, and nothing is left but what was measured.
    fn is_as_it_was(&self) {
        assert_eq!(self.git(&["status", "--porcelain"]), "");
        assert_eq!(self.git(&["rev-parse", "HEAD"]).trim(), self.commits[COMMITS]);
        assert_eq!(self.git(&["worktree", "list"]).lines().count(), 1);
        assert!(!self.repo().join("built").exists());
        assert!(!self.work().join("trees").exists());
    }

    fn work(&self) -> PathBuf {
        self.repo().join(".git/brickscope-bisect")
    }
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn err(output: &Output) -> &str {
    text(&output.stderr)
}

/// 5 % slower from a commit on, with one that doesn't build.
fn slower(from: usize, broken: usize) -> impl Fn(usize) -> Like {
    move |commit| Like {
        tokens_per_second: if commit >= from { 950 } else { 1000 },
        builds: commit != broken,
    }
}

#[test]
fn the_commit_that_made_it_slower_is_found() {
    let engine = Engine::new(slower(8, 6));
    let output = engine.begin("sh run.sh", &[]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let out = text(&output.stdout);
    let short = &engine.commits[8][..9];
    assert!(out.starts_with(&format!("Found: {short} is slower than the commit before")), "{out}");
    for part in
        [engine.commits[8].as_str(), "subject    Change 8", "author     A <a@b>", "slower by  +"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    // Paths are as long as they are.
    let fits = |line: &str| line.chars().count() <= 80 || line.contains("all it said: ");
    assert!(out.lines().chain(err(&output).lines()).all(fits), "{out}{}", err(&output));
    assert!(err(&output).contains("13 commits from "), "{}", err(&output));
    assert!(!out.contains('\u{1b}') && !err(&output).contains('\u{1b}'));
    // The one in the middle is what is asked for first.
    assert!(err(&output).contains("is left out: its build failed"), "{}", err(&output));
    assert!(err(&output).contains("no such header"), "{}", err(&output));
    engine.is_as_it_was();
}

#[test]
fn of_a_commit_that_can_not_be_built_its_neighbour_is_named_too() {
    let engine = Engine::new(slower(6, 6));
    let output = engine.begin("sh run.sh", &["--json", "--fresh", "--keep", "3"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let hashes: Vec<&str> = json["commits"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|commit| commit["hash"].as_str().expect("a hash"))
        .collect();
    assert_eq!(hashes, [&engine.commits[6], &engine.commits[7]]);
    assert_eq!(json["verdict"]["kind"], "found");
    assert_eq!(json["parent"], engine.commits[5].as_str());
    assert_eq!(json["left_out"][0]["hash"], engine.commits[6].as_str());
    let step = &json["outcome"]["step"];
    assert!((step["ratio"].as_f64().expect("a number") - 1.0526).abs() < 0.02, "{step}");
    assert!(step["low"].as_f64().expect("a number") > 1.0, "{step}");
    engine.is_as_it_was();
}

#[test]
fn of_equal_commits_none_is_named() {
    let engine = Engine::new(slower(99, 99));
    let output = engine.begin("sh run.sh", &[]);
    assert_eq!(code(&output), Some(4), "{}", err(&output));
    let out = text(&output.stdout);
    assert!(out.starts_with("None here: good and bad don't differ by 2 %.\n"), "{out}");
    assert!(out.contains("at most 1 % that bad is slower by 2 %"), "{out}");
    engine.is_as_it_was();
    let faster =
        Engine::new(|commit| Like { tokens_per_second: 1000 + 10 * commit as u32, builds: true });
    let output = faster.begin("sh run.sh", &[]);
    assert_eq!(code(&output), Some(4), "{}", err(&output));
    let out = text(&output.stdout);
    assert!(out.starts_with("None here: bad is not slower than good, but faster. If the"), "{out}");
    assert!(!out.contains("\n  likely"), "{out}");
}

#[test]
fn a_command_that_never_measured_anything_keeps_no_place() {
    let engine = Engine::new(slower(99, 99));
    let typo = engine.begin("sh rum.sh", &["--max-measurements", "4"]);
    assert_eq!(code(&typo), Some(1), "{}", err(&typo));
    let right = engine.begin("sh run.sh", &["--max-measurements", "4"]);
    assert_eq!(code(&right), Some(3), "{}", err(&right));
    // Nothing tells the ends apart, so no commit is likelier than another.
    assert!(!text(&right.stdout).contains("\n  likely"), "{}", text(&right.stdout));
}

#[test]
fn a_search_that_is_killed_or_stopped_goes_on() {
    let engine = Engine::new(slower(8, 6));
    let kill = "{ kill -KILL $PPID; exit 1; }";
    let measure = format!("[ \"$(cat \"$COUNTER\")\" != 21 ] || {kill}; sh run.sh");
    let killed = engine.begin(&measure, &[]);
    assert_eq!(code(&killed), None, "{}", err(&killed));
    let events = || {
        let text = fs::read_to_string(engine.work().join("state.json")).expect("it is there");
        let state: Value = serde_json::from_str(&text).expect("JSON");
        state["record"]["events"].as_array().expect("a list").len()
    };
    // Two warmed up good and bad.
    assert_eq!(engine.runs(), 21);
    assert_eq!(events(), 19);
    let again = engine.begin("sh run.sh", &[]);
    assert_eq!(code(&again), Some(1));
    assert!(
        err(&again).contains("--resume goes on with it, --anew discards it"),
        "{}",
        err(&again)
    );
    // The command is in the file: another one there, which stops it a little later.
    let state = engine.work().join("state.json");
    let text_of = fs::read_to_string(&state).expect("it is there");
    let stopping = text_of.replace("!= 21", "!= 41").replace(kill, "kill -INT $PPID");
    fs::write(&state, stopping).expect("written");
    let stopped = engine.command(&["--resume"]).output().expect("it starts");
    assert_eq!(code(&stopped), Some(130), "{}", err(&stopped));
    assert!(err(&stopped).contains("this goes on: brickscope bisect --resume --repo "));
    assert!(text(&stopped.stdout).is_empty());
    let before = events();
    assert!(before > 30, "{before}");
    let done = engine.command(&["--resume", "--json"]).output().expect("it starts");
    assert_eq!(code(&done), Some(0), "{}", err(&done));
    assert!(events() > before);
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["commits"][0]["hash"], engine.commits[8].as_str(), "{json}");
    engine.is_as_it_was();
    // Once more says the same, without a measurement.
    let runs = engine.runs();
    let said = engine.command(&["--resume", "--json"]).output().expect("it starts");
    assert_eq!((code(&said), said.stdout), (Some(0), done.stdout));
    assert_eq!(engine.runs(), runs);
}

/// A git that goes on to the real one, but for the first checkouts: at one it does what `line` says.
fn git_that(dir: &Path, line: &str) -> std::ffi::OsString {
    let own = dir.join("bin");
    fs::create_dir_all(&own).expect("made");
    let path = std::env::var_os("PATH").expect("it is set");
    let real = std::env::split_paths(&path).map(|of| of.join("git")).find(|git| git.is_file());
    let real = real.expect("git").display().to_string();
    let script = format!(
        "case \" $* \" in *' checkout '*)\n  n=$(cat {dir}/n 2> /dev/null || echo 0)\n  n=$((n + 1))\n  \
        echo $n > {dir}/n\n  if [ $n = 3 ]; then {line}; fi ;;\nesac\nexec {real} \"$@\"",
        dir = dir.display()
    );
    command::script(&own.join("git"), &script);
    let paths = std::iter::once(own).chain(std::env::split_paths(&path));
    std::env::join_paths(paths).expect("a list of paths")
}

#[test]
fn a_search_that_is_killed_or_stopped_in_a_checkout_goes_on() {
    let words = |engine: &Engine| {
        let good = engine.commits[0].clone();
        let rest = ["--bad", "HEAD", "--build", "sh build.sh", "--seed", "7", "--measure"];
        let how = ["sh run.sh", "--pattern", "tokens per second: {}"];
        ["--good", &good].iter().chain(&rest).chain(&how).map(|w| (*w).to_owned()).collect()
    };
    // What git has when it is killed at work: a lock in its own folder of the worktree.
    let lock = "touch \"$(git -C \"$2\" rev-parse --git-dir)/index.lock\"";
    for (line, expected) in [
        (format!("{lock}; kill -KILL $PPID; exit 1"), None),
        ("kill -INT $PPID; exit 130".to_owned(), Some(130)),
    ] {
        let engine = Engine::new(slower(8, 99));
        let path = git_that(engine.dir.path(), &line);
        let words: Vec<String> = words(&engine);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let stopped = engine.command(&words).env("PATH", path).output().expect("it starts");
        assert_eq!(code(&stopped), expected, "{}", err(&stopped));
        let done = engine.command(&["--resume", "--json"]).output().expect("it starts");
        assert_eq!(code(&done), Some(0), "{}", err(&done));
        let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(json["commits"][0]["hash"], engine.commits[8].as_str(), "{json}");
        engine.is_as_it_was();
    }
}

#[test]
fn submodules_are_checked_out_and_the_users_configuration_stays() {
    let engine = Engine::new(slower(8, 99));
    // Beside the repository, with another one in it.
    let allow = ["-c", "protocol.file.allow=always"];
    for (name, inner) in [("inner", None), ("part", Some("../inner"))] {
        let at = engine.dir.path().join(name);
        fs::create_dir(&at).expect("made");
        let git = |words: &[&str]| {
            engine.git(&[&["-C", at.to_str().expect("a path")], &allow[..], words].concat())
        };
        git(&["init", "--quiet"]);
        fs::write(at.join("file"), name).expect("written");
        if let Some(inner) = inner {
            git(&["submodule", "--quiet", "add", inner, "inner"]);
        }
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "-m", "It"]);
    }
    engine.git(&[&allow[..], &["submodule", "--quiet", "add", "../part", "a part"]].concat());
    engine.git(&["commit", "--quiet", "-m", "A part"]);
    engine.git(&["commit", "--quiet", "--allow-empty", "-m", "No change"]);
    engine.git(&["submodule", "--quiet", "deinit", "--all"]);
    fs::remove_dir_all(engine.repo().join(".git/modules")).expect("it is there");
    let config = || fs::read_to_string(engine.repo().join(".git/config")).expect("it is there");
    let before = config();
    let build = "cat 'a part/file' 'a part/inner/file' && cp speed built";
    let words = ["--good", "HEAD~1", "--bad", "HEAD", "--build", build, "--measure", "sh run.sh"];
    let mut search =
        engine.command(&[&words[..], &["--pattern", "tokens per second: {}"]].concat());
    let found = search.env("GIT_ALLOW_PROTOCOL", "file").output().expect("it starts");
    assert!(engine.runs() > 0, "{}", err(&found));
    assert_eq!(config(), before);
}

#[test]
fn with_too_few_measurements_it_says_so_and_goes_on_with_more() {
    let engine = Engine::new(slower(8, 99));
    let output = engine.begin("sh run.sh", &["--max-measurements", "41"]);
    assert_eq!(code(&output), Some(3), "{}", err(&output));
    let out = text(&output.stdout);
    assert!(out.starts_with("Inconclusive: no more measurements are allowed"), "{out}");
    assert!(out.contains("\n  likely     one of "), "{out}");
    let output = engine.command(&["--resume", "--max-measurements", "900"]).output();
    let output = output.expect("it starts");
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert!(text(&output.stdout).contains("Change 8"));
    engine.is_as_it_was();
}

#[test]
fn what_is_wrong_is_said() {
    let engine = Engine::new(slower(8, 0));
    let fails = |output: Output, part: &str| {
        assert_eq!(code(&output), Some(1), "{}", err(&output));
        assert!(err(&output).contains(part), "{part}: {}", err(&output));
    };
    let words = |words: &[&str]| engine.command(words).output().expect("it starts");
    let head = engine.commits[COMMITS].as_str();
    fails(words(&["--resume"]), "there is no search to go on with in ");
    fails(
        words(&["--good", "nowhere", "--measure", "x"]),
        "--good nowhere: git knows no such commit",
    );
    fails(words(&["--good=--all", "--measure", "x"]), "--good --all: git knows no such commit");
    fails(words(&["--good", head, "--measure", "x"]), "are the same commit");
    let swapped = ["--good", head, "--bad", &engine.commits[0], "--measure", "x"];
    fails(words(&swapped), "they are the other way around");
    let pattern = ["--good", &engine.commits[0], "--measure", "x", "--pattern", "none"];
    fails(words(&pattern), "it needs one {} where the number stands");
    fails(engine.begin("sh run.sh", &[]), "(good) can't be measured: its build failed");
    let begin = |measure: &str| {
        let words = ["--anew", "--good", &engine.commits[1], "--measure", measure];
        engine.command(&words).output().expect("it starts")
    };
    fails(begin("echo 12 apples"), "12 apples");
    fails(begin("echo 12 apples"), "neither a number, nor that of llama-bench");
    fails(
        begin("echo no model >&2; exit 3"),
        "(good) can't be measured: the command that measures failed",
    );
    fails(begin("echo no model >&2; exit 3"), "no model");
    fails(begin("echo 0"), "it has to be a number above 0");
    let elsewhere = brickscope(&["bisect", "--good", "a", "--measure", "x", "--repo"])
        .arg(engine.dir.path())
        .env("GIT_CEILING_DIRECTORIES", Path::new("/"))
        .output();
    fails(elsewhere.expect("it starts"), "is no git repository");
    fs::write(engine.work().join("state.json"), "{}").expect("written");
    fails(words(&["--resume"]), "state.json");
}
