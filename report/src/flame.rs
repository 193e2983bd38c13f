//! The flame view: all spans by phase, layer, brick and kernel, as an icicle graph.

use std::collections::HashMap;

use brickscope_profile::Phase;
use serde_json::{Value, json};

use super::figure::{From, count, div, percent, time};
use super::html::{Table, details, note, reason, said};
use super::page::Names;
use super::source::{Source, heading};

/// The most frames while spans are summed up. Spans beyond it are counted.
const MOST_SUMMED: usize = 50_000;

/// The most frames of the view: the longest.
const MOST_FRAMES: usize = 1_500;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Phase(Option<Phase>),
    Layer(Option<u16>),
    Named(u16),
}

struct Frame {
    key: Key,
    parent: Option<u32>,
    count: u64,
    ns: u64,
}

/// No frame, for lack of room.
const NONE: u32 = u32::MAX;

fn summed(source: &Source<'_>) -> (Vec<Frame>, u64) {
    let profile = source.profile;
    let phases: HashMap<u32, Phase> =
        profile.passes.iter().map(|pass| (pass.serial, pass.phase)).collect();
    let mut frames: Vec<Frame> = Vec::new();
    let mut known: HashMap<(u32, Key), u32> = HashMap::new();
    let mut by_span: Vec<u32> = Vec::with_capacity(profile.spans.len());
    let mut left_out = 0;
    let mut frame = |frames: &mut Vec<Frame>, parent: Option<u32>, key: Key| -> u32 {
        let place = (parent.unwrap_or(NONE), key);
        if let Some(&known) = known.get(&place) {
            return known;
        }
        if frames.len() >= MOST_SUMMED {
            return NONE;
        }
        let new = frames.len() as u32;
        known.insert(place, new);
        frames.push(Frame { key, parent, count: 0, ns: 0 });
        new
    };
    let out = profile.left_out();
    for span in &profile.spans {
        // As in the tables. What lies inside of it is of the same pass.
        if span.pass.is_some_and(|pass| out.contains(&pass)) {
            by_span.push(NONE);
            continue;
        }
        let parent = match span.parent.and_then(|parent| by_span.get(parent as usize)) {
            Some(&parent) => parent,
            None => {
                let phase = span.pass.and_then(|pass| phases.get(&pass).copied());
                frame(&mut frames, None, Key::Phase(phase))
            }
        };
        let key = span.name.map_or(Key::Layer(span.layer), Key::Named);
        let own = if parent == NONE { NONE } else { frame(&mut frames, Some(parent), key) };
        by_span.push(own);
        match frames.get_mut(own as usize) {
            Some(frame) => {
                frame.count += 1;
                frame.ns = frame.ns.saturating_add(span.duration_ns);
            }
            None => left_out += 1,
        }
    }
    // A phase is as long as its passes; outside of passes, as long as its contents.
    for index in 0..frames.len() {
        if let Key::Phase(phase) = frames[index].key {
            let wall = phase.and_then(|phase| profile.phase(phase)).map(|total| total.wall_ns);
            frames[index].ns = wall.unwrap_or_else(|| {
                let inside = frames.iter().filter(|frame| frame.parent == Some(index as u32));
                inside.fold(0, |sum, frame| u64::saturating_add(sum, frame.ns))
            });
        }
    }
    (frames, left_out)
}

/// The longest frames and their ancestors, parents before children, siblings by time.
fn shown(frames: &[Frame]) -> Vec<u32> {
    let mut by_time: Vec<u32> = (0..frames.len() as u32).collect();
    by_time.sort_by_key(|&index| (std::cmp::Reverse(frames[index as usize].ns), index));
    let mut is_kept = vec![false; frames.len()];
    let mut kept = 0;
    for index in by_time.iter().copied() {
        if kept >= MOST_FRAMES {
            break;
        }
        let mut at = Some(index);
        while let Some(index) = at {
            if std::mem::replace(&mut is_kept[index as usize], true) {
                break;
            }
            kept += 1;
            at = frames[index as usize].parent;
        }
    }
    let mut inside: HashMap<Option<u32>, Vec<u32>> = HashMap::new();
    // Layers and phases are in their order, bricks by time.
    let mut ordered: Vec<u32> =
        by_time.into_iter().filter(|&index| is_kept[index as usize]).collect();
    ordered.sort_by_key(|&index| match frames[index as usize].key {
        Key::Phase(phase) => {
            let nth = Phase::SHOWN.iter().position(|shown| Some(*shown) == phase);
            (0, nth.map_or(u64::MAX, |nth| nth as u64))
        }
        Key::Layer(layer) => (1, layer.map_or(0, |layer| u64::from(layer) + 1)),
        Key::Named(_) => (2, 0),
    });
    for index in ordered {
        inside.entry(frames[index as usize].parent).or_default().push(index);
    }
    let mut order = Vec::with_capacity(kept);
    let mut todo: Vec<u32> = inside.get(&None).into_iter().flatten().rev().copied().collect();
    while let Some(index) = todo.pop() {
        order.push(index);
        todo.extend(inside.get(&Some(index)).into_iter().flatten().rev());
    }
    order
}

pub(super) fn section(source: &Source<'_>, names: &mut Names, diagrams: &mut Vec<Value>) -> String {
    let profile = source.profile;
    if profile.spans.is_empty() {
        return String::new();
    }
    if profile.kept.is_some() {
        return reason(
            "Passes were kept by how slow they are, so there is no flame view of all: the tables have their sums.",
        );
    }
    let (frames, left_out) = summed(source);
    let order = shown(&frames);
    let place: HashMap<u32, usize> = order.iter().copied().zip(0..).collect();
    let text = |frame: &Frame| match frame.key {
        Key::Phase(phase) => heading(phase).to_owned(),
        Key::Layer(_) => "layer".to_owned(),
        Key::Named(name) => {
            profile.names.get(usize::from(name)).map_or("?".to_owned(), |name| name.name.clone())
        }
    };
    let mut paths: HashMap<u32, Vec<Value>> = HashMap::new();
    let mut rows = Vec::with_capacity(order.len());
    let columns = ["Frame", "#Layer", "#Spans", "#Time", "#of its phase"];
    let mut table = Table::of_class("frames", "All frames of the flame view", &columns);
    for &index in &order {
        let frame = &frames[index as usize];
        let step = match frame.key {
            Key::Phase(phase) => json!({"phase": phase}),
            Key::Layer(layer) => json!({"layer": layer}),
            Key::Named(name) => json!({"name": name}),
        };
        let mut path =
            frame.parent.and_then(|parent| paths.get(&parent)).cloned().unwrap_or_default();
        path.push(step);
        let (name, layer) = match frame.key {
            Key::Phase(phase) => (names.phase(phase), None),
            Key::Layer(layer) => (names.layer(), layer),
            Key::Named(name) => match profile.names.get(usize::from(name)) {
                Some(name) => (names.of(profile, &name.name, name.kind), None),
                None => (names.unknown(), None),
            },
        };
        let outer = frame.parent.and_then(|parent| place.get(&parent)).map_or(-1, |&at| at as i64);
        rows.push(json!([outer, name, layer, frame.count, frame.ns, path.last()]));
        let from = |column: &str| -> From { json!(["flame", source.base, column, path]) };
        let ns_from = match frame.key {
            Key::Phase(Some(phase)) => source.of_phase(phase, "wall_ns"),
            _ => from("duration_ns"),
        };
        let depth = path.len() - 1;
        let root = path[0].clone();
        let root_ns = match frame.parent {
            None => frame.ns,
            Some(_) => {
                let mut at = index;
                while let Some(parent) = frames[at as usize].parent {
                    at = parent;
                }
                frames[at as usize].ns
            }
        };
        let root_from: From = match serde_json::from_value::<Option<Phase>>(root["phase"].clone()) {
            Ok(Some(phase)) => source.of_phase(phase, "wall_ns"),
            _ => json!(["flame", source.base, "duration_ns", [root]]),
        };
        let name_cell = match frame.key {
            Key::Named(_) => said(&text(frame)),
            _ => text(frame),
        };
        let layer_cell = layer.map_or_else(String::new, |layer| {
            count(u64::from(layer), json!(["layer", source.base, layer]))
        });
        let share = frame.ns as f64 / root_ns as f64;
        let spans = match frame.key {
            Key::Phase(_) => String::new(),
            _ => count(frame.count, from("count")),
        };
        table.row(&[
            &format!("<span class=\"d{}\">{name_cell}</span>", depth.min(6)),
            &layer_cell,
            &spans,
            &time(frame.ns, ns_from.clone()),
            &percent(share, div(ns_from, root_from)),
        ]);
        paths.insert(index, path);
    }
    let number = diagrams.len();
    diagrams.push(json!({"base": source.base, "frames": rows}));
    let mut html = format!(
        "<div class=\"diagram js\" data-flame=\"{number}\"></div>\n<noscript><p class=\"note\">The flame view needs \
         JavaScript; the table below has its numbers.</p></noscript>\n"
    );
    if left_out > 0 || order.len() < frames.len() {
        html.push_str(&note(
            "There are more frames than this view shows; the shortest are left out.",
        ));
    }
    html.push_str(&note(
        "The width is measured time from start to end, summed over the passes that the tables are of. Frames below a frame ran inside of \
        it; the free space there is its own time.",
    ));
    html + &details("All frames as a table", &table.end())
}
