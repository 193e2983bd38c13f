//! Text for people. Every function here is a function of what was measured; none measures.

mod dot;
mod headline;
mod json;
mod machine;
mod report;
mod roofline;
mod roofline_svg;
mod statistics;
mod tables;
mod tree;

pub use self::headline::headline;
pub use self::json::json;
pub use self::machine::machine;
pub use self::report::report;
pub use self::roofline::roofline;
pub use self::roofline_svg::roofline_svg;
pub use self::statistics::statistics;
pub(crate) use self::tables::{bricks_json, category_box, summary, tile_table, tiles_json};

/// `text` with control characters made visible, so that a name can't break a line or a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let (escaped, plain) =
                if c.is_control() { (Some(c.escape_default()), None) } else { (None, Some(c)) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// Nanoseconds as microseconds with one digit, as all tables have them; with three where one
/// would show a time that was measured as none.
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
