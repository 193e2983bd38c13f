//! What is planted, what should be named first, and the cure.

/// A bottleneck.
pub(crate) struct Plant {
    /// Its name on the command line and in the table.
    pub(crate) name: &'static str,
    /// The rule that should be named first; empty for a clean run, in which nothing should be.
    pub(crate) rule: &'static str,
    /// A brick that this finding has to name, if one is planted in.
    pub(crate) brick: Option<&'static str>,
    /// Rules that may not be named at all.
    pub(crate) never: &'static [&'static str],
    /// The command of the planted run, without where it is written. `@q8_0` is a model, and `@q8_0:small` the same with the
    /// size of its pages; `--prompt=*9` is a text of nine sentences; BRICKSCOPE, DEBUG, SLOW and PLANTED are programs.
    pub(crate) planted: &'static str,
    /// What comes before `brickscope try`, as it comes before the command of the planted run.
    pub(crate) around: &'static str,
    /// Numbers of threads to try before the findings are asked for.
    pub(crate) sweep: Option<&'static str>,
    /// Whether another process keeps a CPU busy.
    pub(crate) is_busy: bool,
    pub(crate) cure: Cure,
    /// Pairs of runs for the cure.
    pub(crate) pairs: usize,
}

/// What takes the bottleneck away.
pub(crate) enum Cure {
    /// The change that the finding names: `brickscope try RUN RULE`.
    Own,
    /// That with these words.
    Words(&'static str),
    /// That with `--on` and `--off`, where HELPER is the busy process.
    Switch(&'static str, &'static str),
    /// Another command of this program, in turns.
    Engine(&'static str),
    /// A command of this program that times passes with the plant and without it in turns, in one process: where what
    /// differs from process to process is more than what is gained. Two threads of `2/1` are beside one.
    Passes(&'static str),
}

impl Plant {
    /// Whether this program makes the run, and not `brickscope`.
    pub(crate) fn is_engine(&self) -> bool {
        self.planted.starts_with("PLANTED")
    }

    /// Which build of `brickscope` the planted run is of.
    pub(crate) fn program(&self) -> &'static str {
        let is_one = |word: &&str| ["DEBUG", "SLOW"].contains(word);
        self.planted.split_whitespace().find(is_one).unwrap_or("BRICKSCOPE")
    }
}

const PLAIN: Plant = Plant {
    name: "",
    rule: "",
    brick: None,
    never: &[],
    planted: "",
    around: "",
    sweep: None,
    is_busy: false,
    cure: Cure::Own,
    pairs: 8,
};

/// All of them; the clean ones last.
pub(crate) const PLANTS: &[Plant] = &[
    Plant {
        name: "few-threads",
        rule: "number-of-threads",
        planted: "BRICKSCOPE profile @1b --threads 1 --prompt=Hi --tokens 32",
        sweep: Some("2"),
        ..PLAIN
    },
    Plant {
        name: "many-threads",
        rule: "threads-share-a-cpu",
        planted: "BRICKSCOPE profile @q8_0 --threads 4 --prompt=Hi --tokens 64",
        ..PLAIN
    },
    Plant {
        name: "one-cpu",
        rule: "threads-share-a-cpu",
        // A thread without a core is slow whatever its kernel is.
        never: &["kernel-bound"],
        planted: "taskset -c 0 BRICKSCOPE profile @q8_0 --threads 2 --prompt=Hi --tokens 64",
        around: "taskset -c 0",
        cure: Cure::Switch(
            "taskset -apc 0,1 $PPID > /dev/null",
            "taskset -apc 0 $PPID > /dev/null",
        ),
        ..PLAIN
    },
    Plant {
        name: "other-load",
        rule: "other-programs",
        planted: "BRICKSCOPE profile @q8_0 --prompt=Hi --tokens 96",
        is_busy: true,
        cure: Cure::Switch("kill -STOP HELPER", "kill -CONT HELPER"),
        ..PLAIN
    },
    Plant {
        name: "large-weights",
        rule: "memory-roof",
        planted: "BRICKSCOPE profile @f16 --prompt=Hi --tokens 48",
        ..PLAIN
    },
    Plant {
        name: "long-context",
        rule: "long-context",
        planted: "BRICKSCOPE profile @q8_0 --prompt=*80 --tokens 32",
        cure: Cure::Words("-- --prompt=*40"),
        ..PLAIN
    },
    Plant {
        name: "unmapped",
        rule: "page-faults",
        planted: "PLANTED engine unmapped @q8_0 32",
        cure: Cure::Engine("PLANTED engine none @q8_0 32"),
        ..PLAIN
    },
    Plant {
        name: "small-pages",
        rule: "small-pages",
        planted: "BRICKSCOPE profile @f32 --threads 1 --small-pages --prompt=Hi --tokens 48",
        cure: Cure::Passes("PLANTED turns @f32:small @f32:large 1 32 1"),
        ..PLAIN
    },
    Plant {
        name: "slow-layer",
        rule: "slow-layer",
        planted: "BRICKSCOPE profile @slow --prompt=Hi --tokens 64",
        cure: Cure::Passes("PLANTED turns @slow:large @eight-layers:large 2 32 1"),
        ..PLAIN
    },
    Plant {
        name: "slow-sampler",
        rule: "slow-sampling",
        planted: "BRICKSCOPE profile @q8_0 --temperature 1 --top-k 0 --top-p 1 --prompt=Hi --tokens 64",
        ..PLAIN
    },
    Plant {
        name: "imbalance",
        rule: "threads-wait",
        planted: "BRICKSCOPE profile @three-heads --shares --prompt=*60 --tokens 32",
        cure: Cure::Passes("PLANTED turns @three-heads:large @two-heads:large 2/1 32 700"),
        ..PLAIN
    },
    Plant {
        name: "gaps",
        rule: "gaps-between-passes",
        planted: "PLANTED engine gaps @q8_0 48",
        cure: Cure::Engine("PLANTED engine none @q8_0 48"),
        ..PLAIN
    },
    Plant {
        name: "stalls",
        rule: "stalls",
        planted: "PLANTED engine stalls @q8_0 400",
        cure: Cure::Engine("PLANTED engine none @q8_0 400"),
        ..PLAIN
    },
    Plant {
        name: "slow-disk",
        rule: "disk-reads",
        planted: "PLANTED engine slow-disk @q8_0 24",
        cure: Cure::Engine("PLANTED engine none @q8_0 24"),
        ..PLAIN
    },
    Plant {
        name: "slow-kernel",
        rule: "kernel-bound",
        brick: Some("LmHead"),
        planted: "SLOW profile @q6_k-head --prompt=Hi --tokens 16",
        cure: Cure::Words("--program BRICKSCOPE"),
        ..PLAIN
    },
    Plant {
        name: "slow-in-cache",
        rule: "kernel-bound",
        brick: Some("DownProjection"),
        planted: "SLOW profile @small-q6_k --prompt=Hi --tokens 300",
        cure: Cure::Words("--program BRICKSCOPE"),
        ..PLAIN
    },
    Plant {
        name: "debug-build",
        rule: "debug-build",
        planted: "DEBUG profile @tiny --prompt=Hi --tokens 64",
        cure: Cure::Words("--program BRICKSCOPE"),
        ..PLAIN
    },
    Plant {
        name: "recording",
        rule: "profiling-cost",
        planted: "BRICKSCOPE profile @tiny --shares --tiles --prompt=Hi --tokens 500",
        pairs: 24,
        ..PLAIN
    },
    Plant {
        name: "clean-f16",
        planted: "BRICKSCOPE profile @f16 --prompt=Hi --tokens 64",
        ..PLAIN
    },
    Plant {
        name: "clean-f32",
        planted: "BRICKSCOPE profile @f32 --prompt=Hi --tokens 64",
        ..PLAIN
    },
    Plant {
        name: "clean-pinned",
        planted: "BRICKSCOPE profile @f16 --pin --prompt=Hi --tokens 64",
        ..PLAIN
    },
    Plant {
        name: "clean-sampled",
        planted: "BRICKSCOPE profile @f16 --temperature 1 --prompt=Hi --tokens 128",
        ..PLAIN
    },
    Plant { name: "clean-1b", planted: "BRICKSCOPE profile @1b --prompt=Hi --tokens 96", ..PLAIN },
];
