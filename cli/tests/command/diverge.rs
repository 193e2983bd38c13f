//! `brickscope diverge`, as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brickscope_engine::gguf::Gguf;
use brickscope_testing::command;
use serde_json::Value;
use tempfile::TempDir;

fn fixture(name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(name).to_str().expect("UTF-8").to_owned()
}

/// The exit code, standard output and standard error.
fn diverge(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(command::program())
        .arg("diverge")
        .args(args)
        .output()
        .expect("the command starts");
    let code = output.status.code().expect("it isn't killed");
    let [stdout, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    assert!(!said.contains("panicked"), "{said}");
    (code, stdout, said)
}

fn json(stdout: &str) -> Value {
    serde_json::from_str(stdout).expect("JSON")
}

/// A copy of tiny-Q8_0 with some bits of a block's scale flipped: in the matrix `tensor`, in row
/// `row`, in block 3. The scale is an f16 at the beginning of 34 bytes.
fn damaged(dir: &TempDir, tensor: &str, row: usize, byte: usize, bits: u8) -> PathBuf {
    let original = fixture("tiny-Q8_0.gguf");
    let gguf = Gguf::open(original.as_ref()).expect("the fixture");
    let info = gguf.tensor(tensor).expect("it is there");
    let row_bytes = info.n_cols() / 32 * 34;
    let at = gguf.range(info).start + row * row_bytes + 3 * 34 + byte;
    let mut bytes = fs::read(&original).expect("the fixture");
    bytes[at] ^= bits;
    let path = dir.path().join("damaged.gguf");
    fs::write(&path, bytes).expect("it is written");
    path
}

#[test]
fn backends_that_agree() {
    let model = fixture("tiny-qwen2-Q4_K_M.gguf");
    let (code, said, _) = diverge(&[&model, "--b", "scalar", "--tokens", "2"]);
    assert_eq!(code, 0);
    assert!(said.contains("No divergence: both sides are equal bit for bit."), "{said}");

    let (code, stdout, said) = diverge(&[&model, "--tokens", "2", "--json"]);
    assert_eq!(code, 0, "{said}");
    let json = json(&stdout);
    assert_eq!((&json["diverges"], &json["first"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(json["a"]["backend"], "scalar");
    assert!(json["numbers"].as_u64().expect("a number") > 10_000);
    let kernels = json["kernels"].as_array().expect("kernels");
    let all_round = kernels.iter().all(|pair| {
        let most = &pair["largest_difference_in_tolerances"];
        most.is_null() || most.as_f64().is_some_and(|most| most <= 1.0)
    });
    assert!(all_round && kernels.len() > 10, "{kernels:?}");
}

#[test]
fn a_table_of_all_kernels_within_80_columns() {
    let (code, said, _) = diverge(&[&fixture("tiny-bitnet-TQ2_0.gguf"), "--ids", "1,2,3"]);
    assert_eq!(code, 0);
    assert!(said.contains("10 tokens in 8 passes"), "{said}");
    let table = said.lines().skip(2);
    assert!(table.clone().all(|line| line.chars().count() <= 80), "{said}");
    // On a machine without AVX2 both sides are scalar, and there is nothing to list.
    if said.contains("b  avx2") {
        assert!(table.clone().any(|line| line.contains("gemm_tq2_0_avx2")), "{said}");
    }
}

#[test]
fn a_damaged_model_against_the_whole_one() {
    let dir = TempDir::new().expect("a temporary folder");
    // The lowest bit of the scale's exponent: half or twice as large.
    let path = damaged(&dir, "blk.1.ffn_up.weight", 77, 1, 0x04);
    let damaged = path.to_str().expect("UTF-8");
    let model = fixture("tiny-Q8_0.gguf");

    let (code, said, _) = diverge(&[&model, "--b-model", damaged, "--ids", "5,6,7"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("DIVERGENCE: layer 1 of 2, UpProjection (up), position 0\n"), "{said}");
    assert!(said.contains("yes, it was the same in a second run of the pass"), "{said}");
    let wide = said.lines().skip(2).find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);

    let (code, stdout, _) = diverge(&[&model, "--b-model", damaged, "--ids", "5,6,7", "--json"]);
    assert_eq!(code, 1);
    let json = json(&stdout);
    let first = &json["first"];
    assert_eq!((&first["layer"], &first["brick"]), (&1.into(), &"UpProjection".into()));
    // One row of the matrix, for each of three tokens.
    assert_eq!(first["beyond"], 3);
    let worst = first["worst"].as_array().expect("elements");
    assert!(worst.iter().all(|element| element["index"] == 77), "{worst:?}");
    // Later bricks get correct inputs, so only this one is reported, in each pass.
    assert_eq!(json["places"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["places"][0]["passes"], json["passes"]);
}

#[test]
fn the_last_bit_of_a_scale_between_two_files() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = damaged(&dir, "blk.0.attn_v.weight", 3, 0, 0x01);
    let damaged = path.to_str().expect("UTF-8");
    let model = fixture("tiny-Q8_0.gguf");
    let args = [&model, "--b-model", damaged, "--b", "scalar", "--tokens", "1", "--json"];
    let (code, stdout, said) = diverge(&args);
    assert_eq!(code, 1, "{said}");
    let json = json(&stdout);
    assert_eq!(json["exact"], true);
    assert_eq!((&json["first"]["value"], &json["first"]["layer"]), (&"V".into(), &0.into()));
    assert_eq!(json["first"]["worst"][0]["index"], 3);
}

#[test]
fn thread_counts_that_agree() {
    let model = fixture("tiny-Q4_0.gguf");
    let args = ["--b", "scalar", "--threads-a", "1", "--threads-b", "3", "--tokens", "3"];
    let (code, said, _) = diverge(&[&[&*model], &args[..]].concat());
    assert_eq!(code, 0);
    assert!(said.contains("b  scalar on 3 threads"), "{said}");
    assert!(said.contains("equal bit for bit"), "{said}");
}

#[test]
fn what_cannot_be_compared() {
    let model = fixture("tiny-Q8_0.gguf");
    let bitnet = fixture("tiny-bitnet-TQ2_0.gguf");
    // Half as many elements of a head are rotated: a key of a u32, and the number after its type.
    let mut bytes = fs::read(&model).expect("the fixture");
    let key = b"llama.rope.dimension_count";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the key");
    let at = at + key.len() + 4;
    bytes[at..at + 4].copy_from_slice(&32_u32.to_le_bytes());
    let dir = TempDir::new().expect("a temporary folder");
    let other = dir.path().join("other.gguf");
    fs::write(&other, bytes).expect("it is written");
    let other = other.to_str().expect("UTF-8");
    for (args, says) in [
        (&["--b-model", &*bitnet][..], "architecture: llama and bitnet"),
        (&["--b-model", other], "brick by brick: elements of a head that RoPE rotates: 64 and 32"),
        (&["--b-model", "nowhere.gguf"], "cannot open nowhere.gguf"),
        (&["--b", "vliw"], "there is no backend `vliw`"),
        (&["--ids", "1,512"], "token 1 of the input is 512, but the vocabulary has 512"),
        (&["--ids", "1,x"], "`x` is not a token id"),
        (&["--ids", "1", "--prompt", "no"], "cannot be used with"),
        (&["--tokens", "99999"], "do not fit the context"),
        (&["--threads-a", "0"], "must be 1 to 1024"),
    ] {
        let (code, stdout, said) = diverge(&[&[&*model], args].concat());
        assert_eq!((code, &*stdout), (2, ""), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn the_help_says_what_the_exit_code_means() {
    let (code, said, _) = diverge(&["--help"]);
    assert_eq!(code, 0);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("1 if there is a divergence, 2 if the comparison can't be made"),
        "{said}"
    );
    assert!(said.contains("brickscope diverge model.gguf --a scalar --b avx2"), "{said}");
}
