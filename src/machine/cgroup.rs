//! The limits of CPUs and memory that control groups set for a container.

use std::fs;
use std::path::{Path, PathBuf};

/// The CPU limit of this process's control group, versions 1 and 2.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuLimit {
    /// CPU time in each period, in CPUs: 1.5 is 150 ms of CPU time in 100 ms. `None` without a limit.
    /// The tightest limit of the group and its ancestors, as far as they are visible.
    pub cpus: Option<f64>,
    /// The number of periods since the group began in which it was stopped for having used up its time.
    /// `None` if the group doesn't report it.
    pub throttled_periods: Option<u64>,
    /// The CPUs that the group may run on, as the kernel writes them: `0-3,8`.
    pub cpuset: Option<String>,
}

impl CpuLimit {
    /// Asks the kernel. `None` if there are no control groups.
    #[must_use]
    pub fn read() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::read_below(Path::new("/sys/fs/cgroup"), &groups)
    }

    fn read_below(root: &Path, groups: &str) -> Option<Self> {
        let mut limit = Self::default();
        let mut found = false;
        for (controllers, path) in groups.lines().filter_map(group) {
            let version_2 = controllers.is_empty();
            let has = |name: &str| version_2 || controllers.split(',').any(|has| has == name);
            if !has("cpu") && !has("cpuset") {
                continue;
            }
            for folder in folders(&root.join(controllers), path) {
                let file = |name: &str| fs::read_to_string(folder.join(name)).ok();
                let cpus = if version_2 {
                    file("cpu.max").as_deref().and_then(quota_v2)
                } else {
                    let quota = file("cpu.cfs_quota_us");
                    quota.zip(file("cpu.cfs_period_us")).and_then(|(q, p)| quota_v1(&q, &p))
                };
                found |= folder.is_dir();
                limit.cpus = match (limit.cpus, cpus) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                // The first folder is the group itself.
                let throttled = file("cpu.stat").as_deref().and_then(throttled_periods);
                limit.throttled_periods = limit.throttled_periods.or(throttled);
                let cpuset = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
                let cpuset = cpuset.into_iter().find_map(file).map(|cpus| cpus.trim().to_owned());
                limit.cpuset = limit.cpuset.or(cpuset.filter(|cpus| !cpus.is_empty()));
            }
        }
        found.then_some(limit)
    }
}

/// The files `cpu.stat` of this process's control groups that have a quota of CPU time: the group's own, and its
/// ancestors', as far as they are visible.
pub(super) fn stats_with_quota() -> Vec<PathBuf> {
    fs::read_to_string("/proc/self/cgroup")
        .map(|groups| stats_with_quota_below(Path::new("/sys/fs/cgroup"), &groups))
        .unwrap_or_default()
}

fn stats_with_quota_below(root: &Path, groups: &str) -> Vec<PathBuf> {
    let of_cpus = |controllers: &str| {
        controllers.is_empty() || controllers.split(',').any(|controller| controller == "cpu")
    };
    let groups = groups.lines().filter_map(group).filter(|(controllers, _)| of_cpus(controllers));
    let folders = groups.flat_map(|(controllers, path)| folders(&root.join(controllers), path));
    let with_quota = folders.filter(|folder| {
        let file = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let v1 = || quota_v1(&file("cpu.cfs_quota_us")?, &file("cpu.cfs_period_us")?);
        file("cpu.max").as_deref().and_then(quota_v2).or_else(v1).is_some()
    });
    let mut files: Vec<PathBuf> = with_quota.map(|folder| folder.join("cpu.stat")).collect();
    files.dedup();
    files
}

/// The time for which `cpu.stat` says that the group was stopped: `throttled_usec` in version 2, `throttled_time` in
/// version 1.
pub(super) fn throttled_ns(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        let number: u64 = number.trim().parse().ok()?;
        match name {
            "throttled_usec" => number.checked_mul(1000),
            "throttled_time" => Some(number),
            _ => None,
        }
    })
}

/// The bytes of memory that the control groups in `groups` grant, as seen below `root`: the tightest
/// limit of a group and its ancestors, as far as they are visible.
pub(super) fn memory_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut tightest = None;
    for (controllers, path) in groups.lines().filter_map(group) {
        let file = match controllers {
            "" => "memory.max",
            _ if controllers.split(',').any(|has| has == "memory") => "memory.limit_in_bytes",
            _ => continue,
        };
        let limits = folders(&root.join(controllers), path).into_iter().filter_map(|folder| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            // Version 1 has no word for no limit, and states the largest number that it can count.
            text.trim().parse::<u64>().ok().filter(|&bytes| bytes < 1 << 62)
        });
        tightest = tightest.into_iter().chain(limits).min();
    }
    tightest
}

/// A line `id:controllers:path`; version 2 has no controllers.
fn group(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')?.1.split_once(':')
}

/// The folders of a group and its ancestors. In a container the path may be the host's, of which only the
/// mount's root is visible; the root is always last.
fn folders(mount: &Path, path: &str) -> Vec<PathBuf> {
    let path = Path::new(path.trim_start_matches('/'));
    // `..` stands for a group outside of this namespace.
    let inside = !path.components().any(|part| part == std::path::Component::ParentDir);
    let path = if inside { path } else { Path::new("") };
    path.ancestors().map(|ancestor| mount.join(ancestor)).collect()
}

/// `cpu.max`: `max 100000` or `150000 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_v1(quota, period)
}

/// `cpu.cfs_quota_us` and `cpu.cfs_period_us`; a quota of -1 means no limit.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (period > 0).then(|| quota as f64 / period as f64)
}

/// The line `nr_throttled` of `cpu.stat`.
fn throttled_periods(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_as_both_versions_write_them() {
        assert_eq!(quota_v2("150000 100000\n"), Some(1.5));
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v1("50000\n", "100000\n"), Some(0.5));
        assert_eq!(quota_v1("-1\n", "100000\n"), None);
        for garbage in ["", "max", "1 0", "x 1", "1 x"] {
            assert_eq!(quota_v2(garbage), None, "{garbage:?}");
        }
        let v2 = "usage_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n";
        assert_eq!(throttled_periods(v2), Some(4));
        assert_eq!(throttled_periods("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"), Some(0));
        assert_eq!(throttled_periods("nr_throttled many\n"), None);
    }

    #[test]
    fn only_groups_with_a_quota_are_asked_for_how_long_they_stopped_their_threads() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("outer/cpu.max", "max 100000\n");
        write("outer/inner/cpu.max", "50000 100000\n");
        write("cpu/free/cpu.cfs_quota_us", "-1\n");
        write("cpu/free/cpu.cfs_period_us", "100000\n");
        write("cpu/free/tight/cpu.cfs_quota_us", "1000\n");
        write("cpu/free/tight/cpu.cfs_period_us", "100000\n");
        let groups = "0::/outer/inner\n3:memory:/outer\n1:cpu:/free/tight\n";
        let files = stats_with_quota_below(root.path(), groups);
        let expected = ["outer/inner/cpu.stat", "cpu/free/tight/cpu.stat"];
        assert_eq!(files, expected.map(|file| root.path().join(file)));
        let v2 = b"usage_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n";
        assert_eq!(throttled_ns(v2), Some(77_000));
        assert_eq!(throttled_ns(b"nr_periods 2\nthrottled_time 219623285\n"), Some(219_623_285));
        assert_eq!(throttled_ns(b"nr_throttled 4\n"), None);
    }

    #[test]
    fn the_tightest_memory_limit_counts_and_none_is_none() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("outer/memory.max", "1000\n");
        write("outer/inner/memory.max", "max\n");
        write("memory/box/memory.limit_in_bytes", "9223372036854771712\n");
        let v2 = memory_limit(root.path(), "0::/outer/inner\n");
        let v1 = memory_limit(root.path(), "4:memory:/box\n3:cpu:/box\n");
        assert_eq!((v2, v1), (Some(1000), None));
    }

    #[test]
    fn groups_and_their_ancestors() {
        assert_eq!(group("3:cpu,cpuacct:/docker/ab"), Some(("cpu,cpuacct", "/docker/ab")));
        assert_eq!(group("0::/user.slice"), Some(("", "/user.slice")));
        assert_eq!(group("garbage"), None);
        let paths = |path| folders(Path::new("/c"), path);
        assert_eq!(paths("/a/b"), [Path::new("/c/a/b"), Path::new("/c/a"), Path::new("/c/")]);
        assert_eq!(paths("/"), [Path::new("/c/")]);
        assert_eq!(paths("/../.."), [Path::new("/c/")]);
    }

    #[test]
    fn the_tightest_limit_counts_and_the_groups_own_throttling() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("outer/cpu.max", "100000 100000\n");
        write("outer/cpu.stat", "nr_throttled 70\n");
        write("outer/inner/cpu.max", "400000 100000\n");
        write("outer/inner/cpu.stat", "nr_throttled 7\n");
        write("outer/inner/cpuset.cpus.effective", "0-3\n");
        write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
        write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
        let v2 = CpuLimit::read_below(root.path(), "0::/outer/inner\n");
        let v1 = CpuLimit::read_below(root.path(), "4:memory:/x\n3:cpu,cpuacct:/box\n");
        let none = CpuLimit::read_below(&root.path().join("nowhere"), "0::/\n");
        let expected = CpuLimit {
            cpus: Some(1.0),
            throttled_periods: Some(7),
            cpuset: Some("0-3".to_owned()),
        };
        assert_eq!((v2, none), (Some(expected), None));
        assert_eq!(v1.expect("a limit").cpus, Some(0.5));
    }
}
