//! One sentence: what limits this run.

use brickscope_profile::text::{brief, percent, printable, printable_text, screened_lines};
use brickscope_profile::{Phase, Profile};

use crate::findings::disturbed::Waited;
use crate::passes::{did, is_of_device};
use crate::roofline::{Reach, Roofline};
use crate::text::wrap;
use crate::typical::{self, Basis, Typical};
use crate::view::layout::file_name;
use crate::view::{by_the_file, device, imported};

/// The room for what is said of a trace of devices.
const COLUMNS: usize = 78;
const LINES: usize = 5;

/// What limits the run, in one sentence: for decode, or for prefill if nothing was decoded. It goes by what passes
/// [typically](crate::typical) take.
///
/// Rates are the bricks' stated work divided by the measured wall time; ceilings are those measured
/// beside the run ([`Profile::ceilings`]), see [`Roofline`]. Without ceilings, only the longest brick is named. For a run on
/// a device, the sentence says how fast it was by the host's clock, and how busy the device was.
///
/// For an imported profile, it begins with the file's format and program; with devices, it is of five lines of 78 columns at
/// most where names allow, and the report has the rest. Where logits weren't numbers, a sentence that
/// says so comes first.
#[must_use]
pub fn headline(profile: &Profile) -> String {
    screened_lines(match &profile.not_finite {
        None => limit(profile),
        Some(not_finite) => format!("{not_finite}. {}", limit(profile)),
    })
}

fn limit(profile: &Profile) -> String {
    match &profile.imported {
        None => judgement(profile),
        Some(imported) if !profile.devices.is_empty() => {
            let from = format!("Imported from {}", file_name(&imported.file));
            let by = imported.program.as_deref().map(|program| format!(", by {}", brief(program)));
            let by = format!(" ({}{})", brief(&imported.format), by.unwrap_or_default());
            let told = |by: &str, has_room: bool| {
                let said = imported::of_tests(profile)
                    .unwrap_or_else(|| by_the_file::headline(profile, has_room));
                format!("{from}{by}; its times were not measured here. {said}")
            };
            // Who wrote it is in the report, too, and the longest brick in the table.
            let fits = |text: &String| wrap(text, COLUMNS).len() <= LINES;
            let all = Some(told(&by, true)).filter(fits);
            let all = all.or_else(|| Some(told("", true)).filter(fits));
            all.unwrap_or_else(|| told("", false))
        }
        Some(imported) => {
            let by = imported
                .program
                .as_ref()
                .map_or(String::new(), |program| format!(", by {}", printable(program)));
            format!(
                "Imported from {} ({}{by}); its times were not measured here. {}",
                printable_text(&imported.file),
                printable(&imported.format),
                judgement(profile)
            )
        }
    }
}

fn judgement(profile: &Profile) -> String {
    if let Some(of_tests) = imported::of_tests(profile) {
        return of_tests;
    }
    if !profile.devices.is_empty() {
        return device::headline(profile);
    }
    let all_passes = profile;
    let phase = Phase::SHOWN.into_iter().find(|&p| profile.phase(p).is_some());
    let judged = phase.map(|phase| typical::judged(profile, phase));
    let profile = judged.as_deref().unwrap_or(profile);
    let Some(total) = phase.and_then(|phase| profile.phase(phase)) else {
        if profile.imported.is_some() {
            return imported::without_passes(profile);
        }
        return match profile.requests.is_empty() {
            true => "No pass was recorded, so there is no wall time to attribute.",
            false => {
                "Requests as who asked a server saw them: what it did meanwhile isn't in this run."
            }
        }
        .to_owned();
    };
    let name = total.phase.heading();
    let wall = total.wall_ns as f64;
    let bricks = profile.bricks(Some(total.phase));
    let Some(top) = bricks.first() else {
        if let Some(passes) = imported::whole_passes(all_passes) {
            return passes;
        }
        return format!("{name} was timed as a whole; no brick was recorded in it.");
    };
    let top = format!(
        "{} takes the most time, {} of it",
        brief(&top.stats.name),
        percent(top.stats.exclusive_ns as f64, wall)
    );
    if is_of_device(profile) {
        let gaps = percent(total.unattributed_ns as f64, wall);
        return format!("{name} on the device: {top}; gaps between bricks are {gaps}.");
    }
    if let Some(serialised) = profile.serialised(total.phase) {
        return format!(
            "{name} ran in part on {}, and what limits it there is unknown: {top} where nodes ran one at a time.",
            printable_text(&serialised.devices.join(", "))
        );
    }
    if total.unattributed_ns as f64 > 0.1 * wall {
        return format!(
            "{name} can't be judged yet: {} of its time is unattributed.",
            percent(total.unattributed_ns as f64, wall)
        );
    }
    let typical = Typical::of(all_passes, total.phase);
    let waited = Waited::of(all_passes, total.phase);
    let disturbed = typical.as_ref().filter(|typical| typical.basis == Basis::Spans);
    let disturbed = disturbed.map(|typical| {
        let (out, all) = (typical.left_out.passes, typical.passes);
        format!("{out} of {all} {} passes were disturbed", total.phase)
    });
    let name = match typical {
        // Then sums say as much about other processes as about the model, and medians of spans don't.
        Some(Typical { basis: Basis::Spans, left_out, passes, .. }) => {
            let how = match &waited {
                Some(waited) => {
                    format!("{} ({}). Without the waits", waited.says(), did(waited.by))
                }
                None => "by the median span of each brick".to_owned(),
            };
            format!(
                "{} of {passes} passes were disturbed; {how}, {}",
                left_out.passes,
                name.to_lowercase()
            )
        }
        _ => name.to_owned(),
    };
    let bytes: u64 =
        bricks.iter().map(|brick| brick.stats.total_bytes).fold(0, u64::saturating_add);
    let flops: u64 =
        bricks.iter().map(|brick| brick.stats.total_flops).fold(0, u64::saturating_add);
    if profile.ceilings.is_some() && (bytes == 0 || flops == 0) {
        return format!("{name}: {top}; what limits it is unknown, since no work was stated.");
    }
    // Judged above.
    let roofline = Roofline::of_sums(profile, total.phase);
    let Some(verdict) = roofline.ok().and_then(|roofline| roofline.verdict()) else {
        return format!("{name}: {top}.");
    };
    if let Some(disturbed) = disturbed.filter(|_| verdict.reach == Reach::Unsettled) {
        let phase = total.phase;
        let lost = waited.map_or(String::new(), |waited| format!(": {}", waited.says()));
        return format!(
            "{disturbed}{lost}, so what limits {phase} has no verdict; by median spans, {top}."
        );
    }
    let cause = match (verdict.reach, &verdict.pace) {
        (Reach::Far, None) => {
            ", so likely latency, synchronisation or idle threads limit it".to_owned()
        }
        // Of known code two figures say more than a guess.
        (Reach::Far, Some(pace)) => format!(", at {}", pace.says()),
        (Reach::Kernel, _) => verdict.helps().map_or(String::new(), |helps| format!("; {helps}")),
        (Reach::Above, _) => ", so the stated work or the ceilings are wrong".to_owned(),
        (Reach::At | Reach::Near | Reach::Unsettled, _) => String::new(),
    };
    format!("{name}: {}{cause}; {top}.", verdict.says())
}
