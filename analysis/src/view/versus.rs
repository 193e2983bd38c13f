//! Two commands in turns: which is slower, what of a pass moved, and what differs between them.

use std::fmt::Write;

use brickscope_profile::text::{
    count, is_unprintable, printable, printable_text, screened, screened_lines,
};
use brickscope_profile::{Profile, save, secrets};
use serde::{Deserialize, Serialize};

use super::comparison::{comparison_headline, in_time, not_compared, percent, signed, title};
use super::doubts::doubts;
use super::moved::{bytes_in_words, kernels_in_words, layers_in_words, share_of_it};
use crate::compare::{
    Change, Comparison, Counted, Difference, LEAST_PROCESSES, LEVEL, LayerSpread, Moved,
    MovedLayers, MovedPart, Outcome, Sample, TestChange, Verdict, Versus,
};
use crate::text::{WIDTH, cut, labelled, markdown, padded, wrap};
use crate::words::{change_of, digits, shell_word, time};

/// How two commands ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Circumstances {
    /// What was compared, as a shell would have it.
    pub commands: [String; 2],
    /// The command that compares them again, for a table that strangers read.
    #[serde(skip)]
    pub again: Option<String>,
    /// The engine of either side, with its version, if it is known.
    pub engines: [Option<String>; 2],
    /// The machine.
    pub machine: Option<String>,
    /// The part of the CPU time that other programs used, 0 to 1.
    pub others_share: Option<f64>,
    /// The pairs of runs that were measured.
    pub pairs: usize,
    /// How long all of it took.
    pub seconds: f64,
    /// What else a reader has to know, a sentence each.
    pub notes: Vec<String>,
}

/// Where whoever reads a table finds the program that made it.
const HOME: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A part of a pass is shown from this share of all that moved on.
const LEAST: f64 = 0.02;
/// The most parts.
const MOST: usize = 8;

/// Two commands compared, as text of at most 80 columns.
#[must_use]
pub fn versus(versus: &Versus, ran: &Circumstances) -> String {
    let mut out = String::new();
    for line in wrap(&comparison_headline(&versus.comparison), WIDTH) {
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(out, "\n{:18} {:>11} {:>11}  B takes", "", "A", "B");
    for (test, moved) in versus.tests() {
        let [a, b] = moved.typical_ns.map(|ns| pace(test, ns));
        let name = cut(&title(test), 18);
        let line = format!("{} {a:>11} {b:>11}  {}", padded(&name, 18), takes(&test.whole, moved));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for (test, moved) in versus.tests().filter(|(test, moved)| is_told(test, moved)) {
        table(&mut out, &title_of_pass(test), test, moved, &rows(test, moved));
        // Where nothing is slower or faster, it is chance which layers moved.
        if let Some(layers) = moved.layers.as_ref().filter(|_| is_moved(test)) {
            let title = format!("by layer, {}", self::title(test));
            table(&mut out, &title, test, moved, &layer_rows(test, moved, layers));
        }
    }
    let _ = writeln!(out);
    for (label, text) in lines(versus, ran, false) {
        let _ = writeln!(out, "{}", labelled(label, &text));
    }
    screened_lines(out)
}

/// What a table of parts is of.
fn title_of_pass(test: &TestChange) -> String {
    match test.sample {
        Sample::Token => format!("a token, {}", title(test)),
        _ => format!("a {} pass", title(test)),
    }
}

/// What the columns of both sides are headed by: `A: q4_0`, or what else of the two differs that has a name for people.
fn heads(comparison: &Comparison) -> [String; 2] {
    /// The most telling first: of two models the format of their weights, of two builds the version.
    const TELLING: [&str; 5] =
        ["quantisation", "model", "version of the engine", "commit of the engine", "build"];
    /// Follows from another difference, or says nothing about the sides.
    const SILENT: [&str; 5] = [
        "bytes of the model",
        "library of the engine",
        "boot",
        "tokens of the prompt",
        "tokens generated",
    ];
    /// What llama.cpp's programs make of the prompt, unless somebody asks for more.
    const OF_THE_PROMPT: [&str; 2] = ["-b", "-ub"];
    let all = || comparison.models.iter().chain(&comparison.forced).chain(&comparison.differences);
    // What one side has several of names none.
    let is_one = |of: &&Difference| of.a.len() == 1 && of.b.len() == 1 && of.a != of.b;
    let telling = TELLING.iter().find_map(|name| all().filter(is_one).find(|of| of.name == *name));
    let is_of_prompt = all().any(|of| of.name == "tokens of the prompt");
    let is_silent =
        |name: &str| SILENT.contains(&name) || is_of_prompt && OF_THE_PROMPT.contains(&name);
    let other = || all().filter(is_one).find(|of| !is_silent(&of.name));
    let named = |of: &Difference, value: &[String]| match telling {
        Some(_) => value.concat(),
        None => format!("{} {}", of.name, value.concat()),
    };
    let Some(of) = telling.or_else(other) else { return ["A", "B"].map(str::to_owned) };
    let values = [("A", &of.a), ("B", &of.b)];
    values.map(|(letter, value)| format!("{letter}: {}", cut(&printable(&named(of, value)), 30)))
}

/// A table of parts after an empty line.
fn table(out: &mut String, title: &str, test: &TestChange, moved: &Moved, rows: &[TableRow]) {
    let _ = writeln!(
        out,
        "\n{}{:>10}{:>10}{:>11}{:>9}{}",
        padded(&cut(title, 25), 26),
        "A",
        "B",
        "B − A",
        if moved.interval_ns.is_some() { "±" } else { "" },
        if is_moved(test) { "  of B − A" } else { "" }
    );
    for row in rows {
        let _ = writeln!(out, "{}", row.text(is_moved(test)));
    }
}

/// The same as Markdown, for an issue.
#[must_use]
pub fn versus_markdown(versus: &Versus, ran: &Circumstances) -> String {
    // Whoever didn't run it can't know which of both is meant.
    let headline = format!("B against A: {}", comparison_headline(&versus.comparison));
    let mut out = format!("**{}**\n\n", markdown(&headline));
    let [head_a, head_b] = heads(&versus.comparison).map(|head| markdown(&head));
    let _ = write!(out, "| | {head_a} | {head_b} | B takes |\n|---|--:|--:|---|\n");
    for (test, moved) in versus.tests() {
        let [a, b] = moved.typical_ns.map(|ns| pace(test, ns));
        let takes = in_time(&takes(&test.whole, moved));
        let name = markdown(&title(test));
        let _ = writeln!(out, "| {name} | {a} | {b} | {takes} |");
    }
    // Tables of their own: rates and times in one column would be added up by whoever reads down.
    for (test, moved) in versus.tests().filter(|(test, moved)| is_told(test, moved)) {
        let (has_half, is_moved) = (moved.interval_ns.is_some(), is_moved(test));
        let more = |is_there: bool, text: &'static str| if is_there { text } else { "" };
        let _ = writeln!(
            out,
            "\n| {} | {head_a} | {head_b} | B − A |{}{}\n|---|--:|--:|--:|{}{}",
            markdown(&title_of_pass(test)),
            more(has_half, " ± |"),
            more(is_moved, " of B − A |"),
            more(has_half, "--:|"),
            more(is_moved, "--:|")
        );
        for row in rows(test, moved) {
            let _ = writeln!(out, "{}", row.markdown(has_half, is_moved));
        }
    }
    let _ = writeln!(out);
    for (label, text) in lines(versus, ran, true) {
        let label = label.trim();
        let is_command = ["A", "B", "again"].contains(&label);
        // Nothing in code is markup, but the sign that ends it.
        let text = match is_command {
            true => format!("`{}`", printable_text(&text).replace('`', "'")),
            false => markdown(&text),
        };
        let _ = match label {
            "" => writeln!(out, "\n{text}"),
            "again" => {
                writeln!(
                    out,
                    "- to repeat it: {text} (A, then B), of [brickscope {VERSION}]({HOME})"
                )
            }
            label => writeln!(out, "- {label}: {text}"),
        };
    }
    screened_lines(out)
}

/// The same as JSON: `outcome` and `headline` first.
#[must_use]
pub fn versus_json(versus: &Versus, ran: &Circumstances) -> String {
    #[derive(Serialize)]
    struct All<'v> {
        outcome: Outcome,
        headline: String,
        #[serde(flatten)]
        versus: &'v Versus,
        ran: &'v Circumstances,
    }
    let headline = comparison_headline(&versus.comparison);
    let outcome = versus.outcome();
    screened(save::to_json(&All { outcome, headline, versus, ran }))
}

/// Tokens a second, or the time of a pass whose tokens aren't known.
fn pace(test: &TestChange, ns: f64) -> String {
    match test.tokens {
        // No pair has the test on both sides.
        _ if ns <= 0.0 => "-".to_owned(),
        0 => time(ns),
        tokens => format!("{} tok/s", digits(tokens as f64 * 1e9 / ns.max(1.0))),
    }
}

/// `+12.3 % [+11.1, +13.4]  slower`.
fn takes(whole: &Change, moved: &Moved) -> String {
    let verdict = whole.verdict.name();
    match (whole.change, whole.low, whole.high) {
        (Some(change), Some(low), Some(high)) => {
            format!("{} % [{}, {}], {verdict}", signed(change), signed(low), signed(high))
        }
        // Of the two figures beside it.
        _ => match moved.typical_ns {
            [a, b] if a > 0.0 => format!("{} %, {verdict}", signed(b / a - 1.0)),
            _ => verdict.to_owned(),
        },
    }
}

fn is_moved(test: &TestChange) -> bool {
    matches!(test.whole.verdict, Verdict::Slower | Verdict::Faster)
}

/// Whether the parts of a test are worth a table: not of one that is the same.
fn is_told(test: &TestChange, moved: &Moved) -> bool {
    !moved.parts.is_empty() && test.whole.verdict != Verdict::Unchanged
}

/// A row of the table of parts.
struct TableRow {
    name: String,
    a_ns: Option<f64>,
    b_ns: Option<f64>,
    moved_ns: f64,
    interval_ns: Option<[f64; 2]>,
    of_it: f64,
}

impl TableRow {
    fn text(&self, is_moved: bool) -> String {
        let ns = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), time);
        let of_it = if is_moved { format!("{:>10}", self.of_it()) } else { String::new() };
        let half = self.half();
        let [a, b] = [self.a_ns, self.b_ns].map(ns);
        let moved = change_of(self.moved_ns);
        let name = padded(&cut(&printable(&self.name), 25), 26);
        let line = format!("{name}{a:>10}{b:>10}{moved:>11}{half:>9}{of_it}");
        line.trim_end().to_owned()
    }

    fn of_it(&self) -> String {
        share_of_it(self.of_it)
    }

    /// The half of its interval, if it has one.
    fn half(&self) -> String {
        self.interval_ns.map_or_else(String::new, |[low, high]| time((high - low) / 2.0))
    }

    fn markdown(&self, has_half: bool, is_moved: bool) -> String {
        let ns = |ns: Option<f64>| ns.map_or_else(|| "absent".to_owned(), time);
        let (name, moved) = (markdown(&self.name), change_of(self.moved_ns));
        let mut line = format!("| {name} | {} | {} | {moved} |", ns(self.a_ns), ns(self.b_ns));
        let cells = [(has_half, self.half()), (is_moved, self.of_it())];
        for (_, cell) in cells.into_iter().filter(|(is_there, _)| *is_there) {
            let _ = write!(line, " {cell} |");
        }
        line
    }
}

/// The bricks that moved, the others as one, and the whole.
fn rows(test: &TestChange, moved: &Moved) -> Vec<TableRow> {
    let parts: Vec<&MovedPart> = moved.parts.iter().collect();
    let all: f64 = parts.iter().map(|part| part.moved_ns.abs()).sum();
    let mut rows = of_parts(&parts, all, "other", moved);
    rows.push(whole(test, moved));
    rows
}

/// The layers that moved or, where all did alike, all of them; what is in none of them, and the whole.
fn layer_rows(test: &TestChange, moved: &Moved, layers: &MovedLayers) -> Vec<TableRow> {
    let mut parts: Vec<&MovedPart> = layers.layers.iter().map(|of| &of.whole).collect();
    parts.sort_by(|x, y| y.moved_ns.abs().total_cmp(&x.moved_ns.abs()));
    let outside = &layers.outside.whole;
    let all: f64 = parts.iter().chain([&outside]).map(|part| part.moved_ns.abs()).sum();
    let mut rows = match layers.spread {
        Some(LayerSpread::Alike) => {
            let name = format!("all {} layers alike", parts.len());
            vec![TableRow { name, ..row(&layers.in_layers, moved) }]
        }
        _ => of_parts(&parts, all, "other layer", moved),
    };
    rows.push(TableRow { name: "in no layer or brick".to_owned(), ..row(outside, moved) });
    rows.push(whole(test, moved));
    rows
}

/// The parts that are a share of `all` that moved, and the others as one. Those that moved most come first.
fn of_parts(parts: &[&MovedPart], all: f64, other: &str, moved: &Moved) -> Vec<TableRow> {
    let is_large = |part: &&&MovedPart| part.moved_ns.abs() >= LEAST * all;
    let n = parts.iter().take_while(is_large).count().min(MOST);
    let (large, small) = parts.split_at(n);
    let mut rows: Vec<TableRow> = large.iter().map(|part| row(part, moved)).collect();
    if !small.is_empty() {
        let sum = |of: fn(&MovedPart) -> Option<f64>| {
            Some(small.iter().filter_map(|part| of(part)).sum())
        };
        let moved_ns = small.iter().map(|part| part.moved_ns).sum();
        rows.push(TableRow {
            name: count(small.len() as u64, other),
            a_ns: sum(|part| part.a_ns),
            b_ns: sum(|part| part.b_ns),
            moved_ns,
            interval_ns: None,
            of_it: moved.part_of_it(moved_ns),
        });
    }
    rows
}

fn row(part: &MovedPart, moved: &Moved) -> TableRow {
    TableRow {
        name: part.name.clone(),
        a_ns: part.a_ns,
        b_ns: part.b_ns,
        moved_ns: part.moved_ns,
        interval_ns: part.interval_ns,
        of_it: moved.part_of_it(part.moved_ns),
    }
}

fn whole(test: &TestChange, moved: &Moved) -> TableRow {
    TableRow {
        name: test.sample.whole().to_owned(),
        a_ns: Some(moved.a_ns),
        b_ns: Some(moved.b_ns),
        moved_ns: moved.moved_ns(),
        interval_ns: moved.interval_ns,
        of_it: 1.0,
    }
}

/// What the column ± of the tables is, or why they have none; and which mean is where. `None` without tables.
fn half(versus: &Versus) -> Option<String> {
    let tables = || versus.tests().filter(|(test, moved)| is_told(test, moved));
    tables().next()?;
    let has_interval = tables().any(|(_, moved)| moved.interval_ns.is_some());
    let mut text = match has_interval {
        true => "± is half of the 95 % interval of B − A over the pairs, which is narrower than those in brackets"
            .to_owned(),
        false => format!("B − A has no interval, which takes {LEAST_PROCESSES} pairs"),
    };
    if has_interval && tables().any(|(test, _)| !is_moved(test)) {
        text.push_str(", of a test that is inconclusive for all its bricks at once");
    }
    if tables().any(|(_, moved)| moved.means_differ()) {
        text.push_str(
            ". The tables have plain means, which add up; the lines above them have geometric ones, on which a few long runs \
             weigh less",
        );
    }
    Some(text)
}

/// What was compared, and how.
///
/// `is_short` says that no table has the layers.
fn lines(versus: &Versus, ran: &Circumstances, is_short: bool) -> Vec<(&'static str, String)> {
    let comparison = &versus.comparison;
    // The command that compares both again has both in it.
    let mut lines: Vec<(&str, String)> = match ran.again.as_ref().filter(|_| is_short) {
        Some(again) => vec![("again    ", again.clone())],
        None => ["A        ", "B        "].into_iter().zip(ran.commands.iter().cloned()).collect(),
    };
    let [a, b] = &ran.engines;
    if let (Some(a), true) = (a, a == b) {
        lines.push(("engine   ", a.clone()));
    }
    // The engines are in the differences, if they differ.
    let differ: Vec<String> = comparison
        .models
        .iter()
        .chain(&comparison.forced)
        .chain(&comparison.differences)
        .map(Difference::to_string)
        .collect();
    if !differ.is_empty() {
        lines.push(("differ   ", differ.join("; ")));
    }
    lines.extend(not_compared(comparison).into_iter().map(|line| ("tests    ", line)));
    for (test, moved) in versus.tests() {
        // The others are in the table.
        let shown: Vec<String> = match is_told(test, moved) {
            true => rows(test, moved).into_iter().map(|row| row.name).collect(),
            false => Vec::new(),
        };
        for (letter, names) in [("A", &test.only_in_a), ("B", &test.only_in_b)] {
            let names = names.iter().filter(|name| !shown.contains(name));
            let names: Vec<String> = names.map(|name| printable(name)).collect();
            if !names.is_empty() {
                let what = format!("{}: only {letter} has {}", title(test), names.join(", "));
                lines.push(("bricks   ", what));
            }
        }
    }
    for (test, moved) in versus.tests() {
        let title = title(test);
        let bytes = bytes_in_words(test).map(|text| printable_text(&text));
        lines.extend(bytes.map(|text| ("bytes    ", format!("{title}: {text}"))));
        let layers = layers_in_words(moved, is_moved(test), is_short);
        lines.extend(layers.map(|text| ("layers   ", format!("{title}: {text}"))));
        let kernels = kernels_in_words(moved).into_iter();
        lines.extend(kernels.map(|text| ("kernels  ", format!("{title}: {text}"))));
    }
    lines.extend(ran.machine.iter().map(|machine| ("machine  ", machine.clone())));
    let [a, b] = [&comparison.a, &comparison.b];
    let mut how = format!(
        "{} of runs in turns, {} in all",
        count(ran.pairs as u64, "pair"),
        time(ran.seconds * 1e9)
    );
    if let Some(share) = ran.others_share {
        let _ = write!(how, "; other programs used {} of the CPUs", percent(share));
    }
    let disturbed = a.disturbed + b.disturbed;
    if disturbed > 0 {
        let of = count(a.samples + b.samples, "pass");
        let _ = write!(how, "; {disturbed} of {of} were disturbed");
    }
    lines.push(("measured ", how));
    for (letter, side) in [("A", a), ("B", b)] {
        let doubts = doubts(side).into_iter();
        lines.extend(doubts.map(|doubt| ("note     ", format!("{letter}, {doubt}"))));
    }
    lines.extend(ran.notes.iter().map(|note| ("note     ", note.clone())));
    let level = 100.0 * LEVEL;
    let passes = match versus.counted {
        Counted::MiddleHalf => "each run's passes without their fastest and their slowest quarter",
        Counted::FastestQuarter => {
            "the fastest quarter of each run's passes, since most were disturbed"
        }
    };
    let half = half(versus).map_or_else(String::new, |half| format!("; {half}"));
    lines.push((
        "         ",
        format!(
            "Changes in % are of time, not of tok/s. Times are of {passes}{half}. Of comparisons \
             of two equal commands, at most {level} % call anything slower or faster: so wide are the intervals in brackets."
        ),
    ));
    lines
}

/// The command that runs what two runs are of in turns: `brickscope versus 'A' 'B'`. `None` unless both are of commands of
/// llama.cpp that can be run again.
#[must_use]
pub fn versus_command(runs: [&Profile; 2]) -> Option<String> {
    let [a, b] = runs.map(command_line);
    let (a, b) = (a?, b?);
    (a != b).then(|| versus_of([&a, &b]))
}

/// The same of two commands, as a shell takes it.
#[must_use]
pub fn versus_of(commands: [&str; 2]) -> String {
    let [a, b] = commands.map(shell_word);
    format!("brickscope versus {a} {b}")
}

/// What `brickscope run` ran, as a shell takes it.
fn command_line(profile: &Profile) -> Option<String> {
    let run = profile.run.as_ref().filter(|_| profile.imported.is_none())?;
    let is_command = run.backend.starts_with("llama.cpp")
        && !run.backend.starts_with("llama.cpp in this program");
    // A server doesn't end by itself.
    let ends = run.command.first().is_some_and(|program| !program.contains("server"));
    let is_whole = !secrets::are_left_out(&run.command)
        && !run.command.iter().any(|word| word.contains(is_unprintable));
    (is_command && ends && is_whole)
        .then(|| run.command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use brickscope_profile::Run;

    use super::*;

    #[test]
    fn two_runs_of_llama_cpp_have_the_command_that_compares_them() {
        let run = |command: &str, backend: &str| {
            let mut profile = Profile::empty(Default::default());
            profile.run = Some(Run {
                command: command.split(' ').map(str::to_owned).collect(),
                backend: backend.to_owned(),
                ..Run::default()
            });
            profile
        };
        let a = run("llama-cli -m q8.gguf -p it's", "llama.cpp, CPU");
        let b = run("llama-cli -m q4.gguf -p x", "llama.cpp, CPU");
        let command = versus_command([&a, &b]).expect("a command");
        let expected = [
            shell_word("llama-cli -m q8.gguf -p 'it'\\''s'"),
            shell_word("llama-cli -m q4.gguf -p x"),
        ];
        assert_eq!(command, format!("brickscope versus {}", expected.join(" ")));
        for other in [
            run("llama-server -m q4.gguf", "llama.cpp, CPU"),
            run("brickscope profile", "avx2"),
            run("mine", "llama.cpp in this program"),
            Profile::empty(Default::default()),
            a.clone(),
        ] {
            assert_eq!(versus_command([&a, &other]), None, "{:?}", other.run);
        }
    }
}
