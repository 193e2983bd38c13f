//! What CUPTI records, and which calls to it are legal: everything but the foreign functions themselves.

use std::collections::HashMap;
use std::ffi::CString;

use crate::driver::{Answer, Fault};
use crate::launch::Launch;

/// Codes of cupti_result.h.
pub(crate) const MAX_LIMIT_REACHED: u32 = 12;

/// Kinds of cupti_activity.h.
const KERNEL: u32 = 3;
pub(crate) const CONCURRENT_KERNEL: u32 = 10;
const GRAPH_TRACE: u32 = 51;

/// A kind that doesn't exist; each buffer begins with such a record.
pub(crate) const STRANGER: u32 = 4242;

/// Bytes of such a record.
pub(crate) const STRANGER_BYTES: usize = 40;

/// The first version in which a program may provide no buffer; earlier ones usually crash.
const MAY_BE_DECLINED: u32 = 27;

/// What tests set, by environment variables.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) version: u32,
    /// Records of kernels in a buffer, at most.
    pub(crate) per_buffer: usize,
    /// The record, from 1 on, that is dropped.
    pub(crate) drop: Option<u64>,
    /// The record, from 1 on, that has no times.
    pub(crate) untimed: Option<u64>,
    /// A kernel, and by how many percent its records are longer than it ran: they begin earlier.
    pub(crate) stretch: Option<(String, u64)>,
    /// The code that enabling returns.
    pub(crate) refuse: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        let per_buffer = 64;
        Self { version: 28, per_buffer, drop: None, untimed: None, stretch: None, refuse: None }
    }
}

/// A kernel that ran.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// The address of its name, which stays for ever.
    pub(crate) name: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u32,
    /// 0 outside of graphs.
    pub(crate) node: u64,
    pub(crate) stream: u32,
    pub(crate) launch: Launch,
}

/// CUPTI: one for the process.
#[derive(Default)]
pub(crate) struct Cupti {
    pub(crate) settings: Settings,
    has_callbacks: bool,
    is_enabled: bool,
    is_delivering: bool,
    seen: u64,
    dropped: u64,
    /// Of launches so far.
    correlation: u32,
    names: HashMap<String, CString>,
    records: Vec<Record>,
}

fn illegal<T>(what: impl Into<String>) -> Answer<T> {
    Err(Fault::Illegal(what.into()))
}

impl Cupti {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(crate) fn register(&mut self, has_both: bool) -> Answer {
        if !has_both {
            return illegal("cuptiActivityRegisterCallbacks without both callbacks");
        }
        self.has_callbacks = true;
        Ok(())
    }

    pub(crate) fn enable(&mut self, kind: u32) -> Answer {
        if let Some(code) = self.settings.refuse {
            return Err(Fault::Code(code));
        }
        match kind {
            GRAPH_TRACE => {
                return illegal("cuptiActivityEnable of whole graphs hides their kernels");
            }
            KERNEL => return illegal("cuptiActivityEnable of kernels one after the other"),
            CONCURRENT_KERNEL => {}
            other => return illegal(format!("cuptiActivityEnable of kind {other}")),
        }
        if !self.has_callbacks {
            return illegal("cuptiActivityEnable with nobody to hand out buffers");
        }
        if self.is_enabled {
            return illegal("cuptiActivityEnable of what is enabled");
        }
        self.is_enabled = true;
        Ok(())
    }

    pub(crate) fn disable(&mut self, kind: u32) -> Answer {
        if kind != CONCURRENT_KERNEL || !self.is_enabled {
            return illegal(format!("cuptiActivityDisable of kind {kind}, which nobody enabled"));
        }
        self.is_enabled = false;
        Ok(())
    }

    /// A launch: of a kernel, or of a graph with all its kernels.
    pub(crate) fn launched(&mut self) {
        self.correlation += 1;
    }

    /// A kernel has run.
    pub(crate) fn ran(
        &mut self,
        kernel: &str,
        launch: &Launch,
        stream: u64,
        node: u64,
        (start, end): (u64, u64),
    ) {
        if !self.is_enabled {
            return;
        }
        self.seen += 1;
        if self.settings.drop == Some(self.seen) {
            self.dropped += 1;
            return;
        }
        let name = self.names.entry(kernel.to_owned());
        let name = name.or_insert_with(|| CString::new(kernel).unwrap_or_default());
        let longer = match &self.settings.stretch {
            Some((of, percent)) if of == kernel => (end - start) * percent / 100,
            _ => 0,
        };
        let (start, end) = match self.settings.untimed {
            Some(nth) if nth == self.seen => (0, 0),
            // The check compares begins, which are what stamps note.
            _ => (start.saturating_sub(longer), end),
        };
        self.records.push(Record {
            name: name.as_ptr() as u64,
            start,
            end,
            correlation: self.correlation,
            node,
            stream: stream as u32,
            launch: launch.clone(),
        });
    }

    /// The buffers to deliver, the last first.
    pub(crate) fn flush(&mut self) -> Answer<Vec<Vec<Record>>> {
        if self.is_delivering {
            return illegal("cuptiActivityFlushAll from a callback of a buffer");
        }
        if !self.has_callbacks {
            return illegal("cuptiActivityFlushAll with nobody to hand out buffers");
        }
        self.is_delivering = true;
        let records = std::mem::take(&mut self.records);
        let buffers = records.chunks(self.settings.per_buffer.max(1));
        Ok(buffers.map(<[Record]>::to_vec).collect())
    }

    pub(crate) fn delivered(&mut self) -> Answer {
        self.is_delivering = false;
        Ok(())
    }

    /// A buffer for `wanted` records was asked for, and this is it; whether they fit.
    pub(crate) fn requested(&mut self, buffer: u64, size: usize, wanted: usize) -> Answer<bool> {
        if buffer == 0 {
            if self.settings.version < MAY_BE_DECLINED {
                return illegal("no buffer for a CUPTI older than 12.9, which crashes without");
            }
            self.dropped += wanted as u64;
            return Ok(false);
        }
        if !buffer.is_multiple_of(8) {
            return illegal("a buffer for CUPTI that is not aligned to 8 bytes");
        }
        if size < STRANGER_BYTES + wanted * self.record_bytes() {
            return illegal(format!("a buffer for CUPTI of {size} bytes"));
        }
        Ok(true)
    }

    pub(crate) fn take_dropped(&mut self) -> Answer<u64> {
        Ok(std::mem::take(&mut self.dropped))
    }

    /// Bytes of a kernel's record, by the headers.
    pub(crate) fn record_bytes(&self) -> usize {
        match self.settings.version {
            0..=99 => 208,
            100..130_100 => 216,
            130_100..130_300 => 224,
            130_300..130_400 => 232,
            _ => 248,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T: std::fmt::Debug>(answer: Answer<T>) -> String {
        match answer {
            Err(Fault::Illegal(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    fn launch() -> Launch {
        let one = (1, 1, 1);
        Launch { function: 1, grid: one, block: one, shared: 0, values: Vec::new() }
    }

    /// One that records, with these settings.
    fn cupti(settings: Settings) -> Cupti {
        let mut cupti = Cupti::new(settings);
        cupti.register(true).expect("both are there");
        cupti.enable(CONCURRENT_KERNEL).expect("somebody hands out buffers");
        cupti
    }

    #[test]
    fn nothing_is_recorded_without_somebody_who_hands_out_buffers() {
        let mut cupti = Cupti::default();
        assert!(said(cupti.register(false)).contains("without both"));
        assert!(said(cupti.enable(CONCURRENT_KERNEL)).contains("nobody to hand out"));
        assert!(said(cupti.flush()).contains("nobody to hand out"));
        cupti.register(true).expect("both are there");
        assert!(said(cupti.disable(CONCURRENT_KERNEL)).contains("nobody enabled"));
        cupti.ran("gemv", &launch(), 1, 0, (10, 20));
        assert_eq!(cupti.flush(), Ok(Vec::new()), "it was not enabled");
    }

    #[test]
    fn what_hides_kernels_or_changes_how_they_run_is_illegal() {
        let mut cupti = Cupti::default();
        cupti.register(true).expect("both are there");
        assert!(said(cupti.enable(GRAPH_TRACE)).contains("hides"));
        assert!(said(cupti.enable(KERNEL)).contains("one after the other"));
        cupti.enable(CONCURRENT_KERNEL).expect("it is legal");
        assert!(said(cupti.enable(CONCURRENT_KERNEL)).contains("is enabled"));
    }

    #[test]
    fn nobody_flushes_from_a_callback() {
        let mut cupti = cupti(Settings::default());
        cupti.flush().expect("it is legal");
        assert!(said(cupti.flush()).contains("from a callback"));
        cupti.delivered().expect("it was flushed");
        cupti.flush().expect("it is legal");
    }

    #[test]
    fn a_buffer_is_aligned_and_an_old_cupti_gets_one() {
        let mut new = cupti(Settings::default());
        assert_eq!(new.requested(64, 1 << 20, 9), Ok(true));
        assert_eq!(new.requested(0, 0, 9), Ok(false));
        assert_eq!(new.take_dropped(), Ok(9));
        assert_eq!(new.take_dropped(), Ok(0), "it was told");
        assert!(said(new.requested(68, 1 << 20, 9)).contains("aligned"));
        assert!(said(new.requested(64, 100, 9)).contains("100 bytes"));
        let mut old = cupti(Settings { version: 26, ..Settings::default() });
        assert!(said(old.requested(0, 0, 9)).contains("crashes"));
    }

    #[test]
    fn records_are_planted_as_they_are_asked_for() {
        let mut cupti = cupti(Settings {
            drop: Some(2),
            untimed: Some(3),
            stretch: Some(("gemv".to_owned(), 10)),
            per_buffer: 2,
            ..Settings::default()
        });
        cupti.launched();
        for at in [100, 200, 300, 400] {
            cupti.ran("gemv", &launch(), 1, 0, (at, at + 50));
        }
        cupti.ran("add", &launch(), 1, 0, (500, 550));
        let buffers = cupti.flush().expect("it is legal");
        let times: Vec<Vec<(u64, u64)>> = buffers
            .iter()
            .map(|buffer| buffer.iter().map(|r| (r.start, r.end)).collect())
            .collect();
        assert_eq!(times, [vec![(95, 150), (0, 0)], vec![(395, 450), (500, 550)]]);
        assert_eq!(cupti.take_dropped(), Ok(1));
        assert!(buffers.iter().flatten().all(|record| record.correlation == 1));
    }
}
