//! Replays the fuzzer's corpus: `ok-*` reads, all else is refused.
//!
//! Each file's name says what is in it. When the fuzzer finds a new one, its smallest form goes
//! there, under such a name.

use std::fs;
use std::path::Path;

use brickscope_engine::gguf::parse;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/gguf");

#[test]
fn ok_files_read_and_all_others_are_refused() {
    let Ok(entries) = fs::read_dir(CORPUS) else {
        eprintln!("skipped: no corpus at {CORPUS}");
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let result = parse(&fs::read(&path).unwrap(), Path::new(name));
        match result {
            Ok(_) => assert!(name.starts_with("ok-"), "{name} should be refused, but reads"),
            Err(error) => assert!(!name.starts_with("ok-"), "{error}"),
        }
    }
}
