//! Writing HTML: escaped text, tables, reasons.

use std::fmt::Write;

use brickscope_analysis::view::{printable, printable_text};

/// The longest text that is shown whole.
const MOST_CHARACTERS: usize = 160;

/// Untrusted text, escaped for a page.
pub(super) fn text(text: &str) -> String {
    attribute(&shown(text))
}

/// Text without control characters, and not too long.
pub(super) fn shown(text: &str) -> String {
    let end = text.char_indices().nth(MOST_CHARACTERS);
    match end {
        Some((end, _)) => format!("{}…", printable(&text[..end])),
        None => printable(text),
    }
}

/// Our own text, escaped for an attribute or between tags.
pub(super) fn attribute(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A name as the heading of a narrow column, with places where a line may break.
pub(super) fn said_in_parts(what: &str) -> String {
    let mut html = String::from("<span data-text=\"file\">");
    let mut before = ' ';
    for c in shown(what).chars() {
        if (before.is_lowercase() && c.is_uppercase()) || matches!(before, '_' | '.' | '/') {
            html.push_str("<wbr>");
        }
        html.push_str(&attribute(&c.to_string()));
        before = c;
    }
    html + "</span>"
}

/// Text from the file: names, paths, sentences.
pub(super) fn said(what: &str) -> String {
    format!("<span data-text=\"file\">{}</span>", text(what))
}

/// The display name of a run: its path, if the file has no name for it.
pub(super) fn called(what: &str) -> String {
    format!("<span data-text=\"name\">{}</span>", text(what))
}

/// A sentence that the library derives from the file, with what is in backticks as code.
pub(super) fn told(what: &str) -> String {
    let what = attribute(&printable_text(what));
    let (mut html, mut rest) = (String::from("<span data-text=\"library\">"), what.as_str());
    while let Some((before, after)) = rest.split_once('`') {
        let Some((code, after)) = after.split_once('`') else { break };
        html.push_str(&format!("{before}<code>{code}</code>"));
        rest = after;
    }
    html + rest + "</span>"
}

/// A paragraph that says why there is nothing to show.
pub(super) fn reason(why: &str) -> String {
    format!("<p class=\"reason\">{}</p>\n", told(why))
}

/// A note of ours, which is HTML already.
pub(super) fn note(html: &str) -> String {
    format!("<p class=\"note\">{html}</p>\n")
}

/// JSON for a `script` element: nothing in it can end the element.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain data with string keys always writes");
    // JSON has these only inside of strings.
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A table that scrolls on its own in a narrow window.
pub(super) struct Table {
    html: String,
    numbers: Vec<bool>,
}

impl Table {
    /// `columns` are the headings (HTML), with a `#` before those of numbers.
    pub(super) fn new(caption: &str, columns: &[&str]) -> Self {
        Self::of_class("", caption, columns)
    }

    pub(super) fn of_class(class: &str, caption: &str, columns: &[&str]) -> Self {
        let caption_text = attribute(&tagless(caption));
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption_text}\">\
             <table class=\"{class}\"><caption>{caption}</caption><thead><tr>"
        );
        let mut numbers = Vec::new();
        for column in columns {
            let (is_number, column) =
                column.strip_prefix('#').map_or((false, *column), |column| (true, column));
            let class = if is_number { " class=\"n\"" } else { "" };
            let _ = write!(html, "<th scope=\"col\"{class}>{column}</th>");
            numbers.push(is_number);
        }
        html.push_str("</tr></thead><tbody>\n");
        Self { html, numbers }
    }

    /// A row; the first cell is its heading. All are HTML.
    pub(super) fn row(&mut self, cells: &[&str]) {
        self.row_of("", cells);
    }

    pub(super) fn row_of(&mut self, class: &str, cells: &[&str]) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = write!(self.html, "<tr{class}>");
        for (index, cell) in cells.iter().enumerate() {
            let is_number = self.numbers.get(index).copied().unwrap_or(false);
            if index == 0 {
                let class = if is_number { " class=\"n\"" } else { "" };
                let _ = write!(self.html, "<th scope=\"row\"{class}>{cell}</th>");
            } else if is_number {
                let _ = write!(self.html, "<td class=\"n\">{cell}</td>");
            } else {
                let _ = write!(self.html, "<td>{cell}</td>");
            }
        }
        self.html.push_str("</tr>\n");
    }

    /// A row whose pointers are relative to a place in the file.
    pub(super) fn row_at(&mut self, place: &str, cells: &[&str]) {
        let start = self.html.len();
        self.row(cells);
        let at = format!("<tr data-at=\"{}\"", attribute(place));
        self.html.replace_range(start..start + "<tr".len(), &at);
    }

    /// A row that is HTML already.
    pub(super) fn raw(&mut self, row: &str) {
        self.html.push_str(row);
    }

    pub(super) fn end(mut self) -> String {
        self.html.push_str("</tbody></table></div>\n");
        self.html
    }
}

/// HTML without its tags, for labels.
fn tagless(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' => is_tag = false,
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}

/// A bar of a share, 0 to 1. It is decoration: the number is next to it.
pub(super) fn bar(share: f64, class: &str) -> String {
    let width = if share.is_finite() { 100.0 * share.clamp(0.0, 1.0) } else { 0.0 };
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"{class}\" width=\"{width:.2}\" height=\"8\"/></svg>"
    )
}

/// Content that is folded until the reader opens it.
pub(super) fn details(summary: &str, html: &str) -> String {
    format!("<details><summary>{summary}</summary>\n{html}</details>\n")
}

/// A part of a section, beside the next one where the window is wide enough. Empty if there is nothing in it.
pub(super) fn part(html: &str) -> String {
    if html.is_empty() { String::new() } else { format!("<div class=\"part\">\n{html}</div>\n") }
}

/// Parts beside each other.
pub(super) fn parts(html: &str) -> String {
    if html.is_empty() { String::new() } else { format!("<div class=\"parts\">\n{html}</div>\n") }
}

/// Text from the file, or a default of ours.
pub(super) fn said_or_ours(what: &str, ours: &str) -> String {
    if what == ours { attribute(what) } else { told(&shown(what)) }
}
