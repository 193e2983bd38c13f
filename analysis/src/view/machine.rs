//! The ceilings of a machine as tables.

use std::fmt::Write;

use brickscope_profile::text::{count, printable, printable_text, screened_lines};
use brickscope_profile::{Ceilings, KernelPace, Move, Numbers, Survey};

use crate::text::wrap;
use crate::words::short;

/// The most kernels that are named without a figure.
const MOST_NAMED: usize = 3;

/// Ceilings on one line: `reads 50.0 GB/s, computes 200.0 GFLOP/s (measured before the run: 2 threads, avx2)`.
pub(super) fn told(ceilings: &Ceilings) -> String {
    format!(
        "reads {:.1} GB/s, computes {:.1} GFLOP/s ({})",
        ceilings.read_bytes_per_second / 1e9,
        ceilings.peak_per_second() / 1e9,
        printable_text(&ceilings.basis)
    )
}

/// The ceilings of a device as a table. At most 80 columns wide.
#[must_use]
pub fn ceilings(of: &Ceilings) -> String {
    let mut text = format!("{:<10}{:>14}\n{}\n", "", "GB/s, Gop/s", "-".repeat(40));
    let mut row = |name: &str, rate: f64, what: &str| {
        let _ = writeln!(text, "{:<10}{:>14} {what}", printable(name), short(rate / 1e9));
    };
    for cache in &of.caches {
        row(&cache.level, cache.read_bytes_per_second, &format!("read, {}", bytes(cache.bytes)));
    }
    row("memory", of.read_bytes_per_second, "read");
    let numbers = if of.numbers == Some(Numbers::Int8) { "int8" } else { "f32" };
    row(numbers, of.peak_per_second(), "multiplications and additions");
    screened_lines(text)
}

/// What [`Survey`] measured: bandwidths by level and threads, then operations by backend. At most 80
/// columns wide.
#[must_use]
pub fn machine(survey: &Survey) -> String {
    let mut text = String::new();
    let caches: Vec<String> = survey
        .caches
        .iter()
        .map(|cache| {
            let shared = match cache.shared_by {
                0 | 1 => String::new(),
                n => format!(" for {}", count(n.into(), "CPU")),
            };
            format!("{} {}{shared}", cache.name(), bytes(cache.bytes))
        })
        .collect();
    let caches = match caches.is_empty() {
        true => "not reported by the system, so not measured".to_owned(),
        false => caches.join(", "),
    };
    let _ = writeln!(text, "caches    {caches}");
    let (when, backend) = (printable(&survey.measured), printable(&survey.backend));
    let _ = writeln!(text, "measured  {when}, memory moved by {backend} loops, best tries");

    let mut notes: Vec<String> = Vec::new();
    let mut note = |what: &str, why: &str| {
        let note = format!("- {}: {}", printable(what), printable_text(why));
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let row = |place: &str, threads: &str, set: &str, cells: [String; 4]| {
        let [read, write, copy, triad] = cells;
        format!("{place:9}{threads:>7} {set:>11}{read:>12}{write:>12}{copy:>12}{triad:>12}\n")
    };
    let header = Move::ALL.map(|how| how.name().to_owned());
    text.push('\n');
    text.push_str(&row("GB/s", "threads", "bytes", header));
    let _ = writeln!(text, "{}", "-".repeat(76));
    let mut groups: Vec<(&str, u32)> = Vec::new();
    for bandwidth in &survey.bandwidth {
        let group = (bandwidth.level.as_str(), bandwidth.threads);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    // By level, and in it by threads.
    let mut levels: Vec<&str> = Vec::new();
    for &(level, _) in &groups {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    groups.sort_by_key(|&(level, _)| levels.iter().position(|&other| other == level));
    for (level, threads) in groups {
        let of_group = survey.bandwidth.iter().filter(|b| b.level == level && b.threads == threads);
        let mut cells = [const { String::new() }; 4];
        let mut set = None;
        for bandwidth in of_group {
            cells[bandwidth.how as usize] = match bandwidth.bytes_per_second {
                Some(rate) => short(rate / 1e9),
                None => "-".to_owned(),
            };
            if let Some(absent) = &bandwidth.absent {
                note(&format!("{level}, {}", count(threads.into(), "thread")), &absent.reason);
            }
            set = set.max(bandwidth.working_set);
        }
        let set = set.map_or(String::new(), bytes);
        text.push_str(&row(&printable(level), &threads.to_string(), &set, cells));
    }

    let row = |numbers: &str, backend: &str, how: &str, threads: &str, rate: &str| {
        format!("{numbers:9}{backend:8}{how:24}{threads:>7}{rate:>12}\n")
    };
    text.push('\n');
    text.push_str(&row("", "backend", "instructions", "threads", "Gop/s"));
    let _ = writeln!(text, "{}", "-".repeat(60));
    let mut peaks: Vec<_> = survey.peaks.iter().collect();
    peaks.sort_by_key(|peak| (peak.numbers.as_str(), peak.backend.as_str()));
    for peak in peaks {
        let [numbers, backend, how] =
            [&peak.numbers, &peak.backend, &peak.instructions].map(|text| printable(text));
        match (peak.ops_per_second, &peak.absent) {
            (Some(rate), _) => {
                let threads = peak.threads.to_string();
                text.push_str(&row(&numbers, &backend, &how, &threads, &short(rate / 1e9)));
            }
            (None, why) => {
                let why = why.as_ref().map_or("not measured", |why| &why.reason);
                note([numbers, backend, how].join(" ").trim_end(), why);
            }
        }
    }
    paces(survey, &mut text, &mut note);
    for note in notes {
        for line in wrap(&note, 78) {
            let _ = writeln!(text, "{line}");
        }
    }
    screened_lines(text)
}

/// How fast the kernels that runs use by default take weights in from a cache: a line for each kernel, order of rows and number
/// of threads.
fn paces(survey: &Survey, text: &mut String, note: &mut impl FnMut(&str, &str)) {
    if survey.paces.is_empty() {
        note("kernels", "not measured when this was kept; `--fresh` measures again");
        return;
    }
    let end = format!("_{}", survey.backend);
    let shown = || survey.paces.iter().filter(|of| of.kernel.ends_with(&end));
    let row = |kernel: &str, layout: &str, threads: &str, cells: [&str; 2]| {
        let [l1, l2] = cells;
        format!("{kernel:26}{layout:12}{threads:>7}{l1:>12}{l2:>12}\n")
    };
    if shown().any(|of| of.bytes_per_second.is_some()) {
        text.push('\n');
        text.push_str(&row("GB/s of weights in", "", "threads", ["L1", "L2"]));
        let _ = writeln!(text, "{}", "-".repeat(69));
    }
    let mut keys: Vec<(&str, bool, u32)> = shown().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    // Of many kernels the reason is the same.
    let mut absent: Vec<(&str, Vec<String>)> = Vec::new();
    for of_row in keys {
        let (kernel, is_interleaved, threads) = of_row;
        let of_key = || shown().filter(|of| key(of) == of_row);
        let layout = if is_interleaved { "interleaved" } else { "" };
        let rate = |level: &str| {
            let rate = of_key().find(|of| of.level == level)?.bytes_per_second?;
            Some(short(rate / 1e9))
        };
        let [l1, l2] = ["L1", "L2"].map(rate);
        if l1.is_some() || l2.is_some() {
            let cells = [l1.as_deref().unwrap_or("-"), l2.as_deref().unwrap_or("-")];
            text.push_str(&row(&printable(kernel), layout, &threads.to_string(), cells));
        }
        for (of, why) in of_key().filter_map(|of| Some((of, of.absent.as_ref()?))) {
            let what = format!("{}, {}", of.name(), count(of.threads.into(), "thread"));
            match absent.iter_mut().find(|(reason, _)| *reason == why.reason) {
                Some((_, all)) => all.push(what),
                None => absent.push((why.reason.as_str(), vec![what])),
            }
        }
    }
    for (reason, mut all) in absent {
        let more = all.len().saturating_sub(MOST_NAMED);
        all.truncate(MOST_NAMED);
        let more = match more {
            0 => String::new(),
            1 => "; and 1 more".to_owned(),
            n => format!("; and {n} more"),
        };
        note(&(all.join("; ") + &more), reason);
    }
    if let Some(tokens) = shown().find_map(|of| of.tokens) {
        let many = count(tokens.into(), "token");
        note("gemm kernels", &format!("the weights are multiplied with {many} at once"));
    }
    if survey.paces.len() > shown().count() {
        note("kernels of other backends", "`--json` has them");
    }
}

fn key(of: &KernelPace) -> (&str, bool, u32) {
    (&of.kernel, of.is_interleaved, of.threads)
}

/// A size in the powers of two that caches have.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}
