//! Writes the file, whose format is in [`crate::format`].

use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::environment::asked;
use crate::format::{HEADER, MAGIC, MOST, PAGES, Record, VERSION, word};

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
    fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int;
    fn posix_fallocate(fd: c_int, offset: i64, len: i64) -> c_int;
    fn getrlimit(what: c_int, limit: *mut [u64; 2]) -> c_int;
    fn geteuid() -> u32;
}

/// The largest file that a process may write; beyond, it gets a signal that ends it.
const FILE_SIZE: c_int = 1;

const READ_WRITE: c_int = 3;
const SHARED: c_int = 1;
const POPULATE_WRITE: c_int = 23;

/// Room on the disk is taken in such pieces, so that a full disk is an error and no signal.
const PIECE: usize = 4 << 20;
/// Memory is made ready between passes in such pieces, so that no pass waits for it.
const READY: usize = 256 << 10;
/// How often a process may become another program.
const MOST_PROGRAMS: usize = 100;

/// The folder to write to. Looked at each time: it is removed when the run has ended, and the program may go on.
fn folder() -> Option<&'static Path> {
    asked().folder.as_deref().map(Path::new).filter(|path| is_ours(path))
}

/// Whether nobody but this process's user can have made a folder, or can write to it. What a run leaves behind has its name
/// when it is gone, and another user may make it again, with links to files of ours in it.
fn is_ours(folder: &Path) -> bool {
    // SAFETY: it has no arguments and can't fail.
    let user = unsafe { geteuid() };
    std::fs::symlink_metadata(folder)
        .is_ok_and(|of| of.is_dir() && of.uid() == user && of.mode() & 0o022 == 0)
}

/// Says that this library was loaded, and into which program.
pub(crate) fn greet() {
    let program = std::env::current_exe().unwrap_or_default();
    tell("program", &program.to_string_lossy());
}

/// Says what can't be recorded.
pub(crate) fn say(what: &str) {
    tell("said", what);
}

/// Adds a line for who reads the recording. Where that can't be written, nobody can be told.
fn tell(kind: &str, what: &str) {
    let Some(folder) = folder() else { return };
    let path = folder.join(format!("{}.loaded", std::process::id()));
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = writeln!(file, "{kind} {}", what.replace('\n', " "));
    }
}

pub(crate) struct Recording {
    file: File,
    /// The header, which is mapped by itself.
    head: *mut u8,
    /// Where the file is mapped from `from` on, for [`MOST`] bytes.
    at: *mut u8,
    from: usize,
    /// Whether somebody reads the file while it is written: then only what isn't read counts.
    is_endless: bool,
    used: usize,
    /// What the file has room for.
    room: usize,
    /// Up to where memory is ready.
    ready: usize,
    /// Which file it is: its device, and its number there.
    is: [u64; 2],
    lost: Vec<String>,
}

// SAFETY: the mapping belongs to the recording alone.
unsafe impl Send for Recording {}

impl Recording {
    pub(crate) fn create() -> Result<Self, String> {
        let folder = folder().ok_or_else(|| "the folder to write to is gone".to_owned())?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let process = std::process::id();
        let mut nth = 0;
        let (path, file) = loop {
            let name = if nth == 0 {
                format!("{process}.nodes")
            } else {
                format!("{process}-{nth}.nodes")
            };
            let path = folder.join(name);
            match options.open(&path) {
                Err(why) if why.kind() == ErrorKind::AlreadyExists && nth < MOST_PROGRAMS => {
                    nth += 1
                }
                file => break (path, file),
            }
        };
        let shown = path.display();
        let file = file.map_err(|why| format!("{shown}: {why}"))?;
        let is = file.metadata().map(|of| [of.dev(), of.ino()]).unwrap_or_default();
        let give_up = |why: String| {
            let _ = std::fs::remove_file(&path);
            Err(why)
        };
        let (Some(head), Some(at)) = (map(&file, HEADER, 0), map(&file, MOST, 0)) else {
            return give_up(format!("{shown}: {}", std::io::Error::last_os_error()));
        };
        let mut recording = Self {
            file,
            head,
            at,
            from: 0,
            is_endless: asked().endless,
            used: HEADER,
            room: 0,
            ready: 0,
            is,
            lost: Vec::new(),
        };
        if !recording.has_room(HEADER) {
            return give_up(format!("{shown}: the disk is full, or files may not be as large"));
        }
        // SAFETY: the header has room.
        unsafe {
            ptr::copy_nonoverlapping(MAGIC.as_ptr(), recording.head, MAGIC.len());
        }
        recording.header(1).store(VERSION, Relaxed);
        recording.header(3).store(u64::from(std::process::id()), Relaxed);
        recording.publish();
        recording.make_room();
        Ok(recording)
    }

    fn header(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the header has eight words, mapped at the begin of a page, that nobody writes but through this.
        unsafe { &*self.head.cast::<AtomicU64>().add(word) }
    }

    /// Makes what has been written part of the file.
    fn publish(&self) {
        self.header(2).store(self.used as u64, Release);
    }

    /// Up to where the file may be written.
    fn most(&self) -> usize {
        // Without room, the header isn't there: to look at it would end the program.
        let is_read = self.is_endless && self.room >= HEADER;
        let read = if is_read { self.header(5).load(Acquire) } else { 0 };
        // Room is of whole pages: to write to one that the disk has room for a part of may need more, and end the program.
        let read = usize::try_from(read).unwrap_or(0) / PAGES * PAGES;
        MOST.saturating_add(read).min(self.from + MOST)
    }

    /// Whether the file is still ours: a program that has closed all of its files may have another one by this number.
    fn is_ours(&self) -> bool {
        self.file.metadata().is_ok_and(|of| [of.dev(), of.ino()] == self.is)
    }

    fn has_room(&mut self, up_to: usize) -> bool {
        while self.room < up_to {
            let piece = PIECE.min(self.most().saturating_sub(self.room));
            let mut limit = [0; 2];
            // SAFETY: it writes two numbers.
            let is_known = unsafe { getrlimit(FILE_SIZE, &raw mut limit) } == 0;
            if !is_known || limit[0] < (self.room + piece) as u64 || !self.is_ours() {
                return false;
            }
            // SAFETY: it takes numbers only.
            let failed =
                unsafe { posix_fallocate(self.file.as_raw_fd(), self.room as i64, piece as i64) };
            if piece == 0 || failed != 0 {
                return false;
            }
            self.room += piece;
        }
        true
    }

    pub(crate) fn write(&mut self, kind: Record, bytes: &[u8]) {
        self.append(kind, bytes.len(), |at| {
            // SAFETY: there is room for so many bytes at `at`.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        });
    }

    /// Returns whether there was room.
    pub(crate) fn write_words(&mut self, kind: Record, head: &[u64], words: &[u64]) -> bool {
        self.append(kind, (head.len() + words.len()) * 8, |at| {
            // SAFETY: there is room for both at `at`. x86-64 and AArch64 are little-endian.
            unsafe {
                let at = at.cast::<u64>();
                ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
                ptr::copy_nonoverlapping(words.as_ptr(), at.add(head.len()), words.len());
            }
        })
    }

    fn append(&mut self, kind: Record, len: usize, fill: impl FnOnce(*mut u8)) -> bool {
        let end = self.used + 8 + len.next_multiple_of(8);
        if end > self.most() || !self.has_room(end) {
            self.header(4).fetch_add(1, Relaxed);
            return false;
        }
        // SAFETY: the file has room up to `end`, and is mapped so far. Bytes that aren't filled are zeros.
        unsafe {
            let at = self.at.add(self.used - self.from);
            at.cast::<u64>().write(word([kind as u32, len as u32]));
            fill(at.add(8));
        }
        self.used = end;
        self.publish();
        true
    }

    /// Notes once that something isn't recorded.
    pub(crate) fn lose(&mut self, what: &str) {
        if !self.lost.iter().any(|lost| lost == what) {
            self.lost.push(what.to_owned());
            self.write(Record::Lost, what.as_bytes());
        }
    }

    /// Counts a request that isn't recorded, and notes why.
    pub(crate) fn miss(&mut self, why: &str) {
        self.header(6).fetch_add(1, Relaxed);
        self.lose(why);
    }

    /// Makes memory ready for the next passes. Called between passes.
    pub(crate) fn make_room(&mut self) {
        self.move_on();
        let is_ready = self.used + READY / 2 < self.ready;
        // What is written needs it no more, and would take room again that was given back.
        self.ready = self.ready.max(self.used / PAGES * PAGES);
        let end = self.ready + READY;
        // Behind the mapping lies memory of the program.
        if is_ready || end > self.from + MOST || !self.has_room(end) {
            return;
        }
        // SAFETY: the file has room up to `end`, and is mapped so far.
        unsafe {
            madvise(self.at.add(self.ready - self.from).cast(), READY, POPULATE_WRITE);
        }
        self.ready += READY;
    }

    /// Maps a file that goes on from about here on, once half of what is mapped is written: so it never ends, and the tables of
    /// its pages don't grow.
    fn move_on(&mut self) {
        if !self.is_endless || self.used - self.from < MOST / 2 || !self.is_ours() {
            return;
        }
        let from = self.used / PAGES * PAGES;
        // Else what is mapped has room for a while.
        if let Some(at) = map(&self.file, MOST, from) {
            // What is mapped may be another file, which the program has opened by this number meanwhile.
            if !self.is_ours() {
                // SAFETY: it was mapped just now, with this length, and nobody has a pointer into it.
                unsafe { munmap(at.cast(), MOST) };
                return;
            }
            // SAFETY: it was mapped with this length, and all pointers into it are made anew from `at`.
            unsafe { munmap(self.at.cast(), MOST) };
            // None of its memory is ready yet, whatever was of the one before.
            (self.at, self.from, self.ready) = (at, from, from);
        }
    }
}

/// Maps a file of ours from a multiple of [`PAGES`] on.
fn map(file: &File, len: usize, from: usize) -> Option<*mut u8> {
    let fd = file.as_raw_fd();
    // SAFETY: the mapping is of our own file, which nobody makes shorter, at a place that the system chooses.
    let at = unsafe { mmap(ptr::null_mut(), len, READ_WRITE, SHARED, fd, from as i64) };
    (at as isize != -1).then_some(at.cast())
}
