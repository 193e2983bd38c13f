//! What a node computes, reads and writes, by its shape; and what of that depends on the tokens that it looks at and on the
//! experts that it uses.

use brickscope::{Data, Work};

use crate::looks::Sums;
use crate::{LooksAt, Node, Tensor};

/// What each token that attention looks at adds to its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attends {
    /// The tokens of a sequence that its shape has room for.
    pub room: u64,
    /// How many sequences have a cache of their own in it.
    pub streams: u64,
    /// FLOPs of all queries and heads for one token that they look at.
    pub flops: u64,
    /// Bytes of the cache: its keys, its values, or both.
    pub bytes: u64,
    /// Bytes of scores.
    pub scores: u64,
    /// Scores that are its result.
    pub elements: u64,
}

/// What a product with experts' matrices reads: those that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub all: u64,
    /// How many ran; `None` if the shape doesn't tell: several tokens choose each for itself.
    pub ran: Option<u64>,
    /// Bytes of the matrix of one.
    pub bytes: u64,
}

/// Work, and what of it a pass decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// That of all tokens that the shape has room for. Of experts, without their matrices.
    pub(crate) full: Work,
    pub(crate) attends: Option<Attends>,
    pub(crate) experts: Option<Experts>,
}

impl Counted {
    /// Its work in a graph that looks at so much, and in which so many experts ran, if that was counted. What isn't known is
    /// not stated.
    pub(crate) fn work(
        &self,
        looks_at: Option<&LooksAt>,
        is_window: Option<bool>,
        ran: Option<u64>,
    ) -> Work {
        let full = self.full;
        if let Some(experts) = self.experts {
            let Some(ran) = experts.ran.or(ran).filter(|&ran| ran <= experts.all) else {
                return Work { bytes: 0, data: Data::Unstated, ..full };
            };
            let read = experts.bytes.saturating_mul(ran);
            let bytes = full.bytes.saturating_add(read);
            return Work { bytes, data: Data::Weights(read), ..full };
        }
        let (Some(attends), Some(looks_at)) = (self.attends, looks_at) else { return full };
        match looks_at.sums(attends.room, is_window) {
            Some(sums) => attends.part_of(full, sums),
            None => Work { flops: 0, bytes: 0, data: Data::Unstated, ..full },
        }
    }
}

impl Attends {
    fn part_of(&self, full: Work, sums: Sums) -> Work {
        let Self { room, streams, flops, bytes, scores, elements } = *self;
        let all = room.saturating_mul(streams);
        let rows = sums.rows.min(all);
        let spared = all - rows;
        let looked = u128::from(flops).saturating_mul(u128::from(sums.looked))
            / u128::from(sums.tokens.max(1));
        let looked = u64::try_from(looked).unwrap_or(u64::MAX);
        let most = flops.saturating_mul(room);
        let unread = spared.saturating_mul(bytes.saturating_add(scores));
        Work {
            elements: full.elements.saturating_sub(spared.saturating_mul(elements)),
            flops: full.flops.saturating_sub(most).saturating_add(looked.min(most)),
            bytes: full.bytes.saturating_sub(unread),
            data: match full.data {
                Data::Kv(of) => Data::Kv(of.saturating_sub(spared.saturating_mul(bytes))),
                other => other,
            },
        }
    }
}

/// How the names of caches begin: of keys, of values, and of states.
pub(crate) const CACHE: &str = "cache_";

/// `k` of `cache_k_l3 (view)`, and its layer.
pub(crate) fn cache(name: &str) -> Option<(&str, u16)> {
    let rest = name.strip_prefix(CACHE)?.split(' ').next()?;
    let (what, layer) = rest.rsplit_once("_l")?;
    Some((what, layer.parse().ok()?))
}

/// Whether it is part of the cache of keys, or of that of values.
fn is_cache(tensor: &Tensor) -> bool {
    cache(&tensor.name).is_some_and(|(what, _)| what.ends_with(['k', 'v']))
}

/// FLOPs by the operation's definition, and the bytes of the numbers that it reads and writes.
pub(crate) fn count(node: &Node, sources: &[&Tensor], is_weight: bool) -> Counted {
    let out = node.then.as_ref().map_or(&node.out, |then| &then.out);
    let elements = out.elements();
    let written = out.used_bytes();
    let data = Data::Activations;
    let mut full = Work { elements, flops: 0, bytes: written, data };
    let mut reads = |bytes: u64| full.bytes = full.bytes.saturating_add(bytes);
    let used: Vec<u64> = sources.iter().map(|src| src.used_bytes()).collect();
    let (mut attends, mut experts) = (None, None);
    let (mut flops, mut elements, mut data) = (0, elements, data);
    match (node.op.as_str(), sources) {
        // Each element of the product takes a multiplication and an addition for each column.
        ("MUL_MAT", [a, _, ..]) => {
            flops = elements.saturating_mul(2).saturating_mul(a.ne[0]);
            // Heads that share keys and values read them from a cache.
            reads(used[0].saturating_add(used[1]));
            if is_weight {
                data = Data::Weights(used[0]);
            } else if is_cache(a) {
                data = Data::Kv(used[0]);
            }
            attends = product_of_attention(node, sources, flops);
        }
        ("MUL_MAT_ID", [a, b, ids, ..]) => {
            flops = elements.saturating_mul(2).saturating_mul(a.ne[0]);
            reads(used[1].saturating_add(used[2]));
            experts = Some(Experts {
                all: a.ne[2],
                ran: (ids.elements() == ids.ne[0] || a.ne[2] == 1)
                    .then_some(ids.ne[0].min(a.ne[2]))
                    .filter(|_| b.elements() > 0),
                bytes: used[0] / a.ne[2].max(1),
            });
            data = Data::Unstated;
        }
        // It reads as many rows as it writes.
        ("GET_ROWS", [a, ..]) => {
            let row = used[0] / a.elements().checked_div(a.ne[0]).unwrap_or(1).max(1);
            let read = row.saturating_mul(elements.checked_div(out.ne[0]).unwrap_or(0));
            reads(read);
            if is_weight {
                data = Data::Weights(read);
            }
        }
        // It writes as many rows as it is given, whatever its result has room for.
        ("SET_ROWS", [rows, ..]) => {
            elements = rows.elements();
            let of_all = || out.bytes.checked_div(out.elements()).unwrap_or(0);
            let written =
                out.bytes_of(elements).unwrap_or_else(|| elements.saturating_mul(of_all()));
            // Beside the rows, it reads where they go to; a third source is all of where that is.
            let read = used.iter().take(2).fold(0, |sum: u64, of| sum.saturating_add(*of));
            let bytes = read.saturating_add(written);
            let data = if out.name.starts_with(CACHE) { Data::Kv(written) } else { data };
            let full = Work { elements, flops: 0, bytes, data };
            return Counted { full, attends, experts };
        }
        // The second source is where it writes to.
        ("CPY", [_, _, ..]) => {
            reads(used[0]);
            if out.name.starts_with(CACHE) {
                data = Data::Kv(written);
            }
        }
        ("FLASH_ATTN_EXT", [q, k, v, ..]) => {
            // Keys that have the values in them are read once.
            let is_part = is_cache(k) && cache(&k.name) == cache(&v.name);
            let cached = if is_part { used[1] } else { used[1].saturating_add(used[2]) };
            // A score and its part of the result: 2 · width each, for each query and head.
            let pairs = q.ne[1].saturating_mul(q.ne[2]).saturating_mul(q.ne[3]);
            let each = pairs.saturating_mul(2).saturating_mul(k.ne[0].saturating_add(v.ne[0]));
            let (room, streams) = (k.ne[1], k.ne[3]);
            flops = each.saturating_mul(room);
            reads(used[0].saturating_add(cached));
            data = Data::Kv(cached);
            let bytes = part(cached, room, streams);
            let scores = Attends { room, streams, flops: each, bytes, scores: 0, elements: 0 };
            attends = Some(scores).filter(|_| room > 0 && streams > 0);
        }
        // One row of a bias for each choice.
        ("ADD_ID", [_, bias, ids, ..]) => {
            let row = used[1] / bias.ne[1].max(1);
            reads(used[0].saturating_add(used[2]));
            reads(row.saturating_mul(ids.elements().min(bias.ne[1])));
        }
        _ => {
            // Without FLOPs: how many a function such as an exponential takes isn't stated anywhere.
            used.iter().for_each(|of| reads(*of));
            let cached = sources.iter().zip(&used).filter(|(src, _)| is_cache(src));
            let cached = cached.fold(0_u64, |sum, (_, of)| sum.saturating_add(*of));
            if cached > 0 {
                data = Data::Kv(cached);
            }
            attends = scores_of_attention(node, sources, &used);
        }
    }
    Counted { full: Work { elements, flops, data, ..full }, attends, experts }
}

/// The part of one token.
fn part(bytes: u64, room: u64, streams: u64) -> u64 {
    bytes.checked_div(room.saturating_mul(streams)).unwrap_or(0)
}

/// Scores are a product with keys, and results one with values, whose columns are tokens: those are stored so.
fn product_of_attention(node: &Node, sources: &[&Tensor], flops: u64) -> Option<Attends> {
    let [a, b, ..] = sources else { return None };
    let of = cache(&a.name).map(|(what, _)| what);
    let stem = stem(&node.out.name);
    // Where keys have the values in them, those are taken out first.
    let is_values = stem == "kqv" && of.is_none_or(|what| what.ends_with(['k', 'v']));
    let is_values = is_values || of.is_some_and(|what| what.ends_with('v'));
    let is_keys = !is_values && of.is_some_and(|what| what.ends_with('k'));
    let room = if is_values { a.ne[0] } else { a.ne[1] };
    let streams = a.ne[3];
    if !is_values && !is_keys || room == 0 || streams == 0 {
        return None;
    }
    let scores = if is_values { b } else { &&node.out };
    Some(Attends {
        room,
        streams,
        flops: flops / room,
        bytes: if is_cache(a) { part(a.used_bytes(), room, streams) } else { 0 },
        scores: part(scores.used_bytes(), room, streams).saturating_add(match is_cache(a) {
            true => 0,
            false => part(a.used_bytes(), room, streams),
        }),
        elements: if is_values { 0 } else { part(node.out.elements(), room, streams) },
    })
}

/// What is done with scores, such as the softmax; and values that are taken out of the cache, token by token.
fn scores_of_attention(node: &Node, sources: &[&Tensor], used: &[u64]) -> Option<Attends> {
    let stem = stem(&node.out.name);
    let is_masked = node.op == "SOFT_MAX"
        && sources.get(1).is_some_and(|mask| mask.name.to_lowercase().contains("kq_mask"));
    let is_score = is_masked || stem == "v_cont" || stem.starts_with("kq_") && stem != "kq_mask";
    let [room, .., streams] = node.out.ne;
    if !is_score || room == 0 || streams == 0 {
        return None;
    }
    let mut of = Attends { room, streams, flops: 0, bytes: 0, scores: 0, elements: 0 };
    of.scores = part(node.out.used_bytes(), room, streams);
    of.elements = part(node.out.elements(), room, streams);
    for (src, used) in sources.iter().zip(used) {
        // Such as sinks, one for each head.
        if stem != "v_cont" && src.ne[0] != room {
            continue;
        }
        let sum = if is_cache(src) { &mut of.bytes } else { &mut of.scores };
        *sum = sum.saturating_add(part(*used, room, streams));
    }
    Some(of)
}

/// `kqv` of `kqv-3 (view)`.
pub(crate) fn stem(name: &str) -> &str {
    name.split([' ', '-']).next().unwrap_or_default()
}
