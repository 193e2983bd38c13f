//! Decoding on several threads: attention is shared out if the context is long, which changes no bit,
//! and the profile states on how many threads each kernel ran.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use brickscope::{BrickProfiler, NameKind, Phase};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Backend, Kernels};

/// Its context: the last position of a decode pass, too.
const CONTEXT: usize = 512;

/// The model has four heads of 64, so this many scores for each are just worth sharing out.
const JUST_WORTH_IT: usize = 128;

fn model() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models/tiny-Q8_0.gguf");
    Model::open(&path).expect("a fixture")
}

fn session(model: &Model, backend: Backend, threads: usize) -> Option<Session<'_>> {
    let kernels = Kernels::new(backend).ok()?;
    let cpu = Cpu::new(kernels, NonZeroUsize::new(threads).expect("not 0")).expect("threads");
    Some(Session::new(model, cpu, CONTEXT).expect("it fits"))
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i * 7 % 512).collect()
}

#[test]
fn at_long_positions_the_number_of_threads_does_not_change_a_bit() {
    let model = model();
    for backend in Backend::ALL {
        let run = |threads| {
            let mut session = session(&model, backend, threads)?;
            session.forward(&tokens(CONTEXT - 8)).expect("it runs");
            let steps = tokens(8).into_iter().map(|token| {
                let logits = session.forward(&[token]).expect("it runs");
                logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
            });
            Some(steps.collect::<Vec<_>>())
        };
        let one = run(1);
        assert!(one == run(2), "{backend}, 2 threads");
        assert!(one == run(3), "{backend}, 3 threads");
    }
}

/// The numbers of threads that attention's kernels state in decode passes at `position`.
fn threads_at(backend: Backend, threads: usize, position: usize) -> Option<BTreeSet<String>> {
    let model = model();
    let mut session = session(&model, backend, threads)?;
    let profiler = BrickProfiler::enabled();
    session.forward(&tokens(position)).expect("it runs");
    session.forward_profiled(&profiler, &[3]).expect("it runs");
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    assert!(profile.passes.iter().all(|pass| pass.phase == Phase::Decode));
    let ran = profile.spans.iter().filter_map(|span| profile.names.get(usize::from(span.name?)));
    let ran = ran.filter(|name| name.kind == NameKind::Kernel).filter_map(|name| {
        let routine = ["scores", "softmax", "weighted_sum"]
            .into_iter()
            .find(|routine| name.name.starts_with(routine))?;
        Some(format!("{routine} {}", name.host.as_ref()?.threads))
    });
    Some(ran.collect())
}

#[test]
fn the_profile_says_on_how_many_threads_attention_ran_in_that_pass() {
    let positions = [(4, false), (JUST_WORTH_IT - 2, false), (JUST_WORTH_IT - 1, true)];
    let each = Backend::ALL.into_iter().flat_map(|backend| positions.map(|at| (backend, at)));
    for (backend, (position, long)) in each {
        for threads in 1..=5 {
            let Some(said) = threads_at(backend, threads, position) else { continue };
            // Their softmax isn't worth sharing out.
            let dots = if long { threads.min(4) } else { 1 };
            let expected =
                [format!("scores {dots}"), "softmax 1".to_owned(), format!("weighted_sum {dots}")];
            let expected: BTreeSet<String> = expected.into();
            assert_eq!(said, expected, "{backend}, {threads} threads, position {position}");
        }
    }
}
