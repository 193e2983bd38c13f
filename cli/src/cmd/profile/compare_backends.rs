//! `brickscope profile --compare-backends`: compares the backends of this CPU on the same tokens, brick
//! by brick.

use std::ops::ControlFlow;

use anyhow::Result;
use brickscope::{Backend, BrickProfiler, ClockInfo, Machine, NotFinite, Profile, Run};
use brickscope_analysis::backends::{BackendComparison, BackendRounds};
use brickscope_analysis::view;
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::{Pages, Placement};
use brickscope_engine::{GenerateOptions, Model, Sampling, Session, generate};
use brickscope_kernels::Kernels;
use serde::Serialize;

use crate::flags::profile::ProfileArgs;
use crate::measure::log_capacity;
use crate::{ceilings_cache, interrupt, output, progress, source, text};

/// The most rows of a round's trace. They only serve to find spans without stated work.
const MAX_LOG: usize = 1 << 16;

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    interrupt::watch()?;
    let created = Profile::empty(Default::default()).created;
    let mut model = source::model(args.model())?;
    let pages = args.executor.pages();
    if !args.executor.mmap {
        source::copy(&mut model, pages, &|_, _| ())?;
    }
    let interleaved = if args.executor.mmap { None } else { interleaved(&model, pages)? };
    let prompt = source::prompt(&model, &args.prompt)?;
    let best = source::cpu(&args.executor)?;
    // The last token is chosen, but not run.
    let context = prompt.len().saturating_add(args.tokens.saturating_sub(1));

    // With the weights as a backend would read them alone.
    let read_by = |kernels: Kernels| match &interleaved {
        Some(interleaved) if model.is_faster_interleaved(kernels) => interleaved,
        _ => &model,
    };

    let (mut sides, mut left_out) = (Vec::new(), Vec::new());
    for backend in Backend::ALL {
        match Kernels::new(backend) {
            Ok(kernels) => {
                // All sides share one thread pool: idle threads of another would keep spinning for a while.
                let mut cpu = best.clone();
                cpu.kernels = kernels;
                let model = read_by(kernels);
                sides.push(Side::new(model, Session::new(model, cpu, context)?, context));
            }
            Err(why) => left_out.push(LeftOut { backend: backend.name(), reason: why.to_string() }),
        }
    }
    let note = progress::note("measuring what this machine can do");
    for side in &mut sides {
        let cpu = side.session.cpu();
        side.ceilings = Some(ceilings_cache::ceilings(&model, cpu.kernels, cpu.pool()));
    }
    note.finish_and_clear();

    let (decoded, not_finite) =
        chosen(read_by(best.kernels), best.clone(), &prompt, args.tokens, context)?;
    let turns = args.rounds as usize * sides.len();
    let turn = prompt.len() + decoded.len();
    let bar = progress::tokens("running", ((turns + sides.len()) * turn) as u64);
    for side in &mut sides {
        side.warm_up(&prompt, &decoded)?;
        bar.inc(turn as u64);
    }
    let count = sides.len();
    'rounds: for round in 0..args.rounds as usize {
        // Each round begins with another backend, so that none always follows the same one.
        for nth in 0..count {
            if interrupt::is_asked() {
                break 'rounds;
            }
            let side = &mut sides[(round + nth) % count];
            side.turn(&prompt, &decoded, &mut || bar.inc(1))?;
            bar.inc(prompt.len() as u64);
        }
        interrupt::keep();
    }
    bar.finish_and_clear();
    // Only whole rounds compare all backends.
    let whole = sides.iter().map(|side| side.rounds.len()).min().unwrap_or_default();
    sides.iter_mut().for_each(|side| side.rounds.truncate(whole));
    let cut_short = interrupt::was_heeded()
        .then(|| format!("interrupted after {whole} of {} rounds", args.rounds));

    let threads = best.threads();
    one_memory(&model, &best, &mut sides);
    for side in &mut sides {
        side.describe(&prompt, &decoded);
    }
    let rounds: Vec<_> = sides
        .iter()
        .map(|side| BackendRounds { backend: side.backend(), rounds: &side.rounds })
        .collect();
    let comparison = BackendComparison::new(&rounds).map_err(|why| anyhow::anyhow!(why.reason))?;
    let report = Report {
        not_finite,
        cut_short,
        created,
        model: source::describe(&model),
        machine: brickscope::machine::detect(),
        clock: sides[0].rounds.first().map(|round| round.clock.clone()).unwrap_or_default(),
        threads,
        prompt_tokens: prompt.len(),
        decoded_tokens: decoded.len(),
        comparison,
        interleaved: sides
            .iter()
            .filter(|side| side.session.model().interleaved().is_some())
            .map(Side::backend)
            .collect(),
        left_out,
    };
    let text =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() };
    output::print(text)
}

/// Measures the machine once more, and gives all backends the same roof of memory, of all measurements: they share one.
fn one_memory(model: &Model, best: &Cpu, sides: &mut [Side<'_>]) {
    let mut ceilings = Vec::new();
    for side in sides {
        let kernels = side.session.cpu().kernels;
        let Some(Ok(of)) = &mut side.ceilings else { continue };
        ceilings_cache::measure_again(model, kernels, best.pool(), of);
        ceilings.push(of);
    }
    ceilings_cache::share_memory(best.pool(), &mut ceilings);
}

/// A second copy of the model with interleaved rows, for the kernels of this CPU that read those
/// faster; `None` if there are no such kernels. The others are measured with rows as in the file.
fn interleaved(model: &Model, pages: Pages) -> Result<Option<Model>> {
    let mut kernels = Backend::ALL.into_iter().filter_map(|backend| Kernels::new(backend).ok());
    let Some(kernels) = kernels.find(|kernels| model.is_faster_interleaved(*kernels)) else {
        return Ok(None);
    };
    // If the first copy failed, as on a system without large pages, a backend alone reads the file, too.
    if model.gguf.placement() == Placement::Mapped {
        return Ok(None);
    }
    let mut copy = Model::open(&model.gguf.path)?;
    source::copy(&mut copy, pages, &|_, _| ())?;
    source::interleave(&mut copy, kernels);
    if copy.interleaved().is_none() {
        tell!(
            "note: not enough memory for a second copy of the model, so {} reads rows in the order of the \
            file, unlike in a run of its own",
            kernels.backend()
        );
        return Ok(None);
    }
    Ok(Some(copy))
}

/// The tokens that all backends decode: the likeliest according to the fastest backend. Also its logits that aren't
/// numbers, if there are any.
fn chosen(
    model: &Model,
    cpu: brickscope_engine::executor::Cpu,
    prompt: &[u32],
    n_tokens: usize,
    context: usize,
) -> Result<(Vec<u32>, Option<NotFinite>)> {
    let mut session = Session::new(model, cpu, context)?;
    let options = GenerateOptions { n_tokens, sampling: Sampling::Greedy };
    let bar = progress::tokens("choosing", context as u64);
    let mut show = |done: usize| {
        bar.set_position(done as u64);
        ControlFlow::Continue(())
    };
    let mut answer = generate(&mut session, None, prompt, options, &mut show)?;
    bar.finish_and_clear();
    let not_finite = answer.not_finite(&mut session, prompt)?;
    answer.tokens.pop();
    Ok((answer.tokens, not_finite))
}

/// A backend and its rounds.
struct Side<'m> {
    session: Session<'m>,
    profiler: BrickProfiler,
    ceilings: Option<Result<brickscope::Ceilings, brickscope::Absent>>,
    rounds: Vec<Profile>,
}

impl<'m> Side<'m> {
    fn new(model: &Model, session: Session<'m>, context: usize) -> Self {
        let capacity = log_capacity(model, session.batch(), context).min(MAX_LOG);
        let profiler = BrickProfiler::new().with_log_capacity(capacity);
        Self { session, profiler, ceilings: None, rounds: Vec::new() }
    }

    fn backend(&self) -> &'static str {
        self.session.cpu().kernels.backend().name()
    }

    /// Runs unmeasured passes, which bring the weights and the code into memory.
    fn warm_up(&mut self, prompt: &[u32], decoded: &[u32]) -> Result<()> {
        self.session.forward(&prompt[..prompt.len().min(self.session.batch())])?;
        if let Some(&token) = decoded.first() {
            self.session.forward(&[token])?;
        }
        self.session.clear();
        Ok(())
    }

    /// One round: the prompt, then the tokens one by one.
    fn turn(
        &mut self,
        prompt: &[u32],
        decoded: &[u32],
        decoded_one: &mut dyn FnMut(),
    ) -> Result<()> {
        self.session.clear();
        self.profiler.reset();
        self.profiler.enable();
        let probe = self.session.profiled(&self.profiler);
        self.session.forward_with(&probe, prompt)?;
        for &token in decoded {
            self.session.forward_with(&probe, &[token])?;
            decoded_one();
        }
        self.profiler.disable();
        self.rounds.push(self.profiler.profile());
        Ok(())
    }

    /// The fields that the profiles of all rounds share.
    fn describe(&mut self, prompt: &[u32], decoded: &[u32]) {
        let run = Run {
            command: text::command_line(),
            backend: self.backend().to_owned(),
            threads: self.session.cpu().threads() as u32,
            prompt_tokens: prompt.len() as u64,
            generated_tokens: decoded.len() as u64,
            ..Run::default()
        };
        let model = source::describe(self.session.model());
        for round in &mut self.rounds {
            round.run = Some(run.clone());
            round.model = Some(model.clone());
            match &self.ceilings {
                Some(Ok(ceilings)) => round.ceilings = Some(ceilings.clone()),
                Some(Err(absent)) => round.ceilings_absent = Some(absent.clone()),
                None => {}
            }
        }
    }
}

/// A backend that was not compared.
#[derive(Debug, Serialize)]
struct LeftOut {
    backend: &'static str,
    reason: String,
}

/// What is printed, and in this form with `--json`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    not_finite: Option<NotFinite>,
    /// How it was cut short, and after how many rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_short: Option<String>,
    created: String,
    model: brickscope::Model,
    machine: Machine,
    clock: ClockInfo,
    threads: usize,
    prompt_tokens: usize,
    /// In each round.
    decoded_tokens: usize,
    #[serde(flatten)]
    comparison: BackendComparison,
    /// Backends that read the weights in another order than the file's.
    interleaved: Vec<&'static str>,
    left_out: Vec<LeftOut>,
}

impl Report {
    fn text(&self) -> String {
        let Self { model, threads, .. } = self;
        let threads = text::count(*threads as u64, "thread");
        let run = format!("{}, {threads}", text::printable(&model.quantization));
        let name = text::printable(model.name.as_deref().unwrap_or(&model.path));
        // One line on an 80-column terminal, however long the model's name is.
        let name = text::cut(&name, 78_usize.saturating_sub(text::columns(&run)));
        let mut text = String::new();
        if let Some(not_finite) = &self.not_finite {
            text::wrapped("", &format!("{not_finite}."), &mut text);
        }
        let cut_short = self.cut_short.as_ref().map(|how| format!("note: cut short: {how}\n"));
        let cut_short = cut_short.unwrap_or_default();
        text += &format!("{name}, {run}\n{cut_short}\n{}", view::backends(&self.comparison));
        for backend in &self.interleaved {
            text += &format!("{backend} with rows of weights interleaved, as when it runs alone\n");
        }
        for LeftOut { backend, reason } in &self.left_out {
            text += &format!("without {backend}: {}\n", text::printable_text(reason));
        }
        text
    }
}
