//! `cargo bench --bench no_probe`: checks that a forward pass with `NoProbe` runs the instructions of one without
//! probes in its source.
//!
//! The engine is built in one folder below `target/no_probe`: as it is, and with every probe and tap
//! cut out of `forward.rs`, so that `p.brick(.., || body)` becomes `(|| body)()`. Then valgrind counts
//! every instruction of the program while it decodes some tokens on one thread. The difference between
//! more tokens and fewer tokens is the forward pass alone.
//!
//! A third build has `{ body }` in place of the closures. It does the same work too, and shows the noise of
//! compilation: other source puts other values in registers, and some instructions come or go. So
//! the counts need not be equal, but a pass with `NoProbe` must have less than one instruction more per probe.
//! A probe that leaves a trace leaves it at each call.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use brickscope::BrickProfiler;
use brickscope_engine::executor::Cpu;
use brickscope_engine::{Model, Session};
use brickscope_kernels::Kernels;

/// Models of `tests/data/models`: the plain pass, one with biases, one with norms inside blocks.
const MODELS: [&str; 3] = ["tiny-Q8_0", "tiny-qwen2-Q4_K_M", "tiny-bitnet-TQ2_0"];
const FEW: i64 = 4;
const MANY: i64 = 12;

/// What a build needs besides the members of the workspace: the root's own files, and those that its sources include.
const SOURCES: [&str; 7] =
    ["Cargo.toml", "Cargo.lock", "README.md", "docs", "src", "examples", "benches"];

fn main() -> ExitCode {
    if !env::args().any(|arg| arg == "--bench") {
        println!("nothing to test here: `cargo bench --bench no_probe` runs this");
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Whether the check passes.
fn run() -> Result<bool, String> {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err("this needs valgrind, which counts instructions: `apt install valgrind`".into());
    }
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = engine.parent().expect("the engine is a folder of the repository");
    let scratch = target_dir().join("no_probe");

    // All are built in one place: paths are part of symbols' names, and the compiler's choices depend, among
    // other things, on the order of names.
    let tree = scratch.join("tree");
    // A file that was deleted since the last run would still be compiled.
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml"));
    let manifest = manifest.map_err(|error| format!("Cargo.toml: {error}"))?;
    for source in SOURCES.into_iter().chain(members(&manifest)?) {
        copy(&root.join(source), &tree.join(source))
            .map_err(|error| format!("{source}: {error}"))?;
    }
    let forward = tree.join("engine/src/forward.rs");
    let source = fs::read_to_string(&forward).map_err(|error| error.to_string())?;
    let as_it_is = build(&scratch, "as it is")?;
    let cut = |body: Body| {
        let source = without_probes(&source, body)?;
        fs::write(&forward, source).map_err(|error| error.to_string())
    };
    cut(Body::Closure)?;
    let closures = build(&scratch, "without probes")?;
    cut(Body::Block)?;
    let blocks = build(&scratch, "without probes and closures")?;

    let mut backends = vec!["scalar"];
    if has_avx2() {
        backends.push("avx2");
    }
    let tokens = MANY - FEW;
    println!("instructions of {tokens} decoded tokens, on one thread");
    let heads = ["NoProbe", "no probes", "difference", "a probe", "nor closures", "difference"];
    print_row(["", ""], heads.map(str::to_owned));
    let (mut all_equal, mut most) = (true, f64::NEG_INFINITY);
    for model in MODELS {
        let path = engine.join("../tests/data/models").join(model).with_extension("gguf");
        let probes = tokens * probes_of_a_token(&path).map_err(|error| error.to_string())?;
        for &backend in &backends {
            let count = |program| -> Result<i64, String> {
                let [many, few] = [MANY, FEW].map(|n| instructions(program, &path, n, backend));
                Ok(many? - few?)
            };
            let (with, without) = (count(&as_it_is)?, count(&closures)?);
            let plain = count(&blocks)?;
            let more = (with - without) as f64 / probes as f64;
            all_equal &= with == without;
            most = most.max(more);
            let figures =
                [with, without, with - without, plain, with - plain].map(|n| n.to_string());
            let [with, without, difference, plain, other] = figures;
            let figures = [with, without, difference, format!("{more:.2}"), plain, other];
            print_row([model, backend], figures);
        }
    }
    match most {
        _ if all_equal => println!("equal: a pass with NoProbe has no trace of a probe"),
        ..1.0 => println!("pass: less than one instruction more for each probe, {most:.2} at most"),
        _ => println!("FAIL: a pass with NoProbe has {most:.2} instructions more for each probe"),
    }
    Ok(most < 1.0)
}

/// The bricks and kernels that a token's pass reports, counted by a profiler.
fn probes_of_a_token(model: &Path) -> Result<i64, Box<dyn Error>> {
    let model = Model::open(model)?;
    let cpu = Cpu::new(Kernels::best(), NonZeroUsize::MIN)?;
    let profiler = BrickProfiler::enabled();
    Session::new(&model, cpu, 1)?.forward_profiled(&profiler, &[1])?;
    Ok(profiler.profile().totals.iter().map(|total| total.stats.count as i64).sum())
}

fn print_row([model, backend]: [&str; 2], figures: [String; 6]) {
    print!("{model:18} {backend:6}");
    figures.iter().for_each(|figure| print!(" {figure:>12}"));
    println!();
}

/// The target directory that this program was built in: `target` of `target/release/deps/no_probe-…`.
fn target_dir() -> PathBuf {
    let this = env::current_exe().expect("the system knows which program runs");
    this.ancestors().nth(3).expect("cargo builds in `release/deps`").to_owned()
}

/// The folders of the workspace's members besides the root, as its manifest lists them: Cargo builds none of them where one
/// is missing.
fn members(manifest: &str) -> Result<Vec<&str>, String> {
    let list = manifest.split_once("\nmembers = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.ok_or("Cargo.toml lists no members")?;
    // Every other piece is between two quotes.
    Ok(list.split('"').skip(1).step_by(2).filter(|folder| *folder != ".").collect())
}

/// Copies a file or a folder, without what was built in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_name() == "target" {
                continue;
            }
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
    fs::copy(from, to).map(drop)
}

/// Builds the tree and keeps a copy of the program under `name`.
fn build(scratch: &Path, name: &str) -> Result<PathBuf, String> {
    let target = scratch.join("build");
    eprintln!("building the engine, {name} …");
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(scratch.join("tree"))
        .args(["build", "--release", "--package", "brickscope-engine", "--example"])
        .args(["decode_tokens", "--target-dir"])
        .arg(&target)
        .output()
        .map_err(|error| format!("can't run cargo: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(format!("can't build the engine {name}; cargo said:\n{said}"));
    }
    let program = scratch.join(name.replace(' ', "_"));
    fs::copy(target.join("release/examples/decode_tokens"), &program)
        .map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}

/// The instructions of its own that the example runs in `decode`.
///
/// Without those of the C library: hash tables are seeded anew in each process, so `malloc` finds another
/// heap each time and takes some instructions more or less.
fn instructions(program: &Path, model: &Path, n: i64, backend: &str) -> Result<i64, String> {
    let counts = program.with_extension("callgrind");
    let mut out_file = OsString::from("--callgrind-out-file=");
    out_file.push(&counts);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .args(["--collect-atstart=no", "--toggle-collect=*decode_tokens*decode*"])
        .args([&out_file, program.as_os_str(), model.as_os_str()])
        .args([&n.to_string(), backend])
        .output()
        .map_err(|error| format!("can't run valgrind: {error}"))?;
    let text = fs::read_to_string(&counts).unwrap_or_default();
    match own_instructions(&text, &program.to_string_lossy()) {
        count if count > 0 && output.status.success() => Ok(count),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("valgrind counted nothing; it said:\n{said}"))
        }
    }
}

/// The sum over the functions of `object` in callgrind's output. Lines `ob=` name the object of the
/// following costs, each a line number and a count; the line after `calls=` is the callee's.
/// (<https://valgrind.org/docs/manual/cl-format.html>)
fn own_instructions(text: &str, object: &str) -> i64 {
    let (mut is_ours, mut sum) = (false, 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("ob=") {
            is_ours = name == object;
        } else if line.starts_with("calls=") {
            lines.next();
        } else if is_ours
            && line.starts_with(|c: char| c.is_ascii_digit())
            && let Some((_, count)) = line.split_once(' ')
        {
            sum += count.parse::<i64>().unwrap_or(0);
        }
    }
    sum
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

/// What replaces a probe.
#[derive(Clone, Copy, PartialEq)]
enum Body {
    Closure,
    Block,
}

/// `forward.rs` without probes, and without what only they need. The compiler checks that nothing of that is left, as
/// unused variables are errors.
fn without_probes(source: &str, kind: Body) -> Result<String, String> {
    let mut code = source.to_owned();
    // `.brick_kernel` before `.brick`: its brick is that of a value, `value.brick()`.
    let calls = [".brick_kernel(", ".brick(", ".kernel(", ".layer("].map(|call| (call, "|| "));
    for (call, head) in calls.into_iter().chain([(".brick_kernels(", "|p| ")]) {
        while let Some(dot) = code.find(call) {
            let open = dot + call.len() - 1;
            let receiver = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let start = code[..dot].trim_end_matches(receiver).len();
            let end = open + length_of_group(&code[open..])?;
            let arguments = code[open + 1..end - 1].trim_end().trim_end_matches(',');
            let body = arguments.split_once(head).ok_or("a probe without a closure")?.1;
            let body = match kind {
                Body::Closure => format!("(|| {body})()"),
                Body::Block => format!("{{ {body} }}"),
            };
            code.replace_range(start..end, &body);
        }
    }
    // Taps are statements of their own.
    while let Some(dot) = code.find(".tap(") {
        let open = dot + ".tap".len();
        let receiver = |c: char| c.is_alphanumeric() || c == '.';
        let start = code[..dot].trim_end_matches(receiver).len();
        let end = open + length_of_group(&code[open..])?;
        let rest = code[end..].strip_prefix(';').ok_or("a tap that isn't a statement")?;
        code.replace_range(start..code.len() - rest.len(), "");
    }
    let statements = [
        "let work = ",
        "let routine = ",
        "let operation = ",
        // The results of tapping the KV cache.
        "let read_keys = ",
        "let read_values = ",
    ];
    for statement in statements {
        while let Some(start) = code.find(statement) {
            let end = code[start..].find(";\n").ok_or("a statement without an end")?;
            code.replace_range(start..start + end + 1, "");
        }
    }
    // Probes of kernels, routines and values, as parameters.
    let parameters = ["p,", "p: &mut P::Kernels<'_>,", "routine: Routine,", "value: Value,"];
    let lines = code.lines().filter(|line| !parameters.contains(&line.trim()));
    code = lines.collect::<Vec<_>>().join("\n");
    // Routines and values, as arguments.
    for name in ["routines.", "Value::"] {
        while let Some(start) = code.find(name) {
            let end = code[start..].find(',').ok_or("a name that isn't an argument")?;
            code.replace_range(start..start + end + 1, "");
        }
    }
    for (with, without) in [
        ("p: &mut P::Kernels<'_>, ", ""),
        ("(p, ", "("),
        ("|value, routine, ", "|"),
        ("value: Value, ", ""),
        ("routine: Routine, ", ""),
        ("routines, probe: p, n, .. }", "n, .. }"),
        ("self.probe.tiles()", "None"),
        ("p.begin();", ""),
        (
            "(i, (w, mut kv)) in w.layers.iter().zip(kv.layers_mut()).enumerate()",
            "(w, mut kv) in w.layers.iter().zip(kv.layers_mut())",
        ),
    ] {
        code = code.replace(with, without);
    }
    Ok(format!("#![deny(unused_variables)]\n#![allow(unused_imports, dead_code)]\n{code}"))
}

/// The length of the parenthesised group that `code` begins with.
fn length_of_group(code: &str) -> Result<usize, String> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at + 1);
        }
    }
    Err("a parenthesis that isn't closed".to_owned())
}
