//! `cargo bench -p brickscope-engine --bench load -- MODEL [ROUNDS] [PAUSE]`: the time to load a model, compared with a plain
//! read of its file into memory.
//!
//! Loading is everything before the first pass: the directory, the copy in large pages, interleaving rows. The two alternate,
//! read load load read, with a pause of PAUSE seconds before each. Without a pause, freed memory is reused at
//! once. With a few seconds, a virtual machine may have given its free memory back, and the time
//! includes getting it anew, in both arms alike.

use std::env;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use brickscope::PairedRatio;
use brickscope_engine::Model;
use brickscope_engine::gguf::Placement;
use brickscope_kernels::Kernels;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench` runs this");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> =
        args.iter().filter(|arg| !arg.starts_with("--")).map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let (&path, numbers) = words.split_first().ok_or("which model?")?;
    let number = |at: usize, default| numbers.get(at).map_or(Ok(default), |word| word.parse());
    let (rounds, pause) = (number(0, 5)?, Duration::from_secs(number(1, 0)?));
    let path = Path::new(path);
    // Brings the file into the system's cache.
    let bytes = read(path)?.1;
    println!(
        "{}: {} MB, {rounds} rounds, {} s apart",
        path.display(),
        bytes / 1_000_000,
        pause.as_secs()
    );
    println!(
        "{:>10} {:>10} {:>8} {:>12} {:>14}",
        "read", "load", "ratio", "of it copy", "side by side"
    );
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let next = || thread::sleep(pause);
        next();
        let (before, _) = read(path)?;
        next();
        let first = load(path)?;
        next();
        let second = load(path)?;
        next();
        let (after, _) = read(path)?;
        for (read, loaded) in [(before, first), (after, second)] {
            let Loaded { all, copy, arranged, in_large_pages } = loaded;
            let ratio = all.as_secs_f64() / read.as_secs_f64();
            let pages = in_large_pages.map_or(String::new(), |large| {
                format!("  {} MB in large pages", large / 1_000_000)
            });
            println!(
                "{read:>10.3?} {all:>10.3?} {ratio:>8.2} {copy:>12.3?} {arranged:>14.3?}{pages}"
            );
            pairs.push((read.as_secs_f64(), all.as_secs_f64()));
        }
    }
    match PairedRatio::new(&pairs) {
        Ok(ratio) => {
            let [middle, low, high] = [ratio.estimate, ratio.low, ratio.high].map(|r| r + 1.0);
            println!("load ÷ read {middle:.2} (95 % interval {low:.2} to {high:.2})");
        }
        Err(why) => println!("load ÷ read n/a: {why}"),
    }
    Ok(())
}

fn read(path: &Path) -> Result<(Duration, usize), Box<dyn Error>> {
    let start = Instant::now();
    let bytes = black_box(fs::read(path)?);
    Ok((start.elapsed(), bytes.len()))
}

struct Loaded {
    all: Duration,
    copy: Duration,
    arranged: Duration,
    in_large_pages: Option<u64>,
}

fn load(path: &Path) -> Result<Loaded, Box<dyn Error>> {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let start = Instant::now();
    let mut model = Model::load(path, &mut |_, _| ())?;
    model.interleave(Kernels::best(), threads, &mut |_, _| ());
    let all = start.elapsed();
    let Placement::Copied { took, in_large_pages } = model.gguf.placement() else {
        return Err("it wasn't copied: there are no large pages here, or too little memory".into());
    };
    let arranged = model.interleaved().map_or(Duration::ZERO, |done| done.took);
    black_box(&model);
    Ok(Loaded { all, copy: took, arranged, in_large_pages })
}
