//! The models that a process computes, one or several.

use std::path::Path;

use brickscope::{Phase, Profile};

use super::run;

/// Our own engine knows no Gemma.
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
