//! Files of code: programs, libraries, and the piece of code that the kernel maps into every process.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection, elf};

use crate::mmap::Bytes;

/// What the kernel calls the code that it maps into every process.
pub(crate) const VDSO: &str = "[vdso]";

/// A file of code.
pub(crate) struct CodeFile {
    pub(crate) bytes: Bytes,
    segments: Vec<Segment>,
}

/// A part of a file that is loaded, a `PT_LOAD` header.
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl CodeFile {
    /// Opens what a process has mapped under this name.
    ///
    /// # Errors
    ///
    /// When it can't be read or isn't a 64-bit ELF file of this machine's byte order.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new(VDSO) {
            return Self::parse(own_vdso()?);
        }
        // A device or a pipe of this name would be waited for.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        Self::parse(Bytes::map(&File::open(path)?)?)
    }

    fn parse(bytes: Bytes) -> io::Result<Self> {
        let segments = {
            let elf = Self::elf(&bytes).ok_or_else(|| io::Error::other("not a 64-bit ELF file"))?;
            let endian = elf.endian();
            (elf.elf_program_headers().iter())
                .filter(|header| header.p_type(endian) == elf::PT_LOAD)
                .map(|header| Segment {
                    offset: header.p_offset(endian),
                    size: header.p_filesz(endian),
                    address: header.p_vaddr(endian),
                })
                .collect()
        };
        Ok(Self { bytes, segments })
    }

    fn elf(bytes: &[u8]) -> Option<ElfFile64<'_, object::Endianness>> {
        let elf = ElfFile64::parse(bytes).ok()?;
        (elf.is_little_endian() == cfg!(target_endian = "little")).then_some(elf)
    }

    /// Its tables.
    pub(crate) fn object(&self) -> ElfFile64<'_, object::Endianness> {
        Self::elf(&self.bytes).expect("parsed before")
    }

    /// The address that the file states for what lies at this place in it.
    ///
    /// The kernel maps whole pages, so a segment's page may begin before it.
    pub(crate) fn stated_address(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| offset >= s.offset && offset - s.offset < s.size;
        let page = |s: &&Segment| {
            let start = s.offset & !(PAGE - 1);
            offset >= start && offset - start < s.size.saturating_add(s.offset - start)
        };
        let segment =
            self.segments.iter().find(inside).or_else(|| self.segments.iter().find(page))?;
        Some(segment.address.wrapping_add(offset).wrapping_sub(segment.offset))
    }

    /// The lowest address that the file states.
    pub(crate) fn first_address(&self) -> u64 {
        self.segments.iter().map(|s| s.address).min().unwrap_or(0)
    }

    /// A section's bytes, inflated if need be.
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

/// The smallest page of the systems this runs on. Larger pages begin at multiples of it too.
const PAGE: u64 = 4096;

/// The `[vdso]` of this process. Every process of the machine has the same.
fn own_vdso() -> io::Result<Bytes> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "this process has no vdso");
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with(VDSO)).ok_or_else(none)?;
    let (start, end) =
        line.split(' ').next().and_then(|range| range.split_once('-')).ok_or_else(none)?;
    let address = |text| u64::from_str_radix(text, 16).map_err(|_| none());
    let (start, end) = (address(start)?, address(end)?);
    // A few pages; a range that isn't is not the vdso.
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
        let segments = vec![
            Segment { offset: 0, size: 0x5000, address: 0x40_0000 },
            Segment { offset: 0x5a10, size: 0x2000, address: 0x40_6a10 },
        ];
        let file = CodeFile { bytes: Bytes::owned(Vec::new()), segments };
        assert_eq!(file.stated_address(0x10), Some(0x40_0010));
        assert_eq!(file.stated_address(0x5a10), Some(0x40_6a10));
        assert_eq!(file.stated_address(0x5000), Some(0x40_6000), "the page of the second segment");
        assert_eq!(file.stated_address(0x7a10), None);
        assert_eq!(file.first_address(), 0x40_0000);
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
