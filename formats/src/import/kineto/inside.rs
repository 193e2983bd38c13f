//! Which layer and brick kernels are of whose launch doesn't tell it: those inside of graphs, which one call launches
//! together, and those of a program that names no modules.

use std::collections::{BTreeMap, HashMap};

use brickscope_profile::{GraphLayers, GraphLayersBy, Pass};

use super::host::Host;
use super::sequence::{Known, Layers, Token};
use super::table::Found;
use super::{EventKind, Names, device};
use crate::import::trace::{Timed, Trace};

/// What is known of them, by the index of their event.
#[derive(Default)]
pub(super) struct Inside {
    of_event: HashMap<usize, (Option<u16>, Option<u16>)>,
    /// How it became known.
    pub(super) layers: Option<GraphLayers>,
    /// Why it isn't known of any.
    pub(super) unclear: Option<&'static str>,
}

impl Inside {
    pub(super) fn layer(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.0
    }

    pub(super) fn brick(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.1
    }

    pub(super) fn has_layers(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.kernels > 0)
    }
}

/// Finds it out. `passes` are those of the host.
pub(super) fn of(
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    passes: &[Pass],
    names: &mut Names<'_>,
) -> Inside {
    let units = units(trace, timed, host, passes);
    by_sequence(trace, timed, host, &units, names)
}

/// The kernels of a pass on a device, or of one launch of a graph: by stream, in order.
type Unit = BTreeMap<u64, Vec<usize>>;

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
        if trace.names[event.name as usize] == device::MARKER {
            continue;
        }
        let Some(launch) = device::launch_of(host, link) else { continue };
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

/// By the order of the kernels alone.
fn by_sequence(
    trace: &Trace,
    timed: &[Timed],
    host: &Host,
    units: &[Unit],
    names: &mut Names<'_>,
) -> Inside {
    let mut known = Known::default();
    let mut tokens: HashMap<u32, Token> = HashMap::new();
    let mut token = |at: usize, names: &mut Names<'_>| {
        let event = &timed[at];
        let link = event.link.and_then(|link| trace.links.get(link as usize));
        let launch = link.and_then(|link| device::launch_of(host, link));
        if let Some(brick) =
            launch.filter(|launch| !launch.is_graph).and_then(|launch| launch.brick)
        {
            let name = names.names.get(usize::from(brick)).map_or("", |name| &name.name);
            return token_of(name).unwrap_or(Token::Other(u32::from(brick)));
        }
        *tokens.entry(event.name).or_insert_with(|| {
            match names.table.kernel(&trace.names[event.name as usize]) {
                Some(Found::Brick(brick)) => {
                    token_of(brick).unwrap_or_else(|| Token::Other(names.brick(brick).into()))
                }
                // Behind the numbers of bricks.
                _ => Token::Other(event.name.saturating_add(1 << 16)),
            }
        })
    };
    let mut inside = Inside::default();
    let mut found: Vec<(&Unit, u64, Layers)> = Vec::new();
    let mut kernels = 0;
    for unit in units {
        kernels += unit.values().map(|events| events.len() as u64).sum::<u64>();
        // Copies on other streams, and what runs beside.
        let main = unit.iter().max_by_key(|(_, events)| events.len());
        let Some((&stream, events)) = main else { continue };
        let tokens = events.iter().map(|&at| token(at, names)).collect();
        match known.layers(tokens) {
            Ok(layers) => found.push((unit, stream, layers.clone())),
            Err(why) => inside.unclear = Some(why),
        }
    }
    let count = found.iter().map(|(.., layers)| layers.count).max().unwrap_or_default();
    let mut fewer = 0_u64;
    let mut of_kernels = 0_u64;
    let mut is_broken = false;
    let mut together = 1;
    for (unit, stream, layers) in &found {
        // The passes of a file are of one model: one that lacks layers lacks them anywhere.
        if layers.count < count && !layers.breaks_off {
            fewer += 1;
            continue;
        }
        is_broken |= layers.breaks_off;
        together = together.max(layers.together);
        let events = &unit[stream];
        for (nth, &at) in events.iter().enumerate() {
            let brick = layers.bricks[nth].map(|brick| names.brick(brick));
            of_kernels += u64::from(layers.of[nth].is_some());
            if layers.of[nth].is_some() || brick.is_some() {
                inside.of_event.insert(at, (layers.of[nth], brick));
            }
        }
        let bounds = bounds(timed, events, layers);
        for (_, beside) in unit.iter().filter(|(of, _)| *of != stream) {
            for &at in beside {
                let (start, end) = (timed[at].start, timed[at].end);
                // It is sure only of what runs wholly beside one layer.
                let after = bounds.partition_point(|(from, ..)| *from <= start);
                let layer = after.checked_sub(1).and_then(|before| bounds.get(before));
                if let Some(&(_, _, number)) = layer.filter(|(_, to, _)| end <= *to) {
                    of_kernels += 1;
                    inside.of_event.insert(at, (Some(number), None));
                }
            }
        }
    }
    if of_kernels == 0 {
        return inside;
    }
    let mut detail = Vec::new();
    if together > 1 {
        detail.push(format!("layers of {together} kinds take turns"));
    }
    if is_broken {
        detail.push(
            "behind the last of them kernels don't repeat: some are missing, or of other layers"
                .to_owned(),
        );
    }
    if fewer > 0 {
        detail.push(format!("{fewer} passes have fewer layers, and so none"));
    }
    inside.layers = Some(GraphLayers {
        by: GraphLayersBy::Sequence,
        layers: count,
        kernels: of_kernels,
        of_kernels: kernels,
        detail: detail.join("; "),
    });
    inside.unclear = None;
    inside
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
