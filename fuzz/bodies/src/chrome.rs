//! Any text gives a consistent profile, with or without passes, or a readable error.

use std::path::Path;

use brickscope_analysis::view;
use brickscope_formats::export;
use brickscope_formats::import::{Format, Map, Options, read};

/// Panics if that is not so.
pub fn run(text: &str) {
    let passes = Options { decode: Some("model".to_owned()), ..Options::default() };
    // Before a line of its own, a table of bricks.
    let (map, text) = text.split_once("\n---\n").unwrap_or(("", text));
    let map = Map { path: "fuzz.file".into(), text: map.to_owned() };
    let steps = Options {
        prefill: Some("P*[1]".to_owned()),
        decode: Some("*e*[args.name=*][2..]".to_owned()),
        map: Some(map),
        ..Options::default()
    };
    let mut before = None;
    for options in [Options::default(), passes, steps] {
        match read(text, Path::new("fuzz.file"), Format::Chrome, &options) {
            Ok(profile) => {
                // What is equal looks alike.
                if before.as_ref() == Some(&profile) {
                    continue;
                }
                profile.check().expect("it adds up");
                let _ = (view::report(&profile), view::statistics(&profile));
                let graphs =
                    profile.passes.iter().filter_map(|p| profile.execution_graph(p.serial));
                graphs.for_each(|graph| drop(view::critical_path(&graph, &[])));
                export::prometheus::write(&profile, &mut Vec::new()).expect("memory is written to");
                export::otlp::write(&profile, &mut Vec::new()).expect("memory is written to");
                before = Some(profile);
            }
            Err(error) => assert!(error.to_string().contains("fuzz.file")),
        }
    }
}
