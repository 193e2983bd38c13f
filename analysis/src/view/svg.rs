//! Lines and text as SVG has them.

use crate::text::xml;
use std::fmt::Write;

use brickscope_profile::text::printable_text;

/// A line from one point to the other.
pub(super) fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

/// A line of text.
pub(super) fn text(svg: &mut String, x: f64, y: f64, style: &str, content: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{style}>{}</text>", escaped(content));
}

/// `text` as XML has it, without what XML has no form for.
pub(super) fn escaped(text: &str) -> String {
    xml(&printable_text(text))
}
