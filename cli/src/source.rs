//! Opening a model, copying its weights, and choosing the executor that runs it.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use brickscope::RUN_FILE;
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::{self, Gguf, Pages, Placement};
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{Architecture, Error, Model};
use brickscope_kernels::Kernels;
use brickscope_runs::settings;

use crate::flags::ExecutorArgs;
use crate::output::shown;
use crate::text::count;
use crate::{cache, device, progress};

/// The model that runs if none is given.
pub(crate) const DEFAULT_SHAPE: Shape = Shape::M110;
pub(crate) const DEFAULT_QUANT: SynthQuant = SynthQuant::Q8_0;
pub(crate) const DEFAULT_SEED: u64 = 1;

/// The names of models that `synth` makes begin so.
const SYNTHETIC: &str = "brickscope-synth-";

/// Called with the number of bytes that are done, and of all bytes.
pub(crate) type OnProgress<'t> = &'t dyn Fn(u64, u64);

/// Opens the model at `path`, or the default one, with its weights in the mapped file.
pub(crate) fn model(path: Option<&Path>) -> Result<Model> {
    model_with(path, &|_, _| ())
}

/// The same, with the progress of making the default model.
pub(crate) fn model_with(path: Option<&Path>, on_progress: OnProgress<'_>) -> Result<Model> {
    Model::open(&at(path, on_progress)?).map_err(|error| match &error {
        Error::Gguf(gguf::Error::Open { cause, .. }) if cause.kind() == ErrorKind::NotFound => anyhow!(
            "{error}. Without a model, `profile` makes a small one; `brickscope synth -o model.gguf` writes one to a file"
        ),
        _ => error.into(),
    })
}

/// Opens a model to run it, with its weights in memory, which the CPU reads faster than a mapped file.
pub(crate) fn model_to_run(path: Option<&Path>, on: &ExecutorArgs) -> Result<Model> {
    let mut model = model(path)?;
    copy_weights(&mut model, on, &|_, _| ())?;
    Ok(model)
}

/// Copies the weights into memory, and interleaves their rows for the kernels that run, unless they run
/// on a device or --mmap is given.
pub(crate) fn copy_weights(
    model: &mut Model,
    on: &ExecutorArgs,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    if on.mmap || device::asked(on).is_some() {
        return Ok(());
    }
    let kernels = kernels(on)?;
    copy(model, on.pages(), on_progress)?;
    interleave(model, kernels);
    Ok(())
}

/// Copies the weights into memory.
pub(crate) fn copy(model: &mut Model, pages: Pages, on_progress: OnProgress<'_>) -> Result<()> {
    let bar = progress::bytes("loading", 0);
    let copied = model.copy_into_memory(pages, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        on_progress(done, total);
    });
    bar.finish_and_clear();
    Ok(copied?)
}

/// Interleaves rows of weights, if they are in memory and these kernels read them faster that way.
pub(crate) fn interleave(model: &mut Model, kernels: Kernels) {
    let bar = progress::bytes("arranging", 0);
    model.interleave(kernels, all_threads(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
}

/// The number of threads that this process may use.
fn all_threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn at(path: Option<&Path>, on_progress: OnProgress<'_>) -> Result<PathBuf> {
    let Some(path) = path else { return stand_in(on_progress) };
    refuse_run(path)?;
    Ok(path.to_owned())
}

/// `top RUN` and `profile RUN` are what one tries first to see a run again.
pub(crate) fn refuse_run(path: &Path) -> Result<()> {
    let run = if path.ends_with(RUN_FILE) { path.parent() } else { Some(path) };
    if let Some(run) = run.filter(|run| run.join(RUN_FILE).is_file()) {
        let run = run.display();
        bail!("{run} is a run that has ended, not a model: `brickscope show {run}`");
    }
    Ok(())
}

fn stand_in(on_progress: OnProgress<'_>) -> Result<PathBuf> {
    let cache = cache::folder()?;
    let bar = progress::bytes("making", 0);
    let made =
        synth::cached(DEFAULT_SHAPE, DEFAULT_QUANT, DEFAULT_SEED, &cache, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
            on_progress(done, total);
        });
    bar.finish_and_clear();
    made.with_context(|| format!("can't make the default model in {}", cache.display()))
}

/// The tokens of a prompt, at least one.
pub(crate) fn prompt(model: &Model, text: &str) -> Result<Vec<u32>> {
    let prompt = model.encode(text, Default::default())?;
    if prompt.is_empty() {
        bail!("the prompt has no tokens");
    }
    Ok(prompt)
}

/// The kernels chosen by --backend.
fn kernels(args: &ExecutorArgs) -> Result<Kernels> {
    match args.backend {
        Some(backend) => Kernels::new(backend).context("--backend"),
        None => Ok(Kernels::best()),
    }
}

/// As many as the flag says, or the user's settings, or the CPUs.
pub(crate) fn threads(args: &ExecutorArgs) -> NonZeroUsize {
    args.threads.or(settings::current().threads).unwrap_or_else(all_threads)
}

/// The executor chosen by the flags.
pub(crate) fn cpu(args: &ExecutorArgs) -> Result<Cpu> {
    let kernels = kernels(args)?;
    if let Some(caveat) = kernels.backend().caveat() {
        tell!("note: {caveat}");
    }
    let threads = threads(args);
    // Who writes the flag knows the number; a file is forgotten.
    let is_of_file = args.threads.is_none() && threads > all_threads();
    if let Some(file) = settings::current().file.as_deref().filter(|_| is_of_file) {
        tell!(
            "note: {threads} threads, as {} says, and this process may use {}",
            shown(file),
            count(all_threads().get() as u64, "CPU")
        );
    }
    Cpu::new(kernels, threads)
        .with_context(|| format!("--threads: the system can't start {threads} threads"))
}

/// The description of a model in a profile.
pub(crate) fn describe(model: &Model) -> brickscope::Model {
    let metadata = &model.gguf.metadata;
    let name = metadata.opt_str("general.name").ok().flatten().map(str::to_owned);
    let synthetic = name.as_deref().is_some_and(|name| name.starts_with(SYNTHETIC));
    brickscope::Model {
        path: model.gguf.path.display().to_string(),
        name,
        architecture: Architecture::name(model.config.architecture).to_owned(),
        quantization: model.quantization(),
        file_bytes: model.gguf.file_len() as u64,
        parameters: model.n_parameters(),
        layers: model.config.n_layers as u32,
        embedding_length: model.config.dim as u32,
        synthetic,
        weights_in: weights_in(model),
        copied_in_ns: match model.gguf.placement() {
            Placement::Copied { took, .. } => u64::try_from(took.as_nanos()).ok(),
            _ => None,
        },
        interleaved_bytes: model.interleaved().map(|done| done.bytes),
        interleaved_in_ns: model
            .interleaved()
            .and_then(|done| u64::try_from(done.took.as_nanos()).ok()),
        weights: brickscope_engine::weight_groups(&model.gguf),
    }
}

/// The description of a model that the engine may not run, as far as its file can be read: of any architecture.
pub(crate) fn describe_file(path: &Path) -> brickscope::Model {
    let unknown = brickscope::Model { path: path.display().to_string(), ..Default::default() };
    let Ok(file) = Gguf::open(path) else { return unknown };
    let metadata = &file.metadata;
    let text = |key: &str| metadata.opt_str(key).ok().flatten().map(str::to_owned);
    let architecture = text("general.architecture").unwrap_or_default();
    let number = |key: &str| {
        metadata.opt_u32(&format!("{architecture}.{key}")).ok().flatten().unwrap_or_default()
    };
    let parameters = file.tensors.iter().map(|tensor| tensor.n_elements() as u64);
    brickscope::Model {
        synthetic: text("general.name").is_some_and(|name| name.starts_with(SYNTHETIC)),
        name: text("general.name"),
        quantization: brickscope_engine::quantization(&file),
        file_bytes: file.file_len() as u64,
        parameters: parameters.fold(0, u64::saturating_add),
        layers: number("block_count"),
        embedding_length: number("embedding_length"),
        weights: brickscope_engine::weight_groups(&file),
        architecture,
        ..unknown
    }
}

/// The name of a mapped file as the place of weights.
pub(crate) const MAPPED: &str = "mapped file";

/// Where the weights are, if a file is open, and whether their rows are interleaved.
pub(crate) fn weights_in(model: &Model) -> Option<String> {
    let order = if model.interleaved().is_some() { ", rows interleaved" } else { "" };
    place(model).map(|place| format!("{place}{order}"))
}

fn place(model: &Model) -> Option<&'static str> {
    match model.gguf.placement() {
        Placement::Mapped => Some(MAPPED),
        // Not 100 %, since the last page of a file is rarely full.
        Placement::Copied { in_large_pages: Some(bytes), .. }
            if bytes >= model.gguf.file_len() as u64 / 10 * 9 =>
        {
            Some("large pages")
        }
        Placement::Copied { in_large_pages: Some(1..), .. } => {
            Some("memory, partly in large pages")
        }
        Placement::Copied { in_large_pages: Some(0), .. } => Some("memory, in small pages"),
        Placement::Copied { in_large_pages: None, .. } => Some("memory"),
        _ => None,
    }
}
