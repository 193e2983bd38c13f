//! Turns records into a recording, in the order of time.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use object::Object;

use crate::code_file::CodeFile;
use crate::perf_data::bytes::{Cursor, path};
use crate::perf_data::layout::{Event, Layout, Record, flag};
use crate::perf_data::sample::{Sample, part, time_of};
use crate::perf_data::{PerfDataFault, record};
use crate::recording::{
    Ending, KERNEL_PID, MAX_INHERITED, Mapping, Process, RawSample, Recording, Sampler, Stacks,
    Thread, TimeBase,
};
use crate::unwind::Unwinder;

/// The kernel's default of `kernel.perf_event_max_stack`.
const DEFAULT_MAX_STACK: usize = 127;

/// The recording of a file.
pub(super) fn replay(
    file: &[u8],
    layout: &Layout,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Recording, PerfDataFault> {
    let events = &layout.events;
    let chosen = events.iter().find(|event| !event.is_dummy()).unwrap_or(&events[0]);
    if !can_tell(events) {
        return Err(PerfDataFault::MixedEvents);
    }

    // Each processor writes its own records, so the file isn't in the order of time.
    let mut order = Vec::with_capacity(layout.records.len());
    for record in &layout.records {
        let (time_ns, event) = key(file, layout, record)?;
        order.push((time_ns, event, record));
    }
    order.sort_by_key(|(time_ns, ..)| *time_ns);

    let mut replay = Replay::new(layout, chosen);
    let total = order.len();
    for (done, (time_ns, event, record)) in order.into_iter().enumerate() {
        if done % 256 == 0 {
            progress(done, total);
        }
        let body = Cursor::new(file, record.offset, record.size, "a record")?;
        replay.record(record, time_ns, &events[event], body)?;
    }
    progress(total, total);
    Ok(replay.finish())
}

/// Whether each record tells which event it belongs to.
fn can_tell(events: &[Event]) -> bool {
    let first = events[0].sample_type;
    let all = |test: &dyn Fn(u64) -> bool| events.iter().all(|event| test(event.sample_type));
    events.len() == 1
        || all(&|parts| parts & part::IDENTIFIER != 0)
        || all(&|parts| parts == first && parts & part::ID != 0)
}

/// The time and the event of a record.
fn key(file: &[u8], layout: &Layout, record: &Record) -> Result<(u64, usize), PerfDataFault> {
    let first = &layout.events[0];
    let event_of = |id: u64| layout.by_id.get(&id).copied().unwrap_or(0);
    if record.kind == record::SAMPLE {
        let body = Cursor::new(file, record.offset, record.size, "a sample")?;
        let (time_ns, id) = Sample::key(body, first)?;
        // The id is in the same place for all events; the time may not be.
        let event = id.map_or(0, event_of);
        let time_ns =
            if event == 0 { time_ns } else { Sample::key(body, &layout.events[event])?.0 };
        return Ok((time_ns, event));
    }
    let identified = first.sample_type & part::IDENTIFIER != 0;
    let mut event = 0;
    if identified && first.flags & flag::SAMPLE_ID_ALL != 0 && record.size >= 8 {
        let end = record.offset + record.size - 8;
        event = event_of(Cursor::new(file, end, 8, "a number")?.u64()?);
    }
    Ok((time_of(file, record.offset, record.size, &layout.events[event]), event))
}

/// A recording under construction.
struct Replay<'l> {
    chosen: &'l Event,
    recording: Recording,
    stacks: Stacks,
    unwinder: Unwinder,
    processes: HashMap<u32, usize>,
    threads: BTreeMap<(u32, u32), String>,
    inherited: usize,
    forks_without_code: u64,
    /// The build ids that were recorded, and the names of files on this machine. A file of another build gets another
    /// name, so that it isn't mistaken for the one that ran.
    builds: HashMap<&'l Path, &'l [u8]>,
    names: HashMap<PathBuf, PathBuf>,
    other_events: u64,
    without_callers: u64,
    by_frame_pointers: u64,
}

impl<'l> Replay<'l> {
    fn new(layout: &'l Layout, chosen: &'l Event) -> Self {
        let clock = (chosen.flags & flag::USE_CLOCKID != 0).then_some(chosen.clock);
        let time_base = match clock {
            Some(1) => TimeBase::Monotonic,
            Some(4) => TimeBase::MonotonicRaw,
            _ => TimeBase::Scheduler,
        };
        let recording = Recording {
            sampler: Sampler::Perf,
            event: chosen.name(),
            frequency: (chosen.flags & flag::FREQ != 0).then_some(chosen.period),
            time_base,
            samples: Vec::new(),
            addresses: Vec::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            lost: 0,
            lost_records: 0,
            notes: Vec::new(),
        };
        Self {
            chosen,
            recording,
            stacks: Stacks::default(),
            unwinder: Unwinder::new(),
            processes: HashMap::new(),
            threads: BTreeMap::new(),
            inherited: 0,
            forks_without_code: 0,
            builds: (layout.build_ids.iter())
                .map(|(path, id)| (path.as_path(), id.as_slice()))
                .collect(),
            names: HashMap::new(),
            other_events: 0,
            without_callers: 0,
            by_frame_pointers: 0,
        }
    }

    fn record(
        &mut self,
        record: &Record,
        time_ns: u64,
        event: &Event,
        mut body: Cursor<'_>,
    ) -> Result<(), PerfDataFault> {
        match record.kind {
            record::SAMPLE if !event.is_like(self.chosen) => self.other_events += 1,
            record::SAMPLE => self.sample(record.misc, &Sample::read(body, event)?),
            record::LOST => {
                body.skip(8)?;
                add(&mut self.recording.lost_records, body.u64()?);
            }
            record::LOST_SAMPLES => add(&mut self.recording.lost, body.u64()?),
            record::COMM => {
                let (pid, tid) = (body.u32()?, body.u32()?);
                if record.misc & record::COMM_EXEC != 0 {
                    self.unwinder.exec(pid);
                }
                let name = String::from_utf8_lossy(body.rest()).into_owned();
                self.threads.insert((pid, tid), name);
            }
            record::FORK => {
                let (pid, parent) = (body.u32()?, body.u32()?);
                let (tid, parent_tid) = (body.u32()?, body.u32()?);
                if let Some(name) = self.threads.get(&(parent, parent_tid)).cloned() {
                    self.threads.insert((pid, tid), name);
                }
                if pid != parent {
                    self.fork(parent, pid, time_ns);
                }
            }
            record::MMAP | record::MMAP2 => self.map(record, time_ns, body)?,
            _ => {}
        }
        Ok(())
    }

    fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        let Some(&index) = self.processes.get(&parent) else { return };
        let mappings = &self.recording.processes[index].mappings;
        if self.inherited + mappings.len() > MAX_INHERITED {
            self.forks_without_code += 1;
            return;
        }
        self.inherited += mappings.len();
        let at = |mapping: &Mapping| Mapping { from_ns: time_ns, ..mapping.clone() };
        let mappings = mappings.iter().map(at).collect();
        self.unwinder.fork(parent, child);
        self.process(child).mappings = mappings;
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        let processes = &mut self.recording.processes;
        let index = *self.processes.entry(pid).or_insert_with(|| {
            processes.push(Process { pid, mappings: Vec::new() });
            processes.len() - 1
        });
        &mut processes[index]
    }

    fn map(
        &mut self,
        record: &Record,
        time_ns: u64,
        mut body: Cursor<'_>,
    ) -> Result<(), PerfDataFault> {
        const PROT_EXEC: u32 = 4;
        let pid = body.u32()?;
        body.skip(4)?;
        let (start, len, file_offset) = (body.u64()?, body.u64()?, body.u64()?);
        let mut build = None;
        let mut code = record.misc & record::MMAP_DATA == 0;
        if record.kind == record::MMAP2 {
            if record.misc & record::MMAP_BUILD_ID != 0 {
                let size = usize::from(body.bytes(4)?[0]);
                let id = body.bytes(20)?;
                build = Some(id.get(..size).unwrap_or(id));
            } else {
                body.skip(24)?;
            }
            code = body.u32()? & PROT_EXEC != 0;
            body.skip(4)?;
        }
        let file = path(body.rest());
        let addresses = start..start.saturating_add(len);
        if record.misc & record::MODE == record::MODE_KERNEL {
            // Where the kernel's code was. Its modules have mappings of their own, after it.
            let whole = file.as_os_str().as_encoded_bytes().starts_with(b"[kernel.kallsyms]");
            let kernel = self.process(KERNEL_PID);
            if whole && kernel.mappings.is_empty() {
                kernel.mappings.push(Mapping { from_ns: 0, addresses, file_offset, file });
            }
            return Ok(());
        }
        if code && pid != KERNEL_PID {
            let file = self.name_here(file, build);
            let mapping = Mapping { from_ns: time_ns, addresses, file_offset, file };
            self.unwinder.map(pid, &mapping);
            self.process(pid).mappings.push(mapping);
        }
        Ok(())
    }

    /// The name under which to look up a recorded file on this machine.
    fn name_here(&mut self, path: PathBuf, build: Option<&[u8]>) -> PathBuf {
        if let Some(name) = self.names.get(&path) {
            return name.clone();
        }
        let recorded = build.or_else(|| self.builds.get(path.as_path()).copied());
        let mut name = path.clone();
        if let Some(recorded) = recorded.filter(|id| !id.is_empty())
            && let Ok(file) = CodeFile::open(&path)
            && let Ok(Some(here)) = file.object().build_id()
            // Older files pad the id with zeros.
            && !(recorded.starts_with(here) && recorded[here.len()..].iter().all(|&b| b == 0))
        {
            let shown = path.display();
            self.recording.notes.push(format!(
                "{shown} is another build than the one that was recorded, so its functions have no \
                 names."
            ));
            let mut other = OsString::from(path.as_os_str());
            other.push(" (another build)");
            name = other.into();
        }
        self.names.insert(path, name.clone());
        name
    }

    fn sample(&mut self, misc: u16, sample: &Sample<'_>) {
        let (stack, (n_kernel, ending)) = self.stacks.add(|addresses| {
            let start = addresses.len();
            addresses.extend(sample.chain().filter(|(kernel, _)| *kernel).map(|(_, at)| at));
            if addresses.len() == start && misc & record::MODE == record::MODE_KERNEL {
                addresses.push(sample.ip);
            }
            let n_kernel = addresses.len() - start;
            if let (Some(registers), Some(stack)) = (&sample.registers, sample.stack) {
                let ending = self.unwinder.unwind(sample.pid, registers, stack, addresses);
                return (n_kernel, ending);
            }
            addresses.extend(sample.chain().filter(|(kernel, _)| !*kernel).map(|(_, at)| at));
            let in_user = addresses.len() - start - n_kernel;
            if in_user == 0 && misc & record::MODE == record::MODE_USER {
                addresses.push(sample.ip);
            }
            let max = match usize::from(self.chosen.max_stack) {
                0 => DEFAULT_MAX_STACK,
                max => max,
            };
            let ending = match in_user {
                // A kernel thread has no user part.
                0 if n_kernel > 1 => Ending::Root,
                0 => {
                    self.without_callers += 1;
                    Ending::Lost
                }
                _ if in_user + n_kernel >= max => Ending::Cut,
                _ => {
                    self.by_frame_pointers += 1;
                    Ending::Root
                }
            };
            (n_kernel, ending)
        });
        self.recording.samples.push(RawSample {
            time_ns: sample.time_ns,
            pid: sample.pid,
            tid: sample.tid,
            weight: 1,
            stack,
            n_kernel,
            ending,
        });
        self.threads.entry((sample.pid, sample.tid)).or_default();
    }

    fn finish(self) -> Recording {
        let mut recording = self.recording;
        recording.addresses = self.stacks.addresses;
        recording.threads = (self.threads.into_iter())
            .map(|((pid, tid), name)| Thread { pid, tid, name })
            .collect();
        let notes = &mut recording.notes;
        if recording.time_base == TimeBase::Scheduler {
            notes.push(
                "The samples' clock can't be joined with other times; for that, record with -k \
                 CLOCK_MONOTONIC_RAW."
                    .to_owned(),
            );
        }
        if self.without_callers > 0 {
            notes.push(format!(
                "{} samples have no call chain that we can read, only where the thread was; for call \
                 chains, record with --call-graph dwarf.",
                self.without_callers
            ));
        }
        if self.by_frame_pointers > 0 {
            notes.push(
                "Call chains follow frame pointers: the callers of functions compiled without them are \
                 missing."
                    .to_owned(),
            );
        }
        if self.forks_without_code > 0 {
            notes.push(format!(
                "{} forked processes exceed the limit on inherited code: their functions have no names.",
                self.forks_without_code
            ));
        }
        if recording.lost_records > 0 {
            notes.push(format!(
                "{} records of the kernel were lost: samples, or information about mapped code; \
                 record with a larger buffer (-m) or fewer samples.",
                recording.lost_records
            ));
        }
        if self.other_events > 0 {
            notes.push(format!(
                "{} samples of other events than {} were left out.",
                self.other_events, recording.event
            ));
        }
        recording
    }
}

/// Adds a number from a file, which may be anything.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

impl Event {
    /// Whether this is the event that perf adds to learn of mappings, and which never counts.
    fn is_dummy(&self) -> bool {
        (self.kind, self.config) == (1, 9)
    }

    /// Whether both count the same thing. Processors with two kinds of cores have two events for it, which differ in the
    /// upper half.
    fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.config as u32 == other.config as u32
    }
}
