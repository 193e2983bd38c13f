//! The JSON that Kineto writes, one event a line, and the SQL of a table that Nsight exports.

use std::fmt::Write as _;

use super::Truth;

/// The moment that times count from, of the calendar.
const BASE_NS: u64 = 1_790_857_026_000_000_000;

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Microseconds with three digits.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

/// What an event is, and who did it.
#[derive(Clone, Copy)]
pub(super) struct What<'e> {
    pub(super) cat: &'e str,
    pub(super) name: &'e str,
    pub(super) pid: u64,
    pub(super) tid: u64,
}

/// An event from `start` on, with the fields of its arguments.
pub(super) fn event(what: What<'_>, start: u64, ns: u64, args: &str) -> String {
    let What { cat, name, pid, tid } = what;
    let (name, start, ns) = (quoted(name), micros(start), micros(ns));
    format!(
        r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{pid},"tid":{tid},"ts":{start},"dur":{ns},"args":{{{args}}}}}"#
    )
}

/// The name of a process or a thread.
pub(super) fn named(kind: &str, pid: u64, tid: u64, name: &str) -> String {
    let name = quoted(name);
    format!(r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#)
}

/// Numbers as a JSON array.
pub(super) fn array(numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(", "))
}

/// A file with these events, of a rank among so many, and the ranks of its group; or of all their devices, of which it tells no
/// rank.
pub(super) fn file(rank: Option<u32>, ranks: u32, group: &[u32], events: &[String]) -> String {
    let mut text = String::from("{\"schemaVersion\": 1, \"deviceProperties\": [");
    for device in 0..ranks.clamp(1, 8) {
        let comma = if device > 0 { ", " } else { "" };
        let _ = write!(
            text,
            r#"{comma}{{"id": {device}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028765696, "computeMajor": 9, "computeMinor": 0, "numSms": 132}}"#
        );
    }
    text.push_str(
        r#"], "cupti_version": 26, "cuda_runtime_version": 12080, "cuda_driver_version": 12080, "#,
    );
    if let Some(rank) = rank {
        let (world, tp) = (array(0..ranks), array(group.iter().copied()));
        let _ = write!(
            text,
            concat!(
                r#""distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": {}, "pg_count": 2, "pg_config": ["#,
                r#"{{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": {}, "ranks": {}}}, "#,
                r#"{{"pg_name": "1", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": {}, "ranks": {}}}], "#,
                r#""nccl_version": "2.27.3"}}, "#,
            ),
            rank,
            ranks,
            ranks,
            world,
            group.len(),
            tp
        );
    }
    let name = rank.map_or("devices".to_owned(), |rank| format!("rank{rank}"));
    let _ = write!(
        text,
        concat!(
            r#""displayTimeUnit": "ms", "baseTimeNanoseconds": {}, "#,
            r#""traceName": "{}.pt.trace.json", "traceEvents": ["#,
            "\n{}\n]}}\n"
        ),
        BASE_NS,
        name,
        events.join(",\n")
    );
    text
}

/// The SQL of a database as Nsight exports it, with the kernels of devices.
pub(super) fn nsight(devices: &[Truth]) -> String {
    let mut text = String::from(
        "BEGIN;\nCREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, \
         globalPid INTEGER, name TEXT);\n",
    );
    for truth in devices {
        for kernel in &truth.kernels {
            let (start, end) = (kernel.start_ns, kernel.end_ns());
            // Of a second context, streams are counted on.
            let (device, stream) = (truth.rank, kernel.stream + 8 * truth.rank);
            let name = kernel.name.replace('\'', "''");
            let _ = writeln!(
                text,
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {end}, {device}, {stream}, 4100 << 24, '{name}');"
            );
        }
    }
    text.push_str("COMMIT;\n");
    text
}
