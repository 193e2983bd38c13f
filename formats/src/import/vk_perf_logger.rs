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
//! Who keeps the log may have put something before each line, such as a time: it is known by what is before the first line of
//! a block.
//!
//! The backend waits after each graph, and takes time stamps on the device between its operations. A
//! block is of one graph, or of as many as `GGML_VK_PERF_LOGGER_FREQUENCY` says.

use std::collections::HashMap;

use brickscope_profile::{BrickCategory, BrickStats, Profile, Source};

use super::decimal::{micros_as_nanos, nearest, scaled};
use super::prefix::Prefix;
use super::{At, Format, ImportError, UNDATED, lacks, left_out, llama_bench, total};

/// The first line of each block.
pub(super) const HEADING: &str = "Vulkan Timings:";

const END: &str = "Total time: ";

/// The most different operations.
const MOST_NAMES: usize = 1 << 16;

/// So many lines behind the first one of a block may be of another program before an operation comes.
const MOST_BETWEEN: usize = 8;

/// The sum of a block's operations may differ by so many hundredths from the total that it states itself.
const MOST_PERCENT: u128 = 1;

/// What the lines of a log come to.
#[derive(Default)]
struct Found<'t> {
    sums: Vec<BrickStats>,
    of_name: HashMap<&'t str, usize>,
    blocks: u64,
    ends: u64,
    /// Blocks that begin before the one before them ends.
    cut: u64,
    /// The nanoseconds of the operations of the block that has begun and not ended.
    block: Option<u128>,
    prefix: Prefix<'t>,
    of_means: bool,
    /// Blocks that state another total than their operations have.
    doubtful: u64,
    odd: u64,
    others: u64,
}

impl<'t> Found<'t> {
    fn line(&mut self, line: &'t str) -> Result<(), String> {
        // The prefix of a server's log may come first, and perhaps before the other lines, too.
        if let Some(prefix) = line.strip_suffix(HEADING) {
            self.cut += u64::from(self.block.is_some());
            self.blocks += 1;
            (self.block, self.prefix) = (Some(0), Prefix::of(prefix));
            return Ok(());
        }
        let Some(block) = self.block else { return Ok(()) };
        let line = self.prefix.behind(line).unwrap_or(line);
        if let Some(total) = line.strip_prefix(END) {
            self.block = None;
            self.ends += 1;
            match total.split(' ').next().and_then(micros_as_nanos) {
                Some(total) => self.doubtful += u64::from(is_doubtful(block, total)),
                None => self.odd += 1,
            }
            return Ok(());
        }
        let Some((name, count, time)) = operation(line) else {
            // The line above the next block.
            self.others += u64::from(line.is_empty() || line.contains(|c| c != '-'));
            return Ok(());
        };
        let of_means = matches!(time, Time::Mean(_));
        let read = count.parse::<u64>().ok().and_then(|count| Some((count, time.nanos(count)?)));
        let Some((count, nanos)) = read else {
            self.odd += 1;
            return Ok(());
        };
        self.of_means |= of_means;
        self.block = Some(block.saturating_add(nanos.into()));
        self.add(name, count, nanos)
    }

    fn add(&mut self, name: &'t str, count: u64, nanos: u64) -> Result<(), String> {
        let index = match self.of_name.get(name) {
            Some(&index) => index,
            None if self.sums.len() == MOST_NAMES => {
                return Err(format!("there are more than {MOST_NAMES} operations"));
            }
            None => {
                self.of_name.insert(name, self.sums.len());
                self.sums.push(BrickStats::new(name));
                self.sums.len() - 1
            }
        };
        let stats = &mut self.sums[index];
        let beyond = "the sums up to here are beyond 64 bits";
        stats.count = stats.count.checked_add(count).ok_or(beyond)?;
        stats.total_ns = stats.total_ns.checked_add(nanos).ok_or(beyond)?;
        stats.exclusive_ns = stats.total_ns;
        Ok(())
    }
}

fn is_doubtful(operations: u128, total: u64) -> bool {
    let total = u128::from(total);
    operations.abs_diff(total).saturating_mul(100) > total.saturating_mul(MOST_PERCENT)
}

/// Whether a text has a block with an operation in it.
pub(super) fn is_it(text: &str) -> bool {
    if !text.contains(HEADING) {
        return false;
    }
    let mut lines = text.lines().map(str::trim_end);
    while lines.any(|line| line.ends_with(HEADING)) {
        if lines.clone().take(MOST_BETWEEN).any(|line| operation(line).is_some()) {
            return true;
        }
    }
    false
}

pub(super) fn read(text: &str, at: &At<'_>) -> Result<Profile, ImportError> {
    let program = "ggml's Vulkan backend".to_owned();
    let mut profile = at.profile(Format::VkPerfLogger, Some(program), "time stamps of the device");
    let mut found = Found::default();
    for (number, line) in (1_u64..).zip(text.lines()) {
        let fault = |what: String| at.place(format!("line {number}"), what);
        found.line(line.trim_end()).map_err(fault)?;
    }
    let Found { sums, blocks, ends, cut, block, of_means, doubtful, odd, others, .. } = found;
    if sums.is_empty() && odd > 0 {
        let why = format!("has no operation in a block `{HEADING}` whose time can be read");
        return Err(at.whole(why));
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
    left_out(&mut profile, "operations and totals whose times can't be read", odd);
    left_out(&mut profile, "other lines among the timings", others);
    // The oldest blocks end without a line that says so.
    let cut = if ends > 0 { cut + u64::from(block.is_some()) } else { 0 };
    left_out(&mut profile, "totals of truncated blocks", cut);
    if doubtful > 0 {
        let why = format!(
            "some operations, perhaps: the sum of those of {doubtful} of {blocks} blocks differs from the block's own \
             `{}` by more than {MOST_PERCENT} %",
            END.trim_end_matches([':', ' '])
        );
        lacks(&mut profile, &[why.as_str()]);
    }
    if llama_bench::is_it(text) {
        lacks(
            &mut profile,
            &["rates of llama-bench's tests: `import --format llama-bench` reads those that ended"],
        );
    }
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
            UNDATED,
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

impl Time<'_> {
    /// Of so many runs; `None` if it is no time.
    fn nanos(&self, count: u64) -> Option<u64> {
        match self {
            Self::Total(total) => micros_as_nanos(total),
            Self::Mean(mean) => {
                let picos = scaled(mean, 6)?.checked_mul(count.into())?;
                u64::try_from(nearest(picos)).ok()
            }
        }
    }
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
    let is_word = !mean.is_empty() && !mean.contains(' ');
    let time = time.map_or(Time::Mean(mean), Time::Total);
    (is_count && is_word && !name.is_empty()).then_some((name, count, time))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const LINES: [&str; 5] = [
        "Vulkan Timings:",
        "MUL_MAT_VEC q4_K m=2048 n=1 k=2048: 29 x 111.6 us = 3236.4 us (75.2 GFLOPS/s)",
        "MUL_MAT_VEC q4_K m=6144 n=1 k=2048: 56 x 351.7 us = 19695.2 us (71.5 GFLOPS/s)",
        "ADD: 14 x 289.3 us = 4050.2 us",
        "Total time: 26981.8 us.",
    ];

    fn lines(prefix: impl Fn(usize) -> String) -> String {
        let line = |(number, line): (usize, &&str)| format!("{}{line}\n", prefix(number));
        LINES.iter().enumerate().map(line).collect()
    }

    /// The operations, with runs and nanoseconds; what was left out; whether the totals raise a doubt.
    type Found = (Vec<(String, u64, u64)>, Vec<(String, u64)>, bool);

    fn found(text: &str) -> Found {
        let at = At { path: Path::new("a.txt") };
        let profile = read(text, &at).map_err(|error| error.to_string()).expect(text);
        let sums = profile.totals.iter().map(|total| &total.stats);
        let sums = sums.map(|sum| (sum.name.clone(), sum.count, sum.total_ns)).collect();
        let imported = profile.imported.expect("of a file");
        let is_doubtful = imported.lacks.iter().any(|lack| {
            let said = "some operations, perhaps: the sum of those of 1 of 1 blocks differs from \
                        the block's own `Total time` by more than 1 %";
            lack.reason == said
        });
        (sums, imported.left_out, is_doubtful)
    }

    #[test]
    fn what_a_keeper_of_logs_puts_before_each_line_is_in_no_name() {
        let plain = found(&lines(|_| String::new()));
        assert_eq!((plain.0.len(), plain.1.len(), plain.2), (3, 0, false));
        assert_eq!(plain.0[1].1, 56);
        let prefixes: [fn(usize) -> String; 5] = [
            |at| format!("2026-01-01T00:00:{:02}Z ", at + 8),
            |at| format!("0.01.{:03}.000 I ", 998 + at),
            |at| format!("Jan {:2} 23:59:59 gpu0 llama-server[4{at}]: ", at + 8),
            |_| "vulkan-1  | ".to_owned(),
            |at| if at == 0 { "srv 3: ".to_owned() } else { String::new() },
        ];
        for prefix in prefixes {
            assert_eq!(found(&lines(prefix)), plain, "{}", lines(prefix));
        }
    }

    #[test]
    fn one_odd_operation_is_left_out_and_its_block_is_doubtful() {
        let plain = lines(|_| String::new());
        let whole = found(&plain);
        for odd in ["nan", "-4050.2", "1.8e+30", "4050,2", ""] {
            let text = plain.replace("= 4050.2", &format!("= {odd}"));
            let (sums, left_out, is_doubtful) = found(&text);
            assert_eq!(sums, whole.0[..2], "{odd}");
            let why = "operations and totals whose times can't be read".to_owned();
            assert_eq!(left_out, [(why, 1)], "{odd}");
            assert!(is_doubtful, "{odd}");
        }
        for (of, by) in [("14 x 289.3 us = 4050.2", "14 x inf"), ("14 x", "99999999999999999999 x")]
        {
            let (sums, left_out, is_doubtful) = found(&plain.replace(of, by));
            assert_eq!((sums.len(), left_out.len(), is_doubtful), (2, 1, true), "{by}");
        }
        for (total, doubtful) in [("27200", false), ("27300", true), ("0", true)] {
            let (sums, _, is_doubtful) = found(&plain.replace("26981.8", total));
            assert_eq!((sums, is_doubtful), (whole.0.clone(), doubtful), "{total}");
        }
        let (_, left_out, is_doubtful) = found(&plain.replace("26981.8", "nan"));
        assert_eq!((left_out.len(), is_doubtful), (1, false));
    }
}
