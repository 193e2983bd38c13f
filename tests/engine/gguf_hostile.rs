//! Malformed files, and their error messages. Each is built here, byte by byte.

use std::path::Path;

use brickscope_engine::gguf::{Gguf, parse};

/// A file in the making. Texts get their length in front.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn header(n_tensors: u64, n_metadata: u64) -> Self {
        Self::default().raw(b"GGUF").u32(3).u64(n_tensors).u64(n_metadata)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }

    fn text(self, text: impl AsRef<[u8]>) -> Self {
        self.u64(text.as_ref().len() as u64).raw(text.as_ref())
    }

    /// A tensor of type F32 by default.
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let named = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(named, |bytes, &dim| bytes.u64(dim)).u32(kind).u64(offset)
    }

    /// Padding to 32, then `n` bytes of data.
    fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }

    fn zeros(self, n: usize) -> Self {
        self.raw(&vec![0; n])
    }
}

#[track_caller]
fn check(bytes: Bytes, sentence: &str) {
    let error = parse(&bytes.0, Path::new("m.gguf")).expect_err("this file should be refused");
    assert_eq!(error.to_string(), sentence);
}

const F32: u32 = 0;
const Q4_K: u32 = 12;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

#[test]
fn another_format_is_named_by_its_first_bytes() {
    check(
        Bytes::default().raw(b"PK\x03\x04 and so on"),
        r#"m.gguf is not a GGUF file: it begins with "PK\x03\x04" where "GGUF" should be (byte 0)"#,
    );
}

#[test]
fn an_empty_file_is_short() {
    check(
        Bytes::default(),
        "m.gguf: the magic \"GGUF\" at byte 0 takes 4 bytes, but the file has 0 left: was the download cut short?",
    );
}

#[test]
fn other_versions_are_refused_each_for_its_own_reason() {
    let version = |version: u32| Bytes::default().raw(b"GGUF").u32(version).zeros(16);
    check(
        version(1),
        "m.gguf has GGUF version 1 (byte 4), which was replaced in 2023 and is not read: convert the original model again",
    );
    check(
        version(3u32.swap_bytes()),
        "m.gguf is a big-endian GGUF file (its version, at byte 4, reads 0x03000000), and brickscope reads only little-endian \
         ones: convert it with `gguf_convert_endian.py <file> little`",
    );
    check(version(4), "m.gguf has GGUF version 4 (byte 4), but brickscope knows only 2 and 3");
    check(version(0), "m.gguf has GGUF version 0 (byte 4), but brickscope knows only 2 and 3");
}

#[test]
fn version_2_is_read_like_version_3() {
    let bytes =
        Bytes::default().raw(b"GGUF").u32(2).u64(1).u64(0).tensor("t", &[4], F32, 0).data(16);
    let model = Gguf::from_bytes(bytes.0, "m.gguf").unwrap();
    assert_eq!(model.version, 2);
    assert_eq!(model.bytes(model.tensor("t").unwrap()).len(), 16);
}

#[test]
fn counts_that_the_file_has_no_room_for() {
    check(
        Bytes::header(u64::MAX, 0).zeros(40),
        "m.gguf: the header promises 18446744073709551615 tensors (byte 8), which take at least 442721857769029238760 bytes, \
         but the file has 40 left: was the download cut short?",
    );
    check(
        Bytes::header(0, 4).zeros(40),
        "m.gguf: the header promises 4 metadata entries (byte 16), which take at least 52 bytes, but the file has 40 left: \
         was the download cut short?",
    );
}

#[test]
fn a_key_longer_than_the_file() {
    check(
        Bytes::header(0, 1).u64(1 << 60).zeros(20),
        "m.gguf: the key of metadata entry 0 at byte 32 takes 1152921504606846976 bytes, but the file has 20 left: was the \
         download cut short?",
    );
}

#[test]
fn a_key_that_is_not_utf8() {
    check(
        Bytes::header(0, 1).text(b"ab\xff").u32(0).zeros(9),
        "m.gguf: the key of metadata entry 0 at byte 34 is not valid UTF-8",
    );
}

#[test]
fn a_key_without_a_name() {
    check(
        Bytes::header(0, 1).text("").u32(0).zeros(9),
        "m.gguf: metadata entry 0 at byte 24 has an empty key",
    );
}

#[test]
fn a_key_that_is_there_twice() {
    check(
        Bytes::header(0, 2).text("a").u32(0).raw(&[1]).text("a").u32(0).raw(&[2]),
        "m.gguf: the key `a` is there twice, the second time at byte 38",
    );
}

#[test]
fn a_key_cannot_speak_to_the_terminal() {
    check(
        Bytes::header(0, 1).text("a\x1b[2J").u32(77).zeros(9),
        "m.gguf: `a\\u{1b}[2J` has value type 77 at byte 37, but GGUF's types are 0 to 12",
    );
}

#[test]
fn a_value_type_that_does_not_exist() {
    check(
        Bytes::header(0, 1).text("k").u32(13).zeros(9),
        "m.gguf: `k` has value type 13 at byte 33, but GGUF's types are 0 to 12",
    );
    check(
        Bytes::header(0, 1).text("k").u32(ARRAY).u32(99).u64(1).zeros(9),
        "m.gguf: `k` has value type 99 at byte 37, but GGUF's types are 0 to 12",
    );
}

#[test]
fn an_array_of_arrays() {
    check(
        Bytes::header(0, 1).text("k").u32(ARRAY).u32(ARRAY).u64(1).zeros(20),
        "m.gguf: `k` is an array of arrays (byte 37), which no model needs and brickscope does not read",
    );
}

#[test]
fn an_array_longer_than_the_file() {
    check(
        Bytes::header(0, 1).text("k").u32(ARRAY).u32(12).u64(u64::MAX).zeros(20),
        "m.gguf: the array of `k` at byte 49 takes 147573952589676412920 bytes, but the file has 20 left: was the download cut \
         short?",
    );
    check(
        Bytes::header(0, 1).text("k").u32(ARRAY).u32(STRING).u64(1 << 61).zeros(20),
        "m.gguf: the array of `k` at byte 49 takes 18446744073709551616 bytes, but the file has 20 left: was the download cut \
         short?",
    );
}

#[test]
fn a_string_longer_than_the_file() {
    check(
        Bytes::header(0, 1).text("k").u32(STRING).u64(21).zeros(20),
        "m.gguf: the value of `k` at byte 45 takes 21 bytes, but the file has 20 left: was the download cut short?",
    );
}

#[test]
fn a_token_that_is_not_utf8() {
    check(
        Bytes::header(0, 1)
            .text("tokens")
            .u32(ARRAY)
            .u32(STRING)
            .u64(2)
            .text("fine")
            .text(b"\xc3("),
        "m.gguf: element 1 of `tokens` at byte 74 is not valid UTF-8",
    );
}

#[test]
fn an_alignment_that_is_not_a_power_of_two() {
    for alignment in [0, 3, 33] {
        check(
            Bytes::header(0, 1).text("general.alignment").u32(4).u32(alignment),
            &format!(
                "m.gguf: `general.alignment` is {alignment} (byte 53), but must be a power of two"
            ),
        );
    }
    check(
        Bytes::header(0, 1).text("general.alignment").u32(6).u32(0),
        "m.gguf: `general.alignment` should be u32, but is f32 (byte 53)",
    );
}

#[test]
fn an_alignment_of_two_gigabytes_is_only_a_number() {
    let bytes = Bytes::header(1, 1)
        .text("general.alignment")
        .u32(4)
        .u32(1 << 31)
        .tensor("t", &[1], F32, 0)
        .zeros(64);
    check(
        bytes,
        "m.gguf: tensor `t` ends at byte 2147483652, but the file has 154: was the download cut short?",
    );
}

#[test]
fn a_part_of_a_split_model() {
    check(
        Bytes::header(0, 1).text("split.count").u32(2).raw(&[3, 0]),
        "m.gguf is one of the 3 parts of a split model (`split.count`, byte 47), and brickscope reads only whole ones: join the \
         parts with `llama-gguf-split --merge`",
    );
    let whole = Bytes::header(0, 1).text("split.count").u32(2).raw(&[1, 0]);
    assert!(parse(&whole.0, Path::new("m.gguf")).is_ok());
}

#[test]
fn a_tensor_name_longer_than_ggml_allows() {
    check(
        Bytes::header(1, 0).tensor(&"x".repeat(64), &[1], F32, 0).data(4),
        "m.gguf: the name of tensor 0 has 64 bytes (byte 24), but at most 63 are allowed",
    );
    let longest = Bytes::header(1, 0).tensor(&"x".repeat(63), &[1], F32, 0).data(4);
    assert!(parse(&longest.0, Path::new("m.gguf")).is_ok());
}

#[test]
fn a_tensor_name_that_is_not_utf8() {
    check(
        Bytes::header(1, 0).text(b"\xff").u32(1).u64(1).u32(F32).u64(0).data(4),
        "m.gguf: the name of tensor 0 at byte 32 is not valid UTF-8",
    );
}

#[test]
fn a_tensor_that_is_there_twice() {
    check(
        Bytes::header(2, 0).tensor("t", &[8], F32, 0).tensor("t", &[8], F32, 32).data(64),
        "m.gguf: the tensor `t` is there twice, the second time at byte 57",
    );
}

#[test]
fn too_few_or_too_many_dimensions() {
    check(
        Bytes::header(1, 0).tensor("t", &[], F32, 0).data(4),
        "m.gguf: tensor `t` has 0 dimensions (byte 33), but must have 1 to 4",
    );
    check(
        Bytes::header(1, 0).tensor("t", &[1; 5], F32, 0).data(4),
        "m.gguf: tensor `t` has 5 dimensions (byte 33), but must have 1 to 4",
    );
}

#[test]
fn a_dimension_of_zero() {
    check(
        Bytes::header(1, 0).tensor("t", &[4, 0], F32, 0).data(16),
        "m.gguf: tensor `t` is empty: its dimension 1 is 0 (byte 45)",
    );
}

#[test]
fn dimensions_whose_product_overflows() {
    check(
        Bytes::header(1, 0).tensor("t", &[1 << 32, 1 << 32], F32, 0).data(16),
        "m.gguf: tensor `t` of 4294967296 × 4294967296 has more bytes than can be counted (byte 37)",
    );
    check(
        Bytes::header(1, 0).tensor("t", &[1 << 62], F32, 0).data(16),
        "m.gguf: tensor `t` of 4611686018427387904 has more bytes than can be counted (byte 37)",
    );
}

#[test]
fn a_tensor_type_that_nobody_knows() {
    check(
        Bytes::header(1, 0).tensor("blk.0.attn_q.weight", &[256], 4, 0).data(16),
        "m.gguf: tensor `blk.0.attn_q.weight` has type 4 (byte 63), which brickscope does not know",
    );
}

#[test]
fn rows_that_are_not_whole_blocks() {
    check(
        Bytes::header(1, 0).tensor("t", &[128, 2], Q4_K, 0).data(144),
        "m.gguf: tensor `t` has rows of 128 (byte 37), but Q4_K stores 256 numbers together",
    );
}

#[test]
fn an_offset_between_two_multiples_of_the_alignment() {
    check(
        Bytes::header(1, 0).tensor("t", &[1], F32, 4).data(16),
        "m.gguf: tensor `t` begins at 4 in the data section (byte 49), which is not a multiple of the alignment, 32",
    );
}

#[test]
fn tensors_that_overlap_or_leave_a_hole() {
    check(
        Bytes::header(2, 0).tensor("a", &[9], F32, 0).tensor("b", &[8], F32, 32).data(96),
        "m.gguf: tensor `b` begins at 32 in the data section (byte 82), but the tensors before it end at 64",
    );
    check(
        Bytes::header(2, 0).tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 64).data(96),
        "m.gguf: tensor `b` begins at 64 in the data section (byte 82), but the tensors before it end at 32",
    );
    check(
        Bytes::header(1, 0).tensor("a", &[8], F32, u64::MAX - 31).data(96),
        "m.gguf: tensor `a` begins at 18446744073709551584 in the data section (byte 49), but the tensors before it end at 0",
    );
}

#[test]
fn a_tensor_past_the_end_of_the_file() {
    check(
        Bytes::header(1, 0).tensor("blk.3.attn_q.weight", &[1021], F32, 0).data(4000),
        "m.gguf: tensor `blk.3.attn_q.weight` ends at byte 4180, but the file has 4096: was the download cut short?",
    );
}

#[test]
fn a_file_that_is_not_there() {
    let error = Gguf::open(Path::new("no/such/model.gguf")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open no/such/model.gguf: No such file or directory (os error 2)"
    );
}

#[test]
#[cfg(unix)]
fn a_folder_is_not_a_model() {
    let error = Gguf::open(Path::new("reference")).unwrap_err();
    assert_eq!(error.to_string(), "cannot open reference: is a directory");
}

#[test]
fn getters_say_what_they_wanted_and_what_they_found() {
    let bytes = Bytes::header(0, 4)
        .text("int")
        .u32(5)
        .u32(-7i32 as u32)
        .text("text")
        .u32(STRING)
        .text("hello")
        .text("ints")
        .u32(ARRAY)
        .u32(2)
        .u64(2)
        .raw(&[1, 0, 255, 255])
        .text("wide")
        .u32(12)
        .raw(&0.5f64.to_le_bytes());
    let model = Gguf::from_bytes(bytes.0, "m.gguf").unwrap();
    let metadata = &model.metadata;
    let says = |error: brickscope_engine::gguf::Error| error.to_string();

    assert_eq!(metadata.i32("int").unwrap(), -7);
    assert_eq!(
        says(metadata.u32("int").unwrap_err()),
        "m.gguf: `int` should be u32, but -7 does not fit (byte 39)"
    );
    assert_eq!(
        says(metadata.opt_u64("text").unwrap_err()),
        "m.gguf: `text` should be u64, but is string (byte 59)"
    );
    assert_eq!(
        says(metadata.u32("gone").unwrap_err()),
        "m.gguf has no `gone`, which the model needs"
    );
    assert_eq!(metadata.opt_u32("gone").unwrap(), None);
    assert_eq!(metadata.u32s("ints").unwrap(), [1, 65535]);
    assert_eq!(
        says(metadata.strings("ints").unwrap_err()),
        "m.gguf: `ints` should be array of string, but is array of u16 (byte 88)"
    );
    assert_eq!(metadata.f32("wide").unwrap(), 0.5);
    assert_eq!(
        says(metadata.bool("int").unwrap_err()),
        "m.gguf: `int` should be bool, but is i32 (byte 39)"
    );
}
