//! `/proc/stat`: the CPU time of the whole machine, and what of it was stolen.

use std::fs::File;
use std::time::Instant;

use super::nanos_since;
use super::proc::{numbers, read_begin};
use crate::machine::os;

/// A meter reads `/proc/stat` at most this often: every ten of its ticks.
pub(super) const STEAL_EVERY_NS: u64 = 100_000_000;

/// And at most so often that reading it takes one part in this many of the time, whatever number of CPUs
/// it lists.
const STEAL_COST: u64 = 1000;

/// The stolen time at the last look, and the distance between looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steal {
    pub(super) ns: u64,
    pub(super) every_ns: u64,
}

/// `/proc/stat`, and how often to read it.
#[derive(Debug)]
pub(super) struct Stat {
    file: File,
    tick_ns: u64,
    every_ns: u64,
    looked_ns: u64,
    last: Option<Steal>,
}

impl Stat {
    pub(super) fn open(origin: Instant) -> Option<Self> {
        let file = File::open("/proc/stat").ok()?;
        let tick_ns = os::tick_ns()?;
        let looked_ns = nanos_since(origin);
        let mut stat = Self { file, tick_ns, every_ns: STEAL_EVERY_NS, looked_ns, last: None };
        // The first look is slower, and the distance between looks follows from the last.
        let mut cost_ns = u64::MAX;
        for _ in 0..3 {
            stat.looked_ns = nanos_since(origin);
            stat.look();
            cost_ns = cost_ns.min(nanos_since(origin).saturating_sub(stat.looked_ns));
            let cheap_enough = cost_ns.saturating_mul(STEAL_COST);
            stat.every_ns = STEAL_EVERY_NS.max(tick_ns).max(cheap_enough);
        }
        stat.look();
        Some(stat)
    }

    fn look(&mut self) {
        let steal = read_cpu_times(&self.file).and_then(|times| times.steal);
        let ns = steal.and_then(|ticks| ticks.checked_mul(self.tick_ns));
        self.last = ns.map(|ns| Steal { ns, every_ns: self.every_ns });
    }

    pub(super) fn steal(&mut self, at_ns: u64) -> Option<Steal> {
        if at_ns.saturating_sub(self.looked_ns) >= self.every_ns {
            self.look();
            self.looked_ns = at_ns;
        }
        self.last
    }
}

/// The first line of `/proc/stat`: all CPUs together, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuTimes {
    pub(super) busy: u64,
    pub(super) idle: u64,
    // Kernels before 2.6.11 lack it.
    pub(super) steal: Option<u64>,
}

pub(super) fn read_cpu_times(file: &File) -> Option<CpuTimes> {
    // Ten numbers of at most 20 digits. The kernel writes the whole file whatever part is asked for.
    let mut buffer = [0; 256];
    let len = read_begin(file, &mut buffer).ok()?;
    cpu_times(&buffer[..len])
}

fn cpu_times(text: &[u8]) -> Option<CpuTimes> {
    // A truncated line could end within a number.
    let line = &text[..text.iter().position(|&byte| byte == b'\n')?];
    let mut numbers = numbers(line.strip_prefix(b"cpu ")?);
    let mut next = || numbers.next().flatten();
    // `user` and `nice` already include the time of guests.
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let (iowait, irq, softirq) = (next().unwrap_or(0), next().unwrap_or(0), next().unwrap_or(0));
    let sum = |terms: &[u64]| terms.iter().try_fold(0_u64, |sum, &term| sum.checked_add(term));
    Some(CpuTimes {
        busy: sum(&[user, nice, system, irq, softirq])?,
        idle: sum(&[idle, iowait])?,
        steal: next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_cpus_as_linux_writes_it() {
        let text = b"cpu  307721 257166 95800 1499044 3914 0 490 506 7 0\ncpu0 148645 1\n";
        assert_eq!(
            cpu_times(text),
            Some(CpuTimes {
                busy: 307_721 + 257_166 + 95_800 + 490,
                idle: 1_499_044 + 3_914,
                steal: Some(506)
            })
        );
        let old = cpu_times(b"cpu  1 2 3 4\n");
        assert_eq!(old, Some(CpuTimes { busy: 6, idle: 4, steal: None }));
        let most = u64::MAX;
        for garbage in [
            "".to_owned(),
            "cpu  1 2 3\n".to_owned(),
            "cpu0 1 2 3 4 5 6 7 8\n".to_owned(),
            "cpu  1 2 3 4 5 6 7 8".to_owned(),
            "cpu  1 x 3 4 5 6 7 8\n".to_owned(),
            format!("cpu  {most} {most} 3 4 5 6 7 8\n"),
        ] {
            assert_eq!(cpu_times(garbage.as_bytes()), None, "{garbage:?}");
        }
    }
}
