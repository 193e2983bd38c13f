//! The first screen: how fast the run was, what limits it, where its time goes, and what to do next.

mod apart;
mod bricks;
mod limit;
mod lines;
mod next;
mod notes;
mod rate_line;
mod table;

use brickscope_profile::text::{count, printable, printable_text};
use brickscope_profile::{Phase, Profile};

use self::bricks::Main;
pub use self::limit::{disturbed_by, disturber, phase_limit, waits_most};
pub use self::lines::{Piece, Summary, Tone};
use self::next::next;
pub use self::next::next_step;
use self::notes::{MOST_NOTES, notes};
use self::rate_line::{rate_line, told_rate_line};
use self::table::table;
use crate::findings::Findings;
use crate::requests::counts_by_passes;
use crate::text::{cut, wrap};
use crate::view::{batches, between, headline, imported, layers, ranks, requests};
use crate::words::fraction;

/// The room for a summary, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its width. Less than 66 counts as 66.
    pub columns: usize,
    /// Its height. Less than 12 counts as 12.
    pub rows: usize,
}

impl Default for Size {
    /// A terminal of 80 × 24, with a line for the prompt.
    fn default() -> Self {
        Self { columns: 80, rows: 23 }
    }
}

/// The narrowest row of a brick.
const LEAST_COLUMNS: usize = 66;

/// The most other runs of the process; the report has all.
const MOST_BESIDE: usize = 4;

/// The most lines of each, and of all together.
const MOST_LINES_OF_A_NOTE: usize = 3;
const MOST_LINES_OF_NOTES: usize = 2 * MOST_NOTES;

/// The first screen of a run: how fast each phase was and what limits it, how much of it was disturbed, the bricks
/// that take the most time, and what to do next. `run` is the run's folder, for the commands in the last line.
///
/// It goes by what passes [typically](crate::typical) take, as [`headline`](crate::view::headline()) does.
///
/// ```
/// use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
/// use brickscope_analysis::view::{self, Size};
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let pass = profiler.begin_pass(Phase::Decode);
/// let timer = profiler.start_brick(BrickId::LmHead);
/// hand.advance(950_000);
/// profiler.stop_brick(timer, 32_000);
/// hand.advance(50_000);
/// profiler.end_pass(pass, 1, 0);
/// let text = view::summary(&profiler.profile(), Size::default(), None).to_string();
/// assert!(text.starts_with("Decode   1000 tok/s"));
/// assert!(text.contains("██████████ LmHead  95.0 %     950 µs × 1"), "{text}");
/// assert!(text.contains("unattributed 5.0 %"));
/// ```
#[must_use]
pub fn summary(profile: &Profile, size: Size, run: Option<&str>) -> Summary {
    let (columns, rows) = (size.columns.max(LEAST_COLUMNS), size.rows.max(12));
    let mut head = Summary::default();
    let main = Main::of(profile);
    if main.is_told {
        head.wrapped(&headline(profile), columns, 2, Tone::Plain);
        // The sentence on bricks of a file's host has no rate; those on devices, tests and whole passes have.
        let is_of_bricks = profile.devices.is_empty() && !main.bricks.is_empty();
        if is_of_bricks && profile.imported.iter().all(|of| of.tests.is_empty()) {
            Phase::SHOWN.into_iter().for_each(|phase| told_rate_line(profile, phase, &mut head));
        }
    } else {
        if let Some(not_finite) = &profile.not_finite {
            head.wrapped(&format!("{not_finite}."), columns, 2, Tone::Bad);
        }
        for phase in Phase::SHOWN {
            rate_line(profile, phase, columns, &mut head);
            if phase == Phase::Decode
                && let Some(of) = profile.run.as_ref().and_then(|run| run.between.as_ref())
            {
                for line in wrap(&between::in_summary(of), columns - 9) {
                    head.line(format!("{:9}{line}", ""));
                }
            }
            if let Some(of_batches) = batches::in_summary(profile, phase) {
                for line in wrap(&of_batches, columns - 9) {
                    head.line(format!("{:9}{line}", ""));
                }
            }
        }
    }
    if let Some(of_ranks) = ranks::in_summary(profile) {
        head.wrapped(&of_ranks, columns, 2, Tone::Plain);
    }
    let notes = notes(profile, &main);
    let lines = (MOST_LINES_OF_NOTES / notes.len().max(1)).min(MOST_LINES_OF_A_NOTE);
    for note in notes {
        // The whole is in the report. What is cut ends before a word, never within a number or its unit.
        let room = lines * (columns - 6);
        head.wrapped(&cut_at_a_word(&note.text, room), columns, 2, note.tone);
    }

    let mut foot = Summary::default();
    foot.line(fitting(ends(profile, &main), columns));
    foot.line("");
    let mut advice = Summary::default();
    let mut next = next(profile, &main, &Findings::of(profile));
    if let Some(run) = run {
        let show = format!("brickscope show {} ", printable_text(run));
        next = next.replace("brickscope show RUN ", &show);
    }
    advice.wrapped(&format!("Next: {next}"), columns, 6, Tone::Plain);
    foot.lines.append(&mut advice.lines);
    let run = run.map_or_else(|| "RUN".to_owned(), printable_text);
    let mut commands =
        vec![format!("brickscope show {run} --full"), format!("brickscope report {run}")];
    if let Some(requests) = requests::in_summary(profile) {
        for line in wrap(&format!("Requests {requests}"), columns) {
            foot.line(line);
        }
        commands.insert(0, format!("brickscope requests {run}"));
    }
    let beside = profile.run.iter().flat_map(|run| &run.beside);
    for of in beside.clone().take(MOST_BESIDE) {
        foot.line(cut(&format!("Beside: {}", between::beside(of)), columns));
    }
    if let Some(more) = beside.count().checked_sub(MOST_BESIDE).filter(|&more| more > 0) {
        foot.line(format!("Beside: {more} more, in {run}/context-{} and on", MOST_BESIDE + 2));
    }
    // To be copied, so no command is broken.
    let line = format!("More: {}", commands.join(" · "));
    if line.chars().count() <= columns {
        foot.line(line);
    } else {
        for (nth, command) in commands.iter().enumerate() {
            foot.line(format!("{}{command}", if nth == 0 { "More: " } else { "      " }));
        }
    }
    let ran = what_ran(profile);
    if !ran.is_empty() {
        foot.line(fitting(ran, columns));
    }

    let mut layers = Summary::default();
    if let Some(of) = &main.layers {
        for (nth, line) in wrap(&layers::in_summary(of), columns - 11).iter().enumerate() {
            layers.line(format!("{:10} {line}", if nth == 0 { "layers" } else { "" }));
        }
    }
    // A blank line before the bricks and a row that sums up the rest are kept free.
    let taken = head.lines.len() + layers.lines.len() + foot.lines.len();
    let room = rows.saturating_sub(taken + 2).max(3);
    for line in imported::in_summary(profile, columns, room) {
        head.line(line);
    }
    if !main.bricks.is_empty() {
        head.line("");
        head.lines.append(&mut layers.lines);
        table(&main, columns, room, &mut head);
    }
    head.lines.append(&mut foot.lines);
    head
}

/// `text` in at most `most` columns, without a part of a word at its end, or of a figure and its unit.
fn cut_at_a_word(text: &str, most: usize) -> String {
    let short = cut(text, most);
    if short == text {
        return short;
    }
    let kept = short.rsplit_once(' ').map_or(&*short, |(before, _)| before);
    // A figure whose unit was cut.
    let kept = match kept.rsplit_once(' ') {
        Some((before, last)) if last.ends_with(|c: char| c.is_ascii_digit()) => before,
        _ => kept,
    };
    format!("{kept} …")
}

/// `parts` in a line, without the last ones if it would be too long.
fn fitting(parts: Vec<String>, columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let more = if line.is_empty() { part } else { format!(" · {part}") };
        if !line.is_empty() && line.chars().count() + more.chars().count() > columns {
            break;
        }
        line += &more;
    }
    cut(&line, columns)
}

/// `unattributed 0.1 % · profiling cost 0.2 %`
fn ends(profile: &Profile, main: &Main) -> Vec<String> {
    let mut parts = Vec::new();
    let is_of_tests = profile.imported.is_some() && main.bricks.is_empty();
    if main.unattributed_ns.is_some() && !is_of_tests {
        let of = if main.is_of_busy_time { " of the span" } else { "" };
        parts.push(format!("{} {}{of}", main.rest, fraction(main.unattributed())));
        if let Some(ns) = main.at_once_ns.filter(|&ns| ns > 0.0) {
            parts.push(format!("several streams at once {}", fraction(main.share(ns))));
        }
    }
    let wall: u64 = profile.phases.iter().map(|phase| phase.wall_ns).fold(0, u64::saturating_add);
    let cost = profile.recording_ns().filter(|_| profile.overhead.spans > 0 && wall > 0);
    match (&profile.overhead.measured, cost) {
        (Some(measured), _) => {
            let part = 100.0 * measured.estimate;
            parts.push(format!("profiling cost {part:+.1} % (measured)"));
        }
        (None, Some(ns)) => {
            parts.push(format!("profiling cost {} (estimate)", fraction(ns / wall as f64)))
        }
        (None, None) => parts.push("profiling cost unknown".to_owned()),
    }
    if !profile.tiles.is_empty() {
        parts.push("tiles: `--full`".to_owned());
    }
    if main.bricks.iter().any(|brick| brick.name.ends_with('†')) {
        parts.push("† host order".to_owned());
    }
    if main.bricks.iter().any(|brick| brick.roof.is_some()) {
        let how = if main.is_stated_roof { "stated" } else { "measured" };
        parts.push(format!("roof: {how} limit"));
    }
    if let Some(load) = profile.other_load.as_ref().filter(|load| load.others_share() >= 0.01) {
        parts.push(format!("other programs {} of the CPUs", fraction(load.others_share())));
    }
    parts
}

/// `brickscope-synth-110m, q8_0`, `avx512, 2 threads`, `AMD EPYC, 2 CPUs`
fn what_ran(profile: &Profile) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(model) = &profile.model {
        let name = model.name.as_deref().map_or_else(|| printable_text(&model.path), printable);
        // A table of llama-bench has no path.
        let name = if name.is_empty() { printable(&model.architecture) } else { name };
        let random = if model.synthetic { ", random weights" } else { "" };
        let quantization = match model.quantization.as_str() {
            "" => String::new(),
            of => format!(", {}", printable(of)),
        };
        parts.push(format!("{name}{quantization}{random}"));
    }
    if let Some(run) = &profile.run {
        let threads = match run.threads {
            0 => String::new(),
            n => format!(", {}", count(n.into(), "thread")),
        };
        let tokens = match (run.prompt_tokens, run.generated_tokens) {
            (0, 0) => String::new(),
            (prompt, generated) if counts_by_passes(profile) => {
                format!(", {} in prefill passes + {generated}", count(prompt, "token"))
            }
            (prompt, generated) => format!(", {prompt} + {generated} tokens"),
        };
        // A sweep of several backends has none.
        let of_run = format!("{}{threads}{tokens}", printable(&run.backend));
        let of_run = of_run.trim_start_matches(", ");
        parts.extend((!of_run.is_empty()).then(|| of_run.to_owned()));
    }
    if let Some(machine) = &profile.machine {
        let cpus = machine.logical_cpus;
        let cpus = cpus.map_or(String::new(), |n| format!(", {}", count(n.into(), "CPU")));
        let cpu = machine.cpu.as_deref().unwrap_or("unnamed CPU");
        parts.push(format!("{}{cpus}", printable(cpu)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_before_a_word_and_never_within_a_figure() {
        let text = "other programs took the CPU (1), 2 stalls, the longest of 4.33 ms in layer 7";
        assert_eq!(cut_at_a_word(text, 200), text);
        let expected = "other programs took the CPU (1), 2 stalls, the longest of …";
        for most in [expected.chars().count() + 4, expected.chars().count() + 5] {
            assert_eq!(cut_at_a_word(text, most), expected, "{most}");
        }
    }
}
