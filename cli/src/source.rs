//! Where a model comes from, and what runs it.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Placement;
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{Architecture, Model};
use brickscope_kernels::Kernels;

use crate::flags::ExecutorArgs;
use crate::{device, progress};

/// The model that stands in where none is given.
pub(crate) const DEFAULT_SHAPE: Shape = Shape::M110;
pub(crate) const DEFAULT_QUANT: SynthQuant = SynthQuant::Q8_0;
pub(crate) const DEFAULT_SEED: u64 = 1;

/// Hears how many bytes are done, and of how many.
pub(crate) type Told<'t> = &'t dyn Fn(u64, u64);

/// The model at `path`, or the one that stands in, for who looks at it or hands it to a device.
pub(crate) fn model(path: Option<&Path>) -> Result<Model> {
    model_telling(path, &|_, _| ())
}

/// The same; `told` hears how far the making of one that stands in is.
pub(crate) fn model_telling(path: Option<&Path>, told: Told<'_>) -> Result<Model> {
    Ok(Model::open(&at(path, told)?)?)
}

/// The same for what runs there: the CPU reads weights faster from memory than from a mapped file.
pub(crate) fn model_to_run(path: Option<&Path>, on: &ExecutorArgs) -> Result<Model> {
    let mut model = model(path)?;
    copy_weights(&mut model, on, &|_, _| ())?;
    Ok(model)
}

/// Copies weights into memory, and puts their rows side by side for the kernels that are to run, if the CPU is to
/// read them and nobody said to leave them in the file.
pub(crate) fn copy_weights(model: &mut Model, on: &ExecutorArgs, told: Told<'_>) -> Result<()> {
    if on.mmap || device::asked(on).is_some() {
        return Ok(());
    }
    let kernels = kernels(on)?;
    copy(model, told)?;
    interleave(model, kernels);
    Ok(())
}

/// Copies weights into memory.
pub(crate) fn copy(model: &mut Model, told: Told<'_>) -> Result<()> {
    let bar = progress::bytes("loading", 0);
    let copied = model.copy_into_memory(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        told(done, total);
    });
    bar.finish_and_clear();
    Ok(copied?)
}

/// Puts rows of weights side by side, if they are in memory and these kernels read them faster so.
pub(crate) fn interleave(model: &mut Model, kernels: Kernels) {
    let bar = progress::bytes("arranging", 0);
    model.interleave(kernels, all_threads(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
}

/// As many as this process may use.
fn all_threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn at(path: Option<&Path>, told: Told<'_>) -> Result<PathBuf> {
    path.map_or_else(|| stand_in(told), |path| Ok(path.to_owned()))
}

/// The folder for what was made or measured once and is of use again.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    match std::env::var_os("BRICKSCOPE_CACHE") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => Ok(dirs::cache_dir()
            .context("this system names no cache folder: name one in BRICKSCOPE_CACHE")?
            .join("brickscope")),
    }
}

fn stand_in(told: Told<'_>) -> Result<PathBuf> {
    let cache = cache_folder()?;
    let bar = progress::bytes("making", 0);
    let made =
        synth::cached(DEFAULT_SHAPE, DEFAULT_QUANT, DEFAULT_SEED, &cache, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
            told(done, total);
        });
    bar.finish_and_clear();
    made.with_context(|| format!("the model that stands in can't be made in {}", cache.display()))
}

/// The tokens of a prompt, at least one.
pub(crate) fn prompt(model: &Model, text: &str) -> Result<Vec<u32>> {
    let prompt = model.encode(text, Default::default())?;
    if prompt.is_empty() {
        bail!("the prompt has no tokens: there is nothing to go on from");
    }
    Ok(prompt)
}

/// The kernels that were asked for.
fn kernels(args: &ExecutorArgs) -> Result<Kernels> {
    match args.backend {
        Some(backend) => Kernels::new(backend).context("--backend"),
        None => Ok(Kernels::best()),
    }
}

/// The executor that was asked for.
pub(crate) fn cpu(args: &ExecutorArgs) -> Result<Cpu> {
    let kernels = kernels(args)?;
    if let Some(caveat) = kernels.backend().caveat() {
        eprintln!("note: {caveat}");
    }
    let threads = args.threads.unwrap_or_else(all_threads);
    Cpu::new(kernels, threads)
        .with_context(|| format!("--threads: the system can't start {threads} threads"))
}

/// What a profile says of a model.
pub(crate) fn describe(model: &Model) -> brickscope::Model {
    let metadata = &model.gguf.metadata;
    let name = metadata.opt_str("general.name").ok().flatten().map(str::to_owned);
    let synthetic = name.as_deref().is_some_and(|name| name.starts_with("brickscope-synth-"));
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
    }
}

/// What a mapped file is called where it is said where weights are.
pub(crate) const MAPPED: &str = "mapped file";

/// Where the weights are, if a file is open, and whether in another order than there.
pub(crate) fn weights_in(model: &Model) -> Option<String> {
    let order = if model.interleaved().is_some() { ", rows interleaved" } else { "" };
    place(model).map(|place| format!("{place}{order}"))
}

fn place(model: &Model) -> Option<&'static str> {
    match model.gguf.placement() {
        Placement::Mapped => Some(MAPPED),
        // The last page of a file is rarely a whole one.
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
