//! Tests of reading `flamegraph.json`.

use brickscope_analysis::stacks::summary::{LIMIT, Summary};

use crate::flame::diff::tests::Made;

#[test]
fn what_was_written_is_read() {
    let made = Made::default().summary();
    let bytes = serde_json::to_vec(&made).unwrap();
    assert_eq!(Summary::from_json(&bytes), Ok(made));
}

#[test]
fn what_lies_in_no_block_is_read() {
    let mut made = Made::default().summary();
    let class = &mut made.classes[2];
    (class.weight, class.self_weight) = (class.weight + 70, class.self_weight + 70);
    made.total += 70;
    let bytes = serde_json::to_vec(&made).unwrap();
    assert_eq!(Summary::from_json(&bytes), Ok(made));
}

#[test]
fn a_file_of_many_functions_is_read_and_one_without_end_is_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let made = Made::default().summary();
    let mut bytes = serde_json::to_vec(&made).unwrap();
    bytes.resize(40 << 20, b' ');
    std::fs::write(file.path(), &bytes).unwrap();
    assert_eq!(Summary::load(file.path()), Ok(made));
    file.as_file().set_len(LIMIT.bytes + 1).unwrap();
    let said = Summary::load(file.path()).unwrap_err();
    assert!(said.starts_with("it has more than 64 MiB, "), "{said}");
}

#[test]
fn what_can_not_be_is_refused_with_a_sentence() {
    let made = Made::default().summary();
    let text = serde_json::to_string(&made).unwrap();
    let said = |text: &str| Summary::from_json(text.as_bytes()).unwrap_err();
    let cut = said(&text[..text.len() / 2]);
    assert!(cut.starts_with("a truncated flamegraph.json: it ends at byte "), "{cut}");
    assert!(said("[]").starts_with("not a flamegraph.json: "));
    let newer = text.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
    assert_eq!(said(&newer), "its schema_version is 2, and this brickscope reads 1");
    let more = text.replacen("\"total\":4000", "\"total\":400", 1);
    assert!(said(&more).ends_with("by itself, of 400 in all"), "{}", said(&more));
    let mut off = made;
    off.functions[0].by_block[0] += 1;
    let off = said(&serde_json::to_string(&off).unwrap());
    assert!(off.starts_with("`forward` weighs 3650, and 3651 in its"), "{off}");
}
