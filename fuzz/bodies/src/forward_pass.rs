//! Any text gives a consistent profile, as of records of forward passes, or a readable error.

use std::path::Path;

use brickscope_analysis::view;
use brickscope_formats::export;
use brickscope_formats::import::{Format, Options, read};

/// Panics if that is not so.
pub fn run(text: &str) {
    match read(text, Path::new("fuzz.file"), Format::ForwardPassMetrics, &Options::default()) {
        Ok(profile) => {
            profile.check().expect("it adds up");
            let _ = (view::report(&profile), view::statistics(&profile), view::requests(&profile));
            export::prometheus::write(&profile, &mut Vec::new()).expect("memory is written to");
        }
        Err(error) => assert!(error.to_string().contains("fuzz.file")),
    }
}
