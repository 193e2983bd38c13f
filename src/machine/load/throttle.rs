//! How long control groups stopped this process.

use std::fs::File;

use super::proc::read_begin;
use crate::machine::cgroup;

/// How long the control groups of this process have stopped their threads for having used up their quota: those of this
/// process, and of all others in the group.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// `cpu.stat` of each group with a quota.
    files: Vec<File>,
    pub(super) last_ns: Option<u64>,
}

impl Throttle {
    pub(super) fn open() -> Self {
        let files = cgroup::stats_with_quota().into_iter().filter_map(|path| File::open(path).ok());
        let mut throttle = Self { files: files.collect(), last_ns: None };
        throttle.look();
        throttle
    }

    pub(super) fn look(&mut self) {
        let mut all = self.files.iter().map(|file| {
            let mut buffer = [0; 512];
            let len = read_begin(file, &mut buffer).ok()?;
            cgroup::throttled_ns(&buffer[..len])
        });
        // One that can't be read may be the one that stopped it.
        let sum = all.try_fold(0, |sum: u64, ns| sum.checked_add(ns?));
        self.last_ns = sum.filter(|_| !self.files.is_empty());
    }
}
