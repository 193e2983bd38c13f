//! Any text gives a consistent profile, as of NCCL's Inspector, or a readable error; and joined with itself one or the other.

use std::path::{Path, PathBuf};

use brickscope_analysis::view;
use brickscope_formats::export;
use brickscope_formats::import::{Format, Options, join, read};

/// Panics if that is not so.
pub fn run(text: &str) {
    match read(text, Path::new("fuzz.file"), Format::NcclInspector, &Options::default()) {
        Ok(profile) => {
            profile.check().expect("it adds up");
            let _ = (view::report(&profile), view::statistics(&profile));
            export::prometheus::write(&profile, &mut Vec::new()).expect("memory is written to");
            let both = [PathBuf::from("fuzz.file"), PathBuf::from("fuzz.other")];
            match join(both.map(|path| (path, profile.clone())).into()) {
                Ok(profile) => drop(view::report(&profile)),
                Err(error) => assert!(error.to_string().contains("fuzz.")),
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz.file")),
    }
}
