//! Comparing two flamegraphs: the shares that moved by more than chance.
//!
//! A share isn't a time: if one function became faster, the shares of all others grew. Use `compare` and
//! `gate` to see what became slower; this says where to look.

mod view;

pub(crate) use self::view::named;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Result, bail};
use brickscope::{Machine, Model, Phase};
use brickscope_analysis::stacks::diff::{Part, Shift, Whole, levels};
use brickscope_analysis::stacks::{Class, Unit};
use serde::Serialize;

use super::summary::{Share, Summary};
use crate::flame::captions;
use crate::output;

/// The probability that a diff of equal sides reports any move. Classes, bricks and functions get a
/// third of it each.
pub(crate) const LEVEL: f64 = 0.01;

/// Rows with a smaller share on both sides aren't judged, since each judged row makes the others harder
/// to judge.
pub(crate) const MIN_SHARE: f64 = 0.005;

/// If other work disturbed a larger part of a side's passes, a share that grew may be its doing.
const MOST_DISTURBED: f64 = 0.2;

/// The default growth of a share that matters, in percentage points.
pub(crate) const THRESHOLD_POINTS: f64 = 3.0;

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Diff {
    /// The version of this schema.
    pub(crate) schema_version: u32,
    /// The smallest growth of a share that matters, in percentage points.
    pub(crate) threshold_points: f64,
    /// [`LEVEL`].
    pub(crate) level: f64,
    /// [`MIN_SHARE`].
    pub(crate) min_share: f64,
    /// The unit of weights.
    pub(crate) unit: Unit,
    /// Whether both sides have blocks of time.
    pub(crate) has_blocks: bool,
    pub(crate) before: Side,
    pub(crate) after: Side,
    /// Warnings, a sentence each.
    #[serde(rename = "doubts")]
    pub(crate) warnings: Vec<String>,
    /// Shares of the total, by self weight.
    pub(crate) classes: Vec<Row>,
    /// Shares of the phase, or of the total if there is none.
    pub(crate) bricks: Vec<Row>,
    /// Shares of the total, including callees.
    pub(crate) functions: Vec<Row>,
}

/// One side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Side {
    /// When it was made.
    pub(crate) generated: String,
    /// The version of brickscope.
    pub(crate) brickscope_version: String,
    /// The compiler and flags of that build.
    pub(crate) build: String,
    /// The total weight.
    pub(crate) total: u64,
    /// How many passes were disturbed, and how many there are, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disturbed: Option<[u64; 2]>,
    /// What was compared: its folder, or its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
}

/// A class, brick or function of either side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<Phase>,
    /// Its share before, 0 to 1; `null` if it is missing there.
    pub(crate) before: Option<f64>,
    /// Its share after, likewise.
    pub(crate) after: Option<f64>,
    /// The second share minus the first, in percentage points.
    pub(crate) points: f64,
    /// The error of `points`, at the level of the row; `null` if it is unknown or the row is too small to
    /// judge.
    pub(crate) error_points: Option<f64>,
    /// The probability of so large a difference by chance; `null` likewise.
    pub(crate) probability: Option<f64>,
    pub(crate) verdict: Verdict,
    /// Whether it moved, and grew by more than the threshold.
    pub(crate) exceeds_threshold: bool,
    /// Why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The verdict on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It moved by more than its error.
    Moved,
    /// It is missing before, and its share after exceeds the error.
    New,
    /// Its share before exceeds the error, and it is missing after.
    Vanished,
    /// It moved by no more than its error.
    Unmoved,
    /// Its share is too small on both sides to judge.
    Small,
    /// The data doesn't decide it.
    Unknown,
}

/// Compares `after` with `before`. A growth by more than `threshold_points` exceeds the threshold.
///
/// # Errors
///
/// If weights, events or models differ. With `is_forced` that is a warning.
pub(crate) fn compare(
    before: &Summary,
    after: &Summary,
    threshold_points: f64,
    is_forced: bool,
) -> Result<Diff> {
    let mut warnings = Vec::new();
    let unlike = unlike(before, after);
    match (&unlike[..], is_forced) {
        ([], _) => {}
        (unlike, true) => {
            warnings.push(format!("forced, though the two have {}", unlike.join("; ")));
        }
        (unlike, false) => bail!(
            "the two can't be compared: they have {}; --force compares them anyway",
            unlike.join("; ")
        ),
    }
    warnings.extend(circumstances(before, after));
    for (side, summary) in [("before", before), ("after", after)] {
        warnings.extend(summary.warnings.iter().map(|warning| format!("{side}: {warning}")));
    }
    let units = [before.unit, after.unit];
    let sides = [Blocks::of(before), Blocks::of(after)];
    let has_blocks = sides.iter().all(|blocks| !blocks.kinds.is_empty());
    if units == [Unit::Samples; 2] && !has_blocks {
        warnings.push(
            "the times of the samples are unknown, so errors follow from their number alone: varying \
            load moves shares by more"
                .to_owned(),
        );
    }
    let wholes = sides.each_ref().map(Blocks::whole);
    let of_all = |_: Option<Phase>| wholes.clone();
    let of_phase = |phase: Option<Phase>| match phase {
        None => wholes.clone(),
        Some(phase) => sides.each_ref().map(|side| side.phase(phase)),
    };
    let rows = |before: &[Share<String>], after: &[Share<String>], of: &dyn Fn(_) -> [Whole; 2]| {
        judged([before, after], of, threshold_points)
    };
    let classes = rows(&classes(before), &classes(after), &of_all);
    let bricks = rows(&before.bricks, &after.bricks, &of_phase);
    let functions = rows(&before.functions, &after.functions, &of_all);
    Ok(Diff {
        schema_version: 1,
        threshold_points,
        level: LEVEL,
        min_share: MIN_SHARE,
        unit: after.unit,
        has_blocks,
        before: Side::of(before),
        after: Side::of(after),
        warnings,
        classes,
        bricks,
        functions,
    })
}

impl Diff {
    /// Whether a class, a brick or a function grew by more than the error and than the threshold.
    pub(crate) fn exceeds_threshold(&self) -> bool {
        self.rows().any(|row| row.exceeds_threshold)
    }

    /// Names both sides, and returns the words for it.
    pub(crate) fn name(&mut self, paths: [&Path; 2]) -> String {
        let [before, after] = paths.map(output::shown);
        let said = format!("before: {before}; after: {after}");
        (self.before.path, self.after.path) = (Some(before), Some(after));
        said
    }

    /// Whether a share that exceeds the threshold may be the doing of other work.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.exceeds_threshold() && (self.before.is_disturbed() || self.after.is_disturbed())
    }

    /// Whether it isn't decided: nothing exceeds the threshold, but an undecided share differs by more than it, or
    /// passes were disturbed.
    pub(crate) fn is_undecided(&self) -> bool {
        if self.is_disturbed() {
            return true;
        }
        let is_open =
            |row: &Row| row.verdict == Verdict::Unknown && row.points.abs() > self.threshold_points;
        !self.exceeds_threshold() && self.rows().any(is_open)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.classes.iter().chain(&self.bricks).chain(&self.functions)
    }
}

impl Side {
    fn of(summary: &Summary) -> Self {
        Self {
            generated: summary.generated.clone(),
            brickscope_version: summary.brickscope_version.clone(),
            build: summary.build.clone(),
            total: summary.total,
            disturbed: summary.disturbed,
            path: None,
        }
    }

    /// Whether too many of its passes were disturbed.
    fn is_disturbed(&self) -> bool {
        self.disturbed.is_some_and(|[disturbed, of]| disturbed as f64 > MOST_DISTURBED * of as f64)
    }
}

/// A name, the phase for bricks, and a share, 0 to 1.
pub(crate) type NamedShare = (String, Option<Phase>, f64);

/// The shares of a flamegraph's classes, bricks and functions, with the same bases as in [`Diff`].
pub(crate) fn shares(summary: &Summary) -> [Vec<NamedShare>; 3] {
    let blocks = Blocks::of(summary);
    let share = |share: &Share<String>| {
        let whole = share.phase.map_or(summary.total, |phase| blocks.phases[phase as usize].0);
        let is_there = share.weight > 0 && whole > 0;
        let part = is_there.then(|| share.weight as f64 / whole as f64)?;
        Some((share.name.clone(), share.phase, part))
    };
    let all = |shares: &[Share<String>]| shares.iter().filter_map(share).collect();
    [all(&classes(summary)), all(&summary.bricks), all(&summary.functions)]
}

/// The classes by their display names.
fn classes(summary: &Summary) -> Vec<Share<String>> {
    let named = |share: &Share<Class>| Share {
        name: share.name.name().to_owned(),
        phase: None,
        weight: share.weight,
        self_weight: share.self_weight,
        by_block: share.by_block.clone(),
    };
    summary.classes.iter().map(named).collect()
}

/// The differences that rule out a comparison.
fn unlike(before: &Summary, after: &Summary) -> Vec<String> {
    let mut unlike = Vec::new();
    if before.unit != after.unit {
        let of = |unit| match unit {
            Unit::Nanoseconds => "measured time",
            Unit::Samples => "samples",
        };
        unlike.push(format!("other weights: {} and {}", of(before.unit), of(after.unit)));
    }
    if let (Some(a), Some(b)) = (&before.source.event, &after.source.event)
        && a != b
    {
        unlike.push(format!("other events: {a} and {b}"));
    }
    if let (Some(a), Some(b)) = (&before.model, &after.model)
        && !is_same_model(a, b)
    {
        unlike.push(format!("other models: {} and {}", model_name(a), model_name(b)));
    }
    unlike
}

/// The identity of a model as far as it is known without its hash: independent of its path, and of where
/// its weights are in memory.
fn is_same_model(a: &Model, b: &Model) -> bool {
    let file = |model: &Model| Model {
        path: String::new(),
        weights_in: None,
        copied_in_ns: None,
        interleaved_bytes: None,
        interleaved_in_ns: None,
        // Runs of earlier versions don't have them.
        weights: Vec::new(),
        ..model.clone()
    };
    file(a) == file(b)
}

/// The display name of a model.
pub(crate) fn model_name(model: &Model) -> String {
    let name = model.name.as_ref().unwrap_or(&model.path);
    format!("{name} {} ({} bytes)", model.quantization, model.file_bytes)
}

/// Differences that allow a comparison, but may explain moved shares.
fn circumstances(before: &Summary, after: &Summary) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            warnings.push(format!("{what}: {a} before, {b} after"));
        }
    };
    let or = |text: Option<String>| text.unwrap_or_else(|| "not said".to_owned());
    let machine = |summary: &Summary| or(summary.machine.as_ref().map(machine_name));
    differ("other machines", machine(before), machine(after));
    differ("recorded in different ways", before.source.via.clone(), after.source.via.clone());
    let run = |summary: &Summary| or(captions::workload_of(summary));
    differ("other work", run(before), run(after));
    if let (Some(a), Some(b)) = (&before.model, &after.model) {
        differ("weights elsewhere", or(a.weights_in.clone()), or(b.weights_in.clone()));
    }
    let command = |summary: &Summary| or(summary.command.as_ref().map(|words| words.join(" ")));
    differ("other commands", command(before), command(after));
    if before.model.is_some() != after.model.is_some() {
        let model = |summary: &Summary| or(summary.model.as_ref().map(model_name));
        differ("the model", model(before), model(after));
    }
    warnings
}

/// The display name of a machine.
pub(crate) fn machine_name(machine: &Machine) -> String {
    let cpu = machine.cpu.as_deref().unwrap_or("unnamed CPU");
    let cpus = machine.logical_cpus.map_or(String::new(), |n| format!(" with {n} CPUs"));
    format!("{cpu}{cpus}, {} {}", machine.os, machine.arch)
}

/// The weights in the blocks of one side.
struct Blocks {
    unit: Unit,
    total: u64,
    /// By phase, and last the rest, which is in no brick of a phase; empty if blocks are unknown.
    kinds: Vec<Vec<u64>>,
    phases: [(u64, Vec<u64>); Phase::ALL.len()],
}

impl Blocks {
    fn of(summary: &Summary) -> Self {
        let sums = |all: &mut dyn Iterator<Item = &Vec<u64>>| {
            let mut sums: Vec<u64> = Vec::new();
            for blocks in all {
                sums.resize(sums.len().max(blocks.len()), 0);
                for (sum, block) in sums.iter_mut().zip(blocks) {
                    *sum = sum.saturating_add(*block);
                }
            }
            sums
        };
        let of_phase =
            |phase| summary.bricks.iter().filter(move |brick| brick.phase == Some(phase));
        let phases = Phase::ALL.map(|phase| {
            let weights = of_phase(phase).map(|brick| brick.weight);
            let weight = weights.fold(0, u64::saturating_add);
            (weight, sums(&mut of_phase(phase).map(|brick| &brick.by_block)))
        });
        // Each stack has one class, so together they are the total.
        let all = sums(&mut summary.classes.iter().map(|class| &class.by_block));
        let is_all =
            all.iter().fold(0, |sum: u64, block| sum.saturating_add(*block)) == summary.total;
        let at = |blocks: &Vec<u64>, block: usize| blocks.get(block).copied().unwrap_or(0);
        let rest: Option<Vec<u64>> = (0..all.len())
            .map(|block| {
                let in_phases = phases
                    .iter()
                    .try_fold(0_u64, |sum, (_, phase)| sum.checked_add(at(phase, block)));
                all[block].checked_sub(in_phases?)
            })
            .collect();
        let kinds = match rest {
            _ if !is_all => Vec::new(),
            // The bricks aren't parts of the total.
            None => vec![all],
            Some(rest) => {
                let padded = |(_, phase): &(u64, Vec<u64>)| {
                    (0..all.len()).map(|block| at(phase, block)).collect()
                };
                phases.iter().map(padded).chain([rest]).collect()
            }
        };
        Self { unit: summary.unit, total: summary.total, kinds, phases }
    }

    fn whole(&self) -> Whole {
        Whole { unit: self.unit, weight: self.total, kinds: self.kinds.clone() }
    }

    fn phase(&self, phase: Phase) -> Whole {
        let (weight, blocks) = &self.phases[phase as usize];
        let kinds = if self.kinds.is_empty() { Vec::new() } else { vec![blocks.clone()] };
        Whole { unit: self.unit, weight: *weight, kinds }
    }
}

/// The rows of a family, the largest moves first.
fn judged(
    sides: [&[Share<String>]; 2],
    of: &dyn Fn(Option<Phase>) -> [Whole; 2],
    threshold_points: f64,
) -> Vec<Row> {
    let key = |share: &Share<String>| (share.name.clone(), share.phase);
    let mut known = HashSet::new();
    let keys = sides.into_iter().flatten().map(key).filter(|key| known.insert(key.clone()));
    let by_key =
        sides.map(|side| side.iter().map(|share| (key(share), share)).collect::<HashMap<_, _>>());
    let wholes: Vec<(Option<Phase>, [Whole; 2])> =
        [None, Some(Phase::Prefill), Some(Phase::Decode)].map(|phase| (phase, of(phase))).into();
    let mut rows: Vec<(Row, Option<Shift>)> = Vec::new();
    for (name, phase) in keys.collect::<Vec<_>>() {
        let Some((_, whole)) = wholes.iter().find(|(of, _)| *of == phase) else { continue };
        let found = by_key.each_ref().map(|side| side.get(&(name.clone(), phase)).copied());
        rows.push(row(name, phase, found, whole));
    }
    let shifts: Vec<Shift> = rows.iter().filter_map(|(_, shift)| *shift).collect();
    let mut held = levels(&shifts, LEVEL / 3.0).into_iter();
    for (row, shift) in &mut rows {
        let Some((shift, level)) = shift.and_then(|shift| Some((shift, held.next()?))) else {
            continue;
        };
        row.error_points = Some(100.0 * shift.error(level));
        row.probability = Some(shift.probability());
        row.verdict = match (shift.probability() <= level, row.before, row.after) {
            (false, ..) => Verdict::Unmoved,
            (true, None, _) => Verdict::New,
            (true, _, None) => Verdict::Vanished,
            (true, ..) => Verdict::Moved,
        };
        row.exceeds_threshold = row.is_moved() && row.points > threshold_points;
    }
    let mut rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    rows.sort_by(|a, b| {
        let by_size = b.points.abs().total_cmp(&a.points.abs());
        by_size.then_with(|| a.name.cmp(&b.name)).then_with(|| a.phase.cmp(&b.phase))
    });
    rows
}

/// A row, as far as it doesn't depend on the others, and the shift by which to judge it.
fn row(
    name: String,
    phase: Option<Phase>,
    found: [Option<&Share<String>>; 2],
    wholes: &[Whole; 2],
) -> (Row, Option<Shift>) {
    let part = |share: Option<&'_ Share<String>>| share.map_or(0, |share| share.weight);
    let share = |side: usize| {
        let whole = wholes[side].weight;
        let there = found[side].filter(|share| share.weight > 0 && whole > 0)?;
        Some(there.weight as f64 / whole as f64)
    };
    let [before, after] = [share(0), share(1)];
    let parts = [0, 1].map(|side| Part {
        weight: part(found[side]),
        by_block: found[side].map_or(&[], |share| &share.by_block),
    });
    let is_small = before.unwrap_or(0.0).max(after.unwrap_or(0.0)) < MIN_SHARE;
    let (verdict, shift, reason) = if is_small {
        (Verdict::Small, None, None)
    } else {
        match Shift::of((parts[0], &wholes[0]), (parts[1], &wholes[1])) {
            Ok(shift) => (Verdict::Unmoved, Some(shift), None),
            Err(reason) => (Verdict::Unknown, None, Some(reason)),
        }
    };
    let points = 100.0 * (after.unwrap_or(0.0) - before.unwrap_or(0.0));
    let row = Row {
        name,
        phase,
        before,
        after,
        points,
        error_points: None,
        probability: None,
        verdict,
        exceeds_threshold: false,
        reason,
    };
    (row, shift)
}

impl Row {
    /// Whether the shift is more than chance.
    pub(crate) fn is_moved(&self) -> bool {
        matches!(self.verdict, Verdict::Moved | Verdict::New | Verdict::Vanished)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::flame::summary::Source;

    /// A sampled run of four parts, a hundred samples in each of forty blocks: prefill, and decode
    /// from the fifth on.
    #[derive(Debug, Clone)]
    pub(crate) struct Made {
        /// Of a hundred samples of decode: in `QkvProjection`, and of those in `q4_k_gemv`.
        pub(crate) qkv: u64,
        /// Likewise, in `memcpy`.
        pub(crate) memcpy: u64,
        pub(crate) generated: &'static str,
        pub(crate) bytes: u64,
        pub(crate) cpu: &'static str,
        pub(crate) unit: Unit,
        pub(crate) has_blocks: bool,
    }

    impl Default for Made {
        fn default() -> Self {
            Self {
                qkv: 40,
                memcpy: 0,
                generated: "2026-11-20T10:00:00Z",
                bytes: 1000,
                cpu: "AMD EPYC",
                unit: Unit::Samples,
                has_blocks: true,
            }
        }
    }

    const BLOCKS: usize = 40;

    impl Made {
        pub(crate) fn summary(&self) -> Summary {
            // The number of samples varies by one between blocks, so that errors aren't 0.
            let of = |prefill: u64, decode: u64, sign: i64| -> Vec<u64> {
                let block = |at: usize| match at {
                    0..5 => prefill,
                    _ if decode == 0 => 0,
                    _ => (decode as i64 + sign * [-2, 1, 2, -1, 0][at % 5]) as u64,
                };
                (0..BLOCKS).map(block).collect()
            };
            let qkv = of(50, self.qkv, 1);
            let head = of(0, 90 - self.qkv - self.memcpy, -1);
            let memcpy = of(0, self.memcpy, 0);
            let unattributed = of(0, 10, 0);
            let prefill_head = of(50, 0, 0);
            let only = |blocks: &[u64], is_prefill: bool| -> Vec<u64> {
                let kept = |(at, block): (usize, &u64)| {
                    if (at < 5) == is_prefill { *block } else { 0 }
                };
                blocks.iter().enumerate().map(kept).collect()
            };
            let sum = |parts: &[&Vec<u64>]| -> Vec<u64> {
                (0..BLOCKS).map(|at| parts.iter().map(|part| part[at]).sum()).collect()
            };
            let blocks = |by_block: &[u64]| match self.has_blocks {
                true => by_block.to_vec(),
                false => Vec::new(),
            };
            let function = |name: &str, by_block: &[u64]| Share {
                name: name.to_owned(),
                phase: None,
                weight: by_block.iter().sum(),
                self_weight: 0,
                by_block: blocks(by_block),
            };
            let brick = |name: &str, phase, by_block: &[u64]| Share {
                phase: Some(phase),
                ..function(name, by_block)
            };
            let class = |name, by_block: &[u64]| {
                let Share { phase, weight, by_block, .. } = function("", by_block);
                Share { name, phase, weight, self_weight: weight, by_block }
            };
            let all = sum(&[&qkv, &head, &memcpy, &unattributed, &prefill_head]);
            let (prefill, decode) = (Phase::Prefill, Phase::Decode);
            let functions = [
                (
                    "forward",
                    sum(&[&qkv, &head, &memcpy, &prefill_head, &only(&unattributed, true)]),
                ),
                ("brickscope_kernels::gemv::q4_k::avx2::q4_k_gemv", qkv.clone()),
                ("memcpy", memcpy.clone()),
            ];
            let run = brickscope::Run {
                threads: 2,
                backend: "avx2".to_owned(),
                prompt_tokens: 8,
                generated_tokens: 64,
                ..Default::default()
            };
            let model = Model {
                name: Some("brickscope-synth-110m".to_owned()),
                quantization: "q4_k".to_owned(),
                file_bytes: self.bytes,
                ..Default::default()
            };
            Summary {
                schema_version: 1,
                brickscope_version: "0.1.0".to_owned(),
                generated: self.generated.to_owned(),
                source: Source {
                    via: "sampler".to_owned(),
                    event: Some("cpu-clock".to_owned()),
                    frequency: Some(999),
                },
                unit: self.unit,
                total: all.iter().sum(),
                warnings: Vec::new(),
                model: Some(model),
                run: Some(run),
                machine: Some(Machine {
                    os: "linux".to_owned(),
                    arch: "x86_64".to_owned(),
                    cpu: Some(self.cpu.to_owned()),
                    logical_cpus: Some(2),
                    memory_bytes: None,
                }),
                command: None,
                command_line: Vec::new(),
                build: "rustc 1.90".to_owned(),
                classes: vec![
                    class(Class::Quantized, &sum(&[&qkv, &head, &prefill_head])),
                    class(Class::Memory, &memcpy),
                    class(Class::Other, &unattributed),
                ],
                bricks: vec![
                    brick("QkvProjection", prefill, &only(&qkv, true)),
                    brick("LmHead", prefill, &prefill_head),
                    brick("QkvProjection", decode, &only(&qkv, false)),
                    brick("LmHead", decode, &sum(&[&head, &memcpy])),
                    brick("unattributed", decode, &unattributed),
                ],
                functions: functions.map(|(name, blocks)| function(name, &blocks)).into(),
                agreement: None,
                agreement_absent: None,
                hidden: None,
                latency: Vec::new(),
                insights: Vec::new(),
                disturbed: None,
                counts_by_passes: false,
            }
        }
    }

    fn diff(before: &Made, after: &Made) -> Diff {
        compare(&before.summary(), &after.summary(), 3.0, false).expect("they are alike")
    }

    fn verdict<'d>(rows: &'d [Row], name: &str, phase: Option<Phase>) -> &'d Row {
        rows.iter().find(|row| row.name == name && row.phase == phase).expect(name)
    }

    #[test]
    fn what_grew_is_named_with_its_error() {
        let slower = Made { qkv: 52, memcpy: 4, ..Made::default() };
        let diff = diff(&Made::default(), &slower);
        let decode = Some(Phase::Decode);
        let qkv = verdict(&diff.bricks, "QkvProjection", decode);
        assert_eq!((qkv.before, qkv.after), (Some(0.4), Some(0.52)));
        assert!(qkv.exceeds_threshold && qkv.verdict == Verdict::Moved, "{qkv:?}");
        assert!(qkv.error_points.unwrap() < 12.0);
        let head = verdict(&diff.bricks, "LmHead", decode);
        assert!(head.is_moved() && !head.exceeds_threshold, "{head:?}");
        let prefill = verdict(&diff.bricks, "QkvProjection", Some(Phase::Prefill));
        assert_eq!(prefill.verdict, Verdict::Unmoved);
        assert_eq!(verdict(&diff.functions, "memcpy", None).verdict, Verdict::New);
        assert!(diff.exceeds_threshold());
        insta::assert_snapshot!("moved", diff.text());
        insta::assert_snapshot!("moved_markdown", diff.markdown());
        insta::assert_snapshot!("moved_json", diff.json().unwrap());
        assert!(diff.text().lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_grew_while_passes_were_disturbed_is_not_decided() {
        let mut before = Made::default().summary();
        let mut after = Made { qkv: 52, memcpy: 4, ..Made::default() }.summary();
        (before.disturbed, after.disturbed) = (Some([1, 199]), Some([110, 199]));
        let mut diff = compare(&before, &after, 3.0, false).unwrap();
        assert!(diff.exceeds_threshold() && diff.is_undecided());
        let headline = diff.headline();
        let starts = "Not decided, since 110 of 199 passes of after were disturbed: grew by ";
        assert!(headline.starts_with(starts), "{headline}");
        let said = diff.name([Path::new("flames/main"), Path::new("flames/new")]);
        assert_eq!(said, "before: flames/main; after: flames/new");
        assert!(diff.text().contains(&said) && diff.markdown().contains("flames/main"));
        after.disturbed = Some([20, 199]);
        let diff = compare(&before, &after, 3.0, false).unwrap();
        assert!(diff.exceeds_threshold() && !diff.is_undecided());
        // Where nothing grew, nothing is in doubt.
        let equal = compare(&after, &after, 3.0, false).unwrap();
        assert!(!equal.is_undecided());
    }

    #[test]
    fn what_went_is_named_and_never_exceeds_the_threshold() {
        let before = Made { memcpy: 3, ..Made::default() };
        let diff = diff(&before, &Made { qkv: 41, ..Made::default() });
        assert_eq!(verdict(&diff.functions, "memcpy", None).verdict, Verdict::Vanished);
        assert!(!diff.exceeds_threshold());
        insta::assert_snapshot!("vanished", diff.text());
    }

    #[test]
    fn equal_runs_say_that_nothing_moved() {
        let diff = diff(&Made::default(), &Made::default());
        assert!(diff.rows().all(|row| !row.is_moved()));
        insta::assert_snapshot!("unmoved", diff.text());
    }

    #[test]
    fn without_blocks_samples_have_the_error_of_their_number_and_times_have_none() {
        let folded = Made { has_blocks: false, ..Made::default() };
        let slower = Made { qkv: 52, ..folded.clone() };
        let counted = diff(&folded, &slower);
        assert!(counted.exceeds_threshold());
        assert!(counted.warnings[0].contains("from their number alone"), "{:?}", counted.warnings);
        let nanoseconds = |made: &Made| Made { unit: Unit::Nanoseconds, ..made.clone() };
        let measured = diff(&nanoseconds(&folded), &nanoseconds(&slower));
        assert!(!measured.exceeds_threshold() && measured.is_undecided());
        insta::assert_snapshot!(measured.headline(), @"What moved can't be told: decode QkvProjection: its course over time is unknown.");
        let with_blocks = |made: &Made| Made { has_blocks: true, ..nanoseconds(made) };
        assert!(diff(&with_blocks(&folded), &with_blocks(&slower)).exceeds_threshold());
    }

    #[test]
    fn a_phase_of_one_block_is_told_of_before_anything_passes() {
        // Prefill is one block of time, and the shares of its two bricks change.
        let of = |qkv: u64| {
            let mut summary = Made::default().summary();
            for brick in summary.bricks.iter_mut().filter(|b| b.phase == Some(Phase::Prefill)) {
                brick.weight = if brick.name == "LmHead" { 100 - qkv } else { qkv };
                brick.by_block = vec![brick.weight];
            }
            summary
        };
        let diff = compare(&of(50), &of(58), 3.0, false).unwrap();
        let qkv = verdict(&diff.bricks, "QkvProjection", Some(Phase::Prefill));
        assert_eq!((qkv.verdict, qkv.points.round()), (Verdict::Unknown, 8.0));
        assert!(!diff.exceeds_threshold() && diff.is_undecided());
        let json = diff.json().unwrap();
        assert!(json.contains("\"is_undecided\": true"), "{json}");
        insta::assert_snapshot!(diff.headline(), @"Of 2 of 9 shares it can't be told: prefill LmHead: it is in too few blocks of time. Of the others: no share moved by more than its error.");
        // Undecided differences below the threshold are reported, and pass.
        let near = compare(&of(50), &of(52), 3.0, false).unwrap();
        assert!(!near.is_undecided());
        assert!(near.headline().starts_with("Of 2 of 9 shares it can't be"), "{}", near.headline());
        // A share over the threshold is a decision.
        let mut slower = Made { qkv: 52, ..Made::default() }.summary();
        for brick in slower.bricks.iter_mut().filter(|b| b.phase == Some(Phase::Prefill)) {
            brick.by_block = vec![brick.weight];
        }
        let slower = compare(&of(58), &slower, 3.0, false).unwrap();
        assert!(slower.exceeds_threshold() && !slower.is_undecided());
        assert!(slower.headline().contains("Of the others: grew by more than 3 points: "));
    }

    #[test]
    fn what_is_unlike_is_refused_unless_forced() {
        let made = Made::default();
        let (mut other_event, before) = (made.summary(), made.summary());
        other_event.source.event = Some("task-clock".to_owned());
        let spans = Made { unit: Unit::Nanoseconds, ..made.clone() }.summary();
        let other_model = Made { bytes: 2000, ..made.clone() }.summary();
        for (after, what) in [
            (other_event, "other events: cpu-clock and task-clock"),
            (spans, "other weights: samples and measured time"),
            (other_model, "other models: brickscope-synth-110m q4_k (1000 bytes) and "),
        ] {
            let said = compare(&before, &after, 3.0, false).unwrap_err().to_string();
            assert!(said.contains(what) && said.contains("--force"), "{said}");
            let forced = compare(&before, &after, 3.0, true).expect("it was forced");
            assert!(
                forced.warnings[0].starts_with("forced, ") && forced.warnings[0].contains(what)
            );
        }
        let mut moved = made.summary();
        moved.model.as_mut().unwrap().path = "elsewhere.gguf".to_owned();
        assert!(compare(&before, &moved, 3.0, false).unwrap().warnings.is_empty());
        let elsewhere = Made { cpu: "Intel Xeon", ..made }.summary();
        let warnings = compare(&before, &elsewhere, 3.0, false).unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("other machines: AMD EPYC with 2 CPUs"), "{warnings:?}");
    }
}
