//! The kernels of a run, and where their sources are.

use std::collections::HashMap;
use std::fmt::Write;

use brickscope_profile::graph::launch_text;
use brickscope_profile::text::{apart, count, micros, printable, printable_text, screened_lines};
use brickscope_profile::{ExecutionNode, NameKind, Profile, PtxRegistry, PtxSource, Source};

use crate::words::size;

/// How the names of copies begin in files of other programs.
pub(super) const COPY: &str = "Memcpy ";

/// The timed kernels, and those of the graph that was recorded by hand: how often each was launched,
/// its total time, its launch shape, and the hash of its PTX source. At most 80 columns wide: longer names are cut in
/// the middle.
///
/// ```
/// use brickscope::{BrickProfiler, MockClock, Work};
/// use brickscope_analysis::view;
///
/// let hand = MockClock::default();
/// let profiler = BrickProfiler::with_clock(hand.clock());
/// profiler.enable();
/// let hash = profiler.graph().register_ptx("q4k_gemv", ".version 7.0\n", None).hash();
/// let kernel = profiler.kernel("q4k_gemv", None);
/// let timer = profiler.start_kernel(kernel);
/// hand.advance(12_500);
/// profiler.stop_kernel(timer, Work::default());
/// let row = format!("q4k_gemv                      1        12.5  {hash:#018x}  -\n");
/// assert!(view::kernels(&profiler.profile()).contains(&row));
/// ```
#[must_use]
pub fn kernels(profile: &Profile) -> String {
    let mut text = String::new();
    for (hash, sources) in profile.ptx.collisions() {
        let names: Vec<String> = sources.iter().map(|source| names(source)).collect();
        let _ = writeln!(
            text,
            "note: {} different sources have the hash {hash:#018x}: {}",
            sources.len(),
            names.join("; ")
        );
    }
    let mut table = |heading: &str, mut rows: Vec<KernelRow>| {
        if rows.is_empty() {
            return;
        }
        // Stable: untimed kernels stay in the order of their first launches.
        rows.sort_by_key(|row| std::cmp::Reverse(row.nanos));
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{heading}");
        write(&rows, &mut text);
    };
    table("Timed kernels, in all phases", timed(profile));
    table("Kernels of the recorded graph", of_graph(profile));
    if text.is_empty() {
        text.push_str("No kernel was recorded.\n");
    }
    if !profile.ptx.is_empty() {
        let all = profile.ptx.sources();
        let bytes: usize = all.iter().map(|source| source.ptx.len()).sum();
        let _ = writeln!(text, "\nPTX: {}, {bytes} bytes", count(all.len() as u64, "source"));
        for source in all {
            let _ = writeln!(text, "  {:#018x}  {}", source.hash, names(source));
        }
    }
    screened_lines(text)
}

/// A row of the table.
struct KernelRow {
    name: String,
    launches: u64,
    /// How many launches were timed.
    timed: u64,
    nanos: u64,
    /// What it moved, by its stated work.
    bytes: u64,
    ptx: String,
    launch: String,
}

/// The timed kernels: a row for each name and shape.
fn timed(profile: &Profile) -> Vec<KernelRow> {
    let mut rows: Vec<KernelRow> = Vec::new();
    let mut known = HashMap::new();
    for total in profile.totals.iter().filter(|total| total.kind == NameKind::Kernel) {
        let (name, stats) = (&total.stats.name, &total.stats);
        let at = *known.entry((name, &total.host, &total.device)).or_insert_with(|| {
            let (ptx, launch) = match (&total.host, &total.device) {
                // A file of another program may not tell how a device's kernel was launched.
                (Some(host), _) if total.source == Source::Device && host.shape.is_empty() => {
                    (by_name(&profile.ptx, name), String::new())
                }
                (Some(host), _) => ("cpu".to_owned(), printable(&host.shape)),
                (None, Some(on)) => {
                    let launch =
                        format!("{} {}", printable(&on.shape), launch_text(on.grid, on.block));
                    (by_name(&profile.ptx, name), launch.trim_start().to_owned())
                }
                (None, None) => (by_name(&profile.ptx, name), String::new()),
            };
            rows.push(KernelRow {
                name: name.clone(),
                launches: 0,
                timed: 0,
                nanos: 0,
                bytes: 0,
                ptx,
                launch,
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.launches = row.launches.saturating_add(stats.count);
        row.timed = row.launches;
        row.nanos = row.nanos.saturating_add(stats.total_ns);
        row.bytes = row.bytes.saturating_add(stats.total_bytes);
    }
    // A copy has no blocks.
    for row in rows.iter_mut().filter(|row| row.launch.is_empty() && row.name.starts_with(COPY)) {
        let rate = rate(row.bytes, row.nanos);
        let moved = rate.map(|rate| format!("{}, {rate}", size(row.bytes as f64)));
        row.launch = moved.unwrap_or_default();
    }
    rows
}

/// `27.7 GB/s`, if bytes were stated.
pub(super) fn rate(bytes: u64, ns: u64) -> Option<String> {
    let a_second = (bytes > 0 && ns > 0).then(|| bytes as f64 / (ns as f64 / 1e9))?;
    Some(format!("{}/s", size(a_second)))
}

/// The nodes of the graph: a row for each name, launch and source.
fn of_graph(profile: &Profile) -> Vec<KernelRow> {
    let mut rows: Vec<KernelRow> = Vec::new();
    let mut known = HashMap::new();
    for (_, node) in profile.graph.iter().flat_map(|graph| graph.kernel_nodes()) {
        let one = (1, 1, 1);
        let (name, ptx_hash, grid, block, timing_ns, host) = match &node {
            ExecutionNode::Kernel { name, ptx_hash, grid, block, timing_ns, .. } => {
                (name, *ptx_hash, *grid, *block, timing_ns, None)
            }
            ExecutionNode::Routine { name, launch, timing_ns, .. } => {
                (name, 0, one, one, timing_ns, Some(launch))
            }
            _ => continue,
        };
        let key = (name.clone(), ptx_hash, grid, block, host.cloned());
        let at = *known.entry(key).or_insert_with(|| {
            let (ptx, launch) = match host {
                Some(host) => ("cpu".to_owned(), printable(&host.shape)),
                None => (by_node(&profile.ptx, &node, name, ptx_hash), launch_text(grid, block)),
            };
            rows.push(KernelRow {
                name: name.clone(),
                launches: 0,
                timed: 0,
                nanos: 0,
                bytes: 0,
                ptx,
                launch,
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.launches += 1;
        if let Some(nanos) = timing_ns {
            row.timed += 1;
            row.nanos = row.nanos.saturating_add(*nanos);
        }
    }
    rows
}

fn by_node(registry: &PtxRegistry, node: &ExecutionNode, name: &str, hash: u64) -> String {
    match registry.resolve(node) {
        Some(source) => format!("{:#018x}", source.hash),
        None if hash == 0 => by_name(registry, name),
        None => format!("{hash:#018x}{UNREGISTERED}"),
    }
}

fn by_name(registry: &PtxRegistry, name: &str) -> String {
    let sources: Vec<&PtxSource> = registry.lookup_by_name(name).collect();
    match sources.as_slice() {
        [] => "-".to_owned(),
        [source] => format!("{:#018x}", source.hash),
        several => count(several.len() as u64, "source"),
    }
}

/// Marks a hash whose source was not registered.
const UNREGISTERED: char = '?';

/// A source's names, with the files that they came from.
fn names(source: &PtxSource) -> String {
    let names: Vec<String> = source
        .names
        .iter()
        .map(|name| match &name.path {
            Some(path) => {
                format!("{} ({})", printable(&name.name), printable_text(&path.to_string_lossy()))
            }
            None => printable(&name.name),
        })
        .collect();
    if names.is_empty() { "(no name)".to_owned() } else { names.join(", ") }
}

fn write(rows: &[KernelRow], text: &mut String) {
    const NAME: usize = 22;
    const COLUMNS: usize = 80;
    const PTX: usize = 19;
    const LEAST_PTX: usize = 4;
    /// Where the launch begins.
    const LAUNCH: usize = NAME + 1 + 8 + 1 + 11 + 2 + PTX + 1;
    // A hash of 18 characters, and a mark. Without hashes, launches of several dimensions have its room.
    let has_hashes = rows.iter().any(|row| row.ptx.chars().count() > LEAST_PTX);
    let most = rows.iter().map(|row| row.launch.chars().count()).max().unwrap_or(0);
    let ptx_width = match !has_hashes && COLUMNS - LAUNCH < most {
        true => LEAST_PTX,
        false => PTX,
    };
    let line = |name: &str, launches: &str, total: &str, ptx: &str, launch: &str| {
        let line = format!("{name:NAME$} {launches:>8} {total:>11}  {ptx:ptx_width$} {launch}");
        line.trim_end().to_owned() + "\n"
    };
    text.push_str(&line("Kernel", "Launches", "Total (µs)", "PTX", "Launch"));
    let _ = writeln!(text, "{}", "-".repeat(79));
    let lines = apart(rows.iter().map(|row| row.name.as_str()), COLUMNS);
    for row in rows {
        let mut name = row.name.as_str();
        if name.chars().count() > NAME {
            let _ = writeln!(text, "{}", lines.get(name).map_or("", String::as_str));
            name = "";
        }
        let name = printable(name);
        let total = match row.timed {
            0 => "-".to_owned(),
            timed if timed < row.launches => format!("{}*", micros(row.nanos as f64)),
            _ => micros(row.nanos as f64),
        };
        let launch = if row.launch.is_empty() { "-" } else { &row.launch };
        text.push_str(&line(&name, &row.launches.to_string(), &total, &row.ptx, launch));
    }
    for (applies, note) in [
        (rows.iter().any(|row| row.timed == 0), "- in Total: not timed"),
        (
            rows.iter().any(|row| 0 < row.timed && row.timed < row.launches),
            "* not all launches were timed",
        ),
        (rows.iter().any(|row| row.ptx == "-"), "- in PTX: no source of this name was registered"),
        (
            rows.iter().any(|row| row.ptx.ends_with(UNREGISTERED)),
            "? no source of this hash was registered",
        ),
    ] {
        if applies {
            let _ = writeln!(text, "{note}");
        }
    }
}
