//! Every text of a receipt: verified, compared, over time.

use std::collections::BTreeMap;

use brickscope_analysis::compare::{Options, Process, Side, compare};
use brickscope_analysis::history::{History, LeftOut, Measure, Run};
use brickscope_analysis::receipt::{self, Receipt, verify};
use brickscope_analysis::view;
use serde_json::Value;

use brickscope_testing::hostile::{
    Place, SCRIPT, assert_harmless, assert_inert, flood, forbidden, places, planted,
};

/// The receipt in the repository, with a value in every field that is a text.
fn receipt() -> Receipt {
    let text = include_str!("../../data/receipt-v1.json");
    let mut receipt = Receipt::from_json(text, "receipt-v1.json".as_ref()).expect("a receipt");
    let some = |text: &str| Some(text.to_owned());
    receipt.model.name = some("tiny");
    receipt.run.set = some("set");
    (receipt.run.process, receipt.run.processes) = (1, 2);
    receipt.machine.cpu = some("A Processor 9000");
    receipt.machine.cpu_id = some("6/207/2");
    receipt.machine.governor = some("performance");
    receipt.machine.hypervisor = some("kvm");
    receipt.machine.boot = some("00112233aabbccdd");
    receipt.ceilings_absent = some("not measured");
    receipt.load.absent = some("not known");
    receipt.load.doubts = vec!["others used 12 % of the machine".to_owned()];
    receipt.environment.insert("COMMIT".to_owned(), "0123456789".to_owned());
    receipt.dropped = BTreeMap::from([("spans".to_owned(), 3)]);
    receipt
}

/// What people see of a receipt, beside one that is as it was.
fn views(planted: &Receipt, honest: &Receipt) -> (Vec<(&'static str, String)>, Vec<String>) {
    let mut seen = Vec::new();
    let mut json = Vec::new();
    let side = |name: &str, receipts: &[&Receipt]| Side {
        name: name.to_owned(),
        processes: receipts.iter().map(|receipt| Process::from_receipt(name, receipt)).collect(),
    };
    let sides = [side("a", &[honest, planted]), side(&flood(9), &[planted])];
    for is_forced in [true, false] {
        let options = Options { is_forced, ..Options::default() };
        match compare(&sides[0], &sides[1], &options) {
            Err(why) => seen.push(("an error of compare", why.to_string())),
            Ok(compared) => {
                seen.push(("comparison", view::comparison(&compared)));
                let markdown = view::comparison_markdown(&compared);
                seen.push(("comparison_markdown", markdown.replace('\u{fe0f}', "")));
                json.extend([view::comparison_json(&compared), view::comparison_bmf(&compared)]);
            }
        }
    }
    let mut runs = Vec::new();
    let mut measures = vec![Measure::TokensPerSecond];
    for (receipt, minute) in [(honest, 0), (planted, 1), (honest, 2)] {
        let mut receipt = receipt.clone();
        // Later ones, unless the time itself is the text.
        if receipt.timestamp.len() < 40 {
            receipt.timestamp = format!("2026-01-01T10:0{minute}:00Z");
        }
        // Otherwise they are copies.
        receipt.run.seed += minute;
        let Ok(sealed) = receipt.sealed() else { continue };
        match Run::of(&flood(minute as usize), &sealed) {
            Ok(run) => runs.push(run),
            Err(why) => seen.push(("why a run is left out", view::printable_text(&why))),
        }
    }
    let bricks = planted.tests.iter().flat_map(|test| &test.bricks);
    measures.extend(bricks.map(|brick| Measure::Brick(brick.name.clone())).take(2));
    for measure in measures {
        let mut history = History::of(runs.clone(), measure);
        let left_out = LeftOut { path: flood(9), reason: flood(9) };
        history.left_out.push(left_out.clone());
        history.not_verified.push(left_out);
        seen.push(("history", view::history(&history)));
        seen.push(("history_markdown", view::history_markdown(&history)));
        seen.push(("history_csv", view::history_csv(&history).replace("\r\n", "\n")));
        let svg = view::history_svg(&history);
        assert_inert("a history", &svg);
        seen.push(("history_svg", svg));
        json.push(view::history_json(&history));
    }
    (seen, json)
}

fn assert_verdict_is_harmless(what: &str, bytes: &[u8]) {
    let options = receipt::Options { signed_by: Some("00".repeat(32)), ..Default::default() };
    let verdict = verify(bytes, &options);
    let refusals = verdict.refusals.iter().map(ToString::to_string);
    let lists = [&verdict.doubts, &verdict.not_checked, &verdict.signed_by];
    for line in refusals.chain(lists.into_iter().flatten().cloned()) {
        assert_harmless(&format!("verify, with {what}"), &line);
        assert_eq!(line.lines().count(), 1, "with {what}: {line}");
    }
}

#[test]
fn no_text_of_a_receipt_controls_a_terminal_forges_a_line_or_floods_the_screen() {
    let honest = receipt();
    let value = serde_json::to_value(&honest).expect("JSON");
    let mut read = 0;
    for place in places(&value) {
        let what = format!("a text at {place:?}");
        let text = planted(&value, &place, &flood(10_000)).to_string();
        assert_verdict_is_harmless(&what, text.as_bytes());
        match Receipt::from_json(&text, "run/receipt.json".as_ref()) {
            Err(why) => assert_harmless(&format!("the error for {what}"), &why.to_string()),
            Ok(receipt) => {
                read += usize::from(matches!(place, Place::Leaf(_)));
                if let Ok(sealed) = receipt.clone().sealed() {
                    assert_verdict_is_harmless(&what, sealed.to_json().as_bytes());
                }
                let (views, json) = views(&receipt, &honest);
                for (view, text) in views {
                    assert_harmless(&format!("{view}, with {what}"), &text);
                }
                for json in json {
                    assert_eq!(forbidden(&json), None, "JSON, with {what}");
                    assert!(serde_json::from_str::<Value>(&json).is_ok(), "with {what}");
                }
            }
        }
    }
    assert!(read > 50, "{read}");
}

#[test]
fn no_cell_of_a_history_is_a_formula() {
    for start in ["=", "+", "-", "@", "\t", "\r", "'"] {
        let mut receipt = receipt();
        let formula = || format!("{start}HYPERLINK(\"http://a\",\"b\")");
        receipt.model.name = Some(formula());
        receipt.machine.cpu = Some(formula());
        receipt.load.doubts = vec![formula()];
        let sealed = receipt.sealed().expect("it has a canonical form");
        let run = Run::of(&formula(), &sealed).expect("it has a place in time");
        let csv = view::history_csv(&History::of(vec![run], Measure::TokensPerSecond));
        // A control character is spelt out before, and so begins no formula.
        let begins = match start {
            "\t" => "\\t",
            "\r" => "\\r",
            start => &format!("'{start}"),
        };
        let cell = format!("\"{begins}HYPERLINK(\"\"http://a\"\",\"\"b\"\")\"");
        // Each test has a line with the model, the CPU, the doubt, and the source.
        let lines = csv.matches("\r\n").count() - 1;
        assert_eq!(csv.matches(&cell).count(), 4 * lines, "{csv}");
        assert!(lines > 0 && !csv.contains(&format!(",{start}H")), "{csv}");
    }
}

#[test]
fn no_text_of_a_receipt_makes_a_picture_run_or_fetch_anything() {
    let honest = receipt();
    let value = serde_json::to_value(&honest).expect("JSON");
    let mut drawn = 0;
    for place in places(&value) {
        let text = planted(&value, &place, SCRIPT).to_string();
        if let Ok(receipt) = Receipt::from_json(&text, "run/receipt.json".as_ref()) {
            // Each view looks at its pictures.
            drawn += usize::from(!views(&receipt, &honest).0.is_empty());
        }
    }
    assert!(drawn > 20, "{drawn}");
}
