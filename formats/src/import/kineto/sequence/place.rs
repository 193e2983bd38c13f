//! Which product of a layer is which.

use std::ops::Range;

use super::Token;

/// Which product is which, by its place in the layer: the projections before attention, the one behind it, and those of the
/// feed-forward network around its activation.
pub(super) fn place(tokens: &[Token], layer: Range<usize>, bricks: &mut [Option<&'static str>]) {
    let of = &tokens[layer.clone()];
    let at = |token: Token| of.iter().position(|one| *one == token);
    let (Some(mixer), Some(0)) = (at(Token::Mixer), at(Token::Norm)) else { return };
    let last = of.iter().rposition(|token| *token == Token::Mixer).unwrap_or(mixer);
    let products = |range: Range<usize>| -> Vec<usize> {
        range.filter(|&at| of[at] == Token::Product).collect()
    };
    // The norm before the network. A norm of what the mixer computed comes before the projection, and one may be in the
    // network, so what tells it is the one product between.
    let router = of[last..].iter().position(|token| *token == Token::Router);
    let activation = of[last..].iter().rposition(|token| *token == Token::Activation);
    let stop = router.or(activation).map_or(of.len(), |at| last + at);
    let norms = || (last..stop).rev().filter(|&at| of[at] == Token::Norm);
    let norm = norms()
        .find(|&norm| products(last..norm).len() == 1)
        .or_else(|| norms().find(|&norm| !products(norm..stop).is_empty()))
        .or_else(|| (last..of.len()).find(|&at| of[at] == Token::Norm));
    let Some(norm) = norm else { return };
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
