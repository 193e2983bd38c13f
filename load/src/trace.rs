//! Plans from traces of real servers: when requests came, and how long they and their answers were.
//!
//! | from | a request is |
//! |---|---|
//! | [Mooncake](https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces) | a line of JSON: `timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids` |
//! | [Azure](https://github.com/Azure/AzurePublicDataset) | a line of CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` |
//!
//! Who gathered the lines of JSON may have made a list of them, and a log may have lines before, or something before each.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::plan::{Ask, BLOCK, Pace, Plan};

/// The longest prompt or answer, in tokens: more is a mistake in the file.
const MOST_TOKENS: u64 = 1 << 24;
/// The most blocks of a prompt.
const MOST_BLOCKS: usize = (MOST_TOKENS / 512) as usize;
/// The most requests.
const MOST_REQUESTS: usize = 1 << 22;

/// Why a trace can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It is none of the two.
    #[error(
        "no trace of requests: lines of JSON with `timestamp`, `input_length` and `output_length` (Mooncake), or CSV that begins with TIMESTAMP,ContextTokens,GeneratedTokens (Azure)"
    )]
    Unknown,
    /// No line of it is a request.
    #[error("the trace has no request: line {line}: {why}")]
    Empty {
        /// The first line that is none.
        line: usize,
        /// Why it is none.
        why: String,
    },
    /// It has more than can be asked.
    #[error("the trace has more than 4,194,304 requests: cut it")]
    TooLong,
}

#[derive(Deserialize)]
struct Line {
    /// In milliseconds.
    timestamp: f64,
    #[serde(deserialize_with = "tokens")]
    input_length: u64,
    #[serde(deserialize_with = "tokens")]
    output_length: u64,
    #[serde(default)]
    hash_ids: Option<Vec<u64>>,
}

/// A number of tokens, which Python writes as `16.0` where others of the column are missing.
fn tokens<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let n = f64::deserialize(from)?;
    // Up to there each whole number has a value of its own.
    if n.fract() != 0.0 || !(0.0..9e15).contains(&n) {
        return Err(D::Error::custom(format!("{n} is no number of tokens")));
    }
    Ok(n as u64)
}

/// How the requests of a trace are written.
enum Shape {
    Lines,
    List,
    Table(Columns),
}

impl Shape {
    /// That of a trace that begins with this line. `None` if it is something else, such as a comment.
    fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        let list = line.strip_prefix('[').map(str::trim_start);
        if list.is_some_and(|first| first.is_empty() || first.starts_with('{')) {
            return Some(Self::List);
        }
        if line.starts_with('{') || line.contains("\"input_length\"") {
            return Some(Self::Lines);
        }
        Columns::of(line).map(Self::Table)
    }
}

/// What was read so far.
#[derive(Default)]
struct Found {
    asks: Vec<(i64, Ask)>,
    left_out: Vec<usize>,
    why_first: Option<String>,
}

impl Found {
    fn add(&mut self, line: usize, read: Result<(i64, Ask), String>) -> Result<(), TraceError> {
        match read {
            Ok(_) if self.asks.len() == MOST_REQUESTS => return Err(TraceError::TooLong),
            Ok(ask) => self.asks.push(ask),
            Err(why) => {
                self.why_first.get_or_insert(why);
                self.left_out.push(line);
            }
        }
        Ok(())
    }

    /// Reads a list that begins in a line.
    fn add_list(&mut self, text: &str, first: usize) -> Result<(), TraceError> {
        let (mut line, mut from, mut added) = (first, 0, Ok(()));
        let mut json = serde_json::Deserializer::from_str(text);
        let all = json.deserialize_seq(Elements(|of: &RawValue| {
            // It is a part of the text.
            let at = of.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
            line += text.get(from..at).unwrap_or("").matches('\n').count();
            from = at;
            if added.is_ok() {
                added = self.add(line, of_json(of.get()));
            }
        }));
        added?;
        match all.and_then(|()| json.end()) {
            Ok(()) => Ok(()),
            Err(error) => {
                let at = first + error.line().saturating_sub(1);
                self.add(at, Err("the list breaks off, or there is more behind it".to_owned()))
            }
        }
    }
}

/// Calls the function with each element of a list, which is nowhere as a whole.
struct Elements<F>(F);

impl<'t, F: FnMut(&'t RawValue)> Visitor<'t> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(request) = list.next_element::<&'t RawValue>()? {
            (self.0)(request);
        }
        Ok(())
    }
}

/// Reads a trace. Returns the plan, the lines that are no requests, counted from 1, and why the first of these is none.
///
/// # Errors
///
/// If no line of it is one.
pub fn read(text: &str, seed: u64) -> Result<(Plan, Vec<usize>, Option<String>), TraceError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut found = Found::default();
    let mut lines = (1..).zip(text.split_inclusive('\n'));
    let mut from = 0;
    let (first, shape) = loop {
        let (number, line) = lines.next().ok_or(TraceError::Unknown)?;
        match Shape::of(line) {
            Some(shape) => break (number, shape),
            None if line.trim().is_empty() => {}
            None => found.add(number, Err("it is before the trace".to_owned()))?,
        }
        from += line.len();
    };
    let rest = text.get(from..).unwrap_or("");
    let lines = (first..).zip(rest.lines()).filter(|(_, line)| !line.trim().is_empty());
    match &shape {
        Shape::List => found.add_list(rest, first)?,
        Shape::Lines => {
            for (number, line) in lines {
                found.add(number, of_json(line))?;
            }
        }
        Shape::Table(columns) => {
            for (number, line) in lines.skip(1) {
                found.add(number, columns.read(line))?;
            }
        }
    }
    let Found { mut asks, left_out, why_first } = found;
    if asks.is_empty() {
        let line = left_out.first().copied().unwrap_or(1);
        let why = why_first.unwrap_or_else(|| "there is none".to_owned());
        return Err(TraceError::Empty { line, why });
    }
    asks.sort_by_key(|(at, _)| *at);
    let began = asks[0].0;
    // Of signed numbers the difference may have more bits.
    let since = |at: i64| u64::try_from(i128::from(at) - i128::from(began)).unwrap_or(0);
    let asks = asks.into_iter().map(|(at, ask)| Ask { due_ns: since(at), ..ask }).collect();
    let plan = Plan { asks, pace: Pace::Open, seed, block_tokens: BLOCK };
    Ok((plan, left_out, why_first))
}

impl Plan {
    /// Its first requests; `speed` times as fast; prompts and answers `lengths` times as long, and one token at least.
    #[must_use]
    pub fn changed(mut self, most: usize, speed: f64, lengths: f64) -> Self {
        self.asks.truncate(most);
        let long = |tokens: u64| ((tokens as f64 * lengths).round() as u64).clamp(1, MOST_TOKENS);
        // Prompts share as much of each other as they did.
        self.block_tokens = long(self.block_tokens);
        for ask in &mut self.asks {
            ask.due_ns = (ask.due_ns as f64 / speed) as u64;
            ask.prompt_tokens = long(ask.prompt_tokens);
            ask.answer_tokens = long(ask.answer_tokens);
        }
        self
    }
}

fn checked(at: f64, prompt_tokens: u64, answer_tokens: u64) -> Result<(i64, Ask), String> {
    // A year in nanoseconds is a tenth of what fits.
    if at.is_nan() || at.abs() >= 1e18 {
        return Err("its time is out of range".to_owned());
    }
    if prompt_tokens > MOST_TOKENS || answer_tokens > MOST_TOKENS {
        return Err(format!("more than {MOST_TOKENS} tokens"));
    }
    let ask = Ask { due_ns: 0, prompt_tokens, blocks: Vec::new(), answer_tokens };
    Ok((at as i64, ask))
}

fn of_json(line: &str) -> Result<(i64, Ask), String> {
    // A log has a time or a name before it.
    let at = line.find("{\"").filter(|_| !line.trim_start().starts_with('{')).unwrap_or(0);
    let object = line.get(at..).unwrap_or("");
    let read: Line = serde_json::from_str(object).map_err(|error| error.to_string())?;
    let (at, ask) = checked(read.timestamp * 1e6, read.input_length, read.output_length)?;
    let blocks = read.hash_ids.unwrap_or_default();
    if blocks.len() > MOST_BLOCKS {
        return Err(format!("more than {MOST_BLOCKS} blocks"));
    }
    Ok((at, Ask { blocks, ..ask }))
}

/// Where the three columns stand.
struct Columns {
    time: usize,
    prompt: usize,
    answer: usize,
}

impl Columns {
    fn of(header: &str) -> Option<Self> {
        let is = |of: &str, name: &str| unquoted(of).eq_ignore_ascii_case(name);
        let find = |name: &str| header.split(',').position(|of| is(of, name));
        Some(Self {
            time: find("TIMESTAMP")?,
            prompt: find("ContextTokens")?,
            answer: find("GeneratedTokens")?,
        })
    }

    fn read(&self, line: &str) -> Result<(i64, Ask), String> {
        let column = |nth: usize| {
            let value = line.split(',').nth(nth).map(unquoted);
            value.ok_or_else(|| format!("no column {}", nth + 1))
        };
        let number = |nth: usize| {
            let value = column(nth)?;
            let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
            let is_whole = fraction.bytes().all(|digit| digit == b'0');
            let tokens = whole.parse::<u64>().ok().filter(|_| is_whole);
            tokens.ok_or_else(|| format!("column {}: no number of tokens", nth + 1))
        };
        let time = column(self.time)?;
        let at = nanoseconds(time).ok_or_else(|| {
            format!("column {}: no time such as 2023-11-16 18:17:03.97", self.time + 1)
        })?;
        let (_, ask) = checked(0.0, number(self.prompt)?, number(self.answer)?)?;
        Ok((at, ask))
    }
}

/// A cell of a table, without the quotes that some programs put around each.
fn unquoted(cell: &str) -> &str {
    let cell = cell.trim();
    cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(cell)
}

/// How far a zone is from UTC, in minutes: `Z`, `+02:00`, `-0530`, `+02`; without one, 0.
fn zone_minutes(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.split_at_checked(1) {
        None => return Some(0),
        Some(("Z", "")) => return Some(0),
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        Some(_) => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(both) => both,
        None => digits.split_at_checked(2).unwrap_or((digits, "")),
    };
    let part = |text: &str, most: i64| {
        let is_part =
            matches!(text.len(), 1 | 2) && text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<i64>().ok().filter(|n| is_part && *n <= most)
    };
    let minutes = if minutes.is_empty() { Some(0) } else { part(minutes, 59) };
    Some(sign * (part(hours, 23)? * 60 + minutes?))
}

/// A time such as `2023-11-16 18:17:03.9799600` or `2024-05-10T02:00:00+02:00`, in nanoseconds since 1970. Times without a zone
/// are all of the same.
fn nanoseconds(time: &str) -> Option<i64> {
    let (date, clock) = time.split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, zone) = clock.split_at(clock.find(['+', 'Z', '-']).unwrap_or(clock.len()));
    let zone = zone_minutes(zone)?;
    let mut clock = clock.split(':');
    let mut whole = || clock.next()?.parse::<i64>().ok();
    let (hour, minute) = (whole()?, whole()?);
    let seconds = clock.next()?;
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let second = second.parse::<i64>().ok()?;
    let is_digits = fraction.bytes().all(|digit| digit.is_ascii_digit());
    let in_range = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    if !in_range || !is_digits {
        return None;
    }
    let ns: i64 = fraction
        .bytes()
        .chain([b'0'; 9])
        .take(9)
        .fold(0, |ns, digit| ns * 10 + i64::from(digit - b'0'));
    // Howard Hinnant's days_from_civil: https://howardhinnant.github.io/date_algorithms.html
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let minutes = (days * 24 + hour) * 60 + minute - zone;
    Some(minutes * 60_000_000_000 + second * 1_000_000_000 + ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mooncake_s_lines_are_requests() {
        let text = r#"{"timestamp": 1000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}

{"timestamp": 1250.5, "input_length": 12, "output_length": 3, "more": null}
"#;
        let (plan, left_out, why) = read(text, 3).expect("a trace");
        assert_eq!((plan.pace, plan.seed, left_out.len(), why), (Pace::Open, 3, 0, None));
        let first =
            Ask { due_ns: 0, prompt_tokens: 6758, blocks: vec![0, 1, 2], answer_tokens: 500 };
        let second =
            Ask { due_ns: 250_500_000, prompt_tokens: 12, blocks: Vec::new(), answer_tokens: 3 };
        assert_eq!(plan.asks, [first, second]);
    }

    #[test]
    fn azure_s_lines_are_requests_in_the_order_of_time() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
            2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:17:03.9799600,4808,10\r\n";
        let (plan, left_out, _) = read(text, 1).expect("a trace");
        let seen = plan.asks.iter().map(|ask| (ask.due_ns, ask.prompt_tokens, ask.answer_tokens));
        assert_eq!(seen.collect::<Vec<_>>(), [(0, 4808, 10), (52_000_000, 3180, 8)]);
        assert!(left_out.is_empty());
        let days = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.5+00:00,1,1\n2024-03-01T00:00:00Z,1,1\n";
        let (plan, ..) = read(days, 1).expect("a trace");
        // The 29th was between.
        assert_eq!(plan.asks[1].due_ns, (86_400 * 1_000_000_000) + 500_000_000);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // `date -u -d … +%s` of GNU.
        for (time, seconds) in [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 12:34:56", 951_827_696),
            ("2023-11-16 18:17:03", 1_700_158_623),
            ("2100-03-01 00:00:00", 4_107_542_400),
            ("2023-11-16 20:17:03+02:00", 1_700_158_623),
            ("2023-11-16T12:47:03-0530", 1_700_158_623),
            ("2023-11-16T19:17:03+01", 1_700_158_623),
            ("2023-11-16T18:17:03Z", 1_700_158_623),
        ] {
            assert_eq!(nanoseconds(time), Some(seconds * 1_000_000_000), "{time}");
        }
        for time in [
            "",
            "2023-11-16",
            "2023-13-16 18:17:03",
            "2023-11-16 18:17",
            "x 1:2:3",
            "2023-11-16 18:17:03.é",
            "2023-11-16 18:17:03+é",
            "2023-11-16 18:17:03+25:00",
            "2023-11-16 18:17:03Zulu",
        ] {
            assert_eq!(nanoseconds(time), None, "{time}");
        }
    }

    /// When requests are due in milliseconds, with their tokens; and the lines that are none.
    fn due(text: &str) -> (Vec<(u64, u64, u64)>, Vec<usize>) {
        let (plan, left_out, _) = read(text, 1).expect("a trace");
        let of = |ask: &Ask| (ask.due_ns / 1_000_000, ask.prompt_tokens, ask.answer_tokens);
        (plan.asks.iter().map(of).collect(), left_out)
    }

    #[test]
    fn tables_of_azure_may_be_written_by_other_programs() {
        let rows = "2024-05-10 02:00:00+02:00,64,3\n2024-05-10 00:00:00.100+00:00,32.0,2\n";
        let expected = (vec![(0, 64, 3), (100, 32, 2)], vec![]);
        for header in [
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "timestamp,contexttokens,generatedtokens",
            "\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"",
        ] {
            assert_eq!(due(&format!("{header}\n{rows}")), expected, "{header}");
        }
        let quoted = "\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n\"2024-05-10 00:00:00\",\"64\",\"3\"\n";
        assert_eq!(due(quoted), (vec![(0, 64, 3)], vec![]));
    }

    #[test]
    fn requests_are_read_from_lists_and_logs() {
        let ask =
            |at: u64| format!("{{\"timestamp\":{at},\"input_length\":64,\"output_length\":3}}");
        let both = vec![(0, 64, 3), (300, 64, 3)];
        let (first, second) = (ask(0), ask(300));
        for (text, left_out) in [
            (format!("[{first}, {second}]"), vec![]),
            (format!("[\n  {first},\n  {second}\n]\n"), vec![]),
            (format!("# from a server\n\n{first}\n{second}\n"), vec![1]),
            (format!("[{first},\n{{}},\n{second}]"), vec![2]),
            (format!("x\n[{first},\n{second},\n{{\"tim"), vec![1, 4]),
            (format!("INFO {first}\nINFO x\nINFO {second}\n"), vec![2]),
        ] {
            assert_eq!(due(&text), (both.clone(), left_out), "{text}");
        }
    }

    #[test]
    fn numbers_as_python_writes_them_are_read() {
        let text = "{\"timestamp\":0,\"input_length\":16.0,\"output_length\":2,\"hash_ids\":null}\n\
            {\"timestamp\":1,\"input_length\":16.5,\"output_length\":2}\n\
            {\"timestamp\":2,\"input_length\":-1,\"output_length\":2}\n";
        assert_eq!(due(text), (vec![(0, 16, 2)], vec![2, 3]));
    }

    #[test]
    fn an_odd_line_is_left_out_and_named() {
        let text = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n{}\n{\"timestamp\": 5, \"input_length\": 99999999999, \"output_length\": 1}\n";
        let (plan, left_out, why) = read(text, 1).expect("a trace");
        assert_eq!((plan.asks.len(), left_out), (1, vec![2, 3]));
        assert!(why.expect("a reason").contains("timestamp"));
        assert_eq!(read("a,b\n1,2\n", 1), Err(TraceError::Unknown));
        assert_eq!(read("\n \n", 1), Err(TraceError::Unknown));
        let empty = read("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", 1);
        assert!(matches!(empty, Err(TraceError::Empty { line: 2, .. })), "{empty:?}");
        let empty = read("TIMESTAMP,ContextTokens,GeneratedTokens\n", 1);
        assert!(matches!(empty, Err(TraceError::Empty { line: 1, .. })), "{empty:?}");
    }

    #[test]
    fn a_plan_is_changed_to_what_a_machine_can_do() {
        let text = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 10}\n\
            {\"timestamp\": 1000, \"input_length\": 30, \"output_length\": 4}\n\
            {\"timestamp\": 2000, \"input_length\": 30, \"output_length\": 4}\n";
        let plan = read(text, 1).expect("a trace").0.changed(2, 4.0, 0.1);
        let seen = plan.asks.iter().map(|ask| (ask.due_ns, ask.prompt_tokens, ask.answer_tokens));
        assert_eq!(seen.collect::<Vec<_>>(), [(0, 10, 1), (250_000_000, 3, 1)]);
        assert_eq!(plan.block_tokens, 51);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(TIMESTAMP,ContextTokens,GeneratedTokens\n)?[-0-9T:., {}\"a-z\\[\\]\n]{0,200}") {
            let _ = read(&text, 1);
        }

        #[test]
        fn no_time_panics(year in any::<i64>(), month in any::<i64>(), day in any::<i64>(), rest in "[ T][0-9:.+]{0,20}") {
            let _ = nanoseconds(&format!("{year}-{month}-{day}{rest}"));
        }
    }
}
