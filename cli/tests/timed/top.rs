//! `brickscope top`: its figures compared with the report of the same run, engines that die while they
//! are watched, and the view in a real terminal.
#![cfg(unix)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brickscope::{BrickId, BrickProfiler, Phase};
use brickscope_live::socket::{Facts, Starting};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, adds_up, brickscope, run, text};
use brickscope_testing::patience::{HANG, first_to_judge, until};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf")
}

/// The most by which figures of a run may differ between the two.
const AGREES: f64 = 0.01;

fn agree(what: &str, a: &Value, b: &Value) {
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else {
        assert_eq!(a, b, "{what}");
        return;
    };
    assert!((a - b).abs() <= AGREES * a.abs().max(b.abs()), "{what}: {a} and {b}");
}

/// The row of a table with this key.
fn rows<'v>(table: &'v Value, keys: &[&str]) -> Vec<(String, &'v Value)> {
    let rows = table.as_array().expect("a table").iter();
    rows.map(|row| (keys.iter().map(|key| row[key].to_string()).collect(), row)).collect()
}

#[test]
fn the_last_picture_of_a_run_has_the_numbers_of_its_report() {
    let _alone = crate::alone();
    let dir = TempDir::new().expect("a temporary folder");
    // A viewer that gets no CPU for a third of a second when the run ends doesn't hear of its end.
    let watched = first_to_judge(|nth| {
        let out = dir.path().join(format!("run-{nth}"));
        let mut command = brickscope(&["top", "--once", "--json", "--tokens", "60", "--out"]);
        let printed = command.arg(&out).arg(model()).output().expect("it starts");
        if printed.stdout.is_empty() {
            // Nor did it hear of its begin.
            assert!(!printed.status.success());
            return Err(text(&printed.stderr).to_owned());
        }
        let top: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
        let has_ended = top["state"] == "ended";
        assert!(has_ended || top["state"] == "died", "{top}");
        assert_eq!(printed.status.success(), has_ended, "{}", text(&printed.stderr));
        match has_ended {
            true => Ok((top, out)),
            false => Err("the end of the run was not heard of".to_owned()),
        }
    });
    let Some((top, out)) = watched else { return };
    let file = std::fs::read_to_string(out.join("profile.json")).expect("the run is written");
    let report: Value = serde_json::from_str(&file).expect("JSON");
    adds_up(&top);
    let phases = rows(&top["phases"], &["phase"]);
    assert_eq!(phases.len(), 2);
    for ((which, live), (other, written)) in phases.iter().zip(rows(&report["phases"], &["phase"]))
    {
        assert_eq!(which, &other);
        for figure in ["passes", "tokens", "wall_ns", "attributed_ns", "unattributed_ns"] {
            agree(&format!("{figure} of {which}"), &live[figure], &written[figure]);
        }
        let rate = written["tokens"].as_f64().expect("tokens") * 1e9
            / written["wall_ns"].as_f64().expect("a wall");
        agree("tokens per second", &live["tokens_per_second"], &rate.into());
    }
    let keys = ["phase", "kind", "name", "source", "host"];
    let (live, written) = (rows(&top["totals"], &keys), rows(&report["totals"], &keys));
    assert_eq!(live.len(), written.len());
    for ((which, live), (other, written)) in live.iter().zip(&written) {
        assert_eq!(which, other);
        for figure in ["count", "total_ns", "exclusive_ns", "p50_ns", "p99_ns", "total_bytes"] {
            agree(&format!("{figure} of {which}"), &live[figure], &written[figure]);
        }
    }
    for what in ["first_token", "per_token"] {
        let (live, written) = (&top["latency"][what], &report["latency"][what]);
        for figure in ["count", "mean_ns", "p50_ns", "p95_ns"] {
            agree(&format!("{figure} of {what}"), &live[figure], &written[figure]);
        }
    }
    assert!(top["latency"]["per_token"]["p50_ns"].is_u64(), "59 tokens are enough for a p50");
    assert!(top["latency"]["per_token"]["p99_ns"].is_null(), "and too few for a p99");
    assert_eq!(top["kv_cache"]["tokens"], top["kv_cache"]["room"], "the run filled it");
    assert_eq!(top["model"]["layers"], report["model"]["layers"]);

    // Every null has a reason.
    let absent = rows(&top["absent"], &["field"]);
    let mut nulls = Vec::new();
    find_nulls(&top, "", &mut nulls);
    assert!(nulls.iter().any(|field| field == "totals[].p99_ns"), "{nulls:?}");
    for field in nulls {
        let row = absent.iter().find(|(_, row)| row["field"] == field.as_str());
        let (_, row) = row.unwrap_or_else(|| panic!("{field} is null, and nothing says why"));
        assert!(row["reason"].as_str().is_some_and(|reason| reason.len() > 8), "{row}");
    }
}

fn find_nulls(value: &Value, path: &str, nulls: &mut Vec<String>) {
    match value {
        Value::Null => nulls.push(path.to_owned()),
        Value::Array(rows) => {
            rows.iter().for_each(|row| find_nulls(row, &format!("{path}[]"), nulls));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            find_nulls(field, format!("{path}.{name}").trim_start_matches('.'), nulls);
        }),
        _ => {}
    }
}

/// An engine that publishes until it is told to end.
struct Engine {
    child: Child,
    folder: TempDir,
}

/// Where an engine's messages are, in its folder.
const SAID: &str = "stderr";

impl Engine {
    fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut command = brickscope(&["profile", "--live", "--endless", "--tokens", "32"]);
        command.arg(model()).env("XDG_RUNTIME_DIR", folder.path());
        let said = File::create(folder.path().join(SAID)).expect("a temporary folder");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(said);
        let mut engine = Self { child: command.spawn().expect("it starts"), folder };
        until("its socket", || {
            assert!(
                engine.child.try_wait().expect("a child").is_none(),
                "it ended: {}",
                engine.said()
            );
            UnixStream::connect(engine.socket()).ok()
        });
        engine
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(SAID)).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join(format!("brickscope/{}.sock", self.child.id()))
    }

    fn top(&self, attach: &str, args: &[&str]) -> Command {
        let mut command = brickscope(&["top", "--attach", attach]);
        command.args(args).env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }

    /// What `top` prints of it while it runs. `None` where it is to be looked at again.
    fn seen(&mut self, attach: &str, args: &[&str]) -> Option<Output> {
        let mut command = self.top(attach, args);
        let output = command.output().expect("it starts");
        let said = text(&output.stderr);
        assert!(self.child.try_wait().expect("a child").is_none(), "it ended: {}", self.said());
        assert!(output.status.success() || was_given_up(said), "{command:?}: {said}");
        output.status.success().then_some(output)
    }
}

/// Whether this is what `top` says of an engine that runs where one of the two got no processor for some seconds: then a
/// viewer gives an engine up, and an engine a viewer, which takes that for the engine's death. And of a viewer that gave
/// up an engine knows only later.
fn was_given_up(said: &str) -> bool {
    let all = [
        "whoever listens says nothing",
        " did not end a line within ",
        "a line did not end within ",
        "there are already ",
        "the engine died: these are its last figures",
        "the engine ended before it sent a frame",
    ];
    all.iter().any(|words| said.contains(words))
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_engine_is_watched_by_its_number_and_by_its_socket() {
    let _alone = crate::alone();
    let mut engine = Engine::start();
    let pid = engine.child.id().to_string();
    // One look may find a prefill and no token after it.
    let has_rate = |top: &Value| {
        let now = &top["phases"][1]["tokens_per_second_now"];
        now.as_f64().is_some_and(|rate| rate > 0.0)
    };
    let top = until("tokens per second", || {
        let printed = engine.seen(&pid, &["--once", "--json", "--rate", "20"])?;
        let top: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
        has_rate(&top).then_some(top)
    });
    assert_eq!((top["state"].as_str(), top["pid"].as_u64()), (Some("running"), pid.parse().ok()));
    adds_up(&top);
    assert!(!top["layers"].as_array().expect("a table").is_empty());
    assert!(!top["brick_kernels"].as_array().expect("a table").is_empty());
    if cfg!(target_os = "linux") {
        assert!(top["memory"]["resident_bytes"].as_u64() > Some(1 << 20), "{}", top["memory"]);
        assert!(top["activity"]["threads"].is_array(), "{}", top["activity"]);
    }

    let socket = engine.socket();
    let picture = until("tokens per second", || {
        let printed = engine.seen(socket.to_str().expect("UTF-8"), &["--once"])?;
        let picture = text(&printed.stdout).to_owned();
        picture.contains(" tok/s now").then_some(picture)
    });
    let last = picture.lines().last().expect("lines");
    assert!(last.starts_with(" unattributed"), "the whole table, and no keys: {picture}");
    assert!(picture.lines().all(|line| line.chars().count() <= 80), "{picture}");
    let backend = top["run"]["backend"].as_str().expect("it says where it runs");
    for word in [" tok/s now", "TTFT", "KV cache", "unattributed", "QkvProjection", backend] {
        assert!(picture.contains(word), "{word}: {picture}");
    }

    // Told to end, it removes its socket.
    drop(engine.child.stdin.take());
    assert!(engine.child.wait().expect("a child").success());
    assert!(!socket.exists());
    let refused = engine.top(&pid, &["--once"]).output().expect("it starts");
    assert_eq!(text(&refused.stderr), format!("brickscope: there is no process {pid}\n"));
}

#[test]
fn an_engine_that_is_killed_leaves_its_last_picture_and_a_socket_that_says_so() {
    let _alone = crate::alone();
    let mut engine = Engine::start();
    let socket = engine.socket();
    // Its hello, and its first frame with a pass.
    let mut reader = BufReader::new(UnixStream::connect(&socket).expect("it publishes"));
    let mut line = |begins: &str, has: &str| loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).expect("a line"), 0, "it ended: {}", engine.said());
        if line.starts_with(begins) && line.contains(has) {
            break line;
        }
    };
    let recorded = line(r#"{"hello":"#, "") + &line(r#"{"frame":"#, r#""phases":[{"#);
    engine.child.kill().expect("it runs");
    engine.child.wait().expect("a child");
    let refused = engine.top(socket.to_str().expect("UTF-8"), &["--once"]).output();
    let refused = refused.expect("it starts");
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("nobody listens on") && said.contains("has ended"), "{said}");

    // The same engine again, which dies after that frame.
    let path = engine.folder.path().join("again.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let again = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a watcher");
        stream.write_all(recorded.as_bytes()).expect("it reads");
        // Read its request, or the end would be an error.
        BufReader::new(&stream).read_until(b'\n', &mut Vec::new()).expect("a request");
    });
    let printed = engine.top(path.to_str().expect("UTF-8"), &["--once", "--json"]).output();
    let printed = printed.expect("it starts");
    let said = text(&printed.stderr);
    assert_eq!(printed.status.code(), Some(1), "{said}");
    assert_eq!(said, "brickscope: the engine died: these are its last figures\n");
    let top: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(top["state"], "died");
    assert!(top["totals"].is_array());
    assert!(top["phases"][0]["tokens_per_second_now"]["absent"].is_string(), "{}", top["phases"]);
    again.join().expect("no panic");
}

#[test]
fn an_engine_that_still_loads_says_so_and_is_watched_when_it_runs() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a temporary folder");
    let socket = folder.path().join("engine.sock");
    let starting = Starting::begin_at(&socket).expect("it listens");
    starting.say("loading the weights: 1 of 2 MB");
    let watches = || {
        let mut command = brickscope(&["top", "--once", "--json", "--rate", "20", "--attach"]);
        command.arg(&socket).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut once = watches();
    let program = command::program();
    let attached =
        format!("env NO_COLOR=1 '{}' top --attach '{}'; cat", program.display(), socket.display());
    let terminal = Terminal::run("loads", &attached);
    if let Some(terminal) = &terminal {
        terminal.wait_for("loading the weights: 1 of 2 MB");
    }
    let profiler = Arc::new(BrickProfiler::enabled());
    let publisher = starting.publish(&profiler, Facts::default()).expect("it publishes");
    if let Some(terminal) = &terminal {
        terminal.wait_for("no pass has ended yet");
    }
    // Passes, until there is a rate to print.
    let said = until("a rate", || {
        let pass = profiler.begin_pass(Phase::Decode);
        std::thread::sleep(Duration::from_millis(5));
        profiler.end_pass(pass, 1, 0);
        once.try_wait().expect("a child")?;
        let mut said = String::new();
        let mut stderr = once.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("UTF-8");
        if was_given_up(&said) {
            once = watches();
            return None;
        }
        Some(said)
    });
    let printed = once.wait_with_output().expect("it has ended");
    let top: Value = serde_json::from_slice(&printed.stdout).expect(&said);
    assert_eq!(top["state"], "running");
    drop(publisher);
}

#[test]
fn where_a_run_can_be_watched_is_said_before_it_loads_and_when_it_runs() {
    let _alone = crate::alone();
    let folder = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&["profile", "--live", "--tokens", "2", "--out"]);
    command.arg(folder.path().join("run")).arg(model()).env("XDG_RUNTIME_DIR", folder.path());
    let ran = run(&mut command);
    let said: Vec<&str> = text(&ran.stderr).lines().filter(|l| l.starts_with("live: ")).collect();
    let [soon, now] = said[..] else { panic!("{}", text(&ran.stderr)) };
    assert!(soon.contains("will publish at /") && soon.contains("/brickscope/"), "{soon}");
    assert!(now.contains("publishing; `brickscope top --attach "), "{now}");
}

#[test]
fn what_can_not_be_watched_is_said() {
    let _alone = crate::alone();
    let said = |args: &[&str]| {
        let output = brickscope(args).stdin(Stdio::null()).output().expect("it starts");
        assert!(!output.status.success(), "{args:?}");
        assert!(output.stdout.is_empty());
        text(&output.stderr).to_owned()
    };
    let path = model();
    let model = path.to_str().expect("UTF-8");
    assert!(said(&["top", "--attach", "4294967295"]).contains("there is no process"));
    assert!(said(&["top", "--attach", "nowhere"]).contains("neither a process id"));
    let folder = TempDir::new().expect("a temporary folder");
    let folder = folder.path().to_str().expect("UTF-8");
    let dead = format!("{folder}/dead.sock");
    drop(UnixListener::bind(&dead).expect("bound"));
    for (path, what) in [
        (model, format!("{model} is a file, not a socket: ")),
        (folder, format!("{folder} is a folder, not a socket: ")),
        ("/dev/null", "/dev/null is a pipe or a device, not a socket: ".to_owned()),
        (&dead, format!("nobody listens on {dead}: the process that made it has ended")),
        (&format!("{model}/below"), format!("{model}/below: Not a directory")),
    ] {
        let told = said(&["top", "--attach", path, "--once"]);
        assert!(told.contains(&what), "{told}");
    }
    assert!(said(&["top", model]).contains("needs a terminal"));
    assert!(said(&["top", model, "--json"]).contains("--once"));
    assert!(said(&["top", model, "--rate", "21"]).contains("1..=20"));
    assert!(said(&["top", model, "--once", "--attach", "1"]).contains("cannot be used with"));
    let said = said(&["top", "no-such-model.gguf", "--once"]);
    assert!(said.contains("no-such-model.gguf"), "{said}");
}

/// A separate terminal, 80 × 24.
struct Terminal {
    name: String,
}

impl Terminal {
    /// `None`, with a note, if there is no tmux.
    fn run(name: &str, command: &str) -> Option<Self> {
        let name = format!("brickscope-test-{name}-{}", std::process::id());
        let terminal = Self { name };
        let started = terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", command]);
        if started.is_none() {
            eprintln!("skipped: no tmux");
        }
        started.map(|_| terminal)
    }

    fn tmux(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("tmux");
        let output =
            command.args(["-L", &self.name, "-f", "/dev/null"]).args(args).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]).expect("the terminal is there");
    }

    /// The screen once `found` accepts it.
    fn wait<T>(&self, what: &str, found: impl Fn(&str) -> Option<T>) -> (T, String) {
        let start = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]).expect("the terminal is there");
            if let Some(found) = found(&screen) {
                return (found, screen);
            }
            assert!(start.elapsed() < HANG, "{what} never came:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for(&self, word: &str) -> String {
        self.wait_for_all(&[word])
    }

    /// The screen once it has all of these words: a screen may be seen while it is drawn, when it is partly an older one.
    fn wait_for_all(&self, words: &[&str]) -> String {
        let has_all = |screen: &str| words.iter().all(|word| screen.contains(word));
        self.wait(&words.join(", "), |screen| has_all(screen).then_some(())).1
    }

    /// Before a further key: a program that reads Escape and another one at once takes both for one key.
    fn wait_until_gone(&self, word: &str) {
        self.wait(&format!("the end of {word}"), |screen| (!screen.contains(word)).then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Whether a screen has rows of bricks, and what none of them explains. Which take the most time is chance on a busy machine.
fn has_bricks(screen: &str) -> Option<()> {
    let first = screen.lines().find_map(|line| line.strip_prefix('>'))?;
    BrickId::from_str(first.split_whitespace().next()?)?;
    screen.contains("unattributed").then_some(())
}

#[test]
fn in_a_terminal_it_shows_each_view_outlives_its_engine_and_leaves_the_terminal_clean() {
    let _alone = crate::alone();
    let program = command::program();
    let cache = command::cache().display().to_string();
    let folder = TempDir::new().expect("a temporary folder");
    let command = format!(
        "env NO_COLOR=1 LC_ALL=C XDG_RUNTIME_DIR='{}' BRICKSCOPE_CACHE='{cache}' '{}' top --threads 1 '{}'; echo CODE $?; cat",
        folder.path().display(),
        program.display(),
        model().display()
    );
    let Some(terminal) = Terminal::run("views", &command) else { return };
    terminal.wait_for_all(&["brickscope top: ", "tok/s now", "KV cache", "Brick "]);
    terminal.wait("a table of bricks", has_bricks);
    terminal.press("Enter");
    terminal.wait_for("Kernels, since a viewer attached");
    terminal.press("Escape");
    terminal.wait_until_gone("Kernels, since a viewer attached");
    terminal.press("2");
    terminal.wait_for_all(&["layers by bricks", ".:-=+*#%@, each half the next"]);
    terminal.press("f");
    terminal.wait_for_all(&["FINDINGS", "f,Esc:back"]);
    terminal.press("f");
    terminal.wait_for("layers by bricks");
    terminal.press("3");
    terminal.wait_for("+ layer 0");
    terminal.press("Enter");
    terminal.wait_for("- layer 0");
    terminal.press("?");
    terminal.wait_for("any key: back");
    terminal.press("x");
    terminal.wait_until_gone("any key: back");
    terminal.press("4");
    // A screen may be seen while it is drawn, and part of a number is that of a process of others: the engine's own is in
    // the name of its socket.
    let sockets = std::fs::read_dir(folder.path().join("brickscope")).expect("it publishes there");
    let numbers = sockets.filter_map(|entry| {
        let name = entry.expect("an entry").file_name().into_string().ok()?;
        name.strip_suffix(".sock")?.parse::<u32>().ok()
    });
    let numbers: Vec<u32> = numbers.collect();
    let [pid] = numbers[..] else { panic!("one engine publishes: {numbers:?}") };
    terminal.wait("the engine's number", |screen| {
        let (_, rest) = screen.split_once(", pid ")?;
        (rest.split_whitespace().next()?.parse::<u32>() == Ok(pid)).then_some(())
    });

    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
    terminal.wait("the engine's death in the title", |screen| {
        let title = screen.lines().next()?;
        (title.contains("SIGKILL") && screen.contains("THE ENGINE HAS DIED")).then_some(())
    });
    terminal.press("1");
    // The last screen stays.
    terminal.wait_for("bricks by share");
    terminal.wait("the table of bricks", has_bricks);
    terminal.press("q");
    // The screen is as it was before.
    terminal.wait("the screen from before", |screen| {
        (screen.contains("CODE 0") && !screen.contains("THE ENGINE")).then_some(())
    });
}
