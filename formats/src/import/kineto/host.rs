//! What the host did: operations, named ranges and modules as bricks, each with its own time only.

use std::collections::{HashMap, HashSet};

use brickscope_profile::{Pass, Phase, Profile, Source, Span, StepTold, Work};

use super::attention::{self, Noted, Why};
use super::stated::Stated;
use super::table::{Found, class_of, is_layer};
use super::{EventKind, Link, MODULE, Names, attention_args, shapes};
use crate::import::step::is_sized_by_tokens;
use crate::import::trace::{Timed, Trace, pass_of};

/// The most modules around an event whose classes the table can compare.
const MOST_CLASSES: usize = 8;

/// What is known of the host beside its spans.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// By the number of the call, then by that of the operation, what launched the work of devices.
    pub(super) by_correlation: HashMap<u64, Launch>,
    pub(super) by_external: HashMap<u64, Launch>,
    /// The numbers of calls that launched a kernel, without those of a capture.
    pub(super) launches: Vec<u64>,
    /// Those of calls that launched a graph.
    pub(super) graph_launches: Vec<u64>,
    /// Products whose work their shapes tell, with how many kernels each launched.
    pub(super) products: Vec<(Work, u32)>,
    /// Those of them that are attention, by their index, with the serials of their passes.
    pub(super) attentions: HashMap<u32, (Noted, Option<u32>)>,
    /// And those whose work isn't known.
    pub(super) without_work: HashMap<u32, Why>,
    /// What the names of steps tell, by the serials of their passes.
    pub(super) told: HashMap<u32, StepTold>,
    /// The serials of passes whose tokens may not be what graphs are captured for.
    pub(super) of_requests: HashSet<u32>,
    /// Whether any event states its layer.
    pub(super) has_layers: bool,
    pub(super) overlapping: u64,
    pub(super) functions: u64,
    pub(super) of_profiler: u64,
}

/// What launched the work of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    /// The brick that a range, a module or an operation around it tells.
    pub(super) brick: Option<u16>,
    /// The operation that it is in: an index into the names of the file.
    pub(super) op: Option<u32>,
    pub(super) layer: Option<u16>,
    /// The expert of a mixture, if a range around it is of one.
    pub(super) expert: Option<u32>,
    /// The serial of its pass.
    pub(super) pass: Option<u32>,
    /// When it began, in nanoseconds of the profile.
    pub(super) issued_ns: u64,
    /// Whether it launched a graph of kernels.
    pub(super) is_graph: bool,
    /// Whether it launched a kernel by itself.
    pub(super) is_of_kernel: bool,
    /// The product that it is a part of: an index into [`Host::products`].
    pub(super) product: Option<u32>,
}

/// What the events around tell about an event.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    end: i64,
    /// The brick around it: an index into the spans, and its name.
    span: Option<(usize, u16)>,
    pass: Option<usize>,
    layer: Option<u16>,
    expert: Option<u32>,
    /// The brick that the innermost range or module tells.
    named: Option<u16>,
    /// The brick that the outermost operation tells, if there is no such range or module.
    op: Option<u16>,
    op_name: Option<u32>,
    /// The innermost module: an index into the chains.
    module: Option<u32>,
    /// Whether the operation around it is a kernel.
    is_in_kernel: bool,
    is_in_call: bool,
    /// Whether what is launched becomes a part of a graph, and doesn't run yet.
    is_in_capture: bool,
    /// The product around it: an index into the host's.
    product: Option<u32>,
}

/// A module and those around it.
struct Chain {
    class: u32,
    outer: Option<u32>,
}

/// What a look over the events finds out before they become spans.
#[derive(Default)]
struct Foreseen {
    /// Whether an event is to be looked into: there is something else than operations inside of it, or operations that
    /// take half of its time or more.
    is_outer: Vec<bool>,
    /// Of modules, by their event: which call of its class it is inside of its module, and the key of how many there are.
    calls: HashMap<usize, (u32, (usize, u32))>,
    /// How many calls of a class there are inside of an event; `usize::MAX` stands for no event.
    counts: HashMap<(usize, u32), u32>,
    classes: Vec<String>,
    of_class: HashMap<String, u32>,
}

fn is_kept(event: &Timed) -> bool {
    !event.kind.is_of_device() && !matches!(event.kind, EventKind::Function | EventKind::Profiler)
}

fn foresee(trace: &Trace, timed: &[Timed]) -> Foreseen {
    let mut seen = Foreseen { is_outer: vec![false; timed.len()], ..Foreseen::default() };
    // Each event with the module that it is in, and the time of the operations directly inside of it.
    let mut stack: Vec<(usize, Option<usize>, u64)> = Vec::new();
    let mut lane = u32::MAX;
    let close = |stack: &mut Vec<(usize, Option<usize>, u64)>, is_outer: &mut [bool], at: i64| {
        while let Some((inner, _, nanos)) =
            stack.pop_if(|&mut (around, ..)| timed[around].end <= at)
        {
            let event = &timed[inner];
            let whole = event.end.abs_diff(event.start);
            let is_mixed = is_outer[inner] || event.kind != EventKind::Op;
            is_outer[inner] |= nanos > 0 && nanos >= whole - nanos.min(whole);
            if let Some((around, ..)) = stack.last().filter(|_| is_mixed) {
                is_outer[*around] = true;
            }
        }
    };
    for (at, event) in timed.iter().enumerate().filter(|(_, event)| is_kept(event)) {
        if event.lane != lane {
            close(&mut stack, &mut seen.is_outer, i64::MAX);
            lane = event.lane;
        }
        close(&mut stack, &mut seen.is_outer, event.start);
        let around = stack.last_mut();
        if around.as_ref().is_some_and(|(around, ..)| event.end > timed[*around].end) {
            continue;
        }
        let mut module = None;
        if let Some((_, of, nanos)) = around {
            *nanos += event.end.abs_diff(event.start);
            module = *of;
        }
        if event.kind == EventKind::Module {
            let name = &trace.names[event.name as usize];
            let (class, _) = class_of(name.strip_prefix(MODULE).unwrap_or(name));
            let class = match seen.of_class.get(class) {
                Some(&class) => class,
                None => {
                    let number = seen.classes.len() as u32;
                    seen.classes.push(class.to_owned());
                    seen.of_class.insert(class.to_owned(), number);
                    number
                }
            };
            let key = (module.unwrap_or(usize::MAX), class);
            let count = seen.counts.entry(key).or_default();
            *count += 1;
            seen.calls.insert(at, (*count, key));
            module = Some(at);
        }
        stack.push((at, module, 0));
    }
    close(&mut stack, &mut seen.is_outer, i64::MAX);
    seen
}

/// Makes the host's spans and passes.
pub(super) fn spans(
    trace: &Trace,
    timed: &[Timed],
    origin: i64,
    names: &mut Names<'_>,
    profile: &mut Profile,
) -> Host {
    let mut host = Host::default();
    let seen = foresee(trace, timed);
    let products = shapes::products(trace, timed);
    let attentions = attention_args::of_events(trace, timed);
    let mut chains: Vec<Chain> = Vec::new();
    let mut of_chain: HashMap<(Option<u32>, u32), u32> = HashMap::new();
    // What the table says, by the number of a name, or of a chain and a call.
    let mut ranges: HashMap<u32, Option<Option<u16>>> = HashMap::new();
    let mut ops: HashMap<u32, Option<Option<u16>>> = HashMap::new();
    let mut modules: HashMap<(u32, u32, u32), Option<u16>> = HashMap::new();
    let mut stack: Vec<Context> = Vec::new();
    let mut lane = u32::MAX;
    let mut captures = false;
    for (at, event) in timed.iter().enumerate() {
        match event.kind {
            EventKind::Function => host.functions += 1,
            EventKind::Profiler => host.of_profiler += 1,
            _ => {}
        }
        if !is_kept(event) {
            continue;
        }
        if event.lane != lane {
            stack.clear();
            (lane, captures) = (event.lane, false);
        }
        let name = &trace.names[event.name as usize];
        // Also of a call that is left out, or all launches behind it would be of the capture.
        if event.kind == EventKind::Call {
            captures |= name.contains("StreamBeginCapture");
            captures &= !name.contains("StreamEndCapture");
        }
        while stack.pop_if(|around| around.end <= event.start).is_some() {}
        let is_inside = !stack.is_empty();
        let around = stack.last().copied().unwrap_or_default();
        if is_inside && event.end > around.end {
            host.overlapping += 1;
            continue;
        }
        let duration_ns = event.end.abs_diff(event.start);
        let start_ns = event.start.abs_diff(origin);
        let mut inner = Context { end: event.end, is_in_capture: captures, ..around };
        if let (Some(phase), None) = (event.phase(), around.pass) {
            // The time of a pass is not attributed to a brick around it.
            if let Some((outer, _)) = around.span {
                profile.spans[outer].exclusive_ns -= duration_ns;
            }
            let serial = profile.passes.len() as u32 + 1;
            let pass = pass_of(serial, phase, lane, start_ns, duration_ns);
            let tokens = trace.tokens(event);
            profile.passes.push(Pass { tokens, ..pass });
            if let (Some(told), Some(imported)) = (trace.told(event), &mut profile.imported) {
                if !is_sized_by_tokens(name, &told, tokens) {
                    host.of_requests.insert(serial);
                }
                imported.steps.push((serial, told));
                host.told.insert(serial, told);
            }
            inner.pass = Some(profile.passes.len() - 1);
            (inner.span, inner.named, inner.op) = (None, None, None);
        }
        let is_pass = inner.pass.is_some() && around.pass.is_none();
        // The brick that it is, if it is one of its own.
        let mut brick = None;
        let found = |found: Option<Found<'_>>, names: &mut Names<'_>| {
            found.map(|found| match found {
                Found::Brick(brick) => Some(names.brick(brick)),
                Found::Nothing => None,
            })
        };
        match event.kind {
            EventKind::Module => {
                let (class, number) = class_of(name.strip_prefix(MODULE).unwrap_or(name));
                if let (None, true, Some(number)) = (inner.layer, is_layer(class), number) {
                    inner.layer = Some(number);
                }
                if let Some(&(nth, key)) = seen.calls.get(&at) {
                    let chain = *of_chain.entry((around.module, key.1)).or_insert_with(|| {
                        chains.push(Chain { class: key.1, outer: around.module });
                        chains.len() as u32 - 1
                    });
                    inner.module = Some(chain);
                    let of = seen.counts.get(&key).copied().unwrap_or(nth);
                    let is = *modules.entry((chain, nth, of)).or_insert_with(|| {
                        let mut classes = Vec::new();
                        let mut next = Some(chain);
                        while let Some(Chain { class, outer }) =
                            next.and_then(|at| chains.get(at as usize))
                        {
                            classes.push(&*seen.classes[*class as usize]);
                            next = outer.filter(|_| classes.len() < MOST_CLASSES);
                        }
                        found(names.table.module(&classes, (nth, of)), names).flatten()
                    });
                    if let Some(is) = is {
                        (inner.named, inner.op) = (Some(is), None);
                        brick = Some(is);
                    }
                }
            }
            EventKind::Range => {
                if inner.pass.is_none() && trace.is_idle(event) {
                    let imported = profile.imported.as_mut();
                    imported.into_iter().for_each(|of| of.idle_steps_ns.push(start_ns));
                }
                let stated = Stated::by(name);
                let outer = Stated { layer: inner.layer, expert: inner.expert };
                let all = stated.inside(outer);
                (inner.layer, inner.expert) = (all.layer, all.expert);
                let is = *ranges
                    .entry(event.name)
                    .or_insert_with(|| found(names.table.range(name), names));
                match is {
                    Some(Some(is)) => {
                        (inner.named, inner.op) = (Some(is), None);
                        brick = Some(is);
                    }
                    // A part of the model with bricks of its own in it.
                    Some(None) => {}
                    None if stated != Stated::default() => {}
                    None => {
                        (inner.named, inner.op) = (None, None);
                        brick = Some(names.brick(name));
                    }
                }
            }
            EventKind::Op | EventKind::Call => {
                let is =
                    *ops.entry(event.name).or_insert_with(|| found(names.table.op(name), names));
                if event.kind == EventKind::Call {
                    brick = Some(is.flatten().unwrap_or_else(|| names.brick(name)));
                } else {
                    brick = match (around.named.or(around.op), is) {
                        (Some(outer), _) => Some(outer),
                        (None, Some(is)) => {
                            inner.op = is;
                            is
                        }
                        (None, None) => Some(names.brick(name)),
                    };
                    inner.op_name = Some(event.name);
                }
            }
            EventKind::Function
            | EventKind::Profiler
            | EventKind::Work
            | EventKind::RangeOfWork => {}
        }
        host.has_layers |= inner.layer.is_some();
        if let Some(&product) = products.get(&at) {
            inner.product = Some(host.products.len() as u32);
            host.products.push((product, 0));
        }
        let pass = inner.pass.map(|pass| profile.passes[pass].serial);
        if let Some(&noted) = attentions.get(&at) {
            let number = host.products.len() as u32;
            inner.product = Some(number);
            host.products.push((Work::default(), 0));
            host.attentions.insert(number, (noted, pass));
        }
        launch(&mut host, trace, event, &inner, pass, start_ns, name);
        inner.is_in_call |= event.kind == EventKind::Call;
        if is_pass {
            stack.push(inner);
            continue;
        }
        let mut push = |name: u16, parent: Option<usize>, exclusive_ns: u64| {
            profile.spans.push(Span {
                name: Some(name),
                source: Source::Host,
                lane,
                pass,
                layer: inner.layer,
                parent: parent.and_then(|parent| u32::try_from(parent).ok()),
                start_ns,
                duration_ns,
                exclusive_ns,
                work: Work::default(),
            });
            profile.spans.len() - 1
        };
        // What the table calls by one name is one brick, however many operations it is made of.
        let is_more_of_it = inner.named.or(inner.op).is_some() && event.kind != EventKind::Call;
        let new = brick
            .filter(|&brick| !is_more_of_it || around.span.is_none_or(|(_, outer)| outer != brick));
        if let Some(brick) = new {
            let outer = around.span.map(|(outer, _)| outer);
            let span = push(brick, outer, duration_ns);
            inner.span = Some((span, brick));
            match (outer, inner.pass) {
                (Some(outer), _) => profile.spans[outer].exclusive_ns -= duration_ns,
                (None, Some(pass)) => {
                    let pass = &mut profile.passes[pass];
                    pass.attributed_ns += duration_ns;
                    pass.unattributed_ns -= duration_ns;
                }
                (None, None) => {}
            }
        }
        // An operation that computes itself, in whose time the smaller ones inside of it are.
        if event.kind == EventKind::Op
            && !around.is_in_kernel
            && !seen.is_outer[at]
            && let Some((span, of)) = inner.span
            && names.names.get(usize::from(of)).is_none_or(|of| of.name != *name)
        {
            let kernel = names.kernel(name);
            profile.spans.push(Span {
                name: Some(kernel),
                source: Source::Host,
                lane,
                pass,
                layer: inner.layer,
                parent: u32::try_from(span).ok(),
                start_ns,
                duration_ns,
                exclusive_ns: 0,
                work: Work::default(),
            });
            inner.is_in_kernel = true;
        }
        stack.push(inner);
    }
    host.settle_attentions();
    host
}

impl Host {
    /// Gives attentions their work, or notes why they have none: calls of one pass tell of each other.
    fn settle_attentions(&mut self) {
        let mut of_passes: HashMap<Option<u32>, Vec<&Noted>> = HashMap::new();
        for (noted, pass) in self.attentions.values() {
            of_passes.entry(*pass).or_default().push(noted);
        }
        let doubts: HashMap<Option<u32>, HashMap<u64, Why>> = of_passes
            .into_iter()
            .map(|(pass, of_pass)| (pass, attention::doubts(of_pass.into_iter())))
            .collect();
        for (number, (noted, pass)) in &self.attentions {
            let told = pass.and_then(|serial| self.told.get(&serial));
            let settled = match doubts.get(pass) {
                Some(doubts) => attention::settled(*noted, doubts),
                None => *noted,
            };
            match settled.and_then(|attention| attention.work(told)) {
                Ok(work) => {
                    if let Some((of, _)) = self.products.get_mut(*number as usize) {
                        *of = work;
                    }
                }
                Err(why) => {
                    self.without_work.insert(*number, why);
                }
            }
        }
    }
}

/// Notes what the work of devices can be tied to.
fn launch(
    host: &mut Host,
    trace: &Trace,
    event: &Timed,
    inner: &Context,
    pass: Option<u32>,
    issued_ns: u64,
    name: &str,
) {
    let Some(link) = event.link.and_then(|link| trace.links.get(link as usize)) else { return };
    let launch = Launch {
        brick: inner.named.or(inner.op),
        op: inner.op_name,
        layer: inner.layer,
        expert: inner.expert,
        pass,
        issued_ns,
        is_graph: name.contains("GraphLaunch"),
        is_of_kernel: event.kind == EventKind::Call && launches_kernel(name),
        product: inner.product,
    };
    match event.kind {
        EventKind::Call => {
            if let Some(correlation) = link.correlation {
                match launch.is_graph {
                    _ if inner.is_in_capture => {}
                    true => host.graph_launches.push(correlation),
                    // A call of the driver within one of the runtime is the same launch.
                    false if launch.is_of_kernel && host.launches.last() != Some(&correlation) => {
                        host.launches.push(correlation);
                    }
                    false => {}
                }
                let of_product = inner.product.and_then(|at| host.products.get_mut(at as usize));
                if let Some((_, launches)) =
                    of_product.filter(|_| launch.is_of_kernel && !inner.is_in_call)
                {
                    *launches += 1;
                }
                host.by_correlation.entry(correlation).or_insert(launch);
            }
        }
        EventKind::Op => {
            if let Some(external) = link.external {
                host.by_external.entry(external).or_insert(launch);
            }
        }
        _ => {}
    }
}

/// Whether a call launches a kernel: `cudaLaunchKernelExC`, `hipExtModuleLaunchKernel`, `cudaLaunchCooperativeKernel`.
fn launches_kernel(call: &str) -> bool {
    call.split_once("Launch").is_some_and(|(_, what)| what.contains("Kernel"))
}

/// The phase of a pass by its serial.
pub(super) fn phase_of(profile: &Profile, serial: u32) -> Option<Phase> {
    let pass = profile.passes.get((serial as usize).checked_sub(1)?)?;
    Some(pass.phase)
}

/// The call that launched a piece of work, or else the operation.
pub(super) fn launch_of<'h>(host: &'h Host, link: &Link) -> Option<&'h Launch> {
    let by_call = link.correlation.and_then(|at| host.by_correlation.get(&at));
    by_call.or_else(|| host.by_external.get(&link.external?))
}
