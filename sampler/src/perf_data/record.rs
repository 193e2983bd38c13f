//! The numbers of records: their types, and the bits of their `misc`.

pub(super) const MMAP: u32 = 1;
pub(super) const LOST: u32 = 2;
pub(super) const COMM: u32 = 3;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const MMAP2: u32 = 10;
pub(super) const LOST_SAMPLES: u32 = 13;
// From 64 on they are of perf itself, not of the kernel.
pub(super) const HEADER_ATTR: u32 = 64;
pub(super) const HEADER_TRACING_DATA: u32 = 66;
pub(super) const AUXTRACE: u32 = 71;
pub(super) const EVENT_UPDATE: u32 = 78;
pub(super) const HEADER_FEATURE: u32 = 80;
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// The bits of `misc` that tell in which mode the processor was.
pub(super) const MODE: u16 = 7;
pub(super) const MODE_KERNEL: u16 = 1;
pub(super) const MODE_USER: u16 = 2;
/// Of [`MMAP`]: the memory isn't code.
pub(super) const MMAP_DATA: u16 = 1 << 13;
/// Of [`COMM`]: the process runs another program.
pub(super) const COMM_EXEC: u16 = 1 << 13;
/// Of [`MMAP2`]: it has a build id where the device and the inode were.
pub(super) const MMAP_BUILD_ID: u16 = 1 << 14;
/// Of a build id: it says how long it is.
pub(super) const BUILD_ID_SIZE: u16 = 1 << 15;
