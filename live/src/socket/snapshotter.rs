//! Takes snapshots for watchers: each frame is made once, and only while somebody watches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, BrickStats, Histogram, Profile, Total};
use brickscope_analysis::requests::Now;

use super::{Delta, Frame, LiveError, MOST_LINE, Message};

/// A frame younger than this is sent to further watchers as it is, so that they cost no further snapshots.
const FRESH: Duration = Duration::from_millis(40);
/// How often a frame has details: bricks by layer, kernels by brick and percentiles. Nobody reads them faster.
const DETAILS_EVERY: Duration = Duration::from_secs(1);
/// How often at least a frame is sent whole. The frames between are differences, without the names that make up
/// most of a frame.
const WHOLE_EVERY: Duration = Duration::from_secs(5);
/// Of how much of the time requests are looked at, at most: where there are many, that takes longer.
const LOOKED_AT_ONE_OF: u32 = 100;

/// The newest frame as lines of JSON: whole, and as a difference for watchers that have the whole one.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    pub(super) seq: u64,
    pub(super) whole_seq: u64,
    pub(super) whole: Arc<Vec<u8>>,
    /// The difference from `whole`; `None` while `whole` is the newest.
    pub(super) delta: Option<Arc<Vec<u8>>>,
    /// The line is an error instead of a frame.
    pub(super) is_error: bool,
}

/// Makes frames, each once for all watchers.
#[derive(Debug, Default)]
pub(super) struct Snapshotter {
    /// The profiler that sums layers for us.
    sums: Option<Arc<BrickProfiler>>,
    made: Duration,
    last_at: Option<Instant>,
    details_at: Option<Instant>,
    whole_at: Option<Instant>,
    /// The requests as they were when somebody last looked, and when to look again.
    requests: Option<Now>,
    look_at: Option<Instant>,
    is_last: bool,
    /// The newest frame that was sent whole.
    whole: Option<Frame>,
    latest: Latest,
}

impl Snapshotter {
    /// Makes the next frame whole: the new watcher has none to apply a difference to.
    pub(super) fn watcher_joined(&mut self) {
        (self.last_at, self.details_at, self.whole_at) = (None, None, None);
    }

    /// Ends what is only done while somebody watches.
    pub(super) fn watchers_gone(&mut self) {
        if let Some(profiler) = self.sums.take() {
            profiler.sum_layers(false);
        }
        (self.requests, self.look_at) = (None, None);
    }

    /// The newest frame, made anew if it is older than [`FRESH`]. The `last` frame is made once.
    pub(super) fn latest(&mut self, profiler: &Arc<BrickProfiler>, last: bool) -> Latest {
        let now = Instant::now();
        let is_due =
            |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        if self.is_last || !last && !is_due(self.last_at, FRESH) {
            return self.latest.clone();
        }
        self.is_last = last;
        let at_ns = profiler.clock().now();
        // Engines may use several profilers in turn.
        if !self.sums.as_ref().is_some_and(|before| Arc::ptr_eq(before, profiler)) {
            self.watchers_gone();
            profiler.sum_layers(true);
            self.sums = Some(Arc::clone(profiler));
            self.whole_at = None;
        }
        let is_whole = last || is_due(self.whole_at, WHOLE_EVERY);
        let details = is_whole || is_due(self.details_at, DETAILS_EVERY);
        let mut profile = without_unused(match details {
            true => profiler.snapshot(),
            false => profiler.snapshot_without_details(),
        });
        // The clock's drift from the system clock differs at each reading, which would rule out a difference.
        if let Some(whole) = self.whole.as_ref().filter(|_| !is_whole) {
            profile.clock.clone_from(&whole.profile.clock);
        }
        let seq = self.latest.seq + 1;
        let made_ns = u64::try_from(self.made.as_nanos()).unwrap_or(u64::MAX);
        let requests = if details { self.requests(profiler, last) } else { None };
        let frame = Frame { seq, at_ns, made_ns, last, profile, details, requests };
        if is_whole {
            self.whole = None;
            self.whole_at = Some(now);
        }
        if let Err(error) = self.put(frame) {
            let line = Arc::new(line_of_error(&error.to_string()));
            self.latest = Latest { seq, whole_seq: seq, whole: line, delta: None, is_error: true };
        }
        if details {
            self.details_at = Some(now);
        }
        let end = Instant::now();
        self.last_at = Some(end);
        self.made += end.duration_since(now);
        self.latest.clone()
    }

    /// The requests, looked at anew if that is due; always in the last frame.
    fn requests(&mut self, profiler: &BrickProfiler, last: bool) -> Option<Now> {
        let begin = Instant::now();
        if last || self.look_at.is_none_or(|at| begin >= at) {
            let lately = profiler.requests().lately();
            self.requests = lately.map(|lately| Now::of(&lately, profiler.clock().now()));
            let end = Instant::now();
            self.look_at = Some(end + LOOKED_AT_ONE_OF * end.duration_since(begin));
        }
        self.requests.clone()
    }

    /// Makes `frame` the latest: as a difference if possible, otherwise whole.
    fn put(&mut self, frame: Frame) -> Result<(), LiveError> {
        let seq = frame.seq;
        let found = match &self.whole {
            Some(whole) => Delta::between(whole, frame),
            None => Err(Box::new(frame)),
        };
        match found {
            Ok(delta) => {
                let line = line_of(&Message::Delta(Box::new(delta)))?;
                (self.latest.seq, self.latest.delta) = (seq, Some(Arc::new(line)));
            }
            Err(frame) => {
                let message = Message::Frame(frame);
                let whole = Arc::new(line_of(&message)?);
                self.latest = Latest { seq, whole_seq: seq, whole, delta: None, is_error: false };
                if let Message::Frame(frame) = message {
                    self.whole = Some(*frame);
                }
            }
        }
        Ok(())
    }
}

/// Removes the parts of a snapshot that no live view needs.
fn without_unused(mut profile: Profile) -> Profile {
    without_histograms(&mut profile.totals);
    for device in &mut profile.devices {
        device.streams.iter_mut().for_each(|stream| without_histograms(&mut stream.totals));
    }
    profile
}

fn without_histograms(totals: &mut [Total]) {
    for BrickStats { histogram, .. } in totals.iter_mut().map(|total| &mut total.stats) {
        *histogram = Histogram::default();
    }
}

/// A message as a line; an error if it is longer than watchers read.
pub(super) fn line_of(message: &Message) -> Result<Vec<u8>, LiveError> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
    line.push(b'\n');
    if line.len() > MOST_LINE {
        let why = format!("a line of {} bytes, longer than watchers read", line.len());
        return Err(LiveError::Malformed { line: 0, why });
    }
    Ok(line)
}

/// The line for an error.
pub(super) fn line_of_error(why: &str) -> Vec<u8> {
    line_of(&Message::Error(why.to_owned())).unwrap_or_else(|_| b"{\"error\":\"\"}\n".to_vec())
}
