//! Which file, and where in it, each address of a recording was at the time of its sample.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::recording::{KERNEL_PID, Mapping, Recording};

/// A place in code, as it is to be looked up: of a return address, the last byte of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In a file, so many bytes after its start.
    File { file: u32, offset: u64 },
    /// In the kernel.
    Kernel { address: u64 },
    /// In nothing that was mapped.
    Nowhere,
}

/// The places of all stacks.
#[derive(Default)]
pub(super) struct Places<'r> {
    /// Each once.
    pub(super) places: Vec<Place>,
    /// The files that they are in.
    pub(super) files: Vec<&'r Path>,
    /// The places of all stacks, as indices, the innermost first.
    pub(super) of_stacks: Vec<u32>,
    /// Of each sample, by time: which it is, and its part of `of_stacks`.
    pub(super) stacks: Vec<(usize, Range<usize>)>,
    /// Where the kernel's code begins, if the recording says so.
    pub(super) kernel_text: Option<u64>,
}

/// The code of a process at some time.
struct Space<'r> {
    later: std::slice::Iter<'r, Mapping>,
    next: Option<&'r Mapping>,
    /// By start; none overlaps another. What is mapped there, and its end.
    areas: BTreeMap<u64, (u64, Area)>,
}

#[derive(Clone, Copy)]
struct Area {
    file: u32,
    /// What is to be taken from an address for its offset in the file.
    base: u64,
}

impl<'r> Places<'r> {
    pub(super) fn of(recording: &'r Recording) -> Self {
        let mut places = Self::default();
        let mut spaces = HashMap::new();
        for process in &recording.processes {
            if process.pid == KERNEL_PID {
                places.kernel_text = process.mappings.first().map(|mapping| mapping.file_offset);
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
                space.advance(sample.time_ns, &mut places.files, &mut files);
            }
            let start = places.of_stacks.len();
            for (depth, &address) in stack.iter().enumerate() {
                // Where the kernel was entered, the thread was at the instruction itself.
                let exact = depth == 0 || depth == sample.n_kernel;
                let address = if exact { address } else { address.wrapping_sub(1) };
                let place = if depth < sample.n_kernel {
                    Place::Kernel { address }
                } else {
                    space.as_ref().map_or(Place::Nowhere, |space| space.place(address))
                };
                let next = places.places.len();
                let at = *known.entry(place).or_insert(next);
                if at == next {
                    places.places.push(place);
                }
                places.of_stacks.push(u32::try_from(at).expect("memory ends before"));
            }
            places.stacks.push((index, start..places.of_stacks.len()));
        }
        places
    }
}

impl<'r> Space<'r> {
    /// Maps what was mapped until then.
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
        // What it overlaps is gone, save what sticks out of it. Areas don't overlap one another, so
        // from the end backwards, the first that ends before it is the last to look at.
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

    fn place(&self, address: u64) -> Place {
        match self.areas.range(..=address).next_back() {
            Some((_, (end, area))) if address < *end => {
                Place::File { file: area.file, offset: address.wrapping_sub(area.base) }
            }
            _ => Place::Nowhere,
        }
    }
}

/// The name of a file without folders, as frames have it.
pub(super) fn module(file: &Path) -> String {
    file.file_name().map_or_else(|| PathBuf::from(file), PathBuf::from).display().to_string()
}
