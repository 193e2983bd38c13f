//! What is timed, as ranges in NVIDIA's tools.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, PoisonError, RwLock};

use brickscope_profile::Absent;
use brickscope_profile::name::NameIdx;

use super::BrickProfiler;
use crate::names::Names;
use crate::nvtx;
use crate::recorder::{MarkRanges, Range};

/// # Ranges in other tools
impl BrickProfiler {
    /// From now on shows passes, layers, bricks and kernels as NVTX ranges, in the tool that started this program: in Nsight
    /// Systems they lie above the kernels that were launched in them. Needs no library: the tool brings its own, by
    /// `NVTX_INJECTION64_PATH`.
    ///
    /// A range begins before its span's clock is read and ends after it, so the tool's cost is in no brick, but in what lies
    /// around it. Timing a brick costs more meanwhile, as if [counters](Self::enable_counters) were read. A span that ends on
    /// another thread, or never, has a range up to the end of the one around it. What a [`DeviceTimer`](crate::DeviceTimer)
    /// times is a range while the host issues it.
    ///
    /// ```
    /// # use brickscope::BrickProfiler;
    /// # let profiler = BrickProfiler::enabled();
    /// if let Err(absent) = profiler.enable_nvtx() {
    ///     println!("{}", absent.reason); // no tool asks for ranges: …
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If no tool asks for ranges, or if its library can't be loaded.
    pub fn enable_nvtx(&self) -> Result<(), Absent> {
        nvtx::attach().map_err(|reason| Absent { reason })?;
        let names = Arc::clone(&self.names);
        self.recorder.mark(Arc::new(Ranges { names, texts: RwLock::default() }));
        Ok(())
    }

    /// From here on a brick of this name is issued on a stream of a device; or nothing.
    pub(crate) fn mark_issued(&self, stream: u16, name: Option<NameIdx>) {
        self.recorder.mark_issued(stream, name);
    }

    /// The same for all streams.
    pub(crate) fn mark_all_issued(&self) {
        self.recorder.mark_all_issued();
    }
}

/// The names of ranges.
#[derive(Debug)]
struct Ranges {
    names: Arc<RwLock<Names>>,
    /// Those that were used, as the tool takes them.
    texts: RwLock<HashMap<NameIdx, CString>>,
}

impl Ranges {
    fn push_name(&self, name: NameIdx) {
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts.get(&name) {
            nvtx::push(text);
            return;
        }
        drop(texts);
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        // A name that did not fit the table has no number of its own.
        let text = names.list.get(usize::from(name)).map_or("(other)", |of| of.name.as_str());
        let text = c_string(text);
        drop(names);
        nvtx::push(&text);
        self.texts.write().unwrap_or_else(PoisonError::into_inner).insert(name, text);
    }
}

impl MarkRanges for Ranges {
    fn begin(&self, range: Range) {
        match range {
            Range::Pass(phase) => nvtx::push(&c_string(phase.heading())),
            Range::Layer(layer) => nvtx::push(&c_string(&format!("layer {layer}"))),
            Range::Named(name) => self.push_name(name),
        }
    }

    fn end(&self) {
        nvtx::pop();
    }
}

/// A C string ends at its first zero.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}
