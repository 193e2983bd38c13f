//! The CUDA executor without a GPU: its own code on a driver that allows no illegal call
//! (`engine/fake-cuda/`), with the CUDA kernels' sources run on the CPU.
//!
//! A program loads the driver by name on first use, so each test runs itself again in a process that finds the
//! fake one.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use brickscope::{BrickId, BrickProfiler, Grain, LaunchKind, NameKind, Phase, Profile, SyncMode};
use brickscope_engine::executor::Cpu;
use brickscope_engine::executor::cuda::{
    self, Cuda, CudaError, CudaExecutor, CudaOptions, Cupti, CuptiError, CuptiRecords,
    KernelRecord, Stamps,
};
use brickscope_engine::executor::gpu::{Gpu, GpuSession, Operand};
use brickscope_engine::{Error, Model, Session};
use brickscope_kernels::{Backend, Kernels};
use brickscope_testing::cuda_shim as shim;
use brickscope_testing::fake_cuda;
use tempfile::{TempDir, TempPath};

const CHILD: &str = "BRICKSCOPE_CUDA_TEST_CHILD";

fn engine() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the test `name` again in a process that finds the fake driver, with these settings.
fn run_again(name: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&format!("cuda::{name}"), "--exact", "--nocapture", "--test-threads=1"]);
    command
        .env(CHILD, name)
        .env("LD_LIBRARY_PATH", fake_cuda::folder())
        .envs(settings.iter().copied());
    command.output().expect("this program runs")
}

fn is_child(name: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|of| of == name)
}

/// Runs `body` in a process that finds the fake driver, with kernels that do nothing, and prints its output.
fn on_the_fake_device(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let output = run_again(name, settings);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}\n{err}");
    eprint!("{err}");
}

/// The same with the kernels run on the CPU; skipped if they can't be compiled.
fn with_kernels(name: &str, body: impl FnOnce()) {
    let Some(kernels) = shim::built() else { return };
    let kernels = kernels.to_str().expect("a path");
    on_the_fake_device(name, &[("FAKE_CUDA_KERNELS", kernels)], body);
}

fn models() -> Vec<PathBuf> {
    let files = fs::read_dir(engine().join("../data/models")).expect("it is there");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "gguf"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn cpu() -> Cpu {
    Cpu::new(Kernels::new(Backend::Scalar).expect("everywhere"), NonZeroUsize::MIN).expect("a pool")
}

/// Both add up the same products in F32, in different order, with the same formats of weights or lossless ones:
/// at most 7e-6 apart when this was written.
fn assert_close(device: &[f32], cpu: &[f32], what: &str) {
    assert_eq!(device.len(), cpu.len(), "{what}");
    for (index, (a, b)) in device.iter().zip(cpu).enumerate() {
        assert!((a - b).abs() <= 5e-5 * (1.0 + b.abs()), "{what}: logit {index}: {a} and {b}");
    }
}

#[test]
fn a_forward_pass_has_the_logits_of_the_cpu() {
    with_kernels("a_forward_pass_has_the_logits_of_the_cpu", || {
        for path in models() {
            let model = Model::open(&path).expect("a model");
            for graphs in [false, true] {
                let mut host = Session::new(&model, cpu(), 24).expect("a session");
                let options = CudaOptions { graphs, ..CudaOptions::default() };
                let cuda = Cuda::new(&model, 24, options).expect("the fake device");
                let mut device = GpuSession::new(&model, cuda);
                // A batch, single tokens, which replay a graph, and another batch.
                for tokens in [&[1, 5, 9][..], &[4], &[6], &[3, 2]] {
                    let expected = host.forward(tokens).expect("they fit");
                    let found = device.forward(tokens).expect("they fit");
                    assert_close(found, expected, &format!("{}: {tokens:?}", path.display()));
                }
            }
        }
    });
}

/// The first model, with names for what is on the device.
fn model() -> Model {
    Model::open(&models()[0]).expect("a model")
}

/// The calls made so far.
struct Calls(Vec<String>);

impl Calls {
    fn so_far() -> Self {
        let path = std::env::var_os("FAKE_CUDA_LOG").expect("the test sets it");
        let text = fs::read_to_string(path).expect("the driver writes it");
        Self(text.lines().map(str::to_owned).collect())
    }

    fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|call| *call == name).count()
    }

    /// The number of calls to `name` that `run` makes.
    fn during(name: &str, run: impl FnOnce()) -> usize {
        let before = Self::so_far().count(name);
        run();
        Self::so_far().count(name) - before
    }
}

/// An empty file for the log of the test `name`.
fn log(name: &str) -> TempPath {
    let mut file = tempfile::Builder::new();
    let file = file.prefix(name).suffix(".calls").tempfile_in(env!("CARGO_TARGET_TMPDIR"));
    file.expect("a file").into_temp_path()
}

#[test]
fn how_often_is_waited_is_what_the_mode_says() {
    let name = "how_often_is_waited_is_what_the_mode_says";
    let log = log(name);
    on_the_fake_device(name, &[("FAKE_CUDA_LOG", log.to_str().expect("a path"))], || {
        let model = model();
        let n_layers = model.config.n_layers;
        for graphs in [false, true] {
            // Timing waits for events; the logits are read back by waiting for the stream.
            let waits = |mode: SyncMode| {
                let profiler = BrickProfiler::enabled();
                profiler.set_sync_mode(mode);
                let options = CudaOptions { graphs, sample_every: 1, ..CudaOptions::default() };
                let cuda = Cuda::new(&model, 24, options).expect("the fake device");
                let mut session = GpuSession::new(&model, cuda);
                let mut probe = session.profiled(&profiler).expect("a clock");
                session.forward_with(&mut probe, &[1, 5, 9]).expect("they fit");
                session.forward_with(&mut probe, &[2]).expect("it fits");
                let mut reads = 0;
                let waits = Calls::during("cuEventSynchronize", || {
                    reads = Calls::during("cuStreamSynchronize", || {
                        session.forward_with(&mut probe, &[4]).expect("it fits");
                    });
                });
                assert_eq!(reads, 1, "{mode:?}: the logits are read back once");
                session.finish(probe).expect("a clock");
                let profile = profiler.profile();
                profile.check().expect("it adds up");
                let gpu = profile.on_device(0, 0).expect("a stream");
                gpu.check().expect("it adds up");
                let passes = gpu.passes.iter().filter(|pass| pass.phase == Phase::Decode);
                let last = passes.map(|pass| pass.serial).max();
                let is_brick = |name: u16| gpu.names[usize::from(name)].kind == NameKind::Brick;
                let spans = gpu.spans.iter().filter(|span| span.pass == last && last.is_some());
                (waits, spans.filter(|span| span.name.is_some_and(is_brick)).count())
            };
            let (n_waits, n_bricks) = waits(SyncMode::Immediate);
            assert!(n_bricks > 5 * n_layers, "{n_bricks}");
            assert_eq!(n_waits, n_bricks, "graphs: {graphs}");
            // What is before the layers and after them is waited for, too.
            assert_eq!(waits(SyncMode::PerLayer), (n_layers + 2, 0), "graphs: {graphs}");
            // The times come with the logits, which are waited for anyway.
            assert_eq!(waits(SyncMode::Deferred), (0, n_bricks), "graphs: {graphs}");
            assert_eq!(waits(SyncMode::None), (0, 0), "graphs: {graphs}");
        }
    });
}

#[test]
fn a_deferred_pass_that_nobody_reads_is_waited_for_once() {
    let name = "a_deferred_pass_that_nobody_reads_is_waited_for_once";
    let log = log(name);
    // The device takes its time for events, so it isn't done when they are asked for; its clock, which only calls move, must
    // not be ahead of the host's by so much that the two aren't believed.
    let settings =
        [("FAKE_CUDA_LOG", log.to_str().expect("a path")), ("FAKE_CUDA_EVENT_NS", "100000")];
    on_the_fake_device(name, &settings, || {
        let (model, profiler) = (model(), BrickProfiler::enabled());
        // Kernels of the fake device note their times when they are issued.
        let options = CudaOptions { stamps: Stamps::Events, ..CudaOptions::default() };
        let mut executor =
            CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
        executor.set_profiler_sync_mode(SyncMode::Deferred);
        let waits = Calls::during("cuEventSynchronize", || {
            for brick in [BrickId::RmsNorm, BrickId::QkvProjection, BrickId::LmHead] {
                let timer = executor.start_brick_id(brick);
                executor.stop_brick_id(timer, 64).expect("the device is there");
            }
            executor.settle().expect("the device is there");
        });
        assert_eq!(waits, 1);
        let profile = executor.profiler().profile();
        let gpu = profile.on_device(0, 0).expect("a stream");
        gpu.check().expect("it adds up");
        let bricks = gpu.bricks(Some(Phase::Decode));
        assert_eq!(bricks.len(), 3);
        assert!(bricks.iter().all(|brick| brick.stats.total_elements == 64), "{bricks:?}");
    });
}

/// The duration of a kernel on the fake device: `kernel_ns` there.
fn kernel_ns(profile: &Profile, name: u16) -> u64 {
    let launch = profile.names[usize::from(name)].device.as_ref().expect("a device's kernel");
    let (x, y, z) = launch.grid;
    2_000 + 5 * u64::from(x) * u64::from(y) * u64::from(z)
}

/// Checks the kernels of these passes; returns their number.
fn assert_kernels_have_their_times(gpu: &Profile, passes: &[u32]) -> usize {
    let mut n_kernels = 0;
    for span in gpu.spans.iter().filter(|s| s.pass.is_some_and(|p| passes.contains(&p))) {
        let Some(name) = span.name else { continue };
        if gpu.names[usize::from(name)].kind == NameKind::Kernel {
            let known = kernel_ns(gpu, name);
            // Two times that are rounded from floats of milliseconds.
            assert!(span.duration_ns.abs_diff(known) <= 2, "{span:?}, {known}");
            n_kernels += 1;
        }
    }
    n_kernels
}

#[test]
fn a_graph_that_one_profiler_was_told_of_has_the_names_of_another() {
    let name = "a_graph_that_one_profiler_was_told_of_has_the_names_of_another";
    on_the_fake_device(name, &[], || {
        let model = model();
        let options = CudaOptions { sample_every: 1, ..CudaOptions::default() };
        let cuda = Cuda::new(&model, 24, options).expect("the fake device");
        let mut session = GpuSession::new(&model, cuda);
        for n_other_names in 0..3 {
            let profiler = BrickProfiler::enabled();
            for other in 0..n_other_names {
                profiler.kernel(&format!("other {other}"), None);
            }
            let mut probe = session.profiled(&profiler).expect("a clock");
            session.clear();
            for tokens in [&[1, 5][..], &[2], &[3]] {
                session.forward_with(&mut probe, tokens).expect("they fit");
            }
            session.finish(probe).expect("a clock");
            let gpu = profiler.profile().on_device(0, 0).expect("a stream");
            let decode = gpu.passes.iter().filter(|pass| pass.phase == Phase::Decode);
            let serials: Vec<u32> = decode.map(|pass| pass.serial).collect();
            assert_eq!(serials.len(), 2);
            assert!(assert_kernels_have_their_times(&gpu, &serials) > 0);
        }
    });
}

#[test]
fn kernels_inside_of_a_graph_have_their_own_times_and_every_second_pass_is_sampled() {
    let name = "kernels_inside_of_a_graph_have_their_own_times_and_every_second_pass_is_sampled";
    let log = log(name);
    on_the_fake_device(name, &[("FAKE_CUDA_LOG", log.to_str().expect("a path"))], || {
        let (model, profiler) = (model(), BrickProfiler::enabled());
        let options = CudaOptions { sample_every: 2, ..CudaOptions::default() };
        let mut executor =
            CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
        executor.forward(&[1, 5, 9]).expect("they fit");
        executor.forward(&[2]).expect("it fits");
        let launches = Calls::during("cuLaunchKernel", || {
            let graphs = Calls::during("cuGraphLaunch", || {
                for token in 3..8 {
                    executor.forward(&[token]).expect("it fits");
                }
            });
            assert_eq!(graphs, 5);
        });
        assert_eq!(launches, 0, "a graph is launched as a whole");
        executor.finish().expect("a clock");
        let profile = profiler.profile();
        let gpu = profile.on_device(0, 0).expect("a stream");
        gpu.check().expect("it adds up");
        let decode = gpu.phase(Phase::Decode).expect("passes");
        // Of six passes the first, the third and the fifth.
        assert_eq!(decode.passes, 3);
        assert_eq!(decode.unattributed_ns, 0, "nothing is between the nodes of a graph");
        let positions: Vec<u64> = gpu
            .passes
            .iter()
            .filter(|pass| pass.phase == Phase::Decode)
            .map(|pass| pass.position)
            .collect();
        assert_eq!(positions, [3, 5, 7]);
        let serials: Vec<u32> = gpu
            .passes
            .iter()
            .filter(|pass| pass.phase == Phase::Decode)
            .map(|pass| pass.serial)
            .collect();
        let n_kernels = assert_kernels_have_their_times(&gpu, &serials);
        assert!(n_kernels > 3 * 5 * model.config.n_layers, "{n_kernels}");
        // Kernels of prefill were launched one by one; those of a graph with it, at one moment each.
        let stream = &profile.devices[0].streams[0];
        let mut newest = 0;
        let mut n_launches = 0;
        for pass in &stream.passes {
            let launches = stream
                .launches
                .iter()
                .filter(|launch| stream.spans[launch.span as usize].pass == Some(pass.serial));
            let moments: BTreeSet<u64> = launches.clone().map(|launch| launch.issued_ns).collect();
            let (kind, n_moments) = match pass.phase {
                Phase::Prefill | Phase::Encode | Phase::Training => {
                    (LaunchKind::Issued, launches.clone().count())
                }
                Phase::Decode => (LaunchKind::Replayed, 1),
            };
            assert!(launches.clone().all(|launch| launch.kind == kind));
            assert!(moments.len() <= n_moments && moments.first() >= Some(&newest), "{moments:?}");
            newest = moments.last().copied().expect("it has kernels");
            n_launches += launches.count();
        }
        let kernels = gpu.spans.iter().filter(|span| {
            span.name.is_some_and(|name| gpu.names[usize::from(name)].kind == NameKind::Kernel)
        });
        assert_eq!((n_launches, stream.launches.len()), (kernels.count(), n_launches));
        // Each brick's sources are known, with registers and the grid.
        for name in gpu.names.iter().filter(|name| name.device.is_some()) {
            let device = name.device.as_ref().expect("looked for");
            let source = profile.ptx.lookup(device.ptx_hash).expect("it is registered");
            assert!(source.contains(&format!(".entry {}(", name.name)), "{name:?}");
            assert!(profile.ptx.lookup_path(device.ptx_hash).is_some(), "{name:?}");
            assert!(device.registers.is_some() && device.spill_bytes == Some(0), "{name:?}");
        }
    });
}

#[test]
fn a_graph_lasts_as_long_at_every_grain() {
    on_the_fake_device("a_graph_lasts_as_long_at_every_grain", &[], || {
        let model = model();
        let options = CudaOptions { sample_every: 1, ..CudaOptions::default() };
        let cuda = Cuda::new(&model, 24, options).expect("the fake device");
        let mut session = GpuSession::new(&model, cuda);
        let decode = |session: &mut GpuSession<'_, Cuda<'_>>, grain: Grain| {
            let profiler = BrickProfiler::enabled();
            let mut probe = session.profiled(&profiler).expect("a clock");
            probe.timer().set_grain(grain);
            session.clear();
            session.forward_with(&mut probe, &[1, 5, 9]).expect("they fit");
            for token in [2, 4] {
                session.forward_with(&mut probe, &[token]).expect("it fits");
            }
            session.finish(probe).expect("a clock");
            let gpu = profiler.profile().on_device(0, 0).expect("a stream");
            gpu.check().expect("it adds up");
            let walls = gpu.passes.iter().filter(|pass| pass.phase == Phase::Decode);
            let walls: Vec<u64> = walls.map(|pass| pass.wall_ns).collect();
            let layers = gpu.spans.iter().filter(|span| span.name.is_none()).count();
            (walls, layers)
        };
        let (kernels, n_layers) = decode(&mut session, Grain::Kernel);
        assert_eq!(kernels.len(), 2);
        for (grain, has_layers) in [
            (Grain::Brick, true),
            (Grain::Layer, true),
            (Grain::Pass, false),
            (Grain::Kernel, true),
        ] {
            let (walls, layers) = decode(&mut session, grain);
            assert_eq!(walls.len(), 2, "{grain:?}");
            for (wall, known) in walls.iter().zip(&kernels) {
                assert!(wall.abs_diff(*known) <= 8, "{grain:?}: {walls:?}, {kernels:?}");
            }
            assert_eq!(layers, if has_layers { n_layers } else { 0 }, "{grain:?}");
        }
    });
}

#[test]
fn events_can_take_the_times() {
    let name = "events_can_take_the_times";
    with_kernels(name, || {
        let (model, profiler) = (model(), BrickProfiler::enabled());
        let options =
            CudaOptions { stamps: Stamps::Events, sample_every: 1, ..CudaOptions::default() };
        let mut executor =
            CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
        for tokens in [&[1, 5, 9][..], &[2], &[4]] {
            executor.forward(tokens).expect("they fit");
        }
        executor.finish().expect("a clock");
        let gpu = profiler.profile().on_device(0, 0).expect("a stream");
        gpu.check().expect("it adds up");
        assert_eq!(gpu.phase(Phase::Decode).expect("passes").passes, 2);
        assert!(gpu.bricks(Some(Phase::Decode)).iter().all(|brick| brick.stats.total_ns > 0));
    });
}

#[test]
fn what_the_stamps_of_a_graph_cost_is_measured_in_turns() {
    let name = "what_the_stamps_of_a_graph_cost_is_measured_in_turns";
    on_the_fake_device(name, &[("FAKE_CUDA_EVENT_NS", "300")], || {
        let model = model();
        let cost = |stamps| {
            let options = CudaOptions { stamps, ..CudaOptions::default() };
            let mut cuda = Cuda::new(&model, 24, options).expect("the fake device");
            cuda.graph_cost(Grain::Brick, 3).expect("the device is there")
        };
        // That of the kernel that hands the times over.
        let inside = cost(Stamps::Inside);
        assert_eq!(inside.marks, inside.kernels + 1, "{inside:?}");
        assert!(inside.instrumented_ns.abs_diff(inside.plain_ns + 2_005) <= 16, "{inside:?}");
        let cost = cost(Stamps::Events);
        assert_eq!((cost.kernels, cost.marks), (inside.kernels, inside.marks), "{cost:?}");
        let events = 300 * cost.marks as u64;
        // Spans are floats of milliseconds, whose steps are 8 ns there.
        assert!(cost.instrumented_ns.abs_diff(cost.plain_ns + events) <= 16, "{cost:?}");
        assert_eq!(cost.ratio.expect("six pairs").pairs, 6);
    });
}

#[test]
fn the_graph_of_an_executor_has_the_bricks_of_the_device_and_the_copies_before_them() {
    let name = "the_graph_of_an_executor_has_the_bricks_of_the_device_and_the_copies_before_them";
    on_the_fake_device(name, &[], || {
        let (model, profiler) = (model(), BrickProfiler::enabled());
        profiler.enable_graph();
        let options = CudaOptions::default();
        let mut executor =
            CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
        executor.forward(&[1, 5, 9]).expect("they fit");
        executor.settle().expect("it is there");
        let graph = executor.profiler().execution_graph();
        assert!(graph.nodes_by_name("QkvProjection").count() >= model.config.n_layers);
        assert!(graph.kernel_nodes().count() > model.config.n_layers);
        assert!(graph.nodes().any(|node| node.is_transfer()));
        let (path, total) = graph.critical_path();
        assert!(path.iter().any(|&id| graph.node(id).is_some_and(|node| node.is_kernel())));
        let device = executor.profiler().profile().on_device(0, 0).expect("it timed a pass");
        assert!(total >= device.passes[0].wall_ns, "{total}");
        let categories = executor.profiler().category_stats();
        assert!(categories[..3].iter().all(|category| category.total_ns > 0), "{categories:?}");
    });
}

#[test]
fn copies_are_recorded_with_their_size_and_the_time_of_the_device() {
    on_the_fake_device(
        "copies_are_recorded_with_their_size_and_the_time_of_the_device",
        &[],
        || {
            let (model, profiler) = (model(), BrickProfiler::enabled());
            profiler.enable_graph();
            let options = CudaOptions::default();
            let mut executor =
                CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
            executor.forward(&[1, 5, 9]).expect("they fit");
            let graph = executor.profiler().execution_graph();
            let copies: Vec<_> = graph
                .nodes()
                .filter(|node| node.is_transfer())
                .map(|node| node.timing_ns())
                .collect();
            assert!(copies.len() > 7 * model.config.n_layers, "{}", copies.len());
            let names: Vec<_> = graph.nodes().map(|node| node.name()).collect();
            for what in ["tokens and position", "Logits"] {
                let found = names
                    .iter()
                    .filter(|name| name.ends_with(what) || name.contains(&format!("{what} →")));
                assert_eq!(found.count(), 1, "{what}: {names:?}");
            }
            assert!(graph.detect_ping_pong().is_empty(), "{:?}", graph.ping_pong_findings());
            // 1 µs, and a nanosecond for each ten bytes.
            assert!(copies.iter().all(|ns| ns.is_some_and(|ns| ns >= 1_000)), "{copies:?}");

            // There and back: what nobody changed in between need not have moved.
            let mut x = [0.0; 16];
            executor.session().gpu().write(Operand::X, 0, &x).expect("it is inside");
            executor.session().gpu().read(Operand::X, 0, &mut x).expect("it is inside");
            executor.forward(&[2]).expect("it fits");
            let found = executor.profiler().execution_graph().ping_pong_findings();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].bytes, found[0].times), (64, 1));
            assert!(found[0].total_ns.is_some(), "{found:?}");
        },
    );
}

#[test]
fn a_kernel_node_that_belongs_to_no_brick_fails_the_pass_and_is_named() {
    let name = "a_kernel_node_that_belongs_to_no_brick_fails_the_pass_and_is_named";
    on_the_fake_device(name, &[("FAKE_CUDA_STRAY_NODE", "1")], || {
        let model = model();
        let cuda = Cuda::new(&model, 24, CudaOptions::default()).expect("the fake device");
        let mut session = GpuSession::new(&model, cuda);
        session.forward(&[1, 5, 9]).expect("it is no graph");
        let error = session.forward(&[2]).expect_err("it is a graph").to_string();
        assert!(error.contains("belongs to no brick"), "{error}");
        assert!(error.contains("Node("), "{error}");
        // Without graphs the same device goes on.
        session.forward(&[2, 3]).expect("it is no graph");
    });
}

#[test]
fn a_device_lost_in_mid_run_loses_the_pass_in_flight_and_says_so() {
    let name = "a_device_lost_in_mid_run_loses_the_pass_in_flight_and_says_so";
    on_the_fake_device(name, &[("FAKE_CUDA_LOSE_AT", "250")], || {
        let (model, profiler) = (model(), BrickProfiler::enabled());
        let options = CudaOptions { sample_every: 1, ..CudaOptions::default() };
        let mut executor =
            CudaExecutor::new(&model, 24, options, &profiler).expect("the fake device");
        let mut n_passes = 0;
        let error = loop {
            match executor.forward(&[1]) {
                Ok(_) => n_passes += 1,
                Err(error) => break error,
            }
        };
        assert!(n_passes > 0);
        assert!(error.to_string().contains("lost"), "{error}");
        let again = executor.forward(&[1]).expect_err("it stays lost");
        assert!(again.to_string().contains("lost"), "{again}");
        let profile = profiler.profile();
        let [device] = &profile.devices[..] else { panic!("there is one") };
        assert_eq!(device.streams[0].passes.len(), n_passes);
        assert!(device.lost.is_some() && device.lost_passes <= 1, "{}", device.lost_passes);
        assert_eq!(device.unsettled_passes, 0);
    });
}

#[test]
fn a_device_without_room_is_said() {
    let name = "a_device_without_room_is_said";
    on_the_fake_device(name, &[("FAKE_CUDA_MEMORY", "100000")], || {
        let model = model();
        let error = Cuda::new(&model, 24, CudaOptions::default()).expect_err("it is small");
        assert!(matches!(error, CudaError::Memory { free: 100_000, .. }), "{error}");
    });
}

#[test]
fn no_device_is_one_line_and_no_panic() {
    let name = "no_device_is_one_line_and_no_panic";
    on_the_fake_device(name, &[("FAKE_CUDA_DEVICES", "0")], || {
        let (model, profiler) = (model(), BrickProfiler::new());
        let error = Cuda::new(&model, 24, CudaOptions::default()).expect_err("there is none");
        assert_eq!(error, CudaError::NoDevice { ordinal: 0, devices: 0 });
        let options = CudaOptions::default();
        let error = CudaExecutor::new(&model, 24, options, &profiler).expect_err("there is none");
        assert!(matches!(error, Error::Device(_)), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    });
}

/// Runs the test again in a process that searches `folder` first for libraries.
fn with_library_in(folder: &Path, name: &str) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .expect("this program runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
}

#[test]
fn a_driver_that_is_too_old_is_one_line_and_no_panic() {
    let name = "a_driver_that_is_too_old_is_one_line_and_no_panic";
    if is_child(name) {
        let error = Cuda::new(&model(), 24, CudaOptions::default()).expect_err("it has nothing");
        assert!(matches!(error, CudaError::TooOld { .. }), "{error}");
        return;
    }
    let folder = folder_of_empty("old-cuda", &["libcuda.so", "libcuda.so.1"]);
    with_library_in(folder.path(), name);
}

/// A folder with libraries of these names that have no functions.
fn folder_of_empty(name: &str, libraries: &[&str]) -> TempDir {
    let folder = TempDir::with_prefix_in(name, env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let source = folder.path().join("empty.rs");
    fs::write(&source, "").expect("a folder of ours");
    for library in libraries {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let built = Command::new(rustc)
            .args(["--crate-type=cdylib", "-o"])
            .arg(folder.path().join(library))
            .arg(&source)
            .status();
        assert!(built.is_ok_and(|status| status.success()), "rustc makes no library");
    }
    folder
}

#[test]
fn an_illegal_call_ends_the_program_with_a_sentence() {
    let name = "an_illegal_call_ends_the_program_with_a_sentence";
    if is_child(name) {
        return wait_in_a_capture();
    }
    let output = run_again(name, &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{err}");
    assert!(err.contains("fake CUDA driver: cuStreamSynchronize during a capture"), "{err}");
}

/// Calls that no program may make, by the driver's own functions.
#[allow(unsafe_code)]
fn wait_in_a_capture() {
    use std::ffi::{c_int, c_uint, c_void};
    use std::ptr::null_mut;

    type Handle = *mut c_void;
    // SAFETY: it is the fake driver, whose functions have these types.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").expect("the fake driver");
        let (mut context, mut stream): (Handle, Handle) = (null_mut(), null_mut());
        let init = driver.get::<unsafe extern "C" fn(c_uint) -> u32>(b"cuInit");
        assert_eq!(init.expect("it has it")(0), 0);
        let retain = driver
            .get::<unsafe extern "C" fn(*mut Handle, c_int) -> u32>(b"cuDevicePrimaryCtxRetain");
        assert_eq!(retain.expect("it has it")(&raw mut context, 0), 0);
        let set = driver.get::<unsafe extern "C" fn(Handle) -> u32>(b"cuCtxSetCurrent");
        assert_eq!(set.expect("it has it")(context), 0);
        let create =
            driver.get::<unsafe extern "C" fn(*mut Handle, c_uint) -> u32>(b"cuStreamCreate");
        assert_eq!(create.expect("it has it")(&raw mut stream, 1), 0);
        let begin =
            driver.get::<unsafe extern "C" fn(Handle, c_uint) -> u32>(b"cuStreamBeginCapture_v2");
        assert_eq!(begin.expect("it has it")(stream, 1), 0);
        let wait = driver.get::<unsafe extern "C" fn(Handle) -> u32>(b"cuStreamSynchronize");
        wait.expect("it has it")(stream);
    }
}

/// As [`on_the_fake_device`], with CUPTI.
fn with_cupti(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let library = fake_cuda::cupti();
    let settings = [&[("BRICKSCOPE_CUPTI", &*library)], settings].concat();
    on_the_fake_device(name, &settings, body);
}

/// Runs three tokens at once and `n` one by one from a graph while CUPTI records; returns the kernels per decode
/// pass.
fn decode(model: &Model, n: u32) -> usize {
    let profiler = BrickProfiler::enabled();
    let options = CudaOptions { sample_every: 1, ..CudaOptions::default() };
    let mut executor = CudaExecutor::new(model, 1 << 10, options, &profiler).expect("a device");
    executor.forward(&[1, 5, 9]).expect("they fit");
    for _ in 0..n {
        executor.forward(&[2]).expect("it fits");
    }
    executor.finish().expect("a clock");
    let gpu = profiler.profile().on_device(0, 0).expect("a stream");
    let last = gpu.passes.last().expect("a pass").serial;
    assert_kernels_have_their_times(&gpu, &[last])
}

/// Of a kernel of a graph: those of one launch, without the one that only notes the time.
fn launches(records: &CuptiRecords) -> Vec<Vec<&str>> {
    let mut launches: Vec<(u32, Vec<&str>)> = Vec::new();
    let is_step = |record: &&KernelRecord| record.graph_node.is_some() && &*record.name != "stamp";
    for record in records.kernels.iter().filter(is_step) {
        match launches.last_mut() {
            Some((launch, kernels)) if *launch == record.correlation => kernels.push(&record.name),
            _ => launches.push((record.correlation, vec![&record.name])),
        }
    }
    launches.into_iter().map(|(_, kernels)| kernels).collect()
}

#[test]
fn cupti_records_each_kernel_of_a_graph() {
    let name = "cupti_records_each_kernel_of_a_graph";
    if is_child(name) {
        let cupti = Cupti::start(1 << 16).expect("it is there");
        let before = cupti.now_ns().expect("a clock");
        let n_kernels = decode(&model(), 5);
        let after = cupti.now_ns().expect("a clock");
        let records = cupti.finish().expect("it hands them over");
        assert!(!records.has_gaps() && records.other_kinds > 0, "{records:?}");
        let launches = launches(&records);
        assert_eq!(launches.len(), 5);
        assert!(launches.iter().all(|kernels| kernels.len() == n_kernels), "{n_kernels}");
        assert!(launches.windows(2).all(|pair| pair[0] == pair[1]));
        // Those of the first pass were launched by themselves.
        assert!(records.kernels.len() > 5 * n_kernels);
        // In order, though buffers come from the last to the first.
        assert!(records.kernels.is_sorted_by_key(|record| record.start_ns));
        for record in &records.kernels {
            assert!(before <= record.start_ns && record.end_ns <= after, "{record:?}");
            assert!(record.duration_ns() >= 2_005, "{record:?}");
        }
        return;
    }
    // 12.0, 12.8, 12.9, 13.0, 13.1 and 13.5: records are of five lengths.
    for version in ["18", "26", "28", "130001", "130101", "130301", "130500"] {
        with_cupti(name, &[("FAKE_CUPTI_VERSION", version)], || unreachable!("it is a child's"));
    }
}

#[test]
fn a_version_of_cupti_that_nobody_looked_at_is_refused() {
    let name = "a_version_of_cupti_that_nobody_looked_at_is_refused";
    if is_child(name) {
        let error = Cupti::start(8).expect_err("it is not known");
        assert!(matches!(error, CuptiError::Version { .. }), "{error}");
        return;
    }
    for version in ["17", "29", "130600", "140000"] {
        with_cupti(name, &[("FAKE_CUPTI_VERSION", version)], || unreachable!("it is a child's"));
    }
}

#[test]
fn cupti_is_found_as_the_loader_finds_libraries() {
    let name = "cupti_is_found_as_the_loader_finds_libraries";
    if is_child(name) {
        let cupti = Cupti::start(8).expect("it is there");
        assert_eq!(cupti.version(), 28);
        return;
    }
    let library = PathBuf::from(fake_cuda::cupti());
    let folders = [fake_cuda::folder(), library.parent().expect("a folder")];
    let folders = std::env::join_paths(folders).expect("paths");
    on_the_fake_device(name, &[("LD_LIBRARY_PATH", folders.to_str().expect("paths"))], || {});
}

#[test]
fn a_cupti_that_is_not_there_is_one_line_and_no_panic() {
    let name = "a_cupti_that_is_not_there_is_one_line_and_no_panic";
    if is_child(name) {
        let error = Cupti::start(8).expect_err("it is not there");
        let text = error.to_string();
        match error {
            CuptiError::NoSuchLibrary { file, .. } => assert!(file.ends_with("nowhere.so")),
            CuptiError::NoSymbol { symbol, .. } => assert_eq!(symbol, "cuptiGetVersion"),
            other => panic!("{other}"),
        }
        assert!(!text.contains('\n'), "{text}");
        // The executor goes on.
        Cuda::new(&model(), 24, CudaOptions::default()).expect("the fake device");
        return;
    }
    let folder = folder_of_empty("old-cupti", &["libcupti.so"]);
    let empty = folder.path().join("libcupti.so");
    for path in [empty.to_str().expect("a path"), "/nowhere.so"] {
        on_the_fake_device(name, &[("BRICKSCOPE_CUPTI", path)], || unreachable!("it is a child's"));
    }
}

#[test]
fn a_cupti_that_does_not_record_says_why_each_time() {
    let name = "a_cupti_that_does_not_record_says_why_each_time";
    with_cupti(name, &[("FAKE_CUPTI_REFUSE", "39")], || {
        for _ in 0..2 {
            let error = Cupti::start(8).expect_err("somebody else has it");
            assert!(matches!(error, CuptiError::Call { code: 39, .. }), "{error}");
            assert!(error.to_string().contains("MULTIPLE_SUBSCRIBERS"), "{error}");
        }
    });
}

#[test]
fn one_cupti_records_at_a_time() {
    let name = "one_cupti_records_at_a_time";
    with_cupti(name, &[], || {
        let first = Cupti::start(8).expect("nobody has it");
        assert_eq!(Cupti::start(8).expect_err("one has it"), CuptiError::Busy);
        drop(first);
        let model = model();
        // This isn't recorded.
        decode(&model, 1);
        let second = Cupti::start(1 << 10).expect("nobody has it");
        let n_kernels = decode(&model, 1);
        second.flush().expect("it hands over what it has");
        let records = second.finish().expect("it hands over the rest");
        assert_eq!(launches(&records).len(), 1);
        assert_eq!(launches(&records)[0].len(), n_kernels);
    });
}

#[test]
fn what_cupti_drops_and_what_there_is_no_room_for_is_counted() {
    let name = "what_cupti_drops_and_what_there_is_no_room_for_is_counted";
    if is_child(name) {
        let is_old = std::env::var("FAKE_CUPTI_VERSION").is_ok_and(|version| version == "26");
        let model = model();
        let cupti = Cupti::start(1 << 16).expect("it is there");
        let n_kernels = decode(&model, 20);
        let records = cupti.finish().expect("it hands them over");
        let all = records.kernels.len() as u64 + records.dropped + records.untimed;
        assert!(records.has_gaps());
        assert!(all > 20 * n_kernels as u64, "{all}");
        // 64 buffers of 4 records, beyond which there are none where CUPTI bears that.
        assert_eq!(records.untimed, 1);
        if is_old {
            assert_eq!(records.dropped, 1);
        } else {
            assert_eq!(records.kernels.len(), 64 * 4 - 1);
        }
        let cupti = Cupti::start(10).expect("nobody has it");
        decode(&model, 1);
        let records = cupti.finish().expect("it hands them over");
        assert_eq!(records.kernels.len(), 10);
        assert!(records.beyond_room >= n_kernels as u64 - 10 && records.has_gaps());
        return;
    }
    let settings =
        [("FAKE_CUPTI_PER_BUFFER", "4"), ("FAKE_CUPTI_DROP", "7"), ("FAKE_CUPTI_UNTIMED", "9")];
    for version in ["26", "28"] {
        let settings = [&settings[..], &[("FAKE_CUPTI_VERSION", version)]].concat();
        with_cupti(name, &settings, || unreachable!("it is a child's"));
    }
}

#[test]
fn an_illegal_call_of_cupti_ends_the_program_with_a_sentence() {
    let name = "an_illegal_call_of_cupti_ends_the_program_with_a_sentence";
    if is_child(name) {
        return record_whole_graphs();
    }
    let library = fake_cuda::cupti();
    let output = run_again(name, &[("BRICKSCOPE_CUPTI", &library)]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{err}");
    assert!(err.contains("hides their kernels"), "{err}");
}

/// Calls that would prevent records of kernels in graphs for as long as the program runs.
#[allow(unsafe_code)]
fn record_whole_graphs() {
    let path = std::env::var_os("BRICKSCOPE_CUPTI").expect("the test sets it");
    // SAFETY: it is the fake CUPTI, whose functions have these types.
    unsafe {
        let cupti = libloading::Library::new(path).expect("the fake CUPTI");
        let enable = cupti.get::<unsafe extern "C" fn(u32) -> u32>(b"cuptiActivityEnable");
        enable.expect("it has it")(51);
    }
}

#[test]
fn what_a_device_does_at_best_is_measured_by_its_events() {
    let name = "what_a_device_does_at_best_is_measured_by_its_events";
    // A host whose time is not the device's.
    // In so much memory a launch and an event are a small part of a reading.
    let memory = ("FAKE_CUDA_MEMORY", "1073741824");
    on_the_fake_device(name, &[("FAKE_CUDA_EVENT_NS", "700"), memory], || {
        let of = cuda::measure_ceilings(0).expect("a device");
        let is_near = |rate: f64, expected: f64| (0.99..=1.0).contains(&(rate / expected));
        assert!(is_near(of.read_bytes_per_second, 1e12), "{of:?}");
        assert!(is_near(of.flops_per_second, 20e12), "{of:?}");
        let [l2] = &of.caches[..] else { panic!("{of:?}") };
        assert_eq!((&*l2.level, l2.bytes), ("L2", 4 << 20));
        assert!(is_near(l2.read_bytes_per_second, 3e12), "{of:?}");
        assert_eq!(of.basis, "measured before the run: Fake CUDA device, cuda");
        assert!(is_near(cuda::measure_memory(0).expect("a device"), 1e12));
        let none = cuda::measure_ceilings(1).expect_err("there is one device");
        assert_eq!(none, CudaError::NoDevice { ordinal: 1, devices: 1 });
    });
}

#[test]
fn a_device_without_room_for_more_than_its_cache_has_no_ceilings() {
    let name = "a_device_without_room_for_more_than_its_cache_has_no_ceilings";
    // A quarter of it is less than twice the cache of 4 MiB.
    on_the_fake_device(name, &[("FAKE_CUDA_MEMORY", "30000000")], || {
        let why = cuda::measure_ceilings(0).expect_err("too little memory");
        assert!(matches!(why, CudaError::Memory { asked: 67_108_864, .. }), "{why:?}");
    });
}
