//! The client for the store's server: requests go where they were sent to, and a list ends.
//!
//! Each request is signed for its server, and may have a session's token in it. So where a server says that something is
//! elsewhere, that is an error: the client of `object_store` would ask there, with all headers but a few.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, Error};

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(5);

/// The most that is read of a page of a list, which has a thousand names.
const MOST_OF_PAGE: usize = 64 << 20;

/// The most pages of a list: a hundred million names.
const MOST_PAGES: usize = 100_000;

/// Makes clients whose requests may each take so long.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) timeout: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let wrong = |error: reqwest::Error| Error::Generic { store: "S3", source: Box::new(error) };
        let text = |key: ClientConfigKey| options.get_config_value(&key);
        // As `object_store` reads them.
        let is_set = |key: ClientConfigKey| {
            let value = text(key).unwrap_or_default().to_ascii_lowercase();
            ["1", "true", "on", "yes", "y"].contains(&value.as_str())
        };
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("brickscope/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(self.timeout)
            .connect_timeout(CONNECTING)
            .https_only(!is_set(ClientConfigKey::AllowHttp))
            .danger_accept_invalid_certs(is_set(ClientConfigKey::AllowInvalidCertificates));
        if is_set(ClientConfigKey::Http1Only) {
            client = client.http1_only();
        }
        if let Some(url) = text(ClientConfigKey::ProxyUrl) {
            let mut proxy = reqwest::Proxy::all(url).map_err(wrong)?;
            if let Some(pem) = text(ClientConfigKey::ProxyCaCertificate) {
                let certificate =
                    reqwest::tls::Certificate::from_pem(pem.as_bytes()).map_err(wrong)?;
                client = client.tls_certs_merge([certificate]);
            }
            if let Some(hosts) = text(ClientConfigKey::ProxyExcludes) {
                proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&hosts));
            }
            client = client.proxy(proxy);
        }
        let client = HttpClient::new(client.build().map_err(wrong)?);
        Ok(HttpClient::new(Guarded { client, lists: Mutex::default() }))
    }
}

/// Looks at answers.
#[derive(Debug)]
struct Guarded {
    client: HttpClient,
    /// By list: the places from which the server said that it goes on.
    lists: Mutex<HashMap<String, HashSet<Bytes>>>,
}

/// What a server must not answer.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn refused(why: String) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, Refused(why))
}

impl HttpService for Guarded {
    // As the attribute of the crate `async_trait` has it.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.answer(request))
    }
}

impl Guarded {
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let list = self.list_of(&request);
        let answer = self.client.execute(request).await?;
        if answer.status().is_redirection()
            && let Some(to) = answer.headers().get("location")
        {
            let to = to.to_str().unwrap_or("another address");
            // What comes after the host may be signed.
            let host = to.split_once("://").map_or("", |(_, rest)| rest);
            let host = host.split(['/', '?', '#']).next().unwrap_or_default();
            return Err(refused(format!(
                "the server says that this is elsewhere{}{host}, where nothing is asked: AWS_ENDPOINT_URL and AWS_REGION \
                 say where the bucket is",
                if host.is_empty() { "" } else { ": " }
            )));
        }
        match list {
            Some(list) if answer.status().is_success() => self.page(&list, answer).await,
            _ => Ok(answer),
        }
    }

    /// The list that a page of is asked for, by what it asks but for the place. At its first page, its places are forgotten.
    fn list_of(&self, request: &HttpRequest) -> Option<String> {
        let path = request.uri().path();
        let query: Vec<&str> = request.uri().query()?.split('&').collect();
        let is_token = |part: &&str| part.starts_with("continuation-token=");
        query.contains(&"list-type=2").then(|| {
            let rest: Vec<&str> = query.iter().copied().filter(|part| !is_token(part)).collect();
            let list = format!("{path}?{}", rest.join("&"));
            if !query.iter().any(is_token) {
                self.lists.lock().unwrap_or_else(PoisonError::into_inner).remove(&list);
            }
            list
        })
    }

    /// A page that goes on where none before it did.
    async fn page(&self, list: &str, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (parts, body) = answer.into_parts();
        let mut stream = body.bytes_stream();
        let mut bytes = BytesMut::new();
        while let Some(more) = stream.try_next().await? {
            if bytes.len() + more.len() > MOST_OF_PAGE {
                return Err(refused(format!(
                    "a page of its list has more than {MOST_OF_PAGE} bytes"
                )));
            }
            bytes.extend_from_slice(&more);
        }
        let bytes = bytes.freeze();
        let within = |begin: &[u8], end: &[u8]| {
            let find = |from: usize, what: &[u8]| {
                bytes[from..].windows(what.len()).position(|at| at == what).map(|at| from + at)
            };
            let from = find(0, begin)? + begin.len();
            Some(bytes.slice(from..find(from, end)?))
        };
        let pages = {
            let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            let places = lists.entry(list.to_owned()).or_default();
            places.len()
        };
        if pages > MOST_PAGES {
            return Err(refused(format!("its list has more than {MOST_PAGES} pages")));
        }
        let place = within(b"<NextContinuationToken>", b"</NextContinuationToken>");
        if let Some(place) = place.filter(|place| !place.is_empty()) {
            let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            if !lists.entry(list.to_owned()).or_default().insert(Bytes::copy_from_slice(&place)) {
                let why = "its list goes on where it has been before, so it has no end";
                return Err(refused(why.to_owned()));
            }
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(bytes)))
    }
}
