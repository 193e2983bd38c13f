//! Ranges for NVIDIA's tools, told to a tool of our own.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use brickscope::{
    BrickId, BrickProfiler, Phase, SimulatedDevice, StreamId, TransferDirection, Work,
};

/// What the program is told by who wants ranges.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";

#[test]
fn without_a_tool_there_are_no_ranges_and_a_reason() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let absent = BrickProfiler::enabled().enable_nvtx().expect_err("nobody asks");
    assert!(!cfg!(target_os = "linux") || absent.reason.contains(VARIABLE), "{}", absent.reason);
}

/// Runs the test `named` of this program under the tool, whose library this is; what it was told.
fn told_by(named: &str, library: &Path, log: &Path) -> String {
    let output = Command::new(env::current_exe().expect("a test knows its program"))
        .args(["--exact", named, "--nocapture"])
        .env(VARIABLE, library)
        .env("RANGES_LOG", log)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(log).unwrap_or_default()
}

#[test]
fn a_tool_is_told_of_passes_layers_bricks_and_kernels() {
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let library = dir.path().join("libtool.so");
    let built = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"))
        .args(["--edition", "2024", "--crate-type", "cdylib", "--cap-lints", "allow", "-o"])
        .arg(&library)
        .arg(brickscope_testing::root().join("tests/recorder/nvtx/tool.rs"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the tool can't be built");
    let log = |name: &str| dir.path().join(name);
    let expected = "begin Decode\nbegin layer 3\nbegin RmsNorm\nend\nbegin QkvProjection\n\
                    begin gemv\nend\nbegin add\nend\nend\nend\nbegin mine\nend\nend\n\
                    begin Prefill\nbegin LmHead\nend\nend\nbegin RmsNorm\nend\n";
    assert_eq!(told_by("nvtx::passes_under_a_tool", &library, &log("host")), expected);
    // The copy is issued beside a brick of another stream, whose range ends with the brick.
    let expected = "begin Decode\nbegin RmsNorm\nend\nbegin LmHead\nbegin H2D: a → b\nend\nend\n\
                    end\n";
    let told = told_by("nvtx::passes_of_a_device_under_a_tool", &library, &log("device"));
    assert_eq!(told, expected);
}

/// Whether this test runs for another one, under the tool.
fn is_under_a_tool() -> bool {
    env::var_os("RANGES_LOG").is_some()
}

/// Also: what is timed is the same as without a tool.
#[test]
fn passes_under_a_tool() {
    if !is_under_a_tool() {
        return;
    }
    let profiler = BrickProfiler::enabled().with_log_capacity(1 << 10);
    profiler.enable_nvtx().expect("a tool");
    profiler.enable_nvtx().expect("once more, it changes nothing");
    let [gemv, add] = ["gemv", "add"].map(|name| profiler.kernel(name, None));
    let pass = profiler.begin_pass(Phase::Decode);
    let layer = profiler.begin_layer(3);
    let timer = profiler.start_brick(BrickId::RmsNorm);
    let timer = profiler.lap(timer, 1, BrickId::QkvProjection);
    let kernel = profiler.start_kernel(gemv);
    profiler.stop_kernel(kernel, Work::elements(1));
    let kernel = profiler.start_kernel(add);
    profiler.stop_kernel(kernel, Work::elements(1));
    profiler.stop_brick(timer, 1);
    profiler.end_layer(layer);
    // It never ends, so its range ends with that of the pass.
    let _open = profiler.start("mine");
    profiler.end_pass(pass, 1, 0);
    let mut room = [0; 8];
    let pass = profiler.begin_pass(Phase::Prefill);
    assert!(profiler.timestamps_of(&pass, &mut room).is_none(), "timestamps have no ranges");
    drop(profiler.brick(BrickId::LmHead));
    profiler.end_pass(pass, 4, 0);
    let profile = profiler.profile();
    // Three bricks that ended, and two kernels; a layer has no name.
    let named = profile.spans.iter().filter(|span| span.name.is_some()).count();
    assert_eq!((profile.passes.len(), named), (2, 5));
    for pass in &profile.passes {
        assert_eq!(pass.attributed_ns + pass.unattributed_ns, pass.wall_ns);
    }
    // Profiling is turned off meanwhile: the range ends all the same.
    let timer = profiler.start_brick(BrickId::RmsNorm);
    profiler.disable();
    let timer = profiler.lap(timer, 1, BrickId::LmHead);
    profiler.stop_brick(timer, 1);
}

/// What a device is given is a range while it is issued.
#[test]
fn passes_of_a_device_under_a_tool() {
    if !is_under_a_tool() {
        return;
    }
    let mut device = SimulatedDevice::new(2);
    let profiler = BrickProfiler::with_clock(device.clock());
    profiler.enable();
    profiler.enable_nvtx().expect("a tool");
    let mut timer = profiler.device().timer(&mut device).expect("a clock");
    let pass = profiler.begin_pass(Phase::Decode);
    timer.begin_pass(&mut device, Phase::Decode, 1, 7).expect("none is open");
    for brick in [BrickId::RmsNorm, BrickId::LmHead] {
        timer.brick(&mut device, StreamId(0), None, brick, Work::elements(1)).expect("room");
        device.launch(StreamId(0), 5_000);
    }
    let way = TransferDirection::H2D;
    timer.transfer(&mut device, StreamId(1), "a", "b", 64, way).expect("room");
    device.launch(StreamId(1), 5_000);
    timer.end_pass(&mut device).expect("it is open");
    profiler.end_pass(pass, 1, 7);
    timer.finish(&mut device).expect("it is there");
}
