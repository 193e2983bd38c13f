//! The rows of a profile.

use std::collections::HashMap;

use brickscope_profile::stats::median;
use brickscope_profile::{
    BrickStats, Ceilings, DeviceProfile, Imported, ImportedTest, Kept, NameKind, Pass, Phase,
    PhaseTotal, Profile, Repeated, Total,
};

use super::table::{BrickRow, DurationRow, PassRow, RunRow, SpanRow, SpeedRow};
use super::{Parts, counted, known, of_devices, tail};
use brickscope_analysis::compare::Work;
use brickscope_analysis::rate::ByDevice;
use brickscope_analysis::requests::Requests;
use brickscope_formats::export::has_begins;
use brickscope_formats::export::rows::{self, Row, Table};

/// Fills in what the profile says of the run.
pub(super) fn describe(profile: &Profile, run: &mut RunRow) {
    run.brickscope_version = profile.brickscope_version.clone();
    run.engine = "brickscope".to_owned();
    run.engine_version = Some(profile.brickscope_version.clone());
    if let Some(of) = &profile.imported {
        let program = of.program.as_deref().unwrap_or(&of.format);
        let (engine, version) = engine_of(program, of.format == LLAMA_BENCH);
        run.engine = engine;
        run.engine_version = known(version);
    }
    let is_own = profile.imported.is_none();
    if is_own && !profile.requests.is_empty() && Requests::of(profile).are_of_client() {
        // Who asks a server doesn't know what it is: what this program was is no engine.
        run.engine = "a server".to_owned();
        run.engine_version = None;
    } else if let Some(of) = &profile.run {
        run.backend = known(&of.backend);
        run.threads = counted(of.threads.into());
    }
    run.commit = profile.named.as_ref().and_then(|named| named.commit.clone());
    let engine = profile.run.as_ref().and_then(|of| of.engine.as_ref()).filter(|_| is_own);
    if let Some(of) = engine {
        // What `brickscope run` watched: `llama.cpp, CPU`.
        let backend = run.backend.as_deref().unwrap_or_default();
        let library = backend.split([',', ' ']).next().filter(|name| !name.is_empty());
        run.engine = library.unwrap_or("llama.cpp").to_owned();
        run.engine_version = of.version.clone();
        run.commit = run.commit.take().or_else(|| of.commit.clone());
    }
    if let Some(model) = &profile.model {
        run.model = model.called().map(str::to_owned);
        run.architecture = known(&model.architecture);
        run.quant = model.quantized();
        run.parameters = counted(model.parameters);
        run.model_bytes = counted(model.file_bytes);
        run.is_synthetic = Some(model.synthetic);
    }
    if let Some(machine) = &profile.machine {
        run.os = known(&machine.os);
        run.arch = known(&machine.arch);
        run.cpu = machine.cpu.clone();
        run.logical_cpus = machine.logical_cpus.map(u64::from);
        run.memory_bytes = machine.memory_bytes;
    }
    // Of what ran the bricks: the host, or the device that it issued them to.
    // Limits that somebody stated aren't what the machine was measured to give.
    let is_measured = |ceilings: &&Ceilings| !ceilings.is_stated();
    let of_device = profile.devices.first().and_then(|device| device.ceilings.as_ref());
    let of_device = of_device.filter(is_measured);
    let of_host = profile.ceilings.as_ref().filter(is_measured);
    if let Some(ceilings) = of_host.or(of_device) {
        run.read_bytes_per_second = Some(ceilings.read_bytes_per_second);
        run.flops_per_second = Some(ceilings.flops_per_second);
    }
    run.device = profile.devices.first().and_then(|device| known(&device.name));
    // A GPU's bandwidth is no host's.
    run.roof_device = run.device.clone().filter(|_| of_host.is_none() && of_device.is_some());
    if let Some(of) = profile.imported.as_ref().filter(|of| of.format == LLAMA_BENCH) {
        of_llama_bench(of, run);
    }
    run.others_share = profile.other_load.as_ref().map(|load| load.others_share());
    run.clock = known(&profile.clock.source);
    let mut dropped = profile.dropped;
    if profile.kept.is_some() {
        // What isn't listed was not lost.
        (dropped.passes, dropped.spans) = (0, 0);
    }
    let kept = profile.kept.iter().map(Kept::line);
    run.dropped = kept.chain(dropped.lines()).collect::<Vec<_>>().join("\n");
}

const LLAMA_BENCH: &str = "llama-bench";

/// The name and the version of a program: `Nsight Systems 2026.2.1`, `PyTorch's profiler`. A version has digits; that of
/// llama-bench is the commit of its build, which may have none.
fn engine_of(program: &str, is_llama_bench: bool) -> (String, &str) {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let mut spaces = program.match_indices(' ').map(|(at, _)| at);
    let at = spaces
        .find(|at| is_llama_bench || program[at + 1..].split(' ').next().is_some_and(has_digit));
    let (name, version) = at.map_or((program, ""), |at| (&program[..at], &program[at + 1..]));
    // What the profiler of a program saw is that program's.
    (name.strip_suffix("'s profiler").unwrap_or(name).to_owned(), version)
}

/// What llama-bench states in its own words.
fn of_llama_bench(of: &Imported, run: &mut RunRow) {
    let stated = |name: &str| {
        let mut conditions = of.conditions.iter();
        conditions.find(|(key, _)| key == name).and_then(|(_, value)| known(value))
    };
    // `1a2b3c4 (4567)`: the commit of the build, and its number.
    let build = run.engine_version.as_deref();
    let of_build = || build.and_then(|build| build.split(' ').next()).and_then(known);
    run.commit = run.commit.take().or_else(of_build);
    run.cpu = stated("cpu_info");
    run.device = stated("gpu_info");
    // `llama 1B Q4_K - Medium`
    if let Some(text) = run.architecture.take() {
        run.architecture = text.split(' ').next().and_then(known);
    }
}

/// A row for each phase, of the host's clock where it timed passes.
pub(super) fn speeds(profile: &Profile) -> Vec<SpeedRow> {
    let repeated = profile.run.iter().flat_map(|run| &run.repeated);
    let of_benchmark: Vec<SpeedRow> = repeated.map(|of| repetitions(profile, of)).collect();
    if !of_benchmark.is_empty() {
        return of_benchmark;
    }
    let host = profile.phases.iter();
    let on_devices = rows::tables(profile).skip(1).flat_map(|table| table.phases);
    let listed = listed(profile);
    if !listed.is_empty() {
        return listed;
    }
    let of: Vec<&PhaseTotal> =
        if profile.phases.is_empty() { on_devices.collect() } else { host.collect() };
    let is_llama_bench = profile.imported.as_ref().is_some_and(|of| of.format == LLAMA_BENCH);
    of.into_iter()
        .map(|total| if is_llama_bench { test(profile, total) } else { speed(profile, total) })
        .collect()
}

/// A test of a benchmark, as its receipt has it.
fn repetitions(profile: &Profile, of: &Repeated) -> SpeedRow {
    let rates = of.rates();
    let fold = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick);
    let all = &of.repetitions;
    let disturbed = all.iter().filter(|of| of.disturbed == Some(true)).count() as u64;
    SpeedRow {
        work: Work::of_profile(profile, of.phase).json(),
        test: of.test.clone(),
        phase: Some(of.phase.name().to_owned()),
        n_prompt: Some(of.prompt_tokens),
        n_gen: Some(of.generated_tokens),
        n_depth: Some(of.depth),
        repetitions: rates.len() as u64,
        disturbed: all.iter().any(|of| of.disturbed.is_some()).then_some(disturbed),
        tokens: Some(all.iter().map(|of| of.tokens).fold(0, u64::saturating_add)),
        wall_ns: all.iter().map(|of| of.wall_ns).fold(0, u64::saturating_add),
        tokens_per_second: of.tokens_per_second(),
        low: fold(f64::min),
        high: fold(f64::max),
    }
}

/// The tests of llama-bench that are no phases of one run: a sweep. Rows that measured a test again are one test.
fn listed(profile: &Profile) -> Vec<SpeedRow> {
    let is_list = |of: &&Imported| of.format == LLAMA_BENCH && profile.passes.is_empty();
    let Some(imported) = profile.imported.as_ref().filter(is_list) else { return Vec::new() };
    // By work, in the order of the file.
    let mut tests: Vec<(String, ImportedTest)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for test in imported.tests.iter().filter(|test| !test.samples_ns.is_empty()) {
        let work = Work::of_imported_test(profile, test).json();
        match known.get(&work) {
            Some(&nth) => tests[nth].1.samples_ns.extend(&test.samples_ns),
            None => {
                known.insert(work.clone(), tests.len());
                tests.push((work, test.clone()));
            }
        }
    }
    tests.into_iter().map(|(work, test)| of_test(work, &test)).collect()
}

fn of_test(work: String, test: &ImportedTest) -> SpeedRow {
    let counts = test.counts();
    let phase = match counts {
        Some((_, 0, _)) => Some(Phase::Prefill),
        Some((0, _, _)) => Some(Phase::Decode),
        _ => None,
    };
    let timed = test.samples_ns.iter().filter(|&&ns| ns > 0);
    let rates: Vec<f64> = timed.map(|&ns| test.tokens as f64 * 1e9 / ns as f64).collect();
    let fold = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick);
    let repetitions = test.samples_ns.len() as u64;
    SpeedRow {
        work,
        test: test.name.clone(),
        phase: phase.map(|phase| phase.name().to_owned()),
        n_prompt: counts.map(|(prompt, _, _)| prompt),
        n_gen: counts.map(|(_, answer, _)| answer),
        n_depth: counts.map(|(_, _, depth)| depth),
        repetitions,
        disturbed: None,
        tokens: counted(test.tokens.saturating_mul(repetitions)),
        wall_ns: test.samples_ns.iter().fold(0, |sum, &ns| u64::saturating_add(sum, ns)),
        tokens_per_second: median(&rates),
        low: fold(f64::min),
        high: fold(f64::max),
    }
}

/// A test of llama-bench: its passes are repetitions of as many tokens at the same depth.
fn test(profile: &Profile, total: &PhaseTotal) -> SpeedRow {
    let passes = profile.passes.iter().filter(|pass| pass.phase == total.phase);
    let Some(first) = passes.clone().next() else { return speed(profile, total) };
    let (name, n_prompt, n_gen) = match total.phase {
        Phase::Prefill => ("pp", first.tokens, 0),
        Phase::Decode => ("tg", 0, first.tokens),
        Phase::Encode => ("enc", first.tokens, 0),
        Phase::Training => ("train", first.tokens, 0),
    };
    let depth = match first.position {
        0 => String::new(),
        depth => format!(" @ d{depth}"),
    };
    let rates: Vec<f64> = passes
        .filter(|pass| pass.wall_ns > 0)
        .map(|pass| pass.tokens as f64 * 1e9 / pass.wall_ns as f64)
        .collect();
    let fold = |pick: fn(f64, f64) -> f64| rates.iter().copied().reduce(pick);
    SpeedRow {
        test: format!("{name}{}{depth}", first.tokens),
        n_prompt: Some(n_prompt),
        n_gen: Some(n_gen),
        n_depth: Some(first.position),
        tokens_per_second: median(&rates),
        low: fold(f64::min),
        high: fold(f64::max),
        ..speed(profile, total)
    }
}

fn speed(profile: &Profile, total: &PhaseTotal) -> SpeedRow {
    // Where the host only launched, devices say how long it took: as `ls` and `show` have it. A rate that is mostly a wait is
    // left out, as in `ls`: beside others it would say nothing of how fast the device is.
    let by_device = ByDevice::of(profile, total.phase).filter(|by| by.ns > 0);
    let on_host = SpeedRow {
        work: Work::of_profile(profile, total.phase).json(),
        test: total.phase.name().to_owned(),
        phase: Some(total.phase.name().to_owned()),
        repetitions: total.passes,
        disturbed: total
            .unwatched
            .is_some_and(|unwatched| unwatched < total.passes)
            .then_some(total.disturbed),
        tokens: counted(total.tokens),
        wall_ns: total.wall_ns,
        tokens_per_second: total.tokens_per_second(),
        ..SpeedRow::default()
    };
    match by_device {
        Some(by) => SpeedRow {
            repetitions: by.passes,
            tokens: counted(by.tokens),
            wall_ns: by.ns,
            tokens_per_second: by.doubt().is_none().then(|| by.tokens_per_second()),
            ..on_host
        },
        None => on_host,
    }
}

/// Adds bricks, durations, passes and the tail.
pub(super) fn add(profile: &Profile, parts: &mut Parts) {
    let has_begins = has_begins(profile);
    let weights = profile.kept.as_ref().map(Kept::weights).unwrap_or_default();
    for table in rows::tables(profile) {
        let of = table.stream.and_then(|(device, _)| profile.devices.get(device as usize));
        let device = of.map(|device| device.name.clone());
        let is_part = of.is_some_and(of_devices::has_several_streams);
        let nested = Nested::of(profile, table);
        for total in table.totals {
            parts.durations.extend(durations(total, device.as_deref()));
        }
        for total in by_name(table.totals) {
            bricks(&total, &nested, device.as_deref(), &mut parts.bricks);
        }
        if !is_part {
            // Of what had no bricks at all, such as a benchmark of another program, the rest isn't known.
            let has_bricks = !table.totals.is_empty();
            let rest = table.phases.iter().filter(|_| has_bricks);
            parts.bricks.extend(
                rest.map(|of| unattributed(of.phase, device.as_deref(), of.unattributed_ns)),
            );
            // Those that were kept where not all were are the slow ones: a percentile of them would be none of the run's.
            let are_all = profile.kept.is_none();
            parts.passes.extend(table.passes.iter().filter(|_| are_all).map(|of| {
                let rest = has_bricks.then_some(of.unattributed_ns);
                pass(profile, of, device.as_deref(), has_begins, rest)
            }));
        }
        let chosen = tail::choose(table.passes, table.spans, &weights);
        for row in rows::rows_of(profile, table) {
            if let Some(chosen) = row.pass.and_then(|pass| chosen.get(&pass)) {
                parts.spans.push(span(&row, device.as_deref(), *chosen));
            }
        }
    }
    for device in profile.devices.iter().filter(|of| of_devices::has_several_streams(of)) {
        add_all_streams(profile, device, has_begins, parts);
    }
}

/// The passes of a device over all of its streams, and what none of them filled.
fn add_all_streams(profile: &Profile, device: &DeviceProfile, has_begins: bool, parts: &mut Parts) {
    let has_bricks = device.streams.iter().any(|stream| !stream.totals.is_empty());
    let rest = of_devices::rest(device).into_iter().filter(|_| has_bricks);
    parts.bricks.extend(rest.map(|(phase, ns)| unattributed(phase, Some(&device.name), ns)));
    parts.passes.extend(of_devices::all_streams(device).into_iter().map(|(of, rest)| {
        pass(profile, &of, Some(&device.name), has_begins, rest.filter(|_| has_bricks))
    }));
}

fn unattributed(phase: Phase, device: Option<&str>, exclusive_ns: u64) -> BrickRow {
    BrickRow {
        phase: Some(phase.name().to_owned()),
        device: device.map(str::to_owned),
        kind: "unattributed".to_owned(),
        exclusive_ns,
        ..BrickRow::default()
    }
}

fn pass(
    profile: &Profile,
    pass: &Pass,
    device: Option<&str>,
    has_begins: bool,
    unattributed_ns: Option<u64>,
) -> PassRow {
    PassRow {
        test: None,
        device: device.map(str::to_owned),
        pass: pass.serial.into(),
        phase: pass.phase.name().to_owned(),
        tokens: counted(pass.tokens),
        // Other programs' files don't all state them.
        kv_position: (profile.imported.is_none() || pass.position > 0).then_some(pass.position),
        start_ns: has_begins.then_some(pass.start_ns),
        wall_ns: pass.wall_ns,
        unattributed_ns,
        is_disturbed: pass.disturbance.map(|found| found.is_disturbed()),
        is_left_out: pass.is_left_out,
    }
}

/// A phase, and the name of a brick or kernel in it.
type Name = (Option<Phase>, String);

/// The kernels of a table by the bricks that they ran in, and how much of a brick ran in layers, by its spans.
#[derive(Debug, Default)]
struct Nested {
    /// By phase and kernel, the bricks with the kernel's spans in them; `None` is outside of bricks.
    kernels: HashMap<Name, Vec<(Option<String>, BrickStats)>>,
    /// By phase and brick, the spans, and the own time of those in layers.
    bricks: HashMap<Name, (u64, u64)>,
}

impl Nested {
    fn of(profile: &Profile, table: Table<'_>) -> Self {
        let mut nested = Self::default();
        // The innermost brick at each row; spans come after the ones around them.
        let mut inside: Vec<Option<String>> = Vec::with_capacity(table.spans.len());
        for (row, of) in rows::rows_of(profile, table).zip(table.spans) {
            let parent = row.parent.and_then(|parent| inside.get(parent as usize)).cloned();
            let around = parent.flatten();
            let name = row.name.as_deref().unwrap_or_default();
            match row.kind {
                "brick" => {
                    let key = (row.phase, name.to_owned());
                    let (spans, in_layers_ns) = nested.bricks.entry(key).or_default();
                    *spans += 1;
                    if row.layer.is_some() {
                        *in_layers_ns = in_layers_ns.saturating_add(row.exclusive_ns);
                    }
                    inside.push(Some(name.to_owned()));
                    continue;
                }
                "kernel" => {
                    let bricks = nested.kernels.entry((row.phase, name.to_owned())).or_default();
                    let place = bricks.iter().position(|(brick, _)| *brick == around);
                    let place = place.unwrap_or_else(|| {
                        bricks.push((around.clone(), BrickStats::new(name)));
                        bricks.len() - 1
                    });
                    bricks[place].1.add(row.duration_ns, 0, of.work);
                }
                _ => {}
            }
            inside.push(around);
        }
        nested
    }
}

/// The totals, with one for all shapes of a kernel.
fn by_name(totals: &[Total]) -> Vec<Total> {
    let mut merged: Vec<Total> = Vec::new();
    for total in totals {
        let same = |known: &&mut Total| {
            let key = |total: &Total| (total.phase, total.kind, total.source);
            key(known) == key(total) && known.stats.name == total.stats.name
        };
        match merged.iter_mut().find(same) {
            Some(known) => known.stats.merge(&total.stats),
            None => merged.push(total.clone()),
        }
    }
    merged
}

/// The rows of a total: one for a brick; for a kernel one for each brick that it ran in, if all of its spans are there.
fn bricks(total: &Total, nested: &Nested, device: Option<&str>, rows: &mut Vec<BrickRow>) {
    let stats = &total.stats;
    let phase = total.phase.map(|phase| phase.name().to_owned());
    let key = (total.phase, stats.name.clone());
    let row = |stats: &BrickStats| BrickRow {
        test: None,
        phase: phase.clone(),
        device: device.map(str::to_owned),
        kind: "brick".to_owned(),
        brick: None,
        kernel: None,
        category: total.category.map(|category| category.name().to_owned()),
        source: Some(total.source.name().to_owned()),
        calls: Some(stats.count),
        total_ns: Some(stats.total_ns),
        exclusive_ns: stats.exclusive_ns,
        in_layers_ns: None,
        min_ns: (stats.count > 0).then_some(stats.min_ns),
        max_ns: (stats.count > 0).then_some(stats.max_ns),
        squared_deviations: stats.std_dev_ns().map(|_| stats.squared_deviations),
        elements: counted(stats.total_elements),
        flops: counted(stats.total_flops),
        bytes: counted(stats.total_bytes),
    };
    match total.kind {
        NameKind::Kernel => {
            let of_kernel = |brick: Option<String>, stats: &BrickStats| BrickRow {
                kind: "kernel".to_owned(),
                brick,
                kernel: Some(stats.name.clone()),
                exclusive_ns: 0,
                ..row(stats)
            };
            let within = nested.kernels.get(&key).filter(|bricks| {
                let spans = bricks.iter().map(|(_, stats)| stats.count).sum::<u64>();
                spans == stats.count
            });
            match within {
                Some(bricks) => {
                    rows.extend(bricks.iter().map(|(brick, s)| of_kernel(brick.clone(), s)));
                }
                None => rows.push(of_kernel(None, stats)),
            }
        }
        NameKind::Brick => rows.push(BrickRow {
            brick: Some(stats.name.clone()),
            in_layers_ns: nested
                .bricks
                .get(&key)
                .filter(|(spans, _)| *spans == stats.count)
                .map(|(_, in_layers_ns)| *in_layers_ns),
            ..row(stats)
        }),
    }
}

fn durations<'t>(
    total: &'t Total,
    device: Option<&'t str>,
) -> impl Iterator<Item = DurationRow> + 't {
    total.stats.histogram.bounds().map(move |(from_ns, to_ns, spans)| DurationRow {
        phase: total.phase.map(|phase| phase.name().to_owned()),
        device: device.map(str::to_owned),
        kind: match total.kind {
            NameKind::Brick => "brick",
            NameKind::Kernel => "kernel",
        }
        .to_owned(),
        name: total.stats.name.clone(),
        from_ns,
        to_ns,
        spans,
    })
}

fn span(row: &Row<'_>, device: Option<&str>, chosen: tail::Chosen) -> SpanRow {
    SpanRow {
        device: device.map(str::to_owned),
        stream: row.stream.map(u64::from),
        row: row.row.into(),
        parent: row.parent.map(u64::from),
        lane: row.lane.into(),
        pass: row.pass.map(u64::from),
        phase: row.phase.map(|phase| phase.name().to_owned()),
        layer: row.layer.map(u64::from),
        kind: row.kind.to_owned(),
        name: row.name.as_deref().map(str::to_owned),
        source: row.source.name().to_owned(),
        start_ns: row.start_ns,
        duration_ns: row.duration_ns,
        exclusive_ns: row.exclusive_ns,
        elements: row.elements,
        flops: row.flops,
        bytes: row.bytes,
        shape: row.shape().map(str::to_owned),
        chosen: if chosen.is_slow { "slow" } else { "sample" }.to_owned(),
        weight: Some(chosen.weight),
    }
}
