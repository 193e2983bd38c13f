//! Tests that draw stacks made by hand.

use std::path::Path;

use brickscope_analysis::stacks::{Class, Frame, Level, Stacks, Unit};
use brickscope_formats::export;

use super::*;
use crate::figures::{fine_percent_of, points};
use crate::flame::summary::{Frames, Hidden};

pub(in crate::flame) fn function(name: &str) -> Frame {
    Frame { name: name.to_owned(), level: Level::Function, class: Class::Other }
}

/// Stacks of functions, given as folded lines: names separated by `;`, and a number of samples.
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

/// The text of a flamegraph.
pub(super) fn svg(stacks: &Stacks, look: &Look) -> Result<String> {
    super::svg(stacks, look).map(|picture| picture.text)
}

/// The tooltip, colour and label of each frame in `svg`.
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

/// The text above the frames in `svg`, without `inferno`'s part.
fn header(svg: &str) -> Vec<String> {
    let (header, _) = svg.split_once("<svg id=\"frames\"").expect("frames");
    let (_, header) = header.split_once("</style>\n").expect("our style");
    header.lines().map(str::to_owned).collect()
}

#[track_caller]
fn has(svg: &str, tooltip: &str) {
    let drawn = drawn(svg);
    assert!(drawn.iter().any(|(title, ..)| title == tooltip), "no {tooltip} in {drawn:#?}");
}

#[test]
fn the_same_stacks_give_the_same_bytes() {
    let first = svg(&spans(), &look()).unwrap();
    assert_eq!(first, svg(&spans(), &look()).unwrap());
    let before = folded(&[("a;b", 2), ("c", 1)]);
    let diff = || diff_svg(&before, &spans(), &look(), Direction::Reverse);
    assert_eq!(diff().unwrap(), diff().unwrap());
}

#[test]
fn our_part_of_a_picture() {
    let mut stacks = folded(&[("main;a", 70), ("main", 20), ("main;b", 9)]);
    let kernel =
        Frame { level: Level::Kernel, class: Class::Quantized, ..function("q4_k<Vec<u8>>") };
    let frames = [function("main"), kernel].map(|frame| stacks.frame(frame));
    stacks.add(&frames, 1, 0);
    let svg = svg(&stacks, &look()).unwrap();
    let (_, ours) = svg.split_once("</style>\n").expect("our style");
    insta::assert_snapshot!(ours);
}

#[test]
fn tooltips_have_the_unit_and_the_share() {
    let svg = svg(&spans(), &look()).unwrap();
    has(&svg, "all (153.117 ms, 100.00 %)");
    has(&svg, "prefill (57.419 ms, 37.50 %)");
    has(&svg, "futex_wait (75.000 µs, 0.05 %)");
    let stacks = folded(&[("a", 9_999), ("b", 1)]);
    let svg = self::svg(&stacks, &look()).unwrap();
    has(&svg, "a (9999 samples, 99.99 %)");
    has(&svg, "b (1 sample, 0.01 %)");
}

#[test]
fn amounts_keep_what_was_measured() {
    let ns = |ns| amount(ns, Unit::Nanoseconds);
    assert_eq!(
        [ns(0), ns(999), ns(1_000), ns(999_999), ns(1_000_000), ns(12_345_678_901)],
        ["0 ns", "999 ns", "1.000 µs", "999.999 µs", "1.000 ms", "12.346 s"]
    );
    assert_eq!(fine_percent_of(1, 1_000_000), "<0.01 %");
    assert_eq!(
        (fine_percent_of(0, 5), fine_percent_of(0, 0)),
        ("0 %".to_owned(), "n/a".to_owned())
    );
    assert_eq!([points(-1e-9), points(-0.0125), points(0.5)], ["0.00", "-1.25", "+50.00"]);
}

#[test]
fn classes_have_their_colours_and_what_bricks_lie_on_is_grey() {
    let svg = svg(&spans(), &look()).unwrap();
    let colour = |name: &str| {
        let of: Vec<_> = drawn(&svg).into_iter().filter(|(t, ..)| t.starts_with(name)).collect();
        let (_, colour, _) = of.first().expect(name);
        // The same name has the same colour everywhere.
        assert!(of.iter().all(|(_, other, _)| other == colour), "{of:?}");
        let rgb = colour.trim_start_matches("rgb(").trim_end_matches(')').split(',');
        <[i16; 3]>::try_from(rgb.map(|c| c.parse().unwrap()).collect::<Vec<_>>()).unwrap()
    };
    let is_grey = |[r, g, b]: [i16; 3]| r == g && g == b;
    let [r, g, b] = colour("q4_k_gemv_avx2 (");
    assert!(r > g + 80 && r > b + 80, "red: {r} {g} {b}");
    let [r, g, b] = colour("f32_gemm_avx2 (");
    assert!(g > r + 50 && g > b + 50, "green: {r} {g} {b}");
    let [r, g, b] = colour("memcpy (");
    assert!(b > g + 40 && b > r + 80, "blue: {r} {g} {b}");
    let [r, g, b] = colour("futex_wait (");
    assert!(r > g + 50 && g > b + 50, "orange: {r} {g} {b}");
    for name in ["all (", "main (", "decode (", "layer 7 (", "DownProjection (", "rms_norm_avx2 ("]
    {
        assert!(is_grey(colour(name)), "{name}: {:?}", colour(name));
    }
    let legend = header(&svg).pop().expect("a legend");
    for class in [
        "quantised\u{a0}kernels\u{a0}77.74\u{a0}%",
        "matmul\u{a0}11.29\u{a0}%",
        "rest\u{a0}6.89\u{a0}%",
    ] {
        assert!(legend.contains(class), "{class}: {legend}");
    }
    // A class that doesn't occur isn't in the legend.
    let legend =
        header(&self::svg(&folded(&[("a", 1)]), &look()).unwrap()).pop().expect("a legend");
    assert!(legend.contains("rest\u{a0}100.00\u{a0}%") && !legend.contains("matmul"), "{legend}");
}

#[test]
fn what_is_too_narrow_is_told_and_zoomed_into_by_nobody() {
    let stacks = folded(&[("a", 99_999), ("b;c", 1)]);
    let svg = svg(&stacks, &look()).unwrap();
    let told = "left out: 2 frames narrower than 0.01 %, together 1 sample, &lt;0.01 %";
    assert!(header(&svg).iter().any(|line| line.contains(told)), "{:?}", header(&svg));
    assert_eq!(drawn(&svg).len(), 2);
}

#[test]
fn names_that_do_not_fit_are_counted_with_their_time_once() {
    let long = "a::very::long::path::to::some::function::of::a::crate::write_str";
    // On 380 pixels a thousandth has no room for a letter, and nor has what lies in it.
    let stacks = folded(&[
        (&format!("main;{long}"), 100),
        (&format!("main;{long};{long}"), 200),
        ("narrow;inside", 5),
        ("narrow", 5),
        ("main", 690),
    ]);
    let look = Look { width: Some(400), ..look() };
    let picture = super::svg(&stacks, &look).unwrap();
    let expected = Hidden {
        width: 400,
        left_out: Frames::default(),
        unnamed: Frames { frames: 2, weight: 10 },
        shortened: Frames { frames: 2, weight: 300 },
    };
    assert_eq!(picture.hidden, expected);
    let lines = header(&picture.text).join(" ").replace("</text>", "").replace("><text", "> <text");
    let mut lines = lines.split('>').flat_map(|part| part.split('<').next()).collect::<Vec<_>>();
    lines.retain(|line| !line.trim().is_empty());
    let said = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("without its name at 400 pixels: 2 frames, together 10 samples, 1.00 %"),
        "{said}"
    );
    assert!(
        said.contains(
            "with a shortened name at 400 pixels: 2 frames, together 300 samples, 30.00 %"
        ),
        "{said}"
    );
    // What fits is not mentioned.
    let whole = super::svg(&folded(&[("a", 1), ("b", 2)]), &look).unwrap();
    assert_eq!(whole.hidden, Hidden { width: 400, ..Hidden::default() });
    assert!(!whole.text.contains("pixels:") && !whole.text.contains("left out"));
}

#[test]
fn long_lines_above_the_frames_are_wrapped_and_a_title_that_is_cut_stands_there_whole() {
    let title = "a title ".repeat(20);
    let line = "a line that is too long; ".repeat(20);
    let look = Look { title: title.clone(), subtitle: vec![line.clone()], width: Some(800) };
    let svg = svg(&folded(&[("a", 1)]), &look).unwrap();
    let header = header(&svg).join("\n");
    assert!(!header.contains('…'), "{header}");
    let words = |text: &str, word: &str| text.matches(word).count();
    assert_eq!(words(&header, "title"), words(&title, "title") + words(&header, "\"subtitle\""));
    assert_eq!(words(&header, "long;"), words(&line, "long;"));
}

#[test]
fn every_name_is_well_formed_and_cut_to_its_frame() {
    let names = "a<b>&\"'\n\u{0}\u{ffff}]]>";
    let long = "a::very::long::path::to::some::function::of::a::crate::write_str";
    let stacks = folded(&[(names, 1), (long, 19)]);
    let svg = svg(&stacks, &Look { title: names.to_owned(), width: Some(400), ..look() }).unwrap();
    has(&svg, "a&lt;b&gt;&amp;&quot;'\\n\\u{0}\\u{ffff}]]&gt; (1 sample, 5.00 %)");
    // At 7.2 pixels a letter, 361 pixels have room for 49, one of which is the ellipsis, and one stays free as in a
    // browser; and the other frame for 2, which isn't enough.
    let labels: Vec<_> = drawn(&svg).into_iter().map(|(_, _, label)| label).collect();
    let begin = "a::very::long::path::to::some::function::of::a:…";
    assert_eq!(begin.chars().count(), 48);
    assert_eq!(labels, ["all", begin, ""]);
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
}

#[test]
fn what_cannot_be_drawn_is_refused_in_a_sentence() {
    let said = |result: Result<String>| result.expect_err("refused").to_string();
    let empty = Stacks::new(Unit::Samples, 0);
    let some = folded(&[("a", 1)]);
    assert_eq!(said(svg(&empty, &look())), "there is nothing to draw: no stack has any weight");
    let narrow = Look { width: Some(399), ..look() };
    assert_eq!(said(svg(&some, &narrow)), "a flamegraph is at least 400 pixels wide, not 399");
    let diff = |a, b| said(diff_svg(a, b, &look(), Direction::Forward));
    assert!(diff(&empty, &some).starts_with("before: there is nothing"), "{}", diff(&empty, &some));
    assert!(diff(&some, &empty).starts_with("after: there is nothing"), "{}", diff(&some, &empty));
}

#[test]
fn a_difference_is_of_shares_and_red_is_more_in_both_directions() {
    // Twice as long, and the share of `a` grew by a tenth of the total.
    let before = folded(&[("main;a", 50), ("main;b", 30), ("main;gone", 20)]);
    let after = folded(&[("main;a", 120), ("main;b", 60), ("main;new", 20)]);
    let colour = |svg: &str, name: &str| {
        let frame = drawn(svg).into_iter().find(|(title, ..)| title.starts_with(name));
        frame.unwrap_or_else(|| panic!("no {name}")).1
    };
    let is_red = |colour: &str| colour.starts_with("rgb(2") && !colour.ends_with("255)");
    let draw = |direction| diff_svg(&before, &after, &look(), direction).unwrap();
    let forward = draw(Direction::Forward);
    has(&forward, "a (120 samples, before 50.00 %, after 60.00 %, +10.00 points)");
    has(&forward, "new (20 samples, before 0 %, after 10.00 %, new)");
    has(&forward, "b (60 samples, before 30.00 %, after 30.00 %, 0.00 points)");
    assert!(is_red(&colour(&forward, "a (")) && is_red(&colour(&forward, "new (")));
    assert!(!drawn(&forward).iter().any(|(title, ..)| title.starts_with("gone")));
    let reverse = draw(Direction::Reverse);
    has(&reverse, "gone (20 samples, before 20.00 %, after 0 %, gone)");
    has(&reverse, "a (50 samples, before 50.00 %, after 60.00 %, +10.00 points)");
    assert!(!is_red(&colour(&reverse, "gone (")), "{}", colour(&reverse, "gone ("));
    for name in ["all (", "main (", "b (", "a ("] {
        assert_eq!(colour(&forward, name), colour(&reverse, name), "{name}");
    }
    assert_eq!(colour(&forward, "b ("), "rgb(255,255,255)");
}

#[test]
fn stacks_against_what_folded_stacks_keep_of_them_have_nothing_new() {
    let stacks = spans();
    let mut text = Vec::new();
    export::folded::write(&stacks, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let read = export::folded::read(&text, Path::new("flamegraph.folded")).unwrap();
    for (before, after) in [(&stacks, &read), (&read, &stacks)] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let svg = diff_svg(before, after, &look(), direction).unwrap();
            let drawn = drawn(&svg);
            assert_eq!(drawn.len(), layout_of(&stacks));
            for (title, colour, _) in &drawn {
                assert!(title.ends_with(", 0.00 points)"), "{title}");
                assert_eq!(colour, "rgb(255,255,255)", "{title}");
            }
            // Phases are in the order in which they happen, though a file doesn't mark them as phases.
            let phase = |name| drawn.iter().position(|(title, ..)| title.starts_with(name));
            assert!(phase("prefill (") < phase("decode ("), "{drawn:#?}");
        }
    }
}

/// The number of frames in a flamegraph of one set.
fn layout_of(stacks: &Stacks) -> usize {
    drawn(&svg(stacks, &look()).unwrap()).len()
}

#[test]
fn the_legend_has_the_shares_of_the_tables() {
    // The class of the top frame differs from the stack's.
    let mut stacks = spans();
    let of = |name: &str, level, class| Frame { name: name.to_owned(), level, class };
    let kernel = stacks.frame(of("gemv_q4_k", Level::Kernel, Class::Quantized));
    for (name, class, ns) in [
        ("helper", Class::Other, 40_000_000),
        ("clear_page", Class::Memory, 20_000_000),
        ("sgemm", Class::Matmul, 10_000_000),
    ] {
        let function = stacks.frame(of(name, Level::Function, class));
        stacks.add(&[kernel, function], ns, 0);
    }
    let legend = header(&svg(&stacks, &look()).unwrap()).pop().expect("a legend");
    let mut entries = legend.split("</tspan>\u{a0}").skip(1).map(|entry| {
        entry.split(['<', ' ']).next().unwrap_or_default().replace('\u{a0}', " ").trim().to_owned()
    });
    let total = stacks.total();
    for sum in stacks.by_class().iter().filter(|sum| sum.weight > 0) {
        let entry = format!("{} {}", sum.class.name(), fine_percent_of(sum.weight, total));
        assert_eq!(entries.next(), Some(entry), "{legend}");
    }
    assert_eq!(entries.next(), None, "{legend}");
}
