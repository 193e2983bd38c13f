//! What stands in the bytes of an answer: its status, pieces of text, why it ended, how many tokens it has, and the name of
//! its request.
//!
//! Nothing here takes memory: see [`http`](crate::http).

use crate::format::Sent;

/// The most bytes of an answer that are searched at once.
const MOST_SEARCHED: usize = 64 << 10;
/// The most of a path, and of a request's name, that is kept.
pub(crate) const MOST_TEXT: usize = 96;

fn find(all: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        // Ten times as fast as to compare at each byte.
        let at = from + all[from..].iter().position(|&byte| byte == first)?;
        if all[at..].starts_with(what) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The status of HTTP that an answer begins with, or 0.
pub(crate) fn status_of(bytes: &[u8]) -> u16 {
    let digits = bytes.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// What was sent, by what stands in it.
pub(crate) fn sent_of(bytes: &[u8]) -> Sent {
    if bytes.len() > MOST_SEARCHED {
        // Why an answer ended may stand at its end.
        let mut sent = sent_of(&bytes[..MOST_SEARCHED]);
        let is_last = has_reason(&bytes[bytes.len() - MOST_SEARCHED..], &mut sent);
        sent.is_last |= is_last;
        return sent;
    }
    let mut sent = Sent::default();
    // In a text that is quoted, quotes have a backslash before them, so none of these is found there.
    let mut events = 0_u32;
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], b"data: ").map(|at| from + at) {
        let rest = &bytes[at..];
        let ends = [find(rest, b"\n\n"), find(rest, b"\r\n\r\n")];
        let end = ends.into_iter().flatten().min().map_or(bytes.len(), |len| at + len);
        let is_begin = at == 0 || bytes[at - 1] == b'\n';
        if is_begin {
            events += 1;
            let event = &bytes[at + 6..end];
            let is_last = has_reason(event, &mut sent) || event.starts_with(b"[DONE]");
            sent.is_last |= is_last;
            if !is_last && has_text(event) {
                sent.pieces = sent.pieces.saturating_add(1);
            }
        }
        from = end.max(at + 6);
    }
    if events == 0 {
        let body = find(bytes, b"\r\n\r\n").filter(|_| status_of(bytes) > 0);
        sent.is_last = has_reason(&bytes[body.map_or(0, |at| at + 4)..], &mut sent);
    }
    sent
}

/// Whether an event brings a part of an answer's text.
fn has_text(event: &[u8]) -> bool {
    let has = |what: &[u8]| find(event, what).is_some();
    if event.starts_with(b"{\"type\":\"") {
        // In the ways of Anthropic, and of OpenAI's responses.
        let is_delta = has(b"\"content_block_delta\"") || has(b".delta\"");
        return is_delta && !has(b"\"signature_delta\"");
    }
    // The first one of a chat says who speaks, the last one how much was said, and others how much of the prompt is done. A
    // token may have no text, or one that is held back.
    let is_empty = has(b"\"content\":null") || has(b"\"content\":\"\"") || has(b"\"text\":\"\"");
    let has_more = has(b"_content\":\"") || has(b"\"tool_calls\":");
    (!is_empty || has_more) && !has(b"\"choices\":[]") && !has(b"\"prompt_progress\":")
}

/// Whether this says why an answer ended. An answer in the way of OpenAI says so in its last piece but one, which has no
/// text; others in one that may have.
fn has_reason(bytes: &[u8], sent: &mut Sent) -> bool {
    let has = |what: &[u8]| find(bytes, what).is_some();
    // In the way of OpenAI, and in that of Anthropic as llama-server has it.
    let is_error = bytes.starts_with(b"{\"error\":") || bytes.starts_with(b"{\"code\":");
    if is_error || has(b"\"type\":\"response.failed\"") {
        sent.is_error = true;
        return true;
    }
    let is_limit = has(b"\"finish_reason\":\"length\"")
        || has(b"\"stop_type\":\"limit\"")
        || has(b"\"stop_reason\":\"max_tokens\"")
        || has(b"\"type\":\"response.incomplete\"");
    sent.is_limit |= is_limit;
    is_limit
        || has(b"\"finish_reason\":\"")
        || has(b"\"stop\":true")
        || has(b"\"stop_reason\":\"")
        || has(b"\"type\":\"response.completed\"")
}

/// How many tokens an answer says that its prompt has, and itself; 0 for what it doesn't say.
pub(crate) fn tokens_of(bytes: &[u8]) -> [u32; 2] {
    let bytes = &bytes[bytes.len().saturating_sub(MOST_SEARCHED)..];
    let stated = |key: &[u8]| -> Option<u32> {
        // Behind what a model made, which may have anything in it.
        let at = bytes.windows(key.len()).rposition(|window| window == key)? + key.len();
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&bytes[at..at + digits]).ok()?.parse().ok()
    };
    let prompt = stated(b"\"prompt_tokens\":").or_else(|| stated(b"\"tokens_evaluated\":"));
    // The parts of a prompt that were found in a cache, and that were not.
    let parts = || Some(stated(b"\"cache_n\":")?.saturating_add(stated(b"\"prompt_n\":")?));
    let keys: [&[u8]; 4] = [
        b"\"completion_tokens\":",
        b"\"tokens_predicted\":",
        b"\"predicted_n\":",
        b"\"output_tokens\":",
    ];
    let answer = keys.into_iter().find_map(stated);
    [prompt.or_else(parts).unwrap_or(0), answer.unwrap_or(0)]
}

/// The name that a server gives a request, as it stands in an answer: one that begins as those of servers do, since a model may
/// make such a field, too.
pub(crate) fn name_of(bytes: &[u8]) -> Option<&[u8]> {
    const BEGINS: [&[u8]; 4] = [b"chatcmpl-", b"cmpl-", b"msg_", b"resp_"];
    let mut bytes = &bytes[..bytes.len().min(MOST_SEARCHED)];
    while let Some(at) = find(bytes, b"\"id\":\"") {
        bytes = &bytes[at + 6..];
        let len = bytes.iter().position(|&byte| byte == b'"')?;
        let name = &bytes[..len];
        let is_name = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let begins = BEGINS.iter().any(|begin| name.starts_with(begin));
        if begins && len <= MOST_TEXT && name.iter().all(is_name) {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> (u8, bool) {
        let sent = sent_of(text.as_bytes());
        (sent.pieces, sent.is_last)
    }

    #[test]
    fn pieces_with_text_are_counted_and_the_last_one_is_known() {
        for (text, expected) in [
            (r#"data: {"choices":[{"text":"a","finish_reason":null}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{"role":"assistant","content":null}}]}"#, (0, false)),
            (r#"data: {"choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{"content":"a \"stop\":true b"}}]}"#, (1, false)),
            (r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#, (0, true)),
            (r#"data: {"choices":[],"usage":{"prompt_tokens":3}}"#, (0, false)),
            (r#"data: {"content":"a","stop":false}"#, (1, false)),
            (r#"data: {"content":"","stop":true,"stop_type":"limit"}"#, (0, true)),
            ("data: [DONE]", (0, true)),
            (": ping", (0, false)),
            (r#"data: {"choices":[{"text":"","finish_reason":null}]}"#, (0, false)),
            (r#"data: {"content":"","prompt_progress":{"total":9}}"#, (0, false)),
            (r#"data: {"choices":[{"text":"a"}],"prompt_progress":{"total":9}}"#, (0, false)),
            (r#"data: {"code":500,"message":"","type":"server_error"}"#, (0, true)),
            (r#"data: {"type":"message_start","message":{}}"#, (0, false)),
            (r#"data: {"type":"content_block_delta","delta":{"type":"text_delta"}}"#, (1, false)),
            (
                r#"data: {"type":"content_block_delta","delta":{"type":"signature_delta"}}"#,
                (0, false),
            ),
            (r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, (0, true)),
            (r#"data: {"type":"response.output_text.delta","delta":"a"}"#, (1, false)),
            (r#"data: {"type":"response.completed","response":{}}"#, (0, true)),
        ] {
            for end in ["\n\n", "\r\n\r\n"] {
                assert_eq!(pieces(&format!("{text}{end}")), expected, "{text}");
                let event = format!("1a\r\nevent: any\n{text}{end}\r\n");
                assert_eq!(pieces(&event), expected, "{event}");
            }
        }
        let both = "data: {\"content\":\"a\"}\r\n\r\ndata: {\"content\":\"b\"}\r\n\r\n";
        assert_eq!(pieces(both), (2, false));
        let whole = r#"{"choices":[{"finish_reason":"length","message":{"content":"data: x"}}]}"#;
        let sent = sent_of(whole.as_bytes());
        assert_eq!((sent.pieces, sent.is_last, sent.is_limit), (0, true, true));
        let error = b"HTTP/1.1 500 X\r\n\r\n{\"error\":{\"code\":500}}";
        assert!(sent_of(error).is_error);
        let long = format!(
            r#"{{"content":"","stop":true,"prompt":"{}","stop_type":"limit","tokens_predicted":7}}"#,
            "x".repeat(MOST_SEARCHED)
        );
        assert!(sent_of(long.as_bytes()).is_limit && sent_of(long.as_bytes()).is_last);
        assert_eq!(tokens_of(long.as_bytes()), [0, 7]);
        // What a model made.
        assert!(!sent_of(br#"{"input":{"error":{}},"a":1}"#).is_error);
    }

    #[test]
    fn lengths_and_names_are_those_of_the_server() {
        let whole =
            br#"{"input":{"prompt_tokens":5},"usage":{"prompt_tokens":70,"completion_tokens":9}}"#;
        assert_eq!(tokens_of(whole), [70, 9]);
        let own = br#"{"timings":{"cache_n":40,"prompt_n":30,"predicted_n":12}}"#;
        assert_eq!(tokens_of(own), [70, 12]);
        assert_eq!(tokens_of(b"{\"prompt_tokens\":x}"), [0, 0]);
        let tools = br#"{"choices":[{"tool_calls":[{"id":"call_1"}]}],"id":"chatcmpl-Ab_9"}"#;
        assert_eq!(name_of(tools), Some(&b"chatcmpl-Ab_9"[..]));
        assert_eq!(name_of(br#"{"id":"patient-4711"}"#), None);
        assert_eq!(name_of(b"{\"id\":\"cmpl-\x1b[31m\"}"), None);
        assert_eq!(name_of(b"{\"id\":\"cmpl-1"), None);
    }
}
