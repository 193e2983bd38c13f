//! Stacks of the spans of a profile, each with its own time.

use std::collections::HashMap;

use brickscope_profile::name::{OTHER_BRICK, OTHER_KERNEL};
use brickscope_profile::{NameKind, Pass, Phase, Profile, Span};

use super::{Class, Frame, Level, Stacks, Unit};

/// The outer frames of stacks of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// `decode;layer 7;DownProjection;gemv_q4_k_avx2`.
    Layer,
    /// `decode;DownProjection;gemv_q4_k_avx2`: all layers together.
    Brick,
    /// `main;decode;layer 7;DownProjection;gemv_q4_k_avx2`.
    Thread,
}

/// The frame of wall time that is not attributed to any brick.
pub const UNATTRIBUTED: &str = "unattributed";
/// The frame of time that is known only as sums.
pub const NOT_KEPT: &str = "[spans not kept]";
/// The frame of what ran in no pass.
pub const OUTSIDE: &str = "outside of passes";

/// The most frames of a stack. What nests deeper is drawn at this depth, since unlimited stacks could
/// take memory quadratic in the number of spans.
pub(super) const MOST_FRAMES: u32 = 256;

impl Stacks {
    /// The stacks of a profile's spans, in nanoseconds. Each weight is a sum of differences between clock
    /// readings; no total is divided by shares.
    ///
    /// The stacks of a phase add up to its wall time, to the nanosecond, in every profile that passes
    /// [`Profile::check`]. A stack that ends with a brick has the brick's exclusive time minus its
    /// kernels; one that ends with a kernel has the kernel's time minus the kernels and bricks inside. A
    /// kernel in a kernel is a [`Level::Tile`]. Unattributed time is in [`UNATTRIBUTED`], within a layer
    /// if a layer was measured around it, and includes kernels outside of bricks.
    ///
    /// If spans overlap without nesting, their times don't add up. Then a brick is not divided into its
    /// kernels, nor the unattributed time of a pass into its layers.
    ///
    /// Passes whose spans were not all kept are known only as sums: these are in [`NOT_KEPT`], brick by
    /// brick, for all such passes together. Passes that were
    /// [left out](brickscope_profile::Pass::is_left_out) are not included. Bricks in no pass are in [`OUTSIDE`], and
    /// in no wall time. Nor is the work of other threads for a pass: it is included only
    /// [by thread](By::Thread), without a phase and below the kernel that it is a share of. So are
    /// kernels outside of bricks and passes.
    ///
    /// Time is cut into `blocks`: the passes of each phase whose spans were all kept are divided, in the
    /// order of time, into groups of equal size, as near as possible; so is what ran in no pass.
    /// [`NOT_KEPT`] is in no block, so the blocks of a stack can add up to less than its weight.
    ///
    /// ```
    /// use brickscope_analysis::stacks::{By, Stacks};
    /// use brickscope::{BrickId, BrickProfiler, MockClock, Phase};
    ///
    /// let hand = MockClock::default();
    /// let profiler = BrickProfiler::with_clock(hand.clock());
    /// profiler.enable();
    /// let pass = profiler.begin_pass(Phase::Decode);
    /// let brick = profiler.start_brick(BrickId::LmHead);
    /// hand.advance(40);
    /// profiler.stop_brick(brick, 1);
    /// hand.advance(2);
    /// profiler.end_pass(pass, 1, 0);
    ///
    /// let stacks = Stacks::of_spans(&profiler.profile(), By::Layer, 0);
    /// let last = stacks.iter().next_back().expect("there are two");
    /// let names: Vec<&str> = stacks.frames_of(last).map(|frame| frame.name.as_str()).collect();
    /// assert_eq!((names, last.weight), (vec!["decode", "unattributed"], 2));
    /// assert_eq!(stacks.total(), 42);
    /// ```
    #[must_use]
    pub fn of_spans(profile: &Profile, by: By, blocks: usize) -> Self {
        let spans = Spans::new(profile);
        let mut drawing = Drawing::new(profile, &spans, by, blocks);
        drawing.add_spans();
        drawing.add_unattributed();
        drawing.add_sums();
        drawing.stacks
    }
}

/// The pass that a span belongs to, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// In the pass at this index, all of whose spans were kept.
    Pass(u32),
    /// In no pass.
    Outside,
    /// In no pass, on a thread that works for another thread's pass.
    Helper,
    /// In a pass that isn't drawn.
    Elsewhere,
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Layer,
    Brick,
    Kernel,
}

/// How the spans of a profile share time. All lists are by span unless noted.
struct Spans {
    homes: Vec<Home>,
    kinds: Vec<SpanKind>,
    /// The span around it, if that is at the same home.
    parents: Vec<Option<u32>>,
    /// The innermost brick around it at the same home, with only kernels and layers in between.
    owners: Vec<Option<u32>>,
    /// Its time without the spans directly inside.
    own: Vec<u64>,
    /// For a brick, whether the own times in it add up to its exclusive time.
    adds_up: Vec<bool>,
    /// For each pass, whether it is drawn.
    are_drawn: Vec<bool>,
    /// For each pass, its time outside of all spans; `None` unless this, its layers, and kernels outside of
    /// bricks add up to its unattributed time.
    free: Vec<Option<u64>>,
    /// For a helper, the kernel on another thread that it has a share of.
    kernels: Vec<Option<u32>>,
}

impl Spans {
    fn new(profile: &Profile) -> Self {
        let spans = &profile.spans;
        let are_drawn = are_drawn(profile);
        let (homes, kernels) = homes(profile, &are_drawn);
        let kinds: Vec<SpanKind> = spans.iter().map(|span| kind_of(profile, span)).collect();
        let around: Vec<Option<u32>> = (0..)
            .zip(spans)
            .map(|(at, span)| {
                let parent = span.parent.filter(|&parent| parent < at);
                parent.filter(|&parent| spans[parent as usize].lane == span.lane)
            })
            .collect();
        let is_same = |at: usize, parent: &u32| homes[at] == homes[*parent as usize];
        let parents: Vec<Option<u32>> =
            (0..spans.len()).map(|at| around[at].filter(|parent| is_same(at, parent))).collect();
        let mut owners: Vec<Option<u32>> = Vec::with_capacity(spans.len());
        for parent in &parents {
            owners.push(parent.and_then(|parent| match kinds[parent as usize] {
                SpanKind::Brick => Some(parent),
                SpanKind::Layer | SpanKind::Kernel => owners[parent as usize],
            }));
        }
        // Time in nested spans counts by the real nesting, whatever pass the inner span is in.
        let nested = nested_time(spans, &around);
        let mut own: Vec<u64> =
            spans.iter().zip(nested).map(|(span, nested)| span.duration_ns - nested).collect();
        let (adds_up, free) = shares(profile, &homes, &kinds, &parents, &own);
        // A span around a pass contains the pass's wall time, which would count twice.
        let mut passes: Vec<(u32, u64)> =
            profile.passes.iter().map(|pass| (pass.lane, pass.start_ns)).collect();
        passes.sort_unstable();
        for (at, span) in spans.iter().enumerate() {
            if owners[at].is_none() && matches!(homes[at], Home::Outside | Home::Helper) {
                let next = passes.partition_point(|&pass| pass < (span.lane, span.start_ns));
                let end = span.start_ns.saturating_add(span.duration_ns);
                if passes.get(next).is_some_and(|&(lane, begin)| lane == span.lane && begin < end) {
                    own[at] = 0;
                }
            }
        }
        Self { homes, kinds, parents, owners, own, adds_up, are_drawn, free, kernels }
    }
}

/// For each pass, whether all its spans were kept and it wasn't left out.
fn are_drawn(profile: &Profile) -> Vec<bool> {
    let mut attributed: HashMap<u32, u64> = HashMap::new();
    for span in &profile.spans {
        if let Some(pass) = span.pass {
            let attributed = attributed.entry(pass).or_default();
            *attributed = attributed.saturating_add(span.exclusive_ns);
        }
    }
    let is_drawn = |pass: &Pass| {
        // If two passes have one serial, the spans are the first one's.
        let attributed = attributed.remove(&pass.serial).unwrap_or_default();
        attributed == pass.attributed_ns
            && attributed.checked_add(pass.unattributed_ns) == Some(pass.wall_ns)
            && !pass.is_left_out
    };
    profile.passes.iter().map(is_drawn).collect()
}

/// The home of each span, and for helpers the kernel of another thread that they have a share of.
fn homes(profile: &Profile, are_drawn: &[bool]) -> (Vec<Home>, Vec<Option<u32>>) {
    let mut passes: HashMap<u32, Home> = HashMap::new();
    for ((index, pass), &is_drawn) in (0..).zip(&profile.passes).zip(are_drawn) {
        let home = if is_drawn { Home::Pass(index) } else { Home::Elsewhere };
        passes.entry(pass.serial).or_insert(home);
    }
    // A pass that isn't listed was abandoned, so its bricks are in no pass, unless there are other
    // reasons why it isn't listed.
    let are_listed = profile.dropped.passes == 0 && profile.dropped.open_passes == 0;
    let unlisted = if are_listed { Home::Outside } else { Home::Elsewhere };
    let helpers = Helpers::new(profile);
    let home = |span: &Span| match span.pass {
        Some(pass) => (passes.get(&pass).copied().unwrap_or(unlisted), None),
        None => match helpers.at(span.lane, span.start_ns) {
            Some(help) => (Home::Helper, help.inside),
            None => (Home::Outside, None),
        },
    };
    let kernel = |inside: &u32| {
        let span = profile.spans.get(*inside as usize);
        span.is_some_and(|span| kind_of(profile, span) == SpanKind::Kernel)
    };
    profile.spans.iter().map(home).map(|(home, inside)| (home, inside.filter(kernel))).unzip()
}

/// When threads work for other threads' passes.
struct Helpers {
    /// By thread, in the order of time: from when on it works, and for what.
    turns: HashMap<u32, Vec<(u64, Option<Help>)>>,
}

/// Work for a pass of another thread.
#[derive(Debug, Clone, Copy)]
struct Help {
    /// The span in which it was handed off.
    inside: Option<u32>,
}

impl Helpers {
    fn new(profile: &Profile) -> Self {
        let mut passes: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for pass in &profile.passes {
            let of_lane = passes.entry(pass.lane).or_default();
            of_lane.push((pass.start_ns, pass.start_ns.saturating_add(pass.wall_ns)));
        }
        passes.values_mut().for_each(|of_lane| of_lane.sort_unstable());
        let is_in_pass = |lane: u32, at: u64| {
            let of_lane = passes.get(&lane).map_or(&[][..], Vec::as_slice);
            let begun = of_lane.partition_point(|&(begin, _)| begin <= at);
            begun > 0 && at <= of_lane[begun - 1].1
        };
        let mut dependencies: Vec<_> = profile.dependencies.iter().collect();
        dependencies.sort_by_key(|dependency| (dependency.to.at_ns, dependency.to.nth));
        let mut helpers = Self { turns: HashMap::new() };
        for dependency in dependencies {
            let (from, to) = (&dependency.from, &dependency.to);
            // A thread that waits within a pass of its own is not a helper.
            if from.lane == to.lane || is_in_pass(to.lane, to.at_ns) {
                continue;
            }
            let inside = from.inside.and_then(|inside| profile.spans.get(inside as usize));
            let is_for_pass = inside.is_some_and(|span| span.pass.is_some())
                || is_in_pass(from.lane, from.at_ns)
                || helpers.at(from.lane, from.at_ns).is_some();
            let turn = is_for_pass.then_some(Help { inside: from.inside });
            helpers.turns.entry(to.lane).or_default().push((to.at_ns, turn));
        }
        // A thread that runs a pass is no longer a helper.
        for (lane, of_lane) in &passes {
            if let Some(turns) = helpers.turns.get_mut(lane) {
                turns.extend(of_lane.iter().map(|&(begin, _)| (begin, None)));
                turns.sort_by_key(|&(at, _)| at);
            }
        }
        helpers
    }

    /// The work of a thread for another's pass at a moment.
    fn at(&self, lane: u32, at: u64) -> Option<Help> {
        let turns = self.turns.get(&lane)?;
        let begun = turns.partition_point(|&(begin, _)| begin <= at);
        turns.get(begun.checked_sub(1)?)?.1
    }
}

pub(super) fn kind_of(profile: &Profile, span: &Span) -> SpanKind {
    match span.name {
        None => SpanKind::Layer,
        Some(name) => match profile.names.get(usize::from(name)) {
            Some(name) if name.kind == NameKind::Kernel => SpanKind::Kernel,
            None if name == OTHER_KERNEL => SpanKind::Kernel,
            _ => SpanKind::Brick,
        },
    }
}

pub(super) fn name_of(profile: &Profile, index: u16) -> String {
    match profile.names.get(usize::from(index)) {
        Some(name) => name.name.clone(),
        None if index == OTHER_BRICK || index == OTHER_KERNEL => "(other)".to_owned(),
        None => format!("#{index}"),
    }
}

/// For each span, the time of the spans directly inside, each nanosecond once.
fn nested_time(spans: &[Span], around: &[Option<u32>]) -> Vec<u64> {
    let end = |span: &Span| span.start_ns.saturating_add(span.duration_ns);
    let mut nested = vec![0_u64; spans.len()];
    let mut inner: Vec<(u32, u64, u64)> = (around.iter().zip(spans))
        .filter_map(|(parent, span)| Some(((*parent)?, span.start_ns, end(span))))
        .collect();
    inner.sort_unstable();
    let mut until = 0;
    let mut last = None;
    for (parent, begin, inner_end) in inner {
        let outer = &spans[parent as usize];
        if last != Some(parent) {
            (last, until) = (Some(parent), outer.start_ns);
        }
        let inner_end = inner_end.min(end(outer));
        nested[parent as usize] += inner_end.saturating_sub(begin.max(until));
        until = until.max(inner_end);
    }
    nested
}

/// Whether the own times in each brick add up to its exclusive time; and for each pass its time outside of
/// all spans, if that and its parts add up to its unattributed time.
fn shares(
    profile: &Profile,
    homes: &[Home],
    kinds: &[SpanKind],
    parents: &[Option<u32>],
    own: &[u64],
) -> (Vec<bool>, Vec<Option<u64>>) {
    let spans = &profile.spans;
    // The time of nested layers and kernels outside of bricks.
    let mut inside = vec![0_u64; spans.len()];
    let mut adds_up = vec![false; spans.len()];
    let mut in_pass = vec![0_u64; profile.passes.len()];
    let mut roots: Vec<(u32, u64, u64)> = Vec::new();
    // Children come after their parents, so this goes backwards.
    for at in (0..spans.len()).rev() {
        let all = own[at].saturating_add(inside[at]);
        let is_brick = kinds[at] == SpanKind::Brick;
        adds_up[at] = is_brick && all == spans[at].exclusive_ns;
        let sum = match (parents[at], homes[at]) {
            (Some(parent), _) => Some(&mut inside[parent as usize]),
            (None, Home::Pass(pass)) => {
                let begin = spans[at].start_ns;
                roots.push((pass, begin, begin.saturating_add(spans[at].duration_ns)));
                Some(&mut in_pass[pass as usize])
            }
            _ => None,
        };
        if let Some(sum) = sum.filter(|_| !is_brick) {
            *sum = sum.saturating_add(all);
        }
    }
    let mut free: Vec<u64> = profile.passes.iter().map(|pass| pass.wall_ns).collect();
    roots.sort_unstable();
    let mut until = 0;
    let mut last = None;
    for (pass, begin, end) in roots {
        let wall = &profile.passes[pass as usize];
        if last != Some(pass) {
            (last, until) = (Some(pass), wall.start_ns);
        }
        let end = end.min(wall.start_ns.saturating_add(wall.wall_ns));
        free[pass as usize] -= end.saturating_sub(begin.max(until));
        until = until.max(end);
    }
    let fits = |((&free, &inside), pass): ((&u64, &u64), &Pass)| {
        (free.checked_add(inside) == Some(pass.unattributed_ns)).then_some(free)
    };
    let free = free.iter().zip(&in_pass).zip(&profile.passes).map(fits).collect();
    (adds_up, free)
}

/// A frame, and the node around it.
#[derive(Debug, Clone, Copy)]
struct Node {
    around: Option<u32>,
    frame: u32,
    depth: u32,
}

struct Drawing<'a> {
    profile: &'a Profile,
    spans: &'a Spans,
    by: By,
    stacks: Stacks,
    nodes: Vec<Node>,
    of_node: HashMap<(Option<u32>, u32), u32>,
    /// The block of time of each pass that is drawn.
    blocks: Vec<usize>,
    /// The names of threads, all different.
    threads: Vec<String>,
    /// The drawn time of each brick, by phase and index of its name.
    drawn: HashMap<(Option<Phase>, u16), u64>,
    /// The frames of names and layers, which most spans share.
    known: HashMap<(Level, u16, Class), u32>,
}

impl<'a> Drawing<'a> {
    fn new(profile: &'a Profile, spans: &'a Spans, by: By, blocks: usize) -> Self {
        let mut of_pass = vec![0; profile.passes.len()];
        for phase in Phase::ALL {
            let mut passes: Vec<usize> = (0..profile.passes.len())
                .filter(|&at| profile.passes[at].phase == phase && spans.are_drawn[at])
                .collect();
            passes.sort_by_key(|&at| (profile.passes[at].start_ns, profile.passes[at].serial));
            for (rank, &at) in passes.iter().enumerate() {
                of_pass[at] = block(rank, passes.len(), blocks);
            }
        }
        Self {
            profile,
            spans,
            by,
            stacks: Stacks::new(Unit::Nanoseconds, blocks),
            nodes: Vec::new(),
            of_node: HashMap::new(),
            blocks: of_pass,
            threads: threads(profile),
            drawn: HashMap::new(),
            known: HashMap::new(),
        }
    }
}

impl Drawing<'_> {
    /// Adds the stack of each span that is drawn.
    fn add_spans(&mut self) {
        let (profile, spans) = (self.profile, self.spans);
        // The time of each brick's kernels.
        let mut in_kernels = vec![0_u64; profile.spans.len()];
        for (at, owner) in spans.owners.iter().enumerate() {
            if let Some(owner) = *owner
                && spans.kinds[at] == SpanKind::Kernel
                && spans.adds_up[owner as usize]
            {
                let sum = &mut in_kernels[owner as usize];
                *sum = sum.saturating_add(spans.own[at]);
            }
        }
        let blocks = self.blocks_outside();
        let mut nodes: Vec<Option<u32>> = Vec::with_capacity(profile.spans.len());
        for (at, span) in profile.spans.iter().enumerate() {
            let home = spans.homes[at];
            let is_drawn = match home {
                Home::Elsewhere => false,
                Home::Helper => self.by == By::Thread,
                Home::Pass(_) | Home::Outside => true,
            };
            let phase = match home {
                Home::Pass(pass) => Some(profile.passes[pass as usize].phase),
                _ => None,
            };
            let kind = spans.kinds[at];
            if kind == SpanKind::Brick
                && home != Home::Elsewhere
                && let Some(name) = span.name
            {
                let drawn = self.drawn.entry((phase, name)).or_default();
                *drawn = drawn.saturating_add(span.exclusive_ns);
            }
            if !is_drawn {
                nodes.push(None);
                continue;
            }
            let node = self.node_of(at, &nodes);
            nodes.push(node);
            let Some(node) = node else { continue };
            let block = match home {
                Home::Pass(pass) => self.blocks[pass as usize],
                _ => blocks[at],
            };
            let own = spans.own[at];
            if kind == SpanKind::Brick {
                let rest = span.exclusive_ns.saturating_sub(in_kernels[at]);
                self.add(Some(node), false, rest, block);
                continue;
            }
            // Whether its own time is known, and whether it is unattributed.
            let (is_told, is_unattributed) = match (spans.owners[at], home) {
                // The time of a layer in a brick belongs to the brick.
                (Some(owner), _) => {
                    (kind == SpanKind::Kernel && spans.adds_up[owner as usize], false)
                }
                (None, Home::Pass(pass)) => (spans.free[pass as usize].is_some(), true),
                (None, Home::Helper) => (kind == SpanKind::Kernel, false),
                (None, _) => (kind == SpanKind::Kernel && self.by == By::Thread, true),
            };
            if is_told {
                self.add(Some(node), is_unattributed, own, block);
            }
        }
    }

    /// Adds the time outside of all spans in the passes that are drawn.
    fn add_unattributed(&mut self) {
        for (at, pass) in self.profile.passes.iter().enumerate() {
            if self.spans.are_drawn[at] {
                let free = self.spans.free[at].unwrap_or(pass.unattributed_ns);
                let node = self.root(pass.lane, pass.phase.name());
                self.add(node, true, free, self.blocks[at]);
            }
        }
    }

    /// Adds what is known only as sums.
    fn add_sums(&mut self) {
        let profile = self.profile;
        // By name, since several indices can have the same one.
        let mut all_drawn: HashMap<(Option<Phase>, String), u64> = HashMap::new();
        for (&(phase, name), nanos) in &self.drawn {
            let drawn = all_drawn.entry((phase, name_of(profile, name))).or_default();
            *drawn = drawn.saturating_add(*nanos);
        }
        for phase in [Some(Phase::Prefill), Some(Phase::Decode), None] {
            let mut sums: Vec<(&str, u64)> = Vec::new();
            let mut of_name: HashMap<&str, usize> = HashMap::new();
            for total in &profile.totals {
                if total.phase == phase && total.kind == NameKind::Brick {
                    let name = total.stats.name.as_str();
                    let at = *of_name.entry(name).or_insert_with(|| {
                        sums.push((name, 0));
                        sums.len() - 1
                    });
                    sums[at].1 = sums[at].1.saturating_add(total.stats.exclusive_ns);
                }
            }
            for (name, sum) in &mut sums {
                let drawn = all_drawn.get(&(phase, (*name).to_owned())).copied();
                *sum = sum.saturating_sub(drawn.unwrap_or_default());
            }
            let total = phase.and_then(|phase| profile.phase(phase));
            let passes = profile.passes.iter().zip(&self.spans.are_drawn);
            let drawn = passes
                .filter(|(pass, is_drawn)| Some(pass.phase) == phase && **is_drawn)
                .fold(0, |sum, (pass, _)| u64::saturating_add(sum, pass.unattributed_ns));
            let unattributed = total.map_or(0, |total| total.unattributed_ns);
            sums.push((UNATTRIBUTED, unattributed.saturating_sub(drawn)));
            for (name, sum) in sums {
                if sum == 0 {
                    continue;
                }
                let mut frames = Vec::new();
                if self.by == By::Thread {
                    frames.push(self.frame(NOT_KEPT, Level::Thread));
                }
                frames.push(self.frame(phase.map_or(OUTSIDE, Phase::name), Level::Phase));
                // In the place of a layer.
                frames.push(self.frame(NOT_KEPT, Level::Layer));
                frames.push(self.frame(name, Level::Brick));
                self.stacks.add_in_no_block(&frames, sum);
            }
        }
    }

    /// The block of time of each span in no pass.
    fn blocks_outside(&self) -> Vec<usize> {
        let (spans, parents) = (&self.profile.spans, &self.spans.parents);
        let mut blocks = vec![0; spans.len()];
        for home in [Home::Outside, Home::Helper] {
            let mut roots: Vec<usize> = (0..spans.len())
                .filter(|&at| self.spans.homes[at] == home && parents[at].is_none())
                .collect();
            roots.sort_by_key(|&at| (spans[at].start_ns, at));
            for (rank, &at) in roots.iter().enumerate() {
                blocks[at] = block(rank, roots.len(), self.stacks.blocks);
            }
        }
        for at in 0..spans.len() {
            if let Some(parent) = parents[at] {
                blocks[at] = blocks[parent as usize];
            }
        }
        blocks
    }

    /// The frames of a span, given those of the spans around it.
    fn node_of(&mut self, at: usize, nodes: &[Option<u32>]) -> Option<u32> {
        let (profile, spans) = (self.profile, self.spans);
        let (span, kind) = (&profile.spans[at], spans.kinds[at]);
        let mut is_share = false;
        let around = match (spans.parents[at], spans.homes[at]) {
            (Some(parent), _) => {
                is_share = spans.kinds[parent as usize] == SpanKind::Kernel;
                nodes[parent as usize]
            }
            (None, Home::Helper) => {
                let thread = self.thread(span.lane);
                let kernel = spans.kernels[at].map(|kernel| &profile.spans[kernel as usize]);
                match kernel.and_then(|kernel| kernel.name) {
                    Some(name) => {
                        is_share = true;
                        Some(self.kernel(thread, name, false))
                    }
                    None => thread,
                }
            }
            (None, home) => {
                let phase = match home {
                    Home::Pass(pass) => profile.passes[pass as usize].phase.name(),
                    _ => OUTSIDE,
                };
                let root = self.root(span.lane, phase);
                match span.layer {
                    Some(layer) if kind != SpanKind::Layer => self.layer(root, layer),
                    _ => root,
                }
            }
        };
        match (kind, span.name) {
            (SpanKind::Kernel, Some(name)) => Some(self.kernel(around, name, is_share)),
            (SpanKind::Brick, Some(name)) => {
                let frame = self.known((Level::Brick, name, Class::Other), |_| Frame {
                    name: name_of(profile, name),
                    level: Level::Brick,
                    class: Class::Other,
                });
                Some(self.node(around, frame))
            }
            _ => match span.layer {
                Some(layer) => self.layer(around, layer),
                None => around,
            },
        }
    }

    /// The outer frames of a thread in a phase.
    fn root(&mut self, lane: u32, phase: &str) -> Option<u32> {
        let thread = if self.by == By::Thread { self.thread(lane) } else { None };
        let frame = self.frame(phase, Level::Phase);
        Some(self.node(thread, frame))
    }

    fn thread(&mut self, lane: u32) -> Option<u32> {
        let unknown = || format!("thread {lane}");
        let name = self.threads.get(lane as usize).cloned().unwrap_or_else(unknown);
        let frame = self.frame(&name, Level::Thread);
        Some(self.node(None, frame))
    }

    fn layer(&mut self, around: Option<u32>, layer: u16) -> Option<u32> {
        if self.by == By::Brick {
            return around;
        }
        let frame = self.known((Level::Layer, layer, Class::Other), |_| Frame {
            name: format!("layer {layer}"),
            level: Level::Layer,
            class: Class::Other,
        });
        Some(self.node(around, frame))
    }

    fn kernel(&mut self, around: Option<u32>, name: u16, is_share: bool) -> u32 {
        let profile = self.profile;
        let level = if is_share { Level::Tile } else { Level::Kernel };
        // A share has the class of its kernel, unless its name says more.
        let shared = around.filter(|_| is_share).map_or(Class::Other, |around| {
            self.stacks.frames[self.nodes[around as usize].frame as usize].class
        });
        let frame = self.known((level, name, shared), |(level, name, shared)| {
            let name = name_of(profile, name);
            let of_name = Class::of_kernel(&name);
            let class = if of_name == Class::Other { shared } else { of_name };
            Frame { name, level, class }
        });
        self.node(around, frame)
    }

    fn known(
        &mut self,
        key: (Level, u16, Class),
        make: impl FnOnce((Level, u16, Class)) -> Frame,
    ) -> u32 {
        *self.known.entry(key).or_insert_with(|| self.stacks.frame(make(key)))
    }

    fn frame(&mut self, name: &str, level: Level) -> u32 {
        self.stacks.frame(Frame { name: name.to_owned(), level, class: Class::Other })
    }

    fn node(&mut self, around: Option<u32>, frame: u32) -> u32 {
        let is_too_deep = |&around: &u32| self.nodes[around as usize].depth >= MOST_FRAMES;
        let around = match around.filter(is_too_deep) {
            Some(deepest) => self.nodes[deepest as usize].around,
            None => around,
        };
        let depth = around.map_or(1, |around| self.nodes[around as usize].depth + 1);
        *self.of_node.entry((around, frame)).or_insert_with(|| {
            self.nodes.push(Node { around, frame, depth });
            (self.nodes.len() - 1) as u32
        })
    }

    /// Adds the time of a node. If `is_unattributed`, a frame for that is put inside of layers and around
    /// kernels.
    fn add(&mut self, node: Option<u32>, is_unattributed: bool, nanos: u64, block: usize) {
        if nanos == 0 {
            return;
        }
        let mut frames = Vec::new();
        let mut next = node;
        while let Some(node) = next {
            let Node { around, frame, .. } = self.nodes[node as usize];
            frames.push(frame);
            next = around;
        }
        frames.reverse();
        if is_unattributed {
            let unattributed = self.frame(UNATTRIBUTED, Level::Brick);
            let is_kernel = |&frame: &u32| {
                let level = self.stacks.frames[frame as usize].level;
                matches!(level, Level::Kernel | Level::Tile)
            };
            let at = frames.iter().position(is_kernel).unwrap_or(frames.len());
            frames.insert(at, unattributed);
        }
        self.stacks.add(&frames, nanos, block);
    }
}

/// Which of `blocks` of equal size contains number `rank` of `count`.
pub(super) fn block(rank: usize, count: usize, blocks: usize) -> usize {
    (rank as u128 * blocks as u128 / count as u128) as usize
}

fn threads(profile: &Profile) -> Vec<String> {
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let names = profile.lanes.iter().map(|lane| lane.name.as_deref());
    names.clone().flatten().for_each(|name| *seen.entry(name).or_default() += 1);
    (0..)
        .zip(names)
        .map(|(lane, name)| match name {
            Some(name) if seen[name] == 1 => name.to_owned(),
            Some(name) => format!("{name} (thread {lane})"),
            None => format!("thread {lane}"),
        })
        .collect()
}
