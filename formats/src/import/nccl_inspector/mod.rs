//! What NCCL's Inspector writes, a plugin of NCCL's profiler: each collective of each communicator, with its number there and
//! how long it took on this rank. <https://github.com/NVIDIA/nccl/tree/master/plugins/profiler/inspector>
//!
//! ```text
//! {"header":{"id":"0x7f8c496ae9f661","rank":2,"n_ranks":8,"nnodes":1},
//!  "metadata":{"inspector_output_format_version":"v4.0","hostname":"node1","pid":1639453, …},
//!  "coll_perf":{"coll":"AllReduce","coll_sn":1407,"coll_msg_size_bytes":17179869184,"coll_exec_time_us":61974, …}}
//! ```
//!
//! Numbers count each operation of a communicator for itself, as NCCL's `seqNumber` does. A time is the longest of the
//! kernel's channels, from its begin to its end by the device's clock (`kernel_gpu`), in whole microseconds; or as a thread of
//! the host saw them (`kernel_cpu`). When a collective began isn't told. `records.rs` reads the records.

mod records;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope_profile::text::count;
use brickscope_profile::{Absent, Collective, CollectiveKind, OnRank, Profile, Rank, Ranks};

use self::records::{Call, Communicator, Told};
use super::ranks::settled;
use super::{At, Format, ImportError, lacks, left_out};

/// A text that only such files have.
pub(super) const KEY: &str = "\"inspector_output_format_version\"";

/// A rank of the job: a process, or one device of several that it has.
#[derive(Debug, Clone, Copy)]
struct Unit {
    process: u32,
    /// Its largest communicator, and its rank there.
    world: u32,
    in_world: u32,
    /// Whether the process has others.
    is_of_several: bool,
}

pub(super) fn read(text: &str, at: &At<'_>) -> Result<Profile, ImportError> {
    let told = records::told(text);
    if told.calls.is_empty() {
        return Err(at.whole(match (told.untimed, told.odd) {
            (0, 0) => "has no collective of NCCL's Inspector".to_owned(),
            (0, odd) => {
                let odd = count(odd, "broken record");
                format!("has no whole collective of NCCL's Inspector, and {odd}")
            }
            (n, _) => format!(
                "has {}, timed by the call of the host alone (collective_cpu), which returns when it is enqueued: an NCCL \
                 that times kernels is needed, 2.26 or newer",
                count(n, "collective")
            ),
        }));
    }
    let units = units(&told);
    let (numbers, world) = numbered(&told, &units);
    let (ranks, unknown) = ranks(&told, &units, &numbers, at);
    let (ranks, twice) = settled(ranks);
    let program = "NCCL's Inspector".to_owned();
    let clock = "of NCCL's profiler, durations alone";
    let mut profile = at.profile(Format::NcclInspector, Some(program), clock);
    lacks(
        &mut profile,
        &[
            "when collectives began: the file states how long each took, so no clock is needed, and there is no \
             timeline",
            "kernels, layers and passes: NCCL's profiler sees collectives alone",
        ],
    );
    if told.clocks.contains("") {
        lacks(&mut profile, &["which clock timed the collectives: this version doesn't state it"]);
    }
    for (why, n) in [
        ("records that break off, or lack what they need", told.odd),
        ("collectives timed by the call of the host alone, or not at all", told.untimed),
        (
            "collectives that NCCL's Inspector had no room for (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)",
            told.dropped,
        ),
        ("collectives beyond the most that are kept", told.beyond),
        (
            "collectives of a process with several devices, of which the file doesn't state which did it",
            unknown,
        ),
        ("collectives whose number one rank has twice", twice),
    ] {
        left_out(&mut profile, why, n);
    }
    if let Some(imported) = &mut profile.imported {
        if told.clocks.contains("kernel_cpu") {
            imported.doubts.push(
                "some collectives were timed by a thread of the host that watches the kernels (kernel_cpu): they are longer \
                 by its delays"
                    .to_owned(),
            );
        }
        let clocks: Vec<&str> =
            told.clocks.iter().map(|clock| &**clock).filter(|clock| !clock.is_empty()).collect();
        let size = world.map(|world| world.size);
        let n = ranks.ranks.len();
        for (name, value) in [
            ("rank", (n == 1).then(|| ranks.ranks[0].rank.to_string())),
            ("ranks", (n > 1).then(|| n.to_string())),
        ] {
            let value = value.map(|value| match size {
                Some(size) => format!("{value} of {size}"),
                None => value,
            });
            imported.conditions.extend(value.map(|value| (name.to_owned(), value)));
        }
        if !clocks.is_empty() {
            imported.conditions.push(("timed by".to_owned(), clocks.join(", ")));
        }
        imported.conditions.extend(told.version.map(|version| ("format".to_owned(), version)));
    }
    profile.ranks = Some(ranks);
    Ok(profile)
}

/// The ranks of the job that the file is of, in its order.
fn units(told: &Told) -> Vec<Unit> {
    let mut of_process: BTreeMap<u32, BTreeMap<u32, BTreeSet<u32>>> = BTreeMap::new();
    for call in &told.calls {
        let communicators = of_process.entry(call.process).or_default();
        communicators.entry(call.communicator).or_default().insert(call.rank);
    }
    let mut units = Vec::new();
    for (process, communicators) in of_process {
        let by_size = |communicator: &u32| {
            let of = told.communicators.get(*communicator as usize);
            (of.map(|of| of.size), Reverse(of.map(|of| &*of.id)))
        };
        let world = communicators.iter().max_by(|a, b| by_size(a.0).cmp(&by_size(b.0)));
        let Some((&world, ranks)) = world else { continue };
        let is_of_several = ranks.len() > 1;
        let unit = |&in_world: &u32| Unit { process, world, in_world, is_of_several };
        units.extend(ranks.iter().map(unit));
    }
    units
}

/// The numbers of the ranks: those in the communicator that all are in, which is given too; else in their order.
fn numbered<'t>(told: &'t Told, units: &[Unit]) -> (Vec<u32>, Option<&'t Communicator>) {
    let worlds: BTreeSet<u32> = units.iter().map(|unit| unit.world).collect();
    let numbers: BTreeSet<u32> = units.iter().map(|unit| unit.in_world).collect();
    let world = worlds.first().filter(|_| worlds.len() == 1 && numbers.len() == units.len());
    match world.and_then(|world| told.communicators.get(*world as usize)) {
        Some(world) => (units.iter().map(|unit| unit.in_world).collect(), Some(world)),
        None => ((0..).take(units.len()).collect(), None),
    }
}

/// What the profile says of ranks and their collectives, each on one rank; and how many are of no rank that is known.
fn ranks(told: &Told, units: &[Unit], numbers: &[u32], at: &At<'_>) -> (Ranks, u64) {
    let mut ranks = Ranks::default();
    // A process with one device, and one with several by the rank of each in the communicator of all.
    let mut places: HashMap<(u32, Option<(u32, u32)>), usize> = HashMap::new();
    for (unit, number) in units.iter().zip(numbers) {
        let which = unit.is_of_several.then_some((unit.world, unit.in_world));
        places.insert((unit.process, which), ranks.ranks.len());
        let sum = told.point_to_point.get(unit.process as usize).copied();
        ranks.ranks.push(Rank {
            rank: *number,
            file: at.path.display().to_string(),
            shift_absent: Some(Absent {
                reason: "its file doesn't state when collectives began".to_owned(),
            }),
            // Of a process with several devices it isn't known whose they are.
            point_to_point: sum.filter(|_| !unit.is_of_several).unwrap_or(0),
            ..Rank::default()
        });
    }
    // A process with one device is in each communicator once.
    let mut seen: HashMap<(u32, u32), BTreeSet<u32>> = HashMap::new();
    for call in &told.calls {
        seen.entry((call.process, call.communicator)).or_default().insert(call.rank);
    }
    let mut of_kind: HashMap<(u32, u32, Option<u64>), u32> = HashMap::new();
    let mut unknown = 0;
    for call in &told.calls {
        let is_once = seen.get(&(call.process, call.communicator)).is_some_and(|of| of.len() == 1);
        let alone = places.get(&(call.process, None)).filter(|_| is_once);
        let place = alone
            .or_else(|| places.get(&(call.process, Some((call.communicator, call.rank)))))
            .and_then(|place| ranks.ranks.get_mut(*place));
        let (Some(rank), Some(kind)) = (place, kind_of(told, call)) else {
            unknown += 1;
            continue;
        };
        rank.collectives += 1;
        let key = (call.communicator, call.operation, kind.bytes);
        let kind = *of_kind.entry(key).or_insert_with(|| {
            ranks.kinds.push(kind);
            ranks.kinds.len() as u32 - 1
        });
        ranks.collectives.push(Collective {
            kind,
            number: Some(call.number),
            on: vec![OnRank { rank: rank.rank, start_ns: None, duration_ns: call.ns }],
            ..Collective::default()
        });
    }
    (ranks, unknown)
}

fn kind_of(told: &Told, call: &Call) -> Option<CollectiveKind> {
    let communicator = told.communicators.get(call.communicator as usize)?;
    let operation = told.operations.get(call.operation as usize)?;
    let size = u64::from(communicator.size);
    // Of these NCCL counts what a rank puts in, or what it gets.
    let (name, bytes) = match &**operation {
        "AllReduce" => ("all_reduce", call.bytes),
        "AllGather" => ("all_gather", call.bytes),
        "ReduceScatter" => ("reduce_scatter", call.bytes.and_then(|bytes| bytes.checked_mul(size))),
        "Broadcast" => ("broadcast", call.bytes),
        "Reduce" => ("reduce", call.bytes),
        "AlltoAll" => ("all_to_all", None),
        "Gather" => ("gather", None),
        "Scatter" => ("scatter", None),
        other => (other, None),
    };
    Some(CollectiveKind {
        name: name.to_owned(),
        group: communicator.id.clone(),
        members: String::new(),
        group_size: Some(communicator.size),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A record: process, communicator with its size, rank in it, operation, number, microseconds.
    type Of<'a> = (u32, (&'a str, u32), u32, &'a str, u64, u64);

    fn record(&(pid, (id, size), rank, operation, number, us): &Of<'_>) -> String {
        format!(
            r#"{{"header":{{"id":"{id}","rank":{rank},"n_ranks":{size},"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0","hostname":"a","pid":{pid}}},"coll_perf":{{"coll":"{operation}","coll_sn":{number},"coll_msg_size_bytes":100,"coll_exec_time_us":{us},"coll_timing_source":"kernel_gpu"}}}}"#
        )
    }

    fn profile(of: &[Of<'_>]) -> Profile {
        let text: Vec<String> = of.iter().map(record).collect();
        let at = At { path: Path::new("a.log") };
        read(&text.join("\n"), &at).expect("it has collectives")
    }

    fn on(profile: &Profile) -> Vec<(&str, Vec<(u32, u64)>)> {
        let ranks = profile.ranks.as_ref().expect("there are");
        let of = |of: &Collective| of.on.iter().map(|on| (on.rank, on.duration_ns)).collect();
        let kind = |of: &Collective| &*ranks.kinds[of.kind as usize].name;
        ranks.collectives.iter().map(|one| (kind(one), of(one))).collect()
    }

    fn condition<'p>(profile: &'p Profile, name: &str) -> Option<&'p str> {
        let imported = profile.imported.as_ref().expect("it is");
        let mut of = imported.conditions.iter().filter(|(of, _)| of == name);
        of.next().map(|(_, value)| &**value)
    }

    #[test]
    fn numbers_are_of_an_operation_of_a_communicator() {
        let (all, pair) = (("0xa", 4), ("0xb", 2));
        let profile = profile(&[
            (7, all, 2, "AllReduce", 1, 10),
            (7, pair, 0, "AllReduce", 1, 20),
            (7, all, 2, "ReduceScatter", 1, 30),
            (9, all, 3, "AllReduce", 1, 11),
            (9, all, 3, "ReduceScatter", 1, 31),
        ]);
        assert_eq!(
            on(&profile),
            [
                ("all_reduce", vec![(2, 10_000), (3, 11_000)]),
                ("all_reduce", vec![(2, 20_000)]),
                ("reduce_scatter", vec![(2, 30_000), (3, 31_000)]),
            ]
        );
        let ranks = profile.ranks.as_ref().expect("there are");
        let bytes: Vec<_> = ranks.kinds.iter().map(|kind| (kind.bytes, kind.group_size)).collect();
        assert_eq!(bytes, [(Some(100), Some(4)), (Some(100), Some(2)), (Some(400), Some(4))]);
        let counts: Vec<_> =
            ranks.ranks.iter().map(|of| (of.rank, of.collectives, of.unmatched)).collect();
        assert_eq!(counts, [(2, 3, 1), (3, 2, 0)]);
        assert_eq!(condition(&profile, "ranks"), Some("2 of 4"));
        assert_eq!(condition(&profile, "timed by"), Some("kernel_gpu"));
    }

    #[test]
    fn a_process_with_several_devices_is_as_many_ranks() {
        let (all, half) = (("0xa", 4), ("0xb", 2));
        let profile = profile(&[
            (7, all, 0, "AllReduce", 1, 10),
            (7, all, 1, "AllReduce", 1, 12),
            (7, half, 0, "AllReduce", 1, 20),
        ]);
        assert_eq!(on(&profile), [("all_reduce", vec![(0, 10_000), (1, 12_000)])]);
        let left_out = &profile.imported.as_ref().expect("it is").left_out;
        assert!(left_out.iter().any(|(why, n)| why.contains("several devices") && *n == 1));
    }

    #[test]
    fn without_a_communicator_of_all_ranks_are_counted() {
        let profile = profile(&[
            (7, ("0xa", 2), 0, "AllReduce", 1, 10),
            (9, ("0xb", 2), 0, "AllReduce", 1, 20),
        ]);
        assert_eq!(
            on(&profile),
            [("all_reduce", vec![(0, 10_000)]), ("all_reduce", vec![(1, 20_000)])]
        );
        assert_eq!(condition(&profile, "ranks"), Some("2"));
    }

    #[test]
    fn a_number_that_a_rank_has_twice_is_left_out() {
        let all = ("0xa", 2);
        let profile = profile(&[
            (7, all, 0, "AllReduce", 1, 10),
            (7, all, 0, "AllReduce", 1, 11),
            (9, all, 1, "AllReduce", 1, 12),
            (9, all, 1, "AllReduce", 2, 13),
        ]);
        assert_eq!(on(&profile), [("all_reduce", vec![(1, 13_000)])]);
        let left_out = &profile.imported.as_ref().expect("it is").left_out;
        assert!(left_out.iter().any(|(why, n)| why.contains("twice") && *n == 3), "{left_out:?}");
    }

    #[test]
    fn nothing_to_import_is_said() {
        let at = At { path: Path::new("a.log") };
        let said = |text: &str| read(text, &at).expect_err("it has none").to_string();
        assert_eq!(said(""), "a.log: has no collective of NCCL's Inspector");
        assert!(said("{]").contains("and 1 broken record"));
        let of_call =
            record(&(7, ("0xa", 2), 0, "AllReduce", 1, 10)).replace("kernel_gpu", "collective_cpu");
        assert!(said(&of_call).contains("collective_cpu"));
    }
}
