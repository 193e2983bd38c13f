//! The pages of words as text.

use std::fmt::Write;

use brickscope_profile::text::{printable, printable_text, screened, screened_lines};
use serde_json::{Value, json};

use crate::explain::{Group, InRun, Page, Section, pages};
use crate::text::wrap;

/// Columns of the text.
const COLUMNS: usize = 80;
/// Columns of the labels.
const LABEL: usize = 12;

/// The pages of a word, at most 80 columns wide; with `run`, each with what a run says of it, and the run's name.
///
/// ```
/// use brickscope_analysis::{explain, view};
///
/// let text = view::explain(&explain::find("ridge"), None);
/// assert!(text.starts_with("ridge (term)\n\nThe arithmetic intensity at which the two limits meet: "));
/// ```
#[must_use]
pub fn explain(pages: &[Page], run: Option<(&str, &[InRun])>) -> String {
    let mut text = String::new();
    for (nth, page) in pages.iter().enumerate() {
        if nth > 0 {
            text.push('\n');
        }
        let also = match page.also.len() {
            0 => String::new(),
            _ => format!("; also {}", page.also.join(", ")),
        };
        let title = format!("{} ({}{also})", printable(&page.word), page.group.name());
        lines(&title, &mut text);
        text.push('\n');
        lines(&page.text, &mut text);
        if !page.sections.is_empty() {
            text.push('\n');
        }
        sections(&page.sections, &mut text);
        if let Some((name, said)) = run
            && let Some(said) = said.get(nth)
        {
            of_run(name, said, &mut text);
        }
    }
    screened_lines(text)
}

fn of_run(name: &str, said: &InRun, text: &mut String) {
    text.push('\n');
    lines(&format!("In {}:", printable_text(name)), text);
    text.push('\n');
    sections(&said.sections, text);
}

fn lines(said: &str, text: &mut String) {
    for line in wrap(said, COLUMNS) {
        let _ = writeln!(text, "{line}");
    }
}

fn sections(sections: &[Section], text: &mut String) {
    for Section { label, text: said } in sections {
        let label_columns = if label.is_empty() { 0 } else { LABEL };
        for (nth, line) in wrap(said, COLUMNS - 2 - label_columns).into_iter().enumerate() {
            let label = if nth == 0 { label.as_str() } else { "" };
            let _ = writeln!(text, "  {label:label_columns$}{line}");
        }
    }
}

/// The same for scripts: an array with an object for each page, with `run` in it if there is one.
///
/// # Panics
///
/// Never: pages are plain data.
#[must_use]
pub fn explain_json(pages: &[Page], run: Option<&[InRun]>) -> String {
    let page = |(nth, page): (usize, &Page)| {
        let mut value = json!(page);
        if let Some(said) = run.and_then(|run| run.get(nth)) {
            value["run"] = json!(said);
        }
        value
    };
    let all: Vec<Value> = pages.iter().enumerate().map(page).collect();
    let text = serde_json::to_string_pretty(&all).expect("plain data always writes");
    screened(text + "\n")
}

/// All words by group, at most 80 columns wide.
#[must_use]
pub fn words() -> String {
    let pages = pages();
    let mut text = String::new();
    for group in Group::ALL {
        let of_group = pages.iter().filter(|page| page.group == group);
        // A term may have a space, at which no line may break.
        let of_group: Vec<String> = of_group.map(|page| page.word.replace(' ', "\u{a0}")).collect();
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", group.heading());
        for line in wrap(&of_group.join(", "), COLUMNS - 2) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}
