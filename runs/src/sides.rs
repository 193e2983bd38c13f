//! The sides of a comparison: a receipt, a profile or a file of llama-bench, a run's folder, or a folder of those.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brickscope_analysis::compare::{Process, RanksOfRun, Side};
use brickscope_analysis::place::that_ran;
use brickscope_analysis::receipt::{Options, Receipt, read, verify};
use brickscope_profile::{Imported, Profile, load};

use crate::llama_bench;
use crate::read::what_else;

/// The files that hold a run, the more informative first.
const FILES: [&str; 2] = ["receipt.json", "profile.json"];

/// A folder with more entries than anyone runs processes isn't a set of runs.
const MAX_PROCESSES: usize = 10_000;

/// A process's set, its number in it, and the size of the set.
type Place = (String, u32, u32);

/// The processes at `path`, under the name that the user gave it. `where_it_ran` makes a profile one of the device that ran
/// it.
///
/// # Errors
///
/// If there is no run, one can't be read, or they are no set; the last and some doubts not if it `is_forced`.
pub fn side(
    path: &Path,
    is_forced: bool,
    where_it_ran: &dyn Fn(Profile) -> Profile,
) -> Result<Side> {
    let files = files(path)?;
    let (mut processes, mut places) = (Vec::new(), Vec::new());
    for file in &files {
        let (of_file, place) = processes_of(file, is_forced, where_it_ran)?;
        processes.extend(of_file);
        if processes.len() > MAX_PROCESSES {
            bail!("{} has more than {MAX_PROCESSES} runs", path.display());
        }
        places.push(place);
    }
    if !is_forced {
        if !runs_in(path).is_empty() && !runs_in(&path.join("1")).is_empty() {
            bail!(
                "{} holds a run and also folders with numbered runs: name one of them, or compare the \
                first with --force",
                path.display()
            );
        }
        whole(&places).with_context(|| path.display().to_string())?;
    }
    Ok(Side { name: path.display().to_string(), processes })
}

/// Refuses an incomplete set, and several sets as one side. A single process gets no verdict anyway.
fn whole(places: &[Option<Place>]) -> Result<()> {
    if places.len() < 2 {
        return Ok(());
    }
    let set = |place: &Option<Place>| place.as_ref().map(|(set, ..)| set.clone());
    let first = set(&places[0]);
    if let Some(other) = places.iter().map(set).find(|other| *other != first) {
        let name = |set: Option<String>| set.unwrap_or_else(|| "none".to_owned());
        bail!(
            "its runs are of several sets ({} and {}): they were measured at different times; \
             --force takes them as one side",
            name(first),
            name(other)
        );
    }
    let mut numbers: Vec<u32> = places.iter().flatten().map(|(_, number, _)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let stated = places.iter().flatten().map(|(.., all)| *all).max().unwrap_or(0);
    // Every other process: one side of a set from `compare --processes`.
    let is_side = numbers.iter().map(|number| number.div_ceil(2)).eq(1..=stated / 2);
    let missing = (stated as usize).saturating_sub(numbers.len());
    if missing > 0 && !is_side {
        bail!(
            "{missing} of the {stated} processes of its set are missing, which may change the result; \
            --force compares the others"
        );
    }
    Ok(())
}

/// The folder beside a baseline where the `next` one is made, or the `last` one is kept meanwhile.
pub fn beside(baseline: &Path, which: &str) -> Option<PathBuf> {
    let mut hidden = OsString::from(".");
    hidden.push(baseline.file_name()?);
    hidden.push(format!(".{which}"));
    Some(baseline.with_file_name(hidden))
}

/// The files of the processes at `path`: the path itself, the file in it, or the files in its
/// subfolders. If a baseline is just being exchanged, those of the last one.
///
/// # Errors
///
/// If there are none, or the system's error.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.exists()
        && let Some(last) = beside(path, "last").filter(|last| last.is_dir())
    {
        return files(&last);
    }
    if !path.is_dir() {
        // This produces the error that names the missing path.
        fs::metadata(path).with_context(|| path.display().to_string())?;
        return Ok(vec![path.to_owned()]);
    }
    let own = runs_in(path);
    if !own.is_empty() {
        return Ok(own);
    }
    let names = names_in(path)?;
    let files: Vec<PathBuf> = names.iter().flat_map(|name| runs_in(&path.join(name))).collect();
    if !files.is_empty() {
        return Ok(files);
    }
    let mut of_llama_bench = Vec::new();
    for name in names.iter().filter(|name| llama_bench::is_named_so(&name.to_string_lossy())) {
        let file = path.join(name);
        if file.is_file() && llama_bench::read(&file)?.is_some() {
            of_llama_bench.push(file);
        }
    }
    if of_llama_bench.is_empty() {
        bail!(
            "{} has no runs: neither {} nor folders with one, nor llama-bench's -o json or jsonl",
            path.display(),
            FILES.join(" nor ")
        );
    }
    Ok(of_llama_bench)
}

/// The entries that aren't hidden, with 2 before 10.
fn names_in(folder: &Path) -> Result<Vec<OsString>> {
    let cannot = || folder.display().to_string();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        // Hidden entries are being written.
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
        if names.len() > MAX_PROCESSES {
            bail!(
                "{} has more than {MAX_PROCESSES} entries: is it a set of runs?",
                folder.display()
            );
        }
    }
    names.sort_by_cached_key(|name| (name.len(), name.clone()));
    Ok(names)
}

/// A folder's own run, or else its files named `*.receipt.json`.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let own = FILES.iter().map(|file| folder.join(file)).find(|file| file.is_file());
    if let Some(own) = own {
        return vec![own];
    }
    let named = names_in(folder).unwrap_or_default().into_iter();
    named
        .filter(|name| name.as_encoded_bytes().ends_with(b".receipt.json"))
        .map(|name| folder.join(name))
        .filter(|file| file.is_file())
        .collect()
}

/// What a file holds: one process, but for a benchmark's file to which another call of it was appended.
fn processes_of(
    file: &Path,
    is_forced: bool,
    where_it_ran: &dyn Fn(Profile) -> Profile,
) -> Result<(Vec<Process>, Option<Place>)> {
    let name = file.display().to_string();
    let of_llama_bench = llama_bench::read(file)?;
    if of_llama_bench.is_some() || !is_receipt(file)? {
        let (profile, ranks) = match of_llama_bench {
            Some(profile) => (profile, None),
            None => {
                let profile = Profile::load(file)?;
                // What is left of a device alone has no ranks.
                let ranks = that_ran(&profile).and_then(|_| RanksOfRun::of(&profile));
                (where_it_ran(profile), ranks)
            }
        };
        let has_none = |of: &&Imported| profile.passes.is_empty() && of.tests.is_empty();
        if let Some(imported) = profile.imported.as_ref().filter(has_none) {
            bail!(
                "{name} was imported from {} ({}) and has no passes to compare; for a Chrome trace, \
                `brickscope import --decode EVENT` says which events are passes",
                imported.file,
                imported.format
            );
        }
        let mut processes = Process::all_of_profile(&name, &profile).with_context(|| name)?;
        let format = profile.imported.as_ref().map(|imported| &*imported.format);
        let cut_short = profile.run.and_then(|run| run.cut_short);
        for process in &mut processes {
            process.ranks = process.ranks.take().or(ranks.clone());
            process.doubts.extend(format.map(llama_bench::without_receipt));
            process.doubts.extend(cut_short.as_ref().map(|how| format!("it was cut short: {how}")));
        }
        return Ok((processes, None));
    }
    let bytes = read(file)?;
    let receipt = Receipt::from_bytes(&bytes, file)?;
    let mut process = Process::from_receipt(&name, &receipt);
    let fault = match &receipt.seal {
        Some(seal) if receipt.canonical_sha256()? == seal.sha256 => None,
        Some(_) => Some("was changed after it was sealed"),
        None => Some("has no seal, which `benchmark` always sets"),
    };
    match fault {
        Some(fault) if !is_forced => bail!(
            "{name} {fault}; `brickscope verify-receipt` says more, --force compares it anyway"
        ),
        Some(fault) => process.doubts.push(format!("it {fault}")),
        None => {}
    }
    process.not_verified = verify(&bytes, &Options::default()).not_verified();
    let run = receipt.run;
    Ok((vec![process], run.set.map(|set| (set, run.process, run.processes))))
}

/// Whether a file is a receipt, by its beginning: the version of a receipt is a string, the version of a
/// profile a number.
///
/// # Errors
///
/// If it can't be read, or is a program.
pub fn is_receipt(file: &Path) -> Result<bool> {
    let cannot = || file.display().to_string();
    let mut start = Vec::new();
    load::open(file)
        .with_context(cannot)?
        .take(4096)
        .read_to_end(&mut start)
        .with_context(cannot)?;
    if start.starts_with(b"\x7fELF") {
        bail!("{} is a program: add --processes N to measure it", file.display());
    }
    if let Some(what) = what_else(file).filter(|_| start.starts_with(b"GGUF")) {
        bail!("{} is {what}", file.display());
    }
    // Who packs a file packs a large one: a run. Reading it says so, if it is none.
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(false);
    }
    let start = String::from_utf8_lossy(&start);
    let version = start.split_once("\"schema_version\"").map(|(_, rest)| rest.trim_start());
    let version = version.and_then(|rest| rest.strip_prefix(':')).map(str::trim_start);
    // In a receipt in canonical form the version comes much later.
    Ok(version.is_none_or(|version| version.starts_with('"')))
}
