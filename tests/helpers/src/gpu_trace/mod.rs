//! Traces of a GPU that nobody recorded, in the form of PyTorch's profiler, with the right answers beside
//! them: which layer each kernel is of, what it computes, and what is wrong with the run. A decode step is
//! mostly one CUDA graph, of whose kernels the file tells no layer; launched one by one, the same kernels have
//! the modules around their calls.
//!
//! ```text
//! let recorded = Recording::of(Net::dense(64)).record();
//! let profile = import(&recorded.trace);
//! // each kernel of recorded.truth.kernels
//! ```

mod nets;
mod run;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

pub use self::nets::{
    Kernel, Net, all_reduce, attention, experts, mlp, plain_norm, shared_expert, triton_attention,
};

/// The stream of a device that has most of its kernels.
pub const MAIN_STREAM: u32 = 7;

/// The stream of what runs beside them.
pub const SIDE_STREAM: u32 = 31;

/// Numbers that are the same on each machine: SplitMix64. <https://prng.di.unimi.it/splitmix64.c>
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Of a seed, always the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next one below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let drawn = self.draw();
        drawn.checked_rem(end).unwrap_or(0)
    }
}

/// What is wrong with a recorded run, or with its file. Kernels are counted from the first of their step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A brick of one layer takes this many percent of its time.
    SlowLayer {
        /// Which layer.
        layer: u16,
        /// Which of its bricks.
        brick: &'static str,
        /// More than 100.
        percent: u64,
    },
    /// What a rank computes by itself takes this many percent of its time, so all others wait for it.
    SlowRank {
        /// Which rank.
        rank: u32,
        /// More than 100.
        percent: u64,
    },
    /// The transfers of a group of ranks take this many percent of their time, on all of its ranks.
    SlowLink {
        /// Which group.
        group: u32,
        /// More than 100.
        percent: u64,
    },
    /// The profiler lost some kernels: they ran, and the file lacks them.
    Dropped {
        /// In which step.
        step: usize,
        /// The first of them.
        from: usize,
        /// How many.
        kernels: usize,
    },
    /// The file has a kernel that takes 11 days.
    Endless {
        /// In which step.
        step: usize,
        /// Which kernel.
        kernel: usize,
    },
    /// The file has a kernel at the time 0.
    Untimed {
        /// In which step.
        step: usize,
        /// Which kernel.
        kernel: usize,
    },
    /// The file has a kernel that begins before the one before it has ended.
    Early {
        /// In which step.
        step: usize,
        /// Which kernel.
        kernel: usize,
        /// By how much its begin is too early, in nanoseconds.
        ns: u64,
    },
}

/// Who launches kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Calls {
    /// CUDA, whose calls don't say what they launch.
    #[default]
    Cuda,
    /// HIP, whose calls have the kernel's name.
    Hip,
}

/// A run that is to be recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The model.
    pub net: Net,
    /// The requests of each step. One with another number of them than the first has products of other tiles.
    pub steps: Vec<u32>,
    /// The same seed makes the same file.
    pub seed: u64,
    /// By so many thousandths at most a kernel is faster or slower than its time, up to 1000.
    pub jitter: u64,
    /// How long a stream does nothing between two kernels, in nanoseconds.
    pub between_ns: u64,
    /// What the host does between two steps while the device waits for it, in nanoseconds.
    pub host_ns: u64,
    /// Whether each kernel is launched by a call of its own, in the module of its layer.
    pub is_eager: bool,
    /// Whose calls these are.
    pub calls: Calls,
    /// The ranks of a group, which add up their results together; 0 for all ranks.
    pub group: u32,
    /// By how much each rank's clock is ahead of the rank's before it, in nanoseconds.
    pub skew_ns: u64,
    /// What is wrong.
    pub planted: Vec<Planted>,
}

/// A trace, and what is true of it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The file.
    pub trace: String,
    /// The right answers.
    pub truth: Truth,
}

/// What is true of a trace. All times are those of the file, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Truth {
    /// Whose trace it is.
    pub rank: u32,
    /// How many layers the model has.
    pub layers: u16,
    /// When the first event of the file begins, but for one at the time 0.
    pub origin_ns: u64,
    /// The steps, in their order.
    pub steps: Vec<TrueStep>,
    /// The kernels and copies that the file has, in the order in which they were launched.
    pub kernels: Vec<TrueKernel>,
    /// Those that ran and that it lacks.
    pub dropped: Vec<TrueKernel>,
    /// What was planted.
    pub planted: Vec<Planted>,
}

/// A step of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrueStep {
    /// The name of its range.
    pub name: String,
    /// How many requests it has.
    pub requests: u32,
    /// When its range begins.
    pub start_ns: u64,
    /// How long that is.
    pub ns: u64,
}

/// A kernel or a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrueKernel {
    /// Its name.
    pub name: String,
    /// Its step, counted from 0.
    pub step: usize,
    /// Its layer; `None` for what comes before and after the layers.
    pub layer: Option<u16>,
    /// What it computes.
    pub brick: &'static str,
    /// Its stream.
    pub stream: u32,
    /// When it begins.
    pub start_ns: u64,
    /// How long it takes.
    pub ns: u64,
    /// For how much of that it waits for other ranks.
    pub waited_ns: u64,
    /// Whether a graph launched it.
    pub is_in_graph: bool,
    /// Whether it was launched in the range of its step.
    pub is_in_range: bool,
    /// Whether the file has impossible times for it. They are those here.
    pub is_odd: bool,
}

impl TrueKernel {
    /// When it ends.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.ns)
    }
}

impl Truth {
    /// The kernels with possible times.
    pub fn sound(&self) -> impl Iterator<Item = &TrueKernel> {
        self.kernels.iter().filter(|kernel| !kernel.is_odd)
    }

    /// How long each layer took in all steps together; under `None` what is in no layer.
    #[must_use]
    pub fn by_layer(&self) -> BTreeMap<Option<u16>, u64> {
        let mut sums: BTreeMap<_, u64> = BTreeMap::new();
        for kernel in self.sound() {
            *sums.entry(kernel.layer).or_default() += kernel.ns;
        }
        sums
    }

    /// How long each brick took in all steps together.
    #[must_use]
    pub fn by_brick(&self) -> BTreeMap<&'static str, u64> {
        let mut sums: BTreeMap<_, u64> = BTreeMap::new();
        for kernel in self.sound() {
            *sums.entry(kernel.brick).or_default() += kernel.ns;
        }
        sums
    }

    /// Begin and end on the device of what each step launched in its range.
    #[must_use]
    pub fn on_device(&self) -> Vec<(u64, u64)> {
        let of = |step: usize| {
            let own =
                || self.sound().filter(move |kernel| kernel.step == step && kernel.is_in_range);
            let begin = own().map(|kernel| kernel.start_ns).min().unwrap_or(0);
            (begin, own().map(TrueKernel::end_ns).max().unwrap_or(begin))
        };
        (0..self.steps.len()).map(of).collect()
    }

    /// How long the device did nothing between the kernels of each two steps.
    #[must_use]
    pub fn gaps_ns(&self) -> Vec<u64> {
        let of = |step: usize| {
            let end =
                self.sound().filter(|kernel| kernel.step < step).map(TrueKernel::end_ns).max();
            let begin = self.sound().filter(|kernel| kernel.step == step).map(|k| k.start_ns).min();
            begin.unwrap_or(0).saturating_sub(end.unwrap_or(0))
        };
        (1..self.steps.len()).map(of).collect()
    }
}

impl Recording {
    /// Of one step of 32 requests, with kernels up to 3 % faster or slower than they are said to be.
    #[must_use]
    pub fn of(net: Net) -> Self {
        Self {
            net,
            steps: vec![32],
            seed: 1,
            jitter: 30,
            between_ns: 700,
            host_ns: 60_000,
            is_eager: false,
            calls: Calls::Cuda,
            group: 0,
            skew_ns: 0,
            planted: Vec::new(),
        }
    }

    /// The same with steps of these numbers of requests.
    #[must_use]
    pub fn steps(self, steps: &[u32]) -> Self {
        Self { steps: steps.to_vec(), ..self }
    }

    /// The same with this planted, too.
    #[must_use]
    pub fn plant(mut self, planted: Planted) -> Self {
        self.planted.push(planted);
        self
    }

    /// The same, launched without a graph.
    #[must_use]
    pub fn eager(self) -> Self {
        Self { is_eager: true, ..self }
    }

    /// The trace of a run on one rank.
    #[must_use]
    pub fn record(&self) -> Recorded {
        self.ranks(1).swap_remove(0)
    }

    /// The traces of a run on so many ranks, one at least.
    #[must_use]
    pub fn ranks(&self, ranks: u32) -> Vec<Recorded> {
        run::play(self, ranks.max(1))
    }

    /// One trace of a run on so many devices, one at least, which the threads of one process drive, and what is true of each. It
    /// tells no ranks; each device does what a rank does.
    #[must_use]
    pub fn devices(&self, devices: u32) -> (String, Vec<Truth>) {
        run::together(self, devices.max(1))
    }

    /// The same run on so many devices as the SQL that makes Nsight's export of it: kernels alone, on streams that each device
    /// numbers by itself.
    #[must_use]
    pub fn nsight(&self, devices: u32) -> (String, Vec<Truth>) {
        let (_, truths) = self.devices(devices);
        (write::nsight(&truths), truths)
    }

    /// The trace of the capture of the first step's graph: the calls that launch its kernels, in their order
    /// and in their modules. No kernel runs.
    #[must_use]
    pub fn capture(&self) -> String {
        run::capture(self)
    }
}
