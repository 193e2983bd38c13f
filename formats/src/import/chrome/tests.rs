//! Traces read in pieces, with odd ends, fields and events.

use std::path::Path;

use super::*;

const GPU: &str = include_str!("../../../../tests/data/import/kineto-gpu.json");
const CANDLE: &str = include_str!("../../../../tests/data/import/candle.json");
const STACK: &str = include_str!("../../../../tests/data/import/pytorch-stack.json");

/// What a trace comes to if it is read in pieces of so many bytes.
fn in_pieces(text: &[u8], piece: usize, options: &Options) -> Result<Profile, String> {
    let at = At { path: Path::new("a.json") };
    let values = Values::new(text, piece);
    let read = read_values(values, &at, options, |byte| format!("byte {byte}"));
    // It may be of now.
    let undated = |profile: Profile| Profile { created: String::new(), ..profile };
    read.map(undated).map_err(|error| error.to_string())
}

#[test]
fn a_trace_is_the_same_in_pieces_of_any_size() {
    let odd = GPU.replacen("\"queued\":0", "\"queued\":nan", 1);
    let odd = odd.replacen("my_triton", "my\u{1}triton", 1).into_bytes();
    let cut = &GPU.as_bytes()[..GPU.len() * 2 / 3];
    let mut bad = GPU.as_bytes().to_vec();
    bad.truncate(GPU.len() / 2);
    bad.extend(b"]]");
    let behind_log = [&b"INFO a\n[INFO] b\n"[..], GPU.as_bytes()].concat();
    for text in [GPU.as_bytes(), CANDLE.as_bytes(), &odd[..], cut, &bad[..], &behind_log[..]] {
        let whole = in_pieces(text, 1 << 20, &Options::default());
        for piece in (1..40).chain([1000, 4096]) {
            assert_eq!(in_pieces(text, piece, &Options::default()), whole, "{piece}");
        }
    }
}

#[test]
fn functions_of_python_are_counted_and_change_nothing_else() {
    let options = Options { decode: Some("decode".to_owned()), ..Options::default() };
    let profile = in_pieces(STACK.as_bytes(), PIECE, &options).expect("a trace");
    let left_out = profile.imported.clone().expect("of a file").left_out;
    let functions = STACK.matches("\"python_function\"").count() as u64;
    let modules = STACK.matches("nn.Module: ").count() as u64;
    let expected = ("functions of Python that aren't modules".to_owned(), functions - modules);
    assert!(expected.1 > 0 && left_out.contains(&expected), "{left_out:?}");
    // They are named, if an error names what there is.
    let of_one = r#"[{"ph":"X","cat":"python_function","name":"a.py(1): f","pid":1,"tid":1,"ts":1,"dur":5}]"#;
    let said = in_pieces(of_one.as_bytes(), PIECE, &options).expect_err("it has no such event");
    assert!(said.ends_with("which should be a decode pass; it has `a.py(1): f`"), "{said}");
    // The first of them is when all began.
    let with = |ts: u32| {
        let event = format!(
            r#",{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{ts},"dur":2}}]"#
        );
        let text = of_one.replace(']', &event);
        in_pieces(text.as_bytes(), PIECE, &Options::default()).expect("a trace").spans[0]
    };
    assert_eq!((with(1).start_ns, with(3).start_ns), (0, 2_000));
    // One that a pattern chooses is found.
    let pass = Options { decode: Some("a.py*".to_owned()), ..Options::default() };
    assert!(in_pieces(of_one.as_bytes(), PIECE, &pass).is_ok());
}

#[test]
fn fields_are_kept_wherever_they_stand() {
    let event = r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":5}"#;
    for text in [
        format!(r#"{{"traceName":nan,"with_stack": 1,"traceEvents":[{event}]}}"#),
        format!(r#"{{"traceEvents":[{event}],"with_stack":1 , "traceName":"x"}} "#),
    ] {
        let read = in_pieces(text.as_bytes(), 3, &Options::default()).expect("a trace");
        let imported = read.imported.expect("of a file");
        assert_eq!(imported.program.as_deref(), Some("PyTorch's profiler"), "{text}");
        assert_eq!(imported.conditions, [("with".to_owned(), "with_stack".to_owned())]);
    }
    for (text, why) in [
        (format!("[{event}] x"), ", byte 56: there is more behind its end"),
        (format!("[{event} {event}]"), ", byte 55: expected `,` or `]`"),
        (r#"{"traceEvents": 5}"#.to_owned(), ", byte 17: expected an array of trace events"),
        (format!("[{event},5]"), ""),
        ("[5]".to_owned(), ", event 1: it is no object"),
        (r#"[{"ph":"X","ph":"X"}]"#.to_owned(), ", event 1: duplicate field `ph`"),
        ("[".to_owned(), ", byte 1: breaks off before it has an event with a duration"),
    ] {
        match in_pieces(text.as_bytes(), 5, &Options::default()) {
            Ok(profile) => {
                let left_out = profile.imported.expect("of a file").left_out;
                assert_eq!(why, "", "{text}");
                assert!(left_out[0].0.ends_with("event 2: it is no object"), "{left_out:?}");
            }
            Err(said) => {
                assert!(!why.is_empty() && said.starts_with(&format!("a.json{why}")), "{said}");
            }
        }
    }
}
