//! Layers on devices in words: on the first screen, in the report, and in what to do next.

use brickscope_profile::text::{brief, count, printable_text};
use brickscope_profile::{GraphLayersBy, Profile};

use crate::layers::{DeviceLayers, SlowOne};
use crate::words::{fraction, time};

/// The most devices and phases whose slow layers the report names.
const MOST: usize = 8;
/// The most bricks outside of layers that the first screen names.
const MOST_OUTSIDE: usize = 2;
/// With less of the time than this, what is outside isn't worth a word.
const LEAST_OUTSIDE: f64 = 0.001;
/// A kind of fewer layers than this part of them is no typical one.
const LEAST_OF_KIND: f64 = 1.0 / 6.0;

/// `24 by the order of kernels, 96.7 % · median 431 µs · layer 17: 780 µs (Experts 520 µs, elsewhere 172 µs) · outside
/// LmHead 2.6 %`
pub(super) fn in_summary(of: &DeviceLayers) -> String {
    let share = fraction(of.share(of.in_layers_ns));
    let mut parts = vec![format!("{} {}, {share}", of.layers, by(of.by))];
    parts.extend(medians(of));
    parts.extend(of.slow.as_ref().map(slow_in_short));
    let outside: Vec<String> = of
        .outside
        .iter()
        .filter(|brick| of.share(brick.ns) >= LEAST_OUTSIDE)
        .take(MOST_OUTSIDE)
        .map(|brick| format!("{} {}", brief(&brick.brick), fraction(of.share(brick.ns))))
        .collect();
    if !outside.is_empty() {
        parts.push(format!("outside {}", outside.join(", ")));
    }
    parts.join(" · ")
}

/// How the layers are known.
fn by(by: Option<GraphLayersBy>) -> &'static str {
    match by {
        Some(GraphLayersBy::Capture) => "by the trace of the capture",
        Some(GraphLayersBy::Annotations) => "by notes on kernels",
        Some(GraphLayersBy::Sequence) => "by the order of kernels",
        None => "by ranges",
    }
}

/// What a layer takes: of one kind, or of two that take turns.
fn medians(of: &DeviceLayers) -> Option<String> {
    let is_typical = |layers: usize| layers as f64 >= LEAST_OF_KIND * of.layers as f64;
    let kinds: Vec<u64> = of
        .kinds
        .iter()
        .filter(|kind| is_typical(kind.layers.len()))
        .map(|kind| kind.median_ns)
        .collect();
    match kinds[..] {
        [one] => Some(format!("median {}", time(one as f64))),
        [a, b] => Some(format!("medians {} and {}", time(a as f64), time(b as f64))),
        _ => None,
    }
}

fn slow_in_short(slow: &SlowOne) -> String {
    let more = if slow.more > 0 { format!(", {} more are slow", slow.more) } else { String::new() };
    let [takes, brick_takes, others] =
        [slow.takes_ns, slow.brick_ns, slow.brick_of_others_ns].map(|ns| time(ns as f64));
    let brick = brief(&slow.brick);
    format!("layer {}: {takes} ({brick} {brick_takes}, elsewhere {others}){more}", slow.layer)
}

/// What a reader of the whole report is told of layers: sentences without a full stop.
pub(super) fn in_words(profile: &Profile) -> Vec<String> {
    let known = profile.imported.iter().filter_map(|imported| imported.graph_layers.as_ref());
    let mut all: Vec<String> = known
        .map(|of| {
            let told = match of.by {
                GraphLayersBy::Capture => "the trace of the graph's capture",
                GraphLayersBy::Annotations => "what the file notes of each",
                GraphLayersBy::Sequence => "the order of the kernels",
            };
            let detail = match of.detail.is_empty() {
                true => String::new(),
                false => format!("; {}", printable_text(&of.detail)),
            };
            format!(
                "{} of {} in graphs have their layer: told by {told}, {}{detail}",
                of.kernels,
                count(of.of_kernels, "kernel"),
                count(of.layers.into(), "layer")
            )
        })
        .collect();
    let layers = DeviceLayers::all(profile);
    all.extend(layers.iter().filter_map(slow_in_words).take(MOST));
    all
}

fn slow_in_words(of: &DeviceLayers) -> Option<String> {
    let slow = of.slow.as_ref()?;
    let [takes, others, brick_takes, brick_of_others] =
        [slow.takes_ns, slow.others_ns, slow.brick_ns, slow.brick_of_others_ns]
            .map(|ns| time(ns as f64));
    Some(format!(
        "layer {} takes {takes} a pass of {} on device {}, the median layer with the same bricks {others}: {} takes \
         {brick_takes} there and {brick_of_others} elsewhere; it is slow in {} of {}",
        slow.layer,
        of.phase,
        of.device,
        brief(&slow.brick),
        slow.slow_in,
        count(slow.passes as u64, "pass")
    ))
}

/// What to look into, where a brick with this share of the device's time takes the most, and layers are known.
pub(super) fn next(of: &DeviceLayers, brick: &str, share: &str) -> String {
    let whole = if of.is_of_busy_time { "busy time" } else { "time" };
    let times = of
        .times_a_layer(brick)
        .map_or_else(String::new, |times| format!(", {} a layer", count(times, "kernel")));
    let slow = of.slow.as_ref().map_or_else(String::new, |slow| {
        format!(
            "; and at layer {}, where {} takes {}, elsewhere {}",
            slow.layer,
            brief(&slow.brick),
            time(slow.brick_ns as f64),
            time(slow.brick_of_others_ns as f64)
        )
    });
    format!("look into {}: {share} of the device's {whole}{times}{slow}", brief(brick))
}
