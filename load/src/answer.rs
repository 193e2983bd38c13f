//! One request, and what comes back: events of a stream, each with the time at which it was here.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};

use brickscope_profile::{Ending, Request};
use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;

/// The longest line of a stream, in bytes.
const MOST_LINE: u64 = 8 << 20;
/// The longest answer that isn't a stream.
const MOST_WHOLE: u64 = 64 << 20;
/// What is read of a refusal, and of what comes after the end of a stream.
const MOST_REST: u64 = 64 << 10;
/// The most pieces of an answer: more than any model's context.
const MOST_PIECES: usize = 1 << 24;
/// The longest reason that is kept.
const MOST_REASON: usize = 200;

/// What came of a request. Times are readings of one clock, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its place in the plan.
    pub nth: usize,
    /// What the server calls it.
    pub id: Option<String>,
    /// When it was due. In a closed loop, when its client was free.
    pub due_ns: u64,
    /// When the client began to send it.
    pub sent_ns: u64,
    /// When each piece of the answer that has text was here.
    pub pieces_ns: Vec<u64>,
    /// When its end was here. `None` if it was given up before.
    pub ended_ns: Option<u64>,
    /// How it ended, if the server said.
    pub ending: Option<Ending>,
    /// The tokens of its prompt, by the server.
    pub prompt_tokens: Option<u64>,
    /// How many of these were found in a cache, by the server.
    pub cached_tokens: Option<u64>,
    /// The tokens of the answer, by the server.
    pub answer_tokens: Option<u64>,
    /// Why there is no whole answer.
    pub failure: Option<String>,
}

impl Answer {
    pub(crate) fn failed(sent_ns: u64, ended_ns: u64, why: String) -> Self {
        let ending = Some(Ending::Error);
        let (ended_ns, failure) = (Some(ended_ns), Some(why));
        Self { sent_ns, ended_ns, ending, failure, ..Self::default() }
    }

    /// As a profile has it: it arrives when it is due, and has its place when it is sent.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            id: self.id.clone().unwrap_or_else(|| format!("request {}", self.nth + 1)),
            arrived_ns: self.due_ns,
            admitted_ns: Some(self.sent_ns),
            tokens_ns: self.pieces_ns.clone(),
            ended_ns: self.ended_ns,
            ending: self.ending,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.answer_tokens,
            error: self.failure.clone(),
            ..Request::default()
        }
    }
}

/// An event, or an answer that isn't a stream. What it has besides is of no concern.
#[derive(Debug, Deserialize)]
struct Event {
    id: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    /// Which of several answers it is of.
    index: Option<u64>,
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    content: Option<String>,
    /// What it thinks: tokens, as others. vLLM has the second name.
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        has(&self.text)
            || self.delta.as_ref().is_some_and(|delta| {
                has(&delta.content)
                    || has(&delta.reasoning_content)
                    || has(&delta.reasoning)
                    || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
            })
    }
}

/// Reads an answer to its end, or until nobody wants it any more. Where several were asked for, the first one is timed.
pub(crate) fn read(
    mut response: Response<Body>,
    sent_ns: u64,
    are_several: bool,
    now: &dyn Fn() -> u64,
    is_over: &dyn Fn() -> bool,
) -> Answer {
    let status = response.status();
    let is_stream = response
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream"));
    let body = response.body_mut().as_reader();
    if !status.is_success() {
        let mut text = Vec::new();
        // What breaks off is still a reason.
        let _ = body.take(MOST_REST).read_to_end(&mut text);
        let why = format!("HTTP {}{}", status.as_u16(), reason(&text));
        return Answer::failed(sent_ns, now(), why);
    }
    let answer = Answer { sent_ns, ..Answer::default() };
    let mut reading = Reading { answer, are_several, is_answer: false };
    let ended = if is_stream {
        reading.read_stream(&mut BufReader::new(body), now, is_over)
    } else {
        reading.read_whole(body)
    };
    let Reading { mut answer, .. } = reading;
    answer.ended_ns.get_or_insert_with(now);
    if let Err(why) = ended {
        answer.failure = Some(why);
        answer.ending = Some(Ending::Error);
    }
    answer
}

/// An answer while it is read.
#[derive(Debug, Default)]
struct Reading {
    answer: Answer,
    are_several: bool,
    /// Whether anything came that is one.
    is_answer: bool,
}

impl Reading {
    fn read_whole(&mut self, body: impl Read) -> Result<(), String> {
        let mut text = Vec::new();
        body.take(MOST_WHOLE).read_to_end(&mut text).map_err(|error| error.to_string())?;
        let event: Event = serde_json::from_slice(&text)
            .map_err(|error| shortened(&format!("the answer can't be read: {error}")))?;
        self.take(&event)?;
        self.is_answer.then_some(()).ok_or_else(|| "the answer has no choices".to_owned())
    }

    /// Reads events: <https://html.spec.whatwg.org/multipage/server-sent-events.html>.
    fn read_stream(
        &mut self,
        stream: &mut dyn BufRead,
        now: &dyn Fn() -> u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = stream.take(MOST_LINE).read_until(b'\n', &mut line);
            let at = now();
            if is_over() {
                self.answer.ending = Some(Ending::Cancelled);
                return Ok(());
            }
            let read = read.map_err(|error| in_words(&error))?;
            if read as u64 == MOST_LINE && line.last() != Some(&b'\n') {
                return Err("a line of the stream has more than 8 MiB".to_owned());
            }
            if read == 0 {
                // Without its end nobody knows that it is whole.
                return match self.answer.ending {
                    Some(_) => Ok(()),
                    None => Err("the stream broke off".to_owned()),
                };
            }
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            let data = data.trim_ascii();
            if data == b"[DONE]" {
                self.answer.ended_ns = Some(at);
                // Up to the end, so that the server ends the connection, and has none of it lying about.
                let _ = io::copy(&mut stream.take(MOST_REST), &mut io::sink());
                // Servers that don't say why it ended have said that it did.
                return self
                    .is_answer
                    .then_some(())
                    .ok_or_else(|| "the stream is empty".to_owned());
            }
            let event: Event = serde_json::from_slice(data)
                .map_err(|error| shortened(&format!("an event can't be read: {error}")))?;
            if self.answer.pieces_ns.len() == MOST_PIECES {
                return Err(format!("more than {MOST_PIECES} pieces"));
            }
            if self.take(&event)? {
                self.answer.pieces_ns.push(at);
            }
        }
    }

    /// Takes what an event says. Returns whether it has text.
    fn take(&mut self, event: &Event) -> Result<bool, String> {
        if let Some(error) = event.error.as_ref().filter(|error| !error.is_null()) {
            return Err(format!("an error in the stream{}", reason(error.to_string().as_bytes())));
        }
        self.is_answer |= event.choices.is_some() || event.usage.is_some();
        let answer = &mut self.answer;
        if let Some(id) = event.id.as_ref().filter(|id| !id.is_empty()) {
            answer.id.get_or_insert_with(|| shortened(id));
        }
        let mut has_text = false;
        let is_timed = |choice: &&Choice| !self.are_several || choice.index.unwrap_or(0) == 0;
        for choice in event.choices.iter().flatten().filter(is_timed) {
            has_text |= choice.has_text();
            if let Some(why) = &choice.finish_reason {
                answer.ending = Some(match why.as_str() {
                    "length" => Ending::Length,
                    _ => Ending::Stop,
                });
            }
        }
        if let Some(usage) = &event.usage {
            answer.prompt_tokens = usage.prompt_tokens.or(answer.prompt_tokens);
            answer.answer_tokens = usage.completion_tokens.or(answer.answer_tokens);
            let details = usage.prompt_tokens_details.as_ref();
            let cached = details.and_then(|details| details.cached_tokens);
            answer.cached_tokens = cached.or(answer.cached_tokens);
        }
        Ok(has_text)
    }
}

/// What a server says of a refusal, after a colon, as one line.
fn reason(text: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let told = json.as_ref().and_then(|json| {
        // OpenAI's form, then FastAPI's and others'.
        [&json["error"]["message"], &json["message"], &json["detail"], &json["error"]]
            .into_iter()
            .find_map(serde_json::Value::as_str)
            .map(str::to_owned)
    });
    let told = told.unwrap_or_else(|| String::from_utf8_lossy(text).into_owned());
    let told = told.split_whitespace().take(MOST_REASON).collect::<Vec<_>>().join(" ");
    if told.is_empty() { String::new() } else { format!(": {}", shortened(&told)) }
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_REASON).collect()
}

/// An error with what caused it, each once.
pub(crate) fn in_words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
        cause = error.source();
    }
    shortened(&words)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// What is read of a stream, by a clock that says how often it was read.
    fn streamed(text: &str) -> (Answer, Result<(), String>) {
        streamed_of(false, text)
    }

    fn streamed_of(are_several: bool, text: &str) -> (Answer, Result<(), String>) {
        let reads = Cell::new(0);
        let now = || {
            reads.set(reads.get() + 1);
            reads.get()
        };
        let mut reading = Reading { are_several, ..Reading::default() };
        let ended = reading.read_stream(&mut text.as_bytes(), &now, &|| false);
        (reading.answer, ended)
    }

    #[test]
    fn each_piece_with_text_has_the_time_at_which_it_came() {
        let (answer, ended) = streamed(
            "data: {\"id\":\"cmpl-1\",\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n\
             : a comment\n\
             data: {\"id\":\"cmpl-1\",\"choices\":[{\"text\":\"\"}]}\r\n\r\n\
             data:{\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n\
             data: [DONE]\n\n",
        );
        assert_eq!(ended, Ok(()));
        // The lines 1 and 6: a blank one follows each event.
        assert_eq!(answer.pieces_ns, [1, 6]);
        assert_eq!(answer.id.as_deref(), Some("cmpl-1"));
        assert_eq!(answer.ending, Some(Ending::Length));
        let tokens = (answer.prompt_tokens, answer.cached_tokens, answer.answer_tokens);
        assert_eq!(tokens, (Some(7), Some(2), Some(3)));
    }

    #[test]
    fn what_a_chat_thinks_and_calls_are_pieces_and_who_speaks_is_none() {
        let events = [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
        ];
        let text: String = events.iter().map(|event| format!("data: {event}\n")).collect();
        let (answer, ended) = streamed(&text);
        assert_eq!((ended, answer.pieces_ns), (Ok(()), vec![2, 3, 4, 5]));
        assert_eq!(answer.ending, Some(Ending::Stop));
    }

    #[test]
    fn of_several_answers_the_first_is_timed() {
        let events = [
            r#"{"choices":[{"index":1,"text":"b"}]}"#,
            r#"{"choices":[{"index":0,"text":"a"}]}"#,
            r#"{"choices":[{"index":1,"text":"b","finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":0,"text":"a","finish_reason":"length"}]}"#,
        ];
        let text: String = events.iter().map(|event| format!("data: {event}\n")).collect();
        let (answer, ended) = streamed_of(true, &text);
        assert_eq!((ended, answer.pieces_ns), (Ok(()), vec![2, 4]));
        assert_eq!(answer.ending, Some(Ending::Length));
        // GuideLLM's stand-in for a server numbers the pieces of one.
        assert_eq!(streamed(&text).0.pieces_ns, [1, 2, 3, 4]);
    }

    #[test]
    fn what_breaks_off_is_no_answer() {
        let event = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
        let (answer, ended) = streamed(event);
        assert_eq!(ended, Err("the stream broke off".to_owned()));
        assert_eq!(answer.pieces_ns, [1]);
        assert_eq!(streamed(&format!("{event}data: [DONE]\n")).1, Ok(()));
        let (_, ended) = streamed("data: {\n");
        assert!(ended.expect_err("no JSON").starts_with("an event can't be read: EOF"));
        assert!(streamed("data: [DONE]\n").1.is_err());
        let (_, ended) = streamed("data: {\"error\":{\"message\":\"no slot\"}}\n");
        assert!(ended.expect_err("an error").contains("no slot"));
        let mut reading = Reading::default();
        let ended = reading.read_stream(&mut event.as_bytes(), &|| 1, &|| true);
        assert_eq!((ended, reading.answer.ending), (Ok(()), Some(Ending::Cancelled)));
    }

    #[test]
    fn a_refusal_is_said_in_the_server_s_words() {
        for (text, said) in [
            (r#"{"error":{"message":"too\nlong","code":400}}"#, ": too long"),
            (r#"{"detail":"none"}"#, ": none"),
            (r#"{"error":"busy"}"#, ": busy"),
            ("", ""),
            (" plain \n text", ": plain text"),
        ] {
            assert_eq!(reason(text.as_bytes()), said);
        }
    }

    proptest! {
        #[test]
        fn no_stream_panics(text in "(data: ?|: |event: )?[-{}\"a-z:,\\[\\]0-9\n\r]{0,80}(data: \\[DONE\\])?") {
            let _ = streamed(&text);
        }
    }
}
