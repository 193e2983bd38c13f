//! Captions: the texts and figures that all forms of a summary share.

use brickscope::{Machine, Model, Phase, Run};
use brickscope_analysis::stacks::{Class, Unit};

use super::summary::{Agreement, Compared, Frames, Hidden, Latency, Share, Source, Summary};
use crate::figures::{fine_percent_of, points};
use crate::text::{count, cut_front, printable, printable_text};

/// A file that was written along with the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its path, relative to the reader.
    pub(crate) path: String,
    /// Its description, such as `the flamegraph`.
    pub(crate) what: String,
}

/// The most rows of a table.
pub(super) const MOST_ROWS: usize = 10;

/// The most bricks that are named of a phase.
pub(super) const MOST_OF_A_PHASE: usize = 5;

/// The most warnings in a flamegraph, which needs its room for frames.
const MOST_WARNINGS: usize = 3;

/// Shown for unknown facts. Stacks of other programs come without them.
const UNKNOWN: &str = "not recorded";

/// The text of a flamegraph besides its frames, and its width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Look {
    pub(crate) title: String,
    /// The lines below the title: model, workload, machine, source, warnings. Long lines are wrapped.
    pub(crate) subtitle: Vec<String>,
    /// In pixels; `None` is as wide as the window.
    pub(crate) width: Option<u32>,
}

impl Look {
    /// Title and subtitle of a summary's flamegraph.
    pub(crate) fn of(summary: &Summary) -> Self {
        let total = amount(summary.total, summary.unit);
        let mut subtitle = vec![
            format!("{}; {}", model(summary), workload(summary)),
            format!("{}; {}: {total}", hardware(summary), source(&summary.source)),
        ];
        subtitle.extend(summary.warnings.iter().take(MOST_WARNINGS).cloned());
        if let Some(more) = summary.warnings.len().checked_sub(MOST_WARNINGS + 1) {
            subtitle
                .push(format!("and {}, in flamegraph.md", count(more as u64 + 1, "more warning")));
        }
        Self { title: title(summary), subtitle, width: None }
    }
}

/// A weight with its unit.
pub(crate) fn amount(weight: u64, unit: Unit) -> String {
    let ns = weight as f64;
    match unit {
        Unit::Samples if weight == 1 => "1 sample".to_owned(),
        Unit::Samples => format!("{weight} samples"),
        Unit::Nanoseconds if weight < 1_000 => format!("{weight} ns"),
        Unit::Nanoseconds if weight < 1_000_000 => format!("{:.3} µs", ns / 1e3),
        Unit::Nanoseconds if weight < 10_000_000_000 => format!("{:.3} ms", ns / 1e6),
        Unit::Nanoseconds => format!("{:.3} s", ns / 1e9),
    }
}

/// What a picture doesn't show in full, a sentence each.
pub(super) fn of_hidden(hidden: &Hidden, unit: Unit, total: u64) -> Vec<String> {
    let Hidden { width, left_out, unnamed, shortened } = *hidden;
    let mut lines = Vec::new();
    let mut say = |of: Frames, before: &str, after: &str, advice: &str| {
        if of.frames > 0 {
            let (frames, held) = (count(of.frames, "frame"), amount(of.weight, unit));
            let share = fine_percent_of(of.weight, total);
            lines.push(format!("{before}: {frames}{after}, together {held}, {share}{advice}"));
        }
    };
    let advice = "; zoom in, or see the tooltip";
    say(left_out, "left out", " narrower than 0.01 %", "");
    say(unnamed, &format!("without its name at {width} pixels"), "", advice);
    say(shortened, &format!("with a shortened name at {width} pixels"), "", advice);
    lines
}

pub(super) fn title(summary: &Summary) -> String {
    let of = summary.model.as_ref().map(|model| model.name.as_ref().unwrap_or(&model.path));
    match (of, &summary.command) {
        (Some(model), _) => format!("Flamegraph of {model}"),
        (None, Some(command)) => format!("Flamegraph of {}", command.join(" ")),
        (None, None) => "Flamegraph".to_owned(),
    }
}

pub(super) fn model(summary: &Summary) -> String {
    let Some(Model {
        path, name, architecture, quantization, parameters, layers, synthetic, ..
    }) = &summary.model
    else {
        return format!("model {UNKNOWN}");
    };
    let mut parts = vec![name.as_ref().unwrap_or(path).clone()];
    let kind = [&architecture[..], quantization].join(" ").trim().to_owned();
    parts.extend(Some(kind).filter(|kind| !kind.is_empty()));
    parts.extend((*layers > 0).then(|| format!("{layers} layers")));
    parts
        .extend((*parameters > 0).then(|| format!("{:.1} M parameters", *parameters as f64 / 1e6)));
    parts.extend(synthetic.then(|| "random weights".to_owned()));
    parts.join(", ")
}

pub(super) fn workload(summary: &Summary) -> String {
    let Some(run) = &summary.run else {
        return match &summary.command {
            Some(command) => shell(command),
            None => format!("workload {UNKNOWN}"),
        };
    };
    let Run { backend, threads, seed, .. } = run;
    let mut parts: Vec<String> = tokens_of(run, summary).into_iter().collect();
    parts.extend(seed.map(|seed| format!("seed {seed}")));
    let what = parts.join(", ");
    let mut parts = vec![backend.clone()];
    parts.extend((*threads > 0).then(|| count((*threads).into(), "thread")));
    parts.retain(|part| !part.is_empty());
    let by_what = parts.join(", ");
    let known = [what, by_what].into_iter().filter(|part| !part.is_empty());
    known.collect::<Vec<_>>().join("; ")
}

/// What a pass of each phase took: `decode 21.770 ms a pass, mean of 64, 45.93 tokens/s`.
pub(super) fn latency(summary: &Summary) -> String {
    let of = |of: &Latency| {
        let pass = amount(of.wall_ns / of.passes.max(1), Unit::Nanoseconds);
        let rate = of.tokens_per_second.map(|rate| format!(", {rate:.2} tokens/s"));
        format!("{} {pass} a pass, mean of {}{}", of.phase, of.passes, rate.unwrap_or_default())
    };
    summary.latency.iter().map(of).collect::<Vec<_>>().join("; ")
}

pub(super) fn hardware(summary: &Summary) -> String {
    let Some(Machine { os, arch, cpu, logical_cpus, memory_bytes }) = &summary.machine else {
        return format!("machine {UNKNOWN}");
    };
    let mut parts: Vec<String> = cpu.iter().cloned().collect();
    parts.extend(logical_cpus.map(|n| count(n.into(), "CPU")));
    parts.extend(memory_bytes.map(|n| format!("{:.1} GB", n as f64 / 1e9)));
    parts.push(format!("{os} {arch}"));
    parts.join(", ")
}

pub(super) fn build(summary: &Summary) -> String {
    format!("brickscope {}, {}", summary.brickscope_version, summary.build)
}

pub(super) fn source(source: &Source) -> String {
    let mut text = match source.via.as_str() {
        "spans" => "measured spans".to_owned(),
        "device" => "measured spans of a device".to_owned(),
        "sampler" => "samples of perf events".to_owned(),
        "timer" => "samples by a timer".to_owned(),
        "perf" => "samples recorded by perf".to_owned(),
        "folded" => "folded stacks".to_owned(),
        other => format!("stacks of {other}"),
    };
    if let Some(event) = &source.event {
        text += &format!(", {event}");
    }
    if let Some(frequency) = source.frequency {
        text += &format!(", {frequency} requested per second of CPU time");
    }
    text
}

/// A sentence about the largest brick or function.
pub(super) fn headline(summary: &Summary) -> String {
    let total = amount(summary.total, summary.unit);
    let part = |weight: u64| fine_percent_of(weight, summary.total);
    let mut text = match (bricks(summary).first(), functions(summary).first()) {
        (Some(brick), _) => {
            let phase = brick.phase.map_or(String::new(), |phase| format!(" of {phase}"));
            let name = short(&brick.name);
            format!("{name}{phase} takes most: {} of {total}", part(brick.weight))
        }
        (None, Some(function)) => {
            let of = part(function.self_weight);
            format!("{} itself takes the most: {of} of {total}", short(&function.name))
        }
        (None, None) => format!("{total} in all, without any known brick or function"),
    };
    let is_work = |class: Class| !matches!(class, Class::Other | Class::Waiting);
    let largest = summary.classes.iter().filter(|share| is_work(share.name));
    if let Some(class) = largest.max_by_key(|share| share.self_weight) {
        text += &format!("; {} {} of it", class.name.name(), part(class.self_weight));
    }
    // What waits does no work, whatever else is the largest.
    let waiting = summary.classes.iter().find(|share| share.name == Class::Waiting);
    if let Some(share) = waiting.filter(|share| share.self_weight > summary.total / 100) {
        text += &format!(
            "; threads that spin until others are done take {} of it",
            part(share.self_weight)
        );
    }
    text + "."
}

/// What the picture doesn't show in full, a sentence each.
pub(super) fn hidden(summary: &Summary) -> Vec<String> {
    let hidden = summary.hidden.as_ref();
    hidden.map_or_else(Vec::new, |hidden| of_hidden(hidden, summary.unit, summary.total))
}

/// The rows that a table leaves out: `and 3 more, together 1.2 ms, 0.50 %`. `weights` are those of all rows.
pub(super) fn more(summary: &Summary, weights: impl Iterator<Item = u64>) -> Option<String> {
    let rest: Vec<u64> = weights.skip(MOST_ROWS).collect();
    let weight = rest.iter().copied().fold(0, u64::saturating_add);
    let held =
        format!("{}, {}", amount(weight, summary.unit), fine_percent_of(weight, summary.total));
    (!rest.is_empty()).then(|| format!("and {} more, together {held}", rest.len()))
}

/// The most columns of a name in a sentence or a plain-text table.
const NAME: usize = 64;

/// A printable name, without its beginning if it is long.
pub(super) fn short(name: &str) -> String {
    cut_front(&printable_text(name), NAME)
}

/// The bricks, the largest first.
pub(super) fn bricks(summary: &Summary) -> Vec<&Share<String>> {
    let mut bricks: Vec<_> = summary.bricks.iter().collect();
    bricks.sort_by(|a, b| {
        b.weight.cmp(&a.weight).then_with(|| (a.phase, &a.name).cmp(&(b.phase, &b.name)))
    });
    bricks
}

/// The phases, the one with the most weight first, each with its bricks, the largest first.
pub(super) fn phases(summary: &Summary) -> Vec<(Phase, u64, Vec<&Share<String>>)> {
    let mut phases: Vec<(Phase, u64, Vec<&Share<String>>)> = Vec::new();
    for brick in bricks(summary) {
        let Some(phase) = brick.phase else { continue };
        match phases.iter_mut().find(|(of, ..)| *of == phase) {
            Some((_, weight, bricks)) => {
                *weight = weight.saturating_add(brick.weight);
                bricks.push(brick);
            }
            None => phases.push((phase, brick.weight, vec![brick])),
        }
    }
    phases.sort_by_key(|(_, weight, _)| std::cmp::Reverse(*weight));
    phases
}

/// The functions, by their own weight, the largest first.
pub(super) fn functions(summary: &Summary) -> Vec<&Share<String>> {
    let mut functions: Vec<_> = summary.functions.iter().collect();
    let key = |share: &Share<String>| (share.self_weight, share.weight);
    functions.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    functions
}

/// The classes that occur, in the order of the legend.
pub(super) fn classes(summary: &Summary) -> Vec<&Share<Class>> {
    let of = |class| summary.classes.iter().find(|share| share.name == class);
    Class::ALL.into_iter().filter_map(of).filter(|share| share.self_weight > 0).collect()
}

/// Sampled and measured share of a brick, their difference, the allowed difference, and a verdict.
pub(super) fn compared(compared: &Compared) -> [String; 5] {
    let of = |share: f64| format!("{:.2} %", 100.0 * share);
    [
        of(compared.sampled),
        of(compared.measured),
        points(compared.sampled - compared.measured),
        format!("{:.2}", 100.0 * compared.allowed),
        if is_off(compared) {
            "differs"
        } else if is_too_few(compared) {
            "too few samples"
        } else {
            "agrees"
        }
        .to_owned(),
    ]
}

/// Whether so few samples were taken that nearly any share would agree.
fn is_too_few(compared: &Compared) -> bool {
    // Twenty points: of a share of a half, anything between a third and two thirds.
    compared.allowed > 0.2
}

/// The bricks of which there are too few samples to compare their shares.
pub(super) fn too_few(agreement: &Agreement) -> usize {
    agreement.bricks.iter().filter(|brick| !is_off(brick) && is_too_few(brick)).count()
}

fn is_off(compared: &Compared) -> bool {
    let difference = (compared.sampled - compared.measured).abs();
    // A `NaN` agrees with nothing.
    difference.is_nan() || difference > compared.allowed
}

/// The warning if sampled shares differ from the measured ones.
pub(super) fn warning(agreement: &Agreement) -> Option<String> {
    let of = agreement.bricks.len();
    match agreement.bricks.iter().filter(|brick| is_off(brick)).count() {
        0 => None,
        n => Some(format!(
            "{n} of {of} bricks {} by more than the number of samples explains",
            if n == 1 { "differs" } else { "differ" }
        )),
    }
}

/// A name, for bricks with their phase, without its beginning if it is longer than `width`.
pub(super) fn titled(phase: Option<Phase>, name: &str, width: usize) -> String {
    let phase = phase.map_or(String::new(), |phase| format!("{} ", phase.name()));
    let name = cut_front(&printable_text(name), width - phase.len());
    phase + &name
}

/// The threads, backend and tokens of a run, if there is one.
pub(super) fn workload_of(summary: &Summary) -> Option<String> {
    let run = summary.run.as_ref()?;
    let mut parts = Vec::new();
    parts.extend((run.threads > 0).then(|| format!("{} threads", run.threads)));
    parts.extend(Some(run.backend.clone()).filter(|backend| !backend.is_empty()));
    parts.extend(tokens_of(run, summary));
    Some(parts.join(", "))
}

/// How many tokens a run computed, by what they are counted by. `None` if nobody said.
fn tokens_of(run: &Run, summary: &Summary) -> Option<String> {
    let (prompt, generated) = (run.prompt_tokens, run.generated_tokens);
    ((prompt, generated) != (0, 0)).then(|| match summary.counts_by_passes {
        true => format!("{prompt} tokens in prefill passes, {generated} in decode passes"),
        false => format!("{prompt} tokens of prompt, {generated} generated"),
    })
}

/// A command, quoted so that a shell parses it back.
pub(super) fn shell(command: &[String]) -> String {
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.chars().all(|c| printable(c.encode_utf8(&mut [0; 4])).starts_with(c)) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    // Unprintable characters are written as bytes, which only these quotes allow.
    let mut text = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            c if printable(c.encode_utf8(&mut [0; 4])).starts_with(c) => text.push(c),
            c => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    text += &format!("\\{byte:03o}");
                }
            }
        }
    }
    text + "'"
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::summary::{Frames, Hidden};
    use super::*;

    /// A summary of samples, with every field filled and a name of each dangerous kind.
    pub(in crate::flame) fn summary() -> Summary {
        let share = |name: &str, phase, weight, self_weight| Share {
            name: name.to_owned(),
            phase,
            weight,
            self_weight,
            by_block: Vec::new(),
        };
        let class = |name, self_weight| Share {
            name,
            phase: None,
            weight: self_weight,
            self_weight,
            by_block: Vec::new(),
        };
        let compared = |phase, brick: &str, measured, sampled| Compared {
            phase,
            brick: brick.to_owned(),
            measured,
            sampled,
            allowed: 0.021,
        };
        let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Summary {
            schema_version: 1,
            brickscope_version: "0.1.0".to_owned(),
            generated: "2026-11-21T14:16:02Z".to_owned(),
            source: Source {
                via: "sampler".to_owned(),
                event: Some("cpu-clock".to_owned()),
                frequency: Some(997),
            },
            unit: Unit::Samples,
            total: 10_000,
            warnings: vec![
                "12 samples were lost: the ring was full".to_owned(),
                "3 <functions> of [vdso] have no symbol".to_owned(),
            ],
            model: Some(Model {
                path: "tiny.gguf".to_owned(),
                name: Some("TinyLlama | 1.1B *chat*".to_owned()),
                architecture: "llama".to_owned(),
                quantization: "Q4_K".to_owned(),
                parameters: 1_100_048_384,
                layers: 22,
                ..Model::default()
            }),
            run: Some(Run {
                backend: "avx2".to_owned(),
                threads: 2,
                prompt_tokens: 64,
                generated_tokens: 32,
                ..Run::default()
            }),
            machine: Some(Machine {
                os: "linux".to_owned(),
                arch: "x86_64".to_owned(),
                cpu: Some("AMD EPYC 7B13".to_owned()),
                logical_cpus: Some(2),
                memory_bytes: Some(8_000_000_000),
            }),
            command: None,
            command_line: strings(&["brickscope", "flamegraph", "--prompt", "it's; a `test`\n"]),
            build: "rustc 1.95.0, release, -C target-cpu=native".to_owned(),
            classes: vec![
                class(Class::Quantized, 6_100),
                class(Class::Other, 2_388),
                class(Class::Matmul, 1_512),
            ],
            bricks: vec![
                share("DownProjection", Some(Phase::Decode), 3_300, 12),
                share("GateProjection", Some(Phase::Decode), 2_800, 10),
                share("AttentionScore", Some(Phase::Prefill), 1_512, 5),
                share("unattributed", Some(Phase::Decode), 1, 1),
            ],
            functions: vec![
                share("main", None, 10_000, 0),
                share("brickscope_kernels::gemv::q4_k::avx2::gemv_rows", None, 3_400, 3_300),
                share("operator|<a`b>(int)\n", None, 2_800, 2_800),
                share(&format!("{}end", "very::long::path::".repeat(8)), None, 400, 399),
                share("注意力::機制", None, 300, 300),
            ],
            agreement: Some(Agreement {
                disturbed: false,
                samples: 9_800,
                bricks: vec![
                    compared(Phase::Prefill, "AttentionScore", 0.1511, 0.1512),
                    compared(Phase::Decode, "DownProjection", 0.301, 0.33),
                ],
            }),
            agreement_absent: None,
            hidden: Some(Hidden {
                width: 1200,
                left_out: Frames { frames: 41, weight: 17 },
                unnamed: Frames { frames: 1, weight: 60 },
                shortened: Frames { frames: 2, weight: 400 },
            }),
            latency: vec![Latency {
                phase: Phase::Decode,
                passes: 32,
                wall_ns: 640_000_000,
                tokens_per_second: Some(50.0),
            }],
            insights: strings(&["decode: memory-bound: 67 % of 90 GB/s", "a <layer> is slow"]),
            disturbed: None,
            counts_by_passes: false,
        }
    }

    pub(in crate::flame) fn files() -> Vec<Written> {
        let file =
            |path: &str, what: &str| Written { path: path.to_owned(), what: what.to_owned() };
        vec![file("my flame (1).svg", "the flamegraph"), file("flamegraph.json", "its figures")]
    }

    #[test]
    fn a_flamegraph_says_what_ran_where_and_how_and_the_first_warnings() {
        let mut summary = summary();
        summary.warnings.extend(["third", "fourth", "fifth"].map(str::to_owned));
        insta::assert_debug_snapshot!(Look::of(&summary));
        // Of other programs' stacks nothing is known.
        let unknown =
            Summary { model: None, run: None, machine: None, warnings: Vec::new(), ..summary };
        let look = Look::of(&unknown);
        assert_eq!(look.title, "Flamegraph");
        assert_eq!(look.subtitle[0], "model not recorded; workload not recorded");
        assert!(look.subtitle[1].starts_with("machine not recorded; "), "{look:?}");
    }

    #[test]
    fn tokens_of_passes_that_requests_share_are_named_by_the_passes() {
        let shared = Summary { counts_by_passes: true, ..summary() };
        let tokens = "64 tokens in prefill passes, 32 in decode passes";
        assert!(workload(&shared).contains(tokens), "{}", workload(&shared));
        let of_run = workload_of(&shared).expect("it has a run");
        assert!(of_run.contains(tokens) && !of_run.contains("generated"), "{of_run}");
    }

    #[test]
    fn threads_that_wait_are_named_in_the_headline() {
        let mut summary = summary();
        let before = headline(&summary);
        assert!(!before.contains("spin"), "{before}");
        summary.classes.push(Share {
            name: Class::Waiting,
            self_weight: 9_090,
            ..summary.classes[0].clone()
        });
        let said = headline(&summary);
        assert!(
            said.ends_with("; threads that spin until others are done take 90.90 % of it."),
            "{said}"
        );
        // Work stays beside it.
        assert!(said.contains("; quantised kernels "), "{said}");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words =
            ["plain-1.0/x=y", "", "a b", "it's", "$HOME `x` \"y\" \\", "nl\nesc\u{1b}'\\", "é注"];
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let script = format!("printf '%s\\0' {}", shell(&words));
        let Ok(output) = std::process::Command::new("bash").args(["-c", &script]).output() else {
            eprintln!("skipped: no bash");
            return;
        };
        let read = String::from_utf8(output.stdout).unwrap();
        let read: Vec<&str> = read.split_terminator('\0').collect();
        assert_eq!(read, words);
        assert!(!shell(&words).contains(['\n', '\u{1b}']));
    }

    #[test]
    fn a_share_within_what_is_allowed_agrees_and_one_beyond_differs() {
        let of = |sampled: f64| Compared {
            phase: Phase::Decode,
            brick: String::new(),
            measured: 0.25,
            sampled,
            allowed: 0.125,
        };
        assert_eq!(compared(&of(0.375)), ["37.50 %", "25.00 %", "+12.50", "12.50", "agrees"]);
        assert_eq!(compared(&of(0.1249))[2..], ["-12.51", "12.50", "differs"]);
        assert_eq!(compared(&of(f64::NAN))[4], "differs");
        // One sample: all of it in a brick that took 1.64 % of the time.
        let one = Compared { measured: 0.0164, sampled: 1.0, allowed: 0.9836, ..of(1.0) };
        assert_eq!(compared(&one)[4], "too few samples");
        assert_eq!(
            too_few(&Agreement { samples: 1, disturbed: false, bricks: vec![one, of(0.3)] }),
            1
        );
        let agreement = |bricks| Agreement { samples: 1, disturbed: false, bricks };
        assert_eq!(warning(&agreement(vec![of(0.3)])), None);
        let warning = warning(&agreement(vec![of(0.3), of(0.9)])).expect("one");
        assert!(warning.starts_with("1 of 2 bricks differs by more"), "{warning}");
    }
}
