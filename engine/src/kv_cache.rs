//! The keys and values of all tokens so far.

use crate::config::Config;
use crate::floats::Floats;

/// Keys and values, in F32, for up to a fixed number of tokens.
#[derive(Debug)]
pub struct KvCache {
    floats: Floats, // (layer, 2, capacity, kv_dim): keys, rotated, then values
    layer_len: usize,
    n_tokens: usize,
    capacity: usize,
}

/// The keys and values of one layer.
#[derive(Debug)]
pub(crate) struct KvLayer<'a> {
    pub(crate) k: &'a mut [f32], // (capacity, kv_dim), rotated
    pub(crate) v: &'a mut [f32], // (capacity, kv_dim)
}

impl KvCache {
    /// Room for `capacity` tokens. The memory is taken from the system as it is filled, in large pages where there
    /// are some.
    #[must_use]
    pub fn new(config: &Config, capacity: usize) -> Self {
        let layer_len = 2 * capacity * config.kv_dim();
        let floats = Floats::zeros(config.n_layers * layer_len);
        Self { floats, layer_len, n_tokens: 0, capacity }
    }

    /// The layers, from the first on.
    pub(crate) fn layers_mut(&mut self) -> impl Iterator<Item = KvLayer<'_>> {
        let len = self.layer_len;
        self.floats.chunks_exact_mut(len.max(1)).map(move |layer| {
            let (k, v) = layer.split_at_mut(len / 2);
            KvLayer { k, v }
        })
    }

    /// How many numbers a cache of `capacity` tokens holds.
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

    /// Keeps the first `n_tokens` tokens and forgets those after them. As with a `Vec`, nothing
    /// happens where there are no more than that; it never panics. What comes next overwrites the
    /// keys and values that were forgotten before anything reads them.
    pub fn truncate(&mut self, n_tokens: usize) {
        self.n_tokens = self.n_tokens.min(n_tokens);
    }

    pub(crate) fn advance(&mut self, n_tokens: usize) {
        self.n_tokens += n_tokens;
        debug_assert!(self.n_tokens <= self.capacity);
    }
}
