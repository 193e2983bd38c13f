//! Metrics, stacks and requests, pushed to an OpenTelemetry collector by OTLP/HTTP: protocol buffers, compressed by gzip.
//!
//! [`Collector::push`] sends a finished profile, and [`Pusher`] the metrics of an engine while it runs. A failed
//! request is sent again as the protocol asks, until [`Settings::timeout`] is over. docs/export.md lists what is sent.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use brickscope::BrickProfiler;
//! use brickscope_live::otlp::{Collector, Pusher, Settings};
//!
//! let profiler = Arc::new(BrickProfiler::new());
//! let collector = Collector::new("http://localhost:4318", Settings::from_env()?)?;
//! let snapshot = {
//!     let profiler = Arc::clone(&profiler);
//!     move || profiler.snapshot()
//! };
//! let pusher = Pusher::start(Arc::new(collector), Duration::from_secs(10), snapshot)?;
//! profiler.enable();
//! // … the engine runs …
//! let tally = pusher.finish();
//! println!("{} pushed, {} dropped", tally.pushed, tally.dropped);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pusher;
mod send;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use brickscope::Profile;
use brickscope_analysis::stacks::Stacks;
use brickscope_formats::export::otlp::{
    self, METRICS_PATH, Origin, PROFILES_PATH, Spans, TRACES_PATH,
};

pub use self::pusher::{Pusher, Tally};
pub use self::settings::Settings;

/// Why nothing can be pushed, or why a push failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The URL is not a collector's.
    #[error("{url}: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An environment variable has a value that can't be used.
    #[error("{name}: {reason}")]
    Variable {
        /// The variable's name.
        name: &'static str,
        /// What is wrong with it, without the value, which may be secret.
        reason: String,
    },
    /// There was no answer.
    #[error("{reason}{hint}{}", how_often(*.tries))]
    NoAnswer {
        /// What happened.
        reason: String,
        /// What it may come from; empty if that isn't known.
        hint: &'static str,
        /// How often it was tried.
        tries: u32,
    },
    /// The collector refused the request.
    #[error("it answered with status {status}{}{}", after_colon(.reason), how_often(*.tries))]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The collector's words; empty if it gave none.
        reason: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The answer was not OTLP's.
    #[error("it answered with status {status}, but not as a collector does: {reason}")]
    NotOtlp {
        /// The status of HTTP.
        status: u16,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A request is larger than the protocol allows.
    #[error(
        "a request would have {bytes} bytes, and collectors take at most {}",
        send::MOST_REQUEST
    )]
    TooLarge {
        /// Its size before compression.
        bytes: usize,
    },
}

fn how_often(tries: u32) -> String {
    if tries > 1 { format!(" ({tries} tries)") } else { String::new() }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// A collector that runs are pushed to.
#[derive(Debug)]
pub struct Collector {
    url: String,
    settings: Settings,
    agent: ureq::Agent,
    sent: Mutex<Sent>,
}

/// The period of what was sent last.
#[derive(Debug, Default)]
struct Sent {
    /// The first anchor of the profile's clock, which tells one profiler from the next.
    anchor: Option<u64>,
    start: Option<u64>,
    end: Option<u64>,
}

/// What a collector took.
#[derive(Debug, Default)]
pub struct Pushed {
    /// Data points of metrics that were sent.
    pub points: u64,
    /// Those of them that the collector rejected.
    pub rejected: u64,
    /// What became of the stacks, which are profiles.
    pub stacks: PushedSignal,
    /// What became of the requests of a server, which are spans.
    pub spans: PushedSignal,
    /// Requests of a server without spans: they hadn't ended.
    pub without_spans: u64,
    /// What the collector said besides, such as why it rejected something.
    pub messages: Vec<String>,
}

/// What became of a signal beside the metrics.
#[derive(Debug, Default)]
pub enum PushedSignal {
    /// There was nothing of it.
    #[default]
    None,
    /// So much was sent, of which the collector rejected some.
    Sent {
        /// Profiles or spans that were sent.
        items: u64,
        /// Those of them that the collector rejected.
        rejected: u64,
    },
    /// The collector doesn't take this signal.
    NotTaken,
    /// Nobody knows when it was in the calendar, to the nanosecond.
    NoTime,
    /// It couldn't be sent.
    Failed(OtlpError),
}

impl Collector {
    /// A collector at the base `url`, such as `http://localhost:4318`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the URL can't be a collector's, or the file of certificates can't be read.
    pub fn new(url: &str, settings: Settings) -> Result<Self, OtlpError> {
        let url = send::base(url)?;
        let agent = send::agent(&settings)?;
        Ok(Self { url, settings, agent, sent: Mutex::default() })
    }

    /// The base URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends the metrics of a profile, its stacks as profiles, and the requests of a server as spans, within
    /// [`Settings::timeout`] in all. While it waits to try again, `go_on` may end it.
    ///
    /// # Errors
    ///
    /// If not all metrics could be sent.
    pub fn push(
        &self,
        profile: &Profile,
        stacks: &Stacks,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Pushed, OtlpError> {
        let until = Instant::now() + self.settings.timeout;
        let origin = self.origin(profile, None);
        let mut pushed = self.push_metrics(profile, &origin, until, go_on)?;
        let mut signal = |path: &str, requests: &mut dyn Iterator<Item = otlp::Request>| {
            let mut became = PushedSignal::None;
            let (mut items, mut rejected) = (0, 0);
            for request in requests {
                match self.send(path, &request.body, until, go_on) {
                    Ok(answer) => {
                        items += request.items;
                        rejected += answer.rejected;
                        pushed.messages.extend(said(answer.message));
                        became = PushedSignal::Sent { items, rejected };
                    }
                    // Collectors without a pipeline for this signal don't know its path.
                    Err(OtlpError::Refused { status: 404 | 405 | 501, .. }) => {
                        return PushedSignal::NotTaken;
                    }
                    Err(error) => return PushedSignal::Failed(error),
                }
            }
            became
        };
        let mut profiles = otlp::profiles(profile, stacks, &origin).into_iter();
        let of_stacks = signal(PROFILES_PATH, &mut profiles);
        let (mut of_requests, mut without_spans) = (PushedSignal::None, 0);
        if !profile.requests.is_empty() {
            of_requests = PushedSignal::NoTime;
            if let Some(spans) = Spans::of(profile) {
                without_spans = spans.left_out();
                let mut requests = spans.requests(&origin);
                of_requests = signal(TRACES_PATH, &mut requests);
            }
        }
        Ok(Pushed { stacks: of_stacks, spans: of_requests, without_spans, ..pushed })
    }

    fn push_metrics(
        &self,
        profile: &Profile,
        origin: &Origin,
        until: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Pushed, OtlpError> {
        let mut pushed = Pushed::default();
        for request in otlp::metrics(profile, origin) {
            let answer = self.send(METRICS_PATH, &request.body, until, go_on)?;
            pushed.points += request.items;
            pushed.rejected += answer.rejected;
            pushed.messages.extend(said(answer.message));
        }
        Ok(pushed)
    }

    /// What a profile that was made at `now` is of. All pushes of one profiler have the same start, and each ends later than
    /// the one before, though a profile states whole seconds: a collector takes a new start for a restart.
    fn origin(&self, profile: &Profile, now: Option<u64>) -> Origin {
        let mut origin = Origin::of(profile);
        if let (Some(start), Some(end), Some(now)) = (origin.start_ns, origin.end_ns, now) {
            origin.start_ns = Some(now.saturating_sub(end.saturating_sub(start)));
        }
        origin.end_ns = now.or(origin.end_ns);
        let anchor = profile.clock.anchors.first().map(|anchor| anchor.monotonic_ns);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if anchor.is_some() && anchor == sent.anchor {
            origin.start_ns = sent.start;
        }
        // Only a live push may have been later than the whole second that a profile states.
        if origin.end_ns.is_some() && now.is_none() {
            let next = sent.end.map(|end| end.saturating_add(1));
            origin.end_ns = origin.end_ns.max(next.filter(|_| anchor == sent.anchor));
        }
        if now.is_some() {
            *sent = Sent { anchor, start: origin.start_ns, end: origin.end_ns };
        }
        drop(sent);
        for (key, value) in &self.settings.resource {
            origin.set(key, value);
        }
        origin
    }
}

fn said(message: String) -> Option<String> {
    (!message.is_empty()).then_some(message)
}
