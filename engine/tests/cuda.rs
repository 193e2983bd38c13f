//! The CUDA executor where there is no GPU: its own code on a driver that allows no illegal call
//! (`engine/fake-cuda/`), with the CUDA kernels' sources run on the CPU.
//!
//! The driver is loaded by its name when a program first asks for it, so each test runs itself once more,
//! as a process that finds the fake one.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use brickscope::{BrickProfiler, Phase, Profile, SyncMode};
use brickscope_engine::executor::Cpu;
use brickscope_engine::executor::cuda::{Cuda, CudaError, CudaOptions, Stamps};
use brickscope_engine::executor::gpu::GpuSession;
use brickscope_engine::{Model, Session};
use brickscope_kernels::{Backend, Kernels};

#[path = "../src/executor/cuda/kernels/shim.rs"]
#[allow(dead_code, reason = "what launches kernels one by one is for their own tests")]
mod shim;

const CHILD: &str = "BRICKSCOPE_CUDA_TEST_CHILD";

fn engine() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The fake driver's folder, in which it has the name that programs look for.
fn driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "brickscope-fake-cuda", "--manifest-path"])
            .arg(engine().join("fake-cuda/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status();
        assert!(built.is_ok_and(|status| status.success()), "the fake driver can't be built");
        let folder = target.join("driver");
        fs::create_dir_all(&folder).expect("a folder");
        // Whole under its name or not at all: other tests look for it at the same time.
        let own = folder.join(format!("{}.tmp", std::process::id()));
        for name in ["libcuda.so", "libcuda.so.1"] {
            fs::copy(target.join("debug/libfake_cuda.so"), &own).expect("it was built");
            fs::rename(&own, folder.join(name)).expect("a folder of ours");
        }
        folder
    })
}

/// Runs the test `name` once more, where the fake driver is found, with these settings of it.
fn run_again(name: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, name).env("LD_LIBRARY_PATH", driver()).envs(settings.iter().copied());
    command.output().expect("this program runs")
}

fn is_child(name: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|of| of == name)
}

/// Runs `body` in a process that finds the fake driver with the kernels of the CPU, if there are any, and
/// shows what it says.
fn on_the_fake_device(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let kernels = shim::built().map(|path| ("FAKE_CUDA_KERNELS", path.to_str().expect("a path")));
    let settings: Vec<_> = settings.iter().copied().chain(kernels).collect();
    let output = run_again(name, &settings);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}\n{err}");
    eprint!("{err}");
}

fn has_kernels() -> bool {
    std::env::var_os("FAKE_CUDA_KERNELS").is_some()
}

fn models() -> Vec<PathBuf> {
    let files = fs::read_dir(engine().join("tests/data/models")).expect("it is there");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "gguf"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn cpu() -> Cpu {
    Cpu::new(Kernels::new(Backend::Scalar).expect("everywhere"), NonZeroUsize::MIN).expect("a pool")
}

/// How far the device's logits may be from the CPU's: both add up the same products in F32, in another
/// order. I2_S and the ternary types are multiplied with activations of 8 bits on the CPU.
fn assert_close(device: &[f32], cpu: &[f32], what: &str) {
    assert_eq!(device.len(), cpu.len(), "{what}");
    for (index, (a, b)) in device.iter().zip(cpu).enumerate() {
        assert!((a - b).abs() <= 2e-2 * (1.0 + b.abs()), "{what}: logit {index}: {a} and {b}");
    }
}

#[test]
fn a_forward_pass_has_the_logits_of_the_cpu() {
    on_the_fake_device("a_forward_pass_has_the_logits_of_the_cpu", &[], || {
        for path in models() {
            let model = Model::open(&path).expect("a model");
            for graphs in [false, true] {
                let mut host = Session::new(&model, cpu(), 24).expect("a session");
                let options = CudaOptions { graphs, ..CudaOptions::default() };
                let cuda = Cuda::new(&model, 24, options).expect("the fake device");
                let mut device = GpuSession::new(&model, cuda);
                // A batch, single tokens, which replay a graph, and another batch.
                for tokens in [&[1, 5, 9, 2, 7, 3][..], &[4], &[6], &[8], &[3, 2, 1]] {
                    let expected = host.forward(tokens).expect("they fit");
                    let found = device.forward(tokens).expect("they fit");
                    if has_kernels() {
                        assert_close(found, expected, &format!("{}: {tokens:?}", path.display()));
                    }
                }
            }
        }
    });
}
