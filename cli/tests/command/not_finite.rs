//! Models whose logits aren't numbers: the first line says so, and names the weights or the brick.

use std::path::{Path, PathBuf};

use brickscope::{Began, Profile};
use brickscope_analysis::receipt::{Code, Options, Receipt, verify};
use brickscope_engine::gguf::Gguf;
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};

const GATE: &str = "blk.1.ffn_gate.weight";
const OF: &str = "of 196,608 values)";

fn fixture(name: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(name).with_extension("gguf")
}

/// Copies of models with changed weights.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A model whose tensor has these bytes at this place, repeated to its end if `fills`.
    fn model(&self, of: &str, tensor: &str, at: usize, value: &[u8], fills: bool) -> PathBuf {
        let path = fixture(of);
        let gguf = Gguf::open(&path).expect("the fixture");
        let range = gguf.range(gguf.tensor(tensor).expect("it has the tensor"));
        let mut bytes = std::fs::read(&path).expect("the fixture");
        let weights = &mut bytes[range][at..];
        let n = if fills { weights.len() / value.len() } else { 1 };
        weights.chunks_exact_mut(value.len()).take(n).for_each(|w| w.copy_from_slice(value));
        let path = self.path("model.gguf");
        std::fs::write(&path, bytes).expect("it is written");
        path
    }

    /// With NaN in one weight.
    fn nan(&self) -> PathBuf {
        self.model("tiny-F16", GATE, 400, &0x7e00u16.to_le_bytes(), false)
    }

    /// With norms of 3e38, behind which all overflows.
    fn overflowing(&self) -> PathBuf {
        self.model("tiny-F16", "blk.1.ffn_norm.weight", 0, &3e38f32.to_le_bytes(), true)
    }

    fn profile(&self, model: &Path, args: &[&str]) -> String {
        // On one thread, if they don't say another number: the limits of two take twice as long to measure.
        let mut command = brickscope(&[&["profile", "--tokens", "4"], args].concat());
        command.arg(model).arg("--out").arg(self.path("run"));
        text(&run(&mut command).stdout).to_owned()
    }

    fn saved(&self) -> Profile {
        Profile::load(&self.path("run").join("profile.json")).expect("it was written")
    }
}

/// The text with its lines joined: sentences are wrapped.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn begins(text: &str, sentence: &str) {
    assert!(unwrapped(text).starts_with(sentence), "{sentence}\n{text}");
}

#[test]
fn the_first_line_of_a_profile_names_the_first_bad_weights() {
    for (model, at, value, what) in [
        // Of f16 one value, and of q8_0 a block of 32 with its scale.
        ("tiny-F16", 400, 0x7e00u16, "NaN in blk.1.ffn_gate.weight (1 "),
        ("tiny-F16", 400, 0xfc00, "infinity in blk.1.ffn_gate.weight (1 "),
        ("tiny-Q8_0", 340, 0x7e00, "NaN in blk.1.ffn_gate.weight (32 "),
    ] {
        let on_two = &["--threads", "2"][..];
        for args in [on_two, &["--mmap"], &["--backend", "scalar"], &["--temperature", "1"]] {
            let bench = Bench::new();
            let path = bench.model(model, GATE, at, &value.to_le_bytes(), false);
            let report = bench.profile(&path, args);
            let first = format!(
                "Not a number: the logits of 4 of 4 passes; the first bad weights are {what}{OF}. "
            );
            begins(&report, &first);
            assert!(report.starts_with("Not a number"), "{report}");
        }
    }
    let bench = Bench::new();
    let path =
        bench.model("tiny-F16", "blk.0.attn_norm.weight", 8, &f32::INFINITY.to_le_bytes(), false);
    let first = "Not a number: the logits of 4 of 4 passes; the first bad weights are infinity in \
                 blk.0.attn_norm.weight (1 of 256 values). ";
    begins(&bench.profile(&path, &[]), first);
}

#[test]
fn a_comparison_of_backends_says_it_first_too() {
    let bench = Bench::new();
    let model = bench.nan();
    let args = ["profile", "--compare-backends", "--tokens", "3", "--rounds", "1"];
    let compared = run(brickscope(&args).arg(&model));
    let first = format!(
        "Not a number: the logits of 3 of 3 passes; the first bad weights are NaN in {GATE} (1 {OF}. "
    );
    begins(text(&compared.stdout), &first);
    let json = run(brickscope(&args).arg("--json").arg(&model));
    let json: Value = serde_json::from_str(text(&json.stdout)).expect("JSON");
    assert_eq!(json["not_finite"]["began"]["weights"]["tensor"], GATE);
}

#[test]
fn the_first_line_names_the_brick_where_weights_are_fine() {
    let bench = Bench::new();
    let report = bench.profile(&bench.overflowing(), &[]);
    let first = "Not a number: the logits of 4 of 4 passes; no weight is bad; the first infinity is in RmsNorm of \
                 layer 1, at position 0 (FFN norm: ";
    begins(&report, first);
    let Some(Began::Output { brick, layer, .. }) =
        bench.saved().not_finite.expect("it is kept").began
    else {
        panic!("it is in no tensor")
    };
    assert_eq!((&*brick, layer), ("RmsNorm", Some(1)));
}

#[test]
fn all_views_of_the_saved_profile_say_it_again() {
    let bench = Bench::new();
    let json = bench.profile(&bench.nan(), &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let expected = serde_json::json!({
        "passes": 4, "of": 4, "began": { "weights": {
            "tensor": GATE, "is_nan": true, "bad": 1, "of": 196_608, "more_tensors": 0
        } }
    });
    assert_eq!(json["not_finite"], expected);
    let not_finite = bench.saved().not_finite.expect("it is kept");
    assert_eq!(serde_json::to_value(&not_finite).expect("plain data"), expected);
    let sentence = not_finite.to_string();
    let dir = bench.path("run");
    let shown = run(brickscope(&["show"]).arg(&dir));
    begins(text(&shown.stdout), &sentence);
    let page = bench.path("page.html");
    let told = run(brickscope(&["report", "-o"]).arg(&page).arg(&dir));
    assert!(unwrapped(text(&told.stdout)).contains(&sentence), "{told:?}");
    let page = std::fs::read_to_string(page).expect("it was written");
    let first = page.split_once("<strong>Warnings</strong>").expect("the page has warnings").1;
    let first = first.split_once("</li>").expect("a list").0;
    assert!(first.ends_with(&format!(">{sentence}</span>")), "{first}");
    let disturbed = run(brickscope(&["show", "--leave-out-disturbed"]).arg(&dir));
    begins(text(&disturbed.stdout), &sentence);
}

#[test]
fn a_benchmark_says_it_first_and_its_receipt_doubts_it() {
    for (model, origin) in [
        (Bench::nan as fn(&Bench) -> PathBuf, "the first bad weights are NaN in blk.1.ffn_gate"),
        (Bench::overflowing, "no weight is bad; the first infinity is in RmsNorm of layer 1"),
    ] {
        let bench = Bench::new();
        let args = ["benchmark", "-p", "8", "-n", "3", "-d", "4", "-r", "2", "--threads", "2"];
        let out = run(brickscope(&args).arg(model(&bench)).arg("--out").arg(bench.path("run")));
        let said = text(&out.stdout);
        assert!(said.starts_with("Not a number: the logits of "), "{said}");
        let receipt = Receipt::load(&bench.path("run").join("receipt.json")).expect("a receipt");
        let mut all = 0;
        for test in &receipt.tests {
            let bad = test.not_finite.as_ref().expect("each test has it");
            let each = if test.n_gen > 0 { 3 } else { 1 };
            assert_eq!((bad.passes, bad.of), (bad.of, test.samples.len() as u64 * each));
            assert!(bad.origin.starts_with(origin), "{}", bad.origin);
            let doubt = format!("{}: not a number: the logits of", test.name);
            let is_it = |stated: &&String| stated.starts_with(&doubt);
            assert_eq!(receipt.load.doubts.iter().filter(is_it).count(), 1);
            all += bad.of;
        }
        let names = "pp8 @ d4, tg3 @ d4";
        begins(
            said,
            &format!("Not a number: the logits of {all} of {all} passes of {names}; {origin}"),
        );
        let verdict = verify(receipt.to_json().as_bytes(), &Options::default());
        assert!(!verdict.refusals.iter().any(|refusal| refusal.code == Code::DoubtsErased));
        // The profile has one repetition of each.
        let profile = bench.saved().not_finite.expect("it is kept");
        assert_eq!((profile.passes, profile.of), (4, 4));
        assert!(profile.to_string().contains(origin), "{profile}");
    }
}

#[test]
fn logits_that_are_no_numbers_are_written_and_refused() {
    for (model, origin) in [
        (Bench::nan as fn(&Bench) -> PathBuf, "the first bad weights are NaN in blk.1.ffn_gate"),
        (Bench::overflowing, "no weight is bad; the first infinity is in RmsNorm of layer 1"),
    ] {
        let bench = Bench::new();
        let (model, file) = (model(&bench), bench.path("logits.bin"));
        for steps in [&[][..], &["--steps"]] {
            let mut command = brickscope(&["logits", "--ids", "1,5,9", "-o"]);
            let output = command.arg(&file).arg(&model).args(steps).output().expect("it starts");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let sentence =
                format!("brickscope: Not a number: the logits of 3 of 3 tokens; {origin}");
            assert!(said.starts_with(&sentence), "{said}");
            let bytes = std::fs::read(&file).expect("it was written");
            assert_eq!(bytes.len(), 20 + 4 * 3 + 4 * 3 * 512);
        }
    }
}

#[test]
fn clean_models_say_nothing_of_it() {
    for model in ["tiny-F16", "tiny-Q8_0"] {
        let bench = Bench::new();
        let report = bench.profile(&fixture(model), &[]);
        assert!(!report.contains("ot a number"), "{report}");
        let file = bench.path("run").join("profile.json");
        let saved = std::fs::read_to_string(file).expect("it was written");
        assert!(!saved.contains("not_finite"), "{saved:.500}");
    }
    let bench = Bench::new();
    let args = ["benchmark", "-p", "8", "-n", "3", "-r", "2", "--threads", "2"];
    let out = bench.path("benchmark");
    let out = run(brickscope(&args).arg(fixture("tiny-F16")).arg("--out").arg(out));
    assert!(!text(&out.stdout).contains("ot a number"));
    let receipt = std::fs::read_to_string(bench.path("benchmark").join("receipt.json"));
    assert!(!receipt.expect("it was written").contains("not_finite"));
    let file = bench.path("logits.bin");
    run(brickscope(&["logits", "--ids", "1,5", "-o"]).arg(file).arg(fixture("tiny-F16")));
}
