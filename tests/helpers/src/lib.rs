//! What tests of several packages share.

pub mod chromium;
pub mod command;
pub mod cuda_shim;
pub mod fake_cuda;
pub mod hostile;
#[cfg(feature = "receipts")]
pub mod made;
#[cfg(feature = "models")]
pub mod models;
#[cfg(feature = "nesting")]
pub mod nesting;
pub mod patience;

use std::path::{Path, PathBuf};

/// The repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A file of `tests/data`.
#[must_use]
pub fn data(name: &str) -> PathBuf {
    root().join("tests/data").join(name)
}

/// A model of `tests/data/models`, by its name without `.gguf`.
#[must_use]
pub fn model(name: &str) -> PathBuf {
    data("models").join(format!("{name}.gguf"))
}

/// A folder of the build's that tests may write to, as Cargo gives one to integration tests.
///
/// # Panics
///
/// If it can't be made.
#[must_use]
pub fn temporary() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let target = program.ancestors().nth(3).expect("a test's program is in target/PROFILE/deps");
    let folder = target.join("tmp");
    std::fs::create_dir_all(&folder).expect("the build's folder is writable");
    folder
}
