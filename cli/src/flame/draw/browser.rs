//! Tests that open flamegraphs in Chromium, click and search as a user does, and check the result.
//! Without Chromium on `PATH` they print a note and pass.

use brickscope_analysis::stacks::{Stacks, Unit};
use serde::Deserialize;

use super::tests::{folded, function, look, spans, svg};
use super::*;
use brickscope_testing::chromium;

/// What the browser showed.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Errors of scripts.
    errors: Vec<String>,
    /// The number of frames.
    frames: usize,
    /// Frames without a letter of their name, and with a part of it, in a window of 1200 pixels.
    unnamed: u64,
    shortened: u64,
    /// Texts above the frames, and the frames' own box, as `[top, bottom]` in pixels.
    header: Vec<[f64; 2]>,
    highest: f64,
    /// The widest text of the header, and the window.
    widest: f64,
    window: f64,
    /// The clicked frame's width and that of the root, in pixels, after the click.
    clicked: f64,
    root: f64,
    /// Frames that are still visible after the click.
    shown: Vec<String>,
    /// Frames that are visible after a click on `Reset Zoom`, and the clicked frame's width relative to
    /// before.
    shown_after_reset: usize,
    width_after_reset: f64,
    /// The result of the search.
    matched: String,
    /// Tooltips of the highlighted frames.
    found: Vec<String>,
    /// Highlighted frames after the search was reset.
    found_after_reset: usize,
    /// The line at the bottom while the mouse is over the clicked frame.
    details: String,
}

/// Runs before `inferno`'s script, which may fail as well.
const WATCH: &str = r#"<script>
var errors = [];
window.addEventListener("error", function (e) { errors.push(e.message); });
window.addEventListener("unhandledrejection", function (e) { errors.push(String(e.reason)); });
var asked = console.assert;
console.assert = function (holds, what) { if (!holds) errors.push("assertion: " + what); };
</script>"#;

/// Clicks and searches as a user does; `CLICK` and `TERM` are filled in.
const DRIVE: &str = r##"<script><![CDATA[
window.addEventListener("load", function () { setTimeout(function () {
    var seen = {};
    var all = function () { return Array.from(document.querySelectorAll("#frames > g")); };
    var title = function (g) { return g.querySelector("title").textContent; };
    var rect = function (g) { return g.querySelector("rect"); };
    var box = function (e) { return e.getBoundingClientRect(); };
    var is_seen = function (g) { return getComputedStyle(g).display != "none"; };
    var fire = function (e, kind) { e.dispatchEvent(new MouseEvent(kind, { bubbles: true })); };
    var ctrl_f = function () {
        window.dispatchEvent(new KeyboardEvent("keydown", { keyCode: 70, ctrlKey: true, cancelable: true }));
    };
    var colour = function (g) { return rect(g).getAttribute("fill"); };
    try {
        seen.frames = all().length;
        var label = function (g) { return g.querySelector("text").textContent.trim(); };
        seen.unnamed = all().filter(function (g) { return label(g) === ""; }).length;
        seen.shortened = all().filter(function (g) { return /.…$/.test(label(g)); }).length;
        var header = Array.from(document.querySelectorAll("#title, .subtitle, #legend"));
        seen.header = header.map(function (e) { return [box(e).top, box(e).bottom]; });
        seen.widest = Math.max.apply(null, header.map(function (e) { return box(e).width; }));
        seen.window = window.innerWidth;
        seen.highest = Math.min.apply(null, all().map(function (g) { return box(rect(g)).top; }));
        var target = all().find(function (g) { return title(g).startsWith(CLICK); });
        var width = box(rect(target)).width;
        fire(rect(target), "mouseover");
        seen.details = document.getElementById("details").textContent;
        fire(rect(target), "click");
        seen.clicked = box(rect(target)).width;
        seen.root = box(rect(all()[0])).width;
        seen.shown = all().filter(is_seen).map(title);
        fire(document.getElementById("unzoom"), "click");
        seen.shown_after_reset = all().filter(is_seen).length;
        seen.width_after_reset = box(rect(target)).width / width;
        window.prompt = function () { return TERM; };
        ctrl_f();
        seen.matched = document.getElementById("matched").textContent;
        var is_found = function (g) { return colour(g) == searchcolor; };
        seen.found = all().filter(is_found).map(title);
        ctrl_f();
        seen.found_after_reset = all().filter(is_found).length;
    } catch (e) {
        errors.push(e.stack);
    }
    seen.errors = errors;
    document.documentElement.setAttribute("seen", encodeURIComponent(JSON.stringify(seen)));
}, 500); });
]]></script></svg>"##;

/// Clicks the first frame whose tooltip starts with `click`, then searches for `term`. `None` without
/// a browser.
fn drive(svg: &str, click: &str, term: &str) -> Option<Seen> {
    let quoted = |text: &str| serde_json::to_string(text).expect("JSON");
    let drive = DRIVE.replace("CLICK", &quoted(click)).replace("TERM", &quoted(term));
    let (before, after) = svg.split_once("<script").expect("inferno's script");
    let (frames, _) = after.rsplit_once("</svg>").expect("the end");
    let page = format!("{before}{WATCH}<script{frames}{drive}");
    chromium::seen(&page, "flame.svg", [1200, 800])
}

/// Checks that hold for every flamegraph.
#[track_caller]
fn check(seen: &Seen) {
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    // No line of the header overlaps another or the frames, or extends beyond the window.
    let mut top = 0.0;
    for [from, to] in &seen.header {
        assert!(*from >= top - 0.5, "{:?}", seen.header);
        top = *to;
    }
    assert!(seen.highest > top, "{} below {:?}", seen.highest, seen.header);
    assert!(seen.widest <= seen.window, "{} of {}", seen.widest, seen.window);
    // A zoomed frame is as wide as the root; a reset restores everything.
    assert!((seen.clicked - seen.root).abs() < 1.0, "{} of {}", seen.clicked, seen.root);
    assert_eq!(seen.shown_after_reset, seen.frames);
    assert!((seen.width_after_reset - 1.0).abs() < 0.01, "{}", seen.width_after_reset);
    assert_eq!(seen.found_after_reset, 0);
}

#[test]
fn a_flamegraph_zooms_and_is_searched() {
    let Picture { text: svg, hidden } = super::svg(&spans(), &look()).unwrap();
    let Some(seen) = drive(&svg, "decode", "^q4_k_gemv") else { return };
    check(&seen);
    // What the picture says it doesn't show is what isn't seen.
    assert!(seen.unnamed > 100 && seen.shortened > 0, "{seen:?}");
    assert_eq!((seen.unnamed, seen.shortened), (hidden.unnamed.frames, hidden.shortened.frames));
    assert!(seen.shown.iter().any(|title| title.starts_with("layer 11 (")), "{:?}", seen.shown);
    assert!(!seen.shown.iter().any(|title| title.starts_with("prefill")), "{:?}", seen.shown);
    assert!(seen.details.contains("decode (95.698 ms, 62.50 %)"), "{}", seen.details);
    assert_eq!(seen.found.len(), 2 * 12 * 2, "{:?}", seen.found);
    // 730 of the 1 528.3 µs of a layer; the head has 800.
    assert_eq!(seen.matched, "Matched: 45.8%");
}

#[test]
fn names_of_any_kind_are_found_as_they_are() {
    // Names with `;` and spaces, markup, text that the script might take for its own, control characters,
    // other writing systems, and a name that is too long everywhere.
    let long = "very::long::path::".repeat(40);
    let names = [
        "core::fmt::Display<[u8; 4]>::fmt 17",
        "</title><script>errors.push(1)</script>&amp;\"'",
        "operator()(int)",
        "a\nb\tc\u{0}d\u{202e}e\u{fffe}",
        "注意力機制 Über 🦀",
        " leading and trailing ",
        "",
        "--",
        "memcpy_[k]",
        &long,
    ];
    let mut stacks = Stacks::new(Unit::Samples, 0);
    let frames: Vec<u32> = names.iter().map(|name| stacks.frame(function(name))).collect();
    for frame in &frames {
        stacks.add(&[*frame], 10, 0);
        stacks.add(&[*frame, frames[0]], 5, 0);
    }
    let title = format!("<b>{} & \u{0}", "flamegraph ".repeat(20));
    let subtitle = vec!["a line that is too long; ".repeat(20), "注意力機制".repeat(40)];
    let drawn = svg(&stacks, &Look { title, subtitle, width: None }).unwrap();
    let Some(seen) = drive(&drawn, "core::fmt", "^core::fmt::Display<\\[u8; 4\\]>::fmt 17 ") else {
        return;
    };
    check(&seen);
    assert_eq!(seen.found.len(), 11, "{:?}", seen.found);
    assert_eq!(seen.matched, "Matched: 40.0%");
    let Some(seen) = drive(&drawn, "</title><script>", "errors") else { return };
    check(&seen);
    assert_eq!(
        seen.found,
        ["</title><script>errors.push(1)</script>&amp;\"' (15 samples, 10.00 %)"]
    );
    let Some(seen) = drive(&drawn, "a\\nb\\tc\\u{0}d\\u{202e}e\\u{fffe} (15", "注意力") else {
        return;
    };
    check(&seen);
    assert_eq!(seen.found.len(), 1, "{:?}", seen.found);
}

#[test]
fn a_stack_of_two_thousand_frames_is_a_tall_picture() {
    let names: Vec<String> = (0..2000).map(|n| format!("f{n}")).collect();
    let stacks = folded(&[(&names.join(";"), 40), (&names[..1000].join(";"), 60)]);
    let svg = svg(&stacks, &look()).unwrap();
    let Some(seen) = drive(&svg, "f1500 (", "^f1999 ") else { return };
    check(&seen);
    assert_eq!(seen.frames, 2001);
    assert_eq!(seen.shown.len(), 2001);
    assert_eq!(seen.matched, "Matched: 40.0%");
}

#[test]
fn a_picture_of_fixed_width_works_as_well() {
    let svg = svg(&spans(), &Look { width: Some(800), ..look() }).unwrap();
    let Some(seen) = drive(&svg, "prefill", "LmHead") else { return };
    check(&seen);
    assert!(seen.widest <= 800.0, "{}", seen.widest);
}

#[test]
fn both_pictures_of_a_difference_work() {
    let before = folded(&[("main;a;x", 50), ("main;b", 30), ("main;gone", 20)]);
    let after = folded(&[("main;a;x", 120), ("main;b", 60), ("main;new", 20)]);
    let look = look();
    let forward = diff_svg(&before, &after, &look, Direction::Forward).unwrap();
    let Some(seen) = drive(&forward, "a (", "new") else { return };
    check(&seen);
    assert_eq!(seen.matched, "Matched: 10.0%");
    let reverse = diff_svg(&before, &after, &look, Direction::Reverse).unwrap();
    let Some(seen) = drive(&reverse, "gone (", "gone") else { return };
    check(&seen);
    assert_eq!(seen.matched, "Matched: 20.0%");
}
