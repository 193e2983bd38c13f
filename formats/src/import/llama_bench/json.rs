//! The rows of `-o json` and `-o jsonl`, among whatever else is in the file: what the program logs, since both streams
//! go to one file with `&> FILE`, and an end that is missing, since a killed program writes none.

use std::borrow::Cow;

use brickscope_profile::StatedRate;
use serde_json::{Map, Value};

use super::rows::{Rows, counts, nanos};
use super::{At, BenchRow, ImportError, table};

/// All rows that are whole and have what a test has.
///
/// # Errors
///
/// If there is none, with the first fault of the file.
pub(super) fn rows(text: &str, at: &At<'_>) -> Result<Rows, ImportError> {
    let text = without_nan(text);
    let text = &*text;
    let mut found = Rows::default();
    let mut first_fault = None;
    // The brackets that were opened, now and where the line began.
    let (mut open, mut open_at_line) = (0_i64, 0_i64);
    let mut from = 0;
    // Looking for what isn't there takes as long as the rest of the file.
    let mut is_last_appended = false;
    loop {
        let rest = &text[from..];
        let is_between = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | ',' | BOM);
        let next = rest.find(|c| !is_between(c)).unwrap_or(rest.len());
        for c in rest[..next].chars() {
            match c {
                '[' => open += 1,
                ']' => open -= 1,
                '\n' => open_at_line = open,
                _ => {}
            }
        }
        from += next;
        let rest = &text[from..];
        if rest.is_empty() {
            break;
        }
        if rest.starts_with('{') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match values.next() {
                Some(Ok(Value::Object(fields))) => {
                    from += values.byte_offset();
                    let tests = match is_test(&fields) {
                        true => vec![fields],
                        false => tests_in(Value::Object(fields)),
                    };
                    if tests.is_empty() {
                        found.skip("{…}");
                    }
                    for fields in tests {
                        found.add(row(found.next_number(), fields, at));
                    }
                    continue;
                }
                Some(Err(error)) if error.is_eof() => {
                    first_fault.get_or_insert_with(|| breaks_off(fault(text, from, &error, at)));
                    let row = found.next_number();
                    found.cut =
                        Some(format!("row {row} and all after it: the file breaks off there"));
                    return found.or(first_fault, at);
                }
                Some(Err(error)) => {
                    first_fault.get_or_insert_with(|| fault(text, from, &error, at));
                    found.broken += 1;
                    // On, to a row that another run appended to a line without an end.
                    let appended =
                        (!is_last_appended).then(|| rest[1..].find(FIRST_FIELD)).flatten();
                    is_last_appended |= appended.is_none();
                    let before = appended.map_or(rest, |at| &rest[..=at]);
                    // Or to a line before it that begins another row.
                    let begins = before.match_indices('\n').map(|(line, _)| line + 1);
                    let mut begins = begins.filter(|&line| {
                        rest[line..].trim_start_matches([' ', '\t', '[', ',', BOM]).starts_with('{')
                    });
                    from += begins.next().unwrap_or(before.len());
                    continue;
                }
                Some(Ok(_)) | None => {}
            }
        }
        // A line of something else. What a program logs may have brackets of its own.
        open = open_at_line;
        if let Some((fields, length)) = behind_a_prefix(&text[from..]) {
            found.add(row(found.next_number(), fields, at));
            from += length;
            continue;
        }
        let line = text[..from].rfind('\n').map_or(0, |end| end + 1);
        let end = text[from..].find('\n').map_or(text.len(), |end| from + end);
        found.skip(text[line..end].trim());
        from = end;
    }
    if open > 0 {
        let rows = found.next_number() - 1;
        found.cut = Some(format!("what came after row {rows}, if anything: the list has no end"));
    }
    found.or(first_fault, at)
}

/// What a row begins with.
const FIRST_FIELD: &str = "{\"build_commit\"";

/// With what some programs begin a file, and so each of several that were joined.
const BOM: char = '\u{feff}';

/// The text with `null` where a number is `nan` or `inf`, which C and Python write though JSON has neither: the standard
/// deviation of repetitions that took equally long may be one.
fn without_nan(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut kept = 0;
    for (at, after) in bare_values(text) {
        let Some(length) = length_of_nan(after) else { continue };
        mended.push_str(&text[kept..at]);
        mended.push_str("null");
        kept = at + length;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[kept..]);
    Cow::Owned(mended)
}

/// Where values begin that are no text, and the text from there. No text of JSON goes on in the next line.
fn bare_values(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut is_text, mut is_escaped, mut may_begin) = (false, false, false);
    text.char_indices().filter_map(move |(at, c)| {
        let begins = may_begin && !is_text && !c.is_whitespace();
        if is_text {
            is_text = c != '\n' && (c != '"' || is_escaped);
            is_escaped = c == '\\' && !is_escaped;
            return None;
        }
        (is_text, is_escaped) = (c == '"', false);
        may_begin = matches!(c, ':' | ',' | '[') || may_begin && c.is_whitespace();
        begins.then(|| (at, &text[at..]))
    })
}

/// How long the number is that a text begins with, if it is none that JSON has.
fn length_of_nan(text: &str) -> Option<usize> {
    /// None is longer; looking on for its end would take long in a text that has none.
    const MOST: usize = 32;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_end = |c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}');
    let end = unsigned.char_indices().take(MOST).find(|(_, c)| is_end(*c)).map(|(at, _)| at);
    let end = end.or_else(|| (unsigned.len() < MOST).then_some(unsigned.len()))?;
    // glibc and Microsoft's library may have more behind it, such as `-nan(ind)`.
    let word = unsigned[..end].split('(').next()?;
    let is_one = ["nan", "inf", "infinity"].iter().any(|nan| word.eq_ignore_ascii_case(nan));
    is_one.then(|| text.len() - unsigned.len() + end)
}

/// Nothing is whole.
fn breaks_off(error: ImportError) -> ImportError {
    let fault = format!("{}: the file breaks off before its first test is whole", error.fault);
    ImportError { fault, ..error }
}

/// What is wrong with an object, and where in the file.
fn fault(text: &str, from: usize, error: &serde_json::Error, at: &At<'_>) -> ImportError {
    let said = error.to_string();
    let what = said.rsplit_once(" at line ").map_or(&*said, |(what, _)| what);
    let before = &text[..from];
    let line = before.matches('\n').count() + error.line();
    let begun = from - before.rfind('\n').map_or(0, |end| end + 1);
    let column = error.column() + if error.line() > 1 { 0 } else { begun };
    at.place(format!("line {line} column {column}"), what)
}

/// Whether an object has what only a test has.
fn is_test(fields: &Map<String, Value>) -> bool {
    ["n_prompt", "n_gen", "samples_ns"].iter().any(|field| fields.contains_key(*field))
}

/// Whether an object within another one is a test.
fn has_results(fields: &Map<String, Value>) -> bool {
    fields.contains_key("samples_ns") || fields.contains_key("avg_ts") && is_test(fields)
}

/// The tests in a value of another program, which has them among what it measured itself.
fn tests_in(value: Value) -> Vec<Map<String, Value>> {
    match value {
        Value::Object(fields) if has_results(&fields) => vec![fields],
        Value::Object(fields) => fields.into_iter().flat_map(|(_, of)| tests_in(of)).collect(),
        Value::Array(values) => values.into_iter().flat_map(tests_in).collect(),
        _ => Vec::new(),
    }
}

/// The test in the first line behind what is no part of it, such as the time that a logger puts before each line, and where
/// the test ends.
fn behind_a_prefix(text: &str) -> Option<(Map<String, Value>, usize)> {
    // Whichever comes first, so that a file of one line isn't read to its end for each test.
    let pairs = text.bytes().zip(text.bytes().skip(1));
    let begins =
        pairs.take_while(|(byte, _)| *byte != b'\n').position(|pair| pair == (b'{', b'"'))?;
    let mut values = serde_json::Deserializer::from_str(&text[begins..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(Value::Object(fields))) if is_test(&fields) => {
            Some((fields, begins + values.byte_offset()))
        }
        _ => None,
    }
}

fn row(number: usize, fields: Map<String, Value>, at: &At<'_>) -> Result<BenchRow, ImportError> {
    let place = |field: &str| format!("row {number}, {field}");
    let tokens = counts(number, &fields, at)?;
    let times = fields.get("samples_ns").filter(|times| !times.is_null());
    let Some(times) = times else {
        // Who makes a row smaller keeps its rate.
        let (stated, is_spread_unknown) = stated_rate(&fields)
            .ok_or_else(|| at.place(place("samples_ns"), what_it_is(fields.get("samples_ns"))))?;
        let row = BenchRow::new(number, tokens, fields);
        return Ok(BenchRow { stated: Some(stated), is_spread_unknown, ..row });
    };
    let samples =
        times.as_array().ok_or_else(|| at.place(place("samples_ns"), what_it_is(Some(times))))?;
    let samples_ns: Vec<u64> = samples.iter().filter_map(nanos).collect();
    if samples_ns.is_empty() {
        let what = match samples.is_empty() {
            true => "is empty",
            false => "has no whole number of nanoseconds above 0",
        };
        return Err(at.place(place("samples_ns"), what));
    }
    if samples_ns.iter().try_fold(0_u64, |sum, ns| sum.checked_add(*ns)).is_none() {
        return Err(at.place(place("samples_ns"), "add up to more than 64 bits"));
    }
    let not_timed = (samples.len() - samples_ns.len()) as u64;
    Ok(BenchRow { samples_ns, not_timed, ..BenchRow::new(number, tokens, fields) })
}

/// The rate of a row without times, and whether its spread is no number.
fn stated_rate(fields: &Map<String, Value>) -> Option<(StatedRate, bool)> {
    let text = |field: &str| match fields.get(field)? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.trim().to_owned()),
        // What was nan.
        Value::Null => Some(String::new()),
        _ => None,
    };
    table::rate(&text("avg_ts")?, text("stddev_ts").as_deref())
}

/// What is wrong with the times of a row's repetitions, which are no array.
fn what_it_is(samples: Option<&Value>) -> &'static str {
    match samples {
        Some(_) => "is not an array of times",
        None => "is missing, the times of its repetitions: was the file changed?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_has_not_are_null() {
        for (text, expected) in [
            (r#"{"a": nan, "b": [-nan,inf , 1]}"#, r#"{"a": null, "b": [null,null , 1]}"#),
            (r#"{"a":NaN,"b":-Infinity}"#, r#"{"a":null,"b":null}"#),
            ("{\"a\":\n  -nan(ind)\n}", "{\"a\":\n  null\n}"),
            // In texts, and what only begins so.
            (r#"{"a": "nan", "b\": nan": 1}"#, r#"{"a": "nan", "b\": nan": 1}"#),
            ("took: nanoseconds", "took: nanoseconds"),
            // A quote of a line that is logged ends with it.
            ("a 7\" disk\n{\"a\": nan}", "a 7\" disk\n{\"a\": null}"),
            ("{\"a\": nan", "{\"a\": null"),
        ] {
            assert_eq!(without_nan(text), expected);
        }
    }
}
