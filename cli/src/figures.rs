//! Numbers as text: the formats that tables, views and notes share.
//!
//! The formats differ on purpose, by how much room a place has and how fine its figures are. The HTML
//! report has formats of its own, in `report/src/figure.rs`: there each number carries where it comes from.

/// `25.9` for a share of 0.259: one digit, no sign of percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// `+0.12 %` for a ratio of 0.0012 above 1.
pub(crate) fn signed_percent(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * ratio)
}

/// `part` of `whole` with two digits. A part above zero is never shown as zero.
pub(crate) fn fine_percent_of(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "n/a".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0 %".to_owned(),
        _ if percent < 0.005 => "<0.01 %".to_owned(),
        _ => format!("{percent:.2} %"),
    }
}

/// A difference of shares, in percentage points.
pub(crate) fn points(difference: f64) -> String {
    let text = format!("{:+.2}", 100.0 * difference);
    // What rounds to zero has no sign.
    if text == "-0.00" || text == "+0.00" { "0.00".to_owned() } else { text }
}

pub(crate) use brickscope_analysis::text::pass_time;
