//! Any text gives a consistent profile, with or without passes, or a readable error.

use std::path::Path;

use brickscope_analysis::import::{Format, Options, read};
use brickscope_analysis::{export, view};

/// Panics if that is not so.
pub(crate) fn run(text: &str) {
    let passes = Options { decode: Some("model".to_owned()), ..Options::default() };
    for options in [Options::default(), passes] {
        match read(text, Path::new("fuzz.file"), Format::Chrome, &options) {
            Ok(profile) => {
                profile.check().expect("it adds up");
                let _ = (view::report(&profile), view::statistics(&profile));
                let graphs =
                    profile.passes.iter().filter_map(|p| profile.execution_graph(p.serial));
                graphs.for_each(|graph| drop(view::critical_path(&graph, &[])));
                export::prometheus::write(&profile, &mut Vec::new()).expect("memory is written to");
                export::otlp::write(&profile, &mut Vec::new()).expect("memory is written to");
            }
            Err(error) => assert!(error.to_string().contains("fuzz.file")),
        }
    }
}
