//! One interface to sessions on the CPU and on devices.

use brickscope::{
    BrickId, BrickProfiler, DeviceError, DeviceInfo, DeviceTimer, PassTimer, Phase, Work,
};
use brickscope_kernels::Kernels;

use crate::error::Error;
use crate::executor::gpu::{Gpu, GpuProbe, GpuSession};
use crate::forward::Outputs;
use crate::model::Model;
use crate::probe::{NoProbe, Profiled};
use crate::routines::RoutineNames;
use crate::sample::Sampler;
use crate::session::Session;
use crate::tap::Tapped;
use crate::value::At;
use crate::work;

/// A session on any executor: what [`generate`](crate::generate()) and [`diverge`](crate::diverge::diverge) need, and
/// what lets a caller choose the executor at run time.
pub trait AnySession<'m>: Send {
    /// The model.
    fn model(&self) -> &'m Model;

    /// The most tokens in one pass.
    fn batch(&self) -> usize;

    /// Tokens so far.
    fn position(&self) -> usize;

    /// Tokens that still fit.
    fn room(&self) -> usize;

    /// Forgets all tokens.
    fn clear(&mut self);

    /// Forgets all tokens but the first `position`.
    fn truncate(&mut self, position: usize);

    /// The logits of the last pass that computed any.
    fn last_logits(&self) -> &[f32];

    /// Checks that `prompt` can be run and `n_tokens` be chosen after it.
    ///
    /// # Errors
    ///
    /// If the prompt is empty, the vocabulary lacks one of its tokens, or all together don't fit the context.
    fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error>;

    /// Runs `tokens` after those so far; returns the logits that follow the last of them.
    ///
    /// # Errors
    ///
    /// If there are no tokens, they don't fit the context, the vocabulary lacks one, or the device fails.
    fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error>;

    /// A probe that reports passes of this session to `profiler`.
    ///
    /// # Errors
    ///
    /// If the device's clock can't be read.
    fn probe<'p>(&mut self, profiler: &'p BrickProfiler) -> Result<AnyProbe<'p>, Error>;

    /// As [`forward`](Self::forward), and reports each pass to the probe's profiler.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    ///
    /// # Panics
    ///
    /// If a session of the other kind made the probe.
    fn forward_with(&mut self, probe: &mut AnyProbe<'_>, tokens: &[u32]) -> Result<&[f32], Error>;

    /// As [`forward`](Self::forward), and reports each pass to `profiler` but nothing inside it: the wall times are those
    /// of passes without a probe. On a device each includes the wait for it.
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward).
    fn forward_passes(&mut self, profiler: &BrickProfiler, tokens: &[u32])
    -> Result<&[f32], Error>;

    /// One pass over checked tokens, at most a batch. With a sampler it computes the last token's logits and returns
    /// the token chosen from them; that choice is a brick. With a probe, the caller has begun the pass.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a session of the other kind made the probe.
    fn pass(
        &mut self,
        probe: Option<(&mut AnyProbe<'_>, &PassTimer)>,
        phase: Phase,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error>;

    /// Measures what the device's time stamps cost ([`DeviceTimer::calibrate`]). Does nothing on the CPU.
    ///
    /// # Errors
    ///
    /// As [`DeviceTimer::calibrate`].
    ///
    /// # Panics
    ///
    /// If a session of the other kind made the probe.
    fn calibrate(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), DeviceError>;

    /// Waits for the times of all passes that the probe has reported so far. Does nothing on the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a session of the other kind made the probe.
    fn settle(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), Error>;

    /// Settles what the probe's device has still to report. Does nothing on the CPU.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a session of the other kind made the probe.
    fn finish(&mut self, probe: AnyProbe<'_>) -> Result<(), Error>;

    /// The device that it runs on; `None` on the CPU.
    fn device(&self) -> Option<DeviceFacts>;

    /// The kernels that [`forward`](Self::forward) of `n_tokens` tokens launches after `position` others on a device, each
    /// with its work, in their order. `None` on the CPU, where the profiler records each launch.
    fn launches(&mut self, position: usize, n_tokens: usize) -> Option<Vec<(String, Work)>>;

    /// The names of its routines.
    fn routine_names(&self) -> RoutineNames;

    /// The CPU kernels that it runs; `None` on a device. Two sessions with the same kernels give equal bits.
    fn kernels(&self) -> Option<Kernels>;

    /// One pass over checked tokens. `tap` sees each value when it has been made, and may change it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error>;
}

/// What is known of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// Its description.
    pub info: DeviceInfo,
    /// Its memory in bytes, if its driver reports it.
    pub memory_bytes: Option<u64>,
}

/// Reports the passes of a session to a profiler. Made by [`AnySession::probe`].
#[derive(Debug)]
pub enum AnyProbe<'p> {
    /// Of a session on the CPU.
    Cpu(Profiled<'p>),
    /// Of a session on a device.
    Gpu(Box<GpuProbe<'p>>),
}

impl<'p> AnyProbe<'p> {
    /// The profiler that it reports to.
    #[must_use]
    pub fn profiler(&self) -> &'p BrickProfiler {
        match self {
            Self::Cpu(probe) => probe.profiler(),
            Self::Gpu(probe) => probe.profiler,
        }
    }

    /// The timer of the device; `None` on the CPU.
    pub fn timer(&mut self) -> Option<&mut DeviceTimer<'p>> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(probe) => Some(probe.timer()),
        }
    }

    fn cpu(&self) -> &Profiled<'p> {
        match self {
            Self::Cpu(probe) => probe,
            Self::Gpu(_) => panic!("this probe is of a session on a device"),
        }
    }

    fn gpu(&mut self) -> &mut GpuProbe<'p> {
        match self {
            Self::Cpu(_) => panic!("this probe is of a session on the CPU"),
            Self::Gpu(probe) => probe,
        }
    }
}

/// The methods that both kinds of session have of their own.
macro_rules! methods_of_the_session {
    () => {
        fn model(&self) -> &'m Model {
            Self::model(self)
        }

        fn batch(&self) -> usize {
            Self::batch(self)
        }

        fn position(&self) -> usize {
            Self::position(self)
        }

        fn room(&self) -> usize {
            Self::room(self)
        }

        fn clear(&mut self) {
            Self::clear(self);
        }

        fn truncate(&mut self, position: usize) {
            Self::truncate(self, position);
        }

        fn last_logits(&self) -> &[f32] {
            Self::last_logits(self)
        }

        fn check_run(&self, prompt: &[u32], n_tokens: usize) -> Result<(), Error> {
            Self::check_run(self, prompt, n_tokens)
        }

        fn forward(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
            Self::forward(self, tokens)
        }

        fn forward_passes(
            &mut self,
            profiler: &BrickProfiler,
            tokens: &[u32],
        ) -> Result<&[f32], Error> {
            Self::forward_passes(self, profiler, tokens)
        }
    };
}

impl<'m> AnySession<'m> for Session<'m> {
    methods_of_the_session!();

    fn probe<'p>(&mut self, profiler: &'p BrickProfiler) -> Result<AnyProbe<'p>, Error> {
        Ok(AnyProbe::Cpu(self.profiled(profiler)))
    }

    fn forward_with(&mut self, probe: &mut AnyProbe<'_>, tokens: &[u32]) -> Result<&[f32], Error> {
        self.forward_with(probe.cpu(), tokens)
    }

    fn pass(
        &mut self,
        probe: Option<(&mut AnyProbe<'_>, &PassTimer)>,
        _: Phase,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error> {
        let outputs = if sampler.is_some() { Outputs::Last } else { Outputs::None };
        Ok(match probe {
            Some((probe, begun)) => {
                self.profiled_pass(probe.cpu(), begun, tokens, outputs, sampler)
            }
            None => self.pass_and_sample(&NoProbe, tokens, outputs, sampler),
        })
    }

    fn calibrate(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), DeviceError> {
        probe.cpu();
        Ok(())
    }

    fn settle(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), Error> {
        probe.cpu();
        Ok(())
    }

    fn finish(&mut self, probe: AnyProbe<'_>) -> Result<(), Error> {
        probe.cpu();
        Ok(())
    }

    fn device(&self) -> Option<DeviceFacts> {
        None
    }

    fn launches(&mut self, _: usize, _: usize) -> Option<Vec<(String, Work)>> {
        None
    }

    fn routine_names(&self) -> RoutineNames {
        self.routines().names()
    }

    fn kernels(&self) -> Option<Kernels> {
        Some(self.cpu().kernels)
    }

    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error> {
        let tapped = Tapped::new(self.position(), tokens.len(), tap);
        self.pass(&tapped, tokens, outputs);
        Ok(())
    }
}

impl<'m, G: Gpu + Send> AnySession<'m> for GpuSession<'m, G> {
    methods_of_the_session!();

    fn probe<'p>(&mut self, profiler: &'p BrickProfiler) -> Result<AnyProbe<'p>, Error> {
        Ok(AnyProbe::Gpu(Box::new(self.profiled(profiler)?)))
    }

    fn forward_with(&mut self, probe: &mut AnyProbe<'_>, tokens: &[u32]) -> Result<&[f32], Error> {
        self.forward_with(probe.gpu(), tokens)
    }

    fn pass(
        &mut self,
        probe: Option<(&mut AnyProbe<'_>, &PassTimer)>,
        phase: Phase,
        tokens: &[u32],
        sampler: Option<&mut Sampler>,
    ) -> Result<Option<u32>, Error> {
        let outputs = if sampler.is_some() { Outputs::Last } else { Outputs::None };
        let mut probe = probe.map(|(probe, _)| probe.gpu());
        let logits = self.pass(probe.as_deref_mut(), phase, tokens, outputs)?;
        Ok(sampler.map(|sampler| {
            let Some(probe) = probe else { return sampler.sample(logits) };
            let timer = probe.profiler.start_brick(BrickId::Sampling);
            let token = sampler.sample(logits);
            probe.profiler.stop_brick_with(timer, work::sample(logits.len()));
            token
        }))
    }

    fn calibrate(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), DeviceError> {
        probe.gpu().timer().calibrate(self.gpu()).map(drop)
    }

    fn settle(&mut self, probe: &mut AnyProbe<'_>) -> Result<(), Error> {
        self.settle(probe.gpu())
    }

    fn device(&self) -> Option<DeviceFacts> {
        Some(DeviceFacts { info: self.gpu.describe(), memory_bytes: self.gpu.memory_bytes() })
    }

    fn launches(&mut self, position: usize, n_tokens: usize) -> Option<Vec<(String, Work)>> {
        Some(self.launches(position, n_tokens))
    }

    fn finish(&mut self, probe: AnyProbe<'_>) -> Result<(), Error> {
        match probe {
            AnyProbe::Gpu(probe) => self.finish(*probe),
            AnyProbe::Cpu(_) => panic!("this probe is of a session on the CPU"),
        }
    }

    fn routine_names(&self) -> RoutineNames {
        self.names.clone()
    }

    fn kernels(&self) -> Option<Kernels> {
        None
    }

    fn pass_tapped(
        &mut self,
        tokens: &[u32],
        outputs: Outputs,
        tap: &dyn Fn(At<'_>, &mut [f32]),
    ) -> Result<(), Error> {
        self.pass_tapped(tokens, outputs, tap)
    }
}
