//! Samples in the format of `perf_event_open(2)`, and the fields at the end of other records.

use crate::perf_data::PerfDataFault;
use crate::perf_data::bytes::Cursor;
use crate::perf_data::layout::{Event, flag};
use crate::unwind::Registers;

/// Bits of `sample_type`.
pub(super) mod part {
    pub(in super::super) const IP: u64 = 1 << 0;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const BRANCH_STACK: u64 = 1 << 11;
    pub(in super::super) const REGS_USER: u64 = 1 << 12;
    pub(in super::super) const STACK_USER: u64 = 1 << 13;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
}

/// From here on, values in a call chain aren't addresses: they tell what the following ones are.
const FIRST_CONTEXT: u64 = -4095i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_USER: u64 = -512i64 as u64;

/// A sample.
#[derive(Default)]
pub(super) struct Sample<'b> {
    pub(super) ip: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time_ns: u64,
    /// The call chain: addresses, with markers between the kernel's and the program's.
    chain: Option<&'b [u8]>,
    /// The program's registers, if it is a 64-bit program.
    pub(super) registers: Option<Registers>,
    /// A copy of the top of its stack.
    pub(super) stack: Option<&'b [u8]>,
}

impl<'b> Sample<'b> {
    pub(super) fn read(mut body: Cursor<'b>, event: &Event) -> Result<Self, PerfDataFault> {
        let has = |bit| event.sample_type & bit != 0;
        let mut sample = Self::default();
        if has(part::IDENTIFIER) {
            body.skip(8)?;
        }
        if has(part::IP) {
            sample.ip = body.u64()?;
        }
        if has(part::TID) {
            (sample.pid, sample.tid) = (body.u32()?, body.u32()?);
        }
        if has(part::TIME) {
            sample.time_ns = body.u64()?;
        }
        for bit in [part::ADDR, part::ID, part::STREAM_ID, part::CPU, part::PERIOD] {
            if has(bit) {
                body.skip(8)?;
            }
        }
        if has(part::READ) {
            skip_read(&mut body, event.read_format)?;
        }
        if has(part::CALLCHAIN) {
            let count = body.u64()?;
            sample.chain = Some(body.bytes(count.saturating_mul(8))?);
        }
        if has(part::RAW) {
            let size = body.u32()?;
            body.skip(u64::from(size))?;
        }
        if has(part::BRANCH_STACK) {
            const HW_INDEX: u64 = 1 << 17;
            const COUNTERS: u64 = 1 << 19;
            let count = body.u64()?;
            if event.branch_sample_type & HW_INDEX != 0 {
                body.skip(8)?;
            }
            let each = if event.branch_sample_type & COUNTERS != 0 { 32 } else { 24 };
            body.skip(count.saturating_mul(each))?;
        }
        if has(part::REGS_USER) {
            const ABI_64: u64 = 2;
            match body.u64()? {
                0 => {}
                abi => {
                    let registers = registers(&mut body, event.user_regs)?;
                    sample.registers = registers.filter(|_| abi == ABI_64);
                }
            }
        }
        if has(part::STACK_USER) {
            let size = body.u64()?;
            if size != 0 {
                let copy = body.bytes(size)?;
                // How much of the copy was filled.
                let filled = usize::try_from(body.u64()?).unwrap_or(usize::MAX);
                sample.stack = copy.get(..filled).or(Some(copy));
            }
        }
        Ok(sample)
    }

    /// Reads only a sample's time and, if present, the id of its event.
    pub(super) fn key(
        mut body: Cursor<'_>,
        event: &Event,
    ) -> Result<(u64, Option<u64>), PerfDataFault> {
        let has = |bit| event.sample_type & bit != 0;
        let mut id = None;
        if has(part::IDENTIFIER) {
            id = Some(body.u64()?);
        }
        for bit in [part::IP, part::TID] {
            if has(bit) {
                body.skip(8)?;
            }
        }
        let time_ns = if has(part::TIME) { body.u64()? } else { 0 };
        if has(part::ADDR) {
            body.skip(8)?;
        }
        if has(part::ID) {
            id = Some(body.u64()?);
        }
        Ok((time_ns, id))
    }

    /// The call chain: for each address, whether it is the kernel's.
    pub(super) fn chain(&self) -> impl Iterator<Item = (bool, u64)> + 'b {
        let words = self.chain.unwrap_or_default().chunks_exact(8);
        let mut of_kernel = None;
        words.filter_map(move |word| {
            let address = u64::from_ne_bytes(*word.first_chunk()?);
            if address >= FIRST_CONTEXT {
                of_kernel = match address {
                    CONTEXT_KERNEL => Some(true),
                    CONTEXT_USER => Some(false),
                    // A guest or a hypervisor, whose code we don't know.
                    _ => None,
                };
                return None;
            }
            Some((of_kernel?, address))
        })
    }
}

/// Skips the values of counters.
fn skip_read(body: &mut Cursor<'_>, format: u64) -> Result<(), PerfDataFault> {
    const TIME_ENABLED: u64 = 1 << 0;
    const TIME_RUNNING: u64 = 1 << 1;
    const ID: u64 = 1 << 2;
    const GROUP: u64 = 1 << 3;
    const LOST: u64 = 1 << 4;
    let words = |bits: u64| u64::from((format & bits).count_ones());
    let each = 1 + words(ID | LOST);
    if format & GROUP != 0 {
        let count = body.u64()?;
        body.skip(8 * words(TIME_ENABLED | TIME_RUNNING))?;
        body.skip(count.saturating_mul(8 * each))
    } else {
        body.skip(8 * (each + words(TIME_ENABLED | TIME_RUNNING)))
    }
}

/// The numbers of the registers we need, in the architecture's `perf_regs.h`.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 4] = [8, 7, 6, u32::MAX];
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [32, 31, 29, 30];

/// Reads one value for each bit of the mask; `None` if it lacks one that we need.
fn registers(body: &mut Cursor<'_>, mask: u64) -> Result<Option<Registers>, PerfDataFault> {
    let mut values = [None; 4];
    for bit in (0..64).filter(|bit| mask >> bit & 1 == 1) {
        let value = body.u64()?;
        for (slot, register) in values.iter_mut().zip(REGISTERS) {
            if register == bit {
                *slot = Some(value);
            }
        }
    }
    let [ip, sp, fp, lr] = values;
    Ok((|| Some(Registers { ip: ip?, sp: sp?, fp: fp?, lr: lr.unwrap_or(0) }))())
}

/// The time at the end of a record other than a sample; 0 if there is none.
pub(super) fn time_of(file: &[u8], offset: u64, size: u64, event: &Event) -> u64 {
    if event.flags & flag::SAMPLE_ID_ALL == 0 || event.sample_type & part::TIME == 0 {
        return 0;
    }
    let after = [part::ID, part::STREAM_ID, part::CPU, part::IDENTIFIER];
    let words = after.iter().filter(|&&bit| event.sample_type & bit != 0).count() as u64;
    let from_end = 8 * (words + 1);
    let Some(at) = size.checked_sub(from_end) else { return 0 };
    Cursor::new(file, offset + at, 8, "a time").and_then(|mut time| time.u64()).unwrap_or(0)
}
