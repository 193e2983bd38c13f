//! Receipts of runs: where they lie, and whether they are as they were made.

use std::path::{Path, PathBuf};

use brickscope_analysis::history::Run;
use brickscope_analysis::receipt::{self, Options, Receipt, verify};

use crate::files::{processes, receipt_in};

/// The receipt's file, given the file itself or the folder of its run.
pub fn receipt_file(named: &Path) -> PathBuf {
    if named.is_dir() { receipt_in(named) } else { named.to_owned() }
}

/// The receipts of a run, given a file or a folder: of a set, those of its processes, in order.
pub fn receipt_files(named: &Path) -> Vec<PathBuf> {
    let own = receipt_file(named);
    if own.is_file() || !named.is_dir() {
        return vec![own];
    }
    let mut set = processes(named).unwrap_or_default();
    set.sort();
    let files: Vec<PathBuf> = set.iter().map(|(_, process)| receipt_in(process)).collect();
    if files.iter().any(|file| file.is_file()) { files } else { vec![own] }
}

/// A receipt whose seal is intact, and why it isn't verified all the same.
///
/// # Errors
///
/// Why it can't be read, or that it was changed, without the name of the file.
pub fn sealed(path: &Path) -> Result<(Run, Option<String>), String> {
    let name = path.display().to_string();
    let of_file = |error: String| match error.strip_prefix(&name) {
        Some(rest) => rest.trim_start_matches([':', ' ']).to_owned(),
        None => error,
    };
    let bytes = receipt::read(path).map_err(|error| of_file(error.to_string()))?;
    let receipt = Receipt::from_bytes(&bytes, path).map_err(|error| of_file(error.to_string()))?;
    let sha256 = receipt.canonical_sha256().map_err(|error| of_file(error.to_string()))?;
    match &receipt.seal {
        None => Err("it has no seal, so changes to it can't be detected".to_owned()),
        Some(seal) if seal.sha256 != sha256 => {
            Err("its seal is broken: it was changed after it was made".to_owned())
        }
        Some(_) => {
            Ok((Run::of(&name, &receipt)?, verify(&bytes, &Options::default()).not_verified()))
        }
    }
}
