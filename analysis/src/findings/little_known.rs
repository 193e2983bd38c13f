//! A trace that tells the work of little of what devices did, though another recording would tell more.

use std::collections::HashSet;

use brickscope_profile::run::Format;
use brickscope_profile::text::percent;
use brickscope_profile::{
    DeviceStream, GraphLayersBy, Imported, LaunchKind, NameKind, Profile, Span,
};

use super::device::OnDevice;
use super::facts::Facts;
use super::{Finding, FindingKind, Findings};
use crate::roofline::{BRICKS_OF_PRODUCTS, Roofline, is_known, known_part};

/// Where more than this part of the time has known work, figures are of most of it.
const MOST_KNOWN: f64 = 0.5;
/// Products that take less than this part of the time aren't worth another recording.
const LEAST: f64 = 0.25;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    // Only this profiler writes shapes.
    let Some(imported) = &facts.profile.imported else { return };
    let program = imported.program.as_deref();
    if !facts.is_from(Format::Chrome) || program != Some("PyTorch's profiler") {
        return;
    }
    // One finding: what helps on one device helps on all.
    let found = facts.devices.iter().find_map(|of| finding(facts.profile, imported, of));
    findings.found.extend(found);
}

fn finding(profile: &Profile, imported: &Imported, of: &OnDevice<'_>) -> Option<Finding> {
    let whole = profile.whole_device(of.index)?;
    let (roofline, part) = (Roofline::of(&whole, of.phase).ok(), known_part(&whole, of.phase));
    let known = match &roofline {
        Some(roofline) => Some(roofline.known?),
        None => part.as_ref().map(|(_, known)| *known),
    };
    // Who neither recorded shapes nor gave limits didn't ask.
    if known.is_none() && of.device.ceilings.is_none() {
        return None;
    }
    if known.is_some_and(|known| known.ns as f64 > MOST_KNOWN * known.of_ns as f64) {
        return None;
    }
    // Passes are on one of its streams.
    let stream = of.device.streams.get(whole.passes.first()?.lane as usize)?;
    let products = Products::of(profile, of, stream);
    let (cure, ns) = products.cure(imported)?;
    if ns == 0 || (ns as f64) < LEAST * products.of_ns as f64 {
        return None;
    }
    let (phase, device) = (of.phase, of.name(profile));
    let mut finding = Finding::new("work-unknown", FindingKind::Lack, Some(phase));
    finding.what = match known {
        Some(known) => format!(
            "the work of only {} of the time of {phase} on {device} is known",
            known.share()
        ),
        None => format!("no work is known of what {phase} ran on {device}"),
    };
    if let Some(verdict) = roofline.as_ref().and_then(Roofline::verdict) {
        finding = finding.because(verdict.says(), "the roofline");
    } else if let Some((part, known)) = &part {
        let bytes = part.bricks(Some(phase)).into_iter().map(|brick| brick.stats.total_bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        let rate = bytes as f64 / known.ns as f64;
        let moved = format!("in that, bricks moved {rate:.1} GB/s");
        finding = finding.because(moved, of.place("spans"));
    }
    let launched = match cure {
        Cure::Shapes => "launched one by one",
        Cure::Capture => "of graphs",
    };
    finding = finding.because(
        format!(
            "products whose work isn't known take {} of its bricks' time, in kernels {launched}",
            percent(ns as f64, products.of_ns as f64)
        ),
        of.place("spans"),
    );
    finding.advice = match cure {
        Cure::Shapes => {
            "record with record_shapes=True, so that the file has the shapes of its products"
        }
        Cure::Capture => {
            "give a trace of the graphs' capture with shapes (`import --capture FILE`; docs/import.md says how servers \
             write one)"
        }
    }
    .to_owned();
    finding.in_a_sentence = Some(format!("{}: {}", finding.advice, finding.what));
    "with that, the work of as little of the time is known".clone_into(&mut finding.refuted_if);
    Some(finding.cannot_predict("it makes figures known, and nothing faster"))
}

/// What would make more known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cure {
    /// The trace itself with the shapes of products.
    Shapes,
    /// A trace of the capture of its graphs.
    Capture,
}

/// How long products whose work isn't known ran, by how they were launched.
#[derive(Debug, Default)]
struct Products {
    issued_ns: u64,
    replayed_ns: u64,
    /// How long all ran.
    of_ns: u64,
}

impl Products {
    fn of(profile: &Profile, of: &OnDevice<'_>, stream: &DeviceStream) -> Self {
        let passes = stream.passes.iter();
        let passes = passes.filter(|pass| pass.phase == of.phase && !pass.is_left_out);
        let serials: HashSet<u32> = passes.map(|pass| pass.serial).collect();
        let name = |span: &Span| profile.names.get(usize::from(span.name?));
        let mut sums = Self::default();
        for (row, span) in (0_u32..).zip(&stream.spans) {
            let is_in = span.pass.is_some_and(|serial| serials.contains(&serial));
            let Some(of_span) = name(span).filter(|_| is_in) else { continue };
            if of_span.kind == NameKind::Brick {
                sums.of_ns = sums.of_ns.saturating_add(span.exclusive_ns);
                continue;
            }
            let around = span.parent.and_then(|at| stream.spans.get(at as usize)).and_then(name);
            let is_product =
                around.is_some_and(|brick| BRICKS_OF_PRODUCTS.contains(&brick.name.as_str()));
            if !is_product || is_known(&span.work) {
                continue;
            }
            let sum = match stream.launch_of(row).map(|launch| launch.kind) {
                Some(LaunchKind::Issued) => &mut sums.issued_ns,
                Some(LaunchKind::Replayed) => &mut sums.replayed_ns,
                Some(LaunchKind::Recorded) | None => continue,
            };
            *sum = sum.saturating_add(span.duration_ns);
        }
        sums
    }

    /// What would make the most of it known, of what wasn't done, and of how much.
    fn cure(&self, imported: &Imported) -> Option<(Cure, u64)> {
        let mut with = imported.conditions.iter().filter(|(what, _)| what == "with");
        let has_shapes = with.any(|(_, name)| name == "record_shapes");
        let by = imported.graph_layers.as_ref().map(|layers| layers.by);
        let shapes = (!has_shapes).then_some((Cure::Shapes, self.issued_ns));
        let is_captured = by == Some(GraphLayersBy::Capture);
        let capture = (!is_captured).then_some((Cure::Capture, self.replayed_ns));
        shapes.into_iter().chain(capture).max_by_key(|&(_, ns)| ns)
    }
}
