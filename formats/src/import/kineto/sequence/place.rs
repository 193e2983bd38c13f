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
