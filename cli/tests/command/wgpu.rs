//! Models on a device of Vulkan, Metal or DX12, as a user runs them. Without a device the tests print a
//! note and pass, unless `BRICKSCOPE_NEEDS_WGPU` is set.

use std::path::Path;
use std::process::{Command, Output};

use brickscope::{LaunchKind, NameKind, Phase, Profile, Source};
use brickscope_analysis::receipt::Receipt;
use brickscope_testing::command;

fn brickscope(args: &[&str], envs: &[(&str, &str)]) -> Output {
    Command::new(command::program())
        .args(args)
        .envs(envs.iter().copied())
        .output()
        .expect("the command starts")
}

fn fixture(name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    models.join(name).to_str().expect("UTF-8").to_owned()
}

/// Whether the command ran; `false` if there is no device.
fn ran(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    if said.contains("no Vulkan, Metal or DX12 device")
        && std::env::var_os("BRICKSCOPE_NEEDS_WGPU").is_none()
    {
        eprintln!("skipped: {said}");
        return false;
    }
    assert!(output.status.success(), "{said}");
    true
}

#[test]
fn a_profile_on_a_device_has_its_times() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let (model, out) = (fixture("tiny-Q4_K_M.gguf"), out.to_str().expect("UTF-8"));
    // With so small a model, timestamps cost more than a hundredth.
    let args = ["profile", &model, "--backend", "wgpu", "--grain", "kernels", "--tokens", "6"];
    let output = brickscope(&[&args[..], &["--out", out]].concat(), &[]);
    if !ran(&output) {
        return;
    }
    let file = Path::new(out).join("profile.json");
    let json = std::fs::read_to_string(&file).expect("it was written");
    let profile = Profile::from_json(&json, &file).expect("it is one");
    profile.check().expect("it adds up");
    let [device] = &profile.devices[..] else { panic!("there is one") };
    assert_eq!((device.disordered_passes, device.lost_passes), (0, 0));
    let gpu = profile.on_device(0, 0).expect("a stream");
    gpu.check().expect("it adds up");
    let decode = gpu.phase(Phase::Decode).expect("there were some");
    assert_eq!(decode.passes, 5);
    assert!(decode.wall_ns > 0);
    let bricks = gpu.bricks(Some(Phase::Decode));
    assert_eq!(bricks.len(), 13, "all that a llama has, but the choice of a token");
    assert!(bricks.iter().all(|b| b.source == Source::Device && b.stats.total_ns > 0));
    let shapes: Vec<_> = gpu.totals.iter().filter_map(|t| t.device.as_ref()).collect();
    assert!(shapes.iter().any(|on| on.shape == "512×256 q6_k as i8"), "{shapes:?}");
    // Each kernel was recorded at its own moment, before it began, within the alignment of the clocks.
    let stream = &device.streams[0];
    let is_kernel = |name: u16| gpu.names[usize::from(name)].kind == NameKind::Kernel;
    let kernels = stream.spans.iter().filter(|span| span.name.is_some_and(is_kernel));
    assert_eq!(stream.launches.len(), kernels.count());
    assert!(stream.launches.iter().all(|launch| launch.kind == LaunchKind::Recorded));
    assert!(stream.launches.is_sorted_by_key(|launch| launch.issued_ns));
    let error = device.clock_error_ns().expect("it was looked at");
    for launch in &stream.launches {
        let delay = launch.delay_ns(&stream.spans[launch.span as usize]);
        assert!(delay >= 0 || delay.unsigned_abs() <= error, "{launch:?} {delay} {error}");
    }
}

#[test]
fn a_benchmark_on_a_device_has_a_receipt_that_verifies() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run");
    let out = out.to_str().expect("UTF-8");
    let model = fixture("tiny-Q8_0.gguf");
    let args = ["benchmark", &model, "--backend", "wgpu", "-p", "20", "-n", "8", "-r", "2"];
    if !ran(&brickscope(&[&args[..], &["--out", out]].concat(), &[])) {
        return;
    }
    let receipt = Receipt::load(&Path::new(out).join("receipt.json")).expect("it was written");
    assert_eq!((&*receipt.schema_version, &*receipt.backend), ("1.1.0", "wgpu"));
    let device = receipt.device.as_ref().expect("it ran on one");
    assert!(!device.name.is_empty() && device.driver.is_some());
    assert!(["vulkan", "metal", "dx12"].contains(&&*device.api), "{device:?}");
    assert_eq!(device.memory_bytes, None, "wgpu doesn't report it");
    for test in &receipt.tests {
        assert!(!test.kernels.is_empty() && test.kernels.iter().all(|k| k.id.ends_with("_wgpu")));
        let measured = test.samples.iter().filter(|sample| !sample.is_warm_up);
        let times = measured.map(|sample| sample.device.as_ref().expect("it was timed"));
        assert!(times.clone().all(|times| times.passes <= 8), "{}", test.name);
        // The prompt is one pass, and each has times.
        assert!(
            test.n_gen > 0 || times.clone().all(|times| times.passes == 1 && times.span_ns > 0)
        );
    }
    let output = brickscope(&["verify-receipt", out], &[]);
    let verdict = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{verdict}");
}

#[test]
fn a_device_computes_what_the_cpu_does() {
    let args = ["diverge", &fixture("tiny-qwen2-Q4_K_M.gguf"), "--a", "cpu", "--b", "wgpu"];
    if ran(&brickscope(&args, &[])) {
        println!("they agree");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_a_driver_is_told_in_one_line() {
    let none = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].map(|name| (name, "/nonexistent"));
    let args = ["profile", &fixture("tiny-F16.gguf"), "--backend", "wgpu"];
    let output = brickscope(&args, &none);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("mesa-vulkan-drivers"), "{said}");
}
