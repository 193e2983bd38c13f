//! The output of ggml's Vulkan backend on standard error with `GGML_VK_PERF_LOGGER=1`
//! (`ggml/src/ggml-vulkan/ggml-vulkan.cpp`, `vk_perf_logger::print_timings`), among other lines:
//!
//! ```text
//! ----------------
//! Vulkan Timings:
//! MUL_MAT_VEC q4_K m=2048 n=1 k=2048: 44 x 25.113 us = 1104.97 us (334.046 GFLOPS/s)
//! RMS_NORM(2048,1,1,1): 45 x 4.27 us = 192.16 us
//! Total time: 1297.13 us.
//! ```
//!
//! Versions of 2025 end each line behind the mean, `44 x 25.113 us (334.046 GFLOPS/s)`, and the first of them write no
//! last line.
//!
//! The backend waits after each graph, and takes time stamps on the device between its operations. A
//! block is of one graph, or of as many as `GGML_VK_PERF_LOGGER_FREQUENCY` says.

use std::collections::HashMap;

use brickscope_profile::{BrickCategory, BrickStats, Profile, Source};

use super::decimal::{micros_as_nanos, nearest, scaled};
use super::{At, Format, ImportError, lacks, left_out, total};

/// The first line of each block.
pub(super) const HEADING: &str = "Vulkan Timings:";

const END: &str = "Total time: ";

/// The most different operations.
const MOST_NAMES: usize = 1 << 16;

pub(super) fn read(text: &str, at: &At<'_>) -> Result<Profile, ImportError> {
    let program = "ggml's Vulkan backend".to_owned();
    let mut profile = at.profile(Format::VkPerfLogger, Some(program), "time stamps of the device");
    let mut sums: Vec<BrickStats> = Vec::new();
    let mut of_name: HashMap<&str, usize> = HashMap::new();
    let (mut blocks, mut others, mut cut) = (0_u64, 0_u64, 0_u64);
    let (mut ends, mut of_means) = (0_u64, false);
    let mut is_inside = false;
    for (number, line) in (1_u64..).zip(text.lines()) {
        let line = line.trim_end();
        // The prefix of a server's log may come first.
        if line.ends_with(HEADING) {
            cut += u64::from(is_inside);
            (blocks, is_inside) = (blocks + 1, true);
            continue;
        }
        if !is_inside {
            continue;
        }
        if line.starts_with(END) {
            is_inside = false;
            ends += 1;
            continue;
        }
        let Some((name, count, time)) = operation(line) else {
            // The line above the next block.
            others += u64::from(line.is_empty() || line.contains(|c| c != '-'));
            continue;
        };
        let place = || format!("line {number}");
        let fault = |what: &str| at.place(place(), what);
        let count: u64 =
            count.parse().map_err(|_| fault("the number before ` x ` is beyond 64 bits"))?;
        let nanos = match time {
            Time::Total(total) => micros_as_nanos(total).ok_or_else(|| {
                fault("the total, after ` us = `, is not a number of microseconds")
            })?,
            Time::Mean(mean) => {
                of_means = true;
                let picos = scaled(mean, 6).and_then(|picos| picos.checked_mul(count.into()));
                picos.map(nearest).and_then(|nanos| u64::try_from(nanos).ok()).ok_or_else(|| {
                    fault("the mean, after ` x `, is not a number of microseconds")
                })?
            }
        };
        let index = match of_name.get(name) {
            Some(&index) => index,
            None if sums.len() == MOST_NAMES => {
                return Err(fault(&format!("there are more than {MOST_NAMES} operations")));
            }
            None => {
                of_name.insert(name, sums.len());
                sums.push(BrickStats::new(name));
                sums.len() - 1
            }
        };
        let stats = &mut sums[index];
        let beyond = || fault("the sums up to here are beyond 64 bits");
        stats.count = stats.count.checked_add(count).ok_or_else(beyond)?;
        stats.total_ns = stats.total_ns.checked_add(nanos).ok_or_else(beyond)?;
        stats.exclusive_ns = stats.total_ns;
    }
    if sums.is_empty() {
        return Err(at.whole(format!(
            "has no operation in a block `{HEADING}`: was it written with GGML_VK_PERF_LOGGER=1?"
        )));
    }
    let all = sums.iter().try_fold(0_u64, |sum, stats| sum.checked_add(stats.total_ns));
    all.ok_or_else(|| at.whole("its times add up to more than 64 bits of nanoseconds"))?;
    for stats in sums {
        let category = category(&stats.name);
        let mut total = total(None, Source::Device, stats);
        total.category = Some(category);
        profile.totals.push(total);
    }
    if let Some(imported) = &mut profile.imported {
        imported.conditions.push(("blocks of timings".to_owned(), blocks.to_string()));
    }
    left_out(&mut profile, "other lines among the timings", others);
    // The oldest blocks end without a line that says so.
    let cut = if ends > 0 { cut + u64::from(is_inside) } else { 0 };
    left_out(&mut profile, "totals of truncated blocks", cut);
    if of_means {
        lacks(
            &mut profile,
            &["sums: the log has means and counts, of which the times here are the products"],
        );
    }
    lacks(
        &mut profile,
        &[
            "single runs of an operation, the shortest and the longest: the log has sums",
            "more than six digits of a time: the log is rounded to them",
            "FLOPs: the log has rates, rounded, and no counts",
            "passes, phases and tokens: a block is a graph, or several, of whatever phase",
            "what the host did, and gaps on the device",
        ],
    );
    Ok(profile)
}

/// What a line says of the time, in microseconds.
enum Time<'l> {
    Total(&'l str),
    /// Of a run, in logs of 2025.
    Mean(&'l str),
}

/// The name, the number of runs and their time: `NAME: N x MEAN us = TOTAL us` or `NAME: N x MEAN us`, and perhaps a rate
/// after that. Names may have colons.
fn operation(line: &str) -> Option<(&str, &str, Time<'_>)> {
    let is_rate = |rest: &str| rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')');
    let (front, time) = match line.rsplit_once(" us = ") {
        Some((front, back)) => {
            let (total, rest) = back.split_once(" us")?;
            if !is_rate(rest) {
                return None;
            }
            (front, Some(total))
        }
        None => {
            let (front, rest) = line.rsplit_once(" us")?;
            if !is_rate(rest) {
                return None;
            }
            (front, None)
        }
    };
    let (name, runs) = front.rsplit_once(": ")?;
    let (count, mean) = runs.split_once(" x ")?;
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let is_mean = scaled(mean, 3).is_some();
    let time = time.map_or(Time::Mean(mean), Time::Total);
    (is_count && is_mean && !name.is_empty()).then_some((name, count, time))
}

/// The category of an operation by ggml's name, if that determines it: the name of a matrix product doesn't.
fn category(name: &str) -> BrickCategory {
    let word = name.split([' ', '(']).next().unwrap_or_default();
    if word.starts_with("RMS_NORM") || word.starts_with("NORM") {
        BrickCategory::Norm
    } else if ["FLASH_ATTN_EXT", "ROPE", "SOFT_MAX"].iter().any(|op| word.starts_with(op)) {
        BrickCategory::Attention
    } else {
        BrickCategory::Other
    }
}
