//! The limits of a machine at different times: right before a run, right after it, and for earlier ones.
//!
//! A machine has no one speed: the host of a virtual machine moves its CPUs, and others read the same memory. So a limit is
//! what two measurements agree on, and how low it was says how much a verdict by it is worth.

use std::num::NonZeroUsize;

use brickscope::save::now_rfc3339;
use brickscope::{
    CeilingReading, Ceilings, KernelPace, LimitSpread, LoadWatch, Numbers, ReadingTime,
};
use brickscope_engine::Model;
use brickscope_kernels::{Kernels, QuantType, ThreadPool};
use serde::{Deserialize, Serialize};

use super::{Cacheable, Cached, Identity, are_rates, load, much, store};
use crate::cache;

/// The most measurements of a limit that are kept.
const MOST_READINGS: usize = 32;

/// What memory gave at different times, oldest first. It belongs to the machine: to all its CPUs and its best kernels,
/// whatever a run uses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct MemoryReadings {
    readings: Vec<CeilingReading>,
}

impl Cacheable for MemoryReadings {
    const NAME: &'static str = "memory";

    fn check(&self) -> Result<(), &'static str> {
        if self.readings.len() > MOST_READINGS {
            return Err("it has too many measurements");
        }
        are_rates(self.readings.iter().map(|reading| reading.read_bytes_per_second))
    }
}

/// What arithmetic, caches, memory and kernels gave so many threads of one backend at different times, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct LimitReadings {
    readings: Vec<LimitReading>,
}

/// One measurement of each of these limits, by its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LimitReading {
    measured: String,
    per_second: Vec<(String, f64)>,
}

impl LimitReadings {
    fn of(&self, name: &str) -> impl Iterator<Item = f64> {
        let all = self.readings.iter().flat_map(|reading| &reading.per_second);
        all.filter(move |(of, _)| of == name).map(|(_, rate)| *rate)
    }
}

impl Cacheable for LimitReadings {
    const NAME: &'static str = "limits";

    fn check(&self) -> Result<(), &'static str> {
        if self.readings.len() > MOST_READINGS {
            return Err("it has too many measurements");
        }
        let all = self.readings.iter().flat_map(|reading| &reading.per_second);
        are_rates(all.map(|(_, rate)| *rate))
    }
}

/// Adds what the machine gives right now, and gave before. For a model that a cache holds, what was kept of memory is
/// enough.
///
/// `types` are those of the weights that a run with our own kernels multiplies.
pub(super) fn with_readings(
    (model_bytes, types): (u64, &[QuantType]),
    kernels: Kernels,
    pool: &ThreadPool,
    ceilings: &mut Ceilings,
) {
    ceilings.readings = memory_readings();
    for reading in &mut ceilings.readings {
        reading.when = ReadingTime::Kept;
    }
    if ceilings.readings.is_empty() || is_read_from_memory(model_bytes, ceilings) {
        read_memory(ReadingTime::Before, pool, ceilings);
    }
    settle(ceilings, pool);
    // What was kept of kernels that the run doesn't use says nothing of it.
    let both = |of: &QuantType| [1, 2].map(|tokens| kernels.matmul_name(*of, tokens));
    let used: Vec<&str> = types.iter().flat_map(both).collect();
    ceilings.paces.retain(|pace| used.contains(&&*pace.kernel));
    read_limits(kernels, pool, (model_bytes, types), ceilings);
}

/// Measures the machine once more, after the run of `model` that these ceilings are for.
pub(crate) fn measure_again(
    model: &Model,
    kernels: Kernels,
    pool: &ThreadPool,
    ceilings: &mut Ceilings,
) {
    let model_bytes = model.gguf.file_len() as u64;
    if is_read_from_memory(model_bytes, ceilings) {
        read_memory(ReadingTime::After, pool, ceilings);
        settle(ceilings, pool);
    }
    read_limits(kernels, pool, (model_bytes, &model.product_types()), ceilings);
}

/// Measures arithmetic and caches, the pace of the kernels for these types of weights, and memory if the run has fewer threads
/// than there are CPUs; keeps what nobody disturbed.
fn read_limits(
    kernels: Kernels,
    pool: &ThreadPool,
    (model_bytes, types): (u64, &[QuantType]),
    ceilings: &mut Ceilings,
) {
    // A cache that is larger than the model and all that its passes leave is read by none of them, and a large one takes long
    // to measure.
    const ROOM: u64 = 4;
    let threads = NonZeroUsize::new(pool.threads()).unwrap_or(NonZeroUsize::MIN);
    let identity = Identity::here(threads, kernels);
    let watch = LoadWatch::start();
    let mut rates =
        brickscope::machine::measure_limits(kernels, pool, model_bytes.saturating_mul(ROOM));
    if is_read_from_memory(model_bytes, ceilings)
        && !is_of_all(pool)
        && let Ok(rate) = brickscope::machine::measure_memory(kernels, pool)
    {
        rates.push((Ceilings::MEMORY.to_owned(), rate));
    }
    let paces = brickscope::machine::measure_paces(kernels, pool, types);
    rates.extend(paces.iter().filter_map(|pace| Some((pace.name(), pace.bytes_per_second?))));
    let others = watch.and_then(|watch| watch.so_far()).ok();
    let others_share = others.map(|load| load.others_share());
    let disturbed = much(others_share).is_some();
    let folder = cache::folder().ok();
    let kept = folder
        .as_ref()
        .and_then(|folder| load::<LimitReadings>(folder, &identity).ok().flatten())
        .map(|kept| kept.value)
        .unwrap_or_default();
    add_paces(paces, &kept, ceilings);
    add_limits(&rates, disturbed, &kept, ceilings);
    let Some(folder) = folder.filter(|_| !disturbed) else { return };
    let mut value = kept;
    value.readings.push(LimitReading { measured: now_rfc3339(), per_second: rates });
    let surplus = value.readings.len().saturating_sub(MOST_READINGS);
    value.readings.drain(..surplus);
    if let Err(error) = store(&folder, &Cached { identity, others_share, value }) {
        tell!("note: the machine's limits couldn't be stored for next time: {error:#}");
    }
}

/// Gives each kernel its pace, where it has none yet: the first that was measured of it.
fn add_paces(measured: Vec<KernelPace>, kept: &LimitReadings, ceilings: &mut Ceilings) {
    for mut pace in measured {
        let name = pace.name();
        let known = ceilings.paces.iter().position(|known| known.name() == name);
        let has_one = known.is_some_and(|at| ceilings.paces[at].bytes_per_second.is_some());
        if has_one || (known.is_some() && pace.bytes_per_second.is_none()) {
            continue;
        }
        // What can't be measured now says why, whatever was kept.
        if pace.bytes_per_second.is_some() {
            pace.bytes_per_second = kept.of(&name).next().or(pace.bytes_per_second);
        }
        match known {
            Some(at) => ceilings.paces[at] = pace,
            None => ceilings.paces.push(pace),
        }
    }
}

/// Each limit is what was measured around the run, if that is one speed, and else what two of all measurements agree on. Its
/// spread goes down to the lowest beside this run, or to the lowest that two agree on. What others disturbed only lowers the
/// spread.
fn add_limits(
    rates: &[(String, f64)],
    disturbed: bool,
    kept: &LimitReadings,
    ceilings: &mut Ceilings,
) {
    for (name, rate) in rates {
        let Some(&mut limit) = limit_mut(ceilings, name) else { continue };
        let known = ceilings.spreads.iter().find(|spread| spread.of == *name);
        let mut spread = known.cloned().unwrap_or(LimitSpread {
            of: name.clone(),
            lowest_per_second: *rate,
            highest_per_second: limit,
            first_per_second: limit,
            around: Vec::new(),
            readings: kept.of(name).count() as u32,
        });
        if !disturbed {
            spread.around.push(*rate);
        }
        spread.readings = spread.readings.saturating_add(1);
        // What was measured before the run may be among those that are kept: each counts once.
        let around = spread.around.iter().copied();
        let others = kept.of(name).filter(|of| !spread.around.contains(of));
        let all: Vec<f64> = around.chain(others).chain([spread.first_per_second]).collect();
        let highest = Ceilings::steady(spread.around.iter().copied());
        let highest = highest.or_else(|| Ceilings::confirmed(all.iter().copied()));
        let Some(highest) = highest else { continue };
        let lowest = Ceilings::lowest_confirmed(all).unwrap_or(*rate).min(*rate);
        spread.lowest_per_second = spread.lowest_per_second.min(lowest).min(highest);
        spread.highest_per_second = highest;
        if let Some(limit) = limit_mut(ceilings, name) {
            *limit = highest;
        }
        ceilings.spreads.retain(|spread| spread.of != *name);
        ceilings.spreads.push(spread);
    }
    // Measured without products of bytes, or before a limit was raised above it.
    if ceilings.int8_ops_per_second.is_some_and(|peak| peak <= ceilings.flops_per_second) {
        ceilings.numbers = Some(Numbers::F32);
    }
}

/// The field of a limit.
fn limit_mut<'c>(ceilings: &'c mut Ceilings, name: &str) -> Option<&'c mut f64> {
    match name {
        "f32" => Some(&mut ceilings.flops_per_second),
        "int8" => ceilings.int8_ops_per_second.as_mut(),
        Ceilings::MEMORY => Some(&mut ceilings.read_bytes_per_second),
        of => {
            let mut caches = ceilings.caches.iter_mut();
            if let Some(cache) = caches.find(|cache| cache.level == of) {
                return Some(&mut cache.read_bytes_per_second);
            }
            let mut paces = ceilings.paces.iter_mut();
            paces.find(|pace| pace.name() == of)?.bytes_per_second.as_mut()
        }
    }
}

/// Whether the weights are more than a cache holds.
fn is_read_from_memory(model_bytes: u64, ceilings: &Ceilings) -> bool {
    let largest = ceilings.caches.iter().map(|cache| cache.bytes).max();
    largest.is_none_or(|largest| model_bytes > largest)
}

/// Whether a pool has a thread for each CPU.
fn is_of_all(pool: &ThreadPool) -> bool {
    pool.threads() >= Identity::of_memory().threads as usize
}

/// The roof is what memory gave around the run, or what two measurements agree on that nobody disturbed: see
/// [`Ceilings::memory_limit`] and [`Ceilings::confirmed`]. Measurements of memory are of all CPUs, so they are the roof of a
/// run that has as many threads.
fn settle(ceilings: &mut Ceilings, pool: &ThreadPool) {
    let undisturbed = ceilings.readings.iter().filter(|reading| !reading.disturbed);
    let rates = undisturbed.map(|reading| reading.read_bytes_per_second);
    let Some(confirmed) = Ceilings::confirmed(rates) else { return };
    if is_of_all(pool) {
        ceilings.read_bytes_per_second = confirmed;
        ceilings.read_bytes_per_second = ceilings.memory_limit();
    } else {
        let is_more = confirmed > ceilings.read_bytes_per_second;
        ceilings.machine_read_bytes_per_second = is_more.then_some(confirmed);
    }
}

/// Gives all of these the measurements of each, and so the same bandwidth of memory.
pub(crate) fn share_memory(pool: &ThreadPool, all: &mut [&mut Ceilings]) {
    let mut readings: Vec<CeilingReading> = Vec::new();
    for reading in all.iter().flat_map(|ceilings| &ceilings.readings) {
        let is_same = |known: &CeilingReading| {
            (&known.measured, known.read_bytes_per_second)
                == (&reading.measured, reading.read_bytes_per_second)
        };
        match readings.iter_mut().find(|known| is_same(known)) {
            // What one measured right before its rounds, the next one had from those that are kept.
            Some(known) if known.when == ReadingTime::Kept => known.when = reading.when,
            Some(_) => {}
            None => readings.push(reading.clone()),
        }
    }
    // RFC 3339 in UTC: the order of the text is that of time.
    readings.sort_by(|a, b| a.measured.cmp(&b.measured));
    let highest = all.iter().map(|ceilings| ceilings.read_bytes_per_second).fold(0.0, f64::max);
    // Of the threads of the run, where these are fewer than the CPUs.
    let own = |spread: &&mut LimitSpread| spread.of == Ceilings::MEMORY;
    let spreads = all.iter_mut().flat_map(|ceilings| ceilings.spreads.iter_mut()).filter(own);
    let lowest = spreads.map(|spread| spread.lowest_per_second).fold(f64::INFINITY, f64::min);
    for ceilings in all {
        for spread in ceilings.spreads.iter_mut().filter(own) {
            (spread.lowest_per_second, spread.highest_per_second) = (lowest, highest);
        }
        ceilings.read_bytes_per_second = highest;
        ceilings.readings.clone_from(&readings);
        settle(ceilings, pool);
    }
}

/// The measurements of memory that are kept, oldest first.
pub(crate) fn memory_readings() -> Vec<CeilingReading> {
    let folder = cache::folder().ok();
    let kept =
        folder.and_then(|folder| load::<MemoryReadings>(&folder, &Identity::of_memory()).ok()?);
    kept.map(|kept| kept.value.readings).unwrap_or_default()
}

/// Measures memory, with all CPUs and the best kernels, and keeps the result unless others used the CPUs meanwhile.
/// Where it can't be measured, nothing is added.
fn read_memory(when: ReadingTime, pool: &ThreadPool, ceilings: &mut Ceilings) {
    let identity = Identity::of_memory();
    let watch = LoadWatch::start();
    let kernels = Kernels::best();
    let all = (identity.threads as usize != pool.threads())
        .then(|| NonZeroUsize::new(identity.threads as usize).and_then(|n| ThreadPool::new(n).ok()))
        .flatten();
    let measured = brickscope::machine::measure_memory(kernels, all.as_ref().unwrap_or(pool));
    let Ok(read_bytes_per_second) = measured else { return };
    let others = watch.and_then(|watch| watch.so_far()).ok();
    let others_share = others.map(|load| load.others_share());
    let disturbed = much(others_share).is_some();
    let reading =
        CeilingReading { when, measured: now_rfc3339(), read_bytes_per_second, disturbed };
    ceilings.readings.push(reading.clone());
    keep_reading(reading, identity, others_share);
}

/// Adds a measurement of memory to those that are kept, unless others used the CPUs meanwhile.
pub(super) fn keep_reading(reading: CeilingReading, identity: Identity, others_share: Option<f64>) {
    let Ok(folder) = cache::folder() else { return };
    if much(others_share).is_some() {
        return;
    }
    // Read again: another process may have added to it.
    let kept = load::<MemoryReadings>(&folder, &identity).ok().flatten();
    let mut value = kept.map(|kept| kept.value).unwrap_or_default();
    value.readings.push(CeilingReading { when: ReadingTime::Kept, ..reading });
    // The first one stays: by it the roofline says what limits a brick.
    let surplus = value.readings.len().saturating_sub(MOST_READINGS);
    value.readings.drain(1..1 + surplus);
    if let Err(error) = store(&folder, &Cached { identity, others_share, value }) {
        tell!("note: memory's bandwidth couldn't be stored for next time: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_share_one_memory_and_all_its_measurements() {
        let pool =
            ThreadPool::new(std::thread::available_parallelism().expect("CPUs")).expect("threads");
        let read = |when, measured: &str, rate: f64| CeilingReading {
            when,
            measured: measured.to_owned(),
            read_bytes_per_second: rate,
            disturbed: false,
        };
        let kept = read(ReadingTime::Kept, "2026-11-21T10:00:00Z", 40e9);
        let [first, second, after] = [
            read(ReadingTime::Before, "2026-11-21T10:00:05Z", 39e9),
            read(ReadingTime::Before, "2026-11-21T10:00:06Z", 20e9),
            read(ReadingTime::After, "2026-11-21T10:00:09Z", 60e9),
        ];
        let first_is_kept = CeilingReading { when: ReadingTime::Kept, ..first.clone() };
        let of = |readings: &[&CeilingReading], rate| Ceilings {
            read_bytes_per_second: rate,
            readings: readings.iter().map(|&reading| reading.clone()).collect(),
            ..Ceilings::default()
        };
        let mut sides =
            [of(&[&kept, &first, &after], 40e9), of(&[&kept, &first_is_kept, &second], 40e9)];
        share_memory(&pool, &mut sides.each_mut()[..]);
        assert_eq!(sides[0], sides[1]);
        assert_eq!(sides[0].readings, [kept, first, second, after]);
        assert_eq!(sides[0].read_bytes_per_second, 40e9);
        assert_eq!(sides[0].memory_spread(), [20e9, 40e9], "before and after differ");

        let mut sides = [of(&[], 10.7e9), of(&[], 38e9)];
        share_memory(&pool, &mut sides.each_mut()[..]);
        assert_eq!(sides.map(|side| side.read_bytes_per_second), [38e9; 2]);
    }

    #[test]
    fn a_limit_is_what_was_measured_around_the_run_and_its_spread_goes_down_to_the_lowest() {
        let kept = |rates: &[f64]| LimitReadings {
            readings: rates
                .iter()
                .map(|&rate| LimitReading {
                    measured: String::new(),
                    per_second: vec![("f32".to_owned(), rate)],
                })
                .collect(),
        };
        for (kept_rates, cached, now, limit, steadiness) in [
            (&[][..], 236.0, 235.0, 235.0, 1.0),
            // The two states of a virtual machine: what it is now counts, and it may have been the other one meanwhile.
            (&[236.0, 235.0], 118.0, 237.0, 237.0, 235.0 / 237.0),
            (&[236.0, 118.0], 118.0, 235.0, 235.0, 118.0 / 235.0),
            // One low measurement among earlier ones says nothing of this run.
            (&[236.0, 90.0], 236.0, 235.0, 235.0, 1.0),
            (&[236.0, 235.0], 236.0, 90.0, 90.0, 1.0),
        ] {
            let mut ceilings = Ceilings { flops_per_second: cached, ..Ceilings::default() };
            add_limits(&[("f32".to_owned(), now)], false, &kept(kept_rates), &mut ceilings);
            assert_eq!(ceilings.flops_per_second, limit, "{kept_rates:?}");
            assert!((ceilings.steadiness("f32") - steadiness).abs() < 1e-9, "{ceilings:?}");
        }
        // Before the run it was lower, or others lowered it: two that agree are the limit, and what was kept of this run's
        // own measurement is not a second one.
        for (disturbed, around) in [(false, &[118.0, 236.0][..]), (true, &[236.0])] {
            let mut ceilings = Ceilings { flops_per_second: 236.0, ..Ceilings::default() };
            let f32 = |rate| [("f32".to_owned(), rate)];
            add_limits(&f32(118.0), disturbed, &kept(&[]), &mut ceilings);
            let before: &[f64] = if disturbed { &[] } else { &[118.0] };
            add_limits(&f32(236.0), false, &kept(before), &mut ceilings);
            assert_eq!(ceilings.flops_per_second, 236.0);
            assert_eq!(ceilings.spreads[0].around, around);
            assert!((ceilings.steadiness("f32") - 0.5).abs() < 1e-9, "{ceilings:?}");
            // A limit that these ceilings don't have is left.
            add_limits(&[("int8".to_owned(), 1.0)], false, &kept(&[]), &mut ceilings);
            assert_eq!(ceilings.spreads.len(), 1);
        }
        // All that is known was disturbed.
        let mut ceilings = Ceilings { flops_per_second: 236.0, ..Ceilings::default() };
        add_limits(&[("f32".to_owned(), 118.0)], true, &kept(&[]), &mut ceilings);
        assert_eq!((ceilings.flops_per_second, ceilings.steadiness("f32")), (236.0, 0.5));
    }
    #[test]
    fn a_kernel_has_the_pace_that_was_measured_first_and_its_spread() {
        let pace = |rate: Option<f64>| KernelPace {
            kernel: "gemv_q4_k_avx512".to_owned(),
            level: "L1".to_owned(),
            threads: 1,
            bytes_per_second: rate,
            ..KernelPace::default()
        };
        let name = pace(None).name();
        let reading = LimitReading {
            measured: String::new(),
            per_second: vec![(name.clone(), 25e9), ("gemv_q4_k_avx512 from L2".to_owned(), 9e9)],
        };
        let kept = LimitReadings { readings: vec![reading] };
        let mut ceilings = Ceilings::default();
        // Before the run no two readings agreed, after it they did.
        add_paces(vec![pace(None)], &kept, &mut ceilings);
        assert_eq!(ceilings.paces, [pace(None)]);
        add_paces(vec![pace(Some(26e9))], &kept, &mut ceilings);
        assert_eq!(ceilings.paces, [pace(Some(25e9))]);
        add_limits(&[(name.clone(), 26e9)], false, &kept, &mut ceilings);
        assert_eq!(ceilings.paces, [pace(Some(26e9))]);
        let [spread] = &ceilings.spreads[..] else { panic!("{:?}", ceilings.spreads) };
        assert_eq!((spread.of.as_str(), spread.first_per_second), (name.as_str(), 25e9));
        assert_eq!((spread.lowest_per_second, spread.around.len()), (25e9, 1));
        // What is measured again doesn't take its place, nor does a reason.
        add_paces(vec![pace(Some(24e9)), pace(None)], &kept, &mut ceilings);
        assert_eq!(ceilings.paces, [pace(Some(26e9))]);
    }

    #[test]
    fn what_was_kept_before_kernels_had_a_pace_is_read() {
        let text = r#"{"readings": [{"measured": "2026-11-21", "per_second": [["f32", 2e11]]}]}"#;
        let readings: LimitReadings = serde_json::from_str(text).expect("as it was written");
        assert_eq!(readings.of("f32").collect::<Vec<_>>(), [2e11]);
        let text = r#"{"read_bytes_per_second": 5e10, "flops_per_second": 2e11, "basis": ""}"#;
        let ceilings: Ceilings = serde_json::from_str(text).expect("as it was written");
        assert!(ceilings.paces.is_empty());
        let text = r#"{"measured": "", "backend": "", "caches": [], "bandwidth": [], "peaks": []}"#;
        let survey: brickscope::Survey = serde_json::from_str(text).expect("as it was written");
        assert!(survey.paces.is_empty());
    }
}
