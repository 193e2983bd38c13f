use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use brickscope::{BrickProfiler, SyncMode};
use brickscope_kernels::{Backend, Kernels as CpuKernels};

use super::*;
use crate::executor::Cpu;
use crate::executor::gpu::GpuSession;
use crate::session::Session;

/// A device, or a line that says why a test is skipped.
fn open(model: &Model, context: usize) -> Option<Wgpu> {
    match Wgpu::new(model, context) {
        Ok(wgpu) => Some(wgpu),
        Err(why @ GpuError::NoDevice { .. })
            if std::env::var_os("BRICKSCOPE_NEEDS_WGPU").is_none() =>
        {
            eprintln!("skipped: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models");
    let files = std::fs::read_dir(folder).expect("it is there").map(|f| f.expect("a file").path());
    let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == "gguf")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn passes_agree_with_the_cpu() {
    for path in models() {
        let model = Model::open(&path).expect("a model");
        let Some(wgpu) = open(&model, 64) else { return };
        let kernels = CpuKernels::new(Backend::Scalar).expect("scalar");
        let cpu = Cpu::new(kernels, NonZeroUsize::MIN).expect("a thread");
        let mut host = Session::new(&model, cpu, 64).expect("it fits");
        let mut device = GpuSession::new(&model, wgpu);
        let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 512).collect();
        let mut hold = |tokens: &[u32], position| {
            host.truncate(position);
            device.truncate(position);
            let expected = host.forward(tokens).expect("they fit");
            let found = device.forward(tokens).expect("they fit");
            let far = expected.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{}: {} tokens at {position}: {far:.1e}", path.display(), tokens.len());
            assert!(far < 1e-2, "{}: {} tokens at {position}: {far}", path.display(), tokens.len());
        };
        hold(&tokens, 0);
        hold(&[9], 40);
        hold(&[11], 41);
        hold(&tokens[..7], 42);
        hold(&[12], 20);
        hold(&tokens[..33], 21);
    }
}

#[test]
fn a_profiled_run() {
    let model = Model::open(&models()[0]).expect("a model");
    for mode in SyncMode::ALL {
        let Some(wgpu) = open(&model, 64) else { return };
        let mut session = GpuSession::new(&model, wgpu);
        let profiler = BrickProfiler::enabled();
        profiler.set_sync_mode(mode);
        let mut probe = session.profiled(&profiler).expect("a clock");
        session.forward_with(&mut probe, &[1, 2, 3]).expect("they fit");
        for i in 0..10 {
            session.forward_with(&mut probe, &[4 + i]).expect("it fits");
        }
        session.finish(probe).expect("the clock is there");
        let profile = profiler.profile();
        profile.check().expect("it adds up");
        println!("{mode:?}: {:?} {:?}", profile.devices[0].alignment, profile.devices[0].ticks);
        let gpu = profile.on_device(0, 0).expect("a stream");
        gpu.check().expect("it adds up");
        println!("{}", brickscope::view::report(&gpu));
    }
}
