//! Where a model comes from, and what runs it.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope_engine::executor::Cpu;
use brickscope_engine::synth::{self, Shape, SynthQuant};
use brickscope_engine::{Architecture, Model};
use brickscope_kernels::Kernels;

use crate::args::ExecutorArgs;
use crate::progress;

/// The model that stands in where none is given.
pub(crate) const DEFAULT_SHAPE: Shape = Shape::M110;
pub(crate) const DEFAULT_QUANT: SynthQuant = SynthQuant::Q8_0;
pub(crate) const DEFAULT_SEED: u64 = 1;

/// The model at `path`, or the one that stands in.
pub(crate) fn model(path: Option<&Path>) -> Result<Model> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => stand_in()?,
    };
    Ok(Model::open(&path)?)
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

fn stand_in() -> Result<PathBuf> {
    let cache = cache_folder()?;
    let bar = progress::bytes("making", 0);
    let made =
        synth::cached(DEFAULT_SHAPE, DEFAULT_QUANT, DEFAULT_SEED, &cache, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
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

/// The executor that was asked for.
pub(crate) fn cpu(args: &ExecutorArgs) -> Result<Cpu> {
    let kernels = match args.backend {
        Some(backend) => Kernels::new(backend).context("--backend")?,
        None => Kernels::best(),
    };
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
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
    }
}
