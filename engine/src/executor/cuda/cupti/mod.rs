//! CUPTI, NVIDIA's own profiling interface: an optional cross-check of device times.
//!
//! [`Cupti::start`] records every kernel of this process, including each kernel inside a graph, until
//! [`Cupti::finish`] returns the records. Brickscope's times come from its own marks, never from here;
//! the records are what they are compared with ([`Agreement`]). Recording costs time, and may go on doing so
//! afterwards, so it is off unless requested.

mod agreement;
mod library;

use std::collections::HashSet;
use std::sync::Arc;

pub use agreement::{Agreement, Apart, Pair, Recorded, Stamped, StampedPass};

use super::error::CudaError;
use library::Functions;

/// Why CUPTI can't record, in one line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence above each variant says what its fields are")]
pub enum CuptiError {
    /// There is no CUDA driver.
    #[error(transparent)]
    Driver(Box<CudaError>),

    /// The library isn't in any of the usual places.
    #[error(
        "found no libcupti.so: it is in the CUDA toolkit, or in pip's nvidia-cuda-cupti; BRICKSCOPE_CUPTI \
         may name its file"
    )]
    NoLibrary,

    /// The file that `BRICKSCOPE_CUPTI` names can't be loaded.
    #[error("BRICKSCOPE_CUPTI names {file}, which can't be loaded: {says}")]
    NoSuchLibrary { file: String, says: String },

    /// The library lacks a function.
    #[error("{file} has no `{symbol}`, so it is not a supported CUPTI")]
    NoSymbol { file: String, symbol: &'static str },

    /// The layout of this version's records isn't known.
    #[error(
        "CUPTI's version {version} is not supported, as the layout of its records is unknown; 18 to 28 (CUDA 12) \
         and 130000 to 130599 (CUDA 13.0 to 13.5) are"
    )]
    Version { version: u32 },

    /// A call failed.
    #[error("CUPTI: {call} failed with error {code}: {says}")]
    Call { call: &'static str, code: u32, says: String },

    /// It is already in use; a process has only one.
    #[error("CUPTI is already recording in this process")]
    Busy,
}

/// A kernel that ran, as CUPTI recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRecord {
    /// Its name.
    pub name: Arc<str>,
    /// When it began, in nanoseconds of CUPTI's clock: [`Cupti::now_ns`].
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The correlation id of its launch.
    pub correlation: u32,
    /// Its node in a graph; `None` if it was launched by itself.
    pub graph_node: Option<u64>,
    /// The device's ordinal.
    pub device: u32,
    /// CUPTI's number for the stream.
    pub stream: u32,
}

impl KernelRecord {
    /// From begin to end, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What CUPTI recorded, and what it left out.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CuptiRecords {
    /// The version of CUPTI's interface: 18 to 28, or 130000 and more.
    pub version: u32,
    /// Kernels with their times, in order of their start.
    pub kernels: Vec<KernelRecord>,
    /// Records that CUPTI dropped for want of room, by its own count.
    pub dropped: u64,
    /// Whether CUPTI failed to say how many it dropped, at least once.
    pub is_count_unknown: bool,
    /// Kernels beyond the room given to [`Cupti::start`].
    pub beyond_room: u64,
    /// Kernels without times, or with an end before their start.
    pub untimed: u64,
    /// Records of other kinds, which weren't requested.
    pub other_kinds: u64,
    /// Buffers that could be read only in part.
    pub cut_short: u64,
}

impl CuptiRecords {
    /// Whether kernels may have run that aren't in `kernels`.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        let lost = [self.dropped, self.beyond_room, self.untimed, self.cut_short];
        self.is_count_unknown || lost.iter().any(|&n| n > 0)
    }
}

/// The most kernels that are kept: 1 GB of them.
const MAX_ROOM: usize = 1 << 24;

/// Where records go while CUPTI is on.
struct Sink {
    records: CuptiRecords,
    names: HashSet<Arc<str>>,
    room: usize,
}

impl Sink {
    fn new(version: u32, room: usize) -> Self {
        // Allocated now, so that nothing grows while kernels run.
        let room = room.min(MAX_ROOM);
        let kernels = Vec::with_capacity(room);
        let records = CuptiRecords { version, kernels, ..CuptiRecords::default() };
        Self { records, names: HashSet::new(), room }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a record, as they are read")]
    fn add(
        &mut self,
        name: &str,
        start_ns: u64,
        end_ns: u64,
        device: u32,
        stream: u32,
        correlation: u32,
        node: u64,
    ) {
        // CUPTI writes zeros if it had no memory on the device for the times.
        if start_ns == 0 || end_ns < start_ns {
            self.records.untimed += 1;
            return;
        }
        if self.records.kernels.len() >= self.room {
            self.records.beyond_room += 1;
            return;
        }
        let name = match self.names.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let name: Arc<str> = name.into();
                self.names.insert(Arc::clone(&name));
                name
            }
        };
        let graph_node = (node != 0).then_some(node);
        let record =
            KernelRecord { name, start_ns, end_ns, correlation, graph_node, device, stream };
        self.records.kernels.push(record);
    }
}

/// CUPTI, recording the kernels of this process.
///
/// Executors that are made after it are recorded completely. Those made before may be recorded in part or not
/// at all, as CUPTI has to see graphs being made.
#[must_use = "it records until it is dropped"]
pub struct Cupti {
    functions: &'static Functions,
    is_on: bool,
}

impl std::fmt::Debug for Cupti {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cupti").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Cupti {
    /// Loads CUPTI and starts to record up to `room` kernels (56 bytes each).
    ///
    /// The library is the one that the environment variable `BRICKSCOPE_CUPTI` names; otherwise libcupti.so
    /// of the driver's version, if the loader finds it, or that in the toolkit at `CUDA_HOME`, `CUDA_PATH` or
    /// /usr/local/cuda.
    ///
    /// # Errors
    ///
    /// If there is none of a known version, or it can't record, for instance under another profiler.
    pub fn start(room: usize) -> Result<Self, CuptiError> {
        let functions = library::functions()?;
        {
            let mut sink = library::sink();
            if sink.is_some() {
                return Err(CuptiError::Busy);
            }
            *sink = Some(Sink::new(functions.version, room));
        }
        if let Err(error) = functions.begin() {
            *library::sink() = None;
            return Err(error);
        }
        Ok(Self { functions, is_on: true })
    }

    /// CUPTI_API_VERSION: 18 to 28 for CUDA 12, 130000 and more for CUDA 13.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.functions.version
    }

    /// The time now, in nanoseconds of the records' clock.
    ///
    /// # Errors
    ///
    /// If CUPTI fails.
    pub fn now_ns(&self) -> Result<u64, CuptiError> {
        self.functions.now_ns()
    }

    /// Makes CUPTI hand over the records of all kernels that are done. Call it before dropping executors.
    ///
    /// # Errors
    ///
    /// If CUPTI fails.
    pub fn flush(&self) -> Result<(), CuptiError> {
        self.functions.flush()
    }

    /// Ends the recording and returns the records. To get all kernels, wait for them first.
    ///
    /// # Errors
    ///
    /// If CUPTI fails to end it or to hand over its records.
    pub fn finish(mut self) -> Result<CuptiRecords, CuptiError> {
        self.is_on = false;
        let ended = self.functions.end();
        let sink = library::sink().take();
        ended?;
        let mut records = sink.map(|sink| sink.records).unwrap_or_default();
        // Buffers come in any order.
        records.kernels.sort_by_key(|record| (record.start_ns, record.end_ns));
        Ok(records)
    }
}

impl Drop for Cupti {
    fn drop(&mut self) {
        if self.is_on {
            // The error can't be returned from here.
            let _ = self.functions.end();
            *library::sink() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_counted() {
        let mut sink = Sink::new(28, 2);
        let mut add = |start, end| sink.add("gemv", start, end, 0, 7, 1, 0);
        add(10, 20);
        add(0, 0);
        add(30, 29);
        add(30, 40);
        add(50, 60);
        let CuptiRecords { kernels, beyond_room, untimed, .. } = &sink.records;
        assert_eq!((kernels.len(), *beyond_room, *untimed), (2, 1, 2));
        assert!(sink.records.has_gaps());
        assert!(Arc::ptr_eq(&kernels[0].name, &kernels[1].name));
        assert_eq!((kernels[1].duration_ns(), kernels[1].graph_node), (10, None));
    }

    #[test]
    fn a_reason_is_one_line() {
        let file = "/opt/libcupti.so".to_owned();
        for error in [
            CuptiError::NoLibrary,
            CuptiError::NoSuchLibrary { file: file.clone(), says: "no such file".to_owned() },
            CuptiError::NoSymbol { file, symbol: "cuptiActivityEnable" },
            CuptiError::Version { version: 17 },
            CuptiError::Call { call: "cuptiActivityEnable", code: 39, says: "busy".to_owned() },
            CuptiError::Busy,
        ] {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 160, "{text}");
        }
    }
}
