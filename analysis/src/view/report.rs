//! The report: what ran, where its time went, and how that is known.

use std::fmt::Write;

use brickscope_profile::graph::path_table;
use brickscope_profile::keep::Fired;
use brickscope_profile::text::{MOST_ROWS, count, printable, printable_text, screened_lines};
use brickscope_profile::{
    Absent, Durations, Kept, Percentiles, Phase, PhaseTotal, Profile, Profiled, SlowTokens,
    SyncMode, TreeOptions, WeightGroup,
};

use crate::passes::is_of_device;
use crate::rate;
use crate::requests::counts_by_passes;
use crate::typical::{self, OnePass};
use crate::view::between::beside;
use crate::view::layout::{labelled, milliseconds, wrapped};
use crate::view::tables::{Limits, PATH_ROWS, Rest, tables};
use crate::view::{
    batches, between, device, experts, findings, headline, imported, machine, ranks, roofline,
    shares, tiles, waits,
};

/// The whole report of a profile, at most 80 columns wide where names allow.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
/// use brickscope_analysis::view;
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let pass = profiler.begin_pass(Phase::Decode);
/// let timer = profiler.start_brick(BrickId::LmHead);
/// hand.advance(90_000);
/// profiler.stop_brick(timer, 32_000);
/// hand.advance(10_000);
/// profiler.end_pass(pass, 1, 0);
/// assert!(view::report(&profiler.profile()).contains(
///     "LmHead                     90.0       90.0        1   90.0%         -         -\n\
///      unattributed               10.0       10.0        1   10.0%\n"
/// ));
/// ```
///
/// That of an imported file has at most some 200 lines: where it would have more, tables have fewer rows.
#[must_use]
pub fn report(profile: &Profile) -> String {
    if profile.imported.is_none() {
        return within(profile, &Limits::NONE);
    }
    let mut text = String::new();
    for limits in &Limits::OF_IMPORTED {
        text = within(profile, limits);
        if text.lines().count() < MOST_LINES {
            break;
        }
    }
    text
}

/// The report of one device with several streams: how fast and how busy it was, a table of all its streams, and one of each.
/// Empty if there is no such device. That of an imported file is as long as its [`report`] at most.
#[must_use]
pub fn report_of_device(profile: &Profile, index: usize) -> String {
    let mut text = String::new();
    let all = match profile.imported {
        Some(_) => &Limits::OF_IMPORTED[..],
        None => &[Limits::NONE],
    };
    for limits in all {
        text = of_device_within(profile, index, limits);
        if text.lines().count() < MOST_LINES {
            break;
        }
    }
    text
}

fn of_device_within(profile: &Profile, index: usize, limits: &Limits) -> String {
    let Some(of) = profile.devices.get(index) else { return String::new() };
    let mut text = String::new();
    let alone = Profile { devices: vec![of.clone()], ..profile.clone() };
    wrapped(&headline(&alone), &mut text);
    if let Some(how) = profile.run.as_ref().and_then(|run| run.cut_short.as_ref()) {
        wrapped(&format!("note: cut short: {}", printable(how)), &mut text);
    }
    let own = format!("device {index}: ");
    let losses = device::losses(profile).into_iter().filter(|loss| loss.starts_with(&own));
    for note in device::serialised_notes(profile).into_iter().chain(losses) {
        wrapped(&format!("note: {note}"), &mut text);
    }
    device::section(profile, (index, of), limits, &mut text);
    tell_of_more(limits, &mut text);
    how_known(profile, &mut text);
    findings::in_report(profile, &mut text);
    screened_lines(text)
}

fn tell_of_more(limits: &Limits, text: &mut String) {
    if limits.rows < MOST_ROWS {
        text.push('\n');
        wrapped(
            "There is more than fits here: `--as statistics` has all bricks, `--as kernels` all kernels, and `--device N \
             --stream N` another stream.",
            text,
        );
    }
}

/// The lines of a report of an imported file, which is read on a terminal.
const MOST_LINES: usize = 200;

fn within(profile: &Profile, limits: &Limits) -> String {
    let mut text = String::new();
    let (all, shown) = (profile, typical::shown(profile));
    let profile = &*shown;
    let has_devices = !profile.devices.is_empty();
    if !profile.phases.is_empty() || has_devices || profile.imported.is_some() {
        wrapped(&headline(all), &mut text);
    }
    if let Some(how) = profile.run.as_ref().and_then(|run| run.cut_short.as_ref()) {
        wrapped(&format!("note: cut short: {}", printable(how)), &mut text);
    }
    if let Some(by) = profile.run.as_ref().and_then(|run| run.ended_by.as_ref()) {
        wrapped(&format!("note: ended by {}", printable(by)), &mut text);
    }
    // What was disturbed or left out here is told with its causes.
    let mut dropped = all.dropped;
    dropped.disturbed_passes = 0;
    if all.kept.is_some() {
        // What isn't listed was not lost.
        (dropped.passes, dropped.spans) = (0, 0);
    }
    let kept = all.fired.iter().map(Fired::line).chain(all.kept.iter().map(Kept::line));
    let notes = kept.chain(dropped.lines()).chain(typical::notes(all));
    for note in notes.chain(device::notes(profile)) {
        wrapped(&format!("note: {note}"), &mut text);
    }
    if let Some(ppm) = profile.clock.drift_ppm.filter(|ppm| ppm.abs() > MOST_DRIFT_PPM) {
        let _ = writeln!(
            text,
            "note: the counter drifted {ppm:+.0} ppm from the OS clock: distrust long times"
        );
    }
    what_ran(profile, &mut text);
    if has_devices && !profile.totals.is_empty() {
        text.push_str("\nHost, by its own clock, while devices ran\n");
        if let Some(after) = device::serialised(profile.sync_mode) {
            let note = format!(
                "serialised: the host waited after every {after}, so its times include issuing the work and these \
                 waits; device times are below"
            );
            wrapped(&note, &mut text);
        }
    }
    // Decode first: it is what a user waits for.
    let mut phases: Vec<&PhaseTotal> = profile.phases.iter().collect();
    phases.sort_by_key(|total| total.phase != Phase::Decode);
    for phase in phases {
        let each = if phase.phase == Phase::Decode { "token by token" } else { "in batches" };
        let rate = phase
            .tokens_per_second()
            .map_or("n/a".to_owned(), |rate| format!("{rate:.1} tokens/s"));
        let (name, wall) = (phase.phase.heading(), milliseconds(phase.wall_ns));
        // Of a benchmark, its own figure first; the tables are of one repetition.
        let repeated = rate::repeated(all, phase.phase);
        if let Some((of, rate)) = repeated.and_then(|of| Some((of, of.tokens_per_second()?))) {
            let which = rate::of_profile(all, phase.phase).unwrap_or_default();
            text.push('\n');
            let basis = rate::basis(of);
            wrapped(&format!("{name}: {rate:.1} tokens/s: {basis}; {which}"), &mut text);
        }
        let name = if repeated.is_some() { "Profiled" } else { name };
        let start = if repeated.is_some() { "" } else { "\n" };
        let _ = if phase.tokens == 0 {
            // Nobody said how many: of a picture or a sound there are none.
            let passes = if phase.passes == 1 { "pass" } else { "passes" };
            writeln!(text, "{start}{name}: {} {passes}, {wall}", phase.passes)
        } else {
            let tokens = count(phase.tokens, "token");
            writeln!(text, "{start}{name}: {tokens} {each}, {wall}, {rate}")
        };
        if let Some(overlapped) = rate::Overlapped::of(all, phase.phase) {
            wrapped(&overlapped.to_string(), &mut text);
        }
        if let Some(of) = profile.serialised(phase.phase) {
            let rate = of.whole_tokens_per_second();
            let whole = match rate {
                Some(rate) => format!(
                    "{} left whole: {}, {rate:.1} tokens/s",
                    typical::passes_text(of.whole_passes),
                    milliseconds(of.whole_wall_ns)
                ),
                None => "no pass was left whole".to_owned(),
            };
            let devices = printable_text(&of.devices.join(", "));
            wrapped(
                &format!("serialised on {devices}: these times and the rate; {whole}"),
                &mut text,
            );
        }
        let rests = match is_of_device(profile) {
            true => {
                device::rests(&profile.grains, phase.phase, phase.unattributed_ns, phase.passes)
            }
            false => vec![("unattributed", phase.unattributed_ns, phase.passes)],
        };
        // Tests that were timed as a whole have rows of their own.
        if all.imported.as_ref().is_none_or(|of| of.tests.is_empty()) {
            tables_of(all, profile, phase, &rests, limits, &mut text);
            device::coarse(&profile.grains, phase, &mut text);
        }
        left_out(all, phase, &mut text);
        batches::in_report(all, phase.phase, &mut text);
        let run = all.run.as_ref().filter(|_| phase.phase == Phase::Decode);
        if let Some(of) = run.and_then(|run| run.between.as_ref()) {
            between::in_report(of, &mut text);
        }
        // A host that only issues work to devices is under no roof.
        if !has_devices || profile.ceilings.is_some() {
            roofline::in_report(all, phase.phase, &mut text);
        }
    }
    other_tests(all, &mut text);
    if profile.totals.iter().any(|total| total.phase.is_none() && total.category.is_some()) {
        if !profile.phases.is_empty() {
            text.push_str("\nOutside of passes\n");
        } else if profile.imported.is_some() {
            text.push('\n');
        }
        tables(profile, None, &[], None, limits, &mut text);
    }
    shares::in_report(profile, &mut text);
    waits::in_report(profile, &mut text);
    experts::in_report(profile, &mut text);
    tiles::in_report(profile, &mut text);
    imported::tests(profile, &mut text);
    imported::samples(profile, &mut text);
    latency(profile, &mut text);
    if profile.totals.is_empty() && !has_devices && profile.imported.is_none() {
        let why = match profile.sync_mode {
            SyncMode::None => ": the sync mode `none` times nothing",
            _ => "",
        };
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}Nothing was recorded{why}.");
    }
    ranks::in_report(profile, limits, &mut text);
    device::sections(profile, limits, &mut text);
    if !has_devices
        && let Some(one) = OnePass::of(profile, Phase::Decode)
        && let Some(graph) = profile.execution_graph(one.pass.serial)
    {
        let (pass, which) = (one.pass, one.which());
        let on = if is_of_device(profile) { "device" } else { "host" };
        // An imported file doesn't say at which position.
        let at = match profile.imported {
            None => format!(", at position {}", pass.position),
            Some(_) => String::new(),
        };
        text.push('\n');
        let wall = milliseconds(pass.wall_ns);
        wrapped(&format!("One decode pass on the {on}: {wall}, {which}{at}"), &mut text);
        let tree = graph.to_tree(&TreeOptions { fold: true, ..TreeOptions::default() });
        let _ = writeln!(text, "{}", limits.tree(&tree, ""));
        if let Some(table) = path_table(&graph, PATH_ROWS) {
            let _ = write!(text, "\n{table}");
        }
    }
    tell_of_more(limits, &mut text);
    how_known(profile, &mut text);
    findings::in_report(all, &mut text);
    screened_lines(text)
}

/// The tables of a phase, by what it is judged by on each screen. Where that isn't what was measured, a line says what it is,
/// and rows how it adds up to the wall.
fn tables_of(
    all: &Profile,
    shown: &Profile,
    total: &PhaseTotal,
    rests: &[Rest<'_>],
    limits: &Limits,
    text: &mut String,
) {
    let phase = total.phase;
    let judged = typical::judged(all, phase);
    let other = judged.phase(phase).filter(|of| *of != total && of.wall_ns > 0);
    let Some(other) = other.filter(|_| !is_of_device(all)) else {
        tables(shown, Some(phase), rests, None, limits, text);
        return;
    };
    let basis = typical::basis_in_words(typical::is_of_medians(all, phase), other, total);
    let rests = [("unattributed", other.unattributed_ns, other.passes)];
    wrapped(&format!("Bricks {basis}"), text);
    tables(&judged, Some(phase), &rests, Some(total.wall_ns), limits, text);
}

/// The tests of a benchmark that the profile has no repetition of.
fn other_tests(profile: &Profile, text: &mut String) {
    let tests = profile.run.iter().flat_map(|run| &run.repeated);
    let others = tests.filter(|of| of.profiled == Profiled::No);
    let lines: Vec<(&str, String)> = others
        .filter_map(|of| {
            let rate = of.tokens_per_second()?;
            Some((of.phase.name(), format!("{rate:.1} tokens/s: {}", rate::basis(of))))
        })
        .collect();
    if !lines.is_empty() {
        text.push_str("\nMeasured, and not profiled\n");
        labelled(&lines, text);
    }
}

/// How the tables of a phase add up with the passes that they leave out.
fn left_out(all: &Profile, shown: &PhaseTotal, text: &mut String) {
    let Some(all) = all.phase(shown.phase).filter(|all| all.passes > shown.passes) else { return };
    let _ = writeln!(
        text,
        "\nwith the {} left out: {}, {} = {} + {}",
        typical::passes_text(all.passes - shown.passes),
        typical::passes_text(all.passes),
        milliseconds(all.wall_ns),
        milliseconds(shown.wall_ns),
        milliseconds(all.wall_ns.saturating_sub(shown.wall_ns)),
    );
}

/// NTP may slew the OS clock by 500 ppm; more is the counter's fault.
pub(super) const MOST_DRIFT_PPM: f64 = 600.0;

/// What a user waits for.
fn latency(profile: &Profile, text: &mut String) {
    let latency = &profile.latency;
    let (first, each) = match (latency.of_requests, profile.parts.is_empty()) {
        (true, _) => ("request", "token"),
        (false, true) => ("prompt", "token"),
        // A pass may be a piece of a prompt, and have tokens of several requests.
        (false, false) => ("prefill", "one-token pass"),
    };
    let mut lines = Vec::new();
    if latency.first_token.count > 0 {
        lines.push(("first", durations(&latency.first_token, first)));
    }
    if latency.per_token.count > 0 {
        lines.push(("each", durations(&latency.per_token, each)));
    }
    lines.extend(latency.slow.as_ref().map(|slow| ("slow", slow_tokens(slow))));
    if let Some(Absent { reason }) = &latency.slow_absent {
        lines.push(("slow", format!("unknown: {}", printable_text(reason))));
    }
    if !lines.is_empty() {
        text.push_str("\nTokens\n");
        labelled(&lines, text);
    }
}

fn durations(these: &Durations, what: &str) -> String {
    let ms = |nanos: f64| format!("{:.3} ms", nanos / 1e6);
    let Percentiles { p50_ns, p90_ns, p95_ns, p99_ns } = these.percentiles;
    let mut parts =
        vec![format!("{} of {}", ms(these.mean_ns.unwrap_or(0.0)), count(these.count, what))];
    if let Some(deviation) = these.std_dev_ns {
        parts[0] = format!(
            "mean {} ± {} of {}",
            ms(these.mean_ns.unwrap_or(0.0)),
            ms(deviation),
            count(these.count, what)
        );
    }
    for (name, nanos) in [("p50", p50_ns), ("p90", p90_ns), ("p95", p95_ns), ("p99", p99_ns)] {
        parts.extend(nanos.map(|nanos| format!("{name} {}", ms(nanos as f64))));
    }
    if let (Some(min), Some(max), true) = (these.min_ns, these.max_ns, these.count > 1) {
        parts.push(format!("{} to {}", ms(min as f64), ms(max as f64)));
    }
    parts.join(", ")
}

/// The bricks that account for most of what slowed tokens took longer.
fn slow_tokens(slow: &SlowTokens) -> String {
    let us = |nanos: f64| {
        if nanos.abs() < 1e6 {
            format!("{:+.1} µs", nanos / 1e3)
        } else {
            format!("{:+.3} ms", nanos / 1e6)
        }
    };
    let mut text = format!(
        "the slowest {} take {} each over the faster half ({}): ",
        slow.slow,
        us(slow.extra_ns),
        slow.fast
    );
    let mut parts: Vec<(&str, f64)> =
        slow.bricks.iter().map(|brick| (brick.name.as_str(), brick.extra_ns)).collect();
    parts.push(("unattributed", slow.unattributed_extra_ns));
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most: Vec<String> = parts
        .iter()
        .take(4)
        .filter(|(_, extra)| *extra > 0.0)
        .map(|(name, extra)| format!("{} {}", printable(name), us(*extra)))
        .collect();
    text.push_str(&most.join(", "));
    text
}

/// The tensors that weigh most.
fn weights(groups: &[WeightGroup]) -> String {
    const SHOWN: usize = 4;
    let all: f64 = groups.iter().map(|group| group.bytes as f64).sum();
    let part = |group: &WeightGroup| match all > 0.0 {
        true => format!(", {:.0} %", 100.0 * group.bytes as f64 / all),
        false => String::new(),
    };
    let of = |group: &WeightGroup| {
        let (name, format) = (printable(&group.name), printable(&group.format));
        format!("{name} {:.1} MB ({format}{})", group.bytes as f64 / 1e6, part(group))
    };
    let mut shown: Vec<String> = groups.iter().take(SHOWN).map(of).collect();
    shown.extend((groups.len() > SHOWN).then(|| format!("{} more", groups.len() - SHOWN)));
    shown.join(", ")
}

fn what_ran(profile: &Profile, text: &mut String) {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(model) = &profile.model {
        let name = model.name.as_deref().map_or_else(|| printable_text(&model.path), printable);
        let mut parts = vec![
            name,
            printable(&model.architecture),
            printable(&model.quantization),
            format!("{} layers", model.layers),
            format!("{:.1} M weights", model.parameters as f64 / 1e6),
            format!("{:.1} MB", model.file_bytes as f64 / 1e6),
        ];
        // What is unknown is empty, or 0.
        parts.retain(|part| {
            !part.is_empty() && !part.starts_with("0 ") && !part.starts_with("0.0 ")
        });
        lines.push(("model", parts.join(", ")));
        if model.synthetic {
            let note = "random weights: the timings are real, the text is noise";
            lines.push(("", note.to_owned()));
        }
        if let Some(place) = &model.weights_in {
            let copied =
                model.copied_in_ns.map(|ns| format!("copied there in {:.2} s", ns as f64 / 1e9));
            let interleaved =
                model.interleaved_bytes.zip(model.interleaved_in_ns).map(|(bytes, ns)| {
                    format!("{:.1} MB interleaved in {:.2} s", bytes as f64 / 1e6, ns as f64 / 1e9)
                });
            let costs = copied.into_iter().chain(interleaved).map(|cost| format!(", {cost}"));
            let costs: String = costs.collect();
            lines.push(("", format!("weights in {}{costs}", printable(place))));
        }
        if !model.weights.is_empty() {
            lines.push(("weights", weights(&model.weights)));
        }
    }
    lines.extend(machine_in_words(profile).map(|machine| ("machine", machine)));
    if let Some(ceilings) = &profile.ceilings {
        lines.push(("ceilings", machine::told(ceilings)));
    }
    if let Some(Absent { reason }) = &profile.ceilings_absent {
        lines.push(("ceilings", printable_text(reason)));
    }
    if let Some(run) = &profile.run {
        let threads = match run.threads {
            0 => String::new(),
            n if run.pinned => format!(", {} with a CPU each", count(n.into(), "thread")),
            n => format!(", {}", count(n.into(), "thread")),
        };
        // A sweep of several backends has none.
        let of_backend = format!("{}{threads}", printable(&run.backend));
        let of_backend = of_backend.trim_start_matches(", ");
        let mut parts: Vec<String> = Vec::new();
        parts.extend((!of_backend.is_empty()).then(|| of_backend.to_owned()));
        if (run.prompt_tokens, run.generated_tokens) != (0, 0) {
            let (prompt, generated) = (run.prompt_tokens, run.generated_tokens);
            parts.extend(match counts_by_passes(profile) {
                true => [
                    format!("{} in prefill passes", count(prompt, "token")),
                    format!("{generated} in decode passes"),
                ],
                false => [count(prompt, "prompt token"), format!("{generated} generated")],
            });
        }
        if !parts.is_empty() {
            lines.push(("run", parts.join(", ")));
        }
        if let Some(engine) = &run.engine {
            let setting = |(name, value): (&str, String)| format!("{name} {}", printable(&value));
            lines.push((
                "engine",
                engine.settings().into_iter().map(setting).collect::<Vec<_>>().join(", "),
            ));
        }
        lines.extend(run.beside.iter().map(|of| ("beside", beside(of))));
    }
    if lines.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    labelled(&lines, text);
}

/// Where the numbers come from, and what they cost.
fn how_known(profile: &Profile, text: &mut String) {
    let wall: u64 = profile.phases.iter().map(|phase| phase.wall_ns).fold(0, u64::saturating_add);
    let overhead = &profile.overhead;
    let cost = match (overhead.span_ns, profile.recording_ns()) {
        (Some(span_ns), Some(nanos)) if overhead.spans > 0 => {
            let share = if wall > 0 {
                format!(", {:.2} % of wall", 100.0 * nanos / wall as f64)
            } else {
                String::new()
            };
            let prepared = match profile.prepared_ns() {
                0 => String::new(),
                ns => format!("; and {:.1} µs in which threads made their logs", ns as f64 / 1e3),
            };
            format!(
                "{:.1} µs{share}; {}: {span_ns:.0} ns × {}{prepared}",
                nanos / 1e3,
                printable_text(&overhead.basis),
                overhead.spans
            )
        }
        (None, _) if !overhead.basis.is_empty() => printable_text(&overhead.basis),
        _ => "nothing was recorded".to_owned(),
    };
    let cost = match overhead.estimate_ns() {
        Some(_) if !profile.devices.is_empty() => {
            format!("{cost}; of host spans only, without the devices' marks")
        }
        _ => cost,
    };
    let cost = match &overhead.measured {
        Some(measured) => {
            let [estimate, low, high] =
                [measured.estimate, measured.low, measured.high].map(|part| 100.0 * part);
            format!(
                "{estimate:+.2} % of a decode pass ({low:+.2} to {high:+.2} %), by {} of passes that were recorded and \
                 that were not",
                count(measured.pairs, "pair")
            )
        }
        None => cost,
    };
    text.push('\n');
    let lines = [("overhead", cost), ("clock", clock(profile)), ("others", others(profile))];
    labelled(&lines, text);
    if let Some(Absent { reason }) = &profile.counters_absent {
        labelled(&[("counters", printable_text(reason))], text);
    }
    imported::limits(profile, text);
}

/// The CPU time that other processes used.
fn others(profile: &Profile) -> String {
    if let Some(load) = &profile.other_load {
        let steal = load
            .steal_share()
            .map_or(String::new(), |share| format!(", the hypervisor took {:.1} %", 100.0 * share));
        return format!(
            "used {:.1} % of this machine's CPU time while profiling was on{steal}",
            100.0 * load.others_share()
        );
    }
    match &profile.other_load_absent {
        Some(Absent { reason }) => format!("unknown: {}", printable_text(reason)),
        None => "not measured".to_owned(),
    }
}

fn clock(profile: &Profile) -> String {
    let clock = &profile.clock;
    let mut parts = vec![printable_text(&clock.source)];
    if let Some(hertz) = clock.hertz {
        let error = clock.hertz_error_ppm.map_or(String::new(), |ppm| format!(" ± {ppm:.1} ppm"));
        parts[0] += &format!(" at {:.4} GHz{error}", hertz / 1e9);
    }
    parts.extend(clock.resolution_ns.map(|step| format!("steps of {step} ns")));
    parts.extend(clock.read_ns.map(|read| format!("{read:.1} ns a reading")));
    if let (Some(ppm), Some(over)) = (clock.drift_ppm, clock.drift_over_ns) {
        let over = over as f64 / 1e9;
        parts.push(format!("{ppm:+.1} ppm from the OS clock over {over:.1} s"));
    }
    parts.extend(
        clock.instead.as_ref().map(|why| format!("counter not used: {}", printable_text(why))),
    );
    parts.join(", ")
}

/// The machine in a line: its processor, CPUs, memory and system.
#[must_use]
pub fn machine_in_words(profile: &Profile) -> Option<String> {
    let machine = profile.machine.as_ref()?;
    let mut parts = vec![printable(machine.cpu.as_deref().unwrap_or("unnamed CPU"))];
    parts.extend(machine.logical_cpus.map(|n| format!("{n} CPUs")));
    parts.extend(machine.memory_bytes.map(|n| format!("{:.1} GB", n as f64 / 1e9)));
    parts.push(format!("{} {}", printable(&machine.os), printable(&machine.arch)));
    Some(parts.join(", "))
}
