//! Records the build for receipts: the compiler, its flags, the target and the commit.

use std::path::Path;
use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = Command::new(variable("RUSTC")).arg("--version").output();
    let version = rustc.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    // A receipt requires a non-empty text here.
    let version = version.as_deref().map_or("", str::trim);
    let version = if version.is_empty() { "unknown" } else { version };
    // Cargo separates flags by a character that no flag contains.
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

/// The commit, with `-dirty` if files differ from it; `None` without a repository.
fn commit() -> Option<String> {
    // A repository further up doesn't describe this build.
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
    // The files that can make it dirty.
    for part in ["../src", "../kernels", "../engine/src", "src", "../Cargo.toml", "../Cargo.lock"] {
        println!("cargo::rerun-if-changed={part}");
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + "-dirty" })
}

fn git(args: &[&str]) -> Option<String> {
    // Don't rewrite the index just by reading it.
    let output = Command::new("git").arg("--no-optional-locks").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}
