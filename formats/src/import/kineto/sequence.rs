//! The layers of a model, from nothing but the sequence of its kernels: it repeats once a layer.
//!
//! The sequence is `prologue, N × body, epilogue`. Kernels count as equal if the table has one brick for them, since an
//! autotuner may take another tile for one layer. Several bodies may take turns, as where attention over a window and over
//! everything alternate, and the first layers may be others, as where they have no experts. A layer begins at its first
//! norm. Where it isn't clear, there is none: a wrong layer is worse than an unknown one.

use std::collections::HashMap;
use std::ops::Range;

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

impl Layers {
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

impl Token {
    fn is_product(self) -> bool {
        matches!(self, Self::Product | Self::Experts)
    }
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
}

/// The most kernels of one pass that are searched, and the longest period: time grows with their product.
const MOST_KERNELS: usize = 1 << 15;
const LONGEST_PERIOD: usize = 768;

/// A period has to repeat so many times.
const LEAST_TIMES: usize = 3;

/// The layers of a sequence, or why they aren't known.
pub(super) fn layers(tokens: &[Token]) -> Result<Layers, &'static str> {
    if tokens.len() > MOST_KERNELS {
        return Err("a pass has too many kernels to search");
    }
    let (run, period) = repeated(tokens).ok_or("its kernels don't repeat")?;
    if !tokens[run.clone()].contains(&Token::Mixer) {
        return Err("no kernel that repeats is attention by the table of bricks");
    }
    let mut best: Vec<(Vec<usize>, usize)> = Vec::new();
    for first in run.start..run.start + period {
        if tokens[first] != Token::Norm {
            continue;
        }
        let Some(body) = body(tokens, first, period) else { continue };
        let found = grown(tokens, first, period, &body, run.end);
        match best.first().map_or(0, |(starts, _)| starts.len()) {
            most if found.len() > most => best = vec![(found, body.len())],
            // Of bodies that take turns, each may be the first of a period.
            most if found.len() == most && best.iter().all(|(known, _)| *known != found) => {
                best.push((found, body.len()));
            }
            _ => {}
        }
    }
    // Else a norm within layers would do as well, if the last one isn't whole: then there is attention before the first.
    let mut unclear = None;
    let mut sure = Vec::new();
    for (mut starts, together) in best.into_iter().filter(|(starts, _)| starts.len() > 1) {
        match before(tokens, &mut starts) {
            Ok(()) => sure.push((starts, together)),
            Err(Unclear::Why(why)) => unclear = Some(why),
            Err(Unclear::Hole(end)) => {
                let mut before = layers(&tokens[..end])?;
                before.of.resize(tokens.len(), None);
                before.bricks.resize(tokens.len(), None);
                if !before.breaks_off {
                    before.breaks_off = true;
                    before.forget_last();
                }
                return Ok(before);
            }
        }
    }
    // A norm that ends each layer would do as well, but for the first one.
    let first_is_as_others = |starts: &[usize], together: usize| {
        let layer = |nth: usize| tokens.get(*starts.get(nth)?..*starts.get(nth + 1)?);
        layer(0).is_some_and(|first| layer(together) == Some(first))
    };
    for is_right in [&first_is_as_others as &dyn Fn(&[usize], usize) -> bool, &|starts, _| {
        starts.last().is_some_and(|&end| tokens.get(end) == Some(&Token::Norm))
    }] {
        if sure.len() > 1 && sure.iter().any(|(starts, together)| is_right(starts, *together)) {
            sure.retain(|(starts, together)| is_right(starts, *together));
        }
    }
    let [(starts, together)] = &sure[..] else {
        return Err(unclear
            .filter(|_| sure.is_empty())
            .unwrap_or("where a layer begins isn't clear"));
    };
    let (first, end) = (starts[0], starts[starts.len() - 1]);
    if first == 0 {
        return Err(
            "nothing comes before its first layer, so that layers before it may be missing",
        );
    }
    let mut layers = Layers {
        of: vec![None; tokens.len()],
        bricks: vec![None; tokens.len()],
        count: starts.len() as u32 - 1,
        together: *together,
        breaks_off: tokens[end..].contains(&Token::Mixer),
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
        layers.forget_last();
    } else if tokens.get(end) == Some(&Token::Norm) {
        // The product behind the last norm.
        let behind = tokens[end..].iter().position(|token| *token == Token::Product);
        if let Some(product) = behind.map(|at| end + at) {
            layers.bricks[product] = Some("LmHead");
        }
    }
    Ok(layers)
}

/// Why the layers before those that repeat can't be numbered.
enum Unclear {
    Why(&'static str),
    /// The same layers come before, and then something else: kernels are missing. What is behind them begins here.
    Hole(usize),
}

/// The longest range in which each kernel is the one of a period before; of several periods with the same range the
/// shortest.
fn repeated(tokens: &[Token]) -> Option<(Range<usize>, usize)> {
    let mut best: Option<(Range<usize>, usize)> = None;
    for period in 3..=LONGEST_PERIOD.min(tokens.len() / LEAST_TIMES) {
        let mut begin = 0;
        for at in 0..=tokens.len() - period {
            let is_same = tokens.get(at + period).is_some_and(|later| *later == tokens[at]);
            if is_same {
                continue;
            }
            let run = begin..at + period;
            begin = at + 1;
            let is_enough = run.len() >= LEAST_TIMES * period;
            if is_enough && best.as_ref().is_none_or(|(most, _)| run.len() > most.len()) {
                best = Some((run, period));
            }
        }
    }
    best
}

/// The lengths of the layers that a period has, if its first one begins at `first`. `None` if that can't be.
fn body(tokens: &[Token], first: usize, period: usize) -> Option<Vec<usize>> {
    let of = tokens.get(first..first + period)?;
    let mixers = mixers(of);
    let head = *mixers.first()?;
    if mixers.len() == 1 {
        return Some(vec![period]);
    }
    // Several layers that take turns: each begins as the first one does.
    let mut starts = vec![0];
    for &mixer in mixers.get(1..)? {
        let from = starts.last().map_or(0, |start| start + 1);
        starts.push(begin(of, from, mixer, &of[..head])?);
    }
    starts.push(period);
    let mut lengths = Vec::new();
    for (bounds, mixer) in starts.windows(2).zip(&mixers) {
        // Two mixers of one layer would be halves of it, without a network behind them: only the projection of what they
        // computed.
        let tail = of.get(*mixer..bounds[1])?;
        let products = tail.iter().filter(|token| token.is_product()).count();
        let norm = tail.iter().position(|token| *token == Token::Norm);
        let has_network =
            norm.is_some_and(|norm| tail[norm..].iter().any(|token| token.is_product()));
        if products < 2 && !has_network {
            return None;
        }
        lengths.push(bounds[1].checked_sub(bounds[0])?);
    }
    Some(lengths)
}

/// Where what mixes tokens begins. Kernels of one are those without a product between them.
fn mixers(tokens: &[Token]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_new = true;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Mixer if is_new => {
                found.push(at);
                is_new = false;
            }
            token if token.is_product() => is_new = true,
            _ => {}
        }
    }
    found
}

/// Where layers begin, and where the last one ends: from those that repeat exactly, on to both sides as long as a layer has
/// hardly a kernel that the one of a period before hasn't.
fn grown(
    tokens: &[Token],
    first: usize,
    period: usize,
    body: &[usize],
    run_end: usize,
) -> Vec<usize> {
    let is_alike = |from: usize, to: usize, length: usize| {
        let (one, other) = (tokens.get(from..from + length), tokens.get(to..to + length));
        one.zip(other).is_some_and(|(one, other)| are_alike(one, other))
    };
    let mut starts = vec![first];
    let mut at = first;
    for &length in body.iter().cycle() {
        let is_first_period = at < first + period;
        let is_whole = match is_first_period {
            true => at + length <= run_end,
            false => is_alike(at - period, at, length),
        };
        if !is_whole {
            break;
        }
        at += length;
        starts.push(at);
    }
    let mut begin = first;
    for &length in body.iter().rev().cycle() {
        let Some(start) = begin.checked_sub(length) else { break };
        if !is_alike(start + period, start, length) {
            break;
        }
        begin = start;
        starts.insert(0, start);
    }
    starts
}

/// Whether two layers have the same kernels, but for hardly one, which is none of those that layers are told by. The first
/// one of `other` may be anything that isn't known.
fn are_alike(one: &[Token], other: &[Token]) -> bool {
    let tells = |token: Token| matches!(token, Token::Norm | Token::Mixer);
    let pairs = one.iter().zip(other).enumerate();
    let mut others = pairs.filter(|(_, (one, other))| one != other);
    one.len() == other.len()
        && others.clone().count() <= one.len() / 8
        && others.all(|(at, (one, other))| {
            !tells(*one) && !tells(*other) || at == 0 && matches!(other, Token::Other(_))
        })
}

/// Whether two layers, or begins of them, have the same kernels of those that layers are told by, and hardly more or less of
/// others: a compiler fuses some of the first layer's with the embedding.
fn are_near(one: &[Token], other: &[Token]) -> bool {
    let known = |tokens: &[Token]| -> Vec<Token> {
        tokens.iter().filter(|token| !matches!(token, Token::Other(_))).copied().collect()
    };
    one.len().abs_diff(other.len()) <= 2 && known(one) == known(other)
}

/// What a layer has behind its attention.
fn behind_mixer(layer: &[Token]) -> &[Token] {
    let last = layer.iter().rposition(|token| *token == Token::Mixer);
    last.map_or(layer, |last| &layer[last..])
}

/// Where the layer of a mixer begins, not before `from`: at a norm, with what is near the head of other layers.
fn begin(tokens: &[Token], from: usize, mixer: usize, head: &[Token]) -> Option<usize> {
    (from..mixer)
        .rev()
        .take(head.len() + 3)
        .find(|&start| tokens[start] == Token::Norm && are_near(head, &tokens[start..mixer]))
}

/// Adds the layers that come before those that repeat and begin as they do, but go on otherwise. If anything else there
/// looks like a layer, no number is sure.
fn before(tokens: &[Token], starts: &mut Vec<usize>) -> Result<(), Unclear> {
    const OTHERS: Unclear = Unclear::Why("other layers come before those that repeat");
    let first = starts[0];
    let body = &tokens[first..starts[1]];
    let head = body.iter().position(|token| *token == Token::Mixer).ok_or(OTHERS)?;
    let mut others: Vec<usize> = Vec::new();
    for mixer in mixers(&tokens[..first]) {
        let from = others.last().map_or(0, |start| start + 1);
        match begin(tokens, from, mixer, &body[..head]) {
            Some(start) => others.push(start),
            // Layers came before, and then one that lost its begin.
            None if !others.is_empty() => return Err(Unclear::Hole(mixer)),
            None => return Err(OTHERS),
        }
    }
    let ends = others.iter().skip(1).copied().chain([first]);
    let of: Vec<&[Token]> = others
        .iter()
        .zip(ends)
        .map(|(start, end)| tokens.get(*start..end).unwrap_or_default())
        .collect();
    let bodies = starts.windows(2).map(|bounds| &tokens[bounds[0]..bounds[1]]);
    if let [other] = of[..]
        && tokens[..others[0]].iter().all(|token| !token.is_product())
        && bodies.clone().any(|body| body.len() != other.len() && are_near(body, other))
    {
        starts.insert(0, others[0]);
        return Ok(());
    }
    if bodies.clone().any(|body| of.iter().any(|other| are_alike(body, other))) {
        return Err(Unclear::Hole(first));
    }
    // Of a layer that lost kernels, or of several, a begin and an end are left.
    let is_rest = |other: &[Token]| {
        let mut bodies = bodies.clone();
        bodies.any(|body| {
            let begin = body.iter().zip(other).take_while(|(one, other)| one == other).count();
            let ends = body.iter().rev().zip(other.iter().rev());
            begin + ends.take_while(|(one, other)| one == other).count() >= other.len()
        })
    };
    match of[..] {
        [] => {}
        [other] if !is_rest(other) => {}
        // Their attention may take turns, as that of the others does.
        [one, ref others @ ..]
            if !others.is_empty()
                && others.iter().all(|other| are_near(behind_mixer(one), behind_mixer(other))) => {}
        _ => return Err(OTHERS),
    }
    // A part of a layer whose begin isn't there: then layers before it may be missing, too.
    let prologue = &tokens[..others.first().copied().unwrap_or(first)];
    let is_of_a_layer =
        |token: &Token| token.is_product() || matches!(token, Token::Activation | Token::Router);
    let end = &tokens[..starts[starts.len() - 1]];
    let is_part = prologue.iter().any(is_of_a_layer) || end.ends_with(prologue);
    if !prologue.is_empty() && is_part {
        return Err(Unclear::Why("its first kernels look like a part of a layer that isn't whole"));
    }
    starts.splice(0..0, others);
    Ok(())
}

/// Which product is which, by its place in the layer: the projections before attention, the one behind it, and those of the
/// feed-forward network around its activation.
fn place(tokens: &[Token], layer: Range<usize>, bricks: &mut [Option<&'static str>]) {
    let of = &tokens[layer.clone()];
    let at = |token: Token| of.iter().position(|one| *one == token);
    let (Some(mixer), Some(0)) = (at(Token::Mixer), at(Token::Norm)) else { return };
    let last = of.iter().rposition(|token| *token == Token::Mixer).unwrap_or(mixer);
    // The norm before the network.
    let norm = of[last..].iter().position(|token| *token == Token::Norm).map(|at| last + at);
    let Some(norm) = norm else { return };
    let products = |range: Range<usize>| -> Vec<usize> {
        range.filter(|&at| of[at] == Token::Product).collect()
    };
    let mut name = |at: usize, brick: &'static str| bricks[layer.start + at] = Some(brick);
    products(0..mixer).into_iter().for_each(|at| name(at, "QkvProjection"));
    if let [output] = products(last..norm)[..] {
        name(output, "OutputProjection");
    }
    let router = of[norm..].iter().position(|token| *token == Token::Router).map(|at| norm + at);
    let mut network = norm;
    if let Some(router) = router {
        if let [product] = products(norm..router)[..] {
            name(product, "Router");
        }
        network = router;
    }
    let activations: Vec<usize> =
        (network..of.len()).filter(|&at| of[at] == Token::Activation).collect();
    let [activation] = activations[..] else { return };
    match (&products(network..activation)[..], &products(activation..of.len())[..]) {
        ([both], [down]) => {
            name(*both, "GateUpProjection");
            name(*down, "DownProjection");
        }
        ([gate, up], [down]) => {
            name(*gate, "GateProjection");
            name(*up, "UpProjection");
            name(*down, "DownProjection");
        }
        _ => {}
    }
}

/// Sequences and what was found of them: the passes of a file are mostly alike.
#[derive(Default)]
pub(super) struct Known(HashMap<Vec<Token>, Result<Layers, &'static str>>);

impl Known {
    pub(super) fn layers(&mut self, tokens: Vec<Token>) -> &Result<Layers, &'static str> {
        self.0.entry(tokens).or_insert_with_key(|tokens| layers(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter for each kernel: N norm, P product, A attention, S activation, R router, E experts; others are themselves.
    fn tokens(text: &str) -> Vec<Token> {
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
        match layers(&tokens(text)) {
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
        let holed = layers(&tokens(&text)).expect("layers");
        assert_eq!((holed.count, holed.breaks_off), (3, true));
        assert_eq!(holed.of.iter().flatten().count(), 3 * BODY.len());
        // Where one of the first layers lost its end, as many may be missing as will.
        assert_eq!(
            found(&format!("ecNPrkAP{four}NP")),
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
            let of = layers(&tokens(&text)).expect("layers").of;
            let known = of.iter().flatten().count();
            assert_eq!(known, 99, "{from} {kernels}: {}", found(&text));
        }
    }

    #[test]
    fn products_are_named_by_their_place() {
        let text = format!("ec{}NPx", "NPPPrkAPNPPSP".repeat(4));
        let layers = layers(&tokens(&text)).expect("layers");
        let names: Vec<&str> = layers.bricks.iter().flatten().copied().take(7).collect();
        let (qkv, rest) = names.split_at(3);
        assert_eq!(qkv, ["QkvProjection"; 3]);
        assert_eq!(rest, ["OutputProjection", "GateProjection", "UpProjection", "DownProjection"]);
        assert_eq!(layers.bricks.iter().flatten().last(), Some(&"LmHead"));
        assert_eq!(layers.count, 4);
    }
}
