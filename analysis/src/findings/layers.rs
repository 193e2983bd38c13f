//! What a brick takes and does in each layer, and which layers are alike.
//!
//! Models have layers that differ by design: of six layers one attends to all tokens and five to a window, the first has
//! a dense network and the others have experts. So a layer is held against those only that do the same as far as is known:
//! with the same bricks, as many operations and bytes, by kernels that compute the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brickscope_profile::name::NameIdx;
use brickscope_profile::{NameKind, Profile, Source, Span};

use super::slow_layer::{LEAST_PASSES, median};
use crate::passes::BySerial;
use crate::typical::interval_of_median;

/// Work that differs by more than this part is other work.
const ALIKE: f64 = 0.01;

/// A brick in a layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layer {
    pub(super) layer: u16,
    /// What it takes there in a pass: the median over passes, in nanoseconds.
    pub(super) takes_ns: u64,
    /// The 95 % interval of that median, by order statistics.
    pub(super) between_ns: [u64; 2],
    /// The kernel that takes most of its time there.
    pub(super) kernel: Option<NameIdx>,
    /// The kernel's name without the format of the numbers.
    computes: Option<String>,
    /// The operations and bytes of all passes; 0 if nobody stated them.
    work: [u64; 2],
    /// Which bricks the layer has: layers with the same ones have the same number.
    bricks: usize,
}

impl Layer {
    /// Whether somebody said how much it does.
    pub(super) fn states_work(&self) -> bool {
        self.work != [0, 0]
    }

    /// Whether both are of one kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let [flops, bytes] = [0, 1].map(|n| is_alike(self.work[n], other.work[n]));
        let is_same_work = bytes && (self.states_work() || self.kernel == other.kernel);
        // A matrix of another format has other bytes, and the same operations.
        let is_other_format = self.kernel != other.kernel && self.computes == other.computes;
        self.bricks == other.bricks && flops && (is_same_work || is_other_format)
    }
}

fn is_alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) as f64 <= ALIKE * a.max(b) as f64
}

/// What is summed of a brick in a layer.
#[derive(Default)]
struct Sums {
    /// What passes spent there, and which; each once when all spans were looked at.
    takes_ns: Vec<(usize, u64)>,
    work: [u64; 2],
    kernels: BTreeMap<NameIdx, u64>,
}

impl Sums {
    fn add(&mut self, pass: usize, span: &Span) {
        match self.takes_ns.last_mut() {
            Some((last, ns)) if *last == pass => *ns = ns.saturating_add(span.exclusive_ns),
            _ => self.takes_ns.push((pass, span.exclusive_ns)),
        }
        for (sum, more) in self.work.iter_mut().zip([span.work.flops, span.work.bytes]) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Passes that ran at once are in turns in a profile.
    fn join(&mut self) {
        self.takes_ns.sort_by_key(|of| of.0);
        self.takes_ns.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            is_same
        });
    }
}

/// Each brick's layers, in order, in the passes of these serial numbers; those only that enough passes have.
pub(super) fn layers(
    profile: &Profile,
    passes: &HashMap<u32, usize>,
) -> BTreeMap<NameIdx, Vec<Layer>> {
    let kind = |name: NameIdx| profile.names.get(usize::from(name)).map(|of| of.kind);
    let mut sums: BTreeMap<(NameIdx, u16), Sums> = BTreeMap::new();
    let mut passes = BySerial::new(passes);
    for span in profile.spans.iter().filter(|span| span.source == Source::Host) {
        let (Some(name), Some(layer), Some(pass)) = (span.name, span.layer, span.pass) else {
            continue;
        };
        let Some(pass) = passes.get(pass) else { continue };
        if kind(name) == Some(NameKind::Brick) {
            sums.entry((name, layer)).or_default().add(pass, span);
            continue;
        }
        let parent = span.parent.and_then(|parent| profile.spans.get(parent as usize));
        let of = parent.and_then(|of| of.name).filter(|of| kind(*of) == Some(NameKind::Brick));
        if let Some(of) = of {
            let takes = sums.entry((of, layer)).or_default().kernels.entry(name).or_default();
            *takes = takes.saturating_add(span.duration_ns);
        }
    }
    sums.values_mut().for_each(Sums::join);
    sums.retain(|_, of| of.takes_ns.len() >= LEAST_PASSES);
    let mut bricks: BTreeMap<u16, BTreeSet<NameIdx>> = BTreeMap::new();
    for &(name, layer) in sums.keys() {
        bricks.entry(layer).or_default().insert(name);
    }
    // A layer may have tens of thousands of bricks, each of which needs to know what else the layer has.
    let mut numbers: BTreeMap<BTreeSet<NameIdx>, usize> = BTreeMap::new();
    let mut number_of: HashMap<u16, usize> = HashMap::new();
    for (layer, of_layer) in bricks {
        let next = numbers.len();
        number_of.insert(layer, *numbers.entry(of_layer).or_insert(next));
    }
    let mut all: BTreeMap<NameIdx, Vec<Layer>> = BTreeMap::new();
    for ((name, layer), Sums { takes_ns, work, kernels }) in sums {
        let mut takes: Vec<u64> = takes_ns.into_iter().map(|of| of.1).collect();
        takes.sort_unstable();
        let longest = kernels.into_iter().max_by_key(|&(of, ns)| (ns, std::cmp::Reverse(of)));
        let kernel = longest.map(|(kernel, _)| kernel);
        let name_of = kernel.and_then(|of| profile.names.get(usize::from(of)));
        all.entry(name).or_default().push(Layer {
            layer,
            between_ns: interval_of_median(&takes),
            takes_ns: median(takes),
            kernel,
            computes: name_of.map(|of| without_format(&of.name)),
            work,
            bricks: number_of[&layer],
        });
    }
    all
}

/// `mul_mat` of `mul_mat_q4_k`, and `mul_mat_id` of `mul_mat_id_iq3_xxs`.
fn without_format(kernel: &str) -> String {
    let is_format = |word: &str| {
        let letters = word.trim_start_matches("mx").trim_start_matches("nv");
        let letters = letters.trim_start_matches(['b', 'i', 't']);
        let digits = letters.trim_start_matches(['f', 'q', 'p']);
        digits.len() < word.len() && digits.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut is_after_format = false;
    for word in kernel.split('_') {
        let is_part = matches!(
            word,
            "0" | "1" | "k" | "K" | "s" | "S" | "m" | "M" | "l" | "xs" | "xxs" | "nl"
        );
        let is_one = is_format(word) || is_after_format && is_part;
        if !is_one {
            kept.push(word);
        }
        is_after_format = is_one;
    }
    kept.join("_")
}

#[cfg(test)]
mod tests {
    use brickscope_profile::{Name, Span, Work};

    use super::*;

    #[test]
    fn tens_of_thousands_of_names_in_a_layer_are_held_once() {
        const NAMES: NameIdx = 60_000;
        let name = |nth: NameIdx| Name {
            name: format!("b{nth}"),
            kind: NameKind::Brick,
            category: None,
            host: None,
            device: None,
            transfer: None,
        };
        let span = |name: NameIdx, layer: u16, pass: u32| Span {
            name: Some(name),
            source: Source::Host,
            lane: 0,
            pass: Some(pass),
            layer: Some(layer),
            parent: None,
            start_ns: 0,
            duration_ns: 10,
            exclusive_ns: 10,
            work: Work::default(),
        };
        let mut profile =
            brickscope::BrickProfiler::with_clock(brickscope::MockClock::default().clock())
                .profile();
        profile.names = (0..NAMES).map(name).collect();
        let passes: HashMap<u32, usize> = (0..LEAST_PASSES).map(|n| (n as u32, n)).collect();
        for &pass in passes.keys() {
            // Layers 0 and 1 have all bricks, and layer 2 two of them.
            profile.spans.extend((0..NAMES).map(|name| span(name, 0, pass)));
            profile.spans.extend((0..NAMES).map(|name| span(name, 1, pass)));
            profile.spans.extend((0..2).map(|name| span(name, 2, pass)));
        }
        let all = layers(&profile, &passes);
        assert_eq!(all.len(), usize::from(NAMES));
        let [a, b, c] = &all[&0][..] else { panic!("{:?}", all[&0].len()) };
        assert!(a.is_like(b) && !a.is_like(c));
        let sets: BTreeSet<usize> = all.values().flatten().map(|of| of.bricks).collect();
        assert_eq!(sets.len(), 2);
    }

    #[test]
    fn kernels_that_differ_in_the_format_only_compute_the_same() {
        for (kernel, computes) in [
            ("mul_mat_q4_k", "mul_mat"),
            ("mul_mat_id_q4_K", "mul_mat_id"),
            ("mul_mat_iq3_xxs", "mul_mat"),
            ("mul_mat_q8_0", "mul_mat"),
            ("mul_mat_bf16", "mul_mat"),
            ("mul_mat_mxfp4", "mul_mat"),
            ("mul_mat_tq2_0", "mul_mat"),
            ("flash_attn_ext_q8_0_f16", "flash_attn_ext"),
            ("rms_norm_mul", "rms_norm_mul"),
            ("im2col", "im2col"),
            ("", ""),
        ] {
            assert_eq!(without_format(kernel), computes, "{kernel}");
        }
    }
}
