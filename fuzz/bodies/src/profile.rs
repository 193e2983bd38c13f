//! Any text gives a profile that every view can show, or a readable error.

use std::path::Path;

use brickscope::{DotOptions, Profile, TreeOptions};
use brickscope_analysis::view;

/// Panics if that is not so.
pub fn run(text: &str) {
    match Profile::from_json(text, Path::new("fuzz.json")) {
        Ok(profile) => {
            let _ = (profile.check(), profile.without_disturbed());
            let _ = (view::report(&profile), view::statistics(&profile));
            let _ = view::summary(&profile, view::Size::default(), None).to_string();
            let _ = (view::kernels(&profile), view::json(&profile));
            let _ = (view::roofline(&profile), view::roofline_svg(&profile));
            for (index, device) in profile.devices.iter().enumerate() {
                let _ = (device.busy(None), device.drift(), device.untimed_passes());
                let streams = (0..device.streams.len()).map(|s| profile.on_device(index, s));
                for on in streams.chain([profile.whole_device(index)]).flatten() {
                    let graphs = on.passes.iter().filter_map(|p| on.execution_graph(p.serial));
                    graphs
                        .for_each(|graph| drop((graph.to_dot(), view::critical_path(&graph, &[]))));
                    let _ = (on.check(), view::report(&on));
                }
            }
            let recorded = profile.passes.iter().filter_map(|p| profile.execution_graph(p.serial));
            for graph in recorded.chain(profile.graph.clone()) {
                let folded = TreeOptions { fold: true, ..TreeOptions::default() };
                let _ = (graph.to_ascii_tree(), graph.to_tree(&folded), graph.to_dot());
                let _ = graph.to_dot_with(&DotOptions { fold: true, layer: None });
                let _ = (graph.critical_path_summary(), view::critical_path(&graph, &[]));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz.json")),
    }
}
