//! `brickscope import`, and the commands that read its runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use brickscope::Profile;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use brickscope_testing::command::{brickscope, run, text};
use brickscope_testing::gpu_trace::{Net, Planted, Recording};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/import").join(name)
}

/// Imports a file into its own folder.
fn imported(file: &Path, args: &[&str]) -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    let mut command = brickscope(&["import"]);
    command.arg(file).arg("--out").arg(dir.path()).args(args);
    let output = run(&mut command);
    assert_eq!(text(&output.stdout).trim_end(), dir.path().to_str().expect("UTF-8"));
    dir
}

fn refused(file: &Path, args: &[&str]) -> String {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command = brickscope(&["import"]);
    let output = command.arg(file).arg("--out").arg(&out).args(args).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(!out.exists(), "nothing is left of it");
    let said = text(&output.stderr).to_owned();
    assert!(said.starts_with("brickscope: ") && !said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_file_is_not_read_into_its_own_folder_where_it_has_the_name_of_an_export() {
    let dir = TempDir::new().expect("a temporary folder");
    for (name, is_refused) in [("trace.json", true), ("rank0.json", false)] {
        let file = dir.path().join(name);
        std::fs::copy(data("kineto-gpu.json"), &file).expect("there is room");
        let mut command = brickscope(&["import"]);
        let output = command.arg(&file).arg("--out").arg(dir.path()).output().expect("it starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(i32::from(is_refused)), "{said}");
        assert_eq!(said.contains("would be taken for a file of the run"), is_refused, "{said}");
        assert_eq!(dir.path().join("profile.json").exists(), !is_refused);
    }
}

#[test]
fn each_file_becomes_a_run_that_every_command_reads() {
    for (name, args) in [
        ("llama-bench.json", &[][..]),
        ("candle.json", &["--decode", "model"]),
        ("torch.json", &[]),
        ("pytorch.json", &["--prefill", "prefill", "--decode", "dec*[1..]"]),
        ("pytorch-stack.json", &["--decode", "decode"]),
        ("kineto-gpu.json", &[]),
        ("forward-pass-metrics.jsonl", &[]),
        ("vk-perf-logger.txt", &[]),
        ("stacks.folded", &["--unit", "us"]),
        ("stacks.folded", &["--unit", "samples"]),
    ] {
        let dir = imported(&data(name), args);
        let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
        assert_eq!(profile.check(), Ok(()), "{name}");
        assert!(profile.imported.is_some_and(|imported| imported.file.ends_with(name)));
        for command in [
            &["show"][..],
            &["export", "--format", "prometheus", "-o", "-"],
            &["export", "--format", "otlp-json", "-o", "-"],
        ] {
            let output = run(brickscope(command).arg(dir.path()));
            assert!(text(&output.stdout).contains(name), "{name}, {command:?}");
        }
        // A run without times can't be exported as times, and a note says so.
        let is_samples = args.contains(&"samples");
        let output = run(brickscope(&["export", "--format", "csv", "-o", "-"]).arg(dir.path()));
        assert_eq!(text(&output.stderr).contains("this export is empty"), is_samples);
        let output = run(brickscope(&["report", "-o", "-"]).arg(dir.path()));
        assert_eq!(text(&output.stdout).contains("Samples by function"), is_samples, "{name}");
    }
}

#[test]
fn limits_are_those_of_the_machine_that_the_file_was_made_on() {
    let said = refused(&data("candle.json"), &["--ceilings-here"]);
    assert!(said.contains("--ceilings-here is for files of llama-bench"), "{said}");
    let said = refused(&data("llama-bench.json"), &["--ceilings-here"]);
    assert!(said.contains("was made on another machine: AMD EPYC 9R14"), "{said}");
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("bench.json");
    let bench = std::fs::read_to_string(data("llama-bench.json")).expect("it is there");
    std::fs::write(&file, bench.replace("\"AMD EPYC 9R14\"", "\"\"")).expect("it is written");
    let dir = imported(&file, &["--ceilings-here"]);
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    assert!(profile.ceilings.is_some() && profile.ceilings_absent.is_none());
    let found = run(brickscope(&["findings"]).arg(dir.path()));
    // Which one, the machine decides.
    assert!(!text(&found.stdout).contains("--ceilings-here"), "{}", text(&found.stdout));
    std::fs::write(&file, bench.replace("\"CPU\"", "\"CUDA\"")).expect("it is written");
    let said = refused(&file, &["--ceilings-here"]);
    assert!(said.contains("--ceilings-here measures the CPU"), "{said}");
}

#[test]
fn a_packed_file_is_the_same_run() {
    let folder = TempDir::new().expect("a temporary folder");
    let packed = folder.path().join("trace.json.gz");
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&std::fs::read(data("candle.json")).expect("it is there")).expect("memory");
    std::fs::write(&packed, gz.finish().expect("memory")).expect("it is written");
    let sums = |file: &Path| {
        let dir = imported(file, &[]);
        Profile::load(&dir.path().join("profile.json")).expect("it was written").totals
    };
    assert_eq!(sums(&packed), sums(&data("candle.json")));
    std::fs::write(&packed, [0x1f, 0x8b, 8, 0, 0]).expect("it is written");
    assert!(refused(&packed, &[]).contains("a gzip file"));
}

#[test]
fn what_unpacks_to_much_more_than_a_trace_does_is_refused() {
    let folder = TempDir::new().expect("a temporary folder");
    let packed = folder.path().join("trace.json.gz");
    for (begin, filling, megabytes, why) in [
        (&b""[..], 0, 1, "it is no text: it has bytes of 0"),
        (b"[", b' ', 100, "it has more than 300 times its size, which no trace has"),
    ] {
        let mut gz = GzEncoder::new(Vec::new(), Compression::best());
        gz.write_all(begin).expect("memory");
        for _ in 0..megabytes {
            gz.write_all(&vec![filling; 1 << 20]).expect("memory");
        }
        std::fs::write(&packed, gz.finish().expect("memory")).expect("it is written");
        let said = refused(&packed, &[]);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_path_across_streams_that_no_file_tells_is_refused_and_layers_are_shown() {
    let dir = imported(&data("kineto-gpu.json"), &[]);
    let show = |args: &[&str]| {
        let mut command = brickscope(&["show"]);
        command.arg(dir.path()).args(args).output().expect("it starts")
    };
    for device in [&[][..], &["--device", "0"], &["--device", "0", "--stream", "0"]] {
        let refused = show(&[&["--as", "path"][..], device].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("no critical path: the file tells no waits between"), "{said}");
    }
    let host = show(&["--as", "path", "--host"]);
    assert!(text(&host.stdout).contains("Critical path"), "{}", text(&host.stderr));
    let layer = show(&["--as", "tree", "--device", "0", "--layer", "1"]);
    assert!(text(&layer.stdout).contains("Layer 1  48.0µs"), "{}", text(&layer.stderr));
}

#[test]
fn of_a_packed_file_that_breaks_off_what_is_whole_is_read() {
    let folder = TempDir::new().expect("a temporary folder");
    let packed = folder.path().join("trace.json.gz");
    let whole = std::fs::read(data("kineto-gpu.json")).expect("it is there");
    let mut gz = GzEncoder::new(Vec::new(), Compression::none());
    gz.write_all(&whole).expect("memory");
    let bytes = gz.finish().expect("memory");
    std::fs::write(&packed, &bytes[..bytes.len() / 2]).expect("it is written");
    let dir = imported(&packed, &[]);
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    assert!(!profile.spans.is_empty());
    let left_out = profile.imported.expect("of a file").left_out;
    let said = |what: &str| left_out.iter().any(|(why, _)| why.contains(what));
    assert!(said("unpacked bytes, where the gzip file breaks off"), "{left_out:?}");
    // Of lines, the last one may lack digits of its number.
    let stacks = folder.path().join("stacks.folded.gz");
    let mut gz = GzEncoder::new(Vec::new(), Compression::none());
    gz.write_all(b"a;b 10\na;c 1234\n").expect("memory");
    let bytes = gz.finish().expect("memory");
    // The trailer, the line break, and two digits.
    std::fs::write(&stacks, &bytes[..bytes.len() - 8 - 3]).expect("it is written");
    let dir = imported(&stacks, &["--unit", "us"]);
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    let names: Vec<&str> = profile.totals.iter().map(|total| &*total.stats.name).collect();
    assert!(names.contains(&"b") && !names.contains(&"c"), "{names:?}");
}

#[test]
fn what_can_not_be_read_is_said_with_its_place() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("a.file");
    let with = |bytes: &[u8], args: &[&str]| {
        std::fs::write(&file, bytes).expect("it is written");
        refused(&file, args)
    };
    assert!(with(b"", &[]).contains("a.file is empty: "));
    assert!(with(b" \r\n", &[]).contains("a.file is empty: "));
    assert!(with(b"words\n", &[]).contains("name its format with --format"));
    assert!(with(b"[{\"name\": \"a", &[]).contains("breaks off before it has an event or a test"));
    assert!(with(b"a;b 1\n", &[]).contains("--unit ns, us, ms or samples"));
    assert!(with(b"a;b\n", &["--format", "folded", "--unit", "ns"]).contains("a.file, line 1: "));
    assert!(with(b"ab\xff", &[]).contains("a.file, byte 2: not UTF-8 text"));
    let event = br#"[{"ph":"X","ts":1}]"#;
    assert!(with(event, &[]).contains("a.file, event 1: `dur` is missing"));
    assert!(with(event, &["--rows", "1"]).contains("a choice of rows is for files of llama-bench"));
    assert!(refused(Path::new("/nowhere/at/all"), &[]).contains("/nowhere/at/all"));
}

#[test]
fn an_imported_run_is_compared_with_its_like_only() {
    let theirs = imported(&data("llama-bench.json"), &[]);
    let trace = imported(&data("candle.json"), &["--decode", "model"]);
    let without_passes = imported(&data("candle.json"), &[]);
    let compare = |b: &TempDir| {
        let mut command = brickscope(&["compare"]);
        let output = command.arg(theirs.path()).arg(b.path()).output().expect("it starts");
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = compare(&trace);
    assert_eq!(code, Some(2));
    assert!(said.contains("measured by: another program (llama-bench) and another"), "{said}");
    let (code, said) = compare(&without_passes);
    assert_eq!(code, Some(2));
    assert!(said.contains("has no passes") && said.contains("--decode EVENT"), "{said}");
}

#[test]
fn a_packed_trace_is_read_by_a_table_of_ones_own() {
    let folder = TempDir::new().expect("a temporary folder");
    let packed = folder.path().join("rank1.pt.trace.json.gz");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&std::fs::read(data("kineto-gpu.json")).expect("it is there")).expect("room");
    std::fs::write(&packed, gzip.finish().expect("room")).expect("it can be written");
    let map = folder.path().join("mine.toml");
    std::fs::write(&map, "[kernel]\n\"my_triton_*\" = \"MyKernel\"\n").expect("room");
    let dir = imported(&packed, &["--map", map.to_str().expect("UTF-8")]);
    let profile = Profile::load(&dir.path().join("profile.json")).expect("it was written");
    let totals = &profile.devices[0].streams[0].totals;
    assert!(totals.iter().any(|total| total.stats.name == "MyKernel"));
    std::fs::write(&map, "[kernel]\nmy_triton\n").expect("room");
    let said = refused(&packed, &["--map", map.to_str().expect("UTF-8")]);
    assert!(said.contains("mine.toml, line 2: after the pattern comes"), "{said}");
    let said = refused(&packed, &["--map", "/nowhere/mine.toml"]);
    assert!(said.contains("/nowhere/mine.toml"), "{said}");
}

#[test]
fn what_is_no_trace_is_named_with_the_command_for_it() {
    let folder = TempDir::new().expect("a temporary folder");
    let model = folder.path().join("model");
    std::fs::write(&model, b"GGUF\x03\0\0\0\xff").expect("room");
    let said = refused(&model, &[]);
    assert!(said.contains("is a model (GGUF), not a trace: `brickscope profile "), "{said}");
    let said = refused(&data("brickscope-py.json"), &[]);
    assert!(said.contains("is a run already: `brickscope show "), "{said}");
    // Without a pass it is read, and it is said what to do.
    for (args, is_said) in [(&[][..], true), (&["--decode", "decode"], false)] {
        let out = folder.path().join(format!("run{}", args.len()));
        let mut command = brickscope(&["import"]);
        let output = run(command.arg(data("pytorch.json")).arg("--out").arg(&out).args(args));
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.contains("say which are, with --prefill and --decode"), is_said, "{said}");
    }
}

#[test]
fn files_that_help_is_known_for_are_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("a.file");
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
    for (bytes, what) in [
        (&pointer[..], "is a pointer of Git LFS, not the file: `git lfs pull`"),
        (b"SQLite format 3\0 CUPTI_ACTIVITY", "is a database (SQLite)"),
        (b"\"Name\",\"Calls\",\"TotalDurationNs\"\n", "is a table of rocprof without the times"),
        (
            b"prog 42 1.25: 250000 cycles: \n\t  55d0aa main+0x1 (/bin/prog)\n\n",
            "is what `perf script` prints: fold it",
        ),
        (b"main;a 1 2\nmain;b 3 4\n", "has two counts a line, before and after"),
    ] {
        std::fs::write(&file, bytes).expect("it is written");
        let said = refused(&file, if what.contains("counts") { &["--unit", "ns"] } else { &[] });
        assert!(said.contains(what), "{said}");
    }
    // Git's pointer is met by every command.
    std::fs::write(&file, pointer).expect("it is written");
    for command in [
        &["show"][..],
        &["report"],
        &["findings"],
        &["verify-receipt"],
        &["flamegraph"],
        &["profile"],
        &["benchmark"],
    ] {
        let output = brickscope(command).arg(&file).current_dir(folder.path()).output();
        let output = output.expect("it starts");
        assert!(!output.status.success());
        let said = text(&output.stderr).to_owned() + text(&output.stdout);
        assert!(said.contains("a pointer of Git LFS"), "{command:?}: {said}");
    }
}

#[test]
fn a_sweep_of_llama_bench_is_shown_and_compared_as_it_is() {
    let folder = TempDir::new().expect("a temporary folder");
    let bench = std::fs::read_to_string(data("llama-bench.json")).expect("it is there");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&bench).expect("JSON");
    let mut runs = Vec::new();
    for (name, more_ns) in [("a", 0), ("b", 1000)] {
        let mut lines = String::from("ggml_cuda_init: found 1 CUDA devices:\n");
        for depth in [0, 8192] {
            for row in &rows {
                let mut row = row.clone();
                row["n_depth"] = depth.into();
                let first = row["samples_ns"][0].as_u64().expect("a time");
                row["samples_ns"][0] = (first + more_ns).into();
                lines += &format!("{row}\n");
            }
        }
        let file = folder.path().join(format!("{name}.jsonl"));
        // As PowerShell's `>` writes it.
        let units = [0xfeff].into_iter().chain(lines.encode_utf16().collect::<Vec<u16>>());
        std::fs::write(&file, units.flat_map(u16::to_le_bytes).collect::<Vec<_>>()).expect("room");
        let out = folder.path().join(name);
        let output = run(brickscope(&["import"]).arg(&file).arg("--out").arg(&out));
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("4 tests as a list") && said.contains("`import --rows 1,2`"),
            "{said}"
        );
        assert!(said.contains("such as `ggml_cuda_init: found 1 CUDA devices:`: 1"), "{said}");
        runs.push(out);
    }
    let shown = run(brickscope(&["show"]).arg(&runs[0]));
    for test in ["pp512 ", "tg128 ", "pp512 @ d8192 ", "tg128 @ d8192 "] {
        let is_row = |line: &&str| line.starts_with(test) && line.contains(" ± ");
        assert!(text(&shown.stdout).lines().any(|line| is_row(&line)), "{test}");
    }
    let compared = brickscope(&["compare"]).args(&runs).output().expect("it starts");
    assert_eq!(compared.status.code(), Some(3), "one process a side decides nothing");
    assert!(text(&compared.stdout).contains("tg128 @ d8192"), "{}", text(&compared.stdout));
}

#[test]
fn a_flamegraph_of_a_trace_of_a_gpu_is_of_what_ran_there() {
    let dir = imported(&data("kineto-streams.json"), &[]);
    let drawn = |args: &[&str]| {
        let out = TempDir::new().expect("a temporary folder");
        let mut command = brickscope(&["flamegraph", "--json"]);
        command.arg(dir.path()).arg("--out").arg(out.path().join("flames")).args(args);
        let output = run(&mut command);
        let summary: serde_json::Value =
            serde_json::from_str(text(&output.stdout)).expect("flamegraph.json");
        (summary, text(&output.stderr).to_owned())
    };
    let (summary, said) = drawn(&[]);
    assert!(said.contains("what ran on device 0"), "{said}");
    // What `show` says: busy 1.40 ms.
    assert_eq!(summary["total"], 1_403_000);
    assert_eq!(summary["source"]["via"], "device");
    let doubts = summary["doubts"].to_string();
    assert!(doubts.contains("`--host` draws what launched it"), "{doubts}");
    assert!(doubts.contains("are in no pass, and not drawn"), "{doubts}");
    let (of_device, said) = drawn(&["--device", "0"]);
    assert_eq!(of_device["bricks"], summary["bricks"]);
    assert!(!said.contains("what ran on device 0"), "nobody has to be told: {said}");
    let (of_host, _) = drawn(&["--host"]);
    assert_eq!(of_host["source"]["via"], "spans");
    assert_ne!(of_host["bricks"], summary["bricks"]);
    let folded = run(brickscope(&["export", "-f", "folded", "-o", "-"]).arg(dir.path()));
    let weights = text(&folded.stdout).lines().filter_map(|line| line.rsplit_once(' '));
    let total: u64 = weights.map(|(_, weight)| weight.parse::<u64>().expect("a number")).sum();
    assert_eq!(total, 1_403_000);
    let output = brickscope(&["flamegraph", "--device", "1"]).arg(dir.path()).output();
    let output = output.expect("it starts");
    assert!(text(&output.stderr).contains("there is no device 1"), "{}", text(&output.stderr));
}

#[test]
fn two_traces_of_gpus_are_compared_by_what_ran_there() {
    let folder = TempDir::new().expect("a temporary folder");
    let slower = folder.path().join("slower.json");
    let trace = std::fs::read_to_string(data("kineto-streams.json")).expect("it is there");
    std::fs::write(&slower, trace.replace("\"dur\":30,", "\"dur\":31,")).expect("room");
    let (a, b) = (imported(&data("kineto-streams.json"), &[]), imported(&slower, &[]));
    let output =
        brickscope(&["compare", "--json"]).arg(a.path()).arg(b.path()).output().expect("it starts");
    let said: serde_json::Value = serde_json::from_str(text(&output.stdout)).expect("JSON");
    // Two passes a side, each once.
    assert_eq!(said["a"]["samples"], 2);
    assert_eq!(said["b"]["samples"], 2);
    assert_eq!(said["tests"].as_array().map(Vec::len), Some(1));
    assert_eq!(said["tests"][0]["name"], "decode on the device");
}

/// A run imported from so many ranks, of which this one computes a fifth longer.
fn imported_ranks(folder: &Path, name: &str, ranks: u32, slow: u32) -> PathBuf {
    let recording = Recording::of(Net::parallel(4)).steps(&[32; 4]);
    let recording = recording.plant(Planted::SlowRank { rank: slow, percent: 120 });
    let mut command = brickscope(&["import"]);
    for recorded in recording.ranks(ranks) {
        let file = folder.join(format!("{name}-rank{}.pt.trace.json", recorded.truth.rank));
        std::fs::write(&file, recorded.trace).expect("there is room");
        command.arg(file);
    }
    let out = folder.join(name);
    run(command.arg("--out").arg(&out));
    out
}

#[test]
fn ranks_of_two_runs_are_compared_without_a_verdict() {
    let folder = TempDir::new().expect("a temporary folder");
    let a = imported_ranks(folder.path(), "a", 4, 1);
    let b = imported_ranks(folder.path(), "b", 4, 2);
    let compared = |b: &Path, args: &[&str]| {
        let mut command = brickscope(&["compare"]);
        let output = command.arg(&a).arg(b).args(args).output().expect("it starts");
        let said = text(&output.stderr).to_owned();
        (output.status.code(), text(&output.stdout).to_owned(), said)
    };
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (code, shown, said) = compared(&b, &[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(shown.contains("\nRanks: 4 in each; one run each, no verdict\n"), "{shown}");
    assert!(shown.contains("another straggler: rank 1 in A (the others wait "), "{shown}");
    assert!(one_line(&shown).contains(" for it), rank 2 in B (the others wait "), "{shown}");
    let wide = |line: &&str| line.chars().count() > 80 && !line.contains('/');
    assert_eq!(shown.lines().find(wide), None, "{shown}");

    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
    let ranks = &json(&compared(&b, &["--json"]).1)["ranks"];
    assert_eq!(ranks["straggler"]["in"], "another");
    assert_eq!(ranks["slow_links"].as_array().map(Vec::len), Some(0));
    // What rank 1 did a fifth longer in A, and rank 2 in B.
    let own = |rank: usize| ranks["ranks"][rank]["own"]["ratio"].as_f64().expect("it is known");
    assert!((own(0) - 1.0).abs() < 0.02 && (own(3) - 1.0).abs() < 0.02, "{ranks}");
    assert!((0.8..0.88).contains(&own(1)) && (1.15..1.23).contains(&own(2)), "{ranks}");
    // The figures are those that `show` has of each run.
    for (run_of, side) in [(&a, "a_ns"), (&b, "b_ns")] {
        let shown = run(brickscope(&["show", "--as", "json"]).arg(run_of));
        let sums = &json(text(&shown.stdout))["in_collectives"];
        for rank in 0..4_usize {
            let (of, change) = (&sums["ranks"][rank], &ranks["ranks"][rank]);
            assert_eq!(of["own_ns"], change["own"][side]);
            assert_eq!(of["wait_ns"], change["wait"][side]);
        }
        assert_eq!(sums["kinds"][0]["transfer_ns"], ranks["transfers"][0]["transfer"][side]);
    }

    // Another number of ranks is another condition.
    let two = imported_ranks(folder.path(), "two", 2, 1);
    let (code, _, said) = compared(&two, &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("ranks: 4 of 4 and 2 of 2"), "{said}");
    let (_, shown, said) = compared(&two, &["--force"]);
    let words = one_line(&shown);
    assert!(words.contains("Ranks: 4 in A and 2 in B, so not rank by rank"), "{shown}{said}");
    assert!(words.contains("slowest by itself rank 1 in A, "), "{shown}");
}

#[test]
fn the_tables_of_a_trace_of_a_gpu_are_of_what_ran_there() {
    let dir = imported(&data("kineto-streams.json"), &[]);
    let shown = |args: &[&str]| {
        let output = run(brickscope(&["show"]).arg(dir.path()).args(args));
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    for view in ["kernels", "statistics", "tree"] {
        let (of_device, said) = shown(&["--as", view]);
        assert!(said.contains("of what ran on device 0: `--host` shows"), "{view}: {said}");
        assert!(of_device.contains("MatMul") || of_device.contains("Cijk_"), "{view}: {of_device}");
        assert_eq!(shown(&["--as", view, "--device", "0"]), (of_device.clone(), String::new()));
        assert_ne!(shown(&["--as", view, "--host"]).0, of_device);
    }
}

/// Five files of llama-bench in a folder, a day apart, each test slower by as much.
fn nights(folder: &Path, build: &str, slower: f64) {
    std::fs::create_dir_all(folder).expect("there is room");
    let bench = std::fs::read_to_string(data("llama-bench.json")).expect("it is there");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&bench).expect("JSON");
    for night in 0..5_u64 {
        let mut lines = String::new();
        for depth in [0, 8192] {
            for row in &rows {
                let mut row = row.clone();
                row["n_depth"] = depth.into();
                row["build_commit"] = build.into();
                row["test_time"] = format!("2026-11-1{night}T09:00:00Z").into();
                for sample in row["samples_ns"].as_array_mut().expect("times") {
                    let ns = sample.as_f64().expect("a time") * slower;
                    *sample = (ns as u64 + 1000 * night).into();
                }
                lines += &format!("{row}\n");
            }
        }
        std::fs::write(folder.join(format!("{night}.jsonl")), lines).expect("there is room");
    }
}

const UNSEALED: &str = "no receipt: what llama-bench states isn't verified";

#[test]
fn files_of_llama_bench_are_compared_and_gated_without_a_receipt_and_that_is_said() {
    let folder = TempDir::new().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    nights(&at("old"), "0c1e5709", 1.0);
    nights(&at("new"), "1c1e5709", 1.1);
    // The same nights, imported.
    for night in 0..5 {
        let (file, out) =
            (at("new").join(format!("{night}.jsonl")), at("runs").join(night.to_string()));
        run(brickscope(&["import"]).arg(file).arg("--out").arg(out));
    }
    for new in ["new", "runs"] {
        let compared = brickscope(&["compare"]).arg(at("old")).arg(at(new)).output();
        let compared = compared.expect("it starts");
        let said = text(&compared.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(compared.status.code(), Some(1), "{said}{}", text(&compared.stderr));
        assert!(said.contains("tg128 @ d8192"), "{said}");
        for side in ["A", "B"] {
            assert!(said.contains(&format!("{side}, each of 5 processes: {UNSEALED}")), "{said}");
        }
    }
    let gate = |more: &[&str], run: &str| {
        let mut gate = brickscope(&["gate", "--baseline"]);
        gate.arg(at("baseline")).args(more).arg(at(run)).output().expect("it starts")
    };
    let made = gate(&["--update"], "old");
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(text(&made.stderr).contains(UNSEALED), "{}", text(&made.stderr));
    assert!(at("baseline").join("5/profile.json").is_file());
    for (run, code) in [("old", 2), ("new", 1), ("runs", 1)] {
        let judged = gate(&[], run);
        let said = format!("{}{}", text(&judged.stdout), text(&judged.stderr));
        assert_eq!(judged.status.code(), Some(code), "{run}: {said}");
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code == 2 && words.contains("the same run") || words.contains(UNSEALED), "{said}");
    }
    // Tables have no times.
    let table = "| model | test | t/s |\n| --- | --- | --- |\n| a | tg128 | 118.88 ± 1.04 |\n";
    std::fs::write(at("bench.md"), table).expect("there is room");
    std::fs::write(at("later.md"), table.replace("118.88", "108.07")).expect("there is room");
    let compared = brickscope(&["compare"]).arg(at("bench.md")).arg(at("later.md")).output();
    let compared = compared.expect("it starts");
    assert_eq!(compared.status.code(), Some(3), "{}", text(&compared.stderr));
    let said = text(&compared.stdout);
    assert!(said.starts_with("No verdict: rates without the times"), "{said}");
    let row = ["118.88 ± 1.04", "108.07 ± 1.04", "+10.0 % time"];
    assert!(said.lines().any(|line| row.iter().all(|of| line.contains(of))), "{said}");
    // The file itself is shown, too.
    let shown = run(brickscope(&["show"]).arg(at("later.md")));
    assert!(text(&shown.stdout).contains("tg128 108.07 ± 1.04"), "{}", text(&shown.stdout));
    // And judged by no limit.
    let gate = brickscope(&["gate", "--min-tokens-per-second", "20"]).arg(at("bench.md")).output();
    let gate = gate.expect("it starts");
    assert_eq!(gate.status.code(), Some(2));
    let said = text(&gate.stderr);
    assert!(said.contains("bench.md") && said.contains("`llama-bench -o jsonl`"), "{said}");
}

#[test]
fn the_history_of_files_of_llama_bench_has_a_series_for_each_test() {
    let folder = TempDir::new().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    nights(&at("nights"), "0c1e5709", 1.0);
    // One of them twice: as a file, and imported.
    let out = at("nights").join("imported");
    run(brickscope(&["import"]).arg(at("nights").join("0.jsonl")).arg("--out").arg(&out));
    std::fs::write(at("nights").join("notes.json"), "{\"t/s\": 1}").expect("there is room");
    let broken = std::fs::read_to_string(at("nights").join("1.jsonl")).expect("it is there");
    let broken = broken.replace("\"n_gen\":", "\"n_gen\":\"x\",\"was\":");
    std::fs::write(at("nights").join("broken.jsonl"), broken).expect("there is room");
    let shown = run(brickscope(&["history"]).arg(at("nights")));
    let said = text(&shown.stdout);
    assert!(
        said.starts_with("5 runs in 4 series; 5 not verified, see below; 2 left out, "),
        "{said}"
    );
    assert!(
        said.contains("\ntg128 @ d8192: 1b-q4_k.gguf llama 1B Q4_K - Medium, 2 threads, CPU"),
        "{said}"
    );
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("AMD EPYC 9R14") && words.contains(UNSEALED), "{said}");
    assert!(
        words.contains("the same measurements as ") && words.contains("row 1, n_gen: is not"),
        "{said}"
    );
    let json = run(brickscope(&["history", "-o", "json"]).arg(at("nights")));
    let json: serde_json::Value = serde_json::from_str(text(&json.stdout)).expect("JSON");
    assert_eq!((&json["runs"], &json["without_receipt"]), (&5.into(), &5.into()));
    let first = &json["series"][0]["points"][0];
    assert_eq!((&first["commit"], &first["repetitions"]), (&"0c1e5709".into(), &3.into()));
    // All of them in one file, as `llama-bench >> FILE` has them.
    std::fs::create_dir(at("appended")).expect("there is room");
    let night = |n: u32| {
        std::fs::read_to_string(at("nights").join(format!("{n}.jsonl"))).expect("it is there")
    };
    let all: String = (0..5).map(night).collect();
    std::fs::write(at("appended").join("nightly.jsonl"), all).expect("there is room");
    let appended = run(brickscope(&["history"]).arg(at("appended")));
    assert!(
        text(&appended.stdout).starts_with("5 runs in 4 series; 1 not verified"),
        "{appended:?}"
    );
    // Each is the same as in its own file, whatever is beside it; one more, by a newer build that states more.
    std::fs::copy(at("nights").join("3.jsonl"), at("appended").join("3.jsonl"))
        .expect("there is room");
    let newer = night(4)
        .replace("0c1e5709", "11111111")
        .replace("\"n_gen\":", "\"no_host\":false,\"n_gen\":");
    let newer = newer.replace("2026-11-14", "2026-11-15").replace("000000", "000001");
    let nightly = at("appended").join("nightly.jsonl");
    let before = std::fs::read_to_string(&nightly).expect("it is there");
    std::fs::write(&nightly, before + &newer).expect("there is room");
    let appended = run(brickscope(&["history"]).arg(at("appended")));
    let words = text(&appended.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.starts_with("6 runs in 4 series; 1 not verified, see below; 1 left out"),
        "{words}"
    );
    assert!(words.contains("the same measurements as "), "{words}");
    // The model's name selects, and other settings are other series.
    let one = brickscope(&["history", "--model", "1b-q4_k.gguf", "--test", "tg128"])
        .arg(at("nights"))
        .output();
    assert_eq!(one.expect("it starts").status.code(), Some(0));
    nights(&at("others"), "0c1e5709", 1.2);
    let other = std::fs::read_to_string(at("others").join("2.jsonl")).expect("it is there");
    let other = other.replace("\"type_k\":\"f16\"", "\"type_k\":\"q8_0\"");
    std::fs::write(at("nights").join("other.jsonl"), other).expect("there is room");
    let shown = run(brickscope(&["history"]).arg(at("nights")));
    let words = text(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("6 runs in 8 series") && words.contains("type_k q8_0"), "{words}");
    // Without the time of a test it has no place.
    let undated = std::fs::read_to_string(at("nights").join("0.jsonl")).expect("it is there");
    let undated = undated.replace("test_time", "test_tide");
    std::fs::write(at("undated.jsonl"), undated).expect("there is room");
    let refused = brickscope(&["history"]).arg(at("undated.jsonl")).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("it doesn't state when it was measured"));
}
