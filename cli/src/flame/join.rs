//! Joining samples with spans: which brick did a thread work for when it was sampled?
//!
//! A sample of a thread that recorded spans belongs to the innermost open span. A sample of another
//! thread, or of a thread between its spans, belongs to the current place of the thread that ran a pass,
//! if there was exactly one: the sampled thread worked for it, or waited for it.

use std::collections::{HashMap, HashSet};

use brickscope::{Absent, NameKind, Phase, Profile};
use brickscope_analysis::stacks::{
    Class, Frame, Level, NOT_KEPT, OUTSIDE, Stacks, UNATTRIBUTED, Unit,
};
use brickscope_sampler::{FrameKind, Sampled, Seen};

use super::agreement;
use super::summary::Agreement;
use super::timeline::{Clocks, Known, Place, Timeline, known};
use crate::flags::By;

/// The number of blocks of time into which shares are divided, to see how much they vary.
pub(crate) const BLOCKS: usize = 40;

/// The frame of passes whose bricks ran on a device at unknown times.
const IN_ORDER: &str = "[timed by order of issue]";

/// Samples, joined with the bricks that they belong to.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) stacks: Stacks,
    /// The comparison of sampled and measured shares of bricks, or why there is none.
    pub(crate) agreement: Result<Agreement, Absent>,
    /// The limits of the stacks, a sentence each.
    pub(crate) warnings: Vec<String>,
}

/// What a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The place of the thread that it ran or worked for.
    At(Place),
    /// Passes of several threads were open.
    Several,
    Outside,
}

impl Owner {
    fn is_outside(self) -> bool {
        matches!(self, Self::Outside | Self::At(Place { pass: None, .. }))
    }
}

/// One sample, with what it belongs to.
struct Owned<'s> {
    seen: &'s Seen,
    owner: Owner,
    /// Whether the thread ran the pass itself.
    is_of_pass: bool,
}

/// Joins samples with the spans of a run. With `only_passes` samples outside of passes are counted and
/// left out.
pub(crate) fn join(
    sampled: &Sampled,
    profile: &Profile,
    by: By,
    only_passes: bool,
) -> Result<Joined, Absent> {
    let clocks = Clocks::new(profile, sampled.time_base)?;
    let Some(process) = profile.process else {
        return Err(Absent {
            reason: "the profile doesn't say which process it is of: it was written by an older \
                     brickscope"
                .to_owned(),
        });
    };
    let timeline = Timeline::of(profile);
    let owned: Vec<Owned<'_>> = sampled
        .samples
        .iter()
        .map(|seen| {
            let at = (seen.pid == process).then(|| clocks.ours(seen.time_ns)).flatten();
            let Some(at) = at else {
                return Owned { seen, owner: Owner::Outside, is_of_pass: false };
            };
            // A share of a kernel for another thread's pass is a span outside of passes as well.
            let is_own = |place: &Place| place.pass.is_some() || in_brick(profile, place.span);
            let own = timeline.of_thread(seen.tid, at).filter(is_own);
            let owner = match own {
                Some(place) => Owner::At(place),
                None => match timeline.of_passes(at) {
                    (_, true) => Owner::Several,
                    (Some(place), false) => Owner::At(place),
                    (None, false) => Owner::Outside,
                },
            };
            Owned { seen, owner, is_of_pass: own.is_some_and(|place| place.pass.is_some()) }
        })
        .collect();

    let mut warnings = Vec::new();
    let weigh = |wanted: &dyn Fn(&Owned<'_>) -> bool| -> u64 {
        owned.iter().filter(|one| wanted(one)).map(|one| one.seen.weight).sum()
    };
    let (all, outside) = (weigh(&|_| true), weigh(&|one| one.owner.is_outside()));
    if only_passes && outside > 0 {
        warnings.push(format!(
            "{outside} of {all} samples lie outside of passes, where the model was loaded and warmed \
             up, and are left out"
        ));
    }
    let several = weigh(&|one| one.owner == Owner::Several);
    if several > 0 {
        warnings.push(format!(
            "{several} samples are of threads that recorded nothing while several others ran passes: \
            for which of them they worked is unknown"
        ));
    }
    let known = known(profile);
    let count = |of: Known| known.iter().filter(|known| **known == of).count();
    let (holes, in_order) = (count(Known::InPart), count(Known::InOrder));
    if holes > 0 {
        warnings.push(format!(
            "{holes} of {} passes lack some of their spans: their samples are under {NOT_KEPT}",
            known.len()
        ));
    }
    if in_order > 0 {
        warnings.push(format!(
            "{in_order} of {} passes have bricks that were timed by their order of issue: it is \
            unknown when they ran, and samples between other bricks are under {IN_ORDER}",
            known.len()
        ));
    }
    let agreement = agreement::of(
        profile,
        &known,
        owned.iter().filter_map(|one| match one.owner {
            Owner::At(place) if one.is_of_pass => Some((place, one.seen.weight)),
            _ => None,
        }),
    );

    if agreement.as_ref().is_ok_and(|agreement| agreement.disturbed) {
        warnings.push(
            "the agreement with measured shares includes disturbed passes, too: while a thread waits \
            for its core, spans go on and samples don't"
                .to_owned(),
        );
    }

    let roots = Roots::of(sampled, &owned);
    let mut writer = Writer {
        stacks: Stacks::new(Unit::Samples, BLOCKS),
        sampled,
        profile,
        known: &known,
        by,
        functions: Functions::new(),
        spans: HashMap::new(),
    };
    // Blocks are made within each phase, so that all have the same amount of it.
    let mut of_phase: HashMap<Option<Phase>, usize> = HashMap::new();
    let phase_of = |owner: Owner| match owner {
        Owner::At(Place { pass: Some(pass), .. }) => Some(profile.passes[pass].phase),
        _ => None,
    };
    for one in &owned {
        *of_phase.entry(phase_of(one.owner)).or_default() += 1;
    }
    let mut rank: HashMap<Option<Phase>, usize> = HashMap::new();
    for one in &owned {
        let phase = phase_of(one.owner);
        let rank = rank.entry(phase).or_default();
        let block = *rank * BLOCKS / of_phase[&phase];
        *rank += 1;
        if !(only_passes && one.owner.is_outside()) {
            writer.add(one, &roots, block);
        }
    }
    Ok(Joined { stacks: writer.stacks, agreement, warnings })
}

/// The stacks of samples alone, if there are no spans to join them with.
pub(crate) fn alone(sampled: &Sampled, by: By) -> Stacks {
    let mut stacks = Stacks::new(Unit::Samples, BLOCKS);
    let mut functions = Functions::new();
    let n = sampled.samples.len();
    for (nth, seen) in sampled.samples.iter().enumerate() {
        let mut frames = Vec::new();
        if by == By::Thread {
            frames.push(thread_frame(&mut stacks, sampled, seen));
        }
        let stack = &sampled.stacks[seen.stack as usize];
        frames.extend(
            stack
                .iter()
                .map(|&f| function_frame(&mut stacks, &mut functions, sampled, f, Class::Other)),
        );
        stacks.add(&frames, seen.weight, nth * BLOCKS / n);
    }
    stacks
}

fn thread_frame(stacks: &mut Stacks, sampled: &Sampled, seen: &Seen) -> u32 {
    let name = sampled
        .threads
        .iter()
        .rev()
        .find(|thread| thread.tid == seen.tid && thread.pid == seen.pid)
        .map_or("thread", |thread| &thread.name);
    let name = format!("{name} ({})", seen.tid);
    stacks.frame(Frame { name, level: Level::Thread, class: Class::Other })
}

/// The frames of functions, by their number and the class of their kernel.
type Functions = HashMap<(u32, Class), u32>;

fn function_frame(
    stacks: &mut Stacks,
    known: &mut Functions,
    sampled: &Sampled,
    frame: u32,
    kernel: Class,
) -> u32 {
    if let Some(&number) = known.get(&(frame, kernel)) {
        return number;
    }
    let of = &sampled.frames[frame as usize];
    let is_kernel = of.kind == FrameKind::Kernel;
    let name = match of.kind {
        FrameKind::User | FrameKind::Inlined if of.function == "[unknown]" => {
            if of.module.is_empty() {
                of.function.clone()
            } else {
                format!("[unknown] of {}", of.module)
            }
        }
        _ => of.function.clone(),
    };
    let class = match Class::of_function(&of.function, Some(of.module.as_str()), is_kernel) {
        // A function may serve weights of any kind; its kernel says which.
        Class::Quantized | Class::Matmul if kernel != Class::Other => kernel,
        class => class,
    };
    let number = stacks.frame(Frame { name, level: Level::Function, class });
    known.insert((frame, kernel), number);
    number
}

/// The calls that nearly all of a thread's stacks inside of passes share, from the thread's first function
/// to the one that runs a pass. Bricks replace everything outside of the innermost one.
///
/// Calls are compared, not the beginnings of stacks, since truncated stacks begin anywhere.
struct Roots(HashMap<u32, HashSet<Call>>);

/// A function and its caller.
type Call = (Option<u32>, u32);

/// The share of a thread's stacks that must have a call.
const NEARLY_ALL: f64 = 0.9;

/// The calls of a stack, the outermost first, without the last function, which does the work.
fn calls(stack: &[u32]) -> impl Iterator<Item = Call> {
    let inner = stack.len().saturating_sub(1);
    let callers = std::iter::once(None).chain(stack.iter().copied().map(Some));
    callers.zip(stack[..inner].iter().copied())
}

impl Roots {
    fn of(sampled: &Sampled, owned: &[Owned<'_>]) -> Self {
        let mut of_threads: HashMap<u32, HashMap<u32, u64>> = HashMap::new();
        for one in owned.iter().filter(|one| matches!(one.owner, Owner::At(_))) {
            *of_threads.entry(one.seen.tid).or_default().entry(one.seen.stack).or_default() +=
                one.seen.weight;
        }
        let roots = |stacks: HashMap<u32, u64>| {
            let total: u64 = stacks.values().sum();
            let mut weights: HashMap<Call, u64> = HashMap::new();
            for (stack, weight) in stacks {
                // A call counts once per stack, however deep the recursion.
                let of_stack: HashSet<Call> = calls(&sampled.stacks[stack as usize]).collect();
                for call in of_stack {
                    *weights.entry(call).or_default() += weight;
                }
            }
            weights.retain(|_, weight| *weight as f64 >= NEARLY_ALL * total as f64);
            weights.into_keys().collect()
        };
        Self(of_threads.into_iter().map(|(tid, stacks)| (tid, roots(stacks))).collect())
    }

    /// The part of a stack inside of these calls; its last function always stays.
    fn without<'s>(&self, tid: u32, stack: &'s [u32]) -> &'s [u32] {
        let Some(roots) = self.0.get(&tid) else { return stack };
        let innermost = calls(stack).enumerate().filter(|(_, call)| roots.contains(call)).last();
        innermost.map_or(stack, |(at, _)| &stack[at + 1..])
    }
}

struct Writer<'a> {
    stacks: Stacks,
    sampled: &'a Sampled,
    profile: &'a Profile,
    known: &'a [Known],
    by: By,
    functions: Functions,
    /// The frames for a place in the run, without thread and functions.
    spans: HashMap<(Option<usize>, Option<u32>), Vec<u32>>,
}

impl Writer<'_> {
    fn add(&mut self, one: &Owned<'_>, roots: &Roots, block: usize) {
        let mut frames = Vec::new();
        if self.by == By::Thread {
            frames.push(thread_frame(&mut self.stacks, self.sampled, one.seen));
        }
        let stack = self.sampled.stacks[one.seen.stack as usize].as_slice();
        let rest = match one.owner {
            Owner::At(place) => {
                let of_place = self.place(place);
                frames.extend(of_place);
                roots.without(one.seen.tid, stack)
            }
            Owner::Several => {
                frames.push(self.phase("several passes at once"));
                roots.without(one.seen.tid, stack)
            }
            Owner::Outside => {
                frames.push(self.phase(OUTSIDE));
                stack
            }
        };
        let of = |&frame: &u32| &self.stacks.frames[frame as usize];
        let kernel = frames.iter().rev().map(of).find(|frame| frame.level == Level::Kernel);
        let kernel = kernel.map_or(Class::Other, |kernel| kernel.class);
        for &frame in rest {
            frames.push(function_frame(
                &mut self.stacks,
                &mut self.functions,
                self.sampled,
                frame,
                kernel,
            ));
        }
        self.stacks.add(&frames, one.seen.weight, block);
    }

    fn phase(&mut self, name: &str) -> u32 {
        self.stacks.frame(Frame { name: name.to_owned(), level: Level::Phase, class: Class::Other })
    }

    /// Phase, layer, bricks and kernels around a place.
    fn place(&mut self, place: Place) -> Vec<u32> {
        let key = (place.pass, place.span);
        if let Some(frames) = self.spans.get(&key) {
            return frames.clone();
        }
        let profile = self.profile;
        let mut frames = Vec::new();
        frames.push(match place.pass {
            Some(pass) => self.phase(&profile.passes[pass].phase.to_string()),
            None => self.phase(OUTSIDE),
        });
        let chain = chain(profile, place.span);
        let mut in_brick = false;
        for span in chain {
            let span = &profile.spans[span as usize];
            let frame = match span.name.and_then(|name| profile.names.get(usize::from(name))) {
                None if self.by == By::Brick => continue,
                None => Frame {
                    name: match span.layer {
                        Some(layer) => format!("layer {layer}"),
                        None => "layer".to_owned(),
                    },
                    level: Level::Layer,
                    class: Class::Other,
                },
                Some(name) => {
                    let (level, class) = match name.kind {
                        NameKind::Brick => (Level::Brick, Class::Other),
                        NameKind::Kernel => (Level::Kernel, Class::of_kernel(&name.name)),
                    };
                    in_brick |= level == Level::Brick;
                    Frame { name: name.name.clone(), level, class }
                }
            };
            frames.push(self.stacks.frame(frame));
        }
        if !in_brick && let Some(pass) = place.pass {
            let name = match self.known[pass] {
                Known::Whole => UNATTRIBUTED,
                Known::InPart => NOT_KEPT,
                Known::InOrder => IN_ORDER,
            };
            frames.push(self.stacks.frame(Frame {
                name: name.to_owned(),
                level: Level::Brick,
                class: Class::Other,
            }));
        }
        self.spans.insert(key, frames.clone());
        frames
    }
}

/// Whether a span is a brick, or lies in one.
fn in_brick(profile: &Profile, span: Option<u32>) -> bool {
    let is_brick = |name: u16| {
        profile.names.get(usize::from(name)).is_some_and(|name| name.kind == NameKind::Brick)
    };
    let names = chain(profile, span).into_iter();
    names.filter_map(|span| profile.spans[span as usize].name).any(is_brick)
}

/// A span and those around it, the outermost first.
pub(super) fn chain(profile: &Profile, span: Option<u32>) -> Vec<u32> {
    let mut chain = Vec::new();
    let mut next = span;
    while let Some(index) = next {
        let Some(span) = profile.spans.get(index as usize) else { break };
        chain.push(index);
        // A parent has a smaller index in every valid profile, so this terminates.
        next = span.parent.filter(|&parent| parent < index);
    }
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use brickscope::{Anchor, Lane, Name, Pass, Source, Span, Work};
    use brickscope_sampler::{Frame as Function, Sampler, Thread, TimeBase};

    use super::*;

    const PROCESS: u32 = 70;
    const MAIN: u32 = 70;
    const WORKER: u32 = 71;
    /// How far the system's clock is ahead of the profile's.
    const AHEAD: u64 = 1_000_000;

    /// One decode pass from 1000 to 2000: from 1100 to 1900 layer 7, in it from 1200 to 1800 a brick,
    /// in it from 1300 to 1700 a kernel.
    fn profile() -> Profile {
        let mut profile = Profile::empty(Default::default());
        let anchor = |at_ns| Anchor {
            at_ns,
            monotonic_ns: at_ns + 5,
            monotonic_raw_ns: at_ns + AHEAD,
            unix_ns: None,
            width_ns: 0,
        };
        profile.clock.anchors = vec![anchor(500), anchor(100_500)];
        profile.process = Some(PROCESS);
        profile.lanes = vec![Lane { name: Some("main".to_owned()), tid: Some(MAIN) }];
        let name = |name: &str, kind| Name {
            name: name.to_owned(),
            kind,
            category: None,
            host: None,
            device: None,
            transfer: None,
        };
        profile.names =
            vec![name("DownProjection", NameKind::Brick), name("gemv_q8_0_avx2", NameKind::Kernel)];
        let span = |name, layer, parent, start_ns, duration_ns, exclusive_ns| Span {
            name,
            source: Source::Host,
            lane: 0,
            pass: Some(1),
            layer,
            parent,
            start_ns,
            duration_ns,
            exclusive_ns,
            work: Work::default(),
        };
        profile.spans = vec![
            span(None, Some(7), None, 1100, 800, 0),
            span(Some(0), Some(7), Some(0), 1200, 600, 600),
            span(Some(1), Some(7), Some(1), 1300, 400, 0),
        ];
        profile.passes = vec![Pass {
            serial: 1,
            phase: Phase::Decode,
            lane: 0,
            tokens: 1,
            position: 1,
            start_ns: 1000,
            wall_ns: 1000,
            attributed_ns: 600,
            unattributed_ns: 400,
            disturbance: None,
            is_left_out: false,
        }];
        profile
    }

    /// Samples of a thread at these times of the profile, with these functions.
    fn sampled(samples: &[(u32, u64, &[&str])]) -> Sampled {
        let mut sampled = Sampled {
            sampler: Sampler::PerfEvent,
            event: "cpu-clock:u".to_owned(),
            frequency: Some(999),
            time_base: TimeBase::MonotonicRaw,
            lost: 0,
            cut: 0,
            unwound_in_part: 0,
            notes: Vec::new(),
            threads: [(MAIN, "main"), (WORKER, "worker")]
                .map(|(tid, name)| Thread { pid: PROCESS, tid, name: name.to_owned() })
                .to_vec(),
            frames: Vec::new(),
            stacks: Vec::new(),
            samples: Vec::new(),
        };
        for &(tid, at, functions) in samples {
            let stack = functions
                .iter()
                .map(|function| {
                    let known = sampled.frames.iter().position(|f| f.function == **function);
                    known.unwrap_or_else(|| {
                        sampled.frames.push(Function {
                            function: (*function).to_owned(),
                            module: "engine".to_owned(),
                            file: None,
                            kind: FrameKind::User,
                        });
                        sampled.frames.len() - 1
                    }) as u32
                })
                .collect();
            let number = sampled.stacks.len() as u32;
            sampled.stacks.push(stack);
            let time_ns = at + AHEAD;
            sampled.samples.push(Seen { time_ns, pid: PROCESS, tid, weight: 1, stack: number });
        }
        sampled
    }

    fn folded(stacks: &Stacks) -> Vec<String> {
        let mut lines: Vec<String> = stacks
            .iter()
            .map(|stack| {
                let names: Vec<&str> = stacks.frames_of(stack).map(|f| f.name.as_str()).collect();
                format!("{} {}", names.join(";"), stack.weight)
            })
            .collect();
        lines.sort();
        lines
    }

    fn joined(samples: &[(u32, u64, &[&str])], profile: &Profile, by: By, only: bool) -> Joined {
        join(&sampled(samples), profile, by, only).expect("they can be joined")
    }

    #[test]
    fn a_sample_belongs_to_the_innermost_span_of_its_thread_at_its_time() {
        let at = |time| (MAIN, time, &["main", "forward", "work"][..]);
        let samples =
            [at(999), at(1000), at(1100), at(1200), at(1299), at(1300), at(1699), at(1700)];
        let stacks = joined(&samples, &profile(), By::Layer, false).stacks;
        assert_eq!(
            folded(&stacks),
            [
                "decode;layer 7;DownProjection;gemv_q8_0_avx2;work 2",
                "decode;layer 7;DownProjection;work 3",
                "decode;layer 7;unattributed;work 1",
                "decode;unattributed;work 1",
                "outside of passes;main;forward;work 1",
            ]
        );
        let only = joined(&samples, &profile(), By::Brick, true);
        assert_eq!(
            folded(&only.stacks),
            [
                "decode;DownProjection;gemv_q8_0_avx2;work 2",
                "decode;DownProjection;work 3",
                "decode;unattributed;work 2",
            ]
        );
        assert!(only.warnings[0].starts_with("1 of 8 samples lie outside"), "{:?}", only.warnings);
    }

    #[test]
    fn a_thread_that_recorded_nothing_works_for_the_one_that_runs_a_pass() {
        let samples = [
            (MAIN, 1400, &["main", "work"][..]),
            (WORKER, 1400, &["start_thread", "share"][..]),
            (WORKER, 1950, &["start_thread", "wait"][..]),
            (WORKER, 2000, &["start_thread", "wait"][..]),
        ];
        let stacks = joined(&samples, &profile(), By::Thread, false).stacks;
        assert_eq!(
            folded(&stacks),
            [
                "main (70);decode;layer 7;DownProjection;gemv_q8_0_avx2;work 1",
                "worker (71);decode;layer 7;DownProjection;gemv_q8_0_avx2;share 1",
                "worker (71);decode;unattributed;wait 1",
                "worker (71);outside of passes;start_thread;wait 1",
            ]
        );
    }

    #[test]
    fn for_whom_a_thread_worked_is_not_guessed_while_several_ran_passes() {
        let mut profile = profile();
        profile.lanes.push(Lane { name: None, tid: Some(99) });
        profile.passes.push(Pass { serial: 2, lane: 1, attributed_ns: 0, ..profile.passes[0] });
        let samples = [(WORKER, 1400, &["share"][..]), (MAIN, 1400, &["work"][..])];
        let joined = joined(&samples, &profile, By::Brick, false);
        assert_eq!(
            folded(&joined.stacks),
            ["decode;DownProjection;gemv_q8_0_avx2;work 1", "several passes at once;share 1"]
        );
        assert!(joined.warnings[0].contains("is unknown"), "{:?}", joined.warnings);
    }

    #[test]
    fn a_brick_outside_of_passes_is_its_threads_own_and_a_share_of_a_kernel_is_not() {
        let mut profile = profile();
        profile.lanes.push(Lane { name: None, tid: Some(WORKER) });
        let on_worker = Span { lane: 1, pass: None, layer: None, parent: None, ..profile.spans[1] };
        profile.spans.push(on_worker);
        let samples = [(WORKER, 1400, &["encode"][..])];
        let stacks = joined(&samples, &profile, By::Layer, false).stacks;
        assert_eq!(folded(&stacks), ["outside of passes;DownProjection;encode 1"]);
        let only = joined(&samples, &profile, By::Layer, true);
        assert!(
            only.stacks.is_empty() && only.warnings[0].starts_with("1 of 1"),
            "{:?}",
            only.warnings
        );
        // The kernel's thread works for the pass.
        profile.spans[3].name = Some(1);
        let stacks = joined(&samples, &profile, By::Layer, false).stacks;
        assert_eq!(folded(&stacks), ["decode;layer 7;DownProjection;gemv_q8_0_avx2;encode 1"]);
    }

    #[test]
    fn no_stack_loses_its_last_function_or_shows_what_all_share() {
        let deep = &["main", "forward", "gemv"][..];
        let mut samples = vec![(MAIN, 1400, deep); 20];
        samples.push((MAIN, 1401, &["main", "forward"]));
        samples.push((MAIN, 1750, &["main", "norm"]));
        let stacks = joined(&samples, &profile(), By::Brick, false).stacks;
        assert_eq!(
            folded(&stacks),
            [
                "decode;DownProjection;gemv_q8_0_avx2;forward 1",
                "decode;DownProjection;gemv_q8_0_avx2;gemv 20",
                "decode;DownProjection;norm 1",
            ]
        );
    }

    #[test]
    fn stacks_that_were_cut_off_end_the_same_way() {
        let cut = &["[stack cut off]", "forward", "brick", "gemv"][..];
        let whole = &["main", "run", "forward", "brick", "gemv"][..];
        let recursive = &["main", "run", "forward", "brick", "add", "brick", "add", "gemv"][..];
        let mut samples = vec![(MAIN, 1400, cut); 10];
        samples.extend(vec![(MAIN, 1400, whole); 10]);
        samples.push((MAIN, 1400, recursive));
        let stacks = joined(&samples, &profile(), By::Brick, false).stacks;
        assert_eq!(
            folded(&stacks),
            [
                "decode;DownProjection;gemv_q8_0_avx2;add;brick;add;gemv 1",
                "decode;DownProjection;gemv_q8_0_avx2;gemv 20",
            ]
        );
    }

    #[test]
    fn bricks_that_were_timed_by_their_order_have_no_samples_and_no_measured_share() {
        let mut profile = profile();
        for span in &mut profile.spans[1..] {
            span.source = Source::HostOrder;
        }
        let joined = joined(&[(MAIN, 1400, &["issue"][..])], &profile, By::Brick, false);
        assert_eq!(folded(&joined.stacks), ["decode;[timed by order of issue];issue 1"]);
        assert!(joined.agreement.is_err());
        assert!(joined.warnings[0].contains("order of issue"), "{:?}", joined.warnings);
    }

    #[test]
    fn a_product_in_a_quantised_kernel_is_of_its_class() {
        let stacks =
            joined(&[(MAIN, 1400, &["gemv_rows"][..])], &profile(), By::Brick, false).stacks;
        let last = stacks.frames_of(stacks.stack(0)).next_back().expect("a function");
        assert_eq!((last.name.as_str(), last.class), ("gemv_rows", Class::Quantized));
    }

    #[test]
    fn samples_and_spans_agree_or_it_is_said_by_how_much_not() {
        // One in a hundred nanoseconds, from the pass's begin to its end.
        let every: Vec<(u32, u64, &[&str])> =
            (0..1000).map(|at| (MAIN, 1000 + at, &["main", "work"][..])).collect();
        let agreement = joined(&every, &profile(), By::Layer, false).agreement.expect("some");
        assert_eq!(agreement.samples, 1000);
        let of = |name: &str| agreement.bricks.iter().find(|b| b.brick == name).expect("there");
        for (brick, share) in [("unattributed", 0.4), ("DownProjection", 0.6)] {
            assert_eq!((of(brick).measured, of(brick).sampled), (share, share));
            assert!((0.03..0.06).contains(&of(brick).allowed), "{:?}", of(brick));
        }
        // A sampler that sees nothing of the brick.
        let wrong: Vec<(u32, u64, &[&str])> =
            (0..1000).map(|at| (MAIN, 1000 + at % 200, &["main", "work"][..])).collect();
        let agreement = joined(&wrong, &profile(), By::Layer, false).agreement.expect("some");
        let apart = agreement.bricks.iter().filter(|b| (b.measured - b.sampled).abs() > b.allowed);
        assert_eq!(apart.count(), 2);
    }

    #[test]
    fn what_cannot_be_joined_is_refused_with_the_reason() {
        let samples = sampled(&[(MAIN, 1400, &["work"][..])]);
        let why = |profile: &Profile, samples: &Sampled| {
            join(samples, profile, By::Layer, false).expect_err("not to be joined").reason
        };
        let mut scheduler = samples.clone();
        scheduler.time_base = TimeBase::Scheduler;
        assert!(why(&profile(), &scheduler).contains("-k CLOCK_MONOTONIC_RAW"));
        let mut old = profile();
        old.process = None;
        assert!(why(&old, &samples).contains("which process"));
        old.clock.anchors.clear();
        assert!(why(&old, &samples).contains("older brickscope"));
    }

    #[test]
    fn spans_that_were_not_kept_are_no_brick() {
        let mut profile = profile();
        profile.spans.truncate(1);
        let samples = [(MAIN, 1400, &["work"][..])];
        let joined = joined(&samples, &profile, By::Layer, false);
        assert_eq!(folded(&joined.stacks), ["decode;layer 7;[spans not kept];work 1"]);
        assert!(joined.agreement.is_err());
    }
}
