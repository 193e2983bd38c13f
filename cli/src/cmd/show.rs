//! `brickscope show`: shows a saved run in several forms.

use clap::ValueEnum;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use brickscope::{
    DotOptions, ExecutionGraph, ExecutionNode, NameKind, Profile, PtxSource, TreeOptions,
};
use brickscope_analysis::path;
use brickscope_analysis::typical::OnePass;
use brickscope_analysis::view;

use crate::child::{End, end_with_parent};
use crate::flags::share;
use crate::runs::without_disturbed;
use crate::text::printable;
use crate::{device, family, output, runs, summary};

/// Show a saved run: what limits it, its report, tree, critical path, kernels or roofline.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope show\n  brickscope show RUN\n  brickscope show RUN --as tree --fold --min-share 1%\n  brickscope show RUN --as tree --layer 3 --depth 2\n  brickscope show RUN --as svg > graph.svg\n  brickscope show RUN --as svg --unfolded > all-layers.svg\n  brickscope show RUN --as path --what-if QkvProjection=0.5\n  brickscope show RUN --as kernels\n  brickscope show RUN --as kernels --ptx q4k_gemv > q4k_gemv.ptx\n  brickscope show RUN --device 0 --as statistics\n  brickscope show RUN --as graph-json | jq '.nodes | length'"
)]
pub(crate) struct ShowArgs {
    /// The run: its folder or profile.json, its tag, the beginning of its name, or `@-1` for the one before the newest. By
    /// default the newest in `brickscope-runs`.
    pub(crate) run: Option<PathBuf>,

    /// What to show.
    #[arg(long = "as", alias = "format", value_enum, default_value_t = View::Summary)]
    pub(crate) view: View,

    /// The whole profile and the roofline as JSON, the same as `--as json`.
    #[arg(long, conflicts_with_all = ["view", "full"])]
    pub(crate) json: bool,

    /// The whole report, the same as `--as report`.
    #[arg(long, conflicts_with = "view")]
    pub(crate) full: bool,

    /// With --as tree: the most levels. Lines say how much they hide.
    #[arg(long, value_name = "LEVELS", value_parser = levels)]
    pub(crate) depth: Option<usize>,

    /// With --as tree, dot or svg: only this transformer layer.
    #[arg(long, value_name = "I")]
    pub(crate) layer: Option<u32>,

    /// With --as tree: only nodes that took at least this share of the time, such as 1%. The rest is counted
    /// and summed up.
    #[arg(long, value_name = "PERCENT", value_parser = share, allow_hyphen_values = true)]
    pub(crate) min_share: Option<f64>,

    /// With --as tree: fold layers with the same bricks and kernels into one, with the sum of their times
    /// and the shortest and longest time of a layer.
    #[arg(long)]
    pub(crate) fold: bool,

    /// With --as dot or svg: draw every layer, instead of folding those with the same bricks and kernels into
    /// one with the sum of their times. The drawing of a model is some metres wide.
    #[arg(long, conflicts_with = "layer")]
    pub(crate) unfolded: bool,

    /// With --as kernels: print the PTX source of this kernel, given by its name or hash.
    #[arg(long, value_name = "NAME")]
    pub(crate) ptx: Option<String>,

    /// Leave out of the tables the passes that were disturbed or had a stall. The report and the roofline
    /// leave them out anyway, if at least five others remain. A phase of which no pass would remain keeps
    /// all, with a note.
    #[arg(long)]
    pub(crate) leave_out_disturbed: bool,

    /// Show only this device, timed by its own clock. Forms other than the summary, the report and JSON show the first
    /// device by default if the host only issued work to it and waited, or if the run is a trace of a GPU.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,

    /// With --device: show only this stream.
    #[arg(long, value_name = "N", requires = "device")]
    pub(crate) stream: Option<usize>,

    /// Show only the host's part of a run on a device.
    #[arg(long, conflicts_with = "device")]
    pub(crate) host: bool,

    /// With --as path: predict the time of the pass if all bricks or kernels with this name took FACTOR
    /// times as long. May be repeated.
    #[arg(long, value_name = "NAME=FACTOR", value_parser = what_if)]
    pub(crate) what_if: Vec<(String, f64)>,
}

impl ShowArgs {
    fn view(&self) -> View {
        match (self.full, self.json) {
            (true, _) => View::Report,
            (_, true) => View::Json,
            _ => self.view,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum View {
    /// One screen: how fast, what limits it, the longest bricks, what to do next.
    Summary,
    /// The whole report: every table, tokens, a pass as a tree, its critical path, the clock.
    Report,
    /// Count, mean, standard deviation and percentiles of every brick and kernel.
    Statistics,
    /// The tree of one decode pass with all its layers.
    Tree,
    /// The tree as input for Graphviz, with equal layers folded into one.
    Dot,
    /// The same drawn by Graphviz, which must be installed.
    Svg,
    /// The tree as JSON: nodes and edges.
    GraphJson,
    /// Every kernel: launches, time, shape or grid and block, and PTX source.
    Kernels,
    /// The critical path of that pass, which decides how long it took.
    Path,
    /// Measured work compared with the machine's limits: a plot and a table.
    Roofline,
    /// The roofline plot as SVG.
    RooflineSvg,
    /// The whole profile and the roofline as JSON.
    Json,
}

/// A prediction for anything a million times slower is meaningless.
const MOST_FACTOR: f64 = 1e6;

fn levels(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(levels) if levels > 0 => Ok(levels),
        _ => Err("must be a number of levels, at least 1".to_owned()),
    }
}

fn what_if(text: &str) -> Result<(String, f64), String> {
    let (name, factor) = text.rsplit_once('=').ok_or("must be NAME=FACTOR")?;
    match factor.parse::<f64>() {
        Ok(factor) if (0.0..=MOST_FACTOR).contains(&factor) => Ok((name.to_owned(), factor)),
        _ => Err(format!("`{factor}` is not a factor: use a number from 0 to {MOST_FACTOR}")),
    }
}

pub(crate) fn run(args: &ShowArgs) -> Result<()> {
    check(args)?;
    let view = args.view();
    let run = runs::named_or_newest(args.run.as_deref())?;
    let mut profile = runs::load(&run)?;
    if let Err(why) = profile.check() {
        tell!("note: this profile is inconsistent: {why}");
    }
    if args.leave_out_disturbed {
        profile = without_disturbed(profile, matches!(view, View::Summary | View::Report));
    }
    if let Some(why) = without_path(&profile, args) {
        bail!("no critical path: {why}; `--as tree` has what ran");
    }
    if let (View::Report, Some(index), None) = (view, args.device, args.stream)
        && profile.devices.get(index).is_some_and(|device| device.streams.len() > 1)
    {
        return output::print(view::report_of_device(&profile, index));
    }
    let profile = shown(profile, args)?;
    if matches!(view, View::Tree | View::Dot | View::Svg | View::GraphJson) {
        tell_doubt(&profile);
    }
    let text = match view {
        View::Summary => return summary::print(&profile, Some(&run), None),
        View::Report => view::report(&profile),
        View::Statistics => view::statistics(&profile),
        View::Tree => tree(&graph(&profile)?, args)?,
        View::Dot => dot(&graph(&profile)?, args)?,
        View::Svg => svg(dot(&graph(&profile)?, args)?)?,
        View::GraphJson => serde_json::to_string(&graph(&profile)?)? + "\n",
        View::Kernels => match &args.ptx {
            Some(name) => ptx(&profile, name)?,
            None => view::kernels(&profile),
        },
        View::Path => path_title(&profile) + &path_of(&graph(&profile)?, args)?,
        View::Roofline => view::roofline(&profile),
        View::RooflineSvg => view::roofline_svg(&profile),
        View::Json => view::json(&profile),
    };
    output::print(text)
}

/// Streams that are named in an error.
const MOST_STREAMS: usize = 8;

/// The part of a run to show: all of it, its host or a device.
fn shown(mut profile: Profile, args: &ShowArgs) -> Result<Profile> {
    let is_whole = matches!(args.view(), View::Summary | View::Report | View::Json);
    // A host that only waits has no bricks worth a tree.
    let by_itself = || device::shown_first(&profile).filter(|_| !is_whole);
    if args.host {
        profile.devices.clear();
        return Ok(profile);
    }
    let Some(index) = args.device.or_else(by_itself) else { return Ok(profile) };
    if args.device.is_none() && profile.imported.is_some() {
        tell!("note: of what ran on device {index}: `--host` shows what launched it");
    }
    let Some(of) = profile.devices.get(index) else {
        match profile.devices.len() {
            0 => bail!("this run used no device"),
            n => bail!("there is no device {index}: the run has {n}, numbered from 0"),
        }
    };
    let n_streams = of.streams.len();
    // The first screen is of all streams of a device, and says what file a trace is from.
    let is_summary = args.view() == View::Summary;
    let is_whole_screen = n_streams > 1 || profile.imported.is_some();
    if is_whole_screen && args.stream.is_none() && is_summary {
        profile.devices = vec![profile.devices.swap_remove(index)];
        return Ok(profile);
    }
    match args.stream {
        None => {
            let whole = profile.whole_device(index).context("this device has no streams")?;
            // Spans by themselves, so none is outside of its pass because of its stream.
            let totals = profile.totals_of_device(index).filter(|_| args.view() == View::Statistics);
            Ok(match totals {
                Some(totals) => Profile { totals, ..whole },
                None => whole,
            })
        }
        Some(stream) => profile.on_device(index, stream).with_context(|| {
            let names = of.streams.iter().enumerate();
            let names = names.map(|(nth, of)| format!("{nth} is {}", printable(&of.name)));
            let names = names.take(MOST_STREAMS).collect::<Vec<_>>().join(", ");
            format!("device {index} has no stream {stream}: it has {n_streams}, numbered from 0: {names}")
        }),
    }
}

/// Why what is shown has no critical path, if that is wanted.
fn without_path(profile: &Profile, args: &ShowArgs) -> Option<&'static str> {
    if args.view() != View::Path || args.host {
        return None;
    }
    let index = args.device.or_else(|| device::shown_first(profile))?;
    let on_device = match args.stream {
        None => profile.whole_device(index),
        Some(stream) => profile.on_device(index, stream),
    }?;
    path::unknown(profile, index, OnePass::of_any(&on_device)?.pass.serial)
}

/// Refuses flags that would have no effect.
fn check(args: &ShowArgs) -> Result<()> {
    let is_tree = args.view() == View::Tree;
    let is_drawing = matches!(args.view(), View::Dot | View::Svg);
    for (flag, is_given) in [
        ("--depth", args.depth.is_some()),
        ("--min-share", args.min_share.is_some()),
        ("--fold", args.fold),
    ] {
        if is_given && !is_tree {
            bail!("{flag} goes with --as tree");
        }
    }
    if args.layer.is_some() && !is_tree && !is_drawing {
        bail!("--layer goes with --as tree, dot or svg");
    }
    if args.unfolded && !is_drawing {
        bail!("--unfolded goes with --as dot or svg");
    }
    if args.ptx.is_some() && args.view() != View::Kernels {
        bail!("--ptx goes with --as kernels");
    }
    if !args.what_if.is_empty() && args.view() != View::Path {
        bail!("--what-if goes with --as path");
    }
    Ok(())
}

/// The graph that the engine recorded itself, or else the graph of a typical pass.
fn graph(profile: &Profile) -> Result<ExecutionGraph> {
    if let Some(graph) = &profile.graph {
        return Ok(graph.clone());
    }
    OnePass::of_any(profile)
        .and_then(|one| profile.execution_graph(one.pass.serial))
        .context("this run has no pass with all its spans, so it has no graph")
}

/// Which pass a path is of.
fn path_title(profile: &Profile) -> String {
    if profile.graph.is_some() {
        return "The graph that the engine recorded\n\n".to_owned();
    }
    let title = OnePass::of_any(profile).map(|one| view::wrap(&one.title(), 78).join("\n"));
    title.map_or(String::new(), |title| title + "\n\n")
}

/// Says on stderr that a drawing is of a disturbed pass, which has no room for it.
fn tell_doubt(profile: &Profile) {
    let one = OnePass::of_any(profile).filter(|_| profile.graph.is_none());
    if let Some((one, doubt)) = one.and_then(|one| Some((one.title(), one.doubt?))) {
        let note = format!("no pass of this phase is clean ({doubt}): {one}");
        tell!("note: {}", view::wrap(&note, 74).join("\n"));
    }
}

fn tree(graph: &ExecutionGraph, args: &ShowArgs) -> Result<String> {
    let &ShowArgs { depth, layer, min_share, fold, .. } = args;
    has_layer(graph, layer)?;
    Ok(graph.to_tree(&TreeOptions { depth, layer, min_share, fold }) + "\n")
}

/// Refuses a layer that the graph doesn't have.
fn has_layer(graph: &ExecutionGraph, layer: Option<u32>) -> Result<()> {
    if let Some(layer) = layer {
        let layers = || {
            graph.nodes().filter_map(|node| match node {
                ExecutionNode::Layer { index } => Some(index),
                _ => None,
            })
        };
        if !layers().any(|index| index == layer) {
            match (layers().min(), layers().max()) {
                (Some(least), Some(most)) => {
                    bail!("there is no layer {layer}: the layers are {least} to {most}")
                }
                _ => bail!("there is no layer {layer}: the graph has no layers"),
            }
        }
    }
    Ok(())
}

/// The graph as input for Graphviz.
fn dot(graph: &ExecutionGraph, args: &ShowArgs) -> Result<String> {
    has_layer(graph, args.layer)?;
    Ok(match args.unfolded {
        true => graph.to_dot(),
        false => graph.to_dot_with(&DotOptions { fold: true, layer: args.layer }),
    })
}

/// The critical path, with predictions for names in the graph.
fn path_of(graph: &ExecutionGraph, args: &ShowArgs) -> Result<String> {
    for (name, _) in &args.what_if {
        if graph.nodes_by_name(name).next().is_none() {
            let mut known: Vec<String> =
                graph.nodes().filter(|n| n.is_brick() || n.is_kernel()).map(|n| n.name()).collect();
            known.sort_unstable();
            known.dedup();
            known.truncate(20);
            bail!("this graph has no `{name}`; it has {}", known.join(", "));
        }
    }
    Ok(view::critical_path(graph, &args.what_if))
}

/// Graphviz lays out this many nodes in seconds; its time grows faster than linearly.
const NODES_IN_SECONDS: usize = 1_000;

/// A graph in Graphviz's language, drawn by Graphviz.
fn svg(dot: String) -> Result<String> {
    let mut command = Command::new("dot");
    end_with_parent(&mut command, End::Kill);
    let child = command
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "Graphviz's `dot` is not installed: install the package `graphviz` (apt, dnf, pacman or \
             brew), or write the graph with --as dot and draw it elsewhere"
        ),
        child => child.context("can't start Graphviz's `dot`")?,
    };
    let nodes = dot.lines().filter(|line| line.contains(",style=filled,")).count();
    if nodes > NODES_IN_SECONDS {
        tell!("Graphviz lays out {nodes} nodes; that can take minutes …");
    }
    let mut stdin = child.stdin.take().context("no pipe to `dot`")?;
    // On a separate thread, since `dot` may write before it has read everything.
    let feeder = family::spawn("dot-input", move || stdin.write_all(dot.as_bytes()))?;
    let output = child.wait_with_output().context("Graphviz's `dot`")?;
    let fed = feeder.join();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("Graphviz's `dot` failed ({}): {}", output.status, said.trim());
    }
    // If `dot` succeeds without reading everything, the drawing is incomplete.
    if !matches!(fed, Ok(Ok(()))) {
        bail!("Graphviz's `dot` did not read the whole graph: {}", said.trim());
    }
    String::from_utf8(output.stdout).context("the output of Graphviz's `dot`")
}

/// The PTX source of a kernel, given its name or hash.
fn ptx(profile: &Profile, name: &str) -> Result<String> {
    let sources = sources(profile, name);
    match sources.as_slice() {
        [source] => return Ok(ending_in_a_line_break(&source.ptx)),
        [] => {}
        several => bail!("`{name}` has {} sources: {}", several.len(), others(several)),
    }
    let timed = profile.totals.iter().filter(|total| total.kind == NameKind::Kernel);
    let timed = timed.map(|total| (total.stats.name.clone(), total.host.is_some()));
    let launched = profile.graph.iter().flat_map(|graph| graph.kernel_nodes());
    let launched = launched.filter_map(|(_, node)| match node {
        ExecutionNode::Kernel { name, .. } => Some((name, false)),
        ExecutionNode::Routine { name, .. } => Some((name, true)),
        _ => None,
    });
    let mut kernels: Vec<(String, bool)> = timed.chain(launched).collect();
    kernels.sort();
    kernels.dedup();
    match kernels.iter().find(|(kernel, _)| kernel == name) {
        Some((_, true)) => bail!("`{name}` is a routine of the CPU: it has no PTX"),
        Some((_, false)) => bail!("no PTX source was registered for `{name}`"),
        None if kernels.is_empty() => bail!("there is no kernel `{name}`: the run has no kernels"),
        None => bail!("there is no kernel `{name}`: `--as kernels` lists those of this run"),
    }
}

/// The sources with this name or this hash, and those of nodes with this name.
fn sources<'p>(profile: &'p Profile, name: &str) -> Vec<&'p PtxSource> {
    let mut sources: Vec<&PtxSource> = profile.ptx.lookup_by_name(name).collect();
    let kernels = profile.graph.iter().flat_map(|graph| graph.kernel_nodes());
    let resolved = kernels.filter(|(_, node)| node.name() == name);
    for source in resolved.filter_map(|(_, node)| profile.ptx.resolve(&node)) {
        if !sources.iter().any(|known| std::ptr::eq(*known, source)) {
            sources.push(source);
        }
    }
    let hash = name.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    if let (true, Some(hash)) = (sources.is_empty(), hash) {
        sources = profile.ptx.lookup_all(hash).collect();
    }
    sources
}

/// Tells how to select one of several sources: by its hash, or by its kernel if the hashes are equal.
fn others(sources: &[&PtxSource]) -> String {
    if sources.iter().any(|source| source.hash != sources[0].hash) {
        let hashes: Vec<String> =
            sources.iter().map(|source| format!("{:#018x}", source.hash)).collect();
        return format!("name one of {}", hashes.join(", "));
    }
    let names = sources.iter().filter_map(|source| source.names.first());
    let names: Vec<String> = names.map(|name| format!("`{}`", name.name)).collect();
    format!("their hashes collide, so name one of {}", names.join(", "))
}

fn ending_in_a_line_break(text: &str) -> String {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}")
}
