//! The page around the sections: head, table of contents, data for the script.

use std::collections::HashMap;

use brickscope_analysis::receipt::sha256_hex;
use brickscope_analysis::view::screened;
use brickscope_profile::{BrickCategory, NameKind, Phase, Profile};
use serde_json::{Value, json};

use super::html::{attribute, json as json_text, shown};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const COMMON: &str = include_str!("common.js");
const DIAGRAMS: &str = include_str!("script.js");
const RUNS: &str = include_str!("folder.js");

/// Whether a file that begins so is a page of this program.
#[must_use]
pub fn is_page(start: &[u8]) -> bool {
    let start = String::from_utf8_lossy(start);
    start.starts_with("<!DOCTYPE html>")
        && start.contains("<meta name=\"generator\" content=\"brickscope ")
}

/// A section in the table of contents.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// One sentence: the question that it answers.
    pub(super) lead: &'static str,
    /// Empty if there is nothing to show: then the section isn't on the page.
    pub(super) html: String,
}

/// The data that the script draws.
#[derive(Default)]
pub(super) struct Diagrams {
    pub(super) names: Names,
    pub(super) timelines: Vec<Value>,
    pub(super) flames: Vec<Value>,
}

/// Names by number, each with the category that decides its colour.
#[derive(Default)]
pub(super) struct Names {
    list: Vec<(String, &'static str)>,
    known: HashMap<(String, &'static str), usize>,
}

impl Names {
    fn number(&mut self, name: String, class: &'static str) -> usize {
        let key = (name, class);
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        self.list.push(key.clone());
        self.known.insert(key, self.list.len() - 1);
        self.list.len() - 1
    }

    pub(super) fn of(&mut self, profile: &Profile, name: &str, kind: NameKind) -> usize {
        let class = match kind {
            NameKind::Kernel => "kernel",
            NameKind::Brick => {
                let total = profile
                    .totals
                    .iter()
                    .find(|total| total.kind == NameKind::Brick && total.stats.name == name);
                match total.and_then(|total| total.category) {
                    Some(BrickCategory::Norm) => "norm",
                    Some(BrickCategory::Attention) => "attention",
                    Some(BrickCategory::Ffn) => "ffn",
                    Some(BrickCategory::Other) | None => "other",
                }
            }
        };
        self.number(shown(name), class)
    }

    pub(super) fn layer(&mut self) -> usize {
        self.number("layer".to_owned(), "layer")
    }

    pub(super) fn phase(&mut self, phase: Option<Phase>) -> usize {
        self.number(super::source::heading(phase).to_owned(), "phase")
    }

    pub(super) fn unknown(&mut self) -> usize {
        self.number("?".to_owned(), "other")
    }
}

const OF_RUNS: &str = "Every number on this page is in the run’s <code>profile.json</code> or computed from it; its \
                       attribute <code>data-from</code> says where and how. This page measures nothing and loads nothing.";

const OF_A_FOLDER: &str = "Every number on this page is in what <code>brickscope ls --json</code> prints, or is the difference of \
                           two that are; its attribute <code>data-from</code> says where. This page measures nothing and loads \
                           nothing.";

/// The page of a run, or of two. `title` is plain text, `head` and the sections are HTML.
pub(super) fn page(title: &str, head: &str, sections: &[Section], diagrams: &Diagrams) -> String {
    let data = json!({
        "names": diagrams.names.list,
        "timelines": diagrams.timelines,
        "flames": diagrams.flames,
    });
    whole(title, head, sections, &data, DIAGRAMS, OF_RUNS)
}

/// The page of a folder, which its script draws.
pub(super) fn of_folder(title: &str, head: &str, sections: &[Section], data: &Value) -> String {
    whole(title, head, sections, data, RUNS, OF_A_FOLDER)
}

fn whole(
    title: &str,
    head: &str,
    sections: &[Section],
    data: &Value,
    script: &str,
    footer: &str,
) -> String {
    let with_text = || sections.iter().filter(|section| !section.html.is_empty());
    let contents: String = with_text()
        .map(|section| format!("<li><a href=\"#{}\">{}</a></li>\n", section.id, section.title))
        .collect();
    let body: String = with_text()
        .map(|section| {
            format!(
                "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n\
                 <p class=\"lead\">{}</p>\n{}</section>\n",
                section.title,
                section.lead,
                section.html,
                id = section.id
            )
        })
        .collect();
    let script = [COMMON, script].concat();
    let parts = [
        ("{{style-hash}}", hash(STYLE)),
        ("{{script-hash}}", hash(&script)),
        ("{{version}}", attribute(env!("CARGO_PKG_VERSION"))),
        ("{{title}}", attribute(&shown(title))),
        ("{{style}}", STYLE.to_owned()),
        ("{{script}}", script),
        ("{{head}}", head.to_owned()),
        ("{{contents}}", contents),
        ("{{sections}}", body),
        ("{{footer}}", footer.to_owned()),
        ("{{data}}", json_text(data)),
    ];
    screened(filled(&parts))
}

/// Fills each hole of the template once, without expanding the inserted text again.
fn filled(parts: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = PAGE;
    while let Some(start) = rest.find("{{") {
        let (before, hole) = rest.split_at(start);
        page.push_str(before);
        let part = parts.iter().find(|(name, _)| hole.starts_with(name));
        let (name, value) = part.expect("the template has no other holes");
        page.push_str(value);
        rest = &hole[name.len()..];
    }
    page + rest
}

/// The hash of an inline style or script for a Content-Security-Policy.
fn hash(text: &str) -> String {
    let hex = sha256_hex(text.as_bytes());
    let bytes =
        (0..hex.len()).step_by(2).filter_map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok());
    format!("sha256-{}", base64(&bytes.collect::<Vec<u8>>()))
}

/// Base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn an_empty_style_has_the_hash_that_browsers_print() {
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
