//! What a receipt says of the build: the compiler, and what it was told.

use std::path::Path;
use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = Command::new(variable("RUSTC")).arg("--version").output();
    let version = rustc.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    // A receipt has some text there.
    let version = version.as_deref().map_or("", str::trim);
    let version = if version.is_empty() { "unknown" } else { version };
    // Flags are separated by a character that no flag has.
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    for (name, value) in [
        ("RUST_VERSION", version),
        ("RUSTFLAGS", &flags),
        ("TARGET", &variable("TARGET")),
        ("TARGET_FEATURES", &variable("CARGO_CFG_TARGET_FEATURE")),
        ("PROFILE", &variable("PROFILE")),
    ] {
        println!("cargo::rustc-env=BRICKSCOPE_BUILD_{name}={value}");
    }
    if let Some(commit) = commit() {
        println!("cargo::rustc-env=BRICKSCOPE_BUILD_COMMIT={commit}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// The commit that is built, `-dirty` where files differ from it; `None` without a repository.
fn commit() -> Option<String> {
    // Another one that this is somewhere inside of says nothing of the build.
    if !Path::new("../.git").exists() {
        return None;
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists());
        if let Some(path) = path {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // What makes it dirty.
    for part in ["../src", "../kernels", "../engine/src", "src", "../Cargo.toml", "../Cargo.lock"] {
        println!("cargo::rerun-if-changed={part}");
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + "-dirty" })
}

fn git(args: &[&str]) -> Option<String> {
    // Looking is not to write the index anew.
    let output = Command::new("git").arg("--no-optional-locks").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}
