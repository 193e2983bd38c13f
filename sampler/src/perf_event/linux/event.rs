//! Parses the records in the kernel's rings.
//!
//! `man perf_event_open` describes the layout; this handles the fields that [`super::ring`] requests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::unwind::Registers;

/// `sample_regs_user`: a bit for each of the registers that [`registers`] reads, numbered as in the kernel's
/// `asm/perf_regs.h`.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTER_MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// `sample_regs_user`: a bit for each of the registers that [`registers`] reads, numbered as in the kernel's
/// `asm/perf_regs.h`.
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTER_MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// From here on, values in a call chain are markers, not addresses: `PERF_CONTEXT_MAX`.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// The types of records, from `enum perf_event_type`.
mod kind {
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const EXIT: u32 = 4;
    pub(super) const THROTTLE: u32 = 5;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const MMAP2: u32 = 10;
    pub(super) const LOST_SAMPLES: u32 = 13;
}

/// A parsed record.
#[derive(Debug, PartialEq)]
pub(super) enum Event<'a> {
    Sample(Sample<'a>),
    /// Code was mapped.
    Map {
        pid: u32,
        address: u64,
        length: u64,
        file_offset: u64,
        file: &'a Path,
    },
    /// A thread has a new name; with `exec`, because its process executes another program.
    Name {
        pid: u32,
        tid: u32,
        name: &'a OsStr,
        exec: bool,
    },
    /// A thread has started. If `pid` isn't the parent's, it is a new process.
    Fork {
        pid: u32,
        parent_pid: u32,
        tid: u32,
        parent_tid: u32,
    },
    /// A thread has ended.
    Exit {
        pid: u32,
        tid: u32,
    },
    /// The kernel had no room for this many records of any kind.
    LostRecords(u64),
    /// The kernel had no room for this many samples.
    LostSamples(u64),
    /// The kernel paused sampling because it took too long.
    Throttled,
    /// Any other record.
    Other,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) ip: u64,
    pub(super) in_kernel: bool,
    /// The call chain in the kernel: addresses and markers.
    pub(super) chain: Words<'a>,
    /// The program's registers; none for a kernel thread or a 32-bit program.
    pub(super) registers: Option<Registers>,
    /// From the stack pointer upwards.
    pub(super) stack: &'a [u8],
}

/// Words that may be unaligned.
#[derive(Debug, PartialEq, Clone, Copy, Default)]
pub(super) struct Words<'a>(&'a [[u8; 8]]);

impl Words<'_> {
    /// The words that are addresses.
    pub(super) fn addresses(self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|&word| u64::from_ne_bytes(word)).filter(|&word| word < CONTEXT_MAX)
    }
}

/// When the record was made, in nanoseconds: the third word of a sample, the last word of other records. `word` returns
/// the word at an offset of a record of `length` bytes, not counting its header.
pub(super) fn time(kind: u32, length: usize, word: impl Fn(usize) -> Option<u64>) -> Option<u64> {
    match kind {
        kind::SAMPLE => word(16),
        _ => word(length.checked_sub(8)?),
    }
}

/// Parses a record without its header. `None` if it is shorter than it claims.
pub(super) fn parse(kind: u32, misc: u16, bytes: &[u8], has_chain: bool) -> Option<Event<'_>> {
    // The process, the thread and the time.
    const TRAILER: usize = 16;
    let mut fields = Fields(bytes);
    let event = match kind {
        kind::SAMPLE => {
            let ip = fields.u64()?;
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let _time = fields.u64()?;
            let n_chain = if has_chain { usize::try_from(fields.u64()?).ok()? } else { 0 };
            let chain = Words(fields.take(n_chain.checked_mul(8)?)?.as_chunks().0);
            let registers = registers(&mut fields)?;
            let stack = match usize::try_from(fields.u64()?).ok()? {
                0 => &[],
                size => {
                    let dump = fields.take(size)?;
                    let copied = usize::try_from(fields.u64()?).ok()?;
                    dump.get(..copied)?
                }
            };
            let in_kernel = misc & 7 == 1;
            Event::Sample(Sample { pid, tid, ip, in_kernel, chain, registers, stack })
        }
        kind::MMAP2 => {
            let (pid, _tid) = (fields.u32()?, fields.u32()?);
            let (address, length, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let _inode_and_protection = fields.take(32)?;
            let file = Path::new(fields.text(TRAILER)?);
            Event::Map { pid, address, length, file_offset, file }
        }
        kind::COMM => {
            const COMM_EXEC: u16 = 1 << 13;
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let name = fields.text(TRAILER)?;
            Event::Name { pid, tid, name, exec: misc & COMM_EXEC != 0 }
        }
        kind::FORK => Event::Fork {
            pid: fields.u32()?,
            parent_pid: fields.u32()?,
            tid: fields.u32()?,
            parent_tid: fields.u32()?,
        },
        kind::EXIT => {
            let (pid, _parent_pid) = (fields.u32()?, fields.u32()?);
            Event::Exit { pid, tid: fields.u32()? }
        }
        kind::LOST => {
            let _id = fields.u64()?;
            Event::LostRecords(fields.u64()?)
        }
        kind::LOST_SAMPLES => Event::LostSamples(fields.u64()?),
        kind::THROTTLE => Event::Throttled,
        _ => Event::Other,
    };
    Some(event)
}

/// The registers of [`REGISTER_MASK`], which come in the order of their numbers.
fn registers(fields: &mut Fields<'_>) -> Option<Option<Registers>> {
    /// `PERF_SAMPLE_REGS_ABI_NONE`: no registers, as for a kernel thread.
    const NONE: u64 = 0;
    /// `PERF_SAMPLE_REGS_ABI_64`.
    const BITS_64: u64 = 2;
    let abi = fields.u64()?;
    if abi == NONE {
        return Some(None);
    }
    #[cfg(target_arch = "x86_64")]
    let (fp, sp, ip, lr) = (fields.u64()?, fields.u64()?, fields.u64()?, 0);
    #[cfg(target_arch = "aarch64")]
    let (fp, lr, sp, ip) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    Some((abi == BITS_64).then_some(Registers { ip, sp, fp, lr }))
}

/// The rest of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// The string up to its first zero, followed by `trailer` bytes.
    fn text(&mut self, trailer: usize) -> Option<&'a OsStr> {
        let text = self.take(self.0.len().checked_sub(trailer)?)?;
        Some(OsStr::from_bytes(text.split(|&byte| byte == 0).next().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record's bytes, field by field.
    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn u64(mut self, words: &[u64]) -> Self {
            words.iter().for_each(|word| self.0.extend(word.to_ne_bytes()));
            self
        }

        fn u32(mut self, words: &[u32]) -> Self {
            words.iter().for_each(|word| self.0.extend(word.to_ne_bytes()));
            self
        }

        /// A string as the kernel writes it: with at least one zero, padded to a multiple of 8.
        fn text(mut self, text: &str) -> Self {
            self.0.extend(text.bytes());
            self.0.resize((self.0.len() / 8 + 1) * 8, 0);
            self
        }

        fn time(self) -> Self {
            self.u32(&[70, 71]).u64(&[5_000])
        }
    }

    fn time_of(kind: u32, bytes: &[u8]) -> Option<u64> {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        time(kind, bytes.len(), word)
    }

    /// As many registers as [`REGISTER_MASK`] has.
    fn of_program(abi: u64) -> Bytes {
        let count = u64::from(REGISTER_MASK.count_ones());
        let values: Vec<_> = (0..count).map(|at| 100 + at).collect();
        Bytes::default()
            .u64(&[0x40, u64::from(8_u32) << 32 | 7, 5_000])
            .u64(&[4, -128_i64 as u64, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0008])
            .u64(&[-512_i64 as u64, abi])
            .u64(&values)
    }

    #[test]
    fn a_sample_has_the_stack_that_was_copied_and_no_more() {
        let bytes = of_program(2).u64(&[24, 1, 2, 3, 16]).0;
        assert_eq!(time_of(kind::SAMPLE, &bytes), Some(5_000));
        let Some(Event::Sample(sample)) = parse(kind::SAMPLE, 1, &bytes, true) else {
            unreachable!("it is whole")
        };
        let little_endian = u64::from(8_u32) << 32 | 7;
        assert_eq!((sample.pid, sample.tid), (little_endian as u32, (little_endian >> 32) as u32));
        assert!(sample.in_kernel);
        assert_eq!(
            sample.chain.addresses().collect::<Vec<_>>(),
            [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0008]
        );
        assert_eq!(sample.stack.len(), 16);
        #[cfg(target_arch = "x86_64")]
        let registers = Registers { fp: 100, sp: 101, ip: 102, lr: 0 };
        #[cfg(target_arch = "aarch64")]
        let registers = Registers { fp: 100, lr: 101, sp: 102, ip: 103 };
        assert_eq!(sample.registers, Some(registers));
    }

    #[test]
    fn registers_of_a_32_bit_program_are_left_alone() {
        let bytes = of_program(1).u64(&[0]).0;
        let Some(Event::Sample(sample)) = parse(kind::SAMPLE, 2, &bytes, true) else {
            unreachable!("it is whole")
        };
        assert_eq!((sample.registers, sample.stack, sample.in_kernel), (None, &[][..], false));
    }

    #[test]
    fn a_thread_of_the_kernel_has_no_registers() {
        let bytes = Bytes::default().u64(&[0x40, 7, 5_000, 0, 0, 0]).0;
        let Some(Event::Sample(sample)) = parse(kind::SAMPLE, 1, &bytes, true) else {
            unreachable!("it is whole")
        };
        assert_eq!((sample.registers, sample.chain), (None, Words(&[])));
    }

    #[test]
    fn code_names_and_forks_are_read() {
        let bytes = Bytes::default()
            .u32(&[7, 8])
            .u64(&[0x1000, 0x2000, 0x3000])
            .u64(&[0; 4])
            .text("/lib/a b.so")
            .time()
            .0;
        assert_eq!(time_of(kind::MMAP2, &bytes), Some(5_000));
        let file = Path::new("/lib/a b.so");
        let map = Event::Map { pid: 7, address: 0x1000, length: 0x2000, file_offset: 0x3000, file };
        assert_eq!(parse(kind::MMAP2, 2, &bytes, false), Some(map));

        let bytes = Bytes::default().u32(&[7, 8]).text("worker").time().0;
        let name = |exec| Event::Name { pid: 7, tid: 8, name: OsStr::new("worker"), exec };
        assert_eq!(parse(kind::COMM, 0, &bytes, false), Some(name(false)));
        assert_eq!(parse(kind::COMM, 1 << 13, &bytes, false), Some(name(true)));

        let bytes = Bytes::default().u32(&[9, 7, 9, 8]).u64(&[4_000]).time().0;
        let fork = Event::Fork { pid: 9, parent_pid: 7, tid: 9, parent_tid: 8 };
        assert_eq!(parse(kind::FORK, 0, &bytes, false), Some(fork));
        assert_eq!(time_of(kind::FORK, &bytes), Some(5_000));

        let exit = Event::Exit { pid: 9, tid: 10 };
        let bytes = Bytes::default().u32(&[9, 7, 10, 8]).u64(&[4_000]).time().0;
        assert_eq!(parse(kind::EXIT, 0, &bytes, false), Some(exit));

        let bytes = Bytes::default().u64(&[1, 12]).time().0;
        assert_eq!(parse(kind::LOST, 0, &bytes, false), Some(Event::LostRecords(12)));
        let bytes = Bytes::default().u64(&[13]).time().0;
        assert_eq!(parse(kind::LOST_SAMPLES, 0, &bytes, false), Some(Event::LostSamples(13)));
        assert_eq!(parse(77, 0, &[], false), Some(Event::Other));
    }

    #[test]
    fn a_record_that_is_cut_off_is_no_event() {
        let sample = of_program(2).u64(&[24, 1, 2, 3, 16]).0;
        let map = Bytes::default().u32(&[7, 8]).u64(&[1; 7]).text("/lib").time().0;
        for (kind, bytes) in [(kind::SAMPLE, sample), (kind::MMAP2, map)] {
            assert!(parse(kind, 0, &bytes, true).is_some());
            let shortest = if kind == kind::SAMPLE { bytes.len() } else { 72 };
            for length in (0..shortest).step_by(8) {
                assert_eq!(parse(kind, 0, &bytes[..length], true), None, "{length} bytes");
            }
        }
        // Sizes larger than the record, or than any record.
        let greedy = Bytes::default().u64(&[0x40, 7, 5_000, u64::MAX / 4, 0, 0]).0;
        assert_eq!(parse(kind::SAMPLE, 0, &greedy, true), None);
        let greedy = Bytes::default().u64(&[0x40, 7, 5_000, 0, 0, u64::MAX, 0]).0;
        assert_eq!(parse(kind::SAMPLE, 0, &greedy, true), None);
        let greedy = Bytes::default().u64(&[0x40, 7, 5_000, 0, 0, 8, 1, 9]).0;
        assert_eq!(parse(kind::SAMPLE, 0, &greedy, true), None, "more copied than there is");
    }
}
