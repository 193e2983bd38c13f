//! Running a test's repetitions, and what the profiler says of each.

use std::collections::BTreeMap;

use anyhow::Result;
use brickscope::receipt::tokens_sha256;
use brickscope::receipt::v1::{Aggregates, Brick, Kernel, Sample, Test};
use brickscope::{BrickProfiler, Clock, NameKind, Pass, Profile, cpu_frequency_khz};
use brickscope_engine::synth::random_tokens;
use brickscope_engine::{Profiled, Sampler, Sampling, Session};

use super::plan::Plan;
use super::warm_up::Rule;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// What the tokens of the input are drawn with.
    pub(crate) seed: u64,
    /// Measured repetitions.
    pub(crate) repetitions: u32,
    /// Whether the profiler hears of what is inside of passes.
    pub(crate) profiled: bool,
    pub(crate) warm_up: Rule,
}

/// Measures tests, one after the other, in one session.
#[derive(Debug)]
pub(crate) struct Bench<'s, 'm> {
    pub(crate) session: &'s mut Session<'m>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    /// Hears of all repetitions but those that are kept, and forgets each.
    scratch: BrickProfiler,
    /// Hears of one repetition of a test, for the run's profile.
    kept: BrickProfiler,
}

/// What came of a test.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) test: Test,
    /// Whether each repetition chose the same tokens.
    pub(crate) is_deterministic: bool,
    /// Spans recorded in measured repetitions.
    pub(crate) spans: u64,
    /// What was lost or went otherwise than meant, by name.
    pub(crate) dropped: BTreeMap<String, u64>,
}

/// What a repetition begins with.
struct Input {
    /// Tokens in the KV cache before it.
    position: usize,
    prompt: Vec<u32>,
    /// The token that decoding begins with.
    first: u32,
}

/// One repetition.
struct Repetition {
    sample: Sample,
    sums: Sums,
    output: Vec<u32>,
}

impl<'s, 'm> Bench<'s, 'm> {
    /// `capacity`: how many spans the profile of the run has room for.
    pub(crate) fn new(
        session: &'s mut Session<'m>,
        clock: Clock,
        settings: Settings,
        capacity: usize,
    ) -> Result<Self> {
        let profiler = || BrickProfiler::with_clock(clock.clone()).with_log_capacity(capacity);
        let (scratch, kept) = (profiler(), profiler());
        // The log of a thread is made when it first records: not in a repetition.
        for profiler in [&scratch, &kept] {
            profiler.enable();
            profiler.end_pass(profiler.begin_pass(brickscope::Phase::Prefill), 0, 0);
            profiler.disable();
            profiler.reset();
        }
        Ok(Self { session, clock, settings, scratch, kept })
    }

    /// The profile of the repetitions that were kept.
    pub(crate) fn profile(&self) -> Profile {
        self.kept.profile()
    }

    /// Runs a test: its warm-up, then the repetitions that count. With `keep` the last of these is
    /// for the run's profile. `show` is told how far it is.
    pub(crate) fn run(
        &mut self,
        plan: Plan,
        keep: bool,
        show: &mut dyn FnMut(String),
    ) -> Result<Measured> {
        let Settings { repetitions, warm_up: rule, .. } = self.settings;
        let name = plan.name();
        show(format!("{name}: preparing"));
        let (input, input_sha256) = self.prepare(plan)?;

        let mut samples: Vec<(Sample, Sums)> = Vec::new();
        let mut outputs: Vec<Vec<u32>> = Vec::new();
        let mut walls = Vec::new();
        let began = self.clock.now();
        let warm_up = loop {
            show(format!("{name}: warm-up {}", walls.len() + 1));
            let Repetition { mut sample, sums, output } = self.repetition(plan, &input, false)?;
            sample.is_warm_up = true;
            walls.push(sample.wall_ns);
            samples.push((sample, sums));
            outputs.push(output);
            let elapsed = self.clock.now().saturating_sub(began);
            if let Some(warm_up) = rule.verdict(&walls, elapsed) {
                break warm_up;
            }
        };
        for n in 1..=repetitions {
            show(format!("{name}: {n} of {repetitions}"));
            let Repetition { sample, sums, output } =
                self.repetition(plan, &input, keep && n == repetitions)?;
            samples.push((sample, sums));
            outputs.push(output);
        }

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
            ..Test::default()
        };
        let sums = fill(&mut test, samples, repetitions, self.settings.profiled);
        Ok(Measured { test, is_deterministic, spans: sums.spans, dropped: sums.dropped })
    }

    /// Fills the KV cache as far as `plan` says; returns what repetitions begin with.
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
        Ok((Input { position: plan.position(), prompt, first }, input_sha256))
    }

    fn repetition(&mut self, plan: Plan, input: &Input, keep: bool) -> Result<Repetition> {
        let Self { session, clock, settings, scratch, kept } = self;
        let profiler = if keep { &*kept } else { &*scratch };
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

        let sums = Sums::of(&profiler.profile()).since(&before);
        if !keep {
            profiler.reset();
        }
        let sample = Sample {
            start_ns,
            end_ns,
            wall_ns: sums.wall_ns,
            pass_ns: sums.passes.iter().map(|pass| pass.wall_ns).collect(),
            tokens: sums.passes.iter().map(|pass| pass.tokens).sum(),
            token_ns,
            first_token_ns,
            disturbed: disturbed(&sums.passes),
            run_queue_wait_ns: run_queue_wait(&sums.passes),
            cpu_khz: cpu_frequency_khz(),
            ..Sample::default()
        };
        Ok(Repetition { sample, sums, output })
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

/// Writes samples into a test, with what was recorded of them; returns the sums of those that count.
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
        // The same work each time; were it not, there would be no such figure.
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

/// Whether others disturbed a pass; `None` if nobody could tell of any.
fn disturbed(passes: &[Pass]) -> Option<bool> {
    let known = passes.iter().any(|pass| pass.disturbance.is_some());
    known.then(|| passes.iter().any(Pass::is_disturbed))
}

/// For how long threads waited for a core. One look can be of several passes in a row.
fn run_queue_wait(passes: &[Pass]) -> Option<u64> {
    let mut rest = passes;
    let mut sum: u64 = 0;
    while let Some(pass) = rest.first() {
        let disturbance = pass.disturbance?;
        sum = sum.checked_add(disturbance.run_queue_wait_ns?)?;
        let covered = usize::try_from(disturbance.passes).ok()?.max(1);
        rest = rest.get(covered..).unwrap_or_default();
    }
    (!passes.is_empty()).then_some(sum)
}

/// What a profiler says of some passes.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sums {
    wall_ns: u64,
    unattributed_ns: u64,
    passes: Vec<Pass>,
    /// Exclusive times, in the order of the profile's table.
    bricks: Vec<(Brick, u64)>,
    kernels: BTreeMap<String, Kernel>,
    spans: u64,
    dropped: BTreeMap<String, u64>,
}

impl Sums {
    /// Of all passes of a profile. What lies outside of passes isn't measured.
    fn of(profile: &Profile) -> Self {
        let mut sums = Self {
            wall_ns: profile.phases.iter().map(|phase| phase.wall_ns).sum(),
            unattributed_ns: profile.phases.iter().map(|phase| phase.unattributed_ns).sum(),
            passes: profile.passes.clone(),
            spans: profile.overhead.spans,
            dropped: dropped(profile),
            ..Self::default()
        };
        for total in profile.totals.iter().filter(|total| total.phase.is_some()) {
            let stats = &total.stats;
            if total.kind == NameKind::Brick {
                let category = total.category.unwrap_or_default().name().to_owned();
                sums.add_brick(&Brick { name: stats.name.clone(), category }, stats.exclusive_ns);
            } else {
                // Who states bytes states FLOPs too, be they none: a copy has none.
                let is_stated = stats.total_flops | stats.total_bytes > 0;
                sums.add_kernel(&Kernel {
                    id: stats.name.clone(),
                    launches: stats.count,
                    flops: is_stated.then_some(stats.total_flops),
                    bytes: is_stated.then_some(stats.total_bytes),
                });
            }
        }
        sums
    }

    /// What has come since `earlier`, of the same profiler.
    fn since(mut self, earlier: &Self) -> Self {
        self.wall_ns -= earlier.wall_ns;
        self.unattributed_ns -= earlier.unattributed_ns;
        self.passes.drain(..earlier.passes.len());
        for (brick, ns) in &mut self.bricks {
            *ns -= earlier.brick(brick);
        }
        self.bricks.retain(|&(_, ns)| ns > 0);
        for (id, kernel) in &mut self.kernels {
            if let Some(before) = earlier.kernels.get(id) {
                let minus = |now: Option<u64>, then: Option<u64>| Some(now? - then?);
                kernel.launches -= before.launches;
                kernel.flops = minus(kernel.flops, before.flops);
                kernel.bytes = minus(kernel.bytes, before.bytes);
            }
        }
        self.kernels.retain(|_, kernel| kernel.launches > 0);
        self.spans -= earlier.spans;
        for (what, count) in &mut self.dropped {
            *count -= earlier.dropped.get(what).copied().unwrap_or_default();
        }
        self.dropped.retain(|_, count| *count > 0);
        self
    }

    fn brick(&self, brick: &Brick) -> u64 {
        self.bricks.iter().find(|(other, _)| other == brick).map_or(0, |&(_, ns)| ns)
    }

    fn add_brick(&mut self, brick: &Brick, ns: u64) {
        match self.bricks.iter_mut().find(|(other, _)| other == brick) {
            Some((_, sum)) => *sum += ns,
            None => self.bricks.push((brick.clone(), ns)),
        }
    }

    fn add_kernel(&mut self, kernel: &Kernel) {
        let new = Kernel { id: kernel.id.clone(), launches: 0, flops: Some(0), bytes: Some(0) };
        let sum = self.kernels.entry(kernel.id.clone()).or_insert(new);
        let plus = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        sum.launches += kernel.launches;
        sum.flops = plus(sum.flops, kernel.flops);
        sum.bytes = plus(sum.bytes, kernel.bytes);
    }

    /// Makes place for the bricks of `other`.
    fn add_names(&mut self, other: &Self) {
        for (brick, _) in &other.bricks {
            self.add_brick(brick, 0);
        }
    }

    /// Adds all but the passes.
    fn add(&mut self, other: &Self) {
        self.wall_ns += other.wall_ns;
        self.unattributed_ns += other.unattributed_ns;
        for (brick, ns) in &other.bricks {
            self.add_brick(brick, *ns);
        }
        for kernel in other.kernels.values() {
            self.add_kernel(kernel);
        }
        self.spans += other.spans;
        for (what, count) in &other.dropped {
            *self.dropped.entry(what.clone()).or_default() += count;
        }
    }
}

/// Counters that aren't zero, by name. Of disturbance samples tell.
fn dropped(profile: &Profile) -> BTreeMap<String, u64> {
    let counters = serde_json::to_value(profile.dropped);
    let counters = counters.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
    counters
        .into_iter()
        .filter(|(name, _)| !["disturbed_passes", "left_out_passes"].contains(&name.as_str()))
        .filter_map(|(name, count)| Some((name, count.as_u64().filter(|&count| count > 0)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use brickscope::{BrickId, Disturbance, MockClock, Phase, Work};

    use super::*;

    fn pass(disturbance: Option<Disturbance>) -> Pass {
        Pass {
            serial: 1,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 0,
            start_ns: 0,
            wall_ns: 1000,
            attributed_ns: 0,
            unattributed_ns: 1000,
            disturbance,
            is_left_out: false,
        }
    }

    /// A look at so many passes, in which one thread waited so long.
    fn look(passes: u64, wait_ns: u64) -> Disturbance {
        Disturbance {
            passes,
            wall_ns: 1000 * passes,
            run_queue_wait_ns: Some(wait_ns),
            longest_wait_ns: Some(wait_ns),
            ..Disturbance::default()
        }
    }

    #[test]
    fn a_look_at_several_passes_counts_once() {
        let (first, second) = (look(2, 5), look(1, 700));
        let passes = [pass(Some(first)), pass(Some(first)), pass(Some(second))];
        assert_eq!(run_queue_wait(&passes), Some(705));
        assert_eq!((disturbed(&passes), disturbed(&passes[..2])), (Some(true), Some(false)));
        // What nobody looked at is not known.
        assert_eq!(run_queue_wait(&[pass(Some(second)), pass(None)]), None);
        assert_eq!((run_queue_wait(&[]), disturbed(&[pass(None)])), (None, None));
    }

    /// What a profiler says of passes of one brick with one kernel, each of so many nanoseconds.
    fn sums(profiler: &BrickProfiler, hand: &MockClock, phase: Phase, passes: &[u64]) -> Sums {
        let kernel = profiler.kernel("gemv", None);
        for &ns in passes {
            let pass = profiler.begin_pass(phase);
            let brick = profiler.start_brick_kernel(BrickId::LmHead, kernel);
            hand.advance(ns);
            profiler.stop_brick_kernel(brick, Work { elements: 1, flops: 0, bytes: 10 });
            hand.advance(1);
            profiler.end_pass(pass, 3, 0);
        }
        Sums::of(&profiler.profile())
    }

    #[test]
    fn what_a_repetition_took_is_what_came_since() {
        let hand = MockClock::default();
        let profiler = BrickProfiler::with_clock(hand.clock());
        profiler.enable();
        let before = sums(&profiler, &hand, Phase::Prefill, &[100, 50]);
        assert_eq!((before.wall_ns, before.unattributed_ns), (152, 2));
        let after = sums(&profiler, &hand, Phase::Decode, &[7, 8, 9]).since(&before);
        assert_eq!((after.wall_ns, after.unattributed_ns, after.spans), (27, 3, 6));
        let walls: Vec<u64> = after.passes.iter().map(|pass| pass.wall_ns).collect();
        assert_eq!(walls, [8, 9, 10]);
        let brick = Brick { name: "LmHead".to_owned(), category: "Other".to_owned() };
        assert_eq!(after.brick(&brick), 24, "{:?}", after.bricks);
        let kernel = &after.kernels["gemv"];
        assert_eq!((kernel.launches, kernel.flops, kernel.bytes), (3, Some(0), Some(30)));
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
