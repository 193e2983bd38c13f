//! The third roof: how fast the kernels of a brick take its weights in when these lie near the core. Better code raises it,
//! and more threads may; faster memory doesn't. Weights of another format have another kernel, with a pace of its own.

use std::collections::BTreeSet;

use brickscope_profile::text::printable;
use brickscope_profile::{
    Absent, BrickId, BrickStats, Ceilings, KernelPace, Phase, Profile, WeightGroup,
};
use serde::Serialize;

use super::SWINGS;
use crate::passes::is_of_device;
use crate::words::whole;

/// The backends that our own kernels have on a CPU.
pub(crate) const OURS: [&str; 4] = ["scalar", "avx2", "avx512", "neon"];

/// Which tensors a brick multiplies by. A head that is tied to the embedding has no tensor of its own.
const TENSORS: [(BrickId, &[&str]); 6] = [
    (BrickId::QkvProjection, &["attn_q", "attn_k", "attn_v", "attn_qkv"]),
    (BrickId::OutputProjection, &["attn_output"]),
    (BrickId::GateProjection, &["ffn_gate"]),
    (BrickId::UpProjection, &["ffn_up"]),
    (BrickId::DownProjection, &["ffn_down"]),
    (BrickId::LmHead, &[HEAD]),
];
const HEAD: &str = "output";
const EMBEDDING: &str = "token_embd";

/// A pace that was measured with so many times the tokens of a pass, or more, says nothing of it: decoding the weights takes a
/// larger part of the time.
const FEWER: f64 = 2.0;

/// If more than one pass in so many was disturbed, threads had no core, and a pace says nothing of their rate.
const DISTURBED: u64 = 10;

/// How fast bricks took their weights in, and how fast their code does when these lie in a cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnPace {
    /// The kernels.
    pub kernels: Vec<String>,
    /// The caches that the weights lay in when these were measured: `L1`.
    pub level: String,
    /// Bytes of weights that the bricks took in per second.
    pub bytes_per_second: f64,
    /// What their code reaches.
    pub pace_per_second: f64,
    /// The lowest that this was around the run.
    pub lowest_per_second: f64,
    /// The part of it that was reached.
    pub of_pace: f64,
    /// How many times as fast the machine's limits would let them be: the most that better code brings.
    pub at_the_roof: f64,
    #[serde(skip)]
    sums: Sums,
}

/// Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sums {
    /// The bytes of weights.
    bytes: f64,
    flops: f64,
    took: f64,
    /// What it takes at the kernels' pace, as it is stated and as low as it was.
    at_pace: f64,
    at_lowest: f64,
    /// The least time by the machine's limits, as they are stated and as low as they were.
    least: f64,
    slow_least: f64,
    /// Whether each pace was measured around the run, and nobody disturbed it.
    is_sure: bool,
    /// Whether they multiplied several tokens at once.
    is_of_several: bool,
}

/// What a brick took, and its least times by the machine's limits, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) took: f64,
    pub(super) least: f64,
    pub(super) slow_least: f64,
}

impl OwnPace {
    fn of(mut kernels: Vec<String>, levels: &BTreeSet<String>, sums: Sums) -> Option<Self> {
        kernels.sort_unstable();
        kernels.dedup();
        let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
        let own = Self {
            kernels,
            level: levels.join(" and "),
            bytes_per_second: sums.bytes / sums.took,
            pace_per_second: sums.bytes / sums.at_pace,
            lowest_per_second: sums.bytes / sums.at_lowest,
            of_pace: sums.at_pace / sums.took,
            at_the_roof: sums.took / sums.least,
            sums,
        };
        let figures = [own.bytes_per_second, own.pace_per_second, own.lowest_per_second];
        let parts = [own.of_pace, own.at_the_roof];
        let are_figures = figures.into_iter().all(Ceilings::is_rate)
            && parts.into_iter().all(|part| part.is_finite() && part > 0.0);
        are_figures.then_some(own)
    }

    /// That of several bricks together. `None` of none.
    pub(crate) fn together<'p>(all: impl Iterator<Item = &'p Self>) -> Option<Self> {
        let (mut kernels, mut levels) = (Vec::new(), BTreeSet::new());
        let mut sums: Option<Sums> = None;
        for own in all {
            kernels.extend(own.kernels.iter().cloned());
            levels.extend(own.level.split(" and ").map(str::to_owned));
            sums = Some(sums.map_or(own.sums, |sums| sums.and(own.sums)));
        }
        Self::of(kernels, &levels, sums?)
    }

    /// How long the bricks took, in nanoseconds.
    pub(super) fn took_ns(&self) -> f64 {
        self.sums.took * 1e9
    }

    /// What they took more than the machine's limits allow, in nanoseconds.
    pub(crate) fn above_ns(&self) -> f64 {
        (self.sums.took - self.sums.least).max(0.0) * 1e9
    }

    /// Whether their code is what limits them: they are about as fast as it is anywhere, and the machine, at its slowest,
    /// would have let them be faster, both by more than measurements may differ. A pace that swung, that others disturbed, or
    /// that the run beat by far is no evidence.
    ///
    /// What is at its pace is a little above or below what was measured of that, by chance: neither changes the verdict.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        let Sums { took, at_pace, at_lowest, slow_least, is_sure, .. } = self.sums;
        is_sure
            && at_lowest <= SWINGS * at_pace
            && (1.0 / SWINGS..=SWINGS).contains(&self.of_pace)
            && took.min(at_pace) > SWINGS * slow_least
    }

    /// What was reached, what the code reaches, and the lowest of that, in thousands of millions, with their unit: bytes of
    /// weights or, where each is used for several tokens, what is computed with them.
    pub(crate) fn rates(&self) -> ([f64; 3], &'static str) {
        let Sums { flops, took, at_pace, at_lowest, .. } = self.sums;
        if self.is_of_several() {
            return ([took, at_pace, at_lowest].map(|seconds| flops / seconds / 1e9), "GFLOP/s");
        }
        let rates = [self.bytes_per_second, self.pace_per_second, self.lowest_per_second];
        (rates.map(|rate| rate / 1e9), "GB/s")
    }

    /// Whether these products multiplied several tokens at once.
    pub(crate) fn is_of_several(&self) -> bool {
        self.sums.is_of_several
    }

    /// What was reached, of what: `25 of 26 GB/s that this code reaches from L1`; or where the run was faster, `27 GB/s (this
    /// code reached 26 from L1)`.
    #[must_use]
    pub fn says(&self) -> String {
        let (rates, unit) = self.rates();
        let [own, pace, _] = rates.map(whole);
        let level = printable(&self.level);
        if self.of_pace > 1.0 && own != pace {
            return format!("{own} {unit} (this code reached {pace} from {level})");
        }
        format!("{own} of {pace} {unit} that this code reaches from {level}")
    }
}

impl Sums {
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            flops: self.flops + other.flops,
            took: self.took + other.took,
            at_pace: self.at_pace + other.at_pace,
            at_lowest: self.at_lowest + other.at_lowest,
            least: self.least + other.least,
            slow_least: self.slow_least + other.slow_least,
            is_sure: self.is_sure && other.is_sure,
            is_of_several: self.is_of_several || other.is_of_several,
        }
    }
}

/// The paces of the kernels of a phase.
pub(super) struct Paces<'p> {
    ceilings: &'p Ceilings,
    backend: &'p str,
    threads: u32,
    weights: &'p [WeightGroup],
    /// The tokens of a pass, where kernels multiply several at once.
    tokens: Option<f64>,
    interleaved_bytes: u64,
    /// The names of the phase's kernels.
    kernels: BTreeSet<&'p str>,
}

impl<'p> Paces<'p> {
    /// `None` where there are no such kernels: of an engine that names none nothing is known, and earlier versions measured none
    /// of products of several tokens.
    ///
    /// # Errors
    ///
    /// Why there is none, where there could be.
    pub(super) fn of(profile: &'p Profile, phase: Phase) -> Result<Option<Self>, Absent> {
        let absent = |reason: String| Err(Absent { reason });
        let run = profile.run.as_ref().filter(|run| !run.backend.is_empty());
        let (Some(run), Some(ceilings)) = (run, &profile.ceilings) else { return Ok(None) };
        if is_of_device(profile) || !profile.devices.is_empty() {
            return Ok(None);
        }
        let tokens = match phase {
            Phase::Decode => None,
            Phase::Prefill if ceilings.paces.iter().any(|of| of.tokens.is_some()) => {
                let total = profile.phase(phase);
                Some(total.map_or(0.0, |of| of.tokens as f64 / of.passes.max(1) as f64))
            }
            _ => return Ok(None),
        };
        if profile.imported.is_some() || !OURS.contains(&run.backend.as_str()) {
            return absent(format!(
                "How fast the kernels of {} are by themselves is not known, only those of brickscope are measured: whether they \
                 limit it, runs with other numbers of threads show.",
                printable(&run.backend)
            ));
        }
        let kernels = profile.kernels(Some(phase));
        let kernels: BTreeSet<&str> = kernels.iter().map(|of| of.stats.name.as_str()).collect();
        let has = |operation: &str| kernels.iter().any(|name| name.starts_with(operation));
        if !has(if tokens.is_some() { "gemm_" } else { "gemv_" }) {
            return Ok(None);
        }
        if tokens.is_none() && has("gemm_") {
            return absent(
                "The pace of kernels for several tokens at once is not held against decode."
                    .to_owned(),
            );
        }
        let measured = ceilings.paces.iter().filter_map(|of| of.tokens).min().unwrap_or(1);
        if tokens.is_some_and(|tokens| tokens * FEWER <= f64::from(measured)) {
            return absent(format!(
                "The pace of its kernels was measured with {measured} tokens at once: a pass of so few isn't held against it."
            ));
        }
        if let Some(total) = profile.phase(phase)
            && total.disturbed.saturating_mul(DISTURBED) > total.passes
        {
            return absent(format!(
                "Threads waited for a CPU in {} of {} passes, so these aren't held against the pace of their kernels.",
                total.disturbed, total.passes
            ));
        }
        if ceilings.paces.is_empty() {
            return absent("The pace of its kernels was not measured.".to_owned());
        }
        let model = profile.model.as_ref();
        Ok(Some(Self {
            ceilings,
            backend: &run.backend,
            threads: run.threads,
            weights: model.map_or(&[][..], |model| &model.weights[..]),
            tokens,
            interleaved_bytes: model.and_then(|model| model.interleaved_bytes).unwrap_or(0),
            kernels,
        }))
    }

    /// That of a brick; `None` if it multiplies no weights, or the pace of one of its kernels is not known.
    pub(super) fn of_brick(&self, stats: &BrickStats, times: Times) -> Option<OwnPace> {
        let brick = BrickId::from_str(&stats.name)?;
        let (_, tensors) = TENSORS.iter().find(|(id, _)| *id == brick)?;
        // The head multiplies the last token only.
        if self.tokens.is_some() && (brick == BrickId::LmHead || stats.total_flops == 0) {
            return None;
        }
        let groups: Vec<&WeightGroup> = self.matrices().filter(|of| is_of(of, tensors)).collect();
        let all: f64 = groups.iter().map(|of| of.bytes as f64).sum();
        // As stated: the same that the other roofs count.
        let bytes = stats.data.weights.min(stats.total_bytes) as f64;
        if all <= 0.0 || bytes <= 0.0 {
            return None;
        }
        let (mut kernels, mut levels) = (Vec::new(), BTreeSet::new());
        let Times { took, least, slow_least } = times;
        let mut sums = Sums {
            bytes,
            flops: stats.total_flops as f64,
            took,
            at_pace: 0.0,
            at_lowest: 0.0,
            least,
            slow_least,
            is_sure: true,
            is_of_several: self.tokens.is_some(),
        };
        for group in groups {
            let kernel = self.kernel_of(group);
            let pace = self.kernel(&kernel)?;
            // As many tokens as a pass has, and not as many as it was measured with.
            let more = match (self.tokens, pace.tokens) {
                (Some(tokens), Some(measured)) => f64::from(measured) / tokens,
                _ => 1.0,
            };
            let rate = pace.bytes_per_second? * more;
            let name = pace.name();
            let spread = self.ceilings.spreads.iter().find(|of| of.of == name);
            // A pass reads each of its matrices once.
            let at_pace = bytes * (group.bytes as f64 / all) / rate;
            sums.at_pace += at_pace;
            sums.at_lowest += at_pace / self.ceilings.steadiness(&name);
            sums.is_sure &= spread.is_some_and(|spread| !spread.around.is_empty());
            levels.insert(pace.level.clone());
            kernels.push(kernel);
        }
        OwnPace::of(kernels, &levels, sums)
    }

    /// Why no brick has one.
    pub(super) fn absent(&self) -> Absent {
        let mut paces = self.ceilings.paces.iter();
        let why = paces.find_map(|of| {
            of.absent.as_ref().filter(|_| self.kernels.contains(of.kernel.as_str()))
        });
        let why = why.map_or("none was measured as it ran them", |absent| &*absent.reason);
        Absent { reason: format!("The pace of its kernels is not known: {why}.") }
    }

    /// The kernel that multiplies a matrix in this phase.
    fn kernel_of(&self, group: &WeightGroup) -> String {
        match self.tokens {
            Some(_) => KernelPace::kernel_of_tokens(&group.format, self.backend),
            None => KernelPace::kernel_of(&group.format, self.backend),
        }
    }

    /// The highest pace of a kernel of this phase, with weights in the order that it read them in.
    fn kernel(&self, kernel: &str) -> Option<&'p KernelPace> {
        if !self.kernels.contains(kernel) {
            return None;
        }
        let is_interleaved = self.is_interleaved(kernel)?;
        let paces = self.ceilings.paces.iter().filter(|of| {
            of.kernel == kernel
                && of.is_interleaved == is_interleaved
                && of.threads == self.threads
                && of.bytes_per_second.is_some_and(Ceilings::is_rate)
        });
        paces.max_by(|a, b| {
            let rate = |of: &KernelPace| of.bytes_per_second.unwrap_or(0.0);
            rate(a).total_cmp(&rate(b))
        })
    }

    /// Whether the weights of a kernel were interleaved; `None` if only some of those were that could be.
    fn is_interleaved(&self, kernel: &str) -> Option<bool> {
        let can_be = |kernel: &str| {
            self.ceilings.paces.iter().any(|of| of.kernel == kernel && of.is_interleaved)
        };
        if self.interleaved_bytes == 0 || !can_be(kernel) {
            return Some(false);
        }
        let products = self.matrices().filter(|of| {
            let is_product = TENSORS.iter().any(|(_, tensors)| is_of(of, tensors));
            is_product && can_be(&self.kernel_of(of))
        });
        let bytes = products.map(|of| of.bytes).fold(0, u64::saturating_add);
        (bytes == self.interleaved_bytes).then_some(true)
    }

    /// The matrices that are multiplied: without an embedding that isn't also the head.
    fn matrices(&self) -> impl Iterator<Item = &'p WeightGroup> {
        let has_head = self.weights.iter().any(|of| of.is_matrix && of.name == HEAD);
        self.weights.iter().filter(move |of| of.is_matrix && !(has_head && of.name == EMBEDDING))
    }
}

/// Whether a group is of one of these tensors. Without a head of its own, the embedding is the head.
fn is_of(group: &WeightGroup, tensors: &[&str]) -> bool {
    let name = group.name.as_str();
    tensors.contains(&name) || (name == EMBEDDING && tensors.contains(&HEAD))
}
