//! What is found in a file of llama-bench, whatever its form: rows that are read, and what is left out of it. An odd row
//! costs only itself.

use brickscope_profile::Profile;
use serde_json::{Map, Value};

use super::{At, BenchRow, ImportError};
use crate::import::decimal::scaled;
use crate::import::left_out;

/// What is in a file.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<BenchRow>,
    /// Lines that are no part of it, and the first of them.
    skipped: u64,
    first_skipped: String,
    /// Rows that aren't JSON.
    pub(super) broken: u64,
    /// Rows that have not what a test has, and what is wrong with the first of them.
    refused: u64,
    first_refused: Option<ImportError>,
    /// What is lost of a file that breaks off.
    pub(super) cut: Option<String>,
}

impl Rows {
    pub(super) fn skip(&mut self, line: &str) {
        if self.skipped == 0 {
            self.first_skipped = line.chars().take(80).collect();
        }
        self.skipped += 1;
    }

    /// The number of the next row, counted from 1. One that is left out has a number, too.
    pub(super) fn next_number(&self) -> usize {
        let refused = usize::try_from(self.refused).unwrap_or(usize::MAX);
        self.rows.len().saturating_add(refused).saturating_add(1)
    }

    /// Takes a row, or counts it.
    pub(super) fn add(&mut self, row: Result<BenchRow, ImportError>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(fault) => {
                self.refused += 1;
                self.first_refused.get_or_insert(fault);
            }
        }
    }

    /// These, or why there is none.
    pub(super) fn or(self, fault: Option<ImportError>, at: &At<'_>) -> Result<Self, ImportError> {
        match self.rows.is_empty() {
            true => Err(self.first_refused.or(fault).unwrap_or_else(|| at.whole("has no test"))),
            false => Ok(self),
        }
    }

    /// Why there is no row with this number, if there is none.
    pub(super) fn missing(&self, number: usize) -> Option<String> {
        if self.rows.iter().any(|row| row.number == number) {
            return None;
        }
        let last = self.next_number() - 1;
        Some(match (1..=last).contains(&number) {
            true => format!("has a row {number}, but it can't be read"),
            false => format!("has no row {number}: its rows are 1 to {last}"),
        })
    }

    /// What is left out of the file, for notes.
    pub(super) fn told(&self) -> LeftOut {
        let lines = &self.first_skipped;
        let first = self.first_refused.as_ref().map_or(String::new(), |of| {
            format!(" ({}: {})", of.place.as_deref().unwrap_or("one"), of.fault)
        });
        let repetitions: u64 = self.rows.iter().map(|row| row.not_timed).sum();
        let spreads = self.rows.iter().filter(|row| row.is_spread_unknown).count() as u64;
        LeftOut(vec![
            (format!("lines that are no part of the results, such as `{lines}`"), self.skipped),
            ("rows that aren't whole JSON".to_owned(), self.broken),
            (format!("rows that can't be read{first}"), self.refused),
            (
                "repetitions whose time is no whole number of nanoseconds above 0".to_owned(),
                repetitions,
            ),
            ("standard deviations that are no number, such as nan".to_owned(), spreads),
            (self.cut.clone().unwrap_or_default(), u64::from(self.cut.is_some())),
        ])
    }
}

/// What is left out, each with how often it is.
pub(super) struct LeftOut(Vec<(String, u64)>);

impl LeftOut {
    pub(super) fn note(&self, profile: &mut Profile) {
        for (why, count) in &self.0 {
            left_out(profile, why, *count);
        }
    }
}

/// The tokens of a test: of its prompt and its answer, and how many are before them.
pub(super) fn counts(
    number: usize,
    fields: &Map<String, Value>,
    at: &At<'_>,
) -> Result<[u64; 3], ImportError> {
    let place = |field: &str| format!("row {number}, {field}");
    // llama-bench itself has them as numbers of 32 bits.
    let is_count = |count: &u64| i32::try_from(*count).is_ok();
    // Older versions have no depth, and a copy may lack what is 0.
    let count = |field: &str| match fields.get(field) {
        None => Ok(0),
        Some(value) => whole_number(value)
            .filter(is_count)
            .ok_or_else(|| at.place(place(field), "is not a whole number of tokens")),
    };
    let (n_prompt, n_gen, n_depth) = (count("n_prompt")?, count("n_gen")?, count("n_depth")?);
    if n_prompt == 0 && n_gen == 0 {
        let absent = ["n_prompt", "n_gen"].into_iter().find(|field| !fields.contains_key(*field));
        return Err(match absent {
            Some(field) => at.place(place(field), "is missing"),
            None => at.place(place("n_prompt"), "is 0, and so is n_gen: a test of nothing"),
        });
    }
    Ok([n_prompt, n_gen, n_depth])
}

/// A number without a fraction, as who copies a file may write it: `512`, `512.0`, `5.12e2`, `"512"`.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    let thousandths = match value {
        Value::Number(number) => scaled(&number.to_string(), 3)?,
        Value::String(text) => scaled(text.trim(), 3)?,
        _ => return None,
    };
    u64::try_from(thousandths / 1000).ok().filter(|_| thousandths % 1000 == 0)
}

/// The time of a repetition. One of 0 ns was not timed, and one of more than 63 bits is what a clock that goes back makes. A few
/// as a fraction or a text, such as `1.0`, are seconds.
pub(super) fn nanos(value: &Value) -> Option<u64> {
    const FEWEST: u64 = 1_000;
    let is_sure = |ns: u64| value.is_u64() || ns >= FEWEST;
    whole_number(value).filter(|&ns| ns > 0 && i64::try_from(ns).is_ok() && is_sure(ns))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (value, expected) in [
            (json!(512), Some(512)),
            (json!(512.0), Some(512)),
            (json!(1.075e9), Some(1_075_000_000)),
            (json!("512"), Some(512)),
            (json!(" 512.0 "), Some(512)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(512.5), None),
            (json!(-5), None),
            (json!("many"), None),
            (json!(""), None),
            (json!(null), None),
            (json!([512]), None),
        ] {
            assert_eq!(whole_number(&value), expected, "{value}");
        }
    }

    #[test]
    fn a_repetition_of_no_time_is_none() {
        assert_eq!(nanos(&json!(1)), Some(1));
        for value in [json!(0), json!(0.0), json!(-5), json!(u64::MAX), json!(null), json!("")] {
            assert_eq!(nanos(&value), None, "{value}");
        }
    }
}
