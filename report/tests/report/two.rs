//! Pages of two runs, side by side.

use brickscope::{NameKind, Profile};
use brickscope_analysis::compare::{
    Comparison, Options, Process, RanksChange, RanksOfRun, Side, compare,
};
use brickscope_analysis::view;

use brickscope_report::of_two;

use crate::provenance::{Files, check};
use crate::read::{html_of, section};
use crate::samples::{on_a_device, ranks_late, sample, slower, two_ranks};

/// Runs of one process each, with what is to be said of it.
pub(crate) fn compared(a: &Profile, b: &Profile) -> Result<Comparison, String> {
    let side = |name: &str, profile: &Profile| Side {
        name: name.to_owned(),
        processes: vec![Process {
            doubts: ["built for tests", "2 CPUs", "3 CPUs"].map(str::to_owned).to_vec(),
            ..Process::from_profile(name, profile).expect("passes")
        }],
    };
    let options = Options { is_forced: true, ..Options::default() };
    let comparison = compare(&side("runs/a", a), &side("runs/b", b), &options);
    comparison.map_err(|why| why.to_string())
}

#[test]
fn two_runs_lie_side_by_side_and_one_each_decides_nothing() {
    let (a, b) = (sample("moe"), slower("moe", 900));
    let comparison = compared(&a, &b);
    let (json_a, json_b) = (a.to_json(), b.to_json());
    let names = ["runs/a", "runs/b", "prefill", "decode"];
    let page = of_two(["runs/a", "runs/b"], &comparison, [&Ok(a), &Ok(b)]);
    let comparison = comparison.expect("it is made");
    let value = serde_json::to_value(&comparison).expect("JSON");
    let mut files = Files::of_two(&json_a, &json_b, value, &names);
    files.told.insert(brickscope_analysis::view::comparison_headline(&comparison));
    files.told.extend(brickscope_analysis::view::doubts(&comparison.a));
    assert!(check(&page, &mut files) > 100);
    assert!(page.contains("1 process: 2 to 3 CPUs"), "each kind of doubt once");
    assert!(page.contains("a typical pass on each side"), "one of several, or of one");
    assert!(page.contains("nconclusive"), "{page:.4000}");
    assert!(section(&page, "bricks").contains("QkvProjection"));
    assert!(section(&page, "figures").contains("tokens/s"));
    let place = |id: &str| page.find(&format!("<section id=\"{id}\"")).expect("a section");
    assert!(place("bricks") < place("verdicts"), "which decide nothing");
    // Bars of both, and a map of where a token takes longer: in each layer of one brick alike.
    assert!(html_of(&page, "bricks").matches("class=\"c-side-b\"").count() > 4);
    let layers = html_of(&page, "layers");
    assert_eq!(layers.matches("<table").count(), 2, "{layers}");
    let decode = layers.split("</table>").next().expect("a table");
    let longer = decode.matches("<td class=\"n s12\">").count();
    assert_eq!((longer, decode.matches("<td class=\"n f0\">").count() > 3), (3, true), "{decode}");
    assert!(page.contains("one pass"), "a sample is a pass, not all of a prompt");
}

#[test]
fn heads_say_what_tells_two_runs_of_one_model_apart() {
    let (a, mut b) = (sample("moe"), slower("moe", 900));
    b.model.as_mut().expect("a model").quantization = "q4_0".to_owned();
    let comparison = compared(&a, &b);
    let page = of_two(["runs/a", "runs/b"], &comparison, [&Ok(a), &Ok(b)]);
    let head = page.split("</h1>").next().expect("a head");
    let said = |of: &str| format!(" · <span data-text=\"file\">{of}</span>");
    assert!(head.contains(&said("q8_0")) && head.contains(&said("q4_0")), "{head:.3000}");
    let figures = html_of(&page, "figures");
    assert!(figures.contains("<span class=\"side a\">A</span>"), "{figures:.2000}");
    assert_eq!(figures.matches(&said("q4_0")).count(), 2, "the head, and the facts below it");
}

#[test]
fn a_brick_of_one_run_has_no_difference_and_a_log_that_was_full_no_picture() {
    let (a, mut b) = (sample("moe"), sample("elsewhere"));
    let of_two = |b: &Profile| {
        let why = "not compared".to_owned();
        let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
        let mut files =
            Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &["a", "b"]);
        files.told.insert(why);
        (html_of(&page, "layers").to_owned(), check(&page, &mut files))
    };
    let (layers, n) = of_two(&b);
    assert!(n > 100, "{n}");
    // In three layers of two phases.
    let only =
        |side: &str| layers.matches(&format!("<td class=\"n none\">only {side}</td>")).count();
    assert_eq!((only("A"), only("B")), (6, 6));
    b.dropped.spans = 1;
    let (layers, _) = of_two(&b);
    assert!(layers.contains("of B did not fit the log") && !layers.contains("<table"), "{layers}");
}

/// The streams of this trace run at once, so neither alone has what the first screen says.
#[test]
fn two_traces_of_gpus_are_side_by_side_by_what_the_gpus_did() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-streams.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let of =
        |text: &str| read(text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    let (a, b) = (of(&text), of(&text.replace("\"dur\":400,", "\"dur\":410,")));
    let why = "not compared".to_owned();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
    let mut files = Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &["a", "b"]);
    files.told.insert(why);
    assert!(check(&page, &mut files) > 20);
    let bricks = section(&page, "bricks");
    for said in ["AllReduce", "MatMul", "gaps", "a device", "200.0", "205.0", "795.0"] {
        assert!(bricks.contains(said), "{said}: {bricks:.3000}");
    }
    // What the host did is in the report of one run.
    assert!(!bricks.contains("Launch") && !bricks.contains("unattributed"), "{bricks:.3000}");
}

/// The host of such a run only waits.
#[test]
fn runs_on_a_device_are_side_by_side_by_its_clock() {
    let why = "not compared".to_owned();
    let profile = on_a_device();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(profile.clone()), &Ok(profile.clone())]);
    let json = profile.to_json();
    let mut files = Files::of_two(&json, &json, serde_json::Value::Null, &["a", "b", "A", "B"]);
    files.told.insert(why);
    assert!(check(&page, &mut files) > 10);
    let bricks = section(&page, "bricks");
    assert!(bricks.contains("LmHead") && bricks.contains(" a token"), "{bricks:.3000}");
    assert!(!bricks.contains("DeviceWait"), "{bricks:.3000}");
}

#[test]
fn traces_without_tokens_are_side_by_side_by_pass() {
    use brickscope_formats::import::{Format, Options, read};
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/import/kineto-training.json");
    let text = std::fs::read_to_string(file).expect("a file");
    let profile = read(&text, file.as_ref(), Format::Chrome, &Options::default()).expect("read");
    assert!(profile.phases.iter().all(|of| of.tokens == 0), "{:?}", profile.phases);
    let why = "they differ in\n  rank: 0 and 1\nany of these".to_owned();
    let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(profile.clone()), &Ok(profile.clone())]);
    let json = profile.to_json();
    let mut files = Files::of_two(&json, &json, serde_json::Value::Null, &["a", "b"]);
    files.told.extend(why.lines().map(|line| line.trim().to_owned()));
    assert!(check(&page, &mut files) > 20);
    let bricks = section(&page, "bricks");
    assert!(bricks.contains(" a pass") && bricks.contains("Training"), "{bricks:.2000}");
    assert!(!page.contains("\\n"), "lines are lines");
}

#[test]
fn ranks_of_two_runs_are_side_by_side_also_where_there_is_no_verdict() {
    let why = "not compared".to_owned();
    let page_of = |a: &Profile, b: &Profile| {
        let page = of_two(["a", "b"], &Err(why.clone()), [&Ok(a.clone()), &Ok(b.clone())]);
        let names = ["a", "b", "A", "B"];
        let mut files = Files::of_two(&a.to_json(), &b.to_json(), serde_json::Value::Null, &names);
        files.told.insert(why.clone());
        let runs = [a, b].map(RanksOfRun::of);
        let change = RanksChange::of_runs(runs[0].as_ref(), runs[1].as_ref());
        files.told.extend(change.iter().flat_map(view::ranks_compared_in_words));
        check(&page, &mut files);
        page
    };
    let ranks = section(&page_of(&two_ranks(), &ranks_late([50, 0])), "ranks");
    for said in [
        "Ranks: 2 in each; one run each, no verdict",
        "another straggler: rank 1 in A (the others wait 100 µs a pass for it), rank 0 in B",
        "+400.0",
        "−400.0",
        // All of them, of 150 µs each.
        "1200.0",
        "1.00",
    ] {
        assert!(ranks.contains(said), "{said}: {ranks}");
    }
    let alone = section(&page_of(&two_ranks(), &sample("moe")), "ranks");
    assert!(alone.contains("only A has several (2), and B is of one"), "{alone}");
    let without = page_of(&sample("moe"), &sample("elsewhere"));
    assert!(!without.contains("<section id=\"ranks\""));
}

#[test]
fn bricks_of_one_side_are_in_what_is_left_of_its_pass() {
    let page_of = |a: &Profile, b: &Profile| {
        let comparison = compared(a, b);
        let page = of_two(["a", "b"], &comparison, [&Ok(a.clone()), &Ok(b.clone())]);
        section(&page, "bricks").contains("those of one side only")
    };
    assert!(!page_of(&sample("moe"), &slower("moe", 900)));
    // The brick that takes the most has another name in B.
    let mut other = slower("moe", 900);
    let takes_ns = |brick: usize| -> u64 {
        let of = other.spans.iter().filter(|span| span.name.map(usize::from) == Some(brick));
        of.map(|span| span.exclusive_ns).sum()
    };
    let is_brick = |brick: &usize| other.names[*brick].kind == NameKind::Brick;
    let bricks = (0..other.names.len()).filter(is_brick);
    let most = bricks.max_by_key(|brick| takes_ns(*brick)).expect("it has bricks");
    other.names[most].name = "Another".to_owned();
    assert!(page_of(&sample("moe"), &other));
}

#[test]
fn two_runs_that_can_not_be_compared_say_why_and_are_shown_all_the_same() {
    let (a, b) = (sample("moe"), Profile::empty(Default::default()));
    let why = "these runs can't be compared".to_owned();
    let page = of_two(["runs/a", "runs/b"], &Err(why.clone()), [&Ok(a), &Ok(b)]);
    assert!(page.contains("No verdict.") && page.contains("can&#39;t be compared"), "{page:.3000}");
    assert!(section(&page, "figures").contains("tokens/s"));
    let page =
        of_two(["a", "b"], &Err(why), [&Err("no profile".to_owned()), &Err("none".to_owned())]);
    assert!(section(&page, "figures").contains("no profile"));
}
