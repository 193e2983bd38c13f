//! A layer on a device, in another program's trace, that takes much longer than others of its kind. The first screen names it
//! from one pass on; that it slows the run down is said from as many as the rule needs on a host.

use super::device::OnDevice;
use super::facts::Facts;
use super::slow_layer::{LEAST_PASSES, MUCH_SLOWER};
use super::{Finding, FindingKind, Findings, Gain};
use crate::layers::{DeviceLayers, SlowOne};
use crate::words::{fraction, time};
use brickscope_profile::text::brief;

const RULE: &str = "slow-layer";

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    for of in &facts.devices {
        let Some(layers) = DeviceLayers::of(facts.profile, of.index, of.phase) else { continue };
        match layers.slow {
            Some(slow) if slow.passes < LEAST_PASSES => {
                findings.unknown(RULE, too_few(&slow, of.phase.name(), &of.name(facts.profile)));
            }
            Some(slow) => findings.found.extend(finding(facts, of, &slow)),
            None => {}
        }
    }
}

fn too_few(slow: &SlowOne, phase: &str, device: &str) -> String {
    let passes = match slow.passes {
        1 => "one pass".to_owned(),
        n => format!("{n} passes"),
    };
    format!(
        "whether layer {} of {phase} is slow on {device} is not known: {} takes {} there and {} elsewhere, in {passes}, and \
         the rule needs {LEAST_PASSES}",
        slow.layer,
        brief(&slow.brick),
        time(slow.brick_ns as f64),
        time(slow.brick_of_others_ns as f64)
    )
}

fn finding(facts: &Facts<'_>, of: &OnDevice<'_>, slow: &SlowOne) -> Option<Finding> {
    let more_ns = slow.takes_ns.saturating_sub(slow.others_ns) as f64;
    let (pass_ns, layer, brick) = (of.span_ns(), slow.layer, brief(&slow.brick));
    if more_ns < MUCH_SLOWER * pass_ns {
        return None;
    }
    let mut finding = Finding::new(RULE, FindingKind::Slow, Some(of.phase)).because(
        format!(
            "layer {layer} takes {}, the median layer of its kind {}: medians over {} passes, and it is slow in {} of them",
            time(slow.takes_ns as f64),
            time(slow.others_ns as f64),
            slow.passes,
            slow.slow_in
        ),
        of.place("spans"),
    );
    finding.what = format!(
        "{brick} of layer {layer}: {} a pass on {} where other layers take {}, {} of {}",
        time(slow.brick_ns as f64),
        of.name(facts.profile),
        time(slow.brick_of_others_ns as f64),
        fraction(more_ns / pass_ns),
        of.phase
    );
    finding.in_a_sentence = Some(format!("look at {}", finding.what));
    "look at its kernel, the format of its weights, and where they are"
        .clone_into(&mut finding.advice);
    finding.refuted_if = format!(
        "{brick} of layer {layer} takes as long with the format and the place of the other layers' weights"
    );
    finding.test = Some("brickscope show RUN --as kernels".to_owned());
    let gain = Gain::between(pass_ns, 0.0, [0.0, more_ns]);
    Some(finding.gains(gain.map(|gain| gain.likely(more_ns))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(passes: usize) -> SlowOne {
        SlowOne {
            layer: 7,
            takes_ns: 379_000,
            others_ns: 250_000,
            brick: "QkvProjection".to_owned(),
            brick_ns: 149_000,
            brick_of_others_ns: 21_200,
            slow_in: passes,
            passes,
            more: 0,
        }
    }

    #[test]
    fn with_few_passes_the_rule_says_how_many_it_needs() {
        assert_eq!(
            too_few(&slow(1), "decode", "the device"),
            "whether layer 7 of decode is slow on the device is not known: QkvProjection takes 149 µs there and 21.2 µs \
             elsewhere, in one pass, and the rule needs 5"
        );
        let said = too_few(&slow(3), "decode", "rank 0");
        assert!(said.ends_with("in 3 passes, and the rule needs 5"), "{said}");
    }
}
