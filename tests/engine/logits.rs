//! The logits of an independent engine (llama.cpp; bitnet.cpp for I2_S), batch and step by step.
//!
//! `tests/data/models` has a small set of its models and logits. The whole matrix runs when the
//! folder that they are from is there. The format is LGT1: `"LGT1"`, `u32` tokens, vocabulary,
//! greedy tokens and 0, the ids, and a row of logits after each token.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use brickscope::{BrickId, BrickProfiler, Phase};
use brickscope_engine::executor::Cpu;
use brickscope_engine::gguf::Gguf;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Backend, Kernels};

struct Reference {
    tokens: Vec<u32>,
    n_vocab: usize,
    greedy: Vec<u32>,
    logits: Vec<f32>,
}

fn read(path: &Path) -> Reference {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..4], b"LGT1");
    let words: Vec<[u8; 4]> =
        bytes[4..].chunks_exact(4).map(|word| word.try_into().unwrap()).collect();
    let number = |i: usize| u32::from_le_bytes(words[i]);
    let (n_tokens, n_vocab, n_greedy) =
        (number(0) as usize, number(1) as usize, number(2) as usize);
    let ids = |from: usize, n: usize| (from..from + n).map(number).collect::<Vec<_>>();
    let logits = words[4 + n_tokens + n_greedy..].iter().map(|w| f32::from_le_bytes(*w)).collect();
    Reference { tokens: ids(4, n_tokens), n_vocab, greedy: ids(4 + n_tokens, n_greedy), logits }
}

/// How far apart two sets of logits are.
struct Distance {
    max: f32,
    mean_kl: f64,
    /// Rows whose first choice differs although the reference is sure of it.
    wrong: Vec<usize>,
}

fn distance(ours: &[f32], reference: &Reference) -> Distance {
    let rows = || {
        ours.chunks_exact(reference.n_vocab).zip(reference.logits.chunks_exact(reference.n_vocab))
    };
    assert_eq!(ours.len(), reference.logits.len());
    let max = ours.iter().zip(&reference.logits).map(|(a, b)| (a - b).abs()).fold(0.0, |max, d| {
        // A NaN must not be lost in a comparison.
        if d > max || d.is_nan() { d } else { max }
    });
    let mean_kl =
        rows().map(|(ours, theirs)| kl(theirs, ours)).sum::<f64>() / reference.tokens.len() as f64;
    let wrong = rows()
        .enumerate()
        .filter(|(_, (ours, theirs))| {
            let (first, gap) = top(theirs);
            gap > 0.3 && top(ours).0 != first
        })
        .map(|(row, _)| row)
        .collect();
    Distance { max, mean_kl, wrong }
}

/// The most likely token, and its lead over the second.
fn top(row: &[f32]) -> (usize, f32) {
    // Of equals the first.
    let is_above = |a: usize, b: usize| row[a].total_cmp(&row[b]).is_gt();
    let (mut first, mut second) = if is_above(1, 0) { (1, 0) } else { (0, 1) };
    for token in 2..row.len() {
        if is_above(token, first) {
            (first, second) = (token, first);
        } else if is_above(token, second) {
            second = token;
        }
    }
    (first, row[first] - row[second])
}

/// The Kullback–Leibler divergence of the softmax of `q` from that of `p`.
fn kl(p: &[f32], q: &[f32]) -> f64 {
    let log_softmax = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|&l| f64::from(l - max).exp()).sum();
        row.iter().map(|&l| f64::from(l - max) - sum.ln()).collect::<Vec<_>>()
    };
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// A session on any executor.
trait Runs {
    /// Forgets all tokens.
    fn begin_anew(&mut self);
    fn forward(&mut self, token: u32) -> Vec<f32>;
    fn all_logits(&mut self, tokens: &[u32]) -> Vec<f32>;
}

impl Runs for Session<'_> {
    fn begin_anew(&mut self) {
        self.truncate(0);
    }

    fn forward(&mut self, token: u32) -> Vec<f32> {
        self.forward(&[token]).unwrap().to_vec()
    }

    fn all_logits(&mut self, tokens: &[u32]) -> Vec<f32> {
        self.all_logits(tokens).unwrap()
    }
}

/// Checks a model against its references, in one batch and token by token, on `backend`: with weights as they are in
/// the file, and with interleaved rows, which all backends read.
fn check(folder: &Path, name: &str, backend: Backend, threads: usize) {
    let Ok(kernels) = Kernels::new(backend) else {
        println!("skipped: no {backend} here");
        return;
    };
    let threads = NonZeroUsize::new(threads).unwrap();
    let open: &Open = &move |model, context| {
        let cpu = Cpu::new(kernels, threads).unwrap();
        Some(Box::new(Session::new(model, cpu, context).unwrap()))
    };
    let path = folder.join(format!("{name}.gguf"));
    check_on(folder, name, backend.name(), &Model::open(&path).unwrap(), open);
    let Ok(avx512) = Kernels::new(Backend::Avx512) else { return };
    let gguf = Gguf::from_bytes(fs::read(&path).unwrap(), &path).unwrap();
    let mut model = Model::from_gguf(gguf).unwrap();
    if model.interleave(avx512, threads, &mut |_, _| ()).is_some() {
        check_on(folder, name, &format!("{backend}, interleaved"), &model, open);
    }
}

/// A session of a model and a context; `None` where there is nothing to run it on.
type Open = dyn for<'m> Fn(&'m Model, usize) -> Option<Box<dyn Runs + 'm>>;

/// As [`check`], of a model on what `open` makes.
fn check_on(folder: &Path, name: &str, backend: &str, model: &Model, open: &Open) {
    // Of I2_S there is one file only.
    let files: &[(&str, bool)] = match name.contains("I2_S") {
        true => &[("logits.bin", false)],
        false => &[("logits.bin", false), ("step.logits.bin", true)],
    };
    let references: Vec<Reference> =
        files.iter().map(|(file, _)| read(&folder.join(format!("{name}.{file}")))).collect();
    let context = references.iter().map(|of| of.tokens.len() + of.greedy.len()).max().unwrap();
    // One for both: a device compiles all its kernels for each.
    let Some(mut session) = open(model, context) else { return };
    for (&(file, steps), reference) in files.iter().zip(&references) {
        session.begin_anew();
        let logits = if steps {
            let step = |token| session.forward(token);
            reference.tokens.iter().copied().flat_map(step).collect()
        } else {
            session.all_logits(&reference.tokens)
        };
        let found = distance(&logits, reference);
        let tied = ["l3", "qwen3", "bitnet"].iter().any(|part| name.contains(part));
        let what = format!(
            "{name} {file} on {backend}: max |d| {:.2e}, mean KL {:.2e}, wrong {:?}",
            found.max, found.mean_kl, found.wrong
        );
        println!("{what}");
        if name.ends_with("f32") {
            assert!(found.max < 1e-4, "{what}");
        } else if name.ends_with("F16") {
            assert!(found.max < 1e-2, "{what}");
        } else {
            assert!(found.mean_kl < if tied { 5e-3 } else { 2e-3 }, "{what}");
        }
        assert!(found.wrong.is_empty(), "{what}");
        if (name.ends_with("f32") || name.ends_with("F16")) && !steps {
            let mut greedy = Vec::new();
            for _ in 0..reference.greedy.len() {
                let row = &logits[logits.len() - reference.n_vocab..];
                let last = greedy.last().map(|&token| session.forward(token));
                greedy.push(top(last.as_deref().unwrap_or(row)).0 as u32);
            }
            assert_eq!(greedy, reference.greedy, "{name}: the greedy continuation");
        }
    }
}

fn models(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "gguf"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/models")
}

#[test]
fn logits_of_the_models_in_the_repository_agree_on_every_backend() {
    let names = models(&fixtures());
    assert!(names.len() >= 5, "the fixtures are missing: {names:?}");
    for name in names {
        check(&fixtures(), &name, Backend::Scalar, 1);
        check(&fixtures(), &name, Backend::Avx2, 1);
        check(&fixtures(), &name, Backend::Avx512, 1);
        check(&fixtures(), &name, Backend::Neon, 1);
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let model = Model::open(&fixtures().join("tiny-Q4_K_M.gguf")).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 512).collect();
    let run = |threads| {
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(threads).unwrap()).unwrap();
        Session::new(&model, cpu, 64).unwrap().all_logits(&tokens).unwrap()
    };
    assert_eq!(run(1), run(2));
    assert_eq!(run(1), run(3));
}

#[test]
fn a_profiled_pass_computes_the_same_bits_and_tells_of_every_layer() {
    let model = Model::open(&fixtures().join("tiny-Q4_K_M.gguf")).unwrap();
    let tokens: Vec<u32> = (0..150).map(|i| i * 7 % 512).collect();
    let session = || {
        let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(2).unwrap()).unwrap();
        Session::new(&model, cpu, 160).unwrap()
    };
    let (mut plain, mut profiled) = (session(), session());
    let profiler = BrickProfiler::enabled();
    for input in [&tokens[..], &[9], &[11]] {
        let expected = plain.forward(input).unwrap().to_vec();
        assert_eq!(profiled.forward_profiled(&profiler, input).unwrap(), expected);
    }
    let profile = profiler.profile();
    assert_eq!(profile.check(), Ok(()));
    let passes: Vec<_> = profile.passes.iter().map(|p| (p.phase, p.tokens, p.position)).collect();
    let (prefill, decode) = (Phase::Prefill, Phase::Decode);
    let expected = [(prefill, 128, 0), (prefill, 22, 128), (decode, 1, 150), (decode, 1, 151)];
    assert_eq!(passes, expected);
    // Two layers in each of four passes, with a down projection each.
    assert_eq!(profile.spans.iter().filter(|span| span.name.is_none()).count(), 8);
    assert_eq!(profiler.brick_stats(BrickId::DownProjection).count, 8);
    assert_eq!(profiler.brick_stats(BrickId::LmHead).count, 3, "only where logits are used");
}

#[test]
fn going_back_and_on_again_gives_the_same_bits() {
    let model = Model::open(&fixtures().join("tiny-Q4_K_M.gguf")).unwrap();
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::new(2).unwrap()).unwrap();
    let mut session = Session::new(&model, cpu, 48).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 512).collect();
    session.forward(&tokens[..20]).unwrap();
    let profiler = BrickProfiler::enabled();
    let probe = session.profiled(&profiler);
    let first = session.forward(&[9]).unwrap().to_vec();
    for _ in 0..2 {
        session.truncate(20);
        assert_eq!(session.position(), 20);
        assert_eq!(session.forward_with(&probe, &[9]).unwrap(), first);
    }
    // Another token in its place leaves nothing of the one that was forgotten.
    session.truncate(20);
    assert_ne!(session.forward(&[10]).unwrap(), first);
    session.truncate(20);
    session.forward(&[9]).unwrap();
    let on = session.forward(&tokens[20..]).unwrap().to_vec();
    session.truncate(21);
    assert_eq!(session.forward(&tokens[20..]).unwrap(), on);
    // There are no more tokens than that to forget.
    session.truncate(1000);
    assert_eq!((session.position(), session.room()), (41, 7));
    let passes: Vec<u64> = profiler.profile().passes.iter().map(|pass| pass.position).collect();
    assert_eq!(passes, [20, 20]);
}

#[test]
fn all_shared_models_agree_where_their_folder_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let names = models(&folder);
    if names.is_empty() {
        println!("skipped: no {}", folder.display());
    }
    for name in names {
        check(&folder, &name, Backend::Avx2, 2);
        check(&folder, &name, Backend::Avx512, 2);
        check(&folder, &name, Backend::Neon, 2);
    }
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use brickscope_engine::{GpuError, GpuSession, Wgpu};

    use super::*;

    impl Runs for GpuSession<'_, Wgpu> {
        fn begin_anew(&mut self) {
            self.truncate(0);
        }

        fn forward(&mut self, token: u32) -> Vec<f32> {
            self.forward(&[token]).unwrap().to_vec()
        }

        fn all_logits(&mut self, tokens: &[u32]) -> Vec<f32> {
            self.all_logits(tokens).unwrap()
        }
    }

    fn open(model: &Model, context: usize) -> Option<Box<dyn Runs + '_>> {
        match Wgpu::new(model, context) {
            Ok(wgpu) => Some(Box::new(GpuSession::new(model, wgpu))),
            Err(why @ GpuError::NoDevice { .. })
                if std::env::var_os("BRICKSCOPE_NEEDS_WGPU").is_none() =>
            {
                println!("skipped: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    #[test]
    fn logits_agree_on_a_device() {
        for name in models(&fixtures()) {
            let model = Model::open(&fixtures().join(format!("{name}.gguf"))).unwrap();
            check_on(&fixtures(), &name, "wgpu", &model, &open);
        }
    }

    #[test]
    fn all_shared_models_agree_on_a_device() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        for name in models(&folder) {
            let model = Model::open(&folder.join(format!("{name}.gguf"))).unwrap();
            check_on(&folder, &name, "wgpu", &model, &open);
        }
    }
}
