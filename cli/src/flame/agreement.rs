//! Do samples say the same as spans? The shares of bricks by both, of the threads that ran the passes.

use std::collections::{BTreeMap, HashMap};

use brickscope::compare::student;
use brickscope::{Absent, NameKind, Profile};

use super::join::chain;
use super::summary::{Agreement, Compared};
use super::timeline::Place;

/// How sure all of a table's lines together are: beyond what is allowed lies one table in so many.
const TABLES: f64 = 100.0;

/// Compares samples, each with its place and weight, with the spans of the same passes. Passes that
/// other work disturbed are left out: while a thread waits for its core, spans go on and samples don't.
pub(super) fn of(
    profile: &Profile,
    whole: &[bool],
    samples: impl Iterator<Item = (Place, u64)>,
) -> Result<Agreement, Absent> {
    let absent = |reason: String| Err(Absent { reason });
    // By the pass, so that only what was both sampled and measured is compared.
    let mut by_pass: BTreeMap<usize, HashMap<Option<u16>, u64>> = BTreeMap::new();
    let mut disturbed = 0;
    for (place, weight) in samples {
        let Some(pass) = place.pass.filter(|&pass| whole[pass]) else { continue };
        if profile.passes[pass].is_disturbed() {
            disturbed += weight;
            continue;
        }
        let brick = innermost_brick(profile, place.span);
        *by_pass.entry(pass).or_default().entry(brick).or_default() += weight;
    }
    let (Some((&first, _)), Some((&last, _))) =
        (by_pass.first_key_value(), by_pass.last_key_value())
    else {
        return absent(if disturbed > 0 {
            format!(
                "all {disturbed} samples lie in passes that other work on this machine disturbed: \
                 while a thread waits for its core, spans go on and samples don't"
            )
        } else {
            "no sample lies in a pass of which every span was kept".to_owned()
        });
    };
    let is_compared = |pass: usize| {
        whole[pass] && !profile.passes[pass].is_disturbed() && (first..=last).contains(&pass)
    };

    let numbers: HashMap<u32, usize> =
        profile.passes.iter().zip(0..).map(|(pass, index)| (pass.serial, index)).collect();
    // Nanoseconds and samples of each brick of each phase; `None` is what no brick explains.
    let mut rows: BTreeMap<(u8, Option<u16>), (u64, u64)> = BTreeMap::new();
    let mut walls = [0_u64; 2];
    let mut counts = [0_u64; 2];
    for (index, pass) in profile.passes.iter().enumerate().filter(|(index, _)| is_compared(*index))
    {
        let phase = pass.phase as u8;
        walls[usize::from(phase)] = walls[usize::from(phase)].saturating_add(pass.wall_ns);
        let row = rows.entry((phase, None)).or_default();
        row.0 = row.0.saturating_add(pass.unattributed_ns);
        for (&brick, &weight) in by_pass.get(&index).into_iter().flatten() {
            rows.entry((phase, brick)).or_default().1 += weight;
            counts[usize::from(phase)] += weight;
        }
    }
    for span in &profile.spans {
        let pass = span.pass.and_then(|pass| numbers.get(&pass)).copied();
        let Some(pass) = pass.filter(|&pass| is_compared(pass)) else { continue };
        let Some(name) = span.name else { continue };
        let is_brick = |name: u16| {
            profile.names.get(usize::from(name)).is_some_and(|name| name.kind == NameKind::Brick)
        };
        if is_brick(name) {
            let row = rows.entry((profile.passes[pass].phase as u8, Some(name))).or_default();
            row.0 = row.0.saturating_add(span.exclusive_ns);
        }
    }
    let z = student::quantile(1.0 / (TABLES * rows.len() as f64), f64::from(u32::MAX));
    let bricks = rows
        .into_iter()
        .filter_map(|((phase, brick), (nanos, samples))| {
            let (wall, count) = (walls[usize::from(phase)], counts[usize::from(phase)]);
            if wall == 0 || count == 0 {
                return None;
            }
            let measured = nanos as f64 / wall as f64;
            let sampled = samples as f64 / count as f64;
            let count = count as f64;
            // By the share that was measured, since it is the one that is known; half a sample on top,
            // since samples are whole.
            let p = measured.clamp(0.0, 1.0);
            let allowed = z * (p * (1.0 - p) / count).sqrt() + 0.5 / count;
            let brick = match brick {
                None => "unattributed".to_owned(),
                Some(name) => profile.names[usize::from(name)].name.clone(),
            };
            let phase = brickscope::Phase::ALL[usize::from(phase)];
            Some(Compared { phase, brick, measured, sampled, allowed })
        })
        .collect();
    Ok(Agreement { samples: counts.iter().sum(), bricks })
}

fn innermost_brick(profile: &Profile, span: Option<u32>) -> Option<u16> {
    let is_brick = |name: &u16| {
        profile.names.get(usize::from(*name)).is_some_and(|name| name.kind == NameKind::Brick)
    };
    chain(profile, span)
        .into_iter()
        .rev()
        .filter_map(|span| profile.spans[span as usize].name)
        .find(is_brick)
}
