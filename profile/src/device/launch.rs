//! When the host launched the work of a device.

use serde::{Deserialize, Serialize};

use crate::device::{DeviceProfile, DeviceStream};
use crate::span::Span;

/// How a launch got to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchKind {
    /// It was put into the stream by itself, right after the reading.
    #[default]
    Issued,
    /// It was written into a list of commands right after the reading. The host submitted the whole list
    /// later, at an unknown time.
    Recorded,
    /// It is part of a recorded pass that was replayed, such as a CUDA graph. The host launched the whole pass
    /// at once, so there is one reading for all of it.
    Replayed,
}

impl LaunchKind {
    /// Every kind. In files, a launch has the index of its kind in this array.
    #[doc(hidden)]
    pub const ALL: [Self; 3] = [Self::Issued, Self::Recorded, Self::Replayed];

    /// The name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Issued => "by itself",
            Self::Recorded => "recorded, submitted later",
            Self::Replayed => "as part of a graph",
        }
    }
}

/// When the host launched a kernel, or a brick that has no kernels with times of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// What was launched: the row of its span in the stream's table.
    pub span: u32,
    /// A reading of the host's clock, taken before the mark at which the span begins was put into the
    /// stream. So no span truly begins before its launch.
    pub issued_ns: u64,
    /// How it got to the device.
    pub kind: LaunchKind,
}

impl Launch {
    /// From the launch to the begin of its span, as accurately as the two clocks are aligned. Negative if the
    /// error of the alignment exceeds the true time. See
    /// [`DeviceProfile::clock_error_ns`](crate::DeviceProfile::clock_error_ns).
    #[must_use]
    pub fn delay_ns(&self, span: &Span) -> i64 {
        let delay = i128::from(span.start_ns) - i128::from(self.issued_ns);
        delay.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// So well are the clocks of host and device aligned in another program's file.
const ALIGNED_NS: i64 = 10_000;
/// Clocks that were aligned drift apart by less than this.
const FAR_NS: i64 = 1_000_000;
/// Nothing waits so long in a queue while somebody records it: an hour.
const LONGEST_DELAY_NS: i64 = 3_600_000_000_000;

/// What was launched, and how much of it began when it can't have, if both clocks were right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockMisfits {
    /// What has a launch.
    pub launched: u64,
    /// What begins before its launch.
    pub before: u64,
    /// What begins more than a millisecond before it.
    pub far_before: u64,
    /// What begins more than an hour after it.
    pub long_after: u64,
}

impl ClockMisfits {
    /// Whether no time of the device can be compared with one of the host. A few that are little too early say nothing of the
    /// others.
    #[must_use]
    pub const fn any(self) -> bool {
        let is_often = self.before.saturating_mul(100) > self.launched;
        self.far_before > 0 || self.long_after > 0 || is_often
    }
}

impl DeviceProfile {
    /// How the device's times lie to those of the launches, in a file of another program, which has aligned the clocks. A
    /// device of a recorder states how well they are aligned: [`DeviceProfile::clock_error_ns`].
    #[must_use]
    pub fn clock_misfits(&self) -> ClockMisfits {
        let mut misfits = ClockMisfits::default();
        for stream in &self.streams {
            for launch in &stream.launches {
                let Some(span) = stream.spans.get(launch.span as usize) else { continue };
                let delay = launch.delay_ns(span);
                misfits.launched += 1;
                misfits.before += u64::from(delay < -ALIGNED_NS);
                misfits.far_before += u64::from(delay < -FAR_NS);
                misfits.long_after += u64::from(delay > LONGEST_DELAY_NS);
            }
        }
        misfits
    }
}

impl DeviceStream {
    /// The launch of the span at this row. `None` for layers, for bricks whose kernels have launches, and in
    /// profiles that were written when launches were not recorded.
    #[must_use]
    pub fn launch_of(&self, row: u32) -> Option<&Launch> {
        launch_of(&self.launches, row)
    }
}

/// `launches` are sorted by row.
pub fn launch_of(launches: &[Launch], row: u32) -> Option<&Launch> {
    let at = launches.binary_search_by_key(&row, |launch| launch.span).ok()?;
    launches.get(at)
}

/// Launches as a table, as spans are one.
pub(crate) mod launch_table {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Launch, LaunchKind};

    const COLUMNS: [&str; 3] = ["span", "issued_ns", "kind"];

    #[derive(Serialize)]
    struct Written<'a> {
        columns: [&'a str; 3],
        kinds: [LaunchKind; 3],
        rows: Vec<(u32, u64, u8)>,
    }

    #[derive(Deserialize)]
    struct Read {
        columns: Vec<String>,
        kinds: Vec<LaunchKind>,
        rows: Vec<(u32, u64, u8)>,
    }

    pub(crate) fn serialize<S: Serializer>(launches: &[Launch], to: S) -> Result<S::Ok, S::Error> {
        let row = |launch: &Launch| (launch.span, launch.issued_ns, launch.kind as u8);
        let rows = launches.iter().map(row).collect();
        Written { columns: COLUMNS, kinds: LaunchKind::ALL, rows }.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Launch>, D::Error> {
        let Read { columns, kinds, rows } = Read::deserialize(from)?;
        if columns != COLUMNS {
            return Err(D::Error::custom(format!("launches have the columns {columns:?}")));
        }
        let mut newest: Option<u32> = None;
        let launch = |(nth, (span, issued_ns, kind)): (usize, (u32, u64, u8))| {
            if newest.replace(span).is_some_and(|before| before >= span) {
                let why = format!("launch {nth} is of span {span}, out of order");
                return Err(D::Error::custom(why));
            }
            let kind = kinds.get(usize::from(kind)).copied().ok_or_else(|| {
                D::Error::custom(format!("launch {nth} is of kind {kind}, of {kinds:?}"))
            })?;
            Ok(Launch { span, issued_ns, kind })
        };
        rows.into_iter().enumerate().map(launch).collect()
    }
}
