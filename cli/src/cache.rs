//! The cache folder.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The folder for the default model, stored ceilings, and copies of lakes in object stores.
pub(crate) fn folder() -> Result<PathBuf> {
    match std::env::var_os("BRICKSCOPE_CACHE") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => Ok(dirs::cache_dir()
            .context("this system has no cache folder: name one in BRICKSCOPE_CACHE")?
            .join("brickscope")),
    }
}
