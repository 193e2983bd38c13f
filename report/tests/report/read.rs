//! Makes pages, and reads what stands in them.

use brickscope::Profile;

use brickscope_report::{Run, of_run, steps};

use crate::provenance::{Files, check, walk};

pub(crate) fn page(profile: &Profile) -> String {
    let run = Run { name: "runs/today".to_owned(), profile, receipt: None };
    let mut done = 0;
    let page = of_run(&run, &mut || done += 1);
    assert_eq!(done, steps(profile), "progress ends where it was said to");
    page
}

/// The page, after checking each of its numbers against the file, and their number.
#[track_caller]
pub(crate) fn traced(profile: &Profile) -> (String, usize) {
    let page = page(profile);
    // What is left out of the page is left out of the JSON that its numbers are in.
    let shown = brickscope_analysis::typical::shown(profile);
    let mut files = Files::of(&shown.to_json(), &["runs/today"]);
    files.hear(profile);
    let numbers = check(&page, &mut files);
    (page, numbers)
}

/// What the page's script draws.
pub(crate) fn data(page: &str) -> &str {
    let (_, data) = page.split_once("id=\"data\">").expect("a script of data");
    data.split("</script>").next().expect("it ends")
}

/// The HTML of one section.
pub(crate) fn html_of<'p>(page: &'p str, id: &str) -> &'p str {
    let start = page.find(&format!("<section id=\"{id}\"")).expect("a section");
    page[start..].split("</section>").next().expect("it ends")
}

/// The text of one section.
pub(crate) fn section(page: &str, id: &str) -> String {
    let mut found = None;
    walk(page, |around, text, ends| {
        if ends && around.last().is_some_and(|e| e.name == "section" && e.get("id") == Some(id)) {
            found = Some(text.to_owned());
        }
    });
    found.unwrap_or_else(|| panic!("no section {id}"))
}

/// The sections of a page, after checking that the contents list them.
pub(crate) fn sections(page: &str) -> Vec<String> {
    let of = |start: &str| -> Vec<String> {
        let ids = page.split(start).skip(1);
        ids.map(|rest| rest.split('"').next().expect("an end").to_owned()).collect()
    };
    let sections = of("<section id=\"");
    assert_eq!(of("<li><a href=\"#"), sections, "the contents are the sections");
    sections
}

/// The cards at the top: what, how much, and what stands beside it.
pub(crate) fn cards(page: &str) -> Vec<[String; 3]> {
    let mut cards: Vec<Vec<String>> = Vec::new();
    walk(page, |around, text, ends| {
        let is_in_card = around.iter().any(|element| element.get("class") == Some("card"));
        match around.last().map(|element| element.name.as_str()) {
            Some("dt") if ends && is_in_card => cards.push(vec![text.to_owned()]),
            Some("dd") if ends && is_in_card => {
                cards.last_mut().expect("a card").push(text.to_owned());
            }
            _ => {}
        }
    });
    cards.into_iter().map(|card| card.try_into().expect("three texts")).collect()
}

pub(crate) fn names_of(cards: &[[String; 3]]) -> Vec<&str> {
    cards.iter().map(|[name, ..]| name.as_str()).collect()
}
