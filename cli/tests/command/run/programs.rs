//! The programs that are run: they have llama.cpp's functions, and wait where it computes.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Of what they are made, and how.
const SOURCES: [&str; 5] = [
    include_str!("llama.c"),
    include_str!("packages.c"),
    include_str!("programs.rs"),
    include_str!("../serve/parent.c"),
    include_str!("../serve/server.c"),
];

/// The programs: `loads` loads shared libraries, `other` one with other tensors, `old` one that lacks a function, `whole`
/// has all of it. They stay in Cargo's folder, since to compile them takes longer than most tests.
pub(crate) fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        SOURCES.hash(&mut hasher);
        // Where they lie is in them, and a build folder may be moved.
        env!("CARGO_TARGET_TMPDIR").hash(&mut hasher);
        let name = format!("programs-{:016x}", hasher.finish());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).expect("a folder");
        // One process at a time.
        let lock = File::create(dir.join("lock")).expect("the folder is Cargo's own");
        lock.lock().expect("a lock");
        let made = dir.join("made");
        if !made.exists() {
            build(&dir);
            fs::write(made, "").expect("the folder is Cargo's own");
        }
        dir
    })
}

fn build(dir: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/llama.c");
    let compile = |out: &str, flags: &[&str]| {
        let out = dir.join(out);
        fs::create_dir_all(out.parent().expect("a folder")).expect("it can be made");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(&out).args(flags);
        assert!(cc.status().expect("cc, which links Rust, too").success(), "{cc:?}");
    };
    for (folder, layout) in [
        ("good", "-DTHIS_LAYOUT"),
        ("other", "-DOTHER_LAYOUT"),
        ("old", "-DOLD"),
        ("serves", "-DSERVES"),
    ] {
        let at = dir.join(folder).display().to_string();
        let search = ["-L", &at, &format!("-Wl,-rpath,{at}")].map(str::to_owned);
        let library = |name: &str, part: &str, needs: &[&str]| {
            let mut flags = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", layout, part];
            flags.extend(search.iter().map(String::as_str));
            flags.extend(needs);
            compile(&format!("{folder}/{name}"), &flags);
        };
        library("libggml-base.so", "-DBASE", &[]);
        library("libggml-cpu.so", "-DCPU", &["-lggml-base"]);
        library("libllama.so", "-DLLAMA", &["-lggml-cpu", "-lggml-base"]);
        let rpath = format!("-Wl,-rpath,{at}");
        compile(&format!("{folder}/loads"), &["-DPROGRAM", layout, &rpath, "-ldl"]);
    }
    // As wheels and packages of npm have them: all in one, or under other names.
    let all = ["-shared", "-fPIC", "-DTHIS_LAYOUT", "-DBASE", "-DCPU", "-DLLAMA"];
    compile("module.so", &all);
    compile("llamamodel-mainline.so", &all);
    for nth in 0..12 {
        let copy = dir.join(format!("module-{nth}.so"));
        fs::copy(dir.join("module.so"), copy).expect("a copy");
    }
    compile("other.so", &["-shared", "-fPIC", "-DOTHER_LAYOUT", "-DBASE", "-DCPU", "-DLLAMA"]);
    let at = dir.display().to_string();
    let beside = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-L", &at, "-Wl,-rpath,$ORIGIN"];
    for (name, part, needs) in [
        ("libggml-base-319ad4fb.so.0.13.1", "-DBASE", &[][..]),
        ("libggml-cpu-0b5e5db1.so", "-DCPU", &["-l:libggml-base-319ad4fb.so.0.13.1"]),
        (
            "llama-addon.node",
            "-DLLAMA",
            &["-l:libggml-cpu-0b5e5db1.so", "-l:libggml-base-319ad4fb.so.0.13.1"],
        ),
    ] {
        compile(name, &[&beside[..], &[part], needs].concat());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/run/packages.c");
    let good = dir.join("good").display().to_string();
    for (name, more) in [
        ("packages", &[][..]),
        ("packages-lazy", &["-DLINKED", "-Wl,-z,lazy"]),
        ("packages-now", &["-DLINKED", "-Wl,-z,now", "-Wl,-z,relro"]),
        ("packages-no-plt", &["-DLINKED", "-fno-plt"]),
    ] {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(dir.join(name)).args(more);
        if !more.is_empty() {
            cc.args(["-L", &good, &format!("-Wl,-rpath,{good}"), "-lllama", "-lggml-cpu"]);
            cc.arg("-lggml-base");
        }
        cc.arg("-ldl");
        assert!(cc.status().expect("cc").success(), "{cc:?}");
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/serve/server.c");
    let serves = dir.join("serves").display().to_string();
    let rpath = format!("-Wl,-rpath,{serves}");
    for (name, flags) in [
        ("server", &["-U_FORTIFY_SOURCE"][..]),
        ("server-ext", &["-DEXT", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]),
    ] {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(format!("{serves}/{name}"));
        cc.args(flags).args(["-L", &serves, &rpath, "-lllama", "-pthread"]);
        assert!(cc.status().expect("cc").success(), "{cc:?}");
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/serve/parent.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", source, "-o"]).arg(format!("{serves}/parent"));
    assert!(cc.status().expect("cc").success(), "{cc:?}");
    let whole = ["-DPROGRAM", "-DWHOLE", "-DBASE", "-DCPU", "-DLLAMA", "-ldl"];
    compile("whole", &whole);
}
