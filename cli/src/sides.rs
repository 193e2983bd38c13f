//! Runs as the sides of a comparison: a receipt or a profile, a run's folder, or a folder of those.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope::Profile;
use brickscope::compare::{Process, Side};
use brickscope::receipt::Receipt;

/// What holds a run, the more telling first.
const FILES: [&str; 2] = ["receipt.json", "profile.json"];

/// More processes than anybody runs are a folder of something else.
const MAX_PROCESSES: usize = 10_000;

/// The processes at `path`, under the name that people gave it.
pub(crate) fn load(path: &Path, is_forced: bool) -> Result<Side> {
    let files = files(path)?;
    let processes = files.iter().map(|file| process(file, is_forced)).collect::<Result<_>>()?;
    Ok(Side { name: path.display().to_string(), processes })
}

/// The files of the processes at `path`: itself, that in it, or those in the folders in it.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        // To name what is missing.
        fs::metadata(path).with_context(|| path.display().to_string())?;
        return Ok(vec![path.to_owned()]);
    }
    if let Some(file) = file_in(path) {
        return Ok(vec![file]);
    }
    let cannot = || path.display().to_string();
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        // Hidden ones are being written.
        if !name.as_encoded_bytes().starts_with(b".") {
            folders.push(name);
        }
        if folders.len() > MAX_PROCESSES {
            bail!("{} has more than {MAX_PROCESSES} entries: is it a set of runs?", path.display());
        }
    }
    // 2 before 10.
    folders.sort_by_cached_key(|name| (name.len(), name.clone()));
    let files: Vec<PathBuf> = folders.iter().filter_map(|name| file_in(&path.join(name))).collect();
    if files.is_empty() {
        bail!(
            "{} holds no run: neither {} nor folders with one",
            path.display(),
            FILES.join(" nor ")
        );
    }
    Ok(files)
}

fn file_in(folder: &Path) -> Option<PathBuf> {
    FILES.iter().map(|file| folder.join(file)).find(|file| file.is_file())
}

fn process(file: &Path, is_forced: bool) -> Result<Process> {
    let name = file.display().to_string();
    if !is_receipt(file)? {
        let profile = Profile::load(file)?;
        return Process::from_profile(&name, &profile).with_context(|| name);
    }
    let receipt = Receipt::load(file)?;
    let mut process = Process::from_receipt(&name, &receipt);
    match &receipt.seal {
        Some(seal) if receipt.canonical_sha256()? == seal.sha256 => {}
        Some(_) if !is_forced => bail!(
            "{name} was changed after it was sealed; `brickscope verify-receipt` says more, --force \
             compares it all the same"
        ),
        Some(_) => process.doubts.push("it was changed after it was sealed".to_owned()),
        None => process.doubts.push("it has no seal".to_owned()),
    }
    Ok(process)
}

/// Whether a file is a receipt, by how it begins: the version of a receipt is text, that of a profile a
/// number.
fn is_receipt(file: &Path) -> Result<bool> {
    let cannot = || file.display().to_string();
    let mut start = Vec::new();
    fs::File::open(file)
        .with_context(cannot)?
        .take(4096)
        .read_to_end(&mut start)
        .with_context(cannot)?;
    if start.starts_with(b"\x7fELF") {
        bail!("{} is a program: add --processes N to have it measured", file.display());
    }
    let start = String::from_utf8_lossy(&start);
    let version = start.split_once("\"schema_version\"").map(|(_, rest)| rest.trim_start());
    let version = version.and_then(|rest| rest.strip_prefix(':')).map(str::trim_start);
    // Of a receipt in canonical form the version stands far below.
    Ok(version.is_none_or(|version| version.starts_with('"')))
}
