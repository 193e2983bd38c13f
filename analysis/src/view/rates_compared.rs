//! Tests of a benchmark side by side, where a file states their rates and not the times of their repetitions: figures without
//! a verdict.

use std::collections::HashMap;
use std::fmt::Write;

use brickscope_profile::text::{count, printable, printable_text, screened, screened_lines};
use brickscope_profile::{ImportedTest, Profile, save};
use serde::Serialize;

use super::comparison::signed;
use crate::compare::{Difference, Outcome, differences_of, names_of_tests};
use crate::rate::{imported_tests, mean};
use crate::text::{broken, markdown, wrap};

/// Two benchmarks' files, at least one of which states rates alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatesCompared {
    /// It is always undecided.
    pub outcome: Outcome,
    /// Why, in a sentence.
    pub headline: String,
    /// The tests that both have.
    pub tests: Vec<ComparedRate>,
    /// The names of tests that only A has.
    pub only_in_a: Vec<String>,
    /// Those that only B has.
    pub only_in_b: Vec<String>,
    /// How many rows of A, and of B, are left out, since a later one measured the same test.
    pub again: [usize; 2],
    /// What the two ran under that isn't the same.
    pub differences: Vec<Difference>,
}

/// A test on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRate {
    /// Its name.
    pub name: String,
    /// A's tokens per second as every screen shows them: `7098 ± 15`.
    pub a: String,
    /// B's.
    pub b: String,
    /// How much longer B takes by these, as a part of A's time; `None` without a rate.
    pub b_takes: Option<f64>,
}

/// Puts the tests of two benchmarks' files beside each other.
#[must_use]
pub fn rates_compared(a: &Profile, b: &Profile) -> RatesCompared {
    let [(of_a, again_a), (of_b, again_b)] = [a, b].map(listed);
    let [by_name_a, by_name_b] = [&of_a, &of_b]
        .map(|of| of.iter().map(|row| (row.name.as_str(), row)).collect::<HashMap<_, _>>());
    let beside = |row: &Listed| {
        let other = by_name_b.get(row.name.as_str())?;
        let takes = row.mean.zip(other.mean).filter(|(a, b)| *a > 0.0 && *b > 0.0);
        Some(ComparedRate {
            name: row.name.clone(),
            a: row.shown.clone(),
            b: other.shown.clone(),
            b_takes: takes.map(|(a, b)| a / b - 1.0),
        })
    };
    let only = |one: &[Listed], other: &HashMap<&str, &Listed>| {
        let is_only = |row: &&Listed| !other.contains_key(row.name.as_str());
        one.iter().filter(is_only).map(|row| row.name.clone()).collect::<Vec<_>>()
    };
    RatesCompared {
        outcome: Outcome::Inconclusive,
        headline:
            "No verdict: rates without the times of single repetitions don't tell what is chance; \
                   llama-bench's `-o jsonl` has both."
                .to_owned(),
        tests: of_a.iter().filter_map(beside).collect(),
        only_in_a: only(&of_a, &by_name_b),
        only_in_b: only(&of_b, &by_name_a),
        again: [again_a, again_b],
        differences: differences_of(a, b),
    }
}

/// A test of a file.
struct Listed {
    name: String,
    /// Its rate for people.
    shown: String,
    mean: Option<f64>,
}

/// The tests, and how many rows are left out: of those that measured one test the last counts.
fn listed(profile: &Profile) -> (Vec<Listed>, usize) {
    let tests: &[ImportedTest] = profile.imported.as_ref().map_or(&[], |of| &of.tests);
    let rows = names_of_tests(tests).into_iter().zip(imported_tests(profile)).zip(tests);
    let mut found: Vec<Listed> = Vec::new();
    let mut of_name: HashMap<String, usize> = HashMap::new();
    for ((name, row), test) in rows {
        let listed = Listed { name: name.clone(), shown: row.rate, mean: mean(test) };
        match of_name.get(&name) {
            Some(&nth) => found[nth] = listed,
            None => {
                of_name.insert(name, found.len());
                found.push(listed);
            }
        }
    }
    let again = tests.len() - found.len();
    (found, again)
}

impl RatesCompared {
    /// As text of at most 80 columns.
    #[must_use]
    pub fn text(&self) -> String {
        const NAME: usize = 18;
        let mut out = String::new();
        for line in wrap(&self.headline, 80) {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(out, "\n{:NAME$} {:>20} {:>20}  B takes", "tok/s", "A", "B");
        for test in &self.tests {
            let name = printable(&test.name);
            let is_long = name.chars().count() > NAME;
            for line in broken(&name, 80).into_iter().filter(|_| is_long) {
                let _ = writeln!(out, "{line}");
            }
            let name = if is_long { "" } else { &name };
            let _ = writeln!(out, "{name:NAME$} {:>20} {:>20}  {}", test.a, test.b, test.takes());
        }
        let _ = writeln!(out);
        for note in self.notes() {
            for line in wrap(&note, 80) {
                let _ = writeln!(out, "{line}");
            }
        }
        screened_lines(out)
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!("**{}**\n", markdown(&self.headline));
        out.push_str("\n| tok/s | A | B | B takes |\n|---|--:|--:|--:|\n");
        for test in &self.tests {
            let name = markdown(&printable(&test.name));
            let [a, b] = [&test.a, &test.b].map(|rate| markdown(rate));
            let _ = writeln!(out, "| {name} | {a} | {b} | {} |", test.takes());
        }
        for note in self.notes() {
            let _ = write!(out, "\n{}\n", markdown(&note));
        }
        screened_lines(out)
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        screened(save::to_json(self))
    }

    fn notes(&self) -> Vec<String> {
        /// The most names of a line.
        const MOST: usize = 8;
        let mut notes = Vec::new();
        for (letter, names) in [("A", &self.only_in_a), ("B", &self.only_in_b)] {
            let shown: Vec<String> = names.iter().take(MOST).map(|name| printable(name)).collect();
            let more = match names.len().saturating_sub(MOST) {
                0 => String::new(),
                n => format!(", and {}", count(n as u64, "more test")),
            };
            if !shown.is_empty() {
                notes.push(format!("only in {letter}: {}{more}", shown.join(", ")));
            }
        }
        for (letter, again) in ["A", "B"].into_iter().zip(self.again).filter(|(_, n)| *n > 0) {
            let rows = count(again as u64, "row");
            notes.push(format!("{letter}: {rows} left out: a later one measured the same test"));
        }
        notes.extend(self.differences.iter().map(|of| printable_text(&of.to_string())));
        notes
    }
}

impl ComparedRate {
    fn takes(&self) -> String {
        self.b_takes.map_or_else(|| "-".to_owned(), |part| format!("{} % time", signed(part)))
    }
}
