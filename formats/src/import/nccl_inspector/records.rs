//! The records of NCCL's Inspector, one after the other: each of an operation, with its communicator and rank around it.
//!
//! Since version 4.3 the header stands in a record before those that it is of. Files may break off anywhere, since they are
//! written while the program runs: what is no record is left out up to the next line that begins one.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::import::decimal::micros_as_nanos;
use crate::import::lines;
use crate::import::ranks::MOST_COLLECTIVES;
use crate::import::values::words;

/// The most characters of a name that are kept.
const MOST_TEXT: usize = 64;

/// A communicator: ranks that do collectives together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Communicator {
    pub(super) id: String,
    /// How many ranks it has.
    pub(super) size: u32,
}

/// A collective on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// Indices into what was [`Told`].
    pub(super) process: u32,
    pub(super) communicator: u32,
    pub(super) operation: u32,
    /// The rank in the communicator.
    pub(super) rank: u32,
    /// Which of these operations of the communicator it is.
    pub(super) number: u64,
    /// As the file states them.
    pub(super) bytes: Option<u64>,
    pub(super) ns: u64,
}

/// What the records tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) communicators: Vec<Communicator>,
    pub(super) operations: Vec<String>,
    pub(super) calls: Vec<Call>,
    /// Of each process, how many operations between two ranks it has.
    pub(super) point_to_point: Vec<u64>,
    /// By which clocks collectives were timed, in the file's own words.
    pub(super) clocks: BTreeSet<String>,
    /// The first version of the format that is stated.
    pub(super) version: Option<String>,
    /// What is no record, or lacks what one needs.
    pub(super) odd: u64,
    /// Collectives of which the host's call was timed alone, or nothing.
    pub(super) untimed: u64,
    /// Those that weren't written, since they came too fast.
    pub(super) dropped: u64,
    /// Those for which there is no room here.
    pub(super) beyond: u64,
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow, default)]
    header: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    coll_perf: Option<&'a RawValue>,
    #[serde(borrow, default)]
    p2p_perf: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dump_stats: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rank: Option<&'a RawValue>,
    #[serde(borrow, default)]
    n_ranks: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    inspector_output_format_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    hostname: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pid: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Collective<'a> {
    #[serde(borrow, default)]
    coll: Option<&'a RawValue>,
    #[serde(borrow, default)]
    coll_sn: Option<&'a RawValue>,
    #[serde(borrow, default)]
    coll_msg_size_bytes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    coll_exec_time_us: Option<&'a RawValue>,
    #[serde(borrow, default)]
    coll_timing_source: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Stats<'a> {
    #[serde(borrow, default)]
    coll_dropped_since_last_dump: Option<&'a RawValue>,
}

/// A header and what stands beside it.
#[derive(Clone, Copy, Default)]
struct Around<'a> {
    header: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
}

/// Names and their numbers.
#[derive(Default)]
struct Numbers {
    processes: HashMap<String, u32>,
    communicators: HashMap<Communicator, u32>,
    operations: HashMap<String, u32>,
}

/// Reads all records of a text.
pub(super) fn told(text: &str) -> Told {
    let mut told = Told::default();
    let mut numbers = Numbers::default();
    let mut before = Around::default();
    let odd = lines::each::<Record<'_>>(text, |record| {
        note(&record, &mut before, &mut numbers, &mut told);
    });
    told.odd = told.odd.saturating_add(odd);
    told
}

fn note<'a>(record: &Record<'a>, before: &mut Around<'a>, numbers: &mut Numbers, told: &mut Told) {
    let own = Around { header: record.header, metadata: record.metadata };
    if let Some(stats) = record.dump_stats {
        // It counts what follows of its communicator.
        *before = own;
        let stats = serde_json::from_str::<Stats<'_>>(stats.get()).ok();
        let dropped = stats.and_then(|stats| number(stats.coll_dropped_since_last_dump));
        told.dropped = told.dropped.saturating_add(dropped.unwrap_or(0));
    }
    let around = if own.header.is_some() { own } else { *before };
    let is_of_two = record.p2p_perf.is_some();
    if record.coll_perf.is_none() && !is_of_two {
        // Versions to come may have other kinds.
        return;
    }
    let Some(process) = process(around.metadata, numbers, told) else {
        told.odd += 1;
        return;
    };
    if is_of_two {
        if let Some(sum) = told.point_to_point.get_mut(process as usize) {
            *sum += 1;
        }
        return;
    }
    match collective(around.header, record.coll_perf, process, numbers, told) {
        Some(Ok(_)) if told.calls.len() >= MOST_COLLECTIVES => told.beyond += 1,
        Some(Ok(call)) => told.calls.push(call),
        Some(Err(Untimed)) => told.untimed += 1,
        None => told.odd += 1,
    }
}

/// The number of the process that a record is of: its host and its number there.
fn process(metadata: Option<&RawValue>, numbers: &mut Numbers, told: &mut Told) -> Option<u32> {
    let metadata = serde_json::from_str::<Metadata<'_>>(metadata?.get()).ok()?;
    if told.version.is_none() && metadata.inspector_output_format_version.is_some() {
        told.version = Some(text(metadata.inspector_output_format_version));
    }
    let key = format!("{}\n{}", words(metadata.hostname), words(metadata.pid));
    if let Some(&number) = numbers.processes.get(&key) {
        return Some(number);
    }
    let number = u32::try_from(told.point_to_point.len()).ok()?;
    numbers.processes.insert(key, number);
    told.point_to_point.push(0);
    Some(number)
}

/// A collective without a time of what the device did.
struct Untimed;

/// The collective of a record. `None` if it lacks what says which one it is.
fn collective(
    header: Option<&RawValue>,
    collective: Option<&RawValue>,
    process: u32,
    numbers: &mut Numbers,
    told: &mut Told,
) -> Option<Result<Call, Untimed>> {
    let header = serde_json::from_str::<Header<'_>>(header?.get()).ok()?;
    let of = serde_json::from_str::<Collective<'_>>(collective?.get()).ok()?;
    let size = number(header.n_ranks).and_then(|size| u32::try_from(size).ok())?;
    let rank = number(header.rank).and_then(|rank| u32::try_from(rank).ok())?;
    let (id, name) = (text(header.id), text(of.coll));
    let number_of_it = number(of.coll_sn)?;
    if rank >= size || id.is_empty() || name.is_empty() {
        return None;
    }
    // A call returns when the collective is enqueued.
    let clock = words(of.coll_timing_source);
    let ns = micros_as_nanos(&words(of.coll_exec_time_us)).filter(|&ns| ns > 0);
    let (Some(ns), false) = (ns, clock == "collective_cpu") else { return Some(Err(Untimed)) };
    if !told.clocks.contains(&*clock) && told.clocks.len() < 8 {
        told.clocks.insert(cut(clock));
    }
    let communicator = Communicator { id, size };
    Some(Ok(Call {
        process,
        communicator: number_of(communicator, &mut numbers.communicators, &mut told.communicators)?,
        operation: number_of(name, &mut numbers.operations, &mut told.operations)?,
        rank,
        number: number_of_it,
        bytes: number(of.coll_msg_size_bytes),
        ns,
    }))
}

/// The number of a thing, which is a new one if it is.
fn number_of<T: Clone + Eq + std::hash::Hash>(
    of: T,
    numbers: &mut HashMap<T, u32>,
    all: &mut Vec<T>,
) -> Option<u32> {
    if let Some(&number) = numbers.get(&of) {
        return Some(number);
    }
    let number = u32::try_from(all.len()).ok()?;
    all.push(of.clone());
    numbers.insert(of, number);
    Some(number)
}

fn number(value: Option<&RawValue>) -> Option<u64> {
    words(value).parse().ok()
}

fn text(value: Option<&RawValue>) -> String {
    cut(words(value))
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

    const HEADER: &str = r#""header":{"id":"0x7f8c","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","dump_timestamp_us":1748030377748202,"hostname":"a","pid":7}"#;

    fn record(number: u64, us: &str) -> String {
        format!(
            r#"{{{HEADER},"coll_perf":{{"coll":"AllReduce","coll_sn":{number},"coll_msg_size_bytes":64,"coll_exec_time_us":{us},"coll_timing_source":"kernel_gpu"}}}}"#
        )
    }

    fn numbers(told: &Told) -> Vec<u64> {
        told.calls.iter().map(|call| call.number).collect()
    }

    #[test]
    fn records_may_be_a_line_each_or_many_lines_or_none() {
        let pretty = record(2, "11.25").replace(',', ",\n  ").replace('{', "{\n  ");
        let text = format!("{}\n{pretty}\r\n{}", record(1, "10"), record(3, "12"));
        let told = told(&text);
        assert_eq!(
            told.calls.iter().map(|call| call.ns).collect::<Vec<_>>(),
            [10_000, 11_250, 12_000]
        );
        assert_eq!((told.odd, told.untimed, told.version.as_deref()), (0, 0, Some("v4.0")));
        assert_eq!(told.communicators, [Communicator { id: "0x7f8c".to_owned(), size: 8 }]);
        assert_eq!(told.calls[0].bytes, Some(64));
    }

    #[test]
    fn what_is_broken_costs_no_other_record() {
        let whole = record(1, "10");
        for cut in 1..whole.len() {
            let text = format!("{}\n{}\n{}", record(0, "9"), &whole[..cut], record(2, "11"));
            let told = told(&text);
            assert_eq!((numbers(&told), told.odd), (vec![0, 2], 1), "{text}");
        }
        for odd in [
            whole.replace("\"rank\":2", "\"rank\":8"),
            whole.replace("\"rank\":2", "\"rank\":-1"),
            whole.replace("\"coll_sn\":1", "\"coll_sn\":[1]"),
            whole.replace("\"id\":\"0x7f8c\",", ""),
            whole.replace("\"header\"", "\"head\""),
            whole.replace(HEADER, "\"header\":[]"),
            "x".to_owned(),
        ] {
            let text = format!("{odd}\n{}", record(2, "11"));
            assert_eq!((numbers(&told(&text)), told(&text).odd), (vec![2], 1), "{text}");
        }
        // Neither a collective nor broken.
        let other = format!(r#"{{{HEADER},"proxy_trace":{{}}}}"#);
        assert_eq!(told(&other).odd, 0);
    }

    #[test]
    fn a_time_of_the_host_alone_is_none() {
        let of_call = record(1, "10").replace("kernel_gpu", "collective_cpu");
        for text in [of_call, record(1, "0"), record(1, "-3"), record(1, "null")] {
            let told = told(&text);
            assert_eq!((told.calls.len(), told.untimed, told.odd), (0, 1, 0), "{text}");
        }
    }

    #[test]
    fn a_header_may_stand_before_its_records() {
        let of = |rank: u32| {
            let header = HEADER.replace("\"rank\":2", &format!("\"rank\":{rank}"));
            format!(
                r#"{{{header},"dump_stats":{{"coll_records":1,"coll_dropped_since_last_dump":3}}}}"#
            )
        };
        let bare = r#"{"coll_perf":{"coll":"AllGather","coll_sn":5,"coll_exec_time_us":7}}"#;
        let text = format!("{bare}\n{}\n{bare}\n{}\n{bare}\n", of(0), of(1));
        let told = told(&text);
        assert_eq!(told.calls.iter().map(|call| call.rank).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((told.odd, told.dropped), (1, 6));
        assert_eq!(told.calls[0].bytes, None);
    }

    #[test]
    fn operations_between_two_ranks_are_counted_by_process() {
        let of = |pid: u32| {
            let header = HEADER.replace("\"pid\":7", &format!("\"pid\":{pid}"));
            format!(r#"{{{header},"p2p_perf":{{"p2p":"Send","p2p_exec_time_us":7}}}}"#)
        };
        let told = told(&[of(1), of(2), of(1)].join("\n"));
        assert_eq!((told.point_to_point, told.calls.len()), (vec![2, 1], 0));
    }
}
