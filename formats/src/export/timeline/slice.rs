//! Tracks and slices, and what a format of timelines makes of them.

use std::io;

use brickscope_profile::{DeviceProfile, Launch, LaunchKind, Pass, Profile, Span};

/// Which tracks are shown together: 0 is the host, then come the devices.
pub(in crate::export) type Group = usize;

/// A track with slices.
#[derive(Debug, Clone)]
pub(in crate::export) struct Track {
    pub(in crate::export) group: Group,
    pub(in crate::export) name: String,
    /// The system's number of the thread, if no other track of the profile has it.
    pub(in crate::export) tid: Option<u32>,
    /// The track beside which this one lies, since their slices overlap.
    pub(in crate::export) beside: Option<u32>,
}

/// What a slice is of.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) enum What<'p> {
    Pass(&'p Pass),
    /// The span at this row of its table.
    Span(u32, &'p Span),
}

/// The begin of a slice.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct Slice<'p> {
    pub(in crate::export) track: u32,
    pub(in crate::export) start_ns: u64,
    pub(in crate::export) duration_ns: u64,
    pub(in crate::export) what: What<'p>,
    /// The arrow that begins or ends here.
    pub(in crate::export) flow: Option<Flow>,
    pub(in crate::export) launch: Option<Launched>,
    pub(in crate::export) is_on_host: bool,
}

/// When the host launched a span of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) struct Launched {
    pub(in crate::export) issued_ns: u64,
    /// From the launch to the begin of its slice.
    pub(in crate::export) delay_ns: i64,
    /// The most that this is off by, as far as the alignments of both clocks tell.
    pub(in crate::export) error_ns: Option<u64>,
    pub(in crate::export) kind: LaunchKind,
}

impl Launched {
    pub(super) fn new(profile: &Profile, group: Group, launch: &Launch, span: &Span) -> Self {
        let device = group.checked_sub(1).and_then(|nth| profile.devices.get(nth));
        let error_ns = device.and_then(DeviceProfile::clock_error_ns);
        let Launch { issued_ns, kind, .. } = *launch;
        Self { issued_ns, delay_ns: launch.delay_ns(span), error_ns, kind }
    }

    /// What is impossible about it: nothing truly begins before its launch.
    pub(in crate::export) fn oddity(&self) -> Option<&'static str> {
        let is_within_error =
            self.error_ns.is_some_and(|error| self.delay_ns.unsigned_abs() <= error);
        match (self.delay_ns < 0, is_within_error) {
            (false, _) => None,
            (true, true) => Some("begins before its launch, within the error of the clocks"),
            (true, false) => Some(
                "begins before its launch, by more than the error of the clocks when they were aligned",
            ),
        }
    }
}

/// An end of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) struct Flow {
    pub(in crate::export) id: u64,
    pub(in crate::export) is_end: bool,
}

/// A figure of a pass, plotted where the pass begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum Counter {
    TokensPerSecond,
    Position,
    GigabytesPerSecond,
}

impl Counter {
    pub(in crate::export) fn name(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens/s of the pass",
            Self::Position => "tokens in the KV cache",
            Self::GigabytesPerSecond => "GB/s of stated bytes",
        }
    }

    pub(in crate::export) fn unit(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens/s",
            Self::Position => "tokens",
            Self::GigabytesPerSecond => "GB/s",
        }
    }
}

/// A format of timelines.
pub(in crate::export) trait Sink {
    /// Announces a track before its first slice; called once in each part.
    fn track(&mut self, id: u32, track: &Track) -> io::Result<()>;
    /// Begins a slice. The slices of a track come in the order in which they begin.
    fn begin(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    /// Ends the innermost open slice of the track.
    fn end(&mut self, track: u32, at_ns: u64) -> io::Result<()>;
    /// The host launched a span, on a track of launches; `id` is that of the arrow from there.
    fn launch(
        &mut self,
        track: u32,
        launch: &Launched,
        span: &Span,
        id: Option<u64>,
    ) -> io::Result<()>;
    /// Work was handed off: the track and time, from and to.
    fn hand_off(&mut self, id: u64, from: (u32, u64), to: (u32, u64)) -> io::Result<()>;
    fn counter(&mut self, group: Group, what: Counter, at_ns: u64, value: f64) -> io::Result<()>;
    /// Bytes written of this part.
    fn bytes(&self) -> u64;
}
