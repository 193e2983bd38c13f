//! The figures of a live view, for its screens and for scripts. Unknown figures come with a reason.

use std::collections::BTreeSet;

use brickscope_analysis::findings::Findings;
use brickscope_analysis::requests::Now;
use brickscope_analysis::roofline::Roofline;
use brickscope_profile::{
    Absent, BrickCategory, BrickKernel, Disturbance, Dropped, Latency, LayerBrick, Model, Overhead,
    Pass, Phase, PhaseTotal, Profile, Run, Total,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::process::{Activity, Memory};
use super::snapshot::{Snapshot, Window};

/// A figure, or why it is unknown; in JSON the figure, or an object with `absent`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known<T>(pub(crate) Result<T, Absent>);

impl<T> Known<T> {
    pub(crate) fn or(value: Option<T>, reason: &str) -> Self {
        Self(value.ok_or_else(|| Absent { reason: reason.to_owned() }))
    }
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Without<'a> {
            absent: &'a str,
        }
        match &self.0 {
            Ok(value) => value.serialize(to),
            Err(Absent { reason }) => Without { absent: reason }.serialize(to),
        }
    }
}

/// All figures. The tables have the same names as in `profile.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Numbers<'p> {
    /// `running`, `ended` (after announcing it) or `died`.
    pub(crate) state: &'static str,
    pub(crate) pid: u32,
    pub(crate) seq: u64,
    pub(crate) at_ns: u64,
    pub(crate) run: Option<&'p Run>,
    pub(crate) model: Option<&'p Model>,
    /// The device that ran the bricks and whose clock timed them, if any.
    pub(crate) device: Option<&'p str>,
    pub(crate) phases: Vec<PhaseNumbers>,
    pub(crate) latency: &'p Latency,
    pub(crate) categories: Vec<CategoryNumbers>,
    pub(crate) totals: &'p [Total],
    /// Bricks by layer, summed while somebody watches, like the kernels by brick.
    pub(crate) layers: Known<&'p [LayerBrick]>,
    pub(crate) brick_kernels: &'p [BrickKernel],
    pub(crate) roofline: Vec<Known<Roofline>>,
    /// What slows the engine down, over everything that it recorded.
    pub(crate) findings: Known<&'p Findings>,
    /// The newest requests of a server.
    pub(crate) requests: Known<&'p Now>,
    pub(crate) kv_cache: Known<KvCache>,
    pub(crate) memory: Known<Memory>,
    pub(crate) activity: Known<&'p Activity>,
    pub(crate) disturbance: Known<Disturbance>,
    pub(crate) dropped: &'p Dropped,
    /// Losses and omissions outside of these sums.
    pub(crate) elsewhere: &'p [String],
    pub(crate) overhead: OverheadNumbers<'p>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PhaseNumbers {
    #[serde(flatten)]
    pub(crate) total: PhaseTotal,
    /// Where a device ran the bricks: the same passes by the host's clock, which the rates are by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by_host: Option<PhaseTotal>,
    /// Tokens per second of wall time, over all passes.
    pub(crate) tokens_per_second: Option<f64>,
    /// The same over the passes of the last two seconds.
    pub(crate) tokens_per_second_now: Known<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CategoryNumbers {
    pub(crate) phase: Phase,
    /// `None` for the time outside of bricks.
    pub(crate) category: Option<BrickCategory>,
    /// What that is: `unattributed`, and on a device `gaps`, or what was timed as a whole: `in layers`, `whole passes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rest: Option<&'static str>,
    pub(crate) exclusive_ns: u64,
    /// Share of the wall time, 0 to 1.
    pub(crate) share: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct KvCache {
    /// After the newest pass; of requests, of those that go on.
    pub(crate) tokens: u64,
    pub(crate) room: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct OverheadNumbers<'p> {
    #[serde(flatten)]
    pub(crate) profiler: &'p Overhead,
    /// The profiler's estimated cost, as a share of the wall time of all passes.
    pub(crate) share: Known<f64>,
    /// The share of one core's time spent making frames.
    pub(crate) watching: Known<f64>,
}

/// The figures for scripts, with a reason for each field that is null anywhere.
#[derive(Debug, Serialize)]
pub(crate) struct Explained<'n, 'p> {
    #[serde(flatten)]
    numbers: &'n Numbers<'p>,
    absent: Vec<Missing>,
}

/// A field that is null.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    /// Its path, such as `totals[].p99_ns`.
    pub(crate) field: String,
    pub(crate) reason: &'static str,
}

impl<'n, 'p> Explained<'n, 'p> {
    /// # Errors
    ///
    /// None: the figures are plain data.
    pub(crate) fn of(numbers: &'n Numbers<'p>) -> serde_json::Result<Self> {
        let mut nulls = BTreeSet::new();
        find_nulls(&serde_json::to_value(numbers)?, String::new(), &mut nulls);
        let absent = nulls.into_iter().map(|field| Missing { reason: why_null(&field), field });
        Ok(Self { numbers, absent: absent.collect() })
    }
}

fn find_nulls(value: &Value, path: String, nulls: &mut BTreeSet<String>) {
    match value {
        Value::Null => drop(nulls.insert(path)),
        Value::Array(rows) => {
            rows.iter().for_each(|row| find_nulls(row, format!("{path}[]"), nulls));
        }
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            let of = |name: &String| format!("{path}{dot}{name}");
            fields.iter().for_each(|(name, field)| find_nulls(field, of(name), nulls));
        }
        _ => {}
    }
}

/// Why there are no requests.
pub(crate) const NO_REQUESTS: &str =
    "the engine tells of no requests (docs/requests.md says how it can)";

/// Why a field of the [`Numbers`] can be null.
fn why_null(field: &str) -> &'static str {
    match field {
        "device" => "no device ran the bricks: the host's clock timed them",
        "run" | "model" => "the engine doesn't say",
        "run.seed" => "tokens are the likeliest, not sampled",
        "latency.slow" => "needs single passes, which a live view doesn't keep",
        "findings.found[].phase" => "it is about the whole run",
        "findings.found[].test" => "no command of brickscope tests it",
        "categories[].category" => "it is time outside of bricks, see `rest`",
        "totals[].category" => "it is a kernel",
        "requests.times[].p50_ns" => "needs 7 times",
        "requests.times[].p95_ns" => "needs 90 times",
        "requests.times[].p99_ns" => "needs 459 times",
        "requests.times[].longest_ns" => "there is none yet",
        "requests.listed[].ending" => "it goes on, or nobody said how it ended",
        "requests.listed[].prompt_tokens" => "nobody said, and no pass was for its prompt",
        "requests.listed[].last_ns" | "requests.listed[].longest" => "it has no token yet",
        "requests.listed[].longest.pieces" => "a pass that may be in it goes on, or had no room",
        "layers[].layer" => "it ran before or after the layers",
        _ => match field.rsplit('.').next().unwrap_or_default() {
            "p50_ns" => "needs 7 spans, and then a frame with percentiles",
            "p90_ns" => "needs 44 spans, and then a frame with percentiles",
            "p95_ns" => "needs 90 spans, and then a frame with percentiles",
            "p99_ns" => "needs 459 spans, and then a frame with percentiles",
            "std_dev_ns" => "needs two spans",
            "mean_ns" | "min_ns" | "max_ns" => "none has ended yet",
            "phase" => "it ran outside of passes",
            "flops" | "bytes" | "total_flops" | "total_bytes" => "this work was not stated",
            "tokens_per_second" => "no token was processed",
            "share" => "the phase has no wall time",
            "place" | "roof" => "`absent` beside it says why",
            _ if field.starts_with("disturbance.") || field.starts_with("memory.") => {
                "the system doesn't report it"
            }
            _ => "it isn't known",
        },
    }
}

/// The facts besides the snapshot.
pub(crate) struct Beside<'p> {
    pub(crate) state: &'static str,
    pub(crate) pid: u32,
    pub(crate) window: Result<&'p Window, &'p Absent>,
    pub(crate) findings: Result<&'p Findings, Absent>,
    pub(crate) memory: Result<Memory, Absent>,
    pub(crate) activity: Result<&'p Activity, Absent>,
}

impl<'p> Numbers<'p> {
    pub(crate) fn of(snapshot: &'p Snapshot, beside: Beside<'p>) -> Self {
        let profile = &snapshot.profile;
        let Beside { state, pid, window, findings, memory, activity } = beside;
        let layers = if profile.layers.is_empty() {
            Err(Absent { reason: layers_absent(snapshot).to_owned() })
        } else {
            Ok(&profile.layers[..])
        };
        Self {
            state,
            pid,
            seq: snapshot.seq,
            at_ns: snapshot.at_ns,
            run: profile.run.as_ref(),
            model: profile.model.as_ref(),
            device: snapshot.device.as_deref(),
            phases: profile
                .phases
                .iter()
                .map(|total| PhaseNumbers::of(total, snapshot, window))
                .collect(),
            latency: &profile.latency,
            categories: profile
                .phases
                .iter()
                .flat_map(|total| categories(profile, total))
                .collect(),
            totals: &profile.totals,
            layers: Known(layers),
            brick_kernels: &profile.brick_kernels,
            roofline: profile
                .phases
                .iter()
                .map(|total| Known(Roofline::of(profile, total.phase)))
                .collect(),
            findings: Known(findings),
            requests: Known::or(snapshot.requests.as_ref(), NO_REQUESTS),
            kv_cache: kv_cache(profile, snapshot.requests.as_ref()),
            memory: Known(memory),
            activity: Known(activity),
            disturbance: disturbance(profile),
            dropped: &profile.dropped,
            elsewhere: &snapshot.elsewhere,
            overhead: OverheadNumbers {
                profiler: &profile.overhead,
                share: overhead_share(profile),
                watching: watching(window),
            },
        }
    }
}

impl PhaseNumbers {
    pub(crate) fn of(
        total: &PhaseTotal,
        snapshot: &Snapshot,
        window: Result<&Window, &Absent>,
    ) -> Self {
        let rate = |total: PhaseTotal| total.tokens_per_second();
        let now = match window {
            Ok(window) => Known::or(
                window.waited_for(total.phase).and_then(rate),
                "no pass ended in the last two seconds",
            ),
            Err(absent) => Known(Err(absent.clone())),
        };
        let waited_for = snapshot.waited_for(total.phase);
        Self {
            total: *total,
            by_host: waited_for.filter(|_| snapshot.of_host.is_some()),
            tokens_per_second: waited_for.and_then(rate),
            tokens_per_second_now: now,
        }
    }
}

/// The parts of the phase's time outside of bricks.
pub(crate) fn rests(profile: &Profile, total: &PhaseTotal) -> Vec<(&'static str, u64)> {
    match profile.device_parts(total.phase) {
        None => vec![("unattributed", total.unattributed_ns)],
        Some(parts) => {
            let coarse =
                [("in layers", parts.in_layers_ns), ("whole passes", parts.whole_passes_ns)];
            let coarse = coarse.into_iter().filter(|(_, ns)| *ns > 0);
            coarse.chain([("gaps", parts.gaps_ns)]).collect()
        }
    }
}

/// The categories of a phase, and last the time outside of bricks.
pub(crate) fn categories(profile: &Profile, total: &PhaseTotal) -> Vec<CategoryNumbers> {
    let stats = profile.categories(Some(total.phase));
    let rows = BrickCategory::ALL
        .into_iter()
        .map(|category| (Some(category), None, stats[category as usize].total_ns))
        .chain(rests(profile, total).into_iter().map(|(rest, ns)| (None, Some(rest), ns)));
    rows.map(|(category, rest, exclusive_ns)| CategoryNumbers {
        phase: total.phase,
        category,
        rest,
        exclusive_ns,
        share: (total.wall_ns > 0).then(|| exclusive_ns as f64 / total.wall_ns as f64),
    })
    .collect()
}

/// Why there is no table of bricks by layer.
pub(crate) fn layers_absent(snapshot: &Snapshot) -> &'static str {
    match snapshot.device {
        Some(_) => "bricks on a device aren't summed by layer",
        None => {
            "the engine's bricks are outside of layers, or none has ended since a viewer attached"
        }
    }
}

/// The pass that ended last.
pub(crate) fn newest_pass(profile: &Profile) -> Option<&Pass> {
    profile.passes.iter().max_by_key(|pass| pass.start_ns.saturating_add(pass.wall_ns))
}

/// A pass of several requests has no position of its own: where there are requests, their parts say it.
pub(crate) fn kv_cache(profile: &Profile, requests: Option<&Now>) -> Known<KvCache> {
    let tokens = match requests {
        Some(now) => now.kv_tokens.ok_or("passes don't state where each request is"),
        None => newest_pass(profile)
            .map(|pass| pass.position.saturating_add(pass.tokens))
            .ok_or("no pass has ended yet"),
    };
    let room = profile.observed.kv_cache_tokens;
    let room = room.ok_or("the engine doesn't state the capacity of its KV cache");
    let fill = room.and_then(|room| Ok(KvCache { tokens: tokens?, room }));
    Known(fill.map_err(|reason: &str| Absent { reason: reason.to_owned() }))
}

pub(crate) fn disturbance(profile: &Profile) -> Known<Disturbance> {
    Known::or(newest_disturbance(profile, |_| true), "there is no reading yet")
}

/// What was read around the newest of the passes that count.
pub(crate) fn newest_disturbance(
    profile: &Profile,
    counts: impl Fn(&Pass) -> bool,
) -> Option<Disturbance> {
    let looked_at = profile.passes.iter().filter(|pass| pass.disturbance.is_some() && counts(pass));
    let newest = looked_at.max_by_key(|pass| pass.start_ns.saturating_add(pass.wall_ns));
    newest.and_then(|pass| pass.disturbance)
}

pub(crate) fn overhead_share(profile: &Profile) -> Known<f64> {
    let wall = profile.phases.iter().fold(0, |sum: u64, p| sum.saturating_add(p.wall_ns));
    Known(match profile.overhead.estimate_ns() {
        Some(estimate) if wall > 0 => Ok(estimate / wall as f64),
        Some(_) => Err(Absent { reason: "no pass has ended yet".to_owned() }),
        None => Err(Absent { reason: profile.overhead.basis.clone() }),
    })
}

pub(crate) fn watching(window: Result<&Window, &Absent>) -> Known<f64> {
    Known(match window {
        Ok(window) => Ok(window.made_ns as f64 / window.ns as f64),
        Err(absent) => Err(absent.clone()),
    })
}
