//! Receipts of runs on devices: version 1.1.0, which says what the device is and what it timed.

use brickscope_analysis::compare::{
    CompareError, Options as CompareOptions, Process, Side, compare,
};
use brickscope_analysis::history::{History, Measure, Run};
use brickscope_analysis::receipt::v1::{Brick, Device, DeviceTimes, VERSION, VERSION_WITH_DEVICE};
use brickscope_analysis::receipt::{Code, Options, Receipt, Verdict, rerun_agrees, verify};

use super::honest::{Plan, receipt, renewed, resealed, unsealed};

/// Changes a receipt.
type Forge = fn(&mut Receipt);

/// A receipt of a GPU as a benchmark writes it: the host issued and waited, and the device timed one pass of eight.
fn on_device(backend: &str, name: &str) -> Receipt {
    of_seed(1, backend, name).sealed().expect("its numbers are numbers")
}

/// Without a seal.
pub(crate) fn of_seed(seed: u64, backend: &str, name: &str) -> Receipt {
    let mut receipt = unsealed(&Plan { seed, kernels: "cuda", threads: 1, ..Plan::default() });
    receipt.schema_version = VERSION_WITH_DEVICE.to_owned();
    backend.clone_into(&mut receipt.backend);
    backend.clone_into(&mut receipt.run.kernels);
    receipt.run.command.retain(|word| !word.starts_with("--threads"));
    let api = if backend == "cuda" { "cuda" } else { "vulkan" };
    receipt.device = Some(Device {
        name: name.to_owned(),
        api: api.to_owned(),
        driver: Some("CUDA 13.0".to_owned()),
        memory_bytes: Some(80 << 30),
        resolution_ns: Some(32.0),
    });
    receipt.environment.insert("WEIGHTS".to_owned(), "device memory".to_owned());
    let brick = |name: &str| Brick { name: name.to_owned(), category: "Other".to_owned() };
    for test in &mut receipt.tests {
        test.bricks = vec![brick("Issue"), brick("DeviceWait")];
        test.device_bricks = vec![brick("MyBrick"), brick("LmHead")];
        for sample in &mut test.samples {
            let (issue, wait) = sample.brick_ns.split_at(3);
            sample.brick_ns = vec![issue.iter().sum(), wait.iter().sum()];
            let span_ns = sample.pass_ns[0] / 2;
            let brick_ns = vec![span_ns / 3, span_ns / 2];
            let gaps_ns = span_ns - brick_ns.iter().sum::<u64>();
            let (passes, passes_in_bricks) = (1, 1);
            sample.device =
                Some(DeviceTimes { passes, span_ns, passes_in_bricks, brick_ns, gaps_ns });
        }
        for kernel in &mut test.kernels {
            kernel.id = kernel.id.replace("_cuda", &format!("_{backend}"));
        }
    }
    receipt.kernels.iter_mut().for_each(|id| *id = id.replace("_cuda", &format!("_{backend}")));
    renewed(receipt)
}

fn verdict(receipt: &Receipt) -> Verdict {
    verify(receipt.to_json().as_bytes(), &Options::default())
}

#[test]
fn an_honest_receipt_of_a_device_is_accepted() {
    for backend in ["cuda", "wgpu"] {
        let honest = on_device(backend, "NVIDIA H200");
        let required = Options { require_gpu_kernels: true, ..Options::default() };
        let found = verify(honest.to_json().as_bytes(), &required);
        assert!(found.is_accepted(), "{:#?}", found.refusals);
        let said = found.not_checked.join("\n");
        assert!(said.contains("the machine can reach what was measured: no ceilings"), "{said}");
    }
    // What its driver doesn't report is absent.
    let mut honest = on_device("wgpu", "llvmpipe");
    let device = honest.device.as_mut().expect("a device");
    (device.driver, device.memory_bytes, device.resolution_ns) = (None, None, None);
    let found = verdict(&resealed(honest));
    assert!(found.is_accepted(), "{:#?}", found.refusals);
}

#[test]
fn each_version_has_the_fields_that_it_knows() {
    let refused = |forge: Forge, part: &str| {
        let mut receipt = on_device("cuda", "NVIDIA H200");
        forge(&mut receipt);
        let found = verdict(&resealed(receipt));
        let [refusal] = &found.refusals[..] else { panic!("{:#?}", found.refusals) };
        assert_eq!(refusal.code, Code::Schema, "{refusal}");
        assert!(refusal.sentence.contains(part), "{refusal}");
    };
    refused(|of| of.schema_version = VERSION.to_owned(), "field `device`: receipts of 1.0.0");
    refused(|of| of.device = None, "missing field `device`");
    let of_old = |of: &mut Receipt| {
        of.schema_version = VERSION.to_owned();
        of.device = None;
    };
    let of_samples: Forge = |of| {
        of.schema_version = VERSION.to_owned();
        of.device = None;
        of.tests.iter_mut().for_each(|test| test.device_bricks.clear());
    };
    refused(of_old, "field `tests[0].device_bricks`: receipts of 1.0.0");
    refused(of_samples, "field `tests[0].samples[0].device`: receipts of 1.0.0");
}

#[test]
fn what_a_device_can_not_have_done_is_refused() {
    fn times(receipt: &mut Receipt) -> &mut DeviceTimes {
        receipt.tests[1].samples[4].device.as_mut().expect("it was timed")
    }
    fn device(receipt: &mut Receipt) -> &mut Device {
        receipt.device.as_mut().expect("a device")
    }
    let frauds: &[(Forge, Code, &str)] = &[
        (|of| times(of).gaps_ns += 1, Code::SumMismatch, "bricks and gaps in sample 4"),
        (|of| times(of).brick_ns[0] -= 1, Code::SumMismatch, "bricks and gaps in sample 4"),
        (
            |of| {
                let more = of.tests[1].samples[4].wall_ns;
                times(of).span_ns += more;
                times(of).gaps_ns += more;
            },
            Code::SumMismatch,
            "by the host's clock",
        ),
        (|of| times(of).passes_in_bricks = 2, Code::TokenCount, "timed 1 passes of sample 4"),
        (|of| times(of).passes = 17, Code::TokenCount, "timed 17 passes of sample 4"),
        (|of| times(of).passes_in_bricks = 0, Code::SumMismatch, "bricks and gaps in sample 4"),
        (
            |of| times(of).brick_ns.push(0),
            Code::SamplesMissing,
            "times of 3 bricks of the device, but the test has 2",
        ),
        (
            |of| of.tests[1].device_bricks[1].name = "MyBrick".to_owned(),
            Code::Contradiction,
            "has the brick `MyBrick` of the device twice",
        ),
        (|of| device(of).name.clear(), Code::Field, "device.name is empty"),
        (|of| device(of).api = "vulkan".to_owned(), Code::Contradiction, "device.api is `vulkan`"),
        (|of| device(of).memory_bytes = Some(64 << 20), Code::Contradiction, "device.memory_bytes"),
        (|of| of.run.threads = 8, Code::Contradiction, "one thread issues a device's work"),
        (|of| of.run.kernels = "wgpu".to_owned(), Code::Contradiction, "run.kernels is `wgpu`"),
        (|of| of.backend = "cpu".to_owned(), Code::Field, "kernels run on a device"),
        (
            |of| {
                of.ceilings = receipt(&Plan::default()).ceilings;
                of.ceilings_absent = None;
            },
            Code::Contradiction,
            "ceilings of the machine's CPU, but `NVIDIA H200` ran the kernels",
        ),
        (
            |of| {
                let ids = of.tests.iter_mut().flat_map(|test| &mut test.kernels).map(|k| &mut k.id);
                ids.chain(&mut of.kernels).for_each(|id| *id = id.replace("_cuda", "_avx2"));
            },
            Code::NoGpuKernels,
            "the backend is `cuda`, but no kernel of test `pp64` names a GPU",
        ),
        (
            |of| {
                of.run.profiled = false;
                for test in &mut of.tests {
                    test.bricks.clear();
                    let samples = test.samples.iter_mut();
                    samples.for_each(|s| (s.brick_ns, s.unattributed_ns) = (Vec::new(), None));
                }
            },
            Code::SamplesMissing,
            "has times of the device, but the profiler was off",
        ),
    ];
    for (forge, code, part) in frauds {
        let mut receipt = on_device("cuda", "NVIDIA H200");
        forge(&mut receipt);
        let found = verdict(&resealed(receipt));
        let refusals = found.refusals.iter().filter(|refusal| refusal.code == *code);
        let said: Vec<String> = refusals.map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(part)), "{part}: {:#?}", found.refusals);
    }
}

#[test]
fn a_rerun_on_another_device_is_another_run() {
    let mine = on_device("cuda", "NVIDIA H200");
    assert_eq!(rerun_agrees(&mine, &mine, 0.1, &[]).refusals, []);
    let other = on_device("cuda", "NVIDIA T4");
    let said = rerun_agrees(&mine, &other, 0.1, &[]).refusals;
    let [refusal] = &said[..] else { panic!("{said:#?}") };
    assert_eq!(refusal.code, Code::RerunDiffers);
    let sentence = "the rerun was on `NVIDIA T4`, the receipt's run on `NVIDIA H200`";
    assert_eq!(refusal.sentence, sentence);
}

#[test]
fn runs_on_different_devices_are_not_compared() {
    let side = |receipt: &Receipt| Side {
        name: "side".to_owned(),
        processes: vec![Process::from_receipt("process", receipt)],
    };
    let differs = |change: fn(&mut Device)| {
        let mut other = of_seed(2, "cuda", "NVIDIA H200");
        change(other.device.as_mut().expect("a device"));
        other.timestamp = "2026-11-22T10:48:12Z".to_owned();
        let mine = on_device("cuda", "NVIDIA H200");
        match compare(&side(&mine), &side(&resealed(other)), &CompareOptions::default()) {
            Err(CompareError::Unlike(list)) => list.into_iter().map(|fact| fact.name).collect(),
            Err(other) => panic!("{other}"),
            Ok(_) => Vec::new(),
        }
    };
    assert_eq!(differs(|device| device.name = "NVIDIA T4".to_owned()), ["device"]);
    assert_eq!(differs(|device| device.memory_bytes = Some(40 << 30)), ["memory of the device"]);
    assert_eq!(differs(|device| device.api = "vulkan".to_owned()), ["interface of the device"]);
    // A new driver may be what is to be compared.
    assert_eq!(differs(|device| device.driver = None), [""; 0]);
}

#[test]
fn each_device_has_its_own_line_over_time() {
    let run = |receipt: Receipt| Run::of("receipt.json", &receipt).expect("it has a time");
    let other = |name: &str, day: &str| {
        let mut receipt = on_device("cuda", name);
        receipt.timestamp = format!("2026-11-{day}T10:48:12Z");
        run(receipt)
    };
    let runs =
        vec![other("NVIDIA H200", "21"), other("NVIDIA H200", "22"), other("NVIDIA T4", "23")];
    let found = History::of(runs, Measure::TokensPerSecond);
    let mut lines: Vec<(&str, usize)> = found
        .series
        .iter()
        .filter(|series| series.kind.n_gen > 0)
        .map(|series| (series.kind.device.as_deref().expect("named"), series.points.len()))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, [("NVIDIA H200", 2), ("NVIDIA T4", 1)]);
}
