//! Unwinds stacks: from a thread's registers and the top of its stack to the addresses of its callers.
//!
//! It uses the files' unwind tables (`.eh_frame`, otherwise `.debug_frame`) through `framehop`, which caches the rule for
//! each return address it has seen. So a stack similar to the previous one takes some ten nanoseconds per frame and
//! allocates nothing.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{
    CacheNative, Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    Unwinder as _, UnwinderNative,
};
use object::{Object, ObjectSection};

use crate::code_file::{CodeFile, VDSO};
use crate::mmap::Bytes;
use crate::recording::{Ending, Mapping};

/// The most frames kept of a stack; outer ones are cut off.
const MAX_FRAMES: usize = 4096;

/// How far beyond the copy of a stack a frame may reach and still be credible: the usual size of a whole stack. A larger
/// distance means that unwinding went astray.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// The registers of a thread that unwinding needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// The link register, on AArch64.
    pub lr: u64,
}

/// Unwinds stacks of processes during sampling. It must be told of their mappings.
#[derive(Default)]
pub struct Unwinder {
    cache: CacheNative<MayAllocateDuringUnwind>,
    files: HashMap<PathBuf, OpenedFile>,
    spaces: HashMap<u32, Space>,
}

/// An opened file, and its identity.
struct OpenedFile {
    identity: Option<Identity>,
    file: Option<Arc<CodeFile>>,
}

/// The name of a file may later refer to another file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// The code of a process.
#[derive(Clone)]
struct Space {
    /// By address, without overlaps.
    areas: Vec<Area>,
    unwinder: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
}

#[derive(Clone)]
struct Area {
    addresses: Range<u64>,
    file_offset: u64,
    file: Arc<Path>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No sample has been in it yet.
    Untouched,
    /// The unwinder has its unwind information.
    Loaded,
    /// There is no unwind information for it.
    Opaque,
}

impl Unwinder {
    /// Creates an unwinder that knows no processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A process has mapped code. Files that can't be read are remembered, and stacks end in them.
    ///
    /// The file isn't opened until a sample is in it.
    pub fn map(&mut self, pid: u32, mapping: &Mapping) {
        self.spaces.entry(pid).or_default().map(mapping);
    }

    /// A process has forked: the child inherits the parent's mappings.
    pub fn fork(&mut self, parent: u32, child: u32) {
        if parent == child {
            return;
        }
        if let Some(space) = self.spaces.get(&parent) {
            let space = space.clone();
            self.spaces.insert(child, space);
        }
    }

    /// A process executes another program: its mappings are gone.
    pub fn exec(&mut self, pid: u32) {
        self.spaces.remove(&pid);
    }

    /// A process has ended.
    pub fn exit(&mut self, pid: u32) {
        self.spaces.remove(&pid);
    }

    /// Appends where the thread is and the return addresses of its callers to `addresses`, innermost first. `stack` is a
    /// copy of its stack from `registers.sp` upwards.
    ///
    /// Appends 1 to 4096 addresses; a deeper stack is [`Ending::Cut`]. All addresses but the first lie in code that the
    /// process has mapped.
    pub fn unwind(
        &mut self,
        pid: u32,
        registers: &Registers,
        stack: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Ending {
        addresses.push(registers.ip);
        let Some(space) = self.spaces.get_mut(&pid) else { return Ending::Lost };
        let mut read = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(registers.sp)).map_err(drop)?;
            let word = stack.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let mut at = FrameAddress::from_instruction_pointer(registers.ip);
        let mut regs = native(registers);
        for depth in 1..MAX_FRAMES {
            let sp = regs.sp();
            if !space.can_unwind(at.address_for_lookup(), &mut self.files) {
                return Ending::Lost;
            }
            match space.unwinder.unwind_frame(at, &mut regs, &mut self.cache, &mut read) {
                Ok(None | Some(0)) | Err(Error::ReturnAddressIsNull) => return Ending::Root,
                Ok(Some(address)) => {
                    let Some(next) = FrameAddress::from_return_address(address) else {
                        return Ending::Root;
                    };
                    // Callers are further up, so unwinding ends eventually. Only the innermost function may have nothing on the
                    // stack, on AArch64.
                    let further = regs.sp() > sp || depth == 1 && regs.sp() == sp;
                    if !further || space.find(next.address_for_lookup()).is_none() {
                        return Ending::Lost;
                    }
                    addresses.push(address);
                    at = next;
                }
                Err(Error::CouldNotReadStack(address)) => {
                    return match address.checked_sub(registers.sp) {
                        Some(offset) if offset < stack.len() as u64 + MAX_FRAME_BYTES => {
                            Ending::Cut
                        }
                        _ => Ending::Lost,
                    };
                }
                Err(_) => return Ending::Lost,
            }
        }
        Ending::Cut
    }
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unwinder of {} processes, {} files", self.spaces.len(), self.files.len())
    }
}

impl Default for Space {
    fn default() -> Self {
        Self { areas: Vec::new(), unwinder: UnwinderNative::new() }
    }
}

impl Space {
    fn map(&mut self, mapping: &Mapping) {
        let new = &mapping.addresses;
        if new.is_empty() {
            return;
        }
        // The new mapping replaces what it overlaps, except for parts outside it.
        let first = self.areas.partition_point(|area| area.addresses.end <= new.start);
        let last = self.areas.partition_point(|area| area.addresses.start < new.end);
        let mut areas = Vec::new();
        for old in self.areas.drain(first..last) {
            if old.state == State::Loaded {
                self.unwinder.remove_module(old.addresses.start);
            }
            if old.addresses.start < new.start {
                let addresses = old.addresses.start..new.start;
                areas.push(Area { addresses, state: State::Untouched, ..old.clone() });
            }
            if old.addresses.end > new.end {
                let file_offset = old.file_offset.wrapping_add(new.end - old.addresses.start);
                let addresses = new.end..old.addresses.end;
                areas.push(Area { addresses, file_offset, state: State::Untouched, ..old });
            }
        }
        areas.push(Area {
            addresses: new.clone(),
            file_offset: mapping.file_offset,
            file: mapping.file.as_path().into(),
            state: State::Untouched,
        });
        areas.sort_by_key(|area| area.addresses.start);
        self.areas.splice(first..first, areas);
    }

    fn find(&self, address: u64) -> Option<usize> {
        let after = self.areas.partition_point(|area| area.addresses.start <= address);
        let index = after.checked_sub(1)?;
        self.areas[index].addresses.contains(&address).then_some(index)
    }

    /// Whether there is unwind information for the file at this address. Opens the file the first time.
    fn can_unwind(&mut self, address: u64, files: &mut HashMap<PathBuf, OpenedFile>) -> bool {
        let Some(index) = self.find(address) else { return false };
        let area = &mut self.areas[index];
        if area.state == State::Untouched {
            area.state = State::Opaque;
            if let Some(module) = open(&area.file, files).and_then(|file| module(area, &file)) {
                area.state = State::Loaded;
                self.unwinder.add_module(module);
            }
        }
        area.state == State::Loaded
    }
}

/// Opens a file, once as long as it is the same file.
fn open(path: &Path, files: &mut HashMap<PathBuf, OpenedFile>) -> Option<Arc<CodeFile>> {
    let identity = fs::metadata(path).ok().map(|metadata| Identity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    });
    if let Some(known) = files.get(path).filter(|known| known.identity == identity) {
        return known.file.clone();
    }
    let file = CodeFile::open(path).ok().map(Arc::new);
    files.insert(path.to_owned(), OpenedFile { identity, file: file.clone() });
    file
}

/// What framehop needs to know of an area; `None` if the file has no unwind information for it.
fn module(area: &Area, file: &CodeFile) -> Option<Module<Bytes>> {
    // If the recording comes from another machine, its vdso may not be ours.
    let len = area.addresses.end - area.addresses.start;
    if *area.file == *Path::new(VDSO) && len != file.bytes.len() as u64 {
        return None;
    }
    let stated = file.stated_address(area.file_offset)?;
    let first = file.first_address;
    let object = file.object();
    let range = |name: &str| {
        let section = object.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let eh_frame = file.section(&object, ".eh_frame").filter(|bytes| !bytes.is_empty());
    let debug_frame = file.section(&object, ".debug_frame").filter(|bytes| !bytes.is_empty());
    if eh_frame.is_none() && debug_frame.is_none() {
        return None;
    }
    let sections = ExplicitModuleSectionInfo {
        base_svma: first,
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame,
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: file.section(&object, ".eh_frame_hdr").filter(|bytes| !bytes.is_empty()),
        debug_frame,
        ..ExplicitModuleSectionInfo::default()
    };
    let base = area.addresses.start.wrapping_sub(stated).wrapping_add(first);
    let name = area.file.display().to_string();
    Some(Module::new(name, area.addresses.clone(), base, sections))
}

#[cfg(target_arch = "x86_64")]
fn native(registers: &Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: &Registers) -> framehop::UnwindRegsNative {
    // User addresses have at most 48 bits here; the other bits of a return address may be its signature.
    let mask = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    let Registers { lr, sp, fp, .. } = *registers;
    framehop::UnwindRegsNative::new_with_ptr_auth_mask(mask, lr, sp, fp)
}
