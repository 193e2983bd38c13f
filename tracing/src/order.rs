//! Spans that are told apart by the order in which they are made.
//!
//! candle makes the spans of a model when it loads it, in the order of its constructors: some for the model, the same ones
//! for each layer, some more for the model. This module finds these parts again. A part is labelled when all of it was
//! seen, so a model that is made otherwise gets no label rather than a wrong one.

use std::collections::HashSet;

use crate::role::{Role, Weight, What};

/// The spans of a model in the order in which they are made.
#[derive(Debug)]
pub(crate) struct Order {
    /// The module of candle-transformers.
    pub(crate) model: &'static str,
    pub(crate) before: &'static [Step],
    /// Repeated for each layer.
    pub(crate) layer: &'static [Step],
    pub(crate) after: &'static [Step],
}

/// A span of a model.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// How GGUF files name the matrix that it multiplies with: `attn_q`.
    pub(crate) weight: Option<&'static str>,
    /// Whether it sees the last token of a pass only, as heads do.
    pub(crate) last_token: bool,
}

/// Finds the size of a matrix by its name in GGUF files.
pub(crate) type Weights = dyn Fn(&str) -> Option<Weight> + Send + Sync;

/// A span that was found in the order of its model.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    pub(crate) id: u64,
    /// What was given with it.
    pub(crate) with: T,
    pub(crate) step: &'static Step,
    pub(crate) layer: Option<u64>,
}

/// How far the loading of a model has come on a thread.
#[derive(Debug)]
pub(crate) struct Loading<T> {
    part: Part,
    /// The spans of this part that were made.
    made: Vec<(u64, &'static str, T)>,
    /// All spans of this model. If one of them is closed, the loading has failed, or the model is gone.
    all: HashSet<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    #[default]
    Before,
    Layer(u64),
    After,
}

impl<T> Default for Loading<T> {
    fn default() -> Self {
        Self { part: Part::default(), made: Vec::new(), all: HashSet::new() }
    }
}

impl<T> Loading<T> {
    /// Takes a span that was made, and returns those that are known by it: all of the part that it completes.
    pub(crate) fn add(
        &mut self,
        order: &'static Order,
        id: u64,
        name: &'static str,
        with: T,
    ) -> Vec<Placed<T>> {
        if self.all.is_empty() {
            self.begin(order);
        }
        self.made.push((id, name, with));
        self.all.insert(id);
        if !self.fits(order) {
            // Perhaps another model begins with it.
            self.made.drain(..self.made.len() - 1);
            self.all = HashSet::from([id]);
            self.begin(order);
            if !self.fits(order) {
                *self = Self::default();
            }
        }
        self.placed(order)
    }

    /// Forgets the model if the span is of it.
    pub(crate) fn closed(&mut self, id: u64) {
        if self.all.contains(&id) {
            *self = Self::default();
        }
    }

    /// Whether no model has begun.
    pub(crate) fn is_idle(&self) -> bool {
        self.all.is_empty()
    }

    fn begin(&mut self, order: &Order) {
        self.part = if order.before.is_empty() { Part::Layer(0) } else { Part::Before };
    }

    /// Whether what was made is the begin of this part, or of the one that may follow instead of a layer.
    fn fits(&mut self, order: &Order) -> bool {
        let begins = |steps: &[Step]| {
            self.made.len() <= steps.len()
                && self.made.iter().zip(steps).all(|((_, name, _), step)| *name == step.name)
        };
        match self.part {
            Part::Before => begins(order.before),
            Part::Layer(_) if begins(order.layer) => true,
            Part::Layer(index) if index > 0 && begins(order.after) => {
                self.part = Part::After;
                true
            }
            Part::Layer(_) => false,
            Part::After => begins(order.after),
        }
    }

    fn placed(&mut self, order: &'static Order) -> Vec<Placed<T>> {
        let (steps, layer) = match self.part {
            Part::Before => (order.before, None),
            Part::Layer(index) => (order.layer, Some(index)),
            Part::After => (order.after, None),
        };
        if self.made.is_empty() || self.made.len() < steps.len() {
            return Vec::new();
        }
        let made = std::mem::take(&mut self.made).into_iter().zip(steps);
        let placed = made.map(|((id, _, with), step)| Placed { id, with, step, layer }).collect();
        match self.part {
            Part::Before => self.part = Part::Layer(0),
            Part::Layer(index) => self.part = Part::Layer(index + 1),
            // The next span is of another model.
            Part::After => *self = Self::default(),
        }
        placed
    }
}

impl Order {
    /// Whether spans with this name are of the order.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut steps = self.before.iter().chain(self.layer).chain(self.after);
        steps.any(|step| step.name == name)
    }
}

impl<T> Placed<T> {
    /// What it is, with the size of its matrix if that is known.
    pub(crate) fn role(&self, weights: Option<&Weights>) -> Role {
        let mut role = self.step.role.clone();
        role.last_token = self.step.last_token;
        if let (Some(name), Some(weights)) = (self.step.weight, weights) {
            role.weight = match self.layer {
                Some(layer) => weights(&format!("blk.{layer}.{name}.weight")),
                // A head without a matrix of its own shares the embedding's.
                None => weights(&format!("{name}.weight"))
                    .or_else(|| weights("token_embd.weight").filter(|_| self.step.last_token)),
            };
        }
        match (self.layer, &role.what) {
            (Some(layer), What::Layer(_)) => Role::layer(layer),
            (Some(layer), _) => role.in_layer(layer),
            (None, _) => role.outside_layers(),
        }
    }
}
