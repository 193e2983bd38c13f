//! What a program noted of each kernel while a graph was captured, which some profilers write beside the
//! kernel.
//!
//! PyTorch's `torch.cuda.graph_annotations.mark_kernels` notes a dictionary for each node of a graph. Its
//! exporter adds the dictionary to the arguments of each kernel that has a `graph node id` of CUPTI, all
//! values as text: <https://github.com/pytorch/pytorch/pull/179768> (a tool that adds them to a file),
//! <https://github.com/pytorch/pytorch/pull/194854> (while the file is written). `name` is the region;
//! torchtitan calls it `module_fqn` (<https://github.com/pytorch/torchtitan/pull/2926>), and the first tool
//! called a bare text `str`.

use std::collections::{HashMap, HashSet};

use brickscope_profile::{GraphLayers, GraphLayersBy};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::inside::{Graph, Inside};
use super::stated::{Stated, layer_of_range};
use super::table::Found;
use super::{EventKind, Names};
use crate::import::trace::{Timed, Trace};
use crate::import::values::words;

/// What an event notes beside its link: of a kernel in a graph, what its program called it; of a call in the
/// trace of a capture, the kernel that it launches.
pub(in crate::import) fn note(
    kind: EventKind,
    args: Option<&RawValue>,
    is_capture: bool,
) -> Option<String> {
    #[derive(Deserialize)]
    struct Args<'a> {
        #[serde(borrow, default)]
        kernel: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "graph node id")]
        node: Option<&'a RawValue>,
        #[serde(borrow, default)]
        module_fqn: Option<&'a RawValue>,
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "str")]
        bare: Option<&'a RawValue>,
    }
    let args = args?.get();
    // Few events have either, and each look costs.
    let is_wanted = match kind {
        EventKind::Call => is_capture && args.contains("\"kernel\""),
        EventKind::Work => !is_capture && args.contains("\"graph node id\""),
        _ => false,
    };
    let args: Args<'_> = is_wanted.then(|| serde_json::from_str(args).ok()).flatten()?;
    let text = |value: Option<&RawValue>| {
        value
            .map(|value| words(Some(value)).into_owned())
            .filter(|text| !text.is_empty() && text != "None")
    };
    if kind == EventKind::Call {
        return text(args.kernel);
    }
    words(args.node).parse::<u64>().ok().filter(|&node| node > 0)?;
    let names = [args.module_fqn, args.name, args.bare].map(text);
    let has_layer = |name: &&String| layer_of_range(name).is_some();
    let best = names.iter().flatten().find(has_layer).or_else(|| names.iter().flatten().next());
    best.cloned()
}

/// Takes layers and bricks from the annotations of kernels in graphs.
pub(super) fn fill(
    inside: &mut Inside,
    graphs: &[Graph],
    trace: &Trace,
    timed: &[Timed],
    names: &mut Names<'_>,
) {
    let table = names.table;
    let mut seen: HashSet<u16> = HashSet::new();
    // Layer, expert and brick, since each layer's kernels have the same.
    let mut told: HashMap<&str, (Stated, Option<u16>)> = HashMap::new();
    let (mut kernels, mut of_kernels) = (0, 0);
    for &at in graphs.iter().flat_map(|graph| &graph.work) {
        of_kernels += 1;
        let Some(note) = timed.get(at).and_then(|event| trace.notes.of(event.link)) else {
            continue;
        };
        let (stated, brick) = *told.entry(note).or_insert_with(|| {
            let brick = match table.range(note) {
                Some(Found::Brick(brick)) => Some(names.brick(brick)),
                _ => None,
            };
            (Stated::by(note), brick)
        });
        kernels += u64::from(stated.layer.is_some());
        seen.extend(stated.layer);
        inside.add(at, stated.layer, brick);
        if let Some(expert) = stated.expert {
            inside.add_expert(at, expert);
        }
    }
    if kernels > 0 {
        let (by, layers) = (GraphLayersBy::Annotations, seen.len() as u32);
        let detail = String::new();
        inside.layers = Some(GraphLayers { by, layers, kernels, of_kernels, detail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: EventKind, args: &str, is_capture: bool) -> Option<String> {
        let args: Box<RawValue> = serde_json::from_str(args).expect("JSON");
        note(kind, Some(&args), is_capture)
    }

    #[test]
    fn annotations_are_of_nodes_of_graphs() {
        let noted =
            r#"{"graph node id": 4294967301, "name": "mlp", "module_fqn": "layers.3.mlp.w1"}"#;
        assert_eq!(of(EventKind::Work, noted, false).as_deref(), Some("layers.3.mlp.w1"));
        let noted = r#"{"graph node id": "7", "str": "L.model.layers.0.mlp", "name": "mlp"}"#;
        assert_eq!(of(EventKind::Work, noted, false).as_deref(), Some("L.model.layers.0.mlp"));
        for other in [
            r#"{"graph node id": 0, "name": "layers.3"}"#,
            r#"{"name": "layers.3"}"#,
            r#"{"graph node id": 5, "name": "None"}"#,
            r#"{"graph node id": 5}"#,
        ] {
            assert_eq!(of(EventKind::Work, other, false), None, "{other}");
        }
        let call = r#"{"kernel": "gemm", "correlation": 3}"#;
        assert_eq!(of(EventKind::Call, call, true).as_deref(), Some("gemm"));
        assert_eq!(of(EventKind::Call, call, false), None);
    }
}
