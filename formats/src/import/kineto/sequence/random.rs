//! Random models, whole and with a hole: no kernel has a wrong layer, and those of whole ones have theirs.

use proptest::prelude::*;

use super::tests::tokens;
use super::{Whole, layers};

#[derive(Debug, Clone)]
struct Model {
    layers: usize,
    /// So many of the first layers have no experts, where all others have them.
    dense: usize,
    /// The attention of each layer of a period.
    pattern: Vec<u8>,
    has_experts: bool,
    has_own_norms: bool,
    has_post_norms: bool,
    is_parallel: bool,
    /// More kernels in each layer, where all are alike: where, and which.
    extras: Vec<(usize, usize)>,
    /// Where kernels are missing, as a share of the layers, and how many.
    lost: Option<(f64, usize)>,
}

impl Model {
    /// The kernels of a layer: letters, as in the tests of `mod.rs`.
    fn body(&self, layer: usize) -> String {
        let norms = if self.has_own_norms { "NPNNrk" } else { "NPrk" };
        let attention =
            ["AAP", "AP", "AAaP"][usize::from(self.pattern[layer % self.pattern.len()])];
        let sum = if self.is_parallel { "l" } else { "" };
        let post = if self.has_post_norms { "N" } else { "" };
        let has_experts = layer >= self.dense && (self.has_experts || self.dense > 0);
        let network = if has_experts { "NPRdESEc" } else { "NPSP" };
        let mut body: Vec<char> =
            [norms, attention, sum, post, network, sum, post].concat().chars().collect();
        // Behind the norm that a layer begins with.
        for &(place, which) in &self.extras {
            let place = 1 + place % body.len();
            body.insert(place, ['q', 't', 'm', 'u'][which]);
        }
        body.into_iter().collect()
    }

    /// The kernels that were recorded, the layer of each, and where some are missing.
    fn recorded(&self) -> (String, Vec<Option<u16>>, Option<usize>) {
        let mut kernels: Vec<(char, Option<u16>)> = "yyye".chars().map(|of| (of, None)).collect();
        let first = kernels.len();
        let bodies: Vec<String> = (0..self.layers).map(|layer| self.body(layer)).collect();
        for (number, body) in (0..).zip(&bodies) {
            kernels.extend(body.chars().map(|of| (of, Some(number))));
        }
        let all = kernels.len() - first;
        kernels.extend("NgPxy".chars().map(|of| (of, None)));
        let mut hole = None;
        if let Some((part, lost)) = self.lost {
            // Behind the first layer, and fewer than a layer has.
            let length = |body: Option<&String>| body.map_or(0, String::len);
            let least = bodies.iter().map(String::len).min().unwrap_or_default();
            let lost = 1 + lost % (least - 1);
            let ends = length(bodies.first()) + length(bodies.last());
            let room = all.saturating_sub(ends + lost);
            let from = first + length(bodies.first()) + (room as f64 * part) as usize;
            kernels.drain(from..(from + lost).min(kernels.len()));
            hole = Some(from);
        }
        let (text, truth) = kernels.into_iter().unzip();
        (text, truth, hole)
    }
}

fn models() -> impl Strategy<Value = Model> {
    (
        prop_oneof![1 => 2_usize..8, 4 => 8_usize..40],
        prop_oneof![3 => Just(0_usize), 1 => 1_usize..4],
        prop::collection::vec(0_u8..3, 1..6),
        prop::array::uniform4(any::<bool>()),
        prop::collection::vec((0_usize..64, 0_usize..4), 0..4),
        prop::option::of((0.0..1.0_f64, 0_usize..64)),
    )
        .prop_map(|(layers, dense, pattern, has, extras, lost)| {
            let [has_experts, has_own_norms, has_post_norms, is_parallel] = has;
            // Of layers that take turns, each would have its own at another place, as those of no model.
            let extras = if pattern.len() == 1 { extras } else { Vec::new() };
            Model {
                layers,
                dense,
                pattern,
                has_experts,
                has_own_norms,
                has_post_norms,
                is_parallel,
                extras,
                lost,
            }
        })
}

proptest! {
    #![proptest_config(brickscope_testing::cases(4_000))]

    #[test]
    fn no_kernel_has_a_wrong_layer(model in models()) {
        let (text, truth, hole) = model.recorded();
        let all = tokens(&text);
        // As `missing.rs` asks: the begin of a pass that lacks some, and all of one that doesn't.
        let found = match hole {
            Some(hole) => layers(&all[..hole], Whole::Unsure),
            None => layers(&all, Whole::Sure),
        };
        let of = found.map(|found| found.of).unwrap_or_default();
        for (at, (found, truth)) in of.iter().zip(&truth).enumerate() {
            prop_assert!(found.is_none() || found == truth, "{at}: {found:?} of {truth:?}, {text}");
        }
        let alike = model.layers.saturating_sub(model.dense);
        let is_plain = model.extras.is_empty() || model.dense == 0 && model.pattern.len() == 1;
        if hole.is_none() && is_plain && alike >= 8 && alike >= 4 * model.pattern.len() {
            let known = of.iter().flatten().count();
            let layers = truth.iter().flatten().count();
            prop_assert!(known * 20 >= layers * 19, "{known} of {layers}: {text}");
        }
    }
}
