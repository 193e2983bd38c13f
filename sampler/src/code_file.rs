//! ELF files with code: programs, libraries, and the code that the kernel maps into every process.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection, elf};

use crate::mmap::Bytes;

/// The kernel's name for the code that it maps into every process.
pub(crate) const VDSO: &str = "[vdso]";

/// An ELF file with code.
pub(crate) struct CodeFile {
    pub(crate) bytes: Bytes,
    /// The segments with code.
    segments: Vec<Segment>,
    /// The lowest address in the file's headers.
    pub(crate) first_address: u64,
}

/// A segment that is loaded (a `PT_LOAD` header).
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl CodeFile {
    /// Opens a file that a process has mapped under this name.
    ///
    /// # Errors
    ///
    /// If it can't be read, or isn't a 64-bit ELF file in this machine's byte order.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new(VDSO) {
            return Self::parse(own_vdso()?);
        }
        // Opening a device or a pipe of this name could block.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        Self::parse(Bytes::map(&File::open(path)?)?)
    }

    fn parse(bytes: Bytes) -> io::Result<Self> {
        let mut segments = Vec::new();
        let mut first_address = u64::MAX;
        let elf = Self::elf(&bytes).ok_or_else(|| io::Error::other("not a 64-bit ELF file"))?;
        let endian = elf.endian();
        for header in elf.elf_program_headers() {
            if header.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            let address = header.p_vaddr(endian);
            first_address = first_address.min(address);
            // Adjacent segments can share a page of the file, which is then mapped for each. Only the segment with
            // code matters here.
            if header.p_flags(endian) & elf::PF_X != 0 {
                let (offset, size) = (header.p_offset(endian), header.p_filesz(endian));
                segments.push(Segment { offset, size, address });
            }
        }
        Ok(Self { bytes, segments, first_address })
    }

    fn elf(bytes: &[u8]) -> Option<ElfFile64<'_, object::Endianness>> {
        let elf = ElfFile64::parse(bytes).ok()?;
        (elf.is_little_endian() == cfg!(target_endian = "little")).then_some(elf)
    }

    /// The file's headers and sections.
    pub(crate) fn object(&self) -> ElfFile64<'_, object::Endianness> {
        Self::elf(&self.bytes).expect("parsed before")
    }

    /// The address that the file's headers give to the code at this offset in it.
    ///
    /// The kernel maps whole pages, so the pages of a segment may begin before it.
    pub(crate) fn stated_address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            let start = segment.offset & !(PAGE - 1);
            let size = segment.size.saturating_add(segment.offset - start);
            offset >= start && offset - start < size
        })?;
        Some(segment.address.wrapping_add(offset).wrapping_sub(segment.offset))
    }

    /// A section's bytes, decompressed if necessary.
    pub(crate) fn section(
        &self,
        object: &ElfFile64<'_, object::Endianness>,
        name: &str,
    ) -> Option<Bytes> {
        let section = object.section_by_name(name)?;
        match section.uncompressed_data().ok()? {
            Cow::Owned(bytes) => Some(Bytes::owned(bytes)),
            Cow::Borrowed(_) => {
                let (offset, len) = section.file_range()?;
                self.bytes.part(offset, len)
            }
        }
    }
}

/// The smallest page size of supported systems. Larger pages begin at multiples of it, too.
const PAGE: u64 = 4096;

/// This process's `[vdso]`. All processes of a machine have the same.
fn own_vdso() -> io::Result<Bytes> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "this process has no vdso");
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with(VDSO)).ok_or_else(none)?;
    let (start, end) =
        line.split(' ').next().and_then(|range| range.split_once('-')).ok_or_else(none)?;
    let address = |text| u64::from_str_radix(text, 16).map_err(|_| none());
    let (start, end) = (address(start)?, address(end)?);
    // The vdso has a few pages; any larger range must be something else.
    let len = end.checked_sub(start).filter(|&len| len <= 1 << 20).ok_or_else(none)?;
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| none())?];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
    Ok(Bytes::owned(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_addresses_follow_the_segments() {
        // The layout that linkers produce: the second segment's first page also holds the end of the first segment.
        let segments = vec![
            Segment { offset: 0x5a10, size: 0x2000, address: 0x40_6a10 },
            Segment { offset: 0x9000, size: 0x1000, address: 0x50_0000 },
        ];
        let bytes = Bytes::default();
        let file = CodeFile { bytes, segments, first_address: 0x40_0000 };
        assert_eq!(file.stated_address(0x10), None);
        assert_eq!(file.stated_address(0x5000), Some(0x40_6000), "where the page is mapped");
        assert_eq!(file.stated_address(0x5a10), Some(0x40_6a10));
        assert_eq!(file.stated_address(0x7a10), None);
        assert_eq!(file.stated_address(0x9fff), Some(0x50_0fff));
    }

    #[test]
    fn the_vdso_is_a_file_of_code() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        if !maps.contains(VDSO) {
            eprintln!("skipped: this process has no vdso");
            return;
        }
        let vdso = CodeFile::open(Path::new(VDSO)).unwrap();
        assert!(vdso.section(&vdso.object(), ".eh_frame").is_some());
    }

    #[test]
    fn what_is_no_code_is_an_error() {
        assert!(CodeFile::open(Path::new("/proc/self/maps")).is_err());
        assert!(CodeFile::open(Path::new("/dev/zero")).is_err());
        assert!(CodeFile::open(Path::new("/usr/lib/libgone.so (deleted)")).is_err());
    }
}
