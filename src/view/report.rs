//! The report: what ran, where its time went, and how that is known.

use std::fmt::Write;

use crate::brick::{BrickCategory, Phase, Source};
use crate::profile::Profile;
use crate::view::{headline, micros, percent, printable};

/// The whole report of a profile, at most 80 columns wide where names allow.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, MockClock, Phase, view};
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
///     "LmHead                     90.0       90.0        1   90.0%\n\
///      unattributed               10.0       10.0        1   10.0%\n"
/// ));
/// ```
#[must_use]
pub fn report(profile: &Profile) -> String {
    let mut text = String::new();
    for line in profile.dropped.lines() {
        let _ = writeln!(text, "note: {line}");
    }
    if !profile.phases.is_empty() {
        for line in wrap(&headline(profile), 78) {
            let _ = writeln!(text, "{line}");
        }
    }
    what_ran(profile, &mut text);
    for phase in &profile.phases {
        let each = if phase.phase == Phase::Decode { "token by token" } else { "in batches" };
        let rate = phase
            .tokens_per_second()
            .map_or("n/a".to_owned(), |rate| format!("{rate:.1} tokens/s"));
        let _ = write!(
            text,
            "\n{}: {} tokens {each}, {}, {rate}\n",
            heading(phase.phase),
            phase.tokens,
            milliseconds(phase.wall_ns)
        );
        tables(profile, Some(phase.phase), &mut text);
    }
    if profile.totals.iter().any(|total| total.phase.is_none() && total.category.is_some()) {
        if !profile.phases.is_empty() {
            text.push_str("\nOutside of passes\n");
        }
        tables(profile, None, &mut text);
    }
    if profile.totals.is_empty() {
        text.push_str("Nothing was recorded.\n");
    }
    if let Some(pass) = profile.typical_pass(Phase::Decode)
        && let Some(graph) = profile.execution_graph(pass.serial)
    {
        let n_passes = profile.phase(Phase::Decode).map_or(0, |total| total.passes);
        let _ = write!(
            text,
            "\nOne decode pass: {}, the median of {n_passes}, at position {}\n{}\n",
            milliseconds(pass.wall_ns),
            pass.position,
            graph.to_folded_tree()
        );
    }
    how_known(profile, &mut text);
    text
}

fn heading(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "Prefill",
        Phase::Decode => "Decode",
    }
}

fn milliseconds(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}

fn what_ran(profile: &Profile, text: &mut String) {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(model) = &profile.model {
        let name = model.name.as_deref().unwrap_or(&model.path);
        lines.push((
            "model",
            format!(
                "{}, {}, {}, {} layers, {:.1} M weights, {:.1} MB",
                printable(name),
                printable(&model.architecture),
                model.quantization,
                model.layers,
                model.parameters as f64 / 1e6,
                model.file_bytes as f64 / 1e6
            ),
        ));
        if model.synthetic {
            let note = "random weights: the timings are real, the text is noise";
            lines.push(("", note.to_owned()));
        }
    }
    if let Some(machine) = &profile.machine {
        let mut parts = vec![machine.cpu.clone().unwrap_or_else(|| "unnamed CPU".to_owned())];
        parts.extend(machine.logical_cpus.map(|n| format!("{n} CPUs")));
        parts.extend(machine.memory_bytes.map(|n| format!("{:.1} GB", n as f64 / 1e9)));
        parts.push(format!("{} {}", machine.os, machine.arch));
        lines.push(("machine", parts.join(", ")));
    }
    if let Some(ceilings) = &profile.ceilings {
        lines.push((
            "ceilings",
            format!(
                "reads {:.1} GB/s, computes {:.1} GFLOP/s ({})",
                ceilings.read_bytes_per_second / 1e9,
                ceilings.flops_per_second / 1e9,
                ceilings.basis
            ),
        ));
    }
    if let Some(run) = &profile.run {
        lines.push((
            "run",
            format!(
                "{}, {} thread{}, {} prompt tokens, {} generated",
                run.backend,
                run.threads,
                if run.threads == 1 { "" } else { "s" },
                run.prompt_tokens,
                run.generated_tokens
            ),
        ));
    }
    if lines.is_empty() {
        return;
    }
    text.push('\n');
    for (name, value) in lines {
        for (i, line) in wrap(&value, 68).into_iter().enumerate() {
            let _ = writeln!(text, "{:9} {line}", if i == 0 { name } else { "" });
        }
    }
}

/// The tables of bricks and categories of one phase.
fn tables(profile: &Profile, phase: Option<Phase>, text: &mut String) {
    let total = phase.and_then(|phase| profile.phase(phase));
    let bricks = profile.bricks(phase);
    let explained: u64 = bricks.iter().map(|brick| brick.stats.exclusive_ns).sum();
    // Without a pass there is no wall; shares are of what the bricks explain.
    let whole = total.map_or(explained, |total| total.wall_ns) as f64;
    let row = |name: &str, avg: &str, total: &str, count: &str, share: &str| {
        format!("{name:20} {avg:>10} {total:>10} {count:>8} {share:>7}\n")
    };
    text.push_str(&row("Brick", "Avg (µs)", "Total (µs)", "Count", "Share"));
    let _ = writeln!(text, "{}", "-".repeat(59));
    for brick in &bricks {
        let stats = &brick.stats;
        let mut name = printable(&stats.name);
        if brick.source != Source::Host {
            let _ = write!(name, " ({})", brick.source.name());
        }
        text.push_str(&row(
            &name,
            &format!("{:.1}", stats.exclusive_ns as f64 / stats.count as f64 / 1e3),
            &micros(stats.exclusive_ns),
            &stats.count.to_string(),
            &percent(stats.exclusive_ns as f64, whole),
        ));
    }
    if let Some(total) = total {
        for (name, nanos) in [("unattributed", total.unattributed_ns), ("wall", total.wall_ns)] {
            text.push_str(&row(
                name,
                &format!("{:.1}", nanos as f64 / total.passes as f64 / 1e3),
                &micros(nanos),
                &total.passes.to_string(),
                &percent(nanos as f64, whole),
            ));
        }
    }
    text.push('\n');
    let row = |name: &str, avg: &str, share: &str, count: &str| {
        format!("{name:12} {avg:>10} {share:>8} {count:>10}\n")
    };
    text.push_str(&row("Category", "Avg (µs)", "Pct", "Samples"));
    let _ = writeln!(text, "{}", "-".repeat(44));
    for (category, stats) in BrickCategory::ALL.into_iter().zip(profile.categories(phase)) {
        if stats.count > 0 {
            text.push_str(&row(
                category.name(),
                &format!("{:.1}", stats.avg_us()),
                &percent(stats.total_ns as f64, whole),
                &stats.count.to_string(),
            ));
        }
    }
}

/// Where the numbers come from, and what they cost.
fn how_known(profile: &Profile, text: &mut String) {
    let wall: u64 = profile.phases.iter().map(|phase| phase.wall_ns).sum();
    let overhead = &profile.overhead;
    let cost = match (overhead.span_ns, overhead.estimate_ns()) {
        (Some(span_ns), Some(nanos)) if overhead.spans > 0 => {
            let share = if wall > 0 {
                format!(", {:.2} % of wall", 100.0 * nanos / wall as f64)
            } else {
                String::new()
            };
            format!(
                "{:.1} µs{share}; {}: {span_ns:.0} ns × {}",
                nanos / 1e3,
                overhead.basis,
                overhead.spans
            )
        }
        (None, _) if !overhead.basis.is_empty() => overhead.basis.clone(),
        _ => "nothing was recorded".to_owned(),
    };
    let clock = &profile.clock;
    let clock = match (clock.read_ns, clock.resolution_ns) {
        (Some(read), Some(resolution)) => {
            format!("{}, steps of {resolution} ns, {read:.0} ns a reading", clock.source)
        }
        _ => clock.source.clone(),
    };
    text.push('\n');
    for (name, value) in
        [("overhead", cost), ("clock", clock), ("counters", profile.counters.reason.clone())]
    {
        for (i, line) in wrap(&value, 68).into_iter().enumerate() {
            let _ = writeln!(text, "{:9} {line}", if i == 0 { name } else { "" });
        }
    }
}

/// `text` in lines of at most `width` characters, broken between words where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
