//! Types of records, and the bits of their `misc`.

pub(super) const MMAP: u32 = 1;
pub(super) const LOST: u32 = 2;
pub(super) const COMM: u32 = 3;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const MMAP2: u32 = 10;
pub(super) const LOST_SAMPLES: u32 = 13;
// Types from 64 on are defined by perf, not by the kernel.
pub(super) const HEADER_ATTR: u32 = 64;
pub(super) const HEADER_TRACING_DATA: u32 = 66;
pub(super) const AUXTRACE: u32 = 71;
pub(super) const EVENT_UPDATE: u32 = 78;
pub(super) const HEADER_FEATURE: u32 = 80;
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// The bits of `misc` that hold the processor's mode.
pub(super) const MODE: u16 = 7;
pub(super) const MODE_KERNEL: u16 = 1;
pub(super) const MODE_USER: u16 = 2;
/// In [`MMAP`]: the memory isn't code.
pub(super) const MMAP_DATA: u16 = 1 << 13;
/// In [`COMM`]: the process executes another program.
pub(super) const COMM_EXEC: u16 = 1 << 13;
/// In [`MMAP2`]: a build id takes the place of the device and the inode.
pub(super) const MMAP_BUILD_ID: u16 = 1 << 14;
/// In a build id: it states its length.
pub(super) const BUILD_ID_SIZE: u16 = 1 << 15;
