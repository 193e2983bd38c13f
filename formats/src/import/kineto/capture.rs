//! Kernels of graphs, matched with the calls of a trace of their capture: by name and order where the calls
//! state their kernels, as HIP's do; else by order alone, and only if that holds everywhere.

use std::collections::{HashMap, HashSet};

use brickscope_profile::{GraphLayers, GraphLayersBy, Pass};

use super::Names;
use super::host::Host;
use super::inside::{Graph, Inside};
use super::recorded::{Call, CallKind, Captured};
use super::table::{Found, Table};
use crate::import::trace::{Timed, Trace};

/// By so many places, calls and kernels may be apart: graphs may run in another order than they were captured
/// in, where several streams are in them.
const SLACK: usize = 32;

/// So many calls may be without a kernel of their place.
const MOST_SKIPPED: usize = 1 << 13;

/// Of how many different graphs captures are looked for. A model has some for each size of batches.
const MOST_GRAPHS: usize = 1 << 14;

/// A capture that a graph is of.
struct Match<'c> {
    /// The numbers of the file and the capture in it.
    file: usize,
    run: usize,
    calls: &'c [Call],
    /// The call of each kernel.
    of: Vec<Option<usize>>,
    is_named: bool,
    /// The products all of whose kernels were found.
    products: HashSet<u32>,
}

/// Why the capture of a file isn't that of a graph: the best of them.
#[derive(Clone, Default)]
struct Refused {
    kernels: usize,
    why: String,
}

/// Takes layers and bricks from the traces of captures.
pub(super) fn fill(
    inside: &mut Inside,
    graphs: &[Graph],
    trace: &Trace,
    timed: &[Timed],
    (passes, host): (&[Pass], &Host),
    names: &mut Names<'_>,
) {
    if trace.captures.is_empty() {
        return;
    }
    let table = names.table;
    let name_of = |at: usize| timed.get(at).map_or(0, |event| event.name);
    let mut refused = vec![Refused::default(); trace.captures.len()];
    // What each different graph is: by its kernels, and where in its pass it is.
    let mut known: HashMap<(Vec<u32>, Place), Option<Match<'_>>> = HashMap::new();
    let mut of_call: HashMap<(usize, u32, u32), Option<u16>> = HashMap::new();
    let mut found = Sums::default();
    for (number, (graph, place)) in
        graphs.iter().zip(places(graphs, passes, &host.of_requests)).enumerate()
    {
        found.of_kernels += graph.work.len() as u64;
        let key = (graph.work.iter().map(|&at| name_of(at)).collect::<Vec<u32>>(), place);
        if known.len() == MOST_GRAPHS && !known.contains_key(&key) {
            continue;
        }
        let of_it = known.entry(key).or_insert_with_key(|(kernels, place)| {
            let kernels: Vec<&str> =
                kernels.iter().map(|&name| trace.names[name as usize].as_str()).collect();
            choose(&trace.captures, &kernels, *place, table, &mut refused)
        });
        let Some(of_it) = of_it else { continue };
        let Some(captured) = trace.captures.get(of_it.file) else { continue };
        found.used.insert((of_it.file, of_it.run));
        found.is_unnamed |= !of_it.is_named;
        // A graph may run for fewer tokens than it was captured with, and its kernels have the same names for other sizes.
        let batch = captured.runs.get(of_it.run).and_then(|run| run.batch);
        let has_shapes = batch.is_some() && batch == place.batch;
        let told = graph.pass.and_then(|serial| host.told.get(&serial));
        for (&at, call) in graph.work.iter().zip(&of_it.of) {
            let Some(call) = call.and_then(|call| of_it.calls.get(call)) else { continue };
            found.matched += 1;
            found.kernels += u64::from(call.layer.is_some());
            found.layers.extend(call.layer);
            if let Some(product) = call.product.filter(|of| of_it.products.contains(of)) {
                match captured.product(product, told) {
                    Ok(work) if has_shapes => inside.add_product(at, (number, product), work),
                    Ok(_) => inside.of_other_sizes += 1,
                    Err(why) => inside.add_without_work((number, product), why),
                }
            }
            let name = name_of(at);
            // Where the table knows the kernel, it tells more than an operation that it doesn't know.
            let own = || match table.kernel(&trace.names[name as usize]) {
                Some(Found::Brick(_)) => None,
                _ => captured.text(call.op),
            };
            let brick = match (call.brick, call.op) {
                (Some(brick), _) => captured.text(Some(brick)).map(|brick| names.brick(brick)),
                (None, Some(op)) => *of_call
                    .entry((of_it.file, op, name))
                    .or_insert_with(|| own().map(|op| names.brick(op))),
                (None, None) => None,
            };
            inside.add(at, call.layer, brick);
        }
    }
    found.tell(&trace.captures, &refused, inside);
}

/// What came of it.
#[derive(Default)]
struct Sums {
    of_kernels: u64,
    matched: u64,
    /// Those with a layer.
    kernels: u64,
    layers: HashSet<u16>,
    used: HashSet<(usize, usize)>,
    is_unnamed: bool,
}

impl Sums {
    fn tell(self, captures: &[Captured], refused: &[Refused], inside: &mut Inside) {
        let mut is_counted = false;
        for (file, (captured, refused)) in captures.iter().zip(refused).enumerate() {
            let path = captured.path().display();
            let runs = captured.runs.iter().enumerate();
            let mut used = runs.filter(|(run, _)| self.used.contains(&(file, *run))).peekable();
            if used.peek().is_none() {
                let why = match self.of_kernels {
                    0 => "the trace has no kernel inside of a graph",
                    _ => refused.why.as_str(),
                };
                inside.doubts.push(format!("{path} is not used: {why}"));
            }
            for (_, run) in used {
                is_counted |= run.is_counted;
                if let Some(why) = &run.without_layers {
                    let name = if run.name.is_empty() { "its capture" } else { run.name.as_str() };
                    inside.doubts.push(format!("{path} tells no layers: of {name}, {why}"));
                }
            }
        }
        if self.kernels == 0 {
            return;
        }
        let mut detail = Vec::new();
        if self.is_unnamed {
            detail.push("by their order alone, since the capture doesn't name them".to_owned());
        }
        if is_counted {
            detail.push(
                "counted by their attention, from 0 at the first in the graph, since the capture doesn't \
                 number them"
                    .to_owned(),
            );
        }
        if self.matched < self.of_kernels {
            let missing = self.of_kernels - self.matched;
            detail.push(format!("{missing} kernels of graphs are in no capture"));
        }
        inside.layers = Some(GraphLayers {
            by: GraphLayersBy::Capture,
            layers: self.layers.len() as u32,
            kernels: self.kernels,
            of_kernels: self.of_kernels,
            detail: detail.join("; "),
        });
    }
}

/// Where a graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// Which of the graphs of its pass it is, of how many.
    nth: usize,
    of: usize,
    /// The tokens of the pass, if they are known, and captures are for tokens.
    batch: Option<u64>,
}

fn places(graphs: &[Graph], passes: &[Pass], of_requests: &HashSet<u32>) -> Vec<Place> {
    let mut of: HashMap<u32, usize> = HashMap::new();
    for pass in graphs.iter().filter_map(|graph| graph.pass) {
        *of.entry(pass).or_default() += 1;
    }
    let mut seen: HashMap<u32, usize> = HashMap::new();
    let place = |graph: &Graph| {
        let Some(serial) = graph.pass else { return Place { nth: 0, of: 1, batch: None } };
        let next = seen.entry(serial).or_default();
        let nth = *next;
        *next += 1;
        let pass = (serial as usize).checked_sub(1).and_then(|at| passes.get(at));
        let batch = pass.filter(|_| !of_requests.contains(&serial)).map(|pass| pass.tokens);
        let batch = batch.filter(|&tokens| tokens > 0);
        Place { nth, of: of.get(&serial).copied().unwrap_or(1), batch }
    };
    graphs.iter().map(place).collect()
}

/// The capture that has most of the kernels; of those, one of the pass's size, or of the next larger one, as
/// servers round batches up.
fn choose<'c>(
    captures: &'c [Captured],
    kernels: &[&str],
    place: Place,
    table: &Table,
    refused: &mut [Refused],
) -> Option<Match<'c>> {
    let mut candidates = Vec::new();
    for (file, captured) in captures.iter().enumerate() {
        for (run, of) in captured.runs.iter().enumerate() {
            // The pieces of a model are in the order in which it computes them.
            let nth = if of.graphs.len() == place.of { place.nth } else { 0 };
            if of.graphs.len() != place.of && of.graphs.len() != 1 {
                continue;
            }
            let Some(calls) = of.graphs.get(nth) else { continue };
            let rank = match (of.batch, place.batch) {
                (Some(of), Some(batch)) if of >= batch => (0, of - batch),
                (Some(of), Some(batch)) => (1, batch - of),
                _ => (2, 0),
            };
            candidates.push((rank, file, run, calls.as_slice()));
        }
    }
    candidates.sort_by_key(|&(rank, file, run, _)| (rank, file, run));
    let mut best: Option<(usize, Match<'c>)> = None;
    for (_, file, run, calls) in candidates {
        let Some(captured) = captures.get(file) else { continue };
        match matched(captured, calls, kernels, table) {
            Ok((of, is_named)) => {
                let count = of.iter().flatten().count();
                if best.as_ref().is_none_or(|(most, _)| count > *most) {
                    let products = whole_products(calls, &of);
                    best = Some((count, Match { file, run, calls, of, is_named, products }));
                }
                if count == kernels.len() {
                    break;
                }
            }
            Err((count, why)) => {
                if let Some(refused) = refused.get_mut(file)
                    && (refused.why.is_empty() || count > refused.kernels)
                {
                    *refused = Refused { kernels: count, why };
                }
            }
        }
    }
    for refused in refused.iter_mut().filter(|refused| refused.why.is_empty()) {
        refused.why = "another capture fits better, or it has another number of graphs".to_owned();
    }
    best.map(|(_, best)| best)
}

/// The products of a capture all of whose kernels were found in the graph: of another one, the kernel that takes the most
/// time may be missing.
fn whole_products(calls: &[Call], of: &[Option<usize>]) -> HashSet<u32> {
    let found: HashSet<usize> = of.iter().flatten().copied().collect();
    let (mut whole, mut broken) = (HashSet::new(), HashSet::new());
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.kind == CallKind::Kernel) {
        let Some(product) = call.product else { continue };
        let set = if found.contains(&at) { &mut whole } else { &mut broken };
        set.insert(product);
    }
    whole.retain(|product| !broken.contains(product));
    whole
}

/// The call of each kernel, and whether names told it.
type Matched = (Vec<Option<usize>>, bool);

/// Finds it.
///
/// # Errors
///
/// How many kernels are in the capture, and why it isn't that of the graph.
fn matched(
    captured: &Captured,
    calls: &[Call],
    kernels: &[&str],
    table: &Table,
) -> Result<Matched, (usize, String)> {
    let (all, larger) = (kernels.len(), calls.len().max(kernels.len()));
    let counts = || {
        let launches = calls.len();
        (0, format!("it launches {launches} kernels and copies, and the graph has {all}"))
    };
    let is_named = |call: &Call| call.kind != CallKind::Kernel || call.kernel.is_some();
    if calls.iter().all(is_named) {
        if calls.len().abs_diff(all) > SLACK.max(larger / 10) {
            return Err(counts());
        }
        let of = aligned(captured, calls, kernels);
        let found = of.iter().flatten().count();
        if (found as u64) * 10 < (larger as u64) * 9 {
            return Err((
                found,
                format!("{found} of the {all} kernels of the graph are in it, by name and order"),
            ));
        }
        return Ok((of, true));
    }
    let of = by_order(captured, calls, kernels).ok_or_else(counts)?;
    check(captured, calls, kernels, &of, table).map_err(|why| (all, why))?;
    Ok((of, false))
}

fn is_copy(kernel: &str) -> bool {
    kernel.starts_with("Memcpy") || kernel.contains("copyBuffer")
}

fn is_set(kernel: &str) -> bool {
    kernel.starts_with("Memset") || kernel.contains("fillBuffer")
}

/// Whether a call may be that of a kernel.
fn fits(captured: &Captured, call: &Call, kernel: &str) -> bool {
    match call.kind {
        CallKind::Copy => is_copy(kernel),
        CallKind::Set => is_set(kernel),
        CallKind::Kernel => match captured.text(call.kernel) {
            Some(name) => name == kernel,
            None => !is_copy(kernel) && !is_set(kernel),
        },
    }
}

/// The call of each kernel, by name and order, where some may be missing on either side.
fn aligned(captured: &Captured, calls: &[Call], kernels: &[&str]) -> Vec<Option<usize>> {
    let fit = |call: usize, kernel: usize| match (calls.get(call), kernels.get(kernel)) {
        (Some(call), Some(kernel)) => fits(captured, call, kernel),
        _ => false,
    };
    let is_end = |call: usize, kernel: usize| call >= calls.len() || kernel >= kernels.len();
    let mut of = vec![None; kernels.len()];
    // Calls without a kernel, each with where it would have been.
    let mut skipped: Vec<(usize, usize)> = Vec::new();
    let (mut call, mut kernel) = (0, 0);
    while !is_end(call, kernel) {
        if fit(call, kernel) {
            if let Some(of) = of.get_mut(kernel) {
                *of = Some(call);
            }
            (call, kernel) = (call + 1, kernel + 1);
            continue;
        }
        // The next place where two in a row fit.
        let next = (1..=2 * SLACK).find_map(|sum| {
            let mut skips = sum.saturating_sub(SLACK)..=sum.min(SLACK);
            skips.find_map(|calls| {
                let (call, kernel) = (call + calls, kernel + sum - calls);
                let two = fit(call + 1, kernel + 1) || is_end(call + 1, kernel + 1);
                (fit(call, kernel) && two).then_some((call, kernel))
            })
        });
        let next = next.unwrap_or((call + 1, kernel + 1));
        skipped.extend((call..next.0).map(|call| (call, kernel)));
        (call, kernel) = next;
        // So many are missing that it is of something else.
        if skipped.len() > MOST_SKIPPED.min(calls.len() / 4 + SLACK) {
            return of;
        }
    }
    skipped.extend((call..calls.len()).map(|call| (call, kernels.len())));
    // What runs in another order, near to where it would have been. Places rise.
    for (at, of) in of.iter_mut().enumerate().filter(|(_, of)| of.is_none()) {
        let begin = skipped.partition_point(|&(_, place)| place + SLACK < at);
        let near = skipped.iter().skip(begin).take_while(|(_, place)| *place <= at + SLACK);
        let found = near.enumerate().find(|(_, (call, _))| fit(*call, at)).map(|(nth, _)| nth);
        if let Some(nth) = found {
            *of = Some(skipped.remove(begin + nth).0);
        }
    }
    of
}

/// The call of each kernel, by order alone: if there are as many, with copies or without.
fn by_order(captured: &Captured, calls: &[Call], kernels: &[&str]) -> Option<Vec<Option<usize>>> {
    if calls.len() == kernels.len()
        && calls.iter().zip(kernels).all(|(call, kernel)| fits(captured, call, kernel))
    {
        return Some((0..calls.len()).map(Some).collect());
    }
    let launches = calls.iter().enumerate().filter(|(_, call)| call.kind == CallKind::Kernel);
    let mut launches = launches.map(|(at, _)| at);
    let mut of = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let is_kernel = !is_copy(kernel) && !is_set(kernel);
        of.push(if is_kernel { Some(launches.next()?) } else { None });
    }
    launches.next().is_none().then_some(of)
}

/// Whether an order holds: the same kernel comes from the same operation, and kernels do what their
/// operations say. One that is moved by a place passes the first by and large, and the other not at all.
fn check(
    captured: &Captured,
    calls: &[Call],
    kernels: &[&str],
    of: &[Option<usize>],
    table: &Table,
) -> Result<(), String> {
    let mut ops: HashMap<&str, HashMap<Option<u32>, u64>> = HashMap::new();
    let mut families: HashMap<&str, Option<Family>> = HashMap::new();
    let (mut all, mut told, mut alike) = (0_u64, 0_u64, 0_u64);
    for (&kernel, call) in kernels.iter().zip(of) {
        let Some(call) = call.and_then(|call| calls.get(call)) else { continue };
        all += 1;
        *ops.entry(kernel).or_default().entry(call.op).or_default() += 1;
        let by_kernel = *families.entry(kernel).or_insert_with(|| match table.kernel(kernel) {
            Some(Found::Brick(brick)) => Family::of(brick),
            _ => None,
        });
        let by_call = captured.text(call.brick).and_then(Family::of);
        if let (Some(by_kernel), Some(by_call)) = (by_kernel, by_call) {
            told += 1;
            alike += u64::from(by_kernel == by_call);
        }
    }
    let agree: u64 = ops.values().filter_map(|ops| ops.values().max()).sum();
    if agree * 100 < all * 99 {
        return Err(format!(
            "by order, the same kernel comes from different operations: {agree} of {all} agree"
        ));
    }
    if told == 0 {
        return Err(
            "it names no kernels, and nothing tells whether their order is the same".to_owned()
        );
    }
    if alike * 10 < told * 9 {
        return Err(format!(
            "by order, kernels do something else than their operations: {alike} of {told} agree"
        ));
    }
    Ok(())
}

/// What both the name of a kernel and the operation around it can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Product,
    Attention,
    Norm,
    Rope,
    Activation,
}

impl Family {
    fn of(brick: &str) -> Option<Self> {
        Some(match brick {
            "MatMul" | "Experts" | "Router" | "LmHead" => Self::Product,
            brick if brick.ends_with("Projection") => Self::Product,
            "FlashAttention" | "KvCache" => Self::Attention,
            "RmsNorm" | "LayerNorm" => Self::Norm,
            "RopeEmbedding" => Self::Rope,
            "Activation" => Self::Activation,
            _ => return None,
        })
    }
}
