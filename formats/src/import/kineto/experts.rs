//! How long each expert of a mixture ran, where a file tells which kernels are its own: those that were launched in a range
//! with the name of one, or that are noted as one's.

use std::collections::{BTreeMap, HashSet};

use brickscope_profile::{ExpertTime, LayerExperts, Phase};

/// The kernels of one expert.
#[derive(Default)]
struct Sum {
    ns: u64,
    kernels: u64,
    /// By serial.
    passes: HashSet<u32>,
}

/// The times of experts, by phase and layer.
#[derive(Default)]
pub(super) struct Experts {
    layers: BTreeMap<(Phase, Option<u16>), BTreeMap<u32, Sum>>,
}

impl Experts {
    /// Adds a kernel of an expert.
    pub(super) fn add(&mut self, of: (Phase, Option<u16>), expert: u32, pass: u32, ns: u64) {
        let sum = self.layers.entry(of).or_default().entry(expert).or_default();
        sum.ns = sum.ns.saturating_add(ns);
        sum.kernels += 1;
        sum.passes.insert(pass);
    }

    /// All of them. How many experts there are, and which tokens chose them, no name tells.
    pub(super) fn layers(self) -> Vec<LayerExperts> {
        let layer = |((phase, layer), experts): ((Phase, Option<u16>), BTreeMap<u32, Sum>)| {
            let passes: HashSet<u32> =
                experts.values().flat_map(|sum| sum.passes.iter().copied()).collect();
            let time = |(expert, sum): (u32, Sum)| ExpertTime {
                expert,
                ns: sum.ns,
                kernels: sum.kernels,
                passes: sum.passes.len() as u64,
            };
            LayerExperts {
                phase,
                layer,
                n_expert: None,
                n_used: None,
                passes: 0,
                reads: 0,
                tokens: 0,
                experts: Vec::new(),
                timed_passes: passes.len() as u64,
                times: experts.into_iter().map(time).collect(),
                odd: 0,
                unread: 0,
                unread_absent: None,
            }
        };
        self.layers.into_iter().map(layer).collect()
    }
}
