//! One event and one ring of records for each CPU.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use perf_event::events::Software;
use perf_event::{Builder, Clock, Record, SampleFlag, Sampler};

use super::event::{self, Event};
use crate::perf_event::{Options, RecordError};

/// The smallest ring to try, in bytes: four of the largest records.
const SMALLEST: usize = 256 << 10;
/// The largest ring to try.
const LARGEST: usize = 4 << 20;

/// The rings of all CPUs.
pub(super) struct Rings {
    rings: Vec<Ring>,
    /// The size of each ring, in bytes.
    pub(super) size: usize,
    /// Whether kernel time is sampled.
    pub(super) kernel: bool,
    /// For a record that wraps around the end of its ring.
    scratch: Vec<u8>,
}

struct Ring {
    sampler: Sampler,
    /// The time of its first record, if known.
    next_ns: Option<u64>,
}

impl Rings {
    /// Opens an event on each CPU. Processes that this thread starts from now on are sampled from their first `exec`
    /// on.
    ///
    /// So no process must be stopped before its `exec`, and none runs unsampled for a moment: the kernel passes the
    /// events on when it creates the process.
    pub(super) fn open(options: &Options) -> Result<Self, RecordError> {
        let cpus = online_cpus()?;
        let wanted = tenth_of_second(options).saturating_mul(2);
        let mut size = wanted.clamp(SMALLEST, LARGEST).next_power_of_two();
        let mut kernel = options.kernel;
        loop {
            match open_all(&cpus, options, kernel, size) {
                Ok(rings) => return Ok(Self { rings, size, kernel, scratch: Vec::new() }),
                Err(Failed::Event(error)) if kernel && is_refusal(&error) => kernel = false,
                Err(Failed::Event(error)) => return Err(why(error, cpus.len(), paranoid())),
                Err(Failed::Memory(_)) if size > SMALLEST => size /= 2,
                Err(Failed::Memory(error)) if is_refusal(&error) => {
                    let cpus = cpus.len();
                    return Err(RecordError::LockedMemory { ring_bytes: size, cpus });
                }
                Err(Failed::Memory(error)) => {
                    return Err(RecordError::System { what: "map a ring of samples", error });
                }
            }
        }
    }

    /// Passes the records up to `limit_ns` to `take` in the order of time, and frees their space.
    ///
    /// Records are only copied if they wrap around the end of their ring. One that can't be parsed is `None`.
    pub(super) fn drain(&mut self, limit_ns: u64, mut take: impl FnMut(u64, Option<&Event<'_>>)) {
        for ring in &mut self.rings {
            ring.look();
        }
        loop {
            let first = self.rings.iter_mut().filter(|ring| ring.next_ns.is_some());
            let Some(ring) = first.min_by_key(|ring| ring.next_ns) else { return };
            let Some(time_ns) = ring.next_ns.filter(|&time| time <= limit_ns) else { return };
            if let Some(record) = ring.sampler.next_record() {
                let bytes = contiguous(&record, &mut self.scratch);
                let event = event::parse(record.ty(), record.misc(), bytes, self.kernel);
                take(time_ns, event.as_ref());
            }
            ring.look();
        }
    }

    /// Waits until a ring is filled to its mark, but no longer than `longest`.
    #[allow(unsafe_code)]
    pub(super) fn wait(&self, longest: Duration) {
        let file = |ring: &Ring| libc::pollfd {
            fd: ring.sampler.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut files: Vec<_> = self.rings.iter().map(file).collect();
        let n_files = files.len() as libc::nfds_t;
        let longest = longest.as_millis().try_into().unwrap_or(i32::MAX);
        // SAFETY: the pointer and the count are those of `files`. An error does no harm: like a signal, it ends the
        // wait.
        unsafe { libc::poll(files.as_mut_ptr(), n_files, longest) };
    }
}

impl Ring {
    /// Finds the time of the first record.
    fn look(&mut self) {
        self.next_ns = self.sampler.next_record().map(|record| {
            let time = event::time(record.ty(), record.len(), |offset| word(&record, offset));
            // Dropping the record would remove it from the ring.
            std::mem::forget(record);
            time.unwrap_or(0)
        });
    }
}

/// The word of a record at an offset that is a multiple of 8. Records and rings consist of whole words, so no word wraps
/// around.
fn word(record: &Record<'_>, mut offset: usize) -> Option<u64> {
    for part in record.data() {
        if let Some(bytes) = part.get(offset..).and_then(|rest| rest.first_chunk()) {
            return Some(u64::from_ne_bytes(*bytes));
        }
        offset = offset.checked_sub(part.len())?;
    }
    None
}

fn contiguous<'a>(record: &'a Record<'_>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    match record.data() {
        [whole] => whole,
        parts => {
            scratch.clear();
            parts.iter().for_each(|part| scratch.extend_from_slice(part));
            scratch
        }
    }
}

/// The operation that failed.
enum Failed {
    Event(io::Error),
    Memory(io::Error),
}

fn open_all(
    cpus: &[usize],
    options: &Options,
    kernel: bool,
    size: usize,
) -> Result<Vec<Ring>, Failed> {
    let mut rings = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        let counter = match builder(options, kernel, size).one_cpu(cpu).build() {
            Ok(counter) => counter,
            // It has gone offline.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            Err(error) => return Err(Failed::Event(error)),
        };
        let sampler = counter.sampled(size).map_err(Failed::Memory)?;
        rings.push(Ring { sampler, next_ns: None });
    }
    Ok(rings)
}

/// The size of a thread's samples in a tenth of a second, in bytes.
fn tenth_of_second(options: &Options) -> usize {
    let record = u64::from(options.stack_bytes) + 256;
    usize::try_from(options.frequency.saturating_mul(record) / 10).unwrap_or(usize::MAX)
}

/// How full a ring of this size is when it wakes the reader, in bytes.
///
/// Waking, the reader takes a CPU from a thread of the program, which others may wait for. So it wakes as rarely as
/// possible while leaving enough room until even a busy machine lets it run.
fn mark(size: usize, room: usize) -> usize {
    size.saturating_sub(room).clamp(size / 4, size / 2)
}

fn builder(options: &Options, kernel: bool, size: usize) -> Builder<'static> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    let fields = SampleFlag::IP
        | SampleFlag::TID
        | SampleFlag::TIME
        | SampleFlag::REGS_USER
        | SampleFlag::STACK_USER;
    builder
        .sample_frequency(options.frequency)
        .sample(fields)
        .exclude_kernel(!kernel)
        .exclude_callchain_user(true)
        .clockid(Clock::MONOTONIC_RAW)
        .inherit(true)
        .enable_on_exec(true)
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true)
        .sample_id_all(true)
        .wakeup_watermark(mark(size, tenth_of_second(options)));
    if kernel {
        builder.sample(SampleFlag::CALLCHAIN);
    }
    let attributes = builder.attrs_mut();
    attributes.sample_regs_user = event::REGISTER_MASK;
    attributes.sample_stack_user = options.stack_bytes;
    builder
}

/// Tries what the kernel allows, without running anything.
pub(super) fn try_open(frequency: u64, kernel: bool) -> Result<(), RecordError> {
    let cpus = online_cpus()?;
    let options = Options { frequency, kernel, ..Options::default() };
    let opened = builder(&options, kernel, SMALLEST).one_cpu(cpus[0]).build();
    opened.map(drop).map_err(|error| why(error, cpus.len(), paranoid()))
}

/// The numbers of the online CPUs; at least one.
fn online_cpus() -> Result<Vec<usize>, RecordError> {
    let failed = |error| RecordError::System { what: "read which CPUs are online", error };
    let text = fs::read_to_string("/sys/devices/system/cpu/online").map_err(failed)?;
    let cpus = parse_cpus(&text).filter(|cpus| !cpus.is_empty());
    cpus.ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidData, text.trim())))
}

/// Parses a list such as `0-3,8`.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    /// More CPUs than a kernel can be built for.
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

pub(super) fn paranoid() -> Option<i32> {
    setting("/proc/sys/kernel/perf_event_paranoid")
}

pub(super) fn max_frequency() -> Option<u64> {
    setting("/proc/sys/kernel/perf_event_max_sample_rate")
}

fn setting<T: std::str::FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// What an error of `perf_event_open` means.
fn why(error: io::Error, cpus: usize, paranoid: Option<i32>) -> RecordError {
    match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level @ 3..)) => RecordError::Paranoid(level),
        (Some(libc::EACCES | libc::EPERM), _) => RecordError::Refused,
        (Some(libc::ENOSYS), _) => RecordError::NoSystemCall,
        (Some(libc::EMFILE | libc::ENFILE), _) => RecordError::Files { cpus },
        _ => RecordError::Open(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_read_when_half_full_if_the_rest_lasts_long_enough() {
        let tenth = tenth_of_second(&Options::default());
        assert_eq!(tenth, 1_662_336);
        assert_eq!(mark(4 << 20, tenth), 2 << 20);
        assert_eq!(mark(3 << 20, tenth), (3 << 20) - tenth);
        assert_eq!(mark(1 << 20, tenth), 256 << 10);
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for text in ["", "x", "1-", "0-99999999999"] {
            assert_eq!(parse_cpus(text), None, "{text}");
        }
    }

    #[test]
    fn an_error_names_what_is_missing_and_the_fix() {
        let check = |code, paranoid, says: &str, fix: &str| {
            let error = why(io::Error::from_raw_os_error(code), 4, paranoid).to_string();
            assert!(error.contains(says) && error.contains(fix), "{error}");
        };
        check(libc::EACCES, Some(4), "paranoid=4", "sysctl kernel.perf_event_paranoid=2");
        check(libc::EPERM, Some(3), "paranoid=3", "sysctl kernel.perf_event_paranoid=2");
        check(libc::EPERM, Some(2), "seccomp", "--cap-add PERFMON");
        check(libc::EACCES, None, "seccomp", "--cap-add PERFMON");
        check(libc::ENOSYS, Some(2), "ENOSYS", "CONFIG_PERF_EVENTS");
        check(libc::EMFILE, Some(2), "each of 4 CPUs", "ulimit -n 1028");
        check(libc::EINVAL, Some(2), "Invalid argument", "man perf_event_open");
    }
}
