//! Formatting of numbers and text, the same in all tables; and the exits of text.
//!
//! Names and sentences come from files that anyone may have written, and their characters can control a
//! terminal, turn the direction of a line, or be invisible. So text passes two guards. Fields pass the first
//! while a view is written: [`printable`] or [`printable_text`], which also cut. The whole text passes the second
//! when it leaves, so that a view can't forget one: [`screened`] or [`screened_lines`].

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The most characters of a name that are shown.
pub const NAME: usize = 200;

/// The same within a sentence.
pub const BRIEF: usize = 40;

/// The most characters of a sentence or a path that are shown.
pub const TEXT: usize = 2_000;

/// The most characters of a line of text.
pub const LINE: usize = 6_000;

/// A name, with characters escaped that could break a line, control a terminal, or make it look like another
/// name; cut after 200 characters, with an ellipsis.
#[must_use]
pub fn printable(name: &str) -> String {
    printable_in(name, NAME)
}

/// The same for what is longer than names are, such as reasons and paths: cut after 2000 characters.
#[must_use]
pub fn printable_text(text: &str) -> String {
    printable_in(text, TEXT)
}

/// The same, cut after `most` characters.
#[must_use]
pub fn printable_in(text: &str, most: usize) -> String {
    limited(text, most, is_unprintable)
}

/// A name within a sentence: cut after 40 characters, since compilers give kernels names of hundreds.
#[must_use]
pub fn brief(name: &str) -> String {
    printable_in(name, BRIEF)
}

/// The last name of a path, of whichever system: files have other folders on other machines.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).find(|name| !name.is_empty()).unwrap_or("")
}

/// `text` as it may leave: all characters escaped that [`printable`] escapes, but not line breaks, tabs, and
/// the mark that makes an emoji of the character before it, which our own text has.
///
/// They are escaped as in JSON, `\u202e`, so JSON keeps its values, and so does the JSON in a page: outside of
/// strings it has none of them.
#[must_use]
pub fn screened(text: String) -> String {
    if !text.contains(is_unprintable) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 64);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_line_break = c == '\n' || (c == '\r' && chars.peek() == Some(&'\n'));
        if is_line_break || matches!(c, '\t' | '\u{fe0f}') || !is_unprintable(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

/// The same for text of lines, such as a report: lines of more than 6000 characters are cut.
#[must_use]
pub fn screened_lines(text: String) -> String {
    let text = screened(text);
    // In bytes, of which there are at least as many.
    if text.split('\n').all(|line| line.len() <= LINE) {
        return text;
    }
    let lines: Vec<String> = text.split('\n').map(|line| limited(line, LINE, |_| false)).collect();
    lines.join("\n")
}

/// `text` in at most `most` characters, with an ellipsis if it is cut.
fn limited(text: &str, most: usize, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::new();
    // With the length up to which an ellipsis has room.
    let (mut characters, mut room_at) = (0, 0);
    for c in text.chars() {
        if characters < most {
            room_at = shown.len();
        }
        if is_escaped(c) {
            let escaped = c.escape_default();
            characters += escaped.len();
            shown.extend(escaped);
        } else {
            characters += 1;
            shown.push(c);
        }
        if characters > most {
            shown.truncate(room_at);
            shown.push('…');
            break;
        }
    }
    shown
}

/// Whether a character controls something, can't be seen, or is none in XML, and so in SVG.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    match c {
        ' '..='~' => false,
        // C0, DEL, C1.
        c if c.is_control() => true,
        // Line and paragraph separators, and marks of annotations.
        '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' => true,
        // Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt: what is drawn as nothing. The
        // bidirectional controls, joiners, zero-width blanks, byte order mark, selectors and tags are in it.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => {
            true
        }
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => true,
        '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        // No characters.
        c => c as u32 & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}'),
    }
}

/// Nanoseconds as microseconds with one decimal, or with three if one would round a measured time
/// to 0.
#[must_use]
pub fn micros(nanos: f64) -> String {
    let digits = if nanos > 0.0 && nanos < 50.0 { 3 } else { 1 };
    format!("{:.digits$}", nanos / 1e3)
}

/// Nanoseconds in three digits and a unit.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e4 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e5 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        _ if ns < 1e7 => format!("{:.2} ms", ns / 1e6),
        _ if ns < 1e8 => format!("{:.1} ms", ns / 1e6),
        _ if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// `12.3 kB`, `456 MB`, `7.8 GB`.
#[must_use]
pub fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        _ if bytes < 9.95e6 => format!("{:.1} MB", bytes / 1e6),
        _ if bytes < 1e9 => format!("{:.0} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}

/// `part` of `whole` in percent; `n/a` if `whole` is 0.
#[must_use]
pub fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "n/a".to_owned();
    }
    let percent = 100.0 * part / whole;
    if percent > 0.0 && percent < 0.05 { "<0.1%".to_owned() } else { format!("{percent:.1}%") }
}

/// `1 brick`, `2 bricks`, `2 passes`.
#[must_use]
pub fn count(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        _ if what.ends_with('s') => format!("{n} {what}es"),
        _ => format!("{n} {what}s"),
    }
}

/// A number with a comma between thousands.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name in at most `width` characters, followed by `mark`.
#[must_use]
pub fn shortened(name: &str, width: usize, mark: &str) -> String {
    let name = printable(name);
    if name.chars().count() <= width {
        return name + mark;
    }
    let kept: String = name.chars().take(width - 1).collect();
    format!("{kept}…{mark}")
}

/// The names that would look the same in at most `width` characters, since they differ only in their ends: each in a line
/// of its own, of at most 78 characters, see [`apart`].
#[must_use]
pub fn alike_when_cut<'n>(
    names: impl Iterator<Item = &'n str>,
    width: usize,
) -> HashMap<&'n str, String> {
    const LINE: usize = 78;
    let mut of_cut: HashMap<String, Vec<&str>> = HashMap::new();
    let mut known = HashSet::new();
    for name in names.filter(|name| known.insert(*name)) {
        of_cut.entry(shortened(name, width, "")).or_default().push(name);
    }
    let mut lines = HashMap::new();
    for alike in of_cut.into_values().filter(|alike| alike.len() > 1) {
        lines.extend(apart(alike.into_iter(), LINE));
    }
    lines
}

/// A name in at most `width` characters: of a longer one both ends, since names often differ in the last one.
#[must_use]
pub fn cut_in_the_middle(name: &str, width: usize) -> String {
    // Kernels' names differ behind the 200th character, too.
    let name = printable_text(name);
    let (length, width) = (name.chars().count(), width.max(3));
    if length <= width {
        return name;
    }
    let start: String = name.chars().take(width / 2).collect();
    let end: String = name.chars().skip(length - (width - width / 2 - 1)).collect();
    format!("{start}…{end}")
}

/// Each name in at most `width` characters, at least 40, so that different ones look different: cut in the middle, or where
/// the middle alone tells names apart, from where they begin to differ.
#[must_use]
pub fn apart<'n>(names: impl Iterator<Item = &'n str>, width: usize) -> HashMap<&'n str, String> {
    /// Of names that begin alike, so much of the begin is kept, and so much of what is before a difference.
    const KEPT: usize = 12;
    const BEFORE: usize = 8;
    let width = width.max(40);
    let mut of_line: HashMap<String, Vec<&str>> = HashMap::new();
    let mut known = HashSet::new();
    for name in names.filter(|name| known.insert(*name)) {
        of_line.entry(cut_in_the_middle(name, width)).or_default().push(name);
    }
    let mut lines = HashMap::new();
    for (line, mut alike) in of_line {
        if alike.len() == 1 {
            lines.insert(alike[0], line);
            continue;
        }
        alike.sort_unstable();
        let whole: Vec<Vec<char>> =
            alike.iter().map(|name| printable_text(name).chars().collect()).collect();
        let shared = |a: &[char], b: &[char]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let last = whole.len() - 1;
        let by_all = shared(&whole[0], &whole[last]);
        // The begin, where the first of them differ, where it differs from those that are most like it, and the end.
        let part = (width - 3 - KEPT) / 3;
        for (at, name) in alike.iter().enumerate() {
            // Sorted, so those that are most like it are beside it.
            let before = at.checked_sub(1).map_or(0, |before| shared(&whole[at], &whole[before]));
            let after = whole.get(at + 1).map_or(0, |after| shared(&whole[at], after));
            let length = whole[at].len();
            let from = |differs: usize| differs.saturating_sub(BEFORE).min(length);
            let mut parts = [
                (0, KEPT),
                (from(by_all), from(by_all) + part),
                (from(before.max(after)), from(before.max(after)) + part),
                (length.saturating_sub(part), length),
            ];
            parts.sort_unstable();
            let (mut line, mut until) = (String::new(), 0);
            for (from, to) in parts.map(|(from, to)| (from, to.min(length))) {
                if from > until {
                    line.push('…');
                }
                line.extend(whole[at].get(from.max(until)..to).into_iter().flatten());
                until = until.max(to);
            }
            lines.insert(*name, line);
        }
    }
    numbered(&mut lines);
    lines
}

/// Numbers the names that still look the same.
fn numbered(lines: &mut HashMap<&str, String>) {
    let mut of_line: HashMap<String, Vec<&str>> = HashMap::new();
    for (name, line) in lines.iter() {
        of_line.entry(line.clone()).or_default().push(name);
    }
    for (line, mut names) in of_line {
        if names.len() < 2 {
            continue;
        }
        names.sort_unstable();
        for (nth, name) in names.into_iter().enumerate() {
            let number = format!(" #{}", nth + 1);
            let kept = line.chars().count().saturating_sub(number.len());
            let numbered = line.chars().take(kept).collect::<String>() + &number;
            if let Some(line) = lines.get_mut(name) {
                *line = numbered;
            }
        }
    }
}

/// The most bricks that a table lists. The others are summed in one row.
pub const MOST_ROWS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart_by_commas() {
        let grouped = [0, 7, 999, 1000, 589_824, 1_000_000, u64::MAX].map(grouped);
        let expected =
            ["0", "7", "999", "1,000", "589,824", "1,000,000", "18,446,744,073,709,551,615"];
        assert_eq!(grouped, expected);
    }

    /// One of each kind that must not reach a terminal.
    const HOSTILE: &str = "\u{0}\u{7}\u{1b}[2J\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200e}\u{2028}\u{202e}\u{2060}\
                           \u{2066}\u{fe0e}\u{feff}\u{fffa}\u{ffff}\u{e0041}";

    #[test]
    fn what_cannot_be_seen_in_a_name_is_spelt_out() {
        assert_eq!(printable("a\nb\r\tc\u{202e}\u{0}é注 🦀"), "a\\nb\\r\\tc\\u{202e}\\u{0}é注 🦀");
        let shown = printable(HOSTILE);
        assert!(shown.is_ascii() && !shown.contains(is_unprintable), "{shown}");
        // Nothing that people write names with.
        for plain in ["ａ\u{a0}b", "e\u{301}", "\u{3000}", "\u{fffd}", "−±µ×≤", "a\\nb"] {
            assert_eq!(printable(plain), plain);
        }
    }

    #[test]
    fn names_and_sentences_are_cut_and_never_inside_of_an_escape() {
        for (cut, most) in [(printable as fn(&str) -> String, NAME), (printable_text, TEXT)] {
            let fits = "é".repeat(most);
            assert_eq!(cut(&fits), fits);
            assert_eq!(cut(&(fits + "é")), "é".repeat(most - 1) + "…");
            let of_8_each = cut(&"\u{202e}".repeat(1 << 20));
            assert!((most - 8..=most).contains(&of_8_each.chars().count()), "{of_8_each}");
            assert!(of_8_each.ends_with("\\u{202e}…"), "{of_8_each}");
        }
    }

    #[test]
    fn names_that_are_alike_when_cut_are_told_once_each() {
        let start = "a_frame_of_many";
        let names: Vec<String> = (0..100_000).map(|n| format!("{start}{n:06}")).collect();
        // Each comes twice, which makes it no more alike.
        let twice = names.iter().chain(&names).map(String::as_str).chain(["alone", "alone"]);
        let lines = alike_when_cut(twice, start.len());
        assert_eq!(lines.len(), names.len());
        assert!(names.iter().all(|name| lines[&**name] == *name));
        // What only the middle tells apart is cut there.
        let long = |middle: &str| format!("{}{middle}{}", "s".repeat(60), "e".repeat(60));
        let (a, b) = (long("a"), long("b"));
        let lines = alike_when_cut([&*a, &*b].into_iter(), 20);
        let line = |middle: &str| {
            let (start, around) = ("s".repeat(12), ["s".repeat(8), "e".repeat(12)]);
            format!("{start}…{}{middle}{}…{}", around[0], around[1], "e".repeat(21))
        };
        assert_eq!((&lines[&*a], &lines[&*b]), (&line("a"), &line("b")));
        assert!(lines.values().all(|line| line.chars().count() <= 78));
    }

    #[test]
    fn names_are_cut_in_the_middle_and_stay_apart() {
        assert_eq!(cut_in_the_middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut_in_the_middle("abcdefghijk", 10), "abcde…hijk");
        let names: Vec<String> = ["x", "y", "z"]
            .iter()
            .flat_map(|middle| {
                ["1", "2"].map(|end| format!("{}{middle}{}{end}", "s".repeat(90), "e".repeat(90)))
            })
            .collect();
        let mut names = names;
        // Each is most like one that differs late, and they differ early from the others.
        for (early, late) in [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")] {
            let (s, e) = ("s".repeat(60), "e".repeat(60));
            names.push(format!("{s}{early}{e}{late}{e}{e}"));
        }
        let lines = apart(names.iter().map(String::as_str), 80);
        let different: HashSet<&String> = lines.values().collect();
        assert_eq!(different.len(), names.len(), "{lines:?}");
        assert!(lines.values().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn whole_text_keeps_its_lines_and_nothing_else_that_controls() {
        let text = format!("⚠️ a\tb\r\n{HOSTILE}\rc\n");
        let shown = screened(text);
        assert!(shown.starts_with("⚠️ a\tb\r\n\\u0000\\u0007"), "{shown}");
        assert!(shown.ends_with("\\u000dc\n"), "{shown}");
        assert_eq!(shown.matches(is_unprintable).collect::<String>(), "\u{fe0f}\t\r\n\n");
        assert_eq!(screened(shown.clone()), shown);

        let long = format!("a\n{}\nb\n", "é".repeat(LINE + 1));
        assert_eq!(screened_lines(long), format!("a\n{}…\nb\n", "é".repeat(LINE - 1)));
    }

    #[test]
    fn json_keeps_its_values() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, "é注 🦀\n\t"] });
        let json = screened(format!("{value:#}\n"));
        let odd = |c| is_unprintable(c) && c != '\n';
        assert!(
            !json.contains(odd) && json.contains("\\u202e\\u2060") && json.contains("🦀"),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).ok(), Some(value));
    }
}
