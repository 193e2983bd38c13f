//! `brickscope profile --check-overhead`: measures what profiling costs.
//!
//! The same token is decoded at the same position four times: twice by `forward` (A) and twice by
//! `forward_profiled` (B), in the order A B B A, and B A A B at the next position. Each A has a B right
//! next to it, and each of them comes first and last equally often.

use anyhow::{Result, bail, ensure};
use brickscope::{
    BrickProfiler, Clock, ClockInfo, Machine, PairedError, PairedRatio, Phase, Profile,
};
use brickscope_engine::{AnyProbe, AnySession, Sampler, Sampling, Session};
use brickscope_kernels::Backend;
use serde::{Deserialize, Serialize};

use crate::figures::{pass_time, signed_percent};
use crate::flags::profile::{ProfileArgs, Sync};
use crate::measure::log_capacity;
use crate::text::{WIDTH, count};
use crate::{device, interrupt, output, progress, source};
use brickscope::stats::median;

/// The interval is narrow enough at this half-width: 0.1 %.
const HALF_WIDTH: f64 = 0.001;

/// Quads before the first look at the interval, since one of few quads may be narrow by chance.
const FIRST_LOOK: usize = 20;

/// The least quads of one of several processes: what [`PairedRatio`] needs.
const LEAST_OF_A_PROCESS: usize = 3;

/// Quads of the warm-up, which don't count.
const WARM_UP: usize = 4;

/// A pass that took this many times its arm's median was probably disturbed.
pub(super) const SLOW: f64 = 1.25;

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    if args.tokens < 2 {
        bail!("--check-overhead decodes tokens, so it needs --tokens 2 or more");
    }
    let is_on_device = device::asked(&args.executor).is_some();
    ensure!(
        is_on_device || matches!(args.sync, Sync::Deferred),
        "--sync with --check-overhead needs a device: all modes time bricks on the CPU the same way"
    );
    ensure!(
        device::asked(&args.executor) != Some(Backend::Cuda),
        "cuda times one decode pass in eight, which pairs of passes don't show: \
        `brickscope selftest --backend cuda` measures its cost"
    );
    interrupt::watch()?;
    if args.overhead_processes > 1 && !args.overhead_process {
        return super::check_overhead_set::run(args);
    }
    let model = source::model_to_run(args.model(), &args.executor)?;
    let prompt = source::prompt(&model, &args.prompt)?;
    // As in a profiled run, so that the log is just as large.
    let context = prompt.len().saturating_add(args.tokens - 1);
    if let Some(backend) = device::asked(&args.executor) {
        let mut session = device::session(backend, &model, context)?;
        let profiler = BrickProfiler::enabled();
        profiler.set_sync_mode(args.sync.into());
        let mut arms = Arms::new(&mut *session, &profiler)?;
        let on = (format!("{backend}, sync {}", profiler.sync_mode().name()), None);
        return check(args, &prompt, &mut arms, &profiler, DEVICE_CAPACITY, on);
    }
    let mut session = Session::new(&model, source::cpu(&args.executor)?, context)?;
    let capacity = log_capacity(&model, session.batch(), context);
    let profiler = BrickProfiler::enabled().with_log_capacity(capacity);
    let backend = session.cpu().kernels.backend().name().to_owned();
    let threads = Some(session.cpu().threads());
    let mut arms = Arms::new(&mut session, &profiler)?;
    check(args, &prompt, &mut arms, &profiler, capacity, (backend, threads))
}

/// Capacity of the log of a device's stream, in spans.
const DEVICE_CAPACITY: usize = 1 << 16;

/// A session whose passes are run in both ways.
struct Arms<'s, 'm, 'p> {
    session: &'s mut (dyn AnySession<'m> + 's),
    probe: AnyProbe<'p>,
}

impl<'s, 'm, 'p> Arms<'s, 'm, 'p> {
    fn new(
        session: &'s mut (dyn AnySession<'m> + 's),
        profiler: &'p BrickProfiler,
    ) -> Result<Self> {
        let probe = session.probe(profiler)?;
        Ok(Self { session, probe })
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<()> {
        Ok(self.session.forward(tokens).map(drop)?)
    }

    fn forward_profiled(&mut self, tokens: &[u32]) -> Result<()> {
        Ok(self.session.forward_with(&mut self.probe, tokens).map(drop)?)
    }
}

fn check(
    args: &ProfileArgs,
    prompt: &[u32],
    arms: &mut Arms<'_, '_, '_>,
    profiler: &BrickProfiler,
    capacity: usize,
    (backend, threads): (String, Option<usize>),
) -> Result<()> {
    let created = Profile::empty(Default::default()).created;
    let clock = Clock::default();
    let processes = if args.overhead_process { f64::from(args.overhead_processes) } else { 1.0 };
    let limit_ns = (args.overhead_seconds / processes * 1e9) as u64;
    let bar = progress::time("measuring", limit_ns / 1_000_000);
    let mut show = |elapsed_ns: u64, quads: usize, so_far: Option<PairedRatio>| {
        if let Some(ratio) = so_far {
            bar.set_prefix(format!("±{:.2} %, {quads} quads", 100.0 * ratio.half_width()));
        }
        bar.set_position(elapsed_ns / 1_000_000);
    };
    // Each of several processes must have an estimate: without one, all measured in vain.
    let least = if args.overhead_process { LEAST_OF_A_PROCESS } else { 1 };
    let limits = (limit_ns, least);
    let measured = measure(arms, profiler, &clock, capacity, prompt, limits, &mut show)?;
    bar.finish_and_clear();

    let run = Setting {
        created,
        model: source::describe(arms.session.model()),
        machine: brickscope::machine::detect(),
        backend,
        threads,
        clock: clock.describe(),
        prompt_tokens: prompt.len(),
        log_capacity: capacity,
    };
    let report = Report::new(run, measured);
    let text = if args.json || args.overhead_process {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.text()
    };
    output::print(text)
}

/// The order of the passes of a quad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Order {
    Abba,
    Baab,
}

impl Order {
    /// Which passes are `forward_profiled`.
    fn is_b(self) -> [bool; 4] {
        match self {
            Self::Abba => [false, true, true, false],
            Self::Baab => [true, false, false, true],
        }
    }
}

/// Four passes over the same token at the same position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Quad {
    /// Tokens in the KV cache before each pass.
    position: usize,
    order: Order,
    /// The time of each pass in nanoseconds, in the order in which they ran.
    ns: [u64; 4],
}

impl Quad {
    /// The times of `forward`.
    fn a(&self) -> [u64; 2] {
        let [first, second, third, fourth] = self.ns;
        match self.order {
            Order::Abba => [first, fourth],
            Order::Baab => [second, third],
        }
    }

    /// The times of `forward_profiled`, each measured right next to its `a`.
    fn b(&self) -> [u64; 2] {
        let [first, second, third, fourth] = self.ns;
        match self.order {
            Order::Abba => [second, third],
            Order::Baab => [first, fourth],
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.a().into_iter().zip(self.b()).map(|(a, b)| (a as f64, b as f64))
    }
}

fn compare(quads: &[Quad]) -> Result<PairedRatio, PairedError> {
    PairedRatio::new(&quads.iter().flat_map(Quad::pairs).collect::<Vec<_>>())
}

/// Why the measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stopped {
    /// The interval was narrow enough.
    HalfWidth,
    /// The time limit was reached.
    Time,
    /// It was interrupted.
    Interrupted,
}

#[derive(Debug)]
struct Measured {
    quads: Vec<Quad>,
    spans_per_pass: usize,
    elapsed_ns: u64,
    stopped: Stopped,
}

/// Runs quads until the interval is narrow enough or `limit_ns` have passed, but at least the given
/// number.
fn measure(
    arms: &mut Arms<'_, '_, '_>,
    profiler: &BrickProfiler,
    clock: &Clock,
    log_capacity: usize,
    prompt: &[u32],
    (limit_ns, least): (u64, usize),
    show: &mut dyn FnMut(u64, usize, Option<PairedRatio>),
) -> Result<Measured> {
    let mut sampler = Sampler::new(Sampling::Greedy);
    arms.forward(prompt)?;
    let first = sampler.sample(arms.session.last_logits());
    for _ in 0..WARM_UP {
        quad(arms, clock, Order::Abba, prompt.len(), first)?;
    }
    let warm = profiler.profile();
    let on_devices = warm.devices.iter().flat_map(|device| &device.streams);
    let on_devices: usize = on_devices.map(|stream| stream.spans.len()).sum();
    let spans = warm.spans.len() + usize::try_from(warm.dropped.spans)? + on_devices;
    let spans_per_pass = spans.div_ceil(2 * WARM_UP);

    let mut logged = spans;
    let mut quads: Vec<Quad> = Vec::new();
    let mut next_look = FIRST_LOOK;
    let (mut position, mut token) = (prompt.len(), first);
    let start = clock.now();
    loop {
        // The log of a profiled run has room for the whole run. So empty this one before it is full, since
        // passes are folded as they end from then on. The extra pass allocates the log again, untimed.
        if logged + 2 * spans_per_pass > log_capacity {
            profiler.reset();
            arms.session.truncate(position);
            arms.forward_profiled(&[token])?;
            logged = spans_per_pass;
        }
        let order = if quads.len().is_multiple_of(2) { Order::Abba } else { Order::Baab };
        let ns = quad(arms, clock, order, position, token)?;
        quads.push(Quad { position, order, ns });
        logged += 2 * spans_per_pass;
        // Go on to the next position, or back to the first.
        (position, token) = match arms.session.room() {
            0 => (prompt.len(), first),
            _ => (arms.session.position(), sampler.sample(arms.session.last_logits())),
        };

        let elapsed_ns = clock.now() - start;
        let mut so_far = None;
        if quads.len() >= next_look {
            // Rarely: looking often enough would find a narrow interval by chance.
            next_look += next_look.div_ceil(8);
            so_far = compare(&quads).ok();
        }
        show(elapsed_ns, quads.len(), so_far);
        if quads.len() >= LEAST_OF_A_PROCESS {
            interrupt::keep();
        }
        if interrupt::is_asked() {
            let stopped = Stopped::Interrupted;
            return Ok(Measured { quads, spans_per_pass, elapsed_ns, stopped });
        }
        let narrow = so_far.is_some_and(|ratio| ratio.half_width() <= HALF_WIDTH);
        if narrow || elapsed_ns >= limit_ns && quads.len() >= least {
            let stopped = if narrow { Stopped::HalfWidth } else { Stopped::Time };
            return Ok(Measured { quads, spans_per_pass, elapsed_ns, stopped });
        }
    }
}

/// Decodes `token` at `position` four times and returns the time of each pass in nanoseconds. Advances
/// the session by one token.
fn quad(
    arms: &mut Arms<'_, '_, '_>,
    clock: &Clock,
    order: Order,
    position: usize,
    token: u32,
) -> Result<[u64; 4]> {
    let mut ns = [0; 4];
    for (ns, is_b) in ns.iter_mut().zip(order.is_b()) {
        arms.session.truncate(position);
        let start = clock.now();
        if is_b {
            arms.forward_profiled(&[token])?;
        } else {
            arms.forward(&[token])?;
        }
        *ns = clock.now() - start;
    }
    Ok(ns)
}

/// What ran, and on what.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    created: String,
    model: brickscope::Model,
    machine: Machine,
    backend: String,
    /// Threads of the CPU.
    threads: Option<usize>,
    clock: ClockInfo,
    prompt_tokens: usize,
    /// Capacity of a thread's log in spans, as in a run of this many tokens.
    log_capacity: usize,
}

/// The result. `--json` prints it as it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// The phase of the passes: one token each.
    phase: Phase,
    /// Passes of the warm-up, whose times are discarded.
    warm_up_passes: usize,
    pub(super) spans_per_pass: usize,
    seconds: f64,
    stopped: Stopped,
    half_width_wanted: f64,
    pub(super) forward: Arm,
    pub(super) forward_profiled: Arm,
    /// Times of `forward_profiled` ÷ times of `forward`, less 1.
    pub(super) slow_down: Option<PairedRatio>,
    /// Why there is no `slow_down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slow_down_absent: Option<String>,
    quads: Vec<Quad>,
}

/// The passes of one arm, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Arm {
    pub(super) passes: usize,
    pub(super) median_ns: f64,
    /// Passes that took over [`SLOW`] times the median. The comparison includes them.
    pub(super) slow_passes: usize,
}

impl Arm {
    fn new(times: Vec<u64>) -> Self {
        let passes = times.len();
        let all: Vec<f64> = times.iter().map(|&ns| ns as f64).collect();
        let median_ns = median(&all).unwrap_or(f64::NAN);
        let slow = |&&ns: &&u64| ns as f64 > SLOW * median_ns;
        Self { passes, median_ns, slow_passes: times.iter().filter(slow).count() }
    }
}

impl Report {
    fn new(setting: Setting, measured: Measured) -> Self {
        let Measured { quads, spans_per_pass, elapsed_ns, stopped } = measured;
        let (slow_down, slow_down_absent) = match compare(&quads) {
            Ok(ratio) => (Some(ratio), None),
            Err(why) => (None, Some(why.to_string())),
        };
        Self {
            setting,
            phase: Phase::Decode,
            warm_up_passes: 4 * WARM_UP,
            spans_per_pass,
            seconds: elapsed_ns as f64 / 1e9,
            stopped,
            half_width_wanted: HALF_WIDTH,
            forward: Arm::new(quads.iter().flat_map(Quad::a).collect()),
            forward_profiled: Arm::new(quads.iter().flat_map(Quad::b).collect()),
            slow_down,
            slow_down_absent,
            quads,
        }
    }

    fn lines(&self) -> Vec<(&'static str, String, String)> {
        let positions = self.quads.iter().map(|quad| quad.position);
        let (first, last) = (positions.clone().min(), positions.max());
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let n = self.quads.len();
        let (a, b) = (self.forward, self.forward_profiled);
        let mut lines = vec![
            ("forward", pass_time(a.median_ns), format!("median of {} passes", a.passes)),
            (
                "forward_profiled",
                pass_time(b.median_ns),
                format!("median of {} passes, {} spans each", b.passes, self.spans_per_pass),
            ),
        ];
        let none = String::new;
        match (&self.slow_down, &self.slow_down_absent) {
            (Some(ratio), _) => {
                let interval = format!(
                    "95 % interval {} to {}",
                    signed_percent(ratio.low),
                    signed_percent(ratio.high)
                );
                lines.push(("slow-down", signed_percent(ratio.estimate), interval));
                let totals = "of the sums of all passes, disturbed ones included".to_owned();
                lines.push(("", signed_percent(ratio.of_totals), totals));
            }
            (None, why) => {
                lines.push(("slow-down", "n/a".to_owned(), why.clone().unwrap_or_default()));
            }
        }
        let quads = count(n as u64, "ABBA quad");
        let quads = format!("{quads}, decode, positions {first} to {last}");
        lines.push(("from", none(), quads));
        let ended = match self.stopped {
            Stopped::HalfWidth => format!("known to ±{:.1} %", 100.0 * HALF_WIDTH),
            Stopped::Time => "time limit reached; --overhead-seconds raises it".to_owned(),
            Stopped::Interrupted => "cut short: interrupted".to_owned(),
        };
        lines.push(("ended", format!("{:.1} s", self.seconds), ended));
        let slow = format!(
            "{} and {} passes over {SLOW} times their median",
            a.slow_passes, b.slow_passes
        );
        lines.push(("disturbed", none(), slow));
        lines
    }

    fn text(&self) -> String {
        let lines = self.lines();
        let lines = lines.iter().map(|(what, value, how)| line(what, value, how));
        let cut_short = match self.stopped {
            Stopped::Interrupted => "note: cut short: interrupted before the interval was narrow\n",
            Stopped::HalfWidth | Stopped::Time => "",
        };
        self.setting.heading() + cut_short + &lines.collect::<String>()
    }
}

impl Setting {
    /// The line that says what ran.
    pub(super) fn heading(&self) -> String {
        let Self { model, backend, threads, .. } = self;
        let mut run = format!("{}, {backend}", model.quantization);
        if let Some(threads) = threads {
            run += &format!(", {}", count(*threads as u64, "thread"));
        }
        let model = model.name.as_deref().unwrap_or(&model.path);
        // One line on an 80-column terminal, however long the model's name is.
        let room = WIDTH.saturating_sub(run.chars().count() + 2);
        let mut name: String = model.escape_debug().take(room).collect();
        if model.escape_debug().count() > room {
            name.pop();
            name.push('…');
        }
        format!("{name}, {run}\n")
    }
}

/// A line of the output.
pub(super) fn line(what: &str, value: &str, how: &str) -> String {
    let line = format!("{what:17} {value:>9}  {how}");
    line.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use brickscope::MockClock;
    use brickscope_engine::Model;
    use brickscope_engine::executor::Cpu;
    use brickscope_kernels::Kernels;

    use super::*;

    const NS: [u64; 4] = [1, 2, 3, 4];

    #[test]
    fn each_arm_gets_its_times_and_each_pair_is_of_neighbours() {
        let quad = |order| Quad { position: 7, order, ns: NS };
        for (order, pairs) in
            [(Order::Abba, [(1.0, 2.0), (4.0, 3.0)]), (Order::Baab, [(2.0, 1.0), (3.0, 4.0)])]
        {
            assert_eq!(quad(order).pairs().collect::<Vec<_>>(), pairs);
            // As `quad` runs them.
            let is_b = order.is_b();
            let times = |arm: bool| (0..4).filter(|&i| is_b[i] == arm).map(|i| NS[i]).collect();
            let (a, b): (Vec<u64>, Vec<u64>) = (times(false), times(true));
            assert_eq!((quad(order).a().to_vec(), quad(order).b().to_vec()), (a, b));
        }
    }

    #[test]
    fn an_arm_counts_its_slow_passes_and_says_nothing_of_none() {
        let arm = Arm::new(vec![100, 126, 100, 90, 125]);
        assert_eq!(arm, Arm { passes: 5, median_ns: 100.0, slow_passes: 1 });
        assert_eq!(Arm::new(vec![3, 1, 2, 9]).median_ns, 2.5);
        assert!(Arm::new(Vec::new()).median_ns.is_nan());
    }

    #[test]
    fn the_log_never_fills_and_the_positions_go_round() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/tiny-Q8_0.gguf");
        let model = Model::open(&path).expect("the fixture");
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN).expect("a thread");
        let mut session = Session::new(&model, cpu, 7).expect("a session");
        // Room for the warm-up and a little: it has to be emptied many times.
        let capacity = log_capacity(&model, session.batch(), 7);
        let profiler = BrickProfiler::enabled().with_log_capacity(capacity);
        let hand = MockClock::default();
        let mut shown = Vec::new();
        let mut show = |_, quads, so_far| {
            shown.push((quads, so_far));
            hand.advance(1);
        };
        let (clock, prompt) = (hand.clock(), [1, 267, 335]);
        let mut arms = Arms::new(&mut session, &profiler).expect("a probe");
        let measured = measure(&mut arms, &profiler, &clock, capacity, &prompt, (50, 1), &mut show)
            .expect("runs");
        assert_eq!((measured.quads.len(), measured.stopped), (51, Stopped::Time));
        // The clock stands still in a pass, so there is nothing to compare.
        assert_eq!(shown, (1..=51).map(|n| (n, None)).collect::<Vec<_>>());
        for (i, quad) in measured.quads.iter().enumerate() {
            let order = [Order::Abba, Order::Baab][i % 2];
            assert_eq!(*quad, Quad { position: 3 + i % 4, order, ns: [0; 4] });
        }
        let profile = profiler.profile();
        assert_eq!(profile.dropped.spans, 0);
        assert!(2 * 51 * measured.spans_per_pass > capacity, "it would have filled");
        assert!(profile.passes.iter().all(|pass| (3..7).contains(&pass.position)));
        assert_eq!(profile.spans.len(), profile.passes.len() * measured.spans_per_pass);
    }

    fn report(quads: Vec<Quad>) -> Report {
        let measured = Measured {
            quads,
            spans_per_pass: 356,
            elapsed_ns: 1_500_000_000,
            stopped: Stopped::Time,
        };
        let run = Setting {
            created: String::new(),
            model: brickscope::Model {
                name: Some("a name that is longer than any line ".repeat(3) + "\n"),
                quantization: "q8_0".to_owned(),
                ..brickscope::Model::default()
            },
            machine: Machine::default(),
            backend: "avx2".to_owned(),
            threads: Some(2),
            clock: ClockInfo::default(),
            prompt_tokens: 94,
            log_capacity: 1000,
        };
        Report::new(run, measured)
    }

    fn quads(n: usize, b: u64) -> Vec<Quad> {
        let ns = [1_000_000, b, b, 1_000_000];
        (0..n).map(|i| Quad { position: 94 + i, order: Order::Abba, ns }).collect()
    }

    #[test]
    fn the_text_says_all_of_it_in_80_columns() {
        let text = report(quads(40, 1_002_100)).text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "forward            1.000 ms  median of 80 passes",
                "forward_profiled   1.002 ms  median of 80 passes, 356 spans each",
                "slow-down           +0.21 %  95 % interval +0.21 % to +0.21 %",
                "                    +0.21 %  of the sums of all passes, disturbed ones included",
                "from                         40 ABBA quads, decode, positions 94 to 133",
                "ended                 1.5 s  time limit reached; --overhead-seconds raises it",
                "disturbed                    0 and 0 passes over 1.25 times their median",
            ]
        );
    }

    #[test]
    fn what_cannot_be_computed_is_absent_with_the_reason() {
        let few = report(quads(2, 1_002_100));
        let why = "an interval takes 6 pairs of times, and there are 4";
        assert!(few.text().contains(&format!("slow-down               n/a  {why}\n")));
        let json = serde_json::to_value(&few).expect("JSON");
        assert_eq!(
            (&json["slow_down"], json["slow_down_absent"].as_str()),
            (&None::<()>.into(), Some(why))
        );
        // A clock that stood still.
        let still = report(quads(20, 0));
        assert!(
            still.slow_down_absent.is_some_and(|why| why.contains("both must be times above 0"))
        );
    }
}
