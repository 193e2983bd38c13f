//! The fake CUDA driver (`engine/fake-cuda/`), built for a test. Shared by those of the engine and of the
//! command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The fake driver's folder, in which it has the name that programs look for.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = crate::temporary().join("fake-cuda");
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--locked",
                "--offline",
                "--package",
                "brickscope-fake-cuda",
                "--manifest-path",
            ])
            .arg(crate::root().join("engine/fake-cuda/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status();
        assert!(built.is_ok_and(|status| status.success()), "the fake driver can't be built");
        let folder = target.join("driver");
        fs::create_dir_all(&folder).expect("a folder");
        let built = fs::read(target.join("debug/libfake_cuda.so")).expect("it was built");
        // Whole under its name or not at all: other tests look for it at the same time.
        let own = folder.join(format!("{}.tmp", std::process::id()));
        for name in ["libcuda.so", "libcuda.so.1"] {
            // A program of another test, which has loaded it, would take a second file for a second library.
            if fs::read(folder.join(name)).is_ok_and(|there| there == built) {
                continue;
            }
            fs::write(&own, &built).expect("a folder of ours");
            fs::rename(&own, folder.join(name)).expect("a folder of ours");
        }
        folder
    })
}

/// A path to the driver's own file, named as CUPTI, which programs find only if they are given it.
/// From a copy of the file, the loader would load a second library: a CUPTI that doesn't see the driver.
#[allow(dead_code, reason = "not all tests that have the driver have CUPTI")]
pub fn cupti() -> String {
    let folder = folder().join("cupti");
    fs::create_dir_all(&folder).expect("a folder");
    let library = folder.join("libcupti.so.12");
    #[cfg(unix)]
    if !library.exists() {
        // Another test may have made it meanwhile.
        let _ = std::os::unix::fs::symlink("../libcuda.so", &library);
    }
    library.to_str().expect("a path").to_owned()
}
