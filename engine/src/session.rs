//! A session on the CPU: the KV cache, room for a pass, and the ways to run one.

use std::sync::Arc;

use brickscope::{
    BrickId, BrickProfiler, KernelId, PassTemplate, PassTimer, Phase, UnlabelledPass,
};
use brickscope_kernels::Watch;

use crate::cpu::{Cpu, Deal, Shares};
use crate::error::Error;
use crate::forward::{Outputs, Pass, Scratch, deals_of_attention, passes};
use crate::kv_cache::KvCache;
use crate::model::Model;
use crate::probe::{NoProbe, Probe, Profiled};
use crate::routines::Routines;
use crate::sample::Sampler;
use crate::tap::Tapped;
use crate::template::{Timed, Walk, template};
use crate::value::At;
use crate::work;

/// The most tokens in one pass. Longer inputs take several.
const BATCH: usize = 128;

/// Runs tokens through a model, one after the other or in batches.
#[derive(Debug)]
pub struct Session<'m> {
    model: &'m Model,
    cpu: Cpu,
    routines: Routines,
    scratch: Scratch,
    batch: usize,
    kv: KvCache,
    /// Room for the readings of a pass, allocated before it so that no time in it is unaccounted for.
    readings: Vec<u64>,
    /// The template of the last pass that was labelled afterwards.
    template: Option<Template>,
}

/// What decides which bricks and kernels a decode pass runs: how attention's rows are dealt out, how many tokens'
/// logits are computed, and whether a token is sampled.
type PassShape = ([Deal; 2], usize, bool);

/// What labels the readings of decode passes of one shape.
#[derive(Debug)]
struct Template {
    shape: PassShape,
    /// The profiler's numbers for the routines.
    kernels: Box<[KernelId]>,
    template: PassTemplate,
}

impl<'m> Session<'m> {
    /// A session with room for `context` tokens.
    ///
    /// # Errors
    ///
    /// If that is more than the model's context length, or there isn't the memory.
    pub fn new(model: &'m Model, cpu: Cpu, context: usize) -> Result<Self, Error> {
        let limit = model.config.context_length;
        if context > limit {
            let key = format!("{}.context_length", model.config.architecture.name());
            let file = model.gguf.path.clone();
            let limit = format!("`{key}` says so");
            let room = model.config.context_length;
            return Err(Error::Context { file, asked: context, room, limit });
        }
        let batch = BATCH.min(context.max(1));
        let floats = KvCache::floats(&model.config, context)
            + Scratch::floats(&model.config, batch, context.max(1));
        let bytes = floats * size_of::<f32>() as u128;
        // Tried as a whole and given back, since an allocation that fails later aborts the process.
        let granted = usize::try_from(bytes)
            .is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
        if !granted {
            let file = model.gguf.path.clone();
            return Err(Error::Memory { file, context, bytes });
        }
        Ok(Self {
            model,
            routines: Routines::new(&cpu, &model.weights, &model.config),
            scratch: Scratch::new(model, batch, context.max(1)),
            batch,
            kv: KvCache::new(&model.config, context),
            readings: Timed::room(model.config.n_layers),
            template: None,
            cpu,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// The executor.
    #[must_use]
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The kernels that it uses.
    #[must_use]
    pub fn routines(&self) -> &Routines {
        &self.routines
    }

    /// The most tokens in one pass.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.kv.len()
    }

    /// Tokens that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.kv.capacity() - self.position()
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.kv.clear();
    }

    /// Goes back to `position`: forgets all tokens but the first `position`. The same tokens then give
    /// the same bits again. Does nothing if there are no more than that; never panics.
    pub fn truncate(&mut self, position: usize) {
        self.kv.truncate(position);
    }

    /// Runs `tokens` after those so far; returns the logits that follow the last of them.
    ///
    /// # Errors
    ///
    /// If there are no tokens, they don't fit the context, or the vocabulary lacks one of them.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        self.check(tokens)?;
        for (pass, outputs) in passes(tokens, self.batch) {
            self.pass(&NoProbe, pass, outputs);
        }
        Ok(self.last_logits())
    }

    /// As [`forward`](Self::forward), by the same code, and reports each pass, layer, brick and kernel to
    /// `profiler`. One token after others is a decode pass, anything else is prefill. Decode passes only read the clock
    /// and are reported when they are over ([`BrickProfiler::timestamps_of`]); prefill is reported while it runs.
    ///
    /// Each call first looks up the kernels' names, which takes some microseconds. For many short calls, call
    /// [`profiled`](Self::profiled) once and then [`forward_with`](Self::forward_with).
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_profiled(
        &mut self,
        profiler: &BrickProfiler,
        tokens: &[u32],
    ) -> Result<&[f32], Error> {
        self.forward_with(&self.profiled(profiler), tokens)
    }

    /// From the next pass on, also reports each thread's share of each kernel to `profiler`: a span on the
    /// thread itself, inside the kernel by a hand-off. `None` turns that off. It takes about five spans
    /// per kernel, which inflates the times of short kernels. Sessions with clones of one executor
    /// share its threads, and so the profiler.
    pub fn profile_shares(&self, profiler: Option<&Arc<BrickProfiler>>) {
        let shares =
            |profiler| Arc::new(Shares::new(profiler, self.cpu.threads())) as Arc<dyn Watch>;
        self.cpu.pool().watch(profiler.map(shares));
    }

    /// From the next profiled pass on, also times the tiles of products of several tokens: each thread's
    /// share, the cache blocks it is cut into, and the runs of register tiles in those. Call it while profiling
    /// is on, so that this session's threads allocate their logs now.
    /// [`BrickProfiler::disable_tile_profiling`] turns it off.
    pub fn profile_tiles(&self, profiler: &BrickProfiler) {
        profiler.enable_tile_profiling();
        self.cpu.pool().run(&|_| profiler.prepare_thread());
    }

    /// A probe that reports to `profiler`. Registers this session's kernels and the size of its KV cache there.
    #[must_use]
    pub fn profiled<'p>(&self, profiler: &'p BrickProfiler) -> Profiled<'p> {
        profiler.set_kv_cache_tokens(self.kv.capacity() as u64);
        Profiled::new(profiler, &self.routines)
    }

    /// As [`forward_profiled`](Self::forward_profiled), with a probe made by this session, or by another
    /// of the same model on an executor like this one's.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    ///
    /// # Panics
    ///
    /// With a probe of another model, kernels get wrong names, or this panics as there are too few.
    pub fn forward_with(&mut self, probe: &Profiled<'_>, tokens: &[u32]) -> Result<&[f32], Error> {
        self.timed(probe.profiler(), tokens, |session, pass, tokens, outputs| {
            session.profiled_pass(probe, pass, tokens, outputs, None);
        })
    }

    /// One pass over checked tokens, at most a batch. With a `sampler` it returns the token that follows; that choice
    /// is a brick. The caller has begun the pass.
    pub(crate) fn profiled_pass(
        &mut self,
        probe: &Profiled<'_>,
        pass: &PassTimer,
        tokens: &[u32],
        outputs: Outputs,
        mut sampler: Option<&mut Sampler>,
    ) -> Option<u32> {
        let profiler = probe.profiler();
        // Passes of several tokens are long, and live views want their bricks while they run; a first pass has no
        // position before it to walk; and shares of threads need an open brick to lie in.
        let is_short = tokens.len() == 1 && self.position() > 0 && !self.cpu.pool().is_watched();
        let mut room = std::mem::take(&mut self.readings);
        if room.is_empty() {
            // An earlier pass panicked while it had the readings.
            room = Timed::room(self.model.config.n_layers);
        }
        let readings = is_short.then(|| profiler.timestamps_of(pass, &mut room)).flatten();
        let chosen = match readings.map(Timed::new) {
            Some(timed) => {
                let chosen = self.run(&timed, tokens, outputs, sampler.as_deref_mut());
                if let Some(pass) = timed.end() {
                    self.label(pass, probe, tokens, outputs, sampler);
                }
                chosen
            }
            None if !profiler.is_enabled() => self.run(&NoProbe, tokens, outputs, sampler),
            None => self.run(probe, tokens, outputs, sampler),
        };
        self.readings = room;
        self.kv.advance(tokens.len());
        chosen
    }

    /// Labels the readings of a decode pass; the cache hasn't been advanced yet.
    fn label(
        &mut self,
        pass: UnlabelledPass<'_>,
        probe: &Profiled<'_>,
        tokens: &[u32],
        outputs: Outputs,
        mut sampler: Option<&mut Sampler>,
    ) {
        let position = self.position();
        let deals = deals_of_attention(&self.cpu, &self.model.config, position, 1);
        let shape = (deals, outputs.count(1), sampler.is_some());
        let fits = |kept: &Template| kept.shape == shape && *kept.kernels == *probe.kernels();
        if !self.template.as_ref().is_some_and(fits) {
            let walks = [position - 1, position]
                .map(|at| self.walk(at, tokens, outputs, sampler.as_deref_mut()));
            let kernels = probe.kernels();
            self.template = template(walks, position, kernels).map(|template| Template {
                shape,
                kernels: kernels.into(),
                template,
            });
        }
        debug_assert!(self.template.is_some(), "the position changes the work, not the bricks");
        // Without a template, the readings are counted as unfinished.
        if let Some(Template { template, .. }) = &self.template {
            pass.label(template, position as u64);
        }
    }

    /// Walks a pass at position `at`, which is not after the session's, without running its kernels.
    #[cold]
    #[inline(never)]
    fn walk(
        &mut self,
        at: usize,
        tokens: &[u32],
        outputs: Outputs,
        sampler: Option<&mut Sampler>,
    ) -> Walk {
        let position = self.position();
        self.kv.truncate(at);
        let walk = Walk::default();
        self.run(&walk, tokens, outputs, sampler);
        self.kv.advance(position - at);
        walk
    }

    /// As [`forward`](Self::forward), and reports each pass to `profiler` but nothing inside it: the wall times
    /// are those of passes without a probe.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_passes(
        &mut self,
        profiler: &BrickProfiler,
        tokens: &[u32],
    ) -> Result<&[f32], Error> {
        self.timed(profiler, tokens, |session, _, tokens, outputs| {
            session.pass(&NoProbe, tokens, outputs);
        })
    }

    fn timed(
        &mut self,
        profiler: &BrickProfiler,
        tokens: &[u32],
        run: impl Fn(&mut Self, &PassTimer, &[u32], Outputs),
    ) -> Result<&[f32], Error> {
        self.check(tokens)?;
        let decodes = tokens.len() == 1 && self.position() > 0;
        let phase = if decodes { Phase::Decode } else { Phase::Prefill };
        for (pass, outputs) in passes(tokens, self.batch) {
            let position = self.position() as u64;
            let timer = profiler.begin_pass(phase);
            run(self, &timer, pass, outputs);
            profiler.end_pass(timer, pass.len() as u64, position);
        }
        Ok(self.last_logits())
    }

    /// Runs `tokens` after those so far; returns the logits that follow each of them, one row of
    /// the vocabulary after the other.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn all_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        let mut all = Vec::new();
        for pass in tokens.chunks(self.batch) {
            all.extend_from_slice(self.pass(&NoProbe, pass, Outputs::All));
        }
        Ok(all)
    }

    /// As [`forward`](Self::forward). `tap` sees each value of each pass when it has been made, and
    /// may change it before anything reads it.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_tapped(
        &mut self,
        tokens: &[u32],
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<&[f32], Error> {
        self.check(tokens)?;
        for (pass, outputs) in passes(tokens, self.batch) {
            self.pass(&Tapped::new(self.position(), pass.len(), tap), pass, outputs);
        }
        Ok(self.last_logits())
    }

    /// One pass over checked tokens, at most a batch.
    pub(crate) fn pass<P: Probe>(&mut self, probe: &P, tokens: &[u32], outputs: Outputs) -> &[f32] {
        self.pass_and_sample(probe, tokens, outputs, None);
        self.last_logits()
    }

    /// The same; with a `sampler` it also chooses the token that follows, as a brick.
    pub(crate) fn pass_and_sample<P: Probe>(
        &mut self,
        probe: &P,
        tokens: &[u32],
        outputs: Outputs,
        sampler: Option<&mut Sampler>,
    ) -> Option<u32> {
        let chosen = self.run(probe, tokens, outputs, sampler);
        self.kv.advance(tokens.len());
        chosen
    }

    /// The same without advancing the cache. Out of line, so that all callers of unprofiled passes run the same code.
    #[inline(never)]
    fn run<P: Probe>(
        &mut self,
        probe: &P,
        tokens: &[u32],
        outputs: Outputs,
        sampler: Option<&mut Sampler>,
    ) -> Option<u32> {
        let Self { model, cpu, routines, scratch, kv, .. } = self;
        let pass = Pass::new(model, cpu, routines, probe, kv.len(), tokens.len());
        let logits = pass.forward(scratch, kv, tokens, outputs);
        let work = work::sample(logits.len());
        sampler.map(|sampler| {
            let mut chosen = 0;
            probe.brick(BrickId::Sampling, work, || chosen = sampler.sample(logits));
            chosen
        })
    }

    /// The logits of the last pass that computed any. Empty before the first one.
    #[must_use]
    pub fn last_logits(&self) -> &[f32] {
        self.scratch.last_logits()
    }

    /// Checks that `tokens` can be run.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        self.model.check_tokens(tokens, self.position(), self.kv.capacity())
    }

    /// Checks that `prompt` can be run and `n_tokens` be chosen after it. The last token is chosen and not run.
    pub(crate) fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error> {
        self.model.check_run(prompt, n_tokens, self.position(), self.kv.capacity())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use brickscope_kernels::Kernels;

    use super::*;
    use crate::sample::Sampling;

    /// All about each span but its times, with the distance to its parent.
    fn spans(profiler: &BrickProfiler) -> Vec<String> {
        let profile = profiler.profile();
        assert_eq!(profile.dropped.unfinished, 0);
        assert_eq!(profile.passes.len(), 1);
        let pass = &profile.passes[0];
        let spans = profile.spans.iter().zip(0..).map(|(span, i)| {
            let name = span.name.map(|name| &profile.names[usize::from(name)]);
            let up = span.parent.map(|parent| i - parent);
            format!("{name:?} {:?} {up:?} {:?} {:?}", span.layer, span.work, span.source)
        });
        // The spans end before the pass does.
        assert!(pass.wall_ns >= profile.spans.iter().map(|span| span.exclusive_ns).sum());
        spans.collect()
    }

    #[test]
    fn the_graph_of_profiled_passes_has_their_layers_bricks_and_kernels() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
        let model = Model::open(&models.join("tiny-Q8_0.gguf")).expect("a model");
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("an executor");
        let mut session = Session::new(&model, cpu, 64).expect("memory");
        let profiler = BrickProfiler::enabled();
        profiler.enable_graph();
        session.forward_profiled(&profiler, &[1, 5, 9]).expect("they fit");
        session.forward_profiled(&profiler, &[2]).expect("it fits");
        let graph = profiler.execution_graph();
        let count = |name: &str| graph.nodes_by_name(name).count();
        assert_eq!((count("Prefill pass"), count("Decode pass")), (1, 1));
        let layers = 2 * model.config.n_layers;
        assert_eq!((count("QkvProjection"), count("Layer 0")), (layers, 2));
        assert!(graph.kernel_nodes().count() > layers);
        let (path, total) = graph.critical_path();
        let walls: u64 = profiler.profile().passes.iter().map(|pass| pass.wall_ns).sum();
        assert!(total >= walls, "one pass comes after the other: {total} of {walls}");
        assert!(path.iter().any(|&id| graph.node(id).is_some_and(|node| node.is_kernel())));
        let categories = profiler.category_stats();
        assert!(categories[..3].iter().all(|category| category.total_ns > 0), "{categories:?}");
    }

    #[test]
    fn a_pass_that_is_labelled_afterwards_has_the_spans_of_one_that_is_reported_at_once() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
        let two = NonZeroUsize::MIN.saturating_add(1);
        // Plain; with biases; with norms inside of blocks; with another function in the gate.
        for model in
            ["tiny-Q8_0", "tiny-qwen2-Q4_K_M", "tiny-bitnet-TQ2_0", "tiny-bitnet-b158-I2_S"]
        {
            let model = Model::open(&models.join(model).with_extension("gguf")).expect("a model");
            let cpu = Cpu::new(Kernels::best(), two).expect("an executor");
            let mut session = Session::new(&model, cpu, 256).expect("memory");
            session.forward(&[1; 200]).expect("it fits");
            // The first makes the template, the others use it; on two threads attention is dealt out from some on.
            for position in [200, 150, 149, 9, 2, 1] {
                let [at_once, late] = [false, true].map(|late| {
                    let profiler = BrickProfiler::enabled();
                    let probe = session.profiled(&profiler);
                    let sampler = &mut Sampler::new(Sampling::Greedy);
                    session.truncate(position);
                    let pass = profiler.begin_pass(Phase::Decode);
                    let (tokens, outputs) = (&[4], Outputs::Last);
                    let chosen = if late {
                        session.profiled_pass(&probe, &pass, tokens, outputs, Some(sampler))
                    } else {
                        session.pass_and_sample(&probe, tokens, outputs, Some(sampler))
                    };
                    profiler.end_pass(pass, 1, position as u64);
                    assert_eq!(session.position(), position + 1);
                    // Made when readings are labelled, and never otherwise.
                    assert!(session.template.is_some() || !late);
                    (chosen, session.last_logits().to_vec(), spans(&profiler))
                });
                assert!(at_once.2.len() > 20, "bricks, kernels, layers");
                assert_eq!(at_once, late);
            }
        }
    }
}
