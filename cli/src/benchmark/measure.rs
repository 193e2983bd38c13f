//! Running the repetitions of a test, and taking a sample of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use brickscope::{
    BrickProfiler, Clock, DeviceError, NotFinite, Phase, Profile, Profiled, cpu_frequency_khz,
};
use brickscope_analysis::receipt::tokens_sha256;
use brickscope_analysis::receipt::v1::{self, Aggregates, Kernel, Sample, Test};
use brickscope_engine::forward::Outputs;
use brickscope_engine::synth::random_tokens;
use brickscope_engine::{AnyProbe, AnySession, LogitsSeen, Sampler, Sampling, not_finite};

use super::plan::Plan;
use super::sums::{Choosing, Sums, disturbed, run_queue_wait};
use super::warm_up::Rule;
use crate::interrupt;
use crate::metrics::Current;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// The seed for the random tokens of the input.
    pub(crate) seed: u64,
    /// Measured repetitions.
    pub(crate) repetitions: u32,
    /// Whether the profiler records bricks and kernels, not only passes.
    pub(crate) profiled: bool,
    /// What runs the kernels, if it is a device.
    pub(crate) backend: Option<&'static str>,
    pub(crate) warm_up: Rule,
}

/// What records the repetitions.
#[derive(Debug)]
pub(crate) struct Profilers {
    clock: Clock,
    /// Records all repetitions that aren't kept, one at a time.
    scratch: Arc<BrickProfiler>,
    /// Records one repetition of a test for the run's profile.
    kept: Arc<BrickProfiler>,
}

impl Profilers {
    /// Those for a run on the CPU or on a device. `capacity`: the number of spans that the profile of the run has room for.
    ///
    /// A device has one profiler: by what its passes took it learns how finely to time them, and a graph of CUDA with
    /// timestamps in it is of one profiler, so that a second one would begin anew in a repetition that counts.
    pub(crate) fn new(clock: Clock, capacity: usize, is_on_device: bool) -> Self {
        let profiler =
            || Arc::new(BrickProfiler::with_clock(clock.clone()).with_log_capacity(capacity));
        let scratch = profiler();
        let kept = if is_on_device { Arc::clone(&scratch) } else { profiler() };
        // The log of a thread is allocated when it first records, so that must not be in a repetition.
        for profiler in [&scratch, &kept] {
            profiler.enable();
            profiler.end_pass(profiler.begin_pass(Phase::Prefill), 0, 0);
            profiler.disable();
            profiler.reset();
        }
        Self { clock, scratch, kept }
    }
}

/// Measures tests, one after the other, in one session.
pub(crate) struct Bench<'b, 'm> {
    session: &'b mut (dyn AnySession<'m> + 'b),
    settings: Settings,
    profilers: &'b Profilers,
    is_on_device: bool,
    /// What times the device, from the first repetition to the last, if the profiler is on.
    device: Option<AnyProbe<'b>>,
    /// The profiler that is recording.
    current: Current,
}

/// The results of a test.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) test: Test,
    /// Whether each repetition chose the same tokens.
    pub(crate) is_deterministic: bool,
    /// Spans recorded in measured repetitions.
    pub(crate) spans: u64,
    /// Counts of lost spans and other faults, by name.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Logits that weren't numbers in the repetition that was kept.
    pub(crate) not_finite: Option<NotFinite>,
    /// What choosing tokens took in the repetitions that count.
    pub(crate) choosing: Choosing,
    /// Which repetition the run's profile is of.
    pub(crate) profiled: Profiled,
}

/// The state in which a repetition begins.
struct Input {
    /// Tokens in the KV cache before it.
    position: usize,
    /// Those tokens.
    before: Vec<u32>,
    prompt: Vec<u32>,
    /// The token that decoding begins with.
    first: u32,
    /// The kernels that a repetition launches on a device; `None` on the CPU, where the profiler counts them.
    launched: Option<Sums>,
}

/// One repetition.
struct Repetition {
    sample: Sample,
    sums: Sums,
    output: Vec<u32>,
    choosing: Choosing,
    logits: LogitsSeen,
}

impl<'b, 'm> Bench<'b, 'm> {
    pub(crate) fn new(
        session: &'b mut (dyn AnySession<'m> + 'b),
        settings: Settings,
        profilers: &'b Profilers,
    ) -> Result<Self> {
        let is_on_device = session.device().is_some();
        let mut device = None;
        if settings.profiled && is_on_device {
            let mut probe = session.probe(&profilers.scratch)?;
            // Where it can't be measured, the profile says why.
            if let Err(lost @ DeviceError::Lost { .. }) = session.calibrate(&mut probe) {
                return Err(lost.into());
            }
            device = Some(probe);
        }
        let current = Arc::new(Mutex::new(Arc::clone(&profilers.scratch)));
        Ok(Self { session, settings, profilers, is_on_device, device, current })
    }

    /// Whether a device runs it.
    pub(crate) fn is_on_device(&self) -> bool {
        self.is_on_device
    }

    /// The profiler that records the current repetition.
    pub(crate) fn current(&self) -> Current {
        Arc::clone(&self.current)
    }

    /// The profile of the repetitions that were kept. On a device these are further ones, one of each of `kept`, since its
    /// profiler is empty before each that counts; none if the run was cut short.
    pub(crate) fn profile(self, kept: &[Plan], is_cut_short: bool) -> Result<Profile> {
        let mut bench = self;
        if bench.device.is_some() && !is_cut_short {
            for &plan in kept {
                let (input, _) = bench.prepare(plan)?;
                bench.repetition(plan, &input, true)?;
            }
        }
        let Self { session, profilers, device, .. } = bench;
        if let Some(probe) = device {
            session.finish(probe)?;
        }
        Ok(profilers.kept.profile())
    }

    /// Runs a test: its warm-up, then the repetitions that count. With `keep` the last of these goes into
    /// the run's profile. Calls `show` with the progress. If a signal asks to stop, it stops after the
    /// repetition that runs: `None` if none of those that count was measured.
    pub(crate) fn run(
        &mut self,
        plan: Plan,
        keep: bool,
        show: &mut dyn FnMut(String),
    ) -> Result<Option<Measured>> {
        let Settings { repetitions, warm_up: rule, .. } = self.settings;
        let name = plan.name();
        show(format!("{name}: preparing"));
        let (input, input_sha256) = self.prepare(plan)?;
        let (is_kept, keep) = (keep, keep && !self.is_on_device);
        let clock = self.profilers.clock.clone();

        let mut samples: Vec<(Sample, Sums)> = Vec::new();
        let mut outputs: Vec<Vec<u32>> = Vec::new();
        let mut logits: Vec<LogitsSeen> = Vec::new();
        let mut walls = Vec::new();
        let began = clock.now();
        let warm_up = loop {
            show(format!("{name}: warm-up {}", walls.len() + 1));
            let mut repetition = self.repetition(plan, &input, false)?;
            repetition.sample.is_warm_up = true;
            walls.push(repetition.sample.wall_ns);
            samples.push((repetition.sample, repetition.sums));
            outputs.push(repetition.output);
            logits.push(repetition.logits);
            if interrupt::is_asked() {
                return Ok(None);
            }
            let elapsed = clock.now().saturating_sub(began);
            if let Some(warm_up) = rule.verdict(&walls, elapsed) {
                break warm_up;
            }
        };
        let since = clock.now();
        let (mut counted, mut choosing) = (0, Choosing::default());
        for n in 1..=repetitions {
            let left = left(clock.now().saturating_sub(since), n - 1, repetitions);
            show(format!("{name}: {n} of {repetitions}{left}"));
            let repetition = self.repetition(plan, &input, keep && n == repetitions)?;
            choosing.add(repetition.choosing);
            samples.push((repetition.sample, repetition.sums));
            outputs.push(repetition.output);
            logits.push(repetition.logits);
            counted = n;
            interrupt::keep();
            if n < repetitions && interrupt::is_asked() {
                break;
            }
        }
        let all = self.not_finite(plan, &input, &logits, &outputs)?;
        let of_kept = logits.last().filter(|seen| is_kept && seen.not_finite > 0);
        let not_finite = of_kept.map(|seen| NotFinite {
            passes: seen.not_finite,
            of: seen.times,
            began: all.as_ref().and_then(|all| all.began.clone()),
        });

        let is_deterministic = outputs.windows(2).all(|pair| pair[0] == pair[1]);
        let output = outputs.pop().unwrap_or_default();
        let mut test = Test {
            name,
            n_prompt: plan.n_prompt as u64,
            n_gen: plan.n_gen as u64,
            n_depth: plan.n_depth as u64,
            input_sha256,
            output_sha256: tokens_sha256(&output),
            output_tokens: output.len() as u64,
            warm_up,
            not_finite: all.map(|all| {
                let origin = all.origin();
                v1::NotFinite { passes: all.passes, of: all.of, origin }
            }),
            ..Test::default()
        };
        let sums = fill(&mut test, samples, counted, self.settings.profiled);
        let Sums { spans, dropped, .. } = sums;
        let profiled = match (is_kept, self.is_on_device) {
            (true, true) => Profiled::Further,
            // A test that was cut short ended before it.
            (true, false) if counted == repetitions => Profiled::Last,
            _ => Profiled::No,
        };
        Ok(Some(Measured {
            test,
            is_deterministic,
            spans,
            dropped,
            not_finite,
            choosing,
            profiled,
        }))
    }

    /// Finds out where the logits of repetitions began not to be numbers, if any did.
    fn not_finite(
        &mut self,
        plan: Plan,
        input: &Input,
        logits: &[LogitsSeen],
        outputs: &[Vec<u32>],
    ) -> Result<Option<NotFinite>> {
        let Some((first, output)) =
            logits.iter().zip(outputs).find(|(seen, _)| seen.not_finite > 0)
        else {
            return Ok(None);
        };
        let seen = LogitsSeen {
            times: logits.iter().map(|seen| seen.times).sum(),
            not_finite: logits.iter().map(|seen| seen.not_finite).sum(),
            first: first.first,
        };
        // A repetition of a decode test begins with a token, and runs all but the last one of its output after it.
        let first = first.first.map_or(0, |first| first as usize);
        let decoded = std::iter::once(&input.first).chain(output).take(1 + first);
        let decoded = decoded.map(std::slice::from_ref).filter(|_| plan.is_decode());
        let passes = [&input.before[..], &input.prompt[..]].into_iter().chain(decoded);
        Ok(not_finite(seen, &mut *self.session, passes, Outputs::Last)?)
    }

    /// Fills the KV cache to the depth of `plan`, and returns the state in which repetitions begin.
    fn prepare(&mut self, plan: Plan) -> Result<(Input, String)> {
        let tokenizer = &self.session.model().tokenizer;
        let mut drawn =
            random_tokens(tokenizer, self.settings.seed, plan.position() + plan.n_prompt);
        if plan.is_decode()
            && plan.n_depth == 0
            && let (Some(bos), Some(first)) = (tokenizer.bos(), drawn.first_mut())
        {
            *first = bos;
        }
        let input_sha256 = tokens_sha256(&drawn);
        let prompt = drawn.split_off(plan.position().min(drawn.len()));
        self.session.clear();
        let mut first = 0;
        if plan.position() > 0 {
            first = Sampler::new(Sampling::Greedy).sample(self.session.forward(&drawn)?);
        }
        let (position, launched) = (plan.position(), self.launched(plan));
        Ok((Input { position, before: drawn, prompt, first, launched }, input_sha256))
    }

    /// The kernels that a repetition launches on a device, if the profiler is on.
    fn launched(&mut self, plan: Plan) -> Option<Sums> {
        let backend = self.settings.backend.filter(|_| self.device.is_some())?;
        let passes = match plan.n_gen {
            0 => vec![(plan.position(), plan.n_prompt)],
            n_gen => (0..n_gen).map(|nth| (plan.position() + nth, 1)).collect(),
        };
        let mut sums = Sums::default();
        for (position, tokens) in passes {
            sums.add_launches(self.session.launches(position, tokens)?, backend);
        }
        Some(sums)
    }

    fn repetition(&mut self, plan: Plan, input: &Input, keep: bool) -> Result<Repetition> {
        let Self { session, settings, profilers, device, current, .. } = self;
        let Profilers { clock, scratch, kept } = *profilers;
        let profiler = if keep { kept } else { scratch };
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(profiler);
        let before = if keep { Sums::of(&profiler.profile()) } else { Sums::default() };
        let mut made = None;
        let mut probe = match device {
            _ if !settings.profiled => None,
            Some(probe) => Some(probe),
            None => Some(made.insert(session.probe(profiler)?)),
        };
        session.truncate(input.position);
        let mut sampler = Sampler::new(Sampling::Greedy);
        let tokens = plan.n_gen.max(1);
        let mut output = Vec::with_capacity(tokens);
        let mut token_ns = Vec::with_capacity(plan.n_gen);
        let mut choosing = Choosing::default();
        // The token that is chosen, and when it was.
        let mut choose = |logits: &[f32]| {
            let began = clock.now();
            let token = sampler.sample(logits);
            let now = clock.now();
            choosing.add(Choosing { tokens: 1, ns: now.saturating_sub(began) });
            (token, now)
        };

        profiler.enable();
        let start_ns = clock.now();
        let mut end_ns = start_ns;
        let mut first_token_ns = None;
        if plan.is_decode() {
            let mut token = input.first;
            for _ in 0..plan.n_gen {
                let probe = probe.as_deref_mut();
                let (chosen, now) = choose(forward(&mut **session, profiler, probe, &[token])?);
                token = chosen;
                output.push(token);
                token_ns.push(now.saturating_sub(end_ns));
                end_ns = now;
            }
        } else {
            let probe = probe.as_deref_mut();
            let (token, now) = choose(forward(&mut **session, profiler, probe, &input.prompt)?);
            output.push(token);
            end_ns = now;
            first_token_ns = Some(end_ns.saturating_sub(start_ns));
        }
        profiler.disable();
        if let Some(probe) = probe {
            session.settle(probe)?;
        }

        let mut sums = Sums::of(&profiler.profile()).since(&before);
        if let Some(launched) = &input.launched {
            sums.kernels = launched.kernels.clone();
        }
        let passes = std::mem::take(&mut sums.passes);
        if !keep {
            profiler.reset();
        }
        let sample = Sample {
            start_ns,
            end_ns,
            wall_ns: sums.wall_ns,
            pass_ns: passes.iter().map(|pass| pass.wall_ns).collect(),
            tokens: passes.iter().map(|pass| pass.tokens).sum(),
            token_ns,
            first_token_ns,
            disturbed: disturbed(&passes),
            run_queue_wait_ns: run_queue_wait(&passes),
            cpu_khz: cpu_frequency_khz(),
            ..Sample::default()
        };
        Ok(Repetition { sample, sums, output, choosing, logits: sampler.seen() })
    }
}

fn forward<'s>(
    session: &'s mut (dyn AnySession<'_> + '_),
    profiler: &BrickProfiler,
    probe: Option<&mut AnyProbe<'_>>,
    tokens: &[u32],
) -> Result<&'s [f32]> {
    Ok(match probe {
        Some(probe) => session.forward_with(probe, tokens)?,
        None => session.forward_passes(profiler, tokens)?,
    })
}

/// Adds the samples and their recorded sums to a test, and returns the sums of those that count.
fn fill(test: &mut Test, samples: Vec<(Sample, Sums)>, repetitions: u32, profiled: bool) -> Sums {
    let mut all = Sums::default();
    for (_, sums) in &samples {
        all.add_names(sums);
    }
    let mut counted = all.clone();
    let on_device = all.device.take().unwrap_or_default();
    let on_device = on_device.bricks.into_iter().map(|(brick, _)| brick);
    test.device_bricks = on_device.collect();
    for (index, (mut sample, sums)) in (0..).zip(samples) {
        sample.index = index;
        if profiled {
            sample.brick_ns = all.bricks.iter().map(|(brick, _)| sums.brick(brick)).collect();
            sample.unattributed_ns = Some(sums.unattributed_ns);
            sample.device = sums.device.as_ref().map(|device| device.times(&test.device_bricks));
        }
        if !sample.is_warm_up {
            counted.add(&sums);
        }
        test.samples.push(sample);
    }
    if profiled {
        test.bricks = all.bricks.into_iter().map(|(brick, _)| brick).collect();
        let launched = counted.kernels.iter().filter(|(_, kernel)| kernel.launches > 0);
        test.kernels = launched.map(|(_, kernel)| kernel.clone()).collect();
        // Repetitions do the same work; if the work differs, this figure is left out.
        let n = u64::from(repetitions);
        let each = |of: fn(&Kernel) -> Option<u64>| {
            let sum =
                test.kernels.iter().try_fold(0, |sum: u64, kernel| sum.checked_add(of(kernel)?));
            sum.filter(|sum| n > 0 && sum.is_multiple_of(n)).map(|sum| sum / n)
        };
        test.flops = each(|kernel| kernel.flops);
        test.bytes = each(|kernel| kernel.bytes);
    }
    test.aggregates = Aggregates::of(&test.samples);
    counted
}

/// How long the rest takes if each repetition takes as long as those before it.
fn left(elapsed_ns: u64, done: u32, all: u32) -> String {
    let Some(each) = elapsed_ns.checked_div(u64::from(done)) else { return String::new() };
    let left = each.saturating_mul(u64::from(all.saturating_sub(done)));
    format!(", {} s left", left.div_ceil(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        assert_eq!(left(0, 0, 5), "");
        assert_eq!(left(4_000_000_000, 2, 5), ", 6 s left");
        assert_eq!(left(1, 4, 5), ", 0 s left");
    }

    #[test]
    fn the_work_of_a_repetition_is_a_whole_number_or_not_known() {
        let sample = |is_warm_up| Sample { is_warm_up, wall_ns: 10, ..Sample::default() };
        let of = |launches, flops, bytes| {
            let kernel = Kernel { id: "gemv".to_owned(), launches, flops, bytes };
            Sums { kernels: [(kernel.id.clone(), kernel)].into(), spans: 5, ..Sums::default() }
        };
        let mut test = Test::default();
        let samples = vec![
            (sample(true), of(9, None, None)),
            (sample(false), of(2, Some(6), Some(5))),
            (sample(false), of(2, Some(6), Some(4))),
        ];
        let counted = fill(&mut test, samples, 2, true);
        let kernel = Kernel { id: "gemv".to_owned(), launches: 4, flops: Some(12), bytes: Some(9) };
        assert_eq!(test.kernels, [kernel], "the warm-up is in no sum");
        assert_eq!((test.flops, test.bytes, counted.spans), (Some(6), None, 10));
        let indices: Vec<u32> = test.samples.iter().map(|sample| sample.index).collect();
        assert_eq!((indices, test.aggregates.samples), (vec![0, 1, 2], 2));
    }
}
