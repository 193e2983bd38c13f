//! The layers of a model, from nothing but the sequence of its kernels: it repeats once a layer.
//!
//! The sequence is `prologue, N × body, epilogue`. Kernels count as equal if the table has one brick for them, since an
//! autotuner may take another tile for one layer. Several bodies may take turns, as where attention over a window and over
//! everything alternate, and the first layers may be others, as where they have no experts. A layer begins at its first
//! norm. Where it isn't clear, there is none: a wrong layer is worse than an unknown one.

mod bounds;
mod known;
mod place;
#[cfg(test)]
mod random;
mod several;

use std::cmp::Reverse;

use self::bounds::{of_run, repeated};
pub(super) use self::known::Known;
use self::place::place;
use self::several::{has_head, is_several};

/// What a kernel is to the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Token {
    Norm,
    /// A product with a matrix of weights, of which the table doesn't tell which.
    Product,
    /// What mixes tokens with each other: attention, a state space, linear attention. A layer has one.
    Mixer,
    Activation,
    Router,
    /// Products of experts.
    Experts,
    /// Another brick, or a name that the table doesn't have.
    Other(u32),
}

impl Token {
    fn is_product(self) -> bool {
        matches!(self, Self::Product | Self::Experts)
    }
}

/// Whether a pass has all of its kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whole {
    Sure,
    Unsure,
}

/// What is known of a sequence: for each kernel its layer, and the brick that its place in the layer tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Layers {
    pub(super) of: Vec<Option<u16>>,
    pub(super) bricks: Vec<Option<&'static str>>,
    pub(super) count: u32,
    /// How many layers repeat together.
    pub(super) together: usize,
    /// Whether attention follows behind the last layer: the sequence stops to repeat before its end.
    pub(super) breaks_off: bool,
    /// For how long nothing ran in a graph, where that is long enough for whole layers to be missing.
    pub(super) pause_ns: Option<i64>,
}

impl Layers {
    /// Those of the begin of a pass of so many kernels, of which some are missing behind it.
    pub(super) fn before_a_hole(mut self, kernels: usize) -> Self {
        // The product behind the last layer may be of the next one.
        for (_, brick) in self.of.iter().zip(&mut self.bricks).filter(|(of, _)| of.is_none()) {
            *brick = None;
        }
        self.of.resize(kernels, None);
        self.bricks.resize(kernels, None);
        self.breaks_off = true;
        self
    }

    /// Where kernels are missing, the layer before may have the end of a later one.
    fn forget_last(&mut self) {
        let Some(last) = self.count.checked_sub(1) else { return };
        for (of, brick) in self.of.iter_mut().zip(&mut self.bricks) {
            if of.is_some_and(|of| u32::from(of) == last) {
                (*of, *brick) = (None, None);
            }
        }
        self.count = last;
    }
}

/// The most kernels of one pass that are searched.
const MOST_KERNELS: usize = 1 << 15;

/// So many parts of a sequence that repeat are tried.
const MOST_RUNS: usize = 8;

/// Why a draft model's layers before the others, or its steps, are no layers of theirs.
const WITH_HEAD: &str =
    "a head comes behind a layer that isn't the last, as those of a draft model have it";

/// The layers of a sequence, or why they aren't known. Where kernels may be missing, layers are known as far as they repeat
/// from the first one on.
pub(super) fn layers(tokens: &[Token], whole: Whole) -> Result<Layers, &'static str> {
    if tokens.len() > MOST_KERNELS {
        return Err("a pass has too many kernels to search");
    }
    let mut runs = repeated(tokens);
    if runs.is_empty() {
        return Err("its kernels don't repeat");
    }
    runs.retain(|run| tokens[run.at.clone()].contains(&Token::Mixer));
    if runs.is_empty() {
        return Err("no kernel that repeats is attention by the table of bricks");
    }
    // The longest; kernels may be missing before it, and the layers that come first are those that can be counted.
    runs.sort_by_key(|run| (Reverse(run.at.len()), run.period));
    if let Whole::Unsure = whole {
        runs.get_mut(1..).unwrap_or_default().sort_by_key(|run| (run.at.start, run.period));
        runs.truncate(MOST_RUNS);
    } else {
        runs.truncate(1);
    }
    let mut found = Err("its kernels don't repeat");
    for run in &runs {
        let of_run = of_run(tokens, run, whole);
        if of_run.is_ok() || run.at == runs[0].at {
            found = of_run;
        }
        if found.is_ok() {
            break;
        }
    }
    let (starts, together) = found?;
    let (first, end) = (starts[0], starts[starts.len() - 1]);
    if first == 0 {
        return Err(
            "nothing comes before its first layer, so that layers before it may be missing",
        );
    }
    if starts.windows(2).any(|bounds| is_several(&tokens[bounds[0]..bounds[1]])) {
        return Err("some layers have no kernel that is attention by the table of bricks");
    }
    if starts.windows(2).any(|bounds| has_head(&tokens[bounds[0]..bounds[1]])) {
        return Err(WITH_HEAD);
    }
    let mut layers = Layers {
        of: vec![None; tokens.len()],
        bricks: vec![None; tokens.len()],
        count: starts.len() as u32 - 1,
        together,
        breaks_off: tokens[end..].contains(&Token::Mixer),
        pause_ns: None,
    };
    for (number, bounds) in starts.windows(2).enumerate() {
        let number = u16::try_from(number).map_err(|_| "it has too many layers")?;
        let layer = bounds[0]..bounds[1];
        layers.of[layer.clone()].fill(Some(number));
        // A norm that was fused with the embedding is of both.
        if tokens[layer.start] != Token::Norm {
            layers.of[layer.start] = None;
        }
        place(tokens, layer, &mut layers.bricks);
    }
    if layers.breaks_off {
        // Where none is missing, what follows is of other layers, as those of a draft model.
        if whole == Whole::Unsure {
            layers.forget_last();
        }
    } else if tokens.get(end) == Some(&Token::Norm) {
        // The only product behind the last norm: else a part of a layer may follow.
        let mut products = (end..tokens.len()).filter(|&at| tokens[at].is_product());
        if let (Some(product), None) = (products.next(), products.next()) {
            layers.bricks[product] = Some("LmHead");
        }
    }
    Ok(layers)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A letter for each kernel: N norm, P product, A attention, S activation, R router, E experts; others are themselves.
    pub(in super::super) fn tokens(text: &str) -> Vec<Token> {
        let token = |c: char| match c {
            'N' => Token::Norm,
            'P' => Token::Product,
            'A' => Token::Mixer,
            'S' => Token::Activation,
            'R' => Token::Router,
            'E' => Token::Experts,
            c => Token::Other(c as u32),
        };
        text.chars().filter(|c| *c != ' ').map(token).collect()
    }

    /// The number of each kernel's layer in hexadecimal, `.` for none.
    fn found(text: &str) -> String {
        found_of(text, Whole::Sure)
    }

    fn found_of(text: &str, whole: Whole) -> String {
        match layers(&tokens(text), whole) {
            Ok(layers) => {
                let digit = |of: &Option<u16>| {
                    of.map_or('.', |n| char::from_digit(u32::from(n), 36).unwrap_or('?'))
                };
                layers.of.iter().map(digit).collect()
            }
            Err(why) => why.to_owned(),
        }
    }

    fn spread(layers: &[(&str, char)]) -> (String, String) {
        let text = layers.iter().map(|(body, _)| *body).collect();
        let truth = layers.iter().flat_map(|(body, n)| body.chars().map(|_| *n)).collect();
        (text, truth)
    }

    #[test]
    fn layers_are_counted_from_the_first_norm_to_the_last_but_one() {
        const BODY: &str = "NPrkAPNPSP";
        let (text, truth) = spread(&[
            ("ec", '.'),
            (BODY, '0'),
            (BODY, '1'),
            (BODY, '2'),
            (BODY, '3'),
            ("NPx", '.'),
        ]);
        assert_eq!(found(&text), truth);
        // The norms of queries and keys are within.
        const QK: &str = "NPcNcNrkAaPNPSP";
        let (text, truth) =
            spread(&[("ec", '.'), (QK, '0'), (QK, '1'), (QK, '2'), (QK, '3'), ("NPx", '.')]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn a_norm_may_end_a_layer_too() {
        const BODY: &str = "NPrkAPNNPSPN";
        let (text, truth) = spread(&[
            ("ec", '.'),
            (BODY, '0'),
            (BODY, '1'),
            (BODY, '2'),
            (BODY, '3'),
            ("NPx", '.'),
        ]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn the_first_norm_may_be_another_kernel_and_one_layer_may_have_another_tile() {
        let (text, truth) = spread(&[
            ("ec", '.'),
            ("f", '.'),
            ("PrkAPNPSP", '0'),
            ("NPrkAPNPSP", '1'),
            ("NPrkAPNPSP", '2'),
            ("NPrkAPNPSP", '3'),
            ("NPrkAPNtSP", '4'),
            ("NPrkAPNPSP", '5'),
            ("NPrkAqNPSP", '6'),
            ("NPx", '.'),
        ]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn the_first_layer_may_lack_what_was_fused_with_the_embedding() {
        let (text, truth) = spread(&[
            ("ec", '.'),
            ("NPrkAPNPREEz", '0'),
            ("NPtrkAaPNPREEz", '1'),
            ("NPtrkAPNPREEz", '2'),
            ("NPtrkAaPNPREEz", '3'),
            ("NPtrkAPNPREEz", '4'),
            ("NPtrkAaPNPREEz", '5'),
            ("NPtrkAPNPREEz", '6'),
            ("NPtrkAaPNPREEz", '7'),
            ("N", '.'),
        ]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn bodies_that_take_turns_are_layers_each() {
        let (full, window) = ("NPrkAaPNPREEz", "NPrkAPNPREEz");
        let mut layers = vec![("ec", '.')];
        for (at, number) in "0123456789".chars().enumerate() {
            layers.push((if at % 2 == 0 { window } else { full }, number));
        }
        layers.push(("NP", '.'));
        let (text, truth) = spread(&layers);
        assert_eq!(found(&text), truth);
        // Halves of a layer with two mixers aren't layers.
        let (text, _) = spread(&[("ec", '.'), (&"NPkAPNPlAPNPSP".repeat(4), '.'), ("NP", '.')]);
        assert_eq!(found(&text), "where a layer begins isn't clear");
    }

    #[test]
    fn the_first_layers_may_have_no_experts() {
        const DENSE: &str = "NPrkAPNPSP";
        const SPARSE: &str = "NPrkAPNPREEz";
        let (text, truth) = spread(&[
            ("ec", '.'),
            (DENSE, '0'),
            (DENSE, '1'),
            (SPARSE, '2'),
            (SPARSE, '3'),
            (SPARSE, '4'),
            (SPARSE, '5'),
            (SPARSE, '6'),
            ("NP", '.'),
        ]);
        assert_eq!(found(&text), truth);
        // Attention takes turns in both.
        let (text, truth) = spread(&[
            ("ec", '.'),
            ("NPrkAPNPSP", '0'),
            ("NPrkAAPNPSP", '1'),
            ("NPrkAPNPREEz", '2'),
            ("NPrkAAPNPREEz", '3'),
            ("NPrkAPNPREEz", '4'),
            ("NPrkAAPNPREEz", '5'),
            ("NPrkAPNPREEz", '6'),
            ("NPrkAAPNPREEz", '7'),
            ("NP", '.'),
        ]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn what_is_not_clear_has_no_layers() {
        const BODY: &str = "NPrkAPNPSP";
        const PART: &str = "its first kernels look like a part of a layer that isn't whole";
        let four = BODY.repeat(4);
        for (text, why) in [
            (BODY.repeat(2), "its kernels don't repeat"),
            ("NPrkPNPSP".repeat(4), "no kernel that repeats is attention by the table of bricks"),
            (
                format!("{four}NP"),
                "nothing comes before its first layer, so that layers before it may be missing",
            ),
            (format!("kAPNPSP{four}NP"), "other layers come before those that repeat"),
            (format!("kAPx{four}NP"), "other layers come before those that repeat"),
            (format!("SP{four}NP"), PART),
            (format!("ecNPrkNPSP{four}NP"), PART),
            (format!("z{}NP", "NPrkAPNPSPz".repeat(4)), PART),
            (
                format!("exAPx{}NP", "NAPNPSP".repeat(4)),
                "other layers come before those that repeat",
            ),
            ("xPrkAPyPSP".repeat(4), "where a layer begins isn't clear"),
        ] {
            assert_eq!(found(&text), why, "{text}");
        }
        // Behind a hole in the middle there are none, and the one before it isn't sure.
        let text = format!("ec{four}NPrkAP{four}NP");
        let holed = layers(&tokens(&text), Whole::Unsure).expect("layers");
        assert_eq!((holed.count, holed.breaks_off), (3, true));
        assert_eq!(holed.of.iter().flatten().count(), 3 * BODY.len());
        // Where one of the first layers lost its end, as many may be missing as will.
        assert_eq!(
            found_of(&format!("ecNPrkAP{four}NP"), Whole::Unsure),
            "other layers come before those that repeat"
        );
    }

    #[test]
    fn of_layers_behind_a_hole_none_is_known() {
        const BODY: &str = "NPrkAAPNPSP";
        let whole = BODY.repeat(24);
        // At the begin of a layer, in one, and over the bounds of several.
        for (from, kernels) in [(110, 2), (118, 7), (113, 3), (115, 29)] {
            let text = format!("ccce{}{}NPx", &whole[..from], &whole[from + kernels..]);
            let found = layers(&tokens(&text), Whole::Unsure).expect("layers");
            assert_eq!(found.of.iter().flatten().count(), 99, "{from} {kernels}: {found:?}");
        }
    }

    #[test]
    fn a_norm_that_ends_a_layer_begins_none_before_a_hole() {
        const BODY: &str = "NPNqNrkAAPNNPSPN";
        let (text, truth) =
            spread(&[("yyye", '.'), (BODY, '0'), (BODY, '1'), (BODY, '2'), (BODY, '3')]);
        // The fifth one lost its last norm, or nearly all.
        for part in ["NPNqNrkAAPNNPSP", "NPN"] {
            let found = found_of(&format!("{text}{part}"), Whole::Unsure);
            assert!(found.starts_with(&truth[..truth.len() - BODY.len()]), "{found}");
        }
    }

    #[test]
    fn first_layers_that_are_others_are_sure_only_where_none_is_missing() {
        // A dense layer and the end of a sparse one are as a dense layer with one kernel more.
        let text = format!("ec{}{}NPx", "NPrkAPNPSPz", "NPrkAPNPREEz".repeat(8));
        assert_eq!(found_of(&text, Whole::Sure).matches('0').count(), 11);
        let why = "other layers come before those that repeat";
        assert_eq!(found_of(&text, Whole::Unsure), why);
    }

    #[test]
    fn a_draft_model_takes_no_layer_away_and_adds_none() {
        const BODY: &str = "NPrkAPNPSP";
        // One layer behind a product, or two that are as the others.
        for draft in ["ePNqPrkAPNPSPNPx", "eNPrkAPNPSPNPrkAPNPSPNPx"] {
            let (text, truth) = spread(&[
                ("ec", '.'),
                (BODY, '0'),
                (BODY, '1'),
                (BODY, '2'),
                (BODY, '3'),
                ("NPx", '.'),
                (draft, '.'),
            ]);
            assert_eq!(found(&text), truth);
            let layers = layers(&tokens(&text), Whole::Sure).expect("layers");
            assert_eq!((layers.count, layers.breaks_off), (4, true));
            // Where kernels may be missing, the last one isn't sure.
            let missing = found_of(&text, Whole::Unsure);
            assert_eq!(missing, truth.replace('3', "."));
        }
        // Before the others, and steps of it alone.
        assert_eq!(found(&format!("ec{BODY}NPxec{}NPx", BODY.repeat(4))), WITH_HEAD);
        assert_eq!(found(&format!("ec{}", "NPrkAPNPSPNPx".repeat(4))), WITH_HEAD);
    }

    #[test]
    fn the_first_product_behind_a_hole_is_no_head() {
        // The sixth layer lost all but its begin.
        let begin = tokens(&format!("ec{}NP", "NPrkAPNPSP".repeat(5)));
        let layers = layers(&begin, Whole::Unsure).expect("layers").before_a_hole(60);
        assert_eq!((layers.of.len(), layers.bricks.len(), layers.breaks_off), (60, 60, true));
        assert_eq!(layers.of.iter().flatten().count(), 50);
        assert!(layers.bricks.contains(&Some("DownProjection")));
        assert!(!layers.bricks.contains(&Some("LmHead")), "{layers:?}");
    }

    #[test]
    fn layers_of_an_unknown_mixer_are_no_part_of_others() {
        const WHY: &str = "some layers have no kernel that is attention by the table of bricks";
        let (known, unknown) = ("NPrkAPNPSP", "NPxNPPNPSP");
        for period in [
            format!("{unknown}{unknown}{unknown}{known}"),
            format!("{known}{unknown}"),
            format!("{unknown}{known}"),
        ] {
            assert_eq!(found(&format!("ec{}NP", period.repeat(5))), WHY, "{period}");
        }
        // A dense network beside experts is of the same layer.
        const BOTH: &str = "NPrkAPNPSPNPRdESEz";
        let (text, truth) = spread(&[
            ("ec", '.'),
            (BOTH, '0'),
            (BOTH, '1'),
            (BOTH, '2'),
            (BOTH, '3'),
            ("NPx", '.'),
        ]);
        assert_eq!(found(&text), truth);
    }

    #[test]
    fn norms_before_the_last_products_shift_no_name() {
        for (body, is) in [
            ("NPrkANPNPSNP", &["Qkv", "Output", "GateUp", "Down"][..]),
            ("NPrkANPNPPSP", &["Qkv", "Output", "Gate", "Up", "Down"]),
            // Behind attention and the network.
            ("NPrkAPNNPSPN", &["Qkv", "Output", "GateUp", "Down"]),
            // The gate of what a mixer computes: which of the two is the projection isn't known.
            ("NPkANPPNPSP", &["Qkv", "GateUp", "Down"]),
        ] {
            let text = format!("ec{}NPx", body.repeat(5));
            let layers = layers(&tokens(&text), Whole::Sure).expect("layers");
            let names = layers.bricks.iter().flatten().take(is.len());
            let told: Vec<&str> = names.map(|name| name.trim_end_matches("Projection")).collect();
            assert_eq!(told, is, "{body}");
        }
    }

    #[test]
    fn products_are_named_by_their_place() {
        let text = format!("ec{}NPx", "NPPPrkAPNPPSP".repeat(4));
        let layers = layers(&tokens(&text), Whole::Sure).expect("layers");
        let names: Vec<&str> = layers.bricks.iter().flatten().copied().take(7).collect();
        let (qkv, rest) = names.split_at(3);
        assert_eq!(qkv, ["QkvProjection"; 3]);
        assert_eq!(rest, ["OutputProjection", "GateProjection", "UpProjection", "DownProjection"]);
        assert_eq!(layers.bricks.iter().flatten().last(), Some(&"LmHead"));
        assert_eq!(layers.count, 4);
    }
}
