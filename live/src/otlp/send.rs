//! One request, until it is answered or time is over:
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brickscope::save;
use brickscope_formats::export::otlp::{Answer, CONTENT_TYPE};
use flate2::Compression;
use flate2::write::GzEncoder;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Error};

use super::settings::bad_certificates;
use super::{Collector, OtlpError, Settings};

/// What the protocol recommends as limits, in bytes before compression.
pub(super) const MOST_REQUEST: usize = 64 << 20;
const MOST_ANSWER: u64 = 4 << 20;

/// The longest reason of a collector that is shown.
const MOST_REASON: usize = 300;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often a pause looks whether it is to go on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The base URL of a collector, without a slash at its end.
pub(super) fn base(url: &str) -> Result<String, OtlpError> {
    // A password in it is not shown, whatever else is wrong.
    let shown = if url.contains('@') { "the URL" } else { url };
    let failed = |reason| Err(OtlpError::Url { url: shown.to_owned(), reason });
    let Ok(uri) = url.parse::<Uri>() else {
        return failed("it is no URL: use one such as http://localhost:4318");
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return failed("it must begin with http:// or https://");
    }
    // They would stand in the run's file, which has the command line.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let reason = "OTEL_EXPORTER_OTLP_HEADERS takes user names, passwords and tokens";
        // Not shown again.
        return Err(OtlpError::Url { url: "the URL".to_owned(), reason });
    }
    if uri.host().is_none_or(str::is_empty) {
        return failed("it names no host");
    }
    if uri.query().is_some() || url.contains('#') {
        return failed("it must end with the path");
    }
    let base = url.trim_end_matches('/');
    if ["/v1/metrics", "/v1/traces", "/profiles"].iter().any(|path| base.ends_with(path)) {
        return failed("leave out /v1/metrics, /v1/traces and the like, which are appended");
    }
    Ok(base.to_owned())
}

pub(super) fn agent(settings: &Settings) -> Result<Agent, OtlpError> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = &settings.certificates {
        let failed = |why: String| bad_certificates(format!("{}: {why}", path.display()));
        let pem = fs::read(path).map_err(|error| failed(error.to_string()))?;
        let mut certificates = Vec::new();
        for item in parse_pem(&pem) {
            let item = item.map_err(|error| failed(error.to_string()))?;
            if let PemItem::Certificate(certificate) = item {
                certificates.push(certificate);
            }
        }
        if certificates.is_empty() {
            return Err(failed("it has no certificate in PEM".to_owned()));
        }
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates));
    }
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // A collector has no reason to send tokens elsewhere.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("brickscope/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build());
    Ok(config.build().into())
}

/// A request that failed.
struct Failed {
    error: OtlpError,
    again: Again,
}

/// Whether to try again.
enum Again {
    No,
    /// After a pause that grows with each try.
    Later,
    /// As `Later`, if there is time: it was over before there was an answer.
    OutOfTime,
    /// When the collector asked for it.
    After(Duration),
}

impl Collector {
    /// Sends a request, again if need be, until it is answered or `until` is over. The error is the last that says more
    /// than that the time was over: a last try may have had a millisecond.
    pub(super) fn send(
        &self,
        path: &str,
        body: &[u8],
        until: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Answer, OtlpError> {
        if body.len() > MOST_REQUEST {
            return Err(OtlpError::TooLarge { bytes: body.len() });
        }
        let packed = packed(body);
        let mut known: Option<OtlpError> = None;
        for tries in 1.. {
            let Failed { error, again } = match self.attempt(path, &packed, until) {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let error = match (&again, known) {
                (Again::OutOfTime, Some(known)) => known,
                _ => error,
            };
            let pause = match again {
                Again::No => return Err(error),
                Again::Later | Again::OutOfTime => backoff(tries),
                // Not at once, whatever it asks for.
                Again::After(pause) => pause.max(backoff(tries)),
            };
            let is_in_time = until.saturating_duration_since(Instant::now()) > pause;
            if !is_in_time || !paused(pause, go_on) {
                return Err(error.after(tries));
            }
            known = Some(error);
        }
        unreachable!("there is no last try")
    }

    fn attempt(&self, path: &str, packed: &[u8], until: Instant) -> Result<Answer, Failed> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let request = self.agent.post(format!("{}{path}", self.url));
        let mut request = request.config().timeout_global(Some(left)).build();
        request = request.header("content-type", CONTENT_TYPE).header("content-encoding", "gzip");
        for (name, value) in &self.settings.headers {
            request = request.header(name, value);
        }
        let mut response = request.send(packed).map_err(|error| self.no_answer(&error))?;
        let status = response.status().as_u16();
        let asked = response.headers().get("retry-after");
        let asked = asked.and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
        let body = response.body_mut().with_config().limit(MOST_ANSWER).read_to_vec();
        if !(200..300).contains(&status) {
            // The status is enough where the body can't be read.
            let reason = body.ok().and_then(|body| Answer::reason(&body)).unwrap_or_default();
            let again = match (status, asked) {
                (429 | 502..=504, Some(asked)) => Again::After(asked),
                (429 | 502..=504, None) => Again::Later,
                _ => Again::No,
            };
            let error = OtlpError::Refused { status, reason: cut(reason), tries: 1 };
            return Err(Failed { error, again });
        }
        let not_otlp = |reason| {
            let error = OtlpError::NotOtlp { status, reason };
            Failed { error, again: Again::No }
        };
        let body = match body {
            Ok(body) => body,
            Err(Error::BodyExceedsLimit(_)) => return Err(not_otlp("the answer has over 4 MiB")),
            Err(error) => return Err(self.no_answer(&error)),
        };
        let answer = Answer::read(&body);
        let answer = answer.ok_or_else(|| not_otlp("the answer is no message of OTLP"))?;
        Ok(Answer { message: cut(answer.message), ..answer })
    }

    fn no_answer(&self, error: &Error) -> Failed {
        let (reason, again) = match error {
            Error::Timeout(_) => ("no answer in time".to_owned(), Again::OutOfTime),
            // Certificates and the like don't get better.
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                (error.to_string(), Again::No)
            }
            Error::Io(error) => (error.to_string(), Again::Later),
            Error::ConnectionFailed | Error::HostNotFound | Error::BodyStalled => {
                (error.to_string(), Again::Later)
            }
            error => (error.to_string(), Again::No),
        };
        let hint = if self.url.ends_with(":4317") {
            "; 4317 is the port of OTLP/gRPC, and OTLP/HTTP usually has 4318"
        } else if reason.contains("UnknownIssuer") {
            "; OTEL_EXPORTER_OTLP_CERTIFICATE names a file of certificates to check it by"
        } else {
            ""
        };
        Failed { error: OtlpError::NoAnswer { reason: cut(reason), hint, tries: 1 }, again }
    }
}

impl OtlpError {
    fn after(mut self, n: u32) -> Self {
        if let Self::NoAnswer { tries, .. } | Self::Refused { tries, .. } = &mut self {
            *tries = n;
        }
        self
    }
}

fn packed(body: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(body).and_then(|()| packed.finish()).expect("memory is written to")
}

fn cut(text: String) -> String {
    match text.char_indices().nth(MOST_REASON) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Twice as long after each try, and half of that more or less, so that many clients don't come back at once.
fn backoff(tries: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
    // Its keys are drawn at random.
    let random = (RandomState::new().hash_one(tries) >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(0.5 + random)
}

/// Whether a pause passed without being ended.
fn paused(pause: Duration, go_on: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + pause;
    loop {
        if !go_on() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}

/// The pause that `Retry-After` asks for: seconds, or a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = value.split_once(", ")?.1.split(' ');
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let date = format!("{year}-{month:02}-{day}T{time}Z");
    let at = UNIX_EPOCH + Duration::from_secs(save::unix_seconds(&date)?);
    Some(at.duration_since(now).unwrap_or_default())
}
