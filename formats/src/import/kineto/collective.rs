//! The collectives of a trace: kernels in which devices exchange data with each other, and what the file states of them.
//!
//! Newer files state operation, group and size at the kernel, with the keys of `record_param_comms`, which is an operation of
//! the host around the launch; older ones have no more than its name, or that of a range `nccl:all_reduce`.
//! <https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp>

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::{Collective, CollectiveKind, OnRank, Profile, Rank, Ranks};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{EventKind, Link};
use crate::import::ranks::{MOST_COLLECTIVES, STREAM};
use crate::import::trace::{Timed, Trace};
use crate::import::values::words;

/// The operation of the host that notes what is launched inside of it.
const RECORD: &str = "record_param_comms";

/// What the range of an operation begins with.
const RANGE: &str = "nccl:";

/// What a kernel between two ranks is called.
const POINT_TO_POINT: &str = "send_recv";

/// The most characters of a text of the file that are kept.
const MOST_TEXT: usize = 200;

/// What a file states of a collective.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Stated {
    name: String,
    group: String,
    members: String,
    group_size: Option<u32>,
    bytes: Option<u64>,
}

/// What a file states of collectives, by the links of its events.
#[derive(Default)]
pub(in crate::import) struct Collectives {
    stated: Vec<Stated>,
    of_stated: HashMap<Stated, u32>,
    /// An index into `stated`, and the number in the group.
    of_link: HashMap<u32, (u32, Option<u64>)>,
}

impl Collectives {
    /// Notes what the arguments of an event with this link state, if it is of a collective.
    pub(in crate::import) fn note(&mut self, link: u32, args: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Args<'a> {
            #[serde(borrow, default, rename = "Collective name")]
            name: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "In msg nelems")]
            elements: Option<&'a RawValue>,
            #[serde(borrow, default)]
            dtype: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "Group size")]
            group_size: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "Process Group Name")]
            group: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "Process Group Ranks")]
            members: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "Seq")]
            number: Option<&'a RawValue>,
        }
        let Some(args) =
            args.map(RawValue::get).filter(|args| args.contains("\"Collective name\""))
        else {
            return;
        };
        let Ok(args) = serde_json::from_str::<Args<'_>>(args) else { return };
        let text = |value: Option<&RawValue>| cut(words(value).trim()).to_owned();
        let number = |value: Option<&RawValue>| words(value).parse::<u64>().ok();
        let size = size_of(&words(args.dtype));
        let stated = Stated {
            name: text(args.name),
            group: text(args.group),
            members: text(args.members),
            group_size: number(args.group_size).and_then(|size| u32::try_from(size).ok()),
            // Only where the file states both.
            bytes: number(args.elements).zip(size).and_then(|(n, size)| n.checked_mul(size)),
        };
        let at = match self.of_stated.get(&stated) {
            Some(&at) => at,
            None => {
                let at = self.stated.len() as u32;
                self.of_stated.insert(stated.clone(), at);
                self.stated.push(stated);
                at
            }
        };
        self.of_link.insert(link, (at, number(args.number)));
    }

    fn of(&self, link: Option<u32>) -> Option<(&Stated, Option<u64>)> {
        let (at, number) = self.of_link.get(&link?)?;
        Some((self.stated.get(*at as usize)?, *number))
    }
}

/// The bytes of an element of PyTorch's type.
fn size_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "Byte" | "Char" | "Bool" => 1,
        "Short" | "Half" | "BFloat16" | "UInt16" => 2,
        "Int" | "Float" | "UInt32" => 4,
        "Long" | "Double" | "UInt64" | "ComplexFloat" => 8,
        "ComplexDouble" => 16,
        dtype if dtype.starts_with("Float8_") => 1,
        _ => return None,
    })
}

/// The operation that a name tells, however a program writes it: `allreduce`, `nccl:all_reduce` and
/// `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(…)` are one.
fn operation(name: &str) -> Option<&'static str> {
    let name = before_arguments(name);
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    const ANYWHERE: [(&str, &str); 9] = [
        ("sendrecv", POINT_TO_POINT),
        ("allreduce", "all_reduce"),
        ("crossdevicereduce", "all_reduce"),
        ("quickreduce", "all_reduce"),
        ("reducescatter", "reduce_scatter"),
        ("allgather", "all_gather"),
        ("alltoall", "all_to_all"),
        ("broadcast", "broadcast"),
        ("barrier", "barrier"),
    ];
    let found = ANYWHERE.into_iter().find(|(part, _)| plain.contains(part));
    if let Some((_, operation)) = found {
        return Some(operation);
    }
    let mut rest = &*plain;
    for begin in ["nccl", "dev", "kernel"] {
        rest = rest.strip_prefix(begin).unwrap_or(rest);
    }
    const AT_THE_BEGIN: [(&str, &str); 5] = [
        ("send", POINT_TO_POINT),
        ("recv", POINT_TO_POINT),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
    ];
    AT_THE_BEGIN.into_iter().find_map(|(begin, is)| rest.starts_with(begin).then_some(is))
}

/// A kernel's name without its type, templates and arguments.
fn before_arguments(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    name.split(['<', '(']).next().unwrap_or(name).trim()
}

/// No more of a text than is kept.
fn cut(text: &str) -> &str {
    text.char_indices().nth(MOST_TEXT).map_or(text, |(end, _)| &text[..end])
}

/// What is around the launch of a kernel: the link of a record, and the name of a range.
#[derive(Clone, Copy, Default)]
struct Around {
    record: Option<u32>,
    range: Option<u32>,
}

/// A kernel in which devices exchange data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    /// The index of its event.
    pub(super) event: usize,
    /// The number of its device in the file.
    pub(super) device: u64,
    pub(super) pass: Option<u32>,
    pub(super) layer: Option<u16>,
}

/// Whether a kernel is one in which devices exchange data: its brick by the table is, or the file states what it exchanges.
pub(super) fn is_one(trace: &Trace, event: &Timed, brick: Option<&str>) -> bool {
    brick.is_some_and(|brick| ["AllReduce", "Communication"].contains(&brick))
        || trace.collectives.of(event.link).is_some()
        || trace.names[event.name as usize].starts_with("nccl")
}

/// What a profile says of the rank of its file, and of its collectives, each on one device; of each device where several have
/// some. `devices` are the numbers that the profile's devices have in the file. `None` without devices.
pub(super) fn ranks(
    trace: &Trace,
    timed: &[Timed],
    placed: &[Placed],
    devices: &[u64],
    profile: &Profile,
) -> Option<Ranks> {
    if profile.devices.is_empty() {
        return None;
    }
    let origin = trace.first_ns.unwrap_or_default();
    let launched = launched(trace, timed);
    // Where the file doesn't tell it, its name or its place among others may.
    let own = super::rank_of(trace).and_then(|(rank, _)| u32::try_from(rank).ok()).unwrap_or(0);
    let index_of: HashMap<u64, u32> = devices.iter().copied().zip(0..).collect();
    let mut ranks = Ranks::default();
    let blank = Rank {
        file: profile.imported.as_ref().map_or("", |imported| &imported.file).to_owned(),
        rank: own,
        origin_ns: super::base_ns(trace).unwrap_or(0).saturating_add(origin),
        ..Rank::default()
    };
    let mut rows: BTreeMap<u32, Rank> = BTreeMap::new();
    let mut of_kind: HashMap<CollectiveKind, u32> = HashMap::new();
    for placed in placed {
        let Some(event) = timed.get(placed.event) else { continue };
        let Some(&device) = index_of.get(&placed.device) else { continue };
        let row = rows.entry(device).or_insert_with(|| Rank { rank: device, ..blank.clone() });
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let around = link.and_then(|link| launched.get(&link.correlation?)).copied();
        let Some((kind, number)) = kind_of(trace, event, link, around.unwrap_or_default()) else {
            row.point_to_point += 1;
            continue;
        };
        row.collectives += 1;
        if ranks.collectives.len() == MOST_COLLECTIVES {
            ranks.left_out += 1;
            continue;
        }
        let kind = match of_kind.get(&kind) {
            Some(&at) => at,
            None => {
                let at = ranks.kinds.len() as u32;
                of_kind.insert(kind.clone(), at);
                ranks.kinds.push(kind);
                at
            }
        };
        let start_ns = event.start.abs_diff(origin);
        let duration_ns = event.end.abs_diff(event.start);
        ranks.collectives.push(Collective {
            kind,
            number,
            pass: placed.pass,
            layer: placed.layer,
            on: vec![OnRank { rank: device, start_ns: Some(start_ns), duration_ns }],
        });
    }
    ranks.collectives.sort_by_key(|of| of.on.first().map(|on| on.start_ns));
    if rows.values().filter(|row| row.collectives > 0).count() < 2 {
        let sum = rows.into_values().fold(blank, |sum, row| Rank {
            collectives: sum.collectives + row.collectives,
            point_to_point: sum.point_to_point + row.point_to_point,
            ..sum
        });
        for on in ranks.collectives.iter_mut().flat_map(|of| &mut of.on) {
            on.rank = own;
        }
        rows = BTreeMap::from([(own, sum)]);
    }
    ranks.ranks =
        rows.into_values().map(|row| Rank { unmatched: row.collectives, ..row }).collect();
    Some(ranks)
}

/// The kind of a collective, and its number in its group if the file states that. `None` for what only two ranks exchange.
fn kind_of(
    trace: &Trace,
    event: &Timed,
    link: Option<&Link>,
    around: Around,
) -> Option<(CollectiveKind, Option<u64>)> {
    let name = &trace.names[event.name as usize];
    let stated = trace.collectives.of(event.link).or_else(|| trace.collectives.of(around.record));
    // A kernel's name is the least certain: NCCL runs other operations in one that is called SendRecv.
    let range = around.range.and_then(|range| trace.names.get(range as usize));
    let by = [stated.map(|(stated, _)| &stated.name), range, Some(name)];
    let operation = by.into_iter().flatten().find_map(|name| operation(name));
    if operation == Some(POINT_TO_POINT) {
        return None;
    }
    let mut kind = CollectiveKind {
        name: operation.unwrap_or_else(|| cut(before_arguments(name))).to_owned(),
        ..CollectiveKind::default()
    };
    if let Some((stated, _)) = stated {
        kind.group.clone_from(&stated.group);
        kind.members.clone_from(&stated.members);
        (kind.group_size, kind.bytes) = (stated.group_size, stated.bytes);
    }
    if kind.group.is_empty() {
        kind.group = format!("{STREAM}{}", link.map_or(0, |link| link.stream));
    }
    Some((kind, stated.and_then(|(_, number)| number)))
}

/// What is around the calls of the host that launch something, where that tells of a collective.
fn launched(trace: &Trace, timed: &[Timed]) -> HashMap<u64, Around> {
    let mut launched = HashMap::new();
    let tells: Vec<bool> =
        trace.names.iter().map(|name| name == RECORD || name.starts_with(RANGE)).collect();
    if !tells.contains(&true) {
        return launched;
    }
    let mut stack: Vec<(i64, Around)> = Vec::new();
    let mut lane = u32::MAX;
    for event in timed.iter().filter(|event| !event.kind.is_of_device()) {
        if event.lane != lane {
            stack.clear();
            lane = event.lane;
        }
        while stack.pop_if(|(end, _)| *end <= event.start).is_some() {}
        let around = stack.last().map(|(_, around)| *around);
        if tells[event.name as usize] {
            let mut inner = around.unwrap_or_default();
            match trace.names[event.name as usize] == RECORD {
                true => inner.record = event.link.or(inner.record),
                false => inner.range = Some(event.name),
            }
            stack.push((event.end, inner));
            continue;
        }
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        if let (EventKind::Call, Some(around), Some(link)) = (event.kind, around, link)
            && let Some(correlation) = link.correlation
        {
            launched.entry(correlation).or_insert(around);
        }
    }
    launched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_has_many_names() {
        for (names, is) in [
            (
                &[
                    "allreduce",
                    "nccl:all_reduce",
                    "allreduce_coalesced",
                    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>",
                ][..],
                "all_reduce",
            ),
            (&["_allgather_base", "nccl:_all_gather_base"][..], "all_gather"),
            (&["_reduce_scatter_base", "ncclKernel_ReduceScatter_RING_LL"][..], "reduce_scatter"),
            (&["nccl:all_to_all", "all_to_allv"][..], "all_to_all"),
            (&["reduce", "ncclDevKernel_Reduce_RING_LL_Sum_float", "nccl:reduce"][..], "reduce"),
            (&["gather", "nccl:gather"][..], "gather"),
            (&["nccl:send 0->1", "recv", "ncclDevKernel_SendRecv(x)"][..], POINT_TO_POINT),
        ] {
            for name in names {
                assert_eq!(operation(name), Some(is), "{name}");
            }
        }
        assert_eq!(operation("void deep_ep::intranode::dispatch<8>(int)"), None);
        assert_eq!(before_arguments("void deep_ep::dispatch<8>(int)"), "deep_ep::dispatch");
    }

    #[test]
    fn bytes_need_a_number_and_a_type() {
        let bytes = |args: &str| {
            let mut collectives = Collectives::default();
            let args: Box<RawValue> = serde_json::from_str(args).expect("it is JSON");
            collectives.note(7, Some(&args));
            collectives.of(Some(7)).map(|(stated, number)| (stated.bytes, number))
        };
        let of = |dtype: &str, n: &str| {
            format!(
                r#"{{"Collective name":"allreduce","In msg nelems":{n},"dtype":"{dtype}","Seq":4}}"#
            )
        };
        assert_eq!(bytes(&of("BFloat16", "3")), Some((Some(6), Some(4))));
        assert_eq!(bytes(&of("Other", "3")), Some((None, Some(4))));
        assert_eq!(bytes(&of("Double", "18446744073709551615")), Some((None, Some(4))));
        assert_eq!(bytes(r#"{"Collective name":"allreduce"}"#), Some((None, None)));
        assert_eq!(bytes(r#"{"External id":4}"#), None);
    }
}
