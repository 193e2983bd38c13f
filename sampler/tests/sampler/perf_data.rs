//! `perf.data` files: real ones, damaged ones, and ones made for a test.
//!
//! `tests/data/perf` has recordings of perf 6.1: `dwarf` (`--call-graph dwarf,256`), `chains` (`-g`, with
//! the kernel), `stream` (`-g -o -`), `compressed` (`-z`) and `two` (two events).
#![cfg(target_arch = "x86_64")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use brickscope_sampler::perf_data::{self, PerfDataFault};
use brickscope_sampler::{Ending, KERNEL_PID, Recording, Sampler, TimeBase, resolve};
use proptest::prelude::*;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/data/perf/{name}.perf.data"))
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap()
}

fn read(name: &str) -> Recording {
    perf_data::read(&path(name), &mut |_, _| {}).unwrap()
}

fn parse(bytes: &[u8]) -> Result<Recording, PerfDataFault> {
    perf_data::parse(bytes, &mut |_, _| {})
}

#[test]
fn the_header_says_what_was_recorded() {
    let recording = read("dwarf");
    assert_eq!(recording.sampler, Sampler::Perf);
    assert_eq!(recording.event, "cpu-clock:u");
    assert_eq!(recording.frequency, Some(99));
    assert_eq!(recording.time_base, TimeBase::MonotonicRaw);
    assert_eq!(recording.samples.len(), 14);
    assert_eq!(recording.lost, 0);
    assert!(recording.samples.is_sorted_by_key(|sample| sample.time_ns));
    assert!(recording.samples.iter().all(|sample| sample.weight == 1));
    let names: Vec<_> = recording.threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["three_to_one"]);
    // Only the code of each file.
    let process = &recording.processes[0];
    let program = |file: &Path| file == Path::new("/tmp/three_to_one");
    let mappings: Vec<_> = process.mappings.iter().filter(|m| program(&m.file)).collect();
    assert_eq!(mappings.len(), 1);
    assert_eq!(mappings[0].file_offset, 0x1000);
    assert!(mappings[0].addresses.contains(&recording.addresses[0]));
}

#[test]
fn call_chains_are_taken_as_they_are() {
    let recording = read("chains");
    assert_eq!(recording.time_base, TimeBase::Monotonic);
    assert_eq!(recording.event, "cpu-clock");
    assert_eq!(recording.samples.len(), 6);
    let first = &recording.samples[0];
    let stack = &recording.addresses[first.stack.clone()];
    assert_eq!((first.n_kernel, stack.len(), first.ending), (5, 6, Ending::Root));
    assert_eq!(stack[0], 0xffff_ffff_81d3_35f7);
    assert_eq!(stack[4], 0xffff_ffff_8100_0130);
    assert_eq!(stack[5] & 0xfff, 0x2ad);
    // The kernel's addresses, so that another boot's names aren't used.
    let kernel = recording.processes.iter().find(|process| process.pid == KERNEL_PID).unwrap();
    assert_eq!(kernel.mappings[0].file_offset, 0xffff_ffff_8100_0000);
    assert!(recording.notes.iter().any(|note| note.contains("frame pointers")));
}

#[test]
fn a_stream_is_read_as_a_file_is() {
    let recording = read("stream");
    assert_eq!(recording.samples.len(), 22);
    assert_eq!(recording.event, "cpu-clock:u");
    assert_eq!(recording.frequency, Some(99));
    assert_eq!(recording.time_base, TimeBase::Scheduler);
    assert!(recording.notes[0].contains("can't be joined"));
}

#[test]
fn of_two_events_the_first_is_read() {
    let recording = read("two");
    assert_eq!(recording.event, "cpu-clock:u");
    assert_eq!(recording.samples.len(), 26);
    let note = "26 samples of other events than cpu-clock:u were left out.";
    assert!(recording.notes.iter().any(|n| n == note), "{:?}", recording.notes);
}

#[test]
fn every_sample_gets_a_name_even_without_its_files() {
    for name in ["dwarf", "chains", "stream", "two"] {
        let recording = read(name);
        let mut last = (0, 0);
        let sampled = resolve(&recording, &mut |done, total| last = (done, total));
        assert_eq!(sampled.samples.len(), recording.samples.len());
        assert!(last.0 == last.1 && last.1 > 0, "{last:?}");
        assert!(sampled.stacks.iter().all(|stack| !stack.is_empty()));
    }
}

#[test]
fn errors_name_the_file_and_the_place() {
    let error = perf_data::read(&path("compressed"), &mut |_, _| {}).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("compressed.perf.data") && message.contains("without -z"),
        "{message}"
    );

    // The system's error appears once, also for callers that print an error's sources.
    let error = perf_data::read(Path::new("/nowhere/perf.data"), &mut |_, _| {}).unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/perf.data: No such file or directory (os error 2)");
    assert!(error.source().is_none() && error.fault.source().is_none(), "{error:?}");

    let check = |bytes: &[u8], message: &str| {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    let file = bytes("dwarf");
    check(b"", "not a perf.data file");
    check(b"\x7fELF\x02\x01\x01\0\0", "not a perf.data file: it begins with \"\\\\x7fELF");
    check(b"2ELIFREP", "the other byte order");
    check(b"PERFILE2", "cut off: the header's size at byte 8");
    check(&file[..80], "cut off: the header at byte 16 would end at byte 104, but the file has 80");
    check(&file[..4000], "cut off");
    let with = |at: usize, value: u64| {
        let mut file = file.clone();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        file
    };
    check(&with(48, 0), "killed before it could finish");
    check(&with(48, u64::MAX), "cut off");
    check(&with(40, u64::MAX), "cut off");
    check(&with(16, 3), "damaged: the size of an event at byte 16");
    check(&with(24, u64::MAX), "cut off: the events at byte 18446744073709551615");
    let at = file.windows(7).position(|bytes| bytes == b"x86_64\0").unwrap();
    let mut file = file;
    file[at..at + 6].copy_from_slice(b"s390x\0");
    check(&file, "recorded on s390x, but this machine is x86_64");
}

#[test]
fn no_cut_of_a_file_is_taken_for_the_whole() {
    for name in ["dwarf", "chains", "two"] {
        let file = bytes(name);
        let size = u64::from_le_bytes(file[48..56].try_into().unwrap());
        let start = u64::from_le_bytes(file[40..48].try_into().unwrap());
        for len in 0..(start + size) as usize {
            assert!(parse(&file[..len]).is_err(), "{name} cut to {len}");
        }
        for len in (start + size) as usize..file.len() {
            let _ = parse(&file[..len]);
        }
    }
    let stream = bytes("stream");
    for len in 0..stream.len() {
        let _ = parse(&stream[..len]);
    }
}

proptest! {
    /// Any damaged file gives an error, or a recording that can be named.
    #[test]
    fn damaged_files_are_errors_or_recordings(
        which in 0..4usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = bytes(["dwarf", "chains", "stream", "two"][which]);
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(recording) = parse(&file) {
            for sample in &recording.samples {
                prop_assert!(sample.stack.end <= recording.addresses.len());
                prop_assert!(sample.n_kernel <= sample.stack.len());
            }
        }
    }
}

/// A stream with one event, in the format of `perf record -o -`.
struct Stream(Vec<u8>);

const IP: u64 = 1;
const TID: u64 = 2;
const TIME: u64 = 4;
const CALLCHAIN: u64 = 32;
const BRANCH_STACK: u64 = 1 << 11;

impl Stream {
    fn new(sample_type: u64) -> Self {
        let mut stream = Self(b"PERFILE2".to_vec());
        stream.words(&[16]);
        // PERF_TYPE_SOFTWARE, 64 bytes of attributes.
        let attr = [1 | 64 << 32, 0, 1000, sample_type, 0, 0, 0, 0];
        stream.record(64, 0, &attr, b"");
        stream
    }

    fn words(&mut self, words: &[u64]) {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn record(&mut self, kind: u32, misc: u16, words: &[u64], text: &[u8]) {
        let size = 8 + 8 * words.len() + text.len();
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend(u16::try_from(size).unwrap().to_le_bytes());
        self.words(words);
        self.0.extend(text);
    }

    fn map(&mut self, pid: u64, start: u64, len: u64, file: &str) {
        self.record(1, 2, &[pid | pid << 32, start, len, 0], format!("{file}\0").as_bytes());
    }
}

/// A word from its halves.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[test]
fn forked_processes_have_the_mappings_of_their_parents() {
    let mut stream = Stream::new(IP | TID | TIME);
    stream.record(3, 0, &[pair(7, 7)], b"parent\0\0");
    stream.map(7, 0x1000, 0x1000, "/nowhere/program");
    stream.record(7, 0, &[pair(8, 7), pair(8, 7), 0], b"");
    stream.record(9, 2, &[0x1234, pair(8, 8), 55], b"");
    let recording = parse(&stream.0).unwrap();
    assert_eq!(recording.processes[1].mappings[0].file, Path::new("/nowhere/program"));
    assert_eq!(recording.threads[1].name, "parent");
    let sampled = resolve(&recording, &mut |_, _| {});
    assert_eq!(sampled.frames[0].module, "program");
    assert_eq!(sampled.unwound_in_part, 1);
}

#[test]
fn forks_without_end_take_bounded_memory() {
    let mut stream = Stream::new(IP | TID | TIME);
    for page in 0..2000u64 {
        stream.map(7, page << 12, 0x1000, "/nowhere/program");
    }
    for child in 100..2100 {
        stream.record(7, 0, &[pair(child, 7), pair(child, 7), 0], b"");
    }
    let recording = parse(&stream.0).unwrap();
    let mappings: usize = recording.processes.iter().map(|p| p.mappings.len()).sum();
    assert!(mappings <= (1 << 20) + 2000, "{mappings}");
    assert!(recording.notes.iter().any(|note| note.contains("forked")), "{:?}", recording.notes);
}

#[test]
fn equal_stacks_share_their_addresses() {
    let mut stream = Stream::new(IP | TID | TIME);
    for (ip, time) in [(0x1234, 55), (0x5678, 56), (0x1234, 57)] {
        stream.record(9, 2, &[ip, pair(7, 7), time], b"");
    }
    let recording = parse(&stream.0).unwrap();
    assert_eq!(recording.addresses, [0x1234, 0x5678]);
    let stacks: Vec<_> = recording.samples.iter().map(|sample| sample.stack.clone()).collect();
    assert_eq!(stacks, [0..1, 1..2, 0..1]);
}

#[test]
fn what_was_lost_is_counted() {
    let mut stream = Stream::new(IP | TID | TIME);
    stream.record(2, 0, &[1, 5], b"");
    stream.record(13, 0, &[7], b"");
    let recording = parse(&stream.0).unwrap();
    assert_eq!((recording.lost, recording.lost_records, recording.samples.len()), (7, 5, 0));
    let notes = &recording.notes;
    assert!(notes.iter().any(|note| note.starts_with("5 records of the kernel")), "{notes:?}");
}

#[test]
fn branch_records_are_no_call_chain() {
    let mut stream = Stream::new(IP | TID | TIME | CALLCHAIN | BRANCH_STACK);
    stream.record(9, 2, &[0x1234, pair(7, 7), 55, 0, 1, 0x1, 0x2, 0x3], b"");
    let recording = parse(&stream.0).unwrap();
    assert_eq!(recording.addresses, [0x1234]);
    assert_eq!(recording.samples[0].ending, Ending::Lost);
    assert!(recording.notes.iter().any(|note| note.contains("no call chain")));
}

#[test]
fn chains_of_guests_and_hypervisors_are_left_out() {
    let context = |value: i64| value as u64;
    let chain = [context(-2048), 0x99, context(-128), 0x10, 0x11, context(-512), 0x20, 0x21];
    let mut words = vec![0x10, pair(7, 7), 55, chain.len() as u64];
    words.extend(chain);
    let mut stream = Stream::new(IP | TID | TIME | CALLCHAIN);
    stream.record(9, 1, &words, b"");
    let recording = parse(&stream.0).unwrap();
    assert_eq!(recording.addresses, [0x10, 0x11, 0x20, 0x21]);
    assert_eq!(recording.samples[0].n_kernel, 2);
}

#[test]
fn a_sample_that_says_nothing_is_unknown() {
    let mut stream = Stream::new(TID | TIME);
    stream.record(9, 4, &[pair(7, 7), 55], b"");
    let sampled = resolve(&parse(&stream.0).unwrap(), &mut |_, _| {});
    assert_eq!(sampled.stacks, [[0]]);
    assert_eq!(sampled.frames[0].function, "[unknown]");
}

#[test]
fn another_build_of_a_file_names_nothing() {
    // A file that exists wherever this test runs, with a build id that doesn't.
    let file = std::env::current_exe().unwrap();
    let file = file.to_str().unwrap();
    let mut stream = Stream::new(IP | TID | TIME);
    let id = [20, 0x0123_4567_89ab_cdef, 0x0123_4567_89ab_cdef];
    let executable = pair(5, 0);
    let words = [pair(7, 7), 0x1000, 0x1000, 0, id[0], id[1], id[2], executable];
    stream.record(10, 2 | 1 << 14, &words, format!("{file}\0").as_bytes());
    stream.record(9, 2, &[0x1234, pair(7, 7), 55], b"");
    let recording = parse(&stream.0).unwrap();
    if fs::read(file).unwrap().windows(4).any(|bytes| bytes == b"GNU\0") {
        let sampled = resolve(&recording, &mut |_, _| {});
        assert_eq!(sampled.frames[0].function, "[unknown]");
        assert!(sampled.frames[0].module.ends_with("(another build)"));
        assert!(sampled.notes.iter().any(|note| note.contains("another build")));
    }
}
