//! `brickscope flamegraph`, on programs with known flamegraphs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Instant;

use brickscope_engine::synth::{self, Shape, SynthQuant};
use serde_json::Value;
use tempfile::TempDir;

use brickscope_testing::command::{self, brickscope, run, text};
use brickscope_testing::patience::skipped;

/// The program `examples/known_flamegraph.rs`, which is built with the tests.
fn known_flamegraph() -> String {
    let program = command::program().with_file_name("examples/known_flamegraph");
    assert!(program.exists(), "{} is built with the tests", program.display());
    program.to_str().expect("UTF-8").to_owned()
}

fn tiny() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flamegraph");
    let path = synth::cached(Shape::Tiny, SynthQuant::Q8_0, 1, &folder, &mut |_, _| {});
    path.expect("a model").to_str().expect("UTF-8").to_owned()
}

fn folder() -> (TempDir, String) {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("out").to_str().expect("UTF-8").to_owned();
    (dir, out)
}

fn json(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// The functions of each stack, with its weight.
fn folded(out: &str) -> Vec<(Vec<String>, u64)> {
    let text = fs::read_to_string(Path::new(out).join("flamegraph.folded")).expect("it is written");
    text.lines()
        .map(|line| {
            let (stack, weight) = line.rsplit_once(' ').expect("a weight");
            let frames = stack.split(';').map(str::to_owned).collect();
            (frames, weight.parse().expect("a number"))
        })
        .collect()
}

/// The sources that work on this machine. Prints the others.
fn sources(candidates: &[&'static str]) -> Vec<&'static str> {
    // Whether the system lets a program be sampled, and whether there is perf.
    static CAN: OnceLock<[bool; 2]> = OnceLock::new();
    let [can_sample, has_perf] = *CAN.get_or_init(|| {
        let doctor = run(&mut brickscope(&["doctor", "--json"]));
        let findings: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
        let can_sample = findings
            .as_array()
            .expect("findings")
            .iter()
            .any(|finding| finding["name"] == "sampling" && finding["ok"] == true);
        let perf = Command::new("perf").arg("--version").output();
        [can_sample, perf.is_ok_and(|output| output.status.success())]
    });
    let works = |source: &&&str| match **source {
        "sampler" => can_sample,
        "perf" => can_sample && has_perf,
        _ => true,
    };
    for source in candidates.iter().filter(|source| !works(source)) {
        skipped(&format!("--via {source} doesn't work here"));
    }
    candidates.iter().filter(works).copied().collect()
}

fn refused(args: &[&str]) -> String {
    let output = brickscope(args).output().expect("it starts");
    assert!(!output.status.success(), "{args:?} is refused");
    assert_ne!(output.status.code(), Some(101), "{args:?} panics");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// The samples of `known_flamegraph plain`.
struct Split {
    stacks: Vec<(Vec<String>, u64)>,
}

impl Split {
    fn sampled(via: &str, cpu_millis: &str) -> Self {
        let (_dir, out) = folder();
        let program = known_flamegraph();
        let of_it = ["--", &program, "plain", cpu_millis];
        run(&mut brickscope(&[&["flamegraph", "--via", via, "-o", &out], &of_it[..]].concat()));
        Self { stacks: folded(&out) }
    }

    /// Those in a function.
    fn of(&self, function: &str) -> u64 {
        let has = |frames: &[String]| frames.iter().any(|frame| frame.ends_with(function));
        self.stacks.iter().filter(|(frames, _)| has(frames)).map(|(_, weight)| weight).sum()
    }

    /// Those in the function that takes three quarters, and in the other one.
    fn parts(&self) -> [u64; 2] {
        ["::three_quarters", "::one_quarter"].map(|function| self.of(function))
    }
}

/// CPU times in milliseconds. Any sampler should have a hundred samples after the first; one that the system lets take
/// few has more time.
const CPU_MILLIS: [&str; 5] = ["800", "3200", "12800", "51200", "204800"];

#[test]
fn three_quarters_and_one_quarter_are_seen_by_every_sampler() {
    let _alone = crate::alone();
    let by_clock = Command::new(known_flamegraph()).arg("share").output().expect("it starts");
    let by_clock = String::from_utf8_lossy(&by_clock.stdout).trim().parse::<f64>();
    let by_clock = by_clock.expect("a share");
    assert!((0.6..0.9).contains(&by_clock), "{by_clock}");
    for via in sources(&["sampler", "timer", "perf"]) {
        let mut all = CPU_MILLIS.iter().map(|millis| Split::sampled(via, millis));
        let Some(split) = all.find(|split| split.parts().iter().sum::<u64>() > 100) else {
            skipped(&format!("--via {via} took at most 100 samples in 204 s of CPU time"));
            continue;
        };
        let [most, least] = split.parts();
        // Five standard deviations of this many samples, and what else on the machine slows one loop more.
        let n = (most + least) as f64;
        let allowed = 5.0 * (by_clock * (1.0 - by_clock) / n).sqrt() + 0.02;
        let share = most as f64 / n;
        let all = format!("{via}: {share} of {n}, {by_clock} by the clock");
        assert!((share - by_clock).abs() < allowed, "{all}");
        // Whole stacks, from the program's beginning, with inlined functions.
        let whole = split.stacks.iter().filter(|(frames, _)| {
            frames.iter().any(|frame| frame == "main" || frame.ends_with("::main"))
        });
        let whole: u64 = whole.map(|(_, weight)| weight).sum();
        assert!(whole as f64 > 0.9 * n, "{via}: {whole} of {n} begin with main");
        assert!(split.of("::spin") > 0, "{via}: inlined functions are named");
    }
}

/// A run of `known_flamegraph forward`: a real model with a spin in one brick of one layer.
struct Forward {
    stacks: Vec<(Vec<String>, u64)>,
    summary: Value,
    profile: Value,
    /// Whether the host of this machine took much of a CPU meanwhile, which no program sees in passes as short as these.
    was_stolen_from: bool,
}

impl Forward {
    fn recorded(via: &str, model: &str, tokens: &str, threads: &str) -> Self {
        let (_dir, out) = folder();
        let program = known_flamegraph();
        let words = ["flamegraph", "--via", via, "--by", "layer", "-o", &out];
        let of_it = ["--", &program, "forward", model, tokens, threads];
        let (before, start) = (stolen(), Instant::now());
        run(&mut brickscope(&[&words[..], &of_it].concat()));
        Self {
            stacks: folded(&out),
            summary: json(Path::new(&out).join("flamegraph.json")),
            profile: json(Path::new(&out).join("profile.json")),
            was_stolen_from: stolen() - before > 0.05 * start.elapsed().as_secs_f64(),
        }
    }

    fn weight(&self, is_it: impl Fn(&[String]) -> bool) -> u64 {
        self.stacks.iter().filter(|(frames, _)| is_it(frames)).map(|(_, weight)| weight).sum()
    }

    fn total(&self) -> u64 {
        self.weight(|_| true)
    }

    /// The weight where the spin is. It is a quarter at least, and this brick in the other eleven layers takes little.
    fn here(&self) -> u64 {
        self.weight(|frames| frames.len() > 2 && is_in_place(frames))
    }

    fn is_seen_here(&self) -> bool {
        self.here() as f64 > 0.15 * self.total() as f64
    }
}

/// Where the spin is.
fn is_in_place(frames: &[String]) -> bool {
    frames[0] == "decode" && frames[1] == "layer 3" && frames[2] == "DownProjection"
}

/// The CPU time that the host of this machine has taken, in seconds, where the system says so.
fn stolen() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok());
    // In hundredths of a second, on every machine that we know.
    ticks.unwrap_or(0.0) / 100.0
}

fn is_spin(frames: &[String]) -> bool {
    frames.iter().any(|frame| frame.ends_with("::planted_spin"))
}

#[test]
fn a_spin_in_one_brick_of_one_layer_is_seen_there_by_every_source() {
    let _alone = crate::alone();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flamegraph");
    let model = synth::cached(Shape::M110, SynthQuant::Q8_0, 1, &cache, &mut |_, _| {});
    let model = model.expect("a model").to_str().expect("UTF-8").to_owned();
    let samplers = sources(&["sampler", "timer", "perf"]);
    for via in samplers {
        let spun = |run: &Forward| run.weight(is_spin);
        let mut all = ["60", "240", "960"].iter().map(|n| Forward::recorded(via, &model, n, "2"));
        let Some(run) = all.find(|run| spun(run) > 30) else {
            skipped(&format!("--via {via} took at most 30 samples in 960 spins"));
            continue;
        };
        let (spun, total) = (spun(&run), run.total());
        let right = run.weight(|frames| is_spin(frames) && is_in_place(frames));
        // The clocks differ by less than a microsecond, and the spin takes milliseconds.
        assert!(right as f64 > 0.98 * spun as f64, "{via}: {right} of {spun} in their place");
        let agreement = &run.summary["agreement"];
        assert!(agreement["samples"].as_u64().expect("samples") > 50, "{via}: {agreement}");
        // While a thread waits for its core it is measured but not sampled. Then the two may differ by any
        // number of points, and the summary says why.
        let disturbed = agreement["disturbed"].as_bool().expect("it is told");
        let warnings = run.summary["doubts"].as_array().expect("warnings").iter();
        let told = warnings
            .filter_map(Value::as_str)
            .any(|warning| warning.contains("disturbed passes, too"));
        assert_eq!(disturbed, told, "{via}");
        let passes = run.profile["passes"].as_array().expect("passes");
        let is_known = passes.iter().all(|pass| !pass["disturbance"].is_null());
        let bricks = agreement["bricks"].as_array().expect("bricks").iter();
        for brick in bricks.filter(|_| !disturbed && is_known && !run.was_stolen_from) {
            let of = |key: &str| brick[key].as_f64().expect("a share");
            let apart = (of("measured") - of("sampled")).abs();
            assert!(apart < 2.0 * of("allowed") + 0.05, "{via}: {brick}");
        }
        assert!(run.is_seen_here(), "{via}: {} of {total}", run.here());
    }

    let adds_up = |run: &Forward| {
        let sum: u64 = run.profile["phases"]
            .as_array()
            .expect("phases")
            .iter()
            .map(|phase| phase["wall_ns"].as_u64().expect("nanoseconds"))
            .sum();
        assert_eq!(run.total(), sum, "folded sums are the profile's walls");
    };
    let run = Forward::recorded("spans", &model, "60", "2");
    adds_up(&run);
    if !run.is_seen_here() {
        // Beside other programs two threads wait for each other at each product, much longer than they compute, so a
        // spin is a smaller part of a pass. One thread never waits for another.
        let passes = run.profile["passes"].as_array().expect("passes");
        let longest_wait = |pass: &Value| pass["disturbance"]["longest_wait_ns"].as_u64();
        let waited = passes.iter().filter(|pass| longest_wait(pass) > Some(0)).count();
        assert!(2 * waited > passes.len(), "{} of {}: {waited} waits", run.here(), run.total());
        let alone = Forward::recorded("spans", &model, "60", "1");
        adds_up(&alone);
        assert!(alone.is_seen_here(), "{} of {}", alone.here(), alone.total());
    }
}

#[test]
fn all_forms_of_a_run_are_written_and_add_up() {
    let _alone = crate::alone();
    let (_dir, out) = folder();
    let model = tiny();
    let args =
        ["flamegraph", &model, "--threads", "1", "--via", "spans", "-o", &out, "--tokens", "8"];
    let output = run(&mut brickscope(&args));
    assert!(text(&output.stderr).starts_with("✓ spans"), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.lines().all(|line| line.chars().count() <= 80 || line.contains(&out)),
        "{printed}"
    );
    let summary = json(Path::new(&out).join("flamegraph.json"));
    let total = summary["total"].as_u64().expect("nanoseconds");
    assert_eq!(folded(&out).iter().map(|(_, weight)| weight).sum::<u64>(), total);
    let speedscope = json(Path::new(&out).join("speedscope.json"));
    let weights = speedscope["profiles"][0]["weights"].as_array().expect("weights");
    assert_eq!(weights.iter().map(|weight| weight.as_u64().expect("whole")).sum::<u64>(), total);
    let sum = |key: &str| -> u64 {
        let shares = summary[key].as_array().expect("shares").iter();
        shares.map(|share| share["weight"].as_u64().expect("nanoseconds")).sum()
    };
    assert_eq!((sum("bricks"), sum("classes")), (total, total));
    for file in ["flamegraph.svg", "flamegraph.md", "profile.pb.gz", "profile.json"] {
        assert!(
            fs::metadata(Path::new(&out).join(file)).is_ok_and(|file| file.len() > 0),
            "{file}"
        );
    }

    // What the picture doesn't show is counted, in it and in the tables.
    let of = |what: &str| {
        let hidden = json(Path::new(&out).join("flamegraph.json"))["hidden"].clone();
        assert_eq!(hidden["width"], 1200);
        hidden[what]["frames"].as_u64().expect("a number")
    };
    let svg = fs::read_to_string(Path::new(&out).join("flamegraph.svg")).expect("it was written");
    let unnamed = svg.matches("\"></text></g>").count() as u64;
    assert_eq!(of("unnamed"), unnamed);
    if unnamed > 0 {
        assert!(svg.contains("without its name at 1200 pixels: "), "{svg:.3000}");
        assert!(printed.contains("without its name at 1200 pixels: "), "{printed}");
    }

    // Drawn again from the run in another way, into its folder.
    let has_layers =
        || folded(&out).iter().any(|(frames, _)| frames.iter().any(|f| f.starts_with("layer ")));
    assert!(!has_layers(), "bricks come first");
    run(&mut brickscope(&["flamegraph", &out, "--by", "layer"]));
    assert!(has_layers());
    // A comparison is drawn as its baseline is, whichever way it comes out.
    brickscope(&["flamegraph", &out, "--diff", &out]).output().expect("it starts");
    assert!(has_layers());
    run(&mut brickscope(&["flamegraph", &out]));
    assert!(!has_layers());
    let why = refused(&["flamegraph", &out, "--via", "sampler"]);
    assert!(why.contains("has no samples"), "{why}");
    let why = refused(&["flamegraph", &model, "-o", &out]);
    assert!(why.contains("already holds a run"), "{why}");
    fs::write(Path::new(&out).join("diff.md"), "of the old one").expect("it is written");
    let drawn = || fs::read_to_string(Path::new(&out).join("profile.json")).expect("it is there");
    let before = drawn();
    run(&mut brickscope(&[&args[..], &["--overwrite"]].concat()));
    assert_ne!(drawn(), before);
    assert!(!Path::new(&out).join("diff.md").exists());

    // The text says what passes took; what is replaced stays, and the folder's page lists both.
    let told = fs::read_to_string(Path::new(&out).join("flamegraph.md")).expect("it was written");
    for said in ["**Latency**: decode ", "\n### By phase\n", "\n## Insights\n\n- decode: "] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let before = drawn();
    run(&mut brickscope(&[&args[..], &["--overwrite", "--archive"]].concat()));
    let folder = Path::new(&out).parent().expect("a folder");
    let kept: Vec<PathBuf> = fs::read_dir(folder.join("archives"))
        .expect("it was made")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fs::read_to_string(kept[0].join("profile.json")).expect("copied"), before);
    assert_ne!(drawn(), before);
    run(&mut brickscope(&["flamegraph", "--index", folder.to_str().expect("UTF-8")]));
    let page = fs::read_to_string(folder.join("README.md")).expect("it was written");
    assert!(page.contains("[out](out/flamegraph.md)"), "{page}");
    assert!(page.contains("(archives/out-"), "{page}");
    assert!(refused(&["flamegraph", "--archive", "-o", &out, &model]).contains("--overwrite"));
}

#[test]
fn what_grew_ends_with_code_1() {
    let _alone = crate::alone();
    let dir = TempDir::new().expect("a temporary folder");
    let write = |name: &str, content: &str| -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, content).expect("it is written");
        path
    };
    let path = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
    let before = path(&write("before.folded", "main;work 900\nmain;copy 100\nmain;gone 50\n"));
    let after = path(&write("after.folded", "main;work 900\nmain;copy 300\n"));
    let diff = |new: &str, old: &str, out: &str| -> Output {
        let out = dir.path().join(out);
        let args = ["flamegraph", new, "--diff", old, "-o", out.to_str().expect("UTF-8")];
        brickscope(&args).output().expect("it starts")
    };
    let grown = diff(&after, &before, "grown");
    assert_eq!(grown.status.code(), Some(1), "{}", String::from_utf8_lossy(&grown.stderr));
    let said = text(&grown.stdout);
    assert!(said.contains("copy") && said.contains("gone"), "{said}");
    for file in ["diff.svg", "diff-reverse.svg", "diff.md", "flamegraph.svg"] {
        assert!(dir.path().join("grown").join(file).exists(), "{file}");
    }
    let reverse = fs::read_to_string(dir.path().join("grown/diff-reverse.svg")).expect("SVG");
    assert!(reverse.contains("gone"), "a vanished function is in the reverse flamegraph");
    assert_eq!(diff(&before, &before, "same").status.code(), Some(0));
    assert_eq!(diff(&before, "/nowhere", "none").status.code(), Some(2));
}

#[test]
fn hostile_input_is_drawn_or_refused_with_a_sentence() {
    let _alone = crate::alone();
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("out").to_str().expect("UTF-8").to_owned();
    let input = dir.path().join("input");
    let name = input.to_str().expect("UTF-8").to_owned();
    let write = |content: &[u8]| fs::write(&input, content).expect("it is written");

    let deep: Vec<String> = (0..2000).map(|i| format!("f{i}")).collect();
    write(format!("{} 7\n", deep.join(";")).as_bytes());
    run(&mut brickscope(&["flamegraph", &name, "-o", &out]));
    assert_eq!(folded(&out), [(deep, 7)]);
    let said = refused(&["flamegraph", &name, "-o", &out]);
    assert!(said.contains("already holds a run"), "{said}");
    let out = out + "-2";

    write("a\"<b>&'c;d e\u{202e}f;größe 3\n".as_bytes());
    run(&mut brickscope(&["flamegraph", &name, "-o", &out]));
    let svg = fs::read_to_string(Path::new(&out).join("flamegraph.svg")).expect("SVG");
    assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;"));

    for (content, why) in [
        (&b""[..], "is empty"),
        (b"a;b c\n", "line 1"),
        (b"PERFILE2", "cut off"),
        (b"\0\0\0\0", "neither a GGUF file"),
        (b"{}", "JSON"),
        (b"a;b 99999999999999999999999\n", "line 1"),
    ] {
        write(content);
        let said = refused(&["flamegraph", &name, "-o", &out]);
        assert!(said.contains(why), "{content:?}: {said}");
        assert!(said.contains("input"), "it names the file: {said}");
    }
    let out = out + "-3";
    let said = refused(&["flamegraph", "-o", &out, "--", "/no/such/program"]);
    assert!(said.contains("/no/such/program"), "{said}");
}

#[test]
fn a_command_without_spans_is_drawn_again_from_its_samples() {
    let _alone = crate::alone();
    if sources(&["sampler"]).is_empty() {
        return;
    }
    let program = known_flamegraph();
    let drawn = CPU_MILLIS.into_iter().find_map(|millis| {
        let (dir, out) = folder();
        let words = ["flamegraph", "-o", &out, "--", &program, "plain", millis];
        let output = brickscope(&words).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        // On a busy machine the system may take none in so short a time.
        if !output.status.success() && said.contains("no samples were taken") {
            return None;
        }
        assert!(output.status.success(), "{millis} ms: {said}");
        Some((dir, out))
    });
    let Some((_dir, out)) = drawn else {
        skipped("no sample was taken in 204 s of CPU time");
        return;
    };
    let first = json(Path::new(&out).join("flamegraph.json"));
    run(&mut brickscope(&["flamegraph", &out, "--by", "thread"]));
    let again = json(Path::new(&out).join("flamegraph.json"));
    for key in ["total", "command", "generated", "source"] {
        assert_eq!(first[key], again[key], "{key}");
    }
    assert!(folded(&out).iter().all(|(frames, _)| frames[0].starts_with("known_flamegra")));
    // Existing samples aren't taken for another program's.
    let why = refused(&["flamegraph", "--via", "timer", "-o", &out, "--", "true"]);
    assert!(why.contains("already holds a run"), "{why}");
}

#[test]
fn a_run_beside_itself_has_not_moved() {
    let _alone = crate::alone();
    let (_dir, out) = folder();
    let model = tiny();
    let args = ["flamegraph", &model, "--threads", "1", "--via", "spans", "-o", &out];
    run(&mut brickscope(&[&args[..], &["--tokens", "60"]].concat()));
    let (_other, again) = folder();
    let output = brickscope(&["flamegraph", &out, "-o", &again, "--diff", &out])
        .output()
        .expect("it starts");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let svg = fs::read_to_string(Path::new(&again).join("diff.svg")).expect("SVG");
    assert!(!svg.contains("(new"), "nothing is new in a run beside itself");
}

#[test]
fn a_program_that_does_nothing_has_no_flamegraph_and_that_is_said() {
    let _alone = crate::alone();
    if sources(&["sampler"]).is_empty() {
        return;
    }
    let (_dir, out) = folder();
    let output = brickscope(&["flamegraph", "--frequency", "1", "-o", &out, "--", "true"])
        .output()
        .expect("it starts");
    // One sample per second of a program that runs for a millisecond.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no samples were taken"), "{said}");
}

#[test]
fn without_perf_and_without_a_run_it_says_why_not_and_what_to_do() {
    let _alone = crate::alone();
    let (_dir, out) = folder();
    let said = String::from_utf8(
        brickscope(&["flamegraph", "--via", "perf", "-o", &out, "--", "true"])
            .env("PATH", "/nowhere")
            .output()
            .expect("it starts")
            .stderr,
    )
    .expect("UTF-8");
    assert!(said.contains("✗ perf") && said.contains("can't use perf"), "{said}");
    let said = refused(&["flamegraph", "--via", "spans", "-o", &out, "--", "true"]);
    assert!(said.contains("save_where_asked"), "{said}");
    let said = refused(&["flamegraph", "--via", "timer", "-o", &out, "--", "true"]);
    assert!(said.contains("only a program that samples itself"), "{said}");
}
