//! What words mean: bricks, rules of findings and terms; and what a run says of them.
//!
//! The text is `words.md` beside this file, which is read by people, too.
//!
//! ```
//! use brickscope_analysis::explain::{self, Group};
//!
//! let pages = explain::find("rms-norm");
//! assert_eq!((pages[0].word.as_str(), pages[0].group), ("RmsNorm", Group::Brick));
//! assert_eq!(explain::close("slow-layr")[0], "slow-layer");
//! ```

mod in_run;
mod of_requests;
mod on_streams;

use std::sync::LazyLock;

use brickscope_profile::{NameKind, Profile};
use serde::Serialize;

pub use self::in_run::{BrickInRun, InRun};

const WORDS: &str = include_str!("words.md");

/// What kind of word something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// A kind of operation in a forward pass.
    Brick,
    /// A rule of [`Findings`](crate::findings::Findings).
    Rule,
    /// Anything else.
    Term,
}

impl Group {
    /// All groups, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Brick, Self::Rule, Self::Term];

    /// The heading of the group.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Brick => "Bricks",
            Self::Rule => "Rules",
            Self::Term => "Terms",
        }
    }

    /// One of the group, as a word in a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brick => "brick",
            Self::Rule => "rule",
            Self::Term => "term",
        }
    }
}

/// What a word means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// The word.
    pub word: String,
    /// What kind of word it is.
    pub group: Group,
    /// Other words for it.
    pub also: Vec<String>,
    /// What it is, in a sentence or some.
    pub text: String,
    /// What else there is to say.
    pub sections: Vec<Section>,
}

/// A labelled part of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its label: `decode`, `fires if`.
    pub label: String,
    /// The text.
    pub text: String,
}

impl Section {
    fn new(label: impl Into<String>, text: impl Into<String>) -> Self {
        Self { label: label.into(), text: text.into() }
    }
}

/// A page, with its words as they are compared.
struct Listed {
    page: Page,
    word: String,
    also: Vec<String>,
}

/// All pages, read once: screens look words up again and again.
static LISTED: LazyLock<Vec<Listed>> = LazyLock::new(|| {
    let listed = |page: Page| Listed {
        word: bare(&page.word),
        also: page.also.iter().map(|also| bare(also)).collect(),
        page,
    };
    read().into_iter().map(listed).collect()
});

/// All pages, in the order in which they are listed.
#[must_use]
pub fn pages() -> Vec<Page> {
    LISTED.iter().map(|listed| listed.page.clone()).collect()
}

fn read() -> Vec<Page> {
    let mut pages = Vec::new();
    let mut group = None;
    for part in WORDS.split("\n## ").skip(1) {
        let (heading, part) = part.split_once('\n').unwrap_or((part, ""));
        group = Group::ALL.into_iter().find(|group| group.heading() == heading.trim()).or(group);
        let Some(group) = group else { continue };
        pages.extend(part.split("### ").skip(1).map(|entry| page(group, entry)));
    }
    pages
}

/// Reads an entry: its word, the line `Also:`, paragraphs, and a list of `- **label**: text`.
fn page(group: Group, entry: &'static str) -> Page {
    let (word, rest) = entry.split_once('\n').unwrap_or((entry, ""));
    let mut page = Page {
        word: word.trim().to_owned(),
        group,
        also: Vec::new(),
        text: String::new(),
        sections: Vec::new(),
    };
    for line in rest.lines() {
        let label = line.strip_prefix("- **").and_then(|line| line.split_once("**: "));
        if let Some((label, text)) = label {
            page.sections.push(Section::new(label, text));
        } else if let Some(also) = line.strip_prefix("Also: ") {
            page.also = also.split(", ").map(str::to_owned).collect();
        } else if !line.trim().is_empty() {
            // The rest of what began above.
            let text = page.sections.last_mut().map_or(&mut page.text, |section| &mut section.text);
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(line.trim());
        }
    }
    page
}

/// A word as it is compared: in any case, with or without dashes.
fn bare(word: &str) -> String {
    letters(word).collect()
}

fn letters(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

/// The pages of a word, in any case, with or without dashes and spaces, also if it means several: `gaps`. A word of two
/// groups has two, and the name of something comes before another word for something else. Of `own pass, alone`, as a table
/// has it, it is what stands before the comma.
#[must_use]
pub fn find(word: &str) -> Vec<Page> {
    let first = word.split([',', ':']).next().unwrap_or_default();
    let mut found = [word, first].into_iter().map(find_one_or_several);
    found.find(|pages| !pages.is_empty()).unwrap_or_default()
}

fn find_one_or_several(word: &str) -> Vec<Page> {
    let word = bare(word);
    let found = find_bare(&word);
    match word.strip_suffix('s').filter(|_| found.is_empty()) {
        Some(one) => find_bare(one),
        None => found,
    }
}

fn find_bare(word: &str) -> Vec<Page> {
    let pages = |is_meant: &dyn Fn(&Listed) -> bool| -> Vec<Page> {
        LISTED.iter().filter(|&of| is_meant(of)).map(|of| of.page.clone()).collect()
    };
    let named = pages(&|of| of.word == word);
    if !named.is_empty() || word.is_empty() {
        return named;
    }
    pages(&|of| of.also.iter().any(|also| also == word))
}

/// The pages of a word, or else one without text for a brick of the engine's own that the run has.
#[must_use]
pub fn find_in(word: &str, profile: &Profile) -> Vec<Page> {
    let pages = find(word);
    if !pages.is_empty() {
        return pages;
    }
    let streams = profile.devices.iter().flat_map(|device| &device.streams);
    let totals = profile.totals.iter().chain(streams.flat_map(|stream| &stream.totals));
    let bricks = totals.filter(|total| total.kind == NameKind::Brick).map(|of| &of.stats.name);
    let bare = bare(word);
    // Names may be long, and most differ early.
    let is_meant =
        |name: &&String| *name == word || (!bare.is_empty() && letters(name).eq(bare.chars()));
    let own = bricks.into_iter().find(is_meant).map(|name| Page {
        word: name.clone(),
        group: Group::Brick,
        also: Vec::new(),
        text: "A brick of the engine that ran. It is not one of the well-known ones, so it has no page.".to_owned(),
        sections: Vec::new(),
    });
    own.into_iter().collect()
}

/// The most words that may be meant.
const MOST_CLOSE: usize = 5;

/// The words that may be meant by one that has no page, the closest first.
#[must_use]
pub fn close(word: &str) -> Vec<String> {
    let word = bare(word);
    // A word may have any length.
    if word.is_empty() || word.len() > 64 {
        return Vec::new();
    }
    let most = (word.chars().count() / 3).max(1);
    let distance = |other: &String| match distance(&word, other) {
        n if n <= most => Some(n),
        // A part of it: `attention`.
        _ if word.len() > 3 && other.contains(&word) => Some(most + 1),
        _ => None,
    };
    let mut found: Vec<(usize, String)> = LISTED
        .iter()
        .filter_map(|of| {
            let all = std::iter::once(&of.word).chain(&of.also);
            Some((all.filter_map(distance).min()?, of.page.word.clone()))
        })
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    let mut words: Vec<String> = found.into_iter().map(|(_, word)| word).collect();
    words.dedup();
    words.truncate(MOST_CLOSE);
    words
}

/// How many letters have to be added, left out or replaced (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use brickscope_profile::BrickId;

    use super::*;
    use crate::requests::{Cause, Piece};
    use crate::roofline::Reach;

    /// The names of rules, as they stand in the sources of the findings.
    fn rules() -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/findings");
        let mut rules = BTreeSet::new();
        for file in std::fs::read_dir(&folder).expect("the sources").flatten() {
            if file.path().is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(file.path()).expect("a source");
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            if file.file_name() == "tests.rs" {
                continue;
            }
            for (before, literal) in literals(text) {
                let is_kebab = literal.contains('-')
                    && literal.split('-').all(|part| {
                        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase())
                    });
                let is_named = ["Finding::new(", "unknown(", "RULE: &str =", "=> ("]
                    .iter()
                    .any(|call| before.trim_end().ends_with(call));
                if is_kebab || is_named {
                    rules.insert(literal.to_owned());
                }
            }
        }
        rules
    }

    /// The strings of a source without those in comments, each after what stands before it.
    fn literals(source: &str) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(start) = source[at..].find('"').map(|start| at + start) {
            let line = source[..start].rsplit('\n').next().unwrap_or_default();
            let end = source[start + 1..].find('"').map_or(source.len(), |end| start + 1 + end);
            if line.trim_start().starts_with("//") {
                at = source[start..].find('\n').map_or(source.len(), |end| start + end);
                continue;
            }
            found.push((&source[..start], source.get(start + 1..end).unwrap_or_default()));
            at = (end + 1).min(source.len());
        }
        found
    }

    #[test]
    fn every_rule_has_a_page_that_says_when_it_fires_and_what_it_predicts() {
        let rules = rules();
        assert!(rules.len() >= 20 && rules.contains("slow-layer"), "{rules:?}");
        for rule in &rules {
            let pages = find(rule);
            assert!(
                pages.iter().any(|page| &page.word == rule),
                "{rule} has no page: add it to analysis/src/explain/words.md"
            );
            for page in pages.iter().filter(|page| page.group == Group::Rule) {
                let labels: Vec<&str> = page.sections.iter().map(|of| of.label.as_str()).collect();
                assert_eq!(labels, ["fires if", "predicts", "tested by"], "{rule}");
            }
        }
        for page in pages().iter().filter(|page| page.group == Group::Rule) {
            assert!(rules.contains(&page.word), "{} is no rule any more", page.word);
        }
    }

    #[test]
    fn every_well_known_brick_has_a_page_with_its_work_and_its_bounds() {
        for brick in BrickId::ALL {
            let [page] = &find(brick.name())[..] else { panic!("{brick} has no page of its own") };
            assert_eq!((page.word.as_str(), page.group), (brick.name(), Group::Brick));
            let labels: Vec<&str> = page.sections.iter().map(|of| of.label.as_str()).collect();
            assert_eq!(
                labels,
                ["FLOPs", "bytes", "prefill", "decode", "slow if", "rules"],
                "{brick}"
            );
            // The short names by which engines call it.
            for also in &page.also {
                let known = BrickId::from_str(also);
                assert!(known.is_none_or(|known| known == brick), "{also} is {known:?}");
            }
        }
    }

    #[test]
    fn what_screens_and_tables_of_requests_name_has_a_page() {
        let causes = [
            Cause::Receiving,
            Cause::Queue,
            Cause::Prompts,
            Cause::TokensOfOthers,
            Cause::Again,
            Cause::Cpu,
            Cause::Disk,
            Cause::Sending,
            Cause::Own,
            Cause::Between,
            Cause::Profiler,
            Cause::Unattributed,
        ];
        let reaches =
            [Reach::At, Reach::Near, Reach::Far, Reach::Above, Reach::Unsettled, Reach::Kernel];
        let screens = [
            "flamegraph",
            "flame graph",
            "flame view",
            "own pass",
            "critical path",
            "slack",
            "roofline",
            "unattributed",
            "percentile",
            "finding",
            "receipt",
            "first token",
            "first tokens",
            "further token",
            "between tokens",
            "time per token",
            "whole request",
            "TTFT",
            "TPOT",
            "ITL",
            "neighbour",
            "goodput",
            "late",
        ];
        let names = Piece::ALL.map(Piece::name).into_iter().chain(causes.map(Cause::name));
        for name in names.chain(reaches.map(Reach::name)).chain(screens) {
            assert!(!find(name).is_empty(), "{name} has no page in words.md");
        }
        let pages = find("own pass, beside prompts of others");
        assert_eq!(pages[0].word, "own pass");
    }

    #[test]
    fn a_page_names_only_rules_that_have_pages() {
        for page in pages() {
            assert!(!page.text.is_empty() && page.text.ends_with('.'), "{page:?}");
            for section in page.sections.iter().filter(|section| section.label == "rules") {
                for rule in section.text.split(", ") {
                    let pages = find(rule.trim_matches('`'));
                    assert!(
                        pages.iter().any(|of| of.group == Group::Rule),
                        "{}: {rule}",
                        page.word
                    );
                }
            }
        }
    }

    #[test]
    fn a_wait_of_a_device_is_of_both_kinds_that_screens_name() {
        let pages = find("wait");
        let text = pages.iter().map(|page| page.text.as_str()).collect::<Vec<_>>().join(" ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in ["waited for the host's launches", "waited with work launched"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn no_two_pages_of_a_group_have_the_same_word() {
        let pages = pages();
        let words: BTreeSet<(&str, String)> =
            pages.iter().map(|page| (page.group.name(), bare(&page.word))).collect();
        assert_eq!(words.len(), pages.len());
    }

    #[test]
    fn words_are_found_however_they_are_written() {
        for (written, word) in [
            ("down-projection", "DownProjection"),
            ("DOWNPROJECTION", "DownProjection"),
            ("ffn_norm", "RmsNorm"),
            ("Arithmetic Intensity", "arithmetic intensity"),
            ("slow_layer", "slow-layer"),
            ("stall", "stall"),
            ("stalls", "stalls"),
        ] {
            let pages = find(written);
            assert_eq!(
                pages.iter().map(|page| page.word.as_str()).collect::<Vec<_>>(),
                [word],
                "{written}"
            );
        }
        // A term and a rule.
        let groups: Vec<Group> = find("unattributed").iter().map(|page| page.group).collect();
        assert_eq!(groups, [Group::Rule, Group::Term]);
        for word in ["", "-", "nothing-like-it", &"x".repeat(1 << 20)] {
            assert_eq!((find(word).len(), close(word).len()), (0, 0), "{word:.20}");
        }
    }

    #[test]
    fn close_words_are_named_the_closest_first() {
        assert_eq!(close("rmsnrom")[0], "RmsNorm");
        assert_eq!(close("rooflin"), ["roofline"]);
        assert!(
            close("attention").contains(&"AttentionScore".to_owned()),
            "{:?}",
            close("attention")
        );
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
