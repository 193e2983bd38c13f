//! A profile as metrics, before any format: families of points with labels. Prometheus' text and OTLP are
//! two ways to write them.
//!
//! Names follow OpenTelemetry, with dots and without units. Prometheus' names are derived from them by the
//! rule that Prometheus' own OTLP receiver uses, so both formats give the same names.

use std::collections::{HashMap, HashSet};

use brickscope_profile::run::Format;
use brickscope_profile::{
    Dropped, Durations, Histogram, NameKind, Phase, PhaseTotal, Profile, Source, Total,
};

use brickscope_analysis::findings::Findings;

/// A metric with all its points. No two of them have the same labels.
#[derive(Debug)]
pub(super) struct Family {
    /// Without the prefix: `brick.exclusive`.
    pub(super) name: String,
    /// One sentence without its full stop.
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
    pub(super) unit: Unit,
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// Only grows while a profiler records.
    Counter,
    Gauge,
    Histogram,
    Summary,
    /// Its labels are the information.
    Info,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A count of what the name says.
    None,
    Seconds,
    Bytes,
    BytesPerSecond,
    /// 0 to 1.
    Ratio,
}

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(super) struct Point {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Count(u64),
    Nanos(u64),
    Float(f64),
    Histogram(Buckets),
    Summary(Summary),
}

/// Durations in buckets.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    histogram: Histogram,
    pub(super) sum_ns: u64,
}

/// Durations as quantiles.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) sum_ns: u64,
    pub(super) min_ns: Option<u64>,
    pub(super) max_ns: Option<u64>,
    /// Quantiles and their nanoseconds, those for which there are enough values.
    pub(super) quantiles: Vec<(f64, u64)>,
}

/// Histograms are cut at powers of two from 1 µs to 17 s. Recorded buckets begin there too, so the counts
/// between two cuts are exact.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

impl Buckets {
    pub(super) fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// Nanoseconds, and how many durations don't exceed them.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        // Both formats include the bound in its bucket; nanoseconds are whole.
        POWERS.map(|power| ((1 << power) - 1, self.histogram.below(1 << power)))
    }
}

impl Value {
    /// Adds another point with the same labels.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(sum), Self::Count(more)) | (Self::Nanos(sum), Self::Nanos(more)) => {
                *sum = sum.saturating_add(more);
            }
            (Self::Histogram(sum), Self::Histogram(more)) => {
                sum.histogram.merge(&more.histogram);
                sum.sum_ns = sum.sum_ns.saturating_add(more.sum_ns);
            }
            // Other values can't be added up: the newer one replaces the older.
            (value, other) => *value = other,
        }
    }
}

/// Families in the order in which they were first named.
#[derive(Default)]
struct Families {
    families: Vec<Family>,
    of_name: HashMap<String, usize>,
    points: HashMap<(usize, Labels), usize>,
}

impl Families {
    fn add(&mut self, family: &Spec<'_>, labels: Labels, value: Value) {
        let name = format!("{}{}", family.prefix, family.name);
        let index = *self.of_name.entry(name).or_insert_with_key(|name| {
            let &Spec { help, kind, unit, .. } = family;
            let name = name.clone();
            self.families.push(Family { name, help, kind, unit, points: Vec::new() });
            self.families.len() - 1
        });
        let points = &mut self.families[index].points;
        // Kernels of one name that differ in their shapes, say.
        match self.points.get(&(index, labels.clone())) {
            Some(&point) => points[point].value.merge(value),
            None => {
                self.points.insert((index, labels.clone()), points.len());
                points.push(Point { labels, value });
            }
        }
    }
}

/// A family to add to.
struct Spec<'n> {
    prefix: &'n str,
    name: &'n str,
    help: &'static str,
    kind: MetricKind,
    unit: Unit,
}

const fn spec<'n>(name: &'n str, kind: MetricKind, unit: Unit, help: &'static str) -> Spec<'n> {
    Spec { prefix: "", name, help, kind, unit }
}

/// All metrics of `profile`. What is unknown has no point.
pub(super) fn families(profile: &Profile) -> Vec<Family> {
    let mut all = Families::default();
    infos(profile, &mut all);
    // Imports don't track losses.
    if profile.imported.is_none() {
        dropped(&profile.dropped, "", &Labels::new(), &mut all);
    }
    disturbed(profile, &mut all);
    let host = Sums { phases: &profile.phases, totals: &profile.totals };
    tables(&host, are_passes(profile), "", &Labels::new(), &mut all);
    latency(profile, &mut all);
    kv_cache(profile, &mut all);
    limits(profile, &mut all);
    costs(profile, &mut all);
    findings(profile, &mut all);
    devices(profile, &mut all);
    all.families
}

fn infos(profile: &Profile, all: &mut Families) {
    let mut info = |name: &str, help, labels: Vec<(&'static str, String)>| {
        all.add(&spec(name, MetricKind::Info, Unit::None, help), labels, Value::Count(1));
    };
    let labels = vec![
        ("version", profile.brickscope_version.clone()),
        ("schema_version", profile.schema_version.to_string()),
        ("clock", profile.clock.source.clone()),
    ];
    info("build", "The version of brickscope that recorded, and its clock", labels);
    if let Some(run) = &profile.run {
        let mut labels =
            vec![("backend", run.backend.clone()), ("threads", run.threads.to_string())];
        labels.extend(named(profile));
        info("run", "How the model was run; 0 threads: on a device", labels);
    }
    if let Some(model) = &profile.model {
        let labels = vec![
            ("name", model.called().unwrap_or_default().to_owned()),
            ("architecture", model.architecture.clone()),
            ("quantization", model.quantized().unwrap_or_default()),
            ("synthetic", model.synthetic.to_string()),
        ];
        info("model", "The model that ran", labels);
    }
    if let Some(imported) = &profile.imported {
        let mut labels = vec![
            ("format", imported.format.clone()),
            ("file", imported.file.clone()),
            ("program", imported.program.clone().unwrap_or_default()),
        ];
        // Not every file tells how the model was run.
        labels.extend(named(profile).filter(|_| profile.run.is_none()));
        info("imported", "The other program's file that all figures are from", labels);
    }
}

/// The machine and the commit, where whoever measured named them.
fn named(profile: &Profile) -> impl Iterator<Item = (&'static str, String)> + '_ {
    profile.named.iter().flat_map(|named| {
        let machine = named.machine.clone().map(|name| ("machine", name));
        let commit = named.commit.clone().map(|commit| ("commit", commit));
        machine.into_iter().chain(commit)
    })
}

fn with(labels: &Labels, more: &[(&'static str, &str)]) -> Labels {
    let more = more.iter().map(|&(name, value)| (name, value.to_owned()));
    labels.iter().cloned().chain(more).collect()
}

fn dropped(dropped: &Dropped, prefix: &str, labels: &Labels, all: &mut Families) {
    let help = "What was lost, or not recorded as intended";
    let family = Spec { prefix, ..spec("dropped", MetricKind::Counter, Unit::None, help) };
    let help = "What has begun but not ended, or lacks its other side so far";
    let open = Spec { prefix, ..spec("open", MetricKind::Gauge, Unit::None, help) };
    // Disturbed passes have a family of their own, if load was measured at all.
    for (what, count) in dropped.counts().into_iter().filter(|of| of.0 != "disturbed_passes") {
        // These can go down again during a run.
        let (family, what) = match what {
            "unfinished" => (&open, "spans"),
            "open_passes" => (&open, "passes"),
            "dependencies" => (&open, "dependencies"),
            what => (&family, what),
        };
        all.add(family, with(labels, &[("what", what)]), Value::Count(count));
    }
}

/// Of phases that somebody watched. A run of several processes may have no load of the whole, and still know it of passes.
fn disturbed(profile: &Profile, all: &mut Families) {
    let help = "Passes that other work on the machine disturbed";
    let family = spec("passes.disturbed", MetricKind::Counter, Unit::None, help);
    let is_known = |phase: &&PhaseTotal| {
        profile.other_load.is_some() || phase.unwatched.is_some() || phase.disturbed > 0
    };
    for phase in profile.phases.iter().filter(is_known) {
        let labels = vec![("phase", phase.phase.name().to_owned())];
        all.add(&family, labels, Value::Count(phase.disturbed));
    }
}

/// The label value for a phase.
fn phase_name(phase: Option<Phase>) -> &'static str {
    phase.map_or("outside", Phase::name)
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Host => "host",
        Source::HostOrder => "host_order",
        Source::Device => "device",
    }
}

/// Whether what the profile calls passes are some: a repetition of llama-bench is many.
fn are_passes(profile: &Profile) -> bool {
    profile.imported.as_ref().is_none_or(|of| of.format != Format::LlamaBench.name())
}

/// What the host, or a stream, took.
struct Sums<'p> {
    phases: &'p [PhaseTotal],
    totals: &'p [Total],
}

/// The sums of phases, bricks and kernels, of the host or of a stream.
fn tables(
    &Sums { phases, totals }: &Sums<'_>,
    are_passes: bool,
    prefix: &str,
    labels: &Labels,
    all: &mut Families,
) {
    use MetricKind::Counter;
    use Unit::{Bytes, None as Number, Seconds};
    let spec = |name, unit, help| Spec { prefix, ..spec(name, Counter, unit, help) };
    for phase in phases {
        let labels = with(labels, &[("phase", phase.phase.name())]);
        let mut add = |name, unit, help, value| {
            all.add(&spec(name, unit, help), labels.clone(), value);
        };
        // Passes without tokens come from a file that doesn't say how many.
        if phase.tokens > 0 {
            add("tokens", Number, "Tokens processed", Value::Count(phase.tokens));
        }
        if are_passes {
            add("passes", Number, "Forward passes", Value::Count(phase.passes));
        }
        let help = "From begin to end of each pass, summed";
        add("wall", Seconds, help, Value::Nanos(phase.wall_ns));
        let help = "Wall time that is not attributed to a brick";
        add("unattributed", Seconds, help, Value::Nanos(phase.unattributed_ns));
    }
    for total in totals {
        let stats = &total.stats;
        let is_brick = total.kind == NameKind::Brick;
        let category = total.category.map_or("", |category| category.name());
        let labels = match is_brick {
            true => with(
                labels,
                &[
                    ("phase", phase_name(total.phase)),
                    ("brick", &stats.name),
                    ("category", category),
                    ("source", source_name(total.source)),
                ],
            ),
            false => with(
                labels,
                &[
                    ("phase", phase_name(total.phase)),
                    ("kernel", &stats.name),
                    ("source", source_name(total.source)),
                ],
            ),
        };
        let mut add = |name, unit, help, value| {
            all.add(&spec(name, unit, help), labels.clone(), value);
        };
        // Work of 0 is unstated work.
        let stated = |work: u64| (work > 0).then_some(Value::Count(work));
        if is_brick {
            let help =
                "Time in bricks, without nested bricks; with unattributed it adds up to wall";
            add("brick.exclusive", Seconds, help, Value::Nanos(stats.exclusive_ns));
            let help = "Time in bricks from begin to end";
            add("brick.inclusive", Seconds, help, Value::Nanos(stats.total_ns));
            let count = (stats.count > 0).then_some(Value::Count(stats.count));
            for (name, unit, help, value) in [
                ("brick.spans", Number, "Runs of bricks", count),
                ("brick.elements", Number, "Elements processed", stated(stats.total_elements)),
                ("brick.flops", Number, "Operations, as stated", stated(stats.total_flops)),
                ("brick.moved", Bytes, "Bytes moved, as stated", stated(stats.total_bytes)),
            ] {
                value.into_iter().for_each(|value| add(name, unit, help, value));
            }
        } else {
            let help = "Time in kernels, each inside of a brick";
            add("kernel", Seconds, help, Value::Nanos(stats.total_ns));
            let count = (stats.count > 0).then_some(Value::Count(stats.count));
            for (name, unit, help, value) in [
                ("kernel.launches", Number, "Runs of kernels", count),
                ("kernel.flops", Number, "Operations, as stated", stated(stats.total_flops)),
                ("kernel.moved", Bytes, "Bytes moved, as stated", stated(stats.total_bytes)),
            ] {
                value.into_iter().for_each(|value| add(name, unit, help, value));
            }
        }
        // Files of earlier versions have none.
        if is_brick && stats.count > 0 && stats.histogram.count() == stats.count {
            let help = "Runs of bricks by how long they took";
            let family = Spec { kind: MetricKind::Histogram, ..spec("brick.span", Seconds, help) };
            let histogram = stats.histogram.clone();
            let value = Value::Histogram(Buckets { histogram, sum_ns: stats.total_ns });
            all.add(&family, labels.clone(), value);
        }
        if let Some(counters) = &total.counters {
            let help = "Hardware counter events in bricks and kernels";
            let family = spec("counted", Number, help);
            let sums = &counters.sums;
            for (event, count) in [
                ("cycles", sums.cycles),
                ("instructions", sums.instructions),
                ("llc_misses", sums.llc_misses),
                ("branch_misses", sums.branch_misses),
            ] {
                if let Some(count) = count {
                    let labels = with(&labels, &[("event", event)]);
                    all.add(&family, labels, Value::Count(count));
                }
            }
        }
    }
}

fn latency(profile: &Profile, all: &mut Families) {
    let [of_first, of_each] = match profile.latency.of_requests {
        true => ["From a request's arrival to its first token", "From one token to the next"],
        false => [
            "From the begin of a prompt's first pass to the end of its last",
            "Decode passes of one token each",
        ],
    };
    for (name, help, durations) in [
        ("time_to_first_token", of_first, &profile.latency.first_token),
        ("time_per_output_token", of_each, &profile.latency.per_token),
    ] {
        if let Some(summary) = summary(durations) {
            let family = spec(name, MetricKind::Summary, Unit::Seconds, help);
            all.add(&family, Labels::new(), Value::Summary(summary));
        }
    }
}

fn summary(durations: &Durations) -> Option<Summary> {
    let &Durations { count, mean_ns, min_ns, max_ns, percentiles: p, .. } = durations;
    // The mean is the sum over the count, which this takes back to the nanosecond.
    let sum_ns = (mean_ns? * count as f64).round() as u64;
    let quantiles = [(0.5, p.p50_ns), (0.9, p.p90_ns), (0.95, p.p95_ns), (0.99, p.p99_ns)];
    let quantiles = quantiles.into_iter().filter_map(|(share, ns)| Some((share, ns?))).collect();
    (count > 0).then_some(Summary { count, sum_ns, min_ns, max_ns, quantiles })
}

fn kv_cache(profile: &Profile, all: &mut Families) {
    if let Some(tokens) = profile.observed.kv_cache_tokens {
        let help = "Capacity of the KV cache, in tokens";
        let family = spec("kv_cache.capacity_tokens", MetricKind::Gauge, Unit::None, help);
        all.add(&family, Labels::new(), Value::Count(tokens));
    }
    // Imported passes don't say where they were in a sequence. Of those that were kept by how slow they are the last one isn't
    // the newest.
    if profile.imported.is_some() || profile.kept.is_some() {
        return;
    }
    let help = "Tokens in the KV cache after the newest pass of a thread";
    let family = spec("kv_cache.filled_tokens", MetricKind::Gauge, Unit::None, help);
    // They are in the order in which they began, so the last one of each thread is the newest.
    let newest: HashMap<u32, u64> = profile
        .passes
        .iter()
        .map(|pass| (pass.lane, pass.position.saturating_add(pass.tokens)))
        .collect();
    let mut newest: Vec<(u32, u64)> = newest.into_iter().collect();
    newest.sort_unstable();
    for (lane, tokens) in newest {
        all.add(&family, vec![("thread", lane.to_string())], Value::Count(tokens));
    }
}

/// The machine's ceilings, and its other load.
fn limits(profile: &Profile, all: &mut Families) {
    let mut gauge = |name, unit, help, value: f64| {
        all.add(&spec(name, MetricKind::Gauge, unit, help), Labels::new(), Value::Float(value));
    };
    // Limits that somebody stated aren't measured ones.
    if let Some(ceilings) = profile.ceilings.as_ref().filter(|of| !of.is_stated()) {
        let help = "Measured memory read bandwidth of this machine";
        gauge("ceiling.read", Unit::BytesPerSecond, help, ceilings.memory_limit());
        let help = "Measured single-precision operations per second of this machine";
        gauge("ceiling.flops_per_second", Unit::None, help, ceilings.flops_per_second);
        if let Some(rate) = ceilings.int8_ops_per_second {
            let help = "Measured 8-bit integer operations per second of this machine";
            gauge("ceiling.int8_ops_per_second", Unit::None, help, rate);
        }
    }
    if let Some(load) = &profile.other_load {
        let help = "Share of the machine's CPU time that other processes used";
        gauge("other_load", Unit::Ratio, help, load.others_share());
        if let Some(share) = load.steal_share() {
            let help = "Share of the machine's CPU time that the hypervisor took";
            gauge("steal", Unit::Ratio, help, share);
        }
    }
    if let Some(rate) = profile.observed.l2_cache_hit_rate {
        let help = "Share of L2 accesses that hit, by hardware counters of the engine";
        gauge("l2_cache_hits", Unit::Ratio, help, f64::from(rate));
    }
}

/// The cost of recording, and how much was recorded.
fn costs(profile: &Profile, all: &mut Families) {
    if profile.imported.is_some() {
        return;
    }
    let help = "Spans recorded";
    let family = spec("spans", MetricKind::Counter, Unit::None, help);
    all.add(&family, Labels::new(), Value::Count(profile.overhead.spans));
    if let Some(nanos) = profile.overhead.estimate_ns() {
        let help = "Estimated cost of recording: spans times the measured cost of one";
        let family = spec("overhead.estimated", MetricKind::Gauge, Unit::Seconds, help);
        all.add(&family, Labels::new(), Value::Float(nanos / 1e9));
    }
}

/// What slows the run down: an alert can name it, and a dashboard sort by it.
fn findings(profile: &Profile, all: &mut Families) {
    // Of a device's part of a run, rules would judge times that aren't the host's.
    if profile.totals.iter().any(|total| total.source == Source::Device) {
        return;
    }
    let mut seen = HashSet::new();
    for finding in Findings::of(profile).found {
        let phase = finding.phase.map_or("all", Phase::name);
        // A rule may find several things in a phase; the first has the greatest gain.
        if !seen.insert((finding.rule, phase)) {
            continue;
        }
        let labels = vec![("rule", finding.rule.to_owned()), ("phase", phase.to_owned())];
        let help = "What slows the run down, or makes its figures doubtful: a hypothesis";
        all.add(
            &spec("finding", MetricKind::Info, Unit::None, help),
            labels.clone(),
            Value::Count(1),
        );
        if let Some(gain) = finding.gain {
            let help =
                "Time that a pass is predicted to take less without it: likely, or the middle";
            let family = spec("finding.gain", MetricKind::Gauge, Unit::Seconds, help);
            let seconds = gain.parts()[1] * gain.now_ns / 1e9;
            all.add(&family, labels, Value::Float(seconds));
        }
    }
}

fn devices(profile: &Profile, all: &mut Families) {
    for (index, device) in profile.devices.iter().enumerate() {
        let labels = vec![("device", index.to_string())];
        let info = with(
            &labels,
            &[("name", &device.name), ("api", &device.api), ("driver", &device.driver)],
        );
        let family = spec("device", MetricKind::Info, Unit::None, "A device that ran work");
        all.add(&family, info, Value::Count(1));
        if let Some(ceilings) = device.ceilings.as_ref().filter(|of| !of.is_stated()) {
            let help = "Measured memory read bandwidth of a device";
            let family = spec("device.ceiling.read", MetricKind::Gauge, Unit::BytesPerSecond, help);
            all.add(&family, labels.clone(), Value::Float(ceilings.memory_limit()));
            let help = "Measured single-precision operations per second of a device";
            let family =
                spec("device.ceiling.flops_per_second", MetricKind::Gauge, Unit::None, help);
            all.add(&family, labels.clone(), Value::Float(ceilings.flops_per_second));
        }
        let help = "Passes on a device that have no times";
        let family = spec("device.passes.untimed", MetricKind::Counter, Unit::None, help);
        for (why, passes) in [
            ("lost", device.lost_passes),
            ("disordered", device.disordered_passes),
            ("abandoned", device.abandoned_passes),
            ("overfull", device.overfull_passes),
            ("unmarked", device.unmarked_passes),
        ] {
            all.add(&family, with(&labels, &[("why", why)]), Value::Count(passes));
        }
        let help = "Passes on a device that are not read back yet";
        let family = spec("device.passes.unsettled", MetricKind::Gauge, Unit::None, help);
        all.add(&family, labels.clone(), Value::Count(device.unsettled_passes));
        for stream in &device.streams {
            let labels = with(&labels, &[("stream", &stream.name)]);
            let own = Sums { phases: &stream.phases, totals: &stream.totals };
            tables(&own, true, "device.", &labels, all);
            dropped(&stream.dropped, "device.", &labels, all);
        }
    }
}
