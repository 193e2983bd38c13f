//! Doubts of many processes, each kind once: sentences that differ only in their numbers are one, with their ranges.

use brickscope_profile::text::printable_text;

use crate::compare::Compared;

/// A kind of doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt<'d> {
    /// The sentence, with `9.5 to 12` where its number is another one in each process.
    pub text: String,
    /// The processes that have it.
    pub of: Vec<&'d str>,
}

/// Each kind of some doubts, in the order of the first of each. A doubt is given with its process.
#[must_use]
pub fn folded<'d>(doubts: impl IntoIterator<Item = (&'d str, &'d str)>) -> Vec<Doubt<'d>> {
    let mut kinds: Vec<Kind<'d>> = Vec::new();
    for (process, doubt) in doubts {
        let parts = parts(doubt);
        match kinds.iter_mut().find(|kind| kind.is_of(&parts)) {
            Some(kind) => kind.add(process, &parts),
            None => kinds.push(Kind::new(process, parts)),
        }
    }
    let told = kinds.into_iter();
    told.map(|kind| Doubt { text: kind.text(), of: kind.of }).collect()
}

/// The doubts of a side of a comparison, a sentence for each kind: `each of 5 processes: …`.
#[must_use]
pub fn doubts(side: &Compared) -> Vec<String> {
    let all = side.doubts.iter().map(|(process, doubt)| (&**process, &**doubt));
    let told = folded(all).into_iter();
    told.map(|Doubt { text, of }| {
        let text = printable_text(&text);
        match of.len() {
            1 => format!("1 process: {text}"),
            n => format!("each of {n} processes: {text}"),
        }
    })
    .collect()
}

/// A piece of a sentence.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part<'d> {
    Text(&'d str),
    Number(&'d str, f64),
}

impl Part<'_> {
    fn number(&self) -> Option<f64> {
        match self {
            Self::Text(_) => None,
            Self::Number(_, number) => Some(*number),
        }
    }

    /// Whether it is the same text, or a number as well.
    fn is_like(&self, other: &Part<'_>) -> bool {
        match (self, other) {
            (Part::Text(text), Part::Text(other)) => text == other,
            (Part::Number(..), Part::Number(..)) => true,
            _ => false,
        }
    }
}

/// The pieces of the sentences of a kind: a number is the least and the greatest of them.
struct Kind<'d> {
    parts: Vec<(Part<'d>, Part<'d>)>,
    of: Vec<&'d str>,
}

impl<'d> Kind<'d> {
    fn new(process: &'d str, parts: Vec<Part<'d>>) -> Self {
        Self { parts: parts.into_iter().map(|part| (part, part)).collect(), of: vec![process] }
    }

    fn is_of(&self, parts: &[Part<'d>]) -> bool {
        self.parts.len() == parts.len()
            && self.parts.iter().zip(parts).all(|((known, _), part)| known.is_like(part))
    }

    fn add(&mut self, process: &'d str, parts: &[Part<'d>]) {
        // One process may have a kind of doubt twice.
        if !self.of.contains(&process) {
            self.of.push(process);
        }
        for ((least, most), part) in self.parts.iter_mut().zip(parts) {
            if part.number() < least.number() {
                *least = *part;
            }
            if part.number() > most.number() {
                *most = *part;
            }
        }
    }

    fn text(&self) -> String {
        let told = self.parts.iter().map(|part| match part {
            (Part::Number(least, low), Part::Number(most, high)) if low < high => {
                format!("{least} to {most}")
            }
            (Part::Text(text) | Part::Number(text, _), _) => (*text).to_owned(),
        });
        told.collect()
    }
}

/// A sentence, taken apart at its numbers. Those of a name, such as `pp32`, are text, and so is what is before a colon: there
/// may be the options of a test.
fn parts(doubt: &str) -> Vec<Part<'_>> {
    let is_name = |before: &str| before.starts_with(|c: char| c.is_ascii_alphabetic());
    let named = doubt.find(": ").filter(|&at| is_name(&doubt[..at])).map_or(0, |at| at + 2);
    let (mut parts, mut text_from, mut at) = (Vec::new(), 0, named);
    while let Some(next) = doubt[at..].find(|c: char| c.is_ascii_digit()) {
        let begin = at + next;
        let digits = doubt[begin..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let all = &doubt[begin..doubt.len() - digits.len()];
        // The full stop of the sentence.
        let shown = all.trim_end_matches('.');
        at = begin + all.len();
        let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
        let (before, after) = (&doubt[..begin], &doubt[at..]);
        let is_apart = !before.ends_with(is_in_word) && !after.starts_with(is_in_word);
        let is_negative = before.ends_with(" -") && begin > text_from + 1;
        let from = if is_negative { begin - 1 } else { begin };
        let until = begin + shown.len();
        if let (true, Ok(number)) = (is_apart, doubt[from..until].parse::<f64>()) {
            parts.push(Part::Text(&doubt[text_from..from]));
            parts.push(Part::Number(&doubt[from..until], number));
            text_from = until;
        }
    }
    parts.push(Part::Text(&doubt[text_from..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences of process 1, 2 and so on.
    fn check(doubts: &[&str], expected: &[(&str, usize)]) {
        let names: Vec<String> = (1..=doubts.len()).map(|n| n.to_string()).collect();
        let all = names.iter().map(String::as_str).zip(doubts.iter().copied());
        let found = folded(all);
        let found: Vec<(&str, usize)> = found.iter().map(|of| (&*of.text, of.of.len())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_differs_only_in_numbers_is_one_sentence_with_their_ranges() {
        check(
            &[
                "pp32: the standard deviation is 69 % of the mean.",
                "pp32: the standard deviation is 9.5 % of the mean.",
                "pp512: the standard deviation is 20 % of the mean.",
                "pp32: the standard deviation is 109 % of the mean.",
                "pp32: other work took cores from 1 of 3 repetitions.",
                "pp32: other work took cores from 3 of 3 repetitions.",
            ],
            &[
                ("pp32: the standard deviation is 9.5 to 109 % of the mean.", 3),
                ("pp512: the standard deviation is 20 % of the mean.", 1),
                ("pp32: other work took cores from 1 to 3 of 3 repetitions.", 2),
            ],
        );
        check(
            &["The clock was -700 ppm off.", "The clock was 600 ppm off."],
            &[("The clock was -700 to 600 ppm off.", 2)],
        );
        check(
            &["1 of its passes are left out: warm", "12 of its passes are left out: warm"],
            &[("1 to 12 of its passes are left out: warm", 2)],
        );
    }

    #[test]
    fn names_and_versions_are_no_numbers() {
        for two in [
            ["of capture_32 alone", "of capture_64 alone"],
            ["version 1.2.3 is old", "version 1.3.3 is old"],
            ["3 threads", "3 thread"],
            ["", "5"],
        ] {
            check(&two, &[(two[0], 1), (two[1], 1)]);
        }
        check(&["at 5.", "at 7."], &[("at 5 to 7.", 2)]);
        check(&["the same …5", "the same …5"], &[("the same …5", 2)]);
    }

    #[test]
    fn a_process_counts_once() {
        let twice = [("a", "queue 1 is full"), ("a", "queue 2 is full"), ("b", "queue 2 is full")];
        let found = folded(twice);
        assert_eq!((&*found[0].text, &*found[0].of), ("queue 1 to 2 is full", &["a", "b"][..]));
    }
}
