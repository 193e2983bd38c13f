//! Files that never end, are too large, or are no files: each command refuses them by name, and at once.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

/// Runs a command with this much address space, in KiB, and a minute of CPU time.
fn bounded(memory: u32, words: &[&str]) -> Output {
    let direct = brickscope(words);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {memory}; ulimit -t 60; exec \"$0\" \"$@\""));
    command.arg(direct.get_program()).args(words).stdin(Stdio::null());
    command.output().expect("the command starts")
}

/// What a command says that must fail in good order, and not by taking all memory that it gets.
fn refusal(words: &[&str]) -> String {
    let output = bounded(3_000_000, words);
    let said = text(&output.stderr).to_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {}: {said}", output.status);
    assert!(!said.contains("Usage: "), "{words:?}: {said}");
    assert!(!said.contains("panicked") && !said.contains("memory allocation"), "{words:?}: {said}");
    said
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models").join(name)
}

/// A folder for each kind of file that a run has, in which that file is `/dev/zero`.
struct Endless {
    dir: TempDir,
}

impl Endless {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        for file in ["profile.json", "receipt.json", "samples.json", "flamegraph.json", "x.json"] {
            let folder = dir.path().join(file.split('.').next().expect("a name"));
            std::fs::create_dir(&folder).expect("a folder");
            symlink("/dev/zero", folder.join(file)).expect("a link");
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("UTF-8").to_owned()
    }
}

#[test]
fn a_device_that_never_ends_is_refused_by_every_command_that_reads() {
    let endless = Endless::new();
    let model = fixture("tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    let [profile, receipt, flamegraph] =
        ["profile", "receipt", "flamegraph"].map(|name| endless.path(name));
    let [profile, receipt, flamegraph] = [&profile, &receipt, &flamegraph].map(String::as_str);
    let own = endless.path("profile/profile.json");
    let other = endless.path("x/x.json");
    let out = endless.path("out");
    let baseline = endless.path("baseline");
    for words in [
        &["show", profile][..],
        &["show", &own],
        &["show", "/dev/zero"],
        &["report", profile, "--output", &out],
        &["report", profile, "/dev/zero", "--output", &out],
        &["export", profile, "--format", "chrome"],
        &["compare", profile, profile],
        &["compare", &own, &own],
        &["compare", receipt, receipt],
        &["compare", "/dev/zero", "/dev/zero"],
        &["gate", "--baseline", receipt, "/dev/zero"],
        &["gate", "--baseline", &baseline, "--update", "/dev/zero"],
        &["gate", "--baseline", &baseline, "--update", profile],
        &["verify-receipt", receipt],
        &["verify-receipt", "/dev/zero"],
        &["receipt", "sign", "/dev/zero", "--key", "/dev/zero"],
        &["history", profile],
        &["history", receipt],
        &["history", flamegraph],
        &["history", "/dev/zero"],
        &["import", "/dev/zero", "--out", &out],
        &["import", &other, "--format", "folded", "--unit", "ns", "--out", &out],
        &["flamegraph", profile, "--out", &out],
        &["flamegraph", &own, "--out", &out],
        &["flamegraph", "/dev/zero", "--out", &out],
        &["flamegraph", profile, "--diff", "/dev/zero", "--out", &out],
        &["flamegraph", profile, "--diff", &other, "--out", &out],
        &["flamegraph", profile, "--diff", flamegraph, "--out", &out],
        &["diverge", "/dev/zero"],
        &["diverge", model, "--b-model", "/dev/zero"],
        &["profile", "/dev/zero", "--out", &out],
        &["tokenize", "/dev/zero", "text"],
    ] {
        let said = refusal(words);
        let is_named = ["/dev/zero", profile, receipt, flamegraph, &other]
            .iter()
            .any(|name| said.contains(*name));
        assert!(is_named, "{words:?}: {said}");
    }
    let said = refusal(&["show", profile]);
    assert_eq!(said, format!("brickscope: {own}: it is a device, not a file\n"));
    assert!(!Path::new(&out).exists() || std::fs::read_dir(&out).expect("it").next().is_none());
    assert!(!Path::new(&baseline).exists());
}

#[test]
fn a_model_that_never_ends_is_not_hashed() {
    let receipt = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/receipt-v1.json");
    let receipt = receipt.to_str().expect("UTF-8");
    let said = refusal(&["verify-receipt", receipt, "--model", "/dev/zero"]);
    assert!(said.contains("/dev/zero: it is a device, not a file"), "{said}");
}

#[test]
fn pipes_without_a_writer_sockets_and_folders_in_a_run_are_refused() {
    let dir = TempDir::new().expect("a temporary folder");
    let folder = dir.path().to_str().expect("UTF-8");
    let file = dir.path().join("profile.json");
    let refused = |what: &str| {
        let said = refusal(&["show", folder]);
        assert_eq!(said, format!("brickscope: {}: it is a {what}, not a file\n", file.display()));
        refusal(&["compare", folder, folder]);
    };
    run(Command::new("mkfifo").arg(&file));
    refused("pipe");
    std::fs::remove_file(&file).expect("it is ours");
    let listener = UnixListener::bind(&file).expect("a socket");
    refused("socket");
    drop(listener);
    std::fs::remove_file(&file).expect("it is ours");
    std::fs::create_dir(&file).expect("a folder");
    refused("folder");
}

#[test]
fn files_that_state_too_much_are_not_read() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    for name in ["profile.json", "receipt.json", "samples.json", "stacks.folded"] {
        // A hole, which takes no disk; reading it would take more memory than there is.
        File::create(path(name)).and_then(|file| file.set_len(1 << 40)).expect("a file");
    }
    let folder = dir.path().to_str().expect("UTF-8");
    for (words, name, limit) in [
        (&["show", folder][..], "profile.json", "1 GiB, the most that is read: run fewer tokens"),
        (&["verify-receipt", folder], "receipt.json", "16777216 bytes"),
        (&["flamegraph", folder], "samples.json", "1 GiB, the most that is read: sample for"),
        (&["import", &path("stacks.folded")], "stacks.folded", "1 GiB, the most that is read: "),
        (
            &["flamegraph", &path("profile.json"), "--diff", &path("stacks.folded")],
            "stacks.folded",
            "1 GiB, the most that is read: leave out",
        ),
    ] {
        let said = refusal(words);
        assert!(said.contains(&path(name)) && said.contains(limit), "{words:?}: {said}");
    }
}

#[test]
fn a_pipe_of_the_shell_is_read_as_a_file_is() {
    let dir = TempDir::new().expect("a temporary folder");
    let stacks = dir.path().join("stacks.folded");
    // More than what tells the kinds of files apart, and than a pipe holds.
    let lines: String = (0..5_000).map(|nth| format!("main;f{nth};leaf_of_it 1\n")).collect();
    std::fs::write(&stacks, &lines).expect("written");
    let out = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let program = brickscope(&[]).get_program().to_owned();
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("B", &program).env("S", &stacks).env("D", dir.path());
        text(&run(&mut command).stdout).to_owned()
    };
    shell("\"$B\" flamegraph <(cat \"$S\") --out \"$D/graph\"");
    let mut written: Vec<String> = std::fs::read_to_string(out("graph/flamegraph.folded"))
        .expect("it is written")
        .lines()
        .map(str::to_owned)
        .collect();
    written.sort();
    let mut given: Vec<&str> = lines.lines().collect();
    given.sort_unstable();
    assert!(written == given, "{} of {} stacks", written.len(), given.len());
    shell("\"$B\" import <(gzip -c \"$S\") --unit ns --out \"$D/run\"");
    let shown = shell("\"$B\" show <(cat \"$D/run/profile.json\") --as json | head -c 20");
    assert!(shown.starts_with('{'), "{shown}");
    shell("\"$B\" show /dev/stdin --as json < \"$D/run/profile.json\" > /dev/null");
    shell("cat \"$D/run/profile.json\" | \"$B\" show /dev/stdin --as json > /dev/null");
}

#[test]
fn fifty_thousand_stacks_without_a_common_beginning_are_drawn_in_little_memory() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let mut state = 1_u64;
    let mut lines = String::new();
    for _ in 0..50_000 {
        for _ in 0..20 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            lines += &format!("f{};", (state >> 33) % 2_000);
        }
        lines.pop();
        lines += " 3\n";
    }
    std::fs::write(path("stacks.folded"), lines).expect("written");
    // The program itself takes 50 MB. Each stack takes a twentieth of a tree's nodes for all of its frames.
    for words in [
        &["flamegraph", &path("stacks.folded"), "--out", &path("graph")][..],
        &["import", &path("stacks.folded"), "--unit", "samples", "--out", &path("run")],
    ] {
        let output = bounded(160_000, words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    }
    let graph = std::fs::read_to_string(path("graph/flamegraph.svg")).expect("it is drawn");
    assert!(graph.contains("narrower than 0.01 %"), "most frames are too narrow");
}
