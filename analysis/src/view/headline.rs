//! One sentence: what limits this run.

use brickscope_profile::text::{percent, printable};
use brickscope_profile::{Phase, Profile};

use crate::roofline::{MOST, NEAR};
use crate::view::{device, imported};

/// What limits the run, in one sentence: for decode, or for prefill if nothing was decoded.
///
/// Rates are the bricks' stated work divided by the measured wall time; ceilings are those measured
/// before the run ([`Profile::ceilings`]). Without ceilings, only the longest brick is named. For a run on
/// a device, the sentence says how fast it was by the host's clock, and how busy the device was.
///
/// For an imported profile, it begins with the file's format and program.
#[must_use]
pub fn headline(profile: &Profile) -> String {
    match &profile.imported {
        None => judgement(profile),
        Some(imported) => {
            let by = imported
                .program
                .as_ref()
                .map_or(String::new(), |program| format!(", by {}", printable(program)));
            format!(
                "Imported from {} ({}{by}); its times were not measured here. {}",
                printable(&imported.file),
                printable(&imported.format),
                judgement(profile)
            )
        }
    }
}

fn judgement(profile: &Profile) -> String {
    if !profile.devices.is_empty() {
        return device::headline(profile);
    }
    let phase = [Phase::Decode, Phase::Prefill].into_iter().find_map(|phase| profile.phase(phase));
    let Some(total) = phase else {
        if profile.imported.is_some() {
            return imported::without_passes(profile);
        }
        return "No pass was recorded, so there is no wall time to attribute.".to_owned();
    };
    let name = match total.phase {
        Phase::Prefill => "Prefill",
        Phase::Decode => "Decode",
    };
    let wall = total.wall_ns as f64;
    let bricks = profile.bricks(Some(total.phase));
    let Some(top) = bricks.first() else {
        return format!("{name} was timed as a whole; no brick was recorded in it.");
    };
    let top = format!(
        "{} takes the most time, {} of it",
        printable(&top.stats.name),
        percent(top.stats.exclusive_ns as f64, wall)
    );
    if device::is_of_device(profile) {
        let gaps = percent(total.unattributed_ns as f64, wall);
        return format!("{name} on the device: {top}; gaps between bricks are {gaps}.");
    }
    if total.unattributed_ns as f64 > 0.1 * wall {
        return format!(
            "{name} can't be judged yet: {} of its time is unattributed.",
            percent(total.unattributed_ns as f64, wall)
        );
    }
    // Then the times say as much about other processes as about the model.
    if total.disturbed > total.passes / 2 {
        return format!(
            "What bounds {} is unknown: other work disturbed {} of {} passes; {top}.",
            name.to_lowercase(),
            total.disturbed,
            total.passes
        );
    }
    let Some(ceilings) = profile.ceilings.as_ref().filter(|_| wall > 0.0) else {
        return format!("{name}: {top}.");
    };
    let bytes: u64 =
        bricks.iter().map(|brick| brick.stats.total_bytes).fold(0, u64::saturating_add);
    let flops: u64 =
        bricks.iter().map(|brick| brick.stats.total_flops).fold(0, u64::saturating_add);
    if bytes == 0 || flops == 0 {
        return format!("{name}: {top}; what limits it is unknown, since no work was stated.");
    }
    let bytes_per_second = bytes as f64 * 1e9 / wall;
    let flops_per_second = flops as f64 * 1e9 / wall;
    let memory = bytes_per_second / ceilings.read_bytes_per_second;
    let compute = flops_per_second / ceilings.peak_per_second();
    let moves = format!("{:.1} GB/s", bytes_per_second / 1e9);
    let computes = format!("{:.1} GFLOP/s", flops_per_second / 1e9);
    // Below `NEAR` of both ceilings the code is the limit, not the machine.
    if compute > MOST {
        format!(
            "{name} does {computes}, {:.0} % of the measured peak: the stated work or the peak \
             is wrong.",
            100.0 * compute
        )
    } else if memory > MOST {
        format!(
            "{name} moves {moves}, more than the measured memory bandwidth of {:.1} GB/s: its data \
             come from caches; {top}.",
            ceilings.read_bytes_per_second / 1e9
        )
    } else if memory >= NEAR && memory >= compute {
        format!(
            "{name} is bound by memory: it moves {moves}, {:.0} % of measured memory \
             bandwidth; {top}.",
            100.0 * memory
        )
    } else if compute >= NEAR {
        format!(
            "{name} is bound by compute: it does {computes}, {:.0} % of the measured peak; \
             {top}.",
            100.0 * compute
        )
    } else {
        format!(
            "{name} is bound by its kernels: it uses {:.0} % of measured memory bandwidth and {:.0} % \
             of measured peak FLOP/s; {top}.",
            100.0 * memory,
            100.0 * compute
        )
    }
}
