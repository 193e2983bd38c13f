//! What tests of several packages share.

pub mod chromium;
pub mod command;
pub mod cuda_shim;
pub mod fake_cuda;
pub mod gpu_trace;
pub mod hostile;
#[cfg(feature = "receipts")]
pub mod made;
pub mod model_server;
#[cfg(feature = "models")]
pub mod models;
#[cfg(feature = "nesting")]
pub mod nesting;
pub mod patience;

use std::path::{Path, PathBuf};

use proptest::test_runner::Config;

/// Of a property whose cases take long: this many of each 256 that others have, which is `PROPTEST_CASES`, 256 by
/// default. A case that fails is printed, which is enough to make a test of it.
#[must_use]
pub fn cases(of_256: u32) -> Config {
    let config = Config::default();
    let cases = u64::from(config.cases) * u64::from(of_256) / 256;
    Config { cases: cases.max(1) as u32, failure_persistence: None, ..config }
}

/// Where nobody listens: a privileged port, which the system gives to no socket that asks for any.
pub const NOBODY_LISTENS: &str = "127.0.0.1:1";

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
