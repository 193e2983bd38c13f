//! What to do next.

use std::collections::BTreeMap;
use std::slice;

use brickscope_profile::text::{brief, printable, printable_text, screened_lines};
use brickscope_profile::{DeviceProfile, NameKind, Phase, Profile, SyncMode};

use super::bricks::{Brick, Main};
use crate::findings::{Finding, Findings, Gain, debug_build, rank_last};
use crate::passes::is_of_device;
use crate::roofline::Reach;
use crate::view::{by_the_file, imported, kernels, layers};
use crate::words::{fraction, size, time, whole_percent};

/// A rank that comes last is worth a look before bricks, if passes could take so much less without it.
const LEAST_LEAD: f64 = 0.03;

/// What to do first, in a sentence without its first capital letter: what [`Findings`] have first, or where they have
/// nothing, what would tell more.
#[must_use]
pub fn next_step(profile: &Profile) -> String {
    screened_lines(next(profile, &Main::of(profile), &Findings::of(profile)))
}

pub(super) fn next(profile: &Profile, main: &Main, findings: &Findings) -> String {
    let first = first_of(main, findings).filter(|first| first.rule == debug_build::RULE);
    let Some(debug) = first.filter(|_| profile.not_finite.is_none() && !main.bricks.is_empty())
    else {
        return next_of(profile, main, findings);
    };
    // That a build is slow doesn't hide what is slow in it.
    let rest = findings.found.iter().filter(|finding| finding.rule != debug.rule);
    let rest = Findings { found: rest.cloned().collect(), ..findings.clone() };
    format!("{}; then {}", debug.sentence(), next_of(profile, main, &rest))
}

fn next_of(profile: &Profile, main: &Main, findings: &Findings) -> String {
    if profile.not_finite.is_some() {
        return "find out where the values stop being numbers before trusting any time".to_owned();
    }
    if !profile.devices.is_empty() {
        if let Some(first) = first_of(main, findings) {
            return first.sentence().to_owned();
        }
        let longest = main.bricks.iter().max_by(|a, b| a.ran_ns().total_cmp(&b.ran_ns()));
        let gaps_ns = main.unattributed_ns.unwrap_or(0.0);
        let longest_ns = longest.map_or(0.0, Brick::ran_ns);
        if let Some(next) =
            main.phase.and_then(|phase| by_the_file::wait(profile, phase, longest_ns))
        {
            return next;
        }
        if let Some(next) =
            by_the_file::without_passes_next(profile).filter(|_| main.phase.is_none())
        {
            return next;
        }
        return match longest {
            Some(longest) if longest.ran_ns() > gaps_ns => {
                let share = match main.share_of(slice::from_ref(longest)) {
                    Some(share) => fraction(share),
                    None => "the longest part".to_owned(),
                };
                let name = brief(&longest.name);
                let place = longest.roof.as_ref().and_then(|roof| roof.place.as_ref());
                match (place.filter(|place| place.reach != Reach::Above), &main.layers) {
                    (Some(place), _) => format!(
                        "look at {name}, {share} of the device's time there, at {} of its roof{}",
                        whole_percent(place.of_roof),
                        kernels_of(profile)
                    ),
                    (None, Some(of)) => layers::next(of, &longest.name, &share),
                    (None, None) => {
                        let moved = copies(profile, main.phase).filter(|_| longest.name == "Copy");
                        let moved = moved.map_or_else(String::new, |moved| format!(", {moved}"));
                        let kernels = kernels_of(profile);
                        format!(
                            "look at {name}, {share} of the device's time there{moved}{kernels}"
                        )
                    }
                }
            }
            _ => {
                let of_rank =
                    main.phase.and_then(|phase| by_the_file::of_other_rank_next(profile, phase));
                of_rank.unwrap_or_else(|| {
                    "look at the gaps between bricks on the device in the full report".to_owned()
                })
            }
        };
    }
    if main.bricks.is_empty() {
        if let Some(next) = imported::next(profile) {
            return findings.found.first().map_or(next, |first| first.sentence().to_owned());
        }
        // Requests tell what they waited for without bricks, too.
        let is_of_requests = |finding: &&Finding| finding.waits.is_some() && !finding.is_refuted();
        if let Some(first) = findings.found.iter().find(is_of_requests) {
            return first.sentence().to_owned();
        }
        return match main.phase {
            _ if profile.sync_mode == SyncMode::None => {
                "use another sync mode: the mode `none` times nothing".to_owned()
            }
            Some(_) => "time bricks inside the pass, to see where its time goes".to_owned(),
            None if !profile.requests.is_empty() => {
                "put it beside the server's run: brickscope requests SERVER_RUN --client RUN"
                    .to_owned()
            }
            None => "begin a pass and time bricks inside it".to_owned(),
        };
    }
    if let Some(serialised) = main.phase.and_then(|phase| profile.serialised(phase)) {
        let longest = &main.bricks[0];
        return format!(
            "look at {}, {} of passes whose nodes ran one at a time; the profiler of {} itself tells what they take \
             together",
            longest.name,
            fraction(main.share(longest.own_ns)),
            printable_text(&serialised.devices.join(", "))
        );
    }
    if let Some(first) = first_of(main, findings) {
        return first.sentence().to_owned();
    }
    let longest = &main.bricks[0];
    let longest_is =
        format!("{} takes the most time, {}", longest.name, fraction(main.share(longest.own_ns)));
    if main.verdict.is_some() || profile.imported.is_some() {
        longest_is
    } else if is_of_device(profile)
        && let Some(why) = &profile.ceilings_absent
    {
        // The machine's ceilings aren't the device's.
        format!("{longest_is}; {}", printable_text(&why.reason))
    } else if profile.ceilings.is_none() {
        format!(
            "{longest_is}; ceilings (`brickscope machine --add-to RUN`) would say how fast it could be"
        )
    } else {
        format!("{longest_is}; state its FLOPs and bytes to see how fast it could be")
    }
}

/// The first finding about the phase that the screen shows, or about the whole run. A straggler that could save little isn't
/// worth a look before bricks.
fn first_of<'f>(main: &Main, findings: &'f Findings) -> Option<&'f Finding> {
    let is_little = |gain: Gain| gain.highest_ns < LEAST_LEAD * gain.now_ns;
    let is_meant = |finding: &&Finding| {
        (finding.phase.is_none() || finding.phase == main.phase)
            && !finding.is_refuted()
            && !(finding.rule == rank_last::RULE && finding.gain.is_some_and(is_little))
    };
    findings.found.iter().find(is_meant)
}

/// What the longest kind of copies moved on the device whose bricks are shown: `of which Memcpy HtoD moves 25.5 GB in 921 ms,
/// 27.7 GB/s`. `None` if its bytes aren't stated.
fn copies(profile: &Profile, phase: Option<Phase>) -> Option<String> {
    let has_totals =
        |device: &&DeviceProfile| device.streams.iter().any(|stream| !stream.totals.is_empty());
    let device = profile.devices.iter().find(has_totals)?;
    let totals = device.streams.iter().flat_map(|stream| &stream.totals);
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for total in totals.filter(|total| {
        total.kind == NameKind::Kernel
            && total.stats.name.starts_with(kernels::COPY)
            && (phase.is_none() || total.phase == phase)
    }) {
        let (ns, bytes) = sums.entry(&total.stats.name).or_default();
        *ns = ns.saturating_add(total.stats.total_ns);
        *bytes = bytes.saturating_add(total.stats.total_bytes);
    }
    let (name, (ns, bytes)) = sums.into_iter().max_by_key(|&(_, (ns, _))| ns)?;
    let rate = kernels::rate(bytes, ns)?;
    let (bytes, ns) = (size(bytes as f64), time(ns as f64));
    Some(format!("of which {} moves {bytes} in {ns}, {rate}", printable(name)))
}

/// Where a device's kernels are, after a colon, if any were recorded: the full report has its bricks alone.
fn kernels_of(profile: &Profile) -> &'static str {
    let has_kernels = profile.devices.iter().any(|device| {
        let mut totals = device.streams.iter().flat_map(|stream| &stream.totals);
        totals.any(|total| total.kind == NameKind::Kernel)
    });
    if has_kernels { ": `brickscope show RUN --as kernels` lists its kernels" } else { "" }
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, BrickProfiler, MockClock};

    use super::*;

    #[test]
    fn a_debug_build_does_not_hide_what_is_slow() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        for position in 0..3 {
            let pass = profiler.begin_pass(Phase::Decode);
            let timer = profiler.start_brick(BrickId::LmHead);
            hand.advance(1_000_000);
            profiler.stop_brick(timer, 1);
            profiler.end_pass(pass, 1, position);
        }
        let mut profile = profiler.profile();
        let without = next_step(&profile);
        profile.overhead.basis = "estimate (a debug build)".to_owned();
        let said = next_step(&profile);
        assert!(said.starts_with("build with optimisation"), "{said}");
        assert!(said.ends_with(&format!("; then {without}")), "{said}");
    }
}
