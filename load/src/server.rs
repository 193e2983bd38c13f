//! A server: where and how it is asked.

use std::time::Duration;

use serde_json::{Map, Value, json};
use thiserror::Error;
use ureq::Agent;
use ureq::http::{HeaderValue, Uri};

use crate::answer::{self, Answer};
use crate::text::{self, Words};

/// The words of the two prompts that tell how many tokens a word is: all words once, and three times.
const FEW: u64 = 64;
const MANY: u64 = 192;
/// How long a server may take to say what its model is called.
const FOR_NAME: Duration = Duration::from_secs(5);

/// Why a server can't be asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The address is none.
    #[error("{url}: {why}")]
    Url {
        /// The address, without what may be secret.
        url: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The key can't be sent.
    #[error("the API key has characters that no header can have")]
    Key,
    /// What is added to requests isn't an object of JSON.
    #[error("what is added to requests is no JSON object such as {{\"temperature\": 0}}: {0}")]
    Body(String),
    /// The first request was answered by none.
    #[error("{url}: {why}")]
    Refused {
        /// What was asked.
        url: String,
        /// What came instead.
        why: String,
    },
}

/// Which of OpenAI's endpoints is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Api {
    /// `/v1/completions`: a prompt is continued.
    #[default]
    Completions,
    /// `/v1/chat/completions`: a message is answered.
    Chat,
}

/// How a server is asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which endpoint. One that the address names counts.
    pub api: Api,
    /// The model's name; without one, the first that the server lists.
    pub model: Option<String>,
    /// Sent as `Authorization: Bearer …`.
    pub key: Option<String>,
    /// A JSON object: what is added to each request, or replaces what is there. Null removes.
    pub body: Option<String>,
    /// How long an answer may take to begin, and then to end.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let timeout = Duration::from_secs(600);
        Self { api: Api::default(), model: None, key: None, body: None, timeout }
    }
}

/// A server that answers.
#[derive(Debug, Clone)]
pub struct Server {
    agent: Agent,
    url: String,
    api: Api,
    model: Option<String>,
    key: Option<HeaderValue>,
    more: Map<String, Value>,
}

impl Server {
    /// Finds a server, and the name of its model.
    ///
    /// # Errors
    ///
    /// If the address or the settings are none. A server that can't be reached is seen by [`measure_words`](Self::measure_words).
    pub fn open(url: &str, settings: Settings) -> Result<Self, LoadError> {
        let Settings { api, model, key, body, timeout } = settings;
        let (base, url, api) = addresses(url, api)?;
        let header = |key: String| {
            let mut value =
                HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| LoadError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        };
        let more = body.map(|body| {
            serde_json::from_str::<Map<String, Value>>(&body)
                .map_err(|error| LoadError::Body(error.to_string()))
        });
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("brickscope/", env!("CARGO_PKG_VERSION")))
            // What is asked goes to the address that was named.
            .proxy(None)
            // No time for the whole: each request would have a thread more, by which its name is resolved.
            .timeout_connect(Some(timeout))
            .timeout_send_request(Some(timeout))
            .timeout_send_body(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .timeout_recv_body(Some(timeout))
            .max_idle_connections(0);
        let mut server = Self {
            agent: config.build().into(),
            url,
            api,
            model,
            key: key.map(header).transpose()?,
            more: more.transpose()?.unwrap_or_default(),
        };
        if server.model.is_none() {
            // Not all servers list any, and those that have one model need no name.
            server.model = server.first_model(&base);
        }
        Ok(server)
    }

    /// What is asked: the whole address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The model's name, if one is sent.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Asks two prompts, and by how many tokens the server says that they have, how many a word is. `None` if it says nothing.
    ///
    /// # Errors
    ///
    /// If one of them isn't answered.
    pub fn measure_words(&self) -> Result<Option<Words>, LoadError> {
        let tokens = |words: u64| {
            let answer = self.ask(&text::words(words, words), 1, &|| 0, &|| false);
            match answer.failure {
                Some(why) => Err(LoadError::Refused { url: self.url.clone(), why }),
                None => Ok(answer.prompt_tokens),
            }
        };
        let (few, many) = (tokens(FEW)?, tokens(MANY)?);
        Ok(few.zip(many).and_then(|(few, many)| Words::by((FEW, few), (MANY, many))))
    }

    /// Sends a request, and reads the answer to its end. `now` is a clock, `is_over` whether nobody wants it any more.
    pub(crate) fn ask(
        &self,
        prompt: &str,
        most: u64,
        now: &dyn Fn() -> u64,
        is_over: &dyn Fn() -> bool,
    ) -> Answer {
        let body = self.body(prompt, most);
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "text/event-stream")
            // A connection that waits for the next request has a thread of many servers.
            .header("connection", "close");
        if let Some(key) = &self.key {
            request = request.header("authorization", key.clone());
        }
        let sent_ns = now();
        match request.send(&body[..]) {
            Ok(response) => answer::read(response, sent_ns, self.asks_several(), now, is_over),
            Err(error) => Answer::failed(sent_ns, now(), answer::in_words(&error)),
        }
    }

    /// Whether each request asks for several answers.
    fn asks_several(&self) -> bool {
        let number = |name| self.more.get(name).and_then(Value::as_u64);
        [number("n"), number("best_of")].into_iter().flatten().any(|number| number > 1)
    }

    fn body(&self, prompt: &str, most: u64) -> Vec<u8> {
        let mut body = Map::new();
        match self.api {
            Api::Completions => body.insert("prompt".to_owned(), json!(prompt)),
            Api::Chat => {
                body.insert("messages".to_owned(), json!([{ "role": "user", "content": prompt }]))
            }
        };
        if let Some(model) = &self.model {
            body.insert("model".to_owned(), json!(model));
        }
        body.insert("max_tokens".to_owned(), json!(most));
        body.insert("stream".to_owned(), json!(true));
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        // Else a model of no sense may stop at once. llama.cpp, vLLM and SGLang know it.
        body.insert("ignore_eos".to_owned(), json!(true));
        for (name, value) in &self.more {
            match value {
                Value::Null => body.remove(name),
                value => body.insert(name.clone(), value.clone()),
            };
        }
        Value::Object(body).to_string().into_bytes()
    }

    fn first_model(&self, base: &str) -> Option<String> {
        let request = self.agent.get(format!("{base}/v1/models"));
        let mut request = request.config().timeout_global(Some(FOR_NAME)).build();
        if let Some(key) = &self.key {
            request = request.header("authorization", key.clone());
        }
        let mut response = request.call().ok().filter(|response| response.status().is_success())?;
        let text = response.body_mut().with_config().limit(1 << 20).read_to_string().ok()?;
        let listed: Value = serde_json::from_str(&text).ok()?;
        Some(listed["data"][0]["id"].as_str()?.to_owned())
    }
}

/// The server's address, and that of the endpoint.
fn addresses(url: &str, api: Api) -> Result<(String, String, Api), LoadError> {
    let failed = |url: &str, why| Err(LoadError::Url { url: url.to_owned(), why });
    let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let Ok(uri) = with_scheme.parse::<Uri>() else {
        return failed("the address", "it is none: use one such as http://localhost:8080");
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return failed("the address", "--api-key takes what is secret");
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return failed(url, "it must begin with http:// or https://");
    }
    if uri.host().is_none_or(str::is_empty) {
        return failed(url, "it names no host");
    }
    if uri.query().is_some() || url.contains('#') {
        return failed("the address", "it must end with the path");
    }
    let trimmed = with_scheme.trim_end_matches('/');
    let (base, api) = if let Some(base) = trimmed.strip_suffix("/chat/completions") {
        (base, Api::Chat)
    } else if let Some(base) = trimmed.strip_suffix("/completions") {
        (base, Api::Completions)
    } else {
        (trimmed, api)
    };
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let path = match api {
        Api::Completions => "completions",
        Api::Chat => "chat/completions",
    };
    Ok((base.to_owned(), format!("{base}/v1/{path}"), api))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_server_or_of_what_is_asked() {
        for (url, api, whole) in [
            ("http://localhost:8080", Api::Completions, "http://localhost:8080/v1/completions"),
            ("localhost:8080/", Api::Chat, "http://localhost:8080/v1/chat/completions"),
            ("https://a/v1", Api::Chat, "https://a/v1/chat/completions"),
            ("https://a/x/v1/completions", Api::Chat, "https://a/x/v1/completions"),
            ("https://a/v1/chat/completions", Api::Completions, "https://a/v1/chat/completions"),
        ] {
            assert_eq!(addresses(url, api).expect("an address").1, whole);
        }
        for url in ["", "ftp://a", "http://", "http://a:b@c", "http://a/?b", "http://a b"] {
            let error = addresses(url, Api::Chat).expect_err(url).to_string();
            assert!(!error.contains("a:b"), "{error}");
        }
    }

    #[test]
    fn what_is_added_replaces_and_removes() {
        let settings = Settings {
            model: Some("m".to_owned()),
            body: Some(r#"{"ignore_eos": null, "temperature": 0, "max_tokens": 3}"#.to_owned()),
            ..Settings::default()
        };
        let server = Server::open("http://a", settings).expect("settings");
        let body: Value = serde_json::from_slice(&server.body("x", 9)).expect("JSON");
        let expected = json!({
            "model": "m", "prompt": "x", "max_tokens": 3, "temperature": 0, "stream": true,
            "stream_options": { "include_usage": true },
        });
        assert_eq!(body, expected);
        let settings = Settings { body: Some("[]".to_owned()), ..Settings::default() };
        assert!(matches!(Server::open("http://a", settings), Err(LoadError::Body(_))));
    }
}
