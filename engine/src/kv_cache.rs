//! The keys and values of all tokens so far.
//!
//! They are laid out by head: all keys of the first key head, token after token, then those of the next. Attention
//! reads one head at a time, from its first token to its last, and processors fetch a contiguous stretch
//! faster than pieces of 256 bytes with other heads between them.

use crate::config::Config;
use crate::floats::Floats;

/// Keys and values, in F32, for up to a fixed number of tokens.
#[derive(Debug)]
pub struct KvCache {
    floats: Floats, // (layer, 2, n_kv_heads, capacity, head_dim): keys, rotated, then values
    layer_len: usize,
    head_dim: usize,
    n_tokens: usize,
    capacity: usize,
}

/// The keys and values of one layer.
#[derive(Debug)]
pub(crate) struct KvLayer<'a> {
    pub(crate) k: Heads<'a>, // rotated
    pub(crate) v: Heads<'a>,
}

/// The keys, or the values, of one layer: see [`Probe::tap_cache`](crate::Probe::tap_cache).
#[derive(Debug)]
pub struct Heads<'a> {
    floats: &'a mut [f32], // (n_kv_heads, capacity, head_dim)
    head_len: usize,       // capacity · head_dim
    head_dim: usize,
}

impl Heads<'_> {
    /// One head, `(capacity, head_dim)`.
    ///
    /// # Panics
    ///
    /// If there is no such head.
    #[must_use]
    pub fn head(&self, head: usize) -> &[f32] {
        &self.floats[head * self.head_len..][..self.head_len]
    }

    /// Writes `rows`, `(n, kv_dim)`, to the places of the tokens from `position` on.
    ///
    /// # Panics
    ///
    /// If they don't fit.
    pub fn put(&mut self, position: usize, rows: &[f32]) {
        let Self { head_len, head_dim, .. } = *self;
        let kv_dim = self.floats.len() / head_len * head_dim;
        let (n, room) = (rows.len() / kv_dim, head_len / head_dim);
        assert!(
            position <= room && n <= room - position,
            "{n} tokens from {position} on in a KV cache of {room}"
        );
        for (i, head) in self.floats.chunks_exact_mut(head_len).enumerate() {
            let places = head[position * head_dim..].chunks_exact_mut(head_dim);
            for (place, row) in places.zip(rows.chunks_exact(kv_dim)) {
                place.copy_from_slice(&row[i * head_dim..][..head_dim]);
            }
        }
    }

    /// A copy of the first `n_tokens` tokens, `(n_tokens, kv_dim)`: the layout that [`put`](Self::put) takes.
    ///
    /// # Panics
    ///
    /// If `n_tokens` is more than the capacity.
    #[must_use]
    pub fn rows(&self, n_tokens: usize) -> Vec<f32> {
        let Self { head_len, head_dim, .. } = *self;
        let mut rows = Vec::with_capacity(self.floats.len() / head_len * n_tokens * head_dim);
        for t in 0..n_tokens {
            for head in self.floats.chunks_exact(head_len) {
                rows.extend_from_slice(&head[t * head_dim..][..head_dim]);
            }
        }
        rows
    }
}

impl KvCache {
    /// Room for `capacity` tokens. The system commits the memory as it is filled. With large pages the first token
    /// commits nearly all of it, as each head's keys are in another place.
    ///
    /// # Panics
    ///
    /// If it exceeds the address space.
    #[must_use]
    pub fn new(config: &Config, capacity: usize) -> Self {
        let floats = usize::try_from(Self::floats(config, capacity)).expect("a cache that fits");
        let (layer_len, floats) = (floats / config.n_layers.max(1), Floats::zeros(floats));
        Self { floats, layer_len, head_dim: config.head_dim, n_tokens: 0, capacity }
    }

    /// The layers, from the first on.
    pub(crate) fn layers_mut(&mut self) -> impl Iterator<Item = KvLayer<'_>> {
        let (len, head_dim) = (self.layer_len, self.head_dim);
        let head_len = self.capacity * head_dim;
        self.floats.chunks_exact_mut(len.max(1)).map(move |layer| {
            let (k, v) = layer.split_at_mut(len / 2);
            let [k, v] = [k, v].map(|floats| Heads { floats, head_len, head_dim });
            KvLayer { k, v }
        })
    }

    /// Numbers in a cache of `capacity` tokens.
    pub(crate) fn floats(config: &Config, capacity: usize) -> u128 {
        2 * config.n_layers as u128 * capacity as u128 * config.kv_dim() as u128
    }

    /// Tokens in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n_tokens
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n_tokens == 0
    }

    /// Tokens that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `n_tokens` tokens and forgets the rest. As with a `Vec`, does nothing if there are no
    /// more than that; never panics. Forgotten keys and values are overwritten before anything reads them.
    pub fn truncate(&mut self, n_tokens: usize) {
        self.n_tokens = self.n_tokens.min(n_tokens);
    }

    pub(crate) fn advance(&mut self, n_tokens: usize) {
        self.n_tokens += n_tokens;
        debug_assert!(self.n_tokens <= self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Activation, Architecture};

    const CAPACITY: usize = 5;

    /// Two layers, three key heads of four elements.
    const CONFIG: Config = Config {
        architecture: Architecture::Llama,
        n_layers: 2,
        dim: 24,
        n_heads: 6,
        n_kv_heads: 3,
        head_dim: 4,
        ffn_dim: 32,
        n_vocab: 8,
        context_length: CAPACITY,
        norm_eps: 1e-5,
        rope_base: 1e4,
        n_rot: 4,
        rope_scale: 1.0,
        activation: Activation::Silu,
    };

    /// A value that no other element has.
    fn element(layer: usize, part: usize, token: usize, head: usize, i: usize) -> f32 {
        (((((layer * 2 + part) * CAPACITY + token) * 3 + head) * 4 + i) + 1) as f32
    }

    /// Tokens of keys (`part` 0) or values (1), by token.
    fn rows(layer: usize, part: usize, tokens: std::ops::Range<usize>) -> Vec<f32> {
        let heads = tokens.flat_map(|t| (0..3).map(move |head| (t, head)));
        heads.flat_map(|(t, head)| (0..4).map(move |i| element(layer, part, t, head, i))).collect()
    }

    /// All tokens, in passes of two, one and two.
    fn filled() -> KvCache {
        let mut kv = KvCache::new(&CONFIG, CAPACITY);
        for tokens in [0..2, 2..3, 3..5] {
            for (i, mut layer) in kv.layers_mut().enumerate() {
                layer.k.put(tokens.start, &rows(i, 0, tokens.clone()));
                layer.v.put(tokens.start, &rows(i, 1, tokens.clone()));
            }
            kv.advance(tokens.len());
        }
        kv
    }

    #[test]
    fn the_tokens_of_a_head_lie_one_after_the_other() {
        let mut kv = filled();
        assert_eq!((kv.len(), kv.layers_mut().count()), (CAPACITY, 2));
        assert_eq!(kv.floats.len() as u128, KvCache::floats(&CONFIG, CAPACITY));
        for (i, layer) in kv.layers_mut().enumerate() {
            for (part, heads) in [&layer.k, &layer.v].into_iter().enumerate() {
                for head in 0..3 {
                    let places = (0..CAPACITY).flat_map(|t| (0..4).map(move |j| (t, j)));
                    let expected = places.map(|(t, j)| element(i, part, t, head, j));
                    assert_eq!(
                        heads.head(head),
                        expected.collect::<Vec<_>>(),
                        "{i}, {part}, {head}"
                    );
                }
            }
        }
    }

    #[test]
    fn rows_are_what_was_put_token_by_token() {
        let mut kv = filled();
        for (i, layer) in kv.layers_mut().enumerate() {
            for n in 0..=CAPACITY {
                assert_eq!(layer.k.rows(n), rows(i, 0, 0..n));
                assert_eq!(layer.v.rows(n), rows(i, 1, 0..n));
            }
        }
    }

    #[test]
    fn what_was_forgotten_is_overwritten_and_nothing_else() {
        let mut kv = filled();
        kv.truncate(2);
        kv.truncate(4);
        assert_eq!((kv.len(), kv.capacity()), (2, CAPACITY));
        for (i, mut layer) in kv.layers_mut().enumerate() {
            // Another token's values, so that they can be told apart.
            layer.k.put(2, &rows(i, 0, 0..1));
            let expected = [rows(i, 0, 0..2), rows(i, 0, 0..1), rows(i, 0, 3..5)].concat();
            assert_eq!(layer.k.rows(CAPACITY), expected);
            assert_eq!(layer.v.rows(CAPACITY), rows(i, 1, 0..CAPACITY));
        }
        kv.advance(1);
        assert_eq!(kv.len(), 3);
        kv.clear();
        assert!(kv.is_empty());
    }

    #[test]
    #[should_panic = "2 tokens from 4 on in a KV cache of 5"]
    fn more_than_there_is_room_for_is_refused() {
        let mut kv = filled();
        let layer = kv.layers_mut().next();
        layer.expect("the first").k.put(4, &rows(0, 0, 0..2));
    }

    #[test]
    fn a_cache_without_room_has_nothing_in_it() {
        let mut kv = KvCache::new(&CONFIG, 0);
        assert_eq!((kv.layers_mut().count(), kv.len(), kv.capacity()), (0, 0, 0));
    }
}
