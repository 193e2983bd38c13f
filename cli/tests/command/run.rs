//! `brickscope run`, on a program that has llama.cpp's functions without its computations.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod experts;
mod when;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use brickscope::{BrickCategory, PairedRatio, Phase, Profile, Total};
use brickscope_testing::command;
use brickscope_testing::patience::skipped;
use tempfile::TempDir;

/// The programs: `loads` loads shared libraries, `other` one with other tensors, `old` one that lacks a function, `whole`
/// has all of it.
pub(crate) fn programs() -> &'static Path {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    let dir = BUILT.get_or_init(|| {
        // A static is never dropped, so the folder stays; it is Cargo's own.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/llama.c");
        let compile = |out: &str, flags: &[&str]| {
            let out = dir.path().join(out);
            std::fs::create_dir_all(out.parent().expect("a folder")).expect("it can be made");
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(&out).args(flags);
            assert!(cc.status().expect("cc, which links Rust, too").success(), "{cc:?}");
        };
        for (folder, layout) in [
            ("good", "-DTHIS_LAYOUT"),
            ("other", "-DOTHER_LAYOUT"),
            ("old", "-DOLD"),
            ("serves", "-DSERVES"),
        ] {
            let at = dir.path().join(folder).display().to_string();
            let search = ["-L", &at, &format!("-Wl,-rpath,{at}")].map(str::to_owned);
            let library = |name: &str, part: &str, needs: &[&str]| {
                let mut flags = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", layout, part];
                flags.extend(search.iter().map(String::as_str));
                flags.extend(needs);
                compile(&format!("{folder}/{name}"), &flags);
            };
            library("libggml-base.so", "-DBASE", &[]);
            library("libggml-cpu.so", "-DCPU", &["-lggml-base"]);
            library("libllama.so", "-DLLAMA", &["-lggml-cpu", "-lggml-base"]);
            let rpath = format!("-Wl,-rpath,{at}");
            compile(&format!("{folder}/loads"), &["-DPROGRAM", layout, &rpath, "-ldl"]);
        }
        // As wheels and packages of npm have them: all in one, or under other names.
        let all = ["-shared", "-fPIC", "-DTHIS_LAYOUT", "-DBASE", "-DCPU", "-DLLAMA"];
        compile("module.so", &all);
        compile("llamamodel-mainline.so", &all);
        for nth in 0..12 {
            let copy = dir.path().join(format!("module-{nth}.so"));
            std::fs::copy(dir.path().join("module.so"), copy).expect("a copy");
        }
        compile("other.so", &["-shared", "-fPIC", "-DOTHER_LAYOUT", "-DBASE", "-DCPU", "-DLLAMA"]);
        let at = dir.path().display().to_string();
        let beside = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-L", &at, "-Wl,-rpath,$ORIGIN"];
        for (name, part, needs) in [
            ("libggml-base-319ad4fb.so.0.13.1", "-DBASE", &[][..]),
            ("libggml-cpu-0b5e5db1.so", "-DCPU", &["-l:libggml-base-319ad4fb.so.0.13.1"]),
            (
                "llama-addon.node",
                "-DLLAMA",
                &["-l:libggml-cpu-0b5e5db1.so", "-l:libggml-base-319ad4fb.so.0.13.1"],
            ),
        ] {
            compile(name, &[&beside[..], &[part], needs].concat());
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/packages.c");
        let good = dir.path().join("good").display().to_string();
        for (name, more) in [
            ("packages", &[][..]),
            ("packages-lazy", &["-DLINKED", "-Wl,-z,lazy"]),
            ("packages-now", &["-DLINKED", "-Wl,-z,now", "-Wl,-z,relro"]),
            ("packages-no-plt", &["-DLINKED", "-fno-plt"]),
        ] {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", source, "-o"])
                .arg(dir.path().join(name))
                .args(more);
            if !more.is_empty() {
                cc.args(["-L", &good, &format!("-Wl,-rpath,{good}"), "-lllama", "-lggml-cpu"]);
                cc.arg("-lggml-base");
            }
            cc.arg("-ldl");
            assert!(cc.status().expect("cc").success(), "{cc:?}");
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/serve/server.c");
        let serves = dir.path().join("serves").display().to_string();
        let rpath = format!("-Wl,-rpath,{serves}");
        for (name, flags) in [
            ("server", &["-U_FORTIFY_SOURCE"][..]),
            ("server-ext", &["-DEXT", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]),
        ] {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(format!("{serves}/{name}"));
            cc.args(flags).args(["-L", &serves, &rpath, "-lllama", "-pthread"]);
            assert!(cc.status().expect("cc").success(), "{cc:?}");
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/serve/parent.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(format!("{serves}/parent"));
        assert!(cc.status().expect("cc").success(), "{cc:?}");
        let whole = ["-DPROGRAM", "-DWHOLE", "-DBASE", "-DCPU", "-DLLAMA", "-ldl"];
        compile("whole", &whole);
        dir
    });
    dir.path()
}

struct Ran {
    output: Output,
    run: PathBuf,
    _dir: TempDir,
}

impl Ran {
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The same without the ends of lines, between any words of which there may be one.
    fn said(&self) -> String {
        self.stderr().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn profile(&self) -> Profile {
        let profile = Profile::load(&self.run.join("profile.json"));
        profile.unwrap_or_else(|why| panic!("{why}\n{}", self.stderr()))
    }
}

pub(crate) fn command(
    program: &str,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Command, PathBuf, TempDir) {
    command_of(&[], program, args, environment)
}

pub(crate) fn command_of(
    options: &[&str],
    program: &str,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Command, PathBuf, TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let mut command = Command::new(command::program());
    command.arg("run").args(options).arg("--out").arg(&run).arg("--");
    command.arg(programs().join(program)).args(args).envs(environment.iter().copied());
    // So that nothing is left of a recording that failed.
    command.env("TMPDIR", dir.path()).env("BRICKSCOPE_CACHE", command::cache());
    command.stdin(Stdio::null());
    (command, run, dir)
}

fn run(program: &str, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let (mut command, run, _dir) = command(program, args, environment);
    Ran { output: command.output().expect("it starts"), run, _dir }
}

/// The program as it runs by itself, once for all tests that read its run.
fn as_it_is() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| run("good/loads", &[], &[]))
}

fn total<'p>(profile: &'p Profile, phase: Phase, name: &str) -> &'p Total {
    let is_it = |total: &&Total| total.phase == Some(phase) && total.stats.name == name;
    profile.totals.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {phase}"))
}

/// What of ours is in an environment, as `env` prints it.
fn ours(environment: &str) -> Vec<&str> {
    let names = ["LD_PRELOAD", "BRICKSCOPE_RECORD", "BRICKSCOPE_SHARES", "BRICKSCOPE_TURNS"];
    let name = |line: &&str| line.split('=').next().is_some_and(|name| names.contains(&name));
    environment.lines().filter(name).collect()
}

#[test]
fn a_program_and_what_it_starts_have_the_environment_that_they_have_alone() {
    // A program itself; what a shell starts, waits for and leaves running; and one that becomes another one, which gets an
    // environment of its own.
    for line in [
        &["/usr/bin/env"][..],
        &["/bin/sh", "-c", "env; env | cat; (exec env); env &"],
        &["/usr/bin/env", "nice", "-n", "0", "/usr/bin/env"],
        &["/usr/bin/env", "-i", "A=1", "/usr/bin/env"],
    ] {
        let (mut command, _, _dir) = command(line[0], &line[1..], &[]);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.is_empty() && output.status.success(), "{line:?}: {output:?}");
        assert_eq!(ours(&said), [""; 0], "{line:?}");
    }
    // The user's own libraries stay in the list.
    let own = programs().join("good/libggml-base.so");
    let own = own.to_str().expect("a path");
    let (mut command, _, _dir) = command("/usr/bin/env", &[], &[("LD_PRELOAD", own)]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(ours(&said), [format!("LD_PRELOAD={own}")]);
}

#[test]
fn a_program_that_becomes_another_one_is_recorded() {
    let program = programs().join("good/loads");
    let program = program.to_str().expect("a path");
    for before in
        [&["nice", "-n", "0"][..], &["-i"], &["LD_PRELOAD="], &["sh", "-c", "exec \"$0\""]]
    {
        let words: Vec<&str> = before.iter().copied().chain([program]).collect();
        let ran = run("/usr/bin/env", &words, &[]);
        assert!(ran.profile().phase(Phase::Decode).is_some(), "{before:?}: {}", ran.stderr());
    }
}

#[test]
fn what_a_program_starts_is_recorded_where_that_is_asked_for() {
    let program = programs().join("good/loads");
    let line = format!("{}; true", program.display());
    let ran = run("/bin/sh", &["-c", &line], &[]);
    assert_eq!(ran.stdout(), "generated\n");
    assert!(ran.stderr().contains("brickscope run --follow"), "{}", ran.stderr());
    assert!(!ran.run.exists());
    let (mut command, run, _dir) = command_of(&["--follow"], "/bin/sh", &["-c", &line], &[]);
    let ran = Ran { output: command.output().expect("it starts"), run, _dir };
    assert!(ran.profile().phase(Phase::Decode).is_some(), "{}", ran.stderr());
}

#[test]
fn what_is_left_running_loads_no_library_of_another_user() {
    // The environment that a process has which outlives the run.
    let left = "env; env > left &";
    let (mut command, run, _dir) = command_of(&["--follow"], "/bin/sh", &["-c", left], &[]);
    let parent = run.parent().expect("a folder").to_owned();
    let output = command.current_dir(&parent).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |name: &str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(name));
        PathBuf::from(lines.next().unwrap_or_else(|| panic!("no {name}: {said}")))
    };
    let (library, records) = (of("LD_PRELOAD="), of("BRICKSCOPE_RECORD="));
    // What was recorded is gone, and so it is free to make again; the library isn't.
    assert!(!records.exists() && library.is_file(), "{said}");
    let user = std::fs::metadata(&parent).expect("it is there").uid();
    for path in [&*library, library.parent().expect("a folder")] {
        let found = std::fs::symlink_metadata(path).expect("it is there");
        assert_eq!((found.mode() & 0o777, found.uid()), (0o700, user), "{}", path.display());
    }

    // Another user has made the folder again, or made it writable: a program that is left writes nothing there.
    let makes = |mode: u32| {
        std::fs::create_dir(&records).expect("it is free");
        std::fs::set_permissions(&records, PermissionsExt::from_mode(mode)).expect("ours");
        let mut left = Command::new("/bin/true");
        left.env("LD_PRELOAD", &library).env("BRICKSCOPE_RECORD", &records);
        assert!(left.status().expect("it starts").success());
        let written = std::fs::read_dir(&records).expect("it is there").count();
        std::fs::remove_dir_all(&records).expect("it is ours");
        written
    };
    assert_eq!([makes(0o700), makes(0o777)], [1, 0]);
    let link = parent.join("elsewhere");
    std::fs::create_dir(&link).expect("a folder");
    std::os::unix::fs::symlink(&link, &records).expect("a link");
    let mut left = Command::new("/bin/true");
    left.env("LD_PRELOAD", &library).env("BRICKSCOPE_RECORD", &records);
    assert!(left.status().expect("it starts").success());
    assert_eq!(std::fs::read_dir(&link).expect("it is there").count(), 0);
}

#[test]
fn a_library_that_is_removed_in_the_end_is_not_passed_on() {
    // The linker takes no library from such a folder, so it lies among temporary files.
    let of = |options: &[&str]| {
        let (mut command, run, dir) = command_of(options, "good/loads", &[], &[]);
        let spaced = run.parent().expect("a folder").join("a folder");
        std::fs::create_dir(&spaced).expect("a folder");
        command.env("BRICKSCOPE_CACHE", &spaced).env_remove("XDG_RUNTIME_DIR");
        Ran { output: command.output().expect("it starts"), run, _dir: dir }
    };
    let ran = of(&[]);
    assert!(ran.profile().phase(Phase::Decode).is_some(), "{}", ran.stderr());
    let ran = of(&["--follow"]);
    assert_eq!((ran.output.status.code(), &*ran.stdout()), (Some(1), ""), "{}", ran.stderr());
    assert!(ran.stderr().contains("by BRICKSCOPE_CACHE"), "{}", ran.stderr());
}

#[test]
fn each_node_of_an_unmodified_program_is_a_brick_of_its_layer() {
    let ran = as_it_is();
    assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
    // Standard output is the program's.
    assert_eq!(ran.stdout(), "generated\n");
    assert!(ran.stderr().contains("Decode") && ran.stderr().contains("DownProjection"));
    let profile = ran.profile();
    profile.check().expect("it adds up");

    // The first prompt and the first token described their graphs.
    let passes = |phase| profile.phase(phase).map(|of| (of.passes, of.tokens));
    assert_eq!(passes(Phase::Prefill), Some((1, 6)));
    assert_eq!(passes(Phase::Decode), Some((19, 19)));
    assert_eq!(profile.dropped.left_out_passes, 2);
    assert!(ran.stderr().contains("2 passes left out"), "{}", ran.stderr());
    let positions: Vec<u64> = profile.passes.iter().map(|pass| pass.position).collect();
    assert_eq!(positions[..4], [0, 6, 12, 13]);

    // Three matrices of each of two layers follow each other; what computes nothing is no brick.
    let count = |name| total(&profile, Phase::Decode, name).stats.count;
    for (name, each) in [
        ("QkvProjection", 2),
        ("DownProjection", 2),
        ("FlashAttention", 2),
        ("RmsNorm", 3),
        ("Embedding", 1),
        ("LmHead", 1),
    ] {
        assert_eq!(count(name), 19 * each, "{name}");
    }
    assert!(profile.totals.iter().all(|total| total.stats.name != "view"));
    let attention = total(&profile, Phase::Decode, "FlashAttention");
    assert_eq!(attention.category, Some(BrickCategory::Attention));

    // The program waits at least so long in each node, by its own clock.
    let at_least = |name: &str, layer: u16, ns: u64| {
        let is_it = |span: &&brickscope::Span| {
            let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
            named == Some(name) && span.layer == Some(layer)
        };
        let spans: Vec<_> = profile.spans.iter().filter(is_it).collect();
        assert_eq!(spans.len(), 22, "{name} of layer {layer}");
        // The two clocks may differ a little.
        assert!(
            spans.iter().all(|span| span.duration_ns >= ns / 100 * 99),
            "{name} of layer {layer}"
        );
        // Others may hold a node up, but not most of them.
        let mut all: Vec<u64> = spans.iter().map(|span| span.duration_ns).collect();
        all.sort_unstable();
        assert!(all[2] < 2 * ns, "{name} of layer {layer}: {all:?}");
    };
    at_least("DownProjection", 0, 100_000);
    at_least("DownProjection", 1, 400_000);
    at_least("QkvProjection", 0, 120_000);
    at_least("FlashAttention", 1, 60_000);

    let run = profile.run.as_ref().expect("it has one");
    assert_eq!((run.threads, run.prompt_tokens, run.generated_tokens), (2, 12, 20));
    assert!(run.command[0].ends_with("good/loads"), "{:?}", run.command);
}

#[test]
fn nodes_have_the_work_that_their_shapes_state() {
    let profile = as_it_is().profile();
    let span = |name: &str, position: u64| {
        let pass = profile.passes.iter().find(|pass| pass.position == position).expect("a pass");
        let is_it = |span: &&brickscope::Span| {
            let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
            named == Some(name) && span.pass == Some(pass.serial)
        };
        profile.spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name}")).work
    };
    // A row of 64 q8_0 weights takes 68 bytes.
    let down = span("DownProjection", 12);
    assert_eq!((down.elements, down.flops), (64, 2 * 64 * 128));
    let weights = 64 * 128 / 32 * 34;
    let activations = 64 * 4 + 64 * 4;
    assert_eq!(down.bytes, weights + activations);
    // Three matrices in a row.
    let qkv = span("QkvProjection", 12);
    assert_eq!((qkv.flops, qkv.bytes), (3 * 2 * 64 * 64, 3 * (64 * 68 + activations)));
    let embedding = span("Embedding", 6);
    assert_eq!((embedding.elements, embedding.bytes), (6 * 64, 6 * 68 + 6 * 64 * 4));
    // The cache has room for 256 tokens; 13 of them are there, one row of keys and one of values each.
    let attention = span("FlashAttention", 12);
    assert_eq!(attention.bytes, 13 * 2 * 64 * 4 + activations);
    assert_eq!(attention.flops, 13 * 2 * (64 + 64));
    let later = span("FlashAttention", 20);
    assert_eq!(later.flops, 21 * 2 * (64 + 64));
    // Over two layers and 19 tokens, of which the first comes after 13.
    let data = |name| total(&profile, Phase::Decode, name).stats.data;
    let down = data("DownProjection");
    assert_eq!((down.weights, down.activations, down.kv), (38 * weights, 38 * activations, 0));
    // What bytes are is kept in sums only, so without the first pass they are known by its part of all bytes.
    let (seen, looked_at) = (data("FlashAttention").kv, (14..33_u64).sum::<u64>());
    let ratio = seen as f64 / (2 * looked_at * 2 * 64 * 4) as f64;
    assert!((0.99..1.01).contains(&ratio), "{seen}");
}

#[test]
fn threads_work_and_wait_where_that_is_asked_for() {
    let environment = [("THREADS", "1")];
    let without = run("good/loads", &[], &environment).profile();
    assert!(without.shares.is_empty());

    let (mut command, run, _dir) = command_of(&["--shares"], "good/loads", &[], &environment);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    profile.check().expect("it adds up");
    let share = |thread: u32, brick: &str| {
        let is_it = |of: &&brickscope::ThreadShare| {
            (of.thread, of.phase, of.brick.as_str()) == (thread, Phase::Decode, brick)
        };
        profile.shares.iter().find(is_it).unwrap_or_else(|| panic!("{:?}", profile.shares)).share
    };
    let passes = profile.phase(Phase::Decode).expect("it decoded").passes;
    let wall = profile.phase(Phase::Decode).expect("it decoded").wall_ns;
    // What each of the two spins in a pass, in nanoseconds: in two layers, 100 and 400 µs.
    for (thread, least) in [(0, 500_000), (1, 250_000)] {
        let down = share(thread, "DownProjection");
        assert_eq!(down.count, 2 * passes);
        assert!(down.worked_ns >= least / 100 * 99 * passes, "{thread}: {down:?}");
        let of_thread = profile.shares.iter().filter(|of| of.thread == thread);
        let in_decode: u64 = of_thread
            .filter(|of| of.phase == Phase::Decode)
            .map(|of| of.share.worked_ns + of.share.waited_ns)
            .sum();
        assert!(in_decode <= wall, "{in_decode} of {wall}");
    }
    // One waits while the other one works longer, whichever that is while other programs run.
    let waited: u64 = [0, 1].map(|thread| share(thread, "DownProjection").waited_ns).iter().sum();
    assert!(waited >= 100_000 * passes, "{waited} in {passes} passes");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(!report.contains("shares of threads"), "{report}");
}

/// However llama.cpp is packaged, with a second copy beside it or not: each copy computes what it would alone, and what the
/// program prints and ends with is the same.
#[test]
fn a_program_ends_as_it_would_alone_however_llama_is_packaged() {
    let (one, other) = ("module.so", "llamamodel-mainline.so");
    let kinds: Vec<String> = (0..12).map(|nth| format!("module-{nth}.so")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    for (program, how, files) in [
        ("packages", "local", &[one][..]),
        ("packages", "local lazy", &[one]),
        ("packages", "global", &[one]),
        ("packages", "deep", &[one]),
        ("packages", "namespace", &[one]),
        ("packages", "local", &["llama-addon.node"]),
        ("packages", "last", &kinds),
        ("packages", "local", &[one, other]),
        ("packages", "local lazy", &[one, other]),
        // The second one's calls of its own functions go to the first one's, as the linker does it; of another context.
        ("packages", "global", &[one, other]),
        ("packages", "deep", &[one, other]),
        ("packages", "namespace", &[one, other]),
        ("packages", "local", &[one, "llama-addon.node"]),
        ("packages", "local", &[one, "other.so"]),
        ("packages-lazy", "local", &["linked"]),
        ("packages-now", "local", &["linked"]),
        ("packages-no-plt", "local", &["linked"]),
        ("packages-lazy", "local samples", &["linked"]),
        ("packages-now", "local samples", &["linked", other]),
        ("packages-no-plt", "local samples", &["linked"]),
        ("packages-now", "deep", &["linked", one]),
        ("packages-now", "namespace", &[one, "linked"]),
    ] {
        let at = |file: &&str| match *file {
            "linked" => "linked".to_owned(),
            file => programs().join(file).display().to_string(),
        };
        let files: Vec<String> = files.iter().map(at).collect();
        let args: Vec<&str> = [how].into_iter().chain(files.iter().map(String::as_str)).collect();
        let alone = Command::new(programs().join(program)).args(&args).output().expect("it starts");
        assert_eq!(alone.status.code(), Some(5), "{program} {args:?}: {alone:?}");
        for options in [&[][..], &["--shares"]] {
            let (mut command, run, _dir) = command_of(options, program, &args, &[]);
            let output = command.output().expect("it starts");
            let told = String::from_utf8_lossy(&output.stderr);
            let what = format!("{program} {args:?} {options:?}: {told}");
            assert_eq!(output.status.code(), Some(5), "{what}");
            let same = output.stdout == alone.stdout;
            assert!(same, "{what} {:?} {:?}", alone.stdout, output.stdout);
            let profile = Profile::load(&run.join("profile.json"));
            let profile = profile.unwrap_or_else(|why| panic!("{what}: {why}"));
            profile.check().expect("it adds up");
            assert_eq!(profile.passes.len(), 6, "{what}");
            let is_refused = files.iter().any(|file| file.ends_with("other.so"));
            let said = "graphs of other.so: this version of ggml has other tensors";
            assert_eq!(told.contains(said), is_refused, "{what}");
            // The other copy's passes are a run of their own.
            let is_second = files.len() == 2 && !is_refused;
            let second = Profile::load(&run.join("context-2/profile.json")).ok();
            assert_eq!(second.map(|of| of.passes.len()), is_second.then_some(6), "{what}");
        }
    }
}

#[test]
fn what_recording_costs_is_measured_on_every_other_pass() {
    let (mut command, run, _dir) = command_of(&["--check-overhead"], "good/loads", &[], &[]);
    let output = command.output().expect("it runs");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("Recording costs "), "{output:?}");
    assert!(shown.contains(" pairs)"), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("11 passes left out: their nodes were not timed"), "{told}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    profile.check().expect("it adds up");
    // Of 22 passes, and the first of each shape describes its graph.
    assert_eq!(profile.phase(Phase::Decode).expect("it decoded").passes, 9);
    assert!(total(&profile, Phase::Decode, "LmHead").stats.count == 9);
}

/// Whether this is the folder where all programs of a user have their sockets, unless the session has one for them.
fn is_of_sockets(name: &str) -> bool {
    name.strip_prefix("brickscope-").is_some_and(|user| user.parse::<u32>().is_ok())
}

/// Our own engine knows no Gemma.
#[test]
fn what_has_no_room_is_kept_by_its_tail_and_summed_whole() {
    let of = |options: &[&str], decodes: &str| {
        let (mut command, run, dir) =
            command_of(options, "good/loads", &[], &[("DECODES", decodes)]);
        let output = command.output().expect("it starts");
        let left = std::fs::read_dir(run.parent().expect("a folder")).expect("it is there");
        let names = left.map(|entry| entry.expect("it is").file_name());
        let left = names.filter(|name| !is_of_sockets(&name.to_string_lossy())).count();
        let ran = Ran { output, run, _dir: dir };
        assert_eq!(left, 1, "nothing but the run is left: {}", ran.stderr());
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        ran
    };
    // What fits is as it is without.
    let whole = of(&["--keep", "tail"], "20");
    let profile = whole.profile();
    assert_eq!((profile.passes.len(), profile.kept.is_none()), (22, true), "{}", whole.said());
    profile.check().expect("it adds up");
    let ran = of(&["--keep", "tail", "--keep-mib", "1"], "3000");
    let profile = ran.profile();
    profile.check().expect("it adds up");
    let kept = profile.kept.as_ref().unwrap_or_else(|| panic!("it says so: {}", ran.said()));
    let decode = profile.phase(Phase::Decode).expect("it decoded");
    // As without it, those are left out in which graphs were described: the first prompt and the first token.
    assert_eq!((kept.passes, decode.passes, decode.tokens), (3000, 2999, 2999));
    assert_eq!(profile.dropped.warm_up_passes, 2, "{}", ran.said());
    assert_eq!(profile.passes.len() as u64 + profile.dropped.passes, 3000);
    assert_eq!(profile.passes.len() as u64, kept.kept());
    assert!((100..3000).contains(&kept.kept()), "{}", kept.kept());
    let sampled: f64 = kept.weights().values().sum();
    assert!((sampled + kept.slowest as f64 - 3000.0).abs() < 1e-6, "{sampled}");
    // Sums are of all passes, and the slowest is there.
    let walls = kept.walls.iter().find(|of| of.phase == Phase::Decode).expect("it decoded");
    assert_eq!((walls.walls.count, walls.walls.total_ns), (2999, decode.wall_ns));
    let is_decode = |pass: &&brickscope::Pass| pass.phase == Phase::Decode;
    let slowest = profile.passes.iter().filter(is_decode).map(|pass| pass.wall_ns).max();
    assert_eq!(slowest, Some(walls.walls.max_ns));
    let product = |profile: &Profile| {
        let passes = profile.phase(Phase::Decode).expect("it decoded").passes;
        total(profile, Phase::Decode, "DownProjection").stats.count as f64 / passes as f64
    };
    assert_eq!(product(&profile), product(&as_it_is().profile()));
    assert!(ran.said().contains("passes, a sample of") && ran.said().contains("sums: all"));
}

/// As on a full disk: in the first case for all of it, in the second after a while.
#[test]
fn a_program_whose_recording_has_no_room_ends_as_it_would_alone() {
    for kib in [2048, 4096] {
        let dir = tempfile::tempdir().expect("a folder");
        let run = dir.path().join("run");
        let mut command = Command::new(command::program());
        command.args(["run", "--keep", "tail", "--keep-mib", "1", "--out"]).arg(&run);
        command.args(["--", "bash", "-c", &format!("ulimit -f {kib}; exec \"$0\"")]);
        command.arg(programs().join("good/loads")).env("DECODES", "6000");
        command.env("TMPDIR", dir.path()).env("BRICKSCOPE_CACHE", command::cache());
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{kib}: {told}");
        assert_eq!(run.exists(), kib == 4096, "{told}");
        assert!(kib == 4096 || told.contains("nothing was recorded"), "{told}");
    }
}

#[test]
fn a_model_of_any_architecture_is_described_and_held_against_the_machine() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("gemma.gguf");
    let mut bytes = std::fs::read(brickscope_testing::model("tiny-Q8_0")).expect("a model");
    // Its metadata come first.
    for at in 0..bytes.len().min(1 << 16) {
        if bytes[at..].starts_with(b"llama") {
            bytes[at..at + 5].copy_from_slice(b"gemma");
        }
    }
    std::fs::write(&file, bytes).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let opened = brickscope_engine::gguf::Gguf::open(Path::new(file)).expect("a model");
    let weights: u64 = opened.tensors.iter().map(|tensor| tensor.n_elements() as u64).sum();
    let weights = weights.to_string();
    let ran = run("good/loads", &["as ever", file], &[("PARAMETERS", &weights)]);
    let profile = ran.profile();
    let model = profile.model.expect("it is described");
    let said = (&*model.architecture, &*model.quantization, model.layers, model.embedding_length);
    assert_eq!(said, ("gemma", "q8_0", 2, 256));
    assert!(model.parameters > 1_000_000 && !model.weights.is_empty());
    assert!(profile.ceilings.is_some(), "{:?}", profile.ceilings_absent);
    let other = run("good/loads", &[], &[]).profile();
    // A file with other weights isn't the model's: without one there is what llama.cpp told.
    let unlike =
        run("good/loads", &["as ever", file], &[]).profile().model.expect("llama.cpp told");
    assert_eq!((unlike.name.as_deref(), &*unlike.path), (Some("target"), ""));
    let told = other.model.expect("llama.cpp told");
    assert_eq!((told.name.as_deref(), told.parameters, &*told.path), (Some("target"), 7000, ""));
    assert!(other.ceilings.is_some(), "{:?}", other.ceilings_absent);
}

/// As whisper.cpp's: the model's file has the names, by the numbers.
#[test]
fn weights_without_a_name_get_that_which_the_file_has() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("model.bin");
    let ints = |of: &[u32]| of.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    let mut bytes = ints(&[0x6767_6d6c, 9, 1500, 64, 6, 0, 448, 64, 6, 2, 80, 7, 0, 0, 0]);
    // The first is the embedding; then each layer has a norm, Q, K, V, and the second product.
    for (nth, role) in [(2, "0.attn.query"), (8, "1.attn.key"), (10, "1.mlp.2")] {
        let name = format!("decoder.blocks.{role}.weight");
        let columns = if role.ends_with("mlp.2") { 128 } else { 64 };
        bytes.extend(ints(&[2, name.len() as u32, 8, columns, 64]));
        bytes.extend(name.bytes());
        bytes.extend((0..64 * columns * 34 / 32).map(|i| (7 * nth + i) as u8));
    }
    std::fs::write(&file, bytes).expect("a folder of ours");
    let unnamed = [("UNNAMED", "1")];
    let profile =
        run("good/loads", &["as ever", file.to_str().expect("UTF-8")], &unnamed).profile();
    let count = |profile: &Profile, name: &str| {
        let found = profile.totals.iter().find(|of| {
            of.phase == Some(Phase::Decode)
                && of.kind == brickscope::NameKind::Brick
                && of.stats.name == name
        });
        found.map_or(0, |of| of.stats.count)
    };
    // Two of six and one of two; next to each other they are one.
    assert_eq!((count(&profile, "QkvProjection"), count(&profile, "DownProjection")), (38, 19));
    let without = run("good/loads", &[], &unnamed).profile();
    assert_eq!((count(&without, "QkvProjection"), count(&without, "DownProjection")), (0, 0));
    assert!(count(&without, "MatMul") > 0);
}

/// A draft model and the model that checks what it wrote.
#[test]
fn each_context_of_a_process_is_a_run_of_its_own() {
    let ran = run("good/loads", &["draft"], &[]);
    let profile = ran.profile();
    profile.check().expect("it adds up");
    let recorded = profile.run.as_ref().expect("it is described");
    let engine = recorded.engine.as_ref().expect("llama.cpp told");
    let told = (engine.context_tokens, engine.micro_batch_tokens, &engine.library);
    assert_eq!(told, (Some(4096), Some(512), &Some("libggml-cpu.so".to_owned())));
    assert_eq!(engine.cache_keys.as_deref(), Some("f32"));
    let [beside] = &recorded.beside[..] else { panic!("{:?}", recorded.beside) };
    assert_eq!((&*beside.name, &*beside.folder), ("draft", "context-2"));
    let draft = Profile::load(&ran.run.join("context-2/profile.json")).expect("it is there");
    draft.check().expect("it adds up");
    let tokens = |profile: &Profile, phase| profile.phase(phase).map(|of| of.tokens);
    // Of each shape the first warms up: of two prompts, of five checks of four tokens, of fifteen tokens. The draft's graphs
    // of a token are like the other's, so these have been described.
    assert_eq!(tokens(&profile, Phase::Prefill), Some(6 + 4 * 4));
    assert_eq!(tokens(&profile, Phase::Decode), Some(20));
    assert_eq!(tokens(&draft, Phase::Prefill), Some(6));
    assert_eq!(tokens(&draft, Phase::Decode), Some(14));
    assert_eq!(draft.model.and_then(|of| of.name).as_deref(), Some("draft"));
    let screen = ran.stderr();
    assert!(screen.contains("Beside: context-2: draft, prefill "), "{screen}");
}

#[test]
fn the_time_between_passes_has_names_where_the_program_calls_llama_for_it() {
    let ran = run("packages-lazy", &["samples", "linked"], &[]);
    assert_eq!(ran.output.status.code(), Some(5), "{}", ran.stderr());
    let profile = ran.profile();
    let between = profile.run.and_then(|run| run.between).expect("it decoded");
    assert_eq!((between.passes, between.tokens), (3, 3), "the first of four warms up");
    let calls: Vec<_> = between.calls.iter().map(|of| (&*of.name, of.calls)).collect();
    // The text that sampling asks for on the way is a part of that, and a grammar in it is not.
    assert_eq!(calls, [("sampling", 6), ("grammar", 3), ("making text", 3)]);
    let least = [600_000, 300_000, 300_000];
    assert!(between.calls.iter().zip(least).all(|(of, least)| of.ns >= least), "{between:?}");
    let in_calls: u64 = between.calls.iter().map(|of| of.ns).sum();
    assert_eq!(between.rest_ns(), between.between_ns - in_calls);
    let full = Command::new(command::program()).args(["show", "--full"]).arg(&ran.run).output();
    let full = String::from_utf8(full.expect("it runs").stdout).expect("UTF-8");
    assert!(full.contains("\nmaking text ") && full.contains("\ngrammar "), "{full}");
    let screen = ran.said();
    assert!(screen.contains("with the time between them"), "{screen}");
    // Who asks the linker for the functions, as ctypes does, calls them unseen.
    let unseen = as_it_is().profile().run.and_then(|run| run.between).expect("it decoded");
    assert_eq!((unseen.passes, unseen.calls.len()), (19, 0));
}

#[test]
fn what_a_pass_does_besides_its_graphs_has_bricks() {
    let profile = as_it_is().profile();
    let alloc = &total(&profile, Phase::Decode, "AllocGraph").stats;
    assert_eq!(alloc.count, 19);
    assert!(alloc.min_ns >= 70_000, "{alloc:?}");
    profile.check().expect("it adds up");
}

/// A C++ exception goes through what stands in the place of a method.
#[test]
fn an_exception_of_the_program_reaches_who_catches_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = dir.path().join("throws.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/throws.cpp");
    let compiled =
        Command::new("g++").args(["-shared", "-fPIC", source, "-o"]).arg(&library).status();
    let Ok(status) = compiled else { return skipped("no g++") };
    assert!(status.success());
    let args = ["local", library.to_str().expect("UTF-8")];
    let (mut command, run, _dir) = command_of(&[], "packages", &args, &[]);
    let output = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert_eq!(output.stdout, b"copy 0: 7\n", "{told}");
    assert!(told.contains("no pass of the program could be read") || !run.exists(), "{told}");
}

/// The time of the spans of a brick in a layer.
fn durations(profile: &Profile, name: &str, layer: u16) -> Vec<u64> {
    let is_it = |span: &&brickscope::Span| {
        let named = span.name.map(|name| profile.names[usize::from(name)].name.as_str());
        named == Some(name) && span.layer == Some(layer)
    };
    profile.spans.iter().filter(is_it).map(|span| span.duration_ns).collect()
}

/// Asserts that passes whose nodes run one at a time take more than a fifth longer. They take a millisecond, and wait for a
/// CPU ten times as long if others are on it: then there are more of them, until it is sure.
fn costs_a_fifth(gpu: &str, mut cost: PairedRatio) {
    for decodes in ["264", "1056", "4224", "16896"] {
        if cost.estimate > 0.2 {
            return;
        }
        assert!(cost.high >= 0.2, "{cost:?}");
        let profile = run("good/loads", &[], &[("GPU", gpu), ("DECODES", decodes)]).profile();
        let decode = profile.serialised(Phase::Decode).expect("its nodes were");
        cost = decode.cost.expect("there were enough pairs");
    }
    if cost.estimate <= 0.2 {
        skipped(&format!("others disturbed too many of 16 896 passes: {cost:?}"));
    }
}

#[test]
fn nodes_of_a_gpu_are_timed_one_at_a_time_in_turns() {
    // The second one must be asked for an answer: to wait for it tells nothing.
    for gpu in ["GPU0", "RPC0[127.0.0.1:50052]"] {
        let ran = run("good/loads", &[], &[("GPU", gpu), ("DECODES", "66")]);
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        let profile = ran.profile();
        profile.check().expect("it adds up");
        assert_eq!(profile.sync_mode, brickscope::SyncMode::Immediate);
        assert_eq!(
            profile.run.as_ref().expect("it has one").backend,
            format!("llama.cpp, CPU and {gpu}")
        );

        // Two of eight; the first one describes its graph.
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(17));
        let decode = profile.serialised(Phase::Decode).expect("its nodes were");
        assert_eq!((&decode.devices[..], decode.whole_passes), (&[gpu.to_owned()][..], 24));
        assert_eq!(decode.whole_tokens, 24);
        let prefill = profile.serialised(Phase::Prefill).expect("its nodes were");
        assert_eq!((prefill.whole_passes, prefill.whole_p50_ns), (0, None));
        assert!(prefill.cost.is_none() && prefill.cost_absent.is_some());

        // The GPU takes half the time of what it is told at once, and the pass lasts until it has done it.
        let whole = decode.whole_p50_ns.expect("there were some");
        assert!(whole >= 600_000, "{whole}");
        let cost = decode.cost.expect("there were enough pairs");
        assert_eq!(cost.pairs, 16);
        costs_a_fifth(gpu, cost);

        // Each node takes its time, on either side.
        for (name, layer, ns) in [
            ("DownProjection", 0, 100_000),
            ("DownProjection", 1, 400_000),
            ("QkvProjection", 1, 120_000),
        ] {
            let all = durations(&profile, name, layer);
            // Of both phases, with the ones that are left out.
            assert_eq!(all.len(), 20, "{name}");
            assert!(all.iter().all(|&took| took >= ns / 100 * 99), "{name}: {all:?}");
        }
        let kernel = |name: &str| profile.names.iter().any(|of| of.name == name);
        assert!(kernel("get_rows_q8_0") && kernel(&format!("mul_mat_q8_0 on {gpu}")));
        assert!(!kernel(&format!("view on {gpu}")), "it computes nothing");

        // The roof is the CPU's.
        let why = brickscope_analysis::roofline::Roofline::of(&profile, Phase::Decode);
        assert!(why.is_err_and(|why| why.reason.contains(gpu)));
        let screen = ran.stderr();
        for said in ["ran one at a time", "no roof is known for"] {
            assert!(screen.contains(said) && screen.contains(gpu), "{screen}");
        }
    }
}

#[test]
fn a_graph_in_part_on_a_gpu_has_all_nodes() {
    let ran = run("good/loads", &[], &[("GPU", "GPU0"), ("MIXED", "1")]);
    let profile = ran.profile();
    profile.check().expect("it adds up");
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(5), "{}", ran.stderr());
    let count = |name| total(&profile, Phase::Decode, name).stats.count;
    for (name, each) in [
        ("QkvProjection", 2),
        ("DownProjection", 2),
        ("FlashAttention", 2),
        ("Embedding", 1),
        ("LmHead", 1),
    ] {
        assert_eq!(count(name), 5 * each, "{name}");
    }
    let kernel = |name: &str| profile.names.iter().any(|of| of.name == name);
    // The CPU computes a norm and its product as one, as ever.
    assert!(kernel("rms_norm_mul") && kernel("mul_mat_q8_0") && kernel("mul_mat_q8_0 on GPU0"));
    assert!(durations(&profile, "DownProjection", 1).iter().all(|&took| took >= 396_000));
}

#[test]
fn a_scheduler_whose_nodes_are_the_cpus_is_left_alone() {
    let profile = run("good/loads", &[], &[("GPU", "GPU0"), ("ALL_CPU", "1")]).profile();
    assert!(profile.serialised.is_empty());
    assert_eq!(profile.sync_mode, brickscope::SyncMode::Deferred);
    assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(19));
    assert_eq!(profile.run.expect("it has one").backend, "llama.cpp, CPU");
}

#[test]
fn what_can_not_be_timed_on_a_gpu_is_said() {
    for (program, more, said) in [
        ("good/loads", "OWN_CALLBACK", "the program has a callback of its own for nodes"),
        ("old/loads", "", "ggml's ggml_backend_sched_get_n_splits isn't there"),
    ] {
        let ran = run(
            program,
            &[],
            &[("GPU", "GPU0"), ("MIXED", "1"), (if more.is_empty() { "NONE" } else { more }, "1")],
        );
        assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
        assert!(ran.said().contains(said), "{}", ran.stderr());
        assert_eq!(
            ran.stdout().contains("own callback with 7\n"),
            !more.is_empty(),
            "{}",
            ran.stdout()
        );
        // The CPU's nodes are there, and the rest isn't.
        let profile = ran.profile();
        profile.check().expect("it adds up");
        assert!(profile.serialised.is_empty());
        assert!(profile.names.iter().any(|of| of.name == "mul_mat_q8_0"));
        assert!(profile.totals.iter().all(|total| total.stats.name != "LmHead"));
        // Such passes can't be held against the CPU's limits. Where ggml doesn't say that there are such nodes, they are.
        let reason = profile.ceilings_absent.map(|absent| absent.reason).unwrap_or_default();
        assert_eq!(reason.contains("that were not timed"), !more.is_empty(), "{reason}");
    }
    // Whoever else calls back is told no, and what is timed is right.
    let ran = run("good/loads", &[], &[("GPU", "GPU0"), ("OTHER_THREAD", "1")]);
    assert!(ran.stderr().contains("on another thread"), "{}", ran.stderr());
    let profile = ran.profile();
    profile.check().expect("it adds up");
    assert_eq!(total(&profile, Phase::Decode, "LmHead").stats.count, 5);
}

#[test]
fn the_cost_of_recording_is_measured_where_a_gpu_computes_too() {
    let (mut command, run, _dir) =
        command_of(&["--check-overhead"], "good/loads", &[], &[("GPU", "GPU0")]);
    let output = command.output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Recording costs "), "{output:?}");
    let profile = Profile::load(&run.join("profile.json")).expect("a profile");
    let decode = profile.serialised(Phase::Decode).expect("its nodes were");
    assert!(decode.whole_passes >= 9 && decode.cost.is_some(), "{decode:?}");
}

#[test]
fn a_program_that_dies_leaves_what_it_recorded() {
    for (how, signal) in [("crash", 6), ("kill", 9)] {
        let ran = run("good/loads", &[how], &[]);
        assert_eq!(ran.output.status.code(), Some(128 + signal), "{}", ran.stderr());
        let profile = ran.profile();
        assert_eq!(profile.phase(Phase::Decode).map(|of| of.passes), Some(19), "{how}");
        let cut_short = profile.run.and_then(|run| run.cut_short).unwrap_or_default();
        assert!(cut_short.contains("signal"), "{how}: {cut_short}");
    }
}

#[test]
fn the_exit_code_is_the_programs() {
    let ran = run("good/loads", &["fail"], &[]);
    assert_eq!(ran.output.status.code(), Some(3), "{}", ran.stderr());
    assert_eq!(ran.profile().passes.len(), 22);
}

#[test]
fn a_process_that_becomes_another_program_is_recorded_in_both() {
    let ran = run("good/loads", &["exec"], &[]);
    assert_eq!(ran.output.status.code(), Some(3), "{}", ran.stderr());
    assert_eq!(ran.stdout(), "generated\ngenerated\n");
    assert_eq!(ran.profile().passes.len(), 22);
    assert!(ran.stderr().contains("1 process more recorded passes"), "{}", ran.stderr());
    let other = Profile::load(&ran.run.join("context-2/profile.json")).expect("it is there");
    assert_eq!(other.passes.len(), 22);
}

#[test]
fn sigterm_ends_the_program_and_is_reported() {
    let (mut command, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut line = [0; 10];
    stdout.read_exact(&mut line).expect("it says that it has generated");
    let kill = Command::new("kill").arg(child.id().to_string()).status().expect("kill");
    assert!(kill.success());
    let mut rest = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut rest).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert!(rest.contains("Decode"), "{rest}");
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
}

/// Starts a run whose program has computed all and waits.
fn waiting() -> (std::process::Child, PathBuf, TempDir) {
    let (mut command, run, dir) = command("good/loads", &["wait"], &[]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = [0; 10];
    let stdout = child.stdout.as_mut().expect("it is piped");
    stdout.read_exact(&mut line).expect("it says that it has generated");
    (child, run, dir)
}

#[test]
fn what_a_killed_run_recorded_is_named_by_the_next_one_and_can_be_reported() {
    let (mut child, run, dir) = waiting();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(!run.exists());
    let recordings = || {
        let entries =
            std::fs::read_dir(dir.path()).expect("it is there").map(|entry| entry.expect("it"));
        let begins = |entry: &std::fs::DirEntry| {
            entry.file_name().to_string_lossy().starts_with("brickscope-tmp-")
        };
        entries.filter(begins).count()
    };
    assert_eq!(recordings(), 1);
    let (mut next, _, _dir) = command("/usr/bin/true", &[], &[]);
    let next = next.env("TMPDIR", dir.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&next.stderr).into_owned();
    assert!(
        said.contains("1 earlier run did not come to the end: `brickscope run --recover`"),
        "{said}"
    );
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let folder = std::env::current_dir().expect("there is one").display().to_string();
    assert!(words.contains(&format!("good/loads wait, in {folder}")), "{said}");
    let recover = || {
        let mut command = Command::new(command::program());
        command.args(["run", "--recover", "--out"]).arg(&run).env("TMPDIR", dir.path());
        // A later one than what was recorded.
        command.env("BRICKSCOPE_COMMIT", "later");
        command.env("BRICKSCOPE_CACHE", command::cache()).output().expect("it starts")
    };
    let recovered = recover();
    let said = String::from_utf8_lossy(&recovered.stderr).into_owned();
    assert_eq!(recovered.status.code(), Some(0), "{said}");
    // A note is cut into lines where the program's path is long.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Decode") && words.contains("good/loads wait"), "{said}");
    let profile = Profile::load(&run.join("profile.json")).expect("it is written");
    assert_eq!(profile.passes.len(), 22);
    // Each has its own time, one after the other, and its nodes have theirs.
    profile.check().expect("it adds up");
    assert!(profile.passes.iter().all(|pass| pass.wall_ns > 0), "{:?}", profile.passes);
    assert!(profile.passes.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
    let product = total(&profile, Phase::Decode, "DownProjection");
    assert!(product.stats.total_ns > 0, "{product:?}");
    let cut_short = profile.run.expect("a run").cut_short.expect("it was");
    assert!(cut_short.contains("brickscope ended before the program"), "{cut_short}");
    assert_ne!(profile.named.and_then(|named| named.commit).as_deref(), Some("later"));
    assert_eq!(recordings(), 0);
    let nothing = recover();
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(nothing.status.code() == Some(1) && said.contains("no earlier run has left"), "{said}");
}

#[test]
fn the_end_of_a_terminal_ends_the_program_and_the_run_is_written() {
    // Also where these tests run by `nohup`, which hands it down that nobody hears of the end.
    let (direct, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child = Command::new("env");
    child.arg("--default-signal=HUP").arg(direct.get_program()).args(direct.get_args());
    child.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = child.stdout(Stdio::piped()).spawn().expect("env, of GNU coreutils");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    let hangup = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert!(hangup.expect("kill").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
    // Who outlives it by `nohup` goes on.
    let (direct, run, _dir) = command("good/loads", &["wait"], &[]);
    let mut child = Command::new("nohup");
    child.arg(direct.get_program()).args(direct.get_args());
    child.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nohup");
    let mut line = [0; 10];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut line).expect("it computes");
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        assert!(signal != "-HUP" || child.try_wait().expect("it is ours").is_none());
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(run.join("profile.json").is_file());
}

/// As a script ends a server: nobody else tells the program.
#[test]
fn sigint_without_a_terminal_ends_the_program_and_is_reported() {
    let (command, run, _dir) = command("good/loads", &["wait"], &[]);
    // In a session of its own there is no terminal.
    let mut alone = Command::new("setsid");
    alone.arg(command.get_program()).args(command.get_args());
    alone.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    alone.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = alone.spawn().expect("setsid, of util-linux");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut line = [0; 10];
    stdout.read_exact(&mut line).expect("it says that it has generated");
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &id]).status().expect("kill");
    assert!(kill.success());
    let mut rest = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert!(rest.contains("Decode"), "{rest}");
    assert_eq!(Profile::load(&run.join("profile.json")).expect("it is written").passes.len(), 22);
}

#[test]
fn the_child_of_a_fork_is_not_recorded() {
    let ran = run("good/loads", &["fork"], &[]);
    assert_eq!(ran.output.status.code(), Some(0), "{}", ran.stderr());
    assert_eq!(ran.profile().passes.len(), 22);
}

#[test]
fn why_nothing_was_recorded_is_said() {
    for (program, args, environment, said) in [
        ("good/loads", &["nothing"][..], &[][..], "it computed no graph of a shared ggml"),
        ("whole", &[], &[], "llama.cpp is part of the program"),
        ("other/loads", &[], &[], "this version of ggml has other tensors than brickscope knows"),
        ("good/loads", &[], &[("ON_A_GPU", "1")], "22 passes not seen: the CPU computed nothing"),
    ] {
        let ran = run(program, args, environment);
        assert_eq!(ran.output.status.code(), Some(0), "{program}: {}", ran.stderr());
        assert!(ran.said().contains(said), "{program} {environment:?}: {}", ran.stderr());
        assert!(!ran.run.exists(), "{program}");
    }
    let ran = run("nowhere", &[], &[]);
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(ran.stderr().contains("can't run") && ran.stderr().contains("nowhere"));
}

#[test]
fn a_program_that_is_not_in_path_or_stands_without_dashes_is_a_mistake_that_is_explained() {
    let run = |words: &[&str]| {
        let mut command = Command::new(command::program());
        let output = command.arg("run").args(words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--", "no-such-llama-bench"]);
    assert!(code == Some(1) && said.contains("It isn't in PATH: give its path"), "{said}");
    let (code, said) = run(&["--", "/no/such/llama-bench"]);
    assert!(code == Some(1) && !said.contains("PATH"), "{said}");
    for words in [&["sh", "-c", "true"][..], &["/bin/sh", "-c", "true"]] {
        let (code, said) = run(words);
        let begin = format!("error: a program comes after `--`: brickscope run -- {} …", words[0]);
        assert!(code == Some(2) && said.starts_with(&begin), "{said}");
    }
}

#[test]
fn passes_that_fail_are_counted_and_left_out() {
    let ran = run("good/loads", &[], &[("FAILS", "1")]);
    assert!(
        ran.stderr().contains("20 passes left out: llama.cpp returned an error"),
        "{}",
        ran.stderr()
    );
    let profile = ran.profile();
    assert_eq!(profile.phase(Phase::Prefill).map(|of| of.passes), Some(1));
    assert!(profile.phase(Phase::Decode).is_none_or(|of| of.passes == 0));
}

#[test]
fn without_a_command_run_is_profile() {
    let dir = tempfile::tempdir().expect("a folder");
    let ran = Command::new(command::program())
        .args(["run", "--model"])
        .arg(dir.path().join("none.gguf"))
        .output()
        .expect("it starts");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("none.gguf"), "{ran:?}");
}
