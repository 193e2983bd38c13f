//! Reading runs, given their folders or their files.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use brickscope_formats::import::packed_run;
use brickscope_profile::Profile;

use crate::files::{PROFILE, processes, profile_in, receipt_in};
use crate::llama_bench;
use crate::settings::home;

/// The receipt that was written last to a folder that has no name of the caller's.
pub fn newest_receipt() -> Result<PathBuf> {
    let written = |folder: PathBuf| {
        let receipt = receipt_in(&folder);
        Some((receipt.metadata().ok()?.modified().ok()?, receipt))
    };
    let folders = fs::read_dir(home()).into_iter().flatten().flatten().map(|entry| entry.path());
    let sets = |folder: PathBuf| {
        let processes = processes(&folder).unwrap_or_default();
        processes.into_iter().map(|(_, process)| process).chain([folder])
    };
    let newest = folders.flat_map(sets).filter_map(written).max();
    let (_, receipt) = newest.with_context(|| {
        let home = home().display();
        format!("there is no receipt in {home}: name one, or run `brickscope benchmark` first")
    })?;
    Ok(receipt)
}

/// Refuses to overwrite the measurements of one of `runs`.
pub fn spare(out: &Path, runs: &[&Path]) -> Result<()> {
    let Ok(out) = fs::canonicalize(out) else { return Ok(()) };
    for run in runs {
        for kept in [run.to_path_buf(), profile_in(run), receipt_in(run)] {
            ensure!(
                fs::canonicalize(&kept).ok().as_ref() != Some(&out) || kept.is_dir(),
                "{} is the run itself: name another file",
                kept.display()
            );
        }
    }
    Ok(())
}

/// Reads the profile of a run, given its folder or the file itself, which may be one of llama-bench.
pub fn load(run: &Path) -> Result<Profile> {
    let path = if run.is_dir() { run.join(PROFILE) } else { run.to_owned() };
    // A pipe in a folder has no writer, and would block for ever. One that the user names has.
    if run.is_dir() && fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo()) {
        bail!("{}: it is a pipe, not a file", path.display());
    }
    if let Some(packed) = packed(&path)? {
        return Ok(packed);
    }
    if path.is_file()
        && let Some(of_benchmark) = llama_bench::read(&path)?
    {
        return Ok(of_benchmark);
    }
    if let Some(what) = what_else(&path) {
        bail!("{} is {what}", path.display());
    }
    Profile::load(&path).map_err(|error| match path.exists() {
        true => error.into(),
        false if processes(run).is_ok_and(|found| !found.is_empty()) => {
            let run = run.display();
            anyhow!(
                "{run} holds the runs of a benchmark's processes, or of a side of `versus`: name one, such as {run}/1"
            )
        }
        false => anyhow!(
            "{error}. `brickscope profile` writes a run, as `run` does, and names its folder"
        ),
    })
}

/// The run in a file that somebody packed by gzip; `None` if it is no such file.
fn packed(path: &Path) -> Result<Option<Profile>> {
    let Some([0x1f, 0x8b, ..]) = start_of(path).as_deref() else { return Ok(None) };
    let Some(text) = packed_run(path)? else { return Ok(None) };
    Ok(Some(Profile::from_json(&text, path)?))
}

/// The first bytes of a file. `None` of anything else: bytes read from a pipe would be lost.
fn start_of(path: &Path) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(8).read_to_end(&mut start).ok()?;
    Some(start)
}

/// Describes a file that isn't a run, by its first bytes, and names the command that reads it.
pub(crate) fn what_else(path: &Path) -> Option<String> {
    let start = start_of(path)?;
    let file = path.display();
    match &start[..] {
        [b'G', b'G', b'U', b'F', ..] => Some(format!(
            "a model (GGUF), not a run: `brickscope profile {file}` runs it and writes a run"
        )),
        [b'[', ..] => Some(format!(
            "a list in JSON, not a run: `brickscope import {file}` reads the results of llama-bench, and traces"
        )),
        [0x1f, 0x8b, ..] => Some(format!(
            "a gzip file, not a run: `brickscope import {file}` reads gzip files of other programs"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_is_no_run_is_named_with_the_command_for_it() {
        let folder = TempDir::new().expect("a temporary folder");
        let said = |bytes: &[u8]| {
            let path = folder.path().join("file");
            fs::write(&path, bytes).expect("there is room");
            let error = load(&path).expect_err("it is no run");
            format!("{error:#}").replace(path.to_str().expect("UTF-8"), "FILE")
        };
        assert_eq!(
            said(b"GGUF\x03\0\0\0 and more"),
            "FILE is a model (GGUF), not a run: `brickscope profile FILE` runs it and writes a run"
        );
        assert!(said(b"\x1f\x8b\x08\0").contains("brickscope import FILE"));
        assert_eq!(said(b"\xff\xfe\0"), "FILE is not a brickscope profile: it is not text");
        assert!(said(b"{").starts_with("FILE is not a whole brickscope profile"));
    }
}
