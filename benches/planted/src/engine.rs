//! A run of the engine in this process, with something planted between its passes.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use brickscope::{BrickProfiler, Model as Described, Run};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Pages;
use brickscope_engine::{AnySession, GenerateOptions, Model, Sampling, Session, generate};
use brickscope_kernels::Kernels;

use crate::unmap::{Unmap, unmap};

/// Runs the model with its weights in the mapped file, and writes the run.
pub(crate) fn run(plant: &str, path: &Path, tokens: usize, out: &Path) -> Result<()> {
    let model = Model::open(path)?;
    let prompt = model.encode("A profiler is an instrument.", Default::default())?;
    let threads = thread::available_parallelism()?;
    let cpu = Cpu::new(Kernels::best(), threads)?;
    let mut session = Session::new(&model, cpu, prompt.len() + tokens)?;
    session.forward(&prompt)?;
    session.clear();
    let profiler = Arc::new(BrickProfiler::new().with_log_capacity(1 << 18));
    profiler.enable();
    let mut probe = session.probe(&profiler)?;
    if plant == "stalls" {
        // It ends once this process is waited for, so it must keep none of its pipes open until then.
        let own = std::env::current_exe()?;
        let pid = std::process::id().to_string();
        Command::new(own)
            .args(["stopper", &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
    }
    let options = GenerateOptions { n_tokens: tokens, sampling: Sampling::Greedy };
    let mut failed = None;
    let mut after_each = |_: usize| {
        match plant {
            "none" | "stalls" => {}
            // Not asleep: threads that have to be woken would slow down the pass, too.
            "gaps" => {
                let until = Instant::now() + Duration::from_millis(2);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            "unmapped" => failed = unmap(path, Unmap::Keep).err(),
            "slow-disk" => failed = unmap(path, Unmap::Drop).err(),
            _ => return ControlFlow::Break(()),
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = generate(&mut session, Some(&mut probe), &prompt, options, &mut after_each)?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if made.tokens.len() < tokens {
        bail!("there is no plant `{plant}`");
    }
    profiler.disable();
    let mut profile = profiler.profile();
    profile.machine = Some(brickscope::machine::detect());
    profile.run = Some(Run {
        command: std::env::args().collect(),
        backend: Kernels::best().backend().name().to_owned(),
        threads: threads.get() as u32,
        prompt_tokens: prompt.len() as u64,
        generated_tokens: tokens as u64,
        ..Run::default()
    });
    profile.model = Some(Described {
        path: path.display().to_string(),
        quantization: model.quantization(),
        file_bytes: model.gguf.file_len() as u64,
        parameters: model.n_parameters(),
        layers: model.config.n_layers as u32,
        weights_in: Some("mapped file".to_owned()),
        ..Described::default()
    });
    profile.save_run(out)?;
    Ok(())
}

/// Decode passes of one model in a row.
const ROW: usize = 8;

/// What a decode pass takes, in nanoseconds: of the model with the plant, and of that without it. Their passes run in turns,
/// [`ROW`] of one and then of the other, after `position` tokens; each round gives the pair of their medians. `MODEL:small` has its weights in small
/// pages, `MODEL:large` in large ones. Runs in processes of their own would differ by more than what is gained, where
/// memory's speed changes every few seconds.
pub(crate) fn in_turns(
    names: [&str; 2],
    threads: NonZeroUsize,
    rounds: usize,
    position: usize,
) -> Result<Vec<(f64, f64)>> {
    let load = |name: &str| {
        let (path, pages) = match name.rsplit_once(':') {
            Some((path, "small")) => (path, Pages::Small),
            Some((path, "large")) => (path, Pages::Large),
            _ => bail!("`{name}` is not MODEL:small or MODEL:large"),
        };
        let mut model = Model::open(Path::new(path))?;
        model.copy_into_memory(pages, &mut |_, _| ())?;
        model.interleave(Kernels::best(), threads, &mut |_, _| ());
        anyhow::Ok(model)
    };
    let models = [load(names[0])?, load(names[1])?];
    let mut prompt = models[0].encode("Hi", Default::default())?;
    prompt.resize(prompt.len().max(position), prompt[0]);
    let session = |model| {
        let cpu = Cpu::new(Kernels::best(), threads)?;
        let mut session = Session::new(model, cpu, prompt.len() + rounds * ROW)?;
        session.forward(&prompt)?;
        anyhow::Ok(session)
    };
    let mut sessions = [session(&models[0])?, session(&models[1])?];
    let mut times = Vec::new();
    for round in 0..rounds {
        let mut medians = [0.0; 2];
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let mut row = Vec::new();
            for _ in 0..ROW {
                let begin = Instant::now();
                sessions[which].forward(&prompt[..1])?;
                row.push(begin.elapsed().as_nanos() as f64);
            }
            row.sort_by(f64::total_cmp);
            medians[which] = row[ROW / 2];
        }
        times.push(medians.into());
    }
    Ok(times)
}
