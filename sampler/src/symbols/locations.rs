//! Finds the file, and the offset in it, of each address in a recording at the time of its sample.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::recording::{KERNEL_PID, Mapping, Recording};

/// A location in code, as it is looked up: for a return address, the last byte of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Location {
    /// In a file, at this offset.
    File { file: u32, offset: u64 },
    /// In the kernel.
    Kernel { address: u64 },
    /// In nothing that was mapped.
    Nowhere,
}

/// The locations of all stacks.
#[derive(Default)]
pub(super) struct Locations<'r> {
    /// The distinct locations.
    pub(super) locations: Vec<Location>,
    /// The files that contain them.
    pub(super) files: Vec<&'r Path>,
    /// The locations of all stacks, as indices, innermost first.
    pub(super) of_stacks: Vec<u32>,
    /// For each sample, in the order of time: its index, and its part of `of_stacks`.
    pub(super) stacks: Vec<(usize, Range<usize>)>,
    /// Where the kernel's code begins, if the recording says so.
    pub(super) kernel_text: Option<u64>,
}

/// The code of a process at a point in time.
struct Space<'r> {
    later: std::slice::Iter<'r, Mapping>,
    next: Option<&'r Mapping>,
    /// What is mapped, by start address, with its end. Areas don't overlap.
    areas: BTreeMap<u64, (u64, Area)>,
}

#[derive(Clone, Copy)]
struct Area {
    file: u32,
    /// Subtracted from an address, gives its offset in the file.
    base: u64,
}

impl<'r> Locations<'r> {
    pub(super) fn new(recording: &'r Recording) -> Self {
        let mut locations = Self::default();
        let mut spaces = HashMap::new();
        for process in &recording.processes {
            if process.pid == KERNEL_PID {
                locations.kernel_text = process.mappings.first().map(|mapping| mapping.file_offset);
            }
            let mut later = process.mappings.iter();
            let next = later.next();
            spaces.insert(process.pid, Space { later, next, areas: BTreeMap::new() });
        }

        let mut order: Vec<usize> = (0..recording.samples.len()).collect();
        order.sort_by_key(|&index| recording.samples[index].time_ns);
        let mut files = HashMap::new();
        let mut known = HashMap::new();
        for index in order {
            let sample = &recording.samples[index];
            let stack = recording.addresses.get(sample.stack.clone()).unwrap_or_default();
            let mut space = spaces.get_mut(&sample.pid);
            if let Some(space) = &mut space {
                space.advance(sample.time_ns, &mut locations.files, &mut files);
            }
            let start = locations.of_stacks.len();
            for (depth, &address) in stack.iter().enumerate() {
                // At the entry into the kernel, the thread was at the instruction itself.
                let exact = depth == 0 || depth == sample.n_kernel;
                let address = if exact { address } else { address.wrapping_sub(1) };
                let location = if depth < sample.n_kernel {
                    Location::Kernel { address }
                } else {
                    space.as_ref().map_or(Location::Nowhere, |space| space.location(address))
                };
                let next = locations.locations.len();
                let at = *known.entry(location).or_insert(next);
                if at == next {
                    locations.locations.push(location);
                }
                locations.of_stacks.push(u32::try_from(at).expect("memory ends before"));
            }
            locations.stacks.push((index, start..locations.of_stacks.len()));
        }
        locations
    }
}

impl<'r> Space<'r> {
    /// Applies the mappings up to `time_ns`.
    fn advance(
        &mut self,
        time_ns: u64,
        files: &mut Vec<&'r Path>,
        by_path: &mut HashMap<&'r Path, u32>,
    ) {
        while let Some(mapping) = self.next.filter(|mapping| mapping.from_ns <= time_ns) {
            let file = *by_path.entry(&mapping.file).or_insert_with(|| {
                files.push(&mapping.file);
                u32::try_from(files.len() - 1).expect("memory ends before")
            });
            self.map(mapping, file);
            self.next = self.later.next();
        }
    }

    fn map(&mut self, mapping: &Mapping, file: u32) {
        let new = &mapping.addresses;
        if new.is_empty() {
            return;
        }
        // The new mapping replaces what it overlaps, except for parts outside it. Areas don't overlap one another, so
        // going backwards from the end, the first area that ends before it is the last to consider.
        let overlapped: Vec<(u64, (u64, Area))> = (self.areas.range(..new.end).rev())
            .take_while(|(_, (end, _))| *end > new.start)
            .map(|(start, area)| (*start, *area))
            .collect();
        for (start, (end, area)) in overlapped {
            self.areas.remove(&start);
            if start < new.start {
                self.areas.insert(start, (new.start, area));
            }
            if end > new.end {
                self.areas.insert(new.end, (end, area));
            }
        }
        let base = new.start.wrapping_sub(mapping.file_offset);
        self.areas.insert(new.start, (new.end, Area { file, base }));
    }

    fn location(&self, address: u64) -> Location {
        match self.areas.range(..=address).next_back() {
            Some((_, (end, area))) if address < *end => {
                Location::File { file: area.file, offset: address.wrapping_sub(area.base) }
            }
            _ => Location::Nowhere,
        }
    }
}

/// The name of a file without folders, as used in frames.
pub(super) fn module(file: &Path) -> String {
    file.file_name().map_or_else(|| PathBuf::from(file), PathBuf::from).display().to_string()
}
