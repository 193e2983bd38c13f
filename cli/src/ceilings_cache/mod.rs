//! Ceilings from earlier measurements, stored in the cache folder along with the machine they belong to.

mod readings;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use brickscope::load::{self, Limit};
use brickscope::{
    Absent, CeilingReading, Ceilings, CpuLimit, LoadWatch, Machine, Move, Numbers, ReadingTime,
    Survey, WeightGroup, write_atomically,
};
use brickscope_engine::Model;
use brickscope_kernels::{Kernels, ThreadPool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::readings::{keep_reading, with_readings};
pub(crate) use self::readings::{measure_again, memory_readings, share_memory};
use crate::cache;

/// None of our files comes close to this size.
const MAX_FILE: u64 = 1 << 20;

/// If other processes used more than this share of the CPU time, they may have lowered a ceiling.
const MUCH: f64 = 0.05;

/// What ceilings depend on. Ceilings with another identity aren't used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    machine: Machine,
    /// The CPU limit of the control group, in CPUs.
    cpu_limit: Option<f64>,
    cpuset: Option<String>,
    threads: u32,
    backend: String,
    brickscope_version: String,
    /// How it was measured: see [`METHOD`]. Files of before have none.
    #[serde(default)]
    method: u32,
}

/// Grows when rates are measured by other means, so that none is held against one of before. 1: data is taken out of the caches
/// before memory is read; 2: of no cache does a thread move more than 32 MiB.
const METHOD: u32 = 2;

impl Identity {
    fn here(threads: NonZeroUsize, kernels: Kernels) -> Self {
        let limit = CpuLimit::read().unwrap_or_default();
        Self {
            machine: brickscope::machine::detect(),
            cpu_limit: limit.cpus,
            cpuset: limit.cpuset,
            threads: threads.get() as u32,
            backend: kernels.backend().name().to_owned(),
            brickscope_version: env!("CARGO_PKG_VERSION").to_owned(),
            method: METHOD,
        }
    }

    /// What memory's bandwidth depends on.
    fn of_memory() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self::here(threads, Kernels::best())
    }

    /// The machine in one line.
    pub(crate) fn line(&self) -> String {
        let Machine { os, arch, cpu, logical_cpus, memory_bytes } = &self.machine;
        let mut parts = vec![cpu.clone().unwrap_or("unnamed CPU".to_owned())];
        parts.extend(logical_cpus.map(|n| format!("{n} CPUs")));
        parts.extend(self.cpu_limit.map(|n| format!("limited to {n:.1} of them")));
        parts.extend(memory_bytes.map(|n| format!("{:.1} GB", n as f64 / 1e9)));
        format!("machine   {}, {os} {arch}\n", parts.join(", "))
    }

    /// The first difference, in words.
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

/// A measured value and the circumstances of its measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cached<T> {
    pub(crate) identity: Identity,
    /// The share of the machine's CPU time that other processes used meanwhile, 0 to 1.
    pub(crate) others_share: Option<f64>,
    pub(crate) value: T,
}

/// Values that can be stored in a file each.
pub(crate) trait Cacheable: Serialize + DeserializeOwned {
    /// The beginning of the file's name.
    const NAME: &'static str;
    /// Refuses implausible values, since a file may contain anything.
    fn check(&self) -> Result<(), &'static str>;
}

fn are_rates(mut rates: impl Iterator<Item = f64>) -> Result<(), &'static str> {
    let are_some = rates.all(|rate| (1.0..1e30).contains(&rate));
    if are_some { Ok(()) } else { Err("its rates are implausible") }
}

impl Cacheable for Ceilings {
    const NAME: &'static str = "ceilings";

    fn check(&self) -> Result<(), &'static str> {
        // Older files don't say which numbers the peak is for.
        if self.numbers != Some(Numbers::F32) {
            return Err("it doesn't say what its peak multiplies");
        }
        let rates = [self.read_bytes_per_second, self.flops_per_second];
        let caches = self.caches.iter().map(|cache| cache.read_bytes_per_second);
        let paces = self.paces.iter().filter_map(|pace| pace.bytes_per_second);
        are_rates(rates.into_iter().chain(self.int8_ops_per_second).chain(caches).chain(paces))
    }
}

impl Cacheable for Survey {
    const NAME: &'static str = "machine";

    fn check(&self) -> Result<(), &'static str> {
        let bandwidths = self.bandwidth.iter().filter_map(|row| row.bytes_per_second);
        let peaks = self.peaks.iter().filter_map(|row| row.ops_per_second);
        let paces = self.paces.iter().filter_map(|pace| pace.bytes_per_second);
        are_rates(bandwidths.chain(peaks).chain(paces))
    }
}

fn path<T: Cacheable>(folder: &Path, identity: &Identity) -> PathBuf {
    folder.join(format!("{}-{}-{}.json", T::NAME, identity.backend, identity.threads))
}

/// The stored value for `identity`, or why it can't be used; `Ok(None)` if there is none, or if other
/// processes used the CPUs during its measurement.
fn load<T: Cacheable>(folder: &Path, identity: &Identity) -> Result<Option<Cached<T>>, String> {
    let path = path::<T>(folder, identity);
    let unusable = |why: &str| format!("{}: {why}", path.display());
    let limit = Limit { bytes: MAX_FILE, instead: "is it a brickscope file?" };
    let text = match load::text(&path, limit) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&error.to_string())),
    };
    let cached: Cached<T> = serde_json::from_str(&text)
        .map_err(|error| unusable(&format!("it holds no ceilings: {error}")))?;
    if let Some(what) = identity.difference(&cached.identity) {
        return Err(unusable(&format!("its ceilings are of {what}")));
    }
    if let Err(why) = cached.value.check() {
        return Err(unusable(why));
    }
    // A value that others may have lowered is measured again without a note: the file isn't wrong.
    Ok(Some(cached).filter(|cached| much(cached.others_share).is_none()))
}

/// Stores a value, and returns the path.
fn store<T: Cacheable>(folder: &Path, cached: &Cached<T>) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = path::<T>(folder, &cached.identity);
    write_atomically(
        &path,
        |error| error,
        |out| {
            serde_json::to_writer_pretty(&mut *out, cached)?;
            out.write_all(b"\n")
        },
    )?;
    Ok(path)
}

/// Stores a value, unless it was disturbed by others and the stored one wasn't. Returns the path if it
/// did.
fn store_unless_worse<T: Cacheable>(
    folder: &Path,
    cached: &Cached<T>,
) -> io::Result<Option<PathBuf>> {
    if let Some(share) = much(cached.others_share)
        && let Ok(Some(_)) = load::<T>(folder, &cached.identity)
    {
        let path = path::<T>(folder, &cached.identity);
        let path = path.display();
        tell!("note: not stored, since others used {share} of the CPUs: {path} is unchanged");
        return Ok(None);
    }
    store(folder, cached).map(Some)
}

/// The stored value, or else the result of `measure`, which is then stored; and its path, if there is
/// one.
fn cached_or<T: Cacheable>(
    identity: Identity,
    fresh: bool,
    measure: impl FnOnce() -> Result<T, Absent>,
) -> Result<(Cached<T>, Source), Absent> {
    let folder = cache::folder();
    if let (Ok(folder), false) = (&folder, fresh) {
        match load(folder, &identity) {
            Ok(Some(cached)) => {
                let path = path::<T>(folder, &identity);
                return Ok((cached, Source { path: Some(path), is_cached: true }));
            }
            Ok(None) => {}
            Err(why) => {
                tell!("note: measuring again, since the stored file can't be used: {why}")
            }
        }
    }
    let watch = LoadWatch::start();
    let value = measure()?;
    let others = watch.and_then(|watch| watch.so_far()).ok();
    let others_share = others.map(|load| load.others_share());
    let cached = Cached { identity, others_share, value };
    let stored = folder.and_then(|folder| Ok(store_unless_worse(&folder, &cached)?));
    if let Err(error) = &stored {
        tell!("note: the ceilings couldn't be stored for next time: {error:#}");
    }
    Ok((cached, Source { path: stored.ok().flatten(), is_cached: false }))
}

/// Where a value comes from.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its file, if there is one now.
    pub(crate) path: Option<PathBuf>,
    /// Whether it was stored earlier.
    pub(crate) is_cached: bool,
}

/// The CPU time that others used, in percent, if it may have lowered a ceiling. `NaN` counts as too
/// much.
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
/// The reason why there are none.
pub(crate) fn ceilings(
    model: &Model,
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<Ceilings, Absent> {
    let (Cached { value, others_share, .. }, source) = cached_ceilings(kernels, pool)?;
    let mut value = of_model(model, kernels, value);
    if source.is_cached {
        value = value.kept();
    } else if let Some(remark) = remark(others_share) {
        value.basis += &format!("; {remark}");
    }
    let (bytes, types) = (model.gguf.file_len() as u64, model.product_types());
    with_readings((bytes, &types), kernels, pool, &mut value);
    Ok(value)
}

/// The ceilings with the peak for the numbers that the products of `model` multiply.
fn of_model(model: &Model, kernels: Kernels, ceilings: Ceilings) -> Ceilings {
    if model.rounds_activations(kernels) { ceilings.of_int8_products() } else { ceilings }
}

/// As [`ceilings`], but without any that other processes may have lowered, since a receipt is judged by
/// them.
///
/// # Errors
///
/// The reason why there are none.
pub(crate) fn sure_ceilings(
    model: &Model,
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<Ceilings, Absent> {
    let (Cached { value, others_share, .. }, source) = cached_ceilings(kernels, pool)?;
    if let Some(share) = much(others_share) {
        let reason = format!(
            "others used {share} of the CPUs while they were measured, so they would be too low"
        );
        return Err(Absent { reason });
    }
    let mut value = of_model(model, kernels, value);
    if source.is_cached {
        value = value.kept();
    }
    let (bytes, types) = (model.gguf.file_len() as u64, model.product_types());
    with_readings((bytes, &types), kernels, pool, &mut value);
    Ok(value)
}

/// The ceilings for a run that is over, of so many threads. If its model is known and can be read, the peak is that for the
/// numbers which its products multiply; else it is that of `f32`.
///
/// # Errors
///
/// The reason why there are none.
pub(crate) fn ceilings_after(
    model: Option<&Model>,
    threads: NonZeroUsize,
) -> Result<Ceilings, Absent> {
    let Some(model) = model else { return ceilings_of_others(None, threads) };
    let pool = ThreadPool::new(threads).map_err(|why| Absent { reason: format!("{why}") })?;
    ceilings(model, Kernels::best(), &pool)
}

/// The same for a run of another engine, whatever the architecture of its model: the peak is that of 8-bit arithmetic, if
/// some of these matrices are of formats whose products round activations to 8 bits in llama.cpp, too.
///
/// # Errors
///
/// The reason why there are none.
pub(crate) fn ceilings_of_others(
    model: Option<&brickscope::Model>,
    threads: NonZeroUsize,
) -> Result<Ceilings, Absent> {
    let kernels = Kernels::best();
    let pool = ThreadPool::new(threads).map_err(|why| Absent { reason: format!("{why}") })?;
    let (Cached { mut value, others_share, .. }, source) = cached_ceilings(kernels, &pool)?;
    let rounds = |of: &WeightGroup| of.is_matrix && !["f32", "f16", "bf16"].contains(&&*of.format);
    if model.is_some_and(|model| model.weights.iter().any(rounds)) {
        value = value.of_int8_products();
    }
    if source.is_cached {
        value = value.kept();
    } else if let Some(remark) = remark(others_share) {
        value.basis += &format!("; {remark}");
    }
    let bytes = model.map_or(0, |model| model.file_bytes);
    // How fast the kernels of others are, nobody measures.
    with_readings((bytes, &[]), kernels, &pool, &mut value);
    Ok(value)
}

fn cached_ceilings(
    kernels: Kernels,
    pool: &ThreadPool,
) -> Result<(Cached<Ceilings>, Source), Absent> {
    let threads = NonZeroUsize::new(pool.threads()).unwrap_or(NonZeroUsize::MIN);
    let identity = Identity::here(threads, kernels);
    cached_or(identity, false, || brickscope::machine::measure_ceilings(kernels, pool))
}

/// The survey of this machine on up to `threads` threads. A new measurement also stores the ceilings
/// for each number of threads, for `profile`.
///
/// # Errors
///
/// The reason why there is none.
pub(crate) fn survey(
    threads: NonZeroUsize,
    fresh: bool,
    step: &mut dyn FnMut(),
) -> Result<(Cached<Survey>, Source), Absent> {
    let identity = Identity::here(threads, Kernels::best());
    let (cached, source) = cached_or(identity, fresh, || {
        brickscope::machine::measure_survey(threads, step).map_err(|error| Absent {
            reason: format!("--threads: the system can't start {threads} threads: {error}"),
        })
    })?;
    if !source.is_cached && threads.get() as u32 == Identity::of_memory().threads {
        let rows = cached
            .value
            .bandwidth
            .iter()
            .filter(|row| row.level == "memory" && row.how == Move::Read);
        let best = rows.filter_map(|row| row.bytes_per_second).max_by(f64::total_cmp);
        if let Some(read_bytes_per_second) = best {
            let measured = cached.value.measured.clone();
            let when = ReadingTime::Kept;
            let reading =
                CeilingReading { when, measured, read_bytes_per_second, disturbed: false };
            keep_reading(reading, Identity::of_memory(), cached.others_share);
        }
    }
    if !source.is_cached
        && let Some(folder) = source.path.as_deref().and_then(Path::parent)
    {
        for threads in brickscope::machine::survey_thread_counts(threads) {
            let identity = Identity { threads: threads.get() as u32, ..cached.identity.clone() };
            let others_share = cached.others_share;
            if let Some(value) = cached.value.ceilings(identity.threads)
                && let Err(error) =
                    store_unless_worse(folder, &Cached { identity, others_share, value })
            {
                tell!("note: ceilings couldn't be stored in {}: {error}", folder.display());
            }
        }
    }
    Ok((cached, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings() -> Cached<Ceilings> {
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
        Cached { identity: Identity::here(two, scalar), others_share: Some(0.04), value }
    }

    #[test]
    fn what_was_kept_is_had_again_by_the_same_machine_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("not yet there");
        let cached = ceilings();
        assert_eq!(load::<Ceilings>(&folder, &cached.identity), Ok(None));
        let path = store(&folder, &cached).expect("stored");
        assert_eq!(load(&folder, &cached.identity), Ok(Some(cached.clone())));
        let entries = std::fs::read_dir(&folder).expect("the folder").count();
        assert_eq!(entries, 1, "no temporary file is left");

        let here = &cached.identity;
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
        // A file for another number of threads under this name.
        let foreign =
            Cached { identity: Identity { threads: 3, ..here.clone() }, ..cached.clone() };
        let other = store(&folder, &foreign).expect("stored");
        std::fs::rename(other, path).expect("renamed");
        let why = load::<Ceilings>(&folder, here).expect_err("of another number of threads");
        assert!(why.ends_with("another number of threads"), "{why}");
    }

    #[test]
    fn a_damaged_file_is_of_no_use_and_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let cached = ceilings();
        let path = store(folder.path(), &cached).expect("stored");
        let text = std::fs::read_to_string(&path).expect("stored");
        let long = format!("{text}{}", " ".repeat(MAX_FILE as usize));
        for (damaged, why) in [
            (&text[..text.len() / 2], "it holds no ceilings: "),
            ("", "it holds no ceilings: "),
            ("[]", "it holds no ceilings: "),
            (&text.replace("50000000000.0", "-1.0"), "its rates are implausible"),
            (&long, "it has more than 1 MiB"),
        ] {
            std::fs::write(&path, damaged).expect("written");
            let said = load::<Ceilings>(folder.path(), &cached.identity).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
        std::fs::write(&path, b"\xff\xfe").expect("written");
        assert!(load::<Ceilings>(folder.path(), &cached.identity).is_err());
    }

    #[test]
    fn what_others_disturbed_is_not_had_again() {
        let folder = tempfile::tempdir().expect("a folder");
        for (others_share, is_of_use) in
            [(None, true), (Some(0.05), true), (Some(0.31), false), (Some(1e300), false)]
        {
            let cached = Cached { others_share, ..ceilings() };
            store(folder.path(), &cached).expect("stored");
            let loaded = load::<Ceilings>(folder.path(), &cached.identity);
            assert_eq!(loaded, Ok(is_of_use.then_some(cached)));
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
        let disturbed = Cached { others_share: Some(0.31), ..ceilings() };
        // It is stored if there is nothing yet, or nothing better.
        for _ in 0..2 {
            let stored = store_unless_worse(folder, &disturbed).expect("a folder to write to");
            assert_eq!(stored.as_ref(), Some(&path));
        }
        let stored = store_unless_worse(folder, &good).expect("a folder to write to");
        assert_eq!(stored.as_ref(), Some(&path));
        assert_eq!(store_unless_worse(folder, &disturbed).expect("nothing to write"), None);
        assert_eq!(load(folder, &good.identity), Ok(Some(good.clone())));
        // Files of other versions aren't used.
        let version = "0.0.0".to_owned();
        let identity = Identity { brickscope_version: version, ..good.identity };
        let other = Cached { identity, ..disturbed };
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
