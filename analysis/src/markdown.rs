//! Markdown for people, where it is more than [escaped text](crate::text::markdown): tables, code and links.

use std::fmt::Write;

use crate::text::columns;

/// Appends a table, padded to be readable as plain text. Columns with a header that begins with `!` hold numbers. Cells are
/// [escaped](crate::text::markdown) already.
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    text: &mut String,
) {
    let is_number = header.map(|cell| cell.starts_with('!'));
    let header = header.map(|cell| cell.trim_start_matches('!').to_owned());
    let rows: Vec<[String; N]> = std::iter::once(header).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0).max(3)
    });
    for (nth, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - columns(cell));
            let _ = match is_number[column] {
                true => write!(text, "| {padding}{cell} "),
                false => write!(text, "| {cell}{padding} "),
            };
        }
        text.push_str("|\n");
        if nth == 0 {
            for (width, is_number) in widths.iter().zip(is_number) {
                let _ = match is_number {
                    true => write!(text, "|{}:", "-".repeat(width + 1)),
                    false => write!(text, "|{}", "-".repeat(width + 2)),
                };
            }
            text.push_str("|\n");
        }
    }
}

/// A code block with lines for a shell, which nothing in them ends.
#[must_use]
pub fn code(lines: &str) -> String {
    let fence = "`".repeat(longest_run(lines, '`').max(2) + 1);
    format!("{fence}sh\n{lines}\n{fence}")
}

/// How often a character follows itself at most.
#[must_use]
pub fn longest_run(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0) / of.len_utf8()
}

/// A path, escaped as the target of a link.
#[must_use]
pub fn target(path: &str) -> String {
    let mut target = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b'~' => {
                target.push(char::from(byte));
            }
            _ => {
                let _ = write!(target, "%{byte:02X}");
            }
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_padded_and_numbers_to_the_right() {
        let mut text = String::new();
        let rows = [["a", "1"], ["注意", "12345"]].map(|row| row.map(str::to_owned));
        table(["Name", "!Of"], rows.into_iter(), &mut text);
        assert_eq!(
            text,
            "| Name |    Of |\n|------|------:|\n| a    |     1 |\n| 注意 | 12345 |\n"
        );
    }

    #[test]
    fn nothing_ends_a_code_block_or_a_link() {
        assert_eq!(code("a\nb"), "```sh\na\nb\n```");
        assert_eq!(code("a ``` b"), "````sh\na ``` b\n````");
        assert_eq!(target("a (1)/b_c.md"), "a%20%281%29/b_c.md");
    }
}
