//! The runs of a folder as one page: how their speed went, and any two beside each other.
//!
//! The page has what `brickscope ls --json` prints, and its script draws it: of ten thousand runs the browser makes no
//! more rows than its reader asks for.

use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use brickscope_analysis::rate::Rule;
use brickscope_analysis::view::printable_text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::figure::{at, count, counted, scaled};
use super::html::{called, note, shown};
use super::page::{self, Section};

/// A folder of runs.
#[derive(Debug, Clone, Copy)]
pub struct Folder<'f> {
    /// Its display name.
    pub name: &'f str,
    /// What `brickscope ls --json` prints of it.
    pub json: &'f str,
    /// The way from the page's folder to it, if the page links to the reports of the runs: see [`links`].
    pub links: Option<&'f Path>,
}

/// The list, as it is printed.
#[derive(Deserialize)]
struct List {
    folder: String,
    unread: u64,
    runs: Vec<Listed>,
}

/// A run in it, with the figures that the page shows.
#[derive(Serialize, Deserialize)]
struct Listed {
    name: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    imported_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imported_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantization: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_tokens_per_second: Option<f64>,
    /// Which passes that is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_of: Option<Rule>,
    /// Of a set, how many processes that is the median of.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<Passes>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// The file of its report; the page has the link instead.
    #[serde(skip_serializing)]
    report: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Passes {
    all: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disturbed: Option<u64>,
}

impl Listed {
    /// What is alike in runs of one chart; the script of the page joins them by the same.
    fn series(&self) -> (Option<&str>, Option<&str>, Option<&str>, Option<u32>) {
        let model = self.model.as_deref().or(self.imported_from.as_deref());
        (model, self.quantization.as_deref(), self.backend.as_deref(), self.threads)
    }

    fn rule(&self) -> Rule {
        self.rate_of.unwrap_or_default()
    }

    /// What the page has of it: no name becomes markup or controls anything, and none is endless.
    fn ready(mut self, links: Option<&Path>) -> Self {
        self.link = links.filter(|_| self.report.is_some()).and_then(|way| link(way, &self.name));
        for text in [&mut self.name, &mut self.created] {
            *text = shown(text);
        }
        for text in [
            &mut self.imported_at,
            &mut self.model,
            &mut self.imported_from,
            &mut self.quantization,
            &mut self.backend,
            &mut self.no_rate,
            &mut self.tag,
        ] {
            *text = text.as_deref().map(shown);
        }
        self
    }
}

/// The page of a folder of runs, as HTML.
///
/// # Errors
///
/// If the JSON is another one than `brickscope ls --json` prints.
pub fn of_folder(folder: &Folder<'_>) -> Result<String, serde_json::Error> {
    let list: List = serde_json::from_str(folder.json)?;
    let mut head = format!(
        "<p class=\"kind\">Runs of a folder</p>\n<h1>{}</h1>\n<p class=\"facts\">{}</p>\n",
        called(folder.name),
        counted(list.runs.len() as u64, "run", json!(["count", "/runs"]))
    );
    if list.unread > 0 {
        head.push_str(&note(&format!(
            "{} of them were not read, for want of a summary: <code>brickscope ls --read-all</code> reads all.",
            count(list.unread, at("/unread"))
        )));
    }
    head.push_str(&newest(&list.runs));
    let runs: Vec<Listed> = list.runs.into_iter().map(|run| run.ready(folder.links)).collect();
    // It is part of a command, which would be another one if the path were cut like a name.
    let data: Value = json!({ "folder": printable_text(&list.folder), "runs": runs });
    let drawn = |what: &str| {
        format!(
            "<div class=\"js\" data-{what}></div>\n<noscript><p class=\"note\">This needs JavaScript; \
             <code>brickscope ls</code> prints the runs.</p></noscript>\n"
        )
    };
    let choice = "Two single runs tell no change from what differs between any two: \
                  <code>brickscope compare</code> has the verdict, of runs of several processes.";
    let sections = [
        Section {
            id: "history",
            title: "History",
            lead: "Decoded tokens per second over time, by what ran. A click chooses a run.",
            html: drawn("history"),
        },
        Section {
            id: "runs",
            title: "Runs",
            lead: "The newest first. Choose two to see them beside each other.",
            html: drawn("runs"),
        },
        Section {
            id: "compare",
            title: "Two runs",
            lead: "The figures of the two that are chosen; A is the older.",
            html: drawn("compare") + &note(choice),
        },
    ];
    let title = format!("Runs of {}", folder.name);
    Ok(page::of_folder(&title, &head, &sections, &data))
}

/// How the newest run stands in its series: runs of the same model with the same quantisation, engine and threads.
fn newest(runs: &[Listed]) -> String {
    let all = runs.iter().enumerate();
    let mut rated = all.filter_map(|(nth, run)| Some((nth, run, run.decode_tokens_per_second?)));
    let Some((nth, run, rate)) = rated.next() else { return String::new() };
    let named = |run: &Listed| match &run.tag {
        Some(tag) => format!("{} ({})", called(&run.name), called(tag)),
        None => called(&run.name),
    };
    let speed = |nth: usize, rate: f64| {
        let at = at(format!("/runs/{nth}/decode_tokens_per_second"));
        scaled(rate, 1.0, " tokens/s", at)
    };
    // Rates of different passes don't tell which run is faster.
    let (others, of_others): (Vec<_>, Vec<_>) = rated
        .filter(|(_, other, _)| other.series() == run.series())
        .partition(|(_, other, _)| other.rule() == run.rule());
    let [without, whose] = match (run.rule(), of_others.is_empty()) {
        (Rule::Clean, _) => [" without disturbed passes", " with such a rate"],
        (Rule::All, false) => ["", " whose rate is of all passes"],
        (Rule::All, true) => ["", ""],
    };
    let series = format!("model, engine and threads{whose}");
    let newest = if nth == 0 { "The newest" } else { "The newest with a rate" };
    let mut said = format!("{newest}, {}, decoded {}{without}", named(run), speed(nth, rate));
    // Of those that are equally fast, the newer.
    let faster = others.iter().filter(|other| other.2 > rate);
    let fastest = faster.reduce(|a, b| if b.2 > a.2 { b } else { a });
    match (others.first(), fastest) {
        (None, _) => {
            let _ = write!(said, ", the only one of its {series}.");
        }
        (Some(before), None) => {
            let _ = write!(
                said,
                ", the fastest of its {series}; the one before it, {}, {}.",
                named(before.1),
                speed(before.0, before.2)
            );
        }
        (Some(before), Some(fastest)) => {
            let _ = write!(
                said,
                "; of its {series} the fastest, {}, {}",
                named(fastest.1),
                speed(fastest.0, fastest.2)
            );
            if before.0 != fastest.0 {
                let _ = write!(
                    said,
                    ", and the one before it, {}, {}",
                    named(before.1),
                    speed(before.0, before.2)
                );
            }
            said.push('.');
        }
    }
    format!("<p class=\"headline\">{said}</p>\n")
}

/// The way from the folder of a page to a folder of runs, if the one lies in the other: links that lead elsewhere would
/// break when the page is moved.
#[must_use]
pub fn links(page: &Path, folder: &Path) -> Option<PathBuf> {
    let beside = page.parent().filter(|path| !path.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new(".")).canonicalize().ok()?;
    let folder = folder.canonicalize().ok()?;
    folder.strip_prefix(beside).ok().map(Path::to_owned)
}

/// The link to the report of a run. `None` if its name is no text.
fn link(way: &Path, run: &str) -> Option<String> {
    let mut url = ".".to_owned();
    for part in way.components() {
        let Component::Normal(part) = part else { return None };
        url.push('/');
        url.push_str(&encoded(part.to_str()?));
    }
    let is_text = !run.contains(char::REPLACEMENT_CHARACTER);
    is_text.then(|| format!("{url}/{}/report.html", encoded(run)))
}

/// A name as a part of a URL.
fn encoded(name: &str) -> String {
    let mut url = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_of_the_page_s_folder_and_lead_nowhere_else() {
        let link = |way: &str, run: &str| link(Path::new(way), run);
        assert_eq!(link("", "20261129-1").as_deref(), Some("./20261129-1/report.html"));
        assert_eq!(link("runs/a b", "x").as_deref(), Some("./runs/a%20b/x/report.html"));
        // No scheme, no other folder, no markup.
        assert_eq!(link("", "javascript:x").as_deref(), Some("./javascript%3Ax/report.html"));
        assert_eq!(link("", "a\"?#<é").as_deref(), Some("./a%22%3F%23%3C%C3%A9/report.html"));
        assert_eq!(link("..", "x"), None);
        assert_eq!(link("", "a\u{fffd}"), None);
    }

    #[test]
    fn a_page_elsewhere_has_no_links() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let src = here.join("src");
        assert_eq!(links(&src.join("runs.html"), &src), Some(PathBuf::new()));
        assert_eq!(links(&here.join("runs.html"), &src), Some(PathBuf::from("src")));
        assert_eq!(links(&src.join("runs.html"), here), None);
        assert_eq!(links(&here.join("gone/runs.html"), &src), None);
    }
}
