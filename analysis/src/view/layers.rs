//! Layers on devices in words: on the first screen, in the report, and in what to do next.

use brickscope_profile::text::{brief, count, printable_text};
use brickscope_profile::{GraphLayersBy, Profile};

use crate::layers::{DeviceLayers, KindOfLayers, SlowOne};
use crate::view::device::which;
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
    let share = of.in_layers_ran_ns.map(|ns| format!(", {}", fraction(of.share(ns))));
    let mut parts = vec![format!("{} {}{}", of.layers, by(of.by), share.unwrap_or_default())];
    let medians = medians(of);
    // Said once, of the first time.
    let without = |is_first: bool| match is_first && of.has_collectives() {
        true => " without collectives",
        false => "",
    };
    let has_medians = medians.is_some();
    parts.extend(medians.map(|medians| medians + without(true)));
    let when = |slow: &SlowOne| match (slow.passes, of.passes) {
        (1, 1) => " in the one pass there is",
        (1, _) => " in the one pass where it has its like",
        _ => "",
    };
    let slow = of.slow.as_ref();
    parts.extend(slow.map(|slow| slow_in_short(slow, without(!has_medians), when(slow))));
    let outside: Vec<String> = of
        .outside
        .iter()
        .filter_map(|brick| Some((&brick.brick, of.share(brick.ran_ns?))))
        .filter(|&(_, share)| share >= LEAST_OUTSIDE)
        .take(MOST_OUTSIDE)
        .map(|(brick, share)| format!("{} {}", brief(brick), fraction(share)))
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

/// What a layer takes: of one kind, or of each of two, `medians odd 424 µs, even 458 µs`.
fn medians(of: &DeviceLayers) -> Option<String> {
    let is_typical = |layers: usize| layers as f64 >= LEAST_OF_KIND * of.layers as f64;
    let kinds: Vec<&KindOfLayers> = of
        .kinds
        .iter()
        // Those of 0 are of collectives alone.
        .filter(|kind| is_typical(kind.layers.len()) && kind.median_ns > 0)
        .collect();
    match kinds[..] {
        [one] => Some(format!("median {}", time(one.median_ns as f64))),
        [a, b] => {
            let [a, b] = [a, b].map(|kind| with_its_layers(kind, [a, b]));
            Some(format!("medians {a}, {b}"))
        }
        _ => None,
    }
}

/// What one of two kinds takes: that of even or of odd layers where they alternate, or else that of layers like its first.
fn with_its_layers(kind: &KindOfLayers, both: [&KindOfLayers; 2]) -> String {
    let parity = |of: &KindOfLayers| {
        let first = of.layers.first()?;
        let is_every_second = of.layers.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == 2);
        is_every_second.then_some(first % 2)
    };
    let takes = time(kind.median_ns as f64);
    match (parity(kind), both.map(parity)) {
        (Some(0), [Some(a), Some(b)]) if a != b => format!("even {takes}"),
        (Some(_), [Some(a), Some(b)]) if a != b => format!("odd {takes}"),
        _ => {
            let first = kind.layers.first().copied().unwrap_or_default();
            format!("{takes} (as layer {first})")
        }
    }
}

fn slow_in_short(slow: &SlowOne, without: &str, when: &str) -> String {
    let more = match slow.more {
        0 => String::new(),
        1 => ", 1 more is slow".to_owned(),
        n => format!(", {n} more are slow"),
    };
    let [takes, brick_takes, others] =
        [slow.takes_ns, slow.brick_ns, slow.brick_of_others_ns].map(|ns| time(ns as f64));
    let brick = brief(&slow.brick);
    format!(
        "layer {}: {takes}{without}{when} ({brick} {brick_takes}, elsewhere {others}){more}",
        slow.layer
    )
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
                "{} of {} in graphs {}: told by {told}, {}{detail}",
                of.kernels,
                count(of.of_kernels, "kernel"),
                if of.kernels == 1 { "has its layer" } else { "have their layer" },
                count(of.layers.into(), "layer")
            )
        })
        .collect();
    let layers = DeviceLayers::all(profile);
    all.extend(layers.iter().filter_map(|of| slow_in_words(profile, of)).take(MOST));
    all
}

fn slow_in_words(profile: &Profile, of: &DeviceLayers) -> Option<String> {
    let slow = of.slow.as_ref()?;
    let [takes, others, brick_takes, brick_of_others] =
        [slow.takes_ns, slow.others_ns, slow.brick_ns, slow.brick_of_others_ns]
            .map(|ns| time(ns as f64));
    Some(format!(
        "layer {} takes {takes} a pass of {} on {}{}, the median layer with the same bricks {others}: {} takes \
         {brick_takes} there and {brick_of_others} elsewhere; it is slow in {} of {}",
        slow.layer,
        of.phase,
        which(profile, of.device),
        if of.has_collectives() { " without collectives" } else { "" },
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

#[cfg(test)]
mod tests {
    use brickscope_profile::Phase;

    use super::*;
    use crate::layers::BrickOfLayers;

    fn of(brick: &str, more: usize) -> DeviceLayers {
        let brick = BrickOfLayers {
            brick: brick.to_owned(),
            ns: 6_000,
            ran_ns: Some(6_000),
            spans: 12,
            times_a_layer: Some(2),
        };
        let slow = SlowOne {
            layer: 2,
            takes_ns: 2_000,
            others_ns: 1_000,
            brick: "Experts".to_owned(),
            brick_ns: 1_800,
            brick_of_others_ns: 800,
            slow_in: 1,
            passes: 1,
            more,
        };
        DeviceLayers {
            device: 0,
            phase: Phase::Decode,
            by: None,
            layers: 6,
            passes: 1,
            in_layers_ns: 6_000,
            in_layers_ran_ns: Some(6_000),
            of_ns: 8_000,
            is_of_busy_time: false,
            bricks: vec![brick],
            outside: Vec::new(),
            kinds: vec![KindOfLayers { layers: (0..6).collect(), median_ns: 1_000 }],
            slow: Some(slow),
            layers_of_passes: 6,
        }
    }

    #[test]
    fn the_line_of_layers_says_what_its_times_are_without() {
        let slow = "layer 2: 2.00 µs in the one pass there is (Experts 1.80 µs, elsewhere 800 ns)";
        assert_eq!(
            in_summary(&of("Experts", 0)),
            format!("6 by ranges, 75.0 % · median 1.00 µs · {slow}")
        );
        let mut with = of("AllReduce", 1);
        assert_eq!(
            in_summary(&with),
            format!(
                "6 by ranges, 75.0 % · median 1.00 µs without collectives · {slow}, 1 more is slow"
            )
        );
        with.kinds.clear();
        assert_eq!(
            in_summary(&with),
            "6 by ranges, 75.0 % · layer 2: 2.00 µs without collectives in the one pass there is (Experts 1.80 µs, elsewhere \
             800 ns), 1 more is slow"
        );
        assert!(in_summary(&of("Experts", 3)).ends_with(", 3 more are slow"));
    }

    #[test]
    fn medians_of_two_kinds_say_whose_they_are() {
        let with = |kinds: [&[u16]; 2]| {
            let mut of = of("Experts", 0);
            of.kinds = (1..)
                .zip(kinds)
                .map(|(n, layers)| KindOfLayers { layers: layers.to_vec(), median_ns: n * 1_000 })
                .collect();
            in_summary(&of)
        };
        for (kinds, said) in [
            ([&[1, 3, 5][..], &[0, 2, 4][..]], " · medians odd 1.00 µs, even 2.00 µs · "),
            ([&[0, 2, 4][..], &[1, 3, 5][..]], " · medians even 1.00 µs, odd 2.00 µs · "),
            (
                [&[0, 1, 3][..], &[2, 5][..]],
                "medians 1.00 µs (as layer 0), 2.00 µs (as layer 2) · ",
            ),
            ([&[1, 3, 5][..], &[0, 2][..]], " · medians odd 1.00 µs, even 2.00 µs · "),
        ] {
            assert!(with(kinds).contains(said), "{}", with(kinds));
        }
    }

    #[test]
    fn what_was_seen_in_one_pass_alone_is_said_to_be() {
        let with = |compared: usize, passes: usize| {
            let mut of = DeviceLayers { passes, ..of("Experts", 0) };
            of.slow.iter_mut().for_each(|slow| slow.passes = compared);
            in_summary(&of)
        };
        assert!(with(1, 1).contains("layer 2: 2.00 µs in the one pass there is ("));
        assert!(with(1, 3).contains("layer 2: 2.00 µs in the one pass where it has its like ("));
        assert!(with(3, 3).contains("layer 2: 2.00 µs ("));
    }
}
