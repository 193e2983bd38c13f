//! Any bytes give a verdict with readable sentences.

use brickscope_analysis::receipt::{Options, Receipt, rerun_agrees, verify};

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    let options =
        Options { require_gpu_kernels: bytes.len().is_multiple_of(2), ..Options::default() };
    let verdict = verify(bytes, &options);
    for refusal in &verdict.refusals {
        let sentence = refusal.to_string();
        assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control));
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(receipt) = Receipt::from_json(&text, "fuzz.json".as_ref()) {
        let _ = rerun_agrees(&receipt, &receipt, 0.1, &[]);
        // A forger seals the changes, so the checks behind the hash must be reached, too.
        if let Ok(sealed) = receipt.sealed() {
            let _ = verify(sealed.to_json().as_bytes(), &options);
        }
    }
}
