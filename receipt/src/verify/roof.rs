//! Compares rates with the machine's ceilings.

use brickscope_profile::text::printable_in;

use super::kernels::least_flops;
use super::timeline::NO_CPU_IS_FREE;
use super::{Code, Findings, measured, said};
use crate::v1::{Ceilings, Kernel, Receipt, Sample, Test};
use brickscope_profile as profile;

/// More bytes per second than any CPU thread reads: two 512-bit vectors in each of 6·10⁹ cycles are
/// 0.8·10¹².
const MOST_BYTES: f64 = 2e12;
/// More FLOPs per second than any CPU thread reaches: a matrix unit does 2048 per cycle at 2·10⁹.
const MOST_FLOPS: f64 = 4e12;

/// More bytes than the caches of any processor hold: AMD's EPYC 9684X has 1152 MiB of L3.
const LARGEST_CACHE: f64 = 1.3e9;

/// How many times a measured ceiling a run may reach and still be honest. Within an hour one virtual machine's memory gave
/// between 31 and 60 GB/s, and its arithmetic between 118 and 236 GFLOP/s: its host puts two CPUs on the two threads of
/// one core, which share its caches and units, or on two cores. Up to here, or up to what memory gave around the run, a
/// receipt is doubtful, and beyond it is refused.
const EXCUSED: f64 = 2.0;

/// What a rate can't be above.
#[derive(Clone, Copy)]
struct Limit {
    most: f64,
    /// Up to here the measurement may be wrong; `None` if it wasn't measured, so that no spread explains more.
    excused: Option<f64>,
}

/// More levels of cache than any processor has, with room for future ones.
const MOST_CACHES: usize = 16;

/// Compares each measured sample of a test with the ceilings, since physics allows no averaging.
pub(super) fn test(receipt: &Receipt, test: &Test, found: &mut Findings) {
    let name = said(&test.name);
    let flops = each(test, |kernel| kernel.flops).max(least_flops(receipt, test) as f64);
    let bytes = each(test, |kernel| kernel.bytes);
    let sound = receipt.ceilings.as_ref().filter(|ceilings| sound(receipt, ceilings, found));
    let threads = f64::from(receipt.run.threads.max(1));
    let is_cpu = receipt.backend == "cpu";
    let passes = test.n_gen.max(1) as f64;
    let is_cached_somewhere =
        sound.is_some_and(|ceilings| ceilings.caches.is_empty()) && bytes / passes <= LARGEST_CACHE;
    if is_cached_somewhere {
        found.not_checked(
            format_args!("the bytes of {name} against the machine"),
            "the receipt has no cache bandwidths, and a cache may hold them",
        );
    }
    let of_level = sound.map(|ceilings| {
        let (level, limit, from_there) = level(ceilings, test, bytes);
        (format!("{} gives at most", printable_in(level, 72)), limit, from_there)
    });
    let of_any_cpu = |each: f64| Limit { most: threads * each, excused: None };
    let seconds = |sample: &Sample| sample.wall_ns as f64 / 1e9;
    // The first of a test, and how many there are.
    let mut doubted: Option<(String, u64)> = None;
    for (which, sample) in measured(test).enumerate() {
        let mut hold = |what: &str, work: f64, limit: Limit, of: &str| {
            let rate = work / seconds(sample);
            let most = limit.most;
            if rate > profile::Ceilings::MOST * most
                && limit.excused.is_some_and(|excused| rate <= excused)
            {
                let (_, times) = doubted.get_or_insert_with(|| {
                    let doubt = format!(
                        "test {name} reaches {:.0} % of the {most:.3e} {what} a second that {of}: that ceiling was \
                         measured too low, or while the machine was slower",
                        100.0 * rate / most
                    );
                    (doubt, 0_u64)
                });
                *times += 1;
            } else if rate > profile::Ceilings::MOST * most {
                found.refuse(
                    Code::AboveRoof,
                    format!(
                        "measured sample {which} of test {name} reaches {:.3e} {what} a second, {:.0} % \
                         of the {most:.3e} that {of}: that is impossible",
                        rate,
                        100.0 * rate / most
                    ),
                );
            }
        };
        match sound.zip(of_level.as_ref()) {
            Some((ceilings, (level, limit, from_there))) => {
                let peak = of_processor(ceilings.flops_per_second);
                hold("FLOPs", flops, peak, "its threads reach at most");
                if is_cached_somewhere {
                    hold("bytes", bytes, of_any_cpu(MOST_BYTES), OF_ANY_CPU);
                    continue;
                }
                hold("bytes", *from_there, *limit, level);
            }
            None if is_cpu => {
                hold("FLOPs", flops, of_any_cpu(MOST_FLOPS), OF_ANY_CPU);
                hold("bytes", bytes, of_any_cpu(MOST_BYTES), OF_ANY_CPU);
            }
            None => {}
        }
    }
    if let Some((doubt, times)) = doubted {
        let more = if times > 1 { format!(" ({times} such figures)") } else { String::new() };
        found.verdict.doubts.push(printable_in(&(doubt + &more), 400));
    }
}

fn of_processor(most: f64) -> Limit {
    Limit { most, excused: Some(EXCUSED * most) }
}

/// What bounds a rate if nothing was measured.
const OF_ANY_CPU: &str = "so many threads of any CPU reach";

/// The stated work of a repetition: a lower bound if one of its kernels didn't state any.
fn each(test: &Test, of: impl Fn(&Kernel) -> Option<u64>) -> f64 {
    let all: u128 = test.kernels.iter().filter_map(|kernel| of(kernel).map(u128::from)).sum();
    all as f64 / measured(test).count().max(1) as f64
}

/// The most by which a machine's memory was seen to be faster on one day than on another.
const FAR: f64 = 10.0;

/// Whether the ceilings are possible.
fn sound(receipt: &Receipt, ceilings: &Ceilings, found: &mut Findings) -> bool {
    if ceilings.caches.len() > MOST_CACHES {
        let sentence = format!("the machine has {} levels of caches", ceilings.caches.len());
        found.refuse(Code::Field, sentence);
        return false;
    }
    let caches = ceilings.caches.iter().map(|cache| cache.read_bytes_per_second);
    let bandwidths = caches.chain([ceilings.read_bytes_per_second]);
    let flops = ceilings.flops_per_second;
    if !bandwidths.clone().chain([flops]).all(profile::Ceilings::is_rate) {
        found.refuse(Code::Field, "one of the machine's ceilings is not a rate");
        return false;
    }
    let threads = f64::from(receipt.run.threads.max(1));
    if let Some([lowest, highest]) = ceilings.memory_spread {
        let is_spread = profile::Ceilings::is_rate(lowest)
            && profile::Ceilings::is_rate(highest)
            && lowest <= highest;
        // The ceiling is what memory gave on several days, so it may lie outside, but not in another unit.
        let ceiling = ceilings.read_bytes_per_second;
        // Beside other programs that take most of the CPU time, memory gives as little as they leave.
        let is_busy = receipt.load.others_share.is_some_and(|share| share > NO_CPU_IS_FREE);
        let is_near = lowest <= FAR * ceiling && (is_busy || ceiling <= FAR * highest);
        if !is_spread || !is_near {
            found.refuse(
                Code::Field,
                "what memory gave around the run is no range of rates near memory's ceiling",
            );
            return false;
        }
    }
    let spread = ceilings.memory_spread.map_or(0.0, |[_, highest]| highest);
    let most = bandwidths.fold(spread, f64::max);
    if receipt.backend == "cpu" && (most > threads * MOST_BYTES || flops > threads * MOST_FLOPS) {
        found.refuse(
            Code::AboveRoof,
            format!(
                "the ceilings, {most:.3e} bytes and {flops:.3e} FLOPs a second, are beyond what {} \
                 threads of any CPU reach",
                receipt.run.threads
            ),
        );
        return false;
    }
    true
}

/// The level of memory that a test is compared with, what it gives, and how many of the `bytes` of a
/// repetition come from there.
///
/// A decode pass reads every weight once, and the next pass reads them again: they lie in the smallest level
/// with room for them, except the part that a smaller level can keep. A prefill pass moves its activations
/// again and again, from any level: it is compared with the fastest.
fn level<'c>(ceilings: &'c Ceilings, test: &Test, bytes: f64) -> (&'c str, Limit, f64) {
    // What memory gave at any time, it gives.
    let seen = ceilings.memory_spread.map_or(0.0, |[_, highest]| highest);
    let kept = ceilings.read_bytes_per_second;
    let memory = ("memory", kept.max(seen));
    let limit = |level: &str, most: f64| {
        let of_memory = Limit { most, excused: Some(seen.max(EXCUSED * kept)) };
        if level == memory.0 { of_memory } else { of_processor(most) }
    };
    let faster = || {
        let caches = ceilings.caches.iter().filter(|c| c.read_bytes_per_second > memory.1);
        caches.map(|cache| (cache.level.as_str(), cache.read_bytes_per_second, cache.bytes as f64))
    };
    if test.n_gen == 0 {
        let fastest = faster().map(|(level, rate, _)| (level, rate));
        let (level, rate) =
            fastest.fold(memory, |best, next| if next.1 > best.1 { next } else { best });
        return (level, limit(level, rate), bytes);
    }
    let passes = test.n_gen as f64;
    let each = bytes / passes;
    let holding = faster().filter(|&(_, _, room)| room >= each);
    let holding = holding.map(|(level, rate, _)| (level, rate));
    let (level, rate) =
        holding.fold(memory, |best, next| if next.1 > best.1 { next } else { best });
    let smaller = faster().map(|(_, _, room)| room).filter(|room| *room < each).fold(0.0, f64::max);
    (level, limit(level, rate), (each - smaller) * passes)
}
