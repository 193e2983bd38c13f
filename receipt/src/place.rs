//! Finds the field at a line and column of JSON, for messages.

/// The last field that was opened or named before `line` and `column` (both from 1, in bytes), such as
/// `tests[0].samples[3].wall_ns`, and the offset in bytes. `text` may be anything.
pub(super) fn of(text: &str, line: usize, column: usize) -> (String, usize) {
    let before =
        text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum::<usize>();
    let offset = before.saturating_add(column.saturating_sub(1)).min(text.len());
    (field(&text.as_bytes()[..offset]), offset)
}

/// The field `name` of the object that ends at `line` and `column`, such as `tests[0].samples[3].wall_ns`.
pub(super) fn in_object(text: &str, line: usize, column: usize, name: &str) -> String {
    let (_, offset) = of(text, line, column);
    let mut levels = levels(&text.as_bytes()[..offset]);
    if let Some(Level::Object(last)) = levels.last_mut() {
        *last = Some(name.to_owned());
    }
    path(levels)
}

/// One level of nesting.
enum Level {
    /// The field that was named last.
    Object(Option<String>),
    /// The item.
    Array(usize),
}

fn field(bytes: &[u8]) -> String {
    path(levels(bytes))
}

fn levels(bytes: &[u8]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let mut last = String::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let start = at;
                while bytes.get(at).is_some_and(|&byte| byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let end = at.min(bytes.len());
                last = String::from_utf8_lossy(&bytes[start..end]).chars().take(128).collect();
                at += 1;
            }
            // Deeper than any receipt, and than the parser allows.
            b'{' | b'[' if levels.len() == 128 => break,
            b'{' => levels.push(Level::Object(None)),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b':' => {
                if let Some(Level::Object(name)) = levels.last_mut() {
                    *name = Some(std::mem::take(&mut last));
                }
            }
            b',' => match levels.last_mut() {
                Some(Level::Object(name)) => *name = None,
                Some(Level::Array(item)) => *item += 1,
                None => {}
            },
            _ => {}
        }
    }
    levels
}

fn path(levels: Vec<Level>) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object(Some(name)) => {
                let dot = if path.is_empty() { "" } else { "." };
                path += &format!("{dot}{name}");
            }
            Level::Object(None) => {}
            Level::Array(item) => path += &format!("[{item}]"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_said_as_a_script_would_ask_for_it() {
        let text = "{\"tests\": [{},\n {\"a \\\"b\": 1, \"c\": [[], [1, 2]], \"d\": x";
        let at = |needle: &str| {
            let offset = text.find(needle).expect("it is there");
            let line = text[..offset].matches('\n').count() + 1;
            let column = offset - text[..offset].rfind('\n').map_or(0, |end| end + 1) + 1;
            let (field, found) = of(text, line, column);
            assert_eq!(found, offset);
            field
        };
        assert_eq!(at("{}"), "tests[0]");
        assert_eq!(at("1,"), "tests[1].a \\\"b");
        assert_eq!(at("2]"), "tests[1].c[1][1]");
        assert_eq!(at("x"), "tests[1].d");
        assert_eq!(of(text, 99, 99).1, text.len());
    }

    proptest! {
        #[test]
        fn any_text_has_places(text in "[{}\\[\\]:,\"\\\\a\n]{0,60}", line in 0_usize..5, column in 0_usize..70) {
            prop_assert!(of(&text, line, column).1 <= text.len());
        }
    }
}
