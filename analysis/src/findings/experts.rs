//! A mixture of experts that memory limits: what a pass reads is decided by how many different experts run.

use brickscope_profile::text::count;
use brickscope_profile::{LayerExperts, Phase, Profile};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::roofline::{Bound, Reach};
use crate::words::{size, whole_percent};

/// From this part of the weights that a pass reads on, they are its experts'.
const LEAST: f64 = 0.5;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.phases {
        let Some(verdict) = &of.verdict else { continue };
        let is_limit = matches!(verdict.reach, Reach::At | Reach::Near);
        if verdict.bound != Bound::Memory || !is_limit {
            continue;
        }
        let Some(read) = Read::of(facts.profile, of.phase) else { continue };
        let weights: f64 =
            of.bricks().iter().map(|brick| brick.stats.data.weights as f64).sum::<f64>()
                / of.passes;
        let part = read.bytes / weights;
        // A file may contain anything.
        if !(part >= LEAST && part.is_finite()) {
            continue;
        }
        let mut finding = Finding::new("experts-read", FindingKind::Limit, Some(of.phase))
            .because(
                format!(
                    "of {} experts {} run each time that a layer is computed, on average over {}",
                    read.all,
                    read.different,
                    count(read.layers as u64, "layer")
                ),
                format!("/experts, {}", of.phase),
            )
            .because(
                format!(
                    "a pass reads {} of weights, {} of them experts'",
                    size(weights),
                    size(read.bytes)
                ),
                format!("{}, and /experts", of.totals("data")),
            );
        finding.what = format!(
            "{} {} pass reads {} of {} experts a layer: {} of its weights",
            if of.phase == Phase::Encode { "an" } else { "a" },
            of.phase,
            read.different,
            read.all,
            whole_percent(part.min(1.0))
        );
        "what a pass reads is decided by the experts that run, so only smaller matrices of experts (ffn_*_exps) make it \
         much less"
            .clone_into(&mut finding.advice);
        "with smaller matrices of experts a pass takes as long".clone_into(&mut finding.refuted_if);
        finding.in_a_sentence = Some(format!("{}; {}", finding.what, finding.advice));
        let why = "how many bits a weight of an expert has was not stated";
        findings.found.push(finding.cannot_predict(why));
    }
}

/// What passes of a phase read of experts.
struct Read {
    layers: usize,
    /// How many there are in a layer, and how many different ones run, in words.
    all: String,
    different: String,
    /// The bytes of a pass.
    bytes: f64,
}

impl Read {
    /// `None` if not all of them are known.
    fn of(profile: &Profile, phase: Phase) -> Option<Self> {
        let layers: Vec<&LayerExperts> =
            profile.experts.iter().filter(|of| of.phase == phase).collect();
        let is_unknown = |of: &&LayerExperts| {
            of.unread > 0 || of.reads == 0 || of.passes == 0 || of.n_expert.is_none()
        };
        if layers.is_empty() || layers.iter().any(is_unknown) || profile.dropped.experts > 0 {
            return None;
        }
        let n = layers.len() as f64;
        let sum =
            |of: &dyn Fn(&LayerExperts) -> f64| layers.iter().map(|layer| of(layer)).sum::<f64>();
        let all = sum(&|of| of.n_expert.map_or(0.0, f64::from)) / n;
        let different = sum(&|of| of.different().unwrap_or(0.0)) / n;
        let bytes = sum(&|of| of.bytes() as f64 / of.passes as f64);
        let in_words =
            |n: f64| if n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.1}") };
        Some(Self {
            layers: layers.len(),
            all: in_words(all),
            different: in_words(different),
            bytes,
        })
    }
}
