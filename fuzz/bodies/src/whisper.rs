//! Any bytes are a model of whisper.cpp, another kind of file, or a readable error.

use std::io::Cursor;

use brickscope_llama::whisper::Whisper;

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    match Whisper::read(Cursor::new(bytes)) {
        Ok(Some(of)) => {
            let held: u64 = of.weights.iter().map(|weight| weight.bytes).sum();
            assert!(held <= bytes.len() as u64, "{held} bytes of weights");
        }
        Ok(None) => assert!(bytes.get(..4) != Some(b"lmgg")),
        Err(error) => assert!(error.to_string().starts_with("byte "), "{error}"),
    }
}
