//! Ceilings that were measured before, kept in the cache folder with the machine they are of.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use brickscope::{
    Absent, Ceilings, CpuLimit, LoadWatch, Machine, Numbers, Survey, write_atomically,
};
use brickscope_engine::Model;
use brickscope_kernels::{Kernels, ThreadPool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::source;

/// No file of ours is nearly as long.
const MAX_FILE: u64 = 1 << 20;

/// Above this share of the machine's CPU time, others may have lowered a ceiling.
const MUCH: f64 = 0.05;

/// What ceilings depend on. Those of another are no ceilings here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    machine: Machine,
    /// CPUs' worth of time that the control group grants.
    cpu_limit: Option<f64>,
    cpuset: Option<String>,
    threads: u32,
    backend: String,
    brickscope_version: String,
}

impl Identity {
    fn here(threads: NonZeroUsize, kernels: Kernels) -> Self {
        let limit = CpuLimit::read().unwrap_or_default();
        Self {
            machine: Machine::detect(),
            cpu_limit: limit.cpus,
            cpuset: limit.cpuset,
            threads: threads.get() as u32,
            backend: kernels.backend().name().to_owned(),
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The machine, in a line.
    pub(crate) fn line(&self) -> String {
        let Machine { os, arch, cpu, logical_cpus, memory_bytes } = &self.machine;
        let mut parts = vec![cpu.clone().unwrap_or("unnamed CPU".to_owned())];
        parts.extend(logical_cpus.map(|n| format!("{n} CPUs")));
        parts.extend(self.cpu_limit.map(|n| format!("limited to {n:.1} of them")));
        parts.extend(memory_bytes.map(|n| format!("{:.1} GB", n as f64 / 1e9)));
        format!("machine   {}, {os} {arch}\n", parts.join(", "))
    }

    /// What differs, for people.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.machine != other.machine, "another machine"),
            (self.cpu_limit != other.cpu_limit, "another CPU limit"),
            (self.cpuset != other.cpuset, "another set of CPUs"),
            (self.threads != other.threads, "another number of threads"),
            (self.backend != other.backend, "another backend"),
            (self.brickscope_version != other.brickscope_version, "another version of brickscope"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// What was measured, and under which circumstances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<T> {
    pub(crate) identity: Identity,
    /// The part of the machine's CPU time that others used meanwhile, 0 to 1.
    pub(crate) others_share: Option<f64>,
    pub(crate) value: T,
}

/// Things that can be kept in a file of their own.
pub(crate) trait Keep: Serialize + DeserializeOwned {
    /// How the file's name begins.
    const NAME: &'static str;
    /// Why it is of no use, if it is not: a file may say anything.
    fn check(&self) -> Result<(), &'static str>;
}

fn are_rates(mut rates: impl Iterator<Item = f64>) -> Result<(), &'static str> {
    let are_some = rates.all(|rate| (1.0..1e30).contains(&rate));
    if are_some { Ok(()) } else { Err("it holds rates that are none") }
}

impl Keep for Ceilings {
    const NAME: &'static str = "ceilings";

    fn check(&self) -> Result<(), &'static str> {
        // Before it was told of what the peak is, it was of either.
        if self.numbers != Some(Numbers::F32) {
            return Err("it doesn't say what its peak multiplies");
        }
        let rates = [self.read_bytes_per_second, self.flops_per_second];
        let caches = self.caches.iter().map(|cache| cache.read_bytes_per_second);
        are_rates(rates.into_iter().chain(self.int8_ops_per_second).chain(caches))
    }
}

impl Keep for Survey {
    const NAME: &'static str = "machine";

    fn check(&self) -> Result<(), &'static str> {
        let bandwidths = self.bandwidth.iter().filter_map(|row| row.bytes_per_second);
        let peaks = self.peaks.iter().filter_map(|row| row.ops_per_second);
        are_rates(bandwidths.chain(peaks))
    }
}

fn path<T: Keep>(folder: &Path, identity: &Identity) -> PathBuf {
    folder.join(format!("{}-{}-{}.json", T::NAME, identity.backend, identity.threads))
}

/// What was kept for `identity`, or why it is of no use; `Ok(None)` if nothing was, or others used the
/// CPUs meanwhile.
fn load<T: Keep>(folder: &Path, identity: &Identity) -> Result<Option<Kept<T>>, String> {
    let path = path::<T>(folder, identity);
    let unusable = |why: &str| format!("{}: {why}", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&error.to_string())),
    };
    let mut text = String::new();
    match file.take(MAX_FILE + 1).read_to_string(&mut text) {
        Ok(n) if n as u64 > MAX_FILE => return Err(unusable("it is too long to be of brickscope")),
        Ok(_) => {}
        Err(error) => return Err(unusable(&error.to_string())),
    }
    let kept: Kept<T> = serde_json::from_str(&text)
        .map_err(|error| unusable(&format!("it holds no ceilings: {error}")))?;
    if let Some(what) = identity.difference(&kept.identity) {
        return Err(unusable(&format!("its ceilings are of {what}")));
    }
    if let Err(why) = kept.value.check() {
        return Err(unusable(why));
    }
    // What others may have lowered is worth another try, and no word: nothing is wrong with the file.
    Ok(Some(kept).filter(|kept| much(kept.others_share).is_none()))
}

/// Keeps it; returns where.
fn store<T: Keep>(folder: &Path, kept: &Kept<T>) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = path::<T>(folder, &kept.identity);
    write_atomically(
        &path,
        |error| error,
        |out| {
            serde_json::to_writer_pretty(&mut *out, kept)?;
            out.write_all(b"\n")
        },
    )?;
    Ok(path)
}

/// Keeps it, but not what others disturbed in place of what nobody did; returns where, if it did.
fn store_unless_worse<T: Keep>(folder: &Path, kept: &Kept<T>) -> io::Result<Option<PathBuf>> {
    if let Some(share) = much(kept.others_share)
        && let Ok(Some(_)) = load::<T>(folder, &kept.identity)
    {
        let path = path::<T>(folder, &kept.identity);
        let path = path.display();
        eprintln!("note: not kept, since others used {share} of the CPUs: what is in {path} stays");
        return Ok(None);
    }
    store(folder, kept).map(Some)
}

/// What was kept, or else what `measure` says, which is then kept; and where it lies, if it does.
fn kept_or<T: Keep>(
    identity: Identity,
    fresh: bool,
    measure: impl FnOnce() -> Result<T, Absent>,
) -> Result<(Kept<T>, Source), Absent> {
    let folder = source::cache_folder();
    if let (Ok(folder), false) = (&folder, fresh) {
        match load(folder, &identity) {
            Ok(Some(kept)) => {
                let path = path::<T>(folder, &identity);
                return Ok((kept, Source { path: Some(path), is_kept: true }));
            }
            Ok(None) => {}
            Err(why) => eprintln!("note: measured anew, since what was kept is of no use: {why}"),
        }
    }
    let watch = LoadWatch::start();
    let value = measure()?;
    let others = watch.and_then(|watch| watch.so_far()).ok();
    let others_share = others.map(|load| load.others_share());
    let kept = Kept { identity, others_share, value };
    let stored = folder.and_then(|folder| Ok(store_unless_worse(&folder, &kept)?));
    if let Err(error) = &stored {
        eprintln!("note: the ceilings are not kept for next time: {error:#}");
    }
    Ok((kept, Source { path: stored.ok().flatten(), is_kept: false }))
}

/// Where something kept comes from.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file, if there is one now.
    pub(crate) path: Option<PathBuf>,
    /// It was there before.
    pub(crate) is_kept: bool,
}

/// What others used of the CPUs, in percent, if it was so much that a ceiling may have come out low.
/// `NaN`, which is no share, is much too.
fn much(others_share: Option<f64>) -> Option<String> {
    let share = others_share.filter(|share| !(..=MUCH).contains(share))?;
    Some(format!("{:.0} %", 100.0 * share))
}

/// A warning, if others may have lowered the ceilings.
pub(crate) fn remark(others_share: Option<f64>) -> Option<String> {
    let share = much(others_share)?;
    Some(format!("others used {share} of the CPUs meanwhile, so it may be more"))
}

/// The ceilings of a run of `model`.
///
/// # Errors
///
/// Why there are none.
pub(crate) fn ceilings(
    model: &Model,
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<Ceilings, Absent> {
    let (Kept { value, others_share, .. }, source) = ceilings_or_kept(kernels, pool)?;
    let mut value = of_model(model, kernels, value);
    if source.is_kept {
        return Ok(value.kept());
    }
    if let Some(remark) = remark(others_share) {
        value.basis += &format!("; {remark}");
    }
    Ok(value)
}

/// Those with the peak of what the products of `model` multiply.
fn of_model(model: &Model, kernels: Kernels, ceilings: Ceilings) -> Ceilings {
    if model.rounds_activations(kernels) { ceilings.of_int8_products() } else { ceilings }
}

/// As [`ceilings`], for who holds a run to them: those that others may have lowered are none.
///
/// # Errors
///
/// Why there are none.
pub(crate) fn sure_ceilings(
    model: &Model,
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<Ceilings, Absent> {
    let (Kept { value, others_share, .. }, source) = ceilings_or_kept(kernels, pool)?;
    if let Some(share) = much(others_share) {
        let reason = format!(
            "others used {share} of the CPUs while they were measured, so they would be too low"
        );
        return Err(Absent { reason });
    }
    let value = of_model(model, kernels, value);
    Ok(if source.is_kept { value.kept() } else { value })
}

fn ceilings_or_kept(
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<(Kept<Ceilings>, Source), Absent> {
    let threads = NonZeroUsize::new(pool.threads()).unwrap_or(NonZeroUsize::MIN);
    let identity = Identity::here(threads, kernels);
    kept_or(identity, false, || Ceilings::measure(kernels, pool))
}

/// The survey of this machine on up to `threads` threads. When measured, the ceilings for each
/// number of threads are kept too, for `profile`.
///
/// # Errors
///
/// Why there is none.
pub(crate) fn survey(
    threads: NonZeroUsize,
    fresh: bool,
    step: &mut dyn FnMut(),
) -> Result<(Kept<Survey>, Source), Absent> {
    let identity = Identity::here(threads, Kernels::best());
    let (kept, source) = kept_or(identity, fresh, || {
        Survey::measure(threads, step).map_err(|error| Absent {
            reason: format!("--threads: the system can't start {threads} threads: {error}"),
        })
    })?;
    if !source.is_kept
        && let Some(folder) = source.path.as_deref().and_then(Path::parent)
    {
        for threads in Survey::thread_counts(threads) {
            let identity = Identity { threads: threads.get() as u32, ..kept.identity.clone() };
            let others_share = kept.others_share;
            if let Some(value) = kept.value.ceilings(identity.threads)
                && let Err(error) =
                    store_unless_worse(folder, &Kept { identity, others_share, value })
            {
                eprintln!("note: ceilings are not kept in {}: {error}", folder.display());
            }
        }
    }
    Ok((kept, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings() -> Kept<Ceilings> {
        let value = Ceilings {
            read_bytes_per_second: 50e9,
            flops_per_second: 200e9,
            numbers: Some(Numbers::F32),
            basis: "measured before the run: 2 threads, scalar".to_owned(),
            measured: Some("2026-11-21T10:00:00Z".to_owned()),
            ..Ceilings::default()
        };
        let two = NonZeroUsize::new(2).expect("not zero");
        let scalar = Kernels::new(brickscope::Backend::Scalar).expect("runs everywhere");
        Kept { identity: Identity::here(two, scalar), others_share: Some(0.04), value }
    }

    #[test]
    fn what_was_kept_is_had_again_by_the_same_machine_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("not yet there");
        let kept = ceilings();
        assert_eq!(load::<Ceilings>(&folder, &kept.identity), Ok(None));
        let path = store(&folder, &kept).expect("stored");
        assert_eq!(load(&folder, &kept.identity), Ok(Some(kept.clone())));
        let entries = std::fs::read_dir(&folder).expect("the folder").count();
        assert_eq!(entries, 1, "no temporary file is left");

        let here = &kept.identity;
        let machine = Machine { cpu: Some("another".to_owned()), ..here.machine.clone() };
        for (identity, what) in [
            (Identity { machine, ..here.clone() }, "another machine"),
            (Identity { cpu_limit: Some(0.5), ..here.clone() }, "another CPU limit"),
            (Identity { cpuset: Some("7".to_owned()), ..here.clone() }, "another set of CPUs"),
            (
                Identity { brickscope_version: "0.0.0".to_owned(), ..here.clone() },
                "another version of brickscope",
            ),
        ] {
            let why = load::<Ceilings>(&folder, &identity).expect_err(what);
            assert!(why.ends_with(&format!("its ceilings are of {what}")), "{why}");
            assert!(why.starts_with(&path.display().to_string()), "{why}");
        }
        // A file of another number of threads under this name.
        let foreign = Kept { identity: Identity { threads: 3, ..here.clone() }, ..kept.clone() };
        let other = store(&folder, &foreign).expect("stored");
        std::fs::rename(other, path).expect("renamed");
        let why = load::<Ceilings>(&folder, here).expect_err("of another number of threads");
        assert!(why.ends_with("another number of threads"), "{why}");
    }

    #[test]
    fn a_damaged_file_is_of_no_use_and_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = ceilings();
        let path = store(folder.path(), &kept).expect("stored");
        let text = std::fs::read_to_string(&path).expect("stored");
        let long = format!("{text}{}", " ".repeat(MAX_FILE as usize));
        for (damaged, why) in [
            (&text[..text.len() / 2], "it holds no ceilings: "),
            ("", "it holds no ceilings: "),
            ("[]", "it holds no ceilings: "),
            (&text.replace("50000000000.0", "-1.0"), "it holds rates that are none"),
            (&long, "it is too long"),
        ] {
            std::fs::write(&path, damaged).expect("written");
            let said = load::<Ceilings>(folder.path(), &kept.identity).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
        std::fs::write(&path, b"\xff\xfe").expect("written");
        assert!(load::<Ceilings>(folder.path(), &kept.identity).is_err());
    }

    #[test]
    fn what_others_disturbed_is_not_had_again() {
        let folder = tempfile::tempdir().expect("a folder");
        for (others_share, is_of_use) in
            [(None, true), (Some(0.05), true), (Some(0.31), false), (Some(1e300), false)]
        {
            let kept = Kept { others_share, ..ceilings() };
            store(folder.path(), &kept).expect("stored");
            let loaded = load::<Ceilings>(folder.path(), &kept.identity);
            assert_eq!(loaded, Ok(is_of_use.then_some(kept)));
            assert_eq!(remark(others_share).is_none(), is_of_use);
        }
        assert_eq!(
            remark(Some(0.31)).expect("it is much"),
            "others used 31 % of the CPUs meanwhile, so it may be more"
        );
    }

    #[test]
    fn what_others_disturbed_does_not_take_the_place_of_what_nobody_did() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let good = ceilings();
        let path = path::<Ceilings>(folder, &good.identity);
        let disturbed = Kept { others_share: Some(0.31), ..ceilings() };
        // Where nothing is, or nothing better, it is kept.
        for _ in 0..2 {
            let stored = store_unless_worse(folder, &disturbed).expect("a folder to write to");
            assert_eq!(stored.as_ref(), Some(&path));
        }
        let stored = store_unless_worse(folder, &good).expect("a folder to write to");
        assert_eq!(stored.as_ref(), Some(&path));
        assert_eq!(store_unless_worse(folder, &disturbed).expect("nothing to write"), None);
        assert_eq!(load(folder, &good.identity), Ok(Some(good.clone())));
        // Of another version nothing is of use here.
        let version = "0.0.0".to_owned();
        let identity = Identity { brickscope_version: version, ..good.identity };
        let other = Kept { identity, ..disturbed };
        let stored = store_unless_worse(folder, &other).expect("a folder to write to");
        assert_eq!(stored, Some(path));
    }

    #[test]
    fn the_basis_of_kept_ceilings_says_when_and_with_what() {
        assert_eq!(
            ceilings().value.kept().basis,
            "measured 2026-11-21T10:00:00Z and kept: 2 threads, scalar"
        );
    }
}
