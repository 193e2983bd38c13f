//! Tests of the page of a folder: its figures are those of the list that it is made from.

use std::path::Path;

use brickscope_report::{Folder, of_folder};
use brickscope_testing::{chromium, hostile};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::browser::{WATCH, with};
use crate::provenance::walk;
use crate::samples::HOSTILE;

/// A list of so many runs of two models, as `brickscope ls --json` prints it.
pub(crate) fn list(runs: usize) -> Value {
    let run = |nth: usize| {
        let day = nth / 24 % 28 + 1;
        let mut run = json!({
            "name": format!("run-{nth}"),
            "path": format!("brickscope-runs/run-{nth}"),
            "created": format!("2026-{:02}-{day:02}T{:02}:00:00Z", 12 - nth / 672 % 12, nth % 24),
            "model": if nth.is_multiple_of(3) { "TinyLlama" } else { "Qwen" },
            "quantization": "q8_0",
            "decode_tokens_per_second": 90.0 + (nth * 7_919 % 1_000) as f64 / 77.0,
            "passes": {"phase": "decode", "all": 64, "disturbed": nth % 4},
            "bytes": 1_234_567 + nth,
        });
        if nth.is_multiple_of(5) {
            run["report"] = json!(format!("brickscope-runs/run-{nth}/report.html"));
        }
        if nth == 1 {
            run["tag"] = json!("best");
        }
        run
    };
    let runs: Vec<Value> = (0..runs).map(run).collect();
    json!({ "folder": "brickscope-runs", "unread": 0, "runs": runs })
}

pub(crate) fn page(list: &Value) -> String {
    let json = list.to_string();
    let folder = Folder { name: "brickscope-runs", json: &json, links: Some(Path::new("")) };
    of_folder(&folder).expect("it is a list")
}

/// What the script draws.
fn drawn(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").expect("a script of data");
    serde_json::from_str(data.split("</script>").next().expect("it ends")).expect("JSON")
}

#[test]
fn the_page_has_the_figures_of_the_list_and_no_others() {
    let mut list = list(7);
    list["unread"] = json!(2);
    let run = list["runs"][3].as_object_mut().expect("a run");
    run.remove("decode_tokens_per_second");
    run.insert("no_rate".to_owned(), json!("it is a set"));
    let page = page(&list);
    let data = drawn(&page);
    for (nth, run) in data["runs"].as_array().expect("runs").iter().enumerate() {
        for (field, value) in run.as_object().expect("fields") {
            let of_list = &list["runs"][nth][field];
            match (field.as_str(), value) {
                ("link", link) => assert_eq!(*link, json!(format!("./run-{nth}/report.html"))),
                ("passes", value) => assert_eq!(value["disturbed"], of_list["disturbed"]),
                _ => assert_eq!(value, of_list, "{field}"),
            }
        }
        assert_eq!(run.get("link").is_some(), nth % 5 == 0);
    }
    assert!(data["runs"][3].get("decode_tokens_per_second").is_none(), "it is not 0");
    let mut numbers = Vec::new();
    walk(&page, |around, text, ends| {
        let element = around.last().cloned().unwrap_or_default();
        if ends && element.name == "data" {
            let from = element.get("data-from").unwrap_or_default();
            numbers.push((text.to_owned(), from.to_owned()));
        }
        let is_covered = around.iter().any(|element| {
            ["data", "script", "style", "title", "head"].contains(&element.name.as_str())
                || element.get("data-text").is_some()
        });
        assert!(is_covered || !text.contains(|c: char| c.is_ascii_digit()) || ends, "{text}");
    });
    let rate = |nth| format!("/runs/{nth}/decode_tokens_per_second");
    let (newest, fastest) = (rate(0), rate(6));
    let pairs = [
        ("7", "[\"count\",\"/runs\"]"),
        ("2", "/unread"),
        ("90.0 tokens/s", &*newest),
        ("96.7 tokens/s", &*fastest),
    ];
    assert_eq!(numbers, pairs.map(|(text, from)| (text.to_owned(), from.to_owned())));
}

#[test]
fn the_first_sentence_is_of_the_newest_run_in_its_series() {
    let mut list = list(7);
    let said = |list: &Value| {
        let page = page(list);
        let (_, said) = page.split_once("<p class=\"headline\">").expect("a sentence");
        let said = said.split("</p>").next().unwrap_or_default();
        let without_tags = said.split('<').map(|part| part.split_once('>').map_or(part, |of| of.1));
        without_tags.collect::<String>()
    };
    assert_eq!(
        said(&list),
        "The newest, run-0, decoded 90.0 tokens/s; of its model, engine and threads the fastest, run-3, 99.8 tokens/s."
    );
    list["runs"][3]["decode_tokens_per_second"] = json!(91);
    assert_eq!(
        said(&list),
        "The newest, run-0, decoded 90.0 tokens/s; of its model, engine and threads the fastest, run-6, 96.7 tokens/s, \
         and the one before it, run-3, 91.0 tokens/s."
    );
    // Nor is one without its disturbed passes the faster one.
    list["runs"][6]["rate_of"] = json!("clean");
    assert_eq!(
        said(&list),
        "The newest, run-0, decoded 90.0 tokens/s; of its model, engine and threads whose rate is of all passes the \
         fastest, run-3, 91.0 tokens/s."
    );
    list["runs"][0]["rate_of"] = json!("clean");
    assert_eq!(
        said(&list),
        "The newest, run-0, decoded 90.0 tokens/s without disturbed passes; of its model, engine and threads with such a \
         rate the fastest, run-6, 96.7 tokens/s."
    );
    list["runs"][0]["rate_of"] = json!("all");
    list["runs"][6]["rate_of"] = json!("all");
    // Those on other threads are no runs of its series.
    list["runs"][0]["threads"] = json!(1);
    list["runs"][0]["tag"] = json!("one");
    assert_eq!(
        said(&list),
        "The newest, run-0 (one), decoded 90.0 tokens/s, the only one of its model, engine and threads."
    );
    assert!(drawn(&page(&list))["runs"][0]["threads"] == 1);
}

#[test]
fn no_name_in_a_list_controls_forges_or_floods_its_page() {
    let honest = page(&list(2)).len();
    for text in [HOSTILE.to_owned(), hostile::flood(20_000)] {
        let mut list = list(2);
        let fields = ["name", "created", "model", "quantization", "tag", "imported_from"];
        for field in fields {
            list["runs"][1][field] = json!(text);
        }
        list["folder"] = json!(text);
        let page = page(&list);
        assert_eq!(hostile::forbidden(&page), None);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("hacked()</script>") && page.len() < honest + 200_000);
        drawn(&page);
    }
    let other = Folder { name: "x", json: "{\"runs\": 7}", links: None };
    of_folder(&other).expect_err("it is another file");
}

#[test]
fn the_command_that_compares_two_runs_has_the_whole_path() {
    let mut list = list(2);
    let folder = format!("/data/{}", "a-long-name/".repeat(40));
    list["folder"] = json!(folder);
    assert_eq!(drawn(&page(&list))["folder"], folder);
}

#[test]
fn ten_thousand_runs_are_a_page_of_some_megabytes() {
    let page = page(&list(10_000));
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
}

/// What the browser showed.
#[derive(Debug, Deserialize)]
struct Seen {
    errors: Vec<String>,
    overflow: f64,
    charts: usize,
    /// Texts at the axes of the first chart.
    axes: Vec<String>,
    /// Rows of the table: at first, after a click for more, and of one tag.
    rows: Vec<usize>,
    /// The table of two runs.
    two: String,
    /// After a click into a chart, how many are chosen.
    chosen: usize,
    /// Numbers, and those that aren't what the list has.
    numbers: usize,
    wrong: Vec<String>,
}

const DRIVE: &str = r##"
window.addEventListener("load", function () { setTimeout(function () {
    var seen = {}, all = function (what) { return Array.from(document.querySelectorAll(what)); };
    try {
        seen.overflow = document.documentElement.scrollWidth - window.innerWidth;
        seen.charts = all(".series svg").length;
        seen.axes = all(".series")[0] ? Array.from(all(".series")[0].querySelectorAll("text")).map(function (e) { return e.textContent; }) : [];
        var rows = function () { return all("table.runs tbody tr").length; };
        seen.rows = [rows()];
        all("[data-runs] > button")[0].click();
        seen.rows.push(rows());
        var boxes = all("table.runs input");
        boxes[2].click(); boxes[7].click(); boxes[1].click();
        seen.two = all("[data-compare]")[0].textContent;
        var data = JSON.parse(document.getElementById("data").textContent);
        var of = function (from) {
            if (from[0] === "[") { var parts = JSON.parse(from); return of(parts[1]) - of(parts[2]); }
            return from.split("/").slice(1).reduce(function (value, key) { return value[key]; }, data);
        };
        var numbers = all("main section data");
        seen.numbers = numbers.length;
        seen.wrong = numbers.filter(function (number) {
            var text = number.textContent.replace("−", "-").replace("+", ""), value = of(number.getAttribute("data-from"));
            var places = (/\.(\d+)/.exec(text) || ["", ""])[1].length;
            var exact = value / Number(number.getAttribute("data-per") || 1);
            return Number(number.value) !== value || !(Math.abs(parseFloat(text) - exact) <= 0.5 * Math.pow(10, -places) * 1.000001);
        }).map(function (number) { return number.outerHTML; });
        var button = all("[data-compare] button")[0];
        button.click();
        var svg = all(".series svg")[0], dot = svg.querySelector("circle.tagged, path.dots"), box = svg.getBoundingClientRect();
        var at = dot.getAttribute("d") ? /M([\d.]+) ([\d.]+)/.exec(dot.getAttribute("d")).slice(1) : [dot.getAttribute("cx"), dot.getAttribute("cy")];
        svg.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: box.left + Number(at[0]), clientY: box.top + Number(at[1]) }));
        seen.chosen = all("table.runs input:checked").length;
        all(".choice input[type=checkbox]")[0].click();
        seen.rows.push(rows());
    } catch (e) { errors.push(e.stack); }
    seen.errors = errors;
    document.documentElement.setAttribute("seen", encodeURIComponent(JSON.stringify(seen)));
    if (window.parent !== window) window.parent.postMessage(document.documentElement.getAttribute("seen"), "*");
}, 400); });
"##;

#[test]
fn a_folder_is_read_by_a_click() {
    let list = list(250);
    let page = with(&page(&list), WATCH, DRIVE);
    for window in [[1920, 1000], [1280, 900], [480, 800]] {
        let Some(seen): Option<Seen> = chromium::seen(&page, "runs.html", window) else { return };
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
        assert!(seen.overflow <= 0.0, "{} at {window:?}", seen.overflow);
        assert_eq!(seen.charts, 2, "one for each model");
        for label in ["tokens/s", "when, UTC"] {
            assert!(seen.axes.iter().any(|text| text == label), "{:?}", seen.axes);
        }
        assert_eq!(seen.rows, [200, 250, 1]);
        // The first of the three that were clicked is none any more, and A is the older.
        let two = &seen.two;
        assert!(two.contains("run-7") && two.contains("run-1"), "{two}");
        assert!(two.find("run-7") < two.find("run-1"), "{two}");
        assert!(two.contains("brickscope report brickscope-runs/run-7 brickscope-runs/run-1"));
        assert_eq!(seen.chosen, 1);
        assert!(seen.numbers > 900, "{}", seen.numbers);
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    }
}
