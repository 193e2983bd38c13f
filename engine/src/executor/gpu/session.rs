//! A session on a device.

use std::collections::HashMap;

use brickscope::{BrickProfiler, DeviceTimer, KernelId, Phase, Work};

use crate::error::{Error, GpuError};
use crate::executor::gpu::{Gpu, Plan, Timed};
use crate::forward::{Outputs, passes};
use crate::model::Model;
use crate::routines::RoutineNames;

/// Runs tokens through a model on a device, one after the other or in batches.
#[derive(Debug)]
pub struct GpuSession<'m, G> {
    pub(super) model: &'m Model,
    pub(crate) gpu: G,
    /// By tokens and outputs.
    plans: HashMap<(usize, usize), Plan<'m>>,
    pub(super) position: usize,
    pub(super) logits: Vec<f32>,
    /// Names of the kernels that a tap has seen.
    pub(crate) names: RoutineNames,
}

/// Reports passes on a device to a profiler. Made by [`GpuSession::profiled`].
#[derive(Debug)]
pub struct GpuProbe<'p> {
    pub(crate) profiler: &'p BrickProfiler,
    timer: DeviceTimer<'p>,
    /// The profiler's numbers for the kernels of a plan, by step.
    kernels: HashMap<(usize, usize), Vec<KernelId>>,
}

impl<'p> GpuProbe<'p> {
    /// The timer of the device.
    pub fn timer(&mut self) -> &mut DeviceTimer<'p> {
        &mut self.timer
    }
}

impl<'m, G: Gpu> GpuSession<'m, G> {
    /// A session on an executor that was made for `model`.
    #[must_use]
    pub fn new(model: &'m Model, gpu: G) -> Self {
        let (plans, names) = (HashMap::new(), RoutineNames::default());
        Self { model, gpu, plans, position: 0, logits: Vec::new(), names }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// The executor.
    pub fn gpu(&mut self) -> &mut G {
        &mut self.gpu
    }

    /// The most tokens in one pass.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.gpu.batch()
    }

    /// Tokens so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Tokens that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.gpu.capacity() - self.position
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.position = 0;
    }

    /// Forgets all tokens but the first `position`.
    pub fn truncate(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// A probe that times the device for `profiler`.
    ///
    /// # Errors
    ///
    /// If its clock can't be read.
    pub fn profiled<'p>(&mut self, profiler: &'p BrickProfiler) -> Result<GpuProbe<'p>, Error> {
        let timer = profiler.device().timer(&mut self.gpu).map_err(GpuError::from)?;
        self.gpu.register_sources(profiler);
        self.gpu.record_transfers(profiler);
        profiler.set_kv_cache_tokens(self.gpu.capacity() as u64);
        Ok(GpuProbe { profiler, timer, kernels: HashMap::new() })
    }

    /// Runs `tokens` after those so far; returns the logits that follow the last of them.
    ///
    /// # Errors
    ///
    /// If there are no tokens, they don't fit the context, the vocabulary lacks one of them, or the device
    /// fails. After a device error, the position is that before the failed pass.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        self.check(tokens)?;
        for (pass, outputs) in passes(tokens, self.batch()) {
            self.pass(None, Phase::Prefill, pass, outputs)?;
        }
        Ok(&self.logits)
    }

    /// Runs `tokens` after those so far; returns the logits that follow each of them, one row of the
    /// vocabulary after the other.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn all_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        let batch = self.batch();
        let mut all = Vec::new();
        for pass in tokens.chunks(batch) {
            all.extend_from_slice(self.pass(None, Phase::Prefill, pass, Outputs::All)?);
        }
        Ok(all)
    }

    /// As [`forward`](Self::forward), by the same code, and reports each pass to `probe`, on the host and on
    /// the device. One token after others is a decode pass, anything else is prefill.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with(
        &mut self,
        probe: &mut GpuProbe<'_>,
        tokens: &[u32],
    ) -> Result<&[f32], Error> {
        self.timed(probe.profiler, tokens, |session, phase, pass, outputs| {
            session.pass(Some(probe), phase, pass, outputs).map(drop)
        })
    }

    /// As [`forward`](Self::forward), and reports each pass to `profiler` but nothing inside it, and nothing to the
    /// device: the wall times are those of passes without a probe. Each includes the wait for the device.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_passes(
        &mut self,
        profiler: &BrickProfiler,
        tokens: &[u32],
    ) -> Result<&[f32], Error> {
        self.timed(profiler, tokens, |session, phase, pass, outputs| {
            session.pass(None, phase, pass, outputs).map(drop)
        })
    }

    fn timed(
        &mut self,
        profiler: &BrickProfiler,
        tokens: &[u32],
        mut run: impl FnMut(&mut Self, Phase, &[u32], Outputs) -> Result<(), Error>,
    ) -> Result<&[f32], Error> {
        self.check(tokens)?;
        let decodes = tokens.len() == 1 && self.position > 0;
        let phase = if decodes { Phase::Decode } else { Phase::Prefill };
        for (pass, outputs) in passes(tokens, self.batch()) {
            let position = self.position as u64;
            let timer = profiler.begin_pass(phase);
            let result = run(self, phase, pass, outputs);
            profiler.end_pass(timer, pass.len() as u64, position);
            result?;
        }
        Ok(&self.logits)
    }

    /// The kernels that [`forward`](Self::forward) of `n_tokens` tokens launches after `position` others, each with its
    /// work, in their order: those of the plans that passes run by.
    pub fn launches(&mut self, position: usize, n_tokens: usize) -> Vec<(String, Work)> {
        let mut launches = Vec::new();
        let mut position = position;
        for (pass, outputs) in passes(&vec![0; n_tokens], self.batch()) {
            let Self { model, gpu, plans, .. } = self;
            let plan = plan_of(plans, gpu, model, pass.len(), outputs);
            launches.extend(plan.steps.iter().enumerate().map(|(index, step)| {
                let (name, _) = gpu.kernel(plan, index);
                (name, step.work(&model.config, position))
            }));
            position += pass.len();
        }
        launches
    }

    /// Waits for the times of all passes that `probe` has reported so far.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn settle(&mut self, probe: &mut GpuProbe<'_>) -> Result<(), Error> {
        Ok(probe.timer.settle(&mut self.gpu, true).map_err(GpuError::from)?)
    }

    /// Settles the device's last passes, and reads its clock once more.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn finish(&mut self, probe: GpuProbe<'_>) -> Result<(), Error> {
        Ok(probe.timer.finish(&mut self.gpu).map_err(GpuError::from)?)
    }

    /// One pass over checked tokens, at most a batch. On the host it is two bricks: issuing the work,
    /// and waiting for it.
    pub(crate) fn pass(
        &mut self,
        probe: Option<&mut GpuProbe<'_>>,
        phase: Phase,
        tokens: &[u32],
        outputs: Outputs,
    ) -> Result<&[f32], Error> {
        let key = (tokens.len(), outputs.count(tokens.len()));
        let Self { model, gpu, plans, position, logits, .. } = self;
        let plan = plan_of(plans, gpu, model, tokens.len(), outputs);
        match probe {
            None => {
                gpu.run(plan, tokens, *position, None)?;
                gpu.logits(logits)?;
            }
            Some(GpuProbe { profiler, timer, kernels }) => {
                let kernels = kernels.entry(key).or_insert_with(|| {
                    let named = (0..plan.steps.len()).map(|step| {
                        let (name, launch) = gpu.kernel(plan, step);
                        profiler.device_kernel(&name, launch)
                    });
                    named.collect()
                });
                let (config, position) = (&model.config, *position);
                let mut timed = Timed { timer, plan, config, kernels, phase, position };
                let issue = profiler.start("Issue");
                let mut ran = gpu.run(plan, tokens, position, Some(&mut timed));
                // While the device runs this pass, note the times of the one before.
                let mut settled = timer.settle(gpu, false);
                profiler.stop(issue, 0);
                if ran.is_ok() {
                    let wait = profiler.start("DeviceWait");
                    ran = gpu.logits(logits);
                    profiler.stop(wait, 0);
                }
                match &ran {
                    Err(GpuError::Device(error)) => timer.note_error(error),
                    Err(_) => timer.abandon_pass(),
                    Ok(()) => {}
                }
                if ran.is_err() {
                    // What became of the passes in flight?
                    settled = settled.and(timer.settle(gpu, false));
                }
                gpu.record_transfers(profiler);
                ran?;
                settled.map_err(GpuError::from)?;
            }
        }
        *position += tokens.len();
        Ok(logits)
    }

    /// The logits of the last pass that computed any.
    #[must_use]
    pub fn last_logits(&self) -> &[f32] {
        &self.logits
    }

    /// Checks that `prompt` can be run and `n_tokens` be chosen after it; the last one isn't run.
    pub(crate) fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error> {
        self.model.check_run(prompt, n_tokens, self.position(), self.gpu.capacity())
    }

    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        self.model.check_tokens(tokens, self.position(), self.gpu.capacity())
    }
}

/// The plan of a pass of `n` tokens, made on first use.
fn plan_of<'p, 'm>(
    plans: &'p mut HashMap<(usize, usize), Plan<'m>>,
    gpu: &impl Gpu,
    model: &'m Model,
    n: usize,
    outputs: Outputs,
) -> &'p Plan<'m> {
    plans
        .entry((n, outputs.count(n)))
        .or_insert_with(|| gpu.fuse(Plan::new(&model.config, &model.weights, n, outputs)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::ops::ControlFlow;
    use std::path::{Path, PathBuf};

    use brickscope::{Began, BrickId, DeviceError, NameKind, Profile, SyncMode};
    use brickscope_kernels::{Backend, Kernels};

    use super::*;
    use crate::cpu::Cpu;
    use crate::diverge::diverge;
    use crate::executor::gpu::reference::Reference;
    use crate::executor::gpu::{Op, Step};
    use crate::finite::LogitsSeen;
    use crate::generate::{GenerateOptions, generate};
    use crate::sample::Sampling;
    use crate::session::Session;
    use crate::value::Value;

    fn models() -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
        let files =
            std::fs::read_dir(folder).expect("it is there").map(|f| f.expect("a file").path());
        let mut files: Vec<_> =
            files.filter(|f| f.extension().is_some_and(|e| e == "gguf")).collect();
        files.sort();
        assert!(!files.is_empty());
        files
    }

    fn close(device: &[f32], cpu: &[f32]) -> bool {
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-2 * (1.0 + b.abs());
        device.len() == cpu.len() && device.iter().zip(cpu).all(near)
    }

    #[test]
    fn the_plan_of_every_architecture_computes_what_the_forward_pass_does() {
        for path in models() {
            let model = Model::open(&path).expect("a model");
            let cpu = Cpu::new(Kernels::new(Backend::Scalar).expect("scalar"), NonZeroUsize::MIN);
            let mut host = Session::new(&model, cpu.expect("a thread"), 12).expect("a session");
            let mut device = GpuSession::new(&model, Reference::new(&model, 12));
            // Two passes of a batch, one of a part, one token, and one after going back.
            for tokens in [&[1, 5, 9, 2, 7, 3][..], &[4], &[6]] {
                let expected = host.forward(tokens).expect("they fit");
                let found = device.forward(tokens).expect("they fit");
                assert!(close(found, expected), "{}: {tokens:?}", path.display());
            }
            host.truncate(5);
            device.truncate(5);
            let expected = host.forward(&[8]).expect("it fits");
            assert!(close(device.forward(&[8]).expect("it fits"), expected), "{}", path.display());
        }
    }

    #[test]
    fn a_plan_of_fused_steps_computes_the_same() {
        let mut n_fused = 0;
        for path in models() {
            let model = Model::open(&path).expect("a model");
            let run = |fuses: bool| {
                let mut gpu = Reference::new(&model, 12);
                gpu.fuses = fuses;
                let mut session = GpuSession::new(&model, gpu);
                let passes = [&[1, 5, 9][..], &[4], &[6]]
                    .map(|tokens| session.forward(tokens).expect("they fit").to_vec());
                let n_steps = session.plans[&(1, 1)].steps.len();
                (passes, n_steps)
            };
            let ((plain, n_plain), (fused, n_after)) = (run(false), run(true));
            assert_eq!(plain, fused, "{}", path.display());
            assert!(n_after < n_plain, "{}", path.display());
            // Of a layer of a plain model five are left of 17, and of the rest two of three.
            n_fused += usize::from(n_after == 2 + (n_plain - 3) / 17 * 5);
        }
        assert!(n_fused >= 3, "{n_fused}");
    }

    #[test]
    fn the_plan_adds_every_bias_that_the_forward_pass_adds() {
        let mut model = Model::open(&models()[0]).expect("a model");
        let c = model.config.clone();
        let bias = |n: usize| Some((0..n).map(|i| (i % 7) as f32 / 7.0 - 0.4).collect());
        let layer = &mut model.weights.layers[1];
        (layer.q_bias, layer.output_bias) = (bias(c.q_dim()), bias(c.dim));
        (layer.gate_bias, layer.up_bias) = (bias(c.ffn_dim), bias(c.ffn_dim));
        (layer.down_bias, model.weights.head_bias) = (bias(c.dim), bias(c.n_vocab));
        let cpu = Cpu::new(Kernels::new(Backend::Scalar).expect("scalar"), NonZeroUsize::MIN);
        let mut host = Session::new(&model, cpu.expect("a thread"), 12).expect("a session");
        let mut device = GpuSession::new(&model, Reference::new(&model, 12));
        for tokens in [&[1, 5, 9, 2, 7, 3][..], &[4]] {
            let expected = host.forward(tokens).expect("they fit");
            assert!(close(device.forward(tokens).expect("they fit"), expected), "{tokens:?}");
        }
        let plan = Plan::new(&c, &model.weights, 1, Outputs::Last);
        let is_bias = |step: &&Step<'_>| matches!(step.op, Op::AddBias { .. });
        assert_eq!(plan.steps.iter().filter(is_bias).count(), 6);
        // They belong to the bricks of their projections.
        let is_activation = |step: &&Step<'_>| step.value == Value::Activation;
        let at = plan.steps.iter().rposition(|step| is_activation(&step)).expect("one a layer");
        assert!(!plan.steps[at - 1].begins_brick && plan.steps[at - 1].value == Value::BiasedUp);
    }

    #[test]
    fn a_scale_is_refused_where_no_device_multiplies_with_it() {
        let mut model = Model::open(&models()[0]).expect("a model");
        assert_eq!(Plan::check(&model.weights, "device"), Ok(()));
        model.weights.layers[1].down.scale = Some(2.0);
        let said = Plan::check(&model.weights, "device").expect_err("a scale").to_string();
        assert!(said.starts_with("device: the model has a scale"), "{said}");
        assert!(said.contains("only the CPU"), "{said}");
    }

    #[test]
    fn where_logits_began_not_to_be_numbers_is_found_on_a_device_too() {
        let options = GenerateOptions { n_tokens: 3, sampling: Sampling::Greedy };
        // Longer than a batch. Memory of the device that nothing was written to is NaN.
        let prompt = [1, 5, 9, 2, 7, 3];
        for path in models() {
            let mut model = Model::open(&path).expect("a model");
            let mut session = GpuSession::new(&model, Reference::new(&model, 12));
            let answer =
                generate(&mut session, None, &prompt, options, &mut |_| ControlFlow::Continue(()));
            let mut answer = answer.expect("it fits");
            assert_eq!(answer.not_finite(&mut session, &prompt).expect("it fits"), None);
            answer.logits = LogitsSeen { times: 3, not_finite: 1, first: Some(2) };
            let found = answer.not_finite(&mut session, &prompt).expect("it fits");
            assert_eq!(found.map(|found| found.began), Some(None), "{}", path.display());
            drop(session);

            model.weights.layers[1].ffn_norm.fill(3e38);
            let mut session = GpuSession::new(&model, Reference::new(&model, 12));
            let answer =
                generate(&mut session, None, &prompt, options, &mut |_| ControlFlow::Continue(()));
            let answer = answer.expect("it fits");
            let found = answer.not_finite(&mut session, &prompt).expect("it fits").expect("bad");
            assert_eq!((found.passes, found.of), (3, 3));
            let Some(Began::Output { brick, layer: Some(1), is_nan: false, .. }) = &found.began
            else {
                panic!("{}: {found}", path.display())
            };
            assert_eq!(brick, "RmsNorm");
        }
    }

    fn profiled(mode: SyncMode) -> (Profile, u64, usize) {
        let model = Model::open(&models()[0]).expect("a model");
        let mut session = GpuSession::new(&model, Reference::new(&model, 12));
        let profiler = BrickProfiler::with_clock(session.gpu().device.clock());
        profiler.enable();
        profiler.set_sync_mode(mode);
        let mut probe = session.profiled(&profiler).expect("a clock");
        session.forward_with(&mut probe, &[1, 2, 3]).expect("they fit");
        let before = session.gpu().device.n_waits();
        session.forward_with(&mut probe, &[4]).expect("it fits");
        let waits = session.gpu().device.n_waits() - before;
        session.finish(probe).expect("the clock is there");
        (profiler.profile(), waits, model.config.n_layers)
    }

    #[test]
    fn a_pass_is_profiled_on_the_host_and_on_the_device() {
        let (profile, waits, n_layers) = profiled(SyncMode::Deferred);
        profile.check().expect("it adds up");
        // That of the logits.
        assert_eq!(waits, 1);
        let gpu = profile.on_device(0, 0).expect("a stream");
        gpu.check().expect("it adds up");
        let decode = gpu.phase(Phase::Decode).expect("a pass");
        assert_eq!((decode.passes, decode.tokens), (1, 1));
        let bricks = gpu.bricks(Some(Phase::Decode));
        let count = |brick: BrickId| {
            let found = bricks.iter().find(|total| total.stats.name == brick.name());
            found.map_or(0, |total| total.stats.count)
        };
        assert_eq!(count(BrickId::DownProjection), n_layers as u64);
        assert_eq!(count(BrickId::LmHead), 1);
        let host: Vec<_> =
            profile.bricks(Some(Phase::Decode)).iter().map(|t| t.stats.name.clone()).collect();
        assert!(host.contains(&"DeviceWait".to_owned()), "{host:?}");
    }

    #[test]
    fn the_launches_of_a_forward_are_those_that_are_timed() {
        let model = Model::open(&models()[0]).expect("a model");
        let mut session = GpuSession::new(&model, Reference::new(&model, 12));
        let profiler = BrickProfiler::with_clock(session.gpu().device.clock());
        profiler.enable();
        let mut probe = session.profiled(&profiler).expect("a clock");
        // More than a batch, and one more.
        let mut launches = session.launches(0, 6);
        launches.extend(session.launches(6, 1));
        session.forward_with(&mut probe, &[1, 5, 9, 2, 7, 3]).expect("they fit");
        session.forward_with(&mut probe, &[4]).expect("it fits");
        session.settle(&mut probe).expect("the clock is there");
        let profile = profiler.profile();
        assert_eq!(profile.devices[0].unsettled_passes, 0, "they have settled");
        let mut timed: HashMap<&str, (u64, u64, u64)> = HashMap::new();
        let totals = profile.devices[0].streams[0].totals.iter();
        for total in totals.filter(|total| total.kind == NameKind::Kernel) {
            let sum = timed.entry(&total.stats.name).or_default();
            sum.0 += total.stats.count;
            sum.1 += total.stats.total_flops;
            sum.2 += total.stats.total_bytes;
        }
        let mut stated: HashMap<&str, (u64, u64, u64)> = HashMap::new();
        for (name, work) in &launches {
            let sum = stated.entry(name).or_default();
            (sum.0, sum.1, sum.2) = (sum.0 + 1, sum.1 + work.flops, sum.2 + work.bytes);
        }
        assert_eq!(stated, timed);
    }

    #[test]
    fn passes_that_are_only_timed_as_a_whole_have_no_bricks_and_the_same_logits() {
        let model = Model::open(&models()[0]).expect("a model");
        let mut session = GpuSession::new(&model, Reference::new(&model, 12));
        let expected = session.forward(&[1, 5, 9, 2, 7, 3]).expect("they fit").to_vec();
        session.clear();
        let profiler = BrickProfiler::with_clock(session.gpu().device.clock());
        profiler.enable();
        let found = session.forward_passes(&profiler, &[1, 5, 9, 2, 7, 3]).expect("they fit");
        assert_eq!(found, expected);
        session.forward_passes(&profiler, &[4]).expect("it fits");
        let profile = profiler.profile();
        let passes: Vec<_> =
            profile.passes.iter().map(|p| (p.phase, p.tokens, p.position)).collect();
        let [first, .., last] = &passes[..] else { panic!("{passes:?}") };
        assert_eq!((first.0, last), (Phase::Prefill, &(Phase::Decode, 1, 6)));
        assert!(profile.totals.is_empty() && profile.devices.is_empty());
        assert!(profile.passes.iter().all(|pass| pass.wall_ns > 0), "each waits for the device");
    }

    #[test]
    fn how_often_is_waited_is_what_the_mode_says() {
        let bricks = |profile: &Profile| {
            let gpu = profile.on_device(0, 0).expect("a stream");
            gpu.bricks(Some(Phase::Decode)).iter().map(|total| total.stats.count).sum::<u64>()
        };
        let (profile, waits, n_layers) = profiled(SyncMode::Immediate);
        assert_eq!(waits, bricks(&profile) + 1);
        let (profile, waits, _) = profiled(SyncMode::PerLayer);
        // What comes before the layers and after them is waited for too.
        assert_eq!((waits, bricks(&profile)), (n_layers as u64 + 3, 0));
        assert_eq!(profiled(SyncMode::None).1, 1);
    }

    #[test]
    fn the_values_of_a_pass_are_those_of_the_forward_pass_one_by_one() {
        for path in models() {
            let model = Model::open(&path).expect("a model");
            let cpu = Cpu::new(Kernels::new(Backend::Scalar).expect("scalar"), NonZeroUsize::MIN);
            let mut host = Session::new(&model, cpu.expect("a thread"), 12).expect("a session");
            let mut device = GpuSession::new(&model, Reference::new(&model, 12));
            let report =
                diverge(&mut host, &mut device, &[3, 1, 4, 1, 5], 3, &|_, _| (), &mut |_| ());
            let report = report.expect("both run");
            assert_eq!(report.first, None, "{}", path.display());
            assert!(!report.is_exact && report.n_passes == 4, "{}", report.n_passes);
            // And the other way round.
            let report = diverge(&mut device, &mut host, &[3, 1], 2, &|_, _| (), &mut |_| ());
            assert_eq!(report.expect("both run").first, None, "{}", path.display());
        }
    }

    #[test]
    fn a_fault_of_the_device_is_named() {
        let model = Model::open(&models()[0]).expect("a model");
        let cpu = Cpu::new(Kernels::new(Backend::Scalar).expect("scalar"), NonZeroUsize::MIN);
        let mut host = Session::new(&model, cpu.expect("a thread"), 12).expect("a session");
        let mut device = GpuSession::new(&model, Reference::new(&model, 12));
        let plant = |at: crate::value::At<'_>, out: &mut [f32]| {
            if at.layer == Some(1) && at.value == Value::Up {
                out[7] += 1.0;
            }
        };
        let report = diverge(&mut host, &mut device, &[3, 1], 2, &plant, &mut |_| ());
        let first = report.expect("both run").first.expect("it was planted");
        assert_eq!((first.layer, first.value, first.n_beyond), (Some(1), Value::Up, 1));
        assert!(first.kernels.is_some_and(|[_, device]| device.starts_with("matmul")));
    }

    #[test]
    fn a_device_lost_in_mid_run_loses_the_pass_in_flight_and_says_so() {
        let model = Model::open(&models()[0]).expect("a model");
        let mut session = GpuSession::new(&model, Reference::new(&model, 12));
        let profiler = BrickProfiler::with_clock(session.gpu().device.clock());
        profiler.enable();
        let mut probe = session.profiled(&profiler).expect("a clock");
        session.forward_with(&mut probe, &[1, 2]).expect("they fit");
        session.forward_with(&mut probe, &[3]).expect("it fits");
        session.gpu().device.lose();
        for _ in 0..2 {
            let lost = session.forward_with(&mut probe, &[4]).expect_err("it is lost");
            let lost = matches!(lost, Error::Device(GpuError::Device(DeviceError::Lost { .. })));
            assert!(lost);
        }
        assert_eq!(session.position(), 3);
        let profile = profiler.profile();
        let [device] = &profile.devices[..] else { panic!("there is one") };
        // The times of a pass are read while the next one runs.
        assert_eq!((device.lost_passes, device.unsettled_passes), (1, 0));
        assert!(device.lost.is_some());
        assert_eq!(device.streams[0].passes.len(), 1);
    }
}
