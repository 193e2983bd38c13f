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
    let mut n_files = 0;
    for entry in fs::read_dir(CORPUS).expect("the corpus is in the repository") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        n_files += 1;
        let result = parse(&fs::read(&path).unwrap(), Path::new(name));
        match result {
            Ok(_) => assert!(name.starts_with("ok-"), "{name} should be refused, but reads"),
            Err(error) => assert!(!name.starts_with("ok-"), "{error}"),
        }
    }
    assert!(n_files >= 40, "{n_files} files are left of the corpus");
}
