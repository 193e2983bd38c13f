//! What a test's bricks took in each layer, and which kernels ran in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope_profile::{NameKind, Pass, Phase, Profile, Span};
use serde::{Deserialize, Serialize};

use super::counted::Counted;

/// What is inside of a test's bricks, in the passes that count. Which of them do is known only when two sides are compared,
/// so each sum is there twice: over the passes in the middle half by their time, and over the fastest quarter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inside {
    /// Of how many passes, or tokens of them, the sums are.
    pub of: [u64; 2],
    /// The bricks by layer: they add up to the bricks.
    pub cells: Vec<LayerCell>,
    /// The kernels by brick.
    pub kernels: Vec<KernelSum>,
}

/// A brick in a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCell {
    /// The brick: an index into the test's bricks.
    pub brick: usize,
    /// The layer; `None` before and after the layers.
    pub layer: Option<u16>,
    /// Its time without nested bricks: the two sums.
    pub ns: [u64; 2],
}

/// A kernel in the bricks of a name. One that ran, but not in the passes that count, has a sum of 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSum {
    /// The brick: an index into the test's bricks. `None` if it is in none, or if that isn't known.
    pub brick: Option<usize>,
    /// Its name.
    pub kernel: String,
    /// From begin to end: the two sums.
    pub ns: [u64; 2],
}

impl Inside {
    /// Whether nothing is known of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.kernels.is_empty()
    }

    /// Of these passes of a phase. `bricks` are the numbers of the test's bricks, in order.
    pub(super) fn of(profile: &Profile, phase: Phase, passes: &[&Pass], bricks: &[u16]) -> Self {
        let (of, weights) = weights(passes);
        let mut cells: BTreeMap<(usize, Option<u16>), [u64; 2]> = BTreeMap::new();
        let mut kernels: BTreeMap<(Option<usize>, &str), [u64; 2]> = BTreeMap::new();
        let within = bricks_of_spans(profile, bricks);
        for (span, brick) in profile.spans.iter().zip(within) {
            let weight = span.pass.and_then(|pass| weights.get(&pass));
            let name = span.name.and_then(|number| profile.names.get(usize::from(number)));
            let (Some(&weight), Some(name)) = (weight, name) else { continue };
            match (name.kind, brick) {
                (NameKind::Brick, Some(brick)) => {
                    let sums = cells.entry((brick, span.layer)).or_default();
                    add(sums, weight, span.exclusive_ns);
                }
                (NameKind::Brick, None) => {}
                (NameKind::Kernel, _) => {
                    let sums = kernels.entry((brick, name.name.as_str())).or_default();
                    add(sums, weight, span.duration_ns);
                }
            }
        }
        // Of passes whose spans weren't kept there are the sums.
        let seen: BTreeSet<&str> = kernels.keys().map(|&(_, kernel)| kernel).collect();
        for total in profile.kernels(Some(phase)) {
            if !seen.contains(&*total.stats.name) {
                kernels.entry((None, total.stats.name.as_str())).or_default();
            }
        }
        cells.retain(|_, ns| *ns != [0; 2]);
        let cells = cells.into_iter().map(|((brick, layer), ns)| LayerCell { brick, layer, ns });
        let kernels = kernels.into_iter().map(|((brick, kernel), ns)| KernelSum {
            brick,
            kernel: kernel.to_owned(),
            ns,
        });
        Self { of, cells: cells.collect(), kernels: kernels.collect() }
    }

    /// The same by the token, where passes have so many.
    pub(super) fn of_tokens(self, tokens: u64) -> Self {
        Self { of: self.of.map(|passes| passes.saturating_mul(tokens)), ..self }
    }

    /// Nanoseconds of a pass that counts, or of a token of it.
    pub(super) fn mean(&self, sums: [u64; 2], counted: Counted) -> f64 {
        let place = counted.place();
        sums[place] as f64 / self.of[place].max(1) as f64
    }
}

/// How many passes count, and how often each pass does, by its serial.
fn weights(passes: &[&Pass]) -> ([u64; 2], HashMap<u32, [u64; 2]>) {
    // Equals stay in their order, as where bricks are taken from the same passes.
    let mut order: Vec<&Pass> = passes.to_vec();
    order.sort_by_key(|pass| pass.wall_ns);
    let mut weights: HashMap<u32, [u64; 2]> =
        passes.iter().map(|pass| (pass.serial, [0; 2])).collect();
    let of = Counted::ALL.map(|counted| {
        let kept = &order[counted.range(order.len())];
        for pass in kept {
            weights.entry(pass.serial).or_default()[counted.place()] += 1;
        }
        kept.len() as u64
    });
    (of, weights)
}

/// The brick that each span is, or is in.
fn bricks_of_spans(profile: &Profile, bricks: &[u16]) -> Vec<Option<usize>> {
    let mut within: Vec<Option<usize>> = Vec::with_capacity(profile.spans.len());
    let own = |span: &Span| {
        let number = span.name?;
        let name = profile.names.get(usize::from(number))?;
        (name.kind == NameKind::Brick).then(|| bricks.binary_search(&number).ok())
    };
    for span in &profile.spans {
        let around = || within.get(span.parent? as usize).copied().flatten();
        let brick = own(span).unwrap_or_else(around);
        within.push(brick);
    }
    within
}

fn add(sums: &mut [u64; 2], weight: [u64; 2], ns: u64) {
    for (sum, times) in sums.iter_mut().zip(weight) {
        *sum = sum.saturating_add(ns.saturating_mul(times));
    }
}
