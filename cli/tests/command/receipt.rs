//! `brickscope verify-receipt` and `brickscope receipt`, as a user runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use brickscope_analysis::receipt::{Receipt, sha256_hex};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, text};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/receipt-v1.json")
}

/// The exit code, standard output and standard error.
fn output(args: &[&str]) -> (i32, String, String) {
    let output = brickscope(args).output().expect("the command starts");
    let [stdout, said] = [&output.stdout, &output.stderr].map(|bytes| text(bytes).to_owned());
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code().expect("it isn't killed"), stdout, said)
}

fn word(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn an_honest_receipt_by_its_file_or_its_folder() {
    let path = fixture();
    let (code, stdout, _) = output(&["verify-receipt", word(&path)]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.starts_with("accepted  "), "{stdout}");
    assert!(
        stdout.contains("\nNot checked:\n  the model's hash and size: no model given"),
        "{stdout}"
    );
    assert!(stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{stdout}");

    let dir = TempDir::new().expect("a folder");
    fs::copy(&path, dir.path().join("receipt.json")).expect("copied");
    let (code, stdout, _) = output(&["verify-receipt", word(dir.path()), "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &json["accepted"]), (0, &Value::Bool(true)));
    assert_eq!(json["refusals"], Value::Array(Vec::new()));
}

#[test]
fn each_receipt_of_a_set_is_checked() {
    let dir = TempDir::new().expect("a folder");
    let original = fs::read_to_string(fixture()).expect("the fixture");
    for process in ["1", "2", "10"] {
        let folder = dir.path().join(process);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("receipt.json"), &original).expect("written");
    }
    let (code, stdout, _) = output(&["verify-receipt", word(dir.path())]);
    assert_eq!((code, stdout.matches("accepted  ").count()), (0, 3), "{stdout}");
    assert!(stdout.ends_with("\n3 of 3 receipts of the set accepted\n"), "{stdout}");
    let changed = original.replace("\"tiny\"", "\"huge\"");
    fs::write(dir.path().join("2/receipt.json"), changed).expect("written");
    let (code, stdout, _) = output(&["verify-receipt", word(dir.path()), "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &json["accepted"]), (1, &Value::Bool(false)));
    let accepted = json["receipts"].as_array().expect("a list").iter();
    let accepted: Vec<_> = accepted.map(|of| of["accepted"].as_bool()).collect();
    assert_eq!(accepted, [Some(true), Some(false), Some(true)]);
    let (code, _, said) = output(&["verify-receipt", word(dir.path()), "--rerun=m.gguf"]);
    assert!(code == 2 && said.contains("it is a set of 3: name one, such as"), "{said}");
    // One that isn't there hides no other: what is refused decides.
    fs::write(dir.path().join("1/profile.json"), "{}").expect("written");
    fs::remove_file(dir.path().join("1/receipt.json")).expect("removed");
    let (code, stdout, said) = output(&["verify-receipt", word(dir.path())]);
    assert!(code == 1 && said.contains("1/receipt.json"), "{stdout}{said}");
    assert!(stdout.ends_with("\n1 of 3 receipts of the set accepted\n"), "{stdout}");
    fs::write(dir.path().join("2/receipt.json"), &original).expect("written");
    let (code, stdout, _) = output(&["verify-receipt", word(dir.path()), "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &json["accepted"]), (2, &Value::Bool(false)));
    assert_eq!(json["not_read"].as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn without_a_name_it_is_the_receipt_that_was_written_last() {
    let dir = TempDir::new().expect("a folder");
    let verify = || {
        let mut command = brickscope(&["verify-receipt"]);
        let output = command.current_dir(dir.path()).output().expect("it starts");
        (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (code, _, said) = verify();
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no receipt in brickscope-runs"), "{said}");

    let original = fs::read_to_string(fixture()).expect("the fixture");
    let write = |run: &str, text: &str, seconds: u64| {
        let folder = dir.path().join("brickscope-runs").join(run);
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("receipt.json");
        fs::write(&path, text).expect("written");
        let when = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_modified(when))
            .expect("set");
    };
    write("b", &original.replace("\"tiny\"", "\"huge\""), 1_000);
    assert_eq!(verify().0, Some(1), "the only one was changed");
    // A process of a set, and newer.
    write("a/2", &original, 2_000);
    let (code, said, _) = verify();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("receipt.json"), "{said}");
}

#[test]
fn a_receipt_that_was_changed() {
    let dir = TempDir::new().expect("a folder");
    let path = dir.path().join("edited.json");
    let original = fs::read_to_string(fixture()).expect("the fixture");
    fs::write(&path, original.replace("\"tiny\"", "\"huge\"")).expect("written");
    let (code, stdout, _) = output(&["verify-receipt", word(&path)]);
    assert_eq!(code, 1);
    assert!(stdout.starts_with("REFUSED   "), "{stdout}");
    assert!(stdout.contains("\n  hash-mismatch\n    the content has the hash\n"), "{stdout}");
    assert!(stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{stdout}");

    let (code, stdout, _) =
        output(&["verify-receipt", word(&path), "--require-gpu-kernels", "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let codes: Vec<&str> = json["refusals"]
        .as_array()
        .expect("refusals")
        .iter()
        .filter_map(|refusal| refusal["code"].as_str())
        .collect();
    assert_eq!(code, 1);
    assert_eq!(codes, ["hash-mismatch", "signature-invalid", "no-gpu-kernels"]);

    fs::write(&path, &original[..original.len() / 2]).expect("written");
    let (code, stdout, _) = output(&["verify-receipt", word(&path)]);
    assert_eq!(code, 1);
    assert!(stdout.contains("\n  truncated\n"), "{stdout}");
}

#[test]
fn another_model_than_that_of_the_receipt() {
    let path = fixture();
    let (code, stdout, _) = output(&["verify-receipt", word(&path), "--model", word(&path)]);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("\n  model-mismatch\n    the model's file has the SHA-256\n"),
        "{stdout}"
    );
    // It isn't rerun then.
    let with = format!("--rerun={}", word(&path));
    let (code, stdout, _) = output(&["verify-receipt", word(&path), &with]);
    assert_eq!(code, 1);
    assert!(stdout.contains("  a rerun: the receipt is refused without one\n"), "{stdout}");
    // Both together: --rerun alone takes the model of --model.
    let both = ["verify-receipt", word(&path), "--model", word(&path), "--rerun"];
    let (code, stdout, _) = output(&both);
    assert_eq!(code, 1);
    assert!(stdout.contains("  a rerun: the receipt is refused without one\n"), "{stdout}");
    // The word after --rerun is the receipt, not the model.
    let other_order = ["verify-receipt", "--model", word(&path), "--rerun", word(&path)];
    let (code, other, _) = output(&other_order);
    assert_eq!((code, other), (1, stdout));
    for only in [&["verify-receipt", word(&path), "--rerun"][..], &["verify-receipt", "--rerun"]] {
        let (code, _, said) = output(only);
        assert_eq!(code, 2);
        assert!(said.contains("--rerun needs a model to run: --rerun=MODEL"), "{said}");
    }
    let (code, _, said) = output(&["verify-receipt", word(&path), "--rerun", "model.gguf"]);
    assert_eq!(code, 2);
    assert!(said.contains("model.gguf is a second file"), "{said}");
    assert!(said.contains("is given as --rerun=MODEL"), "{said}");
}

/// BitNet.rs's schema has our version's number, in its document's words and in shorter forms of it.
#[test]
fn a_receipt_of_the_predecessor_is_not_verifiable_and_says_what_it_claims() {
    let dir = TempDir::new().expect("a folder");
    let path = dir.path().join("inference.json");
    let whole = r#"{"schema_version": "1.0.0", "timestamp": "2025-10-22T12:34:56Z", "compute_path": "real",
        "backend": "cpu", "deterministic": true, "tokens_requested": 128, "tokens_generated": 128,
        "tokens_per_second": 0.5, "kernels": ["i2s_matmul"], "environment": {"BITNET_VERSION": "0.1.0",
        "OS": "linux-x86_64", "RUST_VERSION": "rustc 1.90.0"}, "model": {"path": "ggml-model-i2_s.gguf"}}"#;
    let short = r#"{"schema_version": "1.0.0", "compute_path": "real", "kernels": []}"#;
    // A receipt without kernels breaks a rule that BitNet.rs itself has.
    for (text, expected, begins) in [(whole, 2, "NOT VERIFIABLE  "), (short, 1, "REFUSED   ")] {
        fs::write(&path, text).expect("written");
        let (code, stdout, _) = output(&["verify-receipt", word(&path)]);
        assert_eq!(code, expected, "{stdout}");
        assert!(stdout.starts_with(begins), "{stdout}");
        assert!(stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{stdout}");
        let said = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.contains("kernel-ids it names no kernel"), text == short, "{said}");
        assert_eq!(
            said.contains("claims 0.5 tokens per second; 128 tokens generated; backend `cpu`;"),
            text == whole,
            "{said}"
        );
        assert!(
            said.contains("measured: it has neither raw times (`tests`) nor a hash (`seal`)"),
            "{said}"
        );
        let (_, json, _) = output(&["verify-receipt", word(&path), "--json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["accepted"], Value::Bool(false));
        assert_eq!(json["not_verifiable"]["compute_path"], "real");
        assert!(
            said.contains("as receipts of BitNet.rs, which are of a schema of their own"),
            "{said}"
        );
        // Where receipts are compared, too.
        let (code, _, said) = output(&["compare", word(&path), word(&path)]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("inference.json: it has neither raw times"), "{said}");
    }
    // One of ours without its seal is of our schema.
    let ours = fs::read_to_string(fixture()).expect("the fixture");
    let unsealed = &ours[..ours.find("\"seal\"").expect("a seal")];
    fs::write(&path, format!("{}}}", unsealed.trim_end().trim_end_matches(','))).expect("written");
    let (_, stdout, _) = output(&["verify-receipt", word(&path)]);
    assert!(stdout.contains("\n  unsealed\n"), "{stdout}");
}

#[test]
fn what_is_not_there_can_not_be_checked() {
    let (code, stdout, said) = output(&["verify-receipt", "no/such/receipt.json"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(said.starts_with("brickscope: no/such/receipt.json: "), "{said}");
    let path = fixture();
    let (code, _, said) = output(&["verify-receipt", word(&path), "--model", "no/such/model.gguf"]);
    assert_eq!(code, 2);
    assert!(said.starts_with("brickscope: no/such/model.gguf: "), "{said}");
    let (code, _, said) = output(&["verify-receipt", word(&path), "--signed-by", "me"]);
    assert_eq!(code, 2);
    assert!(said.contains("must be 64 hexadecimal digits"), "{said}");
}

#[test]
fn keys_sign_receipts() {
    let dir = TempDir::new().expect("a folder");
    let [receipt, key, other] = ["receipt.json", "key", "other"].map(|name| dir.path().join(name));
    fs::copy(fixture(), &receipt).expect("copied");
    let (code, public, _) = output(&["receipt", "keygen", word(&key)]);
    assert_eq!((code, public.len()), (0, 65), "{public}");
    let secret = fs::read_to_string(&key).expect("the key");
    assert_eq!((secret.len(), secret.lines().count()), (65, 1));
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(&key).expect("the key").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }
    // A key is never overwritten.
    let (code, _, said) = output(&["receipt", "keygen", word(&key)]);
    assert_eq!(code, 1, "{said}");
    assert_eq!(fs::read_to_string(&key).expect("the key"), secret);

    let (code, stdout, said) = output(&["receipt", "sign", word(&receipt), "--key", word(&key)]);
    assert_eq!(code, 0, "{said}");
    assert!(stdout.ends_with(&format!(" is signed by {public}")), "{stdout}");
    let (_, foreign, _) = output(&["receipt", "keygen", word(&other)]);
    for (key, expected) in [(&public, 0), (&foreign, 1)] {
        let (code, stdout, _) =
            output(&["verify-receipt", word(&receipt), "--signed-by", key.trim()]);
        assert_eq!(code, expected, "{stdout}");
        assert!(stdout.contains("\nSigned by:\n"), "{stdout}");
    }
    let (code, _, said) = output(&["receipt", "sign", word(&receipt), "--key", word(&receipt)]);
    assert_eq!(code, 1);
    assert!(said.contains("is not a key: a key file is one line of 64"), "{said}");

    let edited = fs::read_to_string(&receipt).expect("it").replace("\"tiny\"", "\"huge\"");
    fs::write(&receipt, &edited).expect("written");
    let (code, _, said) = output(&["receipt", "sign", word(&receipt), "--key", word(&key)]);
    assert_eq!(code, 1);
    assert!(said.contains("it was changed"), "{said}");
    assert_eq!(fs::read_to_string(&receipt).expect("it"), edited);
}

/// Checks only the tokens of a rerun, since a busy machine changes the rates.
#[test]
fn a_rerun_chooses_the_same_tokens() {
    let model =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-bitnet-TQ2_0.gguf");
    let dir = TempDir::new().expect("a folder");
    let run = dir.path().join("run");
    let (code, _, said) = output(&[
        "benchmark",
        word(&model),
        "--prompt-tokens=6",
        "--tokens=3",
        "--depth=0,5",
        "--repetitions=2",
        "--threads=1",
        "--backend=scalar",
        "--out",
        word(&run),
    ]);
    assert_eq!(code, 0, "{said}");
    let again = format!("--rerun={}", word(&model));
    let rerun = || {
        let (code, stdout, said) =
            output(&["verify-receipt", word(&run), &again, "--tolerance=100%", "--json"]);
        assert_ne!(code, 2, "{said}");
        let json: Value = serde_json::from_str(&stdout).expect("JSON");
        let tests: Vec<Value> = json["rerun"].as_array().expect(&stdout).clone();
        let names: Vec<&str> = tests.iter().filter_map(|test| test["test"].as_str()).collect();
        assert_eq!(names, ["pp6", "tg3", "pp6 @ d5", "tg3 @ d5"]);
        assert!(tests.iter().all(|test| test["rerun_median_ts"].as_f64() > Some(0.0)));
        let refusals = json["refusals"].as_array().expect("refusals").clone();
        let codes = refusals.into_iter().filter_map(|r| r["code"].as_str().map(str::to_owned));
        codes.filter(|code| code != "rerun-rate").collect::<Vec<String>>()
    };
    assert_eq!(rerun(), Vec::<String>::new());
    // Different tokens in the receipt, with a valid seal.
    let path = run.join("receipt.json");
    let mut receipt = Receipt::load(&path).expect("the receipt");
    receipt.tests[3].output_sha256 = sha256_hex(b"other tokens");
    receipt.sealed().and_then(|receipt| receipt.save(&path)).expect("saved");
    assert_eq!(rerun(), ["rerun-output"]);
}
