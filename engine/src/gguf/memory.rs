//! The memory that the system has for a copy of a model.

use std::fs;
use std::ops::Range;

use brickscope::MachineDetails;

/// Whether the system gives pages of 2 MiB on request.
pub(super) fn gives_large_pages() -> bool {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|chosen| !chosen.contains("[never]"))
}

/// Whether `len` bytes fit without swapping, with an eighth more for everything else. `false` if the
/// system doesn't say. From a control group's limit, only this process's own memory is subtracted.
pub(super) fn has_room_for(len: u64) -> bool {
    let needed = len.saturating_add(len / 8);
    let kilobytes = |path: &str, name: &str| value(&fs::read_to_string(path).ok()?, name);
    let Some(free) = kilobytes("/proc/meminfo", "MemAvailable:") else { return false };
    let own = kilobytes("/proc/self/status", "RssAnon:").unwrap_or(0);
    let limit = MachineDetails::read().memory_limit;
    needed <= free.min(limit.map_or(u64::MAX, |limit| limit.saturating_sub(own)))
}

/// How many of these bytes, which are a mapping of their own, are in large pages; `None` if the system
/// doesn't say.
pub(super) fn in_large_pages(bytes: &[u8]) -> Option<u64> {
    let (start, end) = (bytes.as_ptr().addr(), bytes.as_ptr().addr() + bytes.len());
    in_large_pages_of(&fs::read_to_string("/proc/self/smaps").ok()?, start..end)
}

/// The system may have joined the mapping with a neighbour, or split it.
fn in_large_pages_of(smaps: &str, bytes: Range<usize>) -> Option<u64> {
    let (mut is_ours, mut sum) = (false, None);
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range.map(|(a, b)| [a, b].map(|at| usize::from_str_radix(at, 16)));
        if let Some([Ok(start), Ok(end)]) = range {
            is_ours = start < bytes.end && bytes.start < end;
        } else if is_ours && let Some(in_large) = value(line, "AnonHugePages:") {
            sum = Some(in_large.saturating_add(sum.unwrap_or(0)));
        }
    }
    sum
}

/// The value of the line `name … kB`, in bytes.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read_in_kilobytes() {
        let value = |text| value(text, "MemAvailable:");
        assert_eq!(value("MemTotal: 9 kB\nMemAvailable:   24 kB\n"), Some(24 << 10));
        assert_eq!(value("MemTotal: 9 kB\n"), None);
        assert_eq!(value("MemAvailable: 18446744073709551615 kB"), None);
        assert!(!has_room_for(u64::MAX));
    }

    #[test]
    fn large_pages_are_those_of_the_mapping() {
        let smaps = "1000-2000 r--p 00000000 00:00 0 \nRss: 4 kB\nAnonHugePages: 2048 kB\n\
                     400000-a00000 r--p 00000000 00:00 0 \nAnonHugePages: 4096 kB\n\
                     a00000-b00000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages: 0 kB\n";
        assert_eq!(in_large_pages_of(smaps, 0x40_0000..0xa0_0000), Some(4 << 20));
        assert_eq!(in_large_pages_of(smaps, 0xa0_0000..0xa1_0000), Some(0));
        assert_eq!(in_large_pages_of(smaps, 0xc0_0000..0xc1_0000), None);
    }
}
