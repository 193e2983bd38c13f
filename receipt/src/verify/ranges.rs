//! What each number and each text of a receipt can be, whatever the others are.

use std::time::{Duration, UNIX_EPOCH};

use brickscope_profile::save::{parse_rfc3339, time_rfc3339, unix_seconds};
use serde_json::Value;

use super::table::{CanBe, Field};
use super::{Code, Findings, said};
use crate::hash::{sha256_hex, unhex};
use crate::v1::Receipt;

/// The most characters of a text. Paths may have 4096 bytes.
const MOST_CHARS: usize = 4096;
/// The most words of a command line, and entries of the environment and of what was dropped.
const MOST_WORDS: usize = 256;
/// The most characters of a name.
const MOST_NAME: usize = 1024;

/// No receipt is older than this format.
const FIRST: &str = "2026-01-01T00:00:00Z";
/// How far the clocks of two machines may be apart, in seconds.
const APART: u64 = 86_400;

/// Checks each number and each text by itself. `now`: seconds since 1970; `None` where that isn't known.
pub(super) fn check(receipt: &Receipt, now: Option<u64>, found: &mut Findings) {
    let Ok(value) = serde_json::to_value(receipt) else { return };
    walk(&value, &mut Place::default(), now, found);
    for (what, count) in [
        ("run.command", receipt.run.command.len()),
        ("environment", receipt.environment.len()),
        ("dropped", receipt.dropped.len()),
    ] {
        if count > MOST_WORDS {
            let sentence =
                format!("{what} has {count} entries, but at most {MOST_WORDS} are allowed");
            found.refuse(Code::Field, sentence);
        }
    }
}

/// Where a value is: with the numbers of items for people, and without for the tables.
#[derive(Default)]
struct Place {
    named: String,
    pattern: String,
}

impl Place {
    fn enter(&mut self, named: &str, pattern: &str, walk: impl FnOnce(&mut Self)) {
        let lengths = (self.named.len(), self.pattern.len());
        self.named += named;
        self.pattern += pattern;
        walk(self);
        self.named.truncate(lengths.0);
        self.pattern.truncate(lengths.1);
    }
}

fn walk(value: &Value, place: &mut Place, now: Option<u64>, found: &mut Findings) {
    match value {
        Value::Object(fields) => {
            let is_map = matches!(place.pattern.as_str(), "environment" | "dropped");
            for (name, field) in fields {
                // The seal has checks of its own.
                if place.pattern.is_empty() && name == "seal" {
                    continue;
                }
                if is_map && name.chars().count() > MOST_NAME {
                    let sentence =
                        format!("{} has a name of over {MOST_NAME} characters", place.named);
                    found.refuse(Code::Field, sentence);
                }
                let dot = if place.pattern.is_empty() { "" } else { "." };
                let pattern = if is_map { "*" } else { name.as_str() };
                let named = brickscope_profile::text::printable_in(name, 72);
                place.enter(&format!("{dot}{named}"), &format!("{dot}{pattern}"), |place| {
                    walk(field, place, now, found);
                });
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                place.enter(&format!("[{i}]"), "[]", |place| walk(item, place, now, found));
            }
        }
        Value::Number(number) => {
            let can_be = Field::at(&place.pattern).map(|field| field.can_be);
            if let (Some(CanBe::Number(least, most)), Some(n)) = (can_be, number.as_f64())
                && !(least..=most).contains(&n)
            {
                let (name, least, most) = (&place.named, short(least), short(most));
                found.refuse_about(
                    Code::Field,
                    &place.pattern,
                    format!("{name} is {}, but it can only be from {least} to {most}", short(n)),
                );
            }
        }
        Value::String(text) => self::text(text, place, now, found),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A number with as few digits as it needs.
fn short(n: f64) -> String {
    if n != 0.0 && !(1e-3..1e16).contains(&n.abs()) { format!("{n:e}") } else { n.to_string() }
}

fn text(text: &str, place: &Place, now: Option<u64>, found: &mut Findings) {
    let name = &place.named;
    let mut refuse = |sentence: String| found.refuse_about(Code::Field, &place.pattern, sentence);
    let chars = text.chars().count();
    if chars > MOST_CHARS {
        return refuse(format!(
            "{name} has {chars} characters, but at most {MOST_CHARS} are allowed"
        ));
    }
    match Field::at(&place.pattern).map_or(CanBe::Text, |field| field.can_be) {
        CanBe::Name if text.trim().is_empty() => refuse(format!("{name} is empty")),
        CanBe::OneOf(words) if !words.contains(&text) => refuse(format!(
            "{name} is {}, but it can only be one of {}",
            said(text),
            words.join(", ")
        )),
        CanBe::Sha256 if unhex::<32>(text).is_none() => {
            refuse(format!(
                "{name} is {}, which isn't 64 lower-case hexadecimal digits",
                said(text)
            ));
        }
        CanBe::HalfHash if unhex::<8>(text).is_none() => {
            refuse(format!(
                "{name} is {}, which isn't 16 lower-case hexadecimal digits",
                said(text)
            ));
        }
        CanBe::Sha256 | CanBe::HalfHash if is_placeholder(text) || text == sha256_hex(b"") => {
            refuse(format!(
                "{name} is {}, which is the hash of nothing that was hashed",
                said(text)
            ));
        }
        CanBe::Time => time(text, place, now, found),
        // Words have checks of their own.
        CanBe::Text | CanBe::Name | CanBe::OneOf(_) | CanBe::Word(_) => {}
        CanBe::Sha256 | CanBe::HalfHash | CanBe::Number(..) | CanBe::Flag => {}
    }
}

/// Whether all digits of a hash are the same.
fn is_placeholder(hash: &str) -> bool {
    hash.bytes().all(|digit| Some(&digit) == hash.as_bytes().first())
}

fn time(text: &str, place: &Place, now: Option<u64>, found: &mut Findings) {
    let name = &place.named;
    let mut refuse = |sentence: String| found.refuse_about(Code::Field, &place.pattern, sentence);
    let seconds = parse_rfc3339(text).and_then(|(whole, _)| unix_seconds(&format!("{whole}Z")));
    let Some(seconds) = seconds else {
        return refuse(format!(
            "{name} is {}, which is not a time in UTC as in RFC 3339",
            said(text)
        ));
    };
    // Not each month has 31 days.
    let date = |text: &str| text.get(..10).map(str::to_owned);
    let written = time_rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    if date(&written) != date(text) && !text.contains(":60") {
        return refuse(format!("{name} is {}, a day that doesn't exist", said(text)));
    }
    let is_early = unix_seconds(FIRST).is_some_and(|first| seconds < first);
    if is_early {
        let sentence = format!("{name} is {}, before there were receipts", said(text));
        refuse(sentence);
    }
    if now.is_some_and(|now| seconds > now.saturating_add(APART)) {
        refuse(format!("{name} is {}, which is yet to come", said(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_with_few_digits() {
        assert_eq!(
            [0.0, 1.0, 0.25, 2e7, -1e5, 1e18].map(short),
            ["0", "1", "0.25", "20000000", "-100000", "1e18"]
        );
    }
}
