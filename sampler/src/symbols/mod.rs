//! Turns addresses into names, after the program has ended.
//!
//! Each address is looked up once, file by file, with the crate `addr2line`. Of a file's debug information, only the
//! units that contain samples are read. This table has the CPU time to open a file and look up addresses all over its
//! code, measured in November 2026 on this program (5.8 MB of code, profile `profiling`, with debug information of lines
//! or `limited`) and on Debian's C library, which has full debug information:
//!
//! | crate | lines, 64 | lines, 1000 | limited, 64 | limited, 1000 | libc, 1000 | crates in total |
//! |---|---|---|---|---|---|---|
//! | addr2line 0.26 | 96 ms | 200 ms | 103 ms | 224 ms | 85 ms | 18 |
//! | blazesym 0.2 | 97 ms | 215 ms | 119 ms | 237 ms | 61 ms | 22 |
//! | this module | 106 ms | 237 ms | 120 ms | 257 ms | 112 ms | |
//!
//! Both crates agree on which addresses are in inlined functions. addr2line shares `gimli` with the unwinder. wholesym
//! 0.8 was not timed: it has 213 crates, including an HTTP client.

mod debug_file;
mod demangle;
mod file;
mod kernel;
mod locations;

use std::collections::HashMap;
use std::hash::Hash;

use crate::recording::{Ending, Recording};
use crate::sampled::{Frame, FrameKind, Sampled, Seen};
use crate::symbols::locations::{Location, Locations};

/// The name of a function without one.
const UNKNOWN: &str = "[unknown]";

/// The name of the outermost function of a stack that was cut off.
const CUT_OFF: &str = "[stack cut off]";

/// The name and the module of kernel functions without names.
const KERNEL: &str = "[kernel]";

/// Names the stacks of a recording. Calls `progress` with the number of distinct addresses named so far and their total.
///
/// A frame without a name is `[unknown]`, with the name of its module; [`Sampled::notes`] says why names are missing.
pub fn resolve(recording: &Recording, progress: &mut dyn FnMut(usize, usize)) -> Sampled {
    let locations = Locations::new(recording);
    let mut notes = recording.notes.clone();
    let mut frames = Table::default();
    let named = name(&locations, &mut frames, &mut notes, progress);

    let cut_off = |frames: &mut Table<Frame>| {
        frames.index(Frame {
            function: CUT_OFF.to_owned(),
            module: String::new(),
            file: None,
            kind: FrameKind::User,
        })
    };
    let mut stacks = Table::default();
    // Most stacks occur many times, and most differ only in the innermost address.
    let mut known: HashMap<(&[u32], bool), u32> = HashMap::new();
    let mut samples = Vec::with_capacity(locations.stacks.len());
    let (mut cut, mut unwound_in_part) = (0, 0);
    for (index, range) in &locations.stacks {
        let sample = &recording.samples[*index];
        match sample.ending {
            Ending::Root => {}
            Ending::Cut => cut += 1,
            Ending::Lost => unwound_in_part += 1,
        }
        let of = &locations.of_stacks[range.clone()];
        let stack = *known.entry((of, sample.ending == Ending::Cut)).or_insert_with(|| {
            let mut stack = Vec::new();
            if sample.ending == Ending::Cut {
                stack.push(cut_off(&mut frames));
            }
            stack.extend(of.iter().rev().flat_map(|&location| &named[location as usize]).copied());
            // A file may have samples that don't even say where the thread was.
            if stack.is_empty() {
                stack.push(frames.index(unknown(String::new())));
            }
            stacks.index(stack)
        });
        let (time_ns, pid, tid, weight) = (sample.time_ns, sample.pid, sample.tid, sample.weight);
        samples.push(Seen { time_ns, pid, tid, weight, stack });
    }
    drop(known);

    Sampled {
        sampler: recording.sampler,
        event: recording.event.clone(),
        frequency: recording.frequency,
        time_base: recording.time_base,
        lost: recording.lost,
        cut,
        unwound_in_part,
        notes,
        threads: recording.threads.clone(),
        frames: frames.rows,
        stacks: stacks.rows,
        samples,
    }
}

/// The frames of each location, outermost first.
fn name(
    locations: &Locations,
    frames: &mut Table<Frame>,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(usize, usize),
) -> Vec<Vec<u32>> {
    let total = locations.locations.len();
    let mut done = 0;
    progress(done, total);
    let mut named = vec![Vec::new(); total];

    let mut by_file: Vec<Vec<(u64, usize)>> = vec![Vec::new(); locations.files.len()];
    let mut of_kernel = Vec::new();
    for (index, location) in locations.locations.iter().enumerate() {
        match *location {
            Location::File { file, offset } => by_file[file as usize].push((offset, index)),
            Location::Kernel { address } => of_kernel.push((address, index)),
            Location::Nowhere => {
                let frame = unknown(String::new());
                named[index] = vec![frames.index(frame)];
                done += 1;
            }
        }
    }
    if !of_kernel.is_empty() {
        let symbols = kernel::symbols(locations.kernel_text);
        for (address, index) in of_kernel {
            let function = symbols.name(address).unwrap_or(KERNEL).to_owned();
            let kind = FrameKind::Kernel;
            let frame = Frame { function, module: KERNEL.to_owned(), file: None, kind };
            named[index] = vec![frames.index(frame)];
            done += 1;
        }
        progress(done, total);
    }
    let mut unreadable = Vec::new();
    for (path, mut offsets) in locations.files.iter().zip(by_file) {
        if offsets.is_empty() {
            continue;
        }
        // In file order, so that the file is read once from front to back.
        offsets.sort_unstable();
        let mut of_file = file::FileNames::open(path, &mut unreadable, notes);
        for (offset, index) in offsets {
            let of_place = of_file.frames(offset);
            named[index] = of_place.into_iter().map(|frame| frames.index(frame)).collect();
            done += 1;
            if done % 64 == 0 {
                progress(done, total);
            }
        }
    }
    if !unreadable.is_empty() {
        // A program that generates code may have hundreds.
        let more = unreadable.len().saturating_sub(3);
        unreadable.truncate(3);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let files = unreadable.join(", ");
        notes.push(format!("Functions in these files have no names: {files}{more}."));
    }
    progress(done, total);
    named
}

fn unknown(module: String) -> Frame {
    Frame { function: UNKNOWN.to_owned(), module, file: None, kind: FrameKind::User }
}

/// Rows without duplicates.
struct Table<T> {
    rows: Vec<T>,
    indices: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn index(&mut self, row: T) -> u32 {
        if let Some(&index) = self.indices.get(&row) {
            return index;
        }
        let index = u32::try_from(self.rows.len()).expect("memory ends before");
        self.rows.push(row.clone());
        self.indices.insert(row, index);
        index
    }
}
