//! Layers of kernels whose launch doesn't tell them, by the order of the kernels alone: the passes of a file, each searched
//! by `sequence/`.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use brickscope_profile::{GraphLayers, GraphLayersBy, Pass};

use super::host::{Host, launch_of};
use super::inside::Inside;
use super::missing::Seen;
use super::sequence::{Known, Layers, Token};
use super::table::Found;
use super::{EventKind, MARKER, Names, device};
use crate::import::trace::{Timed, Trace};

/// The kernels of a pass on a device, or of one launch of a graph: by stream, in order.
type Unit = BTreeMap<u64, Vec<usize>>;

/// The stream of a unit that has most of its kernels.
struct Main<'u> {
    unit: &'u Unit,
    stream: u64,
    events: &'u [usize],
    tokens: Rc<[Token]>,
}

/// Those of which no launch tells the layer of any kernel.
fn units(trace: &Trace, timed: &[Timed], host: &Host, passes: &[Pass]) -> Vec<Unit> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Of {
        Pass(u32),
        Launch(u64),
    }
    let intervals = device::intervals(passes);
    let mut units: BTreeMap<(u64, Of), (Unit, bool)> = BTreeMap::new();
    for (at, event) in timed.iter().enumerate() {
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let Some(link) = link.filter(|_| event.kind == EventKind::Work) else { continue };
        if trace.names[event.name as usize] == MARKER {
            continue;
        }
        let Some(launch) = launch_of(host, link) else { continue };
        let pass = launch.pass.or_else(|| device::pass_at(&intervals, launch.issued_ns));
        let of = match (pass, link.correlation) {
            (Some(pass), _) => Of::Pass(pass),
            (None, Some(correlation)) if launch.is_graph => Of::Launch(correlation),
            _ => continue,
        };
        let (unit, is_told) = units.entry((link.device, of)).or_default();
        *is_told |= !launch.is_graph && launch.layer.is_some();
        unit.entry(link.stream).or_default().push(at);
    }
    let untold = units.into_values().filter(|(_, is_told)| !is_told);
    let in_order = |(mut unit, _): (Unit, bool)| {
        for events in unit.values_mut() {
            events.sort_by_key(|&at| (timed[at].start, timed[at].end));
        }
        unit
    };
    untold.map(in_order).collect()
}

/// Notes the layers and the bricks of products, where they aren't known yet. `passes` are those of the host.
pub(super) fn fill(
    inside: &mut Inside,
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    passes: &[Pass],
    names: &mut Names<'_>,
) {
    let units = units(trace, timed, host, passes);
    let mut known = Known::default();
    let mut tokens: HashMap<u32, Token> = HashMap::new();
    let mut token = |at: usize, names: &mut Names<'_>| {
        let event = &timed[at];
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let launch = link.and_then(|link| launch_of(host, link));
        if let Some(brick) =
            launch.filter(|launch| !launch.is_graph).and_then(|launch| launch.brick)
        {
            let name = names.names.get(usize::from(brick)).map_or("", |name| &name.name);
            return token_of(name).unwrap_or(Token::Other(u32::from(brick)));
        }
        *tokens.entry(event.name).or_insert_with(|| {
            let name = &trace.names[event.name as usize];
            match names.table.kernel(name) {
                // It adds up what a product has left in parts.
                Some(Found::Brick("MatMul")) if name.contains("splitKreduce") => {
                    Token::Other(names.brick("MatMul").into())
                }
                Some(Found::Brick(brick)) => {
                    token_of(brick).unwrap_or_else(|| Token::Other(names.brick(brick).into()))
                }
                // Behind the numbers of bricks.
                _ => Token::Other(event.name.saturating_add(1 << 16)),
            }
        })
    };
    let mut found: Vec<(&Unit, u64, Layers)> = Vec::new();
    let link = |at: usize| timed[at].link.and_then(|link| trace.links.get(link as usize));
    let graph = |at: usize| {
        let link = link(at)?;
        launch_of(host, link).filter(|launch| launch.is_graph)?;
        link.correlation
    };
    let (mut kernels, mut of_graphs) = (0_u64, 0_u64);
    // Copies on other streams, and what runs beside.
    let mut main: Vec<Main<'_>> = Vec::new();
    for unit in &units {
        let all = unit.values().flatten();
        kernels += all.clone().count() as u64;
        of_graphs += all.filter(|&&at| graph(at).is_some()).count() as u64;
        if let Some((&stream, events)) = unit.iter().max_by_key(|(_, events)| events.len()) {
            let tokens = events.iter().map(|&at| token(at, names)).collect();
            main.push(Main { unit, stream, events, tokens: known.count(tokens) });
        }
    }
    for Main { unit, stream, events, tokens } in main {
        let seen = Seen::of(timed, events, graph);
        match seen.layers(&tokens, timed, events, &mut known) {
            Ok(layers) => {
                let before = events.iter().zip(&layers.of).take_while(|(_, layer)| layer.is_none());
                let mut names = before.map(|(&at, _)| &trace.names[timed[at].name as usize]);
                match names.any(|name| name.contains("SendRecv")) {
                    // Of a pipeline, whose first layers are on other ranks.
                    true => inside.unclear = Some("it begins with what another rank sent"),
                    false => found.push((unit, stream, layers)),
                }
            }
            Err(why) => inside.unclear = Some(why),
        }
    }
    let count = found.iter().map(|(.., layers)| layers.count).max().unwrap_or_default();
    let mut fewer = 0_u64;
    let (mut of_kernels, mut in_graphs) = (0_u64, 0_u64);
    let mut is_broken = false;
    let mut pause_ns = None;
    let mut together = 1;
    // Only where there is something to name.
    let product = if found.is_empty() { 0 } else { names.brick("MatMul") };
    let is_known = inside.has_layers();
    let (mut same, mut other) = (0_u64, 0_u64);
    // What is known otherwise stays.
    let mut add = |inside: &mut Inside, at: usize, layer: Option<u16>| match inside.layer(at) {
        Some(known) if is_known => {
            *(if layer == Some(known) { &mut same } else { &mut other }) += 1
        }
        _ if is_known || layer.is_none() => {}
        _ => {
            of_kernels += 1;
            in_graphs += u64::from(graph(at).is_some());
            inside.add(at, layer, None);
        }
    };
    let launch = |at: usize| link(at).and_then(|link| link.correlation);
    let alone = |at: usize| {
        link(at).and_then(|link| launch_of(host, link)).filter(|launch| !launch.is_graph)
    };
    for (unit, stream, layers) in &found {
        // The passes of a file are of one model: one that lacks layers lacks them anywhere.
        if layers.count < count && !layers.breaks_off {
            fewer += 1;
            continue;
        }
        is_broken |= layers.breaks_off;
        pause_ns = pause_ns.max(layers.pause_ns);
        together = together.max(layers.together);
        let events = &unit[stream];
        for (nth, &at) in events.iter().enumerate() {
            let of_module = alone(at).and_then(|launch| launch.brick);
            if let Some(brick) = layers.bricks[nth]
                && of_module.is_none_or(|told| told == product)
            {
                let brick = names.brick(brick);
                inside.name_product(at, product, brick);
            }
            add(inside, at, layers.of[nth]);
        }
        let bounds = bounds(timed, events, layers);
        let Some(first) = events.iter().zip(&layers.of).find_map(|(&at, of)| of.map(|_| at)) else {
            continue;
        };
        for (_, beside) in unit.iter().filter(|(of, _)| *of != stream) {
            for &at in beside {
                let (start, end) = (timed[at].start, timed[at].end);
                // It is sure only of what the same launch began, and what runs wholly beside one layer.
                if launch(at) != launch(first) {
                    continue;
                }
                let after = bounds.partition_point(|(from, ..)| *from <= start);
                let layer = after.checked_sub(1).and_then(|before| bounds.get(before));
                if let Some(&(_, _, number)) = layer.filter(|(_, to, _)| end <= *to) {
                    add(inside, at, Some(number));
                }
            }
        }
    }
    if let Some(known) = inside.layers.as_mut().filter(|_| is_known && same + other > 0) {
        let told = format!(
            "the order of kernels alone tells the same layer of {same} of {}",
            same + other
        );
        known.detail = match known.detail.is_empty() {
            true => told,
            false => format!("{}; {told}", known.detail),
        };
    }
    if of_kernels == 0 {
        return;
    }
    let mut detail = Vec::new();
    if together > 1 {
        detail.push(format!("layers of {together} kinds take turns"));
    }
    if let Some(ns) = pause_ns {
        detail.push(format!(
            "nothing ran for {} µs between two kernels of a graph: if whole layers are missing there, later ones have \
             other numbers",
            ns / 1_000
        ));
    }
    if is_broken {
        detail.push(
            "behind the last of them kernels don't repeat: some are missing, or of other layers, such as those \
             of a draft model"
                .to_owned(),
        );
    }
    if fewer > 0 {
        detail.push(format!("{fewer} passes have fewer layers, and so none"));
    }
    // What is launched beside the graphs of a pass, such as copies, is none of theirs: a capture's line counts as many. In a
    // program without graphs, all count.
    let (told, of) = match in_graphs {
        0 => (of_kernels, kernels),
        n => (n, of_graphs),
    };
    inside.layers = Some(GraphLayers {
        by: GraphLayersBy::Sequence,
        layers: count,
        kernels: told,
        of_kernels: of,
        detail: detail.join("; "),
    });
    inside.unclear = None;
}

/// From when to when each layer ran.
fn bounds(timed: &[Timed], events: &[usize], layers: &Layers) -> Vec<(i64, i64, u16)> {
    let mut bounds: Vec<(i64, i64, u16)> = Vec::new();
    for (&at, layer) in events.iter().zip(&layers.of) {
        let Some(layer) = *layer else { continue };
        match bounds.last_mut().filter(|(.., of)| *of == layer) {
            Some((_, end, _)) => *end = (*end).max(timed[at].end),
            None => bounds.push((timed[at].start, timed[at].end, layer)),
        }
    }
    bounds
}

/// What a brick is to the search for layers; `None` if nothing but itself.
fn token_of(brick: &str) -> Option<Token> {
    Some(match brick {
        "RmsNorm" | "LayerNorm" => Token::Norm,
        "MatMul" | "QkvProjection" | "OutputProjection" | "GateUpProjection" | "GateProjection"
        | "UpProjection" | "DownProjection" => Token::Product,
        "FlashAttention" | "SSM" | "LinearAttention" => Token::Mixer,
        "Activation" => Token::Activation,
        "Router" => Token::Router,
        "Experts" => Token::Experts,
        _ => return None,
    })
}
