//! What memory the system has for a copy of a model.

use std::fs;

/// Whether it gives pages of 2 MiB to who asks for them.
pub(super) fn gives_large_pages() -> bool {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|chosen| !chosen.contains("[never]"))
}

/// Whether so many bytes can be had without swapping, and an eighth more for everything else. What the
/// system doesn't say is no room.
pub(super) fn has_room_for(len: u64) -> bool {
    let needed = len.saturating_add(len / 8);
    let text = |path: &str| fs::read_to_string(path).ok();
    let Some(free) = text("/proc/meminfo").as_deref().and_then(available) else { return false };
    // The process' own control group, as a container sees it.
    let limit = text("/sys/fs/cgroup/memory.max").and_then(|most| most.trim().parse::<u64>().ok());
    let used = text("/sys/fs/cgroup/memory.current").and_then(|used| used.trim().parse().ok());
    let in_group = limit.map_or(u64::MAX, |limit| limit.saturating_sub(used.unwrap_or(limit)));
    needed <= free.min(in_group)
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_in_kilobytes() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   24 kB\n"), Some(24 << 10));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert_eq!(available("MemAvailable: 18446744073709551615 kB"), None);
        assert!(!has_room_for(u64::MAX));
    }
}
