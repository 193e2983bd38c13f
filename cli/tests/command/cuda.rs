//! The command with `--backend cuda` on the fake driver. The figures of `selftest` mean nothing there, but
//! it runs to its end and prints all checks.

use brickscope_testing::fake_cuda;
use std::path::Path;
use std::process::{Command, Output};

use brickscope_analysis::receipt::Receipt;
use brickscope_testing::command;
use brickscope_testing::patience::first_to_judge;

/// `brickscope` with a command, a model, these arguments, and these settings of the fake driver.
fn brickscope(command: &str, args: &[&str], settings: &[(&str, &str)]) -> Output {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    Command::new(command::program())
        .arg(command)
        .arg(models.join("tiny-Q8_0.gguf"))
        .args(args)
        .env("LD_LIBRARY_PATH", fake_cuda::folder())
        .envs(settings.iter().copied())
        .output()
        .expect("it runs")
}

fn selftest(args: &[&str], settings: &[(&str, &str)]) -> Output {
    brickscope("selftest", &[&["--backend", "cuda"], args].concat(), settings)
}

#[test]
fn every_check_is_made_and_one_that_fails_is_the_exit_code() {
    // Kernels do nothing there, so the logits differ from the CPU's.
    let output = selftest(&["--json"], &[("FAKE_CUDA_EVENT_NS", "10")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = json["checks"].as_array().expect("a list");
    let of = |name: &str| {
        let found = checks.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}: {json:#}"))
    };
    assert_eq!(of("device")["found"], "Fake CUDA device");
    assert_eq!(of("kernel nodes without a brick")["ok"], true);
    assert_eq!(of("kernels of zero duration")["ok"], true);
    assert_eq!(of("kernels that spill")["ok"], true);
    assert_eq!(of("logits against the CPU's")["ok"], false);
    // There, a kernel takes some 2 µs, and the launch of a graph 1 µs more, which is in no brick.
    let sum = of("sum of bricks against the graph")["value"].as_f64().expect("a number");
    assert!((-6.0..0.0).contains(&sum), "{sum}");
    for name in [
        "step of %globaltimer",
        "narrowest clock bracket",
        "a time alone in a stream, host",
        "a time alone in a stream, device",
        "a time in a graph, device",
        "Deferred against None, graphs on",
        "agreement with CUPTI's records",
    ] {
        of(name);
    }
    assert_eq!(json["ok"], false);
    // The verdict doesn't depend on whether anybody reads it.
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    let mut unread = Command::new(command::program());
    unread.args(["selftest", "--backend", "cuda"]).arg(models.join("tiny-Q8_0.gguf"));
    unread.env("LD_LIBRARY_PATH", fake_cuda::folder()).env("FAKE_CUDA_EVENT_NS", "10");
    let closed = || std::io::pipe().expect("a pipe").1;
    let status = unread.stdout(closed()).stderr(closed()).status().expect("it runs");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_table_is_for_80_columns() {
    let library = fake_cuda::cupti();
    for settings in [
        &[][..],
        &[("BRICKSCOPE_CUPTI", "/no/such/file.so")],
        &[("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUPTI_DROP", "500")],
        &[("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUPTI_VERSION", "140000")],
    ] {
        let output = selftest(&[], settings);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("checks failed") || text.contains("check failed"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

/// The checks of a `selftest` with CUPTI and these settings, by name.
fn with_cupti(settings: &[(&str, &str)]) -> impl Fn(&str) -> serde_json::Value + use<> {
    let library = fake_cuda::cupti();
    let output = selftest(&["--json"], &[&[("BRICKSCOPE_CUPTI", &*library)], settings].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    move |name| {
        let mut checks = json["checks"].as_array().expect("a list").iter();
        let found = checks.find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}: {json:#}")).clone()
    }
}

fn text(check: &serde_json::Value) -> &str {
    check["found"].as_str().expect("a text")
}

#[test]
fn stamps_and_cuptis_records_of_the_same_kernels_agree() {
    let of = with_cupti(&[]);
    let agreement = of("agreement with CUPTI's records");
    assert_eq!(agreement["ok"], true, "{agreement}");
    assert_eq!(agreement["value"], 0.0, "{agreement}");
    assert!(text(&agreement).starts_with("0 of "), "{agreement}");
    assert!(!text(&agreement).starts_with("0 of 0 "), "{agreement}");
    // Kernels note their own begin, so that nothing comes between.
    let median = of("a kernel's stamps less its record")["value"].as_f64().expect("a number");
    assert!(median.abs() <= 2.0, "{median}");
    let records = of("CUPTI's records");
    assert!(text(&records).contains("kernels by version 28, "), "{records}");
    assert!(text(&records).contains(" of other kinds"), "{records}");
}

#[test]
fn a_record_that_differs_from_the_stamps_by_a_tenth_is_found_and_named() {
    let judged = first_to_judge(|_| {
        // So that a tenth is more than 1 µs.
        let settings = [("FAKE_CUDA_SLOWNESS", "20"), ("FAKE_CUPTI_STRETCH", "attention 10")];
        let of = with_cupti(&settings);
        let agreement = of("agreement with CUPTI's records");
        // Where other programs hold the host up, its passes may not be those of the device, whose clock is not real.
        if agreement["ok"].is_null() {
            Err(text(&agreement).to_owned())
        } else {
            Ok((of, agreement))
        }
    });
    let Some((of, agreement)) = judged else { return };
    assert_eq!(agreement["ok"], false, "{agreement}");
    let beyond = agreement["value"].as_f64().expect("a number");
    // Some in each of 40 passes, and not all.
    assert!(beyond >= 40.0 && beyond % 40.0 == 0.0, "{agreement}");
    let apart = of("a kernel's stamps less its record");
    assert!(text(&apart).ends_with("attention"), "{apart}");
    assert!(apart["value"].as_f64().expect("a number").abs() <= 2.0, "{apart}");
}

#[test]
fn records_that_cupti_lost_are_told_and_their_pass_is_in_no_pair() {
    for (setting, what) in
        [("FAKE_CUPTI_DROP", "1 dropped"), ("FAKE_CUPTI_UNTIMED", "1 without times")]
    {
        let of = with_cupti(&[(setting, "500")]);
        assert!(text(&of("CUPTI's records")).contains(what), "{}", of("CUPTI's records"));
        let agreement = of("agreement with CUPTI's records");
        assert_eq!(agreement["ok"], true, "{agreement}");
        assert!(text(&agreement).contains("1 of 40 passes lack"), "{agreement}");
    }
}

#[test]
fn without_cupti_its_check_is_not_measured_and_says_why() {
    let library = fake_cuda::cupti();
    for (settings, why) in [
        (&[("BRICKSCOPE_CUPTI", "/no/such/file.so")][..], "can't be loaded"),
        (&[("BRICKSCOPE_CUPTI", &library), ("FAKE_CUPTI_VERSION", "140000")], "version 140000"),
        (&[("BRICKSCOPE_CUPTI", &library), ("FAKE_CUPTI_REFUSE", "39")], "MULTIPLE_SUBSCRIBERS"),
    ] {
        let output = selftest(&["--json"], settings);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut checks = json["checks"].as_array().expect("a list").iter();
        let check = checks.find(|check| check["name"] == "agreement with CUPTI's records");
        let check = check.expect("it is there");
        assert!(check["ok"].is_null(), "{check}");
        assert!(text(check).starts_with("not measured: "), "{check}");
        assert!(text(check).contains(why), "{check}");
    }
}

#[test]
fn a_profile_does_without_cupti() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (out, log) = (dir.path().join("run"), dir.path().join("calls"));
    let args = ["--backend", "cuda", "--prompt", "Hi", "--out", out.to_str().expect("a path")];
    let library = fake_cuda::cupti();
    let settings =
        [("BRICKSCOPE_CUPTI", &*library), ("FAKE_CUDA_LOG", log.to_str().expect("a path"))];
    let output = brickscope("profile", &args, &settings);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let calls = std::fs::read_to_string(&log).expect("the driver writes it");
    assert!(calls.contains("cuGraphLaunch") && !calls.contains("cupti"), "{calls}");
}

#[test]
fn a_run_on_a_device_is_compared_with_what_the_device_does_at_best() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let run = out.to_str().expect("a path");
    let args = ["--backend", "cuda", "--tokens", "40", "--prompt", "Hi", "--out", run];
    let output = brickscope("profile", &args, &AS_LONG);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let read = || {
        let text = std::fs::read(out.join("profile.json")).expect("it was written");
        serde_json::from_slice::<serde_json::Value>(&text).expect("JSON")
    };
    let mut profile = read();
    assert_eq!(profile["ceilings"], serde_json::Value::Null, "those of the CPU say nothing");
    let of = &profile["devices"][0]["ceilings"];
    // It is 50 times as slow as it would be, and its memory is small, so that a launch is a part of each time.
    let rate = of["read_bytes_per_second"].as_f64().expect("a rate");
    assert!((19e9..=20e9).contains(&rate), "{of}");
    let when = |nth: usize| of["readings"][nth]["when"].as_str();
    assert_eq!([when(0), when(1), when(2)], [Some("before"), Some("after"), None]);

    let (code, table) = said_by(&["show", run, "--device", "0", "--as", "roofline"]);
    assert_eq!(code, Some(0), "{table}");
    for part in ["(L2), 395.3 GFLOP/s; memory 19.7,", "which L2 holds", "Fake CUDA device, cuda"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let (_, screen) = said_by(&["show", run]);
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    let limits = ["far from the L2 roof: ", "L2-bound: "];
    assert!(limits.iter().any(|limit| words.contains(limit)), "{screen}");
    assert!(words.contains("of its roof"), "{screen}");
    let (code, _) = said_by(&["report", run, "-o", dir.path().join("r.html").to_str().unwrap()]);
    assert_eq!(code, Some(0));

    // Of a run without them they can be measured later, on the device of the run.
    profile["devices"][0].as_object_mut().expect("a device").remove("ceilings");
    std::fs::write(out.join("profile.json"), profile.to_string()).expect("a folder of ours");
    let (code, refused) = said_by(&["machine", "--add-to", run]);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("--backend measures the device"), "{refused}");
    let add = ["machine", "--backend", "cuda", "--add-to", run];
    let (code, added) = said_by(&add);
    assert_eq!(code, Some(0), "{added}");
    let of = &read()["devices"][0]["ceilings"];
    assert_eq!(of["basis"], "measured after the run: Fake CUDA device, cuda");
    assert_eq!(said_by(&add).0, Some(0), "those that were added may be measured again");
    profile["devices"][0]["name"] = "another device".into();
    std::fs::write(out.join("profile.json"), profile.to_string()).expect("a folder of ours");
    let (code, refused) = said_by(&add);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("was made on another device, cuda; here is Fake CUDA"), "{refused}");

    let (code, table) = said_by(&["machine", "--backend", "cuda"]);
    assert_eq!(code, Some(0), "{table}");
    insta::assert_snapshot!(table);
}

/// `brickscope` with these arguments and the fake driver: its exit code, and all that it printed.
fn said_by(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(command::program())
        .args(args)
        .env("LD_LIBRARY_PATH", fake_cuda::folder())
        .output()
        .expect("it runs");
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&both).into_owned())
}

#[test]
fn without_a_device_there_is_one_line_and_an_exit_code() {
    for (command, args, code) in [
        ("selftest", &["--backend", "cuda"][..], 2),
        ("profile", &["--backend", "cuda", "--out", "never-written"], 1),
        ("benchmark", &["--backend", "cuda", "--out", "never-written"], 1),
        ("diverge", &["--a", "cpu", "--b", "cuda", "--ids", "1"], 2),
    ] {
        let output = brickscope(command, args, &[("FAKE_CUDA_DEVICES", "0")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(output.stdout.is_empty(), "{command}");
        assert_eq!(said.trim_end().lines().count(), 1, "{command}: {said}");
        assert!(said.contains("offers no device"), "{command}: {said}");
    }
}

#[test]
fn a_device_lost_in_mid_run_is_one_line_and_an_exit_code() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let args = ["--backend", "cuda", "--prompt", "Hi", "--out", out.to_str().expect("a path")];
    let output = brickscope("profile", &args, &[("FAKE_CUDA_LOSE_AT", "400")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(said.contains("the device is lost"), "{said}");
}

/// So that the device never takes longer than the host that waits for it, and its bricks have times.
const AS_LONG: [(&str, &str); 2] = [("FAKE_CUDA_TAKES_TIME", "1"), ("FAKE_CUDA_SLOWNESS", "50")];

/// Benchmarks on the fake device into a folder, and returns what was printed.
fn benchmark(out: &Path, args: &[&str], settings: &[(&str, &str)]) -> Output {
    let out = out.to_str().expect("a path");
    let on = ["--backend", "cuda", "-p", "130", "-n", "16", "-r", "2", "--out", out];
    brickscope("benchmark", &[&on, args].concat(), settings)
}

fn receipt(folder: &Path) -> Receipt {
    Receipt::load(&folder.join("receipt.json")).expect("it was written")
}

/// What another command says of runs: its exit code and its output.
fn said(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(command::program()).args(args).output();
    let output = output.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_benchmark_on_a_device_has_a_receipt_that_names_it_and_verifies() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let run = dir.path().join("run");
    let output = benchmark(&run, &["-o", "json"], &AS_LONG);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let receipt = receipt(&run);
    assert_eq!((&*receipt.schema_version, &*receipt.backend), ("1.1.0", "cuda"));
    let device = receipt.device.as_ref().expect("it ran on one");
    assert_eq!((&*device.name, &*device.api), ("Fake CUDA device", "cuda"));
    assert_eq!(device.driver.as_deref(), Some("CUDA 12.0"));
    assert_eq!(device.memory_bytes, Some(512 << 20));
    assert_eq!(receipt.ceilings, None, "those would be of the CPU");
    assert!(receipt.ceilings_absent.is_some());
    assert_eq!(receipt.environment["WEIGHTS"], "device memory");
    let names: Vec<&str> = receipt.tests.iter().map(|test| &*test.name).collect();
    assert_eq!(names, ["pp130", "tg16"]);
    for test in &receipt.tests {
        let bricks: Vec<&str> = test.bricks.iter().map(|brick| &*brick.name).collect();
        assert_eq!(bricks, ["Issue", "DeviceWait"], "what the host did");
        assert!(test.device_bricks.iter().any(|brick| brick.name == "LmHead"));
        for sample in test.samples.iter().filter(|sample| !sample.is_warm_up) {
            let host: u64 = sample.brick_ns.iter().sum();
            assert_eq!(host + sample.unattributed_ns.expect("profiled"), sample.wall_ns);
            let times = sample.device.as_ref().expect("it was timed");
            // All of a prompt, in two passes, and one of sixteen tokens.
            let n = if test.name == "tg16" { 1 } else { 2 };
            assert_eq!(times.passes, n, "{}: {times:?}", test.name);
            assert_eq!(times.passes_in_bricks, times.passes);
            assert_eq!(times.brick_ns.iter().sum::<u64>() + times.gaps_ns, times.span_ns);
            assert!(times.brick_ns.iter().all(|&ns| ns > 0), "{times:?}");
            assert!(times.span_ns < sample.wall_ns, "the host waits for the device");
            let in_passes: u64 = sample.pass_ns.iter().sum();
            assert_eq!(in_passes, sample.wall_ns);
        }
    }
    // Two layers, 16 tokens, two repetitions, whether a pass has times or not.
    let launches = |id: &str| receipt.tests[1].kernels.iter().find(|k| k.id == id);
    assert_eq!(launches("attention_cuda").map(|kernel| kernel.launches), Some(2 * 16 * 2));

    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows[1]["gpu_info"], "Fake CUDA device");
    assert_eq!((&rows[1]["backends"], &rows[1]["n_gpu_layers"]), (&"CUDA".into(), &2.into()));
    let (code, verdict) = said(&["verify-receipt", "--json", run.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{verdict}");
    assert!(verdict.contains("no ceilings: a device ran the work"), "{verdict}");
    assert!(verdict.contains("\"name\": \"Fake CUDA device\""), "{verdict}");

    let profile = brickscope::Profile::load(&run.join("profile.json")).expect("it was written");
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.passes.len(), 2 + 16, "one repetition of each test");
    let [device] = &profile.devices[..] else { panic!("there is one") };
    let timed: Vec<u64> = device.streams[0].phases.iter().map(|phase| phase.passes).collect();
    assert_eq!(timed, [2, 1]);
}

#[test]
fn times_that_the_host_can_not_have_waited_for_are_no_times() {
    // By the simulated clock, the device takes far longer than the host does.
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let run = dir.path().join("run");
    let output = benchmark(&run, &[], &[("FAKE_CUDA_SLOWNESS", "5000000")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, verdict) = said(&["verify-receipt", run.to_str().expect("a path")]);
    assert!(verdict.contains("`untimed_device_passes`"), "{verdict}");
    assert!(verdict.contains("\ndevice    Fake CUDA device, cuda, CUDA 12.0"), "{verdict}");
}

#[test]
fn runs_on_the_cpu_and_on_devices_are_not_compared() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let folder = |name: &str| dir.path().join(name);
    let path = |name: &str| folder(name).to_str().expect("a path").to_owned();
    assert!(benchmark(&folder("one"), &[], &AS_LONG).status.success());
    let on_cpu = ["--threads", "1", "-p", "130", "-n", "16", "-r", "2", "--out", &path("cpu")];
    assert!(brickscope("benchmark", &on_cpu, &[]).status.success());
    assert!(benchmark(&folder("other"), &[], &AS_LONG).status.success());
    let mut of_another = receipt(&folder("other"));
    of_another.device.as_mut().expect("a device").name = "Other CUDA device".to_owned();
    let sealed = of_another.sealed().expect("its numbers are numbers");
    sealed.save(&folder("other").join("receipt.json")).expect("it can be written");

    let (code, text) = said(&["compare", &path("cpu"), &path("one")]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("backend: cpu and cuda"), "{text}");
    let (code, text) = said(&["compare", &path("one"), &path("other")]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("device: Fake CUDA device and Other CUDA device"), "{text}");

    let (code, text) = said(&["history", &dir.path().display().to_string()]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("3 receipts in 6 series"), "{text}");
    for title in ["cuda on Fake CUDA device", "cuda on Other CUDA device", "1 thread, cpu "] {
        assert_eq!(text.matches(title).count(), 2, "{title}: {text}");
    }
}

#[test]
fn each_process_of_a_set_measures_on_the_device() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let run = dir.path().join("run");
    let output = benchmark(&run, &["--processes", "2"], &AS_LONG);
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(text.matches("| CUDA    |").count(), 4, "{text}");
    for process in ["1", "2"] {
        let receipt = receipt(&run.join(process));
        assert_eq!(receipt.device.expect("a device").name, "Fake CUDA device");
        assert_eq!((receipt.run.processes, receipt.run.threads), (2, 1));
    }
}

#[test]
fn without_the_profiler_a_benchmark_on_a_device_has_walls_alone() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let (run, log) = (dir.path().join("run"), dir.path().join("calls"));
    let settings = [&AS_LONG[..], &[("FAKE_CUDA_LOG", log.to_str().expect("a path"))]].concat();
    let output = benchmark(&run, &["--no-profiler"], &settings);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let receipt = receipt(&run);
    assert!(receipt.device.is_some() && receipt.kernels.is_empty());
    for test in &receipt.tests {
        assert!(test.bricks.is_empty() && test.device_bricks.is_empty());
        assert!(test.samples.iter().all(|sample| sample.device.is_none() && sample.wall_ns > 0));
    }
    let (code, verdict) = said(&["verify-receipt", "--json", run.to_str().expect("a path")]);
    assert_eq!(code, Some(1), "{verdict}");
    assert_eq!(verdict.matches("\"code\"").count(), 1, "{verdict}");
    assert!(verdict.contains("\"code\": \"kernel-ids\""), "{verdict}");
    assert!(!run.join("profile.json").exists());
}

#[test]
fn a_device_lost_in_mid_benchmark_is_one_line_and_leaves_no_receipt() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    // While it is prepared, and while it is measured: that takes more than 1890 launches.
    for (lose_at, ended) in [
        ("20", "the device is lost"),
        ("1500", "the benchmark ended early, and no receipt is written"),
    ] {
        let run = dir.path().join(lose_at);
        let output = benchmark(&run, &[], &[("FAKE_CUDA_LOSE_AT", lose_at)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains("the device is lost"), "{said}");
        assert!(said.contains(ended), "{said}");
        assert!(output.stdout.is_empty() && !run.exists());
    }
}

#[test]
fn a_benchmark_on_a_device_refuses_flags_about_the_cpu() {
    for (flag, about) in [
        ("--threads=2", "--threads is about the CPU"),
        ("--mmap", "--mmap and --small-pages are about the CPU's memory"),
        ("--small-pages", "--mmap and --small-pages are about the CPU's memory"),
    ] {
        let output = benchmark(Path::new("never-written"), &[flag], &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{flag}: {said}");
        assert!(said.contains(about), "{flag}: {said}");
    }
}
