//! `brickscope diverge`: finds where two backends, thread counts or model files diverge.

use brickscope::Backend;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use brickscope_engine::diverge::{Divergence, Diverging, Element, Report, diverge};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Pages;
use brickscope_engine::{AnySession, Model, Session};
use brickscope_kernels::Kernels;
use serde_json::{Value, json};

use crate::flags::{threads, token_id};
use crate::{device, output, progress, source};

/// Find the first kernel whose output differs between two backends.
///
/// Both sides run the same tokens in lockstep. After each kernel, b's output is compared with a's,
/// within the rounding of that one kernel, and then replaced by a's. So each difference belongs to the
/// kernel that shows it and is never inherited. Sides with the same kernels must agree bit for bit.
///
/// The exit code is 0 if all differences are rounding, 1 if there is a divergence, 2 if the
/// comparison can't be made.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  brickscope diverge model.gguf --a scalar --b avx2\n  brickscope diverge model.gguf --a avx2 --b avx2 --threads-b 2 --tokens 32\n  brickscope diverge model.gguf --a cpu --b wgpu\n  brickscope diverge model.gguf --b-model other.gguf --json | jq .first"
)]
pub(crate) struct DivergeArgs {
    /// The GGUF file.
    pub(crate) model: PathBuf,

    /// The kernels of side a, the reference: scalar, avx2, avx512, neon, `cpu` for the fastest that this
    /// CPU supports, or a device, wgpu or cuda.
    #[arg(long, value_name = "BACKEND", default_value = "scalar")]
    pub(crate) a: CpuOr,

    /// The kernels of side b, likewise.
    #[arg(long, value_name = "BACKEND", default_value = "cpu")]
    pub(crate) b: CpuOr,

    /// Another model file for side b, of the same shape.
    #[arg(long, value_name = "FILE")]
    pub(crate) b_model: Option<PathBuf>,

    /// The prompt.
    #[arg(long, default_value = DIVERGE_PROMPT, conflicts_with = "ids")]
    pub(crate) prompt: String,

    /// Token ids instead of a prompt, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = token_id)]
    pub(crate) ids: Vec<u32>,

    /// Tokens to generate after the prompt: side a chooses the likeliest, for both sides.
    #[arg(long, default_value_t = 8, allow_negative_numbers = true)]
    pub(crate) tokens: usize,

    /// Threads of side a. By default half of those that this process may use, since both sides run at
    /// once.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads_a: Option<NonZeroUsize>,

    /// Threads of side b, likewise.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads_b: Option<NonZeroUsize>,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A backend; `None` is the fastest one of the CPU, spelled `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuOr(pub(crate) Option<Backend>);

impl std::str::FromStr for CpuOr {
    type Err = <Backend as std::str::FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "cpu" { Ok(Self(None)) } else { name.parse().map(Some).map(Self) }
    }
}

/// One sentence, long enough for a pass of several tokens.
const DIVERGE_PROMPT: &str = "Once upon a time there was a profiler that told the truth.";

/// The most differing places that are printed; JSON has all.
const MOST_PLACES: usize = 10;

/// Compares both sides, prints the result, and returns whether there is a divergence.
pub(crate) fn run(args: &DivergeArgs) -> Result<bool> {
    let mut model = source::model(Some(&args.model))?;
    let mut other = args.b_model.as_deref().map(|path| source::model(Some(path))).transpose()?;
    // With the weights as these kernels would read them alone. The other side reads the same copy.
    as_read(&mut model, &args.a)?;
    as_read(other.as_mut().unwrap_or(&mut model), &args.b)?;
    let models = [&model, other.as_ref().unwrap_or(&model)];
    let prompt = match &args.ids[..] {
        [] => source::prompt(&model, &args.prompt)?,
        ids => ids.to_vec(),
    };
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));
    let asked = [(&args.a, args.threads_a), (&args.b, args.threads_b)];
    let side = |side: usize| -> Result<(Box<dyn AnySession<'_> + '_>, Side<'_>)> {
        let (backend, threads) = asked[side];
        let flag = ["a", "b"][side];
        let model = models[side];
        let path = &model.gguf.path;
        if let Some(backend) = backend.0.filter(|&backend| device::is_device(backend)) {
            ensure!(threads.is_none(), "--threads-{flag}: {backend} runs on a device");
            let side = device::session(backend, model, context)?;
            return Ok((side, Side { model: path, backend: backend.to_string(), threads: None }));
        }
        let kernels = match backend.0 {
            Some(backend) => Kernels::new(backend).with_context(|| format!("--{flag}"))?,
            None => Kernels::best(),
        };
        let threads = threads.unwrap_or_else(half_of_all);
        let cpu = Cpu::new(kernels, threads)
            .with_context(|| format!("--threads-{flag}: the system can't start {threads}"))?;
        let session = Session::new(model, cpu, context)?;
        let backend = kernels.backend().to_string();
        Ok((Box::new(session), Side { model: path, backend, threads: Some(threads.get()) }))
    };
    let ((mut a, of_a), (mut b, of_b)) = (side(0)?, side(1)?);

    let bar = progress::tokens("comparing", context as u64);
    let compared = diverge(&mut *a, &mut *b, &prompt, args.tokens, &|_, _| (), &mut |done| {
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let report = compared?;
    let sides = [of_a, of_b];
    let text = match args.json {
        true => format!("{:#}\n", as_json(&sides, &report, prompt.len())),
        false => as_text(&sides, &report, models[0]),
    };
    output::print(text)?;
    Ok(report.first.is_some())
}

/// Copies a model into memory, with its rows in the order that the kernels of a side read fastest.
/// Errors of a backend are reported later.
fn as_read(model: &mut Model, asked: &CpuOr) -> Result<()> {
    let kernels = match asked.0 {
        Some(backend) => Kernels::new(backend).ok(),
        None => Some(Kernels::best()),
    };
    let Some(kernels) = kernels.filter(|kernels| model.is_faster_interleaved(*kernels)) else {
        return Ok(());
    };
    source::copy(model, Pages::Large, &|_, _| ())?;
    source::interleave(model, kernels);
    Ok(())
}

/// Both sides run at once.
fn half_of_all() -> NonZeroUsize {
    let all = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(all.get() / 2).unwrap_or(NonZeroUsize::MIN)
}

/// What one side runs.
struct Side<'a> {
    model: &'a Path,
    backend: String,
    /// Of the CPU's.
    threads: Option<usize>,
}

fn as_text(sides: &[Side<'_>; 2], report: &Report, model: &Model) -> String {
    let mut out = String::new();
    // Writing to a `String` can't fail.
    let _ = write_text(&mut out, sides, report, model);
    out
}

fn write_text(
    out: &mut String,
    sides: &[Side<'_>; 2],
    report: &Report,
    model: &Model,
) -> std::fmt::Result {
    for (name, side) in ["a", "b"].iter().zip(sides) {
        let on = match side.threads {
            None => String::new(),
            Some(1) => " on 1 thread".to_owned(),
            Some(threads) => format!(" on {threads} threads"),
        };
        writeln!(out, "{name}  {}{on}, {}", side.backend, output::shown(side.model))?;
    }
    writeln!(
        out,
        "{} tokens in {} passes: {} numbers of {} tensors compared\n",
        report.tokens.len(),
        report.n_passes,
        report.n_elements,
        report.n_tensors
    )?;
    match &report.first {
        None if report.is_exact => {
            writeln!(out, "No divergence: both sides are equal bit for bit.")?
        }
        None => writeln!(out, "No divergence: no kernel differs by more than its rounding.")?,
        Some(first) => write_divergence(out, first, report, model.config.n_layers)?,
    }
    if report.kernels.iter().any(|pair| pair.most.is_some()) {
        writeln!(
            out,
            "\nThe largest difference of each kernel, in tolerances (0 to 1 is rounding):"
        )?;
        writeln!(out, "  {:17} {:20} {:20} {:>12}", "brick", "a", "b", "difference")?;
        for pair in &report.kernels {
            let [a, b] = &pair.kernels;
            let most = match pair.most {
                None => "must be equal".to_owned(),
                Some(most) if most < 100.0 => format!("{most:.3}"),
                Some(most) => format!("{most:.0e}"),
            };
            writeln!(out, "  {:17} {a:20} {b:20} {most:>13}", pair.brick.name())?;
        }
    }
    Ok(())
}

fn write_divergence(
    out: &mut String,
    first: &Divergence,
    report: &Report,
    n_layers: usize,
) -> std::fmt::Result {
    let layer = match first.layer {
        Some(layer) => format!("layer {layer} of {n_layers}, "),
        None => String::new(),
    };
    let brick = first.brick().name();
    let value = first.value.name();
    writeln!(out, "DIVERGENCE: {layer}{brick} ({value}), position {}\n", first.position)?;
    if let Some([a, b]) = &first.kernels {
        writeln!(out, "  kernels    a  {a}\n             b  {b}")?;
    }
    let beyond = format!("{} of {} numbers of this tensor", first.n_beyond, first.n_elements);
    writeln!(out, "  beyond     {beyond}")?;
    let again = match first.is_repeatable {
        true => "yes, it was the same in a second run of the pass",
        false => "no, it was gone in a second run of the pass",
    };
    writeln!(out, "  repeats    {again}\n")?;

    let has_heads = first.worst.iter().any(|element| element.head.is_some());
    let (head, index) = if has_heads { ("  head", "key") } else { ("", "index") };
    writeln!(
        out,
        "  {:>8}{head} {index:>7} {:>14} {:>14} {:>13} {:>11}",
        "position", "a", "b", "|difference|", "tolerance"
    )?;
    for &Element { position, head, index, a, b, difference, tolerance } in &first.worst {
        let head = head.map_or(String::new(), |head| format!("{head:>6}"));
        writeln!(
            out,
            "  {position:>8}{head} {index:>7} {a:>14.6e} {b:>14.6e} {difference:>13.3e} {tolerance:>11.1e}"
        )?;
    }

    let [a, b] = &*first.digests;
    writeln!(out, "\n  {:17} {:>14} {:>14}", "whole tensor", "a", "b")?;
    writeln!(out, "  {:17} {:>14.6e} {:>14.6e}", "largest |x|", a.max_abs, b.max_abs)?;
    writeln!(out, "  {:17} {:>14.6e} {:>14.6e}", "mean", a.mean, b.mean)?;
    writeln!(out, "  {:17} {:>14.6e} {:>14.6e}", "L2 norm", a.l2, b.l2)?;
    writeln!(out, "  {:17} {:>14} {:>14}", "NaN", a.nan, b.nan)?;
    writeln!(out, "  {:17} {:>14} {:>14}", "infinite", a.infinite, b.infinite)?;

    if report.places.len() > 1 {
        writeln!(out, "\nAll kernels that differ by more than rounding on equal inputs:")?;
        writeln!(
            out,
            "  {:>5} {:17} {:28} {:>7} {:>10}",
            "layer", "brick", "value", "passes", "numbers"
        )?;
        for Diverging { layer, value, n_passes, n_beyond } in report.places.iter().take(MOST_PLACES)
        {
            let layer = layer.map_or("-".to_owned(), |layer| layer.to_string());
            let (brick, value) = (value.brick().name(), value.name());
            writeln!(out, "  {layer:>5} {brick:17} {value:28} {n_passes:>7} {n_beyond:>10}")?;
        }
        if let Some(more) = report.places.len().checked_sub(MOST_PLACES).filter(|&n| n > 0) {
            writeln!(out, "  and {more} more, which --json lists")?;
        }
    }
    Ok(())
}

fn as_json(sides: &[Side<'_>; 2], report: &Report, n_prompt: usize) -> Value {
    let side = |side: &Side<'_>| {
        json!({
            "model": side.model.display().to_string(),
            "backend": side.backend,
            "threads": side.threads,
        })
    };
    json!({
        "a": side(&sides[0]),
        "b": side(&sides[1]),
        "tokens": report.tokens,
        "prompt_tokens": n_prompt,
        "passes": report.n_passes,
        "tensors": report.n_tensors,
        "numbers": report.n_elements,
        "exact": report.is_exact,
        "diverges": report.first.is_some(),
        "first": report.first.as_ref().map(divergence_as_json),
        "places": report.places.iter().map(|place| json!({
            "layer": place.layer,
            "brick": place.value.brick().name(),
            "value": place.value.name(),
            "passes": place.n_passes,
            "numbers": place.n_beyond,
        })).collect::<Vec<_>>(),
        "kernels": report.kernels.iter().map(|pair| json!({
            "brick": pair.brick.name(),
            "a": pair.kernels[0],
            "b": pair.kernels[1],
            "numbers": pair.n_elements,
            "largest_difference_in_tolerances": pair.most.map(number),
        })).collect::<Vec<_>>(),
    })
}

fn divergence_as_json(first: &Divergence) -> Value {
    json!({
        "layer": first.layer,
        "brick": first.brick().name(),
        "value": first.value.name(),
        "position": first.position,
        "kernel_a": first.kernels.as_ref().map(|kernels| &kernels[0]),
        "kernel_b": first.kernels.as_ref().map(|kernels| &kernels[1]),
        "numbers": first.n_elements,
        "beyond": first.n_beyond,
        "repeatable": first.is_repeatable,
        "worst": first.worst.iter().map(|element| json!({
            "position": element.position,
            "head": element.head,
            "index": element.index,
            "a": number(element.a.into()),
            "b": number(element.b.into()),
            "difference": number(element.difference),
            "tolerance": number(element.tolerance),
        })).collect::<Vec<_>>(),
        "digest_a": first.digests[0],
        "digest_b": first.digests[1],
    })
}

/// JSON has no NaN and no infinity, so they become strings.
fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}
