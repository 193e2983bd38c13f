//! Which experts ran in the passes that count.

use std::collections::{BTreeMap, HashMap};

use brickscope::{Absent, ExpertRuns, LayerExperts, Pass, Phase, Profile};

use super::graphs::Graphs;
use crate::bricks::Experts;
use crate::recording::chosen::Chosen;
use crate::recording::events::Graph;

/// Layers of a phase that are told apart.
const MOST_LAYERS: usize = 512;

/// Why it isn't known what products chose that a recording lacks, though it has others of the graph.
const TOO_MANY: &str = "the graph has more products with experts' matrices than were recorded";

/// A product with experts' matrices.
type Product = (Option<u16>, Experts);

/// Adds to a profile which experts ran in its passes. `graphs` has those of each pass, by its serial; passes that were left
/// out don't count.
pub(crate) fn add_experts(profile: &mut Profile, graphs: &[Vec<&Graph>], labels: &mut Graphs<'_>) {
    let mut sums = Sums::default();
    let mut products: HashMap<(u32, u32), Vec<Product>> = HashMap::new();
    for pass in profile.passes.iter().filter(|pass| !pass.is_left_out) {
        let nth = (pass.serial as usize).checked_sub(1);
        for graph in nth.and_then(|nth| graphs.get(nth)).into_iter().flatten() {
            let key = (graph.number, graph.threads);
            let products = products.entry(key).or_insert_with(|| labels.experts(graph));
            if !products.is_empty() {
                let is_unread = graph.chosen.is_empty();
                let why = is_unread.then(|| labels.no_choice(graph));
                sums.add(pass, graph, products, why.as_deref());
            }
        }
    }
    profile.experts = sums.layers.into_iter().map(|(of, sum)| sum.finish(of)).collect();
    profile.dropped.experts = profile.dropped.experts.saturating_add(sums.no_room);
}

#[derive(Default)]
struct Sums {
    layers: BTreeMap<(Phase, Option<u16>), Layer>,
    /// Choices that had no room.
    no_room: u64,
}

impl Sums {
    /// Adds what a graph computed. `why` says why no choice of it is known, if none is there.
    fn add(&mut self, pass: &Pass, graph: &Graph, products: &[Product], why: Option<&str>) {
        // A choice is for the products up to the next one's.
        let begins = graph.chosen.iter().map(|of| of.product as usize);
        let ends = begins.skip(1).chain([graph.experts.len()]);
        for (chosen, end) in graph.chosen.iter().zip(ends) {
            let begin = chosen.product as usize;
            let end = end.min(products.len());
            let Some([(layer, first), rest @ ..]) = products.get(begin..end) else { continue };
            let bytes = rest.iter().map(|(_, of)| of.bytes).fold(first.bytes, u64::saturating_add);
            let choices = chosen.experts.iter().map(|of| u64::from(of[1]));
            let choices = choices.fold(u64::from(chosen.beyond), u64::saturating_add);
            let Some(sum) = self.layer(pass.phase, *layer, first) else {
                self.no_room = self.no_room.saturating_add(choices);
                continue;
            };
            sum.add(pass.serial, chosen, bytes);
            self.no_room = self.no_room.saturating_add(u64::from(chosen.beyond));
        }
        match why {
            Some(why) => self.mark_unread(pass.phase, products, why),
            None => {
                let rest = products.get(graph.experts.len()..).unwrap_or_default();
                self.mark_unread(pass.phase, rest, TOO_MANY);
            }
        }
    }

    /// Of these products it isn't known what was chosen.
    fn mark_unread(&mut self, phase: Phase, products: &[Product], why: &str) {
        let mut before = None;
        for (layer, of) in products {
            if before.replace(*layer) != Some(*layer)
                && let Some(sum) = self.layer(phase, *layer, of)
            {
                sum.mark_unread(why);
            }
        }
    }

    /// `None` if there are too many.
    fn layer(&mut self, phase: Phase, layer: Option<u16>, of: &Experts) -> Option<&mut Layer> {
        let is_full = self.layers.len() >= MOST_LAYERS * Phase::ALL.len();
        if is_full && !self.layers.contains_key(&(phase, layer)) {
            return None;
        }
        let sum = self.layers.entry((phase, layer)).or_default();
        sum.n_expert = sum.n_expert.max(u32::try_from(of.all).unwrap_or(u32::MAX));
        Some(sum)
    }
}

/// The sums of a layer in a phase.
#[derive(Default)]
struct Layer {
    n_expert: u32,
    n_used: Option<u32>,
    passes: u64,
    last: Option<u32>,
    reads: u64,
    tokens: u64,
    /// With the last pass in which it ran.
    experts: BTreeMap<u32, (ExpertRuns, Option<u32>)>,
    odd: u64,
    unread: u64,
    why: Option<String>,
}

impl Layer {
    /// `bytes` are those of the matrices of one expert.
    fn add(&mut self, pass: u32, chosen: &Chosen, bytes: u64) {
        if let Some(why) = chosen.unread {
            self.mark_unread(why.reason());
            return;
        }
        let more = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        // A pass is computed by one graph after the other.
        more(&mut self.passes, u64::from(self.last.replace(pass) != Some(pass)));
        more(&mut self.reads, 1);
        more(&mut self.tokens, u64::from(chosen.tokens));
        more(&mut self.odd, u64::from(chosen.odd));
        self.n_used = self.n_used.max(Some(chosen.n_used));
        for &[expert, tokens] in &chosen.experts {
            let (runs, last) = self.experts.entry(expert).or_default();
            runs.expert = expert;
            more(&mut runs.tokens, u64::from(tokens));
            more(&mut runs.passes, u64::from(last.replace(pass) != Some(pass)));
            more(&mut runs.reads, 1);
            more(&mut runs.bytes, bytes);
        }
    }

    fn mark_unread(&mut self, why: &str) {
        self.unread = self.unread.saturating_add(1);
        self.why.get_or_insert_with(|| why.to_owned());
    }

    fn finish(self, (phase, layer): (Phase, Option<u16>)) -> LayerExperts {
        let Self { n_expert, n_used, passes, reads, tokens, experts, odd, unread, why, .. } = self;
        let experts = experts.into_values().map(|(runs, _)| runs).collect();
        let unread_absent = why.map(|reason| Absent { reason });
        LayerExperts {
            phase,
            layer,
            n_expert: Some(n_expert),
            n_used,
            passes,
            reads,
            tokens,
            experts,
            times: Vec::new(),
            timed_passes: 0,
            odd,
            unread,
            unread_absent,
        }
    }
}
