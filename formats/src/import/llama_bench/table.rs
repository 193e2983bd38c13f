//! The rows of `-o md`, which is what llama-bench prints by itself, of `-o csv` and of `-o sql`. They have the mean rate of
//! each test and its standard deviation, and no times of repetitions.

use brickscope_profile::StatedRate;
use serde_json::{Map, Value};

use super::rows::{Rows, counts};
use super::{At, BenchRow, ImportError};

/// Whether a line is the head of a table in Markdown, or of one that a spreadsheet made of it.
pub(super) fn is_markdown(line: &str) -> bool {
    // Most lines are no head, and splitting them takes long.
    line.contains("t/s") && separator_of_markdown(unquoted(line)).is_some()
}

/// What is between the cells of such a head.
fn separator_of_markdown(line: &str) -> Option<char> {
    ['|', '\t', ';', ','].into_iter().find(|&separator| {
        let cells = cells_of_markdown(line, separator);
        ["test", "t/s"].iter().all(|name| cells.iter().any(|cell| cell == name))
    })
}

/// A line of Markdown without the marks of a quotation. A tab at an end is an empty cell.
fn unquoted(line: &str) -> &str {
    line.trim_matches([' ', '\r', '\u{feff}']).trim_start_matches(['>', ' '])
}

/// What a program that runs others puts before each of their lines, such as `bench-1  | `, of the head of a table.
fn name_before(line: &str) -> &str {
    match line.split_once('|') {
        Some((name, rest)) if !name.trim().is_empty() && rest.trim_start().starts_with('|') => {
            &line[..line.len() - rest.len()]
        }
        _ => "",
    }
}

/// A cell without the marks of bold, italic and code.
fn without_emphasis(cell: &str) -> &str {
    cell.trim_matches(['*', '`', ' ', '\t', '\u{a0}', '\u{202f}'])
}

/// Whether a line is the head of a table of `-o csv`.
pub(super) fn is_csv(line: &str) -> bool {
    // Most lines are no head, and splitting them takes long.
    line.contains("avg_ts") && separator_of(line).is_some()
}

/// What separates the cells of a head; spreadsheets write others than a comma.
fn separator_of(line: &str) -> Option<char> {
    [',', ';', '\t'].into_iter().find(|&separator| {
        let cells = cells_of_csv(line, separator);
        ["avg_ts", "n_prompt", "n_gen"].iter().all(|name| cells.iter().any(|cell| cell == name))
    })
}

/// The rows of tables in Markdown, of which there may be several.
pub(super) fn markdown(text: &str, at: &At<'_>) -> Result<Rows, ImportError> {
    let mut found = Rows::default();
    let mut head: Vec<String> = Vec::new();
    let mut separator = '|';
    // What each line of the table begins and ends with, and what is before all lines.
    let (mut is_open, mut is_closed) = (false, false);
    let mut name = "";
    let mut builds = Vec::new();
    // What stands above each table, such as `master:`, and the last line that is no part of one.
    let mut headings: Vec<(usize, &str)> = Vec::new();
    let mut above: Option<&str> = None;
    let last = text.trim_end().lines().count();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let mut line = unquoted(line);
        if is_markdown(line) {
            name = name_before(line);
            line = line[name.len()..].trim_start_matches(' ');
            separator = separator_of_markdown(line).unwrap_or(separator);
            head = cells_of_markdown(line, separator);
            [is_open, is_closed] = [line.starts_with('|'), line.ends_with('|')];
            headings.push((found.rows.len(), above.take().unwrap_or_default()));
            continue;
        }
        line = line.strip_prefix(name).unwrap_or(line).trim_start_matches(' ');
        if separator == '|' {
            line = line.trim();
        }
        if let Some(build) = line.strip_prefix("build: ") {
            builds.push((found.rows.len(), build.to_owned()));
            continue;
        }
        if line.is_empty() {
            continue;
        }
        if head.is_empty() || !line.contains(separator) || is_open && !line.starts_with('|') {
            let left = match may_be_heading(line) {
                true => above.replace(line),
                false => Some(line),
            };
            left.into_iter().for_each(|line| found.skip(line));
            continue;
        }
        let cells = cells_of_markdown(line, separator);
        if cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':' | ' '))) {
            continue;
        }
        // A decimal comma between commas.
        if separator != '|' && cells.len() > head.len() {
            found.skip(line);
            continue;
        }
        let breaks_off = number == last && is_closed && !line.ends_with('|');
        if cells.len() < head.len() || breaks_off {
            found.cut = Some(format!("line {number}, which breaks off"));
            continue;
        }
        found.add(row_of_markdown(found.next_number(), &head, &cells, at));
    }
    above.into_iter().for_each(|line| found.skip(line));
    name_tables(&headings, &mut found);
    // It stands below the table that it is of.
    let mut from = 0;
    for (to, build) in builds {
        let (commit, rest) = build.split_once(' ').unwrap_or((&build, ""));
        let number = rest.trim_matches(['(', ')']).parse::<u64>().ok();
        for row in found.rows.get_mut(from..to).unwrap_or_default() {
            row.fields.insert("build_commit".to_owned(), commit.into());
            if let Some(number) = number {
                row.fields.insert("build_number".to_owned(), number.into());
            }
        }
        from = to;
    }
    found.or(None, at)
}

/// Whether a line above a table may say which it is: `## master`, `**PR**`, `With -fa 1:`, `after`. What a program logs, a shell
/// shows, or what fences the table is none.
fn may_be_heading(line: &str) -> bool {
    /// More are a sentence.
    const WORDS: usize = 4;
    let is_fence = line.starts_with("```") || line.starts_with("~~~");
    let is_marked = line.starts_with(['#', '*']) || line.ends_with([':', '*']);
    let is_brief = line.split_whitespace().count() <= WORDS;
    let is_logged = line.contains(['_', '[', '{']) || line.starts_with(['$', '/', '-', '=']);
    !is_fence && !is_logged && (is_marked || is_brief)
}

/// Tells the rows of several tables apart by the lines above them, each of another text; else those are left out.
fn name_tables(headings: &[(usize, &str)], found: &mut Rows) {
    /// More is a sentence.
    const MOST: usize = 60;
    let plain = |heading: &str| heading.trim_matches(['#', '*', '`', ':', ' ']).to_owned();
    let names = headings.iter().map(|(_, heading)| plain(heading));
    let names: Vec<String> = names.filter(|name| name.chars().count() <= MOST).collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    let are_all = names.len() > 1 && names.len() == headings.len();
    let are_apart = are_all && distinct.len() == names.len() && !distinct.contains(&String::new());
    if !are_apart {
        headings.iter().filter(|(_, of)| !of.is_empty()).for_each(|(_, of)| found.skip(of));
        return;
    }
    for (nth, name) in names.into_iter().enumerate() {
        let to = headings.get(nth + 1).map_or(found.rows.len(), |(from, _)| *from);
        for row in found.rows.get_mut(headings[nth].0..to).unwrap_or_default() {
            row.fields.insert("table".to_owned(), name.clone().into());
        }
    }
}

fn cells_of_markdown(line: &str, separator: char) -> Vec<String> {
    if separator != '|' {
        let cells = cells_of_csv(line, separator);
        return cells.iter().map(|cell| without_emphasis(cell).to_owned()).collect();
    }
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(|cell| without_emphasis(cell).to_owned()).collect()
}

/// The names that the columns have in JSON.
const NAMES: [(&str, &str); 6] = [
    ("model", "model_type"),
    ("backend", "backends"),
    ("threads", "n_threads"),
    ("ngl", "n_gpu_layers"),
    ("fa", "flash_attn"),
    ("sm", "split_mode"),
];

fn row_of_markdown(
    number: usize,
    head: &[String],
    cells: &[String],
    at: &At<'_>,
) -> Result<BenchRow, ImportError> {
    let mut fields = Map::new();
    let (mut test, mut stated) = (None, None);
    for (name, cell) in head.iter().zip(cells) {
        match &**name {
            "test" => test = tokens_of(cell),
            "t/s" => stated = stated_rate(cell),
            name => {
                let known = NAMES.iter().find(|(column, _)| *column == name);
                let name = known.map_or(name, |(_, name)| name);
                fields.insert(name.to_owned(), value(cell));
            }
        }
    }
    let place = |what: &str| format!("row {number}, {what}");
    let tokens = test.ok_or_else(|| {
        at.place(place("test"), "is not a test such as pp512, tg128 or pp512+tg128 @ d4096")
    })?;
    let (stated, is_spread_unknown) =
        stated.ok_or_else(|| at.place(place("t/s"), "is not a rate such as 118.88 ± 1.04"))?;
    let row = BenchRow::new(number, tokens.into(), fields);
    Ok(BenchRow { stated: Some(stated), is_spread_unknown, ..row })
}

/// A cell as JSON has it: a whole number, or text.
fn value(cell: &str) -> Value {
    cell.parse::<u64>().map_or_else(|_| cell.into(), Value::from)
}

/// What stands between a mean and its spread: as programs show it that take UTF-8 for a code page of Windows or of DOS (of
/// Western Europe, of Cyrillic, Chinese, Korean, Japanese), as llama-bench writes it, as programs write it that can't, or
/// that write HTML, and as people do.
const PLUS_MINUS: [&str; 12] =
    ["Â±", "┬▒", "В±", "卤", "짹", "ﾂｱ", "±", "\u{fffd}", "&plusmn;", "&#177;", "+/-", "+-"];

/// `118.88 ± 1.04`
fn stated_rate(cell: &str) -> Option<(StatedRate, bool)> {
    // The head says it, and who copies a table may say it again.
    let cell = ["t/s", "tok/s"].iter().find_map(|unit| cell.strip_suffix(unit)).unwrap_or(cell);
    let parts = PLUS_MINUS.iter().find_map(|between| cell.split_once(*between));
    let (mean, spread) = parts.map_or((cell, None), |(mean, spread)| (mean, Some(spread)));
    rate(without_emphasis(mean), spread.map(without_emphasis))
}

/// A mean and its spread, and whether there is a spread that is no number: that of repetitions that took equally long may
/// be nan. A mean that is none is no rate.
pub(super) fn rate(mean: &str, spread: Option<&str>) -> Option<(StatedRate, bool)> {
    let number = |text: &str| {
        let text = with_a_point(text);
        let is_number = text.parse::<f64>().is_ok_and(|number| number >= 0.0 && number.is_finite());
        is_number.then_some(text)
    };
    let known = spread.and_then(number);
    let is_spread_unknown = spread.is_some() && known.is_none();
    let tokens_per_second = number(mean)?;
    Some((StatedRate { tokens_per_second, std_dev: known }, is_spread_unknown))
}

/// A number as llama-bench writes it, of one that a spreadsheet wrote: `7.104,23` and `7,104.23` are `7104.23`, `118,85` is
/// `118.85`, and `7,104` is `7104`, since a rate has two digits behind its point.
fn with_a_point(text: &str) -> String {
    let commas = text.matches(',').count();
    let (point, between) = match (text.rfind(','), text.rfind('.')) {
        (None, _) => return text.to_owned(),
        (Some(comma), Some(point)) if point > comma => ('.', ','),
        (Some(_), Some(_)) => (',', '.'),
        (Some(comma), None) if commas == 1 && text.len() - comma != 4 => (',', '.'),
        (Some(_), None) => ('.', ','),
    };
    // Between thousands there are three digits.
    let whole = text.split(point).next().unwrap_or(text);
    let mut groups = whole.split(between);
    let is_grouped = groups.next().is_some_and(|first| matches!(first.len(), 1..=3))
        && groups.all(|group| group.len() == 3);
    if whole.contains(between) && !is_grouped {
        return text.to_owned();
    }
    text.replace(between, "").replace(point, ".")
}

/// Prompt, answer and depth of `pp512+tg128 @ d4096`. Older versions write `pp 512`.
pub(super) fn tokens_of(test: &str) -> Option<(u64, u64, u64)> {
    let (work, depth) = match test.split_once('@') {
        Some((work, depth)) => (work, depth.trim().strip_prefix('d')?.trim().parse().ok()?),
        None => (test, 0),
    };
    let (mut n_prompt, mut n_gen) = (0, 0);
    for part in work.split('+').map(str::trim) {
        if let Some(tokens) = part.strip_prefix("pp") {
            n_prompt = tokens.trim().parse().ok()?;
        } else if let Some(tokens) = part.strip_prefix("tg") {
            n_gen = tokens.trim().parse().ok()?;
        } else {
            return None;
        }
    }
    (n_prompt > 0 || n_gen > 0).then_some((n_prompt, n_gen, depth))
}

/// The rows of `-o csv`.
pub(super) fn csv(text: &str, at: &At<'_>) -> Result<Rows, ImportError> {
    let mut found = Rows::default();
    let mut head: Vec<String> = Vec::new();
    let mut separator = ',';
    let last = text.lines().count();
    for (number, line) in (1_usize..).zip(text.lines()) {
        // A tab at an end is an empty cell.
        let line = line.trim_matches(['\r', ' ', '\u{feff}']);
        if is_csv(line) {
            separator = separator_of(line).unwrap_or(separator);
            head = cells_of_csv(line, separator);
            continue;
        }
        if line.is_empty() {
            continue;
        }
        if head.is_empty() || !line.contains(separator) {
            found.skip(line);
            continue;
        }
        let cells = cells_of_csv(line, separator);
        let is_last = number == last;
        if cells.len() != head.len() || is_last && line.matches('"').count() % 2 == 1 {
            match is_last {
                true => found.cut = Some(format!("line {number}, which breaks off")),
                false => found.skip(line),
            }
            continue;
        }
        found.add(row_of_cells(found.next_number(), &head, &cells, at));
    }
    found.or(None, at)
}

/// A row whose columns have the names of JSON's fields.
fn row_of_cells(
    number: usize,
    head: &[String],
    cells: &[String],
    at: &At<'_>,
) -> Result<BenchRow, ImportError> {
    let fields: Map<String, Value> =
        head.iter().zip(cells).map(|(name, cell)| (name.clone(), value(cell))).collect();
    let tokens = counts(number, &fields, at)?;
    let of = |name: &str| head.iter().zip(cells).find(|(of, _)| *of == name).map(|(_, cell)| cell);
    // A single repetition has no spread.
    let spread = of("stddev_ts").map(|spread| spread.trim()).filter(|spread| !spread.is_empty());
    let stated = rate(of("avg_ts").map_or("", |mean| mean.trim()), spread);
    let (stated, is_spread_unknown) = stated.ok_or_else(|| {
        at.place(format!("row {number}, avg_ts"), "is not a number of tokens per second")
    })?;
    let row = BenchRow::new(number, tokens, fields);
    Ok(BenchRow { stated: Some(stated), is_spread_unknown, ..row })
}

/// The tables of `-o sql`. In the first versions it had another name.
const TABLES: [&str; 2] = ["llama_bench", "test"];

/// What databases put around names.
const QUOTES: [char; 2] = ['"', '`'];

/// Whether a line is a row of `-o sql`, or begins a statement that has rows. A database that dumps them may have a schema
/// before the table's name.
pub(super) fn is_sql(line: &str) -> bool {
    let table = line.trim_start().strip_prefix("INSERT INTO ").and_then(|of| of.split_once('('));
    table.is_some_and(|(table, columns)| {
        let table = table.rsplit('.').next().unwrap_or(table).trim().trim_matches(QUOTES);
        TABLES.contains(&table) && columns.contains("n_prompt")
    })
}

/// The rows of `-o sql`.
pub(super) fn sql(text: &str, at: &At<'_>) -> Result<Rows, ImportError> {
    let mut found = Rows::default();
    let last = text.lines().count();
    // The types of the columns, whose names each row has again.
    let mut is_in_head = false;
    // The columns of a statement that goes on in the next line.
    let mut open: Option<Vec<String>> = None;
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line == ";" {
            continue;
        }
        // A comment may be within a statement.
        if line.starts_with("--") {
            found.skip(line);
            continue;
        }
        let begun = if is_sql(line) { columns_of_sql(line) } else { None };
        let goes_on = open.take().filter(|_| line.starts_with('(') || line.starts_with("VALUES"));
        if is_sql(line) || goes_on.is_some() {
            is_in_head = false;
            let (head, mut values) = match (begun, goes_on) {
                (Some(begun), _) => begun,
                (None, Some(head)) => (head, behind_values(line)),
                (None, None) => (Vec::new(), ""),
            };
            // Its rows are in the lines that follow.
            if values.is_empty() && !head.is_empty() && number < last {
                open = Some(head);
                continue;
            }
            // There may be several rows, with commas between them.
            loop {
                let Some((cells, after)) = row_of_sql(values, head.len()) else {
                    match number == last {
                        true => found.cut = Some(format!("line {number}, which breaks off")),
                        false => found.skip(line),
                    }
                    if line.ends_with(',') {
                        open = Some(head);
                    }
                    break;
                };
                found.add(row_of_cells(found.next_number(), &head, &cells, at));
                match after.trim_start().strip_prefix(',').map(str::trim_start) {
                    Some("") => {
                        open = Some(head);
                        break;
                    }
                    Some(more) => values = more,
                    None => break,
                }
            }
            continue;
        }
        is_in_head |= line.starts_with("CREATE TABLE");
        if is_in_head {
            is_in_head = !line.ends_with(");");
        } else {
            found.skip(line);
        }
    }
    found.or(None, at)
}

/// The columns that a statement names, and what comes behind `VALUES`, which may be in the next line.
fn columns_of_sql(line: &str) -> Option<(Vec<String>, &str)> {
    let (head, values) = line.split_once('(')?.1.split_once(')')?;
    let name = |name: &str| name.trim().trim_matches(QUOTES).to_owned();
    let values = values.trim_start();
    (values.is_empty() || values.starts_with("VALUES"))
        .then(|| (head.split(',').map(name).collect(), behind_values(values)))
}

fn behind_values(text: &str) -> &str {
    text.strip_prefix("VALUES").unwrap_or(text).trim_start()
}

/// The values of a row of so many columns, and what comes behind it; `None` if it isn't whole.
fn row_of_sql(values: &str, columns: usize) -> Option<(Vec<String>, &str)> {
    let mut rest = values.trim_start().strip_prefix('(')?;
    let mut cells = Vec::new();
    let end = loop {
        rest = rest.trim_start();
        let (cell, after) = match rest.strip_prefix('\'') {
            Some(quoted) => text_of_sql(quoted)?,
            None => {
                let end = rest.find([',', ')'])?;
                let bare = rest[..end].trim();
                (if bare == "NULL" { String::new() } else { bare.to_owned() }, &rest[end..])
            }
        };
        cells.push(cell);
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => break after.strip_prefix(')')?,
        }
    };
    (cells.len() == columns).then_some((cells, end))
}

/// A text behind its opening quote, and what comes behind the closing one. llama-bench doesn't double the quotes in its
/// texts, so one that no comma or bracket follows is text.
fn text_of_sql(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('\'')?;
        text.push_str(before);
        if after.trim_start().starts_with([',', ')']) {
            return Some((text, after));
        }
        text.push('\'');
        rest = after.strip_prefix('\'').unwrap_or(after);
    }
}

/// The cells of a line; in quotes, what separates them is text and a doubled quote a quote.
fn cells_of_csv(line: &str, separator: char) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let cell = cells.last_mut().expect("there is always a cell");
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                cell.push('"');
                chars.next();
            }
            '"' => is_quoted = !is_quoted,
            c if c == separator && !is_quoted => cells.push(String::new()),
            c => cell.push(c),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_tell_their_tokens() {
        for (test, tokens) in [
            ("pp512", Some((512, 0, 0))),
            ("tg128 @ d4096", Some((0, 128, 4096))),
            ("pp512+tg128", Some((512, 128, 0))),
            ("pp 512", Some((512, 0, 0))),
            ("pp0", None),
            ("pp", None),
            ("", None),
            ("tg128 @ 4096", None),
        ] {
            assert_eq!(tokens_of(test), tokens, "{test}");
        }
    }

    #[test]
    fn cells_may_have_commas_and_quotes() {
        assert_eq!(cells_of_csv("\"a,b\",\"c\"\"d\",,1", ','), ["a,b", "c\"d", "", "1"]);
        assert_eq!(cells_of_csv("\"a;b\";c,d;", ';'), ["a;b", "c,d", ""]);
        assert_eq!(cells_of_markdown("| a | | b |", '|'), ["a", "", "b"]);
        assert_eq!(cells_of_markdown("| **a** | `b` |", '|'), ["a", "b"]);
    }

    #[test]
    fn texts_of_sql_may_have_commas_brackets_and_quotes() {
        let cells = |values: &str| {
            let names = ["a"; 3].join(", ");
            let line = format!("INSERT INTO llama_bench ({names}) VALUES ({values});");
            let (head, values) = columns_of_sql(&line)?;
            row_of_sql(values, head.len()).map(|(cells, _)| cells)
        };
        for (values, expected) in [
            ("'x', '', NULL", ["x", "", ""]),
            ("'a, (b)', 1, '2'", ["a, (b)", "1", "2"]),
            // With its quotes doubled, as SQL has them, and as llama-bench writes them.
            ("'it''s', 'it''', ''''", ["it's", "it'", "'"]),
            ("'it's', '1','2'", ["it's", "1", "2"]),
        ] {
            let expected: Vec<String> = expected.map(str::to_owned).to_vec();
            assert_eq!(cells(values), Some(expected), "{values}");
        }
        for broken in ["'x', '1', '2", "'x', '1'", "'x', '1', '2', '3'", "'x' '1', '2'", ""] {
            assert_eq!(cells(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_head_has_all_three_names_and_quotes_are_none() {
        assert!(is_csv("\"build_commit\",\"n_prompt\",\"n_gen\",\"avg_ts\""));
        assert!(is_csv("n_prompt,n_gen,avg_ts"));
        assert!(is_csv("n_prompt;n_gen;avg_ts") && is_csv("n_prompt\tn_gen\tavg_ts"));
        assert!(!is_csv("n_prompt;n_gen,avg_ts"));
        for line in ["n_prompt,n_gen,avg_ts_of", "main;avg_ts 5", "n_prompt,n_gen", ""] {
            assert!(!is_csv(line), "{line}");
        }
    }

    #[test]
    fn a_rate_keeps_its_digits() {
        let (rate, is_unknown) = stated_rate("118.80 ± 1.00").expect("a rate");
        assert_eq!((&*rate.tokens_per_second, rate.std_dev.as_deref()), ("118.80", Some("1.00")));
        assert!(!is_unknown);
        let (rate, is_unknown) = stated_rate("12").expect("a rate");
        assert_eq!((rate.std_dev, is_unknown), (None, false));
        for none in ["x ± 1", "nan", "inf ± nan", "-1 ± 1", "", "1,2,3", "12,34.5", "1.2.3,4"] {
            assert_eq!(stated_rate(none), None, "{none}");
        }
    }

    #[test]
    fn a_rate_of_a_spreadsheet_is_one_of_llama_bench() {
        for (cell, mean, spread) in [
            ("118,85 ± 0,17", "118.85", "0.17"),
            ("7.104,23 ± 15,2", "7104.23", "15.2"),
            ("7,104.23 ± 15.20", "7104.23", "15.20"),
            ("1,007,104.23 ± 1", "1007104.23", "1"),
            ("7,104 ± 12", "7104", "12"),
            ("118.85 ± 0.17 t/s", "118.85", "0.17"),
            ("118.85&plusmn;0.17", "118.85", "0.17"),
            ("118.85\u{a0}±\u{a0}0.17", "118.85", "0.17"),
        ] {
            let (rate, is_unknown) = stated_rate(cell).expect("a rate");
            let read = (&*rate.tokens_per_second, rate.std_dev.as_deref(), is_unknown);
            assert_eq!(read, (mean, Some(spread), false), "{cell}");
        }
    }

    #[test]
    fn a_spread_that_is_no_number_is_unknown() {
        for spread in ["nan", "-nan", "NaN", "inf", "-1.00", ""] {
            let (rate, is_unknown) = stated_rate(&format!("118.88 ± {spread}")).expect("a rate");
            assert_eq!(&*rate.tokens_per_second, "118.88", "{spread}");
            assert_eq!((rate.std_dev, is_unknown), (None, true), "{spread}");
        }
    }

    #[test]
    fn the_sign_between_mean_and_spread_may_be_spoilt() {
        for between in PLUS_MINUS {
            let (rate, _) = stated_rate(&format!("118.88 {between} 1.04")).expect("a rate");
            let read = (&*rate.tokens_per_second, rate.std_dev.as_deref());
            assert_eq!(read, ("118.88", Some("1.04")), "{between}");
        }
        let (rate, _) = stated_rate("**118.88** ± `1.04`").expect("a rate");
        assert_eq!((&*rate.tokens_per_second, rate.std_dev.as_deref()), ("118.88", Some("1.04")));
    }
}
