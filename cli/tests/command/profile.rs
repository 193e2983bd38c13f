//! The output and files of the subcommands, end to end.

use std::path::{Path, PathBuf};
use std::process::Output;

use brickscope::{Phase, Profile};
use brickscope_kernels::Kernels;
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{adds_up, brickscope, run, text};

fn model(name: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(format!("{name}.gguf"))
}

/// Profiles a model into its own folder. Returns the output and the folder.
fn profile(model: &Path, args: &[&str]) -> (Output, TempDir) {
    let dir = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&[&["profile"], args].concat());
    command.arg(model).arg("--out").arg(dir.path());
    (run(&mut command), dir)
}

#[test]
fn every_model_in_the_repository_is_profiled() {
    for name in [
        "tiny-Q4_K_M",
        "tiny-qwen2-Q4_K_M",
        "tiny-l3-Q4_K_M",
        "tiny-bitnet-TQ2_0",
        "tiny-bitnet-b158-I2_S",
    ] {
        let (output, dir) = profile(&model(name), &["--tokens", "4", "--threads", "2"]);
        let said = text(&output.stdout);
        assert!(said.starts_with("Decode ") && said.contains(" tok/s"), "{name}: {said}");
        assert!(said.lines().count() <= 24, "{name}: {said}");
        let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
        assert_eq!(profile.check(), Ok(()), "{name}");
    }
}

#[test]
fn every_shared_model_is_profiled_where_the_folder_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: no {}", folder.display());
        return;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let (_, dir) = profile(&path, &["--tokens", "3", "--prompt", "def f(x):"]);
            let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
            assert_eq!(profile.check(), Ok(()), "{}", path.display());
        }
    }
}

#[test]
fn the_command_line_of_the_predecessor_runs_as_it_stands() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&["run", "--model"]);
    command.arg(model("tiny-Q8_0")).arg("--out").arg(dir.path());
    command.args(["--prompt", "2+2=", "--max-tokens", "1", "--greedy", "--temperature", "0.0"]);
    let traced = command.env("BITNET_TRACE_TIMING", "1").env("BITNET_TRACE_QUANT", "1");
    let output = run(traced);
    let said = text(&output.stderr);
    // One pass of the prompt: four lines, as a script cuts them.
    let timed: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("timing: ")).collect();
    let names = ["embed_us=", "forward_us=", "logits_us=", "sample_us="];
    let figure = |(line, name): (&&str, &str)| line.strip_prefix(name)?.parse::<u64>().ok();
    assert_eq!(timed.iter().zip(names).filter_map(figure).count(), 4, "{said}");
    assert_eq!(timed.len(), 4, "{said}");
    let is_gemv =
        |line: &str| line.starts_with("quant_dispatch: gemv_q8_0_") && line.contains("calls=");
    assert!(said.lines().any(is_gemv), "{said}");
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    let described = profile.run.expect("it says what ran");
    assert_eq!((described.generated_tokens, described.seed), (1, None));

    let refused = |args: &[&str]| {
        let output = brickscope(args).output().expect("it starts");
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = refused(&["profile", "--greedy", "--temperature", "0.5"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--greedy takes the likeliest token"), "{said}");
    let (code, said) = refused(&["profile", "a.gguf", "--model", "b.gguf"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn json_on_standard_output_is_the_profile_that_was_written() {
    let (output, dir) = profile(&model("tiny-Q8_0"), &["--json", "--tokens", "3"]);
    let written = std::fs::read_to_string(dir.path().join("profile.json")).expect("it was written");
    assert_eq!(without_roofline(text(&output.stdout)), parsed(&written));
    adds_up(&serde_json::from_str(&written).expect("JSON"));
}

#[test]
fn a_run_is_shown_again_in_every_form() {
    let (output, dir) = profile(&model("tiny-Q8_0"), &["--tokens", "5", "--full"]);
    let show = |view: &str| {
        let mut command = brickscope(&["show", "--as", view]);
        text(&run(command.arg(dir.path())).stdout).to_owned()
    };
    let printed = text(&output.stdout);
    assert!(printed.starts_with(&show("report")), "the same profile gives the same report");
    let full = run(brickscope(&["show", "--full"]).arg(dir.path()));
    assert_eq!(text(&full.stdout), show("report"));
    let first = run(brickscope(&["show"]).arg(dir.path()));
    assert_eq!(text(&first.stdout), show("summary"));
    assert!(show("summary").lines().count() <= 24);
    assert!(show("tree").starts_with("Decode pass  "));
    assert!(show("tree").contains("\n├── Embedding  "));
    assert!(show("tree").contains("\n├── Layer 1  "), "the whole tree, nothing folded");
    assert!(show("dot").starts_with("digraph ExecutionGraph {\n"));
    let written = std::fs::read_to_string(dir.path().join("profile.json")).expect("it was written");
    assert_eq!(without_roofline(&show("json")), parsed(&written));
    assert!(show("roofline").starts_with("Decode\n\nGFLOP/s\n"));
    assert!(show("roofline-svg").starts_with("<svg xmlns="));
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

/// The output as JSON, without the parts that are computed from the file: for each phase a roofline, and what is typical.
fn without_roofline(printed: &str) -> Value {
    let mut json = parsed(printed);
    for part in ["roofline", "typical", "rates"] {
        let part = json.as_object_mut().expect("an object").remove(part).expect("it is there");
        let phases = part.as_array().expect("phases").iter().filter_map(|of| of["phase"].as_str());
        assert_eq!(phases.collect::<Vec<_>>(), ["decode", "prefill"]);
    }
    // Only where passes of a phase had different numbers of tokens, or where a phase has no roof.
    for part in ["batches", "roofline_absent"] {
        json.as_object_mut().expect("an object").remove(part);
    }
    json
}

#[test]
fn a_run_that_is_there_already_is_not_overwritten() {
    let (_, dir) = profile(&model("tiny-Q8_0"), &["--tokens", "1"]);
    let before = std::fs::read(dir.path().join("profile.json")).expect("it was written");
    let mut command = brickscope(&["profile", "--tokens", "2", "--out"]);
    let output = command.arg(dir.path()).arg(model("tiny-Q8_0")).output().expect("it starts");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("already holds a run"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(dir.path().join("profile.json")).expect("it stayed"), before);
}

#[test]
fn the_timing_lines_come_one_a_pass_with_what_the_pass_did() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&["profile", "--tokens", "3", "--prompt", "Hello", "--out"]);
    command.arg(dir.path()).arg(model("tiny-Q8_0")).env("BRICKSCOPE_TRACE_TIMING", "1");
    let output = run(&mut command);
    let lines: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(lines.len(), 3, "one prefill and two decode passes: {lines:?}");
    for line in lines {
        let mut fields = line.strip_prefix("timing: ").expect(line).split(' ');
        for name in ["embed_us=", "forward_us=", "logits_us=", "sample_us="] {
            let value = fields.next().and_then(|field| field.strip_prefix(name));
            assert!(value.is_some_and(|value| value.parse::<u64>().is_ok()), "{name} in {line}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_threads_do_not_change_it() {
    let ids = |args: &[&str]| {
        let (output, _dir) = profile(&model("tiny-Q4_K_M"), args);
        let report = text(&output.stdout);
        let line = report.lines().find(|line| line.starts_with("Text: ")).expect("the text");
        line.to_owned()
    };
    let random = ["--tokens", "12", "--temperature", "0.9", "--seed", "7", "--threads", "1"];
    assert_eq!(ids(&random), ids(&random));
    assert_eq!(ids(&["--tokens", "12"]), ids(&["--tokens", "12", "--threads", "2"]));
}

/// On a small model in the layout of Microsoft's `bitnet-b1.58-2B-4T`. `tests/engine/bitnet_b158.rs` holds the tokens to
/// bitnet.cpp's.
#[test]
fn bitnet_b158_is_profiled_with_a_prompt_at_temperature_0_for_16_tokens() {
    let args = ["--prompt", "2+2=", "--temperature", "0", "--tokens", "16"];
    let texts = ["scalar", "avx2", "avx512", "neon"].into_iter().filter_map(|backend| {
        Kernels::new(backend.parse().expect("a backend")).ok()?;
        let (output, dir) = profile(
            &model("tiny-bitnet-b158-I2_S"),
            &[&args[..], &["--backend", backend]].concat(),
        );
        let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
        assert_eq!(profile.check(), Ok(()), "{backend}");
        let run = profile.run.as_ref().expect("a run");
        assert_eq!((run.prompt_tokens, run.generated_tokens, run.seed), (5, 16, None), "{backend}");
        let decode = profile.phase(Phase::Decode).expect("tokens were decoded");
        assert_eq!((decode.passes, decode.tokens), (15, 15), "{backend}");
        let launches = |kernel: &str| {
            let kernels = profile.kernels(Some(Phase::Decode));
            let of_it = kernels.iter().filter(|total| total.stats.name.starts_with(kernel));
            of_it.map(|total| total.stats.count).sum::<u64>()
        };
        // In each of two layers a gate and seven matrices; the head is the embedding.
        assert_eq!(launches("relu_squared_mul_"), 15 * 2, "{backend}");
        assert_eq!(launches("silu_mul_"), 0, "{backend}");
        assert_eq!(launches("gemv_i2_s_"), 15 * 2 * 7, "{backend}");
        assert_eq!(launches("gemv_f16_"), 15, "{backend}");
        let report = text(&output.stdout);
        Some(report.lines().find(|line| line.starts_with("Text: ")).expect("the text").to_owned())
    });
    let texts: Vec<_> = texts.collect();
    assert!(texts[0].contains(" mo wo|"), "{}", texts[0]);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn sync_none_times_nothing_and_says_so() {
    let (output, dir) = profile(&model("tiny-Q8_0"), &["--tokens", "2", "--sync", "none"]);
    let said = text(&output.stdout);
    assert!(said.contains("the mode `none` times nothing"), "{said}");
    let full = run(brickscope(&["show", "--full"]).arg(dir.path()));
    let said = text(&full.stdout);
    assert!(said.contains("Nothing was recorded: the sync mode `none` times nothing."), "{said}");
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    assert!(profile.totals.is_empty() && profile.phases.is_empty());
}

#[test]
fn logits_are_written_in_the_shared_format_and_agree_with_the_reference() {
    let dir = TempDir::new().expect("a temporary folder");
    let reference = std::fs::read(model("tiny-F16").with_extension("logits.bin")).expect("fixture");
    let word = |bytes: &[u8], i: usize| -> [u8; 4] {
        bytes[4 + 4 * i..][..4].try_into().expect("four bytes")
    };
    let number = |i| u32::from_le_bytes(word(&reference, i)) as usize;
    let (n_tokens, n_vocab, n_greedy) = (number(0), number(1), number(2));
    let ids: Vec<String> = (0..n_tokens).map(|i| number(4 + i).to_string()).collect();
    for steps in [None, Some("--steps")] {
        let path = dir.path().join("ours.bin");
        let mut command = brickscope(&["logits", "--ids", &ids.join(","), "-o"]);
        command.arg(&path).arg(model("tiny-F16")).args(steps);
        run(&mut command);
        let ours = std::fs::read(&path).expect("it was written");
        assert_eq!(&ours[..4], b"LGT1");
        assert_eq!(ours[4..12], reference[4..12]);
        assert_eq!(ours.len(), 4 + 4 * (4 + n_tokens + n_tokens * n_vocab));
        for i in 0..n_tokens * n_vocab {
            let a = f32::from_le_bytes(word(&ours, 4 + n_tokens + i));
            let b = f32::from_le_bytes(word(&reference, 4 + n_tokens + n_greedy + i));
            assert!((a - b).abs() < 1e-2, "logit {i}: {a} and {b}");
        }
    }
}

#[test]
fn tokenize_prints_the_reference_engines_ids() {
    let model = model("tiny-Q8_0");
    let tokenize = |args: &[&str], text_to_read: &str| {
        let mut command = brickscope(&["tokenize"]);
        text(&run(command.arg(&model).arg(text_to_read).args(args)).stdout).to_owned()
    };
    assert_eq!(tokenize(&[], "import os"), "1 267 335 272 424 278 428\n");
    assert_eq!(tokenize(&["--no-special"], "import os"), "267 335 272 424 278 428\n");
    assert_eq!(tokenize(&["--json"], "import os"), "[1,267,335,272,424,278,428]\n");
}

#[test]
fn a_file_with_a_vocabulary_alone_is_enough_to_tokenize() {
    let data = |name: &str| model("tiny-Q8_0").with_file_name("../tokenizer").join(name);
    let mut command = brickscope(&["tokenize"]);
    let output = run(command.arg(data("vocab-only.gguf")).arg("hello a"));
    assert_eq!(text(&output.stdout), "1 259 107 104 111 111 114 262\n");
    // It can't be run, and a file that only goes with a model is no model.
    for (name, command, what) in [
        ("vocab-only.gguf", "logits", "there is no tensor `token_embd.weight`"),
        ("lora.gguf", "tokenize", "a LoRA adapter, which changes the weights of a model"),
        ("lora.gguf", "logits", "a LoRA adapter, which changes the weights of a model"),
    ] {
        let out = tempfile::TempDir::new().expect("a temporary folder");
        let mut refused = brickscope(&[command]);
        refused.arg(data(name));
        match command {
            "tokenize" => refused.arg("a"),
            _ => refused.args(["--ids", "1", "-o"]).arg(out.path().join("logits")),
        };
        let output = refused.output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{command} {name}");
        assert!(text(&output.stderr).contains(what), "{}", text(&output.stderr));
    }
}

#[test]
fn tiles_are_in_the_report_the_file_and_json_only_when_asked_for() {
    let args = ["--tokens", "2", "--threads", "2"];
    let (output, dir) = profile(&model("tiny-Q8_0"), &args);
    assert!(!text(&output.stdout).contains("Tiles: "));
    let written = std::fs::read_to_string(dir.path().join("profile.json")).expect("it was written");
    assert_eq!(parsed(&written)["tiles"], serde_json::json!([]));
    assert!(parsed(&written)["tile_threads"].is_null());

    let (output, dir) = profile(&model("tiny-Q8_0"), &[&args[..], &["--tiles", "--full"]].concat());
    let said = text(&output.stdout);
    for part in ["\nTiles: ", "\nmacro ", "GFLOP/s", "\nimbalance of "] {
        assert!(said.contains(part), "{part:?}: {said}");
    }
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    assert_eq!(profile.check(), Ok(()));
    let shown = run(brickscope(&["show", "--full"]).arg(dir.path()));
    assert!(text(&shown.stdout).contains("\nTiles: "));
    let shown = run(brickscope(&["show", "--as", "json"]).arg(dir.path()));
    let json = parsed(text(&shown.stdout));
    assert_eq!(json["tiles"][0]["level"], "macro");
    assert_eq!(json["tile_balance"]["products"], profile.tile_balance.expect("noted").products);
    let shares = |tiles: &Value| tiles["total_ns"].as_u64().expect("nanoseconds");
    let threads = json["tile_threads"].as_array().expect("threads");
    let of_threads: u64 = threads.iter().map(|thread| shares(&thread["tiles"][0])).sum();
    assert_eq!(of_threads, shares(&json["tiles"][0]));
}

#[test]
fn a_synthetic_model_is_the_same_file_each_time_and_can_be_profiled() {
    let dir = TempDir::new().expect("a temporary folder");
    let make = |name: &str, quant: &str| {
        let path = dir.path().join(name);
        let mut command = brickscope(&["synth", "--shape", "tiny", "--quant", quant, "-o"]);
        run(command.arg(&path));
        path
    };
    let (a, b) = (make("a.gguf", "q4_k"), make("b.gguf", "q4_k"));
    assert_eq!(std::fs::read(&a).expect("made"), std::fs::read(&b).expect("made"));
    for quant in ["q8_0", "q4_k", "q4_k_m", "q5_k_m", "f16", "f32"] {
        let (output, _dir) = profile(&make("c.gguf", quant), &["--tokens", "2"]);
        assert!(text(&output.stdout).contains("random weights"), "{quant}");
    }
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    for command in ["profile", "show", "logits", "tokenize", "synth"] {
        let output = run(&mut brickscope(&[command, "--help"]));
        assert!(text(&output.stdout).contains("Example"), "{command}");
        let wide = text(&output.stdout).lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{command}");
    }
}
