//! Profiles as processes: each pass is a sample of its phase.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use brickscope_profile::name::category_of;
use brickscope_profile::run::build_of_llama_cpp;
use brickscope_profile::text::file_name;
use brickscope_profile::{
    BrickCategory, BrickId, Engine, Imported, ImportedTest, NameKind, Pass, Phase, Profile, Run,
    Span, save,
};

use super::environment::{Differences, differences, facts_of_condition, is_default};
use super::inside::Inside;
use super::{
    Brick, Difference, Fact, Process, RanksOfRun, Sample, Side, Test, Turn, Weight, in_both,
};

/// So the name of a device ends that has only a number in another program's file. Which numbers devices have is no condition.
const UNNAMED: &str = "whose name isn't stated";

/// The most times, one for each brick in each pass: those of a million passes with 64 bricks. Few spans with many names
/// in many passes could take more memory than there is.
const MOST_TIMES: usize = 1 << 26;

/// Why a profile can't be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnusableProfile {
    /// It has no pass whose spans were all kept.
    NoPass,
    /// Its passes were kept by how slow they are.
    KeptSlow,
    /// It has rates of tests, and no times.
    OnlyRates,
    /// Its bricks times its passes are too many.
    TooManyTimes {
        /// Bricks in these passes.
        bricks: usize,
        /// Passes of one phase.
        passes: usize,
    },
}

impl fmt::Display for UnusableProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPass => f.write_str(
                "it has no pass whose spans were all kept, so there is nothing to compare",
            ),
            Self::KeptSlow => f.write_str(
                "its passes were kept by how slow they are, so they are no fair sample to compare: record one with all of \
                 its passes, without `--keep`",
            ),
            Self::OnlyRates => f.write_str(
                "it has rates but not the times of single repetitions, which a comparison needs: `llama-bench -o jsonl` \
                 writes them",
            ),
            Self::TooManyTimes { bricks, passes } => write!(
                f,
                "it has {bricks} bricks in {passes} passes, and at most {MOST_TIMES} times can be compared: run fewer \
                 tokens, or name fewer bricks"
            ),
        }
    }
}

impl std::error::Error for UnusableProfile {}

impl Process {
    /// A process made from the passes of a profile whose spans were all kept. `name` is for people.
    ///
    /// A profile is one process, so two of them can't tell a change from variation between processes.
    ///
    /// # Errors
    ///
    /// If there is no such pass, if passes were kept by how slow they are, or if bricks times passes are too many.
    pub fn from_profile(name: &str, profile: &Profile) -> Result<Self, UnusableProfile> {
        if profile.kept.is_some() {
            return Err(UnusableProfile::KeptSlow);
        }
        if let Some(of) = benchmark(profile) {
            return Self::of_call(name, profile, &of.tests, facts(profile));
        }
        let times = in_passes(profile, |span| span.exclusive_ns);
        let bytes = in_passes(profile, |span| span.work.bytes);
        let is_whole = |pass: &&Pass| {
            let kept = times.get(&pass.serial).into_iter().flat_map(|bricks| bricks.values());
            !pass.is_left_out
                && kept.fold(0, |sum: u64, ns| sum.saturating_add(*ns)) == pass.attributed_ns
        };
        let on_devices = on_devices(profile)?;
        // Of another program's trace the host's part of a phase is its launches, if the phase ran on a device: the same passes
        // again, which would count twice.
        let is_hosts = |pass: &&Pass| {
            let is_phase = |(phase, _): &(Phase, Test)| *phase == pass.phase;
            profile.imported.is_none() || !on_devices.iter().any(is_phase)
        };
        let of_host: Vec<&Pass> = profile.passes.iter().filter(is_hosts).collect();
        let whole: Vec<&Pass> = of_host.iter().copied().filter(is_whole).collect();
        let tests: Vec<Test> = Phase::ALL
            .into_iter()
            .filter_map(|phase| test(phase, &whole, [&times, &bytes], profile).transpose())
            .collect::<Result<_, _>>()?;
        let idle = match profile.imported.is_some() {
            true => without_work(profile, &on_devices),
            false => 0,
        };
        let on_devices = on_devices.into_iter().map(|(_, test)| test);
        let tests: Vec<Test> = match profile.imported.is_some() {
            true => on_devices.chain(tests).collect(),
            false => tests.into_iter().chain(on_devices).collect(),
        };
        if tests.is_empty() {
            return Err(UnusableProfile::NoPass);
        }
        let mut doubts = Vec::new();
        let warm_ups = profile.passes.iter().filter(|pass| pass.is_left_out).count();
        if warm_ups > 0 {
            doubts.push(format!("{warm_ups} of its passes are left out, since they warm up"));
        }
        let left = of_host.iter().filter(|pass| !pass.is_left_out).count() - whole.len();
        if left > 0 {
            doubts.push(format!(
                "{left} of its passes are left out: not all of their spans were kept"
            ));
        }
        if idle > 0 {
            doubts.push(format!(
                "{idle} of its passes are left out: the file doesn't tell all that the device did for them"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            turns: turns(profile),
            facts: facts(profile),
            tests,
            doubts,
            not_verified: None,
            disturbed: whole.iter().filter(|pass| pass.is_disturbed()).count() as u64,
            seconds: None,
            ranks: RanksOfRun::of(profile),
            kernels: in_both::kernels(profile),
        })
    }

    /// The processes of a profile: each call of a benchmark whose file has several, and else [the one](Self::from_profile).
    ///
    /// # Errors
    ///
    /// As there, and if no test has times.
    pub fn all_of_profile(name: &str, profile: &Profile) -> Result<Vec<Self>, UnusableProfile> {
        let calls = benchmark(profile).map(|of| calls(profile, &of.tests)).unwrap_or_default();
        if calls.len() < 2 {
            return Ok(vec![Self::from_profile(name, profile)?]);
        }
        let facts = facts(profile);
        let each = calls.into_iter().map(|(began, tests)| {
            let mut facts = facts.clone();
            if let Some(build) = tests.first().and_then(build) {
                facts.retain(|fact| fact.name != BUILD);
                facts.push(Fact::may(BUILD, build));
            }
            Self::of_call(&format!("{name}, {began}"), profile, tests, facts)
        });
        let (timed, others): (Vec<_>, Vec<_>) = each.partition(Result::is_ok);
        let mut all: Vec<Self> = timed.into_iter().flatten().collect();
        let first = all.first_mut().ok_or(UnusableProfile::OnlyRates)?;
        if !others.is_empty() {
            let n = others.len();
            first
                .doubts
                .push(format!("{n} other calls in its file are left out: they have no times"));
        }
        Ok(all)
    }

    /// What a benchmark measured in one call. Its tests have their names, whichever others are in the file.
    fn of_call(
        name: &str,
        profile: &Profile,
        rows: &[ImportedTest],
        facts: Vec<Fact>,
    ) -> Result<Self, UnusableProfile> {
        let (tests, again) = tests_of_list(rows.iter());
        if tests.is_empty() {
            return Err(UnusableProfile::OnlyRates);
        }
        let mut doubts = Vec::new();
        if again > 0 {
            doubts.push(format!(
                "{again} of its rows measured a test again: the repetitions of such rows are one test's"
            ));
        }
        let not_timed = rows.iter().flat_map(|row| &row.samples_ns).filter(|ns| **ns == 0).count();
        if not_timed > 0 {
            doubts.push(format!("{not_timed} of its repetitions are left out: they took 0 ns"));
        }
        let only_rates = rows.iter().filter(|row| row.samples_ns.is_empty()).count();
        if only_rates > 0 {
            doubts.push(format!(
                "{only_rates} of its rows are left out: they have a rate and no times"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            turns: turns(profile),
            facts,
            tests,
            doubts,
            not_verified: None,
            disturbed: 0,
            seconds: None,
            ranks: None,
            kernels: in_both::kernels(profile),
        })
    }
}

/// The name of the fact that says which program ran.
const BUILD: &str = "build";

/// Where a profile is of a benchmark that times its tests as a whole.
fn benchmark(profile: &Profile) -> Option<&Imported> {
    profile.imported.as_ref().filter(|of| !of.tests.is_empty())
}

/// The tests of each call of the program, with its time: to the file of last night that of tonight may have been appended. One
/// begins where the build is another one, where the time goes on by hours, and where a test comes again minutes later or with an
/// earlier time.
pub(crate) fn calls<'p>(
    profile: &'p Profile,
    tests: &'p [ImportedTest],
) -> Vec<(&'p str, &'p [ImportedTest])> {
    /// One call may have a test twice, soon after each other.
    const AGAIN_SECONDS: u64 = 600;
    /// No test of a benchmark takes as long.
    const LATER_SECONDS: u64 = 6 * 3600;
    let began = |test: &'p ImportedTest| test.began.as_deref().unwrap_or(&profile.created);
    let seconds = |test| save::unix_seconds(began(test)).unwrap_or(0);
    let mut calls = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    let mut from = 0;
    for (nth, test) in tests.iter().enumerate() {
        let name = name_of(test, ModelName::Path, false);
        let is_next = nth > from && {
            let (first, last, now) =
                (seconds(&tests[from]), seconds(&tests[nth - 1]), seconds(test));
            build(test) != build(&tests[nth - 1])
                || now >= last.saturating_add(LATER_SECONDS)
                || (now < last || now >= first.saturating_add(AGAIN_SECONDS))
                    && known.contains(&name)
        };
        if is_next {
            calls.push((began(&tests[from]), &tests[from..nth]));
            known.clear();
            from = nth;
        }
        known.insert(name);
    }
    if let Some(first) = tests.get(from) {
        calls.push((began(first), &tests[from..]));
    }
    calls
}

/// `llama.cpp 1a2b3c4 (4567)`, of a test whose build is another than that of other tests of the file.
pub(crate) fn build(test: &ImportedTest) -> Option<String> {
    let commit = apart(test, OF_BUILD[0])?;
    Some(build_of_llama_cpp(commit, apart(test, OF_BUILD[1])))
}

/// Its place among others, as far as it states what they have in common.
fn turns(profile: &Profile) -> Vec<Turn> {
    let Some(among) = &profile.among else { return Vec::new() };
    let set = among.set.as_ref().map(|set| (set.name.as_str(), set.process));
    Turn::stated(set, among.boot.as_deref(), &profile.created)
}

/// The time of each pass in each brick, or the bytes that it moved, by the serial of the pass and the index of the name.
type InPasses = HashMap<u32, HashMap<u16, u64>>;

fn in_passes(profile: &Profile, of: fn(&Span) -> u64) -> InPasses {
    let mut sums = InPasses::new();
    for span in &profile.spans {
        let is_brick = |name: &u16| {
            profile.names.get(usize::from(*name)).is_some_and(|name| name.kind == NameKind::Brick)
        };
        if let (Some(pass), Some(name)) = (span.pass, span.name.filter(is_brick)) {
            let sum = sums.entry(pass).or_default().entry(name).or_default();
            *sum = u64::saturating_add(*sum, of(span));
        }
    }
    sums
}

fn test(
    phase: Phase,
    passes: &[&Pass],
    [times, bytes]: [&InPasses; 2],
    profile: &Profile,
) -> Result<Option<Test>, UnusableProfile> {
    let passes: Vec<&Pass> = passes.iter().copied().filter(|pass| pass.phase == phase).collect();
    if passes.is_empty() {
        return Ok(None);
    }
    let mut names: Vec<u16> = passes
        .iter()
        .filter_map(|pass| times.get(&pass.serial))
        .flat_map(|bricks| bricks.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    let (bricks, n_passes) = (names.len(), passes.len());
    if bricks.saturating_mul(n_passes) > MOST_TIMES {
        return Err(UnusableProfile::TooManyTimes { bricks, passes: n_passes });
    }
    let brick = |&number: &u16| {
        let name = &profile.names.get(usize::from(number))?.name;
        let total = profile.totals.iter().find(|total| {
            total.kind == NameKind::Brick && total.stats.name == *name && total.category.is_some()
        });
        let category = total.and_then(|total| total.category);
        let category = category.or_else(|| BrickId::from_str(name).map(BrickId::category));
        let each = |sums: &InPasses| -> Vec<u64> {
            let of = |pass: &&Pass| sums.get(&pass.serial)?.get(&number).copied();
            passes.iter().map(|pass| of(pass).unwrap_or(0)).collect()
        };
        let moved = each(bytes);
        Some(Brick {
            name: name.clone(),
            category: category.unwrap_or(BrickCategory::Other).name().to_owned(),
            ns: each(times),
            // Who states none has not moved none.
            bytes: if moved.iter().any(|bytes| *bytes > 0) { moved } else { Vec::new() },
        })
    };
    let n_tokens = tokens_of(profile, passes.iter().copied());
    Ok(Some(Test {
        name: phase.name().to_owned(),
        phase: Some(phase),
        tokens: n_tokens,
        sample: Sample::Pass,
        facts: facts_of_test(phase, passes.iter().copied(), profile),
        wall_ns: passes.iter().map(|pass| pass.wall_ns).collect(),
        unattributed_ns: passes.iter().map(|pass| pass.unattributed_ns).collect(),
        bricks: names.iter().filter_map(brick).collect(),
        inside: Inside::of(profile, phase, &passes, &names),
    }))
}

/// What each device did in the passes of each phase: a sample is the time from a pass's first mark on any stream to the last
/// one, its bricks are those of all streams, and what no stream fills is unattributed. Where streams overlap, the bricks
/// are more than the whole.
fn on_devices(profile: &Profile) -> Result<Vec<(Phase, Test)>, UnusableProfile> {
    let mut tests = Vec::new();
    for (nth, device) in profile.devices.iter().enumerate() {
        for phase in Phase::ALL {
            let mut passes = device.busy_by_pass(Some(phase));
            let all = device.streams.iter().flat_map(|stream| &stream.passes);
            for warm_up in all.filter(|pass| pass.is_left_out) {
                passes.remove(&warm_up.serial);
            }
            if passes.is_empty() {
                continue;
            }
            let samples: HashMap<u32, usize> =
                passes.keys().enumerate().map(|(nth, serial)| (*serial, nth)).collect();
            let mut bricks: BTreeMap<u16, Brick> = BTreeMap::new();
            for span in device.streams.iter().flat_map(|stream| &stream.spans) {
                let sample = span.pass.and_then(|pass| samples.get(&pass));
                let name = span.name.filter(|_| span.exclusive_ns > 0);
                let (Some(&sample), Some(number)) = (sample, name) else { continue };
                let of = profile.names.get(usize::from(number));
                let Some(of) = of.filter(|of| of.kind == NameKind::Brick) else { continue };
                let is_new = !bricks.contains_key(&number);
                if is_new && (bricks.len() + 1).saturating_mul(passes.len()) > MOST_TIMES {
                    let (bricks, passes) = (bricks.len() + 1, passes.len());
                    return Err(UnusableProfile::TooManyTimes { bricks, passes });
                }
                let brick = bricks.entry(number).or_insert_with(|| Brick {
                    name: of.name.clone(),
                    category: category_of(&of.name).name().to_owned(),
                    ns: vec![0; passes.len()],
                    bytes: Vec::new(),
                });
                brick.ns[sample] = brick.ns[sample].saturating_add(span.exclusive_ns);
            }
            let which = match profile.devices.len() {
                1 => "the device".to_owned(),
                _ => format!("device {nth}"),
            };
            // In an imported file a pass has one serial, on the host and on devices.
            let hosts = profile.passes.iter().filter(|pass| samples.contains_key(&pass.serial));
            let of_test = Test {
                name: format!("{} on {which}", phase.name()),
                phase: None,
                tokens: 0,
                sample: Sample::Pass,
                facts: facts_of_test(phase, hosts, profile),
                wall_ns: passes.values().map(|busy| busy.span_ns).collect(),
                unattributed_ns: passes.values().map(|busy| busy.idle_ns).collect(),
                bricks: bricks.into_values().collect(),
                inside: Inside::default(),
            };
            tests.push((phase, of_test));
        }
    }
    Ok(tests)
}

/// How many passes of a trace have no sample though their phase is compared on devices: nothing of them ran there, or not all
/// that did was kept.
fn without_work(profile: &Profile, on_devices: &[(Phase, Test)]) -> usize {
    let of_devices = profile.devices.iter().map(|device| device.busy_by_pass(None));
    let known: HashSet<u32> = of_devices.flat_map(|passes| passes.into_keys()).collect();
    let is_compared = |pass: &&Pass| on_devices.iter().any(|(phase, _)| *phase == pass.phase);
    let passes = profile.passes.iter().filter(is_compared);
    passes.filter(|pass| !pass.is_left_out && !known.contains(&pass.serial)).count()
}

/// Tokens of a pass; 0 if they differ. Other programs define passes otherwise, and steps of servers have now more, now
/// fewer tokens.
fn tokens_of<'p>(profile: &Profile, mut passes: impl Iterator<Item = &'p Pass>) -> u64 {
    let Some(first) = passes.next() else { return 0 };
    let is_alike = passes.all(|pass| pass.tokens == first.tokens);
    if profile.imported.is_none() || is_alike { first.tokens } else { 0 }
}

/// The format whose tests are apart from each other, so that what is of one isn't of the other.
const LLAMA_BENCH: &str = "llama-bench";

/// How such a file calls the tokens before a test.
fn depth_of(phase: Phase) -> String {
    format!("n_depth of {phase}")
}

fn tokens_in(phase: Phase) -> String {
    format!("tokens of a {phase} pass")
}

pub(super) fn facts_of_test<'p>(
    phase: Phase,
    passes: impl Iterator<Item = &'p Pass>,
    profile: &Profile,
) -> Vec<Fact> {
    let Some(imported) = &profile.imported else { return Vec::new() };
    let tokens = tokens_of(profile, passes).to_string();
    let mut facts = vec![Fact::must(&tokens_in(phase), tokens)];
    if imported.format == LLAMA_BENCH {
        let depth = imported.conditions.iter().find(|(name, _)| *name == depth_of(phase));
        facts.extend(depth.map(|(name, value)| Fact::must(name, &**value)));
    }
    facts
}

/// What a test of a list ran under, and what it ran: the facts of its file, with its own values where its rows differ.
pub(super) fn facts_of_listed(profile: &Profile, test: &ImportedTest) -> Vec<Fact> {
    /// Fields that a profile keeps elsewhere, or that are no condition.
    const ELSEWHERE: [&str; 8] = [
        "backends",
        "n_threads",
        "model_type",
        "model_size",
        "model_n_params",
        "model_filename",
        "build_commit",
        "build_number",
    ];
    let own = |field: &str| apart(test, field).map(str::to_owned);
    let mut facts = facts(profile);
    for fact in &mut facts {
        let value = match &*fact.name {
            "backend" => own("backends"),
            "threads" => own("n_threads"),
            "bytes of the model" => own("model_size"),
            "model" => profile.model.as_ref().map(|model| {
                let architecture = own("model_type").unwrap_or(model.architecture.clone());
                let weights = own("model_n_params").unwrap_or(model.parameters.to_string());
                format!("{architecture}, {weights} weights")
            }),
            _ => None,
        };
        if let Some(value) = value {
            fact.value = value;
        }
    }
    let options = test.apart.iter().filter(|(name, _)| !ELSEWHERE.contains(&name.as_str()));
    facts.extend(options.flat_map(|(name, value)| facts_of_condition(name, value, true)));
    let counts = test.counts();
    let phase = match counts {
        Some((_, 0, _)) => Some(Phase::Prefill),
        Some((0, _, _)) => Some(Phase::Decode),
        _ => None,
    };
    match (phase, counts) {
        (Some(phase), Some((_, _, depth))) => facts.extend([
            Fact::must(&tokens_in(phase), test.tokens.to_string()),
            Fact::must(&depth_of(phase), depth.to_string()),
        ]),
        _ => facts.push(Fact::must("test", &*test.name)),
    }
    facts
}

/// The tests of a benchmark's file, each under a name of its own, and how many of its rows measured a test of an earlier row
/// again.
fn tests_of_list<'t>(tests: impl Iterator<Item = &'t ImportedTest>) -> (Vec<Test>, usize) {
    let is_timed = |ns: &u64| *ns > 0;
    let timed: Vec<&ImportedTest> =
        tests.filter(|test| test.samples_ns.iter().any(is_timed)).collect();
    let names = names_of(&timed);
    let mut found: Vec<Test> = Vec::new();
    let mut of_name: HashMap<String, usize> = HashMap::new();
    let mut again = 0;
    for (test, name) in timed.into_iter().zip(names) {
        let samples_ns = test.samples_ns.iter().copied().filter(is_timed);
        if let Some(&nth) = of_name.get(&name) {
            found[nth].wall_ns.extend(samples_ns);
            again += 1;
            continue;
        }
        of_name.insert(name.clone(), found.len());
        found.push(Test {
            name,
            phase: None,
            tokens: test.tokens,
            sample: Sample::Repetition,
            facts: Vec::new(),
            wall_ns: samples_ns.collect(),
            unattributed_ns: Vec::new(),
            bricks: Vec::new(),
            inside: Inside::default(),
        });
    }
    (found, again)
}

/// The name of each test of a benchmark's file, as a comparison has it.
#[must_use]
pub fn names_of_tests(tests: &[ImportedTest]) -> Vec<String> {
    names_of(&tests.iter().collect::<Vec<_>>())
}

fn names_of(tests: &[&ImportedTest]) -> Vec<String> {
    let short: Vec<String> =
        tests.iter().map(|test| name_of(test, ModelName::File, false)).collect();
    // Models in different folders may have one name.
    let mut files: HashMap<&str, HashSet<Option<&str>>> = HashMap::new();
    for (test, name) in tests.iter().zip(&short) {
        files.entry(name).or_default().insert(apart(test, FILE_OF_MODEL));
    }
    let is_one = |name: &str| files.get(name).is_none_or(|files| files.len() < 2);
    let models: Vec<ModelName> = short
        .iter()
        .map(|name| if is_one(name) { ModelName::File } else { ModelName::Path })
        .collect();
    let names: Vec<String> =
        tests.iter().zip(&models).map(|(test, model)| name_of(test, *model, false)).collect();
    // Builds are what is compared, so they are no part of a name, unless one file has a test of several.
    let mut builds: HashMap<&str, HashSet<Option<String>>> = HashMap::new();
    for (test, name) in tests.iter().zip(&names) {
        builds.entry(name).or_default().insert(build(test));
    }
    let named = tests.iter().zip(&models).zip(&names).map(|((test, model), name)| {
        let is_one = builds.get(&**name).is_none_or(|builds| builds.len() < 2);
        if is_one { name.clone() } else { name_of(test, *model, true) }
    });
    named.collect()
}

/// What two profiles ran under that isn't the same.
#[must_use]
pub fn differences_of(a: &Profile, b: &Profile) -> Vec<Difference> {
    let [a, b] = [a, b].map(|profile| Side {
        name: String::new(),
        processes: vec![Process { facts: facts(profile), ..Process::default() }],
    });
    let Differences { unlike, models, may } = differences(&a, &b, &[], true);
    // What one side lacks, or has as 0 since its form lacks it, says nothing.
    let is_unstated = |of: &Difference, value: &String| {
        let is_number = matches!(&*of.name, "bytes of the model" | "threads");
        value == "not stated" || value.is_empty() || is_number && value == "0"
    };
    // A table has the model's description, and its size in few digits.
    let described = |value: &String| {
        value.rsplit_once(", ").map_or(value.clone(), |(description, _)| description.to_owned())
    };
    let all = models.into_iter().chain(unlike).chain(may).map(|of| {
        let is_cut = of.a.iter().chain(&of.b).any(|value| value.ends_with(", 0 weights"));
        match is_cut && of.name == "model" {
            true => Difference {
                a: of.a.iter().map(described).collect(),
                b: of.b.iter().map(described).collect(),
                ..of
            },
            false => of,
        }
    });
    all.filter(|of| of.a != of.b && !of.a.iter().chain(&of.b).any(|value| is_unstated(of, value)))
        .collect()
}

/// How many threads ran; a list may have tests of several numbers.
fn threads(profile: &Profile, run: &Run) -> String {
    let tests = profile.imported.iter().flat_map(|of| &of.tests);
    let mut apart = tests.flat_map(|test| &test.apart);
    match run.threads == 0 && apart.any(|(field, _)| field == "n_threads") {
        true => "several".to_owned(),
        false => run.threads.to_string(),
    }
}

/// The fields that name a model, and those that follow from it.
const TYPE_OF_MODEL: &str = "model_type";
const FILE_OF_MODEL: &str = "model_filename";
const FOLLOWS: [&str; 2] = ["model_n_params", "model_size"];

/// The fields that tell a build.
const OF_BUILD: [&str; 2] = ["build_commit", "build_number"];

/// By what a test's name tells its model from others of the file; one whose file isn't stated by what it is, such as
/// `llama 1B Q4_K - Medium`.
#[derive(Debug, Clone, Copy)]
enum ModelName {
    /// Its file, without the folders.
    File,
    /// The whole path.
    Path,
}

/// The value of a field that sets a test apart from others of its file.
fn apart<'t>(test: &'t ImportedTest, field: &str) -> Option<&'t str> {
    test.apart.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
}

/// The name of a test with what sets it apart: the model, and options in one order, whichever row came first, and as one
/// build or another writes them.
fn name_of(test: &ImportedTest, model: ModelName, with_build: bool) -> String {
    let (of_type, file) = (apart(test, TYPE_OF_MODEL), apart(test, FILE_OF_MODEL));
    let named = match model {
        ModelName::File => file.map(file_name).or(of_type),
        ModelName::Path => file.or(of_type),
    };
    let is_wanted = |field: &str| match field {
        TYPE_OF_MODEL | FILE_OF_MODEL => false,
        // The size of a model that is named follows from it.
        _ if FOLLOWS.contains(&field) => named.is_none(),
        _ if OF_BUILD.contains(&field) => with_build,
        _ => true,
    };
    let wanted = test.apart.iter().filter(|(field, _)| is_wanted(field));
    // A build that lacks an option measures the same test as one that states its default.
    let facts = wanted
        .flat_map(|(field, value)| facts_of_condition(field, value, true))
        .filter(|fact| fact.weight != Weight::Option || !is_default(&fact.name, &fact.value));
    let mut options: Vec<String> =
        facts.map(|fact| format!("{} {}", fact.name, fact.value)).collect();
    options.sort();
    let told: Vec<String> = named.map(str::to_owned).into_iter().chain(options).collect();
    match told.is_empty() {
        true => test.name.clone(),
        false => format!("{} ({})", test.name, told.join(", ")),
    }
}

pub(super) fn facts(profile: &Profile) -> Vec<Fact> {
    let by = profile.imported.as_ref().map_or_else(
        || "profile".to_owned(),
        |imported| format!("another program ({})", imported.format),
    );
    let is_llama_bench = profile.imported.as_ref().is_some_and(|of| of.format == LLAMA_BENCH);
    let mut facts = vec![Fact::must("measured by", by)];
    if let Some(run) = &profile.run {
        facts.extend([
            Fact::must("backend", &*run.backend),
            Fact::must("threads", threads(profile, run)),
        ]);
        if !is_llama_bench {
            facts.extend([
                Fact::must("tokens of the prompt", run.prompt_tokens.to_string()),
                Fact::must("tokens generated", run.generated_tokens.to_string()),
            ]);
        }
    }
    let engine = profile.run.as_ref().and_then(|run| run.engine.as_ref());
    for (name, value) in engine.into_iter().flat_map(Engine::settings) {
        facts.extend(match name {
            "library" | "version" | "commit" => {
                Some(Fact::may(&format!("{name} of the engine"), value))
            }
            "-b" | "-ub" | "-ctk" | "-ctv" => Some(Fact::option(name, value)),
            // Builds differ in what they do if nobody asks for either.
            "-fa" => Some(Fact::may("flash attention", value)),
            _ => None,
        });
    }
    for serialised in &profile.serialised {
        let (phase, devices) = (serialised.phase, serialised.devices.join(", "));
        facts.push(Fact::must(&format!("one at a time in {phase}"), devices));
    }
    if let Some(model) = &profile.model {
        let what = format!("{}, {} weights", model.architecture, model.parameters);
        facts.extend([
            Fact::model("model", model.name.clone().unwrap_or(what)),
            Fact::model("quantisation", &*model.quantization),
            Fact::model("bytes of the model", model.file_bytes.to_string()),
        ]);
        if let Some(place) = &model.weights_in {
            facts.push(Fact::may("weights in", place.as_str()));
        }
    }
    if let Some(machine) = &profile.machine {
        let stated = |value: Option<String>| value.unwrap_or_else(|| "not stated".to_owned());
        facts.extend([
            Fact::machine("system", format!("{} {}", machine.os, machine.arch)),
            Fact::machine("cpu", stated(machine.cpu.clone())),
            Fact::machine("logical CPUs", stated(machine.logical_cpus.map(|n| n.to_string()))),
            Fact::machine("memory", stated(machine.memory_bytes.map(|n| n.to_string()))),
        ]);
    }
    let Some(imported) = &profile.imported else {
        facts.push(Fact::may(BUILD, format!("brickscope {}", profile.brickscope_version)));
        return facts;
    };
    facts.push(Fact::may(BUILD, imported.program.as_deref().unwrap_or("not stated")));
    let names = profile.devices.iter().map(|device| &*device.name);
    let devices: BTreeSet<&str> = names.filter(|name| !name.ends_with(UNNAMED)).collect();
    if !devices.is_empty() {
        let names: Vec<&str> = devices.into_iter().collect();
        facts.push(Fact::may("names of devices", names.join(", ")));
    }
    let of_tests = Phase::ALL.map(depth_of);
    let conditions = imported.conditions.iter();
    let of_all = conditions.filter(|(name, _)| !is_llama_bench || !of_tests.contains(name));
    facts.extend(of_all.flat_map(|(name, value)| facts_of_condition(name, value, is_llama_bench)));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, apart: &[(&str, &str)], samples_ns: &[u64]) -> ImportedTest {
        let own = |(field, value): &(&str, &str)| ((*field).to_owned(), (*value).to_owned());
        ImportedTest {
            name: name.to_owned(),
            tokens: 512,
            samples_ns: samples_ns.to_vec(),
            apart: apart.iter().map(own).collect(),
            ..ImportedTest::default()
        }
    }

    fn named(rows: &[ImportedTest]) -> Vec<(String, Vec<u64>)> {
        tests_of_list(rows.iter()).0.into_iter().map(|test| (test.name, test.wall_ns)).collect()
    }

    #[test]
    fn builds_are_in_the_name_of_a_test_only_if_a_file_has_it_of_several() {
        let (a, b) = (("build_commit", "a"), ("build_commit", "b"));
        let rows = [
            row("pp512", &[a, ("n_batch", "1")], &[1]),
            row("pp512", &[b, ("n_batch", "2")], &[2]),
            row("tg128", &[a, ("n_batch", "1")], &[3]),
            row("tg128", &[b, ("n_batch", "1")], &[4]),
        ];
        let names: Vec<String> = named(&rows).into_iter().map(|(name, _)| name).collect();
        let expected = [
            "pp512 (n_batch 1)",
            "pp512 (n_batch 2)",
            "tg128 (build_commit a, n_batch 1)",
            "tg128 (build_commit b, n_batch 1)",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn rows_that_measure_a_test_again_are_one_test() {
        let rows = [
            row("pp512", &[], &[1, 2]),
            row("tg128", &[], &[3]),
            row("pp512", &[], &[4]),
            row("pp512", &[], &[]),
            // No repetition takes no time.
            row("tg128", &[], &[0, 5]),
            row("tg64", &[], &[0]),
        ];
        let expected = [("pp512".to_owned(), vec![1, 2, 4]), ("tg128".to_owned(), vec![3, 5])];
        assert_eq!(named(&rows), expected);
        assert_eq!(tests_of_list(rows.iter()).1, 2);
    }
}
