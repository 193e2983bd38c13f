//! Folded stacks: weights by stack, and nothing on what they count.

use brickscope_profile::{BrickStats, FunctionSamples, Profile, Source};

use super::{At, Format, ImportError, UNDATED, WeightUnit, lacks, total};
use crate::export::folded;
use brickscope_analysis::stacks::{Stacks, Unit};

pub(super) fn read(
    text: &str,
    at: &At<'_>,
    unit: Option<WeightUnit>,
) -> Result<Profile, ImportError> {
    let Some(unit) = unit else {
        return Err(at.whole(
            "folded stacks don't state whether their weights are times or samples: name their unit with --unit ns, us, ms or \
             samples",
        ));
    };
    // For each name its own weight, and that of all stacks that contain it. A recursive name counts once
    // for each stack. The stacks themselves aren't kept: there may be millions.
    let mut stacks = Stacks::new(Unit::Samples, 0);
    let (mut own, mut inclusive, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    let mut nth = 0_u64;
    // Times may have fractions, which are whole nanoseconds.
    let places = match unit {
        WeightUnit::Nanoseconds | WeightUnit::Samples => 0,
        WeightUnit::Microseconds => 3,
        WeightUnit::Milliseconds => 6,
    };
    let read =
        folded::each(text.as_bytes(), at.path, places, &mut stacks, |stacks, frames, weight| {
            nth += 1;
            own.resize(stacks.frames.len(), 0_u64);
            inclusive.resize(stacks.frames.len(), 0_u64);
            seen.resize(stacks.frames.len(), 0);
            for &frame in frames {
                let frame = frame as usize;
                if std::mem::replace(&mut seen[frame], nth) != nth {
                    inclusive[frame] += weight;
                }
            }
            if let Some(&leaf) = frames.last() {
                own[leaf as usize] += weight;
            }
        });
    read.map_err(|error| at.folded(&error))?;
    let weights = || stacks.frames.iter().zip(own.iter().copied().zip(inclusive.iter().copied()));
    let mut profile = at.profile(Format::Folded, None, "of the program that wrote the stacks");
    if unit == WeightUnit::Samples {
        lacks(
            &mut profile,
            &[
                "times: weights count samples",
                "passes, phases and tokens: stacks don't say where a pass begins",
                UNDATED,
            ],
        );
        if let Some(imported) = &mut profile.imported {
            let samples = weights().map(|(frame, (own, total))| FunctionSamples {
                name: frame.name.clone(),
                own,
                total,
            });
            imported.samples = samples.collect();
            imported.samples.sort_by_key(|row| std::cmp::Reverse((row.own, row.total)));
        }
        return Ok(profile);
    }
    lacks(
        &mut profile,
        &[
            "passes, phases and tokens: stacks don't say where a pass begins",
            "single spans, their number, the shortest and the longest: weights are sums",
            "which clock: times are shown as the host's",
            UNDATED,
        ],
    );
    for (frame, (own, inclusive)) in weights() {
        let mut stats = BrickStats::new(&frame.name);
        stats.total_ns = inclusive;
        stats.exclusive_ns = own;
        profile.totals.push(total(None, Source::Host, stats));
    }
    Ok(profile)
}

impl At<'_> {
    /// The same error, with the place taken from its text, which begins with the file.
    fn folded(&self, error: &folded::FoldedError) -> ImportError {
        let text = error.to_string();
        let file = self.path.display().to_string();
        let fault = text.strip_prefix(&file).unwrap_or(&text);
        match fault.strip_prefix(", ").and_then(|fault| fault.split_once(": ")) {
            Some((place, fault)) => self.place(place, fault),
            None => self.whole(fault.trim_start()),
        }
    }
}
