//! Numbers as text.

/// `part` of `whole` with one digit; `-` if there is no whole.
pub(crate) fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    if percent > 0.0 && percent < 0.05 { "<0.1%".to_owned() } else { format!("{percent:.1}%") }
}

/// Microseconds without a unit, in at most six columns below a second.
pub(crate) fn micros(ns: f64) -> String {
    match ns / 1e3 {
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 10_000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// The time of many passes: milliseconds, or seconds from ten on.
pub(crate) fn total_time(ns: u64) -> String {
    match ns as f64 / 1e6 {
        ms if ms < 10.0 => format!("{ms:.3} ms"),
        ms if ms < 10_000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// Decimal megabytes or gigabytes.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        ..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
