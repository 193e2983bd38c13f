//! An answer as a table for people: on a terminal as far as it fits there, elsewhere with names as they are.

use crate::engine::{Answer, AnswerColumn};
use brickscope_analysis::text::{columns, cut, cut_front, fraction, padded, signed, size};
use brickscope_profile::text::printable_text;

/// The least width to which a column of texts is cut.
const LEAST: usize = 8;

/// The digits of a run's id or a hash that tell it from all others that one will see.
const DIGITS: usize = 12;

/// The table, at most `most` columns wide unless its numbers alone are wider: texts are cut. Without a width they are whole,
/// as who reads a pipe or a file needs them. Names of columns are broken at `_`. Times, sizes and shares have units.
pub fn table(answer: &Answer, most: Option<usize>) -> String {
    if answer.rows.is_empty() {
        return "no rows\n".to_owned();
    }
    let units: Vec<(&str, Unit)> = answer.columns.iter().map(unit).collect();
    let mut rows: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| {
            let cells = answer.columns.iter().zip(&units).zip(row);
            cells.map(|((column, (_, unit)), cell)| shown(column, *unit, cell, most)).collect()
        })
        .collect();
    let mut widths: Vec<usize> = (0..answer.columns.len())
        .map(|at| {
            let cells = rows.iter().map(|row| columns(&row[at]));
            cells.chain([least(units[at].0)]).max().unwrap_or_default()
        })
        .collect();
    if let Some(most) = most {
        shrink(&mut widths, &answer.columns, &units, most);
        for row in &mut rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                // The end of a path tells it from others.
                *cell =
                    if cell.starts_with('/') { cut_front(cell, *width) } else { cut(cell, *width) };
            }
        }
    }
    let heads: Vec<Vec<String>> =
        units.iter().zip(&widths).map(|((name, _), width)| head(name, *width)).collect();
    let height = heads.iter().map(Vec::len).max().unwrap_or_default();
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(&answer.columns).zip(&widths);
        let cells = cells.map(|((cell, column), width)| match column.is_number {
            true => " ".repeat(width.saturating_sub(columns(cell))) + cell,
            false => padded(cell, *width),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = String::new();
    for nth in 0..height {
        // The last lines of all names are beside each other.
        let part = |head: &'_ Vec<String>| (nth + head.len()).checked_sub(height);
        let cells = heads.iter().map(|head| part(head).map_or("", |nth| &*head[nth])).collect();
        text.push_str(&line(cells));
    }
    for row in &rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// Takes columns from the widest text until all is at most `most` wide, or texts are as narrow as they may be.
fn shrink(widths: &mut [usize], of: &[AnswerColumn], units: &[(&str, Unit)], most: usize) {
    loop {
        let all = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let can_shrink =
            |at: &usize| !of[*at].is_number && widths[*at] > LEAST.max(least(units[*at].0));
        let widest = (0..widths.len()).filter(can_shrink).max_by_key(|&at| widths[at]);
        let Some(widest) = widest.filter(|_| all > most) else { break };
        widths[widest] -= 1;
    }
}

/// What the numbers of a column are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    /// What the column's name says.
    Named,
    /// Times so many nanoseconds.
    Time(f64),
    Bytes,
    /// Of 1.
    Share,
    /// Of 100.
    Percent,
}

/// The name of a column for people, whose cells have the unit, and that unit.
fn unit(column: &AnswerColumn) -> (&str, Unit) {
    let name = column.name.as_str();
    let times = [("_ns", 1.0), ("_us", 1e3), ("_ms", 1e6), ("_seconds", 1e9)];
    let time = times.iter().find_map(|(end, ns)| Some((name.strip_suffix(*end)?, Unit::Time(*ns))));
    match time.filter(|(name, _)| !name.is_empty()) {
        _ if !column.is_number => (name, Unit::Named),
        Some(time) => time,
        None if name == "seconds" => ("time", Unit::Time(1e9)),
        None if name == "percent" || name.starts_with("percent_") => (name, Unit::Percent),
        None if name == "share" || name.ends_with("_share") => (name, Unit::Share),
        None if name == "bytes" || name.ends_with("_bytes") => (name, Unit::Bytes),
        None => (name, Unit::Named),
    }
}

fn shown(column: &AnswerColumn, unit: Unit, cell: &Option<String>, most: Option<usize>) -> String {
    let is_hash =
        |text: &str| text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match cell {
        None => "-".to_owned(),
        Some(text) if column.is_number => measured(text, unit),
        Some(text) if most.is_some() && is_hash(text) => text.chars().take(DIGITS).collect(),
        Some(text) => printable_text(text),
    }
}

/// A number with its unit.
fn measured(text: &str, unit: Unit) -> String {
    match text.parse::<f64>().ok().filter(|number| number.is_finite()) {
        None => text.to_owned(),
        Some(number) => match unit {
            Unit::Named => rounded(text),
            Unit::Time(ns) => signed(number * ns),
            // Few bytes would be 0.0 kB.
            Unit::Bytes if number.abs() < 1e3 => format!("{} B", rounded(text)),
            Unit::Bytes => sign(number) + &size(number.abs()),
            Unit::Share => sign(number) + &fraction(number.abs()),
            Unit::Percent => sign(number) + &fraction(number.abs() / 100.0),
        },
    }
}

/// Of a difference, before its size.
fn sign(number: f64) -> String {
    if number < 0.0 { "-".to_owned() } else { String::new() }
}

/// The longest word of a column's name.
fn least(name: &str) -> usize {
    name.split('_').map(columns).max().unwrap_or_default()
}

/// The name of a column in lines of this width, which is that of its longest word at least.
fn head(name: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split('_') {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push('_');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A number with four significant digits or all of its whole part; whole numbers as they are.
fn rounded(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.contains(['.', 'e', 'E']) && number.is_finite() => {
            let above = if number == 0.0 { 0.0 } else { number.abs().log10().floor() };
            format!("{number:.*}", (3.0 - above).clamp(0.0, 12.0) as usize)
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: &[(&str, bool)], rows: &[&[&str]]) -> Answer {
        let column = |(name, is_number): &(&str, bool)| AnswerColumn {
            name: (*name).to_owned(),
            is_number: *is_number,
            is_flag: false,
        };
        let cells = |row: &&[&str]| {
            row.iter().map(|cell| Some((*cell).to_owned()).filter(|cell| cell != "NULL")).collect()
        };
        Answer {
            columns: columns.iter().map(column).collect(),
            rows: rows.iter().map(cells).collect(),
        }
    }

    #[test]
    fn a_wide_answer_fits_by_broken_names_and_cut_texts() {
        let answer = answer(
            &[
                ("test", false),
                ("tokens_per_second", true),
                ("model", false),
                ("receipt_sha256", false),
                ("is_disturbed", false),
                ("others_share", true),
            ],
            &[
                &[
                    "tg128",
                    "45.04567",
                    "/work/main/target/models/a-very-long-name-of-a-model-q8_0.gguf",
                    "f66b28a1d5b6f0a3f66b28a1d5b6f0a3f66b28a1d5b6f0a3f66b28a1d5b6f0a3",
                    "true",
                    "0.0123456",
                ],
                &["pp512", "1234.56", "llama", "NULL", "false", "NULL"],
            ],
        );
        let text = table(&answer, Some(80));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn no_name_is_cut_where_there_is_no_terminal() {
        let hash = "f66b28a1d5b6f0a3f66b28a1d5b6f0a3f66b28a1d5b6f0a3f66b28a1d5b6f0a3";
        let name = "a-very-long-name-of-a-model-".repeat(5);
        let answer = answer(&[("model", false), ("run_id", false)], &[&[name.as_str(), hash]]);
        let text = table(&answer, None);
        assert!(text.contains(&format!("{name}  {hash}\n")), "{text}");
        assert!(!table(&answer, Some(80)).contains(hash));
    }

    #[test]
    fn numbers_have_the_units_that_people_read() {
        let of = [
            ("wall_ms", true, "10.912345"),
            ("p50_ns", true, "1234567"),
            ("seconds", true, "0.0000305"),
            ("percent", true, "84.96"),
            ("percent_disturbed", true, "0.00001"),
            ("others_share", true, "0.0123456"),
            ("model_bytes", true, "123456789"),
            ("change_ns", true, "-20000"),
            ("few_bytes", true, "12"),
            ("change_bytes", true, "-2600000"),
            ("change_share", true, "-0.0001"),
            ("tokens_per_second", true, "45.04567"),
            ("created_s", true, "1767225600"),
            ("p99_ns", true, "NULL"),
            ("odd_ns", false, "12"),
        ];
        let names: Vec<(&str, bool)> =
            of.iter().map(|(name, number, _)| (*name, *number)).collect();
        let cells: Vec<&str> = of.iter().map(|(_, _, cell)| *cell).collect();
        let text = table(&answer(&names, &[cells.as_slice()]), None);
        let row = text.lines().last().unwrap_or_default();
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let expected = "10.9 ms|1.23 ms|30.5 µs|85.0 %|<0.1 %|1.2 %|123 MB|-20.0 µs|12 B|-3 MB|-<0.1 %|45.05|1767225600|-|12";
        assert_eq!(cells.join("|"), expected, "{text}");
        assert!(text.contains("wall") && !text.contains("_ms"), "{text}");
    }
}
