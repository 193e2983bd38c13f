//! What the layer costs, in turns in one process: `RAYON_NUM_THREADS=1 cargo run --release --example cost -- [MODEL]`.
//!
//! First an entry and an exit of a span that does nothing, beside the bare registry; then decode of a GGUF file of
//! `quantized_llama` with a profiler that is off, and with one that is on: the same weights at the same addresses, since two
//! copies of a model can differ by several percent. CPU time, so that others' share of the machine isn't in it.

use std::fs::File;
use std::sync::Arc;

use brickscope::{BrickCategory, BrickId, BrickProfiler, Phase};
use brickscope_tracing::{BrickLayer, Map, Pass, Role};
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use rustix::time::{ClockId, clock_gettime};
use tracing::{Dispatch, Span, trace_span};
use tracing_subscriber::prelude::*;

fn main() -> anyhow::Result<()> {
    spans();
    match std::env::args().nth(1) {
        Some(model) => decode(&model),
        None => Ok(()),
    }
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// With candle's own threads.
fn process_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Figures of one arm, and how they are shown: the median and the 95 % interval of the median.
fn median(figures: &mut [f64]) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let (middle, far) = (figures.len() / 2, (0.98 * (figures.len() as f64).sqrt()) as usize);
    let at = |index: usize| figures[index.min(figures.len() - 1)];
    (at(middle), at(middle.saturating_sub(far)), at(middle + far))
}

fn spans() {
    const TURNS: usize = 400;
    const ENTRIES: u32 = 1000;
    let profiler = Arc::new(BrickProfiler::enabled());
    let map = || {
        Map::new(|span| match span.name() {
            "norm" => Role::brick(BrickId::RmsNorm),
            _ => Role::named("Attention", BrickCategory::Attention),
        })
    };
    let layer = BrickLayer::new(&profiler, map());
    let off = BrickLayer::new(&Arc::new(BrickProfiler::new()), map());
    let under = |dispatch: &Dispatch| {
        tracing::dispatcher::with_default(dispatch, || (trace_span!("norm"), trace_span!("attn")))
    };
    let bare = under(&Dispatch::new(tracing_subscriber::registry()));
    let with_off = under(&Dispatch::new(tracing_subscriber::registry().with(off)));
    let with_on = under(&Dispatch::new(tracing_subscriber::registry().with(layer.clone())));
    let enter = |span: &Span| {
        for _ in 0..ENTRIES {
            std::hint::black_box(span).in_scope(|| {});
        }
    };
    let begin = || layer.begin_pass(Phase::Decode, 1, 0);
    let arms: [(&str, &dyn Fn() -> f64); 6] = [
        ("the registry alone", &|| timed(|| enter(&bare.0))),
        ("with the layer, profiler off", &|| timed(|| enter(&with_off.0))),
        ("with the layer, outside of a pass", &|| timed(|| enter(&with_on.0))),
        ("in a pass", &|| in_pass(begin(), || enter(&with_on.0))),
        ("in a pass, in another span", &|| {
            in_pass(begin(), || with_on.1.in_scope(|| enter(&with_on.0)))
        }),
        ("start_brick and stop_brick", &|| {
            in_pass(begin(), || {
                for _ in 0..ENTRIES {
                    let timer = profiler.start_brick(std::hint::black_box(BrickId::RmsNorm));
                    profiler.stop_brick(timer, 0);
                }
            })
        }),
    ];
    let mut figures = vec![Vec::new(); arms.len()];
    for turn in 0..TURNS {
        for nth in 0..arms.len() {
            let arm = if turn % 2 == 0 { nth } else { arms.len() - 1 - nth };
            figures[arm].push(arms[arm].1() / f64::from(ENTRIES));
        }
    }
    println!("ns for an entry and an exit (95 % interval of the median of {TURNS} turns)");
    for ((name, _), figures) in arms.iter().zip(&mut figures) {
        let (middle, least, most) = median(figures);
        println!("{middle:8.1}  {least:6.1} to {most:6.1}  {name}");
    }
}

fn timed(run: impl FnOnce()) -> f64 {
    let begun = cpu_ns();
    run();
    cpu_ns() - begun
}

fn in_pass(pass: Pass, run: impl FnOnce()) -> f64 {
    let nanos = timed(run);
    pass.end();
    nanos
}

/// Decode of one model, whose profiler is off, on, and off again, from sequence to sequence.
fn decode(path: &str) -> anyhow::Result<()> {
    const BLOCKS: usize = 100;
    /// The first ones of a sequence don't count: the profiler was turned on or off just before.
    const SKIPPED: usize = 2;
    const TOKENS: usize = 10;
    let profiler = Arc::new(BrickProfiler::enabled());
    let layer = BrickLayer::new(&profiler, Map::candle_quantized_llama());
    tracing_subscriber::registry().with(layer.clone()).init();
    let mut file = File::open(path)?;
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;

    let mut states = [Vec::new(), Vec::new(), Vec::new()];
    let mut around = [Vec::new(), Vec::new(), Vec::new()];
    for block in 0..BLOCKS {
        for nth in 0..3 {
            let state = (nth + block) % 3;
            if state == 1 {
                profiler.enable();
            } else {
                profiler.disable();
            }
            model.clear_kv_cache();
            let (mut spent, mut beside) = (0.0, 0.0);
            for position in 0..SKIPPED + TOKENS {
                let input = Tensor::new(&[5 + position as u32], &Device::Cpu)?.unsqueeze(0)?;
                let begun = process_cpu_ns();
                let pass = layer.begin_pass(Phase::Decode, 1, position as u64);
                let began = process_cpu_ns();
                model.forward(&input, position)?;
                let ended = process_cpu_ns();
                pass.end();
                if position >= SKIPPED {
                    spent += ended - began;
                    beside += began - begun + process_cpu_ns() - ended;
                }
            }
            states[state].push(spent);
            around[state].push(beside);
        }
    }
    let [off, on, off_again] = states;
    let micros = |sums: &[f64]| {
        let mut each: Vec<f64> = sums.iter().map(|sum| sum / TOKENS as f64 / 1e3).collect();
        median(&mut each).0
    };
    println!("decode, CPU time of a token: {:.1} µs off, {:.1} µs on", micros(&off), micros(&on));
    let [around_off, around_on, _] = around;
    println!(
        "to begin and end its pass: {:.1} µs off, {:.1} µs on",
        micros(&around_off),
        micros(&around_on)
    );
    let off_mean: Vec<f64> = off.iter().zip(&off_again).map(|(a, b)| (a + b) / 2.0).collect();
    for (name, these, those) in
        [("on beside off", &on, &off_mean), ("off beside off", &off, &off_again)]
    {
        let mut ratios: Vec<f64> =
            these.iter().zip(those).map(|(a, b)| (a / b - 1.0) * 100.0).collect();
        let (middle, least, most) = median(&mut ratios);
        println!(
            "{name}: {middle:+.2} % (95 % interval of the median of {BLOCKS} blocks: {least:+.2} to {most:+.2})"
        );
    }
    let profile = profiler.profile();
    profile.check().map_err(anyhow::Error::msg)?;
    println!("{}\n{} spans were recorded", layer.seen(), profile.overhead.spans);
    Ok(())
}
