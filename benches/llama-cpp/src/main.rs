//! Compares brickscope's engine with llama.cpp, in turns, in one process; or with ik_llama.cpp, in a process of its own. At
//! the root of the repository:
//!
//! ```text
//! RUSTFLAGS="-Ctarget-cpu=native -Ctarget-cpu=x86-64" \
//!   cargo run --release --manifest-path benches/llama-cpp/Cargo.toml -- MODEL.gguf
//! ```
//!
//! llama.cpp's build reads the first of the two flags, and so is built for this CPU; rustc obeys the last, so our engine
//! is built as it is shipped.
//!
//! For ik_llama.cpp, in a clone of it that CMake built in `build`, compile `ik.c` and name the program by `--ik`:
//!
//! ```text
//! gcc -O2 -o ik ../brickscope/benches/llama-cpp/ik.c -Iinclude -Iggml/include \
//!   -Lbuild/src -lllama -Lbuild/ggml/src -lggml -Wl,-rpath,$PWD/build/src:$PWD/build/ggml/src
//! ```

mod figures;
mod ik;
mod llama;
mod memory;
mod table;
mod turns;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use brickscope::{Absent, LoadWatch};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Directory;
use brickscope_engine::{Model, Session, synth};
use brickscope_kernels::Kernels;
use clap::Parser;
use serde_json::json;

use crate::figures::Cell;
use crate::memory::Probe;
use crate::turns::{Arm, Engine, Ours, Turn};

/// Makes the tokens the same in every run.
const SEED: u64 = 1;

/// If other processes take a larger share of the machine's CPU time than this, the figures are unreliable.
const QUIET: f64 = 0.03;

/// Compare brickscope's engine with llama.cpp or ik_llama.cpp: prefill and decode of the same tokens, in turns.
///
/// The peer takes part twice, with and without repacking its weights; each line has the better of the two. The memory
/// read bandwidth of this machine, measured in every round, is printed as well.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  brickscope-bench-llama-cpp 1b-q4_k.gguf 1b-q8_0.gguf --threads 1,2 --rounds 10"
)]
struct Args {
    /// Model files.
    #[arg(required = true, value_name = "MODEL.gguf")]
    models: Vec<PathBuf>,

    /// Numbers of threads to measure, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<NonZeroUsize>,

    /// Rounds for each model and number of threads, with two turns per arm. Intervals need at least three.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(3..))]
    rounds: u16,

    /// Tokens to decode after the prompt.
    #[arg(long, default_value = "32")]
    tokens: NonZeroUsize,

    /// Tokens in the prompt.
    #[arg(long, default_value = "128")]
    prompt: NonZeroUsize,

    /// Compare with ik_llama.cpp instead, by the program that `ik.c` is compiled to.
    #[arg(long, value_name = "PROGRAM")]
    ik: Option<PathBuf>,

    /// Print all measurements as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let library = llama::Library::start();
    let built_with = match &args.ik {
        None => library.built_with(),
        Some(_) => BTreeSet::new(),
    };
    let missing = missing(&built_with);
    ensure!(
        missing.is_empty() || args.ik.is_some(),
        "llama.cpp was built without {}, which this CPU has, and is therefore slow. Build it with\n  \
         RUSTFLAGS=\"-Ctarget-cpu=native -Ctarget-cpu=x86-64\"",
        missing.join(", ")
    );
    // Find unreadable files before spending minutes on others.
    for path in &args.models {
        Model::open(path)?;
    }
    let load = LoadWatch::start();
    let models = args.models.iter().map(|path| measure(&library, path, args));
    let models = models.collect::<Result<Vec<_>>>()?;
    let load = match args.ik {
        Some(_) => Err(Absent {
            reason: "what other processes took is not known: the peer is one of them".to_owned(),
        }),
        None => load.and_then(|watch| watch.so_far()),
    };

    let machine = brickscope::machine::detect();
    let peer = match &args.ik {
        Some(program) => format!("ik_llama.cpp ({})", program.display().to_string().escape_debug()),
        None => format!("llama.cpp with ggml {}", library.version()),
    };
    let backend = Kernels::best().backend().name();
    if args.json {
        let (load, absent) = match load {
            Ok(load) => (Some(load), None),
            Err(Absent { reason }) => (None, Some(reason)),
        };
        let all = json!({
            "machine": machine,
            "peer": { "version": peer, "built_with": args.ik.is_none().then_some(built_with) },
            "ours": { "backend": backend },
            "prompt": args.prompt,
            "tokens": args.tokens,
            "rounds": args.rounds,
            "load_by_others": { "measured": load, "absent": absent },
            "models": table::json(&models),
        });
        println!("{all:#}");
        return Ok(());
    }
    let cpu = machine.cpu.as_deref().unwrap_or("unnamed processor");
    let cpus = machine.logical_cpus.map_or_else(String::new, |n| format!(", {n} CPUs"));
    println!("{cpu}{cpus}, {} {}", machine.os, machine.arch);
    println!("{peer}, compared with brickscope's engine on {backend}");
    println!(
        "prompts of {} tokens, {} decoded after each; {} rounds of two turns per arm",
        args.prompt, args.tokens, args.rounds
    );
    if args.ik.is_none() {
        println!(
            "llama.cpp is built with {}",
            built_with.into_iter().collect::<Vec<_>>().join(" ")
        );
    }
    match load {
        Ok(load) => {
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            let steal = load.steal_share().map_or_else(|| "an unknown share".to_owned(), percent);
            println!(
                "other processes took {} of the machine's CPU time, its hypervisor {steal}{}",
                percent(load.others_share()),
                if load.others_share() > QUIET { ": repeat this on an idle machine" } else { "" }
            );
        }
        Err(Absent { reason }) => println!("{reason}"),
    }
    print!("\n{}", table::text(&models));
    Ok(())
}

/// Measures all turns of a model.
fn measure(library: &llama::Library, path: &Path, args: &Args) -> Result<table::Model> {
    let name = path.display().to_string();
    let say = |what: &str| eprintln!("{}: {what}", name.escape_debug());
    say("loading it");
    let mut ours = Model::load(path, &mut |_, _| ())?;
    // As the command does, and llama.cpp when it repacks.
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    ours.interleave(Kernels::best(), threads, &mut |_, _| ());
    let load = |repacked| match &args.ik {
        Some(_) => Ok(None),
        None => llama::Model::load(library, path, repacked).map(Some),
    };
    let [repacked, plain] = [load(true)?, load(false)?];

    let n_tokens = [args.prompt.get(), args.tokens.get()];
    let room = n_tokens[0].saturating_add(n_tokens[1]);
    let limit = ours.config.context_length;
    ensure!(room <= limit, "{name}: the model is made for {limit} tokens, but this takes {room}");
    let tokens = synth::random_tokens(&ours.tokenizer, SEED, room);
    ensure!(tokens.len() == room, "{name}: there are no tokens in its vocabulary");
    let (prompt, answer) = tokens.split_at(n_tokens[0]);

    let mut cells = Vec::new();
    for &threads in &args.threads {
        let cpu = Cpu::new(Kernels::best(), threads).context("threads for our engine")?;
        let mut ours = Ours::new(Session::new(&ours, cpu.clone(), room)?);
        let peer = |model, repacked| peer(model, args.ik.as_deref(), path, threads, room, repacked);
        let [mut repacked, mut plain] = [peer(&repacked, true)?, peer(&plain, false)?];
        let probe = Probe::new(&cpu);
        let mut turns: [Vec<Turn>; 3] = Default::default();
        let mut bandwidth = Ok(Vec::new());
        for round in 0..usize::from(args.rounds) {
            say(&format!("threads: {threads}, round {} of {}", round + 1, args.rounds));
            for arm in Arm::round(round) {
                let engine: &mut dyn Engine = match arm {
                    Arm::Repacked => &mut *repacked,
                    Arm::Plain => &mut *plain,
                    Arm::Ours => &mut ours,
                };
                turns[arm as usize]
                    .push(Turn::take(engine, prompt, answer, &|| probe.bytes_per_second())?);
            }
            if let Ok(rates) = &mut bandwidth {
                match brickscope::machine::measure_ceilings(cpu.kernels, cpu.pool()) {
                    Ok(ceilings) => rates.push(ceilings.read_bytes_per_second),
                    Err(Absent { reason }) => bandwidth = Err(reason),
                }
            }
        }
        let cell = Cell::new(threads.get(), &turns, n_tokens, bandwidth);
        cells.push(cell.with_context(|| name.clone())?);
    }
    Ok(table::Model {
        parameters: ours.n_parameters(),
        quantization: ours.quantization(),
        bytes: bytes_per_token(&ours.gguf),
        file: name,
        cells,
    })
}

/// A context of llama.cpp for `model`, or else `ik`'s.
fn peer<'m>(
    model: &'m Option<llama::Model<'_>>,
    ik: Option<&Path>,
    path: &Path,
    threads: NonZeroUsize,
    room: usize,
    repacked: bool,
) -> Result<Box<dyn Engine + 'm>> {
    Ok(match (model, ik) {
        (Some(model), _) => Box::new(llama::Context::new(model, threads, room)?),
        (None, Some(ik)) => {
            let context = ik::Context::new(ik, path, threads, room, repacked)?;
            let missing = missing(&llama::set(&context.built_with));
            ensure!(missing.is_empty(), "ik_llama.cpp was built without {}", missing.join(", "));
            Box::new(context)
        }
        (None, None) => unreachable!("llama.cpp has loaded the model where there is no `ik`"),
    })
}

/// Bytes of the matrices that a token reads: all of them, except that only one row counts of an embedding that isn't
/// also the head.
fn bytes_per_token(file: &Directory) -> usize {
    let is_tied = file.tensor("output.weight").is_none();
    let matrices = file.tensors.iter().filter(|tensor| tensor.dims.len() > 1);
    let read = matrices.map(|tensor| match &*tensor.name {
        "token_embd.weight" if !is_tied => tensor.n_bytes / tensor.n_rows(),
        _ => tensor.n_bytes,
    });
    read.sum()
}

/// Features of this CPU that llama.cpp has kernels for but wasn't built with, by llama.cpp's names.
fn missing(built_with: &BTreeSet<String>) -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let has = [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("F16C", is_x86_feature_detected!("f16c")),
        ("AVX512", is_x86_feature_detected!("avx512f")),
        ("AVX512_VBMI", is_x86_feature_detected!("avx512vbmi")),
        ("AVX512_VNNI", is_x86_feature_detected!("avx512vnni")),
        ("AVX512_BF16", is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(target_arch = "aarch64")]
    let has = [("DOTPROD", std::arch::is_aarch64_feature_detected!("dotprod"))];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has: [(&str, bool); 0] = [];
    has.iter().filter(|(name, has)| *has && !built_with.contains(*name)).map(|&(n, _)| n).collect()
}
