//! OpenTelemetry's environment variables:
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>,
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue};

use super::OtlpError;

const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// More is taken for a typing error.
const MOST_MILLIS: u64 = 3_600_000;

/// How to push, beside where to.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Headers of each request, such as tokens.
    pub headers: Vec<(String, String)>,
    /// How long a push may take in all, with all tries.
    pub timeout: Duration,
    /// A file of certificates in PEM that servers are checked by, instead of Mozilla's list.
    pub certificates: Option<PathBuf>,
    /// Attributes of the resource, which replace those that a profile states.
    pub resource: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            certificates: None,
            resource: Vec::new(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of headers may be secret.
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Settings")
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("certificates", &self.certificates)
            .field("resource", &self.resource)
            .finish()
    }
}

impl Settings {
    /// By `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_EXPORTER_OTLP_CERTIFICATE`,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`. `OTEL_EXPORTER_OTLP_ENDPOINT` is not read: nothing is pushed
    /// unless somebody asks for it.
    ///
    /// # Errors
    ///
    /// If a variable can't be used.
    pub fn from_env() -> Result<Self, OtlpError> {
        Self::from_variables(|name| {
            let Some(value) = std::env::var_os(name) else { return Ok(None) };
            value.into_string().map(Some).map_err(|_| bad(name, "it is not UTF-8"))
        })
    }

    pub(super) fn from_variables(
        variable: impl Fn(&'static str) -> Result<Option<String>, OtlpError>,
    ) -> Result<Self, OtlpError> {
        // An empty variable is one that isn't set.
        let variable = |name| {
            let value: Option<String> = variable(name)?;
            Ok::<_, OtlpError>(value.filter(|value| !value.trim().is_empty()))
        };
        let mut settings = Self::default();
        if let Some(list) = variable(HEADERS)? {
            settings.headers = pairs(HEADERS, &list)?;
            for (nth, (name, value)) in settings.headers.iter().enumerate() {
                let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
                if !is_name || HeaderValue::from_str(value).is_err() {
                    let reason = format!("pair {} can't be a header of HTTP", nth + 1);
                    return Err(bad(HEADERS, reason));
                }
            }
        }
        if let Some(millis) = variable(TIMEOUT)? {
            let millis = millis.trim().parse().ok().filter(|m| (1..=MOST_MILLIS).contains(m));
            let millis = millis.ok_or_else(|| {
                bad(TIMEOUT, format!("must be 1 to {MOST_MILLIS} milliseconds, a whole number"))
            })?;
            settings.timeout = Duration::from_millis(millis);
        }
        settings.certificates = variable(CERTIFICATE)?.map(PathBuf::from);
        if let Some(list) = variable(RESOURCE)? {
            settings.resource = pairs(RESOURCE, &list)?;
        }
        // It comes before the same attribute in the list.
        if let Some(name) = variable(SERVICE)? {
            settings.resource.push(("service.name".to_owned(), name));
        }
        Ok(settings)
    }
}

pub(super) fn bad(name: &'static str, reason: impl Into<String>) -> OtlpError {
    OtlpError::Variable { name, reason: reason.into() }
}

pub(super) fn bad_certificates(reason: impl Into<String>) -> OtlpError {
    bad(CERTIFICATE, reason)
}

/// `key=value,…`, whose values are encoded as in URLs.
fn pairs(name: &'static str, list: &str) -> Result<Vec<(String, String)>, OtlpError> {
    let parts = list.split(',').map(str::trim).enumerate().filter(|(_, part)| !part.is_empty());
    parts
        .map(|(nth, part)| {
            let failed = |why| bad(name, format!("pair {}: {why}", nth + 1));
            let (key, value) =
                part.split_once('=').ok_or_else(|| failed("it must be a name, `=` and a value"))?;
            let key = key.trim();
            if key.is_empty() {
                return Err(failed("there is no name before `=`"));
            }
            let value = decoded(value.trim())
                .ok_or_else(|| failed("`%` must be followed by two hexadecimal digits of UTF-8"))?;
            Ok((key.to_owned(), value))
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
