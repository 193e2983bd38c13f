//! A run: the host launches, and the device computes, on all ranks at once.

use super::write::{self, What};
use super::{
    Calls, Kernel, MAIN_STREAM, Net, Planted, Random, Recorded, Recording, SIDE_STREAM, TrueKernel,
    TrueStep, Truth,
};

/// When the host begins, in nanoseconds of the file's axis.
const BEGIN_NS: u64 = 5_210_000_000_417;

/// The number of the first rank's process.
const FIRST_PROCESS: u64 = 4_100;

/// How long an operation takes that launches a kernel.
const OPERATION_NS: u64 = 10_000;

/// The duration that [`Planted::Endless`] writes.
const ENDLESS_NS: u64 = 1_000_000_000_000_000;

/// By what a kernel is launched, and when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Graph,
    After,
    Behind,
}

/// A kernel of a step.
struct Work {
    kernel: Kernel,
    layer: Option<u16>,
    place: Place,
}

/// A launch, as the device gets it.
#[derive(Clone, Copy)]
struct Issued {
    ready: u64,
    correlation: u64,
    /// The number of the operation, if the kernel has one of its own.
    operation: Option<u64>,
}

/// A kernel as it ran.
struct Ran {
    step: usize,
    nth: usize,
    begin: u64,
    end: u64,
    waited: u64,
}

/// A rank of the run.
struct Rank {
    number: u32,
    process: u64,
    ranks: u32,
    group: Vec<u32>,
    random: Random,
    /// How much its clock is ahead.
    ahead: u64,
    /// How far the host is, and each stream.
    host: u64,
    main: u64,
    side: u64,
    /// The layer that has work on the second stream which the first one hasn't waited for.
    forked: Option<Option<u16>>,
    operations: u64,
    calls: u64,
    events: Vec<String>,
    truth: Truth,
}

/// The kernels of a step, with other tiles if there is one.
fn works(net: &Net, tile: Option<&str>) -> Vec<Work> {
    let mut works = Vec::new();
    let mut add = |kernels: &[Kernel], layer: Option<u16>, place: Place| {
        works.extend(kernels.iter().map(|kernel| {
            let kernel = match tile {
                Some(tile) if kernel.is_product() => kernel.tiled(tile),
                _ => kernel.clone(),
            };
            Work { kernel, layer, place }
        }));
    };
    add(&net.before, None, Place::Before);
    add(&net.prologue, None, Place::Graph);
    for (layer, kernels) in (0..).zip(&net.layers) {
        add(kernels, Some(layer), Place::Graph);
    }
    add(&net.epilogue, None, Place::Graph);
    add(&net.after, None, Place::After);
    add(&net.behind, None, Place::Behind);
    works
}

/// Numbers of one rank are below this, so that those of several can be told apart in one file.
const OF_A_RANK: u64 = 1_000_000;

/// Runs all steps on so many ranks.
pub(super) fn play(recording: &Recording, count: u32) -> Vec<Recorded> {
    let ranks = (0..count).map(|number| Rank::new(recording, number, count)).collect();
    played(recording, ranks).into_iter().map(Rank::recorded).collect()
}

/// Runs all steps on so many devices of one process, of which each thread drives one. The file, and what is true of each.
pub(super) fn together(recording: &Recording, count: u32) -> (String, Vec<Truth>) {
    let of_process = |number: u32| Rank {
        process: FIRST_PROCESS,
        operations: u64::from(number) * OF_A_RANK,
        calls: u64::from(number) * OF_A_RANK,
        ..Rank::new(recording, number, count)
    };
    let ranks = played(recording, (0..count).map(of_process).collect());
    let (mut events, mut truths) = (Vec::new(), Vec::new());
    for mut rank in ranks {
        events.append(&mut rank.tracks());
        events.append(&mut rank.events);
        truths.push(rank.truth);
    }
    (write::file(None, count, &[], &events), truths)
}

/// Ranks when all steps have run on them.
fn played(recording: &Recording, mut ranks: Vec<Rank>) -> Vec<Rank> {
    let count = ranks.len() as u32;
    let mut links = Random::new(recording.seed ^ 0x6c69_6e6b);
    let members = if recording.group == 0 { count } else { recording.group.min(count) };
    for (step, &requests) in recording.steps.iter().enumerate() {
        let is_other = recording.steps.first() != Some(&requests);
        let tile = is_other.then(|| format!("128x{}", requests.next_multiple_of(8)));
        let works = works(&recording.net, tile.as_deref());
        let issued: Vec<Vec<Issued>> =
            ranks.iter_mut().map(|rank| rank.launch_step(recording, &works, requests)).collect();
        for (nth, work) in works.iter().enumerate() {
            let at = |rank: &Rank| issued[rank.number as usize][nth];
            for (group, of_group) in (0_u32..).zip(ranks.chunks_mut(members as usize)) {
                let begins: Vec<u64> = of_group
                    .iter_mut()
                    .map(|rank| rank.begin(recording, work, at(rank).ready))
                    .collect();
                // All of a group go on when the last one is there.
                let last = begins.iter().copied().max().unwrap_or(0);
                let transfer = work.kernel.is_collective().then(|| {
                    let slow = recording.planted.iter().find_map(|planted| match *planted {
                        Planted::SlowLink { group: of, percent } if of == group => Some(percent),
                        _ => None,
                    });
                    let ns = jittered(&mut links, work.kernel.ns, recording.jitter);
                    ns * slow.unwrap_or(100) / 100
                });
                for (rank, begin) in of_group.iter_mut().zip(begins) {
                    let (end, waited) = match transfer {
                        Some(transfer) => (last + transfer, last - begin),
                        None => (begin + rank.duration(recording, work), 0),
                    };
                    let issued = at(rank);
                    rank.ran(recording, work, issued, Ran { step, nth, begin, end, waited });
                }
            }
        }
        for rank in &mut ranks {
            rank.wait(recording.calls);
            rank.host += recording.host_ns;
        }
    }
    ranks
}

/// The trace of a capture.
pub(super) fn capture(recording: &Recording) -> String {
    let mut rank = Rank::new(recording, 0, 1);
    let mut works = works(&recording.net, None);
    works.retain(|work| work.place == Place::Graph);
    let begin = rank.host;
    rank.host += 4_000;
    rank.call(recording.calls, "StreamBeginCapture", 2_000);
    let model = rank.host;
    rank.host += 1_000;
    for part in works.chunk_by(|one, next| one.layer == next.layer) {
        rank.launch_part(recording.calls, part);
    }
    rank.host += 1_000;
    rank.module("LlamaForCausalLM", 0, model);
    rank.call(recording.calls, "StreamEndCapture", 3_000);
    rank.call(recording.calls, "GraphInstantiate", 900_000);
    rank.host += 2_000;
    let requests = recording.steps.first().copied().unwrap_or_default();
    let operation = rank.operation();
    let (name, ns) = (format!("capture_{requests}_FULL"), rank.host - begin);
    rank.event("user_annotation", &name, (begin, ns), &operation_args(operation));
    rank.recorded().trace
}

/// `ns` and up to so many thousandths less or more.
fn jittered(random: &mut Random, ns: u64, jitter: u64) -> u64 {
    let jitter = jitter.min(1_000);
    let thousandths = 1_000 - jitter + random.below(2 * jitter + 1);
    (ns * thousandths / 1_000).max(1)
}

fn operation_args(operation: u64) -> String {
    format!(r#""External id":{operation},"Record function id":0,"Ev Idx":{operation}"#)
}

/// The operation that launches a kernel where no graph does.
fn operation_of(kernel: &Kernel) -> &'static str {
    if kernel.is_product() {
        return "aten::mm";
    }
    match kernel.brick {
        "RmsNorm" => "_C::fused_add_rms_norm",
        "RopeEmbedding" => "_C::rotary_embedding",
        "KvCache" => "_C_cache_ops::reshape_and_cache_flash",
        "FlashAttention" => "vllm::unified_attention_with_output",
        "Activation" => "_C::silu_and_mul",
        "Router" => "_moe_C::topk_softmax",
        "Experts" => "vllm::moe_forward",
        "AllReduce" => "vllm::all_reduce",
        "Embedding" => "aten::embedding",
        "Sampling" => "aten::argmax",
        "Copy" => "aten::copy_",
        _ => "aten::mul",
    }
}

/// The category and the name of the call that launches a kernel.
fn call_of(calls: Calls, kernel: &Kernel) -> (&'static str, &'static str) {
    let is_copy = kernel.name.starts_with("Memcpy ");
    match calls {
        Calls::Cuda if is_copy => ("cuda_runtime", "cudaMemcpyAsync"),
        Calls::Cuda if kernel.is_product() => ("cuda_driver", "cuLaunchKernelEx"),
        Calls::Cuda => ("cuda_runtime", "cudaLaunchKernel"),
        Calls::Hip if is_copy => ("cuda_runtime", "hipMemcpyAsync"),
        Calls::Hip if kernel.is_product() => ("cuda_runtime", "hipExtModuleLaunchKernel"),
        Calls::Hip => ("cuda_runtime", "hipLaunchKernel"),
    }
}

impl Rank {
    fn new(recording: &Recording, number: u32, ranks: u32) -> Self {
        let members = if recording.group == 0 { ranks } else { recording.group.min(ranks) };
        let first = number / members * members;
        let mut random = Random::new(recording.seed.wrapping_add(u64::from(number) << 32));
        let host = BEGIN_NS + random.below(20_000);
        Self {
            number,
            process: FIRST_PROCESS + u64::from(number),
            ranks,
            group: (first..ranks.min(first + members)).collect(),
            random,
            ahead: recording.skew_ns * u64::from(number),
            host,
            main: 0,
            side: 0,
            forked: None,
            operations: 0,
            calls: 0,
            events: Vec::new(),
            truth: Truth {
                rank: number,
                layers: recording.net.layers.len() as u16,
                origin_ns: u64::MAX,
                planted: recording.planted.clone(),
                ..Truth::default()
            },
        }
    }

    /// In a process of its own, it is the only one.
    fn thread(&self) -> u64 {
        FIRST_PROCESS + u64::from(self.number)
    }

    fn device(&self) -> u32 {
        self.number % 8
    }

    fn operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    /// An event of the host from a moment on, for so long.
    fn event(&mut self, cat: &str, name: &str, (start, ns): (u64, u64), args: &str) {
        let start = start + self.ahead;
        self.truth.origin_ns = self.truth.origin_ns.min(start);
        let what = What { cat, name, pid: self.process, tid: self.thread() };
        self.events.push(write::event(what, start, ns, args));
    }

    /// A module that began then and ends now.
    fn module(&mut self, class: &str, number: u16, begin: u64) {
        let ns = self.host - begin;
        let args = format!(r#""Python id":{},"Python module id":{number}"#, self.events.len() + 1);
        self.event("python_function", &format!("nn.Module: {class}_{number}"), (begin, ns), &args);
    }

    /// A call that launches no single kernel. Returns its number.
    fn call(&mut self, calls: Calls, name: &str, ns: u64) -> u64 {
        let api = if calls == Calls::Cuda { "cuda" } else { "hip" };
        self.calls += 1;
        let correlation = self.calls;
        let args = format!(r#""cbid":311,"correlation":{correlation}"#);
        self.event("cuda_runtime", &format!("{api}{name}"), (self.host, ns), &args);
        self.host += ns + 1_000;
        correlation
    }

    /// An operation and its call, which launches a kernel.
    fn launch(&mut self, calls: Calls, kernel: &Kernel) -> Issued {
        let begin = self.host;
        let operation = self.operation();
        let args = operation_args(operation);
        self.event("cpu_op", operation_of(kernel), (begin, OPERATION_NS), &args);
        self.calls += 1;
        let correlation = self.calls;
        let mut args =
            format!(r#""External id":{operation},"cbid":211,"correlation":{correlation}"#);
        if calls == Calls::Hip {
            args.push_str(&format!(r#","kernel":{}"#, write::quoted(&kernel.name)));
        }
        let (cat, name) = call_of(calls, kernel);
        self.event(cat, name, (begin + 3_000, 4_000), &args);
        self.host = begin + OPERATION_NS + 1_500;
        Issued { ready: begin + 7_500, correlation, operation: Some(operation) }
    }

    /// Launches kernels one by one, in the module of their layer.
    fn launch_part(&mut self, calls: Calls, part: &[Work]) -> Vec<Issued> {
        let begin = self.host;
        self.host += 1_000;
        let issued = part.iter().map(|work| self.launch(calls, &work.kernel)).collect();
        if let Some(layer) = part.first().and_then(|work| work.layer) {
            self.module("LlamaDecoderLayer", layer, begin);
        }
        self.host += 500;
        issued
    }

    /// Launches all kernels of a step.
    fn launch_step(&mut self, recording: &Recording, works: &[Work], requests: u32) -> Vec<Issued> {
        let begin = self.host;
        self.host += 20_000;
        let mut issued = Vec::with_capacity(works.len());
        let mut graph: Option<Issued> = None;
        let mut end = None;
        for part in works.chunk_by(|one, next| (one.place, one.layer) == (next.place, next.layer)) {
            let place = part.first().map(|work| work.place);
            if place == Some(Place::Behind) && end.is_none() {
                end = Some(self.host + 2_000);
                self.host += 15_000;
            }
            if place == Some(Place::Graph) && !recording.is_eager {
                let graph = *graph.get_or_insert_with(|| {
                    self.host += 10_000;
                    let ready = self.host + 15_000;
                    let correlation = self.call(recording.calls, "GraphLaunch", 120_000);
                    Issued { ready, correlation, operation: None }
                });
                issued.extend(part.iter().map(|_| graph));
            } else {
                issued.extend(self.launch_part(recording.calls, part));
            }
        }
        let end = end.unwrap_or(self.host + 2_000);
        self.host = self.host.max(end + 1_000);
        let name = format!("execute_context_0(0)_generation_{requests}({requests})");
        let operation = self.operation();
        self.event("user_annotation", &name, (begin, end - begin), &operation_args(operation));
        let start_ns = begin + self.ahead;
        self.truth.steps.push(TrueStep { name, requests, start_ns, ns: end - begin });
        issued
    }

    /// When a kernel begins.
    fn begin(&mut self, recording: &Recording, work: &Work, ready: u64) -> u64 {
        if work.kernel.is_aside {
            // Behind what it needs of the first stream.
            let fork = self.main + 2 * recording.between_ns;
            self.forked = Some(work.layer);
            return ready.max(fork).max(self.side + recording.between_ns);
        }
        if self.forked.take_if(|layer| *layer != work.layer).is_some() {
            self.main = self.main.max(self.side);
        }
        ready.max(self.main + recording.between_ns)
    }

    /// How long a kernel takes that waits for nobody.
    fn duration(&mut self, recording: &Recording, work: &Work) -> u64 {
        let mut ns = jittered(&mut self.random, work.kernel.ns, recording.jitter);
        for planted in &recording.planted {
            ns = match *planted {
                Planted::SlowLayer { layer, brick, percent }
                    if work.layer == Some(layer) && work.kernel.brick == brick =>
                {
                    ns * percent / 100
                }
                Planted::SlowRank { rank, percent } if rank == self.number => ns * percent / 100,
                _ => ns,
            };
        }
        ns
    }

    /// Notes a kernel, as the file has it.
    fn ran(&mut self, recording: &Recording, work: &Work, issued: Issued, ran: Ran) {
        let Ran { step, nth, begin, end, waited } = ran;
        let is_aside = work.kernel.is_aside;
        let until = if is_aside { &mut self.side } else { &mut self.main };
        *until = end;
        let (mut start_ns, mut ns) = (begin + self.ahead, end - begin);
        let (mut is_odd, mut is_dropped) = (false, false);
        for planted in &recording.planted {
            match *planted {
                Planted::Dropped { step: of, from, kernels } if of == step => {
                    is_dropped |= nth >= from && nth - from < kernels;
                }
                Planted::Endless { step: of, kernel } if (of, kernel) == (step, nth) => {
                    (ns, is_odd) = (ENDLESS_NS, true);
                }
                Planted::Untimed { step: of, kernel } if (of, kernel) == (step, nth) => {
                    (start_ns, ns, is_odd) = (0, 0, true);
                }
                Planted::Early { step: of, kernel, ns: early } if (of, kernel) == (step, nth) => {
                    (start_ns, is_odd) = (start_ns.saturating_sub(early), true);
                }
                _ => {}
            }
        }
        let requests = recording.steps.get(step).copied().unwrap_or_default();
        let stream = if is_aside { SIDE_STREAM } else { MAIN_STREAM };
        let kernel = TrueKernel {
            name: work.kernel.name.clone(),
            step,
            layer: work.layer,
            brick: work.kernel.brick,
            stream,
            start_ns,
            ns,
            waited_ns: waited,
            is_in_graph: issued.operation.is_none(),
            is_in_range: work.place != Place::Behind,
            is_odd,
        };
        if is_dropped {
            self.truth.dropped.push(kernel);
            return;
        }
        if start_ns > 0 {
            self.truth.origin_ns = self.truth.origin_ns.min(start_ns);
        }
        let cat = if kernel.name.starts_with("Memcpy ") { "gpu_memcpy" } else { "kernel" };
        let (pid, tid) = (u64::from(self.device()), u64::from(stream));
        let what = What { cat, name: &kernel.name, pid, tid };
        let args = self.args(&work.kernel, issued, stream, requests);
        self.events.push(write::event(what, start_ns, ns, &args));
        self.truth.kernels.push(kernel);
    }

    /// The arguments of a kernel's event.
    fn args(&self, kernel: &Kernel, issued: Issued, stream: u32, requests: u32) -> String {
        let Issued { correlation, operation, .. } = issued;
        let device = self.device();
        let mut args = match operation {
            Some(operation) => format!(r#""External id":{operation},"#),
            None => String::new(),
        };
        let place = format!(
            r#""device":{device},"context":1,"stream":{stream},"correlation":{correlation}"#
        );
        if kernel.name.starts_with("Memcpy ") {
            let bytes = requests * 8;
            args.push_str(&format!(r#"{place},"bytes":{bytes},"memory bandwidth (GB/s)":0.2"#));
            return args;
        }
        let (grid, threads, shared) = if kernel.is_product() {
            (132, 384, 217_088)
        } else if kernel.is_collective() {
            (8, 544, 87_568)
        } else {
            (requests, 256, 0)
        };
        args.push_str(&format!(
            r#""queued":0,{place},"registers per thread":64,"shared memory":{shared},"grid":[{grid},1,1],"block":[{threads},1,1],"est. achieved occupancy %":0"#
        ));
        // What a graph launches has no operation that could tell this.
        if kernel.is_collective() && operation.is_some() {
            let (size, ranks) = (self.group.len(), write::array(self.group.iter().copied()));
            args.push_str(&format!(
                r#","Collective name":"allreduce","In msg nelems":{n},"Out msg nelems":{n},"Group size":{size},"dtype":"BFloat16","In split size":"[]","Out split size":"[]","Process Group Name":"1","Process Group Description":"tp","Process Group Ranks":"{ranks}""#,
                n = requests * 8_192,
            ));
        }
        args
    }

    /// The host waits until the device has computed all.
    fn wait(&mut self, calls: Calls) {
        let end = self.main.max(self.side).max(self.host) + 4_000;
        self.call(calls, "StreamSynchronize", end - self.host);
    }

    /// The names of its process, its thread and its streams.
    fn tracks(&self) -> Vec<String> {
        let (process, thread, device) = (self.process, self.thread(), u64::from(self.device()));
        let mut events = vec![
            write::named("process_name", process, 0, "python"),
            write::named("thread_name", process, thread, &format!("thread {thread} (python)")),
        ];
        for stream in [MAIN_STREAM, SIDE_STREAM].map(u64::from) {
            events.push(write::named("thread_name", device, stream, &format!("stream {stream}")));
        }
        events
    }

    fn recorded(self) -> Recorded {
        let mut events = self.tracks();
        events.extend(self.events);
        let trace = write::file(Some(self.number), self.ranks, &self.group, &events);
        Recorded { trace, truth: self.truth }
    }
}
