//! Frames: made while somebody watches, each once for all who do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use brickscope::{BrickProfiler, BrickStats, Histogram, Profile, Total};

use super::{Delta, Frame, LiveError, MOST_LINE, Message};

/// A frame younger than this is sent to a second watcher as it is, so that more watchers make no more work.
const FRESH: Duration = Duration::from_millis(40);
/// How often bricks by layer, kernels by brick and percentiles are in a frame: nobody reads them faster.
const DETAILS_EVERY: Duration = Duration::from_secs(1);
/// How often a frame is sent whole at least. Those between say what became another: names, which are most of a
/// frame, stay.
const WHOLE_EVERY: Duration = Duration::from_secs(5);

/// How an engine stands, as lines. Whoever has the whole frame takes the difference only.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    pub(super) seq: u64,
    pub(super) whole_seq: u64,
    pub(super) whole: Arc<Vec<u8>>,
    /// What differs from it, unless it is the newest.
    pub(super) delta: Option<Arc<Vec<u8>>>,
    /// The line is none of a frame.
    pub(super) is_error: bool,
}

/// Makes frames, each once for all who watch.
#[derive(Debug, Default)]
pub(super) struct Maker {
    /// Whoever sums layers for us.
    sums: Option<Arc<BrickProfiler>>,
    made: Duration,
    last_at: Option<Instant>,
    details_at: Option<Instant>,
    whole_at: Option<Instant>,
    is_last: bool,
    /// The newest that was sent whole.
    whole: Option<Frame>,
    news: News,
}

impl Maker {
    /// Somebody has come who knows none of what isn't in every frame.
    pub(super) fn greet(&mut self) {
        (self.last_at, self.details_at, self.whole_at) = (None, None, None);
    }

    /// Nobody watches any more: what was done for watchers alone ends.
    pub(super) fn rest(&mut self) {
        if let Some(profiler) = self.sums.take() {
            profiler.sum_layers(false);
        }
    }

    /// The newest frame; made anew if it is no longer fresh. The `last` one is made once.
    pub(super) fn news(&mut self, profiler: &Arc<BrickProfiler>, last: bool) -> News {
        let now = Instant::now();
        let is_due =
            |at: Option<Instant>, every| at.is_none_or(|at| now.duration_since(at) >= every);
        if self.is_last || !last && !is_due(self.last_at, FRESH) {
            return self.news.clone();
        }
        self.is_last = last;
        let at_ns = profiler.clock().now();
        // Another one may record than before.
        if !self.sums.as_ref().is_some_and(|before| Arc::ptr_eq(before, profiler)) {
            self.rest();
            profiler.sum_layers(true);
            self.sums = Some(Arc::clone(profiler));
            self.whole_at = None;
        }
        let is_whole = last || is_due(self.whole_at, WHOLE_EVERY);
        let details = is_whole || is_due(self.details_at, DETAILS_EVERY);
        let mut profile = light(match details {
            true => profiler.snapshot(),
            false => profiler.snapshot_without_details(),
        });
        // How far it has come apart from the system's is another at each look.
        if let Some(whole) = self.whole.as_ref().filter(|_| !is_whole) {
            profile.clock.clone_from(&whole.profile.clock);
        }
        let seq = self.news.seq + 1;
        let made_ns = u64::try_from(self.made.as_nanos()).unwrap_or(u64::MAX);
        let frame = Frame { seq, at_ns, made_ns, last, profile, details };
        if is_whole {
            self.whole = None;
            self.whole_at = Some(now);
        }
        if let Err(error) = self.put(frame) {
            let line = Arc::new(line_of_error(&error.to_string()));
            self.news = News { seq, whole_seq: seq, whole: line, delta: None, is_error: true };
        }
        if details {
            self.details_at = Some(now);
        }
        let end = Instant::now();
        self.last_at = Some(end);
        self.made += end.duration_since(now);
        self.news.clone()
    }

    /// Has `frame` be the news: as a difference if it can be.
    fn put(&mut self, frame: Frame) -> Result<(), LiveError> {
        let seq = frame.seq;
        let found = match &self.whole {
            Some(whole) => Delta::between(whole, frame),
            None => Err(Box::new(frame)),
        };
        match found {
            Ok(delta) => {
                let line = line_of(&Message::Delta(Box::new(delta)))?;
                (self.news.seq, self.news.delta) = (seq, Some(Arc::new(line)));
            }
            Err(frame) => {
                let message = Message::Frame(frame);
                let whole = Arc::new(line_of(&message)?);
                self.news = News { seq, whole_seq: seq, whole, delta: None, is_error: false };
                if let Message::Frame(frame) = message {
                    self.whole = Some(*frame);
                }
            }
        }
        Ok(())
    }
}

/// A snapshot without what no view of a running engine needs.
fn light(mut profile: Profile) -> Profile {
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

/// A message as a line; an error if nobody would read one so long.
pub(super) fn line_of(message: &Message) -> Result<Vec<u8>, LiveError> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| LiveError::Malformed { line: 0, why: error.to_string() })?;
    line.push(b'\n');
    if line.len() > MOST_LINE {
        let why = format!("a line of {} bytes, more than watchers read", line.len());
        return Err(LiveError::Malformed { line: 0, why });
    }
    Ok(line)
}

/// The line that says why there is no other.
pub(super) fn line_of_error(why: &str) -> Vec<u8> {
    line_of(&Message::Error(why.to_owned())).unwrap_or_else(|_| b"{\"error\":\"\"}\n".to_vec())
}
