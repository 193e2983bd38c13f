//! The page of a folder of flamegraphs: which there are, how they differ, which earlier ones were kept, and how to make
//! them again.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope::write_atomically;
use brickscope_analysis::markdown::{code, table, target};
use brickscope_analysis::stacks::Class;
use brickscope_runs::ARCHIVES;

use super::captions;
use super::markdown::escaped;
use super::summary::Summary;
use crate::figures::fine_percent_of;
use crate::runs::FLAMEGRAPH;
use crate::text::screened;

const PAGE: &str = "README.md";

/// The page begins with it. A page without it is somebody's.
const MARK: &str = "<!-- Written by `brickscope flamegraph --index`, which replaces it. -->";

/// A flamegraph in the folder.
struct Entry {
    /// What it is of.
    row: [String; 7],
    /// The shares of the classes.
    classes: [String; 7],
    command: String,
}

/// Writes the page of a folder, and returns its path.
pub(crate) fn write(folder: &Path) -> Result<PathBuf> {
    let page = folder.join(PAGE);
    if page.exists() && !is_ours(&page).with_context(|| page.display().to_string())? {
        bail!("{} isn't by `flamegraph --index`, and not replaced: rename it", page.display());
    }
    let mut left_out = Vec::new();
    let current = entries(folder, "", &mut left_out)?;
    let earlier = match folder.join(ARCHIVES).is_dir() {
        true => entries(folder, ARCHIVES, &mut left_out)?,
        false => Vec::new(),
    };
    if current.is_empty() && earlier.is_empty() {
        bail!("{} has no folders with flamegraphs in it", folder.display());
    }
    let text = screened(text(current, earlier, &left_out));
    write_atomically(&page, |error| error, |out| out.write_all(text.as_bytes()))
        .with_context(|| page.display().to_string())?;
    Ok(page)
}

fn is_ours(page: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    if page.is_file() {
        File::open(page)?.take(MARK.len() as u64).read_to_end(&mut start)?;
    }
    Ok(start == MARK.as_bytes())
}

/// The flamegraphs in the folders of `under`, by name.
fn entries(folder: &Path, under: &str, left_out: &mut Vec<String>) -> Result<Vec<Entry>> {
    let at = folder.join(under);
    let cannot = || at.display().to_string();
    let mut names = Vec::new();
    for entry in fs::read_dir(&at).with_context(cannot)? {
        names.push(entry.with_context(cannot)?.file_name());
    }
    names.sort();
    let mut entries = Vec::new();
    for name in names.iter().filter(|name| at.join(name).join(FLAMEGRAPH).is_file()) {
        let path = match under {
            "" => name.to_string_lossy().into_owned(),
            _ => format!("{under}/{}", name.to_string_lossy()),
        };
        match Summary::load(&at.join(name)) {
            Ok(summary) => entries.push(Entry::of(&path, &summary)),
            Err(why) => left_out.push(format!("{path}: {why}")),
        }
    }
    Ok(entries)
}

impl Entry {
    fn of(path: &str, summary: &Summary) -> Self {
        let link = format!("[{}]({}/flamegraph.md)", escaped(path), target(path));
        let facts = [
            summary.generated.clone(),
            captions::model(summary),
            captions::workload(summary),
            captions::hardware(summary),
            captions::latency(summary),
            captions::headline(summary),
        ];
        let mut facts = facts.into_iter().map(|fact| escaped(&fact));
        let share = |class: Class| {
            let share = summary.classes.iter().find(|share| share.name == class);
            fine_percent_of(share.map_or(0, |share| share.self_weight), summary.total)
        };
        let mut shares = Class::ALL.into_iter().map(share);
        let row = |rest: &mut dyn Iterator<Item = String>| {
            std::array::from_fn(|column| match column {
                0 => link.clone(),
                _ => rest.next().unwrap_or_default(),
            })
        };
        Self {
            row: row(&mut facts),
            classes: row(&mut shares),
            command: captions::shell(&summary.command_line),
        }
    }
}

fn text(current: Vec<Entry>, earlier: Vec<Entry>, left_out: &[String]) -> String {
    let mut text = format!("{MARK}\n# Flamegraphs\n");
    let known = |entry: &&Entry| !entry.command.is_empty();
    let mut commands: Vec<String> =
        current.iter().filter(known).map(|entry| entry.command.clone()).collect();
    commands.push("brickscope flamegraph --index .    # this page, in this folder".to_owned());
    let mut classes = Vec::new();
    for (title, entries) in [("Current baselines", current), ("Earlier ones", earlier)] {
        if entries.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## {title}\n");
        let header =
            ["Flamegraph", "Generated", "Model", "Workload", "Hardware", "Latency", "In short"];
        let (rows, shares): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| (entry.row, entry.classes)).unzip();
        table(header, rows.into_iter(), &mut text);
        classes.extend(shares);
    }
    text.push_str(
        "\n## How they differ\n\n\
         Shares of the whole, by kind of work. `brickscope flamegraph A --diff B` says which differ \
         by more than their error.\n\n",
    );
    let header = ["Flamegraph", "!Quantised", "!Matmul", "!Memory", "!System", "!Waiting", "!Rest"];
    table(header, classes.into_iter(), &mut text);
    if !left_out.is_empty() {
        text.push_str("\n## Left out\n\n");
    }
    for line in left_out {
        let _ = writeln!(text, "- {}", escaped(line));
    }
    let _ = writeln!(
        text,
        "\n## How to make them again\n\n\
         With `--overwrite --archive`, what is replaced stays in `{ARCHIVES}`.\n\n{}",
        code(&commands.join("\n"))
    );
    text
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::captions::tests::summary;
    use super::*;

    fn put(folder: &Path, name: &str, summary: &Summary) {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let json = serde_json::to_string(summary).expect("JSON");
        fs::write(folder.join(FLAMEGRAPH), json).expect("written");
        fs::write(folder.join("flamegraph.svg"), "<svg/>").expect("written");
    }

    #[test]
    fn a_page_lists_what_there_is_how_it_differs_and_how_to_make_it_again() {
        let dir = TempDir::new().expect("a folder");
        assert!(write(dir.path()).is_err(), "there is none");
        let first = summary();
        put(dir.path(), "base line", &first);
        put(dir.path(), "qk256", &Summary { command_line: Vec::new(), ..first.clone() });
        fs::create_dir(dir.path().join("broken")).expect("a folder");
        fs::write(dir.path().join("broken").join(FLAMEGRAPH), "{").expect("written");
        brickscope_runs::archive(&dir.path().join("base line")).expect("copied");

        let page = write(dir.path()).expect("written");
        let text = fs::read_to_string(&page).expect("it is there");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "## Current baselines",
            "| [base line](base%20line/flamegraph.md) |",
            "## Earlier ones",
            "(archives/base%20line-20261121T141602Z/flamegraph.md)",
            "decode 20.000 ms a pass",
            "| 61.00 % | 15.12 % |",
            "- broken: a truncated flamegraph.json",
            "brickscope flamegraph --prompt ",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        // Again, but not over somebody's own page.
        assert_eq!(write(dir.path()).expect("replaced"), page);
        fs::write(&page, "# Mine\n").expect("written");
        let why = write(dir.path()).expect_err("it is somebody's").to_string();
        assert!(why.contains("isn't by `flamegraph --index`"), "{why}");
        assert_eq!(fs::read_to_string(&page).expect("it is there"), "# Mine\n");
    }
}
