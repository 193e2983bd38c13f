//! Where layers begin and end: what of a sequence repeats, and how far it goes on as it began.

use std::ops::Range;

use super::{Token, Whole};

/// The longest period that is tried: time grows with it.
const LONGEST_PERIOD: usize = 768;

/// A period has to repeat so many times.
const LEAST_TIMES: usize = 3;

const UNCLEAR: &str = "where a layer begins isn't clear";

/// A range in which each kernel is the one of a period before.
pub(super) struct Run {
    pub(super) at: Range<usize>,
    pub(super) period: usize,
}

/// Where the layers of a run begin and end, with those before and behind it; and how many of them repeat together.
pub(super) fn of_run(
    tokens: &[Token],
    run: &Run,
    whole: Whole,
) -> Result<(Vec<usize>, usize), &'static str> {
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

/// The ranges that repeat so often that a period of them may be layers.
pub(super) fn repeated(tokens: &[Token]) -> Vec<Run> {
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
