//! Files as they lie on a disk: packed, cut, longer than what is read as a whole.

use std::io::Write as _;
use std::path::Path;

use brickscope::Profile;
use brickscope_formats::import::{Format, ImportError, Options, packed_run, read_file};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::pytorch::GPU;
use super::{CANDLE, imported};

fn packed(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), level);
    gzip.write_all(bytes).expect("memory");
    gzip.finish().expect("memory")
}

/// What a file with these bytes is read as. The time at which it was read is not compared.
fn read_as(bytes: &[u8], format: Option<Format>) -> Result<Profile, ImportError> {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("a.file");
    std::fs::write(&path, bytes).expect("there is room");
    let read = read_file(&path, format, &Options::default());
    let profile = read.map_err(|error| ImportError { path: "a.file".into(), ..error })?;
    assert_eq!(profile.check(), Ok(()));
    Ok(of_file(profile))
}

fn of_file(mut profile: Profile) -> Profile {
    profile.created.clear();
    if let Some(imported) = &mut profile.imported {
        imported.file = "a.file".to_owned();
    }
    for rank in profile.ranks.iter_mut().flat_map(|ranks| &mut ranks.ranks) {
        rank.file = "a.file".to_owned();
    }
    profile
}

fn left_out(profile: &Profile, what: &str) -> u64 {
    let left_out = profile.imported.iter().flat_map(|imported| &imported.left_out);
    left_out.filter(|(why, _)| why.contains(what)).map(|(_, number)| number).sum()
}

#[test]
fn a_file_is_what_its_text_is() {
    for text in [GPU, CANDLE] {
        let of_text = of_file(imported(text, Format::Chrome));
        for bytes in [
            text.as_bytes().to_vec(),
            packed(text.as_bytes(), Compression::fast()),
            format!("\u{feff}{text}").into_bytes(),
            text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            // Two parts of gzip, as `cat` makes them of two files.
            [&text[..100], &text[100..]]
                .map(|part| packed(part.as_bytes(), Compression::fast()))
                .concat(),
        ] {
            for format in [None, Some(Format::Chrome)] {
                assert_eq!(read_as(&bytes, format).expect("a trace"), of_text);
            }
        }
    }
    let gone = read_file(Path::new("/nowhere/at/all"), None, &Options::default());
    assert!(gone.expect_err("it isn't there").to_string().starts_with("/nowhere/at/all: "));
}

#[test]
fn what_can_not_be_read_has_a_reason() {
    let unpacked = packed(CANDLE.as_bytes(), Compression::none());
    let mut wrong = unpacked.clone();
    wrong[300] ^= 1;
    for (bytes, format, why) in [
        (&b""[..], None, "a.file is empty: did the program"),
        (b"GGUF\x03", None, "a.file is a model (GGUF)"),
        (b"[{\"name\": \"a", None, "a.file: breaks off before it has an event or a test"),
        (b"words", None, "a.file: has none of the formats that can be detected"),
        (b"words", Some(Format::Chrome), "a.file, line 1 column 1: expected an array of trace"),
        (b"a\xffb", None, "a.file, byte 1: not UTF-8 text"),
        (&unpacked[..9], None, "a.file, a gzip file: "),
        (&wrong[..], None, "a.file, a gzip file: "),
        (b"a;b 1\n", None, "a.file: folded stacks don't state whether"),
    ] {
        let said = read_as(bytes, format).expect_err(why).to_string();
        assert!(said.starts_with(why), "{said}");
    }
}

#[test]
fn a_run_that_is_packed_is_told_from_what_other_programs_pack() {
    let folder = TempDir::new().expect("a temporary folder");
    let run = folder.path().join("profile.json");
    let path = folder.path().join("profile.json.gz");
    Profile::empty(Default::default()).save(&run).expect("there is room");
    let text = std::fs::read_to_string(&run).expect("it was written");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("there is room");
        packed_run(&path).map_err(|error| error.to_string())
    };
    let whole = packed(text.as_bytes(), Compression::fast());
    assert_eq!(read(&whole), Ok(Some(text.clone())));
    let said = read_file(&path, None, &Options::default()).expect_err("it is no trace").to_string();
    assert!(said.contains("is a run already: `brickscope show "), "{said}");
    // What it isn't, is for others to say.
    let trace = packed(CANDLE.as_bytes(), Compression::fast());
    for other in [text.as_bytes(), &trace[..], &b"\x1f\x8b\x08\0"[..]] {
        assert_eq!(read(other), Ok(None));
    }
    let long = text.clone() + &" \n".repeat(1 << 16);
    let cut = packed(long.as_bytes(), Compression::none());
    let why = read(&cut[..cut.len() - 100]).expect_err("it breaks off");
    assert!(why.contains("a gzip file: "), "{why}");
}

#[test]
fn a_byte_of_no_character_refuses_no_trace() {
    let mut bytes = CANDLE.as_bytes().to_vec();
    bytes[CANDLE.find("softmax").expect("a name")] = 0xff;
    let profile = read_as(&bytes, None).expect("a trace");
    assert!(profile.names.iter().any(|name| name.name == "\u{fffd}oftmax"));
    assert_eq!(read_as(&packed(&bytes, Compression::fast()), None), Ok(profile));
    // What is no JSON has its line.
    let bad = b"[{\"ph\":\"X\",\"name\":\"a\xff\",\"ts\":1,\"dur\":2},\n {]";
    let said = read_as(bad, None).expect_err("no JSON").to_string();
    assert_eq!(said, "a.file, line 2 column 3: key must be a string");
}

/// More than is read as a whole: with `functions` calls of functions of Python, an operation in each
/// hundredth. Long stacks make it as long with fewer of them.
fn long(functions: u32) -> String {
    let name = "torch/nn/modules/module.py(1775): _call_impl, of which there are many, and each one has a long name";
    let stack = "torch/nn/modules/linear.py(125): forward; ".repeat(20);
    let mut text = "{\"schemaVersion\": 1, \"traceEvents\": [\n".to_owned();
    for nth in 0..functions {
        text += &format!(
            "{{\"ph\":\"X\",\"cat\":\"python_function\",\"name\":\"{name}\",\"pid\":1,\"tid\":1,\"ts\":{}.5,\"dur\":8,\
             \"args\":{{\"Python id\":{nth},\"of\":\"{:x}\",\"stack\":\"{stack}\"}}}},\n",
            10 * nth,
            u64::from(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        );
        if nth % 100 == 0 {
            text += &format!(
                "{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":{},\"dur\":7}},\n",
                10 * nth + 1
            );
        }
    }
    text += "{\"ph\":\"i\",\"name\":\"end\"}], \"record_shapes\": 1}";
    text
}

#[test]
fn a_long_trace_is_read_event_by_event() {
    const FUNCTIONS: u32 = 70_000;
    let text = long(FUNCTIONS);
    assert!(text.len() > 64 << 20, "{}", text.len());
    let of_text = of_file(imported(&text, Format::Chrome));
    assert_eq!(left_out(&of_text, "functions of Python"), u64::from(FUNCTIONS));
    let bricks = of_text.bricks(None);
    let mm = bricks.iter().find(|total| total.stats.name == "MatMul").expect("products");
    assert_eq!((mm.stats.count, mm.stats.total_ns), (700, 700 * 7_000));
    // The first function began before the first operation.
    assert_eq!(of_text.spans[0].start_ns, 500);
    assert_eq!(read_as(text.as_bytes(), None).expect("a trace"), of_text);
    let gzip = packed(text.as_bytes(), Compression::fast());
    assert_eq!(read_as(&gzip, None).expect("a trace"), of_text);
    // Of one that breaks off what is whole is read.
    let part = read_as(&gzip[..gzip.len() - 1000], None).expect("the most of it");
    assert_eq!(left_out(&part, "where the gzip file breaks off"), 1);
    assert_eq!(left_out(&part, "which is truncated"), 1);
    let functions = left_out(&part, "functions of Python");
    assert!((1..u64::from(FUNCTIONS)).contains(&functions), "{functions}");
    // What is no JSON is named by its byte.
    let bad = text.replace("{\"ph\":\"i\"", "{]");
    let said = read_as(bad.as_bytes(), None).expect_err("no JSON").to_string();
    let byte = bad.find("{]").expect("it is there") + 2;
    assert_eq!(said, format!("a.file, byte {byte}: key must be a string"));
}
