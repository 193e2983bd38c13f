//! An answer as a table for people, as far as it fits in 80 columns.

use crate::engine::{Answer, AnswerColumn};
use brickscope_analysis::text::{columns, cut, cut_front, padded};
use brickscope_profile::text::printable_text;

/// The least width to which a column of texts is cut.
const LEAST: usize = 8;

/// The digits of a run's id or a hash that tell it from all others that one will see.
const DIGITS: usize = 12;

/// The table, at most `most` columns wide unless its numbers alone are wider. Names of columns are broken at `_`, texts
/// are cut: JSON and CSV have them whole.
pub fn table(answer: &Answer, most: usize) -> String {
    if answer.rows.is_empty() {
        return "no rows\n".to_owned();
    }
    let mut rows: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| {
            answer.columns.iter().zip(row).map(|(column, cell)| shown(column, cell)).collect()
        })
        .collect();
    let mut widths: Vec<usize> = (0..answer.columns.len())
        .map(|at| {
            let cells = rows.iter().map(|row| columns(&row[at]));
            cells.chain([least(&answer.columns[at].name)]).max().unwrap_or_default()
        })
        .collect();
    loop {
        let all = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let can_shrink = |at: &usize| {
            let column: &AnswerColumn = &answer.columns[*at];
            !column.is_number && widths[*at] > LEAST.max(least(&column.name))
        };
        let widest = (0..widths.len()).filter(can_shrink).max_by_key(|&at| widths[at]);
        let Some(widest) = widest.filter(|_| all > most) else { break };
        widths[widest] -= 1;
    }
    for row in &mut rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            // The end of a path tells it from others.
            *cell = if cell.starts_with('/') { cut_front(cell, *width) } else { cut(cell, *width) };
        }
    }
    let heads: Vec<Vec<String>> = answer
        .columns
        .iter()
        .zip(&widths)
        .map(|(column, width)| head(&column.name, *width))
        .collect();
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

fn shown(column: &AnswerColumn, cell: &Option<String>) -> String {
    match cell {
        None => "-".to_owned(),
        Some(text) if column.is_number => rounded(text),
        Some(text) if text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            text.chars().take(DIGITS).collect()
        }
        Some(text) => printable_text(text),
    }
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
        let text = table(&answer, 80);
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        insta::assert_snapshot!(text);
    }
}
