//! From a prompt to an answer, profiled or not.

use brickscope::{BrickId, BrickProfiler, Phase};

use crate::executor::work;
use crate::forward::Outputs;
use crate::model::Error;
use crate::probe::{NoProbe, Probe};
use crate::sample::{Sampler, Sampling};
use crate::session::Session;

/// How to go on from a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// Tokens to generate.
    pub n_tokens: usize,
    /// How to choose them.
    pub sampling: Sampling,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The tokens, in order. A token that ends the text is among them, and doesn't stop the run:
    /// runs are to be comparable.
    pub tokens: Vec<u32>,
}

/// Runs `prompt` and goes on from there.
///
/// With a profiler, each pass contains the forward pass and, where its logits are used, the
/// sampling of the token that follows. `progress` is told after each pass how many tokens have been
/// processed, of the prompt and of the answer.
///
/// # Errors
///
/// If there is no prompt, it doesn't fit the context together with the answer, or the vocabulary
/// doesn't have one of its tokens.
pub fn generate(
    session: &mut Session<'_>,
    profiler: Option<&BrickProfiler>,
    prompt: &[u32],
    options: GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Generated, Error> {
    session.check_run(prompt, options.n_tokens)?;
    match profiler {
        None => Ok(run(session, &NoProbe, None, prompt, options, progress)),
        Some(profiler) => {
            let probe = session.profiled(profiler);
            Ok(run(session, &probe, Some(profiler), prompt, options, progress))
        }
    }
}

fn run<P: Probe>(
    session: &mut Session<'_>,
    probe: &P,
    profiler: Option<&BrickProfiler>,
    prompt: &[u32],
    options: GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Generated {
    let mut sampler = Sampler::new(options.sampling);
    let mut tokens = Vec::with_capacity(options.n_tokens);
    let mut done = 0;
    let mut step = |session: &mut Session<'_>, phase, input: &[u32], samples: bool| {
        let position = session.position() as u64;
        let timer = profiler.map(|profiler| profiler.begin_pass(phase));
        let outputs = if samples { Outputs::Last } else { Outputs::None };
        let logits = session.pass(probe, input, outputs);
        let next = samples.then(|| {
            let work = work::sample(logits.len());
            probe.brick(BrickId::Sampling, work, || sampler.sample(logits))
        });
        if let (Some(profiler), Some(timer)) = (profiler, timer) {
            profiler.end_pass(timer, input.len() as u64, position);
        }
        // After the pass, so that drawing a bar is nobody's time.
        done += input.len();
        progress(done);
        next
    };
    let mut passes = session.passes(prompt).peekable();
    let mut next = None;
    while let Some(pass) = passes.next() {
        let samples = passes.peek().is_none() && options.n_tokens > 0;
        next = step(session, Phase::Prefill, pass, samples);
    }
    while let Some(token) = next.take() {
        tokens.push(token);
        if tokens.len() < options.n_tokens {
            next = step(session, Phase::Decode, &[token], true);
        }
    }
    Generated { tokens }
}
