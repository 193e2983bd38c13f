//! Linux's counters, by `perf_event_open`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, IntoRawFd};

use brickscope_profile::Absent;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, Counter, ReadFormat};

use super::{CounterReading, Missing};

/// The number of counters in a [`CounterReading`].
const EVENTS: usize = 4;
/// Their names, in the order in which [`builders`] asks for them.
const NAMES: [&str; EVENTS] = ["cycles", "instructions", "LLC misses", "branch misses"];

fn builders() -> [Builder<'static>; EVENTS] {
    // The last-level cache by its name, not `CACHE_MISSES`: the meaning of that is up to the processor's
    // vendor, and on AMD it is the second level.
    let llc_loads =
        Cache { which: CacheId::LL, operation: CacheOp::READ, result: CacheResult::MISS };
    [
        Builder::new(Hardware::CPU_CYCLES),
        Builder::new(Hardware::INSTRUCTIONS),
        Builder::new(llc_loads),
        Builder::new(Hardware::BRANCH_MISSES),
    ]
}

/// Counters of all threads that existed when they were opened.
///
/// Threads that begin later aren't counted, so create the thread pool first. Threads that end keep their
/// counts.
#[derive(Debug)]
pub(crate) struct Counters(Groups);

impl Counters {
    /// Opens a group of counters for each thread of this process, and starts them.
    ///
    /// # Errors
    ///
    /// What is missing, and the remedy.
    pub(crate) fn open() -> Result<Self, Absent> {
        Ok(Self(Groups::open(builders())?))
    }

    /// The counts since they were opened, in user space.
    ///
    /// Takes a system call per thread, and no allocation; if a thread runs on another core, that core is
    /// interrupted.
    ///
    /// # Errors
    ///
    /// If the kernel doesn't return a group's counts, or returns fewer than requested.
    pub(crate) fn read(&mut self) -> io::Result<CounterReading> {
        let totals = self.0.read()?;
        let [cycles, instructions, llc_misses, branch_misses] = totals.counts;
        Ok(CounterReading {
            cycles,
            instructions,
            llc_misses,
            branch_misses,
            wanted_ns: totals.enabled_ns,
            counted_ns: totals.running_ns,
        })
    }

    /// Why each counter that this machine lacks is absent.
    pub(crate) fn absent(&self) -> Vec<Absent> {
        let lacking = NAMES.iter().zip(&self.0.has).filter(|(_, has)| !**has);
        lacking
            .map(|(name, _)| Absent {
                reason: format!("{name}: this processor doesn't offer the counter to the kernel"),
            })
            .collect()
    }
}

/// Opens the hardware counters and takes one reading; those that this machine lacks are `None`.
///
/// # Errors
///
/// What is missing, and the remedy.
pub fn probe_counters() -> Result<CounterReading, Missing> {
    let mut counters = Counters(Groups::open(builders())?);
    counters.read().map_err(|error| Missing {
        what: format!("hardware counters open, but can't be read ({error})"),
        fix: "end other profilers, which may hold them".to_owned(),
    })
}

/// Whether this process may sample itself with a software clock, as `perf record -e cpu-clock:u`
/// does.
///
/// # Errors
///
/// Why it may not, and the remedy.
pub fn probe_sampling() -> Result<(), Missing> {
    let mut clock = Builder::new(Software::CPU_CLOCK);
    clock.sample_frequency(999);
    clock.build().map(drop).map_err(|error| why(&error, paranoid()))
}

/// A group of the same counters for each thread.
#[derive(Debug)]
struct Groups {
    groups: Vec<Group>,
    has: [bool; EVENTS],
}

/// The counters of one thread, read together.
#[derive(Debug)]
struct Group {
    leader: File,
    // A counter counts as long as it is open.
    _members: Vec<Counter>,
}

struct Totals {
    counts: [Option<u64>; EVENTS],
    enabled_ns: u64,
    running_ns: u64,
}

impl Groups {
    fn open(builders: [Builder<'static>; EVENTS]) -> Result<Self, Missing> {
        let failed = |error: io::Error| why(&error, paranoid());
        let mut groups: Vec<Group> = Vec::new();
        let mut has = [false; EVENTS];
        for entry in fs::read_dir("/proc/self/task").map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            match Group::open(&builders, thread) {
                Ok((group, of_thread)) if groups.is_empty() || of_thread == has => {
                    groups.push(group);
                    has = of_thread;
                }
                Ok(_) => {
                    return Err(Missing {
                        what: "threads have different hardware counters".to_owned(),
                        fix: "keep the process on cores of one kind with `taskset`".to_owned(),
                    });
                }
                // The thread ended after it was listed.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Self { groups, has })
    }

    fn read(&mut self) -> io::Result<Totals> {
        let mut totals =
            Totals { counts: self.has.map(|has| has.then_some(0)), enabled_ns: 0, running_ns: 0 };
        for group in &mut self.groups {
            let [count, enabled_ns, running_ns, members @ ..] = group.read()?;
            totals.enabled_ns = totals.enabled_ns.saturating_add(enabled_ns);
            totals.running_ns = totals.running_ns.saturating_add(running_ns);
            let count = usize::try_from(count).unwrap_or(EVENTS);
            let mut members = members.as_chunks().0.iter().take(count);
            for total in totals.counts.iter_mut().flatten() {
                let [value, _id] = members.next().ok_or(io::ErrorKind::UnexpectedEof)?;
                *total = total.saturating_add(*value);
            }
        }
        Ok(totals)
    }
}

impl Group {
    /// Opens those of `builders` that this machine has, and returns which.
    fn open(
        builders: &[Builder<'static>; EVENTS],
        thread: i32,
    ) -> io::Result<(Self, [bool; EVENTS])> {
        let mut leader: Option<Counter> = None;
        let mut members = Vec::new();
        let mut has = [false; EVENTS];
        let mut first_error = None;
        for (builder, has) in builders.iter().zip(&mut has) {
            let mut builder = builder.clone();
            builder.observe_pid(thread).enabled(true);
            let opened = match &mut leader {
                Some(leader) => builder.build_with_group(leader).map(|member| members.push(member)),
                None => {
                    builder.read_format(
                        ReadFormat::GROUP
                            | ReadFormat::ID
                            | ReadFormat::TOTAL_TIME_ENABLED
                            | ReadFormat::TOTAL_TIME_RUNNING,
                    );
                    builder.build().map(|counter| leader = Some(counter))
                }
            };
            match opened {
                Ok(()) => *has = true,
                // The machine lacks this one, or has no register left for it; it may have the next.
                Err(error) if is_absence(&error) => first_error = first_error.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match leader {
            Some(leader) => Ok((Self { leader: into_file(leader), _members: members }, has)),
            None => Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into())),
        }
    }

    /// The number of members, the two times, and the value and id of each member.
    fn read(&mut self) -> io::Result<[u64; 3 + 2 * EVENTS]> {
        let mut bytes = [0; 8 * (3 + 2 * EVENTS)];
        // Nothing at all means that the kernel couldn't schedule the group.
        if self.leader.read(&mut bytes)? < 8 * 3 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut words = [0; 3 + 2 * EVENTS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(words)
    }
}

/// The crate's own way to read a group allocates at each call, so the file is read here.
#[allow(unsafe_code)]
fn into_file(counter: Counter) -> File {
    // SAFETY: the descriptor is open, and the counter gave up owning it.
    unsafe { File::from_raw_fd(counter.into_raw_fd()) }
}

/// Whether the machine lacks this counter but may have others.
fn is_absence(error: &io::Error) -> bool {
    let codes = [libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP, libc::EINVAL, libc::ENOSPC];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn paranoid() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// What an error of `perf_event_open` means to the machine's owner.
fn why(error: &io::Error, paranoid: Option<i32>) -> Missing {
    let missing = |what: String, fix: &str| Missing { what, fix: fix.to_owned() };
    match (error.raw_os_error(), paranoid) {
        (Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP), _) => missing(
            "no hardware counters here (ENOENT), as in most virtual machines".to_owned(),
            "run on the host, or give the VM a PMU (QEMU: `-cpu host,pmu=on`; EC2: a metal size)",
        ),
        (Some(libc::EACCES | libc::EPERM), Some(level @ 3..)) => missing(
            format!("perf_event_paranoid={level}"),
            "sudo sysctl kernel.perf_event_paranoid=2",
        ),
        (Some(libc::EACCES | libc::EPERM), _) => missing(
            "perf_event_open is refused, as by a container's seccomp filter".to_owned(),
            "start the container with `--cap-add PERFMON`, or with `--security-opt \
             seccomp=unconfined`",
        ),
        (Some(libc::ENOSYS), _) => missing(
            "there is no perf_event_open here (ENOSYS)".to_owned(),
            "use a kernel with CONFIG_PERF_EVENTS; in gVisor or behind a seccomp filter, run outside",
        ),
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            missing("too many open files for the counters".to_owned(), "ulimit -n 4096")
        }
        (Some(libc::EBUSY), _) => missing(
            "another program holds the hardware counters for itself".to_owned(),
            "end other profilers",
        ),
        _ => missing(
            format!("perf_event_open failed ({error})"),
            "see ERRORS in `man perf_event_open`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn an_error_names_what_is_missing_and_the_fix() {
        let check = |code, paranoid, what: &str, fix: &str| {
            let missing = why(&io::Error::from_raw_os_error(code), paranoid);
            assert!(missing.what.contains(what) && missing.fix.contains(fix), "{missing:?}");
        };
        check(libc::ENOENT, Some(2), "no hardware counters", "PMU");
        check(libc::EACCES, Some(4), "perf_event_paranoid=4", "kernel.perf_event_paranoid=2");
        check(libc::EPERM, Some(3), "perf_event_paranoid=3", "kernel.perf_event_paranoid=2");
        check(libc::EPERM, Some(2), "seccomp", "--cap-add PERFMON");
        check(libc::EACCES, None, "seccomp", "--cap-add PERFMON");
        check(libc::ENOSYS, None, "ENOSYS", "CONFIG_PERF_EVENTS");
        check(libc::EMFILE, Some(2), "too many open files", "ulimit");
        check(libc::EBUSY, Some(2), "another program", "end other profilers");
        check(libc::E2BIG, Some(2), "perf_event_open failed", "man perf_event_open");
        let absent = Absent::from(why(&io::Error::from_raw_os_error(libc::EACCES), Some(4)));
        assert_eq!(
            absent.reason,
            "perf_event_paranoid=4: sudo sysctl kernel.perf_event_paranoid=2"
        );
    }

    /// Events of the kernel, which every machine has, read by the way of the hardware's.
    #[test]
    fn groups_of_all_threads_are_summed() {
        let software = [
            Software::TASK_CLOCK,
            Software::PAGE_FAULTS,
            Software::CONTEXT_SWITCHES,
            Software::CPU_MIGRATIONS,
        ];
        let turn = std::sync::Barrier::new(2);
        // No panic before the last turn: the other thread would wait for ever.
        let readings = std::thread::scope(|scope| {
            scope.spawn(|| {
                turn.wait();
                turn.wait();
                touch_pages();
                turn.wait();
            });
            turn.wait();
            let mut groups = Groups::open(software.map(Builder::new));
            let before = groups.as_mut().ok().map(Groups::read);
            turn.wait();
            turn.wait();
            let after = groups.as_mut().ok().map(Groups::read);
            groups.map(|groups| (groups, before, after))
        });
        let (groups, before, after) = match readings {
            Ok((groups, Some(before), Some(after))) => (groups, before, after),
            Ok(_) => unreachable!("groups that are open are read"),
            Err(missing) => {
                eprintln!("skipped: {missing:?}");
                return;
            }
        };
        let (before, after) = (before.expect("counts"), after.expect("counts"));
        assert!(groups.groups.len() >= 2 && groups.has == [true; EVENTS], "{groups:?}");
        assert!(after.counts[0] > before.counts[0], "the task clock stood still");
        let faults = after.counts[1].zip(before.counts[1]).map(|(now, then)| now - then);
        assert!(faults > Some(0), "{faults:?} faults in another thread");
        assert!(after.running_ns > before.running_ns);
        assert_eq!(after.running_ns, after.enabled_ns);
    }

    const PAGES: usize = 256;

    /// Writes to memory that was never touched.
    fn touch_pages() {
        // Far above the size from which an allocator asks the system for fresh pages of zeros.
        let mut bytes = vec![0_u8; 64 << 20];
        for page in bytes.chunks_mut((64 << 20) / PAGES) {
            page[0] = 1;
        }
        black_box(&bytes);
    }

    #[test]
    fn cycles_and_instructions_grow_with_work() {
        let mut counters = match Counters::open() {
            Ok(counters) => counters,
            Err(absent) => {
                eprintln!("skipped: {}", absent.reason);
                return;
            }
        };
        let before = counters.read().expect("counts");
        let sum = (0..1_000_000_u64).fold(0, |sum, term| black_box(sum ^ term));
        black_box(sum);
        let work = counters.read().expect("counts").since(&before);
        match work.absent() {
            Some(absent) => eprintln!("skipped: {}", absent.reason),
            None => assert!(work.instructions > Some(1_000_000), "{work:?}"),
        }
        assert!(counters.absent().iter().all(|absent| absent.reason.contains("processor")));
    }
}
