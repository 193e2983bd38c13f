//! The rows of `-o json` and `-o jsonl`, among whatever else is in the file: what the program logs, since both streams
//! go to one file with `&> FILE`, and an end that is missing, since a killed program writes none.

use serde_json::{Map, Value};

use super::{At, BenchRow, ImportError, Rows};

/// All rows that are whole.
///
/// # Errors
///
/// If a row lacks a field that a test has, or if there is no row, with the first fault of the file.
pub(super) fn rows(text: &str, at: &At<'_>) -> Result<Rows, ImportError> {
    let mut found = Rows::default();
    let mut first_fault = None;
    // The brackets that were opened, now and where the line began.
    let (mut open, mut open_at_line) = (0_i64, 0_i64);
    let mut from = 0;
    loop {
        let rest = &text[from..];
        let is_between = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | ',');
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
                    match is_test(&fields) {
                        true => found.rows.push(row(found.rows.len() + 1, fields, at)?),
                        false => found.skip("{…}"),
                    }
                    continue;
                }
                Some(Err(error)) if error.is_eof() => {
                    first_fault.get_or_insert_with(|| breaks_off(fault(text, from, &error, at)));
                    let row = found.rows.len() + 1;
                    found.cut =
                        Some(format!("row {row} and all after it: the file breaks off there"));
                    return found.or(first_fault, at);
                }
                Some(Err(error)) => {
                    first_fault.get_or_insert_with(|| fault(text, from, &error, at));
                    found.broken += 1;
                    // On, to where another row begins.
                    let begins = rest.match_indices('\n').map(|(line, _)| line + 1);
                    let mut begins = begins.filter(|&line| {
                        rest[line..].trim_start_matches([' ', '\t', '[', ',']).starts_with('{')
                    });
                    from += begins.next().unwrap_or(rest.len());
                    continue;
                }
                Some(Ok(_)) | None => {}
            }
        }
        // A line of something else. What a program logs may have brackets of its own.
        open = open_at_line;
        let line = text[..from].rfind('\n').map_or(0, |end| end + 1);
        let end = text[from..].find('\n').map_or(text.len(), |end| from + end);
        found.skip(text[line..end].trim());
        from = end;
    }
    if open > 0 {
        let rows = found.rows.len();
        found.cut = Some(format!("what came after row {rows}, if anything: the list has no end"));
    }
    found.or(first_fault, at)
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

fn row(number: usize, fields: Map<String, Value>, at: &At<'_>) -> Result<BenchRow, ImportError> {
    let place = |field: &str| format!("row {number}, {field}");
    let [n_prompt, n_gen, n_depth] = super::counts(number, &fields, at)?;
    let samples = fields.get("samples_ns").and_then(Value::as_array);
    let samples = samples
        .ok_or_else(|| at.place(place("samples_ns"), what_it_is(fields.get("samples_ns"))))?;
    let nanos = |(index, sample): (usize, &Value)| {
        let place = || place(&format!("samples_ns[{index}]"));
        sample.as_u64().ok_or_else(|| at.place(place(), "is not a whole number of nanoseconds"))
    };
    let samples_ns: Vec<u64> = samples.iter().enumerate().map(nanos).collect::<Result<_, _>>()?;
    if samples_ns.is_empty() {
        return Err(at.place(place("samples_ns"), "is empty"));
    }
    Ok(BenchRow { number, fields, n_prompt, n_gen, n_depth, samples_ns, stated: None })
}

/// What is wrong with the times of a row's repetitions, which are no array.
fn what_it_is(samples: Option<&Value>) -> &'static str {
    match samples {
        Some(_) => "is not an array of times",
        None => "is missing, the times of its repetitions: was the file changed?",
    }
}
