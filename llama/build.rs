//! Compiles the library that `brickscope run` loads into other programs, with the feature `recording`.

use std::path::Path;
use std::process::Command;

fn main() {
    for part in ["build.rs", "preload", "src/recording/chosen.rs", "src/recording/format.rs"] {
        println!("cargo::rerun-if-changed={part}");
    }
    if std::env::var_os("CARGO_FEATURE_RECORDING").is_some() {
        preload();
    }
}

/// Compiles `preload/` to a library in `OUT_DIR`: an empty file on systems that it isn't for, or where it can't be compiled,
/// of which `run` tells.
fn preload() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let library = Path::new(&variable("OUT_DIR")).join("libbrickscope_preload.so");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let is_for =
        variable("CARGO_CFG_TARGET_OS") == "linux" && matches!(arch.as_str(), "x86_64" | "aarch64");
    let compiled = is_for.then(|| {
        // Programs that llama.cpp is loaded into use glibc, also where this one is linked statically with musl.
        let target = format!("{arch}-unknown-linux-gnu");
        Command::new(variable("RUSTC"))
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=brickscope_preload"])
            // In one unit, which is faster to compile, too.
            .args(["-Copt-level=3", "-Ccodegen-units=1", "-Cstrip=symbols"])
            .args(["--target", &target, "-o"])
            .arg(&library)
            .arg("preload/lib.rs")
            .status()
    });
    let why = match compiled {
        Some(Ok(status)) if status.success() => return,
        Some(Ok(status)) => format!("the compiler ended with {status}"),
        Some(Err(why)) => why.to_string(),
        None => String::new(),
    };
    if !why.is_empty() {
        println!("cargo::warning=`brickscope run` won't work in this build: {why}");
    }
    if let Err(why) = std::fs::write(&library, b"") {
        panic!("{}: {why}", library.display());
    }
}
