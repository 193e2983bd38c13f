//! Bad input gets one clear sentence and an exit code, never a panic.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use brickscope::{DeviceError, Profile};
use brickscope_analysis::receipt::Receipt;
use brickscope_engine::{GpuError, gguf, tokenizer};
use brickscope_formats::import;
use brickscope_live::metrics::MetricsError;
use brickscope_live::socket::LiveError;
use brickscope_sampler::perf_data::{PerfDataError, PerfDataFault};
use brickscope_sampler::{perf_event::RecordError, timer::TimerError};
use brickscope_testing::command;
use tempfile::TempDir;

/// Runs a command that must fail, and returns its message.
fn refuse(args: &[&str]) -> String {
    let output = Command::new(command::program()).args(args).output().expect("the command starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!output.status.success(), "{args:?} succeeded");
    assert!(output.stdout.is_empty(), "{args:?} printed a result");
    assert!(!said.contains("panicked"), "{said}");
    says_nothing_twice(&said);
    said
}

/// Asserts that no part of an error of at least two words is in it twice, as when a message contains its cause and the
/// cause is printed behind it, too.
#[track_caller]
fn says_nothing_twice(said: &str) {
    let parts =
        said.split("\n").flat_map(|line| line.split(": ")).flat_map(|part| part.split("; "));
    let mut known = std::collections::HashSet::new();
    for part in parts.map(str::trim).filter(|part| part.contains(' ')) {
        assert!(known.insert(part), "`{part}` is there twice: {said}");
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models").join(name)
}

struct Bench {
    dir: TempDir,
    good: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let good = std::fs::read(fixture("tiny-Q8_0.gguf")).expect("the fixture");
        Self { dir: TempDir::new().expect("a temporary folder"), good }
    }

    /// Profiles a file with these bytes, and returns the message, with the file's name as MODEL.
    fn profile(&self, bytes: &[u8]) -> String {
        let path = self.dir.path().join("model.gguf");
        std::fs::write(&path, bytes).expect("it is written");
        let path = path.to_str().expect("UTF-8");
        let out = self.dir.path().join("run");
        let said = refuse(&["profile", path, "--out", out.to_str().expect("UTF-8")]);
        assert_eq!(said.lines().count(), 1, "{said}");
        said.trim_end().replace(path, "MODEL")
    }

    /// The position of some bytes in the good file.
    fn find(&self, bytes: &[u8]) -> usize {
        let at = self.good.windows(bytes.len()).position(|window| window == bytes);
        at.unwrap_or_else(|| panic!("{} is not there", bytes.escape_ascii()))
    }
}

#[test]
fn files_that_are_not_whole_models() {
    let bench = Bench::new();
    assert_eq!(
        bench.profile(b"PK\x03\x04 something else"),
        "brickscope: MODEL is not a GGUF file: it begins with \"PK\\x03\\x04\" where \"GGUF\" \
         should be (byte 0)"
    );
    let cut = bench.profile(&bench.good[..bench.good.len() - 5_000]);
    assert!(cut.contains("tensor `blk.1.ffn_up.weight` ends at byte"), "{cut}");
    assert!(cut.ends_with("was the download cut short?"), "{cut}");
    let header = bench.profile(&bench.good[..100]);
    assert!(header.contains("MODEL") && header.contains("byte"), "{header}");
}

#[test]
fn a_metadata_array_of_2_to_the_60_entries() {
    let bench = Bench::new();
    let mut bytes = bench.good.clone();
    // The key, its type (array), the elements' type (string), then the count.
    let at = bench.find(b"tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".len() + 8;
    bytes[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let said = bench.profile(&bytes);
    assert!(said.contains("`tokenizer.ggml.tokens`") && said.contains("byte"), "{said}");
}

#[test]
fn a_quantisation_and_an_architecture_that_nobody_knows() {
    let bench = Bench::new();
    let mut bytes = bench.good.clone();
    let name = b"blk.0.attn_q.weight";
    // The name, two dimensions, then the type.
    let at = bench.find(name) + name.len() + 4 + 16;
    bytes[at..at + 4].copy_from_slice(&999u32.to_le_bytes());
    let said = bench.profile(&bytes);
    assert!(said.contains("`blk.0.attn_q.weight`") && said.contains("999"), "{said}");

    let mut bytes = bench.good.clone();
    let at = bench.find(b"general.architecture") + "general.architecture".len() + 4 + 8;
    bytes[at..at + 5].copy_from_slice(b"lemma");
    assert_eq!(
        bench.profile(&bytes),
        "brickscope: MODEL: `general.architecture` is `lemma` (byte 56), but this engine supports \
         llama, qwen2, qwen3, bitnet and bitnet-b1.58"
    );
}

#[test]
fn numbers_that_contradict_one_another() {
    let bench = Bench::new();
    let with = |key: &str, value: u32| {
        let mut bytes = bench.good.clone();
        let at = bench.find(key.as_bytes()) + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bench.profile(&bytes)
    };
    assert!(with("llama.attention.head_count", 0).contains("must be at least 1"));
    assert!(with("llama.attention.head_count_kv", 3).contains("must divide the 4 query heads"));
    assert!(with("llama.rope.dimension_count", 7).contains("must be even"));
    assert!(with("llama.block_count", 3).contains("no tensor `blk.2.attn_norm.weight`"));
    assert!(with("llama.feed_forward_length", u32::MAX).contains("has the shape [256, 768]"));
    assert!(with("llama.embedding_length", 512).contains("token_embd.weight"));
}

#[test]
fn a_prompt_longer_than_the_context_and_an_empty_one() {
    let model = fixture("tiny-Q8_0.gguf");
    let (model, long) = (model.to_str().expect("UTF-8"), "word ".repeat(600));
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let out = out.to_str().expect("UTF-8");
    let said = refuse(&["profile", model, "--prompt", &long, "--out", out]);
    assert!(said.contains("tokens do not fit the context, which has room for 512"), "{said}");
    assert!(said.contains("`llama.context_length`"), "{said}");
    let said = refuse(&["profile", model, "--tokens", "99999999999999", "--out", out]);
    assert!(said.contains("do not fit the context"), "{said}");
    let said = refuse(&["logits", model, "--ids", "1,512", "-o", "never-written"]);
    assert!(said.contains("token 1 of the input is 512, but the vocabulary has 512"), "{said}");
}

#[test]
fn flags_that_make_no_sense() {
    let model = fixture("tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    for (args, says) in [
        (&["--threads", "0"][..], "must be 1 to 1024"),
        (&["--threads", "many"], "`many` is not a number of threads"),
        (&["--backend", "vliw"], "there is no backend `vliw`"),
        (&["--backend", "neon"], "this CPU can't run the neon kernels"),
        (&["--temperature", "-1"], "must be 0 or a number above it"),
        (&["--temperature", "1", "--top-p", "2"], "at most 1"),
        (&["--sync", "sometimes"], "possible values"),
        (&["--check-overhead"], "'--out <DIR>' cannot be used with '--check-overhead'"),
        (&["--overhead-seconds", "3"], "cannot be used with"),
        (&["--overhead-processes", "3"], "cannot be used with"),
    ] {
        let dir = TempDir::new().expect("a temporary folder");
        let out = dir.path().join("run");
        let mut all = vec!["profile", model, "--out", out.to_str().expect("UTF-8")];
        all.extend(args);
        let said = refuse(&all);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn an_overhead_check_that_cannot_be_made() {
    let model = fixture("tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    for (args, says) in [
        (&["--sync", "immediate"][..], "--sync with --check-overhead needs a device"),
        (&["--temperature", "1"], "cannot be used with '--temperature <T>'"),
        (&["--overhead-seconds", "0"], "must be a number above 0 and at most 86400"),
        (&["--overhead-seconds", "NaN"], "must be a number above 0 and at most 86400"),
        (&["--overhead-processes", "0"], "0 is not in 1..=100"),
        (&["--overhead-processes", "101"], "101 is not in 1..=100"),
        (&["--live"], "cannot be used with '--live'"),
        (&["--await-watcher"], "cannot be used with"),
        (&["--endless"], "cannot be used with"),
        (&["--seed", "3"], "cannot be used with"),
        (&["--top-k", "3"], "cannot be used with"),
        (&["--top-p", "0.5"], "cannot be used with"),
        (&["--metrics-public"], "cannot be used with"),
        (&["--metrics-names", "both"], "cannot be used with"),
        (&["--tokens", "1"], "--check-overhead decodes tokens, so it needs --tokens 2 or more"),
        (&["--tokens", "600"], "do not fit the context"),
    ] {
        let said = refuse(&[&["profile", model, "--check-overhead"], args].concat());
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn how_to_check_an_overhead_that_was_not_asked_for() {
    let model = fixture("tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    for flag in ["--overhead-seconds", "--overhead-processes"] {
        let said = refuse(&["profile", model, flag, "3"]);
        assert!(said.contains("were not provided:\n  --check-overhead"), "{said}");
        let said = refuse(&["profile", model, "--live", flag, "3"]);
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn places_that_cannot_be_read_or_written() {
    let model = fixture("tiny-Q8_0.gguf");
    let model = model.to_str().expect("UTF-8");
    let dir = TempDir::new().expect("a temporary folder");
    let file = dir.path().join("file");
    std::fs::write(&file, b"in the way").expect("it is written");
    let below = file.join("run");
    let below = below.to_str().expect("UTF-8");
    let said = refuse(&["profile", model, "--out", below]);
    assert!(said.contains("can't write the run to") && said.contains(below), "{said}");
    let said = refuse(&["logits", model, "--ids", "1", "-o", below]);
    assert!(said.contains("can't write the logits to") && said.contains(below), "{said}");
    let said = refuse(&["synth", "-o", below]);
    assert!(said.contains(below), "{said}");
    let said = refuse(&["profile", below]);
    assert!(said.contains(&format!("cannot open {below}")), "{said}");
    let said = refuse(&["profile", "none.gguf"]);
    assert!(said.contains("`brickscope synth -o model.gguf` writes one"), "{said}");
    let said = refuse(&["show", "none"]);
    assert!(
        said.contains("none: No such file") && said.contains("`brickscope profile` writes a run"),
        "{said}"
    );
    let said = refuse(&["show", dir.path().to_str().expect("UTF-8")]);
    assert!(said.contains("profile.json: No such file"), "{said}");
    let said = refuse(&["show", file.to_str().expect("UTF-8")]);
    assert!(said.contains("is not a brickscope profile"), "{said}");
}

#[test]
fn no_command_says_the_same_twice_of_a_file_that_it_cannot_read() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let receipt = include_bytes!("../../../tests/data/receipt-v1.json");
    let files: [(&str, &[u8]); 9] = [
        ("file", b"in the way"),
        ("bytes", b"\xff\xfe\x00\x01"),
        ("short.json", b"{\"schema_version\": 1"),
        ("newer.json", b"{\"schema_version\": 99}"),
        ("other.json", b"{\"schema_version\": \"9.0.0\"}"),
        ("list.json", b"[]"),
        ("cut.json", &receipt[..3000]),
        ("text.gz", b"\x1f\x8b\x08\x00"),
        ("model.gguf", b"GGUF\x03\x00\x00\x00"),
    ];
    for (name, bytes) in files {
        std::fs::write(path(name), bytes).expect("it is written");
    }
    std::fs::create_dir(path("empty")).expect("it is made");
    let whole = path("whole.json");
    std::fs::write(&whole, receipt).expect("it is written");
    let names = files.iter().map(|(name, _)| *name).chain(["empty", "absent", "file/below"]);
    for bad in names.map(path) {
        let out = path("out");
        for args in [
            &["profile", &bad, "--out", &out][..],
            &["benchmark", &bad, "--out", &out],
            &["logits", &bad, "--ids", "1", "-o", &out],
            &["tokenize", &bad, "text"],
            &["diverge", &bad],
            &["show", &bad],
            &["export", &bad, "--format", "chrome", "-o", &out],
            &["report", &bad, "-o", &out],
            &["import", &bad],
            &["import", &bad, "--format", "llama-bench"],
            &["import", &bad, "--format", "vk-perf-logger"],
            &["history", &bad],
            &["compare", &bad, &whole],
            &["compare", &whole, &bad],
            &["gate", "--baseline", &whole, &bad],
            &["gate", "--baseline", &bad, &whole],
            &["gate", "--baseline", &path("file/base"), "--update", &bad],
            &["verify-receipt", &whole, "--model", &bad],
            &["receipt", "sign", &whole, "--key", &bad],
            &["receipt", "sign", &bad, "--key", &path("file")],
            &["flamegraph", &bad],
            &["flamegraph", "--diff", &bad, &whole],
            &["top", "--attach", &bad, "--once"],
        ] {
            let mut command = Command::new(command::program());
            let output = command.args(args).current_dir(dir.path()).output().expect("it starts");
            let said = String::from_utf8(output.stderr).expect("UTF-8");
            assert!(!said.contains("panicked"), "{args:?}: {said}");
            says_nothing_twice(&said);
        }
    }
    // The sockets of live views, in places that can hold none.
    let long = path(&"long".repeat(30));
    std::fs::create_dir(&long).expect("it is made");
    for place in [long.as_str(), "/proc/1"] {
        let mut command = Command::new(command::program());
        command.args(["profile", "--live", "--tokens", "1", "--out", &path("live")]);
        let output = command.arg(fixture("tiny-Q8_0.gguf")).env("XDG_RUNTIME_DIR", place).output();
        let said = String::from_utf8(output.expect("it starts").stderr).expect("UTF-8");
        says_nothing_twice(&said);
    }
}

#[test]
fn no_error_of_the_packages_contains_its_cause_and_hands_it_out_too() {
    const CAUSE: &str = "the disk is on fire";
    let cause = || io::Error::other(CAUSE);
    let (path, dir) = (PathBuf::from("file"), TempDir::new().expect("a temporary folder"));
    let in_path = |file: &str| dir.path().join(file);
    let gguf = |cause| gguf::Error::Open { file: path.clone(), cause };
    let spelled = tokenizer::Error::UnknownModel { name: CAUSE.to_owned() };
    let failed = || DeviceError::Failed { what: "copy".to_owned(), reason: CAUSE.to_owned() };
    let caused: Vec<anyhow::Error> = vec![
        gguf(cause()).into(),
        gguf::Error::Read { file: path.clone(), cause: cause() }.into(),
        gguf::Error::Write { file: path.clone(), cause: cause() }.into(),
        brickscope_engine::Error::Gguf(gguf(cause())).into(),
        brickscope_engine::Error::Tokenizer { file: path.clone(), cause: spelled }.into(),
        brickscope_engine::Error::Device(GpuError::Device(failed())).into(),
        GpuError::NoDevice { api: "cuda", reason: CAUSE.to_owned() }.into(),
        failed().into(),
        LiveError::Io { what: "reading".to_owned(), cause: cause() }.into(),
        LiveError::Refused(CAUSE.to_owned()).into(),
        MetricsError::Listen { addr: ([127, 0, 0, 1], 1).into(), source: cause() }.into(),
        RecordError::Open(cause()).into(),
        RecordError::Spawn { program: "perf".to_owned(), error: cause() }.into(),
        RecordError::System { what: "read", error: cause() }.into(),
        TimerError::System { what: "read", error: cause() }.into(),
        PerfDataError { path: path.clone(), fault: PerfDataFault::Io(cause()) }.into(),
        PerfDataFault::Io(cause()).into(),
    ];
    for error in caused {
        let said = format!("{error:#}");
        assert_eq!(said.matches(CAUSE).count(), 1, "{said}");
        says_nothing_twice(&said);
    }
    // Those that only a file can bring about.
    std::fs::write(in_path("bytes"), b"\xff\xff").expect("it is written");
    std::fs::write(in_path("short"), b"{").expect("it is written");
    for file in ["absent", "bytes", "short", ""].map(in_path) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let options = import::Options::default();
        for error in [
            Profile::load(&file).map(drop).map_err(anyhow::Error::from),
            Receipt::load(&file).map(drop).map_err(anyhow::Error::from),
            gguf::Gguf::open(&file).map(drop).map_err(anyhow::Error::from),
            brickscope_engine::Model::open(&file).map(drop).map_err(anyhow::Error::from),
            import::read(&text, &file, brickscope::run::Format::Chrome, &options)
                .map(drop)
                .map_err(anyhow::Error::from),
        ] {
            says_nothing_twice(&format!("{:#}", error.expect_err("it is refused")));
        }
    }
}
