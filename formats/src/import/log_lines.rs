//! What a program logged before its trace, where both went to one file.

/// A trace that begins later in its file isn't looked for.
const MOST: usize = 64 << 10;

/// How many bytes are before the trace in a file that begins with this; `is_all` says that there is no more of it. `None` if
/// more is needed to tell. Without a trace it is 0, as of a file that has nothing before it.
pub(super) fn before_trace(part: &[u8], is_all: bool) -> Option<usize> {
    let is_all = is_all || part.len() >= MOST;
    let part = &part[..part.len().min(MOST)];
    let mut begin = 0;
    let mut is_first = true;
    for line in part.split_inclusive(|byte| *byte == b'\n') {
        let at = begin + line.len() - line.trim_ascii_start().len();
        begin += line.len();
        let Some(value) = part.get(at..begin).filter(|value| !value.is_empty()) else { continue };
        let is_whole = is_all || line.ends_with(b"\n");
        let inside = part[at + 1..].trim_ascii_start().first();
        match (value[0], inside) {
            // A file that begins with an object is read as one, whatever is in it.
            (b'{', _) if is_first => return Some(0),
            (b'{', Some(b'"')) | (b'[', Some(b'{')) => return Some(if is_first { 0 } else { at }),
            (b'{' | b'[', None) if !is_all => return None,
            (b'[', _) if is_first && !is_whole => return None,
            (b'[', _) if is_first && !is_tagged(value) => return Some(0),
            _ => is_first = false,
        }
    }
    is_all.then_some(0)
}

/// Whether a line begins with something in brackets that is no list, such as `[INFO]` or `[2026-11-20 09:12:44,123]`.
fn is_tagged(line: &[u8]) -> bool {
    let Some(end) = line.iter().position(|byte| *byte == b']') else { return false };
    let is_text = |byte: &u8| !matches!(byte, b'{' | b'"');
    let behind = line[end + 1..].trim_ascii_start().first();
    line[..end].iter().all(is_text)
        && behind.is_some_and(|byte| !matches!(byte, b',' | b']' | b'}'))
}

/// How many lines these are, without empty ones, and the first of them as far as it is shown.
pub(super) fn counted(lines: &[u8]) -> (u64, String) {
    let text = String::from_utf8_lossy(lines);
    let mut all = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first: String = all.next().unwrap_or("").chars().take(80).collect();
    (u64::from(!first.is_empty()) + all.count() as u64, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_begins_behind_lines_of_a_log() {
        const TRACE: &str = "{ \"traceEvents\": []}";
        for before in [
            "",
            "INFO: profiler started\n",
            "[INFO] a\r\n\n  [2026-11-20 09:12:44,123] {b}\n",
            "{'lr': 1}: a dict\nx\n",
            "x {\n[y]\n",
        ] {
            let is_object = before.starts_with('{');
            let before = if is_object { format!("a\n{before}") } else { before.to_owned() };
            for trace in [TRACE, "{\n \"traceEvents\"", "[ \n{\"ph\":\"X\"}"] {
                let text = format!("{before}{trace}");
                // The same, however much of it is there.
                let bytes = text.as_bytes();
                let told = (0..=bytes.len())
                    .find_map(|end| before_trace(&bytes[..end], end == bytes.len()));
                assert_eq!(told, Some(before.len()), "{text}");
            }
        }
        // What has no trace, or begins with JSON.
        for none in ["", "a\nb", "[5,\n{\"a\":1}]", "[5]\n{\"a\":1}", "{}\n{\"a\":1}", "[", "{"] {
            assert_eq!(before_trace(none.as_bytes(), true), Some(0), "{none}");
        }
        let late = format!("{}{TRACE}", "a\n".repeat(MOST));
        assert_eq!(before_trace(late.as_bytes(), false), Some(0));
        assert_eq!(counted(b"\n a \nb\xff\n\n"), (2, "a".to_owned()));
    }
}
