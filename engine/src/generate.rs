//! From a prompt to an answer, profiled or not.

use brickscope::{BrickId, BrickProfiler, PassTimer, Phase};

use crate::executor::gpu::{Gpu, GpuProbe, GpuSession};
use crate::executor::work;
use crate::forward::Outputs;
use crate::model::Error;
use crate::probe::{NoProbe, Profiled};
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
    let probe = profiler.map(|profiler| session.profiled(profiler));
    run(&mut OnCpu { session, probe: probe.as_ref() }, prompt, options, progress)
}

/// As [`generate`], on a device.
///
/// # Errors
///
/// As [`generate`], and by the device. What was settled before is in the profile then.
pub fn generate_on<G: Gpu>(
    session: &mut GpuSession<'_, G>,
    probe: Option<&mut GpuProbe<'_>>,
    prompt: &[u32],
    options: GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Generated, Error> {
    session.check_run(prompt, options.n_tokens)?;
    run(&mut OnDevice { session, probe }, prompt, options, progress)
}

/// A session, and who is told of its passes.
trait Runs {
    fn position(&self) -> usize;
    fn batch(&self) -> usize;
    fn profiler(&self) -> Option<&BrickProfiler>;
    /// One pass, which has begun if a profiler is told; then, if its logits are wanted, the token that `sampler`
    /// chooses, as a brick.
    fn pass(
        &mut self,
        phase: Phase,
        begun: Option<&PassTimer>,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error>;
}

struct OnCpu<'r, 'm> {
    session: &'r mut Session<'m>,
    probe: Option<&'r Profiled<'r>>,
}

impl Runs for OnCpu<'_, '_> {
    fn position(&self) -> usize {
        self.session.position()
    }

    fn batch(&self) -> usize {
        self.session.batch()
    }

    fn profiler(&self) -> Option<&BrickProfiler> {
        self.probe.map(Profiled::profiler)
    }

    fn pass(
        &mut self,
        _: Phase,
        begun: Option<&PassTimer>,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error> {
        let outputs = if sampler.is_some() { Outputs::Last } else { Outputs::None };
        Ok(match self.probe.zip(begun) {
            Some((probe, begun)) => {
                self.session.profiled_pass(probe, begun, tokens, outputs, sampler)
            }
            None => self.session.pass_and_sample(&NoProbe, tokens, outputs, sampler),
        })
    }
}

struct OnDevice<'r, 'm, 'p, G> {
    session: &'r mut GpuSession<'m, G>,
    probe: Option<&'r mut GpuProbe<'p>>,
}

impl<G: Gpu> Runs for OnDevice<'_, '_, '_, G> {
    fn position(&self) -> usize {
        self.session.position()
    }

    fn batch(&self) -> usize {
        self.session.batch()
    }

    fn profiler(&self) -> Option<&BrickProfiler> {
        self.probe.as_ref().map(|probe| probe.profiler)
    }

    fn pass(
        &mut self,
        phase: Phase,
        _: Option<&PassTimer>,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error> {
        let outputs = if sampler.is_some() { Outputs::Last } else { Outputs::None };
        let logits = self.session.pass(self.probe.as_deref_mut(), phase, tokens, outputs)?;
        Ok(sampler.map(|sampler| {
            let Some(probe) = &self.probe else { return sampler.sample(logits) };
            let timer = probe.profiler.start_brick(BrickId::Sampling);
            let token = sampler.sample(logits);
            probe.profiler.stop_brick_with(timer, work::sample(logits.len()));
            token
        }))
    }
}

fn run(
    on: &mut impl Runs,
    prompt: &[u32],
    options: GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Generated, Error> {
    let mut sampler = Sampler::new(options.sampling);
    let mut tokens = Vec::with_capacity(options.n_tokens);
    let mut done = 0;
    let batch = on.batch();
    let mut step = |phase, input: &[u32], samples: bool| {
        let position = on.position() as u64;
        let timer = on.profiler().map(|profiler| profiler.begin_pass(phase));
        let next = on.pass(phase, timer.as_ref(), input, samples.then_some(&mut sampler));
        if let (Some(profiler), Some(timer)) = (on.profiler(), timer) {
            profiler.end_pass(timer, input.len() as u64, position);
        }
        // After the pass, so that drawing a bar is nobody's time.
        done += input.len();
        progress(done);
        next
    };
    let mut passes = prompt.chunks(batch).peekable();
    let mut next = None;
    while let Some(pass) = passes.next() {
        let samples = passes.peek().is_none() && options.n_tokens > 0;
        next = step(Phase::Prefill, pass, samples)?;
    }
    while let Some(token) = next.take() {
        tokens.push(token);
        if tokens.len() < options.n_tokens {
            next = step(Phase::Decode, &[token], true)?;
        }
    }
    Ok(Generated { tokens })
}
