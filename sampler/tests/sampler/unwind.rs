//! Unwinds this process's own stacks, which needs no other program and no privileges.
//!
//! The registers are read with two instructions, and the stack through `/proc/self/mem`.
#![allow(unsafe_code)]

use std::arch::asm;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use brickscope_sampler::{
    Ending, Mapping, Process, RawSample, Recording, Registers, Sampled, Sampler, TimeBase,
    Unwinder, resolve,
};

/// A thread's state at one moment.
struct Moment {
    registers: Registers,
    stack: Vec<u8>,
}

#[inline(never)]
fn moment() -> Moment {
    let mut registers = Registers::default();
    // SAFETY: registers are only read.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            ip = out(reg) registers.ip,
            sp = out(reg) registers.sp,
            fp = out(reg) registers.fp,
        );
    }
    // SAFETY: registers are only read.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "adr {ip}, .",
            "mov {sp}, sp",
            "mov {fp}, x29",
            "mov {lr}, x30",
            ip = out(reg) registers.ip,
            sp = out(reg) registers.sp,
            fp = out(reg) registers.fp,
            lr = out(reg) registers.lr,
        );
    }
    // The frames from here outwards don't change while this function runs. The read ends where the stack ends.
    let mut stack = vec![0; 1 << 20];
    let memory = File::open("/proc/self/mem").unwrap();
    let len = memory.read_at(&mut stack, registers.sp).unwrap();
    stack.truncate(len);
    Moment { registers, stack }
}

#[inline(never)]
fn outer() -> Moment {
    black_box(middle())
}

#[inline(never)]
fn middle() -> Moment {
    black_box(inner())
}

#[inline(never)]
fn inner() -> Moment {
    black_box(moment())
}

#[inline(never)]
fn down(left: usize) -> Moment {
    if left == 0 { black_box(moment()) } else { black_box(down(left - 1)) }
}

/// The code mappings of this process, from the kernel.
fn mappings() -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapping = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let executable = words.next()?.contains('x');
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let file_offset = hex(words.next()?);
        let file = PathBuf::from(words.nth(2)?.trim());
        executable.then(|| Mapping {
            from_ns: 0,
            addresses: hex(start)..hex(end),
            file_offset,
            file,
        })
    };
    maps.lines().filter_map(mapping).collect()
}

fn unwinder() -> Unwinder {
    let mut unwinder = Unwinder::new();
    for mapping in mappings() {
        unwinder.map(1, &mapping);
    }
    unwinder
}

fn unwind(unwinder: &mut Unwinder, moment: &Moment) -> (Vec<u64>, Ending) {
    let mut addresses = Vec::new();
    let ending = unwinder.unwind(1, &moment.registers, &moment.stack, &mut addresses);
    (addresses, ending)
}

/// The names of a stack, outermost first.
fn named(addresses: Vec<u64>, ending: Ending, mappings: Vec<Mapping>) -> (Vec<String>, Sampled) {
    let sample = RawSample {
        time_ns: 1,
        pid: 1,
        tid: 1,
        weight: 1,
        stack: 0..addresses.len(),
        n_kernel: 0,
        ending,
    };
    let sampled = resolve(
        &Recording {
            sampler: Sampler::Timer,
            event: "cpu-clock:u".to_owned(),
            frequency: None,
            time_base: TimeBase::Monotonic,
            samples: vec![sample],
            addresses,
            processes: vec![Process { pid: 1, mappings }],
            threads: Vec::new(),
            lost: 0,
            lost_records: 0,
            notes: Vec::new(),
        },
        &mut |_, _| {},
    );
    let stack = &sampled.stacks[0];
    let names = stack.iter().map(|&frame| sampled.frames[frame as usize].function.clone());
    (names.collect(), sampled)
}

#[test]
fn the_callers_are_those_that_called() {
    let (addresses, ending) = unwind(&mut unwinder(), &outer());
    assert_eq!(ending, Ending::Root);
    let (names, sampled) = named(addresses, ending, mappings());
    let mine: Vec<_> =
        names.iter().filter_map(|name| name.strip_prefix(concat!(module_path!(), "::"))).collect();
    let start = mine.iter().position(|name| *name == "outer").expect("it was called");
    assert_eq!(mine[start..], ["outer", "middle", "inner", "moment"], "{names:?}");
    assert!(mine[start - 1].starts_with("the_callers_are_those_that_called"), "{names:?}");
    assert_eq!((sampled.cut, sampled.unwound_in_part), (0, 0));
}

#[test]
fn the_same_stack_twice_is_the_same() {
    let mut unwinder = unwinder();
    let moment = outer();
    assert_eq!(unwind(&mut unwinder, &moment), unwind(&mut unwinder, &moment));
}

#[test]
fn a_forked_process_has_the_code_of_its_parent_and_another_program_does_not() {
    let mut unwinder = unwinder();
    let moment = outer();
    let (parent, _) = unwind(&mut unwinder, &moment);
    unwinder.fork(1, 2);
    unwinder.exec(1);
    let mut child = Vec::new();
    unwinder.unwind(2, &moment.registers, &moment.stack, &mut child);
    assert_eq!(child, parent);
    assert_eq!(unwind(&mut unwinder, &moment), (vec![moment.registers.ip], Ending::Lost));
    unwinder.exit(2);
    let mut gone = Vec::new();
    assert_eq!(unwinder.unwind(2, &moment.registers, &moment.stack, &mut gone), Ending::Lost);
    assert_eq!(gone, [moment.registers.ip]);
}

#[test]
fn a_short_copy_of_the_stack_cuts_it() {
    let mut moment = down(2000);
    let mut unwinder = unwinder();
    let (whole, ending) = unwind(&mut unwinder, &moment);
    assert_eq!(ending, Ending::Root);
    assert!(whole.len() > 2000);
    moment.stack.truncate(4096 + 3);
    let (part, ending) = unwind(&mut unwinder, &moment);
    assert_eq!(ending, Ending::Cut);
    assert_eq!(part[..], whole[..part.len()]);
    assert!(part.len() < 2000);
    let (names, sampled) = named(part, ending, mappings());
    assert_eq!(names[0], "[stack cut off]");
    assert_eq!(names[1], concat!(module_path!(), "::down"));
    assert_eq!(sampled.cut, 1);
}

#[test]
fn more_frames_than_are_kept_cut_the_stack() {
    let work = || {
        let (addresses, ending) = unwind(&mut unwinder(), &down(5000));
        assert_eq!((addresses.len(), ending), (4096, Ending::Cut));
    };
    std::thread::Builder::new().stack_size(16 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_file_that_is_gone_ends_the_stack_and_is_noted() {
    let gone = |mut mapping: Mapping| {
        if mapping.file == std::env::current_exe().unwrap() {
            mapping.file = "/nowhere/program (deleted)".into();
        }
        mapping
    };
    let mappings: Vec<_> = mappings().into_iter().map(gone).collect();
    let mut unwinder = Unwinder::new();
    for mapping in &mappings {
        unwinder.map(1, mapping);
    }
    let moment = outer();
    let (addresses, ending) = unwind(&mut unwinder, &moment);
    assert_eq!((&addresses[..], ending), (&[moment.registers.ip][..], Ending::Lost));
    let (names, sampled) = named(addresses, ending, mappings);
    assert_eq!(names, ["[unknown]"]);
    assert_eq!(sampled.frames[0].module, "program (deleted)");
    assert_eq!(sampled.unwound_in_part, 1);
    assert!(sampled.notes[0].contains("/nowhere/program (deleted)"), "{:?}", sampled.notes);
}

#[test]
fn a_later_mapping_takes_the_place_of_an_earlier_one() {
    let mut unwinder = unwinder();
    let moment = outer();
    let (whole, _) = unwind(&mut unwinder, &moment);
    // Pretend that the page of the innermost function is memory without a file, unlike the pages around it.
    let page = moment.registers.ip & !4095;
    let addresses = page..page + 4096;
    unwinder.map(1, &Mapping { from_ns: 0, addresses, file_offset: 0, file: "//anon".into() });
    assert_eq!(unwind(&mut unwinder, &moment), (vec![whole[0]], Ending::Lost));
    for mapping in mappings() {
        unwinder.map(1, &mapping);
    }
    assert_eq!(unwind(&mut unwinder, &moment), (whole, Ending::Root));
}

#[test]
fn wrong_registers_end_the_stack() {
    let mut moment = outer();
    moment.registers.sp = u64::MAX - 8;
    moment.registers.fp = 3;
    let (addresses, ending) = unwind(&mut unwinder(), &moment);
    assert_eq!(addresses[0], moment.registers.ip);
    assert_ne!(ending, Ending::Root);
    moment.registers.ip = 0;
    assert_eq!(unwind(&mut unwinder(), &moment), (vec![0], Ending::Lost));
}
