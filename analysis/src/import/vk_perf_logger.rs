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
//! The backend waits after each graph, and takes time stamps on the device between its operations. A
//! block is of one graph, or of as many as `GGML_VK_PERF_LOGGER_FREQUENCY` says.

use std::collections::HashMap;

use brickscope_profile::{BrickCategory, BrickStats, Profile, Source};

use super::decimal::micros_as_nanos;
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
            continue;
        }
        let Some((name, count, total)) = operation(line) else {
            others += 1;
            continue;
        };
        let place = || format!("line {number}");
        let fault = |what: &str| at.place(place(), what);
        let count: u64 =
            count.parse().map_err(|_| fault("the number before ` x ` is beyond 64 bits"))?;
        let nanos = micros_as_nanos(total)
            .ok_or_else(|| fault("the total, after ` us = `, is not a number of microseconds"))?;
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
    left_out(&mut profile, "totals of truncated blocks", cut + u64::from(is_inside));
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

/// The name, the number of runs and the total in microseconds: `NAME: N x MEAN us = TOTAL us`, and
/// perhaps a rate after that. Names may have colons.
fn operation(line: &str) -> Option<(&str, &str, &str)> {
    let (front, back) = line.rsplit_once(" us = ")?;
    let (name, runs) = front.rsplit_once(": ")?;
    let (count, mean) = runs.split_once(" x ")?;
    let (total, rest) = back.split_once(" us")?;
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')');
    let is_mean = super::decimal::scaled(mean, 3).is_some();
    (is_count && is_mean && is_whole && !name.is_empty()).then_some((name, count, total))
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
