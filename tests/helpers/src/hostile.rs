//! Text that tries to control a terminal, to forge a line, or to flood a screen; and where it can stand in a file.

use serde_json::Value;

/// One of each kind of character that must not reach a reader, and a line of its own.
pub const HOSTILE: &str = "x\nFORGED\r\nFORGED\rFORGED\tt\u{0}\u{7}\u{8}\u{1b}[2J\u{1b}]0;title\u{7}\u{7f}\u{9b}31m\u{85}\
    \u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}FORGED\u{2029}FORGED\u{202a}\u{202e}\u{2060}\
    \u{2066}\u{2069}\u{feff}\u{fff9}\u{fffe}\u{ffff}\u{e0041}</script>\"'&<b>";

/// [`HOSTILE`], this many bytes of letters, and it again.
#[must_use]
pub fn flood(bytes: usize) -> String {
    format!("{HOSTILE}{}{HOSTILE}", "A".repeat(bytes))
}

/// Where a text stands in a JSON value.
#[derive(Debug, Clone)]
pub enum Place {
    /// The string at this pointer.
    Leaf(String),
    /// The key of the object at this pointer.
    Key(String, String),
}

/// All strings of a value, and all keys.
#[must_use]
pub fn places(value: &Value) -> Vec<Place> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut found);
    found
}

fn walk(value: &Value, at: String, found: &mut Vec<Place>) {
    match value {
        Value::String(_) => found.push(Place::Leaf(at)),
        Value::Array(values) => {
            for (nth, value) in values.iter().enumerate() {
                walk(value, format!("{at}/{nth}"), found);
            }
        }
        Value::Object(values) => {
            for (key, value) in values {
                found.push(Place::Key(at.clone(), key.clone()));
                let key = key.replace('~', "~0").replace('/', "~1");
                walk(value, format!("{at}/{key}"), found);
            }
        }
        _ => {}
    }
}

/// `value` with `text` at a place.
#[must_use]
pub fn planted(value: &Value, place: &Place, text: &str) -> Value {
    let mut value = value.clone();
    match place {
        Place::Leaf(at) => *value.pointer_mut(at).expect("it is there") = text.into(),
        Place::Key(at, key) => {
            let object = value.pointer_mut(at).and_then(Value::as_object_mut).expect("an object");
            let of = object.remove(key).expect("it is there");
            object.insert(text.to_owned(), of);
        }
    }
    value
}

/// The first character that a reader must not get. Listed here anew, so that the code under test can't excuse itself.
#[must_use]
pub fn forbidden(text: &str) -> Option<char> {
    // Most text has nothing but these, and bytes are looked at faster.
    if text.is_ascii() && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return None;
    }
    text.chars().find(|&c| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
            || matches!(c, '\u{e0000}'..='\u{e0fff}')
    })
}

/// Asserts that text for people neither controls, nor has a line that somebody forged, nor one without end.
#[track_caller]
pub fn assert_harmless(what: &str, text: &str) {
    if let Some(odd) = forbidden(text) {
        let at = text.find(odd).unwrap_or(0);
        let around: String = text[..at].chars().rev().take(60).collect();
        let around: String = around.chars().rev().collect();
        panic!("{what}: {odd:?} after {around:?}");
    }
    for line in text.lines() {
        // A character is a byte or several.
        assert!(
            line.len() <= 6_000 || line.chars().nth(6_000).is_none(),
            "{what}: a line of more than 6000 characters: {line:.80}"
        );
        let content = line.trim_start_matches([' ', '>', '-', '|', '!', '#', '*']);
        assert!(!content.starts_with("FORGED"), "{what}: {line}");
    }
    assert!(text.len() < 1 << 19, "{what}: {} bytes", text.len());
}

/// What a picture must not make of a text: a script, a handler, a link, another file.
pub const SCRIPT: &str = "\"'><script href=\"https://example.invalid/x\" onload=\"x()\">x()</script><a xlink:href='//e'>url(//e)";

/// Panics if a picture has anything that a program would run or fetch: it has shapes and text alone.
#[track_caller]
pub fn assert_inert(what: &str, svg: &str) {
    const SHAPES: [&str; 13] = [
        "svg", "g", "rect", "line", "path", "circle", "polyline", "polygon", "text", "tspan",
        "title", "desc", "style",
    ];
    let mut rest = svg;
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').unwrap_or_else(|| panic!("{what}: {tag:.80}"));
        rest = after;
        let tag = tag.trim_start_matches('/');
        let name = tag.split([' ', '/', '\n']).next().unwrap_or_default();
        assert!(SHAPES.contains(&name), "{what}: an element {name}");
        // Attributes are in double quotes, and no text in them has one.
        for (nth, part) in tag.split('"').enumerate() {
            if nth % 2 == 0 {
                let attribute = part.trim().trim_end_matches('=');
                let attribute = attribute.rsplit(' ').next().unwrap_or_default();
                let is_bad =
                    attribute.starts_with("on") || attribute.contains("href") || attribute == "src";
                assert!(!is_bad, "{what}: {attribute} in <{tag:.80}");
            } else {
                let refers = part.contains("url(") && !part.contains("url(#");
                let is_text = tag.starts_with("svg") || tag.starts_with("title");
                assert!(!refers || is_text, "{what}: {part} in <{tag:.80}");
            }
        }
    }
    for word in ["@import", "<!ENTITY", "<?xml-stylesheet"] {
        assert!(!svg.contains(word), "{what}: {word}");
    }
}
