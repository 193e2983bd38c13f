//! Sequences whose layers are known already.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Layers, Token, Whole, layers};

type Found = Result<Layers, &'static str>;

/// Sequences and what was found of them: the passes of a file are mostly alike.
#[derive(Default)]
pub(in super::super) struct Known {
    /// How often each comes.
    times: HashMap<Rc<[Token]>, u32>,
    layers: HashMap<(Rc<[Token]>, Whole), Found>,
}

impl Known {
    /// Counts a pass. What is returned is shared by all that are alike.
    pub(in super::super) fn count(&mut self, tokens: Vec<Token>) -> Rc<[Token]> {
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
    pub(in super::super) fn comes_again(&self, tokens: &[Token]) -> bool {
        self.times.get(tokens).is_some_and(|times| *times > 1)
    }

    pub(in super::super) fn layers(&mut self, tokens: &Rc<[Token]>, whole: Whole) -> &Found {
        let of = || layers(tokens, whole);
        self.layers.entry((Rc::clone(tokens), whole)).or_insert_with(of)
    }
}
