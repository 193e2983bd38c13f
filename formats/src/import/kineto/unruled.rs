//! Kernels that no line of the table is for, and the lines that would be.

use std::collections::HashMap;

use brickscope_profile::Unruled as Told;

use super::table::{Table, without_arguments};
use crate::import::trace::Trace;

/// How many of them a line is written for.
const MOST_LINES: usize = 5;

/// The most characters of a pattern: a line of the report has room for it.
const MOST_CHARS: usize = 60;

/// Kernels that nothing tells the brick of.
#[derive(Default)]
pub(super) struct Unruled {
    /// How long each ran, by the number of its name.
    of_name: HashMap<u32, u64>,
    /// How long all kernels and copies ran.
    pub(super) of_ns: u64,
}

impl Unruled {
    pub(super) fn add(&mut self, name: u32, ns: u64) {
        let sum = self.of_name.entry(name).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// What is to be said of them; `None` if there are none. A name that the table has so as to be no brick is none.
    pub(super) fn told(self, trace: &Trace, table: &Table) -> Option<Told> {
        let name_of = |number: u32| trace.names.get(number as usize).map_or("", String::as_str);
        let of_name = self.of_name.into_iter().map(|(number, ns)| (name_of(number), ns));
        let all: Vec<(&str, u64)> =
            of_name.filter(|(name, _)| table.kernel(name).is_none()).collect();
        let mut of_pattern: HashMap<String, u64> = HashMap::new();
        for &(name, ns) in &all {
            if let Some(pattern) = pattern_of(name) {
                let sum = of_pattern.entry(pattern).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        let mut longest: Vec<(String, u64)> = of_pattern.into_iter().collect();
        longest.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        longest.truncate(MOST_LINES);
        let ns = all.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let of_ns = self.of_ns;
        (!all.is_empty()).then_some(Told { names: all.len() as u64, ns, of_ns, longest })
    }
}

/// A pattern for a kernel and those that are made of the same template: `void scan*` of `void scan<int>(char*)`. `None` for
/// a name of which nothing is left.
fn pattern_of(name: &str) -> Option<String> {
    let bare = without_arguments(name);
    // `<unnamed>` is a namespace.
    let is_of_template =
        |at: usize| bare[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let end = bare.match_indices('<').map(|(at, _)| at).find(|&at| is_of_template(at));
    let front = &bare[..end.unwrap_or(bare.len())];
    // What a pattern can't have is any text in it.
    let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && c != '"' && c != '\\';
    let pattern: String =
        front.chars().take(MOST_CHARS).map(|c| if is_plain(c) { c } else { '*' }).collect();
    if !pattern.contains(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let is_whole = front.len() == name.len() && front.chars().count() <= MOST_CHARS;
    Some(if is_whole { pattern } else { pattern + "*" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::pattern::matches;

    #[test]
    fn a_pattern_is_of_the_kernel_and_matches_it() {
        let long = "my_".repeat(40);
        let cut = format!("{}*", &long[..60]);
        for (name, pattern) in [
            ("my_kernel", "my_kernel"),
            ("void scan<int, 4>(char*, long)", "void scan*"),
            (
                "void (anonymous namespace)::clamp_position_kernel<long>(long*, long const*)",
                "void (anonymous namespace)::clamp_position_kernel*",
            ),
            ("void <unnamed>::pick<(int)3>(T2 *)", "void <unnamed>::pick*"),
            ("a\"b\\c\u{202e}d", "a*b*c*d"),
            ("f(int) [clone .kd]", "f*"),
            (&*long, &*cut),
        ] {
            let found = pattern_of(name).expect("a pattern");
            assert_eq!(found, pattern);
            assert!(matches(&found, name), "{found} {name}");
            let line = format!("[kernel]\n\"{found}\" = \"\"\n");
            let table = Table::new(Some(&line)).expect("it is a line of a table");
            assert!(table.kernel(name).is_some(), "{line}");
        }
        assert_eq!(pattern_of(""), None);
        assert_eq!(pattern_of("()"), None);
        assert_eq!(pattern_of("\u{3bb}"), None);
    }
}
