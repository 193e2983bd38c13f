//! Collects what is seen of the sampled processes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::event::{Event, Sample};
use crate::recording::{Ending, MAX_INHERITED, Mapping, Process, RawSample, Stacks, Thread};
use crate::unwind::Unwinder;

/// What has been seen so far.
#[derive(Debug, Default)]
pub(super) struct Journal {
    unwinder: Unwinder,
    pub(super) samples: Vec<RawSample>,
    pub(super) stacks: Stacks,
    /// For each process.
    mappings: BTreeMap<u32, Vec<Mapping>>,
    /// How many mappings each process has inherited from its parent.
    inherited: BTreeMap<u32, usize>,
    /// Their sum.
    n_inherited: usize,
    /// The processes and threads that have been seen and haven't ended.
    alive: BTreeSet<(u32, u32)>,
    /// The processes with samples.
    sampled: HashSet<u32>,
    /// The names of threads, by process and thread.
    names: BTreeMap<(u32, u32), String>,
    pub(super) lost: u64,
    pub(super) lost_records: u64,
    pub(super) forks_without_code: u64,
    pub(super) throttled: u64,
    pub(super) unreadable: u64,
}

impl Journal {
    /// Adds an event; `None` stands for one that couldn't be parsed. Events come in the order of time.
    pub(super) fn take(&mut self, time_ns: u64, event: Option<&Event<'_>>) {
        let Some(event) = event else {
            self.unreadable += 1;
            return;
        };
        match *event {
            Event::Sample(ref sample) => self.sample(time_ns, sample),
            Event::Map { pid, address, length, file_offset, file } => {
                let mapping = Mapping {
                    from_ns: time_ns,
                    addresses: address..address.saturating_add(length),
                    file_offset,
                    file: file.to_owned(),
                };
                self.unwinder.map(pid, &mapping);
                self.mappings.entry(pid).or_default().push(mapping);
            }
            Event::Name { pid, tid, name, exec } => {
                if exec {
                    self.unwinder.exec(pid);
                    // Its other threads have ended, and the remaining one may have had another id.
                    while let Some(&thread) = self.alive.range((pid, 0)..=(pid, u32::MAX)).next() {
                        self.alive.remove(&thread);
                    }
                }
                self.alive.insert((pid, tid));
                self.names.insert((pid, tid), name.to_string_lossy().into_owned());
            }
            Event::Fork { pid, parent_pid, tid, parent_tid } => {
                if pid != parent_pid {
                    self.fork(time_ns, parent_pid, pid);
                }
                self.alive.insert((pid, tid));
                let name = self.names.get(&(parent_pid, parent_tid)).cloned().unwrap_or_default();
                self.names.insert((pid, tid), name);
            }
            Event::Exit { pid, tid } => {
                self.alive.remove(&(pid, tid));
                if self.alive.range((pid, 0)..=(pid, u32::MAX)).next().is_none() {
                    self.exit(pid);
                }
            }
            Event::LostSamples(samples) => self.lost = self.lost.saturating_add(samples),
            Event::LostRecords(records) => {
                self.lost_records = self.lost_records.saturating_add(records);
            }
            Event::Throttled => self.throttled += 1,
            Event::Other => {}
        }
    }

    fn fork(&mut self, time_ns: u64, parent: u32, child: u32) {
        let inherited = self.mappings.get(&parent).map(Vec::as_slice).unwrap_or_default();
        if self.n_inherited + inherited.len() > MAX_INHERITED {
            self.forks_without_code += 1;
            return;
        }
        self.n_inherited += inherited.len();
        *self.inherited.entry(child).or_default() += inherited.len();
        self.unwinder.fork(parent, child);
        let at = |mapping: &Mapping| Mapping { from_ns: time_ns, ..mapping.clone() };
        let inherited: Vec<_> = inherited.iter().map(at).collect();
        self.mappings.entry(child).or_default().extend(inherited);
    }

    /// A process has ended. Only what is needed to name its samples is kept.
    fn exit(&mut self, pid: u32) {
        self.unwinder.exit(pid);
        if !self.sampled.contains(&pid) {
            self.mappings.remove(&pid);
            self.n_inherited -= self.inherited.remove(&pid).unwrap_or(0);
        }
    }

    fn sample(&mut self, time_ns: u64, sample: &Sample<'_>) {
        let (stack, (n_kernel, ending)) = self.stacks.add(|addresses| {
            let start = addresses.len();
            if sample.in_kernel {
                addresses.extend(sample.chain.addresses());
                if addresses.len() == start {
                    addresses.push(sample.ip);
                }
            }
            let n_kernel = addresses.len() - start;
            let ending = match &sample.registers {
                Some(registers) => {
                    self.unwinder.unwind(sample.pid, registers, sample.stack, addresses)
                }
                // A kernel thread's stack is all in the kernel; for a 32-bit program nothing else is known.
                None if sample.in_kernel => Ending::Root,
                None => {
                    addresses.push(sample.ip);
                    Ending::Lost
                }
            };
            (n_kernel, ending)
        });
        // The record of its start may have been lost.
        self.alive.insert((sample.pid, sample.tid));
        self.sampled.insert(sample.pid);
        self.names.entry((sample.pid, sample.tid)).or_default();
        self.samples.push(RawSample {
            time_ns,
            pid: sample.pid,
            tid: sample.tid,
            weight: 1,
            stack,
            n_kernel,
            ending,
        });
    }

    /// The processes, and all threads.
    pub(super) fn seen(&mut self) -> (Vec<Process>, Vec<Thread>) {
        let mappings = std::mem::take(&mut self.mappings);
        let processes = mappings.into_iter().map(|(pid, mappings)| Process { pid, mappings });
        let names = std::mem::take(&mut self.names);
        let threads = names.into_iter().map(|((pid, tid), name)| Thread { pid, tid, name });
        (processes.collect(), threads.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::*;

    fn name(pid: u32, name: &str) -> Event<'_> {
        Event::Name { pid, tid: pid, name: OsStr::new(name), exec: false }
    }

    #[test]
    fn a_child_has_its_parents_name_and_code_until_it_gets_its_own() {
        let mut journal = Journal::default();
        let file = Path::new("/bin/a");
        let map = |pid| Event::Map { pid, address: 16, length: 16, file_offset: 0, file };
        journal.take(1, Some(&name(7, "parent")));
        journal.take(2, Some(&map(7)));
        let fork = |pid, tid| Event::Fork { pid, parent_pid: 7, tid, parent_tid: 7 };
        journal.take(3, Some(&fork(7, 8)));
        journal.take(4, Some(&fork(9, 9)));
        journal.take(5, Some(&name(9, "child")));
        journal.take(6, Some(&fork(10, 10)));
        journal.take(7, None);
        assert_eq!(journal.unreadable, 1);
        let (processes, threads) = journal.seen();
        let names = threads.iter().map(|thread| (thread.pid, thread.tid, thread.name.as_str()));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [(7, 7, "parent"), (7, 8, "parent"), (9, 9, "child"), (10, 10, "parent")]
        );
        let code = processes.iter().map(|process| (process.pid, process.mappings[0].from_ns));
        assert_eq!(code.collect::<Vec<_>>(), [(7, 2), (9, 4), (10, 6)]);
        assert!(processes.iter().all(|process| process.mappings[0].addresses == (16..32)));
    }

    const FILE: &str = "/bin/a";

    fn map(pid: u32, page: u64) -> Event<'static> {
        let file = Path::new(FILE);
        Event::Map { pid, address: page << 12, length: 1 << 12, file_offset: 0, file }
    }

    fn fork(parent_pid: u32, pid: u32) -> Event<'static> {
        Event::Fork { pid, parent_pid, tid: pid, parent_tid: parent_pid }
    }

    fn exit(pid: u32, tid: u32) -> Event<'static> {
        Event::Exit { pid, tid }
    }

    fn n_mappings(journal: &Journal) -> usize {
        journal.mappings.values().map(Vec::len).sum()
    }

    #[test]
    fn forks_without_end_take_bounded_memory() {
        let mut journal = Journal::default();
        (0..2_000).for_each(|page| journal.take(1, Some(&map(7, page))));
        (100..2_100).for_each(|child| journal.take(2, Some(&fork(7, child))));
        assert!(n_mappings(&journal) <= MAX_INHERITED + 2_000);
        assert_eq!(journal.forks_without_code, 2_000 - MAX_INHERITED as u64 / 2_000);
    }

    #[test]
    fn processes_that_end_without_a_sample_leave_nothing() {
        let mut journal = Journal::default();
        (0..2_000).for_each(|page| journal.take(1, Some(&map(7, page))));
        for child in 100..2_100 {
            journal.take(2, Some(&fork(7, child)));
            journal.take(3, Some(&exit(child, child)));
        }
        assert_eq!((n_mappings(&journal), journal.forks_without_code), (2_000, 0));
        assert!(format!("{journal:?}").contains("Unwinder of 1 processes"));
    }

    fn sampled(journal: &mut Journal, pid: u32, tid: u32) -> RawSample {
        let registers = Some(crate::unwind::Registers { ip: 16, sp: 0, fp: 0, lr: 0 });
        let chain = crate::perf_event::linux::event::Words::default();
        let sample = Sample { pid, tid, ip: 16, in_kernel: false, chain, registers, stack: &[] };
        journal.take(3, Some(&Event::Sample(sample)));
        journal.samples.last().expect("it was taken").clone()
    }

    #[test]
    fn a_process_ends_with_the_last_of_its_threads_and_keeps_the_code_of_its_samples() {
        let mut journal = Journal::default();
        let unwinds = |journal: &Journal, n: u32| {
            assert!(format!("{journal:?}").contains(&format!("Unwinder of {n} processes")));
        };
        journal.take(1, Some(&name(7, "program")));
        journal.take(1, Some(&map(7, 0)));
        let thread = Event::Fork { pid: 7, parent_pid: 7, tid: 8, parent_tid: 7 };
        journal.take(2, Some(&thread));
        sampled(&mut journal, 7, 8);
        // No record of this one's start.
        sampled(&mut journal, 7, 9);
        journal.take(4, Some(&exit(7, 7)));
        journal.take(4, Some(&exit(7, 8)));
        unwinds(&journal, 1);
        journal.take(4, Some(&exit(7, 9)));
        unwinds(&journal, 0);
        assert_eq!(journal.seen().0[0].mappings.len(), 1);

        // Threads from before an `exec` don't belong to the new program.
        let mut journal = Journal::default();
        journal.take(1, Some(&thread));
        let exec = Event::Name { pid: 7, tid: 7, name: OsStr::new("next"), exec: true };
        journal.take(2, Some(&exec));
        journal.take(2, Some(&map(7, 0)));
        unwinds(&journal, 1);
        journal.take(3, Some(&exit(7, 7)));
        unwinds(&journal, 0);
    }

    #[test]
    fn equal_stacks_are_kept_once() {
        let mut journal = Journal::default();
        let stacks = [7, 8, 7].map(|pid| sampled(&mut journal, pid, pid).stack);
        assert_eq!(stacks, [0..1, 0..1, 0..1]);
        assert_eq!(journal.stacks.addresses, [16]);
    }

    #[test]
    fn lost_samples_are_not_counted_with_lost_records() {
        let mut journal = Journal::default();
        for lost in [Event::LostRecords(5), Event::LostSamples(7), Event::LostRecords(1)] {
            journal.take(1, Some(&lost));
        }
        assert_eq!((journal.lost_records, journal.lost), (6, 7));
    }
}
