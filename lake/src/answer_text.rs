//! An answer as a table for people: on a terminal as far as it fits there, elsewhere with names as they are.

use crate::engine::{Answer, AnswerColumn};
use brickscope_analysis::text::{columns, cut, cut_front, fraction, padded, signed, size, wrap};
use brickscope_profile::text::printable_text;

/// The least width to which a column of texts is cut, and that where all others are as narrow as they may be.
const LEAST: usize = 8;
const NARROWEST: usize = 4;

/// The digits of a run's id or a hash that tell it from all others that one will see.
const DIGITS: usize = 12;

/// What names a run or its work, and is the first to be cut: who needs it whole asks for CSV or JSON.
const NAMES: [&str; 9] =
    ["work", "engine", "model", "device", "cpu", "run_id", "source", "receipt_sha256", "signed_by"];

/// The table, at most `most` columns wide unless its figures alone are wider. What is too wide gets narrower in this order: what
/// is the same in all rows stands above them, names are cut, sentences are broken at words, and then other texts are cut; but
/// no verdict and no figure is. Without a width all is whole, as who reads a pipe or a file needs it. Names of columns are
/// broken at `_`. Times, sizes and shares have units.
pub fn table(answer: &Answer, most: Option<usize>) -> String {
    if answer.rows.is_empty() {
        return "no rows\n".to_owned();
    }
    let all = answer.columns.iter().enumerate();
    let mut all: Vec<Shown<'_>> = all.map(|(at, of)| Shown::of(answer, at, of, most)).collect();
    let mut text = String::new();
    let mut gap = 2;
    if let Some(most) = most {
        if width(&all, gap) > most && answer.rows.len() > 1 {
            text = take_constant(&mut all, most);
        }
        shrink(&mut all, gap, most, |of| of.is_name().then_some(LEAST));
        shrink(&mut all, gap, most, |of| (!of.is_name()).then(|| of.longest_word()));
        gap = if width(&all, gap) > most { 1 } else { 2 };
        shrink(&mut all, gap, most, |of| (!of.is_verdict()).then_some(NARROWEST));
    }
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(&all).map(|(cell, of)| match of.is_number {
            true => " ".repeat(of.width.saturating_sub(columns(cell))) + cell,
            false => padded(cell, of.width),
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(gap)).trim_end().to_owned() + "\n"
    };
    let heads: Vec<Vec<String>> = all.iter().map(|of| head(of.name, of.width)).collect();
    let height = heads.iter().map(Vec::len).max().unwrap_or_default();
    for nth in 0..height {
        // The last lines of all names are beside each other.
        let part = |head: &'_ Vec<String>| (nth + head.len()).checked_sub(height);
        let cells = heads.iter().map(|head| part(head).map_or("", |nth| &*head[nth])).collect();
        text.push_str(&line(cells));
    }
    for row in 0..answer.rows.len() {
        let cells: Vec<Vec<String>> = all.iter().map(|of| of.lines(row)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or_default();
        for nth in 0..height {
            let part = cells.iter().map(|cell| cell.get(nth).map_or("", String::as_str));
            text.push_str(&line(part.collect()));
        }
    }
    text
}

/// A column as it is shown.
struct Shown<'a> {
    /// For people, without the unit that its cells have.
    name: &'a str,
    is_number: bool,
    cells: Vec<String>,
    width: usize,
}

impl<'a> Shown<'a> {
    fn of(answer: &Answer, at: usize, column: &'a AnswerColumn, most: Option<usize>) -> Self {
        let (name, unit) = unit(column);
        let cells = answer.rows.iter().map(|row| shown(column, unit, &row[at], most));
        let cells: Vec<String> = cells.collect();
        let width = cells.iter().map(|cell| columns(cell)).chain([least(name)]).max();
        Self { name, is_number: column.is_number, cells, width: width.unwrap_or_default() }
    }

    fn is_name(&self) -> bool {
        NAMES.contains(&self.name)
    }

    /// Whether it says what the figures mean.
    fn is_verdict(&self) -> bool {
        self.name.starts_with("than_") || ["what", "interval_is", "receipt"].contains(&self.name)
    }

    fn longest_word(&self) -> usize {
        let words = self.cells.iter().flat_map(|cell| cell.split(' '));
        words.map(columns).max().unwrap_or_default()
    }

    /// A cell in lines of its column's width.
    fn lines(&self, row: usize) -> Vec<String> {
        let cell = &self.cells[row];
        if columns(cell) <= self.width {
            return vec![cell.clone()];
        }
        // The end of a path tells it from others.
        match () {
            () if cell.starts_with('/') => vec![cut_front(cell, self.width)],
            () if self.is_name() => vec![cut(cell, self.width)],
            () => wrap(cell, self.width).iter().map(|line| cut(line, self.width)).collect(),
        }
    }
}

fn width(all: &[Shown<'_>], gap: usize) -> usize {
    all.iter().map(|of| of.width).sum::<usize>() + gap * all.len().saturating_sub(1)
}

/// Takes out what is the same in all rows, as lines above them.
fn take_constant(all: &mut Vec<Shown<'_>>, most: usize) -> String {
    let is_constant = |of: &Shown<'_>| of.cells.iter().all(|cell| *cell == of.cells[0]);
    if all.iter().all(is_constant) {
        return String::new();
    }
    let mut text = String::new();
    all.retain(|of| {
        let is_same = is_constant(of);
        if is_same {
            let label = format!("{}: ", of.name.replace('_', " "));
            let lines = wrap(&(label + &of.cells[0]), most);
            lines.iter().for_each(|line| text += &format!("{line}\n"));
        }
        !is_same
    });
    if text.is_empty() { text } else { text + "\n" }
}

/// Takes from the widest column of texts that has a least width until all is at most `most` wide, or each has its least.
fn shrink(
    all: &mut [Shown<'_>],
    gap: usize,
    most: usize,
    least_of: impl Fn(&Shown<'_>) -> Option<usize>,
) {
    while width(all, gap) > most {
        let can = |of: &&mut Shown<'_>| {
            let fewest = least_of(of).filter(|_| !of.is_number);
            fewest.is_some_and(|fewest| of.width > fewest.max(least(of.name)))
        };
        let Some(widest) = all.iter_mut().filter(can).max_by_key(|of| of.width) else { break };
        widest.width -= 1;
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
        Some(text) if text.is_empty() => "-".to_owned(),
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
    fn names_are_cut_before_verdicts_and_figures_are() {
        let names = [
            ("machine", false),
            ("commit", false),
            ("what", false),
            ("requests", true),
            ("arrived_per_s", true),
            ("sessions", true),
            ("wait_ms", true),
            ("times_before", true),
            ("low", true),
            ("high", true),
            ("than_before", false),
            ("work", false),
        ];
        let work = "vllm Qwen3-8B bf16 cuda NVIDIA H200, as the client saw them";
        let row = |commit, what, rate, wait, beside: [&'static str; 3], than| {
            let [times, low, high] = beside;
            ["m1", commit, what, "160", rate, "4", wait, times, low, high, than, work]
        };
        let rows = [
            row("old", "first token p50", "22.66", "32.5", ["NULL"; 3], ""),
            row(
                "new",
                "first token p50",
                "25.07",
                "32.3",
                ["0.9956", "0.9865", "1.005"],
                "not distinguishable",
            ),
            row(
                "new",
                "between tokens p99",
                "27.61",
                "10.9",
                ["1.8871", "NULL", "NULL"],
                "not known: too few requests",
            ),
        ];
        let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
        let text = table(&answer(&names, &rows), Some(80));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(!text.contains('…') && text.starts_with("machine: m1\n"), "{text}");
        assert!(text.contains(&format!("work: {work}\n")), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        for word in ["distinguishable", "requests", "between", "p99", "0.9865", "new", "-"] {
            assert!(words.contains(&word), "{word}: {text}");
        }
        // With several works it is the name that is cut.
        let mut several = answer(&names, &rows);
        for (nth, row) in several.rows.iter_mut().enumerate() {
            row[11] = Some(format!("{nth} {work}"));
        }
        let text = table(&several, Some(80));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains('…') && text.contains("distinguishable"), "{text}");
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
        let expected = "10.9 ms|1.23 ms|30.5 µs|85.0 %|<0.1 %|1.2 %|123 MB|-20.0 µs|12 B|-2.6 MB|-<0.1 %|45.05|1767225600|-|12";
        assert_eq!(cells.join("|"), expected, "{text}");
        assert!(text.contains("wall") && !text.contains("_ms"), "{text}");
    }
}
