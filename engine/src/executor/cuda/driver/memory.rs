//! Memory of the device, and memory of the host that both can reach.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

use super::super::error::CudaError;
use super::{Context, Event, Stream, check, ignore, ignore_bind};

/// Memory of the device.
#[derive(Debug)]
pub(in super::super) struct Buffer {
    context: Arc<Context>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) len: usize,
}

impl Buffer {
    /// `len` bytes, at least one.
    pub(in super::super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, CudaError> {
        let len = len.max(1);
        let mut address = 0;
        // SAFETY: the pointer is to an address that outlives the call.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, len) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = context.memory().map_or(0, |(free, _)| free);
                return Err(CudaError::Memory { asked: len as u64, free });
            }
            result => check("cuMemAlloc", result)?,
        }
        Ok(Self { context: Arc::clone(context), address, len })
    }

    /// Its address, for kernels.
    pub(in super::super) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub(in super::super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn check_range(&self, first: usize, len: usize) -> Result<(), CudaError> {
        match first.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(CudaError::Range { first, len, room: self.len }),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: allocated by `new`, and freed once. The driver waits for kernels that use it.
        ignore(unsafe { sys::cuMemFree_v2(self.address) });
    }
}

/// A copy of 32-bit words from the device into pinned memory, which nobody waits for until they are needed.
#[derive(Debug)]
pub(in super::super) struct Download {
    context: Arc<Context>,
    host: *mut u32,
    room: usize,
    /// The length of the last copy, in words.
    len: usize,
    /// Events before the copy, if it is timed, and after it.
    begin: Event,
    done: Event,
    is_timed: bool,
    in_flight: bool,
    /// Whether the end of the last copy can't be known.
    is_unknown: bool,
}

impl Download {
    /// Room for `room` words, at least one.
    pub(in super::super) fn new(context: &Arc<Context>, room: usize) -> Result<Self, CudaError> {
        let room = room.max(1);
        let (begin, done) = (Event::new(context)?, Event::new(context)?);
        let bytes = room.saturating_mul(size_of::<u32>());
        let mut host: *mut c_void = null_mut();
        // SAFETY: the pointer is to a pointer that outlives the call.
        let result = unsafe { sys::cuMemAllocHost_v2(&raw mut host, bytes) };
        check("cuMemAllocHost", result)?;
        // SAFETY: it is that long, page-aligned, and not shared.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        let (context, host) = (Arc::clone(context), host.cast());
        Ok(Self {
            context,
            host,
            room,
            len: 0,
            begin,
            done,
            is_timed: false,
            in_flight: false,
            is_unknown: false,
        })
    }

    /// Starts to copy `len` words from byte `first` of `from`.
    pub(in super::super) fn start(
        &mut self,
        stream: &Stream,
        from: &Buffer,
        first: usize,
        len: usize,
        is_timed: bool,
    ) -> Result<(), CudaError> {
        from.check_range(first, len.saturating_mul(size_of::<u32>()))?;
        if len > self.room {
            return Err(CudaError::Range { first: 0, len, room: self.room });
        }
        if is_timed {
            self.begin.record(stream)?;
        }
        self.is_timed = is_timed;
        self.in_flight = true;
        // SAFETY: the ranges were checked against both. The memory is neither read nor freed until the copy was waited
        // for. A copy still in flight comes before this one.
        let result = unsafe {
            let (from, bytes) = (from.address + first as u64, len * size_of::<u32>());
            sys::cuMemcpyDtoHAsync_v2(self.host.cast(), from, bytes, stream.raw)
        };
        check("cuMemcpyDtoHAsync", result)?;
        self.len = len;
        let noted = self.done.record(stream);
        if noted.is_err() {
            // `done` may be that of the copy before this one, so this waits for the stream. If that fails, the memory
            // has to be leaked.
            self.is_unknown = stream.synchronize().is_err();
        }
        noted
    }

    /// Waits for the last copy, if it is still in flight, by waiting for its stream.
    pub(in super::super) fn wait(&mut self, stream: &Stream) -> Result<&[u32], CudaError> {
        if self.in_flight {
            stream.synchronize()?;
            // If it was another stream, this waits for the copy itself.
            if !self.done.is_done()? {
                self.done.synchronize()?;
            }
            self.in_flight = false;
        }
        // SAFETY: the memory is `room` words, initialised, of which `len` are asked for; no copy is in
        // flight, and `start` needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.host, self.len) })
    }

    /// How long the last copy took on the device, if it was timed and waited for.
    pub(in super::super) fn took_ms(&self) -> Result<Option<f32>, CudaError> {
        if !self.is_timed || self.in_flight {
            return Ok(None);
        }
        self.done.since(&self.begin).map(Some)
    }
}

// SAFETY: as of streams; the memory is this one's own.
unsafe impl Send for Download {}

impl Drop for Download {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        if self.is_unknown || self.in_flight && self.done.synchronize().is_err() {
            // A lost device should no longer write, but only the driver says so; leaking is safe.
            return;
        }
        // SAFETY: allocated by `new`, freed once, and nothing is being copied into it.
        ignore(unsafe { sys::cuMemFreeHost(self.host.cast()) });
    }
}

/// Pinned memory that kernels write numbers to, and that the host reads without a call of the driver. All memory that the
/// driver allocates on the host has the same address on the device, on every system with 64 bits (CUDA C++ Programming
/// Guide, "Unified Virtual Address Space").
#[derive(Debug)]
pub(in super::super) struct Mailbox {
    context: Arc<Context>,
    host: *mut u64,
    len: usize,
}

impl Mailbox {
    /// Room for `len` numbers, all 0.
    pub(in super::super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, CudaError> {
        let len = len.max(1);
        let mut host: *mut c_void = null_mut();
        // SAFETY: the pointer is to a pointer that outlives the call.
        let result =
            unsafe { sys::cuMemAllocHost_v2(&raw mut host, len.saturating_mul(size_of::<u64>())) };
        check("cuMemAllocHost", result)?;
        let host: *mut u64 = host.cast();
        // SAFETY: it is that long, page-aligned, and not shared yet.
        unsafe { host.write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), host, len })
    }

    /// Its address, for kernels.
    pub(in super::super) fn address(&self) -> u64 {
        self.host as u64
    }

    fn cell(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: it is within the memory, aligned, and as long-lived; everybody here uses it by atomic operations.
        (index < self.len).then(|| unsafe { AtomicU64::from_ptr(self.host.add(index)) })
    }

    /// A number; 0 if there is none. What the device wrote before it can be read then, too.
    pub(in super::super) fn read(&self, index: usize) -> u64 {
        self.cell(index).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    /// Sets these to 0.
    pub(in super::super) fn clear(&self, indices: Range<usize>) {
        for index in indices {
            if let Some(cell) = self.cell(index) {
                cell.store(0, Ordering::Release);
            }
        }
    }
}

// SAFETY: as of streams; the memory is this one's own.
unsafe impl Send for Mailbox {}

impl Drop for Mailbox {
    fn drop(&mut self) {
        ignore_bind(&self.context);
        // SAFETY: allocated by `new` and freed once. The executor waits for its stream before it drops this; the driver
        // waits for the device, too.
        ignore(unsafe { sys::cuMemFreeHost(self.host.cast()) });
    }
}
