//! Tests of reports in a real browser, if Chromium is on `PATH`: they visit each section, drive the
//! diagrams by keys, and check the display against the data.

use brickscope::{BrickId, BrickProfiler, LayerBrick, MockClock, Phase, Profile, Work};
use serde::Deserialize;

use brickscope_report::of_two;
use brickscope_testing::chromium;

use crate::read::page;
use crate::samples::{HOSTILE, on_a_device, sample};

/// What the browser showed.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Errors of scripts, and violations of the page's policy.
    errors: Vec<String>,
    /// The first element that Tab reaches.
    first: String,
    /// Sections in the table of contents, and those of them that are empty.
    sections: usize,
    unseen: Vec<String>,
    /// Tables and lists that stay hidden when their `details` is opened.
    closed: usize,
    /// How much wider the page is than the window, and its body: at first, and after each click on the button
    /// for colours.
    overflow: Vec<f64>,
    /// The window.
    width: f64,
    /// How much wider the heat maps, and the plots and tables of the roofline, are than their place.
    heat: f64,
    roofline: f64,
    /// The smallest text of the roofline's plots, in pixels.
    smallest: f64,
    /// Letters of bricks and names of roofs that overlap another one.
    hidden: Vec<String>,
    /// Names in frames that are wider than their frame.
    beyond: Vec<String>,
    /// How much of the window's width the sections take.
    used: f64,
    /// The line below the first timeline: at first, and after each key.
    details: Vec<String>,
    /// The visible share of the timeline: at first, after Enter, after Escape.
    zooms: Vec<String>,
    /// Whether the focus on it can be seen.
    focus: String,
    /// Visible timelines after the second pass was chosen, and the rectangles in it.
    passes: usize,
    rects: usize,
    /// Frames of the first flame view: with merged layers, and with each layer.
    frames: Vec<usize>,
    /// The colour of the page after each click on the button.
    colours: Vec<String>,
    /// The colour of a cell of the heat map, by the table and by the column.
    shades: Vec<String>,
    /// Numbers on the page, and those whose text differs from their value.
    numbers: usize,
    wrong: Vec<String>,
}

/// Runs before the scripts of the page, which may fail as well.
pub(crate) const WATCH: &str = r#"
var errors = [];
window.addEventListener("error", function (e) { errors.push(e.message); });
window.addEventListener("unhandledrejection", function (e) { errors.push(String(e.reason)); });
document.addEventListener("securitypolicyviolation", function (e) { errors.push(e.violatedDirective + " " + e.blockedURI); });
"#;

/// Acts as a reader does.
const DRIVE: &str = r##"
window.addEventListener("load", function () { setTimeout(function () {
    var seen = {};
    var all = function (what, within) { return Array.from((within || document).querySelectorAll(what)); };
    var one = function (what, within) { return (within || document).querySelector(what); };
    var key = function (e, name) { e.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true })); };
    try {
        seen.first = all("a, button, input, summary, [tabindex='0']")[0].className;
        var links = all("nav ol a");
        seen.sections = links.length;
        seen.unseen = [];
        links.forEach(function (link) {
            link.click();
            var section = document.getElementById(location.hash.slice(1));
            if (!section || section.getBoundingClientRect().height < 40) seen.unseen.push(link.textContent);
        });
        seen.closed = 0;
        all("details").filter(function (d) { return d.closest("[hidden]") === null; }).forEach(function (details) {
            one("summary", details).click();
            if (one("table, ul", details).getBoundingClientRect().height < 10) seen.closed += 1;
        });
        var wider = function () {
            return Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - window.innerWidth;
        };
        seen.overflow = [wider()];
        seen.width = window.innerWidth;
        var widest = function (what) {
            return all(what).reduce(function (most, e) {
                var place = e.closest(".scroll");
                return Math.max(most, place.scrollWidth - place.clientWidth);
            }, 0);
        };
        seen.heat = widest("table.heat");
        seen.roofline = widest(".roofline svg, table.roofline");
        seen.smallest = all(".roofline svg text").reduce(function (least, e) {
            return Math.min(least, parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a);
        }, 99);
        seen.hidden = [];
        all(".roofline svg").forEach(function (svg) {
            var marks = all(".point circle:not(.spot), text.roof", svg);
            marks.forEach(function (mark, nth) {
                marks.slice(0, nth).forEach(function (other) {
                    var a = mark.getBoundingClientRect(), b = other.getBoundingClientRect();
                    /* A pixel of two discs' corners is none of theirs. */
                    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1) {
                        seen.hidden.push((mark.textContent || mark.parentNode.textContent) + " and " + (other.textContent || other.parentNode.textContent));
                    }
                });
            });
        });
        seen.beyond = [];
        all("[data-timeline] text.in, [data-flame] text.in").forEach(function (name) {
            var frame = name.previousSibling.getBoundingClientRect(), box = name.getBoundingClientRect();
            if (box.right > frame.right + 1) seen.beyond.push(name.textContent);
        });
        seen.used = one("section").getBoundingClientRect().width / window.innerWidth;
        seen.details = []; seen.zooms = []; seen.frames = []; seen.focus = ""; seen.rects = 0; seen.passes = 0;
        var timeline = one("[data-timeline]");
        if (timeline) {
            var svg = one("svg", timeline);
            var where = function () { return one(".where", timeline).textContent; };
            svg.focus();
            seen.focus = document.activeElement === svg ? getComputedStyle(svg).outlineStyle : "elsewhere";
            seen.details.push(one(".detail", timeline).textContent);
            ["Home", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowLeft"].forEach(function (name) {
                key(svg, name);
                seen.details.push(one(".detail", timeline).textContent);
            });
            seen.zooms.push(where());
            key(svg, "Enter"); seen.zooms.push(where());
            key(svg, "Escape"); seen.zooms.push(where());
            var passes = all("input[name=pass]");
            if (passes[1]) {
                passes[1].click();
                var shown = all("[data-timeline]").filter(function (e) { return e.getBoundingClientRect().height > 0; });
                seen.passes = shown.length;
                window.dispatchEvent(new Event("resize"));
                seen.rects = all("rect.f", shown[0]).length;
            }
        }
        var flame = one("[data-flame]");
        if (flame) {
            seen.frames.push(all("rect.f", flame).length);
            one("input[type=checkbox]", flame).click();
            seen.frames.push(all("rect.f", flame).length);
        }
        seen.colours = [0, 1, 2].map(function () {
            document.getElementById("theme").click();
            seen.overflow.push(wider());
            return getComputedStyle(document.body).backgroundColor;
        });
        var cell = one("table.heat td.k12:not(.h12)");
        seen.shades = [];
        if (cell) {
            seen.shades.push(getComputedStyle(cell).backgroundColor);
            all("input[value=column]").forEach(function (input) { input.click(); });
            seen.shades.push(getComputedStyle(cell).backgroundColor);
        }
        var numbers = all("data");
        seen.numbers = numbers.length;
        seen.wrong = numbers.filter(function (number) {
            var text = number.textContent.replace("−", "-"), shown = parseFloat(text);
            var exact = Number(number.value) / Number(number.getAttribute("data-per") || 1);
            var places = (/\.(\d+)/.exec(text) || ["", ""])[1].length;
            return !(Math.abs(shown - exact) <= 0.5 * Math.pow(10, -places) * 1.000001 + 1e-9 * Math.abs(exact));
        }).map(function (number) { return number.outerHTML; });
    } catch (e) {
        errors.push(e.stack);
    }
    seen.errors = errors;
    document.documentElement.setAttribute("seen", encodeURIComponent(JSON.stringify(seen)));
    if (window.parent !== window) window.parent.postMessage(document.documentElement.getAttribute("seen"), "*");
}, 400); });
"##;

/// The page with scripts before and after its own, and a policy that allows them.
pub(crate) fn with(page: &str, before: &str, after: &str) -> String {
    let page = page.replacen("script-src ", "script-src 'nonce-test' ", 1);
    let script = |text: &str| format!("<script nonce=\"test\">{text}</script>\n");
    let page = page.replacen("<meta name=", &format!("{}<meta name=", script(before)), 1);
    page.replacen("</body>", &format!("{}</body>", script(after)), 1)
}

fn drive(page: &str, window: [u32; 2]) -> Option<Seen> {
    chromium::seen(&with(page, WATCH, DRIVE), "report.html", window)
}

/// Checks that hold for every page.
#[track_caller]
fn check(seen: &Seen) {
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    assert_eq!(seen.first, "skip");
    assert!(seen.unseen.is_empty(), "{:?}", seen.unseen);
    assert_eq!(seen.closed, 0);
    assert!(seen.hidden.is_empty(), "{:?}", seen.hidden);
    assert!(seen.beyond.is_empty(), "{:?}", seen.beyond);
    assert_eq!(seen.overflow.len(), 4);
    assert!(seen.overflow.iter().all(|wider| *wider <= 0.0), "wider: {:?}", seen.overflow);
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    // The system's setting is one of the two.
    let [a, b, c] = &seen.colours[..] else { panic!("{:?}", seen.colours) };
    assert_ne!(a, b, "light and dark");
    assert!(c == a || c == b);
}

#[test]
fn a_report_is_read_by_mouse_and_keyboard() {
    let page = page(&sample("moe"));
    for window in [[1920, 1000], [1280, 900], [480, 800]] {
        let Some(seen) = drive(&page, window) else { return };
        check(&seen);
        assert!(seen.used > 0.75, "{} of {window:?}", seen.used);
        assert_eq!(seen.sections, 11);
        assert_eq!(seen.width, f64::from(window[0]));
        assert_eq!(seen.roofline, 0.0, "the roofline fits {window:?}");
        assert!(seen.smallest > 7.5, "text of {} pixels at {window:?}", seen.smallest);
        assert!(seen.numbers > 300, "{}", seen.numbers);
        assert_ne!(seen.focus, "none");
        let begins = [
            "Choose something",
            // The pass begins at 0.13 µs, with nothing before it.
            "Embedding takes 1.01 µs",
            // The next layer, then the brick and its kernel inside of it.
            "layer 0 takes 200",
            "QkvProjection in layer 0, takes 100",
            "q8_0_gemv_avx2 in layer 0, takes 100",
            "QkvProjection in layer 0, takes 100",
        ];
        for (detail, begins) in seen.details.iter().zip(begins) {
            assert!(detail.starts_with(begins), "{detail:?} for {begins:?}");
        }
        assert_eq!(seen.zooms[0], seen.zooms[2]);
        assert_eq!(seen.zooms[0], "100.0 % of the whole");
        assert_ne!(seen.zooms[0], seen.zooms[1]);
        assert_eq!(seen.passes, 1);
        assert!(seen.rects > 10, "{}", seen.rects);
        assert!(seen.frames[0] < seen.frames[1], "{:?}", seen.frames);
        assert_ne!(seen.shades[0], seen.shades[1]);
    }
}

/// A pass of all bricks, which do the same work in nearly the same time.
pub(crate) fn crowded() -> Profile {
    let hand = MockClock::default();
    let profiler = BrickProfiler::with_clock(hand.clock());
    profiler.enable();
    let pass = profiler.begin_pass(Phase::Decode);
    for (nth, brick) in (0..).zip(BrickId::ALL) {
        let timer = profiler.start_brick(brick);
        hand.advance(100_000 + 500 * nth);
        let work = Work { elements: 1, flops: 900_000, bytes: 500_000, ..Work::default() };
        profiler.stop_brick_with(timer, work);
    }
    profiler.end_pass(pass, 1, 0);
    let mut profile = profiler.profile();
    profile.ceilings = sample("moe").ceilings;
    profile
}

#[test]
fn bricks_of_one_place_hide_no_letter_of_each_other() {
    let page = page(&crowded());
    assert_eq!(page.matches("class=\"spot\"").count(), BrickId::ALL.len());
    for window in [[1920, 1000], [480, 800]] {
        let Some(seen) = drive(&page, window) else { return };
        check(&seen);
    }
}

/// A run of twelve layers of as many bricks as a heat map has columns, with times of many digits.
pub(crate) fn of_many_bricks() -> Profile {
    let mut profile = sample("moe");
    profile.spans.clear();
    for layer in 0..12 {
        let further = ["FurtherProjection", "OtherNormalisation", "AnotherEmbedding"];
        let names = BrickId::ALL.iter().map(|id| id.name()).chain(further);
        for (nth, name) in names.enumerate() {
            let ns = 999_994_321 - 7_654_321 * (nth as u64 + layer);
            profile.layers.push(LayerBrick {
                phase: Some(Phase::Decode),
                layer: Some(layer as u16),
                name: name.to_owned(),
                count: 60,
                total_ns: ns,
                exclusive_ns: ns,
            });
        }
    }
    profile
}

#[test]
fn a_heat_map_of_all_columns_fits_a_window_of_1280_pixels() {
    let page = page(&of_many_bricks());
    assert!(page.contains("further bricks"), "more than there are columns");
    let Some(seen) = drive(&page, [1280, 900]) else { return };
    check(&seen);
    assert_eq!(seen.heat, 0.0);
    let Some(seen) = drive(&page, [480, 800]) else { return };
    check(&seen);
}

#[test]
fn two_runs_fit_a_wide_and_a_narrow_window() {
    let runs = [Ok(sample("moe")), Ok(sample("moe"))];
    let page = of_two(["a", "b"], &Err("not compared".to_owned()), [&runs[0], &runs[1]]);
    for window in [[1280, 900], [480, 800]] {
        let Some(seen) = drive(&page, window) else { return };
        check(&seen);
        assert_eq!(seen.width, f64::from(window[0]));
        assert!(seen.sections > 3 && seen.numbers > 100, "{seen:?}");
        assert!(window[0] < 1280 || seen.heat == 0.0, "{}", seen.heat);
    }
}

#[test]
fn names_of_any_kind_are_text_in_a_browser() {
    let Some(seen) = drive(&page(&sample(HOSTILE)), [1280, 900]) else { return };
    check(&seen);
    assert!(seen.rects > 10, "{}", seen.rects);
}

#[test]
fn a_run_on_a_device_and_one_of_nothing_work_in_a_browser() {
    let Some(seen) = drive(&page(&on_a_device()), [1280, 900]) else { return };
    check(&seen);
    assert!(seen.details.iter().any(|detail| detail.contains("takes")), "{:?}", seen.details);
    let empty = page(&brickscope::Profile::empty(Default::default()));
    let Some(seen) = drive(&empty, [480, 800]) else { return };
    check(&seen);
}

#[test]
fn a_report_has_a_picture_in_light_and_in_dark() {
    let page = page(&sample("moe"));
    let of = |theme: &str| {
        let before = format!("localStorage.setItem('brickscope-theme', '{theme}');");
        chromium::screenshot(&with(&page, &before, ""), "report.html", [1280, 2400])
    };
    let (Some(light), Some(dark)) = (of("light"), of("dark")) else { return };
    for screenshot in [&light, &dark] {
        assert!(screenshot.starts_with(b"\x89PNG"));
        // An empty page of that size is some kilobytes.
        assert!(screenshot.len() > 40_000, "{} bytes", screenshot.len());
    }
    assert_ne!(light, dark);
}
