//! `brickscope selftest`: checks on this machine's device what tests without a device can't check.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brickscope::{BrickProfiler, Device, Grain, NameKind, PairedRatio, Phase, Profile, SyncMode};
use brickscope_engine::executor::cuda::{
    Agreement, Apart, Cuda, CudaOptions, Cupti, CuptiError, CuptiRecords, Recorded, Stamped,
    StampedPass, Stamps,
};
use brickscope_engine::{GpuSession, Model, Session};
use brickscope_kernels::Backend;
use serde::Serialize;

use crate::figures::signed_percent;
use crate::flags::ExecutorArgs;
use crate::{output, progress, source};

/// Check this machine's device: its times, their cost and its results.
///
/// `selftest` compares passes with and without timing, the sum of the bricks with the span of the
/// graph, events with the device's own clock, and the logits with the CPU's. It also measures the step
/// of that clock. If CUPTI is installed (BRICKSCOPE_CUPTI overrides its path), kernel times are
/// cross-checked with CUPTI's. This takes half a minute.
///
/// The exit code is 0 if all checks pass, 1 if one fails, 2 if there is no device.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope selftest --backend cuda\n  brickscope selftest --backend cuda model.gguf --json | jq '.checks[] | select(.ok == false)'"
)]
pub(crate) struct SelftestArgs {
    /// The GGUF file to run. By default the same model as for `profile`.
    pub(crate) model: Option<PathBuf>,

    /// The backend to check: cuda.
    #[arg(long)]
    pub(crate) backend: Backend,

    /// Print the checks as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The context: the number of positions.
const CONTEXT: usize = 256;

/// Tokens of the prompt.
const PROMPT: usize = 32;

/// The longest time for comparing passes with and without timestamps.
const OVERHEAD_TIME: Duration = Duration::from_secs(10);

/// Groups of passes to compare, each of four: A B B A.
const QUADS: usize = 40;

/// Readings of the device's clock between two of the host's; the narrowest pair counts.
const BRACKETS: usize = 64;

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    /// Its name.
    name: &'static str,
    /// The result as text.
    found: String,
    /// The result as a number, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// The unit of that number.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    /// The expected result.
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<&'static str>,
    /// Whether it is as expected; `None` if nothing is expected or it wasn't measured.
    ok: Option<bool>,
}

impl Check {
    fn fact(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, found: found.into(), value: None, unit: None, wanted: None, ok: None }
    }

    fn value(mut self, value: f64, unit: &'static str) -> Self {
        (self.value, self.unit) = (Some(value), Some(unit));
        self
    }

    fn wanted(mut self, wanted: &'static str, ok: bool) -> Self {
        (self.wanted, self.ok) = (Some(wanted), Some(ok));
        self
    }

    /// Sets the expected result of a check that couldn't be made.
    fn no_verdict(mut self, wanted: &'static str) -> Self {
        self.wanted = Some(wanted);
        self
    }
}

/// The result. `--json` prints it as it is.
#[derive(Serialize)]
struct Json<'c> {
    backend: &'static str,
    brickscope_version: &'static str,
    ok: bool,
    checks: &'c [Check],
}

/// Whether all checks passed.
pub(crate) fn run(args: &SelftestArgs) -> Result<bool> {
    ensure!(
        args.backend == Backend::Cuda,
        "selftest supports the backend cuda only, not {}",
        args.backend
    );
    // Before a model is made, which takes longer than finding out that there is no device.
    brickscope_engine::executor::cuda::devices()?;
    let model = source::model(args.model.as_deref())?;
    let mut checks = Vec::new();
    // Results from before an error are still valid.
    if let Err(error) = make(&model, &mut checks) {
        checks.push(
            Check::fact("all checks could be made", format!("{error:#}")).wanted("yes", false),
        );
    }
    let ok = checks.iter().all(|check| check.ok != Some(false));
    let text = if args.json {
        let version = env!("CARGO_PKG_VERSION");
        let json = Json { backend: "cuda", brickscope_version: version, ok, checks: &checks };
        serde_json::to_string_pretty(&json)? + "\n"
    } else {
        table(&checks)
    };
    output::print(text)?;
    Ok(ok)
}

fn make(model: &Model, checks: &mut Vec<Check>) -> Result<()> {
    let context = CONTEXT.min(model.config.context_length);
    ensure!(context > PROMPT + 8, "the model's context of {context} tokens is too short for this");
    let bar = progress::steps("checking", 7);

    let mut cuda = Cuda::new(model, context, CudaOptions::default())?;
    device(&mut cuda, checks)?;
    bar.inc(1);
    clocks(&mut cuda, checks)?;
    bar.inc(1);
    graphs(&mut cuda, checks)?;
    bar.inc(1);
    checks.push(logits(model, cuda, context)?);
    bar.inc(1);
    for looks in [false, true] {
        checks.push(overhead(model, context, looks)?);
    }
    bar.inc(1);
    let (profile, spans) = in_turns(model, context)?;
    checks.extend(sums(&profile, &spans));
    let [inside, events] =
        [Stamps::default(), Stamps::Events].map(|by| sampled(model, context, by, Grain::Brick));
    checks.push(agreement(&inside?, &events?));
    bar.inc(1);
    // Last, since its effect on the device's speed may outlast it.
    checks.extend(cupti(model, context)?);
    bar.finish_and_clear();
    Ok(())
}

fn device(cuda: &mut Cuda<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let ((major, minor), driver) = cuda.versions();
    let (whole, part) = (driver / 1000, driver % 1000 / 10);
    checks.push(Check::fact("device", cuda.name()));
    checks.push(Check::fact("capability, driver", format!("{major}.{minor}, CUDA {whole}.{part}")));
    let kernels = cuda.kernel_resources();
    let most = kernels.iter().max_by_key(|kernel| kernel.registers).context("no kernels")?;
    checks.push(
        Check::fact(
            "registers of a thread, at most",
            format!("{} of {} ({} kernels)", most.registers, most.name, kernels.len()),
        )
        .value(f64::from(most.registers), "registers"),
    );
    let spilled: Vec<&str> = kernels
        .iter()
        .filter(|k| k.spill_bytes.is_some_and(|n| n > 0) || k.local_bytes > 0)
        .map(|k| k.name)
        .collect();
    let found = match &*spilled {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    checks.push(Check::fact("kernels that spill", found).wanted("none", spilled.is_empty()));
    Ok(())
}

fn clocks(cuda: &mut Cuda<'_>, checks: &mut Vec<Check>) -> Result<()> {
    checks.push(match cuda.global_timer_step_ns()? {
        Some(ns) => Check::fact("step of %globaltimer", format!("{ns} ns")).value(ns as f64, "ns"),
        None => {
            Check::fact("step of %globaltimer", "it stood still").wanted("that it moves", false)
        }
    });
    let profiler = BrickProfiler::new();
    let mut narrowest = u64::MAX;
    for _ in 0..BRACKETS {
        narrowest = narrowest.min(cuda.bracket(profiler.clock())?.width_ns());
    }
    let width = format!("{:.1} µs, of {BRACKETS}", narrowest as f64 / 1e3);
    checks.push(Check::fact("narrowest clock bracket", width).value(narrowest as f64, "ns"));
    let cost = cuda.event_cost()?;
    let of = |name, ns: f64| {
        Check::fact(name, format!("{ns:.0} ns, of {}", cost.records)).value(ns, "ns")
    };
    checks.push(of("a time alone in a stream, host", cost.host_ns));
    let name = "a time alone in a stream, device";
    checks.push(match cost.device_ns {
        Some(ns) => of(name, ns),
        None => Check::fact(name, "times in a row were not in order").wanted("order", false),
    });
    Ok(())
}

fn graphs(cuda: &mut Cuda<'_>, checks: &mut Vec<Check>) -> Result<()> {
    let name = "kernel nodes without a brick";
    let cost = match cuda.graph_cost(Grain::Kernel, QUADS as u32) {
        Ok(cost) => cost,
        // The capture fails with an error that names a kernel without a brick.
        Err(error) => {
            checks.push(Check::fact(name, error.to_string()).wanted("0", false));
            return Err(error.into());
        }
    };
    checks.push(Check::fact(name, format!("0 of {}", cost.kernels)).wanted("0", true));
    let each = (cost.instrumented_ns as f64 - cost.plain_ns as f64) / cost.marks.max(1) as f64;
    let found = format!("{each:.0} ns, of {}", cost.marks);
    checks.push(Check::fact("a time in a graph, device", found).value(each, "ns"));
    if let Some(ratio) = cost.ratio {
        checks.push(ratio_check("graph with times against without", &ratio));
    }
    Ok(())
}

fn ratio_check(name: &'static str, ratio: &PairedRatio) -> Check {
    let [low, high] = [ratio.low, ratio.high].map(|part| 100.0 * part);
    let found = format!("{} ({low:+.2} to {high:+.2})", signed_percent(ratio.estimate));
    Check::fact(name, found).value(100.0 * ratio.estimate, "%")
}

/// Token ids that every vocabulary has.
fn ids(model: &Model, n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7 % model.config.n_vocab) as u32).collect()
}

fn logits(model: &Model, cuda: Cuda<'_>, context: usize) -> Result<Check> {
    let cpu = source::cpu(&ExecutorArgs {
        threads: None,
        // AVX-512 rounds activations to eight bits, where a device doesn't.
        backend: Some(Backend::Scalar),
        mmap: true,
        small_pages: false,
    })?;
    let mut host = Session::new(model, cpu, context)?;
    let mut device = GpuSession::new(model, cuda);
    let tokens = ids(model, PROMPT + 8);
    let (prompt, rest) = tokens.split_at(PROMPT);
    let mut furthest = 0.0_f32;
    for pass in std::iter::once(prompt).chain(rest.chunks(1)) {
        let (a, b) = (device.forward(pass)?, host.forward(pass)?);
        for (a, b) in a.iter().zip(b) {
            let apart = (a - b).abs() / (1.0 + b.abs());
            // A NaN must not be lost in a comparison.
            if apart > furthest || apart.is_nan() {
                furthest = apart;
            }
        }
    }
    let found = format!("{furthest:.1e} of 1 + |logit|, at most");
    let check = Check::fact("logits against the CPU's", found).value(furthest.into(), "relative");
    Ok(check.wanted("≤ 1e-3", furthest <= 1e-3))
}

/// Compares profiled passes with passes that aren't profiled, in groups of one sampled pass each. Whether the profiler
/// also looks at what other programs do is what `looks` says: that costs the host up to a hundredth of a run's time, and
/// more of a short one.
fn overhead(model: &Model, context: usize, looks: bool) -> Result<Check> {
    let options = CudaOptions::default();
    // Short passes are sampled half as often.
    let group = 2 * options.sample_every as usize;
    let mut session = GpuSession::new(model, Cuda::new(model, context, options)?);
    let profiler = BrickProfiler::enabled();
    profiler.watch_load(looks);
    let mut probe = session.profiled(&profiler)?;
    // As `profile` does.
    probe.timer().calibrate(session.gpu())?;
    session.forward(&ids(model, PROMPT))?;
    let mut time = |mode: SyncMode| -> Result<f64> {
        profiler.set_sync_mode(mode);
        let start = Instant::now();
        for token in ids(model, group) {
            session.forward_with(&mut probe, &[token])?;
        }
        let seconds = start.elapsed().as_secs_f64();
        session.truncate(PROMPT);
        Ok(seconds)
    };
    // Captures both graphs.
    for mode in [SyncMode::None, SyncMode::Deferred] {
        time(mode)?;
    }
    let started = Instant::now();
    let mut pairs = Vec::new();
    while pairs.len() < 2 * QUADS && (pairs.len() < 6 || started.elapsed() < OVERHEAD_TIME) {
        let (a1, b1) = (time(SyncMode::None)?, time(SyncMode::Deferred)?);
        let (b2, a2) = (time(SyncMode::Deferred)?, time(SyncMode::None)?);
        pairs.extend([(a1, b1), (a2, b2)]);
    }
    session.finish(probe)?;
    let ratio = PairedRatio::new(&pairs)?;
    if looks {
        return Ok(ratio_check("the same, with looks at other load", &ratio));
    }
    let check = ratio_check("Deferred against None, graphs on", &ratio);
    Ok(check.wanted("≤ 1 %", ratio.estimate <= 0.01))
}

/// Decode passes at the last position, each with its timestamps.
fn sampled(model: &Model, context: usize, stamps: Stamps, grain: Grain) -> Result<Profile> {
    sampled_with(model, context, stamps, grain, &mut |_| {})
}

/// The same. `tell` is called before each launch, and at the end.
fn sampled_with(
    model: &Model,
    context: usize,
    stamps: Stamps,
    grain: Grain,
    tell: &mut dyn FnMut(Option<usize>),
) -> Result<Profile> {
    let options = CudaOptions { sample_every: 1, stamps, ..CudaOptions::default() };
    let mut session = GpuSession::new(model, Cuda::new(model, context, options)?);
    let profiler = BrickProfiler::enabled();
    let mut probe = session.profiled(&profiler)?;
    probe.timer().set_grain(grain);
    session.forward(&ids(model, context - 1))?;
    for pass in 0..QUADS {
        tell(Some(pass));
        session.forward_with(&mut probe, &[1])?;
        session.truncate(context - 1);
    }
    tell(None);
    session.finish(probe)?;
    profiler.profile().on_device(0, 0).context("the profile has no device")
}

/// Decode passes at the last position, with timestamps and without them in turns, and the spans of those without.
fn in_turns(model: &Model, context: usize) -> Result<(Profile, Vec<u64>)> {
    let options = CudaOptions { sample_every: 2, ..CudaOptions::default() };
    let mut session = GpuSession::new(model, Cuda::new(model, context, options)?);
    let profiler = BrickProfiler::enabled();
    let mut probe = session.profiled(&profiler)?;
    probe.timer().set_grain(Grain::Kernel);
    session.forward(&ids(model, context - 1))?;
    session.gpu().time_plain_graphs(true);
    let mut spans = Vec::new();
    for _ in 0..2 * QUADS {
        session.forward_with(&mut probe, &[1])?;
        session.truncate(context - 1);
        spans.extend(session.gpu().plain_graph_ns()?);
    }
    session.finish(probe)?;
    let profile = profiler.profile().on_device(0, 0).context("the profile has no device")?;
    spans.sort_unstable();
    Ok((profile, spans))
}

fn sums(profile: &Profile, spans: &[u64]) -> Vec<Check> {
    let plain_ns = spans.get(spans.len() / 2).copied().unwrap_or(0);
    let is_kernel = |name: u16| profile.names[usize::from(name)].kind == NameKind::Kernel;
    let kernels: Vec<u64> = profile
        .spans
        .iter()
        .filter(|span| span.name.is_some_and(is_kernel))
        .map(|span| span.duration_ns)
        .collect();
    let zero = kernels.iter().filter(|&&ns| ns == 0).count();
    let mut sums: Vec<u64> = profile
        .passes
        .iter()
        .filter(|pass| pass.phase == Phase::Decode)
        .map(|pass| pass.attributed_ns)
        .collect();
    sums.sort_unstable();
    let name = "sum of bricks against the graph";
    let Some(&median) = sums.get(sums.len() / 2).filter(|_| plain_ns > 0) else {
        let why = "no decode pass was timed, or no graph";
        return vec![Check::fact(name, why).wanted("within 2 %", false)];
    };
    let apart = 100.0 * (median as f64 / plain_ns as f64 - 1.0);
    let found =
        format!("{apart:+.2} % ({:.1} µs, {:.1} µs)", median as f64 / 1e3, plain_ns as f64 / 1e3);
    vec![
        Check::fact(name, found).value(apart, "%").wanted("within 2 %", apart.abs() <= 2.0),
        Check::fact("kernels of zero duration", format!("{zero} of {}", kernels.len()))
            .value(zero as f64, "kernels")
            .wanted("0", zero == 0 && !kernels.is_empty()),
    ]
}

/// The largest difference between bricks that events time and bricks whose kernels note when they begin. It has no expected
/// value: an event takes time of its own, which its brick then contains.
fn agreement(inside: &Profile, events: &Profile) -> Check {
    let name = "a brick by events against its own";
    let bricks = |profile: &Profile| -> Vec<(String, f64)> {
        let totals = profile.bricks(Some(Phase::Decode));
        let mean =
            |stats: &brickscope::BrickStats| stats.total_ns as f64 / stats.count.max(1) as f64;
        totals.iter().map(|total| (total.stats.name.clone(), mean(&total.stats))).collect()
    };
    let stamped = bricks(inside);
    let apart = bricks(events).into_iter().filter_map(|(brick, ns)| {
        let (_, other) = stamped.iter().find(|(name, _)| *name == brick)?;
        Some((ns - other, brick))
    });
    match apart.max_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs())) {
        Some((apart, brick)) => {
            let found = format!("{:+.2} µs at most, {brick}", apart / 1e3);
            Check::fact(name, found).value(apart, "ns")
        }
        None => Check::fact(name, "no bricks to compare"),
    }
}

/// The most kernels that CUPTI records: enough for the passes of any model here.
const CUPTI_ROOM: usize = 1 << 18;

/// CUPTI's timings of kernels, an optional cross-check: the passes of [`sampled`], timed by both.
fn cupti(model: &Model, context: usize) -> Result<Vec<Check>> {
    let not_measured = |error: CuptiError| {
        vec![Check::fact(AGREEMENT, format!("not measured: {error}")).no_verdict(AGREES)]
    };
    // Before the executor, since CUPTI has to see its graphs being created.
    let cupti = match Cupti::start(CUPTI_ROOM) {
        Ok(cupti) => cupti,
        Err(error) => return Ok(not_measured(error)),
    };
    let mut begun = Ok(Vec::new());
    let profile = sampled_with(model, context, Stamps::default(), Grain::Kernel, &mut |pass| {
        let Ok(moments) = &mut begun else { return };
        match (pass, cupti.now_ns()) {
            (Some(_), Ok(now_ns)) => moments.push(now_ns),
            // Complete records must be read before their context is destroyed.
            (None, Ok(_)) => {
                if let Err(error) = cupti.flush() {
                    begun = Err(error);
                }
            }
            (_, Err(error)) => begun = Err(error),
        }
    })?;
    match begun.and_then(|begun| Ok((begun, cupti.finish()?))) {
        Ok((begun, records)) => Ok(witnessed(&stamped(&profile, &begun), &records)),
        Err(error) => Ok(not_measured(error)),
    }
}

const AGREEMENT: &str = "agreement with CUPTI's records";
const AGREES: &str = "within 5 % or 1 µs";
/// Two steps of an H200's clock.
const STEPS_NS: u64 = 64;

/// The stamped times of the kernels of each decode pass, in order; none unless all passes that began
/// are there.
fn stamped(profile: &Profile, begun: &[u64]) -> Vec<StampedPass> {
    let passes: Vec<u32> = profile
        .passes
        .iter()
        .filter(|pass| pass.phase == Phase::Decode)
        .map(|pass| pass.serial)
        .collect();
    if passes.len() != begun.len() {
        return Vec::new();
    }
    let kernels = |serial: u32| {
        let mut spans: Vec<_> = profile
            .spans
            .iter()
            .filter(|span| span.pass == Some(serial))
            .filter_map(|span| Some((span, &profile.names[usize::from(span.name?)])))
            .filter(|(_, name)| name.kind == NameKind::Kernel)
            .collect();
        // A stable sort keeps kernels of zero duration in order.
        spans.sort_by_key(|(span, _)| span.start_ns);
        let stamped = spans.into_iter().map(|(span, name)| Stamped {
            kernel: name.name.as_str().into(),
            ns: span.duration_ns,
        });
        stamped.collect()
    };
    let passes = passes.into_iter().zip(begun);
    passes.map(|(serial, &begun_ns)| StampedPass { begun_ns, kernels: kernels(serial) }).collect()
}

/// Compares both timings of the same kernels.
fn witnessed(passes: &[StampedPass], records: &CuptiRecords) -> Vec<Check> {
    let CuptiRecords { version, kernels, dropped, beyond_room, untimed, cut_short, .. } = records;
    let mut seen = format!("{} kernels by version {version}", kernels.len());
    for (n, what) in [
        (*dropped, "dropped"),
        (*beyond_room, "beyond the buffer"),
        (*untimed, "without times"),
        (records.other_kinds, "of other kinds"),
        (*cut_short, "buffers cut short"),
    ] {
        if n > 0 {
            seen += &format!(", {n} {what}");
        }
    }
    if records.is_count_unknown {
        seen += ", more may be dropped";
    }
    let agreement = Agreement::new(passes, records);
    let mut checks =
        vec![Check::fact("CUPTI's records", seen).value(kernels.len() as f64, "kernels")];
    let alone = agreement.apart(Recorded::Alone);
    // From the begin of one kernel to that of the next, like stamps.
    let Some((judged, alone)) = agreement.apart(Recorded::UntilNext).zip(alone) else {
        let why = match passes.len() {
            0 => "not measured: no pass was stamped".to_owned(),
            n => format!("not measured: none of {n} passes has a record of each of its kernels"),
        };
        checks.push(Check::fact(AGREEMENT, why).no_verdict(AGREES));
        return checks;
    };
    let mut found = format!(
        "{} of {} pairs differ by more than both 5 % and 1 µs ({} by 5 %, {} by 1 µs)",
        judged.beyond, judged.n, judged.beyond_part, judged.beyond_ns
    );
    if agreement.left_out > 0 {
        let all = agreement.left_out + agreement.passes;
        found += &format!("; {} of {all} passes lack records and are left out", agreement.left_out);
    }
    let check = Check::fact(AGREEMENT, found).value(judged.beyond as f64, "pairs");
    checks.push(check.wanted(AGREES, judged.beyond == 0));
    let medians = agreement.medians(Recorded::UntilNext);
    let is_apart = |(_, stamped, recorded): &&(&str, u64, u64)| {
        let by = stamped.abs_diff(*recorded);
        by > STEPS_NS && by as f64 > 0.01 * *recorded as f64
    };
    let differ = medians.iter().filter(is_apart).count();
    let found = format!("{differ} of {} differ by more than both 1 % and 64 ns", medians.len());
    checks
        .push(Check::fact("kernels' medians of all passes", found).value(differ as f64, "kernels"));
    let sum = |of: fn(&(&str, u64, u64)) -> u64| medians.iter().map(of).sum::<u64>() as f64;
    let (stamped, recorded) = (sum(|median| median.1), sum(|median| median.2));
    if recorded > 0.0 {
        let apart = 100.0 * (stamped / recorded - 1.0);
        let check = Check::fact("a pass by both", format!("{apart:+.2} %")).value(apart, "%");
        checks.push(check.wanted("within 1 %", apart.abs() <= 1.0));
    }
    let apart = |name, apart: &Apart<'_>| {
        let (pair, most) = apart.furthest;
        let (median, most) = (apart.median_ns / 1e3, most as f64 / 1e3);
        let found = format!("{median:+.2} µs median, {most:+.2} µs at most, {}", pair.kernel);
        Check::fact(name, found).value(apart.median_ns, "ns")
    };
    checks.push(apart("a kernel's stamps less its record", &alone));
    checks.push(apart("less the gap after it, too", &judged));
    checks
}

/// The verdict, name, result and expectation of a check, in 80 columns if the device's name is short
/// enough.
fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, found, wanted, ok, .. } in checks {
        let verdict = match ok {
            Some(true) => "ok",
            Some(false) => "NO",
            None => "",
        };
        let indent = format!("\n{:1$}", "", width + 5);
        let mut column = width + 5;
        text += &format!("{verdict:2} {name:width$} ");
        for (index, word) in found.split(' ').enumerate() {
            let fits = index == 0 || column + 1 + word.chars().count() <= 80;
            text += if fits { " " } else { &indent };
            column = if fits { column + usize::from(index > 0) } else { width + 5 };
            text += word;
            column += word.chars().count();
        }
        text.truncate(text.trim_end().len());
        if let Some(wanted) = wanted {
            let fits = column + wanted.chars().count() + 4 <= 80;
            text += &format!("{}[{wanted}]", if fits { "  " } else { &indent });
        }
        text.push('\n');
    }
    let failed = checks.iter().filter(|check| check.ok == Some(false)).count();
    text += &match failed {
        0 => "all checks passed\n".to_owned(),
        1 => "1 check failed\n".to_owned(),
        n => format!("{n} checks failed\n"),
    };
    text
}
