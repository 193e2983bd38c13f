//! Text for people: reports, tables, rooflines, trees, comparisons. Every function here is a pure
//! function of what was measured; none measures.

mod backends;
mod comparison;
mod device;
mod dot;
mod headline;
#[cfg(feature = "receipt")]
mod history;
mod imported;
mod json;
mod kernels;
mod machine;
mod nesting;
mod path;
mod report;
mod roofline;
mod roofline_svg;
mod statistics;
mod svg;
mod tables;
mod tiles;
mod tree;
#[cfg(feature = "presentar-tui")]
mod tui;

pub use self::backends::backends;
pub use self::comparison::{
    comparison, comparison_bmf, comparison_headline, comparison_json, comparison_markdown,
};
pub use self::headline::headline;
#[cfg(feature = "receipt")]
pub use self::history::{history, history_csv, history_json, history_markdown, history_svg};
pub use self::json::json;
pub use self::kernels::kernels;
pub use self::machine::machine;
pub use self::path::{PathRow, PathSummary, SlackRow, critical_path, path_summary};
pub use self::report::report;
pub use self::roofline::roofline;
pub use self::roofline_svg::roofline_svg;
pub use self::statistics::statistics;
pub(crate) use self::tables::{bricks_json, category_box, summary, tile_table, tiles_json};
pub use self::tree::TreeOptions;

/// What went wrong on the devices of `profile`, one sentence each.
#[must_use]
pub fn device_notes(profile: &crate::profile::Profile) -> Vec<String> {
    device::notes(profile)
}

/// `text` with control characters escaped, so that a name can't break a line or a terminal, nor
/// look like another name.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let (escaped, plain) =
                if is_unprintable(c) { (Some(c.escape_default()), None) } else { (None, Some(c)) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn is_unprintable(c: char) -> bool {
    match c {
        c if c.is_control() => true,
        // Line and paragraph separators; bidirectional controls; the byte order mark; what XML,
        // hence SVG, can't contain.
        '\u{2028}' | '\u{2029}' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        _ => false,
    }
}

/// Nanoseconds as microseconds with one digit, as in all tables; with three where one digit would
/// round a measured time to 0.
pub(crate) fn micros(nanos: f64) -> String {
    let digits = if nanos > 0.0 && nanos < 50.0 { 3 } else { 1 };
    format!("{:.digits$}", nanos / 1e3)
}

/// `part` of `whole` in percent; `n/a` where there is no whole.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "n/a".to_owned();
    }
    let percent = 100.0 * part / whole;
    if percent > 0.0 && percent < 0.05 { "<0.1%".to_owned() } else { format!("{percent:.1}%") }
}

/// `n` things, in the singular or the plural.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
