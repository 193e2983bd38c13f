//! What was seen of the sampled processes.

use std::collections::BTreeMap;

use super::event::{Event, Sample};
use crate::recording::{Ending, Mapping, Process, RawSample, Thread};
use crate::unwind::Unwinder;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Journal {
    unwinder: Unwinder,
    pub(super) samples: Vec<RawSample>,
    pub(super) addresses: Vec<u64>,
    /// By process.
    mappings: BTreeMap<u32, Vec<Mapping>>,
    /// The names of threads, by process and thread.
    names: BTreeMap<(u32, u32), String>,
    pub(super) lost: u64,
    pub(super) throttled: u64,
    pub(super) unreadable: u64,
}

impl Journal {
    /// Takes in one event, `None` if it couldn't be read; they come by time.
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
                }
                self.names.insert((pid, tid), name.to_string_lossy().into_owned());
            }
            Event::Fork { pid, parent_pid, tid, parent_tid } => {
                if pid != parent_pid {
                    self.unwinder.fork(parent_pid, pid);
                    let inherited = self.mappings.get(&parent_pid).cloned().unwrap_or_default();
                    let inherited = inherited
                        .into_iter()
                        .map(|mapping| Mapping { from_ns: time_ns, ..mapping });
                    self.mappings.entry(pid).or_default().extend(inherited);
                }
                let name = self.names.get(&(parent_pid, parent_tid)).cloned().unwrap_or_default();
                self.names.insert((pid, tid), name);
            }
            Event::Lost(records) => self.lost = self.lost.saturating_add(records),
            Event::Throttled => self.throttled += 1,
            Event::Other => {}
        }
    }

    fn sample(&mut self, time_ns: u64, sample: &Sample<'_>) {
        let start = self.addresses.len();
        if sample.in_kernel {
            self.addresses.extend(sample.chain.addresses());
            if self.addresses.len() == start {
                self.addresses.push(sample.ip);
            }
        }
        let n_kernel = self.addresses.len() - start;
        let ending = match &sample.registers {
            Some(registers) => {
                self.unwinder.unwind(sample.pid, registers, sample.stack, &mut self.addresses)
            }
            // All of a kernel thread's stack is the kernel's; of a 32-bit program's only this is
            // known.
            None if sample.in_kernel => Ending::Root,
            None => {
                self.addresses.push(sample.ip);
                Ending::Lost
            }
        };
        self.names.entry((sample.pid, sample.tid)).or_default();
        self.samples.push(RawSample {
            time_ns,
            pid: sample.pid,
            tid: sample.tid,
            weight: 1,
            stack: start..self.addresses.len(),
            n_kernel,
            ending,
        });
    }

    /// Every process and every thread.
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
}
