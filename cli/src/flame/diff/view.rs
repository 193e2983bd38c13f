//! A diff as text and Markdown: a headline, then tables.

use std::fmt::Write;

use brickscope_analysis::stacks::Unit;

use super::{Diff, Row, Verdict};
use crate::figures::percent;
use crate::flame::captions::titled;
use crate::flame::markdown::escaped;
use crate::text::{count, padded, printable, printable_text, wrapped};

/// The most rows of a table; JSON has all.
const MOST_ROWS: usize = 20;

/// The most names in a headline.
const MOST_NAMES: usize = 3;

/// The families and the names of their rows.
fn families(diff: &Diff) -> [(&'static str, &[Row]); 3] {
    [("class", &diff.classes), ("brick", &diff.bricks), ("function", &diff.functions)]
}

impl Diff {
    /// A sentence that says what moved, and what is undecided.
    pub(crate) fn headline(&self) -> String {
        let mut said = self.told();
        if !self.is_disturbed() {
            return said;
        }
        said[..1].make_ascii_lowercase();
        let sides = [("before", &self.before), ("after", &self.after)];
        let disturbed = sides.into_iter().filter(|(_, side)| side.is_disturbed());
        let of = disturbed.filter_map(|(name, side)| {
            let [n, all] = side.disturbed?;
            Some(format!("{n} of {all} passes of {name}"))
        });
        let of = of.collect::<Vec<_>>().join(" and ");
        format!("Not decided, since {of} were disturbed: {said}")
    }

    /// The same without what disturbed it.
    fn told(&self) -> String {
        let judged = self.rows().filter(|row| row.verdict != Verdict::Small).count();
        let unknown: Vec<&Row> =
            self.rows().filter(|row| row.verdict == Verdict::Unknown).collect();
        let Some(largest) = unknown.iter().max_by(|a, b| a.points.abs().total_cmp(&b.points.abs()))
        else {
            return self.moved();
        };
        let reason = largest.reason.as_deref().unwrap_or("its error isn't known");
        let why = format!("{}: {reason}", title(largest));
        if judged == unknown.len() {
            return format!("What moved can't be told: {why}.");
        }
        let mut others = self.moved();
        others[..1].make_ascii_lowercase();
        let judged = count(judged as u64, "share");
        format!("Of {} of {judged} it can't be told: {why}. Of the others: {others}", unknown.len())
    }

    /// A sentence about the decided rows.
    fn moved(&self) -> String {
        let exceeds: Vec<&Row> = self.rows().filter(|row| row.exceeds_threshold).collect();
        let moved: Vec<&Row> = self.rows().filter(|row| row.is_moved()).collect();
        let threshold = short(self.threshold_points);
        if !exceeds.is_empty() {
            return format!("Grew by more than {threshold} points: {}.", named(&exceeds));
        }
        if !moved.is_empty() {
            return format!(
                "Nothing grew by more than {threshold} points; moved: {}.",
                named(&moved)
            );
        }
        if self.rows().next().is_none() {
            return "There is nothing to compare.".to_owned();
        }
        "No share moved by more than its error.".to_owned()
    }

    /// The tables: each verdict and family with its rows, under a heading.
    fn sections(&self) -> Vec<(String, Vec<&Row>)> {
        let mut sections = Vec::new();
        for (name, verdict) in SECTIONS {
            for (what, rows) in families(self) {
                let rows: Vec<&Row> = rows.iter().filter(|row| row.verdict == verdict).collect();
                if !rows.is_empty() {
                    sections.push((format!("{name}: {}", count(rows.len() as u64, what)), rows));
                }
            }
        }
        sections
    }

    /// What either side is, if it has a name.
    fn named_sides(&self) -> Option<String> {
        let before = printable_text(self.before.path.as_ref()?);
        let after = printable_text(self.after.path.as_ref()?);
        Some(format!("before: {before}; after: {after}"))
    }

    /// Text of at most 80 columns.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        wrapped("", &self.headline(), &mut out);
        if let Some(named) = self.named_sides() {
            wrapped("", &named, &mut out);
        }
        for warning in &self.warnings {
            wrapped("! ", &printable_text(warning), &mut out);
        }
        for (head, rows) in self.sections() {
            let _ =
                writeln!(out, "\n{head:44}{:>8}{:>8}{:>9}{:>9}", "before", "after", "points", "±");
            let _ = writeln!(out, "{}", "-".repeat(78));
            for row in rows.iter().take(MOST_ROWS) {
                let [before, after, points, error] = cells(row);
                let mark = if row.exceeds_threshold { " >" } else { "" };
                let _ = writeln!(
                    out,
                    "{}{before:>8}{after:>8}{points:>9}{error:>9}{mark}",
                    padded(&titled(row.phase, &row.name, 43), 44)
                );
            }
            if let Some(more) = more(&rows) {
                let _ = writeln!(out, "{more}");
            }
        }
        let _ = writeln!(out);
        for note in self.notes() {
            wrapped("", &note, &mut out);
        }
        out
    }

    /// Markdown for a comment on a pull request.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("**{}**\n", escaped(&self.headline()));
        if let Some(named) = self.named_sides() {
            let _ = write!(out, "\n{}\n", escaped(&named));
        }
        for warning in &self.warnings {
            let _ = write!(out, "\n> ⚠️ {}\n", escaped(warning));
        }
        for (head, rows) in self.sections() {
            let _ =
                write!(out, "\n| {head} | before | after | points | ± |\n|---|--:|--:|--:|--:|\n");
            for row in rows.iter().take(MOST_ROWS) {
                let [before, after, points, error] = cells(row);
                let bold = if row.exceeds_threshold { "**" } else { "" };
                let _ = writeln!(
                    out,
                    "| {} | {before} | {after} | {bold}{points}{bold} | {error} |",
                    escaped(&titled(row.phase, &row.name, 100))
                );
            }
            if let Some(more) = more(&rows) {
                let _ = write!(out, "\n{more}\n");
            }
        }
        let _ = write!(out, "\n<details><summary>What was compared</summary>\n\n");
        for note in self.notes() {
            let _ = writeln!(out, "- {}", escaped(&note));
        }
        let _ = write!(out, "\n</details>\n");
        out
    }

    /// JSON, beginning with the headline.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        #[derive(serde::Serialize)]
        struct WithHeadline<'d> {
            headline: String,
            exceeds_threshold: bool,
            is_undecided: bool,
            #[serde(flatten)]
            diff: &'d Diff,
        }
        let with = WithHeadline {
            headline: self.headline(),
            exceeds_threshold: self.exceeds_threshold(),
            is_undecided: self.is_undecided(),
            diff: self,
        };
        Ok(serde_json::to_string_pretty(&with)? + "\n")
    }

    /// Notes on the two sides and on the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (what, side) in [("before", &self.before), ("after", &self.after)] {
            let total = match self.unit {
                Unit::Samples => count(side.total, "sample"),
                Unit::Nanoseconds => {
                    format!("{:.1} ms measured", side.total as f64 / 1e6)
                }
            };
            notes.push(format!(
                "{what}: {total}, {}, brickscope {}",
                printable(&side.generated),
                printable(&side.brickscope_version)
            ));
        }
        let of = |verdict: Verdict| {
            let counts = families(self).map(|(what, rows)| {
                let n = rows.iter().filter(|row| row.verdict == verdict).count();
                (n, count(n as u64, what))
            });
            let there: Vec<String> =
                counts.into_iter().filter(|(n, _)| *n > 0).map(|(_, count)| count).collect();
            (!there.is_empty()).then(|| there.join(", "))
        };
        if let Some(unmoved) = of(Verdict::Unmoved) {
            notes.push(format!("not moved by more than the error: {unmoved}"));
        }
        if let Some(small) = of(Verdict::Small) {
            let most = short(100.0 * self.min_share);
            notes.push(format!("below {most} % on both sides, not judged: {small}"));
        }
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for row in self.rows().filter(|row| row.verdict == Verdict::Unknown) {
            let reason = row.reason.as_deref().unwrap_or("its error isn't known");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(title(row)),
                None => reasons.push((reason, vec![title(row)])),
            }
        }
        for (reason, names) in reasons {
            let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
            let more = match names.len().saturating_sub(MOST_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            notes.push(format!("can't be told: {shown}{more}: {reason}"));
        }
        let known_by = match (self.unit, self.has_blocks) {
            (Unit::Samples, true) => "the blocks of time of both runs and their numbers of samples",
            (Unit::Samples, false) => "the numbers of samples",
            (Unit::Nanoseconds, _) => "the blocks of time of both runs",
        };
        notes.push(format!(
            "Bricks are shares of their phase; classes, and functions including callees, of the \
            total. ± is the error of the difference, from {known_by}. At most {} % of diffs \
            of equal runs report anything, unless the machine was disturbed in one of them. A share \
            that grew isn't slower: others may have become faster.",
            short(100.0 * self.level)
        ));
        notes
    }
}

const SECTIONS: [(&str, Verdict); 3] =
    [("moved", Verdict::Moved), ("vanished", Verdict::Vanished), ("new", Verdict::New)];

/// The cells of a row: before, after, points and their error.
fn cells(row: &Row) -> [String; 4] {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| percent(share) + "%");
    let error = row.error_points.map_or("-".to_owned(), |error| format!("{error:.1}"));
    [share(row.before), share(row.after), format!("{:+.1}", row.points), error]
}

/// A line about the rows that aren't shown.
fn more(rows: &[&Row]) -> Option<String> {
    let more = rows.len().checked_sub(MOST_ROWS).filter(|&more| more > 0)?;
    Some(format!("and {more} more, which moved less"))
}

/// Names rows as `decode QkvProjection from 21.0 to 25.9 % (+4.9 ± 1.1)`.
pub(crate) fn named(rows: &[&Row]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| b.points.abs().total_cmp(&a.points.abs()));
    let one = |row: &&Row| {
        let error = row.error_points.map_or(String::new(), |error| format!(" ± {error:.1}"));
        let change = format!("({:+.1}{error})", row.points);
        let title = titled(row.phase, &row.name, 60);
        match (row.before, row.after) {
            (Some(before), Some(after)) => {
                format!("{title} from {} to {} % {change}", percent(before), percent(after))
            }
            (None, _) => format!("{title}, which is new {change}"),
            (_, None) => format!("{title}, which vanished {change}"),
        }
    };
    let mut names: Vec<String> = rows.iter().take(MOST_NAMES).map(one).collect();
    if rows.len() > MOST_NAMES {
        names.push(format!("and {} more", rows.len() - MOST_NAMES));
    }
    names.join("; ")
}

fn title(row: &Row) -> String {
    titled(row.phase, &row.name, 60)
}

/// A threshold or level, without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
