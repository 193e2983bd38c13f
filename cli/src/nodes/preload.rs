//! The library that is loaded into other programs: it is part of this program, and written to a file for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope::save::write_atomically;

/// Compiled by the build script from `preload/`; empty on systems that it can't be compiled for.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libbrickscope_preload.so"));

/// Names the folder that the library writes to, in the environment of a program.
pub(crate) const FOLDER: &str = "BRICKSCOPE_RECORD";

/// Set in the environment of a program whose threads' shares are to be recorded.
pub(crate) const SHARES: &str = "BRICKSCOPE_SHARES";

/// Set in the environment of a program of which only every other pass is to be looked at.
pub(crate) const TURNS: &str = "BRICKSCOPE_TURNS";

/// Writes the library to `folder`.
///
/// # Errors
///
/// If this build has none, or the file can't be written.
pub(crate) fn library(folder: &Path) -> Result<PathBuf> {
    if LIBRARY.is_empty() {
        bail!("this build can't record other programs: that needs Linux on x86-64 or AArch64");
    }
    let path = folder.join("libbrickscope_preload.so");
    let cannot = || format!("can't write {}", path.display());
    write_atomically(&path, |error| error, |out| std::io::Write::write_all(out, LIBRARY))
        .with_context(cannot)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).with_context(cannot)?;
    Ok(path)
}
