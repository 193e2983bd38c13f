//! Samples laid beside spans: which brick did a thread work for when it was sampled?
//!
//! A sample of a thread that recorded spans belongs to the innermost one that was open. One of any
//! other thread, or of a thread between its spans, belongs to what the thread that ran a pass was at,
//! as long as there was one such: that is who it worked for, or waited for.

use std::collections::HashMap;

use brickscope::stacks::{Class, Frame, Level, Stacks, Unit};
use brickscope::{Absent, NameKind, Pass, Phase, Profile};
use brickscope_sampler::{FrameKind, Sampled, Seen};

use super::agreement;
use super::summary::Agreement;
use super::timeline::{Clocks, Place, Timeline, whole_passes};
use crate::args::By;

/// Into how many blocks of time shares are cut, to see how much they move by themselves.
pub(crate) const BLOCKS: usize = 20;

/// Samples with the bricks that they belong to.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) stacks: Stacks,
    /// Sampled shares of bricks beside measured ones, or why there are none.
    pub(crate) agreement: Result<Agreement, Absent>,
    /// What limits what is shown, a sentence each.
    pub(crate) doubts: Vec<String>,
}

/// What a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Where the thread was that it ran or worked for.
    At(Place),
    /// Passes of several threads were open.
    Several,
    Outside,
}

/// One sample, with what it belongs to.
struct Owned<'s> {
    seen: &'s Seen,
    owner: Owner,
    /// Whether the thread ran the pass itself.
    is_of_pass: bool,
}

/// Joins samples with the spans of a run. With `only_passes` what lies outside of passes is counted
/// and left out.
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
            let own = timeline.of_thread(seen.tid, at).filter(|place| place.pass.is_some());
            let owner = match own {
                Some(place) => Owner::At(place),
                None => match timeline.of_passes(at) {
                    (_, true) => Owner::Several,
                    (Some(place), false) => Owner::At(place),
                    (None, false) => Owner::Outside,
                },
            };
            Owned { seen, owner, is_of_pass: own.is_some() }
        })
        .collect();

    let mut doubts = Vec::new();
    let weigh = |wanted: &dyn Fn(&Owned<'_>) -> bool| -> u64 {
        owned.iter().filter(|one| wanted(one)).map(|one| one.seen.weight).sum()
    };
    let (all, outside) = (weigh(&|_| true), weigh(&|one| one.owner == Owner::Outside));
    if only_passes && outside > 0 {
        doubts.push(format!(
            "{outside} of {all} samples lie outside of passes, where the model was loaded and warmed \
             up, and are left out"
        ));
    }
    let several = weigh(&|one| one.owner == Owner::Several);
    if several > 0 {
        doubts.push(format!(
            "{several} samples are of threads that recorded nothing, while several others ran passes: \
             it can't be told for which of them they worked"
        ));
    }
    let whole = whole_passes(profile);
    let holes = whole.iter().filter(|is_whole| !**is_whole).count();
    if holes > 0 {
        doubts.push(format!(
            "of {holes} of {} passes not every span was kept: their samples are under [spans not \
             kept]",
            whole.len()
        ));
    }
    let agreement = agreement::of(
        profile,
        &whole,
        owned.iter().filter_map(|one| match one.owner {
            Owner::At(place) if one.is_of_pass => Some((place, one.seen.weight)),
            _ => None,
        }),
    );

    let roots = Roots::of(sampled, &owned);
    let mut writer = Writer {
        stacks: Stacks::new(Unit::Samples, BLOCKS),
        sampled,
        profile,
        whole: &whole,
        by,
        functions: vec![None; sampled.frames.len()],
        spans: HashMap::new(),
    };
    // Blocks within each phase, so that each has as much of a phase as any other.
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
        if !(only_passes && one.owner == Owner::Outside) {
            writer.add(one, &roots, block);
        }
    }
    Ok(Joined { stacks: writer.stacks, agreement, doubts })
}

/// Samples by themselves, where there is no run to lay them beside.
pub(crate) fn alone(sampled: &Sampled, by: By) -> Stacks {
    let mut stacks = Stacks::new(Unit::Samples, BLOCKS);
    let mut functions = vec![None; sampled.frames.len()];
    let n = sampled.samples.len();
    for (nth, seen) in sampled.samples.iter().enumerate() {
        let mut frames = Vec::new();
        if by == By::Thread {
            frames.push(thread_frame(&mut stacks, sampled, seen));
        }
        let stack = &sampled.stacks[seen.stack as usize];
        frames
            .extend(stack.iter().map(|&f| function_frame(&mut stacks, &mut functions, sampled, f)));
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

fn function_frame(
    stacks: &mut Stacks,
    known: &mut [Option<u32>],
    sampled: &Sampled,
    frame: u32,
) -> u32 {
    let frame = frame as usize;
    if let Some(number) = known[frame] {
        return number;
    }
    let of = &sampled.frames[frame];
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
    let class = Class::of_function(&of.function, Some(of.module.as_str()), is_kernel);
    let number = stacks.frame(Frame { name, level: Level::Function, class });
    known[frame] = Some(number);
    number
}

/// The outermost functions of each thread, which are on nearly all of its stacks inside of passes:
/// from the thread's first function to the one that runs a pass. The bricks take their place.
struct Roots(HashMap<u32, Vec<u32>>);

/// A function is one of them if so many of a thread's stacks have it.
const NEARLY_ALL: f64 = 0.9;

impl Roots {
    fn of(sampled: &Sampled, owned: &[Owned<'_>]) -> Self {
        let mut of_threads: HashMap<u32, HashMap<u32, u64>> = HashMap::new();
        for one in owned.iter().filter(|one| matches!(one.owner, Owner::At(_))) {
            *of_threads.entry(one.seen.tid).or_default().entry(one.seen.stack).or_default() +=
                one.seen.weight;
        }
        let roots = |stacks: HashMap<u32, u64>| {
            let total: u64 = stacks.values().sum();
            let mut left: Vec<(&[u32], u64)> = stacks
                .into_iter()
                .map(|(stack, weight)| (sampled.stacks[stack as usize].as_slice(), weight))
                .collect();
            let mut root = Vec::new();
            loop {
                let mut next: HashMap<u32, u64> = HashMap::new();
                for (stack, weight) in &left {
                    // The last function is where the work is.
                    if stack.len() > root.len() + 1 {
                        *next.entry(stack[root.len()]).or_default() += weight;
                    }
                }
                let most = next.into_iter().max_by_key(|&(frame, weight)| (weight, frame));
                let Some((frame, weight)) = most else { break };
                if (weight as f64) < NEARLY_ALL * total as f64 {
                    break;
                }
                left.retain(|(stack, _)| stack.get(root.len()) == Some(&frame));
                root.push(frame);
            }
            root
        };
        Self(of_threads.into_iter().map(|(tid, stacks)| (tid, roots(stacks))).collect())
    }

    /// The stack without them; as it is if it doesn't have them all, so that nothing is hidden.
    fn without<'s>(&self, tid: u32, stack: &'s [u32]) -> &'s [u32] {
        let root = self.0.get(&tid).map_or(&[][..], Vec::as_slice);
        stack.strip_prefix(root).unwrap_or(stack)
    }
}

struct Writer<'a> {
    stacks: Stacks,
    sampled: &'a Sampled,
    profile: &'a Profile,
    whole: &'a [bool],
    by: By,
    functions: Vec<Option<u32>>,
    /// The frames of a place in the run, without thread and functions.
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
                frames.push(self.phase("outside of passes"));
                stack
            }
        };
        for &frame in rest {
            frames.push(function_frame(&mut self.stacks, &mut self.functions, self.sampled, frame));
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
        if let Some(pass) = place.pass {
            let Pass { phase, .. } = profile.passes[pass];
            frames.push(self.phase(&phase.to_string()));
        }
        let chain = chain(profile, place.span);
        let is_whole = place.pass.is_none_or(|pass| self.whole[pass]);
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
        if !in_brick && place.pass.is_some() {
            let name = if is_whole { "unattributed" } else { "[spans not kept]" };
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

/// The spans around one, it included, the outermost first.
pub(super) fn chain(profile: &Profile, span: Option<u32>) -> Vec<u32> {
    let mut chain = Vec::new();
    let mut next = span;
    while let Some(index) = next {
        let Some(span) = profile.spans.get(index as usize) else { break };
        chain.push(index);
        // Less than its own in every profile that was read; so this ends.
        next = span.parent.filter(|&parent| parent < index);
    }
    chain.reverse();
    chain
}
