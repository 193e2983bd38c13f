//! Pictures of stacks that were made by hand.

use brickscope::stacks::{Class, Frame, Level, Stacks, Unit};

use super::*;

pub(in crate::flame) fn function(name: &str) -> Frame {
    Frame { name: name.to_owned(), level: Level::Function, class: Class::Other }
}

/// Stacks of functions, each as folded lines have it: names with `;` between, and how many samples.
pub(in crate::flame) fn folded(lines: &[(&str, u64)]) -> Stacks {
    let mut stacks = Stacks::new(Unit::Samples, 0);
    for (line, samples) in lines {
        let names = line.split(';').filter(|name| !name.is_empty());
        let frames: Vec<u32> = names.map(|name| stacks.frame(function(name))).collect();
        stacks.add(&frames, *samples, 0);
    }
    stacks
}

/// A run of two phases with layers, bricks and kernels of each class, in nanoseconds.
pub(in crate::flame) fn spans() -> Stacks {
    let mut stacks = Stacks::new(Unit::Nanoseconds, 0);
    let mut add = |path: &[(&str, Level, Class)], ns: u64| {
        let frames = path.iter().map(|&(name, level, class)| {
            stacks.frame(Frame { name: name.to_owned(), level, class })
        });
        let frames: Vec<u32> = frames.collect();
        stacks.add(&frames, ns, 0);
    };
    let thread = ("main", Level::Thread, Class::Other);
    for (phase, scale) in [("prefill", 3), ("decode", 5)] {
        let phase = (phase, Level::Phase, Class::Other);
        for layer in 0..12 {
            let layer = format!("layer {layer}");
            let layer = (layer.as_str(), Level::Layer, Class::Other);
            let brick = |name: &'static str| (name, Level::Brick, Class::Other);
            let in_brick = |name| [thread, phase, layer, brick(name)];
            let kernel = |name: &'static str, class| (name, Level::Kernel, class);
            for (name, of, class, ns) in [
                ("QkvProjection", "q4_k_gemv_avx2", Class::Quantized, 310_000),
                ("GateProjection", "q4_k_gemv_avx2", Class::Quantized, 420_000),
                ("DownProjection", "q6_k_gemv_avx2", Class::Quantized, 510_000),
                ("AttentionScore", "f32_gemm_avx2", Class::Matmul, 180_000),
                ("RopeEmbedding", "memcpy", Class::Memory, 40_000),
                ("Softmax", "futex_wait", Class::System, 25_000),
                ("RmsNorm", "rms_norm_avx2", Class::Other, 30_000),
            ] {
                let path = [&in_brick(name)[..], &[kernel(of, class)]].concat();
                add(&path, ns * scale);
                add(&in_brick(name), 900 * scale);
            }
            add(&in_brick("unattributed"), 7_000 * scale);
        }
        add(&[thread, phase, ("LmHead", Level::Brick, Class::Other)], 800_000 * scale);
    }
    stacks
}

pub(in crate::flame) fn look() -> Look {
    Look {
        title: "Flamegraph of TinyLlama 1.1B".to_owned(),
        subtitle: vec![
            "TinyLlama 1.1B, llama Q4_K, 22 layers; 64 tokens of prompt, 32 generated".to_owned(),
            "AMD EPYC 7B13, 2 CPUs; measured spans, 12.345 ms".to_owned(),
        ],
        width: None,
    }
}

/// What of `svg` is a frame's: tooltip, colour and label.
fn drawn(svg: &str) -> Vec<(String, String, String)> {
    let (_, frames) = svg.split_once("<svg id=\"frames\"").expect("frames");
    let between = |text: &str, from: &str, to: &str| {
        let (_, rest) = text.split_once(from).expect(from);
        rest.split_once(to).expect(to).0.to_owned()
    };
    frames
        .split("<g>")
        .skip(1)
        .map(|g| {
            let label = between(&between(g, "<text ", "</g>"), ">", "</text>");
            (between(g, "<title>", "</title>"), between(g, "fill=\"", "\""), label)
        })
        .collect()
}

#[test]
fn the_same_stacks_give_the_same_bytes() {
    let first = svg(&spans(), &look()).unwrap();
    assert_eq!(first, svg(&spans(), &look()).unwrap());
}
