//! Any text is either a profile, of which every view is text, or an error that can be read aloud.
#![no_main]

use std::path::Path;

use brickscope::{Profile, TreeOptions, view};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Profile::from_json(text, Path::new("fuzz.json")) {
        Ok(profile) => {
            let _ = (profile.check(), profile.without_disturbed());
            let _ = (view::report(&profile), view::statistics(&profile));
            let _ = (view::kernels(&profile), view::json(&profile));
            let _ = (view::roofline(&profile), view::roofline_svg(&profile));
            let recorded = profile.passes.iter().filter_map(|p| profile.execution_graph(p.serial));
            for graph in recorded.chain(profile.graph.clone()) {
                let folded = TreeOptions { fold: true, ..TreeOptions::default() };
                let _ = (graph.to_ascii_tree(), graph.to_tree(&folded), graph.to_dot());
                let _ = (graph.critical_path_summary(), view::critical_path(&graph, &[]));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz.json")),
    }
});
