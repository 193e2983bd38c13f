//! Any bytes are a recording of llama.cpp's nodes that can be recorded as passes, or a readable error.

use std::path::Path;

use brickscope::{BrickProfiler, Phase, TimedPass};
use brickscope_llama::file::{Event, Recorded};
use brickscope_llama::{Labels, LooksAt, Ran};

/// Panics if that is not so.
pub fn run(bytes: &[u8]) {
    let recorded = match Recorded::read(bytes, Path::new("1.nodes")) {
        Ok(recorded) => recorded,
        Err(error) => {
            assert!(error.to_string().starts_with("1.nodes, byte "), "{error}");
            return;
        }
    };
    let profiler = BrickProfiler::enabled().with_log_capacity(1 << 12);
    profiler.enable();
    let (mut tokens, mut position, mut looks_at) = (1, None, None);
    for event in &recorded.events {
        match event {
            Event::Pass(pass) => {
                (tokens, position) = (pass.tokens.unwrap_or(1), pass.position());
                looks_at = LooksAt::several(&pass.sequences)
                    .or_else(|| position.map(|position| LooksAt::one(position, tokens)));
            }
            Event::Graph(graph) => {
                let Some(nodes) = recorded.graphs.get(&graph.number) else { continue };
                let labels = match recorded.backends.get(&graph.number) {
                    Some(backend) => Labels::of_backend(&profiler, nodes, backend),
                    None => Labels::new(&profiler, nodes, graph.threads),
                };
                // Made to fit, as a reader has to: each node lasts until the next one begins.
                let mut last = graph.begin;
                let ends = graph.nodes.iter().skip(1).copied().chain([graph.end]);
                let times: Vec<[u64; 2]> = ends
                    .map(|end| {
                        let begin = last;
                        last = end.max(begin);
                        [begin, last]
                    })
                    .collect();
                let mut spans = Vec::new();
                let own = LooksAt::several(&graph.sequences).map(|of| of.within(7));
                let looks_at = own.or_else(|| looks_at.clone());
                labels.add_spans_of(&mut spans, &times, &Ran { looks_at, experts: &graph.experts });
                let pass = TimedPass {
                    phase: Phase::Decode,
                    start_ns: graph.begin,
                    end_ns: last,
                    tokens,
                    position: position.unwrap_or(0),
                    disturbance: None,
                };
                assert_eq!(profiler.record_pass(&pass, &spans), Ok(()), "spans nest");
            }
            Event::Described(..) | Event::Load(_) | Event::Calls(..) | Event::Inside(..) => {}
        }
    }
    assert_eq!(profiler.profile().check(), Ok(()));
}
