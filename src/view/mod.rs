//! Text for people. Every function here is a function of what was measured; none measures.

mod dot;
mod headline;
mod report;
mod tables;
mod tree;

pub use self::headline::headline;
pub use self::report::report;
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

/// Nanoseconds as microseconds with one digit, as all tables have them.
pub(crate) fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

/// `part` of `whole` in percent; `n/a` where there is no whole.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", 100.0 * part / whole) } else { "n/a".to_owned() }
}
