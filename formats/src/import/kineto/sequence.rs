//! The layers of a model, from nothing but the sequence of its kernels: it repeats once a layer.
//!
//! The sequence is `prologue, N × body, epilogue`. Kernels count as equal if the table has one brick for them, since an
//! autotuner may take another tile for one layer. Several bodies may take turns, as where attention over a window and over
//! everything alternate, and the first layers may be others, as where they have no experts. A layer begins at its first
//! norm. Where it isn't clear, there is none: a wrong layer is worse than an unknown one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

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

/// Whether a pass has all of its kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whole {
    Sure,
    Unsure,
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
    /// For how long nothing ran in a graph, where that is long enough for whole layers to be missing.
    pub(super) pause_ns: Option<i64>,
}

/// The most kernels of one pass that are searched, and the longest period: time grows with their product.
const MOST_KERNELS: usize = 1 << 15;
const LONGEST_PERIOD: usize = 768;

/// So many parts of a sequence that repeat are tried.
const MOST_RUNS: usize = 8;

/// A period has to repeat so many times.
const LEAST_TIMES: usize = 3;

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
        layers.forget_last();
    } else if tokens.get(end) == Some(&Token::Norm) {
        // The only product behind the last norm: else a part of a layer may follow.
        let mut products = (end..tokens.len()).filter(|&at| tokens[at].is_product());
        if let (Some(product), None) = (products.next(), products.next()) {
            layers.bricks[product] = Some("LmHead");
        }
    }
    Ok(layers)
}

/// A range in which each kernel is the one of a period before.
struct Run {
    at: Range<usize>,
    period: usize,
}

/// Where the layers of a run begin and end, with those before and behind it; and how many of them repeat together.
fn of_run(tokens: &[Token], run: &Run, whole: Whole) -> Result<(Vec<usize>, usize), &'static str> {
    // What speaks against the longest.
    let mut unclear = (0, UNCLEAR);
    let mut found: Vec<(Vec<usize>, usize)> = Vec::new();
    for first in run.at.start..run.at.start + run.period {
        if tokens[first] != Token::Norm {
            continue;
        }
        let Some(body) = body(tokens, first, run.period) else { continue };
        let mut starts = grown(tokens, first, run.period, &body, run.at.end);
        if starts.len() < 2 {
            continue;
        }
        match before(tokens, &mut starts, whole) {
            // Of bodies that take turns, each may be the first of a period.
            Ok(()) if found.iter().any(|(known, _)| *known == starts) => {}
            Ok(()) => found.push((starts, body.len())),
            Err(why) if starts.len() >= unclear.0 => unclear = (starts.len(), why),
            Err(_) => {}
        }
    }
    let mut keep = |is_right: &dyn Fn(&[usize], usize) -> bool| {
        if found.iter().any(|(starts, together)| is_right(starts, *together)) {
            found.retain(|(starts, together)| is_right(starts, *together));
        }
        found.iter().map(|(starts, _)| starts.len()).max().unwrap_or_default()
    };
    // A norm that ends each layer would do as well, but for the first one.
    let most = keep(&|starts, together| {
        let layer = |nth: usize| tokens.get(*starts.get(nth)?..*starts.get(nth + 1)?);
        layer(0).is_some_and(|first| layer(together) == Some(first))
    });
    keep(&|starts, _| starts.len() == most);
    keep(&|starts, _| starts.last().is_some_and(|&end| tokens.get(end) == Some(&Token::Norm)));
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(unclear.1),
        _ => Err(UNCLEAR),
    }
}

const UNCLEAR: &str = "where a layer begins isn't clear";

/// The ranges that repeat so often that a period of them may be layers.
fn repeated(tokens: &[Token]) -> Vec<Run> {
    let mut runs = Vec::new();
    for period in 3..=LONGEST_PERIOD.min(tokens.len() / LEAST_TIMES) {
        let mut begin = 0;
        for at in 0..=tokens.len() - period {
            let is_same = tokens.get(at + period).is_some_and(|later| *later == tokens[at]);
            if is_same {
                continue;
            }
            let run = begin..at + period;
            begin = at + 1;
            if run.len() >= LEAST_TIMES * period {
                runs.push(Run { at: run, period });
            }
        }
    }
    runs
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
        // Only the first layer of all has its norm fused with the embedding, and nothing else of it is another kernel: else it
        // may be the end of what comes before and a layer that begins later.
        let is_fused = tokens[start] != Token::Norm;
        let rest = |from: usize| tokens.get(from + 1..from + length);
        if !is_alike(start + period, start, length)
            || is_fused
                && (tokens[..start].contains(&Token::Mixer) || rest(start) != rest(start + period))
        {
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
/// looks like a layer, no number is sure; nor is one where kernels may be missing, since a layer that lost some is another
/// one, too.
fn before(tokens: &[Token], starts: &mut Vec<usize>, whole: Whole) -> Result<(), &'static str> {
    const OTHERS: &str = "other layers come before those that repeat";
    let first = starts[0];
    let body = &tokens[first..starts[1]];
    let head = body.iter().position(|token| *token == Token::Mixer).ok_or(OTHERS)?;
    let mut others: Vec<usize> = Vec::new();
    for mixer in mixers(&tokens[..first]) {
        let from = others.last().map_or(0, |start| start + 1);
        others.push(begin(tokens, from, mixer, &body[..head]).ok_or(OTHERS)?);
    }
    let ends = others.iter().skip(1).copied().chain([first]);
    let of: Vec<&[Token]> = others
        .iter()
        .zip(ends)
        .map(|(start, end)| tokens.get(*start..end).unwrap_or_default())
        .collect();
    let mut bodies = starts.windows(2).map(|bounds| &tokens[bounds[0]..bounds[1]]);
    let is_right = match (&of[..], whole) {
        ([], _) => true,
        (_, Whole::Unsure) => false,
        ([other], Whole::Sure)
            if tokens[..others[0]].iter().all(|token| !token.is_product())
                && bodies.any(|body| body.len() != other.len() && are_near(body, other)) =>
        {
            starts.insert(0, others[0]);
            return Ok(());
        }
        ([_], Whole::Sure) => true,
        // Their attention may take turns, as that of the others does.
        ([one, others @ ..], Whole::Sure) => {
            others.iter().all(|other| are_near(behind_mixer(one), behind_mixer(other)))
        }
    };
    if !is_right {
        return Err(OTHERS);
    }
    // A part of a layer whose begin isn't there: then layers before it may be missing, too.
    let prologue = &tokens[..others.first().copied().unwrap_or(first)];
    let is_of_a_layer =
        |token: &Token| token.is_product() || matches!(token, Token::Activation | Token::Router);
    let end = &tokens[..starts[starts.len() - 1]];
    let is_part = prologue.iter().any(is_of_a_layer) || end.ends_with(prologue);
    if !prologue.is_empty() && is_part {
        return Err("its first kernels look like a part of a layer that isn't whole");
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

type Found = Result<Layers, &'static str>;

/// Sequences and what was found of them: the passes of a file are mostly alike.
#[derive(Default)]
pub(super) struct Known {
    /// How often each comes.
    times: HashMap<Rc<[Token]>, u32>,
    layers: HashMap<(Rc<[Token]>, Whole), Found>,
}

impl Known {
    /// Counts a pass. What is returned is shared by all that are alike.
    pub(super) fn count(&mut self, tokens: Vec<Token>) -> Rc<[Token]> {
        if let Some((known, _)) = self.times.get_key_value(&tokens[..]) {
            let known = Rc::clone(known);
            *self.times.entry(Rc::clone(&known)).or_default() += 1;
            return known;
        }
        let new: Rc<[Token]> = tokens.into();
        self.times.insert(Rc::clone(&new), 1);
        new
    }

    /// Whether another pass has the same kernels.
    pub(super) fn comes_again(&self, tokens: &[Token]) -> bool {
        self.times.get(tokens).is_some_and(|times| *times > 1)
    }

    pub(super) fn layers(&mut self, tokens: &Rc<[Token]>, whole: Whole) -> &Found {
        let of = || layers(tokens, whole);
        self.layers.entry((Rc::clone(tokens), whole)).or_insert_with(of)
    }
}

#[cfg(test)]
mod random;

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
