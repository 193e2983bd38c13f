//! A run of the engine in this process, with something planted between its passes.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use brickscope::{BrickProfiler, Model as Described, Run};
use brickscope_engine::executor::Cpu;
use brickscope_engine::{AnySession, GenerateOptions, Model, Sampling, Session, generate};
use brickscope_kernels::Kernels;

use crate::unmap::{Pages, unmap};

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
        // It ends soon after this process, and must not keep its standard error open until then.
        let own = std::env::current_exe()?;
        let pid = std::process::id().to_string();
        Command::new(own).args(["stopper", &pid]).stderr(Stdio::null()).spawn()?;
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
            "unmapped" => failed = unmap(path, Pages::Unmapped).err(),
            "slow-disk" => failed = unmap(path, Pages::Dropped).err(),
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
