//! The part of a receipt that a timeline needs, so that hundreds of receipts needn't stay in memory; and what takes its place
//! where another program measured.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use brickscope_profile::stats::median;
use brickscope_profile::text::file_name;
use brickscope_profile::{Imported, ImportedTest, Profile, save};
use brickscope_receipt::v1::{Sample, Test};
use brickscope_receipt::{Receipt, sha256_hex};
use serde::Serialize;

use super::Measure;
use super::series::{MachineKind, SeriesKind};
use crate::compare::{UnusableProfile, Work, build, calls};
use crate::fleet::Observation;

/// The part of a receipt that a timeline needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(super) source: String,
    /// Whether it is of a receipt.
    pub(super) has_receipt: bool,
    /// The hash of the receipt, if it has one; without a receipt that of what was measured.
    pub(super) hash: Option<String>,
    /// The timestamp to the second, and what follows the second.
    pub(super) time: (String, String),
    pub(super) version: String,
    pub(super) binary: Option<String>,
    pub(super) commit: Option<String>,
    /// Whether whoever measured named it.
    names_commit: bool,
    /// The machine's name, if whoever measured gave it one.
    pub(super) machine: Option<String>,
    /// The boot of the machine, by the first digits of its hash.
    boot: Option<String>,
    /// The model's name or, if it has none, its path.
    pub(super) model: String,
    pub(super) set: Option<String>,
    pub(super) processes: u32,
    /// Conditions that may differ within a series, by name.
    pub(super) circumstances: Vec<(String, String)>,
    pub(super) tests: Vec<RunTest>,
}

/// One test of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunTest {
    pub(super) kind: SeriesKind,
    pub(super) work: Work,
    pub(super) repetitions: u64,
    pub(super) disturbed: u64,
    /// What makes its figures doubtful.
    pub(super) doubts: Vec<String>,
    pub(super) rate: Option<Figures>,
    /// Wall nanoseconds per token over all passes.
    pub(super) wall: Option<Figures>,
    /// Nanoseconds per token of each brick; the last one is the unattributed time.
    pub(super) bricks: Vec<(String, Figures)>,
}

/// Several figures of one kind, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// The smallest.
    pub low: f64,
    /// The median: the one in the middle, or the mean of the two.
    pub median: f64,
    /// The largest.
    pub high: f64,
}

impl Figures {
    /// Of the processes of a set, or the repetitions of one. `None` without any, or if one isn't finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let fold = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        let is_fine = |x: &f64| x.is_finite();
        Some(Self { low: fold(f64::min)?, median: median(values)?, high: fold(f64::max)? })
            .filter(|_| values.iter().all(is_fine))
    }
}

/// A condition that differs from the point before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name: `binary`, `kernel release`, `boot`, …
    pub what: String,
    /// Its value before; `null` if the receipt didn't state it.
    pub from: Option<String>,
    /// Its value now.
    pub to: Option<String>,
}

/// The format of imported runs that have a timeline.
const LLAMA_BENCH: &str = "llama-bench";

/// The entry of a receipt's environment that names the machine.
pub const MACHINE: &str = "MACHINE";

/// The entry that names the commit of what was measured, if whoever measured did: brickscope's own is under `COMMIT`.
pub const ENGINE_COMMIT: &str = "ENGINE_COMMIT";

/// The commit that a receipt is of: what whoever measured named, else brickscope's own.
#[must_use]
pub fn commit_of(receipt: &Receipt) -> Option<&String> {
    commit_in(&receipt.environment)
}

fn commit_in(environment: &BTreeMap<String, String>) -> Option<&String> {
    environment.get(ENGINE_COMMIT).or_else(|| environment.get("COMMIT"))
}

/// The name of the entry for unattributed time among the bricks.
pub(super) const UNATTRIBUTED: &str = "unattributed";

impl Run {
    /// Takes what a timeline needs from the receipt that was read from `source`. Figures are computed from
    /// its samples. Neither its own figures nor its seal are checked: that is the task of whatever reads
    /// receipts.
    ///
    /// # Errors
    ///
    /// A sentence, if the timestamp is invalid, so that the run has no place in time, or if two tests are
    /// the same.
    pub fn of(source: &str, receipt: &Receipt) -> Result<Self, String> {
        let time = time(&receipt.timestamp).ok_or_else(|| {
            let text: String = receipt.timestamp.chars().take(40).collect();
            format!("its timestamp {text:?} is not like 2026-01-31T23:59:59Z")
        })?;
        let mut tests: Vec<RunTest> = Vec::new();
        for test in &receipt.tests {
            let test = RunTest::of(test, receipt);
            if tests.iter().any(|other| other.kind == test.kind) {
                return Err(format!("it has two tests {:?}", test.kind.test));
            }
            tests.push(test);
        }
        Ok(Self {
            source: source.to_owned(),
            has_receipt: true,
            hash: receipt.seal.as_ref().map(|seal| seal.sha256.clone()),
            time,
            version: receipt.binary.version.clone(),
            binary: receipt.binary.sha256.clone(),
            commit: commit_of(receipt).cloned(),
            names_commit: receipt.environment.contains_key(ENGINE_COMMIT),
            machine: receipt.environment.get(MACHINE).cloned(),
            boot: receipt.machine.boot.as_deref().map(short),
            model: receipt.model.name.clone().unwrap_or_else(|| receipt.model.path.clone()),
            set: receipt.run.set.clone(),
            processes: receipt.run.processes,
            circumstances: circumstances(receipt),
            tests,
        })
    }

    /// Takes what a timeline needs from a file of llama-bench, or from the run that it was imported as. There is no receipt, so
    /// nothing of it is verified.
    ///
    /// # Errors
    ///
    /// A sentence: if it is of another program, if it doesn't state when it was measured, or if it has no times of
    /// repetitions.
    pub fn of_llama_bench(source: &str, profile: &Profile) -> Result<Vec<Self>, String> {
        let imported = profile.imported.as_ref().filter(|of| of.format == LLAMA_BENCH);
        let imported = imported.ok_or("it is no run of llama-bench")?;
        // Then its time is that of the import.
        let mut lacks = imported.lacks.iter();
        let is_undated = lacks.any(|lack| lack.reason.starts_with("when it was measured"));
        if is_undated {
            return Err("it doesn't state when it was measured (test_time)".to_owned());
        }
        if imported.tests.is_empty() {
            return Err(UnusableProfile::OnlyRates.to_string());
        }
        calls(profile, &imported.tests)
            .into_iter()
            .map(|(began, tests)| Self::of_invocation(source, profile, imported, began, tests))
            .collect()
    }

    /// What one call of the program measured.
    fn of_invocation(
        source: &str,
        profile: &Profile,
        imported: &Imported,
        began: &str,
        of: &[ImportedTest],
    ) -> Result<Self, String> {
        let time = time(began).ok_or("it doesn't state when it was measured (test_time)")?;
        let mut tests: Vec<RunTest> = Vec::new();
        for (kind, work, test) in listed(profile, of) {
            tests.push(RunTest::of_listed(kind, work, &test));
        }
        if tests.is_empty() {
            return Err(UnusableProfile::OnlyRates.to_string());
        }
        let program = of.first().and_then(build).or_else(|| imported.program.clone());
        let program = program.unwrap_or_else(|| imported.format.clone());
        // `llama.cpp 1a2b3c4 (4567)`
        let of_build = || program.split(' ').nth(1).map(str::to_owned);
        let named = profile.named.clone().unwrap_or_default();
        let (names_commit, commit) = (named.commit.is_some(), named.commit.or_else(of_build));
        let path = profile.model.as_ref().map_or("", |model| model.path.as_str());
        // Machines have the same file in different folders.
        let file = file_name(path);
        // In whichever file, and beside whichever other rows.
        let rows = of.iter().map(|test| (&test.name, test.tokens, &test.samples_ns));
        let measured = (began, rows.collect::<Vec<_>>());
        let measured = serde_json::to_vec(&measured).map_err(|error| error.to_string())?;
        Ok(Self {
            source: source.to_owned(),
            has_receipt: false,
            hash: Some(sha256_hex(&measured)),
            time,
            version: program.clone(),
            binary: None,
            commit,
            names_commit,
            machine: named.machine,
            boot: None,
            model: if file.is_empty() { "several models" } else { file }.to_owned(),
            set: None,
            processes: 1,
            circumstances: vec![("version".to_owned(), program)],
            tests,
        })
    }

    /// Where it was read from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The name of its model or, if it has none, its path.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The name of its machine, if the receipt states it.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// What each of its tests says of its commit and its machine; nothing if the receipt doesn't name the machine.
    pub fn observations<'r>(
        &'r self,
        measure: &'r Measure,
    ) -> impl Iterator<Item = (&'r SeriesKind, &'r Work, Observation)> {
        let of = |test| Some((self.observation(test, measure)?, test));
        let all = self.tests.iter().filter_map(of);
        all.map(|(run, test): (_, &RunTest)| (&test.kind, &test.work, run))
    }

    /// Whether it is of the same program: the same commit if both name one; else the same file or, where that isn't stated,
    /// the same commit without changes.
    #[must_use]
    pub fn is_same_build(&self, other: &Self) -> bool {
        match (&self.binary, &other.binary) {
            (Some(own), Some(theirs)) if !(self.names_commit && other.names_commit) => {
                own == theirs
            }
            _ => {
                let is_clean = |commit: &String| !commit.ends_with("-dirty");
                self.commit == other.commit && self.commit.as_ref().is_some_and(is_clean)
            }
        }
    }

    pub(super) fn observation(&self, test: &RunTest, measure: &Measure) -> Option<Observation> {
        let time = save::unix_seconds(&format!("{}Z", self.time.0))?;
        let day = self.time.0.chars().take(10).collect::<String>();
        Some(Observation {
            machine: self.machine.clone()?,
            commit: self.built_of(),
            session: self.boot.as_ref().map_or(day.clone(), |boot| format!("{boot} {day}")),
            time: i64::try_from(time).ok()?,
            value: test.figures(measure)?.median,
        })
    }

    /// Whether it is of a receipt.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        self.has_receipt
    }

    /// The hash of its receipt, if that is sealed, or of what was measured without one: copies have the same.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// The name of the set of processes that it belongs to, and how many the set should have.
    #[must_use]
    pub fn set(&self) -> Option<(&str, u32)> {
        Some((self.set.as_deref()?, self.processes))
    }

    /// What names the program: its commit, else its file's hash, else its version.
    fn built_of(&self) -> String {
        let binary = || self.binary.as_deref().map(short);
        self.commit.clone().or_else(binary).unwrap_or_else(|| self.version.clone())
    }

    /// The kinds of its tests.
    pub fn kinds(&self) -> impl Iterator<Item = &SeriesKind> {
        self.tests.iter().map(|test| &test.kind)
    }

    /// The bricks that it has times for, with `unattributed` for the time in none.
    pub fn bricks(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().flat_map(|test| &test.bricks).map(|(name, _)| name.as_str())
    }

    /// Keeps only the tests for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&SeriesKind) -> bool) {
        self.tests.retain(|test| keep(&test.kind));
    }

    /// Oldest first. Runs of the same moment are ordered by their content, so that the order doesn't
    /// depend on how they were found.
    pub(super) fn cmp_by_time(&self, other: &Self) -> Ordering {
        fn key(run: &Run) -> (&(String, String), &Option<String>, &Option<String>, &str) {
            (&run.time, &run.set, &run.hash, &run.source)
        }
        key(self).cmp(&key(other))
    }
}

/// The tests that have times, rows that measured one again with it.
fn listed(profile: &Profile, tests: &[ImportedTest]) -> Vec<(SeriesKind, Work, ImportedTest)> {
    let mut found: Vec<(SeriesKind, Work, ImportedTest)> = Vec::new();
    let mut known: BTreeMap<SeriesKind, usize> = BTreeMap::new();
    for test in tests.iter().filter(|test| !test.samples_ns.is_empty()) {
        let kind = SeriesKind::of_listed(test, profile);
        if let Some(&nth) = known.get(&kind) {
            found[nth].2.samples_ns.extend(&test.samples_ns);
            continue;
        }
        known.insert(kind.clone(), found.len());
        found.push((kind, Work::of_imported_test(profile, test), test.clone()));
    }
    found
}

impl RunTest {
    fn of_listed(kind: SeriesKind, work: Work, test: &ImportedTest) -> Self {
        let tokens = test.tokens.max(1) as f64;
        let rates = test.samples_ns.iter().map(|&ns| tokens * 1e9 / ns as f64);
        let walls = test.samples_ns.iter().map(|&ns| ns as f64 / tokens);
        Self {
            kind,
            work,
            repetitions: test.samples_ns.len() as u64,
            disturbed: 0,
            doubts: Vec::new(),
            rate: Figures::of(&rates.collect::<Vec<_>>()).filter(|rate| rate.low > 0.0),
            wall: Figures::of(&walls.collect::<Vec<_>>()),
            bricks: Vec::new(),
        }
    }

    pub(super) fn figures(&self, measure: &Measure) -> Option<Figures> {
        match measure {
            Measure::TokensPerSecond => self.rate,
            Measure::Brick(brick) => self.brick(brick),
        }
    }

    pub(super) fn brick(&self, name: &str) -> Option<Figures> {
        self.bricks.iter().find(|(brick, _)| brick == name).map(|(_, figures)| *figures)
    }

    fn of(test: &Test, receipt: &Receipt) -> Self {
        let measured: Vec<&Sample> = test.samples.iter().filter(|s| !s.is_warm_up).collect();
        let rates: Vec<f64> = measured.iter().map(|sample| sample.rate()).collect();
        // Nanoseconds per token: measured time over tokens. A sample without a time or without tokens
        // makes the whole figure absent, rather than being left out of it.
        let per_token = |time: &dyn Fn(&Sample) -> Option<u64>| {
            let times = measured.iter().map(|sample| {
                let tokens = Some(sample.tokens).filter(|&tokens| tokens > 0)?;
                Some(time(sample)? as f64 / tokens as f64)
            });
            Figures::of(&times.collect::<Option<Vec<f64>>>()?)
        };
        let mut bricks: Vec<(String, Figures)> = Vec::new();
        for brick in &test.bricks {
            // Two bricks of one name can't be distinguished from here on: their times add up.
            if bricks.iter().any(|(name, _)| *name == brick.name) {
                continue;
            }
            let same = |sample: &Sample| {
                let columns = test.bricks.iter().enumerate().filter(|(_, b)| b.name == brick.name);
                let mut times = columns.map(|(i, _)| sample.brick_ns.get(i));
                times.try_fold(0_u64, |sum, ns| sum.checked_add(*ns?))
            };
            bricks.extend(per_token(&same).map(|figures| (brick.name.clone(), figures)));
        }
        let rest = per_token(&|sample| sample.unattributed_ns);
        bricks.extend(rest.map(|figures| (UNATTRIBUTED.to_owned(), figures)));
        Self {
            kind: SeriesKind::of(test, receipt),
            work: Work::of_receipt(receipt, test),
            repetitions: measured.len() as u64,
            doubts: receipt
                .load
                .doubts
                .iter()
                .filter(|d| is_about(d, test, receipt))
                .cloned()
                .collect(),
            disturbed: measured.iter().filter(|s| s.disturbed == Some(true)).count() as u64,
            rate: Figures::of(&rates).filter(|rate| rate.low > 0.0),
            wall: per_token(&|sample| Some(sample.wall_ns)),
            bricks,
        }
    }
}

/// Whether a doubt is about this test or about the whole run. One about a single test begins with its name.
fn is_about(doubt: &str, test: &Test, receipt: &Receipt) -> bool {
    let names = |test: &Test| doubt.strip_prefix(&*test.name).is_some_and(|d| d.starts_with(':'));
    names(test) || !receipt.tests.iter().any(names)
}

impl SeriesKind {
    fn of_listed(test: &ImportedTest, profile: &Profile) -> Self {
        let conditions = profile.imported.iter().flat_map(|imported| &imported.conditions);
        let all: Vec<&(String, String)> = test.apart.iter().chain(conditions).collect();
        let stated = |field: &str| {
            let of = all.iter().find(|(name, value)| name == field && !value.is_empty());
            of.map(|(_, value)| value.clone())
        };
        let (run, model) = (profile.run.as_ref(), profile.model.as_ref());
        let number = |field: &str| stated(field).and_then(|number| number.parse::<u64>().ok());
        let (n_prompt, n_gen, n_depth) = test.counts().unwrap_or_default();
        let threads = number("n_threads").and_then(|threads| u32::try_from(threads).ok());
        let architecture = || model.map_or(String::new(), |model| model.architecture.clone());
        Self {
            model_sha256: String::new(),
            quantization: stated("model_type").unwrap_or_else(architecture),
            test: test.name.clone(),
            n_prompt,
            n_gen,
            n_depth,
            backend: stated("backends")
                .unwrap_or_else(|| run.map_or(String::new(), |run| run.backend.clone())),
            device: stated("gpu_info"),
            kernels: String::new(),
            threads: threads.unwrap_or_else(|| run.map_or(0, |run| run.threads)),
            batch: match n_prompt {
                0 => 1,
                n_prompt => number("n_batch").map_or(n_prompt, |batch| batch.min(n_prompt)),
            },
            profiled: false,
            settings: Work::settings_of(profile, test),
            machine: MachineKind { cpu: stated("cpu_info"), ..MachineKind::default() },
        }
    }

    fn of(test: &Test, receipt: &Receipt) -> Self {
        let (model, run, machine) = (&receipt.model, &receipt.run, &receipt.machine);
        Self {
            model_sha256: model.sha256.clone(),
            quantization: model.quantization.clone(),
            test: test.name.clone(),
            n_prompt: test.n_prompt,
            n_gen: test.n_gen,
            n_depth: test.n_depth,
            backend: receipt.backend.clone(),
            device: receipt.device.as_ref().map(|device| device.name.clone()),
            kernels: run.kernels.clone(),
            threads: run.threads,
            // The batch of the run may be larger than this test's prompt, because of another test.
            batch: if test.n_prompt > 0 { run.batch.min(test.n_prompt) } else { 1 },
            profiled: run.profiled,
            settings: Vec::new(),
            machine: MachineKind {
                os: machine.os.clone(),
                arch: machine.arch.clone(),
                cpu: machine.cpu.clone(),
                cpu_id: machine.cpu_id.clone(),
                logical_cpus: machine.logical_cpus,
                threads_per_core: machine.threads_per_core,
                // The part that the operating system reserves varies a little.
                memory_gib: machine.memory_bytes.map(|bytes| bytes.div_ceil(1 << 30)),
                hypervisor: machine.hypervisor.clone(),
                cgroup_milli_cpus: machine.cgroup_cpus.map(|cpus| (cpus * 1e3).round() as u64),
            },
        }
    }
}

/// Conditions that may explain a change without a change of code, and those that identify the code.
fn circumstances(receipt: &Receipt) -> Vec<(String, String)> {
    let (machine, run) = (&receipt.machine, &receipt.run);
    let text = |value: &Option<String>| value.clone();
    let known = [
        ("version", Some(receipt.binary.version.clone())),
        ("binary", receipt.binary.sha256.as_deref().map(short)),
        ("boot", machine.boot.as_deref().map(short)),
        ("kernel release", text(&machine.kernel)),
        ("microcode", text(&machine.microcode)),
        ("governor", text(&machine.governor)),
        ("turbo", machine.turbo.map(|on| if on { "on" } else { "off" }.to_owned())),
        ("huge pages", text(&machine.huge_pages)),
        ("libc", text(&machine.libc)),
        ("cpuset", text(&machine.cgroup_cpuset)),
        ("clock", Some(receipt.clock.source.clone())),
        ("driver", receipt.device.as_ref().and_then(|device| device.driver.clone())),
        ("sampling", Some(run.sampling.clone())),
        ("seed", Some(run.seed.to_string())),
    ];
    let environment = receipt.environment.iter();
    let environment = environment
        // These two are in the list already.
        .filter(|(name, _)| !["BRICKSCOPE_VERSION", "OS"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()));
    known
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .chain(environment)
        .collect()
}

/// The conditions that differ between `before` and `now`.
pub(super) fn differences(before: &Run, now: &Run) -> Vec<Difference> {
    fn get<'r>(run: &'r Run, what: &str) -> Option<&'r String> {
        run.circumstances.iter().find(|(name, _)| name == what).map(|(_, value)| value)
    }
    let both = now.circumstances.iter().chain(&before.circumstances);
    let mut differences: Vec<Difference> = Vec::new();
    for (what, _) in both {
        let (from, to) = (get(before, what), get(now, what));
        if from != to && !differences.iter().any(|known| known.what == *what) {
            let (from, to) = (from.cloned(), to.cloned());
            differences.push(Difference { what: what.clone(), from, to });
        }
    }
    differences
}

/// The first eight characters of a hash.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(8).collect()
}

/// A timestamp in parts that sort by time; `None` if it is invalid.
fn time(timestamp: &str) -> Option<(String, String)> {
    let (whole, fraction) = save::parse_rfc3339(timestamp)?;
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    Some((whole.to_owned(), fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_sort_as_moments_do() {
        let ordered = [
            "2026-01-31T23:59:59Z",
            "2026-01-31T23:59:59.05Z",
            "2026-01-31T23:59:59.5Z",
            "2026-02-01T00:00:00Z",
        ];
        let times: Vec<_> = ordered.iter().map(|t| time(t).unwrap()).collect();
        assert!(times.windows(2).all(|w| w[0] < w[1]), "{times:?}");
        assert_eq!(time("2026-01-31T23:59:59.500Z"), time("2026-01-31T23:59:59.5Z"));
        for bad in ["yesterday", "2026-99-99T99:99:99Z"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_commit_that_was_named_comes_before_brickscope_s_own() {
        let mut environment = BTreeMap::new();
        assert_eq!(commit_in(&environment), None);
        environment.insert("COMMIT".to_owned(), "9b4aecab".to_owned());
        assert_eq!(commit_in(&environment).map(String::as_str), Some("9b4aecab"));
        environment.insert(ENGINE_COMMIT.to_owned(), "c1".to_owned());
        assert_eq!(commit_in(&environment).map(String::as_str), Some("c1"));
    }

    #[test]
    fn figures_of_nothing_or_of_nan_are_none() {
        assert_eq!(Figures::of(&[]), None);
        assert_eq!(Figures::of(&[1.0, f64::NAN]), None);
        assert_eq!(Figures::of(&[3.0, 1.0]), Some(Figures { low: 1.0, median: 2.0, high: 3.0 }));
    }
}
