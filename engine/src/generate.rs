//! Generation: from a prompt to an answer, profiled or not.

use std::ops::ControlFlow;

use brickscope::{NotFinite, Phase};

use crate::any_session::{AnyProbe, AnySession};
use crate::error::Error;
use crate::finite::LogitsSeen;
use crate::forward::Outputs;
use crate::not_finite::not_finite;
use crate::sample::{Sampler, Sampling};

/// How to continue a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// Tokens to generate.
    pub n_tokens: usize,
    /// How to choose them.
    pub sampling: Sampling,
}

/// The answer to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The tokens, in order. A token that ends the text is included and doesn't stop the run, so that runs stay
    /// comparable.
    pub tokens: Vec<u32>,
    /// The logits that they were chosen from.
    pub logits: LogitsSeen,
}

impl Generated {
    /// Says of logits that weren't all numbers where that began: see [`not_finite`](crate::not_finite()). `session` is
    /// one on which `prompt` was answered, or one like it.
    ///
    /// # Errors
    ///
    /// If the prompt doesn't fit the session, or the device fails.
    pub fn not_finite(
        &self,
        session: &mut dyn AnySession<'_>,
        prompt: &[u32],
    ) -> Result<Option<NotFinite>, Error> {
        // The first logits are those of the prompt; each further token is a pass.
        let answered = self.logits.first.map_or(0, |first| first as usize);
        let answered = self.tokens.chunks(1).take(answered);
        let passes = std::iter::once(prompt).chain(answered);
        not_finite(self.logits, session, passes, Outputs::Last)
    }
}

/// Runs `prompt` and generates what follows.
///
/// With a probe ([`AnySession::probe`]), each pass contains the forward pass and, where its logits are used, the
/// sampling of the next token. After each pass `go_on` gets the number of tokens processed so far, of prompt and
/// answer together, and says whether to go on: after a `Break` the answer is what there is of it.
///
/// # Errors
///
/// If the prompt is empty, the vocabulary lacks one of its tokens, it doesn't fit the context together with the
/// answer, or the device fails. What the device had reported before is in the profile then.
///
/// # Panics
///
/// If the probe is of a session on another kind of executor.
pub fn generate(
    session: &mut dyn AnySession<'_>,
    mut probe: Option<&mut AnyProbe<'_>>,
    prompt: &[u32],
    options: GenerateOptions,
    go_on: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Generated, Error> {
    session.check_run(prompt, options.n_tokens)?;
    let mut sampler = Sampler::new(options.sampling);
    let mut tokens = Vec::with_capacity(options.n_tokens);
    let mut done = 0;
    let batch = session.batch();
    let mut step = |phase, input: &[u32], samples: bool| {
        let position = session.position() as u64;
        let timer = probe.as_deref().map(|probe| probe.profiler().begin_pass(phase));
        let probed = probe.as_deref_mut().zip(timer.as_ref());
        let next = session.pass(probed, phase, input, samples.then_some(&mut sampler));
        if let Some((probe, timer)) = probe.as_deref().zip(timer) {
            probe.profiler().end_pass(timer, input.len() as u64, position);
        }
        // After the pass, so that drawing a progress bar isn't part of it.
        done += input.len();
        let flow = go_on(done);
        next.map(|next| (next, flow))
    };
    let mut passes = prompt.chunks(batch).peekable();
    let mut next = None;
    let mut flow = ControlFlow::Continue(());
    while flow.is_continue()
        && let Some(pass) = passes.next()
    {
        let samples = passes.peek().is_none() && options.n_tokens > 0;
        (next, flow) = step(Phase::Prefill, pass, samples)?;
    }
    while let Some(token) = next.take() {
        tokens.push(token);
        if flow.is_continue() && tokens.len() < options.n_tokens {
            (next, flow) = step(Phase::Decode, &[token], true)?;
        }
    }
    Ok(Generated { tokens, logits: sampler.seen() })
}
