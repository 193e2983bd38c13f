//! Random command lines and broken run folders. Whatever it is given, the command ends by itself with an exit code of
//! its own, never by a panic or a signal, prints no raw control characters, and leaves no half-written file.
//!
//! A short attack with a fixed seed is part of the tests. `BRICKSCOPE_ATTACK_SECONDS=300 cargo test --release -p
//! brickscope-cli --test attack` goes on for that long, from a seed that it prints. A finding's command line belongs
//! into `fuzz/corpus/command_line`, one word a line, which is replayed here.
#![cfg(unix)]

use brickscope::stats::SplitMix64;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brickscope_testing::command;
use brickscope_testing::patience::{HANG, first_to_judge};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits()
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

/// A command that may run until it is told to end is killed after this time, if it has computed as long or waits for
/// something. On a busy machine it goes on, or else less would be judged there.
const MOST_OF_ANY: Duration = Duration::from_secs(20);

/// Commands that were killed, and so not judged.
static UNJUDGED: AtomicU32 = AtomicU32::new(0);

const HOSTILE: [&str; 4] = [
    "\u{1b}]0;title\u{7}\u{1b}[31m",
    "\u{9b}31m\u{202e}\u{2066}",
    "two\r\nlines\u{2028}\t\u{0}",
    "<script>alert(1)</script>=1+1",
];

const TEXTS: [&str; 14] = [
    "",
    "-",
    "--",
    "0",
    "-1",
    "1",
    "3",
    "0.5",
    "NaN",
    "1e999",
    "18446744073709551616",
    "\u{1b}]0;title\u{7}\u{9b}31m\u{202e}",
    "=cmd|' /C calc'!A0",
    "a b;c\nd\re\tf",
];

/// Whether a command has to end by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    Surely,
    /// Some run until they are told to end, or measure for long.
    Perhaps,
}

/// A folder in which commands run, with a model, runs of it, and files that are none.
struct Scratch {
    folder: TempDir,
}

/// The folders of the runs, by the command that made them.
const FOLDERS: [(&str, &str); 3] =
    [("profile", "run"), ("benchmark", "bench"), ("flamegraph", "flame")];

/// A run of a small model by each command that makes one.
static RUNS: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a temporary folder");
    for (command, out) in FOLDERS {
        let make = |more: &[&str]| {
            let mut made = brickscope(folder.path());
            made.args([command, "--threads", "1", "--out", out]).arg(model()).args(more);
            let output = made.output().expect("it starts");
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (is_made, said) = match command {
            "profile" => make(&["--tokens", "3"]),
            "benchmark" => make(&["--tokens", "3", "-p", "5", "-r", "3"]),
            // Works on every system. On a busy machine there may be no sample in a pass. More tokens than these don't fit
            // the model's context.
            _ => first_to_judge(|_| {
                let made = make(&["--via", "timer", "--tokens", "350"]);
                let has_none = ["lie outside of passes", "no samples were taken"];
                if has_none.iter().any(|why| made.1.contains(why)) {
                    // The run itself is kept, and isn't written over.
                    let _ = fs::remove_dir_all(folder.path().join(out));
                    return Err(made.1);
                }
                Ok(made)
            })
            .expect("a sample in a pass"),
        };
        assert!(is_made, "{said}");
    }
    folder
});

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf")
}

fn brickscope(folder: &Path) -> Command {
    // A command that would fill the disk or the memory meets an error instead.
    let limits = "ulimit -f 1000000; ulimit -v 16000000; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limits]).arg(command::program());
    command.current_dir(folder).stdin(Stdio::null());
    command.env("HOME", folder).env("XDG_CACHE_HOME", folder.join("cache"));
    command.env("BRICKSCOPE_CACHE", command::cache());
    // So that messages of a panic are the same everywhere.
    command.env("RUST_BACKTRACE", "0");
    command
}

impl Scratch {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for (_, run) in FOLDERS {
            copy(&RUNS.path().join(run), &folder.path().join(run));
        }
        fs::copy(model(), folder.path().join("model.gguf")).expect("the fixture");
        fs::write(folder.path().join("empty"), "").expect("written");
        fs::write(folder.path().join("stacks.folded"), "decode;LmHead 3\nmain;\u{9b}x 4\n")
            .expect("written");
        fs::create_dir(folder.path().join("nothing")).expect("made");
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command to its end, or for as long as it may take, and judges how it ended.
    fn judge(&self, words: &[String], ends: Ends) {
        let mut command = brickscope(self.path());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(child) = command.spawn() else { return };
        let Some(output) = ended(child, ends) else {
            assert_eq!(ends, Ends::Perhaps, "{words:?} doesn't end");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let what = || format!("{words:?}: {}\n{said}", output.status);
        assert_eq!(output.status.signal(), None, "a signal ended {}", what());
        assert!(!said.contains("panicked at"), "{}", what());
        // An exit code of a command that runs another one is that one's.
        let is_ours = words.first().is_some_and(|first| first != "flamegraph");
        let code = output.status.code().unwrap_or(-1);
        assert!(!is_ours || (0..=3).contains(&code), "{}", what());
        for (stream, text) in [("stdout", &shown), ("stderr", &said)] {
            // Folded stacks, JSON and tables have tabs and line breaks of their own. `tokenize` prints what a model's
            // tokens are.
            let is_raw = |c: &char| c.is_control() && !['\n', '\r', '\t'].contains(c);
            let raw = text.chars().find(is_raw);
            assert!(raw.is_none(), "{raw:?} on {stream} of {}", what());
        }
        let left = partial(self.path());
        assert!(left.is_empty(), "{left:?} was left by {}", what());
    }
}

/// What a child has printed, if it ends in time; otherwise it is killed.
fn ended(mut child: std::process::Child, ends: Ends) -> Option<Output> {
    let id = child.id();
    let (done, is_done) = std::sync::mpsc::channel();
    let mut out = child.stdout.take()?;
    let mut err = child.stderr.take()?;
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = std::io::Read::read_to_end(&mut err, &mut bytes);
        bytes
    });
    let waiting = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = std::io::Read::read_to_end(&mut out, &mut bytes);
        let status = child.wait();
        let _ = done.send(());
        (status, bytes)
    });
    let most = if ends == Ends::Surely { HANG } else { MOST_OF_ANY };
    let mut is_late = is_done.recv_timeout(most).is_err();
    let mut before = 0.0;
    while is_late && ends == Ends::Perhaps {
        let computed = computed(id).unwrap_or(f64::INFINITY);
        if computed > MOST_OF_ANY.as_secs_f64() || computed < before + 0.1 {
            UNJUDGED.fetch_add(1, Ordering::Relaxed);
            break;
        }
        before = computed;
        is_late = is_done.recv_timeout(MOST_OF_ANY / 4).is_err();
    }
    if is_late {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
    }
    let (status, stdout) = waiting.join().ok()?;
    let stderr = errors.join().ok()?;
    (!is_late).then_some(Output { status: status.ok()?, stdout, stderr })
}

/// How many seconds a process has computed, where the system says so.
fn computed(id: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let times = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
    // In hundredths of a second, on every machine that we know.
    Some(times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

/// Files that a command began and didn't finish.
fn partial(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            found.extend(partial(&path));
        }
        if name.ends_with(".partial") || name == ".next" || name.starts_with(".tmp") {
            found.push(path);
        }
    }
    found
}

/// A command, with the flags that its help names.
struct Known {
    name: String,
    flags: Vec<String>,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let help = |words: &[&str]| {
        let mut command = brickscope(Path::new("."));
        let output = command.args(words).arg("--help").output().expect("it starts");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let all = help(&[]);
    let list = all.split("\nOptions:").next().unwrap_or_default();
    let names = list.lines().filter(is_command).filter_map(|line| line.split_whitespace().next());
    let known = names.filter(|name| *name != "help").map(|name| {
        let text = help(&[name]);
        let words = text.split(|c: char| c.is_whitespace() || c == ',' || c == '[' || c == '=');
        let mut flags: Vec<String> = words
            .filter(|word| word.len() > 1 && word.starts_with('-'))
            .map(str::to_owned)
            .collect();
        flags.sort();
        flags.dedup();
        // Waits for a terminal, serves others, or measures for minutes.
        let is_left_out = |flag: &String| {
            ["--install", "--metrics-public", "--overhead-seconds", "--overhead-processes"]
                .contains(&flag.as_str())
        };
        flags.retain(|flag| !is_left_out(flag));
        Known { name: name.to_owned(), flags }
    });
    known.collect()
});

/// A command line, more sensible than not.
fn command_line(random: &mut Random) -> Vec<String> {
    let files = [
        "run",
        "bench",
        "flame",
        "model.gguf",
        "empty",
        "nothing",
        "stacks.folded",
        "run/profile.json",
        "absent",
    ];
    let known = random.one_of(&KNOWN);
    let mut words = vec![known.name.clone()];
    for _ in 0..random.below(6) {
        let word = match random.below(8) {
            0..=3 if !known.flags.is_empty() => random.one_of(&known.flags).clone(),
            0..=5 => (*random.one_of(&files)).to_owned(),
            _ => (*random.one_of(&TEXTS)).to_owned(),
        };
        let is_attached =
            words.len() > 1 && random.below(6) == 0 && words[words.len() - 1].starts_with("--");
        match words.last_mut().filter(|_| is_attached) {
            Some(last) => *last += &format!("={word}"),
            None => words.push(word),
        }
    }
    // Without a model it measures one of its own for half a minute.
    if words == ["benchmark"] {
        words.push("model.gguf".to_owned());
    }
    // A word with a zero byte can't be handed to any program.
    words.retain(|word| !word.contains('\0'));
    words
}

/// Changes one file of a run: one of its values, or some of its bytes.
fn break_a_file(random: &mut Random, folder: &Path) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a run")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let file = random.one_of(&files);
    let bytes = fs::read(file).expect("it can be read");
    let changed = match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut value) if random.below(4) > 0 => {
            // A file with another text in some of its texts is mostly read; one with another value mostly isn't.
            let mut texts = Vec::new();
            places_of_texts(&value, String::new(), &mut texts);
            let is_of_texts = random.below(2) == 0;
            for _ in 0..=random.below(if is_of_texts { 8 } else { 3 }) {
                match value.pointer_mut(random.one_of::<String>(&texts)) {
                    Some(text) if is_of_texts => *text = json!(*random.one_of::<&str>(&HOSTILE)),
                    _ => change(random, &mut value),
                }
            }
            value.to_string().into_bytes()
        }
        _ => {
            let mut bytes = bytes;
            match random.below(3) {
                0 => bytes.truncate(random.below(bytes.len())),
                1 => {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                _ => {
                    let at = random.below(bytes.len());
                    bytes.splice(at..at, [b'{', 0xff, 0]);
                }
            }
            bytes
        }
    };
    fs::write(file, changed).expect("it can be written");
}

fn places_of_texts(value: &Value, place: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            places_of_texts(
                field,
                format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")),
                found,
            );
        }),
        Value::Array(items) => (0..).zip(items).for_each(|(nth, item): (usize, _)| {
            places_of_texts(item, format!("{place}/{nth}"), found);
        }),
        Value::String(_) => found.push(place),
        _ => {}
    }
}

fn change(random: &mut Random, value: &mut Value) {
    let inside = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if inside > 0 && random.below(12) > 0 {
        let which = random.below(inside);
        let next = match value {
            Value::Object(fields) => fields.iter_mut().nth(which).map(|(_, field)| field),
            Value::Array(items) => items.get_mut(which),
            _ => None,
        };
        return next.map_or((), |next| change(random, next));
    }
    *value = match (value.is_string(), random.below(9)) {
        // A text in place of a text is read, and printed.
        (true, 0..7) => json!(*random.one_of::<&str>(&HOSTILE)),
        (_, 0) => Value::Null,
        (_, 1) => json!(random.next()),
        (_, 2) => json!(-1),
        (_, 3) => json!(1e308),
        (_, 4) => json!(*random.one_of(&TEXTS)),
        (_, 5) => json!([]),
        (_, 6) => json!({}),
        (_, 7) => json!("x".repeat(1 << random.below(18))),
        _ => json!(0),
    };
}

/// What reads a run.
const READERS: [&[&str]; 23] = [
    &["show", "run"],
    &["show", "run", "--json"],
    &["show", "run", "--as", "tree"],
    &["show", "run", "--as", "dot"],
    &["show", "run", "--as", "svg"],
    &["report", "run", "--force"],
    &["export", "run", "--format", "chrome"],
    &["export", "run", "--format", "csv"],
    &["export", "run", "--format", "speedscope"],
    &["flamegraph", "run"],
    &["flamegraph", "flame"],
    &["flamegraph", "--diff", "flame", "flame"],
    &["history", "flame", "--flamegraphs"],
    &["report", "flame", "--force"],
    &["show", "flame"],
    &["diverge", "run", "run"],
    &["compare", "run", "run"],
    &["compare", "bench", "bench"],
    &["compare", "bench", "run", "--force"],
    &["verify-receipt", "bench"],
    &["verify-receipt", "bench", "--json"],
    &["history", "bench"],
    &["gate", "--baseline", "base", "--update", "bench"],
];

/// Repeats an attack: `few` times with one seed, or for as long as the environment says.
fn attack(few: u64, one: impl Fn(&mut Random)) {
    let seconds = std::env::var("BRICKSCOPE_ATTACK_SECONDS").ok();
    match seconds.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => {
            let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            eprintln!("the seed is {seed}");
            let began = Instant::now();
            let mut random = Random(SplitMix64(seed));
            let mut tries = 0_u64;
            while began.elapsed() < Duration::from_secs(seconds) {
                one(&mut random);
                tries += 1;
            }
            eprintln!("{tries} tries");
        }
        None => (0..few).for_each(|nth| one(&mut Random(SplitMix64(nth)))),
    }
}

#[test]
fn a_random_command_line_ends_with_an_exit_code() {
    attack(40, |random| Scratch::new().judge(&command_line(random), Ends::Perhaps));
    eprintln!("{} command lines didn't end, and were not judged", UNJUDGED.load(Ordering::Relaxed));
}

#[test]
fn a_run_with_a_broken_file_is_read_or_refused() {
    attack(40, |random| {
        let scratch = Scratch::new();
        let words: Vec<String> =
            random.one_of(&READERS).iter().map(|word| (*word).to_owned()).collect();
        let is_a_run = |word: &&String| FOLDERS.iter().any(|(_, run)| word.as_str() == *run);
        let run = words.iter().find(is_a_run).expect("each reads a run");
        break_a_file(random, &scratch.path().join(run));
        scratch.judge(&words, Ends::Surely);
    });
}

#[test]
fn command_lines_that_failed_once_do_not_any_more() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/command_line");
    let mut replayed = 0;
    for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("UTF-8");
        Scratch::new().judge(&text.lines().map(str::to_owned).collect::<Vec<_>>(), Ends::Surely);
        replayed += 1;
    }
    assert!(replayed >= 4, "{replayed} files are left of the corpus");
}
