//! Plans from traces of real servers: when requests came, and how long they and their answers were.
//!
//! | from | a request is |
//! |---|---|
//! | [Mooncake](https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces) | a line of JSON: `timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids` |
//! | [Azure](https://github.com/Azure/AzurePublicDataset) | a line of CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` |

use serde::Deserialize;
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
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// Reads a trace. Returns the plan, the lines that are no requests, counted from 1, and why the first of these is none.
///
/// # Errors
///
/// If no line of it is one.
pub fn read(text: &str, seed: u64) -> Result<(Plan, Vec<usize>, Option<String>), TraceError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let mut peeked = lines.clone();
    let first = peeked.next().ok_or(TraceError::Unknown)?.1.trim();
    let columns = if first.starts_with('{') {
        None
    } else {
        let columns = Columns::of(first).ok_or(TraceError::Unknown)?;
        lines.next();
        Some(columns)
    };
    let (mut asks, mut left_out, mut why_first) = (Vec::new(), Vec::new(), None);
    for (number, line) in lines {
        let read = match &columns {
            None => of_json(line),
            Some(columns) => columns.read(line),
        };
        match read {
            Ok(_) if asks.len() == MOST_REQUESTS => return Err(TraceError::TooLong),
            Ok(ask) => asks.push(ask),
            Err(why) => {
                why_first.get_or_insert(why);
                left_out.push(number);
            }
        }
    }
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
    let read: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let (at, ask) = checked(read.timestamp * 1e6, read.input_length, read.output_length)?;
    if read.hash_ids.len() > MOST_BLOCKS {
        return Err(format!("more than {MOST_BLOCKS} blocks"));
    }
    Ok((at, Ask { blocks: read.hash_ids, ..ask }))
}

/// Where the three columns stand.
struct Columns {
    time: usize,
    prompt: usize,
    answer: usize,
}

impl Columns {
    fn of(header: &str) -> Option<Self> {
        let find = |name: &str| header.split(',').position(|of| of.trim() == name);
        Some(Self {
            time: find("TIMESTAMP")?,
            prompt: find("ContextTokens")?,
            answer: find("GeneratedTokens")?,
        })
    }

    fn read(&self, line: &str) -> Result<(i64, Ask), String> {
        let column = |nth: usize| {
            let value = line.split(',').nth(nth).map(str::trim);
            value.ok_or_else(|| format!("no column {}", nth + 1))
        };
        let number = |nth: usize| {
            let value = column(nth)?;
            value.parse().map_err(|_| format!("column {}: no number of tokens", nth + 1))
        };
        let time = column(self.time)?;
        let at = nanoseconds(time).ok_or_else(|| {
            format!("column {}: no time such as 2023-11-16 18:17:03.97", self.time + 1)
        })?;
        let (_, ask) = checked(0.0, number(self.prompt)?, number(self.answer)?)?;
        Ok((at, ask))
    }
}

/// A time such as `2023-11-16 18:17:03.9799600` or `2024-05-10T00:00:00+00:00`, in nanoseconds since 1970. All times of a trace
/// have one zone, so that is not looked at.
fn nanoseconds(time: &str) -> Option<i64> {
    let (date, clock) = time.split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let clock = clock.split(['+', 'Z', '-']).next()?;
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
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000_000 + second * 1_000_000_000 + ns)
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
        ] {
            assert_eq!(nanoseconds(time), None, "{time}");
        }
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
