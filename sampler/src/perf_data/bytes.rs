//! Reads numbers and strings from bytes that may end anywhere.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::perf_data::PerfDataFault;

/// Reads a part of the file from front to back.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'b> {
    /// The whole file.
    file: &'b [u8],
    at: usize,
    /// Where the part ends; not beyond the end of the file.
    end: usize,
    /// What the part is, for error messages.
    what: &'static str,
}

impl<'b> Cursor<'b> {
    /// Reads a part of a file, which must lie within it.
    pub(super) fn new(
        file: &'b [u8],
        offset: u64,
        size: u64,
        what: &'static str,
    ) -> Result<Self, PerfDataFault> {
        let end = offset.saturating_add(size);
        let len = file.len() as u64;
        match (usize::try_from(offset), usize::try_from(end)) {
            (Ok(at), Ok(end)) if end <= file.len() => Ok(Self { file, at, end, what }),
            _ => Err(PerfDataFault::Truncated { what, offset, end, len }),
        }
    }

    /// The current offset in the file.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// The number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.end - self.at
    }

    pub(super) fn bytes(&mut self, count: u64) -> Result<&'b [u8], PerfDataFault> {
        match usize::try_from(count) {
            Ok(count) if count <= self.left() => {
                let bytes = &self.file[self.at..self.at + count];
                self.at += count;
                Ok(bytes)
            }
            _ => Err(self.damaged()),
        }
    }

    pub(super) fn skip(&mut self, count: u64) -> Result<(), PerfDataFault> {
        self.bytes(count).map(drop)
    }

    /// A cursor over the next `size` bytes.
    pub(super) fn part(&mut self, size: u64) -> Result<Self, PerfDataFault> {
        let at = self.at;
        self.skip(size)?;
        Ok(Self { at, end: self.at, ..*self })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PerfDataFault> {
        let bytes = self.bytes(N as u64)?;
        Ok(*bytes.first_chunk().expect("as many as asked for"))
    }

    pub(super) fn u16(&mut self) -> Result<u16, PerfDataFault> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, PerfDataFault> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, PerfDataFault> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, PerfDataFault> {
        self.array().map(u64::from_ne_bytes)
    }

    /// The size that a `perf_event_attr` states for itself: its second number.
    pub(super) fn peek_size(&self) -> Result<u32, PerfDataFault> {
        let mut attr = *self;
        attr.skip(4)?;
        attr.u32()
    }

    /// The bytes left, up to the first zero.
    pub(super) fn rest(&self) -> &'b [u8] {
        until_zero(&self.file[self.at..self.end])
    }

    /// A string in the format of features: its padded size, then its bytes, padded with zeros.
    pub(super) fn text(&mut self) -> Result<&'b [u8], PerfDataFault> {
        let len = self.u32()?;
        self.bytes(u64::from(len)).map(until_zero)
    }

    fn damaged(&self) -> PerfDataFault {
        PerfDataFault::Damaged { what: self.what, offset: self.offset() }
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A path in the kernel's encoding.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}
