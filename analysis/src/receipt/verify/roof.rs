//! Compares rates with the machine's ceilings.

use super::kernels::least_flops;
use super::{Code, Findings, clean, measured, said};
use crate::receipt::v1::{Ceilings, Kernel, Receipt, Sample, Test};
use crate::roofline::{MOST, is_rate};

/// More bytes per second than any CPU thread reads: two 512-bit vectors in each of 6·10⁹ cycles are
/// 0.8·10¹².
const MOST_BYTES: f64 = 2e12;
/// More FLOPs per second than any CPU thread reaches: a matrix unit does 2048 per cycle at 2·10⁹.
const MOST_FLOPS: f64 = 4e12;

/// More bytes than the caches of any processor hold: AMD's EPYC 9684X has 1152 MiB of L3.
const LARGEST_CACHE: f64 = 1.3e9;

/// How many times its measured ceiling a run may reach and still be honest. The bandwidth of one machine's memory
/// was measured between 31 and 60 GB/s within an hour, as its host moved its CPUs; and a ceiling that was measured
/// beside other work is too low by what that took. So up to here a receipt is doubtful, and beyond it is refused.
const SPREAD: f64 = 2.0;

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
        let (level, most, from_there) = level(ceilings, test, bytes);
        (format!("{} gives at most", clean(level, 72)), most, from_there)
    });
    let seconds = |sample: &Sample| sample.wall_ns as f64 / 1e9;
    // The first of a test, and how many there are.
    let mut doubted: Option<(String, u64)> = None;
    for (which, sample) in measured(test).enumerate() {
        let mut hold = |what: &str, work: f64, most: f64, of: &str| {
            let rate = work / seconds(sample);
            let is_measured = of != OF_ANY_CPU;
            if rate > MOST * most && is_measured && rate <= SPREAD * most {
                let (_, times) = doubted.get_or_insert_with(|| {
                    let doubt = format!(
                        "test {name} reaches {:.0} % of the {most:.3e} {what} a second that {of}: that ceiling was \
                         measured too low, or while the machine was slower",
                        100.0 * rate / most
                    );
                    (doubt, 0_u64)
                });
                *times += 1;
            } else if rate > MOST * most {
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
            Some((ceilings, (level, most, from_there))) => {
                hold("FLOPs", flops, ceilings.flops_per_second, "its threads reach at most");
                if is_cached_somewhere {
                    hold("bytes", bytes, threads * MOST_BYTES, OF_ANY_CPU);
                    continue;
                }
                hold("bytes", *from_there, *most, level);
            }
            None if is_cpu => {
                hold("FLOPs", flops, threads * MOST_FLOPS, OF_ANY_CPU);
                hold("bytes", bytes, threads * MOST_BYTES, OF_ANY_CPU);
            }
            None => {}
        }
    }
    if let Some((doubt, times)) = doubted {
        let more = if times > 1 { format!(" ({times} such figures)") } else { String::new() };
        found.verdict.doubts.push(clean(&(doubt + &more), 400));
    }
}

/// What bounds a rate if nothing was measured: no spread explains more.
const OF_ANY_CPU: &str = "so many threads of any CPU reach";

/// The stated work of a repetition: a lower bound if one of its kernels didn't state any.
fn each(test: &Test, of: impl Fn(&Kernel) -> Option<u64>) -> f64 {
    let all: u128 = test.kernels.iter().filter_map(|kernel| of(kernel).map(u128::from)).sum();
    all as f64 / measured(test).count().max(1) as f64
}

/// No machine's memory was seen to give so many times more on one day than on another.
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
    if !bandwidths.clone().chain([flops]).all(is_rate) {
        found.refuse(Code::Field, "one of the machine's ceilings is not a rate");
        return false;
    }
    let threads = f64::from(receipt.run.threads.max(1));
    if let Some([lowest, highest]) = ceilings.memory_spread {
        let is_spread = is_rate(lowest) && is_rate(highest) && lowest <= highest;
        // The ceiling is what memory gave on several days, so it may lie outside, but not in another unit.
        let ceiling = ceilings.read_bytes_per_second;
        let is_near = lowest <= FAR * ceiling && ceiling <= FAR * highest;
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

/// The level of memory that a test is compared with, its bandwidth, and how many of the `bytes` of a
/// repetition come from there.
///
/// A decode pass reads every weight once, and the next pass reads them again: they lie in the smallest level
/// with room for them, except the part that a smaller level can keep. A prefill pass moves its activations
/// again and again, from any level: it is compared with the fastest.
fn level<'c>(ceilings: &'c Ceilings, test: &Test, bytes: f64) -> (&'c str, f64, f64) {
    // What memory gave at any time, it gives.
    let seen = ceilings.memory_spread.map_or(0.0, |[_, highest]| highest);
    let memory = ("memory", ceilings.read_bytes_per_second.max(seen));
    let faster = || {
        let caches = ceilings.caches.iter().filter(|c| c.read_bytes_per_second > memory.1);
        caches.map(|cache| (cache.level.as_str(), cache.read_bytes_per_second, cache.bytes as f64))
    };
    if test.n_gen == 0 {
        let fastest = faster().map(|(level, rate, _)| (level, rate));
        let (level, rate) =
            fastest.fold(memory, |best, next| if next.1 > best.1 { next } else { best });
        return (level, rate, bytes);
    }
    let passes = test.n_gen as f64;
    let each = bytes / passes;
    let holding = faster().filter(|&(_, _, room)| room >= each);
    let holding = holding.map(|(level, rate, _)| (level, rate));
    let (level, rate) =
        holding.fold(memory, |best, next| if next.1 > best.1 { next } else { best });
    let smaller = faster().map(|(_, _, room)| room).filter(|room| *room < each).fold(0.0, f64::max);
    (level, rate, (each - smaller) * passes)
}
