//! What a receipt says of the build: the compiler, and what it was told.

use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = Command::new(variable("RUSTC")).arg("--version").output();
    let version = rustc.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map_or("", str::trim);
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
    println!("cargo::rerun-if-changed=build.rs");
}
