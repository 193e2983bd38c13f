//! The records, one after the other: in the envelope of Dynamo's trace, without it, or bare.
//!
//! A worker may have several ranks, each with a scheduler of its own, whose passes run at the same time: a [`Stream`] each.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::seen::Seen;
use crate::import::decimal::{nearest, scaled};
use crate::import::lines;
use crate::import::values::{text, words};

/// The most passes that are kept.
const MOST_PASSES: usize = 1 << 20;
/// The most requests of passes that are kept, where records list them one by one.
const MOST_EACH: usize = 1 << 22;
/// The most workers and ranks that are told apart.
const MOST_STREAMS: usize = 1 << 12;
/// The most characters of a name that are kept.
const MOST_TEXT: usize = 64;
/// What takes longer is no pass, and sums stay within 64 bits.
const MOST_NS: u64 = 3_600_000_000_000;
/// More requests than these are in no pass, and more tokens are computed in none; nor does a KV cache hold more, or a rank
/// count more records. Sums of the most passes stay within 64 bits.
const MOST_REQUESTS: u64 = 1 << 24;
const MOST_TOKENS: u64 = 1 << 28;
const MOST_CACHED: u64 = 1 << 40;
const MOST_RECORDS: u64 = 1 << 48;
/// The version of the records that is known.
const VERSION: u64 = 1;

/// A rank of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stream {
    pub(super) worker: String,
    pub(super) rank: String,
    /// How many passes of it are there.
    pub(super) passes: u64,
    /// How many records are missing between those that are there, by their numbers.
    pub(super) missing: u64,
    /// How often a number is lower than the one before it: a worker began anew, or records aren't in order.
    pub(super) back: u64,
    last: Option<u64>,
}

/// A pass, with the sums of its requests. What a record doesn't state is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// An index into [`Told::streams`].
    pub(super) stream: usize,
    /// Its number among the records of its rank.
    pub(super) counter: Option<u64>,
    pub(super) wall_ns: u64,
    /// Requests whose prompts it reads, the tokens of them that it computes, and those that were in the KV cache before.
    pub(super) prompts: u64,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) prompt_cached: Option<u64>,
    /// Requests that get their next tokens.
    pub(super) answers: u64,
    /// Requests that wait for a place, and those of them that had one before.
    pub(super) waiting: Option<u64>,
    pub(super) preempted: Option<u64>,
    /// A range of [`Told::each`], where the record lists its requests.
    each: [usize; 2],
}

/// What the records tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) streams: Vec<Stream>,
    pub(super) passes: Vec<Record>,
    /// Of each request of a pass, the tokens that it computes of it, and those in the KV cache before.
    each: Vec<[u64; 2]>,
    /// Whether Dynamo wrote them, and how it chose which ones.
    pub(super) is_dynamo: bool,
    pub(super) captured: BTreeSet<String>,
    /// When the first one was seen, in milliseconds since 1970.
    pub(super) first_ms: Option<u64>,
    /// What is no record, or lacks what one needs.
    pub(super) odd: u64,
    pub(super) unknown_version: u64,
    /// Records of no pass: nothing was to be done.
    pub(super) idle: u64,
    /// Passes without a request.
    pub(super) empty: u64,
    /// Passes whose time is 0.
    pub(super) untimed: u64,
    /// Records with more requests or tokens than any pass has.
    pub(super) absurd: u64,
    /// Records that are there a second time.
    pub(super) twice: u64,
    /// Passes, and lists of requests, for which there is no room here.
    pub(super) beyond: u64,
    pub(super) lists_beyond: u64,
    /// Lists of requests that don't come to the sums beside them.
    pub(super) unfit: u64,
}

impl Told {
    /// The rank that has most passes, the first of several.
    pub(super) fn longest(&self) -> Option<(usize, &Stream)> {
        let all = self.streams.iter().enumerate().filter(|(_, of)| of.passes > 0);
        all.max_by_key(|(nth, of)| (of.passes, Reverse(*nth)))
    }

    /// The requests of a pass, those whose prompts it reads first. None if the record doesn't list them.
    pub(super) fn each(&self, of: &Record) -> &[[u64; 2]] {
        let [from, to] = of.each;
        self.each.get(from..to).unwrap_or_default()
    }
}

/// A line, what is in its envelope, and the record itself: a field is in one of them.
#[derive(Clone, Copy, Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    fpm: Option<&'a RawValue>,
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    capture_mode: Option<&'a RawValue>,
    #[serde(borrow, default)]
    observed_at_unix_ms: Option<&'a RawValue>,
    #[serde(borrow, default)]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    worker_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dp_rank: Option<&'a RawValue>,
    #[serde(borrow, default)]
    counter_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    wall_time: Option<&'a RawValue>,
    #[serde(borrow, default)]
    scheduled_requests: Option<&'a RawValue>,
    #[serde(borrow, default)]
    queued_requests: Option<&'a RawValue>,
}

/// Requests that are in a pass, or that wait.
#[derive(Clone, Copy, Deserialize)]
struct Sums<'a> {
    #[serde(borrow, default)]
    num_prefill_requests: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sum_prefill_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sum_prefill_kv_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    num_decode_requests: Option<&'a RawValue>,
    // What some builds add: each request of the pass, those whose prompts are read first.
    #[serde(borrow, default)]
    extend_lengths: Option<&'a RawValue>,
    #[serde(borrow, default)]
    past_kv_lengths: Option<&'a RawValue>,
}

/// Reads all records of a text.
pub(super) fn told(text: &str) -> Told {
    let (mut told, mut numbers, mut seen) = (Told::default(), HashMap::new(), Seen::default());
    let text = lines::with_nulls(text);
    let odd = lines::each::<Line<'_>>(&text, |line| {
        if note(line, &mut numbers, &mut seen, &mut told).is_none() {
            told.odd += 1;
        }
    });
    told.odd = told.odd.saturating_add(odd);
    told
}

/// Notes a record. `None` if it is odd.
fn note(
    line: Line<'_>,
    numbers: &mut HashMap<[String; 2], usize>,
    seen: &mut Seen,
    told: &mut Told,
) -> Option<()> {
    let event = line.event.map_or(Some(line), parsed)?;
    let fpm = event.fpm.map_or(Some(event), parsed)?;
    let scheduled: Sums<'_> = parsed(fpm.scheduled_requests?)?;
    if fpm.version.is_some() && number(fpm.version) != Some(VERSION) {
        told.unknown_version += 1;
        return Some(());
    }
    let wall_ns = nanoseconds(&words(fpm.wall_time))?;
    told.is_dynamo |= words(event.schema).starts_with("dynamo.");
    if event.capture_mode.is_some() && told.captured.len() < 8 {
        told.captured.insert(cut(words(event.capture_mode)));
    }
    if is_absurd(&fpm, &scheduled) {
        told.absurd += 1;
        return Some(());
    }
    let prompts = number(scheduled.num_prefill_requests)?;
    let answers = number(scheduled.num_decode_requests)?;
    if told.first_ms.is_none() {
        told.first_ms = number(event.observed_at_unix_ms).filter(|&ms| ms > 0);
    }
    let Some(stream) = stream(&fpm, numbers, told) else {
        told.beyond += 1;
        return Some(());
    };
    let of = told.streams.get_mut(stream)?;
    let counter = number(fpm.counter_id);
    if let Some(counter) = counter {
        // Files may overlap, and a worker that began anew counts anew. 0 is that of records that nobody numbered.
        let at = words(event.observed_at_unix_ms);
        let work = text(fpm.scheduled_requests);
        let is_again = counter > 0
            && (seen.has((stream, counter, at, wall_ns, work)) || of.last == Some(counter));
        if is_again {
            told.twice += 1;
            return Some(());
        }
        match of.last {
            Some(last) if last < counter => {
                of.missing = of.missing.saturating_add(counter - last - 1);
            }
            Some(last) if last > counter => of.back += 1,
            _ => {}
        }
        of.last = Some(counter);
    }
    match (prompts > 0 || answers > 0, wall_ns > 0) {
        (false, false) => told.idle += 1,
        (false, true) => told.empty += 1,
        (true, false) => told.untimed += 1,
        (true, true) if told.passes.len() >= MOST_PASSES => told.beyond += 1,
        (true, true) => {
            of.passes += 1;
            let queued: Option<Sums<'_>> = fpm.queued_requests.and_then(parsed);
            let preempted = queued.and_then(|of| number(of.num_decode_requests));
            let new = queued.and_then(|of| number(of.num_prefill_requests));
            let mut record = Record {
                stream,
                counter,
                wall_ns,
                prompts,
                prompt_tokens: number(scheduled.sum_prefill_tokens),
                prompt_cached: number(scheduled.sum_prefill_kv_tokens),
                answers,
                waiting: new.zip(preempted).and_then(|(new, again)| new.checked_add(again)),
                preempted,
                each: [0; 2],
            };
            record.each = listed(&record, &scheduled, told);
            told.passes.push(record);
        }
    }
    Some(())
}

/// Keeps the requests that a record lists one by one, if they come to its sums. Returns where they are.
fn listed(record: &Record, scheduled: &Sums<'_>, told: &mut Told) -> [usize; 2] {
    let (Some(tokens), Some(cached)) = (scheduled.extend_lengths, scheduled.past_kv_lengths) else {
        return [0; 2];
    };
    let list = |of: &RawValue, most: u64| {
        let list: Vec<&RawValue> = serde_json::from_str(of.get()).ok()?;
        let bounded = |of| number(Some(of)).filter(|&n| n <= most);
        list.into_iter().map(bounded).collect::<Option<Vec<u64>>>()
    };
    let lists = list(tokens, MOST_TOKENS).zip(list(cached, MOST_CACHED));
    let lists = lists.filter(|(tokens, cached)| {
        let all = record.prompts.checked_add(record.answers);
        let of_prompts = usize::try_from(record.prompts).ok();
        let sum = |of: &[u64]| {
            let of_prompts = of.get(..of_prompts?)?;
            of_prompts.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n))
        };
        tokens.len() == cached.len()
            && all == Some(tokens.len() as u64)
            && !tokens.contains(&0)
            && sum(tokens) == record.prompt_tokens
            && sum(cached) == record.prompt_cached
    });
    let Some((tokens, cached)) = lists else {
        told.unfit += 1;
        return [0; 2];
    };
    let from = told.each.len();
    if from + tokens.len() > MOST_EACH {
        told.lists_beyond += 1;
        return [0; 2];
    }
    told.each.extend(tokens.into_iter().zip(cached).map(|(tokens, cached)| [tokens, cached]));
    [from, told.each.len()]
}

/// The rank that a record is of. `None` if there are too many.
fn stream(
    fpm: &Line<'_>,
    numbers: &mut HashMap<[String; 2], usize>,
    told: &mut Told,
) -> Option<usize> {
    let key = [cut(words(fpm.worker_id)), cut(words(fpm.dp_rank))];
    if let Some(&number) = numbers.get(&key) {
        return Some(number);
    }
    let number = told.streams.len();
    let [worker, rank] = key.clone();
    let rank = if rank.is_empty() { "0".to_owned() } else { rank };
    (number < MOST_STREAMS).then(|| {
        numbers.insert(key, number);
        told.streams.push(Stream { worker, rank, ..Stream::default() });
        number
    })
}

/// An object. A list isn't one, though its elements could be taken for fields.
fn parsed<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    let text = raw.get();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

/// Seconds as the nearest nanoseconds; `None` of what is no time of a pass.
fn nanoseconds(seconds: &str) -> Option<u64> {
    let ns = u64::try_from(nearest(scaled(seconds, 12)?)).ok()?;
    (ns <= MOST_NS).then_some(ns)
}

/// A whole number, which may be written with a fraction of zeros: Python's numbers are, once they were divided.
fn number(value: Option<&RawValue>) -> Option<u64> {
    let text = words(value);
    let (whole, fraction) = text.split_once('.').unwrap_or((&*text, "0"));
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    whole.parse().ok().filter(|_| is_whole)
}

/// Whether a record has more requests, tokens or records before it than there can be. What isn't stated is not too much.
fn is_absurd(fpm: &Line<'_>, scheduled: &Sums<'_>) -> bool {
    [
        (scheduled.num_prefill_requests, MOST_REQUESTS),
        (scheduled.num_decode_requests, MOST_REQUESTS),
        (scheduled.sum_prefill_tokens, MOST_TOKENS),
        (scheduled.sum_prefill_kv_tokens, MOST_CACHED),
        (fpm.counter_id, MOST_RECORDS),
    ]
    .into_iter()
    .any(|(value, most)| is_beyond(&words(value), most))
}

/// Whether a number is more than this. One that 128 bits don't hold is.
fn is_beyond(text: &str, most: u64) -> bool {
    let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(is_part);
    is_number && scaled(text, 0).is_none_or(|n| n > i128::from(most))
}

/// No more of a text than is kept.
fn cut(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bare record: number, seconds, requests with prompts and their tokens, requests that get a token.
    fn record(counter: u64, seconds: &str, prompts: u64, tokens: u64, answers: u64) -> String {
        format!(
            r#"{{"version":1,"worker_id":"w","dp_rank":0,"counter_id":{counter},"wall_time":{seconds},"scheduled_requests":{{"num_prefill_requests":{prompts},"sum_prefill_tokens":{tokens},"sum_prefill_kv_tokens":0,"num_decode_requests":{answers}}},"queued_requests":{{"num_prefill_requests":2,"num_decode_requests":1}}}}"#
        )
    }

    fn walls(told: &Told) -> Vec<u64> {
        told.passes.iter().map(|pass| pass.wall_ns).collect()
    }

    #[test]
    fn records_are_read_in_each_envelope() {
        let bare = record(1, "0.025", 2, 256, 3);
        let dynamo = format!(
            r#"{{"timestamp":7,"event":{{"schema":"dynamo.fpm.trace.v1","capture_mode":"full","observed_at_unix_ms":1782777601250,"fpm":{}}}}}"#,
            record(2, "2.5e-2", 0, 0, 4)
        );
        let event = format!(r#"{{"fpm":{}}}"#, record(3, "0.0000000015", 1, 8, 0));
        let pretty = record(4, "1", 0, 0, 1).replace(',', ",\n  ").replace('{', "{\n  ");
        let told = told(&[bare, dynamo, event, pretty].join("\n"));
        assert_eq!(walls(&told), [25_000_000, 25_000_000, 2, 1_000_000_000]);
        let first = told.passes[0];
        assert_eq!((first.prompts, first.prompt_tokens, first.answers), (2, Some(256), 3));
        assert_eq!((first.waiting, first.preempted), (Some(3), Some(1)));
        assert_eq!((told.odd, told.is_dynamo, told.first_ms), (0, true, Some(1_782_777_601_250)));
        assert_eq!(told.captured.into_iter().collect::<Vec<_>>(), ["full"]);
    }

    #[test]
    fn what_is_broken_costs_no_other_record() {
        let whole = record(2, "0.5", 1, 8, 1);
        let around = |odd: &str| {
            told(&format!("{}\n{odd}\n{}", record(1, "1", 0, 0, 1), record(3, "2", 0, 0, 1)))
        };
        for cut in 1..whole.len() {
            let told = around(&whole[..cut]);
            assert_eq!((walls(&told), told.odd), (vec![1_000_000_000, 2_000_000_000], 1), "{cut}");
        }
        for odd in [
            whole.replace("0.5", "-0.5"),
            whole.replace("0.5", "1e300"),
            whole.replace("0.5", "3601"),
            whole.replace("0.5", "\"soon\""),
            whole.replace("\"num_decode_requests\":1}", "\"num_decode_requests\":-1}"),
            whole.replacen("\"num_decode_requests\"", "\"decode\"", 1),
            whole.replace("\"scheduled_requests\":{", "\"scheduled\":{"),
            r#"{"event":7}"#.to_owned(),
            r#"{"event":{"fpm":[]}}"#.to_owned(),
            r#"{"version":1,"wall_time":0.5,"scheduled_requests":[1,8,0,1]}"#.to_owned(),
            format!(r#"{{"event":[{whole}]}}"#),
            "x".to_owned(),
        ] {
            let told = around(&odd);
            assert_eq!((told.passes.len(), told.odd), (2, 1), "{odd}");
        }
        let told = around(&whole.replace("\"version\":1", "\"version\":2"));
        assert_eq!((told.passes.len(), told.odd, told.unknown_version), (2, 0, 1));
    }

    #[test]
    fn records_of_no_pass_are_counted_by_what_they_are() {
        let all = [
            record(1, "0.0", 0, 0, 0),
            record(2, "0.1", 0, 0, 0),
            record(3, "0", 0, 0, 2),
            record(4, "0.1", 0, 0, 2),
            record(4, "0.1", 0, 0, 2),
        ];
        let told = told(&all.join("\n"));
        assert_eq!((told.idle, told.empty, told.untimed, told.twice), (1, 1, 1, 1));
        assert_eq!(told.passes.len(), 1);
    }

    #[test]
    fn records_that_are_missing_are_counted_by_rank_and_a_new_start_is_none() {
        let of = |rank: u32, counter| {
            record(counter, "0.1", 0, 0, 1).replace("\"dp_rank\":0", &format!("\"dp_rank\":{rank}"))
        };
        let all = [of(0, 5), of(1, 5), of(0, 6), of(0, 9), of(1, 7), of(0, 0), of(0, 1)];
        let told = told(&all.join("\n"));
        let streams: Vec<_> =
            told.streams.iter().map(|of| (&*of.rank, of.passes, of.missing, of.back)).collect();
        assert_eq!(streams, [("0", 5, 2, 1), ("1", 2, 1, 0)]);
        assert_eq!(told.longest().map(|(nth, _)| nth), Some(0));
    }

    #[test]
    fn records_that_come_again_are_left_out_wherever_they_are() {
        let of = |counter, ms: u64| {
            format!(
                r#"{{"event":{{"observed_at_unix_ms":{ms},"fpm":{}}}}}"#,
                record(counter, "0.1", 0, 0, 2)
            )
        };
        let file = [of(1, 10), of(2, 20), of(3, 30)].join("\n");
        let twice = told(&format!("{file}\n{file}"));
        assert_eq!((twice.passes.len(), twice.twice, twice.streams[0].back), (3, 3, 0));
        // A worker that began anew has the same numbers at other times.
        let anew = told(&format!("{file}\n{}\n{}", of(1, 40), of(2, 50)));
        assert_eq!((anew.passes.len(), anew.twice, anew.streams[0].back), (5, 0, 1));
    }

    #[test]
    fn what_no_pass_has_is_left_out_and_counted() {
        let huge = u64::MAX;
        let all = [
            record(1, "0.1", 1, huge, 0),
            record(2, "0.1", 0, 0, huge),
            record(huge, "0.1", 0, 0, 1),
            record(3, "0.1", 1, 8, 0),
        ];
        let several = told(&all.join("\n"));
        assert_eq!((several.passes.len(), several.absurd, several.odd), (1, 3, 0));
        assert_eq!(several.streams[0].missing, 0);
        // What 64 bits don't hold was stated, too.
        let whole = record(1, "0.1", 3, 8, 0);
        for beyond in ["18446744073709551616", "1e300", "1e30", "18446744073709551616.0"] {
            for odd in [
                whole.replace("_tokens\":8", &format!("_tokens\":{beyond}")),
                whole.replace("_kv_tokens\":0", &format!("_kv_tokens\":{beyond}")),
                whole.replace("_requests\":3", &format!("_requests\":{beyond}")),
            ] {
                let told = told(&format!("{odd}\n{}", record(2, "0.1", 0, 0, 1)));
                assert_eq!((told.passes.len(), told.absurd, told.odd), (1, 1, 0), "{odd}");
            }
        }
        for (text, is) in [
            ("9", true),
            ("8", false),
            ("8.0", false),
            ("0.9e1", true),
            ("", false),
            ("9 x", false),
        ] {
            assert_eq!(is_beyond(text, 8), is, "{text}");
        }
    }

    #[test]
    fn numbers_as_python_writes_them_are_read() {
        let whole = record(1, "0.1", 2, 256, 3).replace("\"version\":1", "\"version\":1.0");
        let floats = whole.replace(":2,", ":2.0,").replace(":256,", ":256.0,");
        let half = record(2, "0.1", 0, 0, 3).replace(":3}", ":2.5}");
        let nan = record(3, "0.1", 0, 0, 3).replace(":3}", ":3,\"var_decode_kv_tokens\":NaN}");
        let no_time = record(4, "NaN", 0, 0, 3);
        let told = told(&[floats, half, nan, no_time].join("\n"));
        let passes: Vec<_> = told.passes.iter().map(|of| (of.prompts, of.prompt_tokens)).collect();
        assert_eq!(passes, [(2, Some(256)), (0, Some(0))]);
        assert_eq!((told.odd, told.unknown_version), (2, 0));
    }

    #[test]
    fn requests_that_are_listed_one_by_one_come_to_the_sums_or_are_left_out() {
        let with = |lists: &str| {
            let sums = record(1, "0.1", 2, 30, 1);
            let all = format!("\"sum_prefill_kv_tokens\":7,{lists}");
            told(&sums.replace("\"sum_prefill_kv_tokens\":0,", &all))
        };
        let fits = with("\"extend_lengths\":[10,20,4],\"past_kv_lengths\":[7,0,99],");
        assert_eq!(fits.each(&fits.passes[0]), [[10, 7], [20, 0], [4, 99]]);
        assert_eq!(fits.unfit, 0);
        for lists in [
            "\"extend_lengths\":[10,20],\"past_kv_lengths\":[7,0],",
            "\"extend_lengths\":[10,21,4],\"past_kv_lengths\":[7,0,99],",
            "\"extend_lengths\":[10,20,4],\"past_kv_lengths\":[7,1,99],",
            "\"extend_lengths\":[10,20,0],\"past_kv_lengths\":[7,0,99],",
            "\"extend_lengths\":[10,20,4],\"past_kv_lengths\":[7,0,-1],",
            "\"extend_lengths\":[18446744073709551615,31,4],\"past_kv_lengths\":[7,0,99],",
        ] {
            let told = with(lists);
            assert_eq!((told.each(&told.passes[0]).len(), told.unfit), (0, 1), "{lists}");
        }
    }
}
