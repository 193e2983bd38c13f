//! Data that are copied to a device and back unused, or the other way round.

use brickscope_profile::text::printable;
use brickscope_profile::{ExecutionGraph, Phase, PingPong, Profile};

use super::facts::Facts;
use super::{Finding, FindingKind, Findings, Gain};
use crate::ranks::is_of_host;
use crate::typical::OnePass;
use crate::words::{size, time};

/// Less than this part of a pass is not worth a word.
const LEAST: f64 = 0.01;

pub(super) fn find(facts: &Facts<'_>, findings: &mut Findings) {
    let profile = facts.profile;
    // Graphs of large passes are large, and most runs copy nothing.
    if profile.names.iter().any(|name| name.transfer.is_some()) {
        of_pass(profile, "/spans", findings);
        let devices = profile.devices.iter().enumerate();
        for (index, _) in devices.filter(|(_, device)| is_of_host(profile, device.rank)) {
            if let Some(device) = profile.whole_device(index) {
                of_pass(&device, &format!("/devices/{index}/streams, spans"), findings);
            }
        }
    }
    if let Some(graph) = &profile.graph
        && let Some(found) = most(graph)
    {
        let finding = finding(&found, None, "/graph");
        findings
            .found
            .push(finding.cannot_predict("which part of a pass the graph is of, it doesn't state"));
    }
}

/// In the typical pass.
fn of_pass(profile: &Profile, place: &str, findings: &mut Findings) {
    for phase in Phase::SHOWN {
        let Some(pass) = OnePass::of(profile, phase).map(|one| one.pass) else { continue };
        let Some(graph) = profile.execution_graph(pass.serial) else { continue };
        let Some(found) = most(&graph) else { continue };
        let now_ns = pass.wall_ns as f64;
        let finding = finding(&found, Some(phase), place);
        match found.total_ns.map(|ns| ns as f64) {
            Some(ns) if ns >= LEAST * now_ns => {
                findings.found.push(finding.gains(Gain::between(now_ns, now_ns - ns, [0.0, ns])));
            }
            Some(_) => {}
            None => findings.found.push(finding.cannot_predict("the copies were not timed")),
        }
    }
}

/// The copies that took longest, or else moved the most bytes.
fn most(graph: &ExecutionGraph) -> Option<PingPong> {
    let found = graph.ping_pong_findings();
    found
        .into_iter()
        .enumerate()
        .max_by_key(|(at, of)| (of.total_ns, std::cmp::Reverse(*at)))
        .map(|(_, of)| of)
}

fn finding(found: &PingPong, phase: Option<Phase>, place: &str) -> Finding {
    let name = printable(&found.tensor);
    let took =
        found.total_ns.map_or(String::new(), |ns| format!(", which takes {}", time(ns as f64)));
    let mut finding = Finding::new("ping-pong", FindingKind::Slow, phase).because(
        format!("{name}: {} there and back, {} times{took}", size(found.bytes as f64), found.times),
        place,
    );
    let brick =
        |of: &Option<String>| of.as_ref().map_or_else(|| "no brick".to_owned(), |of| printable(of));
    finding.what = format!(
        "{name} is copied in {} and back in {}, unused in between",
        brick(&found.there),
        brick(&found.back)
    );
    finding.advice = format!("leave {name} where it is, or compute what uses it on the same side");
    finding.in_a_sentence = Some(format!("{}: {}", finding.advice, finding.what));
    "something changes it in between".clone_into(&mut finding.refuted_if);
    finding
}
