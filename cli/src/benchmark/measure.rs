//! Running the repetitions of a test, and taking a sample of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use brickscope::{BrickProfiler, Clock, NotFinite, Phase, Profile, cpu_frequency_khz};
use brickscope_analysis::receipt::tokens_sha256;
use brickscope_analysis::receipt::v1::{self, Aggregates, Kernel, Sample, Test};
use brickscope_engine::forward::Outputs;
use brickscope_engine::synth::random_tokens;
use brickscope_engine::{LogitsSeen, Profiled, Sampler, Sampling, Session, not_finite};

use super::plan::Plan;
use super::sums::{Sums, disturbed, run_queue_wait};
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
    pub(crate) warm_up: Rule,
}

/// Measures tests, one after the other, in one session.
#[derive(Debug)]
pub(crate) struct Bench<'s, 'm> {
    pub(crate) session: &'s mut Session<'m>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    /// Records all repetitions that aren't kept, one at a time.
    scratch: Arc<BrickProfiler>,
    /// Records one repetition of a test for the run's profile.
    kept: Arc<BrickProfiler>,
    /// The one of these that is recording.
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
}

/// One repetition.
struct Repetition {
    sample: Sample,
    sums: Sums,
    output: Vec<u32>,
    logits: LogitsSeen,
}

impl<'s, 'm> Bench<'s, 'm> {
    /// `capacity`: the number of spans that the profile of the run has room for.
    pub(crate) fn new(
        session: &'s mut Session<'m>,
        clock: Clock,
        settings: Settings,
        capacity: usize,
    ) -> Result<Self> {
        let profiler = || BrickProfiler::with_clock(clock.clone()).with_log_capacity(capacity);
        let (scratch, kept) = (Arc::new(profiler()), Arc::new(profiler()));
        // The log of a thread is allocated when it first records, so that must not be in a repetition.
        for profiler in [&scratch, &kept] {
            profiler.enable();
            profiler.end_pass(profiler.begin_pass(Phase::Prefill), 0, 0);
            profiler.disable();
            profiler.reset();
        }
        let current = Arc::new(Mutex::new(Arc::clone(&scratch)));
        Ok(Self { session, clock, settings, scratch, kept, current })
    }

    /// The profiler that records the current repetition.
    pub(crate) fn current(&self) -> Current {
        Arc::clone(&self.current)
    }

    /// The profile of the repetitions that were kept.
    pub(crate) fn profile(&self) -> Profile {
        self.kept.profile()
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

        let mut samples: Vec<(Sample, Sums)> = Vec::new();
        let mut outputs: Vec<Vec<u32>> = Vec::new();
        let mut logits: Vec<LogitsSeen> = Vec::new();
        let mut walls = Vec::new();
        let began = self.clock.now();
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
            let elapsed = self.clock.now().saturating_sub(began);
            if let Some(warm_up) = rule.verdict(&walls, elapsed) {
                break warm_up;
            }
        };
        let mut counted = 0;
        for n in 1..=repetitions {
            show(format!("{name}: {n} of {repetitions}"));
            let repetition = self.repetition(plan, &input, keep && n == repetitions)?;
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
        let of_kept = logits.last().filter(|seen| keep && seen.not_finite > 0);
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
        Ok(Some(Measured { test, is_deterministic, spans, dropped, not_finite }))
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
        Ok(not_finite(seen, self.session, passes, Outputs::Last)?)
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
        Ok((Input { position: plan.position(), before: drawn, prompt, first }, input_sha256))
    }

    fn repetition(&mut self, plan: Plan, input: &Input, keep: bool) -> Result<Repetition> {
        let Self { session, clock, settings, scratch, kept, current } = self;
        let profiler = if keep { &*kept } else { &*scratch };
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(profiler);
        let before = if keep { Sums::of(&profiler.profile()) } else { Sums::default() };
        let probe = session.profiled(profiler);
        let probe = settings.profiled.then_some(&probe);
        session.truncate(input.position);
        let mut sampler = Sampler::new(Sampling::Greedy);
        let tokens = plan.n_gen.max(1);
        let mut output = Vec::with_capacity(tokens);
        let mut token_ns = Vec::with_capacity(plan.n_gen);

        profiler.enable();
        let start_ns = clock.now();
        let mut end_ns = start_ns;
        let mut first_token_ns = None;
        if plan.is_decode() {
            let mut token = input.first;
            for _ in 0..plan.n_gen {
                token = sampler.sample(forward(session, profiler, probe, &[token])?);
                output.push(token);
                let now = clock.now();
                token_ns.push(now.saturating_sub(end_ns));
                end_ns = now;
            }
        } else {
            output.push(sampler.sample(forward(session, profiler, probe, &input.prompt)?));
            end_ns = clock.now();
            first_token_ns = Some(end_ns.saturating_sub(start_ns));
        }
        profiler.disable();

        let mut sums = Sums::of(&profiler.profile()).since(&before);
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
        Ok(Repetition { sample, sums, output, logits: sampler.seen() })
    }
}

fn forward<'s>(
    session: &'s mut Session<'_>,
    profiler: &BrickProfiler,
    probe: Option<&Profiled<'_>>,
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
    for (index, (mut sample, sums)) in (0..).zip(samples) {
        sample.index = index;
        if profiled {
            sample.brick_ns = all.bricks.iter().map(|(brick, _)| sums.brick(brick)).collect();
            sample.unattributed_ns = Some(sums.unattributed_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

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
