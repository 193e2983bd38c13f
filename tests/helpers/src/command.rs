//! Running the command, and reading its files as a script would.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

/// The program, which Cargo builds before it runs the tests of its package.
///
/// # Panics
///
/// If it isn't there.
#[must_use]
pub fn program() -> PathBuf {
    let name = format!("brickscope{}", std::env::consts::EXE_SUFFIX);
    let test = std::env::current_exe().expect("a test knows its program");
    let folder = test.ancestors().nth(2).expect("a test's program is in target/PROFILE/deps");
    let program = folder.join(name);
    assert!(program.exists(), "no {}", program.display());
    program
}

/// The cache folder of the tests. It has the ceilings of each backend on one thread, on two and on all, so that no command
/// measures any: that takes longer than most commands, and on a busy machine each would measure again and say why.
///
/// # Panics
///
/// If they can't be measured.
#[must_use]
pub fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let cache = crate::temporary().join("cache");
        fs::create_dir_all(&cache).expect("the build's folder is writable");
        // One program at a time.
        let lock = File::create(cache.join("lock")).expect("the build's folder is writable");
        lock.lock().expect("a lock");
        let made = cache.join("made.json");
        let (of, kept) = (this_command_here(), fs::read_to_string(&made).unwrap_or_default());
        let kept: Option<(String, Vec<String>)> = serde_json::from_str(&kept).ok();
        let is_whole = |files: &[String]| files.iter().all(|name| cache.join(name).exists());
        if kept.is_some_and(|(by, files)| Some(by) == of && is_whole(&files)) {
            return cache;
        }
        for threads in BTreeSet::from([1, 2, threads()]) {
            let mut command = Command::new(program());
            command.args(["profile", "--compare-backends", "--rounds", "1", "--tokens", "2"]);
            command.args(["--threads", &threads.to_string()]).arg(crate::model("tiny-Q8_0"));
            run(command.env("BRICKSCOPE_CACHE", &cache));
            quiet_ceilings(&cache);
        }
        if let Some(of) = of {
            let entries = fs::read_dir(&cache).expect("the cache folder").flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let files: Vec<String> = names.filter(|name| name.starts_with("ceilings-")).collect();
            write(&made, &json!([of, files]));
        }
        cache
    })
}

/// What tells this build of the command, on this machine since it was started, from others: what it has measured, the next
/// test program need not measure again. `None` where the system can't tell.
fn this_command_here() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let program = fs::metadata(program()).ok()?;
    Some(format!("{} {} {:?}", boot.trim(), program.len(), program.modified().ok()?))
}

/// Writes a shell script that can be started at once.
///
/// Another process writes it: a file that this one writes is open in each child that other threads start meanwhile, until
/// that is a program of its own, and "text file busy" is what comes of starting it.
///
/// # Panics
///
/// If it can't be written.
pub fn script(path: &Path, lines: &str) {
    let mut writing = Command::new("sh");
    writing.args(["-c", r#"cat > "$0" && chmod 755 "$0""#]).arg(path).stdin(Stdio::piped());
    let mut writing = writing.spawn().expect("a shell");
    let mut to = writing.stdin.take().expect("a pipe");
    write!(to, "#!/bin/sh\n{lines}\n").expect("it reads");
    drop(to);
    assert!(writing.wait().expect("a child").success(), "{}", path.display());
}

/// The command with these arguments, and with the cache folder of the tests. What it runs runs on one thread, unless the
/// arguments say how many: beside other programs two threads wait for each other more than they compute. Arguments that
/// are added later must not say it; see [`as_asked`].
#[must_use]
pub fn brickscope(args: &[&str]) -> Command {
    let options = || args.iter().take_while(|arg| **arg != "--");
    let has = |flag: &str| options().any(|arg| arg.split('=').next() == Some(flag));
    let runs_a_model = match args.first() {
        Some(&("profile" | "benchmark")) => true,
        Some(&"top") => !has("--attach"),
        _ => false,
    };
    if !runs_a_model || has("--threads") || has("--help") {
        return as_asked(args);
    }
    as_asked(&[&args[..1], &["--threads", "1"], &args[1..]].concat())
}

/// The command with these arguments and no others, and with the cache folder of the tests.
#[must_use]
pub fn as_asked(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.env("BRICKSCOPE_CACHE", cache());
    command.args(args);
    command
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// Runs a command whose standard output and standard error nobody reads: the pipes are closed before it
/// starts.
pub fn unread(command: &mut Command) -> std::process::ExitStatus {
    let closed = || std::io::pipe().expect("a pipe").1;
    command.stdout(closed()).stderr(closed()).status().expect("the command starts")
}

/// What the command wrote.
///
/// # Panics
///
/// If it isn't UTF-8.
#[must_use]
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}

/// Asserts bricks + unattributed = wall, as a script would add them up from the file.
pub fn adds_up(json: &Value) {
    let phases = json["phases"].as_array().expect("phases");
    assert!(!phases.is_empty());
    for phase in phases {
        let bricks: u64 = json["totals"]
            .as_array()
            .expect("totals")
            .iter()
            .filter(|total| total["phase"] == phase["phase"] && total["kind"] == "brick")
            .map(|total| total["exclusive_ns"].as_u64().expect("nanoseconds"))
            .sum();
        let unattributed = phase["unattributed_ns"].as_u64().expect("nanoseconds");
        assert!(bricks > 0);
        assert_eq!(Some(bricks + unattributed), phase["wall_ns"].as_u64(), "{phase}");
    }
}

/// If others used more than this share of the CPU time, the command rejects a ceiling as too low.
const MUCH: f64 = 0.05;

/// Marks the ceilings in `cache` as undisturbed, if others used so much CPU time that each run would
/// measure them again, which takes longer than the run itself. Raises them by more than others may have taken.
/// Returns the number of ceilings that are as measured.
///
/// # Panics
///
/// If its files can't be read or written.
pub fn quiet_ceilings(cache: &Path) -> usize {
    let mut real = 0;
    for entry in fs::read_dir(cache).expect("the cache folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("ceilings-") || !name.ends_with(".json") {
            continue;
        }
        let mut json = read(&path);
        // Ceilings that were raised before are marked as undisturbed, and are higher than measured.
        let is_raised = !json[RAISED].is_null();
        if let Some(share) = json["others_share"].as_f64().filter(|share| *share > MUCH) {
            json["others_share"] = 0.0.into();
            // They may have taken more of memory than of the CPUs.
            let times = (2.0 / (1.0 - share.min(0.99))).max(4.0);
            let threads = json["identity"]["threads"].as_f64().expect("a number");
            raise(&mut json["value"], times, threads * MOST_OF_A_THREAD);
            json[RAISED] = true.into();
            write(&path, &json);
        } else if !is_raised {
            real += 1;
        }
        keep_memory(&path, &json);
    }
    real
}

/// Memory's bandwidth is measured on all CPUs, and again by each run if others used them. From ceilings of as many
/// threads, the file that keeps it is made where it is missing, or of another machine.
fn keep_memory(path: &Path, ceilings: &Value) {
    if ceilings["identity"]["threads"] != threads() {
        return;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let memory = path.with_file_name(name.replace("ceilings-", "memory-"));
    if memory.exists() && read(&memory)["identity"] == ceilings["identity"] {
        return;
    }
    let value = &ceilings["value"];
    let reading = json!({
        "when": "kept",
        "measured": value["measured"],
        "read_bytes_per_second": value["read_bytes_per_second"],
    });
    // Two that agree are the roof, whatever a disturbed one says later.
    let readings = json!({ "readings": [reading, reading] });
    let identity = &ceilings["identity"];
    write(&memory, &json!({ "identity": identity, "others_share": 0.0, "value": readings }));
}

/// The number of threads that the command runs by default.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("JSON")
}

/// Writes a file at once, since a command may read it meanwhile.
fn write(path: &Path, json: &Value) {
    let part = path.with_extension(format!("{}.partial", std::process::id()));
    fs::write(&part, json.to_string()).expect("written");
    fs::rename(part, path).expect("renamed");
}

/// A field that the command doesn't know, and ignores.
const RAISED: &str = "raised_by_the_tests";

/// A thread with higher ceilings is refused as one of no CPU.
const MOST_OF_A_THREAD: f64 = 1.9e12;

fn raise(value: &mut Value, times: f64, most: f64) {
    for rate in ["read_bytes_per_second", "flops_per_second", "int8_ops_per_second"] {
        if let Some(number) = value[rate].as_f64() {
            value[rate] = (times * number).min(most).max(number).into();
        }
    }
    for cache in value["caches"].as_array_mut().into_iter().flatten() {
        raise(cache, times, most);
    }
}
