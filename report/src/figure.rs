//! The numbers of the page: the shown text, the raw value, and its place in `profile.json`.
//!
//! `report/derivations.md` describes the scheme, and `provenance.rs` checks every page against it.

use serde_json::{Value, json};

/// The origin of a number: a JSON pointer (text), or an operator and its operands (an array).
pub(super) type From = Value;

/// A place in the file.
pub(super) fn at(pointer: impl Into<String>) -> From {
    Value::String(pointer.into())
}

pub(super) fn sum(parts: Vec<From>) -> From {
    match <[From; 1]>::try_from(parts) {
        Ok([one]) => one,
        Err(parts) => Value::Array([vec![json!("sum")], parts].concat()),
    }
}

pub(super) fn sub(a: From, b: From) -> From {
    json!(["sub", a, b])
}

pub(super) fn mul(a: From, b: From) -> From {
    json!(["mul", a, b])
}

pub(super) fn div(a: From, b: From) -> From {
    json!(["div", a, b])
}

/// A value from the file, or derived from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Raw {
    Int(u64),
    Float(f64),
}

impl Raw {
    fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
        }
    }
}

impl std::convert::From<u64> for Raw {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl std::convert::From<u32> for Raw {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl std::convert::From<f64> for Raw {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// The unit of a column of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    /// Nanoseconds.
    per: f64,
    digits: usize,
}

impl Unit {
    /// The unit in which the largest of some times has few digits.
    pub(super) fn of(most_ns: u64) -> Self {
        match most_ns {
            ..10_000_000 => Self { name: "µs", per: 1e3, digits: 1 },
            10_000_000..100_000_000_000 => Self { name: "ms", per: 1e6, digits: 2 },
            _ => Self { name: "s", per: 1e9, digits: 3 },
        }
    }

    /// The unit in which the largest of some times has at most six characters, for tables of many columns.
    pub(super) fn of_cells(most_ns: u64) -> Self {
        match most_ns {
            ..10_000_000 => Self { name: "µs", per: 1e3, digits: 1 },
            10_000_000..1_000_000_000 => Self { name: "ms", per: 1e6, digits: 2 },
            1_000_000_000..10_000_000_000 => Self { name: "ms", per: 1e6, digits: 1 },
            _ => Self { name: "s", per: 1e9, digits: 2 },
        }
    }

    /// A difference in this unit, with its sign and without the unit's name.
    pub(super) fn signed(self, ns: f64, from: From) -> String {
        signed(ns, self.per, self.digits, "", from)
    }

    /// The time in this unit, without its name.
    pub(super) fn show(self, ns: impl Into<Raw>, from: From) -> String {
        figure(ns.into(), self.per, self.digits, "", from)
    }
}

/// A time with the name of its unit.
pub(super) fn time(ns: impl Into<Raw>, from: From) -> String {
    let raw = ns.into();
    let (unit, per) = match raw.as_f64().abs() {
        ns if ns < 1e3 => (" ns", 1.0),
        ns if ns < 1e6 => (" µs", 1e3),
        ns if ns < 1e9 => (" ms", 1e6),
        _ => (" s", 1e9),
    };
    let shown = raw.as_f64().abs() / per;
    let whole = matches!(raw, Raw::Int(_)) && per == 1.0;
    let digits = if whole { 0 } else { digits(shown) };
    figure(raw, per, digits, unit, from)
}

/// Digits after the point, for three in total, or all before the point.
fn digits(shown: f64) -> usize {
    match shown.abs() {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

/// A count.
pub(super) fn count(n: impl Into<Raw>, from: From) -> String {
    figure(n.into(), 1.0, 0, "", from)
}

/// A count and its noun, in the singular or plural.
pub(super) fn counted(n: u64, what: &str, from: From) -> String {
    let ending = match n {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(n, from))
}

/// A share of 1 in percent.
pub(super) fn percent(share: f64, from: From) -> String {
    if !share.is_finite() {
        return absent("n/a");
    }
    figure(Raw::Float(share), 0.01, 1, " %", from)
}

/// A rate or size: raw ÷ `per`, with three digits and the name of that unit.
pub(super) fn scaled(raw: impl Into<Raw>, per: f64, unit: &str, from: From) -> String {
    let raw = raw.into();
    figure(raw, per, digits(raw.as_f64() / per), unit, from)
}

/// How often one time goes into another.
pub(super) fn times(raw: f64, from: From) -> String {
    figure(Raw::Float(raw), 1.0, 3, "", from)
}

/// A change or difference, with its sign.
pub(super) fn signed(raw: f64, per: f64, digits: usize, unit: &str, from: From) -> String {
    let plus = if raw > 0.0 { "+" } else { "" };
    with_prefix(plus, Raw::Float(raw), per, digits, unit, from)
}

/// A cell for an unknown value.
pub(super) fn absent(why: &str) -> String {
    format!("<span class=\"absent\">{}</span>", super::html::text(why))
}

fn figure(raw: Raw, per: f64, digits: usize, unit: &str, from: From) -> String {
    with_prefix("", raw, per, digits, unit, from)
}

fn with_prefix(prefix: &str, raw: Raw, per: f64, digits: usize, unit: &str, from: From) -> String {
    let value = raw.as_f64() / per;
    if !value.is_finite() {
        return absent("n/a");
    }
    let mut digits = digits;
    let mut shown = format!("{value:.digits$}");
    // A measured value is never shown as zero.
    while value != 0.0 && digits < 6 && shown.bytes().all(|c| !matches!(c, b'1'..=b'9')) {
        digits += 1;
        shown = format!("{value:.digits$}");
    }
    let shown = shown.replace('-', "−");
    let from = match &from {
        Value::String(pointer) => pointer.clone(),
        other => other.to_string(),
    };
    // Pointers and arrays contain many double quotes, and rarely any of these characters.
    let from = from.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&#39;");
    let per = if per == 1.0 { String::new() } else { format!(" data-per={per}") };
    format!("<data value={}{per} data-from='{from}'>{prefix}{shown}{unit}</data>", raw.text())
}
