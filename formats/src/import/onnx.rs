//! Profiles of ONNX Runtime (`enable_profiling`): Chrome's trace events, with one of category `Node` for each operation of
//! the model's graph, and a `model_run` around those of each run.
//! <https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html>
//!
//! A node is named by the path of its module, which tells layer and brick, and states its operation. Runs are written behind
//! their nodes, so [`resolve`] comes last.

use std::collections::HashMap;

use brickscope_profile::Phase;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::kineto::{EventKind, LISTS, OPERATION, Table};
use super::trace::{Timed, Trace, bit};
use super::values::words;

/// The category of events that are operations.
pub(super) const CATEGORY: &str = "Node";

/// The event that is a run of the model.
const RUN: &str = "model_run";

/// What the name of an operation's event ends with.
const COMPUTED: &str = "_kernel_time";

/// The same of events in which an operation waits for others, as older versions write them.
const FENCES: [&str; 2] = ["_fence_before", "_fence_after"];

/// What waiting is called, as an operation.
const FENCE: &str = "Fence";

/// The norm behind the last layer, which onnxruntime-genai puts into a layer more than there are.
const FINAL_NORM: &str = "final_norm_layernorm";

/// The most parts of a path that the table is asked for.
const MOST_PARTS: usize = 16;

/// No run computes more positions of a sequence.
const MOST_POSITIONS: u64 = 1 << 24;

/// Operations whose first input are the queries of attention.
const ATTENTIONS: [&str; 6] = [
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "SparseAttention",
    "DecoderMaskedSelfAttention",
    "DecoderMaskedMultiHeadAttention",
];

/// The operations of a trace.
#[derive(Default)]
pub(super) struct Nodes {
    /// An index into the events of the trace, and the operation's number among its names.
    nodes: Vec<(usize, u32)>,
    /// What the shapes of some of them tell, by the same index.
    queries: Vec<(usize, Query)>,
}

/// How many positions of each sequence are computed, and of how many sequences, if that is told, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Query {
    positions: u64,
    sequences: Option<u64>,
}

impl Nodes {
    /// Whether a trace is ONNX Runtime's.
    pub(super) fn is_it(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Notes what the arguments of an event of [`CATEGORY`] tell.
    pub(super) fn note(&mut self, trace: &mut Trace, event: usize, args: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Args<'a> {
            #[serde(borrow, default)]
            op_name: Option<&'a RawValue>,
            #[serde(borrow, default)]
            input_type_shape: Option<&'a RawValue>,
        }
        let args = args.and_then(|args| serde_json::from_str::<Args<'_>>(args.get()).ok());
        let timed = trace.timed.get(event);
        let name = timed.and_then(|timed| trace.names.get(timed.name as usize));
        let (Some(args), Some(name)) = (args, name) else { return };
        let op = words(args.op_name);
        let (path, is_fence) = path_of(name);
        if op.is_empty() || path.len() == name.len() {
            return;
        }
        if !is_fence && let Some(query) = query(path, &op, args.input_type_shape) {
            self.queries.push((event, query));
        }
        let op = trace.name(if is_fence { FENCE } else { &op });
        self.nodes.push((event, op));
    }
}

/// The path in the name of an operation's event, and whether the operation waits there.
fn path_of(name: &str) -> (&str, bool) {
    match FENCES.iter().find_map(|end| name.strip_suffix(*end)) {
        Some(path) => (path, true),
        None => (name.strip_suffix(COMPUTED).unwrap_or(name), false),
    }
}

/// What the shapes of an operation's inputs tell of its run. Weights that were packed beforehand aren't among them.
fn query(path: &str, op: &str, shapes: Option<&RawValue>) -> Option<Query> {
    let has = |words: &[&str]| words.iter().any(|word| path.contains(word));
    let is_attention = ATTENTIONS.contains(&op);
    let is_softmax = op == "Softmax" && has(&["attn", "attention"]);
    let is_product = op.contains("MatMul") && has(&["q_proj", "qkv", "c_attn"]);
    let is_lookup = op.starts_with("Gather") && has(&["embed", "wte"]);
    if !(is_attention || is_softmax || is_product || is_lookup) {
        return None;
    }
    let shapes: Vec<HashMap<String, Vec<u64>>> = serde_json::from_str(shapes?.get()).ok()?;
    let tensors: Vec<(String, Vec<u64>)> = shapes.into_iter().flatten().collect();
    let (of, dims) = tensors.first()?;
    let is_index = |of: &str| matches!(of, "int64" | "int32");
    let (sequences, positions) = match (dims.as_slice(), tensors.get(1)) {
        (&[_, _], Some((indices, at))) if is_lookup && is_index(indices) && !is_index(of) => {
            let &[sequences, positions] = at.as_slice() else { return None };
            (Some(sequences), positions)
        }
        _ if is_lookup => return None,
        (&[sequences, positions, _], _) if !is_softmax => (Some(sequences), positions),
        // By heads.
        (&[sequences, _, positions, _], _) if !is_product => (Some(sequences), positions),
        (&[.., positions, _], _) if is_softmax => (None, positions),
        _ => return None,
    };
    (1..=MOST_POSITIONS).contains(&positions).then_some(Query { positions, sequences })
}

/// Tells what events are: operations by their modules, and the phase of each run, unless the user says which are passes.
pub(super) fn resolve(trace: &mut Trace, nodes: &Nodes, table: &Table, are_passes_given: bool) {
    for event in &mut trace.timed {
        match (event.kind, event.link) {
            // What is in a branch or a loop is a brick of its own, which as an operation it wouldn't be.
            (EventKind::Op, _) => event.kind = EventKind::Range,
            // A session is of one device, whose number isn't stated.
            (EventKind::Work, Some(link)) => {
                if let Some(link) = trace.links.get_mut(link as usize) {
                    link.device = 0;
                }
            }
            _ => {}
        }
    }
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    for &(at, op) in &nodes.nodes {
        let Some(event) = trace.timed.get(at) else { continue };
        let key = (event.name, op);
        let name = match known.get(&key) {
            Some(&name) => name,
            None => {
                let path = &trace.names[key.0 as usize];
                let name = scope(path, &trace.names[op as usize], table);
                let name = trace.name(&name);
                known.insert(key, name);
                name
            }
        };
        trace.timed[at].name = name;
    }
    if !are_passes_given {
        tell_phases(trace, &nodes.queries);
    }
}

/// What an operation is, as the name of a range that the table knows: its module, `model.layers.3.self_attn.q_proj`, or else
/// the operation in it, `model.layers.3.self_attn.onnx::Softmax`.
fn scope(name: &str, op: &str, table: &Table) -> String {
    let (path, is_fence) = path_of(name);
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.contains(&FINAL_NORM) {
        parts.retain(|part| !part.split('.').any(|word| LISTS.contains(&word)));
    }
    // The last one is what is computed.
    parts.pop();
    let count = parts.len();
    let mut modules = (1..=count).rev().take(MOST_PARTS).map(|last| parts[..last].join("."));
    let module = modules.find(|name| !is_fence && table.has_range(name));
    module.unwrap_or_else(|| match count {
        0 => format!("{OPERATION}{op}"),
        _ => format!("{}.{OPERATION}{op}", parts.join(".")),
    })
}

/// What the operations of a run tell.
#[derive(Clone, Copy, Default)]
struct Told {
    positions: Option<u64>,
    sequences: Option<u64>,
    /// Whether they tell different numbers of positions, or of sequences.
    is_unclear: bool,
    are_sequences_unclear: bool,
}

impl Told {
    fn add(&mut self, query: Query) {
        self.is_unclear |= *self.positions.get_or_insert(query.positions) != query.positions;
        if let Some(sequences) = query.sequences {
            let first = *self.sequences.get_or_insert(sequences);
            self.are_sequences_unclear |= first != sequences;
        }
    }

    /// The phase, and the tokens of a run of one sequence: several may be filled up to the length of the longest.
    fn phase(self) -> Option<(Phase, Option<u64>)> {
        let positions = self.positions.filter(|_| !self.is_unclear)?;
        let phase = if positions > 1 { Phase::Prefill } else { Phase::Decode };
        let is_one = self.sequences == Some(1) && !self.are_sequences_unclear;
        Some((phase, is_one.then_some(positions)))
    }
}

/// Makes passes of the runs whose operations tell how many positions they compute.
fn tell_phases(trace: &mut Trace, queries: &[(usize, Query)]) {
    let is_run = |event: &Timed| {
        let name = trace.names.get(event.name as usize);
        !event.kind.is_of_device() && name.is_some_and(|name| name == RUN)
    };
    let runs = trace.timed.iter().enumerate().filter(|(_, event)| is_run(event));
    let mut runs: Vec<usize> = runs.map(|(at, _)| at).collect();
    runs.sort_by_key(|&at| (trace.timed[at].lane, trace.timed[at].start));
    let mut told = vec![Told::default(); runs.len()];
    for &(at, query) in queries {
        let Some(event) = trace.timed.get(at) else { continue };
        let behind = runs.partition_point(|&run| {
            let run = &trace.timed[run];
            (run.lane, run.start) <= (event.lane, event.start)
        });
        let Some(nth) = behind.checked_sub(1) else { continue };
        let run = &trace.timed[runs[nth]];
        if run.lane == event.lane && event.start < run.end {
            told[nth].add(query);
        }
    }
    for (run, told) in runs.into_iter().zip(told) {
        let Some((phase, tokens)) = told.phase() else { continue };
        let run = &mut trace.timed[run];
        run.passes = bit(phase);
        if let Some(tokens) = tokens {
            trace.run_tokens.insert((run.lane, run.start), tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Options, kineto};

    #[test]
    fn modules_tell_the_brick_or_else_the_operation_does() {
        let ours = kineto::table(&Options::default()).expect("it is well formed");
        for (name, op, is) in [
            (
                "/model/layers.3/attn/q_proj/MatMul_Q4_kernel_time",
                "MatMulNBits",
                "model.layers.3.attn.q_proj",
            ),
            ("/model/layers.3/mlp/act_fn/Mul_kernel_time", "Mul", "model.layers.3.mlp.act_fn"),
            (
                "/model/layers.3/self_attn/MatMul/MatmulTransposeFusion/_kernel_time",
                "FusedMatMul",
                "model.layers.3.self_attn.MatMul.onnx::FusedMatMul",
            ),
            (
                "/model/layers.3/attn/q_proj/MatMul_fence_before",
                FENCE,
                "model.layers.3.attn.q_proj.onnx::Fence",
            ),
            (
                "/model/layers.32/final_norm_layernorm/SkipLayerNorm_kernel_time",
                "SkipSimplifiedLayerNormalization",
                "model.final_norm_layernorm.onnx::SkipSimplifiedLayerNormalization",
            ),
            ("/lm_head/MatMul_kernel_time", "MatMul", "lm_head"),
            ("Softmax_12_kernel_time", "Softmax", "onnx::Softmax"),
            ("_kernel_time", "Odd", "onnx::Odd"),
        ] {
            let scope = scope(name, op, &ours);
            assert_eq!(scope, is, "{name}");
            // So that its time isn't that of no brick.
            assert!(ours.has_range(&scope), "{name}");
        }
    }

    #[test]
    fn shapes_tell_the_positions_that_a_run_computes() {
        const GQA: &str = "GroupQueryAttention";
        let of = |sequences, positions| Some((Some(sequences), positions));
        for (path, op, shapes, is) in [
            ("a", GQA, r#"[{"float16":[2,7,64]},{"float16":[2,7,16]}]"#, of(2, 7)),
            ("a", "Attention", r#"[{"float":[1,8,7,64]}]"#, of(1, 7)),
            ("l/attn/Softmax", "Softmax", r#"[{"float":[1,8,1,40]}]"#, of(1, 1)),
            ("l/attn/Softmax", "Softmax", r#"[{"float":[64,64]}]"#, Some((None, 64))),
            ("l/q_proj/MatMul", "MatMulNBits", r#"[{"float":[1,7,64]}]"#, of(1, 7)),
            // Rows may be of several sequences.
            ("l/q_proj/MatMul", "MatMul", r#"[{"float":[7,64]}]"#, None),
            ("l/mlp/Softmax", "Softmax", r#"[{"float":[64,64]}]"#, None),
            ("embed/Gather", "Gather", r#"[{"float":[99,64]},{"int64":[1,7]}]"#, of(1, 7)),
            ("embed/Gather", "Gather", r#"[{"int64":[1,512]},{"int64":[1,7]}]"#, None),
            ("embed/Gather", "Gather", r#"[{"float":[99,64]},{"int64":[]}]"#, None),
            ("a", GQA, r#"[{"float16":[1,0,64]}]"#, None),
            ("a", GQA, r#"[{"float16":[1,-7,64]}]"#, None),
            ("a", GQA, r#"[{"float16":[1,18446744073709551615,64]}]"#, None),
            ("a", GQA, "[]", None),
            ("a", GQA, "7", None),
        ] {
            let raw: Box<RawValue> = serde_json::from_str(shapes).expect("JSON");
            let found = query(path, op, Some(&raw)).map(|of| (of.sequences, of.positions));
            assert_eq!(found, is, "{op} {shapes}");
        }
    }

    #[test]
    fn runs_whose_operations_disagree_have_no_phase() {
        let told = |queries: &[(u64, Option<u64>)]| {
            let mut told = Told::default();
            for &(positions, sequences) in queries {
                told.add(Query { positions, sequences });
            }
            told.phase()
        };
        assert_eq!(told(&[(7, Some(1)), (7, None)]), Some((Phase::Prefill, Some(7))));
        assert_eq!(told(&[(1, Some(1))]), Some((Phase::Decode, Some(1))));
        assert_eq!(told(&[(1, Some(4))]), Some((Phase::Decode, None)));
        assert_eq!(told(&[(1, Some(1)), (1, Some(4))]), Some((Phase::Decode, None)));
        assert_eq!(told(&[(1, Some(1)), (7, Some(1))]), None);
        assert_eq!(told(&[]), None);
    }
}
