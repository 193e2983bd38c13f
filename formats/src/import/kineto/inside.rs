//! What is known of kernels whose launch doesn't tell their layer: `layers.rs` finds it out.

use std::collections::HashMap;

use brickscope_profile::{GraphLayers, Work};

use super::attention::Why;

/// What is known of them, by the index of their event.
#[derive(Default)]
pub(super) struct Inside {
    of_event: HashMap<usize, (Option<u16>, Option<u16>)>,
    /// The experts of those that are of one.
    experts: HashMap<usize, u32>,
    /// Of kernels that are a part of a product: the launch of the graph and the product in its capture, and its work.
    products: HashMap<usize, ((usize, u32), Work)>,
    /// The same of attentions whose work isn't known.
    without_work: HashMap<(usize, u32), Why>,
    /// Kernels of products in graphs of which it isn't known whether they have the shapes of their capture.
    pub(super) of_other_sizes: u64,
    /// How it became known.
    pub(super) layers: Option<GraphLayers>,
    /// Why the order of the kernels doesn't tell it.
    pub(super) unclear: Option<&'static str>,
    /// What was given to find it out by, and can't be used: a sentence each.
    pub(super) doubts: Vec<String>,
}

impl Inside {
    pub(super) fn layer(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.0
    }

    pub(super) fn brick(&self, event: usize) -> Option<u16> {
        self.of_event.get(&event)?.1
    }

    pub(super) fn expert(&self, event: usize) -> Option<u32> {
        self.experts.get(&event).copied()
    }

    pub(super) fn add_expert(&mut self, event: usize, expert: u32) {
        self.experts.insert(event, expert);
    }

    pub(super) fn has_layers(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.kernels > 0)
    }

    /// The product that a kernel is a part of, and its work.
    pub(super) fn product(&self, event: usize) -> Option<((usize, u32), Work)> {
        self.products.get(&event).copied()
    }

    pub(super) fn add_product(&mut self, event: usize, of: (usize, u32), work: Work) {
        self.products.insert(event, (of, work));
    }

    /// The attentions whose work isn't known: the launch of the graph and the product in its capture, and why.
    pub(super) fn without_work(&self) -> impl Iterator<Item = Why> {
        self.without_work.values().copied()
    }

    pub(super) fn add_without_work(&mut self, of: (usize, u32), why: Why) {
        self.without_work.insert(of, why);
    }

    /// Notes that a product, of which no more was known, is this one.
    pub(super) fn name_product(&mut self, event: usize, product: u16, brick: u16) {
        let known = self.of_event.entry(event).or_default();
        known.1 = known.1.filter(|known| *known != product).or(Some(brick));
    }

    /// Notes layer and brick of an event. What is known already stays.
    pub(super) fn add(&mut self, event: usize, layer: Option<u16>, brick: Option<u16>) {
        let known = self.of_event.entry(event).or_default();
        known.0 = known.0.or(layer);
        known.1 = known.1.or(brick);
    }
}

/// The kernels and copies that one launch of a graph began.
pub(super) struct Graph {
    /// The indexes of their events, by their begin.
    pub(super) work: Vec<usize>,
    /// The serial of the launch's pass.
    pub(super) pass: Option<u32>,
    pub(super) issued_ns: u64,
}
