//! Which experts of a mixture ran, and how long each took.

use std::fmt::Write;

use brickscope_profile::text::{count, percent, printable_text};
use brickscope_profile::{LayerExperts, Phase, Profile};

use crate::view::layout::wrapped;
use crate::words::{size, time};

/// Layers in a table at most.
const MOST_LAYERS: usize = 130;

/// The experts, if any are known.
pub(super) fn in_report(profile: &Profile, text: &mut String) {
    let mut any = false;
    for phase in Phase::SHOWN {
        let of_phase = || profile.experts.iter().filter(|of| of.phase == phase);
        let timed: Vec<&LayerExperts> = of_phase().filter(|of| !of.times.is_empty()).collect();
        if !timed.is_empty() {
            times(phase, &timed, text);
        }
        // Of those with times alone nothing more is known.
        let is_chosen = |of: &&LayerExperts| of.times.is_empty() || of.reads > 0 || of.unread > 0;
        let layers: Vec<&LayerExperts> = of_phase().filter(is_chosen).collect();
        if layers.is_empty() {
            continue;
        }
        text.push('\n');
        wrapped(&heading(phase, &layers), text);
        let read: Vec<&LayerExperts> = layers.iter().copied().filter(|of| of.reads > 0).collect();
        if !read.is_empty() {
            table(&read, text);
            any = true;
        }
        beside(&layers, text);
    }
    if any {
        wrapped(
            "Each time: different experts each time that the layer was computed, on average. Of tokens: which part of the \
             tokens chose the busiest one; / mean: how many times as many as chose an expert on average. Idle: no token \
             chose it.",
            text,
        );
    }
    let is_timed = profile.experts.iter().any(|of| !of.times.is_empty());
    if any && !is_timed {
        wrapped(
            "Time by expert is not known: all experts of a product are computed in one operation, and no clock is read \
             around one.",
            text,
        );
    }
    if is_timed {
        wrapped(
            "Time of experts: of the kernels and copies that were launched in a range of one expert, or that the file notes \
             as its own. A kernel for several experts is of none. Longest: the one that ran longest; of these: its part of the \
             layer's experts; / mean: how many times as long it ran as one of those that ran on average.",
            text,
        );
        if !any {
            wrapped(
                "How many tokens chose each expert, and the bytes of its matrices, are not known: the file doesn't tell them.",
                text,
            );
        }
    }
}

/// How long experts ran: a row for each layer.
fn times(phase: Phase, layers: &[&LayerExperts], text: &mut String) {
    let row = |of: [&str; 7]| {
        let [layer, ran, a_pass, longest, part, mean, kernels] = of;
        let line = format!(
            "{layer:>7} {ran:>6} {a_pass:>10} {longest:>8} {part:>9} {mean:>7} {kernels:>9}"
        );
        format!("{}\n", line.trim_end())
    };
    let _ = writeln!(text, "\nTime of experts in {phase}");
    text.push_str(&row(["Layer", "Ran", "A pass", "Longest", "Of these", "/ mean", "Kernels"]));
    let _ = writeln!(text, "{}", "-".repeat(62));
    for of in layers.iter().take(MOST_LAYERS) {
        let all = of.time_ns() as f64;
        let longest = of.longest();
        let figures = [
            number(of.layer),
            of.times.len().to_string(),
            // A file may contain anything.
            match of.timed_passes {
                0 => "-".to_owned(),
                passes => time(all / passes as f64),
            },
            longest.map_or("-".to_owned(), |longest| format!("#{}", longest.expert)),
            longest.map_or("-".to_owned(), |longest| percent(longest.ns as f64, all)),
            tenths(of.time_imbalance()),
            of.kernels().to_string(),
        ];
        text.push_str(&row(figures.each_ref().map(String::as_str)));
    }
    further(layers.len(), text);
}

fn number(layer: Option<u16>) -> String {
    layer.map_or("none".to_owned(), |layer| layer.to_string())
}

fn tenths(n: Option<f64>) -> String {
    n.map_or("-".to_owned(), |n| format!("{n:.1}"))
}

fn further(layers: usize, text: &mut String) {
    if let more @ 1.. = layers.saturating_sub(MOST_LAYERS) {
        let _ = writeln!(text, "({more} more)");
    }
}

fn heading(phase: Phase, layers: &[&LayerExperts]) -> String {
    let used = layers.iter().filter_map(|of| Some((of.n_used?, of.n_expert?)));
    let (least, most) = (used.clone().min(), used.max());
    match (least, most) {
        (Some((used, all)), Some(same)) if (used, all) == same => {
            format!("Experts in {phase}: each token chooses {used} of {all}")
        }
        _ => format!("Experts in {phase}"),
    }
}

fn table(layers: &[&LayerExperts], text: &mut String) {
    let row = |of: [&str; 8]| {
        let [layer, ran, each, busiest, tokens, mean, idle, read] = of;
        let line = format!(
            "{layer:>7} {ran:>14} {each:>9} {busiest:>8} {tokens:>9} {mean:>7} {idle:>5} {read:>9}"
        );
        format!("{}\n", line.trim_end())
    };
    text.push_str(&row([
        "Layer",
        "Ran",
        "Each time",
        "Busiest",
        "Of tokens",
        "/ mean",
        "Idle",
        "Read",
    ]));
    let _ = writeln!(text, "{}", "-".repeat(75));
    for of in layers.iter().take(MOST_LAYERS) {
        let busiest = of.busiest();
        let figures = [
            number(of.layer),
            match of.n_expert {
                Some(n_expert) => format!("{} of {n_expert}", of.ran()),
                None => of.ran().to_string(),
            },
            tenths(of.different()),
            busiest.map_or("-".to_owned(), |busiest| format!("#{}", busiest.expert)),
            busiest
                .map_or("-".to_owned(), |busiest| percent(busiest.tokens as f64, of.tokens as f64)),
            tenths(of.imbalance()),
            of.idle().map_or("-".to_owned(), |idle| idle.to_string()),
            size(of.bytes() as f64),
        ];
        text.push_str(&row(figures.each_ref().map(String::as_str)));
    }
    further(layers.len(), text);
}

/// What the table lacks.
fn beside(layers: &[&LayerExperts], text: &mut String) {
    let sum = |of: fn(&LayerExperts) -> u64| {
        layers.iter().map(|layer| of(layer)).fold(0, u64::saturating_add)
    };
    let (unread, odd) = (sum(|of| of.unread), sum(|of| of.odd));
    if unread > 0 {
        let why = layers.iter().find_map(|of| of.unread_absent.as_ref());
        let why = why.map_or(String::new(), |why| format!(": {}", printable_text(&why.reason)));
        let all = unread.saturating_add(sum(|of| of.reads));
        let times = count(all, "time");
        wrapped(
            &format!(
                "{unread} of {times} that a layer was computed, its experts are not known{why}"
            ),
            text,
        );
    }
    if odd > 0 {
        wrapped(&format!("{} of no expert, left out", count(odd, "choice")), text);
    }
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Absent, ExpertRuns, ExpertTime};

    use super::*;

    fn layer(phase: Phase, layer: u16, tokens: &[(u32, u64)]) -> LayerExperts {
        let of = |&(expert, tokens): &(u32, u64)| ExpertRuns {
            expert,
            tokens,
            passes: tokens,
            reads: tokens,
            bytes: 1_000_000 * tokens,
        };
        LayerExperts {
            phase,
            layer: Some(layer),
            n_expert: Some(32),
            n_used: Some(4),
            passes: 10,
            reads: 10,
            tokens: 10,
            experts: tokens.iter().map(of).collect(),
            times: Vec::new(),
            timed_passes: 0,
            odd: 0,
            unread: 0,
            unread_absent: None,
        }
    }

    #[test]
    fn each_layer_has_its_busiest_and_its_idle_experts() {
        let mut profile = Profile::empty(Default::default());
        profile.experts = vec![
            layer(Phase::Decode, 0, &[(3, 10), (5, 10), (6, 8), (9, 2), (31, 10)]),
            layer(Phase::Decode, 1, &[(0, 10), (1, 10), (2, 10), (30, 10)]),
        ];
        let mut text = String::new();
        in_report(&profile, &mut text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "Experts in decode: each token chooses 4 of 32");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        // Forty choices, 1.25 of an expert on average.
        assert_eq!(words(lines[4]), "0 5 of 32 4.0 #3 100.0% 8.0 27 40 MB");
        assert_eq!(words(lines[5]), "1 4 of 32 4.0 #0 100.0% 8.0 28 40 MB");
        assert!(text.contains("Time by expert is not known"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn what_is_not_known_is_said_with_the_reason() {
        let mut profile = Profile::empty(Default::default());
        let reason = "they are elsewhere".to_owned();
        let unread = LayerExperts {
            n_used: None,
            passes: 0,
            reads: 0,
            tokens: 0,
            unread: 7,
            unread_absent: Some(Absent { reason }),
            ..layer(Phase::Prefill, 0, &[])
        };
        let odd = LayerExperts { odd: 3, ..layer(Phase::Prefill, 1, &[(1, 2)]) };
        profile.experts = vec![unread];
        let mut text = String::new();
        in_report(&profile, &mut text);
        assert_eq!(
            text,
            "\nExperts in prefill\n7 of 7 times that a layer was computed, its experts are not known: they are\nelsewhere\n"
        );
        profile.experts.push(odd);
        let mut text = String::new();
        in_report(&profile, &mut text);
        assert!(text.contains("\n7 of 17 times that") && text.contains("\n3 choices of no"));
    }

    #[test]
    fn times_are_shown_without_a_word_of_tokens() {
        let mut profile = Profile::empty(Default::default());
        let of = |(expert, ns)| ExpertTime { expert, ns, kernels: 6, passes: 2 };
        profile.experts = vec![LayerExperts {
            n_expert: None,
            n_used: None,
            passes: 0,
            reads: 0,
            tokens: 0,
            times: [(3, 2_000), (17, 6_000)].map(of).to_vec(),
            timed_passes: 2,
            ..layer(Phase::Decode, 5, &[])
        }];
        let mut text = String::new();
        in_report(&profile, &mut text);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "Time of experts in decode");
        // 8 µs in two passes, of which the 17th ran 6: 1.5 times the mean of two.
        assert!(words.contains(" 5 2 4.00 µs #17 75.0% 1.5 12 "), "{text}");
        assert!(words.contains("tokens chose each expert, and the bytes"), "{text}");
        assert!(!words.contains("Experts in decode"), "{text}");
        assert!(!words.contains("Time by expert is not known"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_run_without_experts_has_no_word_of_them() {
        let mut text = String::new();
        in_report(&Profile::empty(Default::default()), &mut text);
        assert_eq!(text, "");
    }
}
